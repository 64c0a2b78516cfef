/*
 * Windows by credit, from many seeds: a reader grants, reads, holds, and changes its mind about how
 * its window is made; a sender sends whatever it may. The oracle keeps books of its own:
 *
 *   - no byte beyond what was granted is ever accepted;
 *   - each window on the wire, by credit, is what was granted and has not come, rounded down to the
 *     scale;
 *   - the wire takes nothing back, but for less than a unit of the scale;
 *   - with grants enough, everything arrives;
 *   - a sender that wants no more than so much in flight has no more.
 *
 *      sim_credit_test [FIRST COUNT]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/prng.h"
#include "ip/ip.h"
#include "tcp/tcp_window.h"
#include "tests/sim/oracle.h"
#include "tests/sim/pair.h"
#include "tests/unit.h"

#define WRITER   0
#define READER   1
#define TURNS    300u /* in which the reader does as it likes; then it grants and reads all */
#define PATIENCE 100000u

struct talk {
        struct pair *p;
        struct prng_fast rnd;
        uint64_t seed;
        uint32_t conn[2];
        uint64_t total, written, read;
        /* From the beginning of the stream: where what the peer may send ends, by credit. */
        uint64_t granted;
        uint64_t promised; /* the right edge, as the wire has said it */
        uint32_t most;
        uint32_t send_window; /* of the writer; 0: no limit of its own */
        bool credit;
};

static uint32_t below(struct talk *k, uint32_t n)
{
        return prng_fast_below(&k->rnd, n);
}

static uint8_t byte_at(uint64_t pos)
{
        return (uint8_t)(pos * 31 + pos / 253);
}

static struct tcp_conn *reader(struct talk *k)
{
        return pair_conn(k->p, READER, k->conn[READER]);
}

static uint64_t received(struct talk *k)
{
        const struct tcp_conn *tc = reader(k);

        return tc->rcv_nxt - tc->irs - 1;
}

static _Noreturn void wrong(const struct talk *k, const char *what)
{
        fprintf(stderr,
                "seed %llu: %s; written %llu read %llu granted %llu promised %llu most %u credit "
                "%d\n",
                (unsigned long long)k->seed, what, (unsigned long long)k->written,
                (unsigned long long)k->read, (unsigned long long)k->granted,
                (unsigned long long)k->promised, k->most, k->credit);
        abort();
}

/* ---- the wire ---- */

/* Segments of the reader, when there is a connection to compare them with. */
static void looks(void *arg, nstime now, int side, enum sim_event what, const uint8_t *bytes,
                  size_t len)
{
        struct talk *k = arg;
        struct tcp_seg seg;
        uint64_t acked, window;
        uint8_t scale;

        (void)now;
        if (side != READER || what != SIM_SENT || k->conn[READER] == 0)
                return;
        if (tcp_hdr_parse(bytes + IP_MIN_HDR, len - IP_MIN_HDR, &seg) < 0 ||
            seg.flags & (TCP_SYN | TCP_RST))
                return;
        scale = reader(k)->rcv_wscale;
        acked = seg.ack - reader(k)->irs - 1;
        window = (uint64_t)seg.wnd << scale;
        if (k->credit && seg.wnd != MIN((k->granted - acked) >> scale, UINT16_MAX))
                wrong(k, "a window that is not what was granted");
        if (acked + window + (1u << scale) <= k->promised)
                wrong(k, "a window that was taken back");
        k->promised = MAX(k->promised, acked + window);
}

/* ---- the reader ---- */

static void grants(struct talk *k, uint32_t n)
{
        struct stack *s = &k->p->side[READER].s;
        uint64_t ahead = k->granted - received(k);
        int err;

        if (ahead + n <= k->most)
                k->granted += n;
        err = tcp_window_grant(&s->tcp, reader(k), n, k->p->now);
        if (err != (ahead + n <= k->most ? 0 : -EOVERFLOW))
                wrong(k, "a grant that was answered wrong");
        stack_flush(s, k->p->now);
}

/* The window is made another way: by credit from what was promised on, or by a buffer of some size,
 * or the stack's own. */
static void changes(struct talk *k)
{
        struct stack *s = &k->p->side[READER].s;
        struct tcp_opts o;

        tcp_get_opts(reader(k), &o);
        o.credit = !o.credit;
        o.rcvbuf = o.credit || below(k, 2) != 0 ? 0 : 1 + below(k, k->most);
        k->credit = false;
        tcp_set_opts(&s->tcp, reader(k), &o, k->p->now);
        stack_flush(s, k->p->now);
        k->credit = o.credit;
        if (k->credit)
                k->granted = reader(k)->rcv_adv - reader(k)->irs - 1;
        if (k->credit && k->granted < k->promised)
                wrong(k, "credit that begins with less than was promised");
}

