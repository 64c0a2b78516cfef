/* UDP's scenes: what goes beside datagrams in control messages, datagrams cut from one send,
 * and groups. */
#include "tests/shim/calls.h"

#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/udp.h>
#include <sys/time.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#define UDP_GRO     104
#endif

static void show_pktinfo(const struct cmsghdr *c)
{
        struct in_pktinfo info;
        char to[INET_ADDRSTRLEN], spec[INET_ADDRSTRLEN];

        memcpy(&info, CMSG_DATA(c), sizeof(info));
        inet_ntop(AF_INET, &info.ipi_addr, to, sizeof(to));
        inet_ntop(AF_INET, &info.ipi_spec_dst, spec, sizeof(spec));
        printf("    by %d to %s, from here %s\n", info.ipi_ifindex, to, spec);
}

/* A time of this minute, told as such. */
static void show_time(const struct cmsghdr *c)
{
        struct timeval at, now;

        memcpy(&at, CMSG_DATA(c), sizeof(at));
        gettimeofday(&now, NULL);
        printf("    %s\n", at.tv_sec <= now.tv_sec && at.tv_sec >= now.tv_sec - 60
                                   ? "just now"
                                   : "another time");
}

static void show_beside(struct msghdr *m)
{
        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                int v = 0;

                printf("    level %d type %d, %zu bytes\n", c->cmsg_level, c->cmsg_type,
                       c->cmsg_len);
                if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO)
                        show_pktinfo(c);
                else if (c->cmsg_level == SOL_SOCKET &&
                         (c->cmsg_type == SO_TIMESTAMP || c->cmsg_type == SO_TIMESTAMPNS ||
                          c->cmsg_type == SO_TIMESTAMPING))
                        show_time(c);
                else if (c->cmsg_level == IPPROTO_IP &&
                         (c->cmsg_type == IP_TTL || c->cmsg_type == IP_TOS)) {
                        memcpy(&v, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
                        printf("    %d\n", v);
                }
        }
}

static void receive(int s, size_t room, int flags)
{
        _Alignas(struct cmsghdr) char beside[256];
        char b[100];
        struct iovec iov = {b, sizeof(b)};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = room ? beside : NULL,
                           .msg_controllen = room};
        ssize_t r;

        memset(beside, 0x5a, sizeof(beside));
        r = recvmsg(s, &m, flags);
        printf("  %zd %s flags %x, %zu beside\n", r, name_of(r), m.msg_flags & ~MSG_CMSG_CLOEXEC,
               m.msg_controllen);
        if (r >= 0)
                show_beside(&m);
}

static void switch_on(int s, int level, int name)
{
        int v = 1;
        socklen_t len = sizeof(v);

        SHOW(setsockopt(s, level, name, &v, sizeof(v)));
        v = 7;
        SHOW(getsockopt(s, level, name, &v, &len));
        printf("  %d: %d\n", name, v);
}

void scene_beside_received(void)
{
        static const int ip[] = {IP_PKTINFO, IP_RECVTTL, IP_RECVTOS, IP_RECVORIGDSTADDR};
        struct sockaddr_in a, b;
        int s = udp_socket(&a), t = udp_socket(&b), v = 0x28, off = 0;

        connect(t, (void *)&a, sizeof(a));
        SHOW(send(t, "none", 4, 0));
        wait_readable(s);
        receive(s, 256, 0);
        for (size_t i = 0; i < ARRAY_LEN(ip); i++) {
                switch_on(s, IPPROTO_IP, ip[i]);
                SHOW(send(t, "some", 4, 0));
                wait_readable(s);
                receive(s, 256, MSG_PEEK);
                receive(s, 256, 0);
        }
        SHOW(setsockopt(t, IPPROTO_IP, IP_TOS, &v, sizeof(v)));
        v = 33;
        SHOW(setsockopt(t, IPPROTO_IP, IP_TTL, &v, sizeof(v)));
        SHOW(send(t, "other", 5, 0));
        wait_readable(s);
        receive(s, 256, 0);
        for (size_t i = 0; i < ARRAY_LEN(ip); i++)
                SHOW(setsockopt(s, IPPROTO_IP, ip[i], &off, sizeof(off)));
        SHOW(send(t, "off", 3, 0));
        wait_readable(s);
        receive(s, 256, 0);
        close(s);
        close(t);
}

