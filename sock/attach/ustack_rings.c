/*
 * Channels by rings in shared memory (unet/shm): to stacks of this host, and to unetd's bridge to
 * an interface that several stacks have.
 */
#include "sock/attach/ustack_way.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/sandbox.h"
#include "base/sys.h"
#include "sock/attach/ustack_chan.h"
#include "unet/bell_fd.h"
#include "unet/wrap/ni_fault.h"
#include "unetd/client/wire.h"

static bool takes(const struct unetd_chan *fds)
{
        return !unetd_chan_is_xdp(fds) && !unetd_chan_is_remote(fds);
}

static void empty_peer(const struct shm_chan *c)
{
        if (c->peer != NULL)
                ustack_empty(c->peer, c->peer_bytes);
        if (c->bell != NULL)
                ustack_empty(c->bell, BELL_BYTES);
        if (c->memory != NULL)
                ustack_empty(c->memory, FRAME_NAMED_BYTES);
}

/* A loss cannot tell whether what was lost is read still. */
bool ustack_chan_names(const struct ustack *u, uint32_t k)
{
        return u->way[k] == &ustack_way_rings && u->fault[k] == NULL &&
               u->s.st->chan[k].names & STACK_NAMES_OUT &&
               atomic_load_explicit(&u->chan[k].peer->ctrl.names, memory_order_relaxed) != 0;
}

static bool map_names(struct ustack *u, uint32_t k, const struct unetd_chan *fds)
{
        struct shm_chan *c = &u->chan[k];
        const uint8_t *memory;

        c->names = false;
        if (likely(!(READ_ONCE(u->s.st->chan[k].names) & STACK_NAMES_IN)))
                return true;
        if (fds->state <= 0)
                return false;
        memory = ustack_map_end(c->memory, fds->state, FRAME_NAMED_BYTES, PROT_READ);
        if (memory == NULL)
                return false;
        c->memory = memory;
        c->names = true;
        return true;
}

