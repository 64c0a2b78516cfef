/*
 * A bridge's decisions (unetd/bridge/gate_rules.h): frames of two stacks and of the wire, in any
 * order. What passes is the sender's to send, and whose a frame from the wire is can be said of
 * any.
 *
 * Input, again and again: what (bit 0: from the wire, bit 1: the second stack, bits 2..: seconds
 * that pass), length (two bytes), frame.
 */
#include <assert.h>
#include <stdlib.h>

#include "arp/ether.h"
#include "base/checksum.h"
#include "ip/icmp.h"
#include "ip/ip.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/fuzz.h"
#include "unetd/bridge/gate_rules.h"

enum { US = 0x0a4d0001, PEER = 0x0a4d0002, STACKS = 2, WEB = 80, FRAGMENTS = 64 };
static const uint8_t our_mac[6] = {2, 0, 0, 0, 0, 1}, peer_mac[6] = {2, 0, 0, 0, 0, 2};

static uint32_t owner(void *arg, uint8_t proto, uint16_t port, uint32_t hint)
{
        return port == WEB ? 1 : port == WEB + 1 ? 2 : 0;
}

static bool is_at(void *arg, uint32_t addr, uint16_t port, uint32_t stack)
{
        return (addr + port + stack) % 4 == 0;
}

static bool may(void *arg, uint8_t proto, uint16_t port, uint32_t stack)
{
        return owner(arg, proto, port, 0) == stack;
}

struct world {
        struct gate_rules rules;
        struct gate_sender from[STACKS];
        struct gate_groups groups;
        struct ip_ids ids;
        struct prng prng;
        nstime now;
        struct fragment {
                uint32_t dst, stack;
                uint16_t id;
                uint8_t proto;
        } sent[FRAGMENTS];
        uint32_t nsent;
};

static struct gate_flows flows; /* large: its few flows are forgotten one by one */

