/*
 * The provider `xdp` on a veth pair: an AF_XDP socket on one end, and on the other what the kernel sees, or another
 * AF_XDP socket. Packets are checked byte by byte.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/netns/bed.h"
#include "unet/memfd.h"
#include "unet/ni_xdp.h"
#include "unet/xdp_link.h"
#include "unet/xdp_open.h"

#define ETHERTYPE  0x88b5               /* for local experiments, IEEE 802 */
#define FRAMES     64u                  /* small frames to send from */
#define FRAME_MAX  4096u
#define PATIENCE   5000                 /* ms to wait for what must come */

static const struct frame_geom tx_geom = {{[FRAME_SMALL] = FRAMES, [FRAME_LARGE] = 1}};
static const struct xdp_sizes few = {.rx_chunks = 64, .tx_chunks = 32};

/* One end of a pair with a socket of ours on it. */
struct end {
        struct xdp_dev dev;
        struct xdp_sock sock;
        struct ni_xdp ni;
        struct counters cnt;
        uint8_t *frames;
        char line[XDP_LINE_MAX];
};

/* ---- packets ---- */

/* A packet of `len` bytes that is like no other with another number. */
static void make_packet(uint8_t *p, uint32_t number, uint32_t len)
{
        static const uint8_t head[14] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, ETHERTYPE >> 8, ETHERTYPE & 0xff};
        uint32_t x = number * 2654435761u + len;

        memcpy(p, head, sizeof head);
        for (uint32_t i = sizeof head; i < len; i++) {
                x = x * 1664525 + 1013904223;
                p[i] = (uint8_t)(x >> 24);
        }
}

static void check_packet(const uint8_t *p, uint32_t len, uint32_t number, uint32_t want)
{
        uint8_t expected[FRAME_MAX];

        make_packet(expected, number, want);
        assert_int_equal(len, want);
        assert_memory_equal(p, expected, len);
}

/* ---- an end ---- */

static void end_attach(struct end *e)
{
        size_t bytes = frame_geom_bytes(tx_geom);

        e->frames = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(e->frames != MAP_FAILED);
        assert_int_equal(ni_xdp_attach(&e->ni, e->sock.xsk, e->sock.mem, e->sock.packet.sock, unet_mem_frames(e->frames, tx_geom), &e->cnt), 0);
}

static void skip_unless_possible(int err, const char *line)
{
        if (err != -ENOSYS && err != -EPERM)
                return;
        print_message("skipped: %s\n", err == -EPERM ? "XDP programs may not be loaded here" : line);
        skip();
}

static struct end *end_open(int ns, const char *ifname, enum xdp_want want, struct xdp_sizes sizes)
{
        struct end *e = calloc(1, sizeof *e);
        int err;

        assert_non_null(e);
        bed_enter(ns);
        err = xdp_dev_open(&e->dev, ifname, want, e->line);
        skip_unless_possible(err, e->line);
        if (err == 0)
                err = xdp_sock_open(&e->sock, &e->dev, 0, sizes, e->line);
        if (err != 0)
                fail_msg("%d: %s", err, e->line);
        end_attach(e);
        return e;
}

static void end_close(struct end *e)
{
        ni_xdp_detach(&e->ni);
        munmap(e->frames, frame_geom_bytes(tx_geom));
        xdp_sock_close(&e->sock);
        xdp_dev_close(&e->dev);
        free(e);
}

/* Offers a packet as the stack does: some bytes inline, the rest in a frame. False: there was no room. */
static bool offer(struct end *e, uint32_t number, uint32_t len)
{
        uint8_t p[FRAME_MAX];
        uint32_t inl = len <= UNET_INLINE_MAX ? len : 14 + number % 100, frame = 2 + number % FRAMES;
        struct unet_tx tx = {.inl = p, .inl_len = (uint16_t)inl};

        make_packet(p, number, len);
        if (inl < len) {
                tx.frame = len - inl <= FRAME_SMALL_BYTES ? frame : 1;
                tx.off = len - inl < FRAME_SMALL_BYTES - 8 ? number % 8 : 0;
                tx.len = len - inl;
                memcpy(e->frames + frame_geom_offset(tx_geom, tx.frame) + tx.off, p + inl, tx.len);
        }
        if (e->ni.base.ops->send(&e->ni.base, &tx, 1) != 1)
                return false;
        if (tx.frame != 0) {
                uint32_t back[2] = {0};
                assert_int_equal(e->ni.base.ops->reap(&e->ni.base, back, 2), 1);
                assert_int_equal(back[0], tx.frame);
                memset(e->frames + frame_geom_offset(tx_geom, tx.frame), 0xee, FRAME_SMALL_BYTES);      /* it is ours again */
        }
        return true;
}

