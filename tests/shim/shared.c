/*
 * shim_shared: each call as the first one on a socket that two processes have, in each role that a
 * socket has, after the other one has done something with it or nothing. A line a scene: the call's
 * result, what both then find, and what the peer sees.
 *
 * usage: shim_shared [EXPECTED [MS [ONLY]]]       EXPECTED: what a run over the kernel printed.
 * What has to travel is waited for until a scene is as it is there, or so many ms are over. ONLY:
 * the beginning of the scenes' names that are to be played.
 */
#include "tests/shim/calls.h"

#define ROOM 400

/* ---- the scene's sockets ---- */

static struct {
        int fd;                  /* which is shared */
        int listener, peer, udp; /* a listener; the other end of a connection; a datagram socket */
        int held;                /* the port of udp, as one of TCP: nobody connects to himself */
        int from;                /* where connections of the listener's role come from */
        bool datagrams;
        bool undone;                   /* by connect() to AF_UNSPEC: without() */
        struct sockaddr_in at, udp_at; /* of listener and udp */
} now;

static int soft(int fd)
{
        fcntl(fd, F_SETFL, O_NONBLOCK);
        return fd;
}

static void until(int fd, short events)
{
        struct pollfd p = {fd, events, 0};

        if (poll(&p, 1, LONG) != 1)
                die("nothing comes");
}

static int udp_at(struct sockaddr_in *sa)
{
        int fd = soft(socket(AF_INET, SOCK_DGRAM, 0));
        socklen_t len = sizeof(*sa);

        *sa = loopback();
        if (bind(fd, (void *)sa, len) < 0 || getsockname(fd, (void *)sa, &len) < 0)
                die("bind");
        return fd;
}

static int connecting(void)
{
        int fd = soft(socket(AF_INET, SOCK_STREAM, 0));

        connect(fd, (void *)&now.at, sizeof(now.at));
        until(fd, POLLOUT);
        return fd;
}

static int accepted(void)
{
        until(now.listener, POLLIN);
        return soft(accept(now.listener, NULL, NULL));
}

static int is_new(void)
{
        return soft(socket(AF_INET, SOCK_STREAM, 0));
}

static int is_bound(void)
{
        struct sockaddr_in sa = loopback();
        int fd = is_new();

        if (bind(fd, (void *)&sa, sizeof(sa)) < 0)
                die("bind");
        return fd;
}

static int is_listener(void)
{
        struct sockaddr_in sa;
        int fd = soft(listener(&sa));

        now.from = soft(socket(AF_INET, SOCK_STREAM, 0));
        connect(now.from, (void *)&sa, sizeof(sa));
        until(fd, POLLIN);
        until(now.from, POLLOUT);
        return fd;
}

static int is_connecting(void)
{
        return connecting();
}

static int is_connected(void)
{
        int fd = connecting();

        connect(fd, (void *)&now.at, sizeof(now.at));
        now.peer = accepted();
        return fd;
}

static int is_accepted(void)
{
        int fd;

        now.peer = connecting();
        fd = accepted();
        write(now.peer, "from peer", 9);
        until(fd, POLLIN);
        return fd;
}

static int is_ended(void)
{
        int fd = is_accepted();
        struct pollfd p = {fd, POLLRDHUP, 0};

        shutdown(now.peer, SHUT_WR);
        poll(&p, 1, LONG);
        return fd;
}

static int is_udp(void)
{
        return soft(socket(AF_INET, SOCK_DGRAM, 0));
}

static int is_udp_bound(void)
{
        struct sockaddr_in sa;
        int fd = udp_at(&sa);

        sendto(now.udp, "from peer", 9, 0, (void *)&sa, sizeof(sa));
        until(fd, POLLIN);
        return fd;
}

static int is_udp_connected(void)
{
        int fd = is_udp();

        connect(fd, (void *)&now.udp_at, sizeof(now.udp_at));
        return fd;
}

