/* IPv4 input: what RFC 1122 §3.2.1 asks of a host; and what we write, read back. */
#include "ip/igmp.h"
#include "tests/ip/packet.h"
#include "tests/unit.h"

static const uint8_t hello[] = "hello, world";

static int setup(void **state)
{
        *state = lent_frames();
        return 0;
}

static int teardown(void **state)
{
        free_lent_frames(*state);
        return 0;
}

#define expect_drop(host, rx, why)                                                              \
        do {                                                                                    \
                struct ip_pkt pkt_;                                                             \
                struct unet_rx rx_ = (rx);                                                      \
                assert_string_equal(drop_name(ip_rx(host, CHAN, &rx_, &pkt_)), drop_name(why)); \
        } while (0)

static void a_good_packet_is_parsed(void **state)
{
        struct unet_rx rx = ip_build(*state, .payload = hello, .len = 12, .tos = 0xb8 | IP_ECN_CE,
                                     .ttl = 7, .id = 0x1234, .frag = 0x4000, .proto = IP_PROTO_TCP);
        struct ip_pkt pkt;

        assert_int_equal(ip_rx(&wire, CHAN, &rx, &pkt), DROP_NONE);
        assert_int_equal(ip_addr_get_v4(pkt.src), PEER);
        assert_int_equal(ip_addr_get_v4(pkt.dst), US);
        assert_int_equal(pkt.proto, IP_PROTO_TCP);
        assert_int_equal(pkt.tos, 0xb8 | IP_ECN_CE);
        assert_int_equal(pkt.ttl, 7);
        assert_int_equal(pkt.id, 0x1234);
        assert_true(pkt.dont_frag && !pkt.more_frags);
        assert_int_equal(pkt.hdr_len, 20);
        assert_int_equal(pkt.total_len, 32);
        assert_int_equal(ip_payload_len(&pkt), 12);
        assert_memory_equal(pkt.inl, hello, 12);
        assert_int_equal(pkt.data.id, 0);
}

static void the_payload_may_begin_here_and_go_on_in_a_frame(void **state)
{
        for (uint32_t in_frame = 0; in_frame <= 12; in_frame++) {
                struct unet_rx rx =
                        ip_build(*state, .payload = hello, .len = 12, .in_frame = in_frame);
                struct ip_pkt pkt;

                assert_int_equal(ip_rx(&wire, CHAN, &rx, &pkt), DROP_NONE);
                assert_int_equal(pkt.inl_len, 12 - in_frame);
                assert_int_equal(pkt.data.len, in_frame);
                assert_memory_equal(pkt.inl, hello, pkt.inl_len);
                if (in_frame == 0)
                        continue;
                assert_int_equal(pkt.data.id, frame_id(FRAME_REGION_RX(CHAN), 1));
                assert_int_equal(pkt.data.off, 17);
        }
}

/* RFC 894: Ethernet pads to 46 bytes; the total length says where the packet ends. */
static void link_padding_is_cut_off(void **state)
{
        struct unet_rx here = ip_build(*state, .payload = hello, .len = 12, .padding = 14);
        struct unet_rx there =
                ip_build(*state, .payload = hello, .len = 12, .in_frame = 12, .padding = 14);
        struct unet_rx only = ip_build(*state, .payload = hello, .len = 12, .padding = 14);
        struct ip_pkt pkt;

        assert_int_equal(ip_rx(&wire, CHAN, &here, &pkt), DROP_NONE);
        assert_int_equal(pkt.inl_len, 12);
        assert_int_equal(ip_rx(&wire, CHAN, &there, &pkt), DROP_NONE);
        assert_int_equal(pkt.data.len, 12);
        only.frame = 2; /* a frame that holds nothing but padding */
        only.len = 100;
        assert_int_equal(ip_rx(&wire, CHAN, &only, &pkt), DROP_NONE);
        assert_int_equal(pkt.data.id, 0);
}

