/*
 * UDP sockets, receiving. A read takes no lock (udp.h); the reader takes it when nothing is queued,
 * to let in what came, and every SETTLE_EVERY datagrams, to give their memory back.
 */
#include "sock/attach/ustack.h"

#include <errno.h>
#include <poll.h>

#include "sock/attach/cursor.h"
#include "sock/attach/handle.h"
#include "sock/attach/ustack_levels.h"
#include "sock/udp/usock_cmsg.h"
#include "sock/udp/usock_udp.h"

#define COPY_SHORT_MAX USOCK_SHORT_MAX
#define SETTLE_EVERY   32u /* datagrams read between two turns of the lock */

static bool put_name(const struct usock *s, struct msghdr *m, const struct udp_msg *msg)
{
        return m->msg_name == NULL ||
               usock_addr_out(s->family, msg->src, msg->sport, m->msg_name, &m->msg_namelen);
}

/* udp_recv_look(), where the bytes of a datagram may lie in the frames of a channel that this
 * process has not mapped yet: all that there were before were mapped, and none has come since; or
 * else nobody maps any meanwhile. */
static inline bool look_mapped(struct ustack *u, uint32_t pcb, struct udp_sight *first)
{
        _Atomic uint32_t *there = &u->s.st->chan_gen;
        bool seen;

        for (int tries = 0; tries < 2; tries++) {
                uint32_t gen = atomic_load_explicit(there, memory_order_acquire);
                if (likely(gen == __atomic_load_n(&u->s.chan_gen, __ATOMIC_ACQUIRE))) {
                        if (!udp_recv_look(&u->s.udp, pcb, first))
                                return false;
                        if (likely(gen == atomic_load_explicit(there, memory_order_relaxed)))
                                return true;
                }
                ustack_lock(u); /* maps them */
                ustack_leave(u);
        }
        ustack_lock(u);
        seen = udp_recv_look(&u->s.udp, pcb, first) &&
               stack_chan_peek(&u->s, first->msg.chan) != NULL;
        ustack_leave(u);
        return seen;
}

/* The memory of what was read goes back, and what came meanwhile is let in, in one turn of the
 * lock. */
static __attribute__((noinline)) void settle(struct ustack *u, uint32_t pcb)
{
        ustack_lock(u);
        udp_settle(&u->s.udp, pcb);
        if (stack_pending(&u->s, 0))
                stack_run(&u->s, ustack_now());
        else
                stack_flush_bells(&u->s);
        ustack_leave(u);
}

static bool settle_is_due(struct usock *s)
{
        uint32_t n = atomic_load_explicit(&s->reads, memory_order_relaxed) + 1;

        atomic_store_explicit(&s->reads, n, memory_order_relaxed);
        return n % SETTLE_EVERY == 0;
}

/* The first n bytes of the datagram; most are one piece and short. */
static inline bool copy_msg(struct cursor *c, const struct udp_msg *msg, size_t n)
{
        if (likely(c->iov->iov_len >= n && msg->nspan == 1 && n <= COPY_SHORT_MAX))
                return user_copy_short(c->iov->iov_base, msg->span[0].ptr, (uint32_t)n);
        return copy_spans(c, msg->span, n);
}

/*
 * The bytes of the next datagram lie in its writer's cache. A processor waits for some sixteen
 * lines at a time, and one more prefetch than that waits itself, so those of a datagram are asked
 * for in three parts: before the copy of the one before it, after it, and when somebody asks
 * whether there is something to read (iperf3 UDP -l 1400: 26 and 35 Gb/s).
 */
#define FETCH_LINES (8 * CACHE_LINE)

static inline void fetch_part(struct span *ahead)
{
        uint32_t n = MIN(ahead->len, FETCH_LINES);

        frame_fetch(ahead->ptr, n);
        ahead->ptr += n;
        ahead->len -= n;
}

static inline void fetch_later(struct usock *s, struct span rest)
{
        if (rest.len == 0)
                return;
        atomic_store_explicit(&s->fetch_at, rest.ptr, memory_order_relaxed);
        atomic_store_explicit(&s->fetch_left, rest.len, memory_order_relaxed);
}

