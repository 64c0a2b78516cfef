/* Every call of <unet/sock.h> on a connection, between two processes and between two threads
 * of one. */
#include "tests/sock/sides.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- send and receive, in all their forms ---- */

static void forms_client(struct side *s)
{
        struct iovec iov[3] = {
                {(char[]){"one "}, 4}, {(char[]){"two "}, 4}, {(char[]){"three"}, 5}};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = 3};
        struct mmsghdr mm[2] = {{.msg_hdr = m}, {.msg_hdr = m}};
        int c = side_connect(s);
        char buf[64];

        CHECK(unet_send(c, "hello", 5, 0) == 5);
        CHECK(unet_recv(c, buf, 5, MSG_WAITALL) == 5 && memcmp(buf, "HELLO", 5) == 0);
        CHECK(unet_sendto(c, "again", 5, 0, NULL, 0) == 5);
        CHECK(unet_writev(c, iov, 3) == 13);
        CHECK(unet_sendmsg(c, &m, 0) == 13);
        CHECK(unet_sendmmsg(c, mm, 2, 0) == 2 && mm[0].msg_len == 13 && mm[1].msg_len == 13);
        CHECK(unet_recv(c, buf, sizeof buf, 0) == 0);
        CHECK(unet_close(c) == 0);
}

static void forms_server(struct side *s)
{
        char a[4], b[4], d[5], buf[64];
        struct iovec iov[3] = {{a, 4}, {b, 4}, {d, 5}};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = 3};
        struct mmsghdr mm[2] = {{.msg_hdr = m}, {.msg_hdr = m}};
        int c = side_accept(s);
        socklen_t len = sizeof buf;

        CHECK(unet_recv(c, buf, 5, 0) == 5 && memcmp(buf, "hello", 5) == 0);
        CHECK(unet_send(c, "HELLO", 5, 0) == 5);
        CHECK(unet_recvfrom(c, buf, 5, MSG_WAITALL, (struct sockaddr *)&buf[8], &len) == 5 &&
              len == 0);
        CHECK(memcmp(buf, "again", 5) == 0);
        CHECK(unet_recv(c, buf, 13, MSG_WAITALL | MSG_PEEK) == 13);
        CHECK(unet_readv(c, iov, 3) == 13);
        CHECK(memcmp(a, "one ", 4) == 0 && memcmp(b, "two ", 4) == 0 && memcmp(d, "three", 5) == 0);
        CHECK(unet_recvmsg(c, &m, MSG_WAITALL) == 13);
        CHECK(unet_recvmmsg(c, mm, 2, MSG_WAITALL, NULL) == 2 && mm[0].msg_len == 13 &&
              mm[1].msg_len == 13);
        CHECK(unet_shutdown(c, SHUT_WR) == 0);
        CHECK(unet_recv(c, buf, 1, 0) == 0);
        CHECK(unet_close(c) == 0);
}

static void all_forms_of_send_and_receive(void **state)
{
        play_both(forms_client, forms_server, 0);
}

/* ---- names ---- */

static void names_client(struct side *s)
{
        struct sockaddr_in me, peer;
        socklen_t len = sizeof me;
        int c = side_connect(s);

        CHECK(unet_getsockname(c, (struct sockaddr *)&me, &len) == 0 && len == sizeof me);
        CHECK(me.sin_addr.s_addr == htonl(INADDR_LOOPBACK) && me.sin_port != 0);
        tell(s, ntohs(me.sin_port));
        CHECK(unet_getpeername(c, (struct sockaddr *)&peer, &len) == 0);
        CHECK(ntohs(peer.sin_port) == hear(s));
        len = 4;
        CHECK(unet_getpeername(c, (struct sockaddr *)&peer, &len) == 0 && len == sizeof peer);
        hear(s);
}

