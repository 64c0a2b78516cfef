/* Channels that an earlier unetd made. Keepers and clients bring their halves. */
#include <errno.h>

#include "base/memfd.h"
#include "unet/shm/shm_ring.h"
#include "unetd/daemon/chans_int.h"
#include "unetd/daemon/links.h"
#include "unetd/daemon/shares.h"
#include "unetd/daemon/stacks.h"

/* Binds an end of a channel that a keeper brings back. Another keeper, which knows the stack and
 * not its channels, may have reported the number as taken: by this one. */
static int end_bind_again(struct end *e, struct stack *st, struct user *payer, uint32_t slot)
{
        slot_free_if_unused(st, slot);
        return end_bind(e, st, payer, slot);
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
