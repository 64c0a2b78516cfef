/*
 * Channels: two transmit regions, which this file makes and the keepers of both ends attach.
 *
 *   none --chan_open--> OPENING x2 --both keepers attached--> UP x2
 *   a stack goes: its end FREE, the other CLOSING until its keeper has taken it down, then FREE
 *   both FREE: gone
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memfd.h"
#include "unet/bell_fd.h"
#include "unet/shm/shm_ring.h"
#include "unetd/daemon/chans_int.h"
#include "unetd/daemon/clients.h"
#include "unetd/daemon/daemon.h"
#include "unetd/daemon/discard.h"
#include "unetd/daemon/ifaces.h"
#include "unetd/daemon/links.h"
#include "unetd/daemon/replay.h"
#include "unetd/daemon/shares.h"
#include "unetd/daemon/stacks.h"
#include "unetd/daemon/users.h"
#include "unetd/bridge/gate.h"

/* After a keeper's -ENOSPC, unetd believes for so long that the stack has no room for more
 * channels. */
#define ROOM_KNOWN (10 * NS_PER_S)

struct end *other_end(const struct end *e)
{
        assert(e == &e->chan->end[0] || e == &e->chan->end[1]);
        return e == &e->chan->end[0] ? &e->chan->end[1] : &e->chan->end[0];
}

/* ---- numbers ---- */

static int slot_take(struct stack *st, uint32_t slot)
{
        if (slot >= UNETD_CHANS_MAX || st->slots[slot / 64] >> (slot % 64) & 1)
                return -EEXIST;
        st->slots[slot / 64] |= (uint64_t)1 << (slot % 64);
        return 0;
}

static uint32_t slots_at_most(const struct stack *st)
{
        uint32_t most = MIN(unetd.cfg.per_uid.chans_per_stack, UNETD_CHANS_MAX);

        return st->slots_most_until > unetd.loop.now ? MIN(st->slots_most, most) : most;
}

/* Other users than the stack's own are limited, however many stacks they have. */
bool slot_share_is_full(const struct stack *st, const struct user *payer)
{
        uint32_t have = 0, taken = 0;
        const struct end *e;

        if (payer == st->user)
                return false;
        LIST_FOREACH (e, &st->ends, link) {
                have += e->payer == payer;
                taken++;
        }
        return !share_may_take(have, taken, slots_at_most(st));
}

/* Returns true if the host has its whole share of the stack's numbers for other hosts. */
static bool host_share_is_full(const struct stack *st, uint32_t addr)
{
        uint32_t have = 0, taken = 0;
        const struct end *e;

        LIST_FOREACH (e, &st->ends, link) {
                taken += e->slot < VLINK_CHANS;
                have += e->chan->remote && e->chan->remote->addr == addr;
        }
        return !share_leaves_others(have, taken, MIN(slots_at_most(st), VLINK_CHANS));
}

/* Channels to other hosts have numbers below VLINK_CHANS: a link's book has room for no others. So
 * where there are RDMA devices, other channels leave these alone, if the stack has many more. */
struct numbers {
        uint32_t first, end;
};

static struct numbers numbers_for(const struct stack *st, bool remote)
{
        uint32_t most = slots_at_most(st);

        if (remote)
                return (struct numbers){0, MIN(most, VLINK_CHANS)};
        return (struct numbers){links_are_there() && most > 2 * VLINK_CHANS ? VLINK_CHANS : 0,
                                most};
}

bool slot_is_free(const struct stack *st, const struct user *payer)
{
        struct numbers n = numbers_for(st, false);

        for (uint32_t i = n.first; i < n.end; i++)
                if (!(st->slots[i / 64] >> (i % 64) & 1))
                        return !slot_share_is_full(st, payer);
        return false;
}

