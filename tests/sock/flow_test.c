/* <unet/flow.h>: the application's windows, between two processes and between two threads
 * of one. */
#include "tests/sock/sides.h"

#include "unet/flow.h"

static struct unet_window window(uint32_t mode, uint32_t bytes, uint32_t most)
{
        return (struct unet_window){
                .size = sizeof(struct unet_window), .mode = mode, .bytes = bytes, .most = most};
}

static struct unet_window window_of(int sock)
{
        struct unet_window w = {.size = sizeof w};

        CHECK(unet_window_get(sock, &w) == 0);
        return w;
}

static uint32_t unread(int sock)
{
        struct unet_feedback f;

        CHECK(unet_feedback(sock, &f) == 0);
        return f.unread;
}

/* ---- the sender may send exactly what was granted ---- */

#define STREAM 300000u

static void sends_all(struct side *s)
{
        static uint8_t data[STREAM];
        int c = side_connect(s);

        fill(data, sizeof data, 5, 0);
        CHECK(unet_send(c, data, sizeof data, 0) == sizeof data);
        hear(s);
        CHECK(unet_close(c) == 0);
}

static int accepts_with(struct side *s, const struct unet_window *w)
{
        int l = tcp_listen_any(), c;

        CHECK(unet_window_set(l, w) == 0);
        tell(s, port_of(l));
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0);
        CHECK(unet_close(l) == 0);
        return c;
}

static void grants_piece_by_piece(struct side *s)
{
        struct unet_window w = window(UNET_WINDOW_CREDIT, 0, 0);
        static const uint32_t piece[] = {1, 2, 100, 1460, 4096, 10000, 65535};
        int c = accepts_with(s, &w);
        static uint8_t got[65535];
        uint64_t at = 0;

        CHECK(window_of(c).unit == 1 && window_of(c).offered == 0);
        for (unsigned i = 0; at < STREAM; i = (i + 1) % 7) {
                uint32_t n = at + piece[i] < STREAM ? piece[i] : (uint32_t)(STREAM - at);
                CHECK(unet_window_grant(c, n) == 0);
                EVENTUALLY(unread(c) == n);
                CHECK(window_of(c).granted == 0 && window_of(c).offered == 0);
                CHECK(unet_recv(c, got, sizeof got, 0) == (ssize_t)n && filled(got, n, 5, at));
                CHECK_ERR(unet_recv(c, got, 1, MSG_DONTWAIT), EAGAIN);
                at += n;
        }
        tell(s, 0);
        CHECK(unet_recv(c, got, 1, 0) == 0);
        CHECK(unet_close(c) == 0);
}

static void a_sender_sends_exactly_what_was_granted(void **state)
{
        play_both(sends_all, grants_piece_by_piece, 0);
}

/* ---- what was granted may be unread, and other modes go on where credit ends ---- */

static void holds_and_lets_go(struct side *s)
{
        struct unet_window credit = window(UNET_WINDOW_CREDIT, 1000, 100000),
                           size = window(UNET_WINDOW_SIZE, 20000, 0),
                           own = window(UNET_WINDOW_AUTO, 0, 0);
        int c = accepts_with(s, &credit);
        static uint8_t got[STREAM];

        CHECK(window_of(c).mode == UNET_WINDOW_CREDIT && window_of(c).unit == 2);
        EVENTUALLY(unread(c) == 1000);
        CHECK_ERR(unet_window_grant(c, 100001), EOVERFLOW);
        CHECK(unet_window_grant(c, 100000) == 0);
        EVENTUALLY(unread(c) == 101000);
        CHECK(unet_window_set(c, &size) == 0);
        CHECK(window_of(c).mode == UNET_WINDOW_SIZE && window_of(c).bytes == 20000);
        CHECK(unet_recv(c, got, 101000, MSG_WAITALL) == 101000 && filled(got, 101000, 5, 0));
        EVENTUALLY(unread(c) == 20000);
        CHECK(unet_window_set(c, &credit) == 0);
        CHECK(window_of(c).granted >= 1000);
        CHECK(unet_recv(c, got, 21000, MSG_WAITALL) == 21000 && filled(got, 21000, 5, 101000));
        CHECK(unet_window_set(c, &own) == 0);
        CHECK(window_of(c).mode == UNET_WINDOW_AUTO);
        CHECK(unet_recv(c, got, STREAM - 122000, MSG_WAITALL) == STREAM - 122000 &&
              filled(got, STREAM - 122000, 5, 122000));
        tell(s, 0);
        CHECK(unet_recv(c, got, 1, 0) == 0);
        CHECK(unet_close(c) == 0);
}

