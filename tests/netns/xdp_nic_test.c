/*
 * What AF_XDP is like where the driver reads and writes the chunks itself: packets leave and chunks
 * come back some time after flush(), and packets that find no chunk wait in the device or are lost
 * there. On two NICs of UNET_TEST_NICS it is so, and has to be (tests/vm/zerocopy.py); on a veth
 * pair, which copies, the same has to work.
 */
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/netns/xdp_pair.h"

#define MTU_LARGE 3000u /* chunks of 4096 bytes */

static struct pair wire(unsigned mtu)
{
        struct pair p = pair_make(XDP_WANT_NATIVE, mtu, few);

        assert_int_equal(p.e->ni.geom.zero_copy, bed_nics() != NULL);
        assert_non_null(
                strstr(p.e->line, bed_nics() != NULL ? "zero copy" : "copied by the kernel"));
        return p;
}

static uint32_t room(struct pair *p)
{
        return p->e->ni.base.ops->room(&p->e->ni.base);
}

/* As who waits for room does: flushes and naps. */
static void await_room(struct pair *p, uint32_t n)
{
        const struct timespec nap = {.tv_nsec = NS_PER_MS};

        for (int i = 0; room(p) < n; i++) {
                assert_true(i < PATIENCE);
                flush(p->e);
                nanosleep(&nap, NULL);
        }
}

static void sizes_both_ways(unsigned mtu)
{
        struct pair p = wire(mtu);

        print_message("%s\n", p.e->line);
        for (uint32_t len = 60; len <= mtu + 14; len += len < 300 || len > mtu ? 1 : 13) {
                kernel_sends(p.peer, len, len);
                expect(p.e, len, len);
                await_room(&p, 1);
                assert_true(offer(p.e, len + 7, len));
                flush(p.e);
                kernel_gets(p.peer, len + 7, len);
        }
        assert_int_equal(ni_xdp_loans(&p.e->ni), 0);
        assert_int_equal(p.e->cnt.drop[DROP_NI_MALFORMED], 0);
        await_room(&p, few.tx_chunks);
        pair_end(&p);
}

static void packets_of_every_size_pass_both_ways(void **state)
{
        sizes_both_ways(1500);
}

static void packets_of_every_size_pass_both_ways_in_chunks_of_a_page(void **state)
{
        sizes_both_ways(MTU_LARGE);
}

/* A run would leave by another way than what was sent before it, which may still be with
 * the device. */
static void who_does_not_copy_cuts_no_runs(void **state)
{
        struct pair p = wire(1500);

        assert_int_equal(p.e->ni.base.caps.runs, bed_nics() == NULL && p.e->sock.packet.sock >= 0);
        pair_end(&p);
}

/* All comes back, without a call in between. Who does not copy may send before it is told to. */
static void a_full_ring_has_room_again(void **state)
{
        struct pair p = wire(1500);

        for (int lap = 0; lap < 20; lap++) {
                uint32_t n = 0;

                await_room(&p, few.tx_chunks);
                while (n < 4 * few.tx_chunks && offer(p.e, n, 300))
                        n++;
                assert_true(n >= few.tx_chunks);
                flush(p.e);
                for (uint32_t i = 0; i < n; i++)
                        kernel_gets(p.peer, i, 300);
        }
        pair_end(&p);
}

/* More than the rings hold, in bursts, while as much comes. */
static void bursts_pass_both_ways(void **state)
{
        struct pair p = wire(1500);

        for (uint32_t at = 0; at < 4000;) {
                uint32_t n = 1 + at % few.tx_chunks;
                for (uint32_t i = at; i < at + n; i++) {
                        await_room(&p, 1);
                        assert_true(offer(p.e, i, 60 + i * 7 % 1454));
                        kernel_sends(p.peer, i, 60 + i * 11 % 1454);
                }
                flush(p.e);
                for (uint32_t i = at; i < at + n; i++) {
                        expect(p.e, i, 60 + i * 11 % 1454);
                        kernel_gets(p.peer, i, 60 + i * 7 % 1454);
                }
                at += n;
        }
        pair_end(&p);
}

