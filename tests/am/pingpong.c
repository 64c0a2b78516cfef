/*
 * What a round trip and a stream cost, of raw endpoints and of active messages: both sides in one
 * process, so that each does exactly what it must. Over shared memory callgrind counts
 * (cost_test.py); over RDMA devices a machine does whose clock is the instructions that it has
 * executed, its kernel's too (tests/vm/am_cost.py).
 *
 *   am_pingpong raw|am BYTES TIMES [ADDRESS PEER]        round trips
 *   am_pingpong stream|store BYTES TIMES [ADDRESS PEER]  bytes put into the receiver's segment,
 *                                                        some at a time
 *   am_pingpong logp 32 TIMES ADDRESS PEER               LogP's parameters, as JSON
 *   am_pingpong none                                     what is there before and after
 *
 * With addresses it is over their RDMA devices, and prints the nanoseconds of each.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <unet/am.h>

#define PLACES 256u /* for messages that have come */
/* ns, to join: the clock of a machine that counts leaps while it waits for a file. */
#define PATIENCE 10000000000000

static struct unet_ep *ep[2];
static uint32_t chan[2], mtu;

static void must(int err, const char *what)
{
        if (err != 0) {
                fprintf(stderr, "%s: %s\n", what, strerror(-err));
                exit(1);
        }
}

static void must_be(bool right, const char *what)
{
        if (!right) {
                perror(what);
                exit(1);
        }
}

/* ---- raw endpoints ---- */

static void raw_send(int side, const struct unet_send *s)
{
        must_be(unet_ep_send(ep[side], s, 1) == 1, "unet_ep_send");
}

/* As examples/pingpong.c does: receive, answer. */
static void raw_answer(int side, uint32_t size)
{
        static uint8_t data[UNET_EP_INLINE];
        struct unet_send s = {.chan = chan[side], .inl_len = (uint16_t)size, .inl = data};
        struct unet_recv m;

        while (unet_ep_recv(ep[side], &m, 1) != 1)
                ;
        if (side == 1)
                raw_send(side, &s);
}

static void raw_trip(uint32_t size)
{
        static uint8_t data[UNET_EP_INLINE];
        struct unet_send s = {.chan = chan[0], .inl_len = (uint16_t)size, .inl = data};

        raw_send(0, &s);
        raw_answer(1, size);
        raw_answer(0, size);
}

/* Gives the buffers back, as examples/stream.c does. Returns the bytes that came. */
static uint32_t raw_take(void)
{
        struct unet_recv m[16];
        int n = unet_ep_recv(ep[1], m, 16);
        uint32_t bytes = 0;

        for (int i = 0; i < n; i++) {
                bytes += m[i].len;
                for (int f = 0; f < m[i].nfrags; f++)
                        unet_ep_provide(
                                ep[1], &(struct unet_frag){m[i].frag[f].off, m[i].frag[f].size}, 1);
        }
        return bytes;
}

/* `size` bytes in messages as long as a message can be; takes what has come when the send queue
 * is full. */
static uint32_t raw_pieces(uint32_t size)
{
        struct unet_send s = {.chan = chan[0], .nfrags = 1};
        uint32_t at = 0, taken = 0;

        for (; at < size; at += s.frag[0].len) {
                s.frag[0] = (struct unet_frag){at, size - at < mtu ? size - at : mtu};
                while (unet_ep_send(ep[0], &s, 1) != 1)
                        taken += raw_take();
        }
        return taken;
}

static void raw_burst(uint32_t size, uint32_t n)
{
        uint32_t taken = 0;

        for (uint32_t i = 0; i < n; i++)
                taken += raw_pieces(size);
        while (taken < n * size)
                taken += raw_take();
}

static void provide_buffers(void)
{
        struct unet_segment seg = unet_ep_segment(ep[1]);

        for (uint32_t at = 0; at + mtu <= seg.rx_bytes; at += mtu)
                unet_ep_provide(ep[1], &(struct unet_frag){(uint32_t)seg.tx_bytes + at, mtu}, 1);
}

