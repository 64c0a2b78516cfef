/* A gateway's decisions: who may send what, whose what arrives is, what is answered, and what is
 * joined to one frame. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "arp/ether.h"
#include "base/checksum.h"
#include "tcp/tcp_hdr.h"
#include "unetd/bridge/gate_answer.h"
#include "unetd/bridge/gate_rules.h"
#include "unetd/bridge/gate_run.h"
#include "unetd/client/proto.h"

enum { US = 0x0a4d0001, PEER = 0x0a4d0002, OTHER = 0x0a4d0003, ALICE = 11, BOB = 12 };
enum { WEB = 80, LEASED = 40000, NOBODYS = 7 };

static const uint8_t our_mac[6] = {2, 0, 0, 0, 0, 1}, peer_mac[6] = {2, 0, 0, 0, 0, 2};

/* ---- the world: Alice listens at WEB (TCP and UDP), Bob has leased LEASED ---- */

static uint32_t web_owner;

static uint32_t owner(void *arg, uint8_t proto, uint16_t port, uint32_t hint)
{
        return port == WEB ? web_owner : port == LEASED && proto == IP_PROTO_TCP ? BOB : 0;
}

static bool may(void *arg, uint8_t proto, uint16_t port, uint32_t stack)
{
        return owner(arg, proto, port, 0) == stack;
}

enum { MDNS_GROUP = 0xe00000fb, MDNS = 5353 };

/* Alice has bound a socket to the group. */
static bool is_at(void *arg, uint32_t addr, uint16_t port, uint32_t stack)
{
        return addr == MDNS_GROUP && port == MDNS && stack == ALICE;
}

static struct gate_rules rules = {.addr = US, .owner = owner, .may = may, .is_at = is_at};
static struct gate_sender alice, bob;

static struct gate_groups groups;
static struct ip_ids ids;
static struct prng prng;
static nstime now;

static int setup(void **state)
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

static int teardown(void **state)
{
        free(rules.flows);
        return 0;
}

/* ---- frames, in memory of their own size: the sanitizer sees who reads beyond ---- */

struct frame {
        uint8_t *p;
        uint32_t len;
};

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

static void sum_ip(struct frame f)
{
        be16 sum;

        put16(f.p + 24, 0);
        sum = csum_finish(csum_partial(f.p + 14, (f.p[14] & 15u) * 4, 0));
        memcpy(f.p + 24, &sum, 2);
}

static struct frame packet(bool out, uint8_t proto, uint32_t src, uint32_t dst, uint32_t l4_len)
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

static struct frame ported(bool out, uint8_t proto, uint16_t ours, uint16_t theirs, uint32_t l4_len)
{
        struct frame f = packet(out, proto, out ? US : PEER, out ? PEER : US, l4_len);

        put16(f.p + 34, out ? ours : theirs);
        put16(f.p + 36, out ? theirs : ours);
        if (proto == IP_PROTO_UDP)
                put16(f.p + 38, l4_len);
        return f;
}

static struct frame segment(bool out, uint16_t ours, uint16_t theirs, uint8_t flags)
{
        struct frame f = ported(out, IP_PROTO_TCP, ours, theirs, 20);

        f.p[34 + 12] = 5 << 4;
        f.p[34 + 13] = flags;
        return f;
}

/* An ICMP message that quotes `inner`'s packet. */
static struct frame quoting(bool out, uint8_t type, struct frame inner)
{
        struct frame f =
                packet(out, IP_PROTO_ICMP, out ? US : PEER, out ? PEER : US, 8 + inner.len - 14);

        f.p[34] = type;
        memcpy(f.p + 42, inner.p + 14, inner.len - 14);
        free(inner.p);
        return f;
}

static enum drop leaves(struct gate_sender *who, struct frame f)
{
        enum drop why = gate_check(&rules, who, f.p, f.len, f.len, now);

        free(f.p);
        return why;
}

static struct gate_way comes(struct frame f)
{
        struct gate_way way = gate_route(&rules, f.p, f.len, 1);

        free(f.p);
        return way;
}

#define expect_passes(who, f)  assert_int_equal(leaves((who), (f)), DROP_NONE)
#define expect_refused(who, f) assert_int_equal(leaves((who), (f)), DROP_NI_BAD_SOURCE)
#define expect_to(s, f)                              \
        do {                                         \
                struct gate_way way_ = comes(f);     \
                assert_int_equal(way_.to, GATE_ONE); \
                assert_int_equal(way_.stack, (s));   \
        } while (0)
#define expect_way(t, f) assert_int_equal(comes(f).to, (t))

/* ---- out ---- */

static void ports_are_their_owners(void **state)
{
        expect_passes(&alice, segment(true, WEB, 5, TCP_SYN | TCP_ACK));
        expect_passes(&bob, segment(true, LEASED, 5, TCP_SYN));
        expect_passes(&alice, ported(true, IP_PROTO_UDP, WEB, 5, 20));
        expect_refused(&bob, segment(true, WEB, 6, TCP_SYN));
        expect_refused(&bob, segment(true, WEB, 5, TCP_RST));
        expect_refused(&alice, segment(true, LEASED, 5, TCP_ACK));
        expect_refused(&alice, segment(true, NOBODYS, 5, TCP_SYN));
        expect_refused(&bob, ported(true, IP_PROTO_UDP, WEB, 5, 20));
}