static int slot_new(struct stack *st, const struct user *payer, bool remote, uint32_t *slot)
{
        struct numbers n = numbers_for(st, remote);

        if (slot_share_is_full(st, payer))
                return -EDQUOT;
        for (uint32_t i = n.first; i < n.end; i++) {
                if (slot_take(st, i) == 0) {
                        *slot = i;
                        return 0;
                }
        }
        return -EDQUOT;
}

void chan_number_taken(struct user *u, const struct unetd_msg *msg)
{
        struct stack *st;

        if (stack_of(u, msg->stack.stack, &st) == 0)
                slot_take(st, msg->stack.slot);
}

/* A number that a keeper reported as taken is free again, unless a channel has it. */
static void slot_free_if_unused(struct stack *st, uint32_t slot)
{
        const struct end *e;

        assert(slot < UNETD_CHANS_MAX);
        LIST_FOREACH (e, &st->ends, link)
                if (e->slot == slot)
                        return;
        st->slots[slot / 64] &= ~((uint64_t)1 << (slot % 64));
}

void chan_number_free(struct user *u, const struct unetd_msg *msg)
{
        struct stack *st;

        if (stack_of(u, msg->stack.stack, &st) == 0 && msg->stack.slot < UNETD_CHANS_MAX)
                slot_free_if_unused(st, msg->stack.slot);
}

/* ---- making one ---- */

static int region_new(struct frame_geom g)
{
        return unet_memfd_make_sealed("unet-channel", SHM_REGION_BYTES(g));
}

static struct chan *chan_alloc(void)
{
        struct chan *ch = calloc(1, sizeof *ch);

        if (!ch)
                return NULL;
        for (int i = 0; i < 2; i++)
                ch->end[i] = (struct end){.chan = ch, .tx = -1};
        ch->bells[0] = ch->bells[1] = -1;
        LIST_INSERT_HEAD(&unetd.chans, ch, link);
        unetd.nchans++;
        return ch;
}

static void close_all(const int *fds, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                if (fds[i] >= 0)
                        close(fds[i]);
}

void chan_free_if_unused(struct chan *ch)
{
        if (ch->end[0].state != END_FREE || ch->end[1].state != END_FREE)
                return;
        asks_forget_chan(ch);
        if (ch->iface)
                iface_leave(ch->iface, ch->port);
        if (ch->remote)
                remote_gone(ch);
        for (int i = 0; i < 2; i++)
                if (ch->end[i].tx >= 0)
                        close(ch->end[i].tx);
        close_all(ch->bells, 2);
        LIST_REMOVE(ch, link);
        assert(unetd.nchans != 0);
        assert(LIST_EMPTY(&ch->waiters));
        unetd.nchans--;
        free(ch);
}

/* Binds an end to a stack, under number `slot` or, with UNETD_CHANS_MAX, under the lowest free one.
 */
static int end_bind(struct end *e, struct stack *st, struct user *payer, uint32_t slot)
{
        int r;

        assert(e->state == END_FREE && e->stack == NULL);
        assert(slot <= UNETD_CHANS_MAX);
        if (payer->used.chans >= unetd.cfg.per_uid.chans || !share_may_hold(payer, 1))
                return -EDQUOT;
        e->slot = slot;
        r = slot == UNETD_CHANS_MAX ? slot_new(st, payer, e->chan->remote != NULL, &e->slot)
                                    : slot_take(st, slot);
        if (r < 0)
                return r;
        e->stack = st;
        e->state = END_OPENING;
        e->payer = payer;
        payer->used.chans++;
        st->user->ends++;
        e->kept = share_end_fds(e->chan);
        st->user->kept += e->kept;
        LIST_INSERT_HEAD(&st->ends, e, link);
        return 0;
}

/* Binds an end of a channel that a keeper brings back. Another keeper, which knows the stack and
 * not its channels, may have reported the number as taken: by this one. */
static int end_bind_again(struct end *e, struct stack *st, struct user *payer, uint32_t slot)
{
        slot_free_if_unused(st, slot);
        return end_bind(e, st, payer, slot);
}

/* Binds an end of a new channel. The keeper of the stack's user must have room for it, whoever
 * pays. */
