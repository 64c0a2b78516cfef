/*
 * Options, with the kernel as the oracle: the same calls on a socket of ours and on one of the
 * kernel's, before there is a connection, give the same results, errors, values and lengths. And
 * what options do to connections.
 */
#include "tests/sock/sides.h"

#include <linux/net_tstamp.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct pair {
        int ours, kernels;
};

static const char *label(int level, int name, int v, socklen_t len)
{
        static char text[96];

        snprintf(text, sizeof text, "level %d option %d value %d length %u", level, name, v, len);
        return text;
}

/* -errno, or what was got. */
struct answer {
        int r;
        socklen_t len;
        _Alignas(8) unsigned char bytes[256];
};

static struct answer ask(int sock, bool ours, int level, int name, socklen_t len)
{
        struct answer a = {.len = len};
        int r = ours ? unet_getsockopt(sock, level, name, a.bytes, &a.len)
                     : getsockopt(sock, level, name, a.bytes, &a.len);

        a.r = r == 0 ? 0 : -errno;
        return a;
}

static void same_answer(struct pair p, int level, int name, socklen_t len, const char *what)
{
        struct answer a = ask(p.ours, true, level, name, len),
                      b = ask(p.kernels, false, level, name, len);

        if (a.r == b.r && (a.r != 0 || (a.len == b.len && memcmp(a.bytes, b.bytes, a.len) == 0)))
                return;
        fprintf(stderr, "%s, asked with length %u\n", what, len);
        fprintf(stderr, "ours:     %d, length %u, value %d\n", a.r, a.len, *(int *)a.bytes);
        fprintf(stderr, "kernel's: %d, length %u, value %d\n", b.r, b.len, *(int *)b.bytes);
        _exit(1);
}

static void same_set(struct pair p, int level, int name, const void *val, socklen_t len)
{
        int a = unet_setsockopt(p.ours, level, name, val, len) == 0 ? 0 : errno;
        int b = setsockopt(p.kernels, level, name, val, len) == 0 ? 0 : errno;
        int v = 0;

        memcpy(&v, val, len < 4 ? len : 4);
        if (a == b)
                return;
        fprintf(stderr, "%s: ours %s, kernel's %s\n", label(level, name, v, len), strerror(a),
                strerror(b));
        _exit(1);
}

static struct pair pair_of(int domain, int type)
{
        struct pair p = {unet_socket(domain, type, 0), socket(domain, type, 0)};

        CHECK(p.ours >= 0 && p.kernels >= 0);
        return p;
}

static void pair_end(struct pair p)
{
        unet_close(p.ours);
        close(p.kernels);
}

/* ---- ints ---- */

struct int_case {
        int domain, type, level, name;
        bool set_only;  /* what it gives depends on the machine's settings */
        int values[12]; /* up to a 12345 */
};

#define END 12345
#define T   AF_INET, SOCK_STREAM
#define U   AF_INET, SOCK_DGRAM
#define T6  AF_INET6, SOCK_STREAM

