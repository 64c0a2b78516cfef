/* Makes an AF_XDP socket whose packets lie in a memfd, so that it can be passed whole; or, by
 * tcx_sock.c, what is in its place. */
#include <errno.h>
#include <linux/if_xdp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "base/memfd.h"
#include "unet/xdp/ni_xdp.h"
#include "unet/xdp/tcx_sock.h"
#include "unet/packet/line.h"
#include "unet/xdp/xdp_open.h"

/* 4 MB at MTU 1500: more than a window of 2 MB, half of a second-level cache. */
#define RX_CHUNKS 2048u
#define RX_LARGE  64u /* 4 MB of large segments */
#define TX_CHUNKS 512u
#define SNDBUF    (4 << 20) /* bytes of packets that a device has not sent yet */
/* sxdp_flags: packets of several chunks (XDP_USE_SG of Linux 6.6). */
#define SG (1u << 4)

#define BIND_TRIES 50 /* the kernel lets go of a queue some time after its socket was closed */
#define BIND_PAUSE (20 * NS_PER_MS)

static uint32_t power_of_two_from(uint32_t n)
{
        uint32_t p = 1;

        while (p < n)
                p *= 2;
        return p;
}

/* Of a program of ours large packets lie in large chunks: joined segments, and all where the MTU is
 * beyond a page. */
static void plan_tcx(struct xdp_geom *g, uint32_t large)
{
        uint32_t most = g->mtu + XDP_ETH_BYTES;

        g->chunk_bytes = most > 2048 && most <= 4096 ? 4096 : 2048;
        g->tx_chunk_bytes = most > 2048 ? 4096 : 2048;
        g->tx_chunks = MAX(g->tx_chunks, 2 * xdp_tx_pieces(g));
        g->rx_large = large;
        g->rx_ring = power_of_two_from(g->rx_chunks + g->rx_large);
}

static int plan(struct xdp_geom *g, const struct xdp_dev *d, uint32_t queue, struct xdp_sizes sizes,
                char line[XDP_LINE_MAX])
{
        uint32_t rx = sizes.rx_chunks != 0 ? MAX(sizes.rx_chunks, 2u) : RX_CHUNKS;
        uint32_t tx = sizes.tx_chunks != 0 ? MAX(sizes.tx_chunks, 2u) : TX_CHUNKS;

        if (d->mode == XDP_MODE_TCX)
                queue = 0; /* it has them all */
        if (queue >= d->queues || rx + sizes.rx_large > XDP_RING_MAX || tx > XDP_RING_MAX) {
                say(line,
                    queue >= d->queues ? "no queue %u: the interface has %u"
                                       : "ring of queue %u too large",
                    queue, d->queues);
                return -EINVAL;
        }
        *g = (struct xdp_geom){
                .ifindex = d->ifindex,
                .queue = queue,
                .mtu = d->mtu,
                .chunk_bytes = xdp_chunk_for(d->mtu),
                .tx_chunk_bytes = xdp_chunk_for(d->mtu),
                .rx_chunks = (rx + 1) / 2 * 2, /* whole pages */
                .tx_chunks = power_of_two_from(tx),
                .rx_ring = power_of_two_from(rx),
                .mode = (uint8_t)d->mode,
                .csum_pseudo = d->csum_pseudo,
        };
        memcpy(g->mac, d->mac, sizeof g->mac);
        if (d->mode == XDP_MODE_TCX)
                plan_tcx(g, sizes.rx_large != 0 ? sizes.rx_large : RX_LARGE);
        return 0;
}

static int set(int xsk, int what, uint32_t value)
{
        return setsockopt(xsk, SOL_XDP, what, &value, sizeof value) == 0 ? 0 : -errno;
}

/* The kernel pins the pages: they stay while the socket does, whoever maps them. */
static int give_memory(int xsk, void *umem, size_t bytes, uint32_t chunk_bytes,
                       char line[XDP_LINE_MAX])
{
        struct xdp_umem_reg reg = {
                .addr = (uintptr_t)umem, .len = bytes, .chunk_size = chunk_bytes};
        struct rlimit lim = {0, 0};
        int err = 0;

        if (setsockopt(xsk, SOL_XDP, XDP_UMEM_REG, &reg, sizeof reg) == 0)
                return 0;
        err = -errno;
        getrlimit(RLIMIT_MEMLOCK, &lim);
        say(line,
            "%zu KB of packet memory cannot be pinned: %s%s (limit of locked memory: %llu KB)",
            bytes >> 10, strerror(-err),
            err == -ENOBUFS ? ", raise RLIMIT_MEMLOCK or ask for less" : "",
            (unsigned long long)lim.rlim_cur >> 10);
        return err;
}

static int make_rings(const struct xdp_sock *s)
{
        const struct xdp_geom *g = &s->geom;
        int err = set(s->xsk, XDP_UMEM_FILL_RING, g->rx_ring);

        if (err == 0)
                err = set(s->xsk, XDP_UMEM_COMPLETION_RING, g->tx_chunks);
        if (err == 0)
                err = set(s->xsk, XDP_RX_RING, g->rx_ring);
        return err != 0 ? err : set(s->xsk, XDP_TX_RING, g->tx_chunks);
}

