/*
 * Signals of readiness: O_ASYNC, F_SETOWN and their like. The kernel's socket is told first, and
 * keeps what it was told; our side follows it, at once or when the decision is taken. With F_SETSIG
 * a signal says which descriptor has what, which only the kernel's can: such a socket stays with
 * it.
 */
#include "sock/shim/decide.h"
#include "sock/shim/shim.h"
#include "sock/shim/signals.h"
#include "sock/shim/spare.h"
#include "sock/usock_option.h"

#include <sys/ioctl.h>
#include <unistd.h>

static void follow(struct file *f)
{
        struct f_owner_ex o = {F_OWNER_PID, 0};
        long flags = sys2(SYS_fcntl, f->kfd, F_GETFL);

        sys3(SYS_fcntl, f->kfd, F_GETOWN_EX, &o);
        if (o.pid == 0)
                usock_set_owner(f->us, 0, 0, flags & O_ASYNC);
        else if (o.type == F_OWNER_TID)
                usock_set_owner(f->us, getpid(), (uint32_t)o.pid, flags & O_ASYNC);
        else
                usock_set_owner(f->us, o.type == F_OWNER_PGRP ? -o.pid : o.pid, 0, flags & O_ASYNC);
}

void async_engage(struct file *f)
{
        if (unlikely(f->signals))
                follow(f);
}

/* The kernel's socket below has taken it. */
static void changed(struct file *f)
{
        f->signals = true;
        if (f->us)
                follow(f);
}

int async_flags(struct file *f, long flags)
{
        int r = flags & O_ASYNC ? file_materialise(f) : 0;

        if (r < 0 || f->placeholder)
                return r;
        return (int)sys3(SYS_fcntl, f->kfd, F_SETFL,
                         f->mode == MODE_LISTEN ? flags | O_NONBLOCK : flags);
}

void async_changed(struct file *f, long flags)
{
        if (unlikely(f->signals || flags & O_ASYNC))
                changed(f);
}

bool async_fcntl(int cmd)
{
        return cmd == F_SETOWN || cmd == F_SETOWN_EX || cmd == F_SETSIG || cmd == F_GETOWN ||
               cmd == F_GETOWN_EX || cmd == F_GETSIG;
}

static int set_signal(struct file *f, long sig)
{
        int r;

        if (sig != 0 && f->mode > MODE_NEW)
                return -EINVAL;
        r = (int)sys3(SYS_fcntl, f->kfd, F_SETSIG, sig);
        if (r == 0 && sig != 0 && f->mode == MODE_NEW) {
                pthread_mutex_lock(&shim.lock);
                sock_decide(f, MODE_KERNEL, "signals that say what they are about (F_SETSIG)");
                pthread_mutex_unlock(&shim.lock);
        }
        return r;
}

int async_do_fcntl(struct file *f, int cmd, long arg)
{
        int r = file_materialise(f);

        spare_used(f);
        if (r < 0)
                return r;
        if (cmd == F_SETSIG)
                return set_signal(f, arg);
        r = (int)sys3(SYS_fcntl, f->kfd, cmd, arg);
        if (r == 0 && (cmd == F_SETOWN || cmd == F_SETOWN_EX))
                changed(f);
        return r;
}

bool async_ioctl(unsigned long req)
{
        return req == FIOASYNC || req == FIOSETOWN || req == SIOCSPGRP || req == FIOGETOWN ||
               req == SIOCGPGRP;
}

int async_do_ioctl(struct file *f, unsigned long req, void *arg)
{
        int r = file_materialise(f);

        spare_used(f);
        if (r == 0)
                r = (int)sys3(SYS_ioctl, f->kfd, req, arg);
        if (r == 0 && req != FIOGETOWN && req != SIOCGPGRP)
                changed(f);
        return r;
}
