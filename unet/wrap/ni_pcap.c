/* Wrapper `pcap`. */
#include "unet/wrap/ni_pcap.h"

#include <errno.h>
#include <stdlib.h>

#include "unet/wrap/wrap.h"

struct ni_pcap {
        struct wrap w;
        struct ni_pcap_opts o;
};

static struct ni_pcap *of(struct unet_chan *ch)
{
        return (struct ni_pcap *)ch;
}

static void add_range(struct ni_pcap *p, const struct unet_mem *m, uint32_t frame, uint32_t off,
                      uint32_t len)
{
        const uint8_t *at = unet_mem_at(m, frame, off, len);

        if (at != NULL)
                pcap_file_add(p->o.file, at, len);
}

static void record_tx(struct ni_pcap *p, const struct unet_tx *tx)
{
        uint32_t skip = MIN(p->o.skip, (uint32_t)tx->inl_len);

        pcap_file_begin(p->o.file, p->o.clock(p->o.arg), (uint32_t)unet_tx_bytes(tx) - skip);
        pcap_file_add(p->o.file, tx->inl + skip, tx->inl_len - skip);
        if (tx->frame == 0)
                return;
        add_range(p, &p->o.tx, tx->frame, tx->off, tx->len);
        for (int i = 0; i < tx->nmore; i++)
                add_range(p, &p->o.tx, tx->frame, tx->more[i].off, tx->more[i].len);
}

/* Some providers leave nmore alone: it says something only on flat memory, that is for
 * raw endpoints. */
static void record_rx(struct ni_pcap *p, const struct unet_rx *rx)
{
        uint32_t skip = MIN(p->o.skip, rx->inl_len), len = rx->inl_len - skip;
        uint32_t nmore = rx->frame != 0 && p->w.inner_link != NULL ? rx->nmore : 0;

        len += rx->frame != 0 ? rx->len : 0;
        for (uint32_t i = 0; i < nmore; i++)
                len += rx->more[i].len;
        pcap_file_begin(p->o.file, p->o.clock(p->o.arg), len);
        pcap_file_add(p->o.file, rx->inl + skip, rx->inl_len - skip);
        if (rx->frame != 0)
                add_range(p, &p->o.rx, rx->frame, rx->off, rx->len);
        for (uint32_t i = 0; i < nmore; i++)
                add_range(p, &p->o.rx, rx->frame, rx->more[i].off, rx->more[i].len);
}

static int pcap_send(struct unet_chan *ch, const struct unet_tx *tx, int n)
{
        struct ni_pcap *p = of(ch);
        int taken = p->w.inner->ops->send(p->w.inner, tx, n);

        for (int i = 0; i < taken; i++)
                record_tx(p, &tx[i]);
        return taken;
}

static int pcap_recv(struct unet_chan *ch, struct unet_rx *rx, int n)
{
        struct ni_pcap *p = of(ch);
        int got = p->w.inner->ops->recv(p->w.inner, rx, n);

        for (int i = 0; i < got; i++)
                record_rx(p, &rx[i]);
        return got;
}

static const struct unet_ni_ops pcap_ops = {
        .name = "pcap",
        .send = pcap_send,
        .recv = pcap_recv,
        .release = wrap_release,
        .reap = wrap_reap,
        .room = wrap_room,
        .pending = wrap_pending,
        .want_room = wrap_want_room,
        .flush = wrap_flush,
};

struct unet_chan *ni_pcap_new(struct unet_chan *inner, const struct ni_pcap_opts *o)
{
        struct ni_pcap *p = calloc(1, sizeof *p);

        if (p == NULL)
                return NULL;
        p->w = (struct wrap){.base = {.ops = &pcap_ops, .caps = inner->caps}, .inner = inner};
        p->o = *o;
        return &p->w.base;
}

int ni_pcap_end(struct unet_chan *ch)
{
        int err = pcap_file_close(of(ch)->o.file);

        free(ch);
        return err;
}

static void close_link(struct unet_chan *ch, bool forget)
{
        wrap_close_inner(wrap_of(ch), forget);
        ni_pcap_end(ch);
}

int ni_pcap_link(struct link *l, const struct ni_pcap_opts *o)
{
        static const struct link_ops ops = {
                .gone = wrap_gone, .arm = wrap_arm, .peer_cpu = wrap_peer_cpu, .close = close_link};
        struct unet_chan *ch = ni_pcap_new(l->ch, o);

        if (ch == NULL)
                return -ENOMEM;
        of(ch)->o.rx = l->rx_mem;
        wrap_link(l, wrap_of(ch), &ops);
        return 0;
}
