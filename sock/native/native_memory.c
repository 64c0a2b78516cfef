/*
 * The native API, <unet/flow.h>: memory of the program's own, sent without a copy, and cookies that
 * say when nobody reads it any more.
 *
 * A socket's cookies stand in a queue of this process's. Each part that was sent by name has an
 * entry, and the cookie of the call stands behind those of its parts. An entry is over when its
 * name is (base/frame.h). So nothing of a cookie is in the stack: it ends with the process, and a
 * child of fork() has none.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/sys.h"
#include "sock/attach/handle.h"
#include "sock/attach/ustack_chan.h"
#include "sock/native/native.h"
#include "sock/usock_stamp.h"
#include "tcp/tcp_stream.h"
#include "unet/flow.h"

#define ENTRIES   2048u      /* of a socket */
#define PART_MOST (1u << 20) /* of one name: its segments are counted in 16 bits */
#define COPY_MOST 4096u      /* bytes that are copied sooner than named */

static_assert(UNET_MEMORY_COOKIES * 2 <= ENTRIES, "each has a part at least");

struct entry { /* WRITE_ONCE(): poll sets look without the lock */
        uint64_t cookie;
        uint32_t name, serial; /* name 0: over */
        uint32_t tells;        /* 1: it is a cookie; 0: a part that one behind it waits for */
};

struct native_cookies {
        uint32_t first, end; /* counts; WRITE_ONCE() */
        uint32_t cookies;    /* of the entries */
        uint32_t begun;      /* calls under way, each of which may bring one */
        struct entry at[ENTRIES];
};

/* ---- memory ---- */

static int memory_new(size_t bytes, void **out)
{
        struct ustack *u;
        uint8_t *p;
        int err = native_start();

        if (out == NULL)
                return -EFAULT;
        if (err != 0)
                return err;
        u = ustack_mine(&err);
        if (u == NULL)
                return err;
        ustack_lock(u);
        p = ustack_map_memory(u) ? stack_memory_take(&u->s, bytes, u->slot + 1) : NULL;
        ustack_leave(u);
        if (p == NULL)
                return bytes == 0 ? -EINVAL : -ENOMEM;
        /* A dead process may have left something there. */
        sys3(SYS_madvise, p, ALIGN_UP(bytes, STACK_MEMORY_UNIT), MADV_REMOVE);
        *out = p;
        return 0;
}

int unet_memory_new(size_t bytes, void **out)
{
        return (int)native_result(memory_new(bytes, out));
}

int unet_memory_free(void *p)
{
        int err = 0;
        struct ustack *u = ustack_has_any() ? ustack_mine(&err) : NULL;
        int64_t bytes = -EINVAL;

        if (u != NULL) {
                ustack_lock(u);
                if (stack_pending(&u->s, 0))
                        stack_run(&u->s, ustack_now());
                bytes = stack_memory_give(&u->s, p, u->slot + 1);
                if (bytes > 0) /* under the lock: it may be another thread's after it */
                        sys3(SYS_madvise, p, bytes, MADV_REMOVE);
                ustack_leave(u);
        }
        return (int)native_result(bytes < 0 ? (int)bytes : 0);
}

/* ---- cookies ---- */

static bool is_over(const struct native_slot *n, const struct entry *e)
{
        uint32_t name = READ_ONCE(e->name);

        return name == 0 || frame_name_over(n->us->u->s.frames, name, READ_ONCE(e->serial));
}

uint32_t native_cookies_ready(const struct native_slot *n, bool *any)
{
        const struct native_cookies *q = __atomic_load_n(&n->cookies, __ATOMIC_ACQUIRE);
        uint32_t at, last;

        *any = false;
        if (likely(q == NULL))
                return 0;
        at = last = READ_ONCE(q->first);
        for (; at != __atomic_load_n(&q->end, __ATOMIC_ACQUIRE); at++) {
                const struct entry *e = &q->at[at % ENTRIES];
                if (!is_over(n, e))
                        break;
                if (READ_ONCE(e->tells) == 0)
                        continue;
                *any = true;
                last = at + 1;
        }
        return last;
}

