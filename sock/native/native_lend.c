/*
 * The native API, <unet/flow.h>: without copies. What has come is lent where it lies; what is to be
 * sent is written where it will be sent from.
 *
 * Another user's stack reads our transmit frames and writes those that we read. So towards one, a
 * reservation is memory of this process's, copied when it is committed, and what came is copied
 * before it is lent: nobody sees what he was not sent, or changes what he has sent.
 */
#include <stdlib.h>
#include <sys/socket.h>

#include "sock/attach/handle.h"
#include "sock/attach/ustack_wake.h"
#include "sock/native/native.h"
#include "sock/usock_ready.h"
#include "sock/usock_stamp.h"
#include "tcp/tcp_lend.h"
#include "tcp/tcp_stream.h"
#include "unet/flow.h"

#define LEND_MOST   64 /* pieces a turn of the lock; */
#define LEND_COPIES 4  /* ... when they are copied in it */

static bool of_stranger(const struct usock *s)
{
        return s->u->s.chan[usock_conn(s)->tuple.chan].stranger;
}

/* A socket of TCP's, held; NULL: and -errno at *err. */
static struct native_slot *tcp_slot(int sock, int flags, int *err)
{
        struct native_slot *n = native_get(sock);

        *err = n == NULL                            ? -EBADF
               : n->us->kind != USOCK_TCP           ? -EOPNOTSUPP
               : flags & ~(MSG_DONTWAIT | MSG_MORE) ? -EINVAL
                                                    : 0;
        if (*err == 0 || n == NULL)
                return n;
        native_put(n);
        return NULL;
}

/* ---- receiving ---- */

/* Under the lock. */
static int lend(struct usock *s, struct tcp_lent *v, int n)
{
        struct ustack *u = s->u;
        nstime now = stack_time(&u->s, ustack_now());
        int got;

        assert(ustack_locked(u) && n > 0 && n <= LEND_MOST);
        stack_begin(u->s.st, usock_rec(s)->conn);
        got = tcp_recv_lend(&u->s.tcp, usock_conn(s), u->slot + 1, of_stranger(s), v,
                            of_stranger(s) ? MIN(n, LEND_COPIES) : n, now);
        stack_end(u->s.st);
        return got;
}

static int lend_now(struct usock *s, struct tcp_lent *v, int n)
{
        struct ustack *u = s->u;
        const struct sock_rec *rec = usock_rec(s);
        int got = -EAGAIN;

        ustack_lock(u);
        usock_tcp_settle(s);
        if (rec->role != SOCK_ROLE_CONN)
                got = -ENOTCONN;
        else if (rec->reader == 0)
                got = lend(s, v, n);
        if (got == -EAGAIN && rec->reader == 0 && stack_pending(&u->s, 0)) {
                stack_run(&u->s, ustack_now());
                if (rec->role == SOCK_ROLE_CONN)
                        got = lend(s, v, n);
        }
        if (got == -EAGAIN && u->s.st->nacks != 0)
                stack_flush_acks(&u->s, ustack_now());
        ustack_leave(u);
        return got;
}

static int recv_lend(struct native_slot *n, struct unet_loan *v, int count, int flags)
{
        nstime deadline = native_deadline(READ_ONCE(usock_rec(n->us)->rcvtimeo));
        struct tcp_lent lent[LEND_MOST];
        int got;

        if (v == NULL)
                return -EFAULT;
        if (count <= 0)
                return -EINVAL;
        while ((got = lend_now(n->us, lent, MIN(count, LEND_MOST))) == -EAGAIN &&
               !native_nowait(n, flags)) {
                got = native_wait(n, USOCK_POLL_SOME, deadline);
                if (got < 0)
                        break;
        }
        for (int i = 0; i < got; i++)
                v[i] = (struct unet_loan){lent[i].ptr, lent[i].len, 0, lent[i].token};
        return got;
}

int unet_recv_lend(int sock, struct unet_loan *v, int n, int flags)
{
        int err;
        struct native_slot *s = tcp_slot(sock, flags & ~MSG_MORE, &err);

        return (int)native_done(s, s != NULL ? recv_lend(s, v, n, flags) : err);
}

