/* The timer wheel: scenarios, then a long random run beside a plain list of deadlines. */
#include <stdlib.h>

#include "base/prng.h"
#include "base/wheel.h"
#include "tests/unit.h"

#define TIMERS 1000u
#define T0     (123456789 * NS_PER_MS)

struct timer {
        uint32_t pool_link;
        uint32_t value;
        struct wheel_link link;
};
#define OFF offsetof(struct timer, link)

struct fixture {
        struct wheel wheel;
        struct pool pool;
        struct timer rec[TIMERS + 1];
        nstime now;
};

static int setup(void **state)
{
        struct fixture *f = calloc(1, sizeof *f);

        pool_init(&f->pool, f->rec, sizeof(struct timer), TIMERS + 1);
        for (uint32_t i = 1; i <= TIMERS; i++)
                assert_int_equal(pool_alloc(&f->pool), i);
        f->now = T0;
        wheel_reset(&f->wheel, f->now);
        *state = f;
        return 0;
}

static int teardown(void **state)
{
        free(*state);
        return 0;
}

static void set(struct fixture *f, uint32_t i, nstime at)
{
        wheel_set(&f->wheel, &f->pool, OFF, i, at);
        wheel_check(&f->wheel, &f->pool, OFF);
}

static uint32_t pop(struct fixture *f)
{
        uint32_t i = wheel_pop(&f->wheel, &f->pool, OFF, f->now);

        wheel_check(&f->wheel, &f->pool, OFF);
        return i;
}

/* Time goes on to `at`; what fires on the way is counted and looked at no later than
 * wheel_next() asks. */
static uint32_t fired_until(struct fixture *f, nstime at)
{
        uint32_t n = 0;

        for (nstime next = wheel_next(&f->wheel); next <= at; next = wheel_next(&f->wheel)) {
                f->now = MAX(f->now, next);
                for (uint32_t i; (i = pop(f)) != 0; n++)
                        assert_true(f->rec[i].link.at <= f->now);
        }
        f->now = at;
        return n;
}

static void an_empty_wheel_never_asks(void **state)
{
        struct fixture *f = *state;

        assert_true(wheel_next(&f->wheel) == NSTIME_NEVER);
        assert_int_equal(pop(f), 0);
}

static void fires_within_a_tick_of_any_deadline(void **state)
{
        static const nstime after[] = {
                1,
                NS_PER_US,
                20 * NS_PER_US,
                50 * NS_PER_US,
                NS_PER_MS,
                3 * NS_PER_MS,
                40 * NS_PER_MS,
                200 * NS_PER_MS,
                NS_PER_S,
                60 * NS_PER_S,
                7200 * NS_PER_S,
                86400 * 30 * NS_PER_S,
                86400 * 365 * 5 * NS_PER_S,
        };
        struct fixture *f = *state;

        for (size_t i = 0; i < ARRAY_LEN(after); i++) {
                nstime at = f->now + after[i];

                set(f, 1, at);
                assert_int_equal(fired_until(f, at - 1), 0);
                assert_int_equal(fired_until(f, at + WHEEL_TICK), 1);
                assert_true(wheel_deadline(&f->rec[1].link) == NSTIME_NEVER);
        }
}

static void a_deadline_in_the_past_fires_at_once(void **state)
{
        struct fixture *f = *state;

        set(f, 1, T0 - NS_PER_S);
        set(f, 2, 0);
        assert_true(wheel_next(&f->wheel) <= f->now);
        assert_int_equal(pop(f) + pop(f), 3);
        assert_int_equal(pop(f), 0);
}

static void putting_off_keeps_the_slot_and_fires_once(void **state)
{
        struct fixture *f = *state;
        nstime armed;

        set(f, 1, T0 + 200 * NS_PER_MS);
        armed = wheel_next(&f->wheel);
        for (int i = 1; i <= 100; i++)
                set(f, 1, T0 + 200 * NS_PER_MS + i * NS_PER_MS);
        assert_true(wheel_next(&f->wheel) == armed); /* one store each */
        assert_int_equal(fired_until(f, T0 + 300 * NS_PER_MS - 1), 0);
        assert_int_equal(fired_until(f, T0 + 300 * NS_PER_MS + WHEEL_TICK), 1);
}

static void an_earlier_deadline_counts_at_once(void **state)
{
        struct fixture *f = *state;

        set(f, 1, T0 + NS_PER_S);
        set(f, 1, T0 + 30 * NS_PER_US);
        assert_int_equal(fired_until(f, T0 + 30 * NS_PER_US + WHEEL_TICK), 1);
        assert_true(wheel_next(&f->wheel) == NSTIME_NEVER);
}

static void never_turns_it_off(void **state)
{
        struct fixture *f = *state;

        set(f, 1, T0 + NS_PER_MS);
        set(f, 1, NSTIME_NEVER);
        assert_true(wheel_deadline(&f->rec[1].link) == NSTIME_NEVER);
        assert_int_equal(fired_until(f, T0 + NS_PER_S), 0);
        assert_int_equal(f->wheel.count, 0);
}

static void cancel_takes_it_out_of_the_middle_of_a_slot(void **state)
{
        struct fixture *f = *state;

        for (uint32_t i = 1; i <= 5; i++)
                set(f, i, T0 + NS_PER_MS);
        for (uint32_t i = 2; i <= 5; i++) {
                wheel_cancel(&f->wheel, &f->pool, OFF, i);
                wheel_cancel(&f->wheel, &f->pool, OFF, i);
                wheel_check(&f->wheel, &f->pool, OFF);
        }
        assert_int_equal(fired_until(f, T0 + NS_PER_S), 1);
}

