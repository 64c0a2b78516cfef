/*
 * UDP_CORK and MSG_MORE (udp(7)): one datagram of what several calls send.
 *
 * What is begun waits in two frames of the stack's, since it is the socket's and not a process's:
 * whoever shares the socket adds to it, and it outlives who began it. Where it goes and what is
 * said beside it the first call decides, and connect() after it; the socket's end is its end.
 * Errors are those of Linux's udp_sendmsg(), which forgets what was begun when it cannot be added
 * to.
 *
 * A datagram whose first part was the kernel's business is the kernel's whole.
 */
#include "sock/udp/usock_udp.h"

#include <errno.h>
#include <netinet/in.h>

#include "sock/attach/cursor.h"
#include "sock/attach/handle.h"
#include "sock/attach/ustack_wake.h"
#include "sock/usock_ready.h"
#include "sock/usock_dgram.h"

struct corked { /* the first frame */
        struct udp_tuple to;
        uint32_t chan;
        uint8_t many, said;
        uint16_t segment; /* UDP_SEGMENT; 0: one datagram */
        uint32_t len;     /* bytes in the other frame */
        struct usock_sent sent;
};
static_assert(sizeof(struct corked) <= FRAME_SMALL_BYTES, "a small frame holds it");
static_assert(UDP_MAX_PAYLOAD <= FRAME_LARGE_BYTES, "a large frame holds the bytes");

#define LET_GO_WAIT (1 * NS_PER_S) /* for room, in a call that does not wait in Linux */

static struct corked *corked_of(struct usock *s)
{
        uint32_t id = usock_rec(s)->corked[0];

        return id != 0 ? (struct corked *)frame_addr(s->u->s.frames, id) : NULL;
}

static uint8_t *data_of(struct usock *s)
{
        return frame_addr(s->u->s.frames, usock_rec(s)->corked[1]);
}

static void set_flag(struct sock_rec *rec, uint8_t flag, bool on)
{
        WRITE_ONCE(rec->cork, (uint8_t)(on ? rec->cork | flag : rec->cork & ~flag));
}

void usock_udp_cork_end(struct ustack *u, struct sock_rec *rec)
{
        uint32_t id[2] = {rec->corked[0], rec->corked[1]};

        assert(ustack_locked(u));
        set_flag(rec, SOCK_CORK_OURS, false);
        if (id[0] == 0)
                return;
        /* A death from here on leaves frames that no record names: stack_recover(). */
        rec->corked[0] = 0;
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        rec->corked[1] = 0;
        frame_drop(u->s.frames, id[0]);
        frame_drop(u->s.frames, id[1]);
}

/* ---- its beginning ---- */

/* Two frames, named by the socket. False: there are none. */
static bool make(struct usock *s)
{
        struct frames *f = s->u->s.frames;
        struct sock_rec *rec = usock_rec(s);
        uint32_t id[2] = {frame_alloc(f, FRAME_REGION_PRIVATE, FRAME_SMALL, 0),
                          frame_alloc(f, FRAME_REGION_PRIVATE, FRAME_LARGE, 0)};

        if (id[0] == 0 || id[1] == 0) {
                for (int i = 0; i < 2; i++)
                        if (id[i] != 0)
                                frame_drop(f, id[i]);
                return false;
        }
        *(struct corked *)frame_addr(f, id[0]) = (struct corked){.len = 0};
        rec->corked[1] = id[1];
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        rec->corked[0] = id[0];
        return true;
}

/* With both ends, which are those of now: the errors of sending are told as well. */
static int begin_with(struct usock *s, const struct udp_dest *d, const struct usock_sent *sent,
                      bool said)
{
        struct sock_rec *rec = usock_rec(s);
        struct udp *u = &s->u->s.udp;
        struct udp_out out;
        struct corked *p;
        int err = udp_output_prepare(u, rec->conn, d->to.rport != 0 ? &d->to : NULL, 0, false, 0,
                                     &out);

        if (err != 0)
                return err;
        udp_output_cancel(u, rec->conn);
        if (!make(s))
                return -ENOBUFS;
        p = corked_of(s);
        p->to = out.tuple;
        p->chan = d->chan;
        p->many = d->many;
        p->said = said;
        p->sent = *sent;
        p->segment = sent->segment != 0 ? sent->segment : rec->segment;
        set_flag(rec, SOCK_CORK_OURS, true);
        return 0;
}

