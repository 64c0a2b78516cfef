/* <unet/flow.h>: events of a connection in poll sets, and a set in somebody else's event loop. */
#include "tests/sock/sides.h"

#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unet/flow.h"

static void watches(int sock, struct unet_watch w)
{
        w.size = sizeof w;
        CHECK(unet_watch_set(sock, &w) == 0);
}
#define WATCH(sock, ...) watches((sock), (struct unet_watch){__VA_ARGS__})

static struct unet_happened took(int sock)
{
        struct unet_happened h = {.size = sizeof h};

        CHECK(unet_watch_take(sock, &h) == 0);
        return h;
}

static struct unet_pollset *set_of(int sock, uint32_t events)
{
        struct unet_pollset *set = unet_pollset_create();

        CHECK(set != NULL && unet_pollset_add(set, sock, events, 7) == 0);
        return set;
}

/* The events of the one socket in the set; 0 after the time. */
static uint32_t waited(struct unet_pollset *set, int ms)
{
        struct unet_event ev;
        int n = unet_pollset_wait(set, &ev, 1, ms);

        CHECK(n == 0 || (n == 1 && ev.data == 7));
        return n == 1 ? ev.events : 0;
}

/* Reads what it is told to, and grants what it is told to; 0 ends it. */
enum { READ = 1, GRANT = 2 };

static void obeys(struct side *s)
{
        struct unet_window w = {.size = sizeof w, .mode = UNET_WINDOW_CREDIT, .bytes = 0};
        static uint8_t buf[65536];
        int l = tcp_listen_any(), c;
        uint64_t what;

        CHECK(unet_window_set(l, &w) == 0);
        tell(s, port_of(l));
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0);
        while ((what = hear(s)) != 0) {
                uint32_t n = (uint32_t)(what >> 2);
                if ((what & 3) == GRANT)
                        CHECK(unet_window_grant(c, n) == 0);
                else
                        CHECK(unet_recv(c, buf, n, MSG_WAITALL) == (ssize_t)n);
                tell(s, what);
        }
        CHECK(unet_close(c) == 0 && unet_close(l) == 0);
}

static void asks(struct side *s, uint64_t what, uint32_t n)
{
        CHECK(n < 65536);
        tell(s, what | (uint64_t)n << 2);
        hear(s);
}

static const uint8_t data[100000];

static void hears_of_marks(struct side *s)
{
        int c = side_connect(s);
        struct unet_pollset *set;

        CHECK(unet_send(c, data, 30000, 0) == 30000);
        set = set_of(c, UNET_EV_ACKED | UNET_EV_UNSENT);
        CHECK(waited(set, 0) == 0); /* nobody watches yet */
        WATCH(c, .acked = 10000, .unsent_below = 5000);
        CHECK(waited(set, 0) == 0);
        asks(s, GRANT, 9999);
        CHECK(waited(set, 20) == 0);
        asks(s, GRANT, 1);
        CHECK(waited(set, PATIENCE_MS) == UNET_EV_ACKED);
        CHECK(waited(set, 0) == UNET_EV_ACKED); /* as long as it is so */
        CHECK(took(c).acked == 10000 && took(c).unsent == 20000);
        WATCH(c, .acked = 30000, .unsent_below = 5000);
        CHECK(waited(set, 0) == 0);
        asks(s, READ, 10000);
        asks(s, GRANT, 15000);
        CHECK(waited(set, 20) == 0);
        asks(s, GRANT, 1);
        CHECK(waited(set, PATIENCE_MS) == UNET_EV_UNSENT);
        asks(s, GRANT, 4999);
        EVENTUALLY(waited(set, PATIENCE_MS) == (UNET_EV_UNSENT | UNET_EV_ACKED));
        WATCH(c, .acked = 30001);
        CHECK(waited(set, 0) == 0);
        CHECK(unet_watch_set(c, NULL) == 0);
        CHECK(waited(set, 0) == 0);
        tell(s, 0);
        unet_pollset_destroy(set);
        CHECK(unet_close(c) == 0);
}

