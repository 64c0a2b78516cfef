/* Who may bind where, who gets which datagram, and that everything derived can be made anew. */
#include "tests/udp/scene.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

/* ---- bind: Linux's rules ---- */

static void conflicts_are_those_of_linux(void **state)
{
        static const struct {
                uint32_t first, second; /* addresses; 0 is any */
                /* SO_REUSEADDR, SO_REUSEPORT. */
                uint8_t first_addr, first_port, second_addr, second_port;
                bool may;
        } table[] = {
                {US, US, 0, 0, 0, 0, false}, {US, US_2, 0, 0, 0, 0, true},
                {0, US, 0, 0, 0, 0, false},  {US, 0, 0, 0, 0, 0, false},
                {0, 0, 0, 0, 0, 0, false},   {US, US, 1, 0, 1, 0, true},
                {US, US, 1, 0, 0, 0, false}, {US, US, 0, 0, 1, 0, false},
                {0, US, 1, 0, 1, 0, true},   {US, US, 0, 1, 0, 1, true},
                {US, US, 0, 1, 0, 0, false}, {US, US, 0, 1, 1, 0, false},
                {US, US, 1, 1, 1, 0, true},  {0, 0, 0, 1, 0, 1, true},
                {0, US, 0, 1, 0, 1, true},
        };
        struct scene *s = *state;

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                uint32_t a = bound_reuse(s, table[i].first, 53, table[i].first_addr,
                                         table[i].first_port),
                         b;
                struct udp_opts o;
                ip_addr addr = table[i].second ? ip_addr_v4(table[i].second) : (ip_addr){{0, 0}};

                udp_opts_default(&o);
                o.reuseaddr = table[i].second_addr;
                o.reuseport = table[i].second_port;
                b = udp_open(&s->u, &o);
                assert_int_equal(udp_port_free(&s->u, b, addr, 53), table[i].may);
                assert_int_equal(udp_bind(&s->u, b, addr, 53), table[i].may ? 0 : -EADDRINUSE);
                assert_true(udp_port_free(&s->u, b, addr, 54));
                check_all(s);
                udp_close(&s->u, a);
                udp_close(&s->u, b);
        }
}

static void a_pcb_binds_once_and_to_a_real_port(void **state)
{
        struct scene *s = *state;
        uint32_t a = bound(s, US, 53);
        struct udp_opts o;
        uint32_t b;

        assert_int_equal(udp_bind(&s->u, a, ip_addr_v4(US), 54), -EINVAL);
        /* It is in nobody's way but its own. */
        assert_true(udp_port_free(&s->u, a, ip_addr_v4(US), 53));
        udp_opts_default(&o);
        b = udp_open(&s->u, &o);
        assert_int_equal(udp_bind(&s->u, b, ip_addr_v4(US), 0), -EINVAL);
        assert_int_equal(udp_connect(&s->u, b, ip_addr_v4(US), ip_addr_v4(PEER), 1), -EINVAL);
}

static void a_port_is_free_again_after_close(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 1000; i++)
                udp_close(&s->u, bound(s, US, 53));
        assert_int_equal(arrives(s, .len = 4), UDP_NO_PORT);
}

/* What the receiver never read is accounted for, like any other loss. */
static void what_is_unread_at_close_is_counted_as_dropped(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, US, 53);

        for (int i = 0; i < 3; i++)
                arrives(s, .len = 4);
        expect_read(s, pcb, .len = 4);
        udp_close(&s->u, pcb);
        assert_int_equal(s->cnt.drop[DROP_UDP_UNREAD], 2);
}

static void pcbs_run_out_and_come_back(void **state)
{
        struct scene *s = *state;
        struct udp_opts o;
        uint32_t last = 0;

        udp_opts_default(&o);
        for (uint32_t pcb; (pcb = udp_open(&s->u, &o)) != 0;)
                last = pcb;
        udp_close(&s->u, last);
        assert_int_equal(udp_open(&s->u, &o), last);
        assert_int_equal(udp_open(&s->u, &o), 0);
}

/* ---- lookup: the most specific wins ---- */

