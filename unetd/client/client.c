/*
 * The client's side: find a unetd, keep one connection to it and one to the keeper, ask and wait.
 *
 * Road of a call: unetd_chan_open() -> client_ask() -> client_ready() [connect, map the directory,
 * renewed()] -> client_exchange() -> wire_send(), wire_recv() until the reply with our number.
 */
#include "unetd/client/client_ask.h"

#include "base/sandbox.h"
#include "base/memfd.h"
#include "unetd/client/name.h"
#include "unetd/client/raised.h"
#include "unetd/client/start.h"
#include "unetd/client/stopped.h"
#include "unetd/client/sys.h"
#include "unetd/client/timens.h"
#include "unetd/client/wire.h"

#define BACKLOG_MS  200 /* how long names with a full backlog are waited for, together */
#define FIND_ROUNDS 3
#define ASK_ROUNDS  3
/* What unetd is not to be asked yet (-EAGAIN) it is asked again, with longer and longer pauses, for
 * UNETD_PATIENCE_MS; a hello so often: five seconds. */
#define AGAIN_TRIES   60
#define AGAIN_MS      5
#define AGAIN_MOST_MS 100

/* ---- one connection ---- */

static bool conn_ours(const struct unetd_conn *conn)
{
        struct statx st;

        return conn->fd > 0 && sys_statx(conn->fd, &st) == 0 && S_ISSOCK(st.stx_mode) &&
               st.stx_ino == conn->ino;
}

/* Closes it, unless the program has closed it before and given the number to something else. */
void client_drop(struct unetd_conn *conn)
{
        if (conn_ours(conn))
                sys_close(conn->fd);
        *conn = (struct unetd_conn){.fd = -1};
}

/* Takes a socket, non-blocking from now on, to process `pid`. */
static int conn_take(struct unetd_conn *conn, int fd, int32_t pid)
{
        struct statx st;
        int r;

        assert(fd >= 0);
        fd = fd_high(fd);
        if (fd < 0)
                return fd;
        r = sys_statx(fd, &st);
        if (r == 0)
                r = sys_fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
        if (r < 0) {
                sys_close(fd);
                return r;
        }
        *conn = (struct unetd_conn){.fd = fd, .pid = pid, .ino = st.stx_ino};
        return 0;
}

/* Waits for `events` so long. */
static int conn_wait(const struct unetd_conn *conn, short events, struct client_patience *p)
{
        for (;;) {
                int64_t left = MIN(p->look, p->end) - sys_now_ms();
                int r = left > 0 ? sys_poll1(conn->fd, events, (int)MIN(left, INT32_MAX)) : 0;

                if (r > 0 || (r < 0 && r != -EINTR))
                        return r > 0 ? 0 : r;
                if (left > 0)
                        continue;
                if (p->look >= p->end || process_is_stopped(conn->pid) ||
                    (p->by_itself && process_is_frozen(conn->pid, &p->ran)))
                        return -ETIMEDOUT;
                p->look += UNETD_TIMEOUT_MS;
        }
}

static int conn_send(const struct unetd_conn *conn, struct unetd_msg *msg, const int *fds,
                     unsigned n, struct client_patience *p)
{
        int r;

        while ((r = wire_send(conn->fd, msg, fds, n, 0)) == -EAGAIN)
                if ((r = conn_wait(conn, POLLOUT, p)) < 0)
                        return r;
        return r == -EPIPE || r == -ENOTCONN ? -ECONNRESET : r;
}

/* Receives the reply of number `seq`. Replies to questions that were given up are passed over. */
static int recv_reply(const struct unetd_conn *conn, uint32_t seq, struct wire_in *in,
                      struct client_patience *p)
{
        bool ours;
        int r;

        do {
                r = wire_recv_above(conn->fd, in, 0);
                ours = in->msg.seq == seq;
                if (r == -EAGAIN)
                        r = conn_wait(conn, POLLIN, p);
                else if (r != 0 || !ours)
                        wire_in_close(in);
        } while ((r == 0 || r == -EMFILE) && !ours);
        return r == -EBADMSG ? -EPROTO : r;
}

