/*
 * Groups, from many seeds: a server whose listener has a group, and more clients than it has places
 * for. The server reads, borrows, grants, closes, changes limits, lets connections leave and enter.
 * The oracle:
 *
 *   - what is unread, lent and promised, of all members together, is never more than the limit;
 *   - nor is what they have written and is not acknowledged;
 *   - nobody's window is taken back on the wire;
 *   - a member always has its least;
 *   - when both read, everything arrives at everybody, and everybody gets a place: who may write
 *     again hears of it.
 *
 *      sim_shares_test [FIRST COUNT]
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/prng.h"
#include "ip/ip.h"
#include "tests/sim/pair.h"

#define CLIENT   0
#define SERVER   1
#define PORT     80
#define FIRST    40000u /* port of the first client */
#define MOST     10u    /* clients of a play */
#define FLOWS    40u
#define TURNS    300u
#define PATIENCE 100000u
#define PROC     1u /* who borrows */
#define LOANS    64u

struct flow {
        uint32_t client, server; /* 0: not connected, not accepted; or over */
        uint64_t total, written, read, promised;
        uint64_t back, answered, heard; /* the other way */
        uint64_t loan[LOANS];
        uint32_t loans;
        bool closed;
};

struct play {
        struct pair *p;
        struct prng_fast rnd;
        uint64_t seed;
        uint32_t listener, group;
        struct tcp_group_limits limits;
        struct flow flow[FLOWS];
        uint32_t n;
};

static uint32_t below(struct play *k, uint32_t n)
{
        return prng_fast_below(&k->rnd, n);
}

static _Noreturn void wrong(const struct play *k, const struct flow *f, const char *what)
{
        fprintf(stderr, "seed %llu: %s; limits %llu %llu %u %u", (unsigned long long)k->seed, what,
                (unsigned long long)k->limits.receive, (unsigned long long)k->limits.send,
                k->limits.members, k->limits.least);
        if (f != NULL)
                fprintf(stderr, "; flow %u: total %llu written %llu read %llu, back %llu %llu %llu",
                        (uint32_t)(f - k->flow), (unsigned long long)f->total,
                        (unsigned long long)f->written, (unsigned long long)f->read,
                        (unsigned long long)f->back, (unsigned long long)f->answered,
                        (unsigned long long)f->heard);
        fputc('\n', stderr);
        abort();
}

static struct tcp *server(struct play *k)
{
        return &k->p->side[SERVER].s.tcp;
}

static struct tcp_conn *conn(struct play *k, const struct flow *f)
{
        return pair_conn(k->p, SERVER, f->server);
}

static void flush(struct play *k)
{
        stack_flush(&k->p->side[SERVER].s, k->p->now);
}

static uint8_t byte_at(const struct play *k, const struct flow *f, uint64_t pos)
{
        return (uint8_t)(pos * 31 + pos / 253 + (uint64_t)(f - k->flow) * 77);
}

static void is_stream(const struct play *k, const struct flow *f, uint64_t from,
                      const uint8_t *data, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                if (data[i] != byte_at(k, f, from + i))
                        wrong(k, f, "a byte that is not the one that was sent");
}

static void is_what_was_sent(const struct play *k, const struct flow *f, const uint8_t *data,
                             uint32_t n)
{
        is_stream(k, f, f->read, data, n);
}

/* ---- the oracle ---- */

static void checks(struct play *k)
{
        uint64_t sum = 0, queued = 0;

        for (uint32_t i = 1; i < server(k)->sh->conns.fresh; i++) {
                const struct tcp_conn *tc = conn_at(server(k), i);
                if (!tc->live || tc->group != k->group)
                        continue;
                sum += tcp_promised(tc);
                queued += tcp_queued(tc);
                if ((k->limits.receive != 0 && tc->group_share < k->limits.least) ||
                    (k->limits.send != 0 && tc->snd_most < k->limits.least))
                        wrong(k, NULL, "less than the least");
        }
        if (k->limits.send != 0 && queued > k->limits.send)
                wrong(k, NULL, "more was written than the group may");
        if (k->limits.receive != 0 && sum > k->limits.receive)
                wrong(k, NULL, "more than the group may hold");
        tcp_group_check(server(k), k->group);
        pair_check(k->p);
}

