/*
 * What the kernel says of its sockets (sock_diag(7)), in unetd's network namespace. Each question
 * is one dump, which no user can hold up.
 */
#ifndef UNETD_SOCKDIAG_H
#define UNETD_SOCKDIAG_H

#include "base/base.h"

struct sockdiag_socket {
        uint8_t proto;
        uint16_t port;
        ip_addr addr;    /* all zero: a wildcard of IPv4, or one that takes both families */
        uint32_t uid;    /* its maker's */
        uint64_t cookie; /* SO_COOKIE */
        bool on_device;  /* it is bound to one */
        /* ... that is no interface of unetd's: it receives from no other, and another user may have
         * the same port elsewhere. It has no port on the fabric. */
        bool elsewhere;
};

/* Who has sockets that are `elsewhere`, at one port. */
struct sockdiag_others {
        uint32_t uid;
        bool any, several;
};
void sockdiag_note(struct sockdiag_others *o, const struct sockdiag_socket *s);
/* Returns true if the socket is bound to a device, and another user has its port at another one: he
 * may be whom others of this host reach there. */
bool sockdiag_contested(const struct sockdiag_others *o, const struct sockdiag_socket *s);

/* Opens the netlink socket. 0 or a negative errno. */
int sockdiag_open(void);
/* Calls each() for each TCP socket that listens, or UDP socket that is bound, at the port (0: at
 * any), until it returns false. Leaves out a wildcard of IPv6 alone. 0, or a negative errno: the
 * kernel does not say. */
int sockdiag_each(uint8_t proto, uint16_t port,
                  bool (*each)(void *arg, const struct sockdiag_socket *s), void *arg);
/* The same for TCP sockets that are bound to the port and do nothing else. Before Linux 6.8 the
 * kernel lists none. */
int sockdiag_each_bound(uint16_t port, bool (*each)(void *arg, const struct sockdiag_socket *s),
                        void *arg);
/* While it is on, each port is listed once and the answer is kept, for a caller that compares many
 * claims with it. */
void sockdiag_same_moment(bool on);
/* Finds the maker of the socket with this abstract name, of `len` bytes with the zero that it
 * begins with. Returns false if there is none, or the kernel does not say. May be called before
 * sockdiag_open(). */
bool sockdiag_holder(const char *name, size_t len, uint32_t *uid);

#endif
