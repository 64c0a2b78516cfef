/* Waiting: non-blocking calls, time-outs, poll, poll sets, signals. */
#include "tests/sock/sides.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sock/attach/ustack.h"
#include "sock/attach/ustack_wake.h"
#include "sock/wait/usock_wake.h"

static void set_timeo(int c, int name, int ms)
{
        struct timeval tv = {ms / 1000, ms % 1000 * 1000};

        CHECK(unet_setsockopt(c, SOL_SOCKET, name, &tv, sizeof tv) == 0);
}

/* ---- non-blocking ---- */

static void nonblock_a(struct side *s)
{
        struct sockaddr_in a = loopback((uint16_t)hear(s));
        int c = unet_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), err = -1, r;
        struct unet_pollfd p = {.fd = -1, .events = POLLOUT};
        socklen_t len = sizeof err;

        r = unet_connect(c, (struct sockaddr *)&a, sizeof a);
        CHECK(r == 0 || errno == EINPROGRESS);
        p.sock = c;
        CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1 && p.revents & POLLOUT);
        CHECK(unet_getsockopt(c, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err == 0);
        r = unet_connect(c, (struct sockaddr *)&a, sizeof a);
        CHECK(r == 0 || errno == EISCONN);
        CHECK_ERR(unet_connect(c, (struct sockaddr *)&a, sizeof a), EISCONN);
        CHECK_ERR(unet_recv(c, &err, 1, 0), EAGAIN);
        tell(s, 0);
        p.events = POLLIN;
        CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1 && p.revents == POLLIN);
        CHECK(unet_recv(c, &err, 4, 0) == 4);
        CHECK_ERR(unet_recv(c, &err, 4, 0), EAGAIN);
}

static void nonblock_b(struct side *s)
{
        int l = tcp_listen_any(), c;

        CHECK(unet_set_nonblock(l, 1) == 0);
        CHECK_ERR(unet_accept(l, NULL, NULL), EAGAIN);
        tell(s, port_of(l));
        for (;;) {
                struct unet_pollfd p = {.sock = l, .fd = -1, .events = POLLIN};
                CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1);
                c = unet_accept(l, NULL, NULL);
                if (c >= 0)
                        break;
                CHECK(errno == EAGAIN);
        }
        CHECK(unet_get_nonblock(c) == 0);
        hear(s);
        CHECK(unet_send(c, "data", 4, 0) == 4);
        hear(s);
}

static void nonblock_a_then_tell(struct side *s)
{
        nonblock_a(s);
        tell(s, 0);
}

static void calls_without_blocking(void **state)
{
        play_both(nonblock_a_then_tell, nonblock_b, 0);
}

/* Who asks again and again without waiting acknowledges what came, as soon as there is nothing to
 * be had: no delayed-ACK timer has to do it. It is counted where the acknowledgement goes out,
 * whatever the machine does meanwhile. */
static void sends_one_by_one(struct side *s)
{
        int c = side_connect(s);

        for (int i = 0; i < 50; i++) {
                hear(s);
                CHECK(unet_send(c, "x", 1, 0) == 1);
        }
        hear(s);
        CHECK(unet_close(c) == 0);
}

static uint64_t segments_out(int c)
{
        struct unet_feedback f;

        CHECK(unet_feedback(c, &f) == 0);
        return f.segs_out;
}

static void spins(struct side *s)
{
        int c = side_accept(s);
        char byte;

        for (int i = 0; i < 50; i++) {
                uint64_t before = segments_out(c);
                tell(s, 0);
                EVENTUALLY(unet_recv(c, &byte, 1, MSG_DONTWAIT) == 1);
                CHECK_ERR(unet_recv(c, &byte, 1, MSG_DONTWAIT), EAGAIN);
                CHECK(segments_out(c) > before);
        }
        tell(s, 0);
        CHECK(unet_recv(c, &byte, 1, 0) == 0);
}

static void a_spinner_acknowledges(void **state)
{
        play(TWO_PROCESSES, sends_one_by_one, spins, 0);
}

