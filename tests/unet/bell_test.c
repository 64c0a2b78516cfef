/*
 * No wake-up is lost: two processes that sleep whenever they can, and a lost ring would leave both
 * asleep for ever.
 *
 * Every wait is without a timeout and without spinning (`spin_ns` -1), so each message may meet the
 * other side anywhere between its last look and its sleep. A watchdog (alarm) turns a lost wake-up
 * into a failure. UNET_STRESS multiplies the number of messages.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/prng.h"
#include "pair.h"
#include "tests/slower.h"
#include "unet/shm/switch.h"

/* A stream of 3 million turns that all have to wait for the processor took longer than 110 s. */
#define WATCHDOG 500

/* Where each turn waits for a processor, the same number takes ten times as long. */
static uint32_t rounds(uint32_t n)
{
        const char *times = getenv("UNET_STRESS");

        return times != NULL ? n * (uint32_t)atoi(times) : n / SLOWER;
}

static void idle_a_little(struct prng_fast *rng)
{
        uint32_t n = prng_fast_below(rng, 8) == 0 ? prng_fast_below(rng, 3000)
                                                  : prng_fast_below(rng, 50);

        for (volatile uint32_t i = 0; i < n; i++)
                ;
}

static void send_number(struct unet_ep *ep, uint32_t chan, uint32_t number)
{
        struct unet_send m = {.chan = chan, .inl = &number, .inl_len = 4};
        int n;

        while ((n = unet_ep_send(ep, &m, 1)) == -EAGAIN)
                unet_ep_wait(ep, UNET_WRITABLE, UNET_FOREVER);
        if (n != 1)
                abort();
}

typedef int wait_fn(struct unet_ep *ep);

static int wait_inside(struct unet_ep *ep)
{
        return unet_ep_wait(ep, UNET_READABLE, UNET_FOREVER);
}

/* As a program with a loop of its own would. */
static int wait_on_the_descriptor(struct unet_ep *ep)
{
        int is = unet_ep_arm(ep, UNET_READABLE);

        if (is == 0)
                poll(&(struct pollfd){.fd = unet_ep_fd(ep), .events = POLLIN}, 1, -1);
        return is;
}

static uint32_t recv_number(struct unet_ep *ep, wait_fn *wait)
{
        struct unet_recv m;
        uint32_t number;

        while (unet_ep_recv(ep, &m, 1) == 0)
                wait(ep);
        memcpy(&number, m.inl, 4);
        return number;
}

static pid_t fork_child(void)
{
        pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                alarm(WATCHDOG);
        }
        return child;
}

static void child_is_well(pid_t child)
{
        int status;

        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
}

/*
 * The heart of it, without the sleep: one side arms and looks, the other sends, at the same moment,
 * again and again. If the first saw nothing, the second must have rung. On x86 with two free
 * processors this fails within a second when either fence is taken away; on a busy machine the two
 * sides rarely meet.
 */
struct moment {
        struct pair *p;
        _Atomic uint32_t sender, sleeper; /* rounds begun and ended, twice each */
        uint32_t n, lost, both, seen;
        bool stop; /* passed on by meet() */
        cpu_set_t cpus;
};

static void meet(_Atomic uint32_t *mine, _Atomic uint32_t *other)
{
        uint32_t at = atomic_fetch_add(mine, 1) + 1;

        for (uint32_t looks = 1; (int32_t)(atomic_load(other) - at) < 0; looks++)
                if (looks % 256 == 0)
                        sched_yield(); /* perhaps there is one processor only */
}

static void wait_a_moment(struct prng_fast *rng)
{
        for (volatile uint32_t i = prng_fast_below(rng, 400); i > 0; i--)
                ;
}

/* The calling thread runs on the n-th processor of the set, if it has so many. */
static void run_on(const cpu_set_t *set, int n)
{
        cpu_set_t one;

        CPU_ZERO(&one);
        for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
                if (CPU_ISSET(cpu, set) && n-- == 0)
                        CPU_SET(cpu, &one);
        if (CPU_COUNT(&one) == 1)
                sched_setaffinity(0, sizeof one, &one);
}

static void *send_at_the_moment(void *arg)
{
        struct moment *m = arg;
        struct prng_fast rng;

        run_on(&m->cpus, 1);
        prng_fast_init(&rng, 31);
        for (uint32_t i = 0;; i++) {
                meet(&m->sender, &m->sleeper);
                if (m->stop)
                        return NULL;
                wait_a_moment(&rng);
                send_number(m->p->a, m->p->ca, i);
                meet(&m->sender, &m->sleeper);
        }
}

