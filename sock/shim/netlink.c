/*
 * Programs that list addresses by rtnetlink(7), as `ip addr` and many servers do: to the kernel's
 * answer to RTM_GETADDR ours is added, a datagram of its own that is read first. What the kernel
 * says then ends the list, and makes the descriptor readable.
 */
#include "sock/shim/addrs.h"
#include "sock/shim/shim.h"
#include "sock/usock_ifaces.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>

#define DUMPS     8   /* asked for and not read yet */
#define PER_IFACE 128 /* bytes of a message, at most */

struct dump {
        uint64_t cookie; /* of the socket; 0: none */
        int fd;
        unsigned len;
        char answer[USOCK_IFACES * PER_IFACE];
};

_Atomic unsigned netlink_dumps;
static struct dump dumps[DUMPS];
static pthread_mutex_t dumps_lock = PTHREAD_MUTEX_INITIALIZER;

/* What a program may ask with: with ifaddrmsg or, from older ones, rtgenmsg. */
struct request {
        struct nlmsghdr h;
        struct ifaddrmsg a;
};

static uint64_t cookie_of(int fd)
{
        uint64_t cookie = 0;
        socklen_t len = sizeof cookie;

        sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_COOKIE, &cookie, &len);
        return cookie;
}

static int option(int fd, int level, int name)
{
        int v = -1;
        socklen_t len = sizeof v;

        sys5(SYS_getsockopt, fd, level, name, &v, &len);
        return v;
}

/* ---- the answer ---- */

static void attribute(struct nlmsghdr *h, unsigned short type, const void *p, size_t n)
{
        struct rtattr *a = (void *)((char *)h + NLMSG_ALIGN(h->nlmsg_len));

        assert(NLMSG_ALIGN(h->nlmsg_len) + RTA_SPACE(n) <= PER_IFACE);
        a->rta_type = type;
        a->rta_len = (unsigned short)RTA_LENGTH(n);
        memcpy(RTA_DATA(a), p, n);
        h->nlmsg_len = NLMSG_ALIGN(h->nlmsg_len) + RTA_ALIGN(a->rta_len);
}

static void address(struct nlmsghdr *h, unsigned short type, uint32_t addr)
{
        uint32_t wire = htonl(addr);

        attribute(h, type, &wire, sizeof wire);
}

static void describe(struct nlmsghdr *h, const struct usock_iface *f, unsigned ifindex)
{
        const struct ifa_cacheinfo for_ever = {.ifa_prefered = UINT32_MAX, .ifa_valid = UINT32_MAX};
        const uint32_t flags = IFA_F_PERMANENT;

        *(struct ifaddrmsg *)NLMSG_DATA(h) = (struct ifaddrmsg){.ifa_family = AF_INET,
                                                                .ifa_prefixlen = f->prefix,
                                                                .ifa_flags = IFA_F_PERMANENT,
                                                                .ifa_index = ifindex};
        h->nlmsg_type = RTM_NEWADDR;
        h->nlmsg_len = NLMSG_LENGTH(sizeof(struct ifaddrmsg));
        address(h, IFA_ADDRESS, f->addr);
        address(h, IFA_LOCAL, f->addr);
        if (shim_iface_broadcast(f) != 0)
                address(h, IFA_BROADCAST, shim_iface_broadcast(f));
        attribute(h, IFA_LABEL, f->name, strlen(f->name) + 1);
        attribute(h, IFA_FLAGS, &flags, sizeof flags);
        attribute(h, IFA_CACHEINFO, &for_ever, sizeof for_ever);
}

/* `only`: the number of the interface that is asked for; 0: all. */
static void answer(struct dump *d, const struct request *q, unsigned only)
{
        struct sockaddr_nl self = {.nl_pid = 0};
        struct usock_iface v[USOCK_IFACES];
        socklen_t len = sizeof self;
        unsigned n = shim_ifaces(v);

        memset(d->answer, 0, sizeof d->answer);
        d->len = 0;
        sys3(SYS_getsockname, d->fd, &self, &len);
        for (unsigned i = 0; i < n; i++) {
                struct nlmsghdr *h = (void *)(d->answer + d->len);
                unsigned ifindex = if_nametoindex(v[i].name);

                if (ifindex == 0 || (only != 0 && only != ifindex))
                        continue;
                describe(h, &v[i], ifindex);
                h->nlmsg_flags = (uint16_t)(NLM_F_MULTI | (only != 0 ? NLM_F_DUMP_FILTERED : 0));
                h->nlmsg_seq = q->h.nlmsg_seq;
                h->nlmsg_pid = self.nl_pid;
                d->len += NLMSG_ALIGN(h->nlmsg_len);
        }
}

