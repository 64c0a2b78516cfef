/* IP options of sockets: what may be set, what is sent and received with datagrams, and what
 * connections answer. */
#include "tests/shim/calls.h"

#define TS_ONLY 0
#define TS_ADDR 1

/* Options as bytes; times of a timestamp option are left out. */
static void show_options(const char *what, const unsigned char *p, size_t n)
{
        printf("  %s:", what);
        for (size_t i = 0; i < n; i++) {
                size_t len = p[i] <= 1 || i + 1 >= n ? 1 : p[i + 1];
                for (size_t k = 0; k < len && i + k < n; k++) {
                        size_t entry = k >= 4 ? (k - 4) % (p[i + 3] & 15 ? 8 : 4) : 0;
                        bool time = p[i] == 68 && k >= 4 && (p[i + 3] & 15 ? entry >= 4 : true) &&
                                    k + 1 < p[i + 2];
                        printf(time ? " t" : " %02x", p[i + k]);
                }
                i += len ? len - 1 : 0;
        }
        printf("\n");
}

static void get_options(int s, socklen_t room)
{
        unsigned char b[64];
        socklen_t len = room;
        int r;

        memset(b, 0x5a, sizeof(b));
        r = getsockopt(s, IPPROTO_IP, IP_OPTIONS, b, &len);
        printf("  getsockopt(IP_OPTIONS, %u) = %d %s, %u\n", room, r, name_of(r), len);
        if (r == 0)
                show_options("options", b, len);
}

static void set_options(int s, const void *p, socklen_t n)
{
        printf("  %u bytes", n);
        show_options("", p, n);
        SHOW(setsockopt(s, IPPROTO_IP, IP_OPTIONS, p, n));
        get_options(s, 64);
}

void scene_ip_options(void)
{
        static const struct {
                socklen_t n;
                unsigned char b[44];
        } table[] = {
                {4, {148, 4, 0, 0}},
                {3, {148, 3, 0}},
                {7, {7, 7, 4, 1, 2, 3, 4}},
                {8, {7, 7, 8, 1, 2, 3, 4, 0}},
                {11, {7, 11, 4}},
                {12, {7, 11, 8, 9, 9, 9, 9}},
                {40, {7, 39, 4}},
                {41, {7, 39, 4}},
                {44, {1}},
                {3, {7, 3, 4}},
                {3, {7, 2, 4}},
                {7, {7, 7, 3}},
                {1, {7}},
                {2, {1, 7}},
                {6, {7, 7, 4}},
                {14, {7, 7, 4, 0, 0, 0, 0, 7, 7, 4}},
                {8, {68, 8, 5, TS_ONLY}},
                {8, {68, 8, 9, TS_ONLY, 1, 2, 3, 4}},
                {12, {68, 12, 5, TS_ADDR, 1, 2, 3, 4, 5, 6, 7, 8}},
                {12, {68, 12, 5, 3, 10, 9, 8, 7}},
                {8, {68, 8, 5, TS_ADDR}},
                {4, {68, 4, 5, 0xf0}},
                {4, {68, 4, 5, 0xe0}},
                {3, {68, 3, 5}},
                {7, {131, 7, 4, 127, 0, 0, 1}},
                {11, {131, 11, 4, 127, 0, 0, 1, 127, 0, 0, 2}},
                {11, {137, 11, 4, 127, 0, 0, 1, 127, 0, 0, 2}},
                {7, {131, 7, 8, 127, 0, 0, 1}},
                {3, {131, 3, 4}},
                {10, {131, 10, 4, 127, 0, 0, 1}},
                {14, {131, 7, 4, 127, 0, 0, 1, 137, 7, 4, 127, 0, 0, 1}},
                {8, {1, 1, 0, 7, 3, 3, 3, 3}},
                {4, {1, 1, 1, 1}},
                {5, {1, 0, 0, 0, 9}},
                {0, {0}},
        };
        struct sockaddr_in a;
        int pair[2], of[4];

        tcp_pair(pair);
        of[0] = socket(AF_INET, SOCK_DGRAM, 0);
        of[1] = udp_socket(&a);
        of[2] = socket(AF_INET, SOCK_STREAM, 0);
        of[3] = pair[0];
        for (size_t k = 0; k < ARRAY_LEN(of); k++) {
                int s = of[k];
                get_options(s, 64);
                for (size_t i = 0; i < ARRAY_LEN(table); i++)
                        set_options(s, table[i].b, table[i].n);
                set_options(s, table[4].b, table[4].n);
                get_options(s, 5);
                get_options(s, 0);
                SHOW(setsockopt(s, IPPROTO_IP, IP_OPTIONS, NULL, 0));
                get_options(s, 64);
                close(s);
        }
        close(pair[1]);
}

/* Its bytes, and the options beside it. */
static void receive(int s, size_t room, int flags)
{
        _Alignas(struct cmsghdr) char beside[256];
        char b[65536];
        struct iovec iov = {b, sizeof(b)};
        struct msghdr m = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = beside, .msg_controllen = room};
        ssize_t r;

        wait_readable(s);
        r = recvmsg(s, &m, flags);
        printf("  %zd %s flags %x, %zu beside\n", r, name_of(r), m.msg_flags & ~MSG_CMSG_CLOEXEC,
               m.msg_controllen);
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); r >= 0 && c; c = CMSG_NXTHDR(&m, c)) {
                printf("    level %d type %d, %zu bytes\n", c->cmsg_level, c->cmsg_type,
                       c->cmsg_len);
                if (c->cmsg_type == IP_RECVOPTS || c->cmsg_type == IP_RETOPTS)
                        show_options("  options", CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
        }
}