static int end_bind_new(struct end *e, struct stack *st, struct user *payer)
{
        return share_keeper_may_take(st->user, payer, e->chan)
                       ? end_bind(e, st, payer, UNETD_CHANS_MAX)
                       : -EDQUOT;
}

/* A region that an offer brought is of a size that its user chose: to free it may take long. */
static void close_offered(struct end *e)
{
        if (memcmp(&e->geom, &unetd.cfg.geom, sizeof e->geom) == 0)
                return;
        discard(e->stack->user, &e->tx, 1, false);
        e->tx = -1;
}

void end_free(struct end *e)
{
        if (e->state == END_FREE)
                return;
        assert(e->stack->slots[e->slot / 64] >> (e->slot % 64) & 1);
        e->stack->slots[e->slot / 64] &= ~((uint64_t)1 << (e->slot % 64));
        assert(e->payer->used.chans != 0 && e->stack->user->ends != 0);
        e->payer->used.chans--;
        e->stack->user->ends--;
        assert(e->stack->user->kept >= e->kept);
        e->stack->user->kept -= e->kept;
        replay_forget_end(e);
        LIST_REMOVE(e, link);
        close_offered(e);
        e->state = END_FREE;
        e->stack = NULL;
}

/* ---- telling keepers ---- */

/* Fills in the descriptors of an end's peer. Each peer gets file descriptions of its own, so that
 * its changes of flags and offsets reach nobody else. */
static int peer_fds(const struct end *e, int fds[UNETD_CHAN_FDS_MAX])
{
        const struct end *o = other_end(e);

        assert(o->stack != NULL && e->tx >= 0 && o->tx >= 0);
        fds[UNETD_FD_TX] = e->tx;
        fds[UNETD_FD_RX] = fd_reopen(o->tx, O_RDONLY);
        fds[UNETD_FD_PEER_BELL] = fd_reopen(o->stack->fds[UNETD_FD_BELL], O_RDONLY);
        fds[UNETD_FD_PEER_LEADER] = bell_ringer(o->stack->fds[UNETD_FD_LEADER]);
        fds[UNETD_FD_PEER_KEEPER] = bell_ringer(o->stack->fds[UNETD_FD_KEEPER]);
        for (unsigned i = 1; i < UNETD_CHAN_FDS; i++) {
                if (fds[i] < 0) {
                        int err = fds[i];
                        close_all(fds + 1, UNETD_CHAN_FDS - 1);
                        return err;
                }
        }
        return 0;
}

static struct unetd_chan_info end_info(const struct end *e)
{
        const struct end *o = other_end(e);

        assert(e->stack != NULL && e->state != END_FREE);
        return (struct unetd_chan_info){.stack = e->stack->id,
                                        .chan = e->slot,
                                        .peer_stack = o->stack ? o->stack->id : 0,
                                        .peer_chan = o->slot,
                                        .peer_uid = o->stack ? o->stack->user->uid : 0,
                                        .tx_geom = e->geom,
                                        .rx_geom = o->geom};
}

/* Fills in what the end's keeper is told of an interface. */
static int iface_info(const struct end *e, struct unetd_chan_info *info,
                      int fds[UNETD_CHAN_FDS_MAX])
{
        assert(e->chan->iface != NULL && e == &e->chan->end[0]);
        *info = (struct unetd_chan_info){
                .stack = e->stack->id, .chan = e->slot, .tx_geom = e->geom};
        info->iface.serial = e->chan->serial;
        fds[UNETD_FD_TX] = e->tx;
        return iface_describe(e->chan->iface, e->chan->port, info, fds);
}

static int ask_end(struct end *e, uint16_t type, const struct unetd_chan_info *info, const int *fds,
                   unsigned n)
{
        struct unetd_msg msg = {.type = type, .chan = *info};
        struct ask *a = ask_send(e->stack->user, &msg, fds, n);

        if (!a)
                return -ENOMEM;
        a->chan = e->chan;
        e->chan->nasks++;
        a->serial = e->chan->serial;
        a->end = e == &e->chan->end[1];
        return 0;
}

