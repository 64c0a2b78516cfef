/* Provider `xdp`: taking over a socket that somebody passed. Checked first, mapped then, and used
 * from our own copy. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/memfd.h"
#include "unet/xdp/ni_xdp.h"

#define MEM_MOST (off_t)(XDP_CHUNKS_MAX * 4096ul + XDP_SHARED_BYTES)

static bool is_xsk(int fd)
{
        int domain = 0;
        socklen_t len = sizeof domain;

        return sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
               domain == AF_XDP;
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
        if (st.st_size < (off_t)XDP_SHARED_BYTES || st.st_size > MEM_MOST)
                return -EPROTO;
        *bytes = (size_t)st.st_size;
        return 0;
}

static bool power_of_two(uint32_t n)
{
        return n != 0 && (n & (n - 1)) == 0;
}

static bool tx_chunks_valid(const struct xdp_geom *g)
{
        if (g->mode != XDP_MODE_TCX)
                return g->tx_chunk_bytes == g->chunk_bytes && g->rx_large == 0 && g->mtu <= 4096 &&
                       xdp_chunk_for(g->mtu) != 0 && xdp_chunk_for(g->mtu) <= g->chunk_bytes;
        return (g->tx_chunk_bytes == 4096 ||
                (g->tx_chunk_bytes == 2048 && xdp_tx_pieces(g) == 1)) &&
               g->tx_chunks >= xdp_tx_pieces(g) && g->mtu <= xdp_mtu_max(g);
}

static bool geom_valid(const struct xdp_geom *g, size_t bytes)
{
        return (g->chunk_bytes == 2048 || g->chunk_bytes == 4096) && g->rx_chunks >= 1 &&
               power_of_two(g->tx_chunks) && g->tx_chunks <= XDP_RING_MAX &&
               power_of_two(g->rx_ring) && g->rx_ring <= XDP_RING_MAX &&
               g->rx_chunks <= g->rx_ring && g->rx_large <= g->rx_ring - g->rx_chunks &&
               xdp_rx_count(g) + g->tx_chunks <= XDP_CHUNKS_MAX && tx_chunks_valid(g) &&
               xdp_mem_bytes(g) == bytes && g->mtu >= 68;
}

static bool same_sizes(const struct xdp_geom *a, const struct xdp_geom *b)
{
        return a->chunk_bytes == b->chunk_bytes && a->tx_chunk_bytes == b->tx_chunk_bytes &&
               a->rx_chunks == b->rx_chunks && a->rx_large == b->rx_large &&
               a->tx_chunks == b->tx_chunks && a->rx_ring == b->rx_ring &&
               (a->mode == XDP_MODE_TCX) == (b->mode == XDP_MODE_TCX);
}

static int read_geom(int mem, size_t bytes, struct xdp_geom *g)
{
        struct {
                uint64_t magic;
                struct xdp_geom geom;
        } head;
        static_assert(offsetof(struct ni_xdp_shared, geom) == sizeof head.magic,
                      "what it begins with");

        if (pread(mem, &head, sizeof head, (off_t)(bytes - XDP_SHARED_BYTES)) != sizeof head ||
            head.magic != XDP_SHARED_MAGIC || !geom_valid(&head.geom, bytes))
                return -EPROTO;
        *g = head.geom;
        return 0;
}

/* ---- memory ---- */

/* At an address or, if that is NULL, anywhere; NULL: it failed. */
static void *map_at(void *at, size_t bytes, int prot, int fd, size_t off)
{
        void *p = mmap(at, bytes, prot, MAP_SHARED | MAP_POPULATE | (at != NULL ? MAP_FIXED : 0),
                       fd, (off_t)off);

        return p == MAP_FAILED ? NULL : p;
}

/* Addresses for the whole region and what is behind it. */
static void *reserve(size_t bytes)
{
        void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        return p == MAP_FAILED ? NULL : p;
}

static size_t region_bytes(const struct ni_xdp *x)
{
        return xdp_map_bytes(&x->geom) + x->mem_bytes;
}

static size_t words_bytes(const struct ni_xdp *x)
{
        return ni_xdp_ring_bytes(&x->geom) - xdp_rx_bytes(&x->geom);
}

