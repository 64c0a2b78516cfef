/*
 * Our stack and lwIP over bad links: what a seed makes of link, buffers and applications, bytes
 * compared on both sides.
 *
 *      oracle_seeds [--first N] [--count N] [--seed N] [--pcap FILE]
 *
 * Each seed runs in a child of its own: lwIP starts from nothing, so a seed is the same whatever
 * ran before it.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tcp/tcp_cc.h"
#include "tests/oracle/meet.h"
#include "unet/wrap/pcap_file.h"

#define PORT  80u
#define TURN  (50 * NS_PER_MS)
#define LIMIT (4 * 3600 * NS_PER_S) /* lwIP's timers are slow, and time is virtual */

enum plot { EXCHANGE, WE_ANSWER, LWIP_ANSWERS, WE_ABORT, LWIP_ABORTS, PLOTS };

struct side {
        size_t to_write, written, got;
        uint32_t max_write, max_read;
        nstime resumes; /* reads nothing before */
        bool shut, eof, closed;
};

struct act {
        uint64_t seed;
        struct meet *m;
        struct prng_fast rnd;
        enum plot plot;
        size_t abort_at; /* bytes its reader has then */
        bool we_connect;
        struct tcp_opts opts;
        uint32_t listener, us;
        struct lw_conn *lw;
        struct side side[2]; /* 0 we, 1 lwIP */
        nstime began;
};

static void wrong(const struct act *a, const char *what, long long value)
{
        fprintf(stderr,
                "%s (%lld) at %.3f s; we wrote %zu of %zu and read %zu, lwIP wrote %zu of %zu and "
                "read %zu\n",
                what, value, (double)a->m->p->now / 1e9, a->side[0].written, a->side[0].to_write,
                a->side[0].got, a->side[1].written, a->side[1].to_write, a->side[1].got);
        pair_say(a->m->p);
        abort();
}

/* ---- the plan ---- */

static void make_direction(struct prng_fast *r, struct sim_params *q)
{
        *q = (struct sim_params){.csum = true, .delay = prng_fast_below(r, 60) * NS_PER_MS};
        q->mtu = prng_fast_chance(r, 1, 3) ? 576 : prng_fast_chance(r, 1, 4) ? 296 : 1500;
        if (prng_fast_chance(r, 1, 2)) {
                q->rate = 1000000ull * (1 + prng_fast_below(r, 100));
                q->queue_bytes = 5000 + prng_fast_below(r, 60000);
        }
        q->loss = prng_fast_chance(r, 1, 2) ? prng_fast_below(r, 60) / 1000.0 : 0;
        q->duplicate = prng_fast_chance(r, 1, 3) ? 0.03 : 0;
        if (prng_fast_chance(r, 1, 3)) {
                q->reorder = prng_fast_below(r, 100) / 1000.0;
                q->reorder_by = prng_fast_below(r, 30) * NS_PER_MS;
        }
        q->jitter = prng_fast_chance(r, 1, 3) ? prng_fast_below(r, 10) * NS_PER_MS : 0;
        q->corrupt = prng_fast_chance(r, 1, 4) ? 0.01 : 0;
}

static void make_side(struct prng_fast *r, struct side *s)
{
        s->to_write = prng_fast_chance(r, 1, 8) ? prng_fast_below(r, 3) : prng_fast_below(r, 60000);
        s->max_write = prng_fast_chance(r, 1, 4) ? 1 + prng_fast_below(r, 100) : 30000;
        s->max_read = prng_fast_chance(r, 1, 4) ? 50 + prng_fast_below(r, 500) : 30000;
        s->resumes = prng_fast_chance(r, 1, 4) ? prng_fast_below(r, 60) * NS_PER_S : 0;
}

static void make_opts(struct prng_fast *r, struct tcp_opts *o)
{
        tcp_opts_default(o);
        o->nodelay = prng_fast_chance(r, 1, 3);
        o->quickack = prng_fast_chance(r, 1, 4);
        o->no_wscale = prng_fast_chance(r, 1, 4);
        o->rcvbuf = prng_fast_chance(r, 1, 3) ? 1500 + prng_fast_below(r, 20000) : 0;
        o->sndbuf = prng_fast_chance(r, 1, 4) ? 3000 + prng_fast_below(r, 20000) : 0;
        o->maxseg = prng_fast_chance(r, 1, 6) ? (uint16_t)(100 + prng_fast_below(r, 1000)) : 0;
        o->cc = (uint8_t)prng_fast_below(r, TCP_CC_COUNT);
}

