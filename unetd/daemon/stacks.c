/* Stacks and their processes. They are registered here and kept by the keeper; unetd frees a stack
 * when the keeper says so. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memfd.h"
#include "unetd/daemon/chans.h"
#include "unetd/daemon/clients.h"
#include "unetd/daemon/daemon.h"
#include "unetd/daemon/discard.h"
#include "unetd/daemon/links.h"
#include "unetd/daemon/ports.h"
#include "unetd/daemon/replay.h"
#include "unetd/daemon/shares.h"
#include "unetd/daemon/stacks.h"
#include "unetd/daemon/users.h"
#include "unetd/monitor/monitor.h"
#include "unet/bell_fd.h"
#include "unetd/client/fdcheck.h"
#include "unetd/client/wire.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* ---- finding ---- */

struct stack *stack_find(uint32_t id)
{
        struct stack *st;

        LIST_FOREACH (st, &unetd.stacks[id % STACK_BUCKETS], link)
                if (st->id == id && st->state != STACK_LOST)
                        return st;
        return NULL;
}

int stack_of(struct user *u, uint32_t id, struct stack **out)
{
        struct stack *st = stack_find(id);

        if (!st)
                return -ENOENT;
        if (st->user != u)
                return -EPERM;
        *out = st;
        return 0;
}

/* Returns true if a keeper may bring back a stack that there is not. The client of another unetd's
 * may be here before its keeper. */
static bool may_be_brought(struct client *cl)
{
        struct user *u = cl->user;

        if (u->keeper_state == KEEPER_NONE && cl->has_keeper)
                user_need_keeper(u, true);
        return u->keeper_state == KEEPER_AWAITED || u->offers || u->hand_overs > 0;
}

int stack_for(struct client *cl, uint32_t id, struct stack **out)
{
        int r = stack_of(cl->user, id, out);

        if (r == -ENOENT && may_be_brought(cl))
                return -EAGAIN;
        return r == 0 && (*out)->from ? -EAGAIN : r;
}

static bool is_number_of(const struct user *u, uint32_t id)
{
        return id != 0 && id - unetd_stacks_of(u->uid) < UNETD_STACKS_OF_USER;
}

/* Returns a new stack number; 0: none is left. A user's numbers go up from a random start: so none
 * is used again soon, and no other user can influence them. */
static uint32_t new_id(struct user *u)
{
        for (uint32_t i = 0; i < UNETD_STACKS_OF_USER; i++) {
                uint32_t id = unetd_stacks_of(u->uid) + ++u->next_stack % UNETD_STACKS_OF_USER;
                if (id != 0 && !stack_find(id))
                        return id;
        }
        return 0;
}

/* ---- processes ---- */

