/* Bytes out: send, sendto, sendmsg, sendmmsg, write, writev. */
#include "sock/shim/addrs.h"
#include "sock/shim/cancel.h"
#include "sock/shim/decide.h"
#include "sock/shim/epoll.h"
#include "sock/shim/io.h"
#include "sock/shim/transfer.h"
#include "sock/shim/wait.h"
#include "base/rights.h"
#include "sock/usock_ifaces.h"
#include "sock/usock_dgram.h"
#include "sock/usock_stamp.h"

/* As Linux: that the connection has ended is found before a bad pointer is. */
static ssize_t fault_or_end(struct file *f, int flags)
{
        ssize_t r = usock_send(f->us, NULL, 0, flags);

        return r < 0 && r != -EAGAIN ? r : -EFAULT;
}

/* All of it, unless the socket may not wait. */
ssize_t file_send(struct file *f, const void *p, size_t n, int flags)
{
        size_t done = 0;
        struct until u = until_timeo(f->sndtimeo);

        assert(f->us != NULL);
        for (;;) {
                ssize_t r = usock_send(f->us, (const char *)p + done, n - done, flags);

                if (likely(r >= 0)) {
                        done += (size_t)r;
                        if (likely(done == n))
                                return (ssize_t)done;
                        if (r > 0)
                                continue;
                        r = -EAGAIN;
                }
                if (unlikely(r == -EFAULT) && done == 0)
                        r = fault_or_end(f, flags);
                if (r != -EAGAIN || !io_may_wait(f, flags))
                        return file_moved(f, done, r);
                r = file_wait(f, POLLOUT, &u);
                if (r < 0)
                        return done ? (ssize_t)done : r;
        }
}

static size_t bytes_of(const struct msghdr *m)
{
        size_t n = 0;

        for (size_t i = 0; i < m->msg_iovlen; i++)
                n += m->msg_iov[i].iov_len;
        return n;
}

/* The rest of a message of several buffers, `done` bytes in; each buffer with more to come, but the
 * last that is not empty. */
static ssize_t send_rest(struct file *f, const struct msghdr *m, size_t done, int flags)
{
        size_t skip = done, total = bytes_of(m);

        for (size_t i = 0; i < m->msg_iovlen; i++) {
                const struct iovec *v = &m->msg_iov[i];
                ssize_t r;
                bool last;

                if (skip >= v->iov_len) {
                        skip -= v->iov_len;
                        continue;
                }
                last = done + v->iov_len - skip == total;
                r = file_send(f, (const char *)v->iov_base + skip, v->iov_len - skip,
                              flags | (last ? 0 : MSG_MORE));
                if (r < 0)
                        return file_moved(f, done, r);
                done += (size_t)r;
                if ((size_t)r < v->iov_len - skip)
                        break;
                skip = 0;
        }
        return (ssize_t)done;
}

static ssize_t tcp_sendmsg(struct file *f, const struct msghdr *m, int flags)
{
        struct msghdr plain = {.msg_iov = m->msg_iov, .msg_iovlen = m->msg_iovlen};
        ssize_t r = usock_sendmsg(f->us, &plain, flags);

        assert(f->us != NULL);
        if (r == -EAGAIN)
                r = 0;
        else if (r < 0 || (size_t)r == bytes_of(m))
                return r;
        if (!io_may_wait(f, flags))
                return r ? r : -EAGAIN;
        return send_rest(f, m, (size_t)r, flags);
}

/* The kernel knows no way to it. A group or a broadcast may have one by an interface of unetd's:
 * once more? */
static bool way_by_ours(struct file *f, const struct msghdr *m)
{
        struct sockaddr_storage from;
        socklen_t from_len = sizeof from;
        const char *why;

        if (!m->msg_name || !usock_way_out(f->us, m->msg_name, m->msg_namelen, true, f->family,
                                           (struct sockaddr *)&from, &from_len, &why))
                return false;
        return usock_group_fallback(f->us);
}

static ssize_t udp_sendmsg(struct file *f, const struct msghdr *m, int flags);

