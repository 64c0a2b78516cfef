/*
 * What a tcx program receives whole (XDP_MODE_TCX), segments that the kernel has joined, and what
 * it leaves to the kernel.
 */
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/netns/xdp_pair.h"

#define RUN_HDR    (14 + 20 + 20)
#define LONG_BYTES 20000u

/* Of a sender that leaves cutting to the device: TCP, a header for packet(7) before it. */
static int segment_socket(struct pair *p)
{
        int on = 1, fd = bed_packet_socket(p->ns[1], "theirs");

        bed_run(p->ns[1], "ethtool -K theirs tso on gso on tx on sg on >/dev/null");
        assert_int_equal(setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on), 0);
        return fd;
}

static void send_segment(int fd, uint32_t number)
{
        static const uint8_t hdr[RUN_HDR] = {[0] = 0xff,
                                             0xff,
                                             0xff,
                                             0xff,
                                             0xff,
                                             0xff,
                                             [6] = 2,
                                             [12] = 8,
                                             [14] = 0x45,
                                             [16] = LONG_BYTES >> 8,
                                             LONG_BYTES & 0xff,
                                             [20] = 0x40,
                                             [22] = 64,
                                             [23] = IPPROTO_TCP,
                                             [26] = 10,
                                             0,
                                             0,
                                             1,
                                             10,
                                             0,
                                             0,
                                             2,
                                             [46] = 0x50,
                                             0x10,
                                             0xff,
                                             0xff};
        struct virtio_net_hdr how = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                     .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
                                     .hdr_len = RUN_HDR,
                                     .gso_size = 1000,
                                     .csum_start = 34,
                                     .csum_offset = 16};
        uint8_t payload[LONG_BYTES - 40];
        struct iovec iov[] = {{&how, sizeof how},
                              {(void *)(uintptr_t)hdr, sizeof hdr},
                              {payload, sizeof payload}};

        memset(payload, (int)number, sizeof payload);
        assert_int_equal(writev(fd, iov, 3), sizeof how + sizeof hdr + sizeof payload);
}

static void check_segment(struct end *e, const struct unet_rx *rx, uint32_t number)
{
        static uint8_t bytes[65536];

        assert_int_equal(whole(e, rx, bytes), LONG_BYTES + 14);
        for (uint32_t i = RUN_HDR; i < LONG_BYTES + 14; i++)
                assert_int_equal(bytes[i], (uint8_t)number);
}

static void large_segments_are_received_whole(void **state)
{
        struct pair p = pair_make(XDP_WANT_TCX, 1500, few);
        struct unet_rx rx[8], more;
        struct xdp_drops drops;
        int fd = segment_socket(&p);

        for (uint32_t i = 0; i < 10 * few.rx_large; i++) {
                send_segment(fd, i);
                await(p.e, &rx[0]);
                check_segment(p.e, &rx[0], i);
                give_back(p.e, &rx[0]);
                flush(p.e);
        }
        for (uint32_t i = 0; i < few.rx_large + 3; i++)
                send_segment(fd, i);
        for (uint32_t i = 0; i < few.rx_large; i++)
                await(p.e, &rx[i]);
        assert_false(take(p.e, &more));
        xdp_drops(&p.e->sock, &p.e->dev, &drops);
        assert_int_equal(drops.no_buffer, 3);
        kernel_sends(p.peer, 5, 100); /* short ones have chunks of their own */
        expect(p.e, 5, 100);
        for (uint32_t i = 0; i < few.rx_large; i++) {
                check_segment(p.e, &rx[i], i);
                give_back(p.e, &rx[i]);
        }
        assert_int_equal(ni_xdp_loans(&p.e->ni), 0);
        close(fd);
        pair_end(&p);
}

#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif
#define EACH_DGRAM 1000u
#define DGRAMS     5u

/* A sender's that left it to a device to cut them (UDP_SEGMENT): each comes by itself, lengths and
 * sums right. */
