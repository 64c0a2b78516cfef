/*
 * The keeper and unetd: what it says, and what is done when it dies (keeper.c has the story).
 */
#include "unetd/keeper/keeper.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/memfd.h"

#define LOOK_FIRST (10 * NS_PER_MS)
#define LOOK_LAST  (250 * NS_PER_MS) /* less than a new unetd waits for us (adopt_ms) */

static int take_stack(struct wire_in *in)
{
        struct kstack *st = kstack_find(in->msg.stack.stack);
        bool with_proc = in->n == UNETD_STACK_FDS + 1;
        int r = 0;

        if (in->n != UNETD_STACK_FDS && !with_proc)
                return -EBADMSG;
        if (!st)
                r = kstack_new(in, &st);
        else if (!unet_memfd_same(st->fds[UNETD_FD_STATE], in->fds[UNETD_FD_STATE]))
                r = -EEXIST; /* its number is this one's, of an earlier unetd */
        if (r == 0)
                st->awaited = in->msg.stack.procs;
        if (r == 0 && with_proc)
                r = kproc_add(st, in->msg.stack.slot, in->msg.stack.pid,
                              wire_in_take(in, UNETD_STACK_FDS));
        if (r == 0) {
                kchans_tell_taken(st);
                kstack_due(st);
        }
        return r;
}

static int take_proc(struct wire_in *in)
{
        struct kstack *st = kstack_find(in->msg.stack.stack);

        if (in->n != 1)
                return -EBADMSG;
        if (!st || st->orphan)
                return -ENOENT;
        st->awaited -= st->awaited != 0;
        return kproc_add(st, in->msg.stack.slot, in->msg.stack.pid, wire_in_take(in, 0));
}

static int drop_proc(const struct wire_in *in)
{
        struct kstack *st = kstack_find(in->msg.stack.stack);
        struct kproc *p = st ? kproc_find(st, in->msg.stack.slot) : NULL;

        if (!p || p->pid != in->msg.stack.pid)
                return -ENOENT;
        kproc_release(p);
        p->state = keeper.ops->proc_died(st->view, p->slot) == -EAGAIN ? PROC_DYING : PROC_DONE;
        p->told = true;
        kstack_due(st);
        return 0;
}

/* What is answered: 0 or a negative errno, or above 0 when the answer comes later. */
static int serve(struct wire_in *in)
{
        switch ((enum unetd_type)in->msg.type) {
        case UNETD_K_STACK:
                return take_stack(in);
        case UNETD_K_PROC:
                return take_proc(in);
        case UNETD_K_PROC_DEL:
                return drop_proc(in);
        case UNETD_K_FLIGHT:
                return kflight_take(in);
        case UNETD_K_SETTLE:
                return ksettle_take(in);
        case UNETD_K_CHAN:
                return kchan_take(in);
        case UNETD_K_CHAN_DOWN:
                return kchan_drop(in);
        case UNETD_K_CHAN_YIELD:
                return kchan_yield(in);
        case UNETD_K_CHAN_PART:
                return kchan_part(in);
        default:
                return -EBADMSG;
        }
}

void keeper_daemon_message(struct conn *c, struct wire_in *in)
{
        int r;

        switch ((enum unetd_type)in->msg.type) {
        case UNETD_K_DIRECTORY:
                if (in->n == 1)
                        keeper.ops->directory(wire_in_take(in, 0));
                keeper.system = in->msg.hello.flags & UNETD_SHARED;
                return;
        case UNETD_K_CLIENT:
                kclient_take(in);
                return;
        case UNETD_K_FLIGHTS:
                kflights_take(in);
                return;
        case UNETD_K_LEFT:
                kproc_left(in->msg.stack.pid);
                return;
        case UNETD_K_RLINK:
                klink_take(in);
                return;
        case UNETD_K_CHAN_STAY:
                kchan_stay(in);
                return;
        default:
                r = serve(in);
                if (r <= 0)
                        conn_reply(c, &in->msg, r);
        }
}

/* ---- when unetd dies ---- */

void keeper_daemon_ended(struct conn *c)
{
        keeper.daemon_died = true;
}

/* What it has of RDMA devices, and from which ports it sends: before its channels, which need the
 * one, and before other hosts are told of the other. Who drives is said again: it may have changed
 * while there was no unetd. */
