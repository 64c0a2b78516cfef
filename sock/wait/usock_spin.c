/* Spinning before a sleep: for how long it pays, and what is done instead where there is
 * one processor. */
#include "sock/wait/usock_wait.h"

#include <sched.h>
#include <time.h>

#include "base/sandbox.h"
#include "base/sys.h"
#include "sock/wait/usock_nap.h"
#include "sock/wait/usock_pace.h"
#include "sock/wait/usock_turns.h"
#include "sock/usock_ready.h"
#include "sock/usock_process.h"

#define SPIN_MAX (50 * NS_PER_US) /* longest spin before sleeping */
/* ... with an interface of our own: runs of segments come some 50 us apart. */
#define SPIN_WIRE (100 * NS_PER_US)
#define SPIN_MIN  (2 * NS_PER_US)
/* Half of what an answer takes: as little as possible, but as much as evens out. */
#define SPIN_QUIET (25 * NS_PER_US)
#define SPIN_LOOKS 32 /* between two looks at the clock */

/* Per thread: how long spinning has paid lately. */
static __thread nstime spin_budget __attribute__((tls_model("initial-exec"))) = SPIN_MAX;

/*
 * How long to spin at most. Spinning is for a peer that runs on another processor; 0: there is
 * none. Behind an interface of our own nobody needs this processor, behind one that is shared a
 * gateway does. Behind an RDMA device, which may be the kernel's software, it is offered to
 * everybody at each look (*yield): on a machine with one processor what comes next comes from
 * there.
 */
static nstime spin_most(const struct wait *w, bool *yield)
{
        uint32_t cpu = (uint32_t)sched_getcpu();
        nstime most = 0;

        *yield = false;
        for (uint32_t i = 0; i < w->nall; i++) {
                struct ustack *u = w->all[i];
                if (atomic_load_explicit(&u->s.bell->cpu, memory_order_relaxed) != cpu)
                        atomic_store_explicit(&u->s.bell->cpu, cpu, memory_order_relaxed);
                STACK_FOR_HOT (&u->s, k) {
                        /* Mapped before. */
                        const struct bell *bell =
                                __atomic_load_n(&u->chan[k].bell, __ATOMIC_ACQUIRE);
                        if (READ_ONCE(u->s.chan[k].wire))
                                return SPIN_WIRE;
                        if (READ_ONCE(u->s.chan[k].outside) ||
                            (bell != NULL &&
                             atomic_load_explicit(&bell->cpu, memory_order_relaxed) != cpu))
                                most = SPIN_MAX;
                        if (unlikely(READ_ONCE(u->s.chan[k].remote)))
                                *yield = true;
                }
        }
        return most;
}

void wait_judge_sleep(const struct wait *w, nstime slept)
{
        bool yield;

        if (slept < 2 * SPIN_WIRE && spin_most(w, &yield) == SPIN_WIRE)
                spin_budget = SPIN_WIRE;
}

/* Turns are left to the kernel, and it was not the other end's: a sleep that makes it so, and is as
 * short as there are. False: it was no use, and who waits sleeps until he is woken. */
static bool nap(struct wait *w)
{
        const struct timespec least = {.tv_nsec = 1};

        if (w->napped || sandbox_forbidden != 0)
                return false;
        w->napped = true;
        sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &least, NULL);
        return true;
}

/* An offer was void, and something will come (usock_nap.h). */
static bool nap_for_once(struct wait *w)
{
        bool napped = nap(w);

        if (napped)
                usock_nap_over(wait_pending(w, 0));
        return napped;
}

bool wait_spin(struct wait *w, nstime now)
{
        enum usock_turns_wait how;
        bool yield;
        nstime most = spin_most(w, &yield), end = now + MIN(spin_budget, most), due = NSTIME_NEVER,
               began = now, lent = 0;
        int looks, offers = 0;

        if (most == 0)
                return false;
        how = usock_turns_waits();
        if (unlikely(how == USOCK_TURNS_NAP) && !w->napped)
                return nap(w);
        if (unlikely(how == USOCK_TURNS_SPIN)) {
                end = now + SPIN_QUIET;
                yield = false;
        }
        looks = yield ? 1 : SPIN_LOOKS;
        for (uint32_t i = 0; i < w->nall; i++)
                due = MIN(due, stack_deadline(&w->all[i]->s));
        do {
                for (int i = 0; i < looks; i++) {
                        if (wait_pending(w, 0) || wait_heard(w)) {
                                spin_budget = MIN(spin_budget * 2, most);
                                if (unlikely(yield))
                                        usock_turns_spun(offers, lent);
                                if (lent > USOCK_LENT_SHARED) { /* it was no better than a sleep */
                                        usock_nap_shared();
                                        usock_slept(w->all, w->nall, ustack_now() - began);
                                }
                                return true;
                        }
                        cpu_relax();
                }
                now = ustack_now();
                if (yield) {
                        sandbox_yield();
                        offers++;
                        lent -= now;
                        end -= now;
                        now = ustack_now();
                        lent += now;
                        end += now;
                }
                if (usock_tls.pending || now >= due || now >= w->until)
                        return true;
                if (yield && lent <= USOCK_LENT_SHARED && !w->napped && usock_nap_pays())
                        return nap_for_once(w);
        } while (now < end);
        if (unlikely(how == USOCK_TURNS_SPIN))
                return nap(w);
        spin_budget = MAX(spin_budget / 2, SPIN_MIN);
        if (lent <= USOCK_LENT_SHARED || !wait_pending(w, 0))
                return false;
        usock_slept(w->all, w->nall, now - began); /* as good as a sleep */
        return true;
}
