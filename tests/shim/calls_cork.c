/* Scenes of datagrams that several calls make: UDP_CORK, MSG_MORE, and what copies files and pipes
 * into a socket. */
#include "tests/shim/calls.h"

#include <netinet/udp.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

static void cork(int t, int on)
{
        socklen_t len = sizeof(on);

        SHOW(setsockopt(t, IPPROTO_UDP, UDP_CORK, &on, sizeof(on)));
        SHOW(getsockopt(t, IPPROTO_UDP, UDP_CORK, &on, &len));
        printf("  corked: %d\n", on);
}

/* The next datagram of s: how long it is, and its ends. */
static void next(int s)
{
        static char b[65536];
        ssize_t r;

        wait_readable(s);
        r = recv(s, b, sizeof(b), MSG_DONTWAIT);
        if (r > 40)
                printf("  got %zd: %.8s ... %.8s\n", r, b, b + r - 8);
        else
                show_bytes("got", b, r);
}

/* Nothing came: what `u` sends now is the next one. */
static void nothing(int s, int u, const struct sockaddr_in *a)
{
        printf("  nothing before this one:\n");
        sendto(u, "marker", 6, 0, (const void *)a, sizeof(*a));
        next(s);
}

void scene_cork(void)
{
        struct sockaddr_in a, b, c;
        int s = udp_socket(&a), t = udp_socket(&b), u = udp_socket(&c);
        struct iovec v[2] = {{(void *)"vector ", 7}, {(void *)"of two", 6}};
        struct msghdr two = {.msg_iov = v, .msg_iovlen = 2};

        connect(t, (void *)&a, sizeof(a));
        SHOW(send(t, "one ", 4, MSG_MORE));
        SHOW(send(t, "two ", 4, MSG_MORE));
        nothing(s, u, &a);
        SHOW(send(t, "three", 5, 0));
        next(s);
        cork(t, 1);
        SHOW(write(t, "corked ", 7));
        SHOW(sendmsg(t, &two, 0));
        nothing(s, u, &a);
        cork(t, 0);
        next(s);
        cork(t, 0);
        SHOW(send(t, "more ", 5, MSG_MORE));
        cork(t, 0); /* lets it go, though it was not corked */
        next(s);
        SHOW(send(t, "", 0, MSG_MORE));
        SHOW(send(t, "", 0, 0));
        next(s);
        cork(t, 1);
        cork(t, 0);
        nothing(s, u, &a);
        SHOW(send(t, "urgent", 6, MSG_MORE | MSG_OOB));
        nothing(s, u, &a);
        close(s);
        close(t);
        close(u);
}

/* Where it goes the first call says, and connect(), which in Linux changes what was said before. */
void scene_cork_named(void)
{
        struct sockaddr_in a, b, c, d, none = {.sin_family = AF_UNSPEC};
        int s = udp_socket(&a), t = udp_socket(&b), u = udp_socket(&c), w = udp_socket(&d);

        SHOW(send(t, "to nobody", 9, MSG_MORE));
        SHOW(sendto(t, "named ", 6, MSG_MORE, (void *)&a, sizeof(a)));
        SHOW(sendto(t, "otherwise ", 10, MSG_MORE, (void *)&c, sizeof(c)));
        SHOW(send(t, "or not", 6, 0));
        next(s);
        nothing(u, w, &c);
        connect(t, (void *)&a, sizeof(a));
        SHOW(send(t, "connected ", 10, MSG_MORE));
        SHOW(connect(t, (void *)&c, sizeof(c)));
        SHOW(send(t, "elsewhere", 9, 0));
        next(u);
        nothing(s, w, &a);
        SHOW(send(t, "now there", 9, 0));
        next(u);
        close(t);
        t = socket(AF_INET, SOCK_DGRAM, 0);
        SHOW(bind(t, (void *)&b, sizeof(b)));
        SHOW(connect(t, (void *)&c, sizeof(c)));
        SHOW(send(t, "and ", 4, MSG_MORE));
        SHOW(connect(t, (void *)&none, sizeof(none)));
        SHOW(send(t, "no more", 7, 0));
        next(u);
        SHOW(send(t, "nobody", 6, 0));
        SHOW(sendto(t, "whoever", 7, 0, (void *)&a, sizeof(a)));
        next(s);
        SHOW(sendto(w, "from a stranger", 15, 0, (void *)&b, sizeof(b)));
        next(t);
        close(s);
        close(t);
        close(u);
        close(w);
}

