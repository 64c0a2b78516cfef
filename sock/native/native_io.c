/*
 * The native API: sending and receiving.
 *
 * usock moves what can be moved now; here are the waits. A TCP call that is to move more than usock
 * did at first goes on buffer by buffer. An error met after some bytes were moved is told by the
 * next call.
 */
#include "sock/attach/handle.h"
#include "sock/native/native.h"
#include "sock/usock_ready.h"
#include "sock/usock_connect.h"
#include "sock/usock_dgram.h"
#include "sock/usock_stamp.h"

#include <limits.h>

static ssize_t partial(struct native_slot *n, size_t done, ssize_t err)
{
        if (done == 0)
                return err;
        if (err < 0 && err != -EAGAIN && err != -EINTR)
                n->late_err = (int)err;
        return (ssize_t)done;
}

static int late_error(struct native_slot *n)
{
        return atomic_exchange_explicit(&n->late_err, 0, memory_order_relaxed);
}

static inline bool has_late_error(const struct native_slot *n)
{
        return atomic_load_explicit(&n->late_err, memory_order_relaxed) != 0;
}

static inline bool is_stamped(const struct native_slot *n)
{
        return unlikely(READ_ONCE(usock_rec(n->us)->cork) & SOCK_CORK_STAMPED);
}

static size_t iov_bytes(const struct msghdr *m)
{
        size_t total = 0;

        for (size_t i = 0; i < m->msg_iovlen; i++)
                total += m->msg_iov[i].iov_len;
        return total;
}

/* ---- TCP: the rest of a call ---- */

/* One piece of the application's buffers at a time, the first `done` bytes left out. */
struct walk {
        const struct iovec *iov;
        size_t n, off;
};

static struct walk walk_from(const struct msghdr *m, size_t done)
{
        struct walk w = {m->msg_iov, m->msg_iovlen, done};

        while (w.n > 0 && w.off >= w.iov->iov_len) {
                w.off -= w.iov->iov_len;
                w.iov++;
                w.n--;
        }
        return w;
}

static void walk_on(struct walk *w, size_t bytes)
{
        w->off += bytes;
        while (w->n > 0 && w->off >= w->iov->iov_len) {
                w->off -= w->iov->iov_len;
                w->iov++;
                w->n--;
        }
}

static ssize_t send_rest(struct native_slot *n, const struct msghdr *m, size_t done, int flags)
{
        nstime deadline = native_deadline(READ_ONCE(usock_rec(n->us)->sndtimeo));
        struct walk w = walk_from(m, done);

        while (w.n > 0) {
                const char *p = (const char *)w.iov->iov_base + w.off;
                ssize_t r = usock_send(n->us, p, w.iov->iov_len - w.off,
                                       w.n > 1 ? flags | MSG_MORE : flags);
                if (r == -EAGAIN)
                        r = native_wait(n, POLLOUT, deadline);
                if (r < 0)
                        return partial(n, done, r);
                done += (size_t)r;
                walk_on(&w, (size_t)r);
        }
        return (ssize_t)done;
}

/* After the first of it, of which `r` came. */
static ssize_t send_on(struct native_slot *n, const struct msghdr *m, ssize_t r, int flags)
{
        if (r == -EAGAIN && !native_nowait(n, flags))
                r = 0;
        else if (r < 0)
                return r;
        if (!native_nowait(n, flags) && (size_t)r != iov_bytes(m))
                r = send_rest(n, m, (size_t)r, flags);
        if (unlikely(flags & MSG_ZEROCOPY) && r > 0)
                usock_zerocopy_sent(n->us);
        return r;
}

static ssize_t send_tcp(struct native_slot *n, const struct msghdr *m, int flags)
{
        uint32_t asked = 0;
        int err = likely(m->msg_controllen == 0) ? 0 : usock_stamps_asked(n->us, m, &asked);
        ssize_t r;

        if (unlikely(has_late_error(n)))
                return late_error(n);
        if (unlikely(err < 0))
                return err;
        r = send_on(n, m, usock_sendmsg(n->us, m, flags), flags);
        if ((unlikely(asked != 0) || is_stamped(n)) && r > 0)
                usock_stamp_sent(n->us, asked);
        return r;
}

/* After the first look, of which `r` came. */
static ssize_t recv_rest(struct native_slot *n, struct msghdr *m, ssize_t r, size_t target,
                         int flags)
{
        nstime deadline = native_deadline(READ_ONCE(usock_rec(n->us)->rcvtimeo));
        struct walk w = walk_from(m, 0);
        size_t done = 0;

        m->msg_controllen = 0;
        m->msg_flags = 0;
        for (;;) {
                ssize_t got = -EAGAIN;
                struct iovec to;
                if (r > 0) {
                        done += (size_t)r;
                        walk_on(&w, (size_t)r);
                }
                if (r == 0 || done >= target || w.n == 0)
                        return (ssize_t)done;
                to = (struct iovec){(char *)w.iov->iov_base + w.off, w.iov->iov_len - w.off};
                if (r == -EAGAIN)
                        r = native_wait_recv(n, deadline, &to, flags, &got);
                if (r < 0)
                        return partial(n, done, r);
                r = got != -EAGAIN ? got : usock_recv(n->us, to.iov_base, to.iov_len, flags);
        }
}

