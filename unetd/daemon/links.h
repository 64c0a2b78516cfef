/* RDMA devices, the links of stacks to them, channels to stacks of other hosts: what the rest of
 * the daemon asks of links.c, remotes.c and opens.c. */
#ifndef UNETD_LINKS_H
#define UNETD_LINKS_H

#include "unetd/daemon/daemon.h"

void links_init(void); /* starts the agents */
nstime links_tick(void);
int link_open(struct client *cl, struct unetd_msg *msg);
/* A client brings what its stack has from an earlier unetd. 0 or a negative errno. */
int link_back(struct user *u, struct wire_in *in);
/* Process `pid` says that it has the queue pair; -EPERM: the kernel does not. */
int link_drive(struct user *u, int32_t pid, const struct unetd_msg *msg);
int remote_open(struct client *cl, struct unetd_msg *msg);
/* The keeper has attached the channel; or it ends. */
void remote_up(struct chan *ch);
void remote_gone(struct chan *ch);
/* The keeper is told of the stack's links, whose descriptors it has for the next unetd; or it
 * brings one of the last one's. */
void links_replay(const struct stack *st);
void link_offered(struct user *u, struct wire_in *in);
/* The far end of a channel that an earlier unetd made, as the book has it. NULL: it cannot be gone
 * on with. */
struct remote *remote_restore(const struct stack *st, const struct unetd_chan_info *info);
/* What a keeper or a process is told of the channel. */
void remote_describe(const struct chan *ch, struct unetd_chan_info *info,
                     int fds[UNETD_CHAN_FDS_MAX]);
void links_free(struct stack *st);
/* Ports came to a stack, or left it (add false): agents that know it are told. Returns as the
 * request that did it is to: 0, or REPLY_LATER. `cl` NULL: nobody waits. */
int links_ports(struct client *cl, const struct unetd_msg *request, struct stack *st,
                struct vlink_range r, bool add);
/* The skip-th link of the stack; the channel, which is one to another host. */
bool link_status(const struct stack *st, uint32_t *skip, struct unetd_status_item *item);
void remote_status(const struct chan *ch, struct unetd_status_item *item);
/* A waiter is given up. */
void opening_forget(struct opening *o);
void telling_forget(struct telling *t);

#endif
