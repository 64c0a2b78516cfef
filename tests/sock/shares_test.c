/* <unet/flow.h>: limits that many sockets have in common, between processes. */
#include "tests/sock/sides.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unet/flow.h"

#define CLIENTS 3
#define RECEIVE 300000u

static struct unet_group limits(void)
{
        return (struct unet_group){
                .size = sizeof(struct unet_group), .members = CLIENTS, .receive = RECEIVE};
}

static struct unet_group group_of(int sock)
{
        struct unet_group g = {.size = sizeof g};

        CHECK(unet_group_get(sock, &g) == 0);
        return g;
}

static int listens_with(struct side *s, const struct unet_group *g)
{
        int l = tcp_listen_any();

        CHECK(unet_group_set(l, g) == 0);
        tell(s, port_of(l));
        return l;
}

static void accepts_all(int l, int *c)
{
        for (int i = 0; i < CLIENTS; i++) {
                c[i] = unet_accept(l, NULL, NULL);
                CHECK(c[i] >= 0);
        }
}

static void waits_for_its_end(int c)
{
        uint8_t any;

        EVENTUALLY(unet_recv(c, &any, 1, MSG_DONTWAIT) == 0);
        CHECK(unet_close(c) == 0);
}

/* ---- what a listener accepts is in its group, and no more than there are places ---- */

static bool is_connected(int c)
{
        struct unet_pollfd p = {.sock = c, .events = POLLOUT};

        return unet_poll(&p, 1, 0) == 1 && p.revents & POLLOUT;
}

static void connects_one_too_many(struct side *s)
{
        uint16_t port = (uint16_t)hear(s);
        struct sockaddr_in to = loopback(port);
        int c[CLIENTS], late = unet_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

        for (int i = 0; i < CLIENTS; i++)
                c[i] = tcp_connect_to(port);
        CHECK(hear(s) == CLIENTS);
        CHECK_ERR(unet_connect(late, (struct sockaddr *)&to, sizeof to), EINPROGRESS);
        sleep_ms(50);
        CHECK(!is_connected(late));
        waits_for_its_end(c[0]);
        tell(s, 0);
        EVENTUALLY(is_connected(late));
        tell(s, 0);
        waits_for_its_end(late);
        for (int i = 1; i < CLIENTS; i++)
                waits_for_its_end(c[i]);
}

static void has_so_many_places(struct side *s)
{
        struct unet_group g = limits();
        int l = listens_with(s, &g), c[CLIENTS], late;

        CHECK(group_of(l).least == RECEIVE / 2 / CLIENTS && group_of(l).members == CLIENTS);
        accepts_all(l, c);
        CHECK(group_of(l).in == CLIENTS && group_of(c[0]).in == CLIENTS);
        CHECK(group_of(l).held <= RECEIVE);
        tell(s, CLIENTS);
        CHECK(unet_close(c[0]) == 0);
        hear(s);
        late = unet_accept(l, NULL, NULL);
        CHECK(late >= 0 && group_of(late).in == CLIENTS);
        hear(s);
        CHECK(unet_group_set(late, NULL) == 0);
        CHECK_ERR(unet_group_get(late, &g), ENOENT);
        CHECK(group_of(l).in == CLIENTS - 1);
        CHECK(unet_close(late) == 0 && unet_close(c[1]) == 0 && unet_close(c[2]) == 0);
        EVENTUALLY(group_of(l).in == 0 && group_of(l).held == 0);
        CHECK(unet_close(l) == 0);
}

static void a_listener_has_no_more_members_than_places(void **state)
{
        play_both(connects_one_too_many, has_so_many_places, 0);
}

/* ---- what clients may send together is the limit ---- */

static void send_what_they_may(struct side *s)
{
        static uint8_t data[100000];
        uint16_t port = (uint16_t)hear(s);
        uint64_t sent = 0, quiet = 0;
        int c[CLIENTS];

        for (int i = 0; i < CLIENTS; i++)
                c[i] = tcp_connect_to(port);
        hear(s);
        for (int i = 0; i < CLIENTS; i++) {
                ssize_t n = unet_send(c[i], data, sizeof data, MSG_DONTWAIT);
                CHECK(n > 0);
                sent += (uint64_t)n;
        }
        CHECK(sent > RECEIVE / 2);
        tell(s, sent);
        quiet = hear(s);
        CHECK(quiet <= RECEIVE);
        for (int i = 0; i < CLIENTS; i++)
                CHECK(unet_shutdown(c[i], SHUT_WR) == 0);
        for (int i = 0; i < CLIENTS; i++)
                waits_for_its_end(c[i]);
}

static uint64_t unread_of(const int *c)
{
        uint64_t sum = 0;

        for (int i = 0; i < CLIENTS; i++) {
                struct unet_feedback f;
                CHECK(unet_feedback(c[i], &f) == 0);
                sum += f.unread;
        }
        return sum;
}

