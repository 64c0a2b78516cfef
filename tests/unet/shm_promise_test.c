/* Promises in shared memory (unet/ni_promise.h): what one side makes the other takes, and no
 * more. */
#include <stdlib.h>

#include "unet/ni_promise.h"
#include "unet/shm/ni_shm.h"
#include "tests/unit.h"

static const struct unet_door door = {{0x0100007f}, {0x5000}}, other = {{0x0100007f}, {0x5100}};
static const struct unet_promise four = {
        .room = 4, .wnd = 1000, .mss = 1460, .wscale = 7, .by = {17, 900}};

/* Two ends of a channel. */
struct ends {
        struct shm_chan a, b; /* a listens */
        struct shm_shared sh[2];
        struct counters cnt;
        nstime now;
};

static int setup(void **state)
{
        struct ends *e = calloc(1, sizeof *e);

        e->a.mine = aligned_alloc(4096, sizeof *e->a.mine);
        e->b.mine = aligned_alloc(4096, sizeof *e->b.mine);
        memset(e->a.mine, 0, sizeof *e->a.mine);
        memset(e->b.mine, 0, sizeof *e->b.mine);
        e->a.peer = e->b.mine;
        e->b.peer = e->a.mine;
        shm_chan_init(&e->a, &e->sh[0], &e->cnt);
        shm_chan_init(&e->b, &e->sh[1], &e->cnt);
        *state = e;
        return 0;
}

static int teardown(void **state)
{
        struct ends *e = *state;

        free(e->a.mine);
        free(e->b.mine);
        free(e);
        return 0;
}

static void make(struct ends *e, struct unet_door d, struct unet_promise p)
{
        e->a.base.promises->make(&e->a.base, d, &p, e->now);
}

static uint16_t take(struct ends *e, struct unet_door d)
{
        struct unet_promise p;
        bool seen = e->b.base.promises->look(&e->b.base, d, &p);
        uint16_t said = e->b.base.promises->take(&e->b.base, d);

        assert_true(seen || said == 0);
        assert_true(!seen || (p.wnd == four.wnd && p.mss == four.mss && p.wscale != 0 &&
                              p.by.pid == four.by.pid && p.by.fd == four.by.fd));
        return said;
}

static bool keep(struct ends *e, struct unet_door d, uint16_t said)
{
        struct unet_promise p;

        return e->a.base.promises->keep(&e->a.base, d, said, &p);
}

static void nothing_is_promised_at_first(void **state)
{
        assert_int_equal(take(*state, door), 0);
        assert_false(keep(*state, door, 1));
}

static void as_many_as_there_is_room_for(void **state)
{
        uint16_t said[4];

        make(*state, door, four);
        for (int i = 0; i < 4; i++) {
                said[i] = take(*state, door);
                assert_int_not_equal(said[i], 0);
        }
        assert_int_equal(take(*state, door), 0);
        for (int i = 0; i < 4; i++)
                assert_true(keep(*state, door, said[i]));
        assert_false(keep(*state, door, said[0])); /* who says so has not taken it */
}

static void at_that_door_alone(void **state)
{
        uint16_t said;

        make(*state, door, four);
        assert_int_equal(take(*state, other), 0);
        said = take(*state, door);
        assert_false(keep(*state, other, said));
        assert_true(keep(*state, door, said));
}

/* As often as a connection came. */
static void it_is_renewed(void **state)
{
        make(*state, door, four);
        for (int i = 0; i < 1000; i++) {
                uint16_t said = take(*state, door);
                assert_int_not_equal(said, 0);
                assert_true(keep(*state, door, said));
                make(*state, door, four);
        }
}

/* A renewal counts what is on its way. */
static void a_renewal_is_no_more_than_that(void **state)
{
        make(*state, door, four);
        for (int i = 0; i < 4; i++)
                assert_int_not_equal(take(*state, door), 0);
        make(*state, door, four);
        assert_int_equal(take(*state, door), 0);
}

static void withdrawn_it_is_taken_no_more_but_kept(void **state)
{
        struct ends *e = *state;
        uint16_t said;

        make(e, door, four);
        said = take(e, door);
        e->a.base.promises->withdraw(&e->a.base, e->now);
        assert_int_equal(take(e, door), 0);
        assert_true(keep(e, door, said));
}

