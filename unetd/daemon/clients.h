/* Connections of clients, their requests, and the waiters: requests that are answered later. */
#ifndef UNETD_CLIENTS_H
#define UNETD_CLIENTS_H

#include "unetd/daemon/daemon.h"

void clients_accept(struct loop_source *s, uint32_t events);
void clients_bury(void); /* frees the dead */
/* Makes a waiter: the client's request is answered later. 0 or a negative errno. */
int waiter_new(struct client *cl, const struct unetd_msg *request, struct waiter **w);
/* Answers with the waiter's request as it stands now, and frees the waiter. */
void waiter_end(struct waiter *w, int err);
/* Frees the waiter without an answer. */
void waiter_drop(struct waiter *w);
void waiters_expire(void);
nstime waiters_deadline(void);

#endif
