/*
 * Pauses in a stream of datagrams.
 *
 * Where each datagram that a device brings, or each batch of them, ends a sleep, and sender and
 * receiver share a processor, waking and sleeping is most of what it costs. So after some sleeps
 * that brought many for their length, which nobody answered, their reader does not ask the device
 * for an event. It pauses and then looks, as NICs moderate interrupts while many packets come. A
 * pause is as long as some thirty-two datagrams take, and no longer than USOCK_PAUSE_MAX. The first
 * in which nothing came, or too little for the longest, or after which something was answered or
 * came by a connection, is the last. Of the calling thread; nothing of this where stacks have no
 * RDMA device.
 *
 * Nor does the reader of a connection ask for an event while the ACK of a train is held for more of
 * it (tcp/tcp_delack.c). It pauses, at the longest until that ACK is due: its sender learns nothing
 * before. So what a wire that delays brings one by one does not end a sleep each. While it answers,
 * or pauses bring nothing, it sleeps as always.
 */
#ifndef SOCK_USOCK_PACE_H
#define SOCK_USOCK_PACE_H

#include <signal.h>

#include "sock/attach/ustack.h"

#define USOCK_PAUSE_MAX (4 * NS_PER_MS)

/* A sleep until something was to be looked at is over, and was so long. */
void usock_slept(struct ustack *const *all, uint32_t n, nstime slept);
/* Returns true if the thread is to pause before its next sleep. */
bool usock_in_stream(void);
/* 1: paused; 0: this is no stream any more, or something is due before the pause would end; -EINTR.
 * mask: as ppoll's. */
int usock_pause(struct ustack *const *all, uint32_t n, nstime now, nstime until,
                const sigset_t *mask);
/* The same where the ACK of a train that comes by a connection is held until `held`. */
int usock_pause_train(struct ustack *const *all, uint32_t n, nstime now, nstime held,
                      const sigset_t *mask);

#endif
