/*
 * The lock of a stack when its holder dies: at every instruction of taking and leaving it; with
 * several locks and libc's mutexes in the same list; and while processes and threads compete for
 * it. And who is said to have it.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rlock.h"
#include "tests/unit.h"

#define THREADS 4
#define ROUNDS  20000
#if defined(__SANITIZE_THREAD__)
#define STRIDE 97 /* its own instructions between ours are many */
#elif defined(__has_feature)
#define STRIDE (__has_feature(thread_sanitizer) ? 97 : 1)
#else
#define STRIDE 1
#endif

struct shared {
        struct rlock a, b;
        pthread_mutex_t m[2];
        volatile int inside;     /* the child knows that it has the lock */
        volatile int done;       /* the child knows that it has left it */
        volatile uint64_t count; /* guarded by a */
        volatile uint64_t twin;
        volatile uint64_t repairs;
};

static struct shared *map_shared(void)
{
        struct shared *s =
                mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pthread_mutexattr_t at;

        assert_ptr_not_equal(s, MAP_FAILED);
        pthread_mutexattr_init(&at);
        pthread_mutexattr_setpshared(&at, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&at, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&s->m[0], &at);
        pthread_mutex_init(&s->m[1], &at);
        return s;
}

static void unmap_shared(struct shared *s)
{
        munmap(s, sizeof *s);
}

static pid_t fork_child(void)
{
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                rlock_forked();
                alarm(500);
        }
        return pid;
}

/* ---- one instruction after the other ---- */

static void takes_and_leaves(struct shared *s)
{
        rlock_lock(&s->a);
        s->inside = 1;
        s->inside = 0;
        rlock_unlock(&s->a);
        s->done = 1;
}

/* The child is killed before its instruction number n. False: it was through before. */
static bool killed_at(struct shared *s, void (*act)(struct shared *), unsigned n)
{
        int status;
        pid_t pid = fork_child();

        if (pid == 0) {
                rlock_know_self();
                ptrace(PTRACE_TRACEME, 0, NULL, NULL);
                raise(SIGSTOP);
                act(s);
                _exit(0);
        }
        waitpid(pid, &status, 0);
        for (unsigned i = 0; i < n && WIFSTOPPED(status) && !s->done; i++) {
                assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
                waitpid(pid, &status, 0);
        }
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        return !s->done;
}

static void a_holder_may_die_at_any_instruction(void **state)
{
        unsigned n = 0, owner_died = 0, free_again = 0;
        bool more = true;

        for (; more; n += STRIDE) {
                struct shared *s = map_shared();
                bool held;
                int err;
                more = killed_at(s, takes_and_leaves, n);
                held = s->inside;
                err = rlock_trylock(&s->a);
                assert_int_not_equal(err, -EBUSY);
                if (held)
                        assert_int_equal(err, -EOWNERDEAD);
                owner_died += err == -EOWNERDEAD;
                free_again += err == 0;
                rlock_unlock(&s->a);
                assert_int_equal(rlock_trylock(&s->a), 0); /* told once */
                rlock_unlock(&s->a);
                assert_int_equal(s->a.word, 0);
                unmap_shared(s);
        }
        print_message("%u instructions: the holder's death was seen %u times\n", n, owner_died);
        assert_true(owner_died > 5 && free_again > 1);
}

/* ---- several at once ---- */

static void dies_with_many(struct shared *s)
{
        rlock_lock(&s->a);
        pthread_mutex_lock(&s->m[0]);
        rlock_lock(&s->b);
        pthread_mutex_lock(&s->m[1]);
        s->inside = 1;
        pthread_mutex_unlock(&s->m[0]); /* between two of ours */
        rlock_unlock(&s->a);
        s->inside = 2;
}

static bool takes_mutex(pthread_mutex_t *m)
{
        int err = pthread_mutex_trylock(m);

        assert_true(err == 0 || err == EOWNERDEAD);
        if (err == EOWNERDEAD)
                pthread_mutex_consistent(m);
        pthread_mutex_unlock(m);
        return err == EOWNERDEAD;
}

static bool takes_lock(struct rlock *l)
{
        int err = rlock_trylock(l);

        assert_true(err == 0 || err == -EOWNERDEAD);
        rlock_unlock(l);
        return err == -EOWNERDEAD;
}

