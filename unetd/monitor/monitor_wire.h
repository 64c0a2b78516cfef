/*
 * What broker and monitor say to each other: one struct each way, of one size, over SOCK_SEQPACKET;
 * descriptors by SCM_RIGHTS. A struct that has descriptors in it travels with these not negative
 * where there is one, and they follow in the order of its list.
 */
#ifndef UNETD_MONITOR_WIRE_H
#define UNETD_MONITOR_WIRE_H

#include <netinet/in.h>

#include "unetd/monitor/root.h"

enum mon_type {
        MON_USER,        /* fd: a connection of a client's; that user may have a keeper */
        MON_KEEPER,      /* uid; fd: the keeper's connection */
        MON_RINGS_TRY,   /* iface */
        MON_RINGS_OPEN,  /* iface, checked, at_once */
        MON_PACKET_OPEN, /* iface */
        MON_ARP_OPEN,    /* iface */
        MON_SENDER_MTU,  /* mtu; fd: the namespace of a packet socket that the monitor has made */
        MON_SENDER_END,  /* fd: the same */
        MON_SENDER_MAC,  /* iface */
        MON_IFACE_SET,   /* iface, cfg; fd: root's connection */
        MON_BIND,        /* name; fd: a socket */
        MON_REOPEN,      /* flags; fd: a memory file */
        MON_PROCESS,     /* pid, tid */
        MON_RULES,       /* the configuration file may be another now */
        MON_TYPES
};

struct mon_request {
        uint32_t type; /* enum mon_type */
        uint32_t iface;
        union {
                uint32_t uid;
                struct {
                        uint32_t checked, at_once;
                };
                uint32_t mtu;
                int32_t flags;
                struct {
                        int32_t pid, tid;
                };
                union {
                        struct sockaddr sa;
                        struct sockaddr_in in;
                        struct sockaddr_in6 in6;
                } name;
                struct unetd_iface_config cfg;
        };
};

struct mon_reply {
        int32_t err; /* 0 or more: what the function of root.h returns */
        char line[XDP_LINE_MAX];
        union {
                struct root_rings rings;
                struct pkt_dev packet;
                struct root_process process;
                struct rule rule[RULES_MAX];
        };
};

#define MON_FDS 16u /* more than any struct has */

/* The places of a struct's descriptors, in their order; how many. */
unsigned mon_rings_fds(struct root_rings *r, int *at[MON_FDS]);
unsigned mon_packet_fds(struct pkt_dev *d, int *at[MON_FDS]);

/* 0 or a negative errno. */
int mon_send(int sock, const void *msg, size_t len, const int *fds, unsigned n);
/* Waits for a message of this length, whose descriptors are the caller's, at most MON_FDS. 0;
 * -ECONNRESET: the other end is gone; -EBADMSG; -EMFILE: there was no number for one: then none is
 * the caller's. */
int mon_recv(int sock, void *msg, size_t len, int fds[MON_FDS], unsigned *n);

#endif
