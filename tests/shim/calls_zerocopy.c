/*
 * shim_calls, MSG_ZEROCOPY in all its neighbourhoods, and TCP_ZEROCOPY_RECEIVE. Over loopback Linux
 * copies what is sent so, and says it (SO_EE_CODE_ZEROCOPY_COPIED).
 */
#include "tests/shim/calls.h"

#include <linux/errqueue.h>
#include <linux/net_tstamp.h>

/* <linux/tcp.h>, which cannot stand beside libc's. */
struct zerocopy_receive {
        uint64_t address;
        uint32_t length, recv_skip_hint, inq;
        int32_t err;
        uint64_t copybuf_address;
        int32_t copybuf_len;
        uint32_t flags;
        uint64_t msg_control, msg_controllen;
        uint32_t msg_flags, reserved;
};

static char much[MUCH];

/* ---- notes ---- */

/* The next note, with so much room for it. Returns the last number it tells of, or -1. */
static long take_note(int fd, size_t room, bool show)
{
        _Alignas(struct cmsghdr) char control[128];
        struct iovec iov = {much, 10};
        struct msghdr m = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
        struct sock_extended_err e = {.ee_data = (unsigned)-1};
        ssize_t r = recvmsg(fd, &m, MSG_ERRQUEUE);
        struct cmsghdr *c = r >= 0 ? CMSG_FIRSTHDR(&m) : NULL;

        if (c && c->cmsg_len >= CMSG_LEN(sizeof(e)))
                memcpy(&e, CMSG_DATA(c), sizeof(e));
        if (show)
                printf("  note: %zd %s, flags %x, %zu beside; %u errno, origin %d, code %d\n", r,
                       name_of(r), m.msg_flags, r >= 0 ? (size_t)m.msg_controllen : 0, e.ee_errno,
                       e.ee_origin, e.ee_code);
        return r < 0 ? -1 : (long)(int)e.ee_data;
}

/* Until `calls` have been told of, however many notes it takes; and no more. */
static void take_notes(int fd, unsigned calls)
{
        struct pollfd p = {.fd = fd, .events = POLLRDHUP};
        long told = -1;

        while (told + 1 < (long)calls) {
                if (poll(&p, 1, LONG) != 1 || !(p.revents & POLLERR))
                        die("no note");
                told = take_note(fd, 128, false);
        }
        printf("  %ld calls told of, then %s\n", told + 1, name_of(take_note(fd, 128, false)));
}

static void asks_for_notes(int fd)
{
        int on = 1;

        SHOW(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)));
}

/* Throws away n bytes. */
static void drain(int fd, size_t n)
{
        char b[4096];

        for (ssize_t r; n > 0; n -= (size_t)r)
                if ((r = recv(fd, b, n < sizeof(b) ? n : sizeof(b), 0)) <= 0)
                        die("drain");
}

/* ---- streams ---- */

static void odd_sends(int s, int t)
{
        struct mmsghdr v[2];
        struct iovec iov = {much, 100};

        SHOW(send(s, much, 0, MSG_ZEROCOPY)); /* no note */
        SHOW(send(s, much, 1, MSG_ZEROCOPY));
        SHOW(send(s, much, 10, MSG_ZEROCOPY | MSG_MORE));
        SHOW(send(s, much, MUCH, MSG_ZEROCOPY | MSG_DONTWAIT));
        memset(v, 0, sizeof(v));
        v[0].msg_hdr.msg_iov = v[1].msg_hdr.msg_iov = &iov;
        v[0].msg_hdr.msg_iovlen = v[1].msg_hdr.msg_iovlen = 1;
        SHOW(sendmmsg(s, v, 2, MSG_ZEROCOPY));
        SHOW(write(s, much, 5)); /* no note */
        drain(t, 11 + MUCH + 200 + 5);
        take_notes(s, 5);
}

/* What finds no room is told of no more than what is refused. */
static void until_full(int s, int t)
{
        static char b[256 << 10];
        unsigned calls = 0;
        size_t sum = 0;
        ssize_t r;

        while ((r = send(s, b, sizeof(b), MSG_ZEROCOPY | MSG_DONTWAIT)) > 0) {
                sum += (size_t)r;
                calls++;
        }
        printf("  full: %s\n", name_of(r));
        drain(t, sum);
        for (struct pollfd p = {.fd = s, .events = POLLRDHUP}; calls > 0;) {
                long told;
                if (poll(&p, 1, LONG) != 1)
                        die("no note");
                told = take_note(s, 128, false) - 5; /* those of odd_sends() come first */
                if (told + 1 == (long)calls)
                        break;
        }
        SHOW(take_note(s, 128, false));
}

static void little_room(int s, int t)
{
        static const size_t room[] = {48, 40, 20, 16, 10, 0};

        for (size_t i = 0; i < ARRAY_LEN(room); i++) {
                struct pollfd p = {.fd = s, .events = POLLRDHUP};
                send(s, much, MUCH, MSG_ZEROCOPY);
                drain(t, MUCH);
                poll(&p, 1, LONG);
                printf("  room %zu\n", room[i]);
                take_note(s, room[i], true);
                SHOW(take_note(s, 128, false));
        }
}

