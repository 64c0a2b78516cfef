/* The bridge: who may send what. */
#include "gate_scene.h"

static void ports_are_their_owners(void **state)
{
        expect_passes(&alice, segment(true, WEB, 5, TCP_SYN | TCP_ACK));
        expect_passes(&bob, segment(true, LEASED, 5, TCP_SYN));
        expect_passes(&alice, ported(true, IP_PROTO_UDP, WEB, 5, 20));
        expect_refused(&bob, segment(true, WEB, 6, TCP_SYN));
        expect_refused(&bob, segment(true, WEB, 5, TCP_RST));
        expect_refused(&alice, segment(true, LEASED, 5, TCP_ACK));
        expect_refused(&alice, segment(true, NOBODYS, 5, TCP_SYN));
        expect_refused(&bob, ported(true, IP_PROTO_UDP, WEB, 5, 20));
}

static void addresses_are_ours(void **state)
{
        struct frame f = segment(true, WEB, 5, TCP_ACK);

        put32(f.p + 26, OTHER);
        expect_refused(&alice, f);
        f = segment(true, WEB, 5, TCP_ACK);
        f.p[11] = 9; /* another MAC address */
        expect_refused(&alice, f);
        f = segment(true, WEB, 5, TCP_ACK);
        put16(f.p + 12, ETHER_IPV6);
        expect_refused(&alice, f);
        f = segment(true, WEB, 5, TCP_ACK);
        f.p[14] = 0x4f; /* a header longer than the packet */
        expect_refused(&alice, f);
        f = segment(true, WEB, 5, TCP_ACK);
        put16(f.p + 16, 2000); /* a packet longer than the frame */
        expect_refused(&alice, f);
        expect_refused(&alice, packet(true, 99, US, PEER, 20));
}

static void arp_says_who_we_are(void **state)
{
        expect_passes(&alice, arp(US, 1));
        expect_passes(&alice, arp(0, 1));
        expect_refused(&alice, arp(PEER, 1));
        expect_refused(&alice, arp(US, 3));
}

static void errors_are_about_what_came_for_the_sender(void **state)
{
        expect_passes(&alice,
                      quoting(true, ICMP_UNREACHABLE, ported(false, IP_PROTO_UDP, WEB, 5, 20)));
        expect_refused(&bob,
                       quoting(true, ICMP_UNREACHABLE, ported(false, IP_PROTO_UDP, WEB, 5, 20)));
        expect_refused(&alice, quoting(true, ICMP_UNREACHABLE, segment(false, LEASED, 5, TCP_ACK)));
        expect_refused(&alice,
                       quoting(true, ICMP_REDIRECT, ported(false, IP_PROTO_UDP, WEB, 5, 20)));
}

/* To somebody else than the sender of what it quotes; about what was never for us. */
static void errors_go_to_who_sent_what_they_quote_only(void **state)
{
        struct frame f = quoting(true, ICMP_UNREACHABLE, ported(false, IP_PROTO_UDP, WEB, 5, 20));

        put32(f.p + 30, OTHER);
        expect_refused(&alice, f);
        f = quoting(true, ICMP_UNREACHABLE, ported(false, IP_PROTO_UDP, WEB, 5, 20));
        put32(f.p + 42 + 16, OTHER);
        expect_refused(&alice, f);
}

/* Cut anywhere, with bytes of any value: nothing is read that is not there, and nothing damaged
 * gets out as another's. */
static void damaged_frames(void **state)
{
        uint64_t r = 42;

        for (int i = 0; i < 200000; i++) {
                bool out = i & 1;
                struct frame f = i % 3 == 0   ? quoting(out, ICMP_UNREACHABLE,
                                                        ported(!out, IP_PROTO_UDP, WEB, 5, 20))
                                 : i % 3 == 1 ? segment(out, WEB, 5, TCP_ACK)
                                              : arp(US, 1);
                struct frame cut;
                for (int k = 0; k < 3; k++) {
                        r = r * 6364136223846793005u + 1442695040888963407u;
                        f.p[12 + (r >> 33) % (f.len - 12)] = (uint8_t)(r >> 56);
                }
                cut.len = (uint32_t)(r >> 40) % (f.len + 1);
                cut.p = malloc(cut.len ? cut.len : 1);
                memcpy(cut.p, f.p, cut.len);
                free(f.p);
                if (out)
                        leaves(&bob, cut);
                else
                        comes(cut);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                GATE_TEST(ports_are_their_owners),
                GATE_TEST(addresses_are_ours),
                GATE_TEST(arp_says_who_we_are),
                GATE_TEST(errors_are_about_what_came_for_the_sender),
                GATE_TEST(errors_go_to_who_sent_what_they_quote_only),
                GATE_TEST(damaged_frames),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
