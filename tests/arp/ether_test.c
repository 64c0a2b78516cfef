/* Ethernet II headers. RFC 894, RFC 1122 §2.3.3, RFC 1112 §6.4. */
#include "tests/arp/scene.h"

static const uint8_t a[6] = {2, 0, 0, 0, 0, 1}, b[6] = {2, 0, 0, 0, 0, 2};

/* RFC 1122 §2.3.3: a host MUST be able to send and receive RFC 894 encapsulation. */
static void what_is_written_is_read(void **state)
{
        static const uint16_t types[] = {ETHER_IPV4, ETHER_ARP, ETHER_IPV6, ETHER_TYPE_MIN, 0xffff};
        uint8_t p[ETHER_HDR];

        for (size_t i = 0; i < ARRAY_LEN(types); i++) {
                struct ether_hdr h;

                ether_write(p, a, b, types[i]);
                assert_int_equal(ether_parse(p, sizeof p, &h), DROP_NONE);
                assert_true(ether_eq(h.dst, a) && ether_eq(h.src, b));
                assert_int_equal(h.type, types[i]);
        }
        ether_write(p, a, b, ETHER_IPV4);
        assert_memory_equal(p, "\2\0\0\0\0\1\2\0\0\0\0\2\x08\0", ETHER_HDR);
}

static void a_short_frame_is_dropped(void **state)
{
        uint8_t p[ETHER_HDR];
        struct ether_hdr h;

        ether_write(p, a, b, ETHER_IPV4);
        for (size_t n = 0; n < ETHER_HDR; n++)
                assert_int_equal(ether_parse(p, n, &h), DROP_ETHER_SHORT);
}

/* RFC 1122 §2.3.3: RFC 1042 is told from RFC 894 by the length, which is no type. It is not
 * spoken here. */
static void a_length_in_place_of_the_type_is_dropped(void **state)
{
        static const uint16_t lengths[] = {0, 46, 1500, 1501, 0x05ff};
        uint8_t p[ETHER_HDR];
        struct ether_hdr h;

        for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
                ether_write(p, a, b, lengths[i]);
                assert_int_equal(ether_parse(p, sizeof p, &h), DROP_ETHER_LENGTH);
        }
}

static void a_tagged_frame_is_dropped(void **state)
{
        uint8_t p[ETHER_HDR];
        struct ether_hdr h;

        ether_write(p, a, b, ETHER_VLAN);
        assert_int_equal(ether_parse(p, sizeof p, &h), DROP_ETHER_VLAN);
        ether_write(p, a, b, ETHER_QINQ);
        assert_int_equal(ether_parse(p, sizeof p, &h), DROP_ETHER_VLAN);
}

/* IEEE 802.1Q: a tag of VLAN 0 is a priority, and no more. */
static void a_tag_of_vlan_0_is_looked_behind(void **state)
{
        static const struct {
                uint16_t tag, type; /* behind the tag's own type */
                enum drop why;
        } table[] = {{0, ETHER_IPV4, DROP_NONE},
                     {0xf000, ETHER_ARP, DROP_NONE}, /* any priority, may be dropped */
                     {1, ETHER_IPV4, DROP_ETHER_VLAN},
                     {0xefff, ETHER_IPV4, DROP_ETHER_VLAN},
                     {0, ETHER_VLAN, DROP_ETHER_VLAN}, /* one more */
                     {0, 46, DROP_ETHER_LENGTH}};
        uint8_t p[ETHER_HDR + ETHER_TAG];
        struct ether_hdr h;
        uint32_t len;

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                be16 behind[2] = {be16_of(table[i].tag), be16_of(table[i].type)};

                ether_write(p, a, b, i % 2 == 0 ? ETHER_VLAN : ETHER_QINQ);
                memcpy(p + ETHER_HDR, behind, sizeof behind);
                assert_int_equal(ether_parse(p, sizeof p, &h), DROP_ETHER_VLAN);
                assert_int_equal(ether_parse_tagged(p, sizeof p, &h, &len), table[i].why);
                assert_int_equal(ether_parse_tagged(p, sizeof p - 1, &h, &len), DROP_ETHER_SHORT);
                if (table[i].why == DROP_NONE) {
                        assert_true(ether_eq(h.dst, a) && ether_eq(h.src, b));
                        assert_int_equal(h.type, table[i].type);
                        assert_int_equal(len, sizeof p);
                }
        }
}

static void a_group_cannot_send(void **state)
{
        uint8_t p[ETHER_HDR], group[6];
        struct ether_hdr h;

        ether_multicast_v4(0xe0000001, group);
        ether_write(p, a, group, ETHER_IPV4);
        assert_int_equal(ether_parse(p, sizeof p, &h), DROP_ETHER_SOURCE);
        ether_write(p, a, ether_broadcast, ETHER_IPV4);
        assert_int_equal(ether_parse(p, sizeof p, &h), DROP_ETHER_SOURCE);
}

/* RFC 1122 §2.4: the link layer says whether a frame was broadcast. */
static void whom_a_frame_was_for_is_told(void **state)
{
        uint8_t p[ETHER_HDR], group[6];
        struct ether_hdr h;
        const struct {
                const uint8_t *dst;
                enum ether_cast cast;
        } table[] = {{a, ETHER_TO_US},
                     {b, ETHER_TO_OTHER},
                     {ether_broadcast, ETHER_TO_ALL},
                     {group, ETHER_TO_GROUP}};

        ether_multicast_v4(0xe0000001, group);
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                ether_write(p, table[i].dst, b, ETHER_IPV4);
                assert_int_equal(ether_parse(p, sizeof p, &h), DROP_NONE);
                assert_int_equal(ether_cast_of(&h, a), table[i].cast);
        }
}

/* RFC 1112 §6.4: the low-order 23 bits. */
static void a_group_has_its_link_address(void **state)
{
        uint8_t mac[6];

        ether_multicast_v4(0xe0000001, mac); /* 224.0.0.1 */
        assert_memory_equal(mac, "\x01\x00\x5e\x00\x00\x01", 6);
        ether_multicast_v4(0xefffffff, mac); /* 239.255.255.255 */
        assert_memory_equal(mac, "\x01\x00\x5e\x7f\xff\xff", 6);
        ether_multicast_v4(0xe0800102, mac); /* 224.128.1.2 */
        assert_memory_equal(mac, "\x01\x00\x5e\x00\x01\x02", 6);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_written_is_read),
                cmocka_unit_test(a_short_frame_is_dropped),
                cmocka_unit_test(a_length_in_place_of_the_type_is_dropped),
                cmocka_unit_test(a_tagged_frame_is_dropped),
                cmocka_unit_test(a_tag_of_vlan_0_is_looked_behind),
                cmocka_unit_test(a_group_cannot_send),
                cmocka_unit_test(whom_a_frame_was_for_is_told),
                cmocka_unit_test(a_group_has_its_link_address),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
