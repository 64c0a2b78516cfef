/*
 * Round trip over TCP through the native API: messages there and back, one after the other.
 *
 *   rtt_native server PORT [ADDRESS BYTES]          serves one connection; with ADDRESS one after
 *                                                   the other
 *   rtt_native client PORT SECONDS [ADDRESS BYTES]  prints one line of JSON
 *
 * ADDRESS is the server's; 127.0.0.1 and 14 bytes if not said.
 */
#include "bench/native.h"

#define MESSAGE_MAX 4096
#define SAMPLES     (1u << 20)
#define WARM_UP_MAX 10000 /* round trips, and no more than WARM_UP_S of them */
#define WARM_UP_S   0.5

static char message[MESSAGE_MAX];
static ssize_t bytes = 14;

static void serve(const char *address, int port, bool once)
{
        int listener = native_listen_on(address, port);

        do {
                int s = native_accept(listener);

                native_no_delay(s);
                while (native_recv_all(s, message, (size_t)bytes))
                        if (unet_send(s, message, (size_t)bytes, 0) != bytes)
                                die("send");
                unet_close(s);
        } while (!once);
        unet_close(listener);
}

static void exchange(int s)
{
        if (unet_send(s, message, (size_t)bytes, 0) != bytes ||
            !native_recv_all(s, message, (size_t)bytes))
                die("exchange");
}

static int by_value(const void *a, const void *b)
{
        float x = *(const float *)a, y = *(const float *)b;

        return (x > y) - (x < y);
}

static void drive(const char *address, int port, double seconds)
{
        static float sample[SAMPLES];
        int s = native_connect_to(address, port);
        double start = now_s(), last, now;
        unsigned long n = 0;

        native_no_delay(s);
        for (int i = 0; i < WARM_UP_MAX && now_s() < start + WARM_UP_S;
             i++) /* caches, windows, and both sides awake */
                exchange(s);
        start = last = now_s();
        do {
                exchange(s);
                now = now_s();
                sample[n++ % SAMPLES] = (float)((now - last) * 1e6);
                last = now;
        } while (now - start < seconds);
        unet_close(s);

        unsigned long kept = n < SAMPLES ? n : SAMPLES;
        qsort(sample, kept, sizeof sample[0], by_value);
        printf("{\"rtt_us\": %.4f, \"mean_us\": %.4f, \"p99_us\": %.4f, \"round_trips\": %lu}\n",
               (double)sample[kept / 2], (now - start) * 1e6 / (double)n,
               (double)sample[kept * 99 / 100], n);
}

int main(int argc, char **argv)
{
        bool server = (argc == 3 || argc == 5) && strcmp(argv[1], "server") == 0;
        bool client = (argc == 4 || argc == 6) && strcmp(argv[1], "client") == 0;
        const char *address = argc > 4 ? argv[argc - 2] : LOOPBACK;
        int port;

        if (!server && !client) {
                fprintf(stderr, "usage: rtt_native server PORT [ADDRESS BYTES] | client PORT "
                                "SECONDS [ADDRESS BYTES]\n");
                return 2;
        }
        port = (int)number_arg(argv[2], 1, 65535);
        if (argc > 4)
                bytes = number_arg(argv[argc - 1], 1, MESSAGE_MAX);
        if (server)
                serve(address, port, argc == 3);
        else
                drive(address, port, (double)number_arg(argv[3], 1, 3600));
        return 0;
}