void usock_udp_fetch(struct usock *s)
{
        uint32_t n = atomic_load_explicit(&s->fetch_left, memory_order_relaxed);

        if (n == 0)
                return;
        atomic_store_explicit(&s->fetch_left, 0, memory_order_relaxed);
        frame_fetch(atomic_load_explicit(&s->fetch_at, memory_order_relaxed), n);
}

/* They are told of when the datagram is taken, and then its memory may be another's. */
static void keep_options(struct udp_msg *msg, uint8_t copy[IP_OPTS_MAX])
{
        memcpy(copy, msg->opts, MIN(msg->nopts, IP_OPTS_MAX));
        msg->opts = copy;
}

/* UDP_GRO: whether `next` came from the same program by the same way as `first`, and is
 * no longer. */
static bool continues(const struct udp_msg *first, const struct udp_msg *next)
{
        return next->len <= first->len && next->len != 0 && next->sport == first->sport &&
               ip_addr_eq(next->src, first->src) && ip_addr_eq(next->dst, first->dst) &&
               next->tos == first->tos && next->ttl == first->ttl && next->chan == first->chan &&
               next->nopts == 0;
}

/* UDP_GRO (udp(7)): datagrams of one size and a shorter last one are read as one, as many as there
 * is room for. Returns the bytes behind those of `first`, which are in place. Linux joins what one
 * call sent with UDP_SEGMENT, and what an interface joins. */
static size_t join_more(struct usock *s, const struct iovec *iov, const struct udp_msg *first,
                        size_t total)
{
        struct ustack *u = s->u;
        uint32_t pcb = usock_rec(s)->conn;
        struct cursor c = {iov, first->len, 0};
        size_t room = MIN(total, UDP_MAX_PAYLOAD) - first->len, joined = 0;
        struct udp_sight next;

        for (; c.off >= c.iov->iov_len && room != 0; c.iov++)
                c.off -= c.iov->iov_len;
        for (unsigned n = 1; n < UDP_SEGMENTS_MAX && look_mapped(u, pcb, &next); n++) {
                if (!continues(first, &next.msg) || next.msg.len > room - joined)
                        break;
                if (!copy_spans(&c, next.msg.span, next.msg.len) ||
                    !udp_recv_take(&u->s.udp, pcb, &next))
                        break;
                joined += next.msg.len;
                if (settle_is_due(s) || next.last)
                        settle(u, pcb);
                if (next.msg.len < first->len)
                        break;
        }
        return joined;
}

/* The first datagram, without the lock. -EAGAIN: there is none, or something else to tell. m: NULL,
 * or where name and flags go. */
static inline ssize_t read_first(struct usock *s, const struct iovec *iov, size_t total, int flags,
                                 struct msghdr *m)
{
        struct ustack *u = s->u;
        uint32_t pcb = usock_rec(s)->conn;
        uint8_t opts[IP_OPTS_MAX];
        size_t joined = 0;
        struct udp_sight first;

        if (unlikely(flags & MSG_PEEK && READ_ONCE(usock_rec(s)->peeks_on)))
                return usock_udp_peek_on(s, iov, total, flags, m);
        while (look_mapped(u, pcb, &first)) {
                struct cursor c = {iov, 0, 0};
                size_t n = MIN(total, first.msg.len);
                bool good;

                fetch_part(&first.ahead);
                good = copy_msg(&c, &first.msg, n);
                if (unlikely(first.msg.nopts != 0))
                        keep_options(&first.msg, opts);
                if (unlikely(flags & MSG_PEEK))
                        first.next = first.head; /* it is taken and stays where it is */
                if (unlikely(!udp_recv_take(&u->s.udp, pcb, &first)))
                        continue;
                fetch_part(&first.ahead);
                fetch_later(s, first.ahead);
                if (unlikely(READ_ONCE(usock_rec(s)->told) & USOCK_TELL_GRO && good &&
                             n == first.msg.len && !(flags & MSG_PEEK)))
                        joined = join_more(s, iov, &first.msg, total);
                if (m != NULL) {
                        good &= put_name(s, m, &first.msg);
                        m->msg_flags = (first.msg.len > total ? MSG_TRUNC : 0) |
                                       (flags & MSG_CMSG_CLOEXEC);
                        if (unlikely(READ_ONCE(usock_rec(s)->told) != 0))
                                usock_cmsg_put(s, &first.msg, joined != 0 ? first.msg.len : 0, m);
                        else
                                m->msg_controllen = 0;
                }
                if (unlikely(settle_is_due(s) || first.last))
                        settle(u, pcb);
                if (unlikely(READ_ONCE(usock_rec(s)->peeks_on)))
                        usock_udp_read_before(s, (flags & MSG_TRUNC ? first.msg.len : n) + joined);
                if (unlikely(!good))
                        return -EFAULT; /* as Linux: the datagram is gone */
                return (ssize_t)((flags & MSG_TRUNC ? first.msg.len : n) + joined);
        }
        return -EAGAIN;
}

