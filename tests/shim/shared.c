/*
 * shim_shared: each call as the first one on a socket that two processes have, in each role that a
 * socket has, after the other one has done something with it or nothing. A line a scene: the call's
 * result, what both then find, and what the peer sees.
 *
 * usage: shim_shared [EXPECTED [MS [ONLY]]]       EXPECTED: what a run over the kernel printed.
 * What has to travel is waited for until a scene is as it is there, or so many ms are over. ONLY:
 * the beginning of the scenes' names that are to be played. UNET_SHARED_OF=N: one of N is played.
 */
#include "tests/shim/shared.h"

#define ROOM 400

/* ---- what is seen ---- */

int without(int err)
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

int events_of(int fd)
{
        struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0};

        poll(&p, 1, 0);
        return now.undone && !now.datagrams ? p.revents & ~POLLERR : p.revents;
}

long int_opt(int fd, int level, int name)
{
        int v = 0;
        socklen_t len = sizeof(v);
        int r = getsockopt(fd, level, name, &v, &len);

        return r < 0 ? r : v;
}

/* An error is told once, and counts as long as one looks. */
static int error_seen, peers_error_seen;

static const char *look(int fd, int *seen, char *text, size_t room)
{
        ssize_t n;

        if (now.undone && !now.datagrams && fd == now.fd)
                int_opt(fd, SOL_SOCKET, SO_ERROR);
        n = recv(fd, text, room - 1, MSG_PEEK | MSG_DONTWAIT);
        text[n > 0 ? n : 0] = 0;
        errno = fd == now.fd ? without(errno) : errno;
        if (n < 0 && errno != EAGAIN && errno != ENOTCONN)
                *seen = errno;
        if (*seen != 0)
                return strerrorname_np(*seen);
        return n > 0 ? "data" : n == 0 ? "end" : strerrorname_np(errno);
}

/* What the calls beside poll() say: a set of levels, and select(). */
static void observe_ready(int fd, char *out, size_t room)
{
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI}, got = {0};
        struct timeval none = {0, 0};
        int ep = epoll_create1(0);
        fd_set r, w, x;

        FD_ZERO(&r);
        FD_SET(fd, &r);
        w = x = r;
        epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
        epoll_wait(ep, &got, 1, 0);
        close(ep);
        select(fd + 1, &r, &w, &x, &none);
        if (now.undone && !now.datagrams)
                snprintf(out, room, "undone");
        else
                snprintf(out, room, "%x %d%d%d", got.events, FD_ISSET(fd, &r) != 0,
                         FD_ISSET(fd, &w) != 0, FD_ISSET(fd, &x) != 0);
}

