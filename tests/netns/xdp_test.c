/*
 * The provider `xdp` on a veth pair: an AF_XDP socket on one end, or the program in its place
 * (XDP_MODE_TCX), and on the other what the kernel sees, or the same again. Packets are checked
 * byte by byte.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/netns/xdp_pair.h"
#include "base/memfd.h"

#define RUN_HDR (14 + 20 + 20)

static enum xdp_want want; /* of this round, for tests of both */

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

/* With the device of the packet socket, from whoever has the socket that sends. */
static void sending_can_be_taken_away_tcx(void **state)
{
        struct pair p = pair_make(XDP_WANT_TCX, 1500, few);

        assert_true(offer(p.e, 1, 300));
        flush(p.e);
        kernel_gets(p.peer, 1, 300);
        assert_int_equal(pkt_sealed_end(&p.e->sock.packet), 0);
        for (uint32_t i = 0; i < 3; i++) {
                assert_true(offer(p.e, i, 300));
                flush(p.e);
        }
        assert_false(kernel_has_some(p.peer, 50));
        kernel_sends(p.peer, 2, 300); /* of reception it says nothing */
        expect(p.e, 2, 300);
        pair_end(&p);
}

static void on_a_veth_tcx_is_chosen(void **state)
{
        struct pair p = pair_make(XDP_WANT_BEST, 1500, few);
        struct xdp_sock s;

        print_message("%s\n", p.e->line);
        assert_int_equal(p.e->dev.mode, XDP_MODE_TCX);
        assert_non_null(strstr(p.e->line, "tcx"));
        assert_int_equal(xdp_sock_open(&s, &p.e->dev, 0, few, p.e->line), -EBUSY);
        pair_end(&p);
        p = pair_make(XDP_WANT_BEST, 9000, few);
        assert_int_equal(p.e->dev.mode, XDP_MODE_TCX);
        pair_end(&p);
}

static void what_is_chosen_of_af_xdp_follows_the_mtu(void **state)
{
        char line[XDP_LINE_MAX];
        struct xdp_dev dev;
        struct pair p = pair_make(XDP_WANT_NATIVE, 1500, few);

        assert_int_equal(p.e->dev.mode, XDP_MODE_NATIVE);
        assert_int_equal(p.e->ni.geom.chunk_bytes, 2048);
        assert_int_equal(p.e->ni.geom.zero_copy, 0); /* veth copies */
        assert_non_null(strstr(p.e->line, "native"));
        assert_non_null(strstr(p.e->line, "copied by the kernel"));
        assert_int_equal(xdp_dev_open(&dev, "ours", XDP_WANT_NATIVE, line), -EBUSY);
        pair_end(&p);

        /* Too large for veth's driver, not for a buffer. */
        p = pair_make(XDP_WANT_GENERIC, 3700, few);
        print_message("%s\n", p.e->line);
        assert_int_equal(p.e->dev.mode, XDP_MODE_GENERIC);
        assert_int_equal(p.e->ni.geom.chunk_bytes, 4096);
        kernel_sends(p.peer, 1, 3714);
        expect(p.e, 1, 3714);
        assert_true(offer(p.e, 2, 3714));
        flush(p.e);
        kernel_gets(p.peer, 2, 3714);
        end_close(p.e);
        assert_int_equal(xdp_dev_open(&dev, "ours", XDP_WANT_NATIVE, line), -EMSGSIZE);
        print_message("%s\n", line);
        bed_run(p.ns[0], "ip link set ours mtu 9000");
        assert_int_equal(xdp_dev_open(&dev, "ours", XDP_WANT_GENERIC, line), -EMSGSIZE);
        print_message("%s\n", line);
        assert_int_equal(xdp_dev_open(&dev, "lo", XDP_WANT_BEST, line), -ENODEV);
        assert_int_equal(xdp_dev_open(&dev, "absent", XDP_WANT_BEST, line), -ENODEV);
        close(p.peer);
        close(p.beside);
        close(p.ns[0]);
        close(p.ns[1]);
}

