/*
 * The one rule for who may have (family, address, port, protocol) on the fabric: the user who has
 * it in the kernel, compared whole.
 *
 *   how it is claimed              what vouches for it
 *   LISTEN_ADD with a socket       the socket: vouch_socket()
 *   LISTEN_ADD at a held port      the hold, whose kernel socket is unetd's own
 *   an offer of the user's keeper  a socket that the kernel lists there, of this uid (and with this
 *                                  SO_COOKIE, if one is said)
 *
 * What vouched must still do so. A claim is stale once its socket is gone or has moved. A stale
 * claim gives way to any other; if nobody else wants the port, claims_tick() finds it. That holds,
 * too, for claims of which unetd keeps no copy of the socket (K_ALOFT, UDP with SO_REUSEADDR). A
 * private unetd checks nothing: it has one user.
 */
#ifndef UNETD_CLAIMS_H
#define UNETD_CLAIMS_H

#include "unetd/daemon/daemon.h"

/* Judges whether the stack may have the port of a LISTEN_ADD: 0 and the SO_COOKIE of what vouches
 * for it (0: a hold); -EBADMSG, -EINVAL, -EACCES. */
int claim_judge(const struct stack *st, const struct wire_in *in, bool offered, uint64_t *cookie);
/* Returns true if the socket that vouched for an entry still does. */
bool claim_stands(const struct stack *st, const struct listener *l);
/* Ends stale claims, from time to time. Returns when to be called again. */
nstime claims_tick(void);

#endif