static void offer_links_and_ports(struct kstack *st)
{
        struct unetd_msg msg;
        uint32_t at = 0;
        struct klink *l;

        LIST_FOREACH (l, &st->links, link) {
                msg = (struct unetd_msg){.type = UNETD_K_RLINK,
                                         .link = {.stack = st->id, .iface = l->iface}};
                conn_send(&keeper.daemon, &msg, l->fds, UNETD_LINK_FDS);
        }
        while (keeper.ops->port_next(st->view, &at, &msg)) {
                if (msg.type == UNETD_PORT_LEASE)
                        msg.lease.stack = st->id;
                else
                        msg.port.stack = st->id;
                conn_send(&keeper.daemon, &msg, NULL, 0);
        }
        keeper.ops->links_again(st->view);
        kstack_due(st);
}

static void offer_stack(struct kstack *st)
{
        struct unetd_msg msg = {.type = UNETD_K_STACK, .stack = {.stack = st->id, .pid = st->pid}};
        int fds[UNETD_STACK_FDS], reader = unet_memfd_reader(st->fds[UNETD_FD_STATE]);
        struct kproc *p;
        struct kchan *ch;

        memcpy(fds, st->fds, sizeof fds);
        if (reader >= 0)
                fds[UNETD_FD_STATE] = reader;
        conn_send(&keeper.daemon, &msg, fds, UNETD_STACK_FDS);
        if (reader >= 0)
                close(reader);
        kchans_tell_taken(st);
        LIST_FOREACH (p, &st->procs, link) {
                if (p->state != PROC_LIVE)
                        continue;
                msg = (struct unetd_msg){
                        .type = UNETD_K_PROC,
                        .stack = {.stack = st->id, .slot = p->slot, .pid = p->pid}};
                conn_send(&keeper.daemon, &msg, &p->pidfd.fd, 1);
        }
        offer_links_and_ports(st);
        LIST_FOREACH (ch, &st->chans, link) {
                if (ch->state != CHAN_UP || unetd_is_iface(ch->info.peer_stack))
                        continue;
                msg = (struct unetd_msg){.type = UNETD_K_CHAN, .chan = ch->info};
                conn_send(&keeper.daemon, &msg, ch->fds, unetd_chan_nfds(&ch->info));
        }
        if (st->orphan)
                keeper_tell(UNETD_K_ORPHAN, st->id, 0);
}

/* The program that took the interfaces' packets, or their bridge, has gone with its unetd: whether
 * there is another one or not, their connections end. And nobody waits for answers any more. */
static void drop_ifaces(struct kstack *st)
{
        struct kchan *ch;

        kchans_stay(st);
        LIST_FOREACH (ch, &st->chans, link) {
                kchan_forget_request(ch);
                if (!unetd_is_iface(ch->info.peer_stack))
                        continue;
                ch->state = CHAN_CLOSING;
                kstack_due(st);
        }
}

/* Connects to another unetd. */
static int find_daemon(void)
{
        struct unetd_client c = {.pid = 0};
        int fd, r = unetd_open(&c, keeper.system ? UNETD_SYSTEM : 0);

        if (r < 0)
                return r;
        r = unetd_offer_keeper(&c, &fd);
        unetd_close(&c);
        if (r < 0 && r != -EEXIST)
                return r;
        keeper.leaving = r == -EEXIST;
        return conn_init(&keeper.daemon, &keeper.loop, fd, KEEPER_DAEMON_QUEUE);
}

/* Nobody is to come to us any more: clients find the other keeper. */
static void live_on_alone(void)
{
        struct kclient *cl;

        while ((cl = LIST_FIRST(&keeper.clients)))
                conn_fail(&cl->conn);
}

/* A system-wide one is not ours to start, and comes back. A private one that was killed may be
 * found dying at first. */
static void look_later(nstime gap)
{
        keeper.look_gap = gap;
        keeper.look_at = keeper.loop.now + gap;
}

static void offer_all(void)
{
        struct kstack *st;

        kflights_offer();
        LIST_FOREACH (st, &keeper.stacks, link)
                offer_stack(st);
        keeper_tell(UNETD_K_OFFERED, 0, 0);
}

void keeper_daemon_lost(void)
{
        struct kstack *st;

        keeper.daemon_died = false;
        if (LIST_EMPTY(&keeper.stacks) || keeper.leaving) {
                keeper.loop.stop = true;
                return;
        }
        LIST_FOREACH (st, &keeper.stacks, link) {
                st->awaited = 0;
                drop_ifaces(st);
        }
        if (find_daemon() == 0)
                offer_all();
        else
                look_later(LOOK_FIRST);
}

nstime keeper_daemon_look(void)
{
        if (keeper.loop.now < keeper.look_at)
                return keeper.look_at;
        keeper.look_at = NSTIME_NEVER;
        if (find_daemon() == 0)
                offer_all();
        else if (keeper.system || keeper.look_gap < LOOK_LAST)
                look_later(MIN(keeper.look_gap * 2, LOOK_LAST));
        else
                live_on_alone();
        return keeper.look_at;
}