void scene_beside_times(void)
{
        static const int name[] = {SO_TIMESTAMP, SO_TIMESTAMPNS};
        struct sockaddr_in a, b;
        int s = udp_socket(&a), t = udp_socket(&b), v, off = 0;
        socklen_t len = sizeof(v);

        connect(t, (void *)&a, sizeof(a));
        for (size_t i = 0; i < ARRAY_LEN(name); i++) {
                switch_on(s, SOL_SOCKET, name[i]);
                SHOW(send(t, "when", 4, 0));
                wait_readable(s);
                receive(s, 256, 0);
        }
        getsockopt(s, SOL_SOCKET, SO_TIMESTAMP, &v, &len);
        printf("  the one of the two: %d\n", v);
        SHOW(setsockopt(s, SOL_SOCKET, SO_TIMESTAMP, &off, sizeof(off)));
        SHOW(send(t, "never", 5, 0));
        wait_readable(s);
        receive(s, 256, 0);
        close(s);
        close(t);
}

/* Linux begins to take times a moment after it was asked to. */
static void until_stamped(int s, int t)
{
        for (int i = 0; i < LONG; i++) {
                _Alignas(struct cmsghdr) char beside[256];
                char b[100];
                struct iovec iov = {b, sizeof(b)};
                struct msghdr m = {.msg_iov = &iov,
                                   .msg_iovlen = 1,
                                   .msg_control = beside,
                                   .msg_controllen = sizeof(beside)};

                send(t, "yet", 3, 0);
                wait_readable(s);
                recvmsg(s, &m, 0);
                if (m.msg_controllen != 0)
                        return;
                usleep(1000);
        }
}

void scene_beside_stamps(void)
{
        static const unsigned flags[] = {SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE,
                                         SOF_TIMESTAMPING_RX_HARDWARE, 1u << 31, 0};
        struct sockaddr_in a, b;
        int s = udp_socket(&a), t = udp_socket(&b), on = 1;

        connect(t, (void *)&a, sizeof(a));
        SHOW(setsockopt(s, SOL_SOCKET, SO_TIMESTAMPING, flags, 2));
        for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
                unsigned got[4] = {7, 7, 7, 7};
                socklen_t len = sizeof(got);
                SHOW(setsockopt(s, SOL_SOCKET, SO_TIMESTAMPING, &flags[i], sizeof(flags[i])));
                SHOW(getsockopt(s, SOL_SOCKET, SO_TIMESTAMPING, got, &len));
                printf("  %#x %u, %u bytes\n", got[0], got[1], len);
                if (i == 0)
                        until_stamped(s, t);
                SHOW(send(t, "when", 4, 0));
                wait_readable(s);
                receive(s, 256, 0);
        }
        SHOW(setsockopt(s, SOL_SOCKET, SO_TIMESTAMPING, flags, sizeof(flags[0])));
        until_stamped(s, t);
        SHOW(setsockopt(s, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)));
        SHOW(send(t, "both", 4, 0));
        wait_readable(s);
        receive(s, 256, 0);
        close(s);
        close(t);
}

void scene_beside_truncated(void)
{
        static const size_t room[] = {0, 8, 16, 20, 24, 28, 31, 40, 52, 56};
        struct sockaddr_in a, b;
        int s = udp_socket(&a), t = udp_socket(&b);

        switch_on(s, IPPROTO_IP, IP_PKTINFO);
        switch_on(s, IPPROTO_IP, IP_RECVTTL);
        for (size_t i = 0; i < ARRAY_LEN(room); i++) {
                SHOW(sendto(t, "some", 4, 0, (void *)&a, sizeof(a)));
                wait_readable(s);
                receive(s, room[i], 0);
        }
        close(s);
        close(t);
}

static void send_beside(int t, const struct sockaddr_in *to, int level, int type, const void *val,
                        size_t n)
{
        _Alignas(struct cmsghdr) char beside[64] = "";
        struct iovec iov = {(char *)"datagram", 8};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = beside,
                           .msg_controllen = CMSG_SPACE(n)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);

        if (to) {
                m.msg_name = (void *)to;
                m.msg_namelen = sizeof(*to);
        }
        *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(n), .cmsg_level = level, .cmsg_type = type};
        memcpy(CMSG_DATA(c), val, n);
        printf("  type %d, %zu bytes\n", type, n);
        SHOW(sendmsg(t, &m, 0));
}

static void send_int(int t, const struct sockaddr_in *to, int type, int v)
{
        send_beside(t, to, IPPROTO_IP, type, &v, sizeof(v));
}

static void who_sent(int s)
{
        struct sockaddr_in from = {0};
        socklen_t len = sizeof(from);
        char b[100], name[INET_ADDRSTRLEN];

        if (recvfrom(s, b, sizeof(b), MSG_DONTWAIT, (void *)&from, &len) < 0)
                printf("  nobody: %s\n", strerrorname_np(errno));
        else
                printf("  %s sent\n", inet_ntop(AF_INET, &from.sin_addr, name, sizeof(name)));
}

