/* Channels to interfaces. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "unetd/bridge/gate.h"
#include "unetd/daemon/chans_int.h"
#include "unetd/daemon/ifaces.h"
#include "unetd/daemon/users.h"

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
        fds_close(ch->bells, 1);
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

int chan_open_iface(struct client *cl, struct unetd_msg *msg, struct stack *mine)
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
