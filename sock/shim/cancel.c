/*
 * Cancellation of threads (pthreads(7)): libc acts on one only in its own calls, and ours take
 * their place.
 *
 * No thread is lost that was not asleep when it was cancelled. It asks as it enters a call, and
 * remembers of which cancellations it has (shim_tls.cancels); whoever cancels counts that first and
 * then wakes who is known to sleep. A thread that is about to sleep makes itself known and then
 * looks at the count: one that it has not asked about sends it back to where it asks.
 *
 * A thread may want to end wherever it is (PTHREAD_CANCEL_ASYNCHRONOUS), as some do around a read()
 * that blocks. libc's signal would end it inside of us, with our locks and our references. So the
 * signal has a handler of ours before libc's, and what comes inside is sent once more by the
 * outermost usock_leave().
 */
#include "sock/shim/cancel.h"
#include "sock/shim/hold.h"
#include "sock/shim/shim.h"

#include <signal.h>
#include <unistd.h>

#include "base/rlock.h"
#include "base/sandbox.h"
#include "sock/usock_sys.h"

#define SLEEPERS 1024
#define KSIGSET  8 /* bytes of the kernel's signal set */

/* Threads that may be asleep in usock_wait(), in threaded programs. */
static struct sleeper {
        _Atomic pid_t tid;
        pthread_t thread;
        _Atomic unsigned sleeps;
} sleepers[SLEEPERS];
static _Atomic bool any_slept; /* since the process began, or was forked */

struct sleeper *sleeper_enter(void)
{
        pid_t tid;

        if (likely(__libc_single_threaded))
                return NULL;
        tid = (pid_t)rlock_thread();
        if (unlikely(!atomic_load(&any_slept)))
                atomic_store(&any_slept, true);
        for (unsigned i = 0; i < SLEEPERS; i++) {
                struct sleeper *s = &sleepers[((unsigned)tid + i) % SLEEPERS];
                pid_t none = 0;

                if (!atomic_compare_exchange_strong(&s->tid, &none, -1))
                        continue;
                s->thread = pthread_self();
                atomic_fetch_add(&s->sleeps, 1);
                atomic_store(&s->tid, tid);
                return s;
        }
        return NULL;
}

/* The cancellation of that number is counted; whom it meant may not be written yet, or not stand
 * there any more. */
static bool may_be_meant(uint32_t number)
{
        uint32_t at = number % ARRAY_LEN(shim.cancelled);

        return atomic_load(&shim.cancelled[at].number) != number + 1 ||
               pthread_equal(atomic_load(&shim.cancelled[at].thread), pthread_self());
}

/* Others are not disturbed: what they have read or written so far would be all that their
 * call did. */
bool sleeper_was_cancelled(void)
{
        uint32_t asked = shim_tls.cancels, now = atomic_load(&shim.cancels);

        if (likely(now == asked))
                return false;
        for (; asked != now; asked++)
                if (may_be_meant(asked))
                        return true;
        shim_tls.cancels = now;
        return false;
}

void sleeper_leave(struct sleeper *s)
{
        if (unlikely(s != NULL))
                atomic_store(&s->tid, 0);
}

void cancellation_asked(void)
{
        if (usock_tls.inside)
                return;
        shim_tls.cancels = atomic_load(&shim.cancels);
        pthread_testcancel();
}

/* The signal is lost on a thread that has not quite gone to sleep: it is sent until this sleep
 * is over. */
static void wake_sleeper(struct sleeper *s)
{
        struct timespec pause = {0, NS_PER_MS};
        unsigned sleeps = atomic_load(&s->sleeps);

        for (int i = 0; i < 100; i++) {
                pid_t tid = atomic_load(&s->tid);

                if (tid <= 0 || atomic_load(&s->sleeps) != sleeps)
                        return;
                sys3(SYS_tgkill, sys1(SYS_getpid, 0), tid, SIGCANCEL);
                sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
        }
}

/* ---- those that end wherever they are ---- */

typedef void signal_handler(int sig, siginfo_t *info, void *uc);

