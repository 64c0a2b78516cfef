/*
 * Takes an interface by a packet socket (packet(7)) with virtio headers: frames of up to 64 KB in both directions, whose
 * cutting, joining and summing is the kernel's. The privileged half (CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF), as xdp_open.h is
 * for AF_XDP; built where libbpf and clang are, elsewhere -ENOSYS.
 *
 * What arrives goes to the socket and to nobody else: behind the place where it is taken a program drops it (tcx, Linux 6.6),
 * so the kernel neither answers nor forwards. It hangs on an unpinned link: when the last descriptor of that is
 * closed, also by the death of its holder, the interface is as before.
 */
#ifndef UNET_PKT_OPEN_H
#define UNET_PKT_OPEN_H

#include "unet/xdp/ifinfo.h"
#include "unet/xdp/xdp_open.h"

struct pkt_dev {
        int sock, link;                 /* descriptors: the socket, the program's link */
        struct ifinfo info;
};

/*
 * `whole`: fragments are put together by the kernel before they are received (PACKET_FANOUT_FLAG_DEFRAG). 0; -ENODEV; -EPERM;
 * -EOPNOTSUPP: this kernel cannot hang the program so; -ENOSYS; other negative errno. `line` says what was done, or what
 * failed.
 */
int pkt_dev_open(struct pkt_dev *d, const char *ifname, bool whole, char line[XDP_LINE_MAX]);
void pkt_dev_close(struct pkt_dev *d);

#endif
