/*
 * unetd's interfaces and ports as a program sees them through its sockets. (attach/ustack_iface.c)
 */
#ifndef SOCK_USOCK_IFACES_H
#define SOCK_USOCK_IFACES_H

#include "sock/usock.h"

/* unetd's interfaces, as programs that list addresses see them. */
struct usock_iface {
        char name[16];  /* as the kernel calls it */
        uint32_t addr;  /* ours there, which the kernel does not know; IPv4, host order */
        uint8_t prefix; /* of addr's network */
        bool down;      /* by `unet if down` */
};
#define USOCK_IFACES 8u
/* How many there are. No unetd is started for it. */
unsigned usock_ifaces(struct usock_iface v[USOCK_IFACES]);

/* Returns true if an interface of unetd's has the name, which need not end with a zero, or there is
 * none (SO_BINDTODEVICE). */
bool usock_is_device(const char *name, socklen_t len);
/* The same by its number in the kernel, 0: none (SO_BINDTOIFINDEX). */
bool usock_is_device_number(int ifindex);

/* Returns true if another stack has leased this TCP port (unetd/client/directory.h). */
bool usock_port_leased(uint16_t port);
/* The kernel says that the name is taken: what dead processes left there ends. Returns true if it
 * may be free now. */
bool usock_port_settle(int kind, const struct sockaddr *sa, socklen_t len);

/* Returns true if the address is that of an interface of unetd's, which the kernel does not know.
 */
bool usock_is_iface_addr(const struct sockaddr *sa, socklen_t len);

/* Returns true if an interface of unetd's, which no other stack has, leads to the address, which is
 * another host's, or a group's; then our name there, port 0, as a socket of the family has it.
 * `last`: the kernel knows no way. s: NULL, or the socket. *why, if there is a reason to tell, says
 * why not. */
bool usock_way_out(const struct usock *s, const struct sockaddr *to, socklen_t len, bool last,
                   int family, struct sockaddr *from, socklen_t *from_len, const char **why);

#endif
