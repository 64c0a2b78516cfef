/*
 * Daemons leave when nobody needs them, however those who did came to their end: a hundred groups
 * of processes, each of servers and clients that listen, connect, accept, fork and send, are killed
 * at random moments, some of them stopped before, and now and then a daemon with them. Then nothing
 * is left: no stack, channel, name or port in unetd, none of their descriptors in it and its
 * keeper, and after the idle time neither of them.
 */
#include "tests/sock/sides.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sock/attach/ustack.h"

#define GROUPS  100
#define MEMBERS 2 /* a group's first processes; they fork more */
#define PORTS   4
#define DAEMONS 16 /* most that are there at once */

static struct shared {
        _Atomic uint32_t port[PORTS]; /* of the group's listeners, 0: not there yet */
        _Atomic uint32_t udp;
} * sh;

static char domain[32], config[64];

/* ---- the daemons of this domain ---- */

static size_t read_file(pid_t pid, const char *what, char *buf, size_t n)
{
        char path[64];
        ssize_t got;
        int fd;

        snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
        fd = open(path, O_RDONLY);
        if (fd < 0)
                return 0;
        got = read(fd, buf, n - 1);
        close(fd);
        buf[got < 0 ? 0 : got] = 0;
        return got < 0 ? 0 : (size_t)got;
}

static bool is_daemon(pid_t pid)
{
        char comm[32], env[8192], want[64];
        size_t n;

        if (read_file(pid, "comm", comm, sizeof comm) == 0 ||
            (strcmp(comm, "unetd\n") != 0 && strcmp(comm, "unet-keeper\n") != 0))
                return false;
        snprintf(want, sizeof want, "UNET_DOMAIN=%s", domain);
        n = read_file(pid, "environ", env, sizeof env);
        for (size_t i = 0; i < n; i += strlen(env + i) + 1)
                if (strcmp(env + i, want) == 0)
                        return true;
        return false;
}

static uint32_t daemons(pid_t pid[DAEMONS])
{
        DIR *d = opendir("/proc");
        struct dirent *e;
        uint32_t n = 0;

        assert_non_null(d);
        while ((e = readdir(d)) != NULL && n < DAEMONS)
                if (e->d_name[0] >= '0' && e->d_name[0] <= '9' && is_daemon(atoi(e->d_name)))
                        pid[n++] = atoi(e->d_name);
        closedir(d);
        return n;
}

/* Descriptors of a daemon's that belong to stacks and channels: their memory, the pidfds of
 * their processes. */
static uint32_t descriptors(pid_t pid)
{
        static const char *const kinds[] = {"/memfd:unet-state", "/memfd:unet-bell",
                                            "/memfd:unet-channel", "anon_inode:[pidfd]"};
        char path[64], link[320], to[256];
        struct dirent *e;
        uint32_t found = 0;
        DIR *d;

        snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
        d = opendir(path);
        while (d != NULL && (e = readdir(d)) != NULL) {
                ssize_t n;
                snprintf(link, sizeof link, "%s/%s", path, e->d_name);
                n = readlink(link, to, sizeof to - 1);
                to[n < 0 ? 0 : n] = 0;
                for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
                        found += strncmp(to, kinds[i], strlen(kinds[i])) == 0;
        }
        if (d != NULL)
                closedir(d);
        return found;
}

/* ---- those who are killed ---- */

static void talk(int c, uint64_t *rng)
{
        static uint8_t buf[60000];
        int n = (int)(rnd(rng) % 20);

        for (int i = 0; i < n; i++) {
                unet_send(c, buf, 1 + rnd(rng) % sizeof buf, MSG_DONTWAIT);
                unet_recv(c, buf, 1 + rnd(rng) % sizeof buf, MSG_DONTWAIT);
        }
        if (rnd(rng) % 4 == 0)
                unet_shutdown(c, SHUT_WR);
}

static void serve(int l, uint64_t rng)
{
        int c[8] = {-1, -1, -1, -1, -1, -1, -1, -1};

        for (;;) {
                uint32_t k = (uint32_t)(rnd(&rng) % 8);
                struct unet_pollfd v = {.sock = l, .fd = -1, .events = POLLIN};

                if (c[k] >= 0) {
                        talk(c[k], &rng);
                        if (rnd(&rng) % 2)
                                continue;
                        unet_close(c[k]);
                        c[k] = -1;
                }
                if (unet_poll(&v, 1, 1) == 1)
                        c[k] = unet_accept(l, NULL, NULL);
                if (c[k] >= 0 && rnd(&rng) % 8 == 0 && fork() == 0)
                        rng += (uint64_t)getpid();
        }
}

