/*
 * What travels between unetd, unet-keeper and the client library: one struct of one size, over
 * SOCK_SEQPACKET, with descriptors by SCM_RIGHTS.
 *
 *   client  --requests-->  unetd   names, ports, channels, directory
 *   client  --requests-->  keeper  descriptors of stacks, process slots (a socketpair of unetd's)
 *   unetd   <--requests->  keeper  attach, channel up and down, stack gone
 *
 * A request has one reply, with its sequence number.
 *
 * Both ends treat what they read as hostile. A message of another size, with another magic, an
 * unknown type, an array index out of range or the wrong number of descriptors is answered with an
 * error. It harms nobody but the sender. Every received descriptor is either taken or closed;
 * unused bytes of a message are zero.
 *
 * The ABI number is part of the socket's name: builds that disagree never meet.
 */
#ifndef UNETD_PROTO_H
#define UNETD_PROTO_H

#include <sys/types.h>

#include "ip/netconf.h"
#include "base/base.h"
#include "base/frame.h"
#include "config/settings.h"

#define UNETD_ABI        36u
#define UNETD_MAGIC      0x756e6574u /* "unet" */
#define UNETD_NAMES      8u          /* names tried, 0 .. 7: a squatted one is skipped */
#define UNETD_FDS_MAX    8u          /* most descriptors in one message */
#define UNETD_DOMAIN_MAX 32u         /* bytes of UNET_DOMAIN: letters, digits, '-', '_', '.' */
/* Bytes of the name of an emulated endpoint, with the zero after it. */
#define UNETD_EMUL_NAME 64u
#define UNETD_SLOTS_MAX 4096u /* process slots of a stack: STACK_PROCS */
#define UNETD_CHANS_MAX 1024u /* channels of a stack: 0 .. 1023 (they number frame regions) */