/* By the kernel, and if it has no way by ours after all. */
static ssize_t kernel_sendmsg(struct file *f, const struct msghdr *m, int flags)
{
        ssize_t r = sys3(SYS_sendmsg, f->kfd, m, flags | MSG_NOSIGNAL);

        if (unlikely(r < 0))
                usock_udp_kernel_uncorked(f->us);
        return unlikely(r == -ENETUNREACH) && way_by_ours(f, m) ? udp_sendmsg(f, m, flags) : r;
}

/* A name that speaks IPv4, and that a socket of this family takes. */
static bool name_of_ours(const struct file *f, const struct sockaddr *sa, socklen_t len)
{
        return sockaddr_v4(sa, len) && (f->family == AF_INET6 || sa->sa_family == AF_INET);
}

/* As Linux: an error that is to be told is found before a bad pointer is. */
static ssize_t fault_or_error(const struct file *f)
{
        ssize_t r = file_take_error(f);

        return r < 0 ? r : -EFAULT;
}

static ssize_t udp_sendmsg(struct file *f, const struct msghdr *m, int flags)
{
        bool fabric = !m->msg_name || name_of_ours(f, m->msg_name, m->msg_namelen);
        struct until u = until_timeo(f->sndtimeo);
        ssize_t r = -ENOENT;

        assert(f->us != NULL);
        while (fabric) {
                r = usock_sendmsg(f->us, m, flags);
                if (r != -EAGAIN || !io_may_wait(f, flags))
                        break;
                r = file_wait(f, POLLOUT, &u);
                if (r < 0)
                        return r;
        }
        if (unlikely(r == -EFAULT))
                return fault_or_error(f);
        if (r != -ENOENT && r != -EDESTADDRREQ)
                return r;
        if (m->msg_name && usock_is_iface_addr(m->msg_name, m->msg_namelen))
                /* Nobody has the port, and nobody says so, as in Linux; the kernel has no way. */
                return (ssize_t)bytes_of(m);
        return kernel_sendmsg(f, m, flags);
}

/* The result of a whole call on a stream, which `asked` for times of sending by itself. */
static inline ssize_t stream_sent(struct file *f, ssize_t r, int flags, uint32_t asked)
{
        if (unlikely(f->connecting) && (r > 0 || r == -EINPROGRESS) && io_may_wait(f, flags))
                r = connect_sent(f, r);
        if (unlikely(flags & MSG_ZEROCOPY) && r > 0)
                usock_zerocopy_sent(f->us);
        if (unlikely(asked | READ_ONCE(f->stamped)) && r > 0)
                usock_stamp_sent(f->us, asked);
        return r;
}

static ssize_t stream_sendmsg(struct file *f, const struct msghdr *m, int flags)
{
        uint32_t asked = 0;
        int err = likely(m->msg_controllen == 0) ? 0 : usock_stamps_asked(f->us, m, &asked);

        if (unlikely(err < 0))
                return err;
        return stream_sent(f, tcp_sendmsg(f, m, flags), flags, asked);
}

static ssize_t file_sendmsg(struct file *f, const struct msghdr *m, int flags)
{
        if (f->mode == MODE_TCP)
                return stream_sendmsg(f, m, flags);
        return f->mode == MODE_UDP ? udp_sendmsg(f, m, flags) : -EPIPE;
}

static ssize_t file_sendto(struct file *f, const void *p, size_t n, int flags,
                           const struct sockaddr *sa, socklen_t len)
{
        struct iovec iov = {(void *)p, n};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

        if (f->mode == MODE_TCP)
                return stream_sent(f, file_send(f, p, n, flags), flags, 0);
        if (sa && len) {
                m.msg_name = (void *)sa;
                m.msg_namelen = len;
        }
        return file_sendmsg(f, &m, flags);
}

ssize_t file_send_datagram(struct file *f, const void *p, size_t n, int flags)
{
        assert(f->us != NULL);
        return file_sendto(f, p, n, flags, NULL, 0);
}

static ssize_t send_by_kernel(struct file *f, const void *p, size_t n, int flags)
{
        struct iovec iov = {(void *)p, n};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

        return kernel_sendmsg(f, &m, flags);
}

