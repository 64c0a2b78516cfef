/*
 * The one rule for who may have (family, address, port, protocol) on the fabric: who has it in the
 * kernel, compared whole.
 *
 *   how it is claimed              what vouches for it
 *   LISTEN_ADD with a socket       the socket: vouch_socket()
 *   LISTEN_ADD at a held port      the hold, whose kernel socket is unetd's own
 *   an offer of the user's keeper  a socket that the kernel lists there, of this uid (and with this
 *                                  SO_COOKIE, if one is said)
 *
 * What vouched must go on to: a claim whose socket is no more, or somewhere else by now, gives way
 * to any other, and is found by claims_tick() if nobody else wants the port. So it is for claims of
 * which unetd keeps no copy of the socket, too (K_ALOFT, UDP with SO_REUSEADDR). A private unetd
 * has one user, who may do to himself what he likes.
 */
#ifndef UNETD_CLAIMS_H
#define UNETD_CLAIMS_H

#include "unetd/daemon/daemon.h"

/* Whether the stack may have the port of a LISTEN_ADD: 0 and the SO_COOKIE of what vouches for it
 * (0: a hold); -EBADMSG, -EINVAL, -EACCES. */
int claim_judge(const struct stack *st, const struct wire_in *in, bool offered, uint64_t *cookie);
/* Returns true if the socket that vouched for an entry still does. */
bool claim_stands(const struct stack *st, const struct listener *l);
/* Now and then: ends those that do not stand. Returns when to be called again. */
nstime claims_tick(void);

#endif