static uint32_t reads(struct talk *k, uint32_t most)
{
        static uint8_t data[65536];
        int n = pair_read(k->p, READER, k->conn[READER], data, MIN(most, (uint32_t)sizeof data));

        for (int i = 0; i < n; i++)
                if (data[i] != byte_at(k->read + (uint32_t)i))
                        wrong(k, "a byte that is not the one that was sent");
        k->read += (uint32_t)MAX(n, 0);
        return (uint32_t)MAX(n, 0);
}

/* ---- the sender ---- */

static void writes(struct talk *k)
{
        uint8_t data[8192];
        uint32_t want = (uint32_t)MIN(1 + below(k, sizeof data), k->total - k->written);
        int n;

        for (uint32_t i = 0; i < want; i++)
                data[i] = byte_at(k->written + i);
        n = want != 0 ? pair_write(k->p, WRITER, k->conn[WRITER], data, want) : 0;
        k->written += (uint32_t)MAX(n, 0);
}

/* ---- a talk ---- */

static void checks(struct talk *k)
{
        if (k->credit && received(k) > k->granted)
                wrong(k, "more than was granted");
        if (k->credit && tcp_window_ahead(reader(k)) != k->granted - received(k))
                wrong(k, "books that differ");
        if (k->send_window != 0 &&
            flight(pair_conn(k->p, WRITER, k->conn[WRITER])) > k->send_window)
                wrong(k, "more in flight than the sender wants");
}

static void does_as_it_likes(struct talk *k)
{
        uint32_t what = below(k, 100);

        if (what < 35)
                reads(k, 1 + below(k, 20000));
        else if (what < 65 && k->credit)
                grants(k, below(k, 4) == 0 ? below(k, 10) : 1 + below(k, k->most));
        else if (what < 70)
                changes(k);
}

static void goes_to_its_end(struct talk *k)
{
        for (uint32_t turn = 0; k->read < k->total; turn++) {
                uint64_t ahead = k->granted - received(k);

                if (turn == PATIENCE)
                        wrong(k, "a stall");
                writes(k);
                while (reads(k, 65536) != 0)
                        ;
                if (k->credit && ahead < k->most)
                        grants(k, (uint32_t)(k->most - ahead));
                checks(k);
                pair_wait(k->p, k->p->now + NS_PER_S);
        }
}

/* Some writers have a limit of their own, from before the first byte. */
static void limits_sender(struct talk *k)
{
        struct stack *s = &k->p->side[WRITER].s;
        struct tcp_opts o;

        if (below(k, 4) != 0)
                return;
        tcp_get_opts(pair_conn(k->p, WRITER, k->conn[WRITER]), &o);
        o.send_window = k->send_window = 200 + below(k, below(k, 2) == 0 ? 3000 : 100000);
        tcp_set_opts(&s->tcp, pair_conn(k->p, WRITER, k->conn[WRITER]), &o, k->p->now);
        stack_flush(s, k->p->now);
}

static void begins(struct talk *k)
{
        struct tcp_opts o;

        k->p = pair_random(k->seed, &k->rnd);
        tcp_opts_default(&o);
        o.credit = 1;
        o.window_most = k->most =
                below(k, 2) == 0 ? 3000 + below(k, 62000) : 65536 + below(k, 2000000);
        o.window_first = below(k, 3) == 0 ? 0 : below(k, k->most + 1);
        o.nodelay = (uint8_t)below(k, 2);
        k->granted = o.window_first;
        k->total = 20000 + below(k, 400000);
        if (k->p->sim != NULL)
                sim_set_trace(k->p->sim, looks, k);
        pair_connect_opts(k->p, 80, &o, &k->conn[WRITER], &k->conn[READER]);
        k->credit = true;
        limits_sender(k);
}

static void talk(uint64_t seed)
{
        struct talk k = {.seed = seed};

        prng_fast_init(&k.rnd, seed);
        begins(&k);
        for (unsigned turn = 0; turn < TURNS; turn++) {
                if (below(&k, 3) == 0)
                        writes(&k);
                does_as_it_likes(&k);
                checks(&k);
                if (below(&k, 2) == 0)
                        pair_wait(k.p, k.p->now + (nstime)below(&k, 40) * NS_PER_MS);
                checks(&k);
        }
        goes_to_its_end(&k);
        for (int i = 0; i < 2; i++)
                tcp_close(&k.p->side[i].s.tcp, pair_conn(k.p, i, k.conn[i]), k.p->now);
        if (pair_end(k.p) != 0)
                wrong(&k, "something left");
        pair_free(k.p);
}

static struct oracle seeds = {1, 600};

static void what_is_granted_and_nothing_else_arrives(void **state)
{
        (void)state;
        oracle_plays(&seeds, talk);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_granted_and_nothing_else_arrives)};

        oracle_args(&seeds, argc, argv);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
