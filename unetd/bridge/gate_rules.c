/* See gate_rules.h. */
#include "unetd/bridge/gate_rules.h"

#include "arp/ether.h"
#include "base/checksum.h"
#include "base/planted.h"
#include "ip/icmp.h"
#include "ip/igmp.h"
#include "ip/ip.h"

enum {
        IP_ID_AT = 4,
        IP_TTL_AT = 8,
        IP_SUM_AT = 10,
        TCP_FLAGS_AT = 13,
        FLAG_SYN = 2,
        FLAG_RST = 4,
        FLAG_ACK = 16
};
enum { ARP_LEN = 28, ARP_REPLY_OP = 2 };

static_assert(ETHER_HDR + IGMP_MIN_ROOM <= GATE_HEAD, "reports of ours are there whole");

static uint32_t seconds(nstime now)
{
        return (uint32_t)(now / NS_PER_S);
}

/* ---- an IP header, and what is behind it ---- */

struct view {
        const uint8_t *ip, *l4;
        uint32_t left; /* bytes at hand from l4 on */
        uint32_t src, dst;
        uint16_t id, frag; /* frag: offset and MF, as on the wire */
        uint8_t proto;
};

/* The packet says to be of `most` bytes at most; `have` of them are here. */
static bool look(const uint8_t *p, uint32_t have, uint32_t most, struct view *v)
{
        uint32_t hdr = have >= IP_MIN_HDR ? (p[0] & 15u) * 4 : 0, total;

        if (hdr < IP_MIN_HDR || p[0] >> 4 != 4 || have < hdr)
                return false;
        total = be16_at(p + 2);
        if (total < hdr || total > most)
                return false;
        *v = (struct view){.ip = p,
                           .l4 = p + hdr,
                           .left = MIN(have, total) - hdr,
                           .src = be32_at(p + 12),
                           .dst = be32_at(p + 16),
                           .id = be16_at(p + 4),
                           .frag = be16_at(p + 6) & 0x3fff,
                           .proto = p[9]};
        return true;
}

/* The connection of a packet, `in` or out. Of ICMP, an echo's. False: it has none, or not enough of
 * it is here. */
static bool key_of(const struct view *v, bool in, struct gate_key *k)
{
        bool ports = v->proto == IP_PROTO_TCP || v->proto == IP_PROTO_UDP;

        if (v->left < 8 || (!ports && v->proto != IP_PROTO_ICMP))
                return false;
        *k = (struct gate_key){.raddr = in ? v->src : v->dst, .proto = v->proto};
        k->local = be16_at(v->l4 + (ports ? (in ? 2 : 0) : 4));
        k->remote = ports ? be16_at(v->l4 + (in ? 0 : 2)) : 0;
        return true;
}

/* The stack that a connection of ours belongs to; 0: none. A new connection belongs to the stack
 * that has the port now: what another one left there ends. */
static uint32_t owner_of(const struct gate_rules *g, const struct gate_key *k, bool begins,
                         uint32_t sec)
{
        struct gate_flow *f = k->proto != IP_PROTO_UDP ? gate_flow_find(g->flows, k, sec) : NULL;

        if (f != NULL && begins && !g->may(g->arg, k->proto, k->local, f->stack)) {
                f->stack = 0;
                f = NULL;
        }
        if (f != NULL)
                return f->stack;
        return k->proto != IP_PROTO_ICMP
                       ? g->owner(g->arg, k->proto, k->local, gate_flow_hash(g->flows, k))
                       : 0;
}

static bool is_syn(const struct view *v)
{
        return v->proto == IP_PROTO_TCP && v->left > TCP_FLAGS_AT &&
               (v->l4[TCP_FLAGS_AT] & (FLAG_SYN | FLAG_ACK)) == FLAG_SYN;
}

/* ---- out ---- */

static bool arp_is_ours(const struct gate_rules *g, const uint8_t *p, uint32_t have)
{
        uint32_t spa;

        if (have < ETHER_HDR + ARP_LEN)
                return false;
        p += ETHER_HDR;
        spa = be32_at(p + 14);
        return be32_at(p) == (1u << 16 | ETHER_IPV4) && be16_at(p + 4) == 0x0604 &&
               ether_eq(p + 8, g->mac) && (spa == g->addr || spa == 0);
}

static bool tcp_is_senders(const struct gate_rules *g, uint32_t stack, const struct view *v,
                           uint32_t sec)
{
        struct gate_key k;
        struct gate_flow *f;
        uint8_t flags;
        enum gate_stage stage;

        if (v->left < 20 || !key_of(v, false, &k))
                return false;
        flags = v->l4[TCP_FLAGS_AT];
        stage = flags & FLAG_RST ? GATE_ENDED : flags & FLAG_SYN ? GATE_ASKED : GATE_STANDS;
        f = gate_flow_find(g->flows, &k, sec);
        if (f != NULL && f->stack == stack) {
                if (stage == GATE_ENDED || stage > f->stage)
                        f->stage = (uint8_t)stage;
                return true;
        }
        if ((f != NULL && f->stage == GATE_STANDS) || !g->may(g->arg, k.proto, k.local, stack))
                return false;
        gate_flow_note(g->flows, &k, stack, stage, sec);
        return true;
}

