/*
 * What system-wide unetds that were killed have left in /run/unet: they were of other network
 * namespaces or domains, or of an earlier build, so nobody takes their places.
 *
 *   DOMAIN.ABI.NAMESPACE          removed when nobody listens there
 *   DOMAIN.ABI.NAMESPACE+         the same, if it is older than a unetd takes to begin
 *   DOMAIN.ABI.NAMESPACE.leases   a day after its unetd has ended: the next one may come till then
 *
 * Anything else stays.
 */
#ifndef UNETD_LEFTOVERS_H
#define UNETD_LEFTOVERS_H

/* `own`: the path of the socket that is about to take its place there. */
void leftovers_remove(const char *dir, const char *own);
/* The unetd of the leases in this file has ended, or begins. */
void leftovers_keep(const char *leases);

#endif