static void names_server(struct side *s)
{
        int l = tcp_listen_any(), c;
        struct sockaddr_in peer, name;
        socklen_t len = sizeof peer;

        tell(s, port_of(l));
        c = unet_accept4(l, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK);
        CHECK(c >= 0 && len == sizeof peer && unet_get_nonblock(c) == 1);
        CHECK(ntohs(peer.sin_port) == hear(s));
        len = sizeof name;
        CHECK(unet_getpeername(c, (struct sockaddr *)&name, &len) == 0);
        CHECK(memcmp(&name, &peer, sizeof name) == 0);
        CHECK(port_of(c) == port_of(l));
        CHECK_ERR(unet_getpeername(l, (struct sockaddr *)&name, &len), ENOTCONN);
        tell(s, port_of(l));
        tell(s, 0);
}

static void both_ends_know_their_names(void **state)
{
        play_both(names_client, names_server, 0);
}

/* IPv4 inside IPv6 sockets, and a wildcard listener of both. */
static void v6_client(struct side *s)
{
        struct sockaddr_in6 to = {.sin6_family = AF_INET6}, name;
        struct sockaddr_in to4;
        socklen_t len = sizeof name;
        int c = unet_socket(AF_INET6, SOCK_STREAM, 0), c4 = unet_socket(AF_INET, SOCK_STREAM, 0);
        uint16_t port = (uint16_t)hear(s);

        to.sin6_port = htons(port);
        inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.sin6_addr);
        to4 = loopback(port);
        CHECK_ERR(unet_connect(c, (struct sockaddr *)&to4, sizeof to4), EAFNOSUPPORT);
        CHECK(unet_connect(c, (struct sockaddr *)&to, sizeof to) == 0);
        CHECK(unet_getpeername(c, (struct sockaddr *)&name, &len) == 0 && len == sizeof name);
        CHECK(memcmp(&name.sin6_addr, &to.sin6_addr, 16) == 0 && name.sin6_port == to.sin6_port);
        CHECK(unet_connect(c4, (struct sockaddr *)&to4, sizeof to4) == 0);
        inet_pton(AF_INET6, "2001:db8::1", &to.sin6_addr);
        c = unet_socket(AF_INET6, SOCK_STREAM, 0);
        CHECK_ERR(unet_connect(c, (struct sockaddr *)&to, sizeof to), ENETUNREACH);
        hear(s);
}

static void v6_server(struct side *s)
{
        struct sockaddr_in6 at = {.sin6_family = AF_INET6}, peer;
        int l = unet_socket(AF_INET6, SOCK_STREAM, 0);
        socklen_t len = sizeof at;

        CHECK(unet_bind(l, (struct sockaddr *)&at, sizeof at) == 0 && unet_listen(l, 2) == 0);
        CHECK(unet_getsockname(l, (struct sockaddr *)&at, &len) == 0 && len == sizeof at);
        tell(s, ntohs(at.sin6_port));
        for (int i = 0; i < 2; i++) {
                len = sizeof peer;
                CHECK(unet_accept(l, (struct sockaddr *)&peer, &len) >= 0);
                CHECK(peer.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&peer.sin6_addr));
        }
        tell(s, 0);
}

static void ipv6_sockets_carry_v4_mapped_addresses(void **state)
{
        play_both(v6_client, v6_server, 0);
}

/* ---- peeking, throwing away, urgent data ---- */

static void urgent_client(struct side *s)
{
        int c = side_connect(s);

        CHECK(unet_send(c, "abc", 3, 0) == 3);
        CHECK(unet_send(c, "!", 1, MSG_OOB) == 1);
        CHECK(unet_send(c, "def", 3, 0) == 3);
        hear(s);
}