int client_exchange_until(struct unetd_client *c, struct unetd_conn *conn, struct unetd_msg *msg,
                          const int *fds, unsigned n, struct wire_in *in, struct client_patience p)
{
        int r;

        assert(n <= UNETD_FDS_MAX && conn->fd >= 0);
        assert(msg->type > UNETD_ERROR && msg->type < UNETD_TYPES && p.look <= p.end);
        if (conn->silent && sys_poll1(conn->fd, 0, 0) == 0 && process_is_stopped(conn->pid))
                return -ETIMEDOUT;
        msg->seq = ++c->seq;
        msg->err = 0;
        r = conn_send(conn, msg, fds, n, &p);
        if (r == 0)
                r = recv_reply(conn, msg->seq, in, &p);
        conn->silent = r == -ETIMEDOUT;
        if (r < 0)
                return r;
        r = in->msg.err;
        if (r > 0 || (in->msg.type != msg->type && in->msg.type != UNETD_ERROR))
                r = -EPROTO;
        if (r < 0)
                wire_in_close(in);
        return r;
}

static void wait_to_ask_again(int tries)
{
        sys_sleep_ms(MIN(tries * AGAIN_MS, AGAIN_MOST_MS));
}

static struct client_patience usual_patience(void)
{
        int64_t now = sys_now_ms();

        return (struct client_patience){.look = now + UNETD_TIMEOUT_MS,
                                        .end = now + UNETD_PATIENCE_MS};
}

int client_exchange(struct unetd_client *c, struct unetd_conn *conn, struct unetd_msg *msg,
                    const int *fds, unsigned n, struct wire_in *in)
{
        return client_exchange_until(c, conn, msg, fds, n, in, usual_patience());
}

/* ---- finding unetd ---- */

/* The system-wide names must be root's, the user's own names the user's or root's. Its pid, or a
 * negative errno. */
static int check_holder(int fd, uint32_t name_uid)
{
        struct ucred cred;
        socklen_t len = sizeof cred;
        int r = sys_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);

        if (r < 0)
                return r;
        return cred.uid == 0 || (cred.uid == name_uid && process_may_take_for(cred.uid))
                       ? MAX((int)cred.pid, 0)
                       : -EPERM;
}

/* Connects fd; the holder's pid, or a negative errno: -ECONNREFUSED when nobody has the name. i:
 * UNETD_NAMES: the system's file. */
static int connect_name(int fd, uint32_t uid, const char *domain, unsigned i, int64_t until)
{
        struct sockaddr_un sun;
        socklen_t len;
        int r;

        assert(i <= UNETD_NAMES);
        len = i < UNETD_NAMES ? unetd_name(&sun, uid, domain, i)
                              : unetd_system_name(&sun, domain, fd);
        while ((r = len == 0 ? -ECONNREFUSED : (int)sys3(SYS_connect, fd, &sun, len)) == -EAGAIN ||
               r == -EINTR) {
                if (sys_now_ms() > until)
                        break;
                sys_sleep_ms(1);
        }
        return r < 0 ? r : check_holder(fd, uid);
}

/* Puts the directory at c->dir: in place of the old one when there is one, so that readers never
 * see a hole. */
static int map_directory(struct unetd_client *c, int fd)
{
        struct statx st;
        void *p;

        if (sys_statx(fd, &st) < 0 || st.stx_size != sizeof(struct directory) ||
            unet_memfd_check(fd, sizeof(struct directory), false, UNET_MEMFD_ANYBODY) < 0)
                return -EPROTO;
        p = (void *)sys6(SYS_mmap, (long)c->dir, sizeof(struct directory), PROT_READ,
                         MAP_SHARED | (c->dir ? MAP_FIXED : 0), fd, 0);
        if (sys_is_err(p))
                return (int)(intptr_t)p;
        c->dir = p;
        return c->dir->magic == DIR_MAGIC ? 0 : -EPROTO;
}

/* No other will do. */
static bool system_only(const struct unetd_client *c)
{
        return c->shared || c->flags & UNETD_SYSTEM;
}

/* -EAGAIN: many other processes of the user have not read their answers yet. */
static int say_hello(struct unetd_client *c, struct unetd_conn *conn, struct wire_in *in)
{
        bool has_keeper = c->instance != 0 && !c->left;
        struct client_patience p = usual_patience();
        int r = -EAGAIN;

        p.by_itself = !has_keeper; /* or it may wait for that keeper */
        for (int tries = 0; r == -EAGAIN && tries < AGAIN_TRIES; tries++) {
                struct unetd_msg msg = {.type = UNETD_HELLO, .hello = {.abi = UNETD_ABI}};

                if (tries > 0)
                        wait_to_ask_again(tries);
                msg.hello.flags = has_keeper ? UNETD_HAS_KEEPER : 0;
                r = client_exchange_until(c, conn, &msg, NULL, 0, in, p);
        }
        return r == -EAGAIN ? -ETIMEDOUT : r;
}

