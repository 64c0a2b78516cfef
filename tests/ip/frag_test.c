/* Fragmentation, IDs, path MTUs: RFC 791 §3.2, RFC 6864, RFC 1191, RFC 5927 §7, ip(7). */
#include <errno.h>
#include <stdlib.h>

#include "ip/frag.h"
#include "ip/ip_opts.h"
#include "ip/pmtu.h"
#include "tests/unit.h"

#define US   0x0a000001u
#define PEER 0x0a000002u

static unsigned header(uint8_t *hdr, const uint8_t *opts, unsigned n)
{
        struct ip_tmpl t;

        ip_tmpl_init(&t, ip_addr_v4(US), ip_addr_v4(PEER), IP_PROTO_UDP, 0x1c, 64, false);
        ip_hdr_write(&t, hdr, 20, 0);
        if (n != 0)
                memcpy(hdr + 20, opts, n);
        hdr[0] = (uint8_t)(0x40 | (20 + n) / 4);
        return 20 + n;
}

/* RFC 791 §3.2: offsets in 8 bytes, more-fragments on all but the last, everything else as
 * it was. */
static void fragments_cover_the_payload(void **state)
{
        for (uint32_t mtu = FRAG_MIN_MTU; mtu < 1600; mtu += 37) {
                uint8_t hdr[IP_MAX_HDR];
                struct frag g;
                struct frag_piece p;
                struct ip_pkt pkt;
                uint32_t at = 0;

                frag_begin(&g, hdr, header(hdr, NULL, 0), 5001, mtu, 4711);
                while (frag_next(&g, hdr, &p)) {
                        assert_int_equal(ip_hdr_parse(hdr, p.hdr_len, true, &pkt), 0);
                        assert_int_equal(p.off, at);
                        assert_int_equal(pkt.frag_off, at);
                        assert_int_equal(pkt.total_len, p.hdr_len + p.len);
                        assert_true(pkt.total_len <= mtu && p.len > 0);
                        at += p.len;
                        assert_int_equal(pkt.more_frags, at != 5001);
                        assert_true(!pkt.more_frags || mtu - pkt.total_len < 8);
                        assert_int_equal(pkt.id, 4711);
                        assert_int_equal(pkt.tos, 0x1c);
                        assert_int_equal(pkt.ttl, 64);
                        assert_false(pkt.dont_frag);
                }
                assert_int_equal(at, 5001);
        }
}

/* RFC 791 §3.1: the copy bit. */
static void options_are_copied_as_they_ask(void **state)
{
        /* Not, not, yes. */
        static const uint8_t opts[] = {IPOPT_NOP, IPOPT_RR,   7, 4, 0, 0, 0, 0, IPOPT_ALERT, 4, 0,
                                       0,         IPOPT_LSRR, 7, 4, 1, 2, 3, 4, IPOPT_END};
        static const uint8_t kept[] = {IPOPT_ALERT, 4, 0, 0, IPOPT_LSRR, 7, 4, 1, 2, 3, 4, 0};
        uint8_t hdr[IP_MAX_HDR];
        struct frag g;
        struct frag_piece p;

        frag_begin(&g, hdr, header(hdr, opts, sizeof opts), 1000, 576, 1);
        assert_true(frag_next(&g, hdr, &p));
        assert_int_equal(p.hdr_len, 20 + sizeof opts);
        assert_memory_equal(hdr + 20, opts, sizeof opts);
        assert_int_equal(p.len, (576 - 20 - sizeof opts) & ~7u);
        assert_true(frag_next(&g, hdr, &p));
        assert_int_equal(p.hdr_len, 32);
        assert_int_equal(hdr[0], 0x48);
        assert_memory_equal(hdr + 20, kept, sizeof kept);
        assert_false(frag_next(&g, hdr, &p));
}

/* ip(7), IP_MTU_DISCOVER: what Linux does, by mode, with an interface of 1500 and a path
 * of 1400. */
static void mtu_discover_says_whether(void **state)
{
        static const struct {
                enum pmtu_mode mode;
                uint32_t len;
                int err;
                bool df;
                uint32_t mtu;
        } table[] = {
                {PMTU_DONT, 1400, 0, false, 0},      {PMTU_DONT, 1401, 0, false, 1400},
                {PMTU_WANT, 1400, 0, true, 0},       {PMTU_WANT, 1401, 0, false, 1400},
                {PMTU_DO, 1400, 0, true, 0},         {PMTU_DO, 1401, -EMSGSIZE, false, 0},
                {PMTU_PROBE, 1500, 0, true, 0},      {PMTU_PROBE, 1501, -EMSGSIZE, false, 0},
                {PMTU_INTERFACE, 1500, 0, false, 0}, {PMTU_INTERFACE, 1501, -EMSGSIZE, false, 0},
                {PMTU_OMIT, 1500, 0, false, 0},      {PMTU_OMIT, 1501, 0, false, 1500},
        };

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                struct frag_plan plan = {0};

                assert_int_equal(frag_decide(table[i].mode, table[i].len, 1500, 1400, &plan),
                                 table[i].err);
                assert_int_equal(plan.dont_frag, table[i].df);
                assert_int_equal(plan.mtu, table[i].mtu);
        }
        assert_int_equal(frag_mtu(PMTU_DO, 1500, 1400), 1400);
        assert_int_equal(frag_mtu(PMTU_DO, 1500, 0), 1500);
        assert_int_equal(frag_mtu(PMTU_DO, 1500, 9000), 1500);
        assert_int_equal(frag_mtu(PMTU_PROBE, 1500, 1400), 1500);
}

