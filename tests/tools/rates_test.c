/* Rates of `unet top`: two samples that are known, and what lies between them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/counters.h"
#include "tools/rates.h"
#include "tests/unit.h"

#define TCP_SOCKET                                                                                 \
        "'protocol': 'tcp', 'object': 1, 'state': 'ESTABLISHED', 'local': '127.0.0.1:1', 'peer': " \
        "'127.0.0.1:2'"

/* Quotes of either kind. */
static json_t *parse(const char *text)
{
        json_error_t err;
        char *s = strdup(text);
        json_t *v;

        for (char *c = s; *c; c++)
                if (*c == '\'')
                        *c = '"';
        v = json_loads(s, 0, &err);
        if (!v)
                fail_msg("%s: %s", err.text, s);
        free(s);
        return v;
}

/* A sample of one stack at that second, with these keys besides. */
static json_t *sample(int second, const char *keys)
{
        json_t *all = json_array(), *row = parse(keys);

        json_object_set_new(row, "stack", json_integer(7));
        json_object_set_new(row, "uid", json_integer(1000));
        json_object_set_new(row, "pid", json_integer(100));
        json_object_set_new(row, "ns", json_integer(second * NS_PER_S));
        json_array_append_new(all, row);
        return all;
}

static json_t *set_counter(json_t *sample, const char *array, int i, int value)
{
        json_t *row = json_array_get(sample, 0), *a = json_object_get(row, array);

        if (!a) {
                a = json_array();
                json_object_set_new(row, array, a);
        }
        while (json_array_size(a) < (size_t)(COUNT_COUNT + DROP_COUNT))
                json_array_append_new(a, json_integer(0));
        json_array_set_new(a, (size_t)i, json_integer(value));
        return sample;
}

/* The rates of the first stack or flow between two samples, which it gives up. */
static json_t *first(const char *list, json_t *before, json_t *after)
{
        json_t *rates = rates_between(before, after),
               *row = json_incref(json_array_get(json_object_get(rates, list), 0));

        assert_non_null(row);
        json_decref(rates);
        json_decref(before);
        json_decref(after);
        return row;
}

static double number(const json_t *row, const char *key)
{
        assert_true(json_is_number(json_object_get(row, key)));
        return json_number_value(json_object_get(row, key));
}

#define assert_rate(row, key, want) \
        assert_true(fabs(number(row, key) - (want)) < 1e-9 * (want) + 1e-12)

static void counters_are_divided_by_the_time_between(void **state)
{
        json_t *before =
                set_counter(set_counter(sample(10, "{}"), "counters", COUNT_NI_RX_BYTES, 1000),
                            "drops", DROP_TCP_PAWS, 3);
        json_t *after =
                set_counter(set_counter(sample(14, "{}"), "counters", COUNT_NI_RX_BYTES, 9000),
                            "drops", DROP_TCP_PAWS, 5);
        json_t *row;

        set_counter(set_counter(after, "counters", COUNT_NI_TX_MSGS, 6), "drops", DROP_UDP_FULL, 8);
        row = first("stacks", before, after);
        assert_rate(row, "rx_bytes", 2000);
        assert_rate(row, "tx_messages", 1.5);
        assert_rate(row, "rx_messages", 0);
        assert_rate(row, "drops", 2.5);
        assert_string_equal(json_string_value(json_object_get(row, "drop_reason")), "UDP_FULL");
        json_decref(row);
}

/* A process that came meanwhile may have worked for hours before it got the stack. */
static void processors_of_processes_that_were_there(void **state)
{
        json_t *row = first("stacks", sample(1, "{'cpu': {'100': 5000000000, '101': 1000000000}}"),
                            sample(3, "{'cpu': {'100': 6000000000, '102': 900000000000}}"));

        assert_rate(row, "cpu", 0.5);
        json_decref(row);
        row = first("stacks", sample(1, "{'cpu': {}}"),
                    sample(3, "{'cpu': {'102': 900000000000}}"));
        assert_true(json_is_null(json_object_get(row, "cpu")));
        json_decref(row);
}

static void a_stack_that_was_not_seen_has_no_rates(void **state)
{
        json_t *row = first("stacks", NULL,
                            set_counter(sample(3, "{}"), "counters", COUNT_NI_RX_BYTES, 9000));

        assert_true(json_is_null(json_object_get(row, "rx_bytes")));
        assert_true(json_is_null(json_object_get(row, "drops")));
        json_decref(row);
        row = first("flows", NULL,
                    sample(3, "{'sockets': [{" TCP_SOCKET ", 'bytes_sent': 4000}]}"));
        assert_true(json_is_null(json_object_get(row, "tx_bytes")));
        json_decref(row);
}

