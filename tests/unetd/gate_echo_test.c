/* The bridge: echoes, and whose their answers are. */
#include "gate_scene.h"

static void echoes(void **state)
{
        expect_way(GATE_OURS, echo(false, ICMP_ECHO_REQUEST, 9));
        expect_way(GATE_NOBODY, echo(false, ICMP_ECHO_REPLY, 9));
        expect_passes(&bob, echo(true, ICMP_ECHO_REQUEST, 9));
        expect_to(BOB, echo(false, ICMP_ECHO_REPLY, 9));
        expect_way(GATE_NOBODY, echo(false, ICMP_ECHO_REPLY, 10));
}

static void the_host_answers_echoes_itself(void **state)
{
        expect_passes(&bob, echo(true, ICMP_ECHO_REQUEST, 9));
        expect_refused(&bob, echo(true, ICMP_ECHO_REPLY, 9));
        expect_refused(&alice, echo(true, ICMP_ECHO_REPLY, 9));
}

static void nobody_takes_the_answers_to_anothers_echoes(void **state)
{
        expect_passes(&bob, echo(true, ICMP_ECHO_REQUEST, 9));
        now += 59 * NS_PER_S;
        expect_refused(&alice, echo(true, ICMP_ECHO_REQUEST, 9));
        expect_passes(&alice, echo(true, ICMP_ECHO_REQUEST, 10));
        expect_to(BOB, echo(false, ICMP_ECHO_REPLY, 9));
        gate_flows_forget(rules.flows, BOB);
        expect_passes(&alice, echo(true, ICMP_ECHO_REQUEST, 9));
}

/* Whatever Alice asks for, most of the 65,536 identifiers are Bob's to take. */
static void nobody_uses_up_the_identifiers_of_echoes(void **state)
{
        uint32_t refused = 0;

        for (uint32_t id = 0; id < 0x10000; id++)
                expect_passes(&alice, echo(true, ICMP_ECHO_REQUEST, (uint16_t)id));
        for (uint32_t id = 0; id < 0x10000; id += 64)
                refused += leaves(&bob, echo(true, ICMP_ECHO_REQUEST, (uint16_t)id)) != DROP_NONE;
        assert_in_range(refused, 0, 64);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                GATE_TEST(echoes),
                GATE_TEST(the_host_answers_echoes_itself),
                GATE_TEST(nobody_takes_the_answers_to_anothers_echoes),
                GATE_TEST(nobody_uses_up_the_identifiers_of_echoes),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
