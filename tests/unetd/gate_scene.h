/*
 * The world of the bridge's tests: a host with the address US that Alice's and Bob's stacks share.
 * Alice listens at WEB (TCP and UDP), Bob has leased LEASED (TCP).
 *
 * Frames are in memory of their own size, so that a sanitizer sees who reads beyond. Whoever takes
 * one frees it.
 */
#ifndef TESTS_UNETD_GATE_SCENE_H
#define TESTS_UNETD_GATE_SCENE_H

#include <stdlib.h>

#include "arp/ether.h"
#include "ip/icmp.h"
#include "tcp/tcp_hdr.h"
#include "unetd/bridge/gate_rules.h"
#include "unetd/client/proto.h"
#include "tests/unit.h"

enum { US = 0x0a4d0001, PEER = 0x0a4d0002, OTHER = 0x0a4d0003, ALICE = 11, BOB = 12 };
enum { WEB = 80, LEASED = 40000, NOBODYS = 7 };

extern uint32_t web_owner; /* ALICE, until a test says otherwise */
enum { MDNS_GROUP = 0xe00000fb, MDNS = 5353 };

extern struct gate_rules rules;
extern struct gate_sender alice, bob;
extern struct gate_groups groups;
extern nstime now;

int gate_setup(void **state);
int gate_teardown(void **state);
#define GATE_TEST(t) cmocka_unit_test_setup_teardown(t, gate_setup, gate_teardown)

struct frame {
        uint8_t *p;
        uint32_t len;
};

void put16(uint8_t *p, uint32_t v);
void put32(uint8_t *p, uint32_t v);
/* Of the IP header. */
void sum_ip(struct frame f);

/* Leaving (`out`) or coming: a packet; one of a protocol with ports; a TCP segment; an echo; an
 * ICMP message that quotes the packet of `inner`, which it takes. */
struct frame packet(bool out, uint8_t proto, uint32_t src, uint32_t dst, uint32_t l4_len);
struct frame ported(bool out, uint8_t proto, uint16_t ours, uint16_t theirs, uint32_t l4_len);
struct frame segment(bool out, uint16_t ours, uint16_t theirs, uint8_t flags);
struct frame echo(bool out, uint8_t type, uint16_t id);
struct frame quoting(bool out, uint8_t type, struct frame inner);
/* A request of ours. */
struct frame arp(uint32_t spa, uint8_t last_of_sha);

/* The sender sends the frame: DROP_NONE, or why it may not. */
enum drop leaves(struct gate_sender *who, struct frame f);
/* The frame comes: to whom. */
struct gate_way comes(struct frame f);

#define expect_passes(who, f)  assert_int_equal(leaves((who), (f)), DROP_NONE)
#define expect_refused(who, f) assert_int_equal(leaves((who), (f)), DROP_NI_BAD_SOURCE)
#define expect_to(s, f)                              \
        do {                                         \
                struct gate_way way_ = comes(f);     \
                assert_int_equal(way_.to, GATE_ONE); \
                assert_int_equal(way_.stack, (s));   \
        } while (0)
#define expect_way(t, f) assert_int_equal(comes(f).to, (t))

#endif
