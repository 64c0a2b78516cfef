/* See sockdiag.h. */
#include "unetd/daemon/sockdiag.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unetd/daemon/ifaces.h"

#define TCP_LISTENS (1u << 10) /* TCPF_LISTEN of the kernel's tcp_states.h */
#define TCP_BOUND   (1u << 13) /* TCPF_BOUND_INACTIVE, from Linux 6.8 on */

static int diag = -1;

static int open_diag(void)
{
        return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
}

int sockdiag_open(void)
{
        diag = open_diag();
        return diag < 0 ? -errno : 0;
}

/* Returns true if the kernel says that the socket takes IPv6 only. */
static bool is_v6only(const struct nlmsghdr *nlh)
{
        const struct inet_diag_msg *m = NLMSG_DATA(nlh);
        int left = (int)(nlh->nlmsg_len - NLMSG_LENGTH(sizeof *m));

        for (const struct rtattr *a = (const struct rtattr *)(m + 1); RTA_OK(a, left);
             a = RTA_NEXT(a, left))
                if (a->rta_type == INET_DIAG_SKV6ONLY)
                        return *(const uint8_t *)RTA_DATA(a) != 0;
        return false;
}

/* The devices of unetd's interfaces, read when a list has its first socket that is bound to a
 * device. */
struct devices {
        bool known;
        uint32_t n;
        unsigned index[UNETD_IFACES];
};

static bool is_elsewhere(const struct inet_diag_msg *m, struct devices *d)
{
        if (m->id.idiag_if == 0)
                return false;
        if (!d->known)
                d->n = iface_indexes(d->index);
        d->known = true;
        for (uint32_t i = 0; i < d->n; i++)
                if (d->index[i] == m->id.idiag_if)
                        return false;
        return true;
}

/* Returns false if the message describes no socket that can have a port on the fabric. */
static bool parse(const struct nlmsghdr *nlh, uint8_t proto, struct devices *d,
                  struct sockdiag_socket *s)
{
        const struct inet_diag_msg *m = NLMSG_DATA(nlh);

        if (nlh->nlmsg_type != SOCK_DIAG_BY_FAMILY || nlh->nlmsg_len < NLMSG_LENGTH(sizeof *m))
                return false;
        *s = (struct sockdiag_socket){.proto = proto,
                                      .port = ntohs(m->id.idiag_sport),
                                      .uid = m->idiag_uid,
                                      .on_device = m->id.idiag_if != 0,
                                      .elsewhere = is_elsewhere(m, d)};
        s->cookie = (uint64_t)m->id.idiag_cookie[1] << 32 | m->id.idiag_cookie[0];
        if (m->idiag_family == AF_INET)
                s->addr = ip_addr_v4(ntohl(m->id.idiag_src[0]));
        else
                memcpy(&s->addr, m->id.idiag_src, sizeof s->addr);
        return !(m->idiag_family == AF_INET6 && ip_addr_is_any(s->addr) && is_v6only(nlh));
}

void sockdiag_note(struct sockdiag_others *o, const struct sockdiag_socket *s)
{
        if (!s->elsewhere)
                return;
        o->several |= o->any && o->uid != s->uid;
        o->any = true;
        o->uid = s->uid;
}

bool sockdiag_contested(const struct sockdiag_others *o, const struct sockdiag_socket *s)
{
        return s->on_device && o->any && (o->several || o->uid != s->uid);
}

