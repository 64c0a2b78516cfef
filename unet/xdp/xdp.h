/*
 * An interface that a stack has to itself: what its maker (xdp_open.h, privileged) and its users
 * (ni_xdp.h, without privilege) agree on. Receive and transmit chunks are one region, and four
 * rings name what is in which state:
 *
 *      region: | rx_large of 64 KB | rx_chunks of chunk_bytes | tx_chunks of tx_chunk_bytes |
 *
 *      receive chunk:   FILL ring -> kernel -> RX ring -> lent to the stack -> FILL ring
 *      transmit chunk:  written -> TX ring -> kernel -> COMPLETION ring -> written again
 *
 * The FILL and RX rings have room for every receive chunk, the TX and COMPLETION rings for every
 * transmit chunk: no ring but TX is ever full. Frames are whole Ethernet frames, without checksum;
 * the interface's MTU does not count the 14 bytes of their header.
 *
 * In the modes of AF_XDP the region is the UMEM of a socket (XSK), and the rings are the socket's.
 * Passed are the socket and a memfd with the region, and behind it what the processes of the stack
 * share of the provider (struct ni_xdp_shared).
 *
 * In mode XDP_MODE_TCX a program of ours behind the driver (tcx_prog.bpf.c) does what the socket
 * does for reception: it takes a chunk out of FILL, copies the packet there, and puts it into RX.
 * Receive chunks and those two rings are a map of the program's (tcx_ring.h) and large frames are
 * received whole. Transmit chunks stay in the memfd, and are the UMEM of an XSK that only sends, by
 * the device of the packet socket (pkt_sealed.h), so that it can be taken away with that; a packet
 * longer than a chunk is some chunks. Passed are the memfd, that socket, the map, and a second map
 * that is poll(2)ed.
 */
#ifndef UNET_XDP_H
#define UNET_XDP_H

#include "base/base.h"
#include "base/frame.h"

#define XDP_ETH_BYTES 14u
/* The kernel's XDP_PACKET_HEADROOM: free before every received packet. */
#define XDP_HEADROOM   256u
#define XDP_CHUNKS_MAX 32768u /* of one socket, both kinds together */
#define XDP_RING_MAX   16384u

enum xdp_mode {
        XDP_MODE_NATIVE,
        XDP_MODE_GENERIC, /* AF_XDP; the program runs in the driver, or after it */
        XDP_MODE_TCX,
};

struct xdp_geom {
        uint32_t ifindex, queue; /* in the network namespace of the socket */
        uint32_t mtu;            /* of the interface when the socket was made */
        uint32_t chunk_bytes;    /* 2048 or 4096 */
        /* The same; XDP_MODE_TCX: 4096 where packets are longer than 2048. */
        uint32_t tx_chunk_bytes;
        /* tx_chunks: a power of two, the size of the TX and COMPLETION rings. */
        uint32_t rx_chunks, tx_chunks;
        /* Size of the FILL and RX rings: a power of two, >= rx_large + rx_chunks. */
        uint32_t rx_ring;
        uint32_t rx_large; /* frames of FRAME_LARGE_BYTES; 0 but in mode XDP_MODE_TCX */
        uint8_t mac[6];
        uint8_t mode; /* enum xdp_mode */
        uint8_t zero_copy;
        /* Other ends are on this machine and may leave sums to a device: unet_caps. */
        uint8_t csum_pseudo;
        uint8_t zero[3];
};

static inline size_t xdp_large_bytes(const struct xdp_geom *g)
{
        return (size_t)g->rx_large * FRAME_LARGE_BYTES;
}
static inline size_t xdp_rx_bytes(const struct xdp_geom *g)
{
        return xdp_large_bytes(g) + (size_t)g->rx_chunks * g->chunk_bytes;
}
static inline size_t xdp_umem_bytes(const struct xdp_geom *g)
{
        return xdp_rx_bytes(g) + (size_t)g->tx_chunks * g->tx_chunk_bytes;
}
/* Transmit chunks that a packet may take. Of each but the first the kernel makes a page of its
 * packet buffer, which has room for 17 (MAX_SKB_FRAGS). */
