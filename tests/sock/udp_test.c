/* Datagrams: whole or not at all, from one byte to 65507, to whoever has the port;
 * and back-pressure. */
#include "tests/sock/sides.h"

#include <netinet/udp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int udp_at(uint16_t port)
{
        struct sockaddr_in a = loopback(port);
        int s = unet_socket(AF_INET, SOCK_DGRAM, 0);

        CHECK(s >= 0 && unet_bind(s, (struct sockaddr *)&a, sizeof a) == 0);
        return s;
}

static int udp_any(void)
{
        return udp_at(0);
}

/* What comes is all kept, however late its reader: one that has no processor for longer than a
 * millisecond holds nobody up. */
static int udp_roomy(void)
{
        int u = udp_any();

        CHECK(unet_set_buffers(u, 0, 64u << 20) == 0);
        return u;
}

/* ---- echo: unconnected, connected, batches ---- */

static void echo_a(struct side *s)
{
        struct sockaddr_in to = loopback((uint16_t)hear(s)), from;
        int u = unet_socket(AF_INET, SOCK_DGRAM, 0);
        struct iovec out[2] = {{(char[]){"ab"}, 2}, {(char[]){"cd"}, 2}};
        struct mmsghdr mm[2] = {{.msg_hdr = {.msg_iov = out, .msg_iovlen = 2}},
                                {.msg_hdr = {.msg_iov = out, .msg_iovlen = 1}}};
        socklen_t len = sizeof from;
        char buf[16];

        CHECK_ERR(unet_send(u, "x", 1, 0), EDESTADDRREQ);
        CHECK(unet_sendto(u, "one", 3, 0, (struct sockaddr *)&to, sizeof to) == 3);
        CHECK(unet_recvfrom(u, buf, sizeof buf, 0, (struct sockaddr *)&from, &len) == 3);
        CHECK(memcmp(buf, "one", 3) == 0 && from.sin_port == to.sin_port && len == sizeof from);
        CHECK(unet_connect(u, (struct sockaddr *)&to, sizeof to) == 0);
        CHECK(unet_getpeername(u, (struct sockaddr *)&from, &len) == 0 &&
              from.sin_port == to.sin_port);
        CHECK(unet_send(u, "", 0, 0) == 0);
        CHECK(unet_recv(u, buf, sizeof buf, 0) == 0);
        CHECK(unet_sendmmsg(u, mm, 2, 0) == 2 && mm[0].msg_len == 4 && mm[1].msg_len == 2);
        CHECK(unet_recv(u, buf, sizeof buf, MSG_PEEK) == 4);
        CHECK(unet_recv(u, buf, 3, MSG_TRUNC) == 4 && memcmp(buf, "abc", 3) == 0);
        CHECK(unet_recv(u, buf, sizeof buf, 0) == 2 && memcmp(buf, "ab", 2) == 0);
        from = (struct sockaddr_in){.sin_family = AF_UNSPEC};
        CHECK(unet_connect(u, (struct sockaddr *)&from, sizeof from) == 0);
        CHECK_ERR(unet_getpeername(u, (struct sockaddr *)&from, &len), ENOTCONN);
        CHECK(unet_sendto(u, "bye", 3, 0, (struct sockaddr *)&to, sizeof to) == 3);
        hear(s);
}

static void echo_b(struct side *s)
{
        struct sockaddr_in from;
        int u = udp_any();
        char buf[16];
        ssize_t n;

        tell(s, port_of(u));
        do {
                socklen_t len = sizeof from;
                n = unet_recvfrom(u, buf, sizeof buf, 0, (struct sockaddr *)&from, &len);
                CHECK(n >= 0 && from.sin_family == AF_INET);
                if (memcmp(buf, "bye", 3) != 0)
                        CHECK(unet_sendto(u, buf, (size_t)n, 0, (struct sockaddr *)&from, len) ==
                              n);
        } while (memcmp(buf, "bye", 3) != 0);
        tell(s, 0);
}

static void datagrams_there_and_back(void **state)
{
        play_both(echo_a, echo_b, 0);
}

/* Those before the one that cannot be sent arrive, though their sender makes no further call; and
 * so do all of a longer batch. */
