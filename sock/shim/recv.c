/* Bytes in: recv, recvfrom, recvmsg, recvmmsg, read, readv. */
#include "sock/shim/addrs.h"
#include "sock/shim/cancel.h"
#include "sock/shim/decide.h"
#include "sock/shim/epoll.h"
#include "sock/shim/io.h"
#include "sock/shim/relay.h"
#include "sock/shim/transfer.h"
#include "sock/shim/wait.h"
#include "base/rights.h"
#include "sock/usock_option.h"

#include <sys/ioctl.h>

/* The kernel's side of a UDP socket goes by these; MSG_ZEROCOPY and the like are its own. */
static ssize_t kernel_recvmsg(struct file *f, struct msghdr *m, int flags)
{
        return sys3(SYS_recvmsg, f->kfd, m, flags | MSG_DONTWAIT);
}

/* Where nothing tells that there is more than there was. */
static int pause_a_little(struct until *u)
{
        struct timespec pause = {0, 200 * NS_PER_US};

        sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
        if (usock_tls.pending)
                return -ERR_RESTART;
        return until_over(u) ? -EAGAIN : 0;
}

/* MSG_PEEK with MSG_WAITALL: the bytes are looked at until they are all there. And a peek that goes
 * on (SO_PEEK_OFF). */
static int wait_for_more(struct file *f, int flags, struct until *u)
{
        int r = file_wait(f, USOCK_POLL_SOME, u);

        return r == 0 && (flags & MSG_PEEK) ? pause_a_little(u) : r;
}

static bool stream_ended(struct file *f)
{
        return usock_poll(f->us) & (POLLRDHUP | POLLHUP | POLLERR);
}

/* Nothing there, and the call may not wait: what arrived meanwhile is let in first,
 * acknowledgements too. */
static ssize_t recv_now(struct file *f, void *p, size_t n, int flags)
{
        ssize_t r = usock_recv(f->us, p, n, flags);

        if (r != -EAGAIN || io_may_wait(f, flags) || !usock_progress())
                return r;
        return usock_recv(f->us, p, n, flags);
}

ssize_t file_moved(struct file *f, size_t done, ssize_t r)
{
        assert(done <= SSIZE_MAX);
        if (done == 0)
                return r;
        if (r < 0)
                usock_keep_error(f->us, r);
        return (ssize_t)done;
}

static ssize_t recv_until(struct file *f, void *p, size_t n, int flags, struct until *u)
{
        ssize_t got = -EAGAIN;
        size_t done = 0, least;

        if (unlikely(flags & MSG_PEEK && usock_peeks_on(f->us)))
                flags &= ~MSG_WAITALL;
        least = flags & MSG_WAITALL ? n : MIN(n, usock_rcvlowat(f->us));
        if (unlikely(flags & MSG_OOB))
                least = MIN(n, 1); /* there is one */
        for (;;) {
                size_t from = flags & MSG_PEEK ? 0 : done;
                struct iovec to = {(char *)p + from, n - from};
                ssize_t r = got;

                if (got == -EAGAIN)
                        r = recv_now(f, to.iov_base, to.iov_len, flags & ~MSG_WAITALL);
                got = -EAGAIN;
                if (likely(r > 0)) {
                        if (flags & MSG_PEEK)
                                done = (size_t)r;
                        else
                                done += (size_t)r;
                        if (done >= least || !io_may_wait(f, flags))
                                return (ssize_t)done;
                        if ((flags & MSG_PEEK) && stream_ended(f))
                                return (ssize_t)done;
                } else if (r != -EAGAIN || !io_may_wait(f, flags)) {
                        return file_moved(f, done, r);
                }
                if (flags & (MSG_PEEK | MSG_OOB))
                        r = wait_for_more(f, r > 0 || usock_peeks_on(f->us) ? flags : 0, u);
                else if (r < 0)
                        r = file_wait_recv(f, u, &to, flags & ~MSG_WAITALL, &got);
                if (r < 0)
                        return done ? (ssize_t)done : r;
        }
}

ssize_t file_recv(struct file *f, void *p, size_t n, int flags)
{
        struct until u = until_timeo(f->rcvtimeo);

        assert(f->us != NULL);
        return recv_until(f, p, n, flags, &u);
}

