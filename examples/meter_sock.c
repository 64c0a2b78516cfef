/*
 * A receiver that meters its sender: it grants R bytes a second, and so no more than that ever
 * comes, whatever the sender, the path and the reader do. Nobody has to slow the sender down, and
 * nothing is dropped: what was not granted does not leave.
 *
 *      meter_sock -s [-p PORT] -r BYTES_A_SECOND       takes one stream and says what came
 *      meter_sock [-p PORT] -n BYTES                   sends so much, as fast as it goes
 *
 * A kernel cannot be asked for this: its receive window follows what is read, and a reader that
 * waits between reads lets in a whole buffer at once, of a size that the kernel chose.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <unet/flow.h>

/* Never granted more in advance: no window scaling, windows exact to the byte. */
#define AHEAD 65535u
#define GRAIN 1460u /* never granted less, but at the beginning: a segment */

static void die(const char *what)
{
        perror(what);
        exit(1);
}

static double now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- the receiver ---- */

struct meter {
        double begin, rate;
        uint64_t granted, received;
};

/* What is due by now, as far as it is worth a segment; what nobody sent is not saved up
 * beyond AHEAD. */
static void grant(int s, struct meter *m)
{
        uint64_t ahead = m->granted - m->received;
        double due = m->rate * (now() - m->begin) - (double)m->granted;
        double n = due < (double)(AHEAD - ahead) ? due : (double)(AHEAD - ahead);

        if (n < GRAIN)
                return;
        if (unet_window_grant(s, (uint32_t)n) != 0)
                die("grant");
        m->granted += (uint32_t)n;
}

/* Waits for data until the next grant is due; for data alone, when there is no room for a grant. */
static bool waits(struct unet_pollset *set, const struct meter *m)
{
        double due = ((double)m->granted + GRAIN) / m->rate - (now() - m->begin);
        bool full = m->granted - m->received > AHEAD - GRAIN;
        struct unet_event ev;

        return unet_pollset_wait(set, &ev, 1,
                                 full || due > 1 ? 1000
                                 : due > 0       ? (int)(due * 1000) + 1
                                                 : 0) > 0;
}

static void receive(int s, double rate)
{
        struct unet_pollset *set = unet_pollset_create();
        struct meter m = {.begin = now(), .rate = rate};
        static char buf[1 << 16];
        ssize_t n = 1;
        double took;

        if (set == NULL || unet_pollset_add(set, s, POLLIN, 0) != 0)
                die("pollset");
        while (n != 0) {
                grant(s, &m);
                if (!waits(set, &m))
                        continue;
                n = unet_recv(s, buf, sizeof buf, MSG_DONTWAIT);
                if (n < 0)
                        die("recv");
                m.received += (uint64_t)n;
        }
        took = now() - m.begin;
        printf("%llu bytes in %.3f s, granted %llu: %.0f bytes a second\n",
               (unsigned long long)m.received, took, (unsigned long long)m.granted,
               (double)m.received / took);
        unet_pollset_destroy(set);
}

static int serve(int port, double rate)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        struct unet_window w = {
                .size = sizeof w, .mode = UNET_WINDOW_CREDIT, .bytes = 0, .most = AHEAD};
        int listener = unet_socket(AF_INET, SOCK_STREAM, 0), s;

        if (listener < 0 || unet_window_set(listener, &w) != 0)
                die("socket");
        if (unet_bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
            unet_listen(listener, 1) != 0)
                die("bind");
        s = unet_accept(listener, NULL, NULL);
        if (s < 0)
                die("accept");
        receive(s, rate);
        unet_close(s);
        unet_close(listener);
        return 0;
}

/* ---- the sender: like any other ---- */

static int stream(int port, size_t bytes)
{
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        int s = unet_socket(AF_INET, SOCK_STREAM, 0);
        static char buf[1 << 16];

        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (s < 0 || unet_connect(s, (struct sockaddr *)&to, sizeof to) != 0)
                die("connect");
        for (size_t n; bytes > 0; bytes -= n) {
                n = bytes < sizeof buf ? bytes : sizeof buf;
                if (unet_send(s, buf, n, 0) != (ssize_t)n)
                        die("send");
        }
        return unet_close(s);
}

int main(int argc, char **argv)
{
        bool server = false;
        double rate = 1e6;
        size_t bytes = 1 << 20;
        int port = 7009, c;

        while ((c = getopt(argc, argv, "sp:r:n:")) != -1) {
                if (c == 's')
                        server = true;
                else if (c == 'p')
                        port = atoi(optarg);
                else if (c == 'r')
                        rate = atof(optarg);
                else if (c == 'n')
                        bytes = (size_t)atol(optarg);
                else
                        return 2;
        }
        return server ? serve(port, rate) : stream(port, bytes);
}