/* Of reception there is nothing, but the kernel asks for FILL. */
static int make_sending_rings(const struct xdp_sock *s)
{
        int sndbuf = SNDBUF, err = set(s->sender, XDP_UMEM_FILL_RING, 2);

        if (err == 0)
                err = set(s->sender, XDP_UMEM_COMPLETION_RING, s->geom.tx_chunks);
        if (err == 0)
                err = set(s->sender, XDP_TX_RING, s->geom.tx_chunks);
        if (err == 0 &&
            setsockopt(s->sender, SOL_SOCKET, SO_SNDBUFFORCE, &sndbuf, sizeof sndbuf) != 0)
                err = -errno;
        return err;
}

static int fill(const struct xdp_sock *s)
{
        const struct xdp_geom *g = &s->geom;
        struct xdp_ring r = {.map = NULL};
        int err = xdp_ring_map(&r, s->xsk, XDP_RING_FILL, g->rx_ring);

        if (err != 0)
                return err;
        for (uint32_t i = 0; i < g->rx_chunks; i++)
                *xdp_addr_at(&r, i) = (uint64_t)i * g->chunk_bytes;
        xdp_publish(r.prod, g->rx_chunks);
        xdp_ring_unmap(&r);
        return 0;
}

/* Without a word on copying the kernel tries zero copy and then copies; of a generic program it
 * must be told. */
static int bind_to_queue(const struct xdp_sock *s, bool at_once, char line[XDP_LINE_MAX])
{
        const struct xdp_geom *g = &s->geom;
        struct sockaddr_xdp a = {.sxdp_family = AF_XDP,
                                 .sxdp_ifindex = g->ifindex,
                                 .sxdp_queue_id = g->queue,
                                 .sxdp_flags = XDP_USE_NEED_WAKEUP};
        const struct timespec pause = {.tv_nsec = BIND_PAUSE};
        int err = -EBUSY;

        if (g->mode == XDP_MODE_GENERIC)
                a.sxdp_flags |= XDP_COPY;
        for (int i = 0; i < (at_once ? 1 : BIND_TRIES) && err == -EBUSY; i++) {
                if (i > 0)
                        nanosleep(&pause, NULL);
                err = bind(s->xsk, (struct sockaddr *)&a, sizeof a) == 0 ? 0 : -errno;
        }
        if (err != 0)
                say(line,
                    err == -EBUSY ? "queue %u has a packet socket of somebody else"
                                  : "queue %u cannot be bound: %s",
                    g->queue, strerror(-err));
        return err;
}

/* The process that gets the socket maps the rings after the bind. */
static int check_passable(const struct xdp_sock *s, char line[XDP_LINE_MAX])
{
        struct xdp_ring r = {.map = NULL};
        int err = xdp_ring_map(&r, s->xsk, XDP_RING_FILL, s->geom.rx_ring);

        if (err == 0)
                xdp_ring_unmap(&r);
        if (err != -EBUSY)
                return err;
        say(line, "this kernel lets no other process use an AF_XDP socket (Linux 6.4 does)");
        return -EOPNOTSUPP;
}

static int join_map(const struct xdp_sock *s, const struct xdp_dev *d)
{
        uint32_t key = s->geom.queue;

        return bpf_map_update_elem(d->map, &key, &s->xsk, 0) == 0 ? 0 : -errno;
}

static void say_chosen(const struct xdp_sock *s, const struct xdp_dev *d, char line[XDP_LINE_MAX])
{
        const struct xdp_geom *g = &s->geom;

        say(line, "queue %u of %u, %s, MTU %u: %s, %s, %u + %u buffers of %u bytes", g->queue,
            d->queues, g->mode == XDP_MODE_NATIVE ? "native" : "generic", g->mtu,
            g->zero_copy ? "zero copy" : "copied by the kernel",
            d->queues > 1 ? "other queues go to the kernel unless they get sockets too"
                          : "all traffic is ours",
            g->rx_chunks, g->tx_chunks, g->chunk_bytes);
}

static int set_up_xsk(struct xdp_sock *s, const struct xdp_dev *d, void *umem, bool at_once,
                      char line[XDP_LINE_MAX])
{
        struct xdp_options opt = {0};
        socklen_t len = sizeof opt;
        int err = s->xsk = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);

        if (err < 0)
                return -errno;
        err = give_memory(s->xsk, umem, xdp_umem_bytes(&s->geom), s->geom.chunk_bytes, line);
        if (err == 0)
                err = make_rings(s);
        if (err == 0)
                err = fill(s);
        if (err == 0)
                err = bind_to_queue(s, at_once, line);
        if (err == 0)
                err = check_passable(s, line);
        if (err == 0)
                err = join_map(s, d);
        if (err == 0 && getsockopt(s->xsk, SOL_XDP, XDP_OPTIONS, &opt, &len) == 0)
                s->geom.zero_copy = (opt.flags & XDP_OPTIONS_ZEROCOPY) != 0;
        return err;
}