/* The whole of write() and send(). */
static inline ssize_t send_buf(struct file *f, const void *p, size_t n, int flags)
{
        ssize_t r;

        if (likely(f->mode == MODE_TCP))
                return stream_sent(f, file_send(f, p, n, flags), flags, 0);
        if (f->mode == MODE_UDP && f->connected) {
                r = usock_send(f->us, p, n, flags);
                if (likely(r != -EAGAIN && r != -ENOENT && r != -EDESTADDRREQ))
                        return unlikely(r == -EFAULT) ? fault_or_error(f) : r;
                if (r ==
                    -ENOENT) /* not asked twice: that would be the end of what is begun there */
                        return send_by_kernel(f, p, n, flags);
        }
        return file_sendto(f, p, n, flags, NULL, 0);
}

ssize_t h_send(int fd, const void *p, size_t n, int flags)
{
        ssize_t r;

        cancellation_point();
        do {
                struct file *f = file_enter(fd, MODE_TCP);

                if (!f) {
                        kernel_touched();
                        r = REAL(send)(fd, p, n, flags);
                        if (netlink_may_ask(r))
                                netlink_asked(fd, &(struct iovec){(void *)p, n}, 1, r);
                        return r;
                }
                r = send_buf(f, p, n, flags);
                file_leave(f);
        } while (io_again(&r, flags));
        return r;
}
HOOK_ALSO(send, __send);

ssize_t h_write(int fd, const void *p, size_t n)
{
        ssize_t r;

        cancellation_point();
        do {
                struct file *f = file_enter(fd, MODE_TCP);

                if (!f) {
                        kernel_touched();
                        return REAL(write)(fd, p, n);
                }
                r = send_buf(f, p, n, 0);
                file_leave(f);
        } while (io_again(&r, 0));
        return r;
}
HOOK_ALSO(write, __write);

/* False: the kernel's call is the right one. */
static bool writev_ours(int fd, const struct iovec *iov, int n, int flags, ssize_t *r)
{
        struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};

        cancellation_point();
        do {
                struct file *f = file_peek(fd) && io_vector_readable(iov, (size_t)n)
                                         ? file_enter(fd, MODE_TCP)
                                         : NULL;

                if (!f) {
                        kernel_touched();
                        return false;
                }
                *r = io_vector_is_empty(iov, n) ? 0 : file_sendmsg(f, &m, flags);
                file_leave(f);
        } while (io_again(r, flags));
        return true;
}

ssize_t h_writev(int fd, const struct iovec *iov, int n)
{
        ssize_t r;

        return writev_ours(fd, iov, n, 0, &r) ? r : REAL(writev)(fd, iov, n);
}

/* A socket has no position but the one it is at (-1). */
ssize_t h_pwritev2(int fd, const struct iovec *iov, int n, off_t at, int flags)
{
        ssize_t r;

        if (at == -1 && !(flags & ~IO_RWF) && writev_ours(fd, iov, n, io_rwf_flags(flags), &r))
                return r;
        return REAL(pwritev2)(fd, iov, n, at, flags);
}
HOOK_ALSO(pwritev2, pwritev64v2);

static inline bool does_not_connect(int fd, const struct sockaddr *sa, socklen_t len, int flags)
{
        return unlikely(flags & MSG_FASTOPEN) && sa &&
               connect_to_send(fd, sa, len, flags & MSG_DONTWAIT) < 0;
}

/* An undecided UDP socket decides when it is given an address to send to; a TCP socket that would
 * connect by sending, and is undecided still, is the kernel's. */
static struct file *enter_sending(int fd, const struct sockaddr *sa, socklen_t len, int flags)
{
        struct file *f = file_peek(fd) && (!sa || sockaddr_readable(sa, len))
                                 ? file_enter(fd, MODE_NEW)
                                 : NULL;

        if (!f || (f->mode >= MODE_TCP && likely(f->bound || f->mode != MODE_UDP)))
                return f;
        if (flags & MSG_FASTOPEN)
                tcp_kernel_connects(f);
        else
                udp_first_datagram(f, sa, len);
        if (f->mode >= MODE_TCP)
                return f;
        file_leave(f);
        return NULL;
}

ssize_t h_sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *sa,
                 socklen_t len)
{
        ssize_t r;

        if (does_not_connect(fd, sa, len, flags))
                return -1;
        cancellation_point();
        do {
                struct file *f = enter_sending(fd, sa, len, flags);

                if (!f) {
                        kernel_touched();
                        r = REAL(sendto)(fd, p, n, flags, sa, len);
                        if (netlink_may_ask(r))
                                netlink_asked(fd, &(struct iovec){(void *)p, n}, 1, r);
                        return r;
                }
                r = file_sendto(f, p, n, flags, sa, len);
                file_leave(f);
        } while (io_again(&r, flags));
        return r;
}