/* The server's segments: windows. */
static void looks(void *arg, nstime now, int side, enum sim_event what, const uint8_t *bytes,
                  size_t len)
{
        struct play *k = arg;
        const struct tcp_conn *tc;
        struct tcp_seg seg;
        struct flow *f;
        uint64_t edge;

        (void)now;
        if (side != SERVER || what != SIM_SENT ||
            tcp_hdr_parse(bytes + IP_MIN_HDR, len - IP_MIN_HDR, &seg) < 0 ||
            seg.flags & (TCP_SYN | TCP_RST) || seg.dport - FIRST >= MOST)
                return;
        f = &k->flow[seg.dport - FIRST];
        if (f->server == 0)
                return;
        tc = conn(k, f);
        edge = (uint64_t)(seg.ack - tc->irs - 1) + ((uint64_t)seg.wnd << tc->rcv_wscale);
        if (edge + (1u << tc->rcv_wscale) <= f->promised)
                wrong(k, f, "a window that was taken back");
        f->promised = MAX(f->promised, edge);
}

/* ---- clients ---- */

static void connects(struct play *k)
{
        struct stack *s = &k->p->side[CLIENT].s;
        struct tcp_tuple t = {.laddr = pair_addr(CLIENT),
                              .raddr = pair_addr(SERVER),
                              .lport = (uint16_t)(FIRST + k->n),
                              .rport = PORT,
                              .chan = PAIR_CHAN};
        struct tcp_link link = stack_tcp_link(s, PAIR_CHAN);
        struct tcp_opts o;
        int c;

        tcp_opts_default(&o);
        o.nodelay = (uint8_t)below(k, 2);
        o.syncnt = 120;
        c = tcp_connect(&s->tcp, &t, &link, &o, k->p->now);
        if (c <= 0)
                wrong(k, NULL, "no connection");
        tcp_set_sock(&s->tcp, (uint32_t)c, 1);
        stack_flush(s, k->p->now);
        k->flow[k->n++] = (struct flow){
                .client = (uint32_t)c, .total = 1 + below(k, 200000), .back = below(k, 100000)};
}

static void writes(struct play *k, struct flow *f)
{
        static uint8_t data[16384];
        const struct tcp_conn *tc = pair_conn(k->p, CLIENT, f->client);
        uint32_t want = 1 + below(k, sizeof data);
        int n;

        want = (uint32_t)MIN(want, f->total - f->written);
        if (want == 0 || tc->state != TCPS_ESTABLISHED)
                return;
        for (uint32_t i = 0; i < want; i++)
                data[i] = byte_at(k, f, f->written + i);
        n = pair_write(k->p, CLIENT, f->client, data, want);
        f->written += (uint32_t)MAX(n, 0);
}

static void hears(struct play *k, struct flow *f)
{
        static uint8_t data[16384];
        int n = pair_read(k->p, CLIENT, f->client, data, 1 + below(k, sizeof data));

        is_stream(k, f, f->heard, data, (uint32_t)MAX(n, 0));
        f->heard += (uint32_t)MAX(n, 0);
}

/* ---- the server ---- */

static void answers(struct play *k, struct flow *f)
{
        static uint8_t data[30000];
        uint32_t want = 1 + below(k, sizeof data);
        int n;

        want = (uint32_t)MIN(want, f->back - f->answered);
        if (want == 0)
                return;
        for (uint32_t i = 0; i < want; i++)
                data[i] = byte_at(k, f, f->answered + i);
        n = pair_write(k->p, SERVER, f->server, data, want);
        f->answered += (uint32_t)MAX(n, 0);
}

static void accepts(struct play *k)
{
        uint32_t c;

        while ((c = tcp_accept(server(k), k->listener)) != 0) {
                struct flow *f = &k->flow[pair_conn(k->p, SERVER, c)->tuple.rport - FIRST];
                f->server = c;
                tcp_set_sock(server(k), c, 1);
        }
}

static uint32_t reads(struct play *k, struct flow *f, uint32_t most)
{
        static uint8_t data[65536];
        int n = pair_read(k->p, SERVER, f->server, data, MIN(most, (uint32_t)sizeof data));

        is_what_was_sent(k, f, data, (uint32_t)MAX(n, 0));
        f->read += (uint32_t)MAX(n, 0);
        return (uint32_t)MAX(n, 0);
}

static void borrows(struct play *k, struct flow *f)
{
        struct tcp_lent lent[8];
        int most = 1 + (int)below(k, 8),
            n = tcp_recv_lend(server(k), conn(k, f), PROC, below(k, 2) != 0, lent,
                              MIN(most, (int)(LOANS - f->loans)), k->p->now);

        for (int i = 0; i < n; i++) {
                is_what_was_sent(k, f, lent[i].ptr, lent[i].len);
                f->read += lent[i].len;
                f->loan[f->loans++] = lent[i].token;
        }
        flush(k);
}