void scene_beside_sent(void)
{
        struct in_pktinfo info = {.ipi_spec_dst.s_addr = htonl(0x7f000005)};
        struct sockaddr_in a, b = {.sin_family = AF_INET};
        int s = udp_socket(&a), t = socket(AF_INET, SOCK_DGRAM, 0);
        unsigned char byte = 0x20;

        SHOW(bind(t, (void *)&b, sizeof(b)));
        switch_on(s, IPPROTO_IP, IP_RECVTTL);
        switch_on(s, IPPROTO_IP, IP_RECVTOS);
        send_int(t, &a, IP_TTL, 9);
        wait_readable(s);
        receive(s, 256, 0);
        send_int(t, &a, IP_TOS, 0x10);
        wait_readable(s);
        receive(s, 256, 0);
        send_beside(t, &a, IPPROTO_IP, IP_TOS, &byte, 1);
        wait_readable(s);
        receive(s, 256, 0);
        send_beside(t, &a, IPPROTO_IP, IP_PKTINFO, &info, sizeof(info));
        wait_readable(s);
        who_sent(s);
        connect(t, (void *)&a, sizeof(a));
        send_int(t, NULL, IP_TTL, 77);
        wait_readable(s);
        receive(s, 256, 0);
        close(s);
        close(t);
}

void scene_beside_wrong(void)
{
        struct in_pktinfo info = {.ipi_spec_dst.s_addr = htonl(0xc0000201)};
        struct sockaddr_in a, b;
        int s = udp_socket(&a), t = udp_socket(&b);

        send_int(t, &a, IP_TTL, 0);
        send_int(t, &a, IP_TTL, 256);
        send_int(t, &a, IP_TOS, 256);
        send_int(t, &a, IP_TOS, -1);
        send_int(t, &a, 99, 1);
        send_beside(t, &a, IPPROTO_IP, IP_TTL, "\1", 1);
        send_beside(t, &a, IPPROTO_IP, IP_PKTINFO, &info, 8);
        send_beside(t, &a, IPPROTO_IP, IP_PKTINFO, &info, sizeof(info));
        who_sent(s);
        close(s);
        close(t);
}

static void show_error(const struct cmsghdr *c)
{
        struct {
                struct sock_extended_err e;
                struct sockaddr_in from;
        } h;
        char name[INET_ADDRSTRLEN];

        memcpy(&h, CMSG_DATA(c), sizeof(h));
        printf("    error %s origin %d type %d code %d info %u from family %d %s\n",
               strerrorname_np((int)h.e.ee_errno), h.e.ee_origin, h.e.ee_type, h.e.ee_code,
               h.e.ee_info, h.from.sin_family,
               inet_ntop(AF_INET, &h.from.sin_addr, name, sizeof(name)));
}

/* The oldest error that is kept, and whether it is about `to`. */
static void show_kept(int t, const struct sockaddr_in *to, size_t room, size_t beside_room)
{
        _Alignas(struct cmsghdr) char beside[256];
        char b[100];
        struct sockaddr_in about = {0};
        struct iovec iov = {b, room};
        struct msghdr m = {.msg_name = &about,
                           .msg_namelen = sizeof(about),
                           .msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = beside,
                           .msg_controllen = beside_room};
        ssize_t r = recvmsg(t, &m, MSG_ERRQUEUE);

        printf("  kept: %zd %s\n", r, name_of(r));
        if (r < 0)
                return;
        printf("    '%.*s' flags %x, %s, %zu beside\n", (int)r, b, m.msg_flags & ~MSG_CMSG_CLOEXEC,
               memcmp(&about, to, 8) ? "another address" : "to that address", m.msg_controllen);
        show_beside(&m);
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
                if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR &&
                    c->cmsg_len >= CMSG_LEN(32))
                        show_error(c);
}

static void wait_error(int t)
{
        struct pollfd p = {.fd = t, .events = POLLIN};

        poll(&p, 1, LONG);
        printf("  poll: %x\n", (unsigned)p.revents);
}

static void pending(int t)
{
        int v = -1;
        socklen_t len = sizeof(v);

        getsockopt(t, SOL_SOCKET, SO_ERROR, &v, &len);
        printf("  pending: %s\n", v ? strerrorname_np(v) : "none");
}

/* A socket connected to one that is gone: datagrams find nobody. */
static int to_nobody(struct sockaddr_in *a)
{
        struct sockaddr_in b;
        int s = udp_socket(a), t = udp_socket(&b);

        SHOW(connect(t, (void *)a, sizeof(*a)));
        SHOW(send(t, "heard", 5, 0));
        wait_readable(s);
        close(s);
        return t;
}

