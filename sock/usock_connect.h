/*
 * Connections: listening, accepting, connecting and what ends them.
 * (core/usock_connect.c, core/usock_fastopen.c, opt/usock_linger.c)
 */
#ifndef SOCK_USOCK_CONNECT_H
#define SOCK_USOCK_CONNECT_H

#include "sock/usock.h"

int usock_listen(struct usock *s, int backlog);
/* The rule of the configuration that keeps a socket of this kind (USOCK_TCP, USOCK_UDP) and local
 * name off the fabric, for `unet why`; NULL: none does. Ask before the socket listens or is
 * registered. */
const char *usock_rule_listens(int kind, const struct sockaddr *sa, socklen_t len);
/* Returns true if usock_accept() has another answer than -EAGAIN. */
bool usock_acceptable(struct usock *s);
/* -EAGAIN: nobody waits on our side (the kernel's side is the caller's business). The new socket
 * has kfd -1. */
int usock_accept(struct usock *s, struct usock **out);
/* The peer of a connection that was just accepted, even if it has ended. */
void usock_accepted_from(struct usock *s, struct sockaddr *sa, socklen_t *len);

/*
 * 0: a connected UDP socket; or one of TCP that waits for what is sent first
 * (usock_fastopen_waits()). -EINPROGRESS: handshake under way; poll for POLLOUT, then SO_ERROR.
 * -ENOENT: nobody on the fabric has this address and port: use the kernel. why: for `unet why`, may
 * be NULL.
 */
int usock_connect(struct usock *s, const struct sockaddr *sa, socklen_t len, const char **why);
/* To be called before usock_connect(). by_message: because of a message with MSG_FASTOPEN; else
 * TCP_FASTOPEN_CONNECT may be set. -EOPNOTSUPP: the system forbids it. */
int usock_fastopen_connect(struct usock *s, bool by_message);
/* Returns true if the program sees a connected socket whose SYN leaves with the first data. */
bool usock_fastopen_waits(const struct usock *s);
/* Returns true if it was bound to a port. Its connect() then fails with -EADDRNOTAVAIL where unetd
 * cannot tell that the port is the caller's. */
bool usock_has_port(const struct usock *s);
/* The attempt to connect failed and its connection is closed: the socket is as it was before.
 * bound: the address that it was bound to, and keeps; NULL: none. Returns false, and does nothing,
 * if another thread copies from it: usock_let_copy(), then again. */
bool usock_connect_undo(struct usock *s, const ip_addr *bound);
/* connect() to AF_UNSPEC: the connection is reset in any state; then as usock_connect_undo().
 * Returns false also while another thread copies to it: in the kernel these calls wait for one
 * another. */
bool usock_disconnect(struct usock *s, const ip_addr *bound);
/* Sleeps some 50 us; nothing ends that early. */
void usock_let_copy(void);
/* Returns true if the attempt failed, when usock_poll() says that it is over. */
bool usock_connect_failed(const struct usock *s);
/* Returns true if it did not, whatever has become of the connection since. */
bool usock_connect_made(const struct usock *s);
int usock_shutdown(struct usock *s, int how);
/* Before the last close of a process. Waits as SO_LINGER asks, if no other process has the
 * socket. */
void usock_linger(struct usock *s);

#endif
