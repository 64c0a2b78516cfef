/*
 * What the kernel says of its sockets (sock_diag(7)), in unetd's network namespace. One question is
 * one dump, which no user can hold up.
 */
#ifndef UNETD_SOCKDIAG_H
#define UNETD_SOCKDIAG_H

#include "base/base.h"

struct sockdiag_socket {
        uint8_t proto;
        uint16_t port;
        ip_addr addr;    /* all zero: a wildcard that takes both families, or of IPv4 */
        uint32_t uid;    /* who made it */
        uint64_t cookie; /* SO_COOKIE */
};

/* 0, or a negative errno. */
int sockdiag_open(void);
/* Calls each() for each TCP socket that listens or UDP socket that is bound, at the port (0: at
 * any), until it returns false. A wildcard of IPv6 alone is left out, and so is what is bound to a
 * device that is no interface of unetd's. 0, or a negative errno: the kernel does not say. */
int sockdiag_each(uint8_t proto, uint16_t port,
                  bool (*each)(void *arg, const struct sockdiag_socket *s), void *arg);
/* The same of TCP sockets that are bound to the port and no more, from Linux 6.8 on; before, there
 * are none. */
int sockdiag_each_bound(uint16_t port, bool (*each)(void *arg, const struct sockdiag_socket *s),
                        void *arg);
/* While it is on, what was listed for a port is not asked for again: for who compares many claims
 * with it. */
void sockdiag_same_moment(bool on);
/* Who made the socket with this abstract name, of `len` bytes with the zero that it begins with.
 * False: nobody, or the kernel does not say. Asked before sockdiag_open(), too. */
bool sockdiag_holder(const char *name, size_t len, uint32_t *uid);

#endif