static void addresses_are_ours(void **state)
{
        struct frame f = segment(true, WEB, 5, TCP_ACK);

        put32(f.p + 26, OTHER);
        expect_refused(&alice, f);
        f = segment(true, WEB, 5, TCP_ACK);
        f.p[11] = 9; /* another MAC address */
        expect_refused(&alice, f);
        f = segment(true, WEB, 5, TCP_ACK);
        put16(f.p + 12, ETHER_IPV6);
        expect_refused(&alice, f);
        f = segment(true, WEB, 5, TCP_ACK);
        f.p[14] = 0x4f; /* a header longer than the packet */
        expect_refused(&alice, f);
        f = segment(true, WEB, 5, TCP_ACK);
        put16(f.p + 16, 2000); /* a packet longer than the frame */
        expect_refused(&alice, f);
        expect_refused(&alice, packet(true, 99, US, PEER, 20));
}

static struct frame arp(uint32_t spa, uint8_t last_of_sha)
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

static void arp_says_who_we_are(void **state)
{
        expect_passes(&alice, arp(US, 1));
        expect_passes(&alice, arp(0, 1));
        expect_refused(&alice, arp(PEER, 1));
        expect_refused(&alice, arp(US, 3));
}

/* A datagram of the sender's, in two fragments. */
enum { LAST_AT = 3 };

static struct frame first_fragment(uint16_t port, uint16_t id)
{
        struct frame f = ported(true, IP_PROTO_UDP, port, 5, 24);

        put16(f.p + 18, id);
        put16(f.p + 20, 0x2000);
        sum_ip(f);
        return f;
}

static struct frame later_fragment(uint8_t proto, uint16_t id)
{
        struct frame f = packet(true, proto, US, PEER, 24);

        put16(f.p + 18, id);
        put16(f.p + 20, LAST_AT);
        sum_ip(f);
        return f;
}

/* Its identification as it leaves; -1: it does not. Its header's sum is right. */
static int leaves_as(struct gate_sender *who, struct frame f)
{
        int id = -1;

        if (gate_check(&rules, who, f.p, f.len, f.len, now) == DROP_NONE) {
                assert_true(csum_finish(csum_partial(f.p + 14, 20, 0)).raw == 0);
                id = f.p[18] << 8 | f.p[19];
        }
        free(f.p);
        return id;
}

static void later_fragments_follow_their_first(void **state)
{
        int id;

        expect_refused(&alice, later_fragment(IP_PROTO_UDP, 77));
        id = leaves_as(&alice, first_fragment(WEB, 77));
        assert_true(id >= 0);
        for (int i = 0; i < 3; i++)
                assert_int_equal(leaves_as(&alice, later_fragment(IP_PROTO_UDP, 77)), id);
        expect_refused(&alice, later_fragment(IP_PROTO_UDP, 78));
        expect_refused(&alice, later_fragment(IP_PROTO_TCP, 77));
        expect_refused(&bob, later_fragment(IP_PROTO_UDP, 77));
}

/* The receiver joins fragments by addresses, protocol and identification, of which only the last
 * can tell stacks apart. */
static void fragments_of_two_stacks_are_never_joined(void **state)
{
        int alices, bobs;

        web_owner = BOB;
        bobs = leaves_as(&bob, first_fragment(WEB, 77));
        web_owner = ALICE;
        alices = leaves_as(&alice, first_fragment(WEB, 77));
        assert_int_not_equal(alices, bobs);
        assert_int_equal(leaves_as(&bob, later_fragment(IP_PROTO_UDP, 77)), bobs);
        assert_int_equal(leaves_as(&alice, later_fragment(IP_PROTO_UDP, 77)), alices);
        assert_int_not_equal(leaves_as(&alice, first_fragment(WEB, 77)), alices);
}

static void a_first_fragment_that_is_refused_opens_nothing(void **state)
{
        expect_refused(&bob, first_fragment(WEB, 77));
        expect_refused(&bob, later_fragment(IP_PROTO_UDP, 77));
}

static void a_first_fragment_is_forgotten_in_time(void **state)
{
        assert_true(leaves_as(&alice, first_fragment(WEB, 77)) >= 0);
        now += (GATE_FIRST_S - 1) * NS_PER_S;
        assert_true(leaves_as(&alice, later_fragment(IP_PROTO_UDP, 77)) >= 0);
        now += NS_PER_S;
        expect_refused(&alice, later_fragment(IP_PROTO_UDP, 77));
}

static void a_stack_has_few_first_fragments(void **state)
{
        for (uint16_t id = 0; id < 5; id++)
                assert_true(leaves_as(&alice, first_fragment(WEB, id)) >= 0);
        expect_refused(&alice, later_fragment(IP_PROTO_UDP, 0));
        assert_true(leaves_as(&alice, later_fragment(IP_PROTO_UDP, 1)) >= 0);
}

