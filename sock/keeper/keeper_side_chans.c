/* The keeper's side of a stack's channels: put into the state, moved, taken out. See
 * unetd/keeper/keeper_ops.h. */
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_wake.h"
#include "sock/attach/ustack_way.h"
#include "sock/keeper/keeper_view.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>

#include "base/sys.h"
#include "unetd/client/wire.h"

#define DOWN_EVERY (50 * NS_PER_MS)
#define QUIET_FOR  NS_PER_S /* so long nothing has gone by a channel that is to yield */
/* As long as a look at what is used took, and at most so long, there is none after it. */
#define REST_TIMES 9
#define REST_MOST  (50 * NS_PER_MS)

static int dup_high(int fd)
{
        return fd < 0 ? -1 : (int)sys3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
}

/* The keeper lends the descriptors of an interface for the call only. */
static int chan_dup(const struct unetd_chan *from, struct unetd_chan *to)
{
        *to = *from;
        int *fd[] = {&to->tx,          &to->rx,     &to->peer_bell, &to->peer_leader,
                     &to->peer_keeper, &to->mem,    &to->xsk,       &to->packet,
                     &to->ring,        &to->sender, &to->book};
        bool failed = false;

        for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
                bool there = *fd[i] >= 0;
                *fd[i] = dup_high(*fd[i]);
                failed |= there && *fd[i] < 0;
        }
        if (failed)
                unetd_chan_close(to);
        return failed ? -EMFILE : 0;
}

/* What the stack is on the interface, and the frames that come by it. */
static void iface_config(const struct ustack *u, uint32_t slot, const struct unetd_chan *chan,
                         struct netif_config *cfg, struct frame_geom *rx)
{
        const struct unetd_iface *f = &chan->iface;

        *cfg = (struct netif_config){.addr = f->addr,
                                     .gateway = f->gateway,
                                     .prefix = (uint8_t)f->prefix,
                                     .ifindex = (uint8_t)((chan->peer_stack & ~UNETD_IFACE) + 1),
                                     .serial = f->serial};
        memcpy(cfg->name, f->name, sizeof cfg->name);
        u->way[slot]->iface(u, slot, chan, cfg, rx);
}

/* The channel is in the state: it was brought by a keeper before us, or changes. */
static bool is_same(const struct ustack *u, uint32_t slot, const struct unetd_chan *chan)
{
        const struct chan_slot *c = &u->s.st->chan[slot];

        return chan_is_open(c) && c->peer == chan->peer_stack &&
               (c->netif != 0) == unetd_chan_is_iface(chan);
}

/* What came by the old way and nobody has read: of SYNs that it has answered already no peer
 * sends another. */
static void take_what_came(struct ustack *u, uint32_t slot)
{
        assert(ustack_locked(u));
        stack_time(&u->s, ustack_now());
        stack_last_words(&u->s, slot);
}

static int iface_attach(struct ustack *u, uint32_t slot, const struct unetd_chan *chan)
{
        struct netif_config cfg;
        struct frame_geom rx;
        struct unetd_chan mine;
        uint8_t seed[16];
        int err = chan_dup(chan, &mine);

        assert(ustack_locked(u) && slot < STACK_CHANS);
        if (err != 0)
                return err;
        if (is_same(u, slot, chan))
                take_what_came(u, slot);
        if (!ustack_way_map(u, slot, &mine)) {
                unetd_chan_close(&mine);
                return -EPROTO;
        }
        iface_config(u, slot, chan, &cfg, &rx);
        err = getrandom(seed, sizeof seed, 0) != sizeof seed ? -EIO : 0;
        if (err == 0 && is_same(u, slot, chan)) {
                if (stack_netif_move(&u->s, slot, &cfg, rx))
                        /* Who sleeps by the old way holds it, and its queue cannot be had again. */
                        ustack_wake_all(u);
        } else if (err == 0) {
                err = stack_netif_add(u->s.st, slot, chan->peer_stack, &cfg, chan->tx_geom, rx,
                                      seed, ustack_now());
        }
        if (err == 0)
                ustack_way_seat(u, slot);
        else
                ustack_way_end(u, slot);
        return err;
}

static int iface_attach_locked(struct ustack *u, uint32_t slot, const struct unetd_chan *chan)
{
        int err = -EAGAIN;

        if (ustack_trylock(u)) {
                err = iface_attach(u, slot, chan);
                stack_sync(&u->s);
                stack_flush(&u->s, ustack_now()); /* by the new way */
                ustack_unlock(u);
        }
        return err;
}