/* ---- time-outs ---- */

static void timeout_a(struct side *s)
{
        int c = side_connect(s);
        int64_t begin = now_ms();
        char buf[65536];
        size_t sent = 0;
        ssize_t n;

        memset(buf, 7, sizeof buf);
        set_timeo(c, SO_RCVTIMEO, 50);
        CHECK_ERR(unet_recv(c, buf, 1, 0), EAGAIN);
        CHECK(now_ms() - begin >= 49);
        CHECK(unet_send(c, "ab", 2, 0) == 2);
        set_timeo(c, SO_SNDTIMEO, 50);
        while ((n = unet_send(c, buf, sizeof buf, 0)) > 0)
                sent += (size_t)n;
        CHECK(errno == EAGAIN && sent > 0);
        tell(s, sent);
        hear(s);
}

static void timeout_b(struct side *s)
{
        int c = side_accept(s);
        char buf[10];
        static char big[65536];
        size_t sent, got = 0;

        CHECK(unet_recv(c, buf, 1, 0) == 1);
        set_timeo(c, SO_RCVTIMEO, 50);
        CHECK(unet_recv(c, buf, 2, MSG_WAITALL | MSG_PEEK) >= 1);
        CHECK(unet_recv(c, buf, 1, 0) == 1);
        sent = hear(s);
        /* What is still with the other side comes when its keeper has a processor. */
        set_timeo(c, SO_RCVTIMEO, 0);
        while (got < sent) {
                ssize_t n = unet_recv(c, big, sizeof big, 0);
                CHECK(n > 0);
                got += (size_t)n;
        }
        set_timeo(c, SO_RCVTIMEO, 50);
        CHECK_ERR(unet_recv(c, buf, 1, 0), EAGAIN);
        CHECK(got == sent);
        tell(s, 0);
}

static void waits_end_in_time(void **state)
{
        play_both(timeout_a, timeout_b, 0);
}

static void partial_a(struct side *s)
{
        int c = side_connect(s);

        CHECK(unet_send(c, "abc", 3, 0) == 3);
        hear(s);
        CHECK(unet_send(c, "defgh", 5, 0) == 5);
        hear(s);
}

static void partial_b(struct side *s)
{
        int c = side_accept(s), lowat = 5;
        char buf[10];
        int n;

        EVENTUALLY(unet_ioctl(c, FIONREAD, &n) == 0 && n == 3);
        set_timeo(c, SO_RCVTIMEO, 50);
        CHECK(unet_recv(c, buf, 10, MSG_WAITALL) == 3);
        tell(s, 0);
        CHECK(unet_setsockopt(c, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof lowat) == 0);
        set_timeo(c, SO_RCVTIMEO, 0);
        CHECK(unet_recv(c, buf, 10, 0) == 5 && memcmp(buf, "defgh", 5) == 0);
        tell(s, 0);
}

static void a_receive_waits_for_what_it_was_told(void **state)
{
        play_both(partial_a, partial_b, 0);
}

static void accept_times_out(struct side *s)
{
        int l = tcp_listen_any();

        set_timeo(l, SO_RCVTIMEO, 30);
        CHECK_ERR(unet_accept(l, NULL, NULL), EAGAIN);
}

static void accept_ends_in_time(void **state)
{
        assert_int_equal(play_alone(accept_times_out, 0), 0);
}

/* ---- poll ---- */

