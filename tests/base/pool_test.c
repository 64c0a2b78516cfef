/* The pool: indices from 1, last in first out, and a free list that can be made anew. */
#include <stdlib.h>

#include "base/pool.h"
#include "base/prng.h"
#include "tests/unit.h"

#define CAP 100u

struct rec {
        uint32_t link;
        uint32_t value;
        uint64_t more;
};

struct fixture {
        struct pool pool;
        struct rec rec[CAP];
        uint64_t beyond; /* must not be touched */
};

static int setup(void **state)
{
        struct fixture *f = calloc(1, sizeof *f);

        f->beyond = 0x1122334455667788;
        pool_init(&f->pool, f->rec, sizeof(struct rec), CAP);
        *state = f;
        return 0;
}

static int teardown(void **state)
{
        struct fixture *f = *state;

        assert_true(f->beyond == 0x1122334455667788);
        free(f);
        return 0;
}

static void indices_begin_at_1_and_end_before_cap(void **state)
{
        struct fixture *f = *state;

        for (uint32_t i = 1; i < CAP; i++) {
                assert_int_equal(pool_room(&f->pool), CAP - i);
                assert_int_equal(pool_alloc(&f->pool), i);
                assert_ptr_equal(pool_at(&f->pool, i), &f->rec[i]);
                assert_int_equal(pool_index(&f->pool, &f->rec[i]), i);
        }
        assert_int_equal(pool_alloc(&f->pool), 0);
        assert_int_equal(pool_room(&f->pool), 0);
        assert_int_equal(f->pool.high, CAP - 1);
}

static void the_one_freed_last_comes_first(void **state)
{
        struct fixture *f = *state;
        uint32_t a = pool_alloc(&f->pool), b = pool_alloc(&f->pool);

        pool_free(&f->pool, a);
        pool_free(&f->pool, b);
        assert_int_equal(f->pool.used, 0);
        assert_int_equal(pool_alloc(&f->pool), b);
        assert_int_equal(pool_alloc(&f->pool), a);
        assert_int_equal(f->pool.fresh, 3);
}

static void freeing_changes_the_first_four_bytes_only(void **state)
{
        struct fixture *f = *state;
        uint32_t a = pool_alloc(&f->pool);

        f->rec[a] = (struct rec){1, 2, 3};
        pool_free(&f->pool, a);
        assert_int_equal(pool_alloc(&f->pool), a);
        assert_int_equal(f->rec[a].value, 2);
        assert_true(f->rec[a].more == 3);
}

/* Whatever the free list was, records in use stay and all others can be had again, once each. */
static void the_free_list_is_made_anew_from_what_is_live(void **state)
{
        struct fixture *f = *state;
        uint64_t live[CAP / 64 + 1], seen[CAP / 64 + 1];
        struct prng_fast g;
        uint32_t i;

        prng_fast_init(&g, 42);
        for (int round = 0; round < 200; round++) {
                memset(live, 0, sizeof live);
                for (i = 1; i < f->pool.fresh; i++)
                        live[i / 64] |= (uint64_t)prng_fast_chance(&g, 1, 2) << i % 64;
                memcpy(seen, live, sizeof live);
                f->pool.free = 0xdeadbeef; /* whoever died left it like that */
                pool_rebuild(&f->pool, live);
                while ((i = pool_alloc(&f->pool)) != 0 && i < 60 + (uint32_t)round / 5) {
                        assert_int_equal(seen[i / 64] >> i % 64 & 1, 0);
                        seen[i / 64] |= 1ull << i % 64;
                }
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(indices_begin_at_1_and_end_before_cap),
                TEST(the_one_freed_last_comes_first),
                TEST(freeing_changes_the_first_four_bytes_only),
                TEST(the_free_list_is_made_anew_from_what_is_live),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
