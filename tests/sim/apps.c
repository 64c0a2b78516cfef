/* See apps.h. Virtual time; one turn of every application after each thing that happens. */
#include "tests/sim/apps.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "unet/wrap/pcap_file.h"

#define PORT     80u
#define FIRST    10000u          /* client port of talk 0 */
#define PATIENCE (60 * NS_PER_S) /* after which an application gives up on one that has left */
/* Applications look at least so often while they have work. */
#define TURN      (50 * NS_PER_MS)
#define PIECE_MAX 200000u

struct end {
        const struct habits *h;
        uint32_t conn; /* 0: not yet, or no longer */
        bool over;     /* done with it */
        bool clean;    /* ... and everything was as it should be */
        bool shut, eof, paused;
        size_t written, got;
        nstime resumes, leaves;
        int err;
};

struct talk {
        const struct talk_plan *plan;
        unsigned id;
        /* broken: a death, a reset or a leaver: what arrives is a beginning only. */
        bool started, broken;
        nstime broken_at;
        struct end end[2]; /* by side */
};

struct apps {
        const struct plan *plan;
        struct pair *p;
        struct prng_fast rnd;
        nstime began;
        uint32_t listener[2];
        struct talk talk[PLAN_TALKS];
};

static struct pcap_file *recording;

/* Also when something aborts: the last packets are the interesting ones. */
static void stop_recording(int sig)
{
        struct pcap_file *f = recording;

        recording = NULL;
        if (f != NULL)
                pcap_file_close(f);
}

static void wrong(const struct apps *a, const struct talk *t, int side, const char *fmt, ...)
{
        va_list ap;

        fprintf(stderr, "talk %u side %d at %.6f s: ", t->id, side, (double)a->p->now / 1e9);
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
        fputc('\n', stderr);
        pair_say(a->p);
        abort();
}

/* Byte i of a stream: cheap, and different at every distance that a bug is likely to shift by. */
static uint8_t stream_byte(const struct talk *t, int side, size_t i)
{
        return (uint8_t)(i * 167 + i / 251 + (i >> 16) * 13 + (size_t)side * 91 + t->id * 37);
}

static struct stack *stack_of(struct apps *a, int side)
{
        return &a->p->side[side].s;
}

static struct tcp *tcp_of(struct apps *a, int side)
{
        return &stack_of(a, side)->tcp;
}

static void flush(struct apps *a, int side)
{
        stack_flush(stack_of(a, side), a->p->now);
}

/* ---- opening ---- */

static bool open_from(struct apps *a, struct talk *t, int side)
{
        struct tcp_link link = stack_tcp_link(stack_of(a, side), PAIR_CHAN);
        uint16_t client = (uint16_t)(FIRST + t->id),
                 server = t->plan->crossed ? (uint16_t)(FIRST + 100 + t->id) : PORT;
        bool first = side == t->plan->from;
        struct tcp_tuple to = {.laddr = pair_addr(side),
                               .raddr = pair_addr(!side),
                               .lport = first ? client : server,
                               .rport = first ? server : client,
                               .chan = PAIR_CHAN};
        int c = tcp_connect(tcp_of(a, side), &to, &link, &t->plan->opts[side], a->p->now);

        if (c <= 0)
                wrong(a, t, side, "connect: %s", strerror(-c));
        t->end[side].conn = (uint32_t)c;
        tcp_set_sock(tcp_of(a, side), (uint32_t)c, t->id + 1);
        flush(a, side);
        return true;
}

static void start(struct apps *a, struct talk *t)
{
        if (t->started || a->p->now < a->began + t->plan->start || a->p->side[t->plan->from].dead)
                return;
        t->started = true;
        open_from(a, t, t->plan->from);
        if (t->plan->crossed && !a->p->side[!t->plan->from].dead)
                open_from(a, t, !t->plan->from);
}

/* Who was accepted is known by the client's port. */
static void accept_all(struct apps *a, int side)
{
        uint32_t conn;

        while ((conn = tcp_accept(tcp_of(a, side), a->listener[side])) != 0) {
                struct tcp_conn *tc = pair_conn(a->p, side, conn);
                struct talk *t = &a->talk[tc->tuple.rport - FIRST];
                struct tcp_opts o = t->plan->opts[side];
                t->end[side].conn = conn;
                t->end[side].over = false;
                tcp_set_sock(tcp_of(a, side), conn, t->id + 1);
                tcp_set_opts(tcp_of(a, side), tc, &o, a->p->now);
                flush(a, side);
        }
}