/* Deaths before, amid and after; none leaves a lock that nobody can take, of ours or of libc's. */
static void locks_of_both_kinds_share_the_list(void **state)
{
        unsigned n = 0, all = 0, two = 0;
        bool more = true;

        for (; more; n += 3 * STRIDE) {
                struct shared *s = map_shared();
                unsigned found;
                int was;
                more = killed_at(s, dies_with_many, n) && n < 100000;
                was = s->inside;
                found = takes_lock(&s->a);
                found += takes_mutex(&s->m[0]);
                found += takes_lock(&s->b);
                found += takes_mutex(&s->m[1]);
                if (was == 1)
                        assert_true(found >= 2);
                all += found == 4;
                if (was == 2) {
                        assert_int_equal(found, 2);
                        more = false;
                        two++;
                }
                unmap_shared(s);
        }
        assert_true(all > 0 && two > 0);
}

/* ---- in competition ---- */

/* Two counts that are the same whenever nobody is inside; a death in between is repaired. */
static void add_one(struct shared *s)
{
        if (rlock_lock(&s->a) == -EOWNERDEAD) {
                s->twin = s->count;
                s->repairs++;
        }
        if (s->count != s->twin)
                abort();
        s->count++;
        s->twin++;
        rlock_unlock(&s->a);
}

static void *adds(void *arg)
{
        for (int i = 0; i < ROUNDS; i++)
                add_one(arg);
        return NULL;
}

static void run_threads(struct shared *s)
{
        pthread_t t[THREADS];

        for (int i = 0; i < THREADS; i++)
                pthread_create(&t[i], NULL, adds, s);
        for (int i = 0; i < THREADS; i++)
                pthread_join(t[i], NULL);
}

static void threads_of_two_processes_take_turns(void **state)
{
        struct shared *s = map_shared();
        pid_t pid = fork_child();
        int status;

        if (pid == 0) {
                run_threads(s);
                _exit(0);
        }
        run_threads(s);
        waitpid(pid, &status, 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_true(s->count == 2ull * THREADS * ROUNDS && s->twin == s->count && s->repairs == 0);
        assert_int_equal(s->a.word, 0);
        unmap_shared(s);
}

static void processes_die_while_others_compete(void **state)
{
        struct shared *s = map_shared();
        unsigned seed = 1;

        while (s->repairs < 10) {
                uint64_t end = s->count + 2000 + (uint64_t)rand_r(&seed) % 2000;
                pid_t pid = fork_child();
                if (pid == 0) {
                        for (;;)
                                run_threads(s);
                }
                while (s->count < end)
                        usleep(100);
                kill(pid, SIGKILL);
                for (int i = 0; i < 1000; i++)
                        add_one(s);
                waitpid(pid, NULL, 0);
        }
        assert_true(s->count == s->twin);
        print_message("%llu additions, %llu repairs\n", (unsigned long long)s->count,
                      (unsigned long long)s->repairs);
        unmap_shared(s);
}

/* Whoever sleeps for it is woken by its holder's death. */
static void a_sleeper_is_woken_by_a_death(void **state)
{
        struct shared *s = map_shared();
        int status;
        pid_t holder = fork_child(), sleeper;

        if (holder == 0) {
                rlock_lock(&s->a);
                s->inside = 1;
                for (;;)
                        pause();
        }
        while (!s->inside)
                usleep(1000);
        sleeper = fork_child();
        if (sleeper == 0)
                _exit(rlock_lock(&s->a) == -EOWNERDEAD ? 7 : 1);
        while (!(s->a.word & FUTEX_WAITERS))
                usleep(1000);
        kill(holder, SIGKILL);
        waitpid(holder, NULL, 0);
        waitpid(sleeper, &status, 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        assert_int_equal(rlock_lock(&s->a), -EOWNERDEAD); /* it died with it, too */
        rlock_unlock(&s->a);
        unmap_shared(s);
}

/* ---- whose it is ---- */

/* Threads of two pid namespaces may have one number. */
static void another_s_with_our_number_is_not_ours(void **state)
{
        struct shared *s = map_shared();

        assert_false(rlock_mine(&s->a));
        assert_int_equal(rlock_lock(&s->b), 0);
        atomic_store(&s->a.word, rlock_self.tid);
        assert_false(rlock_mine(&s->a));
        atomic_store(&s->a.word, 0);
        assert_int_equal(rlock_lock(&s->a), 0);
        assert_true(rlock_mine(&s->a) && rlock_mine(&s->b));
        rlock_unlock(&s->b);
        assert_true(rlock_mine(&s->a) && !rlock_mine(&s->b));
        rlock_unlock(&s->a);
        assert_false(rlock_mine(&s->a));
        unmap_shared(s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_holder_may_die_at_any_instruction),
                cmocka_unit_test(locks_of_both_kinds_share_the_list),
                cmocka_unit_test(threads_of_two_processes_take_turns),
                cmocka_unit_test(processes_die_while_others_compete),
                cmocka_unit_test(a_sleeper_is_woken_by_a_death),
                cmocka_unit_test(another_s_with_our_number_is_not_ours),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
