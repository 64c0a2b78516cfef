/* When turns on one processor are taken (sock/usock_turns.h), and what ends them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sock/usock_turns.h"
#include "sock/ustack.h"

#define LONG   (2 * USOCK_LENT_SHARED)
#define SHORT  (USOCK_LENT_SHARED / 2)
#define ENOUGH 4                        /* spins that one offer ended */

static int turns(void)
{
        return usock_tls.turns;
}

static void spins(int n)
{
        for (int i = 0; i < n; i++)
                usock_turns_spun(1, LONG);
}

static void a_few_spins_in_a_row_begin_them(void **state)
{
        spins(ENOUGH - 1);
        assert_int_equal(turns(), USOCK_TURNS_NONE);
        usock_turns_spun(2, LONG);      /* the first offer brought nothing */
        spins(ENOUGH - 1);
        assert_int_equal(turns(), USOCK_TURNS_NONE);
        usock_turns_spun(1, SHORT);     /* nobody else wanted the processor */
        spins(ENOUGH - 1);
        assert_int_equal(turns(), USOCK_TURNS_NONE);
        spins(1);
        assert_int_equal(turns(), USOCK_TURNS_OURS);
}

static void an_answer_that_is_not_there_ends_them(void **state)
{
        spins(ENOUGH);
        usock_turns_waits();
        assert_int_equal(turns(), USOCK_TURNS_NONE);
        spins(ENOUGH - 1);
        assert_int_equal(turns(), USOCK_TURNS_NONE);
        spins(1);
        assert_int_equal(turns(), USOCK_TURNS_OURS);
}

/* Ours again after an answer; two messages without one are no conversation, and believed to be one twice as late. */
static void messages_without_answers_end_them(void **state)
{
        spins(ENOUGH);
        usock_tls.turns = USOCK_TURNS_THEIRS;
        usock_turns_heard();
        assert_int_equal(turns(), USOCK_TURNS_OURS);
        usock_tls.turns = USOCK_TURNS_THEIRS;
        usock_turns_sent();
        assert_int_equal(turns(), USOCK_TURNS_NONE);
        spins(2 * ENOUGH - 1);
        assert_int_equal(turns(), USOCK_TURNS_NONE);
        spins(1);
        assert_int_equal(turns(), USOCK_TURNS_OURS);
}

/* Others may have the processor, or not: it is theirs, or there are no turns any more. */
static void a_message_gives_it_away(void **state)
{
        spins(ENOUGH);
        usock_turns_sent();
        assert_int_not_equal(turns(), USOCK_TURNS_OURS);
}

static int begin(void **state)
{
        usock_turns_spun(0, 0);
        usock_turns_waits();
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(a_few_spins_in_a_row_begin_them, begin),
                cmocka_unit_test_setup(an_answer_that_is_not_there_ends_them, begin),
                cmocka_unit_test_setup(a_message_gives_it_away, begin),
                cmocka_unit_test_setup(messages_without_answers_end_them, begin),       /* the last: more is wanted from then on */
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
