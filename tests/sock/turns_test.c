/* When turns on one processor are taken (sock/wait/usock_turns.h), and what ends them. */
#include "sock/wait/usock_turns.h"
#include "netstack/stack.h"
#include "sock/usock_process.h"
#include "tests/unit.h"

#define LONG   (2 * USOCK_LENT_SHARED)
#define SHORT  (USOCK_LENT_SHARED / 2)
#define ENOUGH 4  /* spins that one offer ended */
#define TURNS  64 /* until nothing is offered any more */
#define WAITS  64 /* that end that */

/* A stack without a channel; `news`: something is pending. */
static struct stack_state memory;
static struct stack stack = {.st = &memory};

static void sends(bool news)
{
        stack.chan_gen = news;
        usock_turns_sent(&stack);
}

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
        usock_turns_spun(2, LONG); /* the first offer brought nothing */
        spins(ENOUGH - 1);
        assert_int_equal(turns(), USOCK_TURNS_NONE);
        usock_turns_spun(1, SHORT); /* nobody else wanted the processor */
        spins(ENOUGH - 1);
        assert_int_equal(turns(), USOCK_TURNS_NONE);
        spins(1);
        assert_int_equal(turns(), USOCK_TURNS_OURS);
}

static void an_answer_that_is_not_there_ends_them(void **state)
{
        spins(ENOUGH);
        assert_int_equal(usock_turns_waits(), USOCK_TURNS_OFFER);
        assert_int_equal(turns(), USOCK_TURNS_NONE);
        spins(ENOUGH - 1);
        assert_int_equal(turns(), USOCK_TURNS_NONE);
        spins(1);
        assert_int_equal(turns(), USOCK_TURNS_OURS);
}

/* Ours again after an answer; two messages without one are no conversation, and believed to be one
 * twice as late. */
static void messages_without_answers_end_them(void **state)
{
        spins(ENOUGH);
        usock_tls.turns = USOCK_TURNS_THEIRS;
        usock_turns_heard();
        assert_int_equal(turns(), USOCK_TURNS_OURS);
        usock_tls.turns = USOCK_TURNS_THEIRS;
        sends(false);
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
        sends(false);
        assert_int_not_equal(turns(), USOCK_TURNS_OURS);
}

/* Nobody is offered the processor whose answer is there. */
static void an_answer_that_is_there_needs_no_offer(void **s)
{
        spins(ENOUGH);
        sends(true);
        assert_int_equal(turns(), USOCK_TURNS_THEIRS);
}

static void exchanges(int n)
{
        for (int i = 0; i < n; i++) {
                sends(true);
                assert_int_equal(turns(), USOCK_TURNS_THEIRS);
                usock_turns_heard();
                assert_int_equal(turns(), USOCK_TURNS_OURS);
        }
}

/* Then who waits is told to offer nothing; too often, and it is over, and begins twice as late the
 * next time. */
static void after_a_while_turns_are_left_to_the_kernel(void **s)
{
        spins(ENOUGH);
        exchanges(TURNS);
        sends(false);
        assert_int_equal(turns(), USOCK_TURNS_THEIRS);
        assert_int_equal(usock_turns_waits(), USOCK_TURNS_NAP);
        for (int i = 2; i < WAITS; i++)
                assert_int_equal(usock_turns_waits(), USOCK_TURNS_SPIN);
        while (usock_turns_waits() != USOCK_TURNS_OFFER)
                assert_int_equal(turns(), USOCK_TURNS_THEIRS);
        assert_int_equal(turns(), USOCK_TURNS_NONE);

        spins(ENOUGH);
        exchanges(TURNS);
        sends(true);
        assert_int_equal(usock_turns_waits(), USOCK_TURNS_OFFER);
        assert_int_equal(turns(), USOCK_TURNS_NONE);
}

/* Who was waited for the last time as well is waited for by a spin first. */
static void waits_in_a_row_spin(void **s)
{
        spins(ENOUGH);
        exchanges(2 * TURNS); /* begun twice as late, by the scene before */
        sends(false);
        assert_int_equal(usock_turns_waits(), USOCK_TURNS_NAP);
        usock_turns_heard();
        sends(false);
        assert_int_equal(usock_turns_waits(), USOCK_TURNS_SPIN);
        usock_turns_heard();
        exchanges(1);
        sends(false);
        assert_int_equal(usock_turns_waits(), USOCK_TURNS_NAP);
}

/* Ten answers that come by themselves pay for a wait. */
static void waits_that_are_seldom_end_nothing(void **s)
{
        spins(ENOUGH);
        exchanges(2 * TURNS); /* begun twice as late, by the scene before */
        for (int i = 0; i < 4 * WAITS; i++) {
                sends(false);
                assert_int_equal(usock_turns_waits(), USOCK_TURNS_NAP);
                usock_turns_heard();
                exchanges(10);
        }
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
                cmocka_unit_test_setup(an_answer_that_is_there_needs_no_offer, begin),
                cmocka_unit_test_setup(after_a_while_turns_are_left_to_the_kernel, begin),
                cmocka_unit_test_setup(waits_in_a_row_spin, begin),
                cmocka_unit_test_setup(waits_that_are_seldom_end_nothing, begin),
                /* The last: more is wanted from then on. */
                cmocka_unit_test_setup(messages_without_answers_end_them, begin),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