#define ECHO_IDLE 60u /* seconds after which an echo's identifier may be another stack's */

/* Its answers come to who asked last: nobody takes those of another. */
static bool echo_is_senders(const struct gate_rules *g, uint32_t stack, const struct view *v,
                            uint32_t sec)
{
        const struct gate_flow *f;
        struct gate_key k;

        if (!key_of(v, false, &k))
                return false;
        f = gate_flow_peek(g->flows, &k);
        if (f != NULL && f->stack != stack && sec - f->used < ECHO_IDLE)
                return false;
        gate_flow_note(g->flows, &k, stack, GATE_STANDS, sec);
        return true;
}

static bool error_is_senders(const struct gate_rules *g, uint32_t stack, const struct view *v,
                             uint32_t sec)
{
        struct gate_key k;
        struct view quoted;

        return icmp_is_error(v->l4[0]) &&
               look(v->l4 + ICMP_HDR, v->left - ICMP_HDR, UINT16_MAX, &quoted) &&
               quoted.src == v->dst && quoted.dst == g->addr && key_of(&quoted, true, &k) &&
               owner_of(g, &k, false, sec) == stack;
}

static bool icmp_is_senders(const struct gate_rules *g, uint32_t stack, const struct view *v,
                            uint32_t sec)
{
        if (v->left < ICMP_HDR)
                return false;
        return v->l4[0] == ICMP_ECHO_REQUEST ? echo_is_senders(g, stack, v, sec)
                                             : error_is_senders(g, stack, v, sec);
}

/* A socket that is bound to a group's address also sends to the group. */
static bool is_at_group(const struct gate_rules *g, uint32_t stack, const struct view *v,
                        const struct gate_key *k)
{
        return ip_v4_multicast(v->dst) && g->is_at(g->arg, v->dst, k->local, stack);
}

static bool packet_is_senders(const struct gate_rules *g, struct gate_sender *from,
                              const struct view *v, uint32_t sec)
{
        struct gate_key k;

        switch (v->proto) {
        case IP_PROTO_TCP:
                return tcp_is_senders(g, from->stack, v, sec);
        case IP_PROTO_UDP:
                return key_of(v, false, &k) && (g->may(g->arg, k.proto, k.local, from->stack) ||
                                                is_at_group(g, from->stack, v, &k));
        case IP_PROTO_ICMP:
                return icmp_is_senders(g, from->stack, v, sec);
        case IP_PROTO_IGMP:
                return v->frag == 0 && v->ip[IP_TTL_AT] == 1 &&
                       v->left == be16_at(v->ip + 2) - (uint32_t)(v->l4 - v->ip) &&
                       gate_igmp_passes(g->groups, from->stack, v->dst, v->l4, v->left);
        default:
                return false;
        }
}

/* ---- fragments ---- */

/* The header's sum changes with it. A wrong one stays wrong. */
static void set_id(uint8_t *ip, uint16_t id)
{
        be16 sum, from, to = be16_of(id);

        memcpy(&sum, ip + IP_SUM_AT, sizeof sum);
        memcpy(&from, ip + IP_ID_AT, sizeof from);
        sum = csum_update16(sum, from, to);
        memcpy(ip + IP_SUM_AT, &sum, sizeof sum);
        memcpy(ip + IP_ID_AT, &to, sizeof to);
}

static uint16_t note_first(const struct gate_rules *g, struct gate_sender *from,
                           const struct view *v, nstime now)
{
        uint16_t id = ip_id_next(g->ids, g->prng, v->dst, v->src, v->proto, now);
        uint32_t i = from->next++ % ARRAY_LEN(from->first);

        from->first[i].dst = v->dst;
        from->first[i].sec = seconds(now);
        from->first[i].id = v->id;
        from->first[i].new_id = id;
        from->first[i].proto = v->proto;
        return id;
}

/* The latest first one with this identification; false: none. */
static bool find_first(const struct gate_sender *from, const struct view *v, uint32_t sec,
                       uint16_t *id)
{
        const uint32_t n = ARRAY_LEN(from->first);

        for (uint32_t back = 1; back <= n; back++) {
                uint32_t i = (from->next - back) % n;
                if (from->first[i].proto != v->proto || from->first[i].dst != v->dst ||
                    from->first[i].id != v->id)
                        continue;
                *id = from->first[i].new_id;
                return sec - from->first[i].sec < GATE_FIRST_S;
        }
        return false;
}