static void takes_no_more_than_the_limit(struct side *s)
{
        struct unet_group g = limits();
        int l = listens_with(s, &g), c[CLIENTS];
        static uint8_t got[65536];
        uint64_t sent, read = 0;

        accepts_all(l, c);
        tell(s, 0);
        sent = hear(s);
        /* Unread are the least of each, as nobody has read; all of it came before it was more. */
        EVENTUALLY(unread_of(c) == RECEIVE / 2);
        tell(s, unread_of(c));
        for (int i = 0; i < CLIENTS; i++) {
                for (ssize_t n; (n = unet_recv(c[i], got, sizeof got, 0)) != 0; read += (size_t)n)
                        CHECK(n > 0 && group_of(l).held <= RECEIVE);
                CHECK(unet_close(c[i]) == 0);
        }
        CHECK(read == sent);
        CHECK(unet_close(l) == 0);
}

static void clients_together_send_no_more_than_the_limit(void **state)
{
        play_both(send_what_they_may, takes_no_more_than_the_limit, 0);
}

/* ---- what a server may write to all of them is the limit ---- */

#define SEND 60000u

static void read_when_told(struct side *s)
{
        static uint8_t got[65536];
        uint16_t port = (uint16_t)hear(s);
        uint64_t read = 0;
        int c[CLIENTS];

        for (int i = 0; i < CLIENTS; i++)
                c[i] = tcp_connect_to(port);
        hear(s);
        for (int i = 0; i < CLIENTS; i++) {
                for (ssize_t n; (n = unet_recv(c[i], got, sizeof got, 0)) != 0; read += (size_t)n)
                        CHECK(n > 0);
                CHECK(unet_close(c[i]) == 0);
        }
        tell(s, read);
}

static bool is_writable(int c)
{
        struct unet_pollfd p = {.sock = c, .events = POLLOUT};

        return unet_poll(&p, 1, 0) == 1 && p.revents & POLLOUT;
}

/* Each writes what it may. Bytes taken. */
static uint64_t writes_to_all(int l, const int *c)
{
        static const uint8_t data[10000];
        uint64_t written = 0, sum = 0;

        for (int i = 0; i < CLIENTS; i++) {
                ssize_t n = unet_send(c[i], data, sizeof data, MSG_DONTWAIT);
                CHECK(n > 0 || errno == EAGAIN);
                written += (uint64_t)(n > 0 ? n : 0);
                CHECK(group_of(l).queued <= SEND);
        }
        for (int i = 0; i < CLIENTS; i++) {
                int out;
                CHECK(unet_ioctl(c[i], SIOCOUTQ, &out) == 0);
                sum += (uint64_t)out;
        }
        CHECK(sum <= SEND);
        return written;
}

/* Half of the limit is refused, as more is written. Where it is not yet, the limit is as it was. */
static bool is_more_than_half(int l)
{
        struct unet_group g = {.size = sizeof g, .members = CLIENTS, .send = SEND / 2};

        if (unet_group_set(l, &g) != 0) {
                CHECK(errno == ENOSPC);
                return true;
        }
        g.send = SEND;
        CHECK(unet_group_set(l, &g) == 0);
        return false;
}

/* Nobody reads, so the windows of all end, and then the group's memory. Until then what is written
 * may be acknowledged at any moment. */
static void writes_until_it_waits(struct side *s)
{
        static const uint8_t data[10000];
        struct unet_group g = {.size = sizeof g, .members = CLIENTS, .send = SEND};
        int l = listens_with(s, &g), c[CLIENTS];
        uint64_t written = 0, more;

        accepts_all(l, c);
        CHECK(group_of(l).send == SEND && group_of(l).least == SEND / 2 / CLIENTS);
        do {
                more = writes_to_all(l, c);
                written += more;
        } while (more != 0 || is_writable(c[0]) || !is_more_than_half(l));
        tell(s, 0);
        for (int i = 0; i < CLIENTS; i++) {
                CHECK(unet_send(c[i], data, sizeof data, 0) == sizeof data); /* waits */
                written += sizeof data;
                CHECK(unet_shutdown(c[i], SHUT_WR) == 0);
        }
        CHECK(hear(s) == written);
        for (int i = 0; i < CLIENTS; i++)
                waits_for_its_end(c[i]);
        EVENTUALLY(group_of(l).queued == 0);
        CHECK(unet_close(l) == 0);
}

static void a_server_has_no_more_written_than_the_limit(void **state)
{
        play_both(read_when_told, writes_until_it_waits, 0);
}

/* ---- a group is shared over fork(), and loses the members of who is killed ---- */

static void connects_three_times(struct side *s)
{
        uint16_t port = (uint16_t)hear(s);
        int c[CLIENTS];
        uint8_t any;

        for (int i = 0; i < CLIENTS; i++)
                c[i] = tcp_connect_to(port);
        hear(s);
        for (int i = 0; i < CLIENTS; i++) {
                unet_recv(c[i], &any, 1, 0); /* the end, or a reset */
                CHECK(unet_close(c[i]) == 0);
        }
}