static void a_window_changes_its_kind_while_data_flows(void **state)
{
        play_both(sends_all, holds_and_lets_go, 0);
}

/* ---- a client may have credit, too; granted before there is a peer ---- */

static void grants_before(struct side *s)
{
        struct unet_window w = window(UNET_WINDOW_CREDIT, 10, 1000);
        struct sockaddr_in to = loopback((uint16_t)hear(s));
        int c = unet_socket(AF_INET, SOCK_STREAM, 0);
        uint8_t got[100];

        CHECK(c >= 0 && unet_window_set(c, &w) == 0);
        CHECK(unet_window_grant(c, 20) == 0);
        CHECK_ERR(unet_window_grant(c, 971), EOVERFLOW);
        CHECK(window_of(c).granted == 30);
        CHECK(unet_connect(c, (struct sockaddr *)&to, sizeof to) == 0);
        EVENTUALLY(unread(c) == 30);
        CHECK(unet_window_grant(c, 70) == 0);
        CHECK(unet_recv(c, got, 100, MSG_WAITALL) == 100 && filled(got, 100, 5, 0));
        CHECK(unet_close(c) == 0);
        tell(s, 0);
}

static void sends_hundred(struct side *s)
{
        uint8_t data[100];
        int c = side_accept(s);

        fill(data, sizeof data, 5, 0);
        CHECK(unet_send(c, data, sizeof data, 0) == sizeof data);
        hear(s);
        CHECK(unet_close(c) == 0);
}

static void a_client_has_credit_too(void **state)
{
        play_both(grants_before, sends_hundred, 0);
}

/* ---- what a sender keeps to ---- */

#define LIMIT 5000u

static void sends_within_a_limit(struct side *s)
{
        struct unet_flow f = {.size = sizeof f};
        int c = side_connect(s);
        struct unet_feedback b;
        static uint8_t data[STREAM];

        CHECK(unet_flow_get(c, &f) == 0 && f.send_window == 0 && f.rate == 0 && f.ack_delay == 0 &&
              f.rto_max == 120000000000);
        f.send_window = LIMIT;
        f.rto_min = 30000000;
        f.rto_max = 2000000000;
        f.ack_delay = 3000000;
        CHECK(unet_flow_set(c, &f) == 0);
        f = (struct unet_flow){.size = sizeof f};
        CHECK(unet_flow_get(c, &f) == 0 && f.send_window == LIMIT && f.rto_min == 30000000 &&
              f.rto_max == 2000000000 && f.ack_delay == 3000000);
        fill(data, sizeof data, 5, 0);
        for (uint32_t at = 0; at < STREAM;) {
                ssize_t n = unet_send(c, data + at, STREAM - at, MSG_DONTWAIT);
                CHECK(n > 0 || errno == EAGAIN);
                at += n > 0 ? (uint32_t)n : 0;
                CHECK(unet_feedback(c, &b) == 0 && b.in_flight <= LIMIT);
        }
        hear(s);
        CHECK(unet_close(c) == 0);
}

static void reads_slowly(struct side *s)
{
        static uint8_t got[STREAM];
        int c = side_accept(s);

        for (uint32_t at = 0; at < STREAM; at += 3000)
                CHECK(unet_recv(c, got + at, 3000, MSG_WAITALL) == 3000);
        CHECK(filled(got, STREAM, 5, 0));
        tell(s, 0);
        CHECK(unet_recv(c, got, 1, 0) == 0);
        CHECK(unet_close(c) == 0);
}

static void no_more_is_in_flight_than_wanted(void **state)
{
        play_both(sends_within_a_limit, reads_slowly, 0);
}

static int option(int sock, int name)
{
        socklen_t len = sizeof(int);
        int v = -1;

        CHECK(unet_getsockopt(sock, IPPROTO_TCP, name, &v, &len) == 0 && len == sizeof v);
        return v;
}

