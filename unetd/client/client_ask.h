/* How client_calls.c asks: over a connection that is made, and made anew, when it is needed. */
#ifndef UNETD_CLIENT_ASK_H
#define UNETD_CLIENT_ASK_H

#include "unetd/client/client.h"
#include "unetd/client/sys.h"
#include "unetd/client/wire.h"

/* Sends *msg with n descriptors to unetd and waits for the reply; its descriptors are the caller's
 * then. 0 or -errno. */
int client_ask(struct unetd_client *c, struct unetd_msg *msg, const int *fds, unsigned n,
               struct wire_in *in);
/* A request whose reply has no descriptors: it takes the place of *msg. */
int client_ask_plain(struct unetd_client *c, struct unetd_msg *msg, const int *fds, unsigned n);
/* A request to the keeper, whose reply carries descriptors; how many is the caller's to check. */
int client_ask_keeper(struct unetd_client *c, struct unetd_msg *msg, struct wire_in *in);
/* A connection to a unetd stands, and it knows what its predecessor knew. 0 or -errno. */
int client_ready(struct unetd_client *c);
/* An answer is waited for until `end`, or until `look` and the one who is to give it is stopped, or
 * frozen, where it waits for nobody itself; ms of sys_now_ms(). */
struct client_patience {
        int64_t look, end;
        bool by_itself;
        uint64_t ran; /* of process_is_frozen() */
};
/* Sends a request and receives its reply; replies to earlier requests, given up on, are thrown
 * away. The reply's own error is returned; `in` then holds nothing. */
int client_exchange_until(struct unetd_client *c, struct unetd_conn *conn, struct unetd_msg *msg,
                          const int *fds, unsigned n, struct wire_in *in, struct client_patience p);
/* The same, with the usual patience. */
int client_exchange(struct unetd_client *c, struct unetd_conn *conn, struct unetd_msg *msg,
                    const int *fds, unsigned n, struct wire_in *in);
/* Closes it, unless the program has closed it before and given the number to something else. */
void client_drop(struct unetd_conn *conn);

#endif
