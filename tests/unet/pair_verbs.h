/* Endpoint pairs over RDMA devices, for the conformance suite: from the device with the address
 * $VM_ADDR to that with $VM_PEER (tests/vm/vm). Where the tree is built without libibverbs there
 * are none. */
#ifndef TESTS_UNET_PAIR_VERBS_H
#define TESTS_UNET_PAIR_VERBS_H

#include "pair.h"

extern const struct provider verbs_providers[];
extern const int nverbs_providers;

/* Joins p->a and p->b through a TCP connection between the two addresses. */
void join_verbs(struct pair *p);
/* A connected pair of TCP sockets, sock[0] at `from`, sock[1] at `to`. */
void tcp_pair(const char *from, const char *to, int sock[2]);
/* An address of the environment; the test fails if it is not there. */
const char *address_of_env(const char *name);

#endif
