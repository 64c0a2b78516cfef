/* Channels of endpoints over shared memory, between two who hold the ends of a socket. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unet/ep.h"
#include "unet/shm/shm_link.h"

/* The other end is an endpoint, too: a message is 64 KB of pieces and its descriptor. */
static int accept_pair(struct shm_link *s, int64_t timeout, struct link *out)
{
        int err = shm_link_accept(s, timeout, out);

        if (err == 0)
                out->ch->caps.mtu = SHM_PAIR_MTU;
        return err;
}

int unet_chan_over(struct unet_ep *ep, int sock, int64_t timeout, uint32_t *chan)
{
        struct frame_geom flat = {{0}};
        struct shm_link *s;
        struct link l;
        int err = shm_link_offer(&ep->st, flat, &ep->cnt, sock, &s);

        if (err != 0)
                return err;
        err = accept_pair(s, timeout, &l);
        if (err == 0)
                err = ep_attach(ep, &l, chan);
        if (err != 0)
                shm_link_abort(s);
        return err;
}

/* Each side offers before either accepts, so nobody blocks. */
int unet_chan_pair(struct unet_ep *a, struct unet_ep *b, uint32_t *chan_a, uint32_t *chan_b)
{
        struct frame_geom flat = {{0}};
        struct shm_link *sa = NULL, *sb = NULL;
        struct link la, lb;
        uint32_t ca;
        int sock[2], err;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock) != 0)
                return -errno;
        err = shm_link_offer(&a->st, flat, &a->cnt, sock[0], &sa);
        if (err == 0)
                err = shm_link_offer(&b->st, flat, &b->cnt, sock[1], &sb);
        if (err == 0)
                err = accept_pair(sa, 0, &la);
        if (err == 0)
                err = accept_pair(sb, 0, &lb);
        if (err == 0)
                err = ep_attach(a, &la, &ca);
        if (err != 0)
                goto fail;
        err = ep_attach(b, &lb, chan_b);
        if (err == 0) {
                *chan_a = ca;
                return 0;
        }
        unet_chan_close(a, ca); /* takes sa and its socket */
        sa = NULL;
        sock[0] = -1;
fail:
        if (sa != NULL)
                shm_link_abort(sa);
        if (sb != NULL)
                shm_link_abort(sb);
        if (sock[0] >= 0)
                close(sock[0]);
        close(sock[1]);
        return err;
}
