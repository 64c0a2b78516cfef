/* IGMP, host side: RFC 3376 (version 3), RFC 2236 (version 2), RFC 1112 §7. */
#include <errno.h>
#include <stdlib.h>

#include "ip/igmp.h"
#include "base/checksum.h"
#include "tests/unit.h"

#define IFC    2u
#define US     0x0a000001u
#define ROUTER 0x0a0000feu
#define G1     0xe8010101u
#define G2     0xe8010102u
#define S1     0x0a010101u
#define S2     0x0a010102u
#define S3     0x0a010103u

enum { IS_IN = 1, IS_EX = 2, TO_IN = 3, TO_EX = 4, ALLOW = 5, BLOCK = 6 };

struct scene {
        struct igmp g;
        struct prng rnd;
        nstime now;
        uint8_t out[600];
        struct igmp_msg msg;
        struct ip_pkt pkt;
        const uint8_t *p; /* message of the packet that left last */
};

static int setup(void **state)
{
        struct scene *s = calloc(1, sizeof *s);

        prng_init(&s->rnd, (const uint8_t *)"0123456789abcdef");
        s->now = NS_PER_S;
        igmp_init(&s->g);
        igmp_if_up(&s->g, IFC, US, s->now);
        *state = s;
        return 0;
}

static int teardown(void **state)
{
        struct scene *s = *state;

        igmp_check(&s->g);
        free(s);
        return 0;
}

/* The next message leaves now: RFC 3376 §4 says what is around it. */
static bool leaves(struct scene *s)
{
        if (!igmp_output(&s->g, s->out, sizeof s->out, &s->msg, &s->rnd, s->now))
                return false;
        assert_int_equal(ip_hdr_parse(s->out, s->msg.len, true, &s->pkt), 0);
        assert_int_equal(s->pkt.total_len, s->msg.len);
        assert_int_equal(s->pkt.ttl, 1);
        assert_int_equal(s->pkt.tos, 0xc0);
        assert_int_equal(s->pkt.proto, IP_PROTO_IGMP);
        assert_int_equal(s->pkt.hdr_len, 24);
        assert_memory_equal(s->out + 20, "\x94\x04\0\0", 4);
        assert_int_equal(ip_addr_get_v4(s->pkt.src), US);
        assert_int_equal(ip_addr_get_v4(s->pkt.dst), s->msg.dst);
        assert_int_equal(csum_finish(csum_partial(s->out + 24, s->msg.len - 24, 0)).raw, 0);
        assert_int_equal(s->msg.ifc, IFC);
        s->p = s->out + 24;
        igmp_check(&s->g);
        return true;
}

/* Waits for the next message, and at most `most`. */
static bool leaves_within(struct scene *s, nstime most)
{
        nstime end = s->now + most;

        while (igmp_deadline(&s->g) <= end) {
                s->now = MAX(s->now, igmp_deadline(&s->g));
                if (leaves(s))
                        return true;
        }
        s->now = end;
        return false;
}

