/* Header prediction: what differs from the datagram before in anything but lengths, ID and sums is
 * not of its flow. */
#include "tests/udp/scene.h"

#include "udp/udp_flow.h"

#define LEN 40u

/* A datagram of LEN bytes as it lies in a descriptor; the last `framed` bytes in frame 1. */
static void message(struct unet_rx *rx, uint32_t framed)
{
        struct ip_tmpl ip;

        memset(rx, 0, sizeof *rx);
        ip_tmpl_init(&ip, ip_addr_v4(PEER), ip_addr_v4(US), IP_PROTO_UDP, 0, 64, true);
        ip_hdr_write(&ip, rx->inl, IP_MIN_HDR + UDP_HDR + LEN, 0);
        udp_hdr_write(rx->inl + IP_MIN_HDR, 4000, 53, LEN, (be16){0});
        rx->inl_len = IP_MIN_HDR + UDP_HDR + LEN - framed;
        rx->frame = framed != 0;
        rx->off = framed != 0 ? 100 : 0;
        rx->len = framed;
}

static struct udp_flow flow_to(struct scene *s, uint32_t pcb)
{
        struct udp_tuple t = {ip_addr_v4(US), ip_addr_v4(PEER), 53, 4000, CHAN, 64, 0};
        struct unet_rx rx;
        struct udp_flow f;

        message(&rx, 0);
        udp_flow_learn(&f, &s->u, pcb, 7, rx.inl, &t);
        return f;
}

static bool matches(struct scene *s, const struct udp_flow *f, const struct unet_rx *rx)
{
        return udp_flow_match(f, &s->u, CHAN, 7, rx);
}

static void the_next_datagram_is_taken_apart(void **state)
{
        struct scene *s = *state;
        struct udp_flow f = flow_to(s, bound(s, 0, 53));
        struct unet_rx rx;
        struct udp_dgram d;

        message(&rx, 0);
        assert_true(udp_flow_match(&f, &s->u, CHAN, 7, &rx));
        udp_flow_take(&f, CHAN, &rx, &d);
        assert_ptr_equal(d.inl, rx.inl + 28);
        assert_int_equal(d.inl_len, LEN);
        assert_int_equal(d.data.id, 0);
        assert_int_equal(d.tuple.lport, 53);
        assert_int_equal(d.tuple.rport, 4000);
        message(&rx, 30);
        assert_true(udp_flow_match(&f, &s->u, CHAN, 7, &rx));
        udp_flow_take(&f, CHAN, &rx, &d);
        assert_int_equal(d.inl_len, LEN - 30);
        assert_int_equal(d.data.id, frame_id(FRAME_REGION_RX(CHAN), 1));
        assert_int_equal(d.data.off, 100);
        assert_int_equal(d.data.len, 30);
}

/* Bits of ID and the two checksums may differ, no others. */
static void one_bit_makes_it_another_flow(void **state)
{
        struct scene *s = *state;
        struct udp_flow f = flow_to(s, bound(s, 0, 53));
        struct unet_rx rx;

        for (unsigned bit = 0; bit < 8 * 28; bit++) {
                unsigned at = bit / 8;
                bool free = at == 4 || at == 5 || at == 10 || at == 11 || at == 26 || at == 27;

                message(&rx, 0);
                rx.inl[at] ^= (uint8_t)(1u << bit % 8);
                assert_int_equal(matches(s, &f, &rx), free);
        }
}

static void lengths_must_agree(void **state)
{
        struct scene *s = *state;
        struct udp_flow f = flow_to(s, bound(s, 0, 53));
        struct unet_rx rx;

        for (int by = -1; by <= 1; by += 2) {
                message(&rx, 0);
                rx.inl_len += (uint32_t)by;
                assert_false(matches(s, &f, &rx));
                message(&rx, 10);
                rx.len += (uint32_t)by;
                assert_false(matches(s, &f, &rx));
        }
}

static void other_channels_addresses_and_sockets_end_it(void **state)
{
        struct scene *s = *state;
        struct udp_flow f = flow_to(s, bound(s, 0, 53)), none = {0};
        struct unet_rx rx;

        message(&rx, 0);
        assert_false(udp_flow_match(&f, &s->u, CHAN + 1, 7, &rx));
        assert_false(udp_flow_match(&f, &s->u, CHAN, 8, &rx));
        assert_false(matches(s, &none, &rx));
        assert_true(matches(s, &f, &rx));
        connected(s, US, 53 + 1, PEER, 1);
        assert_false(matches(s, &f, &rx));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(the_next_datagram_is_taken_apart),
                TEST(one_bit_makes_it_another_flow),
                TEST(lengths_must_agree),
                TEST(other_channels_addresses_and_sockets_end_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
