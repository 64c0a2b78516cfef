/* <unet/flow.h>: receiving by loan, and sending from the memory that is sent. */
#include "tests/sock/sides.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sock/attach/ustack.h"
#include "unet/flow.h"

#define MANY 512

/* ---- any order ---- */

#define STREAM (8u << 20)

static void writes_in_place(int c, uint64_t seed, uint64_t pos, size_t bytes)
{
        struct iovec v[UNET_RESERVE_MOST];

        while (bytes != 0) {
                int n = unet_send_reserve(c, bytes, v, UNET_RESERVE_MOST, 0);
                size_t sum = 0;

                CHECK(n > 0 && n <= UNET_RESERVE_MOST);
                for (int i = 0; i < n; i++) {
                        fill(v[i].iov_base, v[i].iov_len, seed, pos + sum);
                        sum += v[i].iov_len;
                }
                CHECK(sum > 0 && sum <= bytes);
                CHECK(unet_send_commit(c, sum, 0) == (ssize_t)sum);
                pos += sum;
                bytes -= sum;
        }
}

static void sends_in_place(struct side *s)
{
        int c = side_connect(s);

        writes_in_place(c, s->arg, 0, STREAM);
        CHECK(unet_close(c) == 0);
}

static void lends_and_returns_in_any_order(struct side *s)
{
        static struct unet_loan held[MANY];
        static uint64_t at[MANY];
        uint64_t pos = 0, state = s->arg;
        int c = side_accept(s), n = 0, got;

        do {
                got = unet_recv_lend(c, &held[n], MANY - n < 8 ? MANY - n : 8, 0);
                CHECK(got >= 0);
                for (int i = n; i < n + got; i++) {
                        at[i] = pos;
                        pos += held[i].len;
                }
                n += got;
                while (n > (got == 0 ? 0 : (int)(rnd(&state) % 9))) {
                        int i = (int)(rnd(&state) % (uint64_t)n);
                        CHECK(filled(held[i].ptr, held[i].len, s->arg, at[i]));
                        CHECK(unet_recv_return(c, &held[i], 1) == 0);
                        CHECK_ERR(unet_recv_return(c, &held[i], 1), EINVAL);
                        held[i] = held[--n];
                        at[i] = at[n];
                }
        } while (got != 0);
        CHECK(pos == STREAM);
        CHECK(unet_close(c) == 0);
}

static void loans_are_returned_in_any_order(void **state)
{
        play_both(sends_in_place, lends_and_returns_in_any_order, test_seed());
}

/* ---- who keeps what it was lent shuts its window, and nothing else ---- */

static const uint8_t data[1 << 20];

static int side_accept_from(struct side *s, int l)
{
        int c;

        tell(s, port_of(l));
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0);
        return c;
}

static ssize_t sends_until_shut(int c)
{
        struct unet_pollfd p = {.sock = c, .fd = -1, .events = POLLOUT};
        ssize_t sum = 0, n;

        while (unet_poll(&p, 1, 300) == 1)
                while ((n = unet_send(c, data, sizeof data, MSG_DONTWAIT)) > 0)
                        sum += n;
        return sum;
}

static void fills_and_talks_on(struct side *s)
{
        int kept = side_connect(s), talk = side_connect(s);
        char word[4];

        tell(s, (uint64_t)sends_until_shut(kept));
        for (int i = 0; i < 100; i++) {
                CHECK(unet_send(talk, "ping", 4, 0) == 4);
                CHECK(unet_recv(talk, word, 4, MSG_WAITALL) == 4);
        }
        tell(s, 1);
        CHECK(unet_send(kept, data, sizeof data, 0) == sizeof data);
        CHECK(unet_close(kept) == 0 && unet_close(talk) == 0);
}

/* Lends all that comes, until so much has, and hardly more: the window stays open. */
static int lends_all(int c, uint64_t bytes, struct unet_loan held[MANY])
{
        int n = 0, got;

        for (uint64_t sum = 0; sum < bytes; n += got) {
                got = n < MANY ? unet_recv_lend(c, &held[n], 1, 0) : 0;
                CHECK(got == 1);
                for (int i = n; i < n + got; i++)
                        sum += held[i].len;
        }
        return n;
}

static uint64_t reads_to_the_end(int c)
{
        static uint8_t buf[65536];
        uint64_t sum = 0;
        ssize_t n;

        while ((n = unet_recv(c, buf, sizeof buf, 0)) > 0)
                sum += (uint64_t)n;
        CHECK(n == 0);
        return sum;
}