void native_cookies_end(struct native_slot *n)
{
        free(n->cookies);
        n->cookies = NULL;
}

/* Under the lock; there is room. */
static void push(struct native_slot *n, uint64_t cookie, uint32_t name, uint32_t serial, bool tells)
{
        struct native_cookies *q = n->cookies;
        struct entry *e = &q->at[q->end % ENTRIES];

        assert(ustack_locked(n->us->u) && q->end - q->first < ENTRIES);
        WRITE_ONCE(e->cookie, cookie);
        WRITE_ONCE(e->name, name);
        WRITE_ONCE(e->serial, serial);
        WRITE_ONCE(e->tells, tells);
        q->cookies += tells;
        __atomic_store_n(&q->end, q->end + 1, __ATOMIC_RELEASE);
}

/* Entries that may be made for parts: each cookie that can come has its place. */
static uint32_t part_room(const struct native_cookies *q)
{
        uint32_t used = q->end - q->first, kept = UNET_MEMORY_COOKIES - q->cookies;

        return used + kept < ENTRIES ? ENTRIES - used - kept : 0;
}

/* Under the lock. */
static int reap(struct native_slot *n, uint64_t *cookie, int count)
{
        struct native_cookies *q = n->cookies;
        struct ustack *u = n->us->u;
        int got = 0;

        assert(ustack_locked(u));
        if (q == NULL)
                return 0;
        if (stack_pending(&u->s, 0))
                stack_run(&u->s, ustack_now());
        while (q->first != q->end && is_over(n, &q->at[q->first % ENTRIES])) {
                const struct entry *e = &q->at[q->first % ENTRIES];
                if (e->tells && got == count)
                        break;
                if (e->tells)
                        cookie[got++] = e->cookie;
                q->cookies -= e->tells;
                WRITE_ONCE(q->first, q->first + 1);
        }
        return got;
}

int unet_memory_reap(int sock, uint64_t *cookie, int n)
{
        int err;
        struct native_slot *s;

        if (cookie == NULL || n <= 0)
                return (int)native_result(cookie == NULL ? -EFAULT : -EINVAL);
        s = native_enter(sock, &err);
        return s != NULL ? native_leave(s, reap(s, cookie, n)) : (int)native_result(err);
}

/* ---- sending ---- */

/* Returns true if a peer can read it where it is. Under the lock. */
static bool goes_by_name(const struct native_slot *n, size_t len)
{
        const struct usock *s = n->us;

        return len > COPY_MOST && usock_rec(s)->role == SOCK_ROLE_CONN &&
               part_room(n->cookies) != 0 && ustack_chan_names(s->u, usock_conn(s)->tuple.chan);
}

/* Under the lock. Bytes that go; -EAGAIN; -ENOBUFS: there is no name. */
static int send_named(struct native_slot *n, const uint8_t *p, size_t len, int flags)
{
        struct usock *s = n->us;
        struct ustack *u = s->u;
        struct tcp_conn *tc = usock_conn(s);
        nstime now = stack_time(&u->s, ustack_now());
        uint32_t off, serial, name = stack_memory_name(&u->s, tc->tuple.chan, tc, p, &off, &serial);
        int got;

        if (name == 0)
                return -ENOBUFS;
        stack_begin(u->s.st, tc->self);
        got = tcp_send_reserve_named(&u->s.tcp, tc, name, off, MIN(len, PART_MOST));
        if (got > 0) {
                push(n, 0, name, serial, false);
                tcp_send_commit(&u->s.tcp, tc, (size_t)got, flags & MSG_MORE, false, now);
        }
        frame_drop(u->s.frames, name);
        stack_end(u->s.st);
        stack_flush(&u->s, now);
        return got == 0 ? -EAGAIN : got;
}

