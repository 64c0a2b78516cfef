/* IP options: RFC 791 §3.1, RFC 1122 §3.2.1.8 and §3.2.2.6, RFC 7126. */
#include <errno.h>

#include "ip/ip_opts.h"
#include "tests/unit.h"

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
        static const uint8_t opts[] = {1, 7, 7, 4,   0, 0, 0, 0,   68, 8, 5, 0, 0,
                                       0, 0, 0, 148, 4, 0, 0, 136, 4,  1, 2, 0, 99};
        uint8_t hdr[IP_MAX_HDR], bad;
        struct ip_opts_found o;

        assert_int_equal(ip_opts_parse(hdr, with(hdr, opts, sizeof opts), false, &o, &bad),
                         DROP_NONE);
        assert_int_equal(o.rr, 21);
        assert_int_equal(o.ts, 28);
        assert_int_equal(o.sr, 0);
        assert_true(o.alert);
}

/* RFC 1122 §3.2.1.8: unknown options, and the stream identifier, are silently ignored. */
static void unknown_options_are_passed_over(void **state)
{
        uint8_t hdr[IP_MAX_HDR], bad;
        struct ip_opts_found o;

        for (unsigned type = 2; type < 256; type++) {
                const uint8_t opts[] = {(uint8_t)type, 6, 1, 2, 3, 4};
                bool known = type == IPOPT_RR || type == IPOPT_TS || type == IPOPT_LSRR ||
                             type == IPOPT_SSRR;

                if (!known)
                        assert_int_equal(ip_opts_parse(hdr, with(hdr, opts, 6), false, &o, &bad),
                                         DROP_NONE);
        }
}

/* RFC 1122 §3.2.2.5: a parameter problem points to the octet at fault. */
static void a_malformed_option_is_pointed_to(void **state)
{
        static const struct {
                uint8_t opt[12];
                uint8_t n, bad;
        } table[] = {
                {{7, 50, 4}, 3, 21},                          /* runs over */
                {{1, 1, 1, 7}, 4, 23},                        /* no room for a length */
                {{99, 1, 0, 0}, 4, 21},                       /* does not cover itself */
                {{7, 2, 1, 1}, 4, 21},                        /* no room for a pointer */
                {{7, 7, 3, 0, 0, 0, 0}, 7, 22},               /* points into itself */
                {{7, 7, 6, 0, 0, 0, 0}, 7, 22},               /* between addresses */
                {{7, 11, 12, 0, 0, 0, 0, 0, 0, 0, 0}, 11, 0}, /* full: good */
                {{7, 9, 8, 0, 0, 0, 0, 0, 0}, 9, 22},         /* an address that would not fit */
                {{68, 3, 5, 0}, 4, 21},
                {{68, 8, 4, 0, 0, 0, 0, 0}, 8, 22},
                {{68, 8, 6, 0, 0, 0, 0, 0}, 8, 22},
                {{68, 8, 5, 2, 0, 0, 0, 0}, 8, 23}, /* a flag that is not */
                /* Full, and so is the count of those who found it so. */
                {{68, 8, 9, 0xf0, 0, 0, 0, 0}, 8, 23},
                {{68, 8, 9, 0xe0, 0, 0, 0, 0}, 8, 0},
                {{68, 8, 5, 1, 0, 0, 0, 0}, 8, 22}, /* room for four octets, eight are due */
                {{7, 3, 4, 7, 3, 4}, 6, 23},        /* twice */
        };

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                uint8_t hdr[IP_MAX_HDR], bad = 0;
                struct ip_opts_found o;
                enum drop why =
                        ip_opts_parse(hdr, with(hdr, table[i].opt, table[i].n), true, &o, &bad);

                assert_int_equal(why, table[i].bad ? DROP_IP_OPTIONS : DROP_NONE);
                assert_int_equal(bad, table[i].bad);
        }
}

/* RFC 7126 §4.3; RFC 1122 §3.2.1.8 (c) for those who switch them on: at its end it is for us,
 * before it is not. */
static void source_routes_are_refused_unless_asked_for(void **state)
{
        static const uint8_t done[] = {131, 7, 8, 1, 2, 3, 4, 0},
                             not_yet[] = {137, 7, 4, 1, 2, 3, 4, 0};
        uint8_t hdr[IP_MAX_HDR], bad;
        struct ip_opts_found o;

        assert_int_equal(ip_opts_parse(hdr, with(hdr, done, 8), false, &o, &bad),
                         DROP_IP_SOURCE_ROUTE);
        assert_int_equal(ip_opts_parse(hdr, with(hdr, done, 8), true, &o, &bad), DROP_NONE);
        assert_true(o.sr == 20 && o.sr_done);
        assert_int_equal(ip_opts_parse(hdr, with(hdr, not_yet, 8), true, &o, &bad),
                         DROP_IP_SOURCE_ROUTE);
        assert_false(o.sr_done);
}

