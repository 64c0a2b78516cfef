/*
 * What the loop traces (base/trace.h) of packets and of connections, and captures, for the loop
 * only. Off, each place costs one load and one branch that is never taken. On, drops and recovery
 * are read off the counters, before and after. So whatever is counted is traced, and no protocol
 * has to say it twice.
 */
#ifndef NETSTACK_STACK_TRACE_H
#define NETSTACK_STACK_TRACE_H

#include "netstack/stack.h"

static inline bool stack_traced(const struct stack *s)
{
        return unlikely(atomic_load_explicit(&s->trace->on, memory_order_relaxed) != 0);
}

/* A message was taken from channel k; `before` is a copy of the counters. */
void stack_trace_in(struct stack *s, uint32_t k, const struct unet_rx *rx,
                    const struct counters *before);
void stack_trace_udp_out(struct stack *s, const struct udp_out *o, uint32_t len);
/* A segment of the connection went out. */
void stack_trace_out(struct stack *s, const struct tcp_conn *tc, const struct tcp_seg *seg,
                     const struct counters *before);
/* Its timers were fired. */
void stack_trace_timer(struct stack *s, const struct tcp_conn *tc, const struct counters *before);
/* For `unet pcap`, when somebody listens: a message as it is on channel c. */
void stack_capture(struct stack *s, const struct stack_chan *c, enum capture_dir dir,
                   const uint8_t *inl, uint32_t inl_len, uint32_t frame, uint32_t off,
                   uint32_t len);

#endif
