/*
 * Datagrams: what UDP sockets have besides usock.h. (udp/)
 */
#ifndef SOCK_USOCK_DGRAM_H
#define SOCK_USOCK_DGRAM_H

#include "sock/usock.h"

/* The peer is reached by the kernel alone: nobody on the fabric has its port. From our side the
 * socket takes datagrams of that peer only. -ENOENT: it is not of this host. */
int usock_udp_hear(struct usock *s, const struct sockaddr *sa, socklen_t len);
/* Registers the port, so that the fabric reaches the socket; idempotent. */
int usock_udp_register(struct usock *s);
/* It has no peer any more, and the local address that it was bound to; NULL: the one by which it
 * can be reached. */
void usock_udp_disconnect(struct usock *s, const ip_addr *bound);
/* The same, and it has lost its port. What has come can still be read. */
void usock_udp_unbind(struct usock *s);

/* ---- several a call ---- */

/* sendmmsg() to an RDMA device, several datagrams at a time. v is the program's, flags as
 * usock_sendmsg()'s. How many were sent; 0: usock_sendmsg() is to send the first, or says why not;
 * or -errno. */
ssize_t usock_send_straight(struct usock *s, struct mmsghdr *v, uint32_t n, int flags);
/* sendmmsg(): between these two calls the peer, or the device, is told of this thread's datagrams
 * with USOCK_BATCH among their flags together with those that follow. The last one comes without
 * it, or `cut` says that it did not come. Elsewhere the flag says nothing. */
#define USOCK_BATCH 0x40000 /* Linux's MSG_BATCH: kernel sockets take it, too */
void usock_batch_begin(void);
void usock_batch_end(struct usock *s, bool cut);
/* The kernel's socket has not kept what usock_sendmsg() left to it with MSG_MORE or UDP_CORK. */
void usock_udp_kernel_uncorked(struct usock *s);

/* ---- groups: which of them are ours (usock_group.c) ---- */

/* Returns true if unetd has an interface, so that groups may be ours. */
bool usock_has_ifaces(void);
/* Options that name a group or where groups are sent, IP_MULTICAST_IF to MCAST_UNBLOCK_SOURCE. */
bool usock_is_group_opt(int level, int name);
/* Whose the interface is that such a call names. EITHER: it names none; the kernel's if it has a
 * route, else ours. */
enum usock_group_side { USOCK_GROUP_KERNEL, USOCK_GROUP_OURS, USOCK_GROUP_EITHER };
enum usock_group_side usock_group_side(int name, const void *val, socklen_t len);
/* The kernel has no route for groups and broadcasts: what the socket sends to them goes by an
 * interface of unetd's from now on. Returns false if it did so before, or an option says
 * otherwise. */
bool usock_group_fallback(struct usock *s);

#endif
