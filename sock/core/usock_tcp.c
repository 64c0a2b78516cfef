/*
 * TCP sockets: send and receive (usock_connect.c: connect and listen).
 *
 * The application's memory is never touched under the stack's lock: a page fault, a stopped process
 * or a bad pointer there would hold everybody up. Small data goes through a buffer on the thread's
 * stack, and the lock is taken once. Large data is copied between reserve and commit, or peek and
 * consume, without the lock.
 */
#include "sock/attach/ustack.h"

#include <errno.h>
#include <poll.h>
#include <sys/single_threaded.h>

#include "sock/attach/cursor.h"
#include "sock/attach/handle.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_levels.h"
#include "sock/attach/ustack_wake.h"
#include "sock/usock_connect.h"
#include "tcp/tcp_stream.h"

#define STAGE_BYTES 2048u /* copied through our own stack */
#define SPANS       8
#define SEND_CHUNK  131072u /* most that is reserved before some of it is on its way */

/* libc copies twice as much with one string instruction, where the processor has AVX2 and says
 * that it is fast (glibc's rep_movsb_threshold). What goes over verbs is seldom enough for
 * that to matter, but to emulated processors (which soft-RoCE is tested in), where it is a
 * loop by bytes. */
#define REMOTE_PIECE 4096u

static size_t copy_piece(const struct ustack *u, const struct tcp_conn *tc)
{
        return u->s.chan[tc->tuple.chan].remote ? REMOTE_PIECE : 0;
}

/* ---- sending ---- */

/* What came from another host is looked at before anything is sent. So, as with the kernel, which
 * has it before a call begins, an answer acknowledges it, and a reset is told of. Between
 * processes, where nothing is lost by it, it may wait. */
void usock_tcp_hear(struct usock *s)
{
        struct ustack *u = s->u;
        const struct sock_rec *rec = usock_rec(s);
        const struct stack_chan *c;

        if (rec->role != SOCK_ROLE_CONN)
                return;
        c = &u->s.chan[tcp_conn_at(&u->s.tcp, rec->conn)->tuple.chan];
        if (unlikely(c->netif.nif != NULL) && c->ops != NULL && c->ops->pending(c->ch))
                stack_run(&u->s, ustack_now());
        else
                ustack_hear_own(u, tcp_conn_at(&u->s.tcp, rec->conn)->tuple.chan);
}

/* Who waits for the socket hears of an error that its next call will tell. Under the lock. */
static void error_kept(struct ustack *u, const struct sock_rec *rec)
{
        assert(ustack_locked(u));
        ustack_event(&u->s, pool_index(&u->s.st->socks, rec), TCP_EV_READABLE);
}

static void keep_conn_error(struct ustack *u, struct sock_rec *rec, int err)
{
        struct tcp_conn *tc = tcp_conn_at(&u->s.tcp, rec->conn);

        if (tc->err != 0)
                return;
        WRITE_ONCE(tc->err, (int16_t)err);
        error_kept(u, rec);
}

/* Of the connection, and told once; beside those a call fails of itself, or will fail again. Under
 * the lock. */
static void keep_error(struct ustack *u, struct sock_rec *rec, ssize_t r)
{
        bool once = r == -ECONNRESET || r == -ETIMEDOUT || r == -EHOSTUNREACH ||
                    r == -ENETUNREACH || r == -ECONNABORTED;

        if (once && rec->role == SOCK_ROLE_CONN)
                keep_conn_error(u, rec, (int)-r);
}

void usock_keep_error(struct usock *s, ssize_t r)
{
        ustack_lock(s->u);
        keep_error(s->u, usock_rec(s), r);
        ustack_leave(s->u);
}

void usock_put_error(struct usock *s, int err)
{
        struct sock_rec *rec = usock_rec(s);

        ustack_lock(s->u);
        if (rec->role == SOCK_ROLE_UDP) {
                udp_put_error(&s->u->s.udp, rec->conn, err);
                error_kept(s->u, rec);
        } else if (rec->role == SOCK_ROLE_CONN) {
                keep_conn_error(s->u, rec, err);
        }
        ustack_leave(s->u);
}

