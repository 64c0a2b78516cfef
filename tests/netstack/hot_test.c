/* The walk over the channels that a turn looks at (netstack/stack.h, STACK_FOR_HOT). */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/prng.h"
#include "netstack/stack.h"
#include "tests/unit.h"

#define ROUNDS 5000u

static struct stack_state *state_new(void)
{
        void *p = mmap(NULL, sizeof(struct stack_state), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        assert_ptr_not_equal(p, MAP_FAILED);
        return p;
}

/* Makes some channels hot, among them those at the ends of words; the others are cool. */
static void heat_some(struct stack_state *st, struct prng_fast *r, bool hot[STACK_CHANS])
{
        uint32_t most = (uint32_t[]){0, 1, 2, 20, STACK_CHANS}[prng_fast_below(r, 5)];

        for (uint32_t k = 0; k < STACK_CHANS; k++) {
                if (hot[k])
                        stack_cool(st, k);
                hot[k] = false;
        }
        for (uint32_t i = 0; i < most; i++) {
                uint32_t k = prng_fast_below(r, STACK_CHANS);

                k = prng_fast_below(r, 2) != 0
                            ? k
                            : k / 64 * 64 + (prng_fast_below(r, 2) != 0 ? 63 : 0);
                stack_heat(st, k);
                hot[k] = true;
        }
}

static void each_hot_channel_of_the_view_is_met_once(void **state)
{
        struct stack *s = calloc(1, sizeof *s);
        bool hot[STACK_CHANS] = {false};
        struct prng_fast r;

        print_message("seed 25\n");
        prng_fast_init(&r, 25);
        assert_non_null(s);
        s->st = state_new();
        for (uint32_t round = 0; round < ROUNDS; round++) {
                uint32_t next = 0;

                heat_some(s->st, &r, hot);
                s->nchan = prng_fast_below(&r, 2) != 0 ? prng_fast_below(&r, STACK_CHANS + 1)
                                                       : STACK_CHANS;
                STACK_FOR_HOT (s, k) {
                        for (; next < k; next++)
                                assert_false(hot[next]);
                        assert_true(hot[k] && k < s->nchan && stack_is_hot(s->st, k));
                        next = k + 1;
                }
                for (; next < s->nchan; next++)
                        assert_false(hot[next]);
        }
        munmap(s->st, sizeof *s->st);
        free(s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_hot_channel_of_the_view_is_met_once),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