static void poll_a(struct side *s)
{
        struct unet_pollfd p[4];
        int c = side_connect(s), pipes[2];
        char b;

        CHECK(pipe(pipes) == 0);
        p[0] = (struct unet_pollfd){.sock = c, .fd = -1, .events = POLLIN};
        p[1] = (struct unet_pollfd){.sock = -1, .fd = pipes[0], .events = POLLIN};
        p[2] = (struct unet_pollfd){.sock = -1, .fd = -1, .events = POLLIN};
        p[3] = (struct unet_pollfd){.sock = c, .fd = -1, .events = 0};
        CHECK(unet_poll(p, 4, 20) == 0);
        CHECK(write(pipes[1], "x", 1) == 1);
        CHECK(unet_poll(p, 4, PATIENCE_MS) == 1 && p[1].revents == POLLIN);
        CHECK(p[0].revents == 0 && p[2].revents == 0);
        CHECK(read(pipes[0], &b, 1) == 1);
        tell(s, 0);
        CHECK(unet_poll(p, 4, PATIENCE_MS) == 1 && p[0].revents == POLLIN && p[1].revents == 0);
        CHECK(write(pipes[1], "x", 1) == 1);
        sleep_ms(1);
        CHECK(unet_poll(p, 4, PATIENCE_MS) == 2 && p[0].revents == POLLIN &&
              p[1].revents == POLLIN);
        sleep_ms(1);
        p[3].sock = 12345;
        CHECK(unet_poll(p, 4, -1) == 3 && p[3].revents == POLLNVAL);
        hear(s);
        p[0].events = POLLIN | POLLOUT | POLLRDHUP;
        EVENTUALLY(unet_poll(p, 1, 0) == 1 && p[0].revents == (POLLIN | POLLOUT | POLLRDHUP));
        CHECK(unet_shutdown(c, SHUT_WR) == 0);
        EVENTUALLY(unet_poll(p, 1, 0) == 1 && p[0].revents & POLLHUP);
}

static void poll_b(struct side *s)
{
        int c = side_accept(s);

        hear(s);
        CHECK(unet_send(c, "data", 4, 0) == 4);
        sleep_ms(20);
        CHECK(unet_shutdown(c, SHUT_WR) == 0);
        tell(s, 0);
        EVENTUALLY(unet_recv(c, &(char){0}, 1, MSG_DONTWAIT) == 0);
}

static void poll_mixes_ours_and_the_kernels(void **state)
{
        play_both(poll_a, poll_b, 0);
}

/* ---- signals ---- */

static void on_alarm(int sig)
{
}

static void interrupted(struct side *s)
{
        struct sigaction sa = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
        int l = tcp_listen_any();
        struct unet_pollfd p = {.sock = l, .fd = -1, .events = POLLIN};
        struct timespec long_time = {100, 0};
        sigset_t block, none;

        sigaction(SIGALRM, &sa, NULL);
        /* Again and again: the first may come before a call has begun to wait. */
        ualarm(20000, 20000);
        CHECK_ERR(unet_accept(l, NULL, NULL), EINTR);
        CHECK_ERR(unet_poll(&p, 1, -1), EINTR);
        ualarm(0, 0);
        sigemptyset(&none);
        sigemptyset(&block);
        sigaddset(&block, SIGALRM);
        sigprocmask(SIG_BLOCK, &block, NULL);
        raise(SIGALRM);
        CHECK_ERR(unet_ppoll(&p, 1, &long_time, &none), EINTR);
        CHECK(unet_poll(&p, 1, 0) == 0);
        long_time.tv_nsec = 1000000000;
        CHECK_ERR(unet_ppoll(&p, 1, &long_time, NULL), EINVAL);
}

static void signals_end_a_wait(void **state)
{
        assert_int_equal(play_alone(interrupted, 0), 0);
}

/* ---- poll sets ---- */