/* Room for a reservation, after what arrived meanwhile was looked at. As tcp_send_reserve. */
static int reserve(struct ustack *u, struct tcp_conn *tc, size_t want, struct span *span,
                   nstime now)
{
        int got = tcp_send_reserve(&u->s.tcp, tc, want, span, SPANS);

        if (got == 0 && stack_pending(&u->s, 0)) {
                stack_run(&u->s, now);
                stack_begin(u->s.st, tc->self);
                got = tcp_send_reserve(&u->s.tcp, tc, want, span, SPANS);
        }
        return got;
}

/* To a peer that has ended, and may have closed: what it has said of that is taken first. */
static void refuse_sent(struct ustack *u, struct tcp_conn *tc, nstime now)
{
        if (stack_pending(&u->s, 0))
                stack_run(&u->s, now);
        stack_begin(u->s.st, tc->self);
        tcp_refuse_sent(&u->s.tcp, tc);
        stack_end(u->s.st);
        stack_flush(&u->s, now);
}

static void commit(struct ustack *u, struct tcp_conn *tc, size_t n, int flags, nstime now)
{
        now = stack_time(&u->s, now);
        tcp_send_commit(&u->s.tcp, tc, n, flags & MSG_MORE, flags & MSG_OOB, now);
        if (unlikely(flags & MSG_EOR))
                tcp_send_end_record(&u->s.tcp, tc);
        stack_end(u->s.st);
        stack_flush(&u->s, now);
        if (unlikely(tc->state == TCPS_CLOSE_WAIT))
                refuse_sent(u, tc, now);
}

/* The bytes only make the last unsent segment longer, if there is one. Under the lock. */
static bool send_appended(struct ustack *u, struct sock_rec *rec, const uint8_t *p, size_t n,
                          int flags)
{
        struct tcp_conn *tc;
        bool done;

        if (rec->role != SOCK_ROLE_CONN || rec->writer != 0 ||
            flags & (MSG_MORE | MSG_OOB | MSG_EOR))
                return false;
        tc = tcp_conn_at(&u->s.tcp, rec->conn);
        if (tc->snd_next == 0 || stack_pending(&u->s, 0))
                return false;
        stack_begin(u->s.st, rec->conn);
        done = tcp_send_append(&u->s.tcp, tc, p, (uint32_t)n);
        stack_end(u->s.st);
        return done;
}

int usock_tcp_awaits_turn(struct usock *s)
{
        int err = tcp_send_reserve(&s->u->s.tcp, usock_conn(s), 0, NULL, 0);

        assert(ustack_locked(s->u));
        return err == 0 || err == -EBUSY ? -EAGAIN : err;
}

static ssize_t send_staged(struct usock *s, const uint8_t *p, size_t n, int flags)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct span span[SPANS];
        struct tcp_conn *tc;
        nstime now;
        int got = -EAGAIN;

        usock_relay_first(s);
        ustack_lock(u);
        usock_tcp_hear(s);
        if (send_appended(u, rec, p, n, flags)) {
                ustack_leave(u);
                return (ssize_t)n;
        }
        now = ustack_now();
        if (likely(rec->role == SOCK_ROLE_CONN && rec->writer == 0)) {
                now = stack_time(&u->s, now);
                tc = tcp_conn_at(&u->s.tcp, rec->conn);
                stack_begin(u->s.st, rec->conn);
                got = reserve(u, tc, n, span, now);
                if (got > 0) {
                        for (int i = 0, at = 0; at < got; at += (int)span[i++].len)
                                memcpy(span[i].ptr, p + at, span[i].len);
                        commit(u, tc, (size_t)got, flags, now);
                } else {
                        stack_end(u->s.st);
                }
        } else if (rec->role != SOCK_ROLE_CONN) {
                got = -EPIPE; /* as Linux: never connected */
        } else {
                got = usock_tcp_awaits_turn(s);
        }
        if (got == 0)
                ustack_levels_again(u, rec, POLLOUT);
        ustack_leave(u);
        return got == 0 ? -EAGAIN : got;
}

/* One reservation: bytes sent, 0 when there is no room, -errno. The lock is held before and after,
 * not meanwhile. */
