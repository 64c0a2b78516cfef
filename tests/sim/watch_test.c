/*
 * What a watch tells (tcp/tcp_watch.c), from many seeds: a writer whose marks are moved at random,
 * a reader that reads when it likes, a link that loses, deaths in the writer's stack. The oracle
 * keeps books of its own and looks after each thing that happened:
 *
 *   - a mark is told as long as it is reached, and at no other time;
 *   - what is above a mark, shut, or full has been counted each time that it changed: an odd count
 *     says that it is so now;
 *   - timeouts are counted one by one; what was lost was counted;
 *   - that a mark is reached is counted once; an event is raised when a count has grown, and at no
 *     other time.
 *
 *      sim_watch_test [FIRST COUNT]
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/prng.h"
#include "tcp/tcp_watch.h"
#include "tests/sim/oracle.h"
#include "tests/sim/pair.h"
#include "tests/unit.h"

#define WRITER   0
#define READER   1
#define TURNS    400u /* in which both do as they like; then all arrives */
#define PATIENCE 100000u

struct book {
        uint32_t marks, lost, limit;
        struct tcp_watch_counts counts;
        uint64_t timeouts; /* of the stack, which has one connection */
};

struct talk {
        struct pair *p;
        struct prng_fast rnd;
        uint64_t seed;
        uint32_t conn[2];
        uint64_t total, written, read;
        struct tcp_marks marks;
        uint32_t unread_above; /* of the reader's watch */
        uint64_t timeouts;     /* of the stack, when it was watched first */
        struct book was;
};

static unsigned told_of[8];

static uint32_t below(struct talk *k, uint32_t n)
{
        return prng_fast_below(&k->rnd, n);
}

static struct tcp_conn *conn(struct talk *k, int side)
{
        return pair_conn(k->p, side, k->conn[side]);
}

static _Noreturn void wrong(struct talk *k, const char *what)
{
        const struct tcp_conn *tc = conn(k, WRITER);

        fprintf(stderr,
                "seed %llu at %lld: %s; una %u nxt %u end %u wnd %u srtt %lld limit %u holds %x\n",
                (unsigned long long)k->seed, (long long)k->p->now, what, tc->snd_una - tc->iss,
                tc->snd_nxt - tc->iss, tc->snd_end - tc->iss, tc->snd_wnd, (long long)tc->srtt,
                tc->limit, tc->watch.holds);
        abort();
}

/* ---- the oracle ---- */

static uint32_t marks_reached(struct talk *k)
{
        const struct tcp_conn *tc = conn(k, WRITER);
        uint32_t acked = tc->snd_una - tc->iss - 1, unsent = tc->snd_end - tc->snd_nxt, marks = 0;

        if (k->marks.acked != 0 && acked >= k->marks.acked)
                marks |= TCP_WATCH_ACKED;
        if (unsent < k->marks.unsent_below)
                marks |= TCP_WATCH_UNSENT;
        return marks;
}

static void check_counts(struct talk *k, const struct book *b)
{
        const struct tcp_conn *tc = conn(k, WRITER);
        const struct book *was = &k->was;

        if ((b->counts.rtt & 1) != (tc->srtt > k->marks.rtt))
                wrong(k, "a round trip that crossed its mark, not as often as it was told");
        if ((b->counts.shut & 1) != (tc->snd_wnd == 0))
                wrong(k, "a window that shut or opened, not as often as it was told");
        if ((b->counts.niq & 1) != (tc->limit == TCP_LIM_NIQ))
                wrong(k, "a queue that was full or free, not as often as it was told");
        if (b->counts.timeouts != b->timeouts - k->timeouts)
                wrong(k, "timeouts, not as many as were told");
        if (tc->lost > was->lost && b->counts.losses == was->counts.losses)
                wrong(k, "a loss that was not told");
        if (tc->limit != was->limit && k->marks.limits >> tc->limit & 1 &&
            b->counts.limit == was->counts.limit)
                wrong(k, "a limit that was not told");
}