static int begin(struct usock *s, const struct msghdr *m, int flags)
{
        struct sock_rec *rec = usock_rec(s);
        struct usock_sent sent;
        struct udp_dest d;
        int err = usock_udp_said(s, m, &sent, &d);
        bool said = m->msg_controllen != 0 || READ_ONCE(rec->ip_opts);

        if (err == 0 && usock_udp_kernel_tells(s, flags, &sent, &d))
                err = -ENOENT;
        if (err == 0) {
                ustack_lock(s->u);
                err = rec->corked[0] == 0 ? begin_with(s, &d, &sent, said) : 0;
                ustack_leave(s->u);
        } else if (err == -ENOENT && s->kfd >= 0) {
                ustack_lock(s->u);
                set_flag(rec, SOCK_CORK_KERNEL, true);
                ustack_leave(s->u);
        }
        return err;
}

void usock_udp_cork_moved(struct usock *s)
{
        struct sock_rec *rec = usock_rec(s);
        struct corked *p = corked_of(s);
        struct udp_out out;

        assert(ustack_locked(s->u));
        if (likely(p == NULL) ||
            udp_output_prepare(&s->u->s.udp, rec->conn, NULL, 0, false, 0, &out) != 0)
                return;
        udp_output_cancel(&s->u->s.udp, rec->conn);
        p->to = out.tuple;
        p->chan = rec->chan - 1;
        p->many = rec->many & SOCK_MANY_PEERS;
}

/* ---- its end ---- */

/* What is in our frame goes as what comes from a program does: into a descriptor or a frame of
 * the channel. */
static int post_bytes(struct usock *s, const struct udp_dest *d, const uint8_t *bytes, uint32_t n)
{
        struct stack_payload pay = {.len = n};
        uint32_t opts = d->sent != NULL && d->sent->opts.len != 0 ? IP_OPTS_MAX : 0;
        int err;

        if (n <= UDP_STAGED_MAX - opts) {
                pay.inl = bytes;
                return usock_udp_post(s, d, &pay);
        }
        pay.data = (struct buf){.id = usock_udp_frame(s, d->chan, n), .len = n};
        if (pay.data.id == 0)
                return -EAGAIN;
        memcpy(frame_addr(s->u->s.frames, pay.data.id), bytes, n);
        err = usock_udp_post(s, d, &pay);
        if (err != 0)
                frame_drop(s->u->s.frames, pay.data.id);
        return err;
}

/* As one datagram, or as many as UDP_SEGMENT makes of it; where the queue fills on the way the rest
 * is lost. */
static int post_all(struct usock *s, const struct corked *p)
{
        const struct usock_sent *sent = p->said ? &p->sent : NULL;
        const struct udp_dest d = {.to = p->to, .chan = p->chan, .many = p->many, .sent = sent};
        const uint8_t *bytes = data_of(s);
        uint32_t done = 0, piece = p->segment != 0 ? p->segment : UDP_MAX_PAYLOAD;
        int err;

        if (stack_chan_get(&s->u->s, p->chan) == NULL)
                return 0; /* who it was for has gone */
        if (p->segment != 0 && p->len > p->segment * UDP_SEGMENTS_MAX)
                return -EINVAL;
        do {
                uint32_t n = MIN(piece, p->len - done);
                err = post_bytes(s, &d, bytes + done, n);
                if (err != 0)
                        return done != 0 && err == -EAGAIN ? 0 : err;
                done += n;
        } while (done < p->len);
        return 0;
}

/* What is begun is sent. -EAGAIN: it still is. Under the lock. */
static int let_go(struct usock *s)
{
        struct corked *p = corked_of(s);
        int err = p != NULL ? post_all(s, p) : 0;

        assert(ustack_locked(s->u));
        if (err != -EAGAIN)
                usock_udp_cork_end(s->u, usock_rec(s));
        return err;
}

/* ---- in between ---- */

#define GONE 1 /* somebody else ended it */

/* The copy is made without the lock; others wait for it, as they do for any. -EAGAIN:
 * for another's. */
