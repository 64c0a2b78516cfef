/* Streams: every byte, in order, whatever the sizes of writes and reads and however they end. */
#include "tests/sock/sides.h"

#include <pthread.h>
#include <unistd.h>

#define BIG ((100u << 20) / SLOWER)
#define BUF (1u << 20)

/* Sizes from one byte to a megabyte, small ones as likely as large. */
static size_t some_size(uint64_t *r, size_t most)
{
        size_t n = (size_t)1 << rnd(r) % 21;

        n = n / 2 + rnd(r) % (n / 2 + 1) + 1;
        return n < most ? n : most;
}

static void send_stream(int c, uint64_t seed, uint64_t bytes, bool nonblock)
{
        static __thread uint8_t buf[BUF];
        uint64_t r = seed, pos = 0;

        while (pos < bytes) {
                size_t n = some_size(&r, bytes - pos < BUF ? (size_t)(bytes - pos) : BUF);
                fill(buf, n, seed, pos);
                for (size_t at = 0; at < n;) {
                        ssize_t k = unet_send(c, buf + at, n - at, 0);
                        if (nonblock && k < 0 && errno == EAGAIN) {
                                struct unet_pollfd p = {.sock = c, .fd = -1, .events = POLLOUT};
                                CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1);
                                continue;
                        }
                        CHECK(k > 0 && (nonblock || (size_t)k == n - at));
                        at += (size_t)k;
                }
                pos += n;
        }
}

static void recv_stream(int c, uint64_t seed, uint64_t bytes, bool nonblock)
{
        static __thread uint8_t buf[BUF];
        uint64_t r = ~seed, pos = 0;
        ssize_t n;

        for (;;) {
                n = unet_recv(c, buf, some_size(&r, BUF), 0);
                if (nonblock && n < 0 && errno == EAGAIN) {
                        struct unet_pollfd p = {.sock = c, .fd = -1, .events = POLLIN};
                        CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1);
                        continue;
                }
                CHECK(n >= 0);
                if (n == 0)
                        break;
                CHECK(filled(buf, (size_t)n, seed, pos));
                pos += (uint64_t)n;
        }
        CHECK(pos == bytes);
}

/* ---- one way ---- */

static void blocking_sender(struct side *s)
{
        int c = side_connect(s);

        send_stream(c, s->arg, BIG, false);
        CHECK(unet_close(c) == 0);
}

static void blocking_receiver(struct side *s)
{
        int c = side_accept(s);

        recv_stream(c, s->arg, BIG, false);
        CHECK(unet_close(c) == 0);
}

static void a_hundred_megabytes_in_random_sizes(void **state)
{
        play_both(blocking_sender, blocking_receiver, test_seed());
}

static void nonblocking_sender(struct side *s)
{
        int c = side_connect(s);

        CHECK(unet_set_nonblock(c, 1) == 0);
        send_stream(c, s->arg, BIG, true);
        CHECK(unet_close(c) == 0);
}

static void nonblocking_receiver(struct side *s)
{
        int c = side_accept(s);

        CHECK(unet_set_nonblock(c, 1) == 0);
        recv_stream(c, s->arg, BIG, true);
        CHECK(unet_close(c) == 0);
}

static void the_same_without_blocking(void **state)
{
        play_both(nonblocking_sender, nonblocking_receiver, test_seed());
}

/* ---- the calls beside each other ---- */

#define MIXED 200000u

/* What unet_recv() took ahead is neither lost nor read twice by the calls that say more. */
static ssize_t some_read(int c, uint8_t *buf, size_t n, uint64_t *r)
{
        struct iovec iov[2] = {{buf, n / 2}, {buf + n / 2, n - n / 2}};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
        uint8_t seen[64];
        ssize_t k;

        switch (rnd(r) % 8) {
        case 0:
                return unet_recvmsg(c, &m, 0);
        case 1:
                return unet_readv(c, iov, 2);
        case 2:
                return unet_recvfrom(c, buf, n, MSG_WAITALL, NULL, NULL);
        case 3:
                return unet_recv(c, buf, n, MSG_WAITALL);
        case 4:
                k = unet_recv(c, seen, n, MSG_PEEK);
                CHECK(k >= 0);
                CHECK(unet_recv(c, buf, (size_t)k, 0) == k && memcmp(buf, seen, (size_t)k) == 0);
                return k;
        default:
                return unet_recv(c, buf, n, 0);
        }
}

