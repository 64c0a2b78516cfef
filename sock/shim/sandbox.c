/*
 * A program locks itself in (seccomp). What its filter forbids is found out before the kernel has
 * it (base/sandbox.h), and what cannot be made any more then, a socket to sleep on, the channels
 * there are, is made before.
 */
#include "sock/shim/privilege.h"
#include "sock/shim/shim.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/sandbox.h"

/* A program asks for no filter at all to learn whether there are any, mostly before it has a
 * socket. While there is no handler for bad pointers yet, a call that does nothing tells whether
 * eight bytes can be read. */
static bool can_be_read(const void *p, size_t n)
{
        const char *c = p;

        if (shim.size)
                return user_read_range(p, n);
        for (size_t at = 0; at < n; at += MIN((size_t)4096, MAX(n - at, (size_t)16) - 8))
                if (sys4(SYS_rt_sigprocmask, -1, c + at, NULL, 8) == -EFAULT)
                        return false;
        return true;
}

/* The filter may be no filter at all: the kernel will say so. */
static uint32_t forbids(const struct sock_fprog *p)
{
        if (!can_be_read(p, sizeof(*p)) || !can_be_read(p->filter, p->len * sizeof(*p->filter)))
                return 0;
        return sandbox_filter(p->filter, p->len);
}

/* Other threads may make calls meanwhile, so that nothing may be forbidden and not known. */
static long lock_in(uint32_t forbidden, long nr, const long a[5])
{
        uint32_t more;
        long r;

        usock_enter();
        if (forbidden != 0 && shim.size)
                usock_before_sandbox(forbidden);
        more = forbidden & ~atomic_fetch_or(&sandbox_forbidden, forbidden);
        r = sys5(nr, a[0], a[1], a[2], a[3], a[4]);
        if (r < 0)
                atomic_fetch_and(&sandbox_forbidden, ~more);
        usock_leave();
        if (r >= 0)
                return r;
        errno = (int)-r;
        return -1;
}

int h_prctl(int option, ...)
{
        long a[5] = {option};
        va_list ap;

        va_start(ap, option);
        for (int i = 1; i < 5; i++)
                a[i] = va_arg(ap, long);
        va_end(ap);
        if (option == PR_SET_NO_NEW_PRIVS && !usock_tls.inside)
                usock_landlock_may_come();
        if (option != PR_SET_SECCOMP || usock_tls.inside)
                return REAL(prctl)(option, a[1], a[2], a[3], a[4]);
        return (int)lock_in(a[1] == SECCOMP_MODE_FILTER ? forbids((const struct sock_fprog *)a[2])
                                                        : SANDBOX_STRICT,
                            SYS_prctl, a);
}

long sandbox_landlock(int rules, unsigned flags)
{
        usock_landlock_may_come();
        if (shim.size && !usock_tls.inside) {
                usock_enter();
                usock_before_sandbox(1u << SANDBOX_NAMES);
                usock_leave();
        }
        return REAL(syscall)(SYS_landlock_restrict_self, rules, flags);
}

long sandbox_seccomp(unsigned op, unsigned flags, void *args)
{
        const long a[5] = {op, flags, (long)args};
        uint32_t forbidden = op == SECCOMP_SET_MODE_FILTER   ? forbids(args)
                             : op == SECCOMP_SET_MODE_STRICT ? SANDBOX_STRICT
                                                             : 0;
        long r = lock_in(forbidden, SYS_seccomp, a);

        return flags & SECCOMP_FILTER_FLAG_NEW_LISTENER ? fd_returned((int)r) : r;
}