/* Under the lock. */
static int give_back(struct usock *s, const uint64_t *token, int n)
{
        struct ustack *u = s->u;
        nstime now = stack_time(&u->s, ustack_now());
        int err = 0;

        assert(ustack_locked(u));
        if (usock_rec(s)->role != SOCK_ROLE_CONN)
                return -EINVAL;
        for (int i = 0; i < n && err == 0; i++) {
                stack_begin(u->s.st, usock_rec(s)->conn);
                err = tcp_recv_return(&u->s.tcp, usock_conn(s), u->slot + 1, token[i], now);
                stack_end(u->s.st);
        }
        stack_flush(&u->s, now);
        return err;
}

static int recv_return(struct usock *s, const struct unet_loan *v, int n)
{
        uint64_t token[LEND_MOST];
        int err = 0, some;

        if (v == NULL)
                return -EFAULT;
        for (; n > 0 && err == 0; v += some, n -= some) {
                some = MIN(n, LEND_MOST);
                for (int i = 0; i < some; i++)
                        token[i] = v[i].token;
                ustack_lock(s->u);
                err = give_back(s, token, some);
                ustack_leave(s->u);
        }
        return err;
}

int unet_recv_return(int sock, const struct unet_loan *v, int n)
{
        int err;
        struct native_slot *s = tcp_slot(sock, 0, &err);

        return (int)native_done(s, s != NULL ? recv_return(s->us, v, n) : err);
}

/* ---- sending ---- */

/* A reservation that this process has: where it goes, and what was handed out for it. */
struct native_reserved {
        size_t bytes;
        uint32_t conn; /* the socket's may be another one by the commit */
        int n;
        struct span span[UNET_RESERVE_MOST];
        uint8_t *own; /* handed out instead, for the span is another user's to read; NULL: the spans
                         were */
};

/* The slot's, and not ended meanwhile. Under the lock. */
static bool is_ours(const struct native_slot *n)
{
        assert(ustack_locked(n->us->u));
        return n->reserved != NULL && usock_rec(n->us)->writer == n->us->u->slot + 1;
}

void native_unreserve(struct native_slot *n)
{
        if (n->reserved != NULL)
                free(n->reserved->own);
        free(n->reserved);
        n->reserved = NULL;
}

int native_reserve(struct usock *s, size_t want, struct span *span, int n)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        int got;

        assert(ustack_locked(u));
        if (rec->role == SOCK_ROLE_CONN && stack_pending(&u->s, 0))
                stack_run(&u->s, ustack_now());
        if (rec->role != SOCK_ROLE_CONN)
                return -EPIPE;
        if (rec->writer != 0)
                return usock_tcp_awaits_turn(s);
        stack_begin(u->s.st, rec->conn);
        got = tcp_send_reserve(&u->s.tcp, usock_conn(s), want, span, n);
        stack_end(u->s.st);
        if (got > 0)
                WRITE_ONCE(rec->writer, u->slot + 1);
        return got;
}

/* As native_reserve(). */
static int reserve(struct native_slot *n, struct native_reserved *r, size_t want)
{
        struct usock *s = n->us;
        int got = is_ours(n) ? -EBUSY : native_reserve(s, want, r->span, r->n);

        if (got <= 0)
                return got;
        stack_begin(s->u->s.st, usock_rec(s)->conn);
        tcp_send_in_place(&s->u->s.tcp, usock_conn(s));
        stack_end(s->u->s.st);
        native_unreserve(n); /* one that ended with its stack */
        r->conn = usock_rec(s)->conn;
        r->bytes = (size_t)got;
        n->reserved = r;
        return got;
}

/* What is handed out, of a reservation that is the slot's now. */
static int hand_out(const struct native_reserved *r, struct iovec *v)
{
        int n = 0;

        assert(r->bytes != 0);
        if (r->own != NULL) {
                v[0] = (struct iovec){r->own, r->bytes};
                return 1;
        }
        for (size_t at = 0; at < r->bytes; at += r->span[n++].len)
                v[n] = (struct iovec){r->span[n].ptr, r->span[n].len};
        return n;
}

/* What nobody was handed: the caller has it again. */
static void take_back(struct native_slot *n)
{
        ustack_lock(n->us->u);
        native_commit(n->us, n->reserved->conn, 0, 0);
        n->reserved = NULL;
        ustack_leave(n->us->u);
}