static void flush(struct end *e)
{
        e->ni.base.ops->flush(&e->ni.base);
}

/* Puts a received packet together; the bytes before the lent ones must be the inline ones. Returns its length. */
static uint32_t whole(struct end *e, const struct unet_rx *rx, uint8_t *to)
{
        memcpy(to, rx->inl, rx->inl_len);
        if (rx->frame != 0) {
                const uint8_t *p = ni_xdp_rx_frames(&e->ni) + frame_geom_offset(xdp_frame_geom(&e->ni.geom), rx->frame) + rx->off;
                assert_int_equal(rx->inl_len, UNET_INLINE_MAX);
                assert_memory_equal(p - rx->inl_len, rx->inl, rx->inl_len);
                memcpy(to + rx->inl_len, p, rx->len);
        }
        return rx->inl_len + rx->len;
}

static bool take(struct end *e, struct unet_rx *rx)
{
        return e->ni.base.ops->recv(&e->ni.base, rx, 1) == 1;
}

/* Waits for the next packet as a stack does: poll(2). */
static void await(struct end *e, struct unet_rx *rx)
{
        while (!take(e, rx)) {
                struct pollfd p = {.fd = e->sock.xsk, .events = POLLIN};
                flush(e);
                assert_int_equal(poll(&p, 1, PATIENCE), 1);
        }
}

static void give_back(struct end *e, const struct unet_rx *rx)
{
        if (rx->frame != 0)
                e->ni.base.ops->release(&e->ni.base, &rx->frame, 1);
}

static void expect(struct end *e, uint32_t number, uint32_t len)
{
        uint8_t p[FRAME_MAX];
        struct unet_rx rx;

        await(e, &rx);
        check_packet(p, whole(e, &rx, p), number, len);
        give_back(e, &rx);
}

/* ---- the kernel's side ---- */

static void kernel_sends(int fd, uint32_t number, uint32_t len)
{
        uint8_t p[FRAME_MAX];

        make_packet(p, number, len);
        assert_int_equal(send(fd, p, len, 0), len);
}

static void kernel_gets(int fd, uint32_t number, uint32_t len)
{
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        uint8_t p[FRAME_MAX];
        ssize_t n;

        assert_int_equal(poll(&poll_fd, 1, PATIENCE), 1);
        n = recv(fd, p, sizeof p, MSG_DONTWAIT);
        check_packet(p, (uint32_t)n, number, len);
}

static bool kernel_has_some(int fd, int ms)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};

        return poll(&p, 1, ms) == 1;
}

/* ---- a pair: ours in one namespace, the kernel in another ---- */

struct pair {
        int ns[2];
        struct end *e;
        int peer, beside;               /* packet sockets: at the other end; at our own interface, where little comes */
};

static struct pair pair_make(enum xdp_want want, unsigned mtu, struct xdp_sizes sizes)
{
        struct pair p;

        bed_needs_root();
        p.ns[0] = bed_ns();
        p.ns[1] = bed_ns();
        bed_veth(p.ns[0], "ours", p.ns[1], "theirs", mtu, 1);
        p.beside = bed_packet_socket(p.ns[0], "ours");
        p.peer = bed_packet_socket(p.ns[1], "theirs");
        p.e = end_open(p.ns[0], "ours", want, sizes);
        return p;
}

static void pair_end(struct pair *p)
{
        end_close(p->e);
        close(p->peer);
        close(p->beside);
        close(p->ns[0]);
        close(p->ns[1]);
}

