/*
 * Bytes in and out. A connection of ours in the common case is one usock call between enter and leave; what has to
 * wait, and sockets with two sides, take the longer road below.
 */
#include "sock/shim/shim.h"

#include <sys/ioctl.h>
#include <limits.h>
#include <netinet/in.h>

/* The kernel's side of a UDP socket goes by these; MSG_ZEROCOPY and the like are its own. */
static ssize_t kernel_recvmsg(const struct file *f, struct msghdr *m, int flags)
{
        return sys3(SYS_recvmsg, f->kfd, m, flags | MSG_DONTWAIT);
}

static bool may_wait(const struct file *f, int flags)
{
        return !file_nonblock(f) && !(flags & MSG_DONTWAIT);
}

/* SIGPIPE before the call returns, as the kernel has it, with nothing of ours held. */
static bool io_again(ssize_t *r, int flags)
{
        if (likely(*r >= 0))
                return false;
        if (*r == -EPIPE && !(flags & MSG_NOSIGNAL))
                raise_sigpipe();
        return result_failed(r);
}

/* ---- receiving ---- */

/* Where nothing tells that there is more than there was. */
static int pause_a_little(struct until *u)
{
        struct timespec pause = {0, 200 * NS_PER_US};

        sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
        if (usock_tls.pending)
                return -ERR_RESTART;
        return until_over(u) ? -EAGAIN : 0;
}

/* MSG_PEEK with MSG_WAITALL: the bytes are looked at until they are all there. And a peek that goes on (SO_PEEK_OFF). */
static int wait_for_more(struct file *f, int flags, struct until *u)
{
        int r = file_wait(f, USOCK_POLL_SOME, u);

        return r == 0 && (flags & MSG_PEEK) ? pause_a_little(u) : r;
}

static bool stream_ended(struct file *f)
{
        return usock_poll(f->us) & (POLLRDHUP | POLLHUP | POLLERR);
}

/* Nothing there, and the call may not wait: what arrived meanwhile is let in first, acknowledgements too. */
static ssize_t recv_now(struct file *f, void *p, size_t n, int flags)
{
        ssize_t r = usock_recv(f->us, p, n, flags);

        if (r != -EAGAIN || may_wait(f, flags))
                return r;
        usock_progress();
        return usock_recv(f->us, p, n, flags);
}

ssize_t file_recv(struct file *f, void *p, size_t n, int flags)
{
        size_t done = 0;
        struct until u = until_timeo(f->rcvtimeo);

        if (unlikely(flags & MSG_PEEK && usock_peeks_on(f->us)))
                flags &= ~MSG_WAITALL;
        for (;;) {
                size_t from = flags & MSG_PEEK ? 0 : done;
                ssize_t r = recv_now(f, (char *)p + from, n - from, flags & ~MSG_WAITALL);

                if (likely(r > 0)) {
                        if (flags & MSG_PEEK)
                                done = (size_t)r;
                        else
                                done += (size_t)r;
                        if (!(flags & MSG_WAITALL) || done == n || !may_wait(f, flags))
                                return (ssize_t)done;
                        if ((flags & MSG_PEEK) && stream_ended(f))
                                return (ssize_t)done;
                } else if (r != -EAGAIN || !may_wait(f, flags)) {
                        return done ? (ssize_t)done : r;
                }
                if (r <= 0 || (flags & MSG_PEEK))
                        r = wait_for_more(f, r > 0 || usock_peeks_on(f->us) ? flags : 0, &u);
                if (r < 0)
                        return done ? (ssize_t)done : r;
        }
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

        for (;; kernel = kernel_turn(&f->pace)) {
                ssize_t r = udp_once(f, m, flags, kernel);

                if (r != -EAGAIN || !may_wait(f, flags) || (flags & MSG_ERRQUEUE))
                        return r;
                r = file_wait(f, POLLIN, &u);
                if (r == 0 && unlikely(flags & MSG_PEEK && usock_peeks_on(f->us)))
                        r = pause_a_little(&u);
                if (r < 0)
                        return r;
        }
}

