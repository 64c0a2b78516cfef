/*
 * ARP. The input is a program for a whole neighbour cache: packets arrive, raw and of every kind,
 * neighbours are resolved, packets wait, what is owed is sent or not, time passes, addresses come
 * and go, somebody dies. After each step every invariant holds; no destination is asked for twice
 * in a second; what is sent could be received.
 */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

#include "arp/arp.h"
#include "arp/ether.h"

#define HOSTS 16u /* of our network, 10.0.0.0 to 10.0.0.15 */

struct world {
        struct arp a;
        struct arp_cache *cache;
        struct counters cnt;
        const uint8_t *p, *end; /* the program */
        nstime now, asked[256];
        struct arp_ref ref;
};

static unsigned next_byte(struct world *w)
{
        return w->p < w->end ? *w->p++ : 0;
}

/* When an address was last asked for: no two of some_ip()'s that can be asked for share a place. */
static nstime *asked_at(struct world *w, uint32_t ip)
{
        return &w->asked[(ip ^ ip >> 24) & 0xff];
}

/* Mostly a host of our network, else something odd. */
static uint32_t some_ip(struct world *w)
{
        static const uint32_t odd[] = {0,          0xffffffff, 0x0a0000ff, 0x7f000001,
                                       0xe0000001, 0xc0a80001, 0xf0000000, 0x0a000000};
        unsigned b = next_byte(w);

        return b < 192 ? 0x0a000000 + b % HOSTS : odd[b % ARRAY_LEN(odd)];
}

