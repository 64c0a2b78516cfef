/* Starting unetd from inside a program, which must not notice; and its leaving again. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unetd/world.h"
#include "unetd/client/name.h"
#include "unetd/client/stopped.h"
#include "unetd/client/wire.h"

/* A line of /proc/<pid>/status, its value as hexadecimal or octal text. */
static void status_line(pid_t pid, const char *key, char *out, size_t size)
{
        char path[64], line[256];
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
        f = fopen(path, "re");
        assert_non_null(f);
        *out = 0;
        while (fgets(line, sizeof line, f)) {
                size_t n = strlen(key);
                if (strncmp(line, key, n) == 0 && line[n] == ':') {
                        line[strcspn(line, "\n")] = 0;
                        snprintf(out, size, "%s", line + n + 1 + strspn(line + n + 1, " \t"));
                }
        }
        fclose(f);
}

static uint64_t status_hex(pid_t pid, const char *key)
{
        char text[64];

        status_line(pid, key, text, sizeof text);
        return strtoull(text, NULL, 16);
}

static bool proc_link_is(pid_t pid, const char *what, char *out, size_t size)
{
        char path[400];
        ssize_t n;

        snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
        n = readlink(path, out, size - 1);
        out[n > 0 ? n : 0] = 0;
        return n > 0;
}

static void proc_link(pid_t pid, const char *what, char *out, size_t size)
{
        assert_true(proc_link_is(pid, what, out, size));
}

static bool env_has(pid_t pid, const char *prefix)
{
        char path[64], env[8192];
        size_t n;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
        f = fopen(path, "re");
        assert_non_null(f);
        n = fread(env, 1, sizeof env - 1, f);
        env[n] = 0;
        fclose(f);
        for (char *e = env; e < env + n; e += strlen(e) + 1)
                if (strncmp(e, prefix, strlen(prefix)) == 0)
                        return true;
        return false;
}

/* How many descriptors of the process point to a path that begins so. */
static int fds_to(pid_t pid, const char *prefix)
{
        char path[64], target[256];
        DIR *d;
        int n = 0;

        snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
        d = opendir(path);
        assert_non_null(d);
        for (struct dirent *e; (e = readdir(d));) {
                char link[300];
                snprintf(link, sizeof link, "fd/%s", e->d_name);
                if (e->d_name[0] == '.')
                        continue;
                if (proc_link_is(pid, link, target, sizeof target)) /* it may just be closed */
                        n += strncmp(target, prefix, strlen(prefix)) == 0;
        }
        closedir(d);
        return n;
}

/* ---- what the daemon is like ---- */

static void it_inherits_nothing(void **state)
{
        struct unetd_client c = {.pid = 0};
        int file = open("/proc/self/exe", O_RDONLY); /* not close-on-exec */
        char text[256];
        sigset_t set;
        pid_t pid;

        setenv("LD_PRELOAD", "libnothing-of-the-kind.so", 1);
        setenv("SECRET", "x", 1);
        umask(077);
        signal(SIGUSR1, SIG_IGN);
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        sigprocmask(SIG_BLOCK, &set, NULL);
        assert_int_equal(unetd_open(&c, 0), 0);
        unsetenv("LD_PRELOAD");
        signal(SIGUSR1, SIG_DFL);

        pid = world_daemon_pid(&c);
        assert_int_not_equal(getsid(pid), getsid(0));
        proc_link(pid, "cwd", text, sizeof text);
        assert_string_equal(text, "/");
        proc_link(pid, "exe", text, sizeof text);
        assert_int_equal(fds_to(pid, "/dev/null"), 3);
        proc_link(getpid(), "exe", text, sizeof text);
        assert_int_equal(fds_to(pid, text), 0);
        assert_false(env_has(pid, "LD_PRELOAD"));
        assert_false(env_has(pid, "SECRET"));
        assert_true(env_has(pid, "UNET_DOMAIN"));
        status_line(pid, "Umask", text, sizeof text);
        assert_string_equal(text, "0022");
        assert_int_equal(status_hex(pid, "SigIgn") & (1u << (SIGUSR1 - 1)), 0);
        assert_int_equal(status_hex(pid, "SigBlk") & (1u << (SIGUSR2 - 1)), 0);
        close(file);
        unetd_close(&c);
}