enum unetd_type {
        UNETD_INVALID,
        UNETD_ERROR, /* the reply to what was not in form: seq and err are all of it */
        /* client -> unetd */
        UNETD_HELLO,      /* first on a connection; reply carries the directory */
        UNETD_KEEPER_GET, /* reply carries a socket to the user's keeper */
        UNETD_STACK_NEW,  /* fds: see enum unetd_stack_fd */
        UNETD_CHAN_OPEN,
        UNETD_PROC_ADD, /* fd: none, or a pidfd of the process; reply: its pid */
        UNETD_PROC_DEL,
        UNETD_LISTEN_ADD, /* fds: none, or the bound kernel socket */
        UNETD_LISTEN_DEL,
        UNETD_PORT_HOLD,
        UNETD_PORT_RELEASE,
        UNETD_PORT_LEASE,
        UNETD_PORT_SETTLE, /* answered when nothing of dead processes stands at the port */
        UNETD_STATUS,
        UNETD_EMUL_ATTACH,  /* fds: see enum unetd_emul_fd; answered, the connection is the link to
                             * the switch (unet/shm/shm_link.h) and nothing else any more */
        UNETD_EMUL_LISTEN,  /* the connection stands for the name, until it is closed */
        UNETD_EMUL_CONNECT, /* answered when the call was accepted */
        /* The answer has come: without this the channel ends with the connection. */
        UNETD_EMUL_CONNECTED,
        UNETD_EMUL_ACCEPT, /* -ENOMSG: nobody calls */
        UNETD_FLIGHT,      /* fd: the kernel socket of `cookie`, which leaves in a message */
        /* These eight only from root and from the user whose unetd it is: -EPERM. */
        UNETD_ROUTE_ADD,
        UNETD_ROUTE_DEL,
        UNETD_NEIGH_ADD,
        UNETD_NEIGH_DEL,
        UNETD_IFACE_UP,
        UNETD_IFACE_DOWN,
        UNETD_IFACE_ADD, /* UNETD_IFACE_ADD with `iface`; the others with `net` */
        UNETD_IFACE_DEL,
        /* Reply carries what the stack has of an RDMA device: enum unetd_link_fd. */
        UNETD_LINK_OPEN,
        UNETD_LINK_DRIVE,  /* the asking process has the link's queue pair now */
        UNETD_REMOTE_OPEN, /* channel to who has a port on another host */
        /* As K_RLINK: what an earlier unetd gave; for when the keeper has died, too. */
        UNETD_LINK_BACK,
        UNETD_CHAN_BACK, /* ... as K_CHAN, a channel to a stack of another host */
        /* unetd -> client, unasked */
        UNETD_EMUL_CALL, /* somebody calls the name */
        /* client -> keeper */
        UNETD_STACK_GET, /* reply carries the stack's descriptors */
        UNETD_CHAN_GET,  /* reply carries the channel's descriptors */
        /* unetd -> keeper */
        UNETD_K_DIRECTORY, /* fd: the directory, with `hello` (flags); first of all, not answered */
        UNETD_K_CLIENT,    /* fd: a connection to one client of this user; not answered */
        UNETD_K_STACK,     /* attach a stack; fds as UNETD_STACK_NEW */
        UNETD_K_PROC,      /* fd: pidfd of a process of the stack */
        UNETD_K_PROC_DEL,  /* a process let go of its slot */
        UNETD_K_CHAN,      /* attach a channel; fds: see enum unetd_chan_fd */
        UNETD_K_CHAN_DOWN, /* the peer is gone; answered when the slot may be used again */
        /* Nothing new begins by one of the stack's channels to stacks of `uid` (UINT32_MAX: of
         * anybody), that which was not used for longest. Answered with its number, `slot`;
         * -ENOENT: all are in use. */
        UNETD_K_CHAN_YIELD,
        /* The other end of this one yields: it is down, if nothing uses it; -EBUSY: something
         * does. */
        UNETD_K_CHAN_PART,
        UNETD_K_CHAN_STAY, /* channel `slot`, which yielded, is as before; not answered */
        UNETD_K_LEFT,   /* a client closed its connection: process `pid` may be another program by
                         * now; not answered */
        UNETD_K_FLIGHT, /* the same, passed on; answered when the keeper watches it */
        /* fd: the epoll instance that has in it the kernel sockets that are in messages, by their
         * cookies; both ways, not answered: the keeper that comes next goes on with it. */
        UNETD_K_FLIGHTS,
        UNETD_K_SETTLE, /* answered when processes that are dead by now have nothing left */
        /* keeper -> unetd; not answered, but for K_HELLO. A keeper that outlived its unetd offers
         * itself with K_HELLO, then all it holds, in the form of K_STACK, K_PROC, K_RLINK,
         * LISTEN_ADD, PORT_HOLD, PORT_LEASE and K_CHAN with seq 0, and at last K_OFFERED. When
         * K_HELLO is answered -EEXIST, the user has another keeper by now: the offers go to that
         * one, and who made them leaves. */
        UNETD_K_HELLO,
        UNETD_K_OFFERED,    /* that was all */
        UNETD_K_PROC_GONE,  /* the process is dead, its slot is free */
        UNETD_K_ORPHAN,     /* no process of the stack is left: it accepts nothing new */
        UNETD_K_GONE,       /* the stack is empty and detached */
        UNETD_K_UNLISTEN,   /* a listener lost its last holder */
        UNETD_K_ALOFT,      /* no process has the listener: unetd lets go of its socket, so that
                             * the keeper sees whether anybody else has it */
        UNETD_K_CHAN_TAKEN, /* before the answer to K_STACK, or after the offer of one: no new
                             * channel may have this number (struct unetd_stack), which one has that
                             * unetd does not know and is not offered */
        UNETD_K_CHAN_FREE,  /* a number that was in use is no more */
        UNETD_K_LINK,  /* this process of the stack, or the keeper, has the link's queue pair now */
        UNETD_K_RLINK, /* what a stack has of an RDMA device: enum unetd_link_fd; both ways, not
                        * answered; said again when the device goes or comes back */
        UNETD_TYPES
};

/* Order of descriptors in STACK_NEW, K_STACK and the reply to STACK_GET. */
enum unetd_stack_fd {
        /* memfd; to and from unetd for reading only: the keeper opens it anew, as its owner. Where
         * the client cannot do that (no /proc) unetd gives up writing itself. */
        UNETD_FD_STATE,
        UNETD_FD_BELL, /* memfd of one page, read and write */
        /* Bell socket and the stack's own ringer (unet/bell_fd.h), O_NONBLOCK. */
        UNETD_FD_LEADER,
        UNETD_FD_RING_LEADER,
        UNETD_FD_KEEPER,
        UNETD_FD_RING_KEEPER,
        UNETD_STACK_FDS
};

/* Order of descriptors in K_CHAN and the reply to CHAN_GET. */
enum unetd_chan_fd {
        UNETD_FD_TX,          /* own transmit region, read and write */
        UNETD_FD_RX,          /* the peer's, read only */
        UNETD_FD_PEER_BELL,   /* read only */
        UNETD_FD_PEER_LEADER, /* ringers, this end's own */
        UNETD_FD_PEER_KEEPER,
        UNETD_CHAN_FDS
};