static void returns(struct play *k, struct flow *f)
{
        uint32_t i = below(k, f->loans);

        if (tcp_recv_return(server(k), conn(k, f), PROC, f->loan[i], k->p->now) != 0)
                wrong(k, f, "a loan that is none");
        f->loan[i] = f->loan[--f->loans];
        flush(k);
}

/* A grant is refused when the group has no more, and then nothing is promised. */
static void grants(struct play *k, struct flow *f, uint32_t n)
{
        struct tcp_conn *tc = conn(k, f);
        uint32_t before = tcp_window_ahead(tc);
        int err = tcp_window_grant(server(k), tc, n, k->p->now);

        if (tcp_window_ahead(tc) != before + (err == 0 ? n : 0))
                wrong(k, f, "a grant that is not what was said");
        flush(k);
}

static void changes(struct play *k, struct flow *f)
{
        struct tcp_opts o;

        tcp_get_opts(conn(k, f), &o);
        o.credit = (uint8_t)below(k, 2);
        o.window_most = 65535;
        o.rcvbuf = o.credit || below(k, 2) != 0 ? 0 : 1 + below(k, 100000);
        tcp_set_opts(server(k), conn(k, f), &o, k->p->now);
        flush(k);
}

/* What does not fit what was promised is refused, and the old limits hold. */
static void sets_limits(struct play *k)
{
        struct tcp_group_limits l = {.members = 1 + below(k, MOST)};

        l.least = 500 + below(k, 5000);
        l.rate = below(k, 2) == 0 ? 0 : 1000 + below(k, 100000);
        l.receive = (uint64_t)l.members * l.least + below(k, 200000);
        l.send = below(k, 3) == 0 ? 0 : (uint64_t)l.members * l.least + below(k, 100000);
        if (tcp_group_set(server(k), k->group, &l) == 0)
                k->limits = l;
        flush(k);
}

static void goes_and_comes(struct play *k, struct flow *f)
{
        if (conn(k, f)->group != 0)
                tcp_group_leave(server(k), conn(k, f), k->p->now);
        else
                tcp_group_enter(server(k), conn(k, f), k->group, k->p->now);
        flush(k);
}

static void closes(struct play *k, struct flow *f)
{
        tcp_loans_end(server(k), conn(k, f), PROC, k->p->now);
        tcp_close(server(k), conn(k, f), k->p->now);
        f->server = 0;
        f->closed = true;
        flush(k);
        tcp_close(&k->p->side[CLIENT].s.tcp, pair_conn(k->p, CLIENT, f->client), k->p->now);
        stack_flush(&k->p->side[CLIENT].s, k->p->now);
}

/* ---- a play ---- */

static void does_as_it_likes(struct play *k, struct flow *f)
{
        uint32_t what = below(k, 100);

        if (what < 25)
                reads(k, f, 1 + below(k, 20000));
        else if (what < 40)
                answers(k, f);
        else if (what < 50 && f->loans < LOANS)
                borrows(k, f);
        else if (what < 65 && f->loans != 0)
                returns(k, f);
        else if (what < 75 && conn(k, f)->opts.credit)
                grants(k, f, 1 + below(k, 30000));
        else if (what < 80)
                changes(k, f);
        else if (what < 83)
                sets_limits(k);
        else if (what < 86)
                goes_and_comes(k, f);
        else if (what < 87)
                closes(k, f);
}

static bool is_over(struct play *k, struct flow *f)
{
        struct tcp_opts o;

        if (f->closed)
                return true;
        writes(k, f);
        if (f->server == 0)
                return false;
        while (f->loans != 0)
                returns(k, f);
        tcp_get_opts(conn(k, f), &o);
        if (o.credit) {
                o.credit = 0;
                tcp_set_opts(server(k), conn(k, f), &o, k->p->now);
                flush(k);
        }
        while (reads(k, f, 65536) != 0)
                ;
        if (tcp_poll_events(server(k), conn(k, f)) & POLLOUT)
                answers(k, f);
        hears(k, f);
        if (f->read == f->total && f->heard == f->back)
                closes(k, f);
        return f->closed;
}

