/*
 * The monitor: see monitor.h. Each request is judged by a function of its own, which calls one
 * function of root.h. What is believed is the config, which the monitor has read itself, and the
 * kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unetd/client/wire.h"
#include "unetd/loop/log.h"
#include "unetd/monitor/monitor_run.h"
#include "unetd/monitor/monitor_wire.h"

#ifndef SIOCUNIXFILE
#define SIOCUNIXFILE 0x89e0 /* SIOCPROTOPRIVATE: linux/un.h, which sys/un.h does not go with */
#endif

/* Senders of an interface: the one in use, and one that says its last words (daemon/ifaces.c). */
#define SENDERS 2u

struct known {
        uint32_t uid, gid;
};

/* A packet socket that was made here. */
struct sender {
        bool is;
        int ns;                  /* its namespace */
        struct send_check check; /* of what it sends */
};

static struct {
        const struct monitor_scope *scope;
        struct known *known; /* users who have connected */
        size_t nknown;
        struct sender sender[UNETD_IFACES][SENDERS]; /* newest first */
} mon;

static int int_opt(int fd, int opt)
{
        int v = -1;
        socklen_t len = sizeof v;

        return getsockopt(fd, SOL_SOCKET, opt, &v, &len) == 0 && len == sizeof v ? v : -1;
}

/* ---- whose a connection is ---- */

static bool is_same_file(int a, int b)
{
        struct stat sa, sb;

        return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
               sa.st_ino == sb.st_ino;
}

/* A path can be another file's by now, or in another mount namespace; what a socket is bound
 * to cannot. */
static bool has_file_of(int fd, int listening)
{
        int a = ioctl(fd, SIOCUNIXFILE), b = ioctl(listening, SIOCUNIXFILE);
        bool same = a >= 0 && b >= 0 && is_same_file(a, b);

        if (a >= 0)
                close(a);
        if (b >= 0)
                close(b);
        return same;
}

/* Returns true if the socket has the name of the listening one. An abstract name is nobody else's
 * while the monitor holds the socket, too. */
static bool has_name_of(int fd, int listening)
{
        struct sockaddr_un ours, name;
        socklen_t ours_len = sizeof ours, len = sizeof name;

        if (listening < 0 || getsockname(listening, (struct sockaddr *)&ours, &ours_len) < 0 ||
            getsockname(fd, (struct sockaddr *)&name, &len) < 0 || len != ours_len ||
            memcmp(&name, &ours, len) != 0)
                return false;
        return ours.sun_path[0] == '\0' || has_file_of(fd, listening);
}

/* Returns true if it is a connection that a listening socket of the broker's has accepted, and of
 * whom. Other sockets would name others: one that is connected to a daemon of root's says root. */
static bool is_client(int fd, struct ucred *cred)
{
        socklen_t clen = sizeof *cred;

        return (has_name_of(fd, mon.scope->listening[0]) ||
                has_name_of(fd, mon.scope->listening[1])) &&
               int_opt(fd, SO_ACCEPTCONN) == 0 &&
               getsockopt(fd, SOL_SOCKET, SO_PEERCRED, cred, &clen) == 0 && clen == sizeof *cred &&
               cred->uid != (uid_t)-1;
}

static struct known *find_known(uint32_t uid)
{
        for (size_t i = 0; i < mon.nknown; i++)
                if (mon.known[i].uid == uid)
                        return &mon.known[i];
        return NULL;
}

static int user(int fd)
{
        struct ucred cred;
        struct known *k;

        if (!is_client(fd, &cred))
                return -EPERM;
        k = find_known(cred.uid);
        if (!k) {
                struct known *more = reallocarray(mon.known, mon.nknown + 1, sizeof *more);

                if (!more)
                        return -ENOMEM;
                mon.known = more;
                k = &mon.known[mon.nknown++];
        }
        *k = (struct known){.uid = cred.uid, .gid = cred.gid};
        return 0;
}

/* ---- what sort of descriptor it is ---- */

static bool is_inet_socket(int fd, int family)
{
        int type = int_opt(fd, SO_TYPE);

        return (family == AF_INET || family == AF_INET6) && int_opt(fd, SO_DOMAIN) == family &&
               (type == SOCK_STREAM || type == SOCK_DGRAM);
}

/* Memory for reading: nothing else of a file do users get of each other. Only the kernel is asked:
 * fstat(2) of a file on FUSE would wait for its owner. */
static bool may_reopen(int fd, int flags)
{
        return fcntl(fd, F_GET_SEALS) >= 0 && flags == O_RDONLY;
}

/* ---- requests ---- */