static void less_than_the_total_length_is_dropped(void **state)
{
        struct unet_rx rx = ip_build(*state, .payload = hello, .len = 12);
        struct unet_rx fr = ip_build(*state, .payload = hello, .len = 12, .in_frame = 6);

        rx.inl_len--;
        expect_drop(&wire, rx, DROP_IP_SHORT);
        fr.len--;
        expect_drop(&wire, fr, DROP_IP_SHORT);
        fr.len++;
        fr.frame = 0; /* a length without a frame is nothing */
        expect_drop(&wire, fr, DROP_IP_SHORT);
}

static void every_short_header_is_dropped(void **state)
{
        struct unet_rx rx = ip_build(*state, .len = 0);

        for (rx.inl_len = 0; rx.inl_len < 20; rx.inl_len++)
                expect_drop(&wire, rx, DROP_IP_SHORT);
        put16(rx.inl + 2, 19); /* total length below the header's */
        fix_ip_sum(&rx);
        expect_drop(&wire, rx, DROP_IP_SHORT);
}

static void version_and_header_length_are_checked(void **state)
{
        struct unet_rx rx = ip_build(*state, .len = 0);

        rx.inl[0] = 0x65;
        expect_drop(&wire, rx, DROP_IP_VERSION);
        rx.inl[0] = 0x44;
        expect_drop(&wire, rx, DROP_IP_HEADER);
        rx.inl[0] = 0x46; /* 24 bytes of header, of which 20 are there */
        expect_drop(&wire, rx, DROP_IP_SHORT);
}

/* RFC 1122 §3.2.1.2: a host must verify it, each bit of it; on a link that cannot corrupt it
 * need not. */
static void the_checksum_covers_every_bit(void **state)
{
        struct unet_rx good = ip_build(*state, .len = 0);
        struct ip_pkt pkt;

        for (unsigned bit = 8; bit < 160; bit++) {
                struct unet_rx rx = good;

                rx.inl[bit / 8] ^= (uint8_t)(1u << bit % 8);
                if (bit / 8 == 2 || bit / 8 == 3)
                        continue; /* the total length is looked at before */
                expect_drop(&wire, rx, DROP_IP_CHECKSUM);
        }
        good.inl[10] ^= 1;
        assert_int_equal(ip_rx(&same_host, CHAN, &good, &pkt), DROP_NONE);
}

/* RFC 1122 §3.2.1.7: "a host MUST NOT discard a datagram just because it was received with TTL less
 * than 2".
 */
static void a_ttl_of_one_is_enough(void **state)
{
        struct unet_rx rx = ip_build(*state, .ttl = 1);
        struct ip_pkt pkt;

        assert_int_equal(ip_rx(&wire, CHAN, &rx, &pkt), DROP_NONE);
}

static void options_are_skipped_when_they_fit(void **state)
{
        static const struct {
                uint8_t opt[8];
                unsigned len;
                bool good;
        } table[] = {
                {{1, 1, 1, 1}, 4, true},             /* NOPs */
                {{0, 9, 9, 9}, 4, true},             /* end of list; the rest is not looked at */
                {{7, 7, 4, 0, 0, 0, 0, 0}, 8, true}, /* record route, then end of list */
                {{0x94, 4, 0, 0}, 4, true},          /* router alert, RFC 2113 */
                {{7, 8, 4, 0, 0, 0, 0, 0}, 8, true},
                {{7, 9, 4, 0, 0, 0, 0, 0}, 8, false}, /* runs over */
                {{7, 0, 4, 0}, 4, false},             /* length that does not cover itself */
                {{7, 1, 4, 0}, 4, false},
                {{1, 1, 1, 7}, 4, false}, /* no room for a length */
                {{1, 1, 7, 3}, 4, false},
        };

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                struct unet_rx rx =
                        ip_build(*state, .options = table[i].opt, .options_len = table[i].len,
                                 .payload = hello, .len = 12);
                struct ip_pkt pkt;
                enum drop why = ip_rx(&wire, CHAN, &rx, &pkt);

                assert_string_equal(drop_name(why),
                                    drop_name(table[i].good ? DROP_NONE : DROP_IP_OPTIONS));
                if (table[i].good)
                        assert_memory_equal(pkt.inl, hello, 12);
        }
}

