/*
 * A thread that gives up the process's user keeps the others out of the library meanwhile (hold.h).
 *
 * Each of them is asked, by libc's signal for cancellations with a word of ours, and answers when
 * it is outside: at once, or as it leaves. A call that sleeps ends, and is made again.
 *
 * Nobody gets in unseen. Holder: (1) the door is closed, (2) a new number of the question, (3) who
 * answers with it. A thread reads the number, answers, and looks at the door when it enters next:
 * it answers (2), so it sees (1). One that is made meanwhile by who has answered sees (1) as well;
 * one that is made by who has not is found by the next look at all threads.
 */
#include "sock/shim/cancel.h"
#include "sock/shim/hold.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sandbox.h"

#define ANSWERS  4096u
#define TRIES    500 /* one a millisecond; a thread may be stopped, or at a debugger's mercy */
#define PAUSE_NS NS_PER_MS

static struct {
        _Atomic uint32_t question, n;
        _Atomic uint64_t by[ANSWERS]; /* question << 32 | the thread */
} answers;

/* ---- the thread that is asked ---- */

bool hold_is_asked(const siginfo_t *info)
{
        return info->si_code == SI_QUEUE && info->si_value.sival_ptr == &answers;
}

void hold_answer(void)
{
        uint64_t question = atomic_load(&answers.question);
        uint32_t i = atomic_fetch_add(&answers.n, 1);

        assert(!usock_tls.inside);
        if (i < ANSWERS)
                atomic_store(&answers.by[i], question << 32 | (uint32_t)sys0(SYS_gettid));
}

/* ---- the one that asks ---- */

static bool has_answered(uint32_t tid)
{
        uint64_t wanted = (uint64_t)atomic_load(&answers.question) << 32 | tid;
        uint32_t n = MIN(atomic_load(&answers.n), ANSWERS);

        for (uint32_t i = 0; i < n; i++)
                if (atomic_load(&answers.by[i]) == wanted)
                        return true;
        return false;
}

static void ask(long pid, long tid)
{
        siginfo_t info = {.si_signo = SIGCANCEL, .si_code = SI_QUEUE};

        info.si_pid = (pid_t)pid;
        info.si_value.sival_ptr = &answers;
        sys4(SYS_rt_tgsigqueueinfo, pid, tid, SIGCANCEL, &info);
}

/* Asks those of whom there is no answer yet. */
static bool all_have_answered(void)
{
        long pid = sys0(SYS_getpid), own = sys0(SYS_gettid);
        DIR *d = opendir("/proc/self/task");
        bool all = d != NULL;
        const struct dirent *e;

        while (d != NULL && (e = readdir(d)) != NULL) {
                long tid = atol(e->d_name);

                if (tid <= 0 || tid == own || has_answered((uint32_t)tid))
                        continue;
                all = false;
                ask(pid, tid);
        }
        if (d != NULL)
                closedir(d);
        return all;
}

static bool can_ask(void)
{
        return atomic_load(&sandbox_forbidden) == 0 && cancel_has_signal() &&
               access("/proc/self/task", R_OK | X_OK) == 0;
}

int hold_others(void)
{
        const struct timespec pause = {0, PAUSE_NS};
        uint32_t open = 0;

        assert(usock_tls.inside == 1);
        if (!can_ask())
                return -EBUSY;
        if (!atomic_compare_exchange_strong(&usock_closed, &open, 1)) {
                usock_leave(); /* this one is asked, too */
                usock_enter();
                return -EAGAIN;
        }
        atomic_fetch_add(&answers.question, 1);
        atomic_store(&answers.n, 0);
        for (int i = 0; i < TRIES; i++) {
                if (all_have_answered())
                        return 0;
                sys2(SYS_nanosleep, &pause, NULL);
        }
        hold_end();
        return -EBUSY;
}

void hold_end(void)
{
        assert(atomic_load(&usock_closed) != 0);
        atomic_store(&usock_closed, 0);
        sys3(SYS_futex, &usock_closed, FUTEX_WAKE_PRIVATE, INT_MAX);
}

void hold_fork_child(void)
{
        atomic_store(&usock_closed, 0);
        shim_tls.hold_asked = false;
}
