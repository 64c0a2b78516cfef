/*
 * Channels that yield: when the numbers of a stack run out, the least recently used channel goes,
 * if no connection, datagram or frame refers to it at either end.
 *
 *      UP x2 --K_CHAN_YIELD, the stack's keeper names one--> YIELDED, PARTING
 *            --K_CHAN_PART, the other's keeper agrees------> CLOSING, FREE --> FREE x2
 *            --it refuses----------------------------------> UP x2, and the next one is asked for
 *
 * Only keepers see what is in use. The end that has yielded begins nothing new. When the other
 * keeper agrees it has received everything from there, so nothing is lost. Requests for the
 * channel, or for a number, wait meanwhile; then unetd serves them as if they had just come.
 */
#include <errno.h>

#include "unetd/daemon/chans_int.h"
#include "unetd/daemon/clients.h"
#include "unetd/daemon/stacks.h"
#include "unetd/daemon/users.h"

#define NONE_FOR  NS_PER_S /* no channel is asked for so long after all were in use */
#define TRIES_MAX 8u       /* channels asked in a row */

/* Returns the user whose waiter heads the list: his share decides. */
static const struct user *payer_of(const struct stack *st)
{
        assert(!LIST_EMPTY(&st->room));
        return LIST_FIRST(&st->room)->client->user;
}

static int ask_for_one(struct stack *st, const struct user *payer)
{
        struct unetd_msg msg = {.type = UNETD_K_CHAN_YIELD,
                                .stack = {.stack = st->id, .uid = UINT32_MAX}};
        struct ask *a;

        if (slot_share_is_full(st, payer))
                msg.stack.uid = payer->uid;
        a = ask_send(st->user, &msg, NULL, 0);
        if (!a)
                return -ENOMEM;
        a->stack = st->id;
        st->yielding = true;
        st->yield_since = unetd.loop.now;
        return 0;
}

static void nobody_yields(struct stack *st)
{
        struct waiter *w;

        st->yielding = false;
        st->yield_again = unetd.loop.now + NONE_FOR;
        while ((w = LIST_FIRST(&st->room)))
                waiter_end(w, -EDQUOT);
}

static void stays(struct end *e)
{
        struct unetd_msg msg = {.type = UNETD_K_CHAN_STAY,
                                .stack = {.stack = e->stack->id, .slot = e->slot}};

        assert(e->stack != NULL);
        if (e->state == END_YIELDED)
                e->state = END_UP;
        conn_send(&e->stack->user->keeper, &msg, NULL, 0);
}

static void next_one(struct stack *st)
{
        if (LIST_EMPTY(&st->room) || ++st->yield_tries >= TRIES_MAX ||
            ask_for_one(st, payer_of(st)) < 0)
                nobody_yields(st);
}

static bool may_yield(const struct end *e, const struct user *payer)
{
        const struct end *o = other_end(e);

        return e->state == END_UP && o->state == END_UP && !e->chan->iface && !e->chan->remote &&
               !end_is_untold(o) && (e->payer == payer || !slot_share_is_full(e->stack, payer)) &&
               !user_keeper_late(o->stack->user, e->stack->user) &&
               !user_parts_late(o->stack->user, e->stack->user);
}

void chan_yielded(struct user *u, const struct ask *a, const struct unetd_msg *msg)
{
        struct end *e, *o;
        struct stack *st;

        if (stack_of(u, a->stack, &st) < 0)
                return;
        e = msg->err == 0 ? end_numbered(st, msg->stack.slot) : NULL;

        if (!st->yielding || !e || LIST_EMPTY(&st->room)) {
                if (e)
                        stays(e);
                nobody_yields(st);
                return;
        }
        o = other_end(e);
        if (!may_yield(e, payer_of(st)) || end_ask(o, UNETD_K_CHAN_PART) < 0) {
                stays(e);
                next_one(st);
                return;
        }
        e->state = END_YIELDED;
        o->state = END_PARTING;
        e->chan->yields = st;
}

static void serve_again(struct waiter *w, bool yields)
{
        struct client *cl = w->client;
        struct unetd_msg msg = w->request;
        int r;

        assert(w->room != NULL && w->chan == NULL);
        waiter_drop(w);
        r = chan_open_by(cl, &msg, yields);
        if (r != REPLY_LATER)
                conn_reply(&cl->conn, &msg, r);
}

