/* When the reader of a stream of datagrams or of a train of segments pauses
 * (sock/wait/usock_pace.h), and what ends it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "netstack/stack_ip.h"
#include "sock/wait/usock_pace.h"

#define ENOUGH 8 /* sleeps of a stream */
#define BATCH  16
#define SOON   (100 * NS_PER_US)
/* As long as a batch of sixteen takes soft-RoCE under emulation. */
#define LATER (1300 * NS_PER_US)

/* A stack over a device of which nothing is looked at. */
static struct stack_state memory = {.look_at = NSTIME_NEVER};
static struct stack_ip ip = {.deadline = NSTIME_NEVER};
static struct ustack stack = {.s = {.st = &memory, .ip = &ip, .look_at = NSTIME_NEVER},
                              .link[0] = (struct vlink *)&memory};
static struct ustack *const all[] = {&stack};

static void came(enum count what, uint64_t n)
{
        count_add(&memory.cnt, what, n);
}

/* A sleep that n datagrams end. */
static void sleeps(nstime length, uint64_t n)
{
        came(COUNT_UDP_IN, n);
        usock_slept(all, 1, length);
}

static int pauses(void)
{
        return usock_pause(all, 1, 0, NSTIME_NEVER, NULL);
}

static void streams(nstime length, uint64_t n)
{
        for (int i = 0; i < ENOUGH; i++)
                sleeps(length, n);
}

/* Nothing comes: whatever was is over. */
static int idle(void **state)
{
        (void)state;
        sleeps(LATER, 0);
        return usock_in_stream();
}

static void datagrams_one_by_one_are_a_stream(void **state)
{
        (void)state;
        streams(SOON, 1);
        assert_true(usock_in_stream());
}

static void batches_that_come_further_apart_are_a_stream_too(void **state)
{
        (void)state;
        streams(LATER, BATCH);
        assert_true(usock_in_stream());
}

static void single_datagrams_so_far_apart_are_none(void **state)
{
        (void)state;
        streams(LATER, 1);
        assert_false(usock_in_stream());
}

static void one_sleep_is_no_stream(void **state)
{
        (void)state;
        sleeps(SOON, BATCH);
        assert_false(usock_in_stream());
}

static void what_is_answered_is_none(void **state)
{
        (void)state;
        for (int i = 0; i < ENOUGH; i++) {
                came(COUNT_UDP_OUT, 1);
                sleeps(SOON, 1);
        }
        assert_false(usock_in_stream());
}

static void pauses_go_on_while_datagrams_come(void **state)
{
        (void)state;
        streams(SOON, 1);
        for (int i = 0; i < ENOUGH; i++) {
                came(COUNT_UDP_IN, BATCH);
                assert_int_equal(pauses(), 1);
        }
        assert_true(usock_in_stream());
}

static void a_pause_in_which_nothing_came_is_the_last(void **state)
{
        (void)state;
        streams(SOON, 1);
        assert_int_equal(pauses(), 0);
        assert_false(usock_in_stream());
}

/* The longest pause is for those that are not too far apart. */
static void a_longest_pause_that_brought_few_is_the_last(void **state)
{
        int n = 0;

        (void)state;
        streams(SOON, 1);
        do
                came(COUNT_UDP_IN, 1);
        while (pauses() == 1 && ++n < ENOUGH);
        assert_in_range(n, 1, ENOUGH - 1);
        assert_false(usock_in_stream());
}

static void an_answer_ends_the_pauses(void **state)
{
        (void)state;
        streams(SOON, 1);
        came(COUNT_UDP_IN, BATCH);
        came(COUNT_UDP_OUT, 1);
        assert_int_equal(pauses(), 0);
        assert_false(usock_in_stream());
}

/* Its sender waits for an acknowledgement, or its reader for an answer. */
static void a_segment_ends_the_pauses(void **state)
{
        (void)state;
        streams(SOON, 1);
        came(COUNT_UDP_IN, BATCH);
        came(COUNT_TCP_IN, 1);
        assert_int_equal(pauses(), 0);
        assert_false(usock_in_stream());
}

/* ---- trains ---- */

/* So many segments came and left since the last time; the ACK of the last is held for so long. */
static int train_pauses(uint64_t in, uint64_t out, nstime held)
{
        came(COUNT_TCP_IN, in);
        came(COUNT_TCP_OUT, out);
        return usock_pause_train(all, 1, 0, held, NULL);
}

static void a_train_whose_ack_is_held_is_paused_for(void **state)
{
        (void)state;
        for (int i = 0; i < ENOUGH; i++)
                assert_int_equal(train_pauses(BATCH, 1, SOON), 1);
}

static void a_held_ack_that_is_due_is_not_paused_for(void **state)
{
        (void)state;
        assert_int_equal(train_pauses(BATCH, 1, 10 * NS_PER_US), 0);
}

static void a_train_that_has_stopped_is_not_paused_for(void **state)
{
        (void)state;
        assert_int_equal(train_pauses(BATCH, 1, SOON), 1);
        assert_int_equal(train_pauses(0, 0, SOON), 0);
}

/* Somebody waits for what this thread answers. */
static void a_train_beside_which_others_are_answered_is_not_paused_for(void **state)
{
        (void)state;
        assert_int_equal(train_pauses(BATCH, BATCH / 2, SOON), 0);
        assert_int_equal(train_pauses(2, 2, SOON), 0);
}

static void without_a_device_no_train_is_paused_for(void **state)
{
        struct vlink *link = stack.link[0];

        (void)state;
        stack.link[0] = NULL;
        assert_int_equal(train_pauses(BATCH, 1, SOON), 0);
        stack.link[0] = link;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(datagrams_one_by_one_are_a_stream, idle),
                cmocka_unit_test_setup(batches_that_come_further_apart_are_a_stream_too, idle),
                cmocka_unit_test_setup(single_datagrams_so_far_apart_are_none, idle),
                cmocka_unit_test_setup(one_sleep_is_no_stream, idle),
                cmocka_unit_test_setup(what_is_answered_is_none, idle),
                cmocka_unit_test_setup(pauses_go_on_while_datagrams_come, idle),
                cmocka_unit_test_setup(a_pause_in_which_nothing_came_is_the_last, idle),
                cmocka_unit_test_setup(a_longest_pause_that_brought_few_is_the_last, idle),
                cmocka_unit_test_setup(an_answer_ends_the_pauses, idle),
                cmocka_unit_test_setup(a_segment_ends_the_pauses, idle),
                cmocka_unit_test(a_train_whose_ack_is_held_is_paused_for),
                cmocka_unit_test(a_held_ack_that_is_due_is_not_paused_for),
                cmocka_unit_test(a_train_that_has_stopped_is_not_paused_for),
                cmocka_unit_test(a_train_beside_which_others_are_answered_is_not_paused_for),
                cmocka_unit_test(without_a_device_no_train_is_paused_for),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