static void batches_a(struct side *s)
{
        static char huge[65508];
        struct sockaddr_in to = loopback((uint16_t)hear(s));
        int u = unet_socket(AF_INET, SOCK_DGRAM, 0);
        struct iovec one = {(char[]){"x"}, 1}, bad = {huge, sizeof huge};
        struct mmsghdr mm[40];

        for (int i = 0; i < 40; i++)
                mm[i] = (struct mmsghdr){.msg_hdr = {.msg_name = &to,
                                                     .msg_namelen = sizeof to,
                                                     .msg_iov = &one,
                                                     .msg_iovlen = 1}};
        for (int n = 1; n < 40; n += 6) {
                tell(s, (uint64_t)n);
                CHECK(unet_sendmmsg(u, mm, (unsigned)n, 0) == n);
                hear(s);
                mm[n].msg_hdr.msg_iov = &bad;
                tell(s, (uint64_t)n);
                CHECK(unet_sendmmsg(u, mm, 40, 0) == n);
                hear(s);
                mm[n].msg_hdr.msg_iov = &one;
        }
        tell(s, 0);
}

static void batches_b(struct side *s)
{
        int u = udp_any();
        char c;

        tell(s, port_of(u));
        for (uint64_t n = hear(s); n != 0; n = hear(s)) {
                for (uint64_t i = 0; i < n; i++)
                        CHECK(unet_recv(u, &c, 1, 0) == 1);
                tell(s, n);
        }
}

static void batches_arrive_whole_or_cut_short(void **state)
{
        play_both(batches_a, batches_b, 0);
}

/* ---- sizes ---- */

static const size_t sizes[] = {0,    1,    14,   100,  171,  172,  173,   200,  512,
                               1472, 2047, 2048, 2049, 4096, 9000, 32768, 65507};
#define SIZES (sizeof sizes / sizeof sizes[0])

static void sizes_a(struct side *s)
{
        struct sockaddr_in to = loopback((uint16_t)hear(s));
        int u = unet_socket(AF_INET, SOCK_DGRAM, 0);
        static uint8_t buf[65508];

        for (size_t i = 0; i < SIZES; i++) {
                fill(buf, sizes[i], s->arg, i);
                ssize_t n = (ssize_t)sizes[i];
                CHECK(unet_sendto(u, buf, sizes[i], 0, (struct sockaddr *)&to, sizeof to) == n);
        }
        CHECK_ERR(unet_sendto(u, buf, 65508, 0, (struct sockaddr *)&to, sizeof to), EMSGSIZE);
        hear(s);
}

static void sizes_b(struct side *s)
{
        int u = udp_any();
        static uint8_t buf[70000];

        tell(s, port_of(u));
        for (size_t i = 0; i < SIZES; i++) {
                CHECK(unet_recv(u, buf, sizeof buf, 0) == (ssize_t)sizes[i]);
                CHECK(filled(buf, sizes[i], s->arg, i));
        }
        tell(s, 0);
}

static void datagrams_of_all_sizes_arrive_whole(void **state)
{
        play_both(sizes_a, sizes_b, test_seed());
}

/* ---- back-pressure ---- */

#define FLOOD 20000

/* The receiver sleeps: the sender fills its channel, is told so, and loses nothing by it. */
static void flood_a(struct side *s)
{
        struct sockaddr_in to = loopback((uint16_t)hear(s));
        int u = unet_socket(AF_INET, SOCK_DGRAM, 0);
        uint8_t buf[1400];

        CHECK(unet_connect(u, (struct sockaddr *)&to, sizeof to) == 0);
        for (uint32_t i = 0; i < FLOOD; i++) {
                fill(buf, sizeof buf, s->arg, i);
                memcpy(buf, &i, sizeof i);
                CHECK(unet_send(u, buf, sizeof buf, 0) == sizeof buf);
        }
        CHECK(unet_send(u, "over", 4, 0) == 4);
        hear(s);
}

static void flood_b(struct side *s)
{
        int u = udp_roomy();
        uint32_t got = 0, i;
        uint8_t buf[1500], want[1400];
        ssize_t n;

        tell(s, port_of(u));
        while ((n = unet_recv(u, buf, sizeof buf, 0)) == 1400) {
                memcpy(&i, buf, sizeof i);
                CHECK(i == got);
                fill(want, sizeof want, s->arg, i);
                CHECK(memcmp(want + 4, buf + 4, sizeof want - 4) == 0);
                got++;
        }
        CHECK(n == 4 && got == FLOOD);
        tell(s, 0);
}

