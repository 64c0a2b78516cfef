/*
 * Closing what another user made. close() may take as long as that user likes:
 *
 *   a socket       its last close waits for unsent data, as long as SO_LINGER says
 *   a file         on FUSE it is flushed, which waits for the file system's owner
 *   a pipe         close() takes its lock; a writer holds it while it copies from FUSE's memory
 *   a Unix socket  close() closes everything that is unread in it
 *
 * unetd must not wait for another user. A child process that shares unetd's descriptor table does
 * the closing: one child at a time for each user, and one for all users of whom unetd keeps no
 * record. What comes meanwhile is for the next child. unetd stops reading from a user who sends
 * UNWANTED_MAX descriptors that nobody asked for and keeps them from being closed.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "unetd/daemon/clients.h"
#include "unetd/daemon/daemon.h"
#include "unetd/daemon/discard.h"
#include "unetd/daemon/users.h"

#define UNWANTED_MAX 64u
#define WAITING_MAX  4096u
/* unetd tries again after this when it could not make a child: for want of memory, or by the limit
 * of processes. */
#define AGAIN       (100 * NS_PER_MS)
#define QUICK_BYTES (64u << 20) /* freeing more memory than that takes long */

static struct trash strangers = {.child = {.fd = -1}};

/* Returns true if close() is quick: of a memory file. Only memory files have seals; the text of
 * /proc/self/fd is their owner's to choose. */
static bool quick(int fd)
{
        struct stat st;

        return fd < 0 || (fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &st) == 0 &&
                          (uint64_t)st.st_size <= QUICK_BYTES);
}

/* Shuts the connection down, and returns true if it is empty. A message without a byte is
 * recognised by its sender's credentials. */
static bool ends_empty(int conn)
{
        char ctl[CMSG_SPACE(sizeof(struct ucred))], byte;
        struct iovec iov = {&byte, 1};
        struct msghdr m = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof ctl};
        int on = 1;

        return setsockopt(conn, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0 &&
               shutdown(conn, SHUT_RDWR) == 0 &&
               recvmsg(conn, &m, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC) == 0 &&
               m.msg_controllen == 0;
}

/* Makes a child with our descriptor table, which closes them. Returns its pidfd, or a negative
 * errno. */
static int close_in_child(const int *fds, unsigned n)
{
        int pidfd = -1;
        long pid = syscall(SYS_clone, CLONE_FILES | CLONE_PIDFD | SIGCHLD, NULL, &pidfd, NULL, 0);

        if (pid == 0) {
                /* The shared table holds our listening socket: the child must not outlive us. */
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                fds_close(fds, n);
                _exit(0);
        }
        return pid < 0 ? -errno : pidfd;
}

/* NULL: strangers'. */
static const struct user *user_of(const struct trash *t)
{
        return t == &strangers
                       ? NULL
                       : (const struct user *)((const char *)t - offsetof(struct user, trash));
}

static void next_child(struct trash *t)
{
        int pidfd;

        assert(t->child.fd < 0);
        if (t->n == 0) {
                t->unwanted = 0;
                return;
        }
        pidfd = close_in_child(t->fd, t->n);
        if (pidfd < 0) {
                if (t->again == 0)
                        user_log(user_of(t), "no child to close %u descriptors, tried again: %s",
                                 t->n, strerror(-pidfd));
                t->again = unetd.loop.now + AGAIN;
                return;
        }
        t->again = 0;
        t->in_child = t->n;
        t->n = 0; /* the child closes them, whatever follows */
        t->child.fd = pidfd;
        if (loop_add(&unetd.loop, &t->child, EPOLLIN) < 0) {
                user_log(user_of(t),
                         "the end of a child that closes descriptors is not waited for: %s",
                         strerror(errno));
                close(pidfd);
                t->child.fd = -1;
                t->in_child = 0;
        }
}

static bool is_busy(const struct trash *t)
{
        return t->child.fd >= 0 || t->n > 0;
}

static void all_closed(const struct trash *t)
{
        struct waiter *w = TAILQ_FIRST(&unetd.waiters), *next;

        assert(!is_busy(t));
        for (; w; w = next) {
                next = TAILQ_NEXT(w, link);
                if (w->discard && &w->client->user->trash == t)
                        waiter_end(w, 0);
        }
}

static void child_done(struct loop_source *s, uint32_t events)
{
        struct trash *t = (struct trash *)s;
        int pidfd = s->fd;

        loop_del(&unetd.loop, s);
        close(pidfd);
        t->in_child = 0;
        next_child(t);
        if (!is_busy(t))
                all_closed(t);
}

int discarded(struct client *cl, const struct unetd_msg *request)
{
        struct waiter *w;
        int r;

        if (!discard_busy(cl->user))
                return 0;
        r = waiter_new(cl, request, &w);
        if (r < 0)
                return r;
        w->discard = true;
        return REPLY_LATER;
}

void discard_init(struct user *u)
{
        u->trash = (struct trash){.child = {.fd = -1, .ready = child_done}};
}

bool discard_stuck(const struct user *u)
{
        return u->trash.unwanted >= UNWANTED_MAX || u->trash.n >= WAITING_MAX;
}

bool discard_busy(const struct user *u)
{
        return is_busy(&u->trash);
}

static bool keep(struct trash *t, int fd)
{
        assert(fd >= 0 && t->n <= t->cap);
        if (t->n == t->cap) {
                uint32_t cap = t->cap ? 2 * t->cap : 64;
                int *more = realloc(t->fd, cap * sizeof *more);

                if (!more)
                        return false;
                t->fd = more;
                t->cap = cap;
        }
        t->fd[t->n++] = fd;
        return true;
}

/* Makes a child, if none is at work. */
static void begin(struct trash *t)
{
        if (t->child.fd < 0 && t->again <= unetd.loop.now)
                next_child(t);
}

/* A private unetd closes at once: its one user's processes trust each other. */
void discard(struct user *u, const int *fds, unsigned n, bool unwanted)
{
        struct trash *t = &u->trash;

        for (unsigned i = 0; i < n; i++) {
                if (!unetd.cfg.shared || quick(fds[i]) || !keep(t, fds[i]))
                        fds_close(&fds[i], 1);
                else if (unwanted)
                        t->unwanted++;
        }
        begin(t);
}

void discard_strange(const int *fds, unsigned n)
{
        strangers.child.ready = child_done;
        for (unsigned i = 0; i < n; i++)
                if (quick(fds[i]) || !keep(&strangers, fds[i]))
                        close(fds[i]);
        begin(&strangers);
}

void discard_refused(struct user *u, int conn)
{
        struct trash *t = u ? &u->trash : &strangers;

        t->child.ready = child_done;
        if (ends_empty(conn) || !keep(t, conn))
                close(conn);
        else
                begin(t);
}

static nstime try_again(struct trash *t)
{
        if (t->again == 0)
                return NSTIME_NEVER;
        begin(t);
        return t->again == 0 ? NSTIME_NEVER : t->again;
}

nstime discard_tick(void)
{
        nstime when = try_again(&strangers);
        struct user *u;

        LIST_FOREACH (u, &unetd.users, link)
                when = nstime_min(when, try_again(&u->trash));
        return when;
}