/* Whether all that is asked for is there, so that one call reads it, and says what it has to say beside. */
static bool all_there(const struct file *f, const struct msghdr *m)
{
        size_t want = 0;
        int there = 0;

        for (size_t i = 0; i < m->msg_iovlen; i++)
                want += m->msg_iov[i].iov_len;
        return usock_ioctl(f->us, FIONREAD, &there) == 0 && want <= (size_t)there;
}

/* Several buffers, MSG_WAITALL: only the first round can be one call. */
static ssize_t tcp_recv_all(struct file *f, const struct msghdr *m, int flags)
{
        ssize_t done = 0;

        for (size_t i = 0; i < m->msg_iovlen; i++) {
                ssize_t r = file_recv(f, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len, flags);

                if (r < 0)
                        return done ? done : r;
                done += r;
                if ((size_t)r < m->msg_iov[i].iov_len)
                        break;
        }
        return done;
}

static ssize_t recvmsg_now(struct file *f, struct msghdr *m, int flags)
{
        ssize_t r = usock_recvmsg(f->us, m, flags);

        if (r != -EAGAIN || may_wait(f, flags))
                return r;
        usock_progress();
        return usock_recvmsg(f->us, m, flags);
}

static ssize_t tcp_recvmsg(struct file *f, struct msghdr *m, int flags)
{
        struct until u = until_timeo(f->rcvtimeo);

        if (flags & MSG_ERRQUEUE)
                return -EAGAIN;
        if ((flags & MSG_WAITALL) && may_wait(f, flags) && !(flags & (MSG_PEEK | MSG_OOB)) && !all_there(f, m)) {
                m->msg_namelen = 0;
                m->msg_controllen = 0;
                m->msg_flags = 0;
                return tcp_recv_all(f, m, flags);
        }
        for (;;) {
                ssize_t r = recvmsg_now(f, m, flags & ~MSG_WAITALL);

                if (r != -EAGAIN || !may_wait(f, flags))
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
        return f->mode == MODE_UDP ? udp_recvmsg(f, m, flags, kernel_turn(&f->pace)) : -ENOTCONN;
}

/* One buffer, perhaps with a name, whose place is looked at when there is something for it, as in Linux. The buffers of names
 * and control data belong to the kernel's side as well. */
static ssize_t file_recvfrom(struct file *f, void *p, size_t n, int flags, struct sockaddr *sa, socklen_t *len)
{
        struct iovec iov = {p, n};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        bool named = sa && user_read(len);
        ssize_t r;

        if (f->mode == MODE_TCP && !(flags & MSG_ERRQUEUE)) {
                r = file_recv(f, p, n, flags);          /* a stream names nobody */
        } else {
                if (named) {
                        m.msg_name = sa;
                        m.msg_namelen = *len;
                }
                r = file_recvmsg(f, &m, flags);
        }
        if (r >= 0 && sa && (!named || !user_put32(len, m.msg_namelen)))
                return -EFAULT;
        return r;
}

/* A datagram for one buffer; most are there already, on our side. */
static inline ssize_t udp_recv(struct file *f, void *p, size_t n, int flags)
{
        struct iovec iov = {p, n};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        bool kernel = kernel_turn(&f->pace);
        ssize_t r = unlikely(kernel || (flags & MSG_ERRQUEUE)) ? -EAGAIN : usock_recv(f->us, p, n, flags);

        return likely(r != -EAGAIN) ? r : udp_recvmsg(f, &m, flags, kernel);
}

ssize_t file_recv_datagram(struct file *f, void *p, size_t n, int flags)
{
        return udp_recv(f, p, n, flags);
}

/* The whole of read() and recv(): the first lines are the fast path. */
static inline ssize_t recv_buf(struct file *f, void *p, size_t n, int flags)
{
        ssize_t r;

        if (likely(f->mode == MODE_TCP && !(flags & (MSG_WAITALL | MSG_ERRQUEUE)))) {
                r = usock_recv(f->us, p, n, flags);
                if (likely(r != -EAGAIN))
                        return r;
        } else if (f->mode == MODE_UDP) {
                return udp_recv(f, p, n, flags);
        }
        return file_recvfrom(f, p, n, flags, NULL, NULL);
}

ssize_t h_recv(int fd, void *p, size_t n, int flags)
{
        ssize_t r;

        do {
                struct file *f = file_enter(fd, MODE_TCP);

                if (!f)
                        return REAL(recv)(fd, p, n, flags);
                r = recv_buf(f, p, n, flags);
                file_leave(f);
        } while (result_again(&r));
        return r;
}

static __attribute__((noinline)) ssize_t read_any(int fd, void *p, size_t n)
{
        ssize_t r;

        do {
                struct file *f = file_enter(fd, MODE_TCP);

                if (!f) {
                        kernel_touched();
                        return REAL(read)(fd, p, n);
                }
                r = n ? recv_buf(f, p, n, 0) : 0;
                file_leave(f);
        } while (result_again(&r));
        return r;
}

/* The few bytes that a program of one thread finds at once, as most reads of so few do; -EAGAIN: none of these, and nothing
 * was done. */
static inline ssize_t read_few(int fd, void *p, size_t n)
{
        struct file *f;
        ssize_t r;

        if ((unsigned)fd >= shim.size || n - 1 >= USOCK_SHORT_MAX)
                return -EAGAIN;
        f = atomic_load_explicit(&shim.tab[fd], memory_order_acquire);
        if (!f || (f->mode != MODE_UDP && f->mode != MODE_TCP) || usock_tls.inside || !__libc_single_threaded ||
            f->pace.left == 0)
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
        return n > room || !file_peek(fd) ? REAL(__recv_chk)(fd, p, n, room, flags) : h_recv(fd, p, n, flags);
}

ssize_t h_recvfrom(int fd, void *p, size_t n, int flags, struct sockaddr *sa, socklen_t *len)
{
        ssize_t r;

        do {
                struct file *f = file_enter(fd, MODE_TCP);

                if (!f)
                        return REAL(recvfrom)(fd, p, n, flags, sa, len);
                r = file_recvfrom(f, p, n, flags, sa, len);
                file_leave(f);
        } while (result_again(&r));
        return r;
}

ssize_t h___recvfrom_chk(int fd, void *p, size_t n, size_t room, int flags, struct sockaddr *sa, socklen_t *len)
{
        if (n > room || !file_peek(fd))
                return REAL(__recvfrom_chk)(fd, p, n, room, flags, sa, len);
        return h_recvfrom(fd, p, n, flags, sa, len);
}

/* The program's vector. If it cannot be read, or is longer than any may be, the kernel says so. */
static bool vector_readable(const struct iovec *iov, size_t n)
{
        return n <= IOV_MAX && user_read_range(iov, n * sizeof(*iov));
}

/* read() and readv() of nothing ask nobody, as SYS5 has it; recv() of nothing waits. */
static bool iov_is_empty(const struct iovec *iov, int n)
{
        for (int i = 0; i < n; i++)
                if (iov[i].iov_len != 0)
                        return false;
        return true;
}

ssize_t h_readv(int fd, const struct iovec *iov, int n)
{
        struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
        ssize_t r;

        do {
                struct file *f = vector_readable(iov, (size_t)n) ? file_enter(fd, MODE_TCP) : NULL;

                if (!f)
                        return REAL(readv)(fd, iov, n);
                r = iov_is_empty(iov, n) ? 0 : file_recvmsg(f, &m, 0);
                file_leave(f);
        } while (result_again(&r));
        return r;
}

static void landed(int fd)
{
        struct file *f = file_enter(fd, MODE_TCP);

        if (f) {
                usock_landed(f->us);
                file_leave(f);
        }
}

/* Descriptors that came with a message may be sockets of ours in another process. */
static void look_at_rights(struct msghdr *m)
{
        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                for (size_t i = 0; i < n; i++) {
                        int fd;

                        memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
                        fd_returned(fd);
                        if (shim_adopt_fd(fd))
                                landed(fd);
                }
        }
}

