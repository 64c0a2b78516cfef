/*
 * What a program can do with the packet socket that it is passed beside an AF_XDP socket: send by
 * the interface that is its stack's, and nothing else. A packet socket asks nobody's capabilities
 * once it is made, so a hostile program tries everything.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/netns/bed.h"
#include "unet/xdp/xdp_open.h"

#define ETHERTYPE 0x88b5 /* for local experiments, IEEE 802 */
#define NOBODY    65534
#define INDEXES   256 /* no namespace of this test has an interface with a higher number */
#define FOREIGN   3   /* marks of frames: by whom, and by which way */
#define OWN       4
#define HEARD     5

static const char line_of_no_xdp[] = "XDP programs may not be loaded here";

/* A host with the interface that is passed ("ours") and another one, each with a cable to a host of
 * its own. */
struct scene {
        int host, by_ours, by_other; /* namespaces */
        int at_ours, at_other;       /* what the kernel sees at the far ends */
        struct xdp_dev dev;
        struct xdp_sock sock;
};

static struct scene make_scene(void)
{
        struct scene s;
        char line[XDP_LINE_MAX];
        int err;

        bed_needs_root();
        s.host = bed_ns();
        s.by_ours = bed_ns();
        s.by_other = bed_ns();
        bed_veth(s.host, "ours", s.by_ours, "far", 1500, 1);
        bed_veth(s.host, "other", s.by_other, "far", 1500, 1);
        s.at_ours = bed_packet_socket(s.by_ours, "far");
        s.at_other = bed_packet_socket(s.by_other, "far");
        bed_enter(s.host);
        err = xdp_dev_open(&s.dev, "ours", XDP_WANT_GENERIC, line);
        if (err == -ENOSYS || err == -EPERM) {
                print_message("skipped: %s\n", err == -EPERM ? line_of_no_xdp : line);
                skip();
        }
        if (err == 0)
                err = xdp_sock_open(&s.sock, &s.dev, 0,
                                    (struct xdp_sizes){.rx_chunks = 64, .tx_chunks = 32}, line);
        if (err != 0)
                fail_msg("%d: %s", err, line);
        if (s.sock.packet.sock < 0)
                fail_msg("no packet socket: %s", strerror(-s.sock.no_packet));
        return s;
}

static void end_scene(struct scene *s)
{
        const int fds[] = {s->at_ours, s->at_other, s->host, s->by_ours, s->by_other};

        xdp_sock_close(&s->sock);
        xdp_dev_close(&s->dev);
        for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
                close(fds[i]);
}

/* ---- frames ---- */

/* Behind an empty virtio header, if the socket wants one. */
static size_t make_frame(uint8_t frame[74], int mark, bool header)
{
        static const uint8_t head[15] = {
                0xff, 0xff, 0xff, 0xff, 0xff, 0xff,           2,
                0,    0,    0,    0,    1,    ETHERTYPE >> 8, ETHERTYPE & 0xff};
        size_t at = header ? 10 : 0;

        memset(frame, 0, 74);
        memcpy(frame + at, head, sizeof head);
        frame[at + 14] = (uint8_t)mark;
        return at + 60;
}

/* Frames that a packet socket has with the mark, up to the last one of mark `last`, which
 * will come. */
static int count_marked(int fd, int mark, int last)
{
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        uint8_t frame[2048];
        int n = 0;

        while (poll(&pfd, 1, 10000) == 1) {
                ssize_t len = recv(fd, frame, sizeof frame, MSG_DONTWAIT);
                if (len < 15 || frame[12] != ETHERTYPE >> 8 || frame[13] != (ETHERTYPE & 0xff))
                        continue;
                n += frame[14] == mark;
                if (frame[14] == last)
                        return n;
        }
        fail_msg("the last frame did not come");
        return n;
}

/* From a host's interface, by the kernel. */
static void kernel_sends(int ns, const char *ifname, int mark)
{
        int fd = bed_packet_socket(ns, ifname);
        uint8_t frame[74];
        size_t len = make_frame(frame, mark, false);

        assert_int_equal(send(fd, frame, len, 0), (ssize_t)len);
        close(fd);
}

/* ---- what a hostile program does; as a user without any privilege, in a process of its
 * own ---- */

static int run_as_nobody(int (*what)(int fd), int fd)
{
        pid_t pid = fork();
        int status;

        assert_true(pid >= 0);
        if (pid == 0)
                _exit(setresgid(NOBODY, NOBODY, NOBODY) != 0 ||
                                      setresuid(NOBODY, NOBODY, NOBODY) != 0
                              ? 99
                              : what(fd));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

/* To every interface there might be, by address, by binding to it, and with an address of
 * another family. */
static int send_elsewhere(int fd)
{
        uint8_t frame[74];
        size_t len = make_frame(frame, FOREIGN, true);

        for (int i = 0; i < INDEXES; i++) {
                struct sockaddr_ll ll = {.sll_family = AF_PACKET,
                                         .sll_ifindex = i,
                                         .sll_halen = 6,
                                         .sll_protocol = htons(ETHERTYPE)};
                sendto(fd, frame, len, MSG_DONTWAIT, (struct sockaddr *)&ll, sizeof ll);
        }
        for (int i = 0; i < INDEXES; i++) {
                struct sockaddr_ll ll = {.sll_family = AF_PACKET,
                                         .sll_ifindex = i,
                                         .sll_protocol = htons(ETHERTYPE)};
                if (bind(fd, (struct sockaddr *)&ll, sizeof ll) == 0)
                        send(fd, frame, len, MSG_DONTWAIT);
        }
        return 0;
}

static int send_own(int fd)
{
        uint8_t frame[74];
        size_t len = make_frame(frame, OWN, true);

        return send(fd, frame, len, 0) == (ssize_t)len ? 0 : errno;
}

/* Bound to everything, and without what might be in the way. */
static int listen_to_all(int fd)
{
        struct sockaddr_ll ll = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
        struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, 0xffffffff);
        struct sock_fprog prog = {1, &all};
        int zero = 0;

        bind(fd, (struct sockaddr *)&ll, sizeof ll);
        setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &zero, sizeof zero);
        setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof prog);
        setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &zero, sizeof zero);
        return 0;
}

