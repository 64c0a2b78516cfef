/*
 * What a stack may send by the interface that it has to itself, where that is checked
 * (unet/xdp/send_check.h): a hostile program has the sockets, and sends what it likes by each way
 * that there is.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/checksum.h"
#include "tests/netns/xdp_pair.h"
#include "unet/xdp/send_check.h"
#include "unet/xdp/tcx_link.h"

enum { OURS = 0x0a4d0001, OTHERS = 0x0a4d0002, NOBODY = 65534 };
enum { ETH = 14, IP = 20, FRAME = 60, TAG_AT = FRAME - 1, LAST = 255 };
static const uint8_t other_mac[6] = {2, 0xde, 0xad, 0xbe, 0xef, 1};

/* ---- the scene: "ours" has a stack's sockets, at "theirs" the kernel listens ---- */

struct scene {
        struct pair p;
        struct send_check check;
        uint8_t mac[6];
};

static struct scene s;

static int setup(void **state)
{
        struct xdp_sizes marked = few;
        char line[XDP_LINE_MAX];
        int err;

        marked.mark = SEND_MARK;
        s.p = pair_make(XDP_WANT_TCX, 1500, marked);
        memcpy(s.mac, s.p.e->dev.mac, sizeof s.mac);
        bed_enter(s.p.ns[0]);
        err = send_check_open(&s.check, s.p.e->dev.ifindex, OURS, s.mac, line);
        if (err != 0)
                fail_msg("%d: %s", err, line);
        return 0;
}

static int teardown(void **state)
{
        bed_enter(s.p.ns[0]);
        if (s.check.prog >= 0)
                send_check_close(&s.check, true);
        pair_end(&s.p);
        return 0;
}

/* ---- frames of FRAME bytes, the last of which is their tag ---- */

static void put16(uint8_t *p, uint32_t v)
{
        p[0] = (uint8_t)(v >> 8);
        p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
        put16(p, v >> 16);
        put16(p + 2, v);
}

static void make_link(uint8_t f[FRAME], const uint8_t from[6], uint16_t type, uint8_t tag)
{
        memset(f, 0, FRAME);
        memset(f, 0xff, 6);
        memcpy(f + 6, from, 6);
        put16(f + 12, type);
        f[TAG_AT] = tag;
}

static void make_udp(uint8_t f[FRAME], const uint8_t from[6], uint32_t src, uint8_t tag)
{
        be16 sum;

        make_link(f, from, 0x0800, tag);
        f[ETH] = 0x45;
        put16(f + ETH + 2, FRAME - ETH);
        f[ETH + 8] = 64;
        f[ETH + 9] = IPPROTO_UDP;
        put32(f + ETH + 12, src);
        put32(f + ETH + 16, OTHERS);
        sum = csum_finish(csum_partial(f + ETH, IP, 0));
        memcpy(f + ETH + 10, &sum, sizeof sum);
        put16(f + ETH + IP, 53);
        put16(f + ETH + IP + 2, 53);
        put16(f + ETH + IP + 4, FRAME - ETH - IP);
}

static void make_arp(uint8_t f[FRAME], const uint8_t from[6], const uint8_t sha[6], uint32_t spa,
                     uint8_t op, uint8_t tag)
{
        static const uint8_t head[6] = {0, 1, 8, 0, 6, 4};

        make_link(f, from, 0x0806, tag);
        memcpy(f + ETH, head, sizeof head);
        put16(f + ETH + 6, op);
        memcpy(f + ETH + 8, sha, 6);
        put32(f + ETH + 14, spa);
        put32(f + ETH + 24, OTHERS);
}

/* ---- ways to send ---- */

static bool by_packet_socket(const uint8_t *f, size_t len)
{
        uint8_t with[10 + 4096] = {0};

        memcpy(with + 10, f, len);
        return send(s.p.e->sock.packet.sock, with, 10 + len, 0) == (ssize_t)(10 + len);
}

