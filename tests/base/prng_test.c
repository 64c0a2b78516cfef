/* Both generators: the same for the same seed, spread evenly, and never a number out of range. */
#include "base/prng.h"
#include "tests/unit.h"

static const uint8_t seed[16] = {1, 2, 3, 4, 5, 6, 7, 8};

static void the_same_seed_gives_the_same_numbers(void **state)
{
        struct prng a, b;
        struct prng_fast c, d;

        prng_init(&a, seed);
        prng_init(&b, seed);
        prng_fast_init(&c, 7);
        prng_fast_init(&d, 7);
        for (int i = 0; i < 1000; i++) {
                assert_true(prng_u64(&a) == prng_u64(&b));
                assert_true(prng_fast_u64(&c) == prng_fast_u64(&d));
        }
}

static void another_seed_gives_other_numbers(void **state)
{
        uint8_t other[16] = {1, 2, 3, 4, 5, 6, 7, 9};
        struct prng a, b;

        prng_init(&a, seed);
        prng_init(&b, other);
        assert_true(prng_u64(&a) != prng_u64(&b));
}

static void the_key_is_replaced_and_the_old_one_forgotten(void **state)
{
        struct prng g;
        struct sip_key first;

        prng_init(&g, seed);
        first = g.key;
        for (unsigned i = 0; i < PRNG_RATCHET; i++)
                prng_u64(&g);
        assert_memory_not_equal(&g.key, &first, sizeof first);
}

/* xoshiro256** from the state 1, 2, 3, 4: the first outputs of the authors' code. */
static void the_fast_one_is_xoshiro256_starstar(void **state)
{
        struct prng_fast g = {{1, 2, 3, 4}};

        assert_true(prng_fast_u64(&g) == 11520);
        assert_true(prng_fast_u64(&g) == 0);
        assert_true(prng_fast_u64(&g) == 1509978240);
        assert_true(prng_fast_u64(&g) == 1215971899390074240);
}

static void below_is_below_and_reaches_all(void **state)
{
        unsigned seen[2][10] = {{0}};
        struct prng g;
        struct prng_fast f;

        prng_init(&g, seed);
        prng_fast_init(&f, 0);
        for (int i = 0; i < 10000; i++) {
                seen[0][prng_below(&g, 10)]++;
                seen[1][prng_fast_below(&f, 10)]++;
        }
        for (int i = 0; i < 10; i++) { /* 1000 expected, standard deviation 30 */
                assert_in_range(seen[0][i], 800, 1200);
                assert_in_range(seen[1][i], 800, 1200);
        }
        assert_int_equal(prng_below(&g, 1), 0);
}

static void bytes_fills_all_and_no_more(void **state)
{
        uint8_t buf[21] = {0};
        struct prng g;
        unsigned zero = 0;

        prng_init(&g, seed);
        buf[20] = 0x5a;
        prng_bytes(&g, buf, 20);
        for (int i = 0; i < 20; i++)
                zero += buf[i] == 0;
        assert_true(zero < 4);
        assert_int_equal(buf[20], 0x5a);
}

static void chance_keeps_its_rate(void **state)
{
        struct prng_fast g;
        int hits = 0;

        prng_fast_init(&g, 1);
        for (int i = 0; i < 10000; i++)
                hits += prng_fast_chance(&g, 1, 100);
        assert_in_range(hits, 50, 150);
        assert_false(prng_fast_chance(&g, 0, 100));
        assert_true(prng_fast_chance(&g, 100, 100));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_same_seed_gives_the_same_numbers),
                cmocka_unit_test(another_seed_gives_other_numbers),
                cmocka_unit_test(the_key_is_replaced_and_the_old_one_forgotten),
                cmocka_unit_test(the_fast_one_is_xoshiro256_starstar),
                cmocka_unit_test(below_is_below_and_reaches_all),
                cmocka_unit_test(bytes_fills_all_and_no_more),
                cmocka_unit_test(chance_keeps_its_rate),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
