/* The vocabulary of ARP scenarios. See scene.h. */
#include "tests/arp/scene.h"

#include <stdlib.h>

#define check(cond) _assert_true(!!(cond), #cond, file, line)

void ll_of(int n, uint8_t ll[6])
{
        const uint8_t mac[6] = {2, 0, 0, 0, 0, (uint8_t)n};

        if (n == ALL)
                memset(ll, 0xff, 6);
        else if (n == 0)
                memset(ll, 0, 6);
        else
                memcpy(ll, mac, 6);
}

int scene_bare(void **state)
{
        static const uint8_t seed[16] = "seed of no value";
        struct scene *s = calloc(1, sizeof *s);
        struct arp_config cfg;
        uint8_t mac[6];

        assert_non_null(s);
        ll_of(OUR_LL, mac);
        arp_config_default(&cfg, mac);
        s->now = T0;
        s->a = (struct arp){&s->cache, &s->cnt};
        arp_format(&s->cache, &cfg, seed, s->now);
        *state = s;
        return 0;
}

int scene_setup(void **state)
{
        struct scene *s;

        scene_bare(state);
        s = *state;
        s->now -= ARP_ANNOUNCE_INTERVAL;
        assert_int_equal(arp_addr_add(&s->a, US, 24, false, s->now), 0);
        expect_sent(s, .op = REQUEST, .tpa = US);
        expect_addr(s, US, ARP_ADDR_ANNOUNCING);
        advance(s, ARP_ANNOUNCE_INTERVAL);
        expect_sent(s, .op = REQUEST, .tpa = US);
        expect_addr(s, US, ARP_ADDR_BOUND);
        expect_silence(s);
        return 0;
}

int scene_teardown(void **state)
{
        struct scene *s = *state;

        arp_check(&s->a);
        free(s);
        return 0;
}

/* ---- what arrives ---- */

static void put16(uint8_t *p, uint16_t v)
{
        be16 b = be16_of(v);

        memcpy(p, &b, 2);
}

static void put32(uint8_t *p, uint32_t v)
{
        be32 b = be32_of(v);

        memcpy(p, &b, 4);
}

static uint32_t ip_or(uint32_t ip, uint32_t otherwise)
{
        return ip == 0 ? otherwise : ip == ZERO ? 0 : ip;
}

size_t build_(uint8_t *p, struct arp_scene_pkt k)
{
        memset(p, 0, ETHER_MIN_PKT);
        put16(p, 1);
        put16(p + 2, ETHER_IPV4);
        p[4] = 6;
        p[5] = 4;
        put16(p + 6, k.op != 0 ? k.op : REQUEST);
        ll_of(k.sha != 0 ? k.sha : PEER_LL, p + 8);
        put32(p + 14, ip_or(k.spa, PEER));
        ll_of(k.tha, p + 18);
        put32(p + 24, ip_or(k.tpa, US));
        return k.len != 0 ? k.len : ETHER_MIN_PKT;
}

enum drop arrives_(struct scene *s, struct arp_scene_pkt k)
{
        uint8_t p[ETHER_MIN_PKT];
        size_t n = build_(p, k);
        enum drop why = arp_input(&s->a, p, n, s->now);

        arp_check(&s->a);
        return why;
}

/* ---- what leaves ---- */

/* The next output; asked twice it says the same. */
static struct arp_out next_output(struct scene *s, enum arp_what what, const char *file, int line)
{
        struct arp_out out, again;

        memset(&out, 0, sizeof out);
        memset(&again, 0, sizeof again);
        check(arp_output(&s->a, &out));
        check(arp_deadline(&s->a) <= s->now);
        _assert_int_equal(out.what, what, file, line);
        arp_output(&s->a, &again);
        _assert_memory_equal(&out, &again, sizeof out, file, line);
        return out;
}

static void done(struct scene *s, const struct arp_out *out)
{
        arp_output_done(&s->a, out, s->now);
        arp_check(&s->a);
}

static void check_ll(const uint8_t *got, int want, const char *file, int line)
{
        uint8_t ll[6];

        ll_of(want, ll);
        _assert_memory_equal(got, ll, 6, file, line);
}

void expect_sent_(struct scene *s, struct arp_scene_sent k, const char *file, int line)
{
        uint8_t want[ETHER_MIN_PKT];
        struct arp_out out = next_output(s, ARP_OUT_SEND, file, line);

        build_(want, (struct arp_scene_pkt){.op = k.op,
                                            .spa = k.spa != 0 ? k.spa : US,
                                            .sha = OUR_LL,
                                            .tha = k.tha,
                                            .tpa = k.tpa != 0 ? k.tpa : PEER});
        _assert_int_equal(out.len, 28, file, line);
        _assert_memory_equal(out.pkt, want, 28, file, line);
        check_ll(out.to, k.to != 0 ? k.to : ALL, file, line);
        done(s, &out);
}