/* ---- ending ---- */

static void break_talk(struct apps *a, struct talk *t)
{
        if (!t->broken)
                t->broken_at = a->p->now;
        t->broken = true;
}

static void leave(struct apps *a, struct talk *t, int side, bool abortive)
{
        struct end *e = &t->end[side];
        struct tcp_conn *tc = pair_conn(a->p, side, e->conn);

        if (abortive)
                tcp_abort(tcp_of(a, side), tc, a->p->now);
        if (e->conn != 0 && tc->live)
                tcp_close(tcp_of(a, side), tc, a->p->now);
        e->conn = 0;
        e->over = true;
        flush(a, side);
}

static void failed(struct apps *a, struct talk *t, int side, int err)
{
        if (!t->broken && a->plan->dies == 0)
                wrong(a, t, side, "%s after %zu of %zu written, %zu read", strerror(err),
                      t->end[side].written, t->end[side].h->to_write, t->end[side].got);
        t->end[side].err = err;
        break_talk(a, t);
        leave(a, t, side, false);
}

/* ---- reading and writing ---- */

static void check_bytes(struct apps *a, struct talk *t, int side, const uint8_t *data, size_t n)
{
        struct end *e = &t->end[side];

        if (e->got + n > t->end[!side].written)
                wrong(a, t, side, "%zu bytes read, %zu were written", e->got + n,
                      t->end[!side].written);
        for (size_t i = 0; i < n; i++)
                if (data[i] != stream_byte(t, !side, e->got + i))
                        wrong(a, t, side, "byte %zu is %u and should be %u", e->got + i, data[i],
                              stream_byte(t, !side, e->got + i));
        e->got += n;
}

static void check_eof(struct apps *a, struct talk *t, int side)
{
        struct end *e = &t->end[side], *other = &t->end[!side];

        if (!other->shut && !t->broken)
                wrong(a, t, side, "end of stream, and the other side has not closed");
        if (e->got != other->h->to_write && !t->broken)
                wrong(a, t, side, "end of stream after %zu of %zu bytes", e->got,
                      other->h->to_write);
        e->eof = true;
}

static void pause_maybe(struct apps *a, struct end *e)
{
        if (e->h->pause == 0 || e->paused || e->got < e->h->pause_at)
                return;
        e->paused = true;
        e->resumes = a->p->now + e->h->pause;
}

static void read_some(struct apps *a, struct talk *t, int side)
{
        static uint8_t data[PIECE_MAX];
        struct end *e = &t->end[side];
        size_t n = 1 + prng_fast_below(&a->rnd, e->h->max_read);
        int r;

        if (e->eof || a->p->now < e->resumes)
                return;
        if (n < 64 &&
            tcp_recv_take(tcp_of(a, side), pair_conn(a->p, side, e->conn), data, (uint32_t)n))
                r = (int)n;
        else
                r = pair_read(a->p, side, e->conn, data, n);
        if (r == -EAGAIN)
                return;
        if (r < 0) {
                failed(a, t, side, -r);
                return;
        }
        check_bytes(a, t, side, data, (size_t)r);
        if (r == 0)
                check_eof(a, t, side);
        pause_maybe(a, e);
}

static int write_urgent(struct apps *a, int side, uint32_t conn, const uint8_t *data, size_t n)
{
        struct tcp_conn *tc = pair_conn(a->p, side, conn);
        struct span span[8];
        int got = tcp_send_reserve(tcp_of(a, side), tc, n, span, 8);

        if (got <= 0)
                return got;
        for (int i = 0, at = 0; at < got; at += (int)span[i++].len)
                memcpy(span[i].ptr, data + at, span[i].len);
        tcp_send_commit(tcp_of(a, side), tc, (size_t)got, prng_fast_chance(&a->rnd, 1, 4), true,
                        a->p->now);
        flush(a, side);
        return got;
}