bool end_is_untold(const struct end *e)
{
        return e->untold || e->stack->untold;
}

static int end_attach(struct end *e)
{
        struct unetd_chan_info info;
        int fds[UNETD_CHAN_FDS_MAX], r;

        assert(e->stack != NULL && e->tx >= 0);
        if (end_is_untold(e))
                return 0;
        if (e->chan->remote) {
                info = end_info(e);
                fds[UNETD_FD_RM_TX] = e->tx;
                remote_describe(e->chan, &info, fds);
                return ask_end(e, UNETD_K_CHAN, &info, fds, UNETD_REMOTE_FDS);
        }
        info = end_info(e);
        r = e->chan->iface ? iface_info(e, &info, fds) : peer_fds(e, fds);
        if (r < 0)
                return r;
        r = ask_end(e, UNETD_K_CHAN, &info, fds, unetd_chan_nfds(&info));
        close_all(fds + 1, unetd_chan_nfds(&info) - 1); /* fds[0] is unetd's own */
        return r;
}

int end_ask(struct end *e, uint16_t type)
{
        struct unetd_chan_info info = end_info(e);

        return end_is_untold(e) ? 0 : ask_end(e, type, &info, NULL, 0);
}

void end_close(struct end *e)
{
        if (e->state == END_FREE || e->state == END_CLOSING)
                return;
        e->state = END_CLOSING;
        if (end_ask(e, UNETD_K_CHAN_DOWN) < 0)
                end_free(e);
}

/* ---- opening ---- */

static void waiters_done(struct chan *ch, int err)
{
        struct waiter *w;

        while ((w = LIST_FIRST(&ch->waiters)))
                waiter_end(w, err);
}

void chan_close(struct chan *ch, int err)
{
        waiters_done(ch, err);
        end_close(&ch->end[0]);
        end_close(&ch->end[1]);
        chan_free_if_unused(ch);
}

static struct end *find_pair(struct stack *mine, struct stack *peer)
{
        struct end *e;

        LIST_FOREACH (e, &mine->ends, link)
                if (other_end(e)->stack == peer && (mine != peer || e == &e->chan->end[0]))
                        return e;
        return NULL;
}

/* Returns true if another user's keeper has to attach its end first. */
static bool waits_for_another(const struct end *e)
{
        const struct end *o = other_end(e);

        return o->state == END_OPENING && o->stack->user != e->stack->user;
}

/* Lets the request wait until the channel is up. */
static int chan_wait(struct client *cl, struct end *e, const struct unetd_msg *request)
{
        struct waiter *w;
        int r = waiter_new(cl, request, &w);

        assert(e->state != END_FREE);
        if (r < 0)
                return r;
        w->chan = e->chan;
        if (e->chan->remote)
                w->request.link.chan = e->slot;
        else
                w->request.chan = end_info(e);
        LIST_INSERT_HEAD(&e->chan->waiters, w, of_chan);
        if (waits_for_another(e) || e->chan->yields)
                waiter_hurries(w);
        return REPLY_LATER;
}

/* Makes a channel to a peer, or to an interface, which the stack has entered. */
static int chan_new(struct stack *mine, struct stack *peer, struct iface *iface, struct end **out)
{
        struct chan *ch = chan_alloc();
        struct stack *st[2] = {mine, peer};
        int r = ch ? 0 : -ENOMEM;

        if (ch) {
                ch->iface = iface;
                ch->serial = ++unetd.next_serial;
        } else if (iface) {
                iface_leave(iface, NULL);
        }
        for (int i = 0; i < (iface ? 1 : 2) && r == 0; i++) {
                ch->end[i].geom = unetd.cfg.geom;
                r = ch->end[i].tx = region_new(unetd.cfg.geom);
                if (r >= 0)
                        r = end_bind_new(&ch->end[i], st[i], mine->user);
        }
        if (r >= 0 && iface && iface_is_shared(iface))
                r = iface_plug(iface, &ch->end[0], &ch->port);
        if (r < 0) {
                if (ch) {
                        end_free(&ch->end[0]);
                        end_free(&ch->end[1]);
                        chan_free_if_unused(ch);
                }
                return r;
        }
        *out = &ch->end[0];
        return 0;
}