static ssize_t kernel_only_recvmsg(int fd, struct msghdr *m, int flags)
{
        ssize_t r = REAL(recvmsg)(fd, m, flags);

        if (r >= 0 && m->msg_controllen && !usock_tls.inside && !shim.disabled)
                look_at_rights(m);
        return r;
}

static int kernel_only_recvmmsg(int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout)
{
        int r = REAL(recvmmsg)(fd, v, n, flags, timeout);

        for (int i = 0; i < r && !usock_tls.inside && !shim.disabled; i++)
                if (v[i].msg_hdr.msg_controllen)
                        look_at_rights(&v[i].msg_hdr);
        return r;
}

/* The program's header of a message, with what it points to. If it cannot be read the kernel says so. */
static bool take_header(struct msghdr *to, const struct msghdr *from)
{
        return user_copy(to, from, sizeof(*to)) && vector_readable(to->msg_iov, to->msg_iovlen);
}

static bool put_header(struct msghdr *to, const struct msghdr *from)
{
        return user_put32(&to->msg_namelen, from->msg_namelen) && user_put32(&to->msg_flags, (uint32_t)from->msg_flags) &&
               user_put64(&to->msg_controllen, from->msg_controllen);
}

ssize_t h_recvmsg(int fd, struct msghdr *m, int flags)
{
        struct msghdr own;
        ssize_t r;

        do {
                struct file *f = take_header(&own, m) ? file_enter(fd, MODE_TCP) : NULL;

                if (!f)
                        return kernel_only_recvmsg(fd, m, flags);
                r = file_recvmsg(f, &own, flags);
                if (r >= 0 && !put_header(m, &own))
                        r = -EFAULT;
                file_leave(f);
        } while (result_again(&r));
        return r;
}

