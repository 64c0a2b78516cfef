/* See sockdiag.h. */
#include "unetd/daemon/sockdiag.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define TCP_LISTENS (1u << 10)          /* of the kernel's tcp_states.h */

static int diag = -1;

int sockdiag_open(void)
{
        diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
        return diag < 0 ? -errno : 0;
}

/* An IPv6 socket that takes IPv6 only, as far as the kernel tells. */
static bool is_v6only(const struct nlmsghdr *nlh)
{
        const struct inet_diag_msg *m = NLMSG_DATA(nlh);
        int left = (int)(nlh->nlmsg_len - NLMSG_LENGTH(sizeof *m));

        for (const struct rtattr *a = (const struct rtattr *)(m + 1); RTA_OK(a, left); a = RTA_NEXT(a, left))
                if (a->rta_type == INET_DIAG_SKV6ONLY)
                        return *(const uint8_t *)RTA_DATA(a) != 0;
        return false;
}

/* False: it is none that can be meant. */
static bool parse(const struct nlmsghdr *nlh, uint8_t proto, struct sockdiag_socket *s)
{
        const struct inet_diag_msg *m = NLMSG_DATA(nlh);

        if (nlh->nlmsg_type != SOCK_DIAG_BY_FAMILY || nlh->nlmsg_len < NLMSG_LENGTH(sizeof *m))
                return false;
        *s = (struct sockdiag_socket){.proto = proto, .port = ntohs(m->id.idiag_sport), .uid = m->idiag_uid};
        s->cookie = (uint64_t)m->id.idiag_cookie[1] << 32 | m->id.idiag_cookie[0];
        if (m->idiag_family == AF_INET)
                s->addr = ip_addr_v4(ntohl(m->id.idiag_src[0]));
        else
                memcpy(&s->addr, m->id.idiag_src, sizeof s->addr);
        return !(m->idiag_family == AF_INET6 && ip_addr_is_any(s->addr) && is_v6only(nlh));
}

static int ask(int family, uint8_t proto, uint16_t port)
{
        struct {
                struct nlmsghdr nlh;
                struct inet_diag_req_v2 req;
        } q = {.nlh = {.nlmsg_len = sizeof q, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
               .req = {.sdiag_family = (uint8_t)family, .sdiag_protocol = proto, .id = {.idiag_sport = htons(port)}}};

        q.req.idiag_states = proto == IPPROTO_TCP ? TCP_LISTENS : ~0u;
        return send(diag, &q, sizeof q, 0) == sizeof q ? 0 : -errno;
}

/* One family; 1: each() has seen enough. The rest of the dump is read all the same, so that the next question finds nothing of it. */
static int answers(uint8_t proto, bool (*each)(void *arg, const struct sockdiag_socket *s), void *arg)
{
        _Alignas(struct nlmsghdr) char buf[32768];
        bool enough = false;

        for (;;) {
                ssize_t n = recv(diag, buf, sizeof buf, 0);
                int left = (int)n;

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                for (const struct nlmsghdr *nlh = (void *)buf; NLMSG_OK(nlh, (unsigned)left); nlh = NLMSG_NEXT(nlh, left)) {
                        struct sockdiag_socket s;

                        if (nlh->nlmsg_type == NLMSG_DONE)
                                return enough;
                        if (nlh->nlmsg_type == NLMSG_ERROR)
                                return -EOPNOTSUPP;
                        if (!enough && parse(nlh, proto, &s))
                                enough = !each(arg, &s);
                }
        }
}

int sockdiag_each(uint8_t proto, uint16_t port, bool (*each)(void *arg, const struct sockdiag_socket *s), void *arg)
{
        static const int families[] = {AF_INET, AF_INET6};
        int r = 0;

        for (size_t i = 0; i < ARRAY_LEN(families) && r == 0; i++) {
                r = ask(families[i], proto, port);
                if (r == 0)
                        r = answers(proto, each, arg);
        }
        return r < 0 ? r : 0;
}