static void sets_a(struct side *s)
{
        struct unet_pollset *set = unet_pollset_create();
        struct unet_event ev[4];
        int c = side_connect(s), pipes[2];
        char buf[16];

        CHECK(set != NULL && pipe(pipes) == 0);
        CHECK_ERR(unet_pollset_mod(set, c, POLLIN, 1), ENOENT);
        CHECK(unet_pollset_add(set, c, POLLIN, 11) == 0);
        CHECK_ERR(unet_pollset_add(set, c, POLLIN, 11), EEXIST);
        CHECK_ERR(unet_pollset_add(set, 999, POLLIN, 11), EBADF);
        CHECK_ERR(unet_pollset_wait(set, ev, 0, 0), EINVAL);
        CHECK(unet_pollset_wait(set, ev, 4, 10) == 0);
        tell(s, 4);
        CHECK(unet_pollset_wait(set, ev, 4, PATIENCE_MS) == 1 && ev[0].events == POLLIN &&
              ev[0].data == 11);
        CHECK(unet_pollset_wait(set, ev, 4, PATIENCE_MS) == 1); /* level: again */
        CHECK(unet_pollset_mod(set, c, POLLIN | UNET_EDGE, 12) == 0);
        CHECK(unet_pollset_wait(set, ev, 4, PATIENCE_MS) == 1 && ev[0].data == 12);
        CHECK(unet_pollset_wait(set, ev, 4, 10) == 0); /* edge: once */
        tell(s, 4);
        CHECK(unet_pollset_wait(set, ev, 4, PATIENCE_MS) == 1); /* more came: another edge */
        CHECK(unet_pollset_wait(set, ev, 4, 10) == 0);
        CHECK(unet_recv(c, buf, 8, MSG_WAITALL) == 8);
        CHECK(unet_pollset_wait(set, ev, 4, 10) == 0);
        CHECK(unet_pollset_mod(set, c, POLLIN | UNET_ONESHOT, 13) == 0);
        tell(s, 1);
        CHECK(unet_pollset_wait(set, ev, 4, PATIENCE_MS) == 1 && ev[0].data == 13);
        tell(s, 1);
        CHECK(unet_pollset_wait(set, ev, 4, 30) == 0); /* one shot: fired */
        CHECK(unet_pollset_mod(set, c, POLLIN | POLLOUT | UNET_ONESHOT, 14) == 0);
        CHECK(unet_pollset_wait(set, ev, 4, PATIENCE_MS) == 1 &&
              ev[0].events == (POLLIN | POLLOUT));
        CHECK(unet_pollset_add_fd(set, pipes[0], POLLIN, 21) == 0);
        CHECK(write(pipes[1], "x", 1) == 1);
        CHECK(unet_pollset_wait(set, ev, 4, PATIENCE_MS) == 1 && ev[0].data == 21 &&
              ev[0].events == POLLIN);
        CHECK(unet_pollset_mod_fd(set, pipes[0], POLLIN | UNET_EDGE, 22) == 0);
        CHECK(unet_pollset_wait(set, ev, 4, PATIENCE_MS) == 1 && ev[0].data == 22);
        CHECK(unet_pollset_wait(set, ev, 4, 10) == 0);
        CHECK(unet_pollset_del_fd(set, pipes[0]) == 0);
        CHECK(unet_pollset_mod(set, c, POLLIN | POLLRDHUP, 15) == 0);
        tell(s, 0);
        hear(s);
        EVENTUALLY(unet_pollset_wait(set, ev, 4, 100) == 1 && ev[0].events == (POLLIN | POLLRDHUP));
        CHECK(unet_close(c) == 0); /* and out of the set */
        CHECK(unet_pollset_wait(set, ev, 4, 10) == 0);
        unet_pollset_destroy(set);
}

static void sets_b(struct side *s)
{
        int c = side_accept(s);
        uint64_t n;

        while ((n = hear(s)) != 0)
                CHECK(unet_send(c, "data", n, 0) == (ssize_t)n);
        CHECK(unet_shutdown(c, SHUT_WR) == 0);
        tell(s, 0);
        unet_recv(c, &n, 1, 0);
}

static void sets_by_level_edge_and_one_shot(void **state)
{
        play_both(sets_a, sets_b, 0);
}

#define MEMBERS 500

