/*
 * What wrappers share. A wrapper is a provider's channel that stands before another one, does its
 * one thing and passes the rest on. It works for the protocol stack (a struct unet_chan) and for
 * raw endpoints (a struct link) alike.
 */
#ifndef UNET_WRAP_H
#define UNET_WRAP_H

#include "unet/link.h"

struct wrap {
        struct unet_chan base;
        struct unet_chan *inner;
        const struct link_ops *inner_link; /* NULL under a protocol stack */
};

static inline struct wrap *wrap_of(struct unet_chan *ch)
{
        return (struct wrap *)ch;
}

/* Each passes on to the inner channel. */
void wrap_release(struct unet_chan *ch, const uint32_t *frame, int n);
int wrap_reap(struct unet_chan *ch, uint32_t *frame, int n);
uint32_t wrap_room(struct unet_chan *ch);
bool wrap_pending(struct unet_chan *ch);
void wrap_want_room(struct unet_chan *ch, bool on);
void wrap_flush(struct unet_chan *ch);

/* Puts a wrapper before a link: from now on the link's channel is the wrapper, and closing it
 * closes both. */
void wrap_link(struct link *l, struct wrap *w, const struct link_ops *ops);
bool wrap_gone(struct unet_chan *ch);
bool wrap_arm(struct unet_chan *ch);
uint32_t wrap_peer_cpu(struct unet_chan *ch);
void wrap_close_inner(struct wrap *w, bool forget);

#endif
