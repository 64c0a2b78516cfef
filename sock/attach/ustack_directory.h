/*
 * What a process reads of unetd's directory: who has a port, addresses, interfaces, rules.
 * (ustack_directory.c, ustack_policy.c)
 */
#ifndef SOCK_USTACK_DIRECTORY_H
#define SOCK_USTACK_DIRECTORY_H

#include "sock/attach/ustack.h"

/* In the keeper: another unetd's directory, a descriptor that is taken. */
void ustack_set_directory(int fd);
/* The directory is this one from now on, which stays mapped. */
void ustack_directory_is(const struct directory *dir);
/* The directory, or NULL. */
const struct directory *ustack_directory(void);
/* The same, whether this process has a stack already or not. */
const struct directory *ustack_directory_anyway(void);
/* The same, without starting a unetd where there is none. */
const struct directory *ustack_directory_if_any(void);
/* Why the kernel carries a socket that listens (UDP: is bound) at its own address and port, or
 * that connects (UDP: sends) to another's: a rule of the configuration; NULL: it is ours if it can
 * be. (ustack_policy.c) */
const char *ustack_rule(const struct directory *dir, uint8_t proto, enum rule_role role,
                        ip_addr addr, uint16_t port);
/* What the kernel has against a connection or datagram to there, a negative errno: -ENETUNREACH
 * also if `lo` is down, by which it would be lost. 0: nothing, or it cannot be asked. */
int ustack_kernel_says(const struct directory *dir, uint8_t proto, ip_addr addr, uint16_t port);
/* Why the kernel carries a connection or datagram to who has this address of this host: it has
 * something against it, and will say what. NULL: nothing, or it cannot be asked. */
const char *ustack_kernel_refuses(const struct directory *dir, uint8_t proto, ip_addr addr,
                                  uint16_t port);
/* Who has a port, by the directory; patient with a unetd that is writing. */
bool ustack_lookup(uint8_t proto, ip_addr addr, uint16_t port, uint32_t hint, struct dir_hit *hit);
/* Returns true if another user's stack may speak for a port (struct stack, vouch). */
bool ustack_vouch(struct stack *s, uint32_t k, uint8_t proto, ip_addr addr, uint16_t port);
/* Returns true if a UDP port is also another stack's (struct stack, elsewhere). */
bool ustack_elsewhere(struct stack *s, uint32_t k, ip_addr addr, uint16_t port);
/* Returns true if the stack takes connections there. `since`: the directory's generation when
 * it did. */
bool ustack_takes(uint32_t stack, ip_addr addr, uint16_t port, uint64_t since);
/* directory_is_local(), which waits for unetd in mid-write of it, a second at most: not with a
 * stack's lock. -EAGAIN: it is still being written, and nobody knows. (ustack_directory.c) */
int ustack_is_local(const struct directory *dir, ip_addr addr);
/* As that, directory_verbs(). */
int ustack_verbs_to(const struct directory *dir, ip_addr addr, struct dir_iface *f);
/* dir_read(), which waits as those do. */
bool ustack_read(const struct directory *dir, struct dir_reading *r);
/* All interfaces; a place whose `peer` is 0 has none. False: there never were any, or nobody knows.
 * `dir` may be NULL. */
bool ustack_ifaces(const struct directory *dir, struct dir_iface all[DIR_IFACES]);
/* The one with that `peer`. */
bool ustack_iface(const struct directory *dir, uint32_t peer, struct dir_iface *f);

#endif
