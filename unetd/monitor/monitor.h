/*
 * A system-wide unetd is two processes:
 *
 *   monitor  root; does what root.h lists, when it is asked, for whom it has seen itself. It reads
 *            nothing that a user sends.
 *   broker   a user of its own, without capabilities (broker.h); all of unetd/daemon runs here.
 *
 * They share a socketpair, on which the broker asks and the monitor answers, one at a time. The
 * monitor takes the broker for hostile: it opens interfaces of the config only, starts keepers only
 * for users whose connections it was shown, and asks the kernel, not the broker, whose a connection
 * is. If one of the two ends, so does the other.
 *
 * A unetd that serves one user is one process, and these functions are those of root.h.
 */
#ifndef UNETD_MONITOR_H
#define UNETD_MONITOR_H

#include "unetd/monitor/root.h"

/* We are the broker, and this is the connection to the monitor. */
void monitor_connect(int sock);

/* A client of this user has connected: a keeper may be started for him from now on. 0 or a
 * negative errno. */
int monitor_user(int client);

/* As those of root.h. */
int monitor_keeper(uint32_t uid, uint32_t gid, int fd);
int monitor_rings_try(uint32_t i, char line[XDP_LINE_MAX]);
int monitor_rings_open(uint32_t i, bool checked, bool at_once, struct root_rings *r,
                       char line[XDP_LINE_MAX]);
int monitor_packet_open(uint32_t i, struct pkt_dev *d, char line[XDP_LINE_MAX]);
int monitor_arp_open(uint32_t i);
int monitor_sender_mtu(const struct pkt_sealed *s, uint32_t mtu);
int monitor_sender_end(struct pkt_sealed *s, struct send_check *c);
int monitor_sender_mac(uint32_t i, struct send_check *c);
int monitor_bind(int fd, const struct sockaddr *sa, socklen_t len);
/* The rules of the configuration file as it is now: how many; a negative errno, and what is wrong
 * in `line`. */
int monitor_rules(struct rule rule[RULES_MAX], char line[XDP_LINE_MAX]);
void monitor_process(int32_t pid, int32_t tid, struct root_process *p);
/* `client`: the connection of the root who wants it. 0; -EPERM. */
int monitor_iface_set(uint32_t i, const struct unetd_iface_config *c, int client);

#endif
