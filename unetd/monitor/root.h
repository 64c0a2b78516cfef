/*
 * All that unetd does as root, and nothing else. In a system-wide unetd only the monitor calls this
 * (monitor.h), and checks the arguments first; in one that serves a single user unetd does, with
 * that user's rights.
 *
 * Interfaces are those of the config, by index. Functions return 0 or a descriptor, or a negative
 * errno.
 */
#ifndef UNETD_ROOT_H
#define UNETD_ROOT_H

#include <sys/socket.h>

#include "config/settings.h"
#include "unet/packet/pkt_open.h"
#include "unet/xdp/send_check.h"
#include "unet/xdp/xdp_open.h"

/* Rings of an interface and what they hang on: what xdp_dev_open(), xdp_sock_open() and
 * send_check_open() made. A broker has of the check what counts, and the monitor the rest. */
struct root_rings {
        struct xdp_dev dev;
        struct xdp_sock sock;
        struct send_check check; /* SEND_CHECK_NONE: none was asked for */
};

/* A process as the kernel shows it, also where /proc hides those of others (hidepid, proc(5)). */
struct root_process {
        uint32_t uid; /* of the process, or of the thread that was asked for besides */
        bool is_there;
        bool has_thread; /* that thread is one of its own */
        bool stopped;    /* as process_is_stopped() */
};

/* Before anything else: remembers the limits that the starter has set, for keepers. `cfg` is used,
 * not copied. */
void root_init(struct unetd_config *cfg);

/* Starts a keeper of the user with `fd` (borrowed) as its connection. Its pid. */
int root_keeper(uint32_t uid, uint32_t gid, int fd);

/* Tries whether rings can be had; the interface is as before. `line` as xdp_dev_open(). */
int root_rings_try(uint32_t i, char line[XDP_LINE_MAX]);
/* `checked`: with a check of what is sent; `at_once` as struct xdp_sizes has it. */
int root_rings_open(uint32_t i, bool checked, bool at_once, struct root_rings *r,
                    char line[XDP_LINE_MAX]);
/* A packet socket that takes all packets; `line` as pkt_dev_open(). */
int root_packet_open(uint32_t i, struct pkt_dev *d, char line[XDP_LINE_MAX]);
/* A packet socket, bound to the interface, for ARP. */
int root_arp_open(uint32_t i);
/* The MTU of what the rings' packet socket sends by. */
int root_sender_mtu(const struct pkt_sealed *s, uint32_t mtu);
/* Ends a sender, and the check of what it sends. */
int root_sender_end(struct pkt_sealed *s, struct send_check *c);
/* The interface's link address may be another now: what is checked is this one. */
int root_sender_mac(uint32_t i, struct send_check *c);

/* An interface that the config file does not have takes place i. */
void root_iface_set(uint32_t i, const struct unetd_iface_config *c);
bool root_iface_is_sane(const struct unetd_iface_config *c);

/* Binds a socket to a port that only root may have. */
int root_bind(int fd, const struct sockaddr *sa, socklen_t len);

/* Opens a file that a user passed anew: fd_reopen(). */
int root_reopen(int fd, int flags);

/* `tid` 0: no thread is asked for. */
void root_process(int32_t pid, int32_t tid, struct root_process *p);

#endif