static void send_with(int t, const struct sockaddr_in *to, const void *opts, size_t n)
{
        _Alignas(struct cmsghdr) char beside[CMSG_SPACE(64)] = {0};
        struct iovec iov = {"by itself", 9};
        struct msghdr m = {.msg_name = (void *)(uintptr_t)to,
                           .msg_namelen = to ? sizeof(*to) : 0,
                           .msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = beside,
                           .msg_controllen = CMSG_SPACE(n)};

        *CMSG_FIRSTHDR(&m) = (struct cmsghdr){CMSG_LEN(n), IPPROTO_IP, IP_RETOPTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), opts, n);
        SHOW(sendmsg(t, &m, 0));
}

static void on_off(int s, int name, int v)
{
        socklen_t len = sizeof(v);

        SHOW(setsockopt(s, IPPROTO_IP, name, &v, sizeof(v)));
        v = 7;
        SHOW(getsockopt(s, IPPROTO_IP, name, &v, &len));
        printf("  %d: %d\n", name, v);
}

void scene_ip_options_datagrams(void)
{
        static const unsigned char rr[] = {7, 19, 4, [19] = 0},
                                   ts[] = {148, 4, 0, 0, 68, 28, 5, TS_ADDR, [31] = 0},
                                   stamps[] = {68, 12, 5, TS_ONLY, [11] = 0},
                                   full[] = {7, 7, 4, 0, 0, 0, 0, 0};
        static const size_t len[] = {1, 140, 165, 185, 204, 1000, 1468, 30000, 65467, 65468, 65507};
        static char b[65507];
        struct sockaddr_in a, from;
        int s = udp_socket(&a), t = udp_socket(&from);

        connect(t, (void *)&a, sizeof(a));
        SHOW(send(t, "none", 4, 0));
        on_off(s, IP_RECVOPTS, 1);
        receive(s, 256, 0);
        set_options(t, rr, sizeof(rr));
        SHOW(send(t, "recorded", 8, 0));
        receive(s, 256, MSG_PEEK);
        receive(s, 256, 0);
        on_off(s, IP_RETOPTS, 1);
        on_off(s, IP_RECVTTL, 1);
        SHOW(send(t, "both", 4, 0));
        receive(s, 256, MSG_PEEK);
        receive(s, 60, MSG_PEEK);
        receive(s, 20, MSG_PEEK);
        receive(s, 0, 0);
        on_off(s, IP_RECVTTL, 0);
        set_options(t, ts, sizeof(ts));
        SHOW(send(t, "stamped", 7, 0));
        receive(s, 256, 0);
        set_options(t, stamps, sizeof(stamps));
        SHOW(send(t, "stamped", 7, 0));
        receive(s, 256, 0);
        set_options(t, full, sizeof(full));
        SHOW(send(t, "full", 4, 0));
        receive(s, 256, 0);
        for (size_t i = 0; i < ARRAY_LEN(len); i++) {
                ssize_t r = send(t, b, len[i], 0);
                printf("  %zu: %zd %s\n", len[i], r, name_of(r));
                if (r >= 0)
                        receive(s, 256, 0);
        }
        SHOW(send(t, "read", 4, 0));
        wait_readable(s);
        SHOW(read(s, b, sizeof(b)));
        send_with(t, NULL, rr, sizeof(rr));
        receive(s, 256, 0);
        send_with(t, &a, "", 0);
        receive(s, 256, 0);
        send_with(t, &a, "\x07\x07\x03\0\0\0", 7);
        set_options(t, "", 0);
        send_with(t, &a, rr, 10);
        send_with(t, &a, stamps, sizeof(stamps));
        receive(s, 256, 0);
        SHOW(send(t, "none", 4, 0));
        receive(s, 256, 0);
        close(s);
        close(t);
}

static void to_and_fro(int s, int t, int n)
{
        static char b[1 << 16];
        long sent = 0, got = 0;

        for (int i = 0; i < n; i++) {
                for (ssize_t r = 0; r < (ssize_t)sizeof(b);
                     r += send(s, b + r, sizeof(b) - (size_t)r, 0))
                        ;
                for (ssize_t r = 0; r < (ssize_t)sizeof(b);
                     r += recv(t, b + r, sizeof(b) - (size_t)r, 0))
                        ;
                sent += sizeof(b);
                got += sizeof(b);
        }
        printf("  %ld to, %ld fro\n", sent, got);
}

void scene_ip_options_connections(void)
{
        static const unsigned char rr[] = {7, 19, 4, [19] = 0},
                                   odd[] = {148, 4, 0, 0, 68, 20, 5, TS_ADDR, [23] = 0};
        struct sockaddr_in sa;
        int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM, 0), t;

        set_options(l, odd, sizeof(odd)); /* says nothing of connections */
        set_options(s, rr, sizeof(rr));
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        t = accept(l, NULL, NULL);
        get_options(s, 64);
        get_options(t, 64);
        to_and_fro(s, t, 20);
        to_and_fro(t, s, 20);
        set_options(t, odd, sizeof(odd));
        to_and_fro(t, s, 20);
        set_options(s, "", 0);
        to_and_fro(s, t, 20);
        get_options(t, 64);
        close(s);
        close(t);
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        t = accept(l, NULL, NULL);
        get_options(t, 64);
        close(s);
        close(t);
        s = socket(AF_INET, SOCK_STREAM, 0);
        set_options(s, odd, sizeof(odd));
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        t = accept(l, NULL, NULL);
        get_options(t, 64);
        to_and_fro(s, t, 3);
        close(s);
        close(t);
        close(l);
}
