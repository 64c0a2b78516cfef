/*
 * The vocabulary of UDP scenarios: one stack's UDP, with private frames and frames lent by a peer
 * on channel CHAN. Datagrams are put in as the parser would give them; what was given back, touched
 * and counted can be asserted.
 */
#ifndef TESTS_UDP_SCENE_H
#define TESTS_UDP_SCENE_H

#include "udp/udp.h"
#include "tests/unit.h"

#define US    0x0a000001u
#define US_2  0x0a000007u
#define PEER  0x0a000002u
#define OTHER 0x0a000003u
#define CHAN  3u

struct scene {
        struct udp u;
        struct frames *frames;
        struct counters cnt;
        uint32_t touched; /* the last pcb, and how often any */
        unsigned touches;
        unsigned given_back;
        uint8_t lent[256]; /* by frame number: out with us */
        nstime now;
};

/* CMocka's setup and teardown. After teardown nothing is leaked: all frames are free and all lent
 * ones back.
 */
int scene_setup(void **state);
int scene_teardown(void **state);
/* Few private frames: `large` and `small`. */
void scene_frames(struct scene *s, uint32_t large, uint32_t small);

/* A pcb bound to addr (0: any) and port, with default options. */
uint32_t bound(struct scene *s, uint32_t addr, uint16_t port);
/* The same with SO_REUSEADDR or SO_REUSEPORT. */
uint32_t bound_reuse(struct scene *s, uint32_t addr, uint16_t port, bool reuseaddr, bool reuseport);
/* Connected besides. */
uint32_t connected(struct scene *s, uint32_t addr, uint16_t port, uint32_t peer,
                   uint16_t peer_port);

struct arrival {
        uint32_t src, dst;     /* PEER, US */
        uint16_t sport, dport; /* 4000, 53 */
        uint32_t len;          /* of the payload, a pattern that begins with `fill` */
        uint32_t in_frame;     /* how many of its last bytes are in a lent frame */
        bool small;            /* and that is a small one */
        uint8_t fill;
        uint8_t nopts; /* bytes of IP options, of the same pattern */
        bool shortly;  /* by udp_rx_short(), where that takes it */
};
enum udp_verdict arrives_(struct scene *s, struct arrival a);
#define arrives(s, ...) arrives_(s, (struct arrival){__VA_ARGS__})

/* Reads one datagram of `pcb` and asserts that it is this one; consumes it. */
void expect_read_(struct scene *s, uint32_t pcb, struct arrival a, const char *file, int line);
#define expect_read(s, pcb, ...) \
        expect_read_(s, pcb, (struct arrival){__VA_ARGS__}, __FILE__, __LINE__)
/* There is nothing to read. */
#define expect_nothing(s, pcb)                                                       \
        do {                                                                         \
                struct udp_msg msg_;                                                 \
                assert_int_equal(udp_recv_peek(&(s)->u, pcb, 0, &msg_, 1), -EAGAIN); \
        } while (0)
/* Every invariant of every pcb. */
void check_all(struct scene *s);

#endif
