/*
 * A stack's channels as one process has them: mapped when they are met, emptied when they are over.
 *
 * Threads look without the lock whether something has come (stack_pending()). So what was mapped
 * for a channel stays readable, and empty, when it is over, until another channel takes its place.
 */
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_link.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/sys.h"
#include "unet/sim/ni_fault.h"

bool ustack_chan_is_xdp(const struct ustack *u, uint32_t k)
{
        assert(k < STACK_CHANS);
        return u->xdp[k] != NULL && u->chan_fds[k].xsk >= 0;
}

static void empty_peer(const struct shm_chan *c)
{
        if (c->peer != NULL)
                ustack_empty(c->peer, c->peer_bytes);
        if (c->bell != NULL)
                ustack_empty(c->bell, BELL_BYTES);
}

static void empty_regions(const struct shm_chan *c)
{
        empty_peer(c);
        if (c->mine != NULL)
                ustack_empty(c->mine, c->mine_bytes);
}

static bool goes_by_something(const struct unetd_chan *fds)
{
        return fds->tx > 0 || fds->peer_leader > 0;
}

/* Its number is not to become another file's before who rings by it without the lock has. More than
 * fit stay open. */
static void ringer_end(struct ustack *u, int *fd)
{
        if (*fd < 0 || !u->wakes_late ||
            (u->bells.n == 0 && atomic_load(&u->s.st->proc[u->slot].waking) == 0))
                return;
        if (u->nspent < USTACK_SPENT) {
                WRITE_ONCE(u->spent[u->nspent], *fd);
                WRITE_ONCE(u->nspent, u->nspent + 1);
        }
        *fd = -1;
}

void ustack_ringers_close(struct ustack *u)
{
        if (u->bells.n != 0 || atomic_load(&u->s.st->proc[u->slot].waking) != 0)
                return;
        while (u->nspent > 0) {
                WRITE_ONCE(u->nspent, u->nspent - 1);
                sys1(SYS_close, u->spent[u->nspent]);
        }
}

void ustack_ring_peers(struct ustack *u)
{
        for (uint32_t k = 0; k < u->s.nchan; k++)
                if (u->s.chan[k].ops != NULL && goes_by_something(&u->chan_fds[k]) &&
                    u->chan[k].base.ops == &shm_ni_ops && !ustack_chan_is_xdp(u, k) &&
                    !u->remote_tx[k].mapped) {
                        shm_chan_ring_again(&u->chan[k]);
                        stack_heat(u->s.st, k); /* bells of others are not looked at */
                }
        stack_flush_bells(&u->s);
}

/* Whatever it went by: nothing comes by that any more, and what it took goes back. Threads of ours
 * look at queues without the lock (stack_pending): they find them empty. What is sent from stays: a
 * thread may be copying into it. */
static void way_end(struct ustack *u, uint32_t k)
{
        assert(k < STACK_CHANS);
        if (!goes_by_something(&u->chan_fds[k]))
                return; /* there was none */
        if (ustack_chan_is_xdp(u, k))
                ni_xdp_forsake(&u->xdp[k]->ni);
        if (u->fault[k] != NULL)
                ni_fault_end(u->fault[k]);
        u->fault[k] = NULL;
        empty_peer(&u->chan[k]);
        ringer_end(u, &u->chan_fds[k].peer_leader);
        ringer_end(u, &u->chan_fds[k].peer_keeper);
        unetd_chan_close(&u->chan_fds[k]);
}

/* A channel that is no more. */
static void chan_empty(struct ustack *u, uint32_t k)
{
        assert(k < STACK_CHANS);
        way_end(u, k);
        empty_regions(&u->chan[k]);
}

static void iface_unmap(struct ustack *u, uint32_t k)
{
        struct xdp_view *v = u->xdp[k], *before;

        assert(k < STACK_CHANS);
        for (; v != NULL; v = before) {
                before = v->before;
                ni_xdp_detach(&v->ni);
                free(v);
        }
        u->xdp[k] = NULL;
}

/* For good: nobody looks any more. */
void ustack_chan_unmap(struct ustack *u, uint32_t k)
{
        struct shm_chan *c = &u->chan[k];

        assert(k < STACK_CHANS);
        chan_empty(u, k);
        ustack_unmap(c->mine, c->mine_bytes);
        ustack_unmap(c->peer, c->peer_bytes);
        ustack_unmap(c->bell, BELL_BYTES);
        *c = (struct shm_chan){0};
        iface_unmap(u, k);
        ustack_remote_unmap(u, k);
}

/* Over the same region as before, if it is the same channel that goes by something else now. */
static bool map_mine(struct shm_chan *c, const struct unetd_chan *fds)
{
        void *mine = ustack_map_over(c->mine, &c->mine_bytes, fds->tx,
                                     SHM_REGION_BYTES(fds->tx_geom), PROT_READ | PROT_WRITE);

        if (mine != NULL)
                c->mine = mine;
        return mine != NULL;
}

