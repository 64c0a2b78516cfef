/*
 * Who promises connections (unet/ni_promise.h), and whether he is there still.
 *
 * The kernel's listener ends with its process. Ours ends when the keeper has seen that. Who
 * connects in between is refused by the kernel, and so it must be here. The stack answers nobody
 * then, but its promise stands. So who takes it asks the kernel whether the process that made it
 * still has its descriptors: kcmp(2) says so of processes that have ended and that nobody has
 * waited for, too. Where that is forbidden, or the processes number each other otherwise than unetd
 * does, no promise is used.
 */
#include "sock/attach/ustack.h"

#include <linux/kcmp.h>

#include "base/sandbox.h"
#include "base/sys.h"

bool ustack_promiser(struct stack *s, struct unet_promiser *own)
{
        const struct ustack *u = s->owner;

        own->pid = atomic_load_explicit(&s->st->proc[u->slot].pid, memory_order_relaxed);
        own->fd = (uint32_t)u->fds.leader;
        return own->pid != 0 && own->pid < STACK_FORKING;
}

bool ustack_lives(struct stack *s, struct unet_promiser p)
{
        const struct ustack *u = s->owner;
        struct unet_promiser own;
        long self;

        if (sandbox_forbids(SANDBOX_PEERS) || !ustack_promiser(s, &own))
                return false;
        self = sys0(SYS_getpid);
        return own.pid == (uint32_t)self &&
               sys5(SYS_kcmp, self, p.pid, KCMP_FILE, u->fds.leader, p.fd) >= 0;
}