static ssize_t send_chunk(struct usock *s, struct cursor *c, size_t want, int flags)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct tcp_conn *tc = tcp_conn_at(&u->s.tcp, rec->conn);
        struct span span[SPANS];
        nstime now = stack_time(&u->s, ustack_now());
        bool good = true;
        int got;

        assert(ustack_locked(u));
        assert(rec->writer == 0);
        stack_begin(u->s.st, rec->conn);
        got = reserve(u, tc, want, span, now);
        stack_end(u->s.st);
        if (got <= 0)
                return got;
        WRITE_ONCE(rec->writer, u->slot + 1);
        c->piece = copy_piece(u, tc);
        ustack_unlock(u);
        for (int i = 0, at = 0; at < got && good; at += (int)span[i++].len)
                good = copy_in(c, span[i].ptr, span[i].len);
        ustack_lock(u);
        WRITE_ONCE(rec->writer, 0);
        stack_begin(u->s.st, tc->self);
        commit(u, tc, good ? (size_t)got : 0, flags, ustack_now());
        ustack_turn_over(u, rec);
        return good ? got : -EFAULT;
}

static ssize_t send_copied(struct usock *s, struct cursor *c, size_t total, int flags)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        size_t done = 0;
        ssize_t got = -EPIPE;
        uint32_t conn;

        usock_relay_first(s);
        ustack_lock(u);
        usock_tcp_hear(s);
        conn = rec->conn;
        while (rec->role == SOCK_ROLE_CONN && rec->conn == conn && done < total) {
                size_t left = total - done;
                if (unlikely(rec->writer != 0)) {
                        got = usock_tcp_awaits_turn(s);
                        break;
                }
                got = send_chunk(s, c, MIN(left, SEND_CHUNK),
                                 left > SEND_CHUNK ? (flags & ~MSG_EOR) | MSG_MORE : flags);
                if (got <= 0)
                        break;
                done += (size_t)got;
        }
        if (unlikely(done > 0 && got < 0))
                keep_error(u, rec, got);
        if (done == 0 && got == 0)
                ustack_levels_again(u, rec, POLLOUT);
        ustack_leave(u);
        if (done > 0)
                return (ssize_t)done;
        return got == 0 ? -EAGAIN : got;
}

/* As Linux: a message of no bytes opens as well. */
static void begin_opening(struct ustack *u, struct tcp_conn *tc)
{
        nstime now = stack_time(&u->s, ustack_now());

        assert(ustack_locked(u));
        stack_begin(u->s.st, tc->self);
        tcp_fastopen_go(&u->s.tcp, tc, now);
        stack_end(u->s.st);
        stack_flush(&u->s, now);
}

/* Says whether anything could be sent, ever. */
static ssize_t send_nothing(struct usock *s)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        int err = -EPIPE;

        ustack_lock(u);
        if (rec->role == SOCK_ROLE_CONN)
                err = tcp_send_reserve(&u->s.tcp, tcp_conn_at(&u->s.tcp, rec->conn), 0, NULL, 0);
        if (unlikely(err == 0 && usock_fastopen_waits(s))) {
                begin_opening(u, tcp_conn_at(&u->s.tcp, rec->conn));
                err = -EINPROGRESS;
        }
        ustack_leave(u);
        return err == -EBUSY ? 0 : err;
}

ssize_t usock_tcp_send(struct usock *s, const struct iovec *iov, int n, size_t total, int flags)
{
        struct cursor c = {iov, 0, 0};
        uint8_t stage[STAGE_BYTES];

        if (total == 0)
                return send_nothing(s);
        if (total > STAGE_BYTES)
                return send_copied(s, &c, MIN(total, (size_t)INT32_MAX), flags);
        if (unlikely(!copy_in(&c, stage, total)))
                return -EFAULT;
        return send_staged(s, stage, total, flags);
}

/* ---- receiving ---- */

static int peek(struct ustack *u, struct tcp_conn *tc, size_t skip, size_t want, struct span *span)
{
        int got = tcp_recv_peek(&u->s.tcp, tc, skip, want, span, SPANS);

        if (got == -EAGAIN && stack_pending(&u->s, 0)) {
                stack_run(&u->s, ustack_now());
                got = tcp_recv_peek(&u->s.tcp, tc, skip, want, span, SPANS);
        }
        return got;
}