static _Noreturn void child_that_is_killed(int l, const int *c)
{
        struct unet_group g = group_of(l);

        if (g.in != CLIENTS || unet_close(l) != 0)
                _exit(1);
        g.receive = 2 * RECEIVE;
        if (unet_group_set(c[0], &g) != 0)
                _exit(2);
        for (;;)
                pause();
}

static void has_a_child(struct side *s)
{
        struct unet_group g = limits();
        int l = listens_with(s, &g), c[CLIENTS], status;
        pid_t pid;

        accepts_all(l, c);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
                child_that_is_killed(l, c);
        EVENTUALLY(group_of(l).receive == 2 * RECEIVE);
        for (int i = 0; i < CLIENTS; i++)
                CHECK(unet_close(c[i]) == 0);
        CHECK(group_of(l).in == CLIENTS);
        CHECK(kill(pid, SIGKILL) == 0);
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
        tell(s, 0);
        EVENTUALLY(group_of(l).in == 0 && group_of(l).held == 0);
        CHECK(unet_close(l) == 0);
}

static void a_group_outlives_a_process_and_not_its_sockets(void **state)
{
        play(TWO_PROCESSES, connects_three_times, has_a_child, 0);
}

/* ---- what is refused ---- */

static void is_refused(struct side *s)
{
        struct unet_group g = limits();
        struct sockaddr_in to;
        int l = tcp_listen_any(), other = tcp_listen_any(), c, a,
            udp = unet_socket(AF_INET, SOCK_DGRAM, 0);

        (void)s;
        to = loopback(port_of(l));
        c = unet_socket(AF_INET, SOCK_STREAM, 0);
        CHECK_ERR(unet_group_set(c, &g), ENOTCONN);
        CHECK_ERR(unet_group_set(udp, &g), EOPNOTSUPP);
        CHECK_ERR(unet_group_set(-1, &g), EBADF);
        CHECK_ERR(unet_group_get(l, &g), ENOENT);
        CHECK_ERR(unet_group_join(other, l), ENOENT);
        CHECK_ERR(unet_group_join(l, -1), EBADF);
        CHECK_ERR(unet_group_join(l, udp), EOPNOTSUPP);
        g.members = 0;
        CHECK_ERR(unet_group_set(l, &g), EINVAL);
        g = limits();
        g.least = RECEIVE / CLIENTS + 1;
        CHECK_ERR(unet_group_set(l, &g), EINVAL);
        g.least = 1023;
        CHECK_ERR(unet_group_set(l, &g), EINVAL);
        g = (struct unet_group){.size = sizeof g, .least = 5000};
        CHECK_ERR(unet_group_set(l, &g), EINVAL);
        g = (struct unet_group){.size = sizeof g, .send = 5000};
        CHECK_ERR(unet_group_set(l, &g), EINVAL); /* of how many? */
        g.members = 3;                            /* 833 each */
        CHECK_ERR(unet_group_set(l, &g), EINVAL);
        g.size = 3;
        CHECK_ERR(unet_group_set(l, &g), EINVAL);
        g = limits();
        CHECK(unet_group_set(l, &g) == 0 && unet_group_join(other, l) == 0);
        CHECK(unet_connect(c, (struct sockaddr *)&to, sizeof to) == 0);
        a = unet_accept(l, NULL, NULL);
        CHECK(a >= 0 && group_of(other).in == 1);
        /* A client was promised what a buffer holds, before it could enter. */
        CHECK_ERR(unet_group_join(c, other), ENOSPC);
        g.receive = 6200; /* 1,033 each */
        CHECK_ERR(unet_group_set(other, &g), ENOSPC);
        CHECK(group_of(l).receive == RECEIVE);
        g.receive = 100 << 20;
        CHECK(unet_group_set(l, &g) == 0 && unet_group_join(c, other) == 0);
        CHECK(group_of(a).in == 2);
        g.members = 1;
        CHECK_ERR(unet_group_set(l, &g), ENOSPC);
        CHECK(unet_close(l) == 0 && unet_close(other) == 0);
        CHECK(group_of(c).in == 2);
        CHECK(unet_close(a) == 0 && unet_close(c) == 0 && unet_close(udp) == 0);
}

static void what_cannot_be_is_refused(void **state)
{
        assert_int_equal(play_alone(is_refused, 0), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_listener_has_no_more_members_than_places),
                cmocka_unit_test(clients_together_send_no_more_than_the_limit),
                cmocka_unit_test(a_server_has_no_more_written_than_the_limit),
                cmocka_unit_test(a_group_outlives_a_process_and_not_its_sockets),
                cmocka_unit_test(what_cannot_be_is_refused),
        };

        return run_sides(tests);
}