static void errors_are_about_what_came_for_the_sender(void **state)
{
        expect_passes(&alice,
                      quoting(true, ICMP_UNREACHABLE, ported(false, IP_PROTO_UDP, WEB, 5, 20)));
        expect_refused(&bob,
                       quoting(true, ICMP_UNREACHABLE, ported(false, IP_PROTO_UDP, WEB, 5, 20)));
        expect_refused(&alice, quoting(true, ICMP_UNREACHABLE, segment(false, LEASED, 5, TCP_ACK)));
        expect_refused(&alice,
                       quoting(true, ICMP_REDIRECT, ported(false, IP_PROTO_UDP, WEB, 5, 20)));
}

/* To somebody else than the sender of what it quotes; about what was never for us. */
static void errors_go_to_who_sent_what_they_quote_only(void **state)
{
        struct frame f = quoting(true, ICMP_UNREACHABLE, ported(false, IP_PROTO_UDP, WEB, 5, 20));

        put32(f.p + 30, OTHER);
        expect_refused(&alice, f);
        f = quoting(true, ICMP_UNREACHABLE, ported(false, IP_PROTO_UDP, WEB, 5, 20));
        put32(f.p + 42 + 16, OTHER);
        expect_refused(&alice, f);
}

/* ---- in ---- */

static void packets_go_to_who_has_the_port(void **state)
{
        expect_to(ALICE, segment(false, WEB, 5, TCP_SYN));
        expect_to(BOB, segment(false, LEASED, 5, TCP_ACK));
        expect_to(ALICE, ported(false, IP_PROTO_UDP, WEB, 5, 20));
        expect_way(GATE_OURS, segment(false, NOBODYS, 5, TCP_SYN));
        expect_way(GATE_OURS, ported(false, IP_PROTO_UDP, LEASED, 5, 20));
        expect_way(GATE_OURS, packet(false, 99, PEER, US, 20));
}

/* Somebody else listens at the port by now. */
static void connections_outlive_their_listener(void **state)
{
        expect_passes(&alice, segment(true, WEB, 5, TCP_SYN | TCP_ACK));
        web_owner = BOB;
        expect_to(ALICE, segment(false, WEB, 5, TCP_ACK));
        expect_passes(&alice, segment(true, WEB, 5, TCP_ACK));
        expect_to(BOB, segment(false, WEB, 6, TCP_SYN));
        expect_refused(&alice, segment(true, WEB, 6, TCP_ACK));
        expect_refused(&bob, segment(true, LEASED + 1, 6, TCP_ACK));
        gate_flows_forget(rules.flows, ALICE);
        expect_to(BOB, segment(false, WEB, 5, TCP_ACK));
}

/* A lease is of the ports, not of connections that others have there. */
static void a_lease_takes_no_connection(void **state)
{
        struct gate_key k = {.raddr = PEER, .local = LEASED, .remote = 5, .proto = IP_PROTO_TCP};

        gate_flow_note(rules.flows, &k, ALICE, GATE_STANDS, 1);
        assert_true(gate_flows_of_others(rules.flows, BOB, LEASED - 10, 64));
        assert_false(gate_flows_of_others(rules.flows, ALICE, LEASED - 10, 64));
        assert_false(gate_flows_of_others(rules.flows, BOB, LEASED + 1, 64));
        expect_to(ALICE, segment(false, LEASED, 5, TCP_ACK));
        expect_passes(&alice, segment(true, LEASED, 5, TCP_ACK));
        expect_refused(&bob, segment(true, LEASED, 5, TCP_SYN));
        expect_refused(&bob, segment(true, LEASED, 5, TCP_RST));
        expect_passes(&bob, segment(true, LEASED, 6, TCP_SYN));
        gate_flows_forget_ports(rules.flows, ALICE, LEASED - 10, 64);
        expect_to(BOB, segment(false, LEASED, 5, TCP_ACK));
        expect_passes(&bob, segment(true, LEASED, 5, TCP_SYN));
}

/* Alice left connections at her port, of all that may come: they begin with who has the
 * port now. */
static void a_connection_begins_with_who_has_the_port(void **state)
{
        struct gate_key k = {.raddr = PEER, .local = WEB, .remote = 5, .proto = IP_PROTO_TCP};

        gate_flow_note(rules.flows, &k, ALICE, GATE_STANDS, 1);
        web_owner = BOB;
        expect_to(ALICE, segment(false, WEB, 5, TCP_ACK));
        expect_to(ALICE, segment(false, WEB, 5, TCP_SYN | TCP_ACK));
        expect_to(BOB, segment(false, WEB, 5, TCP_SYN));
        expect_passes(&bob, segment(true, WEB, 5, TCP_SYN | TCP_ACK));
        expect_to(BOB, segment(false, WEB, 5, TCP_ACK));
        expect_refused(&alice, segment(true, WEB, 5, TCP_ACK));
}

