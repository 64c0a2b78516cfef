/*
 * Packets of every size pass over the provider `xdp`, both ways. One end of a veth pair has an
 * AF_XDP socket, or the program in its place (XDP_MODE_TCX); the other end is the kernel's.
 */
#include "tests/netns/xdp_pair.h"

static void sizes_both_ways(enum xdp_want mode, unsigned mtu)
{
        struct pair p = pair_make(mode, mtu, few);

        print_message("%s\n", p.e->line);
        assert_int_equal(p.e->ni.base.caps.mtu, mtu + 14);
        for (uint32_t len = 14; len <= mtu + 14; len++) {
                kernel_sends(p.peer, len, len);
                expect(p.e, len, len);
                assert_true(offer(p.e, len + 7, len));
                flush(p.e);
                kernel_gets(p.peer, len + 7, len);
        }
        assert_int_equal(ni_xdp_loans(&p.e->ni), 0);
        assert_int_equal(p.e->cnt.n[COUNT_NI_RX_MSGS], mtu + 1);
        assert_int_equal(p.e->cnt.n[COUNT_NI_TX_MSGS], mtu + 1);
        pair_end(&p);
}

static void packets_of_every_size_pass_both_ways_native(void **state)
{
        sizes_both_ways(XDP_WANT_NATIVE, 1500);
}

static void packets_of_every_size_pass_both_ways_generic(void **state)
{
        sizes_both_ways(XDP_WANT_GENERIC, 1500);
}

static void packets_of_every_size_pass_both_ways_at_the_largest_native_mtu(void **state)
{
        sizes_both_ways(XDP_WANT_NATIVE, 3498);
}

static void packets_of_every_size_pass_both_ways_tcx(void **state)
{
        sizes_both_ways(XDP_WANT_TCX, 1500);
}

/* In chunks of a page, and beyond. */
static void packets_of_every_size_pass_both_ways_tcx_at_large_mtus(void **state)
{
        sizes_both_ways(XDP_WANT_TCX, 3498);
        sizes_both_ways(XDP_WANT_TCX, 9000);
}

/* ... up to the longest that there are, sixteen chunks each; with room for so many and no more. */
static void the_longest_packets_pass_both_ways_tcx(void **state)
{
        static const uint32_t lens[] = {60,    4096,  4097,  8192,  8193,
                                        30000, 61440, 61441, 65535, 65536};
        struct pair p = pair_make(XDP_WANT_TCX, 65522, few);
        uint32_t n = 0;

        for (int lap = 0; lap < 3; lap++)
                for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
                        kernel_sends(p.peer, n, lens[i]);
                        expect(p.e, n, lens[i]);
                        assert_true(offer(p.e, n + 7, lens[i]));
                        flush(p.e);
                        kernel_gets(p.peer, n++ + 7, lens[i]);
                }
        for (n = 0; offer(p.e, n, 65536);)
                n++;
        assert_int_equal(n, few.tx_chunks / 16);
        flush(p.e);
        for (uint32_t i = 0; i < n; i++)
                kernel_gets(p.peer, i, 65536);
        pair_end(&p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(packets_of_every_size_pass_both_ways_native),
                cmocka_unit_test(packets_of_every_size_pass_both_ways_generic),
                cmocka_unit_test(packets_of_every_size_pass_both_ways_at_the_largest_native_mtu),
                cmocka_unit_test(packets_of_every_size_pass_both_ways_tcx),
                cmocka_unit_test(packets_of_every_size_pass_both_ways_tcx_at_large_mtus),
                cmocka_unit_test(the_longest_packets_pass_both_ways_tcx),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
