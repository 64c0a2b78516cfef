/* Channels between two stacks, to an interface, or to a stack of another host. */
#ifndef UNETD_CHANS_H
#define UNETD_CHANS_H

#include "unetd/daemon/daemon.h"

int chan_open(struct client *cl, struct wire_in *in);
void chan_answered(struct ask *a, int err);
/* The answer to K_CHAN_YIELD. */
void chan_yielded(struct user *u, const struct ask *a, const struct unetd_msg *msg);
/* Opens a channel from the stack to an interface, if there is none, and nobody waits for it. */
void chan_offer_iface(struct stack *st, struct iface *f);
/* The one stack whose channel to the interface is up, and that has no other beside; 0: there
 * is none. */
uint32_t chan_alone(const struct iface *f);
/* The interface got a gateway: the channel that had the socket goes by it from now on. */
void chans_share(const struct iface *f);
/* It leaves the gateway: its channel goes by the interface's socket from now on. */
void chan_unshare(const struct iface *f);
/* All channels to the interface close. */
void chans_iface_gone(const struct iface *f);
/* The stack is gone: its ends are free, the other ends close. */
void chans_stack_gone(struct stack *st);
void chans_replay(struct stack *st);
void chan_offered(struct user *u, struct wire_in *in);
/* A client brings one to another host. 0 or a negative errno. */
int chan_back(struct user *u, struct wire_in *in);
/* What the stack's state has, and we do not know: its keeper and the last unetd died together, or
 * it is closing. */
void chan_number_taken(struct user *u, const struct unetd_msg *msg);
void chan_number_free(struct user *u, const struct unetd_msg *msg);
/* A channel to a stack of another host; takes r, also on failure. The keeper is asked; remote_up()
 * when it has answered. */
int chan_new_remote(struct stack *st, struct remote *r, struct chan **out);
/* It goes; those who wait for it get the error. */
void chan_close(struct chan *ch, int err);
/* The request is answered when the channel is up. */
int chan_wait(struct client *cl, struct end *e, const struct unetd_msg *request);

#endif
