/*
 * exec: the sockets of the native API are close-on-exec. Their references end with the image,
 * though the process lives on; a failed exec loses nothing, and neither does a process whose
 * children become other programs.
 */
#include "tests/sock/sides.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

/* Becomes a program that knows nothing of us, and stays: much longer than it takes until
 * the end is seen, whatever else runs. Who waited for its exit would see the end too
 * late (ends_the_sleeper()). */
static void become_sleeper(void)
{
        execl("/bin/sleep", "sleep", "3000", NULL);
}

/* What was sent arrives, and after it the end. */
static void ends_soon(int c)
{
        struct unet_pollfd v = {.sock = c, .fd = -1, .events = POLLIN};
        char buf[8];

        CHECK(unet_recv(c, buf, 3, MSG_WAITALL) == 3 && memcmp(buf, "bye", 3) == 0);
        CHECK(unet_poll(&v, 1, PATIENCE_MS) == 1);
        CHECK(unet_recv(c, buf, 1, 0) == 0);
}

static void ends_the_sleeper(struct side *s, pid_t pid)
{
        CHECK(kill(pid, 0) == 0 && kill(pid, SIGKILL) == 0);
}

/* ---- a process becomes another program ---- */

static void *stays(void *arg)
{
        pause();
        return arg;
}

static void becomes_another(struct side *s)
{
        int c = side_connect(s);
        pthread_t thread;

        if (s->arg != 0)
                CHECK(pthread_create(&thread, NULL, stays, NULL) == 0);
        tell(s, (uint64_t)getpid());
        CHECK(unet_send(c, "bye", 3, 0) == 3);
        become_sleeper();
        CHECK(!"reached");
}

static void execing_side(struct side *s)
{
        pid_t pid = fork();
        int status;

        CHECK(pid >= 0);
        if (pid == 0)
                becomes_another(s);
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

static void peer_of_exec(struct side *s)
{
        int c = side_accept(s);
        pid_t pid = (pid_t)hear(s);

        ends_soon(c);
        ends_the_sleeper(s, pid);
}

static void exec_ends_connections(void **state)
{
        for (uint64_t i = 0; i < 6; i++)
                play(TWO_PROCESSES, execing_side, peer_of_exec, i % 2);
}

/* ---- an exec that fails ---- */

static void fails_to_exec(struct side *s)
{
        int c = side_connect(s);
        char byte;

        for (int i = 0; i < 3; i++) {
                execl("/nonexistent", "x", NULL);
                CHECK(errno == ENOENT);
                CHECK(unet_send(c, "a", 1, 0) == 1 && unet_recv(c, &byte, 1, 0) == 1 &&
                      byte == 'a');
                sleep_ms(100);
        }
        CHECK(unet_close(c) == 0);
}

static void echoes(struct side *s)
{
        int c = side_accept(s);
        char byte;

        while (unet_recv(c, &byte, 1, 0) == 1)
                CHECK(unet_send(c, &byte, 1, 0) == 1);
        CHECK(unet_close(c) == 0);
}

static void a_failed_exec_loses_nothing(void **state)
{
        play(TWO_PROCESSES, fails_to_exec, echoes, 0);
}

/* ---- children that become other programs ---- */

enum how { FORK, SPAWN, VFORK, POPEN };

static pid_t child_sleeper(enum how how)
{
        char *const argv[] = {"sleep", "3000", NULL}, *const env[] = {NULL};
        pid_t pid = 0;

        switch (how) {
        case FORK:
                pid = fork();
                if (pid == 0)
                        become_sleeper();
                break;
        case SPAWN:
                CHECK(posix_spawn(&pid, "/bin/sleep", NULL, NULL, argv, env) == 0);
                break;
        case VFORK:
                pid = vfork();
                if (pid == 0)
                        become_sleeper();
                break;
        case POPEN:
                CHECK(system("true") == 0);
                break;
        }
        CHECK(pid >= 0);
        return pid;
}

static void has_children(struct side *s)
{
        int c = side_connect(s);
        pid_t pid = child_sleeper((enum how)s->arg);
        char byte;

        sleep_ms(100);
        for (int i = 0; i < 20; i++) {
                CHECK(unet_send(c, "a", 1, 0) == 1 && unet_recv(c, &byte, 1, 0) == 1 &&
                      byte == 'a');
                sleep_ms(10);
        }
        CHECK(unet_send(c, "x", 1, 0) == 1 && unet_recv(c, &byte, 1, 0) == 1);
        CHECK(unet_send(c, "bye", 3, 0) == 3);
        CHECK(unet_close(c) == 0);
        hear(s);
        if (pid > 0) {
                CHECK(kill(pid, 0) == 0 && kill(pid, SIGKILL) == 0);
                CHECK(waitpid(pid, &(int){0}, 0) == pid);
        }
}

static void peer_of_children(struct side *s)
{
        int c = side_accept(s);
        char byte = 0;

        while (byte != 'x')
                CHECK(unet_recv(c, &byte, 1, 0) == 1 && unet_send(c, &byte, 1, 0) == 1);
        ends_soon(c);
        tell(s, 0);
}

static void children_that_exec_hold_nothing(void **state)
{
        for (uint64_t how = FORK; how <= POPEN; how++)
                play(TWO_PROCESSES, has_children, peer_of_children, how);
}

/* ---- a listener goes too ---- */

static void listens_and_execs(struct side *s)
{
        pid_t pid = fork();
        int status;

        CHECK(pid >= 0);
        if (pid == 0) {
                tell(s, port_of(tcp_listen_any()));
                tell(s, (uint64_t)getpid());
                hear(s);
                become_sleeper();
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

static void finds_no_listener(struct side *s)
{
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons((uint16_t)hear(s))};
        pid_t pid = (pid_t)hear(s);
        int64_t until;
        int c, r;

        c = tcp_connect_to(ntohs(to.sin_port));
        CHECK(unet_close(c) == 0);
        tell(s, 0);
        until = now_ms() + PATIENCE_MS;
        do {
                sleep_ms(5);
                c = unet_socket(AF_INET, SOCK_STREAM, 0);
                r = unet_connect(c, (struct sockaddr *)&to, sizeof to);
                CHECK(unet_close(c) == 0);
        } while (r == 0 && now_ms() < until);
        CHECK(r == -1);
        ends_the_sleeper(s, pid);
}

static void exec_ends_listeners(void **state)
{
        play(TWO_PROCESSES, listens_and_execs, finds_no_listener, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(exec_ends_connections),
                cmocka_unit_test(a_failed_exec_loses_nothing),
                cmocka_unit_test(children_that_exec_hold_nothing),
                cmocka_unit_test(exec_ends_listeners),
        };

        return run_sides(tests);
}
