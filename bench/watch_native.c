/*
 * What a watch on both ends of a connection costs (unet_watch_set()): round trips of 14 bytes, and
 * a stream, with and without it in turn, so that what else the machine does falls on both alike.
 *
 *   watch_native PORT PAIRS         prints one line of JSON
 *
 * A pair is a block without and a block with a watch. The medians of the blocks are told, and the
 * median of the differences within a pair.
 */
#include <assert.h>
#include <sys/wait.h>

#include <unet/flow.h>

#include "bench/native.h"

#define ROUNDS       4000
#define STREAM_BYTES (64l << 20)
#define PAIRS_MOST   2000
#define CONNECT_FOR  10.0 /* seconds */

enum order { ECHO, WATCH, FORGET, TAKE };

struct message {
        uint8_t order;
        uint8_t pad[13];
};
static_assert(sizeof(struct message) == 14, "as the paper's");

static char data[65536];

static void watch(int s, bool on)
{
        struct unet_watch w = {.size = sizeof w,
                               .acked = 1,
                               .unsent_below = 1,
                               .unread_above = 1u << 30,
                               .rtt = 1000000000};

        if (unet_watch_set(s, on ? &w : NULL) != 0)
                die("watch");
}

static void send_message(int s, enum order order)
{
        struct message m = {.order = (uint8_t)order};

        if (unet_send(s, &m, sizeof m, 0) != sizeof m)
                die("send");
}

static void take_stream(int s)
{
        for (long left = STREAM_BYTES; left > 0; left -= (long)sizeof data)
                if (!native_recv_all(s, data, sizeof data))
                        die("stream");
}

static int serve(int port)
{
        int listener = native_listen(port), s = native_accept(listener);
        struct message m;

        native_no_delay(s);
        while (native_recv_all(s, &m, sizeof m)) {
                if (m.order == WATCH || m.order == FORGET)
                        watch(s, m.order == WATCH);
                else if (m.order == TAKE)
                        take_stream(s);
                send_message(s, ECHO);
        }
        return unet_close(s) != 0 || unet_close(listener) != 0;
}

static void asks(int s, enum order order)
{
        struct message m;

        send_message(s, order);
        if (!native_recv_all(s, &m, sizeof m))
                die("answer");
}

/* Nanoseconds a round trip. */
static double round_trip(int s)
{
        double start = now_s();

        for (int i = 0; i < ROUNDS; i++)
                asks(s, ECHO);
        return (now_s() - start) * 1e9 / ROUNDS;
}

/* Nanoseconds a megabyte. */
static double stream(int s)
{
        double start = now_s();
        struct message m;

        send_message(s, TAKE);
        for (long left = STREAM_BYTES; left > 0; left -= (long)sizeof data)
                if (unet_send(s, data, sizeof data, 0) != (ssize_t)sizeof data)
                        die("stream");
        if (!native_recv_all(s, &m, sizeof m))
                die("answer");
        return (now_s() - start) * 1e9 / (double)(STREAM_BYTES >> 20);
}

static int by_value(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

static double median(double *v, int n)
{
        qsort(v, (size_t)n, sizeof *v, by_value);
        return v[n / 2];
}

struct cost {
        double plain, watched, more;
};

static struct cost measure(int s, double (*block)(int), int pairs)
{
        static double took[2][PAIRS_MOST], more[PAIRS_MOST];

        for (int i = 0; i < pairs; i++) {
                for (int side = 0; side < 2; side++) {
                        bool on = side ^ (i & 1); /* each comes first half the time */
                        watch(s, on);
                        asks(s, on ? WATCH : FORGET);
                        took[on][i] = block(s);
                }
                more[i] = took[1][i] - took[0][i];
        }
        return (struct cost){median(took[0], pairs), median(took[1], pairs), median(more, pairs)};
}

static int connects(int port)
{
        struct sockaddr_in sa = end_of(LOOPBACK, port);
        double until = now_s() + CONNECT_FOR;
        int s = unet_socket(AF_INET, SOCK_STREAM, 0);

        while (s >= 0 && unet_connect(s, (struct sockaddr *)&sa, sizeof sa) != 0) {
                if (errno != ECONNREFUSED || now_s() > until)
                        die("connect");
                usleep(10000);
        }
        native_no_delay(s);
        return s;
}

static void drive(int port, int pairs)
{
        int s = connects(port);
        struct cost rtt, mb;

        round_trip(s); /* caches, windows, and both sides awake */
        stream(s);
        rtt = measure(s, round_trip, pairs);
        mb = measure(s, stream, pairs);
        unet_close(s);
        printf("{\"rtt_ns\": %.1f, \"rtt_watched_ns\": %.1f, \"rtt_more_ns\": %.1f, "
               "\"stream_ns_mb\": %.0f, \"stream_watched_ns_mb\": %.0f, "
               "\"stream_more_percent\": %.2f, \"pairs\": %d}\n",
               rtt.plain, rtt.watched, rtt.more, mb.plain, mb.watched, 100 * mb.more / mb.plain,
               pairs);
}

int main(int argc, char **argv)
{
        int port, pairs, status;
        pid_t server;

        if (argc != 3) {
                fprintf(stderr, "usage: watch_native PORT PAIRS\n");
                return 2;
        }
        port = (int)number_arg(argv[1], 1, 65535);
        pairs = (int)number_arg(argv[2], 1, PAIRS_MOST);
        server = fork();
        if (server < 0)
                die("fork");
        if (server == 0)
                return serve(port);
        drive(port, pairs);
        return waitpid(server, &status, 0) != server || status != 0;
}
