/* Polling before a sleep. How long it pays: usock_policy.h. Behind RDMA devices the processor is
 * offered meanwhile. */
#include "sock/wait/usock_wait.h"

#include <sched.h>
#include <time.h>

#include "base/sandbox.h"
#include "base/sys.h"
#include "sock/wait/usock_nap.h"
#include "sock/wait/usock_policy.h"
#include "sock/wait/usock_turns.h"
#include "sock/usock_ready.h"
#include "sock/usock_process.h"

/* Half of what an answer takes: as little as possible, but as much as evens out. */
#define SPIN_QUIET (25 * NS_PER_US)
#define SPIN_LOOKS 16 /* between two looks at the clock */
/* Between two looks at the clock no more than that passes, unless others have the processor; and
 * with each channel that is looked at so much more at each look. */
#define SPIN_GAP      (10 * NS_PER_US)
#define SPIN_GAP_CHAN 10

static __thread struct policy policy __attribute__((tls_model("initial-exec"))) = POLICY_BEGIN;

static enum policy_road road_of(const struct ustack *u, uint32_t k, uint32_t cpu)
{
        const struct stack_chan *c = &u->s.chan[k];
        /* Mapped before. */
        const struct bell *bell = __atomic_load_n(&u->chan[k].bell, __ATOMIC_ACQUIRE);

        if (READ_ONCE(c->wire))
                return POLICY_WIRE;
        if (unlikely(READ_ONCE(c->remote)))
                return POLICY_DEVICE;
        if (READ_ONCE(c->outside) ||
            (bell != NULL && atomic_load_explicit(&bell->cpu, memory_order_relaxed) != cpu))
                return POLICY_MEMORY;
        return POLICY_NONE;
}

static enum policy_road best_road(struct wait *w)
{
        uint32_t cpu = (uint32_t)sched_getcpu();
        enum policy_road best = POLICY_NONE;

        w->gap = SPIN_GAP;
        for (uint32_t i = 0; i < w->nall; i++) {
                struct ustack *u = w->all[i];
                if (atomic_load_explicit(&u->s.bell->cpu, memory_order_relaxed) != cpu)
                        atomic_store_explicit(&u->s.bell->cpu, cpu, memory_order_relaxed);
                STACK_FOR_HOT (&u->s, k) {
                        best = MAX(best, road_of(u, k, cpu));
                        w->gap += SPIN_LOOKS * SPIN_GAP_CHAN;
                }
        }
        return best;
}

static nstime first_deadline(const struct wait *w)
{
        nstime due = w->until;

        for (uint32_t i = 0; i < w->nall; i++)
                due = nstime_min(due, stack_deadline(&w->all[i]->s));
        return due;
}

static bool looks(struct wait *w, int n)
{
        for (int i = 0; i < n; i++) {
                if (wait_pending(w, 0) || wait_heard(w))
                        return true;
                cpu_relax();
        }
        return false;
}

/* The clock was not looked at while so much of a poll passed. */
static void passed(struct wait *w, nstime time)
{
        w->polled += time;
        if (time > w->gap)
                w->lost += time;
}

/* With success the clock is left to whoever goes on: this is the way of each message. */
static bool poll_memory(struct wait *w, nstime now, nstime end)
{
        nstime due = first_deadline(w);

        do {
                w->looked = now;
                if (looks(w, SPIN_LOOKS))
                        return true;
                now = ustack_now();
                passed(w, now - w->looked);
                w->looked = 0;
        } while (!usock_tls.pending && now < end && now < due);
        return usock_tls.pending || now >= due;
}

/* ---- behind an RDMA device ---- */

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

/* The processor is offered to everybody at each look: on a machine with one, what comes next comes
 * from there. What others have of the time is not of the poll: it is theirs that it comes from. */
static bool poll_and_offer(struct wait *w, nstime now, nstime end)
{
        nstime due = first_deadline(w), lent = 0;
        int offers = 0;

        do {
                nstime then;
                if (looks(w, 1)) {
                        usock_turns_spun(offers, lent);
                        if (lent > USOCK_LENT_SHARED)
                                usock_nap_shared();
                        return true;
                }
                then = ustack_now();
                sandbox_yield();
                offers++;
                now = ustack_now();
                lent += now - then;
                w->lent += now - then;
                if (usock_tls.pending || now >= due)
                        return true;
                if (lent <= USOCK_LENT_SHARED && !w->napped && usock_nap_pays())
                        return nap_for_once(w);
        } while (now - lent < end);
        return lent > USOCK_LENT_SHARED && wait_pending(w, 0);
}

static bool poll_device(struct wait *w, nstime now, nstime end)
{
        enum usock_turns_wait how = usock_turns_waits();

        if (how == USOCK_TURNS_NAP && !w->napped)
                return nap(w);
        if (how == USOCK_TURNS_SPIN)
                return poll_memory(w, now, now + SPIN_QUIET) || nap(w);
        return now < end && poll_and_offer(w, now, end);
}

static nstime poll_end(const struct wait *w, enum policy_road road, nstime now)
{
        return (w->judged ? w->judged_at : now) + w->lent + policy_length(&policy, road, now);
}

bool wait_polls(struct wait *w, nstime now)
{
        enum policy_road road = best_road(w);

        return road == POLICY_DEVICE || now < poll_end(w, road, now);
}

bool wait_spin(struct wait *w, nstime now)
{
        enum policy_road road = best_road(w);
        nstime end = poll_end(w, road, now);

        if (!w->judged)
                w->judged_at = now;
        w->judged = true;
        w->looked = 0; /* what came by the last poll was another's */
        if (unlikely(road == POLICY_DEVICE))
                return poll_device(w, now, end);
        return now < end && poll_memory(w, now, end);
}

void wait_over(struct wait *w, nstime now, bool came)
{
        assert(w->judged);
        policy_waited(&policy, MAX(now - w->judged_at - w->lent, 0), came);
        if (w->looked != 0)
                passed(w, now - w->looked);
        if (w->polled != 0)
                policy_polled(&policy, w->polled, w->lost);
}
