/* The bridge: the table of connections, which outlive listeners and leases. */
#include "gate_scene.h"

/* Somebody else listens at the port by now. */
static void connections_outlive_their_listener(void **state)
{
        expect_passes(&alice, segment(true, WEB, 5, TCP_SYN | TCP_ACK));
        web_owner = BOB;
        expect_to(ALICE, segment(false, WEB, 5, TCP_ACK));
        expect_passes(&alice, segment(true, WEB, 5, TCP_ACK));
        expect_to(BOB, segment(false, WEB, 6, TCP_SYN));
        expect_refused(&alice, segment(true, WEB, 6, TCP_ACK));
        expect_refused(&bob, segment(true, LEASED + 1, 6, TCP_ACK));
        gate_flows_forget(rules.flows, ALICE);
        expect_to(BOB, segment(false, WEB, 5, TCP_ACK));
}

/* A lease is of the ports, not of connections that others have there. */
static void a_lease_takes_no_connection(void **state)
{
        struct gate_key k = {.raddr = PEER, .local = LEASED, .remote = 5, .proto = IP_PROTO_TCP};

        gate_flow_note(rules.flows, &k, ALICE, GATE_STANDS, 1);
        assert_true(gate_flows_of_others(rules.flows, BOB, LEASED - 10, 64));
        assert_false(gate_flows_of_others(rules.flows, ALICE, LEASED - 10, 64));
        assert_false(gate_flows_of_others(rules.flows, BOB, LEASED + 1, 64));
        expect_to(ALICE, segment(false, LEASED, 5, TCP_ACK));
        expect_passes(&alice, segment(true, LEASED, 5, TCP_ACK));
        expect_refused(&bob, segment(true, LEASED, 5, TCP_SYN));
        expect_refused(&bob, segment(true, LEASED, 5, TCP_RST));
        expect_passes(&bob, segment(true, LEASED, 6, TCP_SYN));
        gate_flows_forget(rules.flows, ALICE);
        expect_to(BOB, segment(false, LEASED, 5, TCP_ACK));
        expect_passes(&bob, segment(true, LEASED, 5, TCP_SYN));
}

/* Alice left connections at her port, of all that may come: they begin with who has the
 * port now. */
static void a_connection_begins_with_who_has_the_port(void **state)
{
        struct gate_key k = {.raddr = PEER, .local = WEB, .remote = 5, .proto = IP_PROTO_TCP};

        gate_flow_note(rules.flows, &k, ALICE, GATE_STANDS, 1);
        web_owner = BOB;
        expect_to(ALICE, segment(false, WEB, 5, TCP_ACK));
        expect_to(ALICE, segment(false, WEB, 5, TCP_SYN | TCP_ACK));
        expect_to(BOB, segment(false, WEB, 5, TCP_SYN));
        expect_passes(&bob, segment(true, WEB, 5, TCP_SYN | TCP_ACK));
        expect_to(BOB, segment(false, WEB, 5, TCP_ACK));
        expect_refused(&alice, segment(true, WEB, 5, TCP_ACK));
}

/* Of as many connections as there may be, none of which is one. The victim has few; the listener
 * that they came to is gone. */
static void a_flood_takes_no_connection(void **state)
{
        enum { FEW = 100, FLOOD = 4 * (int)GATE_FLOWS, STACKS = 64 };
        const uint32_t mallory = 7 * UNETD_STACKS_OF_USER;

        for (uint16_t i = 1; i <= FEW; i++)
                expect_passes(&alice, segment(true, WEB, i, TCP_ACK));
        for (uint32_t i = 0; i < FLOOD; i++) {
                struct gate_key k = {.raddr = OTHER + i / 50000,
                                     .local = LEASED,
                                     .remote = (uint16_t)(i % 50000),
                                     .proto = IP_PROTO_TCP};

                gate_flow_note(rules.flows, &k, mallory + i % STACKS, GATE_STANDS, 100);
        }
        web_owner = BOB;
        for (uint16_t i = 1; i <= FEW; i++) {
                expect_to(ALICE, segment(false, WEB, i, TCP_ACK));
                expect_passes(&alice, segment(true, WEB, i, TCP_ACK));
        }
}

static uint32_t flows_of(uint32_t stack)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < GATE_FLOWS; i++)
                n += rules.flows->slot[i].stack == stack;
        return n;
}

