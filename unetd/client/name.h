/*
 * The abstract socket names that unetd listens on: @unet/<uid>/<ABI>/<domain>/<0..7>. Abstract
 * names belong to a network namespace, as ports do. Anybody may take any of them, so a name proves
 * nothing: who holds it is asked of the kernel (SO_PEERCRED).
 *
 * Whoever takes all eight would keep a system-wide unetd out. So that has a file besides, which is
 * tried first and only root can make: /run/unet/<domain>.<ABI>.<network namespace>. The last part
 * is the namespace's cookie (SO_NETNS_COOKIE), which no other has until the next boot. The abstract
 * names are for who cannot see /run (chroot, another mount namespace).
 */
#ifndef UNETD_NAME_H
#define UNETD_NAME_H

#include <sys/socket.h>
#include <sys/un.h>

#include "base/base.h"

#define UNETD_DOMAIN_DEFAULT "default"

/* Returns true if a string can be a domain: 1 .. UNETD_DOMAIN_MAX letters, digits, '-', '_', '.'.
 */
bool unetd_domain_valid(const char *domain);
/* UNET_DOMAIN of the environment; the default when it is unset or empty; NULL when it is
 * not valid. */
const char *unetd_domain(void);
#define UNETD_RUN_DIR "/run/unet"
/* Fills in the file's address, in the network namespace of `sock`; returns its length, 0: the
 * kernel is too old to tell. */
socklen_t unetd_system_name(struct sockaddr_un *sun, const char *domain, int sock);
/* Fills in the address of name number i; returns its length. */
socklen_t unetd_name(struct sockaddr_un *sun, uint32_t uid, const char *domain, unsigned i);

#endif
