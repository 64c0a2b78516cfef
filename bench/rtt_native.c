/*
 * Round trip over TCP through the native API: 14 bytes there and back, one after the other.
 *
 *      rtt_native server PORT              serves one connection
 *      rtt_native client PORT SECONDS      prints one line of JSON
 */
#include "bench/native.h"

#define MESSAGE 14
#define SAMPLES (1u << 20)

static void serve(int port)
{
        int listener = native_listen(port), s = native_accept(listener);
        char message[MESSAGE];

        native_no_delay(s);
        while (native_recv_all(s, message, sizeof message))
                if (unet_send(s, message, sizeof message, 0) != sizeof message)
                        die("send");
        unet_close(s);
        unet_close(listener);
}

static void exchange(int s)
{
        char message[MESSAGE] = "thirteen char";

        if (unet_send(s, message, sizeof message, 0) != sizeof message || !native_recv_all(s, message, sizeof message))
                die("exchange");
}

static int by_value(const void *a, const void *b)
{
        float x = *(const float *)a, y = *(const float *)b;

        return (x > y) - (x < y);
}

static void drive(int port, double seconds)
{
        static float sample[SAMPLES];
        int s = native_connect(port);
        double start, last, now;
        unsigned long n = 0;

        native_no_delay(s);
        for (int i = 0; i < 10000; i++)                 /* caches, windows, and both sides awake */
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
               (double)sample[kept / 2], (now - start) * 1e6 / (double)n, (double)sample[kept * 99 / 100], n);
}

int main(int argc, char **argv)
{
        if (argc == 3 && strcmp(argv[1], "server") == 0) {
                serve((int)number_arg(argv[2], 1, 65535));
        } else if (argc == 4 && strcmp(argv[1], "client") == 0) {
                drive((int)number_arg(argv[2], 1, 65535), (double)number_arg(argv[3], 1, 3600));
        } else {
                fprintf(stderr, "usage: rtt_native server PORT | client PORT SECONDS\n");
                return 2;
        }
        return 0;
}
