/*
 * Calls that are wrong, with the kernel as the oracle: the same list of calls on sockets of ours
 * and on the kernel's gives the same results and errors, and never the end of the program. What the
 * kernel has no word on stands below the list.
 */
#include "tests/sock/sides.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <time.h>
#include <unistd.h>

/* ---- the list ---- */

/* ioctl(2) has no fixed arguments. */
static int kernel_ioctl(int sock, unsigned long request, int *arg)
{
        return ioctl(sock, request, arg);
}

static int kernel_recvmmsg(int sock, struct mmsghdr *m, unsigned n, int flags,
                           const struct timespec *t)
{
        struct timespec left = t ? *t : (struct timespec){0};

        return recvmmsg(sock, m, n, flags, t ? &left : NULL);
}

static ssize_t kernel_readv(int sock, const struct iovec *iov, int n)
{
        return readv(sock, iov, n);
}

static ssize_t kernel_writev(int sock, const struct iovec *iov, int n)
{
        return writev(sock, iov, n);
}

static const struct api {
        const char *name;
        int (*socket)(int, int, int);
        int (*close)(int);
        int (*shutdown)(int, int);
        int (*bind)(int, const struct sockaddr *, socklen_t);
        int (*connect)(int, const struct sockaddr *, socklen_t);
        int (*listen)(int, int);
        int (*accept)(int, struct sockaddr *, socklen_t *);
        int (*accept4)(int, struct sockaddr *, socklen_t *, int);
        int (*getsockname)(int, struct sockaddr *, socklen_t *);
        int (*getpeername)(int, struct sockaddr *, socklen_t *);
        ssize_t (*send)(int, const void *, size_t, int);
        ssize_t (*recv)(int, void *, size_t, int);
        ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
        ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
        ssize_t (*sendmsg)(int, const struct msghdr *, int);
        ssize_t (*recvmsg)(int, struct msghdr *, int);
        ssize_t (*readv)(int, const struct iovec *, int);
        ssize_t (*writev)(int, const struct iovec *, int);
        int (*sendmmsg)(int, struct mmsghdr *, unsigned, int);
        int (*recvmmsg)(int, struct mmsghdr *, unsigned, int, const struct timespec *);
        ssize_t (*sendfile)(int, int, off_t *, size_t);
        int (*setsockopt)(int, int, int, const void *, socklen_t);
        int (*getsockopt)(int, int, int, void *, socklen_t *);
        int (*ioctl)(int, unsigned long, int *);
} apis[] = {
        {"ours",           unet_socket,   unet_close,      unet_shutdown,   unet_bind,
         unet_connect,     unet_listen,   unet_accept,     unet_accept4,    unet_getsockname,
         unet_getpeername, unet_send,     unet_recv,       unet_sendto,     unet_recvfrom,
         unet_sendmsg,     unet_recvmsg,  unet_readv,      unet_writev,     unet_sendmmsg,
         unet_recvmmsg,    unet_sendfile, unet_setsockopt, unet_getsockopt, unet_ioctl},
        {"the kernel's",  socket,   close,        shutdown,      bind,
         connect,         listen,   accept,       accept4,       getsockname,
         getpeername,     send,     recv,         sendto,        recvfrom,
         sendmsg,         recvmsg,  kernel_readv, kernel_writev, sendmmsg,
         kernel_recvmmsg, sendfile, setsockopt,   getsockopt,    kernel_ioctl},
};

#define ANSWERS 256

struct answers {
        int n;
        const char *call[ANSWERS];
        long long value[ANSWERS]; /* as returned, or -errno */
};

#define ASK(call_)                                             \
        do {                                                   \
                long long r_;                                  \
                errno = 0;                                     \
                r_ = (long long)(call_);                       \
                CHECK(out->n < ANSWERS);                       \
                out->call[out->n] = #call_;                    \
                out->value[out->n++] = r_ == -1 ? -errno : r_; \
        } while (0)