static ssize_t send_part(struct native_slot *n, const uint8_t *p, size_t len, int flags)
{
        struct usock *s = n->us;
        struct ustack *u = s->u;
        int got = -ENOBUFS;

        usock_relay_first(s);
        ustack_lock(u);
        if (usock_rec(s)->role == SOCK_ROLE_CONN && stack_pending(&u->s, 0))
                stack_run(&u->s, ustack_now());
        if (goes_by_name(n, len))
                got = usock_rec(s)->writer != 0 ? usock_tcp_awaits_turn(s)
                                                : send_named(n, p, len, flags);
        ustack_leave(u);
        return got != -ENOBUFS ? got : usock_send(s, p, len, flags | MSG_NOSIGNAL);
}

static ssize_t send_parts(struct native_slot *n, const uint8_t *p, size_t len, int flags)
{
        nstime deadline = native_deadline(READ_ONCE(usock_rec(n->us)->sndtimeo));
        size_t done = 0;
        ssize_t r = 0;

        while (done < len) {
                r = send_part(n, p + done, len - done, flags);
                if (r == -EAGAIN && !native_nowait(n, flags)) {
                        r = native_wait(n, POLLOUT, deadline);
                        if (r == 0)
                                continue;
                }
                if (r < 0)
                        break;
                done += (size_t)r;
        }
        return done > 0 ? (ssize_t)done : r;
}

/* The queue, with a place for the cookie of this call. */
static int begin(struct native_slot *n, const void *p, size_t len)
{
        struct native_cookies *fresh = n->cookies == NULL ? calloc(1, sizeof *fresh) : NULL;
        struct ustack *u = n->us->u;
        int err = 0;

        ustack_lock(u);
        if (n->cookies == NULL && fresh != NULL) {
                __atomic_store_n(&n->cookies, fresh, __ATOMIC_RELEASE);
                fresh = NULL;
        }
        if (!stack_memory_holds(&u->s, p, len, u->slot + 1))
                err = -EINVAL;
        else if (n->cookies == NULL)
                err = -ENOMEM;
        else if (n->cookies->cookies + n->cookies->begun == UNET_MEMORY_COOKIES)
                err = -ENOBUFS;
        else
                n->cookies->begun++;
        ustack_leave(u);
        free(fresh);
        return err;
}

/* Poll sets look: the cookie may be there already. */
static void end(struct native_slot *n, uint64_t cookie, bool sent)
{
        struct ustack *u = n->us->u;
        nstime now;

        ustack_lock(u);
        n->cookies->begun--;
        if (sent) {
                push(n, cookie, 0, 0, true);
                now = stack_time(&u->s, ustack_now());
                if (usock_rec(n->us)->role == SOCK_ROLE_CONN)
                        tcp_tell(&u->s.tcp, usock_conn(n->us));
                stack_flush(&u->s, now);
        }
        ustack_leave(u);
}

static ssize_t memory_send(struct native_slot *n, const void *p, size_t len, int flags,
                           uint64_t cookie)
{
        ssize_t r;

        if (n->us->kind != USOCK_TCP)
                return -EOPNOTSUPP;
        if (flags & ~(MSG_DONTWAIT | MSG_MORE) || len == 0)
                return -EINVAL;
        r = begin(n, p, len);
        if (r != 0)
                return r;
        r = send_parts(n, p, len, flags);
        end(n, cookie, r > 0);
        if (r > 0 && unlikely(usock_is_stamped(n->us)))
                usock_stamp_sent(n->us, 0);
        return r;
}

ssize_t unet_memory_send(int sock, const void *p, size_t n, int flags, uint64_t cookie)
{
        struct native_slot *s = native_get(sock);

        return native_done(s, s != NULL ? memory_send(s, p, n, flags, cookie) : -EBADF);
}