/* Spinners look at both without the lock: what the words say is there, at any moment. */
static bool map_peer(struct shm_chan *c, const struct unetd_chan *fds)
{
        void *peer = ustack_map_over(c->peer, &c->peer_bytes, fds->rx,
                                     SHM_REGION_BYTES(fds->rx_geom), PROT_READ);
        void *bell = ustack_map_over(c->bell, &(size_t){BELL_BYTES}, fds->peer_bell, BELL_BYTES,
                                     PROT_READ);

        if (peer != NULL)
                __atomic_store_n(&c->peer, peer, __ATOMIC_RELEASE);
        if (bell != NULL)
                __atomic_store_n(&c->bell, bell, __ATOMIC_RELEASE);
        return peer != NULL && bell != NULL;
}

static bool chan_map_regions(struct ustack *u, struct shm_chan *c, const struct unetd_chan *fds)
{
        bool mine = map_mine(c, fds), peer = map_peer(c, fds);

        c->late = u->wakes_late ? &u->bells : NULL;
        c->leader_fd = fds->peer_leader;
        c->keeper_fd = fds->peer_keeper;
        return mine && peer;
}

/* UNET_FAULT (unet run --fault): what this process sends on the channel meets a bad link first. */
static struct unet_chan *with_faults(struct ustack *u, uint32_t k)
{
        const char *spec = getenv("UNET_FAULT");
        struct unet_chan *inner = &u->chan[k].base;
        struct fault_params p;

        if (spec == NULL || u->fds.state < 0 || fault_parse(spec, &p) != 0)
                return inner;
        p.seed += k;
        /* Both ends of a channel of such a process may lose: no shortcuts that a channel without
         * loss allows. */
        inner->caps.lossless = false;
        inner->caps.csum = p.corrupt > 0;
        u->fault[k] = ni_fault_new(inner, &p, &u->s.st->cnt);
        return u->fault[k] != NULL ? u->fault[k] : inner;
}

/* In the place of the last socket of this channel number, or, if that had other sizes,
 * beside it. */
static int xdp_attach(struct ustack *u, uint32_t k, const struct unetd_chan *fds,
                      struct unet_mem tx)
{
        const struct ni_xdp_fds passed = {fds->xsk, fds->mem, fds->packet, fds->ring, fds->sender};
        struct xdp_view *v = u->xdp[k];
        int err = v != NULL ? ni_xdp_reattach(&v->ni, passed, tx) : -ENOSPC;

        if (err != -ENOSPC)
                return err;
        v = calloc(1, sizeof *v);
        err = v != NULL ? ni_xdp_attach(&v->ni, passed, tx, &u->s.st->cnt) : -ENOMEM;
        if (err != 0) {
                free(v);
                return err;
        }
        v->before = u->xdp[k];
        u->xdp[k] = v;
        return 0;
}

bool ustack_map_iface_fds(struct ustack *u, uint32_t k, const struct unetd_chan *fds)
{
        struct shm_chan *c = &u->chan[k];

        assert(k < STACK_CHANS);
        ustack_remote_end(u, k);
        way_end(u, k);
        if (!map_mine(c, fds) ||
            xdp_attach(u, k, fds, unet_mem_frames(c->mine->frames, fds->tx_geom)) != 0)
                return false;
        u->chan_fds[k] = *fds;
        return true;
}

void ustack_iface_mapped(struct ustack *u, uint32_t k)
{
        struct ni_xdp *x = &u->xdp[k]->ni;

        assert(k < STACK_CHANS);
        stack_chan_mapped(&u->s, k, &x->base, x->tx_mem.base, ni_xdp_rx_frames(x));
}

/* The gateway carries frames of a network: they may be damaged and lost, and lie whole in what
 * it lends. */
static struct unet_caps gate_caps(const struct unetd_chan *fds)
{
        return (struct unet_caps){.mtu = SHM_MTU,
                                  .inline_max = SHM_INLINE_MAX,
                                  .csum = true,
                                  .csum_pseudo = fds->iface.csum_pseudo != 0,
                                  .whole = true,
                                  .shared = true,
                                  .rto_min = 200 * NS_PER_MS};
}

/* Those of what is mapped now are of no more use: with a thousand peers they would be two thousand.
 */
static void keep_fds(struct unetd_chan *mine, const struct unetd_chan *fds)
{
        *mine = *fds;
        sys1(SYS_close, mine->tx);
        sys1(SYS_close, mine->rx);
        mine->tx = mine->rx = -1;
}

bool ustack_map_chan_fds(struct ustack *u, uint32_t k, const struct unetd_chan *fds)
{
        struct stack_state *st = u->s.st;
        struct shm_chan *c = &u->chan[k];

        assert(k < STACK_CHANS);
        if (unetd_chan_is_xdp(fds)) {
                bool mapped = ustack_map_iface_fds(u, k, fds);
                if (mapped)
                        ustack_iface_mapped(u, k);
                return mapped;
        }
        if (unetd_chan_is_remote(fds))
                return ustack_map_remote_fds(u, k, fds);
        ustack_remote_end(u, k);
        way_end(u, k);
        if (!chan_map_regions(u, c, fds)) {
                empty_regions(c);
                return false;
        }
        keep_fds(&u->chan_fds[k], fds);
        shm_chan_init(c, &st->chan[k].shm, &st->cnt);
        if (unetd_chan_is_iface(fds))
                c->base.caps = gate_caps(fds);
        stack_chan_mapped(&u->s, k, unetd_chan_is_iface(fds) ? &c->base : with_faults(u, k),
                          c->mine->frames, c->peer->frames);
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
