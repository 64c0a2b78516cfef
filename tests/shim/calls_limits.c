/*
 * shim_calls, programs that are limited (setrlimit): the numbers they get and where they end, files
 * of no length.
 */
#include "tests/shim/calls.h"

#include <sys/resource.h>

#include "tests/pass_fd.h"

static void limit_softly(__rlimit_resource_t what, rlim_t to)
{
        struct rlimit rl;

        getrlimit(what, &rl);
        rl.rlim_cur = to < rl.rlim_max ? to : rl.rlim_max;
        if (setrlimit(what, &rl) < 0)
                die("setrlimit");
}

/* A program of its own. */
static int come_and_write(int come)
{
        struct sockaddr_in sa;
        int s = socket(AF_INET, SOCK_STREAM, 0);

        read(come, &sa, sizeof(sa));
        return connect(s, (void *)&sa, sizeof(sa)) == 0 && write(s, "there", 5) == 5 ? 0 : 1;
}

/* Every number below the limit is the program's, the lowest first. */
void scene_numbers_limited(void)
{
        struct sockaddr_in sa;
        struct rlimit rl;
        int v[64], n = 0, l, s, lowest = 3;
        char c;

        close_range(3, ~0u, 0);
        limit_softly(RLIMIT_NOFILE, 64);
        l = listener(&sa);
        SHOW(l == lowest);
        while ((s = socket(AF_INET, SOCK_STREAM, 0)) >= 0) {
                v[n++] = s;
                if (connect(s, (void *)&sa, sizeof(sa)) < 0)
                        break;
                if ((s = accept(l, NULL, NULL)) < 0)
                        break;
                v[n++] = s;
                write(v[n - 2], "x", 1);
                if (read(s, &c, 1) != 1)
                        break;
        }
        SHOW(s);
        for (int i = 0; i < n; i++)
                if (v[i] != lowest + 1 + i)
                        printf("  number %d of 64 is wrong\n", i);
        SHOW(v[n - 1] == 63);
        close(v[0]);
        SHOW(dup(0) == v[0]);
        SHOW(fcntl(0, F_DUPFD, 60));
        SHOW(dup2(0, 64));
        getrlimit(RLIMIT_NOFILE, &rl);
        SHOW(rl.rlim_cur == 64);
}

/* Answers one connection with what it sends, with so many numbers at most; `taken`: all of them but
 * that one are in use. */
static void limited_server(int ready, int told, struct rlimit rl, bool taken)
{
        struct sockaddr_in sa;
        ssize_t n;
        char b[16];
        int l, s;

        read(ready, b, 1);
        if (setrlimit(RLIMIT_NOFILE, &rl) < 0)
                die("setrlimit");
        l = listener(&sa);
        while (taken && (s = dup(0)) >= 0)
                ;
        close(ready); /* one is left */
        write(told, &sa, sizeof(sa));
        s = accept(l, NULL, NULL);
        while ((n = read(s, b, sizeof(b))) > 0)
                write(s, b, (size_t)n);
        exit(0);
}