static uint32_t word(const uint8_t *p)
{
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Record `i` of the version 3 report that left. */
static void expect_record(struct scene *s, unsigned i, uint8_t type, uint32_t group, unsigned n,
                          const uint32_t *src)
{
        const uint8_t *p = s->p + 8;

        assert_int_equal(s->p[0], 0x22);
        assert_int_equal(s->msg.dst, IGMP_ALL_V3);
        assert_true(i < s->p[6] * 256u + s->p[7]);
        while (i-- > 0)
                p += 8 + 4 * (p[2] * 256 + p[3]);
        assert_int_equal(p[0], type);
        assert_int_equal(word(p + 4), group);
        assert_int_equal(p[2] * 256 + p[3], n);
        for (unsigned k = 0; k < n; k++) {
                bool found = false;
                for (unsigned m = 0; m < n; m++)
                        found |= word(p + 8 + 4 * m) == src[k];
                assert_true(found);
        }
}

static void put32(uint8_t *p, uint32_t v)
{
        be32 raw = be32_of(v);

        memcpy(p, &raw, 4);
}

static enum drop message_arrives(struct scene *s, uint8_t *msg, uint32_t n, uint32_t dst)
{
        be16 sum = {0};
        struct ip_pkt pkt = {.src = ip_addr_v4(ROUTER),
                             .dst = ip_addr_v4(dst),
                             .ttl = 1,
                             .proto = IP_PROTO_IGMP,
                             .to = IP_TO_GROUP,
                             .inl = msg,
                             .inl_len = n};
        enum drop why;

        memcpy(msg + 2, &sum, 2);
        sum = csum_finish(csum_partial(msg, n, 0));
        memcpy(msg + 2, &sum, 2);
        why = igmp_rx(&s->g, NULL, IFC, &pkt, &s->rnd, s->now);
        igmp_check(&s->g);
        return why;
}

/* A query of version 3 with a longest response of `code`. */
static enum drop query_v3(struct scene *s, uint8_t code, uint32_t group, unsigned n,
                          const uint32_t *src)
{
        uint8_t msg[12 + 4 * 64] = {0x11, code};

        put32(msg + 4, group);
        msg[8] = 3; /* robustness */
        msg[9] = 125;
        msg[11] = (uint8_t)n;
        for (unsigned i = 0; i < n; i++)
                put32(msg + 12 + 4 * i, src[i]);
        return message_arrives(s, msg, 12 + 4 * n, group != 0 ? group : IGMP_ALL_HOSTS);
}

static enum drop old_message(struct scene *s, uint8_t type, uint8_t code, uint32_t group)
{
        uint8_t msg[8] = {type, code};

        put32(msg + 4, group);
        return message_arrives(s, msg, 8, group != 0 ? group : IGMP_ALL_HOSTS);
}

#define ok(call) assert_int_equal(call, 0)

/* ---- version 3 ---- */

/* RFC 3376 §5.1, §8.11: at once, and once more within a second. */
static void joining_is_told_as_often_as_robustness_asks(void **state)
{
        struct scene *s = *state;

        ok(igmp_join(&s->g, IFC, G1, 1, s->now));
        assert_true(leaves(s));
        expect_record(s, 0, TO_EX, G1, 0, NULL);
        assert_true(leaves_within(s, NS_PER_S));
        expect_record(s, 0, TO_EX, G1, 0, NULL);
        assert_false(leaves_within(s, 100 * NS_PER_S));
        assert_int_equal(igmp_deadline(&s->g), NSTIME_NEVER);
}

static void leaving_is_told_when_the_last_socket_leaves(void **state)
{
        struct scene *s = *state;

        ok(igmp_join(&s->g, IFC, G1, 1, s->now));
        while (leaves_within(s, NS_PER_S))
                ;
        ok(igmp_join(&s->g, IFC, G1, 2, s->now));
        ok(igmp_leave(&s->g, IFC, G1, 1, s->now));
        assert_false(leaves_within(s, NS_PER_S));
        assert_true(igmp_member(&s->g, IFC, G1));
        igmp_leave_all(&s->g, 2, s->now);
        assert_false(igmp_member(&s->g, IFC, G1));
        assert_true(leaves(s));
        expect_record(s, 0, TO_IN, G1, 0, NULL);
        assert_true(leaves_within(s, NS_PER_S));
        expect_record(s, 0, TO_IN, G1, 0, NULL);
        assert_false(leaves_within(s, NS_PER_S));
        assert_int_equal(s->g.head[0], 0); /* and the record is free */
        for (unsigned i = 0; i < 64; i++)
                assert_int_equal(s->g.head[i], 0);
}

/* RFC 3376 §3.2, §5.1: the union of the sockets' filters, and its changes. */
static void source_filters_unite_and_their_changes_are_told(void **state)
{
        const uint32_t s1[] = {S1}, s2[] = {S2}, s3[] = {S3}, s12[] = {S1, S2};
        struct scene *s = *state;

        ok(igmp_listen(&s->g, IFC, G1, 1, false, s1, 1, s->now));
        assert_true(leaves(s));
        expect_record(s, 0, ALLOW, G1, 1, s1);
        assert_true(leaves_within(s, NS_PER_S));
        expect_record(s, 0, ALLOW, G1, 1, s1);
        ok(igmp_listen(&s->g, IFC, G1, 2, false, s2, 1, s->now));
        assert_true(leaves(s));
        expect_record(s, 0, ALLOW, G1, 1, s2);
        /* S1 goes, S3 comes, S2 is told once more. */
        ok(igmp_listen(&s->g, IFC, G1, 1, false, s3, 1, s->now));
        assert_true(leaves(s));
        expect_record(s, 0, ALLOW, G1, 2, (const uint32_t[]){S2, S3});
        expect_record(s, 1, BLOCK, G1, 1, s1);
        assert_true(leaves_within(s, NS_PER_S));
        expect_record(s, 0, ALLOW, G1, 1, s3);
        expect_record(s, 1, BLOCK, G1, 1, s1);
        assert_false(leaves_within(s, NS_PER_S));
        /* EXCLUDE {S1, S2} less INCLUDE {S2, S3}. */
        ok(igmp_listen(&s->g, IFC, G1, 3, true, s12, 2, s->now));
        assert_true(leaves(s));
        expect_record(s, 0, TO_EX, G1, 1, s1);
        assert_true(leaves_within(s, NS_PER_S));
        /* Both exclude nothing that the other does not. */
        ok(igmp_listen(&s->g, IFC, G1, 4, true, s2, 1, s->now));
        assert_true(leaves(s));
        expect_record(s, 0, ALLOW, G1, 1, s1);
        assert_true(leaves_within(s, NS_PER_S));
        igmp_leave_all(&s->g, 3, s->now);
        igmp_leave_all(&s->g, 4, s->now);
        assert_true(leaves(s));
        expect_record(s, 0, TO_IN, G1, 2, (const uint32_t[]){S2, S3});
}

/* What a socket's options do, and their errors, as Linux has them. */
static void single_sources_come_and_go(void **state)
{
        struct scene *s = *state;

        assert_int_equal(igmp_leave(&s->g, IFC, G1, 1, s->now), -EADDRNOTAVAIL);
        assert_int_equal(igmp_join(&s->g, IFC, 0x0a000001, 1, s->now), -EINVAL);
        assert_int_equal(igmp_join(&s->g, IGMP_IFS, G1, 1, s->now), -EINVAL);
        assert_int_equal(igmp_source(&s->g, IFC, G1, 1, S1, true, true, s->now), -EINVAL);
        /* IP_ADD_SOURCE_MEMBERSHIP joins. */
        ok(igmp_source(&s->g, IFC, G1, 1, S1, false, true, s->now));
        assert_int_equal(igmp_source(&s->g, IFC, G1, 1, S1, false, true, s->now), -EADDRNOTAVAIL);
        ok(igmp_source(&s->g, IFC, G1, 1, S2, false, true, s->now));
        assert_int_equal(igmp_source(&s->g, IFC, G1, 1, S2, true, true, s->now), -EINVAL);
        assert_true(igmp_wants(&s->g, IFC, G1, 1, S2, false));
        assert_false(igmp_wants(&s->g, IFC, G1, 1, S3, true));
        ok(igmp_source(&s->g, IFC, G1, 1, S1, false, false, s->now));
        assert_int_equal(igmp_membership(&s->g, IFC, G1, 1)->nsrc, 1);
        /* The last: the socket has left. */
        ok(igmp_source(&s->g, IFC, G1, 1, S2, false, false, s->now));
        assert_null(igmp_membership(&s->g, IFC, G1, 1));
        ok(igmp_join(&s->g, IFC, G2, 1, s->now));
        assert_int_equal(igmp_join(&s->g, IFC, G2, 1, s->now), -EADDRINUSE);
        ok(igmp_source(&s->g, IFC, G2, 1, S1, true, true, s->now)); /* IP_BLOCK_SOURCE */
        assert_false(igmp_wants(&s->g, IFC, G2, 1, S1, true));
        assert_true(igmp_wants(&s->g, IFC, G2, 1, S2, false));
        /* No member itself: IP_MULTICAST_ALL says. */
        assert_true(igmp_wants(&s->g, IFC, G2, 9, S1, true));
        assert_false(igmp_wants(&s->g, IFC, G2, 9, S1, false));
}

/* RFC 3376 §5.2: within the time that the query gives, everything, in as many messages as
 * it takes. */
static void a_general_query_is_answered_with_everything(void **state)
{
        struct scene *s = *state;
        unsigned records = 0, messages = 0;
        nstime asked;

        for (uint32_t i = 0; i < 200; i++)
                ok(igmp_join(&s->g, IFC, G1 + i, 1, s->now));
        while (leaves_within(s, 2 * NS_PER_S))
                ;
        asked = s->now;
        assert_int_equal(query_v3(s, 100, 0, 0, NULL), DROP_NONE);
        while (leaves_within(s, 10 * NS_PER_S - (s->now - asked))) {
                records += s->p[6] * 256u + s->p[7];
                messages++;
                expect_record(s, 0, IS_EX, word(s->p + 12), 0, NULL);
        }
        assert_int_equal(records, 200);
        assert_true(messages > 1);
        assert_true(s->now - asked <= 10 * NS_PER_S);
}

static void a_group_query_is_answered_for_the_group(void **state)
{
        const uint32_t s1[] = {S1}, asked[] = {S1, S2};
        struct scene *s = *state;

        ok(igmp_listen(&s->g, IFC, G1, 1, false, s1, 1, s->now));
        ok(igmp_listen(&s->g, IFC, G2, 1, true, s1, 1, s->now));
        while (leaves_within(s, 2 * NS_PER_S))
                ;
        assert_int_equal(query_v3(s, 10, G1, 0, NULL), DROP_NONE);
        assert_true(leaves_within(s, NS_PER_S));
        expect_record(s, 0, IS_IN, G1, 1, s1);
        /* Only what is asked about and wanted. */
        assert_int_equal(query_v3(s, 10, G1, 2, asked), DROP_NONE);
        assert_true(leaves_within(s, NS_PER_S));
        expect_record(s, 0, IS_IN, G1, 1, s1);
        assert_int_equal(query_v3(s, 10, G2, 2, asked), DROP_NONE);
        assert_true(leaves_within(s, NS_PER_S));
        expect_record(s, 0, IS_IN, G2, 1, (const uint32_t[]){S2});
        assert_int_equal(query_v3(s, 10, G2, 1, s1), DROP_NONE);
        assert_false(leaves_within(s, 10 * NS_PER_S));
        assert_int_equal(query_v3(s, 10, G1 + 77, 0, NULL), DROP_NONE); /* not ours */
        assert_false(leaves_within(s, 10 * NS_PER_S));
}

/* §5.2 rule 5, and a list that does not fit: as if it asked for all. */
static void queries_that_wait_add_up(void **state)
{
        const uint32_t s1[] = {S1}, s2[] = {S2};
        uint32_t many[64];
        struct scene *s = *state;

        for (uint32_t i = 0; i < 64; i++)
                many[i] = 0x0b000000 + i;
        ok(igmp_join(&s->g, IFC, G1, 1, s->now));
        while (leaves_within(s, 2 * NS_PER_S))
                ;
        query_v3(s, 10, G1, 1, s1);
        query_v3(s, 10, G1, 1, s2);
        assert_true(leaves_within(s, NS_PER_S));
        expect_record(s, 0, IS_IN, G1, 2, (const uint32_t[]){S1, S2});
        query_v3(s, 10, G1, 1, s1);
        query_v3(s, 10, G1, 64, many);
        assert_true(leaves_within(s, NS_PER_S));
        expect_record(s, 0, IS_EX, G1, 0, NULL);
        assert_false(leaves_within(s, 10 * NS_PER_S));
}

/* §5.2 rule 1: who is about to tell everything does not tell a part. */
static void a_general_answer_stands_for_the_others(void **state)
{
        struct scene *s = *state;

        ok(igmp_join(&s->g, IFC, G1, 1, s->now));
        while (leaves_within(s, 2 * NS_PER_S))
                ;
        query_v3(s, 1, 0, 0, NULL);
        query_v3(s, 0xff, G1, 0, NULL); /* 3174.4 s */
        assert_true(leaves_within(s, NS_PER_S));
        assert_false(leaves_within(s, 3175 * NS_PER_S));
}

/* §4.1.6: a querier says how often. */
static void robustness_is_the_queriers(void **state)
{
        struct scene *s = *state;
        unsigned n = 0;

        query_v3(s, 1, 0, 0, NULL);
        leaves_within(s, NS_PER_S);
        ok(igmp_join(&s->g, IFC, G1, 1, s->now));
        while (leaves_within(s, NS_PER_S))
                n++;
        assert_int_equal(n, 3);
}

/* RFC 1112 §7, RFC 3376 §6: all hosts is a group of all, and nobody tells of it. */
static void all_hosts_is_never_reported(void **state)
{
        struct scene *s = *state;

        assert_true(igmp_member(&s->g, IFC, IGMP_ALL_HOSTS));
        ok(igmp_join(&s->g, IFC, IGMP_ALL_HOSTS, 1, s->now));
        query_v3(s, 10, 0, 0, NULL);
        old_message(s, 0x11, 10, 0);
        ok(igmp_leave(&s->g, IFC, IGMP_ALL_HOSTS, 1, s->now));
        assert_false(leaves_within(s, 100 * NS_PER_S));
        assert_true(igmp_member(&s->g, IFC, IGMP_ALL_HOSTS));
}

/* ---- older queriers: RFC 3376 §7.2.1, RFC 2236 ---- */

static void expect_old(struct scene *s, uint8_t type, uint32_t group, uint32_t dst)
{
        assert_int_equal(s->msg.len, 32);
        assert_int_equal(s->p[0], type);
        assert_int_equal(s->p[1], 0);
        assert_int_equal(word(s->p + 4), group);
        assert_int_equal(s->msg.dst, dst);
}

static void a_querier_of_version_2_is_spoken_to_in_version_2(void **state)
{
        struct scene *s = *state;
        nstime asked = s->now;

        assert_int_equal(old_message(s, 0x11, 100, 0), DROP_NONE);
        ok(igmp_join(&s->g, IFC, G1, 1, s->now));
        assert_true(leaves(s));
        expect_old(s, 0x16, G1, G1);
        assert_true(leaves_within(s, 10 * NS_PER_S)); /* RFC 2236 §8.10 */
        expect_old(s, 0x16, G1, G1);
        old_message(s, 0x11, 20, 0);
        assert_true(leaves_within(s, 2 * NS_PER_S));
        expect_old(s, 0x16, G1, G1);
        old_message(s, 0x11, 20, G1);
        assert_true(leaves_within(s, 2 * NS_PER_S));
        expect_old(s, 0x16, G1, G1);
        ok(igmp_leave(&s->g, IFC, G1, 1, s->now));
        assert_true(leaves(s));
        expect_old(s, 0x17, G1, IGMP_ALL_ROUTERS);
        assert_false(leaves_within(s, 20 * NS_PER_S));
        s->now = asked + 400 * NS_PER_S; /* it is gone: version 3 again (§8.12) */
        ok(igmp_join(&s->g, IFC, G1, 1, s->now));
        assert_true(leaves(s));
        expect_record(s, 0, TO_EX, G1, 0, NULL);
}

/* RFC 2236 §3: a member that hears another's report stays silent, and does not say good-bye. */
static void anothers_report_is_enough(void **state)
{
        struct scene *s = *state;

        old_message(s, 0x11, 100, 0);
        ok(igmp_join(&s->g, IFC, G1, 1, s->now));
        while (leaves_within(s, 10 * NS_PER_S))
                ;
        old_message(s, 0x11, 100, 0);
        assert_int_equal(old_message(s, 0x16, 0, G1), DROP_NONE);
        assert_false(leaves_within(s, 10 * NS_PER_S));
        ok(igmp_leave(&s->g, IFC, G1, 1, s->now));
        assert_false(leaves_within(s, 10 * NS_PER_S));
}

static void a_querier_of_version_1_hears_no_good_bye(void **state)
{
        struct scene *s = *state;

        old_message(s, 0x11, 0, 0);
        ok(igmp_join(&s->g, IFC, G1, 1, s->now));
        assert_true(leaves(s));
        expect_old(s, 0x12, G1, G1);
        while (leaves_within(s, 10 * NS_PER_S))
                expect_old(s, 0x12, G1, G1);
        ok(igmp_leave(&s->g, IFC, G1, 1, s->now));
        assert_false(leaves_within(s, 10 * NS_PER_S));
}

/* ---- what is refused, and limits ---- */

static void messages_that_make_no_sense_are_dropped(void **state)
{
        struct scene *s = *state;
        uint8_t msg[16] = {0x11, 10};
        struct ip_pkt pkt = {.src = ip_addr_v4(ROUTER),
                             .dst = ip_addr_v4(IGMP_ALL_HOSTS),
                             .ttl = 1,
                             .to = IP_TO_GROUP,
                             .inl = msg,
                             .inl_len = 7};

        ok(igmp_join(&s->g, IFC, G1, 1, s->now));
        while (leaves_within(s, NS_PER_S))
                ;
        assert_int_equal(igmp_rx(&s->g, NULL, IFC, &pkt, &s->rnd, s->now), DROP_IGMP_SHORT);
        pkt.inl_len = 8;
        assert_int_equal(igmp_rx(&s->g, NULL, IFC, &pkt, &s->rnd, s->now), DROP_IGMP_CHECKSUM);
        put32(msg, 0x110aeef5);
        pkt.ttl = 2; /* RFC 3376 §9.1: from another link */
        assert_int_equal(igmp_rx(&s->g, NULL, IFC, &pkt, &s->rnd, s->now), DROP_IGMP_IGNORED);
        pkt.ttl = 1;
        pkt.dst = ip_addr_v4(G1);
        assert_int_equal(igmp_rx(&s->g, NULL, IFC, &pkt, &s->rnd, s->now), DROP_IGMP_IGNORED);
        assert_int_equal(message_arrives(s, (uint8_t[10]){0x11, 10}, 10, IGMP_ALL_HOSTS),
                         DROP_IGMP_IGNORED);
        assert_int_equal(message_arrives(s, (uint8_t[12]){0x11, 10, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1},
                                         12, IGMP_ALL_HOSTS),
                         DROP_IGMP_IGNORED);
        assert_int_equal(message_arrives(s, (uint8_t[8]){0x33}, 8, IGMP_ALL_HOSTS),
                         DROP_IGMP_IGNORED);
        assert_false(leaves_within(s, 100 * NS_PER_S));
}

static void tables_are_bounded(void **state)
{
        struct scene *s = *state;
        uint32_t many[IGMP_SOURCES + 1];

        for (uint32_t i = 0; i <= IGMP_SOURCES; i++)
                many[i] = 0x0b000000 + i;
        assert_int_equal(igmp_listen(&s->g, IFC, G1, 1, false, many, IGMP_SOURCES + 1, s->now),
                         -ENOBUFS);
        ok(igmp_listen(&s->g, IFC, G1, 1, false, many, IGMP_SOURCES, s->now));
        ok(igmp_listen(&s->g, IFC, G1, 2, false, &many[IGMP_SOURCES], 1, s->now));
        while (leaves_within(s, NS_PER_S))
                ;
        query_v3(s, 1, G1, 0, NULL);
        assert_true(leaves_within(s, NS_PER_S));
        /* The union does not fit: anything, rather than too little. */
        expect_record(s, 0, IS_EX, G1, 0, NULL);
        for (uint32_t i = 1; i < IGMP_GROUPS; i++)
                ok(igmp_join(&s->g, IFC, G1 + i, 3, s->now));
        assert_int_equal(igmp_join(&s->g, IFC, G1 + IGMP_GROUPS, 3, s->now), -ENOBUFS);
        for (uint32_t i = 4; i < 10000; i++)
                if (igmp_join(&s->g, IFC, G1, i, s->now) != 0)
                        return;
        fail();
}

/* A process died: what live sockets joined is joined, and told again. */
static bool lives(void *arg, uint32_t owner)
{
        return owner != *(uint32_t *)arg;
}

static void after_a_death_memberships_of_the_living_are_there(void **state)
{
        struct scene *s = *state;
        uint32_t dead = 2;

        ok(igmp_join(&s->g, IFC, G1, 1, s->now));
        ok(igmp_join(&s->g, IFC, G1, 2, s->now));
        ok(igmp_join(&s->g, IFC, G2, 2, s->now));
        while (leaves_within(s, NS_PER_S))
                ;
        memset(s->g.head, 0x7f, sizeof s->g.head);
        memset(s->g.group, 0x7f, sizeof s->g.group);
        igmp_recover(&s->g, lives, &dead, s->now);
        igmp_check(&s->g);
        assert_true(igmp_member(&s->g, IFC, G1));
        assert_false(igmp_member(&s->g, IFC, G2));
        assert_true(leaves(s));
        expect_record(s, 0, TO_EX, G1, 0, NULL);
}

/* A link that was down: its groups are told anew when it is there again. */
static void nothing_leaves_while_the_link_is_down(void **state)
{
        struct scene *s = *state;

        ok(igmp_join(&s->g, IFC, G1, 1, s->now));
        igmp_if_down(&s->g, IFC);
        ok(igmp_join(&s->g, IFC, G2, 1, s->now));
        assert_false(leaves_within(s, 100 * NS_PER_S));
        igmp_if_up(&s->g, IFC, US, s->now);
        assert_true(leaves(s));
        assert_true(leaves(s));
        expect_record(s, 0, TO_EX, word(s->p + 12), 0, NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(joining_is_told_as_often_as_robustness_asks),
                TEST(leaving_is_told_when_the_last_socket_leaves),
                TEST(source_filters_unite_and_their_changes_are_told),
                TEST(single_sources_come_and_go),
                TEST(a_general_query_is_answered_with_everything),
                TEST(a_group_query_is_answered_for_the_group),
                TEST(queries_that_wait_add_up),
                TEST(a_general_answer_stands_for_the_others),
                TEST(robustness_is_the_queriers),
                TEST(all_hosts_is_never_reported),
                TEST(a_querier_of_version_2_is_spoken_to_in_version_2),
                TEST(anothers_report_is_enough),
                TEST(a_querier_of_version_1_hears_no_good_bye),
                TEST(messages_that_make_no_sense_are_dropped),
                TEST(tables_are_bounded),
                TEST(after_a_death_memberships_of_the_living_are_there),
                TEST(nothing_leaves_while_the_link_is_down),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