/* `now`: as it was read in this turn of the lock; 0: it was not. */
static void consume(struct ustack *u, struct tcp_conn *tc, size_t n, nstime now)
{
        now = stack_time(&u->s, now != 0 ? now : ustack_now());
        stack_begin(u->s.st, tc->self);
        tcp_recv_consume(&u->s.tcp, tc, n, now);
        stack_end(u->s.st);
        stack_flush(&u->s, now);
}

/*
 * A program that reads a few bytes at a time takes the lock for the first of them. With them it
 * takes, *ahead*, what is left of the first queued segment. What it reads next is copied from there
 * without the lock. The bytes stay in the queue until all but the last have been read, or until
 * somebody looks (usock_tcp_settle()). So what is unread is never nothing while the queue says that
 * there is something. Readiness is as without it, and so is what becomes of a connection that is
 * closed or whose process is killed. The window opens later by as much as was taken, at most a
 * quarter of the buffer.
 *
 * Only where nobody else can read: one thread, one process, and the number never left it.
 * rec->reader stands in the way of any other, should that go wrong. After another process died
 * inside, the queue may have been purged: nothing is read from it without the lock then.
 */
#define AHEAD_READS 4u /* reads like this one that must be left to make it worth while */

static uint64_t recoveries(const struct usock *s)
{
        return s->u->s.st->cnt.n[COUNT_STACK_RECOVERIES];
}

static void take_ahead(struct usock *s, struct sock_rec *rec, const struct tcp_conn *tc, size_t n)
{
        const uint8_t *p;
        uint32_t left;

        assert(ustack_locked(s->u));
        assert(s->ahead.left == 0);
        if (!usock_alone(s) || rec->peeks_on)
                return;
        left = tcp_recv_ahead(&s->u->s.tcp, tc, &p);
        if (left <= AHEAD_READS * n)
                return;
        WRITE_ONCE(rec->reader, s->u->slot + 1);
        s->ahead.at = p;
        WRITE_ONCE(s->ahead.left, left);
        s->ahead.used = 0;
        s->ahead.recoveries = recoveries(s);
}

bool usock_tcp_read_ahead(struct usock *s, void *p, size_t n)
{
        if (unlikely(!__libc_single_threaded || s->ahead.recoveries != recoveries(s)))
                return false;
        if (unlikely(!user_copy(p, s->ahead.at, n)))
                return false; /* the long way tells */
        s->ahead.at += n;
        WRITE_ONCE(s->ahead.left, s->ahead.left - (uint32_t)n);
        s->ahead.used += (uint32_t)n;
        frame_fetch(s->ahead.at, (uint32_t)MIN(MIN(n, (size_t)STAGE_BYTES), s->ahead.left));
        return true;
}

void usock_tcp_settle(struct usock *s)
{
        struct sock_rec *rec = usock_rec(s);
        uint32_t used = s->ahead.used;

        if (likely(s->ahead.left == 0))
                return;
        WRITE_ONCE(s->ahead.left, 0);
        s->ahead.used = 0;
        WRITE_ONCE(rec->reader, 0);
        if (used != 0 && rec->role == SOCK_ROLE_CONN)
                consume(s->u, usock_conn(s), used, 0);
        ustack_turn_over(s->u, rec);
}

void ustack_settle(struct ustack *u)
{
        for (struct usock *s = u->handles; s != NULL; s = s->next)
                usock_tcp_settle(s);
}

/*
 * What was taken out of the queue did not find the application's memory: it goes back. If there is
 * somebody who has read on meanwhile, or no memory for it, the connection is reset: a stream has no
 * holes.
 */
