/*
 * <unet/flow.h> used at the wrong time, by the wrong process, or with values that are too small: an
 * error that says so, or what was promised; no byte is lost, and nobody waits for ever.
 */
#include "tests/sock/sides.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unet/flow.h"

#define STREAM 400000u
#define MANY   512
#define MS     1000000ll

static uint8_t data[STREAM];

static int accept_by(struct side *s, const struct unet_window *w)
{
        int l = tcp_listen_any(), c;

        CHECK(w == NULL || unet_window_set(l, w) == 0);
        tell(s, port_of(l));
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0 && unet_close(l) == 0);
        return c;
}

static int accept_credit(struct side *s, uint32_t bytes)
{
        struct unet_window w = {.size = sizeof w, .mode = UNET_WINDOW_CREDIT, .bytes = bytes};

        return accept_by(s, &w);
}

static struct unet_window window_of(int c)
{
        struct unet_window w = {.size = sizeof w};

        CHECK(unet_window_get(c, &w) == 0);
        return w;
}

static struct unet_feedback told(int c)
{
        struct unet_feedback f;

        CHECK(unet_feedback(c, &f) == 0);
        return f;
}

/* Sends all of the stream, and waits until the other side says that it is over. */
static void sends(struct side *s)
{
        int c = side_connect(s);

        fill(data, sizeof data, s->arg, 0);
        CHECK(unet_send(c, data, sizeof data, 0) == sizeof data);
        hear(s);
        CHECK(unet_close(c) == 0);
}

static void reads(int c, uint64_t seed, uint64_t pos, uint32_t n)
{
        static uint8_t got[STREAM];

        CHECK(n <= sizeof got && unet_recv(c, got, n, MSG_WAITALL) == (ssize_t)n);
        CHECK(filled(got, n, seed, pos));
}

static int wait_for(pid_t child)
{
        int status;

        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        return status;
}

/* ---- lent, and then exec ---- */

#define WINDOW 100000u

/* All that comes until the window is shut. */
static uint32_t keeps_all(int c)
{
        static struct unet_loan held[MANY];
        uint32_t sum = 0;

        for (int n = 0; n < MANY && window_of(c).offered >= 2 * window_of(c).unit; n++) {
                CHECK(unet_recv_lend(c, &held[n], 1, 0) == 1);
                sum += held[n].len;
        }
        return sum;
}

/* What it was lent it has read; the rest is the parent's, by a window that opens again. */
static void lends_and_execs(struct side *s)
{
        struct unet_window w = {.size = sizeof w, .mode = UNET_WINDOW_SIZE, .bytes = WINDOW};
        int c = accept_by(s, &w), pipes[2];
        uint32_t kept = 0;
        pid_t child;

        CHECK(pipe(pipes) == 0);
        child = fork();
        if (child == 0) {
                kept = keeps_all(c);
                CHECK(write(pipes[1], &kept, sizeof kept) == sizeof kept);
                execl("/bin/sleep", "sleep", "3000", NULL);
                CHECK(!"reached");
        }
        CHECK(read(pipes[0], &kept, sizeof kept) == sizeof kept && kept < STREAM);
        reads(c, s->arg, kept, STREAM - kept);
        CHECK(kill(child, 0) == 0 && kill(child, SIGKILL) == 0); /* who lives has nothing */
        CHECK(WIFSIGNALED(wait_for(child)));
        tell(s, 0);
        CHECK(unet_close(c) == 0);
}

static void what_is_lent_is_given_back_by_exec(void **state)
{
        play(TWO_PROCESSES, sends, lends_and_execs, test_seed());
}

/* ---- lent, and then fork ---- */

/* A child that ends, in whatever way, has none of it, and gives nothing back. */
static void lends_and_forks(struct side *s)
{
        struct unet_loan held[8];
        int c = accept_by(s, NULL), n = unet_recv_lend(c, held, 8, 0);
        uint64_t pos = 0;

        CHECK(n > 0);
        for (int how = 0; how < 2; how++) {
                pid_t child = fork();

                if (child == 0) {
                        CHECK_ERR(unet_recv_return(c, held, n), EINVAL);
                        if (how == 0)
                                CHECK(unet_close(c) == 0);
                        _exit(0);
                }
                CHECK(wait_for(child) == 0);
        }
        for (int i = 0; i < n; pos += held[i++].len)
                CHECK(filled(held[i].ptr, held[i].len, s->arg, pos));
        CHECK(unet_recv_return(c, held, n) == 0);
        CHECK_ERR(unet_recv_return(c, held, n), EINVAL);
        reads(c, s->arg, pos, (uint32_t)(STREAM - pos));
        tell(s, 0);
        CHECK(unet_close(c) == 0);
}

