/* Every implementation against the definition, over all small lengths, alignments and splits. */
#include <stdlib.h>

#include "base/checksum.h"
#include "base/prng.h"
#include "tests/unit.h"

#define MAX_LEN 400u

/* RFC 1071 §1, word by word in network order. */
static uint16_t naive(const uint8_t *p, size_t n)
{
        uint32_t sum = 0;

        for (size_t i = 0; i < n; i++) {
                sum += (uint32_t)p[i] << (i % 2 ? 0 : 8);
                sum = (sum & 0xffff) + (sum >> 16);
        }
        return (uint16_t)~sum;
}

static void fill(uint8_t *p, size_t n, uint64_t seed)
{
        struct prng_fast g;

        prng_fast_init(&g, seed);
        for (size_t i = 0; i < n; i++)
                p[i] = (uint8_t)prng_fast_u64(&g);
}

/* 0 and 0xffff are the same number in one's complement; which of the two comes out is not said. */
static void assert_same(be16 got, uint16_t want)
{
        uint16_t a = be16_get(got);

        if ((a == 0 || a == 0xffff) && (want == 0 || want == 0xffff))
                return;
        assert_int_equal(a, want);
}

static void all_lengths_at_all_alignments(void **state)
{
        uint8_t src[MAX_LEN + 64], dst[MAX_LEN + 64];
        const struct csum_impl *impl;

        fill(src, sizeof src, 1);
        for (unsigned i = 0; (impl = csum_impl(i)) != NULL; i++) {
                print_message("%s\n", impl->name);
                for (size_t off = 0; off < 33; off++) {
                        for (size_t n = 0; n <= MAX_LEN; n++) {
                                uint16_t want = naive(src + off, n);

                                assert_same(csum_finish(impl->partial(src + off, n, 0)), want);
                                memset(dst, 0xee, sizeof dst);
                                assert_same(csum_finish(impl->copy(dst + 3, src + off, n, 0)),
                                            want);
                                assert_memory_equal(dst + 3, src + off, n);
                                assert_int_equal(dst[2], 0xee);
                                assert_int_equal(dst[3 + n], 0xee);
                        }
                }
        }
}

/* All ones is where carries are lost, if they are. */
static void bytes_of_all_ones_and_zeros(void **state)
{
        static uint8_t p[65536];
        const struct csum_impl *impl;

        for (unsigned i = 0; (impl = csum_impl(i)) != NULL; i++) {
                for (size_t n = 0; n < sizeof p; n = n * 3 / 2 + 1) {
                        memset(p, 0xff, sizeof p);
                        assert_same(csum_finish(impl->partial(p, n, 0)), naive(p, n));
                        assert_same(csum_finish(impl->partial(p, n, 0xffffffff)), naive(p, n));
                        memset(p, 0, sizeof p);
                        assert_int_equal(csum_fold(impl->partial(p, n, 0)), 0);
                }
        }
}

static void large_messages(void **state)
{
        static uint8_t p[65536], q[65536];
        const struct csum_impl *impl;

        fill(p, sizeof p, 2);
        for (unsigned i = 0; (impl = csum_impl(i)) != NULL; i++) {
                assert_same(csum_finish(impl->partial(p, sizeof p, 0)), naive(p, sizeof p));
                assert_same(csum_finish(impl->copy(q, p, sizeof p - 1, 0)), naive(p, sizeof p - 1));
        }
        assert_same(csum_finish(csum_partial(p, 65535, 0)), naive(p, 65535));
        assert_same(csum_finish(csum_copy(q, p, 65535, 0)), naive(p, 65535));
}

/* Longer than any packet: what is summed in narrow lanes must be taken out of them in time. */
static void megabytes_of_ones_zeros_and_noise(void **state)
{
        enum { BYTES = 5 << 20 };
        uint8_t *p = malloc(BYTES), *q = malloc(BYTES);
        const struct csum_impl *impl;

        assert_non_null(p);
        assert_non_null(q);
        for (int what = 0; what < 3; what++) {
                memset(p, what == 1 ? 0xff : 0, BYTES);
                if (what == 2)
                        fill(p, BYTES, 5);
                for (unsigned i = 0; (impl = csum_impl(i)) != NULL; i++) {
                        assert_same(csum_finish(impl->partial(p, BYTES - 77, 0)),
                                    naive(p, BYTES - 77));
                        assert_same(csum_finish(impl->copy(q, p, BYTES - 1, 0)),
                                    naive(p, BYTES - 1));
                        assert_memory_equal(p, q, BYTES - 1);
                }
        }
        free(p);
        free(q);
}

/* RFC 1071 §3: the example of the text. */
static void the_rfc_example(void **state)
{
        static const uint8_t p[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};

        assert_int_equal(be16_get(csum_finish(csum_partial(p, sizeof p, 0))), 0x220d);
}