static void a_flow_has_rates_and_what_limits_it(void **state)
{
        json_t *row = first(
                "flows",
                sample(1, "{'sockets': [{" TCP_SOCKET
                          ", 'bytes_sent': 1000, 'bytes_received': 10, 'segments_in': 1,"
                          "'limited': {'application': 9000000000, 'receiver': 0, 'cwnd': 100}}]}"),
                sample(5, "{'sockets': [{" TCP_SOCKET
                          ", 'bytes_sent': 9000, 'bytes_received': 12, 'segments_in': 5,"
                          "'limited': {'application': 9500000000, 'receiver': 3000000000, 'cwnd': "
                          "100}}]}"));

        assert_rate(row, "tx_bytes", 2000);
        assert_rate(row, "rx_bytes", 0.5);
        assert_rate(row, "rx_messages", 1);
        assert_string_equal(json_string_value(json_object_get(row, "limit")), "receiver");
        assert_rate(row, "limited", 0.75);
        assert_true(json_is_null(json_object_get(row, "drops")));
        json_decref(row);
}

/* All that it did was done since: it is new, or its number and addresses are an earlier one's. */
static void a_flow_that_began_meanwhile(void **state)
{
        json_t *row = first("flows", sample(1, "{'sockets': []}"),
                            sample(3, "{'sockets': [{" TCP_SOCKET ", 'bytes_sent': 4000}]}"));

        assert_rate(row, "tx_bytes", 2000);
        json_decref(row);
        row = first("flows", sample(1, "{'sockets': [{" TCP_SOCKET ", 'bytes_sent': 5000}]}"),
                    sample(3, "{'sockets': [{" TCP_SOCKET ", 'bytes_sent': 4000}]}"));
        assert_rate(row, "tx_bytes", 2000);
        json_decref(row);
}

/* Two UDP sockets may have the same ends. */
static void sockets_are_told_apart_by_their_numbers(void **state)
{
        static const char *const text = "{'sockets': [{'protocol': 'udp', 'object': 1, 'local': "
                                        "'*:5', 'peer': '*:*', 'datagrams_in': %d},"
                                        "{'protocol': 'udp', 'object': 2, 'local': '*:5', 'peer': "
                                        "'*:*', 'datagrams_in': %d}]}";
        char before[512], after[512];
        json_t *a, *b, *rates, *flows;

        snprintf(before, sizeof before, text, 100, 9);
        snprintf(after, sizeof after, text, 104, 29);
        a = sample(1, before);
        b = sample(3, after);
        rates = rates_between(a, b);
        flows = json_object_get(rates, "flows");
        assert_int_equal(json_array_size(flows), 2);
        assert_rate(json_array_get(flows, 0), "rx_messages", 10); /* the busiest is first */
        assert_rate(json_array_get(flows, 1), "rx_messages", 2);
        json_decref(rates);
        json_decref(a);
        json_decref(b);
}

/* What comes from another user's process may be anything. */
static void nonsense_is_borne(void **state)
{
        static const char *const samples[] = {
                "[1, null, 'x', [], {}]",
                "[{'stack': 'x', 'ns': -5, 'counters': 7, 'drops': {}, 'sockets': 3, 'cpu': []}]",
                "[{'stack': 7, 'pid': 1, 'ns': 9, 'counters': ['a'], 'drops': [-1], 'sockets': [1, "
                "{}, {'protocol': 5, 'limited': 1}]}]",
                "[{'stack': 7, 'pid': 1, 'ns': 9223372036854775807, 'sockets': [{'limited': {'a': "
                "'b', 'c': -4}}], 'cpu': {'x': 'y'}}]"};

        for (size_t i = 0; i < ARRAY_LEN(samples); i++)
                for (size_t j = 0; j < ARRAY_LEN(samples); j++) {
                        json_t *a = parse(samples[i]), *b = parse(samples[j]),
                               *rates = rates_between(a, b);
                        char *text = json_dumps(rates, 0);

                        assert_non_null(text);
                        free(text);
                        json_decref(rates);
                        json_decref(a);
                        json_decref(b);
                }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(counters_are_divided_by_the_time_between),
                cmocka_unit_test(processors_of_processes_that_were_there),
                cmocka_unit_test(a_stack_that_was_not_seen_has_no_rates),
                cmocka_unit_test(a_flow_has_rates_and_what_limits_it),
                cmocka_unit_test(a_flow_that_began_meanwhile),
                cmocka_unit_test(sockets_are_told_apart_by_their_numbers),
                cmocka_unit_test(nonsense_is_borne),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
