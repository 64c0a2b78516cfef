/*
 * A stack's channels as one process has them: mapped when they are met, emptied when they are over.
 *
 * Threads look without the lock whether something has come (stack_pending()). So what was mapped
 * for a channel stays readable, and empty, when it is over, until another channel takes its place.
 */
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/attach/ustack_way.h"

#include <errno.h>

static void ring(struct ustack *u, uint32_t k)
{
        const struct ustack_way *way = ustack_way_at(u, k);

        if (way != NULL && way->ring != NULL)
                way->ring(u, k);
}

void ustack_ring_peers(struct ustack *u)
{
        assert(ustack_locked(u));
        for (uint32_t k = 0; k < u->s.nchan; k++)
                ring(u, k);
        stack_flush_bells(&u->s);
}

void ustack_ring_unheard(struct ustack *u)
{
        assert(ustack_locked(u));
        for (uint32_t k = 0; k < u->s.nchan; k++)
                if (u->s.st->chan[k].shm.rung == SHM_UNHEARD)
                        ring(u, k);
        stack_flush_bells(&u->s);
}

/* A channel that is no more. */
static void chan_empty(struct ustack *u, uint32_t k)
{
        const struct shm_chan *c = &u->chan[k];

        assert(k < STACK_CHANS);
        ustack_way_end(u, k);
        if (c->mine != NULL)
                ustack_empty(c->mine, c->mine_bytes);
}

void ustack_chan_unmap(struct ustack *u, uint32_t k)
{
        struct shm_chan *c = &u->chan[k];

        assert(k < STACK_CHANS);
        chan_empty(u, k);
        ustack_ways_unmap(u, k);
        ustack_unmap(c->mine, c->mine_bytes);
        *c = (struct shm_chan){0};
}

bool ustack_map_chan_fds(struct ustack *u, uint32_t k, const struct unetd_chan *fds)
{
        assert(k < STACK_CHANS);
        if (!ustack_way_map(u, k, fds))
                return false;
        ustack_way_seat(u, k);
        return true;
}

/* Called by the stack when it meets a channel that this process has not mapped; the keeper has
 * its descriptors. */
bool ustack_chan_fetch(struct stack *s, uint32_t k)
{
        struct ustack *u = s->owner;
        struct unetd_client *client = ustack_client_holding(u);
        struct unetd_chan fds;
        int err;

        assert(k < STACK_CHANS);
        if (client == NULL)
                return false; /* the holder waits for our lock, or will be done soon: next turn */
        err = unetd_chan_get(client, u->id, k, &fds);
        u->short_of_numbers = err == -EMFILE;
        ustack_client_done();
        if (err != 0)
                return false;
        if (ustack_map_chan_fds(u, k, &fds))
                return true;
        unetd_chan_close(&fds);
        return false;
}

/* A channel of a peer that is gone, and that nothing refers to any more. */
void ustack_chan_over(struct stack *s, uint32_t k)
{
        assert(k < STACK_CHANS);
        chan_empty(s->owner, k);
}

static int chan_find(const struct ustack *u, uint32_t peer)
{
        const struct stack_state *st = u->s.st;

        for (uint32_t k = 0; k < atomic_load_explicit(&st->chans, memory_order_acquire); k++)
                if (atomic_load_explicit(&st->chan[k].state, memory_order_acquire) == CHAN_READY &&
                    st->chan[k].peer == peer)
                        return (int)k;
        return -ENOENT;
}

int ustack_chan_to(struct ustack *u, uint32_t peer)
{
        uint32_t chan, peer_chan;
        int k = chan_find(u, peer), err;

        assert(!ustack_locked(u));
        if (k >= 0)
                return k;
        err = unetd_chan_open(ustack_client(), u->id, peer, &chan, &peer_chan);
        ustack_client_done();
        return err != 0 ? err : (int)chan;
}