static int chan_start(struct client *cl, struct end *e, const struct unetd_msg *request)
{
        int r = chan_wait(cl, e, request);

        if (r < 0) {
                end_free(&e->chan->end[0]);
                end_free(&e->chan->end[1]);
                chan_free_if_unused(e->chan);
                return r;
        }
        r = end_attach(e->chan->end[1].stack ? &e->chan->end[1] : e);
        if (r < 0)
                chan_close(e->chan, r);
        return REPLY_LATER;
}

/* The peer's keeper has attached its end: attaches the end of the side that asked. Earlier, its
 * processes would send into a channel that may yet be refused. */
static void chan_go_on(struct chan *ch)
{
        int r = ch->end[0].state == END_OPENING ? end_attach(&ch->end[0]) : 0;
        struct waiter *w;

        LIST_FOREACH (w, &ch->waiters, of_chan) { /* for the client's own keeper */
                w->deadline = unetd.loop.now + unetd.cfg.reply_ms * NS_PER_MS;
                w->end = unetd.loop.now + unetd.cfg.slow_ms * NS_PER_MS;
        }

        if (r < 0)
                chan_close(ch, r);
}

/* Returns true if the other side is up, or has no keeper to be told. */
static bool other_up(const struct end *e)
{
        return e->chan->iface || e->chan->remote || other_end(e)->state == END_UP;
}

/* The stack keeps its transmit region; its keeper tells its processes what changed. */
void chans_share(const struct iface *f)
{
        struct chan *ch;

        LIST_FOREACH (ch, &unetd.chans, link) {
                struct end *e = &ch->end[0];
                int r = 0;

                if (ch->iface != f || ch->port || e->state == END_FREE)
                        continue;
                ch->serial = ++unetd.next_serial;
                r = iface_plug(ch->iface, e, &ch->port);
                if (r == 0 && e->state != END_CLOSING)
                        r = end_attach(e);
                if (r < 0)
                        user_log(e->stack->user, "stack %u loses its interface: %s", e->stack->id,
                                 strerror(-r));
        }
}

static struct end *only_end(const struct iface *f)
{
        struct end *only = NULL;
        struct chan *ch;

        LIST_FOREACH (ch, &unetd.chans, link) {
                if (ch->iface != f)
                        continue;
                if (only || ch->end[0].state != END_UP || (iface_is_shared(f) && !ch->port))
                        return NULL;
                only = &ch->end[0];
        }
        return only;
}

uint32_t chan_alone(const struct iface *f)
{
        const struct end *e = only_end(f);

        return e ? e->stack->id : 0;
}

/* Keeps the bells of the last two bridges, whose pages so stay locked. A process that has not heard
 * that its stack moved would take the bridge, and unetd with it, for dead
 * (sock/attach/ustack_peers.c). */
static void keep_bell(struct chan *ch)
{
        close_all(ch->bells, 1);
        ch->bells[0] = ch->bells[1];
        ch->bells[1] = fcntl(ch->port->gate->bell_fd, F_DUPFD_CLOEXEC, 3);
}

/* The bridge sends what the stack has sent before. Frames that the stack sends meanwhile are lost:
 * it may reuse them before anybody looks. */
void chan_unshare(const struct iface *f)
{
        struct end *e = only_end(f);
        int r;

        assert(e != NULL && e->chan->port != NULL);
        keep_bell(e->chan);
        gate_leave(e->chan->port);
        e->chan->port = NULL;
        e->chan->serial = ++unetd.next_serial;
        r = end_attach(e);
        if (r < 0)
                chan_close(e->chan, r);
}