static const struct {
        const char *name;
        int (*make)(void);
        bool udp;
} roles[] = {
        {"new", is_new, false},
        {"bound", is_bound, false},
        {"listener", is_listener, false},
        {"connecting", is_connecting, false},
        {"connected", is_connected, false},
        {"accepted", is_accepted, false},
        {"ended", is_ended, false},
        {"udp", is_udp, true},
        {"udp-bound", is_udp_bound, true},
        {"udp-connected", is_udp_connected, true},
};

/* ---- what is seen ---- */

/*
 * What Linux has and we do not, of a connection that connect() to AF_UNSPEC has ended: SO_ERROR is
 * ECONNRESET once, and getsockname() still tells the port. And what Linux says first of a datagram
 * socket is that nobody has its peer's port; we, what has come.
 */
static int without(int err)
{
        bool same = now.undone && !now.datagrams && (err == ECONNRESET || err == EPIPE);

        return same ? ENOTCONN : err;
}

static const char *port_name(const struct sockaddr_in *sa)
{
        if (sa->sin_port == 0 || now.undone)
                return "0";
        return sa->sin_port == (now.datagrams ? now.udp_at : now.at).sin_port ? "peer" : "some";
}

static void name_to(char *out, size_t room, int r, const struct sockaddr_in *sa)
{
        if (r < 0)
                snprintf(out, room, "%s", name_of(r));
        else if (now.undone && !now.datagrams)
                snprintf(out, room, "some");
        else
                snprintf(out, room, "%s:%s", sa->sin_addr.s_addr ? "host" : "any", port_name(sa));
}

static int events_of(int fd)
{
        struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0};

        poll(&p, 1, 0);
        return now.undone && !now.datagrams ? p.revents & ~POLLERR : p.revents;
}

static long int_opt(int fd, int level, int name)
{
        int v = 0;
        socklen_t len = sizeof(v);
        int r = getsockopt(fd, level, name, &v, &len);

        return r < 0 ? r : v;
}
static long c_so_error(int fd)
{
        return without((int)int_opt(fd, SOL_SOCKET, SO_ERROR)) % ENOTCONN;
}

/* An error is told once, and counts as long as one looks. */
static int error_seen, peers_error_seen;

static const char *look(int fd, int *seen, char *text, size_t room)
{
        ssize_t n;

        if (now.undone && !now.datagrams && fd == now.fd)
                c_so_error(fd);
        n = recv(fd, text, room - 1, MSG_PEEK | MSG_DONTWAIT);
        text[n > 0 ? n : 0] = 0;
        errno = fd == now.fd ? without(errno) : errno;
        if (n < 0 && errno != EAGAIN && errno != ENOTCONN)
                *seen = errno;
        if (*seen != 0)
                return strerrorname_np(*seen);
        return n > 0 ? "data" : n == 0 ? "end" : strerrorname_np(errno);
}

static void observe(int fd, char *out)
{
        struct sockaddr_in own = {0}, peer = {0};
        socklen_t len = sizeof(own), plen = sizeof(peer);
        char a[32], b[32], text[16];
        const char *found;
        int r;

        if (fd < 0) {
                strcpy(out, "closed");
                return;
        }
        r = getsockname(fd, (void *)&own, &len);
        name_to(a, sizeof(a), r, &own);
        r = getpeername(fd, (void *)&peer, &plen);
        name_to(b, sizeof(b), r, &peer);
        found = look(fd, &error_seen, text, sizeof(text));
        snprintf(out, ROOM, "%x %s %s %s %s %s", events_of(fd), a, b, found, text,
                 fcntl(fd, F_GETFL) & O_NONBLOCK ? "nb" : "");
}

/* The other end, which may be on its way still. */
static void observe_peer(char *out)
{
        const char *found;
        char text[64];
        int fd = now.datagrams ? now.udp : now.from >= 0 ? now.from : now.peer;

        if (fd < 0)
                fd = now.peer = accept4(now.listener, NULL, NULL, SOCK_NONBLOCK);
        if (fd < 0) {
                snprintf(out, ROOM, "nobody");
                return;
        }
        found = look(fd, &peers_error_seen, text, sizeof(text));
        snprintf(out, ROOM, "%x %s %s", events_of(fd), found, text);
}