/* By the device of the packet socket, so that it can be taken away with that: pkt_sealed.h. */
static int set_up_sender(struct xdp_sock *s, void *mem, uint32_t mark, char line[XDP_LINE_MAX])
{
        const struct xdp_geom *g = &s->geom;
        struct sockaddr_xdp a = {.sxdp_family = AF_XDP,
                                 .sxdp_flags = (uint16_t)(XDP_COPY | XDP_USE_NEED_WAKEUP |
                                                          (xdp_tx_pieces(g) > 1 ? SG : 0))};
        int err = s->sender = pkt_sealed_socket(&s->packet, AF_XDP, &a.sxdp_ifindex);

        if (err < 0)
                return err;
        err = give_memory(s->sender, mem, xdp_umem_bytes(g) - xdp_rx_bytes(g), g->tx_chunk_bytes,
                          line);
        if (err == 0)
                err = make_sending_rings(s);
        if (err == 0 && mark != 0 &&
            setsockopt(s->sender, SOL_SOCKET, SO_MARK, &mark, sizeof mark) != 0)
                err = -errno;
        if (err == 0)
                err = bind(s->sender, (struct sockaddr *)&a, sizeof a) == 0 ? 0 : -errno;
        return err;
}

static void write_shared(const struct xdp_geom *g, uint8_t *mem)
{
        struct ni_xdp_shared *sh =
                (struct ni_xdp_shared *)(mem + xdp_mem_bytes(g) - XDP_SHARED_BYTES);

        sh->geom = *g;
        sh->fill_next[FRAME_SMALL] = sh->fill_settled[FRAME_SMALL] = g->rx_chunks;
        sh->fill_next[FRAME_LARGE] = sh->fill_settled[FRAME_LARGE] = g->rx_large;
        sh->magic = XDP_SHARED_MAGIC;
}

/* In mode XDP_MODE_TCX nothing is sent but by the packet socket's device. */
static int set_up(struct xdp_sock *s, const struct xdp_dev *d, void *mem, struct xdp_sizes sizes,
                  char line[XDP_LINE_MAX])
{
        int err = s->geom.mode == XDP_MODE_TCX ? 0 : set_up_xsk(s, d, mem, sizes.at_once, line);

        if (err != 0)
                return err;
        write_shared(&s->geom, mem);
        s->no_packet = pkt_sealed_open(&s->packet, d->ifindex, sizes.mark);
        if (s->geom.mode != XDP_MODE_TCX) {
                say_chosen(s, d, line);
                return 0;
        }
        if (s->no_packet != 0) {
                say(line, "no packet socket that could be passed: %s", strerror(-s->no_packet));
                return s->no_packet;
        }
        err = set_up_sender(s, mem, sizes.mark, line);
        if (err == 0)
                return tcx_sock_open(s, d, sizes.mark, line);
        if (line[0] == 0)
                say(line, "no AF_XDP socket that sends: %s", strerror(-err));
        return err;
}

int xdp_sock_open(struct xdp_sock *s, const struct xdp_dev *d, uint32_t queue,
                  struct xdp_sizes sizes, char line[XDP_LINE_MAX])
{
        void *mem = NULL;
        size_t bytes;
        int err;

        *s = (struct xdp_sock){.xsk = -1,
                               .mem = -1,
                               .ring = -1,
                               .sender = -1,
                               .link = -1,
                               .drops = -1,
                               .packet = {-1, -1}};
        line[0] = 0;
        err = plan(&s->geom, d, queue, sizes, line);
        if (err != 0)
                return err;
        bytes = xdp_mem_bytes(&s->geom);
        s->mem = unet_memfd_make("unet-xdp", bytes);
        err = s->mem < 0 ? s->mem : 0;
        if (err == 0 && (mem = unet_memfd_map(s->mem, bytes, true, NULL)) == NULL)
                err = -ENOMEM;
        if (err == 0)
                err = set_up(s, d, mem, sizes, line);
        if (err != 0 && line[0] == 0)
                say(line, "the interface cannot be had: %s", strerror(-err));
        if (mem != NULL)
                munmap(mem, bytes);
        if (err != 0)
                xdp_sock_close(s);
        return err;
}

void xdp_sock_close(struct xdp_sock *s)
{
        if (s->xsk >= 0)
                close(s->xsk);
        if (s->mem >= 0)
                close(s->mem);
        if (s->sender >= 0)
                close(s->sender);
        tcx_sock_close(s);
        pkt_sealed_close(&s->packet);
        s->xsk = s->mem = s->sender = -1;
}

void xdp_drops(const struct xdp_sock *s, const struct xdp_dev *d, struct xdp_drops *n)
{
        struct xdp_statistics st = {0};
        socklen_t len = sizeof st;
        uint32_t key = 0;

        *n = (struct xdp_drops){0};
        if (s->geom.mode == XDP_MODE_TCX) {
                tcx_sock_drops(s, n);
                return;
        }
        if (getsockopt(s->xsk, SOL_XDP, XDP_STATISTICS, &st, &len) == 0) {
                n->no_buffer = st.rx_dropped;
                n->queue_full = st.rx_ring_full;
        }
        bpf_map_lookup_elem(d->shed, &key, &n->fragments);
}
