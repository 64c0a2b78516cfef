/*
 * Whose a queue pair is, as the kernel says (its resource tracking, rdma/rdma_netlink.h): a process
 * may name its own, nobody else's. Who named another's would have that one's packets taken for its
 * own, and the peers refuse the true owner.
 *
 * The kernel remembers the thread that made a queue pair, as long as it lives.
 */
#ifndef UNETD_OWNERS_H
#define UNETD_OWNERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OWNER_NAME 64u /* bytes of a device's name, as the kernel has it */

/* The thread that made the queue pair `qpn` of the RDMA device that has the address (IPv4, host
 * order). 0; -ENODEV: no device has the address; -ENOENT: there is no such queue pair; -ESRCH: its
 * maker is gone; or why the kernel does not say. */
int owner_of(uint32_t addr, uint32_t qpn, int32_t *tid);

/* ---- what it is made of, for tests ---- */

/* Reads one attribute of a netlink answer of `len` bytes, message header and all: a number, or a
 * text. Returns false if it is not there, or not in form. */
bool owner_attr_u32(const void *msg, size_t len, uint16_t attr, uint32_t *out);
bool owner_attr_text(const void *msg, size_t len, uint16_t attr, char text[OWNER_NAME]);
/* "0000:0000:0000:0000:0000:ffff:0a4d:0001": whether this GID is the IPv4 address. */
bool owner_gid_is(const char *gid, uint32_t addr);

#endif
