/*
 * shim_calls, fork and clone: whose sockets are whose, and what both see of them.
 */
#include "tests/shim/calls.h"

void scene_fork(void)
{
        char b[16];
        int v[2];

        tcp_pair(v);
        fflush(stdout);
        if (fork() == 0) {
                close(v[1]);
                write(v[0], "child", 5);
                _exit(0);
        }
        wait(NULL);
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        SHOW(write(v[0], "parent", 6));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        if (_Fork() == 0) {
                write(v[0], "other", 5);
                _Exit(0);
        }
        wait(NULL);
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        if (vfork() == 0)
                _exit(7);
        wait(NULL);
        if (fork() == 0) {
                close(v[0]);
                exit(0);
        }
        close(v[0]);
        SHOW(read(v[1], b, sizeof(b)));
        wait(NULL);
        close(v[1]);
}

/* Servers that clear their environment (nginx, in its master): what their children have is the same
 * all the same, whether they are born after that or do it themselves. */
void scene_fork_cleared(void)
{
        for (int how = 0; how < 2; how++) {
                struct sockaddr_in sa;
                char b[16], **env = environ;
                int l = listener(&sa), c;

                fflush(stdout);
                if (how == 0)
                        environ = NULL;
                if (fork() == 0) {
                        if (how == 1)
                                clearenv();
                        for (int i = 0; i < 2; i++) {
                                c = accept(l, NULL, NULL);
                                write(c, "child", 5);
                                close(c);
                        }
                        _exit(0);
                }
                environ = env;
                close(l);
                for (int i = 0; i < 2; i++) {
                        c = socket(AF_INET, SOCK_STREAM, 0);
                        SHOW(connect(c, (void *)&sa, sizeof(sa)));
                        show_bytes("read", b, read(c, b, sizeof(b)));
                        SHOW(read(c, b, sizeof(b)));
                        close(c);
                }
                wait(NULL);
        }
}

/* One that clears its environment before its first socket has the unetd that it began with. */
void scene_cleared_first(void)
{
        char b[16];
        int v[2];

        clearenv();
        tcp_pair(v);
        SHOW(write(v[0], "some", 4));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        close2(v);
}

/* Children that are born while other threads are in the middle of calls: what these had locked is
 * free in the child. */
static _Atomic bool forks_over;