static int hello(struct unetd_client *c, struct unetd_conn *conn)
{
        struct wire_in in;
        int r = say_hello(c, conn, &in);

        if (r < 0)
                return r;
        if (in.n != 1 || in.msg.hello.abi != UNETD_ABI)
                r = -EPROTO;
        else if (system_only(c) && !(in.msg.hello.flags & UNETD_SHARED))
                r = -EPERM;
        else if (in.msg.hello.instance != c->instance || !c->dir)
                r = map_directory(c, in.fds[0]);
        if (r == 0) {
                c->instance = in.msg.hello.instance;
                c->left = false;
                c->shared = in.msg.hello.flags & UNETD_SHARED;
        }
        wire_in_close(&in);
        return r;
}

/* One search: names are tried with one socket until it is connected. */
struct search {
        const char *domain;
        int64_t until;
        int fd; /* -1: the next name takes another */
};

static int socket_for(struct search *s)
{
        if (s->fd < 0)
                s->fd = (int)sys3(SYS_socket, AF_UNIX,
                                  SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        return s->fd;
}

static void end_search(struct search *s)
{
        if (s->fd >= 0)
                sys_close(s->fd);
        s->fd = -1;
}

static int try_name(struct unetd_client *c, struct search *s, uint32_t uid, unsigned i)
{
        struct unetd_conn conn;
        int fd = socket_for(s), r;

        if (fd < 0)
                return fd;
        r = connect_name(fd, uid, s->domain, i, s->until);
        if (r == -ECONNREFUSED || r == -ENOENT)
                return r;
        if (r < 0) {
                end_search(s);
                return r;
        }
        s->fd = -1;
        r = conn_take(&conn, fd, r);
        if (r < 0)
                return r;
        r = hello(c, &conn);
        if (r < 0) {
                client_drop(&conn);
                return r;
        }
        c->daemon = conn;
        c->found_uid = uid;
        c->found_name = i;
        return 0;
}

static bool is_settled(int r)
{
        return r == 0 || r == -EMFILE || r == -ENFILE;
}

/* The first that lets us in. -ETIMEDOUT: there is only one that would, and it does not answer;
 * another one would not take its place. */
static int try_names(struct unetd_client *c, struct search *s)
{
        uint32_t uids[2] = {0, sys_geteuid()};
        bool own = c->flags & UNETD_PRIVATE;
        int none = -ECONNREFUSED, r;

        r = own ? none : try_name(c, s, 0, UNETD_NAMES);
        if (is_settled(r))
                return r;
        for (unsigned u = own; u < (uids[1] == 0 || system_only(c) ? 1 : 2); u++) {
                for (unsigned i = 0; i < UNETD_NAMES; i++) {
                        r = try_name(c, s, uids[u], i);
                        if (is_settled(r))
                                return r;
                        if (r == -ETIMEDOUT && uids[u] == uids[1])
                                none = r;
                }
        }
        return none;
}

/* A child asks for its parent's first, by the name that the parent found it by. */
static int find_daemon(struct unetd_client *c)
{
        struct search s = {c->domain, sys_now_ms() + BACKLOG_MS, -1};
        bool known = c->instance != 0 && !c->left;
        int r = known ? try_name(c, &s, c->found_uid, c->found_name) : -ECONNREFUSED;

        if (!is_settled(r) && r != -ETIMEDOUT)
                r = try_names(c, &s);
        end_search(&s);
        return r;
}

static int find_or_start(struct unetd_client *c)
{
        int r;

        if (sys_now_ms() < c->silent_until)
                return -ETIMEDOUT;
        r = find_daemon(c);
        if (r == -ETIMEDOUT)
                c->silent_until = sys_now_ms() + UNETD_SILENT_MS;
        if (system_only(c) || c->flags & UNETD_NO_START)
                return r;
        for (int round = 0; round < FIND_ROUNDS && r == -ECONNREFUSED; round++) {
                int started = unetd_start(c->domain);
                if (started == -ENOENT || started == -EPERM)
                        return -ECONNREFUSED;
                r = find_daemon(c);
        }
        return r;
}

/* ---- asking ---- */

/* After fork the connections are the parent's: a child that used them would mix its requests with
 * the parent's. */
static void notice_fork(struct unetd_client *c)
{
        int32_t pid = sys_getpid();

        if (c->pid == pid)
                return;
        client_drop(&c->daemon);
        client_drop(&c->keeper);
        c->pid = pid;
}

int client_ready(struct unetd_client *c)
{
        uint64_t before = c->instance;
        int r;

        if (sandbox_forbids(SANDBOX_UNETD))
                return -EPERM;
        notice_fork(c);
        if (conn_ours(&c->daemon))
                return 0;
        c->daemon.fd = -1;
        r = find_or_start(c);
        if (r == 0 && before != 0 && before != c->instance && c->renewed && !c->renewing) {
                c->lost = false;
                c->renewing = true;
                c->renewed(c, c->arg);
                c->renewing = false;
                r = c->lost ? -ENOENT : 0; /* what is asked may be about that one */
        }
        return r;
}

int client_ask(struct unetd_client *c, struct unetd_msg *msg, const int *fds, unsigned n,
               struct wire_in *in)
{
        int64_t end = sys_now_ms() + UNETD_PATIENCE_MS;
        int r = -ECONNRESET, tries = 0;

        for (int round = 0; round < ASK_ROUNDS; round += r != -EAGAIN) {
                r = client_ready(c);
                if (r < 0)
                        return r;
                r = client_exchange(c, &c->daemon, msg, fds, n, in);
                if (r == -EPROTO || r == -ECONNRESET)
                        client_drop(&c->daemon);
                if (r != -ECONNRESET && r != -EAGAIN)
                        return r;
                if (r == -EAGAIN && sys_now_ms() >= end)
                        return -ETIMEDOUT;
                if (r == -EAGAIN)
                        wait_to_ask_again(++tries);
        }
        return r;
}

/* A request whose reply has no descriptors. */
int client_ask_plain(struct unetd_client *c, struct unetd_msg *msg, const int *fds, unsigned n)
{
        struct wire_in in;
        int r = client_ask(c, msg, fds, n, &in);

        if (r < 0)
                return r;
        *msg = in.msg;
        wire_in_close(&in);
        return 0;
}

static int keeper_ready(struct unetd_client *c)
{
        struct unetd_msg msg = {.type = UNETD_KEEPER_GET};
        struct wire_in in;
        int r;

        if (sandbox_forbids(SANDBOX_UNETD))
                return -EPERM;
        notice_fork(c);
        if (conn_ours(&c->keeper))
                return 0;
        c->keeper.fd = -1;
        r = client_ask(c, &msg, NULL, 0, &in);
        if (r < 0)
                return r;
        r = in.n == 1 ? conn_take(&c->keeper, wire_in_take(&in, 0), in.msg.stack.pid) : -EPROTO;
        wire_in_close(&in);
        return r;
}

/* A request whose reply carries descriptors; how many is the caller's to check. */
int client_ask_keeper(struct unetd_client *c, struct unetd_msg *msg, struct wire_in *in)
{
        int r = -ECONNRESET;

        for (int round = 0; round < ASK_ROUNDS && r == -ECONNRESET; round++) {
                r = keeper_ready(c);
                if (r < 0)
                        return r;
                r = client_exchange(c, &c->keeper, msg, NULL, 0, in);
                if (r == -EPROTO || r == -ECONNRESET)
                        client_drop(&c->keeper);
        }
        return r;
}

/* ---- the calls ---- */

int unetd_open(struct unetd_client *c, unsigned flags)
{
        const char *domain = unetd_domain();
        int r;

        assert(c->dir == NULL && !c->renewing);
        c->daemon.fd = c->keeper.fd = -1;
        if (!domain)
                return -EINVAL;
        if (process_is_raised())
                return -EPERM;
        strcpy(c->domain, domain);
        c->flags = flags;
        c->shared = false;
        c->instance = 0;
        timens_find();
        r = client_ready(c);
        if (r < 0)
                unetd_close(c);
        return r;
}

int unetd_look(struct unetd_client *c, bool start)
{
        uint32_t flags = c->flags;
        int r;

        if (c->instance == 0 || c->renewing || sandbox_forbids(SANDBOX_UNETD))
                return 0;
        if (c->pid == sys_getpid() && conn_ours(&c->daemon) && sys_poll1(c->daemon.fd, 0, 0) > 0)
                client_drop(&c->daemon); /* nobody is at the other end */
        c->flags |= start ? 0 : UNETD_NO_START;
        r = client_ready(c);
        c->flags = flags;
        return r;
}

void unetd_leave(struct unetd_client *c)
{
        client_drop(&c->daemon);
        client_drop(&c->keeper);
        c->left = true;
}

void unetd_close(struct unetd_client *c)
{
        assert(!c->renewing);
        client_drop(&c->daemon);
        client_drop(&c->keeper);
        if (c->dir)
                sys_munmap(c->dir, sizeof(struct directory));
        c->dir = NULL;
        c->instance = 0;
}
