#include "tests/unetd/world.h"

#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static unsigned worlds;

int world_setup(void **state)
{
        char domain[33];

        snprintf(domain, sizeof domain, "test-%d-%u", (int)getpid(), worlds++);
        setenv("UNET_DOMAIN", domain, 1);
        setenv("UNET_LIBEXEC", TEST_LIBEXEC, 1);
        return 0;
}

/* Ends this world's unetd, and with it its keeper. */
int world_teardown(void **state)
{
        struct unetd_client c = {.pid = 0};
        pid_t daemon, keeper;

        if (unetd_open(&c, UNETD_NO_START) < 0)
                return 0;
        daemon = world_daemon_pid(&c);
        keeper = world_keeper_pid(&c);
        unetd_close(&c);
        if (keeper)
                kill(keeper, SIGSTOP); /* or one would bring the other back */
        kill(daemon, SIGKILL);
        if (keeper)
                kill(keeper, SIGKILL);
        eventually(!world_alive(daemon));
        return 0;
}

void world_sleep_ms(int ms)
{
        struct timespec ts = {ms / 1000, ms % 1000 * 1000000L};

        nanosleep(&ts, NULL);
}

int64_t world_now_ms(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void fake_stack_make(struct fake_stack *st)
{
        assert_int_equal(unetd_stack_fds_make(&st->fds, FAKE_BYTES), 0);
        st->s = mmap(NULL, FAKE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, st->fds.state, 0);
        assert_ptr_not_equal(st->s, MAP_FAILED);
        st->s->magic = FAKE_MAGIC;
        st->id = 0;
}

void fake_stack_new(struct unetd_client *c, struct fake_stack *st)
{
        fake_stack_make(st);
        assert_int_equal(unetd_stack_new(c, &st->fds, 0, &st->id), 0);
        assert_int_not_equal(st->id, 0);
}

void fake_stack_forget(struct fake_stack *st)
{
        munmap(st->s, FAKE_BYTES);
        unetd_stack_fds_close(&st->fds);
}

struct find {
        uint32_t kind;
        struct unetd_status_item item;
};

static bool find_row(void *arg, const struct unetd_status_item *item)
{
        struct find *f = arg;

        if (item->kind == f->kind)
                f->item = *item;
        return true;
}

pid_t world_daemon_pid(struct unetd_client *c)
{
        struct find f = {.kind = UNETD_S_DAEMON};

        assert_int_equal(unetd_status(c, find_row, &f), 0);
        return f.item.pid;
}

pid_t world_keeper_pid(struct unetd_client *c)
{
        struct find f = {.kind = UNETD_S_KEEPER};

        assert_int_equal(unetd_status(c, find_row, &f), 0);
        return f.item.pid;
}

static bool count_row(void *arg, const struct unetd_status_item *item)
{
        struct world_count *n = arg;

        n->n[item->kind]++;
        return true;
}

struct world_count world_count(struct unetd_client *c)
{
        struct world_count n = {{0}};

        assert_int_equal(unetd_status(c, count_row, &n), 0);
        return n;
}

bool world_alive(pid_t pid)
{
        char path[64], line[512] = "", *state;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        f = fopen(path, "re");
        if (!f)
                return false;
        if (!fgets(line, sizeof line, f))
                line[0] = 0;
        fclose(f);
        state = strrchr(line, ')');
        return state && state[2] != 'Z' && state[2] != 'X';
}

int world_fds(pid_t pid)
{
        char path[64];
        DIR *d;
        int n = 0;

        snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
        d = opendir(path);
        assert_non_null(d);
        for (struct dirent *e; (e = readdir(d));)
                n += e->d_name[0] != '.';
        closedir(d);
        return n;
}

void world_print_fds(const char *who, pid_t pid)
{
        char path[64], link[320], to[256];
        DIR *d;

        snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
        d = opendir(path);
        for (struct dirent *e; d && (e = readdir(d));) {
                ssize_t n;
                snprintf(link, sizeof link, "%s/%s", path, e->d_name);
                n = readlink(link, to, sizeof to - 1);
                if (n > 0)
                        print_message("%s: %s %.*s\n", who, e->d_name, (int)n, to);
        }
        if (d)
                closedir(d);
        /* What the sockets are, and of whom the peers. */
        snprintf(link, sizeof link, "ss -Hanpextu 2>&1 | grep -w pid=%d", (int)pid);
        if (system(link) != 0)
                print_message("%s: no ss\n", who);
}

void world_fds_back_to(const char *who, pid_t pid, int fds)
{
        int64_t until = world_now_ms() + PATIENCE_MS;

        while (world_fds(pid) > fds && world_now_ms() < until)
                world_sleep_ms(1);
        if (world_fds(pid) > fds)
                world_print_fds(who, pid);
        assert_in_range(world_fds(pid), 1, fds);
}

static unsigned long long switches(pid_t pid)
{
        char path[64], line[256];
        unsigned long long n = 0;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
        f = fopen(path, "re");
        assert_non_null(f);
        while (fgets(line, sizeof line, f))
                sscanf(line, "voluntary_ctxt_switches: %llu", &n);
        fclose(f);
        return n;
}

bool world_rests(pid_t pid, int ms)
{
        unsigned long long before, after = switches(pid);

        for (int tries = 0; tries < 30; tries++) {
                before = after;
                world_sleep_ms(ms);
                after = switches(pid);
                if (after == before)
                        return true;
                print_message("process %d woke %llu times in %d ms\n", (int)pid, after - before,
                              ms);
        }
        return false;
}

long world_rss_kb(pid_t pid)
{
        char path[64], line[256];
        long rss = -1;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
        f = fopen(path, "re");
        assert_non_null(f);
        while (fgets(line, sizeof line, f))
                sscanf(line, "RssAnon: %ld", &rss);
        fclose(f);
        assert_true(rss >= 0);
        return rss;
}

int world_child(int (*fn)(void *arg), void *arg)
{
        int status;
        pid_t pid = fork();

        if (pid == 0)
                _exit(fn(arg));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int world_socket(uint8_t proto, uint16_t *port)
{
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(*port)};
        socklen_t len = sizeof sin;
        int fd = socket(AF_INET, (proto == IPPROTO_TCP ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC,
                        0);

        sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        assert_true(fd >= 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&sin, len), 0);
        if (proto == IPPROTO_TCP)
                assert_int_equal(listen(fd, 5), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &len), 0);
        *port = ntohs(sin.sin_port);
        return fd;
}

ip_addr world_localhost(void)
{
        return ip_addr_v4(INADDR_LOOPBACK);
}

uint32_t world_lookup(const struct unetd_client *c, uint8_t proto, ip_addr addr, uint16_t port)
{
        struct dir_hit hit;

        return directory_lookup(c->dir, proto, addr, port, 0, &hit) == 1 ? hit.stack : 0;
}

void world_client(struct unetd_client *c)
{
        memset(c, 0, sizeof *c);
        assert_int_equal(unetd_open(c, 0), 0);
}