static int iface_chan_open(struct client *cl, struct unetd_msg *msg, struct stack *mine)
{
        struct iface *f = iface_find(msg->chan.peer_stack);
        struct end *e;
        int r;

        if (mine->state != STACK_UP || !f)
                return -ENOENT;
        LIST_FOREACH (e, &mine->ends, link) {
                if (e->chan->iface != f)
                        continue;
                if (e->state == END_OPENING)
                        return chan_wait(cl, e, msg);
                msg->chan = end_info(e);
                return e->state == END_UP ? 0 : -ECONNRESET;
        }
        r = iface_enter(f, mine->id);
        if (r < 0)
                return r;
        if (iface_is_shared(f))
                chans_share(f);
        r = chan_new(mine, NULL, f, &e);
        return r < 0 ? r : chan_start(cl, e, msg);
}

void chan_offer_iface(struct stack *st, struct iface *f)
{
        struct end *e;
        int r;

        LIST_FOREACH (e, &st->ends, link)
                if (e->chan->iface == f)
                        return;
        r = st->state == STACK_UP ? iface_enter(f, st->id) : -ENOENT;
        if (r < 0)
                return;
        if (iface_is_shared(f))
                chans_share(f);
        if (chan_new(st, NULL, f, &e) < 0)
                return;
        r = end_attach(e);
        if (r < 0) {
                user_log(st->user, "stack %u gets no interface: %s", st->id, strerror(-r));
                chan_close(e->chan, r);
        }
}

void chans_iface_gone(const struct iface *f)
{
        struct chan *ch, *next;

        for (ch = LIST_FIRST(&unetd.chans); ch; ch = next) {
                next = LIST_NEXT(ch, link);
                if (ch->iface != f)
                        continue;
                if (ch->port)
                        gate_leave(ch->port);
                ch->port = NULL;
                chan_close(ch, -ENETDOWN);
        }
}

int chan_new_remote(struct stack *st, struct remote *r, bool asked, struct chan **out)
{
        bool full = asked && host_share_is_full(st, r->addr);
        struct chan *ch = full ? NULL : chan_alloc();
        int err;

        if (!ch) {
                free(r);
                return full ? -EDQUOT : -ENOMEM;
        }
        remote_seat(ch, r);
        ch->end[0].geom = unetd.cfg.geom;
        ch->end[0].slot = UNETD_CHANS_MAX; /* none yet: remote_gone() wipes its place in the book */
        err = ch->end[0].tx = region_new(unetd.cfg.geom);
        if (err >= 0)
                err = end_bind_new(&ch->end[0], st, st->user);
        if (err == 0)
                err = end_attach(&ch->end[0]);
        if (err < 0) {
                end_free(&ch->end[0]);
                chan_free_if_unused(ch);
                return err;
        }
        *out = ch;
        return 0;
}

int chan_open_by(struct client *cl, struct unetd_msg *msg, bool yields)
{
        struct stack *mine, *peer = stack_find(msg->chan.peer_stack);
        struct end *e;
        int r = stack_for(cl, msg->chan.stack, &mine);

        if (r < 0)
                return r;
        if (unetd_is_iface(msg->chan.peer_stack)) {
                r = iface_chan_open(cl, msg, mine);
                return r == -EDQUOT && yields ? yield_wait(cl, msg, mine, NULL) : r;
        }
        if (mine->state != STACK_UP || !peer || peer->state != STACK_UP)
                return -ENOENT;
        if (peer->from) /* who is another user goes by the kernel */
                return peer->user == cl->user ? -EAGAIN : -ETIMEDOUT;
        e = find_pair(mine, peer);
        if (!e && (user_keeper_silent(mine->user) || user_keeper_silent(peer->user)))
                return -ETIMEDOUT;
        if ((!e || waits_for_another(e)) && user_keeper_late(peer->user, cl->user))
                return -ETIMEDOUT;
        if (!e) {
                r = chan_new(mine, peer, NULL, &e);
                if (r == -EDQUOT && yields)
                        return yield_wait(cl, msg, mine, peer);
                return r < 0 ? r : chan_start(cl, e, msg);
        }
        if (e->chan->yields)
                return chan_wait(cl, e, msg);
        if (e->state == END_CLOSING || other_end(e)->state == END_CLOSING)
                return -ECONNRESET;
        if (e->state == END_OPENING || other_end(e)->state == END_OPENING)
                return chan_wait(cl, e, msg);
        msg->chan = end_info(e);
        return 0;
}