static void sizes_both_ways(enum xdp_want want, unsigned mtu)
{
        struct pair p = pair_make(want, mtu, few);

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

static void what_is_chosen_follows_the_mtu(void **state)
{
        char line[XDP_LINE_MAX];
        struct xdp_dev dev;
        struct pair p = pair_make(XDP_WANT_BEST, 1500, few);

        assert_int_equal(p.e->dev.mode, XDP_MODE_NATIVE);
        assert_int_equal(p.e->ni.geom.chunk_bytes, 2048);
        assert_int_equal(p.e->ni.geom.zero_copy, 0);    /* veth copies */
        assert_non_null(strstr(p.e->line, "native"));
        assert_non_null(strstr(p.e->line, "copied by the kernel"));
        assert_int_equal(xdp_dev_open(&dev, "ours", XDP_WANT_BEST, line), -EBUSY);
        pair_end(&p);

        p = pair_make(XDP_WANT_BEST, 3700, few);        /* too large for veth's driver, not for a buffer */
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
        assert_int_equal(xdp_dev_open(&dev, "ours", XDP_WANT_BEST, line), -EMSGSIZE);
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
        struct pair p = pair_make(XDP_WANT_BEST, 1500, few);
        char line[XDP_LINE_MAX];
        struct xdp_sock s;

        assert_int_equal(xdp_sock_open(&s, &p.e->dev, 1, few, line), -EINVAL);
        assert_non_null(strstr(line, "no queue 1"));
        assert_int_equal(xdp_sock_open(&s, &p.e->dev, 0, (struct xdp_sizes){.rx_chunks = XDP_RING_MAX + 1}, line), -EINVAL);
        assert_int_equal(xdp_sock_open(&s, &p.e->dev, 0, few, line), -EBUSY);
        assert_non_null(strstr(line, "somebody else"));
        pair_end(&p);
}

/* A kernel that was not told otherwise leaves checksums to the device, and veth has none: the capability says so. */
static void unfinished_checksums_of_a_veth_are_announced(void **state)
{
        struct pair p = pair_make(XDP_WANT_NATIVE, 1500, few);
        struct unet_rx rx;
        uint32_t pseudo;
        be16 field;

        bed_run(p.ns[1], "ethtool -K theirs tx on >/dev/null && ip addr add 10.9.0.2/24 dev theirs &&"
                         " ip neigh add 10.9.0.1 lladdr 02:00:00:00:00:09 dev theirs");
        bed_run(p.ns[1], "echo hello | timeout 1 nc -u -w1 10.9.0.1 999 || true");
        await(p.e, &rx);
        assert_int_equal(rx.inl_len, 14 + 20 + 8 + 6);
        memcpy(&field, rx.inl + 14 + 20 + 6, sizeof field);
        pseudo = csum_pseudo(ip_addr_v4(0x0a090002), ip_addr_v4(0x0a090001), 17, 8 + 6);
        assert_true(csum_right(csum_partial(rx.inl + 34, 14, pseudo), field, pseudo, unet_csum_check(&p.e->ni.base.caps)));
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
        a = end_open(ns[0], "a", XDP_WANT_NATIVE, few);
        b = end_open(ns[1], "b", XDP_WANT_NATIVE, (struct xdp_sizes){.rx_chunks = 128, .tx_chunks = 32});
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
                if (n == 0 && sent == total && !b->ni.base.ops->pending(&b->ni.base)) {
                        struct pollfd p = {.fd = b->sock.xsk, .events = POLLIN};
                        assert_int_equal(poll(&p, 1, PATIENCE), 1);
                }
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
        struct pair p = pair_make(XDP_WANT_NATIVE, 1500, few);
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

/* Somebody who keeps every packet has lent all chunks: what comes then is dropped, and counted when asked. */
static void loans_without_end_stop_reception_and_no_more(void **state)
{
        struct pair p = pair_make(XDP_WANT_NATIVE, 1500, few);
        struct unet_rx rx[128], more;
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
        ni_xdp_count_drops(&p.e->ni);
        ni_xdp_count_drops(&p.e->ni);
        assert_int_equal(p.e->cnt.drop[DROP_NI_NO_BUFFER], 10);
        for (uint32_t i = 0; i < n; i++) {
                uint8_t bytes[FRAME_MAX];
                check_packet(bytes, whole(p.e, &rx[i], bytes), i, 1000);        /* nobody wrote over it */
                give_back(p.e, &rx[i]);
                give_back(p.e, &rx[i]);         /* once too often: counted, and nothing else */
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

/* The kernel notices a carrier some time after it is there, and drops what it is given to send before. */
static void wait_until_kernel_sends(struct pair *p)
{
        struct pollfd poll_fd = {.fd = p->e->sock.xsk, .events = POLLIN};
        struct unet_rx rx;

        for (int tries = 0; poll(&poll_fd, 1, 20) == 0; tries++) {
                assert_true(tries < PATIENCE / 20);
                kernel_sends(p->peer, 3, 100);
        }
        while (take(p->e, &rx))
                give_back(p->e, &rx);
}

static void an_interface_goes_down_and_comes_up(void **state)
{
        struct pair p = pair_make(XDP_WANT_NATIVE, 1500, few);

        kernel_sends(p.peer, 1, 500);
        expect(p.e, 1, 500);
        bed_run(p.ns[0], "ip link set ours down");
        assert_true(offer(p.e, 2, 600));
        flush(p.e);
        assert_false(p.e->ni.base.ops->pending(&p.e->ni.base));         /* nobody spins for an interface that is down */
        bed_run(p.ns[0], "ip link set ours up");
        flush(p.e);
        kernel_gets(p.peer, 2, 600);                    /* it waited */
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

/* ---- who lives and who dies ---- */

static void send_fds(int sock, const int *fds, int n)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(8 * sizeof(int))];
        } ctl = {0};
        struct iovec iov = {"x", 1};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = CMSG_SPACE((size_t)n * sizeof(int))};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);

        *c = (struct cmsghdr){.cmsg_len = CMSG_LEN((size_t)n * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
        if (sendmsg(sock, &m, 0) != 1)
                _exit(1);
}

static void get_fds(int sock, int *fds, int n)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(8 * sizeof(int))];
        } ctl;
        char byte;
        struct iovec iov = {&byte, 1};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof ctl};

        assert_int_equal(recvmsg(sock, &m, MSG_CMSG_CLOEXEC), 1);
        assert_int_equal(CMSG_FIRSTHDR(&m)->cmsg_len, CMSG_LEN((size_t)n * sizeof(int)));
        memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&m)), (size_t)n * sizeof(int));
}