static void keeps_and_talks_on(struct side *s)
{
        static struct unet_loan held[MANY];
        int l = tcp_listen_any(), kept = side_accept_from(s, l), talk = side_accept_from(s, l), n;
        char word[4];

        n = lends_all(kept, 100000, held);
        tell(s, 0);
        for (int i = 0; i < 100; i++) {
                CHECK(unet_recv(talk, word, 4, MSG_WAITALL) == 4);
                CHECK(unet_send(talk, "pong", 4, 0) == 4);
        }
        CHECK(unet_recv_return(kept, held, n) == 0);
        CHECK(unet_close(talk) == 0 && unet_close(l) == 0);
        reads_to_the_end(kept);
        CHECK(unet_close(kept) == 0);
}

static void who_returns_nothing_holds_its_peer_up_and_nobody_else(void **state)
{
        play_both(fills_and_talks_on, keeps_and_talks_on, 0);
}

/* ---- whose process ends gives back what it was lent ---- */

#define KEPT_LEAST 400000u

static void sends_it_all(struct side *s)
{
        int c = side_connect(s);
        size_t bytes = 4 * sizeof data;

        for (size_t sent = 0; sent < bytes; sent += sizeof data)
                CHECK(unet_send(c, data, sizeof data, 0) == sizeof data);
        CHECK(unet_close(c) == 0);
}

/* The child keeps what it was lent, and is killed; what nobody was lent is its parent's to read. */
static void child_dies_with_loans(struct side *s)
{
        static struct unet_loan held[MANY];
        int c = side_accept(s), told[2], status, n;
        uint64_t kept = 0;
        pid_t child;

        CHECK(pipe(told) == 0);
        child = fork();
        if (child == 0) {
                n = lends_all(c, KEPT_LEAST, held);
                for (int i = 0; i < n; i++)
                        kept += held[i].len;
                CHECK(write(told[1], &kept, sizeof kept) == sizeof kept);
                pause();
        }
        CHECK(read(told[0], &kept, sizeof kept) == sizeof kept);
        if (s->arg == 0)
                CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
        CHECK(kept + reads_to_the_end(c) == 4 * sizeof data);
        if (s->arg != 0)
                CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
        CHECK(unet_close(c) == 0);
}

static void a_process_that_dies_gives_back_what_it_was_lent(void **state)
{
        for (uint64_t late = 0; late < 2; late++)
                play(TWO_PROCESSES, sends_it_all, child_dies_with_loans, late);
}

/* A window of no more than the child keeps: it opens when the child is dead, and only then. */
static void sends_as_its_window_opens(struct side *s)
{
        int c = side_connect(s);
        uint8_t ack;

        tell(s, (uint64_t)sends_until_shut(c));
        CHECK(hear(s) == 1);
        CHECK(unet_send(c, data, sizeof data, 0) == sizeof data);
        CHECK(unet_shutdown(c, SHUT_WR) == 0);
        CHECK(unet_recv(c, &ack, 1, 0) == 0);
        CHECK(unet_close(c) == 0);
}

static void child_shuts_the_window(struct side *s)
{
        static struct unet_loan held[MANY];
        int l = tcp_listen_any(), c, told[2], n, got = 1;
        struct unet_window w = {.size = sizeof w, .mode = UNET_WINDOW_SIZE, .bytes = 100000};
        uint64_t sent;
        pid_t child;

        CHECK(unet_window_set(l, &w) == 0 && pipe(told) == 0);
        c = side_accept_from(s, l);
        child = fork();
        if (child == 0) {
                for (n = 0; n < MANY && got > 0; n += got > 0 ? got : 0) {
                        struct unet_pollfd p = {.sock = c, .fd = -1, .events = POLLIN};
                        got = unet_poll(&p, 1, 1000) == 1 ? unet_recv_lend(c, &held[n], 8, 0) : 0;
                }
                CHECK(write(told[1], "x", 1) == 1);
                pause();
        }
        sent = hear(s);
        CHECK(read(told[0], &(char){0}, 1) == 1);
        CHECK(unet_window_get(c, &w) == 0);
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
        tell(s, 1);
        CHECK(reads_to_the_end(c) + sent >= sizeof data);
        CHECK(unet_close(c) == 0 && unet_close(l) == 0);
}

static void a_window_that_a_dead_process_had_shut_opens(void **state)
{
        play(TWO_PROCESSES, sends_as_its_window_opens, child_shuts_the_window, 0);
}

/* ---- whose a loan is ---- */

static void sends_a_little(struct side *s)
{
        int c = side_connect(s);

        CHECK(unet_send(c, data, 10000, 0) == 10000);
        CHECK(hear(s) == 1);
        CHECK(unet_close(c) == 0);
}