/* ... which goes by the device's queue then. */
static bool by_the_queue(const uint8_t *f, size_t len)
{
        int off = 0;

        return setsockopt(s.p.e->sock.packet.sock, SOL_PACKET, PACKET_QDISC_BYPASS, &off,
                          sizeof off) == 0 &&
               by_packet_socket(f, len);
}

/* ... as of another protocol. */
static bool as_another_protocol(const uint8_t *f, size_t len)
{
        struct sockaddr_ll ll = {
                .sll_family = AF_PACKET, .sll_ifindex = 1, .sll_protocol = htons(0x86dd)};
        socklen_t n = sizeof ll;
        uint8_t with[10 + 4096] = {0};

        if (getsockname(s.p.e->sock.packet.sock, (struct sockaddr *)&ll, &n) != 0)
                return false;
        ll.sll_protocol = htons(0x86dd);
        memcpy(with + 10, f, len);
        return sendto(s.p.e->sock.packet.sock, with, 10 + len, 0, (struct sockaddr *)&ll,
                      sizeof ll) == (ssize_t)(10 + len);
}

static bool by_xsk(const uint8_t *f, size_t len)
{
        struct unet_tx tx = {.inl = f, .inl_len = (uint16_t)len};

        if (s.p.e->ni.base.ops->send(&s.p.e->ni.base, &tx, 1) != 1)
                return false;
        s.p.e->ni.base.ops->flush(&s.p.e->ni.base);
        return true;
}

static const struct {
        const char *name;
        bool (*send)(const uint8_t *f, size_t len);
} ways[] = {{"packet socket", by_packet_socket},
            {"AF_XDP", by_xsk},
            {"queue", by_the_queue},
            {"protocol", as_another_protocol}};

/* What comes at the other end, up to a last frame that may pass: tags. */
static void expect_came(const char *way, uint64_t tags)
{
        struct pollfd pfd = {.fd = s.p.peer, .events = POLLIN};
        uint8_t f[4096];
        uint64_t came = 0;

        make_udp(f, s.mac, OURS, LAST);
        assert_true(by_packet_socket(f, FRAME));
        while (poll(&pfd, 1, PATIENCE) == 1) {
                ssize_t n = recv(s.p.peer, f, sizeof f, MSG_DONTWAIT);
                if (n == FRAME && f[TAG_AT] == LAST && memcmp(f + 6, s.mac, 6) == 0) {
                        if (came != tags)
                                fail_msg("by %s: %#llx came, not %#llx", way,
                                         (unsigned long long)came, (unsigned long long)tags);
                        return;
                }
                if (n == FRAME && f[TAG_AT] < 64)
                        came |= 1ull << f[TAG_AT];
        }
        fail_msg("by %s: the last frame did not come", way);
}

/* ---- tests ---- */

/* Frames 0 to 3 may pass. */
static unsigned make_one(uint8_t f[FRAME], unsigned i)
{
        static const uint16_t types[] = {0x86dd, 0x8100, 0x88a8, 0x88cc,
                                         0x0000, 0x0026, 0x8847, 0x8864};

        switch (i) {
        case 0:
                make_udp(f, s.mac, OURS, 0);
                break;
        case 1:
                make_arp(f, s.mac, s.mac, OURS, 1, 1);
                break;
        case 2:
                make_arp(f, s.mac, s.mac, OURS, 2, 2);
                break;
        case 3: /* whether somebody has an address (RFC 5227) */
                make_arp(f, s.mac, s.mac, 0, 1, 3);
                break;
        case 4:
                make_udp(f, s.mac, OTHERS, 4);
                break;
        case 5:
                make_udp(f, s.mac, 0, 5);
                break;
        case 6:
                make_udp(f, other_mac, OURS, 6);
                break;
        case 7:
                make_arp(f, s.mac, s.mac, OTHERS, 2, 7);
                break;
        case 8:
                make_arp(f, s.mac, other_mac, OURS, 2, 8);
                break;
        case 9:
                make_arp(f, other_mac, s.mac, OURS, 2, 9);
                break;
        case 10: /* IPv4 by name, with another version, another length */
        case 11:
                make_udp(f, s.mac, OURS, (uint8_t)i);
                f[ETH] = i == 10 ? 0x65 : 0x44;
                break;
        case 12: /* addresses of other sizes: the sender's would lie elsewhere */
        case 13:
                make_arp(f, s.mac, s.mac, OURS, 2, (uint8_t)i);
                f[ETH + (i == 12 ? 4 : 5)]++;
                break;
        default:
                if (i - 14 == sizeof types / sizeof *types)
                        return 0;
                make_udp(f, s.mac, OURS, (uint8_t)i);
                put16(f + 12, types[i - 14]);
                break;
        }
        return i + 1;
}

