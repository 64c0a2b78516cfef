/*
 * Network namespaces joined by veth pairs, for tests as root. A namespace is a descriptor; with the
 * last one of it closed, at the latest by the end of the process, it is gone and everything in it.
 * Nothing outside is touched.
 */
#ifndef TESTS_NETNS_BED_H
#define TESTS_NETNS_BED_H

#include "tests/unit.h"

/* Why namespaces cannot be made here; NULL: they can. */
const char *bed_impossible(void);
/* Skips the test, saying why, where namespaces cannot be made. */
void bed_needs_root(void);
/* A new namespace with loopback up and without IPv6, whose chatter would disturb. */
int bed_ns(void);
/* The caller's thread is in the namespace from here on; sockets stay in the one they were
 * made in. */
void bed_enter(int ns);
/* Runs a shell command in the namespace; it must succeed. */
void bed_run(int ns, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A veth pair, one end in each, up, with offloads off and so many queues each way. */
void bed_veth(int ns_a, const char *a, int ns_b, const char *b, unsigned mtu, unsigned queues);
/* Two NICs for the ends of a wire, as UNET_TEST_NICS names them ("virtio3 virtio4": devices of the
 * namespace this program was started in, where they come back to); NULL: none. */
const char *bed_nics(void);
/* Those, one in each; or else a veth pair. */
void bed_wire(int ns_a, const char *a, int ns_b, const char *b, unsigned mtu);
/* An AF_PACKET socket on an interface, which sees every frame that the kernel gets there, and none
 * that it sends. */
int bed_packet_socket(int ns, const char *ifname);

#endif