static inline uint32_t xdp_tx_pieces(const struct xdp_geom *g)
{
        return g->mtu + XDP_ETH_BYTES > g->tx_chunk_bytes ? FRAME_LARGE_BYTES / g->tx_chunk_bytes
                                                          : 1;
}
/* The largest IP packet that there is room for, should the interface's MTU grow. */
static inline uint32_t xdp_mtu_max(const struct xdp_geom *g)
{
        return xdp_tx_pieces(g) * g->tx_chunk_bytes - XDP_ETH_BYTES -
               (g->mode == XDP_MODE_TCX ? 0 : XDP_HEADROOM);
}
/* Bytes of the region that are not in the memfd. */
static inline size_t xdp_map_bytes(const struct xdp_geom *g)
{
        return g->mode == XDP_MODE_TCX ? xdp_rx_bytes(g) : 0;
}

/* Where transmit chunks begin, in addresses of the UMEM that they are of. */
static inline uint64_t xdp_tx_addr(const struct xdp_geom *g)
{
        return g->mode == XDP_MODE_TCX ? 0 : xdp_rx_bytes(g);
}

/* Receive chunks have numbers, from 0 on, large ones first. */
static inline uint32_t xdp_rx_count(const struct xdp_geom *g)
{
        return g->rx_large + g->rx_chunks;
}
static inline uint64_t xdp_rx_addr(const struct xdp_geom *g, uint32_t chunk)
{
        if (chunk < g->rx_large)
                return (uint64_t)chunk * FRAME_LARGE_BYTES;
        return xdp_large_bytes(g) + (uint64_t)(chunk - g->rx_large) * g->chunk_bytes;
}
/* The chunk in which an address lies; from xdp_rx_count() on: in none. */
static inline uint64_t xdp_rx_chunk(const struct xdp_geom *g, uint64_t addr)
{
        if (addr < xdp_large_bytes(g))
                return addr / FRAME_LARGE_BYTES;
        return g->rx_large + (addr - xdp_large_bytes(g)) / g->chunk_bytes;
}
static inline uint32_t xdp_rx_chunk_bytes(const struct xdp_geom *g, uint64_t chunk)
{
        return chunk < g->rx_large ? FRAME_LARGE_BYTES : g->chunk_bytes;
}

/* Chunks for packets of an MTU: headroom, Ethernet header and packet fit. 0: none are
 * large enough. */
static inline uint32_t xdp_chunk_for(uint32_t mtu)
{
        return mtu + XDP_ETH_BYTES + XDP_HEADROOM <= 2048   ? 2048
               : mtu + XDP_ETH_BYTES + XDP_HEADROOM <= 4096 ? 4096
                                                            : 0;
}

/*
 * The frame number of a packet lent by ni_xdp: that of its large chunk, or else of the 2048 bytes
 * of the region in which it begins. So frame_addr() finds it in a region of frames, and with chunks
 * of 4096 bytes it may go on into the next.
 */
static inline struct frame_geom xdp_frame_geom(const struct xdp_geom *g)
{
        return (struct frame_geom){
                {[FRAME_LARGE] = g->rx_large,
                 [FRAME_SMALL] =
                         (uint32_t)((xdp_umem_bytes(g) - xdp_large_bytes(g)) / FRAME_SMALL_BYTES)}};
}
static inline uint32_t xdp_frame_of(const struct xdp_geom *g, uint64_t addr)
{
        if (addr < xdp_large_bytes(g))
                return (uint32_t)(addr / FRAME_LARGE_BYTES) + 1;
        return g->rx_large + (uint32_t)((addr - xdp_large_bytes(g)) / FRAME_SMALL_BYTES) + 1;
}

#endif
