/*
 * The rings of the provider `xdp` on a veth pair, by AF_XDP and by the tcx program in its place:
 * many packets, full rings, loans, sleeps, an interface that goes down.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/netns/xdp_pair.h"

#define RUN_HDR (14 + 20 + 20)

static enum xdp_want want; /* of this round */

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

int main(void)
{
        const struct CMUnitTest once[] = {
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
