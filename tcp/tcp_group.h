/*
 * Limits that many connections have in common. A group is a number, 0 is none.
 */
#ifndef TCP_TCP_GROUP_H
#define TCP_TCP_GROUP_H

#include "tcp/tcp.h"

#define TCP_GROUPS 256u
struct tcp_group_limits {
        uint64_t receive; /* bytes unread, lent or promised, of all; 0: no such limit */
        uint64_t send;    /* bytes written and not acknowledged, of all; 0: no such limit */
        uint64_t rate;    /* bytes a second that all send; 0: no such limit */
        uint32_t members; /* connections, at most; 0: as many as come */
        /* With `receive` or `send`: of it each member has this; members * least at most. */
        uint32_t least;
};
struct tcp_group_report {
        struct tcp_group_limits limits;
        uint32_t members;
        uint64_t held;   /* of `receive`: the members' shares */
        uint64_t queued; /* of `send`: likewise */
};
/* The number of a group that nobody is in, and that has no limits; 0: there is none. */
uint32_t tcp_group_new(const struct tcp *t);
/* -ENOSPC: the members it has, or what they were promised or have written, are more. -EINVAL:
 * `least` is below two units of a member's window. */
int tcp_group_set(struct tcp *t, uint32_t group, const struct tcp_group_limits *l);
void tcp_group_get(const struct tcp *t, uint32_t group, struct tcp_group_report *r);
/* An open connection enters, and leaves the one that it was in. -ENOSPC: no place, or it has been
 * promised, or has written more than there is; -EINVAL: as above. */
int tcp_group_enter(struct tcp *t, struct tcp_conn *tc, uint32_t group, nstime now);
void tcp_group_leave(struct tcp *t, struct tcp_conn *tc, nstime now);
/* Bytes that the peer has been told it may send, and that are unread or lent. */
uint32_t tcp_promised(const struct tcp_conn *tc);
/* Bytes written and not acknowledged, and bytes reserved to be written. */
uint32_t tcp_queued(const struct tcp_conn *tc);
/* A turn that changed a connection with tc->send_share has ended, or a reservation there. */
void tcp_group_look(struct tcp *t, struct tcp_conn *tc);
/* Connections that come to the listener from now on are of that group (0: of none). */
void tcp_group_listen(struct tcp *t, uint32_t listener, uint32_t group);
/* Asserts what holds of a group; tests call it. */
void tcp_group_check(const struct tcp *t, uint32_t group);

#endif