/* Order of descriptors in K_CHAN and the reply to CHAN_GET for a channel to an interface
 * (unet/xdp/xdp.h) that a stack has to itself. One that several share is their bridge's: as for a
 * channel to a stack. */
enum unetd_iface_fd {
        UNETD_FD_IF_TX,     /* frames to send from, read and write */
        UNETD_FD_IF_MEM,    /* the UMEM, and what is shared of it */
        UNETD_FD_IF_XSK,    /* the AF_XDP socket; UNETD_LINK_TCX: the bell */
        UNETD_FD_IF_PACKET, /* the packet socket */
        UNETD_FD_IF_RING,   /* UNETD_LINK_TCX only: what is received, and its rings; */
        UNETD_FD_IF_SENDER, /* ... and the AF_XDP socket that sends */
        UNETD_TCX_FDS
};
#define UNETD_XDP_FDS      UNETD_FD_IF_RING
#define UNETD_CHAN_FDS_MAX UNETD_TCX_FDS /* of any channel */
static_assert((int)UNETD_CHAN_FDS <= (int)UNETD_CHAN_FDS_MAX, "room for either");

/* Order of descriptors in the reply to LINK_OPEN (unet/verbs/vlink.h). */
enum unetd_link_fd {
        UNETD_FD_LINK_MEM,  /* the stack's, read and write */
        UNETD_FD_LINK_BOOK, /* unetd's, read only */
        UNETD_LINK_FDS
};

/* Order of descriptors in K_CHAN and the reply to CHAN_GET for a channel to a stack of
 * another host. */
enum unetd_remote_fd {
        UNETD_FD_RM_TX,  /* frames to send from, read and write */
        UNETD_FD_RM_MEM, /* the link's two */
        UNETD_FD_RM_BOOK,
        UNETD_REMOTE_FDS
};
static_assert((int)UNETD_REMOTE_FDS <= (int)UNETD_CHAN_FDS_MAX, "room for each kind");
static_assert((int)UNETD_CHAN_FDS_MAX <= (int)UNETD_FDS_MAX &&
                      (int)UNETD_STACK_FDS <= (int)UNETD_FDS_MAX,
              "a message carries them");

/* Order of descriptors in EMUL_ATTACH and its reply. */
enum unetd_emul_fd {
        UNETD_FD_REGION, /* read only, both */
        UNETD_FD_STATION,
        UNETD_EMUL_FDS
};

/* Kinds of items that UNETD_STATUS walks, in this order. */
enum unetd_status_kind {
        UNETD_S_DAEMON,
        UNETD_S_KEEPER,
        UNETD_S_STACK,
        UNETD_S_CHAN,
        UNETD_S_LISTENER,
        UNETD_S_HOLD,
        UNETD_S_LEASE,
        UNETD_S_EMUL,
        UNETD_S_LINK,
        UNETD_S_REMOTE,
        UNETD_S_GATE,
        UNETD_S_SOCKET,
        UNETD_S_KINDS
};

struct unetd_hello {
        uint32_t abi;
        uint32_t flags;    /* request: UNETD_HAS_KEEPER; reply: UNETD_SHARED */
        uint64_t instance; /* reply: random number of this run of unetd */
        int32_t pid;       /* reply: unetd's */
};
#define UNETD_SHARED 1u /* a system-wide unetd, used by several users */
/* The client had another unetd, whose keeper may come: wait for it. */
#define UNETD_HAS_KEEPER 2u

struct unetd_stack {
        uint32_t stack;  /* STACK_NEW: 0, or the number it had before unetd was restarted */
        uint32_t slot;   /* process slot of `pid` */
        int32_t pid;     /* 0: the process at the other end of the connection */
        uint32_t uid;    /* K_STACK */
        uint32_t procs;  /* K_STACK: processes of it that K_PROC names next */
        uint64_t cookie; /* STACK_GET with stack 0: SO_COOKIE of one of its sockets */
};

/* | index: stands for an interface of unetd's where a stack's number would. */
#define UNETD_IFACE        0x80000000u
#define UNETD_REMOTE       0x40000000u /* | number: stands for a stack of another host */
#define UNETD_STACK_ID_MAX 0x3fffffffu
/* A stack's number says whose it is, in its upper 14 bits: when unetd is another one, nobody comes
 * with what was another user's before. */
#define UNETD_STACKS_OF_USER 0x10000u
static_assert((uint64_t)UNETD_STACKS_OF_USER << 14 == (uint64_t)UNETD_STACK_ID_MAX + 1 &&
                      (UNETD_STACK_ID_MAX & (UNETD_IFACE | UNETD_REMOTE)) == 0,
              "a number stands for one thing");