static void marks_are_told_while_they_are_reached(void **state)
{
        play_both(hears_of_marks, obeys, 0);
}

static void hears_once(struct side *s)
{
        int c = side_connect(s);
        struct unet_pollset *set = set_of(c, UNET_EDGE | UNET_EV_ACKED);

        WATCH(c, .acked = 100);
        CHECK(unet_send(c, data, 1000, 0) == 1000);
        asks(s, GRANT, 100);
        CHECK(waited(set, PATIENCE_MS) == UNET_EV_ACKED);
        CHECK(waited(set, 0) == 0);
        asks(s, GRANT, 100);
        CHECK(waited(set, 20) == 0);
        WATCH(c, .acked = 1000);
        asks(s, GRANT, 800);
        CHECK(waited(set, PATIENCE_MS) == UNET_EV_ACKED);
        CHECK(waited(set, 0) == 0);
        tell(s, 0);
        unet_pollset_destroy(set);
        CHECK(unet_close(c) == 0);
}

static void an_edge_is_told_once(void **state)
{
        play_both(hears_once, obeys, 0);
}

/* What happened stays until it is taken. */
static void hears_of_windows(struct side *s)
{
        int c = side_connect(s);
        struct unet_pollset *set =
                set_of(c, UNET_EV_SHUT | UNET_EV_LIMIT | UNET_EV_RTT | UNET_EV_LOSS);
        struct unet_happened h;

        WATCH(c, .limits = 1u << UNET_LIMIT_RWND, .rtt = 3600ll * 1000000000);
        CHECK(waited(set, 0) == UNET_EV_SHUT); /* it is so already */
        h = took(c);
        CHECK(h.events == UNET_EV_SHUT && h.shut_turns == 1 && h.holds == UNET_EV_SHUT);
        CHECK(waited(set, 0) == 0 && took(c).events == 0);
        CHECK(unet_send(c, data, 5000, 0) == 5000);
        CHECK(waited(set, PATIENCE_MS) == UNET_EV_LIMIT);
        h = took(c);
        CHECK(h.limit_turns == 1 && h.limit == UNET_LIMIT_RWND);
        asks(s, GRANT, 5000);
        EVENTUALLY(waited(set, PATIENCE_MS) & UNET_EV_SHUT);
        EVENTUALLY(took(c).acked == 5000);
        asks(s, GRANT, 10);
        EVENTUALLY(!(took(c).holds & UNET_EV_SHUT));
        CHECK(waited(set, 20) == 0);
        WATCH(c, .rtt = 1);
        CHECK(waited(set, PATIENCE_MS) == UNET_EV_RTT);
        h = took(c);
        CHECK(h.rtt_turns == 1 && h.holds == UNET_EV_RTT && h.srtt > 1 && h.losses == 0);
        tell(s, 0);
        unet_pollset_destroy(set);
        CHECK(unet_close(c) == 0);
}

static void what_happened_is_told_until_it_is_taken(void **state)
{
        play_both(hears_of_windows, obeys, 0);
}

/* A child has sets and books of its own. */
static void child_hears_too(int c, struct side *s)
{
        struct unet_pollset *set = set_of(c, UNET_EV_SHUT);

        tell(s, READ); /* nothing, and an answer */
        hear(s);
        CHECK(waited(set, PATIENCE_MS) == UNET_EV_SHUT);
        CHECK(took(c).shut_turns == 1);
        CHECK(waited(set, 0) == 0);
}

