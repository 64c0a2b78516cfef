/* What the program on an interface does with fragments: those of a flood of beginnings end there,
 * those of whole datagrams pass. */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <netinet/ip.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/netns/xdp_pair.h"

#define BURST  1000u
#define BURSTS 200u /* one of them at least is not spread over four windows of 34 ms */

static const struct xdp_sizes many = {.rx_chunks = 4096, .rx_large = 8, .tx_chunks = 32};

static enum xdp_want want; /* of this round */

struct piece {
        uint32_t source;
        uint16_t id, off;  /* off: in units of 8 bytes */
        bool more, tagged; /* tagged: with a priority */
};

static void put(int fd, struct piece f)
{
        static const uint8_t link[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1},
                             type[] = {ETH_P_IP >> 8, ETH_P_IP & 0xff},
                             tag[] = {ETH_P_8021Q >> 8, ETH_P_8021Q & 0xff, 0xe0, 0};
        uint8_t p[68] = {0};
        size_t hdr = sizeof link + (f.tagged ? sizeof tag : 0);
        struct iphdr ip = {.version = 4,
                           .ihl = 5,
                           .tot_len = htons(28),
                           .id = htons(f.id),
                           .ttl = 64,
                           .protocol = IPPROTO_UDP,
                           .frag_off = htons((uint16_t)((f.more ? IP_MF : 0) | f.off)),
                           .saddr = htonl(f.source),
                           .daddr = htonl(0x0a4d0001)};

        memcpy(p, link, sizeof link);
        memcpy(p + sizeof link, tag, sizeof tag);
        memcpy(p + hdr, type, sizeof type);
        memcpy(p + hdr + sizeof type, &ip, sizeof ip);
        assert_int_equal(send(fd, p, sizeof p, 0), sizeof p);
}

static uint32_t arrived(struct end *e)
{
        struct unet_rx rx;
        uint32_t n = 0;

        for (; take(e, &rx); n++)
                give_back(e, &rx);
        flush(e);
        return n;
}

static uint64_t shed(const struct pair *p)
{
        struct xdp_drops n;

        xdp_drops(&p->e->sock, &p->e->dev, &n);
        assert_int_equal(n.no_buffer + n.queue_full, 0);
        return n.fragments;
}

/* Beginnings, each from somebody else. Returns how many came. */
static uint32_t burst_of_strangers(const struct pair *p, uint32_t k, bool tagged)
{
        for (uint32_t i = 0; i < BURST; i++) {
                uint32_t source = 0x0b000000 + (k * BURST + i) * 2654435761u % 0x1000000u;
                put(p->peer,
                    (struct piece){
                            .source = source, .id = (uint16_t)i, .more = true, .tagged = tagged});
        }
        return arrived(p->e);
}

/* Until some are shed, as most are in any window that has many. */
static void flood(const struct pair *p, bool tagged)
{
        uint64_t before = shed(p), gone = before;
        uint32_t came = 0, sent = 0;

        for (uint32_t k = 0; k < BURSTS && gone < before + 4 * BURST; k++) {
                came += burst_of_strangers(p, k, tagged);
                sent += BURST;
                gone = shed(p);
        }
        assert_true(gone >= before + 4 * BURST);
        assert_int_equal(came + (gone - before), sent); /* each is here or there */
}

static void a_flood_of_beginnings_ends_at_the_interface(void **state)
{
        struct pair p = pair_make(want, 1500, many);

        flood(&p, false);
        flood(&p, true);
        pair_end(&p);
}

static void the_longest_datagram_in_the_shortest_fragments_passes(void **state)
{
        struct pair p = pair_make(want, 1500, many);

        for (uint32_t i = 0; i < 8190; i++) {
                put(p.peer,
                    (struct piece){
                            .source = 0x0a4d0002, .id = 7, .off = (uint16_t)i, .more = true});
                if (i % 1024 == 1023)
                        assert_int_equal(arrived(p.e), 1024);
        }
        assert_int_equal(arrived(p.e), 8190 % 1024);
        assert_int_equal(shed(&p), 0);
        pair_end(&p);
}

/* The last fragment is known for what it is even when it comes too late to be let through. */
static void who_ends_its_datagrams_is_no_stranger(void **state)
{
        struct pair p = pair_make(want, 1500, many);

        flood(&p, false);
        put(p.peer, (struct piece){.source = 0x0a4d0002, .id = 1, .off = 1, .more = false});
        arrived(p.e);
        for (uint32_t k = 0; k < 20; k++) {
                uint64_t before;

                burst_of_strangers(&p, k, false);
                before = shed(&p);
                for (uint32_t i = 0; i < 100; i++) {
                        put(p.peer,
                            (struct piece){.source = 0x0a4d0002, .id = (uint16_t)i, .more = true});
                        put(p.peer, (struct piece){.source = 0x0a4d0002,
                                                   .id = (uint16_t)i,
                                                   .off = 1,
                                                   .more = true});
                }
                assert_int_equal(arrived(p.e), 200);
                assert_int_equal(shed(&p), before);
        }
        pair_end(&p);
}

static void what_is_no_fragment_passes(void **state)
{
        struct pair p = pair_make(want, 1500, many);
        uint64_t before;

        flood(&p, false);
        before = shed(&p);
        for (uint32_t i = 0; i < 3 * BURST; i++)
                put(p.peer, (struct piece){.source = 0x0b000000 + i, .id = (uint16_t)i});
        assert_int_equal(arrived(p.e), 3 * BURST);
        for (uint32_t i = 0; i < 500; i++)
                kernel_sends(p.peer, i, 60);
        assert_int_equal(arrived(p.e), 500);
        assert_int_equal(shed(&p), before);
        pair_end(&p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_flood_of_beginnings_ends_at_the_interface),
                cmocka_unit_test(the_longest_datagram_in_the_shortest_fragments_passes),
                cmocka_unit_test(who_ends_its_datagrams_is_no_stranger),
                cmocka_unit_test(what_is_no_fragment_passes),
        };

        int failed;

        want = XDP_WANT_NATIVE;
        failed = cmocka_run_group_tests_name("native", tests, NULL, NULL);
        want = XDP_WANT_TCX;
        return failed + cmocka_run_group_tests_name("tcx", tests, NULL, NULL);
}
