/* Frames: references, loans, and that a frame is free when and only when both have ended. */
#include <stdlib.h>

#include "base/frame.h"
#include "base/prng.h"
#include "tests/unit.h"

#define CHAN  5u
#define LARGE 3u
#define SMALL 4u
#define TX    FRAME_REGION_TX(CHAN)
#define RX    FRAME_REGION_RX(CHAN)

static const struct frame_geom geom = {{[FRAME_LARGE] = LARGE, [FRAME_SMALL] = SMALL}};

struct fixture {
        struct frames f;
        struct frame_pool *pool;
        uint32_t back_chan, back_num; /* the last frame given back */
        unsigned backs;
        uint32_t uncharged_owner, uncharged;
        uint32_t fed_region;
        unsigned fed;
};

static void give_back(void *arg, uint32_t chan, uint32_t num)
{
        struct fixture *x = arg;

        x->back_chan = chan;
        x->back_num = num;
        x->backs++;
}

static void uncharge(void *arg, uint32_t owner, uint32_t bytes)
{
        struct fixture *x = arg;

        x->uncharged_owner = owner;
        x->uncharged += bytes;
}

static void fed(void *arg, uint32_t region)
{
        struct fixture *x = arg;

        x->fed_region = region;
        x->fed++;
}

static int setup(void **state)
{
        struct fixture *x = calloc(1, sizeof *x);

        x->pool = calloc(1, frame_pool_bytes(geom));
        frame_pool_init(x->pool, geom);
        x->f.region[TX] = (struct frame_region){malloc(frame_geom_bytes(geom)), x->pool, {{0, 0}}};
        x->f.region[FRAME_REGION_NAMED(TX)].pool = x->pool;
        x->f.region[RX] = (struct frame_region){malloc(frame_geom_bytes(geom)), NULL, geom};
        x->f.give_back = give_back;
        x->f.uncharge = uncharge;
        x->f.fed = fed;
        x->f.arg = x;
        *state = x;
        return 0;
}

static int teardown(void **state)
{
        struct fixture *x = *state;

        free(x->f.region[TX].base);
        free(x->f.region[RX].base);
        free(x->pool);
        free(x);
        return 0;
}

static void numbers_and_places_agree(void **state)
{
        struct fixture *x = *state;

        assert_int_equal(frame_geom_bytes(geom),
                         LARGE * FRAME_LARGE_BYTES + SMALL * FRAME_SMALL_BYTES);
        for (uint32_t num = 1, at = 0; num <= frame_geom_total(geom); num++) {
                uint32_t size = num <= LARGE ? FRAME_LARGE_BYTES : FRAME_SMALL_BYTES;

                assert_int_equal(frame_geom_offset(geom, num), at);
                assert_int_equal(frame_size(&x->f, frame_id(RX, num)), size);
                assert_ptr_equal(frame_addr(&x->f, frame_id(TX, num)), x->f.region[TX].base + at);
                assert_int_equal(frame_id_region(frame_id(RX, num)), RX);
                assert_int_equal(frame_id_num(frame_id(RX, num)), num);
                at += size;
        }
}

/* Numbers and ranges come from somebody else. */
static void a_range_outside_its_frame_is_seen(void **state)
{
        static const struct {
                uint32_t num, off, len;
                bool holds;
        } table[] = {
                {1, 0, FRAME_LARGE_BYTES, true},
                {1, 1, FRAME_LARGE_BYTES, false},
                {LARGE, FRAME_LARGE_BYTES, 0, true},
                {LARGE, FRAME_LARGE_BYTES + 1, 0, false},
                {LARGE + 1, 0, FRAME_SMALL_BYTES, true},
                {LARGE + 1, 0, FRAME_SMALL_BYTES + 1, false},
                {LARGE + 1, 2000, 49, false},
                {LARGE + SMALL, 2000, 48, true},
                {LARGE + SMALL + 1, 0, 1, false},
                {0, 0, 0, false},
                {UINT32_MAX, 0, 0, false},
                {1, UINT32_MAX, 2, false},
                {1, 2, UINT32_MAX, false},
                {1, UINT32_MAX, UINT32_MAX, false},
        };

        for (size_t i = 0; i < ARRAY_LEN(table); i++)
                assert_int_equal(frame_geom_holds(geom, table[i].num, table[i].off, table[i].len),
                                 table[i].holds);
}

