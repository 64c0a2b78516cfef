/* What a group may receive and write goes to whoever uses it, in equal parts. */
#include "tcp/tcp_group.h"
#include "tests/sim/shares.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include "tests/unit.h"

/* ---- what may be received ---- */

/* Flows `from` to the last send what they may and are read at once; nobody else does anything. */
static void all_are_read(struct play *k, uint32_t from, nstime until)
{
        static uint8_t data[65536];

        while (k->p->now < until) {
                for (uint32_t i = from; i < k->n; i++) {
                        pair_write(k->p, CLIENT, k->flow[i].client, data, sizeof data);
                        while (pair_read(k->p, SERVER, k->flow[i].server, data, sizeof data) > 0)
                                ;
                }
                checks(k);
                pair_wait(k->p, MIN(until, k->p->now + NS_PER_MS));
        }
}

static void equal_parts_of_what_is_free(void **state)
{
        const struct tcp_group_limits l = {.members = 8, .least = 4096, .receive = 8 * 4096 + POOL};
        struct play k = {.seed = 1};

        (void)state;
        connects_all(&k, 4, &l);
        for (uint32_t i = 0; i < 4; i++)
                assert_int_equal(conn(&k, &k.flow[i])->group_share, 4096);
        all_are_read(&k, 0, k.p->now + 2 * NS_PER_S);
        for (uint32_t i = 0; i < 4; i++)
                assert_in_range(conn(&k, &k.flow[i])->group_share, 4096 + POOL / 5 * 9 / 10,
                                4096 + POOL / 5 * 11 / 10);
        /* Two fall silent, and one closes. What they were promised stays theirs; the rest goes to
         * who uses it. */
        closes(&k, &k.flow[0]);
        all_are_read(&k, 3, k.p->now + 2 * NS_PER_S);
        assert_in_range(conn(&k, &k.flow[3])->group_share, 4096 + POOL * 27 / 100,
                        4096 + POOL * 33 / 100);
        k.flow[0] = k.flow[--k.n];
        ends_all(&k);
}

static void who_sends_no_more_leaves_his_share(void **state)
{
        const struct tcp_group_limits l = {.members = 8, .least = 4096, .receive = 8 * 4096 + POOL};
        static uint8_t data[65536];
        struct play k = {.seed = 1};

        (void)state;
        connects_all(&k, 2, &l);
        all_are_read(&k, 0, k.p->now + 2 * NS_PER_S);
        for (uint32_t i = 0; i < 2; i++)
                assert_true(conn(&k, &k.flow[i])->group_share > POOL / 4);
        tcp_shutdown_send(client(&k), pair_conn(k.p, CLIENT, k.flow[0].client), k.p->now);
        tcp_abort(client(&k), pair_conn(k.p, CLIENT, k.flow[1].client), k.p->now);
        stack_flush(&k.p->side[CLIENT].s, k.p->now);
        while (conn(&k, &k.flow[0])->state == TCPS_ESTABLISHED) {
                while (pair_read(k.p, SERVER, k.flow[0].server, data, sizeof data) > 0)
                        ;
                passes(&k, NS_PER_MS);
        }
        assert_int_equal(conn(&k, &k.flow[0])->state, TCPS_CLOSE_WAIT);
        assert_int_equal(conn(&k, &k.flow[1])->state, TCPS_CLOSED);
        for (uint32_t i = 0; i < 2; i++)
                assert_int_equal(conn(&k, &k.flow[i])->group_share,
                                 MAX(4096, conn(&k, &k.flow[i])->rcv_unread));
        ends_all(&k);
}

/* What was read and goes back has to have a place as well: as far as there is one. */
static void gives_back(uint64_t pool, bool has_place)
{
        const struct tcp_group_limits l = {.members = 1, .least = 4096, .receive = 4096 + pool};
        struct play k = {.seed = 1};
        uint8_t data[4096] = {0};
        struct tcp_conn *tc;

        connects_all(&k, 1, &l);
        tc = conn(&k, &k.flow[0]);
        pair_write(k.p, CLIENT, k.flow[0].client, data, sizeof data);
        passes(&k, NS_PER_S);
        assert_int_equal(tc->rcv_unread, sizeof data);
        tcp_recv_consume(server(&k), tc, sizeof data, k.p->now);
        flush(&k);
        assert_int_equal(tcp_recv_give_back(server(&k), tc, data, sizeof data, copied_seq(tc)),
                         has_place);
        checks(&k);
        ends_all(&k);
}

static void what_goes_back_has_its_place(void **state)
{
        (void)state;
        gives_back(0, false);
        gives_back(POOL, true);
}

/* ---- what may be written ---- */

#define TO_WRITE (40u << 10)

/* Until nothing more is taken: nobody reads. */
static void all_are_written_to(struct play *k, uint32_t from)
{
        static uint8_t data[16384];
        int taken = 1;

        while (taken != 0) {
                taken = 0;
                for (uint32_t i = from; i < k->n; i++)
                        taken += MAX(pair_write(k->p, SERVER, k->flow[i].server, data, 1000), 0);
                passes(k, 10 * NS_PER_MS);
        }
}