static void without_memory(const struct api *a, int s, const char *peer, struct answers *out)
{
        struct iovec empty = {NULL, 0}, one = {(void *)(uintptr_t)peer, 1};
        struct msghdr no_iov = {.msg_iovlen = 1};
        struct msghdr nothing = {.msg_iov = &empty, .msg_iovlen = 1},
                      many = {.msg_iov = &one, .msg_iovlen = IOV_MAX + 1};
        socklen_t len = sizeof(struct sockaddr_in);
        struct sockaddr_in sa;

        ASK(a->bind(s, NULL, len));
        ASK(a->connect(s, NULL, len));
        ASK(a->getsockname(s, NULL, &len));
        ASK(a->getsockname(s, (struct sockaddr *)&sa, NULL));
        ASK(a->getpeername(s, NULL, NULL));
        ASK(a->setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, NULL, sizeof(int)));
        ASK(a->setsockopt(s, SOL_SOCKET, SO_LINGER, NULL, 8));
        ASK(a->setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, NULL, 16));
        ASK(a->setsockopt(s, IPPROTO_IP, IP_TTL, NULL, 4));
        ASK(a->getsockopt(s, SOL_SOCKET, SO_TYPE, NULL, &len));
        ASK(a->getsockopt(s, SOL_SOCKET, SO_TYPE, &sa, NULL));
        ASK(a->ioctl(s, FIONBIO, NULL));
        ASK(a->ioctl(s, FIONREAD, NULL));
        ASK(a->sendmsg(s, NULL, MSG_DONTWAIT));
        ASK(a->recvmsg(s, NULL, MSG_DONTWAIT));
        ASK(a->sendmsg(s, &no_iov, MSG_DONTWAIT | MSG_NOSIGNAL));
        ASK(a->recvmsg(s, &no_iov, MSG_DONTWAIT));
        ASK(a->recvmsg(s, &nothing, MSG_DONTWAIT) >= -1);
        ASK(a->sendmsg(s, &many, MSG_DONTWAIT | MSG_NOSIGNAL));
        ASK(a->recvmsg(s, &many, MSG_DONTWAIT));
        ASK(a->readv(s, NULL, 1));
        ASK(a->writev(s, NULL, 1));
        ASK(a->readv(s, &one, -1));
        ASK(a->writev(s, &one, -1));
        ASK(a->writev(s, &one, IOV_MAX + 1));
        ASK(a->readv(s, &one, IOV_MAX + 1));
        ASK(a->sendmmsg(s, NULL, 1, MSG_DONTWAIT));
        ASK(a->recvmmsg(s, NULL, 1, MSG_DONTWAIT, NULL));
        ASK(a->sendmmsg(s, NULL, 0, MSG_DONTWAIT));
        ASK(a->recvmmsg(s, NULL, 0, MSG_DONTWAIT, NULL));
}

static void without_socket(const struct api *a, int s, struct answers *out)
{
        char b[8] = "";

        ASK(a->close(s));
        ASK(a->shutdown(s, SHUT_RDWR));
        ASK(a->bind(s, NULL, 0));
        ASK(a->connect(s, NULL, 0));
        ASK(a->listen(s, 1));
        ASK(a->accept(s, NULL, NULL));
        ASK(a->send(s, b, 1, 0));
        ASK(a->recv(s, b, 1, 0));
        ASK(a->sendmsg(s, NULL, 0));
        ASK(a->recvmsg(s, NULL, 0));
        ASK(a->sendfile(s, 0, NULL, 1));
        ASK(a->setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, NULL, 4));
        ASK(a->getsockopt(s, SOL_SOCKET, SO_KEEPALIVE, NULL, NULL));
        ASK(a->getsockname(s, NULL, NULL));
        ASK(a->ioctl(s, FIONREAD, NULL));
}