static void a_fast_sender_is_held_up_and_loses_nothing(void **state)
{
        play(TWO_PROCESSES, flood_a, flood_b, test_seed());
}

/* ---- many readers: two processes with two threads each ---- */

#define NUMBERED 30000u
#define END      UINT32_MAX

struct readers { /* shared by both processes */
        int u;
        uint64_t seed;
        _Atomic uint32_t done, good, bad, twice;
        _Atomic uint8_t seen[NUMBERED];
};

static size_t numbered_len(uint32_t i)
{
        return i % 7 == 0 ? 1400 : 4 + i % 300; /* some in frames, some not */
}

static void *read_numbered(void *arg)
{
        struct readers *r = arg;
        uint8_t buf[2000], want[2000];
        uint32_t i;

        for (;;) {
                ssize_t n = unet_recv(r->u, buf, sizeof buf, 0);
                memcpy(&i, buf, sizeof i);
                if (n == 4 && i == END)
                        break;
                if (n < 4 || i >= NUMBERED || (size_t)n != numbered_len(i)) {
                        r->bad++;
                        continue;
                }
                fill(want, (size_t)n, r->seed, i);
                if (memcmp(want + 4, buf + 4, (size_t)n - 4) != 0)
                        r->bad++;
                else if (r->seen[i]++ != 0)
                        r->twice++;
                else
                        r->good++;
        }
        r->done++;
        return NULL;
}

static void two_threads_read(struct readers *r)
{
        pthread_t t;

        CHECK(pthread_create(&t, NULL, read_numbered, r) == 0);
        read_numbered(r);
        CHECK(pthread_join(t, NULL) == 0);
}

static void readers_b(struct side *s)
{
        struct readers *r =
                mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int status;
        pid_t pid;

        CHECK(r != MAP_FAILED);
        r->seed = s->arg;
        r->u = udp_roomy();
        pid = fork();
        CHECK(pid >= 0);
        tell(s, pid == 0 ? 0 : port_of(r->u));
        two_threads_read(r);
        if (pid == 0)
                _exit(0);
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        CHECK(r->bad == 0 && r->twice == 0);
        CHECK(r->good == NUMBERED);
        tell(s, 0);
}

static void readers_a(struct side *s)
{
        uint64_t one = hear(s), other = hear(s);
        struct sockaddr_in to = loopback((uint16_t)(one != 0 ? one : other));
        int u = unet_socket(AF_INET, SOCK_DGRAM, 0);
        uint8_t buf[2000];

        CHECK(unet_connect(u, (struct sockaddr *)&to, sizeof to) == 0);
        for (uint32_t i = 0; i < NUMBERED; i++) {
                fill(buf, sizeof buf, s->arg, i);
                memcpy(buf, &i, sizeof i);
                CHECK(unet_send(u, buf, numbered_len(i), 0) == (ssize_t)numbered_len(i));
                if (i % 1000 == 999)
                        usleep(1000); /* and so the readers sleep now and then */
        }
        for (uint32_t i = 0; i < 4; i++)
                CHECK(unet_send(u, &(uint32_t){END}, 4, 0) == 4);
        hear(s);
}

static void of_many_readers_one_gets_each_datagram(void **state)
{
        play(TWO_PROCESSES, readers_a, readers_b, test_seed());
}

/* The receiver's process is not in the library at all: a non-blocking sender is told, and POLLOUT
 * says when.
 */
static void pressure_a(struct side *s)
{
        struct sockaddr_in to = loopback((uint16_t)hear(s));
        int u = unet_socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), n = 0;
        struct unet_pollfd p = {.fd = -1, .events = POLLOUT};
        static char buf[32768];

        p.sock = u;
        CHECK(unet_connect(u, (struct sockaddr *)&to, sizeof to) == 0);
        for (int i = 0; i < 3000; i++) {
                if (unet_send(u, buf, sizeof buf, 0) == sizeof buf) {
                        n++;
                        continue;
                }
                CHECK(errno == EAGAIN);
                CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1 && p.revents == POLLOUT);
        }
        CHECK(n > 0);
        tell(s, 0);
}

static void pressure_b(struct side *s)
{
        int u = udp_any();

        tell(s, port_of(u));
        hear(s);
}

static void nonblocking_senders_feel_pressure(void **state)
{
        play(TWO_PROCESSES, pressure_a, pressure_b, 0);
}