static uint32_t get16(const uint8_t *p)
{
        return (uint32_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
        return get16(p) << 16 | get16(p + 2);
}

static bool sum_is_right(const uint8_t *ip)
{
        return csum_finish(csum_partial(ip, (ip[0] & 15u) * 4, 0)).raw == 0;
}

/* No receiver joins it to another stack's. */
static void check_fragment(struct world *w, uint32_t stack, const uint8_t *ip)
{
        const struct fragment f = {.dst = get32(ip + 16),
                                   .stack = stack,
                                   .id = (uint16_t)get16(ip + 4),
                                   .proto = ip[9]};

        for (uint32_t i = 0; i < MIN(w->nsent, FRAGMENTS); i++)
                assert(w->sent[i].dst != f.dst || w->sent[i].id != f.id ||
                       w->sent[i].proto != f.proto || w->sent[i].stack == stack);
        w->sent[w->nsent++ % FRAGMENTS] = f;
}

static void check_whole(const uint8_t *ip, uint32_t len)
{
        const uint8_t *l4 = ip + (ip[0] & 15u) * 4;

        if (ip[9] == IP_PROTO_ICMP)
                assert(len >= 28 && l4[0] != ICMP_ECHO_REPLY && l4[0] != ICMP_REDIRECT);
        else if (ip[9] == IP_PROTO_IGMP)
                assert(ip[8] == 1 &&
                       (l4[0] == 0x12 || l4[0] == 0x16 || l4[0] == 0x17 || l4[0] == 0x22));
        else
                assert(ip[9] == IP_PROTO_TCP || ip[9] == IP_PROTO_UDP);
}

static void check_passed(struct world *w, uint32_t stack, const uint8_t *p, uint32_t len,
                         bool sum_was_right)
{
        const uint8_t *ip = p + ETHER_HDR;

        assert(memcmp(p + 6, our_mac, 6) == 0);
        if (get16(p + 12) == ETHER_ARP) {
                assert(len >= ETHER_HDR + 28 && memcmp(ip + 8, our_mac, 6) == 0 &&
                       (get32(ip + 14) == US || get32(ip + 14) == 0));
                return;
        }
        assert(get16(p + 12) == ETHER_IPV4 && ip[0] >> 4 == 4 && get32(ip + 12) == US &&
               get16(ip + 2) <= len - ETHER_HDR);
        assert(!sum_was_right || sum_is_right(ip));
        if ((get16(ip + 6) & 0x3fff) != 0)
                check_fragment(w, stack, ip);
        else
                check_whole(ip, len - ETHER_HDR);
}

static void send_one(struct world *w, uint32_t which, uint8_t *p, uint32_t len)
{
        bool right = len >= ETHER_HDR + IP_MIN_HDR && (p[14] & 15u) >= 5 &&
                     len >= ETHER_HDR + (p[14] & 15u) * 4 && sum_is_right(p + ETHER_HDR);
        enum drop why = gate_check(&w->rules, &w->from[which], p, MIN(len, GATE_HEAD), len, w->now);

        assert(why == DROP_NONE || why == DROP_NI_BAD_SOURCE);
        if (why == DROP_NONE)
                check_passed(w, which + 1, p, len, right);
}

static void receive_one(struct world *w, const uint8_t *p, uint32_t len)
{
        struct gate_way way = gate_route(&w->rules, p, len, (uint32_t)(w->now / NS_PER_S));

        assert(way.to <= GATE_ARP && (way.to != GATE_ONE || way.stack == 1 || way.stack == 2));
        assert(way.to != GATE_NOBODY || (way.why != DROP_NONE && way.why < DROP_COUNT));
}

static void begin(struct world *w)
{
        static const uint8_t seed[32] = {1};

        *w = (struct world){.now = NS_PER_S, .from = {{.stack = 1}, {.stack = 2}}};
        prng_init(&w->prng, seed);
        ip_ids_init(&w->ids, &w->prng);
        gate_flows_init(&flows, seed);
        w->rules = (struct gate_rules){.addr = US,
                                       .owner = owner,
                                       .may = may,
                                       .is_at = is_at,
                                       .flows = &flows,
                                       .groups = &w->groups,
                                       .ids = &w->ids,
                                       .prng = &w->prng};
        memcpy(w->rules.mac, our_mac, sizeof our_mac);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct choices c = {data, data + size};
        struct world *w = malloc(sizeof *w);

        begin(w);
        while (c.at < c.end) {
                unsigned what = byte(&c);
                uint32_t asked = number(&c, 2), len = MIN(asked, (uint32_t)(c.end - c.at));
                uint8_t *p = malloc(len + 1);

                memcpy(p, c.at, len);
                c.at += len;
                w->now += (nstime)(what >> 2) * NS_PER_S;
                if (what & 1)
                        receive_one(w, p, len);
                else
                        send_one(w, what >> 1 & 1, p, len);
                free(p);
        }
        gate_flows_forget(&flows, 1);
        gate_flows_forget(&flows, 2);
        free(w);
        return 0;
}

/* ---- seeds ---- */

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

/* One packet with a TTL of 1, and what is behind its header; where the next one goes. */
static uint8_t *put_packet(uint8_t *b, uint8_t what, uint8_t proto, uint32_t dst, uint16_t frag,
                           const void *l4, uint32_t len)
{
        bool in = what & 1;
        uint8_t *p = b + 3, *ip = p + ETHER_HDR;
        be16 sum;

        b[0] = what;
        put16(b + 1, ETHER_HDR + IP_MIN_HDR + len);
        ether_write(p, in ? our_mac : peer_mac, in ? peer_mac : our_mac, ETHER_IPV4);
        memset(ip, 0, IP_MIN_HDR);
        ip[0] = 0x45;
        put16(ip + 2, IP_MIN_HDR + len);
        put16(ip + 4, 77);
        put16(ip + 6, frag);
        ip[8] = 1;
        ip[9] = proto;
        put32(ip + 12, in ? PEER : US);
        put32(ip + 16, dst);
        sum = csum_finish(csum_partial(ip, IP_MIN_HDR, 0));
        memcpy(ip + 10, &sum, sizeof sum);
        memcpy(ip + IP_MIN_HDR, l4, len);
        return ip + IP_MIN_HDR + len;
}

static const uint8_t udp[24] = {0, WEB, 0, 5, 0, 24}, udp2[24] = {0, WEB + 1, 0, 5, 0, 24},
                     udp_in[24] = {0, 5, 0, WEB, 0, 24};
static const uint8_t tcp[20] = {0, WEB, 0, 5, [12] = 5 << 4, 2};
static const uint8_t echo[8] = {ICMP_ECHO_REQUEST, [5] = 9}, reply[8] = {ICMP_ECHO_REPLY, [5] = 9};
static const uint8_t join[16] = {0x22, [7] = 1, [8] = 4, [12] = 239, 1, 2, 3},
                     leave[16] = {0x22, [7] = 1, [8] = 3, [12] = 239, 1, 2, 3};

static uint8_t *put_error(uint8_t *b)
{
        uint8_t quoting[64] = {ICMP_UNREACHABLE, 3},
                inner[3 + ETHER_HDR + IP_MIN_HDR + sizeof udp_in];

        put_packet(inner, 1, IP_PROTO_UDP, US, 0, udp_in, sizeof udp_in);
        memcpy(quoting + 8, inner + 3 + ETHER_HDR, 28);
        return put_packet(b, 0, IP_PROTO_ICMP, PEER, 0, quoting, 36);
}

static uint8_t *put_arp(uint8_t *b)
{
        static const uint8_t arp[28] = {0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 77, 0, 1};

        b[0] = 0;
        put16(b + 1, ETHER_HDR + sizeof arp);
        ether_write(b + 3, ether_broadcast, our_mac, ETHER_ARP);
        memcpy(b + 3 + ETHER_HDR, arp, sizeof arp);
        return b + 3 + ETHER_HDR + sizeof arp;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
        uint8_t *b = buf;

        switch (i) {
        case 0: /* fragments of both, with one identification */
                b = put_packet(b, 0, IP_PROTO_UDP, PEER, 0x2000, udp, sizeof udp);
                b = put_packet(b, 2, IP_PROTO_UDP, PEER, 0x2000, udp2, sizeof udp2);
                b = put_packet(b, 0, IP_PROTO_UDP, PEER, 3, udp, sizeof udp);
                b = put_packet(b, 2, IP_PROTO_UDP, PEER, 3, udp, sizeof udp);
                break;
        case 1:
                b = put_packet(b, 0, IP_PROTO_TCP, PEER, 0x4000, tcp, sizeof tcp);
                b = put_packet(b, 1, IP_PROTO_UDP, US, 0, udp_in, sizeof udp_in);
                b = put_error(b);
                break;
        case 2:
                b = put_packet(b, 0, IP_PROTO_ICMP, PEER, 0, echo, sizeof echo);
                b = put_packet(b, 2, IP_PROTO_ICMP, PEER, 0, echo, sizeof echo);
                b = put_packet(b, 1, IP_PROTO_ICMP, US, 0, reply, sizeof reply);
                b = put_packet(b, 0, IP_PROTO_ICMP, PEER, 0, reply, sizeof reply);
                break;
        case 3:
                b = put_packet(b, 0, IP_PROTO_IGMP, 0xe0000016, 0, join, sizeof join);
                b = put_packet(b, 2, IP_PROTO_IGMP, 0xe0000016, 0, leave, sizeof leave);
                b = put_packet(b, 0, IP_PROTO_IGMP, 0xe0000016, 0, leave, sizeof leave);
                break;
        case 4:
                b = put_arp(b);
                break;
        }
        return (size_t)(b - buf);
}
