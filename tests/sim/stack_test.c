/* Two whole stacks: a connection carries every byte, both ways, and closes; over shared memory and over a bad link. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/sim/pair.h"

/* Byte i of a direction's stream: cheap, and different at every distance that a bug is likely to shift by. */
static uint8_t stream_byte(int side, size_t i)
{
        return (uint8_t)(i * 167 + i / 251 + (i >> 16) * 13 + (size_t)side * 91);
}

struct flow {
        size_t sent, got, total;
        bool eof, shut;
};

static void push(struct pair *p, int side, uint32_t conn, struct flow *f, struct prng_fast *rnd)
{
        static uint8_t data[200000];
        size_t n = 1 + prng_fast_below(rnd, prng_fast_chance(rnd, 1, 2) ? 300 : sizeof data - 1);
        int r;

        n = MIN(n, f->total - f->sent);

        if (f->sent == f->total) {
                if (!f->shut) {
                        tcp_shutdown_send(&p->side[side].s.tcp, pair_conn(p, side, conn), p->now);
                        stack_flush(&p->side[side].s, p->now);
                        f->shut = true;
                }
                return;
        }
        for (size_t i = 0; i < n; i++)
                data[i] = stream_byte(side, f->sent + i);
        r = pair_write(p, side, conn, data, n);
        assert_true(r >= 0);
        f->sent += (size_t)r;
}

static void pull(struct pair *p, int side, uint32_t conn, struct flow *f, struct prng_fast *rnd)
{
        static uint8_t data[200000];
        int r = pair_read(p, side, conn, data, 1 + prng_fast_below(rnd, sizeof data - 1));

        if (r == -EAGAIN)
                return;
        assert_true(r >= 0);
        if (r == 0)
                f->eof = true;
        for (int i = 0; i < r; i++)
                if (data[i] != stream_byte(!side, f->got + (size_t)i))
                        fail_msg("byte %zu differs", f->got + (size_t)i);
        f->got += (size_t)r;
}

/* Both ways at once, random sizes, then both close. */
static void transfer(struct pair *p, uint64_t seed, size_t total)
{
        struct flow f[2] = {{.total = total}, {.total = total / 2}};
        struct prng_fast rnd;
        nstime start;
        uint32_t conn[2];

        prng_fast_init(&rnd, seed);
        pair_connect(p, 80, &conn[0], &conn[1]);
        start = p->now;
        while (!f[0].eof || !f[1].eof) {
                for (int i = 0; i < 2; i++) {
                        push(p, i, conn[i], &f[i], &rnd);
                        if (!f[i].eof)
                                pull(p, i, conn[i], &f[i], &rnd);
                }
                pair_settle(p);
                if (p->sim != NULL || prng_fast_chance(&rnd, 1, 8))
                        pair_step(p, p->now + 3 * NS_PER_S);
                if (p->now - start > 3600 * NS_PER_S)
                        fail_msg("seed %llu: stalled at %zu/%zu and %zu/%zu", (unsigned long long)seed, f[1].got,
                                 f[0].total, f[0].got, f[1].total);
        }
        assert_int_equal(f[1].got, f[0].total);
        assert_int_equal(f[0].got, f[1].total);
        for (int i = 0; i < 2; i++) {
                tcp_set_sock(&p->side[i].s.tcp, conn[i], 0);
                tcp_close(&p->side[i].s.tcp, pair_conn(p, i, conn[i]), p->now);
                stack_flush(&p->side[i].s, p->now);
        }
        while (pair_step(p, p->now + 300 * NS_PER_S))
                ;
        for (int i = 0; i < 2; i++) {
                struct stack *s = &p->side[i].s;
                assert_int_equal(s->tcp.sh->conns.used, 0);
                assert_int_equal(s->tcp.sh->txsegs.used, 0);
                assert_int_equal(s->tcp.sh->rxsegs.used, 0);
                for (int c = 0; c < FRAME_CLASSES; c++) {
                        assert_int_equal(s->frames->region[FRAME_REGION_PRIVATE].pool->used[c], 0);
                        assert_int_equal(s->frames->region[FRAME_REGION_TX(0)].pool->used[c], 0);
                }
        }
}

static void bytes_arrive_over_shared_memory(void **state)
{
        for (uint64_t seed = 1; seed <= 20; seed++) {
                struct pair *p = pair_shm(seed);
                print_message("shm seed %llu\n", (unsigned long long)seed);
                transfer(p, seed, 3000000);
                pair_free(p);
        }
}

/* What a seed makes of the link: every impairment at times, alone and together. */
static struct sim_params link_of(uint64_t seed)
{
        struct prng_fast r;
        struct sim_params q = {.mtu = 1500, .csum = true};

        prng_fast_init(&r, seed ^ 0x6c696e6b);
        q.mtu = prng_fast_chance(&r, 1, 4) ? 576 : prng_fast_chance(&r, 1, 3) ? 9000 : 1500;
        q.delay = prng_fast_below(&r, 50) * NS_PER_MS;
        q.jitter = prng_fast_chance(&r, 1, 3) ? prng_fast_below(&r, 10) * NS_PER_MS : 0;
        q.rate = prng_fast_chance(&r, 1, 2) ? 1000000ull * (1 + prng_fast_below(&r, 1000)) : 0;
        q.queue_bytes = q.rate != 0 && prng_fast_chance(&r, 1, 2) ? 10000 + prng_fast_below(&r, 200000) : 0;
        q.tx_slots = prng_fast_chance(&r, 1, 4) ? 4 + prng_fast_below(&r, 60) : 0;
        q.loss = prng_fast_chance(&r, 1, 2) ? prng_fast_below(&r, 50) / 1000.0 : 0;
        if (prng_fast_chance(&r, 1, 4)) {
                q.burst_start = 0.005;
                q.burst_end = 0.2;
        }
        q.duplicate = prng_fast_chance(&r, 1, 4) ? 0.02 : 0;
        q.reorder = prng_fast_chance(&r, 1, 4) ? 0.05 : 0;
        q.reorder_by = prng_fast_below(&r, 20) * NS_PER_MS;
        q.corrupt = prng_fast_chance(&r, 1, 4) ? 0.01 : 0;
        return q;
}

static void bytes_arrive_over_a_bad_link(void **state)
{
        uint64_t seeds = getenv("UNET_SEEDS") ? strtoull(getenv("UNET_SEEDS"), NULL, 0) : 200;
        uint64_t first = getenv("UNET_SEED") ? strtoull(getenv("UNET_SEED"), NULL, 0) : 1;

        for (uint64_t seed = first; seed < first + seeds; seed++) {
                struct sim_params dir[2] = {link_of(seed * 2), link_of(seed * 2 + 1)};
                struct pair *p;
                if (getenv("UNET_VERBOSE"))
                        fprintf(stderr, "sim seed %llu\n", (unsigned long long)seed);
                p = pair_sim(seed, dir);
                transfer(p, seed, 200000);
                pair_free(p);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(bytes_arrive_over_shared_memory),
                cmocka_unit_test(bytes_arrive_over_a_bad_link),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
