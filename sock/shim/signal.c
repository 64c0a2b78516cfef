/*
 * Signals stay outside. Handlers run only where the program could have been interrupted between two
 * system calls, never inside the library: programs longjmp out of them (iperf3 does), or make calls
 * of their own.
 *
 * Once the process has a socket, every handler in the kernel is our trampoline; what the program
 * set is in `acts`, and sigaction() answers from there. The trampoline calls the program's handler
 * at once when the thread is outside. Else it records the signal, and the thread's signal mask
 * becomes "everything" from the return of the trampoline on: what else arrives stays in the kernel,
 * in the kernel's order. The outermost usock_leave() then calls the handler under the mask it would
 * have had, and restores the program's mask, whereupon the kernel delivers the next.
 *
 * Never put off: what an instruction caused (SIGSEGV and its like), for it would only come again.
 *
 * SIGSEGV and SIGBUS have our trampoline even where the program leaves them alone: a fault at an
 * address that the program passed to a call is that call's EFAULT (sock/attach/user.h). Any other
 * is the program's: its handler is called, and where it has none the trampoline takes itself away,
 * whereupon the instruction faults once more and the kernel does what it does. A program that
 * ignores them, and a thread that blocks them, die of a bad pointer.
 *
 * A deferred handler runs on the ordinary stack even with SA_ONSTACK, and the ucontext it gets is a
 * copy without the floating-point state. Where several were put off, all but the first are given
 * back to the kernel before it runs.
 */
#include "sock/shim/cancel.h"
#include "sock/shim/shim.h"
#include "sock/shim/signals.h"

#include <ucontext.h>

#include "base/sandbox.h"
#include "sock/usock_sys.h"

#define NSIGNALS 65
#define DEFERRED 4 /* one is the rule; usock_wait() may open the mask again while it sleeps */
#define KSIGSET  8 /* bytes of the kernel's signal set */

/* What the program set; two slots each, so that a handler or another thread never sees half of
 * a change. */
struct act {
        struct sigaction slot[2];
        _Atomic uint8_t cur;
        _Atomic bool ours; /* the kernel has our trampoline for it */
};

struct deferred {
        int sig;
        struct sigaction act;
        siginfo_t info;
        ucontext_t uc;
};

static struct act acts[NSIGNALS];
static pthread_mutex_t acts_lock = PTHREAD_MUTEX_INITIALIZER;
static sigset_t interrupting; /* siginterrupt(): signal() without SA_RESTART for these */

static __thread struct {
        struct deferred v[DEFERRED];
        volatile unsigned n;
} queue __attribute__((tls_model("initial-exec")));

static bool is_handler(const struct sigaction *sa)
{
        return sa->sa_handler != SIG_DFL && sa->sa_handler != SIG_IGN;
}

static const struct sigaction *current(int sig)
{
        return &acts[sig].slot[atomic_load_explicit(&acts[sig].cur, memory_order_acquire)];
}

static void remember(int sig, const struct sigaction *sa)
{
        uint8_t next = !atomic_load_explicit(&acts[sig].cur, memory_order_relaxed);

        assert(sig > 0 && sig < NSIGNALS);
        acts[sig].slot[next] = *sa;
        atomic_store_explicit(&acts[sig].cur, next, memory_order_release);
}

static void set_mask(const sigset_t *set)
{
        sys4(SYS_rt_sigprocmask, SIG_SETMASK, set, NULL, KSIGSET);
}

/* ---- running the program's handlers ---- */

static void call(const struct sigaction *sa, int sig, siginfo_t *info, void *uc)
{
        if (sa->sa_flags & SA_SIGINFO)
                sa->sa_sigaction(sig, info, uc);
        else
                sa->sa_handler(sig);
}

static bool is_fault(int sig)
{
        return sig == SIGSEGV || sig == SIGBUS;
}