/* ---- nobody there ---- */

static void nobody_a(struct side *s)
{
        struct sockaddr_in to = loopback((uint16_t)hear(s)), far = {.sin_family = AF_INET};
        struct sockaddr_in none = loopback(0);
        int u = unet_socket(AF_INET, SOCK_DGRAM, 0);

        far.sin_addr.s_addr = htonl(0xcb007101); /* 203.0.113.1, documentation */
        far.sin_port = htons(7);
        CHECK_ERR(unet_sendto(u, "x", 1, 0, (struct sockaddr *)&to, sizeof to), ECONNREFUSED);
        CHECK_ERR(unet_sendto(u, "x", 1, 0, (struct sockaddr *)&far, sizeof far), ENETUNREACH);
        CHECK_ERR(unet_connect(u, (struct sockaddr *)&far, sizeof far), ENETUNREACH);
        CHECK_ERR(unet_sendto(u, "x", 1, 0, (struct sockaddr *)&none, sizeof none), EINVAL);
        CHECK(unet_connect(u, (struct sockaddr *)&to, sizeof to) == 0); /* may come yet */
        CHECK_ERR(unet_send(u, "x", 1, 0), ECONNREFUSED);
        tell(s, 0);
        hear(s);
        CHECK(unet_send(u, "here", 4, 0) == 4);
        hear(s);
        /* Closed: refused at once, or by ICMP after one more. */
        EVENTUALLY(unet_send(u, "gone", 4, 0) < 0 && errno == ECONNREFUSED);
        tell(s, 0);
}

static void nobody_b(struct side *s)
{
        int u = udp_at(own_port());
        struct sockaddr_in a = loopback(port_of(u));
        char buf[8];

        CHECK(unet_close(u) == 0);
        tell(s, ntohs(a.sin_port));
        hear(s);
        u = unet_socket(AF_INET, SOCK_DGRAM, 0);
        CHECK(unet_bind(u, (struct sockaddr *)&a, sizeof a) == 0);
        tell(s, 0);
        CHECK(unet_recv(u, buf, sizeof buf, 0) == 4);
        CHECK(unet_close(u) == 0);
        tell(s, 0);
        hear(s);
}

static void ports_that_nobody_has_refuse(void **state)
{
        play_both(nobody_a, nobody_b, 0);
}

/* ---- datagrams that several calls make ---- */

#define CORKED 40u /* all of them fit the receive buffer: none may be missing */

static const size_t corked_parts[] = {1, 700, 20000, 30};

static size_t corked_len(void)
{
        size_t n = 0;

        for (size_t i = 0; i < sizeof corked_parts / sizeof corked_parts[0]; i++)
                n += corked_parts[i];
        return n;
}

/* Each of four parts; every other one let go by the option, which waits as send() does. */
static void corked_a(struct side *s)
{
        struct sockaddr_in to = loopback((uint16_t)hear(s));
        int u = unet_socket(AF_INET, SOCK_DGRAM, 0);
        static uint8_t buf[30000];

        CHECK(unet_connect(u, (struct sockaddr *)&to, sizeof to) == 0);
        for (unsigned i = 0; i < CORKED; i++) {
                size_t n = 0;
                int on = i % 2;
                CHECK(unet_setsockopt(u, IPPROTO_UDP, UDP_CORK, &on, sizeof on) == 0);
                for (unsigned k = 0; k < 4; k++) {
                        size_t part = corked_parts[k];
                        fill(buf, part, i, n);
                        CHECK(unet_send(u, buf, part, !on && k < 3 ? MSG_MORE : 0) ==
                              (ssize_t)part);
                        n += part;
                }
                on = 0;
                CHECK(unet_setsockopt(u, IPPROTO_UDP, UDP_CORK, &on, sizeof on) == 0);
        }
        tell(s, 0);
        hear(s);
}

static void corked_b(struct side *s)
{
        static uint8_t buf[65536];
        int u = udp_any();

        tell(s, port_of(u));
        for (unsigned i = 0; i < CORKED; i++) {
                CHECK(unet_recv(u, buf, sizeof buf, 0) == (ssize_t)corked_len());
                CHECK(filled(buf, corked_len(), i, 0));
        }
        hear(s);
        tell(s, 0);
}

static void corked_datagrams_arrive_whole(void **state)
{
        play_both(corked_a, corked_b, 0);
}

