/* See rates.h. Samples come from other users' processes too: every value may be missing, or of
 * another kind. */
#include "tools/rates.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/counters.h"

static json_int_t get(const json_t *o, const char *key)
{
        return json_integer_value(json_object_get(o, key));
}

static json_t *per_second(json_int_t n, double seconds)
{
        return json_real((double)n / seconds);
}

/* What a total went up by; all of it when it began anew. */
static json_int_t grown(json_int_t before, json_int_t after)
{
        return after >= before ? after - before : after;
}

/* The row of `rows` with these values of `keys`; NULL: there is none. */
static const json_t *find(const json_t *rows, const json_t *like, const char *const *keys)
{
        for (size_t i = 0; i < json_array_size(rows); i++) {
                const json_t *row = json_array_get(rows, i);
                const char *const *k = keys;

                while (*k && json_equal(json_object_get(row, *k), json_object_get(like, *k)))
                        k++;
                if (!*k)
                        return row;
        }
        return NULL;
}

/* ---- flows ---- */

static void add_rate(json_t *flow, const char *name, const json_t *was, const json_t *is,
                     const char *total, double seconds)
{
        json_t *rate = json_null();

        if (seconds > 0 && json_object_get(is, total))
                rate = per_second(grown(get(was, total), get(is, total)), seconds);
        json_object_set_new(flow, name, rate);
}

/* What held the sender up for most of the time. */
static void add_limit(json_t *flow, const json_t *was, const json_t *is, double seconds)
{
        json_t *now = json_object_get(is, "limited");
        const json_t *then = json_object_get(was, "limited");
        const char *name, *most = NULL;
        json_int_t longest = 0;
        json_t *v;

        if (seconds > 0)
                json_object_foreach (now, name, v) {
                        json_int_t ns = grown(get(then, name), json_integer_value(v));

                        if (ns > longest) {
                                longest = ns;
                                most = name;
                        }
                }
        json_object_set_new(flow, "limit", most ? json_string(most) : json_null());
        json_object_set_new(flow, "limited",
                            most ? json_real(MIN((double)longest / NS_PER_S / seconds, 1.0))
                                 : json_null());
}

static void copy(json_t *to, const json_t *from, const char *const *keys)
{
        for (; *keys; keys++) {
                json_t *v = json_object_get(from, *keys);

                json_object_set(to, *keys, v ? v : json_null());
        }
}

/* `seconds` 0: not known. */
static json_t *flow_rates(const json_t *was, const json_t *is, double seconds)
{
        static const char *const same[] = {"stack",  "protocol", "state", "local",
                                           "peer",   "holders",  "rtt",   "cwnd",
                                           "recv_q", "send_q",   NULL};
        const char *protocol = json_string_value(json_object_get(is, "protocol"));
        bool udp = protocol && strcmp(protocol, "udp") == 0;
        json_t *flow = json_object();

        copy(flow, is, same);
        add_rate(flow, "rx_bytes", was, is, "bytes_received", seconds);
        add_rate(flow, "tx_bytes", was, is, "bytes_sent", seconds);
        add_rate(flow, "rx_messages", was, is, udp ? "datagrams_in" : "segments_in", seconds);
        add_rate(flow, "tx_messages", was, is, udp ? "datagrams_out" : "segments_out", seconds);
        add_rate(flow, "retransmits", was, is, "retransmits", seconds);
        add_rate(flow, "drops", was, is, "dropped", seconds);
        add_limit(flow, was, is, seconds);
        return flow;
}

/* The same socket has the same key in both samples. */
static char *flow_key(const json_t *socket)
{
        static const char *const who[] = {"protocol", "object", "local", "peer", NULL};
        json_t *o = json_object();
        char *key;

        copy(o, socket, who);
        key = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
        json_decref(o);
        return key;
}

static json_t *by_key(const json_t *sockets)
{
        json_t *index = json_object();

        for (size_t i = 0; i < json_array_size(sockets); i++) {
                json_t *socket = json_array_get(sockets, i);
                char *key = flow_key(socket);

                if (key)
                        json_object_set(index, key, socket);
                free(key);
        }
        return index;
}

static void add_flows(json_t *flows, const json_t *was, const json_t *is, double seconds)
{
        const json_t *sockets = json_object_get(is, "sockets");
        json_t *then = by_key(json_object_get(was, "sockets"));

        for (size_t i = 0; i < json_array_size(sockets); i++) {
                const json_t *socket = json_array_get(sockets, i);
                char *key = flow_key(socket);
                json_t *flow = flow_rates(key ? json_object_get(then, key) : NULL, socket, seconds);

                json_object_set(flow, "uid", json_object_get(is, "uid"));
                json_array_append_new(flows, flow);
                free(key);
        }
        json_decref(then);
}

