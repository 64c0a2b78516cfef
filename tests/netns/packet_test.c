/*
 * An interface by a packet socket (unet/packet/pkt_open.h): what comes to it goes to the socket and
 * not to the kernel, whatever it is that keeps the kernel out; and the interface is the kernel's
 * again when the last descriptor is closed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/netns/bed.h"
#include "unet/packet/pkt_open.h"
#include "unet/xdp/tcx_link.h"

#define OURS      "10.77.0.1"
#define THEIRS    "10.77.0.2"
#define OUR_MAC   "02:00:00:00:4d:01"
#define THEIR_MAC "02:00:00:00:4d:02"
enum { CLOSED = 9, ETH = 14, IP = 20, UDP = 8, PATIENCE_MS = 60000 };

/* The kernel has an address at each end, so that it would answer. */
static struct scene {
        int ours, theirs; /* namespaces */
        int sock;         /* at theirs, connected to a port of ours where nobody listens */
        struct pkt_dev dev;
} s;

static int setup(void **state)
{
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons(CLOSED),
                                 .sin_addr.s_addr = inet_addr(OURS)};

        if (bed_impossible() != NULL)
                return 0;
        s.ours = bed_ns();
        s.theirs = bed_ns();
        bed_veth(s.ours, "ours", s.theirs, "theirs", 1500, 1);
        bed_run(s.ours, "ip addr add " OURS
                        "/24 dev ours; sysctl -qw net.ipv4.ip_forward=1 net.ipv4.icmp_ratelimit=0");
        bed_run(s.theirs, "ip addr add " THEIRS "/24 dev theirs");
        bed_run(s.ours, "ip link set ours address " OUR_MAC "; ip neigh replace " THEIRS
                        " lladdr " THEIR_MAC " dev ours");
        bed_run(s.theirs, "ip link set theirs address " THEIR_MAC "; ip neigh replace " OURS
                          " lladdr " OUR_MAC " dev theirs");
        bed_enter(s.theirs);
        s.sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(s.sock, (struct sockaddr *)&to, sizeof to), 0);
        s.dev = (struct pkt_dev){.sock = -1, .link = -1};
        return 0;
}

static int teardown(void **state)
{
        pkt_dev_close(&s.dev);
        close(s.sock);
        close(s.ours);
        close(s.theirs);
        return 0;
}

static void begin(void)
{
        bed_needs_root();
        bed_enter(s.ours);
}

static int by_a_program(uint32_t ifindex)
{
        return tcx_link_tap("to_nobody", ifindex);
}

static int open_by(pkt_drop_behind *drop, bool whole)
{
        char line[XDP_LINE_MAX];
        int err = pkt_dev_open(&s.dev, "ours", whole, drop, line);

        if (err != 0)
                print_message("%s\n", line);
        return err;
}

/* ---- datagrams of one byte ---- */

static void send_byte(uint8_t byte)
{
        assert_int_equal(send(s.sock, &byte, 1, 0), 1);
}

/* The byte of the next datagram to the closed port or, where the host sends it itself, from there;
 * other packets are passed over. */
static uint8_t heard(int fd)
{
        uint8_t p[sizeof(struct virtio_net_hdr) + 2048], *frame = p + sizeof(struct virtio_net_hdr);
        struct pollfd pfd = {.fd = fd, .events = POLLIN};

        for (;;) {
                assert_int_equal(poll(&pfd, 1, PATIENCE_MS), 1);
                if (recv(fd, p, sizeof p, 0) >
                            (ssize_t)sizeof(struct virtio_net_hdr) + ETH + IP + UDP &&
                    frame[12] == 8 && frame[13] == 0 && frame[ETH + 9] == IPPROTO_UDP)
                        return frame[ETH + IP + UDP];
        }
}

/* Whether the kernel answers that nobody has the port. What it does not answer it has not got when
 * a later packet was heard. */
static bool answered(void)
{
        int err = 0;
        socklen_t len = sizeof err;

        assert_int_equal(getsockopt(s.sock, SOL_SOCKET, SO_ERROR, &err, &len), 0);
        return err == ECONNREFUSED;
}

static void becomes_the_kernels(void)
{
        for (int ms = 0; ms < PATIENCE_MS; ms += 10) {
                send(s.sock, "", 1, 0);
                usleep(10000);
                if (answered())
                        return;
        }
        fail_msg("the interface is not the kernel's again");
}

