/*
 * unetd, the keeper and all processes of a stack die at once, and nobody is left to say that it is
 * no more: its peers find out by themselves. And those who live go on, beside what the next unetd
 * brings them.
 */
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sock/sides.h"

#define PATIENCE_S (PATIENCE_MS / 1000) /* it takes two seconds, and longer on a busy machine */

/* The side that dies: a child of its own process, which stays to say that it was killed. */
static void dies(struct side *s)
{
        int status, c;
        pid_t pid = fork();
        char byte;

        CHECK(pid >= 0);
        if (pid == 0) {
                tell(s, (uint64_t)getpid());
                c = side_accept(s);
                CHECK(unet_recv(c, &byte, 1, 0) == 1 && unet_send(c, &byte, 1, 0) == 1);
                pause();
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
              WTERMSIG(status) == SIGKILL);
}

static int meet(struct side *s, pid_t *peer)
{
        const struct timeval patience = {.tv_sec = PATIENCE_S};
        char byte = 'x';
        int c;

        *peer = (pid_t)hear(s);
        c = side_connect(s);
        CHECK(unet_setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
        CHECK(unet_setsockopt(c, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0);
        CHECK(unet_send(c, &byte, 1, 0) == 1 && unet_recv(c, &byte, 1, 0) == 1);
        return c;
}

/* None of them sees another one die, and all of them are dead then. Peer 0: there is none. */
static void all_die(pid_t peer)
{
        const pid_t all[] = {world_unetd(), world_keeper(), peer};
        const int n = peer != 0 ? 3 : 2;
        struct pollfd dead[3];

        for (int i = 0; i < n; i++) {
                dead[i] = (struct pollfd){.fd = (int)syscall(SYS_pidfd_open, all[i], 0),
                                          .events = POLLIN};
                CHECK(all[i] > 0 && dead[i].fd >= 0 && kill(all[i], SIGSTOP) == 0);
        }
        for (int i = 0; i < n; i++)
                CHECK(kill(all[i], SIGKILL) == 0);
        for (int i = 0; i < n; i++)
                CHECK(poll(&dead[i], 1, PATIENCE_S * 1000) == 1 && close(dead[i].fd) == 0);
}

/* A connection whose other end has died so. */
static int abandoned(struct side *s)
{
        pid_t peer;
        int c = meet(s, &peer);

        /* The keeper goes back to sleep by then, so that the next message would ring it. */
        sleep_ms(200);
        all_die(peer);
        return c;
}

static void sleeps_in_recv(struct side *s)
{
        int c = abandoned(s);
        char byte;

        CHECK_ERR(unet_recv(c, &byte, 1, 0), ECONNRESET);
        CHECK(unet_recv(c, &byte, 1, 0) == 0);
}

static void a_reader_asleep_sees_the_end(void **state)
{
        play(TWO_PROCESSES, sleeps_in_recv, dies, 0);
}

/* As ever, a write to a peer that is gone raises no signal: SIGPIPE would kill this process. */
static void writes_on(struct side *s)
{
        static char buf[100000];
        int c = abandoned(s);
        ssize_t n;

        signal(SIGPIPE, SIG_DFL); /* whatever who runs the tests has done with it */
        while ((n = unet_send(c, buf, sizeof buf, 0)) > 0)
                ;
        CHECK(n < 0 && (errno == ECONNRESET || errno == EPIPE));
}

static void a_writer_sees_the_end_and_lives(void **state)
{
        play(TWO_PROCESSES, writes_on, dies, 0);
}

static bool has_ended(int c)
{
        struct unet_pollfd p = {.sock = c, .fd = -1, .events = POLLIN};

        return unet_poll(&p, 1, 0) == 1 && p.revents & POLLHUP;
}

static void looks_only(struct side *s)
{
        int c = abandoned(s);
        int64_t until = now_ms() + PATIENCE_S * 1000;

        while (!has_ended(c))
                CHECK(now_ms() < until);
}

static void who_never_sleeps_sees_the_end(void **state)
{
        play(TWO_PROCESSES, looks_only, dies, 0);
}

/* One process of the stack sleeps for all of them. */
static void waits_with_a_child(struct side *s)
{
        pid_t peer, pid;
        int c = meet(s, &peer), status;
        char byte;

        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
                CHECK(unet_recv(c, &byte, 1, 0) <= 0 && errno != EAGAIN);
                _exit(0);
        }
        all_die(peer);
        CHECK(unet_recv(c, &byte, 1, 0) <= 0 && errno != EAGAIN);
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void all_who_share_a_socket_see_the_end(void **state)
{
        play(TWO_PROCESSES, waits_with_a_child, dies, 0);
}

/* The next unetd knows nothing of who says nothing. */
static void sleeps_under_another(struct side *s)
{
        pid_t peer;
        int c = meet(s, &peer);
        char byte;

        all_die(0);
        CHECK(tcp_listen_any() >= 0);
        CHECK(kill(peer, SIGKILL) == 0);
        CHECK_ERR(unet_recv(c, &byte, 1, 0), ECONNRESET);
}

static void who_is_unknown_to_the_next_unetd_is_seen_to_end(void **state)
{
        play(TWO_PROCESSES, sleeps_under_another, dies, 0);
}

static bool answers(int c)
{
        char byte = 'y';

        return unet_send(c, &byte, 1, 0) == 1 && unet_recv(c, &byte, 1, 0) == 1 && byte == 'y';
}

static int patient(int c)
{
        const struct timeval patience = {.tv_sec = PATIENCE_S};

        CHECK(unet_setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
        return c;
}

/* A stack that comes when only the other two know of each other any more. */
static void comes_late(int in)
{
        uint64_t port;
        int c;

        CHECK(read(in, &port, sizeof port) == sizeof port);
        c = patient(tcp_connect_to((uint16_t)port));
        for (int i = 0; i < 100; i++)
                CHECK(answers(c));
        _exit(0);
}

static void goes_on(struct side *s)
{
        int pipes[2], status, c;
        uint64_t port;
        pid_t late;

        CHECK(pipe(pipes) == 0);
        late = fork();
        CHECK(late >= 0);
        if (late == 0)
                comes_late(pipes[0]);
        c = patient(side_connect(s));
        CHECK(answers(c));
        all_die(0);
        CHECK(answers(c));
        tell(s, 0);
        port = hear(s);
        CHECK(write(pipes[1], &port, sizeof port) == sizeof port);
        CHECK(waitpid(late, &status, 0) == late && status == 0);
        for (int i = 0; i < 100; i++)
                CHECK(answers(c));
}

static void echo(int c)
{
        char byte;

        CHECK(unet_recv(c, &byte, 1, 0) == 1 && unet_send(c, &byte, 1, 0) == 1);
}

/* It says to the next unetd what it has when it listens again. */
static void serves_both(struct side *s)
{
        int c = patient(side_accept(s)), l, d;

        echo(c);
        echo(c);
        hear(s);
        l = patient(tcp_listen_any());
        tell(s, port_of(l));
        d = unet_accept(l, NULL, NULL);
        CHECK(d >= 0);
        patient(d);
        for (int i = 0; i < 100; i++)
                echo(d);
        for (int i = 0; i < 100; i++)
                echo(c);
}

/* What they have is not numbered anew. */
static void a_stack_that_comes_later_takes_nobodys_place(void **state)
{
        play(TWO_PROCESSES, goes_on, serves_both, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_begin, world_end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(a_reader_asleep_sees_the_end),
                TEST(a_writer_sees_the_end_and_lives),
                TEST(who_never_sleeps_sees_the_end),
                TEST(all_who_share_a_socket_see_the_end),
                TEST(who_is_unknown_to_the_next_unetd_is_seen_to_end),
                TEST(a_stack_that_comes_later_takes_nobodys_place),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
