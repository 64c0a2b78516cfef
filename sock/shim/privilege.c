/*
 * A process that gives up its user (a worker below a root master) leaves the stack of that user: what it may write there the others
 * would read. Its listeners and datagram sockets are the kernel's from then on, with the same numbers; new sockets are of a stack of
 * its new user. Nobody connects over the fabric any more to a listener that such a process has.
 *
 * It stays where it holds connections of the stack, which nobody can take to another one, and where other threads may be in there; and
 * if UNET_ACROSS_USERS says so. docs/security.md has what that means.
 */
#include "sock/shim/shim.h"

#include <sys/syscall.h>
#include <unistd.h>

#define PATIENCE  (200 * NS_PER_MS)     /* for others to accept whom no new listener will have */

static bool stays(void)
{
        return !__libc_single_threaded || shim.across_users;
}

static void count_connections(int fd, struct file *f, void *arg)
{
        *(int *)arg += f->us != NULL && f->mode == MODE_TCP;
}

static void reset(struct usock *s)
{
        struct linger at_once = {.l_onoff = 1};

        usock_setsockopt(s, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        usock_close(s);
}

/* Who waits to be accepted by the fabric is accepted by those who stay, or by nobody. */
static void end_queue(struct usock *l)
{
        const struct timespec ms = {.tv_nsec = NS_PER_MS};
        struct usock *s;

        for (int i = 0; i < (int)(PATIENCE / NS_PER_MS) && usock_poll(l) & POLLIN; i++)
                sys2(SYS_nanosleep, &ms, NULL);
        usock_set_nonblock(l, true);
        while (usock_accept(l, &s) == 0)
                reset(s);
}

static void leave_to_kernel(int fd, struct file *f, void *arg)
{
        long flags;

        if (f->us == NULL)
                return;
        usock_withdraw(f->us);
        if (f->mode == MODE_LISTEN) {
                flags = sys2(SYS_fcntl, fd, F_GETFL);
                sys3(SYS_fcntl, fd, F_SETFL, file_nonblock(f) ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
                end_queue(f->us);
        }
        sock_decide(f, f->mode == MODE_NEW ? MODE_NEW : MODE_KERNEL, "the process has given up its user, whose stack it has left");
}

static void user_changed(void)
{
        int connections = 0;

        if (!shim.size || usock_tls.inside || !usock_gave_up_user() || stays())
                return;
        usock_enter();
        pthread_mutex_lock(&shim.lock);
        file_each(count_connections, &connections);
        if (connections == 0) {
                file_each(leave_to_kernel, NULL);
                shim_tls.select = (struct select_memo){0};
                usock_leave_user();
        }
        pthread_mutex_unlock(&shim.lock);
        usock_leave();
}

static int changed(long r)
{
        int err = errno;

        if (r == 0)
                user_changed();
        errno = err;
        return (int)r;
}

int h_setuid(uid_t uid)
{
        return changed(REAL(setuid)(uid));
}

int h_seteuid(uid_t uid)
{
        return changed(REAL(seteuid)(uid));
}

int h_setreuid(uid_t real, uid_t effective)
{
        return changed(REAL(setreuid)(real, effective));
}

int h_setresuid(uid_t real, uid_t effective, uid_t saved)
{
        return changed(REAL(setresuid)(real, effective, saved));
}

bool privilege_call(long nr, const long a[3], long *r)
{
        if (nr != SYS_setuid && nr != SYS_setreuid && nr != SYS_setresuid)
                return false;
        *r = changed(REAL(syscall)(nr, a[0], a[1], a[2]));
        return true;
}
