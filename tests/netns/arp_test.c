/*
 * ARP beside Linux: our neighbour cache on one end of a veth pair, by a packet socket and in real
 * time, and on the other the kernel. Each finds the other, also when its link address changes;
 * neither takes what the other has.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "arp/arp.h"
#include "arp/ether.h"
#include "ip/icmp.h"
#include "base/checksum.h"
#include "tests/netns/bed.h"

#define OURS     0x0a4d0001u /* 10.77.0.1 */
#define THEIRS   0x0a4d0002u
#define NOBODY   0x0a4d0009u
#define PATIENCE (20 * NS_PER_S) /* for what must come */

struct host {
        struct arp a;
        struct arp_cache cache;
        struct counters cnt;
        int fd, ns, their_ns;
        unsigned ip_frames, unreachable; /* IPv4 frames that came for us; packets given up */
        struct arp_ref ref;
};

static nstime now(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static void format(struct host *h, uint8_t last)
{
        static const uint8_t seed[16] = "seed of no value";
        const uint8_t mac[6] = {2, 0x77, 0, 0, 0, last};
        struct arp_config cfg;

        arp_config_default(&cfg, mac);
        arp_format(&h->cache, &cfg, seed, now());
}

/* First in each test: CMocka can skip a test, and not its setup. */
static struct host *begin(void **state)
{
        struct host *h;

        bed_needs_root();
        h = calloc(1, sizeof *h);
        assert_non_null(h);
        h->ns = bed_ns();
        h->their_ns = bed_ns();
        bed_veth(h->ns, "ours", h->their_ns, "theirs", 1500, 1);
        bed_run(h->their_ns, "ip addr add 10.77.0.2/24 dev theirs && echo 1 "
                             ">/proc/sys/net/ipv4/conf/theirs/arp_notify");
        h->fd = bed_packet_socket(h->ns, "ours");
        h->a = (struct arp){&h->cache, &h->cnt};
        format(h, 1);
        *state = h;
        return h;
}

static int teardown(void **state)
{
        struct host *h = *state;

        if (h == NULL)
                return 0;
        arp_check(&h->a);
        close(h->fd);
        close(h->ns);
        close(h->their_ns);
        free(h);
        return 0;
}

/* ---- the loop that joins them ---- */

static void frame_out(struct host *h, const uint8_t *to, uint16_t type, const uint8_t *pkt,
                      uint32_t len)
{
        uint8_t f[2048] = {0};

        ether_write(f, to, h->cache.cfg.ll_addr, type);
        memcpy(f + ETHER_HDR, pkt, len);
        len = MAX(len, ETHER_MIN_PKT);
        assert_int_equal(send(h->fd, f, ETHER_HDR + len, 0), ETHER_HDR + len);
}

static void drain(struct host *h)
{
        struct arp_out out;
        uint8_t pkt[2000];

        for (; arp_output(&h->a, &out); arp_output_done(&h->a, &out, now())) {
                if (out.what == ARP_OUT_SEND)
                        frame_out(h, out.to, ETHER_ARP, out.pkt, out.len);
                if (out.what == ARP_OUT_UNREACHABLE)
                        h->unreachable++;
                if (out.what != ARP_OUT_RELEASE)
                        continue;
                arp_held_copy(&h->a, &out, pkt);
                frame_out(h, out.to, ETHER_IPV4, pkt, out.len);
        }
}

static void frame_in(struct host *h)
{
        uint8_t f[2048];
        ssize_t n = recv(h->fd, f, sizeof f, MSG_DONTWAIT);
        struct ether_hdr eh;

        if (n < 0 || ether_parse(f, (size_t)n, &eh) != DROP_NONE)
                return;
        if (ether_cast_of(&eh, h->cache.cfg.ll_addr) == ETHER_TO_OTHER)
                return;
        if (eh.type == ETHER_ARP)
                arp_input(&h->a, f + ETHER_HDR, (size_t)n - ETHER_HDR, now());
        h->ip_frames += eh.type == ETHER_IPV4;
}

/* Goes on until `done`; false: it was not, for so long. */
static bool run_until(struct host *h, bool (*done)(struct host *), nstime most)
{
        nstime end = now() + most;

        for (;;) {
                struct pollfd p = {h->fd, POLLIN, 0};
                nstime wait;

                arp_expire(&h->a, now());
                drain(h);
                if (done(h))
                        return true;
                if (now() >= end)
                        return false;
                wait = nstime_min(nstime_min(arp_deadline(&h->a), end) - now(), 100 * NS_PER_MS) /
                               NS_PER_MS +
                       1;
                if (poll(&p, 1, (int)MAX(wait, 0)) > 0) /* the deadline may be over by now */
                        frame_in(h);
        }
}

/* ---- what is waited for ---- */

static bool never(struct host *h)
{
        return false;
}

static bool got_ip(struct host *h)
{
        return h->ip_frames != 0;
}

static bool gave_up(struct host *h)
{
        return h->unreachable != 0;
}

static bool ours_settled(struct host *h)
{
        enum arp_addr_state s = arp_addr_state(&h->a, OURS);

        return s == ARP_ADDR_BOUND || s == ARP_ADDR_LOST;
}

static bool theirs_settled(struct host *h)
{
        enum arp_addr_state s = arp_addr_state(&h->a, THEIRS);

        return s == ARP_ADDR_BOUND || s == ARP_ADDR_LOST;
}

static bool ref_is_bad(struct host *h)
{
        return !arp_ref_good(&h->a, h->ref);
}

/* ---- what we do ---- */

static void take(struct host *h, uint32_t ip, bool probe)
{
        assert_int_equal(arp_addr_add(&h->a, ip, 24, probe, now()), 0);
        drain(h);
}

/* An ICMP echo request from OURS, sent or kept. Whoever answers it knows our link address. */
static void ping(struct host *h, uint32_t to)
{
        uint8_t p[IP_MIN_HDR + 8] = {0}, ll[ARP_LL_MAX];
        struct ip_tmpl t;
        be16 sum;
        int err;

        p[IP_MIN_HDR] = ICMP_ECHO_REQUEST;
        sum = csum_finish(csum_partial(p + IP_MIN_HDR, 8, 0));
        memcpy(p + IP_MIN_HDR + 2, &sum, 2);
        ip_tmpl_init(&t, ip_addr_v4(OURS), ip_addr_v4(to), IP_PROTO_ICMP, 0, 64, true);
        ip_hdr_write(&t, p, sizeof p, 0);
        h->ip_frames = 0;
        err = arp_resolve(&h->a, to, now(), &h->ref, ll);
        if (err == 0)
                frame_out(h, ll, ETHER_IPV4, p, sizeof p);
        else
                assert_int_equal(arp_hold(&h->a, h->ref, p, IP_MIN_HDR, p + IP_MIN_HDR, 8), 0);
}

/* ---- the tests ---- */

/* RFC 826, both ways: it answers our request, and then answers our ping, for which it has to
 * know us. */
static void the_kernel_is_found_and_finds_us(void **state)
{
        struct host *h = begin(state);

        take(h, OURS, false);
        ping(h, THEIRS);
        assert_true(run_until(h, got_ip, PATIENCE));
        bed_run(h->their_ns, "ip neigh flush all");
        ping(h, THEIRS); /* now it must ask for us before it can answer */
        assert_true(run_until(h, got_ip, PATIENCE));
        bed_run(h->their_ns, "ip neigh show 10.77.0.1 | grep -q 02:77:00:00:00:01");
        assert_true(h->cnt.n[COUNT_ARP_REPLY] >= 1);
}

static void nobody_is_given_up(void **state)
{
        struct host *h = begin(state);

        take(h, OURS, false);
        ping(h, NOBODY);
        assert_true(run_until(h, gave_up, PATIENCE));
        assert_int_equal(h->cnt.n[COUNT_ARP_REQUEST], 3);
}

/* RFC 5227 §2.1.1: what the kernel has is found out before it is used; what nobody has is taken. */
static void an_address_that_is_taken_is_left_alone(void **state)
{
        struct host *h = begin(state);

        take(h, THEIRS, true);
        take(h, OURS, true);
        assert_true(run_until(h, theirs_settled, PATIENCE));
        assert_int_equal(arp_addr_state(&h->a, THEIRS), ARP_ADDR_LOST);
        assert_true(run_until(h, ours_settled, PATIENCE));
        assert_int_equal(arp_addr_state(&h->a, OURS), ARP_ADDR_BOUND);
}

/* It announces its new link address, once; whoever remembered the old one is told at once. */
static void the_kernels_link_address_changes(void **state)
{
        static const uint8_t new_ll[6] = {2, 0x77, 0, 0, 0, 0x99};
        struct host *h = begin(state);

        take(h, OURS, false);
        ping(h, THEIRS);
        assert_true(run_until(h, got_ip, PATIENCE));
        ping(h, THEIRS);
        assert_true(arp_ref_good(&h->a, h->ref));
        run_until(h, never, 1500 * NS_PER_MS); /* the lock time passes */
        bed_run(h->their_ns, "ip link set dev theirs address 02:77:00:00:00:99");
        assert_true(run_until(h, ref_is_bad, PATIENCE));
        ping(h, THEIRS);
        assert_memory_equal(arp_ll(&h->a, h->ref), new_ll, 6);
        assert_true(run_until(h, got_ip, PATIENCE));
}

static bool kernel_knows_2(struct host *h)
{
        /* Its own lock time may swallow an announcement, as ours would: one more each second, by
         * its patience. */
        static nstime last;

        if (now() - last > NS_PER_S) {
                last = now();
                arp_link_up(&h->a, now());
                drain(h);
        }
        ping(h, THEIRS);
        run_until(h, got_ip, 100 * NS_PER_MS);
        return got_ip(h);
}

/* Our link address changes: the kernel hears our announcement and answers to the new one. */
static void our_link_address_changes(void **state)
{
        struct host *h = begin(state);

        take(h, OURS, false);
        ping(h, THEIRS);
        assert_true(run_until(h, got_ip, PATIENCE));
        format(h, 2);
        take(h, OURS, false);
        assert_true(run_until(h, kernel_knows_2, PATIENCE));
        bed_run(h->their_ns, "ip neigh show 10.77.0.1 | grep -q 02:77:00:00:00:02");
}

/* RFC 5227 §2.4 (c): the kernel uses our address and asks around from it, three times in
 * three seconds. */
static void an_address_that_the_kernel_uses_too_is_defended(void **state)
{
        struct sockaddr_in us = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(OURS)},
                           to = {.sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(NOBODY),
                                 .sin_port = htons(9)};
        struct host *h = begin(state);
        int fd;

        take(h, OURS, false);
        assert_true(run_until(h, ours_settled, PATIENCE));
        assert_int_equal(arp_addr_state(&h->a, OURS), ARP_ADDR_BOUND);
        bed_run(h->their_ns, "ip addr add 10.77.0.1/24 dev theirs");
        bed_enter(h->their_ns);
        fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&us, sizeof us), 0);
        assert_int_equal(sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof to), 1);
        close(fd);
        bed_enter(h->ns);
        h->cnt.n[COUNT_ARP_ANNOUNCE] = 0;
        for (nstime end = now() + PATIENCE; h->cnt.n[COUNT_ARP_ANNOUNCE] == 0 && now() < end;)
                run_until(h, never, 50 * NS_PER_MS);
        assert_int_equal(h->cnt.n[COUNT_ARP_ANNOUNCE], 1);
        assert_int_equal(arp_addr_state(&h->a, OURS), ARP_ADDR_BOUND);
}

#define TEST(name) cmocka_unit_test_teardown(name, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(the_kernel_is_found_and_finds_us),
                TEST(nobody_is_given_up),
                TEST(an_address_that_is_taken_is_left_alone),
                TEST(the_kernels_link_address_changes),
                TEST(our_link_address_changes),
                TEST(an_address_that_the_kernel_uses_too_is_defended),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