static void forks(struct side *s)
{
        int c = side_connect(s), status;
        pid_t child;

        WATCH(c, .unsent_below = 0);
        CHECK(took(c).shut_turns == 1);
        asks(s, GRANT, 1000);
        EVENTUALLY(took(c).holds == 0);
        child = fork();
        if (child == 0) {
                CHECK(unet_send(c, data, 1000, 0) == 1000);
                child_hears_too(c, s);
                _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(took(c).shut_turns == 1); /* of which the child took nothing */
        tell(s, 0);
        CHECK(unet_close(c) == 0);
}

static void each_process_is_told_of_everything(void **state)
{
        play(TWO_PROCESSES, forks, obeys, 0);
}

/* ---- unread ---- */

static void hears_of_unread(struct side *s)
{
        int c = side_accept(s);
        struct unet_pollset *set = set_of(c, UNET_EV_UNREAD);
        static uint8_t buf[10000];

        WATCH(c, .unread_above = 5000);
        tell(s, 4999);
        EVENTUALLY(took(c).unread == 4999);
        CHECK(waited(set, 20) == 0);
        tell(s, 1);
        CHECK(waited(set, PATIENCE_MS) == UNET_EV_UNREAD);
        CHECK(unet_recv(c, buf, 1, 0) == 1);
        CHECK(waited(set, 0) == 0);
        tell(s, 1);
        CHECK(waited(set, PATIENCE_MS) == UNET_EV_UNREAD);
        CHECK(unet_recv(c, buf, 5000, 0) == 5000);
        tell(s, 0);
        EVENTUALLY(waited(set, PATIENCE_MS) & UNET_EV_UNREAD); /* no more will come */
        CHECK(unet_recv(c, buf, 1, 0) == 0);
        unet_pollset_destroy(set);
        CHECK(unet_close(c) == 0);
}

static void sends_as_told(struct side *s)
{
        int c = side_connect(s);
        uint64_t n;

        while ((n = hear(s)) != 0)
                CHECK(unet_send(c, data, n, 0) == (ssize_t)n);
        CHECK(unet_close(c) == 0);
}

static void so_much_that_is_unread_is_told(void **state)
{
        play_both(sends_as_told, hears_of_unread, 0);
}

/* The window is full of what the program has: that is no news, until it has returned something. */
static void keeps_all_it_is_lent(struct side *s)
{
        struct unet_window w = {
                .size = sizeof w, .mode = UNET_WINDOW_SIZE, .bytes = 8000, .most = 8000};
        int l = tcp_listen_any(), c, n;
        struct unet_pollset *set;
        struct unet_loan loan[32];

        CHECK(unet_window_set(l, &w) == 0);
        tell(s, port_of(l));
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0);
        set = set_of(c, UNET_EV_UNREAD);
        WATCH(c, .unread_above = 20000);
        tell(s, 8000);
        CHECK(waited(set, PATIENCE_MS) == UNET_EV_UNREAD);
        n = unet_recv_lend(c, loan, 32, 0);
        CHECK(n > 0 && took(c).unread == 0);
        CHECK(waited(set, 0) == 0);
        tell(s, 1000);
        CHECK(waited(set, 20) == 0);
        CHECK(unet_recv_return(c, loan, n) == 0);
        tell(s, 7000);
        CHECK(waited(set, PATIENCE_MS) == UNET_EV_UNREAD && took(c).unread == 8000);
        tell(s, 0);
        unet_pollset_destroy(set);
        CHECK(unet_close(c) == 0 && unet_close(l) == 0);
}

static void sends_as_told_to_a_port(struct side *s)
{
        static uint8_t bytes[8000];
        int c = tcp_connect_to((uint16_t)hear(s));
        uint64_t n;

        while ((n = hear(s)) != 0)
                CHECK(unet_send(c, bytes, n, 0) == (ssize_t)n);
        CHECK(unet_close(c) == 0);
}

static void what_is_lent_is_not_told_as_unread(void **state)
{
        play_both(sends_as_told_to_a_port, keeps_all_it_is_lent, 0);
}

/* ---- nothing is lost ---- */

#define ROUNDS 1500u

/* Sleeps for each acknowledgement, of which there is one, in a set that is told of edges only. */
static void waits_for_each(struct side *s)
{
        int c = side_connect(s);
        struct unet_pollset *set = set_of(c, UNET_EDGE | UNET_EV_ACKED);
        uint64_t at = 0, state = s->arg;

        for (unsigned i = 0; i < ROUNDS; i++) {
                uint32_t n = 1 + (uint32_t)(rnd(&state) % 3000);
                at += n;
                if (i % 2 == 0)
                        WATCH(c, .acked = at);
                CHECK(unet_send(c, data, n, 0) == (ssize_t)n);
                if (i % 2 == 1)
                        WATCH(c, .acked = at);
                if (i % 7 == 0)
                        usleep((useconds_t)(rnd(&state) % 300));
                while (took(c).acked < at)
                        waited(set, PATIENCE_MS);
        }
        unet_pollset_destroy(set);
        CHECK(unet_close(c) == 0);
}