static void mixed_sender(struct side *s)
{
        int c = side_connect(s);

        send_stream(c, s->arg, MIXED, false);
        CHECK_ERR(unet_send(c, NULL, 1, 0), EFAULT);
        CHECK_ERR(unet_send(c, "", (size_t)-1, 0), EINVAL);
        CHECK(unet_send(c, NULL, 0, 0) == 0 && unet_send(c, "", 0, 0) == 0);
        CHECK(unet_shutdown(c, SHUT_WR) == 0);
        CHECK_ERR(unet_send(c, "x", 1, 0), EPIPE);
        CHECK(unet_recv(c, &(char){0}, 1, 0) == 0);
        CHECK(unet_close(c) == 0);
        CHECK_ERR(unet_send(c, "x", 1, 0), EBADF);
        CHECK_ERR(unet_recv(c, &(char){0}, 1, 0), EBADF);
}

static void mixed_receiver(struct side *s)
{
        int c = side_accept(s), lowat = 32;
        uint64_t r = ~s->arg, pos = 0;
        uint8_t buf[64];
        ssize_t n = 1;

        CHECK_ERR(unet_recv(c, NULL, 1, 0), EFAULT);
        while (pos < MIXED && n > 0) {
                n = some_read(c, buf, 1 + rnd(&r) % sizeof buf, &r);
                CHECK(n > 0 && filled(buf, (size_t)n, s->arg, pos));
                pos += (uint64_t)n;
        }
        CHECK(unet_setsockopt(c, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof lowat) == 0);
        CHECK(unet_recv(c, buf, sizeof buf, 0) == 0);
        CHECK(unet_close(c) == 0);
}

static void calls_of_all_kinds_read_one_stream(void **state)
{
        play_both(mixed_sender, mixed_receiver, test_seed());
}

/* ---- both ways, with half closes ---- */

static void ask_and_shut(struct side *s)
{
        int c = side_connect(s);

        send_stream(c, s->arg, BIG / 8, false);
        CHECK(unet_shutdown(c, SHUT_WR) == 0);
        CHECK_ERR(unet_send(c, "x", 1, 0), EPIPE);
        recv_stream(c, s->arg + 1, BIG / 8, false);
        CHECK(unet_close(c) == 0);
}

static void answer_after_the_end(struct side *s)
{
        int c = side_accept(s);

        recv_stream(c, s->arg, BIG / 8, false);
        send_stream(c, s->arg + 1, BIG / 8, false);
        CHECK(unet_close(c) == 0);
}

static void the_client_closes_its_half_first(void **state)
{
        play_both(ask_and_shut, answer_after_the_end, test_seed());
}

static void the_server_closes_its_half_first(void **state)
{
        play_both(answer_after_the_end, ask_and_shut, test_seed());
}

struct half {
        int c;
        uint64_t seed;
};

static void *send_half(void *arg)
{
        struct half *h = arg;

        send_stream(h->c, h->seed, BIG / 4, false);
        CHECK(unet_shutdown(h->c, SHUT_WR) == 0);
        return NULL;
}

static void talk(int c, uint64_t mine, uint64_t theirs)
{
        struct half h = {c, mine};
        pthread_t t;

        CHECK(pthread_create(&t, NULL, send_half, &h) == 0);
        recv_stream(c, theirs, BIG / 4, false);
        pthread_join(t, NULL);
        CHECK(unet_close(c) == 0);
}

static void talk_a(struct side *s)
{
        talk(side_connect(s), s->arg, s->arg + 1);
}

static void talk_b(struct side *s)
{
        talk(side_accept(s), s->arg + 1, s->arg);
}

static void both_talk_at_once(void **state)
{
        play_both(talk_a, talk_b, test_seed());
}

