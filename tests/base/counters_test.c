/* Every counter and drop has a name of its own and a sentence; whoever prints them relies on it. */
#include "base/counters.h"
#include "tests/unit.h"

static void every_drop_has_a_name_and_a_sentence(void **state)
{
        for (int i = 0; i < DROP_COUNT; i++) {
                assert_true(strlen(drop_name((enum drop)i)) > 2);
                assert_true(strlen(drop_text((enum drop)i)) > 5);
                for (int k = 0; k < i; k++)
                        assert_string_not_equal(drop_name((enum drop)i), drop_name((enum drop)k));
        }
        assert_string_equal(drop_name(DROP_NONE), "NONE");
        assert_string_equal(drop_name(DROP_UDP_FULL), "UDP_FULL");
        assert_string_equal(drop_name(DROP_COUNT), "?");
        assert_string_equal(drop_text(DROP_COUNT), "?");
}

static void every_counter_has_a_name_and_a_sentence(void **state)
{
        for (int i = 0; i < COUNT_COUNT; i++) {
                assert_true(strlen(count_name((enum count)i)) > 2);
                assert_true(strlen(count_text((enum count)i)) > 5);
        }
        assert_string_equal(count_name(COUNT_TCP_RETRANS), "TCP_RETRANS");
        assert_string_equal(count_name(COUNT_COUNT), "?");
        assert_string_equal(count_text(COUNT_COUNT), "?");
}

static void they_count(void **state)
{
        struct counters c = {{0}, {0}};

        count(&c, COUNT_UDP_IN);
        count_add(&c, COUNT_UDP_IN, 41);
        count_drop(&c, DROP_UDP_FULL);
        assert_int_equal(c.n[COUNT_UDP_IN], 42);
        assert_int_equal(c.drop[DROP_UDP_FULL], 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_drop_has_a_name_and_a_sentence),
                cmocka_unit_test(every_counter_has_a_name_and_a_sentence),
                cmocka_unit_test(they_count),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