static void prepare(struct act *a, uint64_t seed)
{
        struct sim_params dir[2];

        *a = (struct act){.seed = seed};
        prng_fast_init(&a->rnd, seed);
        for (int i = 0; i < 2; i++) {
                make_direction(&a->rnd, &dir[i]);
                make_side(&a->rnd, &a->side[i]);
        }
        if (dir[0].mtu > dir[1].mtu) /* lwIP forgets its own MTU when a SYN comes twice */
                dir[0].mtu = dir[1].mtu;
        make_opts(&a->rnd, &a->opts);
        a->plot = (enum plot)prng_fast_below(&a->rnd, PLOTS);
        a->we_connect = prng_fast_chance(&a->rnd, 1, 2);
        a->abort_at = prng_fast_below(&a->rnd, 20000);
        a->m = meet_new(seed, dir);
        a->began = a->m->p->now;
}

/* ---- opening ---- */

static void opened(struct act *a)
{
        struct lw_opts o = {.nodelay = prng_fast_chance(&a->rnd, 1, 3)};

        lw_set_opts(a->lw, &o);
        if (!a->we_connect)
                tcp_set_opts(&a->m->s->tcp, meet_conn(a->m, a->us), &a->opts, a->m->p->now);
}

static void open_both(struct act *a)
{
        if (a->we_connect) {
                lw_listen(PORT);
                a->us = meet_connect(a->m, PORT, 40000, &a->opts);
        } else {
                a->listener = meet_listen(a->m, PORT, &a->opts);
                a->lw = lw_connect(MEET_US, PORT, 50000);
        }
        meet_settle(a->m);
        while (a->us == 0 || a->lw == NULL || lw_state(a->lw) != LW_OPEN) {
                meet_wait(a->m, a->m->p->now + NS_PER_S);
                if (a->m->p->now - a->began > LIMIT)
                        wrong(a, "no connection", a->lw != NULL ? (int)lw_state(a->lw) : -1);
                if (a->us == 0)
                        a->us = meet_accept(a->m, a->listener);
                if (a->lw == NULL)
                        a->lw = lw_accept();
        }
        opened(a);
}

/* ---- at work ---- */

static bool may_reset(const struct act *a)
{
        return a->plot == WE_ABORT || a->plot == LWIP_ABORTS;
}

static int read_from(struct act *a, int side, uint8_t *data, size_t n)
{
        int r;

        if (side == 1) {
                r = lw_read(a->lw, data, n);
                if (r == -1 && lw_state(a->lw) != LW_OPEN && lw_state(a->lw) != LW_CLOSED)
                        return -ECONNRESET;
                return r == -1 ? -EAGAIN : r;
        }
        return pair_read(a->m->p, 0, a->us, data, n);
}

static int write_to(struct act *a, int side, const uint8_t *data, size_t n)
{
        return side == 1 ? lw_write(a->lw, data, n) : pair_write(a->m->p, 0, a->us, data, n);
}

static void ended_by_reset(struct act *a, int side, int err)
{
        if (!may_reset(a))
                wrong(a, side == 1 ? "lwIP's end failed" : "our end failed", err);
        a->side[side].eof = a->side[side].shut = true;
}

static void read_some(struct act *a, int side)
{
        static uint8_t data[30000];
        struct side *s = &a->side[side];
        int r;

        if (s->eof || s->closed || a->m->p->now < a->began + s->resumes)
                return;
        r = read_from(a, side, data, 1 + prng_fast_below(&a->rnd, s->max_read));
        if (r == -EAGAIN)
                return;
        if (r < 0) {
                ended_by_reset(a, side, r);
                return;
        }
        for (int i = 0; i < r; i++)
                if (data[i] != meet_byte(!side, s->got + (size_t)i))
                        wrong(a, side == 1 ? "lwIP read a wrong byte" : "we read a wrong byte",
                              (long long)s->got + i);
        s->got += (size_t)r;
        s->eof = r == 0;
        if (r == 0 && s->got != a->side[!side].to_write && !may_reset(a))
                wrong(a, "early end of stream for side", side);
}

/* lwIP 2.1.3 puts a FIN on the first part of a segment that it cuts for a small window, and then
 * sends the other part after it: it has nothing left to cut when it closes. */
static bool shut(struct act *a, int side)
{
        if (side == 1)
                return !lw_unsent(a->lw) && lw_shutdown_send(a->lw);
        meet_shutdown(a->m, a->us);
        return true;
}

static void write_some(struct act *a, int side)
{
        static uint8_t data[30000];
        struct side *s = &a->side[side];
        size_t n = 1 + prng_fast_below(&a->rnd, s->max_write);
        int r;

        n = MIN(n, s->to_write - s->written);
        if (s->shut || (a->plot == (side == 0 ? WE_ANSWER : LWIP_ANSWERS) && !s->eof))
                return;
        if (n == 0) {
                s->shut = shut(a, side);
                return;
        }
        for (size_t i = 0; i < n; i++)
                data[i] = meet_byte(side, s->written + i);
        r = write_to(a, side, data, n);
        if (r < 0)
                ended_by_reset(a, side, r);
        else
                s->written += (size_t)r;
}

