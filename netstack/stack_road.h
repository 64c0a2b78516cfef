/*
 * What the parts of the loop offer each other: a packet's road through stack_loop.c, stack_rx.c,
 * stack_icmp.c, stack_out.c and netif.c. Nobody outside netstack/ includes it.
 */
#ifndef NETSTACK_STACK_ROAD_H
#define NETSTACK_STACK_ROAD_H

#include "netstack/stack.h"
#include "netstack/stack_refs.h"
#include "tcp/tcp_answers.h"

#define STACK_RX_BATCH 16 /* messages taken from a channel at once */
/* Frames the peer may hold: their returns always find room. */
#define STACK_LOANS_MAX (SHM_RETS - STACK_RX_BATCH)

/* ---- stack_quiet.c ---- */

#define QUIET_AFTER (500 * NS_PER_MS)
#define QUIET_FEW   16u /* in a stack of so many all are looked at, however idle */
/* Channels that were idle since the last time are not looked at any more. Under the lock. */
void stack_sweep(struct stack *s);
/* When a look that was put off is due; then: looks. */
nstime stack_look_due(const struct stack *s);
void stack_look_put_off(struct stack *s);

/* ---- stack_rx.c ---- */

/* Takes what channel k has for now. Whether there was anything. */
bool stack_run_rx(struct stack *s, uint32_t k, struct stack_chan *c);
/* An IP packet arrived. True when its frame now belongs to a queue. */
bool stack_rx_packet(struct stack *s, uint32_t k, const struct unet_rx *rx);
/* Which addresses are ours on channel k, and what is asked of packets that come by it. */
struct ip_host stack_host_of(const struct stack *s, uint32_t k);
/* struct udp's `touched`: readability is told once for all that a batch brings. */
void stack_udp_touched(void *arg, uint32_t pcb);

/* ---- stack.c ---- */

/* Returns true if channel k, which is ready or down, is mapped in this process, now if need be. */
bool stack_chan_map(struct stack *s, uint32_t k);

/* ---- stack_icmp.c ---- */

void stack_icmp_rx(struct stack *s, uint32_t k, const struct ip_pkt *pkt);
/* An error about a packet, if RFC 1122 §3.2.2 and the rate limit let us say it; `param` is the
 * header's second word. */
void stack_icmp_error(struct stack *s, uint32_t k, const struct ip_pkt *pkt, uint8_t type,
                      uint8_t code, uint32_t param);
/* Memory for the `len` bytes of an ICMP message that does not fit a descriptor: in a transmit
 * frame, which is ours until the peer has read it. NULL: there is no room now. */
uint8_t *stack_icmp_frame(struct stack *s, uint32_t k, uint32_t len, struct buf *data);
/* Sends them behind an IP header of a template, in pieces if need be. */
void stack_icmp_post(struct stack *s, uint32_t k, const struct ip_tmpl *ip, const struct buf *data,
                     uint16_t id);
/* A packet of ours, with its transport header at `l4`, did not find its next hop: EHOSTUNREACH,
 * ENETUNREACH. No stranger says so, but we: a connect() ends with it, as the kernel's does, and a
 * connected UDP socket has it at its next call. An established connection goes on trying (RFC
 * 1122 §4.2.3.9). */
void stack_undelivered(struct stack *s, uint32_t k, const struct ip_pkt *pkt, const uint8_t *l4,
                       int err);

/* ---- stack_out.c ---- */

/* Returns true if the channel takes one more message, frame included. If not, its users are told
 * when it does. */
bool stack_chan_room(struct stack *s, uint32_t k);
/* Channel k has a frame again that somebody waited for. */
void stack_frame_came(struct stack *s, uint32_t k);
/* True when everything that the connection owes went out; false when its channel has no room, or is
 * not mapped here yet. */
bool stack_output_conn(struct stack *s, struct tcp_conn *tc);
/* Sends one segment of a connection, or of none. The caller has seen that there is room. */
void stack_emit_tcp(struct stack *s, struct stack_chan *c, const struct ip_tmpl *ip,
                    const struct tcp_tuple *to, const struct tcp_seg *seg);
extern const struct tcp_answers stack_answers; /* stack_answer.c */
/* struct tcp's `reply`: a segment that belongs to no connection. Best effort: with the queue full,
 * the peer asks again. */
void stack_reply_tcp(void *arg, const struct tcp_tuple *to, const struct tcp_seg *seg);
/* Sends one IP packet: headers, then payload from a frame, in the descriptor when it fits. The
 * caller has seen that there is room. */
void stack_post(struct stack *s, struct stack_chan *c, struct netif_hdr *h, uint32_t hdr_len,
                const struct buf *data);
/* Sends a packet that is whole, link header included. The caller has seen that there is room. */
void stack_post_raw(struct stack *s, struct stack_chan *c, const uint8_t *inl, uint32_t inl_len,
                    const struct buf *data);
/* A datagram in pieces: IP header and `l4_len` bytes at hdr, the rest in `data`. False: the queue
 * has no room for all. */
bool stack_post_fragments(struct stack *s, struct stack_chan *c, uint32_t k, const uint8_t *hdr,
                          uint32_t l4_len, const struct buf *data, uint32_t mtu, uint16_t id);
void stack_sum_tcp(struct stack *s, const struct tcp_tuple *to, uint8_t *hdr, unsigned len,
                   const struct buf *data);
/* RFC 6864 §4: what may be cut on its way has an ID that does not come again soon. */
uint16_t stack_new_id(struct stack *s, ip_addr src, ip_addr dst, uint8_t proto);

/* ---- stack_opts.c ---- */

/* The time for a timestamp option: the stack has no time of day, so it is marked as not being one
 * (RFC 791 §3.1). */
uint32_t stack_opts_ms(const struct stack *s);
/* The options of a packet that came by channel k, with us in them. */
void stack_opts_record(const struct stack *s, uint32_t k, const struct ip_pkt *pkt,
                       struct ip_optbuf *out);
/* tcp_rx() has seen a SYN with options: the connection that it made, if any, has what answers them
 * (RFC 1122 §4.2.3.8). */
void stack_opts_answer_syn(struct stack *s, uint32_t k, const struct ip_pkt *pkt,
                           const struct tcp_seg *seg);
/* As stack_output_conn(), for a connection with options. */
bool stack_opts_output(struct stack *s, struct stack_chan *c, struct tcp_conn *tc);
/* As stack_send_udp(), for a datagram with options, on a channel that is mapped and has room;
 * nothing is flushed or dropped. */
int stack_opts_send_udp(struct stack *s, uint32_t k, const struct udp_out *o,
                        const struct stack_payload *p);
void stack_opts_loop(const struct stack *s, const struct udp_out *o, struct ip_optbuf *out);

#endif