static void some_ll(struct world *w, uint8_t ll[6])
{
        static const uint8_t odd[][6] = {{0},
                                         {0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
                                         {1, 0, 0x5e, 0, 0, 1},
                                         {2, 0, 0, 0, 0, 1}};
        unsigned b = next_byte(w);

        if (b < 192)
                memcpy(ll, (uint8_t[6]){2, 0, 0, 0, 0, (uint8_t)(b % 32)}, 6);
        else
                memcpy(ll, odd[b % ARRAY_LEN(odd)], 6);
}

static void put_ip(uint8_t *p, uint32_t ip)
{
        be32 b = be32_of(ip);

        memcpy(p, &b, 4);
}

/* ---- steps ---- */

/* In memory of exactly its size, so that a byte too many is seen. */
static void arrive(struct world *w, const uint8_t *pkt, size_t n)
{
        uint8_t *exact = malloc(n != 0 ? n : 1);
        enum drop why;

        if (n != 0)
                memcpy(exact, pkt, n);
        why = arp_input(&w->a, exact, n, w->now);
        assert(why < DROP_COUNT);
        assert(n >= 28 || why == DROP_ARP_SHORT || why == DROP_ARP_FORMAT);
        free(exact);
}

static void step_arrive(struct world *w)
{
        uint8_t pkt[46] = {0, 1, 8, 0, 6, 4, 0};
        unsigned how = next_byte(w);

        pkt[7] = 1 + (how & 1);
        some_ll(w, pkt + 8);
        put_ip(pkt + 14, some_ip(w));
        some_ll(w, pkt + 18);
        put_ip(pkt + 24, some_ip(w));
        if (how & 0x80)
                pkt[next_byte(w) % 46] ^= (uint8_t)next_byte(w);
        arrive(w, pkt, how & 0x40 ? next_byte(w) % 47 : 46);
}

static void step_frame(struct world *w)
{
        size_t n = next_byte(w) % 64, left = (size_t)(w->end - w->p);
        struct ether_hdr h;
        enum drop why;

        n = MIN(n, left);
        why = ether_parse(w->p, n, &h);
        assert(n >= ETHER_HDR || why == DROP_ETHER_SHORT);
        if (why == DROP_NONE)
                arrive(w, w->p + ETHER_HDR, n - ETHER_HDR);
        w->p += n;
}

static void step_resolve(struct world *w)
{
        uint8_t ll[ARP_LL_MAX];
        uint32_t ip = some_ip(w);
        int err = arp_resolve(&w->a, ip, w->now, &w->ref, ll);

        if (err == 0)
                assert(arp_ref_good(&w->a, w->ref) && memcmp(ll, arp_ll(&w->a, w->ref), 6) == 0);
}

static void step_hold(struct world *w)
{
        static const uint8_t bytes[65536];
        uint32_t head = next_byte(w), body = next_byte(w) * 257u;

        if (head != 0)
                arp_hold(&w->a, w->ref, bytes, head, bytes, body);
}

/* What leaves is a packet that another host takes, and no destination is asked for twice in
 * a second. */
static void check_sent(struct world *w, const struct arp_out *out)
{
        uint32_t spa, tpa;

        assert(out->len == 28 && out->pkt[7] >= 1 && out->pkt[7] <= 2);
        assert(memcmp(out->pkt + 8, w->cache->cfg.ll_addr, 6) == 0);
        memcpy(&spa, out->pkt + 14, 4);
        memcpy(&tpa, out->pkt + 24, 4);
        assert(spa != 0 || out->ip == be32_get((be32){tpa})); /* only a probe has no sender */
        if (out->pkt[7] == 1 && spa != 0 && spa != tpa) {
                nstime *last = asked_at(w, out->ip);
                assert(*last == 0 || w->now - *last >= ARP_REQUEST_INTERVAL);
                *last = w->now;
        }
}

static void step_output(struct world *w)
{
        static uint8_t buf[65536];
        struct arp_out out;

        for (unsigned n = next_byte(w) % 8; n != 0 && arp_output(&w->a, &out); n--) {
                if (out.what == ARP_OUT_SEND)
                        check_sent(w, &out);
                if (out.what == ARP_OUT_RELEASE || out.what == ARP_OUT_UNREACHABLE)
                        arp_held_copy(&w->a, &out, buf);
                arp_output_done(&w->a, &out, w->now);
        }
}

static void step_time(struct world *w)
{
        static const nstime steps[] = {1,
                                       NS_PER_MS,
                                       100 * NS_PER_MS,
                                       NS_PER_S,
                                       5 * NS_PER_S,
                                       46 * NS_PER_S,
                                       700 * NS_PER_S};
        unsigned b = next_byte(w);
        nstime at = arp_deadline(&w->a);

        if (b < 128 && at != NSTIME_NEVER)
                w->now = MAX(w->now, at);
        else
                w->now += steps[b % ARRAY_LEN(steps)];
        arp_expire(&w->a, w->now);
}

static void step_address(struct world *w)
{
        unsigned b = next_byte(w);
        uint32_t ip = some_ip(w);

        /* An address that becomes ours was a neighbour, asked for a moment ago. */
        memset(w->asked, 0, sizeof w->asked);
        arp_addr_add(&w->a, ip, b & 2 ? 24 : 28, b & 16, w->now);
}

static void step_entry(struct world *w)
{
        unsigned b = next_byte(w);
        uint32_t ip = some_ip(w);
        uint8_t ll[6];

        if (b & 1) {
                some_ll(w, ll);
                arp_set(&w->a, ip, ll, b & 2, w->now);
        } else {
                *asked_at(w, ip) = 0; /* is forgotten with the time of its last request */
                arp_del(&w->a, ip);
        }
}

static void step_confirm(struct world *w)
{
        arp_confirm(&w->a, w->ref, w->now);
}

static void step_link_up(struct world *w)
{
        /* Who failed is forgotten, and may be asked for at once. */
        memset(w->asked, 0, sizeof w->asked);
        arp_link_up(&w->a, w->now);
}

static void step_recover(struct world *w)
{
        arp_recover(&w->a, w->now);
        assert(!arp_ref_good(&w->a, w->ref));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static void (*const steps[])(struct world *) = {
                step_arrive,  step_arrive, step_resolve, step_output,  step_time,    step_hold,
                step_output,  step_arrive, step_frame,   step_time,    step_address, step_confirm,
                step_resolve, step_entry,  step_link_up, step_recover,
        };
        static const uint8_t seed[16] = "seed of no value", mac[6] = {2, 0, 0, 0, 0, 1};
        static struct arp_cache cache;
        struct world w = {.cache = &cache, .p = data, .end = data + size, .now = 1000 * NS_PER_S};
        struct arp_config cfg;

        arp_config_default(&cfg, mac);
        w.a = (struct arp){w.cache, &w.cnt};
        arp_format(w.cache, &cfg, seed, w.now);
        arp_addr_add(&w.a, 0x0a000001, 24, false, w.now);
        for (unsigned n = 0; w.p < w.end && n < 100; n++) {
                steps[next_byte(&w) % ARRAY_LEN(steps)](&w);
                arp_check(&w.a);
        }
        return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
        /* Steps by their number in the table above, and what each reads. */
        static const uint8_t talk[] = {3, 7, 2, 2, 5,  40, 3,   3, 1, 0, 1,   2, 1, 2,
                                       1, 1, 3, 7, 11, 4,  200, 2, 2, 4, 100, 3, 7};
        static const uint8_t asked[] = {3, 7,   0, 0, 2, 2,   0, 1, 3, 7,   2, 2,
                                        4, 130, 3, 7, 4, 130, 3, 7, 4, 130, 3, 7};
        static const uint8_t fails[] = {3, 7, 2, 5, 5, 40, 9, 3, 7, 4, 0, 3, 7, 4,
                                        0, 3, 7, 4, 0, 3,  7, 4, 0, 2, 5, 4, 0};
        static const uint8_t address[] = {10, 17, 9, 4, 0,  3,  7, 4, 0, 3, 7, 0, 0,
                                          5,  9,  0, 9, 10, 17, 9, 4, 0, 3, 7, 15};
        static const uint8_t frame[] = {8, 60, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0,
                                        2, 8,  6,    0,    1,    8,    0,    6,    4, 0, 1, 2, 0,
                                        0, 0,  0,    2,    10,   0,    0,    2,    0, 0, 0, 0, 0,
                                        0, 10, 0,    0,    1,    0,    0,    0,    0, 0, 0, 0, 0,
                                        0, 0,  0,    0,    0,    0,    0,    0,    0, 0, 3, 7};
        static const struct {
                const uint8_t *p;
                size_t n;
        } seeds[] = {{talk, sizeof talk},
                     {asked, sizeof asked},
                     {fails, sizeof fails},
                     {address, sizeof address},
                     {frame, sizeof frame}};

        if (i >= ARRAY_LEN(seeds))
                return 0;
        memcpy(buf, seeds[i].p, seeds[i].n);
        return seeds[i].n;
}