/* The same for the keeper, which unetd starts. */
static void nor_does_the_keeper(void **state)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;
        pid_t pid;

        assert_int_equal(unetd_open(&c, 0), 0);
        fake_stack_new(&c, &st);
        pid = world_keeper_pid(&c);
        assert_int_equal(fds_to(pid, "/dev/null"), 3);
        assert_int_equal(status_hex(pid, "SigBlk"), 0);
        assert_int_equal(status_hex(pid, "SigIgn") & ~(1u << (SIGPIPE - 1)), 0);
        assert_int_equal(fds_to(pid, "/memfd:unet-directory"), 0);
        fake_stack_forget(&st);
        unetd_close(&c);
}

/* ---- what the program notices ---- */

static volatile sig_atomic_t sigchlds;

static void on_sigchld(int sig)
{
        sigchlds++;
}

static void the_program_sees_no_child(void **state)
{
        struct unetd_client c = {.pid = 0};
        sigset_t before, after;

        sigchlds = 0;
        signal(SIGCHLD, on_sigchld);
        sigprocmask(SIG_SETMASK, NULL, &before);
        errno = 77;
        assert_int_equal(unetd_open(&c, 0), 0);
        assert_int_equal(errno, 77);
        sigprocmask(SIG_SETMASK, NULL, &after);
        assert_memory_equal(&before, &after, 8); /* what the kernel keeps */
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
        assert_int_equal(waitpid(-1, NULL, WNOHANG | __WALL), -1);
        assert_int_equal(errno, ECHILD);
        assert_int_equal(sigchlds, 0);
        signal(SIGCHLD, SIG_DFL);
        unetd_close(&c);
}

/* Low numbers belong to the program: the next one it opens is the one it expects. */
static void the_program_keeps_its_descriptor_numbers(void **state)
{
        struct unetd_client c = {.pid = 0};
        int before = dup(0), after;

        close(before);
        assert_int_equal(unetd_open(&c, 0), 0);
        after = dup(0);
        close(after);
        assert_int_equal(before, after);
        assert_int_equal(fcntl(c.daemon.fd, F_GETFD), FD_CLOEXEC);
        unetd_close(&c);
}

static _Atomic bool spin_on;

static void *spin(void *arg)
{
        while (spin_on)
                free(malloc(100));
        return NULL;
}

static void a_program_with_threads_may_start_it(void **state)
{
        struct unetd_client c = {.pid = 0};
        pthread_t th[2];

        spin_on = true;
        for (int i = 0; i < 2; i++)
                pthread_create(&th[i], NULL, spin, NULL);
        assert_int_equal(unetd_open(&c, 0), 0);
        spin_on = false;
        for (int i = 0; i < 2; i++)
                pthread_join(th[i], NULL);
        unetd_close(&c);
}

static int without_low_fds(void *arg)
{
        struct unetd_client c = {.pid = 0};

        close(0);
        close(1);
        close(2);
        if (unetd_open(&c, 0) != 0)
                return 1;
        return open("/dev/null", O_RDWR) == 0 ? 0 : 2; /* they are still free */
}

static int with_few_fds(void *arg)
{
        struct unetd_client c = {.pid = 0};
        struct rlimit rl;

        getrlimit(RLIMIT_NOFILE, &rl);
        rl.rlim_cur = 64;
        setrlimit(RLIMIT_NOFILE, &rl);
        return unetd_open(&c, 0) == 0 ? 0 : 1;
}

/* The daemon would have as few, for all. */
static int never_with_more(void *arg)
{
        struct rlimit rl = {64, 64};
        struct unetd_client c = {.pid = 0};

        setrlimit(RLIMIT_NOFILE, &rl);
        return unetd_open(&c, 0) == -ECONNREFUSED ? 0 : 1;
}

static void a_program_that_may_never_have_more_starts_none(void **state)
{
        assert_int_equal(world_child(never_with_more, NULL), 0);
}

static void a_program_without_standard_descriptors_may_start_it(void **state)
{
        assert_int_equal(world_child(without_low_fds, NULL), 0);
}

static void a_program_with_few_descriptors_may_start_it(void **state)
{
        assert_int_equal(world_child(with_few_fds, NULL), 0);
}

