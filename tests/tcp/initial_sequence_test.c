/* Initial sequence numbers and client ports: RFC 6528, RFC 6056. */
#include "tests/tcp/scenarios.h"
#include "tcp/tcp_life.h"

/* RFC 6528: another time, another tuple, another number; the clock part moves with 4 µs. */
static void initial_sequence_numbers_move_with_the_clock(void **state)
{
        struct scene *s = *state;
        struct tcp_tuple other = s->tuple;
        uint32_t a = iss_new(&s->rig->t, &s->tuple, s->now);

        other.rport++;
        assert_int_equal(iss_new(&s->rig->t, &s->tuple, s->now + 400 * NS_PER_US) - a, 100);
        assert_int_not_equal(iss_new(&s->rig->t, &other, s->now), a);
}

static void each_destination_has_client_ports_of_its_own(void **state)
{
        struct scene *s = *state;
        struct tcp_tuple other = s->tuple;
        uint32_t offset = tcp_port_offset(&s->rig->t, &s->tuple);

        other.lport++;
        assert_int_equal(tcp_port_offset(&s->rig->t, &other), offset);
        other.rport++;
        assert_int_not_equal(tcp_port_offset(&s->rig->t, &other), offset);
        s->rig->t.sh->secret[0]++;
        assert_int_not_equal(tcp_port_offset(&s->rig->t, &s->tuple), offset);
}

/* MUST-9: another secret, other numbers. */
static void initial_sequence_numbers_need_the_secret(void **state)
{
        struct scene *s = *state;
        struct rig *other = rig_new(&rig_size_default, 8);

        assert_int_not_equal(iss_new(&other->t, &s->tuple, s->now),
                             iss_new(&s->rig->t, &s->tuple, s->now));
        assert_int_not_equal(ts_offset_new(&other->t, &s->tuple),
                             ts_offset_new(&s->rig->t, &s->tuple));
        rig_free(other);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(initial_sequence_numbers_move_with_the_clock, scene_blank, NULL),
                scenario(each_destination_has_client_ports_of_its_own, scene_blank, NULL),
                scenario(initial_sequence_numbers_need_the_secret, scene_blank, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