/* A maker in a process of its own: passes socket and memory, and perhaps the link, keeps the rest, and waits to be killed. */
static pid_t maker(int ns, const char *ifname, int sock, bool pass_link)
{
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                char line[XDP_LINE_MAX];
                struct xdp_dev dev;
                struct xdp_sock s;

                bed_enter(ns);
                if (xdp_dev_open(&dev, ifname, XDP_WANT_BEST, line) != 0 || xdp_sock_open(&s, &dev, 0, few, line) != 0)
                        _exit(1);
                send_fds(sock, (int[]){s.xsk, s.mem, dev.link}, pass_link ? 3 : 2);
                pause();
                _exit(0);
        }
        return pid;
}

static void kill_and_reap(pid_t pid)
{
        int status;

        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
}

static struct pair pair_of_maker(bool pass_link, pid_t *pid, int *link)
{
        struct pair p;
        int sv[2], fds[3] = {-1, -1, -1};
        char line[XDP_LINE_MAX];
        struct xdp_dev dev;

        bed_needs_root();
        p.ns[0] = bed_ns();
        p.ns[1] = bed_ns();
        bed_veth(p.ns[0], "ours", p.ns[1], "theirs", 1500, 1);
        bed_enter(p.ns[0]);
        skip_unless_possible(xdp_dev_open(&dev, "ours", XDP_WANT_BEST, line), line);
        xdp_dev_close(&dev);
        p.beside = bed_packet_socket(p.ns[0], "ours");
        p.peer = bed_packet_socket(p.ns[1], "theirs");
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
        *pid = maker(p.ns[0], "ours", sv[1], pass_link);
        get_fds(sv[0], fds, pass_link ? 3 : 2);
        close(sv[0]);
        close(sv[1]);
        p.e = calloc(1, sizeof *p.e);
        p.e->sock.xsk = fds[0];
        p.e->sock.mem = fds[1];
        p.e->sock.packet = (struct pkt_sealed){-1, -1};
        p.e->dev.link = p.e->dev.map = -1;
        *link = fds[2];
        end_attach(p.e);
        return p;
}

