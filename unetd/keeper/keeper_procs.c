/*
 * The keeper's processes: a pidfd each. One that died has its references ended; so has one that is
 * another program by now, except for those of the sockets that survived its exec.
 */
#include "unetd/keeper/keeper.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "unetd/client/maps.h"

void kproc_release(struct kproc *p)
{
        int fd = p->pidfd.fd;

        loop_del(&keeper.loop, &p->pidfd);
        if (fd >= 0)
                close(fd);
}

static void proc_died(struct loop_source *s, uint32_t events)
{
        struct kproc *p = (struct kproc *)s;

        assert(p->state == PROC_LIVE);
        kproc_release(p);
        p->state = PROC_DYING;
        kstack_due(p->stack);
}

int kproc_add(struct kstack *st, uint32_t slot, int32_t pid, int pidfd)
{
        struct kproc *p = kproc_find(st, slot);
        int r;

        assert(pidfd >= 0);
        if (p) {
                close(pidfd);
                return p->pid == pid && p->state == PROC_LIVE ? 0 : -EBUSY;
        }
        p = calloc(1, sizeof *p);
        if (!p) {
                close(pidfd);
                return -ENOMEM;
        }
        *p = (struct kproc){.stack = st, .slot = slot, .pid = pid};
        p->pidfd = (struct loop_source){.fd = pidfd, .ready = proc_died};
        r = loop_add(&keeper.loop, &p->pidfd, EPOLLIN);
        if (r < 0) {
                close(pidfd);
                free(p);
                return -EINVAL;
        }
        LIST_INSERT_HEAD(&st->procs, p, link);
        return 0;
}

void kprocs_look(struct kstack *st)
{
        struct kproc *p;

        LIST_FOREACH (p, &st->procs, link) {
                struct pollfd pfd = {.fd = p->pidfd.fd, .events = POLLIN};
                if (p->state == PROC_LIVE && poll(&pfd, 1, 0) == 1)
                        proc_died(&p->pidfd, EPOLLIN);
        }
}

/* A process that closed its connection: after an exec it ends as one that died does, but for
 * what survived. */
static void proc_look(struct kproc *p)
{
        int r = maps_file(p->pid, p->stack->fds[UNETD_FD_STATE])
                        ? 1
                        : keeper.ops->proc_execed(p->stack->view, p->slot);

        assert(p->left && p->state == PROC_LIVE);
        if (r == -EAGAIN)
                return;
        p->left = false;
        if (r == 0) {
                kproc_release(p);
                p->state = PROC_DYING;
        }
}

void kproc_left(int32_t pid)
{
        struct kstack *st;
        struct kproc *p;

        LIST_FOREACH (st, &keeper.stacks, link)
                LIST_FOREACH (p, &st->procs, link)
                        if (p->pid == pid && p->state == PROC_LIVE) {
                                p->left = true;
                                kstack_due(st);
                        }
}

void kprocs_work(struct kstack *st)
{
        struct kproc *p = LIST_FIRST(&st->procs), *next;

        for (; p; p = next) {
                next = LIST_NEXT(p, link);
                if (p->left && p->state == PROC_LIVE)
                        proc_look(p);
                if (p->state == PROC_DYING && keeper.ops->proc_died(st->view, p->slot) != -EAGAIN) {
                        p->state = PROC_DONE;
                        if (!p->told)
                                keeper_tell(UNETD_K_PROC_GONE, st->id, p->slot);
                }
                if (p->state == PROC_DONE) {
                        assert(p->pidfd.fd < 0);
                        LIST_REMOVE(p, link);
                        free(p);
                }
        }
}

bool kprocs_dying(const struct kstack *st)
{
        struct kproc *p;

        LIST_FOREACH (p, &st->procs, link)
                if (p->state == PROC_DYING || (p->left && p->state == PROC_LIVE))
                        return true;
        return false;
}