/* ---- tests ---- */

static void the_kernel_sees_nothing(pkt_drop_behind *drop, bool whole)
{
        begin();
        assert_int_equal(open_by(drop, whole), 0);
        for (uint8_t i = 0; i < 100; i++) {
                send_byte(i);
                assert_int_equal(heard(s.dev.sock), i);
        }
        assert_false(answered());
        pkt_dev_close(&s.dev);
        becomes_the_kernels();
}

static void a_macvlan_device_keeps_the_kernel_out(void **state)
{
        the_kernel_sees_nothing(NULL, false);
}

static void a_macvlan_device_keeps_the_kernel_out_of_what_is_put_together(void **state)
{
        the_kernel_sees_nothing(NULL, true);
}

/* Where the kernel is too old for one it is the other. */
static void a_program_keeps_the_kernel_out(void **state)
{
        the_kernel_sees_nothing(by_a_program, true);
}

static int fails(uint32_t ifindex)
{
        return -EPERM;
}

static void without_a_program_there_is_the_device(void **state)
{
        the_kernel_sees_nothing(fails, true);
}

static void hears_nothing_of_the_host_itself(bool whole)
{
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons(CLOSED),
                                 .sin_addr.s_addr = inet_addr(THEIRS)};
        int out;

        begin();
        assert_int_equal(open_by(NULL, whole), 0);
        out = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_int_equal(sendto(out, "\1", 1, 0, (struct sockaddr *)&to, sizeof to), 1);
        send_byte(2);
        assert_int_equal(heard(s.dev.sock), 2);
        close(out);
}

static void what_the_host_sends_is_not_heard(void **state)
{
        hears_nothing_of_the_host_itself(false);
}

static void what_the_host_sends_is_not_put_together(void **state)
{
        hears_nothing_of_the_host_itself(true);
}

static void it_is_opened_again_at_once(void **state)
{
        begin();
        for (uint8_t i = 0; i < 10; i++) {
                assert_int_equal(open_by(NULL, true), 0);
                send_byte(i);
                assert_int_equal(heard(s.dev.sock), i);
                pkt_dev_close(&s.dev);
        }
}

static void a_killed_owner_leaves_nothing(void **state)
{
        int ready[2], status;
        uint8_t byte;
        pid_t pid;

        begin();
        assert_int_equal(pipe(ready), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                if (open_by(NULL, true) == 0 && write(ready[1], "", 1) == 1)
                        pause();
                _exit(1);
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        close(ready[0]);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        becomes_the_kernels();
        assert_int_equal(open_by(NULL, true), 0);
}

static void another_macvlan_device_is_in_the_way(void **state)
{
        char line[XDP_LINE_MAX];

        begin();
        bed_run(s.ours, "ip link add link ours name beside type macvlan mode bridge");
        assert_int_equal(pkt_dev_open(&s.dev, "ours", true, NULL, line), -EINVAL);
        assert_non_null(strstr(line, "macvlan"));
        assert_int_equal(s.dev.sock, -1);
        bed_run(s.ours, "ip link del beside");
        assert_int_equal(open_by(NULL, true), 0);
}

static void what_is_no_interface_is_refused(void **state)
{
        char line[XDP_LINE_MAX];

        begin();
        assert_int_equal(pkt_dev_open(&s.dev, "nothing", true, NULL, line), -ENODEV);
        assert_string_equal(line, "no interface \"nothing\" here");
        assert_int_equal(pkt_dev_open(&s.dev, "lo", true, NULL, line), -ENODEV);
}

#define SCENE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                SCENE(a_macvlan_device_keeps_the_kernel_out),
                SCENE(a_macvlan_device_keeps_the_kernel_out_of_what_is_put_together),
                SCENE(a_program_keeps_the_kernel_out),
                SCENE(without_a_program_there_is_the_device),
                SCENE(what_the_host_sends_is_not_heard),
                SCENE(what_the_host_sends_is_not_put_together),
                SCENE(it_is_opened_again_at_once),
                SCENE(a_killed_owner_leaves_nothing),
                SCENE(another_macvlan_device_is_in_the_way),
                SCENE(what_is_no_interface_is_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