static void says_all(struct play *k)
{
        for (uint32_t i = 0; i < k->n; i++) {
                const struct flow *f = &k->flow[i];
                const struct tcp_conn *c = pair_conn(k->p, CLIENT, f->client),
                                      *s = f->server != 0 ? conn(k, f) : NULL;
                fprintf(stderr, "flow %u: closed %d written %llu read %llu of %llu, client %s", i,
                        f->closed, (unsigned long long)f->written, (unsigned long long)f->read,
                        (unsigned long long)f->total, tcp_state_name(c->state));
                if (s != NULL)
                        fprintf(stderr,
                                ", server %s share %u group %u size %u limit %u scale %u ahead %u "
                                "unread %u lent %u",
                                tcp_state_name(s->state), s->group_share, s->group, s->rcv_size,
                                s->rcv_limit, s->rcv_wscale, tcp_window_ahead(s), s->rcv_unread,
                                s->rcv_lent);
                fputc('\n', stderr);
        }
        pair_say(k->p);
}

static void goes_to_its_end(struct play *k)
{
        bool over = false;

        for (uint32_t turn = 0; !over; turn++) {
                if (turn == PATIENCE) {
                        says_all(k);
                        wrong(k, NULL, "a stall");
                }
                over = true;
                accepts(k);
                for (uint32_t i = 0; i < k->n; i++)
                        over &= is_over(k, &k->flow[i]);
                checks(k);
                pair_wait(k->p, k->p->now + NS_PER_S);
        }
}

static void begins(struct play *k)
{
        struct tcp_opts o;

        k->p = pair_random(k->seed, &k->rnd);
        k->limits.members = 1 + below(k, MOST);
        k->limits.least = 500 + below(k, 5000);
        k->limits.receive = (uint64_t)k->limits.members * k->limits.least + below(k, 200000);
        k->limits.send = k->limits.receive - below(k, 2) * below(k, 100000);
        if (k->limits.send < (uint64_t)k->limits.members * k->limits.least)
                k->limits.send = 0;
        tcp_opts_default(&o);
        o.credit = below(k, 4) == 0;
        o.window_most = o.credit ? 65535 : 0;
        o.window_first = o.credit ? below(k, 65536) : 0;
        k->listener = (uint32_t)tcp_listen(server(k), pair_addr(SERVER), PORT, MOST, &o);
        k->group = tcp_group_new(server(k));
        if (tcp_group_set(server(k), k->group, &k->limits) != 0)
                wrong(k, NULL, "limits that were refused");
        tcp_group_listen(server(k), k->listener, k->group);
        if (k->p->sim != NULL)
                sim_set_trace(k->p->sim, looks, k);
}

static void play(uint64_t seed)
{
        struct play k = {.seed = seed};

        prng_fast_init(&k.rnd, seed);
        begins(&k);
        for (unsigned turn = 0; turn < TURNS; turn++) {
                struct flow *f;
                if (k.n < MOST && (k.n == 0 || below(&k, 10) == 0))
                        connects(&k);
                f = &k.flow[below(&k, k.n)];
                if (!f->closed)
                        writes(&k, f);
                if (!f->closed && below(&k, 3) == 0)
                        hears(&k, f);
                accepts(&k);
                if (f->server != 0)
                        does_as_it_likes(&k, f);
                checks(&k);
                if (below(&k, 2) == 0)
                        pair_wait(k.p, k.p->now + (nstime)below(&k, 40) * NS_PER_MS);
                checks(&k);
        }
        goes_to_its_end(&k);
        tcp_unlisten(server(&k), k.listener);
        while (pair_step(k.p, k.p->now + 3600 * NS_PER_S))
                ;
        if (pair_leaks(k.p) != 0 || tcp_group_new(server(&k)) != k.group)
                wrong(&k, NULL, "something left");
        pair_free(k.p);
}

/* ---- who uses it has the pool, in equal parts ---- */

#define POOL (400u << 10)

static void connects_all(struct play *k, uint32_t n, const struct tcp_group_limits *l)
{
        struct sim_params both[2];
        struct tcp_opts o;

        for (int i = 0; i < 2; i++)
                both[i] = (struct sim_params){
                        .mtu = 1500, .rate = 500000000, .delay = 500 * NS_PER_US, .csum = true};
        prng_fast_init(&k->rnd, 1);
        k->p = pair_sim(1, both);
        tcp_opts_default(&o);
        k->limits = *l;
        k->listener = (uint32_t)tcp_listen(server(k), pair_addr(SERVER), PORT, FLOWS, &o);
        k->group = tcp_group_new(server(k));
        assert_int_equal(tcp_group_set(server(k), k->group, l), 0);
        tcp_group_listen(server(k), k->listener, k->group);
        while (k->n < n)
                connects(k);
        for (uint32_t i = 0; i < n; i++)
                while (k->flow[i].server == 0) {
                        pair_wait(k->p, k->p->now + NS_PER_MS);
                        accepts(k);
                }
}

