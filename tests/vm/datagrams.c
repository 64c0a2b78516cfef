/*
 * Datagrams read many a call, in bursts of BURST, each checked to the last byte.
 *
 *   datagrams serve PORT      says "ready", and "done" when a burst of each kind was read as it
 *                             should be
 *   datagrams call ADDR PORT  sends the bursts, each when the one before it was read, and again
 *                             what was lost; says "done"
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BURST   64u
#define LONGEST 4068u
#define SEVERAL 20u
#define CUT     100u /* bytes of a buffer that is too short */
#define AGAIN   1000 /* ms */
#define HOLE    21u  /* of a burst: its bytes are not there at first */

enum kind { PLAIN, SHORT, WHOLE_LENGTH, READY, PEEKED, FORKED, THREADS, BAD, KINDS };

struct head {
        uint32_t kind, number, len;
};

static int fd;
static uint8_t *buf; /* SEVERAL of LONGEST + 1 each */
static bool seen[BURST];
static struct sockaddr_in caller;

static _Noreturn void fail(const char *what)
{
        printf("failed: %s: %s\n", what, strerror(errno));
        fflush(stdout);
        exit(1);
}

static void must(bool right, const char *what)
{
        if (!right)
                fail(what);
}

static uint32_t length_of(uint32_t kind, uint32_t number)
{
        return number % 3 == 0
                       ? LONGEST
                       : (uint32_t)sizeof(struct head) +
                                 (number * 97 + kind * 31) % (LONGEST - sizeof(struct head));
}

static void make(uint8_t *p, uint32_t kind, uint32_t number)
{
        struct head h = {kind, number, length_of(kind, number)};

        memcpy(p, &h, sizeof h);
        for (uint32_t i = sizeof h; i < h.len; i++)
                p[i] = (uint8_t)(i * 7 + number * 13 + i / 256);
}

/* Notes a datagram, of which `n` bytes came; false: one of the burst before this one. */
static bool check(const uint8_t *p, uint32_t n, uint32_t kind)
{
        uint8_t right[LONGEST];
        struct head h;

        must(n >= sizeof h, "too short");
        memcpy(&h, p, sizeof h);
        if (h.kind != kind)
                return false;
        must(h.number < BURST && n <= h.len, "no such datagram");
        make(right, kind, h.number);
        must(memcmp(p, right, n) == 0, "other bytes");
        seen[h.number] = true;
        return true;
}

static uint32_t count_seen(void)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < BURST; i++)
                n += seen[i];
        return n;
}

struct batch {
        struct mmsghdr m[SEVERAL];
        struct iovec iov[SEVERAL];
        struct sockaddr_in from[SEVERAL];
};

static int read_some(struct batch *b, uint8_t *to, uint32_t n, uint32_t room, int flags)
{
        for (uint32_t i = 0; i < n; i++) {
                b->iov[i] = (struct iovec){to + i * (LONGEST + 1), room};
                b->m[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &b->iov[i],
                                                       .msg_iovlen = 1,
                                                       .msg_name = &b->from[i],
                                                       .msg_namelen = sizeof b->from[i],
                                                       .msg_controllen = 77}};
        }
        return recvmmsg(fd, b->m, n, flags, NULL);
}

static void look_at(const struct batch *b, int n, uint32_t kind, uint32_t room, bool whole)
{
        for (int i = 0; i < n; i++) {
                const struct msghdr *m = &b->m[i].msg_hdr;
                uint32_t len, got;
                struct head h;

                memcpy(&h, b->iov[i].iov_base, sizeof h);
                len = length_of(h.kind, h.number);
                got = len < room ? len : room;
                must(b->m[i].msg_len == (whole ? len : got), "msg_len");
                must((m->msg_flags & MSG_TRUNC) == (len > room ? MSG_TRUNC : 0), "MSG_TRUNC");
                must(m->msg_namelen == sizeof(struct sockaddr_in) && b->from[i].sin_port != 0 &&
                             m->msg_controllen == 0,
                     "name");
                if (check(b->iov[i].iov_base, got, kind))
                        caller = b->from[i];
        }
}

/* Waits for the first, as recvmmsg() does; 0: nothing for a while. */
static int some(uint32_t kind, uint32_t n, uint32_t room, int flags)
{
        struct batch b;
        int got = read_some(&b, buf, n, room, flags | MSG_WAITFORONE);

        must(got > 0 || (got < 0 && errno == EAGAIN), "recvmmsg");
        look_at(&b, got, kind, room, flags & MSG_TRUNC);
        return got < 0 ? 0 : got;
}

