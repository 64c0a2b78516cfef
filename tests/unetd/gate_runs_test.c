/* The bridge: segments that become one frame. */
#include "gate_scene.h"

#include "base/checksum.h"
#include "unetd/bridge/gate_run.h"

static struct gate_out gather;
static uint8_t payload[64 * 1448];

static struct frame data(uint32_t seq, uint8_t flags)
{
        struct frame f = segment(true, WEB, 5, flags);

        put32(f.p + 38, seq);
        return f;
}

/* A segment of `len` bytes at `seq`, as a stack sends it. */
static void add(uint32_t seq, uint32_t len, uint8_t flags)
{
        struct frame f = data(seq, flags);

        put16(f.p + 16, 40 + len);
        sum_ip(f);
        assert_true(gate_out_add(&gather, f.p, f.len, payload + seq, len));
        free(f.p);
}

static void segments_become_one_frame(void **state)
{
        const struct gate_out_frame *f = &gather.frame[0];
        uint32_t sum;

        gather.n = 0;
        for (uint32_t i = 0; i < 10; i++)
                add(i * 1448, 1448, TCP_ACK);
        add(14480, 100, TCP_ACK | TCP_PSH);
        assert_int_equal(gather.n, 1);
        gate_out_finish(&gather, 0);
        assert_int_equal(f->segs, 11);
        assert_true(f->how.gso_size == 1448 && f->how.gso_type == VIRTIO_NET_HDR_GSO_TCPV4 &&
                    f->how.csum_start == 34 && f->how.hdr_len == 54);
        assert_int_equal((f->head[16] << 8 | f->head[17]), 40 + 14580);
        assert_int_equal(csum_finish(csum_partial(f->head + 14, 20, 0)).raw, 0);
        assert_int_equal(f->head[47], TCP_ACK | TCP_PSH);
        sum = csum_pseudo(ip_addr_v4(US), ip_addr_v4(PEER), IP_PROTO_TCP, 20 + 14580);
        assert_int_equal((be16){*(const uint16_t *)(const void *)(f->head + 50)}.raw,
                         csum_fold(sum));
        assert_int_equal(f->niov, 2 + 11);
        for (uint32_t i = 0; i < 11; i++)
                assert_ptr_equal(f->iov[2 + i].iov_base, payload + i * 1448);
}

static void a_run_ends(void **state)
{
        struct frame f;

        gather.n = 0;
        add(0, 1448, TCP_ACK);
        add(1448, 100, TCP_ACK);
        add(1548, 1448, TCP_ACK);            /* behind a shorter one */
        add(1548 + 2 * 1448, 1448, TCP_ACK); /* behind a gap */
        add(1548 + 3 * 1448, 1448, TCP_ACK | TCP_FIN);
        add(1548 + 4 * 1448, 1448, TCP_ACK);
        f = data(1548 + 5 * 1448, TCP_ACK);
        put16(f.p + 48, 99); /* another window */
        put16(f.p + 16, 40 + 1448);
        sum_ip(f);
        assert_true(gate_out_add(&gather, f.p, f.len, payload, 1448));
        free(f.p);
        assert_int_equal(gather.n, 6);
        gate_out_finish(&gather, 1);
        assert_int_equal(gather.frame[1].how.gso_type, 0);
        gather.n = 0;
        for (uint32_t i = 0; i < 50; i++)
                add(i * 1448, 1448, TCP_ACK);
        assert_int_equal(gather.n, 2);
        assert_true(gather.frame[0].payload <= 65535 - 80 &&
                    gather.frame[0].payload + gather.frame[1].payload == 50 * 1448);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(segments_become_one_frame),
                cmocka_unit_test(a_run_ends),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