/* SA_RESETHAND happens when the handler is entered, and so is ours to do. */
static void reset_if_asked(const struct sigaction *sa, int sig)
{
        struct sigaction dfl = {.sa_handler = SIG_DFL};

        if (!((unsigned)sa->sa_flags & SA_RESETHAND))
                return;
        dfl.sa_flags = sa->sa_flags & ~SA_SIGINFO;
        if (is_fault(sig)) {
                remember(sig, &dfl);
                return;
        }
        atomic_store(&acts[sig].ours, false);
        REAL(sigaction)(sig, &dfl, NULL);
}

static bool from_an_instruction(int sig, const siginfo_t *info)
{
        switch (sig) {
        case SIGSEGV:
        case SIGBUS:
        case SIGFPE:
        case SIGILL:
        case SIGTRAP:
        case SIGSYS:
                return info->si_code > 0;
        default:
                return false;
        }
}

/* The handler may use sockets, or longjmp: for it, the thread is outside. */
static void run_inside_out(const struct sigaction *sa, int sig, siginfo_t *info, void *uc)
{
        int inside = usock_tls.inside;

        usock_tls.inside = 0;
        call(sa, sig, info, uc);
        usock_tls.inside = inside;
}

static void all_that_may_wait(sigset_t *all)
{
        static const int never[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

        sigfillset(all);
        for (size_t i = 0; i < ARRAY_LEN(never); i++)
                sigdelset(all, never[i]);
}

static void defer(const struct sigaction *sa, int sig, const siginfo_t *info, ucontext_t *uc)
{
        struct deferred *d;
        sigset_t all;

        all_that_may_wait(&all);
        set_mask(&all); /* no other one comes before this one is noted */
        d = &queue.v[queue.n];
        assert(queue.n < DEFERRED && usock_tls.inside);
        d->sig = sig;
        d->act = *sa;
        d->info = *info;
        d->uc = *uc;
        d->uc.uc_mcontext.fpregs = NULL;
        queue.n++;
        usock_tls.pending = 1;
        memcpy(&uc->uc_sigmask, &all, KSIGSET);
        usock_sys_ends(uc);
}

/* The program has no handler for a fault. One that an instruction caused comes again by itself. */
static void end_by(int sig, siginfo_t *info)
{
        struct sigaction dfl = {.sa_handler = SIG_DFL};

        REAL(sigaction)(sig, &dfl, NULL);
        if (!from_an_instruction(sig, info))
                sys4(SYS_rt_tgsigqueueinfo, sys1(SYS_getpid, 0), sys1(SYS_gettid, 0), sig, info);
}

static void trampoline(int sig, siginfo_t *info, void *uc)
{
        int saved = errno;
        struct sigaction sa = *current(sig);

        if (is_fault(sig) && from_an_instruction(sig, info) && user_recover(uc))
                return;
        if (is_fault(sig) && sa.sa_handler == SIG_DFL)
                end_by(sig, info);
        if (!is_handler(&sa)) {
                /* Changed by another thread since the kernel decided. One may be put off above. */
                if (usock_tls.inside && usock_tls.pending)
                        usock_sys_ends(uc);
                return;
        }
        if (usock_tls.inside && !from_an_instruction(sig, info) && queue.n < DEFERRED) {
                defer(&sa, sig, info, uc);
                errno = saved;
                return;
        }
        reset_if_asked(&sa, sig);
        errno = saved;
        if (usock_tls.inside)
                run_inside_out(&sa, sig, info, uc);
        else
                call(&sa, sig, info, uc);
}

static void handler_mask(sigset_t *set, const struct deferred *d)
{
        sigorset(set, &d->uc.uc_sigmask, &d->act.sa_mask);
        if (!(d->act.sa_flags & SA_NODEFER))
                sigaddset(set, d->sig);
}

/* Of several that a sleep has let in at once (ppoll(2)'s mask) the last one was delivered first, to
 * the program's mask. */
static void programs_mask(sigset_t *now)
{
        memcpy(now, &queue.v[queue.n - 1].uc.uc_sigmask, KSIGSET);
}

/* Those that wait are the kernel's once more, which delivers them when the handler that runs first
 * lets them in: they may be in its mask, and calls of its own must not run them. What it has no
 * room for (RLIMIT_SIGPENDING) comes after that handler. */
static void back_to_kernel(void)
{
        long pid = sys0(SYS_getpid), tid = sys0(SYS_gettid);
        unsigned kept = 0;

        for (unsigned i = 0; i < queue.n; i++)
                if (sys4(SYS_rt_tgsigqueueinfo, pid, tid, queue.v[i].sig, &queue.v[i].info) != 0)
                        queue.v[kept++] = queue.v[i];
        queue.n = kept;
}

/* Takes the first one, under blocked signals. */
static struct deferred next_deferred(sigset_t *now)
{
        struct deferred d = queue.v[0];

        programs_mask(now);
        memcpy(&d.uc.uc_sigmask, now, KSIGSET);
        for (unsigned i = 1; i < queue.n; i++)
                queue.v[i - 1] = queue.v[i];
        queue.n--;
        if (queue.n && atomic_load(&sandbox_forbidden) == 0)
                back_to_kernel();
        usock_tls.pending = queue.n != 0;
        return d;
}

/* usock_run_deferred: outermost leave, nothing of ours held. */
static void run_deferred(void)
{
        int saved = errno;
        sigset_t set, now;

        assert(usock_tls.inside == 0);
        usock_tls.pending = queue.n != 0;
        cancelled_inside();
        sigfillset(&set);
        while (queue.n) {
                struct deferred d;
                bool restart;

                sys4(SYS_rt_sigprocmask, SIG_SETMASK, &set, &now, KSIGSET);
                d = next_deferred(&now);
                restart = shim_tls.handled ? shim_tls.restart : d.act.sa_flags & SA_RESTART;
                reset_if_asked(&d.act, d.sig);
                handler_mask(&set, &d);
                set_mask(&set);
                errno = saved;
                call(&d.act, d.sig, &d.info, &d.uc);
                shim_tls.handled = true; /* it may have waited itself */
                shim_tls.restart = restart;
                set_mask(&d.uc.uc_sigmask);
                sigfillset(&set);
        }
        errno = saved;
}

bool signals_put_off(void)
{
        return queue.n != 0;
}

void raise_sigpipe(void)
{
        sys3(SYS_tgkill, sys1(SYS_getpid, 0), sys1(SYS_gettid, 0), SIGPIPE);
}

/* ---- what the program sets and asks ---- */

static int install(int sig, const struct sigaction *sa)
{
        struct sigaction tramp = *sa;

        tramp.sa_sigaction = trampoline;
        tramp.sa_flags = (int)(((unsigned)sa->sa_flags | SA_SIGINFO) & ~(unsigned)SA_RESETHAND);
        if (!is_handler(sa))
                tramp.sa_flags |= SA_ONSTACK;
        return REAL(sigaction)(sig, &tramp, NULL);
}

/* Between the kernel's entry and ours, a signal must find the two in agreement: the new handler is
 * remembered first, under blocked signals of this thread. */
static int change(int sig, const struct sigaction *sa)
{
        struct sigaction before = *current(sig);
        int r;

        if (!is_handler(sa) && !(is_fault(sig) && sa->sa_handler == SIG_DFL)) {
                r = REAL(sigaction)(sig, sa, NULL);
                if (r == 0)
                        atomic_store(&acts[sig].ours, false);
                return r;
        }
        remember(sig, sa);
        r = install(sig, sa);
        if (r == 0)
                atomic_store(&acts[sig].ours, true);
        else
                remember(sig, &before);
        return r;
}

static int query(int sig, struct sigaction *old)
{
        if (!atomic_load(&acts[sig].ours))
                return REAL(sigaction)(sig, NULL, old);
        *old = *current(sig);
        return 0;
}

int h_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
        struct sigaction sa, was;
        sigset_t all, mask;
        int r;

        if (!shim.size || usock_tls.inside || sig < 1 || sig >= NSIGNALS)
                return REAL(sigaction)(sig, act, old);
        if (act)
                sa = *act;
        sigfillset(&all);
        sys4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, KSIGSET);
        pthread_mutex_lock(&acts_lock);
        r = query(sig, &was);
        if (r == 0 && act)
                r = change(sig, &sa);
        pthread_mutex_unlock(&acts_lock);
        sys4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, KSIGSET);
        if (r == 0 && old)
                *old = was;
        return r;
}
HOOK_ALSO(sigaction, __sigaction);

