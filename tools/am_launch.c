/* See am_launch.h. */
#include "tools/am_launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/command.h"

/* ---- starting ---- */

static _Noreturn void become_child(const struct launch *l, uint32_t i, pid_t parent,
                                   const int fd[3], void (*become)(const struct launch *, uint32_t))
{
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(1);
        if (fd[0] >= 0)
                dup2(fd[0], STDIN_FILENO);
        dup2(fd[1], STDOUT_FILENO);
        dup2(fd[2], STDERR_FILENO);
        sigprocmask(SIG_SETMASK, &l->before, NULL);
        become(l, i);
        _exit(127);
}

int launch_child(struct launch *l, uint32_t i, bool with_input,
                 void (*become)(const struct launch *, uint32_t))
{
        struct child *c = &l->child[i];
        int in[2] = {-1, -1}, out[2], err[2];
        pid_t parent = getpid();

        if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 ||
            (with_input && pipe2(in, O_CLOEXEC) != 0))
                return -errno;
        c->pid = fork();
        if (c->pid < 0)
                return -errno;
        if (c->pid == 0)
                become_child(l, i, parent, (int[]){in[0], out[1], err[1]}, become);
        close(out[1]);
        close(err[1]);
        if (with_input)
                close(in[0]);
        c->out = (struct stream){.fd = out[0], .to = stdout};
        c->err = (struct stream){.fd = err[0], .to = stderr};
        c->in = in[1];
        l->left++;
        return 0;
}

/* ---- output ---- */

static void print_line(const struct launch *l, struct stream *s, uint32_t child, size_t len)
{
        if (l->label && l->host == NULL)
                fprintf(s->to, "[%u] ", l->first + child);
        fwrite(s->line, 1, len, s->to);
        if (len == 0 || s->line[len - 1] != '\n')
                fputc('\n', s->to);
        s->len -= len;
        memmove(s->line, s->line + len, s->len);
}

static void print_lines(const struct launch *l, struct stream *s, uint32_t child)
{
        char *end;

        while ((end = memchr(s->line, '\n', s->len)) != NULL)
                print_line(l, s, child, (size_t)(end - s->line) + 1);
        if (s->len == sizeof s->line || (s->fd < 0 && s->len > 0))
                print_line(l, s, child, s->len);
        fflush(s->to);
}

static void pass_on(const struct launch *l, struct stream *s, uint32_t child)
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
        print_lines(l, s, child);
}

/* ---- ends ---- */

/* Hosts are asked by the end of their input: a signal would end what carries it, and not
 * the ranks. */
static void ask_to_end(const struct launch *l)
{
        for (uint32_t i = 0; i < l->n; i++) {
                struct child *c = &l->child[i];
                if (c->in >= 0)
                        close(c->in);
                else if (c->pid > 0)
                        kill(c->pid, SIGTERM);
                c->in = -1;
        }
}

static void kill_all(const struct launch *l)
{
        for (uint32_t i = 0; i < l->n; i++)
                if (l->child[i].pid > 0)
                        kill(l->child[i].pid, SIGKILL);
}

/* Of several that ended badly together, one that was killed is the cause, and the others
 * lost it. */
static void ended(struct launch *l, uint32_t child, int status)
{
        l->child[child].pid = 0;
        l->left--;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return;
        if (l->cause_status != 0 && (WIFSIGNALED(l->cause_status) || !WIFSIGNALED(status)))
                return;
        l->cause = child;
        l->cause_status = status;
}

/* What starts a host's ranks has told the reason itself, unless it could not. */
static void tell_cause(const struct launch *l)
{
        char who[300];

        if (l->host != NULL && WIFEXITED(l->cause_status) &&
            WEXITSTATUS(l->cause_status) == AM_EXIT_TOLD)
                return;
        if (l->host != NULL)
                snprintf(who, sizeof who, "the start of ranks on %s", l->host[l->cause]);
        else
                snprintf(who, sizeof who, "rank %u", l->first + l->cause);
        if (WIFSIGNALED(l->cause_status))
                command_fail("am: %s was killed: %s; ending the job", who,
                             strsignal(WTERMSIG(l->cause_status)));
        else
                command_fail("am: %s ended with status %d; ending the job", who,
                             WEXITSTATUS(l->cause_status));
}