/* Whether anything is there to be read, by calls or in a ring. */
static int has_heard(int fd)
{
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        uint8_t frame[2048];

        return poll(&pfd, 1, 0) != 0 || recv(fd, frame, sizeof frame, MSG_DONTWAIT) >= 0;
}

static int make_ring(int fd)
{
        struct tpacket_req req = {
                .tp_block_size = 65536, .tp_block_nr = 1, .tp_frame_size = 2048, .tp_frame_nr = 32};

        return setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &req, sizeof req) == 0 ? 0 : errno;
}

static int ring_has_heard(int fd)
{
        const struct tpacket_hdr *ring = mmap(NULL, 65536, PROT_READ, MAP_SHARED, fd, 0);

        if (ring == MAP_FAILED)
                return 98;
        for (int i = 0; i < 32; i++)
                if (((const struct tpacket_hdr *)(const void *)((const char *)ring + i * 2048))
                            ->tp_status &
                    TP_STATUS_USER)
                        return 1;
        return 0;
}

/* Promiscuous, on each. */
static int be_promiscuous(int fd)
{
        for (int i = 0; i < INDEXES; i++) {
                struct packet_mreq m = {.mr_ifindex = i, .mr_type = PACKET_MR_PROMISC};
                setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &m, sizeof m);
        }
        return 0;
}

/* ---- tests ---- */

static void it_sends_by_its_interface_and_by_no_other(void **state)
{
        struct scene s = make_scene();

        assert_int_equal(run_as_nobody(send_own, s.sock.packet.sock), 0);
        assert_int_equal(count_marked(s.at_ours, OWN, OWN), 1);
        assert_int_equal(run_as_nobody(send_elsewhere, s.sock.packet.sock), 0);
        kernel_sends(s.host, "other", OWN); /* by now everything has gone where it can go */
        assert_int_equal(count_marked(s.at_other, FOREIGN, OWN), 0);
        end_scene(&s);
}

static void it_hears_nothing(void **state)
{
        struct scene s = make_scene();

        for (int ring = 0; ring < 2; ring++) {
                assert_int_equal(run_as_nobody(listen_to_all, s.sock.packet.sock), 0);
                if (ring)
                        assert_int_equal(run_as_nobody(make_ring, s.sock.packet.sock), 0);
                for (int i = 0; i < 20; i++) {
                        kernel_sends(s.by_ours, "far", HEARD);
                        kernel_sends(s.by_other, "far", HEARD);
                        kernel_sends(s.host, "other", HEARD);
                        run_as_nobody(send_own, s.sock.packet.sock);
                }
                count_marked(s.at_other, HEARD, HEARD);
                assert_int_equal(
                        run_as_nobody(ring ? ring_has_heard : has_heard, s.sock.packet.sock), 0);
        }
        end_scene(&s);
}

static void it_changes_no_other_interface(void **state)
{
        struct scene s = make_scene();

        assert_int_equal(run_as_nobody(be_promiscuous, s.sock.packet.sock), 0);
        for (int i = 0; i < 2; i++) /* loopback counts as one */
                bed_run(s.host, "! ip -d link show dev %s | grep -q 'promiscuity [1-9]'",
                        i ? "lo" : "other");
        end_scene(&s);
}

/* ... from whoever has it, at once. */
static void it_can_be_taken_away(void **state)
{
        struct scene s = make_scene();
        int stays = dup(s.sock.packet.sock);

        assert_int_equal(run_as_nobody(send_own, stays), 0);
        assert_int_equal(count_marked(s.at_ours, OWN, OWN), 1);
        assert_int_equal(pkt_sealed_end(&s.sock.packet), 0);
        assert_int_not_equal(run_as_nobody(send_own, stays), 0);
        run_as_nobody(send_elsewhere, stays);
        kernel_sends(s.host, "other", HEARD);
        kernel_sends(s.host, "ours", HEARD);
        assert_int_equal(count_marked(s.at_other, FOREIGN, HEARD), 0);
        bed_run(s.host, "ip -d link show dev ours | grep -q 'allmulti 0'");
        close(stays);
        end_scene(&s);
}

/* With the last descriptor of it everything goes that was made for it. */
static void the_interface_is_as_before(void **state)
{
        struct scene s = make_scene();

        bed_run(s.host, "ip -d link show dev ours | grep -q 'allmulti 1'");
        xdp_sock_close(&s.sock);
        xdp_dev_close(&s.dev);
        bed_run(s.host, "for i in $(seq 3000); do ip -d link show dev ours | grep -q 'allmulti 0' "
                        "&& exit 0; sleep 0.01; done; exit 1");
        bed_run(s.host, "! ip link show dev ours | grep -qi xdp");
        end_scene(&s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(it_sends_by_its_interface_and_by_no_other),
                cmocka_unit_test(it_hears_nothing),
                cmocka_unit_test(it_changes_no_other_interface),
                cmocka_unit_test(it_can_be_taken_away),
                cmocka_unit_test(the_interface_is_as_before),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