static void only_what_is_the_hosts_own_leaves(void **state)
{
        uint8_t f[FRAME];

        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
                uint64_t before = send_check_refused(&s.check);
                unsigned n = 0;

                while (make_one(f, n) != 0) {
                        ways[w].send(f, FRAME); /* the kernel may refuse it before */
                        n++;
                }
                expect_came(ways[w].name, 0xf);
                if (ways[w].send == by_xsk) /* ... but of this way */
                        assert_int_equal(send_check_refused(&s.check) - before, n - 4);
        }
}

/* The kernel writes sums where it is told, and after this: over an address as well. */
static void a_sum_is_not_written_over_the_source(void **state)
{
        struct {
                struct virtio_net_hdr how;
                uint8_t f[FRAME];
        } __attribute__((packed)) m;

        for (uint16_t start = 0; start < FRAME - 2; start++) {
                for (uint16_t off = 0; start + off + 2 <= FRAME; off++) {
                        bool fine = start >= ETH + IP;
                        make_udp(m.f, s.mac, OURS, fine ? 1 : 2);
                        m.how = (struct virtio_net_hdr){.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                                        .csum_start = start,
                                                        .csum_offset = off};
                        if (start + off + 2 > TAG_AT)
                                continue; /* the tag would be another */
                        if (send(s.p.e->sock.packet.sock, &m, sizeof m, 0) != sizeof m)
                                /* dropped; refused by the kernel. */
                                assert_true(!fine && (errno == ENOBUFS || errno == EINVAL));
                        else
                                assert_true(fine);
                }
        }
        assert_true(send_check_refused(&s.check) > 100);
        expect_came("packet socket", 1ull << 1);
}

/* A run of segments, which the kernel cuts: here, since this end of the wire cannot. */
static void runs_are_checked(void **state)
{
        enum { TCP = 20, MSS = 500, SEGS = 4, LEN = ETH + IP + TCP + MSS * SEGS };
        uint8_t m[10 + LEN], *f = m + 10, got[4096];
        struct virtio_net_hdr how = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                     .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
                                     .hdr_len = ETH + IP + TCP,
                                     .gso_size = MSS,
                                     .csum_start = ETH + IP,
                                     .csum_offset = 16};
        unsigned came = 0;

        for (int forged = 1; forged >= 0; forged--) {
                memset(m, 0, sizeof m);
                make_udp(f, s.mac, forged ? OTHERS : OURS, 0);
                f[ETH + 9] = IPPROTO_TCP;
                put16(f + ETH + 2, LEN - ETH);
                memset(f + ETH + IP, 0, TCP);
                f[ETH + IP + 12] = 5 << 4;
                memcpy(m, &how, sizeof how);
                assert_int_equal(send(s.p.e->sock.packet.sock, m, sizeof m, 0),
                                 forged ? -1 : (ssize_t)sizeof m);
        }
        make_udp(f, s.mac, OURS, LAST);
        assert_true(by_packet_socket(f, FRAME));
        for (;;) {
                struct pollfd pfd = {.fd = s.p.peer, .events = POLLIN};
                assert_int_equal(poll(&pfd, 1, PATIENCE), 1);
                if (recv(s.p.peer, got, sizeof got, MSG_DONTWAIT) == FRAME && got[TAG_AT] == LAST)
                        break;
                assert_memory_equal(got + ETH + 12, "\x0a\x4d\x00\x01", 4);
                came += got[ETH + 9] == IPPROTO_TCP;
        }
        assert_true(came > 0);
        assert_true(send_check_refused(&s.check) > 0);
}