static void odd_values(const struct api *a, int tcp, int udp, struct answers *out)
{
        struct sockaddr_in nowhere = loopback(9);
        struct timeval long_wait = {.tv_usec = 1000000};
        socklen_t len = (socklen_t)-1;
        char b[8] = "";

        ASK(a->socket(-1, SOCK_STREAM, 0));
        ASK(a->socket(AF_INET, -1, 0));
        ASK(a->socket(AF_INET, SOCK_STREAM | 0x40000000, 0));
        ASK(a->socket(AF_INET, SOCK_STREAM, -1));
        ASK(a->socket(AF_INET, SOCK_STREAM, 254));
        ASK(a->shutdown(tcp, -1));
        ASK(a->shutdown(tcp, 3));
        ASK(a->bind(tcp, (struct sockaddr *)&nowhere, 0));
        ASK(a->bind(tcp, (struct sockaddr *)&nowhere, (socklen_t)-1));
        ASK(a->bind(tcp, (struct sockaddr *)&nowhere, 4096));
        ASK(a->connect(tcp, (struct sockaddr *)&nowhere, 0));
        ASK(a->connect(tcp, (struct sockaddr *)&nowhere, (socklen_t)-1));
        ASK(a->connect(tcp, (struct sockaddr *)&nowhere, 4096));
        ASK(a->sendto(udp, b, 1, 0, (struct sockaddr *)&nowhere, 1));
        ASK(a->sendto(udp, b, 1, 0, (struct sockaddr *)&nowhere, (socklen_t)-1));
        ASK(a->sendto(udp, b, 1, 0, NULL, 0));
        ASK(a->sendto(udp, b, 1, 0, NULL, sizeof nowhere));
        ASK(a->sendto(udp, b, 70000, 0, (struct sockaddr *)&nowhere, sizeof nowhere));
        ASK(a->getsockname(tcp, (struct sockaddr *)&nowhere, &len));
        len = (socklen_t)-1;
        ASK(a->getsockopt(tcp, SOL_SOCKET, SO_TYPE, b, &len));
        len = 0;
        ASK(a->getsockopt(tcp, SOL_SOCKET, SO_TYPE, b, &len));
        ASK(a->setsockopt(tcp, SOL_SOCKET, SO_KEEPALIVE, b, 0));
        ASK(a->setsockopt(tcp, SOL_SOCKET, SO_RCVTIMEO, &long_wait, sizeof long_wait));
        ASK(a->setsockopt(tcp, -1, 1, b, 4));
        ASK(a->setsockopt(tcp, SOL_SOCKET, 9999, b, 4));
        ASK(a->getsockopt(tcp, IPPROTO_TCP, 9999, b, &len));
        ASK(a->ioctl(tcp, 0x7777, (int *)(void *)b));
        ASK(a->accept4(tcp, NULL, NULL, -1));
        ASK(a->accept(udp, NULL, NULL));
        ASK(a->listen(udp, -1));
        ASK(a->recv(udp, b, 8, MSG_DONTWAIT));
        ASK(a->recv(udp, b, 8, MSG_OOB | MSG_DONTWAIT));
        ASK(a->send(udp, b, 1, MSG_OOB));
}

/* Where the kernel is busy, what was sent over its loopback may not have come when the call
 * has ended. */
static void arrive(const struct api *a, int sock, int bytes)
{
        int n;

        EVENTUALLY(a->ioctl(sock, FIONREAD, &n) == 0 && n == bytes);
}

