/* IP options: RFC 791 §3.1, RFC 1122 §3.2.1.8 and §3.2.2.6, RFC 7126. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <cmocka.h>

#include "ip/ip_opts.h"

#define US   0x0a000001u
#define PEER 0x0a000002u

/* A header with these options, padded with zeros. */
static unsigned with(uint8_t hdr[IP_MAX_HDR], const uint8_t *opts, unsigned n)
{
        memset(hdr, 0, IP_MAX_HDR);
        memcpy(hdr + 20, opts, n);
        return 20 + (n + 3) / 4 * 4;
}

static void what_is_there_is_found(void **state)
{
        static const uint8_t opts[] = {1, 7, 7, 4, 0, 0, 0, 0, 68, 8, 5, 0, 0, 0, 0, 0, 148, 4, 0, 0, 136, 4, 1, 2, 0, 99};
        uint8_t hdr[IP_MAX_HDR], bad;
        struct ip_opts o;

        assert_int_equal(ip_opts_parse(hdr, with(hdr, opts, sizeof opts), false, &o, &bad), DROP_NONE);
        assert_int_equal(o.rr, 21);
        assert_int_equal(o.ts, 28);
        assert_int_equal(o.sr, 0);
        assert_true(o.alert);
}

/* RFC 1122 §3.2.1.8: unknown options, and the stream identifier, are silently ignored. */
static void unknown_options_are_passed_over(void **state)
{
        uint8_t hdr[IP_MAX_HDR], bad;
        struct ip_opts o;

        for (unsigned type = 2; type < 256; type++) {
                const uint8_t opts[] = {(uint8_t)type, 6, 1, 2, 3, 4};
                bool known = type == IPOPT_RR || type == IPOPT_TS || type == IPOPT_LSRR || type == IPOPT_SSRR;

                if (!known)
                        assert_int_equal(ip_opts_parse(hdr, with(hdr, opts, 6), false, &o, &bad), DROP_NONE);
        }
}

/* RFC 1122 §3.2.2.5: a parameter problem points to the octet at fault. */
static void a_malformed_option_is_pointed_to(void **state)
{
        static const struct {
                uint8_t opt[12];
                uint8_t n, bad;
        } table[] = {
                {{7, 50, 4}, 3, 21},                            /* runs over */
                {{1, 1, 1, 7}, 4, 23},                          /* no room for a length */
                {{99, 1, 0, 0}, 4, 21},                         /* does not cover itself */
                {{7, 2, 1, 1}, 4, 21},                          /* no room for a pointer */
                {{7, 7, 3, 0, 0, 0, 0}, 7, 22},                 /* points into itself */
                {{7, 7, 6, 0, 0, 0, 0}, 7, 22},                 /* between addresses */
                {{7, 11, 12, 0, 0, 0, 0, 0, 0, 0, 0}, 11, 0},   /* full: good */
                {{7, 9, 8, 0, 0, 0, 0, 0, 0}, 9, 22},           /* an address that would not fit */
                {{68, 3, 5, 0}, 4, 21},
                {{68, 8, 4, 0, 0, 0, 0, 0}, 8, 22},
                {{68, 8, 6, 0, 0, 0, 0, 0}, 8, 22},
                {{68, 8, 5, 2, 0, 0, 0, 0}, 8, 23},             /* a flag that is not */
                {{68, 8, 5, 1, 0, 0, 0, 0}, 8, 22},             /* room for four octets, eight are due */
                {{7, 3, 4, 7, 3, 4}, 6, 23},                    /* twice */
        };

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                uint8_t hdr[IP_MAX_HDR], bad = 0;
                struct ip_opts o;
                enum drop why = ip_opts_parse(hdr, with(hdr, table[i].opt, table[i].n), true, &o, &bad);

                assert_int_equal(why, table[i].bad ? DROP_IP_OPTIONS : DROP_NONE);
                assert_int_equal(bad, table[i].bad);
        }
}

/* RFC 7126 §4.3; RFC 1122 §3.2.1.8 (c) for those who switch them on: at its end it is for us, before it is not. */
static void source_routes_are_refused_unless_asked_for(void **state)
{
        static const uint8_t done[] = {131, 7, 8, 1, 2, 3, 4, 0}, not_yet[] = {137, 7, 4, 1, 2, 3, 4, 0};
        uint8_t hdr[IP_MAX_HDR], bad;
        struct ip_opts o;

        assert_int_equal(ip_opts_parse(hdr, with(hdr, done, 8), false, &o, &bad), DROP_IP_SOURCE_ROUTE);
        assert_int_equal(ip_opts_parse(hdr, with(hdr, done, 8), true, &o, &bad), DROP_NONE);
        assert_true(o.sr == 20 && o.sr_done);
        assert_int_equal(ip_opts_parse(hdr, with(hdr, not_yet, 8), true, &o, &bad), DROP_IP_SOURCE_ROUTE);
        assert_false(o.sr_done);
}