static void observe(int fd, char *out)
{
        struct sockaddr_in own = {0}, peer = {0};
        socklen_t len = sizeof(own), plen = sizeof(peer);
        char a[32], b[32], text[16], ready[32];
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
        observe_ready(fd, ready, sizeof(ready));
        snprintf(out, ROOM, "%x %s %s %s %s %s %s", events_of(fd), ready, a, b, found, text,
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

/* ---- who calls ---- */

/* What the other process does before: one of the calls, or nothing. */
static const char *const before[] = {
        "",       "close", "bind",        "connect",    "listen",          "connect-udp",    "send",
        "sendto", "read",  "shutdown-wr", "disconnect", "set-SO_RCVTIMEO", "set-TCP_NODELAY"};

static int state(int fd)
{
        struct tcp_info i = {0};
        socklen_t len = sizeof(i);

        return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len) < 0 ? -1 : i.tcpi_state;
}

/* A handshake that it began is over afterwards, and so is the end of a connection, or the scene
 * would depend on how fast they are. */
static void make_call(int *fd, int call, char *out)
{
        long r = calls[call].call(*fd);
        int err = errno;

        if (r < 0 && err == EINPROGRESS)
                until_events(*fd, POLLOUT);
        while (!now.datagrams && state(*fd) == TCP_LAST_ACK)
                usleep(300);
        if (call_closes(call))
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

enum way { DUP, CHILD_CALLS, PARENT_CALLS, PASSED, EXEC, SPAWN, WATCHED };
static const char *const ways[] = {"dup", "child", "parent", "passed", "exec", "spawn", "watched"};

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

/* WATCHED: who does not call has it in a set, and has been told what is there. Only what is new
 * is compared: Linux also tells again what it has told, whenever it frees what was sent. */
static int edges = -1;
static uint32_t edges_told, edges_seen;

static void look_at_edges(void)
{
        struct epoll_event ev;

        if (edges >= 0 && epoll_wait(edges, &ev, 1, 0) == 1)
                edges_seen |= ev.events & ~edges_told;
}

static void watch(void)
{
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET};

        edges = epoll_create1(0);
        epoll_ctl(edges, EPOLL_CTL_ADD, now.fd, &ev);
        edges_told = edges_seen = 0;
        look_at_edges();
        edges_told = edges_seen;
        edges_seen = 0;
}

static int other_by_exec(enum way way, pid_t *pid)
{
        char *argv[] = {"shim_shared", "--other", NULL, NULL, NULL};
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
        argv[2] = n[0];
        argv[3] = n[1];
        fflush(stdout);
        if (way == SPAWN && posix_spawn(pid, "/proc/self/exe", NULL, NULL, argv, environ) != 0)
                die("posix_spawn");
        if (way == EXEC && (*pid = fork()) == 0) {
                execv("/proc/self/exe", argv);
                _exit(1);
        }
        close(s[1]);
        return s[0];
}

static int other_by(enum way way, pid_t *pid)
{
        *pid = 0;
        if (way == CHILD_CALLS || way == PARENT_CALLS || way == WATCHED)
                return other_by_fork(pid);
        if (way == EXEC || way == SPAWN)
                return other_by_exec(way, pid);
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

        now.undone = call_undoes(call) || (first >= 0 && call_undoes(first));
        set_up(role);
        s = other_by(way, &pid);
        if (way == DUP) {
                int d = dup(now.fd);

                close(now.fd);
                now.fd = d;
        } else {
                order(s, 'f', 0, way == PASSED ? now.fd : -1, unused);
        }
        if (way == WATCHED)
                watch();
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
                look_at_edges();
                snprintf(line, sizeof(line), "%s: %s | here %s | there %s | peer %s | edges %x",
                         name, result, mine, others, peers, edges_seen);
        } while (expected && strcmp(line, expected) != 0 && ms_now() < until);
        puts(line);
        if (way == WATCHED)
                close(edges);
        edges = -1;
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

/* They come in the order of the file; NULL: this one is not to be as there, "NAME: ?". */
static const char *next_expected(const char *name)
{
        char *line = lines, *end = line ? strchr(line, '\n') : NULL;

        while (end) {
                *end = 0;
                lines = end + 1;
                if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
                        return strcmp(line + strlen(name), ": ?") == 0 ? NULL : line;
                line = lines;
                end = strchr(line, '\n');
        }
        return NULL;
}

/* Not all of them together: that would be as much again, and differs in nothing. */
static bool is_played(enum way way, int role, int first, int call)
{
        bool wide = !roles[role].narrow && !calls[call].narrow;

        if (roles[role].udp && first >= 0 && strcmp(calls[first].name, "connect") == 0)
                return false;
        /* glibc counts its aio threads. A forked child inherits the count and not the threads, and
         * waits for ever: only processes that do not fork afterwards call aio. */
        if (call_makes_threads(call) && way != CHILD_CALLS && way != PASSED && way != EXEC)
                return false;
        if (way == DUP || way == WATCHED)
                return first < 0;
        if (way == SPAWN)
                return first < 0 && wide;
        if (way == EXEC && first >= 0)
                return wide && (call_closes(first) || strcmp(calls[first].name, "connect") == 0);
        if (first >= 0 && way == CHILD_CALLS && call_closes(first))
                return !calls[call].narrow;
        return first < 0 || wide;
}

static uint32_t one_of = 1; /* UNET_SHARED_OF: one scene of so many is played, by its name */

static bool is_in_part(const char *name)
{
        uint32_t h = 2166136261u; /* FNV-1a */

        for (; *name; name++)
                h = (h ^ (uint8_t)*name) * 16777619u;
        return (h >> 8) % one_of == 0;
}

static void play_named(enum way way, int role, int first, int call, const char *only)
{
        char name[128];

        snprintf(name, sizeof(name), "%s %s %s%s%s", ways[way], roles[role].name,
                 first < 0 ? "" : calls[first].name, first < 0 ? "" : ", ", calls[call].name);
        if (only ? strstr(name, only) != NULL : is_in_part(name))
                play(name, role, way, first, call, next_expected(name));
}

static void play_all(const char *only)
{
        for (int way = DUP; way <= WATCHED; way++)
                for (int role = 0; role < (int)nroles; role++)
                        for (size_t b = 0; b < ARRAY_LEN(before); b++)
                                for (int c = 0, first = call_named(before[b]); c < (int)ncalls; c++)
                                        if (is_played((enum way)way, role, first, c))
                                                play_named((enum way)way, role, first, c, only);
}

int main(int argc, char **argv)
{
        int s[2];

        signal(SIGPIPE, SIG_IGN);
        calls_begin();
        if (argc == 4 && strcmp(argv[1], "--other") == 0)
                other(atoi(argv[2]), atoi(argv[3]));
        if (argc == 3 && strcmp(argv[1], "--send") == 0)
                return send(atoi(argv[2]), "call", 4, MSG_NOSIGNAL) < 0 ? errno : 200;
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
        if (getenv("UNET_SHARED_OF") && atoi(getenv("UNET_SHARED_OF")) > 0)
                one_of = (uint32_t)atoi(getenv("UNET_SHARED_OF"));
        play_all(argc > 3 ? argv[3] : NULL);
        return 0;
}
