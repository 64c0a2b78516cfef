/*
 * Congestion control of the application's own, in a process of its own: a window that keeps the
 * queue on the way short, by delay, as TCP Vegas does (Brakmo and Peterson, 1994). What the path
 * holds is cwnd * min_rtt / rtt; the rest of the window waits in a queue.
 *
 *      plan_sock -s [-p PORT]                              reads one stream to its end
 *      plan_sock [-p PORT] [-a ADDRESS] -n BYTES [-k PLANS]
 *              sends; the planner dies after so many plans
 *
 * The planner is a child, which shares the socket. When it dies or is stopped, the algorithm that
 * is built in goes on.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <unet/flow.h>

#define GOOD_FOR 1000000000ll /* ns */
#define ALPHA    2            /* segments that may wait: with fewer the window grows, */
#define BETA     4            /* ... with more it shrinks */

static char buf[65536];

static void die(const char *what)
{
        perror(what);
        exit(1);
}

/* ---- the algorithm ---- */

static uint32_t vegas(const struct unet_cc_report *r, int64_t base)
{
        int64_t rtt = r->rtt_least != 0 ? r->rtt_least : r->srtt;
        uint64_t holds = rtt > 0 ? (uint64_t)r->cwnd * (uint64_t)base / (uint64_t)rtt : r->cwnd;
        uint64_t waits = r->cwnd - (holds < r->cwnd ? holds : r->cwnd);

        if (r->cuts != 0 || r->repairs)
                return r->ssthresh;
        if (waits < ALPHA * r->mss)
                return r->cwnd < r->ssthresh ? 2 * r->cwnd : r->cwnd + r->mss;
        return waits > BETA * r->mss ? r->cwnd - r->mss : r->cwnd;
}

/* One report, one plan. */
static bool plan_once(int s, int64_t *base)
{
        struct unet_cc_report r = {.size = sizeof r};
        struct unet_cc_plan p = {.size = sizeof p, .good_for = GOOD_FOR};

        if (unet_cc_take(s, &r) != 0)
                return false;
        if (r.rtt_least != 0 && (*base == 0 || r.rtt_least < *base))
                *base = r.rtt_least;
        p.serial = r.serial;
        p.cwnd = *base != 0 ? vegas(&r, *base) : r.cwnd;
        return unet_cc_set(s, &p) == 0 || errno == EAGAIN;
}

static void plans(int s, int most)
{
        struct unet_pollset *set = unet_pollset_create();
        struct unet_event ev;
        int64_t base = 0;

        if (set == NULL || unet_pollset_add(set, s, UNET_EV_REPORT, 0) != 0)
                die("pollset");
        for (int n = 0; plan_once(s, &base); n++) {
                if (most != 0 && n == most)
                        raise(SIGKILL);
                unet_pollset_wait(set, &ev, 1, (int)(GOOD_FOR / 2000000));
        }
        exit(0);
}

/* ---- the stream ---- */

static int takes(int port)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        int l = unet_socket(AF_INET, SOCK_STREAM, 0), c;
        uint64_t got = 0;
        ssize_t n;

        if (l < 0 || unet_bind(l, (struct sockaddr *)&at, sizeof at) != 0 || unet_listen(l, 1) != 0)
                die("listen");
        c = unet_accept(l, NULL, NULL);
        if (c < 0)
                die("accept");
        while ((n = unet_recv(c, buf, sizeof buf, 0)) > 0)
                got += (uint64_t)n;
        printf("%llu bytes\n", (unsigned long long)got);
        return unet_close(c) != 0 || unet_close(l) != 0;
}

/* Sends, and counts who planned. */
static int sends(int s, uint64_t bytes)
{
        uint64_t planned = 0, sent = 0;
        struct unet_feedback f = {.congestion = "nobody"};
        ssize_t n;

        while (sent < bytes) {
                n = unet_send(s, buf, bytes - sent < sizeof buf ? bytes - sent : sizeof buf, 0);
                if (n < 0 || unet_feedback(s, &f) != 0)
                        die("send");
                sent += (uint64_t)n;
                planned += strcmp(f.congestion, "plan") == 0 ? (uint64_t)n : 0;
        }
        printf("%llu bytes by plan, %llu by others; the last by %s\n", (unsigned long long)planned,
               (unsigned long long)(sent - planned), f.congestion);
        return unet_shutdown(s, SHUT_WR) != 0 || unet_recv(s, buf, sizeof buf, 0) != 0;
}

static int streams(const struct sockaddr_in *to, uint64_t bytes, int most)
{
        int s = unet_socket(AF_INET, SOCK_STREAM, 0), failed;
        int64_t base = 0;
        pid_t planner;

        if (s < 0 || unet_connect(s, (const struct sockaddr *)to, sizeof *to) != 0)
                die("connect");
        if (!plan_once(s, &base))
                die("plan");
        fflush(stdout);
        planner = fork();
        if (planner == 0)
                plans(s, most);
        if (planner < 0)
                die("fork");
        failed = sends(s, bytes);
        kill(planner, SIGKILL);
        waitpid(planner, NULL, 0);
        return unet_close(s) != 0 || failed;
}

int main(int argc, char **argv)
{
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int port = 7012, most = 0, c;
        uint64_t bytes = 100 << 20;
        bool server = false;

        while ((c = getopt(argc, argv, "sp:a:n:k:")) != -1) {
                if (c == 's')
                        server = true;
                else if (c == 'p')
                        port = atoi(optarg);
                else if (c == 'a' && inet_pton(AF_INET, optarg, &to.sin_addr) == 1)
                        ;
                else if (c == 'n')
                        bytes = strtoull(optarg, NULL, 0);
                else if (c == 'k')
                        most = atoi(optarg);
                else
                        return 2;
        }
        to.sin_port = htons((uint16_t)port);
        return server ? takes(port) : streams(&to, bytes, most);
}