/* Of as many connections as there may be, none of which is one. The victim has few; the listener
 * that they came to is gone. */
static void a_flood_takes_no_connection(void **state)
{
        enum { FEW = 100, FLOOD = 4 * (int)GATE_FLOWS, STACKS = 64 };
        const uint32_t mallory = 7 * UNETD_STACKS_OF_USER;

        for (uint16_t i = 1; i <= FEW; i++)
                expect_passes(&alice, segment(true, WEB, i, TCP_ACK));
        for (uint32_t i = 0; i < FLOOD; i++) {
                struct gate_key k = {.raddr = OTHER + i / 50000,
                                     .local = LEASED,
                                     .remote = (uint16_t)(i % 50000),
                                     .proto = IP_PROTO_TCP};

                gate_flow_note(rules.flows, &k, mallory + i % STACKS, GATE_STANDS, 100);
        }
        web_owner = BOB;
        for (uint16_t i = 1; i <= FEW; i++) {
                expect_to(ALICE, segment(false, WEB, i, TCP_ACK));
                expect_passes(&alice, segment(true, WEB, i, TCP_ACK));
        }
}

static uint32_t flows_of(uint32_t stack)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < GATE_FLOWS; i++)
                n += rules.flows->slot[i].stack == stack;
        return n;
}

static void note_many(uint32_t raddr, uint16_t local, uint32_t stack, enum gate_stage stage)
{
        for (uint32_t i = 0; i < 4 * GATE_FLOWS; i++) {
                struct gate_key k = {.raddr = raddr + i / 50000,
                                     .local = local,
                                     .remote = (uint16_t)(i % 50000),
                                     .proto = IP_PROTO_TCP};

                gate_flow_note(rules.flows, &k, stack, stage, 1 + (stage == GATE_ASKED));
        }
}

/* Alice has all that the table holds, and somebody sends SYNs to Bob, who answers. */
static void a_flood_of_syns_takes_one_place_in_eight(void **state)
{
        const uint32_t other = 7 * UNETD_STACKS_OF_USER;
        uint32_t before;

        note_many(OTHER, WEB, ALICE, GATE_STANDS);
        before = flows_of(ALICE);
        assert_true(before > GATE_FLOWS - GATE_FLOWS / GATE_WAYS);
        note_many(PEER, LEASED, other, GATE_ASKED);
        assert_in_range(flows_of(other), 1, GATE_FLOWS / GATE_WAYS + GATE_FLOWS - before);
        assert_true(flows_of(ALICE) >= before - GATE_FLOWS / GATE_WAYS);
}

static void errors_go_to_who_sent_what_they_quote(void **state)
{
        expect_to(ALICE, quoting(false, ICMP_UNREACHABLE, ported(true, IP_PROTO_UDP, WEB, 5, 20)));
        expect_to(BOB, quoting(false, ICMP_TIME_EXCEEDED, segment(true, LEASED, 5, TCP_ACK)));
        expect_way(GATE_NOBODY,
                   quoting(false, ICMP_UNREACHABLE, segment(true, NOBODYS, 5, TCP_ACK)));
        expect_way(GATE_NOBODY,
                   quoting(false, ICMP_UNREACHABLE, ported(false, IP_PROTO_UDP, WEB, 5, 20)));
        expect_way(GATE_NOBODY,
                   quoting(false, ICMP_REDIRECT, ported(true, IP_PROTO_UDP, WEB, 5, 20)));
}

static struct frame echo(bool out, uint8_t type, uint16_t id)
{
        struct frame f = packet(out, IP_PROTO_ICMP, out ? US : PEER, out ? PEER : US, 16);

        f.p[34] = type;
        put16(f.p + 38, id);
        return f;
}

static void echoes(void **state)
{
        expect_way(GATE_OURS, echo(false, ICMP_ECHO_REQUEST, 9));
        expect_way(GATE_NOBODY, echo(false, ICMP_ECHO_REPLY, 9));
        expect_passes(&bob, echo(true, ICMP_ECHO_REQUEST, 9));
        expect_to(BOB, echo(false, ICMP_ECHO_REPLY, 9));
        expect_way(GATE_NOBODY, echo(false, ICMP_ECHO_REPLY, 10));
}

static void the_host_answers_echoes_itself(void **state)
{
        expect_passes(&bob, echo(true, ICMP_ECHO_REQUEST, 9));
        expect_refused(&bob, echo(true, ICMP_ECHO_REPLY, 9));
        expect_refused(&alice, echo(true, ICMP_ECHO_REPLY, 9));
}

static void nobody_takes_the_answers_to_anothers_echoes(void **state)
{
        expect_passes(&bob, echo(true, ICMP_ECHO_REQUEST, 9));
        now += 59 * NS_PER_S;
        expect_refused(&alice, echo(true, ICMP_ECHO_REQUEST, 9));
        expect_passes(&alice, echo(true, ICMP_ECHO_REQUEST, 10));
        expect_to(BOB, echo(false, ICMP_ECHO_REPLY, 9));
        gate_flows_forget(rules.flows, BOB);
        expect_passes(&alice, echo(true, ICMP_ECHO_REQUEST, 9));
}

