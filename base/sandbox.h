/*
 * What the program has forbidden itself: a seccomp filter kills whoever makes a call that it does
 * not name, and it names what the program needs over the kernel's sockets. So no call of ours is
 * tried to see whether it is allowed. The filter is read when the program hands it to the kernel
 * (the shim sees prctl() and seccomp()). What it forbids is done another way from then on. Filters
 * of an earlier image or of a container are not seen, and are taken to forbid nothing.
 *
 * docs/architecture.md, "Programs that lock themselves in", lists the calls that are made all the
 * same.
 */
#ifndef BASE_SANDBOX_H
#define BASE_SANDBOX_H

#include <sched.h>
#include <stdatomic.h>

#include "base/base.h"

struct sock_filter;

/* The purpose of a set of system calls; it is forbidden when one of them is. */
enum sandbox_need {
        SANDBOX_UNETD, /* asking unetd and the keeper, and taking what they pass */
        SANDBOX_FILES, /* opening a descriptor's file once more */
        SANDBOX_WAKE,  /* waking a waiter of another thread or process */
        SANDBOX_PLACE, /* one more socket to sleep on */
        SANDBOX_PEERS, /* looking whether a peer lives */
        SANDBOX_NAMES, /* ringing peers by their bells' names, and hundreds of waiters at once */
        SANDBOX_SELF,  /* asking the kernel who this thread is */
        SANDBOX_PPOLL,
        SANDBOX_EPOLL2,
        SANDBOX_EPOLL,
        SANDBOX_LIMITS,
        SANDBOX_KILL,   /* signals of readiness */
        SANDBOX_YIELD,  /* offering the processor */
        SANDBOX_DEVICE, /* an RDMA device */
};

extern _Atomic uint32_t sandbox_forbidden; /* bit n: enum sandbox_need n */

static inline bool sandbox_forbids(enum sandbox_need need)
{
        return unlikely(atomic_load_explicit(&sandbox_forbidden, memory_order_relaxed) >> need & 1);
}

/* sched_yield(), where that is allowed. */
static inline void sandbox_yield(void)
{
        if (sandbox_forbids(SANDBOX_YIELD))
                cpu_relax();
        else
                sched_yield();
}

/* The needs that a filter forbids. `f` is borrowed; n instructions, as the kernel took them (others
 * forbid everything). */
uint32_t sandbox_filter(const struct sock_filter *f, unsigned n);

#define SANDBOX_STRICT UINT32_MAX /* what SECCOMP_MODE_STRICT forbids: all of it */

#endif