static int keeper(const struct mon_request *q, int fd)
{
        const struct known *k = find_known(q->uid);

        if (!k)
                return -EPERM;
        if (int_opt(fd, SO_DOMAIN) != AF_UNIX || int_opt(fd, SO_TYPE) != SOCK_SEQPACKET ||
            int_opt(fd, SO_ACCEPTCONN) != 0)
                return -EINVAL;
        return root_keeper(k->uid, k->gid, fd);
}

static bool is_iface(const struct mon_request *q)
{
        return q->iface < mon.scope->cfg->nifaces &&
               mon.scope->cfg->iface[q->iface].provider != IFACE_VERBS;
}

static void forget_sender(struct sender *s)
{
        if (s->is)
                close(s->ns);
        s->is = false;
}

/* The program that checks a sender stays here. */
static void remember_sender(struct sender *s, struct root_rings *made)
{
        if (s[SENDERS - 1].is)
                send_check_close(&s[SENDERS - 1].check, false);
        forget_sender(&s[SENDERS - 1]);
        memmove(s + 1, s, (SENDERS - 1) * sizeof *s);
        s[0] = (struct sender){.is = true,
                               .ns = fcntl(made->sock.packet.ns, F_DUPFD_CLOEXEC, 3),
                               .check = made->check};
        s[0].check.refused = -1;
        made->check.prog = made->check.own = -1;
}

static int rings_open(const struct mon_request *q, struct mon_reply *a)
{
        bool checked;
        int r;

        assert(q->iface < UNETD_IFACES);
        checked = q->checked != 0 || mon.scope->cfg->iface[q->iface].check == IFACE_CHECK_YES;
        r = root_rings_open(q->iface, checked, q->at_once != 0, &a->rings, a->line);
        if (r == 0)
                remember_sender(mon.sender[q->iface], &a->rings);
        return r;
}

static struct sender *find_sender(int fd)
{
        for (struct sender *s = mon.sender[0]; s < mon.sender[0] + UNETD_IFACES * SENDERS; s++)
                if (s->is && is_same_file(s->ns, fd))
                        return s;
        return NULL;
}

static int sender_mtu(const struct mon_request *q, int fd)
{
        const struct sender *s = find_sender(fd);

        if (!s)
                return -EPERM;
        return q->mtu != 0 ? root_sender_mtu(&(struct pkt_sealed){.sock = -1, .ns = s->ns}, q->mtu)
                           : -EINVAL;
}

static int sender_end(int fd)
{
        struct sender *s = find_sender(fd);
        int r = s ? root_sender_end(&(struct pkt_sealed){.sock = -1, .ns = s->ns}, &s->check)
                  : -EPERM;

        if (s)
                forget_sender(s);
        return r;
}

static int sender_mac(uint32_t i)
{
        int r = 0;

        assert(i < UNETD_IFACES);
        for (struct sender *s = mon.sender[i]; s < mon.sender[i] + SENDERS; s++)
                if (s->is && s->check.prog >= 0)
                        r = root_sender_mac(i, &s->check);
        return r;
}

static int iface_set(const struct mon_request *q, int fd)
{
        struct ucred cred;

        if (!is_client(fd, &cred) || cred.uid != 0)
                return -EPERM;
        if (q->iface >= UNETD_IFACES || !root_iface_is_sane(&q->cfg))
                return -EINVAL;
        root_iface_set(q->iface, &q->cfg);
        return 0;
}

static int bind_port(const struct mon_request *q, int fd)
{
        bool v4 = q->name.sa.sa_family == AF_INET;

        if (!is_inet_socket(fd, q->name.sa.sa_family))
                return -EINVAL;
        return root_bind(fd, &q->name.sa, v4 ? sizeof q->name.in : sizeof q->name.in6);
}

/* The number of descriptors that a request brings. */
static unsigned brings(uint32_t type)
{
        return type == MON_USER || type == MON_KEEPER || type == MON_SENDER_MTU ||
               type == MON_SENDER_END || type == MON_IFACE_SET || type == MON_BIND ||
               type == MON_REOPEN;
}