static uint64_t gone_by(const struct shm_pos *p)
{
        return (uint64_t)READ_ONCE(p->tx_prod) << 32 | READ_ONCE(p->rx_cons);
}

/* With each channel that comes they are looked at, so that it is known which was not used since. */
static void note_quiet(struct keeper_view *v, nstime now)
{
        const struct stack_state *st = v->u.s.st;

        for (uint32_t k = 0; k < MIN(atomic_load(&st->chans), STACK_CHANS); k++) {
                uint64_t n = gone_by(&st->chan[k].shm.pos);
                if (v->quiet[k].gone_by == n && v->quiet[k].since != 0)
                        continue;
                v->quiet[k].gone_by = n;
                v->quiet[k].since = now;
        }
}

static int map_fds(struct ustack *u, uint32_t slot, const struct unetd_chan *chan)
{
        struct unetd_chan mine = *chan;
        bool lent = ustack_way_borrows(u, chan);
        int err = lent ? 0 : chan_dup(chan, &mine);

        if (err != 0)
                return err;
        if (ustack_map_chan_fds(u, slot, &mine))
                return 0;
        if (!lent)
                unetd_chan_close(&mine);
        return -ENOMEM;
}

/* The keeper closes what it has lent now; a process may have written into the state that the
 * channel is there still. */
static void give_back(struct ustack *u, uint32_t slot)
{
        if (u->way[slot] == NULL)
                return;
        stack_chan_unmapped(&u->s, slot);
        ustack_chan_over(&u->s, slot);
}

static uint32_t names_of(const struct ustack *u, uint32_t slot)
{
        return READ_ONCE(u->s.st->chan[slot].names);
}

/* No process has it yet: that asks the keeper, which is busy. */
static void begin(struct keeper_view *v, uint32_t slot, const struct unetd_chan *chan)
{
        struct ustack *u = &v->u;

        v->quiet[slot].since = 0;
        if (chan->state > 0 && chan->peer_uid == u->s.st->uid && frame_chan_may_name(slot) &&
            keeper_may_name(v))
                WRITE_ONCE(u->s.st->chan[slot].names, names_of(u, slot) | STACK_NAMES_IN);
}

int keeper_chan_attach(void *view, uint32_t slot, const struct unetd_chan *chan)
{
        struct keeper_view *v = view;
        struct ustack *u = &v->u;
        int err;

        if (!keeper_has_room(v, slot, chan))
                return -ENOSPC;
        if (is_same(u, slot, chan) && names_of(u, slot) & STACK_NAMES_IN && chan->state == 0)
                return -EAGAIN; /* its peer is the next stack that a keeper before us had */
        if (unetd_chan_is_iface(chan))
                return iface_attach_locked(u, slot, chan);
        if (unetd_chan_is_remote(chan))
                err = stack_remote_add(
                        u->s.st, slot, chan->peer_stack, chan->remote,
                        (struct ip_ifaddr){chan->iface.addr, (uint8_t)chan->iface.prefix},
                        chan->tx_geom, vlink_rx_geom());
        else
                err = stack_chan_add(u->s.st, slot, chan->peer_stack, chan->peer_uid, chan->tx_geom,
                                     chan->rx_geom);
        if (err != 0 && !(err == -EBUSY && is_same(u, slot, chan)))
                return err;
        if (err == 0)
                begin(v, slot, chan);
        else
                stack_chan_yield(&u->s, slot, false);
        note_quiet(v, ustack_now());
        err = map_fds(u, slot, chan);
        if (err == 0)
                stack_heat(u->s.st, slot); /* a keeper before us may have been rung for it */
        return err;
}

int keeper_chan_down(void *view, uint32_t slot)
{
        struct keeper_view *v = view;
        struct ustack *u = &v->u;
        nstime now = ustack_now();
        bool done;

        if (slot >= STACK_CHANS)
                return 0;
        if (atomic_load(&u->s.st->chan[slot].state) == CHAN_DOWN &&
            now - v->down_looked[slot] < DOWN_EVERY)
                return -EAGAIN; /* whether it is still in use costs a walk over all connections */
        if (!ustack_trylock(u))
                return -EAGAIN;
        v->down_looked[slot] = now;
        stack_chan_down(&u->s, slot, now);
        done = stack_chan_free(&u->s, slot);
        stack_sync(&u->s);
        if (done)
                give_back(u, slot);
        ustack_unlock(u);
        return done ? 0 : -EAGAIN;
}

