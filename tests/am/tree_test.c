/* Collective calls of ranks in virtual time, over a network that loses; and a thousand of them. */
#include <errno.h>

#include "am/am_int.h"
#include "tests/am/job.h"
#include "tests/unit.h"

#ifdef __SANITIZE_ADDRESS__
#define MANY  200u /* a million of peers take four times the memory there */
#define STEPS 8u
#else
#define MANY  1000u
#define STEPS 10u /* log2, rounded up */
#endif

struct world {
        uint32_t entered, ranks, wrong;
};

static void must(struct world *w, bool right)
{
        w->wrong += !right;
}

static void barriers(struct job *j, struct uam *am, void *arg)
{
        struct world *w = arg;

        for (uint32_t n = 1; n <= 100; n++) {
                w->entered++;
                must(w, uam_barrier(am) == 0);
                must(w, w->entered >= n * w->ranks && w->entered <= (n + 1) * w->ranks);
        }
}

static void broadcasts(struct job *j, struct uam *am, void *arg)
{
        struct world *w = arg;
        uint8_t buf[3000], want[3000];

        for (uint32_t root = 0; root < w->ranks; root++)
                for (size_t len = 0; len <= sizeof buf; len = len * 3 + 1) {
                        memset(want, (int)(root + len), len);
                        memset(buf, uam_rank(am) == root ? (int)(root + len) : 0, len);
                        must(w,
                             uam_broadcast(am, root, buf, len) == 0 && memcmp(buf, want, len) == 0);
                }
        must(w, uam_broadcast(am, w->ranks, buf, 1) == -EINVAL);
}

static int64_t value(uint32_t rank)
{
        return (int64_t)(rank * 2654435761u % 1000) - 400;
}

static int64_t combined(enum uam_op op, uint32_t ranks)
{
        int64_t v = value(0);

        for (uint32_t r = 1; r < ranks; r++) {
                int64_t x = value(r);
                switch (op) {
                case UAM_ADD:
                        v += x;
                        break;
                case UAM_MUL:
                        v = (int64_t)((uint64_t)v * (uint64_t)x);
                        break;
                case UAM_MIN:
                        v = MIN(v, x);
                        break;
                case UAM_MAX:
                        v = MAX(v, x);
                        break;
                case UAM_AND:
                        v &= x;
                        break;
                case UAM_OR:
                        v |= x;
                        break;
                default:
                        v ^= x;
                }
        }
        return v;
}

static void reductions(struct job *j, struct uam *am, void *arg)
{
        struct world *w = arg;
        uint32_t me = uam_rank(am);
        int64_t out;
        double f;

        for (enum uam_op op = UAM_ADD; op <= UAM_XOR; op++) {
                must(w,
                     uam_reduce_i64(am, op, value(me), &out) == 0 && out == combined(op, w->ranks));
                must(w, uam_scan_i64(am, op, value(me), &out) == 0 && out == combined(op, me + 1));
        }
        must(w, uam_reduce_f64(am, UAM_ADD, 0.5 * me, &f) == 0 &&
                        f == 0.25 * w->ranks * (w->ranks - 1));
        must(w, uam_reduce_f64(am, UAM_MAX, -(double)me, &f) == 0 && f == 0);
        must(w, uam_scan_f64(am, UAM_ADD, 0.5, &f) == 0 && f == 0.5 * (me + 1));
        must(w, uam_scan_f64(am, UAM_MIN, -(double)me, &f) == 0 && f == -(double)me);
        must(w, uam_reduce_f64(am, UAM_AND, 1, &f) == -EINVAL);
}

static void with_all_numbers_of_ranks(job_main *fn)
{
        for (uint32_t ranks = 1; ranks <= 17; ranks++) {
                struct world w = {.ranks = ranks};
                struct job_opts o = {.net = {.nodes = ranks,
                                             .seed = ranks,
                                             .loss = 0.1,
                                             .twice = 0.05,
                                             .late = 0.05},
                                     .am = {.window = 2, .buffer_bytes = 1500}};

                assert_true(job_run(&o, fn, &w));
                assert_int_equal(w.wrong, 0);
        }
}

static void nobody_leaves_a_barrier_before_all_came(void **state)
{
        with_all_numbers_of_ranks(barriers);
}

static void a_broadcast_reaches_everybody(void **state)
{
        with_all_numbers_of_ranks(broadcasts);
}

static void reductions_and_scans_combine_all_values(void **state)
{
        with_all_numbers_of_ranks(reductions);
}

/* ---- a rank that dies ---- */

static void dies_before_the_barrier(struct job *j, struct uam *am, void *arg)
{
        struct world *w = arg;

        if (uam_rank(am) == 2)
                job_kill(j, 2);
        must(w, uam_barrier(am) == -EPIPE);
}

static void a_barrier_without_a_rank_fails(void **state)
{
        struct world w = {0};
        struct job_opts o = {.net = {.nodes = 4, .seed = 1}, .am.buffer_bytes = 1500};

        assert_true(job_run(&o, dies_before_the_barrier, &w));
        assert_int_equal(w.wrong, 0);
}

/* ---- a thousand ---- */

static struct job_opts many(void)
{
        return (struct job_opts){
                .net = {.nodes = MANY, .seed = 1},
                .am = {.window = 1, .buffer_bytes = 256, .buffers = 2 * MANY, .places = 8 * MANY},
                .tx_bytes = 640 << 10};
}

static void one_barrier(struct job *j, struct uam *am, void *arg)
{
        must(arg, uam_barrier(am) == 0);
}

static void a_barrier_of_a_thousand_takes_ten_steps(void **state)
{
        struct world w = {.ranks = MANY};
        struct job_opts o = many();

        assert_true(job_run(&o, one_barrier, &w));
        assert_int_equal(w.wrong, 0);
        assert_int_equal(job_stat(UAM_STAT_REQUESTS), MANY * STEPS);
        assert_int_equal(job_stat(UAM_STAT_REPEATED), 0);
}

static void on_hello(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                     void *ctx)
{
        struct world *w = ctx;

        must(w, nargs == 1 && arg[0] == uam_token_rank(t));
        w->entered++;
}

static void all_to_all(struct job *j, struct uam *am, void *arg)
{
        struct world *w = arg;
        uint32_t me = uam_rank(am);

        uam_register(am, 0, on_hello, UAM_SHORT | UAM_REQUEST, w);
        must(w, uam_barrier(am) == 0);
        for (uint32_t i = 1; i < w->ranks; i++)
                must(w, uam_request_short(am, (me + i) % w->ranks, 0, 0, (uam_arg[]){me}, 1) == 0);
        must(w, uam_flush(am, UAM_ALL, UNET_FOREVER) == 0);
}

static void a_thousand_talk_to_each_other(void **state)
{
        struct world w = {.ranks = MANY};
        struct job_opts o = many();

        assert_true(job_run(&o, all_to_all, &w));
        assert_int_equal(w.wrong, 0);
        assert_int_equal(w.entered, MANY * (MANY - 1));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(nobody_leaves_a_barrier_before_all_came),
                cmocka_unit_test(a_broadcast_reaches_everybody),
                cmocka_unit_test(reductions_and_scans_combine_all_values),
                cmocka_unit_test(a_barrier_without_a_rank_fails),
                cmocka_unit_test(a_barrier_of_a_thousand_takes_ten_steps),
                cmocka_unit_test(a_thousand_talk_to_each_other),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
