/* Datagrams that the kernel joined are taken apart again. */
#include <stdlib.h>

#include "arp/ether.h"
#include "ip/ip.h"
#include "base/checksum.h"
#include "unetd/bridge/gate_split.h"
#include "tests/unit.h"

enum { FROM = 0x0a4d0002, TO = 0x0a4d0001, ID = 0xfffe };

static void put16(uint8_t *p, uint32_t v)
{
        p[0] = (uint8_t)(v >> 8);
        p[1] = (uint8_t)v;
}

static uint32_t get16(const uint8_t *p)
{
        return (uint32_t)(p[0] << 8 | p[1]);
}

/* A frame as a packet socket has it, of its own size exactly: `ip_hdr` bytes of IP header, so
 * much payload. */
static uint8_t *joined(uint32_t ip_hdr, uint32_t payload, uint32_t *len)
{
        uint8_t *p = calloc(1, *len = 14 + ip_hdr + 8 + payload), *ip = p + 14, *udp = ip + ip_hdr;
        be32 a = be32_of(FROM), b = be32_of(TO);

        ether_write(p, (const uint8_t[6]){2, 0, 0, 0, 0, 1}, (const uint8_t[6]){2, 0, 0, 0, 0, 2},
                    ETHER_IPV4);
        ip[0] = (uint8_t)(0x40 | ip_hdr / 4);
        put16(ip + 2, ip_hdr + 8 + payload);
        put16(ip + 4, ID);
        put16(ip + 6, 0x4000);
        ip[8] = 64;
        ip[9] = IP_PROTO_UDP;
        memcpy(ip + 12, &a, 4);
        memcpy(ip + 16, &b, 4);
        memset(ip + 20, 1, ip_hdr - 20); /* options: nothing */
        put16(udp, 1000);
        put16(udp + 2, 2000);
        put16(udp + 4, 8 + payload);
        put16(udp + 6, 0x1234); /* of the pseudo header, or of nothing */
        for (uint32_t i = 0; i < payload; i++)
                udp[8 + i] = (uint8_t)(i * 7 + i / 256);
        return p;
}

static void is_right(const uint8_t *p, uint32_t len, uint32_t ip_hdr, uint32_t nth)
{
        const uint8_t *ip = p + 14, *udp = ip + ip_hdr;
        uint32_t n = len - 14 - ip_hdr;

        assert_int_equal(get16(ip + 2), len - 14);
        assert_int_equal(get16(ip + 4), (ID + nth) & 0xffff);
        assert_int_equal(csum_finish(csum_partial(ip, ip_hdr, 0)).raw, 0);
        assert_int_equal(get16(udp), 1000);
        assert_int_equal(get16(udp + 2), 2000);
        assert_int_equal(get16(udp + 4), n);
        assert_int_not_equal(get16(udp + 6), 0);
        assert_int_equal(csum_finish(csum_partial(udp, n,
                                                  csum_pseudo(ip_addr_v4(FROM), ip_addr_v4(TO),
                                                              IP_PROTO_UDP, n)))
                                 .raw,
                         0);
}

static void each_size_into_its_pieces(void **state)
{
        static const struct {
                uint32_t ip_hdr, payload;
                uint16_t size;
        } row[] = {{20, 3000, 1000}, {20, 3001, 1000}, {20, 1, 1000},  {20, 1000, 1000},
                   {60, 2500, 100},  {24, 5, 1},       {20, 700, 1472}};

        for (size_t i = 0; i < ARRAY_LEN(row); i++) {
                uint32_t len, n, nth = 0, done = 0;
                uint8_t *p = joined(row[i].ip_hdr, row[i].payload, &len), *out = malloc(len);
                struct gate_split s;

                assert_true(gate_split_begin(&s, p, len, row[i].size));
                while ((n = gate_split_next(&s, out)) != 0) {
                        uint32_t got = n - 14 - row[i].ip_hdr - 8;
                        assert_true(n <= len);
                        assert_int_equal(got, MIN(row[i].size, row[i].payload - done));
                        assert_memory_equal(out + n - got, p + len - row[i].payload + done, got);
                        is_right(out, n, row[i].ip_hdr, nth++);
                        done += got;
                }
                assert_int_equal(done, row[i].payload);
                assert_int_equal(gate_split_next(&s, out), 0);
                free(p);
                free(out);
        }
}

/* Behind the packet there may be padding of the link's. */
static void padding_is_no_payload(void **state)
{
        uint32_t len;
        uint8_t *p = joined(20, 100, &len), out[200];
        struct gate_split s;

        put16(p + 14 + 2, 20 + 8 + 50);
        assert_true(gate_split_begin(&s, p, len, 40));
        assert_int_equal(gate_split_next(&s, out), 42 + 40);
        assert_int_equal(gate_split_next(&s, out), 42 + 10);
        assert_int_equal(gate_split_next(&s, out), 0);
        free(p);
}

static void what_is_no_whole_datagram_is_not_split(void **state)
{
        static const struct {
                uint32_t at;
                uint8_t byte;
        } harm[] = {{12, 0x86}, {14, 0x65}, {14, 0x44}, {14, 0x4f},        {16, 0xff},
                    {17, 27},   {20, 0x20}, {21, 1},    {23, IP_PROTO_TCP}};
        struct gate_split s;
        uint32_t len;
        uint8_t *p;

        for (size_t i = 0; i < ARRAY_LEN(harm); i++) {
                p = joined(20, 20, &len);
                put16(p + 16, len - 14);
                p[harm[i].at] = harm[i].byte;
                assert_false(gate_split_begin(&s, p, len, 10));
                free(p);
        }
        p = joined(20, 20, &len);
        assert_false(gate_split_begin(&s, p, len, 0));
        assert_false(gate_split_begin(&s, p, 33, 10));
        assert_true(gate_split_begin(&s, p, len, 10));
        free(p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_size_into_its_pieces),
                cmocka_unit_test(padding_is_no_payload),
                cmocka_unit_test(what_is_no_whole_datagram_is_not_split),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