/* As the kernel has it; libc's sigaction() denies that there is such a signal. */
struct kernel_action {
        signal_handler *handler;
        unsigned long flags;
        void *restorer;
        uint64_t mask;
};

static signal_handler *libcs_handler;

static void send_to_self(void)
{
        sys3(SYS_tgkill, sys1(SYS_getpid, 0), sys1(SYS_gettid, 0), SIGCANCEL);
}

static void cancel_signal(int sig, siginfo_t *info, void *uc)
{
        bool asked = hold_is_asked(info);

        if (!usock_tls.inside && asked) {
                hold_answer();
        } else if (!usock_tls.inside) {
                libcs_handler(sig, info, uc);
        } else {
                shim_tls.hold_asked |= asked;
                shim_tls.cancelled_inside |= !asked;
                usock_tls.pending = 1;
                usock_sys_ends(uc);
        }
}

void cancelled_inside(void)
{
        if (unlikely(shim_tls.hold_asked)) {
                shim_tls.hold_asked = false;
                hold_answer();
        }
        if (likely(!shim_tls.cancelled_inside))
                return;
        shim_tls.cancelled_inside = false;
        send_to_self();
}

static void *sleeps(void *arg)
{
        for (;;)
                pause();
        return arg;
}

/* libc has a handler once a thread was cancelled: one that there is for nothing else. */
static void make_libc_have_a_handler(void)
{
        sigset_t all, old;
        pthread_t t;
        bool there;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        there = pthread_create(&t, NULL, sleeps, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (there) {
                REAL(pthread_cancel)(t);
                pthread_join(t, NULL);
        }
}

static void take_the_signal(void)
{
        struct kernel_action ka;

        make_libc_have_a_handler();
        if (sys4(SYS_rt_sigaction, SIGCANCEL, NULL, &ka, KSIGSET) < 0 ||
            ka.handler == (signal_handler *)(void *)SIG_DFL)
                return;
        libcs_handler = ka.handler;
        ka.handler = cancel_signal;
        sys4(SYS_rt_sigaction, SIGCANCEL, &ka, NULL, KSIGSET);
}

/* Once; not in a program that has locked itself in, where no thread may be made. */
bool cancel_has_signal(void)
{
        static pthread_once_t once = PTHREAD_ONCE_INIT;

        if (atomic_load(&sandbox_forbidden) == 0)
                pthread_once(&once, take_the_signal);
        return libcs_handler != NULL;
}

static void take_the_signal_if_need_be(void)
{
        if (shim.size && atomic_load(&shim.cancels_anywhere))
                cancel_has_signal();
}

/* Before a thread can be cancelled so. */
int h_pthread_setcanceltype(int type, int *old)
{
        if (type == PTHREAD_CANCEL_ASYNCHRONOUS)
                atomic_store(&shim.cancels_anywhere, true);
        take_the_signal_if_need_be();
        return REAL(pthread_setcanceltype)(type, old);
}

/* No lock: who cancels may itself be cancelled anywhere. */
static void note(pthread_t thread)
{
        uint32_t number = atomic_fetch_add(&shim.cancels, 1),
                 at = number % ARRAY_LEN(shim.cancelled);

        atomic_store(&shim.cancelled[at].thread, thread);
        atomic_store(&shim.cancelled[at].number, number + 1);
}

int h_pthread_cancel(pthread_t thread)
{
        int r;

        take_the_signal_if_need_be();
        r = REAL(pthread_cancel)(thread);
        note(thread);
        for (unsigned i = 0; r == 0 && shim.size && i < SLEEPERS; i++)
                if (atomic_load(&sleepers[i].tid) > 0 && pthread_equal(sleepers[i].thread, thread))
                        wake_sleeper(&sleepers[i]);
        return r;
}

/* A child touches no page of a table that its parent never used: each would cost it a fault. */
void cancel_fork_child(void)
{
        for (unsigned i = 0; i < SLEEPERS && atomic_load(&any_slept); i++)
                atomic_store(&sleepers[i].tid, 0);
        atomic_store(&any_slept, false);
        shim_tls.cancelled_inside = false;
        hold_fork_child();
}
