/* Our own addresses: RFC 5227. First by scenario, then the whole state machine as a table. */
#include "tests/arp/scene.h"

#define RIVAL 66 /* a link address */

static void add(struct scene *s, bool probe)
{
        assert_int_equal(arp_addr_add(&s->a, US, 24, probe, s->now), 0);
        arp_check(&s->a);
}

#define expect_probe(s)    expect_sent(s, .op = REQUEST, .spa = ZERO, .tpa = US)
#define expect_announce(s) expect_sent(s, .op = REQUEST, .spa = US, .tpa = US)

/* ---- probing: §2.1.1 ---- */

/* PROBE_WAIT, PROBE_NUM probes PROBE_MIN to PROBE_MAX apart, from 0.0.0.0; then ANNOUNCE_WAIT, then
 * in use (§2.3): two announcements, ANNOUNCE_INTERVAL apart. */
static void an_address_is_probed_for_then_announced(void **state)
{
        struct scene *s = *state;

        add(s, true);
        assert_true(wait_output(s, ARP_PROBE_WAIT) <= ARP_PROBE_WAIT);
        for (int i = 0; i < ARP_PROBE_NUM; i++) {
                if (i > 0)
                        assert_in_range(wait_output(s, ARP_PROBE_MAX), ARP_PROBE_MIN,
                                        ARP_PROBE_MAX);
                expect_probe(s);
                assert_int_not_equal(arp_addr_state(&s->a, US), ARP_ADDR_ANNOUNCING);
        }
        assert_int_equal(arp_addr_state(&s->a, US), ARP_ADDR_WAITING);
        assert_int_equal(wait_output(s, ARP_ANNOUNCE_WAIT), ARP_ANNOUNCE_WAIT);
        expect_announce(s);
        expect_addr(s, US, ARP_ADDR_ANNOUNCING);
        assert_int_equal(wait_output(s, ARP_ANNOUNCE_INTERVAL), ARP_ANNOUNCE_INTERVAL);
        expect_announce(s);
        expect_addr(s, US, ARP_ADDR_BOUND);
        expect_silence(s);
        assert_true(arp_deadline(&s->a) == NSTIME_NEVER);
        assert_int_equal(s->cnt.n[COUNT_ARP_ANNOUNCE], 5);
}

/* The wait before the first probe, and between probes, is random. */
static void hosts_that_start_together_probe_apart(void **state)
{
        struct scene *s = *state;
        nstime least = NSTIME_NEVER, most = 0;

        for (int i = 0; i < 100; i++) {
                nstime t;

                add(s, true);
                t = wait_output(s, ARP_PROBE_WAIT);
                least = nstime_min(least, t);
                most = MAX(most, t);
        }
        assert_true(least < ARP_PROBE_WAIT / 10 && most > ARP_PROBE_WAIT * 9 / 10);
}

static void who_has_the_address_keeps_it(void **state)
{
        struct scene *s = *state;

        add(s, true);
        wait_output(s, ARP_PROBE_WAIT);
        expect_probe(s);
        assert_int_equal(
                arrives(s, .op = REPLY, .spa = US, .sha = RIVAL, .tpa = ZERO, .tha = OUR_LL),
                DROP_ARP_CONFLICT);
        expect_addr(s, US, ARP_ADDR_LOST);
        expect_silence(s);
        assert_true(arp_deadline(&s->a) == NSTIME_NEVER);
}

/* "If the number of conflicts exceeds MAX_CONFLICTS ... no more than one attempted new address per
 * RATE_LIMIT_INTERVAL". */
static void after_ten_conflicts_attempts_are_a_minute_apart(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < ARP_MAX_CONFLICTS; i++) {
                add(s, true);
                wait_output(s, ARP_PROBE_WAIT);
                expect_probe(s);
                arrives(s, .spa = US, .sha = RIVAL);
                expect_addr(s, US, ARP_ADDR_LOST);
        }
        for (int i = 0; i < 3; i++) {
                nstime before = s->now;

                add(s, true);
                wait_output(s, ARP_RATE_LIMIT_INTERVAL + ARP_PROBE_WAIT);
                expect_probe(s);
                assert_true(i == 0 || s->now - before >= ARP_RATE_LIMIT_INTERVAL - ARP_PROBE_WAIT);
                arrives(s, .spa = US, .sha = RIVAL);
                expect_addr(s, US, ARP_ADDR_LOST);
        }
        assert_true(s->now - T0 >= 2 * ARP_RATE_LIMIT_INTERVAL);
}

/* ---- defence: §2.4 ---- */