/* By the edge: one event for each note, read or not. */
static void edges(int s, int t)
{
        struct epoll_event e = {.events = EPOLLIN | EPOLLET};
        int ep = epoll_create1(0), err = 7;
        socklen_t len = sizeof(err);

        epoll_ctl(ep, EPOLL_CTL_ADD, s, &e);
        SHOW(epoll_wait(ep, &e, 1, 0));
        for (int i = 0; i < 3; i++) {
                send(s, much, MUCH, MSG_ZEROCOPY);
                drain(t, MUCH);
                SHOW(epoll_wait(ep, &e, 1, LONG));
                printf("  events %x\n", e.events);
                SHOW(epoll_wait(ep, &e, 1, 0));
        }
        SHOW(getsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len));
        printf("  error %d\n", err);
        while (take_note(s, 128, false) >= 0)
                ;
        SHOW(epoll_wait(ep, &e, 1, 0));
        close(ep);
}

static int origin_of_note(int fd)
{
        _Alignas(struct cmsghdr) char control[128];
        struct msghdr m = {.msg_control = control, .msg_controllen = sizeof(control)};
        struct pollfd p = {.fd = fd, .events = POLLRDHUP};
        struct sock_extended_err e;
        struct cmsghdr *c;

        if (poll(&p, 1, LONG) != 1 || recvmsg(fd, &m, MSG_ERRQUEUE) < 0)
                die("no note");
        c = CMSG_FIRSTHDR(&m);
        if (!c || c->cmsg_len < CMSG_LEN(sizeof(e)))
                die("a note of nothing");
        memcpy(&e, CMSG_DATA(c), sizeof(e));
        return e.ee_origin;
}

/* A call that asks for a time as well has both told, in whichever order. */
static void with_a_time(int s, int t)
{
        unsigned flags = SOF_TIMESTAMPING_OPT_TSONLY, what = SOF_TIMESTAMPING_TX_ACK;
        _Alignas(struct cmsghdr) char beside[CMSG_SPACE(sizeof(what))] = {0};
        struct iovec iov = {much, MUCH};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = beside,
                           .msg_controllen = sizeof(beside)};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        bool copied = false, acknowledged = false;

        SHOW(setsockopt(s, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof(flags)));
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SO_TIMESTAMPING;
        c->cmsg_len = CMSG_LEN(sizeof(what));
        memcpy(CMSG_DATA(c), &what, sizeof(what));
        SHOW(sendmsg(s, &m, MSG_ZEROCOPY));
        drain(t, MUCH);
        while (!copied || !acknowledged) {
                int origin = origin_of_note(s);
                copied |= origin == SO_EE_ORIGIN_ZEROCOPY;
                acknowledged |= origin == SO_EE_ORIGIN_TIMESTAMPING;
        }
        SHOW(take_note(s, 128, false));
}

void scene_zerocopy_streams(void)
{
        int v[2], on = -1;
        socklen_t len = sizeof(on);

        tcp_pair(v);
        asks_for_notes(v[0]);
        SHOW(getsockopt(v[0], SOL_SOCKET, SO_ZEROCOPY, &on, &len));
        printf("  is %d\n", on);
        odd_sends(v[0], v[1]);
        until_full(v[0], v[1]);
        little_room(v[0], v[1]);
        edges(v[0], v[1]);
        with_a_time(v[0], v[1]);
        SHOW(recv(v[0], much, 1, MSG_ERRQUEUE));
        SHOW(send(v[0], much, MUCH, MSG_ZEROCOPY));
        drain(v[1], MUCH);
        SHOW(close(v[0])); /* with a note in it */
        SHOW(recv(v[1], much, 1, 0));
        close(v[1]);
}

/* ---- datagrams ---- */

static void datagram(int s, int t, int flags)
{
        struct pollfd p = {.fd = s, .events = POLLRDHUP};

        SHOW(send(s, much, 1000, MSG_ZEROCOPY | flags));
        if (flags & MSG_MORE)
                SHOW(send(s, much, 10, MSG_ZEROCOPY));
        SHOW(recv(t, much, MUCH, 0));
        SHOW(poll(&p, 1, LONG));
        printf("  events %x, to number %ld\n", p.revents, take_note(s, 128, true));
        SHOW(take_note(s, 128, false));
}

/* Who asks for it before, and who asks when the socket has a peer. */
void scene_zerocopy_datagrams(void)
{
        for (int late = 0; late < 2; late++) {
                struct sockaddr_in sa;
                int t = udp_socket(&sa), s = socket(AF_INET, SOCK_DGRAM, 0);

                if (!late)
                        asks_for_notes(s);
                SHOW(connect(s, (void *)&sa, sizeof(sa)));
                SHOW(send(s, "first", 5, 0));
                SHOW(recv(t, much, MUCH, 0));
                if (late)
                        asks_for_notes(s);
                datagram(s, t, 0);
                datagram(s, t, MSG_MORE);
                datagram(s, t, MSG_DONTWAIT);
                SHOW(send(s, "last", 4, 0));
                SHOW(recv(t, much, MUCH, 0));
                close(s);
                close(t);
        }
}