/* It has few from before its first socket; who asks it has no such limit, and is another stack. */
static void ask_limited_server(struct rlimit rl, bool taken)
{
        struct timeval patience = {10, 0};
        struct sockaddr_in sa;
        int v[2], go[2], told[2], c;
        char b[16];
        pid_t pid;

        pipe(go);
        pipe(told);
        fflush(stdout);
        pid = fork();
        if (pid == 0)
                limited_server(go[0], told[1], rl, taken);
        tcp_pair(v);
        write(go[1], "x", 1);
        read(told[0], &sa, sizeof(sa));
        c = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(c, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
        setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        SHOW(connect(c, (void *)&sa, sizeof(sa)));
        SHOW(write(c, "there and back", 14));
        show_bytes("read", b, recv(c, b, 14, MSG_WAITALL));
        close(c);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        exit(0);
}

static void with_numbers(rlim_t soft, rlim_t hard, bool taken)
{
        printf("  %s, %s\n", soft == hard ? "hard" : "soft", taken ? "used up" : "free");
        fflush(stdout);
        if (fork() == 0)
                ask_limited_server((struct rlimit){soft, hard}, taken);
        wait(NULL);
}

/* Too few for a stack and who it talks to, or all used up when somebody comes to whom there is no
 * channel yet. */
void scene_numbers_few(void)
{
        static const unsigned n[] = {12, 14, 16, 20, 24, 32, 48, 64, 128};
        struct rlimit rl;

        getrlimit(RLIMIT_NOFILE, &rl);
        for (size_t i = 0; i < ARRAY_LEN(n); i++) {
                printf("  %u\n", n[i]);
                with_numbers(n[i], n[i], false);
                with_numbers(n[i], rl.rlim_max, false);
                with_numbers(n[i], rl.rlim_max, true);
        }
}

#define ASKERS 5

/* Each with a stack of its own, all at once. */
static int ask_at_once(struct sockaddr_in sa)
{
        struct timeval patience = {20, 0};
        char b[16] = "";
        int c;

        c = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(c, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
        setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        return connect(c, (void *)&sa, sizeof(sa)) == 0 && write(c, "there and back", 14) == 14 &&
               recv(c, b, 14, MSG_WAITALL) == 14 && memcmp(b, "there and back", 14) == 0;
}

/* Who has no number left for a connection does not wait for one. */
void scene_numbers_for_nobody(void)
{
        struct rlimit rl = {512, 512};
        struct timeval tv = {.tv_sec = 1};
        struct sockaddr_in sa;
        int l = listener(&sa);

        SHOW(setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
        SHOW(setrlimit(RLIMIT_NOFILE, &rl));
        while (dup(0) >= 0)
                ;
        SHOW(accept(l, NULL, NULL));
}

/* The hard limit is set, and all numbers but one are used up, after there is a stack: who comes
 * then is served, one after the other. */
void scene_numbers_used_up(void)
{
        struct rlimit rl = {512, 512};
        int go[2], l, s, last = -1, status, served = 0;
        struct sockaddr_in sa;
        char b[16];
        ssize_t n;

        pipe(go);
        fflush(stdout);
        for (int i = 0; i < ASKERS; i++)
                if (fork() == 0) {
                        close(go[1]);
                        _exit(read(go[0], &sa, sizeof(sa)) == sizeof(sa) && ask_at_once(sa) ? 0
                                                                                            : 1);
                }
        l = listener(&sa);
        SHOW(setrlimit(RLIMIT_NOFILE, &rl));
        for (int i = 0; i < ASKERS; i++)
                write(go[1], &sa, sizeof(sa));
        for (int i = 0; i < ASKERS; i++) {
                while ((s = dup(0)) >= 0)
                        last = s;
                SHOW(s);
                close(last);
                SHOW((s = accept(l, NULL, NULL)) >= 0);
                while ((n = read(s, b, sizeof(b))) > 0)
                        write(s, b, (size_t)n);
                close(s);
        }
        for (int i = 0; i < ASKERS; i++)
                served += wait(&status) > 0 && status == 0;
        SHOW(served);
        exit(0);
}

#define ALL  1024
#define OURS 16 /* the library has fewer */

static int numbers_left(void)
{
        int n = 0;

        while (dup(0) >= 0)
                n++;
        SHOW(errno == EMFILE);
        return n;
}

/* With a connection to itself and one to another program, and sockets that are kept for later. */
void scene_numbers_ours(void)
{
        struct rlimit rl = {ALL, ALL};
        struct sockaddr_in sa;
        int come[2], v[2][2], l, s;
        char b[16];

        close_range(3, ~0u, 0);
        SHOW(setrlimit(RLIMIT_NOFILE, &rl));
        pipe(come);
        fflush(stdout);
        if (fork() == 0)
                _exit(come_and_write(come[0]));
        l = listener(&sa);
        write(come[1], &sa, sizeof(sa));
        SHOW((s = accept(l, NULL, NULL)) >= 0);
        show_bytes("read", b, recv(s, b, 5, MSG_WAITALL));
        for (int i = 0; i < 2; i++)
                tcp_pair(v[i]);
        close2(v[0]);
        SHOW(numbers_left() > ALL - OURS - 9); /* 0, 1, 2, the pipe, l, s, and a pair */
        wait(NULL);
        exit(0);
}

/* A set of a socket, to itself, by a program that may write no file. */
static void send_a_set(int fd)
{
        struct epoll_event ev = {.events = EPOLLIN, .data.u32 = 3};
        int ep = epoll_create1(0), got, s[2];

        socketpair(AF_UNIX, SOCK_STREAM, 0, s);
        SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
        limit_softly(RLIMIT_FSIZE, 0);
        pass_fd(s[0], ep);
        limit_softly(RLIMIT_FSIZE, 100000); /* what is printed may be one */
        close(ep);
        got = take_fd(s[1]);
        SHOW(epoll_wait(got, &ev, 1, LONG));
        SHOW(ev.data.u32);
        close(got);
        close2(s);
}

/* The library's own memory is no file of the program's. */
void scene_files_limited(void)
{
        struct rlimit rl;
        char b[16];
        int v[2];

        limit_softly(RLIMIT_FSIZE, 100000);
        tcp_pair(v);
        write(v[0], "some", 4);
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        getrlimit(RLIMIT_FSIZE, &rl);
        SHOW(rl.rlim_cur == 100000);
        write(v[0], "some", 4);
        send_a_set(v[1]);
        close2(v);
}

/* Fewer numbers than are open already, and than a wait of ours has descriptors. */
void scene_numbers_lowered(void)
{
        struct sockaddr_in sa;
        int v[2], l, s, p[2];
        struct pollfd pf;
        char b[16];

        tcp_pair(v);
        l = listener(&sa);
        pipe(p);
        limit_softly(RLIMIT_NOFILE, 1);
        SHOW(socket(AF_INET, SOCK_STREAM, 0));
        fflush(stdout);
        if (fork() == 0) {
                usleep(100000);
                write(v[0], "late", 4);
                read(p[0], b, 1);
                write(v[0], "later", 5);
                _exit(0);
        }
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        pf = (struct pollfd){.fd = v[1], .events = POLLIN};
        SHOW(poll(&pf, 1, 10));
        write(p[1], "x", 1);
        SHOW(poll(&pf, 1, LONG));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        wait(NULL);
        limit_softly(RLIMIT_NOFILE, 1024);
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        write(s, "kept", 4);
        limit_softly(RLIMIT_NOFILE, 1);
        SHOW(accept(l, NULL, NULL));
        SHOW(accept(l, NULL, NULL));
        limit_softly(RLIMIT_NOFILE, 1024);
        SHOW((v[0] = accept(l, NULL, NULL)) >= 0);
        show_bytes("read", b, read(v[0], b, sizeof(b)));
}

/* ---- memory that stays ---- */

static long locked_kb(void)
{
        FILE *f = fopen("/proc/self/status", "re");
        char line[128];
        long kb = -1;

        while (fgets(line, sizeof(line), f))
                sscanf(line, "VmLck: %ld", &kb);
        fclose(f);
        return kb;
}

/* Two come, of stacks of their own: one before all memory is locked, and one after it. */
static void locked_memory(int flags, bool late)
{
        struct sockaddr_in sa;
        int come[2], l, s, status;
        char b[16];

        printf("  flags %d%s\n", flags, late ? ", late" : "");
        pipe(come);
        fflush(stdout);
        for (int i = 0; i < 2; i++)
                if (fork() == 0)
                        _exit(come_and_write(come[0]));
        if (!late)
                SHOW(mlockall(flags));
        l = listener(&sa);
        for (int i = 0; i < 2; i++) {
                write(come[1], &sa, sizeof(sa));
                SHOW((s = accept(l, NULL, NULL)) >= 0);
                show_bytes("read", b, recv(s, b, 5, MSG_WAITALL));
                if (late && i == 0)
                        SHOW(mlockall(flags));
                wait(&status);
                SHOW(status);
                SHOW(locked_kb() < 50000);
                close(s);
        }
        fflush(stdout);
        _exit(0);
}

/* What the library maps is large, and must not fill the machine. */
void scene_memory_locked(void)
{
        static const int flags[] = {MCL_CURRENT,
                                    MCL_FUTURE,
                                    MCL_CURRENT | MCL_FUTURE,
                                    MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT,
                                    0,
                                    64};

        for (size_t i = 0; i < 2 * ARRAY_LEN(flags); i++) {
                fflush(stdout);
                if (fork() == 0)
                        locked_memory(flags[i / 2], i % 2);
                wait(NULL);
        }
}

static void locked_set(int flags, bool late)
{
        struct epoll_event ev = {.events = EPOLLIN};
        int v[2], ep;

        if (!late)
                SHOW(mlockall(flags));
        tcp_pair(v);
        ep = epoll_create1(0);
        SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, v[1], &ev));
        if (late)
                SHOW(mlockall(flags));
        write(v[0], "some", 4);
        SHOW(epoll_wait(ep, &ev, 1, LONG));
        SHOW(locked_kb() < 50000);
        fflush(stdout);
        _exit(0);
}

/* Nor what it has for epoll sets, which is private memory. */
void scene_memory_locked_with_sets(void)
{
        static const int flags[] = {MCL_CURRENT, MCL_FUTURE, MCL_CURRENT | MCL_FUTURE};

        for (size_t i = 0; i < 2 * ARRAY_LEN(flags); i++) {
                fflush(stdout);
                if (fork() == 0)
                        locked_set(flags[i / 2], i % 2);
                wait(NULL);
        }
}

/* Shared memory without a name, which a core dump has, holes filled with zeros, unless it is told
 * not to (VmFlags: dd). */
static long dumped_kb(void)
{
        FILE *f = fopen("/proc/self/smaps", "re");
        long kb = 0, size, total = 0;
        bool shared = false;
        char line[512];

        while (fgets(line, sizeof(line), f)) {
                if (strstr(line, " rw-s ") || strstr(line, " r--s "))
                        shared = strstr(line, "(deleted)") != NULL;
                else if (sscanf(line, "Size: %ld", &size) == 1)
                        kb = size;
                else if (!strncmp(line, "VmFlags:", 8)) {
                        total += shared && !strstr(line, " dd") ? kb : 0;
                        shared = false;
                }
        }
        fclose(f);
        return total;
}

/* A program that crashes leaves what it had itself. */
void scene_memory_dumped(void)
{
        int v[2];

        tcp_pair(v);
        SHOW(dumped_kb() < 20000);
        close2(v);
        SHOW(dumped_kb() < 20000);
}

/* ---- address space ---- */

#define MB   (1ul << 20)
#define BULK 1000000

/* Much in one direction, by a process of its own, and a datagram. */
static void talk(void)
{
        static char b[65536];
        struct sockaddr_in sa;
        int v[2], u, w;
        long got = 0, n;

        tcp_pair(v);
        fflush(stdout);
        if (fork() == 0) {
                close(v[1]);
                for (n = 0; n < BULK; n += 10000)
                        write(v[0], b, 10000);
                _exit(0);
        }
        close(v[0]);
        while ((n = read(v[1], b, sizeof(b))) > 0)
                got += n;
        SHOW(got);
        SHOW(n);
        wait(NULL);
        close(v[1]);
        u = udp_socket(&sa);
        w = socket(AF_INET, SOCK_DGRAM, 0);
        SHOW(connect(w, (void *)&sa, sizeof(sa)));
        SHOW(write(w, "some", 4));
        show_bytes("datagram", b, read(u, b, sizeof(b)));
        close(u);
        close(w);
}

static bool can_have(size_t n)
{
        char *p = malloc(n);
        bool had = p != NULL;

        if (had)
                p[n - 1] = p[0] = 1;
        free(p);
        return had;
}

/* What is left of channels that are over is not the program's. */
void scene_data_limited(void)
{
        struct rlimit rl = {100 * MB, RLIM_INFINITY};
        struct sockaddr_in sa;
        int come[2], v[4], l;
        char b[16];

        pipe(come);
        fflush(stdout);
        for (int i = 0; i < 4; i++)
                if (fork() == 0)
                        _exit(come_and_write(come[0]));
        setrlimit(RLIMIT_DATA, &rl);
        l = listener(&sa);
        fcntl(l, F_SETFL, O_NONBLOCK);
        for (int i = 0; i < 4; i++) {
                write(come[1], &sa, sizeof(sa));
                while ((v[i] = accept(l, NULL, NULL)) < 0)
                        usleep(1000);
                show_bytes("read", b, recv(v[i], b, 5, MSG_WAITALL));
        }
        for (int i = 0; i < 4; i++) {
                show_bytes("read", b, read(v[i], b, 5));
                close(v[i]);
                wait(NULL);
        }
        for (int i = 0; i < 20; i++) { /* they are known to be dead, and this process sees it */
                usleep(50000);
                accept(l, NULL, NULL);
        }
        SHOW(can_have(40 * MB));
        exit(0);
}

/* A limit from before the first socket: what there is room for it is for, and the rest the
 * kernel does. */
void scene_space_limited(void)
{
        static const unsigned mb[] = {100, 200, 400, 500, 700, 1000, 2000, 4000, 16000};
        int status;

        for (size_t i = 0; i < ARRAY_LEN(mb); i++) {
                printf("  %u MB\n", mb[i]);
                fflush(stdout);
                if (fork() == 0) {
                        limit_softly(RLIMIT_AS, mb[i] * MB);
                        talk();
                        SHOW(can_have(40 * MB));
                        talk();
                        exit(0);
                }
                wait(&status);
                SHOW(status);
        }
}

/* A limit that comes when there are connections: it is about what the program has itself. */
void scene_space_limited_later(void)
{
        struct rlimit rl, none;
        int v[2], status;
        char b[16];

        tcp_pair(v);
        getrlimit(RLIMIT_AS, &none);
        for (unsigned mb = 100; mb <= 400; mb *= 2) {
                rl = (struct rlimit){mb * MB, none.rlim_max};
                SHOW(setrlimit(RLIMIT_AS, &rl));
                SHOW(getrlimit(RLIMIT_AS, &rl));
                SHOW(rl.rlim_cur / MB);
                SHOW(rl.rlim_max == none.rlim_max);
                SHOW(can_have(40 * MB));
                SHOW(can_have(3000 * MB));
                write(v[0], "some", 4);
                show_bytes("read", b, read(v[1], b, sizeof(b)));
                talk();
        }
        rl = (struct rlimit){300 * MB, 200 * MB};
        SHOW(setrlimit(RLIMIT_AS, &rl));
        SHOW(prlimit(0, RLIMIT_AS, NULL, &rl));
        SHOW(rl.rlim_cur / MB);
        close2(v);
        rl.rlim_cur = 50 * MB;
        SHOW(prlimit(getpid(), RLIMIT_AS, &rl, &none));
        SHOW(none.rlim_cur / MB);
        fflush(stdout);
        if (fork() == 0)
                _exit(execl("/bin/sh", "sh", "-c", "ulimit -v", NULL));
        wait(&status);
        SHOW(status);
        rl.rlim_cur = rl.rlim_max = 400 * MB;
        SHOW(setrlimit(RLIMIT_AS, &rl));
        rl.rlim_max = 500 * MB;
        if (geteuid() != 0)
                SHOW(setrlimit(RLIMIT_AS, &rl));
        SHOW(getrlimit(RLIMIT_AS, &rl));
        SHOW(rl.rlim_max / MB);
        talk();
        SHOW(execl("/does/not/exist", "x", NULL));
        SHOW(can_have(100 * MB));
        SHOW(setrlimit(RLIMIT_AS, (void *)8) == 0 || errno == EFAULT);
}