static bool fragment_is_senders(const struct gate_rules *g, struct gate_sender *from,
                                const struct view *v, uint8_t *ip, nstime now)
{
        uint16_t id;

        if ((v->frag & 0x1fff) != 0) {
                if (!find_first(from, v, seconds(now), &id))
                        return false;
        } else {
                if (!packet_is_senders(g, from, v, seconds(now)))
                        return false;
                id = note_first(g, from, v, now);
        }
        set_id(ip, id);
        return true;
}

enum drop gate_check(const struct gate_rules *g, struct gate_sender *from, uint8_t *p,
                     uint32_t have, uint32_t len, nstime now)
{
        struct ether_hdr h;
        struct view v;
        bool fine;

        if (ether_parse(p, have, &h) != DROP_NONE || !ether_eq(h.src, g->mac))
                return DROP_NI_BAD_SOURCE;
        if (h.type == ETHER_ARP)
                return arp_is_ours(g, p, have) ? DROP_NONE : DROP_NI_BAD_SOURCE;
        if (h.type != ETHER_IPV4 || !look(p + ETHER_HDR, have - ETHER_HDR, len - ETHER_HDR, &v) ||
            CHECKED(v.src != g->addr))
                return DROP_NI_BAD_SOURCE;
        if (v.frag != 0)
                fine = fragment_is_senders(g, from, &v, p + ETHER_HDR, now);
        else
                fine = packet_is_senders(g, from, &v, seconds(now));
        return fine ? DROP_NONE : DROP_NI_BAD_SOURCE;
}

/* ---- in ---- */

static struct gate_way nobody(enum drop why)
{
        return (struct gate_way){.to = GATE_NOBODY, .why = why};
}

static struct gate_way to_owner(uint32_t stack)
{
        return (struct gate_way){.to = stack != 0 ? GATE_ONE : GATE_OURS, .stack = stack};
}

static struct gate_way route_icmp(const struct gate_rules *g, const struct view *v, uint32_t sec)
{
        struct gate_key k;
        struct view quoted;
        uint32_t stack;

        if (v->left < ICMP_HDR || v->l4[0] == ICMP_ECHO_REQUEST)
                return (struct gate_way){.to = GATE_OURS};
        if (v->l4[0] == ICMP_ECHO_REPLY) {
                stack = key_of(v, true, &k) ? owner_of(g, &k, false, sec) : 0;
                return stack != 0 ? to_owner(stack) : nobody(DROP_ICMP_IGNORED);
        }
        if (!icmp_is_error(v->l4[0]) ||
            !look(v->l4 + ICMP_HDR, v->left - ICMP_HDR, UINT16_MAX, &quoted) ||
            quoted.src != g->addr || !key_of(&quoted, false, &k))
                return nobody(DROP_ICMP_IGNORED);
        stack = owner_of(g, &k, false, sec);
        return stack != 0 ? to_owner(stack) : nobody(DROP_ICMP_IGNORED);
}

static struct gate_way route_ip(const struct gate_rules *g, enum ether_cast cast,
                                const struct view *v, uint32_t sec)
{
        struct gate_key k;

        if (v->frag != 0)
                return nobody(DROP_IP_FRAGMENT);
        if (v->src == g->addr && v->dst != g->addr)
                return nobody(DROP_IP_MARTIAN); /* our own come from nowhere but here */
        if (cast != ETHER_TO_US || v->dst != g->addr)
                return v->proto == IP_PROTO_TCP ? nobody(DROP_TCP_BAD_ADDRESS)
                       : cast == ETHER_TO_US    ? nobody(DROP_IP_NOT_OURS)
                                                : (struct gate_way){.to = GATE_ALL};
        if (v->proto == IP_PROTO_ICMP)
                return route_icmp(g, v, sec);
        if (v->proto == IP_PROTO_IGMP)
                return (struct gate_way){.to = GATE_ALL};
        return to_owner(key_of(v, true, &k) ? owner_of(g, &k, is_syn(v), sec) : 0);
}

struct gate_way gate_route(const struct gate_rules *g, const uint8_t *p, uint32_t len, uint32_t sec)
{
        struct ether_hdr h;
        enum ether_cast cast;
        struct view v;
        enum drop why = ether_parse(p, len, &h);

        if (why != DROP_NONE)
                return nobody(why);
        cast = ether_cast_of(&h, g->mac);
        if (cast == ETHER_TO_OTHER)
                return nobody(DROP_ETHER_NOT_OURS);
        if (h.type == ETHER_ARP)
                return (struct gate_way){.to = GATE_ARP,
                                         .stack = len >= ETHER_HDR + 8 &&
                                                  be16_at(p + ETHER_HDR + 6) == ARP_REPLY_OP};
        if (h.type != ETHER_IPV4)
                return nobody(DROP_ETHER_TYPE);
        if (!look(p + ETHER_HDR, len - ETHER_HDR, len - ETHER_HDR, &v))
                return nobody(DROP_IP_HEADER);
        return route_ip(g, cast, &v, sec);
}