static void a_name_leads_into_the_memory(void **state)
{
        struct fixture *x = *state;
        uint8_t *memory = x->f.region[RX].base; /* any */
        uint32_t first = frame_geom_total(geom) + 1, last = first + FRAME_NAMES - 1;

        x->f.region[FRAME_REGION_NAMED(RX)] =
                (struct frame_region){.base = memory - frame_named_at(geom), .geom = geom};
        for (uint32_t num = first; num <= last; num++) {
                uint32_t off = frame_name_off(geom, num), id = frame_id(RX, num) | FRAME_NAMED;

                assert_ptr_equal(frame_addr(&x->f, id) + off, memory);
                assert_true(frame_id_holds(geom, RX, id, off, 1));
                assert_false(frame_id_holds(geom, RX, id, off - 1, 1));
                assert_false(frame_id_holds(geom, RX, frame_id(RX, num), off, 1));
                assert_false(frame_id_holds(geom, TX, id, off, 1));
                assert_false(frame_geom_holds(geom, num, off, 1));
                assert_true(frame_name_holds(geom, num, off, FRAME_NAMED_BYTES));
                assert_true(frame_name_holds(geom, num, off + FRAME_NAMED_BYTES, 0));
                assert_false(frame_name_holds(geom, num, off + FRAME_NAMED_BYTES, 1));
                assert_false(frame_name_holds(geom, num, off + 1, FRAME_NAMED_BYTES));
                assert_false(frame_name_holds(geom, num, off - 1, 1));
                assert_false(frame_name_holds(geom, num, UINT32_MAX, 1));
                assert_false(frame_name_holds(geom, num, off, UINT32_MAX));
        }
        assert_false(frame_name_holds(geom, first - 1, frame_name_off(geom, first - 1), 1));
        assert_false(frame_name_holds(geom, last + 1, frame_name_off(geom, last + 1), 1));
        assert_false(frame_name_holds(geom, UINT32_MAX, 0, 0));
}

static void a_name_is_over_when_all_let_go(void **state)
{
        struct fixture *x = *state;
        uint32_t id = frame_name(&x->f, TX, 7, 41);

        assert_true(frame_is_name(geom, frame_id_num(id)));
        frame_hold(&x->f, id);
        frame_lend(&x->f, id);
        frame_drop(&x->f, id);
        frame_drop(&x->f, id);
        assert_false(frame_name_over(&x->f, id, 41));
        assert_true(frame_name_over(&x->f, id, 40)); /* an earlier one of that number */
        assert_int_equal(x->uncharged_owner, 0);
        assert_true(frame_unlend(&x->f, TX, frame_id_num(id)));
        assert_true(frame_name_over(&x->f, id, 41));
        assert_int_equal(x->uncharged_owner, 7);
        assert_int_equal(x->uncharged, 0);
        assert_int_equal(x->pool->loans, 0);
        assert_false(frame_unlend(&x->f, TX, frame_id_num(id)));
        assert_false(frame_unlend(&x->f, TX, frame_geom_total(geom) + FRAME_NAMES + 1));
        assert_int_equal(frame_avail(&x->f, TX, FRAME_SMALL), SMALL);
}

static void names_run_out_and_come_back(void **state)
{
        struct fixture *x = *state;
        uint32_t id[FRAME_NAMES];

        for (uint32_t i = 0; i < FRAME_NAMES; i++) {
                id[i] = frame_name(&x->f, TX, 1, i);
                assert_int_not_equal(id[i], 0);
                frame_lend(&x->f, id[i]);
        }
        assert_int_equal(frame_name(&x->f, TX, 1, 1), 0);
        for (uint32_t i = 0; i < FRAME_NAMES; i++)
                frame_drop(&x->f, id[i]);
        assert_int_equal(frame_name(&x->f, TX, 1, 1), 0);
        frame_unlend_all(&x->f, TX);
        for (uint32_t i = 0; i < FRAME_NAMES; i++)
                assert_true(frame_name_over(&x->f, id[i], i));
        assert_int_not_equal(frame_name(&x->f, TX, 1, 1), 0);
}

static bool is_9(void *arg, uint32_t serial)
{
        return serial == 9;
}