static int serve(const struct mon_request *q, int fd, struct mon_reply *a)
{
        switch ((enum mon_type)q->type) {
        case MON_USER:
                return user(fd);
        case MON_KEEPER:
                return keeper(q, fd);
        case MON_RINGS_TRY:
                return is_iface(q) ? root_rings_try(q->iface, a->line) : -EPERM;
        case MON_RINGS_OPEN:
                return is_iface(q) ? rings_open(q, a) : -EPERM;
        case MON_PACKET_OPEN:
                return is_iface(q) ? root_packet_open(q->iface, &a->packet, a->line) : -EPERM;
        case MON_ARP_OPEN:
                return is_iface(q) ? root_arp_open(q->iface) : -EPERM;
        case MON_SENDER_MTU:
                return sender_mtu(q, fd);
        case MON_SENDER_END:
                return sender_end(fd);
        case MON_SENDER_MAC:
                return is_iface(q) ? sender_mac(q->iface) : -EPERM;
        case MON_IFACE_SET:
                return iface_set(q, fd);
        case MON_BIND:
                return bind_port(q, fd);
        case MON_REOPEN:
                return may_reopen(fd, q->flags) ? root_reopen(fd, q->flags) : -EPERM;
        case MON_PROCESS:
                root_process(q->pid, q->tid, &a->process);
                return 0;
        case MON_RULES:
                return mon.scope->read_rules(a->rule, a->line);
        case MON_TYPES:
                break;
        }
        return -EBADMSG;
}

/* The descriptors that the answer to a request has. */
static unsigned answers_fds(const struct mon_request *q, struct mon_reply *a, int *at[MON_FDS])
{
        if (a->err < 0)
                return 0;
        switch (q->type) {
        case MON_RINGS_OPEN:
                return mon_rings_fds(&a->rings, at);
        case MON_PACKET_OPEN:
                return mon_packet_fds(&a->packet, at);
        case MON_ARP_OPEN:
        case MON_REOPEN:
                at[0] = &a->err;
                return 1;
        default:
                return 0;
        }
}

int monitor_answer(int sock)
{
        struct mon_request q;
        struct mon_reply a;
        int fds[MON_FDS], out[MON_FDS], *at[MON_FDS], r;
        unsigned n, nout = 0;

        assert(mon.scope != NULL);
        memset(&a, 0, sizeof a);
        r = mon_recv(sock, &q, sizeof q, fds, &n);
        assert(n <= MON_FDS);
        if (r == 0)
                a.err = q.type < MON_TYPES && n == brings(q.type) ? serve(&q, fds[0], &a)
                                                                  : -EBADMSG;
        else if (r == -EBADMSG || r == -EMFILE)
                a.err = r;
        else
                return r;
        if (r == 0)
                for (unsigned i = 0, all = answers_fds(&q, &a, at); i < all; i++)
                        if (*at[i] >= 0)
                                out[nout++] = *at[i];
        while (n > 0)
                /* Before the answer: while the broker has them, too, none of these is a
                 * last close. */
                close(fds[--n]);
        assert(nout <= MON_FDS);
        r = mon_send(sock, &a, sizeof a, out, nout);
        while (nout > 0)
                close(out[--nout]);
        return r;
}

void monitor_scope_set(const struct monitor_scope *scope)
{
        assert(scope->cfg->nifaces <= UNETD_IFACES);
        mon.scope = scope;
}

/* ---- running ---- */

/* Returns true if the broker has ended; then *status is what the monitor ends with. Keepers end,
 * too. */
static bool reap(int broker, int *status)
{
        int pid, how;
        bool ended = false;

        while ((pid = waitpid(-1, &how, WNOHANG)) > 0) {
                if (pid != broker)
                        continue;
                ended = true;
                *status = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
                if (WIFSIGNALED(how))
                        log_line("the broker ended by signal %d", WTERMSIG(how));
        }
        return ended;
}

static int signals_open(void)
{
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGHUP);
        sigaddset(&set, SIGCHLD);
        signal(SIGPIPE, SIG_IGN);
        sigprocmask(SIG_SETMASK, &set, NULL);
        return signalfd(-1, &set, SFD_CLOEXEC);
}

int monitor_run(const struct monitor_scope *scope, int sock, int broker)
{
        struct pollfd p[2] = {{.fd = signals_open(), .events = POLLIN},
                              {.fd = sock, .events = POLLIN}};
        struct signalfd_siginfo si;
        int status = 1;

        prctl(PR_SET_NAME, "unetd-monitor", 0, 0, 0);
        monitor_scope_set(scope);
        if (reap(broker, &status)) /* before its signal was waited for */
                return status;
        while (p[0].fd >= 0) {
                if (poll(p, 2, -1) < 0 && errno != EINTR)
                        break;
                if (p[0].revents & POLLIN && read(p[0].fd, &si, sizeof si) == sizeof si) {
                        if (si.ssi_signo == SIGCHLD && reap(broker, &status))
                                return status;
                        if (si.ssi_signo != SIGCHLD)
                                kill(broker, si.ssi_signo == SIGHUP ? SIGHUP : SIGTERM);
                }
                if (p[1].revents && monitor_answer(sock) < 0)
                        p[1].fd = -1; /* it is ending */
        }
        return 1;
}