static ssize_t give_back(struct usock *s, const uint8_t *p, size_t n, uint32_t seq)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        nstime now = ustack_now();

        assert(!ustack_locked(u));
        assert(n <= STAGE_BYTES);
        ustack_lock(u);
        usock_tcp_settle(s);
        if (rec->role == SOCK_ROLE_CONN) {
                now = stack_time(&u->s, now);
                stack_begin(u->s.st, rec->conn);
                if (!tcp_recv_give_back(&u->s.tcp, usock_conn(s), p, (uint32_t)n, seq))
                        tcp_abort(&u->s.tcp, usock_conn(s), now);
                stack_end(u->s.st);
                stack_flush(&u->s, now);
                /* Who looked meanwhile has seen nothing. */
                ustack_event(&u->s, s->idx, TCP_EV_READABLE);
        }
        ustack_leave(u);
        return -EFAULT;
}

/* stack_take() was called with `now`, unless that is 0: here is the flush that it wants. */
static void took(struct ustack *u, nstime now)
{
        if (now != 0)
                stack_flush(&u->s, now);
}

/* All there is, when it is little: one turn of the lock, then the copy to the application. -EAGAIN
 * here means: take the long way. The lock is left in any other case. `now`: as in took(); what is
 * acknowledged is, by then, read as well. */
static ssize_t recv_staged(struct usock *s, struct cursor *c, size_t total, int flags, nstime now)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct tcp_conn *tc = tcp_conn_at(&u->s.tcp, rec->conn);
        struct span span[SPANS];
        uint8_t stage[STAGE_BYTES];
        size_t avail = tcp_recv_avail(tc);
        uint32_t seq;
        int got;

        if (total <= sizeof stage && !(flags & (MSG_PEEK | MSG_TRUNC))) {
                bool taken;
                stack_begin(u->s.st, tc->self);
                taken = tcp_recv_take(&u->s.tcp, tc, stage, (uint32_t)total);
                stack_end(u->s.st);
                if (taken) {
                        seq = copied_seq(tc);
                        take_ahead(s, rec, tc, total);
                        took(u, now);
                        ustack_leave(u);
                        return likely(copy_out(c, stage, total)) ? (ssize_t)total
                                                                 : give_back(s, stage, total, seq);
                }
        }
        if (avail == 0 || MIN(avail, total) > sizeof stage || flags & MSG_TRUNC)
                return -EAGAIN;
        got = tcp_recv_peek(&u->s.tcp, tc, 0, total, span, SPANS);
        if (got <= 0 || (size_t)got < MIN(avail, total))
                return -EAGAIN;
        for (int i = 0, at = 0; at < got; at += (int)span[i++].len)
                memcpy(stage + at, span[i].ptr, span[i].len);
        if (!(flags & MSG_PEEK))
                consume(u, tc, (size_t)got, now);
        else
                took(u, now);
        seq = copied_seq(tc);
        ustack_leave(u);
        if (likely(copy_out(c, stage, (size_t)got)))
                return got;
        return flags & MSG_PEEK ? -EFAULT : give_back(s, stage, (size_t)got, seq);
}

/* What is there, once: bytes, 0 at the end of the stream, -errno. The lock is held before and
 * after, not while copying. MSG_TRUNC throws the bytes away instead of copying them (tcp(7)). */
static ssize_t recv_once(struct usock *s, struct cursor *c, size_t skip, size_t want, int flags,
                         nstime *came)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct tcp_conn *tc = tcp_conn_at(&u->s.tcp, rec->conn);
        struct span span[SPANS];
        int got = peek(u, tc, skip, want, span);
        bool good = true;

        assert(ustack_locked(u));
        assert(rec->reader == 0);
        if (got <= 0)
                return got;
        if (unlikely(came != NULL))
                *came = tcp_recv_stamp(&u->s.tcp, tc, (uint32_t)skip + (uint32_t)got - 1,
                                       stack_time(&u->s, ustack_now()));
        if (!(flags & MSG_TRUNC)) {
                WRITE_ONCE(rec->reader, u->slot + 1);
                c->piece = copy_piece(u, tc);
                ustack_unlock(u);
                good = copy_spans(c, span, (size_t)got);
                ustack_lock(u);
                WRITE_ONCE(rec->reader, 0);
        }
        if (unlikely(!good))
                got = -EFAULT;
        else if (!(flags & MSG_PEEK))
                consume(u, tc, (size_t)got, 0);
        ustack_turn_over(u, rec);
        return got;
}