static uint32_t sum(const struct tcp_watch_counts *c)
{
        return c->losses + c->timeouts + c->rtt + c->shut + c->niq + c->limit;
}

/* In a turn without a write a mark is reached once at the most. */
static void check_marks(struct talk *k, const struct book *b, bool wrote)
{
        const struct tcp_watch_counts *now = &b->counts, *was = &k->was.counts;
        uint32_t reached = b->marks & ~k->was.marks;

        if (now->acked - was->acked != !!(reached & TCP_WATCH_ACKED))
                wrong(k, "bytes that are acknowledged, not told once");
        if (wrote ? reached & TCP_WATCH_UNSENT && now->unsent == was->unsent
                  : now->unsent - was->unsent != !!(reached & TCP_WATCH_UNSENT))
                wrong(k, "bytes that are sent, not told once");
}

/* `wrote`: what is unsent may have become more meanwhile, and less again. */
static void looks(struct talk *k, bool wrote)
{
        struct pair_side *side = &k->p->side[WRITER];
        const struct tcp_conn *tc = conn(k, WRITER);
        struct book b = {.marks = tcp_watch_marks(tc),
                         .lost = tc->lost,
                         .limit = tc->limit,
                         .timeouts = side->st->cnt.n[COUNT_TCP_RTO]};
        bool news;

        tcp_watch_counts(tc, &b.counts);
        if (b.marks != marks_reached(k))
                wrong(k, "a mark that is told and not reached, or the other way round");
        check_counts(k, &b);
        check_marks(k, &b, wrote);
        news = sum(&b.counts) != sum(&k->was.counts) || b.counts.acked != k->was.counts.acked ||
               b.counts.unsent != k->was.counts.unsent;
        if (news && !(side->events & TCP_EV_FLOW))
                wrong(k, "news that were not raised");
        if (!news && side->events & TCP_EV_FLOW)
                wrong(k, "an event without news");
        side->events &= ~(uint32_t)TCP_EV_FLOW;
        k->was = b;
}

static void looks_at_reader(struct talk *k)
{
        const struct tcp_conn *tc = conn(k, READER);
        bool told = tcp_watch_marks(tc) & TCP_WATCH_UNREAD;

        if (told != (tc->rcv_unread >= k->unread_above ||
                     (tc->rcv_unread != 0 && tcp_recv_enough(tc, k->unread_above))))
                wrong(k, "what is unread is told wrong");
}

/* ---- what they do ---- */

static void writes(struct talk *k)
{
        static const uint8_t data[20000];
        uint32_t want = (uint32_t)MIN(1 + below(k, sizeof data), k->total - k->written);
        int n = want != 0 ? pair_write(k->p, WRITER, k->conn[WRITER], data, want) : 0;

        k->written += (uint32_t)MAX(n, 0);
        looks(k, true);
}

static uint32_t reads(struct talk *k, uint32_t most)
{
        static uint8_t data[65536];
        int n = pair_read(k->p, READER, k->conn[READER], data, MIN(most, (uint32_t)sizeof data));

        k->read += (uint32_t)MAX(n, 0);
        return (uint32_t)MAX(n, 0);
}

static void waits(struct talk *k, nstime until)
{
        while (k->p->now < until) {
                if (!pair_step(k->p, until))
                        k->p->now = until;
                looks(k, false);
                looks_at_reader(k);
        }
}

static void moves_marks(struct talk *k)
{
        struct stack *s = &k->p->side[WRITER].s;

        k->marks.acked = below(k, 4) == 0
                                 ? 0
                                 : k->written - MIN(k->written, below(k, 20000)) + below(k, 20000);
        k->marks.unsent_below = below(k, 3) == 0 ? 0 : 1 + below(k, 30000);
        k->marks.rtt = 1 + (nstime)below(k, 60) * NS_PER_MS;
        k->marks.limits = below(k, 1u << TCP_LIMITS);
        k->was.marks = 0; /* what is so already is told at once */
        tcp_watch_set(&s->tcp, conn(k, WRITER), &k->marks);
        stack_flush(s, k->p->now);
        looks(k, true);
}