static void reads_slowly(struct side *s)
{
        int c = side_accept(s);
        static uint8_t buf[4096];
        uint64_t state = s->arg + 1;
        ssize_t n;

        while ((n = unet_recv(c, buf, sizeof buf, 0)) > 0)
                if (rnd(&state) % 5 == 0)
                        usleep((useconds_t)(rnd(&state) % 400));
        CHECK(n == 0 && unet_close(c) == 0);
}

static void no_wake_up_is_lost(void **state)
{
        play_both(waits_for_each, reads_slowly, test_seed());
}

/* ---- somebody else's loop ---- */

/* Serves one connection, and a pipe, and sleeps in an epoll set of the kernel's only. */
struct loop {
        struct unet_pollset *set;
        int epfd, conn, pipe;
        unsigned bytes; /* by the pipe */
        bool over;
};

static void loop_serves(struct loop *l, const struct unet_event *ev)
{
        static char buf[4096];
        ssize_t n;

        if (ev->data == 1) {
                CHECK(read(l->pipe, buf, 1) == 1);
                l->bytes++;
                return;
        }
        n = unet_recv(l->conn, buf, sizeof buf, MSG_DONTWAIT);
        if (n < 0) {
                CHECK(errno == EAGAIN);
                return;
        }
        l->over = n == 0;
        CHECK(n == 0 || unet_send(l->conn, buf, (size_t)n, 0) == n);
}

static void loop_runs(struct loop *l)
{
        struct epoll_event out;
        struct unet_event ev[3];
        int n;

        while (!l->over) {
                CHECK(epoll_wait(l->epfd, &out, 1, PATIENCE_MS) == 1 && out.data.u64 == 99);
                n = unet_pollset_wait(l->set, ev, 3, 0);
                CHECK(n >= 0);
                for (int i = 0; i < n; i++)
                        loop_serves(l, &ev[i]);
        }
}

static void sleeps_in_epoll(struct side *s)
{
        struct epoll_event in = {.events = EPOLLIN, .data.u64 = 99};
        struct loop l = {.set = unet_pollset_create(), .epfd = epoll_create1(0)};
        int fds[2], fd = unet_pollset_fd(l.set);

        CHECK(fd >= 0 && unet_pollset_fd(l.set) == fd && pipe(fds) == 0);
        CHECK(epoll_ctl(l.epfd, EPOLL_CTL_ADD, fd, &in) == 0);
        l.conn = side_accept(s);
        l.pipe = fds[0];
        CHECK(unet_pollset_add(l.set, l.conn, POLLIN, 2) == 0 &&
              unet_pollset_add_fd(l.set, fds[0], POLLIN, 1) == 0);
        CHECK(write(fds[1], "abc", 3) == 3);
        loop_runs(&l);
        CHECK(l.bytes == 3);
        CHECK(close(l.epfd) == 0 && close(fds[0]) == 0 && close(fds[1]) == 0);
        unet_pollset_destroy(l.set);
        CHECK(unet_close(l.conn) == 0);
}

static void talks_to_a_loop(struct side *s)
{
        int c = side_connect(s);
        uint64_t state = s->arg;
        static uint8_t buf[3000];

        for (unsigned i = 0; i < ROUNDS; i++) {
                size_t n = 1 + rnd(&state) % sizeof buf;
                CHECK(unet_send(c, data, n, 0) == (ssize_t)n);
                CHECK(unet_recv(c, buf, n, MSG_WAITALL) == (ssize_t)n);
                if (i % 11 == 0)
                        usleep((useconds_t)(rnd(&state) % 2000));
        }
        CHECK(unet_close(c) == 0);
}

