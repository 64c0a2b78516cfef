/* Provider `xdp`: taking over a socket that somebody passed. Checked first, mapped then, and used from our own copy. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "netstack/sys.h"
#include "unet/memfd.h"
#include "unet/ni_xdp.h"

#define SHARED_BYTES (xdp_mem_bytes(&(struct xdp_geom){0}))

static bool is_xsk(int fd)
{
        int domain = 0;
        socklen_t len = sizeof domain;

        return sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_XDP;
}

/* A file that cannot shrink under our reads, of a size that one of ours can have. */
static int check_mem(int fd, size_t *bytes)
{
        const int want = F_SEAL_SHRINK | F_SEAL_GROW;
        int seals = fcntl(fd, F_GET_SEALS);
        struct statfs fs;
        struct stat st;

        if (seals < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || fstatfs(fd, &fs) != 0 ||
            fs.f_type != TMPFS_MAGIC)
                return -EPROTO;
        if ((seals & want) != want)
                return -EPERM;
        if (st.st_size < (off_t)SHARED_BYTES || st.st_size > (off_t)(XDP_CHUNKS_MAX * 4096ul + SHARED_BYTES))
                return -EPROTO;
        *bytes = (size_t)st.st_size;
        return 0;
}

static bool power_of_two(uint32_t n)
{
        return n != 0 && (n & (n - 1)) == 0;
}

static bool geom_valid(const struct xdp_geom *g, size_t bytes)
{
        return (g->chunk_bytes == 2048 || g->chunk_bytes == 4096) && g->rx_chunks >= 1 &&
               power_of_two(g->tx_chunks) && g->tx_chunks <= XDP_RING_MAX && power_of_two(g->rx_ring) &&
               g->rx_ring <= XDP_RING_MAX && g->rx_chunks <= g->rx_ring &&
               g->rx_chunks + g->tx_chunks <= XDP_CHUNKS_MAX && xdp_mem_bytes(g) == bytes && g->mtu >= 68 &&
               g->mtu <= 4096 && xdp_chunk_for(g->mtu) != 0 && xdp_chunk_for(g->mtu) <= g->chunk_bytes;
}

static int map_mem(struct ni_xdp *x, int mem)
{
        size_t bytes;
        int err = check_mem(mem, &bytes);
        uint8_t *at;

        if (err == 0 && x->umem != NULL && bytes != x->mem_bytes)
                err = -ENOSPC;
        if (err != 0)
                return err;
        at = unet_memfd_map(mem, bytes, true, x->umem);
        if (at == NULL)
                return -ENOMEM;
        x->umem = at;
        x->mem_bytes = bytes;
        x->sh = (struct ni_xdp_shared *)(x->umem + bytes - SHARED_BYTES);
        x->geom = *(const volatile struct xdp_geom *)&x->sh->geom;
        return x->sh->magic == XDP_SHARED_MAGIC && geom_valid(&x->geom, bytes) ? 0 : -EPROTO;
}

static int map_rings(struct ni_xdp *x)
{
        int err = xdp_ring_map(&x->fill, x->xsk, XDP_RING_FILL, x->geom.rx_ring);

        if (err == 0)
                err = xdp_ring_map(&x->comp, x->xsk, XDP_RING_COMP, x->geom.tx_chunks);
        if (err == 0)
                err = xdp_ring_map(&x->rx, x->xsk, XDP_RING_RX, x->geom.rx_ring);
        if (err == 0)
                err = xdp_ring_map(&x->tx, x->xsk, XDP_RING_TX, x->geom.tx_chunks);
        return err;
}

/* With a header that says how to cut. Its interface has another number in the namespace that it is of (pkt_sealed.h). */
static bool is_packet_socket(int fd)
{
        struct sockaddr_ll ll = {.sll_family = 0};
        socklen_t len = sizeof ll, on_len = sizeof(int);
        int on = 0;

        return sys3(SYS_getsockname, fd, &ll, &len) == 0 && ll.sll_family == AF_PACKET && ll.sll_ifindex > 0 &&
               sys5(SYS_getsockopt, fd, SOL_PACKET, PACKET_VNET_HDR, &on, &on_len) == 0 && on == 1;
}

static int attach(struct ni_xdp *x, int xsk, int mem, int packet, struct unet_mem tx_mem)
{
        int err;

        x->xsk = xsk;
        x->packet = packet;
        x->tx_mem = tx_mem;
        err = map_mem(x, mem);
        if (err == 0)
                err = map_rings(x);
        if (err == 0 && packet >= 0 && !is_packet_socket(packet))
                err = -EPROTO;
        if (err != 0)
                return err;
        x->base.caps = (struct unet_caps){
                .mtu = x->geom.mtu + XDP_ETH_BYTES,
                .inline_max = UNET_INLINE_MAX,
                .csum = true,
                .csum_pseudo = x->geom.csum_pseudo != 0,
                .runs = packet >= 0,
                .rto_min = 200 * NS_PER_MS,
                .whole = true,
        };
        return 0;
}

int ni_xdp_attach(struct ni_xdp *x, int xsk, int mem, int packet, struct unet_mem tx_mem, struct counters *cnt)
{
        int err = is_xsk(xsk) ? 0 : -EPROTO;

        *x = (struct ni_xdp){.base.ops = &ni_xdp_ops, .cnt = cnt, .inline_most = UNET_INLINE_MAX};
        if (err == 0)
                err = attach(x, xsk, mem, packet, tx_mem);
        if (err != 0)
                ni_xdp_detach(x);
        return err;
}

static bool same_sizes(const struct xdp_geom *a, const struct xdp_geom *b)
{
        return a->chunk_bytes == b->chunk_bytes && a->rx_chunks == b->rx_chunks && a->tx_chunks == b->tx_chunks &&
               a->rx_ring == b->rx_ring;
}

int ni_xdp_reattach(struct ni_xdp *x, int xsk, int mem, int packet, struct unet_mem tx_mem)
{
        struct xdp_geom g;
        size_t bytes;
        int err = is_xsk(xsk) ? check_mem(mem, &bytes) : -EPROTO;

        if (err == 0 && (bytes != x->mem_bytes ||
                         pread(mem, &g, sizeof g, (off_t)(bytes - SHARED_BYTES + offsetof(struct ni_xdp_shared, geom))) !=
                                 sizeof g ||
                         !same_sizes(&g, &x->geom)))
                return -ENOSPC;
        if (err == 0)
                err = attach(x, xsk, mem, packet, tx_mem);
        if (err != 0)
                ni_xdp_forsake(x);
        return err;
}

/* A mapped ring would keep the socket, and with it the queue. */
static void empty(void *p, size_t bytes)
{
        if (p != NULL)
                sys6(SYS_mmap, (long)p, (long)bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void ni_xdp_forsake(struct ni_xdp *x)
{
        empty(x->umem, x->mem_bytes);
        empty(x->fill.map, x->fill.bytes);
        empty(x->comp.map, x->comp.bytes);
        empty(x->rx.map, x->rx.bytes);
        empty(x->tx.map, x->tx.bytes);
}

void ni_xdp_detach(struct ni_xdp *x)
{
        xdp_ring_unmap(&x->fill);
        xdp_ring_unmap(&x->comp);
        xdp_ring_unmap(&x->rx);
        xdp_ring_unmap(&x->tx);
        if (x->umem != NULL)
                munmap(x->umem, x->mem_bytes);
        x->umem = NULL;
}