static int set_option(int sock, int name, int v)
{
        return unet_setsockopt(sock, IPPROTO_TCP, name, &v, sizeof v);
}

/* Linux 6.15's names, where libc has none yet. */
enum { RTO_MAX_MS = 44, RTO_MIN_US = 45, DELACK_MAX_US = 46 };

/* A struct of the first version of the header, and one of a later one. */
static void of_other_versions(int c)
{
        struct {
                struct unet_flow f;
                uint32_t later[4];
        } of = {.f = {.size = offsetof(struct unet_flow, ack_every), .send_window = 77, .mss = 3}};

        CHECK(unet_flow_set(c, &of.f) == 0);
        of.f.send_window = 0;
        CHECK(unet_flow_get(c, &of.f) == 0 && of.f.send_window == 77 && of.f.mss == 3);
        of.f = (struct unet_flow){.size = sizeof of, .send_window = 78, .mss = 1000};
        CHECK(unet_flow_set(c, &of.f) == 0);
        of.later[3] = 5;
        CHECK_ERR(unet_flow_set(c, &of.f), EINVAL);
        of.f.size--;
        of.later[3] = 0;
        CHECK(unet_flow_get(c, &of.f) == 0 && of.f.size == sizeof of - 1 &&
              of.f.send_window == 78 && of.f.mss == 1000);
}

static void sets_options(struct side *s)
{
        int c = unet_socket(AF_INET, SOCK_STREAM, 0);
        struct unet_flow f = {.size = sizeof f}, bad;

        CHECK(option(c, RTO_MAX_MS) == 120000 && option(c, RTO_MIN_US) == 200000 &&
              option(c, DELACK_MAX_US) == 200000);
        CHECK(set_option(c, RTO_MAX_MS, 5000) == 0 && option(c, RTO_MAX_MS) == 5000);
        CHECK(set_option(c, RTO_MIN_US, 8000) == 0 && option(c, RTO_MIN_US) == 8000);
        CHECK(set_option(c, DELACK_MAX_US, 4000) == 0 && option(c, DELACK_MAX_US) == 4000);
        CHECK_ERR(set_option(c, RTO_MAX_MS, 999), EINVAL);
        CHECK_ERR(set_option(c, RTO_MAX_MS, 120001), EINVAL);
        CHECK_ERR(set_option(c, RTO_MIN_US, 200001), EINVAL);
        CHECK_ERR(set_option(c, RTO_MIN_US, -1), EINVAL);
        CHECK_ERR(set_option(c, DELACK_MAX_US, 200001), EINVAL);
        CHECK_ERR(set_option(c, DELACK_MAX_US, 0), EINVAL);
        CHECK(unet_flow_get(c, &f) == 0 && f.rto_max == 5000000000 && f.rto_min == 8000000 &&
              f.ack_delay == 4000000);
        bad = f;
        bad.rto_min = 999999;
        CHECK_ERR(unet_flow_set(c, &bad), EINVAL);
        bad = f;
        bad.rto_max = 999999999;
        CHECK_ERR(unet_flow_set(c, &bad), EINVAL);
        bad = f;
        bad.ack_delay = -1;
        CHECK_ERR(unet_flow_set(c, &bad), EINVAL);
        bad.size = 1;
        CHECK_ERR(unet_flow_get(c, &bad), EINVAL);
        of_other_versions(c);
        CHECK_ERR(unet_flow_set(c, NULL), EFAULT);
        CHECK(unet_close(c) == 0);
}

static void options_of_linux_say_the_same(void **state)
{
        assert_int_equal(play_alone(sets_options, 0), 0);
}

/* ---- errors ---- */

