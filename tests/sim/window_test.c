/*
 * What a small window is worth where the wire is slower than its hosts: the fibre of U-Net's paper,
 * whose TCP needed no more than 8 KB there, with the messages of RDMA devices. In virtual time;
 * stacks take none.
 */
#include "tests/sim/pair.h"
#include "tests/unit.h"

#define MEASURED (NS_PER_S / 2)

static const struct sim_params fibre[2] = {
        {.mtu = 4096, .rate = 140000000, .delay = 50 * NS_PER_US, .csum = true, .tx_slots = 256},
        {.mtu = 4096, .rate = 140000000, .delay = 50 * NS_PER_US, .csum = true, .tx_slots = 256},
};

struct flow {
        struct pair *p;
        uint32_t conn[2];
        uint64_t got;
};

static uint8_t data[131072];

static bool write_all(void *arg)
{
        struct flow *f = arg;
        int n, any = 0;

        while ((n = pair_write(f->p, 0, f->conn[0], data, sizeof data)) > 0)
                any = n;
        return any != 0;
}

static bool read_all(void *arg)
{
        struct flow *f = arg;
        uint64_t before = f->got;
        int n;

        while ((n = pair_read(f->p, 1, f->conn[1], data, sizeof data)) > 0)
                f->got += (uint64_t)n;
        return f->got != before;
}

static void turns(struct flow *f)
{
        pair_turns(f->p, write_all, read_all, f);
}

static void runs_until(struct flow *f, nstime end)
{
        for (;;) {
                nstime next = sim_next(f->p->sim);

                for (int i = 0; i < 2; i++)
                        next = nstime_min(next, stack_deadline(&f->p->side[i].s));
                if (next > end)
                        return;
                f->p->now = MAX(next, f->p->now + 1);
                sim_advance(f->p->sim, f->p->now);
                turns(f);
        }
}

/* Mb/s with a window of so many bytes, as iperf3 -w sets it; 0: its own. */
static unsigned rate_with(uint32_t window)
{
        struct flow f = {.p = pair_sim(1, fibre)};
        struct tcp_opts o;
        uint64_t before;
        nstime start;

        tcp_opts_default(&o);
        o.rcvbuf = window;
        o.sndbuf = 2 * window;
        pair_connect_opts(f.p, 80, &o, &f.conn[0], &f.conn[1]);
        turns(&f);
        runs_until(&f, f.p->now + MEASURED); /* slow start is over */
        before = f.got;
        start = f.p->now;
        runs_until(&f, start + MEASURED);
        pair_free(f.p);
        print_message("window %u: %llu Mb/s\n", window,
                      (unsigned long long)((f.got - before) * 8000 / (uint64_t)MEASURED));
        return (unsigned)((f.got - before) * 8000 / (uint64_t)MEASURED);
}

/* Of the wire a tenth is headers, at most; of that, eight kilobytes carry nine tenths. */
static void eight_kilobytes_are_enough(void **state)
{
        unsigned best = rate_with(0);

        (void)state;
        assert_in_range(best, 126, 140);
        assert_in_range(rate_with(8192) * 10, 9 * best, 10 * best);
        for (uint32_t kb = 16; kb <= 64; kb *= 2)
                assert_in_range(rate_with(kb << 10) * 10, 9 * best, 10 * best + 10);
}

/* A reader that takes what comes has a window for all that is under way, here 2.5 MB: both stacks
 * find their rings empty again. */
static void a_long_way_has_a_large_window(void **state)
{
        static const struct sim_params way[2] = {
                {.mtu = 1500, .rate = 500000000, .delay = 20 * NS_PER_MS, .csum = true},
                {.mtu = 1500, .rate = 500000000, .delay = 20 * NS_PER_MS, .csum = true},
        };
        struct flow f = {.p = pair_sim(1, way)};

        (void)state;
        pair_connect(f.p, 80, &f.conn[0], &f.conn[1]);
        turns(&f);
        runs_until(&f, f.p->now + 2 * NS_PER_S);
        assert_in_range(pair_conn(f.p, 1, f.conn[1])->rcv_limit, 2500000, 8 << 20);
        pair_free(f.p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(eight_kilobytes_are_enough),
                cmocka_unit_test(a_long_way_has_a_large_window),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