static void leaves(int fd)
{
        struct file *f = file_enter(fd, MODE_EPOLL);

        if (f == NULL)
                return;
        if (f->mode == MODE_EPOLL) {
                epoll_leaves(f);
                file_leave(f);
                return;
        }
        pthread_mutex_lock(&shim.lock);
        file_share(f);
        pthread_mutex_unlock(&shim.lock);
        if (f->mode >= MODE_NEW) {
                file_known_outside(f);
                usock_fly(f->us);
        }
        file_leave(f);
}

/* Numbers that leave with a message must be real sockets, known by their cookie to whoever
 * receives them. */
static void look_at_leaving(struct msghdr *m)
{
        if (!shim.size || usock_tls.inside || !m->msg_controllen ||
            !user_read_range(m->msg_control, m->msg_controllen))
                return;
        rights_each(m, leaves);
}

ssize_t h_sendmsg(int fd, const struct msghdr *m, int flags)
{
        struct msghdr own;
        ssize_t r;

        cancellation_point();
        do {
                bool good = shim_started() && io_take_header(&own, m);
                struct file *f;

                if (good && does_not_connect(fd, own.msg_name, own.msg_namelen, flags))
                        return -1;
                f = good ? enter_sending(fd, own.msg_name, own.msg_namelen, flags) : NULL;
                if (!f) {
                        if (good)
                                look_at_leaving(&own);
                        kernel_touched();
                        r = REAL(sendmsg)(fd, m, flags);
                        if (netlink_may_ask(r) &&
                            io_take_header(&own, m)) /* the kernel could, so it can be read */
                                netlink_asked(fd, own.msg_iov, own.msg_iovlen, r);
                        return r;
                }
                r = file_sendmsg(f, &own, flags);
                file_leave(f);
        } while (io_again(&r, flags));
        return r;
}

/* 1, or an error. */
static ssize_t send_one_of(struct file *f, struct mmsghdr *v, int flags)
{
        struct msghdr own;
        bool good = io_take_header(&own, &v->msg_hdr) &&
                    (!own.msg_name || sockaddr_readable(own.msg_name, own.msg_namelen));
        ssize_t r = good ? file_sendmsg(f, &own, flags) : -EFAULT;

        if (r >= 0 && !user_put32(&v->msg_len, (uint32_t)r))
                r = -EFAULT;
        return r < 0 ? r : 1;
}

static ssize_t file_sendmmsg(struct file *f, struct mmsghdr *v, unsigned n, int flags)
{
        unsigned i = 0;
        ssize_t r = 0;

        assert(f->us != NULL);
        usock_batch_begin();
        while (i < n) {
                r = f->mode == MODE_UDP ? usock_send_straight(f->us, &v[i], n - i, flags) : 0;
                if (r == 0)
                        r = send_one_of(f, &v[i], i + 1 < n ? flags | USOCK_BATCH : flags);
                if (r < 0)
                        break;
                i += (unsigned)r;
        }
        usock_batch_end(f->us, r < 0);
        return i ? (ssize_t)i : r;
}

int h_sendmmsg(int fd, struct mmsghdr *v, unsigned n, int flags)
{
        struct msghdr first;
        ssize_t r;

        cancellation_point();
        do {
                bool good = n && shim_started() && io_take_header(&first, &v->msg_hdr);
                struct file *f;

                if (good && does_not_connect(fd, first.msg_name, first.msg_namelen, flags))
                        return -1;
                f = good ? enter_sending(fd, first.msg_name, first.msg_namelen, flags) : NULL;
                if (!f) {
                        for (unsigned i = 0; shim.size && i < MIN(n, IOV_MAX) &&
                                             io_take_header(&first, &v[i].msg_hdr);
                             i++)
                                look_at_leaving(&first);
                        return REAL(sendmmsg)(fd, v, n, flags);
                }
                r = file_sendmmsg(f, v, n, flags);
                file_leave(f);
        } while (io_again(&r, flags));
        return (int)r;
}
