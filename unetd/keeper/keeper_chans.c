/*
 * The keeper's channels: it holds their descriptors, puts them into the state, and answers unetd
 * when that has happened, which a stack whose lock is held may delay.
 */
#include "unetd/keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

static void close_fds(struct kchan *ch)
{
        if (ch->xsk.fd >= 0)
                loop_del(&keeper.loop, &ch->xsk);
        for (unsigned i = 0; i < ch->nfds; i++)
                close(ch->fds[i]);
}

void kchan_free(struct kchan *ch)
{
        assert(ch->request.type == 0); /* whoever asked has been answered */
        close_fds(ch);
        LIST_REMOVE(ch, link);
        free(ch);
}

/* Packets wait at an interface; until the stack rests again it is looked at by the clock. */
static void packets_came(struct loop_source *s, uint32_t events)
{
        struct kchan *ch = (struct kchan *)s;

        loop_mod(&keeper.loop, s, 0);
        kstack_due(ch->stack);
}

static void chan_watch(struct kchan *ch)
{
        if (!unetd_chan_is_own(&ch->info))
                return;
        ch->xsk.fd = ch->fds[UNETD_FD_IF_XSK];
        if (loop_add(&keeper.loop, &ch->xsk, 0) < 0)
                ch->xsk.fd = -1;
}

void kchan_forget_request(struct kchan *ch)
{
        ch->request.type = 0;
}

static void answer(struct kchan *ch, int err)
{
        if (ch->request.type != 0)
                conn_reply(&keeper.daemon, &ch->request, err);
        kchan_forget_request(ch);
}

/* Numbers in use that unetd does not know, nor is offered. */
void kchans_tell_taken(struct kstack *st)
{
        uint64_t known[UNETD_CHANS_MAX / 64] = {0};
        struct kchan *ch;

        LIST_FOREACH (ch, &st->chans, link) {
                if (ch->state != CHAN_UP)
                        keeper_tell(UNETD_K_CHAN_TAKEN, st->id, ch->info.chan);
                if (ch->info.chan < UNETD_CHANS_MAX)
                        known[ch->info.chan / 64] |= (uint64_t)1 << (ch->info.chan % 64);
        }
        for (uint32_t slot = 0, n = keeper.ops->chans(st->view); slot < n; slot++)
                if (!(known[slot / 64] >> (slot % 64) & 1) && keeper.ops->has_chan(st->view, slot))
                        keeper_tell(UNETD_K_CHAN_TAKEN, st->id, slot);
}

/* The state of its peer, when that is a stack of the user's own with memory to send from; 0: it is
 * not, or has not come. It is needed as long as the channel is here. All stacks of the user are
 * this keeper's. */