/* ---- active messages ---- */

static struct uam *am[2];
static int replies;

static void on_request(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                       void *ctx)
{
        uam_reply_short(t, 1, arg, nargs);
}

static void on_reply(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                     void *ctx)
{
        replies++;
}

static void on_oneway(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                      void *ctx)
{
}

static void am_trip(int nargs)
{
        static const uam_arg arg[UAM_ARGS];
        int before = replies;

        must(uam_request_short(am[0], 1, 0, 0, arg, nargs), "request");
        while (uam_poll(am[1]) == 0)
                ;
        while (replies == before)
                uam_poll(am[0]);
}

/* No more than the window: only the other side of this process could empty it. */
static void store_burst(uint32_t size, uint32_t n)
{
        const uint8_t *from = uam_memory(am[0], NULL);
        struct uam_event e = {0};

        for (uint32_t i = 0; i < n; i++)
                must(uam_put(am[0], 1, 0, from, size, &e), "uam_put");
        while (e.left != 0) {
                uam_poll(am[1]);
                uam_poll(am[0]);
        }
}

static void open_am(void)
{
        struct unet_segment seg = unet_ep_segment(ep[1]);

        for (uint32_t i = 0; i < 2; i++) {
                struct uam_opts o = {.rank = i, .ranks = 2, .window = UAM_WINDOW, .places = PLACES};
                must(uam_open(ep[i], &o, &am[i]), "uam_open");
                must(uam_connect(am[i], 1 - i, chan[i]), "uam_connect");
                uam_register(am[i], 0, on_request, UAM_SHORT | UAM_REQUEST, NULL);
                uam_register(am[i], 1, on_reply, UAM_SHORT | UAM_REPLY, NULL);
                uam_register(am[i], 2, on_oneway, UAM_SHORT | UAM_REQUEST, NULL);
        }
        uam_segment(am[1], uam_memory(am[1], NULL), seg.tx_bytes / 2);
}

/* ---- LogP: each call by itself ---- */

static double now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/* ns of a request's sending, and of the poll that takes it; polls in vain are neither. */
static void one_way(double *send, double *take)
{
        static const uam_arg arg[1];
        double start;
        int n;

        uam_poll(am[0]); /* the request does not poll again */
        start = now();
        must(uam_request_short(am[0], 1, 2, 0, arg, 1), "request");
        *send += now() - start;
        do {
                start = now();
                n = uam_poll(am[1]);
        } while (n == 0);
        *take += now() - start;
        must(uam_poll(am[1]) < 0, "poll"); /* acknowledges */
}

static double stores_took(uint32_t size, uint32_t n, uint32_t times)
{
        double start = now();

        for (uint32_t i = 0; i < times; i++)
                store_burst(size, n);
        return (now() - start) / (times * n);
}

static void print_logp(uint32_t times)
{
        double clock = now(), send = 0, take = 0, trip, gap, big, small;

        for (uint32_t i = 0; i < times; i++)
                now();
        clock = (now() - clock) / times;
        for (uint32_t i = 0; i < times; i++)
                one_way(&send, &take);
        send = send / times - clock;
        take = take / times - clock;
        trip = now();
        for (uint32_t i = 0; i < times; i++)
                am_trip(1);
        trip = (now() - trip) / times;
        gap = stores_took(8, UAM_WINDOW, times / UAM_WINDOW + 1);
        small = stores_took(4096, 8, times / 8 + 1);
        big = stores_took(65536, 1, times / 8 + 1);
        printf("{\"rtt_ns\": %.0f, \"os_ns\": %.0f, \"or_ns\": %.0f, \"l_ns\": %.0f, \"g_ns\": "
               "%.0f, "
               "\"fit_G_ns_per_byte\": %.4f}\n",
               trip, send, take, trip / 2 - send - take, gap, (big - small) / (65536 - 4096));
}