/* What is left is told of by whoever is asked, and it is what is read next. */
static void is_ready(bool ready, int patience)
{
        struct pollfd p = {fd, POLLIN, 0};
        struct timeval none = {0, 0};
        struct epoll_event e = {.events = EPOLLIN};
        int set = epoll_create1(0);
        fd_set r;

        FD_ZERO(&r);
        FD_SET(fd, &r);
        must(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0, "epoll");
        must(poll(&p, 1, patience) == ready, "poll");
        must(select(fd + 1, &r, NULL, NULL, &none) == ready, "select");
        must(epoll_wait(set, &e, 1, 0) == ready, "epoll_wait");
        close(set);
}

static void peek(uint32_t kind)
{
        uint8_t peeked[LONGEST];
        struct batch b;
        ssize_t n = recv(fd, peeked, sizeof peeked, MSG_PEEK | MSG_DONTWAIT);
        int got = read_some(&b, buf, 3, LONGEST, MSG_PEEK | MSG_DONTWAIT);

        if (n < 0)
                return;
        must(got >= 1 && b.m[0].msg_len == (uint32_t)n &&
                     memcmp(b.iov[0].iov_base, peeked, (size_t)n) == 0,
             "peeked again");
        got = read_some(&b, buf, 3, LONGEST, MSG_DONTWAIT);
        must(got >= 1 && b.m[0].msg_len == (uint32_t)n &&
                     memcmp(b.iov[0].iov_base, peeked, (size_t)n) == 0,
             "what was peeked");
        look_at(&b, got, kind, LONGEST, false);
}

/* Both have the socket; each datagram is one's. */
static void share_with_child(uint32_t kind)
{
        bool *of_child =
                mmap(NULL, sizeof seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int status;
        pid_t pid;

        some(kind, 5, LONGEST, 0);
        pid = fork();
        if (pid == 0) {
                memset(seen, 0, sizeof seen);
                for (int i = 0; i < 6; i++)
                        some(kind, 3, LONGEST, MSG_DONTWAIT);
                memcpy(of_child, seen, sizeof seen);
                _exit(0);
        }
        for (int i = 0; i < 6; i++)
                some(kind, 3, LONGEST, MSG_DONTWAIT);
        must(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "child");
        for (uint32_t i = 0; i < BURST; i++)
                seen[i] |= of_child[i];
        munmap(of_child, sizeof seen);
}

static void *other_reader(void *arg)
{
        uint8_t *own = malloc(SEVERAL * (LONGEST + 1));

        for (int i = 0; i < 200; i++) {
                struct batch b;
                int n = read_some(&b, own, 4, LONGEST, MSG_DONTWAIT);
                look_at(&b, n, THREADS, LONGEST, false);
        }
        free(own);
        return NULL;
}

static void share_with_thread(void)
{
        pthread_t t;

        must(pthread_create(&t, NULL, other_reader, NULL) == 0, "thread");
        for (int i = 0; i < 200; i++)
                some(THREADS, 4, LONGEST, MSG_DONTWAIT);
        pthread_join(t, NULL);
}

/* The third of five buffers cannot be written: what was before it is there, and its datagram alone
 * may be gone. */
static void bad_buffer(uint32_t kind)
{
        struct batch b;
        socklen_t len = sizeof(int);
        int n, err;

        must(mprotect(buf, LONGEST + 1, PROT_READ | PROT_WRITE) == 0, "mprotect");
        for (uint32_t i = 0; i < 5; i++) {
                b.iov[i] = (struct iovec){buf + i * (LONGEST + 1), LONGEST};
                b.m[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &b.iov[i],
                                                      .msg_iovlen = 1,
                                                      .msg_name = &b.from[i],
                                                      .msg_namelen = sizeof b.from[i]}};
        }
        b.iov[2].iov_base = (void *)16;
        n = recvmmsg(fd, b.m, 5, MSG_WAITFORONE, NULL);
        must((n > 0 && n <= 2) || (n < 0 && (errno == EAGAIN || errno == EFAULT)),
             "more than two before a bad buffer");
        look_at(&b, n, kind, LONGEST, false);
        must(getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 && (err == 0 || err == EFAULT),
             "a late error is kept");
}