static void bind_it(struct scene *s)
{
        add(s, false);
        expect_announce(s);
        expect_addr(s, US, ARP_ADDR_ANNOUNCING);
        wait_output(s, ARP_ANNOUNCE_INTERVAL);
        expect_announce(s);
        expect_addr(s, US, ARP_ADDR_BOUND);
}

static void conflict(struct scene *s)
{
        assert_int_equal(arrives(s, .spa = US, .sha = RIVAL, .tpa = OTHER), DROP_ARP_CONFLICT);
}

/* (c) of it: kept, and not announced more than once in DEFEND_INTERVAL, or two that both do so
 * would flood the network. */
static void an_address_that_must_stay_is_defended_forever(void **state)
{
        struct scene *s = *state;
        unsigned announced;

        bind_it(s);
        announced = (unsigned)s->cnt.n[COUNT_ARP_ANNOUNCE];
        for (int i = 0; i < 100; i++) {
                struct arp_out out;

                conflict(s);
                while (arp_output(&s->a, &out))
                        arp_output_done(&s->a, &out, s->now);
                advance(s, NS_PER_S);
        }
        assert_int_equal(s->cnt.n[COUNT_ARP_ANNOUNCE] - announced, 10);
        assert_int_equal(arp_addr_state(&s->a, US), ARP_ADDR_BOUND);
}

/* RFC 5227 §2.1: answers go on all the while. */
static void an_address_in_use_is_answered_for_also_in_conflict(void **state)
{
        struct scene *s = *state;

        bind_it(s);
        conflict(s);
        expect_announce(s);
        assert_int_equal(arrives(s), DROP_NONE);
        expect_sent(s, .op = REPLY, .tpa = PEER, .tha = PEER_LL, .to = PEER_LL);
}

/* ---- the table ---- */

enum event {
        TIME,           /* the next deadline */
        SENT,           /* what is due was sent */
        PROBE_OF_OTHER, /* 0.0.0.0 asks for our address */
        USE_BY_OTHER,   /* somebody else sends from our address */
        REPLY_OF_OTHER,
        ASKED,     /* a request for our address */
        OWN_PROBE, /* our own packet comes back */
        EVENTS
};

/* Where each event leads, from each state, by §2.1.1, §2.3, §2.4 (c). */
static const struct {
        enum arp_addr_state from;
        enum arp_addr_state to[EVENTS];
} table[] = {
        /* In the order of enum event. */
        {ARP_ADDR_PROBING,
         {ARP_ADDR_PROBING, ARP_ADDR_PROBING, ARP_ADDR_LOST, ARP_ADDR_LOST, ARP_ADDR_LOST,
          ARP_ADDR_PROBING, ARP_ADDR_PROBING}},
        {ARP_ADDR_WAITING,
         {ARP_ADDR_ANNOUNCING, ARP_ADDR_WAITING, ARP_ADDR_LOST, ARP_ADDR_LOST, ARP_ADDR_LOST,
          ARP_ADDR_WAITING, ARP_ADDR_WAITING}},
        {ARP_ADDR_ANNOUNCING,
         {ARP_ADDR_ANNOUNCING, ARP_ADDR_ANNOUNCING, ARP_ADDR_ANNOUNCING, ARP_ADDR_ANNOUNCING,
          ARP_ADDR_ANNOUNCING, ARP_ADDR_ANNOUNCING, ARP_ADDR_ANNOUNCING}},
        {ARP_ADDR_BOUND,
         {ARP_ADDR_BOUND, ARP_ADDR_BOUND, ARP_ADDR_BOUND, ARP_ADDR_BOUND, ARP_ADDR_BOUND,
          ARP_ADDR_BOUND, ARP_ADDR_BOUND}},
        {ARP_ADDR_LOST,
         {ARP_ADDR_LOST, ARP_ADDR_LOST, ARP_ADDR_LOST, ARP_ADDR_LOST, ARP_ADDR_LOST, ARP_ADDR_LOST,
          ARP_ADDR_LOST}},
};

static void drain(struct scene *s)
{
        struct arp_out out;

        while (arp_output(&s->a, &out))
                arp_output_done(&s->a, &out, s->now);
}

static void lead_to(struct scene *s, enum arp_addr_state want)
{
        add(s, true);
        if (want == ARP_ADDR_LOST)
                arrives(s, .spa = US, .sha = RIVAL);
        while (arp_addr_state(&s->a, US) != want) {
                drain(s);
                if (arp_addr_state(&s->a, US) == want)
                        return;
                s->now = arp_deadline(&s->a);
                arp_expire(&s->a, s->now);
        }
        if (want != ARP_ADDR_PROBING)
                return;
        wait_output(s, ARP_PROBE_WAIT);
        expect_probe(s);
}