static void asks_who_may_return(struct side *s)
{
        int c = side_accept(s), other, status;
        struct unet_loan v[4], none = {.token = 12345};
        struct unet_pollfd p = {.sock = c, .fd = -1, .events = POLLIN};
        pid_t child;

        CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1);
        CHECK_ERR(unet_recv_lend(c, NULL, 4, 0), EFAULT);
        CHECK_ERR(unet_recv_lend(c, v, 0, 0), EINVAL);
        CHECK_ERR(unet_recv_lend(c, v, 4, MSG_PEEK), EINVAL);
        CHECK_ERR(unet_recv_lend(999, v, 4, 0), EBADF);
        CHECK(unet_recv_lend(c, v, 1, 0) == 1 && v[0].len != 0);
        CHECK_ERR(unet_recv_return(c, &none, 1), EINVAL);
        other = unet_socket(AF_INET, SOCK_STREAM, 0);
        CHECK_ERR(unet_recv_lend(other, v + 1, 1, 0), ENOTCONN);
        CHECK_ERR(unet_recv_return(other, v, 1), EINVAL);
        CHECK(unet_close(other) == 0);
        other = unet_socket(AF_INET, SOCK_DGRAM, 0);
        CHECK_ERR(unet_recv_lend(other, v + 1, 1, 0), EOPNOTSUPP);
        CHECK(unet_close(other) == 0);
        child = fork();
        if (child == 0) {
                CHECK_ERR(unet_recv_return(c, v, 1), EINVAL);
                _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(unet_recv_return(c, v, 1) == 0);
        CHECK_ERR(unet_recv_return(c, v, 1), EINVAL);
        tell(s, 1);
        while (unet_recv_lend(c, v, 4, 0) > 0) /* the socket's end returns them */
                ;
        CHECK(unet_close(c) == 0);
}

static void a_loan_is_its_process_s(void **state)
{
        play(TWO_PROCESSES, sends_a_little, asks_who_may_return, 0);
}

/* ---- reservations ---- */