static void what_cannot_be_opened_says_why(void **state)
{
        struct pair p = pair_make(XDP_WANT_NATIVE, 1500, few);
        char line[XDP_LINE_MAX];
        struct xdp_sock s;

        assert_int_equal(xdp_sock_open(&s, &p.e->dev, 1, few, line), -EINVAL);
        assert_non_null(strstr(line, "no queue 1"));
        assert_int_equal(xdp_sock_open(&s, &p.e->dev, 0,
                                       (struct xdp_sizes){.rx_chunks = XDP_RING_MAX + 1}, line),
                         -EINVAL);
        assert_int_equal(xdp_sock_open(&s, &p.e->dev, 0, few, line), -EBUSY);
        assert_non_null(strstr(line, "somebody else"));
        pair_end(&p);
}

/* A kernel that was not told otherwise leaves checksums to the device, and veth has none: the
 * capability says so. */
static void unfinished_checksums_of_a_veth_are_announced(void **state)
{
        struct pair p = pair_make(want, 1500, few);
        struct unet_rx rx;
        uint32_t pseudo;
        be16 field;

        bed_run(p.ns[1],
                "ethtool -K theirs tx on >/dev/null && ip addr add 10.9.0.2/24 dev theirs &&"
                " ip neigh add 10.9.0.1 lladdr 02:00:00:00:00:09 dev theirs");
        bed_run(p.ns[1], "echo hello | timeout 1 nc -u -w1 10.9.0.1 999 || true");
        await(p.e, &rx);
        assert_int_equal(rx.inl_len, 14 + 20 + 8 + 6);
        memcpy(&field, rx.inl + 14 + 20 + 6, sizeof field);
        pseudo = csum_pseudo(ip_addr_v4(0x0a090002), ip_addr_v4(0x0a090001), 17, 8 + 6);
        assert_true(csum_right(csum_partial(rx.inl + 34, 14, pseudo), field, pseudo,
                               unet_csum_check(&p.e->ni.base.caps)));
        assert_false(csum_right(csum_partial(rx.inl + 34, 14, pseudo), field, pseudo, CSUM_WHOLE));
        pair_end(&p);
}

/* ---- rings ---- */

/* Two sockets of ours, one at either end: a million packets, one after another and in bursts. */
static void a_million_packets_pass(void **state)
{
        const uint32_t total = 1000000;
        uint32_t sent = 0, got = 0;
        struct end *a, *b;
        int ns[2];

        bed_needs_root();
        ns[0] = bed_ns();
        ns[1] = bed_ns();
        bed_veth(ns[0], "a", ns[1], "b", 1500, 1);
        a = end_open(ns[0], "a", want, few);
        b = end_open(ns[1], "b", want, (struct xdp_sizes){.rx_chunks = 128, .tx_chunks = 32});
        while (got < total) {
                struct unet_rx rx[16];
                uint32_t burst = 1 + got % 40;
                int n;

                while (sent < total && sent - got < burst && offer(a, sent, 60 + sent * 7 % 1454))
                        sent++;
                flush(a);
                n = b->ni.base.ops->recv(&b->ni.base, rx, 16);
                for (int i = 0; i < n; i++, got++) {
                        uint8_t p[FRAME_MAX];
                        uint32_t len = whole(b, &rx[i], p);
                        if (got % 64 == 0)
                                check_packet(p, len, got, 60 + got * 7 % 1454);
                        assert_int_equal(len, 60 + got * 7 % 1454);
                        give_back(b, &rx[i]);
                }
                if (n == 0 && sent == total)
                        assert_true(wait_for_packet(b, PATIENCE));
        }
        assert_int_equal(ni_xdp_loans(&b->ni), 0);
        end_close(a);
        end_close(b);
        close(ns[0]);
        close(ns[1]);
}

