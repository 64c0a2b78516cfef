/* What the keeper does with a stack (unetd/keeper/keeper_ops.h), from its first look on: stacks
 * without processes, no unetd. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "netstack/stack.h"
#include "sock/attach/handle.h"
#include "sock/keeper/keeper_side.h"
#include "sock/attach/ustack.h"
#include "tcp/tcp_listen.h"
#include "tests/unit.h"

static const struct keeper_stack_ops *const keeper = &keeper_stack_ops;

struct scene {
        struct unetd_stack_fds fds;
        struct stack s;
        struct bell bell;
        size_t bytes;
};

static int setup(void **state)
{
        struct scene *sc = calloc(1, sizeof *sc);
        struct stack_limits l;
        uint8_t seed[32] = {1};
        void *p;

        stack_limits_default(&l);
        sc->bytes = stack_bytes(&l);
        assert_int_equal(unetd_stack_fds_make(&sc->fds, stack_file_bytes(&l)), 0);
        p = mmap(NULL, sc->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, sc->fds.state, 0);
        assert_ptr_not_equal(p, MAP_FAILED);
        stack_format(p, &l, seed, NS_PER_S);
        assert_int_equal(stack_view_init(&sc->s, p, sc->bytes, &sc->bell), 0);
        *state = sc;
        return 0;
}

static int teardown(void **state)
{
        struct scene *sc = *state;

        stack_view_fini(&sc->s);
        munmap(sc->s.st, sc->bytes);
        unetd_stack_fds_close(&sc->fds);
        free(sc);
        return 0;
}

static void *attached(struct scene *sc)
{
        void *view = NULL;

        assert_int_equal(keeper->attach(&view, 1, &sc->fds), 0);
        return view;
}

static void look(void *view)
{
        bool active;

        keeper->tick(view, 2 * NS_PER_S, &active);
}

/* As usock_fly() leaves it; `flyer`: it has not told the keeper yet. */
static void fly(struct scene *sc, uint64_t cookie, uint32_t flyer)
{
        uint32_t sock = pool_alloc(&sc->s.st->socks);

        *stack_sock(&sc->s, sock) = (struct sock_rec){
                .cookie = cookie, .refs = 1ull << SOCK_REF_FLIGHT, .flights = 1, .flyer = flyer};
}

static bool in_flight(void *view, uint64_t cookie)
{
        struct keeper_listener at;

        return keeper->flight(view, cookie, false, &at) != 0;
}

/* On a busy machine a process has done all this before the keeper looks for the first time. */
static void a_socket_that_left_before_the_first_look_is_under_way(void **state)
{
        struct scene *sc = *state;
        void *view = attached(sc);

        fly(sc, 77, 0);
        look(view);
        assert_true(in_flight(view, 77));
        look(view);
        assert_true(in_flight(view, 77));
        assert_int_equal(keeper->flight(view, 77, true, NULL), 0);
        assert_false(in_flight(view, 77));
        keeper->detach(view);
}

/* unetd, which has a copy of a listener, is to let go of one that only messages have. */
static void a_listener_that_no_process_has_is_aloft(void **state)
{
        struct scene *sc = *state;
        void *view = attached(sc);
        struct keeper_listener at;
        struct sock_rec *rec;

        fly(sc, 77, 0);
        rec = stack_sock(&sc->s, 1);
        rec->registered = SOCK_TAKES;
        rec->kind = USOCK_TCP;
        rec->lport = 80;
        assert_int_equal(keeper->flight(view, 77, false, &at), KEEPER_ALOFT);
        assert_int_equal(at.port, 80);
        assert_int_equal(at.proto, IP_PROTO_TCP);
        rec->refs |= 1;
        assert_int_equal(keeper->flight(view, 77, false, &at), 1);
        keeper->detach(view);
}

/* They are the next one's to watch; of what is just being told it will hear. */
static void what_a_keeper_that_is_gone_watched_the_next_one_hears_of(void **state)
{
        struct scene *sc = *state;
        void *first = attached(sc), *second;
        uint64_t cookie;
        uint32_t at = 0;

        fly(sc, 77, 0);
        fly(sc, 78, 1);
        fly(sc, 79, 0);
        look(first);
        keeper->detach(first);
        second = attached(sc);
        look(second);
        assert_true(keeper->flight_next(second, &at, &cookie));
        assert_int_equal(cookie, 77);
        assert_true(keeper->flight_next(second, &at, &cookie));
        assert_int_equal(cookie, 79);
        assert_false(keeper->flight_next(second, &at, &cookie));
        assert_true(in_flight(second, 77));
        keeper->detach(second);
}

