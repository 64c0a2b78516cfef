/*
 * shim_calls, programs that lock themselves in by Landlock: its abstract scope keeps threads and
 * processes of a stack from each other's names, and so does a network namespace of its own.
 */
#include "tests/shim/calls.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#define TALKERS 4

/* struct landlock_ruleset_attr, which the headers of an older kernel have shorter. */
struct ruleset {
        uint64_t files, net, scoped;
};
#define SCOPED_ABSTRACT 1ull /* Linux 6.12 */

struct port_rule {
        uint64_t allowed, port;
};
#define BIND_TCP    1ull /* Linux 6.7 */
#define CONNECT_TCP 2ull
#define RULE_PORT   2

/* What is handled is forbidden, but to connect to this port, if it is not 0. */
static void lock_in_but(struct ruleset handled, uint16_t port)
{
        struct port_rule rule = {CONNECT_TCP, port};
        int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0);

        if (rules >= 0 && port != 0)
                SHOW(syscall(SYS_landlock_add_rule, rules, RULE_PORT, &rule, 0));

        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (rules < 0)
                printf("  this kernel's Landlock has not what is to be tried: %s\n",
                       strerror(errno));
        else
                SHOW(syscall(SYS_landlock_restrict_self, rules, 0));
        close(rules);
}

static void lock_in(struct ruleset handled)
{
        lock_in_but(handled, 0);
}

static void connect_to(uint16_t port, int flags)
{
        struct sockaddr_in sa = loopback();
        int s = socket(AF_INET, SOCK_STREAM | flags, 0);

        sa.sin_port = port;
        if (flags != 0)
                SHOW(connect(s, (void *)&sa, sizeof(sa)) < 0 && errno == EACCES);
        else
                SHOW(connect(s, (void *)&sa, sizeof(sa)));
        close(s);
}

/* Nothing is left to ask the kernel by, before. */
static void connect_without_descriptors(uint16_t port)
{
        struct sockaddr_in sa = loopback();
        int s = socket(AF_INET, SOCK_STREAM, 0);
        struct rlimit own, few;

        sa.sin_port = port;
        getrlimit(RLIMIT_NOFILE, &own);
        few = own;
        few.rlim_cur = (rlim_t)s + 1;
        setrlimit(RLIMIT_NOFILE, &few);
        while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0)
                ;
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        setrlimit(RLIMIT_NOFILE, &own);
        close(s);
}

void scene_landlock_connects(void)
{
        struct sockaddr_in sa, other;

        listener(&sa);
        listener(&other);
        connect_to(sa.sin_port, 0);
        lock_in_but((struct ruleset){.net = CONNECT_TCP}, ntohs(other.sin_port));
        connect_to(sa.sin_port, 0);
        connect_to(sa.sin_port, SOCK_NONBLOCK);
        connect_to(other.sin_port, 0);
        connect_without_descriptors(sa.sin_port);
        connect_without_descriptors(other.sin_port);
        exit(0);
}

void connector_of_exec(int port)
{
        connect_to((uint16_t)port, 0);
        exit(0);
}

/* A sandbox is a child's own, and it keeps it in its next image. */
void scene_landlock_connects_child(void)
{
        struct sockaddr_in sa;
        char port[8];
        pid_t pid;

        listener(&sa);
        snprintf(port, sizeof(port), "%u", sa.sin_port);
        fflush(stdout);
        if ((pid = fork()) == 0) {
                lock_in((struct ruleset){.net = CONNECT_TCP | BIND_TCP});
                connect_to(sa.sin_port, 0);
                fflush(stdout);
                execl(self, self, "--connect", port, NULL);
        }
        waitpid(pid, NULL, 0);
        connect_to(sa.sin_port, 0);
}

static void *echo(void *arg)
{
        int fd = (int)(intptr_t)arg;
        char b;

        while (read(fd, &b, 1) == 1) {
                usleep(5000); /* who waits for it sleeps by then */
                write(fd, &b, 1);
        }
        return NULL;
}

static void echo_by_threads(const int fd[TALKERS])
{
        pthread_t t;

        for (int i = 0; i < TALKERS; i++)
                pthread_create(&t, NULL, echo, (void *)(intptr_t)fd[i]);
}

/* All of them answer, asleep or not. */
static void talk_to(const int fd[TALKERS])
{
        struct timeval patience = {.tv_sec = 20};
        int answers = 0;
        char b;

        for (int round = 0; round < 4; round++) {
                usleep(20000);
                for (int i = 0; i < TALKERS; i++) {
                        setsockopt(fd[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
                        b = 'x';
                        answers += write(fd[i], &b, 1) == 1 && read(fd[i], &b, 1) == 1;
                }
        }
        SHOW(answers);
}

static void pairs(int client[TALKERS], int server[TALKERS])
{
        int v[2];

        for (int i = 0; i < TALKERS; i++) {
                tcp_pair(v);
                client[i] = v[0];
                server[i] = v[1];
        }
}

void scene_landlock_scope(void)
{
        int client[TALKERS], server[TALKERS];

        pairs(client, server);
        echo_by_threads(server);
        talk_to(client);
        lock_in((struct ruleset){.scoped = SCOPED_ABSTRACT});
        talk_to(client);
        exit(0);
}

/* One that sleeps for ever is outside, those that are to wake it are inside, and the other
 * way round. */
void scene_landlock_scope_child(void)
{
        int client[TALKERS], server[TALKERS];
        pid_t pid;

        pairs(client, server);
        fflush(stdout);
        if ((pid = fork()) == 0) {
                lock_in((struct ruleset){.scoped = SCOPED_ABSTRACT});
                echo_by_threads(server);
                pause();
        }
        talk_to(client);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
}

/* A program of its own, which goes inside when one of them has come; what it shows would come at
 * any time. */
static void serve_inside(int port)
{
        int l, fd[TALKERS];
        struct sockaddr_in sa;

        freopen("/dev/null", "w", stdout);
        l = listener(&sa);
        write(port, &sa, sizeof(sa));
        for (int i = 0; i < TALKERS; i++) {
                fd[i] = accept(l, NULL, NULL);
                if (i == 0)
                        lock_in((struct ruleset){.scoped = SCOPED_ABSTRACT});
        }
        echo_by_threads(fd);
        pause();
}

void scene_landlock_scope_peer(void)
{
        int fd[TALKERS], port[2];
        struct sockaddr_in sa;
        pid_t pid;

        pipe(port);
        fflush(stdout);
        if ((pid = fork()) == 0)
                serve_inside(port[1]);
        read(port[0], &sa, sizeof(sa));
        for (int i = 0; i < TALKERS; i++) {
                fd[i] = socket(AF_INET, SOCK_STREAM, 0);
                SHOW(connect(fd[i], (void *)&sa, sizeof(sa)));
        }
        talk_to(fd);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
}

void scene_netns_left(void)
{
        int client[TALKERS], server[TALKERS];

        pairs(client, server);
        if (unshare(CLONE_NEWNET) < 0) {
                printf("  no namespace can be made here: %s\n", strerror(errno));
                return;
        }
        echo_by_threads(server);
        talk_to(client);
        exit(0);
}
