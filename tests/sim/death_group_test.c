/* Death at every store of what is done with groups of connections (tests/sim/death.h). */
#include "tcp/tcp_group.h"
#include "tests/sim/death.h"

#include <stdlib.h>
#include "tests/unit.h"

/* Limits in common, hardly more than was promised already, so that shares shrink. */
static void limits_group(struct view *v, uint64_t more)
{
        struct tcp *t = &v->s[0].tcp;
        struct tcp_group_limits l = {.members = 6, .least = 2000};

        l.receive = more + 6 * l.least + tcp_promised(conn(v, 0, 0)) + tcp_promised(conn(v, 0, 1));
        l.send = more + 6 * l.least + tcp_queued(conn(v, 0, 0)) + tcp_queued(conn(v, 0, 1));
        stack_begin(v->s[0].st, 0);
        assert_int_equal(tcp_group_set(t, 1, &l), 0);
        stack_end(v->s[0].st);
}

static void enters_group(struct view *v)
{
        struct stack *s = &v->s[0];

        s->now = v->w->now;
        for (int n = 0; n < CONNS; n++) {
                stack_begin(s->st, v->w->conn[0][n]);
                assert_int_equal(tcp_group_enter(&s->tcp, conn(v, 0, n), 1, v->w->now), 0);
                stack_end(s->st);
        }
        stack_flush(s, v->w->now);
}

static void prepare_group(struct view *v)
{
        limits_group(v, 10000);
        enters_group(v);
        stack_begin(v->s[0].st, 0);
        tcp_group_listen(&v->s[0].tcp, v->w->listener[0], 1);
        stack_end(v->s[0].st);
}

static void prepare_group_limits(struct view *v)
{
        limits_group(v, 10000);
}

static void widens_group(struct view *v)
{
        limits_group(v, 200000);
}

static void leaves_group(struct view *v)
{
        struct stack *s = &v->s[0];

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        tcp_group_leave(&s->tcp, conn(v, 0, 0), v->w->now);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

/* Somebody connects to the listener, who will be a member. */
static void prepare_group_and_syn(struct view *v)
{
        prepare_group(v);
        open_from(v, 1, 41000);
}

static void prepare_group_and_input(struct view *v)
{
        prepare_group(v);
        prepare_input(v);
}

static void prepare_group_and_credit(struct view *v)
{
        prepare_group(v);
        limits_group(v, 200000);
        changes_window(v);
}

static void prepare_group_and_close(struct view *v)
{
        prepare_group(v);
        prepare_close(v);
}

static void writing_in_a_group_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_group, .act = writes_much);
}

static void entering_a_group_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_group_limits, .act = enters_group);
}

static void leaving_a_group_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_group, .act = leaves_group);
        dies_everywhere(.prepare = prepare_group_and_close, .act = closes, .after = CLOSES);
}

static void changing_a_group_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_group, .act = widens_group);
        dies_everywhere(.prepare = prepare_group, .act = prepare_group_limits);
}

static void a_share_that_changes_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_group, .act = reads_all, .reads = true);
        dies_everywhere(.prepare = prepare_group_and_credit, .act = grants);
}

static void a_turn_of_a_group_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_group_and_input, .act = runs_with_input);
        dies_everywhere(.prepare = prepare_group_and_syn, .act = runs_with_input);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(writing_in_a_group_may_end_anywhere),
                cmocka_unit_test(entering_a_group_may_end_anywhere),
                cmocka_unit_test(leaving_a_group_may_end_anywhere),
                cmocka_unit_test(changing_a_group_may_end_anywhere),
                cmocka_unit_test(a_share_that_changes_may_end_anywhere),
                cmocka_unit_test(a_turn_of_a_group_may_end_anywhere),
        };

        make_streams();
        cmocka_set_test_filter(getenv("UNET_TEST_FILTER"));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
