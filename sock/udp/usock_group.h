/* What usock_group.c and usock_filter.c share: how a call names a group and an interface. */
#ifndef SOCK_USOCK_GROUP_H
#define SOCK_USOCK_GROUP_H

#include "sock/attach/ustack.h"

/* What a call says, whatever its form. Addresses in host order, 0: not said. */
struct group_call {
        uint32_t group, ifaddr, src;
        uint32_t ifindex;
};

/* Returns true if the call names an interface, and the one of unetd's that it names. */
static inline bool group_is_named(const struct group_call *g)
{
        return g->ifindex != 0 || g->ifaddr != 0;
}
bool group_find_named(const struct group_call *g, struct dir_iface *f);
/* The interface on which the socket is a member of the group: the one that is named, or any. -1:
 * there is none. */
int group_where_member(struct usock *s, const struct group_call *g);

/* usock_filter.c: IP_MSFILTER and MCAST_MSFILTER. */
bool filter_is_opt(int name);
/* The group and the interface of a value, of which `len` bytes can be read. */
int filter_read_head(int name, const void *val, socklen_t len, struct group_call *g);
int filter_set(struct usock *s, int name, const void *val, socklen_t len);
int filter_get(struct usock *s, int name, void *val, socklen_t *len);

#endif
