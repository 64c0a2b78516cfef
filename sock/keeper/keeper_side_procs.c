/* The keeper's side of a stack's processes: what becomes of that which dead ones held, and who they
 * were. See unetd/keeper/keeper_ops.h. */
#include "sock/attach/handle.h"
#include "sock/attach/ustack_link.h"
#include "sock/keeper/keeper_view.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "unetd/client/maps.h"
#include "unetd/client/timens.h"

/* The child of a process that died while it forked is looked for so often. */
#define FORK_WAIT      NS_PER_S
#define UNKNOWN_EVERY  NS_PER_S
#define CLOCK_SLACK_MS 20 /* the kernel tells in ticks */

/* Those of a process; after an exec not those that survived it. Of a socket that was just being
 * passed on it is the last holder, too. */
static void note_listeners(struct keeper_view *v, uint32_t slot, bool execed)
{
        nstime now = ustack_now();

        assert(ustack_locked(&v->u));
        FOR_SOCKS (v->u.s.st, i, rec) {
                if (!sock_held_by(v->u.s.st, rec, slot) ||
                    (execed && sock_kept_by(v->u.s.st, rec, slot)))
                        continue;
                ustack_end_copies(&v->u, rec, slot, now);
                keeper_note_listener(v, rec, slot);
        }
}

/* Refuses connections from now on, as the kernel does, which has closed the listener. A client may
 * have waited for the process to end before it connects. */
static void listeners_gone(struct keeper_view *v, uint32_t slot)
{
        nstime now = ustack_now();

        assert(ustack_locked(&v->u));
        FOR_SOCKS (v->u.s.st, i, rec) {
                if (rec->role != SOCK_ROLE_LISTENER || !sock_held_by(v->u.s.st, rec, slot))
                        continue;
                ustack_end_copies(&v->u, rec, slot, now);
                keeper_note_listener(v, rec, slot);
                ustack_unref(&v->u, i, slot, now);
        }
}

static bool has_slot(void *arg, int32_t pid)
{
        const struct stack_state *st = ((const struct keeper_view *)arg)->u.s.st;

        for (uint32_t i = 0, n = stack_procs(st); i < n; i++)
                if (st->proc[i].pid == (uint32_t)pid)
                        return true;
        return false;
}

/*
 * The dead process was in the middle of fork(). Its child says who it is within moments, if it was
 * ever born; if it has not run in all that time, it is seen to have the stack mapped. True: it is
 * still being waited for.
 */
static bool child_awaited(struct keeper_view *v, uint32_t parent, nstime now)
{
        struct stack_state *st = v->u.s.st;
        bool any = false;

        assert(ustack_locked(&v->u) && parent < STACK_PROCS);
        for (uint32_t i = 0, n = stack_procs(st); i < n; i++)
                any |= st->proc[i].pid == STACK_FORKING && st->proc[i].parent == parent;
        if (!any)
                v->forking_until[parent] = 0;
        else if (v->forking_until[parent] == 0)
                v->forking_until[parent] = now + FORK_WAIT;
        if (!any || now < v->forking_until[parent])
                return any;
        v->forking_until[parent] = now + FORK_WAIT;
        return maps_file_unknown(v->state_fd, has_slot, v);
}

static void proc_gone(struct keeper_view *v, uint32_t slot)
{
        assert(ustack_locked(&v->u) && slot < STACK_PROCS);
        ustack_links_left(&v->u, slot);
        note_listeners(v, slot, false);
        ustack_proc_gone(&v->u, slot, ustack_now());
        v->forking_until[slot] = 0;
}

/* All that a process held, and its children that had not come to the stack. False: one of them may
 * yet. */
static bool end_proc(struct keeper_view *v, uint32_t slot)
{
        struct ustack *u = &v->u;
        struct proc_slot *p = u->s.st->proc;

        if (child_awaited(v, slot, ustack_now()))
                return false;
        listeners_gone(v, slot);
        /* What came while it lived, before its end: as in usock_close(). */
        stack_run(&u->s, ustack_now());
        for (uint32_t i = 0, n = stack_procs(u->s.st); i < n; i++)
                if (p[i].pid == STACK_FORKING && p[i].parent == slot)
                        proc_gone(v, i);
        proc_gone(v, slot);
        stack_run(&u->s, ustack_now());
        return true;
}

int keeper_proc_died(void *view, uint32_t slot)
{
        struct keeper_view *v = view;
        bool done;

        if (slot >= STACK_PROCS || slot == SOCK_REF_FLIGHT)
                return 0;
        if (!ustack_trylock(&v->u))
                return -EAGAIN;
        done = end_proc(v, slot);
        ustack_unlock(&v->u);
        return done ? 0 : -EAGAIN;
}