/* Received packets are read only. */
static int map_mem(struct ni_xdp *x, int mem, int ring)
{
        size_t front = xdp_map_bytes(&x->geom);

        if (x->umem == NULL)
                x->umem = reserve(region_bytes(x));
        if (x->umem == NULL || (front != 0 && map_at(x->umem, front, PROT_READ, ring, 0) == NULL) ||
            unet_memfd_map(mem, x->mem_bytes, true, x->umem + front) == NULL)
                return -ENOMEM;
        x->sh = (struct ni_xdp_shared *)(x->umem + front + x->mem_bytes - XDP_SHARED_BYTES);
        return 0;
}

/* ---- rings ---- */

static int map_sending(struct ni_xdp *x)
{
        int err = xdp_ring_map(&x->comp, x->sender, XDP_RING_COMP, x->geom.tx_chunks);

        return err != 0 ? err : xdp_ring_map(&x->tx, x->sender, XDP_RING_TX, x->geom.tx_chunks);
}

static int map_reception(struct ni_xdp *x)
{
        int err = xdp_ring_map(&x->fill[FRAME_SMALL], x->xsk, XDP_RING_FILL, x->geom.rx_ring);

        return err != 0 ? err : xdp_ring_map(&x->rx, x->xsk, XDP_RING_RX, x->geom.rx_ring);
}

static struct xdp_ring ring_of(const struct ni_xdp *x, uint32_t *prod, uint32_t *cons, void *desc,
                               uint32_t entries)
{
        return (struct xdp_ring){.prod = (_Atomic uint32_t *)prod,
                                 .cons = (_Atomic uint32_t *)cons,
                                 .desc = desc,
                                 .flags = (_Atomic uint32_t *)&x->words->zero,
                                 .mask = entries - 1};
}

/* In the places of those that were there, if some were. */
static int map_words(struct ni_xdp *x, int ring)
{
        void *words = map_at(x->words, words_bytes(x), PROT_READ | PROT_WRITE, ring,
                             xdp_rx_bytes(&x->geom));
        void *cons = map_at((void *)x->bell.cons, 4096, PROT_READ | PROT_WRITE, x->xsk, 0);
        void *prod = map_at((void *)(uintptr_t)x->bell.prod, 4096, PROT_READ, x->xsk, 4096);

        x->words = words;
        x->answers = words != NULL ? (void *)((uint8_t *)words + words_bytes(x) - TCX_ANSWERS_BYTES)
                                   : NULL;
        x->bell.cons = cons;
        x->bell.prod = prod;
        return words != NULL && cons != NULL && prod != NULL ? 0 : -EPROTO;
}

static int map_tcx(struct ni_xdp *x, int ring)
{
        int err = map_words(x, ring);
        uint64_t *fill;

        if (err != 0)
                return err;
        fill = (uint64_t *)((uint8_t *)x->words + TCX_WORDS_BYTES);
        x->fill[FRAME_SMALL] =
                ring_of(x, &x->words->fill_small, &x->words->zero, fill, x->geom.rx_ring);
        fill += x->geom.rx_ring;
        x->fill[FRAME_LARGE] =
                ring_of(x, &x->words->fill_large, &x->words->zero, fill, x->geom.rx_ring);
        fill += x->geom.rx_ring;
        x->rx = ring_of(x, NULL, &x->words->rx_cons, fill, x->geom.rx_ring);
        return 0;
}

/* ---- what was passed ---- */

/* A map of a BPF program's has no type of its own that could be asked for; the kernel sees to its
 * size when it is mapped. */
static bool is_map(int fd)
{
        struct statfs fs;

        return fd >= 0 && fstatfs(fd, &fs) == 0 && fs.f_type == ANON_INODE_FS_MAGIC;
}

/* With a header that says how to cut. Its interface has another number in the namespace that it is
 * of (pkt_sealed.h). */
static bool is_packet_socket(int fd)
{
        struct sockaddr_ll ll = {.sll_family = 0};
        socklen_t len = sizeof ll, on_len = sizeof(int);
        int on = 0;

        return sys3(SYS_getsockname, fd, &ll, &len) == 0 && ll.sll_family == AF_PACKET &&
               ll.sll_ifindex > 0 &&
               sys5(SYS_getsockopt, fd, SOL_PACKET, PACKET_VNET_HDR, &on, &on_len) == 0 && on == 1;
}