static void arming_and_sending_at_the_same_moment(void **state)
{
        struct moment m = {.p = pair_new(&providers[0], (struct unet_ep_opts){0}), .n = 0};
        const time_t end = time(NULL) + (time_t)rounds(3 * SLOWER);
        struct unet_chan *ch = m.p->b->link[0].l.ch;
        struct prng_fast rng;
        pthread_t thread;

        alarm(WATCHDOG);
        assert_int_equal(sched_getaffinity(0, sizeof m.cpus, &m.cpus), 0);
        run_on(&m.cpus, 0);
        prng_fast_init(&rng, 32);
        assert_int_equal(pthread_create(&thread, NULL, send_at_the_moment, &m), 0);
        for (; time(NULL) < end; m.n++) {
                uint64_t rung;
                struct unet_recv r;
                bool saw, rang;

                rung = unet_ep_stat(m.p->a, "NI_BELLS");
                meet(&m.sleeper, &m.sender);
                wait_a_moment(&rng);
                station_arm(&m.p->b->st);
                saw = ch->ops->pending(ch);
                meet(&m.sleeper, &m.sender);
                rang = unet_ep_stat(m.p->a, "NI_BELLS") != rung;
                m.lost += !saw && !rang;
                m.both += saw && rang;
                m.seen += saw;
                bell_disarm(m.p->b->st.bell);
                assert_int_equal(unet_ep_recv(m.p->b, &r, 1), 1);
        }
        m.stop = true;
        meet(&m.sleeper, &m.sender);
        pthread_join(thread, NULL);
        print_message("%u moments: seen before sleeping %u, of these rung as well %u\n", m.n,
                      m.seen, m.both);
        sched_setaffinity(0, sizeof m.cpus, &m.cpus);
        assert_int_equal(m.lost, 0);
        pair_free(m.p);
        alarm(0);
}

/* One message at a time: each side sleeps, or nearly, for each. */
static void alternate(wait_fn *wait)
{
        struct pair *p = pair_new(&providers[0], (struct unet_ep_opts){.spin_ns = -1});
        const uint32_t n = rounds(30000);
        struct prng_fast rng;
        pid_t child;

        alarm(WATCHDOG);
        child = fork_child();
        prng_fast_init(&rng, 1 + (child == 0));
        unet_ep_forget(child == 0 ? p->a : p->b);
        for (uint32_t i = 0; i < n; i++) {
                idle_a_little(&rng);
                if (child == 0) {
                        if (recv_number(p->b, wait) != i)
                                _exit(1);
                        idle_a_little(&rng);
                        send_number(p->b, p->cb, i);
                } else {
                        send_number(p->a, p->ca, i);
                        assert_int_equal(recv_number(p->a, wait), i);
                }
        }
        if (child == 0)
                _exit(0);
        child_is_well(child);
        print_message("%u rounds, %llu sleeps, %llu rings\n", n,
                      (unsigned long long)unet_ep_stat(p->a, "NI_SLEEPS"),
                      (unsigned long long)unet_ep_stat(p->a, "NI_BELLS"));
        p->b = NULL;
        pair_free(p);
        alarm(0);
}

static void alternating_messages_wake(void **state)
{
        alternate(wait_inside);
}

static void alternating_messages_wake_who_polls_the_descriptor(void **state)
{
        alternate(wait_on_the_descriptor);
}

/* A stream in one direction: the reader sleeps when it is empty, the writer when it is full. */
static void a_stream_wakes_both_sides(void **state)
{
        struct pair *p = pair_new(&providers[0], (struct unet_ep_opts){.spin_ns = -1});
        const uint32_t n = rounds(3000000);
        struct prng_fast rng;
        pid_t child;

        alarm(WATCHDOG);
        child = fork_child();
        prng_fast_init(&rng, 5 + (child == 0));
        unet_ep_forget(child == 0 ? p->a : p->b);
        for (uint32_t i = 0; i < n; i++) {
                if (prng_fast_below(&rng, 1000) == 0)
                        idle_a_little(&rng);
                if (child != 0)
                        send_number(p->a, p->ca, i);
                else if (recv_number(p->b, wait_inside) != i)
                        _exit(1);
        }
        if (child == 0)
                _exit(0);
        child_is_well(child);
        print_message("%u messages, %llu sleeps, %llu rings\n", n,
                      (unsigned long long)unet_ep_stat(p->a, "NI_SLEEPS"),
                      (unsigned long long)unet_ep_stat(p->a, "NI_BELLS"));
        p->b = NULL;
        pair_free(p);
        alarm(0);
}

