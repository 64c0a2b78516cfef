/* The rate of a group: exact, fair, and kept by whoever runs the stack late. */
#include "tcp/tcp_group.h"
#include "tests/sim/shares.h"

#include <stdlib.h>
#include "tests/unit.h"

#define RATE 2500000u

/* Flows `from` to the last are written to; who runs the stack comes every `pause`. Bytes that each
 * has sent go to sent[]. */
static void all_are_sent_to(struct play *k, uint32_t from, nstime time, nstime pause,
                            uint64_t *sent)
{
        static uint8_t data[65536];
        nstime until = k->p->now + time;

        for (uint32_t i = 0; i < k->n; i++)
                sent[i] = (uint64_t)0 - conn(k, &k->flow[i])->bytes_sent;
        while (k->p->now < until) {
                for (uint32_t i = from; i < k->n; i++) {
                        while (pair_write(k->p, SERVER, k->flow[i].server, data, sizeof data) > 0)
                                ;
                        while (pair_read(k->p, CLIENT, k->flow[i].client, data, sizeof data) > 0)
                                ;
                }
                checks(k);
                if (pause == 0) {
                        pair_wait(k->p, MIN(until, k->p->now + NS_PER_MS));
                        continue;
                }
                k->p->now = MIN(until, k->p->now + pause);
                sim_advance(k->p->sim, k->p->now);
                pair_settle(k->p);
        }
        for (uint32_t i = 0; i < k->n; i++)
                sent[i] += conn(k, &k->flow[i])->bytes_sent;
}

static uint64_t sum_of(const uint64_t *sent, uint32_t n)
{
        uint64_t sum = 0;

        while (n != 0)
                sum += sent[--n];
        return sum;
}

/* In a second within a per cent; an equal part each within so many. Who comes late sends whole
 * segments a visit, more or fewer. */
static void keeps_rate(nstime pause, uint32_t percent)
{
        const struct tcp_group_limits l = {.rate = RATE};
        struct play k = {.seed = 1};
        uint64_t sent[FLOWS];

        connects_all(&k, 6, &l);
        all_are_sent_to(&k, 0, NS_PER_S, pause, sent);
        all_are_sent_to(&k, 0, NS_PER_S, pause, sent);
        assert_in_range(sum_of(sent, 6), RATE * 99 / 100, RATE * 101 / 100);
        for (uint32_t i = 0; i < 6; i++)
                assert_in_range(sent[i], RATE / 600 * (100 - percent),
                                RATE / 600 * (100 + percent));
        /* Four have nothing more to send: in a second they are through. */
        all_are_sent_to(&k, 4, 2 * NS_PER_S, pause, sent);
        all_are_sent_to(&k, 4, NS_PER_S, pause, sent);
        assert_in_range(sum_of(sent, 6), RATE * 99 / 100, RATE * 101 / 100);
        assert_in_range(sent[4], RATE / 200 * (100 - percent), RATE / 200 * (100 + percent));
        ends_all(&k);
}

static void a_rate_is_exact_and_fair(void **state)
{
        (void)state;
        keeps_rate(0, 2);
}

static void a_rate_is_kept_by_who_comes_late(void **state)
{
        (void)state;
        keeps_rate(3 * NS_PER_MS, 50);
        keeps_rate(8 * NS_PER_MS, 50);
}

/* A pause is not made good, and another rate holds at once, for who waits as well. */
static void a_rate_may_change(void **state)
{
        struct tcp_group_limits l = {.rate = 1000};
        struct play k = {.seed = 1};
        uint64_t sent[FLOWS];

        (void)state;
        connects_all(&k, 3, &l);
        all_are_sent_to(&k, 0, NS_PER_S, 0, sent);
        assert_in_range(sum_of(sent, 3), 1, 1000 + 3 * 1448);
        l.rate = RATE;
        assert_int_equal(tcp_group_set(server(&k), k.group, &l), 0);
        flush(&k);
        all_are_sent_to(&k, 0, NS_PER_S, 0, sent);
        assert_in_range(sum_of(sent, 3), RATE * 98 / 100, RATE * 101 / 100);
        all_are_sent_to(&k, FLOWS, 10 * NS_PER_S, 0, sent);
        all_are_sent_to(&k, 0, NS_PER_S / 10, 0, sent);
        assert_in_range(sum_of(sent, 3), RATE / 10 * 95 / 100, RATE / 10 * 105 / 100);
        l.rate = 0;
        assert_int_equal(tcp_group_set(server(&k), k.group, &l), 0);
        flush(&k);
        all_are_sent_to(&k, 0, NS_PER_S, 0, sent);
        assert_in_range(sum_of(sent, 3), 2 * RATE, UINT64_MAX);
        ends_all(&k);
}

/* Each has sent less than its turn; what was left is nobody's a second later. */
static void a_turn_that_was_not_used_is_over(void **state)
{
        const struct tcp_group_limits l = {.rate = 4 * RATE};
        static const uint8_t data[20000];
        struct play k = {.seed = 1};
        uint64_t sent[FLOWS];

        (void)state;
        connects_all(&k, 30, &l);
        for (uint32_t i = 0; i < k.n; i++)
                pair_write(k.p, SERVER, k.flow[i].server, data, 100);
        passes(&k, NS_PER_S);
        for (uint32_t i = 0; i < k.n; i++) {
                assert_int_equal(conn(&k, &k.flow[i])->bytes_sent, 100);
                sent[i] = (uint64_t)0 - 100;
                pair_write(k.p, SERVER, k.flow[i].server, data, sizeof data);
        }
        passes(&k, 5 * NS_PER_MS);
        for (uint32_t i = 0; i < k.n; i++)
                sent[i] += conn(&k, &k.flow[i])->bytes_sent;
        assert_in_range(sum_of(sent, k.n), 1, l.rate * 15 / 1000 + k.n * 1448);
        ends_all(&k);
}

static void who_is_reset_stands_in_no_line(void **state)
{
        const struct tcp_group_limits l = {.rate = 1000};
        struct play k = {.seed = 1};
        uint64_t sent[FLOWS];

        (void)state;
        connects_all(&k, 3, &l);
        all_are_sent_to(&k, 0, NS_PER_S, 0, sent);
        assert_int_equal(server(&k)->sh->groups[k.group].waiting, 3);
        tcp_abort(client(&k), pair_conn(k.p, CLIENT, k.flow[0].client), k.p->now);
        stack_flush(&k.p->side[CLIENT].s, k.p->now);
        passes(&k, 10 * NS_PER_MS);
        assert_int_equal(conn(&k, &k.flow[0])->state, TCPS_CLOSED);
        assert_int_equal(server(&k)->sh->groups[k.group].waiting, 2);
        ends_all(&k);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_rate_is_exact_and_fair),
                cmocka_unit_test(a_rate_is_kept_by_who_comes_late),
                cmocka_unit_test(a_rate_may_change),
                cmocka_unit_test(a_turn_that_was_not_used_is_over),
                cmocka_unit_test(who_is_reset_stands_in_no_line),
        };

        cmocka_set_test_filter(getenv("UNET_TEST_FILTER"));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
