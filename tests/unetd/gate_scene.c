#include "gate_scene.h"

#include "base/checksum.h"

uint32_t web_owner;
struct gate_sender alice, bob;
struct gate_groups groups;
nstime now;

static const uint8_t our_mac[6] = {2, 0, 0, 0, 0, 1}, peer_mac[6] = {2, 0, 0, 0, 0, 2};
static struct ip_ids ids;
static struct prng prng;

static uint32_t owner(void *arg, uint8_t proto, uint16_t port, uint32_t hint)
{
        return port == WEB ? web_owner : port == LEASED && proto == IP_PROTO_TCP ? BOB : 0;
}

static bool may(void *arg, uint8_t proto, uint16_t port, uint32_t stack)
{
        return owner(arg, proto, port, 0) == stack;
}

/* Alice has bound a socket to the group. */
static bool is_at(void *arg, uint32_t addr, uint16_t port, uint32_t stack)
{
        return addr == MDNS_GROUP && port == MDNS && stack == ALICE;
}

struct gate_rules rules = {.addr = US, .owner = owner, .may = may, .is_at = is_at};

int gate_setup(void **state)
{
        static const uint8_t seed[32] = {1, 2, 3};

        now = NS_PER_S;
        prng_init(&prng, seed);
        ip_ids_init(&ids, &prng);
        groups = (struct gate_groups){.n = 0};
        rules.groups = &groups;
        rules.ids = &ids;
        rules.prng = &prng;

        web_owner = ALICE;
        alice = (struct gate_sender){.stack = ALICE};
        bob = (struct gate_sender){.stack = BOB};
        memcpy(rules.mac, our_mac, sizeof rules.mac);
        rules.flows = calloc(1, sizeof *rules.flows);
        gate_flows_init(rules.flows, seed);
        return 0;
}

int gate_teardown(void **state)
{
        free(rules.flows);
        return 0;
}

void put16(uint8_t *p, uint32_t v)
{
        p[0] = (uint8_t)(v >> 8);
        p[1] = (uint8_t)v;
}

void put32(uint8_t *p, uint32_t v)
{
        put16(p, v >> 16);
        put16(p + 2, v);
}

void sum_ip(struct frame f)
{
        be16 sum;

        put16(f.p + 24, 0);
        sum = csum_finish(csum_partial(f.p + 14, (f.p[14] & 15u) * 4, 0));
        memcpy(f.p + 24, &sum, 2);
}

struct frame packet(bool out, uint8_t proto, uint32_t src, uint32_t dst, uint32_t l4_len)
{
        struct frame f = {calloc(1, 34 + l4_len), 34 + l4_len};

        ether_write(f.p, out ? peer_mac : our_mac, out ? our_mac : peer_mac, ETHER_IPV4);
        f.p[14] = 0x45;
        put16(f.p + 16, 20 + l4_len);
        put16(f.p + 20, proto == IP_PROTO_TCP ? 0x4000 : 0);
        f.p[22] = 64;
        f.p[23] = proto;
        put32(f.p + 26, src);
        put32(f.p + 30, dst);
        sum_ip(f);
        return f;
}

struct frame ported(bool out, uint8_t proto, uint16_t ours, uint16_t theirs, uint32_t l4_len)
{
        struct frame f = packet(out, proto, out ? US : PEER, out ? PEER : US, l4_len);

        put16(f.p + 34, out ? ours : theirs);
        put16(f.p + 36, out ? theirs : ours);
        if (proto == IP_PROTO_UDP)
                put16(f.p + 38, l4_len);
        return f;
}

struct frame segment(bool out, uint16_t ours, uint16_t theirs, uint8_t flags)
{
        struct frame f = ported(out, IP_PROTO_TCP, ours, theirs, 20);

        f.p[34 + 12] = 5 << 4;
        f.p[34 + 13] = flags;
        return f;
}

/* An ICMP message that quotes `inner`'s packet. */
struct frame quoting(bool out, uint8_t type, struct frame inner)
{
        struct frame f =
                packet(out, IP_PROTO_ICMP, out ? US : PEER, out ? PEER : US, 8 + inner.len - 14);

        f.p[34] = type;
        memcpy(f.p + 42, inner.p + 14, inner.len - 14);
        free(inner.p);
        return f;
}

struct frame arp(uint32_t spa, uint8_t last_of_sha)
{
        struct frame f = {calloc(1, 42), 42};

        ether_write(f.p, ether_broadcast, our_mac, ETHER_ARP);
        put16(f.p + 14, 1);
        put16(f.p + 16, ETHER_IPV4);
        put16(f.p + 18, 0x0604);
        put16(f.p + 20, 1);
        memcpy(f.p + 22, our_mac, 6);
        f.p[27] = last_of_sha;
        put32(f.p + 28, spa);
        return f;
}

struct frame echo(bool out, uint8_t type, uint16_t id)
{
        struct frame f = packet(out, IP_PROTO_ICMP, out ? US : PEER, out ? PEER : US, 16);

        f.p[34] = type;
        put16(f.p + 38, id);
        return f;
}

enum drop leaves(struct gate_sender *who, struct frame f)
{
        enum drop why = gate_check(&rules, who, f.p, f.len, f.len, now);

        free(f.p);
        return why;
}

struct gate_way comes(struct frame f)
{
        struct gate_way way = gate_route(&rules, f.p, f.len, 1);

        free(f.p);
        return way;
}
