/*
 * fork, exec and exit. The stack is in shared memory. A child goes on with the same connections,
 * under a process slot of its own. The references of its parent's slot are copied before either
 * runs on.
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/attach/ustack_link.h"
#include "sock/attach/ustack_wake.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"
#include "sock/usock_process.h"
#include "sock/wait/usock_wake.h"
#include "tcp/tcp_listen.h"
#include "unetd/client/wire.h"

#define PATIENCE_MS 1000 /* a parent waits no longer for its child to begin */
#define TRIES       100  /* 1 ms apart: slots of dead processes come back that soon */

static struct {
        struct ustack *all[USTACKS_MAX];
        uint32_t n;
        int slot[USTACKS_MAX]; /* reserved for the child, -1: none free */
        int begun[2];          /* pipe: the child has come to its stacks */
        /* The child cannot find unetd by its name: the parent registers it, and the pipe is a
         * socket. */
        bool by_parent;
        bool elsewhere; /* ... of the next one */
} forking;

static void wait_1ms(void)
{
        struct timespec ts = {0, NS_PER_MS};

        sys2(SYS_nanosleep, &ts, NULL);
}

static int reserve_slot(struct stack_state *st, uint32_t parent)
{
        int slot = ustack_take_slot(st, STACK_FORKING);

        if (slot >= 0)
                st->proc[slot].parent = parent;
        return slot;
}

static void copy_refs(struct ustack *u, uint32_t from, uint32_t to)
{
        assert(ustack_locked(u));
        assert(from != to && to < STACK_PROCS);
        FOR_SOCKS (u->s.st, i, rec)
                if (sock_held_by(u->s.st, rec, from))
                        sock_hold(u->s.st, rec, to);
}

/* Leaves the stack locked. */
static int reserve(struct ustack *u)
{
        int slot;

        ustack_lock(u);
        for (int i = 0; (slot = reserve_slot(u->s.st, u->slot)) < 0 && i < TRIES; i++) {
                ustack_unlock(u);
                wait_1ms();
                ustack_lock(u);
        }
        return slot;
}

/* A socket of the stack is this process's. */
static bool has_any(struct ustack *u)
{
        assert(ustack_locked(u));
        FOR_SOCKS (u->s.st, i, rec)
                if (sock_held_by(u->s.st, rec, u->slot))
                        return true;
        return false;
}

/* True: there is one for the fork that this thread is about to make, or will be looked for then, or
 * the child loses nothing without. */
static bool make_ready(struct ustack *u)
{
        bool may = true;
        int slot;

        if (READ_ONCE(u->nready) == USTACK_READY)
                return true;
        slot = reserve(u);
        if (slot >= 0 && u->nready < USTACK_READY)
                u->ready[u->nready++] = slot;
        else if (slot >= 0)
                atomic_store(&u->s.st->proc[slot].pid, 0);
        else
                may = !has_any(u);
        if (!may)
                count(&u->s.st->cnt, COUNT_STACK_FORKS_REFUSED);
        ustack_leave(u);
        return may;
}

static void give_back(struct ustack *u)
{
        ustack_lock(u);
        if (u->nready > 0)
                atomic_store(&u->s.st->proc[u->ready[--u->nready]].pid, 0);
        ustack_leave(u);
}

bool usock_fork_may(void)
{
        struct ustack *all[USTACKS_MAX];

        for (uint32_t i = 0, n = ustack_all(all); i < n; i++)
                if (!make_ready(all[i])) {
                        while (i > 0)
                                give_back(all[--i]);
                        return false;
                }
        return true;
}

/* Leaves the stack locked. */
static int reserve_ready(struct ustack *u)
{
        ustack_lock(u);
        if (u->nready > 0)
                return u->ready[--u->nready];
        ustack_unlock(u);
        return reserve(u);
}