/* As Linux: the time-out is looked at between datagrams, and an error after the first waits for the next call. */
static ssize_t file_recvmmsg(struct file *f, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout)
{
        struct until u = until_ts(timeout);
        struct msghdr own;
        unsigned i = 0;
        ssize_t r = 0;

        until_left(&u);                 /* the time starts now */
        while (i < n) {
                int once = flags & ~MSG_WAITFORONE;

                if (i && (flags & MSG_WAITFORONE))
                        once |= MSG_DONTWAIT;
                r = take_header(&own, &v[i].msg_hdr) ? file_recvmsg(f, &own, once) : -EFAULT;
                if (r >= 0 && (!put_header(&v[i].msg_hdr, &own) || !user_put32(&v[i].msg_len, (uint32_t)r)))
                        r = -EFAULT;
                if (r < 0)
                        break;
                i++;
                if (timeout && until_over(&u))
                        break;
        }
        return i ? (ssize_t)i : r;
}

/* Readable and in range: else the kernel says what it is. */
static bool timeout_good(const struct timespec *timeout)
{
        return !timeout || (user_read_range(timeout, sizeof(*timeout)) && timeout->tv_sec >= 0 && timeout->tv_nsec >= 0 &&
                            timeout->tv_nsec < 1000000000);
}

int h_recvmmsg(int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout)
{
        ssize_t r;

        do {
                struct file *f = timeout_good(timeout) ? file_enter(fd, MODE_TCP) : NULL;

                if (!f)
                        return kernel_only_recvmmsg(fd, v, n, flags, timeout);
                r = file_recvmmsg(f, v, n, flags, timeout);
                file_leave(f);
        } while (result_again(&r));
        return (int)r;
}

/* ---- sending ---- */

/* All of it, unless the socket may not wait. */
ssize_t file_send(struct file *f, const void *p, size_t n, int flags)
{
        size_t done = 0;
        struct until u = until_timeo(f->sndtimeo);

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
                if (r != -EAGAIN || !may_wait(f, flags))
                        return done ? (ssize_t)done : r;
                r = file_wait(f, POLLOUT, &u);
                if (r < 0)
                        return done ? (ssize_t)done : r;
        }
}

/* The rest of a message of several buffers, `done` bytes in; each buffer but the last with more to come. */
static ssize_t send_rest(struct file *f, const struct msghdr *m, size_t done, int flags)
{
        size_t skip = done;

        for (size_t i = 0; i < m->msg_iovlen; i++) {
                const struct iovec *v = &m->msg_iov[i];
                bool last = i + 1 == m->msg_iovlen;
                ssize_t r;

                if (skip >= v->iov_len) {
                        skip -= v->iov_len;
                        continue;
                }
                r = file_send(f, (const char *)v->iov_base + skip, v->iov_len - skip, flags | (last ? 0 : MSG_MORE));
                if (r < 0)
                        return done ? (ssize_t)done : r;
                done += (size_t)r;
                if ((size_t)r < v->iov_len - skip)
                        break;
                skip = 0;
        }
        return (ssize_t)done;
}