static void ends_all(struct play *k)
{
        for (uint32_t i = 0; i < k->n; i++)
                closes(k, &k->flow[i]);
        tcp_unlisten(server(k), k->listener);
        while (pair_step(k->p, k->p->now + 3600 * NS_PER_S))
                ;
        assert_int_equal(pair_leaks(k->p), 0);
        pair_free(k->p);
}

static void passes(struct play *k, nstime time)
{
        nstime until = k->p->now + time;

        while (k->p->now < until)
                pair_wait(k->p, until);
        checks(k);
}

/* Flows `from` to the last send what they may and are read at once; nobody else does anything. */
static void all_are_read(struct play *k, uint32_t from, nstime until)
{
        static uint8_t data[65536];

        while (k->p->now < until) {
                for (uint32_t i = from; i < k->n; i++) {
                        pair_write(k->p, CLIENT, k->flow[i].client, data, sizeof data);
                        while (pair_read(k->p, SERVER, k->flow[i].server, data, sizeof data) > 0)
                                ;
                }
                checks(k);
                pair_wait(k->p, MIN(until, k->p->now + NS_PER_MS));
        }
}

static void equal_parts_of_what_is_free(void **state)
{
        const struct tcp_group_limits l = {.members = 8, .least = 4096, .receive = 8 * 4096 + POOL};
        struct play k = {.seed = 1};

        (void)state;
        connects_all(&k, 4, &l);
        for (uint32_t i = 0; i < 4; i++)
                assert_int_equal(conn(&k, &k.flow[i])->group_share, 4096);
        all_are_read(&k, 0, k.p->now + 2 * NS_PER_S);
        for (uint32_t i = 0; i < 4; i++)
                assert_in_range(conn(&k, &k.flow[i])->group_share, 4096 + POOL / 5 * 9 / 10,
                                4096 + POOL / 5 * 11 / 10);
        /* Two fall silent, and one closes. What they were promised stays theirs; the rest goes to
         * who uses it. */
        closes(&k, &k.flow[0]);
        all_are_read(&k, 3, k.p->now + 2 * NS_PER_S);
        assert_in_range(conn(&k, &k.flow[3])->group_share, 4096 + POOL * 27 / 100,
                        4096 + POOL * 33 / 100);
        k.flow[0] = k.flow[--k.n];
        ends_all(&k);
}

/* ---- nothing more comes to a member ---- */

static struct tcp *client(struct play *k)
{
        return &k->p->side[CLIENT].s.tcp;
}

static void who_sends_no_more_leaves_his_share(void **state)
{
        const struct tcp_group_limits l = {.members = 8, .least = 4096, .receive = 8 * 4096 + POOL};
        static uint8_t data[65536];
        struct play k = {.seed = 1};

        (void)state;
        connects_all(&k, 2, &l);
        all_are_read(&k, 0, k.p->now + 2 * NS_PER_S);
        for (uint32_t i = 0; i < 2; i++)
                assert_true(conn(&k, &k.flow[i])->group_share > POOL / 4);
        tcp_shutdown_send(client(&k), pair_conn(k.p, CLIENT, k.flow[0].client), k.p->now);
        tcp_abort(client(&k), pair_conn(k.p, CLIENT, k.flow[1].client), k.p->now);
        stack_flush(&k.p->side[CLIENT].s, k.p->now);
        while (conn(&k, &k.flow[0])->state == TCPS_ESTABLISHED) {
                while (pair_read(k.p, SERVER, k.flow[0].server, data, sizeof data) > 0)
                        ;
                passes(&k, NS_PER_MS);
        }
        assert_int_equal(conn(&k, &k.flow[0])->state, TCPS_CLOSE_WAIT);
        assert_int_equal(conn(&k, &k.flow[1])->state, TCPS_CLOSED);
        for (uint32_t i = 0; i < 2; i++)
                assert_int_equal(conn(&k, &k.flow[i])->group_share,
                                 MAX(4096, conn(&k, &k.flow[i])->rcv_unread));
        ends_all(&k);
}

/* ---- what is written ---- */

#define TO_WRITE (40u << 10)

