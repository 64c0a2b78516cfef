/* Emulated endpoints: ports of one switch. */
#ifndef UNETD_EMUL_H
#define UNETD_EMUL_H

#include "unetd/daemon/daemon.h"

int emul_attach(struct client *cl, struct wire_in *in);
int emul_listen(struct client *cl, const struct unetd_msg *msg);
int emul_connect(struct client *cl, const struct unetd_msg *msg);
int emul_accept(struct client *cl, struct unetd_msg *msg);
/* Removes the name and the call of a connection that has ended. */
void emul_client_ended(struct client *cl);
bool emul_in_use(void); /* returns true if an endpoint is attached */
/* Does a bounded piece of the switch's work. Returns when to be called again. */
nstime emul_turn(void);
/* Fills in the skip-th port that the client may see. Returns false if there are fewer. */
bool emul_status(const struct client *cl, uint32_t skip, struct unetd_status_item *item);

#endif
