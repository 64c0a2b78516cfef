/* The bridge: what the host answers that is for no stack. */
#include "gate_scene.h"

#include "base/checksum.h"
#include "unetd/bridge/gate_answer.h"

#define TTL 33 /* the host's, as it is configured */

static struct gate_answerer answerer;
static struct counters cnt;

static int setup_answers(void **state)
{
        static const uint8_t seed[32] = {7};

        cnt = (struct counters){{0}, {0}};
        gate_answerer_init(&answerer, (struct ip_ifaddr){US, 24}, true, TTL, seed, &cnt);
        return 0;
}

static void sum_l4(struct frame f, unsigned field_at)
{
        uint32_t n = f.len - 34;
        uint32_t pseudo = f.p[23] == IP_PROTO_ICMP
                                  ? 0
                                  : csum_pseudo(ip_addr_v4(PEER), ip_addr_v4(US), f.p[23], n);
        be16 sum = {0};

        memcpy(f.p + 34 + field_at, &sum, 2);
        sum = csum_finish(csum_partial(f.p + 34, n, pseudo));
        memcpy(f.p + 34 + field_at, &sum, 2);
}

static uint32_t answered(struct frame f, uint8_t out[GATE_ANSWER_MAX])
{
        uint32_t n = gate_answer(&answerer, f.p + 14, f.len - 14, NS_PER_S, out);

        free(f.p);
        return n;
}

static uint32_t get32(const uint8_t *p)
{
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* From us, to the peer, of this protocol, summed. */
static void check_answer(const uint8_t *p, uint32_t n, uint8_t proto)
{
        assert_true(n >= 28 && p[0] == 0x45 && (uint32_t)(p[2] << 8 | p[3]) == n && p[9] == proto);
        assert_int_equal(p[8], TTL);
        assert_int_equal(get32(p + 12), US);
        assert_int_equal(get32(p + 16), PEER);
        assert_int_equal(csum_finish(csum_partial(p, 20, 0)).raw, 0);
        if (proto == IP_PROTO_ICMP)
                assert_int_equal(csum_finish(csum_partial(p + 20, n - 20, 0)).raw, 0);
}

static void a_closed_port_resets(void **state)
{
        uint8_t out[GATE_ANSWER_MAX];
        struct frame f = segment(false, NOBODYS, 5, TCP_SYN);
        struct tcp_seg seg;

        put32(f.p + 38, 1000);
        sum_l4(f, 16);
        check_answer(out, answered(f, out), IP_PROTO_TCP);
        assert_int_equal(tcp_hdr_parse(out + 20, 20, &seg), 20);
        assert_int_equal(seg.flags, TCP_RST | TCP_ACK);
        assert_int_equal(seg.ack, 1001);
        assert_true(seg.sport == NOBODYS && seg.dport == 5);
        f = segment(false, NOBODYS, 5, TCP_ACK);
        put32(f.p + 42, 4242);
        sum_l4(f, 16);
        check_answer(out, answered(f, out), IP_PROTO_TCP);
        tcp_hdr_parse(out + 20, 20, &seg);
        assert_true(seg.flags == TCP_RST && seg.seq == 4242);
        f = segment(false, NOBODYS, 5, TCP_RST);
        sum_l4(f, 16);
        assert_int_equal(answered(f, out), 0);
        assert_int_equal(answered(segment(false, NOBODYS, 5, TCP_SYN), out), 0); /* not summed */
        assert_int_equal(cnt.drop[DROP_TCP_CHECKSUM], 1);
}

static void a_datagram_for_nobody_is_answered(void **state)
{
        uint8_t out[GATE_ANSWER_MAX];
        struct frame f = ported(false, IP_PROTO_UDP, NOBODYS, 5, 600);

        sum_l4(f, 6);
        check_answer(out, answered(f, out), IP_PROTO_ICMP);
        assert_true(out[20] == ICMP_UNREACHABLE && out[21] == ICMP_PORT_UNREACHABLE);
        assert_int_equal(get32(out + 28 + 12), PEER);
        check_answer(out, answered(packet(false, 99, PEER, US, 8), out), IP_PROTO_ICMP);
        assert_true(out[20] == ICMP_UNREACHABLE && out[21] == ICMP_PROTOCOL_UNREACHABLE);
        f = ported(false, IP_PROTO_UDP, NOBODYS, 5, 20);
        f.p[26] = 127; /* from a loopback address */
        sum_ip(f);
        assert_int_equal(answered(f, out), 0);
}

/* By ip/'s limits, as a stack's are. */
static void errors_are_limited(void **state)
{
        uint8_t out[GATE_ANSWER_MAX];
        unsigned n = 0;

        for (unsigned i = 0; i < 1000; i++) {
                struct frame f = ported(false, IP_PROTO_UDP, NOBODYS, 5, 600);
                sum_l4(f, 6);
                n += answered(f, out) != 0;
        }
        assert_true(n > 0 && n <= ICMP_PEER_BURST);
        assert_int_equal(cnt.drop[DROP_ICMP_RATE], 1000 - n);
        assert_int_equal(cnt.n[COUNT_ICMP_OUT], n);
}

static void echoes_come_back(void **state)
{
        uint8_t out[GATE_ANSWER_MAX];
        struct frame f = echo(false, ICMP_ECHO_REQUEST, 9);

        sum_l4(f, 2);
        check_answer(out, answered(f, out), IP_PROTO_ICMP);
        assert_true(out[20] == ICMP_ECHO_REPLY && out[25] == 9);
        assert_int_equal(answered(echo(false, ICMP_ECHO_REQUEST, 9), out), 0);
        assert_int_equal(cnt.drop[DROP_ICMP_CHECKSUM], 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(a_closed_port_resets, setup_answers),
                cmocka_unit_test_setup(a_datagram_for_nobody_is_answered, setup_answers),
                cmocka_unit_test_setup(errors_are_limited, setup_answers),
                cmocka_unit_test_setup(echoes_come_back, setup_answers),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
