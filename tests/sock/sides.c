/* See sides.h. */
#include "tests/sock/sides.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 500 /* a side that takes longer is stuck; ctest's own limit comes later */

static struct {
        char domain[32];
        pid_t unetd;
} world;

/* A test that is killed leaves nobody behind, stopped ones neither. */
static void die_with_parent(void)
{
        prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* ---- the domain ---- */

static void run_unetd(int ready)
{
        char path[4096], fd[16];

        die_with_parent();
        snprintf(path, sizeof path, "%s/unetd", TEST_LIBEXEC);
        snprintf(fd, sizeof fd, "%d", ready);
        execl(path, "unetd", "--domain", world.domain, "--ready-fd", fd, (char *)NULL);
        perror(path);
        _exit(127);
}

int world_begin(void **state)
{
        static unsigned worlds; /* a test may leave a unetd behind */
        int ready[2];
        char byte;

        snprintf(world.domain, sizeof world.domain, "sock-%d-%u", (int)getpid(), worlds++);
        setenv("UNET_DOMAIN", world.domain, 1);
        setenv("UNET_LIBEXEC", TEST_LIBEXEC, 1);
        if (pipe(ready) != 0)
                return -1;
        world.unetd = fork();
        if (world.unetd == 0) {
                close(ready[0]);
                run_unetd(ready[1]);
        }
        close(ready[1]);
        if (read(ready[0], &byte, 1) < 0)
                return -1;
        close(ready[0]);
        return world.unetd > 0 ? 0 : -1;
}

int world_end(void **state)
{
        if (world.unetd == 0)
                return 0;
        kill(world.unetd, SIGTERM);
        return waitpid(world.unetd, NULL, 0) == world.unetd ? 0 : -1;
}

pid_t world_unetd(void)
{
        return world.unetd;
}

static bool is_keeper(pid_t pid)
{
        char path[64], comm[32] = "";
        int parent = 0;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        f = fopen(path, "r");
        if (f == NULL)
                return false;
        if (fscanf(f, "%*d (%31[^)]) %*c %d", comm, &parent) != 2)
                parent = 0;
        fclose(f);
        return parent == world.unetd && strcmp(comm, "unet-keeper") == 0;
}

pid_t world_keeper(void)
{
        DIR *d = opendir("/proc");
        struct dirent *e;
        pid_t pid = 0;

        while (d != NULL && pid == 0 && (e = readdir(d)) != NULL)
                if (e->d_name[0] >= '0' && e->d_name[0] <= '9' && is_keeper(atoi(e->d_name)))
                        pid = atoi(e->d_name);
        if (d != NULL)
                closedir(d);
        return pid;
}

/* ---- sides ---- */

_Noreturn void check_failed(const char *file, int line, const char *what)
{
        fprintf(stderr, "%s:%d: CHECK(%s), errno %d (%s)\n", file, line, what, errno,
                strerror(errno));
        fflush(NULL);
        _exit(1);
}

void tell(struct side *s, uint64_t what)
{
        CHECK(write(s->out, &what, sizeof what) == sizeof what);
}

uint64_t hear(struct side *s)
{
        uint64_t what;

        CHECK(read(s->in, &what, sizeof what) == sizeof what);
        return what;
}

struct run {
        side_fn fn;
        struct side side;
};

static void *run_thread(void *arg)
{
        struct run *r = arg;

        r->fn(&r->side);
        return NULL;
}

static void threads_main(struct run r[2])
{
        pthread_t t[2];

        for (int i = 0; i < 2; i++) {
                r[i].side.pid = r[i].side.other = getpid();
                CHECK(pthread_create(&t[i], NULL, run_thread, &r[i]) == 0);
        }
        for (int i = 0; i < 2; i++)
                pthread_join(t[i], NULL);
}

/* The child hears the other side's end as end of file. */
static pid_t spawn_side(struct run r[2], int me)
{
        pid_t pid = fork();

        if (pid != 0)
                return pid;
        die_with_parent();
        alarm(PATIENCE_S);
        close(r[!me].side.in);
        close(r[!me].side.out);
        r[me].side.pid = getpid();
        r[me].fn(&r[me].side);
        exit(0);
}

/* What the stacks and their daemons say of themselves when a side has failed, while the other one
 * is still there. */
static void report_world(void)
{
        static const char *const verbs[] = {"status", "ss"};

        fflush(NULL);
        for (size_t i = 0; i < 2; i++) {
                pid_t pid = fork();
                if (pid == 0) {
                        alarm(20);
                        dup2(2, 1);
                        execl(TEST_LIBEXEC "/../tools/unet", "unet", verbs[i], (char *)NULL);
                        _exit(127);
                }
                waitpid(pid, NULL, 0);
        }
}

/* SIGALRM is a side that had not ended after PATIENCE_S. */
static void judge(int status)
{
        if (status == 0)
                return;
        fprintf(stderr, "a side ended by %s %d%s\n", WIFSIGNALED(status) ? "signal" : "status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ": it was stuck" : "");
        report_world();
}

static int status_of(pid_t pid)
{
        int status = 0;

        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Which of two children ended first. */
static int wait_either(const pid_t pid[2], int *status)
{
        for (;;) {
                pid_t got = wait(status);
                for (int i = 0; i < 2; i++)
                        if (got == pid[i])
                                return i;
                assert_true(got > 0);
                if (got == world.unetd) /* the scenario has killed it */
                        world.unetd = 0;
        }
}

static void play_processes(struct run r[2])
{
        pid_t pid[2];
        int status, first;

        pid[0] = r[1].side.other = spawn_side(r, 0);
        pid[1] = spawn_side(r, 1);
        for (int i = 0; i < 2; i++) {
                close(r[i].side.in);
                close(r[i].side.out);
        }
        first = wait_either(pid, &status);
        judge(status);
        if (status != 0) {
                kill(pid[!first], SIGKILL);
                waitpid(pid[!first], NULL, 0);
        }
        assert_int_equal(status, 0);
        assert_int_equal(waitpid(pid[!first], &status, 0), pid[!first]);
        judge(status);
        assert_int_equal(status, 0);
}

static void play_threads(struct run r[2])
{
        pid_t pid = fork();
        int status;

        if (pid == 0) {
                die_with_parent();
                alarm(PATIENCE_S);
                threads_main(r);
                exit(0);
        }
        for (int i = 0; i < 2; i++) {
                close(r[i].side.in);
                close(r[i].side.out);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        judge(status);
        assert_int_equal(status, 0);
}

void play(enum placement where, side_fn a, side_fn b, uint64_t arg)
{
        struct run r[2] = {{a, {.arg = arg}}, {b, {.arg = arg}}};
        int ab[2], ba[2];

        assert_int_equal(pipe(ab), 0);
        assert_int_equal(pipe(ba), 0);
        r[0].side.in = ba[0];
        r[0].side.out = ab[1];
        r[1].side.in = ab[0];
        r[1].side.out = ba[1];
        fflush(NULL);
        if (where == TWO_PROCESSES)
                play_processes(r);
        else
                play_threads(r);
}

void play_both(side_fn a, side_fn b, uint64_t arg)
{
        play(TWO_PROCESSES, a, b, arg);
        play(TWO_THREADS, a, b, arg);
}

int play_alone(side_fn a, uint64_t arg)
{
        pid_t pid;

        fflush(NULL);
        pid = fork();
        if (pid == 0) {
                die_with_parent();
                alarm(PATIENCE_S);
                a(&(struct side){.in = -1, .out = -1, .arg = arg, .pid = getpid()});
                exit(0);
        }
        return status_of(pid);
}

/* ---- sockets ---- */

struct sockaddr_in loopback(uint16_t port)
{
        return (struct sockaddr_in){.sin_family = AF_INET,
                                    .sin_port = htons(port),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

uint16_t port_of(int sock)
{
        struct sockaddr_in a;
        socklen_t len = sizeof a;

        CHECK(unet_getsockname(sock, (struct sockaddr *)&a, &len) == 0);
        CHECK(len == sizeof a && a.sin_family == AF_INET);
        return ntohs(a.sin_port);
}

int tcp_listen_at(uint16_t port)
{
        struct sockaddr_in a = loopback(port);
        int s = unet_socket(AF_INET, SOCK_STREAM, 0);

        CHECK(s >= 0);
        CHECK(unet_bind(s, (struct sockaddr *)&a, sizeof a) == 0);
        CHECK(unet_listen(s, 128) == 0);
        return s;
}

int tcp_listen_any(void)
{
        return tcp_listen_at(0);
}

int tcp_connect_to(uint16_t port)
{
        struct sockaddr_in a = loopback(port);
        int s = unet_socket(AF_INET, SOCK_STREAM, 0);

        CHECK(s >= 0);
        CHECK(unet_connect(s, (struct sockaddr *)&a, sizeof a) == 0);
        return s;
}

int side_connect(struct side *s)
{
        return tcp_connect_to((uint16_t)hear(s));
}

int side_accept(struct side *s)
{
        int l = tcp_listen_any(), c;

        tell(s, port_of(l));
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0);
        CHECK(unet_close(l) == 0);
        return c;
}

/* ---- data ---- */

static uint64_t mix(uint64_t x)
{
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        return x ^ (x >> 31);
}

static uint8_t byte_at(uint64_t seed, uint64_t pos)
{
        return (uint8_t)(mix(seed + pos / 8 * 0x9e3779b97f4a7c15ull) >> (pos % 8 * 8));
}

void fill(void *p, size_t n, uint64_t seed, uint64_t pos)
{
        uint8_t *b = p;
        uint64_t w;
        size_t i = 0;

        for (; i < n && (pos + i) % 8 != 0; i++)
                b[i] = byte_at(seed, pos + i);
        for (; i + 8 <= n; i += 8) {
                w = mix(seed + (pos + i) / 8 * 0x9e3779b97f4a7c15ull);
                memcpy(b + i, &w, 8);
        }
        for (; i < n; i++)
                b[i] = byte_at(seed, pos + i);
}

bool filled(const void *p, size_t n, uint64_t seed, uint64_t pos)
{
        const uint8_t *b = p;
        uint8_t want[4096];

        for (size_t i = 0; i < n; i += sizeof want) {
                size_t k = n - i < sizeof want ? n - i : sizeof want;
                fill(want, k, seed, pos + i);
                if (memcmp(b + i, want, k) != 0)
                        return false;
        }
        return true;
}

uint64_t rnd(uint64_t *state)
{
        return mix(*state += 0x9e3779b97f4a7c15ull);
}

uint64_t test_seed(void)
{
        static uint64_t seed;
        const char *env = getenv("UNET_TEST_SEED");

        if (seed == 0) {
                seed = (uint64_t)time(NULL) * 2654435761u + (uint64_t)getpid();
                if (env != NULL)
                        seed = strtoull(env, NULL, 0);
                print_message("seed %llu\n", (unsigned long long)seed);
        }
        return seed;
}

int64_t now_ms(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void sleep_ms(int ms)
{
        struct timespec ts = {ms / 1000, ms % 1000 * 1000000L};

        while (nanosleep(&ts, &ts) != 0)
                ;
}
