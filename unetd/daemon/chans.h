/* Channels between two stacks, to an interface, or to a stack of another host. */
#ifndef UNETD_CHANS_H
#define UNETD_CHANS_H

#include "unetd/daemon/daemon.h"

int chan_open(struct client *cl, struct wire_in *in);
void chan_answered(struct ask *a, int err);
/* Handles the keeper's answer to K_CHAN_YIELD. */
void chan_yielded(struct user *u, const struct ask *a, const struct unetd_msg *msg);
/* Opens a channel from the stack to an interface, if there is none; no request waits for it. */
void chan_offer_iface(struct stack *st, struct iface *f);
/* Returns the stack whose channel is the interface's only one, and is up; 0: there is none. */
uint32_t chan_alone(const struct iface *f);
/* Moves the channel that had the interface's socket to the bridge that the interface has got. */
void chans_share(const struct iface *f);
/* Moves the interface's only channel from the bridge to a socket of its own. */
void chan_unshare(const struct iface *f);
/* Closes all channels to the interface. */
void chans_iface_gone(const struct iface *f);
/* Frees the ends of a stack that is gone, and closes the other ends. */
void chans_stack_gone(struct stack *st);
/* Does so with one of its ends; returns false if it has none. */
bool chans_stack_goes(struct stack *st);
/* Tells the keeper of an end what is so now. */
void chan_tell(struct end *e);
/* Ends what the stack's keeper, which is dead, was asked to do about yielding. */
void yield_replay(struct stack *st);
void chan_offered(struct user *u, struct wire_in *in);
/* A client brings a channel to another host that an earlier unetd made. 0 or a negative errno. */
int chan_back(struct user *u, struct wire_in *in);
/* The keeper says that the stack uses a channel's number (or does not any more) of which unetd does
 * not know: its keeper and the last unetd died together, or the channel is closing. */
void chan_number_taken(struct user *u, const struct unetd_msg *msg);
void chan_number_free(struct user *u, const struct unetd_msg *msg);
/* Makes a channel to a stack of another host, and asks the keeper; remote_up() follows its answer.
 * Takes r, also on failure. What another host asks for, and is not proven, is within its share. */
int chan_new_remote(struct stack *st, struct remote *r, struct chan **out);
/* Closes the channel; requests that wait for it get the error. */
void chan_close(struct chan *ch, int err);

#endif