/* ---- TCP_ZEROCOPY_RECEIVE ---- */

/* Asks for what is there, to be mapped at `at`, of so many bytes; what was mapped is not told. */
static struct zerocopy_receive ask_mapped(int fd, void *at, unsigned length, char *copy, int room,
                                          socklen_t len, bool show)
{
        struct zerocopy_receive z = {.address = (uintptr_t)at,
                                     .length = length,
                                     .copybuf_address = (uintptr_t)copy,
                                     .copybuf_len = room};
        socklen_t had = len;
        int r = getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &z, &len);

        if (show)
                printf("  asked with %u: %s, %u; mapped %u, then %u to read, %u there, error %d, "
                       "copied "
                       "%d, flags %x\n",
                       had, name_of(r), len, z.length, z.recv_skip_hint, z.inq, z.err,
                       z.copybuf_len, z.msg_flags);
        z.err = r;
        return z;
}

/* As a program does: what is mapped is there, what is not is read. */
static void whole_stream(int s, int t, char *at, size_t room)
{
        static char b[300000];
        size_t sent = 0, got = 0;
        unsigned sum = 0;
        ssize_t r;

        for (size_t i = 0; i < sizeof(b); i++)
                b[i] = pattern((int)i);
        while (got < 10 * sizeof(b)) {
                struct zerocopy_receive z;
                if (sent < 10 * sizeof(b) &&
                    (r = send(s, b + sent % sizeof(b), sizeof(b) - sent % sizeof(b),
                              MSG_DONTWAIT)) > 0)
                        sent += (size_t)r;
                wait_readable(t);
                z = ask_mapped(t, at, (unsigned)room, NULL, 0, sizeof(z), false);
                if (z.err != 0)
                        die("TCP_ZEROCOPY_RECEIVE");
                for (unsigned i = 0; i < z.length; i++, got++)
                        sum += at[i] != pattern((int)(got % sizeof(b)));
                for (unsigned left = z.recv_skip_hint; left > 0; left -= (unsigned)r) {
                        static char p[65536];
                        r = recv(t, p, left < sizeof(p) ? left : sizeof(p), 0);
                        if (r <= 0)
                                die("read");
                        for (ssize_t i = 0; i < r; i++, got++)
                                sum += p[i] != pattern((int)(got % sizeof(b)));
                }
        }
        printf("  %zu bytes, %u wrong\n", got, sum);
}

/* A structure of a later version. */
static void show_longer(int fd)
{
        struct {
                struct zerocopy_receive z;
                char more[600];
        } later = {.more = {0}};
        socklen_t len = sizeof(later);

        SHOW(getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &later, &len));
        SHOW(len == sizeof(later.z));
        len = sizeof(later);
        later.more[500] = 1;
        SHOW(getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &later, &len));
        SHOW(len == sizeof(later));
}

void scene_zerocopy_receive(void)
{
        enum { ROOM = 1 << 20 };
        static char copy[4000];
        struct zerocopy_receive z = {.reserved = 1};
        socklen_t len = sizeof(z);
        char *at;
        int v[2];

        tcp_pair(v);
        at = mmap(NULL, ROOM, PROT_READ, MAP_SHARED, v[1], 0);
        if (at == MAP_FAILED)
                die("mmap");
        SHOW(setsockopt(v[1], IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &z, sizeof(z)));
        SHOW(getsockopt(v[1], IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &z, &len));
        len = 11;
        SHOW(getsockopt(v[1], IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &z, &len));
        ask_mapped(v[1], at, ROOM, NULL, 0, sizeof(z), true);
        show_longer(v[1]);
        ask_mapped(v[1], at + 1, ROOM, NULL, 0, sizeof(z), true);
        write_much(v[0]);
        wait_bytes(v[1], MUCH);
        for (len = 12; len <= sizeof(z); len += 4)
                ask_mapped(v[1], at, ROOM, NULL, 0, len, true);
        ask_mapped(v[1], at, ROOM, copy, 100, sizeof(z), true);
        ask_mapped(v[1], at, ROOM, copy, sizeof(copy), sizeof(z), true);
        printf("  the first is %s, the last is %s\n", copy[0] == pattern(0) ? "right" : "wrong",
               copy[MUCH - 1] == pattern(MUCH - 1) ? "right" : "wrong");
        ask_mapped(v[1], at, ROOM, copy, sizeof(copy), sizeof(z), true);
        whole_stream(v[0], v[1], at, ROOM);
        SHOW(send(v[0], "end", 3, 0));
        shutdown(v[0], SHUT_WR);
        wait_bytes(v[1], 3);
        ask_mapped(v[1], at, ROOM, copy, sizeof(copy), sizeof(z), true);
        wait_readable(v[1]);
        ask_mapped(v[1], at, ROOM, copy, sizeof(copy), sizeof(z), true);
        munmap(at, ROOM);
        close2(v);
}