/* Leaves the stack locked. */
static int prepare_stack(struct ustack *u)
{
        int slot = reserve_ready(u);

        ustack_settle(u);
        if (slot >= 0)
                copy_refs(u, u->slot, (uint32_t)slot);
        return slot;
}

void usock_fork_prepare(void)
{
        ustack_client(); /* nobody is in the middle of a question to unetd */
        forking.n = ustack_all(forking.all);
        forking.begun[0] = forking.begun[1] = -1;
        forking.by_parent = forking.elsewhere || usock_names_elsewhere();
        forking.elsewhere = false;
        if (forking.n > 0 && forking.by_parent)
                sys4(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, forking.begun);
        else if (forking.n > 0)
                sys2(SYS_pipe2, forking.begun, O_CLOEXEC);
        for (uint32_t i = 0; i < forking.n; i++)
                forking.slot[i] = prepare_stack(forking.all[i]);
}

/* True: it did not live to come to its stacks. */
static bool child_is_dead(void)
{
        struct pollfd p = {.fd = forking.begun[0], .events = POLLIN};
        struct timespec ts = {PATIENCE_MS / 1000, PATIENCE_MS % 1000 * NS_PER_MS};
        char byte;

        sys1(SYS_close, forking.begun[1]);
        if (sys5(SYS_ppoll, &p, 1, &ts, NULL, 0) <= 0)
                return false;
        if (forking.by_parent)
                return sys6(SYS_recvfrom, forking.begun[0], (long)&byte, 1, MSG_PEEK, 0, 0) == 0;
        return sys3(SYS_read, forking.begun[0], &byte, 1) == 0;
}

/* ---- a child that the parent registers ---- */

static int register_at(struct ustack *u, uint32_t slot, int pidfd)
{
        uint32_t none = STACK_FORKING;
        int32_t pid = 0;
        int err;

        for (int i = 0;
             (err = unetd_proc_add_fd(ustack_client_held(), u->id, slot, pidfd, &pid)) == -EBUSY &&
             i < TRIES;
             i++)
                wait_1ms();
        if (err == 0)
                atomic_compare_exchange_strong(&u->s.st->proc[slot].pid, &none, (uint32_t)pid);
        return err;
}

/* The child has said who it is. */
static void register_child(void)
{
        struct unetd_msg answer = {.type = UNETD_PROC_ADD};
        int err = -ETIMEDOUT;
        struct wire_in in;

        if (wire_recv(forking.begun[0], &in, MSG_DONTWAIT) == 0 && in.n == 1) {
                err = 0;
                for (uint32_t i = 0; i < forking.n; i++)
                        if (forking.slot[i] >= 0)
                                err |= register_at(forking.all[i], (uint32_t)forking.slot[i],
                                                   in.fds[0]);
        }
        answer.err = err != 0 ? -ECONNREFUSED : 0;
        wire_in_close(&in);
        wire_send(forking.begun[0], &answer, NULL, 0, 0);
}

/* Here in the child. False: unetd does not know of it. */
static bool is_registered(void)
{
        struct unetd_msg ask = {.type = UNETD_PROC_ADD};
        struct wire_in in = {.n = 0};
        int pidfd = (int)sys2(SYS_pidfd_open, sys1(SYS_getpid, 0), 0);
        bool known = pidfd >= 0 && wire_send(forking.begun[1], &ask, &pidfd, 1, 0) == 0 &&
                     wire_recv(forking.begun[1], &in, 0) == 0 && in.msg.err == 0;

        wire_in_close(&in);
        if (pidfd >= 0)
                sys1(SYS_close, pidfd);
        return known;
}

/* The references of a child that is no more, or of a former image. If unetd knows it, the keeper
 * ends them; it may have done so by itself, and the slot is somebody else's. */
