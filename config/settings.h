/*
 * What can be set, in one place. The config file (config/config.h) fills in this struct and nothing
 * else.
 */
#ifndef UNETD_CONFIG_H
#define UNETD_CONFIG_H

#include "ip/netconf.h"
#include "base/base.h"
#include "base/frame.h"
#include "config/rule.h"

/* Limits hold for each uid by itself. Together they bound the descriptors that one user can make
 * unetd hold, queued ones included: some 100,000 of the million that a system-wide unetd takes. */
struct unetd_limits {
        uint32_t clients; /* connections to unetd, and to a keeper */
        uint32_t stacks;
        uint32_t procs;           /* process slots in use, over all stacks */
        uint32_t chans;           /* over all stacks */
        uint32_t chans_per_stack; /* <= UNETD_CHANS_MAX, and what a stack has room for */
        uint32_t listeners;
        uint32_t holds;
        uint32_t leases;             /* client ports */
        uint32_t emul_endpoints;     /* attached to the switch */
        uint32_t emul_names;         /* that are listened on */
        uint32_t emul_chans;         /* ends of channels through the switch */
        uint32_t emul_kb, emul_msgs; /* of messages that wait for their receivers */
};

/* An interface that unetd owns for its clients: [interface NAME]. Addresses are IPv4, in
 * host order. */
enum unetd_iface_mode { IFACE_AUTO, IFACE_NATIVE, IFACE_GENERIC, IFACE_TCX };
enum unetd_iface_probe { IFACE_PROBE_QUICK, IFACE_PROBE_FULL, IFACE_PROBE_NO };

/*
 * What its packets go by. XDP: the first stack's own rings (unet/xdp/xdp.h), and a bridge with a
 * packet socket (unet/packet/pkt_open.h) when there are several. PACKET: a bridge always. BEST: as
 * XDP, and as PACKET where there can be no such rings. VERBS: an RDMA device.
 */
enum unetd_iface_provider { IFACE_BEST, IFACE_XDP, IFACE_PACKET, IFACE_VERBS };

/* Whether what a stack sends by an interface that it has to itself is checked
 * (unet/xdp/send_check.h): auto: if it is another user's than unetd's. */
enum unetd_iface_check { IFACE_CHECK_AUTO, IFACE_CHECK_YES, IFACE_CHECK_NO };

#define UNETD_IFACES    NETCONF_IFS
#define UNETD_PINNED_MB 256u /* unless the config file says otherwise */
#define UNETD_SILENCE_S 600

struct unetd_iface_config {
        char name[16];
        uint32_t addr, gateway; /* 0: none */
        uint8_t prefix;         /* bits of addr's network */
        uint8_t mode;           /* enum unetd_iface_mode: how the program is attached */
        uint32_t metric;        /* of the route by the gateway */
        uint8_t probe;          /* enum unetd_iface_probe: for the address, before it is used */
        uint16_t queue;         /* of the interface */
        uint8_t provider;       /* enum unetd_iface_provider */
        uint8_t check;          /* enum unetd_iface_check */
        uint8_t checksum;       /* verbs: 0: transports need not sum, where the other host agrees */
        uint32_t pinned_mb;     /* verbs: most memory registered by all its stacks */
        int64_t silence_s;      /* verbs: how long another host's unetd may be silent, or our device
                                 * away, before channels there end; 0: for ever */
};

struct unetd_config {
        char domain[40];
        bool shared; /* --system: serves every user */
        bool foreground;
        int idle_s;    /* leave after so long without clients and stacks; give an orphan up
                        * after so long without a peer; < 0: never */
        char log[256]; /* file; empty: none (or stderr in the foreground) */
        struct unetd_limits per_uid;
        struct frame_geom geom; /* of transmit regions */
        uint32_t lease_ports;   /* given at once, at most */
        uint32_t queue_max;     /* replies kept for a client that does not read */
        /* How long a client waits for a keeper that is stopped (unetd/client/stopped.h), ... */
        int reply_ms;
        /* ... and for one that is slow, or not there yet: on a busy machine it is started late. */
        int slow_ms;
        int adopt_ms; /* how long a new unetd waits for a keeper of the last one */
        struct unetd_iface_config iface[UNETD_IFACES];
        uint32_t nifaces;
        bool said_link; /* an interface's `provider` by the key's older name */
        /* Interface n is iface[n - 1]; without those by its bridge. */
        struct route route[NETCONF_ROUTES];
        uint32_t nroutes;
        struct netconf_neigh neigh[NETCONF_NEIGHS];
        uint32_t nneighs;
        struct rule rule[RULES_MAX]; /* in the file's order */
        uint32_t nrules;
        uint32_t ip_ttl, source_routes, redirects;
        uint8_t tcp_ecn; /* enum tcp_ecn of tcp/tcp.h */
        uint8_t tcp_cc;  /* enum of tcp/tcp_cc.h */
        uint32_t arp_reachable_s;
};

#define UNETD_CONFIG_DEFAULT                                                            \
        {                                                                               \
                .domain = "default", .idle_s = 30,                                      \
                .per_uid = {.clients = 16384,                                           \
                            .stacks = 16384,                                            \
                            .procs = 16384,                                             \
                            .chans = 32768,                                             \
                            .chans_per_stack = 1024,                                    \
                            .listeners = 4096,                                          \
                            .holds = 1024,                                              \
                            .leases = 65536,                                            \
                            .emul_endpoints = 256,                                      \
                            .emul_names = 256,                                          \
                            .emul_chans = 1024,                                         \
                            .emul_kb = 32768,                                           \
                            .emul_msgs = 8192},                                         \
                .geom = {.count = {[FRAME_LARGE] = 512, [FRAME_SMALL] = 16384}},        \
                .lease_ports = 64, .queue_max = 64, .reply_ms = 4000, .slow_ms = 50000, \
                .adopt_ms = 1000, .ip_ttl = IP_TTL_USUAL, .arp_reachable_s = 30,        \
        }

#endif
