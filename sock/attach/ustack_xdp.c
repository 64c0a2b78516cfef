/* Channels to an interface that the stack has alone, by an AF_XDP socket or a tcx program
 * (unet/xdp). */
#include "sock/attach/ustack_way.h"

#include <errno.h>
#include <stdlib.h>

static struct ni_xdp *ni_of(const struct ustack *u, uint32_t k)
{
        return &u->xdp[k]->ni;
}

/* In the place of the last socket of this channel number, or, if that had other sizes,
 * beside it. */
static bool map(struct ustack *u, uint32_t k, const struct unetd_chan *fds)
{
        const struct ni_xdp_fds passed = {fds->xsk, fds->mem, fds->packet, fds->ring, fds->sender};
        struct unet_mem tx = unet_mem_frames(u->chan[k].mine->frames, fds->tx_geom);
        struct xdp_view *v = u->xdp[k];
        int err = v != NULL ? ni_xdp_reattach(&v->ni, passed, tx) : -ENOSPC;

        if (err != -ENOSPC)
                return err == 0;
        v = calloc(1, sizeof *v);
        if (v == NULL || ni_xdp_attach(&v->ni, passed, tx, &u->s.st->cnt) != 0) {
                free(v);
                return false;
        }
        v->before = u->xdp[k];
        u->xdp[k] = v;
        return true;
}

static void seat(struct ustack *u, uint32_t k)
{
        struct ni_xdp *x = ni_of(u, k);

        stack_chan_mapped(&u->s, k, &x->base, x->tx_mem.base, ni_xdp_rx_frames(x));
}

static void forsake(struct ustack *u, uint32_t k)
{
        ni_xdp_forsake(ni_of(u, k));
}

static void unmap(struct ustack *u, uint32_t k)
{
        struct xdp_view *v = u->xdp[k], *before;

        for (; v != NULL; v = before) {
                before = v->before;
                ni_xdp_detach(&v->ni);
                free(v);
        }
        u->xdp[k] = NULL;
}

static bool none_held(void *arg, uint32_t frame)
{
        return false;
}

/* Packets of an interface are copied before a call ends, in and out: whatever is lent was lent to
 * the dead process. */
static void repair(struct ustack *u, uint32_t k)
{
        frame_unlend_all(u->s.frames, FRAME_REGION_TX(k));
        ni_xdp_reclaim(ni_of(u, k), none_held, NULL);
}

static int wake_fd(const struct ustack *u, uint32_t k)
{
        return u->chan_fds[k].xsk;
}

static void iface(const struct ustack *u, uint32_t k, const struct unetd_chan *fds,
                  struct netif_config *cfg, struct frame_geom *rx)
{
        const struct ni_xdp *x = ni_of(u, k);

        cfg->mtu = x->geom.mtu;
        cfg->mtu_max = xdp_mtu_max(&x->geom);
        memcpy(cfg->mac, x->geom.mac, sizeof cfg->mac);
        *rx = xdp_frame_geom(&x->geom);
}

const struct ustack_way ustack_way_xdp = {.name = "xdp",
                                          .takes = unetd_chan_is_xdp,
                                          .map = map,
                                          .seat = seat,
                                          .end = forsake,
                                          .unmap = unmap,
                                          .repair = repair,
                                          .wake_fd = wake_fd,
                                          .iface = iface};
