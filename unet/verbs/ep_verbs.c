/*
 * Raw endpoints over verbs: how two of them meet. Each sends the other where it is through a TCP
 * socket; when both have taken that in, each says so with one byte, and nothing can come from a
 * peer that is not known yet.
 *
 *   unet_verbs_over(): port of our address -> hello -> their hello, checked -> channel -> ready
 *                      -> their ready -> link
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "unet/ep.h"
#include "unet/verbs/verbs_chan.h"

#define HELLO_MAGIC   0x554e7662u
#define HELLO_VERSION 1u
#define MTU_LEAST     256u /* of any RDMA port */
#define ALIVE_S       5    /* a peer whose host fell silent is missed after four times this */

struct hello {
        be32 magic, version;
        ip_addr addr;
        be32 qpn, qkey, mtu, zero;
};
static_assert(sizeof(struct hello) == 40, "the same in every build");

/* ---- the socket ---- */

static int wait_readable(int sock, nstime deadline)
{
        struct pollfd p = {.fd = sock, .events = POLLIN};
        nstime left = MAX(deadline - clock_now(), 0);
        struct timespec ts = {left / NS_PER_S, left % NS_PER_S};
        int n = ppoll(&p, 1, deadline == NSTIME_NEVER ? NULL : &ts, NULL);

        if (n < 0)
                return errno == EINTR ? 0 : -errno;
        return n > 0 ? 0 : -ETIMEDOUT;
}

static int receive(int sock, void *to, size_t len, nstime deadline)
{
        for (size_t got = 0; got < len;) {
                int err = wait_readable(sock, deadline);
                ssize_t n;

                if (err != 0)
                        return err;
                n = recv(sock, (uint8_t *)to + got, len - got, MSG_DONTWAIT);
                if (n == 0 || (n < 0 && errno == ECONNRESET))
                        return -EPIPE;
                if (n < 0 && errno != EAGAIN && errno != EINTR)
                        return -errno;
                got += (size_t)MAX(n, 0);
        }
        return 0;
}

/* So little always fits into a socket that nothing was sent on. */
static int transmit(int sock, const void *from, size_t len)
{
        ssize_t n = send(sock, from, len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n == (ssize_t)len)
                return 0;
        return n < 0 && errno != EAGAIN ? -errno : -EPROTO;
}

static int address_of(const struct sockaddr_storage *sa, ip_addr *out)
{
        if (sa->ss_family == AF_INET)
                *out = ip_addr_v4(ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr));
        else if (sa->ss_family == AF_INET6)
                memcpy(out, &((const struct sockaddr_in6 *)sa)->sin6_addr, sizeof *out);
        else
                return -EAFNOSUPPORT;
        return 0;
}

static int ends_of(int sock, ip_addr *here, ip_addr *there)
{
        struct sockaddr_storage sa;
        socklen_t len = sizeof sa;
        int err;

        if (getsockname(sock, (struct sockaddr *)&sa, &len) != 0)
                return -errno;
        err = address_of(&sa, here);
        if (err != 0)
                return err;
        len = sizeof sa;
        if (getpeername(sock, (struct sockaddr *)&sa, &len) != 0)
                return errno == ENOTCONN ? -EPIPE : -errno;
        return address_of(&sa, there);
}

/* A host that loses its power does not hang up. */
static void keep_alive(int sock)
{
        int on = 1, seconds = ALIVE_S, probes = 3;

        setsockopt(sock, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        setsockopt(sock, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
        setsockopt(sock, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
        setsockopt(sock, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* ---- the port ---- */

static struct verbs_port *find_port(const struct unet_ep *ep, ip_addr addr)
{
        for (uint32_t i = 0; i < ep->nlinks; i++) {
                struct verbs_port *p = ep->link[i].serial != 0 ? ep->link[i].l.port : NULL;
                if (p != NULL && ip_addr_eq(p->dev.addr, addr) && !p->dead)
                        return p;
        }
        return NULL;
}

static int get_port(struct unet_ep *ep, ip_addr addr, struct verbs_port **out)
{
        const struct verbs_setup s = {
                .st = &ep->st,
                .tx = unet_mem_flat(station_segment(&ep->st), ep->opts.tx_bytes),
                .rx_bytes = ep->opts.direct ? ep->opts.rx_bytes : 0,
                .buffers = ep->opts.rx_slots * 2,
                .cnt = &ep->cnt,
        };

        *out = find_port(ep, addr);
        return *out != NULL ? 0 : verbs_port_open(addr, &s, out);
}

/* Not when other channels use it. */
static void put_port(struct verbs_port *p)
{
        if (p->nchans == 0)
                verbs_port_close(p, false);
}

/* ---- meeting ---- */

static int say_hello(const struct verbs_port *p, int sock)
{
        const struct hello h = {
                .magic = be32_of(HELLO_MAGIC),
                .version = be32_of(HELLO_VERSION),
                .addr = p->dev.addr,
                .qpn = be32_of(p->qp->qp_num),
                .qkey = be32_of(p->qkey),
                .mtu = be32_of(p->dev.mtu),
        };

        return transmit(sock, &h, sizeof h);
}

/* A peer can speak for its own address only. */
static int hear_hello(int sock, ip_addr there, nstime deadline, struct verbs_peer *peer,
                      uint32_t *mtu)
{
        struct hello h;
        int err = receive(sock, &h, sizeof h, deadline);

        if (err != 0)
                return err;
        *peer = (struct verbs_peer){h.addr, be32_get(h.qpn), be32_get(h.qkey)};
        *mtu = be32_get(h.mtu);
        if (be32_get(h.magic) != HELLO_MAGIC || be32_get(h.version) != HELLO_VERSION ||
            !ip_addr_eq(h.addr, there) || peer->qpn >> 24 != 0 || *mtu < MTU_LEAST)
                return -EPROTO;
        return 0;
}

static int get_ready(int sock, nstime deadline)
{
        uint8_t byte = 1;
        int err = transmit(sock, &byte, 1);

        if (err == 0)
                err = receive(sock, &byte, 1, deadline);
        return err == 0 && byte != 1 ? -EPROTO : err;
}

static int meet(struct unet_ep *ep, struct verbs_port *p, int sock, ip_addr there, nstime deadline,
                uint32_t *chan)
{
        struct verbs_peer peer;
        struct verbs_chan *c;
        struct link l;
        uint32_t mtu;
        int err = say_hello(p, sock);

        if (err == 0)
                err = hear_hello(sock, there, deadline, &peer, &mtu);
        if (err == 0)
                err = verbs_chan_open(p, &peer, mtu, &c);
        if (err != 0)
                return err;
        err = get_ready(sock, deadline);
        l = verbs_chan_link(c, sock);
        if (err == 0)
                err = ep_attach(ep, &l, chan);
        if (err != 0)
                verbs_chan_abort(c);
        return err;
}

int unet_verbs_over(struct unet_ep *ep, int sock, int64_t timeout, uint32_t *chan)
{
        nstime now = clock_now();
        nstime deadline =
                timeout < 0 || timeout > NSTIME_NEVER - now ? NSTIME_NEVER : now + timeout;
        struct verbs_port *p;
        ip_addr here, there;
        int err = ends_of(sock, &here, &there);

        if (err == 0)
                err = get_port(ep, here, &p);
        if (err != 0)
                return err;
        keep_alive(sock);
        err = meet(ep, p, sock, there, deadline, chan);
        if (err != 0)
                put_port(p);
        return err;
}

int unet_verbs_describe(char *text, size_t max)
{
        return verbs_dev_describe(text, max);
}