void expect_packet_(struct scene *s, enum arp_what what, uint32_t ip, int to, uint32_t len,
                    uint8_t fill, const char *file, int line)
{
        struct arp_out out = next_output(s, what, file, line);
        uint8_t *p = malloc(len);

        check(out.ip == ip);
        _assert_int_equal(out.len, len, file, line);
        if (what == ARP_OUT_RELEASE)
                check_ll(out.to, to, file, line);
        arp_held_copy(&s->a, &out, p);
        for (uint32_t i = 0; i < len; i++)
                check(p[i] == (uint8_t)(fill + i));
        free(p);
        done(s, &out);
}

void expect_addr_(struct scene *s, uint32_t ip, enum arp_addr_state state, const char *file,
                  int line)
{
        struct arp_out out = next_output(s, ARP_OUT_ADDR, file, line);

        check(out.ip == ip);
        _assert_int_equal(out.addr_state, state, file, line);
        _assert_int_equal(arp_addr_state(&s->a, ip), state, file, line);
        done(s, &out);
}

void expect_silence_(struct scene *s, const char *file, int line)
{
        struct arp_out out;

        check(!arp_output(&s->a, &out));
        _assert_int_equal(out.what, ARP_OUT_NONE, file, line);
        check(arp_deadline(&s->a) > s->now);
}

/* ---- time ---- */

void advance_(struct scene *s, nstime by, const char *file, int line)
{
        nstime end = s->now + by, at;

        while ((at = arp_deadline(&s->a)) < end) {
                expect_silence_(s, file, line);
                s->now = at;
                arp_expire(&s->a, s->now);
                arp_check(&s->a);
        }
        s->now = end;
        arp_expire(&s->a, s->now);
        arp_check(&s->a);
}

nstime wait_output_(struct scene *s, nstime most, const char *file, int line)
{
        nstime begin = s->now;
        struct arp_out out;

        while (!arp_output(&s->a, &out)) {
                nstime at = arp_deadline(&s->a);

                check(at != NSTIME_NEVER);
                s->now = MAX(s->now, at);
                check(s->now - begin <= most);
                arp_expire(&s->a, s->now);
                arp_check(&s->a);
        }
        return s->now - begin;
}

/* ---- what we do ---- */

struct arp_ref resolve_(struct scene *s, uint32_t ip, int expect, int ll, const char *file,
                        int line)
{
        struct arp_ref ref = {0};
        uint8_t got[ARP_LL_MAX];

        _assert_int_equal(arp_resolve(&s->a, ip, s->now, &ref, got), expect, file, line);
        arp_check(&s->a);
        if (expect == 0) {
                check_ll(got, ll, file, line);
                check(arp_ref_good(&s->a, ref));
                check_ll(arp_ll(&s->a, ref), ll, file, line);
        } else {
                check(!arp_ref_good(&s->a, ref));
        }
        return ref;
}

void send_waiting_(struct scene *s, uint32_t ip, uint32_t len, uint8_t fill, const char *file,
                   int line)
{
        struct arp_ref ref = resolve_(s, ip, -EINPROGRESS, 0, file, line);
        uint8_t *p = malloc(len);
        uint32_t head = MIN(len, 20);

        for (uint32_t i = 0; i < len; i++)
                p[i] = (uint8_t)(fill + i);
        _assert_int_equal(arp_hold(&s->a, ref, p, head, p + head, len - head), 0, file, line);
        free(p);
        arp_check(&s->a);
}

enum arp_state state_of(struct scene *s, uint32_t ip)
{
        struct arp_report r;

        for (uint32_t i = 0; i <= ARP_ENTRIES + 1; i++)
                if (arp_walk(&s->a, i, &r) && r.ip == ip)
                        return r.state;
        return ARP_FREE;
}

struct arp_ref make_reachable(struct scene *s, uint32_t ip, int ll)
{
        resolve(s, ip, -EINPROGRESS, 0);
        expect_request(s, ip);
        assert_int_equal(arrives(s, .op = REPLY, .spa = ip, .sha = ll, .tha = OUR_LL), DROP_NONE);
        assert_int_equal(state_of(s, ip), ARP_REACHABLE);
        expect_silence(s);
        return resolve(s, ip, 0, ll);
}