static void datagrams_left_to_be_cut_are(void **state)
{
        static const uint32_t bytes = (DGRAMS - 1) * EACH_DGRAM + 300;
        struct virtio_net_hdr how = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                     .gso_type = VIRTIO_NET_HDR_GSO_UDP_L4,
                                     .hdr_len = 42,
                                     .gso_size = EACH_DGRAM,
                                     .csum_start = 34,
                                     .csum_offset = 6};
        uint8_t f[42 + 5000] = {[0] = 0xff,
                                0xff,
                                0xff,
                                0xff,
                                0xff,
                                0xff,
                                [6] = 2,
                                [12] = 8,
                                [14] = 0x45,
                                [18] = 0xff,
                                0xfd,
                                [22] = 64,
                                [23] = IPPROTO_UDP,
                                [26] = 10,
                                0,
                                0,
                                1,
                                10,
                                0,
                                0,
                                2,
                                [34] = 0x11,
                                0x22,
                                0x33,
                                0x44};
        struct pair p = pair_make(XDP_WANT_TCX, 1500, few);
        struct iovec iov[] = {{&how, sizeof how}, {f, 42 + bytes}};
        be16 tot_len = be16_of((uint16_t)(28 + bytes)), udp_len = be16_of((uint16_t)(8 + bytes)),
             sum;
        uint16_t whole_pseudo;
        int fd = segment_socket(&p);

        memcpy(f + 16, &tot_len, 2);
        memcpy(f + 38, &udp_len, 2);
        sum = csum_finish(csum_partial(f + 14, 20, 0));
        memcpy(f + 24, &sum, 2);
        whole_pseudo = csum_fold(
                csum_pseudo(ip_addr_v4(0x0a000001), ip_addr_v4(0x0a000002), 17, 8 + bytes));
        memcpy(f + 40, &whole_pseudo, 2);
        for (uint32_t i = 0; i < bytes; i++)
                f[42 + i] = (uint8_t)(i * 7 + (i >> 8));
        assert_int_equal(writev(fd, iov, 2), sizeof how + 42 + bytes);
        for (uint32_t i = 0; i < DGRAMS; i++) {
                uint32_t n = i < DGRAMS - 1 ? EACH_DGRAM : 300, pseudo;
                uint8_t got[FRAME_MAX];
                struct unet_rx rx;
                be16 field;

                await(p.e, &rx);
                assert_int_equal(whole(p.e, &rx, got), 42 + n);
                give_back(p.e, &rx);
                assert_memory_equal(got + 42, f + 42 + i * EACH_DGRAM, n);
                assert_memory_equal(got + 26, f + 26, 12);
                assert_int_equal(got[16] << 8 | got[17], 28 + n);
                assert_int_equal(got[18] << 8 | got[19], (0xfffd + i) & 0xffff);
                assert_int_equal(csum_fold(csum_partial(got + 14, 20, 0)), 0xffff);
                assert_int_equal(got[38] << 8 | got[39], 8 + n);
                memcpy(&field, got + 40, 2);
                pseudo = csum_pseudo(ip_addr_v4(0x0a000001), ip_addr_v4(0x0a000002), 17, 8 + n);
                assert_true(csum_right(csum_partial(got + 34, 8 + n, pseudo), field, pseudo,
                                       CSUM_WHOLE_OR_PSEUDO));
        }
        close(fd);
        pair_end(&p);
}

/* A frame of a VLAN is the kernel's; one that only has a priority is ours, without the tag. */
static void frames_of_other_networks_are_the_kernels(void **state)
{
        struct pair p = pair_make(XDP_WANT_TCX, 1500, few);
        uint8_t frame[64] = {0xff,
                             0xff,
                             0xff,
                             0xff,
                             0xff,
                             0xff,
                             2,
                             0,
                             0,
                             0,
                             0,
                             1,
                             0x81,
                             0x00,
                             0x00,
                             0x07,
                             ETHERTYPE >> 8,
                             ETHERTYPE & 0xff};
        struct xdp_drops drops;
        struct unet_rx rx;

        assert_int_equal(send(p.peer, frame, sizeof frame, 0), sizeof frame);
        assert_true(kernel_has_some(p.beside, PATIENCE)); /* it has been there */
        assert_false(take(p.e, &rx));
        xdp_drops(&p.e->sock, &p.e->dev, &drops);
        assert_int_equal(drops.odd + drops.no_buffer, 0);
        frame[14] = 0xe0;
        frame[15] = 0;
        assert_int_equal(send(p.peer, frame, sizeof frame, 0), sizeof frame);
        await(p.e, &rx);
        assert_int_equal(rx.inl_len, sizeof frame - 4);
        assert_memory_equal(rx.inl + 12, frame + 16, 2);
        pair_end(&p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(large_segments_are_received_whole),
                cmocka_unit_test(datagrams_left_to_be_cut_are),
                cmocka_unit_test(frames_of_other_networks_are_the_kernels),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