/* One request, the options of its answer. */
static void answered(const uint8_t *opts, unsigned n, const uint8_t *want, unsigned want_n,
                     uint32_t want_hop)
{
        uint8_t hdr[IP_MAX_HDR], out[IP_OPTS_MAX], bad;
        struct ip_opts_found o;
        uint32_t hop;

        assert_int_equal(ip_opts_parse(hdr, with(hdr, opts, n), true, &o, &bad), DROP_NONE);
        assert_int_equal(ip_opts_answer(hdr, &o, US, PEER, 0x80001234, out, &hop), want_n);
        assert_memory_equal(out, want, want_n);
        assert_int_equal(hop, want_hop);
}
#define ANSWERED(hop, want, ...)                                       \
        do {                                                           \
                static const uint8_t opts_[] = {__VA_ARGS__};          \
                answered(opts_, sizeof opts_, want, sizeof want, hop); \
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
        static const uint8_t ts_over[] = {68, 12, 13, 0xf3, 1, 2, 3, 4, 5, 6, 7, 8};
        static const uint8_t both[] = {7, 7, 8, 10, 0, 0, 1, 68, 8, 9, 0, 0x80, 0, 0x12, 0x34, 0};

        ANSWERED(PEER, rr, 7, 11, 8, 9, 9, 9, 9, 0, 0, 0, 0);
        ANSWERED(PEER, full, 7, 7, 8, 9, 9, 9, 9);
        ANSWERED(PEER, ts, 68, 8, 5, 0, 0, 0, 0, 0);
        ANSWERED(PEER, ts_addr, 68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0);
        ANSWERED(PEER, ts_other, 68, 12, 5, 3, 10, 0, 0, 9, 0, 0, 0, 0);
        ANSWERED(PEER, ts_full, 68, 8, 9, 0x00, 1, 2, 3, 4);
        ANSWERED(PEER, ts_over, 68, 12, 13, 0xf3, 1, 2, 3, 4, 5, 6, 7, 8);
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

static int set(const void *opts, unsigned n, struct ip_optbuf *o)
{
        memset(o, 0x55, sizeof *o);
        return ip_opts_set(opts, n, false, o);
}

/* Linux's ip_options_compile() of what IP_OPTIONS brings. */
static void options_to_be_sent_are_checked_and_padded(void **state)
{
        struct ip_optbuf o;
        uint8_t long_one[41] = {1};

        assert_int_equal(set("\x94\x04\0\0", 4, &o), 0);
        assert_int_equal(o.len, 4);
        assert_int_equal(set("\x07\x07\x04\1\2\3\4", 7, &o), 0);
        assert_int_equal(o.len, 8);
        assert_memory_equal(o.raw, "\x07\x07\x04\0\0\0\0\0", 8); /* ours to fill in */
        assert_int_equal(set("\x83\x07\x04\1\2\3\4", 7, &o), 0);
        assert_int_equal(set("", 0, &o), 0);
        assert_int_equal(o.len, 0);
        assert_int_equal(set("\x01\x00\x07\x07", 4, &o), 0);
        assert_memory_equal(o.raw, "\x01\0\0\0", 4);                   /* nothing behind the end */
        assert_int_equal(set("\x07\x09\x04\0\0\0\0", 7, &o), -EINVAL); /* longer than there is */
        assert_int_equal(set("\x83\x03\x04\x89\x03\x04", 6, &o), -EINVAL); /* two source routes */
        assert_int_equal(set("\x83\x03\x04\0", 4, &o), -EINVAL);           /* one without a hop */
        /* One that is gone already. */
        assert_int_equal(set("\x83\x07\x08\1\2\3\4", 7, &o), -EINVAL);
        /* No more who found it full can be counted. */
        assert_int_equal(set("\x44\x04\x05\xf0", 4, &o), -EINVAL);
        assert_int_equal(set("\x94\x03\0\0", 4, &o), -EINVAL);
        assert_int_equal(set(long_one, 41, &o), -EINVAL);
        memset(long_one, 1, sizeof long_one);
        memcpy(long_one + 29, "\x07\x07\x04\1\2\3\4", 7);
        memcpy(long_one + 36, "\x44\x04\x05\x00", 4);
        assert_int_equal(set(long_one, 40, &o), 0); /* both at the far end of the room */
        assert_memory_equal(o.raw + 29, "\x07\x07\x04\0\0\0\0\x44\x04\x05\x00", 11);
}

/* ip(7) does not say it, Linux does: who has not CAP_NET_RAW may not send what a host knows
 * nothing of. */
static void unknown_options_are_for_the_privileged(void **state)
{
        struct ip_optbuf o;

        assert_int_equal(ip_opts_set((const uint8_t *)"\x88\x04\1\2", 4, false, &o), -EINVAL);
        assert_int_equal(ip_opts_set((const uint8_t *)"\x88\x04\1\2", 4, true, &o), 0);
        assert_int_equal(ip_opts_set((const uint8_t *)"\x01\x82\x03\1", 4, false, &o), -EINVAL);
}

static void built(const void *opts, unsigned n, const void *want, uint32_t hop)
{
        uint8_t out[IP_OPTS_MAX];
        struct ip_optbuf o;

        assert_int_equal(set(opts, n, &o), 0);
        assert_int_equal(ip_opts_build(&o, US, PEER, 0x80001234, out), hop);
        assert_int_equal(ip_opts_first_hop(&o, PEER), hop);
        assert_memory_equal(out, want, o.len);
}

/* RFC 791 §3.1: who sends has his address recorded and his time stamped; a source route's first hop
 * is where it goes. */
static void what_is_sent_has_us_in_it(void **state)
{
        built("\x07\x0b\x04\0\0\0\0\0\0\0\0", 11, "\x07\x0b\x08\x0a\0\0\1\0\0\0\0\0", PEER);
        built("\x44\x08\x05\0\0\0\0\0", 8, "\x44\x08\x09\0\x80\0\x12\x34", PEER);
        built("\x44\x0c\x05\1\0\0\0\0\0\0\0\0", 12, "\x44\x0c\x0d\1\x0a\0\0\1\x80\0\x12\x34", PEER);
        built("\x83\x0b\x04\1\1\1\1\2\2\2\2", 11, "\x83\x0b\x04\2\2\2\2\x0a\0\0\2\0", 0x01010101);
        built("\x89\x07\x04\1\1\1\1", 7, "\x89\x07\x04\x0a\0\0\2\0", 0x01010101);
}

static bool came_back(const void *opts, unsigned n, struct ip_optbuf *recorded,
                      struct ip_optbuf *back)
{
        uint8_t hdr[IP_MAX_HDR], bad;
        unsigned len = with(hdr, opts, n);
        struct ip_opts_found o;

        assert_int_equal(ip_opts_parse(hdr, len, true, &o, &bad), DROP_NONE);
        ip_opts_record(hdr, len, US, 0x80001234, recorded);
        assert_int_equal(recorded->len, len - IP_MIN_HDR);
        return ip_opts_back(recorded, PEER, back);
}

/* RFC 1122 §3.2.1.8: the application has them with us in them, and in the form of what
 * would answer. */
static void received_options_are_told_and_turned_round(void **state)
{
        struct ip_optbuf rec, back;

        assert_true(came_back("\x07\x0f\x08\x0a\0\0\2\0\0\0\0\0\0\0\0\0", 16, &rec, &back));
        assert_memory_equal(rec.raw, "\x07\x0f\x0c\x0a\0\0\2\x0a\0\0\1\0\0\0\0\0", 16);
        assert_int_equal(back.len, 16);
        assert_memory_equal(back.raw, rec.raw, 16);
        assert_true(came_back("\x94\x04\0\0\x44\x0c\x09\0\1\2\3\4\0\0\0\0", 16, &rec, &back));
        assert_memory_equal(rec.raw, "\x94\x04\0\0\x44\x0c\x0d\0\1\2\3\4\x80\0\x12\x34", 16);
        assert_int_equal(back.len, 12); /* nothing else is answered */
        assert_memory_equal(back.raw, "\x44\x0c\x0d\0\1\2\3\4\x80\0\x12\x34", 12);
        assert_true(came_back("\x83\x0b\x0c\1\1\1\1\2\2\2\2\0", 12, &rec, &back));
        assert_memory_equal(back.raw, "\x83\x0b\x04\2\2\2\2\1\1\1\1\0", 12);
        /* RFC 1122: without the sender. */
        assert_true(came_back("\x83\x0b\x0c\x0a\0\0\2\2\2\2\2\0", 12, &rec, &back));
        assert_memory_equal(back.raw, "\x83\x07\x04\2\2\2\2\0", 8);
        assert_int_equal(back.len, 8);
        assert_true(came_back("\x83\x07\x08\x0a\0\0\2\0", 8, &rec, &back));
        assert_int_equal(back.len, 0);
        /* Half an address is left. */
        assert_false(came_back("\x07\x09\x04\0\0\0\0\0\0\0\0\0", 12, &rec, &back));
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
                cmocka_unit_test(unknown_options_are_for_the_privileged),
                cmocka_unit_test(what_is_sent_has_us_in_it),
                cmocka_unit_test(received_options_are_told_and_turned_round),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