static void crowd_a(struct side *s)
{
        struct unet_pollset *set = unet_pollset_create();
        uint16_t port = (uint16_t)hear(s);
        struct unet_event ev[7];
        static int c[MEMBERS];
        static int count[MEMBERS];
        uint64_t left = 20 * MEMBERS;
        char byte;

        for (int i = 0; i < MEMBERS; i++) {
                c[i] = tcp_connect_to(port);
                CHECK(unet_pollset_add(set, c[i], POLLIN | (i % 2 ? UNET_EDGE : 0), (uint64_t)i) ==
                      0);
        }
        tell(s, 0);
        while (left > 0) {
                int n = unet_pollset_wait(set, ev, 7, PATIENCE_MS);
                CHECK(n > 0);
                for (int k = 0; k < n; k++) {
                        int i = (int)ev[k].data;
                        CHECK(ev[k].events == POLLIN);
                        while (unet_recv(c[i], &byte, 1, MSG_DONTWAIT) == 1)
                                count[i]++, left--;
                }
        }
        CHECK(unet_pollset_wait(set, ev, 7, 10) == 0);
        for (int i = 0; i < MEMBERS; i++)
                CHECK(count[i] == 20);
        unet_pollset_destroy(set);
        tell(s, 0);
}

static void crowd_b(struct side *s)
{
        int l = tcp_listen_any();
        static int c[MEMBERS];
        uint64_t r = s->arg;

        tell(s, port_of(l));
        for (int i = 0; i < MEMBERS; i++)
                CHECK((c[i] = unet_accept(l, NULL, NULL)) >= 0);
        hear(s);
        for (int round = 0; round < 20; round++)
                for (int i = 0; i < MEMBERS; i++) {
                        CHECK(unet_send(c[(i * 7 + round) % MEMBERS], "x", 1, 0) == 1);
                        if (rnd(&r) % 1000 == 0)
                                sleep_ms(1);
                }
        hear(s);
}

static void no_event_of_many_members_is_lost(void **state)
{
        play_both(crowd_a, crowd_b, test_seed());
}

/* A member added, and one that closes, while another thread sleeps in the set. */
struct sleeper {
        struct unet_pollset *set;
        struct unet_event ev[2];
        int n;
};

static void *sleep_in_set(void *arg)
{
        struct sleeper *z = arg;

        z->n = unet_pollset_wait(z->set, z->ev, 2, PATIENCE_MS);
        return NULL;
}

static void late_a(struct side *s)
{
        struct sleeper z = {.set = unet_pollset_create()};
        int c = side_connect(s), d = unet_socket(AF_INET, SOCK_STREAM, 0), pipes[2];
        pthread_t t;

        CHECK(unet_pollset_add(z.set, d, POLLRDHUP, 1) == 0);
        CHECK(unet_pollset_wait(z.set, z.ev, 2, 10) == 1 && z.ev[0].events == POLLHUP);
        CHECK(unet_pollset_del(z.set, d) == 0);
        CHECK(pthread_create(&t, NULL, sleep_in_set, &z) == 0);
        sleep_ms(20);
        CHECK(unet_pollset_add(z.set, c, POLLOUT, 2) == 0);
        pthread_join(t, NULL);
        CHECK(z.n == 1 && z.ev[0].data == 2 && z.ev[0].events == POLLOUT);
        CHECK(unet_pollset_mod(z.set, c, POLLIN, 3) == 0);
        CHECK(pthread_create(&t, NULL, sleep_in_set, &z) == 0);
        sleep_ms(20);
        CHECK(unet_close(c) == 0); /* the peer sees it although a thread sleeps in the set */
        hear(s);
        CHECK(pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1);
        CHECK(unet_pollset_add_fd(z.set, pipes[0], POLLIN, 4) == 0);
        pthread_join(t, NULL);
        CHECK(z.n == 1 && z.ev[0].data == 4);
}

static void late_b(struct side *s)
{
        int c = side_accept(s);

        CHECK(unet_recv(c, &(char){0}, 1, 0) == 0);
        tell(s, 0);
}

static void a_set_changes_while_somebody_sleeps_in_it(void **state)
{
        play_both(late_a, late_b, 0);
}