/* ---- calls ---- */

static char data[64];
static int null_fd = -1, file_fd = -1;

static long c_read(int fd)
{
        return read(fd, data, 4);
}
static long c_readv(int fd)
{
        return readv(fd, &(struct iovec){data, 4}, 1);
}
static long c_recv(int fd)
{
        return recv(fd, data, 4, 0);
}
static long c_peek(int fd)
{
        return recv(fd, data, 4, MSG_PEEK);
}
static long c_recvfrom(int fd)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof(sa);

        return recvfrom(fd, data, 4, MSG_DONTWAIT, (void *)&sa, &len);
}
static long c_recvmsg(int fd)
{
        struct iovec v = {data, 4};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

        return recvmsg(fd, &m, 0);
}
static long c_recvmmsg(int fd)
{
        struct iovec v = {data, 4};
        struct mmsghdr m = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};

        return recvmmsg(fd, &m, 1, 0, NULL);
}
static long c_write(int fd)
{
        return write(fd, "call", 4);
}
static long c_writev(int fd)
{
        return writev(fd, &(struct iovec){"call", 4}, 1);
}
static long c_send(int fd)
{
        return send(fd, "call", 4, MSG_NOSIGNAL);
}
static long c_sendto(int fd)
{
        return sendto(fd, "call", 4, 0, (void *)&now.udp_at, sizeof(now.udp_at));
}
static long c_sendmsg(int fd)
{
        struct iovec v = {"call", 4};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

        return sendmsg(fd, &m, 0);
}
static long c_sendmsg_to(int fd)
{
        struct iovec v = {"call", 4};
        struct msghdr m = {.msg_name = &now.udp_at,
                           .msg_namelen = sizeof(now.udp_at),
                           .msg_iov = &v,
                           .msg_iovlen = 1};

        return sendmsg(fd, &m, 0);
}
static long c_sendmmsg(int fd)
{
        struct iovec v = {"call", 4};
        struct mmsghdr m = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};

        return sendmmsg(fd, &m, 1, 0);
}
static long c_sendfile(int fd)
{
        off_t at = 0;

        return sendfile(fd, file_fd, &at, 4);
}
static long c_splice_out(int fd)
{
        int p[2];
        long r;

        pipe(p);
        write(p[1], "call", 4);
        r = splice(p[0], NULL, fd, NULL, 4, SPLICE_F_NONBLOCK);
        close2(p);
        return r;
}
static long c_splice_in(int fd)
{
        int p[2];
        long r;

        pipe(p);
        r = splice(fd, NULL, p[1], NULL, 4, SPLICE_F_NONBLOCK);
        close2(p);
        return r;
}
static long c_connect(int fd)
{
        return connect(fd, (void *)&now.at, sizeof(now.at));
}
static long c_connect_udp(int fd)
{
        return connect(fd, (void *)&now.udp_at, sizeof(now.udp_at));
}
static long c_disconnect(int fd)
{
        struct sockaddr sa = {.sa_family = AF_UNSPEC};

        return connect(fd, &sa, sizeof(sa));
}
static long c_bind(int fd)
{
        struct sockaddr_in sa = loopback();

        return bind(fd, (void *)&sa, sizeof(sa));
}
static long c_listen(int fd)
{
        return listen(fd, 5);
}
static long c_accept(int fd)
{
        int r = accept(fd, NULL, NULL), err = errno;

        if (r >= 0)
                close(r);
        errno = err;
        return r < 0 ? r : 1;
}
static long c_accept4(int fd)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof(sa);
        int r = accept4(fd, (void *)&sa, &len, SOCK_CLOEXEC), err = errno;

        if (r >= 0) {
                write(r, "call", 4);
                close(r);
        }
        errno = err;
        return r < 0 ? r : 1;
}
static long c_shutdown_rd(int fd)
{
        return shutdown(fd, SHUT_RD);
}
static long c_shutdown_wr(int fd)
{
        return shutdown(fd, SHUT_WR);
}
static long c_shutdown(int fd)
{
        return shutdown(fd, SHUT_RDWR);
}
static long c_so_type(int fd)
{
        return int_opt(fd, SOL_SOCKET, SO_TYPE);
}
static long c_acceptconn(int fd)
{
        return int_opt(fd, SOL_SOCKET, SO_ACCEPTCONN);
}
static long c_nodelay(int fd)
{
        return int_opt(fd, IPPROTO_TCP, TCP_NODELAY);
}
static long c_set_nodelay(int fd)
{
        int one = 1, r = setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

        return r < 0 ? r : int_opt(fd, IPPROTO_TCP, TCP_NODELAY);
}
static long c_set_times(int fd)
{
        struct timeval tv = {3, 0};

        return setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
}
static long c_times(int fd)
{
        struct timeval tv = {0};
        socklen_t len = sizeof(tv);
        int r = getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, &len);

        return r < 0 ? r : tv.tv_sec;
}
static long c_state(int fd)
{
        struct tcp_info i = {0};
        socklen_t len = sizeof(i);
        int r = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len);

        return r < 0 ? r : i.tcpi_state;
}
static long c_fionread(int fd)
{
        int v = 0, r = ioctl(fd, FIONREAD, &v);

        return r < 0 ? r : v;
}
static long c_fionbio(int fd)
{
        int zero = 0;

        return ioctl(fd, FIONBIO, &zero);
}
static long c_atmark(int fd)
{
        return sockatmark(fd);
}
static long c_getfl(int fd)
{
        return fcntl(fd, F_GETFL);
}
static long c_setfl(int fd)
{
        return fcntl(fd, F_SETFL, 0);
}
static long c_dup(int fd)
{
        int d = dup(fd);
        long r = send(d, "call", 4, MSG_NOSIGNAL), err = errno;

        close(d);
        errno = (int)err;
        return r;
}
static long c_close(int fd)
{
        return close(fd);
}
static long c_poll(int fd)
{
        return events_of(fd);
}
static long c_select(int fd)
{
        struct timeval tv = {0, 0};
        fd_set r, w;
        int n;

        FD_ZERO(&r);
        FD_ZERO(&w);
        FD_SET(fd, &r);
        FD_SET(fd, &w);
        n = select(fd + 1, &r, &w, NULL, &tv);
        return n * 100 + FD_ISSET(fd, &r) * 10 + FD_ISSET(fd, &w);
}
static long c_epoll(int fd)
{
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP, .data.u64 = 7},
                           out = {0};
        int ep = epoll_create1(0), r = epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);

        if (r == 0)
                r = epoll_wait(ep, &out, 1, 0) * 0x10000 +
                    (int)(now.undone ? out.events & ~(uint32_t)EPOLLERR : out.events);
        close(ep);
        return r;
}
static long c_dprintf(int fd)
{
        return dprintf(fd, "call");
}
static long c_getsockname(int fd)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof(sa);

        return getsockname(fd, (void *)&sa, &len);
}
static long c_getpeername(int fd)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof(sa);

        return getpeername(fd, (void *)&sa, &len);
}