/* Loans come back one by one, and the sender sleeps for them. */
static void returned_loans_wake(void **state)
{
        struct pair *p = pair_new(&providers[1], (struct unet_ep_opts){.spin_ns = -1});
        const uint32_t n = rounds(30000);
        struct prng_fast rng;
        pid_t child;

        alarm(WATCHDOG);
        child = fork_child();
        prng_fast_init(&rng, 9 + (child == 0));
        unet_ep_forget(child == 0 ? p->a : p->b);
        for (uint32_t i = 0; i < n; i++) {
                idle_a_little(&rng);
                if (child == 0) {
                        struct unet_recv m;
                        while (unet_ep_recv(p->b, &m, 1) == 0)
                                unet_ep_wait(p->b, UNET_READABLE, UNET_FOREVER);
                        idle_a_little(&rng);
                        unet_ep_release(p->b, &m, 1);
                } else {
                        struct unet_send s = {
                                .chan = p->ca, .nfrags = 1, .frag = {{0, 100}}, .cookie = i + 1};
                        uint64_t cookie;
                        assert_int_equal(unet_ep_send(p->a, &s, 1), 1);
                        while (unet_ep_reap(p->a, &cookie, 1) == 0)
                                unet_ep_wait(p->a, UNET_INJECTED, UNET_FOREVER);
                        assert_int_equal(cookie, i + 1);
                }
        }
        if (child == 0)
                _exit(0);
        child_is_well(child);
        p->b = NULL;
        pair_free(p);
        alarm(0);
}

/* Three sleepers: two endpoints and the switch between them, here in a thread. */
struct switch_thread {
        struct unet_switch *sw;
        _Atomic bool stop;
};

static void *run_switch(void *arg)
{
        struct switch_thread *t = arg;

        while (!atomic_load(&t->stop)) {
                while (unet_switch_step(t->sw) > 0)
                        ;
                if (unet_switch_arm(t->sw))
                        poll(&(struct pollfd){.fd = unet_switch_fd(t->sw), .events = POLLIN}, 1,
                             100);
        }
        return NULL;
}

struct echo {
        struct pair *p;
        uint32_t n;
};

static void *echo(void *arg)
{
        struct echo *e = arg;

        for (uint32_t i = 0; i < e->n; i++)
                send_number(e->p->b, e->p->cb, recv_number(e->p->b, wait_inside));
        return NULL;
}

static void the_switch_sleeps_and_wakes(void **state)
{
        const struct provider *emul = NULL;
        struct switch_thread t = {0};
        struct echo e = {.n = rounds(10000)};
        pthread_t sw, peer;

        for (int i = 0; i < nproviders; i++)
                if (strcmp(providers[i].name, "emul") == 0)
                        emul = &providers[i];
        assert_non_null(emul);
        alarm(WATCHDOG);
        e.p = pair_new(emul, (struct unet_ep_opts){.spin_ns = -1});
        t.sw = e.p->sw;
        assert_int_equal(pthread_create(&sw, NULL, run_switch, &t), 0);
        assert_int_equal(pthread_create(&peer, NULL, echo, &e), 0);
        for (uint32_t i = 0; i < e.n; i++) {
                send_number(e.p->a, e.p->ca, i);
                assert_int_equal(recv_number(e.p->a, wait_inside), i);
        }
        pthread_join(peer, NULL);
        atomic_store(&t.stop, true);
        pthread_join(sw, NULL);
        pair_free(e.p);
        alarm(0);
}

/* A thread that the program gives: it sleeps on the descriptor and dispatches; upcalls run
 * in it. */
struct server {
        struct pair *p;
        uint32_t got, n;
};

static void answer_all(struct unet_ep *ep, void *arg)
{
        struct server *s = arg;
        struct unet_recv m;

        while (unet_ep_recv(ep, &m, 1) == 1) {
                uint32_t number;
                memcpy(&number, m.inl, 4);
                send_number(ep, s->p->cb, number);
                s->got++;
        }
}

static void *serve(void *arg)
{
        struct server *s = arg;
        struct pollfd fd = {.fd = unet_ep_fd(s->p->b), .events = POLLIN};

        unet_ep_set_upcall(s->p->b, UNET_UP_NONEMPTY, answer_all, s);
        while (s->got < s->n) {
                if (unet_ep_arm(s->p->b, UNET_READABLE) == 0)
                        poll(&fd, 1, -1);
                unet_ep_dispatch(s->p->b);
        }
        return NULL;
}

static void upcalls_run_in_a_thread_of_the_program(void **state)
{
        struct server s = {.n = rounds(10000)};
        pthread_t thread;

        alarm(WATCHDOG);
        s.p = pair_new(&providers[0], (struct unet_ep_opts){.spin_ns = -1});
        assert_int_equal(pthread_create(&thread, NULL, serve, &s), 0);
        for (uint32_t i = 0; i < s.n; i++) {
                send_number(s.p->a, s.p->ca, i);
                assert_int_equal(recv_number(s.p->a, wait_inside), i);
        }
        pthread_join(thread, NULL);
        pair_free(s.p);
        alarm(0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(arming_and_sending_at_the_same_moment),
                cmocka_unit_test(alternating_messages_wake),
                cmocka_unit_test(alternating_messages_wake_who_polls_the_descriptor),
                cmocka_unit_test(a_stream_wakes_both_sides),
                cmocka_unit_test(returned_loans_wake),
                cmocka_unit_test(the_switch_sleeps_and_wakes),
                cmocka_unit_test(upcalls_run_in_a_thread_of_the_program),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