static void happen(struct scene *s, enum event e)
{
        switch (e) {
        case TIME:
                drain(s);
                if (arp_deadline(&s->a) != NSTIME_NEVER) {
                        s->now = arp_deadline(&s->a);
                        arp_expire(&s->a, s->now);
                }
                break;
        case SENT:
                drain(s);
                break;
        case PROBE_OF_OTHER:
                arrives(s, .spa = ZERO, .tpa = US, .sha = RIVAL);
                break;
        case USE_BY_OTHER:
                arrives(s, .spa = US, .tpa = OTHER, .sha = RIVAL);
                break;
        case REPLY_OF_OTHER:
                arrives(s, .op = REPLY, .spa = US, .tpa = ZERO, .sha = RIVAL, .tha = OUR_LL);
                break;
        case ASKED:
                arrives(s);
                break;
        default:
                arrives(s, .spa = ZERO, .tpa = US, .sha = OUR_LL);
        }
}

static const char *name_of(enum arp_addr_state s)
{
        static const char *const names[] = {"NONE", "PROBING",    "WAITING",
                                            "LOST", "ANNOUNCING", "BOUND"};
        return (size_t)s < ARRAY_LEN(names) ? names[s] : "?";
}

static void every_event_in_every_state(void **state)
{
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                for (int e = 0; e < EVENTS; e++) {
                        void *fresh;
                        struct scene *s;

                        scene_bare(&fresh);
                        s = fresh;
                        lead_to(s, table[i].from);
                        happen(s, (enum event)e);
                        arp_check(&s->a);
                        if (arp_addr_state(&s->a, US) != table[i].to[e])
                                fail_msg("%s, event %d: %s, not %s", name_of(table[i].from), e,
                                         name_of(arp_addr_state(&s->a, US)),
                                         name_of(table[i].to[e]));
                        scene_teardown(&fresh);
                }
        }
}

/* ---- several ---- */

static void several_addresses_are_kept_apart(void **state)
{
        struct scene *s = *state;

        for (uint32_t i = 0; i < ARP_ADDRS; i++)
                assert_int_equal(arp_addr_add(&s->a, US + i, 24, false, s->now), 0);
        assert_int_equal(arp_addr_add(&s->a, US + ARP_ADDRS, 24, false, s->now), -ENOSPC);
        /* again: no further slot. */
        assert_int_equal(arp_addr_add(&s->a, US, 24, true, s->now), 0);
        drain(s);
        arrives(s, .spa = US, .sha = RIVAL);
        assert_int_equal(arp_addr_state(&s->a, US), ARP_ADDR_LOST);
        for (uint32_t i = 1; i < ARP_ADDRS; i++)
                assert_int_equal(arp_addr_state(&s->a, US + i), ARP_ADDR_ANNOUNCING);
}

static void what_cannot_be_an_address_is_refused(void **state)
{
        static const struct {
                uint32_t ip;
                uint8_t prefix;
        } bad[] = {{0, 24},         {0xffffffff, 24}, {0xe0000001, 24},
                   {0x7f000001, 8}, {US, 33},         {0x0a0000ff, 24}};
        struct scene *s = *state;

        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                assert_int_equal(arp_addr_add(&s->a, bad[i].ip, bad[i].prefix, false, s->now),
                                 -EINVAL);
        /* RFC 3021. */
        assert_int_equal(arp_addr_add(&s->a, 0x0a0000ff, 31, false, s->now), 0);
}

/* An address that becomes ours is nobody's neighbour any more. */
static void a_neighbours_address_becomes_ours(void **state)
{
        struct scene *s = *state;

        bind_it(s);
        make_reachable(s, PEER, PEER_LL);
        assert_int_equal(arp_addr_add(&s->a, PEER, 24, false, s->now), 0);
        assert_int_equal(state_of(s, PEER), ARP_FREE);
        resolve(s, PEER, -EINVAL, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_bare, scene_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(an_address_is_probed_for_then_announced),
                TEST(hosts_that_start_together_probe_apart),
                TEST(who_has_the_address_keeps_it),
                TEST(after_ten_conflicts_attempts_are_a_minute_apart),
                TEST(an_address_that_must_stay_is_defended_forever),
                TEST(an_address_in_use_is_answered_for_also_in_conflict),
                TEST(every_event_in_every_state),
                TEST(several_addresses_are_kept_apart),
                TEST(what_cannot_be_an_address_is_refused),
                TEST(a_neighbours_address_becomes_ours),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