/* A listener at port 80, held by process slot 1, which was to pass it on and has not told so. */
static void listen_and_fly(struct scene *sc)
{
        struct sock_rec *rec;
        int l;

        fly(sc, 77, 2);
        rec = stack_sock(&sc->s, 1);
        rec->refs |= 1ull << 1;
        rec->kind = USOCK_TCP;
        rec->lport = 80;
        rec->registered = SOCK_TAKES;
        l = tcp_listen(&sc->s.tcp, ip_addr_v4(0), 80, 1, &rec->opts);
        assert_true(l > 0);
        rec->conn = (uint32_t)l;
        sock_set_role(rec, SOCK_ROLE_LISTENER);
}

static void a_listener_that_was_about_to_leave_ends_with_its_process(void **state)
{
        struct scene *sc = *state;
        void *view = attached(sc);
        struct keeper_listener at;

        listen_and_fly(sc);
        assert_int_equal(keeper->proc_died(view, 1), 0);
        assert_true(keeper->listener_gone(view, &at));
        assert_int_equal(at.port, 80);
        assert_false(keeper->listener_gone(view, &at));
        assert_int_equal(sc->s.st->socks.used, 0);
        keeper->detach(view);
}

/* A process that is hardly ever out of its stack needs nobody who looks; what a look comes too late
 * by, should it compute from now on, is a tenth of that time at most. */
static void looks_become_seldom_where_a_process_has_the_lock(void **state)
{
        struct scene *sc = *state;
        void *view = attached(sc);
        const nstime start = 2 * NS_PER_S;
        nstime now = start, next = 0;
        bool active;

        assert_int_equal(rlock_lock(&sc->s.st->lock), 0);
        for (; now < start + NS_PER_S; now = next) {
                next = keeper->tick(view, now, &active);
                assert_true(next - now >= 4 * NS_PER_MS);
                assert_true(next - now <= MAX(4 * NS_PER_MS, (now - start) / 10));
        }
        assert_int_equal(keeper->tick(view, now, &active) - now, 48 * NS_PER_MS);
        rlock_unlock(&sc->s.st->lock);
        keeper->tick(view, now, &active); /* which finds it quiet, and rests */
        assert_int_equal(rlock_lock(&sc->s.st->lock), 0);
        assert_int_equal(keeper->tick(view, now + 1, &active) - (now + 1), 4 * NS_PER_MS);
        rlock_unlock(&sc->s.st->lock);
        keeper->detach(view);
}

/* ---- numbers of descriptors ---- */

static bool old_kernel;    /* before 6.2: it does not say how many are open */
static unsigned counted;   /* how often they were counted */
static nstime count_takes; /* of the processor's time, at least */

int __real_stat(const char *path, struct stat *st);
DIR *__real_opendir(const char *path);
int __wrap_stat(const char *path, struct stat *st);
DIR *__wrap_opendir(const char *path);

int __wrap_stat(const char *path, struct stat *st)
{
        int r = __real_stat(path, st);

        if (old_kernel)
                st->st_size = 0;
        return r;
}