/* What was sent before has arrived, and so has what was answered: these go the same way
 * behind it. */
static void let_pass(void)
{
        struct sockaddr_in a;
        int s = udp_socket(&a);
        char b[4];

        for (int i = 0; i < 3; i++) {
                sendto(s, "x", 1, 0, (void *)&a, sizeof(a));
                recv(s, b, sizeof(b), 0);
        }
        close(s);
}

void scene_errors_kept(void)
{
        struct sockaddr_in a;
        int t = to_nobody(&a), off = 0;
        char b[10];

        show_kept(t, &a, 100, 256);
        switch_on(t, IPPROTO_IP, IP_RECVERR);
        SHOW(send(t, "first", 5, 0));
        wait_error(t);
        SHOW(recv(t, b, sizeof(b), MSG_DONTWAIT));
        SHOW(recv(t, b, sizeof(b), MSG_DONTWAIT));
        wait_error(t);
        show_kept(t, &a, 100, 256);
        show_kept(t, &a, 100, 256);
        SHOW(send(t, "second", 6, 0));
        wait_error(t);
        show_kept(t, &a, 3, 40);
        pending(t);
        switch_on(t, IPPROTO_IP, IP_RECVTTL);
        SHOW(send(t, "third", 5, 0));
        wait_error(t);
        pending(t);
        SHOW(send(t, "fourth", 6, 0));
        let_pass();
        show_kept(t, &a, 100, 256);
        pending(t);
        SHOW(setsockopt(t, IPPROTO_IP, IP_RECVERR, &off, sizeof(off)));
        show_kept(t, &a, 100, 256);
        close(t);
}

static void lengths(int s, int n)
{
        char b[20000];

        for (int i = 0; i < n; i++) {
                wait_readable(s);
                printf(" %zd", recv(s, b, sizeof(b), MSG_DONTWAIT));
        }
        printf("\n");
}

void scene_segments(void)
{
        static char much[5000];
        unsigned short size = 300;
        struct sockaddr_in a, b;
        int s = udp_socket(&a), t = udp_socket(&b), v = 1000;
        struct iovec iov = {much, 1000};
        _Alignas(struct cmsghdr) char beside[CMSG_SPACE(2)] = "";
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = beside,
                           .msg_controllen = sizeof(beside)};

        connect(t, (void *)&a, sizeof(a));
        *CMSG_FIRSTHDR(&m) = (struct cmsghdr){CMSG_LEN(2), IPPROTO_UDP, UDP_SEGMENT};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &size, 2);
        SHOW(sendmsg(t, &m, 0));
        lengths(s, 4);
        SHOW(setsockopt(t, IPPROTO_UDP, UDP_SEGMENT, &v, sizeof(v)));
        SHOW(send(t, much, sizeof(much), 0));
        lengths(s, 5);
        SHOW(send(t, much, 900, 0));
        lengths(s, 1);
        SHOW(send(t, much, 1001, 0));
        lengths(s, 2);
        v = 70000;
        SHOW(setsockopt(t, IPPROTO_UDP, UDP_SEGMENT, &v, sizeof(v)));
        v = 2;
        SHOW(setsockopt(t, IPPROTO_UDP, UDP_SEGMENT, &v, sizeof(v)));
        SHOW(send(t, much, 700, 0));
        v = 0;
        SHOW(setsockopt(t, IPPROTO_UDP, UDP_SEGMENT, &v, sizeof(v)));
        SHOW(send(t, much, 700, 0));
        lengths(s, 1);
        close(s);
        close(t);
}

/* What one call sent in segments is read as one, and the size of them stands beside it. */
static void joined(int s, size_t room)
{
        static char b[65536];
        _Alignas(struct cmsghdr) char beside[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(int))];
        struct iovec iov[3] = {{b, 7}, {b + 7, room - 7}, {b, 0}};
        struct msghdr m = {.msg_iov = iov,
                           .msg_iovlen = 3,
                           .msg_control = beside,
                           .msg_controllen = sizeof(beside)};
        ssize_t n;
        long sum = 0;

        wait_readable(s);
        n = recvmsg(s, &m, MSG_DONTWAIT);
        for (ssize_t i = 0; i < n; i++)
                sum = sum * 31 % 1000003 + b[i];
        printf("  %zd bytes, sum %ld, flags %#x\n", n, sum, (unsigned)m.msg_flags);
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c)) {
                int v = 0;
                memcpy(&v, CMSG_DATA(c), sizeof(v));
                printf("  beside: level %d type %d value %d\n", c->cmsg_level, c->cmsg_type, v);
        }
}