static void server(uint64_t rng)
{
        struct sockaddr_in any = loopback(0);
        int u = unet_socket(AF_INET, SOCK_DGRAM, 0), l = -1;

        if (unet_bind(u, (struct sockaddr *)&any, sizeof any) == 0)
                sh->udp = port_of(u);
        for (int i = 0; i < PORTS; i++) {
                l = tcp_listen_any();
                sh->port[i] = port_of(l);
        }
        for (uint64_t n = rnd(&rng) % 4; n > 0; n--)
                if (fork() == 0)
                        rng += (uint64_t)getpid();
        serve(l, rng);
}

static void client(uint64_t rng)
{
        uint8_t data[500] = {0};

        for (;;) {
                struct sockaddr_in to = loopback((uint16_t)sh->port[rnd(&rng) % PORTS]),
                                   udp = loopback((uint16_t)sh->udp);
                int c, u;

                if (to.sin_port == 0) {
                        sleep_ms(1);
                        continue;
                }
                c = unet_socket(AF_INET, SOCK_STREAM, 0);
                u = unet_socket(AF_INET, SOCK_DGRAM, 0);
                if (rnd(&rng) % 2)
                        unet_set_nonblock(c, 1);
                unet_connect(c, (struct sockaddr *)&to, sizeof to);
                for (int i = 0; i < 5; i++)
                        unet_sendto(u, data, sizeof data, MSG_DONTWAIT, (struct sockaddr *)&udp,
                                    sizeof udp);
                talk(c, &rng);
                if (rnd(&rng) % 8 == 0 && fork() == 0)
                        rng += (uint64_t)getpid();
                unet_close(u);
                if (rnd(&rng) % 8)
                        unet_close(c);
        }
}

/* ---- the killing ---- */

static void kill_a_daemon(uint64_t *rng)
{
        pid_t pid[DAEMONS];
        uint32_t n = daemons(pid);

        if (n > 0)
                kill(pid[rnd(rng) % n], SIGKILL);
}

static void spare_time(uint64_t *rng)
{
        static const uint32_t most_us[] = {0, 1000, 5000, 30000, 100000};

        usleep((useconds_t)(rnd(rng) % (most_us[rnd(rng) % 5] + 1)));
}

/* A group of which first some and in the end all are killed. Members die when the test does. */
static void one_group(uint64_t *rng, bool daemons_too)
{
        pid_t pid[MEMBERS], group = 0;

        for (int i = 0; i < PORTS; i++)
                sh->port[i] = 0;
        for (int i = 0; i < MEMBERS; i++) {
                uint64_t seed = rnd(rng);
                pid[i] = fork();
                assert_true(pid[i] >= 0);
                if (pid[i] == 0) {
                        setpgid(0, group);
                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                        alarm(20);
                        if (i == 0)
                                server(seed);
                        client(seed);
                }
                setpgid(pid[i], group);
                group = pid[0];
                spare_time(rng);
        }
        for (int i = 0; i < MEMBERS; i++) {
                if (rnd(rng) % 4 == 0)
                        kill(pid[i], SIGSTOP);
                if (rnd(rng) % 2)
                        kill(pid[i], SIGKILL);
                spare_time(rng);
        }
        if (daemons_too)
                kill_a_daemon(rng);
        for (int i = 0; i < 3; i++) { /* those who are just being forked, too */
                kill(-group, SIGKILL);
                sleep_ms(1);
        }
        for (int i = 0; i < MEMBERS; i++)
                assert_int_equal(waitpid(pid[i], NULL, 0), pid[i]);
}

/* ---- what is left ---- */

static bool count_row(void *arg, const struct unetd_status_item *item)
{
        ((uint32_t *)arg)[item->kind]++;
        return true;
}

/* Stacks, channels, names and ports that unetd knows of; 0 also when it is not there any more. */
static uint32_t known(void)
{
        struct unetd_client c = {.pid = 0};
        uint32_t n[UNETD_S_KINDS] = {0};

        if (unetd_open(&c, UNETD_NO_START) == 0) {
                unetd_status(&c, count_row, n);
                unetd_close(&c);
        }
        return n[UNETD_S_STACK] + n[UNETD_S_CHAN] + n[UNETD_S_LISTENER] + n[UNETD_S_HOLD] +
               n[UNETD_S_LEASE];
}

static bool print_row(void *arg, const struct unetd_status_item *item)
{
        if (item->kind == UNETD_S_STACK)
                print_message("stack %u of process %d, %s\n", item->stack, item->pid,
                              item->flags & UNETD_ORPHAN ? "orphan" : "which has processes");
        else if (item->kind == UNETD_S_CHAN)
                print_message("channel %u:%u - %u:%u\n", item->stack, item->chan, item->peer_stack,
                              item->peer_chan);
        return true;
}

static void print_known(void)
{
        struct unetd_client c = {.pid = 0};

        if (unetd_open(&c, UNETD_NO_START) == 0) {
                unetd_status(&c, print_row, NULL);
                unetd_close(&c);
        }
}