/* Whoever keeps all chunks gets nothing more, and nobody writes over what he has. */
static void what_is_lent_stays_as_it_is(void **state)
{
        struct pair p = wire(1500);
        struct unet_rx rx[64];
        uint32_t last = 0;

        assert_int_equal(ARRAY_LEN(rx), few.rx_chunks);
        for (int lap = 0; lap < 3; lap++) {
                uint8_t bytes[FRAME_MAX];
                struct unet_rx more;

                for (uint32_t i = 0; i < few.rx_chunks; i++) {
                        kernel_sends(p.peer, i, 1000);
                        await(p.e, &rx[i]);
                }
                for (uint32_t i = 0; i < 10; i++)
                        kernel_sends(p.peer, 1000 + i, 1000);
                assert_false(take(p.e, &more));
                for (uint32_t i = 0; i < few.rx_chunks; i++) {
                        check_packet(bytes, whole(p.e, &rx[i], bytes), i, 1000);
                        give_back(p.e, &rx[i]);
                }
                flush(p.e);
                kernel_sends(p.peer, 7, 999); /* those that waited come before it */
                do {
                        await(p.e, &more);
                        last = whole(p.e, &more, bytes);
                        give_back(p.e, &more);
                } while (last == 1000);
                check_packet(bytes, last, 7, 999);
                flush(p.e);
        }
        assert_int_equal(ni_xdp_loans(&p.e->ni), 0);
        pair_end(&p);
}

static void nobody_sleeps_over_a_packet(void **state)
{
        struct pair p = wire(1500);

        for (uint32_t i = 0; i < 2000; i++) {
                kernel_sends(p.peer, i, 60 + i % 700);
                expect(p.e, i, 60 + i % 700);
        }
        pair_end(&p);
}

/* So many packets each way, one after the other: more than there are chunks, so none is missing. */
static void goes_on(struct pair *p, uint32_t packets)
{
        for (uint32_t i = 0; i < packets; i++) {
                kernel_sends(p->peer, i, 700);
                expect(p->e, i, 700);
                await_room(p, 1);
                assert_true(offer(p->e, i, 701));
                flush(p->e);
                kernel_gets(p->peer, i, 701);
        }
}

/* What was given to it while it was down may be lost, but no chunk is. */
static void an_interface_goes_down_and_comes_up(void **state)
{
        struct pair p = wire(1500);
        uint8_t bytes[FRAME_MAX];
        struct unet_rx rx;

        for (int lap = 0; lap < 3; lap++) {
                struct pollfd poll_fd = {.fd = p.e->sock.xsk, .events = POLLIN};

                bed_run(p.ns[0], "ip link set ours down");
                while (offer(p.e, 1, 600))
                        ;
                flush(p.e);
                assert_false(p.e->ni.base.ops->pending(&p.e->ni.base));
                bed_run(p.ns[0], "ip link set ours up");
                await_room(&p, few.tx_chunks);
                while (kernel_has_some(p.peer, 50))
                        assert_true(recv(p.peer, bytes, sizeof bytes, MSG_DONTWAIT) > 0);
                for (int tries = 0; poll(&poll_fd, 1, 20) == 0; tries++) {
                        assert_true(tries < PATIENCE / 20);
                        flush(p.e);
                        kernel_sends(p.peer, 3, 100);
                }
                do {
                        while (take(p.e, &rx))
                                give_back(p.e, &rx);
                        flush(p.e);
                } while (poll(&poll_fd, 1, 50) == 1);
                goes_on(&p, 2 * few.rx_chunks);
        }
        assert_int_equal(ni_xdp_loans(&p.e->ni), 0);
        pair_end(&p);
}

/* With packets on their way in both directions; whoever comes next has it all. */
static void a_socket_that_is_closed_leaves_nothing_behind(void **state)
{
        struct pair p = wire(1500);

        for (int lap = 0; lap < 10; lap++) {
                uint8_t bytes[FRAME_MAX];
                struct unet_rx rx;

                for (uint32_t i = 0; i < few.tx_chunks; i++) {
                        assert_true(offer(p.e, i, 600));
                        kernel_sends(p.peer, 1, 600);
                }
                flush(p.e);
                end_close(p.e);
                p.e = end_open(p.ns[0], "ours", XDP_WANT_NATIVE, few);
                assert_int_equal(p.e->ni.geom.zero_copy, bed_nics() != NULL);
                while (kernel_has_some(p.peer, 100))
                        assert_true(recv(p.peer, bytes, sizeof bytes, MSG_DONTWAIT) > 0);
                while (take(p.e, &rx))
                        give_back(p.e, &rx);
                goes_on(&p, 2 * few.tx_chunks);
                await_room(&p, few.tx_chunks);
        }
        pair_end(&p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(packets_of_every_size_pass_both_ways),
                cmocka_unit_test(packets_of_every_size_pass_both_ways_in_chunks_of_a_page),
                cmocka_unit_test(who_does_not_copy_cuts_no_runs),
                cmocka_unit_test(a_full_ring_has_room_again),
                cmocka_unit_test(bursts_pass_both_ways),
                cmocka_unit_test(what_is_lent_stays_as_it_is),
                cmocka_unit_test(nobody_sleeps_over_a_packet),
                cmocka_unit_test(an_interface_goes_down_and_comes_up),
                cmocka_unit_test(a_socket_that_is_closed_leaves_nothing_behind),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
