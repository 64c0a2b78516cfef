/*
 * Starting keepers. A unetd that serves several users does not fork for it: the child would have copies of
 * what users passed, and its exec would wait for the last close of them (discard.c). A process forked before
 * the first user came has none; it starts keepers when told.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unetd/daemon/daemon.h"

#ifndef UNET_LIBEXECDIR
#define UNET_LIBEXECDIR "/usr/local/libexec/unet"
#endif

#define KEEPER_FD 3
#define KEEPER_PINNED (256u << 20)      /* bytes that it may pin for queue pairs */

static int spawner = -1;                /* the connection to that process */

/* unet-keeper lies beside unetd; where a build tree or an administrator says; or where it was installed. */
static void exec_keeper(char *const argv[], char *const env[])
{
        const char *dir = secure_getenv("UNET_LIBEXEC");
        char path[4096], self[3000];
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

        if (dir && *dir) {
                snprintf(path, sizeof path, "%s/unet-keeper", dir);
                execve(path, argv, env);
        }
        if (n > 0) {
                self[n] = 0;
                *strrchr(self, '/') = 0;
                snprintf(path, sizeof path, "%s/unet-keeper", self);
                execve(path, argv, env);
        }
        execve(UNET_LIBEXECDIR "/unet-keeper", argv, env);
}

static bool become_user(uint32_t uid, uint32_t gid)
{
        if (geteuid() == uid)
                return true;
        return setgroups(1, &gid) == 0 && setresgid(gid, gid, gid) == 0 && setresuid(uid, uid, uid) == 0;
}

/* What root lifted for a unetd of all users is not a user's: he might trace his keeper before it forbids that. It may have as many
 * descriptors as who started unetd. */
static void limit_keeper(void)
{
        struct rlimit rl;

        for (int what = 0; what < RLIM_NLIMITS; what++) {
                rl = unetd.started_with[what];
                if (what == RLIMIT_NOFILE)
                        rl.rlim_cur = rl.rlim_max;
                if (what == RLIMIT_MEMLOCK && rl.rlim_max < KEEPER_PINNED)
                        rl = (struct rlimit){KEEPER_PINNED, KEEPER_PINNED};
                setrlimit(what, &rl);
        }
}

/* A user's process must not have the terminal of the root who started unetd. */
static bool leave_terminal(void)
{
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        return null >= 0 && dup2(null, 0) >= 0 && dup2(null, 1) >= 0 && dup2(null, 2) >= 0 && chdir("/") == 0;
}

__attribute__((noreturn)) static void keeper_child(uint32_t uid, uint32_t gid, int fd)
{
        char idle[16], domain[64], libexec[3100], config[4200];
        char *argv[] = {"unet-keeper", "--idle", idle, unetd.cfg.shared ? "--system" : NULL, NULL};
        char *env[] = {domain, libexec, NULL, NULL};
        const char *dir = secure_getenv("UNET_LIBEXEC"), *file = secure_getenv("UNET_CONFIG");
        sigset_t none;

        snprintf(idle, sizeof idle, "%d", unetd.cfg.idle_s);
        snprintf(domain, sizeof domain, "UNET_DOMAIN=%s", unetd.cfg.domain);
        snprintf(libexec, sizeof libexec, "UNET_LIBEXEC=%s", dir ? dir : "");
        if (file && snprintf(config, sizeof config, "UNET_CONFIG=%s", file) < (int)sizeof config)
                env[2] = config;        /* for the unetd that it starts when this one is no more */
        signal(SIGCHLD, SIG_DFL);
        signal(SIGPIPE, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        setsid();
        umask(022);
        if (unetd.cfg.shared)
                limit_keeper();
        if (!leave_terminal() || !become_user(uid, gid) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || dup2(fd, KEEPER_FD) < 0)
                _exit(126);
        if (fd == KEEPER_FD)
                fcntl(fd, F_SETFD, 0);
        close_range(KEEPER_FD + 1, ~0u, 0);
        exec_keeper(argv, env);
        _exit(127);
}

static int fork_keeper(uint32_t uid, uint32_t gid, int fd)
{
        int pid = fork();

        if (pid == 0)
                keeper_child(uid, gid, fd);
        return pid < 0 ? -errno : pid;
}

/* One request, one answer, for as long as unetd lives. */
__attribute__((noreturn)) static void spawner_run(int conn)
{
        struct wire_in in;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGCHLD, SIG_IGN);
        while (wire_recv(conn, &in, 0) == 0 && in.n == 1) {
                in.msg.stack.pid = fork_keeper(in.msg.stack.uid, in.msg.stack.slot, in.fds[0]);
                wire_in_close(&in);
                wire_send(conn, &in.msg, NULL, 0, 0);
        }
        _exit(0);
}

int spawn_init(void)
{
        int fd[2], pid;

        if (!unetd.cfg.shared)
                return 0;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) < 0)
                return -errno;
        pid = fork();
        if (pid == 0) {
                close(fd[0]);
                spawner_run(fd[1]);
        }
        close(fd[1]);
        spawner = fd[0];
        return pid < 0 ? -errno : 0;
}

int spawn_keeper(uint32_t uid, uint32_t gid, int fd)
{
        struct unetd_msg msg = {.type = UNETD_K_CLIENT, .stack = {.uid = uid, .slot = gid}};
        struct wire_in in;
        int r;

        if (!unetd.cfg.shared)
                return fork_keeper(uid, gid, fd);
        r = wire_send(spawner, &msg, &fd, 1, 0);
        if (r == 0)
                r = wire_recv(spawner, &in, 0);
        return r < 0 ? r : in.msg.stack.pid;
}