static void without_the_program_it_says_so(void **state)
{
        struct unetd_client c = {.pid = 0};

        setenv("UNET_LIBEXEC", "/nonexistent", 1);
        assert_int_equal(unetd_open(&c, 0), -ECONNREFUSED);
}

/* ---- several at once ---- */

static int starter(void *arg)
{
        int *fd = arg;
        struct unetd_client c = {.pid = 0};
        char go;

        if (read(fd[0], &go, 1) < 0 || unetd_open(&c, 0) != 0)
                return 1;
        if (write(fd[1], &c.instance, sizeof c.instance) != sizeof c.instance)
                return 2;
        for (;;)
                pause(); /* ended by the parent */
}

static void twenty_starters_get_one(void **state)
{
        int gate[2], out[2];
        uint64_t instance, first = 0;
        pid_t pid[20];

        assert_int_equal(pipe(gate), 0);
        assert_int_equal(pipe(out), 0);
        for (int i = 0; i < 20; i++) {
                int arg[2] = {gate[0], out[1]};
                pid[i] = fork();
                if (pid[i] == 0) {
                        close(gate[1]);
                        _exit(starter(arg));
                }
        }
        close(gate[1]); /* they all go */
        for (int i = 0; i < 20; i++) {
                assert_int_equal(read(out[0], &instance, sizeof instance), sizeof instance);
                if (first == 0)
                        first = instance;
                assert_true(instance == first);
        }
        for (int i = 0; i < 20; i++) {
                kill(pid[i], SIGKILL);
                waitpid(pid[i], NULL, 0);
        }
        close(gate[0]), close(out[0]), close(out[1]);
}

/* ---- names ---- */

static int squat(uint32_t uid, unsigned i, bool listens)
{
        struct sockaddr_un sun;
        socklen_t len = unetd_name(&sun, uid, getenv("UNET_DOMAIN"), i);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        assert_int_equal(bind(fd, (struct sockaddr *)&sun, len), 0);
        if (listens)
                assert_int_equal(listen(fd, 1), 0);
        return fd;
}

static void a_name_that_is_bound_and_silent_is_passed_over(void **state)
{
        struct unetd_client a = {.pid = 0}, b = {.pid = 0};
        int fd = squat(geteuid(), 0, false);

        assert_int_equal(unetd_open(&a, 0), 0);
        assert_int_equal(unetd_open(&b, UNETD_NO_START), 0);
        assert_true(a.instance == b.instance);
        unetd_close(&a);
        unetd_close(&b);
        close(fd);
}

/* Returns the flags that a client says hello with to the unetd that takes the place of its own. */
static uint32_t flags_to_the_next(bool leaves)
{
        struct unetd_client c = {.pid = 0};
        struct wire_in in = {.n = 0};
        int listener, told[2], fd;
        pid_t pid;

        assert_int_equal(unetd_open(&c, 0), 0);
        pid = world_daemon_pid(&c);
        kill(pid, SIGKILL);
        eventually(!world_alive(pid));
        if (leaves)
                unetd_leave(&c);
        assert_int_equal(pipe(told), 0);
        listener = squat(geteuid(), 0, true);
        pid = fork();
        if (pid == 0) {
                fd = accept(listener, NULL, NULL);
                wire_recv(fd, &in, 0);
                (void)!write(told[1], &in.msg.hello.flags, sizeof in.msg.hello.flags);
                _exit(0);
        }
        close(listener);
        unetd_look(&c, false);
        assert_int_equal(read(told[0], &in.msg.hello.flags, sizeof in.msg.hello.flags),
                         sizeof in.msg.hello.flags);
        waitpid(pid, NULL, 0);
        close(told[0]), close(told[1]);
        unetd_close(&c);
        return in.msg.hello.flags;
}

static void who_has_stacks_says_that_a_keeper_comes(void **state)
{
        assert_int_equal(flags_to_the_next(false), UNETD_HAS_KEEPER);
}

static void who_has_left_its_stacks_does_not(void **state)
{
        assert_int_equal(flags_to_the_next(true), 0);
}