static nstime spent(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

DIR *__wrap_opendir(const char *path)
{
        nstime until = spent() + count_takes;

        counted++;
        while (spent() < until)
                ;
        return __real_opendir(path);
}

/* Process `i` of the stack, which may have so many numbers; to be ended by over(). */
static pid_t process_with(struct scene *sc, uint32_t i, rlim_t numbers)
{
        const struct rlimit rl = {numbers, numbers};
        int told[2];
        char byte;
        pid_t pid;

        assert_int_equal(pipe(told), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (setrlimit(RLIMIT_NOFILE, &rl) == 0 && write(told[1], "", 1) == 1)
                        pause();
                _exit(1);
        }
        close(told[1]);
        assert_int_equal(read(told[0], &byte, 1), 1);
        close(told[0]);
        atomic_store(&sc->s.st->proc[i].pid, (uint32_t)pid);
        atomic_store(&sc->s.st->procs, i + 1);
        return pid;
}

static void over(pid_t pid)
{
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
}

/* There is nothing to map behind this one: -ENOSPC only if it was not tried. */
static int attach_a_channel(void *view)
{
        const struct unetd_chan chan = {.peer_stack = UNETD_IFACE,
                                        .tx = -1,
                                        .rx = -1,
                                        .peer_bell = -1,
                                        .peer_leader = -1,
                                        .peer_keeper = -1,
                                        .mem = -1,
                                        .xsk = -1,
                                        .packet = -1,
                                        .ring = -1,
                                        .sender = -1,
                                        .book = -1};

        return keeper->chan_attach(view, 0, &chan);
}

static void a_process_without_numbers_left_gets_no_channel(void **state)
{
        struct scene *sc = *state;
        void *view = attached(sc);
        pid_t pid = process_with(sc, 1, 9);

        assert_int_equal(attach_a_channel(view), -ENOSPC);
        over(pid);
        keeper->detach(view);
}

/* As sshd limits who reads what strangers send. */
static void a_child_that_may_open_nothing_ends_no_channels(void **state)
{
        struct scene *sc = *state;
        void *view = attached(sc);
        pid_t pid = process_with(sc, 1, 0);

        assert_int_equal(attach_a_channel(view), -EPROTO);
        over(pid);
        keeper->detach(view);
}

/* The kernel says how large its table is, at one price. */
static void what_a_process_has_is_not_counted_where_its_table_is_small(void **state)
{
        struct scene *sc = *state;
        void *view = attached(sc);
        pid_t pid = process_with(sc, 1, 2048); /* ours are from 900 on */

        old_kernel = true;
        counted = 0;
        assert_int_equal(attach_a_channel(view), -EPROTO);
        assert_int_equal(counted, 0);
        old_kernel = false;
        over(pid);
        keeper->detach(view);
}

static void where_it_is_counted_it_is_told_as_well(void **state)
{
        struct scene *sc = *state;
        void *view = attached(sc);
        pid_t few = process_with(sc, 1, 64), none;

        old_kernel = true;
        counted = 0;
        assert_int_equal(attach_a_channel(view), -EPROTO);
        assert_int_equal(counted, 1);
        keeper->detach(view);
        view = attached(sc);
        none = process_with(sc, 2, 9);
        assert_int_equal(attach_a_channel(view), -ENOSPC);
        old_kernel = false;
        over(few);
        over(none);
        keeper->detach(view);
}

/* Of two channels right after each other: that may take this program long itself. */
static bool second_is_not_counted(void *view)
{
        unsigned before;

        assert_int_equal(attach_a_channel(view), -EPROTO);
        before = counted;
        assert_int_equal(attach_a_channel(view), -EPROTO);
        return counted == before;
}

static void a_count_that_takes_long_is_followed_by_a_rest(void **state)
{
        struct scene *sc = *state;
        void *view = attached(sc);
        pid_t pid = process_with(sc, 1, 64);
        bool rested = false;

        old_kernel = true;
        count_takes = 20 * NS_PER_MS;
        for (int i = 0; i < 100 && !rested; i++)
                rested = second_is_not_counted(view);
        assert_true(rested);
        old_kernel = false;
        count_takes = 0;
        over(pid);
        keeper->detach(view);
}

/* ---- processes that unetd does not know ---- */

static bool no_files; /* none can be opened any more */

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

FILE *__wrap_fopen(const char *path, const char *mode)
{
        if (!no_files)
                return __real_fopen(path, mode);
        errno = EMFILE;
        return NULL;
}

static void *goes_on(void *arg)
{
        pause();
        return arg;
}

/* A child, and what it does. */
static pid_t unknown_process(struct scene *sc, uint32_t i, void (*does)(void))
{
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                does();
                _exit(1);
        }
        sc->s.st->proc[i].start = ustack_boot_ms();
        atomic_store(&sc->s.st->proc[i].pid, (uint32_t)pid);
        atomic_store(&sc->s.st->proc[i].unknown, 1);
        atomic_store(&sc->s.st->any_unknown, 1);
        atomic_store(&sc->s.st->procs, i + 1);
        return pid;
}

static bool is_kept(const struct scene *sc, void *view, uint32_t i)
{
        static nstime now = 2 * NS_PER_S;
        bool active;

        keeper->tick(view, now += 2 * NS_PER_S, &active);
        return atomic_load(&sc->s.st->proc[i].pid) != 0;
}

static void pauses(void)
{
        pause();
}

