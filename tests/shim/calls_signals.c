/*
 * shim_calls, signals.
 */
#include "tests/shim/calls.h"

static volatile sig_atomic_t got;

void on_signal(int sig)
{
        got = sig;
}

void scene_sigpipe(void)
{
        int v[2];

        signal(SIGPIPE, on_signal);
        tcp_pair(v);
        shutdown(v[0], SHUT_WR);
        got = 0;
        SHOW(write(v[0], "x", 1));
        SHOW(got == SIGPIPE);
        got = 0;
        SHOW(send(v[0], "x", 1, MSG_NOSIGNAL));
        SHOW(got);
        signal(SIGPIPE, SIG_DFL);
        close2(v);
}

static volatile sig_atomic_t order[8], norder;

static void note(int sig, siginfo_t *info, void *uc)
{
        (void)info;
        (void)uc;
        if (norder < 8)
                order[norder++] = sig;
}

/* Whether a process sleeps, and goes on sleeping: /proc/<pid>/stat, proc(5). */
static bool sleeps(pid_t pid)
{
        char path[32], line[512];

        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        for (int i = 0; i < 3; i++) {
                int fd = open(path, O_RDONLY);
                ssize_t n = read(fd, line, sizeof(line) - 1);
                char *after;

                close(fd);
                line[n > 0 ? n : 0] = 0;
                after = strrchr(line, ')');
                if (!after || after[1] == 0 || after[2] != 'S')
                        return false;
                usleep(2000);
        }
        return true;
}

void until_asleep(pid_t pid)
{
        while (!sleeps(pid))
                usleep(1000);
}

static void alarm_when_asleep(pid_t pid)
{
        until_asleep(pid);
        kill(pid, SIGALRM);
}

/* A process that sends SIGALRM when the one who asks sleeps in its next call, however long it takes
 * to get there. It is there before there are sockets. */
static int alarmer = -1;

void start_alarmer(void)
{
        pid_t us = getpid();
        int p[2];
        char c;

        pipe(p);
        if (fork() == 0) {
                close(p[1]);
                while (read(p[0], &c, 1) == 1)
                        alarm_when_asleep(us);
                _exit(0);
        }
        close(p[0]);
        alarmer = p[1];
}

void alarm_then(void)
{
        write(alarmer, "", 1);
}

void stop_alarmer(void)
{
        close(alarmer);
        wait(NULL);
}

static sigjmp_buf jump;

static void jump_out(int sig)
{
        siglongjmp(jump, sig);
}