/* What is said of a connection: `s` and `t` are its ends, nothing is on its way. */
static void on_a_connection(const struct api *a, int s, int t, struct answers *out)
{
        struct sockaddr_in sa = loopback(9);
        struct iovec parts[3] = {{(char[]){"ab"}, 2}, {NULL, 0}, {(char[]){"cd"}, 2}};
        struct msghdr m = {.msg_iov = parts, .msg_iovlen = 3};
        struct timespec bad = {.tv_nsec = -1};
        struct mmsghdr mm = {.msg_hdr = {.msg_iov = parts, .msg_iovlen = 1}};
        socklen_t len = 3;
        off_t off = -1;
        char b[16];

        ASK(a->connect(s, (struct sockaddr *)&sa, sizeof sa));
        ASK(a->listen(s, 5));
        ASK(a->bind(s, (struct sockaddr *)&sa, sizeof sa));
        ASK(a->accept(s, NULL, NULL));
        ASK(a->getpeername(s, (struct sockaddr *)&sa, &len));
        ASK(len);
        ASK(a->send(s, NULL, 0, 0));
        ASK(a->recv(t, b, 0, MSG_DONTWAIT));
        ASK(a->recv(t, NULL, 0, MSG_DONTWAIT));
        ASK(a->recv(t, b, 4, MSG_OOB));
        ASK(a->recvmmsg(t, &mm, 1, MSG_DONTWAIT, &bad));
        ASK(a->sendfile(s, -1, NULL, 1));
        ASK(a->sendfile(s, s, NULL, 0) <= 0);
        ASK(a->sendfile(s, 0, &off, 1) == -1);
        ASK(a->send(s, NULL, 5, 0));
        ASK(a->send(s, NULL, 70000, 0));
        ASK(a->sendmsg(s, &m, 0));
        arrive(a, t, 4);
        ASK(a->recv(t, b, sizeof b, MSG_WAITALL | MSG_DONTWAIT));
        ASK(a->send(s, b, 3, 0));
        arrive(a, t, 3);
        ASK(a->recv(t, b, 3, MSG_PEEK));
        ASK(a->recv(t, NULL, 3, MSG_TRUNC));
        ASK(a->shutdown(s, SHUT_WR));
        ASK(a->shutdown(s, SHUT_WR));
        ASK(a->send(s, b, 1, MSG_NOSIGNAL));
        ASK(a->recv(t, b, 1, 0));
        ASK(a->recv(t, b, 1, 0));
        ASK(a->shutdown(t, SHUT_RDWR));
        ASK(a->recv(s, b, 1, 0));
        ASK(a->close(t));
        ASK(a->close(t));
}

static void connection(const struct api *a, int v[2])
{
        struct sockaddr_in sa = loopback(0);
        socklen_t len = sizeof sa;
        int l = a->socket(AF_INET, SOCK_STREAM, 0);

        v[0] = a->socket(AF_INET, SOCK_STREAM, 0);
        CHECK(a->bind(l, (struct sockaddr *)&sa, sizeof sa) == 0 && a->listen(l, 1) == 0);
        CHECK(a->getsockname(l, (struct sockaddr *)&sa, &len) == 0);
        CHECK(a->connect(v[0], (struct sockaddr *)&sa, sizeof sa) == 0);
        v[1] = a->accept(l, NULL, NULL);
        CHECK(v[1] >= 0 && a->close(l) == 0);
}

/* Somebody sends before connect() has told its outcome: that there is no room to write any more
 * does not change it. */
static void connect_after_sending(const struct api *a, struct answers *out)
{
        struct sockaddr_in sa = loopback(0);
        socklen_t len = sizeof sa;
        int l = a->socket(AF_INET, SOCK_STREAM, 0),
            s = a->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        bool full = false, sent = false;
        char b[16384] = "";

        CHECK(a->bind(l, (struct sockaddr *)&sa, sizeof sa) == 0 && a->listen(l, 1) == 0);
        CHECK(a->getsockname(l, (struct sockaddr *)&sa, &len) == 0);
        CHECK_ERR(a->connect(s, (struct sockaddr *)&sa, sizeof sa), EINPROGRESS);
        while (!full) {
                ssize_t n = a->send(s, b, sizeof b, 0);

                CHECK(n > 0 || errno == EAGAIN);
                full = sent && n < 0;
                sent = sent || n > 0;
        }
        ASK(a->connect(s, (struct sockaddr *)&sa, sizeof sa));
        ASK(a->connect(s, (struct sockaddr *)&sa, sizeof sa));
        CHECK(a->close(s) == 0 && a->close(l) == 0);
}