/* RFC 6864 §4.3: no repetition soon; and what one destination sees says nothing about another. */
static void ids_do_not_repeat_soon_and_are_not_shared(void **state)
{
        struct ip_ids *ids = malloc(sizeof *ids);
        uint8_t *seen = calloc(1, 65536);
        struct prng rnd;
        uint32_t same_step = 0;
        uint16_t last[2] = {0};
        nstime now = 100 * NS_PER_S;

        prng_init(&rnd, (const uint8_t *)"0123456789abcdef");
        ip_ids_init(ids, &rnd);
        for (uint32_t i = 0; i < 20000; i++) { /* one each 2 ms */
                uint16_t id = ip_id_next(ids, &rnd, US, PEER, IP_PROTO_UDP, now += 2 * NS_PER_MS);
                assert_false(seen[id]);
                seen[id] = 1;
        }
        for (uint32_t i = 0; i < 1000; i++) {
                uint16_t a = ip_id_next(ids, &rnd, US, 1, IP_PROTO_UDP, now += 10 * NS_PER_MS);
                uint16_t b = ip_id_next(ids, &rnd, US, 2, IP_PROTO_UDP, now);
                same_step += i != 0 && (uint16_t)(a - last[0]) == (uint16_t)(b - last[1]);
                last[0] = a;
                last[1] = b;
        }
        assert_true(same_step < 300);
        free(ids);
        free(seen);
}

/* ---- path MTUs ---- */

static struct icmp_err claim(uint32_t mtu, uint16_t quoted)
{
        return (struct icmp_err){.type = ICMP_UNREACHABLE,
                                 .code = ICMP_FRAG_NEEDED,
                                 .mtu = mtu,
                                 .quoted_len = quoted};
}

/* RFC 1191 §5, §7.1; RFC 5927 §7: not less than is reasonable, not what was not too long. */
static void claims_are_read_with_care(void **state)
{
        static const struct {
                uint32_t mtu;
                uint16_t quoted;
                uint32_t says;
        } table[] = {
                {1400, 1500, 1400}, {1500, 1500, 0},   {9000, 1500, 0}, {0, 1500, 1492},
                {0, 1492, 1280},    {0, 60000, 32000}, {0, 600, 576},   {0, 576, 552},
                {68, 1500, 552},    {1, 1500, 552},    {0, 0, 0},
        };
        struct icmp_err e = claim(1400, 1500);

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                struct icmp_err c = claim(table[i].mtu, table[i].quoted);
                assert_int_equal(pmtu_claim(&c), table[i].says);
        }
        e.code = ICMP_HOST_UNREACHABLE;
        assert_int_equal(pmtu_claim(&e), 0);
        assert_int_equal(pmtu_plateau(100), 68);
}

static void path_mtus_are_kept_and_forgotten(void **state)
{
        struct pmtu_cache *c = malloc(sizeof *c);
        nstime now = NS_PER_S;

        pmtu_init(c, (const uint8_t *)"0123456789abcdef");
        assert_int_equal(pmtu_get(c, PEER, now), 0);
        pmtu_set(c, PEER, 1400, 1500, now);
        assert_int_equal(pmtu_get(c, PEER, now), 1400);
        assert_int_equal(pmtu_get(c, PEER + 1, now), 0);
        pmtu_set(c, PEER, 100, 1500, now);
        assert_int_equal(pmtu_get(c, PEER, now), PMTU_LEAST);
        assert_int_equal(pmtu_get(c, PEER, now + PMTU_EXPIRES - 1), PMTU_LEAST);
        assert_int_equal(pmtu_get(c, PEER, now + PMTU_EXPIRES), 0); /* RFC 1191 §6.3 */
        pmtu_set(c, PEER, 1300, 1500, now);
        pmtu_set(c, PEER, 1500, 1500, now);
        assert_int_equal(pmtu_get(c, PEER, now), 0);
        free(c);
}

/* A stranger's claims take room from the oldest, and no more than the table. */
static void the_table_of_paths_is_bounded(void **state)
{
        struct pmtu_cache *c = malloc(sizeof *c);
        uint32_t found = 0;

        pmtu_init(c, (const uint8_t *)"0123456789abcdef");
        for (uint32_t i = 1; i <= 100000; i++)
                pmtu_set(c, i, 1300, 1500, i);
        assert_int_equal(pmtu_get(c, 100000, 100000), 1300);
        for (uint32_t i = 1; i <= 100000; i++)
                found += pmtu_get(c, i, 100000) != 0;
        assert_int_equal(found, PMTU_SETS * PMTU_WAYS);
        memset(c, 0x5a, sizeof *c); /* whatever a death left there */
        for (uint32_t i = 1; i <= 1000; i++)
                assert_int_equal(pmtu_get(c, i, 100000), 0);
        free(c);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(fragments_cover_the_payload),
                cmocka_unit_test(options_are_copied_as_they_ask),
                cmocka_unit_test(mtu_discover_says_whether),
                cmocka_unit_test(ids_do_not_repeat_soon_and_are_not_shared),
                cmocka_unit_test(claims_are_read_with_care),
                cmocka_unit_test(path_mtus_are_kept_and_forgotten),
                cmocka_unit_test(the_table_of_paths_is_bounded),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