void scene_signals(void)
{
        struct sigaction sa = {.sa_sigaction = note, .sa_flags = SA_SIGINFO}, old;
        struct timeval tv = {60, 0};
        struct pollfd pf;
        char b[8];
        int v[2];

        start_alarmer();
        tcp_pair(v);
        SHOW(sigaction(SIGALRM, &sa, NULL));
        SHOW(sigaction(SIGALRM, NULL, &old));
        SHOW(old.sa_sigaction == note && (old.sa_flags & ~RESTORER) == SA_SIGINFO);
        SHOW(__sigaction(SIGALRM, &sa, &old));
        SHOW(old.sa_sigaction == note);
        alarm_then();
        SHOW(read(v[1], b, sizeof(b)));
        SHOW(norder);
        pf = (struct pollfd){.fd = v[1], .events = POLLIN};
        alarm_then();
        SHOW(poll(&pf, 1, 60000));
        sa.sa_flags = SA_SIGINFO | SA_RESTART;
        sigaction(SIGALRM, &sa, NULL);
        alarm_then();
        SHOW(poll(&pf, 1, 60000));
        setsockopt(v[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        alarm_then();
        SHOW(read(v[1], b, sizeof(b)));
        tv.tv_sec = 0;
        setsockopt(v[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        if (fork() == 0) {
                alarm_when_asleep(getppid());
                while (!sleeps(getppid()))
                        ;
                write(v[0], "late", 4);
                _exit(0);
        }
        SHOW(read(v[1], b, sizeof(b)));
        SHOW(norder);
        wait(NULL);
        signal(SIGALRM, jump_out);
        for (volatile int i = 0; i < 3; i++) {
                int sig = sigsetjmp(jump, 1);

                if (sig == 0) {
                        alarm_then();
                        read(v[1], b, sizeof(b));
                }
                printf("  jumped %d\n", sig == SIGALRM);
        }
        SHOW(write(v[0], "after", 5));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        sa = (struct sigaction){.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
        sigaction(SIGALRM, &sa, NULL);
        alarm_then();
        SHOW(read(v[1], b, sizeof(b)));
        sigaction(SIGALRM, NULL, &old);
        SHOW(old.sa_handler == SIG_DFL);
        stop_alarmer();
        close2(v);
}

/* Handlers that block each other's signals, and whose calls are the library's, too: none begins
 * before another has ended, also where several were put off. */
static volatile sig_atomic_t nhandlers, nested;
static int used_by_handlers;

static void one_at_a_time(int sig)
{
        char b;

        nested += nhandlers++;
        recv(used_by_handlers, &b, 1, MSG_DONTWAIT | MSG_PEEK);
        if (nhandlers != 1)
                nested++;
        nhandlers--;
}

void scene_handlers_in_turn(void)
{
        struct sigaction sa = {.sa_handler = one_at_a_time};
        struct pollfd pf = {.events = POLLIN};
        sigset_t now;
        pid_t pid;
        int v[2];

        tcp_pair(v);
        used_by_handlers = pf.fd = v[1];
        sigfillset(&sa.sa_mask);
        sigaction(SIGUSR1, &sa, NULL);
        sigaction(SIGUSR2, &sa, NULL);
        sigaction(SIGCHLD, &sa, NULL);
        fflush(stdout);
        pid = fork();
        if (pid == 0) {
                for (int i = 0; i < 30000; i++)
                        kill(getppid(), i & 1 ? SIGUSR1 : SIGUSR2);
                _exit(0);
        }
        while (waitpid(pid, NULL, WNOHANG) == 0)
                poll(&pf, 1, 1);
        SHOW(nested);
        sigprocmask(SIG_SETMASK, NULL, &now);
        SHOW(sigismember(&now, SIGUSR1) + sigismember(&now, SIGALRM));
        signal(SIGUSR1, SIG_DFL);
        signal(SIGUSR2, SIG_DFL);
        signal(SIGCHLD, SIG_DFL);
        close2(v);
}

void scene_signal_calls(void)
{
        sigset_t mask, empty;
        struct timespec ts = {5, 0};
        struct sigaction old;
        struct pollfd pf;
        int v[2];

        tcp_pair(v);
        SHOW(signal(SIGUSR1, on_signal) == SIG_DFL);
        SHOW(bsd_signal(SIGUSR1, on_signal) == on_signal);
        SHOW(ssignal(SIGUSR1, on_signal) == on_signal);
        SHOW(sysv_signal(SIGUSR1, on_signal) == on_signal);
        sigaction(SIGUSR1, NULL, &old);
        SHOW(((unsigned)old.sa_flags & (SA_RESETHAND | SA_NODEFER)) == (SA_RESETHAND | SA_NODEFER));
        SHOW(signal(SIGUSR1, SIG_IGN) == on_signal);
        SHOW(signal(SIGUSR1, on_signal) == SIG_IGN);
        SHOW(signal(SIGKILL, on_signal) == SIG_ERR);
        SHOW(signal(1234, on_signal) == SIG_ERR);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        SHOW(siginterrupt(SIGUSR1, 1));
        sigaction(SIGUSR1, NULL, &old);
        SHOW(old.sa_flags & SA_RESTART);
        SHOW(siginterrupt(SIGUSR1, 0));
        SHOW(sigset(SIGUSR1, SIG_HOLD) == on_signal);
        SHOW(sigset(SIGUSR1, on_signal) == SIG_HOLD);
        SHOW(sigignore(SIGUSR1));
#pragma GCC diagnostic pop
        SHOW(signal(SIGUSR1, on_signal) == SIG_IGN);
        sigemptyset(&empty);
        sigemptyset(&mask);
        sigaddset(&mask, SIGUSR1);
        sigprocmask(SIG_BLOCK, &mask, NULL);
        got = 0;
        raise(SIGUSR1);
        pf = (struct pollfd){.fd = v[1], .events = POLLIN};
        SHOW(poll(&pf, 1, 10));
        SHOW(got);
        SHOW(ppoll(&pf, 1, &ts, &empty));
        SHOW(got == SIGUSR1);
        sigprocmask(SIG_BLOCK, NULL, &mask);
        SHOW(sigismember(&mask, SIGUSR1));
        got = 0;
        write(v[0], "x", 1);
        wait_readable(v[1]);
        raise(SIGUSR1);
        SHOW(ppoll(&pf, 1, &ts, &empty));
        sigemptyset(&mask);
        sigprocmask(SIG_SETMASK, &mask, NULL);
        SHOW(got == SIGUSR1);
        signal(SIGUSR1, SIG_DFL);
        close2(v);
}

/* A signal comes at each moment of a fork: the child blocks none for that. */
void scene_signals_at_fork(void)
{
        int v[2], blocked = 0, status;

        tcp_pair(v);
        signal(SIGALRM, on_signal);
        for (int i = 0; i < 300; i++) {
                const struct itimerval once = {.it_value = {.tv_usec = 10 + i * 2}};
                sigset_t mask;
                pid_t pid;

                setitimer(ITIMER_REAL, &once, NULL);
                pid = fork();
                if (pid == 0) {
                        sigprocmask(SIG_BLOCK, NULL, &mask);
                        _exit(!sigisemptyset(&mask));
                }
                while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                        ;
                blocked += status != 0;
        }
        SHOW(blocked);
        SHOW(got == SIGALRM);
        signal(SIGALRM, SIG_DFL);
        close2(v);
}
