/*
 * shim_calls, programs that lock themselves in: a filter as sshd's, that names what a program needs
 * of the kernel's sockets and kills whoever makes another call; and a root directory in which there
 * is nothing, /proc neither.
 */
#include "tests/shim/calls.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#define LOAD_NR BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ALLOW(call)                                            \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), \
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define OTHERS(what) BPF_STMT(BPF_RET | BPF_K, what)

/* What sshd's child is left, ppoll and the poll of older ones apart. */
#define FEW                                                                                   \
        ALLOW(read), ALLOW(write), ALLOW(close), ALLOW(exit_group), ALLOW(futex),             \
                ALLOW(rt_sigprocmask), ALLOW(getpid), ALLOW(mmap), ALLOW(munmap), ALLOW(brk), \
                ALLOW(clock_gettime), ALLOW(nanosleep), ALLOW(shutdown)

static struct sock_filter with_ppoll[] = {LOAD_NR, FEW, ALLOW(ppoll),
                                          OTHERS(SECCOMP_RET_KILL_PROCESS)};
static struct sock_filter with_poll[] = {LOAD_NR, FEW, ALLOW(poll),
                                         OTHERS(SECCOMP_RET_KILL_PROCESS)};
static struct sock_filter refusing[] = {LOAD_NR, FEW, ALLOW(ppoll),
                                        OTHERS(SECCOMP_RET_ERRNO | EPERM)};

static void lock_in(struct sock_filter *f, size_t n, bool by_seccomp)
{
        struct sock_fprog p = {.len = (unsigned short)n, .filter = f};

        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (by_seccomp ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p)
                       : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
                _exit(100);
}

/* Answers each byte with the next, having slept for it; then as much as fits nowhere, and
 * the end. */
static void locked_child(int fd)
{
        char b[4096] = {0};
        ssize_t n;
        size_t put = 0;

        while (read(fd, b, 1) == 1 && b[0] != 'q') {
                b[0]++;
                if (write(fd, b, 1) != 1)
                        _exit(101);
        }
        while (put < 1 << 20) {
                n = write(fd, b, sizeof(b));
                if (n <= 0)
                        _exit(102);
                put += (size_t)n;
        }
        shutdown(fd, SHUT_WR);
        _exit(read(fd, b, 1) == 0 ? 7 : 103);
}

static void talk(int fd)
{
        char b[4096];
        struct pollfd p = {.fd = fd, .events = POLLIN};
        long got = 0, n;
        int right = 0;

        for (char c = 'a'; c < 'k'; c++) {
                usleep(c % 3 * 2000);
                right += write(fd, &c, 1) == 1 && read(fd, b, 1) == 1 && b[0] == c + 1;
        }
        SHOW(right);
        write(fd, "q", 1);
        while (poll(&p, 1, LONG) == 1 && (n = read(fd, b, sizeof(b))) > 0)
                got += n;
        SHOW(got);
}

static void locked(const char *how, struct sock_filter *f, size_t n, bool by_seccomp)
{
        int v[2], status = 0;
        pid_t pid;

        printf("  %s\n", how);
        tcp_pair(v);
        fflush(stdout);
        if ((pid = fork()) == 0) {
                close(v[0]);
                lock_in(f, n, by_seccomp);
                locked_child(v[1]);
        }
        close(v[1]);
        talk(v[0]);
        close(v[0]);
        waitpid(pid, &status, 0);
        printf("  %s %d\n", WIFSIGNALED(status) ? "killed" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

void scene_sandbox(void)
{
        locked("prctl, ppoll", with_ppoll, ARRAY_LEN(with_ppoll), false);
        locked("seccomp, ppoll", with_ppoll, ARRAY_LEN(with_ppoll), true);
        locked("prctl, poll", with_poll, ARRAY_LEN(with_poll), false);
        locked("prctl, errors", refusing, ARRAY_LEN(refusing), false);
        SHOW(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL));
        SHOW(prctl(PR_GET_SECCOMP));
}

/* Its peer is a program of its own, which it rings. */
void scene_sandbox_peer(void)
{
        int port[2], s = -1, status = 0;
        struct sockaddr_in sa;
        pid_t pid;

        pipe(port);
        fflush(stdout);
        if ((pid = fork()) == 0) {
                int l = listener(&sa);
                write(port[1], &sa, sizeof(sa));
                s = accept(l, NULL, NULL);
                lock_in(with_ppoll, ARRAY_LEN(with_ppoll), false);
                locked_child(s);
        }
        read(port[0], &sa, sizeof(sa));
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        talk(s);
        close(s);
        waitpid(pid, &status, 0);
        SHOW(status);
}

/* ---- a container's filter ---- */

#define OFTEN 200

static struct sock_filter no_eventfd[] = {
        LOAD_NR, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_eventfd2, 0, 1),
        OTHERS(SECCOMP_RET_ERRNO | EPERM), OTHERS(SECCOMP_RET_ALLOW)};

