/* Errors that are kept for IP_RECVERR, and datagrams for many sockets. */
#include <errno.h>
#include <poll.h>

#include "tests/udp/scene.h"
#include "udp/udp_pcb.h"
#include "tests/udp/reading.h"

static uint32_t keeper(struct scene *s, uint16_t port)
{
        uint32_t pcb = bound(s, 0, port);
        struct udp_opts o;

        udp_get_opts(&s->u, pcb, &o);
        o.recverr = 1;
        udp_set_opts(&s->u, pcb, &o);
        return pcb;
}

static struct icmp_err about(uint16_t port, int err, bool hard)
{
        return (struct icmp_err){.proto = IP_PROTO_UDP,
                                 .err = err,
                                 .hard = hard,
                                 .laddr = ip_addr_v4(US),
                                 .lport = port,
                                 .raddr = ip_addr_v4(PEER),
                                 .rport = 4000};
}

static void keep(struct scene *s, uint32_t pcb, int err, bool local)
{
        struct udp_error e = {.err = err, .local = local, .len = 3, .data = "abc"};

        udp_error_add(&s->u, pcb, &e);
}

/* Linux's __udp4_lib_err(): with IP_RECVERR the soft ones too, and who is not connected. */
static void who_asks_hears_of_all(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = keeper(s, 53), other = bound(s, 0, 54);
        struct icmp_err soft = about(53, EHOSTUNREACH, false),
                        theirs = about(54, EHOSTUNREACH, false);

        assert_int_equal(udp_error_wanted(&s->u, &soft), pcb);
        assert_int_equal(udp_error_wanted(&s->u, &theirs), 0);
        assert_true(udp_icmp(&s->u, &soft));
        assert_true(udp_icmp(&s->u, &theirs));
        assert_int_equal(udp_take_error(&s->u, pcb), EHOSTUNREACH);
        assert_int_equal(udp_take_error(&s->u, other), 0);
}

/* Linux's sock_dequeue_err_skb(): what is pending is the next one's, and local ones are
 * not pending. */
static void they_come_in_order_and_say_what_is_pending(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = keeper(s, 53);
        struct udp_error e;

        keep(s, pcb, EMSGSIZE, true);
        keep(s, pcb, ECONNREFUSED, false);
        keep(s, pcb, EHOSTUNREACH, false);
        pcb_at(&s->u, pcb)->err = EHOSTUNREACH;
        assert_true(udp_poll_events(&s->u, pcb) & POLLERR);
        assert_true(udp_error_take(&s->u, pcb, &e));
        assert_true(e.local && e.err == EMSGSIZE && e.len == 3);
        assert_memory_equal(e.data, "abc", 3);
        assert_int_equal(udp_take_error(&s->u, pcb), ECONNREFUSED);
        assert_true(udp_error_take(&s->u, pcb, &e));
        assert_int_equal(e.err, ECONNREFUSED);
        assert_true(udp_error_take(&s->u, pcb, &e));
        assert_int_equal(udp_take_error(&s->u, pcb), 0);
        assert_false(udp_error_take(&s->u, pcb, &e));
        assert_false(udp_poll_events(&s->u, pcb) & POLLERR);
}

static void there_is_an_end_to_them(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = keeper(s, 53), more[UDP_ERRORS / UDP_ERRORS_EACH];
        struct udp_error e;
        unsigned n = 0;

        for (unsigned i = 0; i < UDP_ERRORS_EACH + 5; i++)
                keep(s, pcb, ECONNREFUSED, false);
        assert_int_equal(s->cnt.drop[DROP_UDP_ERROR_LOST], 5);
        for (unsigned k = 0; k < ARRAY_LEN(more); k++) {
                more[k] = keeper(s, (uint16_t)(100 + k));
                for (unsigned i = 0; i < UDP_ERRORS_EACH; i++)
                        keep(s, more[k], ECONNREFUSED, false);
        }
        assert_int_equal(s->cnt.drop[DROP_UDP_ERROR_LOST], 5 + UDP_ERRORS_EACH);
        while (udp_error_take(&s->u, pcb, &e))
                n++;
        assert_int_equal(n, UDP_ERRORS_EACH);
        keep(s, more[ARRAY_LEN(more) - 1], ECONNREFUSED, false); /* there is room again */
        assert_int_equal(s->cnt.drop[DROP_UDP_ERROR_LOST], 5 + UDP_ERRORS_EACH);
}