/* A datagram from either side; ours first, unless it is the kernel's turn. */
static ssize_t udp_once(struct file *f, struct msghdr *m, int flags, bool kernel)
{
        ssize_t r;

        if (flags & MSG_ERRQUEUE)
                kernel = false;
        if (kernel) {
                r = kernel_recvmsg(f, m, flags);
                if (r != -EAGAIN)
                        return r;
        }
        r = usock_recvmsg(f->us, m, flags);
        return r == -EAGAIN ? kernel_recvmsg(f, m, flags) : r;
}

static ssize_t udp_recvmsg(struct file *f, struct msghdr *m, int flags, bool kernel)
{
        struct until u = until_timeo(f->rcvtimeo);

        assert(f->us != NULL);
        for (;; kernel = kernel_turn(&f->pace)) {
                ssize_t r = udp_once(f, m, flags, kernel);

                if (r != -EAGAIN || !io_may_wait(f, flags) || (flags & MSG_ERRQUEUE))
                        return r;
                r = file_wait(f, POLLIN, &u);
                if (r == 0 && unlikely(flags & MSG_PEEK && usock_peeks_on(f->us)))
                        r = pause_a_little(&u);
                if (r < 0)
                        return r;
        }
}

/* Whether all that is asked for is there, so that one call reads it, and says what it has to
 * say beside. */
static bool all_there(const struct file *f, const struct msghdr *m)
{
        size_t want = 0;
        int there = 0;

        for (size_t i = 0; i < m->msg_iovlen; i++)
                want += m->msg_iov[i].iov_len;
        return usock_ioctl(f->us, FIONREAD, &there) == 0 && want <= (size_t)there;
}

/* Several buffers, MSG_WAITALL: only the first round can be one call. SO_RCVTIMEO is the time of
 * all of them. */
static ssize_t tcp_recv_all(struct file *f, const struct msghdr *m, int flags, struct until *u)
{
        ssize_t done = 0;

        for (size_t i = 0; i < m->msg_iovlen; i++) {
                ssize_t r;

                if (m->msg_iov[i].iov_len == 0)
                        continue; /* recv() of nothing waits */
                r = recv_until(f, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len, flags, u);
                if (r < 0)
                        return file_moved(f, (size_t)done, r);
                done += r;
                if ((size_t)r < m->msg_iov[i].iov_len)
                        break;
        }
        return done;
}

static ssize_t recvmsg_now(struct file *f, struct msghdr *m, int flags)
{
        ssize_t r = usock_recvmsg(f->us, m, flags);

        if (r != -EAGAIN || io_may_wait(f, flags) || !usock_progress())
                return r;
        return usock_recvmsg(f->us, m, flags);
}

static ssize_t tcp_recvmsg(struct file *f, struct msghdr *m, int flags)
{
        struct until u = until_timeo(f->rcvtimeo);

        assert(f->us != NULL);
        if (flags & MSG_ERRQUEUE)
                return usock_recvmsg(f->us, m, flags);
        if ((flags & MSG_WAITALL) && io_may_wait(f, flags) && !(flags & (MSG_PEEK | MSG_OOB)) &&
            !all_there(f, m)) {
                m->msg_namelen = 0;
                m->msg_controllen = 0;
                m->msg_flags = 0;
                return tcp_recv_all(f, m, flags, &u);
        }
        for (;;) {
                ssize_t r = recvmsg_now(f, m, flags & ~MSG_WAITALL);

                if (r != -EAGAIN || !io_may_wait(f, flags))
                        return r;
                r = wait_for_more(f, usock_peeks_on(f->us) ? flags : 0, &u);
                if (r < 0)
                        return r;
        }
}

static ssize_t file_recvmsg(struct file *f, struct msghdr *m, int flags)
{
        if (f->mode == MODE_TCP)
                return tcp_recvmsg(f, m, flags);
        if (f->mode == MODE_UDP)
                return udp_recvmsg(f, m, flags, kernel_turn(&f->pace));
        return flags & MSG_ERRQUEUE ? -EAGAIN : -ENOTCONN;
}

/* One buffer, perhaps with a name, whose place is looked at when there is something for it, as in
 * Linux. The buffers of names and control data belong to the kernel's side as well. */
static ssize_t file_recvfrom(struct file *f, void *p, size_t n, int flags, struct sockaddr *sa,
                             socklen_t *len)
{
        struct iovec iov = {p, n};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        bool named = sa && user_read(len) && (int)*len >= 0;
        ssize_t r;

        if (f->mode == MODE_TCP && !(flags & MSG_ERRQUEUE)) {
                r = file_recv(f, p, n, flags); /* a stream names nobody */
        } else {
                if (named) {
                        m.msg_name = sa;
                        m.msg_namelen = *len;
                }
                r = file_recvmsg(f, &m, flags);
        }
        if (r < 0 || !sa)
                return r;
        if (!named)
                return user_read(len) ? -EINVAL : -EFAULT;
        return user_put32(len, m.msg_namelen) ? r : -EFAULT;
}