static inline uint32_t unetd_stacks_of(uint32_t uid)
{
        return (uid * 2654435761u) >> 18 << 16;
}
/* Returns true if both stacks are of one user, or of two that share numbers. */
static inline bool unetd_of_one_user(uint32_t a, uint32_t b)
{
        return a / UNETD_STACKS_OF_USER == b / UNETD_STACKS_OF_USER;
}

struct unetd_chan_info {
        uint32_t stack, chan;           /* our end */
        uint32_t peer_stack, peer_chan; /* the other end; or the interface, and 0 */
        uint32_t peer_uid;
        struct frame_geom tx_geom, rx_geom; /* interface with a socket: rx_geom is all zero */
        struct unetd_iface {                /* interface: what the stack is on it */
                char name[16];              /* ends with a zero */
                uint32_t addr, gateway;     /* IPv4, in host order; 0: none */
                uint32_t prefix;            /* bits */
                uint32_t serial;     /* of the way to it: a K_CHAN for a channel that is there, with
                                      * another one, changes what it goes by */
                uint8_t link;        /* enum unetd_link */
                uint8_t csum_pseudo; /* UNETD_LINK_GATE: unet_caps.csum_pseudo, */
                uint8_t mac[6];      /* its address, */
                uint32_t mtu;        /* and MTU; of a socket its memory says it */
        } iface;
        /* To a stack of another host: `iface` is what we are there, peer_chan the
         * interface's index. */
        uint32_t remote;  /* its address, IPv4 in host order */
        uint32_t mtu;     /* longest packet both ends can take */
        uint32_t no_csum; /* both agents say that the link's CRC is enough */
};
enum unetd_link {
        UNETD_LINK_XDP, /* an AF_XDP socket, the stack's own */
        /* A program's rings in its place (unet/xdp/tcx_ring.h), the stack's own as well. */
        UNETD_LINK_TCX,
        UNETD_LINK_GATE, /* unetd's bridge, shared with others (unetd/bridge/gate.h) */
};
static inline bool unetd_is_iface(uint32_t stack)
{
        return stack & UNETD_IFACE;
}
static inline bool unetd_is_remote(uint32_t stack)
{
        return (stack & (UNETD_IFACE | UNETD_REMOTE)) == UNETD_REMOTE;
}
/* The stack has the interface to itself: it goes by rings, and not by regions. */
static inline bool unetd_chan_is_own(const struct unetd_chan_info *info)
{
        return unetd_is_iface(info->peer_stack) && info->iface.link != UNETD_LINK_GATE;
}
/* One more in the reply to CHAN_GET, behind those of K_CHAN: the state of a peer that is the same
 * user's, if the keeper has it. */
#define UNETD_FD_PEER_STATE ((unsigned)UNETD_CHAN_FDS)
static_assert((int)UNETD_CHAN_FDS < (int)UNETD_CHAN_FDS_MAX, "room for it");
static inline unsigned unetd_chan_nfds(const struct unetd_chan_info *info)
{
        if (unetd_is_remote(info->peer_stack))
                return UNETD_REMOTE_FDS;
        if (unetd_chan_is_own(info))
                return info->iface.link == UNETD_LINK_TCX ? UNETD_TCX_FDS : UNETD_XDP_FDS;
        return UNETD_CHAN_FDS;
}

struct unetd_port {
        uint32_t stack;
        uint8_t proto; /* IPPROTO_TCP or IPPROTO_UDP */
        uint8_t pad;
        uint16_t port; /* host order */
        ip_addr addr;
        /* LISTEN_*, K_UNLISTEN, K_ALOFT: which of the stack's there (SO_COOKIE), 0: all it has. */
        uint64_t sock;
};

struct unetd_lease {
        uint32_t stack;
        uint16_t first, count;
};

struct unetd_far {
        uint32_t stack, iface; /* iface: as in the directory */
        uint32_t addr; /* IPv4, host order. REMOTE_OPEN: the other host's; LINK_OPEN, reply: ours */
        uint32_t chan; /* REMOTE_OPEN, reply */
        uint32_t qpn, qkey, mtu; /* LINK_DRIVE, K_LINK: of the queue pair */
        uint32_t pinned_kb;      /* LINK_DRIVE, K_LINK: what it may touch */
        uint8_t proto, pad;      /* REMOTE_OPEN: IPPROTO_TCP or IPPROTO_UDP, and the port there */
        uint16_t port;
};