/* Returns true if a read that has taken something goes on: not past an urgent byte. */
static bool more_to_take(const struct tcp_conn *tc, size_t skip)
{
        return tcp_recv_avail(tc) > skip && !tcp_at_mark(tc, skip);
}

static ssize_t recv_urgent(struct usock *s, struct cursor *c, size_t total, int flags)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        int byte = -EINVAL;
        uint8_t b;

        ustack_lock(u);
        usock_tcp_settle(s);
        if (rec->role == SOCK_ROLE_CONN)
                byte = tcp_recv_urgent(&u->s.tcp, usock_conn(s), flags & MSG_PEEK);
        ustack_leave(u);
        if (byte < 0)
                return byte;
        b = (uint8_t)byte;
        if (total == 0)
                return 0;
        return copy_out(c, &b, 1) ? 1 : -EFAULT;
}

/* Leaves the lock. `now`: as in took(). */
static ssize_t recv_locked(struct usock *s, struct cursor *c, size_t total, int flags, nstime *came,
                           nstime now)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct span any[SPANS];
        size_t done = 0, from;
        ssize_t got = -ENOTCONN;

        assert(ustack_locked(u));
        usock_tcp_settle(s);
        from = usock_peek_from(rec, flags);
        if (unlikely(flags & MSG_PEEK) && rec->role == SOCK_ROLE_CONN &&
            tcp_recv_avail(usock_conn(s)) < from + total)
                ustack_catch_up(u);
        if (likely(rec->role == SOCK_ROLE_CONN && rec->reader == 0)) {
                if ((tcp_recv_avail(usock_conn(s)) == 0 || unlikely(came != NULL)) &&
                    stack_pending(&u->s, 0))
                        stack_take(&u->s, now = ustack_now());
                got = likely(came == NULL && !rec->peeks_on) ? recv_staged(s, c, total, flags, now)
                                                             : -EAGAIN;
                if (got != -EAGAIN)
                        return got;
        }
        took(u, now);
        do {
                if (unlikely(rec->role != SOCK_ROLE_CONN))
                        break;
                if (unlikely(rec->reader != 0)) {
                        got = -EAGAIN;
                        break;
                }
                if (total == 0) { /* as Linux: waits all the same for something to be there */
                        got = MIN(peek(u, usock_conn(s), 0, 1, any), 0);
                        break;
                }
                got = recv_once(s, c, flags & MSG_PEEK ? from + done : 0, total - done, flags,
                                came);
                if (got <= 0)
                        break;
                done += (size_t)got;
        } while (done < total && more_to_take(usock_conn(s), flags & MSG_PEEK ? from + done : 0));
        if (unlikely(rec->peeks_on))
                usock_peek_moves(rec, flags, done);
        if (got == -EAGAIN && u->s.st->nacks != 0)
                /* The turn is over: no answer will carry them. */
                stack_flush_acks(&u->s, ustack_now());
        if (got == -EAGAIN && done == 0 && from == 0 && rec->reader == 0)
                ustack_levels_again(u, rec, POLLIN);
        ustack_leave(u);
        return done > 0 ? (ssize_t)done : got;
}

ssize_t usock_tcp_recv_locked(struct usock *s, const struct iovec *iov, size_t total, int flags,
                              nstime now)
{
        struct cursor c = {iov, 0, 0};

        if (unlikely(atomic_load_explicit(&s->rec->relay, memory_order_relaxed) != 0)) {
                took(s->u, now);
                ustack_leave(s->u);
                return -EAGAIN; /* usock_relay_ask() is called without the lock */
        }
        return recv_locked(s, &c, MIN(total, (size_t)INT32_MAX), flags, NULL, now);
}

ssize_t usock_tcp_recv(struct usock *s, const struct iovec *iov, int n, size_t total, int flags,
                       nstime *came)
{
        struct cursor c = {iov, 0, 0};

        if (flags & MSG_OOB)
                return recv_urgent(s, &c, total, flags);
        usock_relay_first(s);
        ustack_lock(s->u);
        return recv_locked(s, &c, MIN(total, (size_t)INT32_MAX), flags, came, 0);
}