/* What was taken of the one before has to come first. */
static void another_one_in_its_place(void **state)
{
        struct unet_promise wider = four;
        uint16_t before[2], said;

        make(*state, door, four);
        before[0] = take(*state, door);
        before[1] = take(*state, door);
        wider.wscale = 9;
        make(*state, door, wider);
        assert_int_equal(take(*state, door), 0);
        assert_true(keep(*state, door, before[0]));
        make(*state, door, wider);
        assert_int_equal(take(*state, door), 0);
        assert_true(keep(*state, door, before[1]));
        make(*state, door, wider);
        said = take(*state, door);
        assert_true(said != 0 && said != before[0]);
        assert_false(keep(*state, door, before[0]));
        assert_true(keep(*state, door, said));
}

/* ... unless it never does. */
static void what_does_not_come_is_forgotten(void **state)
{
        struct ends *e = *state;
        uint16_t before, said;

        make(e, door, four);
        before = take(e, door);
        e->a.base.promises->withdraw(&e->a.base, e->now);
        make(e, door, four);
        assert_int_equal(take(e, door), 0);
        e->now += 2 * NS_PER_S;
        make(e, door, four);
        said = take(e, door);
        assert_true(said != 0 && said != before);
        assert_false(keep(e, door, before));
        assert_true(keep(e, door, said));
}

/* Processes of one stack promise in turn. */
static void another_promiser_changes_nothing(void **state)
{
        struct unet_promise his = four;
        struct ends *e = *state;
        struct unet_promise p;
        uint16_t said;

        make(e, door, four);
        said = take(e, door);
        his.by.pid = 18;
        make(e, door, his);
        assert_true(keep(e, door, said));
        assert_true(e->b.base.promises->look(&e->b.base, door, &p) && p.by.pid == 18);
}

static void more_doors_than_places(void **state)
{
        for (uint16_t i = 0; i < 2 * SHM_PROMISES; i++) {
                struct unet_door d = {door.addr, {(uint16_t)(100 + i)}};
                make(*state, d, four);
                assert_true(keep(*state, d, take(*state, d)));
        }
}

/* Who makes it has died in the middle. */
static void half_made_it_does_not_hold(void **state)
{
        struct ends *e = *state;
        uint16_t said;

        make(e, door, four);
        for (uint32_t i = 0; i < SHM_PROMISES; i++)
                atomic_fetch_and(&e->a.mine->promise[i].turn, ~1u);
        assert_int_equal(take(e, door), 0);
        make(e, door, four);
        said = take(e, door);
        assert_true(said != 0 && keep(e, door, said));
}

/* The turn wraps, and there is one that a SYN cannot say. */
static void turns_wrap(void **state)
{
        struct ends *e = *state;
        unsigned none = 0;

        make(e, door, four);
        for (uint32_t i = 0; i < 3 * (UINT16_MAX + 1); i++) {
                uint16_t said;
                e->a.base.promises->withdraw(&e->a.base, e->now);
                make(e, door, four);
                said = take(e, door);
                none += said == 0;
                assert_true(said == 0 || keep(e, door, said));
        }
        assert_int_equal(none, 3);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(nothing_is_promised_at_first, setup, teardown),
                cmocka_unit_test_setup_teardown(as_many_as_there_is_room_for, setup, teardown),
                cmocka_unit_test_setup_teardown(at_that_door_alone, setup, teardown),
                cmocka_unit_test_setup_teardown(it_is_renewed, setup, teardown),
                cmocka_unit_test_setup_teardown(a_renewal_is_no_more_than_that, setup, teardown),
                cmocka_unit_test_setup_teardown(withdrawn_it_is_taken_no_more_but_kept, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(another_one_in_its_place, setup, teardown),
                cmocka_unit_test_setup_teardown(what_does_not_come_is_forgotten, setup, teardown),
                cmocka_unit_test_setup_teardown(another_promiser_changes_nothing, setup, teardown),
                cmocka_unit_test_setup_teardown(more_doors_than_places, setup, teardown),
                cmocka_unit_test_setup_teardown(half_made_it_does_not_hold, setup, teardown),
                cmocka_unit_test_setup_teardown(turns_wrap, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