static void what_is_lent_stays_when_a_child_ends(void **state)
{
        play(TWO_PROCESSES, sends, lends_and_forks, test_seed());
}

/* The child is the one who goes on. */
static void lends_and_leaves(struct side *s)
{
        struct unet_window w = {.size = sizeof w, .mode = UNET_WINDOW_SIZE, .bytes = WINDOW};
        int c = accept_by(s, &w);
        uint32_t kept = keeps_all(c);
        pid_t child = fork();

        if (child != 0) {
                CHECK(child > 0 && unet_close(c) == 0); /* with all that is lent */
                CHECK(wait_for(child) == 0);
                return;
        }
        reads(c, s->arg, kept, STREAM - kept);
        tell(s, 0);
        CHECK(unet_close(c) == 0);
        _exit(0);
}

static void a_child_goes_on_where_its_parent_keeps_loans(void **state)
{
        play(TWO_PROCESSES, sends, lends_and_leaves, test_seed());
}

/* ---- a listener is no connection ---- */

static void asks_a_listener(struct side *s)
{
        struct unet_pollset *set = unet_pollset_create();
        struct unet_watch w = {.size = sizeof w, .unread_above = 1};
        struct unet_happened h = {.size = sizeof h};
        struct unet_cc_report r = {.size = sizeof r};
        struct unet_cc_plan p = {.size = sizeof p, .cwnd = 10000, .good_for = 100 * MS};
        struct unet_loan loan;
        struct unet_event ev;
        struct iovec v;
        int l = tcp_listen_any(), c;

        CHECK_ERR(unet_watch_set(l, &w), ENOTCONN);
        CHECK_ERR(unet_watch_take(l, &h), ENOTCONN);
        CHECK_ERR(unet_cc_take(l, &r), ENOTCONN);
        CHECK_ERR(unet_cc_set(l, &p), ENOTCONN);
        CHECK_ERR(unet_window_grant(l, 1), EINVAL);
        CHECK_ERR(unet_recv_lend(l, &loan, 1, 0), ENOTCONN);
        CHECK_ERR(unet_recv_return(l, &loan, 1), EINVAL);
        CHECK_ERR(unet_send_reserve(l, 1, &v, 1, 0), EPIPE);
        CHECK_ERR(unet_send_commit(l, 1, 0), EINVAL);
        CHECK(set != NULL &&
              unet_pollset_add(set, l, POLLIN | UNET_EV_UNREAD | UNET_EV_ACKED | UNET_EV_LOSS, 7) ==
                      0);
        CHECK(unet_pollset_wait(set, &ev, 1, 0) == 0);
        tell(s, port_of(l));
        CHECK(unet_pollset_wait(set, &ev, 1, PATIENCE_MS) == 1);
        CHECK(ev.events == POLLIN && ev.data == 7);
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0 && unet_watch_set(c, &w) == 0);
        reads(c, s->arg, 0, STREAM);
        tell(s, 0);
        unet_pollset_destroy(set);
        CHECK(unet_close(c) == 0 && unet_close(l) == 0);
}

static void a_listener_answers_that_it_is_no_connection(void **state)
{
        play(TWO_PROCESSES, sends, asks_a_listener, test_seed());
}

/* ---- grants that come late ---- */

/* One's own end says nothing of what the peer may send; with the peer's, nothing more can come. */
static void grants_after_shutdown(struct side *s)
{
        int c = accept_credit(s, 1000);

        CHECK(unet_shutdown(c, SHUT_WR) == 0);
        EVENTUALLY(told(c).unread == 1000);
        CHECK(unet_window_grant(c, 65000) == 0);
        reads(c, s->arg, 0, 66000);
        for (uint32_t at = 66000, n; at < STREAM; at += n) {
                n = STREAM - at < 65000 ? STREAM - at : 65000;
                CHECK(unet_window_grant(c, n) == 0);
                reads(c, s->arg, at, n);
        }
        tell(s, 0);
        CHECK(unet_recv(c, data, 1, 0) == 0);
        CHECK(unet_window_grant(c, 1000) == 0);
        CHECK(unet_close(c) == 0);
        CHECK_ERR(unet_window_grant(c, 1000), EBADF);
        CHECK_ERR(unet_window_get(c, &(struct unet_window){.size = sizeof(struct unet_window)}),
                  EBADF);
        CHECK_ERR(unet_watch_set(c, NULL), EBADF);
        CHECK_ERR(unet_cc_set(c, NULL), EBADF);
        CHECK_ERR(unet_recv_lend(c, &(struct unet_loan){0}, 1, 0), EBADF);
}