/* A datagram for one buffer; most are there already, on our side. */
static inline ssize_t udp_recv(struct file *f, void *p, size_t n, int flags)
{
        struct iovec iov = {p, n};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        bool kernel = kernel_turn(&f->pace);
        ssize_t r = unlikely(kernel || (flags & MSG_ERRQUEUE)) ? -EAGAIN
                                                               : usock_recv(f->us, p, n, flags);

        return likely(r != -EAGAIN) ? r : udp_recvmsg(f, &m, flags, kernel);
}

ssize_t file_recv_datagram(struct file *f, void *p, size_t n, int flags)
{
        assert(f->us != NULL);
        return udp_recv(f, p, n, flags);
}

/* The whole of read() and recv(): the first lines are the fast path. */
static inline ssize_t recv_buf(struct file *f, void *p, size_t n, int flags)
{
        ssize_t r;

        if (likely(f->mode == MODE_TCP && !(flags & (MSG_WAITALL | MSG_ERRQUEUE)) &&
                   !usock_waits_for_more(f->us))) {
                r = usock_recv(f->us, p, n, flags);
                if (likely(r != -EAGAIN) || (!io_may_wait(f, flags) && !usock_progress()))
                        return r;
        } else if (f->mode == MODE_UDP) {
                return udp_recv(f, p, n, flags);
        }
        return file_recvfrom(f, p, n, flags, NULL, NULL);
}

/* An answer of ours to what a netlink socket was asked, for recvfrom(). */
static ssize_t recv_answer(int fd, void *p, size_t n, int flags, struct sockaddr *sa,
                           socklen_t *len)
{
        struct iovec iov = {p, n};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_name = sa,
                           .msg_namelen = sa && len ? *len : 0};
        ssize_t r;

        if (!netlink_answers(fd, &m, flags, &r))
                return REAL(recvfrom)(fd, p, n, flags, sa, len);
        if (r >= 0 && sa && len)
                *len = m.msg_namelen;
        result_again(&r);
        return r;
}

static ssize_t kernel_only_recv(int fd, void *p, size_t n, int flags, struct sockaddr *sa,
                                socklen_t *len)
{
        if (unlikely(netlink_dumps != 0) && user_read(len))
                return recv_answer(fd, p, n, flags, sa, len);
        return relayed_read(fd, sa ? REAL(recvfrom)(fd, p, n, flags, sa, len)
                                   : REAL(recv)(fd, p, n, flags));
}

ssize_t h_recv(int fd, void *p, size_t n, int flags)
{
        ssize_t r;

        cancellation_point();
        do {
                struct file *f = file_enter_reading(fd);

                if (!f)
                        return kernel_only_recv(fd, p, n, flags, NULL, NULL);
                r = recv_buf(f, p, n, flags);
                file_leave(f);
        } while (result_again(&r));
        return r;
}

static __attribute__((noinline)) ssize_t read_any(int fd, void *p, size_t n)
{
        ssize_t r;

        cancellation_point();
        do {
                struct file *f = file_enter_reading(fd);

                if (!f) {
                        kernel_touched();
                        return relayed_read(fd, REAL(read)(fd, p, n));
                }
                r = n ? recv_buf(f, p, n, 0) : 0;
                file_leave(f);
        } while (result_again(&r));
        return r;
}

/* The few bytes that a program of one thread finds at once, as most reads of so few do; -EAGAIN:
 * none of these, and nothing was done. */
static inline ssize_t read_few(int fd, void *p, size_t n)
{
        struct file *f;
        ssize_t r;

        if ((unsigned)fd >= shim.size || n - 1 >= USOCK_SHORT_MAX)
                return -EAGAIN;
        f = atomic_load_explicit(&shim.tab[fd], memory_order_acquire);
        if (!f || (f->mode != MODE_UDP && f->mode != MODE_TCP) || f->shared || usock_tls.inside ||
            !__libc_single_threaded || f->pace.left == 0)
                return -EAGAIN;
        usock_enter();
        r = usock_read_short(f->us, p, n);
        f->pace.left -= f->mode == MODE_UDP && r != -EAGAIN;
        usock_leave();
        return r;
}

