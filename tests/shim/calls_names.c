/*
 * shim_calls, names, options and flags of sockets, both families.
 */
#include "tests/shim/calls.h"

void scene_connect(void)
{
        struct sockaddr_in sa, me;
        socklen_t len = sizeof(me);
        int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), c, err;
        struct pollfd p = {.fd = s, .events = POLLOUT};

        SHOW(getpeername(s, (void *)&me, &len));
        (void)connect(s, (void *)&sa, sizeof(sa));
        SHOW(poll(&p, 1, LONG));
        len = sizeof(err);
        SHOW(getsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len));
        SHOW(err);
        c = accept4(l, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        SHOW(fcntl(c, F_GETFD));
        SHOW(fcntl(c, F_GETFL) & O_NONBLOCK);
        len = sizeof(me);
        SHOW(getsockname(c, (void *)&me, &len));
        SHOW(me.sin_port == sa.sin_port);
        SHOW(getpeername(s, (void *)&me, &len));
        SHOW(me.sin_port == sa.sin_port);
        SHOW(connect(s, (void *)&sa, sizeof(sa)) < 0 && errno == EISCONN);
        SHOW(accept4(l, NULL, NULL, 12345));
        SHOW(accept(s, NULL, NULL));
        SHOW(listen(s, 1));
        close(s);
        close(c);
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(__connect(s, (void *)&sa, sizeof(sa)));
        c = accept(l, NULL, NULL);
        SHOW(fcntl(c, F_GETFL) & O_NONBLOCK);
        close(c);
        close(s);
        close(l);
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        close(s);
}

/* An attempt that came to nothing is told once; then the socket may try again. */
void scene_connect_failed(void)
{
        struct sockaddr_in gone, there;
        struct pollfd p = {.events = POLLOUT};
        int first = listener(&gone), second = listener(&there), err;
        socklen_t len = sizeof(err);

        p.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        SHOW(connect(p.fd, (void *)&gone, sizeof(gone)));
        close(first);
        SHOW(poll(&p, 1, LONG));
        printf("  failed: %s\n",
               getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && err != 0 ? "yes" : "no");
        SHOW(connect(p.fd, (void *)&there, sizeof(there)));
        SHOW(connect(p.fd, (void *)&there, sizeof(there)));
        SHOW(poll(&p, 1, LONG));
        SHOW(connect(p.fd, (void *)&there, sizeof(there)));
        SHOW(connect(p.fd, (void *)&there, sizeof(there)));
        SHOW(fcntl(p.fd, F_GETFL) & O_NONBLOCK);
        close(p.fd);
        close(second);
}

void scene_bound_connect(void)
{
        struct sockaddr_in sa, me = loopback(), peer;
        socklen_t len = sizeof(me);
        int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM, 0), c;

        SHOW(bind(s, (void *)&me, sizeof(me)));
        SHOW(bind(s, (void *)&me, sizeof(me)));
        getsockname(s, (void *)&me, &len);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        c = accept(l, (void *)&peer, &len);
        SHOW(peer.sin_port == me.sin_port);
        getsockname(s, (void *)&peer, &len);
        SHOW(peer.sin_port == me.sin_port);
        close(c);
        close(s);
        close(l);
}

/* Nobody there, then somebody: the same socket, again. */
void scene_connect_again(void)
{
        struct sockaddr_in sa;
        int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM, 0), on = 1;

        close(l);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        l = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        bind(l, (void *)&sa, sizeof(sa));
        listen(l, 1);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        SHOW(write(s, "x", 1));
        close(s);
        close(l);
}

void scene_accept_flags(void)
{
        struct sockaddr_in sa, peer;
        socklen_t len = sizeof(peer);
        int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM, 0), c, on = 1;

        SHOW(ioctl(l, FIONBIO, &on));
        SHOW(accept(l, NULL, NULL));
        SHOW(fcntl(l, F_GETFL) & O_NONBLOCK);
        connect(s, (void *)&sa, sizeof(sa));
        wait_readable(l);
        c = accept(l, (void *)&peer, &len);
        SHOW(c >= 0);
        SHOW(len);
        SHOW(fcntl(c, F_GETFL) & O_NONBLOCK);
        SHOW(fcntl(l, F_SETFL, 0));
        SHOW(fcntl(l, F_GETFL) & O_NONBLOCK);
        close(s);
        close(c);
        close(l);
}