static const struct {
        const char *name;
        long (*call)(int fd);
} calls[] = {{"read", c_read},
             {"readv", c_readv},
             {"recv", c_recv},
             {"peek", c_peek},
             {"recvfrom", c_recvfrom},
             {"recvmsg", c_recvmsg},
             {"recvmmsg", c_recvmmsg},
             {"write", c_write},
             {"writev", c_writev},
             {"send", c_send},
             {"sendto", c_sendto},
             {"sendmsg", c_sendmsg},
             {"sendmsg-to", c_sendmsg_to},
             {"sendmmsg", c_sendmmsg},
             {"sendfile", c_sendfile},
             {"splice-to", c_splice_out},
             {"splice-from", c_splice_in},
             {"connect", c_connect},
             {"connect-udp", c_connect_udp},
             {"disconnect", c_disconnect},
             {"bind", c_bind},
             {"listen", c_listen},
             {"accept", c_accept},
             {"accept4", c_accept4},
             {"shutdown-rd", c_shutdown_rd},
             {"shutdown-wr", c_shutdown_wr},
             {"shutdown-rdwr", c_shutdown},
             {"SO_ERROR", c_so_error},
             {"SO_TYPE", c_so_type},
             {"SO_ACCEPTCONN", c_acceptconn},
             {"TCP_NODELAY", c_nodelay},
             {"set-TCP_NODELAY", c_set_nodelay},
             {"set-SO_RCVTIMEO", c_set_times},
             {"SO_RCVTIMEO", c_times},
             {"TCP_INFO", c_state},
             {"FIONREAD", c_fionread},
             {"FIONBIO", c_fionbio},
             {"sockatmark", c_atmark},
             {"F_GETFL", c_getfl},
             {"F_SETFL", c_setfl},
             {"dup", c_dup},
             {"close", c_close},
             {"poll", c_poll},
             {"select", c_select},
             {"epoll", c_epoll},
             {"dprintf", c_dprintf},
             {"getsockname", c_getsockname},
             {"getpeername", c_getpeername}};

