/*
 * An AF_XDP socket (XSK) that a stack owns: what its maker (xdp_open.h, privileged) and its users (ni_xdp.h, without
 * privilege) agree on.
 *
 * Two descriptors are passed: the socket, and a memfd that holds the UMEM, and behind it what the processes of the
 * stack share of the provider. Everything else is in that memory, or the kernel says it of the socket:
 *
 *      memfd:  | rx_chunks of chunk_bytes | tx_chunks of chunk_bytes | struct ni_xdp_shared: geometry, positions |
 *              |<-------------- UMEM, pinned by the kernel --------->|<------------- of the stack -------------->|
 *
 *      receive chunk:   FILL ring -> kernel -> RX ring -> lent to the stack -> FILL ring
 *      transmit chunk:  written -> TX ring -> kernel -> COMPLETION ring -> written again
 *
 * The FILL and RX rings have room for every receive chunk, the TX and COMPLETION rings for every transmit chunk: no
 * ring but TX is ever full. Frames are whole Ethernet frames, without checksum; the interface's MTU does not count
 * the 14 bytes of their header.
 */
#ifndef UNET_XDP_H
#define UNET_XDP_H

#include "netstack/base.h"
#include "netstack/frame.h"

#define XDP_ETH_BYTES  14u
#define XDP_HEADROOM   256u             /* the kernel's XDP_PACKET_HEADROOM: free before every received packet */
#define XDP_CHUNKS_MAX 32768u           /* of one socket, both kinds together */
#define XDP_RING_MAX   16384u

enum xdp_mode { XDP_MODE_NATIVE, XDP_MODE_GENERIC };    /* where the program runs: in the driver, or after it */

struct xdp_geom {
        uint32_t ifindex, queue;        /* in the network namespace of the socket */
        uint32_t mtu;                   /* of the interface when the socket was made */
        uint32_t chunk_bytes;           /* 2048 or 4096 */
        uint32_t rx_chunks, tx_chunks;  /* tx_chunks: a power of two, the size of the TX and COMPLETION rings */
        uint32_t rx_ring;               /* size of the FILL and RX rings: a power of two, >= rx_chunks */
        uint8_t mac[6];
        uint8_t mode;                   /* enum xdp_mode */
        uint8_t zero_copy;
        uint8_t csum_pseudo;            /* other ends are on this machine and may leave sums to a device: unet_caps */
        uint8_t zero[3];
};

static inline size_t xdp_umem_bytes(const struct xdp_geom *g)
{
        return (size_t)(g->rx_chunks + g->tx_chunks) * g->chunk_bytes;
}

/* Chunks for packets of an MTU: headroom, Ethernet header and packet fit. 0: none are large enough. */
static inline uint32_t xdp_chunk_for(uint32_t mtu)
{
        return mtu + XDP_ETH_BYTES + XDP_HEADROOM <= 2048 ? 2048 : mtu + XDP_ETH_BYTES + XDP_HEADROOM <= 4096 ? 4096 : 0;
}

/*
 * The frame number of a packet lent by ni_xdp: that of the 2048 bytes of the UMEM in which it begins, 1 for the first.
 * So frame_addr() finds it in a region of small frames, and with chunks of 4096 bytes it may go on into the next.
 */
static inline struct frame_geom xdp_frame_geom(const struct xdp_geom *g)
{
        return (struct frame_geom){{[FRAME_SMALL] = (uint32_t)(xdp_umem_bytes(g) / FRAME_SMALL_BYTES)}};
}

#endif