/* Until nothing more is taken: nobody reads. */
static void all_are_written_to(struct play *k, uint32_t from)
{
        static uint8_t data[16384];
        int taken = 1;

        while (taken != 0) {
                taken = 0;
                for (uint32_t i = from; i < k->n; i++)
                        taken += MAX(pair_write(k->p, SERVER, k->flow[i].server, data, 1000), 0);
                passes(k, 10 * NS_PER_MS);
        }
}

static void may_write_more(struct play *k, uint32_t from, bool more)
{
        for (uint32_t i = from; i < k->n; i++)
                assert_int_equal(!!(tcp_poll_events(server(k), conn(k, &k->flow[i])) & POLLOUT),
                                 more);
}

static void equal_parts_of_what_may_be_written(void **state)
{
        struct tcp_group_limits l = {.members = 8, .least = 4096, .send = 8 * 4096 + TO_WRITE};
        struct play k = {.seed = 1};
        uint8_t data[65536];

        (void)state;
        connects_all(&k, 4, &l);
        all_are_written_to(&k, 0);
        for (uint32_t i = 0; i < 4; i++)
                assert_in_range(tcp_queued(conn(&k, &k.flow[i])), 4096 + TO_WRITE / 5 * 9 / 10,
                                4096 + TO_WRITE / 5 * 11 / 10);
        may_write_more(&k, 0, false);
        /* One is read, and goes on alone; the others wait for their own clients. */
        for (int i = 0; i < 100; i++) {
                while (pair_read(k.p, CLIENT, k.flow[3].client, data, sizeof data) > 0)
                        ;
                passes(&k, 100 * NS_PER_MS);
        }
        assert_int_equal(tcp_queued(conn(&k, &k.flow[3])), 0);
        may_write_more(&k, 3, true);
        assert_int_equal(conn(&k, &k.flow[3])->send_share, 4096);
        /* A wider limit, and none, are heard of at once. */
        l.send *= 4;
        assert_int_equal(tcp_group_set(server(&k), k.group, &l), 0);
        flush(&k);
        may_write_more(&k, 0, true);
        l.send = 8 * 4096;
        assert_int_equal(tcp_group_set(server(&k), k.group, &l), -ENOSPC);
        ends_all(&k);
}

static uint32_t reserves(struct play *k, uint32_t most, int spans)
{
        struct span span[8];
        int got = tcp_send_reserve(server(k), conn(k, &k->flow[0]), most, span, spans);

        assert_true(got > 0);
        return (uint32_t)got;
}

static void commits(struct play *k, uint32_t n, bool more)
{
        tcp_send_commit(server(k), conn(k, &k->flow[0]), n, more, false, k->p->now);
}

/* What is reserved counts, and not what was asked for; what is not written, or by a connection that
 * has ended meanwhile, counts no longer. */
static void what_is_not_written_counts_no_longer(void **state)
{
        const struct tcp_group_limits l = {.members = 8, .least = 4096, .send = 8 * 4096 + POOL};
        struct play k = {.seed = 1};
        const struct tcp_conn *tc;
        uint32_t got;

        (void)state;
        connects_all(&k, 2, &l);
        tc = conn(&k, &k.flow[0]);
        got = reserves(&k, POOL, 1);
        assert_in_range(got, 4096 + 1, POOL / 2 - 1);
        assert_int_equal(tc->send_share, got);
        commits(&k, 0, false);
        assert_int_equal(tc->send_share, 4096);
        checks(&k);
        got = reserves(&k, POOL, 8);
        tcp_abort(client(&k), pair_conn(k.p, CLIENT, k.flow[0].client), k.p->now);
        stack_flush(&k.p->side[CLIENT].s, k.p->now);
        passes(&k, NS_PER_S);
        assert_int_equal(tc->state, TCPS_CLOSED);
        assert_int_equal(tc->send_share, got);
        commits(&k, got, false);
        assert_int_equal(tc->send_share, 4096);
        checks(&k);
        ends_all(&k);
}

/* MSG_MORE holds nothing back from when poll() says that there is no room for what follows. */
static void what_is_full_waits_for_no_more(void **state)
{
        const struct tcp_group_limits l = {.members = 1, .least = 9000, .send = 9000};
        struct play k = {.seed = 1};
        const struct tcp_conn *tc;

        (void)state;
        connects_all(&k, 1, &l);
        tc = conn(&k, &k.flow[0]);
        commits(&k, reserves(&k, 5000, 8), true);
        assert_true(tc->flags & TCF_MORE);
        may_write_more(&k, 0, true);
        commits(&k, reserves(&k, 1100, 8), true);
        assert_false(tc->flags & TCF_MORE);
        may_write_more(&k, 0, false);
        flush(&k);
        checks(&k);
        ends_all(&k);
}