/* The channel stays: answers the requests that waited for it. */
static void is_had(struct chan *ch)
{
        struct waiter *w;

        ch->yields = NULL;
        while ((w = LIST_FIRST(&ch->waiters)))
                waiter_end(w, 0);
}

static void goes_on(struct chan *ch, struct end *e)
{
        struct stack *st = ch->yields;

        stays(e);
        is_had(ch);
        if (st)
                next_one(st);
}

/* Returns true if the stack's keeper is late: new requests then do not wait. */
static bool takes_long(const struct stack *st)
{
        return st->yielding && unetd.loop.now - st->yield_since >= ASK_OTHERS;
}

/* Gives up a channel whose other keeper does not answer in time. */
static void waited_too_long(struct stack *st)
{
        struct end *e;

        if (!takes_long(st))
                return;
        LIST_FOREACH (e, &st->ends, link) {
                if (e->chan->yields == st && e->state == END_YIELDED) {
                        goes_on(e->chan, e);
                        return;
                }
        }
}

int yield_wait(struct client *cl, const struct unetd_msg *msg, struct stack *mine,
               struct stack *peer)
{
        struct stack *st = !slot_is_free(mine, cl->user) ? mine : peer;
        struct waiter *w;
        int r;

        if (st)
                waited_too_long(st);
        if (!st || takes_long(st) || slot_is_free(st, cl->user) ||
            st->yield_again > unetd.loop.now || user_keeper_late(st->user, cl->user) ||
            user_keeper_silent(st->user))
                return -EDQUOT;
        r = waiter_new(cl, msg, &w);
        if (r < 0)
                return r;
        w->room = st;
        LIST_INSERT_HEAD(&st->room, w, of_room);
        waiter_hurries(w);
        if (!st->yielding) {
                st->yield_tries = 0;
                r = ask_for_one(st, cl->user);
        }
        if (r < 0)
                waiter_end(w, r);
        return REPLY_LATER;
}

/* Serves the waiters one after another, from a list of their own: one that is served may come to
 * wait again, in the stack's list. */
static void serve_all(struct chan *ch, struct stack *st, bool yields)
{
        LIST_HEAD(, waiter) all = LIST_HEAD_INITIALIZER(all);
        struct waiter *w;

        while ((w = LIST_FIRST(&ch->waiters))) {
                LIST_REMOVE(w, of_chan);
                w->chan = NULL;
                w->room = st;
                LIST_INSERT_HEAD(&all, w, of_room);
        }
        while (!yields && (w = LIST_FIRST(&st->room))) {
                LIST_REMOVE(w, of_room);
                LIST_INSERT_HEAD(&all, w, of_room);
        }
        if (!yields) {
                ch->yields = NULL;
                chan_free_if_unused(ch);
        }
        while ((w = LIST_FIRST(&all)))
                serve_again(w, yields);
}

void yield_retry(struct chan *ch, struct stack *st)
{
        serve_all(ch, st, true);
}

static void yield_done(struct chan *ch)
{
        assert(ch->yields != NULL);
        ch->yields->yielding = false;
        serve_all(ch, ch->yields, false);
}

void chan_is_down(struct chan *ch)
{
        if (ch->yields && ch->end[0].state == END_FREE && ch->end[1].state == END_FREE)
                yield_done(ch);
        else
                chan_free_if_unused(ch);
}

void part_answered(struct chan *ch, struct end *o, int err)
{
        struct end *e = other_end(o);

        if (o->state != END_PARTING)
                return;
        if (err == 0) {
                end_free(o);
                end_close(e);
                if (e->state == END_FREE)
                        chan_is_down(ch);
                return;
        }
        o->state = END_UP;
        if (e->state == END_YIELDED)
                goes_on(ch, e);
}

void yield_replay(struct stack *st)
{
        struct end *e;

        LIST_FOREACH (e, &st->ends, link) {
                struct end *o = other_end(e);

                if (e->state == END_YIELDED) {
                        e->state = END_UP;
                        is_had(e->chan);
                } else if (e->state == END_PARTING) {
                        e->state = END_UP;
                        if (o->state == END_YIELDED)
                                goes_on(e->chan, o);
                }
        }
        if (st->yielding)
                nobody_yields(st);
}

void yield_forget(struct stack *st)
{
        struct waiter *w;
        struct end *e;

        st->yielding = false;
        LIST_FOREACH (e, &st->ends, link)
                if (e->chan->yields == st)
                        e->chan->yields = NULL;
        while ((w = LIST_FIRST(&st->room)))
                waiter_end(w, -ENOENT);
}