static void *sets_options(void *arg)
{
        struct sockaddr_in sa;
        int l = listener(&sa), size = 100000;

        while (!forks_over)
                setsockopt(l, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
        close(l);
        return NULL;
}

void scene_fork_beside_options(void)
{
        struct sockaddr_in sa;
        int l = listener(&sa), well = 0, status;
        pthread_t t[2];

        for (int i = 0; i < 2; i++)
                pthread_create(&t[i], NULL, sets_options, NULL);
        for (int i = 0; i < 200; i++) {
                pid_t pid = fork();
                if (pid == 0) {
                        alarm(LONG / 1000);
                        close(l);
                        _exit(0);
                }
                waitpid(pid, &status, 0);
                well += status == 0;
        }
        forks_over = true;
        for (int i = 0; i < 2; i++)
                pthread_join(t[i], NULL);
        SHOW(well);
        close(l);
}

/* O_NONBLOCK is of the open file: what one process sets the other has. */
void scene_nonblock_shared(void)
{
        struct sockaddr_in sa;
        int v[2], s[3];
        char b;

        tcp_pair(v);
        s[0] = v[1];
        s[1] = listener(&sa);
        s[2] = udp_socket(&sa);
        fflush(stdout);
        for (int i = 0; i < 3; i++) {
                int d = dup(s[i]);

                if (fork() == 0) {
                        if (i == 1)
                                ioctl(d, FIONBIO, &(int){1});
                        else
                                fcntl(s[i], F_SETFL, O_NONBLOCK);
                        exit(0);
                }
                wait(NULL);
                printf("  %d: %s\n", i,
                       fcntl(s[i], F_GETFL) & O_NONBLOCK ? "non-blocking" : "blocking");
                if (i == 1)
                        SHOW(accept(d, NULL, NULL));
                else
                        SHOW(recv(d, &b, 1, 0));
                close(d);
                close(s[i]);
        }
        close(v[0]);
}

static void to_and_fro(int v[2])
{
        char b[64] = {0};

        for (int i = 0; i < 20000; i++)
                if (write(v[0], b, sizeof b) != sizeof b || read(v[1], b, sizeof b) != sizeof b)
                        _exit(1);
}

static long fork_by_number(long nr)
{
        uint64_t args[8] = {[4] = SIGCHLD}; /* struct clone_args as it was at first */

        if (nr == SYS_clone3)
                return syscall(nr, args, sizeof(args));
        return nr == SYS_clone ? syscall(nr, SIGCHLD, 0, 0, 0, 0) : syscall(nr);
}

struct cloned {
        int *v, *w;
};

static int is_cloned(void *arg)
{
        struct cloned *c = arg;

        to_and_fro(c->w);
        close2(c->v);
        close2(c->w);
        return 3;
}

#define BY_LIBC (-1) /* its clone() */

static void cloned_by(long nr)
{
        static char stack[1 << 16] __attribute__((aligned(64)));
        int v[2], w[2], x[2], status;
        struct cloned c = {v, w};
        long pid;

        tcp_pair(v);
        tcp_pair(w);
        pid = nr == BY_LIBC ? clone(is_cloned, stack + sizeof(stack), SIGCHLD, &c)
                            : fork_by_number(nr);
        if (pid == 0)
                _exit(is_cloned(&c));
        to_and_fro(v);
        waitpid((pid_t)pid, &status, 0);
        SHOW(status);
        to_and_fro(v);
        tcp_pair(x);
        to_and_fro(x);
        to_and_fro(v);
        close(x[0]);
        close(x[1]);
        close(w[0]);
        SHOW(read(w[1], &status, 1));
        close(w[1]);
        close(v[0]);
        close(v[1]);
}

/* These by their numbers are forks of which libc does not hear (vsftpd makes its namespaces so):
 * parent and child are busy at once. */
void scene_cloned(void)
{
        cloned_by(SYS_clone);
        cloned_by(SYS_clone3);
#ifdef SYS_fork
        cloned_by(SYS_fork);
#endif
        cloned_by(BY_LIBC);
}

static void is_refused(const struct sockaddr_in *to)
{
        int c = socket(AF_INET, SOCK_STREAM, 0);

        printf("  from another one: %s\n",
               connect(c, (const void *)to, sizeof(*to)) == 0 ? "connected" : "not connected");
        close(c);
}

/* Its child and grandchild have the connection; what they make there is nobody's who is here. */
static void child_apart(long inner, int fd, const struct sockaddr_in *to, bool other_net)
{
        char b;
        long pid;

        if (other_net)
                is_refused(to);
        pid = inner < 0 ? fork() : syscall(SYS_clone, inner | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) {
                write(fd, "grandchild", 10);
                read(fd, &b, 1);
                _exit(0);
        }
        waitpid((pid_t)pid, NULL, 0);
        write(fd, "child", 5);
        read(fd, &b, 1);
        _exit(0);
}

static void apart_by(long outer, long inner)
{
        struct sockaddr_in to;
        int l = listener(&to), v[2];
        char b[16];
        long pid;

        printf("  %lx, then %lx\n", outer, inner);
        tcp_pair(v);
        fflush(stdout);
        pid = syscall(SYS_clone, outer | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) {
                close(v[0]);
                child_apart(inner, v[1], &to, outer & CLONE_NEWNET);
        }
        close(v[1]);
        for (int i = 0; i < 2; i++) {
                show_bytes("came", b, read(v[0], b, sizeof(b)));
                write(v[0], "x", 1);
        }
        show_bytes("end", b, read(v[0], b, sizeof(b)));
        SHOW(waitpid((pid_t)pid, NULL, 0) == pid);
        close(v[0]);
        close(l);
}

/* Children in namespaces of their own, and theirs. */
void scene_namespaces(void)
{
        static const long net = CLONE_NEWNET, pid = CLONE_NEWPID, user = CLONE_NEWUSER,
                          all = CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC;
        int v[2];

        tcp_pair(v);
        close2(v);
        if (unshare(CLONE_NEWUTS) < 0) {
                printf("  no namespace can be made here: %s\n", strerror(errno));
                return;
        }
        apart_by(net, -1);
        apart_by(net, net);
        apart_by(pid, -1);
        apart_by(pid, all);
        apart_by(all, -1);
        apart_by(all, all);
        apart_by(user, -1);
        apart_by(user | all, all);
        SHOW(syscall(SYS_clone, CLONE_NEWNET | CLONE_FS | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0));
}