static size_t bytes_of(const struct msghdr *m)
{
        size_t n = 0;

        for (size_t i = 0; i < m->msg_iovlen; i++)
                n += m->msg_iov[i].iov_len;
        return n;
}

static ssize_t tcp_sendmsg(struct file *f, const struct msghdr *m, int flags)
{
        struct msghdr plain = {.msg_iov = m->msg_iov, .msg_iovlen = m->msg_iovlen};
        ssize_t r = usock_sendmsg(f->us, &plain, flags);

        if (r == -EAGAIN)
                r = 0;
        else if (r < 0 || (size_t)r == bytes_of(m))
                return r;
        if (!may_wait(f, flags))
                return r ? r : -EAGAIN;
        return send_rest(f, m, (size_t)r, flags);
}

/* The kernel knows no way to it. A group or a broadcast may have one by an interface of unetd's: once more? */
static bool way_by_ours(struct file *f, const struct msghdr *m)
{
        struct sockaddr_storage from;
        socklen_t from_len = sizeof from;
        const char *why;

        if (!m->msg_name || !usock_way_out(f->us, m->msg_name, m->msg_namelen, true, f->family, (struct sockaddr *)&from,
                                           &from_len, &why))
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

static ssize_t udp_sendmsg(struct file *f, const struct msghdr *m, int flags)
{
        bool fabric = !m->msg_name || name_of_ours(f, m->msg_name, m->msg_namelen);
        struct until u = until_timeo(f->sndtimeo);
        ssize_t r = -ENOENT;

        while (fabric) {
                r = usock_sendmsg(f->us, m, flags);
                if (r != -EAGAIN || !may_wait(f, flags))
                        break;
                r = file_wait(f, POLLOUT, &u);
                if (r < 0)
                        return r;
        }
        if (r != -ENOENT && r != -EDESTADDRREQ)
                return r;
        return kernel_sendmsg(f, m, flags);
}

static ssize_t file_sendmsg(struct file *f, const struct msghdr *m, int flags)
{
        if (f->mode == MODE_TCP)
                return tcp_sendmsg(f, m, flags);
        return f->mode == MODE_UDP ? udp_sendmsg(f, m, flags) : -EPIPE;
}

static ssize_t file_sendto(struct file *f, const void *p, size_t n, int flags, const struct sockaddr *sa,
                           socklen_t len)
{
        struct iovec iov = {(void *)p, n};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

        if (f->mode == MODE_TCP)
                return file_send(f, p, n, flags);
        if (sa && len) {
                m.msg_name = (void *)sa;
                m.msg_namelen = len;
        }
        return file_sendmsg(f, &m, flags);
}

ssize_t file_send_datagram(struct file *f, const void *p, size_t n, int flags)
{
        return file_sendto(f, p, n, flags, NULL, 0);
}

/* The whole of write() and send(). */
static inline ssize_t send_buf(struct file *f, const void *p, size_t n, int flags)
{
        ssize_t r;

        if (likely(f->mode == MODE_TCP))
                return file_send(f, p, n, flags);
        if (f->mode == MODE_UDP && f->connected) {
                r = usock_send(f->us, p, n, flags);
                if (likely(r != -EAGAIN && r != -ENOENT && r != -EDESTADDRREQ))
                        return r;
        }
        return file_sendto(f, p, n, flags, NULL, 0);
}

ssize_t h_send(int fd, const void *p, size_t n, int flags)
{
        ssize_t r;

        do {
                struct file *f = file_enter(fd, MODE_TCP);

                if (!f) {
                        kernel_touched();
                        return REAL(send)(fd, p, n, flags);
                }
                r = send_buf(f, p, n, flags);
                file_leave(f);
        } while (io_again(&r, flags));
        return r;
}

ssize_t h___send(int fd, const void *p, size_t n, int flags)
{
        return h_send(fd, p, n, flags);
}

ssize_t h_write(int fd, const void *p, size_t n)
{
        ssize_t r;

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

ssize_t h___write(int fd, const void *p, size_t n)
{
        return h_write(fd, p, n);
}

ssize_t h_writev(int fd, const struct iovec *iov, int n)
{
        struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
        ssize_t r;

        do {
                struct file *f = vector_readable(iov, (size_t)n) ? file_enter(fd, MODE_TCP) : NULL;

                if (!f) {
                        kernel_touched();
                        return REAL(writev)(fd, iov, n);
                }
                r = file_sendmsg(f, &m, 0);
                file_leave(f);
        } while (io_again(&r, 0));
        return r;
}

/* An undecided UDP socket decides when it is given an address to send to; a TCP socket that connects by sending is the
 * kernel's. */
static struct file *enter_sending(int fd, const struct sockaddr *sa, socklen_t len, int flags)
{
        struct file *f = !sa || sockaddr_readable(sa, len) ? file_enter(fd, MODE_NEW) : NULL;

        if (!f || f->mode >= MODE_TCP)
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

ssize_t h_sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *sa, socklen_t len)
{
        ssize_t r;

        do {
                struct file *f = enter_sending(fd, sa, len, flags);

                if (!f) {
                        kernel_touched();
                        return REAL(sendto)(fd, p, n, flags, sa, len);
                }
                r = file_sendto(f, p, n, flags, sa, len);
                file_leave(f);
        } while (io_again(&r, flags));
        return r;
}

/* Numbers that leave with a message must be real sockets, known by their cookie to whoever receives them. */
static void look_at_leaving(struct msghdr *m)
{
        if (!shim.size || usock_tls.inside || !m->msg_controllen || !user_read_range(m->msg_control, m->msg_controllen))
                return;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                for (size_t i = 0; i < n; i++) {
                        struct file *f;
                        int fd;

                        memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
                        f = file_enter(fd, MODE_TCP);
                        if (f) {
                                file_known_outside(f);
                                usock_fly(f->us);
                                file_leave(f);
                        }
                }
        }
}

ssize_t h_sendmsg(int fd, const struct msghdr *m, int flags)
{
        struct msghdr own;
        ssize_t r;

        do {
                bool good = take_header(&own, m);
                struct file *f = good ? enter_sending(fd, own.msg_name, own.msg_namelen, flags) : NULL;

                if (!f) {
                        if (good)
                                look_at_leaving(&own);
                        kernel_touched();
                        return REAL(sendmsg)(fd, m, flags);
                }
                r = file_sendmsg(f, &own, flags);
                file_leave(f);
        } while (io_again(&r, flags));
        return r;
}

static ssize_t file_sendmmsg(struct file *f, struct mmsghdr *v, unsigned n, int flags)
{
        struct msghdr own;
        unsigned i = 0;
        ssize_t r = 0;

        usock_batch_begin();
        for (; i < n; i++) {
                bool good = take_header(&own, &v[i].msg_hdr) &&
                            (!own.msg_name || sockaddr_readable(own.msg_name, own.msg_namelen));

                r = good ? file_sendmsg(f, &own, i + 1 < n ? flags | USOCK_BATCH : flags) : -EFAULT;
                if (r >= 0 && !user_put32(&v[i].msg_len, (uint32_t)r))
                        r = -EFAULT;
                if (r < 0)
                        break;
        }
        usock_batch_end(f->us, r < 0);
        return i ? (ssize_t)i : r;
}

int h_sendmmsg(int fd, struct mmsghdr *v, unsigned n, int flags)
{
        struct msghdr first;
        ssize_t r;

        do {
                bool good = n && take_header(&first, &v->msg_hdr);
                struct file *f = good ? enter_sending(fd, first.msg_name, first.msg_namelen, flags) : NULL;

                if (!f) {
                        for (unsigned i = 0; shim.size && i < MIN(n, IOV_MAX) && take_header(&first, &v[i].msg_hdr); i++)
                                look_at_leaving(&first);
                        return REAL(sendmmsg)(fd, v, n, flags);
                }
                r = file_sendmmsg(f, v, n, flags);
                file_leave(f);
        } while (io_again(&r, flags));
        return (int)r;
}
