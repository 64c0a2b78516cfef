/* A process that waits to send is told of room by whichever process looks. */
#include "tests/sim/death_world.h"

#include <stdlib.h>
#include "tests/unit.h"

static unsigned told;

static void tells(struct stack *s, uint32_t sock, uint32_t events)
{
        told += sock == 0 && events == TCP_EV_WRITABLE;
}

static void room_for_one_process_is_seen_by_another(void **state)
{
        static const struct buf none = {0, 0, 0};
        static const uint8_t bytes[28];
        struct world *w = world_make();
        struct view *waits = view_of(w), *looks = view_of(w);
        struct stack *s = &waits->s[0];

        told = 0;
        looks->s[0].event = tells;
        while (stack_chan_room(s, CHAN))
                stack_post_raw(s, &s->chan[CHAN], bytes, sizeof bytes, &none);
        stack_run(&looks->s[0], w->now);
        assert_int_equal(told, 0);
        stack_run(&looks->s[1], w->now);
        assert_true(stack_pending(&looks->s[0], 0));
        stack_run(&looks->s[0], w->now);
        assert_int_equal(told, 1);
        stack_run(&looks->s[0], w->now);
        assert_int_equal(told, 1);
        view_free(waits);
        view_free(looks);
        world_free(w);
}

/* The peer has as many frames as it may, with the queue empty: whoever waits sleeps until one
 * comes back. */
static void who_has_lent_all_it_may_sleeps_until_a_frame_returns(void **state)
{
        struct world *w = world_make();
        struct view *v = view_of(w);
        struct stack *s = &v->s[0];
        uint32_t id = frame_alloc(s->frames, FRAME_REGION_TX(CHAN), FRAME_SMALL, 0),
                 num = frame_id_num(id);

        told = 0;
        s->event = tells;
        stack_run(s, w->now);
        for (unsigned i = 0; i < STACK_LOANS_MAX; i++)
                frame_lend(s->frames, id);
        assert_false(stack_chan_room(s, CHAN));
        assert_false(stack_pending(s, 0));
        stack_run(s, w->now);
        assert_int_equal(told, 0);
        assert_true(atomic_load(&v->chan[0].mine->ctrl.want_room));
        v->s[1].chan[CHAN].ops->release(v->s[1].chan[CHAN].ch, &num, 1);
        assert_true(stack_pending(s, 0));
        stack_run(s, w->now);
        assert_int_equal(told, 1);
        assert_true(stack_chan_room(s, CHAN));
        view_free(v);
        world_free(w);
}

static void a_frame_for_one_process_is_freed_by_another(void **state)
{
        struct world *w = world_make();
        struct view *waits = view_of(w), *looks = view_of(w);
        uint32_t id, last = 0;

        told = 0;
        looks->s[0].event = tells;
        while ((id = frame_alloc(waits->s[0].frames, FRAME_REGION_TX(CHAN), FRAME_LARGE, 0)) != 0)
                last = id;
        stack_wait_frame(&waits->s[0], CHAN, FRAME_LARGE);
        assert_true(atomic_load(&waits->chan[0].mine->ctrl.want_room));
        stack_want_returns(&looks->s[0], false); /* a leader that wakes */
        assert_true(atomic_load(&waits->chan[0].mine->ctrl.want_room));
        frame_drop(looks->s[0].frames, last);
        assert_int_equal(told, 1);
        assert_false(atomic_load(&waits->chan[0].mine->ctrl.want_room));
        view_free(waits);
        view_free(looks);
        world_free(w);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(room_for_one_process_is_seen_by_another),
                cmocka_unit_test(who_has_lent_all_it_may_sleeps_until_a_frame_returns),
                cmocka_unit_test(a_frame_for_one_process_is_freed_by_another),
        };

        cmocka_set_test_filter(getenv("UNET_TEST_FILTER"));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
