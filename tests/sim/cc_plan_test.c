/*
 * Congestion control of an application's own (tcp/tcp_plan.c), in virtual time: Reno written as a
 * plan beside the built-in one, an application that stops or dies, and plans that are nonsense, of
 * which no bound of RFC 5681's gives way.
 *
 *      sim_cc_plan_test [FIRST COUNT]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/prng.h"
#include "tcp/tcp_cc.h"
#include "tcp/tcp_plan.h"
#include "tcp/tcp_watch.h"
#include "tests/sim/bed.h"
#include "tests/sim/oracle.h"
#include "tests/unit.h"

#define GOOD_FOR (500 * NS_PER_MS)

static uint8_t data[65536];

/* ---- Reno, as an application would write it ---- */

static uint32_t reno(const struct tcp_plan_report *r, bool *repaired)
{
        bool repairs = r->cuts != 0 || r->repairs;

        if (repairs || *repaired) {
                *repaired = repairs;
                return r->ssthresh;
        }
        if (r->cwnd < r->ssthresh)
                return MIN(2 * r->cwnd, r->ssthresh);
        return r->cwnd + r->mss;
}

static void plans(struct bed *b, struct flow *f)
{
        struct tcp_watch_counts counts;
        struct tcp_plan_report r;
        struct tcp_plan plan = {.good_for = GOOD_FOR};

        tcp_watch_counts(bed_sender(b, f), &counts);
        if (counts.reports == f->seen && bed_sender(b, f)->cc == TCP_CC_PLAN)
                return;
        f->seen = counts.reports;
        assert_int_equal(tcp_plan_take(bed_sender(b, f), &r, b->p->now), 0);
        plan.serial = r.serial;
        plan.cwnd = reno(&r, &f->repaired);
        assert_int_equal(tcp_plan_set(&b->p->side[0].s.tcp, bed_sender(b, f), &plan, b->p->now), 0);
        stack_flush(&b->p->side[0].s, b->p->now);
}

static void assert_within(unsigned a, unsigned b, unsigned percent)
{
        assert_true(a * 100ull >= b * (100ull - percent) && b * 100ull >= a * (100ull - percent));
}

/* ---- beside the built-in one ---- */

struct path {
        uint64_t mbps;
        nstime rtt;
        uint64_t queue;
        double loss;
        uint64_t seeds; /* of which the mean is taken */
};

static const struct path paths[] = {
        {20, 40 * NS_PER_MS, 100000, 0, 1},      /* the queue's losses */
        {20, 40 * NS_PER_MS, 30000, 0, 1},       /* ... of a short one */
        {50, 20 * NS_PER_MS, 200000, 0.0005, 4}, /* the link's */
        {10, 100 * NS_PER_MS, 60000, 0.002, 12},
};

static unsigned alone(const struct path *at, uint64_t seed, bool planned)
{
        struct bed b = bed(seed, at->mbps, at->rtt, at->queue, at->loss);
        unsigned kbps[FLOWS_MOST];

        bed_opens(&b, "reno")->wrote = planned ? plans : NULL;
        bed_measures(&b, 60 * NS_PER_S, kbps);
        pair_free(b.p);
        return kbps[0];
}

static void reno_as_a_plan_is_as_fast_as_reno(void **state)
{
        (void)state;
        for (unsigned i = 0; i < ARRAY_LEN(paths); i++) {
                unsigned sum[2] = {0};

                for (uint64_t seed = 1; seed <= paths[i].seeds; seed++)
                        for (int planned = 0; planned < 2; planned++)
                                sum[planned] += alone(&paths[i], seed, planned);
                print_message("path %u: built-in %llu, as a plan %llu kb/s\n", i,
                              (unsigned long long)(sum[0] / paths[i].seeds),
                              (unsigned long long)(sum[1] / paths[i].seeds));
                assert_within(sum[0], sum[1], 5);
        }
}

static void a_plan_shares_a_queue_with_reno(void **state)
{
        struct bed b = bed(1, 20, 40 * NS_PER_MS, 100000, 0);
        unsigned kbps[FLOWS_MOST];

        (void)state;
        bed_opens(&b, "reno");
        bed_opens(&b, "reno")->wrote = plans;
        bed_measures(&b, 120 * NS_PER_S, kbps);
        assert_true(kbps[0] > 6000 && kbps[1] > 6000);
        pair_free(b.p);
}

