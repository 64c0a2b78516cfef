/* Datagrams in, and the errors that come back: RFC 768, RFC 1122 §4.1.3. */
#include "tests/udp/scene.h"

#include <errno.h>

static void a_datagram_reaches_its_socket(void **state)
{
        struct scene *s = *state;
        uint32_t a = bound(s, US, 53), b = bound(s, 0, 54);

        assert_int_equal(arrives(s, .len = 5), UDP_DONE);
        assert_int_equal(arrives(s, .len = 6, .dport = 54, .src = OTHER, .sport = 9), UDP_DONE);
        expect_read(s, a, .len = 5);
        expect_read(s, b, .len = 6, .dport = 54, .src = OTHER, .sport = 9);
        expect_nothing(s, a);
        expect_nothing(s, b);
}

/* RFC 1122 §4.1.3.1: port unreachable is the caller's to send; the frame stays with it. */
static void an_unknown_port_is_reported_and_counted(void **state)
{
        struct scene *s = *state;

        assert_int_equal(arrives(s, .len = 1400, .in_frame = 1400), UDP_NO_PORT);
        assert_int_equal(s->given_back, 1);
        assert_int_equal(s->cnt.drop[DROP_UDP_NO_PORT], 1);
}

static void a_connected_socket_hears_its_peer_alone(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = connected(s, 0, 53, PEER, 4000);

        assert_int_equal(arrives(s, .len = 5, .src = OTHER), UDP_NO_PORT);
        assert_int_equal(arrives(s, .len = 5, .sport = 4001), UDP_NO_PORT);
        assert_int_equal(arrives(s, .len = 5), UDP_DONE);
        expect_read(s, pcb, .len = 5);
}

/* What came before connect may come from anybody, as with Linux. */
static void what_was_queued_before_connect_stays(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);

        arrives(s, .len = 5, .src = OTHER);
        udp_connect(&s->u, pcb, ip_addr_v4(US), ip_addr_v4(PEER), 4000);
        expect_read(s, pcb, .len = 5, .src = OTHER);
}

static void the_stack_is_told_once_until_it_has_looked(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);

        for (int i = 0; i < 5; i++)
                arrives(s, .len = 5);
        assert_int_equal(s->touches, 1);
        assert_int_equal(s->touched, pcb);
        assert_int_equal(udp_take_events(&s->u, pcb), UDP_EV_READABLE);
        assert_int_equal(udp_take_events(&s->u, pcb), 0);
        arrives(s, .len = 5); /* an edge for EPOLLET, though it was readable before */
        assert_int_equal(s->touches, 2);
}

static void the_time_of_arrival_is_kept(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);
        struct udp_msg m[2];

        arrives(s, .len = 5);
        s->now += 7;
        arrives(s, .len = 5);
        assert_int_equal(udp_recv_peek(&s->u, pcb, 0, m, 2), 2);
        assert_true(m[1].at == m[0].at + 7);
}

/* ---- ICMP errors: RFC 1122 §4.1.3.3 ---- */

static void error(struct scene *s, uint32_t peer, uint16_t peer_port, int err, bool hard)
{
        struct icmp_err e = {.proto = IP_PROTO_UDP,
                             .err = err,
                             .hard = hard,
                             .laddr = ip_addr_v4(US),
                             .lport = 53,
                             .raddr = ip_addr_v4(peer),
                             .rport = peer_port};

        udp_icmp(&s->u, &e);
}

static void a_hard_error_reaches_the_connected_socket_once(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = connected(s, 0, 53, PEER, 4000);
        struct udp_msg m;

        arrives(s, .len = 5);
        udp_take_events(&s->u, pcb);
        error(s, PEER, 4000, ECONNREFUSED, true);
        assert_int_equal(udp_take_events(&s->u, pcb), UDP_EV_ERROR);
        /* Before the data, as Linux. */
        assert_int_equal(udp_recv_peek(&s->u, pcb, 0, &m, 1), -ECONNREFUSED);
        assert_int_equal(udp_take_error(&s->u, pcb), 0);
        expect_read(s, pcb, .len = 5);
        error(s, PEER, 4000, ECONNREFUSED, true);
        assert_int_equal(udp_take_error(&s->u, pcb), ECONNREFUSED);
        expect_nothing(s, pcb);
}

static void soft_foreign_and_unconnected_errors_are_not_reported(void **state)
{
        struct scene *s = *state;
        uint32_t conn = connected(s, 0, 53, PEER, 4000), any = bound_reuse(s, 0, 53, true, false);

        error(s, PEER, 4000, EHOSTUNREACH, false);
        error(s, PEER, 4000, 0, true);
        error(s, PEER, 4001, ECONNREFUSED, true);
        error(s, OTHER, 4000, ECONNREFUSED, true);
        assert_int_equal(udp_take_error(&s->u, conn), 0);
        assert_int_equal(udp_take_error(&s->u, any), 0);
        assert_int_equal(s->touches, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(a_datagram_reaches_its_socket),
                TEST(an_unknown_port_is_reported_and_counted),
                TEST(a_connected_socket_hears_its_peer_alone),
                TEST(what_was_queued_before_connect_stays),
                TEST(the_stack_is_told_once_until_it_has_looked),
                TEST(the_time_of_arrival_is_kept),
                TEST(a_hard_error_reaches_the_connected_socket_once),
                TEST(soft_foreign_and_unconnected_errors_are_not_reported),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