/* A process that had the writer's lock dies; another one looks at what it left. */
static void dies(struct talk *k)
{
        struct stack *s = &k->p->side[WRITER].s;

        stack_begin(s->st, k->conn[WRITER]);
        stack_recover(s, k->p->now);
        stack_flush(s, k->p->now);
        looks(k, true);
}

static void does_as_it_likes(struct talk *k)
{
        uint32_t what = below(k, 100);

        if (what < 40)
                reads(k, 1 + below(k, 30000));
        else if (what < 70)
                writes(k);
        else if (what < 80)
                moves_marks(k);
        else if (what < 82)
                dies(k);
        looks(k, true);
}

static void goes_to_its_end(struct talk *k)
{
        for (uint32_t turn = 0; k->read < k->total; turn++) {
                if (turn == PATIENCE)
                        wrong(k, "a stall");
                writes(k);
                while (reads(k, 65536) != 0)
                        looks(k, true);
                waits(k, k->p->now + 200 * NS_PER_MS);
        }
}

/* ---- a talk ---- */

static void begins(struct talk *k)
{
        struct tcp_opts o;
        struct tcp_marks unread = {0};

        k->p = pair_random(k->seed, &k->rnd);
        tcp_opts_default(&o);
        o.nodelay = (uint8_t)below(k, 2);
        o.rcvbuf = below(k, 2) == 0 ? 0 : 3000 + below(k, 60000);
        k->total = 20000 + below(k, 400000);
        k->unread_above = unread.unread_above = 1 + below(k, 20000);
        pair_connect_opts(k->p, 80, &o, &k->conn[WRITER], &k->conn[READER]);
        for (int i = 0; i < 2; i++)
                tcp_set_sock(&k->p->side[i].s.tcp, k->conn[i], 1);
        tcp_watch_set(&k->p->side[READER].s.tcp, conn(k, READER), &unread);
        stack_flush(&k->p->side[READER].s, k->p->now);
        k->timeouts = k->was.timeouts = k->p->side[WRITER].st->cnt.n[COUNT_TCP_RTO];
        k->was.limit = conn(k, WRITER)->limit;
        k->was.lost = conn(k, WRITER)->lost;
        moves_marks(k);
}

static void talk(uint64_t seed)
{
        struct talk k = {.seed = seed};
        const struct tcp_watch_counts *c;

        prng_fast_init(&k.rnd, seed);
        begins(&k);
        for (unsigned turn = 0; turn < TURNS; turn++) {
                does_as_it_likes(&k);
                if (below(&k, 2) == 0)
                        waits(&k, k.p->now + 1 + (nstime)below(&k, 40) * NS_PER_MS);
        }
        goes_to_its_end(&k);
        c = &k.was.counts;
        for (int i = 0; i < 6; i++)
                told_of[i] += (const uint32_t[]){c->losses, c->timeouts, c->rtt,
                                                 c->shut,   c->niq,      c->limit}[i] != 0;
        for (int i = 0; i < 2; i++)
                tcp_close(&k.p->side[i].s.tcp, conn(&k, i), k.p->now);
        if (pair_end(k.p) != 0)
                wrong(&k, "something left");
        pair_free(k.p);
}

static struct oracle seeds = {1, 300};

/* And all of it happens. */
static void each_thing_is_told_once(void **state)
{
        (void)state;
        oracle_plays(&seeds, talk);
        for (int i = 0; i < 6 && seeds.count >= 100; i++)
                if (i != 4) /* a queue is full where a link is slow */
                        assert_true(told_of[i] > 0);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {cmocka_unit_test(each_thing_is_told_once)};

        oracle_args(&seeds, argc, argv);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