static int reserve_now(struct native_slot *n, struct native_reserved *r, size_t want,
                       struct iovec *v)
{
        struct ustack *u = n->us->u;
        bool stranger;
        int got;

        ustack_lock(u);
        got = reserve(n, r, want);
        stranger = got > 0 && of_stranger(n->us);
        ustack_leave(u);
        if (got <= 0)
                return got == 0 ? -EAGAIN : got;
        if (stranger && (r->own = malloc(r->bytes)) == NULL) {
                take_back(n);
                return -ENOMEM;
        }
        return hand_out(r, v);
}

static int send_reserve(struct native_slot *n, size_t want, struct iovec *v, int count, int flags)
{
        nstime deadline = native_deadline(READ_ONCE(usock_rec(n->us)->sndtimeo));
        struct native_reserved *r;
        int got;

        if (v == NULL)
                return -EFAULT;
        if (count <= 0 || want == 0)
                return -EINVAL;
        r = calloc(1, sizeof *r);
        if (r == NULL)
                return -ENOMEM;
        r->n = MIN(count, UNET_RESERVE_MOST);
        while ((got = reserve_now(n, r, want, v)) == -EAGAIN && !native_nowait(n, flags)) {
                got = native_wait(n, POLLOUT, deadline);
                if (got < 0)
                        break;
        }
        if (got <= 0)
                free(r);
        return got;
}

int unet_send_reserve(int sock, size_t bytes, struct iovec *v, int n, int flags)
{
        int err;
        struct native_slot *s = tcp_slot(sock, flags & ~MSG_MORE, &err);

        return (int)native_done(s, s != NULL ? send_reserve(s, bytes, v, n, flags) : err);
}

static void copy_own(const struct native_reserved *r, size_t bytes)
{
        assert(r->own != NULL && bytes <= r->bytes);
        for (size_t at = 0, i = 0, n; at < bytes; at += n, i++) {
                n = MIN(bytes - at, (size_t)r->span[i].len);
                memcpy(r->span[i].ptr, r->own + at, n);
        }
}

int native_commit(struct usock *s, uint32_t conn, size_t bytes, int flags)
{
        struct ustack *u = s->u;
        struct tcp_conn *tc = tcp_conn_at(&u->s.tcp, conn);
        nstime now = stack_time(&u->s, ustack_now());
        uint32_t before;

        assert(ustack_locked(u));
        WRITE_ONCE(usock_rec(s)->writer, 0);
        stack_begin(u->s.st, conn);
        before = tc->snd_end;
        tcp_send_commit(&u->s.tcp, tc, bytes, flags & MSG_MORE, false, now);
        before = tc->snd_end - before;
        stack_end(u->s.st);
        stack_flush(&u->s, now);
        ustack_turn_over(u, usock_rec(s));
        return before == 0 && bytes != 0 ? -EPIPE : (int)before;
}

void native_end_reserved(struct native_slot *n)
{
        struct ustack *u = n->us->u;

        if (likely(n->reserved == NULL))
                return;
        ustack_lock(u);
        if (is_ours(n))
                native_commit(n->us, n->reserved->conn, 0, 0);
        native_unreserve(n);
        ustack_leave(u);
}

static int commit(struct native_slot *n, size_t bytes, int flags)
{
        struct ustack *u = n->us->u;
        int sent = -EINVAL;

        ustack_lock(u);
        if (is_ours(n) && bytes <= n->reserved->bytes) {
                if (n->reserved->own != NULL && bytes != 0) {
                        ustack_unlock(u);
                        copy_own(n->reserved, bytes);
                        ustack_lock(u);
                }
                sent = native_commit(n->us, n->reserved->conn, bytes, flags);
                native_unreserve(n);
        }
        ustack_leave(u);
        return sent;
}

ssize_t unet_send_commit(int sock, size_t bytes, int flags)
{
        int err;
        struct native_slot *s = tcp_slot(sock, flags & ~MSG_DONTWAIT, &err);

        if (s != NULL)
                err = commit(s, bytes, flags);
        if (err > 0 && unlikely(usock_is_stamped(s->us)))
                usock_stamp_sent(s->us, 0);
        return native_done(s, err);
}
