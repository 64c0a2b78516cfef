/*
 * Channels to stacks of other hosts over RDMA devices, and who drives a device's queue pair.
 * (ustack_link.c)
 */
#ifndef SOCK_USTACK_LINK_H
#define SOCK_USTACK_LINK_H

#include <poll.h>

#include "sock/attach/ustack.h"

/* ustack_link.c: interfaces over verbs. The channel to who has a port there; -ENOENT and *why. */
int ustack_remote(struct ustack *u, const struct dir_iface *f, uint8_t proto, ip_addr to,
                  uint16_t port, const char **why);
/* Other hosts may come to ask for a port of the stack's. */
void ustack_link_take(struct ustack *u, const struct dir_iface *f);
/* Maps link i, unless it is; the descriptors are borrowed. */
int ustack_link_map(struct ustack *u, uint32_t i, int mem, int book);
bool ustack_remote_vouches(const struct stack *s, uint32_t k, uint8_t proto, uint16_t port);
/* Before sleeping, under the lock; and what the driver then sleeps on, leader or not: at
 * most USTACK_LINK_FDS. */
#define USTACK_LINK_FDS (DIR_IFACES * VERBS_WAKE_FDS)
void ustack_links_arm(struct ustack *u);
/* Returns true if the stack has a link to any device. */
bool ustack_links_any(const struct ustack *u);
/* Another unetd is told what the last one gave: links, and then channels over them. Under
 * the lock. */
void ustack_links_back(struct ustack *u, struct unetd_client *c);
void ustack_remotes_back(struct ustack *u, struct unetd_client *c);
int ustack_links_fds(const struct ustack *u, struct pollfd *pfd);
bool ustack_links_own(const struct ustack *u, int fd);
/* Process `slot` drives nothing any more: it died, or runs another program. Under the lock. */
void ustack_links_left(struct ustack *u, uint32_t slot);
/* Somebody has waited for a while in vain: a driver that has something else to do is replaced by
 * the keeper. Under the lock. */
void ustack_links_doubt(struct ustack *u);
/* Another process drives one of the links: who waits looks now and then whether it does. */
bool ustack_links_elsewhere(const struct ustack *u);
/* The keeper's part: drives what nobody does. True: *moved is to be told to unetd; ask again. Under
 * the lock. */
bool ustack_links_keep(struct ustack *u, nstime now, struct unetd_far *moved);
/* When it is to be asked again in any case: something was tried in vain. */
nstime ustack_links_again(const struct ustack *u, nstime now);
/* We drive none any more, and the keeper does instead. Under the lock. */
void ustack_links_yield(struct ustack *u);
void ustack_links_forked(struct ustack *u);
void ustack_links_unmap(struct ustack *u);

#endif