/* Nothing leaves before flush(); a full ring refuses, and has room again after it. */
static void a_full_ring_refuses_and_loses_nothing(void **state)
{
        struct pair p = pair_make(want, 1500, few);
        const struct unet_ni_ops *ops = p.e->ni.base.ops;

        for (int lap = 0; lap < 5; lap++) {
                uint32_t room = ops->room(&p.e->ni.base), n = 0;
                assert_int_equal(room, few.tx_chunks);
                while (offer(p.e, n, 300))
                        n++;
                assert_int_equal(n, room);
                assert_int_equal(ops->room(&p.e->ni.base), 0);
                assert_false(kernel_has_some(p.peer, 20));
                flush(p.e);
                for (uint32_t i = 0; i < n; i++)
                        kernel_gets(p.peer, i, 300);
                assert_false(kernel_has_some(p.peer, 20));
        }
        assert_int_equal(p.e->cnt.n[COUNT_NI_TX_FULL], 5);
        pair_end(&p);
}

/* Somebody who keeps every packet has lent all chunks: what comes then is dropped, and counted
 * when asked. */
static void loans_without_end_stop_reception_and_no_more(void **state)
{
        struct pair p = pair_make(want, 1500, few);
        struct unet_rx rx[128], more;
        struct xdp_drops drops;
        uint32_t n = 0;

        for (uint32_t i = 0; i < few.rx_chunks; i++) {
                kernel_sends(p.peer, i, 1000);
                await(p.e, &rx[n++]);
                assert_int_equal(ni_xdp_loans(&p.e->ni), i + 1);
        }
        assert_true(ni_xdp_loans(&p.e->ni) > ni_xdp_loans_max(&p.e->ni));
        for (uint32_t i = 0; i < 10; i++)
                kernel_sends(p.peer, i, 1000);
        assert_false(take(p.e, &more));
        xdp_drops(&p.e->sock, &p.e->dev, &drops);
        assert_int_equal(drops.no_buffer, 10);
        assert_int_equal(drops.queue_full, 0);
        for (uint32_t i = 0; i < n; i++) {
                uint8_t bytes[FRAME_MAX];
                check_packet(bytes, whole(p.e, &rx[i], bytes), i, 1000); /* nobody wrote over it */
                give_back(p.e, &rx[i]);
                give_back(p.e, &rx[i]); /* once too often: counted, and nothing else */
        }
        assert_int_equal(p.e->cnt.n[COUNT_NI_BAD_RETURN], n);
        assert_int_equal(ni_xdp_loans(&p.e->ni), 0);
        flush(p.e);
        for (uint32_t i = 0; i < 300; i++) {
                kernel_sends(p.peer, i, 1500);
                expect(p.e, i, 1500);
        }
        pair_end(&p);
}

/* The kernel notices a carrier some time after it is there, and drops what it is given to
 * send before. */
static void wait_until_kernel_sends(struct pair *p)
{
        struct unet_rx rx;
        uint32_t len;

        for (int tries = 0; !take(p->e, &rx); tries++) {
                assert_true(tries < PATIENCE / 20);
                kernel_sends(p->peer, 3, 100);
                wait_for_packet(p->e, 20);
        }
        give_back(p->e, &rx);
        kernel_sends(p->peer, 4, 101); /* behind all that were sent in vain */
        do {
                await(p->e, &rx);
                len = rx.inl_len + rx.len;
                give_back(p->e, &rx);
        } while (len != 101);
}