static int level_of(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};

        poll(&p, 1, 0);
        return p.revents;
}

static int selects(int fd)
{
        struct timeval none = {0, 0};
        fd_set in, out;

        FD_ZERO(&in);
        FD_SET(fd, &in);
        out = in;
        select(fd + 1, &in, &out, NULL, &none);
        return FD_ISSET(fd, &in) | FD_ISSET(fd, &out) << 1;
}

/* Nobody waits for anything: with the listener's own process it is all there at once. */
static void meet_at_once(const struct sockaddr_in *sa, int l)
{
        int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), c;
        char b = 'x';

        SHOW(connect(s, (const void *)sa, sizeof(*sa)));
        SHOW(level_of(l));
        SHOW(level_of(s));
        c = accept(l, NULL, NULL);
        SHOW(c >= 0);
        SHOW(level_of(l));
        SHOW(write(s, &b, 1));
        SHOW(level_of(c));
        SHOW(recv(c, &b, 1, MSG_DONTWAIT));
        SHOW(selects(c));
        SHOW(shutdown(s, SHUT_WR));
        SHOW(selects(c));
        close(s);
        close(c);
}

void scene_met_at_once(void)
{
        struct sockaddr_in sa;
        int l = listener(&sa), on = 1, status = -1;
        pid_t pid;

        ioctl(l, FIONBIO, &on);
        for (int i = 0; i < 3; i++)
                meet_at_once(&sa, l);
        fflush(stdout);
        pid = fork();
        if (pid == 0) {
                meet_at_once(&sa, l);
                fflush(stdout);
                _exit(0);
        }
        waitpid(pid, &status, 0);
        SHOW(status);
        close(l);
}

static void show_int(int s, int level, int name, const char *what)
{
        int v = -1;
        socklen_t len = sizeof(v);
        int r = getsockopt(s, level, name, &v, &len);

        printf("  %s: %d %s, %d (%u)\n", what, r, name_of(r), v, (unsigned)len);
}
#define SHOW_OPT(s, level, name) show_int(s, level, name, #name)

static void set_int(int s, int level, int name, int v, const char *what)
{
        int r = setsockopt(s, level, name, &v, sizeof(v));

        printf("  %s := %d: %d %s\n", what, v, r, name_of(r));
}
#define SET_OPT(s, level, name, v) set_int(s, level, name, v, #name)

/* IP_MINTTL (RFC 5082): what comes with less is as if it had not come, also the SYN. */
void scene_min_ttl(void)
{
        struct sockaddr_in sa;
        int l = listener(&sa), c = socket(AF_INET, SOCK_STREAM, 0), s;
        struct pollfd p = {.events = POLLIN};
        char got[8] = "";

        SET_OPT(l, IPPROTO_IP, IP_MINTTL, -1);
        SET_OPT(l, IPPROTO_IP, IP_MINTTL, 256);
        SET_OPT(l, IPPROTO_IP, IP_MINTTL, 200);
        SHOW_OPT(l, IPPROTO_IP, IP_MINTTL);
        SET_OPT(c, IPPROTO_IP, IP_TTL, 199);
        fcntl(c, F_SETFL, O_NONBLOCK);
        SHOW(connect(c, (void *)&sa, sizeof(sa)));
        p.fd = l;
        SHOW(poll(&p, 1, 200));
        SET_OPT(c, IPPROTO_IP, IP_TTL, 200);
        SHOW(poll(&p, 1, LONG)); /* the SYN once more */
        s = accept(l, NULL, NULL);
        SHOW_OPT(s, IPPROTO_IP, IP_MINTTL);
        SET_OPT(c, IPPROTO_IP, IP_TTL, 100);
        SHOW(send(c, "a", 1, 0));
        p.fd = s;
        SHOW(poll(&p, 1, 200));
        SET_OPT(s, IPPROTO_IP, IP_MINTTL, 0);
        SHOW(poll(&p, 1, LONG));
        SHOW(recv(s, got, sizeof(got), 0));
        close(c);
        close(s);
        close(l);
}