static uint32_t held(void)
{
        pid_t pid[DAEMONS];
        uint32_t n = daemons(pid), sum = 0;

        for (uint32_t i = 0; i < n; i++)
                sum += descriptors(pid[i]);
        return sum;
}

static bool within(int ms, bool (*done)(void))
{
        int64_t until = now_ms() + ms;

        while (!done()) {
                if (now_ms() > until)
                        return false;
                sleep_ms(20);
        }
        return true;
}

static bool nothing_known(void)
{
        return known() == 0;
}

static bool nothing_held(void)
{
        return held() == 0;
}

static bool nobody_there(void)
{
        pid_t pid[DAEMONS];

        return daemons(pid) == 0;
}

static void nothing_is_left_after_random_kills(bool daemons_too)
{
        uint64_t rng = test_seed() + daemons_too;
        int64_t begin = now_ms();
        int n = getenv("UNET_GROUPS") ? atoi(getenv("UNET_GROUPS")) : GROUPS;
        bool ok;

        for (int i = 0; i < n; i++)
                one_group(&rng, daemons_too && rnd(&rng) % 8 == 0);
        print_message("%d groups in %lld ms\n", n, (long long)(now_ms() - begin));
        ok = within(PATIENCE_MS, nothing_known) && within(PATIENCE_MS, nothing_held);
        if (!ok) {
                print_message("%u known, %u descriptors held\n", known(), held());
                print_known();
                if (getenv("UNET_PAUSE"))
                        pause();
        }
        assert_true(ok);
        assert_true(within(PATIENCE_MS, nobody_there));
        print_message("all gone after %lld ms\n", (long long)(now_ms() - begin));
}

static void nothing_is_left_of_killed_processes(void **state)
{
        nothing_is_left_after_random_kills(false);
}

static void nor_when_daemons_are_killed_too(void **state)
{
        nothing_is_left_after_random_kills(true);
}

/* ---- processes that unetd does not know, and that are not there either ---- */

#define ANOTHER 1000u /* a process slot that nobody has */

/* A stack with a connection to itself, in whose books another process stands, and which dies. */
static void in_whose_books(pid_t pid, uint64_t start)
{
        int err, l, c;
        struct stack_state *st;

        alarm(20);
        l = tcp_listen_any();
        c = tcp_connect_to(port_of(l));
        st = ustack_mine(&err)->s.st;
        st->proc[ANOTHER].start = start;
        st->proc[ANOTHER].pid = (uint32_t)pid;
        st->procs = ANOTHER + 1;
        for (uint32_t i = 1; i < st->socks.fresh; i++)
                sock_hold(st, pool_at(&st->socks, i), ANOTHER);
        CHECK(unet_send(c, "x", 1, 0) == 1);
        kill(getpid(), SIGKILL);
}

static void a_stack_ends_with(pid_t pid, uint64_t start)
{
        pid_t child = fork();

        if (child == 0)
                in_whose_books(pid, start);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_true(within(PATIENCE_MS, nothing_known));
}

/* The number of a process that died unknown is another process's by now: ours, which
 * began later. */
static void a_number_that_is_used_again_holds_nothing(void **state)
{
        a_stack_ends_with(getpid(), 1);
}

static void a_process_that_nobody_waited_for_holds_nothing(void **state)
{
        pid_t zombie = fork();
        siginfo_t si;

        if (zombie == 0)
                _exit(0);
        assert_int_equal(waitid(P_PID, (id_t)zombie, &si, WEXITED | WNOWAIT), 0);
        a_stack_ends_with(zombie, ustack_boot_ms());
        assert_int_equal(waitpid(zombie, NULL, 0), zombie);
}

/* A domain whose daemons are started when they are wanted, and leave after a second. */
static int begin(void **state)
{
        static const char text[] = "[daemon]\nidle = 1\n";
        int fd;

        snprintf(domain, sizeof domain, "idle-%d", (int)getpid());
        snprintf(config, sizeof config, "/tmp/unet-idle-test-XXXXXX");
        fd = mkstemp(config);
        if (fd < 0 || write(fd, text, sizeof text - 1) != sizeof text - 1)
                return -1;
        close(fd);
        setenv("UNET_DOMAIN", domain, 1);
        setenv("UNET_LIBEXEC", TEST_LIBEXEC, 1);
        setenv("UNET_CONFIG", config, 1);
        return 0;
}

static int end(void **state)
{
        pid_t pid[DAEMONS];
        uint32_t n = daemons(pid);

        for (uint32_t i = 0; i < n; i++)
                kill(pid[i], SIGKILL);
        return unlink(config);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_number_that_is_used_again_holds_nothing),
                cmocka_unit_test(a_process_that_nobody_waited_for_holds_nothing),
                cmocka_unit_test(nothing_is_left_of_killed_processes),
                cmocka_unit_test(nor_when_daemons_are_killed_too),
        };

        sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        return sh == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, begin, end);
}
