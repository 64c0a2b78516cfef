/* Whose turn it is at the wire of an interface that stacks share. */
#include "unetd/bridge/gate_share.h"

#include "unetd/client/proto.h"
#include "tests/unit.h"

#define TURNS 1280u
#define MOST  200u

struct stacks {
        uint32_t n;
        uint32_t stack[MOST], last[MOST], turns[MOST];
};

static void add_stacks(struct stacks *s, uint32_t user, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                s->stack[s->n++] = user * UNETD_STACKS_OF_USER + 1 + i;
}

/* All have something to send in every turn, but for `idle`. */
static void play(struct stacks *s, uint32_t idle)
{
        for (uint32_t turn = 1; turn <= TURNS; turn++) {
                struct gate_asker v[MOST];
                uint32_t n = 0;

                for (uint32_t k = 0; k < s->n; k++) {
                        uint32_t i = (turn + k) % s->n;
                        if (i != idle)
                                n = gate_share_add(v, n,
                                                   (struct gate_asker){s->stack[i], i, s->last[i]},
                                                   turn);
                }
                for (uint32_t k = 0; k < n; k++) {
                        s->turns[v[k].port]++;
                        s->last[v[k].port] = turn;
                }
        }
}

static void who_has_many_stacks_has_one_turn(void **state)
{
        struct stacks s = {0};

        (void)state;
        add_stacks(&s, 7, 128);
        add_stacks(&s, 8, 1);
        add_stacks(&s, 9, 2);
        play(&s, UINT32_MAX);
        assert_int_equal(s.turns[128], TURNS);
        assert_int_equal(s.turns[129], TURNS / 2);
        assert_int_equal(s.turns[130], TURNS / 2);
        for (uint32_t i = 0; i < 128; i++)
                assert_in_range(s.turns[i], TURNS / 128 - 1, TURNS / 128 + 1);
}

static void who_has_nothing_to_send_holds_nobody_up(void **state)
{
        struct stacks s = {0};

        (void)state;
        add_stacks(&s, 7, 3);
        play(&s, 1);
        assert_int_equal(s.turns[0], TURNS / 2);
        assert_int_equal(s.turns[1], 0);
        assert_int_equal(s.turns[2], TURNS / 2);
}

/* The count comes round. */
static void a_turn_of_long_ago_is_the_older_one(void **state)
{
        struct gate_asker v[2], old = {1, 0, UINT32_MAX - 5}, young = {2, 1, 3};

        (void)state;
        assert_int_equal(gate_share_add(v, 0, young, 10), 1);
        assert_int_equal(gate_share_add(v, 1, old, 10), 1);
        assert_int_equal(v[0].port, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(who_has_many_stacks_has_one_turn),
                cmocka_unit_test(who_has_nothing_to_send_holds_nobody_up),
                cmocka_unit_test(a_turn_of_long_ago_is_the_older_one),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
