/*
 * The vocabulary of ARP scenarios: one interface, what arrives, what leaves, and when. A link
 * address is a number n, 02:00:00:00:00:n on the wire; ALL is everybody's.
 */
#ifndef TESTS_ARP_SCENE_H
#define TESTS_ARP_SCENE_H

#include <errno.h>

#include "arp/arp.h"
#include "arp/ether.h"
#include "tests/unit.h"

#define US      0x0a000001u /* 10.0.0.1/24, link address 1 */
#define PEER    0x0a000002u /* link address 2 */
#define OTHER   0x0a000003u /* link address 3 */
#define FAR     0xc0a80105u /* on no network of ours */
#define OUR_LL  1
#define PEER_LL 2
#define ALL     0xff
#define T0      (1000 * NS_PER_S)

enum { REQUEST = 1, REPLY = 2 };

struct scene {
        struct arp a;
        struct arp_cache cache;
        struct counters cnt;
        nstime now;
};

/* CMocka's setup: US is bound, nothing is owed, it is T0. No address at all with scene_bare. */
int scene_setup(void **state);
int scene_bare(void **state);
int scene_teardown(void **state);

void ll_of(int n, uint8_t ll[6]);

/* An ARP packet from PEER that asks for US, unless told otherwise. */
struct arp_scene_pkt {
        uint16_t op;       /* 0: REQUEST */
        uint32_t spa, tpa; /* 0: PEER, US; ZERO: 0.0.0.0 */
        int sha, tha;      /* 0: 2 (PEER_LL), zeros */
        uint32_t len;      /* 0: 46, padded */
};
#define ZERO 0xffffff00u
size_t build_(uint8_t *p, struct arp_scene_pkt k);
/* It arrives now; checked is that the counters and the cache are whole. */
enum drop arrives_(struct scene *s, struct arp_scene_pkt k);
#define arrives(s, ...) arrives_(s, (struct arp_scene_pkt){__VA_ARGS__})

/* The next thing that leaves is this packet of ours, to link address `to`. */
struct arp_scene_sent {
        uint16_t op;
        uint32_t spa, tpa; /* 0: US, PEER; ZERO */
        int tha;
        int to; /* 0: ALL */
};
void expect_sent_(struct scene *s, struct arp_scene_sent k, const char *file, int line);
#define expect_sent(s, ...) \
        expect_sent_(s, (struct arp_scene_sent){__VA_ARGS__}, __FILE__, __LINE__)
#define expect_request(s, ip)  expect_sent(s, .op = REQUEST, .tpa = (ip))
#define expect_poll(s, ip, ll) expect_sent(s, .op = REQUEST, .tpa = (ip), .to = (ll))
/* The next thing is a waiting packet, `len` bytes of fill, sent to link address `to`, or
 * given up. */
void expect_packet_(struct scene *s, enum arp_what what, uint32_t ip, int to, uint32_t len,
                    uint8_t fill, const char *file, int line);
#define expect_released(s, ip, to, len, fill) \
        expect_packet_(s, ARP_OUT_RELEASE, ip, to, len, fill, __FILE__, __LINE__)
#define expect_unreachable(s, ip, len, fill) \
        expect_packet_(s, ARP_OUT_UNREACHABLE, ip, 0, len, fill, __FILE__, __LINE__)
/* The next thing is news of an address of ours. */
void expect_addr_(struct scene *s, uint32_t ip, enum arp_addr_state state, const char *file,
                  int line);
#define expect_addr(s, ip, state) expect_addr_(s, ip, state, __FILE__, __LINE__)
/* Nothing leaves. */
void expect_silence_(struct scene *s, const char *file, int line);
#define expect_silence(s) expect_silence_(s, __FILE__, __LINE__)

/* Time passes; timers run at each deadline in between. Nothing may be owed before the end. */
void advance_(struct scene *s, nstime by, const char *file, int line);
#define advance(s, by) advance_(s, by, __FILE__, __LINE__)
/* Time passes until something leaves; how long it took, at most `most`. */
nstime wait_output_(struct scene *s, nstime most, const char *file, int line);
#define wait_output(s, most) wait_output_(s, most, __FILE__, __LINE__)

/* arp_resolve() says `expect`; the ref is returned. Where it is 0, the link address is `ll`. */
struct arp_ref resolve_(struct scene *s, uint32_t ip, int expect, int ll, const char *file,
                        int line);
#define resolve(s, ip, expect, ll) resolve_(s, ip, expect, ll, __FILE__, __LINE__)
/* A packet of `len` bytes of `fill` to a neighbour that is being asked for: resolve, then hold. */
void send_waiting_(struct scene *s, uint32_t ip, uint32_t len, uint8_t fill, const char *file,
                   int line);
#define send_waiting(s, ip, len, fill) send_waiting_(s, ip, len, fill, __FILE__, __LINE__)

enum arp_state state_of(struct scene *s, uint32_t ip);
/* PEER is asked for and answers: REACHABLE, nothing owed. */
struct arp_ref make_reachable(struct scene *s, uint32_t ip, int ll);

#endif