void scene_options(void)
{
        struct timeval tv = {1, 500000};
        socklen_t len = sizeof(tv);
        char cc[16];
        int v[2];

        tcp_pair(v);
        for (int i = 0; i < 2; i++) {
                SHOW_OPT(v[i], SOL_SOCKET, SO_TYPE);
                SHOW_OPT(v[i], SOL_SOCKET, SO_DOMAIN);
                SHOW_OPT(v[i], SOL_SOCKET, SO_PROTOCOL);
                SHOW_OPT(v[i], SOL_SOCKET, SO_ACCEPTCONN);
                SHOW_OPT(v[i], SOL_SOCKET, SO_ERROR);
                SET_OPT(v[i], SOL_SOCKET, SO_KEEPALIVE, 1);
                SHOW_OPT(v[i], SOL_SOCKET, SO_KEEPALIVE);
                SET_OPT(v[i], IPPROTO_TCP, TCP_NODELAY, 1);
                SHOW_OPT(v[i], IPPROTO_TCP, TCP_NODELAY);
                SET_OPT(v[i], IPPROTO_TCP, TCP_CORK, 1);
                SET_OPT(v[i], IPPROTO_TCP, TCP_CORK, 0);
                SET_OPT(v[i], SOL_SOCKET, SO_RCVBUF, 50000);
                SHOW_OPT(v[i], SOL_SOCKET, SO_RCVBUF);
                SET_OPT(v[i], SOL_SOCKET, SO_SNDBUF, 50000);
                SHOW_OPT(v[i], SOL_SOCKET, SO_SNDBUF);
                SET_OPT(v[i], SOL_SOCKET, SO_PRIORITY, 3);
                SHOW_OPT(v[i], SOL_SOCKET, SO_PRIORITY);
                SET_OPT(v[i], SOL_SOCKET, SO_INCOMING_CPU, 1);
                SET_OPT(v[i], IPPROTO_IP, IP_TOS, 16);
                SHOW_OPT(v[i], IPPROTO_IP, IP_TOS);
                SET_OPT(v[i], IPPROTO_TCP, 9999, 1);
                SHOW_OPT(v[i], IPPROTO_TCP, 9999);
                SHOW_OPT(v[i], 9999, 1);
                SHOW(setsockopt(v[i], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
                memset(&tv, 0, sizeof(tv));
                len = sizeof(tv);
                SHOW(getsockopt(v[i], SOL_SOCKET, SO_RCVTIMEO, &tv, &len));
                SHOW(tv.tv_sec * 1000000 + tv.tv_usec);
                tv = (struct timeval){1, 1500000};
                SHOW(setsockopt(v[i], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
                tv = (struct timeval){1, 500000};
                len = sizeof(cc);
                SHOW(setsockopt(v[i], IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
                SHOW(getsockopt(v[i], IPPROTO_TCP, TCP_CONGESTION, cc, &len));
                show_bytes("congestion", cc, (ssize_t)strnlen(cc, sizeof(cc)));
        }
        close2(v);
}

void scene_ioctl(void)
{
        char b[8];
        int v[2], n = -1, on = 1;

        tcp_pair(v);
        write(v[0], "12345", 5);
        wait_readable(v[1]);
        SHOW(ioctl(v[1], FIONREAD, &n));
        SHOW(n);
        SHOW(ioctl(v[0], TIOCOUTQ, &n));
        SHOW(ioctl(v[1], FIONBIO, &on));
        SHOW(fcntl64(v[1], F_GETFL) & O_NONBLOCK);
        read(v[1], b, sizeof(b));
        SHOW(read(v[1], b, sizeof(b)));
        SHOW(__fcntl(v[1], F_SETFL, O_RDWR));
        SHOW(ioctl(v[1], 0x12345678, &n));
        close2(v);
}

void scene_timeouts(void)
{
        struct timeval tv = {0, 30000};
        static char big[8 << 20];
        char b[8];
        ssize_t n;
        int v[2];

        tcp_pair(v);
        setsockopt(v[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        setsockopt(v[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
        SHOW(read(v[1], b, sizeof(b)));
        SHOW(recv(v[1], b, sizeof(b), MSG_WAITALL));
        n = 0;
        for (int i = 0; i < 100 && n >= 0; i++)
                n = write(v[0], big, sizeof(big));
        SHOW(n);
        close2(v);
}

/* ---- both families ---- */

void scene_dual(void)
{
        struct sockaddr_in6 any = {.sin6_family = AF_INET6}, sa6;
        struct sockaddr_in sa;
        socklen_t len = sizeof(any);
        char text[64], b[8];
        int l = socket(AF_INET6, SOCK_STREAM, 0), s, c;

        SHOW(bind(l, (void *)&any, sizeof(any)));
        SHOW(listen(l, 5));
        getsockname(l, (void *)&any, &len);
        s = socket(AF_INET, SOCK_STREAM, 0);
        sa = loopback();
        sa.sin_port = any.sin6_port;
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        len = sizeof(sa6);
        c = accept(l, (void *)&sa6, &len);
        printf("  peer %s, %u\n", inet_ntop(AF_INET6, &sa6.sin6_addr, text, sizeof(text)),
               (unsigned)len);
        len = sizeof(sa6);
        getsockname(c, (void *)&sa6, &len);
        printf("  own %s, %u\n", inet_ntop(AF_INET6, &sa6.sin6_addr, text, sizeof(text)),
               (unsigned)len);
        SHOW_OPT(c, SOL_SOCKET, SO_DOMAIN);
        SHOW_OPT(s, SOL_SOCKET, SO_DOMAIN);
        write(s, "x", 1);
        SHOW(read(c, b, sizeof(b)));
        close(s);
        close(c);
        s = socket(AF_INET6, SOCK_STREAM, 0);
        sa6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = any.sin6_port};
        inet_pton(AF_INET6, "::ffff:127.0.0.1", &sa6.sin6_addr);
        SHOW(connect(s, (void *)&sa6, sizeof(sa6)));
        c = accept(l, NULL, NULL);
        len = sizeof(sa6);
        getpeername(s, (void *)&sa6, &len);
        printf("  peer %s\n", inet_ntop(AF_INET6, &sa6.sin6_addr, text, sizeof(text)));
        close(s);
        close(c);
        close(l);
}

void scene_dual_udp(void)
{
        struct sockaddr_in6 any = {.sin6_family = AF_INET6}, sa6, from6;
        struct sockaddr_in sa, from;
        socklen_t len = sizeof(any);
        char text[64], b[16];
        int s = socket(AF_INET6, SOCK_DGRAM, 0), t = socket(AF_INET, SOCK_DGRAM, 0),
            u = socket(AF_INET6, SOCK_DGRAM, 0);

        SHOW(bind(s, (void *)&any, sizeof(any)));
        getsockname(s, (void *)&any, &len);
        sa = loopback();
        sa.sin_port = any.sin6_port;
        SHOW(sendto(t, "four", 4, 0, (void *)&sa, sizeof(sa)));
        len = sizeof(from6);
        show_bytes("recvfrom", b, recvfrom(s, b, sizeof(b), 0, (void *)&from6, &len));
        printf("  from %s, %u\n", inet_ntop(AF_INET6, &from6.sin6_addr, text, sizeof(text)),
               (unsigned)len);
        SHOW(sendto(s, "back", 4, 0, (void *)&from6, len));
        len = sizeof(from);
        show_bytes("recvfrom", b, recvfrom(t, b, sizeof(b), 0, (void *)&from, &len));
        printf("  from %s, %u\n", inet_ntop(AF_INET, &from.sin_addr, text, sizeof(text)),
               (unsigned)len);
        sa6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = any.sin6_port};
        inet_pton(AF_INET6, "::ffff:127.0.0.1", &sa6.sin6_addr);
        SHOW(connect(u, (void *)&sa6, sizeof(sa6)));
        SHOW(send(u, "mapped", 6, 0));
        show_bytes("recv", b, recv(s, b, sizeof(b), 0));
        inet_pton(AF_INET6, "::1", &sa6.sin6_addr);
        SHOW(connect(u, (void *)&sa6, sizeof(sa6)));
        SHOW(send(u, "six", 3, 0));
        show_bytes("recv", b, recv(s, b, sizeof(b), 0));
        close(s);
        close(t);
        close(u);
}

/* Reset by its peer, a connection has no peer; accept() still says who it was. */
void scene_peer_gone(void)
{
        struct sockaddr_in sa, me, peer;
        struct linger now = {1, 0};
        socklen_t len = sizeof(me);
        int l = listener(&sa), v[2], s, c;

        tcp_pair(v);
        SHOW(getpeername(v[0], (void *)&me, &len));
        setsockopt(v[1], SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        close(v[1]);
        SHOW(getpeername(v[0], (void *)&me, &len));
        close(v[0]);

        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        SHOW(getsockname(s, (void *)&me, &len));
        setsockopt(s, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        close(s);
        SHOW_OPT(l, SOL_SOCKET, SO_ERROR); /* by now the reset has been seen */
        peer = (struct sockaddr_in){.sin_family = 0};
        len = sizeof(peer);
        c = accept(l, (void *)&peer, &len);
        SHOW(c >= 0 && len == sizeof(peer) && peer.sin_family == AF_INET &&
             peer.sin_port == me.sin_port);
        SHOW(getpeername(c, (void *)&peer, &len));
        close(c);
        close(l);
}

void scene_reuse_same_port(void)
{
        struct sockaddr_in sa;
        int l = listener(&sa), s, c, on = 1;

        for (int i = 0; i < 3; i++) {
                s = socket(AF_INET, SOCK_STREAM, 0);
                SHOW(connect(s, (void *)&sa, sizeof(sa)));
                c = accept(l, NULL, NULL);
                close(c);
                close(s);
                close(l);
                l = socket(AF_INET, SOCK_STREAM, 0);
                setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
                SHOW(bind(l, (void *)&sa, sizeof(sa)));
                SHOW(listen(l, 1));
        }
        c = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(bind(c, (void *)&sa, sizeof(sa)));
        close(c);
        close(l);
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        l = listener(&sa);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        close(s);
        close(l);
}

/* Places for names, and names, of impossible lengths. What was received is lost where the name was
 * to come after it. */
void scene_names_of_no_length(void)
{
        struct sockaddr_in sa, other;
        int v[2], u = udp_socket(&sa), s = udp_socket(&other);
        char b[16];
        struct iovec iov = {b, sizeof(b)};
        struct msghdr m = {.msg_name = &other, .msg_iov = &iov, .msg_iovlen = 1};
        socklen_t len = (socklen_t)-1;

        tcp_pair(v);
        write(v[0], "stream", 6);
        wait_readable(v[1]);
        SHOW(recvfrom(v[1], b, 3, 0, (void *)&other, &len));
        m.msg_namelen = (socklen_t)-1;
        SHOW(recvmsg(v[1], &m, 0));
        SHOW(sendmsg(v[0], &m, 0));
        SHOW(sendto(v[0], "x", 1, 0, (void *)&sa, (socklen_t)-1));
        SHOW(sendto(v[0], "x", 1, 0, (void *)&sa, 129));
        show_bytes("recv", b, recv(v[1], b, sizeof(b), 0));
        sendto(s, "one", 3, 0, (void *)&sa, sizeof(sa));
        sendto(s, "two", 3, 0, (void *)&sa, sizeof(sa));
        wait_readable(u);
        SHOW(recvfrom(u, b, sizeof(b), 0, (void *)&other, &len));
        SHOW(recvmsg(u, &m, 0));
        m.msg_namelen = 1000;
        SHOW(recvmsg(u, &m, 0));
        SHOW(m.msg_namelen);
        SHOW(sendto(s, "x", 1, 0, (void *)&sa, 1000));
        SHOW(connect(s, (void *)&sa, (socklen_t)-1));
        close2(v);
        close(u);
        close(s);
}