static sighandler_t set_handler(int sig, sighandler_t handler, int flags, bool mask_self)
{
        struct sigaction sa = {.sa_handler = handler, .sa_flags = flags}, old;

        if (handler == SIG_ERR || sig < 1 || sig >= NSIGNALS) {
                errno = EINVAL;
                return SIG_ERR;
        }
        sigemptyset(&sa.sa_mask);
        if (mask_self)
                sigaddset(&sa.sa_mask, sig);
        return h_sigaction(sig, &sa, &old) < 0 ? SIG_ERR : old.sa_handler;
}

sighandler_t h_signal(int sig, sighandler_t handler)
{
        if (!shim.size)
                return REAL(signal)(sig, handler);
        return set_handler(sig, handler, sigismember(&interrupting, sig) == 1 ? 0 : SA_RESTART,
                           true);
}
HOOK_ALSO(signal, bsd_signal);
HOOK_ALSO(signal, ssignal);

sighandler_t h_sysv_signal(int sig, sighandler_t handler)
{
        return shim.size ? set_handler(sig, handler, (int)(SA_RESETHAND | SA_NODEFER), false)
                         : REAL(sysv_signal)(sig, handler);
}
HOOK_ALSO(sysv_signal, __sysv_signal);

/* sigset(3): a handler, or SIG_HOLD to block; answers SIG_HOLD when the signal was blocked. */
sighandler_t h_sigset(int sig, sighandler_t handler)
{
        sigset_t one, before;
        struct sigaction old;

        if (!shim.size)
                return REAL(sigset)(sig, handler);
        sigemptyset(&one);
        if (sigaddset(&one, sig) < 0)
                return SIG_ERR;
        if (handler == SIG_HOLD) {
                pthread_sigmask(SIG_BLOCK, &one, &before);
                if (h_sigaction(sig, NULL, &old) < 0)
                        return SIG_ERR;
                return sigismember(&before, sig) ? SIG_HOLD : old.sa_handler;
        }
        handler = set_handler(sig, handler, 0, false);
        if (handler == SIG_ERR)
                return SIG_ERR;
        pthread_sigmask(SIG_UNBLOCK, &one, &before);
        return sigismember(&before, sig) ? SIG_HOLD : handler;
}

