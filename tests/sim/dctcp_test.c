/*
 * DCTCP (RFC 8257) over a wire that marks from a shallow queue on, in virtual time: flows share it,
 * the queue stays where the marks begin, and nothing is lost.
 */
#include "tests/sim/pair.h"
#include "tests/unit.h"
#include "tcp/tcp_cc.h"

#define FLOWS 8
/* K, bytes: above a seventh of the path's 62,500 (RFC 8257 §4.1's reference). */
#define MARK     (30 * 1500ull)
#define SETTLED  NS_PER_S
#define MEASURED (4 * NS_PER_S)

static const struct sim_params wire[2] = {
        {.mtu = 1500,
         .rate = 1000000000,
         .delay = 250 * NS_PER_US,
         .csum = true,
         .queue_bytes = 1 << 20,
         .mark_bytes = MARK,
         .rto_min = 10 * NS_PER_MS},
        {.mtu = 1500,
         .rate = 1000000000,
         .delay = 250 * NS_PER_US,
         .csum = true,
         .queue_bytes = 1 << 20,
         .mark_bytes = MARK,
         .rto_min = 10 * NS_PER_MS},
};

struct flows {
        struct pair *p;
        uint32_t conn[FLOWS][2];
        uint64_t got[FLOWS];
        unsigned __int128 queue_time; /* bytes times nanoseconds */
        uint64_t most;
};

static uint8_t data[131072];

static bool write_all(void *arg)
{
        struct flows *f = arg;
        bool any = false;

        for (int i = 0; i < FLOWS; i++)
                while (pair_write(f->p, 0, f->conn[i][0], data, sizeof data) > 0)
                        any = true;
        return any;
}

static bool read_all(void *arg)
{
        struct flows *f = arg;
        bool any = false;
        int n;

        for (int i = 0; i < FLOWS; i++)
                while ((n = pair_read(f->p, 1, f->conn[i][1], data, sizeof data)) > 0) {
                        f->got[i] += (uint64_t)n;
                        any = true;
                }
        return any;
}

static void turns(struct flows *f)
{
        pair_turns(f->p, write_all, read_all, f);
}

static void run_until(struct flows *f, nstime end)
{
        while (f->p->now < end) {
                nstime next = sim_next(f->p->sim);
                uint64_t queued = sim_queued(f->p->sim, 0);

                for (int i = 0; i < 2; i++)
                        next = nstime_min(next, stack_deadline(&f->p->side[i].s));
                next = MIN(MAX(next, f->p->now + 1), end);
                f->queue_time += (unsigned __int128)queued * (uint64_t)(next - f->p->now);
                f->most = MAX(f->most, queued);
                f->p->now = next;
                sim_advance(f->p->sim, f->p->now);
                turns(f);
        }
}

struct outcome {
        double jain, queue;  /* Jain's index; the mean of what waits, in thresholds */
        uint64_t most, rate; /* bytes; bits a second of all flows */
        uint64_t marked, retrans;
};

static struct outcome run(int cc)
{
        struct flows f = {.p = pair_sim(1, wire)};
        struct outcome o = {0};
        double sum = 0, squares = 0;
        struct tcp_opts opts;

        tcp_opts_default(&opts);
        opts.cc = (uint8_t)cc;
        for (int i = 0; i < FLOWS; i++)
                pair_connect_opts(f.p, (uint16_t)(80 + i), &opts, &f.conn[i][0], &f.conn[i][1]);
        turns(&f);
        run_until(&f, f.p->now + SETTLED);
        memset(f.got, 0, sizeof f.got);
        f.queue_time = f.most = 0;
        run_until(&f, f.p->now + MEASURED);
        for (int i = 0; i < FLOWS; i++) {
                sum += (double)f.got[i];
                squares += (double)f.got[i] * (double)f.got[i];
                o.retrans += pair_conn(f.p, 0, f.conn[i][0])->retrans;
        }
        o.jain = sum * sum / (FLOWS * squares);
        o.queue = (double)f.queue_time / MEASURED / MARK;
        o.most = f.most;
        o.rate = (uint64_t)(sum * 8 * NS_PER_S / MEASURED);
        o.marked = f.p->side[1].s.st->cnt.n[COUNT_TCP_ECN_MARKED];
        print_message("%s: fairness %.3f, mean queue %.2f K, most %llu bytes, %llu Mb/s, %llu "
                      "marked, %llu sent again\n",
                      tcp_cc_name(cc), o.jain, o.queue, (unsigned long long)o.most,
                      (unsigned long long)o.rate / 1000000, (unsigned long long)o.marked,
                      (unsigned long long)o.retrans);
        pair_free(f.p);
        return o;
}

static void eight_flows_share_a_queue_that_stays_short(void **state)
{
        struct outcome o = run(TCP_CC_DCTCP);

        (void)state;
        assert_true(o.jain > 0.95);
        assert_true(o.queue < 1.2);
        assert_true(o.rate > 900000000);
        assert_true(o.marked > 0);
        assert_int_equal(o.retrans, 0);
}

/* What it is for: by halves the same wire is left idle, or its queue is filled. */
static void others_fill_the_queue(void **state)
{
        (void)state;
        assert_true(run(TCP_CC_RENO).marked == 0); /* asks for no ECN */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(eight_flows_share_a_queue_that_stays_short),
                cmocka_unit_test(others_fill_the_queue),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
