/*
 * shim_calls, images that have no library: a listener that they inherit serves all the same.
 */
#include "tests/shim/calls.h"

#include <limits.h>

#define SCRIPT "/tmp/shim_script_XXXXXX"

enum start { BY_EXEC, BY_SEARCH, BY_NUMBER, BY_SCRIPT, BY_SHELL, BY_SPAWN, STARTS };

static char program[PATH_MAX], script[sizeof(SCRIPT)];

static void image(enum start how, char *const argv[])
{
        char path[PATH_MAX + 16];

        switch (how) {
        case BY_SEARCH:
                snprintf(path, sizeof(path), "/nowhere:%.*s",
                         (int)(strrchr(program, '/') - program), program);
                setenv("PATH", path, 1);
                execvp("shim_static", argv);
                break;
        case BY_NUMBER:
                fexecve(open(program, O_RDONLY | O_CLOEXEC), argv, environ);
                break;
        case BY_SHELL:
                execl("/bin/sh", "sh", "-c", "exec \"$@\"", "sh", program, argv[1], argv[2], NULL);
                break;
        default:
                execv(how == BY_SCRIPT ? script : program, argv);
        }
        _exit(1);
}

static pid_t start(enum start how, char *const argv[])
{
        pid_t pid = -1;

        fflush(stdout);
        if (how == BY_SPAWN)
                posix_spawn(&pid, program, NULL, NULL, argv, environ);
        else if ((pid = fork()) == 0)
                image(how, argv);
        return pid;
}

static void ask(const struct sockaddr_in *to)
{
        const struct timeval tv = {.tv_sec = 3};
        int c = socket(AF_INET, SOCK_STREAM, 0);
        char b[16];

        setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        SHOW(connect(c, (const void *)to, sizeof(*to)));
        SHOW(write(c, "echo", 4));
        show_bytes("came back", b, read(c, b, sizeof(b)));
        close(c);
}

static void serve_by(enum start how)
{
        struct sockaddr_in at;
        char num[2][16], b;
        char *const argv[] = {program, num[0], num[1], NULL};
        int l = listener(&at), ready[2], status = 0;
        pid_t pid;

        pipe(ready);
        snprintf(num[0], sizeof(num[0]), "%d", l);
        snprintf(num[1], sizeof(num[1]), "%d", ready[1]);
        printf("  start %d\n", how);
        pid = start(how, argv);
        close(ready[1]);
        SHOW(read(ready[0], &b, 1));
        ask(&at);
        kill(pid, SIGALRM); /* it may wait for nobody */
        waitpid(pid, &status, 0);
        close(ready[0]);
        close(l);
}

void scene_exec_static(void)
{
        int fd;

        snprintf(program, sizeof(program), "%.*s/shim_static", (int)(strrchr(self, '/') - self),
                 self);
        strcpy(script, SCRIPT);
        fd = mkstemp(script);
        dprintf(fd, "#! %s\n", program);
        fchmod(fd, 0700);
        close(fd);
        for (enum start how = 0; how < STARTS; how++)
                serve_by(how);
        unlink(script);
}