static void shut(struct apps *a, struct talk *t, int side)
{
        struct end *e = &t->end[side];

        tcp_shutdown_send(tcp_of(a, side), pair_conn(a->p, side, e->conn), a->p->now);
        e->shut = true;
        flush(a, side);
}

static void write_some(struct apps *a, struct talk *t, int side)
{
        static uint8_t data[PIECE_MAX];
        struct end *e = &t->end[side];
        size_t piece = 1 + prng_fast_below(&a->rnd, e->h->max_write),
               n = MIN(piece, e->h->to_write - e->written);
        int r;

        if (e->shut || (e->h->answers && !e->eof))
                return;
        if (e->written == e->h->to_write) {
                shut(a, t, side);
                return;
        }
        for (size_t i = 0; i < n; i++)
                data[i] = stream_byte(t, side, e->written + i);
        if (prng_fast_chance(&a->rnd, e->h->urgent, 1000))
                r = write_urgent(a, side, e->conn, data, n);
        else if (n < 64 && tcp_send_append(tcp_of(a, side), pair_conn(a->p, side, e->conn), data,
                                           (uint32_t)n))
                r = (int)n;
        else
                r = pair_write(a->p, side, e->conn, data, n);
        if (r < 0) {
                failed(a, t, side, -r);
                return;
        }
        e->written += (size_t)r;
}

static bool connected(struct apps *a, int side, uint32_t conn)
{
        enum tcp_state s = pair_conn(a->p, side, conn)->state;

        return s != TCPS_SYN_SENT && s != TCPS_SYN_RECEIVED;
}

static void leave_early(struct apps *a, struct talk *t, int side)
{
        break_talk(a, t);
        leave(a, t, side, t->end[side].h->aborts);
}

static void take_turn(struct apps *a, struct talk *t, int side)
{
        struct end *e = &t->end[side];

        if (e->conn == 0 || a->p->side[side].dead)
                return;
        if (e->h->leaves != 0 && a->p->now >= a->began + t->plan->start + e->h->leaves) {
                leave_early(a, t, side);
                return;
        }
        if (t->broken && t->end[!side].over && a->p->now >= t->broken_at + PATIENCE + e->h->pause) {
                leave(a, t, side, true);
                return;
        }
        if (prng_fast_chance(&a->rnd, e->h->idle, 100) || !connected(a, side, e->conn))
                return;
        read_some(a, t, side);
        if (e->conn != 0)
                write_some(a, t, side);
        if (e->conn != 0 && e->eof && e->shut)
                leave(a, t, side, false);
}

/* ---- the whole ---- */

/* Who has no connection yet gets none any more when the other side is dead or has given up. */
static bool end_is_over(const struct apps *a, const struct talk *t, int side)
{
        return t->end[side].over || a->p->side[side].dead ||
               (t->end[side].conn == 0 && (t->broken || a->p->side[!side].dead));
}

static bool over(const struct apps *a)
{
        for (unsigned i = 0; i < a->plan->ntalks; i++) {
                const struct talk *t = &a->talk[i];
                for (int s = 0; s < 2; s++)
                        if (!end_is_over(a, t, s))
                                return false;
        }
        return true;
}

/* A process died while it was changing this connection: it may be reset, and nothing else may
 * be touched. */
static void die_inside(struct apps *a, int side)
{
        struct talk *t = &a->talk[prng_fast_below(&a->rnd, a->plan->ntalks)];
        uint32_t conn = t->end[side].conn;

        if (conn == 0)
                return;
        stack_begin(a->p->side[side].st, conn);
        break_talk(a, t);
}

/* Everything derived is made anew, as after a death: but for that one connection nobody
 * may notice. */
static void recover_maybe(struct apps *a)
{
        int side = prng_fast_chance(&a->rnd, 1, 2);

        if (!prng_fast_chance(&a->rnd, a->plan->recovers, 1000) || a->p->side[side].dead)
                return;
        if (prng_fast_chance(&a->rnd, 1, 50))
                die_inside(a, side);
        stack_recover(stack_of(a, side), a->p->now);
}

static void die_maybe(struct apps *a)
{
        if (a->plan->dies != 0 && a->p->now >= a->began + a->plan->dies)
                a->p->side[1].dead = true;
}

