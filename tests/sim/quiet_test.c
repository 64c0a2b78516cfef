/*
 * Anybody may ring for quiet channels (netstack/stack_quiet.c): of looks that find nothing there
 * are so many in a time and no more, however often it is rung, and what comes by such a channel
 * meanwhile is heard of when the next look is due.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/sim/pair.h"
#include "tests/unit.h"

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

static void say(struct unet_chan *ch, const char *what)
{
        struct unet_tx tx = {.inl = (const uint8_t *)what, .inl_len = 1};

        assert_int_equal(ch->ops->send(ch, &tx, 1), 1);
}

/* How often who looks at quiet channels was rung by this flush: through a pipe, read at `told`. */
static int rings_of(struct unet_chan *ch, int told)
{
        char byte[16];
        ssize_t n;

        ch->ops->flush(ch);
        n = read(told, byte, sizeof byte);
        return n < 0 ? 0 : (int)n;
}

/* The ring is late: the message was taken before the channel was made quiet. Nothing is found for
 * it, so that the next message is rung for as well. */
static void a_message_taken_before_rings_for_itself_alone(void **state)
{
        struct pair *p = pair_shm(1);
        struct unet_chan *from = stack_chan_peek(&p->side[0].s, PAIR_CHAN),
                         *to = stack_chan_peek(&p->side[1].s, PAIR_CHAN);
        struct unet_rx rx;
        int fds[2];

        assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
        from->ops->flush(from);
        ((struct shm_chan *)from)->keeper_fd = fds[1];
        to->ops->quiet(to);
        say(from, "1");
        assert_int_equal(rings_of(from, fds[0]), 1);
        say(from, "2");
        assert_int_equal(rings_of(from, fds[0]), 0);
        say(from, "3");
        for (int i = 0; i < 3; i++)
                assert_int_equal(to->ops->recv(to, &rx, 1), 1);
        to->ops->quiet(to);
        assert_int_equal(rings_of(from, fds[0]), 1);
        assert_false(to->ops->pending(to));
        say(from, "4");
        assert_int_equal(rings_of(from, fds[0]), 1);
        say(from, "5");
        assert_int_equal(rings_of(from, fds[0]), 0);
        close(fds[0]);
        close(fds[1]);
        pair_free(p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(rings_in_vain_cost_a_share_of_the_time),
                cmocka_unit_test(what_comes_meanwhile_is_heard),
                cmocka_unit_test(who_does_not_see_a_channel_takes_no_look),
                cmocka_unit_test(a_message_taken_before_rings_for_itself_alone),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
