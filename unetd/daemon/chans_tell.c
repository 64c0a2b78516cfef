/* What keepers are told of channels, and asked to do. */
#include <errno.h>
#include <fcntl.h>

#include "unet/bell_fd.h"
#include "unetd/daemon/chans_int.h"
#include "unetd/daemon/ifaces.h"
#include "unetd/daemon/links.h"
#include "unetd/daemon/users.h"

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
                        fds_close(fds + 1, UNETD_CHAN_FDS - 1);
                        return err;
                }
        }
        return 0;
}

struct unetd_chan_info end_info(const struct end *e)
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

int end_attach(struct end *e)
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
        fds_close(fds + 1, unetd_chan_nfds(&info) - 1); /* fds[0] is unetd's own */
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

void chan_tell(struct end *e)
{
        if (e->state == END_CLOSING)
                end_ask(e, UNETD_K_CHAN_DOWN);
        else if (other_end(e)->stack || e->chan->iface || e->chan->remote)
                end_attach(e);
}