static void forget_slot(struct ustack *u, uint32_t slot, uint32_t pid, uint32_t parent)
{
        const struct proc_slot *p = &u->s.st->proc[slot];

        if (unetd_proc_del(ustack_client_held(), u->id, slot) == 0)
                return;
        ustack_lock(u);
        if (atomic_load(&p->pid) == pid && (pid != STACK_FORKING || p->parent == parent))
                ustack_proc_gone(u, slot, ustack_now());
        ustack_leave(u);
}

/*
 * Waits until the child has come to its stacks. Otherwise a parent that exits right after its fork
 * (daemon(3)) would leave a stack without a known process. A child that is killed before would
 * leave references that nobody ends.
 */
void usock_fork_parent(void)
{
        for (uint32_t i = 0; i < forking.n; i++)
                ustack_leave(forking.all[i]);
        if (forking.begun[0] >= 0) {
                bool dead = child_is_dead();
                for (uint32_t i = 0; dead && i < forking.n; i++)
                        if (forking.slot[i] >= 0)
                                forget_slot(forking.all[i], (uint32_t)forking.slot[i],
                                            STACK_FORKING, forking.all[i]->slot);
                if (!dead && forking.by_parent)
                        register_child();
                sys1(SYS_close, forking.begun[0]);
        }
        ustack_client_done();
}

/* The slot's last process may be known to unetd for a moment longer. */
static int register_self(struct ustack *u, uint32_t slot)
{
        uint32_t none = STACK_FORKING;
        int err;

        assert(slot < STACK_PROCS);
        for (int i = 0;
             (err = unetd_proc_add(ustack_client(), u->id, slot, 0)) == -EBUSY && i < TRIES; i++) {
                ustack_client_done();
                wait_1ms();
        }
        if (err == 0)
                atomic_compare_exchange_strong(&u->s.st->proc[slot].pid, &none,
                                               (uint32_t)ustack_client_held()->self);
        ustack_client_done();
        return err;
}

/* Its number here is its number with unetd and the keeper, as its parent's is: which is known, or
 * marked for the keeper. Before u->unknown, the parent's, is the child's. */
static bool has_one_number(const struct ustack *u, uint32_t parent)
{
        const struct proc_slot *procs = u->s.st->proc;

        return parent < STACK_PROCS && (!u->unknown || atomic_load(&procs[parent].unknown) != 0) &&
               (uint32_t)getppid() == atomic_load(&procs[parent].pid);
}

/* Until it says who it is it dies as one that was never born: its parent sees to that. So what the
 * keeper is to know of it comes first. */
static void stay_unknown(struct ustack *u, bool by_keeper)
{
        uint32_t none = STACK_FORKING;

        if (by_keeper)
                ustack_is_unknown(u);
        if (by_keeper || !forking.by_parent)
                atomic_compare_exchange_strong(&u->s.st->proc[u->slot].pid, &none,
                                               (uint32_t)getpid());
}

static void come_to(struct ustack *u, uint32_t slot, bool registered)
{
        struct proc_slot *p = &u->s.st->proc[slot];
        bool one_number = has_one_number(u, p->parent);

        u->slot = slot;
        p->start = ustack_boot_ms();
        u->unknown = !registered && (forking.by_parent || register_self(u, slot) != 0);
        if (unlikely(u->unknown))
                stay_unknown(u, one_number);
}

/* The locks are the parent's, which lets go of them; the client of unetd opens its own connections
 * by itself. */
void usock_fork_child(void)
{
        bool registered = false;

        rlock_forked();
        ustack_forked();
        usock_wait_forked(true);
        if (forking.begun[0] >= 0 && forking.by_parent) {
                sys1(SYS_close, forking.begun[0]); /* a parent that dies is noticed */
                registered = is_registered();
        }
        for (uint32_t i = 0; i < forking.n; i++) {
                forking.all[i]->nready = 0; /* the parent's */
                ustack_links_forked(forking.all[i]);
                if (forking.slot[i] >= 0)
                        come_to(forking.all[i], (uint32_t)forking.slot[i], registered);
                else
                        ustack_lose(forking.all[i]);
        }
        if (forking.begun[0] >= 0) {
                if (!forking.by_parent) {
                        /* One that has gone on reads no more: this process's own end does. */
                        sys3(SYS_write, forking.begun[1], "", 1);
                        sys1(SYS_close, forking.begun[0]);
                }
                sys1(SYS_close, forking.begun[1]);
        }
}