/* ---- channels that yield to others ---- */

/* A connection may be on its way by it, or something that its peer gives back. */
static bool is_quiet(const struct ustack *u, uint32_t k)
{
        const struct stack_chan *c = &u->s.chan[k];

        return atomic_load(&u->s.st->chan[k].state) == CHAN_READY && c->ops != NULL &&
               !c->outside && u->s.st->chan[k].generation == c->generation &&
               !c->ops->pending(c->ch);
}

/* It is a walk over all connections with the lock held, and others may ask for one as often as they
 * like. */
static void look_at_uses(struct keeper_view *v, uint64_t used[STACK_CHANS / 64])
{
        nstime before = ustack_now(), after;

        assert(ustack_locked(&v->u));
        stack_chans_used(&v->u.s, used);
        after = ustack_now();
        v->uses_again = after + MIN(REST_TIMES * (after - before), REST_MOST);
}

/* The one of them that nothing refers to, and that was not used for longest; -ENOENT: there
 * is none. */
static int longest_quiet(struct keeper_view *v, const uint64_t *may, nstime now)
{
        uint64_t used[STACK_CHANS / 64];
        nstime since = now - QUIET_FOR + 1;
        int best = -ENOENT;

        look_at_uses(v, used);
        for (uint32_t k = 0; k < STACK_CHANS; k++) {
                if (!(may[k / 64] >> (k % 64) & 1) || used[k / 64] >> (k % 64) & 1 ||
                    v->quiet[k].since >= since || !is_quiet(&v->u, k))
                        continue;
                since = v->quiet[k].since;
                best = (int)k;
        }
        return best;
}

/* Tells the peer how much of its ring we have consumed, which is all of it. The peer parts only if
 * that is all that it has sent (keeper_chan_part()): then no message is on its way. */
int keeper_chan_yield(void *view, const uint64_t *may)
{
        struct keeper_view *v = view;
        struct ustack *u = &v->u;
        nstime now = ustack_now();
        int k;

        if (now < v->uses_again || !ustack_trylock(u))
                return -EAGAIN;
        stack_run(&u->s, now);
        note_quiet(v, now);
        k = longest_quiet(v, may, now);
        if (k >= 0) {
                shm_rx_publish(&u->s.st->chan[k].shm.pos, u->chan[k].mine);
                stack_chan_yield(&u->s, (uint32_t)k, true);
        }
        ustack_unlock(u);
        return k;
}

int keeper_chan_part(void *view, uint32_t slot)
{
        struct keeper_view *v = view;
        struct ustack *u = &v->u;
        nstime now = ustack_now();
        uint64_t used[STACK_CHANS / 64];
        bool done = false;

        if (slot >= STACK_CHANS)
                return -EBUSY;
        if (now < v->uses_again || !ustack_trylock(u))
                return -EAGAIN;
        stack_run(&u->s, now);
        look_at_uses(v, used);
        if (!(used[slot / 64] >> (slot % 64) & 1) && is_quiet(u, slot) &&
            atomic_load(&u->chan[slot].peer->ctrl.cons) == u->s.st->chan[slot].shm.pos.tx_prod) {
                stack_chan_down(&u->s, slot, now);
                done = stack_chan_free(&u->s, slot);
                stack_sync(&u->s);
                if (done)
                        give_back(u, slot);
        }
        ustack_unlock(u);
        return done ? 0 : -EBUSY;
}

/* It counts as used now: another one is next. */
void keeper_chan_stay(void *view, uint32_t slot)
{
        struct keeper_view *v = view;

        if (slot >= STACK_CHANS)
                return;
        stack_chan_yield(&v->u.s, slot, false);
        v->quiet[slot].since = ustack_now();
}

bool keeper_has_chan(void *view, uint32_t slot)
{
        const struct stack_state *st = ((const struct keeper_view *)view)->u.s.st;

        return slot < STACK_CHANS &&
               atomic_load_explicit(&st->chan[slot].state, memory_order_relaxed) != CHAN_FREE;
}

bool keeper_has_memory(void *view)
{
        return READ_ONCE(((const struct keeper_view *)view)->u.s.st->has_memory) != 0;
}

uint32_t keeper_chans(void *view)
{
        const struct stack_state *st = ((const struct keeper_view *)view)->u.s.st;

        return MIN(atomic_load_explicit(&st->chans, memory_order_relaxed), STACK_CHANS);
}