/* What was read and goes back has to have a place as well: as far as there is one. */
static void gives_back(uint64_t pool, bool has_place)
{
        const struct tcp_group_limits l = {.members = 1, .least = 4096, .receive = 4096 + pool};
        struct play k = {.seed = 1};
        uint8_t data[4096] = {0};
        struct tcp_conn *tc;

        connects_all(&k, 1, &l);
        tc = conn(&k, &k.flow[0]);
        pair_write(k.p, CLIENT, k.flow[0].client, data, sizeof data);
        passes(&k, NS_PER_S);
        assert_int_equal(tc->rcv_unread, sizeof data);
        tcp_recv_consume(server(&k), tc, sizeof data, k.p->now);
        flush(&k);
        assert_int_equal(tcp_recv_give_back(server(&k), tc, data, sizeof data, copied_seq(tc)),
                         has_place);
        checks(&k);
        ends_all(&k);
}

static void what_goes_back_has_its_place(void **state)
{
        (void)state;
        gives_back(0, false);
        gives_back(POOL, true);
}

/* ---- a rate ---- */

#define RATE 2500000u

/* Flows `from` to the last are written to; who runs the stack comes every `pause`. Bytes that each
 * has sent go to sent[]. */
static void all_are_sent_to(struct play *k, uint32_t from, nstime time, nstime pause,
                            uint64_t *sent)
{
        static uint8_t data[65536];
        nstime until = k->p->now + time;

        for (uint32_t i = 0; i < k->n; i++)
                sent[i] = (uint64_t)0 - conn(k, &k->flow[i])->bytes_sent;
        while (k->p->now < until) {
                for (uint32_t i = from; i < k->n; i++) {
                        while (pair_write(k->p, SERVER, k->flow[i].server, data, sizeof data) > 0)
                                ;
                        while (pair_read(k->p, CLIENT, k->flow[i].client, data, sizeof data) > 0)
                                ;
                }
                checks(k);
                if (pause == 0) {
                        pair_wait(k->p, MIN(until, k->p->now + NS_PER_MS));
                        continue;
                }
                k->p->now = MIN(until, k->p->now + pause);
                sim_advance(k->p->sim, k->p->now);
                pair_settle(k->p);
        }
        for (uint32_t i = 0; i < k->n; i++)
                sent[i] += conn(k, &k->flow[i])->bytes_sent;
}

static uint64_t sum_of(const uint64_t *sent, uint32_t n)
{
        uint64_t sum = 0;

        while (n != 0)
                sum += sent[--n];
        return sum;
}

/* In a second within a per cent; an equal part each within so many. Who comes late sends whole
 * segments a visit, more or fewer. */
static void keeps_rate(nstime pause, uint32_t percent)
{
        const struct tcp_group_limits l = {.rate = RATE};
        struct play k = {.seed = 1};
        uint64_t sent[FLOWS];

        connects_all(&k, 6, &l);
        all_are_sent_to(&k, 0, NS_PER_S, pause, sent);
        all_are_sent_to(&k, 0, NS_PER_S, pause, sent);
        assert_in_range(sum_of(sent, 6), RATE * 99 / 100, RATE * 101 / 100);
        for (uint32_t i = 0; i < 6; i++)
                assert_in_range(sent[i], RATE / 600 * (100 - percent),
                                RATE / 600 * (100 + percent));
        /* Four have nothing more to send: in a second they are through. */
        all_are_sent_to(&k, 4, 2 * NS_PER_S, pause, sent);
        all_are_sent_to(&k, 4, NS_PER_S, pause, sent);
        assert_in_range(sum_of(sent, 6), RATE * 99 / 100, RATE * 101 / 100);
        assert_in_range(sent[4], RATE / 200 * (100 - percent), RATE / 200 * (100 + percent));
        ends_all(&k);
}

static void a_rate_is_exact_and_fair(void **state)
{
        (void)state;
        keeps_rate(0, 2);
}

static void a_rate_is_kept_by_who_comes_late(void **state)
{
        (void)state;
        keeps_rate(3 * NS_PER_MS, 50);
        keeps_rate(8 * NS_PER_MS, 50);
}