/* Whatever Alice asks for, most of the 65,536 identifiers are Bob's to take. */
static void nobody_uses_up_the_identifiers_of_echoes(void **state)
{
        uint32_t refused = 0;

        for (uint32_t id = 0; id < 0x10000; id++)
                expect_passes(&alice, echo(true, ICMP_ECHO_REQUEST, (uint16_t)id));
        for (uint32_t id = 0; id < 0x10000; id += 64)
                refused += leaves(&bob, echo(true, ICMP_ECHO_REQUEST, (uint16_t)id)) != DROP_NONE;
        assert_in_range(refused, 0, 64);
}

/* ---- IGMP ---- */

enum { GROUP = 0xef010203, V1 = 0x12, V2 = 0x16, LEAVE = 0x17, V3 = 0x22, QUERY = 0x11 };
enum { IS_EX = 2, TO_IN = 3, TO_EX = 4, ALLOW = 5, BLOCK = 6 };

/* Of version 3, with one record; `type` is the message's or, from the left byte, the record's. */
static struct frame igmp(uint32_t dst, uint8_t type, uint8_t record)
{
        struct frame f = packet(true, IP_PROTO_IGMP, US, dst, type == V3 ? 16 : 8);

        ether_multicast_v4(dst, f.p);
        f.p[22] = 1;
        f.p[34] = type;
        if (type == V3) {
                f.p[34 + 7] = 1;
                f.p[34 + 8] = record;
        }
        put32(f.p + f.len - 4, GROUP);
        return f;
}

static void groups_are_joined(void **state)
{
        struct frame f;

        expect_passes(&alice, igmp(GROUP, V1, 0));
        expect_passes(&alice, igmp(GROUP, V2, 0));
        for (uint8_t record = IS_EX; record <= BLOCK; record++)
                expect_passes(&alice, igmp(0xe0000016, V3, record));
        expect_refused(&alice, igmp(GROUP + 1, V2, 0)); /* not where it belongs */
        expect_refused(&alice, igmp(PEER, V3, IS_EX));
        f = igmp(GROUP, V2, 0);
        f.p[22] = 2;
        expect_refused(&alice, f);
}

static void routers_words_are_not_a_stacks(void **state)
{
        static const uint8_t types[] = {QUERY, 0x13, 0x14, 0x30, 0x31, 0x32};

        for (size_t i = 0; i < sizeof types; i++)
                expect_refused(&alice, igmp(GROUP, types[i], 0));
        expect_refused(&alice, igmp(0xe0000001, QUERY, 0));
}

static void no_stack_leaves_for_another(void **state)
{
        expect_passes(&alice, igmp(0xe0000016, V3, TO_EX));
        expect_refused(&bob, igmp(0xe0000002, LEAVE, 0));
        expect_refused(&bob, igmp(0xe0000016, V3, TO_IN));
        expect_refused(&bob, igmp(0xe0000016, V3, BLOCK));
        expect_passes(&bob, igmp(0xe0000016, V3, TO_EX));
        expect_refused(&alice, igmp(0xe0000016, V3, TO_IN)); /* Bob is a member still */
        gate_groups_forget(&groups, BOB);
        expect_passes(&alice, igmp(0xe0000016, V3, TO_IN));
        expect_passes(&bob, igmp(0xe0000002, LEAVE, 0));
}

static void damaged_reports(void **state)
{
        struct frame f;

        for (uint32_t n = 0; n < 16; n++) { /* cut off anywhere */
                f = igmp(0xe0000016, V3, IS_EX);
                f.len = 34 + n;
                put16(f.p + 16, 20 + n);
                expect_refused(&alice, f);
        }
        f = igmp(0xe0000016, V3, IS_EX);
        f.p[34 + 7] = 2; /* a record that is not there */
        expect_refused(&alice, f);
        f = igmp(0xe0000016, V3, IS_EX);
        f.p[34 + 11] = 1; /* nor is that source */
        expect_refused(&alice, f);
        f = igmp(0xe0000016, V3, IS_EX);
        put16(f.p + 20, 0x2000);
        expect_refused(&alice, f);
}

/* What one stack says takes no room from another. */
static void a_stack_has_few_groups(void **state)
{
        for (uint32_t i = 0; i < 100; i++) {
                struct frame f = igmp(GROUP + i, V2, 0);
                put32(f.p + f.len - 4, GROUP + i);
                expect_passes(&alice, f);
        }
        assert_int_equal(groups.n, GATE_GROUPS_EACH);
}

static void nobody_takes_all_places_for_groups(void **state)
{
        struct gate_sender mallory = {.stack = 7 * UNETD_STACKS_OF_USER};

        for (uint32_t i = 0; i < 2 * GATE_GROUPS; i++) {
                struct frame f = igmp(GROUP + 1 + i, V2, 0);

                mallory.stack += i % GATE_GROUPS_EACH == 0;
                put32(f.p + f.len - 4, GROUP + 1 + i);
                expect_passes(&mallory, f);
        }
        assert_int_equal(groups.n, GATE_GROUPS / 2);
        expect_passes(&alice, igmp(GROUP, V2, 0));
        expect_refused(&mallory, igmp(0xe0000002, LEAVE, 0));
}