static void urgent_server(struct side *s)
{
        struct unet_pollfd p = {.fd = -1, .events = POLLPRI};
        int c = side_accept(s), mark = -1;
        char buf[16];

        p.sock = c;
        CHECK(unet_poll(&p, 1, PATIENCE_MS) == 1 && p.revents & POLLPRI);
        CHECK(unet_recv(c, buf, 1, MSG_OOB | MSG_PEEK) == 1 && buf[0] == '!');
        CHECK(unet_recv(c, buf, sizeof buf, 0) == 3 && memcmp(buf, "abc", 3) == 0);
        CHECK(unet_ioctl(c, SIOCATMARK, &mark) == 0 && mark == 1);
        CHECK(unet_recv(c, buf, 1, MSG_OOB) == 1 && buf[0] == '!');
        CHECK_ERR(unet_recv(c, buf, 1, MSG_OOB), EINVAL);
        CHECK(unet_recv(c, buf, 3, MSG_WAITALL) == 3 && memcmp(buf, "def", 3) == 0);
        tell(s, 0);
}

static void urgent_data_is_out_of_line(void **state)
{
        play_both(urgent_client, urgent_server, 0);
}

static void peek_client(struct side *s)
{
        int c = side_connect(s), n = -1;

        CHECK(unet_send(c, "0123456789", 10, 0) == 10);
        hear(s);
        EVENTUALLY(unet_ioctl(c, SIOCOUTQ, &n) == 0 && n == 0);
        CHECK(unet_ioctl(c, SIOCOUTQNSD, &n) == 0 && n == 0);
        hear(s);
}

static void peek_server(struct side *s)
{
        int c = side_accept(s), n = -1;
        char buf[16];

        CHECK(unet_recv(c, buf, 10, MSG_PEEK | MSG_WAITALL) == 10);
        CHECK(unet_ioctl(c, FIONREAD, &n) == 0 && n == 10);
        CHECK(unet_recv(c, NULL, 4, MSG_TRUNC) == 4);
        CHECK(unet_recv(c, buf, sizeof buf, MSG_PEEK) == 6 && memcmp(buf, "456789", 6) == 0);
        CHECK(unet_recv(c, buf, sizeof buf, 0) == 6 && memcmp(buf, "456789", 6) == 0);
        CHECK_ERR(unet_recv(c, buf, 1, MSG_DONTWAIT), EAGAIN);
        CHECK_ERR(unet_ioctl(c, TCGETS, &n), ENOTTY);
        tell(s, 0);
        tell(s, 0);
}

static void peek_leaves_and_trunc_throws_away(void **state)
{
        play_both(peek_client, peek_server, 0);
}

/* ---- files ---- */

#define FILE_BYTES (5u << 20)

static int file_of(uint64_t seed, uint8_t *copy)
{
        int fd = memfd_create("file", MFD_CLOEXEC);

        fill(copy, FILE_BYTES, seed, 0);
        CHECK(fd >= 0 && write(fd, copy, FILE_BYTES) == FILE_BYTES);
        return fd;
}

static void file_client(struct side *s)
{
        int c = side_connect(s), fd;
        uint8_t *copy = malloc(FILE_BYTES);
        off_t off = 1000;
        size_t left = FILE_BYTES - 1000;

        fd = file_of(s->arg, copy);
        while (left > 0) {
                ssize_t n = unet_sendfile(c, fd, &off, left);
                CHECK(n > 0);
                left -= (size_t)n;
        }
        CHECK(off == FILE_BYTES && unet_sendfile(c, fd, &off, 1) == 0);
        CHECK(lseek(fd, 0, SEEK_CUR) == FILE_BYTES);
        lseek(fd, FILE_BYTES - 10, SEEK_SET);
        CHECK(unet_sendfile(c, fd, NULL, 100) == 10 && lseek(fd, 0, SEEK_CUR) == FILE_BYTES);
        CHECK_ERR(unet_sendfile(c, -1, &off, 1), EBADF);
        free(copy);
        CHECK(unet_close(c) == 0);
}

static void file_server(struct side *s)
{
        uint8_t *got = malloc(FILE_BYTES);
        int c = side_accept(s);

        CHECK(unet_recv(c, got, FILE_BYTES - 1000, MSG_WAITALL) == FILE_BYTES - 1000);
        CHECK(filled(got, FILE_BYTES - 1000, s->arg, 1000));
        CHECK(unet_recv(c, got, 20, MSG_WAITALL) == 10);
        CHECK(filled(got, 10, s->arg, FILE_BYTES - 10));
        free(got);
}

