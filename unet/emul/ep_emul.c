/*
 * Channels through unetd's switch.
 *
 *   attach   the endpoint's offer goes to unetd, the switch's comes back; the connection becomes
 *            the link
 *   connect  unetd_emul_connect() -> tag -> ep_chan_tagged()
 *   accept   a ring on the listening descriptor -> unetd_emul_accept() -> tag -> ep_chan_tagged()
 *
 * A channel's messages come after its tag was made known: the other side learns it at the same
 * moment, and what it sends waits in the ring, which nobody looks at before ep_chan_tagged().
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memfd.h"
#include "unet/ep.h"
#include "unet/shm/shm_link.h"
#include "unetd/client/client.h"
#include "unetd/client/wire.h"

/* ---- time ---- */

static int64_t deadline_of(int64_t timeout)
{
        int64_t now = clock_now();

        return timeout < 0 || timeout > INT64_MAX - now ? INT64_MAX : now + timeout;
}

/* 0, -ETIMEDOUT, or a negative errno. */
static int wait_readable(int fd, int64_t deadline)
{
        int64_t left = MAX(deadline - clock_now(), 0);
        struct timespec ts = {left / NS_PER_S, left % NS_PER_S};
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n = ppoll(&p, 1, deadline == INT64_MAX ? NULL : &ts, NULL);

        if (n < 0)
                return errno == EINTR ? 0 : -errno;
        return n > 0 ? 0 : -ETIMEDOUT;
}

/* ---- attaching ---- */

static bool attached(const struct unet_ep *ep, const struct unetd_client *c)
{
        const struct ep_link *l = &ep->link[ep->emul.link];

        return ep->emul.instance == c->instance && l->serial == ep->emul.serial && !l->gone;
}

/* Takes the socket and the descriptors of *theirs, which are unetd's: who it is was asked when
 * we connected. */
static int use_link(struct unet_ep *ep, struct shm_link *s, const struct shm_offer *theirs,
                    int sock, uint32_t *link)
{
        struct link l;
        int err = shm_link_connect(s, sock, theirs, UNET_MEMFD_ANYBODY, &l);

        close(theirs->region);
        close(theirs->station);
        if (err == 0) {
                l.tagged = true;
                err = ep_attach(ep, &l, link);
        }
        if (err != 0)
                close(sock);
        return err;
}

static int attach(struct unet_ep *ep, struct unetd_client *c)
{
        struct frame_geom flat = {{0}};
        struct shm_offer mine, theirs;
        struct shm_link *s;
        uint32_t port, link;
        int sock, err = shm_link_make(&ep->st, flat, &ep->cnt, &s);

        if (err != 0)
                return err;
        mine = shm_link_mine(s);
        err = unetd_emul_attach(c, &mine, &theirs, &port, &sock);
        if (err == 0)
                err = use_link(ep, s, &theirs, sock, &link);
        if (err != 0) {
                shm_link_abort(s);
                return err;
        }
        shm_link_sent(s);
        ep->emul.instance = c->instance;
        ep->emul.port = port;
        ep->emul.link = link;
        ep->emul.serial = ep->link[link].serial;
        return 0;
}

/* A client whose unetd has this endpoint; to be closed. */
static int open_attached(struct unet_ep *ep, struct unetd_client *c)
{
        int err;

        *c = (struct unetd_client){.pid = 0};
        err = unetd_open(c, 0);
        if (err == 0 && !attached(ep, c)) {
                err = attach(ep, c);
                if (err != 0)
                        unetd_close(c);
        }
        return err;
}

/* ---- channels ---- */

int unet_emul_listen(const char *name, unsigned flags)
{
        struct unetd_client c = {.pid = 0};
        int fd = -1, err;

        if (flags & ~(unsigned)UNET_EMUL_ANYBODY)
                return -EINVAL;
        err = unetd_open(&c, 0);
        if (err != 0)
                return err;
        err = unetd_emul_listen(&c, name, flags & UNET_EMUL_ANYBODY, &fd);
        unetd_close(&c);
        return err != 0 ? err : fd;
}

/* The next ring; another process that accepts may be faster. */
static int take_ring(int listen_fd, int64_t deadline, uint32_t *listener)
{
        struct wire_in in;
        int err;

        do {
                err = wait_readable(listen_fd, deadline);
                if (err == 0)
                        err = wire_recv(listen_fd, &in, MSG_DONTWAIT);
        } while (err == -EAGAIN);
        if (err != 0)
                return err == -ECONNRESET ? -EPIPE : err == -EBADMSG ? -EPROTO : err;
        wire_in_close(&in);
        *listener = in.msg.emul.listener;
        return in.msg.type == UNETD_EMUL_CALL ? 0 : -EPROTO;
}

/* A channel that unetd agreed to; its other end may be dead already. */
static int begin(struct unet_ep *ep, uint32_t tag, uint32_t *chan)
{
        int err = ep_chan_tagged(ep, ep->emul.link, tag, tag, chan);

        if (err == 0)
                ep_chan_stood(ep, *chan);
        return err;
}

int unet_emul_accept(struct unet_ep *ep, int listen_fd, int64_t timeout, uint32_t *chan)
{
        int64_t deadline = deadline_of(timeout);
        struct unetd_client c;
        uint32_t listener, tag;
        int err = open_attached(ep, &c);

        if (err != 0)
                return err;
        do {
                err = take_ring(listen_fd, deadline, &listener);
                if (err == 0)
                        err = unetd_emul_accept(&c, ep->emul.port, listener, &tag);
        } while (err == -ENOMSG);
        unetd_close(&c);
        return err != 0 ? err : begin(ep, tag, chan);
}

/* "UID/NAME", or a name of our own. */
static const char *split_name(const char *name, uint32_t *uid)
{
        char *end;
        unsigned long n;

        *uid = geteuid();
        if (name[0] < '0' || name[0] > '9')
                return name;
        n = strtoul(name, &end, 10);
        if (*end != '/' || n > UINT32_MAX)
                return name;
        *uid = (uint32_t)n;
        return end + 1;
}

int unet_emul_connect(struct unet_ep *ep, const char *name, int64_t timeout, uint32_t *chan)
{
        int64_t ms = timeout < 0 ? -1 : timeout / NS_PER_MS + (timeout % NS_PER_MS != 0);
        struct unetd_client c;
        uint32_t uid, tag;
        int err = open_attached(ep, &c);

        if (err != 0)
                return err;
        name = split_name(name, &uid);
        err = unetd_emul_connect(&c, ep->emul.port, uid, name, ms, &tag);
        unetd_close(&c);
        return err != 0 ? err : begin(ep, tag, chan);
}