static void read_burst(uint32_t kind)
{
        switch (kind) {
        case SHORT:
                some(kind, SEVERAL, CUT, 0);
                break;
        case WHOLE_LENGTH:
                some(kind, SEVERAL, CUT, MSG_TRUNC);
                break;
        case READY:
                if (some(kind, 5, LONGEST, 0) == 5 && count_seen() < BURST / 2)
                        is_ready(true, 3 * AGAIN); /* if the rest was lost it is sent again */
                break;
        case PEEKED:
                peek(kind);
                break;
        case FORKED:
                share_with_child(kind);
                break;
        case THREADS:
                share_with_thread();
                break;
        case BAD:
                bad_buffer(kind);
                break;
        default:
                break;
        }
        some(kind, SEVERAL, LONGEST, 0);
}

static void set_time(int ms)
{
        struct timeval t = {ms / 1000, ms % 1000 * 1000};

        must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0, "SO_RCVTIMEO");
}

/* Nothing comes, and the time is over. */
static void time_passes(void)
{
        struct batch b;

        is_ready(false, 0);
        must(read_some(&b, buf, 3, LONGEST, 0) == -1 && errno == EAGAIN, "a time-out");
}

static void serve(int port)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

        must(bind(fd, (struct sockaddr *)&at, sizeof at) == 0, "bind");
        set_time(AGAIN / 4);
        printf("ready\n");
        fflush(stdout);
        for (uint32_t kind = 0; kind < KINDS; kind++) {
                memset(seen, 0, sizeof seen);
                while (count_seen() < BURST)
                        read_burst(kind);
                while (recv(fd, buf, LONGEST, MSG_DONTWAIT) >= 0)
                        ; /* what was sent twice */
                must(sendto(fd, &kind, sizeof kind, 0, (struct sockaddr *)&caller, sizeof caller) ==
                             sizeof kind,
                     "sendto");
        }
        sleep(2 * AGAIN / 1000); /* what is sent again meanwhile has come */
        while (recv(fd, buf, LONGEST, MSG_DONTWAIT) >= 0)
                ;
        time_passes();
        printf("done\n");
}

static void send_burst(uint32_t kind)
{
        static uint8_t out[BURST][LONGEST];
        struct mmsghdr m[BURST];
        struct iovec iov[BURST];

        for (uint32_t i = 0; i < BURST; i++) {
                make(out[i], kind, i);
                iov[i] = (struct iovec){out[i], length_of(kind, i)};
                m[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &iov[i], .msg_iovlen = 1}};
        }
        iov[HOLE].iov_base = mmap(NULL, LONGEST, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(iov[HOLE].iov_base != MAP_FAILED, "mmap");
        for (int done = 0, n; done < (int)HOLE; done += n) {
                n = sendmmsg(fd, m + done, BURST - (uint32_t)done, 0);
                must(n > 0 && done + n <= (int)HOLE, "sendmmsg up to bytes that are not there");
        }
        must(sendmmsg(fd, m + HOLE, BURST - HOLE, 0) == -1 && errno == EFAULT,
             "sendmmsg of bytes that are not there");
        munmap(iov[HOLE].iov_base, LONGEST);
        iov[HOLE].iov_base = out[HOLE];
        for (int done = HOLE, n; done < (int)BURST; done += n) {
                n = sendmmsg(fd, m + done, BURST - (uint32_t)done, 0);
                must(n > 0, "sendmmsg");
        }
}

static void call(const char *addr, int port)
{
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

        must(inet_pton(AF_INET, addr, &to.sin_addr) == 1 &&
                     connect(fd, (struct sockaddr *)&to, sizeof to) == 0,
             "connect");
        for (uint32_t kind = 0; kind < KINDS; kind++) {
                uint32_t answer = KINDS;
                do {
                        struct pollfd p = {fd, POLLIN, 0};
                        send_burst(kind);
                        if (poll(&p, 1, AGAIN) == 1)
                                must(recv(fd, &answer, sizeof answer, 0) == sizeof answer, "recv");
                } while (answer != kind);
        }
        printf("done\n");
}

int main(int argc, char **argv)
{
        fd = socket(AF_INET, SOCK_DGRAM, 0);
        buf = mmap(NULL, SEVERAL * (LONGEST + 1), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(fd >= 0 && buf != MAP_FAILED, "socket");
        if (argc == 3 && strcmp(argv[1], "serve") == 0)
                serve(atoi(argv[2]));
        else if (argc == 4 && strcmp(argv[1], "call") == 0)
                call(argv[2], atoi(argv[3]));
        else
                return 2;
        return 0;
}
