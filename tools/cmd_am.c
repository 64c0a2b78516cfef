/*
 * unet am run: starts the ranks of a job of active messages (<unet/am.h>) on this host, gives each its number and a way to
 * every other, passes their output on by lines, and ends the job with its reason when a rank dies.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "am/am_job.h"
#include "base/base.h"
#include "tools/command.h"

#define LINE_BYTES 4096u
#define GRACE_MS   2000                 /* between asking ranks to end and ending them */

struct stream {                         /* of a rank */
        int fd;                         /* -1: at its end */
        FILE *to;
        size_t len;
        char line[LINE_BYTES];
};

struct rank {
        pid_t pid;                      /* 0: it has ended */
        struct stream out, err;
};

struct launch {
        uint32_t ranks;
        bool through_unetd, label;
        uint32_t job;
        char **program;
        int (*sock)[AM_JOB_MOST];       /* [a][b]: a's end of the way to b */
        struct rank *rank;
        uint32_t left;
        int status;                     /* EXIT_DONE, until a rank ends otherwise */
        uint32_t cause;                 /* that rank, and how it ended */
        int cause_status;
        sigset_t before;
};

/* ---- a rank's process ---- */

static void put_number(const char *name, uint32_t n)
{
        char text[16];

        snprintf(text, sizeof text, "%u", n);
        setenv(name, text, 1);
}

static void hand_sockets(const struct launch *l, uint32_t me)
{
        char text[AM_JOB_MOST * 12], *at = text;

        for (uint32_t i = 0; i < l->ranks; i++) {
                int fd = i == me ? -1 : l->sock[me][i];
                at += sprintf(at, i + 1 < l->ranks ? "%d," : "%d", fd);
                if (fd >= 0)
                        fcntl(fd, F_SETFD, 0);
        }
        setenv(AM_JOB_SOCKETS, text, 1);
}

static void hand_environment(const struct launch *l, uint32_t me)
{
        char name[48];

        put_number(AM_JOB_RANK, me);
        put_number(AM_JOB_RANKS, l->ranks);
        put_number(AM_JOB_NUMBER, l->job);
        unsetenv(AM_JOB_SOCKETS);
        unsetenv(AM_JOB_NAME);
        if (l->through_unetd) {
                snprintf(name, sizeof name, "am-%d-%x", (int)getppid(), l->job);
                setenv(AM_JOB_NAME, name, 1);
        } else {
                hand_sockets(l, me);
        }
}

static void become_rank(const struct launch *l, uint32_t me, pid_t parent, const int out[2], const int err[2])
{
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(1);
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        sigprocmask(SIG_SETMASK, &l->before, NULL);
        hand_environment(l, me);
        execvp(l->program[0], l->program);
        fprintf(stderr, "%s: %s\n", l->program[0], strerror(errno));
        _exit(127);
}

static int start_rank(struct launch *l, uint32_t me)
{
        struct rank *r = &l->rank[me];
        pid_t parent = getpid();
        int out[2], err[2];

        if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
                return -errno;
        r->pid = fork();
        if (r->pid < 0)
                return -errno;
        if (r->pid == 0)
                become_rank(l, me, parent, out, err);
        close(out[1]);
        close(err[1]);
        r->out = (struct stream){.fd = out[0], .to = stdout};
        r->err = (struct stream){.fd = err[0], .to = stderr};
        l->left++;
        return 0;
}

/* ---- the ways between ranks ---- */

static int make_sockets(struct launch *l)
{
        l->sock = calloc(l->ranks, sizeof *l->sock);
        if (l->sock == NULL)
                return -ENOMEM;
        for (uint32_t a = 0; a < l->ranks && !l->through_unetd; a++)
                for (uint32_t b = a + 1; b < l->ranks; b++) {
                        int s[2];
                        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s) != 0)
                                return -errno;
                        l->sock[a][b] = s[0];
                        l->sock[b][a] = s[1];
                }
        return 0;
}