/* RFC 1122 §3.2.1.3 and RFC 6890: who may speak, and to whom. */
static void addresses_are_judged(void **state)
{
        static const struct {
                uint32_t src, dst;
                enum drop outside, inside;
        } table[] = {
                {PEER, US, DROP_NONE, DROP_NONE},
                {FAR, US, DROP_NONE, DROP_NONE},
                {PEER, 0xc6336407, DROP_NONE, DROP_NONE}, /* our second address, a /32 */
                {US, US, DROP_IP_MARTIAN, DROP_NONE},     /* "land" */
                {0x7f000001, 0x7f000001, DROP_IP_MARTIAN, DROP_NONE},
                {0x7f010203, US, DROP_IP_MARTIAN, DROP_NONE},
                {PEER, 0x7f000001, DROP_IP_MARTIAN, DROP_NONE},
                {0xe0000001, US, DROP_IP_MARTIAN, DROP_IP_MARTIAN}, /* a group */
                {0xf0000001, US, DROP_IP_MARTIAN, DROP_IP_MARTIAN}, /* class E */
                {0xffffffff, US, DROP_IP_MARTIAN, DROP_IP_MARTIAN},
                {0x0a0000ff, US, DROP_IP_MARTIAN, DROP_IP_MARTIAN}, /* our network's broadcast */
                {0x00000001, US, DROP_IP_MARTIAN, DROP_IP_MARTIAN},
                {PEER, 0x0a000003, DROP_IP_NOT_OURS, DROP_IP_NOT_OURS},
                /* To all, where there is more than one. */
                {PEER, 0x0a0000ff, DROP_NONE, DROP_IP_NOT_OURS},
                {PEER, 0xffffffff, DROP_NONE, DROP_IP_NOT_OURS},
                /* RFC 1122 §3.3.6: zeros, the old form. */
                {PEER, 0x0a000000, DROP_NONE, DROP_IP_NOT_OURS},
                {PEER, 0x0a0001ff, DROP_IP_NOT_OURS, DROP_IP_NOT_OURS}, /* another network's */
                {PEER, 0xc63364ff, DROP_IP_NOT_OURS, DROP_IP_NOT_OURS}, /* of a /32 there is none */
                {PEER, 0xe0000001, DROP_NONE, DROP_IP_NOT_OURS},        /* all hosts */
                /* A group that nobody joined. */
                {PEER, 0xe0000102, DROP_IP_NOT_OURS, DROP_IP_NOT_OURS},
        };

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                struct unet_rx rx = ip_build(*state, .src = table[i].src, .dst = table[i].dst);

                expect_drop(&wire, rx, table[i].outside);
                expect_drop(&same_host, rx, table[i].inside);
        }
}

/* RFC 1122 §3.2.1.3, §3.3.7: what was joined on the interface, and nowhere else, is for us. */
static void packets_for_a_group_need_a_member(void **state)
{
        struct unet_rx rx = ip_build(*state, .dst = 0xe0000102),
                       all = ip_build(*state, .dst = 0xffffffff);
        struct igmp *g = malloc(sizeof *g);
        struct ip_host host = wire;
        struct ip_pkt pkt;

        igmp_init(g);
        host.groups = g;
        host.ifc = 2;
        expect_drop(&host, rx, DROP_IP_NOT_OURS);
        assert_int_equal(igmp_join(g, 1, 0xe0000102, 77, 0), 0);
        expect_drop(&host, rx, DROP_IP_NOT_OURS);
        assert_int_equal(igmp_join(g, 2, 0xe0000102, 77, 0), 0);
        assert_int_equal(ip_rx(&host, CHAN, &rx, &pkt), DROP_NONE);
        assert_int_equal(pkt.to, IP_TO_GROUP);
        assert_int_equal(ip_rx(&host, CHAN, &all, &pkt), DROP_NONE);
        assert_int_equal(pkt.to, IP_TO_BROADCAST);
        free(g);
}