static int connect_often(int come)
{
        struct sockaddr_in sa;
        int got = 0, s;

        read(come, &sa, sizeof(sa));
        for (int i = 0; i < OFTEN; i++) {
                s = socket(AF_INET, SOCK_STREAM, 0);
                got += connect(s, (void *)&sa, sizeof(sa)) == 0;
                close(s);
        }
        return got;
}

/* No numbers can be kept for who comes, so each is sent to the kernel, again and again, and none
 * gets halfway into a channel. */
void scene_no_eventfd(void)
{
        struct sockaddr_in sa;
        int come[2], l, status = 0;
        pid_t pid;

        pipe(come);
        fflush(stdout);
        if ((pid = fork()) == 0)
                _exit(connect_often(come[0]));
        lock_in(no_eventfd, ARRAY_LEN(no_eventfd), false);
        l = listener(&sa);
        write(come[1], &sa, sizeof(sa));
        fcntl(l, F_SETFL, O_NONBLOCK);
        while (waitpid(pid, &status, WNOHANG) == 0) {
                int s = accept(l, NULL, NULL);
                if (s >= 0)
                        close(s);
                else
                        usleep(100);
        }
        SHOW(WEXITSTATUS(status));
        exit(0);
}

/* ---- an empty root ---- */

static bool echoes(int fd)
{
        struct timeval patience = {10, 0};
        char b[16];

        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        return write(fd, "there", 5) == 5 && recv(fd, b, 5, MSG_WAITALL) == 5 &&
               memcmp(b, "there", 5) == 0;
}

static bool echo_one(int l)
{
        char b[16];
        int s = accept(l, NULL, NULL);
        ssize_t n;

        while ((n = read(s, b, sizeof(b))) > 0)
                write(s, b, (size_t)n);
        close(s);
        return s >= 0;
}

/* Listens, and leaves everything but its sockets behind; then somebody comes, and it goes
 * to somebody. */
static void jailed(const char *dir, int come, int go)
{
        struct sockaddr_in sa;
        int l = listener(&sa), s;
        bool came;

        SHOW(chroot(dir));
        SHOW(chdir("/"));
        SHOW(close_range((unsigned)l + 1, ~0u, 0));
        write(go, &sa, sizeof(sa));
        came = echo_one(l);
        read(come, &sa, sizeof(sa));
        SHOW(came);
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        SHOW(echoes(s));
        fflush(stdout);
        _exit(0);
}

/* Each has a stack of its own. */
static pid_t apart(void (*run)(const char *dir, int come, int go), const char *dir, int come,
                   int go)
{
        pid_t pid;

        fflush(stdout);
        pid = fork();
        if (pid == 0)
                run(dir, come, go);
        return pid;
}

static void comes(const char *dir, int come, int go)
{
        struct sockaddr_in sa;
        int s = socket(AF_INET, SOCK_STREAM, 0);

        (void)dir, (void)go;
        read(come, &sa, sizeof(sa));
        _exit(connect(s, (void *)&sa, sizeof(sa)) == 0 && echoes(s) ? 7 : 1);
}

void scene_jail(void)
{
        char dir[] = "/tmp/shim-jail-XXXXXX";
        struct sockaddr_in sa;
        int to[2], from[2], status = 0, l;
        pid_t pid, other;
        bool came;

        if (!mkdtemp(dir))
                die("mkdtemp");
        pipe(to);
        pipe(from);
        pid = apart(jailed, dir, to[0], from[1]);
        other = apart(comes, dir, from[0], -1);
        waitpid(other, &status, 0);
        SHOW(WEXITSTATUS(status));
        l = listener(&sa);
        write(to[1], &sa, sizeof(sa));
        came = echo_one(l);
        waitpid(pid, &status, 0);
        SHOW(came);
        SHOW(status);
        rmdir(dir);
}
