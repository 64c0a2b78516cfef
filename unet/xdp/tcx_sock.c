/* See tcx_sock.h. */
#include "unet/xdp/tcx_sock.h"

#include <errno.h>
#include <linux/if_xdp.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unet/xdp/bpf_obj.h"
#include "unet/xdp/ni_xdp.h"
#include "unet/xdp/tcx_link.h"
#include "unet/xdp/tcx_ring.h"
#include "unet/packet/line.h"
#include "tcx_prog.h" /* made from tcx_prog.bpf.c: tcx_prog[] */

static_assert(TCX_LARGE_BYTES == FRAME_LARGE_BYTES && TCX_RING_MAX == XDP_RING_MAX,
              "the program's are ours");

#define PROGRAM "to_ring"

/* The constants of tcx_prog.bpf.c, as they lie in its section. */
struct constants {
        uint32_t chunk_bytes, ring_mask;
        uint64_t large_bytes, rx_bytes;
        uint32_t mark, zero;
};

static int set_constants(struct bpf_object *obj, const struct xdp_geom *g, uint32_t mark)
{
        const struct constants c = {g->chunk_bytes,  g->rx_ring - 1, xdp_large_bytes(g),
                                    xdp_rx_bytes(g), mark,           0};
        struct bpf_map *m = bpf_object__find_map_by_name(obj, ".rodata");

        return m != NULL ? bpf_map__set_initial_value(m, &c, sizeof c) : -ENOENT;
}

/* All chunks are the program's, and it is to tell of the first packet. */
static int fill(const struct xdp_sock *s)
{
        const struct xdp_geom *g = &s->geom;
        size_t at = xdp_rx_bytes(g), bytes = ni_xdp_ring_bytes(g) - at;
        uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->ring, (off_t)at);
        struct tcx_words *w = (struct tcx_words *)p;
        uint64_t *small, *large;

        if (p == MAP_FAILED)
                return -errno;
        small = (uint64_t *)(p + TCX_WORDS_BYTES);
        large = small + g->rx_ring;
        for (uint32_t i = 0; i < g->rx_large; i++)
                large[i] = xdp_rx_addr(g, i);
        for (uint32_t i = 0; i < g->rx_chunks; i++)
                small[i] = xdp_rx_addr(g, g->rx_large + i);
        w->fill_small = g->rx_chunks;
        w->fill_large = g->rx_large;
        w->armed = 1;
        munmap(p, bytes);
        return 0;
}

static int load(struct xdp_sock *s, struct bpf_object *obj, uint32_t ifindex, uint32_t mark)
{
        int err = set_constants(obj, &s->geom, mark);

        if (err == 0)
                err = bpf_map__set_value_size(bpf_object__find_map_by_name(obj, "ring"),
                                              (uint32_t)ni_xdp_ring_bytes(&s->geom));
        if (err == 0)
                err = bpf_object__load(obj);
        if (err == 0)
                err = bpf_obj_keep(obj, "ring", &s->ring);
        if (err == 0)
                err = bpf_obj_keep(obj, "bell", &s->xsk);
        if (err == 0)
                err = bpf_obj_keep(obj, "drops", &s->drops);
        if (err == 0)
                err = fill(s);
        if (err == 0)
                err = s->link = tcx_link(
                        bpf_program__fd(bpf_object__find_program_by_name(obj, PROGRAM)), ifindex);
        return MIN(err, 0);
}

int tcx_sock_open(struct xdp_sock *s, const struct xdp_dev *d, uint32_t mark,
                  char line[XDP_LINE_MAX])
{
        const struct xdp_geom *g = &s->geom;
        struct bpf_object *obj;
        int err;

        if (tcx_has(PROGRAM, d->ifindex)) {
                say(line, "the interface has a program of somebody else's that takes its packets");
                return -EBUSY;
        }
        obj = bpf_obj_open("unet_tcx", tcx_prog, sizeof tcx_prog);
        if (obj == NULL)
                return -errno;
        err = load(s, obj, d->ifindex, mark);
        bpf_object__close(obj);
        if (err != 0)
                say(line, "no program that takes packets: %s", strerror(-err));
        else
                say(line,
                    "a program behind the driver (tcx), MTU %u: all traffic is ours, %u + %u "
                    "buffers of %u bytes, %u of 64 KB",
                    g->mtu, g->rx_chunks, g->tx_chunks, g->chunk_bytes, g->rx_large);
        return err;
}

void tcx_sock_close(struct xdp_sock *s)
{
        if (s->link >= 0)
                close(s->link);
        if (s->ring >= 0)
                close(s->ring);
        if (s->drops >= 0)
                close(s->drops);
        s->link = s->ring = s->drops = -1;
}

static uint64_t dropped(const struct xdp_sock *s, enum tcx_drop why)
{
        uint32_t key = why;
        uint64_t n = 0;

        bpf_map_lookup_elem(s->drops, &key, &n);
        return n;
}

void tcx_sock_drops(const struct xdp_sock *s, struct xdp_drops *n)
{
        n->no_buffer = dropped(s, TCX_DROP_NO_CHUNK);
        n->fragments = dropped(s, TCX_DROP_FRAGMENT);
        n->odd = dropped(s, TCX_DROP_ODD);
}