static void an_interface_goes_down_and_comes_up(void **state)
{
        struct pair p = pair_make(want, 1500, few);

        kernel_sends(p.peer, 1, 500);
        expect(p.e, 1, 500);
        bed_run(p.ns[0], "ip link set ours down");
        assert_true(offer(p.e, 2, 600));
        flush(p.e);
        /* Nobody spins for an interface that is down. */
        assert_false(p.e->ni.base.ops->pending(&p.e->ni.base));
        bed_run(p.ns[0], "ip link set ours up");
        flush(p.e);
        if (want == XDP_WANT_NATIVE)
                kernel_gets(p.peer, 2, 600); /* it waited */
        wait_until_kernel_sends(&p);
        for (uint32_t i = 0; i < 200; i++) {
                kernel_sends(p.peer, i, 700);
                expect(p.e, i, 700);
                assert_true(offer(p.e, i, 701));
                flush(p.e);
                kernel_gets(p.peer, i, 701);
        }
        pair_end(&p);
}

/* Each queue with its own socket and memory; what comes by a queue without one is the kernel's. */
static void two_queues_are_two_sockets(void **state)
{
        struct end *a, *b[2];
        struct unet_rx rx;
        int ns[2], beside;

        bed_needs_root();
        ns[0] = bed_ns();
        ns[1] = bed_ns();
        bed_veth(ns[0], "a", ns[1], "b", 1500, 2);
        beside = bed_packet_socket(ns[0], "a");
        a = end_open(ns[0], "a", XDP_WANT_NATIVE, few);
        b[0] = end_open(ns[1], "b", XDP_WANT_NATIVE, few);
        b[1] = calloc(1, sizeof *b[1]);
        assert_int_equal(a->dev.queues, 2);
        assert_int_equal(xdp_sock_open(&b[1]->sock, &b[0]->dev, 1, few, b[1]->line), 0);
        print_message("%s\n", b[1]->line);
        b[1]->dev.link = b[1]->dev.map = -1;
        end_attach(b[1]);
        for (uint32_t i = 0; i < 200; i++) {
                assert_true(offer(b[0], i, 100));
                flush(b[0]);
                expect(a, i, 100);
                assert_true(offer(b[1], i, 900));
                flush(b[1]);
                kernel_gets(beside, i, 900);
                assert_false(take(a, &rx));
        }
        end_close(b[1]);
        end_close(b[0]);
        end_close(a);
        close(beside);
        close(ns[0]);
        close(ns[1]);
}

/* A queue of a TAP device: what is written to it comes by that queue, what is read is what
 * was sent. */
static int tap_queue(void)
{
        struct ifreq r = {.ifr_name = "tap0", .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE};
        int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

        if (fd < 0) {
                print_message("skipped: no /dev/net/tun here\n");
                skip();
        }
        assert_int_equal(ioctl(fd, TUNSETIFF, &r), 0);
        return fd;
}

/* Nobody says which: where there are several queues all of them are taken, and the line
 * says why. */
static void what_is_chosen_takes_all_queues(void **state)
{
        int ns, queue[3];
        uint8_t p[FRAME_MAX];
        struct end *e;

        bed_needs_root();
        ns = bed_ns();
        bed_enter(ns);
        for (size_t i = 0; i < ARRAY_LEN(queue); i++)
                queue[i] = tap_queue();
        bed_run(ns, "ip link set tap0 up");
        e = end_open(ns, "tap0", XDP_WANT_BEST, few);
        print_message("%s\n", e->line);
        assert_int_equal(e->dev.queues, ARRAY_LEN(queue));
        for (uint32_t i = 0; i < 300; i++) {
                make_packet(p, i, 900);
                assert_int_equal(write(queue[i % ARRAY_LEN(queue)], p, 900), 900);
                expect(e, i, 900);
        }
        end_close(e);
        for (size_t i = 0; i < ARRAY_LEN(queue); i++)
                close(queue[i]);
        close(ns);
}

/* ---- what is received whole (XDP_MODE_TCX) ---- */

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

/* ---- processors side by side ---- */

#define EACH 150000u