static int peer_state(struct kchan *ch)
{
        const struct kstack *peer = kstack_find(ch->info.peer_stack);
        int fd;

        if (unetd_chan_nfds(&ch->info) != UNETD_FD_PEER_STATE || !peer ||
            !keeper.ops->has_memory(peer->view))
                return 0;
        if (ch->nfds > UNETD_FD_PEER_STATE)
                return ch->fds[UNETD_FD_PEER_STATE];
        fd = fcntl(peer->fds[UNETD_FD_STATE], F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
                return 0;
        ch->fds[ch->nfds++] = fd;
        return fd;
}

static void chan_attach(struct kstack *st, struct kchan *ch)
{
        struct unetd_chan view = unetd_chan_of(&ch->info, ch->fds);
        int r;

        view.state = peer_state(ch);
        r = keeper.ops->chan_attach(st->view, ch->info.chan, &view);
        assert(ch->state == CHAN_ATTACHING && ch->stack == st);
        if (r == -EAGAIN)
                return;
        ch->state = CHAN_UP;
        answer(ch, r);
        if (r < 0)
                kchan_free(ch);
        else
                chan_watch(ch);
}

static void chan_down(struct kstack *st, struct kchan *ch)
{
        int r = keeper.ops->chan_down(st->view, ch->info.chan);

        assert(ch->state == CHAN_CLOSING && ch->stack == st);
        if (r == -EAGAIN)
                return;
        if (ch->request.type == 0)
                keeper_tell(UNETD_K_CHAN_FREE, st->id, ch->info.chan);
        answer(ch, 0);
        kchan_free(ch);
}

static void chan_part(struct kstack *st, struct kchan *ch)
{
        int r = keeper.ops->chan_part(st->view, ch->info.chan);

        assert(ch->state == CHAN_PARTING && ch->stack == st);
        if (r == -EAGAIN)
                return;
        ch->state = CHAN_UP;
        answer(ch, r);
        if (r == 0)
                kchan_free(ch);
}

static bool may_yield(const struct kchan *ch, uint32_t uid)
{
        return ch->state == CHAN_UP && !ch->yields && !unetd_is_iface(ch->info.peer_stack) &&
               !unetd_is_remote(ch->info.peer_stack) && ch->info.chan < UNETD_CHANS_MAX &&
               (uid == UINT32_MAX || ch->info.peer_uid == uid);
}

static void yield_one(struct kstack *st)
{
        uint64_t may[UNETD_CHANS_MAX / 64] = {0};
        struct kchan *ch;
        int r;

        assert(st->yield.type != 0);
        LIST_FOREACH (ch, &st->chans, link)
                if (may_yield(ch, st->yield.stack.uid))
                        may[ch->info.chan / 64] |= (uint64_t)1 << (ch->info.chan % 64);
        r = keeper.ops->chan_yield(st->view, may);
        if (r == -EAGAIN)
                return;
        if (r >= 0 && (ch = kchan_find(st, (uint32_t)r)) != NULL) {
                ch->yields = true;
                st->yield.stack.slot = (uint32_t)r;
        }
        conn_reply(&keeper.daemon, &st->yield, MIN(r, 0));
        st->yield.type = 0;
}

void kchans_work(struct kstack *st)
{
        struct kchan *ch = LIST_FIRST(&st->chans), *next;

        for (; ch; ch = next) {
                next = LIST_NEXT(ch, link);
                if (ch->state == CHAN_ATTACHING)
                        chan_attach(st, ch);
                else if (ch->state == CHAN_PARTING)
                        chan_part(st, ch);
                else if (ch->state == CHAN_CLOSING)
                        chan_down(st, ch);
        }
        if (st->yield.type != 0)
                yield_one(st);
}

void kchans_watch(const struct kstack *st)
{
        struct kchan *ch;

        LIST_FOREACH (ch, &st->chans, link)
                if (ch->xsk.fd >= 0)
                        loop_mod(&keeper.loop, &ch->xsk, EPOLLIN);
}

bool kchans_pending(const struct kstack *st)
{
        struct kchan *ch;

        LIST_FOREACH (ch, &st->chans, link)
                if (ch->state != CHAN_UP)
                        return true;
        return st->yield.type != 0;
}

/* An interface goes by something else from now on. */
static bool moves(const struct kchan *ch, const struct unetd_chan_info *info)
{
        return unetd_is_iface(info->peer_stack) && ch->info.iface.serial != info->iface.serial;
}

/* Answered by chan_attach(), now or at a later tick. */
int kchan_take(struct wire_in *in)
{
        struct kstack *st = kstack_find(in->msg.chan.stack);
        struct kchan *ch = st ? kchan_find(st, in->msg.chan.chan) : NULL;
        int r;

        if (in->n != unetd_chan_nfds(&in->msg.chan))
                return -EBADMSG;
        if (!st)
                return -ENOENT;
        if (ch && ch->state == CHAN_CLOSING)
                return -EBUSY;
        if (ch && (ch->info.peer_stack != in->msg.chan.peer_stack || !moves(ch, &in->msg.chan)))
                return ch->info.peer_stack == in->msg.chan.peer_stack ? 0 : -EEXIST;
        r = unetd_chan_check(&in->msg.chan, in->fds);
        if (r < 0)
                return r;
        if (ch) {
                if (ch->state == CHAN_ATTACHING)
                        answer(ch, 0); /* it will be, as it is now */
                close_fds(ch);
                LIST_REMOVE(ch, link);
        } else {
                ch = calloc(1, sizeof *ch);
        }
        if (!ch)
                return -ENOMEM;
        *ch = (struct kchan){.xsk = {.fd = -1, .ready = packets_came}, .stack = st};
        ch->info = in->msg.chan;
        ch->request = in->msg;
        ch->nfds = in->n;
        for (unsigned i = 0; i < in->n; i++)
                ch->fds[i] = wire_in_take(in, i);
        LIST_INSERT_HEAD(&st->chans, ch, link);
        chan_attach(st, ch);
        kstack_due(st);
        return 1;
}

/* One that it brought itself comes back: it has it. */
void klink_take(struct wire_in *in)
{
        struct kstack *st = kstack_find(in->msg.link.stack);
        struct klink *l;

        if (!st || in->n != UNETD_LINK_FDS)
                return;
        kstack_due(st);
        LIST_FOREACH (l, &st->links, link)
                if (l->iface == in->msg.link.iface)
                        return;
        if (keeper.ops->link_attach(st->view, in->msg.link.iface, in->fds[UNETD_FD_LINK_MEM],
                                    in->fds[UNETD_FD_LINK_BOOK]) < 0 ||
            !(l = calloc(1, sizeof *l)))
                return;
        l->iface = in->msg.link.iface;
        for (unsigned i = 0; i < UNETD_LINK_FDS; i++)
                l->fds[i] = wire_in_take(in, i);
        LIST_INSERT_HEAD(&st->links, l, link);
}

void klinks_free(struct kstack *st)
{
        struct klink *l;

        while ((l = LIST_FIRST(&st->links))) {
                for (unsigned i = 0; i < UNETD_LINK_FDS; i++)
                        close(l->fds[i]);
                LIST_REMOVE(l, link);
                free(l);
        }
}

int kchan_drop(const struct wire_in *in)
{
        struct kstack *st = kstack_find(in->msg.chan.stack);
        struct kchan *ch = st ? kchan_find(st, in->msg.chan.chan) : NULL;

        if (!ch)
                return -ENOENT;
        if (ch->state == CHAN_ATTACHING && !keeper.ops->has_chan(st->view, ch->info.chan)) {
                /* Never got into the state. */
                answer(ch, -ECANCELED);
                kchan_free(ch);
                return 0;
        }
        answer(ch, -ECANCELED);
        ch->state = CHAN_CLOSING;
        ch->request = in->msg;
        kstack_due(st);
        return 1;
}

int kchan_yield(const struct wire_in *in)
{
        struct kstack *st = kstack_find(in->msg.stack.stack);

        if (!st || st->yield.type != 0)
                return st ? -EBUSY : -ENOENT;
        st->yield = in->msg;
        kstack_due(st);
        return 1;
}

int kchan_part(const struct wire_in *in)
{
        struct kstack *st = kstack_find(in->msg.chan.stack);
        struct kchan *ch = st ? kchan_find(st, in->msg.chan.chan) : NULL;

        if (!ch || ch->state != CHAN_UP || unetd_is_iface(ch->info.peer_stack) ||
            unetd_is_remote(ch->info.peer_stack))
                return ch ? -EBUSY : -ENOENT;
        ch->state = CHAN_PARTING;
        ch->request = in->msg;
        kstack_due(st);
        return 1;
}

static void stay(struct kchan *ch)
{
        if (ch->yields)
                keeper.ops->chan_stay(ch->stack->view, ch->info.chan);
        ch->yields = false;
}

void kchan_stay(const struct wire_in *in)
{
        struct kstack *st = kstack_find(in->msg.stack.stack);
        struct kchan *ch = st ? kchan_find(st, in->msg.stack.slot) : NULL;

        if (ch)
                stay(ch);
}

void kchans_stay(struct kstack *st)
{
        struct kchan *ch;

        st->yield.type = 0;
        LIST_FOREACH (ch, &st->chans, link) {
                stay(ch);
                if (ch->state == CHAN_PARTING)
                        ch->state = CHAN_UP;
        }
}