static void ask_all(const struct api *a, struct answers *out)
{
        int tcp = a->socket(AF_INET, SOCK_STREAM, 0), udp = a->socket(AF_INET, SOCK_DGRAM, 0), v[2];

        without_socket(a, -1, out);
        without_socket(a, INT_MAX, out);
        without_socket(a, INT_MIN, out);
        without_memory(a, tcp, "x", out);
        without_memory(a, udp, "x", out);
        odd_values(a, a->socket(AF_INET, SOCK_STREAM, 0), udp, out);
        connection(a, v);
        on_a_connection(a, v[0], v[1], out);
        connect_after_sending(a, out);
}

static void same(struct side *s)
{
        static struct answers got[2];
        int bad = 0;

        for (int i = 0; i < 2; i++)
                ask_all(&apis[i], &got[i]);
        for (int i = 0; i < got[0].n; i++) {
                if (got[0].value[i] == got[1].value[i])
                        continue;
                fprintf(stderr, "%d %s: ours %lld (%s), the kernel's %lld (%s)\n", i,
                        got[0].call[i], got[0].value[i], strerror((int)-got[0].value[i]),
                        got[1].value[i], strerror((int)-got[1].value[i]));
                bad++;
        }
        CHECK(bad == 0);
}

static void wrong_calls_are_answered_as_by_the_kernel(void **state)
{
        assert_int_equal(play_alone(same, 0), 0);
}

/* ---- what the kernel has not ---- */

static void own(struct side *s)
{
        struct unet_pollfd p = {.sock = -1, .fd = -1};
        struct timespec far = {.tv_sec = INT64_MAX, .tv_nsec = 999999999}, bad = {.tv_nsec = -1};
        struct unet_pollset *set = unet_pollset_create();
        struct unet_feedback f;
        struct unet_event ev;
        int t = unet_socket(AF_INET, SOCK_STREAM, 0);
        uint32_t a, b;

        CHECK(set != NULL);
        CHECK_ERR(unet_poll(NULL, 1, 0), EFAULT);
        CHECK(unet_poll(NULL, 0, 0) == 0 && unet_poll(&p, 1, 0) == 0);
        CHECK_ERR(unet_poll(&p, UINT_MAX, 0), EINVAL);
        CHECK_ERR(unet_ppoll(&p, 1, &bad, NULL), EINVAL);
        p.sock = 999;
        CHECK(unet_ppoll(&p, 1, &far, NULL) == 1 && p.revents == POLLNVAL);
        CHECK_ERR(unet_pollset_add(NULL, t, POLLIN, 0), EINVAL);
        CHECK_ERR(unet_pollset_mod(NULL, t, POLLIN, 0), EINVAL);
        CHECK_ERR(unet_pollset_del(NULL, t), EINVAL);
        CHECK_ERR(unet_pollset_add_fd(NULL, 0, POLLIN, 0), EINVAL);
        CHECK_ERR(unet_pollset_mod_fd(NULL, 0, POLLIN, 0), EINVAL);
        CHECK_ERR(unet_pollset_del_fd(NULL, 0), EINVAL);
        CHECK_ERR(unet_pollset_wait(NULL, &ev, 1, 0), EINVAL);
        CHECK_ERR(unet_pollset_wait(set, NULL, 1, 0), EFAULT);
        CHECK_ERR(unet_pollset_wait(set, &ev, 0, 0), EINVAL);
        CHECK_ERR(unet_pollset_wait(set, &ev, INT_MIN, 0), EINVAL);
        CHECK(unet_pollset_wait(set, &ev, INT_MAX, 0) == 0);
        CHECK_ERR(unet_pollset_add(set, 999, POLLIN, 0), EBADF);
        CHECK_ERR(unet_pollset_add_fd(set, -1, POLLIN, 0), EBADF);
        CHECK(unet_pollset_add(set, t, 0, 0) == 0);
        CHECK_ERR(unet_pollset_add(set, t, 0, 0), EEXIST);
        unet_pollset_destroy(NULL);
        unet_pollset_destroy(set);
        CHECK_ERR(unet_feedback(t, NULL), EFAULT);
        CHECK_ERR(unet_feedback(t, &f), ENOTCONN);
        CHECK_ERR(unet_get_buffers(t, NULL, &b), EFAULT);
        CHECK_ERR(unet_get_buffers(t, &a, NULL), EFAULT);
        CHECK(unet_set_buffers(t, UINT32_MAX, UINT32_MAX) == 0 || errno == EINVAL);
        CHECK(strcmp(unet_limit_name((enum unet_limit) - 1), "unknown") == 0);
        CHECK_ERR(unet_get_nonblock(-1), EBADF);
        CHECK_ERR(unet_set_nonblock(-1, 1), EBADF);
}