static double activity(const json_t *flow)
{
        return json_number_value(json_object_get(flow, "rx_bytes")) +
               json_number_value(json_object_get(flow, "tx_bytes")) +
               json_number_value(json_object_get(flow, "rx_messages")) +
               json_number_value(json_object_get(flow, "tx_messages"));
}

static int by_activity(const void *a, const void *b)
{
        double x = activity(*(json_t *const *)a), y = activity(*(json_t *const *)b);

        return (x < y) - (x > y);
}

static json_t *busiest_first(const json_t *flows)
{
        size_t n = json_array_size(flows);
        json_t **order = calloc(n + 1, sizeof(json_t *)), *sorted = json_array();

        for (size_t i = 0; order && i < n; i++)
                order[i] = json_array_get(flows, i);
        if (order)
                qsort(order, n, sizeof(json_t *), by_activity);
        for (size_t i = 0; order && i < n; i++)
                json_array_append(sorted, order[i]);
        free(order);
        return sorted;
}

/* ---- stacks ---- */

static json_int_t element_grown(const json_t *was, const json_t *is, const char *array, size_t i)
{
        return grown(json_integer_value(json_array_get(json_object_get(was, array), i)),
                     json_integer_value(json_array_get(json_object_get(is, array), i)));
}

static void add_counters(json_t *stack, const json_t *was, const json_t *is, double seconds)
{
        static const struct {
                const char *name;
                enum count what;
        } shown[] = {{"rx_bytes", COUNT_NI_RX_BYTES},    {"tx_bytes", COUNT_NI_TX_BYTES},
                     {"rx_messages", COUNT_NI_RX_MSGS},  {"tx_messages", COUNT_NI_TX_MSGS},
                     {"retransmits", COUNT_TCP_RETRANS}, {"bells", COUNT_NI_BELLS}};

        for (size_t i = 0; i < ARRAY_LEN(shown); i++) {
                json_int_t n = element_grown(was, is, "counters", shown[i].what);

                json_object_set_new(stack, shown[i].name,
                                    seconds > 0 ? per_second(n, seconds) : json_null());
        }
}

static void add_drops(json_t *stack, const json_t *was, const json_t *is, double seconds)
{
        json_int_t sum = 0, most = 0;
        int reason = DROP_NONE;

        for (int i = 1; i < DROP_COUNT; i++) {
                json_int_t n = element_grown(was, is, "drops", (size_t)i);

                sum += n;
                if (n > most) {
                        most = n;
                        reason = i;
                }
        }
        json_object_set_new(stack, "drops", seconds > 0 ? per_second(sum, seconds) : json_null());
        json_object_set_new(stack, "drop_reason",
                            seconds > 0 && most > 0 ? json_string(drop_name((enum drop)reason))
                                                    : json_null());
}

/* Of processes that are in both samples. */
static void add_cpu(json_t *stack, const json_t *was, const json_t *is, double seconds)
{
        json_t *now = json_object_get(is, "cpu"), *v;
        const json_t *then = json_object_get(was, "cpu");
        json_int_t ns = 0;
        const char *pid;
        bool any = false;

        json_object_foreach (now, pid, v) {
                if (!json_object_get(then, pid))
                        continue;
                ns += grown(get(then, pid), json_integer_value(v));
                any = true;
        }
        json_object_set_new(stack, "cpu",
                            any && seconds > 0 ? per_second(ns, seconds * NS_PER_S) : json_null());
}

static json_t *stack_rates(const json_t *was, const json_t *is, double seconds)
{
        static const char *const same[] = {"stack", "uid", "pid", "program", NULL};
        json_t *stack = json_object();

        copy(stack, is, same);
        json_object_set_new(stack, "seconds", seconds > 0 ? json_real(seconds) : json_null());
        add_counters(stack, was, is, seconds);
        add_drops(stack, was, is, seconds);
        add_cpu(stack, was, is, seconds);
        return stack;
}

json_t *rates_between(const json_t *before, const json_t *after)
{
        static const char *const who[] = {"stack", "uid", "pid", NULL};
        json_t *stacks = json_array(), *flows = json_array(), *sorted;

        for (size_t i = 0; i < json_array_size(after); i++) {
                const json_t *is = json_array_get(after, i), *was = find(before, is, who);
                double seconds = was ? (double)(get(is, "ns") - get(was, "ns")) / NS_PER_S : 0;

                json_array_append_new(stacks, stack_rates(was, is, seconds));
                add_flows(flows, was, is, seconds);
        }
        sorted = busiest_first(flows);
        json_decref(flows);
        return json_pack("{so so}", "stacks", stacks, "flows", sorted);
}