/* ---- small buffers ---- */

static void narrow_a(struct side *s)
{
        int c = side_connect(s);

        CHECK(unet_set_buffers(c, 8192, 0) == 0);
        send_stream(c, s->arg, BIG / 64, false);
        CHECK(unet_close(c) == 0);
}

static void narrow_b(struct side *s)
{
        int l = tcp_listen_any(), c;

        CHECK(unet_set_buffers(l, 0, 4096) == 0);
        tell(s, port_of(l));
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0);
        recv_stream(c, s->arg, BIG / 64, false);
}

static void through_small_buffers(void **state)
{
        play_both(narrow_a, narrow_b, test_seed());
}

/* ---- many ---- */

#define MANY 2000

static void many_a(struct side *s)
{
        uint16_t port = (uint16_t)hear(s);
        static int c[MANY];
        uint32_t got;

        for (uint32_t i = 0; i < MANY; i++) {
                c[i] = tcp_connect_to(port);
                CHECK(unet_send(c[i], &i, sizeof i, 0) == sizeof i);
        }
        for (uint32_t i = 0; i < MANY; i++) {
                CHECK(unet_recv(c[i], &got, sizeof got, MSG_WAITALL) == sizeof got && got == i + 7);
                CHECK(unet_recv(c[i], &got, sizeof got, 0) == 0);
                CHECK(unet_close(c[i]) == 0);
        }
}

static void many_b(struct side *s)
{
        int l = tcp_listen_any();
        static int c[MANY];
        uint32_t got;

        tell(s, port_of(l));
        for (uint32_t i = 0; i < MANY; i++)
                CHECK((c[i] = unet_accept(l, NULL, NULL)) >= 0);
        for (uint32_t i = 0; i < MANY; i++) {
                CHECK(unet_recv(c[i], &got, sizeof got, MSG_WAITALL) == sizeof got);
                got += 7;
                CHECK(unet_send(c[i], &got, sizeof got, 0) == sizeof got);
                CHECK(unet_close(c[i]) == 0);
        }
}

static void two_thousand_connections_at_once(void **state)
{
        play_both(many_a, many_b, 0);
}

#define ROUNDS (20000 / SLOWER)

static void sequence_a(struct side *s)
{
        uint16_t port = (uint16_t)hear(s);
        char b = 'a';

        for (uint32_t i = 0; i < ROUNDS; i++) {
                int c = tcp_connect_to(port);
                CHECK(unet_send(c, &b, 1, 0) == 1);
                CHECK(unet_recv(c, &b, 1, 0) == 1 && b == 'z');
                CHECK(unet_close(c) == 0);
                b = 'a';
        }
}

static void sequence_b(struct side *s)
{
        int l = tcp_listen_any();
        char b;

        tell(s, port_of(l));
        for (uint32_t i = 0; i < ROUNDS; i++) {
                int c = unet_accept(l, NULL, NULL);
                CHECK(unet_recv(c, &b, 1, 0) == 1 && b == 'a');
                CHECK(unet_send(c, "z", 1, 0) == 1);
                CHECK(unet_recv(c, &b, 1, 0) == 0);
                CHECK(unet_close(c) == 0);
        }
}

/* More than there are client ports in a block, and (but for sanitizers) than records in TIME-WAIT:
 * both are used again. */
static void twenty_thousand_connections_in_sequence(void **state)
{
        play(TWO_PROCESSES, sequence_a, sequence_b, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_hundred_megabytes_in_random_sizes),
                cmocka_unit_test(the_same_without_blocking),
                cmocka_unit_test(calls_of_all_kinds_read_one_stream),
                cmocka_unit_test(the_client_closes_its_half_first),
                cmocka_unit_test(the_server_closes_its_half_first),
                cmocka_unit_test(both_talk_at_once),
                cmocka_unit_test(through_small_buffers),
                cmocka_unit_test(two_thousand_connections_at_once),
                cmocka_unit_test(twenty_thousand_connections_in_sequence),
        };

        return run_sides(tests);
}
