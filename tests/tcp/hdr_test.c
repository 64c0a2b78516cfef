/* The header: tables of bytes and what they mean; what is written parses back. */
#include "tests/tcp/scenarios.h"

struct bytes {
        const char *what;
        uint8_t option[24];
        unsigned len; /* of the options, padded */
        uint8_t flags;
        int error; /* DROP_* or 0 */
        uint16_t mss;
        uint8_t wscale;
        bool sack_ok, has_ts;
        uint8_t nsack, fastopen;
        bool fastopen_old;
};

// clang-format off
static const struct bytes table[] = {
        {"no options", {0}, 0, TCP_ACK, .wscale = TCP_NO_WSCALE},
        {"MSS", {2, 4, 5, 180}, 4, S, .mss = 1460, .wscale = TCP_NO_WSCALE},
        {"MSS is for a SYN only", {2, 4, 5, 180}, 4, TCP_ACK, .wscale = TCP_NO_WSCALE},
        {"MSS of a wrong length is not read", {2, 3, 5, 0}, 4, S, .wscale = TCP_NO_WSCALE},
        {"scale over 14 is 14 (RFC 7323 §2.3)", {1, 3, 3, 200}, 4, S, .wscale = 14},
        {"unaligned (MUST-64)", {1, 2, 4, 2, 0, 1, 3, 3, 7, 0, 0, 0}, 12, S, .mss = 512,
         .wscale = 7},
        {"end of list ends", {4, 2, 0, 2, 4, 1, 1, 0}, 8, S, .sack_ok = true,
         .wscale = TCP_NO_WSCALE},
        {"unknown is skipped (MUST-6)", {254, 6, 1, 2, 3, 4, 4, 2}, 8, S, .sack_ok = true,
         .wscale = TCP_NO_WSCALE},
        {"length 0 ends (MUST-7)", {4, 2, 254, 0, 2, 4, 5, 180}, 8, S, .sack_ok = true,
         .wscale = TCP_NO_WSCALE},
        {"length 1 ends", {4, 2, 254, 1, 2, 4, 5, 180}, 8, S, .sack_ok = true,
         .wscale = TCP_NO_WSCALE},
        {"one of ours of length 0", {2, 0, 5, 180, 4, 2, 1, 1}, 8, S, .wscale = TCP_NO_WSCALE},
        {"length beyond the header", {4, 2, 2, 5}, 4, S, .sack_ok = true, .wscale = TCP_NO_WSCALE},
        {"kind without length", {4, 2, 1, 2}, 4, S, .sack_ok = true, .wscale = TCP_NO_WSCALE},
        {"timestamps", {1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2}, 12, TCP_ACK, .has_ts = true,
         .wscale = TCP_NO_WSCALE},
        {"timestamps elsewhere", {8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0}, 12, TCP_ACK, .has_ts = true,
         .wscale = TCP_NO_WSCALE},
        {"SACK", {1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2}, 12, TCP_ACK, .nsack = 1,
         .wscale = TCP_NO_WSCALE},
        {"SACK of an odd length is not read", {1, 5, 11, 0, 0, 0, 1, 0, 0, 0, 2, 9}, 12, TCP_ACK,
         .wscale = TCP_NO_WSCALE},
        {"Fast Open asks", {34, 2, 1, 1}, 4, S, .wscale = TCP_NO_WSCALE, .fastopen = 1},
        {"a cookie", {34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1}, 12, S, .wscale = TCP_NO_WSCALE,
         .fastopen = 9},
        {"an odd cookie is none (RFC 7413 §4.1.1)", {34, 9, 1, 2, 3, 4, 5, 6, 7, 1, 1, 1}, 12, S,
         .wscale = TCP_NO_WSCALE},
        {"nor is a short one", {34, 4, 1, 2}, 4, S, .wscale = TCP_NO_WSCALE},
        {"nor a long one", {34, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18},
         20, S, .wscale = TCP_NO_WSCALE},
        {"Fast Open is for a SYN only", {34, 2, 1, 1}, 4, TCP_ACK, .wscale = TCP_NO_WSCALE},
        {"by the experimental number", {254, 8, 0xf9, 0x89, 1, 2, 3, 4}, 8, S,
         .wscale = TCP_NO_WSCALE, .fastopen = 5, .fastopen_old = true},
        {"another experiment", {254, 8, 0xf9, 0x88, 1, 2, 3, 4}, 8, S, .wscale = TCP_NO_WSCALE},
};
// clang-format on

static void options_are_read(void **state)
{
        for (unsigned i = 0; i < ARRAY_LEN(table); i++) {
                const struct bytes *b = &table[i];
                uint8_t p[64] = {0};
                struct tcp_seg g;
                int n;

                p[12] = (uint8_t)((20 + b->len) / 4 << 4);
                p[13] = b->flags;
                memcpy(p + 20, b->option, b->len);
                n = tcp_hdr_parse(p, 20 + b->len, &g);
                if (n != (b->error ? -b->error : 20 + (int)b->len))
                        fail_msg("%s: %d", b->what, n);
                if (n > 0 &&
                    (g.mss != b->mss || g.wscale != b->wscale || g.sack_ok != b->sack_ok ||
                     g.has_ts != b->has_ts || g.nsack != b->nsack || g.fastopen != b->fastopen ||
                     (b->fastopen != 0 && g.fastopen_old != b->fastopen_old)))
                        fail_msg("%s: read wrongly", b->what);
        }
}