static void a_set_is_served_by_a_loop_of_the_kernel(void **state)
{
        play_both(talks_to_a_loop, sleeps_in_epoll, test_seed());
}

/* Level-triggered, as a loop asks: readable while there is something, and not when a wait
 * found nothing. */
static void is_readable_or_not(struct side *s)
{
        struct unet_pollset *set = unet_pollset_create();
        struct pollfd p = {.fd = unet_pollset_fd(set), .events = POLLIN};
        struct unet_event ev;
        char byte;
        int c = side_accept(s);

        CHECK(unet_pollset_add(set, c, POLLIN, 7) == 0);
        while (unet_pollset_wait(set, &ev, 1, 0) != 0)
                ;
        CHECK(poll(&p, 1, 0) == 0);
        tell(s, 1);
        CHECK(poll(&p, 1, PATIENCE_MS) == 1);
        CHECK(unet_pollset_wait(set, &ev, 1, PATIENCE_MS) == 1);
        CHECK(poll(&p, 1, 0) == 1);
        CHECK(unet_recv(c, &byte, 1, 0) == 1);
        while (unet_pollset_wait(set, &ev, 1, 0) != 0)
                ;
        CHECK(poll(&p, 1, 0) == 0);
        tell(s, 1); /* the child's is another set's */
        if (fork() == 0) {
                CHECK(unet_pollset_fd(set) == p.fd);
                while (unet_pollset_wait(set, &ev, 1, 0) != 0)
                        CHECK(false);
                CHECK(poll(&p, 1, 0) == 0);
                _exit(0);
        }
        CHECK(wait(&(int){0}) > 0);
        CHECK(poll(&p, 1, PATIENCE_MS) == 1 && unet_pollset_wait(set, &ev, 1, PATIENCE_MS) == 1);
        tell(s, 0);
        unet_pollset_destroy(set);
        CHECK(unet_close(c) == 0);
}

static void the_descriptor_is_readable_while_a_wait_may_find_something(void **state)
{
        play(TWO_PROCESSES, sends_as_told, is_readable_or_not, 0);
}

static void asks_for_what_is_not(struct side *s)
{
        struct unet_watch w = {.size = sizeof w};
        struct unet_happened h = {.size = sizeof h};
        int t = unet_socket(AF_INET, SOCK_STREAM, 0), u = unet_socket(AF_INET, SOCK_DGRAM, 0);

        CHECK_ERR(unet_watch_set(t, &w), ENOTCONN);
        CHECK_ERR(unet_watch_take(t, &h), ENOTCONN);
        CHECK_ERR(unet_watch_set(u, &w), EOPNOTSUPP);
        CHECK_ERR(unet_watch_set(999, &w), EBADF);
        CHECK_ERR(unet_watch_take(t, NULL), EFAULT);
        w.limits = 1u << UNET_LIMITS;
        CHECK_ERR(unet_watch_set(t, &w), EINVAL);
        w = (struct unet_watch){.size = 1};
        h.size = 1;
        CHECK_ERR(unet_watch_set(t, &w), EINVAL);
        CHECK_ERR(unet_watch_take(t, &h), EINVAL);
        CHECK_ERR(unet_pollset_fd(NULL), EINVAL);
        CHECK(unet_close(t) == 0 && unet_close(u) == 0);
}

static void what_is_not_is_refused(void **state)
{
        CHECK(play_alone(asks_for_what_is_not, 0) == 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(marks_are_told_while_they_are_reached),
                cmocka_unit_test(an_edge_is_told_once),
                cmocka_unit_test(what_happened_is_told_until_it_is_taken),
                cmocka_unit_test(each_process_is_told_of_everything),
                cmocka_unit_test(so_much_that_is_unread_is_told),
                cmocka_unit_test(what_is_lent_is_not_told_as_unread),
                cmocka_unit_test(no_wake_up_is_lost),
                cmocka_unit_test(a_set_is_served_by_a_loop_of_the_kernel),
                cmocka_unit_test(the_descriptor_is_readable_while_a_wait_may_find_something),
                cmocka_unit_test(what_is_not_is_refused),
        };

        return run_sides(tests);
}
