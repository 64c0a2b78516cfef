/* The user IDs that a process will have after setuid(2) and its like, as Linux makes them, and what
 * capset(2) takes away. */
#include "sock/usock_process.h"

#include <linux/capability.h>
#include <sched.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sandbox.h"
#include "base/sys.h"

static struct usock_uids now(void)
{
        struct usock_uids u = {0};

        sys3(SYS_getresuid, &u.real, &u.effective, &u.saved);
        return u;
}

struct usock_uids usock_uids_setresuid(uid_t real, uid_t effective, uid_t saved)
{
        struct usock_uids u = now();

        u.real = real == (uid_t)-1 ? u.real : real;
        u.effective = effective == (uid_t)-1 ? u.effective : effective;
        u.saved = saved == (uid_t)-1 ? u.saved : saved;
        return u;
}

/* A filter of the program's may kill it for the question. */
static bool has_caps(struct __user_cap_data_struct v[_LINUX_CAPABILITY_U32S_3])
{
        struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};

        return sandbox_forbidden == 0 && sys2(SYS_capget, &h, v) == 0;
}

/* Returns true if the process may set any user id. A root user without CAP_SETUID counts as well:
 * it then leaves its stack although it would not have to. */
static bool may_set_all(void)
{
        struct __user_cap_data_struct has[_LINUX_CAPABILITY_U32S_3];

        return now().effective == 0 || (has_caps(has) && has[0].effective >> CAP_SETUID & 1);
}

/* Who may change all three does; who may not changes the effective one. */
struct usock_uids usock_uids_setuid(uid_t uid)
{
        return may_set_all() ? (struct usock_uids){uid, uid, uid}
                             : usock_uids_setresuid(-1, uid, -1);
}

/* The saved one follows the effective one unless that only becomes the real one. */
struct usock_uids usock_uids_setreuid(uid_t real, uid_t effective)
{
        struct usock_uids to = usock_uids_setresuid(real, effective, -1);

        if (real != (uid_t)-1 || (effective != (uid_t)-1 && effective != now().real))
                to.saved = to.effective;
        return to;
}

/* Once threaded is not threaded: each thread is a directory in there, besides "." and "..". Without
 * a /proc, as after chroot(2), the kernel says so: it does this for who is alone, and that is
 * nothing. */
bool usock_has_threads(void)
{
        struct stat st;

        if (__libc_single_threaded)
                return false;
        if (stat("/proc/self/task", &st) == 0)
                return st.st_nlink != 3;
        return sandbox_forbidden != 0 || sys1(SYS_unshare, CLONE_THREAD) != 0;
}

unsigned usock_cap_structs(uint32_t version)
{
        switch (version) {
        case _LINUX_CAPABILITY_VERSION_1:
                return _LINUX_CAPABILITY_U32S_1;
        case _LINUX_CAPABILITY_VERSION_2:
        case _LINUX_CAPABILITY_VERSION_3:
                return _LINUX_CAPABILITY_U32S_3;
        default:
                return 0;
        }
}

bool usock_gives_up_caps(uint32_t version, const struct __user_cap_data_struct *to)
{
        unsigned n = usock_cap_structs(version);
        struct __user_cap_data_struct has[_LINUX_CAPABILITY_U32S_3];
        bool gives = false;

        if (n == 0 || !has_caps(has))
                return false;
        for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
                gives |= (has[i].permitted & ~(i < n ? to[i].permitted : 0)) != 0;
        return gives;
}