/* After a death: one is in a queue, one with the peer, and one is nobody's any more. */
static void names_are_counted_anew(void **state)
{
        struct fixture *x = *state;
        uint32_t queued = frame_name(&x->f, TX, 1, 8), lent = frame_name(&x->f, TX, 1, 9),
                 lost = frame_name(&x->f, TX, 1, 10);

        frame_lend(&x->f, lent);
        frame_pool_zero_refs(x->pool);
        frame_pool_rec(x->pool, frame_id_num(queued))->refs++;
        frame_pool_rebuild(x->pool);
        assert_false(frame_name_over(&x->f, queued, 8));
        assert_false(frame_name_over(&x->f, lent, 9));
        assert_true(frame_name_over(&x->f, lost, 10));
        assert_int_equal(x->pool->loans, 1);
        assert_true(frame_pool_any_name(x->pool, is_9, NULL));
        assert_true(frame_unlend(&x->f, TX, frame_id_num(lent)));
        assert_false(frame_pool_any_name(x->pool, is_9, NULL));
}

static void a_class_runs_out_alone(void **state)
{
        struct fixture *x = *state;

        for (uint32_t i = 0; i < SMALL; i++) {
                assert_int_equal(frame_avail(&x->f, TX, FRAME_SMALL), SMALL - i);
                assert_int_equal(frame_size(&x->f, frame_alloc(&x->f, TX, FRAME_SMALL, 0)),
                                 FRAME_SMALL_BYTES);
        }
        assert_int_equal(frame_alloc(&x->f, TX, FRAME_SMALL, 0), 0);
        assert_int_equal(frame_avail(&x->f, TX, FRAME_LARGE), LARGE);
        assert_int_equal(frame_size(&x->f, frame_alloc(&x->f, TX, FRAME_LARGE, 0)),
                         FRAME_LARGE_BYTES);
}

static void free_when_the_last_record_lets_go(void **state)
{
        struct fixture *x = *state;
        uint32_t id = frame_alloc(&x->f, TX, FRAME_LARGE, 7);

        frame_hold(&x->f, id);
        frame_drop(&x->f, id);
        assert_int_equal(frame_avail(&x->f, TX, FRAME_LARGE), LARGE - 1);
        assert_int_equal(x->uncharged, 0);
        frame_drop(&x->f, id);
        assert_int_equal(frame_avail(&x->f, TX, FRAME_LARGE), LARGE);
        assert_int_equal(x->uncharged_owner, 7);
        assert_int_equal(x->uncharged, FRAME_LARGE_BYTES);
}

/* Retransmission and the reader on the other side: free when both have let go, in either order. */
static void free_when_loan_and_reference_have_both_ended(void **state)
{
        struct fixture *x = *state;

        for (int reader_first = 0; reader_first < 2; reader_first++) {
                uint32_t id = frame_alloc(&x->f, TX, FRAME_SMALL, 0);

                frame_lend(&x->f, id);
                frame_lend(&x->f, id); /* a retransmission is on its way too */
                if (reader_first) {
                        assert_true(frame_unlend(&x->f, TX, frame_id_num(id)));
                        assert_true(frame_unlend(&x->f, TX, frame_id_num(id)));
                        assert_int_equal(frame_avail(&x->f, TX, FRAME_SMALL), SMALL - 1);
                        frame_drop(&x->f, id);
                } else {
                        frame_drop(&x->f, id);
                        assert_true(frame_unlend(&x->f, TX, frame_id_num(id)));
                        assert_int_equal(frame_avail(&x->f, TX, FRAME_SMALL), SMALL - 1);
                        assert_true(frame_unlend(&x->f, TX, frame_id_num(id)));
                }
                assert_int_equal(frame_avail(&x->f, TX, FRAME_SMALL), SMALL);
        }
        assert_int_equal(x->pool->bad_returns, 0);
}

/* A hostile peer returns what it never had: counted, and nothing moves. */
static void returns_that_were_no_loans_are_counted(void **state)
{
        struct fixture *x = *state;
        uint32_t id = frame_alloc(&x->f, TX, FRAME_SMALL, 0);

        assert_false(frame_unlend(&x->f, TX, frame_id_num(id)));
        assert_false(frame_unlend(&x->f, TX, 0));
        assert_false(frame_unlend(&x->f, TX, frame_geom_total(geom) + 1));
        assert_false(frame_unlend(&x->f, TX, UINT32_MAX));
        assert_int_equal(x->pool->bad_returns, 4);
        assert_int_equal(frame_avail(&x->f, TX, FRAME_SMALL), SMALL - 1);
        frame_lend(&x->f, id);
        assert_true(frame_unlend(&x->f, TX, frame_id_num(id)));
        assert_false(frame_unlend(&x->f, TX, frame_id_num(id)));
}

static void a_lent_frame_goes_back_to_its_channel(void **state)
{
        struct fixture *x = *state;

        frame_drop(&x->f, frame_id(RX, 6));
        assert_int_equal(x->back_chan, CHAN);
        assert_int_equal(x->back_num, 6);
        assert_int_equal(x->backs, 1);
}

