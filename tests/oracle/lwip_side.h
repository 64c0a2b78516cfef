/*
 * lwIP, Debian's shared library, as the other end of a simulated link: an implementation that
 * nobody here wrote.
 *
 * It runs in virtual time: sys_now() is ours (the library's is interposed), sys_check_timeouts() is
 * called when one is due, there is no tcpip thread, and its network interface is end 1 of the link.
 * lwIP's packets are one piece; our stack wants all headers in the descriptor, so the bridge cuts
 * them (see split()).
 *
 * lwIP keeps everything in global variables: one side a process, and what happens depends on what
 * happened before. Who wants a seed to be repeatable forks. lwIP's functions and ours have the same
 * names (tcp_accept, tcp_output): this is a shared library of its own, and its header names nothing
 * of lwIP's.
 */
#ifndef TESTS_ORACLE_LWIP_SIDE_H
#define TESTS_ORACLE_LWIP_SIDE_H

#include "base/base.h"
#include "tests/sim/ni_sim.h"

#pragma GCC visibility push(default)

/* ---- the host ---- */

/* Starts on end 1 of the link with IPv4 address `addr` (host order) and this MTU. What was open
 * before is gone. */
void lw_start(struct sim *link, uint32_t addr, uint32_t mtu, nstime now);
/* Takes what has arrived and fires what is due; true when anything was done. */
bool lw_run(nstime now);
/* When to call it at the latest. */
nstime lw_deadline(void);
/* lwIP's own functions verify the IP, TCP, UDP and ICMP checksums of a packet. */
bool lw_sums_right(const uint8_t *packet, size_t len);
/* Connections it has, those in TIME-WAIT included. */
unsigned lw_connections(void);

/* ---- TCP ---- */

enum lw_end { LW_OPENING, LW_OPEN, LW_REFUSED, LW_RESET, LW_ABORTED, LW_CLOSED };

struct lw_conn;
struct lw_opts {
        uint16_t mss; /* it sends no larger segments; 0: as the link allows */
        bool nodelay;
};

struct lw_conn *lw_connect(uint32_t to, uint16_t port, uint16_t from_port);
/* Accepts on the port from now on; lw_accept() gives them in order, NULL: none yet. */
void lw_listen(uint16_t port);
struct lw_conn *lw_accept(void);
enum lw_end lw_state(const struct lw_conn *c);
void lw_set_opts(struct lw_conn *c, const struct lw_opts *o);
/* Bytes taken, 0 when its buffer is full. */
int lw_write(struct lw_conn *c, const uint8_t *data, size_t n);
/* Bytes, 0: end of stream, -1: nothing yet. What is not read keeps its window closed. */
int lw_read(struct lw_conn *c, uint8_t *data, size_t n);
/* Whether it holds bytes that it has not sent once. */
bool lw_unsent(struct lw_conn *c);
/* False: no memory for the FIN now, try again. */
bool lw_shutdown_send(struct lw_conn *c);
bool lw_close(struct lw_conn *c);
void lw_abort(struct lw_conn *c);
/* What was agreed: the peer's largest segment, and the window it may send. */
uint16_t lw_mss(const struct lw_conn *c);
uint32_t lw_send_window(const struct lw_conn *c);
bool lw_scales(const struct lw_conn *c);
/* Frees the handle, after its end. */
void lw_free(struct lw_conn *c);

/* ---- UDP and ICMP ---- */

void lw_udp_echo(uint16_t port);
/* From `from_port`, on which lw_udp_received() waits for answers. */
void lw_udp_send(uint16_t from_port, uint32_t to, uint16_t port, const uint8_t *data, size_t n);
/* The next datagram for lw_udp_send()'s port: its length, -1 none. */
int lw_udp_received(uint8_t *data, size_t n);
void lw_ping(uint32_t to, uint16_t id, uint16_t seq, const uint8_t *data, size_t n);
/* The next ICMP message that arrived here, from its type on: length, -1 none. */
int lw_icmp_received(uint8_t *data, size_t n);

#pragma GCC visibility pop
#endif