static void end_job(struct launch *l)
{
        l->status = EXIT_NOTHING;
        ask_to_end(l);
}

static void reap(struct launch *l)
{
        int status;
        pid_t pid;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
                for (uint32_t i = 0; i < l->n; i++)
                        if (l->child[i].pid == pid)
                                ended(l, i, status);
        if (l->cause_status != 0 && l->status == EXIT_DONE) {
                tell_cause(l);
                end_job(l);
        }
}

/* ---- watching ---- */

/* Two for each child, then the signals, then who started us. */
static nfds_t fill_poll(const struct launch *l, struct pollfd *p, int signals)
{
        nfds_t n = 0;

        for (uint32_t i = 0; i < l->n; i++) {
                p[n++] = (struct pollfd){.fd = l->child[i].out.fd, .events = POLLIN};
                p[n++] = (struct pollfd){.fd = l->child[i].err.fd, .events = POLLIN};
        }
        p[n++] = (struct pollfd){.fd = signals, .events = POLLIN};
        p[n++] = (struct pollfd){.fd = l->part && l->status == EXIT_DONE ? STDIN_FILENO : -1,
                                 .events = POLLIN};
        return n;
}

static bool output_left(const struct launch *l)
{
        for (uint32_t i = 0; i < l->n; i++)
                if (l->child[i].out.fd >= 0 || l->child[i].err.fd >= 0)
                        return true;
        return false;
}

/* Returns true if the process that started us has gone. */
static bool orphaned(const struct pollfd *in)
{
        char byte;

        return in->revents != 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

static void take(struct launch *l, const struct pollfd *p, int signals)
{
        struct signalfd_siginfo info;

        for (uint32_t i = 0; i < l->n; i++) {
                if (p[2 * i].fd >= 0 && p[2 * i].revents != 0)
                        pass_on(l, &l->child[i].out, i);
                if (p[2 * i + 1].fd >= 0 && p[2 * i + 1].revents != 0)
                        pass_on(l, &l->child[i].err, i);
        }
        while (read(signals, &info, sizeof info) > 0)
                ;
        reap(l);
        if (l->status == EXIT_DONE && orphaned(&p[2 * l->n + 1]))
                end_job(l);
}

/* Until all children have ended, and what they printed is passed on: a child of a rank may hold its
 * streams, and is not waited for. Hosts have longer: they wait for their ranks. */
static void watch(struct launch *l, int signals)
{
        struct pollfd p[2 * AM_JOB_MOST + 2];
        int grace = l->host != NULL ? 3 * AM_GRACE_MS : AM_GRACE_MS;

        while (l->left > 0 || output_left(l)) {
                int n = poll(p, fill_poll(l, p, signals),
                             l->left == 0             ? 0
                             : l->status != EXIT_DONE ? grace
                                                      : -1);
                if (n == 0 && l->left == 0)
                        return;
                if (n == 0)
                        kill_all(l);
                else if (n > 0)
                        take(l, p, signals);
        }
}

int launch_all(struct launch *l, int (*start)(struct launch *))
{
        sigset_t child;
        int signals, err;

        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);
        sigprocmask(SIG_BLOCK, &child, &l->before);
        signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
        l->child = calloc(l->n, sizeof *l->child);
        if (signals < 0 || l->child == NULL)
                return command_fail("am: %s", strerror(errno));
        for (uint32_t i = 0; i < l->n; i++)
                l->child[i].out.fd = l->child[i].err.fd = l->child[i].in = -1;
        err = start(l);
        if (err != 0) {
                l->status = command_fail("am: a rank cannot be started: %s", strerror(-err));
                kill_all(l);
        }
        watch(l, signals);
        free(l->child);
        close(signals);
        return l->status;
}