/* MSG_PEEK begins anew each time. More than is there cannot be waited for by an event: looks every
 * millisecond. */
static ssize_t peek_all(struct native_slot *n, struct msghdr *m, size_t target, int flags)
{
        nstime deadline = native_deadline(READ_ONCE(usock_rec(n->us)->rcvtimeo));
        ssize_t got;
        int err;

        for (;;) {
                got = usock_recvmsg(n->us, m, flags);
                if (got >= (ssize_t)target || (got < 0 && got != -EAGAIN) || got == 0)
                        return got;
                if (got > 0 && usock_poll(n->us) & (POLLRDHUP | POLLHUP | POLLERR))
                        return got;
                err = got > 0 || usock_peeks_on(n->us) ? usock_wait1(n->us, 0, NS_PER_MS)
                                                       : native_wait(n, USOCK_POLL_SOME, deadline);
                if (err == -EINTR || (err == -EAGAIN && ustack_now() >= deadline))
                        return got > 0 ? got : err;
        }
}

/* Bytes a blocking receive waits for. */
static size_t recv_target(const struct native_slot *n, const struct msghdr *m, int flags)
{
        size_t total = iov_bytes(m);

        return flags & MSG_WAITALL ? total
                                   : MIN(total, (size_t)READ_ONCE(usock_rec(n->us)->rcvlowat));
}

/* After the first look, of which `r` came. */
static ssize_t recv_on(struct native_slot *n, struct msghdr *m, ssize_t r, int flags)
{
        size_t target;

        if (native_nowait(n, flags) || flags & (MSG_OOB | MSG_ERRQUEUE) || r == 0 ||
            (r < 0 && r != -EAGAIN))
                return r;
        target = recv_target(n, m, flags);
        if (r >= (ssize_t)target)
                return r;
        if (flags & MSG_PEEK)
                return peek_all(n, m, target, flags);
        return recv_rest(n, m, r, target, flags);
}

static ssize_t recv_tcp(struct native_slot *n, struct msghdr *m, int flags)
{
        if (unlikely(has_late_error(n)))
                return late_error(n);
        m->msg_namelen = 0; /* as Linux: a stream's bytes come from its peer */
        return recv_on(n, m, usock_recvmsg(n->us, m, flags), flags);
}

/* ---- UDP: a datagram moves whole ---- */

/* Nobody has the port: as the directory says now. 0: try again. */
static int nobody(struct native_slot *n, const struct msghdr *m)
{
        int err;

        if (m->msg_name != NULL && m->msg_namelen != 0)
                return native_nobody(USOCK_UDP, m->msg_name, m->msg_namelen);
        pthread_mutex_lock(&n->setup);
        err = native_reconnect(n);
        pthread_mutex_unlock(&n->setup);
        return err;
}

static int autobind(struct native_slot *n)
{
        int err;

        if (likely(usock_has_port(n->us)))
                return 0;
        pthread_mutex_lock(&n->setup);
        err = native_autobind(n);
        pthread_mutex_unlock(&n->setup);
        return err;
}

static ssize_t send_udp(struct native_slot *n, const struct msghdr *m, int flags)
{
        nstime deadline = NSTIME_NEVER;
        ssize_t r = autobind(n);

        if (r < 0)
                return r;
        for (bool first = true;; first = false) {
                r = usock_sendmsg(n->us, m, flags);
                if (r == -ENOENT) {
                        r = first ? nobody(n, m) : -ECONNREFUSED;
                } else {
                        if (r != -EAGAIN || native_nowait(n, flags))
                                return r;
                        if (deadline == NSTIME_NEVER)
                                deadline = native_deadline(READ_ONCE(usock_rec(n->us)->sndtimeo));
                        r = native_wait(n, POLLOUT, deadline);
                }
                if (r < 0)
                        return r;
        }
}

static ssize_t recv_udp(struct native_slot *n, struct msghdr *m, int flags)
{
        nstime deadline = NSTIME_NEVER;
        ssize_t r;

        for (;;) {
                r = usock_recvmsg(n->us, m, flags);
                if (r != -EAGAIN || native_nowait(n, flags))
                        return r;
                if (deadline == NSTIME_NEVER)
                        deadline = native_deadline(READ_ONCE(usock_rec(n->us)->rcvtimeo));
                r = native_wait(n, POLLIN, deadline);
                if (r >= 0 && flags & MSG_PEEK && usock_peeks_on(n->us) &&
                    usock_wait1(n->us, 0, NS_PER_MS) == -EINTR)
                        r = -EINTR;
                if (r < 0)
                        return r;
        }
}