/* Spinners look at both without the lock: what the words say is there, at any moment. */
static bool map(struct ustack *u, uint32_t k, const struct unetd_chan *fds)
{
        struct shm_chan *c = &u->chan[k];
        void *peer = ustack_map_over(c->peer, &c->peer_bytes, fds->rx,
                                     SHM_REGION_BYTES(fds->rx_geom), PROT_READ);
        void *bell = ustack_map_over(c->bell, &(size_t){BELL_BYTES}, fds->peer_bell, BELL_BYTES,
                                     PROT_READ);

        if (peer != NULL)
                __atomic_store_n(&c->peer, peer, __ATOMIC_RELEASE);
        if (bell != NULL)
                __atomic_store_n(&c->bell, bell, __ATOMIC_RELEASE);
        if (peer != NULL && bell != NULL && map_names(u, k, fds))
                return true;
        empty_peer(c);
        return false;
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

/* The bridge carries frames of a network: they may be damaged and lost, and lie whole in what it
 * lends. */
static struct unet_caps bridge_caps(const struct unetd_chan *fds)
{
        return (struct unet_caps){.mtu = SHM_MTU,
                                  .inline_max = SHM_INLINE_MAX,
                                  .csum = true,
                                  .csum_pseudo = fds->iface.csum_pseudo != 0,
                                  .whole = true,
                                  .shared = true,
                                  .rto_min = 200 * NS_PER_MS};
}

static void close_early(int *fd)
{
        if (*fd >= 0)
                sys1(SYS_close, *fd);
        *fd = -1;
}

/* What is rung in the place of a ringer of the channel's: a name, or, a stack with itself, a ringer
 * that it has anyway; -1: nothing. The keeper has the channel's in any case. */
static int instead(const struct ustack *u, const struct unetd_chan *fds, int ringer, int own)
{
        if (!u->wakes_late)
                return -1;
        if (fds->peer_stack == u->id)
                return own;
        return u->keeps_ringers || sandbox_forbids(SANDBOX_NAMES) ? -1 : bell_named(ringer);
}

static void seat_ringers(struct ustack *u, struct shm_chan *c, struct unetd_chan *fds)
{
        int leader = instead(u, fds, fds->peer_leader, u->fds.ring_leader),
            keeper = instead(u, fds, fds->peer_keeper, u->fds.ring_keeper);
        bool spare = leader >= 0 && keeper >= 0;

        c->leader_fd = spare ? leader : fds->peer_leader;
        c->keeper_fd = spare ? keeper : fds->peer_keeper;
        if (!spare)
                return;
        close_early(&fds->peer_leader);
        close_early(&fds->peer_keeper);
        close_early(&fds->peer_bell);
}

/* With a thousand peers, descriptors of what is mapped, or has a name, would be five thousand. */
static void seat(struct ustack *u, uint32_t k)
{
        struct stack_state *st = u->s.st;
        struct unetd_chan *fds = &u->chan_fds[k];
        struct shm_chan *c = &u->chan[k];
        bool iface = unetd_chan_is_iface(fds);

        c->late = u->wakes_late ? &u->bells : NULL;
        seat_ringers(u, c, fds);
        if (!ustack_way_borrows(u, fds)) {
                close_early(&fds->tx);
                close_early(&fds->rx);
                if (fds->state > 0)
                        sys1(SYS_close, fds->state);
        }
        fds->state = 0;
        shm_chan_init(c, &st->chan[k].shm, &st->cnt);
        if (iface)
                c->base.caps = bridge_caps(fds);
        stack_chan_mapped(&u->s, k, iface ? &c->base : with_faults(u, k), c->mine->frames,
                          c->peer->frames);
        if (unlikely(c->names)) {
                stack_chan_named(&u->s, k, c->memory);
                atomic_store_explicit(&c->mine->ctrl.names, 1, memory_order_release);
        }
}

static void make_ringer(int *named, int *fd)
{
        int made = bell_is_named(*named) ? bell_unnamed(*named) : -1;

        made = made >= 0 ? fd_high(made) : -1;
        if (made >= 0)
                *named = *fd = made;
}

void ustack_ringers_make(struct ustack *u)
{
        assert(ustack_locked(u));
        u->keeps_ringers = true;
        for (uint32_t k = 0; k < u->s.nchan; k++)
                if (ustack_way_at(u, k) == &ustack_way_rings) {
                        make_ringer(&u->chan[k].leader_fd, &u->chan_fds[k].peer_leader);
                        make_ringer(&u->chan[k].keeper_fd, &u->chan_fds[k].peer_keeper);
                }
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

static void end(struct ustack *u, uint32_t k)
{
        if (u->fault[k] != NULL)
                ni_fault_end(u->fault[k]);
        u->fault[k] = NULL;
        empty_peer(&u->chan[k]);
        u->chan[k].leader_fd = u->chan[k].keeper_fd = -1;
        ringer_end(u, &u->chan_fds[k].peer_leader);
        ringer_end(u, &u->chan_fds[k].peer_keeper);
}

static void unmap(struct ustack *u, uint32_t k)
{
        struct shm_chan *c = &u->chan[k];

        ustack_unmap(c->peer, c->peer_bytes);
        ustack_unmap(c->bell, BELL_BYTES);
        ustack_unmap(c->memory, FRAME_NAMED_BYTES);
        c->peer = NULL;
        c->bell = NULL;
        c->memory = NULL;
}

static void ring(struct ustack *u, uint32_t k)
{
        shm_chan_ring_again(&u->chan[k]);
        stack_heat(u->s.st, k); /* bells of others are not looked at */
}

static void iface(const struct ustack *u, uint32_t k, const struct unetd_chan *fds,
                  struct netif_config *cfg, struct frame_geom *rx)
{
        cfg->mtu = fds->iface.mtu;
        cfg->mtu_max = SHM_MTU;
        memcpy(cfg->mac, fds->iface.mac, sizeof cfg->mac);
        *rx = fds->rx_geom;
}

const struct ustack_way ustack_way_rings = {.name = "rings",
                                            .takes = takes,
                                            .map = map,
                                            .seat = seat,
                                            .end = end,
                                            .unmap = unmap,
                                            .ring = ring,
                                            .iface = iface};
