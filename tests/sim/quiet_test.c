/*
 * Anybody may ring for quiet channels (netstack/stack_quiet.c): of looks that find nothing there
 * are so many in a time and no more, however often it is rung, and what comes by such a channel
 * meanwhile is heard of when the next look is due.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/sim/pair.h"

#define RINGS 100000u

static const struct unet_ni_ops *real;
static uint64_t looks;

static bool counts(struct unet_chan *ch)
{
        looks++;
        return real->pending(ch);
}

/* Side 1 finds its channel idle, and does not look at it. */
static void become_quiet(struct pair *p)
{
        static struct unet_ni_ops counting;
        struct unet_chan *ch = stack_chan_peek(&p->side[1].s, PAIR_CHAN);
        struct stack_state *st = p->side[1].st;

        for (int i = 0; i < 4 && stack_is_hot(st, PAIR_CHAN); i++) {
                st->quiet_few = 0;
                st->quiet_after = NS_PER_MS;
                st->sweep_at = 0;
                stack_run(&p->side[1].s, p->now += NS_PER_S);
        }
        assert_false(stack_is_hot(st, PAIR_CHAN));
        real = ch->ops;
        counting = *real;
        counting.pending = counts;
        ch->ops = &counting;
        looks = 0;
}

static void ring_for_a_second(struct pair *p)
{
        for (uint32_t i = 0; i < RINGS; i++) {
                p->now += NS_PER_S / RINGS;
                stack_heard_quiet(&p->side[1].s, p->now);
                if (stack_deadline(&p->side[1].s) <= p->now)
                        stack_run(&p->side[1].s, p->now);
        }
}

static void rings_in_vain_cost_a_share_of_the_time(void **state)
{
        struct pair *p = pair_shm(1);

        become_quiet(p);
        p->side[1].s.nchan = 1000; /* a look at one costs what it would at so many */
        ring_for_a_second(p);
        print_message("%u rings in a second: %llu looks\n", RINGS, (unsigned long long)looks);
        assert_in_range(looks, 900, 1100);
        p->side[1].s.nchan = 1;
        pair_free(p);
}

static void what_comes_meanwhile_is_heard(void **state)
{
        struct pair *p = pair_shm(1);
        uint8_t said[] = "news", heard[sizeof said];
        uint32_t client, server;
        nstime due;

        pair_connect(p, 80, &client, &server);
        become_quiet(p);
        while (atomic_load(&p->side[1].st->look_at) == NSTIME_NEVER)
                stack_heard_quiet(&p->side[1].s, p->now);
        assert_int_equal(pair_write(p, 0, client, said, sizeof said), sizeof said);
        stack_run(&p->side[0].s, p->now);
        assert_false(stack_heard_quiet(&p->side[1].s, p->now)); /* as its ring is */
        assert_int_equal(pair_read(p, 1, server, heard, sizeof heard), -EAGAIN);
        due = stack_deadline(&p->side[1].s);
        assert_in_range(due, p->now + 1, p->now + NS_PER_MS);
        stack_run(&p->side[1].s, due);
        assert_int_equal(pair_read(p, 1, server, heard, sizeof heard), sizeof heard);
        assert_memory_equal(heard, said, sizeof said);
        pair_free(p);
}

/* A process that has not mapped the channel, and another that was rung. */
static void who_does_not_see_a_channel_takes_no_look(void **state)
{
        struct pair *p = pair_shm(1);
        struct stack *rung = &p->side[1].s, *blind = malloc(sizeof *blind);
        uint8_t said[] = "news", heard[sizeof said];
        uint32_t client, server;
        nstime due;

        assert_non_null(blind);
        pair_connect(p, 80, &client, &server);
        become_quiet(p);
        *blind = *rung;
        blind->chan[PAIR_CHAN].ch = NULL;
        blind->chan[PAIR_CHAN].ops = NULL;
        while (atomic_load(&rung->st->look_at) == NSTIME_NEVER)
                stack_heard_quiet(rung, p->now);
        assert_int_equal(pair_write(p, 0, client, said, sizeof said), sizeof said);
        stack_run(&p->side[0].s, p->now);
        due = stack_deadline(rung);
        stack_take(blind, due);
        assert_true(stack_deadline(rung) <= due);
        stack_run(rung, due);
        assert_int_equal(pair_read(p, 1, server, heard, sizeof heard), sizeof heard);
        free(blind);
        pair_free(p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(rings_in_vain_cost_a_share_of_the_time),
                cmocka_unit_test(what_comes_meanwhile_is_heard),
                cmocka_unit_test(who_does_not_see_a_channel_takes_no_look),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