/* The program goes with the one process that holds its link, however that ends, and the interface is as before. */
static void a_killed_holder_leaves_the_interface_as_it_was(void **state)
{
        pid_t pid;
        int link;
        struct pair p = pair_of_maker(false, &pid, &link);
        struct unet_rx rx;

        bed_run(p.ns[0], "ip -d link show ours | grep -q 'prog/xdp'");
        kernel_sends(p.peer, 1, 400);
        expect(p.e, 1, 400);
        assert_false(kernel_has_some(p.beside, 20));
        kill_and_reap(pid);
        bed_run(p.ns[0], "! ip -d link show ours | grep -q xdp");
        kernel_sends(p.peer, 2, 400);
        kernel_gets(p.beside, 2, 400);
        assert_false(take(p.e, &rx));
        pair_end(&p);
}

/* With the link passed on, too, the maker is needed no more: memory, socket and program stay. */
static void a_killed_maker_is_not_missed(void **state)
{
        pid_t pid;
        int link;
        struct pair p = pair_of_maker(true, &pid, &link);

        kill_and_reap(pid);
        for (uint32_t i = 0; i < 500; i++) {
                kernel_sends(p.peer, i, 100 + i);
                expect(p.e, i, 100 + i);
                assert_true(offer(p.e, i, 1514 - i));
                flush(p.e);
                kernel_gets(p.peer, i, 1514 - i);
        }
        close(link);
        kernel_sends(p.peer, 9, 1000);
        kernel_gets(p.beside, 9, 1000);
        pair_end(&p);
}