static void say_stall(struct apps *a)
{
        for (unsigned i = 0; i < a->plan->ntalks; i++) {
                struct talk *t = &a->talk[i];
                for (int s = 0; s < 2; s++) {
                        struct end *e = &t->end[s];
                        if (e->over)
                                continue;
                        fprintf(stderr, "talk %u side %d: wrote %zu of %zu, read %zu of %zu, %s\n",
                                i, s, e->written, e->h->to_write, e->got, t->end[!s].h->to_write,
                                e->conn ? tcp_state_name(pair_conn(a->p, s, e->conn)->state)
                                        : "no connection");
                }
        }
        fprintf(stderr, "stalled\n");
        pair_say(a->p);
        abort();
}

static void run_apps(struct apps *a)
{
        for (int s = 0; s < 2; s++)
                if (!a->p->side[s].dead)
                        accept_all(a, s);
        for (unsigned i = 0; i < a->plan->ntalks; i++) {
                struct talk *t = &a->talk[i];
                start(a, t);
                take_turn(a, t, prng_fast_chance(&a->rnd, 1, 2));
                take_turn(a, t, prng_fast_chance(&a->rnd, 1, 2));
        }
}

static void run(struct apps *a)
{
        while (!over(a)) {
                die_maybe(a);
                run_apps(a);
                pair_settle(a->p);
                recover_maybe(a);
                pair_wait(a->p, a->p->now + TURN);
                if (a->p->now - a->began > a->plan->limit)
                        say_stall(a);
        }
}

/* Nothing happens any more but timers; when the last is over nothing may be left. What a dead peer
 * has on loan comes back when the keeper takes the channel down. */
static void end(struct apps *a)
{
        if (a->p->side[1].dead)
                stack_chan_down(stack_of(a, 0), PAIR_CHAN, a->p->now);
        for (int s = 0; s < 2; s++)
                if (!a->p->side[s].dead)
                        tcp_unlisten(tcp_of(a, s), a->listener[s]);
        for (int s = 0; s < 2; s++)
                flush(a, s);
        pair_settle(a->p);
        while (pair_step(a->p, a->p->now + 3600 * NS_PER_S))
                if (a->p->now - a->began > 2 * a->plan->limit + 7200 * NS_PER_S)
                        say_stall(a);
        if (pair_leaks(a->p) != 0)
                abort();
}

static void record(void *arg, nstime now, int side, enum sim_event what, const uint8_t *bytes,
                   size_t len)
{
        if (what != SIM_SENT)
                return;
        pcap_file_begin(arg, now, (uint32_t)len);
        pcap_file_add(arg, bytes, len);
}

static void listen_on(struct apps *a, int side)
{
        struct tcp_opts o = a->plan->talk[0].opts[side];
        int l = tcp_listen(tcp_of(a, side), pair_addr(side), PORT, a->plan->backlog, &o);

        if (l <= 0)
                abort();
        a->listener[side] = (uint32_t)l;
        tcp_listener_set_sock(tcp_of(a, side), (uint32_t)l, 1);
}

static void prepare(struct apps *a, const struct plan *plan, const char *pcap)
{
        *a = (struct apps){.plan = plan};
        a->p = pair_new(plan->seed, plan->memory ? NULL : plan->dir, &plan->size);
        a->began = a->p->now;
        prng_fast_init(&a->rnd, plan->seed ^ 0x61707073u);
        for (unsigned i = 0; i < plan->ntalks; i++) {
                a->talk[i] = (struct talk){.plan = &plan->talk[i], .id = i};
                for (int s = 0; s < 2; s++)
                        a->talk[i].end[s].h = &plan->talk[i].habits[s];
        }
        listen_on(a, 0);
        listen_on(a, 1);
        if (pcap != NULL && a->p->sim != NULL && pcap_file_open(pcap, 0, &recording) == 0) {
                sim_set_trace(a->p->sim, record, recording);
                signal(SIGABRT, stop_recording);
        }
}

uint64_t apps_run(const struct plan *plan, const char *pcap)
{
        struct apps a;
        uint64_t trace;

        prepare(&a, plan, pcap);
        run(&a);
        end(&a);
        trace = a.p->sim != NULL ? sim_trace(a.p->sim) : 0;
        stop_recording(0);
        pair_free(a.p);
        return trace;
}