static const struct int_case int_cases[] = {
        {T, SOL_SOCKET, SO_TYPE, false, {1, END}},
        {U, SOL_SOCKET, SO_TYPE, false, {1, END}},
        {T6, SOL_SOCKET, SO_DOMAIN, false, {1, END}},
        {U, SOL_SOCKET, SO_PROTOCOL, false, {1, END}},
        {T, SOL_SOCKET, SO_PROTOCOL, false, {1, END}},
        {T, SOL_SOCKET, SO_ERROR, false, {1, END}},
        {T, SOL_SOCKET, SO_ACCEPTCONN, false, {1, END}},
        {T, SOL_SOCKET, SO_REUSEADDR, false, {0, 1, 7, -1, 0, END}},
        {T, SOL_SOCKET, SO_REUSEPORT, false, {1, 0, END}},
        {T, SOL_SOCKET, SO_KEEPALIVE, false, {1, 5, 0, END}},
        {T, SOL_SOCKET, SO_OOBINLINE, false, {1, 0, END}},
        {T, SOL_SOCKET, SO_SNDBUF, false, {10000, 0, 1, 2304, 100000, END}},
        {T, SOL_SOCKET, SO_RCVBUF, false, {10000, 0, 1, 1152, 100000, END}},
        {U, SOL_SOCKET, SO_SNDBUF, false, {10000, 0, 100000, END}},
        {U, SOL_SOCKET, SO_RCVBUF, false, {10000, 0, 100000, END}},
        {T, SOL_SOCKET, SO_SNDBUF, true, {-1, 2000000000, END}},
        {T, SOL_SOCKET, SO_RCVLOWAT, false, {1, 0, 100, END}},
        {T, SOL_SOCKET, SO_RCVLOWAT, true, {-5, 2000000000, END}},
        {T, IPPROTO_TCP, TCP_NODELAY, false, {1, 0, 3, END}},
        {T, IPPROTO_TCP, TCP_CORK, false, {1, 0, END}},
        {T, IPPROTO_TCP, TCP_QUICKACK, false, {1, 0, 3, END}},
        {T, IPPROTO_TCP, TCP_KEEPIDLE, false, {10, 0, 32767, 32768, -1, END}},
        {T, IPPROTO_TCP, TCP_KEEPINTVL, false, {10, 0, 32767, 32768, END}},
        {T, IPPROTO_TCP, TCP_KEEPCNT, false, {3, 0, 127, 128, END}},
        {T, IPPROTO_TCP, TCP_SYNCNT, false, {3, 0, 127, 128, END}},
        {T, IPPROTO_TCP, TCP_USER_TIMEOUT, false, {5000, 0, -1, END}},
        {T, IPPROTO_TCP, TCP_NOTSENT_LOWAT, false, {16384, 0, -1, END}},
        {T, IPPROTO_TCP, TCP_MAXSEG, false, {1000, 87, 88, 32767, 32768, -1, END}},
        {T, IPPROTO_TCP, TCP_LINGER2, false, {10, 120, -5, END}},
        {T, IPPROTO_TCP, TCP_DEFER_ACCEPT, false, {0, 1, 2, 5, 10, 63, 64, 127, 128, -1, END}},
        {T, IPPROTO_TCP, TCP_WINDOW_CLAMP, false, {65536, 10, 0, END}},
        {T, IPPROTO_IP, IP_TOS, false, {0x10, 0x13, 0xff, 0x100, 0, END}},
        {U, IPPROTO_IP, IP_TOS, false, {0x10, 0x13, 0xff, 0, END}},
        {T, IPPROTO_IP, IP_TTL, false, {1, 255, 0, 256, -1, END}},
        {T, IPPROTO_IP, IP_MINTTL, false, {1, 255, 0, 256, -1, END}},
        {U, IPPROTO_IP, IP_MTU_DISCOVER, false, {0, 1, 2, 3, 4, 5, 6, -1, END}},
        {U, IPPROTO_IP, IP_MTU, false, {1500, END}},
        {T6, IPPROTO_IPV6, IPV6_V6ONLY, false, {1, 0, 5, END}},
        {T6, IPPROTO_IPV6, IPV6_TCLASS, false, {16, 255, 256, -1, -2, END}},
        {T6, IPPROTO_IPV6, IPV6_UNICAST_HOPS, false, {1, 255, 256, -2, END}},
        {T, IPPROTO_IPV6, IPV6_V6ONLY, true, {1, END}},
        {U, IPPROTO_TCP, TCP_NODELAY, true, {1, END}},
};

static void int_case(const struct int_case *c)
{
        static const socklen_t lens[] = {0, 1, 2, 3, 4, 5, 8, 100};
        struct pair p = pair_of(c->domain, c->type);

        for (int i = 0; c->values[i] != END; i++) {
                for (unsigned k = 0; k < sizeof lens / sizeof lens[0] && lens[k] <= 8; k++) {
                        long v = c->values[i];
                        same_set(p, c->level, c->name, &v, lens[k]);
                }
                same_set(p, c->level, c->name, &c->values[i], sizeof(int));
                for (unsigned k = 0; k < sizeof lens / sizeof lens[0] && !c->set_only; k++)
                        same_answer(p, c->level, c->name, lens[k],
                                    label(c->level, c->name, c->values[i], 4));
        }
        pair_end(p);
}

static void all_ints(struct side *s)
{
        for (size_t i = 0; i < sizeof int_cases / sizeof int_cases[0]; i++)
                int_case(&int_cases[i]);
}

static void ints_as_the_kernels(void **state)
{
        assert_int_equal(play_alone(all_ints, 0), 0);
}

/* ---- the others ---- */