/* What the other process does before: one of the calls, or nothing. */
static const char *const before[] = {
        "",       "close", "bind",        "connect",    "listen",          "connect-udp",    "send",
        "sendto", "read",  "shutdown-wr", "disconnect", "set-SO_RCVTIMEO", "set-TCP_NODELAY"};

static int call_named(const char *name)
{
        for (size_t i = 0; i < ARRAY_LEN(calls); i++)
                if (strcmp(calls[i].name, name) == 0)
                        return (int)i;
        return -1;
}

static bool closes(int call)
{
        return calls[call].call == c_close;
}

/* A handshake that it began is over afterwards, and so is the end of a connection, or the scene
 * would depend on how fast they are. */
static void make_call(int *fd, int call, char *out)
{
        long r = calls[call].call(*fd);
        int err = errno;

        if (r < 0 && err == EINPROGRESS)
                until(*fd, POLLOUT);
        while (!now.datagrams && c_state(*fd) == TCP_LAST_ACK)
                usleep(300);
        if (closes(call))
                *fd = -1;
        errno = without(err);
        snprintf(out, ROOM, "%ld %s", r, r < 0 ? name_of(r) : "");
}

/* ---- the other process ---- */

struct order {
        char what; /* 'c': a call; 'o': observe; 'f': here it is; 'd': drop it; 'q': the end */
        int call;
        bool datagrams, undone;
        struct sockaddr_in at, udp_at;
};

static void answer(int s, const char *text)
{
        send(s, text, strlen(text) + 1, 0);
}

static int received(int s, struct order *o)
{
        char room[CMSG_SPACE(sizeof(int))];
        struct iovec v = {o, sizeof(*o)};
        struct msghdr m = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = room,
                           .msg_controllen = sizeof(room)};
        int fd = -1;

        if (recvmsg(s, &m, 0) <= 0)
                _exit(0);
        if (CMSG_FIRSTHDR(&m))
                memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
        return fd;
}

/* fd -1: they come in messages. */
static void other(int s, int fd)
{
        char out[ROOM];
        struct order o;

        for (;;) {
                int got = received(s, &o);

                if (got >= 0)
                        fd = got;
                now.fd = fd;
                now.datagrams = o.datagrams;
                now.undone = o.undone;
                now.at = o.at;
                now.udp_at = o.udp_at;
                if (o.what == 'c')
                        make_call(&fd, o.call, out);
                else if (o.what == 'o')
                        observe(fd, out);
                else
                        strcpy(out, "here");
                if (o.what == 'f')
                        error_seen = 0;
                if (o.what == 'd' && fd >= 0) {
                        close(fd);
                        fd = -1;
                }
                answer(s, out);
                if (o.what == 'q')
                        _exit(0);
        }
}