/* A short datagram and nothing but its bytes, by the shortest way. -EAGAIN: the first one is not
 * for this way. */
ssize_t usock_udp_read_short(struct usock *s, void *p, size_t n)
{
        struct udp_pcb *pcb = atomic_load_explicit(&s->pcb, memory_order_relaxed);
        struct udp_sight first;
        bool good;

        if (unlikely(pcb == NULL)) {
                pcb = udp_pcb_at(&s->u->s.udp, usock_rec(s)->conn);
                atomic_store_explicit(&s->pcb, pcb, memory_order_relaxed);
        }
        if (unlikely(READ_ONCE(usock_rec(s)->peeks_on) ||
                     READ_ONCE(usock_rec(s)->told) & USOCK_TELL_GRO))
                return -EAGAIN;
        if (!udp_recv_look_short(&s->u->s.udp, pcb, &first) ||
            first.msg.len > MIN(n, COPY_SHORT_MAX))
                return -EAGAIN;
        good = user_copy_short(p, first.msg.span[0].ptr, first.msg.len);
        if (unlikely(!udp_recv_take_short(pcb, &first, usock_alone(s))))
                return -EAGAIN;
        if (unlikely(settle_is_due(s) || first.last))
                settle(s->u, usock_rec(s)->conn);
        return likely(good) ? (ssize_t)first.msg.len : -EFAULT;
}

/* What has come is let in. 1: there is something to read; else what to tell: -errno, or 0 after
 * shutdown(SHUT_RD) to who would have waited, as Linux does. */
static ssize_t let_in(struct usock *s, int flags)
{
        struct ustack *u = s->u;
        uint32_t pcb = usock_rec(s)->conn;
        struct udp_msg msg;
        int n;

        ustack_lock(u);
        n = udp_recv_peek(&u->s.udp, pcb, 0, &msg, 1);
        if ((n == -EAGAIN || n == 0) && stack_pending(&u->s, 0)) {
                stack_run(&u->s, ustack_now());
                n = udp_recv_peek(&u->s.udp, pcb, 0, &msg, 1);
        }
        if (n == -EAGAIN)
                ustack_levels_again(u, usock_rec(s), POLLIN);
        ustack_leave(u);
        return n == 0 && (flags & MSG_DONTWAIT || usock_nonblock(s)) ? -EAGAIN : n;
}

ssize_t usock_udp_recv(struct usock *s, struct msghdr *m, size_t total, int flags)
{
        ssize_t n;

        assert(s->kind == USOCK_UDP);
        if (unlikely(flags & MSG_ERRQUEUE))
                return usock_udp_recv_error(s, m, total);
        n = read_first(s, m->msg_iov, total, flags, m);
        if (likely(n != -EAGAIN))
                return n;
        n = let_in(s, flags);
        return n > 0 ? read_first(s, m->msg_iov, total, flags, m) : n;
}

ssize_t usock_udp_read(struct usock *s, void *p, size_t n, int flags)
{
        struct iovec iov = {p, n};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t r = flags == 0 ? usock_udp_read_short(s, p, n) : -EAGAIN;

        if (likely(r != -EAGAIN))
                return r;
        r = unlikely(flags & MSG_ERRQUEUE) ? -EAGAIN : read_first(s, &iov, n, flags, NULL);
        return likely(r != -EAGAIN) ? r : usock_udp_recv(s, &m, n, flags);
}
