/* OpenMetrics text of samples that another user may have made up. */
#include <stdlib.h>
#include <string.h>

#include "tools/metrics.h"
#include "tests/unit.h"

static char *written(json_t *sample, unsigned most)
{
        static const struct metrics_daemon d = {.up = true, .clients = 3};
        char *text = NULL;
        size_t n;
        FILE *out = open_memstream(&text, &n);

        assert_non_null(sample);
        metrics_write(out, &d, sample, most);
        fclose(out);
        json_decref(sample);
        return text;
}

static unsigned times(const char *text, const char *what)
{
        unsigned n = 0;

        for (; (text = strstr(text, what)) != NULL; text++)
                n++;
        return n;
}

static void names_are_escaped(void **state)
{
        char *text = written(
                json_pack("[{si si ss}]", "stack", 7, "uid", 5, "program", "a\"b\\c\nd"), 64);

        assert_non_null(strstr(
                text, "\nunet_stack_info{stack=\"7\",uid=\"5\",program=\"a\\\"b\\\\c\\nd\"} 1\n"));
        free(text);
}

static void no_series_is_there_twice(void **state)
{
        char *text = written(json_pack("[{si si} {si si} {si si}]", "stack", 7, "uid", 5, "stack",
                                       7, "uid", 5, "stack", 7, "uid", 6),
                             64);

        assert_int_equal(times(text, "\nunet_tcp_in_total{"), 2);
        assert_non_null(strstr(text, "\nunet_stacks_left_out 1\n"));
        free(text);
}

static void many_stacks_of_one_user_leave_the_others_theirs(void **state)
{
        json_t *sample = json_array();
        char *text;

        for (int i = 0; i < 10; i++)
                json_array_append_new(sample,
                                      json_pack("{si si}", "stack", i, "uid", i < 9 ? 5 : 6));
        text = written(sample, 4);
        assert_int_equal(times(text, "\nunet_tcp_in_total{"), 5);
        assert_int_equal(times(text, "\nunet_tcp_in_total{stack=\"9\",uid=\"6\"} 0\n"), 1);
        assert_non_null(strstr(text, "\nunet_stacks_left_out 5\n"));
        free(text);
}

static void what_is_missing_or_of_another_kind_is_0(void **state)
{
        json_t *sample = json_pack("[n s i {} {ss s[s] si s[i{}]}]", "x", 4, "stack", "x",
                                   "counters", "y", "drops", -5, "sockets", 9);
        char *text = written(sample, 64);

        assert_int_equal(times(text, "\nunet_tcp_in_total{stack=\"0\",uid=\"0\"} 0\n"), 1);
        assert_int_equal(times(text, "\nunet_sockets{"), 10);
        assert_non_null(strstr(text, "\n# EOF\n"));
        free(text);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(names_are_escaped),
                cmocka_unit_test(no_series_is_there_twice),
                cmocka_unit_test(many_stacks_of_one_user_leave_the_others_theirs),
                cmocka_unit_test(what_is_missing_or_of_another_kind_is_0),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