/* After fork the child's set is empty and its own; the parent's goes on. */
static void forked_sets(struct side *s)
{
        struct unet_pollset *set = unet_pollset_create();
        int l = tcp_listen_any(), pipes[2], status;
        struct unet_event ev[2];
        pid_t pid;

        CHECK(pipe(pipes) == 0);
        CHECK(unet_pollset_add(set, l, POLLIN, 1) == 0);
        CHECK(unet_pollset_add_fd(set, pipes[0], POLLIN, 2) == 0);
        pid = fork();
        if (pid == 0) {
                int c = tcp_connect_to(port_of(l));
                CHECK(write(pipes[1], "x", 1) == 1);
                CHECK(unet_pollset_wait(set, ev, 2, 10) == 0);
                CHECK_ERR(unet_pollset_mod(set, l, POLLIN, 1), ENOENT);
                CHECK(unet_pollset_add(set, c, POLLOUT, 3) == 0);
                CHECK(unet_pollset_wait(set, ev, 2, PATIENCE_MS) == 1 && ev[0].data == 3);
                CHECK(unet_close(c) == 0);
                _exit(0);
        }
        EVENTUALLY(unet_pollset_wait(set, ev, 2, 1000) == 2);
        CHECK(ev[0].data + ev[1].data == 3);
        CHECK(unet_accept(l, NULL, NULL) >= 0);
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        unet_pollset_destroy(set);
}

static void a_set_is_not_shared_by_fork(void **state)
{
        assert_int_equal(play_alone(forked_sets, 0), 0);
}

/* The other thread closes the socket: the sleeper's call ends when its own time is over, and
 * nothing breaks. On a busy machine it may not have begun. */
static void *receive_briefly(void *arg)
{
        char byte;

        CHECK(unet_recv(*(int *)arg, &byte, 1, 0) == -1 && (errno == EAGAIN || errno == EBADF));
        return NULL;
}

static void close_a(struct side *s)
{
        int c = side_connect(s);
        pthread_t t;

        set_timeo(c, SO_RCVTIMEO, 100);
        CHECK(pthread_create(&t, NULL, receive_briefly, &c) == 0);
        sleep_ms(30);
        CHECK(unet_close(c) == 0);
        CHECK_ERR(unet_close(c), EBADF);
        CHECK_ERR(unet_send(c, "x", 1, 0), EBADF);
        pthread_join(t, NULL);
}

static void close_b(struct side *s)
{
        int c = side_accept(s);

        CHECK(unet_recv(c, &(char){0}, 1, 0) == 0);
}

static void closing_while_another_thread_waits(void **state)
{
        play_both(close_a, close_b, 0);
}

/* ---- a datagram socket that could not send ---- */

#define DATAGRAMS 5000

static const size_t full_sizes[] = {32768, 1000, 10};

static void full_a(struct side *s)
{
        struct unet_pollset *set = unet_pollset_create();
        int c = unet_socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        struct sockaddr_in a = loopback((uint16_t)hear(s));
        static char big[32768];
        struct unet_event ev;

        CHECK(unet_connect(c, (struct sockaddr *)&a, sizeof a) == 0);
        CHECK(unet_pollset_add(set, c, POLLOUT | UNET_EDGE, 1) == 0);
        CHECK(unet_pollset_wait(set, &ev, 1, PATIENCE_MS) == 1);
        for (size_t k = 0; k < sizeof full_sizes / sizeof *full_sizes; k++)
                for (int i = 0; i < DATAGRAMS; i++)
                        while (unet_send(c, big, full_sizes[k], 0) < 0)
                                CHECK(errno == EAGAIN &&
                                      unet_pollset_wait(set, &ev, 1, PATIENCE_MS) == 1);
        tell(s, 0);
        unet_pollset_destroy(set);
}

static void full_b(struct side *s)
{
        int c = unet_socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        struct sockaddr_in a = loopback(0);
        struct pollfd end = {.fd = s->in, .events = POLLIN};
        socklen_t len = sizeof a;
        static char big[32768];

        CHECK(unet_bind(c, (struct sockaddr *)&a, sizeof a) == 0 &&
              unet_getsockname(c, (struct sockaddr *)&a, &len) == 0);
        tell(s, ntohs(a.sin_port));
        while (poll(&end, 1, 5) == 0)
                while (unet_recv(c, big, sizeof big, 0) > 0)
                        ;
}

static void a_datagram_socket_that_was_full_has_an_edge(void **state)
{
        play_both(full_a, full_b, 0);
}