void scene_cork_long(void)
{
        static char p[70000];
        struct sockaddr_in a, b, c;
        int s = udp_socket(&a), t = udp_socket(&b), u = udp_socket(&c), room = 1 << 20;

        setsockopt(s, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
        setsockopt(t, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
        memset(p, 'x', sizeof(p));
        connect(t, (void *)&a, sizeof(a));
        SHOW(send(t, p, 40000, MSG_MORE));
        SHOW(send(t, p, 25507, 0));
        next(s);
        SHOW(send(t, p, 40000, MSG_MORE));
        SHOW(send(t, p, 25508, 0)); /* too much, and it is all gone */
        nothing(s, u, &a);
        SHOW(send(t, "small ", 6, MSG_MORE));
        SHOW(send(t, p, 65536, 0)); /* refused before it is looked at what waits */
        SHOW(send(t, "still", 5, 0));
        next(s);
        SHOW(send(t, "small ", 6, MSG_MORE));
        SHOW(send(t, p, 65508, MSG_MORE));
        SHOW(send(t, "anew", 4, 0));
        next(s);
        SHOW(send(t, p, 65508, MSG_MORE));
        for (int i = 0; i < 1000; i++)
                send(t, p, 60, MSG_MORE);
        SHOW(send(t, "the last", 8, 0));
        next(s);
        close(s);
        close(t);
        close(u);
}

static void with_ttl(int t, int ttl, int flags)
{
        _Alignas(struct cmsghdr) char beside[CMSG_SPACE(sizeof(ttl))] = "";
        struct iovec iov = {(void *)"part ", 5};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = beside,
                           .msg_controllen = sizeof(beside)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);

        *c = (struct cmsghdr){
                .cmsg_len = CMSG_LEN(sizeof(ttl)), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_TTL};
        memcpy(CMSG_DATA(c), &ttl, sizeof(ttl));
        SHOW(sendmsg(t, &m, flags));
}

static void show_ttl(int s)
{
        _Alignas(struct cmsghdr) char beside[64] = "";
        char b[64];
        struct iovec iov = {b, sizeof(b)};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = beside,
                           .msg_controllen = sizeof(beside)};
        struct cmsghdr *c;
        int ttl = -1;

        wait_readable(s);
        show_bytes("got", b, recvmsg(s, &m, MSG_DONTWAIT));
        c = CMSG_FIRSTHDR(&m);
        if (c)
                memcpy(&ttl, CMSG_DATA(c), sizeof(ttl));
        printf("  TTL %d\n", ttl);
}

/* What is said of it the first call says, and UDP_SEGMENT cuts the whole. */
void scene_cork_beside(void)
{
        struct sockaddr_in a, b;
        int s = udp_socket(&a), t = udp_socket(&b), on = 1, size = 6;

        connect(t, (void *)&a, sizeof(a));
        setsockopt(s, IPPROTO_IP, IP_RECVTTL, &on, sizeof(on));
        with_ttl(t, 9, MSG_MORE);
        with_ttl(t, 77, 0);
        show_ttl(s);
        with_ttl(t, 0, MSG_MORE);
        with_ttl(t, 10, MSG_MORE);
        with_ttl(t, 0, MSG_MORE);
        SHOW(send(t, "end", 3, 0));
        show_ttl(s);
        SHOW(send(t, "the socket's", 12, 0));
        show_ttl(s);
        SHOW(setsockopt(t, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof(size)));
        cork(t, 1);
        SHOW(send(t, "four", 4, 0));
        SHOW(send(t, "teen bytes", 10, 0));
        cork(t, 0);
        next(s);
        next(s);
        next(s);
        close(s);
        close(t);
}

/* What waits is the socket's: whoever has it adds to it. It ends with it. */
void scene_cork_shared(void)
{
        struct sockaddr_in a, b, c;
        int s = udp_socket(&a), t = udp_socket(&b), u = udp_socket(&c), d;
        pid_t pid;

        connect(t, (void *)&a, sizeof(a));
        SHOW(send(t, "the parent ", 11, MSG_MORE));
        fflush(stdout);
        pid = fork();
        if (pid == 0) {
                send(t, "and the child ", 14, MSG_MORE);
                _exit(0);
        }
        waitpid(pid, NULL, 0);
        d = dup(t);
        close(t);
        SHOW(send(d, "are one", 7, 0));
        next(s);
        SHOW(send(d, "never sent", 10, MSG_MORE));
        close(d);
        nothing(s, u, &a);
        close(s);
        close(u);
}