/* ---- stopped, dead, back ---- */

/* The process is stopped in the middle. What takes over begins with the window that there is. */
static void an_application_that_stops_leaves_it_to_the_algorithm(void **state)
{
        struct bed b = bed(1, 20, 40 * NS_PER_MS, 100000, 0);
        struct flow *f = bed_opens(&b, "reno");
        unsigned planned[FLOWS_MOST], stopped[FLOWS_MOST], back[FLOWS_MOST];

        (void)state;
        f->wrote = plans;
        bed_measures(&b, 30 * NS_PER_S, planned);
        assert_int_equal(bed_sender(&b, f)->cc, TCP_CC_PLAN);
        f->wrote = NULL;
        bed_runs(&b, GOOD_FOR + NS_PER_S);
        assert_int_equal(bed_sender(&b, f)->cc, TCP_CC_RENO);
        bed_measures(&b, 30 * NS_PER_S, stopped);
        assert_within(planned[0], stopped[0], 5);
        f->wrote = plans;
        bed_measures(&b, 30 * NS_PER_S, back);
        assert_int_equal(bed_sender(&b, f)->cc, TCP_CC_PLAN);
        assert_within(stopped[0], back[0], 5);
        pair_free(b.p);
}

/* A process that had the sender's lock dies. */
static void a_death_leaves_it_to_the_algorithm(void **state)
{
        struct bed b = bed(1, 20, 40 * NS_PER_MS, 100000, 0);
        struct flow *f = bed_opens(&b, "cubic");
        struct stack *s = &b.p->side[0].s;
        unsigned kbps[FLOWS_MOST];

        (void)state;
        f->wrote = plans;
        bed_runs(&b, 10 * NS_PER_S);
        f->wrote = NULL;
        stack_begin(s->st, f->conn[0]);
        stack_recover(s, b.p->now);
        stack_flush(s, b.p->now);
        assert_int_equal(bed_sender(&b, f)->cc, TCP_CC_CUBIC);
        bed_measures(&b, 10 * NS_PER_S, kbps);
        assert_true(kbps[0] > 16000);
        f->wrote = plans;
        bed_measures(&b, 10 * NS_PER_S, kbps);
        assert_int_equal(bed_sender(&b, f)->cc, TCP_CC_PLAN);
        assert_true(kbps[0] > 16000);
        pair_free(b.p);
}

/* ---- what an application is told, and what it may not do ---- */

static void a_plan_of_an_old_report_is_refused(void **state)
{
        struct bed b = bed(1, 20, 40 * NS_PER_MS, 100000, 0);
        struct flow *f = bed_opens(&b, "reno");
        struct tcp *t = &b.p->side[0].s.tcp;
        struct tcp_plan plan = {.cwnd = 1 << 30, .good_for = 60 * NS_PER_S};
        struct tcp_plan_report r;

        (void)state;
        assert_int_equal(tcp_plan_take(bed_sender(&b, f), &r, b.p->now), 0);
        assert_int_equal(r.serial, 0);
        assert_int_equal(tcp_plan_set(t, bed_sender(&b, f), &plan, b.p->now), 0);
        assert_int_equal(tcp_plan_set(t, bed_sender(&b, f), &plan, b.p->now), -EAGAIN);
        assert_int_equal(tcp_plan_take(bed_sender(&b, f), &r, b.p->now), 0);
        plan.serial = r.serial;
        assert_int_equal(tcp_plan_set(t, bed_sender(&b, f), &plan, b.p->now), 0);
        while (bed_sender(&b, f)->retrans == 0)
                bed_runs(&b, 10 * NS_PER_MS);
        assert_int_equal(tcp_plan_set(t, bed_sender(&b, f), &plan, b.p->now), -EAGAIN);
        assert_int_equal(tcp_plan_take(bed_sender(&b, f), &r, b.p->now), 0);
        assert_true(r.cuts == 1 && r.lost > 0 && r.acked > 0 && r.rtts > 0 &&
                    r.rtt_least >= 40 * NS_PER_MS && r.rtt_mean >= r.rtt_least);
        assert_true(r.delivery_rate > 1000000 && r.delivery_rate < 3000000);
        plan.serial = r.serial;
        assert_int_equal(tcp_plan_set(t, bed_sender(&b, f), &plan, b.p->now), 0);
        assert_int_equal(tcp_plan_set(t, bed_sender(&b, f), NULL, b.p->now), 0);
        assert_int_equal(bed_sender(&b, f)->cc, TCP_CC_RENO);
        assert_int_equal(tcp_plan_set(t, bed_sender(&b, f), &plan, b.p->now), -EAGAIN);
        pair_free(b.p);
}