int h_sigignore(int sig)
{
        return shim.size ? (set_handler(sig, SIG_IGN, 0, false) == SIG_ERR ? -1 : 0)
                         : REAL(sigignore)(sig);
}

int h_siginterrupt(int sig, int interrupt)
{
        struct sigaction sa;

        if (!shim.size)
                return REAL(siginterrupt)(sig, interrupt);
        if (h_sigaction(sig, NULL, &sa) < 0)
                return -1;
        if (interrupt) {
                sigaddset(&interrupting, sig);
                sa.sa_flags &= ~SA_RESTART;
        } else {
                sigdelset(&interrupting, sig);
                sa.sa_flags |= SA_RESTART;
        }
        return h_sigaction(sig, &sa, NULL);
}

/* ---- life ---- */

void signals_start(void)
{
        struct sigaction sa;

        usock_run_deferred = run_deferred;
        for (int sig = 1; sig < NSIGNALS; sig++) {
                if (REAL(sigaction)(sig, NULL, &sa) < 0 ||
                    !(is_handler(&sa) || (is_fault(sig) && sa.sa_handler == SIG_DFL)))
                        continue;
                remember(sig, &sa);
                if (install(sig, &sa) == 0)
                        atomic_store(&acts[sig].ours, true);
        }
}

/* Another thread of the parent may have held the lock. What was put off in the parent happens in
 * the parent; what was blocked for it there is blocked here. */
void signals_fork_child(void)
{
        sigset_t now;

        acts_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        if (queue.n) {
                programs_mask(&now);
                queue.n = 0;
                set_mask(&now);
        }
        usock_tls.pending = 0;
}