static void times(struct pair p, int name)
{
        static const struct timeval tv[] = {{1, 0},       {0, 500000}, {0, 0},      {-1, 0},
                                            {5, 1000000}, {0, -1},     {3600, 4000}};

        for (size_t i = 0; i < sizeof tv / sizeof tv[0]; i++) {
                same_set(p, SOL_SOCKET, name, &tv[i], sizeof tv[i]);
                same_set(p, SOL_SOCKET, name, &tv[i], sizeof tv[i] - 1);
                same_answer(p, SOL_SOCKET, name, sizeof tv[i], "time");
                same_answer(p, SOL_SOCKET, name, 200, "time");
                same_answer(p, SOL_SOCKET, name, 8, "time");
        }
}

static void congestion(struct pair p)
{
        static const char *const names[] = {"cubic", "reno", "nonsense", "cubic\0x", "cub"};

        for (size_t i = 0; i < 4; i++) {
                same_set(p, IPPROTO_TCP, TCP_CONGESTION, names[i], (socklen_t)strlen(names[i]));
                same_set(p, IPPROTO_TCP, TCP_CONGESTION, names[i], (socklen_t)strlen(names[i]) + 1);
                same_answer(p, IPPROTO_TCP, TCP_CONGESTION, 16, names[i]);
                same_answer(p, IPPROTO_TCP, TCP_CONGESTION, 3, names[i]);
                same_answer(p, IPPROTO_TCP, TCP_CONGESTION, 100, names[i]);
        }
        same_set(p, IPPROTO_TCP, TCP_CONGESTION, "", 0);
}