static void the_most_specific_pcb_gets_the_datagram(void **state)
{
        struct scene *s = *state;
        uint32_t any = bound_reuse(s, 0, 53, true, false),
                 ours = bound_reuse(s, US, 53, true, false);
        uint32_t conn = connected(s, US, 53, PEER, 4000);
        const struct {
                struct udp_tuple t;
                uint32_t pcb;
        } table[] = {
                {{ip_addr_v4(US), ip_addr_v4(PEER), 53, 4000, 0, 0, 0}, conn},
                {{ip_addr_v4(US), ip_addr_v4(PEER), 53, 4001, 0, 0, 0}, ours},
                {{ip_addr_v4(US), ip_addr_v4(OTHER), 53, 4000, 0, 0, 0}, ours},
                {{ip_addr_v4(US_2), ip_addr_v4(PEER), 53, 4000, 0, 0, 0}, any},
                {{ip_addr_v4(US), ip_addr_v4(PEER), 54, 4000, 0, 0, 0}, 0},
        };

        for (int twice = 0; twice < 2; twice++) /* found, then found in the cache */
                for (size_t i = 0; i < ARRAY_LEN(table); i++)
                        assert_int_equal(udp_lookup(&s->u, &table[i].t), table[i].pcb);
}

static void every_change_empties_the_cache(void **state)
{
        struct scene *s = *state;
        struct udp_tuple t = {ip_addr_v4(US), ip_addr_v4(PEER), 53, 4000, 0, 0, 0};
        uint32_t any = bound_reuse(s, 0, 53, true, false), ours;

        assert_int_equal(udp_lookup(&s->u, &t), any);
        ours = bound_reuse(s, US, 53, true, false);
        assert_int_equal(udp_lookup(&s->u, &t), ours);
        udp_connect(&s->u, any, ip_addr_v4(US), ip_addr_v4(PEER), 4000);
        assert_int_equal(udp_lookup(&s->u, &t), any);
        udp_connect(&s->u, any, ip_addr_v4(US), ip_addr_v4(PEER), 4001);
        assert_int_equal(udp_lookup(&s->u, &t), ours);
        udp_close(&s->u, ours);
        assert_int_equal(udp_lookup(&s->u, &t), 0);
        udp_disconnect(&s->u, any);
        assert_int_equal(udp_lookup(&s->u, &t), any);
        udp_close(&s->u, any);
        assert_int_equal(udp_lookup(&s->u, &t), 0);
}

static void the_one_bound_last_gets_it_with_reuseaddr(void **state)
{
        struct scene *s = *state;
        struct udp_tuple t = {ip_addr_v4(US), ip_addr_v4(PEER), 53, 4000, 0, 0, 0};
        uint32_t first = bound_reuse(s, US, 53, true, false),
                 last = bound_reuse(s, US, 53, true, false);

        assert_int_equal(udp_lookup(&s->u, &t), last);
        udp_close(&s->u, last);
        assert_int_equal(udp_lookup(&s->u, &t), first);
}

static void reuseport_spreads_senders_and_keeps_each_at_its_place(void **state)
{
        struct scene *s = *state;
        uint32_t pcb[4], hits[4] = {0};

        for (int i = 0; i < 4; i++)
                pcb[i] = bound_reuse(s, 0, 53, false, true);
        for (uint16_t port = 1; port <= 4000; port++) {
                struct udp_tuple t = {ip_addr_v4(US), ip_addr_v4(PEER), 53, port, 0, 0, 0};
                uint32_t got = udp_lookup(&s->u, &t);

                for (int i = 0; i < 4; i++)
                        hits[i] += got == pcb[i];
                assert_int_equal(udp_lookup(&s->u, &t), got);
        }
        for (int i = 0; i < 4; i++)
                assert_in_range(hits[i], 800, 1200);
}

static void an_option_that_changes_takes_effect_at_once(void **state)
{
        struct scene *s = *state;
        uint32_t first = bound_reuse(s, 0, 53, true, true),
                 last = bound_reuse(s, 0, 53, true, true);
        struct udp_tuple t = {ip_addr_v4(US), ip_addr_v4(PEER), 53, 1, 0, 0, 0};
        struct udp_opts o;

        while (udp_lookup(&s->u, &t) != first)
                t.rport++;
        udp_get_opts(&s->u, last, &o);
        o.reuseport = 0;
        udp_set_opts(&s->u, last, &o);
        assert_int_equal(udp_lookup(&s->u, &t), last);
}

/* ---- connect ---- */

static void connect_fixes_the_local_address_and_disconnect_lets_it_go(void **state)
{
        struct scene *s = *state;
        uint32_t any = bound(s, 0, 53), named = bound(s, US_2, 54);
        struct udp_tuple t;

        udp_connect(&s->u, any, ip_addr_v4(US), ip_addr_v4(PEER), 4000);
        udp_get_tuple(&s->u, any, &t);
        assert_int_equal(ip_addr_get_v4(t.laddr), US);
        assert_int_equal(t.rport, 4000);
        assert_true(udp_connected(&s->u, any));
        udp_disconnect(&s->u, any);
        udp_get_tuple(&s->u, any, &t);
        assert_true(ip_addr_is_any(t.laddr) && ip_addr_is_any(t.raddr));
        assert_int_equal(t.lport, 53);
        assert_int_equal(t.rport, 0);

        udp_connect(&s->u, named, ip_addr_v4(US), ip_addr_v4(PEER), 4000);
        udp_get_tuple(&s->u, named, &t);
        assert_int_equal(ip_addr_get_v4(t.laddr), US_2);
        udp_disconnect(&s->u, named);
        udp_get_tuple(&s->u, named, &t);
        assert_int_equal(ip_addr_get_v4(t.laddr), US_2);
        check_all(s);
}