static void pieces_join_at_any_offset(void **state)
{
        uint8_t p[96];

        fill(p, sizeof p, 3);
        for (size_t a = 0; a <= sizeof p; a++) {
                for (size_t b = a; b <= sizeof p; b++) {
                        uint32_t sum = csum_partial(p, a, 0);

                        sum = csum_append(sum, a, csum_partial(p + a, b - a, 0));
                        sum = csum_append(sum, b, csum_partial(p + b, sizeof p - b, 0));
                        assert_same(csum_finish(sum), naive(p, sizeof p));
                }
        }
}

static void a_whole_message_sums_to_zero(void **state)
{
        uint8_t p[61];
        be16 field;

        fill(p, sizeof p, 4);
        p[10] = p[11] = 0;
        field = csum_finish(csum_partial(p, sizeof p, 0));
        memcpy(p + 10, &field, 2);
        assert_int_equal(csum_finish(csum_partial(p, sizeof p, 0)).raw, 0);
}

static void an_update_equals_a_new_sum(void **state)
{
        uint8_t p[40];
        be16 sum, from, to;

        for (uint64_t seed = 0; seed < 2000; seed++) {
                fill(p, sizeof p, seed);
                sum = csum_finish(csum_partial(p, sizeof p, 0));
                memcpy(&from, p + 8, 2);
                to = be16_of((uint16_t)(seed * 0x1357));
                memcpy(p + 8, &to, 2);
                sum = csum_update16(sum, from, to);
                assert_same(sum, naive(p, sizeof p));
        }
}

/* RFC 1624 §4: the case that eqn. 2 of RFC 1141 got wrong: 0xdd2f, 0x5555 becomes 0x3285, and the
 * sum 0x0000.
 */
static void the_update_of_rfc_1624(void **state)
{
        assert_int_equal(be16_get(csum_update16(be16_of(0xdd2f), be16_of(0x5555), be16_of(0x3285))),
                         0x0000);
}

static void the_pseudo_header_of_v4(void **state)
{
        static const uint8_t p[] = {10, 0, 0, 1, 192, 168, 255, 254, 0, 17, 0x12, 0x34};

        assert_same(csum_finish(csum_pseudo(ip_addr_v4(0x0a000001), ip_addr_v4(0xc0a8fffe), 17,
                                            0x1234)),
                    naive(p, sizeof p));
}

static void the_pseudo_header_of_v6(void **state)
{
        uint8_t p[40];
        ip_addr src, dst;

        fill(p, 32, 5);
        p[0] = 0x20;
        memcpy(&src, p, 16);
        memcpy(&dst, p + 16, 16);
        memcpy(p + 32, (uint8_t[]){0, 1, 0x12, 0x34, 0, 0, 0, 6}, 8);
        assert_same(csum_finish(csum_pseudo(src, dst, 6, 0x11234)), naive(p, sizeof p));
}

/* A field that holds the pseudo header's sum alone is right only where senders may leave the rest
 * to a device. */
static void a_sum_left_to_a_device_is_told_from_a_wrong_one(void **state)
{
        uint32_t pseudo = csum_pseudo(ip_addr_v4(0x0a000001), ip_addr_v4(0x0a000002), 17, 64),
                 whole;
        uint8_t p[64];
        be16 field;

        fill(p, sizeof p, 9);
        field.raw = csum_fold(pseudo);
        memcpy(p + 6, &field, 2);
        whole = csum_partial(p, sizeof p, pseudo);
        assert_true(csum_right(whole, field, pseudo, CSUM_WHOLE_OR_PSEUDO));
        assert_false(csum_right(whole, field, pseudo, CSUM_WHOLE));
        field.raw++;
        assert_false(csum_right(whole + 1, field, pseudo, CSUM_WHOLE_OR_PSEUDO));
        memset(p + 6, 0, 2);
        field = csum_finish(csum_partial(p, sizeof p, pseudo));
        memcpy(p + 6, &field, 2);
        whole = csum_partial(p, sizeof p, pseudo);
        assert_true(csum_right(whole, field, pseudo, CSUM_WHOLE));
        assert_true(csum_right(whole, field, pseudo, CSUM_WHOLE_OR_PSEUDO));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(all_lengths_at_all_alignments),
                cmocka_unit_test(bytes_of_all_ones_and_zeros),
                cmocka_unit_test(large_messages),
                cmocka_unit_test(megabytes_of_ones_zeros_and_noise),
                cmocka_unit_test(the_rfc_example),
                cmocka_unit_test(pieces_join_at_any_offset),
                cmocka_unit_test(a_whole_message_sums_to_zero),
                cmocka_unit_test(an_update_equals_a_new_sum),
                cmocka_unit_test(the_update_of_rfc_1624),
                cmocka_unit_test(the_pseudo_header_of_v4),
                cmocka_unit_test(the_pseudo_header_of_v6),
                cmocka_unit_test(a_sum_left_to_a_device_is_told_from_a_wrong_one),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
