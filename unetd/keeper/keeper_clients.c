/*
 * What processes ask of the keeper: the descriptors of stacks and of channels, which it holds for
 * all.
 */
#include "unetd/keeper/keeper.h"

#include <errno.h>
#include <stdlib.h>

static struct kstack *find_for(const struct unetd_msg *msg)
{
        struct kstack *st;

        if (msg->stack.stack != 0)
                return kstack_find(msg->stack.stack);
        LIST_FOREACH (st, &keeper.stacks, link)
                if (keeper.ops->cookie_owner(st->view, msg->stack.cookie))
                        return st;
        return NULL;
}

bool keeper_may_be_handed_more(void)
{
        return keeper.loop.now - keeper.began < keeper.cfg.adopt_ms * NS_PER_MS;
}

static int stack_get(struct conn *c, struct unetd_msg *msg)
{
        struct kstack *st = find_for(msg);

        if (!st)
                return msg->stack.stack == 0 && keeper_may_be_handed_more() ? -EAGAIN : -ENOENT;
        msg->err = 0;
        msg->stack.stack = st->id;
        conn_send(c, msg, st->fds, UNETD_STACK_FDS);
        return 1;
}

static int chan_get(struct conn *c, struct unetd_msg *msg)
{
        struct kstack *st = kstack_find(msg->chan.stack);
        struct kchan *ch = st ? kchan_find(st, msg->chan.chan) : NULL;

        if (!ch || ch->state == CHAN_ATTACHING)
                return -ENOENT;
        msg->err = 0;
        msg->chan = ch->info;
        conn_send(c, msg, ch->fds, ch->nfds);
        return 1;
}

static void client_message(struct conn *c, struct wire_in *in)
{
        int r = -EBADMSG;

        if (in->n == 0 && in->msg.type == UNETD_STACK_GET)
                r = stack_get(c, &in->msg);
        else if (in->n == 0 && in->msg.type == UNETD_CHAN_GET)
                r = chan_get(c, &in->msg);
        if (r <= 0)
                conn_reply(c, &in->msg, r);
}

static void client_ended(struct conn *c)
{
        struct kclient *cl = (struct kclient *)c;

        LIST_REMOVE(cl, link);
        LIST_INSERT_HEAD(&keeper.dead, cl, link);
        assert(keeper.nclients != 0);
        keeper.nclients--;
}

void kclient_take(struct wire_in *in)
{
        struct kclient *cl = NULL;

        if (in->n == 1 && keeper.nclients < keeper.cfg.per_uid.clients)
                cl = calloc(1, sizeof *cl);
        if (!cl)
                return; /* its socket is closed: the client sees the end */
        cl->conn.message = client_message;
        cl->conn.ended = client_ended;
        if (conn_init(&cl->conn, &keeper.loop, wire_in_take(in, 0), keeper.cfg.queue_max) < 0) {
                free(cl);
                return;
        }
        LIST_INSERT_HEAD(&keeper.clients, cl, link);
        keeper.nclients++;
}

void kclients_bury(void)
{
        struct kclient *cl;

        while ((cl = LIST_FIRST(&keeper.dead))) {
                LIST_REMOVE(cl, link);
                free(cl);
        }
}