static void a_grant_after_shutdown_counts_and_after_close_does_not(void **state)
{
        play(TWO_PROCESSES, sends, grants_after_shutdown, test_seed());
}

static void resets(struct side *s)
{
        struct linger now = {.l_onoff = 1};
        int c = side_connect(s);

        CHECK(unet_send(c, "x", 1, 0) == 1);
        hear(s);
        CHECK(unet_setsockopt(c, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
        CHECK(unet_close(c) == 0);
        tell(s, 0);
}

static void grants_after_a_reset(struct side *s)
{
        struct unet_happened h = {.size = sizeof h};
        struct unet_watch w = {.size = sizeof w, .acked = 1};
        struct unet_pollfd p = {.fd = -1};
        struct unet_loan loan;
        struct iovec v;
        int c = accept_credit(s, 1);

        CHECK(unet_watch_set(c, &w) == 0);
        CHECK(unet_recv_lend(c, &loan, 1, 0) == 1 && *(const char *)loan.ptr == 'x');
        tell(s, 0);
        hear(s);
        p.sock = c;
        CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1 && p.revents & POLLHUP);
        CHECK(*(const char *)loan.ptr == 'x'); /* is lent still */
        CHECK(unet_recv_return(c, &loan, 1) == 0);
        CHECK(unet_window_grant(c, 1000) == 0 || errno == ENOTCONN);
        CHECK(unet_watch_take(c, &h) == 0 || errno == ENOTCONN);
        CHECK_ERR(unet_recv_lend(c, &loan, 1, 0), ECONNRESET);
        CHECK(unet_recv_lend(c, &loan, 1, 0) == 0);
        CHECK_ERR(unet_send_reserve(c, 1, &v, 1, 0), EPIPE);
        CHECK(unet_close(c) == 0);
}

static void what_is_lent_outlives_a_reset(void **state)
{
        play(TWO_PROCESSES, resets, grants_after_a_reset, 0);
}

/* ---- credit that is taken back, or changed, while it is held ---- */

/* The peer has less than it may send in its hands: nothing of that is taken back. */
static void changes_what_is_granted(struct side *s)
{
        struct unet_window none = {.size = sizeof none, .mode = UNET_WINDOW_CREDIT},
                           size = {.size = sizeof size, .mode = UNET_WINDOW_SIZE, .bytes = 5000};
        int c = accept_credit(s, 0);

        CHECK(unet_window_grant(c, 60000) == 0);
        CHECK(unet_window_set(c, &none) == 0);
        EVENTUALLY(told(c).unread == 60000);
        CHECK(window_of(c).granted == 0);
        CHECK(unet_window_grant(c, 60000) == 0); /* beside what is unread */
        CHECK(unet_window_set(c, &size) == 0);
        EVENTUALLY(told(c).unread == 120000);
        CHECK(unet_window_set(c, &none) == 0);
        reads(c, s->arg, 0, 120000);
        CHECK(window_of(c).offered == 0 && told(c).unread == 0);
        CHECK(unet_window_set(c, &size) == 0);
        reads(c, s->arg, 120000, STREAM - 120000);
        tell(s, 0);
        CHECK(unet_close(c) == 0);
}

static void credit_that_the_peer_holds_is_not_taken_back(void **state)
{
        play(TWO_PROCESSES, sends, changes_what_is_granted, test_seed());
}

/* ---- less than a segment ---- */

/* Until so much is acknowledged; at no time is more in flight. */
static void waits_for_acks(int c, uint32_t bytes, uint32_t in_flight)
{
        struct unet_pollfd p = {.sock = c, .fd = -1, .events = POLLPRI};

        while (told(c).bytes_acked < bytes) {
                CHECK(told(c).in_flight <= in_flight);
                CHECK(unet_poll(&p, 1, 1) == 0); /* the stack runs meanwhile */
        }
}

static void sends_little_at_a_time(struct side *s)
{
        struct unet_flow f = {.size = sizeof f, .send_window = 1};
        int c = side_connect(s);

        fill(data, sizeof data, s->arg, 0);
        CHECK(unet_flow_set(c, &f) == 0);
        CHECK(unet_send(c, data, 1000, 0) == 1000);
        waits_for_acks(c, 1000, 1);
        f.send_window = 100;
        CHECK(unet_flow_set(c, &f) == 0);
        CHECK(unet_send(c, data + 1000, 20000, 0) == 20000);
        waits_for_acks(c, 21000, 100);
        f.send_window = 0;
        CHECK(unet_flow_set(c, &f) == 0);
        CHECK(unet_send(c, data + 21000, STREAM - 21000, 0) == STREAM - 21000);
        hear(s);
        CHECK(unet_close(c) == 0);
}

static void reads_with_a_small_clamp(struct side *s)
{
        int c = accept_by(s, NULL), clamp = 100;

        reads(c, s->arg, 0, 1000);
        CHECK(unet_setsockopt(c, IPPROTO_TCP, TCP_WINDOW_CLAMP, &clamp, sizeof clamp) == 0);
        reads(c, s->arg, 1000, STREAM - 1000);
        tell(s, 0);
        CHECK(unet_close(c) == 0);
}

static void a_clamp_below_a_segment_stops_nobody(void **state)
{
        play(TWO_PROCESSES, sends_little_at_a_time, reads_with_a_small_clamp, test_seed());
}

/* ---- a plan of another process's ---- */

static struct unet_cc_report reported(int c)
{
        struct unet_cc_report r = {.size = sizeof r};

        CHECK(unet_cc_take(c, &r) == 0);
        return r;
}

static struct unet_cc_plan plan_of(const struct unet_cc_report *r)
{
        return (struct unet_cc_plan){.size = sizeof(struct unet_cc_plan),
                                     .serial = r->serial,
                                     .cwnd = r->cwnd,
                                     .good_for = 60000 * MS};
}

/* A socket's plan is whoever's who has the socket; nobody else can name it. */
static void plans_for_its_parent(struct side *s)
{
        int c = side_connect(s);
        struct unet_cc_report r = reported(c);
        struct unet_cc_plan p = plan_of(&r);
        pid_t child;

        fill(data, sizeof data, s->arg, 0);
        child = fork();
        if (child == 0) {
                CHECK(unet_cc_set(c, &p) == 0); /* of its parent's report */
                CHECK(unet_close(c) == 0);
                CHECK_ERR(unet_cc_set(c, &p), EBADF);
                _exit(0);
        }
        CHECK(wait_for(child) == 0);
        CHECK(strcmp(told(c).congestion, "plan") == 0); /* though its maker is no more */
        r = reported(c);
        CHECK(r.planned);
        p = plan_of(&r);
        child = fork();
        if (child == 0) { /* ends it: its parent's plan was of a report before that */
                CHECK(unet_cc_set(c, NULL) == 0);
                _exit(0);
        }
        CHECK(wait_for(child) == 0);
        CHECK(strcmp(told(c).congestion, "plan") != 0);
        CHECK_ERR(unet_cc_set(c, &p), EAGAIN);
        CHECK(unet_send(c, data, sizeof data, 0) == sizeof data);
        hear(s);
        CHECK(unet_close(c) == 0);
}

static void reads_it_all(struct side *s)
{
        int c = accept_by(s, NULL);

        reads(c, s->arg, 0, STREAM);
        tell(s, 0);
        CHECK(unet_close(c) == 0);
}

static void a_plan_may_be_another_process_s(void **state)
{
        play(TWO_PROCESSES, plans_for_its_parent, reads_it_all, test_seed());
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_lent_is_given_back_by_exec),
                cmocka_unit_test(what_is_lent_stays_when_a_child_ends),
                cmocka_unit_test(a_child_goes_on_where_its_parent_keeps_loans),
                cmocka_unit_test(a_listener_answers_that_it_is_no_connection),
                cmocka_unit_test(a_grant_after_shutdown_counts_and_after_close_does_not),
                cmocka_unit_test(what_is_lent_outlives_a_reset),
                cmocka_unit_test(credit_that_the_peer_holds_is_not_taken_back),
                cmocka_unit_test(a_clamp_below_a_segment_stops_nobody),
                cmocka_unit_test(a_plan_may_be_another_process_s),
        };

        return run_sides(tests);
}