static void memory(struct pair p)
{
        static const int bytes = 50000;

        same_set(p, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        same_set(p, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
        for (socklen_t len = 0; len <= 40; len += 5)
                same_answer(p, SOL_SOCKET, SO_MEMINFO, len, "memory");
        same_set(p, SOL_SOCKET, SO_MEMINFO, &bytes, sizeof bytes);
}

static void other_forms(struct side *s)
{
        static const struct linger lingers[] = {{0, 0}, {1, 0}, {1, 5}};
        static const unsigned long rates[] = {1000000, ~0ul, 0x1ffffffff};
        struct pair p = pair_of(AF_INET, SOCK_STREAM);

        times(p, SO_RCVTIMEO);
        times(p, SO_SNDTIMEO);
        times(p, 66); /* SO_RCVTIMEO_NEW */
        times(p, 67);
        congestion(p);
        for (size_t i = 0; i < sizeof lingers / sizeof lingers[0]; i++) {
                same_set(p, SOL_SOCKET, SO_LINGER, &lingers[i], sizeof lingers[i]);
                same_set(p, SOL_SOCKET, SO_LINGER, &lingers[i], 4);
                same_answer(p, SOL_SOCKET, SO_LINGER, 8, "linger");
                same_answer(p, SOL_SOCKET, SO_LINGER, 5, "linger");
        }
        for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
                same_set(p, SOL_SOCKET, SO_MAX_PACING_RATE, &rates[i], 8);
                same_answer(p, SOL_SOCKET, SO_MAX_PACING_RATE, 8, "pacing");
                same_answer(p, SOL_SOCKET, SO_MAX_PACING_RATE, 4, "pacing");
                same_set(p, SOL_SOCKET, SO_MAX_PACING_RATE, &rates[i], 4);
                same_answer(p, SOL_SOCKET, SO_MAX_PACING_RATE, 8, "pacing");
        }
        memory(p);
        same_set(p, IPPROTO_TCP, TCP_INFO, &lingers[0], 4);
        CHECK_ERR(unet_getsockopt(p.ours, SOL_SOCKET, SO_TYPE, &p, &(socklen_t){(socklen_t)-1}),
                  EINVAL);
        pair_end(p);
}

static void other_forms_as_the_kernels(void **state)
{
        assert_int_equal(play_alone(other_forms, 0), 0);
}

/* ---- on connections ---- */

static int get_int(int c, int level, int name)
{
        int v = -1;
        socklen_t len = sizeof v;

        CHECK(unet_getsockopt(c, level, name, &v, &len) == 0);
        return v;
}

/* A cork holds for 200 ms, as Linux's: on a busy machine that may be over before anybody looks. */
static bool held_long_enough(int64_t since)
{
        return now_ms() - since >= 199;
}

/* tcpi_rcv_wnd, which came with Linux 6.2, and all of TCP_INFO in 6.18. */
enum { RCV_WND = 232, LINUX_INFO = 280 };

static void live_a(struct side *s)
{
        int64_t begun = now_ms(), corked;
        uint32_t newest[LINUX_INFO / sizeof(uint32_t) + 1];
        struct tcp_info info;
        socklen_t len = sizeof info;
        int c = side_connect(s), one = 1, n;

        CHECK(unet_getsockopt(c, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && len == sizeof info);
        CHECK(info.tcpi_state == 1 && info.tcpi_snd_mss > 0 && info.tcpi_snd_cwnd > 0);
        CHECK(info.tcpi_pmtu > info.tcpi_snd_mss);
        CHECK((info.tcpi_total_retrans == 0 || now_ms() - begun >= 200) && info.tcpi_snd_wnd > 0);
        len = 8;
        CHECK(unet_getsockopt(c, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && len == 8);
        len = sizeof newest;
        CHECK(unet_getsockopt(c, IPPROTO_TCP, TCP_INFO, newest, &len) == 0 && len == LINUX_INFO);
        CHECK(newest[RCV_WND / sizeof newest[0]] > 0);
        CHECK(unet_setsockopt(c, IPPROTO_TCP, TCP_CORK, &one, sizeof one) == 0);
        corked = now_ms();
        CHECK(unet_send(c, "held ", 5, 0) == 5);
        CHECK(unet_ioctl(c, SIOCOUTQNSD, &n) == 0 && (n == 5 || held_long_enough(corked)));
        tell(s, (uint64_t)corked);
        hear(s);
        CHECK(unet_send(c, "back", 4, 0) == 4);
        CHECK(unet_setsockopt(c, IPPROTO_TCP, TCP_CORK, &(int){0}, sizeof one) == 0);
        hear(s);
        EVENTUALLY(unet_ioctl(c, SIOCOUTQ, &n) == 0 && n == 0);
        len = sizeof info;
        CHECK(unet_getsockopt(c, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
        CHECK(info.tcpi_bytes_acked >= 9 && info.tcpi_bytes_sent - info.tcpi_bytes_retrans == 9 &&
              info.tcpi_notsent_bytes == 0);
        CHECK(get_int(c, SOL_SOCKET, SO_SNDBUF) > 65536 &&
              get_int(c, SOL_SOCKET, SO_RCVBUF) > 65536);
        CHECK_ERR(unet_setsockopt(c, IPPROTO_TCP, TCP_WINDOW_CLAMP, &(int){0}, sizeof one), EINVAL);
        CHECK_ERR(unet_setsockopt(c, SOL_SOCKET, SO_TIMESTAMPING,
                                  &(int){SOF_TIMESTAMPING_TX_SOFTWARE}, 4),
                  EOPNOTSUPP);
        CHECK(unet_setsockopt(c, SOL_SOCKET, SO_TIMESTAMPING, &(int){SOF_TIMESTAMPING_RX_SOFTWARE},
                              4) == 0);
        tell(s, 0);
}

static void live_b(struct side *s)
{
        int l = unet_socket(AF_INET, SOCK_STREAM, 0), one = 1, idle = 77, c, n;
        int64_t corked;
        struct sockaddr_in a = loopback(0);
        struct timeval tv = {20, 0}, got;
        struct tcp_info info;
        socklen_t len = sizeof got;
        char buf[16];

        CHECK(unet_bind(l, (struct sockaddr *)&a, sizeof a) == 0);
        CHECK(unet_setsockopt(l, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
        CHECK(unet_listen(l, 5) == 0);
        CHECK(unet_setsockopt(l, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle) == 0);
        CHECK(unet_setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
        CHECK(get_int(l, SOL_SOCKET, SO_ACCEPTCONN) == 1);
        CHECK_ERR(unet_ioctl(l, FIONREAD, &n), EINVAL);
        tell(s, port_of(l));
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0);
        CHECK(get_int(c, IPPROTO_TCP, TCP_NODELAY) == 1 &&
              get_int(c, IPPROTO_TCP, TCP_KEEPIDLE) == 77);
        CHECK(get_int(c, SOL_SOCKET, SO_ACCEPTCONN) == 0);
        CHECK(unet_getsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &got, &len) == 0 && got.tv_sec == 20);
        corked = (int64_t)hear(s);
        CHECK((unet_recv(c, buf, sizeof buf, MSG_DONTWAIT | MSG_PEEK) == -1 && errno == EAGAIN) ||
              held_long_enough(corked));
        len = sizeof info;
        CHECK(unet_getsockopt(l, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
        CHECK(info.tcpi_state == 10 && info.tcpi_unacked == 0 && info.tcpi_sacked == 5);
        tell(s, 0);
        CHECK(unet_recv(c, buf, 9, MSG_WAITALL) == 9 && memcmp(buf, "held back", 9) == 0);
        tell(s, 0);
        hear(s);
}

static void options_of_live_connections(void **state)
{
        play_both(live_a, live_b, 0);
}

/* What waits and what is dropped (sock_diag(7)). */
static bool has_dropped(int u, uint32_t m[SK_MEMINFO_VARS])
{
        socklen_t len = SK_MEMINFO_VARS * sizeof *m;

        CHECK(unet_getsockopt(u, SOL_SOCKET, SO_MEMINFO, m, &len) == 0 &&
              len == SK_MEMINFO_VARS * sizeof *m);
        return m[SK_MEMINFO_DROPS] != 0;
}

static void memory_of_datagrams(struct side *s)
{
        int u = unet_socket(AF_INET, SOCK_DGRAM, 0), small = 4000;
        struct sockaddr_in a = loopback(0);
        uint32_t m[SK_MEMINFO_VARS];
        socklen_t len = sizeof a;
        char buf[1000] = "";

        CHECK(unet_setsockopt(u, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
        CHECK(unet_bind(u, (struct sockaddr *)&a, sizeof a) == 0);
        CHECK(unet_getsockname(u, (struct sockaddr *)&a, &len) == 0);
        CHECK_ERR(unet_setsockopt(u, SOL_SOCKET, SO_TIMESTAMPING,
                                  &(int){SOF_TIMESTAMPING_TX_SOFTWARE}, 4),
                  EOPNOTSUPP); /* there is no socket of the kernel's that would tell */
        CHECK(!has_dropped(u, m) && m[SK_MEMINFO_RMEM_ALLOC] == 0 && m[SK_MEMINFO_RCVBUF] == 8000);
        EVENTUALLY(unet_sendto(u, buf, sizeof buf, 0, (struct sockaddr *)&a, sizeof a) ==
                           sizeof buf &&
                   has_dropped(u, m));
        CHECK(m[SK_MEMINFO_RMEM_ALLOC] >= sizeof buf);
        while (unet_recv(u, buf, sizeof buf, MSG_DONTWAIT) > 0)
                ;
        EVENTUALLY(has_dropped(u, m) && m[SK_MEMINFO_RMEM_ALLOC] == 0);
}

static void datagrams_that_wait_and_are_dropped(void **state)
{
        assert_int_equal(play_alone(memory_of_datagrams, 0), 0);
}

/* As with the kernel, where what has arrived has been processed: nobody has to read or to
 * wait first. */
static void news(struct side *s)
{
        int l = unet_socket(AF_INET, SOCK_STREAM, 0), a = unet_socket(AF_INET, SOCK_STREAM, 0), b;
        struct linger at_once = {.l_onoff = 1};
        struct sockaddr_in to = loopback(0);
        struct tcp_info info;
        socklen_t len = sizeof to;

        CHECK(unet_bind(l, (struct sockaddr *)&to, sizeof to) == 0 && unet_listen(l, 1) == 0);
        CHECK(unet_getsockname(l, (struct sockaddr *)&to, &len) == 0);
        CHECK(unet_connect(a, (struct sockaddr *)&to, sizeof to) == 0);
        b = unet_accept(l, NULL, NULL);
        CHECK(b >= 0 && unet_send(a, "abc", 3, 0) == 3);
        len = sizeof info;
        CHECK(unet_getsockopt(b, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
              info.tcpi_bytes_received == 3);
        CHECK(unet_setsockopt(a, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0 &&
              unet_close(a) == 0);
        CHECK(get_int(b, SOL_SOCKET, SO_ERROR) == ECONNRESET);
}

static void what_has_arrived_is_told(void **state)
{
        assert_int_equal(play_alone(news, 0), 0);
}

/* ---- MSG_FASTOPEN ---- */

static bool system_forbids_fastopen(void)
{
        FILE *f = fopen("/proc/sys/net/ipv4/tcp_fastopen", "re");
        int says = 1;

        if (f != NULL && fscanf(f, "%i", &says) != 1)
                says = 1;
        if (f != NULL)
                fclose(f);
        return !(says & 1);
}

static void opens_by_sending(struct side *s)
{
        struct sockaddr_in to = loopback((uint16_t)hear(s)), none = {.sin_family = AF_UNSPEC};
        int c = unet_socket(AF_INET, SOCK_STREAM, 0);
        char buf[8];

        CHECK_ERR(unet_sendto(c, "one", 3, MSG_FASTOPEN, (void *)&none, sizeof none), EOPNOTSUPP);
        if (system_forbids_fastopen()) {
                CHECK_ERR(unet_sendto(c, "one", 3, MSG_FASTOPEN, (void *)&to, sizeof to),
                          EOPNOTSUPP);
                CHECK(unet_connect(c, (void *)&to, sizeof to) == 0 &&
                      unet_send(c, "one", 3, 0) == 3);
        } else {
                CHECK(unet_sendto(c, "one", 3, MSG_FASTOPEN, (void *)&to, sizeof to) == 3);
        }
        CHECK(unet_recv(c, buf, 3, MSG_WAITALL) == 3 && memcmp(buf, "two", 3) == 0);
        if (!system_forbids_fastopen())
                CHECK_ERR(unet_sendto(c, "x", 1, MSG_FASTOPEN, (void *)&to, sizeof to), EISCONN);
        CHECK(unet_close(c) == 0);
}

static void is_opened(struct side *s)
{
        int l = tcp_listen_any(), c;
        char buf[8];

        tell(s, port_of(l));
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0 && unet_recv(c, buf, 3, MSG_WAITALL) == 3 && memcmp(buf, "one", 3) == 0);
        CHECK(unet_send(c, "two", 3, 0) == 3);
        CHECK(unet_recv(c, buf, 1, 0) == 0);
        CHECK(unet_close(c) == 0 && unet_close(l) == 0);
}

static void a_message_opens_a_connection(void **state)
{
        (void)state;
        play_both(opens_by_sending, is_opened, 0);
}

/* ---- TCP_SAVED_SYN ---- */

static void has_its_syn_told(struct side *s)
{
        uint8_t syn[200] = {0};
        socklen_t len = sizeof syn, room = 10;
        int l = unet_socket(AF_INET, SOCK_STREAM, 0), c;
        struct sockaddr_in a = loopback(0), peer;
        socklen_t peer_len = sizeof peer;
        uint16_t sport;

        CHECK_ERR(unet_setsockopt(l, IPPROTO_TCP, TCP_SAVE_SYN, &(int){3}, sizeof(int)), EINVAL);
        CHECK(unet_setsockopt(l, IPPROTO_TCP, TCP_SAVE_SYN, &(int){(int)s->arg}, sizeof(int)) == 0);
        CHECK(get_int(l, IPPROTO_TCP, TCP_SAVE_SYN) == (int)s->arg);
        CHECK(unet_bind(l, (void *)&a, sizeof a) == 0 && unet_listen(l, 5) == 0);
        tell(s, port_of(l));
        c = unet_accept(l, (void *)&peer, &peer_len);
        CHECK(c >= 0);
        if (s->arg != 0) {
                const uint8_t *ip = syn + (s->arg == 2 ? 14 : 0);
                CHECK_ERR(unet_getsockopt(c, IPPROTO_TCP, TCP_SAVED_SYN, syn, &room), EINVAL);
                CHECK(room >= 40);
                CHECK(unet_getsockopt(c, IPPROTO_TCP, TCP_SAVED_SYN, syn, &len) == 0 &&
                      len == room);
                memcpy(&sport, ip + 20, 2);
                CHECK(ip[0] == 0x45 && ip[9] == IPPROTO_TCP && sport == peer.sin_port);
                CHECK((ip[33] & 0x12) == 2 && len == (ip - syn) + 20u + (ip[32] >> 4) * 4u);
                CHECK(s->arg != 2 || (syn[12] == 8 && syn[13] == 0));
                len = sizeof syn;
        }
        CHECK(unet_getsockopt(c, IPPROTO_TCP, TCP_SAVED_SYN, syn, &len) == 0 && len == 0);
        tell(s, 0);
        CHECK(unet_close(c) == 0 && unet_close(l) == 0);
}

static void connects(struct side *s)
{
        int c = tcp_connect_to((uint16_t)hear(s));

        hear(s);
        CHECK(unet_close(c) == 0);
}

static void the_syn_is_told_once(void **state)
{
        (void)state;
        for (uint64_t how = 0; how <= 2; how++)
                play_both(connects, has_its_syn_told, how);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(ints_as_the_kernels),
                cmocka_unit_test(other_forms_as_the_kernels),
                cmocka_unit_test(options_of_live_connections),
                cmocka_unit_test(datagrams_that_wait_and_are_dropped),
                cmocka_unit_test(what_has_arrived_is_told),
                cmocka_unit_test(a_message_opens_a_connection),
                cmocka_unit_test(the_syn_is_told_once),
        };

        return run_sides(tests);
}