static void may_write_more(struct play *k, uint32_t from, bool more)
{
        for (uint32_t i = from; i < k->n; i++)
                assert_int_equal(!!(tcp_poll_events(server(k), conn(k, &k->flow[i])) & POLLOUT),
                                 more);
}

static void equal_parts_of_what_may_be_written(void **state)
{
        struct tcp_group_limits l = {.members = 8, .least = 4096, .send = 8 * 4096 + TO_WRITE};
        struct play k = {.seed = 1};
        uint8_t data[65536];

        (void)state;
        connects_all(&k, 4, &l);
        all_are_written_to(&k, 0);
        for (uint32_t i = 0; i < 4; i++)
                assert_in_range(tcp_queued(conn(&k, &k.flow[i])), 4096 + TO_WRITE / 5 * 9 / 10,
                                4096 + TO_WRITE / 5 * 11 / 10);
        may_write_more(&k, 0, false);
        /* One is read, and goes on alone; the others wait for their own clients. */
        for (int i = 0; i < 100; i++) {
                while (pair_read(k.p, CLIENT, k.flow[3].client, data, sizeof data) > 0)
                        ;
                passes(&k, 100 * NS_PER_MS);
        }
        assert_int_equal(tcp_queued(conn(&k, &k.flow[3])), 0);
        may_write_more(&k, 3, true);
        assert_int_equal(conn(&k, &k.flow[3])->send_share, 4096);
        /* A wider limit, and none, are heard of at once. */
        l.send *= 4;
        assert_int_equal(tcp_group_set(server(&k), k.group, &l), 0);
        flush(&k);
        may_write_more(&k, 0, true);
        l.send = 8 * 4096;
        assert_int_equal(tcp_group_set(server(&k), k.group, &l), -ENOSPC);
        ends_all(&k);
}

static uint32_t reserves(struct play *k, uint32_t most, int spans)
{
        struct span span[8];
        int got = tcp_send_reserve(server(k), conn(k, &k->flow[0]), most, span, spans);

        assert_true(got > 0);
        return (uint32_t)got;
}

static void commits(struct play *k, uint32_t n, bool more)
{
        tcp_send_commit(server(k), conn(k, &k->flow[0]), n, more, false, k->p->now);
}

/* What is reserved counts, and not what was asked for; what is not written, or by a connection that
 * has ended meanwhile, counts no longer. */
static void what_is_not_written_counts_no_longer(void **state)
{
        const struct tcp_group_limits l = {.members = 8, .least = 4096, .send = 8 * 4096 + POOL};
        struct play k = {.seed = 1};
        const struct tcp_conn *tc;
        uint32_t got;

        (void)state;
        connects_all(&k, 2, &l);
        tc = conn(&k, &k.flow[0]);
        got = reserves(&k, POOL, 1);
        assert_in_range(got, 4096 + 1, POOL / 2 - 1);
        assert_int_equal(tc->send_share, got);
        commits(&k, 0, false);
        assert_int_equal(tc->send_share, 4096);
        checks(&k);
        got = reserves(&k, POOL, 8);
        tcp_abort(client(&k), pair_conn(k.p, CLIENT, k.flow[0].client), k.p->now);
        stack_flush(&k.p->side[CLIENT].s, k.p->now);
        passes(&k, NS_PER_S);
        assert_int_equal(tc->state, TCPS_CLOSED);
        assert_int_equal(tc->send_share, got);
        commits(&k, got, false);
        assert_int_equal(tc->send_share, 4096);
        checks(&k);
        ends_all(&k);
}

/* MSG_MORE holds nothing back from when poll() says that there is no room for what follows. */
static void what_is_full_waits_for_no_more(void **state)
{
        const struct tcp_group_limits l = {.members = 1, .least = 9000, .send = 9000};
        struct play k = {.seed = 1};
        const struct tcp_conn *tc;

        (void)state;
        connects_all(&k, 1, &l);
        tc = conn(&k, &k.flow[0]);
        commits(&k, reserves(&k, 5000, 8), true);
        assert_true(tc->flags & TCF_MORE);
        may_write_more(&k, 0, true);
        commits(&k, reserves(&k, 1100, 8), true);
        assert_false(tc->flags & TCF_MORE);
        may_write_more(&k, 0, false);
        flush(&k);
        checks(&k);
        ends_all(&k);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(equal_parts_of_what_is_free),
                cmocka_unit_test(who_sends_no_more_leaves_his_share),
                cmocka_unit_test(what_goes_back_has_its_place),
                cmocka_unit_test(equal_parts_of_what_may_be_written),
                cmocka_unit_test(what_is_not_written_counts_no_longer),
                cmocka_unit_test(what_is_full_waits_for_no_more),
        };

        cmocka_set_test_filter(getenv("UNET_TEST_FILTER"));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
