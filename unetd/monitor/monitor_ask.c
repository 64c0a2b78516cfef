/* The broker's side of monitor.h. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "unetd/client/wire.h"
#include "unetd/loop/log.h"
#include "unetd/monitor/monitor.h"
#include "unetd/monitor/monitor_wire.h"

static int monitor = -1; /* the connection to it; -1: we are one process */

/* Asks the monitor. The answer's descriptors go into their places in it. Without a monitor there is
 * no broker: it exits. */
static int ask(const struct mon_request *q, int fd, struct mon_reply *a,
               unsigned (*places)(struct mon_reply *a, int *at[MON_FDS]))
{
        int fds[MON_FDS], *at[MON_FDS];
        unsigned n, all, used = 0;
        int r;

        assert(monitor >= 0 && q->type < MON_TYPES);
        r = mon_send(monitor, q, sizeof *q, &fd, fd >= 0 ? 1 : 0);

        memset(a, 0, sizeof *a);
        if (r < 0 && r != -ETOOMANYREFS)
                goto gone;
        if (r < 0)
                return r;
        r = mon_recv(monitor, a, sizeof *a, fds, &n);
        if (r < 0 && r != -EMFILE)
                goto gone;
        if (r < 0)
                return r;
        all = places && a->err >= 0 ? places(a, at) : 0;
        for (unsigned i = 0; i < all; i++)
                if (*at[i] >= 0)
                        *at[i] = used < n ? fds[used++] : -1;
        while (n > used)
                close(fds[--n]);
        return a->err;
gone:
        log_line("the monitor is gone");
        _exit(1);
}

static unsigned rings_places(struct mon_reply *a, int *at[MON_FDS])
{
        return mon_rings_fds(&a->rings, at);
}

static unsigned packet_places(struct mon_reply *a, int *at[MON_FDS])
{
        return mon_packet_fds(&a->packet, at);
}

static unsigned err_place(struct mon_reply *a, int *at[MON_FDS])
{
        at[0] = &a->err;
        return 1;
}

/* Has the monitor open a file of another user, which we may not open by its name in /proc. */
static int reopen(int fd, int flags)
{
        struct mon_request q = {.type = MON_REOPEN, .flags = flags};
        struct mon_reply a;

        return ask(&q, fd, &a, err_place);
}

void monitor_connect(int sock)
{
        assert(sock >= 0 && monitor < 0);
        monitor = sock;
        fd_reopen_denied = reopen;
}

int monitor_user(int client)
{
        struct mon_request q = {.type = MON_USER};
        struct mon_reply a;

        return monitor < 0 ? 0 : ask(&q, client, &a, NULL);
}

int monitor_keeper(uint32_t uid, uint32_t gid, int fd)
{
        struct mon_request q = {.type = MON_KEEPER, .uid = uid};
        struct mon_reply a;

        return monitor < 0 ? root_keeper(uid, gid, fd) : ask(&q, fd, &a, NULL);
}

int monitor_rings_try(uint32_t i, char line[XDP_LINE_MAX])
{
        struct mon_request q = {.type = MON_RINGS_TRY, .iface = i};
        struct mon_reply a;
        int r;

        if (monitor < 0)
                return root_rings_try(i, line);
        r = ask(&q, -1, &a, NULL);
        memcpy(line, a.line, XDP_LINE_MAX);
        return r;
}

int monitor_rings_open(uint32_t i, bool checked, bool at_once, struct root_rings *rings,
                       char line[XDP_LINE_MAX])
{
        struct mon_request q = {
                .type = MON_RINGS_OPEN, .iface = i, .checked = checked, .at_once = at_once};
        struct mon_reply a;
        int r;

        if (monitor < 0)
                return root_rings_open(i, checked, at_once, rings, line);
        r = ask(&q, -1, &a, rings_places);
        memcpy(line, a.line, XDP_LINE_MAX);
        if (r == 0)
                *rings = a.rings;
        return r;
}

int monitor_packet_open(uint32_t i, struct pkt_dev *d, char line[XDP_LINE_MAX])
{
        struct mon_request q = {.type = MON_PACKET_OPEN, .iface = i};
        struct mon_reply a;
        int r;

        if (monitor < 0)
                return root_packet_open(i, d, line);
        r = ask(&q, -1, &a, packet_places);
        memcpy(line, a.line, XDP_LINE_MAX);
        if (r == 0)
                *d = a.packet;
        return r;
}

int monitor_arp_open(uint32_t i)
{
        struct mon_request q = {.type = MON_ARP_OPEN, .iface = i};
        struct mon_reply a;

        return monitor < 0 ? root_arp_open(i) : ask(&q, -1, &a, err_place);
}

int monitor_sender_mtu(const struct pkt_sealed *s, uint32_t mtu)
{
        struct mon_request q = {.type = MON_SENDER_MTU, .mtu = mtu};
        struct mon_reply a;

        return monitor < 0 ? root_sender_mtu(s, mtu) : ask(&q, s->ns, &a, NULL);
}

int monitor_sender_end(struct pkt_sealed *s, struct send_check *c)
{
        struct mon_request q = {.type = MON_SENDER_END};
        struct mon_reply a;
        int r;

        if (monitor < 0)
                return root_sender_end(s, c);
        r = ask(&q, s->ns, &a, NULL);
        send_check_close(c, false);
        return r;
}

int monitor_sender_mac(uint32_t i, struct send_check *c)
{
        struct mon_request q = {.type = MON_SENDER_MAC, .iface = i};
        struct mon_reply a;

        return monitor < 0 ? root_sender_mac(i, c) : ask(&q, -1, &a, NULL);
}

int monitor_bind(int fd, const struct sockaddr *sa, socklen_t len)
{
        struct mon_request q = {.type = MON_BIND};
        struct mon_reply a;

        assert(len <= sizeof q.name);
        memcpy(&q.name, sa, len);
        return monitor < 0 ? root_bind(fd, sa, len) : ask(&q, fd, &a, NULL);
}

int monitor_rules(struct rule rule[RULES_MAX], char line[XDP_LINE_MAX])
{
        struct mon_request q = {.type = MON_RULES};
        struct mon_reply a;
        int r = ask(&q, -1, &a, NULL);

        memcpy(line, a.line, XDP_LINE_MAX);
        memcpy(rule, a.rule, sizeof a.rule);
        return r;
}

void monitor_process(int32_t pid, int32_t tid, struct root_process *p)
{
        struct mon_request q = {.type = MON_PROCESS, .pid = pid, .tid = tid};
        struct mon_reply a;

        if (monitor < 0) {
                root_process(pid, tid, p);
                return;
        }
        ask(&q, -1, &a, NULL);
        *p = a.process;
}

int monitor_iface_set(uint32_t i, const struct unetd_iface_config *c, int client)
{
        struct mon_request q = {.type = MON_IFACE_SET, .iface = i, .cfg = *c};
        struct mon_reply a;
        int r = monitor < 0 ? 0 : ask(&q, client, &a, NULL);

        if (r == 0)
                root_iface_set(i, c);
        return r;
}
