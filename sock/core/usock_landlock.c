/*
 * Landlock (landlock(7)) may keep a thread from ports of TCP. The kernel holds that
 * on its own sockets; before a connection over the fabric it is asked by one. Its rules name ports
 * only. A connect() to the broadcast address fails after they were looked at and before a packet is
 * sent, and so does a bind() to an address that is nobody's.
 *
 * A program that has no such rules is not asked for each connection. A domain may come from before
 * this image, which is found out once. Or it comes from this process: by landlock_restrict_self(2)
 * through libc's syscall(), which the shim sees, or after prctl(PR_SET_NO_NEW_PRIVS), which an
 * unprivileged process has to call before. Only who makes both calls past libc is not seen.
 */
#include "sock/usock_process.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "base/sandbox.h"
#include "base/sys.h"

enum { UNKNOWN, NONE, SOME }; /* SOME: there may be, in this thread or another */
static _Atomic int rules = UNKNOWN;

/* Reserved (RFC 1112): no host has it. */
#define NOBODYS 0xf0000001u

/* 0, -EACCES, or 1: there is no descriptor left to ask by. */
static int forbids(long call, uint16_t port)
{
        struct sockaddr_in sa = {.sin_family = AF_INET,
                                 .sin_addr.s_addr =
                                         htonl(call == SYS_bind ? NOBODYS : INADDR_BROADCAST),
                                 .sin_port = htons(port)};
        long fd = sys3(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

        if (fd < 0)
                return 1;
        r = sys3(call, fd, &sa, sizeof(sa));
        sys1(SYS_close, fd);
        return r == -EACCES ? -EACCES : 0;
}

/* What is not allowed by name is forbidden, and nobody names all of these. */
static int forbids_most(void)
{
        static const uint16_t seldom[] = {0, 1, 65535};
        int r = 0;

        for (size_t i = 0; i < ARRAY_LEN(seldom) && r == 0; i++) {
                r = forbids(SYS_connect, seldom[i]);
                if (r == 0)
                        r = forbids(SYS_bind, seldom[i]);
        }
        return r;
}

void usock_landlock_may_come(void)
{
        atomic_store(&rules, SOME);
}

/* While nobody can be asked it stays unknown. */
static bool may_have_rules(void)
{
        int unknown = UNKNOWN, most;

        if (unlikely(atomic_load_explicit(&rules, memory_order_relaxed) == UNKNOWN)) {
                most = forbids_most();
                if (most <= 0)
                        atomic_compare_exchange_strong(&rules, &unknown, most < 0 ? SOME : NONE);
        }
        return atomic_load_explicit(&rules, memory_order_relaxed) != NONE;
}

static int asked(long call, uint16_t port)
{
        if (sandbox_forbids(SANDBOX_PLACE)) /* no socket can be made to ask by */
                return atomic_load_explicit(&rules, memory_order_relaxed) == NONE ? 0 : 1;
        if (likely(!may_have_rules()))
                return 0;
        return forbids(call, port);
}

int usock_landlock_asked(uint16_t port)
{
        return asked(SYS_connect, port);
}

int usock_landlock_asked_to_bind(uint16_t port)
{
        return asked(SYS_bind, port);
}
