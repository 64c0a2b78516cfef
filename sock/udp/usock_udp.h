/*
 * Sending datagrams, from inside, for usock_udp.c, which sends one a call, and usock_cork.c, which
 * makes one of several calls.
 */
#ifndef SOCK_USOCK_UDP_H
#define SOCK_USOCK_UDP_H

#include "sock/attach/cursor.h"
#include "sock/udp/usock_cmsg.h"
#include "sock/attach/ustack.h"

/* What fits a descriptor of any channel. */
#define UDP_STAGED_MAX   (SHM_INLINE_MAX - ETHER_HDR - IP_MIN_HDR - UDP_HDR)
#define UDP_SEGMENTS_MAX 128u /* Linux: UDP_MAX_SEGMENTS, 64 before 6.9 */
#define UDP_BATCH        16u  /* datagrams of one call behind one bell */
#define UDP_MORE         2u   /* in udp_dest.many: another one follows in this call */

struct udp_dest {
        struct udp_tuple to; /* rport 0: the connected peer */
        uint32_t chan;
        uint32_t
                peer; /* stack of this host that it leads to, 0: it is none, or the connected one */
        uint8_t many; /* it is a group, or everybody; and UDP_MORE */
        const struct usock_sent *sent; /* what was said of this datagram; NULL: nothing */
};

/* What is said of a datagram beside it and by the socket, and where it goes. 0 or -errno; -ENOENT:
 * the kernel's. The lock must not be held. */
int usock_udp_said(struct usock *s, const struct msghdr *m, struct usock_sent *sent,
                   struct udp_dest *d);
/* The connected peer, if it is one host and the fabric leads there. */
bool usock_udp_connected_to(struct usock *s, struct udp_dest *d);
/* Sends one. 0, then a frame of p's is the channel's; -EAGAIN: no room, and POLLOUT will say when;
 * or -errno. Under the lock, with the channel mapped. */
int usock_udp_post(struct usock *s, const struct udp_dest *d, const struct stack_payload *p);
/* A frame that n bytes for this channel fit into; 0: there is none now. Under the lock. */
uint32_t usock_udp_frame(struct usock *s, uint32_t chan, size_t n);

/* ---- usock_udp_place.c ---- */

/* Datagrams of `segment` bytes each, and a last one, of the next `total` bytes; in one turn of the
 * lock, which must not be held. How many bytes were sent, past which the cursor is then; *err: why
 * not more, if that is an error. Neither: the next one is to be staged or to go in a frame. */
size_t usock_udp_place(struct usock *s, const struct udp_dest *d, struct cursor *c, size_t total,
                       size_t segment, int *err);
/* The kernel is to tell of what is sent: that the memory is the program's again (MSG_ZEROCOPY), or
 * when it left (SO_TIMESTAMPING). So its socket sends it, within this host, where it has a way. */
bool usock_udp_kernel_tells(struct usock *s, int flags, const struct usock_sent *sent,
                            const struct udp_dest *d);
/* As usock_send_straight(). */
ssize_t usock_udp_send_straight(struct usock *s, struct mmsghdr *v, uint32_t n, int flags);

/* ---- usock_cork.c ---- */

/* With MSG_MORE, or with rec->cork not 0: adds to the datagram that is begun, or begins one. */
ssize_t usock_udp_send_corked(struct usock *s, const struct msghdr *m, size_t total, int flags);
/* UDP_CORK was set or cleared: if it is not set what is begun leaves. Waits for room a moment;
 * where none comes the datagram is dropped, and counted. */
void usock_udp_uncorked(struct usock *s);
/* It was connected: what is begun goes there now. Under the lock. */
void usock_udp_cork_moved(struct usock *s);
/* The socket ends, and what is begun with it. Under the lock. */
void usock_udp_cork_end(struct ustack *u, struct sock_rec *rec);

/* ---- usock_udp_peek.c ---- */

/* MSG_PEEK where SO_PEEK_OFF is set, as usock_udp_recv() otherwise. m: NULL, or where name, flags
 * and the rest go. */
ssize_t usock_udp_peek_on(struct usock *s, const struct iovec *iov, size_t total, int flags,
                          struct msghdr *m);
/* n bytes were read: so much is the next peek's offset less. */
void usock_udp_read_before(struct usock *s, size_t n);

#endif
