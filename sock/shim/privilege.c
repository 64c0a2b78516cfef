/*
 * A process that gives up its user (a worker below a root master) leaves the stack of that user:
 * what it may write there the others would read. Its connections stay there, and a relay carries
 * them (relay.h). Its listeners and datagram sockets are the kernel's from then on, with the same
 * numbers; new sockets are of a stack of its new user. Nobody connects over the fabric any more to
 * a listener that such a process has; the relay hands on who has.
 *
 * So does a process that gives up capabilities which others of its stack may have kept.
 *
 * Other threads are kept out meanwhile (hold.h). It stays if one of them does not come out, and if
 * UNET_ACROSS_USERS says so. docs/security.md has what that means.
 */
#include "sock/shim/decide.h"
#include "sock/shim/hold.h"
#include "sock/shim/privilege.h"
#include "sock/shim/relay.h"
#include "sock/usock_connect.h"
#include "sock/usock_option.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WHY "the process has given up its user or capabilities, and has left its stack"

/* A change of the user that is under way. */
struct change {
        bool leaves; /* the stack, if the kernel agrees */
        bool holds;  /* other threads: hold_others() */
        struct relay relay;
};

static void reset(struct usock *s)
{
        struct linger at_once = {.l_onoff = 1};

        usock_setsockopt(s, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        usock_close(s);
}

/* Who waits to be accepted by the fabric, and has no relay. */
static void end_queue(struct usock *l)
{
        struct usock *s;

        while (usock_accept(l, &s) == 0)
                reset(s);
}

static void leave_to_kernel(struct file *f, int fd, const struct relay *r)
{
        long flags;

        usock_withdraw(f->us);
        if (f->mode == MODE_LISTEN) {
                flags = sys2(SYS_fcntl, fd, F_GETFL);
                sys3(SYS_fcntl, fd, F_SETFL,
                     file_nonblock(f) ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
                if (relay_lacks(r))
                        end_queue(f->us);
        }
        sock_decide(f, f->mode == MODE_NEW ? MODE_NEW : MODE_KERNEL, WHY);
}

static void replace(int fd, struct file *f, void *arg)
{
        relay_replace(arg, fd, f);
}

/* Of a program that was threaded the last call does that, and this is none. */
static void let_go(struct file *f)
{
        struct usock *us = f->us;

        f->us = NULL;
        if (us != NULL)
                usock_close(us);
}

static void leave(int fd, struct file *f, void *arg)
{
        assert(usock_tls.inside && shim_locked());
        if (f->us == NULL)
                return;
        if (f->mode == MODE_NEW && f->shared)
                sock_decide(f, MODE_KERNEL, "a process that has it, too, has given up its user");
        f->shared = false; /* what it is to others does not change */
        if (f->mode == MODE_TCP)
                sock_decide(f, MODE_KERNEL,
                            f->relayed ? WHY "; a relay carries it"
                                       : WHY "; no relay could be made for it");
        else
                leave_to_kernel(f, fd, arg);
        let_go(f);
}

/* No stack's user is one of these. */
static const struct usock_uids nobody = {-1, -1, -1};

/* Before the call, which makes the user IDs these. */
static struct change begin(struct usock_uids to)
{
        struct change c = {.leaves = false};
        int r = -EAGAIN;

        if (!shim.size || usock_tls.inside || shim.across_users)
                return c;
        usock_enter(); /* another thread may be leaving */
        while (r == -EAGAIN && usock_gives_up_user(&to)) {
                c.holds = usock_has_threads();
                r = c.holds ? hold_others() : 0;
        }
        c.leaves = r == 0;
        c.holds &= c.leaves;
        if (c.leaves)
                relay_start(&c.relay);
        else
                usock_leave();
        return c;
}

static void leave_stack(struct change *c)
{
        pthread_mutex_lock(&shim.lock);
        file_each(replace, &c->relay);
        file_each(leave, &c->relay);
        shim_tls.select = (struct select_memo){0};
        usock_leave_user();
        pthread_mutex_unlock(&shim.lock);
        relay_go(&c->relay);
}

/* After the call, with its result. */
static int end(struct change *c, long r)
{
        int err = errno;

        if (!c->leaves)
                return (int)r;
        if (r == 0)
                leave_stack(c);
        else
                relay_cancel(&c->relay);
        if (c->holds)
                hold_end();
        usock_leave();
        errno = err;
        return (int)r;
}

/* Then a relay could not be made any more, and numbers not be replaced. */
void privilege_before_no_numbers(void)
{
        struct change c = {.leaves = false};

        if (geteuid() == 0)
                c = begin(nobody);
        end(&c, 0);
}

int h_setuid(uid_t uid)
{
        struct change c = begin(usock_uids_setuid(uid));

        return end(&c, REAL(setuid)(uid));
}

int h_seteuid(uid_t uid)
{
        struct change c = begin(usock_uids_setresuid(-1, uid, -1));

        return end(&c, REAL(seteuid)(uid));
}

int h_setreuid(uid_t real, uid_t effective)
{
        struct change c = begin(usock_uids_setreuid(real, effective));

        return end(&c, REAL(setreuid)(real, effective));
}

int h_setresuid(uid_t real, uid_t effective, uid_t saved)
{
        struct change c = begin(usock_uids_setresuid(real, effective, saved));

        return end(&c, REAL(setresuid)(real, effective, saved));
}

/* ---- capabilities ---- */

static bool leaves_others(uint32_t version, const struct __user_cap_data_struct *to)
{
        bool leaves;

        usock_enter();
        leaves = usock_gives_up_caps(version, to) && usock_has_company();
        usock_leave();
        return leaves;
}

int h_capset(struct __user_cap_header_struct *header, const struct __user_cap_data_struct *data)
{
        struct change c = {.leaves = false};

        if (shim.size && !usock_tls.inside && user_read_range(header, sizeof(*header)) &&
            user_read_range(data, sizeof(*data) * usock_cap_structs(header->version)) &&
            leaves_others(header->version, data))
                c = begin(nobody);
        return end(&c, REAL(capset)(header, data));
}

/* ---- by number ---- */

static struct usock_uids after_call(long nr, const uid_t a[3])
{
        switch (nr) {
        case SYS_setuid:
                return usock_uids_setuid(a[0]);
        case SYS_setreuid:
                return usock_uids_setreuid(a[0], a[1]);
        default:
                return usock_uids_setresuid(a[0], a[1], a[2]);
        }
}

bool privilege_call(long nr, const long a[3], long *r)
{
        const uid_t ids[] = {(uid_t)a[0], (uid_t)a[1], (uid_t)a[2]};
        struct change c;

        if (nr == SYS_capset) {
                *r = h_capset((struct __user_cap_header_struct *)a[0],
                              (const struct __user_cap_data_struct *)a[1]);
                return true;
        }
        if (nr != SYS_setuid && nr != SYS_setreuid && nr != SYS_setresuid)
                return false;
        c = begin(after_call(nr, ids));
        *r = end(&c, REAL(syscall)(nr, a[0], a[1], a[2]));
        return true;
}