/* ---- the calls ---- */

/* What can be told of a message before it is touched; `bytes`: its buffers are. */
static int msg_error(const struct msghdr *m, bool bytes)
{
        size_t total = 0;

        if (m == NULL || (m->msg_iov == NULL && m->msg_iovlen > 0))
                return -EFAULT;
        if (m->msg_iovlen > IOV_MAX)
                return -EMSGSIZE;
        if (m->msg_name != NULL && (int)m->msg_namelen < 0)
                return -EINVAL;
        for (size_t i = 0; i < m->msg_iovlen; i++) {
                const struct iovec *v = &m->msg_iov[i];

                if (v->iov_len > (size_t)SSIZE_MAX - total)
                        return -EINVAL;
                if (v->iov_base == NULL && v->iov_len > 0 && bytes)
                        return -EFAULT;
                total += v->iov_len;
        }
        return 0;
}

static ssize_t do_send(struct native_slot *n, const struct msghdr *m, int flags)
{
        int err = msg_error(m, true);

        if (unlikely(flags & MSG_FASTOPEN) && err == 0 && n->us->kind == USOCK_TCP &&
            m->msg_name != NULL)
                err = native_connect_to_send(n, m->msg_name, m->msg_namelen, flags);
        if (unlikely(err != 0))
                return err;
        return n->us->kind == USOCK_UDP ? send_udp(n, m, flags) : send_tcp(n, m, flags);
}

static ssize_t do_recv(struct native_slot *n, struct msghdr *m, int flags)
{
        int err = msg_error(m, !(flags & MSG_TRUNC) || n->us->kind == USOCK_UDP);

        if (unlikely(err != 0))
                return err;
        return n->us->kind == USOCK_UDP ? recv_udp(n, m, flags) : recv_tcp(n, m, flags);
}

ssize_t unet_sendmsg(int sock, const struct msghdr *msg, int flags)
{
        struct native_slot *n = native_get(sock);

        return native_done(n, likely(n != NULL) ? do_send(n, msg, flags) : -EBADF);
}

ssize_t unet_recvmsg(int sock, struct msghdr *msg, int flags)
{
        struct native_slot *n = native_get(sock);

        return native_done(n, likely(n != NULL) ? do_recv(n, msg, flags) : -EBADF);
}

ssize_t unet_sendto(int sock, const void *buf, size_t n, int flags, const struct sockaddr *to,
                    socklen_t tolen)
{
        struct iovec iov = {(void *)(uintptr_t)buf, n};
        struct msghdr m = {.msg_name = (void *)(uintptr_t)to,
                           .msg_namelen = tolen,
                           .msg_iov = &iov,
                           .msg_iovlen = 1};

        return unet_sendmsg(sock, &m, flags);
}

ssize_t unet_recvfrom(int sock, void *buf, size_t n, int flags, struct sockaddr *from,
                      socklen_t *fromlen)
{
        struct iovec iov = {buf, n};
        struct msghdr m = {.msg_name = from, .msg_iov = &iov, .msg_iovlen = 1};
        ssize_t r;

        if (from != NULL)
                m.msg_namelen = fromlen != NULL ? *fromlen : 0;
        if (unlikely(from != NULL && fromlen == NULL))
                m.msg_iov = NULL; /* EFAULT, or EBADF before it */
        r = unet_recvmsg(sock, &m, flags);
        if (r >= 0 && from != NULL)
                *fromlen = m.msg_namelen;
        return r;
}

/* ---- one buffer of a stream ---- */

/* Nothing to be told but the bytes: what moves whole at the first look needs no message
 * around it. */
static inline bool is_plain(const struct native_slot *n, const void *buf, size_t bytes)
{
        return n->us->kind == USOCK_TCP && buf != NULL && bytes <= SSIZE_MAX &&
               !has_late_error(n) && !is_stamped(n);
}

static __attribute__((noinline)) ssize_t send_plain_on(struct native_slot *n, const void *buf,
                                                       size_t bytes, ssize_t r, int flags)
{
        struct iovec iov = {(void *)(uintptr_t)buf, bytes};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

        return send_on(n, &m, r, flags);
}

static __attribute__((noinline)) ssize_t recv_plain_on(struct native_slot *n, void *buf,
                                                       size_t bytes, ssize_t r, int flags)
{
        struct iovec iov = {buf, bytes};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

        return recv_on(n, &m, r, flags);
}

