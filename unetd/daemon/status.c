/* `unet status`, an item a request: kind and index say where the last item was. Items may come and
 * go between two requests. The walk then misses or repeats an item, and still ends, because the
 * index only grows. */
#include <errno.h>
#include <unistd.h>

#include "unetd/daemon/daemon.h"
#include "unetd/daemon/emul.h"
#include "unetd/daemon/ifaces.h"
#include "unetd/daemon/links.h"
#include "unetd/daemon/status.h"

struct walk {
        const struct client *cl;
        uint32_t skip; /* items of the kind that are still passed over */
        struct unetd_status_item *item;
};

static bool visible(const struct walk *w, const struct user *u)
{
        return w->cl->user == u || w->cl->user->uid == 0;
}

/* Returns true if this item is the one. */
static bool here(struct walk *w)
{
        return w->skip-- == 0;
}

static bool put_daemon(struct walk *w)
{
        if (!here(w))
                return false;
        w->item->uid = unetd.uid;
        w->item->pid = getpid();
        w->item->flags = unetd.cfg.shared ? UNETD_SHARED : 0;
        w->item->clients = unetd.nclients;
        w->item->stacks = unetd.nstacks;
        w->item->chans = unetd.nchans;
        w->item->listeners = unetd.nlisteners;
        return true;
}

static bool put_keeper(struct walk *w)
{
        struct user *u;

        LIST_FOREACH (u, &unetd.users, link) {
                if (u->keeper_state == KEEPER_RUNS && visible(w, u) && here(w)) {
                        w->item->uid = u->uid;
                        w->item->pid = u->keeper_pid;
                        return true;
                }
        }
        return false;
}

static bool put_port(struct walk *w, const struct stack *st, const struct listener *l)
{
        if (!here(w))
                return false;
        w->item->uid = st->user->uid;
        w->item->stack = st->id;
        w->item->proto = l->proto & (uint8_t)~DIR_HELD;
        w->item->port = l->port;
        w->item->addr = l->addr;
        return true;
}

static bool put_lease(struct walk *w, const struct stack *st, const struct lease *l)
{
        if (!here(w))
                return false;
        w->item->uid = st->user->uid;
        w->item->stack = st->id;
        w->item->port = l->first;
        w->item->count = l->count;
        return true;
}

/* Shows a channel once, with its first end that this client may see. */
static bool put_chan(struct walk *w, const struct stack *st, const struct end *e)
{
        const struct end *o = e == &e->chan->end[0] ? &e->chan->end[1] : &e->chan->end[0];

        if ((e == &e->chan->end[1] && o->stack && visible(w, o->stack->user)) || !here(w))
                return false;
        w->item->uid = st->user->uid;
        w->item->stack = st->id;
        w->item->chan = e->slot;
        w->item->peer_stack = o->stack ? o->stack->id : 0;
        w->item->peer_uid = o->stack ? o->stack->user->uid : 0;
        w->item->peer_chan = o->slot;
        return true;
}

/* Shows a stack's place at the bridge of a shared interface. */
static bool put_gate(struct walk *w, const struct stack *st, const struct end *e)
{
        if (!e->chan->port || !here(w))
                return false;
        w->item->uid = st->user->uid;
        w->item->pid = st->pid;
        w->item->stack = st->id;
        w->item->emul = iface_counts(e->chan->port);
        return true;
}

static bool put_stack(struct walk *w, const struct stack *st)
{
        const struct listener *l;
        const struct lease *ls;
        const struct end *e;

        switch ((enum unetd_status_kind)w->item->kind) {
        case UNETD_S_STACK:
                if (!here(w))
                        return false;
                w->item->uid = st->user->uid;
                w->item->pid = st->pid;
                w->item->stack = st->id;
                w->item->flags = st->state == STACK_ORPHAN ? UNETD_ORPHAN : 0;
                return true;
        case UNETD_S_CHAN:
                LIST_FOREACH (e, &st->ends, link)
                        if (put_chan(w, st, e))
                                return true;
                return false;
        case UNETD_S_LISTENER:
                LIST_FOREACH (l, &st->listeners, link)
                        if (!(l->proto & DIR_HELD) && put_port(w, st, l))
                                return true;
                return false;
        case UNETD_S_HOLD:
                LIST_FOREACH (l, &st->holds, link)
                        if (put_port(w, st, l))
                                return true;
                LIST_FOREACH (l, &st->listeners, link)
                        if (l->proto & DIR_HELD && put_port(w, st, l))
                                return true;
                return false;
        case UNETD_S_LEASE:
                LIST_FOREACH (ls, &st->leases, link)
                        if (put_lease(w, st, ls))
                                return true;
                return false;
        case UNETD_S_LINK:
                return link_status(st, &w->skip, w->item);
        case UNETD_S_REMOTE:
                LIST_FOREACH (e, &st->ends, link)
                        if (e->chan->remote && put_chan(w, st, e)) {
                                remote_status(e->chan, w->item);
                                return true;
                        }
                return false;
        case UNETD_S_GATE:
                LIST_FOREACH (e, &st->ends, link)
                        if (put_gate(w, st, e))
                                return true;
                return false;
        case UNETD_S_SOCKET:
                return iface_sockets(st, &w->skip, w->item);
        default:
                return false;
        }
}

static bool put(struct walk *w)
{
        struct stack *st;

        if (w->item->kind == UNETD_S_DAEMON)
                return put_daemon(w);
        if (w->item->kind == UNETD_S_KEEPER)
                return put_keeper(w);
        if (w->item->kind == UNETD_S_EMUL)
                return emul_status(w->cl, w->skip, w->item);
        for (unsigned b = 0; b < STACK_BUCKETS; b++)
                LIST_FOREACH (st, &unetd.stacks[b], link)
                        if (visible(w, st->user) && put_stack(w, st))
                                return true;
        return false;
}

int status_next(struct client *cl, struct unetd_msg *msg)
{
        uint32_t index = msg->status.index;

        for (uint32_t kind = msg->status.kind; kind < UNETD_S_KINDS; kind++, index = 0) {
                struct walk w = {.cl = cl, .skip = index, .item = &msg->status};

                msg->status = (struct unetd_status_item){.kind = kind, .index = index + 1};
                if (put(&w))
                        return 0;
        }
        return -ENODATA;
}
