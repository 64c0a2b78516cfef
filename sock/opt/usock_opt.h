/*
 * Options of sockets, from inside, for sock/opt/usock_opt*.c. usock_opt.c has the calls and the
 * ioctls; each level of options has a file: its tables, and what they call.
 *
 * A call loads the socket's options, changes one, and stores them: into the record, and into the
 * connection, listener or pcb when there is one.
 */
#ifndef SOCK_USOCK_OPT_H
#define SOCK_USOCK_OPT_H

#include "sock/attach/handle.h"
#include "sock/udp/usock_cmsg.h"
#include "sock/attach/ustack.h"

/* One call: the socket and its options, loaded. */
struct opt_call {
        struct usock *s;
        struct sock_rec *rec;
        struct tcp_opts tcp;
        struct udp_opts udp;
        uint32_t device; /* SO_BINDTODEVICE, SO_BINDTOIFINDEX: which of unetd's; 0: none */
};

/* An option that is an int to the application, most of them a field of the options with a range. */
struct opt_int {
        int name;
        uint8_t kinds; /* USOCK_TCP | USOCK_UDP: sockets that have it */
        uint8_t size;  /* of a field of struct opt_call; 0: none, see set and get */
        uint16_t off;
        uint16_t told; /* 0, or what it asks for: a bit of rec->told (usock_cmsg.h) */
        int lo, hi;    /* -EINVAL outside; a BOOL is any int */
        int (*set)(struct opt_call *c, int v);
        int (*get)(const struct opt_call *c);
};

/* One that has another form. */
struct opt_blob {
        int name;
        uint8_t kinds;
        socklen_t min; /* -EINVAL when shorter */
        int (*set)(struct opt_call *c, const void *val, socklen_t len);
        /* The value's length. */
        socklen_t (*get)(const struct opt_call *c, void *val, socklen_t room);
        /* NULL: always; else 0 or why not. */
        int (*may_get)(const struct opt_call *c, socklen_t room);
};

struct opt_level {
        const struct opt_int *ints;
        const struct opt_blob *blobs;
        unsigned nints, nblobs;
};
extern const struct opt_level opt_socket, opt_ip, opt_ipv6, opt_tcp, opt_udp;
// clang-format off
#define OPT_LEVEL(i, b) {.ints = (i), .blobs = (b), .nints = ARRAY_LEN(i), .nblobs = ARRAY_LEN(b)}
#define OPT_LEVEL_INTS(i) {.ints = (i), .nints = ARRAY_LEN(i)}

#define OPT_TCP_INFO_BYTES 280u         /* the longest of all values: what Linux 6.18 says */

#define OPT_TCP USOCK_TCP
#define OPT_ANY (USOCK_TCP | USOCK_UDP)
#define OPT_FIELD(f) .size = sizeof(((struct opt_call *)0)->f), .off = offsetof(struct opt_call, f)
#define OPT_BOOL(n, f)          {.name = n, .kinds = OPT_TCP, OPT_FIELD(tcp.f), .lo = 0, .hi = 1}
#define OPT_RANGE(n, f, min_, max_) \
        {.name = n, .kinds = OPT_TCP, OPT_FIELD(tcp.f), .lo = min_, .hi = max_}
#define OPT_UDP_BOOL(n, f)      {.name = n, .kinds = USOCK_UDP, OPT_FIELD(udp.f), .lo = 0, .hi = 1}
#define OPT_UDP_RANGE(n, f, min_, max_) \
        {.name = n, .kinds = USOCK_UDP, OPT_FIELD(udp.f), .lo = min_, .hi = max_}
#define OPT_CALLS(n, k, s, g)   {.name = n, .kinds = k, .set = s, .get = g}
#define OPT_TOLD(n, k, bit)     {.name = n, .kinds = k, .told = bit}
#define OPT_TOLD_IF(n, k, bit, s) {.name = n, .kinds = k, .told = bit, .set = s}
/* Struct opt_blob. */
#define OPT_FORM(n, k, m, s, g) {.name = n, .kinds = k, .min = m, .set = s, .get = g}
// clang-format on

/* getsockopt() of TCP_SAVED_SYN, which changes what there is to get. */
int usock_saved_syn(struct usock *s, void *val, socklen_t *len);
/* ... and of TCP_ZEROCOPY_RECEIVE, which reads what is asked for, and may read from the stream. */
int usock_zerocopy_receive(struct usock *s, void *val, socklen_t *len);

/* Sets whether recvmsg() tells something besides: bits of rec->told. */
static inline int opt_set_told(struct opt_call *c, uint16_t tell, int v)
{
        WRITE_ONCE(c->rec->told, (uint16_t)((c->rec->told & ~tell) | (v != 0 ? tell : 0)));
        return 0;
}

/* The device that an option names, which may take a while to find: not with the
 * lock. (usock_opt_socket.c) */
uint32_t opt_device(int level, int name, const void *val, socklen_t len);

#define OPT_RCVBUF_MIN 2304u /* Linux: SOCK_MIN_RCVBUF */

static inline struct tcp_conn *opt_conn(const struct opt_call *c)
{
        assert(ustack_locked(c->s->u));
        return c->rec->role == SOCK_ROLE_CONN ? usock_conn(c->s) : NULL;
}
static inline struct tcp_listener *opt_listener(const struct opt_call *c)
{
        assert(ustack_locked(c->s->u));
        return c->rec->role == SOCK_ROLE_LISTENER ? tcp_listener_at(&c->s->u->s.tcp, c->rec->conn)
                                                  : NULL;
}
static inline bool opt_is_udp(const struct opt_call *c)
{
        return c->rec->role == SOCK_ROLE_UDP;
}

#endif
