/* <unet/flow.h>: congestion control of the application's own, in a process that is stopped, goes
 * on, and is killed. */
#include "tests/sock/sides.h"

#include <netinet/tcp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unet/flow.h"

#define MS 1000000ll

static uint8_t data[65536];

static void reads_all(struct side *s)
{
        int c = side_accept(s);
        ssize_t n;

        while ((n = unet_recv(c, data, sizeof data, 0)) > 0)
                ;
        CHECK(n == 0 && unet_close(c) == 0);
}

static int connects(struct side *s)
{
        int c = side_connect(s);

        CHECK(unet_setsockopt(c, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0);
        return c;
}

static bool is_by(int c, const char *name)
{
        struct unet_feedback f;

        CHECK(unet_feedback(c, &f) == 0);
        return strcmp(f.congestion, name) == 0;
}

static void sends_until(int c, const char *name)
{
        int64_t until = now_ms() + PATIENCE_MS;

        while (!is_by(c, name)) {
                CHECK(now_ms() < until);
                CHECK(unet_send(c, data, sizeof data, 0) == sizeof data);
        }
}

static struct unet_cc_report took(int c)
{
        struct unet_cc_report r = {.size = sizeof r};

        CHECK(unet_cc_take(c, &r) == 0);
        return r;
}

/* Returns false when the report was too old. */
static bool plans(int c, int64_t good_for)
{
        struct unet_cc_report r = took(c);
        struct unet_cc_plan p = {
                .size = sizeof p, .serial = r.serial, .cwnd = r.cwnd + r.mss, .good_for = good_for};
        int err = unet_cc_set(c, &p);

        CHECK(err == 0 || errno == EAGAIN);
        return err == 0;
}

/* ---- stopped, continued, killed ---- */

enum { GO, STOP };

static _Noreturn void planner(int c, volatile int *order)
{
        struct unet_pollset *set = unet_pollset_create();
        struct unet_event ev;

        CHECK(set != NULL && unet_pollset_add(set, c, UNET_EV_REPORT, 1) == 0);
        for (;;) {
                if (*order == STOP)
                        raise(SIGSTOP); /* here it has no lock */
                plans(c, 30 * MS);
                unet_pollset_wait(set, &ev, 1, 10);
        }
}

static void streams_whoever_plans(struct side *s)
{
        volatile int *order = mmap(NULL, sizeof *order, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int c = connects(s), status;
        pid_t pid;

        CHECK(order != MAP_FAILED);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
                planner(c, order);
        sends_until(c, "plan");
        *order = STOP;
        CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
        sends_until(c, "reno");
        *order = GO;
        CHECK(kill(pid, SIGCONT) == 0);
        sends_until(c, "plan");
        CHECK(kill(pid, SIGKILL) == 0);
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
        sends_until(c, "reno");
        for (int i = 0; i < 100; i++)
                CHECK(unet_send(c, data, sizeof data, 0) == sizeof data);
        CHECK(is_by(c, "reno") && unet_close(c) == 0);
}

static void the_stream_goes_on_when_its_planner_stops_or_dies(void **state)
{
        (void)state;
        play(TWO_PROCESSES, streams_whoever_plans, reads_all, 0);
}

/* ---- reports ---- */

static void hears_of_reports(struct side *s)
{
        struct unet_pollset *set = unet_pollset_create();
        int c = connects(s);
        struct unet_event ev;
        struct unet_cc_report r = took(c);

        CHECK(set != NULL && unet_pollset_add(set, c, UNET_EV_REPORT, 1) == 0);
        CHECK(!r.planned && r.serial == 0 && r.acked == 0 && r.cwnd > 0 && r.mss > 0);
        CHECK(unet_pollset_wait(set, &ev, 1, 0) == 0);
        CHECK(plans(c, 60000 * MS));
        CHECK(is_by(c, "plan"));
        CHECK(unet_send(c, data, 1000, 0) == 1000);
        CHECK(unet_pollset_wait(set, &ev, 1, PATIENCE_MS) == 1 && ev.events == UNET_EV_REPORT);
        CHECK(unet_pollset_wait(set, &ev, 1, 0) == 1); /* until it is taken */
        r = took(c);
        CHECK(r.planned && r.serial != 0 && r.acked == 1000 && r.lost == 0 && r.cuts == 0 &&
              r.rtts > 0 && r.rtt_least > 0);
        CHECK(unet_pollset_wait(set, &ev, 1, 0) == 0);
        CHECK(took(c).acked == 0);
        CHECK(unet_cc_set(c, NULL) == 0 && is_by(c, "reno"));
        unet_pollset_destroy(set);
        CHECK(unet_close(c) == 0);
}

static void a_report_is_told_until_it_is_taken(void **state)
{
        (void)state;
        play_both(hears_of_reports, reads_all, 0);
}

/* The plan is too old when the next ACK comes: that is told, too. */
static void hears_of_the_end(struct side *s)
{
        struct unet_pollset *set = unet_pollset_create();
        int c = connects(s);
        struct unet_event ev;

        CHECK(set != NULL && unet_pollset_add(set, c, UNET_EV_REPORT, 1) == 0);
        CHECK(plans(c, MS));
        sleep_ms(2);
        CHECK(unet_send(c, data, 1000, 0) == 1000);
        CHECK(unet_pollset_wait(set, &ev, 1, PATIENCE_MS) == 1 && ev.events == UNET_EV_REPORT);
        CHECK(is_by(c, "reno") && !took(c).planned);
        CHECK(unet_pollset_wait(set, &ev, 1, 0) == 0);
        unet_pollset_destroy(set);
        CHECK(unet_close(c) == 0);
}

static void that_the_algorithm_took_over_is_told(void **state)
{
        (void)state;
        play_both(hears_of_the_end, reads_all, 0);
}

/* ---- errors ---- */

static void errs(struct side *s)
{
        struct unet_cc_report r = {.size = sizeof r}, short_one = {.size = sizeof r - 8};
        struct unet_cc_plan p = {.size = sizeof p, .cwnd = 10000, .good_for = MS}, bad;
        int c = connects(s), t = unet_socket(AF_INET, SOCK_STREAM, 0),
            u = unet_socket(AF_INET, SOCK_DGRAM, 0);

        CHECK_ERR(unet_cc_take(t, &r), ENOTCONN);
        CHECK_ERR(unet_cc_set(t, &p), ENOTCONN);
        CHECK_ERR(unet_cc_set(t, NULL), ENOTCONN);
        CHECK_ERR(unet_cc_take(u, &r), EOPNOTSUPP);
        CHECK_ERR(unet_cc_set(999, &p), EBADF);
        CHECK_ERR(unet_cc_take(c, NULL), EFAULT);
        CHECK_ERR(unet_cc_take(c, &short_one), EINVAL);
        bad = p;
        bad.cwnd = 0;
        CHECK_ERR(unet_cc_set(c, &bad), EINVAL);
        bad = p;
        bad.good_for = MS - 1;
        CHECK_ERR(unet_cc_set(c, &bad), EINVAL);
        bad.good_for = 60001 * MS;
        CHECK_ERR(unet_cc_set(c, &bad), EINVAL);
        bad = p;
        bad.every = -1;
        CHECK_ERR(unet_cc_set(c, &bad), EINVAL);
        bad = p;
        bad.serial = 1;
        CHECK_ERR(unet_cc_set(c, &bad), EAGAIN);
        CHECK_ERR(unet_setsockopt(c, IPPROTO_TCP, TCP_CONGESTION, "plan", 4), ENOENT);
        CHECK(is_by(c, "reno"));
        CHECK(unet_close(c) == 0 && unet_close(t) == 0 && unet_close(u) == 0);
}

static void what_is_wrong_is_told(void **state)
{
        (void)state;
        play_both(errs, reads_all, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_stream_goes_on_when_its_planner_stops_or_dies),
                cmocka_unit_test(a_report_is_told_until_it_is_taken),
                cmocka_unit_test(that_the_algorithm_took_over_is_told),
                cmocka_unit_test(what_is_wrong_is_told),
        };
        return run_sides(tests);
}