/* ---- news ---- */

#define EVENTS 500000u

static struct sock_rec *first_socket(struct ustack *u, uint32_t *idx)
{
        for (*idx = 1; stack_sock(&u->s, *idx)->refs == 0; ++*idx)
                ;
        return stack_sock(&u->s, *idx);
}

static void *raises_events(void *arg)
{
        struct ustack *u = arg;
        uint32_t idx;

        first_socket(u, &idx);
        for (uint32_t i = 0; i < EVENTS; i++) {
                ustack_lock(u);
                ustack_event(&u->s, idx, TCP_EV_READABLE);
                ustack_leave(u);
        }
        return NULL;
}

/* Who has heard news of a socket looks whether its edge has moved, and not again before there are
 * more news. */
static void an_edge_has_moved_when_there_are_news_of_it(void **state)
{
        int c = unet_socket(AF_INET, SOCK_DGRAM, 0), err;
        struct sockaddr_in a = loopback(0);
        struct ustack *u = ustack_mine(&err);
        struct sock_rec *rec;
        uint32_t idx, news, edges, n = 0;
        pthread_t t;

        CHECK(unet_bind(c, (struct sockaddr *)&a, sizeof a) == 0);
        rec = first_socket(u, &idx);
        news = atomic_load(&u->s.st->news_count);
        edges = atomic_load(&rec->edge_in);
        CHECK(pthread_create(&t, NULL, raises_events, u) == 0);
        while (n < EVENTS) {
                n = atomic_load_explicit(&u->s.st->news_count, memory_order_acquire) - news;
                CHECK(atomic_load_explicit(&rec->edge_in, memory_order_acquire) - edges >= n);
        }
        CHECK(pthread_join(t, NULL) == 0);
        CHECK(unet_close(c) == 0);
}

/* ---- many sleep ---- */

#define SLEEPERS 600 /* more wake-ups than one socket has room to send before they are read */

/* Nobody reads his wake-up before the last one is rung. */
static void rings_all(struct side *s)
{
        static struct usock_place *place[SLEEPERS];
        static uint32_t slot[SLEEPERS];
        int err;
        struct ustack *u = ustack_mine(&err);

        for (int i = 0; i < SLEEPERS; i++)
                CHECK((place[i] = usock_place_get()) != NULL);
        ustack_lock(u);
        for (int i = 0; i < SLEEPERS; i++)
                CHECK((slot[i] = usock_enlist(u, NULL, 0, true, place[i])) != 0);
        ustack_wake_all(u);
        ustack_leave(u);
        for (int i = 0; i < SLEEPERS; i++)
                CHECK(usock_place_hear(place[i]));
        ustack_lock(u);
        for (int i = 0; i < SLEEPERS; i++)
                usock_delist(u, NULL, 0, slot[i]);
        ustack_leave(u);
}

static void hundreds_are_woken_at_once(void **state)
{
        assert_int_equal(play_alone(rings_all, 0), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(calls_without_blocking),
                cmocka_unit_test(a_spinner_acknowledges),
                cmocka_unit_test(waits_end_in_time),
                cmocka_unit_test(a_receive_waits_for_what_it_was_told),
                cmocka_unit_test(accept_ends_in_time),
                cmocka_unit_test(poll_mixes_ours_and_the_kernels),
                cmocka_unit_test(signals_end_a_wait),
                cmocka_unit_test(sets_by_level_edge_and_one_shot),
                cmocka_unit_test(no_event_of_many_members_is_lost),
                cmocka_unit_test(a_set_changes_while_somebody_sleeps_in_it),
                cmocka_unit_test(a_set_is_not_shared_by_fork),
                cmocka_unit_test(closing_while_another_thread_waits),
                cmocka_unit_test(a_datagram_socket_that_was_full_has_an_edge),
                cmocka_unit_test(an_edge_has_moved_when_there_are_news_of_it),
                cmocka_unit_test(hundreds_are_woken_at_once),
        };

        return run_sides(tests);
}