static int check(const struct ni_xdp_fds *fds, struct xdp_geom *g, size_t *bytes)
{
        int err = check_mem(fds->mem, bytes);

        if (err == 0)
                err = read_geom(fds->mem, *bytes, g);
        if (err != 0)
                return err;
        if (fds->packet >= 0 && !is_packet_socket(fds->packet))
                return -EPROTO;
        if (g->mode == XDP_MODE_TCX)
                return is_map(fds->xsk) && is_map(fds->ring) && is_xsk(fds->sender) ? 0 : -EPROTO;
        return is_xsk(fds->xsk) ? 0 : -EPROTO;
}

static int attach(struct ni_xdp *x, struct ni_xdp_fds fds, struct unet_mem tx_mem)
{
        int err;

        x->xsk = fds.xsk;
        x->sender = x->geom.mode == XDP_MODE_TCX ? fds.sender : fds.xsk;
        x->packet = fds.packet;
        x->tx_mem = tx_mem;
        x->notes = 0;
        err = map_mem(x, fds.mem, fds.ring);
        if (err == 0)
                err = x->geom.mode == XDP_MODE_TCX ? map_tcx(x, fds.ring) : map_reception(x);
        if (err == 0)
                err = map_sending(x);
        if (err != 0)
                return err;
        x->base.answers = x->answers != NULL ? &ni_xdp_answer_ops : NULL;
        x->base.caps = (struct unet_caps){
                .mtu = x->geom.mtu + XDP_ETH_BYTES,
                .inline_max = UNET_INLINE_MAX,
                .csum = true,
                .csum_pseudo = x->geom.csum_pseudo != 0,
                /* They would overtake what the device has yet to read. */
                .runs = fds.packet >= 0 && !x->geom.zero_copy,
                .room_unsaid = true,
                .rto_min = 200 * NS_PER_MS,
                .whole = true,
        };
        return 0;
}

int ni_xdp_attach(struct ni_xdp *x, struct ni_xdp_fds fds, struct unet_mem tx_mem,
                  struct counters *cnt)
{
        int err;

        *x = (struct ni_xdp){.base.ops = &ni_xdp_ops, .cnt = cnt, .inline_most = UNET_INLINE_MAX};
        err = check(&fds, &x->geom, &x->mem_bytes);
        if (err == 0)
                err = attach(x, fds, tx_mem);
        if (err != 0)
                ni_xdp_detach(x);
        return err;
}

int ni_xdp_reattach(struct ni_xdp *x, struct ni_xdp_fds fds, struct unet_mem tx_mem)
{
        struct xdp_geom g;
        size_t bytes;
        int err = check(&fds, &g, &bytes);

        if (err == 0 && (bytes != x->mem_bytes || !same_sizes(&g, &x->geom)))
                return -ENOSPC;
        if (err == 0) {
                x->geom = g;
                err = attach(x, fds, tx_mem);
        }
        if (err != 0)
                ni_xdp_forsake(x);
        return err;
}

/* A mapped ring would keep the socket, and with it the queue. */
static void empty(const volatile void *p, size_t bytes)
{
        if (p != NULL)
                sys6(SYS_mmap, (long)p, (long)bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void ni_xdp_forsake(struct ni_xdp *x)
{
        empty(x->umem, region_bytes(x));
        empty(x->fill[FRAME_SMALL].map, x->fill[FRAME_SMALL].bytes);
        empty(x->comp.map, x->comp.bytes);
        empty(x->rx.map, x->rx.bytes);
        empty(x->tx.map, x->tx.bytes);
        empty(x->words, words_bytes(x));
        empty(x->bell.cons, 4096);
        empty(x->bell.prod, 4096);
}

static void unmap(const volatile void *p, size_t bytes)
{
        if (p != NULL)
                munmap((void *)(uintptr_t)p, bytes);
}

void ni_xdp_detach(struct ni_xdp *x)
{
        xdp_ring_unmap(&x->fill[FRAME_SMALL]);
        xdp_ring_unmap(&x->comp);
        xdp_ring_unmap(&x->rx);
        xdp_ring_unmap(&x->tx);
        unmap(x->words, words_bytes(x));
        unmap(x->bell.cons, 4096);
        unmap(x->bell.prod, 4096);
        unmap(x->umem, region_bytes(x));
        x->umem = NULL;
        x->words = NULL;
        x->bell = (struct xdp_bell){NULL, NULL};
}
