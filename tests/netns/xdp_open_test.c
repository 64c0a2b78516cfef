/*
 * How an interface is opened by the provider `xdp`: which mode is chosen, what is said where none
 * is possible, and that it can be taken away.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/netns/xdp_pair.h"

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

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(on_a_veth_tcx_is_chosen),
                cmocka_unit_test(what_is_chosen_of_af_xdp_follows_the_mtu),
                cmocka_unit_test(what_cannot_be_opened_says_why),
                cmocka_unit_test(two_queues_are_two_sockets),
                cmocka_unit_test(what_is_chosen_takes_all_queues),
                cmocka_unit_test(sending_can_be_taken_away_tcx),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