/* ---- asking ---- */

static bool is_for_addresses(const struct request *q)
{
        return q->h.nlmsg_type == RTM_GETADDR && (q->h.nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP &&
               (q->a.ifa_family == AF_UNSPEC || q->a.ifa_family == AF_INET);
}

static bool forgotten(struct dump *d)
{
        if (d->cookie == 0 || d->cookie == cookie_of(d->fd))
                return false;
        d->cookie = 0; /* it was closed */
        netlink_dumps--;
        return true;
}

static struct dump *free_dump(void)
{
        for (int i = 0; i < DUMPS; i++)
                if (dumps[i].cookie == 0 || forgotten(&dumps[i]))
                        return &dumps[i];
        return NULL;
}

static bool take_request(struct request *q, const struct iovec *iov, size_t pieces)
{
        size_t at = 0;

        memset(q, 0, sizeof *q);
        for (size_t i = 0; i < pieces && at < sizeof *q; i++) {
                size_t n = MIN(iov[i].iov_len, sizeof *q - at);
                if (!user_copy((char *)q + at, iov[i].iov_base, n))
                        return false;
                at += n;
        }
        return true;
}

void netlink_asked(int fd, const struct iovec *iov, size_t pieces, ssize_t n)
{
        struct request q;
        struct dump *d;
        bool strict;

        if (usock_tls.inside || shim.disabled || !take_request(&q, iov, pieces) ||
            !is_for_addresses(&q) || option(fd, SOL_SOCKET, SO_DOMAIN) != AF_NETLINK ||
            option(fd, SOL_SOCKET, SO_PROTOCOL) != NETLINK_ROUTE)
                return;
        strict = n >= (ssize_t)sizeof q && option(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK) > 0;
        pthread_mutex_lock(&dumps_lock);
        d = free_dump();
        if (d != NULL) {
                d->fd = fd;
                answer(d, &q, strict ? q.a.ifa_index : 0);
                if (d->len != 0) {
                        d->cookie = cookie_of(fd);
                        netlink_dumps++;
                }
        }
        pthread_mutex_unlock(&dumps_lock);
}

/* ---- reading ---- */

static size_t give_parts(const struct msghdr *m, const struct dump *d, bool *good)
{
        size_t at = 0;

        for (size_t i = 0; i < m->msg_iovlen && at < d->len && *good; i++) {
                size_t n = MIN(m->msg_iov[i].iov_len, d->len - at);
                *good = user_copy(m->msg_iov[i].iov_base, d->answer + at, n);
                at += n;
        }
        return at;
}

static ssize_t give(struct msghdr *m, int flags, const struct dump *d)
{
        const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
        bool good = true;
        size_t n = give_parts(m, d, &good);

        if (good && m->msg_name != NULL)
                good = user_copy(m->msg_name, &kernel,
                                 MIN(m->msg_namelen, (socklen_t)sizeof kernel));
        m->msg_namelen = sizeof kernel;
        m->msg_controllen = 0;
        m->msg_flags = n < d->len ? MSG_TRUNC : 0;
        if (!good)
                return -EFAULT;
        return flags & MSG_TRUNC ? (ssize_t)d->len : (ssize_t)n;
}

static struct dump *find_answer(int fd)
{
        assert(netlink_dumps <= DUMPS);
        for (int i = 0; i < DUMPS; i++) {
                struct dump *d = &dumps[i];
                if (d->cookie != 0 && d->fd == fd && !forgotten(d))
                        return d;
        }
        return NULL;
}

bool netlink_answers(int fd, struct msghdr *m, int flags, ssize_t *r)
{
        struct dump *d;

        if (usock_tls.inside || flags & MSG_ERRQUEUE)
                return false;
        pthread_mutex_lock(&dumps_lock);
        d = find_answer(fd);
        if (d != NULL) {
                *r = give(m, flags, d);
                if (!(flags & MSG_PEEK)) {
                        d->cookie = 0;
                        netlink_dumps--;
                }
        }
        pthread_mutex_unlock(&dumps_lock);
        return d != NULL;
}

/* ---- fork ---- */

void netlink_fork_lock(void)
{
        pthread_mutex_lock(&dumps_lock);
}

void netlink_fork_unlock(void)
{
        pthread_mutex_unlock(&dumps_lock);
}
