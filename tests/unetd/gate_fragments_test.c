/* The bridge: fragments that a stack sends. */
#include "gate_scene.h"

#include "base/checksum.h"

/* A datagram of the sender's, in two fragments. */
enum { LAST_AT = 3 };

static struct frame first_fragment(uint16_t port, uint16_t id)
{
        struct frame f = ported(true, IP_PROTO_UDP, port, 5, 24);

        put16(f.p + 18, id);
        put16(f.p + 20, 0x2000);
        sum_ip(f);
        return f;
}

static struct frame later_fragment(uint8_t proto, uint16_t id)
{
        struct frame f = packet(true, proto, US, PEER, 24);

        put16(f.p + 18, id);
        put16(f.p + 20, LAST_AT);
        sum_ip(f);
        return f;
}

/* Its identification as it leaves; -1: it does not. Its header's sum is right. */
static int leaves_as(struct gate_sender *who, struct frame f)
{
        int id = -1;

        if (gate_check(&rules, who, f.p, f.len, f.len, now) == DROP_NONE) {
                assert_true(csum_finish(csum_partial(f.p + 14, 20, 0)).raw == 0);
                id = f.p[18] << 8 | f.p[19];
        }
        free(f.p);
        return id;
}

static void later_fragments_follow_their_first(void **state)
{
        int id;

        expect_refused(&alice, later_fragment(IP_PROTO_UDP, 77));
        id = leaves_as(&alice, first_fragment(WEB, 77));
        assert_true(id >= 0);
        for (int i = 0; i < 3; i++)
                assert_int_equal(leaves_as(&alice, later_fragment(IP_PROTO_UDP, 77)), id);
        expect_refused(&alice, later_fragment(IP_PROTO_UDP, 78));
        expect_refused(&alice, later_fragment(IP_PROTO_TCP, 77));
        expect_refused(&bob, later_fragment(IP_PROTO_UDP, 77));
}

/* The receiver joins fragments by addresses, protocol and identification, of which only the last
 * can tell stacks apart. */
static void fragments_of_two_stacks_are_never_joined(void **state)
{
        int alices, bobs;

        web_owner = BOB;
        bobs = leaves_as(&bob, first_fragment(WEB, 77));
        web_owner = ALICE;
        alices = leaves_as(&alice, first_fragment(WEB, 77));
        assert_int_not_equal(alices, bobs);
        assert_int_equal(leaves_as(&bob, later_fragment(IP_PROTO_UDP, 77)), bobs);
        assert_int_equal(leaves_as(&alice, later_fragment(IP_PROTO_UDP, 77)), alices);
        assert_int_not_equal(leaves_as(&alice, first_fragment(WEB, 77)), alices);
}

static void a_first_fragment_that_is_refused_opens_nothing(void **state)
{
        expect_refused(&bob, first_fragment(WEB, 77));
        expect_refused(&bob, later_fragment(IP_PROTO_UDP, 77));
}

static void a_first_fragment_is_forgotten_in_time(void **state)
{
        assert_true(leaves_as(&alice, first_fragment(WEB, 77)) >= 0);
        now += (GATE_FIRST_S - 1) * NS_PER_S;
        assert_true(leaves_as(&alice, later_fragment(IP_PROTO_UDP, 77)) >= 0);
        now += NS_PER_S;
        expect_refused(&alice, later_fragment(IP_PROTO_UDP, 77));
}

static void a_stack_has_few_first_fragments(void **state)
{
        for (uint16_t id = 0; id < 5; id++)
                assert_true(leaves_as(&alice, first_fragment(WEB, id)) >= 0);
        expect_refused(&alice, later_fragment(IP_PROTO_UDP, 0));
        assert_true(leaves_as(&alice, later_fragment(IP_PROTO_UDP, 1)) >= 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                GATE_TEST(later_fragments_follow_their_first),
                GATE_TEST(fragments_of_two_stacks_are_never_joined),
                GATE_TEST(a_first_fragment_that_is_refused_opens_nothing),
                GATE_TEST(a_first_fragment_is_forgotten_in_time),
                GATE_TEST(a_stack_has_few_first_fragments),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