/* The ranks have them now: a rank that dies hangs up. */
static void close_sockets(struct launch *l)
{
        for (uint32_t a = 0; a < l->ranks && !l->through_unetd; a++)
                for (uint32_t b = 0; b < l->ranks; b++)
                        if (a != b)
                                close(l->sock[a][b]);
        free(l->sock);
}

/* ---- output ---- */

static void print_line(const struct launch *l, struct stream *s, uint32_t rank, size_t len)
{
        if (l->label)
                fprintf(s->to, "[%u] ", rank);
        fwrite(s->line, 1, len, s->to);
        if (len == 0 || s->line[len - 1] != '\n')
                fputc('\n', s->to);
        s->len -= len;
        memmove(s->line, s->line + len, s->len);
}

static void print_lines(const struct launch *l, struct stream *s, uint32_t rank)
{
        char *end;

        while ((end = memchr(s->line, '\n', s->len)) != NULL)
                print_line(l, s, rank, (size_t)(end - s->line) + 1);
        if (s->len == sizeof s->line || (s->fd < 0 && s->len > 0))
                print_line(l, s, rank, s->len);
        fflush(s->to);
}

static void pass_on(const struct launch *l, struct stream *s, uint32_t rank)
{
        ssize_t n = read(s->fd, s->line + s->len, sizeof s->line - s->len);

        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return;
        if (n > 0) {
                s->len += (size_t)n;
        } else {
                close(s->fd);
                s->fd = -1;
        }
        print_lines(l, s, rank);
}

/* ---- ends ---- */

static void kill_all(const struct launch *l, int sig)
{
        for (uint32_t i = 0; i < l->ranks; i++)
                if (l->rank[i].pid > 0)
                        kill(l->rank[i].pid, sig);
}

/* Of several that ended badly together, one that was killed is the cause, and the others lost it. */
static void ended(struct launch *l, uint32_t rank, int status)
{
        l->rank[rank].pid = 0;
        l->left--;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return;
        if (l->cause_status != 0 && (WIFSIGNALED(l->cause_status) || !WIFSIGNALED(status)))
                return;
        l->cause = rank;
        l->cause_status = status;
}

static void end_job(struct launch *l)
{
        l->status = EXIT_NOTHING;
        if (WIFSIGNALED(l->cause_status))
                command_fail("am: rank %u was killed: %s; ending the job", l->cause, strsignal(WTERMSIG(l->cause_status)));
        else
                command_fail("am: rank %u ended with status %d; ending the job", l->cause, WEXITSTATUS(l->cause_status));
        kill_all(l, SIGTERM);
}

static void reap(struct launch *l)
{
        int status;
        pid_t pid;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
                for (uint32_t i = 0; i < l->ranks; i++)
                        if (l->rank[i].pid == pid)
                                ended(l, i, status);
        if (l->cause_status != 0 && l->status == EXIT_DONE)
                end_job(l);
}

static nfds_t fill_poll(const struct launch *l, struct pollfd *p, int signals)
{
        nfds_t n = 0;

        for (uint32_t i = 0; i < l->ranks; i++) {
                p[n++] = (struct pollfd){.fd = l->rank[i].out.fd, .events = POLLIN};
                p[n++] = (struct pollfd){.fd = l->rank[i].err.fd, .events = POLLIN};
        }
        p[n++] = (struct pollfd){.fd = signals, .events = POLLIN};
        return n;
}

static bool output_left(const struct launch *l)
{
        for (uint32_t i = 0; i < l->ranks; i++)
                if (l->rank[i].out.fd >= 0 || l->rank[i].err.fd >= 0)
                        return true;
        return false;
}