static void short_headers_are_refused(void **state)
{
        uint8_t p[20] = {0};
        struct tcp_seg g;

        assert_int_equal(tcp_hdr_parse(p, 19, &g), -DROP_TCP_SHORT);
        p[12] = 0x40;
        assert_int_equal(tcp_hdr_parse(p, 20, &g), -DROP_TCP_SHORT);
        p[12] = 0x60;
        assert_int_equal(tcp_hdr_parse(p, 20, &g), -DROP_TCP_SHORT);
}

static void what_is_written_parses_back(void **state)
{
        for (unsigned bits = 0; bits < 512; bits++) {
                struct tcp_seg g = {.sport = 1000,
                                    .dport = 2000,
                                    .seq = 0xfedcba98,
                                    .ack = 0x01234567,
                                    .wnd = 0xabcd,
                                    .urg = 77,
                                    .wscale = TCP_NO_WSCALE,
                                    .flags = bits & 1 ? TCP_SYN : TCP_ACK | TCP_PSH};
                struct tcp_seg back;
                uint8_t p[TCP_MAX_HDR];
                unsigned n;

                if (bits & 1 && bits & 2)
                        g.mss = 1460;
                if (bits & 1 && bits & 4)
                        g.wscale = 9;
                if (bits & 1)
                        g.sack_ok = bits >> 3 & 1;
                if (bits & 16)
                        g.has_ts = true, g.tsval = 0x11223344, g.tsecr = 0x55667788;
                if (!(bits & 1) && bits & 32) {
                        g.nsack = bits & 16 ? 3 : 4;
                        for (uint32_t i = 0; i < g.nsack; i++)
                                g.sack[i] = (struct tcp_sack_block){i * 100, i * 100 + 50};
                }
                if (bits & 1 && bits & 64) { /* the longest ones fit, too */
                        g.fastopen = bits & 128 ? 1 + TCP_MAX_COOKIE : bits & 32 ? 7 : 1;
                        g.fastopen_old = bits & 256;
                        memset(g.cookie, 0xee, sizeof g.cookie);
                }
                n = tcp_hdr_write(&g, p);
                assert_true(n % 4 == 0 && n <= TCP_MAX_HDR);
                assert_int_equal(tcp_hdr_parse(p, n, &back), n);
                assert_true(back.sport == g.sport && back.dport == g.dport && back.seq == g.seq &&
                            back.ack == g.ack && back.wnd == g.wnd && back.urg == g.urg &&
                            back.flags == g.flags);
                assert_true(back.mss == g.mss && back.wscale == g.wscale &&
                            back.sack_ok == g.sack_ok && back.has_ts == g.has_ts &&
                            back.tsval == g.tsval && back.tsecr == g.tsecr);
                assert_int_equal(back.fastopen, g.fastopen);
                if (g.fastopen != 0) {
                        assert_int_equal(back.fastopen_old, g.fastopen_old);
                        assert_memory_equal(back.cookie, g.cookie, g.fastopen - 1u);
                }
                assert_int_equal(back.nsack, g.nsack);
                assert_memory_equal(back.sack, g.sack, g.nsack * sizeof g.sack[0]);
        }
}

/* Packet scripts, and those who tell systems apart by their SYN, know the order and the NOPs
 * of Linux. */
static void options_of_a_syn_stand_as_in_linux(void **state)
{
        static const struct {
                bool sack_ok, has_ts;
                uint8_t wscale, n, option[20];
        } expected[] = {
                {true, true, 7, 20, {2, 4, 5, 180, 4, 2, 8, 10, 0, 0,
                                     0, 1, 0, 0,   0, 2, 1, 3,  3, 7}},
                {true, false, 7, 12, {2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 7}},
                {false, true, 7, 20, {2, 4, 5, 180, 1, 1, 8, 10, 0, 0,
                                      0, 1, 0, 0,   0, 2, 1, 3,  3, 7}},
                {true, false, TCP_NO_WSCALE, 8, {2, 4, 5, 180, 1, 1, 4, 2}},
                {false, false, 7, 8, {2, 4, 5, 180, 1, 3, 3, 7}},
        };

        for (unsigned i = 0; i < ARRAY_LEN(expected); i++) {
                struct tcp_seg g = {.flags = TCP_SYN,
                                    .mss = 1460,
                                    .sack_ok = expected[i].sack_ok,
                                    .has_ts = expected[i].has_ts,
                                    .tsval = 1,
                                    .tsecr = 2,
                                    .wscale = expected[i].wscale};
                uint8_t p[TCP_MAX_HDR];

                assert_int_equal(tcp_hdr_write(&g, p), 20 + expected[i].n);
                assert_memory_equal(p + 20, expected[i].option, expected[i].n);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(options_are_read),
                cmocka_unit_test(short_headers_are_refused),
                cmocka_unit_test(what_is_written_parses_back),
                cmocka_unit_test(options_of_a_syn_stand_as_in_linux),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