/* ---- over RDMA devices ---- */

static struct sockaddr_in at_address(const char *text)
{
        struct sockaddr_in sa = {.sin_family = AF_INET};

        must_be(inet_pton(AF_INET, text, &sa.sin_addr) == 1, text);
        return sa;
}

static void connect_pair(const char *from, const char *to, int sock[2])
{
        struct sockaddr_in here = at_address(from), there = at_address(to);
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        socklen_t len = sizeof there;

        sock[0] = socket(AF_INET, SOCK_STREAM, 0);
        must_be(bind(listener, (struct sockaddr *)&there, sizeof there) == 0 &&
                        listen(listener, 1) == 0 &&
                        getsockname(listener, (struct sockaddr *)&there, &len) == 0 &&
                        bind(sock[0], (struct sockaddr *)&here, sizeof here) == 0 &&
                        connect(sock[0], (struct sockaddr *)&there, sizeof there) == 0,
                "connection");
        sock[1] = accept(listener, NULL, NULL);
        close(listener);
}

static int sock[2];

static void *join_one(void *side)
{
        int i = *(int *)side;

        must(unet_verbs_over(ep[i], sock[i], PATIENCE, &chan[i]), "unet_verbs_over");
        return NULL;
}

static void join_verbs(const char *from, const char *to)
{
        int first = 0, second = 1;
        pthread_t thread;

        connect_pair(from, to, sock);
        must(-pthread_create(&thread, NULL, join_one, &second), "thread");
        join_one(&first);
        pthread_join(thread, NULL);
}

/* ---- the program ---- */

static void join(bool direct, const char *from, const char *to)
{
        struct unet_ep_opts o = {.direct = direct, .rx_slots = 2 * PLACES};
        struct unet_chan_info info;

        must(unet_ep_open(&o, &ep[0]), "unet_ep_open");
        must(unet_ep_open(&o, &ep[1]), "unet_ep_open");
        if (from != NULL)
                join_verbs(from, to);
        else
                must(unet_chan_pair(ep[0], ep[1], &chan[0], &chan[1]), "unet_chan_pair");
        must(unet_chan_info(ep[0], chan[0], &info), "unet_chan_info");
        mtu = info.mtu;
}

static void go(const char *what, uint32_t size, uint32_t times)
{
        uint32_t n = UAM_WINDOW / (size / (mtu / 2) + 1); /* of a burst */

        n = n != 0 ? n : 1;
        if (strcmp(what, "stream") == 0 || strcmp(what, "store") == 0)
                for (uint32_t i = 0; i < times; i += n)
                        (what[2] == 'r' ? raw_burst : store_burst)(size,
                                                                   n < times - i ? n : times - i);
        for (uint32_t i = 0; i < times && strcmp(what, "raw") == 0; i++)
                raw_trip(size);
        for (uint32_t i = 0; i < times && strcmp(what, "am") == 0; i++)
                am_trip((int)(size - 24) / 8);
}

int main(int argc, char **argv)
{
        const char *what = argc > 1 ? argv[1] : "none";
        uint32_t size = argc > 2 ? (uint32_t)atoi(argv[2]) : 32,
                 times = argc > 3 ? (uint32_t)atoi(argv[3]) : 1000;
        bool raw = strcmp(what, "raw") == 0 || strcmp(what, "stream") == 0, verbs = argc > 5;
        double start;

        join(!raw, verbs ? argv[4] : NULL, verbs ? argv[5] : NULL);
        if (raw)
                provide_buffers();
        else
                open_am();
        go(what, size, times / 4); /* nothing is new any more */
        if (strcmp(what, "logp") == 0) {
                go("am", size, times / 4);
                print_logp(times);
                return 0;
        }
        start = now();
        go(what, size, times);
        if (verbs)
                printf("%.1f\n", (now() - start) / times);
        return 0;
}