/* Returns the client's pidfd: SO_PEERPIDFD, or, on older kernels, by the process's number. */
static int peer_pidfd(const struct client *cl)
{
        int fd;
        socklen_t len = sizeof fd;

        if (getsockopt(cl->conn.src.fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0)
                return fd;
        fd = cl->pid > 0 ? pidfd_open(cl->pid, 0) : -1;
        return fd < 0 ? -ESRCH : fd;
}

static bool pidfd_dead(int pidfd)
{
        struct pollfd p = {.fd = pidfd, .events = POLLIN};

        return poll(&p, 1, 0) > 0;
}

/* Returns the pidfd of another process, which must be the same user's. The monitor reads its owner;
 * the pidfd, still alive after that, proves that the number was not reused. */
static int other_pidfd(const struct client *cl, int32_t pid)
{
        int fd = pidfd_open(pid, 0);
        struct root_process p;

        if (fd < 0)
                return errno == EMFILE || errno == ENFILE ? -errno : -ESRCH;
        monitor_process(pid, 0, &p);
        if (p.is_there && !pidfd_dead(fd)) {
                if (p.uid == cl->user->uid)
                        return fd;
                close(fd);
                return -EPERM;
        }
        close(fd);
        return -ESRCH;
}

/* Returns true if the descriptor is a pidfd. For other kinds fdinfo may be long, or ask other
 * processes: only a pidfd's is read. */
static bool is_pidfd(int fd)
{
        char name[32];

        return fd_link(fd, name, sizeof name) > 0 &&
               (strcmp(name, "anon_inode:[pidfd]") == 0 || strncmp(name, "pidfd:[", 7) == 0);
}

/* Returns the number, in our PID namespace, of the process that a pidfd names. */
static int32_t pid_of(int pidfd)
{
        char path[48], text[256];
        const char *line;
        ssize_t n;
        int fd, pid;

        if (!is_pidfd(pidfd))
                return -EBADMSG;
        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (fd >= 0)
                close(fd);
        text[MAX(n, 0)] = 0;
        line = strstr(text, "\nPid:\t");
        pid = line ? atoi(line + 6) : 0;
        return pid > 0 ? pid : -ESRCH;
}

static struct proc *proc_find(const struct stack *st, uint32_t slot)
{
        struct proc *p;

        LIST_FOREACH (p, &st->procs, link)
                if (p->slot == slot)
                        return p;
        return NULL;
}

/* Takes pidfd, also on failure. */
static int proc_new(struct stack *st, uint32_t slot, int32_t pid, int pidfd)
{
        struct proc *p = NULL;

        assert(pidfd >= 0 && slot < UNETD_SLOTS_MAX);
        assert(!proc_find(st, slot));
        if (st->user->used.procs < unetd.cfg.per_uid.procs && share_may_hold(st->user, 1))
                p = calloc(1, sizeof *p);
        if (!p) {
                close(pidfd);
                return -EDQUOT;
        }
        *p = (struct proc){.slot = slot, .pid = pid, .pidfd = pidfd};
        st->user->used.procs++;
        LIST_INSERT_HEAD(&st->procs, p, link);
        return 0;
}

static void proc_free(struct stack *st, struct proc *p)
{
        assert(p->pidfd >= 0);
        LIST_REMOVE(p, link);
        assert(st->user->used.procs != 0);
        st->user->used.procs--;
        close(p->pidfd);
        free(p);
}

static struct ask *ask_proc(struct stack *st, uint16_t type, const struct proc *p)
{
        struct unetd_msg msg = {.type = type,
                                .stack = {.stack = st->id, .slot = p->slot, .pid = p->pid}};
        struct ask *a = ask_send(st->user, &msg, &p->pidfd, type == UNETD_K_PROC ? 1 : 0);

        if (a) {
                a->stack = st->id;
                a->slot = p->slot;
        }
        return a;
}

/* Lets the request wait for the keeper's answer; a NULL: there was no memory to ask. */
static int await(const struct stack *st, struct waiter *w, struct ask *a)
{
        if (a) {
                a->stack = st->id;
                a->waiter = w;
                w->ask = a;
        } else {
                waiter_end(w, -ENOMEM);
        }
        return REPLY_LATER;
}

/* Asks the keeper about a process, and lets the request wait for the answer. */
static int wait_proc(struct client *cl, struct stack *st, uint16_t type, const struct proc *p,
                     const struct unetd_msg *request)
{
        struct waiter *w;
        int r;

        assert(p != NULL && st->user == cl->user);
        if (st->user->nasks >= ASKS_MAX || (type == UNETD_K_PROC && !share_may_hold(st->user, 1)))
                return -EDQUOT;
        r = waiter_new(cl, request, &w);
        if (r < 0)
                return r;
        return await(st, w, ask_proc(st, type, p));
}

/* -EBUSY if the slot belongs to another process; 0, with *known if it is this process's already. */
static int check_slot(const struct stack *st, uint32_t slot, int32_t pid, struct proc **known)
{
        *known = proc_find(st, slot);
        if (!*known)
                return 0;
        return (*known)->pid == pid && !pidfd_dead((*known)->pidfd) ? 0 : -EBUSY;
}

static int proc_register(struct client *cl, struct stack *st, const struct unetd_msg *msg)
{
        int32_t pid = msg->stack.pid ? msg->stack.pid : cl->pid;
        uint32_t slot = msg->stack.slot;
        struct unetd_msg reply = *msg;
        struct proc *p;
        int r, pidfd;

        if (slot >= UNETD_SLOTS_MAX || pid < 0)
                return -EINVAL;
        r = check_slot(st, slot, pid, &p);
        if (r < 0)
                return r;
        if (!p) {
                pidfd = msg->stack.pid ? other_pidfd(cl, pid) : peer_pidfd(cl);
                if (pidfd < 0)
                        return pidfd;
                r = proc_new(st, slot, pid, pidfd);
                if (r < 0)
                        return r;
                p = proc_find(st, slot);
        }
        reply.stack.pid = pid;
        return wait_proc(cl, st, UNETD_K_PROC, p, &reply);
}

int stack_proc_add(struct client *cl, struct wire_in *in)
{
        struct stack *st;
        int r = stack_for(cl, in->msg.stack.stack, &st);

        if (r < 0)
                return r;
        if (in->n > 1)
                return -EBADMSG;
        if (in->n == 1 && (r = in->msg.stack.pid = pid_of(in->fds[0])) < 0)
                return r;
        return st->state == STACK_UP ? proc_register(cl, st, &in->msg) : -ENOENT;
}

/* Frees the client's own slot, of a former image, or a dead child's. The slot may have been given
 * to another process meanwhile. */
int stack_proc_del(struct client *cl, struct wire_in *in)
{
        struct stack *st;
        struct proc *p;
        int r = stack_for(cl, in->msg.stack.stack, &st);

        if (r < 0)
                return r;
        p = proc_find(st, in->msg.stack.slot);
        if (!p || (p->pid != cl->pid && !pidfd_dead(p->pidfd)))
                return -ENOENT;
        return wait_proc(cl, st, UNETD_K_PROC_DEL, p, &in->msg);
}

/* Passes a kernel socket on to the keeper, if it has the cookie that the client names. Its answer
 * is the client's: who dies before has not watched it. A keeper that is stopped will. */
int stack_flight(struct client *cl, struct wire_in *in)
{
        struct unetd_msg msg = {.type = UNETD_K_FLIGHT, .stack = in->msg.stack};
        uint64_t cookie = 0;
        socklen_t len = sizeof cookie;
        struct waiter *w;
        struct stack *st;
        int r = stack_for(cl, in->msg.stack.stack, &st);

        if (r < 0)
                return r;
        if (in->n != 1 || cl->user->keeper_state != KEEPER_RUNS)
                return in->n != 1 ? -EBADMSG : -EAGAIN;
        if (!share_may_hold(cl->user, 1) || cl->user->nasks >= ASKS_MAX)
                return -EDQUOT;
        if (getsockopt(in->fds[0], SOL_SOCKET, SO_COOKIE, &cookie, &len) < 0 || cookie == 0 ||
            cookie != in->msg.stack.cookie)
                return -EINVAL;
        if (user_keeper_silent(cl->user))
                return ask_send(cl->user, &msg, in->fds, 1) ? 0 : -ENOMEM;
        r = waiter_new(cl, &in->msg, &w);
        return r < 0 ? r : await(st, w, ask_send(cl->user, &msg, in->fds, 1));
}

/* ---- stacks ---- */

/* Checks that unetd can ring the bell. 0 or a negative errno. */
static int check_bell(int bell, int ringer)
{
        int ours;

        if (!bell_is_ringer(ringer, bell))
                return -EINVAL;
        ours = bell_ringer(bell);
        if (ours >= 0)
                close(ours);
        return MIN(ours, 0);
}

/* Replaces the stack's descriptor by one that only reads: an attacker who takes unetd over must not
 * write into stacks. Their owner must be able to. */
static int give_up_writing(int *state, const struct user *u)
{
        int seals = fcntl(*state, F_GET_SEALS), r, reader;

        if (seals >= 0 && seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
                return -EPERM;
        r = unet_memfd_check(*state, 0, true, UNET_MEMFD_ANYBODY);
        if (r < 0)
                return unet_memfd_check(*state, 0, false, u->uid);
        reader = fd_reopen(*state, O_RDONLY);
        if (reader < 0)
                return reader;
        close(*state);
        *state = reader;
        return 0;
}

/* Checks the descriptors of a stack. */
static int check_fds(struct wire_in *in, const struct user *u)
{
        int r;

        if ((r = give_up_writing(&in->fds[UNETD_FD_STATE], u)) < 0 ||
            (r = unet_memfd_check(in->fds[UNETD_FD_BELL], BELL_BYTES, true, UNET_MEMFD_ANYBODY)) <
                    0)
                return r;
        r = check_bell(in->fds[UNETD_FD_LEADER], in->fds[UNETD_FD_RING_LEADER]);
        return r < 0 ? r : check_bell(in->fds[UNETD_FD_KEEPER], in->fds[UNETD_FD_RING_KEEPER]);
}

/* Compares the memory, not the number: the number may have been given to another stack meanwhile.
 */
static bool is_same(const struct stack *st, const struct wire_in *in)
{
        return unet_memfd_same(st->fds[UNETD_FD_STATE], in->fds[UNETD_FD_STATE]);
}

static struct stack *stack_alloc(struct user *u, uint32_t id, int32_t pid, struct wire_in *in)
{
        struct stack *st = calloc(1, sizeof *st);

        assert(id != 0 && !stack_find(id));
        assert(in->n == UNETD_STACK_FDS);
        if (!st)
                return NULL;
        st->id = id;
        st->user = u;
        st->pid = pid;
        for (unsigned i = 0; i < UNETD_STACK_FDS; i++)
                st->fds[i] = wire_in_take(in, i);
        LIST_INSERT_HEAD(&unetd.stacks[id % STACK_BUCKETS], st, link);
        u->used.stacks++;
        unetd.nstacks++;
        return st;
}

void stack_free(struct stack *st)
{
        struct proc *p;

        replay_forget(st);
        chans_stack_gone(st);
        links_free(st);
        ports_free(st);
        while ((p = LIST_FIRST(&st->procs)))
                proc_free(st, p);
        discard(st->user, st->fds, UNETD_STACK_FDS, false);
        LIST_REMOVE(st, link);
        assert(st->user->used.stacks != 0 && unetd.nstacks != 0);
        assert(LIST_EMPTY(&st->ends) && LIST_EMPTY(&st->links) && LIST_EMPTY(&st->room));
        assert(LIST_EMPTY(&st->listeners) && LIST_EMPTY(&st->holds) && LIST_EMPTY(&st->leases));
        st->user->used.stacks--;
        unetd.nstacks--;
        free(st);
}

/* Hands the stack to the keeper: its descriptors, and its first process if there is one. */
static struct ask *ask_stack(struct stack *st)
{
        struct unetd_msg msg = {.type = UNETD_K_STACK,
                                .stack = {.stack = st->id, .uid = st->user->uid}};
        const struct proc *p = LIST_FIRST(&st->procs), *other;
        int fds[UNETD_STACK_FDS + 1];
        struct ask *a;

        for (other = p ? LIST_NEXT(p, link) : NULL; other; other = LIST_NEXT(other, link))
                msg.stack.procs++;
        memcpy(fds, st->fds, sizeof st->fds);
        if (p) {
                msg.stack.slot = p->slot;
                msg.stack.pid = p->pid;
                fds[UNETD_STACK_FDS] = p->pidfd;
        }
        a = ask_send(st->user, &msg, fds, UNETD_STACK_FDS + (p ? 1 : 0));
        if (a)
                a->stack = st->id;
        return a;
}

/* Registers a stack with the keeper first; its answer is the client's. */
static int stack_register(struct client *cl, struct wire_in *in, int pidfd)
{
        struct stack *st = stack_alloc(cl->user, in->msg.stack.stack, cl->pid, in);
        struct waiter *w;
        struct ask *a;
        int r;

        assert(pidfd >= 0 && in->n == UNETD_STACK_FDS);
        if (!st) {
                close(pidfd);
                return -ENOMEM;
        }
        r = proc_new(st, in->msg.stack.slot, cl->pid, pidfd);
        in->msg.stack.pid = cl->pid;
        if (r == 0)
                r = user_need_keeper(st->user, cl->has_keeper);
        if (r == 0)
                r = waiter_new(cl, &in->msg, &w);
        if (r < 0) {
                stack_free(st);
                return r;
        }
        a = ask_stack(st);
        if (!a) {
                waiter_end(w, -ENOMEM);
                stack_free(st);
                return REPLY_LATER;
        }
        a->waiter = w;
        w->ask = a;
        return REPLY_LATER;
}

int stack_new(struct client *cl, struct wire_in *in)
{
        struct stack *known = stack_find(in->msg.stack.stack);
        int r, pidfd;

        if (in->n != UNETD_STACK_FDS)
                return -EBADMSG;
        if (in->msg.stack.slot >= UNETD_SLOTS_MAX ||
            (in->msg.stack.stack != 0 && !is_number_of(cl->user, in->msg.stack.stack)))
                return -EINVAL;
        r = check_fds(in, cl->user);
        if (r < 0)
                return r;
        in->msg.stack.pid = 0;
        if (in->msg.stack.stack != 0 && known) { /* the keeper brought it back before */
                if (known->user != cl->user || !is_same(known, in))
                        return -EEXIST;
                return known->from ? -EAGAIN : proc_register(cl, known, &in->msg);
        }
        if (in->msg.stack.stack == 0 && cl->user->keeper_state == KEEPER_AWAITED)
                return -EEXIST; /* the keeper has not said yet which numbers are taken */
        if (user_keeper_silent(cl->user))
                return -ETIMEDOUT;
        if (cl->user->used.stacks >= unetd.cfg.per_uid.stacks ||
            !share_may_hold(cl->user, UNETD_STACK_FDS + 1) ||
            !share_keeper_may_hold(cl->user, UNETD_STACK_FDS + 1))
                return -EDQUOT;
        pidfd = peer_pidfd(cl);
        if (pidfd < 0)
                return pidfd;
        if (in->msg.stack.stack == 0)
                in->msg.stack.stack = new_id(cl->user);
        if (in->msg.stack.stack == 0) {
                close(pidfd);
                return -EDQUOT;
        }
        return stack_register(cl, in, pidfd);
}

/* ---- what the keeper answers ---- */

static void attach_answered(struct stack *st, int err)
{
        if (err == 0 && st->state == STACK_ATTACHING)
                st->state = STACK_UP;
        else if (err != 0 && (st->state == STACK_ATTACHING || err != -EAGAIN))
                stack_free(st);
}

static void proc_answered(struct stack *st, const struct ask *a, int err)
{
        struct proc *p = proc_find(st, a->slot);

        if (p && (a->type == UNETD_K_PROC_DEL ? err == 0 : err != 0 && err != -EAGAIN))
                proc_free(st, p);
}

void stack_answered(struct user *u, struct ask *a, int err)
{
        struct waiter *w = a->waiter;
        struct stack *st;

        if (stack_of(u, a->stack, &st) < 0)
                err = -ENOENT;
        else if (a->type == UNETD_K_STACK)
                attach_answered(st, err);
        else if (a->type != UNETD_K_FLIGHT)
                proc_answered(st, a, err);
        if (w)
                waiter_end(w, err);
}

/* ---- what the keeper says unasked ---- */

void stack_proc_gone(struct user *u, const struct unetd_msg *msg)
{
        struct stack *st;
        struct proc *p;

        if (stack_of(u, msg->stack.stack, &st) < 0)
                return;
        p = proc_find(st, msg->stack.slot);
        if (p)
                proc_free(st, p);
}

void stack_orphan(struct user *u, const struct unetd_msg *msg)
{
        struct stack *st;

        if (stack_of(u, msg->stack.stack, &st) < 0 || !LIST_EMPTY(&st->procs))
                return;
        st->state = STACK_ORPHAN;
        ports_stop_listening(st);
}

void stack_gone(struct user *u, const struct unetd_msg *msg)
{
        struct stack *st;

        if (stack_of(u, msg->stack.stack, &st) == 0)
                stack_free(st);
}

/* ---- a keeper that outlived its unetd, a unetd that outlived its keeper ---- */

void stack_offered(struct user *u, const struct client *from, struct wire_in *in)
{
        struct stack *st = stack_find(in->msg.stack.stack);

        if (in->n != UNETD_STACK_FDS || !is_number_of(u, in->msg.stack.stack) ||
            check_fds(in, u) < 0)
                return;
        if (st && (st->user != u || !is_same(st, in)))
                return;
        if (!st && u->used.stacks < unetd.cfg.per_uid.stacks &&
            share_may_hold(u, UNETD_STACK_FDS)) {
                st = stack_alloc(u, in->msg.stack.stack, in->msg.stack.pid, in);
                if (st)
                        st->state = STACK_UP;
        }
        if (st)
                st->from = from;
}

void proc_offered(struct user *u, struct wire_in *in)
{
        struct stack *st;

        if (in->n == 1 && in->msg.stack.slot < UNETD_SLOTS_MAX &&
            stack_of(u, in->msg.stack.stack, &st) == 0 && fdcheck_pidfd(in->fds[0]) == 0 &&
            !proc_find(st, in->msg.stack.slot))
                proc_new(st, in->msg.stack.slot, in->msg.stack.pid, wire_in_take(in, 0));
}

void stack_tell(struct stack *st)
{
        struct proc *p, *first = LIST_FIRST(&st->procs);

        ask_stack(st);
        LIST_FOREACH (p, &st->procs, link)
                if (p != first)
                        ask_proc(st, UNETD_K_PROC, p);
        links_replay(st);
}