int chan_open(struct client *cl, struct wire_in *in)
{
        return chan_open_by(cl, &in->msg, true);
}

/* Notes that the stack's processes have no address space or descriptors for one more channel, which
 * may change. Returns false if that was known, or the stack has no channel at all. */
static bool has_no_room(struct stack *st, uint32_t slot)
{
        if (slot < slots_at_most(st) && st->slots_most_until > unetd.loop.now)
                return false;
        st->slots_most = slot;
        st->slots_most_until = unetd.loop.now + ROOM_KNOWN;
        return slot != 0;
}

/* Returns true if a keeper could not attach a way that the interface does not go by any more: it
 * has been told of the next one, and its answer to that counts. */
static bool is_of_an_old_way(const struct ask *a, int err)
{
        return a->type == UNETD_K_CHAN && err < 0 && a->chan->iface != NULL &&
               a->serial != a->chan->serial;
}

void chan_answered(struct ask *a, int err)
{
        struct chan *ch = a->chan;
        struct end *e;

        if (!ch || is_of_an_old_way(a, err))
                return;
        e = &ch->end[a->end];
        if (a->type == UNETD_K_CHAN_PART) {
                part_answered(ch, e, err);
        } else if (a->type == UNETD_K_CHAN_DOWN) {
                end_free(e);
                chan_is_down(ch);
        } else if (e->state == END_OPENING && err == 0) {
                e->state = END_UP;
                if (ch->remote)
                        remote_up(ch);
                if (other_up(e))
                        waiters_done(ch, 0);
                else if (e == &ch->end[1])
                        chan_go_on(ch);
        } else if (e->state == END_OPENING) {
                struct stack *st = e->stack;
                bool learnt =
                        err == -ENOSPC && !ch->iface && !ch->remote && has_no_room(st, e->slot);

                if (ch->iface)
                        user_log(st->user, "stack %u gets no interface: %s", st->id,
                                 strerror(-err));
                end_free(e);
                if (learnt)
                        yield_retry(ch, st);
                chan_close(ch, err);
        } else if (e->state == END_UP && ch->iface && err < 0) {
                user_log(e->stack->user, "stack %u loses its interface: %s", e->stack->id,
                         strerror(-err));
                chan_close(ch, err);
        }
}

bool chans_stack_goes(struct stack *st)
{
        struct end *e = LIST_FIRST(&st->ends);

        if (!e)
                return false;
        close_all(e->chan->bells, 2);
        e->chan->bells[0] = fcntl(st->fds[UNETD_FD_BELL], F_DUPFD_CLOEXEC, 3);
        e->chan->bells[1] = -1;
        end_free(e);
        chan_close(e->chan, -ECONNRESET);
        return true;
}

void chans_stack_gone(struct stack *st)
{
        yield_forget(st);
        while (chans_stack_goes(st))
                ;
}

/* ---- keepers that are replaced ---- */

void chan_tell(struct end *e)
{
        if (e->state == END_CLOSING)
                end_ask(e, UNETD_K_CHAN_DOWN);
        else if (other_end(e)->stack || e->chan->iface || e->chan->remote)
                end_attach(e);
}

struct end *end_numbered(const struct stack *st, uint32_t slot)
{
        struct end *e;

        LIST_FOREACH (e, &st->ends, link)
                if (e->slot == slot)
                        return e;
        return NULL;
}