static void abort_maybe(struct act *a)
{
        int side = a->plot == LWIP_ABORTS;

        if (!may_reset(a) || a->side[side].closed ||
            a->side[side].got < MIN(a->abort_at, a->side[!side].to_write))
                return;
        if (side == 1)
                lw_abort(a->lw);
        else
                meet_abort(a->m, a->us);
        a->side[side].eof = a->side[side].shut = true;
}

static void close_side(struct act *a, int side)
{
        struct side *s = &a->side[side];

        if (s->closed || !s->eof || !s->shut)
                return;
        if (side == 1)
                s->closed = lw_close(a->lw);
        else
                meet_close(a->m, a->us);
        s->closed |= side == 0;
}

/* A lost RST is not sent again; who waits for one gives up after a while. */
static void give_up(struct act *a, nstime *since)
{
        if (!may_reset(a) || a->side[0].closed == a->side[1].closed) {
                *since = a->m->p->now;
                return;
        }
        if (a->m->p->now - *since < 600 * NS_PER_S)
                return;
        for (int i = 0; i < 2; i++)
                a->side[i].eof = a->side[i].shut = true;
        if (!a->side[1].closed)
                lw_abort(a->lw);
        else
                meet_abort(a->m, a->us);
}

static void play(struct act *a)
{
        nstime since = a->m->p->now;

        while (!a->side[0].closed || !a->side[1].closed) {
                for (int i = 0; i < 2; i++) {
                        if (a->side[i].closed)
                                continue;
                        read_some(a, i);
                        write_some(a, i);
                        close_side(a, i);
                }
                abort_maybe(a);
                give_up(a, &since);
                meet_settle(a->m);
                meet_wait(a->m, a->m->p->now + TURN);
                if (a->m->p->now - a->began > LIMIT)
                        wrong(a, "stalled in plot", a->plot);
        }
}

static void finish(struct act *a)
{
        if (a->listener != 0)
                tcp_unlisten(&a->m->s->tcp, a->listener);
        meet_pass(a->m, 1000 * NS_PER_S);
        if (pair_leaks(a->m->p) != 0)
                wrong(a, "something is left of", (long long)a->us);
        lw_free(a->lw);
        meet_free(a->m);
}

static void record(void *arg, nstime now, int side, enum sim_event what, const uint8_t *bytes,
                   size_t len)
{
        if (what != SIM_SENT)
                return;
        pcap_file_begin(arg, now, (uint32_t)len);
        pcap_file_add(arg, bytes, len);
}

static struct pcap_file *recording;

static void stop_recording(int sig)
{
        struct pcap_file *f = recording;

        recording = NULL;
        if (f != NULL)
                pcap_file_close(f);
}

static void run_seed(uint64_t seed, const char *pcap)
{
        struct act a;

        prepare(&a, seed);
        if (pcap != NULL && pcap_file_open(pcap, 0, &recording) == 0) {
                sim_set_trace(a.m->p->sim, record, recording);
                signal(SIGABRT, stop_recording); /* the last packets are the interesting ones */
        }
        open_both(&a);
        play(&a);
        finish(&a);
        stop_recording(0);
}

static bool runs_well(uint64_t seed, const char *pcap)
{
        int status = 0;
        pid_t pid;

        fflush(NULL);
        pid = fork();
        if (pid == 0) {
                run_seed(seed, pcap);
                exit(0);
        }
        return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
               WEXITSTATUS(status) == 0;
}

static bool bad_seed(uint64_t seed, const char *program)
{
        char path[64];

        if (runs_well(seed, NULL))
                return false;
        snprintf(path, sizeof path, "oracle-%llu.pcap", (unsigned long long)seed);
        fprintf(stderr, "seed %llu failed; packets in %s; again: %s --seed %llu --pcap %s\n",
                (unsigned long long)seed, path, program, (unsigned long long)seed, path);
        runs_well(seed, path);
        return true;
}

int main(int argc, char **argv)
{
        static const struct option options[] = {{"first", 1, NULL, 'f'},
                                                {"count", 1, NULL, 'c'},
                                                {"seed", 1, NULL, 's'},
                                                {"pcap", 1, NULL, 'p'},
                                                {0}};
        uint64_t first = 1, seeds = 100, only = 0;
        const char *pcap = NULL;
        unsigned bad = 0;
        int o;

        while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
                if (o == 'f')
                        first = strtoull(optarg, NULL, 0);
                else if (o == 'c')
                        seeds = strtoull(optarg, NULL, 0);
                else if (o == 's')
                        only = strtoull(optarg, NULL, 0);
                else if (o == 'p')
                        pcap = optarg;
                else
                        return 2;
        }
        if (only != 0) {
                run_seed(only, pcap);
                return 0;
        }
        printf("seeds %llu to %llu\n", (unsigned long long)first,
               (unsigned long long)(first + seeds - 1));
        for (uint64_t seed = first; seed < first + seeds && bad < 10; seed++)
                bad += bad_seed(seed, argv[0]);
        printf("%u failed\n", bad);
        return bad != 0;
}