static void order(int s, char what, int call, int fd, char *out)
{
        struct order o = {what, call, now.datagrams, now.undone, now.at, now.udp_at};
        _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec v = {&o, sizeof(o)};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

        if (fd >= 0) {
                struct cmsghdr *c;

                m.msg_control = room;
                m.msg_controllen = sizeof(room);
                c = CMSG_FIRSTHDR(&m);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(fd));
                memcpy(CMSG_DATA(c), &fd, sizeof(fd));
        }
        if (sendmsg(s, &m, 0) < 0 || recv(s, out, ROOM, 0) <= 0)
                die("the other process is gone");
}

/* ---- scenes ---- */

enum way { DUP, CHILD_CALLS, PARENT_CALLS, PASSED, EXEC };
static const char *const ways[] = {"dup", "child", "parent", "passed", "exec"};

static int helper; /* who gets sockets in messages */

static int other_by_fork(pid_t *pid)
{
        int s[2];

        socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s);
        fflush(stdout);
        *pid = fork();
        if (*pid == 0) {
                close(s[0]);
                close(now.listener);
                close(now.udp);
                close(now.held);
                if (now.peer >= 0)
                        close(now.peer);
                if (now.from >= 0)
                        close(now.from);
                other(s[1], now.fd);
        }
        close(s[1]);
        return s[0];
}

static int other_by_exec(pid_t *pid)
{
        char n[2][12];
        int s[2];

        socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s);
        fcntl(s[0], F_SETFD, FD_CLOEXEC);
        fcntl(now.listener, F_SETFD, FD_CLOEXEC);
        fcntl(now.udp, F_SETFD, FD_CLOEXEC);
        fcntl(now.held, F_SETFD, FD_CLOEXEC);
        if (now.peer >= 0)
                fcntl(now.peer, F_SETFD, FD_CLOEXEC);
        if (now.from >= 0)
                fcntl(now.from, F_SETFD, FD_CLOEXEC);
        snprintf(n[0], sizeof(n[0]), "%d", s[1]);
        snprintf(n[1], sizeof(n[1]), "%d", now.fd);
        fflush(stdout);
        *pid = fork();
        if (*pid == 0) {
                execl("/proc/self/exe", "shim_shared", "--other", n[0], n[1], NULL);
                _exit(1);
        }
        close(s[1]);
        return s[0];
}

static int other_by(enum way way, pid_t *pid)
{
        *pid = 0;
        if (way == CHILD_CALLS || way == PARENT_CALLS)
                return other_by_fork(pid);
        if (way == EXEC)
                return other_by_exec(pid);
        return way == PASSED ? helper : -1;
}

static void set_up(int role)
{
        now.datagrams = roles[role].udp;
        error_seen = peers_error_seen = 0;
        now.peer = now.from = -1;
        now.listener = soft(listener(&now.at));
        do {
                now.udp = udp_at(&now.udp_at);
                now.held = socket(AF_INET, SOCK_STREAM, 0);
        } while (bind(now.held, (void *)&now.udp_at, sizeof(now.udp_at)) < 0 &&
                 close(now.held) == 0 && close(now.udp) == 0);
        now.fd = roles[role].make();
}

static void clear_up(void)
{
        const int all[] = {now.fd, now.listener, now.udp, now.held, now.peer, now.from};

        for (size_t i = 0; i < ARRAY_LEN(all); i++)
                if (all[i] >= 0)
                        close(all[i]);
}

static long patience;

