/* Sockets that close on exec, and that the file actions of posix_spawn() copy for the child: it has
 * them under the number that they are copied to, which may be their own. */
#include "tests/shim/calls.h"

enum how { TO_ITSELF, TO_ANOTHER, BY_ANOTHER, TO_INPUT, HOWS };

static const int to[HOWS] = {-1, 77, 77, STDIN_FILENO};

/* It gives back what it reads. */
static pid_t spawned(int fd, enum how how)
{
        int as = how == TO_ITSELF ? fd : to[how];
        posix_spawn_file_actions_t fa;
        char num[12], *argv[] = {(char *)self, (char *)"--child", num, NULL};
        pid_t pid = -1;

        snprintf(num, sizeof(num), "%d", as);
        posix_spawn_file_actions_init(&fa);
        posix_spawn_file_actions_addopen(&fa, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
        if (how == BY_ANOTHER)
                posix_spawn_file_actions_adddup2(&fa, fd, 78);
        posix_spawn_file_actions_adddup2(&fa, how == BY_ANOTHER ? 78 : fd, as);
        if (how == BY_ANOTHER)
                posix_spawn_file_actions_addclose(&fa, 78);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fflush(stdout);
        if (how == TO_INPUT)
                SHOW(posix_spawnp(&pid, self, &fa, NULL, argv, environ));
        else
                SHOW(posix_spawn(&pid, self, &fa, NULL, argv, environ));
        posix_spawn_file_actions_destroy(&fa);
        close(fd);
        return pid;
}

static void answers(int fd, pid_t pid)
{
        SHOW(send(fd, "ping", 4, MSG_NOSIGNAL));
        wait_readable(fd);
        show_recv(fd, 10, 0);
        waitpid(pid, NULL, 0);
}

static void connection(enum how how, int side)
{
        int v[2];
        pid_t pid;

        tcp_pair(v);
        fcntl(v[!side], F_SETFD, FD_CLOEXEC);
        pid = spawned(v[side], how);
        answers(v[!side], pid);
        show_recv(v[!side], 10, 0);
        close(v[!side]);
}

/* Who had the listener last is gone. */
static void until_refused(const struct sockaddr_in *sa)
{
        int s, r;

        do {
                s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
                r = connect(s, (const void *)sa, sizeof(*sa));
                if (r < 0)
                        printf("  then: %s\n", name_of(r));
                close(s);
                usleep(20000);
        } while (r == 0);
}

static void listener_of_one(enum how how)
{
        struct sockaddr_in sa;
        pid_t pid = spawned(listener(&sa), how);
        int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        answers(s, pid);
        show_recv(s, 10, 0);
        close(s);
        until_refused(&sa);
}

static void datagrams(enum how how)
{
        struct sockaddr_in a, b;
        int u = udp_socket(&a), w = udp_socket(&b);
        pid_t pid;

        connect(u, (void *)&b, sizeof(b));
        connect(w, (void *)&a, sizeof(a));
        fcntl(w, F_SETFD, FD_CLOEXEC);
        pid = spawned(u, how);
        answers(w, pid);
        close(w);
}

/* The listener's number is another file's when it is copied. */
static void opened_anew(void)
{
        char *argv[] = {(char *)"true", NULL};
        posix_spawn_file_actions_t fa;
        struct sockaddr_in sa;
        int l = listener(&sa), s;
        pid_t pid = -1;

        fcntl(l, F_SETFD, FD_CLOEXEC);
        posix_spawn_file_actions_init(&fa);
        posix_spawn_file_actions_addopen(&fa, l, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&fa, l, 77);
        fflush(stdout);
        SHOW(posix_spawn(&pid, "/bin/true", &fa, NULL, argv, environ));
        posix_spawn_file_actions_destroy(&fa);
        close(l);
        s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        close(s);
        waitpid(pid, NULL, 0);
}

void scene_spawned_by_actions(void)
{
        for (enum how how = 0; how < HOWS; how++) {
                printf("  by %d\n", how);
                connection(how, 0);
                connection(how, 1);
                listener_of_one(how);
                datagrams(how);
        }
        opened_anew();
}