/* One request, the options of its answer. */
static void answered(const uint8_t *opts, unsigned n, const uint8_t *want, unsigned want_n, uint32_t want_hop)
{
        uint8_t hdr[IP_MAX_HDR], out[IP_OPTS_MAX], bad;
        struct ip_opts o;
        uint32_t hop;

        assert_int_equal(ip_opts_parse(hdr, with(hdr, opts, n), true, &o, &bad), DROP_NONE);
        assert_int_equal(ip_opts_answer(hdr, &o, US, PEER, 0x80001234, out, &hop), want_n);
        assert_memory_equal(out, want, want_n);
        assert_int_equal(hop, want_hop);
}
#define ANSWERED(hop, want, ...)                                                                             \
        do {                                                                                                 \
                static const uint8_t opts_[] = {__VA_ARGS__};                                                \
                answered(opts_, sizeof opts_, want, sizeof want, hop);                                       \
        } while (0)

/* RFC 1122 §3.2.2.6 */
static void record_route_and_timestamp_come_back_with_us_in_them(void **state)
{
        static const uint8_t rr[] = {7, 11, 12, 9, 9, 9, 9, 10, 0, 0, 1, 0};
        static const uint8_t full[] = {7, 7, 8, 9, 9, 9, 9, 0};
        static const uint8_t ts[] = {68, 8, 9, 0, 0x80, 0, 0x12, 0x34};
        static const uint8_t ts_addr[] = {68, 12, 13, 1, 10, 0, 0, 1, 0x80, 0, 0x12, 0x34};
        static const uint8_t ts_other[] = {68, 12, 5, 3, 10, 0, 0, 9, 0, 0, 0, 0};
        static const uint8_t ts_full[] = {68, 8, 9, 0x10, 1, 2, 3, 4};
        static const uint8_t ts_over[] = {68, 8, 9, 0xf0, 1, 2, 3, 4};
        static const uint8_t both[] = {7, 7, 8, 10, 0, 0, 1, 68, 8, 9, 0, 0x80, 0, 0x12, 0x34, 0};

        ANSWERED(PEER, rr, 7, 11, 8, 9, 9, 9, 9, 0, 0, 0, 0);
        ANSWERED(PEER, full, 7, 7, 8, 9, 9, 9, 9);
        ANSWERED(PEER, ts, 68, 8, 5, 0, 0, 0, 0, 0);
        ANSWERED(PEER, ts_addr, 68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0);
        ANSWERED(PEER, ts_other, 68, 12, 5, 3, 10, 0, 0, 9, 0, 0, 0, 0);
        ANSWERED(PEER, ts_full, 68, 8, 9, 0x00, 1, 2, 3, 4);
        ANSWERED(PEER, ts_over, 68, 8, 9, 0xf0, 1, 2, 3, 4);
        ANSWERED(PEER, both, 148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 68, 8, 5, 0, 0, 0, 0, 0);
}

/* RFC 1122 §3.2.1.8 (c): the recorded way, backwards, and the sender at its end, once. */
static void a_source_route_is_reversed(void **state)
{
        static const uint8_t back[] = {131, 15, 4, 2, 2, 2, 2, 1, 1, 1, 1, 10, 0, 0, 2, 0};
        static const uint8_t one[] = {137, 7, 4, 10, 0, 0, 2, 0};

        ANSWERED(0x03030303, back, 131, 15, 16, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        ANSWERED(0x01010101, one, 137, 7, 8, 1, 1, 1, 1);
}

static void options_to_be_sent_are_checked_and_padded(void **state)
{
        uint8_t out[IP_OPTS_MAX];

        assert_int_equal(ip_opts_check_sent((const uint8_t *)"\x94\x04\0\0", 4, out), 4);
        assert_int_equal(ip_opts_check_sent((const uint8_t *)"\x07\x07\x04\0\0\0\0", 7, out), 8);
        assert_int_equal(out[7], 0);
        assert_int_equal(ip_opts_check_sent((const uint8_t *)"\x83\x07\x04\1\2\3\4", 7, out), 8);
        assert_int_equal(ip_opts_check_sent(NULL, 0, out), 0);
        assert_int_equal(ip_opts_check_sent((const uint8_t *)"\x07\x09\x04\0\0\0\0", 7, out), -EINVAL);
        assert_int_equal(ip_opts_check_sent((const uint8_t *)"\x83\x03\x04\x89\x03\x04", 6, out), -EINVAL);
        assert_int_equal(ip_opts_check_sent(out, 41, out), -EINVAL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_there_is_found),
                cmocka_unit_test(unknown_options_are_passed_over),
                cmocka_unit_test(a_malformed_option_is_pointed_to),
                cmocka_unit_test(source_routes_are_refused_unless_asked_for),
                cmocka_unit_test(record_route_and_timestamp_come_back_with_us_in_them),
                cmocka_unit_test(a_source_route_is_reversed),
                cmocka_unit_test(options_to_be_sent_are_checked_and_padded),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