static int squat_as_nobody(void *arg)
{
        int *ready = arg;

        if (setresuid(65534, 65534, 65534) < 0)
                return 1;
        squat(0, 0, true);
        if (write(ready[1], "r", 1) != 1)
                return 2;
        pause();
        return 0;
}

static void a_name_that_somebody_else_holds_is_passed_over(void **state)
{
        struct unetd_client a = {.pid = 0}, b = {.pid = 0};
        int ready[2];
        char byte;
        pid_t pid;

        if (geteuid() != 0) {
                print_message("skipped: only root can be two users\n");
                skip();
        }
        assert_int_equal(pipe(ready), 0);
        pid = fork();
        if (pid == 0)
                _exit(squat_as_nobody(ready));
        assert_int_equal(read(ready[0], &byte, 1), 1);
        assert_int_equal(unetd_open(&a, 0), 0);
        assert_int_equal(unetd_open(&b, UNETD_NO_START), 0);
        assert_true(a.instance == b.instance);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        close(ready[0]), close(ready[1]);
        unetd_close(&a);
        unetd_close(&b);
}

/* ---- leaving ---- */

static pid_t run_unetd(const char *opt, const char *value)
{
        pid_t pid = fork();

        if (pid == 0) {
                execl(TEST_LIBEXEC "/unetd", "unetd", "--foreground", "--log", "/dev/null", opt,
                      value, NULL);
                _exit(127);
        }
        return pid;
}

static bool found(struct unetd_client *c)
{
        memset(c, 0, sizeof *c);
        return unetd_open(c, UNETD_NO_START) == 0;
}

/* One that leaves after a second, and whom somebody has found: on a busy machine it may have
 * left before. */
static pid_t run_short_lived(struct unetd_client *c)
{
        for (int tries = 0; tries < 100; tries++) {
                pid_t pid = run_unetd("--idle", "1");

                while (waitpid(pid, NULL, WNOHANG) == 0) {
                        if (found(c))
                                return pid;
                        world_sleep_ms(1);
                }
        }
        fail_msg("a hundred of them left before they were found");
        return 0;
}

static void it_leaves_when_idle_and_the_keeper_too(void **state)
{
        struct unetd_client c;
        pid_t pid = run_short_lived(&c), keeper;
        struct fake_stack st;
        int status;

        fake_stack_new(&c, &st);
        keeper = world_keeper_pid(&c);
        world_sleep_ms(1500); /* not while somebody uses it */
        assert_true(world_alive(pid) && world_alive(keeper));
        assert_int_equal(unetd_proc_del(&c, st.id, 0), 0);
        unetd_close(&c);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        eventually(!world_alive(keeper));
        fake_stack_forget(&st);
}

/* What dead processes left cannot be finished when nobody is there to take it: it does not stay
 * for ever. */
static void an_orphan_without_a_peer_is_given_up(void **state)
{
        struct unetd_client c;
        pid_t pid = run_short_lived(&c);
        struct fake_stack st;
        uint32_t chan, peer;
        int status;

        fake_stack_new(&c, &st);
        /* Itself is not a peer. */
        assert_int_equal(unetd_chan_open(&c, st.id, st.id, &chan, &peer), 0);
        st.s->unfinished = 1000000000;
        assert_int_equal(unetd_proc_del(&c, st.id, 0), 0);
        assert_int_equal(world_count(&c).n[UNETD_S_STACK], 1);
        eventually(world_count(&c).n[UNETD_S_STACK] == 0);
        unetd_close(&c);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        fake_stack_forget(&st);
}

