/*
 * The native API: a program that gives up its user, or capabilities, leaves its stack, as one under
 * the shim does (sock/shim/privilege.c): what it may write there the other processes of the stack
 * would read. Its sockets end, as by close(); what other processes have of them goes on there.
 * Nothing of the stack stays mapped. What it opens later is of a stack of its new user.
 *
 * A child that has not come to the stack, as of _Fork(), has no sockets to end: it takes its copy
 * of the mappings and descriptors away, and its parent's sockets go on. A child of vfork() has its
 * parent's memory, and leaves it alone.
 *
 * So these calls of libc's are the library's. One thread cannot look after the others, which may be
 * inside: a process that has some is refused.
 *
 * So is prctl(): after PR_SET_NO_NEW_PRIVS the program may have rules of Landlock's
 * (sock/core/usock_landlock.c).
 *
 * So are unshare() and setns(): a stack is of the network namespace in which it was made, and who
 * goes to another one makes no sockets of it there.
 *
 * A process without a stack makes libc's call, and no other: its seccomp filter may name that
 * alone.
 */
#include "sock/native/native.h"
#include "sock/usock_process.h"

#include <dlfcn.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"

#define TRIES 200 /* one a millisecond */
#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif
#define EXPORT __attribute__((visibility("default")))

typedef int one_id(uid_t);
typedef int two_ids(uid_t, uid_t);
typedef int three_ids(uid_t, uid_t, uid_t);
typedef int controls(int, ...);
typedef int one_int(int);
typedef int two_ints(int, int);
typedef int caps(struct __user_cap_header_struct *, const struct __user_cap_data_struct *);

EXPORT caps capset; /* which libc has, and no header of its names */

enum call { SETUID, SETEUID, SETREUID, SETRESUID, CAPSET, PRCTL, UNSHARE, SETNS, CALLS };
static const char *const names[CALLS] = {"setuid", "seteuid", "setreuid", "setresuid",
                                         "capset", "prctl",   "unshare",  "setns"};
static void *_Atomic found[CALLS];

static _Atomic uint64_t home; /* the stack's network namespace; 0: nobody has left it */

/* With the first stack: a child of fork() may make these calls when another thread of its parent
 * had the loader's lock. Without one they are found as they are made. */
void native_find_calls(void)
{
        for (enum call c = 0; c < CALLS; c++)
                if (found[c] == NULL)
                        found[c] = dlsym(RTLD_NEXT, names[c]);
}

static void *libcs(enum call c)
{
        if (found[c] == NULL)
                native_find_calls();
        assert(found[c] != NULL);
        return found[c];
}

/* One that was joined is the kernel's for a moment longer. */
static bool has_threads(void)
{
        const struct timespec pause = {0, NS_PER_MS};

        for (int i = 0; i < TRIES; i++) {
                if (!usock_has_threads())
                        return false;
                sys2(SYS_nanosleep, &pause, NULL);
        }
        return true;
}

/* Before a call that gives the user up, if `gives`. Negative: -1, with errno, is its result. */
static int begin(bool gives)
{
        return gives && has_threads() ? (int)native_result(-EAGAIN) : gives;
}

static int end(int leaves, int r)
{
        int err = errno;

        if (r == 0 && leaves && ustack_has_parents()) {
                native_forsake_all();
        } else if (r == 0 && leaves) {
                native_close_all();
                native_set_leave(usock_leave_user);
                home = 0;
        }
        errno = err;
        return r;
}

static bool sees_stacks(void)
{
        return ustack_has_any() || ustack_has_parents();
}

static int change(struct usock_uids to)
{
        return begin(usock_gives_up_user(&to));
}

EXPORT int setuid(uid_t uid)
{
        int leaves = sees_stacks() ? change(usock_uids_setuid(uid)) : false;

        return leaves < 0 ? leaves : end(leaves, ((one_id *)libcs(SETUID))(uid));
}

EXPORT int seteuid(uid_t uid)
{
        int leaves = sees_stacks() ? change(usock_uids_setresuid(-1, uid, -1)) : false;

        return leaves < 0 ? leaves : end(leaves, ((one_id *)libcs(SETEUID))(uid));
}

EXPORT int setreuid(uid_t real, uid_t effective)
{
        int leaves = sees_stacks() ? change(usock_uids_setreuid(real, effective)) : false;

        return leaves < 0 ? leaves : end(leaves, ((two_ids *)libcs(SETREUID))(real, effective));
}

EXPORT int setresuid(uid_t real, uid_t effective, uid_t saved)
{
        int leaves = sees_stacks() ? change(usock_uids_setresuid(real, effective, saved)) : false;

        return leaves < 0 ? leaves
                          : end(leaves, ((three_ids *)libcs(SETRESUID))(real, effective, saved));
}

/* n bytes, 8 at least and a page at most. The kernel copies a set of signals before it finds that
 * there is nothing to be done with it. */
static bool is_readable(const void *p, size_t n)
{
        return sys4(SYS_rt_sigprocmask, -1, p, NULL, 8) == -EINVAL &&
               sys4(SYS_rt_sigprocmask, -1, (const char *)p + n - 8, NULL, 8) == -EINVAL;
}

/* False of what the kernel will refuse. */
static bool gives_up_caps(const struct __user_cap_header_struct *header,
                          const struct __user_cap_data_struct *data)
{
        unsigned n = is_readable(header, sizeof *header) ? usock_cap_structs(header->version) : 0;

        return n != 0 && is_readable(data, n * sizeof *data) &&
               usock_gives_up_caps(header->version, data);
}

int capset(struct __user_cap_header_struct *header, const struct __user_cap_data_struct *data)
{
        bool shared = ustack_has_parents() || (ustack_has_any() && usock_has_company());
        int leaves = begin(shared && gives_up_caps(header, data));

        return leaves < 0 ? leaves : end(leaves, ((caps *)libcs(CAPSET))(header, data));
}

EXPORT int prctl(int option, ...)
{
        long a[4];
        va_list ap;

        va_start(ap, option);
        for (int i = 0; i < 4; i++)
                a[i] = va_arg(ap, long);
        va_end(ap);
        if (option == PR_SET_NO_NEW_PRIVS)
                usock_landlock_may_come();
        return ((controls *)libcs(PRCTL))(option, a[0], a[1], a[2], a[3]);
}

/* ---- network namespaces ---- */

/* That of this thread; 0: the kernel does not say. */
static uint64_t netns(void)
{
        long fd = sys3(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        socklen_t len = sizeof(uint64_t);
        uint64_t cookie = 0;

        if (fd < 0)
                return 0;
        sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len);
        sys1(SYS_close, fd);
        return cookie;
}

/* Threads may be in several; the first of them leaves that of the stack. */
static void may_leave(void)
{
        if (home == 0 && ustack_has_any())
                home = netns();
}

bool native_is_elsewhere(void)
{
        return unlikely(home != 0) && netns() != home;
}

EXPORT int unshare(int flags)
{
        if (flags & CLONE_NEWNET)
                may_leave();
        return ((one_int *)libcs(UNSHARE))(flags);
}

EXPORT int setns(int fd, int type)
{
        may_leave();
        return ((two_ints *)libcs(SETNS))(fd, type);
}