ssize_t h_read(int fd, void *p, size_t n)
{
        ssize_t r = read_few(fd, p, n);

        if (likely(r >= 0))
                return r;
        if (likely(r == -EAGAIN))
                return read_any(fd, p, n);
        errno = (int)-r;
        return -1;
}

ssize_t h___read(int fd, void *p, size_t n)
{
        return h_read(fd, p, n);
}

/* Fortified calls: libc's own version ends the program when the buffer is too small. */
ssize_t h___read_chk(int fd, void *p, size_t n, size_t room)
{
        return n > room || !file_peek(fd) ? REAL(__read_chk)(fd, p, n, room) : h_read(fd, p, n);
}

ssize_t h___recv_chk(int fd, void *p, size_t n, size_t room, int flags)
{
        return n > room || !file_peek(fd) ? REAL(__recv_chk)(fd, p, n, room, flags)
                                          : h_recv(fd, p, n, flags);
}

ssize_t h_recvfrom(int fd, void *p, size_t n, int flags, struct sockaddr *sa, socklen_t *len)
{
        ssize_t r;

        cancellation_point();
        do {
                struct file *f = file_enter_reading(fd);

                if (!f)
                        return kernel_only_recv(fd, p, n, flags, sa, len);
                r = file_recvfrom(f, p, n, flags, sa, len);
                file_leave(f);
        } while (result_again(&r));
        return r;
}

ssize_t h___recvfrom_chk(int fd, void *p, size_t n, size_t room, int flags, struct sockaddr *sa,
                         socklen_t *len)
{
        if (n > room || !file_peek(fd))
                return REAL(__recvfrom_chk)(fd, p, n, room, flags, sa, len);
        return h_recvfrom(fd, p, n, flags, sa, len);
}

/* False: the kernel's call is the right one. */
static bool readv_ours(int fd, const struct iovec *iov, int n, int flags, ssize_t *r)
{
        struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};

        cancellation_point();
        do {
                struct file *f = file_peek(fd) && io_vector_readable(iov, (size_t)n)
                                         ? file_enter_reading(fd)
                                         : NULL;

                if (!f)
                        return false;
                *r = io_vector_is_empty(iov, n) ? 0 : file_recvmsg(f, &m, flags);
                file_leave(f);
        } while (result_again(r));
        return true;
}

ssize_t h_readv(int fd, const struct iovec *iov, int n)
{
        ssize_t r;

        return readv_ours(fd, iov, n, 0, &r) ? r : relayed_read(fd, REAL(readv)(fd, iov, n));
}

/* A socket has no position but the one it is at (-1). */
ssize_t h_preadv2(int fd, const struct iovec *iov, int n, off_t at, int flags)
{
        ssize_t r;

        if (at == -1 && !(flags & ~IO_RWF) && readv_ours(fd, iov, n, io_rwf_flags(flags), &r))
                return r;
        return relayed_read(fd, REAL(preadv2)(fd, iov, n, at, flags));
}

ssize_t h_preadv64v2(int fd, const struct iovec *iov, int n, off64_t at, int flags)
{
        return h_preadv2(fd, iov, n, at, flags);
}

/* Descriptors that came with a message may be sockets of ours in another process. */
static void look_at_one(int fd)
{
        struct file *f;

        fd_returned(fd);
        f = shim_adopt_fd(fd) ? file_enter(fd, MODE_KERNEL) : NULL;
        if (f) {
                usock_landed(f->us);
                file_leave(f);
        }
}

static void look_at_rights(struct msghdr *m)
{
        rights_each(m, look_at_one);
        if (shim_started())
                rights_each(m, epoll_comes); /* whose members may have come with them */
}

static bool put_header(struct msghdr *to, const struct msghdr *from)
{
        return user_put32(&to->msg_namelen, from->msg_namelen) &&
               user_put32(&to->msg_flags, (uint32_t)from->msg_flags) &&
               user_put64(&to->msg_controllen, from->msg_controllen);
}

static ssize_t kernel_only_recvmsg(int fd, struct msghdr *m, int flags)
{
        struct msghdr own;
        ssize_t r;

        if (unlikely(netlink_dumps != 0) && io_take_header(&own, m) &&
            netlink_answers(fd, &own, flags, &r)) {
                if (r >= 0 && !put_header(m, &own))
                        r = -EFAULT;
                result_again(&r);
                return r;
        }
        r = REAL(recvmsg)(fd, m, flags);
        if (r >= 0 && m->msg_controllen && !usock_tls.inside && !shim.disabled)
                look_at_rights(m);
        return relayed_read(fd, r);
}