/* A second process maps the same socket, and goes on where the first one is. */
static void two_processes_share_a_socket(void **state)
{
        struct pair p = pair_make(XDP_WANT_NATIVE, 1500, few);
        int status;
        pid_t pid;

        for (uint32_t i = 0; i < 50; i++) {
                kernel_sends(p.peer, i, 1000);
                expect(p.e, i, 1000);
                assert_true(offer(p.e, i, 800));
                flush(p.e);
                kernel_gets(p.peer, i, 800);
        }
        pid = fork();
        if (pid == 0) {
                ni_xdp_detach(&p.e->ni);
                end_attach(p.e);
                for (uint32_t i = 0; i < 100; i++) {
                        kernel_sends(p.peer, i, 1000);
                        expect(p.e, i, 1000);
                        assert_true(offer(p.e, i, 800));
                        flush(p.e);
                        kernel_gets(p.peer, i, 800);
                }
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        for (uint32_t i = 0; i < 100; i++) {
                kernel_sends(p.peer, i, 1001);
                expect(p.e, i, 1001);
                assert_true(offer(p.e, i, 801));
                flush(p.e);
                kernel_gets(p.peer, i, 801);
        }
        pair_end(&p);
}

/* ---- killed at work ---- */

/* A process of a stack at work: takes, keeps a while, gives back, sends. Until it is killed. */
static void works(struct pair *p)
{
        struct unet_rx rx[16];
        uint32_t kept[48], n = 0, number = 0;

        ni_xdp_detach(&p->e->ni);
        end_attach(p->e);
        for (;;) {
                int got = p->e->ni.base.ops->recv(&p->e->ni.base, rx, 16);
                for (int i = 0; i < got; i++)
                        if (rx[i].frame != 0)
                                kept[n++] = rx[i].frame;
                for (int i = 0; i < 3; i++, number++)
                        offer(p->e, number, 60 + number % 1000);
                if (n > 24) {
                        p->e->ni.base.ops->release(&p->e->ni.base, kept, (int)n);
                        n = 0;
                }
                flush(p->e);
        }
}

static bool none_held(void *arg, uint32_t frame)
{
        return false;
}

/* Everything on its way ends: at the peer, in RX. */
static void drain(struct pair *p)
{
        struct unet_rx rx;
        uint8_t byte;

        do {
                flush(p->e);
                while (recv(p->peer, &byte, 1, MSG_DONTWAIT) >= 0)
                        ;
                while (take(p->e, &rx))
                        give_back(p->e, &rx);
                flush(p->e);
        } while (p->e->ni.base.ops->room(&p->e->ni.base) < few.tx_chunks);
}

/* With the kernel's own rings: no chunk is lost or doubled, and packets pass in each of them. */
static void a_killed_process_leaves_rings_that_can_be_repaired(void **state)
{
        struct pair p = pair_make(XDP_WANT_NATIVE, 1500, few);
        uint8_t packet[1000], seen[64];

        make_packet(packet, 0, sizeof packet);
        for (uint32_t round = 0; round < 100; round++) {
                pid_t pid = fork();
                if (pid == 0)
                        works(&p);
                for (uint32_t i = 0; i < 500 + round * 7; i++)
                        send(p.peer, packet, i % 4 ? sizeof packet : 100, MSG_DONTWAIT);
                kill_and_reap(pid);
                p.e->ni.base.ops->repair(&p.e->ni.base);
                ni_xdp_reclaim(&p.e->ni, none_held, NULL);
                assert_int_equal(ni_xdp_loans(&p.e->ni), 0);
                drain(&p);
                memset(seen, 0, sizeof seen);
                for (uint32_t i = 0; i < few.rx_chunks; i++) {
                        struct unet_rx rx;
                        uint8_t bytes[FRAME_MAX];
                        kernel_sends(p.peer, i, 800);
                        await(p.e, &rx);
                        check_packet(bytes, whole(p.e, &rx, bytes), i, 800);
                        assert_int_equal(seen[rx.frame - 1]++, 0);
                }
                for (uint32_t i = 1; i <= few.rx_chunks; i++)
                        p.e->ni.base.ops->release(&p.e->ni.base, &i, 1);
                for (uint32_t i = 0; i < few.tx_chunks; i++)
                        assert_true(offer(p.e, i, 900));
                flush(p.e);
                for (uint32_t i = 0; i < few.tx_chunks; i++)
                        kernel_gets(p.peer, i, 900);
        }
        pair_end(&p);
}

/* ---- what is passed is not trusted ---- */

static int try_attach(int xsk, int mem)
{
        static struct counters cnt;
        struct ni_xdp x;
        int err = ni_xdp_attach(&x, xsk, mem, -1, unet_mem_frames(NULL, (struct frame_geom){{0}}), &cnt);

        if (err == 0)
                ni_xdp_detach(&x);
        return err;
}

static void garbage_is_not_attached(void **state)
{
        struct pair p = pair_make(XDP_WANT_NATIVE, 1500, few);
        struct ni_xdp_shared *sh = p.e->ni.sh;
        const struct xdp_geom good = sh->geom;
        static const uint32_t bad[] = {0, 1, 3, 63, 65, 1u << 15, 1u << 31, UINT32_MAX};
        uint32_t refused = 0;
        int other, pipes[2];

        assert_int_equal(try_attach(p.e->sock.xsk, p.e->sock.mem), 0);
        for (size_t word = 2; word < 7; word++)         /* mtu .. rx_ring */
                for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                        ((uint32_t *)&sh->geom)[word] = bad[i];
                        refused += try_attach(p.e->sock.xsk, p.e->sock.mem) != 0;
                        sh->geom = good;
                }
        assert_int_equal(refused, 5 * ARRAY_LEN(bad));
        sh->magic++;
        assert_int_equal(try_attach(p.e->sock.xsk, p.e->sock.mem), -EPROTO);
        sh->magic--;
        assert_int_equal(try_attach(p.peer, p.e->sock.mem), -EPROTO);
        assert_int_equal(try_attach(p.e->sock.mem, p.e->sock.mem), -EPROTO);
        assert_int_equal(try_attach(-1, p.e->sock.mem), -EPROTO);
        assert_int_equal(try_attach(p.e->sock.xsk, p.e->sock.xsk), -EPROTO);
        assert_int_equal(pipe(pipes), 0);
        assert_int_equal(try_attach(p.e->sock.xsk, pipes[0]), -EPROTO);
        other = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_int_equal(ftruncate(other, (off_t)xdp_mem_bytes(&good)), 0);
        assert_int_equal(try_attach(p.e->sock.xsk, other), -EPERM);
        close(other);
        other = unet_memfd_make("empty", xdp_mem_bytes(&good));
        assert_int_equal(try_attach(p.e->sock.xsk, other), -EPROTO);
        close(other);
        close(pipes[0]);
        close(pipes[1]);
        assert_int_equal(try_attach(p.e->sock.xsk, p.e->sock.mem), 0);
        pair_end(&p);
}

/* ---- raw endpoints ---- */

static const uint8_t peer_mac[6] = {2, 0, 0, 0, 0, 7};