static long ms_now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void play(const char *name, int role, enum way way, int first, int call,
                 const char *expected)
{
        char line[5 * ROOM], result[ROOM], mine[ROOM], others[ROOM] = "-", peers[ROOM],
                                                       unused[ROOM];
        const struct timespec pause = {0, 300000};
        long until;
        pid_t pid;
        int s;

        now.undone = calls[call].call == c_disconnect ||
                     (first >= 0 && calls[first].call == c_disconnect);
        set_up(role);
        s = other_by(way, &pid);
        if (way == DUP) {
                int d = dup(now.fd);

                close(now.fd);
                now.fd = d;
        } else {
                order(s, 'f', 0, way == PASSED ? now.fd : -1, unused);
        }
        if (first >= 0 && way == PARENT_CALLS)
                order(s, 'c', first, -1, unused);
        else if (first >= 0)
                make_call(&now.fd, first, unused);
        if (way == DUP || way == PARENT_CALLS)
                make_call(&now.fd, call, result);
        else
                order(s, 'c', call, -1, result);
        until = ms_now() + patience;
        do {
                nanosleep(&pause, NULL);
                observe(now.fd, mine);
                if (way != DUP)
                        order(s, 'o', 0, -1, others);
                observe_peer(peers);
                snprintf(line, sizeof(line), "%s: %s | here %s | there %s | peer %s", name, result,
                         mine, others, peers);
        } while (expected && strcmp(line, expected) != 0 && ms_now() < until);
        puts(line);
        if (way == PASSED)
                order(s, 'd', 0, -1, unused);
        if (pid) {
                order(s, 'q', 0, -1, unused);
                close(s);
                waitpid(pid, NULL, 0);
        }
        clear_up();
}

/* ---- all of them ---- */

static char *lines; /* of the file of what is expected */

static void load(const char *path)
{
        int fd = open(path, O_RDONLY);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                die(path);
        lines = calloc(1, (size_t)st.st_size + 1);
        if (!lines || read(fd, lines, (size_t)st.st_size) != st.st_size)
                die(path);
        close(fd);
}

/* They come in the order of the file. */
static const char *next_expected(const char *name)
{
        char *line = lines, *end = line ? strchr(line, '\n') : NULL;

        while (end) {
                *end = 0;
                lines = end + 1;
                if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
                        return line;
                line = lines;
                end = strchr(line, '\n');
        }
        return NULL;
}

static void play_all(const char *only)
{
        char name[128];

        for (int way = DUP; way <= EXEC; way++)
                for (size_t role = 0; role < ARRAY_LEN(roles); role++)
                        for (size_t b = 0; b < (way == DUP ? 1 : ARRAY_LEN(before)); b++)
                                for (size_t c = 0; c < ARRAY_LEN(calls); c++) {
                                        snprintf(name, sizeof(name), "%s %s %s%s%s", ways[way],
                                                 roles[role].name, before[b], b ? ", " : "",
                                                 calls[c].name);
                                        if (roles[role].udp && strcmp(before[b], "connect") == 0)
                                                continue;
                                        if (way == EXEC && b > 0 && strcmp(before[b], "connect") &&
                                            strcmp(before[b], "close"))
                                                continue;
                                        if (!only || strncmp(name, only, strlen(only)) == 0)
                                                play(name, (int)role, way, call_named(before[b]),
                                                     (int)c, next_expected(name));
                                }
}

int main(int argc, char **argv)
{
        int s[2];

        signal(SIGPIPE, SIG_IGN);
        if (argc == 4 && strcmp(argv[1], "--other") == 0)
                other(atoi(argv[2]), atoi(argv[3]));
        file_fd = open("/proc/self/exe", O_RDONLY);
        null_fd = open("/dev/null", O_RDWR);
        if (argc > 1 && argv[1][0])
                load(argv[1]);
        socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s);
        if (fork() == 0) {
                close(s[0]);
                other(s[1], -1);
        }
        close(s[1]);
        helper = s[0];
        patience = argc > 2 ? atol(argv[2]) : 0;
        play_all(argc > 3 ? argv[3] : NULL);
        return 0;
}