/* The kernel of this host sends by the interface what it likes: DHCP, or for others. */
static void what_is_not_the_stacks_is_let_alone(void **state)
{
        int fd = bed_packet_socket(s.p.ns[0], "ours");
        uint8_t f[FRAME];

        make_udp(f, other_mac, 0, 1);
        assert_int_equal(send(fd, f, FRAME, 0), FRAME);
        make_arp(f, other_mac, other_mac, OTHERS, 2, 2);
        assert_int_equal(send(fd, f, FRAME, 0), FRAME);
        close(fd);
        expect_came("another socket", 6);
        assert_int_equal(send_check_refused(&s.check), 0);
}

/* Nobody without privilege gives what he sends another mark. */
static void the_mark_stays(void **state)
{
        int status, fd = s.p.e->sock.packet.sock;
        uint32_t zero = 0;
        pid_t pid = fork();

        if (pid == 0) {
                if (setresuid(NOBODY, NOBODY, NOBODY) != 0)
                        _exit(1);
                _exit(setsockopt(fd, SOL_SOCKET, SO_MARK, &zero, sizeof zero) == 0 ||
                      errno != EPERM ||
                      setsockopt(s.p.e->sock.sender, SOL_SOCKET, SO_MARK, &zero, sizeof zero) ==
                              0 ||
                      errno != EPERM);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

static void the_addresses_may_change(void **state)
{
        uint8_t f[FRAME];

        assert_int_equal(send_check_set(&s.check, OTHERS, other_mac), 0);
        make_udp(f, s.mac, OURS, 1);
        assert_true(by_xsk(f, FRAME));
        make_udp(f, other_mac, OTHERS, 2);
        assert_true(by_xsk(f, FRAME));
        assert_int_equal(send_check_set(&s.check, OURS, s.mac), 0);
        expect_came("AF_XDP", 4);
}

static bool is_there(void)
{
        int fd = tcx_find(TCX_OUT, "send_check", s.p.e->dev.ifindex);

        if (fd >= 0)
                close(fd);
        return fd >= 0;
}

static void it_goes_when_nobody_sends(void **state)
{
        assert_true(is_there());
        assert_int_equal(pkt_sealed_end(&s.p.e->sock.packet), 0);
        send_check_close(&s.check, true);
        assert_false(is_there());
}

/* Who made it is killed, and others have the sockets still. The next one's takes its place,
 * and stays. */
static void it_outlives_its_maker(void **state)
{
        char line[XDP_LINE_MAX];
        uint8_t f[FRAME];

        send_check_close(&s.check, false); /* as a death would */
        assert_true(is_there());
        make_udp(f, s.mac, OTHERS, 1);
        assert_true(by_xsk(f, FRAME));
        expect_came("AF_XDP", 0);
        assert_int_equal(send_check_open(&s.check, s.p.e->dev.ifindex, OURS, s.mac, line), 0);
        assert_true(by_xsk(f, FRAME));
        expect_came("AF_XDP", 0);
        send_check_close(&s.check, true);
        assert_true(is_there());
        assert_true(by_xsk(f, FRAME));
        expect_came("AF_XDP", 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
                TEST(only_what_is_the_hosts_own_leaves),
                TEST(a_sum_is_not_written_over_the_source),
                TEST(runs_are_checked),
                TEST(what_is_not_the_stacks_is_let_alone),
                TEST(the_mark_stays),
                TEST(the_addresses_may_change),
                TEST(it_goes_when_nobody_sends),
                TEST(it_outlives_its_maker),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
