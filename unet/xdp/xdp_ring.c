/* Mapping the rings of an AF_XDP socket. Where things lie in a ring is asked of the kernel, not of
 * who passed the socket. */
#include "unet/xdp/xdp_ring.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/sys.h"

static int ask_offsets(int xsk, enum xdp_ring_kind kind, struct xdp_ring_offset *o)
{
        struct xdp_mmap_offsets all;
        socklen_t len = sizeof all;

        if (sys5(SYS_getsockopt, xsk, SOL_XDP, XDP_MMAP_OFFSETS, &all, &len) != 0 ||
            len != sizeof all)
                return -EPROTO;
        *o = kind == XDP_RING_FILL   ? all.fr
             : kind == XDP_RING_COMP ? all.cr
             : kind == XDP_RING_RX   ? all.rx
                                     : all.tx;
        return 0;
}

static bool inside(uint64_t off, size_t bytes)
{
        return off % sizeof(uint32_t) == 0 && off <= bytes && bytes - off >= sizeof(uint32_t);
}

int xdp_ring_map(struct xdp_ring *r, int xsk, enum xdp_ring_kind kind, uint32_t entries)
{
        static const uint64_t page[] = {[XDP_RING_FILL] = XDP_UMEM_PGOFF_FILL_RING,
                                        [XDP_RING_COMP] = XDP_UMEM_PGOFF_COMPLETION_RING,
                                        [XDP_RING_RX] = XDP_PGOFF_RX_RING,
                                        [XDP_RING_TX] = XDP_PGOFF_TX_RING};
        size_t each = kind == XDP_RING_RX || kind == XDP_RING_TX ? sizeof(struct xdp_desc)
                                                                 : sizeof(uint64_t),
               bytes;
        struct xdp_ring_offset o;
        int err = ask_offsets(xsk, kind, &o);
        uint8_t *map;

        if (err != 0)
                return err;
        bytes = o.desc + entries * each;
        if (o.desc > 4096 || !inside(o.producer, bytes) || !inside(o.consumer, bytes) ||
            !inside(o.flags, bytes))
                return -EPROTO;
        if (r->map != NULL && r->bytes != bytes)
                return -ENOSPC;
        map = mmap(r->map, bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_POPULATE | (r->map != NULL ? MAP_FIXED : 0), xsk,
                   (off_t)page[kind]);
        if (map == MAP_FAILED)
                return -errno;
        if (r->map != NULL) /* all lies where it did, for those who look meanwhile */
                return 0;
        *r = (struct xdp_ring){.map = map,
                               .bytes = bytes,
                               .prod = (void *)(map + o.producer),
                               .cons = (void *)(map + o.consumer),
                               .flags = (void *)(map + o.flags),
                               .desc = map + o.desc,
                               .mask = entries - 1};
        return 0;
}

void xdp_ring_unmap(struct xdp_ring *r)
{
        if (r->map != NULL)
                munmap(r->map, r->bytes);
        r->map = NULL;
}