/* An option that is set meanwhile is about who takes over. */
static void an_option_does_not_end_a_plan(void **state)
{
        struct bed b = bed(1, 20, 40 * NS_PER_MS, 100000, 0);
        struct flow *f = bed_opens(&b, "reno");
        struct tcp_opts o;

        (void)state;
        f->wrote = plans;
        bed_runs(&b, NS_PER_S);
        tcp_get_opts(bed_sender(&b, f), &o);
        o.cc = TCP_CC_BBR;
        o.nodelay = 1;
        tcp_set_opts(&b.p->side[0].s.tcp, bed_sender(&b, f), &o, b.p->now);
        assert_int_equal(bed_sender(&b, f)->cc, TCP_CC_PLAN);
        f->wrote = NULL;
        bed_runs(&b, GOOD_FOR + NS_PER_S);
        assert_int_equal(bed_sender(&b, f)->cc, TCP_CC_BBR);
        assert_true(bed_sender(&b, f)->flags & TCF_RATES);
        assert_int_equal(tcp_cc_lookup("plan"), -ENOENT);
        pair_free(b.p);
}

/* A rate so low that nothing would leave for an hour: the plan is found to be old all the same. */
static void a_rate_of_a_byte_an_hour_ends_with_its_plan(void **state)
{
        struct bed b = bed(1, 20, 40 * NS_PER_MS, 100000, 0);
        struct flow *f = bed_opens(&b, "reno");
        struct tcp_plan plan = {.cwnd = 1 << 20, .rate = 1, .good_for = 2 * NS_PER_S};
        unsigned kbps[FLOWS_MOST];

        (void)state;
        bed_runs(&b, NS_PER_S);
        assert_int_equal(tcp_plan_set(&b.p->side[0].s.tcp, bed_sender(&b, f), &plan, b.p->now), 0);
        stack_flush(&b.p->side[0].s, b.p->now);
        bed_measures(&b, 2 * NS_PER_S, kbps);
        assert_true(kbps[0] < 2000);
        bed_runs(&b, 5 * NS_PER_S);
        assert_int_equal(bed_sender(&b, f)->cc, TCP_CC_RENO);
        bed_measures(&b, 10 * NS_PER_S, kbps);
        assert_true(kbps[0] > 16000);
        pair_free(b.p);
}

static void a_plan_paces(void **state)
{
        struct bed b = bed(1, 20, 40 * NS_PER_MS, 100000, 0);
        struct flow *f = bed_opens(&b, "reno");
        struct tcp_plan plan = {.cwnd = 1 << 20, .rate = 1000000, .good_for = 60 * NS_PER_S};
        unsigned kbps[FLOWS_MOST];

        (void)state;
        assert_int_equal(tcp_plan_set(&b.p->side[0].s.tcp, bed_sender(&b, f), &plan, b.p->now), 0);
        bed_measures(&b, 10 * NS_PER_S, kbps);
        assert_within(kbps[0], 8000, 3);
        pair_free(b.p);
}

/* ---- plans that are nonsense ---- */

struct seen {
        uint32_t cwnd, flight, ssthresh;
        uint8_t ca_state, cc;
        uint64_t delivered, sent, timeouts, undone;
};

struct talk {
        struct pair *p;
        struct prng_fast rnd;
        uint64_t seed, total, written, read;
        uint32_t conn[2];
        struct seen was;
};

static unsigned reductions, timeouts, late;

static uint32_t below(struct talk *k, uint32_t n)
{
        return prng_fast_below(&k->rnd, n);
}