static int ask(int family, uint8_t proto, uint16_t port, uint32_t states)
{
        struct {
                struct nlmsghdr nlh;
                struct inet_diag_req_v2 req;
        } q = {.nlh = {.nlmsg_len = sizeof q,
                       .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
               .req = {.sdiag_family = (uint8_t)family,
                       .sdiag_protocol = proto,
                       .id = {.idiag_sport = htons(port)}}};

        q.req.idiag_states = states;
        return send(diag, &q, sizeof q, 0) == sizeof q ? 0 : -errno;
}

/* Reads one dump to its end, so that nothing of it is left for the next question. Gives each
 * message to take() until that returns false. 1: take() returned false. */
static int read_dump(int fd, bool (*take)(void *arg, const struct nlmsghdr *nlh), void *arg)
{
        _Alignas(struct nlmsghdr) char buf[32768];
        bool enough = false;

        for (;;) {
                ssize_t n = recv(fd, buf, sizeof buf, 0);
                int left = (int)n;

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                for (const struct nlmsghdr *nlh = (void *)buf; NLMSG_OK(nlh, (unsigned)left);
                     nlh = NLMSG_NEXT(nlh, left)) {
                        if (nlh->nlmsg_type == NLMSG_DONE)
                                return enough;
                        if (nlh->nlmsg_type == NLMSG_ERROR)
                                return -EOPNOTSUPP;
                        enough = enough || !take(arg, nlh);
                }
        }
}

struct inet_dump {
        uint8_t proto;
        bool (*each)(void *arg, const struct sockdiag_socket *s);
        void *arg;
        struct devices devices;
};

static bool take_inet(void *arg, const struct nlmsghdr *nlh)
{
        struct inet_dump *d = arg;
        struct sockdiag_socket s;

        return !parse(nlh, d->proto, &d->devices, &s) || d->each(d->arg, &s);
}

static int list_in(uint8_t proto, uint16_t port, uint32_t states,
                   bool (*each)(void *arg, const struct sockdiag_socket *s), void *arg)
{
        static const int families[] = {AF_INET, AF_INET6};
        struct inet_dump d = {.proto = proto, .each = each, .arg = arg};
        int r = 0;

        for (size_t i = 0; i < ARRAY_LEN(families) && r == 0; i++) {
                r = ask(families[i], proto, port, states);
                if (r == 0)
                        r = read_dump(diag, take_inet, &d);
        }
        return r < 0 ? r : 0;
}

/* ---- one moment ---- */

struct list {
        uint8_t proto;
        uint16_t port;
        uint32_t states;
        int err;
        struct sockdiag_socket *at;
        size_t n, cap;
};

static struct {
        bool on;
        struct list list[2]; /* of one port: sockets that listen, and those that are bound */
        unsigned n;
} moment;

static bool keep(void *arg, const struct sockdiag_socket *s)
{
        struct list *l = arg;

        if (l->n == l->cap) {
                size_t cap = l->cap ? l->cap * 2 : 64;
                struct sockdiag_socket *more = realloc(l->at, cap * sizeof *more);

                if (!more) {
                        l->err = -ENOMEM;
                        return false;
                }
                l->at = more;
                l->cap = cap;
        }
        l->at[l->n++] = *s;
        return true;
}

void sockdiag_same_moment(bool on)
{
        while (moment.n > 0)
                free(moment.list[--moment.n].at);
        moment.on = on;
}

/* Returns the list of the port's sockets, which it makes if need be; NULL: there is no room for
 * another. */
static struct list *list_of(uint8_t proto, uint16_t port, uint32_t states)
{
        struct list *l;
        int r;

        for (unsigned i = 0; i < moment.n; i++) {
                l = &moment.list[i];
                if (l->proto == proto && l->port == port && l->states == states)
                        return l;
        }
        if (moment.n == ARRAY_LEN(moment.list))
                return NULL;
        l = &moment.list[moment.n++];
        *l = (struct list){.proto = proto, .port = port, .states = states};
        r = list_in(proto, port, states, keep, l);
        l->err = r < 0 ? r : l->err;
        return l;
}

static int each_in(uint8_t proto, uint16_t port, uint32_t states,
                   bool (*each)(void *arg, const struct sockdiag_socket *s), void *arg)
{
        const struct list *l = moment.on ? list_of(proto, port, states) : NULL;

        if (!l)
                return list_in(proto, port, states, each, arg);
        for (size_t i = 0; i < l->n && l->err == 0; i++)
                if (!each(arg, &l->at[i]))
                        break;
        return l->err;
}

int sockdiag_each(uint8_t proto, uint16_t port,
                  bool (*each)(void *arg, const struct sockdiag_socket *s), void *arg)
{
        return each_in(proto, port, proto == IPPROTO_TCP ? TCP_LISTENS : ~0u, each, arg);
}

int sockdiag_each_bound(uint16_t port, bool (*each)(void *arg, const struct sockdiag_socket *s),
                        void *arg)
{
        return each_in(IPPROTO_TCP, port, TCP_BOUND, each, arg);
}

/* ---- names ---- */

struct holder {
        const char *name;
        size_t len;
        uint32_t uid;
        bool found;
};

static bool take_unix(void *arg, const struct nlmsghdr *nlh)
{
        const struct unix_diag_msg *m = NLMSG_DATA(nlh);
        int left = (int)(nlh->nlmsg_len - NLMSG_LENGTH(sizeof *m));
        struct holder *h = arg;
        bool named = false, known = false;
        uint32_t uid = 0;

        for (const struct rtattr *a = (const struct rtattr *)(m + 1); RTA_OK(a, left);
             a = RTA_NEXT(a, left)) {
                if (a->rta_type == UNIX_DIAG_NAME)
                        named = RTA_PAYLOAD(a) == h->len &&
                                memcmp(RTA_DATA(a), h->name, h->len) == 0;
                if (a->rta_type == UNIX_DIAG_UID && RTA_PAYLOAD(a) == sizeof uid) {
                        memcpy(&uid, RTA_DATA(a), sizeof uid);
                        known = true;
                }
        }
        if (!named || !known)
                return true;
        h->uid = uid;
        h->found = true;
        return false;
}

bool sockdiag_holder(const char *name, size_t len, uint32_t *uid)
{
        struct {
                struct nlmsghdr nlh;
                struct unix_diag_req req;
        } q = {.nlh = {.nlmsg_len = sizeof q,
                       .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
               .req = {.sdiag_family = AF_UNIX,
                       .udiag_states = ~0u,
                       .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_UID}};
        struct holder h = {.name = name, .len = len};
        int fd = open_diag();

        if (fd < 0)
                return false;
        if (send(fd, &q, sizeof q, 0) != sizeof q || read_dump(fd, take_unix, &h) < 0)
                h.found = false;
        close(fd);
        if (h.found)
                *uid = h.uid;
        return h.found;
}
