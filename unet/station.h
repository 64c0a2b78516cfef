/*
 * The station: the part of an endpoint that its peers see, and where it sleeps.
 *
 *      station memfd, read-only for peers:     [ bell, one page | transmit part of the segment ]
 *      private memfd:                          [ receive part of the segment ]
 *
 * Both are mapped side by side, so that the segment is one range of addresses. When the bell says
 * that the owner sleeps (unet/bell.h), a peer rings by sending a byte through the socket over which
 * the channel was set up; the same socket hangs up when the peer dies. So no peer can swallow or
 * flood another's rings, and a send with MSG_DONTWAIT cannot be made to block, as a write to a pipe
 * can by clearing its O_NONBLOCK from the other end. The owner sleeps on one epoll descriptor that
 * holds the sockets.
 */
#ifndef UNET_STATION_H
#define UNET_STATION_H

#include "base/base.h"
#include "unet/bell.h"

struct station {
        struct bell *bell;    /* start of the mapping */
        size_t shared_bytes;  /* bell page and transmit part */
        size_t private_bytes; /* receive part */
        int reader_fd;        /* twin of the station memfd, to be passed */
        int epoll_fd;
};

/* tx_bytes and rx_bytes are multiples of the page size and may be 0. 0 or a negative errno. */
int station_open(struct station *s, size_t tx_bytes, size_t rx_bytes);
/* Lets go of mappings and descriptors of this process. */
void station_close(struct station *s);

static inline uint8_t *station_segment(const struct station *s)
{
        return (uint8_t *)s->bell + BELL_BYTES;
}

/* Wakes up when a byte arrives on the socket or it hangs up; `key` is what the waiter is told. 0 or
 * negative errno. */
int station_watch(struct station *s, int sock, uint32_t key);
void station_unwatch(struct station *s, int sock);
/* Sends one ring; never blocks. One that does not fit is not needed: others are still to
 * be read. */
void station_ring(int sock);

/* Tells peers on which processor we wait, for their decision to spin; returns it. */
uint32_t station_note_cpu(struct station *s);

/*
 * Sleeps until a peer rings, a watched socket hangs up or `timeout` (nanoseconds; negative: for
 * ever) has passed; not at all when ready() is true after the bell was armed. `gone` is called for
 * what hung up. 0, or -EINTR.
 */
struct station_waiter {
        bool (*ready)(void *arg);
        void (*gone)(void *arg, uint32_t key);
        void *arg;
};
int station_sleep(struct station *s, const struct station_waiter *w, nstime timeout);

/* The halves of station_sleep(), for those who sleep in a loop of their own on epoll_fd: arm; look
 * at all queues; only when there is nothing, sleep; then wake (which also tells what hung up). */
void station_arm(struct station *s);
void station_wake(struct station *s, const struct station_waiter *w);

#endif
