/*
 * A server whose listener has a group, and clients: what the tests of groups' limits play with. A
 * client's flow has its own bytes both ways, so that a byte of another one's is seen.
 */
#ifndef TESTS_SIM_SHARES_H
#define TESTS_SIM_SHARES_H

#include "base/prng.h"
#include "tests/sim/pair.h"

#define CLIENT 0
#define SERVER 1
#define PORT   80
#define FIRST  40000u /* port of the first client */
#define MOST   10u    /* clients of a play */
#define FLOWS  40u
#define PROC   1u /* who borrows */
#define LOANS  64u
#define POOL   (400u << 10) /* what a scripted group has beyond its members' least */

struct flow {
        uint32_t client, server; /* 0: not connected, not accepted; or over */
        uint64_t total, written, read, promised;
        uint64_t back, answered, heard; /* the other way */
        uint64_t loan[LOANS];
        uint32_t loans;
        bool closed;
};

struct play {
        struct pair *p;
        struct prng_fast rnd;
        uint64_t seed;
        uint32_t listener, group;
        struct tcp_group_limits limits;
        struct flow flow[FLOWS];
        uint32_t n;
};

uint32_t below(struct play *k, uint32_t n);
/* Says what is wrong, and of which flow (NULL: of none), and ends. */
_Noreturn void wrong(const struct play *k, const struct flow *f, const char *what);
struct tcp *server(struct play *k);
struct tcp *client(struct play *k);
/* The server's side of a flow. */
struct tcp_conn *conn(struct play *k, const struct flow *f);
/* What the server has to send leaves. */
void flush(struct play *k);
uint8_t byte_at(const struct play *k, const struct flow *f, uint64_t pos);
/* Asserts that the group holds no more than it may, and each member its least. */
void checks(struct play *k);
/* One client more. */
void connects(struct play *k);
void accepts(struct play *k);
/* Both sides close. */
void closes(struct play *k, struct flow *f);

/* ---- a scripted play, over a simulated link of 4 Gb/s ---- */

/* Begins with n clients that the server has accepted. */
void connects_all(struct play *k, uint32_t n, const struct tcp_group_limits *l);
/* Asserts that nothing is left. */
void ends_all(struct play *k);
void passes(struct play *k, nstime time);

#endif