static void when_the_channel_dies_its_loans_end(void **state)
{
        struct fixture *x = *state;
        uint32_t a = frame_alloc(&x->f, TX, FRAME_SMALL, 0),
                 b = frame_alloc(&x->f, TX, FRAME_LARGE, 0);

        frame_lend(&x->f, a);
        frame_lend(&x->f, b);
        frame_drop(&x->f, a);
        frame_unlend_all(&x->f, TX);
        assert_int_equal(frame_avail(&x->f, TX, FRAME_SMALL), SMALL);
        assert_int_equal(frame_avail(&x->f, TX, FRAME_LARGE), LARGE - 1);
        assert_int_equal(x->pool->loans, 0);
        frame_drop(&x->f, b);
        assert_int_equal(frame_avail(&x->f, TX, FRAME_LARGE), LARGE);
}

/* The free lists come from references and loans alone; one that is on loan is not free though
 * nobody names it. */
static void free_lists_are_made_anew(void **state)
{
        struct fixture *x = *state;
        uint32_t id[LARGE + SMALL], n = 0, kept = 0;
        struct prng_fast g;

        prng_fast_init(&g, 3);
        for (int round = 0; round < 100; round++) {
                for (n = 0; n < LARGE + SMALL; n++)
                        id[n] = frame_alloc(&x->f, TX, n < LARGE ? FRAME_LARGE : FRAME_SMALL, 0);
                frame_pool_zero_refs(x->pool);
                kept = prng_fast_below(&g, 1u << n);
                for (uint32_t i = 0; i < n; i++) {
                        if (kept >> i & 1 && i % 2)
                                frame_pool_rec(x->pool, frame_id_num(id[i]))->refs = 1;
                        else if (kept >> i & 1)
                                frame_lend(&x->f, id[i]);
                }
                x->pool->free[FRAME_SMALL] = x->pool->free[FRAME_LARGE] =
                        99; /* as a dead process left them */
                frame_pool_rebuild(x->pool);
                assert_int_equal(x->pool->used[0] + x->pool->used[1],
                                 (uint32_t)__builtin_popcount(kept));
                for (uint32_t i = 0; i < n; i++) {
                        if (kept >> i & 1 && i % 2)
                                frame_drop(&x->f, id[i]);
                        else if (kept >> i & 1)
                                assert_true(frame_unlend(&x->f, TX, frame_id_num(id[i])));
                }
                assert_int_equal(x->pool->used[0] + x->pool->used[1], 0);
        }
}

/* What nobody else reads stays warm, and so the guess of the next one is right. */
static void a_frame_freed_is_the_next_one(void **state)
{
        struct fixture *x = *state;

        for (enum frame_class c = 0; c < FRAME_CLASSES; c++) {
                uint32_t a = frame_alloc(&x->f, TX, c, 0), b = frame_alloc(&x->f, TX, c, 0);

                assert_null(frame_guess(&x->f, TX, c));
                frame_drop(&x->f, a);
                frame_drop(&x->f, b);
                assert_ptr_equal(frame_guess(&x->f, TX, c), frame_addr(&x->f, b));
                assert_int_equal(frame_alloc(&x->f, TX, c, 0), b);
                assert_int_equal(frame_alloc(&x->f, TX, c, 0), a);
        }
}

/* But those written in place, of which the same few go round; and only as long as they are so. */
static void near_frames_do_not_wait_for_a_turn(void **state)
{
        struct fixture *x = *state;
        uint32_t id[LARGE];

        x->pool->sent = 1;
        for (uint32_t i = 0; i < LARGE; i++)
                id[i] = frame_alloc(&x->f, TX, FRAME_LARGE, 0);
        for (uint32_t i = 0; i < LARGE; i++)
                frame_drop(&x->f, id[i]);
        assert_int_equal(frame_alloc(&x->f, TX, FRAME_LARGE, 0), id[0]);
        for (int i = 0; i < 10; i++) {
                frame_near(&x->f, id[0]);
                frame_hold(&x->f, id[0]);
                frame_lend(&x->f, id[0]);
                frame_drop(&x->f, id[0]);
                frame_drop(&x->f, id[0]);
                assert_true(frame_unlend(&x->f, TX, frame_id_num(id[0])));
                assert_int_equal(frame_alloc(&x->f, TX, FRAME_LARGE, 0), id[0]);
        }
        frame_drop(&x->f, id[0]);
        for (uint32_t i = 1; i < LARGE; i++)
                assert_int_equal(frame_alloc(&x->f, TX, FRAME_LARGE, 0), id[i]);
        assert_int_equal(frame_alloc(&x->f, TX, FRAME_LARGE, 0), id[0]);
        assert_int_equal(frame_alloc(&x->f, TX, FRAME_LARGE, 0), 0);
}

