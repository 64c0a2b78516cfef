/* The UDP header: RFC 768, RFC 1122 §4.1.3.4. */
#include "tests/ip/packet.h"
#include "tests/unit.h"
#include "udp/udp.h"

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

/* A whole datagram from PEER:4000 to US:53, checksummed, of `len` bytes of payload that count up
 * from `fill`.
 */
static uint32_t datagram(uint8_t *p, uint32_t len, uint8_t fill)
{
        struct udp_tuple t = {
                .laddr = ip_addr_v4(PEER), .raddr = ip_addr_v4(US), .lport = 4000, .rport = 53};

        for (uint32_t i = 0; i < len; i++)
                p[UDP_HDR + i] = (uint8_t)(fill + i);
        udp_hdr_write(p, t.lport, t.rport, len,
                      udp_checksum(&t, len, csum_partial(p + UDP_HDR, len, 0)));
        return UDP_HDR + len;
}

static enum drop receive(struct frames *f, const struct unet_rx *rx, enum csum_check csum,
                         struct udp_dgram *d)
{
        struct ip_pkt pkt;

        assert_int_equal(ip_rx(&same_host, CHAN, rx, &pkt), DROP_NONE);
        return udp_hdr_parse(f, &pkt, CHAN, csum, d);
}

static void what_is_written_is_read_wherever_it_lies(void **state)
{
        static uint8_t p[2000];

        for (uint32_t len = 0; len < 180; len++) {
                for (uint32_t in_frame = 0; in_frame <= len; in_frame += 1 + in_frame / 3) {
                        uint32_t n = datagram(p, len, (uint8_t)len);
                        struct unet_rx rx = ip_build(*state, .payload = p, .len = n,
                                                     .in_frame = in_frame, .padding = len % 3);
                        struct udp_dgram d;

                        assert_int_equal(receive(*state, &rx, true, &d), DROP_NONE);
                        assert_int_equal(d.tuple.lport, 53);
                        assert_int_equal(d.tuple.rport, 4000);
                        assert_int_equal(ip_addr_get_v4(d.tuple.laddr), US);
                        assert_int_equal(ip_addr_get_v4(d.tuple.raddr), PEER);
                        assert_int_equal(d.tuple.chan, CHAN);
                        assert_int_equal(udp_dgram_len(&d), len);
                        assert_int_equal(d.data.len, in_frame);
                        assert_memory_equal(d.inl, p + UDP_HDR, d.inl_len);
                        if (in_frame != 0)
                                assert_memory_equal(frame_addr(*state, d.data.id) + d.data.off,
                                                    p + UDP_HDR + d.inl_len, in_frame);
                }
        }
}

static void the_checksum_covers_pseudo_header_header_and_payload(void **state)
{
        uint8_t p[64];
        uint32_t n = datagram(p, 11, 1);

        for (unsigned bit = 0; bit < 8 * n; bit++) {
                struct unet_rx rx;
                struct udp_dgram d;
                enum drop why;

                if (bit / 8 == 4 || bit / 8 == 5)
                        continue; /* the length is looked at before */
                p[bit / 8] ^= (uint8_t)(1u << bit % 8);
                rx = ip_build(*state, .payload = p, .len = n, .in_frame = bit % 2 ? 5 : 0);
                why = receive(*state, &rx, true, &d);
                assert_string_equal(drop_name(why), drop_name(DROP_UDP_CHECKSUM));
                assert_int_equal(receive(*state, &rx, false, &d), DROP_NONE);
                p[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        struct unet_rx rx = ip_build(*state, .src = PEER + 1, .payload = p, .len = n);
        struct udp_dgram d;
        assert_int_equal(receive(*state, &rx, true, &d), DROP_UDP_CHECKSUM);
}

/* RFC 768: zero means that there is none; a sum that comes out as zero is sent as ones. */
/* A sender on the same machine left the summing to a device. */
static void a_checksum_left_to_a_device_is_accepted_where_that_may_be(void **state)
{
        uint8_t p[64];
        uint32_t n = datagram(p, 11, 1);
        be16 field = {csum_fold(csum_pseudo(ip_addr_v4(PEER), ip_addr_v4(US), IP_PROTO_UDP, n))};
        struct udp_dgram d;
        struct unet_rx rx;

        udp_hdr_write(p, 4000, 53, 11, field);
        rx = ip_build(*state, .payload = p, .len = n, .in_frame = 5);
        assert_int_equal(receive(*state, &rx, CSUM_WHOLE_OR_PSEUDO, &d), DROP_NONE);
        assert_int_equal(receive(*state, &rx, CSUM_WHOLE, &d), DROP_UDP_CHECKSUM);
        field.raw ^= 1;
        udp_hdr_write(p, 4000, 53, 11, field);
        rx = ip_build(*state, .payload = p, .len = n, .in_frame = 5);
        assert_int_equal(receive(*state, &rx, CSUM_WHOLE_OR_PSEUDO, &d), DROP_UDP_CHECKSUM);
}

static void no_checksum_is_accepted_and_zero_never_sent(void **state)
{
        uint8_t p[64];
        uint32_t n = datagram(p, 2, 0);
        struct unet_rx rx;
        struct udp_dgram d;
        struct udp_tuple t = {
                .laddr = ip_addr_v4(PEER), .raddr = ip_addr_v4(US), .lport = 4000, .rport = 53};
        bool ones = false;

        memset(p + 6, 0, 2);
        rx = ip_build(*state, .payload = p, .len = n);
        assert_int_equal(receive(*state, &rx, true, &d), DROP_NONE);
        for (uint32_t v = 0; v < 65536; v++) {
                be16 sum = udp_checksum(&t, 2, v);

                assert_int_not_equal(sum.raw, 0);
                ones |= sum.raw == 0xffff;
        }
        assert_true(ones);
}

/* The length may say less than IP brought (the rest is not ours), never more, and never less than
 * the header.
 */
static void the_length_is_checked(void **state)
{
        static const struct {
                uint16_t said;
                bool good;
        } table[] = {{0, false}, {7, false},  {8, true},      {12, true},
                     {19, true}, {20, false}, {0xffff, false}};

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                for (uint32_t in_frame = 0; in_frame <= 11; in_frame++) {
                        uint8_t p[64];
                        uint32_t n = datagram(p, 11, 1);
                        struct unet_rx rx;
                        struct udp_dgram d;

                        put16(p + 4, table[i].said);
                        rx = ip_build(*state, .payload = p, .len = n, .in_frame = in_frame);
                        if (!table[i].good) {
                                assert_int_equal(receive(*state, &rx, false, &d), DROP_UDP_SHORT);
                                continue;
                        }
                        assert_int_equal(receive(*state, &rx, false, &d), DROP_NONE);
                        assert_int_equal(udp_dgram_len(&d), table[i].said - 8);
                        assert_true((d.data.id == 0) == (d.data.len == 0));
                }
        }
}

static void less_than_a_header_is_dropped(void **state)
{
        uint8_t p[64] = {0};

        datagram(p, 0, 0);
        for (uint32_t n = 1; n < UDP_HDR; n++) {
                struct unet_rx rx = ip_build(*state, .payload = p, .len = n);
                struct udp_dgram d;

                assert_int_equal(receive(*state, &rx, false, &d), DROP_UDP_SHORT);
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(what_is_written_is_read_wherever_it_lies),
                TEST(the_checksum_covers_pseudo_header_header_and_payload),
                TEST(a_checksum_left_to_a_device_is_accepted_where_that_may_be),
                TEST(no_checksum_is_accepted_and_zero_never_sent),
                TEST(the_length_is_checked),
                TEST(less_than_a_header_is_dropped),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
