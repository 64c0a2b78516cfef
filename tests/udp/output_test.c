/* Datagrams out: where to, whether at all, and a header that parses back. */
#include "ip/frag.h"
#include "tests/udp/scene.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/checksum.h"

static void the_connected_peer_is_the_default(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = connected(s, 0, 53, PEER, 4000);
        struct udp_tuple other = {
                .raddr = ip_addr_v4(OTHER), .rport = 7, .laddr = ip_addr_v4(US_2), .chan = 9};
        struct udp_out out;

        assert_int_equal(udp_output_prepare(&s->u, pcb, NULL, 100, false, 0, &out), 0);
        assert_int_equal(ip_addr_get_v4(out.tuple.raddr), PEER);
        assert_int_equal(out.tuple.rport, 4000);
        assert_int_equal(ip_addr_get_v4(out.tuple.laddr), US);
        assert_memory_equal(out.hdr, "\x00\x35\x0f\xa0\x00\x6c\x00\x00", 8);
        assert_int_equal(out.ttl, UDP_TTL);
        assert_int_equal(udp_output_prepare(&s->u, pcb, &other, 100, false, 0, &out), 0);
        assert_int_equal(ip_addr_get_v4(out.tuple.raddr), OTHER);
        assert_int_equal(out.tuple.rport, 7);
        assert_int_equal(out.tuple.chan, 9);
        assert_int_equal(ip_addr_get_v4(out.tuple.laddr), US); /* its own is kept */
        assert_int_equal(s->cnt.n[COUNT_UDP_OUT], 2);
        udp_output_cancel(&s->u, pcb); /* the NI's queue was full */
        assert_int_equal(s->cnt.n[COUNT_UDP_OUT], 1);
}

static void an_unbound_address_is_chosen_by_the_caller(void **state)
{
        struct scene *s = *state;
        struct udp_tuple to = {.raddr = ip_addr_v4(OTHER), .rport = 7, .laddr = ip_addr_v4(US_2)};
        struct udp_out out;

        assert_int_equal(udp_output_prepare(&s->u, bound(s, 0, 53), &to, 1, false, 0, &out), 0);
        assert_int_equal(ip_addr_get_v4(out.tuple.laddr), US_2);
}

static void what_cannot_be_sent_says_why(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53), shut = connected(s, 0, 54, PEER, 4000), unbound;
        struct udp_tuple to = {.raddr = ip_addr_v4(PEER), .rport = 4000},
                         port_0 = {.raddr = ip_addr_v4(PEER)};
        struct udp_opts o;
        struct udp_out out;

        udp_opts_default(&o);
        unbound = udp_open(&s->u, &o);
        udp_shutdown(&s->u, shut, SHUT_WR);
        assert_int_equal(udp_output_prepare(&s->u, pcb, NULL, 1, false, 0, &out), -EDESTADDRREQ);
        assert_int_equal(udp_output_prepare(&s->u, pcb, &port_0, 1, false, 0, &out), -EINVAL);
        assert_int_equal(udp_output_prepare(&s->u, unbound, &to, 1, false, 0, &out), -EINVAL);
        assert_int_equal(udp_output_prepare(&s->u, pcb, &to, UDP_MAX_PAYLOAD + 1, false, 0, &out),
                         -EMSGSIZE);
        assert_int_equal(udp_output_prepare(&s->u, shut, NULL, 1, false, 0, &out), -EPIPE);
        assert_int_equal(s->cnt.n[COUNT_UDP_OUT], 0);
        assert_int_equal(udp_output_prepare(&s->u, pcb, &to, UDP_MAX_PAYLOAD, false, 0, &out), 0);
}

static void a_pending_error_is_returned_by_the_next_send(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = connected(s, 0, 53, PEER, 4000);
        struct icmp_err e = {.err = ECONNREFUSED,
                             .hard = true,
                             .laddr = ip_addr_v4(US),
                             .lport = 53,
                             .raddr = ip_addr_v4(PEER),
                             .rport = 4000};
        struct udp_out out;

        udp_icmp(&s->u, &e);
        assert_int_equal(udp_output_prepare(&s->u, pcb, NULL, 1, false, 0, &out), -ECONNREFUSED);
        assert_int_equal(udp_output_prepare(&s->u, pcb, NULL, 1, false, 0, &out), 0);
}

/* The whole way back: IP template, UDP header, payload; parsed and verified by the receiver. */
static void the_header_parses_back_with_its_checksum(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = connected(s, 0, 53, PEER, 4000);
        struct ip_ifaddr peers = {PEER, 24};
        struct ip_host host = {&peers, 1, .local = false, .csum = true};

        for (uint32_t len = 0; len <= 200; len++) {
                struct unet_rx rx = {.inl_len = IP_MIN_HDR + UDP_HDR + len};
                uint8_t *payload = rx.inl + IP_MIN_HDR + UDP_HDR;
                struct ip_tmpl tmpl;
                struct udp_out out;
                struct udp_dgram d;
                struct ip_pkt pkt;

                for (uint32_t i = 0; i < len; i++)
                        payload[i] = (uint8_t)(len * 3 + i);
                assert_int_equal(udp_output_prepare(&s->u, pcb, NULL, len, true,
                                                    csum_partial(payload, len, 0), &out),
                                 0);
                ip_tmpl_init(&tmpl, out.tuple.laddr, out.tuple.raddr, IP_PROTO_UDP, out.tos,
                             out.ttl, out.pmtu_mode == PMTU_WANT);
                ip_hdr_write(&tmpl, rx.inl, (uint16_t)rx.inl_len, 0);
                memcpy(rx.inl + IP_MIN_HDR, out.hdr, UDP_HDR);
                assert_int_equal(ip_rx(&host, CHAN, &rx, &pkt), DROP_NONE);
                assert_int_equal(udp_hdr_parse(s->frames, &pkt, CHAN, true, &d), DROP_NONE);
                assert_int_equal(d.tuple.lport, 4000);
                assert_int_equal(udp_dgram_len(&d), len);
        }
}

static void so_no_check_leaves_it_out(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = connected(s, 0, 53, PEER, 4000);
        struct udp_opts o;
        struct udp_out out;

        assert_int_equal(udp_output_prepare(&s->u, pcb, NULL, 0, true, 0, &out), 0);
        assert_true(out.hdr[6] != 0 || out.hdr[7] != 0);
        udp_get_opts(&s->u, pcb, &o);
        o.no_check = 1;
        udp_set_opts(&s->u, pcb, &o);
        assert_int_equal(udp_output_prepare(&s->u, pcb, NULL, 0, true, 0, &out), 0);
        assert_true(out.hdr[6] == 0 && out.hdr[7] == 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(the_connected_peer_is_the_default),
                TEST(an_unbound_address_is_chosen_by_the_caller),
                TEST(what_cannot_be_sent_says_why),
                TEST(a_pending_error_is_returned_by_the_next_send),
                TEST(the_header_parses_back_with_its_checksum),
                TEST(so_no_check_leaves_it_out),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
