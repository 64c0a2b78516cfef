/* RDMA devices, the links of stacks to them, and channels to stacks of other hosts: what the rest
 * of the daemon calls in links.c, remotes.c and opens.c. */
#ifndef UNETD_LINKS_H
#define UNETD_LINKS_H

#include "unetd/daemon/daemon.h"

void links_init(void); /* starts the agents */
nstime links_tick(void);
/* Returns true if the configuration names an RDMA device. */
bool links_are_there(void);
int link_open(struct client *cl, struct unetd_msg *msg);
/* A client brings the link that its stack has from an earlier unetd. 0 or a negative errno. */
int link_back(struct user *u, struct wire_in *in);
/* Process `pid` says that it has the queue pair. -EPERM: the kernel says otherwise. */
int link_drive(struct user *u, int32_t pid, const struct unetd_msg *msg);
int remote_open(struct client *cl, struct unetd_msg *msg);
/* The record is the channel's from now on. */
void remote_seat(struct chan *ch, struct remote *r);
/* The keeper has attached the channel; or the channel ends. */
void remote_up(struct chan *ch);
void remote_gone(struct chan *ch);
/* Gives the keeper the stack's links, whose descriptors it keeps for the next unetd;
 * link_offered(): it brings one of the last unetd's. */
void links_replay(const struct stack *st);
void link_offered(struct user *u, struct wire_in *in);
/* Restores the far end of a channel that an earlier unetd made, from the stack's book. NULL: the
 * channel cannot go on. */
struct remote *remote_restore(const struct stack *st, const struct unetd_chan_info *info);
/* Fills in what a keeper or a process is told of the channel. */
void remote_describe(const struct chan *ch, struct unetd_chan_info *info,
                     int fds[UNETD_CHAN_FDS_MAX]);
void links_free(struct stack *st);
/* Tells the agents that know a stack that ports came to it, or left it (add false). Returns what
 * the request that did it returns: 0, or REPLY_LATER. `cl` NULL: no request waits. */
int links_ports(struct client *cl, const struct unetd_msg *request, struct stack *st,
                struct vlink_range r, bool add);
/* Fill in the skip-th link of the stack (returns false if there are fewer), and a channel to
 * another host. */
bool link_status(const struct stack *st, uint32_t *skip, struct unetd_status_item *item);
void remote_status(const struct chan *ch, struct unetd_status_item *item);
/* Forget the waiter, which is being freed. */
void opening_forget(struct opening *o);
void telling_forget(struct telling *t);

#endif