static void poll_and_shutdown_are_those_of_linux(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = connected(s, US, 53, PEER, 4000), lone = bound(s, US, 54);
        short out = POLLOUT | POLLWRNORM | POLLWRBAND;

        assert_int_equal(udp_poll_events(&s->u, pcb), out);
        arrives(s, .len = 4);
        assert_int_equal(udp_poll_events(&s->u, pcb), out | POLLIN | POLLRDNORM);
        expect_read(s, pcb, .len = 4);
        assert_int_equal(udp_shutdown(&s->u, pcb, SHUT_RD), 0);
        assert_int_equal(udp_poll_events(&s->u, pcb), out | POLLIN | POLLRDNORM | POLLRDHUP);
        assert_int_equal(udp_shutdown(&s->u, pcb, SHUT_WR), 0);
        assert_int_equal(udp_poll_events(&s->u, pcb),
                         out | POLLIN | POLLRDNORM | POLLRDHUP | POLLHUP);
        assert_int_equal(udp_shutdown(&s->u, lone, SHUT_RDWR), -ENOTCONN);
        assert_true(udp_poll_events(&s->u, lone) & POLLHUP);
        assert_int_equal(udp_recv_peek(&s->u, lone, 0, &(struct udp_msg){0}, 1), 0);
}

/* ---- consistency ---- */

static void recount(struct scene *s)
{
        struct frame_pool *p = s->frames->region[FRAME_REGION_PRIVATE].pool;

        for (uint32_t i = 1; i <= frame_geom_total(p->geom); i++)
                frame_pool_rec(p, i)->refs = 0;
        udp_recover(&s->u);
        frame_pool_rebuild(p);
        check_all(s);
}

static void recovery_makes_everything_derived_anew(void **state)
{
        struct scene *s = *state;
        uint32_t any = bound(s, 0, 53), conn = connected(s, US, 99, PEER, 4000),
                 closed = bound(s, US, 60);

        udp_close(&s->u, closed);
        for (uint8_t i = 0; i < 40; i++) {
                arrives(s, .len = 200, .fill = i);
                arrives(s, .len = 20, .fill = i, .dport = 99);
        }
        arrives(s, .len = 1400, .in_frame = 1400);
        recount(s);
        for (uint8_t i = 0; i < 40; i++) {
                expect_read(s, any, .len = 200, .fill = i);
                expect_read(s, conn, .len = 20, .fill = i, .dport = 99);
        }
        expect_read(s, any, .len = 1400);
        assert_int_equal(bound(s, US, 60), closed);
}

static void reports_say_what_is_there(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = connected(s, US, 53, PEER, 4000);
        struct udp_report r;

        udp_set_sock(&s->u, pcb, 5);
        arrives(s, .len = 100);
        arrives(s, .len = 100, .in_frame = 100, .small = true);
        assert_true(udp_get_report(&s->u, pcb, &r));
        assert_true(r.connected);
        assert_int_equal(r.sock, 5);
        assert_int_equal(r.queued, 2);
        assert_int_equal(r.in, 2);
        assert_in_range(r.memory, 2048 + 228, 2048 + 400);
        assert_int_equal(r.rcvbuf, UDP_RCVBUF);
        assert_int_equal(r.tuple.lport, 53);
        assert_false(udp_get_report(&s->u, pcb + 1, &r));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(conflicts_are_those_of_linux),
                TEST(a_pcb_binds_once_and_to_a_real_port),
                TEST(a_port_is_free_again_after_close),
                TEST(what_is_unread_at_close_is_counted_as_dropped),
                TEST(pcbs_run_out_and_come_back),
                TEST(the_most_specific_pcb_gets_the_datagram),
                TEST(every_change_empties_the_cache),
                TEST(the_one_bound_last_gets_it_with_reuseaddr),
                TEST(an_option_that_changes_takes_effect_at_once),
                TEST(reuseport_spreads_senders_and_keeps_each_at_its_place),
                TEST(connect_fixes_the_local_address_and_disconnect_lets_it_go),
                TEST(poll_and_shutdown_are_those_of_linux),
                TEST(recovery_makes_everything_derived_anew),
                TEST(reports_say_what_is_there),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