/* Switched off, closed: the room is another's. */
static void they_end_with_the_wish_and_with_the_socket(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = keeper(s, 53), closed = keeper(s, 54), again;
        struct udp_opts o;
        struct udp_error e;

        keep(s, pcb, ECONNREFUSED, false);
        keep(s, closed, ECONNREFUSED, false);
        udp_get_opts(&s->u, pcb, &o);
        o.recverr = 0;
        udp_set_opts(&s->u, pcb, &o);
        assert_false(udp_error_take(&s->u, pcb, &e));
        udp_close(&s->u, closed);
        again = keeper(s, 54);
        assert_int_equal(again, closed);
        assert_false(udp_error_take(&s->u, again, &e));
}

static void a_death_forgets_none_of_those_that_live(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = keeper(s, 53);
        struct udp_error e;

        keep(s, pcb, ECONNREFUSED, false);
        keep(s, pcb, EHOSTUNREACH, false);
        udp_errors(s->u.sh)[7].pcb = 4000; /* of a pcb that was never made */
        pcb_at(&s->u, pcb)->nerrs = 9;
        udp_errors_recover(&s->u);
        assert_int_equal(pcb_at(&s->u, pcb)->nerrs, 2);
        assert_true(udp_error_take(&s->u, pcb, &e) && e.err == ECONNREFUSED);
        assert_true(udp_error_take(&s->u, pcb, &e) && e.err == EHOSTUNREACH);
        assert_int_equal(udp_errors(s->u.sh)[7].pcb, 0);
}

/* ---- to many ---- */

static bool all(void *arg, uint32_t sock)
{
        return true;
}

/* RFC 1122 §4.1.3.5: bound there or to any; who is connected, from its peer alone. */
static void each_that_matches_has_a_copy(void **state)
{
        struct scene *s = *state;
        uint32_t any = bound_reuse(s, 0, 53, true, false),
                 ours = bound_reuse(s, US, 53, true, false);
        uint32_t group = bound_reuse(s, 0xef010203, 53, true, false),
                 second = bound_reuse(s, 0, 53, true, false);
        struct udp_dgram d = {.tuple = {.laddr = ip_addr_v4(0xef010203),
                                        .raddr = ip_addr_v4(PEER),
                                        .lport = 53,
                                        .rport = 4000,
                                        .chan = CHAN},
                              .inl = (const uint8_t *)"hello",
                              .inl_len = 5};

        assert_int_equal(udp_connect(&s->u, second, ip_addr_v4(US), ip_addr_v4(PEER), 4001), 0);
        assert_int_equal(udp_rx_many(&s->u, &d, all, NULL, s->now), 2);
        assert_int_equal(udp_recv_avail(&s->u, any), 5);
        assert_int_equal(udp_recv_avail(&s->u, group), 5);
        assert_int_equal(udp_recv_avail(&s->u, ours), 0);
        assert_int_equal(udp_recv_avail(&s->u, second), 0);
        d.tuple.lport = 54;
        assert_int_equal(udp_rx_many(&s->u, &d, all, NULL, s->now), 0);
        assert_int_equal(s->cnt.drop[DROP_UDP_NO_PORT], 1);
}

/* A frame of ours, short and long: each copies, and it is still the caller's. */
static void copies_of_a_frame(void **state)
{
        static const uint32_t len[] = {100, 5000, 60000};
        struct scene *s = *state;
        uint32_t a = bound_reuse(s, 0, 53, true, false), b = bound_reuse(s, 0, 53, true, false);

        for (size_t i = 0; i < ARRAY_LEN(len); i++) {
                uint32_t id = frame_alloc(s->frames, FRAME_REGION_PRIVATE, FRAME_LARGE, 0);
                struct udp_dgram d = {.tuple = {.laddr = ip_addr_v4(0xef010203),
                                                .raddr = ip_addr_v4(PEER),
                                                .lport = 53,
                                                .rport = 4000,
                                                .chan = CHAN},
                                      .data = {id, 0, len[i]}};

                memset(frame_addr(s->frames, id), 'a' + (int)i, len[i]);
                assert_int_equal(udp_rx_many(&s->u, &d, all, NULL, s->now), 2);
                frame_drop(s->frames, id);
                for (int k = 0; k < 2; k++) {
                        struct udp_msg m;
                        assert_int_equal(udp_recv_peek(&s->u, k ? a : b, 0, &m, 1), 1);
                        assert_int_equal(m.len, len[i]);
                        assert_int_equal(*((const uint8_t *)m.span[m.nspan - 1].ptr +
                                           m.span[m.nspan - 1].len - 1),
                                         'a' + i);
                        read_first(&s->u, k ? a : b, 1);
                }
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(who_asks_hears_of_all),
                TEST(they_come_in_order_and_say_what_is_pending),
                TEST(there_is_an_end_to_them),
                TEST(they_end_with_the_wish_and_with_the_socket),
                TEST(a_death_forgets_none_of_those_that_live),
                TEST(each_that_matches_has_a_copy),
                TEST(copies_of_a_frame),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