static struct tcp_conn *writer(struct talk *k)
{
        return pair_conn(k->p, 0, k->conn[0]);
}

static struct seen sees(struct talk *k)
{
        const struct tcp_conn *tc = writer(k);

        return (struct seen){tc->cwnd,
                             flight(tc),
                             tc->ssthresh,
                             tc->ca_state,
                             tc->cc,
                             tc->bytes_acked + tc->sacked,
                             tc->bytes_sent,
                             k->p->side[0].st->cnt.n[COUNT_TCP_RTO],
                             k->p->side[0].st->cnt.n[COUNT_TCP_UNDO]};
}

static _Noreturn void wrong(struct talk *k, const char *what)
{
        struct seen s = sees(k);

        fprintf(stderr,
                "seed %llu at %lld: %s; cwnd %u (%u), flight %u (%u), ssthresh %u, ca %u (%u), cc "
                "%u (%u)\n",
                (unsigned long long)k->seed, (long long)k->p->now, what, s.cwnd, k->was.cwnd,
                s.flight, k->was.flight, s.ssthresh, s.ca_state, k->was.ca_state, s.cc, k->was.cc);
        abort();
}

static void checks(struct talk *k, struct seen s, struct seen was)
{
        const struct tcp_conn *tc = writer(k);
        uint64_t delivered = s.delivered > was.delivered ? s.delivered - was.delivered : 0;

        late += was.cc == TCP_CC_PLAN && s.cc != TCP_CC_PLAN;
        if (was.cc != TCP_CC_PLAN || s.cc != TCP_CC_PLAN || s.undone != was.undone)
                return;
        if (s.timeouts != was.timeouts) {
                timeouts++;
                if (!tc->link.lossless && s.cwnd > tc->snd_mss + delivered)
                        wrong(k, "a timeout that left more than a segment");
                if (tc->link.lossless && s.cwnd > was.cwnd + delivered)
                        wrong(k, "a timeout where nothing is lost, and a window that grew");
        }
        if (s.ca_state >= CA_RECOVERY && was.ca_state < CA_RECOVERY) {
                reductions++;
                if (s.ssthresh > MAX((was.flight + (s.sent - was.sent)) / 2, 2 * tc->snd_mss))
                        wrong(k, "a loss after which ssthresh is more than RFC 5681 lets it be");
        }
        if (s.ca_state == was.ca_state && s.ca_state != CA_RECOVERY &&
            s.cwnd > was.cwnd + delivered)
                wrong(k, "a window that grew by more than was acknowledged");
        if (s.ca_state < CA_RECOVERY && s.ca_state == was.ca_state && s.cwnd < was.cwnd &&
            s.cwnd < 2 * tc->snd_mss)
                wrong(k, "a window that became smaller than two segments");
}

static void looks(struct talk *k)
{
        struct seen s = sees(k);

        checks(k, s, k->was);
        k->was = s;
}

static void plans_nonsense(struct talk *k)
{
        struct stack *s = &k->p->side[0].s;
        struct tcp_plan_report r;
        struct tcp_plan plan = {.good_for = 1 + (nstime)below(k, 500) * NS_PER_MS};

        if (tcp_plan_take(writer(k), &r, k->p->now) != 0)
                wrong(k, "no report");
        plan.serial = r.serial;
        plan.cwnd = below(k, 2) == 0 ? below(k, 100000) : below(k, INT32_MAX);
        plan.rate = below(k, 2) == 0 ? 0 : below(k, 2) == 0 ? below(k, 10000) : below(k, 10000000);
        plan.every = (nstime)below(k, 3) * NS_PER_MS;
        if (tcp_plan_set(&s->tcp, writer(k), below(k, 20) == 0 ? NULL : &plan, k->p->now) != 0)
                wrong(k, "a plan that was refused");
        k->was = sees(k); /* smaller at once; who decides is another one */
        stack_flush(s, k->p->now);
        looks(k);
}

static void dies(struct talk *k)
{
        struct stack *s = &k->p->side[0].s;

        stack_begin(s->st, k->conn[0]);
        stack_recover(s, k->p->now);
        stack_flush(s, k->p->now);
        if (writer(k)->cc == TCP_CC_PLAN)
                wrong(k, "a plan that was there when its process died");
        k->was = sees(k);
}