static void errs(struct side *s)
{
        int c = unet_socket(AF_INET, SOCK_STREAM, 0), d = unet_socket(AF_INET, SOCK_DGRAM, 0);
        struct unet_window w = window(UNET_WINDOW_CREDIT, 0, 0), none = {0}, bad = window(3, 0, 0);

        CHECK_ERR(unet_window_set(c, NULL), EFAULT);
        CHECK_ERR(unet_window_get(c, NULL), EFAULT);
        CHECK_ERR(unet_window_set(c, &none), EINVAL);
        CHECK_ERR(unet_window_get(c, &none), EINVAL);
        CHECK_ERR(unet_window_set(c, &bad), EINVAL);
        bad = window(UNET_WINDOW_SIZE, 0, 0);
        CHECK_ERR(unet_window_set(c, &bad), EINVAL);
        bad = window(UNET_WINDOW_CREDIT, 65536, 0);
        CHECK_ERR(unet_window_set(c, &bad), EINVAL);
        bad = window(UNET_WINDOW_CREDIT, 0, UINT32_MAX);
        CHECK_ERR(unet_window_set(c, &bad), EINVAL);
        CHECK_ERR(unet_window_set(-1, &w), EBADF);
        CHECK_ERR(unet_window_set(d, &w), EOPNOTSUPP);
        CHECK_ERR(unet_window_grant(d, 1), EOPNOTSUPP);
        CHECK_ERR(unet_window_grant(c, 1), EINVAL);
        CHECK(unet_window_set(c, &w) == 0 && unet_window_grant(c, 1) == 0);
        CHECK(unet_listen(c, 1) == 0);
        CHECK_ERR(unet_window_grant(c, 1), EINVAL);
        CHECK(unet_close(c) == 0 && unet_close(d) == 0);
}

/* ---- no more is unsent than wanted, to the byte ---- */

static void keeps_little_unsent(struct side *s)
{
        struct unet_flow f = {.size = sizeof f,
                              .unsent_most = 5000,
                              .mss = 600,
                              .rate = 1000000000,
                              .burst = 7000,
                              .ack_every = 9000};
        static uint8_t data[20000];
        struct unet_feedback now;
        int c = side_connect(s);

        CHECK(unet_flow_set(c, &f) == 0);
        f = (struct unet_flow){.size = sizeof f};
        CHECK(unet_flow_get(c, &f) == 0 && f.unsent_most == 5000 && f.mss == 600 &&
              f.burst == 7000 && f.ack_every == 9000);
        fill(data, sizeof data, 6, 0);
        CHECK(unet_send(c, data, sizeof data, MSG_DONTWAIT) == 5000);
        CHECK_ERR(unet_send(c, data, 1, MSG_DONTWAIT), EAGAIN);
        tell(s, 1234);
        hear(s);
        EVENTUALLY(unet_feedback(c, &now) == 0 && now.unsent == 5000 - 1234);
        CHECK(unet_send(c, data + 5000, sizeof data - 5000, MSG_DONTWAIT) == 1234);
        tell(s, sizeof data);
        CHECK(unet_send(c, data + 6234, sizeof data - 6234, 0) == (ssize_t)sizeof data - 6234);
        hear(s);
        CHECK(unet_close(c) == 0);
}

static void lets_come(struct side *s)
{
        struct unet_window w = window(UNET_WINDOW_CREDIT, 0, 0);
        static uint8_t got[20000];
        int c = accepts_with(s, &w);
        uint32_t n = (uint32_t)hear(s);

        CHECK(unet_window_grant(c, n) == 0);
        CHECK(unet_recv(c, got, n, MSG_WAITALL) == (ssize_t)n);
        tell(s, 0);
        CHECK(hear(s) == sizeof got && unet_window_grant(c, sizeof got - n) == 0);
        CHECK(unet_recv(c, got + n, sizeof got - n, MSG_WAITALL) == (ssize_t)(sizeof got - n));
        CHECK(filled(got, sizeof got, 6, 0));
        tell(s, 0);
        CHECK(unet_close(c) == 0);
}

static void no_more_is_unsent_than_wanted(void **state)
{
        play_both(keeps_little_unsent, lets_come, 0);
}

static void what_cannot_be_is_an_error(void **state)
{
        assert_int_equal(play_alone(errs, 0), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_sender_sends_exactly_what_was_granted),
                cmocka_unit_test(a_window_changes_its_kind_while_data_flows),
                cmocka_unit_test(a_client_has_credit_too),
                cmocka_unit_test(no_more_is_in_flight_than_wanted),
                cmocka_unit_test(no_more_is_unsent_than_wanted),
                cmocka_unit_test(options_of_linux_say_the_same),
                cmocka_unit_test(what_cannot_be_is_an_error),
        };

        return run_sides(tests);
}