/* As fast as it can, from a processor of its own. */
static pid_t sender(const struct pair *p, uint8_t who)
{
        pid_t pid = fork();
        uint8_t frame[600] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff,           2,
                              0,    0,    0,    0,    who,  ETHERTYPE >> 8, ETHERTYPE & 0xff};
        cpu_set_t set;

        if (pid != 0)
                return pid;
        CPU_ZERO(&set);
        CPU_SET(who, &set);
        sched_setaffinity(0, sizeof set, &set);
        for (uint32_t i = 0; i < EACH; i++) {
                memcpy(frame + 14, &i, sizeof i);
                memset(frame + 18, (int)(i * 7 + who), sizeof frame - 18);
                if (send(p->peer, frame, i % 3 ? sizeof frame : 100, 0) < 0)
                        _exit(1);
        }
        _exit(0);
}

/* What each sends comes in its order, whole, and once; or was dropped for want of a chunk,
 * and counted. */
static void processors_do_not_disturb_each_other(void **state)
{
        struct pair p =
                pair_make(XDP_WANT_TCX, 1500,
                          (struct xdp_sizes){.rx_chunks = 512, .rx_large = 8, .tx_chunks = 32});
        uint32_t next[2] = {0}, got = 0, quiet = 0;
        pid_t pid[2] = {sender(&p, 0), sender(&p, 1)};
        struct xdp_drops drops;

        do {
                struct unet_rx rx;
                uint8_t bytes[FRAME_MAX];
                uint32_t len, number;

                xdp_drops(&p.e->sock, &p.e->dev, &drops);
                for (uint32_t i = 0; i < 1000 && take(p.e, &rx); i++, got++, quiet = 0) {
                        len = whole(p.e, &rx, bytes);
                        memcpy(&number, bytes + 14, sizeof number);
                        assert_true(bytes[11] < 2 && number >= next[bytes[11]] && number < EACH);
                        next[bytes[11]] = number + 1;
                        assert_int_equal(len, number % 3 ? 600 : 100);
                        for (uint32_t at = 18; at < len; at += 97)
                                assert_int_equal(bytes[at], (uint8_t)(number * 7 + bytes[11]));
                        give_back(p.e, &rx);
                }
                flush(p.e);
        } while (got + drops.no_buffer < 2 * EACH && quiet++ < 1000000);
        assert_int_equal(got + drops.no_buffer, 2 * EACH);
        assert_int_equal(p.e->cnt.drop[DROP_NI_MALFORMED], 0);
        print_message("%u came, %llu found no chunk\n", got, (unsigned long long)drops.no_buffer);
        for (int i = 0; i < 2; i++) {
                int status;
                assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
                assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        pair_end(&p);
}

/* One at a time, to somebody who sleeps each time: no packet is slept over. */
static void nobody_sleeps_over_a_packet(void **state)
{
        struct pair p = pair_make(want, 1500, few);

        for (uint32_t i = 0; i < 20000; i++) {
                struct unet_rx rx;
                kernel_sends(p.peer, i, 60 + i % 700);
                if (i % 2)
                        /* Armed twice, by who then did not sleep. */
                        p.e->ni.base.ops->arm(&p.e->ni.base);
                await(p.e, &rx);
                give_back(p.e, &rx);
        }
        pair_end(&p);
}

/* ---- runs ---- */

/* Of `len` bytes of payload, cut where the kernel likes to. */
static void kernel_gets_run(int fd, int byte, uint32_t len)
{
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        uint8_t p[65536];
        uint32_t got = 0;

        while (got < len) {
                ssize_t n;
                assert_int_equal(poll(&poll_fd, 1, PATIENCE), 1);
                n = recv(fd, p, sizeof p, MSG_DONTWAIT);
                if (n <= RUN_HDR || p[23] != IPPROTO_TCP)
                        continue;
                for (ssize_t i = RUN_HDR; i < n; i++)
                        assert_int_equal(p[i], byte);
                got += (uint32_t)(n - RUN_HDR);
        }
        assert_int_equal(got, len);
}

/* Its payload is the caller's again when the call is over; the kernel's copies of the last few runs
 * stay for a while, and those of others are given back. */
static void runs_are_held_until_others_have_gone(void **state)
{
        uint8_t hdr[RUN_HDR] = {
                [0] = 0xff, 0xff,     0xff,        0xff,        0xff,      0xff,
                [6] = 2,    [12] = 8, [14] = 0x45, [20] = 0x40, [22] = 64, [23] = IPPROTO_TCP,
                [26] = 10,  0,        0,           1,           10,        0,
                0,          2,        [46] = 0x50, 0x10,        0xff,      0xff};
        uint8_t payload[3500];
        struct unet_piece piece = {payload, sizeof payload};
        struct unet_run run = {.hdr = hdr,
                               .hdr_len = RUN_HDR,
                               .l4 = 34,
                               .mss = 1000,
                               .npieces = 1,
                               .piece = &piece};
        struct pair p = pair_make(want, 1500, few);
        uint16_t len = htons(20 + 20 + sizeof payload);
        int held = 0;

        if (p.e->sock.packet.sock < 0)
                fail_msg("no packet socket: %s", strerror(-p.e->sock.no_packet));
        memcpy(hdr + 16, &len, sizeof len);
        for (int i = 0; i < 100; i++) {
                memset(payload, i, sizeof payload);
                assert_true(p.e->ni.base.ops->send_run(&p.e->ni.base, &run));
                memset(payload, 0xee, sizeof payload);
                kernel_gets_run(p.peer, i, sizeof payload);
        }
        while (recv(p.e->sock.packet.sock, payload, 1, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0)
                held++;
        assert_int_equal(held, 3);
        pair_end(&p);
}

int main(void)
{
        const struct CMUnitTest once[] = {
                cmocka_unit_test(packets_of_every_size_pass_both_ways_native),
                cmocka_unit_test(packets_of_every_size_pass_both_ways_generic),
                cmocka_unit_test(packets_of_every_size_pass_both_ways_at_the_largest_native_mtu),
                cmocka_unit_test(packets_of_every_size_pass_both_ways_tcx),
                cmocka_unit_test(packets_of_every_size_pass_both_ways_tcx_at_large_mtus),
                cmocka_unit_test(the_longest_packets_pass_both_ways_tcx),
                cmocka_unit_test(sending_can_be_taken_away_tcx),
                cmocka_unit_test(on_a_veth_tcx_is_chosen),
                cmocka_unit_test(what_is_chosen_of_af_xdp_follows_the_mtu),
                cmocka_unit_test(what_cannot_be_opened_says_why),
                cmocka_unit_test(two_queues_are_two_sockets),
                cmocka_unit_test(what_is_chosen_takes_all_queues),
                cmocka_unit_test(large_segments_are_received_whole),
                cmocka_unit_test(datagrams_left_to_be_cut_are),
                cmocka_unit_test(frames_of_other_networks_are_the_kernels),
                cmocka_unit_test(processors_do_not_disturb_each_other),
        };
        const struct CMUnitTest both[] = {
                cmocka_unit_test(unfinished_checksums_of_a_veth_are_announced),
                cmocka_unit_test(a_million_packets_pass),
                cmocka_unit_test(a_full_ring_refuses_and_loses_nothing),
                cmocka_unit_test(loans_without_end_stop_reception_and_no_more),
                cmocka_unit_test(an_interface_goes_down_and_comes_up),
                cmocka_unit_test(nobody_sleeps_over_a_packet),
                cmocka_unit_test(runs_are_held_until_others_have_gone),
        };
        int failed = cmocka_run_group_tests(once, NULL, NULL);

        want = XDP_WANT_NATIVE;
        failed += cmocka_run_group_tests_name("native", both, NULL, NULL);
        want = XDP_WANT_TCX;
        return failed + cmocka_run_group_tests_name("tcx", both, NULL, NULL);
}