static int turn_begin(struct usock *s, uint32_t n, uint8_t **to)
{
        struct sock_rec *rec = usock_rec(s);
        struct corked *p = corked_of(s);

        if (rec->writer != 0)
                return -EAGAIN;
        if (p == NULL)
                return GONE;
        if (p->len + n > UDP_MAX_PAYLOAD) {
                usock_udp_cork_end(s->u, rec);
                return -EMSGSIZE;
        }
        *to = data_of(s) + p->len;
        WRITE_ONCE(rec->writer, s->u->slot + 1);
        return 0;
}

/* It counts now, and if nothing is to follow the datagram leaves; if there is no room for it it is
 * as if nothing had been added. Until here nobody could end it. */
static int turn_end(struct usock *s, uint32_t n, bool good, bool more)
{
        struct sock_rec *rec = usock_rec(s);
        struct corked *p = corked_of(s);
        int err = 0;

        WRITE_ONCE(rec->writer, 0);
        p->len += n;
        if (!good) {
                usock_udp_cork_end(s->u, rec);
                err = -EFAULT;
        } else if (!more && !(rec->cork & SOCK_CORK_ON)) {
                err = let_go(s);
        }
        if (err == -EAGAIN)
                p->len -= n;
        ustack_turn_over(s->u, rec);
        return err;
}

static ssize_t add(struct usock *s, const struct msghdr *m, size_t total, bool more)
{
        struct cursor c = {m->msg_iov, 0, 0};
        uint8_t *to = NULL;
        bool good;
        int err;

        ustack_lock(s->u);
        err = turn_begin(s, (uint32_t)total, &to);
        if (err != 0) {
                ustack_leave(s->u);
                return err == GONE ? -ESTALE : err;
        }
        ustack_unlock(s->u);
        good = copy_in(&c, to, total);
        ustack_lock(s->u);
        err = turn_end(s, (uint32_t)total, good, more);
        ustack_leave(s->u);
        return err != 0 ? err : (ssize_t)total;
}

ssize_t usock_udp_send_corked(struct usock *s, const struct msghdr *m, size_t total, int flags)
{
        struct sock_rec *rec = usock_rec(s);
        bool more = flags & MSG_MORE;
        ssize_t r;

        if (READ_ONCE(rec->cork) & SOCK_CORK_KERNEL) {
                if (!more && !(READ_ONCE(rec->cork) & SOCK_CORK_ON))
                        usock_udp_kernel_uncorked(s);
                return -ENOENT;
        }
        do {
                r = READ_ONCE(rec->corked[0]) == 0 ? begin(s, m, flags) : 0;
                if (r == 0)
                        r = add(s, m, total, more);
        } while (r == -ESTALE);
        return r;
}

void usock_udp_kernel_uncorked(struct usock *s)
{
        if (likely(!(READ_ONCE(usock_rec(s)->cork) & SOCK_CORK_KERNEL)))
                return;
        ustack_lock(s->u);
        set_flag(usock_rec(s), SOCK_CORK_KERNEL, false);
        ustack_leave(s->u);
}

/* ---- the option ---- */

/* An error that is pending is for the next call that tells it. */
static int let_go_quietly(struct usock *s)
{
        struct udp *u = &s->u->s.udp;
        uint32_t pcb = usock_rec(s)->conn;
        int pending = udp_take_error(u, pcb), err = let_go(s);

        udp_put_error(u, pcb, pending);
        return err;
}

static void no_room(struct usock *s)
{
        ustack_lock(s->u);
        count_drop(&s->u->s.st->cnt, DROP_UDP_CORKED);
        usock_udp_cork_end(s->u, usock_rec(s));
        ustack_leave(s->u);
}

void usock_udp_uncorked(struct usock *s)
{
        struct sock_rec *rec = usock_rec(s);
        nstime left = LET_GO_WAIT, until = ustack_now() + left;
        int err;

        do {
                ustack_lock(s->u);
                set_flag(rec, SOCK_CORK_KERNEL, false);
                err = rec->writer == 0 && !(rec->cork & SOCK_CORK_ON) ? let_go_quietly(s) : 0;
                ustack_leave(s->u);
                left = MAX(until - ustack_now(), 0);
        } while (err == -EAGAIN && !usock_nonblock(s) && usock_wait1(s, POLLOUT, left) == 0);
        if (err == -EAGAIN)
                no_room(s);
}
