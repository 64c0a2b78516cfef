/*
 * Two TCPs and the link between them, in virtual time, from a seed.
 *
 * The link drops, repeats, reorders and delays; segments travel as bytes (headers are written and
 * parsed) or, over a lossless link, as lent frames. pair_run() moves both applications on: each
 * writes a stream of bytes that follow from their position, reads what the other wrote, and checks
 * every byte.
 */
#ifndef TESTS_TCP_PAIR_H
#define TESTS_TCP_PAIR_H

#include "tests/tcp/rig.h"

struct pair_link {
        double drop, dup, reorder; /* probabilities */
        double mark;               /* ... that what is ECT becomes CE (RFC 3168 §5) */
        nstime delay, jitter;
        double death;  /* probability a step that a process dies inside, nothing half done */
        bool lossless; /* lent frames, in order */
        bool runs;     /* segments are asked for as for a link that takes runs: tcp_output_next() */
        uint16_t mss;
        /* Before `mtu_from` everything passes; then, and before `mtu_until` if that is not 0, a
         * packet of more than `mtu` bytes does not; with `tells` its sender hears of it by ICMP.
         * mtu 0: no such limit. */
        uint32_t mtu;
        nstime mtu_from, mtu_until;
        bool tells;
};

struct pair_app { /* one side's application */
        uint64_t to_write, written, to_read, read;
        uint32_t max_write, max_read; /* largest piece at a time */
        double idle;                  /* probability that it does nothing on a turn */
        bool shut, saw_end;
        int error;
};

struct packet {
        nstime at;
        uint64_t order;
        struct tcp_seg seg;
        uint32_t frame; /* lent: its number */
        uint8_t *bytes; /* else header and payload */
        uint32_t hlen, len;
        uint8_t ecn;
        uint32_t mtu, icmp_seq; /* mtu not 0: an ICMP error about a segment of `to` */
        int to;
};

struct pair {
        struct rig *rig[2];
        struct pair_app app[2];
        struct tcp_link link;
        struct tcp_opts opts[2];
        struct pair_link net;
        uint32_t conn[2], listener, first_listener;
        struct tcp_tuple tuple[2]; /* as each sees itself */
        uint64_t break_at; /* when so much was read by it, the server dies inside its connection */
        bool beyond_mending; /* and leaves numbers that make no sense */
        nstime now;
        uint64_t seed, order, sent_pkts;
        uint64_t next_pkts; /* of them, those that tcp_output_next() gave */
        uint64_t digest;    /* of all of them, and when */
        uint32_t largest;   /* packet that got through, with IP's header */
        struct packet *queue;
        unsigned queued, room;
};

struct pair *pair_new(const struct pair_link *net, const struct rig_size *size, uint64_t seed);
void pair_free(struct pair *p);
uint64_t pair_random(struct pair *p);
double pair_chance(struct pair *p);
/* Connects, moves both streams, closes. False when it stalled before `limit` of virtual time
 * was over. */
bool pair_run(struct pair *p, nstime limit);
/* Goes on with what pair_run() began and did not end. */
bool pair_run_on(struct pair *p, nstime limit);
/* One more connection, from another port of the client's, while the first is there; its
 * two ends. */
void pair_connect_more(struct pair *p, uint32_t conn[2]);
/* Writes up to n bytes (their value does not matter), or reads and throws away; bytes moved. */
uint32_t pair_pour(struct pair *p, int side, uint32_t conn, uint32_t n);
uint32_t pair_drain(struct pair *p, int side, uint32_t conn);
/* Runs on without applications, for TIME-WAIT and late frames. */
void pair_settle(struct pair *p, nstime for_how_long);

#endif