ssize_t unet_send(int sock, const void *buf, size_t bytes, int flags)
{
        struct native_slot *n = native_get(sock);
        ssize_t r;

        if (unlikely(n == NULL))
                return native_result(-EBADF);
        if (unlikely(!is_plain(n, buf, bytes))) {
                native_put(n);
                return unet_sendto(sock, buf, bytes, flags, NULL, 0);
        }
        r = usock_send(n->us, buf, bytes, flags);
        if (unlikely(r != (ssize_t)bytes || flags & MSG_ZEROCOPY))
                r = send_plain_on(n, buf, bytes, r, flags);
        return native_done(n, r);
}

ssize_t unet_recv(int sock, void *buf, size_t bytes, int flags)
{
        struct native_slot *n = native_get(sock);
        ssize_t r;

        if (unlikely(n == NULL))
                return native_result(-EBADF);
        if (unlikely(!is_plain(n, buf, bytes) ||
                     flags & (MSG_PEEK | MSG_TRUNC | MSG_OOB | MSG_ERRQUEUE))) {
                native_put(n);
                return unet_recvfrom(sock, buf, bytes, flags, NULL, NULL);
        }
        r = usock_recv(n->us, buf, bytes, flags);
        if (r != (ssize_t)bytes || bytes == 0)
                r = recv_plain_on(n, buf, bytes, r, flags);
        return native_done(n, r);
}

ssize_t unet_readv(int sock, const struct iovec *iov, int n)
{
        struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n};

        return n < 0 || n > IOV_MAX ? native_result(-EINVAL) : unet_recvmsg(sock, &m, 0);
}

ssize_t unet_writev(int sock, const struct iovec *iov, int n)
{
        struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n};

        return n < 0 || n > IOV_MAX ? native_result(-EINVAL) : unet_sendmsg(sock, &m, 0);
}

/* ---- several messages ---- */

/* What a batch that moved some messages returns; an error that ended it comes with the
 * next call. */
static int batch_result(struct native_slot *n, unsigned done, ssize_t r)
{
        if (done == 0)
                return (int)r;
        if (r < 0 && n->us->kind == USOCK_TCP)
                partial(n, done, r);
        return (int)done;
}

static int send_batch(struct native_slot *n, struct mmsghdr *msgs, unsigned count, int flags)
{
        unsigned done = 0;
        ssize_t r = 0;

        usock_batch_begin();
        while (done < count) {
                r = usock_send_straight(n->us, &msgs[done], count - done, flags);
                if (r == 0) {
                        r = do_send(n, &msgs[done].msg_hdr,
                                    done + 1 < count ? flags | USOCK_BATCH : flags);
                        if (r < 0)
                                break;
                        msgs[done].msg_len = (unsigned)r;
                        r = 1;
                }
                if (r < 0)
                        break;
                done += (unsigned)r;
        }
        usock_batch_end(n->us, r < 0);
        return batch_result(n, done, r);
}

int unet_sendmmsg(int sock, struct mmsghdr *msgs, unsigned n, int flags)
{
        struct native_slot *s = native_get(sock);
        int r = s == NULL               ? -EBADF
                : msgs == NULL && n > 0 ? -EFAULT
                                        : send_batch(s, msgs, MIN(n, (unsigned)IOV_MAX), flags);

        return (int)native_done(s, r);
}

/* Waits for the first message, or each, no longer than `deadline`. */
static int recv_batch(struct native_slot *n, struct mmsghdr *msgs, unsigned count, int flags,
                      nstime deadline)
{
        bool nowait = native_nowait(n, flags);
        unsigned done = 0;
        ssize_t r = 0;

        while (done < count) {
                bool wait = !nowait && (done == 0 || !(flags & MSG_WAITFORONE));
                if (wait && deadline != NSTIME_NEVER && (r = native_wait(n, POLLIN, deadline)) < 0)
                        break;
                r = do_recv(n, &msgs[done].msg_hdr,
                            (flags & ~MSG_WAITFORONE) | (wait ? 0 : MSG_DONTWAIT));
                if (r < 0)
                        break;
                msgs[done++].msg_len = (unsigned)r;
                if (r == 0 && n->us->kind == USOCK_TCP)
                        break;
        }
        return batch_result(n, done, r);
}

int unet_recvmmsg(int sock, struct mmsghdr *msgs, unsigned n, int flags,
                  const struct timespec *timeout)
{
        struct native_slot *s = native_get(sock);
        nstime deadline = NSTIME_NEVER;

        if (s == NULL)
                return (int)native_result(-EBADF);
        if (timeout != NULL && !native_time_valid(timeout))
                return (int)native_done(s, -EINVAL);
        if (timeout != NULL)
                deadline = ustack_now() + native_time(timeout);
        if (msgs == NULL && n > 0)
                return (int)native_done(s, -EFAULT);
        n = MIN(n, (unsigned)IOV_MAX);
        return (int)native_done(s, recv_batch(s, msgs, n, flags, deadline));
}
