/* The bridge: whose what arrives is. */
#include "gate_scene.h"

static void packets_go_to_who_has_the_port(void **state)
{
        expect_to(ALICE, segment(false, WEB, 5, TCP_SYN));
        expect_to(BOB, segment(false, LEASED, 5, TCP_ACK));
        expect_to(ALICE, ported(false, IP_PROTO_UDP, WEB, 5, 20));
        expect_way(GATE_OURS, segment(false, NOBODYS, 5, TCP_SYN));
        expect_way(GATE_OURS, ported(false, IP_PROTO_UDP, LEASED, 5, 20));
        expect_way(GATE_OURS, packet(false, 99, PEER, US, 20));
}

static void errors_go_to_who_sent_what_they_quote(void **state)
{
        expect_to(ALICE, quoting(false, ICMP_UNREACHABLE, ported(true, IP_PROTO_UDP, WEB, 5, 20)));
        expect_to(BOB, quoting(false, ICMP_TIME_EXCEEDED, segment(true, LEASED, 5, TCP_ACK)));
        expect_way(GATE_NOBODY,
                   quoting(false, ICMP_UNREACHABLE, segment(true, NOBODYS, 5, TCP_ACK)));
        expect_way(GATE_NOBODY,
                   quoting(false, ICMP_UNREACHABLE, ported(false, IP_PROTO_UDP, WEB, 5, 20)));
        expect_way(GATE_NOBODY,
                   quoting(false, ICMP_REDIRECT, ported(true, IP_PROTO_UDP, WEB, 5, 20)));
}

static void what_is_for_several_goes_to_all(void **state)
{
        struct frame f = ported(false, IP_PROTO_UDP, 5353, 5353, 20);
        uint8_t group[6];

        ether_multicast_v4(0xe00000fb, group);
        memcpy(f.p, group, 6);
        put32(f.p + 30, 0xe00000fb);
        expect_way(GATE_ALL, f);
        f = segment(false, WEB, 5, TCP_SYN);
        memcpy(f.p, ether_broadcast, 6);
        expect_way(GATE_NOBODY, f);
        f = segment(false, WEB, 5, TCP_SYN);
        put32(f.p + 30, OTHER);
        expect_way(GATE_NOBODY, f);
        f = segment(false, WEB, 5, TCP_SYN);
        f.p[5] = 9;
        expect_way(GATE_NOBODY, f);
        f = segment(false, WEB, 5, TCP_SYN);
        put16(f.p + 20, 0x2000);
        expect_way(GATE_NOBODY, f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                GATE_TEST(packets_go_to_who_has_the_port),
                GATE_TEST(errors_go_to_who_sent_what_they_quote),
                GATE_TEST(what_is_for_several_goes_to_all),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
