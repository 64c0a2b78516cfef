/*
 * The abstract socket names that unetd listens on: @unet/<uid>/<ABI>/<domain>/<0..7>. Abstract names belong
 * to a network namespace, as ports do. Anybody may take any of them, so a name proves nothing: who holds it
 * is asked of the kernel (SO_PEERCRED).
 */
#ifndef UNETD_NAME_H
#define UNETD_NAME_H

#include <sys/socket.h>
#include <sys/un.h>

#include "base/base.h"

#define UNETD_DOMAIN_DEFAULT "default"

/* Whether a string can be a domain: 1 .. UNETD_DOMAIN_MAX letters, digits, '-', '_', '.'. */
bool unetd_domain_valid(const char *domain);
/* UNET_DOMAIN of the environment; the default when it is unset or empty; NULL when it is not valid. */
const char *unetd_domain(void);
/* Fills in the address of name number i; returns its length. */
socklen_t unetd_name(struct sockaddr_un *sun, uint32_t uid, const char *domain, unsigned i);

#endif