/* Another program has taken the process over. True: sockets survived that. */
static bool end_image(struct keeper_view *v, uint32_t slot)
{
        struct ustack *u = &v->u;
        bool holds;

        ustack_links_left(u, slot);
        note_listeners(v, slot, true);
        holds = ustack_proc_execed(u, slot, ustack_now());
        stack_run(&u->s, ustack_now());
        return holds;
}

int keeper_proc_execed(void *view, uint32_t slot)
{
        struct keeper_view *v = view;
        bool holds;

        if (slot >= STACK_PROCS || slot == SOCK_REF_FLIGHT)
                return 0;
        if (!ustack_trylock(&v->u))
                return -EAGAIN;
        holds = end_image(v, slot);
        ustack_unlock(&v->u);
        return holds;
}

/* When it began, in ms since boot by our clock: field 22 of /proc/<pid>/stat (proc(5)), in ticks.
 * 0: that cannot be read. */
static uint64_t began_ms(uint32_t pid)
{
        char path[32], line[512] = "", *field;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%u/stat", pid);
        f = fopen(path, "re");
        if (f == NULL)
                return 0;
        field = fgets(line, sizeof line, f) != NULL ? strrchr(line, ')') : NULL;
        fclose(f);
        for (int i = 2; i < 22 && field != NULL; i++)
                if ((field = strchr(field, ' ')) != NULL)
                        field++;
        if (field == NULL)
                return 0;
        return strtoull(field, NULL, 10) * 1000 / (uint64_t)sysconf(_SC_CLK_TCK) -
               (uint64_t)(timens.boot / NS_PER_MS);
}

/* All its threads have ended. What cannot be found out is not so. */
static bool has_ended(uint32_t pid)
{
        int fd = pidfd_open((pid_t)pid, 0);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        bool ended;

        if (fd < 0) /* the number is nobody's, or a thread's of another process */
                return errno == ESRCH || errno == EINVAL || errno == ENOENT;
        ended = poll(&p, 1, 0) == 1;
        close(fd);
        return ended;
}

/* The process that took the slot lives, and is not another one that has its number now. */
static bool is_there(const struct proc_slot *p)
{
        return p->pid != STACK_FORKING && !has_ended(p->pid) &&
               began_ms(p->pid) <= p->start + CLOCK_SLACK_MS;
}

/* The slot may be another's by now, of whom unetd knows. False: it is to be tried again. */
static bool bury(struct keeper_view *v, uint32_t slot, uint32_t pid)
{
        const struct proc_slot *p = &v->u.s.st->proc[slot];
        bool done;

        if (!ustack_trylock(&v->u))
                return false;
        done = p->pid != pid || !p->unknown || end_proc(v, slot);
        ustack_unlock(&v->u);
        return done;
}

/* It lives; unetd tells nothing of its exec. */
static void look_at_image(struct keeper_view *v, uint32_t slot)
{
        const struct proc_slot *p = &v->u.s.st->proc[slot];
        uint32_t pid = p->pid;

        if (pid == 0 || pid == STACK_FORKING || maps_file((int32_t)pid, v->state_fd) ||
            !ustack_trylock(&v->u))
                return;
        if (p->pid == pid && p->unknown)
                end_image(v, slot);
        ustack_unlock(&v->u);
}

nstime keeper_bury_unknown(struct keeper_view *v, nstime now)
{
        struct stack_state *st = v->u.s.st;
        uint32_t left = 0, next = STACK_PROCS, pid;

        if (likely(atomic_load_explicit(&st->any_unknown, memory_order_relaxed) == 0))
                return NSTIME_NEVER;
        if (now < v->unknown_at)
                return v->unknown_at;
        atomic_store(&st->any_unknown, 0);
        for (uint32_t i = 0, n = stack_procs(st); i < n; i++) {
                pid = st->proc[i].pid;
                if (pid == 0 || !st->proc[i].unknown)
                        continue;
                if (pid == STACK_FORKING || is_there(&st->proc[i]) || !bury(v, i, pid))
                        left++;
                if (next == STACK_PROCS && i >= v->image_from)
                        next = i;
        }
        if (next != STACK_PROCS)
                look_at_image(v, next);
        v->image_from = next != STACK_PROCS ? next + 1 : 0;
        if (left != 0)
                atomic_store(&st->any_unknown, 1);
        v->unknown_at = now + UNKNOWN_EVERY;
        return left != 0 ? v->unknown_at : NSTIME_NEVER;
}

void keeper_bury_strangers(struct keeper_view *v)
{
        struct stack_state *st = v->u.s.st;

        v->strangers = false;
        if (!ustack_trylock(&v->u))
                return;
        for (uint32_t i = 0, n = stack_procs(st); i < n; i++) {
                if (st->proc[i].pid == 0)
                        continue;
                if (is_there(&st->proc[i]))
                        v->strangers = true;
                else
                        proc_gone(v, i);
        }
        if (!v->strangers && !v->nobody) {
                ustack_nobody_left(&v->u, ustack_now());
                v->nobody = true;
        }
        ustack_unlock(&v->u);
}
