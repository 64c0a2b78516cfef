/*
 * The native API: a program that gives up its user, or capabilities, leaves its stack, as one under
 * the shim does (sock/shim/privilege.c): what it may write there the other processes of the stack
 * would read. Its sockets end, as by close(); what other processes have of them goes on there.
 * Nothing of the stack stays mapped. What it opens later is of a stack of its new user.
 *
 * So these calls of libc's are the library's. One thread cannot look after the others, which may be
 * inside: a process that has some is refused.
 *
 * A process without a stack makes libc's call, and no other: its seccomp filter may name that
 * alone.
 */
#include "sock/native/native.h"
#include "sock/usock_process.h"

#include <dlfcn.h>
#include <linux/capability.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef int one_id(uid_t);
typedef int two_ids(uid_t, uid_t);
typedef int three_ids(uid_t, uid_t, uid_t);
typedef int caps(struct __user_cap_header_struct *, const struct __user_cap_data_struct *);

EXPORT caps capset; /* which libc has, and no header of its names */

static void *libcs(const char *name)
{
        void *p = dlsym(RTLD_NEXT, name);

        assert(p != NULL);
        return p;
}

/* Before a call that gives the user up, if `gives`. Negative: -1, with errno, is its result. */
static int begin(bool gives)
{
        return gives && usock_has_threads() ? (int)native_result(-EAGAIN) : gives;
}

static int end(int leaves, int r)
{
        int err = errno;

        if (r == 0 && leaves) {
                native_close_all();
                native_set_leave(usock_leave_user);
        }
        errno = err;
        return r;
}

static int change(struct usock_uids to)
{
        return begin(usock_gives_up_user(&to));
}

EXPORT int setuid(uid_t uid)
{
        int leaves = ustack_has_any() ? change(usock_uids_setuid(uid)) : false;

        return leaves < 0 ? leaves : end(leaves, ((one_id *)libcs("setuid"))(uid));
}

EXPORT int seteuid(uid_t uid)
{
        int leaves = ustack_has_any() ? change(usock_uids_setresuid(-1, uid, -1)) : false;

        return leaves < 0 ? leaves : end(leaves, ((one_id *)libcs("seteuid"))(uid));
}

EXPORT int setreuid(uid_t real, uid_t effective)
{
        int leaves = ustack_has_any() ? change(usock_uids_setreuid(real, effective)) : false;

        return leaves < 0 ? leaves : end(leaves, ((two_ids *)libcs("setreuid"))(real, effective));
}

EXPORT int setresuid(uid_t real, uid_t effective, uid_t saved)
{
        int leaves =
                ustack_has_any() ? change(usock_uids_setresuid(real, effective, saved)) : false;

        return leaves < 0 ? leaves
                          : end(leaves, ((three_ids *)libcs("setresuid"))(real, effective, saved));
}

int capset(struct __user_cap_header_struct *header, const struct __user_cap_data_struct *data)
{
        int leaves = begin(header != NULL && data != NULL && ustack_has_any() &&
                           usock_has_company() && usock_gives_up_caps(header->version, data));

        return leaves < 0 ? leaves : end(leaves, ((caps *)libcs("capset"))(header, data));
}