static void a_process_of_which_nothing_can_be_read_lives(void **state)
{
        struct scene *sc = *state;
        void *view = attached(sc);
        pid_t pid = unknown_process(sc, 1, pauses);

        no_files = true;
        assert_true(is_kept(sc, view, 1));
        no_files = false;
        assert_true(is_kept(sc, view, 1));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
        assert_false(is_kept(sc, view, 1));
        over(pid);
        keeper->detach(view);
}

static void first_thread_ends(void)
{
        pthread_t t;

        if (pthread_create(&t, NULL, goes_on, NULL) == 0)
                pthread_exit(NULL);
}

static char state_of(pid_t pid)
{
        char path[32], state = 0;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        f = fopen(path, "re");
        assert_non_null(f);
        assert_int_equal(fscanf(f, "%*d (%*[^)]) %c", &state), 1);
        fclose(f);
        return state;
}

/* The kernel calls it a zombie. */
static void a_process_lives_while_one_of_its_threads_does(void **state)
{
        struct scene *sc = *state;
        void *view = attached(sc);
        pid_t pid = unknown_process(sc, 1, first_thread_ends);

        while (state_of(pid) != 'Z')
                usleep(1000);
        assert_true(is_kept(sc, view, 1));
        over(pid);
        assert_false(is_kept(sc, view, 1));
        keeper->detach(view);
}

/* It was about to fork, and nobody has come of that. */
static void a_process_that_dies_while_it_forks_leaves_no_child(void **state)
{
        struct scene *sc = *state;
        void *view = attached(sc);
        struct proc_slot *child = &sc->s.st->proc[2];
        pid_t pid = unknown_process(sc, 1, pauses);

        child->parent = 1;
        atomic_store(&child->pid, STACK_FORKING);
        atomic_store(&sc->s.st->procs, 3);
        over(pid);
        assert_true(is_kept(sc, view, 1)); /* a child is waited for */
        while (is_kept(sc, view, 1))
                usleep(10000);
        assert_int_equal(atomic_load(&child->pid), 0);
        keeper->detach(view);
}

static void becomes_another_program(void)
{
        execlp("sleep", "sleep", "1000", NULL);
}

static bool is_another_program(pid_t pid)
{
        char path[32], name[32] = "";
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/comm", pid);
        f = fopen(path, "re");
        assert_non_null(f);
        assert_int_equal(fscanf(f, "%31s", name), 1);
        fclose(f);
        return strcmp(name, "sleep") == 0;
}

/* Its slot stays, for sockets that close-on-exec does not close. */
static void what_a_process_held_before_its_exec_ends(void **state)
{
        struct scene *sc = *state;
        void *view = attached(sc);
        pid_t pid = unknown_process(sc, 1, becomes_another_program);
        struct sock_rec *rec;

        fly(sc, 77, 0);
        rec = stack_sock(&sc->s, 1);
        rec->refs = sock_ref_bit(1);
        rec->flights = 0;
        assert_true(keeper->cookie_owner(view, 77));
        while (!is_another_program(pid))
                usleep(1000);
        assert_true(is_kept(sc, view, 1));
        assert_true(is_kept(sc, view, 1)); /* of several it looks at one */
        assert_false(keeper->cookie_owner(view, 77));
        over(pid);
        keeper->detach(view);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(
                        a_socket_that_left_before_the_first_look_is_under_way, setup, teardown),
                cmocka_unit_test_setup_teardown(a_listener_that_no_process_has_is_aloft, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(
                        what_a_keeper_that_is_gone_watched_the_next_one_hears_of, setup, teardown),
                cmocka_unit_test_setup_teardown(
                        a_listener_that_was_about_to_leave_ends_with_its_process, setup, teardown),
                cmocka_unit_test_setup_teardown(looks_become_seldom_where_a_process_has_the_lock,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(a_process_without_numbers_left_gets_no_channel,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(a_child_that_may_open_nothing_ends_no_channels,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(
                        what_a_process_has_is_not_counted_where_its_table_is_small, setup,
                        teardown),
                cmocka_unit_test_setup_teardown(where_it_is_counted_it_is_told_as_well, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_count_that_takes_long_is_followed_by_a_rest,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(a_process_of_which_nothing_can_be_read_lives, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_process_lives_while_one_of_its_threads_does,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(a_process_that_dies_while_it_forks_leaves_no_child,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(what_a_process_held_before_its_exec_ends, setup,
                                                teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