/* A frame for the endpoint, right but for what the caller says. */
static void send_message(struct pair *p, const uint8_t *to, const uint8_t *from, unsigned type, unsigned inl_len, unsigned len,
                         size_t bytes)
{
        uint8_t f[200] = {0};
        const be16 numbers[3] = {be16_of((uint16_t)type), be16_of((uint16_t)inl_len), be16_of((uint16_t)len)};

        memcpy(f, to, 6);
        memcpy(f + 6, from, 6);
        memcpy(f + 12, numbers, sizeof numbers);
        memcpy(f + 18, "message", 7);
        assert_int_equal(send(p->peer, f, bytes, 0), bytes);
}

static void frames_of_others_are_no_messages(void **state)
{
        static const uint8_t other[6] = {2, 0, 0, 0, 0, 8};
        struct pair p = pair_make(XDP_WANT_NATIVE, 1500, few);
        const uint8_t *mac = p.e->dev.mac;
        struct unet_recv m;
        struct unet_ep *ep;
        uint32_t chan;

        assert_int_equal(unet_ep_open(&(struct unet_ep_opts){.tx_bytes = 65536, .rx_bytes = 65536}, &ep), 0);
        assert_int_equal(xdp_link_over(ep, dup(p.e->sock.xsk), dup(p.e->sock.mem), peer_mac, &chan), 0);
        for (int i = 0; i < 100; i++) {
                send_message(&p, other, peer_mac, XDP_LINK_TYPE, 7, 7, 60);
                send_message(&p, mac, peer_mac, XDP_LINK_TYPE + 1, 7, 7, 60);
                send_message(&p, mac, other, XDP_LINK_TYPE, 7, 7, 60);
                send_message(&p, mac, peer_mac, XDP_LINK_TYPE, 8, 7, 60);       /* more inline than there is */
                send_message(&p, mac, peer_mac, XDP_LINK_TYPE, 7, 43, 60);      /* longer than the frame */
                send_message(&p, mac, peer_mac, XDP_LINK_TYPE, 65535, 65535, 200);
                send_message(&p, mac, peer_mac, XDP_LINK_TYPE, 0, 0, 18);
                send_message(&p, mac, peer_mac, XDP_LINK_TYPE, 0, 0, 14);
                send_message(&p, mac, peer_mac, XDP_LINK_TYPE, 7, 7, 60);       /* padded, and good */
                assert_int_equal(unet_ep_wait(ep, UNET_READABLE, PATIENCE * NS_PER_MS), UNET_READABLE);
                while (unet_ep_recv(ep, &m, 1) != 1)
                        ;
                assert_int_equal(m.len, 7);
                assert_memory_equal(m.inl, "message", 7);
        }
        assert_int_equal(unet_ep_stat(ep, "NI_NO_CHANNEL"), 200);
        assert_int_equal(unet_ep_stat(ep, "NI_BAD_SOURCE"), 100);
        assert_int_equal(unet_ep_stat(ep, "NI_MALFORMED"), 500);
        unet_ep_close(ep);
        pair_end(&p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(packets_of_every_size_pass_both_ways_native),
                cmocka_unit_test(packets_of_every_size_pass_both_ways_generic),
                cmocka_unit_test(packets_of_every_size_pass_both_ways_at_the_largest_native_mtu),
                cmocka_unit_test(what_is_chosen_follows_the_mtu),
                cmocka_unit_test(what_cannot_be_opened_says_why),
                cmocka_unit_test(unfinished_checksums_of_a_veth_are_announced),
                cmocka_unit_test(a_million_packets_pass),
                cmocka_unit_test(a_full_ring_refuses_and_loses_nothing),
                cmocka_unit_test(loans_without_end_stop_reception_and_no_more),
                cmocka_unit_test(an_interface_goes_down_and_comes_up),
                cmocka_unit_test(two_queues_are_two_sockets),
                cmocka_unit_test(a_killed_holder_leaves_the_interface_as_it_was),
                cmocka_unit_test(a_killed_maker_is_not_missed),
                cmocka_unit_test(two_processes_share_a_socket),
                cmocka_unit_test(a_killed_process_leaves_rings_that_can_be_repaired),
                cmocka_unit_test(garbage_is_not_attached),
                cmocka_unit_test(frames_of_others_are_no_messages),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