static void writes(struct talk *k)
{
        uint32_t want = (uint32_t)MIN(1 + below(k, sizeof data), k->total - k->written);
        int n = want != 0 ? pair_write(k->p, 0, k->conn[0], data, want) : 0;

        k->written += (uint32_t)MAX(n, 0);
        looks(k);
}

static void reads(struct talk *k)
{
        int n;

        while ((n = pair_read(k->p, 1, k->conn[1], data, sizeof data)) > 0)
                k->read += (uint32_t)n;
        looks(k);
}

static void waits(struct talk *k, nstime until)
{
        while (k->p->now < until) {
                if (!pair_step(k->p, until))
                        k->p->now = until;
                looks(k);
                reads(k);
        }
}

static void does_as_it_likes(struct talk *k)
{
        uint32_t what = below(k, 100);

        if (what < 50)
                writes(k);
        else if (what < 90)
                plans_nonsense(k);
        else if (what < 92)
                dies(k);
}

static void goes_to_its_end(struct talk *k)
{
        for (uint32_t turn = 0; k->read < k->total; turn++) {
                if (turn == 100000)
                        wrong(k, "a stall");
                writes(k);
                waits(k, k->p->now + 200 * NS_PER_MS);
        }
}

static void talk(uint64_t seed)
{
        struct talk k = {.seed = seed};
        struct sim_params dir = {.mtu = 1500, .csum = true}, both[2];
        struct tcp_opts o;

        prng_fast_init(&k.rnd, seed);
        dir.delay = (nstime)below(&k, 20) * NS_PER_MS;
        dir.loss = below(&k, 40) / 1000.0;
        dir.reorder = below(&k, 30) / 1000.0;
        dir.reorder_by = 5 * NS_PER_MS;
        both[0] = both[1] = dir;
        k.p = below(&k, 5) == 0 ? pair_shm(seed) : pair_sim(seed, both);
        tcp_opts_default(&o);
        o.cc = (uint8_t)below(&k, TCP_CC_COUNT);
        k.total = 100000 + below(&k, 1000000);
        pair_connect_opts(k.p, 80, &o, &k.conn[0], &k.conn[1]);
        k.was = sees(&k);
        for (unsigned turn = 0; turn < 300; turn++) {
                does_as_it_likes(&k);
                waits(&k, k.p->now + 1 + (nstime)below(&k, 40) * NS_PER_MS);
        }
        goes_to_its_end(&k);
        for (int i = 0; i < 2; i++)
                tcp_close(&k.p->side[i].s.tcp, pair_conn(k.p, i, k.conn[i]), k.p->now);
        if (pair_end(k.p) != 0)
                wrong(&k, "something left");
        pair_free(k.p);
}

/* A plan made the window smaller, and what was in flight before was lost: with these seeds half of
 * that was more than the window, which grew to it. */
static void a_loss_does_not_raise_a_plans_window(void **state)
{
        (void)state;
        talk(4690);
        talk(6994);
}

static struct oracle seeds = {1, 100};

static void no_plan_goes_beyond_rfc_5681(void **state)
{
        (void)state;
        oracle_plays(&seeds, talk);
        print_message("%u reductions, %u timeouts, %u plans that grew old\n", reductions, timeouts,
                      late);
        if (seeds.count >= 100)
                assert_true(reductions > 0 && timeouts > 0 && late > 0);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(reno_as_a_plan_is_as_fast_as_reno),
                cmocka_unit_test(a_plan_shares_a_queue_with_reno),
                cmocka_unit_test(an_application_that_stops_leaves_it_to_the_algorithm),
                cmocka_unit_test(a_death_leaves_it_to_the_algorithm),
                cmocka_unit_test(a_plan_of_an_old_report_is_refused),
                cmocka_unit_test(an_option_does_not_end_a_plan),
                cmocka_unit_test(a_rate_of_a_byte_an_hour_ends_with_its_plan),
                cmocka_unit_test(a_plan_paces),
                cmocka_unit_test(a_loss_does_not_raise_a_plans_window),
                cmocka_unit_test(no_plan_goes_beyond_rfc_5681),
        };

        oracle_args(&seeds, argc, argv);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