static void note_many(uint32_t raddr, uint16_t local, uint32_t stack, enum gate_stage stage)
{
        for (uint32_t i = 0; i < 4 * GATE_FLOWS; i++) {
                struct gate_key k = {.raddr = raddr + i / 50000,
                                     .local = local,
                                     .remote = (uint16_t)(i % 50000),
                                     .proto = IP_PROTO_TCP};

                gate_flow_note(rules.flows, &k, stack, stage, 1 + (stage == GATE_ASKED));
        }
}

/* Alice has all that the table holds, and somebody sends SYNs to Bob, who answers. */
static void a_flood_of_syns_takes_one_place_in_eight(void **state)
{
        const uint32_t other = 7 * UNETD_STACKS_OF_USER;
        uint32_t before;

        note_many(OTHER, WEB, ALICE, GATE_STANDS);
        before = flows_of(ALICE);
        assert_true(before > GATE_FLOWS - GATE_FLOWS / GATE_WAYS);
        note_many(PEER, LEASED, other, GATE_ASKED);
        assert_in_range(flows_of(other), 1, GATE_FLOWS / GATE_WAYS + GATE_FLOWS - before);
        assert_true(flows_of(ALICE) >= before - GATE_FLOWS / GATE_WAYS);
}

static struct gate_key key(uint32_t n)
{
        return (struct gate_key){.raddr = n, .local = WEB, .remote = 5, .proto = IP_PROTO_TCP};
}

/* The n-th that falls into the first bucket. */
static struct gate_key neighbour(uint32_t n)
{
        struct gate_key k = key(0);

        for (uint32_t i = 1; n != UINT32_MAX; i++) {
                k = key(i);
                if (gate_flow_hash(rules.flows, &k) % (GATE_FLOWS / GATE_WAYS) == 0)
                        n--;
        }
        return k;
}

static void note_neighbours(uint32_t first, uint32_t n, uint32_t stack, enum gate_stage stage,
                            uint32_t sec)
{
        for (uint32_t i = first; i < first + n; i++) {
                struct gate_key k = neighbour(i);

                gate_flow_note(rules.flows, &k, stack, stage, sec);
        }
}

/* Who has as many as another loses his own, though the other's are older. */
static void of_equal_crowds_his_own_gives_way(void **state)
{
        const uint32_t other = 7 * UNETD_STACKS_OF_USER;

        note_neighbours(0, GATE_WAYS / 2, ALICE, GATE_STANDS, 1);
        note_neighbours(GATE_WAYS / 2, GATE_WAYS, other, GATE_STANDS, 2);
        assert_int_equal(flows_of(ALICE), GATE_WAYS / 2);
        assert_int_equal(flows_of(other), GATE_WAYS / 2);
}

/* The same of those that were only asked for. */
static void of_those_asked_for_his_own_gives_way(void **state)
{
        const uint32_t other = 7 * UNETD_STACKS_OF_USER;

        note_neighbours(0, 1, ALICE, GATE_ASKED, 1);
        note_neighbours(1, GATE_WAYS - 2, BOB, GATE_STANDS, 1);
        note_neighbours(GATE_WAYS - 1, GATE_WAYS, other, GATE_ASKED, 2);
        assert_int_equal(flows_of(ALICE), 1);
        assert_int_equal(flows_of(other), 1);
}

/* A flood of SYNs that were answered does not push out connections that stand. */
static void those_that_stand_stay(void **state)
{
        struct gate_key k;
        uint32_t kept = 0;

        for (uint32_t i = 0; i < 1000; i++) {
                k = key(i);
                gate_flow_note(rules.flows, &k, ALICE, GATE_STANDS, 1);
        }
        for (uint32_t i = 0; i < 4 * GATE_FLOWS; i++) {
                k = key(1u << 24 | i);
                gate_flow_note(rules.flows, &k, BOB, GATE_ASKED, 2);
        }
        for (uint32_t i = 0; i < 1000; i++) {
                k = key(i);
                kept += gate_flow_find(rules.flows, &k, 3) != NULL;
        }
        assert_int_equal(kept, 1000);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                GATE_TEST(connections_outlive_their_listener),
                GATE_TEST(a_lease_takes_no_connection),
                GATE_TEST(a_connection_begins_with_who_has_the_port),
                GATE_TEST(a_flood_takes_no_connection),
                GATE_TEST(a_flood_of_syns_takes_one_place_in_eight),
                GATE_TEST(of_equal_crowds_his_own_gives_way),
                GATE_TEST(of_those_asked_for_his_own_gives_way),
                GATE_TEST(those_that_stand_stay),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