static void a_fired_timer_may_be_set_again_from_its_own_call(void **state)
{
        struct fixture *f = *state;
        uint32_t n = 0;

        set(f, 1, T0 + NS_PER_MS);
        while (f->now < T0 + 100 * NS_PER_MS) {
                f->now = wheel_next(&f->wheel);
                if (pop(f) == 1) {
                        n++;
                        set(f, 1, f->now + NS_PER_MS);
                }
        }
        assert_in_range(n, 98, 100);
}

/* Work a call is bounded: a slot with many timers that were put off takes several calls, and
 * says so. */
static void one_call_moves_no_more_than_its_share(void **state)
{
        struct fixture *f = *state;

        for (uint32_t i = 1; i <= TIMERS; i++)
                set(f, i, T0 + 10 * NS_PER_MS);
        for (uint32_t i = 1; i <= TIMERS; i++)
                set(f, i, T0 + NS_PER_S);
        f->now = T0 + 20 * NS_PER_MS;
        for (uint32_t calls = 0; calls < TIMERS / WHEEL_WORK; calls++) {
                assert_int_equal(pop(f), 0);
                assert_true(wheel_next(&f->wheel) <= f->now);
        }
        assert_int_equal(pop(f), 0);
        assert_true(wheel_next(&f->wheel) > f->now);
        assert_int_equal(fired_until(f, T0 + 2 * NS_PER_S), TIMERS);
}

static void time_that_goes_back_a_little_harms_nothing(void **state)
{
        struct fixture *f = *state;

        f->now = T0 + NS_PER_MS;
        assert_int_equal(pop(f), 0);
        f->now = T0;
        set(f, 1, T0 + 10 * NS_PER_US);
        set(f, 2, T0 + 2 * NS_PER_MS);
        assert_int_equal(pop(f), 1);
        assert_int_equal(pop(f), 0);
        assert_int_equal(fired_until(f, T0 + 3 * NS_PER_MS), 1);
}

static void after_a_reset_each_timer_is_set_again(void **state)
{
        struct fixture *f = *state;

        for (uint32_t i = 1; i <= 100; i++)
                set(f, i, T0 + i * NS_PER_MS);
        wheel_reset(&f->wheel, f->now);
        for (uint32_t i = 1; i <= 100; i++) {
                nstime at = f->rec[i].link.at;
                wheel_forget(&f->rec[i].link);
                set(f, i, at);
        }
        assert_int_equal(fired_until(f, T0 + NS_PER_S), 100);
}

static nstime random_after(struct prng_fast *g)
{
        return (nstime)(prng_fast_u64(g) >> (20 + prng_fast_below(g, 40)));
}

/* The model is the array `due`; a timer may fire from its deadline to a tick later, and must
 * by then. */
static void random_use_matches_a_plain_list(void **state)
{
        struct fixture *f = *state;
        nstime due[TIMERS + 1];
        struct prng_fast g;
        uint64_t seed = 20261120;

        print_message("seed %llu\n", (unsigned long long)seed);
        prng_fast_init(&g, seed);
        for (uint32_t i = 0; i <= TIMERS; i++)
                due[i] = NSTIME_NEVER;
        for (int step = 0; step < 200000; step++) {
                uint32_t i = 1 + prng_fast_below(&g, TIMERS), hit;

                switch (prng_fast_below(&g, 8)) {
                case 0:
                        due[i] = NSTIME_NEVER;
                        wheel_cancel(&f->wheel, &f->pool, OFF, i);
                        break;
                case 1:
                        due[i] = NSTIME_NEVER;
                        wheel_set(&f->wheel, &f->pool, OFF, i, NSTIME_NEVER);
                        break;
                case 2:
                        f->now += random_after(&g) % (10 * NS_PER_S);
                        break;
                case 3:
                        f->now += WHEEL_TICK;
                        break;
                default:
                        due[i] = f->now + random_after(&g);
                        wheel_set(&f->wheel, &f->pool, OFF, i, due[i]);
                }
                while ((hit = wheel_pop(&f->wheel, &f->pool, OFF, f->now)) != 0 ||
                       wheel_next(&f->wheel) <= f->now) {
                        assert_true(hit == 0 || due[hit] <= f->now);
                        due[hit] = NSTIME_NEVER;
                }
                for (uint32_t k = 1; step % 100 == 0 && k <= TIMERS; k++) {
                        assert_true(due[k] == NSTIME_NEVER || due[k] > f->now - WHEEL_TICK);
                        assert_true(due[k] == wheel_deadline(&f->rec[k].link));
                        assert_true(wheel_next(&f->wheel) <=
                                    MIN(due[k], NSTIME_NEVER - WHEEL_TICK) + WHEEL_TICK);
                }
                if (step % 1000 == 0)
                        wheel_check(&f->wheel, &f->pool, OFF);
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(an_empty_wheel_never_asks),
                TEST(fires_within_a_tick_of_any_deadline),
                TEST(a_deadline_in_the_past_fires_at_once),
                TEST(putting_off_keeps_the_slot_and_fires_once),
                TEST(an_earlier_deadline_counts_at_once),
                TEST(never_turns_it_off),
                TEST(cancel_takes_it_out_of_the_middle_of_a_slot),
                TEST(a_fired_timer_may_be_set_again_from_its_own_call),
                TEST(one_call_moves_no_more_than_its_share),
                TEST(time_that_goes_back_a_little_harms_nothing),
                TEST(after_a_reset_each_timer_is_set_again),
                TEST(random_use_matches_a_plain_list),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