static void calls_of_our_own_are_as_careful(void **state)
{
        assert_int_equal(play_alone(own, 0), 0);
}

/* More than the kernel moves in one call, and more than 32 bits hold: what fits is taken, and the
 * rest is another call's. */
static void huge(struct side *s)
{
        size_t size = (size_t)5 << 30;
        char *zeros = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                           0),
             b[4096];
        struct iovec iov[2] = {{zeros, size}, {zeros, SIZE_MAX - 4096}};
        int v[2];
        ssize_t n;

        CHECK(zeros != MAP_FAILED);
        connection(&apis[0], v);
        CHECK((n = unet_send(v[0], zeros, size, MSG_DONTWAIT)) > 0 && n < INT_MAX);
        for (ssize_t left = n; left > 0; left -= n) {
                n = unet_recv(v[1], b, (size_t)left < sizeof b ? (size_t)left : sizeof b,
                              MSG_WAITALL);
                CHECK(n > 0);
        }
        CHECK_ERR(unet_writev(v[0], iov, 2), EINVAL);
        CHECK_ERR(unet_readv(v[1], iov, 2), EINVAL);
        CHECK((n = unet_send(v[0], zeros, size, MSG_DONTWAIT)) > 0);
}

static void sizes_beyond_32_bits(void **state)
{
        assert_int_equal(play_alone(huge, 0), 0);
}

/* ---- threads ---- */

struct crowd {
        _Atomic int sock, stop;
};

/* Whatever happens to the number meanwhile, a call on it is a result or an error. */
static void *use(void *arg)
{
        struct crowd *c = arg;
        struct unet_pollfd p = {.fd = -1, .events = POLLIN | POLLOUT};
        struct sockaddr_storage ss;
        char b[600] = "";

        while (!c->stop) {
                socklen_t len = sizeof ss;
                int s = c->sock;

                unet_send(s, b, sizeof b, MSG_DONTWAIT);
                unet_recv(s, b, sizeof b, MSG_DONTWAIT);
                p.sock = s;
                unet_poll(&p, 1, 0);
                unet_getpeername(s, (struct sockaddr *)&ss, &len);
        }
        return NULL;
}

static void closing(struct side *s)
{
        struct crowd c = {0};
        pthread_t t[3];

        for (int i = 0; i < 3; i++)
                CHECK(pthread_create(&t[i], NULL, use, &c) == 0);
        for (int i = 0; i < 100; i++) {
                int v[2];

                connection(&apis[0], v);
                c.sock = v[i & 1];
                sched_yield();
                CHECK(unet_close(v[0]) == 0 && unet_close(v[1]) == 0);
        }
        c.stop = 1;
        for (int i = 0; i < 3; i++)
                pthread_join(t[i], NULL);
}

static void closing_while_other_threads_use_it(void **state)
{
        assert_int_equal(play_alone(closing, 0), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(wrong_calls_are_answered_as_by_the_kernel),
                cmocka_unit_test(calls_of_our_own_are_as_careful),
                cmocka_unit_test(sizes_beyond_32_bits),
                cmocka_unit_test(closing_while_other_threads_use_it),
        };

        return run_sides(tests);
}