void scene_cork_many(void)
{
        struct sockaddr_in a, b;
        int s = udp_socket(&a), t = udp_socket(&b);
        struct iovec v[3] = {{(void *)"a ", 2}, {(void *)"b ", 2}, {(void *)"c ", 2}};
        struct mmsghdr m[3] = {{.msg_hdr = {.msg_iov = &v[0], .msg_iovlen = 1}},
                               {.msg_hdr = {.msg_iov = &v[1], .msg_iovlen = 1}},
                               {.msg_hdr = {.msg_iov = &v[2], .msg_iovlen = 1}}};

        connect(t, (void *)&a, sizeof(a));
        SHOW(sendmmsg(t, m, 3, MSG_MORE));
        SHOW(sendmmsg(t, m, 3, 0)); /* the first one ends it */
        for (int i = 0; i < 3; i++)
                next(s);
        close(s);
        close(t);
}

void scene_cork_files(void)
{
        struct sockaddr_in a, b, c;
        int s = udp_socket(&a), t = udp_socket(&b), u = udp_socket(&c), in, p[2];
        FILE *tmp = tmpfile();
        off_t off = 2;
        char text[5000], got[64];

        in = fileno(tmp);
        memset(text, 'f', sizeof(text));
        memcpy(text, "0123456789", 10);
        write(in, text, sizeof(text));
        lseek(in, 0, SEEK_SET);
        connect(t, (void *)&a, sizeof(a));
        SHOW(sendfile(t, in, NULL, 10));
        next(s);
        SHOW(lseek(in, 0, SEEK_CUR));
        SHOW(sendfile(t, in, &off, 4));
        SHOW(off);
        next(s);
        off = 0;
        SHOW(sendfile(t, in, &off, 100000));
        next(s);
        SHOW(sendfile(t, in, &off, 100)); /* at its end: no datagram */
        nothing(s, u, &a);
        cork(t, 1);
        SHOW(send(t, "header ", 7, 0));
        off = 0;
        SHOW(sendfile(t, in, &off, 6));
        cork(t, 0);
        next(s);
        pipe(p);
        write(p[1], "through a pipe", 14);
        SHOW(splice(p[0], NULL, t, NULL, 64, 0));
        next(s);
        write(p[1], "more ", 5);
        SHOW(splice(p[0], NULL, t, NULL, 64, SPLICE_F_MORE));
        SHOW(send(t, "to come", 7, 0));
        next(s);
        SHOW(send(t, "into a pipe", 11, 0));
        wait_readable(s);
        SHOW(splice(s, NULL, p[1], NULL, 64, 0));
        show_bytes("pipe", got, read(p[0], got, sizeof(got)));
        fcntl(s, F_SETFL, O_NONBLOCK);
        SHOW(splice(s, NULL, p[1], NULL, 64, SPLICE_F_NONBLOCK));
        close(p[0]);
        close(p[1]);
        fclose(tmp);
        close(s);
        close(t);
        close(u);
}

/* One that begins at a port that only the kernel knows is the kernel's to its end. */
void scene_cork_kernels(void)
{
        struct sockaddr_in a, b, k = {.sin_family = AF_INET};
        int s = udp_socket(&a), t = udp_socket(&b), below = socket(AF_INET, SOCK_DGRAM, 0);
        socklen_t len = sizeof(k);
        char got[64];

        k.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        SHOW(setsockopt(below, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
        SHOW(bind(below, (void *)&k, sizeof(k)));
        getsockname(below, (void *)&k, &len);
        SHOW(sendto(t, "first ", 6, MSG_MORE, (void *)&k, sizeof(k)));
        SHOW(sendto(t, "and last", 8, 0, (void *)&a, sizeof(a)));
        wait_readable(below);
        show_bytes("got", got, recv(below, got, sizeof(got), MSG_DONTWAIT));
        SHOW(sendto(t, "on its own", 10, 0, (void *)&a, sizeof(a)));
        next(s);
        close(s);
        close(t);
        close(below);
}