void scene_gro(void)
{
        static char much[60000], rest[60000];
        struct sockaddr_in a, b, c;
        int s = udp_socket(&a), t = udp_socket(&b), u = udp_socket(&c), v = 1000, on = 1;
        socklen_t len = sizeof(on);

        for (size_t i = 0; i < sizeof(much); i++)
                much[i] = (char)(i * i / 7);
        connect(t, (void *)&a, sizeof(a));
        SHOW(setsockopt(s, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)));
        SHOW(getsockopt(s, IPPROTO_UDP, UDP_GRO, &on, &len));
        printf("  joins: %d\n", on);
        SHOW(setsockopt(s, IPPROTO_IP, IP_RECVTTL, &on, sizeof(on)));
        SHOW(send(t, much, 400, 0));
        joined(s, 65536); /* one is one */
        SHOW(setsockopt(t, IPPROTO_UDP, UDP_SEGMENT, &v, sizeof(v)));
        SHOW(send(t, much, 5000, 0));
        joined(s, 65536);
        SHOW(send(t, much, 4001, 0));
        joined(s, 65536);
        SHOW(send(t, much, 900, 0));
        joined(s, 65536);
        SHOW(send(t, much, sizeof(much), 0));
        joined(s, 65536);
        v = 100; /* short ones */
        SHOW(setsockopt(t, IPPROTO_UDP, UDP_SEGMENT, &v, sizeof(v)));
        SHOW(send(t, much, 450, 0));
        joined(s, 65536);
        SHOW(send(t, much, 450, 0));
        /* Too little room for one. */
        show_bytes("read", rest, recv(s, rest, 16, MSG_DONTWAIT | MSG_TRUNC) > 0 ? 16 : -1);
        SHOW(sendto(u, "other", 5, 0, (void *)&a, sizeof(a)));
        on = 0;
        SHOW(setsockopt(s, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)));
        while (recv(s, rest, sizeof(rest), MSG_DONTWAIT) != 5)
                ;
        SHOW(send(t, much, 150, 0));
        joined(s, 65536);
        joined(s, 65536);
        close(s);
        close(t);
        close(u);
}

/* On loopback groups are the kernel's, whatever our side is to the socket. */
void scene_groups(void)
{
        struct ip_mreq on_lo = {{htonl(0xef010203)}, {htonl(INADDR_LOOPBACK)}};
        struct sockaddr_in a = {.sin_family = AF_INET}, to;
        socklen_t len = sizeof(a);
        int s = socket(AF_INET, SOCK_DGRAM, 0), t = socket(AF_INET, SOCK_DGRAM, 0), v = 5;
        char b[10];

        SHOW(bind(s, (void *)&a, sizeof(a)));
        getsockname(s, (void *)&a, &len);
        SHOW(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &on_lo, sizeof(on_lo)));
        SHOW(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &on_lo, sizeof(on_lo)));
        SHOW(setsockopt(t, IPPROTO_IP, IP_MULTICAST_IF, &on_lo.imr_interface, 4));
        SHOW(setsockopt(t, IPPROTO_IP, IP_MULTICAST_TTL, &v, sizeof(v)));
        SHOW(setsockopt(t, IPPROTO_IP, IP_MULTICAST_TTL, &v, 1));
        v = 256;
        SHOW(setsockopt(t, IPPROTO_IP, IP_MULTICAST_TTL, &v, sizeof(v)));
        SHOW(getsockopt(t, IPPROTO_IP, IP_MULTICAST_TTL, &v, &len));
        printf("  %d\n", v);
        to = (struct sockaddr_in){
                .sin_family = AF_INET, .sin_port = a.sin_port, .sin_addr = on_lo.imr_multiaddr};
        SHOW(sendto(t, "group", 5, 0, (void *)&to, sizeof(to)));
        wait_readable(s);
        SHOW(recv(s, b, sizeof(b), MSG_DONTWAIT));
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        SHOW(sendto(t, "one", 3, 0, (void *)&to, sizeof(to)));
        wait_readable(s);
        SHOW(recv(s, b, sizeof(b), MSG_DONTWAIT));
        SHOW(setsockopt(s, IPPROTO_IP, IP_DROP_MEMBERSHIP, &on_lo, sizeof(on_lo)));
        SHOW(setsockopt(s, IPPROTO_IP, IP_DROP_MEMBERSHIP, &on_lo, sizeof(on_lo)));
        SHOW(setsockopt(s, IPPROTO_IP, IP_DROP_MEMBERSHIP, &on_lo, 4));
        close(s);
        close(t);
}
