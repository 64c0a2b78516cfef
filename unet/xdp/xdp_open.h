/*
 * Takes interfaces for stacks: the privileged half of the provider `xdp` (CAP_NET_ADMIN,
 * CAP_NET_RAW, CAP_BPF, and CAP_SYS_ADMIN for pkt_sealed.h; unetd as root, and tests). Built where
 * libbpf and clang are (UNET_XDP); elsewhere every call returns -ENOSYS.
 *
 * An interface gets one program of ours. For AF_XDP (xdp_prog.bpf.c) a packet that arrives by a
 * queue for which a socket was made goes to it, every other one to the kernel as before; in mode
 * XDP_MODE_TCX (tcx_prog.bpf.c) all packets but those of VLANs go to the one who has the interface.
 * The program hangs on an unpinned link: when the last descriptor of the link is closed, also by
 * the death of its holder, the interface is as before.
 */
#ifndef UNET_XDP_OPEN_H
#define UNET_XDP_OPEN_H

#include "unet/packet/line.h"
#include "unet/packet/pkt_sealed.h"
#include "unet/xdp/xdp.h"

/* A program on an interface. */
struct xdp_dev {
        int link, map, shed; /* descriptors: of the bpf link, of the map from queue to socket, of
                              * the count of fragments; in mode XDP_MODE_TCX -1 */
        uint32_t ifindex, mtu;
        uint32_t queues; /* receive queues of the interface */
        uint8_t mac[6];
        bool csum_pseudo; /* a veth: packets are handed over in memory, unfinished sums and all */
        enum xdp_mode mode;
};

enum xdp_want { XDP_WANT_BEST, XDP_WANT_NATIVE, XDP_WANT_GENERIC, XDP_WANT_TCX };

/*
 * Puts the program on an interface of this network namespace, or, for XDP_MODE_TCX, sees that
 * xdp_sock_open() can. BEST: on a veth tcx, where the kernel has it, and on all with several
 * queues, where it has to; else AF_XDP, native, and generic where the driver cannot. 0;
 * -ENODEV: no such interface, or not Ethernet; -EPERM; -EBUSY: another XDP program is there;
 * -EMSGSIZE: the MTU is too large for one chunk, or for the driver in native mode; -EOPNOTSUPP: a
 * kernel without tcx; -ENOSYS; other negative errno of the kernel. `line` says what was chosen and
 * why, or what failed and what would help.
 *
 * On a veth, tcx is the fastest (docs/decisions.md), and takes the other end's large segments
 * whole. Of AF_XDP generic is the faster one, but only native makes the other end cut its large
 * segments: with generic, segmentation offload has to be switched off there (ethtool -K).
 */
int xdp_dev_open(struct xdp_dev *d, const char *ifname, enum xdp_want want,
                 char line[XDP_LINE_MAX]);
/* The interface is as before, unless somebody else holds the link too. */
void xdp_dev_close(struct xdp_dev *d);

/* What was dropped before a stack saw it, since the socket and the program were made. One system
 * call each. */
struct xdp_drops {
        uint64_t no_buffer;  /* no chunk in FILL: the stack holds them all */
        uint64_t queue_full; /* no place in RX */
        uint64_t fragments; /* of a flood that no reassembly can bring to an end: frag_shed.bpf.h */
        uint64_t odd;       /* longer than any chunk (XDP_MODE_TCX) */
};

/* Sizes asked for; 0 chooses. Rounded up to what rings can be. `rx_large` is for XDP_MODE_TCX only.
 * `at_once`: a queue that was let go of just now is not waited for (up to a second). `mark`: of all
 * that is sent (SO_MARK), so that it can be told (send_check.h); XDP_MODE_TCX only, since what an
 * AF_XDP socket on the interface itself sends passes no program. */
struct xdp_sizes {
        uint32_t rx_chunks, rx_large, tx_chunks;
        bool at_once;
        uint32_t mark;
};

/* A socket bound to a queue, and a packet socket (pkt_sealed.h) for runs of segments that the
 * kernel cuts; -1 where there can be none, for the reason in no_packet, a negative errno. The
 * descriptors are the caller's, to pass on (but for that of the namespace, the link and the
 * counts) and to close; the socket lives until the last copy is closed, the memory as long as the
 * socket. In mode XDP_MODE_TCX the AF_XDP socket only sends; what is passed besides is what
 * tcx_ring.h describes. */
struct xdp_sock {
        int xsk; /* the AF_XDP socket; XDP_MODE_TCX: the bell, to be polled as it is */
        int mem;
        int ring;   /* XDP_MODE_TCX: chunks and rings of reception; else -1 */
        int sender; /* XDP_MODE_TCX: an AF_XDP socket on the device of the packet socket; else -1 */
        int link, drops; /* XDP_MODE_TCX: the program's link and counts; else -1 */
        struct pkt_sealed packet;
        int no_packet;
        struct xdp_geom geom;
};

/*
 * Makes a socket for one queue of the interface, ready for ni_xdp_attach(), zero copy where the
 * driver can; or takes all of its queues (XDP_MODE_TCX). Receive chunks are in the FILL ring when
 * it returns. 0; -EINVAL: no such queue, or sizes out of range; -EBUSY: the queue has a socket, or
 * the interface such a program; -EPERM; -ENOBUFS or -ENOMEM: the limit of locked memory (kernels
 * before 5.11), or no memory; -EOPNOTSUPP: the kernel is too old to let another process map the
 * rings (before 6.4); -ENOSYS; XDP_MODE_TCX: what pkt_sealed_open() says. `line` as above.
 */
int xdp_sock_open(struct xdp_sock *s, const struct xdp_dev *d, uint32_t queue,
                  struct xdp_sizes sizes, char line[XDP_LINE_MAX]);
void xdp_sock_close(struct xdp_sock *s);

void xdp_drops(const struct xdp_sock *s, const struct xdp_dev *d, struct xdp_drops *n);

#endif