/* RFC 1122 §3.3.6: a packet for one host has no business in a broadcast frame. */
static void a_link_broadcast_of_a_unicast_packet_is_dropped(void **state)
{
        struct unet_rx one = ip_build(*state, .len = 0), all = ip_build(*state, .dst = 0xffffffff);
        struct ip_host host = wire;
        struct ip_pkt pkt;

        host.link_cast = true;
        expect_drop(&host, one, DROP_IP_LINK_CAST);
        assert_int_equal(ip_rx(&host, CHAN, &all, &pkt), DROP_NONE);
        assert_true(pkt.link_cast);
}

static void fragments_are_counted_and_described(void **state)
{
        struct unet_rx first = ip_build(*state, .frag = 0x2000, .payload = hello, .len = 8);
        struct unet_rx last = ip_build(*state, .frag = 0x0001, .payload = hello, .len = 8);
        struct ip_pkt pkt;

        assert_int_equal(ip_rx(&wire, CHAN, &first, &pkt), DROP_IP_FRAGMENT);
        assert_true(pkt.more_frags);
        assert_int_equal(ip_rx(&wire, CHAN, &last, &pkt), DROP_IP_FRAGMENT);
        assert_int_equal(pkt.frag_off, 8);
        assert_int_equal(ip_payload_len(&pkt), 8);
}

/* Style: what can be emitted can be parsed back. */
static void what_we_write_we_can_read(void **state)
{
        struct ip_tmpl t;
        struct ip_pkt pkt;
        uint8_t hdr[IP_MIN_HDR];

        for (uint32_t i = 0; i < 3000; i++) {
                uint16_t len = (uint16_t)(20 + i * 21), id = (uint16_t)(i * 77);
                bool df = i % 2;

                ip_tmpl_init(&t, ip_addr_v4(US + i * 99991), ip_addr_v4(PEER + i * 65537),
                             IP_PROTO_TCP, (uint8_t)i, (uint8_t)(i % 255 + 1), df);
                ip_hdr_write(&t, hdr, len, id);
                assert_int_equal(ip_hdr_parse(hdr, sizeof hdr, true, &pkt), 0);
                assert_int_equal(ip_addr_get_v4(pkt.src), US + i * 99991);
                assert_int_equal(ip_addr_get_v4(pkt.dst), PEER + i * 65537);
                assert_int_equal(pkt.total_len, len);
                assert_int_equal(pkt.id, id);
                assert_int_equal(pkt.tos, (uint8_t)i);
                assert_int_equal(pkt.ttl, i % 255 + 1);
                assert_int_equal(pkt.dont_frag, df);
                assert_int_equal(pkt.frag_off, 0);
                assert_false(pkt.more_frags);
                for (uint8_t ecn = 0; ecn <= IP_ECN_CE; ecn++) {
                        ip_hdr_set_ecn(hdr, ecn);
                        assert_int_equal(ip_hdr_parse(hdr, sizeof hdr, true, &pkt), 0);
                        assert_int_equal(pkt.tos, (i & ~(uint32_t)IP_ECN_MASK & 0xff) | ecn);
                }
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(a_good_packet_is_parsed),
                TEST(the_payload_may_begin_here_and_go_on_in_a_frame),
                TEST(link_padding_is_cut_off),
                TEST(less_than_the_total_length_is_dropped),
                TEST(every_short_header_is_dropped),
                TEST(version_and_header_length_are_checked),
                TEST(the_checksum_covers_every_bit),
                TEST(a_ttl_of_one_is_enough),
                TEST(options_are_skipped_when_they_fit),
                TEST(addresses_are_judged),
                TEST(packets_for_a_group_need_a_member),
                TEST(a_link_broadcast_of_a_unicast_packet_is_dropped),
                TEST(fragments_are_counted_and_described),
                TEST(what_we_write_we_can_read),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