/* A pause is not made good, and another rate holds at once, for who waits as well. */
static void a_rate_may_change(void **state)
{
        struct tcp_group_limits l = {.rate = 1000};
        struct play k = {.seed = 1};
        uint64_t sent[FLOWS];

        (void)state;
        connects_all(&k, 3, &l);
        all_are_sent_to(&k, 0, NS_PER_S, 0, sent);
        assert_in_range(sum_of(sent, 3), 1, 1000 + 3 * 1448);
        l.rate = RATE;
        assert_int_equal(tcp_group_set(server(&k), k.group, &l), 0);
        flush(&k);
        all_are_sent_to(&k, 0, NS_PER_S, 0, sent);
        assert_in_range(sum_of(sent, 3), RATE * 98 / 100, RATE * 101 / 100);
        all_are_sent_to(&k, FLOWS, 10 * NS_PER_S, 0, sent);
        all_are_sent_to(&k, 0, NS_PER_S / 10, 0, sent);
        assert_in_range(sum_of(sent, 3), RATE / 10 * 95 / 100, RATE / 10 * 105 / 100);
        l.rate = 0;
        assert_int_equal(tcp_group_set(server(&k), k.group, &l), 0);
        flush(&k);
        all_are_sent_to(&k, 0, NS_PER_S, 0, sent);
        assert_in_range(sum_of(sent, 3), 2 * RATE, UINT64_MAX);
        ends_all(&k);
}

/* Each has sent less than its turn; what was left is nobody's a second later. */
static void a_turn_that_was_not_used_is_over(void **state)
{
        const struct tcp_group_limits l = {.rate = 4 * RATE};
        static const uint8_t data[20000];
        struct play k = {.seed = 1};
        uint64_t sent[FLOWS];

        (void)state;
        connects_all(&k, 30, &l);
        for (uint32_t i = 0; i < k.n; i++)
                pair_write(k.p, SERVER, k.flow[i].server, data, 100);
        passes(&k, NS_PER_S);
        for (uint32_t i = 0; i < k.n; i++) {
                assert_int_equal(conn(&k, &k.flow[i])->bytes_sent, 100);
                sent[i] = (uint64_t)0 - 100;
                pair_write(k.p, SERVER, k.flow[i].server, data, sizeof data);
        }
        passes(&k, 5 * NS_PER_MS);
        for (uint32_t i = 0; i < k.n; i++)
                sent[i] += conn(&k, &k.flow[i])->bytes_sent;
        assert_in_range(sum_of(sent, k.n), 1, l.rate * 15 / 1000 + k.n * 1448);
        ends_all(&k);
}

static void who_is_reset_stands_in_no_line(void **state)
{
        const struct tcp_group_limits l = {.rate = 1000};
        struct play k = {.seed = 1};
        uint64_t sent[FLOWS];

        (void)state;
        connects_all(&k, 3, &l);
        all_are_sent_to(&k, 0, NS_PER_S, 0, sent);
        assert_int_equal(server(&k)->sh->groups[k.group].waiting, 3);
        tcp_abort(client(&k), pair_conn(k.p, CLIENT, k.flow[0].client), k.p->now);
        stack_flush(&k.p->side[CLIENT].s, k.p->now);
        passes(&k, 10 * NS_PER_MS);
        assert_int_equal(conn(&k, &k.flow[0])->state, TCPS_CLOSED);
        assert_int_equal(server(&k)->sh->groups[k.group].waiting, 2);
        ends_all(&k);
}

static uint64_t first = 1, seeds = 1000;

static void no_group_holds_more_than_it_may(void **state)
{
        (void)state;
        for (uint64_t seed = first; seed < first + seeds; seed++)
                play(seed);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(equal_parts_of_what_is_free),
                cmocka_unit_test(who_sends_no_more_leaves_his_share),
                cmocka_unit_test(a_rate_is_exact_and_fair),
                cmocka_unit_test(a_rate_is_kept_by_who_comes_late),
                cmocka_unit_test(a_rate_may_change),
                cmocka_unit_test(a_turn_that_was_not_used_is_over),
                cmocka_unit_test(who_is_reset_stands_in_no_line),
                cmocka_unit_test(what_goes_back_has_its_place),
                cmocka_unit_test(equal_parts_of_what_may_be_written),
                cmocka_unit_test(what_is_not_written_counts_no_longer),
                cmocka_unit_test(what_is_full_waits_for_no_more),
                cmocka_unit_test(no_group_holds_more_than_it_may),
        };

        if (argc == 3) {
                first = strtoull(argv[1], NULL, 0);
                seeds = strtoull(argv[2], NULL, 0);
        }
        return cmocka_run_group_tests(tests, NULL, NULL);
}