static void a_file_is_sent_whole(void **state)
{
        play_both(file_client, file_server, test_seed());
}

/* ---- what the kernel does not give ---- */

static void feedback_client(struct side *s)
{
        int c = side_connect(s), u = unet_socket(AF_INET, SOCK_STREAM, 0);
        struct unet_feedback f;
        uint32_t snd, rcv;

        CHECK_ERR(unet_feedback(u, &f), ENOTCONN);
        CHECK(unet_send(c, "0123456789", 10, 0) == 10);
        hear(s);
        EVENTUALLY(unet_feedback(c, &f) == 0 && f.bytes_acked == 10);
        CHECK(strcmp(f.state, "ESTABLISHED") == 0 && strcmp(f.congestion, "cubic") == 0);
        CHECK(f.bytes_sent - f.bytes_retrans == 10 && f.bytes_acked == 10 && f.in_flight == 0 &&
              f.unsent == 0);
        CHECK(f.cwnd > 0 && f.snd_wnd > 0 && f.mss > 0 && f.segs_out > 0 && f.niq_room > 0);
        CHECK(f.limit < UNET_LIMITS && strlen(unet_limit_name(f.limit)) > 0);
        CHECK(unet_set_buffers(c, 300000, 100000) == 0);
        CHECK(unet_get_buffers(c, &snd, &rcv) == 0 && snd == 300000 && rcv == 100000);
        tell(s, 0);
}

static void feedback_server(struct side *s)
{
        int c = side_accept(s);
        char buf[10];

        CHECK(unet_recv(c, buf, 10, MSG_WAITALL) == 10);
        tell(s, 0);
        hear(s);
}

static void a_sender_knows_what_limits_it(void **state)
{
        play_both(feedback_client, feedback_server, 0);
}

/* ---- client ports ---- */

/* -1: the port is somebody's. */
static int listener_at(uint16_t port)
{
        struct sockaddr_in a = loopback(port);
        int l = unet_socket(AF_INET, SOCK_STREAM, 0);

        CHECK(l >= 0);
        if (unet_bind(l, (struct sockaddr *)&a, sizeof a) == 0 && unet_listen(l, 200) == 0)
                return l;
        unet_close(l);
        return -1;
}

static uint16_t connection_from(int l)
{
        struct linger at_once = {.l_onoff = 1};
        int c = tcp_connect_to(port_of(l)), d;
        uint16_t port = port_of(c);

        d = unet_accept4(l, NULL, NULL, 0);
        CHECK(d >= 0 && unet_setsockopt(c, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
        CHECK(unet_close(c) == 0 && unet_close(d) == 0);
        return port;
}

/* A listener at one of the ports that the stack has leased for its connections: as in Linux none
 * begins there. Its two ends would be the same, where it goes to that listener. */
static void leased_side(struct side *s)
{
        int first = tcp_listen_any(), l = -1;
        uint16_t port = connection_from(first);

        for (int away = 1; l < 0 && away < 8; away++)
                l = listener_at((uint16_t)(port + away));
        CHECK(l >= 0);
        for (int i = 0; i < 600; i++)
                CHECK(connection_from(l) != port_of(l));
}

static void no_connection_begins_where_somebody_listens(void **state)
{
        (void)state;
        assert_int_equal(play_alone(leased_side, 0), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(all_forms_of_send_and_receive),
                cmocka_unit_test(no_connection_begins_where_somebody_listens),
                cmocka_unit_test(both_ends_know_their_names),
                cmocka_unit_test(ipv6_sockets_carry_v4_mapped_addresses),
                cmocka_unit_test(urgent_data_is_out_of_line),
                cmocka_unit_test(peek_leaves_and_trunc_throws_away),
                cmocka_unit_test(a_file_is_sent_whole),
                cmocka_unit_test(a_sender_knows_what_limits_it),
        };

        return run_sides(tests);
}
