/*
 * Channels: two transmit regions, which chans.c makes and the keepers of both ends attach.
 *
 *   none --chan_open--> OPENING x2 --both keepers attached--> UP x2
 *   a stack goes: its end FREE, the other CLOSING until its keeper has taken it down, then FREE
 *   both FREE: gone
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/memfd.h"
#include "unet/shm/shm_ring.h"
#include "unetd/daemon/chans_int.h"
#include "unetd/daemon/clients.h"
#include "unetd/daemon/discard.h"
#include "unetd/daemon/ifaces.h"
#include "unetd/daemon/links.h"
#include "unetd/daemon/replay.h"
#include "unetd/daemon/shares.h"
#include "unetd/daemon/stacks.h"
#include "unetd/daemon/users.h"

struct end *other_end(const struct end *e)
{
        assert(e == &e->chan->end[0] || e == &e->chan->end[1]);
        return e == &e->chan->end[0] ? &e->chan->end[1] : &e->chan->end[0];
}

struct end *end_numbered(const struct stack *st, uint32_t slot)
{
        struct end *e;

        LIST_FOREACH (e, &st->ends, link)
                if (e->slot == slot)
                        return e;
        return NULL;
}

/* ---- making one ---- */

static int region_new(struct frame_geom g)
{
        return unet_memfd_make_sealed("unet-channel", SHM_REGION_BYTES(g));
}

struct chan *chan_alloc(void)
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

void chan_free_if_unused(struct chan *ch)
{
        if (ch->end[0].state != END_FREE || ch->end[1].state != END_FREE)
                return;
        asks_forget_chan(ch);
        if (ch->iface)
                iface_leave(ch->iface, ch->port);
        if (ch->remote)
                remote_gone(ch);
        fds_close(&ch->end[0].tx, 1);
        fds_close(&ch->end[1].tx, 1);
        fds_close(ch->bells, 2);
        LIST_REMOVE(ch, link);
        assert(unetd.nchans != 0);
        assert(LIST_EMPTY(&ch->waiters));
        unetd.nchans--;
        free(ch);
}

int end_bind(struct end *e, struct stack *st, struct user *payer, uint32_t slot)
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
        slot_free(e->stack, e->slot);
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

/* Frees a channel of which no keeper knows. */
static void chan_drop(struct chan *ch)
{
        end_free(&ch->end[0]);
        end_free(&ch->end[1]);
        chan_free_if_unused(ch);
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

int chan_wait(struct client *cl, struct end *e, const struct unetd_msg *request)
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

int chan_new(struct stack *mine, struct stack *peer, struct iface *iface, struct end **out)
{
        struct chan *ch = chan_alloc();
        struct stack *st[2] = {mine, peer};
        int r = 0;

        if (!ch) {
                if (iface)
                        iface_leave(iface, NULL);
                return -ENOMEM;
        }
        ch->iface = iface;
        ch->serial = ++unetd.next_serial;
        for (int i = 0; i < (iface ? 1 : 2) && r == 0; i++) {
                ch->end[i].geom = unetd.cfg.geom;
                r = ch->end[i].tx = region_new(unetd.cfg.geom);
                if (r >= 0)
                        r = end_bind_new(&ch->end[i], st[i], mine->user);
        }
        if (r >= 0 && iface && iface_is_shared(iface))
                r = iface_plug(iface, &ch->end[0], &ch->port);
        if (r < 0) {
                chan_drop(ch);
                return r;
        }
        *out = &ch->end[0];
        return 0;
}

int chan_start(struct client *cl, struct end *e, const struct unetd_msg *request)
{
        int r = chan_wait(cl, e, request);

        if (r < 0) {
                chan_drop(e->chan);
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

int chan_new_remote(struct stack *st, struct remote *r, struct chan **out)
{
        int err = r->proven ? 0 : slot_host_may_take(st, r->addr);
        struct chan *ch = err == 0 ? chan_alloc() : NULL;

        if (!ch) {
                free(r);
                return err != 0 ? err : -ENOMEM;
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
                chan_drop(ch);
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
                r = chan_open_iface(cl, msg, mine);
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
                        err == -ENOSPC && !ch->iface && !ch->remote && slot_no_room(st, e->slot);

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
        fds_close(e->chan->bells, 2);
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