void usock_fork_elsewhere(void)
{
        forking.elsewhere = true;
}

bool usock_netns_leaves(bool made_for_it)
{
        usock_netns_changes();
        return ustack_stays_with_unetd(made_for_it);
}

/* The process ends. Threads that go on may die inside: that is mended (tcp/tcp_mend.c). The keeper
 * sees the pidfd and does the rest. */
void usock_exit(void)
{
        FOR_USTACKS (u) {
                ustack_lock(u);
                ustack_settle(u);
                stack_run(&u->s, ustack_now());
                stack_flush_acks(&u->s, ustack_now());
                ustack_leave(u);
        }
}

/*
 * The image is replaced; the pid and its slot stay. The daemon unetd sees the connection of the old
 * image close, and the keeper sees that the process does not map the stack any more. Then all
 * references end but those kept. The new image takes those over, under a slot of its own; if it
 * never uses the library, they end with the process.
 */
void usock_exec(void)
{
        usock_exit();
        FOR_USTACKS (u) {
                ustack_lock(u);
                tcp_listen_forget(&u->s.tcp); /* the promiser is no more, with its pid */
                FOR_SOCKS (u->s.st, i, rec)
                        sock_set_kept(u->s.st, rec, u->slot, false);
                ustack_leave(u);
        }
}

void usock_survives(struct usock *s)
{
        ustack_lock(s->u);
        sock_set_kept(s->u->s.st, usock_rec(s), s->u->slot, true);
        ustack_leave(s->u);
}

void usock_found_by_image(void)
{
        ustack_daemon_knows();
}

/* By the number that unetd has for it. */
static uint32_t own_pid(const struct ustack *u)
{
        return atomic_load(&u->s.st->proc[u->slot].pid);
}

static bool is_former(const struct ustack *u, uint32_t slot)
{
        return slot != u->slot && atomic_load(&u->s.st->proc[slot].pid) == own_pid(u);
}

void usock_adopted(void)
{
        FOR_USTACKS (u)
                for (uint32_t slot = 0, procs = stack_procs(u->s.st); slot < procs; slot++) {
                        if (!is_former(u, slot))
                                continue;
                        ustack_client();
                        forget_slot(u, slot, own_pid(u), 0);
                        ustack_client_done();
                }
}

bool usock_gives_up_user(const struct usock_uids *to)
{
        bool gives = false;

        FOR_USTACKS (u) {
                uid_t owner = READ_ONCE(u->s.st->uid);
                gives |= owner != to->real && owner != to->effective && owner != to->saved;
        }
        return gives;
}

static bool has_company(const struct ustack *u)
{
        for (uint32_t k = 0, n = stack_procs(u->s.st); k < n; k++)
                if (k != u->slot && k != SOCK_REF_FLIGHT &&
                    atomic_load(&u->s.st->proc[k].pid) != 0 && !is_former(u, k))
                        return true;
        return false;
}

bool usock_has_company(void)
{
        FOR_USTACKS (u)
                if (has_company(u))
                        return true;
        return false;
}

uid_t usock_user(const struct usock *s)
{
        return READ_ONCE(s->u->s.st->uid);
}

/* The slots end here, with what descriptors in messages and the like held by them. */
void usock_leave_user(void)
{
        usock_exit();
        ustack_client();
        FOR_USTACKS (u)
                forget_slot(u, u->slot, own_pid(u), 0);
        ustack_forget_all();
        ustack_client_done();
}

void usock_forsake_all(void)
{
        rlock_forked();
        usock_wait_forked(false);
        ustack_forsake_all();
}
