/*
 * A process dies at every store of a socket's call, of a query's arrival or of a report.
 * Memberships that had nothing to do with it are there, and reported anew; the one concerned is
 * there or not, and can be set again.
 */
#include "ip/igmp.h"
#include "tests/steps.h"
#include "tests/unit.h"

#define IFC 1u
#define G1  0xe8010101u
#define G2  0xe8010102u

struct segment {
        struct igmp g;
        struct prng rnd;
        nstime now;
        uint8_t out[256];
};

static const uint32_t sources[] = {11, 12, 13, 14};

/* Owner 1 is in G1, owner 2 in G2 with sources; nothing is due. */
static struct segment *begin(void)
{
        struct segment *m = steps_memory(sizeof *m);
        struct igmp_msg msg;

        prng_init(&m->rnd, (const uint8_t *)"0123456789abcdef");
        igmp_init(&m->g);
        igmp_if_up(&m->g, IFC, 0x0a000001, 0);
        assert_int_equal(igmp_join(&m->g, IFC, G1, 1, 0), 0);
        assert_int_equal(igmp_listen(&m->g, IFC, G2, 2, false, sources, 2, 0), 0);
        m->now = 10 * NS_PER_S;
        while (igmp_output(&m->g, m->out, sizeof m->out, &msg, &m->rnd, m->now))
                ;
        while (igmp_deadline(&m->g) != NSTIME_NEVER) {
                m->now = igmp_deadline(&m->g);
                while (igmp_output(&m->g, m->out, sizeof m->out, &msg, &m->rnd, m->now))
                        ;
        }
        return m;
}

static bool lives(void *arg, uint32_t owner)
{
        return true;
}

static void recovered(void *copy)
{
        struct segment *m = copy;
        bool told = false;
        struct igmp_msg msg;

        igmp_recover(&m->g, lives, NULL, m->now);
        igmp_check(&m->g);
        assert_true(igmp_member(&m->g, IFC, G1));
        assert_true(igmp_wants(&m->g, IFC, G1, 1, 77, false));
        while (igmp_output(&m->g, m->out, sizeof m->out, &msg, &m->rnd, m->now))
                told = true;
        assert_true(told);
        assert_int_equal(igmp_listen(&m->g, IFC, G2, 2, false, sources, 3, m->now), 0);
        assert_true(igmp_wants(&m->g, IFC, G2, 2, sources[2], false));
        igmp_check(&m->g);
}

static void dies(void (*act)(void *mem))
{
        struct segment *m = begin();

        steps_die(m, sizeof *m, act, recovered);
        steps_free(m, sizeof *m);
}

static void join(void *mem)
{
        struct segment *m = mem;

        igmp_join(&m->g, IFC, G2 + 1, 3, m->now);
}

static void change(void *mem)
{
        struct segment *m = mem;

        igmp_listen(&m->g, IFC, G2, 2, false, sources + 1, 3, m->now);
}

static void leave(void *mem)
{
        struct segment *m = mem;
        struct igmp_msg msg;

        igmp_leave_all(&m->g, 2, m->now);
        igmp_output(&m->g, m->out, sizeof m->out, &msg, &m->rnd, m->now);
}

static void query(void *mem)
{
        static const uint8_t general[8] = {0x11, 0, 0xee, 0xff};
        struct segment *m = mem;
        struct ip_pkt pkt = {.dst = ip_addr_v4(IGMP_ALL_HOSTS),
                             .to = IP_TO_GROUP,
                             .ttl = 1,
                             .inl = general,
                             .inl_len = 8};

        igmp_rx(&m->g, NULL, IFC, &pkt, &m->rnd, m->now);
}

static void a_join_may_end_anywhere(void **state)
{
        dies(join);
}

static void a_change_of_sources_may_end_anywhere(void **state)
{
        dies(change);
}

static void a_leave_and_its_report_may_end_anywhere(void **state)
{
        dies(leave);
}

static void a_query_may_end_anywhere(void **state)
{
        dies(query);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_join_may_end_anywhere),
                cmocka_unit_test(a_change_of_sources_may_end_anywhere),
                cmocka_unit_test(a_leave_and_its_report_may_end_anywhere),
                cmocka_unit_test(a_query_may_end_anywhere),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
