/* Raw endpoints over AF_XDP: messages in Ethernet frames. */
#include "tests/unet/xdp_link.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static_assert(ETHER_MSG_INLINE >= UNET_EP_INLINE,
              "what an endpoint may send in the descriptor fits behind the header");

struct xdp_link {
        struct unet_chan base;
        struct ni_xdp ni;
        struct ether_msg head; /* of what is sent */
        int mem;
};

static struct xdp_link *xdp(struct unet_chan *ch)
{
        return (struct xdp_link *)ch;
}

struct ni_xdp *xdp_link_ni(struct unet_chan *ch)
{
        return &xdp(ch)->ni;
}

/* ---- sending ---- */

static int link_send(struct unet_chan *ch, const struct unet_tx *tx, int n)
{
        struct xdp_link *l = xdp(ch);
        uint8_t inl[EP_BATCH][UNET_INLINE_MAX];
        struct unet_tx out[EP_BATCH];

        n = MIN(n, EP_BATCH);
        for (int i = 0; i < n; i++) {
                struct ether_msg h = l->head;
                h.inl_len = be16_of(tx[i].inl_len);
                h.len = be16_of((uint16_t)unet_tx_bytes(&tx[i]));
                memcpy(inl[i], &h, sizeof h);
                memcpy(inl[i] + sizeof h, tx[i].inl, tx[i].inl_len);
                out[i] = tx[i];
                out[i].inl = inl[i];
                out[i].inl_len = (uint16_t)(sizeof h + tx[i].inl_len);
        }
        return l->ni.base.ops->send(&l->ni.base, out, n);
}

static int link_reap(struct unet_chan *ch, uint32_t *frame, int n)
{
        return xdp(ch)->ni.base.ops->reap(&xdp(ch)->ni.base, frame, n);
}

static uint32_t link_room(struct unet_chan *ch)
{
        return xdp(ch)->ni.base.ops->room(&xdp(ch)->ni.base);
}

static void link_flush(struct unet_chan *ch)
{
        xdp(ch)->ni.base.ops->flush(&xdp(ch)->ni.base);
}

/* ---- receiving ---- */

/* Whether a frame is a message of the peer's. Its header is private to us; the rest still lies
 * where the kernel put it. */
static enum drop check(const struct xdp_link *l, const struct unet_rx *rx,
                       const struct ether_msg *h)
{
        return rx->inl_len < sizeof *h || rx->frame == 0 ? DROP_NI_MALFORMED
                                                         : ether_msg_check(&l->head, h, rx->len);
}

static void give_back(struct xdp_link *l, struct unet_rx *rx)
{
        if (rx->frame != 0)
                l->ni.base.ops->release(&l->ni.base, &rx->frame, 1);
        rx->frame = rx->off = rx->len = 0;
}

/* Cuts the header off; offsets become those of a flat region. */
static enum drop unpack(struct xdp_link *l, struct unet_rx *rx)
{
        struct ether_msg h;
        enum drop why;
        uint32_t at;

        memcpy(&h, rx->inl, sizeof h);
        why = check(l, rx, &h);
        if (why != DROP_NONE) {
                give_back(l, rx);
                return why;
        }
        at = (uint32_t)frame_geom_offset(xdp_frame_geom(&l->ni.geom), rx->frame) + rx->off;
        rx->inl_len = be16_get(h.inl_len);
        memcpy(rx->inl, l->ni.umem + at, rx->inl_len);
        rx->off = at + rx->inl_len;
        rx->len = be16_get(h.len) - rx->inl_len;
        if (rx->len == 0)
                give_back(l, rx);
        return DROP_NONE;
}

static int link_recv(struct unet_chan *ch, struct unet_rx *rx, int n)
{
        struct xdp_link *l = xdp(ch);
        int got = 0;

        while (got < n) {
                enum drop why;
                if (l->ni.base.ops->recv(&l->ni.base, &rx[got], 1) == 0)
                        break;
                why = unpack(l, &rx[got]);
                if (why == DROP_NONE)
                        got++;
                else
                        count_drop(l->ni.cnt, why);
        }
        return got;
}

static void link_release(struct unet_chan *ch, const uint32_t *frame, int n)
{
        xdp(ch)->ni.base.ops->release(&xdp(ch)->ni.base, frame, n);
        xdp(ch)->ni.base.ops->flush(&xdp(ch)->ni.base);
}

static bool link_pending(struct unet_chan *ch)
{
        return xdp(ch)->ni.base.ops->pending(&xdp(ch)->ni.base);
}

static const struct unet_ni_ops link_ni_ops = {
        .name = "xdp",
        .send = link_send,
        .recv = link_recv,
        .release = link_release,
        .reap = link_reap,
        .room = link_room,
        .pending = link_pending,
        .flush = link_flush,
};

/* ---- opening and closing ---- */

/* It may run anywhere: spin. */
static uint32_t link_peer_cpu(struct unet_chan *ch)
{
        return UINT32_MAX;
}

static void link_close(struct unet_chan *ch, bool forget)
{
        struct xdp_link *l = xdp(ch);

        ni_xdp_detach(&l->ni);
        close(l->ni.xsk);
        close(l->mem);
        free(l);
}

static const struct link_ops ops = {.peer_cpu = link_peer_cpu, .close = link_close};

int xdp_link_over(struct unet_ep *ep, int xsk, int mem, const uint8_t peer[6], uint32_t *chan)
{
        struct unet_mem segment = unet_mem_flat(station_segment(&ep->st), ep->opts.tx_bytes);
        struct xdp_link *l = calloc(1, sizeof *l);
        struct link out;
        int err;

        if (l == NULL)
                return -ENOMEM;
        err = ni_xdp_attach(&l->ni, (struct ni_xdp_fds){xsk, mem, -1, -1, -1}, segment, &ep->cnt);
        if (err != 0) {
                free(l);
                return err;
        }
        l->ni.inline_most = sizeof(struct ether_msg);
        l->mem = mem;
        l->base = l->ni.base;
        l->base.ops = &link_ni_ops;
        l->base.caps.inline_max = ETHER_MSG_INLINE;
        l->base.caps.mtu -= sizeof(struct ether_msg);
        l->head = ether_msg_to(l->ni.geom.mac, peer);
        out = (struct link){.ops = &ops,
                            .ch = &l->base,
                            .rx_mem = unet_mem_flat(l->ni.umem, xdp_umem_bytes(&l->ni.geom)),
                            .sock = xsk};
        err = ep_attach(ep, &out, chan);
        if (err != 0) {
                ni_xdp_detach(&l->ni);
                free(l);
        }
        return err;
}