static int kernel_only_recvmmsg(int fd, struct mmsghdr *v, unsigned n, int flags,
                                struct timespec *timeout)
{
        int r = REAL(recvmmsg)(fd, v, n, flags, timeout);

        for (int i = 0; i < r && !usock_tls.inside && !shim.disabled; i++)
                if (v[i].msg_hdr.msg_controllen)
                        look_at_rights(&v[i].msg_hdr);
        return r;
}

ssize_t h_recvmsg(int fd, struct msghdr *m, int flags)
{
        struct msghdr own;
        ssize_t r;

        cancellation_point();
        do {
                struct file *f =
                        file_peek(fd) && io_take_header(&own, m) ? file_enter_reading(fd) : NULL;

                if (!f)
                        return kernel_only_recvmsg(fd, m, flags);
                r = file_recvmsg(f, &own, flags);
                if (r >= 0 && !put_header(m, &own))
                        r = -EFAULT;
                file_leave(f);
        } while (result_again(&r));
        return r;
}

static ssize_t recv_one_of(struct file *f, struct mmsghdr *v, int flags,
                           ssize_t (*recv)(struct file *, struct msghdr *, int))
{
        struct msghdr own;
        ssize_t r = io_take_header(&own, &v->msg_hdr) ? recv(f, &own, flags) : -EFAULT;

        return r >= 0 && (!put_header(&v->msg_hdr, &own) || !user_put32(&v->msg_len, (uint32_t)r))
                       ? -EFAULT
                       : r;
}

static ssize_t udp_once_ours(struct file *f, struct msghdr *m, int flags)
{
        return udp_once(f, m, flags, false);
}

/* One datagram. `kernel`: it may be the kernel's turn, which comes once a call of the program's. */
static ssize_t udp_recv_next(struct file *f, struct mmsghdr *v, int flags, bool kernel)
{
        struct until u = until_timeo(f->rcvtimeo);
        ssize_t r;

        for (;; kernel = true) {
                r = kernel && kernel_turn(&f->pace) ? recv_one_of(f, v, flags, kernel_recvmsg)
                                                    : -EAGAIN;
                if (r == -EAGAIN)
                        r = recv_one_of(f, v, flags, udp_once_ours);
                if (r != -EAGAIN || !io_may_wait(f, flags))
                        return r;
                r = file_wait(f, POLLIN, &u);
                if (r < 0)
                        return r;
        }
}

/* As Linux: the time-out is looked at between datagrams, and an error after the first waits for the
 * next call. */
static ssize_t file_recvmmsg(struct file *f, struct mmsghdr *v, unsigned n, int flags,
                             struct timespec *timeout)
{
        bool udp = f->mode == MODE_UDP && !timeout && !(flags & (MSG_ERRQUEUE | MSG_PEEK));
        struct until u = until_ts(timeout);
        unsigned i = 0;
        ssize_t r = 0;

        until_left(&u); /* the time starts now */
        if (f->mode == MODE_TCP && !(flags & MSG_ERRQUEUE) && (r = file_take_error(f)) < 0)
                return r; /* as Linux: before what has come */
        while (i < n) {
                int once = flags & ~MSG_WAITFORONE;

                if (i && (flags & MSG_WAITFORONE))
                        once |= MSG_DONTWAIT;
                r = udp ? udp_recv_next(f, &v[i], once, i == 0)
                        : recv_one_of(f, &v[i], once, file_recvmsg);
                if (r < 0)
                        break;
                i++;
                if (timeout && until_over(&u))
                        break;
        }
        if (i != 0 && r < 0 && r != -EAGAIN && r != -ERR_RESTART && r != -ERR_AGAIN)
                usock_put_error(f->us, (int)-r);
        return i ? (ssize_t)i : r;
}

int h_recvmmsg(int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout)
{
        ssize_t r;

        cancellation_point();
        do {
                struct file *f =
                        file_peek(fd) && !bad_time(timeout) ? file_enter_reading(fd) : NULL;

                if (!f)
                        return kernel_only_recvmmsg(fd, v, n, flags, timeout);
                r = file_recvmmsg(f, v, n, flags, timeout);
                file_leave(f);
        } while (result_again(&r));
        return (int)r;
}