static struct frame to_group(uint32_t group, uint16_t port)
{
        struct frame f = ported(true, IP_PROTO_UDP, port, MDNS, 20);

        ether_multicast_v4(group, f.p);
        put32(f.p + 30, group);
        return f;
}

static void to_a_group_nobody_speaks_from_anothers_port(void **state)
{
        expect_passes(&alice, to_group(MDNS_GROUP, MDNS));
        expect_passes(&alice, to_group(MDNS_GROUP, WEB));
        expect_refused(&alice, to_group(MDNS_GROUP + 1, MDNS));
        expect_refused(&bob, to_group(MDNS_GROUP, MDNS));
}

static void what_is_for_several_goes_to_all(void **state)
{
        struct frame f = ported(false, IP_PROTO_UDP, 5353, 5353, 20);
        uint8_t group[6];

        ether_multicast_v4(0xe00000fb, group);
        memcpy(f.p, group, 6);
        put32(f.p + 30, 0xe00000fb);
        expect_way(GATE_ALL, f);
        f = segment(false, WEB, 5, TCP_SYN);
        memcpy(f.p, ether_broadcast, 6);
        expect_way(GATE_NOBODY, f);
        f = segment(false, WEB, 5, TCP_SYN);
        put32(f.p + 30, OTHER);
        expect_way(GATE_NOBODY, f);
        f = segment(false, WEB, 5, TCP_SYN);
        f.p[5] = 9;
        expect_way(GATE_NOBODY, f);
        f = segment(false, WEB, 5, TCP_SYN);
        put16(f.p + 20, 0x2000);
        expect_way(GATE_NOBODY, f);
}

/* Cut anywhere, with bytes of any value: nothing is read that is not there, and nothing damaged
 * gets out as another's. */
static void damaged_frames(void **state)
{
        uint64_t r = 42;

        for (int i = 0; i < 200000; i++) {
                bool out = i & 1;
                struct frame f = i % 3 == 0   ? quoting(out, ICMP_UNREACHABLE,
                                                        ported(!out, IP_PROTO_UDP, WEB, 5, 20))
                                 : i % 3 == 1 ? segment(out, WEB, 5, TCP_ACK)
                                              : arp(US, 1);
                struct frame cut;
                for (int k = 0; k < 3; k++) {
                        r = r * 6364136223846793005u + 1442695040888963407u;
                        f.p[12 + (r >> 33) % (f.len - 12)] = (uint8_t)(r >> 56);
                }
                cut.len = (uint32_t)(r >> 40) % (f.len + 1);
                cut.p = malloc(cut.len ? cut.len : 1);
                memcpy(cut.p, f.p, cut.len);
                free(f.p);
                if (out)
                        leaves(&bob, cut);
                else
                        comes(cut);
        }
}

/* ---- the table of connections ---- */

static struct gate_key key(uint32_t n)
{
        return (struct gate_key){.raddr = n, .local = WEB, .remote = 5, .proto = IP_PROTO_TCP};
}

/* A flood of SYNs that were answered does not push out connections that stand. */
static void those_that_stand_stay(void **state)
{
        struct gate_key k;
        uint32_t kept = 0;

        for (uint32_t i = 0; i < 1000; i++) {
                k = key(i);
                gate_flow_note(rules.flows, &k, ALICE, GATE_STANDS, 1);
        }
        for (uint32_t i = 0; i < 4 * GATE_FLOWS; i++) {
                k = key(1u << 24 | i);
                gate_flow_note(rules.flows, &k, BOB, GATE_ASKED, 2);
        }
        for (uint32_t i = 0; i < 1000; i++) {
                k = key(i);
                kept += gate_flow_find(rules.flows, &k, 3) != NULL;
        }
        assert_int_equal(kept, 1000);
}

/* ---- answers ---- */

#define TTL 33 /* the host's, as it is configured */

static struct gate_answerer answerer;
static struct counters cnt;

static int setup_answers(void **state)
{
        static const uint8_t seed[32] = {7};

        cnt = (struct counters){{0}, {0}};
        gate_answerer_init(&answerer, (struct ip_ifaddr){US, 24}, true, TTL, seed, &cnt);
        return 0;
}

static void sum_l4(struct frame f, unsigned field_at)
{
        uint32_t n = f.len - 34;
        uint32_t pseudo = f.p[23] == IP_PROTO_ICMP
                                  ? 0
                                  : csum_pseudo(ip_addr_v4(PEER), ip_addr_v4(US), f.p[23], n);
        be16 sum = {0};

        memcpy(f.p + 34 + field_at, &sum, 2);
        sum = csum_finish(csum_partial(f.p + 34, n, pseudo));
        memcpy(f.p + 34 + field_at, &sum, 2);
}