/* Finds the channel whose other half came before and awaits this one. A keeper may take no other
 * free end, such as an interface's or that of a closing channel. */
static struct chan *find_half(const struct unetd_chan_info *info)
{
        struct chan *ch;

        LIST_FOREACH (ch, &unetd.chans, link)
                if (ch->awaits == info->stack && ch->end[0].stack->id == info->peer_stack &&
                    ch->end[0].slot == info->peer_chan && ch->end[1].slot == info->chan)
                        return ch;
        return NULL;
}

/* Restores a channel to a stack of another host. The stack's book says what is known of the far
 * end. */
static void remote_offered(struct user *u, struct wire_in *in)
{
        const struct unetd_chan_info *info = &in->msg.chan;
        struct remote *r;
        struct stack *st;
        struct chan *ch;

        if (in->n != UNETD_REMOTE_FDS || info->chan >= VLINK_CHANS ||
            stack_of(u, info->stack, &st) < 0 ||
            unet_memfd_check(in->fds[UNETD_FD_RM_TX], SHM_REGION_BYTES(info->tx_geom), true,
                             UNET_MEMFD_ANYBODY) < 0)
                return;
        ch = chan_alloc();
        if (!ch)
                return;
        if (end_bind_again(&ch->end[0], st, u, info->chan) < 0) {
                chan_free_if_unused(ch);
                return;
        }
        ch->end[0].geom = info->tx_geom;
        ch->end[0].tx = wire_in_take(in, UNETD_FD_RM_TX);
        ch->end[0].state = END_UP;
        r = remote_restore(st, info);
        if (!r) {
                chan_close(ch, -ECONNRESET);
                return;
        }
        remote_seat(ch, r);
        st->user->kept += share_end_fds(ch) - ch->end[0].kept;
        ch->end[0].kept = share_end_fds(ch);
}

/* Takes one half of a channel that an earlier unetd made. The other half may not come, if that
 * stack's keeper is gone, too: then this half stays as it is until its stack goes. */
void chan_offered(struct user *u, struct wire_in *in)
{
        const struct unetd_chan_info *info = &in->msg.chan;
        struct stack *st;
        struct chan *ch;
        struct end *e;

        if (unetd_is_remote(info->peer_stack)) {
                remote_offered(u, in);
                return;
        }
        if (in->n != UNETD_CHAN_FDS || info->chan >= UNETD_CHANS_MAX ||
            unetd_is_iface(info->peer_stack) || stack_of(u, info->stack, &st) < 0 ||
            unet_memfd_check(in->fds[UNETD_FD_TX], SHM_REGION_BYTES(info->tx_geom), true,
                             UNET_MEMFD_ANYBODY) < 0)
                return;
        ch = find_half(info);
        e = ch ? &ch->end[1] : NULL;
        if (!ch) {
                ch = chan_alloc();
                if (!ch)
                        return;
                e = &ch->end[0];
                ch->end[1].slot = info->peer_chan;
        }
        if (end_bind_again(e, st, u, info->chan) < 0) {
                chan_free_if_unused(ch);
                return;
        }
        ch->awaits = e == &ch->end[0] ? info->peer_stack : 0;
        e->geom = info->tx_geom;
        e->tx = wire_in_take(in, UNETD_FD_TX);
        e->state = END_UP;
}

int chan_back(struct user *u, struct wire_in *in)
{
        const struct unetd_chan_info info = in->msg.chan;
        struct stack *st;
        struct end *e;
        int r = stack_of(u, info.stack, &st);

        if (r < 0)
                return r;
        if (!unetd_is_remote(info.peer_stack) || info.chan >= VLINK_CHANS)
                return -EINVAL;
        e = end_numbered(st, info.chan);
        if (e)
                return 0;
        remote_offered(u, in);
        e = end_numbered(st, info.chan);
        if (!e || e->state != END_UP)
                return -ECONNRESET;
        return end_attach(e);
}