static void reserves(struct side *s)
{
        int c = side_connect(s), status, n;
        struct iovec v[4], w[4];
        pid_t child;

        CHECK_ERR(unet_send_commit(c, 1, 0), EINVAL);
        CHECK_ERR(unet_send_reserve(c, 100, NULL, 4, 0), EFAULT);
        CHECK_ERR(unet_send_reserve(c, 0, v, 4, 0), EINVAL);
        n = unet_send_reserve(c, 100, v, 4, 0);
        CHECK(n == 1 && v[0].iov_len == 100);
        CHECK_ERR(unet_send_reserve(c, 100, w, 4, 0), EBUSY);
        CHECK_ERR(unet_send(c, "no", 2, MSG_DONTWAIT), EAGAIN);
        CHECK_ERR(unet_send_commit(c, 101, 0), EINVAL);
        memcpy(v[0].iov_base, "abc", 3);
        CHECK(unet_send_commit(c, 3, 0) == 3);
        CHECK(unet_send_reserve(c, 100, v, 4, 0) == 1);
        CHECK(unet_send_commit(c, 0, 0) == 0);
        CHECK(unet_send(c, "de", 2, 0) == 2);
        n = unet_send_reserve(c, 10, v, 4, 0);
        CHECK(n == 1);
        memcpy(v[0].iov_base, "f", 1);
        child = fork();
        if (child == 0) { /* it is the parent's */
                CHECK_ERR(unet_send_commit(c, 1, 0), EINVAL);
                _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(unet_send_commit(c, 1, 0) == 1);
        child = fork();
        if (child == 0) {
                CHECK(unet_send_reserve(c, 10, v, 4, 0) > 0);
                kill(getpid(), SIGKILL);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        CHECK(unet_send(c, "g", 1, 0) == 1); /* when the dead one's has ended */
        CHECK(unet_send_reserve(c, 10, v, 4, 0) == 1);
        CHECK(unet_close(c) == 0); /* with one under way */
}

static void reads_what_was_committed(struct side *s)
{
        int c = side_accept(s);
        char got[8];

        CHECK(unet_recv(c, got, sizeof got, MSG_WAITALL) == 7);
        CHECK(memcmp(got, "abcdefg", 7) == 0);
        CHECK(unet_close(c) == 0);
}

static void what_is_committed_is_sent_and_nothing_else(void **state)
{
        play(TWO_PROCESSES, reserves, reads_what_was_committed, 0);
}

static void reserves_until_full(struct side *s)
{
        int c = side_connect(s), n;
        struct iovec v[UNET_RESERVE_MOST];
        struct unet_pollfd p = {.sock = c, .fd = -1};
        size_t sum, all = 0;

        while ((n = unet_send_reserve(c, sizeof data, v, UNET_RESERVE_MOST, MSG_DONTWAIT)) > 0) {
                sum = 0;
                for (int i = 0; i < n; i++)
                        sum += v[i].iov_len;
                CHECK(unet_send_commit(c, sum, 0) == (ssize_t)sum);
                all += sum;
        }
        CHECK(n == -1 && errno == EAGAIN);
        tell(s, all);
        CHECK(unet_send_reserve(c, 1, v, 1, 0) == 1); /* waits for the reader */
        tell(s, 0);
        CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1 && p.revents & POLLHUP);
        CHECK(unet_send(c, "no", 2, 0) == -1); /* nobody's turn will come */
        CHECK_ERR(unet_send(c, data, sizeof data, 0), EPIPE);
        CHECK_ERR(unet_send_commit(c, 1, 0), EPIPE);
        CHECK(unet_close(c) == 0);
}

/* Reads half of what there is, and closes with the rest unread. */
static void reads_and_resets(struct side *s)
{
        static uint8_t buf[1 << 20];
        int c = side_accept(s);
        uint64_t half = hear(s) / 2;

        for (ssize_t n; half != 0; half -= (uint64_t)n) {
                n = unet_recv(c, buf, half < sizeof buf ? half : sizeof buf, 0);
                CHECK(n > 0);
        }
        CHECK(hear(s) == 0);
        CHECK(unet_close(c) == 0);
}

static void a_reservation_waits_and_may_find_its_peer_gone(void **state)
{
        play(TWO_PROCESSES, reserves_until_full, reads_and_resets, 0);
}

/* ---- the socket has another connection by then ---- */

static uint32_t connections(void)
{
        int err;

        return READ_ONCE(ustack_mine(&err)->s.tcp.sh->conns.used);
}

/* The first attempt is made, and its connection reset, before connect() is asked what it came to.
 */
static void reserves_and_connects_again(struct side *s)
{
        struct sockaddr_in to = loopback((uint16_t)hear(s));
        int c = unet_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        struct unet_pollfd p = {.sock = c, .fd = -1, .events = POLLOUT};
        struct iovec v[4];

        CHECK_ERR(unet_connect(c, (struct sockaddr *)&to, sizeof to), EINPROGRESS);
        CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1);
        CHECK(unet_send_reserve(c, 10, v, 4, 0) == 1);
        tell(s, 0);
        p.events = 0;
        CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1 && p.revents & POLLHUP);
        CHECK_ERR(unet_connect(c, (struct sockaddr *)&to, sizeof to), ECONNRESET);
        CHECK_ERR(unet_connect(c, (struct sockaddr *)&to, sizeof to), EINPROGRESS);
        CHECK(connections() == 2);
        if (s->arg == 0) {
                CHECK_ERR(unet_send_commit(c, 1, 0), EPIPE);
                CHECK(connections() == 1);
                p.events = POLLOUT;
                CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1);
                CHECK(unet_send(c, "x", 1, 0) == 1);
        }
        p.events = POLLIN;
        CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1 && unet_recv(c, &to, 1, 0) == 0);
        CHECK(unet_close(c) == 0);
        EVENTUALLY(connections() == 0);
        tell(s, 0);
}

static void resets_the_first(struct side *s)
{
        const struct linger none = {1, 0};
        int l = tcp_listen_any(), c;
        char got[2];

        tell(s, port_of(l));
        c = unet_accept(l, NULL, NULL);
        hear(s);
        CHECK(unet_setsockopt(c, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
        CHECK(unet_close(c) == 0);
        c = unet_accept(l, NULL, NULL);
        CHECK(s->arg != 0 || unet_recv(c, got, 2, 0) == 1);
        CHECK(unet_close(c) == 0);
        hear(s);
        CHECK(unet_close(l) == 0);
}

static void a_reservation_is_of_the_connection_that_there_was(void **state)
{
        play(TWO_PROCESSES, reserves_and_connects_again, resets_the_first, 0);
        play(TWO_PROCESSES, reserves_and_connects_again, resets_the_first, 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(loans_are_returned_in_any_order),
                cmocka_unit_test(who_returns_nothing_holds_its_peer_up_and_nobody_else),
                cmocka_unit_test(a_process_that_dies_gives_back_what_it_was_lent),
                cmocka_unit_test(a_window_that_a_dead_process_had_shut_opens),
                cmocka_unit_test(a_loan_is_its_process_s),
                cmocka_unit_test(what_is_committed_is_sent_and_nothing_else),
                cmocka_unit_test(a_reservation_waits_and_may_find_its_peer_gone),
                cmocka_unit_test(a_reservation_is_of_the_connection_that_there_was),
        };

        return run_sides(tests);
}
