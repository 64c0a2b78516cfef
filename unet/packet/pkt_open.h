/*
 * Takes an interface by a packet socket (packet(7)) with virtio headers: frames of up to 64 KB in
 * both directions, whose cutting, joining and summing is the kernel's. Works with every driver and
 * every kernel from 5.10 on, and needs no BPF. The privileged half: CAP_NET_ADMIN, CAP_NET_RAW, and
 * CAP_SYS_ADMIN for macvlan.h.
 *
 * What arrives goes to the socket, and something behind the place where it is taken keeps the
 * kernel from it, so that the kernel neither answers nor forwards:
 *
 *   a tcx program (Linux 6.6; the caller's)  takes all packets
 *   a macvlan device, which is down          takes packets to single hosts; of what is for many the
 *                                            kernel hears, too. The interface has no other macvlan
 *                                            device and is part of no bridge then.
 *
 * Nobody pins either: when the last descriptor is closed, also by the death of its holder, the
 * interface is as before.
 */
#ifndef UNET_PKT_OPEN_H
#define UNET_PKT_OPEN_H

#include "unet/packet/ifinfo.h"
#include "unet/packet/line.h"

struct pkt_dev {
        int sock, link; /* descriptors: the socket, what is behind it */
        struct ifinfo info;
};

/* Hangs a program behind an interface's driver that drops everything: a descriptor that it hangs
 * on, or a negative errno. */
typedef int pkt_drop_behind(uint32_t ifindex);

/*
 * `whole`: fragments are put together by the kernel before they are received
 * (PACKET_FANOUT_FLAG_DEFRAG). `drop` is tried first; NULL: there is none. 0; -ENODEV; -EPERM; what
 * macvlan_open() says; other negative errno. `line` says what was done, or what failed.
 */
int pkt_dev_open(struct pkt_dev *d, const char *ifname, bool whole, pkt_drop_behind *drop,
                 char line[XDP_LINE_MAX]);
void pkt_dev_close(struct pkt_dev *d);

#endif
