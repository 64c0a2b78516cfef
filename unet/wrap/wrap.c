/* What wrappers pass on. */
#include "unet/wrap/wrap.h"

void wrap_release(struct unet_chan *ch, const uint32_t *frame, int n)
{
        wrap_of(ch)->inner->ops->release(wrap_of(ch)->inner, frame, n);
}

int wrap_reap(struct unet_chan *ch, uint32_t *frame, int n)
{
        return wrap_of(ch)->inner->ops->reap(wrap_of(ch)->inner, frame, n);
}

uint32_t wrap_room(struct unet_chan *ch)
{
        return wrap_of(ch)->inner->ops->room(wrap_of(ch)->inner);
}

bool wrap_pending(struct unet_chan *ch)
{
        return wrap_of(ch)->inner->ops->pending(wrap_of(ch)->inner);
}

void wrap_want_room(struct unet_chan *ch, bool on)
{
        struct unet_chan *inner = wrap_of(ch)->inner;

        if (inner->ops->want_room != NULL)
                inner->ops->want_room(inner, on);
}

void wrap_flush(struct unet_chan *ch)
{
        wrap_of(ch)->inner->ops->flush(wrap_of(ch)->inner);
}

void wrap_link(struct link *l, struct wrap *w, const struct link_ops *ops)
{
        w->inner_link = l->ops;
        l->ops = ops;
        l->ch = &w->base;
}

bool wrap_gone(struct unet_chan *ch)
{
        struct wrap *w = wrap_of(ch);

        return w->inner_link->gone != NULL && w->inner_link->gone(w->inner);
}

bool wrap_arm(struct unet_chan *ch)
{
        struct wrap *w = wrap_of(ch);

        return w->inner_link->arm != NULL && w->inner_link->arm(w->inner);
}

uint32_t wrap_peer_cpu(struct unet_chan *ch)
{
        struct wrap *w = wrap_of(ch);

        return w->inner_link->peer_cpu != NULL ? w->inner_link->peer_cpu(w->inner) : UINT32_MAX;
}

void wrap_close_inner(struct wrap *w, bool forget)
{
        w->inner_link->close(w->inner, forget);
}