static void a_second_one_leaves_at_once(void **state)
{
        pid_t first = run_unetd("--idle", "3000"), second;
        struct unetd_client c;
        int status;

        eventually(found(&c));
        second = run_unetd("--idle", "3000");
        assert_int_equal(waitpid(second, &status, 0), second);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        unetd_close(&c);
        kill(first, SIGTERM);
        assert_int_equal(waitpid(first, &status, 0), first);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Another one would find its name taken, and leave: it is waited for once, and those who ask next
 * are told at once. */
static void a_stopped_one_is_waited_for_once(void **state)
{
        struct unetd_client first = {.pid = 0}, c = {.pid = 0}, later = {.pid = 0};
        int64_t began = world_now_ms(), waited;
        pid_t daemon;

        assert_int_equal(unetd_open(&first, 0), 0);
        daemon = world_daemon_pid(&first);
        kill(daemon, SIGSTOP);
        assert_int_equal(unetd_open(&c, 0), -ETIMEDOUT);
        waited = world_now_ms() - began;
        began = world_now_ms();
        for (int i = 0; i < 3; i++)
                assert_int_equal(unetd_open(&c, 0), -ETIMEDOUT);
        assert_true(world_now_ms() - began < waited);
        kill(daemon, SIGCONT);
        assert_int_equal(unetd_open(&later, 0), 0);
        unetd_close(&later);
        unetd_close(&first);
}

/* A process of a paused container looks like one that sleeps: it is known by not running though it
 * is asked. */
static void who_does_not_run_though_asked_is_frozen(void **state)
{
        int ask[2], answer[2];
        uint64_t ran = 0;
        char byte = 'x';
        pid_t pid;

        assert_int_equal(pipe(ask) + pipe(answer), 0);
        pid = fork();
        if (pid == 0)
                for (;;)
                        if (read(ask[0], &byte, 1) != 1 || write(answer[1], &byte, 1) != 1)
                                _exit(0);
        for (int i = 0; i < 3; i++) {
                assert_int_equal(write(ask[1], &byte, 1), 1);
                assert_int_equal(read(answer[0], &byte, 1), 1);
                assert_false(process_is_frozen(pid, &ran));
        }
        assert_true(world_rests(pid, 100));
        process_is_frozen(pid, &ran);
        assert_true(process_is_frozen(pid, &ran));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        ran = 0;
        assert_false(process_is_frozen(pid, &ran) || process_is_frozen(pid, &ran));
        for (int i = 0; i < 2; i++) {
                close(ask[i]);
                close(answer[i]);
        }
}

static int exit_status(const char *opt)
{
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                close(1), close(2);
                execl(TEST_LIBEXEC "/unetd", "unetd", opt, NULL);
                _exit(127);
        }
        waitpid(pid, &status, 0);
        return WEXITSTATUS(status);
}

static void options_are_checked(void **state)
{
        assert_int_equal(exit_status("--help"), 0);
        assert_int_equal(exit_status("--version"), 0);
        assert_int_equal(exit_status("--no-such-option"), 2);
        assert_int_equal(exit_status("--idle=x"), 2);
        assert_int_equal(exit_status("--domain=a/b"), 2);
        assert_int_equal(exit_status("argument"), 2);
}

/* Idle means asleep: neither wakes at all while a stack is merely there. */
static void idle_daemons_do_not_wake(void **state)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack a, b;
        uint32_t chan, peer;

        assert_int_equal(unetd_open(&c, 0), 0);
        fake_stack_new(&c, &a);
        fake_stack_new(&c, &b);
        assert_int_equal(unetd_chan_open(&c, a.id, b.id, &chan, &peer), 0);
        /* Addresses of the machine may change meanwhile. */
        assert_true(world_rests(world_daemon_pid(&c), 2000));
        assert_true(world_rests(world_keeper_pid(&c), 2000));
        fake_stack_forget(&a);
        fake_stack_forget(&b);
        unetd_close(&c);
}

#define t(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                t(it_inherits_nothing),
                t(nor_does_the_keeper),
                t(the_program_sees_no_child),
                t(the_program_keeps_its_descriptor_numbers),
                t(a_program_with_threads_may_start_it),
                t(a_program_without_standard_descriptors_may_start_it),
                t(a_program_with_few_descriptors_may_start_it),
                t(a_program_that_may_never_have_more_starts_none),
                t(without_the_program_it_says_so),
                t(twenty_starters_get_one),
                t(who_has_stacks_says_that_a_keeper_comes),
                t(who_has_left_its_stacks_does_not),
                t(a_name_that_is_bound_and_silent_is_passed_over),
                t(a_name_that_somebody_else_holds_is_passed_over),
                t(it_leaves_when_idle_and_the_keeper_too),
                t(an_orphan_without_a_peer_is_given_up),
                t(a_second_one_leaves_at_once),
                t(a_stopped_one_is_waited_for_once),
                t(who_does_not_run_though_asked_is_frozen),
                t(options_are_checked),
                t(idle_daemons_do_not_wake),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
