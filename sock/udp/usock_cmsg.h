/*
 * What goes beside a datagram, in control messages (cmsg(3), ip(7), socket(7)): where it was sent
 * to, TTL, TOS, when it came; and of one that is sent, what only it shall have.
 *
 * Which the socket wants is a mask in its record (`told`), 0 for most, and then nothing here is
 * called. Order, forms and truncation are Linux's.
 */
#ifndef SOCK_USOCK_CMSG_H
#define SOCK_USOCK_CMSG_H

#include "sock/attach/ustack.h"

enum {
        USOCK_TELL_PKTINFO = 1,
        USOCK_TELL_TTL = 2,
        USOCK_TELL_TOS = 4,
        USOCK_TELL_ORIGDST = 8,
        USOCK_TELL_TIMESTAMP = 16,
        USOCK_TELL_TIMESTAMPNS = 32,
        USOCK_TELL_OVERFLOW = 64, /* SO_RXQ_OVFL */
        USOCK_TELL_PKTINFO6 = 128,
        USOCK_TELL_OPTS = 512,
        USOCK_TELL_RETOPTS = 1024,
        USOCK_TELL_INQ = 2048, /* TCP_INQ */
        /* UDP_GRO: datagrams may be joined, and then of what size they were. */
        USOCK_TELL_GRO = 4096,
        /* SO_TIMESTAMPING, with both flags that the time of arrival wants. */
        USOCK_TELL_STAMPS = 256,
};

/* The application's control buffer, being filled; in parts for who adds something of his own. */
struct usock_room {
        uint8_t *at;
        size_t left;
        int flags; /* MSG_CTRUNC */
};
/* recvmsg(MSG_ERRQUEUE) of a stream: when bytes left (usock_stamp.c); sends with MSG_ZEROCOPY are
 * over (usock_zerocopy.c). -EAGAIN: there is nothing. */
ssize_t usock_tcp_recv_note(struct usock *s, struct msghdr *m);
/* The next one of the first kind, and its time. */
struct sock_extended_err;
bool usock_stamp_take(struct usock *s, struct sock_extended_err *e, nstime *at);
struct usock_room usock_cmsg_begin(const struct msghdr *m);
void usock_cmsg_add(struct usock_room *r, int level, int type, const void *val, size_t n);
/* joined: what is read are datagrams of so many bytes and a last one (UDP_GRO); 0: it is
 * one datagram. */
void usock_cmsg_tell(struct usock *s, const struct udp_msg *msg, uint32_t joined,
                     struct usock_room *r);
void usock_cmsg_stamps(struct usock_room *r, nstime at); /* SCM_TIMESTAMPING, of software */
void usock_cmsg_end(const struct usock_room *r, struct msghdr *m);
/* Writes what the socket wants to know of a datagram into m's control buffer: msg_controllen, and
 * MSG_CTRUNC in msg_flags. */
void usock_cmsg_put(struct usock *s, const struct udp_msg *msg, uint32_t joined, struct msghdr *m);

/* The same for bytes of a stream: when they came (0: not known), and how many more there
 * are (TCP_INQ). */
#define USOCK_TELL_TIMES (USOCK_TELL_TIMESTAMP | USOCK_TELL_TIMESTAMPNS | USOCK_TELL_STAMPS)
void usock_cmsg_put_stream(struct usock *s, nstime came, struct msghdr *m);

/* Of one datagram that is sent. */
struct usock_sent {
        bool ttl_set, tos_set;
        bool stamped; /* SO_TIMESTAMPING: when it left is asked for */
        uint8_t ttl, tos;
        uint16_t segment;      /* UDP_SEGMENT; 0: one datagram */
        uint32_t src, ifindex; /* IP_PKTINFO, host order; 0: not said */
        bool opts_set;         /* IP_RETOPTS; else opts are the socket's */
        struct ip_optbuf opts;
};
/* CAP_NET_RAW, of the calling thread: IP options of any kind may be sent. */
bool usock_may_send_any_option(void);
/* Calls fn for each control message until it returns other than 0, and returns that. -EFAULT;
 * -EINVAL: a message is malformed. */
int usock_cmsg_each(const struct msghdr *m, int (*fn)(const struct cmsghdr *c, void *arg),
                    void *arg);
/* Reads them. -EINVAL as Linux: malformed, out of range, or of a kind that does not exist. */
int usock_cmsg_read(const struct msghdr *m, struct usock_sent *out);

/* usock_errq.c: the oldest error that the socket keeps; -EAGAIN: there is none. */
ssize_t usock_udp_recv_error(struct usock *s, struct msghdr *m, size_t total);
/* A datagram is longer than what its path carries, and must not be cut: kept too. Under
 * the lock. */
void usock_udp_too_long(struct usock *s, const struct udp_tuple *to, uint32_t mtu);

#endif