/* Until all ranks have ended, and what they printed is passed on: a child of a rank may hold its streams, and is not waited for. */
static void watch(struct launch *l, int signals)
{
        struct pollfd p[2 * AM_JOB_MOST + 1];
        struct signalfd_siginfo info;

        while (l->left > 0 || output_left(l)) {
                int n = poll(p, fill_poll(l, p, signals), l->left == 0 ? 0 : l->status != EXIT_DONE ? GRACE_MS : -1);
                if (n == 0 && l->left == 0)
                        return;
                if (n == 0)
                        kill_all(l, SIGKILL);
                for (uint32_t i = 0; i < l->ranks && n > 0; i++) {
                        if (p[2 * i].fd >= 0 && p[2 * i].revents != 0)
                                pass_on(l, &l->rank[i].out, i);
                        if (p[2 * i + 1].fd >= 0 && p[2 * i + 1].revents != 0)
                                pass_on(l, &l->rank[i].err, i);
                }
                while (read(signals, &info, sizeof info) > 0)
                        ;
                reap(l);
        }
}

static int launch(struct launch *l)
{
        sigset_t child;
        int signals, err;

        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);
        sigprocmask(SIG_BLOCK, &child, &l->before);
        signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
        l->rank = calloc(l->ranks, sizeof *l->rank);
        if (signals < 0 || l->rank == NULL)
                return command_fail("am: %s", strerror(errno));
        err = make_sockets(l);
        for (uint32_t i = 0; i < l->ranks; i++)
                l->rank[i].out.fd = l->rank[i].err.fd = -1;
        for (uint32_t i = 0; i < l->ranks && err == 0; i++)
                err = start_rank(l, i);
        close_sockets(l);
        if (err != 0) {
                l->status = command_fail("am: a rank cannot be started: %s", strerror(-err));
                kill_all(l, SIGKILL);
        }
        watch(l, signals);
        free(l->rank);
        close(signals);
        return l->status;
}

static int run_am(const struct command *cmd, int argc, char **argv)
{
        static const struct option opts[] = {
                {"ranks", required_argument, NULL, 'n'}, {"unetd", no_argument, NULL, 'u'},
                {"label", no_argument, NULL, 'l'},       {"help", no_argument, NULL, 'h'},
                {NULL, 0, NULL, 0},
        };
        struct launch l = {.ranks = 1};
        int c;

        if (argc > 1 && strcmp(argv[1], "run") == 0) {
                argc--;
                argv++;
        } else if (argc < 2 || strcmp(argv[1], "--help") != 0) {
                return command_usage(cmd, "say what: run");
        }
        while ((c = getopt_long(argc, argv, "+n:ulh", opts, NULL)) != -1) {
                switch (c) {
                case 'n':
                        l.ranks = (uint32_t)strtoul(optarg, NULL, 10);
                        break;
                case 'u':
                        l.through_unetd = true;
                        break;
                case 'l':
                        l.label = true;
                        break;
                case 'h':
                        command_help(cmd);
                        return EXIT_DONE;
                default:
                        return command_usage(cmd, "try --help");
                }
        }
        if (l.ranks < 1 || l.ranks > AM_JOB_MOST || optind == argc)
                return command_usage(cmd, l.ranks < 1 || l.ranks > AM_JOB_MOST ? "ranks: 1 to 128" : "no program");
        l.program = argv + optind;
        if (getrandom(&l.job, sizeof l.job, 0) != sizeof l.job || l.job == UINT32_MAX)
                l.job = (uint32_t)getpid();
        return launch(&l);
}

const struct command cmd_am = {
        .name = "am",
        .synopsis = "run [-n N] [--unetd] [--label] PROGRAM [ARGUMENT...]",
        .summary = "Starts the ranks of a job of active messages on this host",
        .help = "  -n, --ranks N  so many ranks, at most 128 (default 1)\n"
                "  -u, --unetd    they talk through unetd, not by shared memory of each pair\n"
                "  -l, --label    each line of output begins with its rank\n"
                "  --help         this\n"
                "\n"
                "A rank that ends with a status other than 0, or is killed, ends the job.\n",
        .run = run_am,
};