struct unetd_emul {
        uint32_t port;     /* the endpoint's: ATTACH gives it; CONNECT, ACCEPT */
        uint32_t listener; /* CALL; ACCEPT */
        uint32_t tag;      /* replies to CONNECT, ACCEPT: of the channel */
        uint32_t flags;    /* LISTEN */
        uint32_t uid;      /* CONNECT: whose name; reply to ACCEPT: who called */
        int32_t pid;       /* reply to ACCEPT */
        union {
                char name[UNETD_EMUL_NAME]; /* LISTEN, CONNECT; ends with a zero */
                struct {
                        uint64_t region_bytes, station_bytes;
                        struct frame_geom geom;
                } mem; /* ATTACH and its reply */
        };
};
#define UNETD_EMUL_ANYBODY 1u /* users other than the name's may call it */

/* A change of routes, static neighbours or interfaces (ip/netconf.h). Without a name, the interface
 * is the one on whose network the gateway or the neighbour is; ROUTE_DEL: any, and so any gateway
 * when it is 0. */
struct unetd_net {
        char iface[16];             /* ends with a zero; IFACE_*: must be there */
        struct route route;         /* ROUTE_*; its ifindex does not count */
        struct netconf_neigh neigh; /* NEIGH_*; the same */
        uint32_t flags;             /* ROUTE_DEL */
};
#define UNETD_NET_METRIC 1u /* only the route with this metric */

/* Counts of an emulated endpoint's messages. */
struct unetd_emul_counts {
        uint64_t sent, received; /* messages taken from it, and put before it */
        uint32_t waiting_kb;     /* of its messages at receivers */
        /* Its own fault. */
        uint32_t bad_source, no_channel, malformed, quota;
        /* Its slowness. */
        uint32_t queue_full, no_buffer;
};

/* One row of `unet status`. Fields that a kind does not use are 0. */
struct unetd_status_item {
        uint32_t kind;  /* enum unetd_status_kind; request: the first kind wanted */
        uint32_t index; /* request: where to go on; reply: where to go on after this one */
        uint32_t uid;
        int32_t pid;          /* DAEMON, KEEPER; STACK, EMUL: the process that made it */
        uint32_t stack, chan; /* STACK; CHAN: one end; LISTENER, HOLD, LEASE: whose; EMUL: port */
        uint32_t peer_stack, peer_chan; /* CHAN: the other end */
        uint32_t peer_uid;
        uint32_t flags; /* DAEMON: UNETD_SHARED; STACK: UNETD_ORPHAN */
        union {
                struct {
                        uint32_t clients, stacks, chans, listeners; /* DAEMON */
                        uint8_t proto;                              /* LISTENER, HOLD */
                        uint8_t pad;
                        uint16_t port;  /* LISTENER, HOLD; LEASE: first */
                        uint32_t count; /* LEASE */
                        ip_addr addr;
                };
                struct unetd_emul_counts emul; /* EMUL; GATE: a stack at an interface's bridge */
                struct { /* LINK: a stack's queue pair on a device; REMOTE: a peer's there */
                        char iface[16]; /* ends with a zero */
                        uint32_t at;    /* whose address: IPv4, host order */
                        uint32_t qpn;   /* LINK: 0: nobody drives it */
                        uint32_t mtu, pinned_kb;
                        uint32_t ranges; /* REMOTE: of ports that it may send from */
                        uint32_t no_csum;
                        /* LINK: queue pairs of others that the stack's processes named. */
                        uint32_t refused;
                } qp;
                struct { /* SOCKET: of a stack that has an interface to itself; struct xdp_drops */
                        char iface[16]; /* ends with a zero */
                        uint64_t no_buffer, queue_full, fragments, odd;
                        uint64_t bad_source; /* of what it sent (unet/xdp/send_check.h) */
                } xsk;
        };
};
#define UNETD_ORPHAN 1u /* its processes are gone, the keeper finishes */

struct unetd_msg {
        uint32_t magic;
        uint16_t type; /* enum unetd_type; a reply repeats the request's */
        uint16_t nfds;
        uint32_t seq; /* chosen by who asks, repeated in the reply */
        int32_t err;  /* replies: 0 or a negative errno */
        union {
                struct unetd_hello hello;
                struct unetd_stack stack;
                struct unetd_chan_info chan;
                struct unetd_port port;
                struct unetd_lease lease;
                struct unetd_emul emul;
                struct unetd_net net;
                struct unetd_iface_config iface;
                struct unetd_far link;
                struct unetd_status_item status;
                uint8_t bytes[112];
        };
};
static_assert(sizeof(struct unetd_msg) == 128, "the same in every build of one ABI");
static_assert(UNETD_CHANS_MAX % 64 == 0, "sets of them are whole words");

#endif
