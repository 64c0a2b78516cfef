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
 *      sim_shares_seeds_test [FIRST COUNT]
 */
#include "tests/sim/oracle.h"
#include "tests/sim/shares.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "ip/ip.h"
#include "tcp/tcp_group.h"
#include "tcp/tcp_lend.h"
#include "tcp/tcp_window.h"
#include "tests/unit.h"

#define TURNS    300u
#define PATIENCE 100000u

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
        if (pair_end(k.p) != 0 || tcp_group_new(server(&k)) != k.group)
                wrong(&k, NULL, "something left");
        pair_free(k.p);
}

static struct oracle seeds = {1, 400};

static void no_group_holds_more_than_it_may(void **state)
{
        (void)state;
        oracle_plays(&seeds, play);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(no_group_holds_more_than_it_may),
        };

        oracle_args(&seeds, argc, argv);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
