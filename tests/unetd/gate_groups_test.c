/* The bridge: what stacks say of groups (IGMP). */
#include "gate_scene.h"

enum { GROUP = 0xef010203, V1 = 0x12, V2 = 0x16, LEAVE = 0x17, V3 = 0x22, QUERY = 0x11 };
enum { IS_EX = 2, TO_IN = 3, TO_EX = 4, ALLOW = 5, BLOCK = 6 };

/* Of version 3, with one record; `type` is the message's or, from the left byte, the record's. */
static struct frame igmp(uint32_t dst, uint8_t type, uint8_t record)
{
        struct frame f = packet(true, IP_PROTO_IGMP, US, dst, type == V3 ? 16 : 8);

        ether_multicast_v4(dst, f.p);
        f.p[22] = 1;
        f.p[34] = type;
        if (type == V3) {
                f.p[34 + 7] = 1;
                f.p[34 + 8] = record;
        }
        put32(f.p + f.len - 4, GROUP);
        return f;
}

static void groups_are_joined(void **state)
{
        struct frame f;

        expect_passes(&alice, igmp(GROUP, V1, 0));
        expect_passes(&alice, igmp(GROUP, V2, 0));
        for (uint8_t record = IS_EX; record <= BLOCK; record++)
                expect_passes(&alice, igmp(0xe0000016, V3, record));
        expect_refused(&alice, igmp(GROUP + 1, V2, 0)); /* not where it belongs */
        expect_refused(&alice, igmp(PEER, V3, IS_EX));
        f = igmp(GROUP, V2, 0);
        f.p[22] = 2;
        expect_refused(&alice, f);
}

static void routers_words_are_not_a_stacks(void **state)
{
        static const uint8_t types[] = {QUERY, 0x13, 0x14, 0x30, 0x31, 0x32};

        for (size_t i = 0; i < sizeof types; i++)
                expect_refused(&alice, igmp(GROUP, types[i], 0));
        expect_refused(&alice, igmp(0xe0000001, QUERY, 0));
}

static void no_stack_leaves_for_another(void **state)
{
        expect_passes(&alice, igmp(0xe0000016, V3, TO_EX));
        expect_refused(&bob, igmp(0xe0000002, LEAVE, 0));
        expect_refused(&bob, igmp(0xe0000016, V3, TO_IN));
        expect_refused(&bob, igmp(0xe0000016, V3, BLOCK));
        expect_passes(&bob, igmp(0xe0000016, V3, TO_EX));
        expect_refused(&alice, igmp(0xe0000016, V3, TO_IN)); /* Bob is a member still */
        gate_groups_forget(&groups, BOB);
        expect_passes(&alice, igmp(0xe0000016, V3, TO_IN));
        expect_passes(&bob, igmp(0xe0000002, LEAVE, 0));
}

static void damaged_reports(void **state)
{
        struct frame f;

        for (uint32_t n = 0; n < 16; n++) { /* cut off anywhere */
                f = igmp(0xe0000016, V3, IS_EX);
                f.len = 34 + n;
                put16(f.p + 16, 20 + n);
                expect_refused(&alice, f);
        }
        f = igmp(0xe0000016, V3, IS_EX);
        f.p[34 + 7] = 2; /* a record that is not there */
        expect_refused(&alice, f);
        f = igmp(0xe0000016, V3, IS_EX);
        f.p[34 + 11] = 1; /* nor is that source */
        expect_refused(&alice, f);
        f = igmp(0xe0000016, V3, IS_EX);
        put16(f.p + 20, 0x2000);
        expect_refused(&alice, f);
}

/* What one stack says takes no room from another. */
static void a_stack_has_few_groups(void **state)
{
        for (uint32_t i = 0; i < 100; i++) {
                struct frame f = igmp(GROUP + i, V2, 0);
                put32(f.p + f.len - 4, GROUP + i);
                expect_passes(&alice, f);
        }
        assert_int_equal(groups.n, GATE_GROUPS_EACH);
}

static void nobody_takes_all_places_for_groups(void **state)
{
        struct gate_sender mallory = {.stack = 7 * UNETD_STACKS_OF_USER};

        for (uint32_t i = 0; i < 2 * GATE_GROUPS; i++) {
                struct frame f = igmp(GROUP + 1 + i, V2, 0);

                mallory.stack += i % GATE_GROUPS_EACH == 0;
                put32(f.p + f.len - 4, GROUP + 1 + i);
                expect_passes(&mallory, f);
        }
        assert_int_equal(groups.n, GATE_GROUPS / 2);
        expect_passes(&alice, igmp(GROUP, V2, 0));
        expect_refused(&mallory, igmp(0xe0000002, LEAVE, 0));
}

static struct frame to_group(uint32_t group, uint16_t port)
{
        struct frame f = ported(true, IP_PROTO_UDP, port, MDNS, 20);

        ether_multicast_v4(group, f.p);
        put32(f.p + 30, group);
        return f;
}

static void to_a_group_nobody_speaks_from_anothers_port(void **state)
{
        expect_passes(&alice, to_group(MDNS_GROUP, MDNS));
        expect_passes(&alice, to_group(MDNS_GROUP, WEB));
        expect_refused(&alice, to_group(MDNS_GROUP + 1, MDNS));
        expect_refused(&bob, to_group(MDNS_GROUP, MDNS));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                GATE_TEST(groups_are_joined),
                GATE_TEST(routers_words_are_not_a_stacks),
                GATE_TEST(no_stack_leaves_for_another),
                GATE_TEST(damaged_reports),
                GATE_TEST(a_stack_has_few_groups),
                GATE_TEST(nobody_takes_all_places_for_groups),
                GATE_TEST(to_a_group_nobody_speaks_from_anothers_port),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