static uint32_t answered(struct frame f, uint8_t out[GATE_ANSWER_MAX])
{
        uint32_t n = gate_answer(&answerer, f.p + 14, f.len - 14, NS_PER_S, out);

        free(f.p);
        return n;
}

static uint32_t get32(const uint8_t *p)
{
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* From us, to the peer, of this protocol, summed. */
static void check_answer(const uint8_t *p, uint32_t n, uint8_t proto)
{
        assert_true(n >= 28 && p[0] == 0x45 && (uint32_t)(p[2] << 8 | p[3]) == n && p[9] == proto);
        assert_int_equal(p[8], TTL);
        assert_int_equal(get32(p + 12), US);
        assert_int_equal(get32(p + 16), PEER);
        assert_int_equal(csum_finish(csum_partial(p, 20, 0)).raw, 0);
        if (proto == IP_PROTO_ICMP)
                assert_int_equal(csum_finish(csum_partial(p + 20, n - 20, 0)).raw, 0);
}

static void a_closed_port_resets(void **state)
{
        uint8_t out[GATE_ANSWER_MAX];
        struct frame f = segment(false, NOBODYS, 5, TCP_SYN);
        struct tcp_seg seg;

        put32(f.p + 38, 1000);
        sum_l4(f, 16);
        check_answer(out, answered(f, out), IP_PROTO_TCP);
        assert_int_equal(tcp_hdr_parse(out + 20, 20, &seg), 20);
        assert_int_equal(seg.flags, TCP_RST | TCP_ACK);
        assert_int_equal(seg.ack, 1001);
        assert_true(seg.sport == NOBODYS && seg.dport == 5);
        f = segment(false, NOBODYS, 5, TCP_ACK);
        put32(f.p + 42, 4242);
        sum_l4(f, 16);
        check_answer(out, answered(f, out), IP_PROTO_TCP);
        tcp_hdr_parse(out + 20, 20, &seg);
        assert_true(seg.flags == TCP_RST && seg.seq == 4242);
        f = segment(false, NOBODYS, 5, TCP_RST);
        sum_l4(f, 16);
        assert_int_equal(answered(f, out), 0);
        assert_int_equal(answered(segment(false, NOBODYS, 5, TCP_SYN), out), 0); /* not summed */
        assert_int_equal(cnt.drop[DROP_TCP_CHECKSUM], 1);
}

static void a_datagram_for_nobody_is_answered(void **state)
{
        uint8_t out[GATE_ANSWER_MAX];
        struct frame f = ported(false, IP_PROTO_UDP, NOBODYS, 5, 600);

        sum_l4(f, 6);
        check_answer(out, answered(f, out), IP_PROTO_ICMP);
        assert_true(out[20] == ICMP_UNREACHABLE && out[21] == ICMP_PORT_UNREACHABLE);
        assert_int_equal(get32(out + 28 + 12), PEER);
        check_answer(out, answered(packet(false, 99, PEER, US, 8), out), IP_PROTO_ICMP);
        assert_true(out[20] == ICMP_UNREACHABLE && out[21] == ICMP_PROTOCOL_UNREACHABLE);
        f = ported(false, IP_PROTO_UDP, NOBODYS, 5, 20);
        f.p[26] = 127; /* from a loopback address */
        sum_ip(f);
        assert_int_equal(answered(f, out), 0);
}

/* By ip/'s limits, as a stack's are. */
static void errors_are_limited(void **state)
{
        uint8_t out[GATE_ANSWER_MAX];
        unsigned n = 0;

        for (unsigned i = 0; i < 1000; i++) {
                struct frame f = ported(false, IP_PROTO_UDP, NOBODYS, 5, 600);
                sum_l4(f, 6);
                n += answered(f, out) != 0;
        }
        assert_true(n > 0 && n <= ICMP_PEER_BURST);
        assert_int_equal(cnt.drop[DROP_ICMP_RATE], 1000 - n);
        assert_int_equal(cnt.n[COUNT_ICMP_OUT], n);
}

static void echoes_come_back(void **state)
{
        uint8_t out[GATE_ANSWER_MAX];
        struct frame f = echo(false, ICMP_ECHO_REQUEST, 9);

        sum_l4(f, 2);
        check_answer(out, answered(f, out), IP_PROTO_ICMP);
        assert_true(out[20] == ICMP_ECHO_REPLY && out[25] == 9);
        assert_int_equal(answered(echo(false, ICMP_ECHO_REQUEST, 9), out), 0);
        assert_int_equal(cnt.drop[DROP_ICMP_CHECKSUM], 1);
}

/* ---- runs ---- */

static struct gate_out gather;
static uint8_t payload[64 * 1448];

static struct frame data(uint32_t seq, uint8_t flags)
{
        struct frame f = segment(true, WEB, 5, flags);

        put32(f.p + 38, seq);
        return f;
}

/* A segment of `len` bytes at `seq`, as a stack sends it. */
static void add(uint32_t seq, uint32_t len, uint8_t flags)
{
        struct frame f = data(seq, flags);

        put16(f.p + 16, 40 + len);
        sum_ip(f);
        assert_true(gate_out_add(&gather, f.p, f.len, payload + seq, len));
        free(f.p);
}

static void segments_become_one_frame(void **state)
{
        const struct gate_out_frame *f = &gather.frame[0];
        uint32_t sum;

        gather.n = 0;
        for (uint32_t i = 0; i < 10; i++)
                add(i * 1448, 1448, TCP_ACK);
        add(14480, 100, TCP_ACK | TCP_PSH);
        assert_int_equal(gather.n, 1);
        gate_out_finish(&gather, 0);
        assert_int_equal(f->segs, 11);
        assert_true(f->how.gso_size == 1448 && f->how.gso_type == VIRTIO_NET_HDR_GSO_TCPV4 &&
                    f->how.csum_start == 34 && f->how.hdr_len == 54);
        assert_int_equal((f->head[16] << 8 | f->head[17]), 40 + 14580);
        assert_int_equal(csum_finish(csum_partial(f->head + 14, 20, 0)).raw, 0);
        assert_int_equal(f->head[47], TCP_ACK | TCP_PSH);
        sum = csum_pseudo(ip_addr_v4(US), ip_addr_v4(PEER), IP_PROTO_TCP, 20 + 14580);
        assert_int_equal((be16){*(const uint16_t *)(const void *)(f->head + 50)}.raw,
                         csum_fold(sum));
        assert_int_equal(f->niov, 2 + 11);
        for (uint32_t i = 0; i < 11; i++)
                assert_ptr_equal(f->iov[2 + i].iov_base, payload + i * 1448);
}

static void a_run_ends(void **state)
{
        struct frame f;

        gather.n = 0;
        add(0, 1448, TCP_ACK);
        add(1448, 100, TCP_ACK);
        add(1548, 1448, TCP_ACK);            /* behind a shorter one */
        add(1548 + 2 * 1448, 1448, TCP_ACK); /* behind a gap */
        add(1548 + 3 * 1448, 1448, TCP_ACK | TCP_FIN);
        add(1548 + 4 * 1448, 1448, TCP_ACK);
        f = data(1548 + 5 * 1448, TCP_ACK);
        put16(f.p + 48, 99); /* another window */
        put16(f.p + 16, 40 + 1448);
        sum_ip(f);
        assert_true(gate_out_add(&gather, f.p, f.len, payload, 1448));
        free(f.p);
        assert_int_equal(gather.n, 6);
        gate_out_finish(&gather, 1);
        assert_int_equal(gather.frame[1].how.gso_type, 0);
        gather.n = 0;
        for (uint32_t i = 0; i < 50; i++)
                add(i * 1448, 1448, TCP_ACK);
        assert_int_equal(gather.n, 2);
        assert_true(gather.frame[0].payload <= 65535 - 80 &&
                    gather.frame[0].payload + gather.frame[1].payload == 50 * 1448);
}

int main(void)
{
#define RULE(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
        const struct CMUnitTest tests[] = {
                RULE(ports_are_their_owners),
                RULE(addresses_are_ours),
                RULE(arp_says_who_we_are),
                RULE(later_fragments_follow_their_first),
                RULE(fragments_of_two_stacks_are_never_joined),
                RULE(a_first_fragment_that_is_refused_opens_nothing),
                RULE(a_first_fragment_is_forgotten_in_time),
                RULE(a_stack_has_few_first_fragments),
                RULE(errors_are_about_what_came_for_the_sender),
                RULE(errors_go_to_who_sent_what_they_quote_only),
                RULE(packets_go_to_who_has_the_port),
                RULE(connections_outlive_their_listener),
                RULE(a_lease_takes_no_connection),
                RULE(a_connection_begins_with_who_has_the_port),
                RULE(a_flood_takes_no_connection),
                RULE(a_flood_of_syns_takes_one_place_in_eight),
                RULE(errors_go_to_who_sent_what_they_quote),
                RULE(echoes),
                RULE(the_host_answers_echoes_itself),
                RULE(nobody_takes_the_answers_to_anothers_echoes),
                RULE(nobody_uses_up_the_identifiers_of_echoes),
                RULE(groups_are_joined),
                RULE(routers_words_are_not_a_stacks),
                RULE(no_stack_leaves_for_another),
                RULE(damaged_reports),
                RULE(a_stack_has_few_groups),
                RULE(nobody_takes_all_places_for_groups),
                RULE(to_a_group_nobody_speaks_from_anothers_port),
                RULE(what_is_for_several_goes_to_all),
                RULE(damaged_frames),
                RULE(those_that_stand_stay),
                cmocka_unit_test_setup(a_closed_port_resets, setup_answers),
                cmocka_unit_test_setup(a_datagram_for_nobody_is_answered, setup_answers),
                cmocka_unit_test_setup(errors_are_limited, setup_answers),
                cmocka_unit_test_setup(echoes_come_back, setup_answers),
                cmocka_unit_test(segments_become_one_frame),
                cmocka_unit_test(a_run_ends),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