/* Where there is no room what is begun stays as it was, and the next attempt sends it whole. What
 * is dropped at the other end, whose reader may be slow, is dropped whole. */
#define PRESSED      (3000u / SLOWER)
#define PRESSED_PART 15000u

static void corked_pressure_a(struct side *s)
{
        struct sockaddr_in to = loopback((uint16_t)hear(s));
        int u = unet_socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        static uint8_t buf[2 * PRESSED_PART];

        CHECK(unet_connect(u, (struct sockaddr *)&to, sizeof to) == 0);
        for (uint64_t i = 0; i < PRESSED; i++) {
                struct unet_pollfd p = {.sock = u, .fd = -1, .events = POLLOUT};
                fill(buf, sizeof buf, i, 0);
                memcpy(buf, &i, sizeof i);
                CHECK(unet_send(u, buf, PRESSED_PART, MSG_MORE) == PRESSED_PART);
                while (unet_send(u, buf + PRESSED_PART, PRESSED_PART, 0) != PRESSED_PART) {
                        CHECK(errno == EAGAIN);
                        CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1);
                }
        }
        tell(s, 0);
        hear(s);
}

struct pressed {
        struct side *s;
        uint16_t port;
        _Atomic bool over;
};

/* Again and again: the reader may be so late that it is dropped. */
static void *tells_when_over(void *arg)
{
        struct pressed *p = arg;
        struct sockaddr_in to = loopback(p->port);
        int u = unet_socket(AF_INET, SOCK_DGRAM, 0);

        hear(p->s);
        while (!p->over) {
                CHECK(unet_sendto(u, "over", 4, 0, (struct sockaddr *)&to, sizeof to) == 4);
                sleep_ms(10);
        }
        return NULL;
}

static void corked_pressure_b(struct side *s)
{
        static uint8_t buf[65536];
        int u = udp_any();
        uint64_t next = 0, i;
        struct pressed p = {s, port_of(u), false};
        pthread_t t;

        tell(s, p.port);
        CHECK(pthread_create(&t, NULL, tells_when_over, &p) == 0);
        for (ssize_t n; (n = unet_recv(u, buf, sizeof buf, 0)) != 4; next = i + 1) {
                CHECK(n == 2 * PRESSED_PART);
                memcpy(&i, buf, sizeof i);
                CHECK(i >= next && i < PRESSED);
                CHECK(filled(buf + sizeof i, 2 * PRESSED_PART - sizeof i, i, sizeof i));
        }
        p.over = true;
        CHECK(next > 0 && pthread_join(t, NULL) == 0);
        tell(s, 0);
}

static void corked_datagrams_feel_pressure(void **state)
{
        play(TWO_PROCESSES, corked_pressure_a, corked_pressure_b, 0);
}

/* ---- ports are given back whole ---- */

static void again(struct side *s)
{
        struct sockaddr_in to = loopback(9), any = {.sin_family = AF_INET};
        uint16_t port = own_port();
        int u = udp_at(port);

        for (int i = 0; i < 200; i++) {
                CHECK(unet_close(u) == 0);
                u = unet_socket(AF_INET, SOCK_DGRAM, 0);
                any.sin_port = htons(port);
                CHECK(unet_bind(u, (struct sockaddr *)&any, sizeof any) == 0);
                CHECK(unet_connect(u, (struct sockaddr *)&to, sizeof to) == 0);
        }
        CHECK(unet_connect(u, (struct sockaddr *)&any, sizeof any) == 0 || errno == ECONNREFUSED);
}

static void a_port_can_be_bound_again_after_connect_and_close(void **state)
{
        assert_int_equal(play_alone(again, 0), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(datagrams_there_and_back),
                cmocka_unit_test(batches_arrive_whole_or_cut_short),
                cmocka_unit_test(datagrams_of_all_sizes_arrive_whole),
                cmocka_unit_test(a_fast_sender_is_held_up_and_loses_nothing),
                cmocka_unit_test(of_many_readers_one_gets_each_datagram),
                cmocka_unit_test(nonblocking_senders_feel_pressure),
                cmocka_unit_test(corked_datagrams_arrive_whole),
                cmocka_unit_test(corked_datagrams_feel_pressure),
                cmocka_unit_test(ports_that_nobody_has_refuse),
                cmocka_unit_test(a_port_can_be_bound_again_after_connect_and_close),
        };

        return run_sides(tests);
}