/* Small ones stay warm; large ones come back when the others have had their turn, in the order in
 * which they were freed. */
static void large_frames_take_turns(void **state)
{
        struct fixture *x = *state;
        uint32_t first[LARGE], small = frame_alloc(&x->f, TX, FRAME_SMALL, 0);

        frame_drop(&x->f, small);
        assert_int_equal(frame_alloc(&x->f, TX, FRAME_SMALL, 0), small);
        x->pool->sent = 1;
        for (uint32_t i = 0; i < LARGE; i++) {
                first[i] = frame_alloc(&x->f, TX, FRAME_LARGE, 0);
                for (uint32_t k = 0; k < i; k++)
                        assert_int_not_equal(first[i], first[k]);
                frame_drop(&x->f, first[i]);
        }
        for (uint32_t i = 0; i < 3 * LARGE; i++) {
                assert_int_equal(frame_alloc(&x->f, TX, FRAME_LARGE, 0), first[i % LARGE]);
                frame_drop(&x->f, first[i % LARGE]);
        }
        for (uint32_t i = 0; i < LARGE; i++)
                first[i] = frame_alloc(&x->f, TX, FRAME_LARGE, 0);
        assert_int_equal(frame_alloc(&x->f, TX, FRAME_LARGE, 0), 0);
        for (uint32_t i = LARGE; i-- > 0;)
                frame_drop(&x->f, first[i]);
        for (uint32_t i = LARGE; i-- > 0;)
                assert_int_equal(frame_alloc(&x->f, TX, FRAME_LARGE, 0), first[i]);
}

/* An interface goes by a bridge now, and what was freed for use while warm is freed for turns. */
static void a_pool_that_begins_to_take_turns_loses_no_frame(void **state)
{
        struct fixture *x = *state;
        uint32_t id[LARGE];

        for (uint32_t i = 0; i < LARGE; i++)
                id[i] = frame_alloc(&x->f, TX, FRAME_LARGE, 0);
        for (uint32_t i = 0; i + 1 < LARGE; i++)
                frame_drop(&x->f, id[i]);
        x->pool->sent = 1;
        frame_drop(&x->f, id[LARGE - 1]);
        for (uint32_t i = 0; i < LARGE; i++)
                assert_int_not_equal(frame_alloc(&x->f, TX, FRAME_LARGE, 0), 0);
}

static void who_waits_for_a_frame_is_told_once(void **state)
{
        struct fixture *x = *state;
        uint32_t small = frame_alloc(&x->f, TX, FRAME_SMALL, 0), large[2];

        for (int i = 0; i < 2; i++)
                large[i] = frame_alloc(&x->f, TX, FRAME_LARGE, 0);
        x->pool->starved = 1u << FRAME_LARGE;
        frame_drop(&x->f, small);
        assert_int_equal(x->fed, 0);
        frame_lend(&x->f, large[0]);
        frame_drop(&x->f, large[0]);
        assert_int_equal(x->fed, 0);
        assert_true(frame_unlend(&x->f, TX, frame_id_num(large[0])));
        assert_int_equal(x->fed, 1);
        assert_int_equal(x->fed_region, TX);
        frame_drop(&x->f, large[1]);
        assert_int_equal(x->fed, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(a_name_leads_into_the_memory),
                TEST(a_name_is_over_when_all_let_go),
                TEST(names_run_out_and_come_back),
                TEST(names_are_counted_anew),
                TEST(numbers_and_places_agree),
                TEST(a_range_outside_its_frame_is_seen),
                TEST(a_class_runs_out_alone),
                TEST(a_frame_freed_is_the_next_one),
                TEST(large_frames_take_turns),
                TEST(near_frames_do_not_wait_for_a_turn),
                TEST(a_pool_that_begins_to_take_turns_loses_no_frame),
                TEST(free_when_the_last_record_lets_go),
                TEST(free_when_loan_and_reference_have_both_ended),
                TEST(returns_that_were_no_loans_are_counted),
                TEST(a_lent_frame_goes_back_to_its_channel),
                TEST(when_the_channel_dies_its_loans_end),
                TEST(free_lists_are_made_anew),
                TEST(who_waits_for_a_frame_is_told_once),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
