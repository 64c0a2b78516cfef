/* Errors: which, when, and what the other side sees. */
#include "tests/sock/sides.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"

/* ---- calls on what is not there ---- */

static void wrong(struct side *s)
{
        struct sockaddr_in a = loopback(0);
        struct sockaddr_storage ss;
        socklen_t len = sizeof ss;
        struct unet_pollfd p = {.sock = 77, .fd = -1, .events = POLLIN};
        char b;
        int t = unet_socket(AF_INET, SOCK_STREAM, 0), u = unet_socket(AF_INET, SOCK_DGRAM, 0), v;

        CHECK(t == 0 && u == 1);
        CHECK_ERR(unet_socket(AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
        CHECK_ERR(unet_socket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
        CHECK_ERR(unet_socket(AF_INET, SOCK_RAW, 0), ESOCKTNOSUPPORT);
        CHECK_ERR(unet_send(-1, "x", 1, 0), EBADF);
        CHECK_ERR(unet_recv(1 << 30, &b, 1, 0), EBADF);
        CHECK_ERR(unet_close(2), EBADF);
        CHECK(unet_poll(&p, 1, -1) == 1 && p.revents == POLLNVAL);
        CHECK_ERR(unet_send(t, "x", 1, 0), EPIPE);
        CHECK_ERR(unet_recv(t, &b, 1, 0), ENOTCONN);
        CHECK_ERR(unet_shutdown(t, SHUT_WR), ENOTCONN);
        CHECK_ERR(unet_shutdown(t, 7), EINVAL);
        CHECK_ERR(unet_getpeername(t, (struct sockaddr *)&ss, &len), ENOTCONN);
        CHECK_ERR(unet_accept(t, NULL, NULL), EINVAL);
        CHECK_ERR(unet_accept(u, NULL, NULL), EOPNOTSUPP);
        CHECK_ERR(unet_accept4(t, NULL, NULL, 1 << 3), EINVAL);
        CHECK_ERR(unet_listen(u, 1), EOPNOTSUPP);
        CHECK_ERR(unet_sendfile(u, 0, NULL, 1), EOPNOTSUPP);
        CHECK_ERR(unet_bind(t, (struct sockaddr *)&a, 4), EINVAL);
        ss = (struct sockaddr_storage){.ss_family = AF_INET6};
        CHECK_ERR(unet_bind(t, (struct sockaddr *)&ss, sizeof(struct sockaddr_in6)), EAFNOSUPPORT);
        a.sin_addr.s_addr = htonl(0xcb007101);
        CHECK_ERR(unet_bind(t, (struct sockaddr *)&a, sizeof a), EADDRNOTAVAIL);
        a = loopback(own_port());
        CHECK(unet_bind(t, (struct sockaddr *)&a, sizeof a) == 0);
        CHECK_ERR(unet_bind(t, (struct sockaddr *)&a, sizeof a), EINVAL);
        v = unet_socket(AF_INET, SOCK_STREAM, 0);
        a = loopback(port_of(t));
        CHECK_ERR(unet_bind(v, (struct sockaddr *)&a, sizeof a), EADDRINUSE);
        CHECK(unet_close(t) == 0 && unet_bind(v, (struct sockaddr *)&a, sizeof a) == 0);
        CHECK(unet_socket(AF_INET, SOCK_STREAM, 0) == t); /* the lowest number */
}

static void calls_that_make_no_sense(void **state)
{
        assert_int_equal(play_alone(wrong, 0), 0);
}

/* ---- ports are the kernel's too ---- */

static void ports(struct side *s)
{
        struct sockaddr_in a = loopback(own_port());
        int k = socket(AF_INET, SOCK_STREAM, 0), l = unet_socket(AF_INET, SOCK_STREAM, 0);

        CHECK(bind(k, (struct sockaddr *)&a, sizeof a) == 0 && listen(k, 1) == 0);
        CHECK_ERR(unet_bind(l, (struct sockaddr *)&a, sizeof a), EADDRINUSE);
        /* The kernel's. */
        CHECK_ERR(unet_connect(l, (struct sockaddr *)&a, sizeof a), ECONNREFUSED);
        close(k);
        CHECK(unet_bind(l, (struct sockaddr *)&a, sizeof a) == 0);
        k = socket(AF_INET, SOCK_STREAM, 0);
        CHECK_ERR(bind(k, (struct sockaddr *)&a, sizeof a), EADDRINUSE);
        CHECK(unet_close(l) == 0);
        CHECK(bind(k, (struct sockaddr *)&a, sizeof a) == 0);
        l = unet_socket(AF_INET, SOCK_STREAM, 0);
        CHECK(unet_listen(l, 1) == 0 && port_of(l) != 0);
}

static void binds_are_held_in_the_kernels_port_space(void **state)
{
        assert_int_equal(play_alone(ports, 0), 0);
}

/* ---- connecting ---- */

static void refused(struct side *s)
{
        int l = tcp_listen_at(own_port()), c = unet_socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in a = loopback(port_of(l)),
                           far = {.sin_family = AF_INET, .sin_port = htons(80)};

        far.sin_addr.s_addr = htonl(0xcb007101);
        CHECK(unet_close(l) == 0);
        CHECK_ERR(unet_connect(c, (struct sockaddr *)&a, sizeof a), ECONNREFUSED);
        CHECK_ERR(unet_connect(c, (struct sockaddr *)&far, sizeof far), ENETUNREACH);
        l = tcp_listen_any();
        a = loopback(port_of(l));
        CHECK(unet_connect(c, (struct sockaddr *)&a, sizeof a) == 0); /* tries again */
        CHECK_ERR(unet_connect(c, (struct sockaddr *)&a, sizeof a), EISCONN);
        CHECK_ERR(unet_connect(l, (struct sockaddr *)&a, sizeof a), EISCONN);
}

static void nobody_listens(void **state)
{
        assert_int_equal(play_alone(refused, 0), 0);
}

/* The listener goes while the attempt is under way: the socket may be bound, and try again. */
static void again_after_refusal(struct side *s)
{
        int l = tcp_listen_at(own_port()), c = unet_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0),
            r;
        struct sockaddr_in a = loopback(port_of(l)), b = loopback(0);

        CHECK(unet_connect(c, (struct sockaddr *)&a, sizeof a) == 0 || errno == EINPROGRESS);
        CHECK(unet_close(l) == 0);
        EVENTUALLY((r = unet_connect(c, (struct sockaddr *)&a, sizeof a)) == 0 ||
                   errno != EALREADY);
        CHECK(unet_set_nonblock(c, 0) == 0);
        if (r < 0)
                CHECK(unet_bind(c, (struct sockaddr *)&b, sizeof b) == 0);
        l = tcp_listen_any();
        a = loopback(port_of(l));
        CHECK(unet_connect(c, (struct sockaddr *)&a, sizeof a) == (r < 0 ? 0 : -1));
}

static void a_refused_socket_may_try_again(void **state)
{
        assert_int_equal(play_alone(again_after_refusal, 0), 0);
}

/* ---- the other side goes ---- */

static void gone_a(struct side *s)
{
        int c = side_connect(s), err = 0;
        socklen_t len = sizeof err;
        char buf[8];

        signal(SIGPIPE, SIG_DFL);
        CHECK(unet_send(c, "unread", 6, 0) == 6);
        tell(s, 0);
        hear(s);
        EVENTUALLY(unet_recv(c, buf, sizeof buf, MSG_DONTWAIT) < 0 && errno == ECONNRESET);
        CHECK_ERR(unet_send(c, "x", 1, 0), EPIPE);
        CHECK(unet_recv(c, buf, sizeof buf, 0) == 0);
        CHECK(unet_getsockopt(c, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err == 0);
}

static void gone_b(struct side *s)
{
        int c = side_accept(s), n = 0;

        hear(s);
        EVENTUALLY(unet_ioctl(c, 0x541B /* FIONREAD */, &n) == 0 && n == 6);
        CHECK(unet_close(c) == 0); /* with unread data: a reset */
        tell(s, 0);
}

static void closing_with_unread_data_resets(void **state)
{
        play_both(gone_a, gone_b, 0);
}

static void abort_a(struct side *s)
{
        int c = side_connect(s), err = 0;
        struct unet_pollfd p = {.fd = -1, .events = POLLIN};
        socklen_t len = sizeof err;

        p.sock = c;
        tell(s, 0);
        CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1 && p.revents & POLLERR && p.revents & POLLHUP);
        CHECK(unet_getsockopt(c, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err == ECONNRESET);
        CHECK(unet_recv(c, &err, 1, 0) == 0);
}

static void abort_b(struct side *s)
{
        int c = side_accept(s);
        struct linger l = {1, 0};

        hear(s);
        CHECK(unet_setsockopt(c, SOL_SOCKET, SO_LINGER, &l, sizeof l) == 0);
        CHECK(unet_close(c) == 0);
}

static void linger_of_nothing_resets(void **state)
{
        play_both(abort_a, abort_b, 0);
}

static void pipe_a(struct side *s)
{
        int c = side_connect(s);
        char buf[8];

        hear(s);
        EVENTUALLY(unet_send(c, "x", 1, 0) < 0); /* the first is answered by a reset */
        CHECK(errno == EPIPE || errno == ECONNRESET);
        CHECK_ERR(unet_send(c, "x", 1, 0), EPIPE);
        CHECK(unet_recv(c, buf, 1, 0) <= 0);
}

static void pipe_b(struct side *s)
{
        int c = side_accept(s);

        CHECK(unet_close(c) == 0);
        tell(s, 0);
}

static void writing_to_a_closed_connection(void **state)
{
        play_both(pipe_a, pipe_b, 0);
}

/* ---- a connection has ended, and another thread still copies from it ---- */

static void *asks_again(void *arg)
{
        const int *c = arg;
        struct sockaddr_in to = loopback(1);

        CHECK_ERR(unet_connect(*c, (struct sockaddr *)&to, sizeof to), ECONNRESET);
        return arg;
}

/* The one connection of this stack that has ended, and is a socket's; NULL: none has. */
static struct sock_rec *ended(struct ustack *u, const struct tcp_conn **tc)
{
        struct pool *p = &u->s.st->socks;

        for (uint32_t i = 1; i < p->fresh; i++) {
                struct sock_rec *rec = pool_at(p, i);
                *tc = rec->role == SOCK_ROLE_CONN ? tcp_conn_at(&u->s.tcp, rec->conn) : NULL;
                if (*tc != NULL && READ_ONCE((*tc)->state) == TCPS_CLOSED)
                        return rec;
        }
        return NULL;
}

static int reset_at_once(int l)
{
        const struct linger none = {1, 0};
        int c = unet_accept(l, NULL, NULL);

        CHECK(c >= 0 && unet_setsockopt(c, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
        return unet_close(c);
}

static void calls_go_on_beside_a_copy(struct side *s)
{
        int l = tcp_listen_any(), c = unet_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), err;
        struct unet_pollfd p = {.sock = c, .fd = -1};
        struct sockaddr_in to = loopback(port_of(l));
        struct ustack *u = ustack_mine(&err);
        const struct tcp_conn *tc;
        struct sock_rec *rec;
        pthread_t t;

        CHECK_ERR(unet_connect(c, (struct sockaddr *)&to, sizeof to), EINPROGRESS);
        CHECK(reset_at_once(l) == 0);
        CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1 && p.revents & POLLHUP);
        ustack_lock(u);
        rec = ended(u, &tc);
        CHECK(rec != NULL);
        WRITE_ONCE(rec->reader, u->slot + 1);
        ustack_leave(u);
        CHECK(pthread_create(&t, NULL, asks_again, &c) == 0);
        EVENTUALLY(READ_ONCE(tc->err) == 0); /* it has been taken: the undoing waits */
        CHECK_ERR(unet_listen(c, 1), EINVAL);
        ustack_lock(u);
        ustack_end_copies(u, rec, u->slot, ustack_now());
        ustack_leave(u);
        CHECK(pthread_join(t, NULL) == 0);
        CHECK(unet_close(c) == 0 && unet_close(l) == 0);
}

static void a_call_does_not_wait_for_one_that_waits_for_a_copy(void **state)
{
        assert_int_equal(play_alone(calls_go_on_beside_a_copy, 0), 0);
}

/* ---- close waits when it is told to ---- */

static void linger_a(struct side *s)
{
        int c = side_connect(s);
        struct linger l = {1, PATIENCE_MS / 1000};
        int64_t begin;
        static char big[200000];

        CHECK(unet_setsockopt(c, SOL_SOCKET, SO_LINGER, &l, sizeof l) == 0);
        CHECK(unet_send(c, big, sizeof big, 0) == sizeof big);
        tell(s, 0);
        begin = now_ms();
        CHECK(unet_close(c) == 0);
        CHECK(now_ms() - begin < PATIENCE_MS);
        tell(s, 1);
}

static void linger_b(struct side *s)
{
        int c = side_accept(s);
        static char big[200000];

        hear(s);
        sleep_ms(50);
        CHECK(unet_recv(c, big, sizeof big, MSG_WAITALL) == sizeof big);
        CHECK(unet_recv(c, big, 1, 0) == 0);
        CHECK(hear(s) == 1);
}

static void a_lingering_close_waits_for_its_data(void **state)
{
        play_both(linger_a, linger_b, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(calls_that_make_no_sense),
                cmocka_unit_test(binds_are_held_in_the_kernels_port_space),
                cmocka_unit_test(nobody_listens),
                cmocka_unit_test(a_refused_socket_may_try_again),
                cmocka_unit_test(closing_with_unread_data_resets),
                cmocka_unit_test(a_call_does_not_wait_for_one_that_waits_for_a_copy),
                cmocka_unit_test(linger_of_nothing_resets),
                cmocka_unit_test(writing_to_a_closed_connection),
                cmocka_unit_test(a_lingering_close_waits_for_its_data),
        };

        return run_sides(tests);
}
