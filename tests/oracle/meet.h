/*
 * Our stack (side 0 of a pair) and lwIP (in the place of side 1) on one simulated link.
 *
 * Every packet that our stack sends is verified by lwIP's checksum functions on its way.
 */
#ifndef TESTS_ORACLE_MEET_H
#define TESTS_ORACLE_MEET_H

#include "tests/oracle/lwip_side.h"
#include "tests/sim/pair.h"

#define MEET_US   0x0a000001u
#define MEET_LWIP 0x0a000002u

struct meet {
        struct pair *p;
        struct stack *s; /* ours */
        uint64_t sent;   /* packets of ours, all with right checksums */
};

/* dir[0] is from us to lwIP. */
struct meet *meet_new(uint64_t seed, const struct sim_params dir[2]);
void meet_free(struct meet *m);
/* Both do what is due at this moment. */
void meet_settle(struct meet *m);
/* The clock moves to the next thing that happens, at most to `until`; both settle. */
void meet_wait(struct meet *m, nstime until);
/* For so long. */
void meet_pass(struct meet *m, nstime time);

/* Our side's calls, as a socket layer makes them. Connections are indices; those that
 * fail abort. */
uint32_t meet_connect(struct meet *m, uint16_t port, uint16_t from, const struct tcp_opts *o);
uint32_t meet_listen(struct meet *m, uint16_t port, const struct tcp_opts *o);
/* 0: none yet. */
uint32_t meet_accept(struct meet *m, uint32_t listener);
struct tcp_conn *meet_conn(struct meet *m, uint32_t conn);
void meet_shutdown(struct meet *m, uint32_t conn);
void meet_close(struct meet *m, uint32_t conn);
void meet_abort(struct meet *m, uint32_t conn);

/* Byte i of a direction's stream. */
static inline uint8_t meet_byte(int side, size_t i)
{
        return (uint8_t)(i * 167 + i / 251 + (i >> 16) * 13 + (size_t)side * 91);
}

#endif
