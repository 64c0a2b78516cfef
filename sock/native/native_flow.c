/* The native API, <unet/flow.h>: windows, and what a sender keeps to, as the application
 * wants them. */
#include "sock/attach/handle.h"
#include "sock/native/native.h"
#include "tcp/tcp_listen.h"
#include "tcp/tcp_window.h"
#include "unet/flow.h"

#define WINDOW_UNSCALED UINT16_MAX
#define MSS_LEAST       88 /* Linux's TCP_MIN_MSS and MAX_TCP_WINDOW */
#define MSS_MOST        32767
#define WINDOW_MOST     ((uint32_t)UINT16_MAX << 14) /* RFC 7323 §2.3 */

/* The options as they are, of a connection or of what is to become one. */
static struct tcp_opts *load(struct usock *s)
{
        struct sock_rec *rec = usock_rec(s);

        assert(ustack_locked(s->u));
        if (native_conn(s) != NULL)
                tcp_get_opts(native_conn(s), &rec->opts);
        return &rec->opts;
}

/* A connection has these options from now on (NULL: as before), and `credit` more bytes are granted
 * (0: none). */
static int change(struct usock *s, const struct tcp_opts *o, uint32_t credit)
{
        struct ustack *u = s->u;
        nstime now = stack_time(&u->s, ustack_now());
        int err = 0;

        assert(ustack_locked(u));
        stack_begin(u->s.st, usock_rec(s)->conn);
        if (o != NULL)
                tcp_set_opts(&u->s.tcp, native_conn(s), o, now);
        if (credit != 0)
                err = tcp_window_grant(&u->s.tcp, native_conn(s), credit, now);
        stack_end(u->s.st);
        stack_flush(&u->s, now);
        return err;
}

/* The options that load() gave have been changed. */
static int adopt(struct usock *s, const struct tcp_opts *o, uint32_t credit)
{
        if (native_conn(s) != NULL)
                return change(s, o, credit);
        if (usock_rec(s)->role == SOCK_ROLE_LISTENER)
                tcp_listen_opts(&s->u->s.tcp, usock_rec(s)->conn, o);
        return 0;
}

/* ---- set ---- */

static uint32_t most_of(const struct unet_window *w)
{
        return w->mode == UNET_WINDOW_CREDIT && w->most == 0 ? WINDOW_UNSCALED : w->most;
}

static bool is_valid(const struct unet_window *w, const struct tcp_conn *tc)
{
        uint32_t reach = tc != NULL ? tcp_window_reach(tc) : WINDOW_MOST, most = most_of(w);

        if (w->mode > UNET_WINDOW_CREDIT || most > reach)
                return false;
        if (w->mode == UNET_WINDOW_AUTO)
                return true;
        if (w->mode == UNET_WINDOW_SIZE && (w->bytes == 0 || w->bytes > reach))
                return false;
        return most == 0 || w->bytes <= most;
}

/* Granted is what the peer was told already, or more. */
static uint32_t missing(const struct unet_window *w, const struct tcp_conn *tc)
{
        uint32_t ahead = tcp_window_opened(tc) ? tcp_window_ahead(tc) : w->bytes;

        return w->mode == UNET_WINDOW_CREDIT && w->bytes > ahead ? w->bytes - ahead : 0;
}

static int set(struct usock *s, const struct unet_window *w)
{
        struct tcp_opts *o = load(s);

        if (!is_valid(w, native_conn(s)))
                return -EINVAL;
        o->credit = w->mode == UNET_WINDOW_CREDIT;
        o->window_most = most_of(w);
        o->window_first = o->credit ? w->bytes : 0;
        if (!o->credit)
                o->rcvbuf = w->mode == UNET_WINDOW_SIZE ? w->bytes : 0;
        return adopt(s, o, native_conn(s) != NULL ? missing(w, native_conn(s)) : 0);
}

/* ---- get ---- */

static uint8_t scale_of(struct usock *s, const struct tcp_opts *o)
{
        return native_conn(s) != NULL ? tcp_window_scale(native_conn(s)) : tcp_window_scale_for(o);
}

static int get(struct native_slot *n, void *ours)
{
        struct usock *s = n->us;
        struct unet_window *w = ours;
        const struct tcp_opts *o = load(s);
        const struct tcp_conn *tc = native_conn(s);
        uint8_t scale = scale_of(s, o);
        bool opened = tc != NULL && tcp_window_opened(tc);
        uint32_t ahead = opened ? tcp_window_ahead(tc) : o->credit ? o->window_first : 0;

        w->mode = o->credit        ? UNET_WINDOW_CREDIT
                  : o->rcvbuf != 0 ? UNET_WINDOW_SIZE
                                   : UNET_WINDOW_AUTO;
        w->bytes = o->credit        ? o->window_first
                   : o->rcvbuf != 0 ? o->rcvbuf
                   : tc != NULL     ? tc->rcv_size
                                    : 0;
        w->most = o->window_most;
        w->unit = 1u << scale;
        w->offered = opened ? MIN(ahead >> scale, UINT16_MAX) << scale : 0;
        w->granted = o->credit ? ahead : 0;
        return 0;
}

/* ---- grant ---- */

static int grant(struct usock *s, uint32_t bytes)
{
        struct tcp_opts *o = load(s);

        if (!o->credit || usock_rec(s)->role == SOCK_ROLE_LISTENER)
                return -EINVAL;
        if (native_conn(s) != NULL)
                return change(s, NULL, bytes);
        if (bytes > o->window_most - o->window_first)
                return -EOVERFLOW;
        o->window_first += bytes;
        return 0;
}

/* ---- what a sender keeps to ---- */

static bool is_in(int64_t t, nstime least, nstime most)
{
        return t == 0 || (t >= least && t <= most);
}

static bool flow_is_valid(const struct unet_flow *f)
{
        return is_in(f->rto_min, TCP_RTO_MIN_LEAST, TCP_RTO_MIN_MOST) &&
               is_in(f->rto_max, TCP_RTO_MOST_LEAST, TCP_RTO_MOST_MOST) &&
               is_in(f->ack_delay, NS_PER_MS, TCP_ACK_DELAY_MOST) &&
               is_in(f->mss, MSS_LEAST, MSS_MOST);
}

static int set_flow(struct usock *s, const struct unet_flow *f)
{
        struct tcp_opts *o = load(s);

        if (!flow_is_valid(f))
                return -EINVAL;
        o->send_window = f->send_window;
        o->max_pacing_rate = f->rate;
        if (f->rto_min != 0)
                o->rto_min_us = (uint32_t)(f->rto_min / NS_PER_US);
        if (f->rto_max != 0)
                o->rto_max_ms = (uint32_t)(f->rto_max / NS_PER_MS);
        o->ack_delay_us = (uint32_t)(f->ack_delay / NS_PER_US);
        o->ack_every = f->ack_every;
        o->pace_burst = f->burst;
        o->unsent_most = f->unsent_most;
        o->maxseg = (uint16_t)f->mss;
        return adopt(s, o, 0);
}

static int get_flow(struct native_slot *n, void *ours)
{
        static const struct tcp_link usual;
        const struct tcp_opts *o = load(n->us);
        const struct tcp_conn *tc = native_conn(n->us);
        struct unet_flow *f = ours;

        f->send_window = o->send_window;
        f->rate = o->max_pacing_rate;
        f->rto_min = tcp_rto_least(o, tc != NULL ? &tc->link : &usual);
        f->rto_max = tcp_rto_most(o);
        f->ack_delay = o->ack_delay_us * NS_PER_US;
        f->ack_every = o->ack_every;
        f->burst = o->pace_burst;
        f->unsent_most = o->unsent_most;
        f->mss = o->maxseg;
        return 0;
}

/* ---- the calls ---- */

struct native_slot *native_enter(int sock, int *err)
{
        struct native_slot *n = native_get(sock);

        *err = n == NULL ? -EBADF : n->us->kind == USOCK_UDP ? -EOPNOTSUPP : 0;
        if (*err == 0) {
                ustack_lock(n->us->u);
                usock_tcp_settle(n->us);
        } else if (n != NULL) {
                native_put(n);
        }
        return *err == 0 ? n : NULL;
}

int native_leave(struct native_slot *n, int err)
{
        assert(ustack_locked(n->us->u));
        ustack_leave(n->us->u);
        return (int)native_done(n, err);
}

int native_get_struct(int sock, void *ours, size_t size, size_t first, void *theirs,
                      int (*fill)(struct native_slot *n, void *ours))
{
        int err = native_take_struct(ours, size, first, theirs);
        struct native_slot *n = err == 0 ? native_enter(sock, &err) : NULL;

        if (n == NULL)
                return (int)native_result(err);
        err = fill(n, ours);
        if (err == 0)
                native_give_struct(ours, size, theirs);
        return native_leave(n, err);
}

#define WINDOW_FIRST sizeof(struct unet_window)
#define FLOW_FIRST   offsetof(struct unet_flow, ack_every)

int unet_window_set(int sock, const struct unet_window *theirs)
{
        struct native_slot *n;
        struct unet_window w;
        int err = native_take_struct(&w, sizeof w, WINDOW_FIRST, theirs);

        if (err != 0)
                return (int)native_result(err);
        n = native_enter(sock, &err);
        return n != NULL ? native_leave(n, set(n->us, &w)) : (int)native_result(err);
}

int unet_window_get(int sock, struct unet_window *theirs)
{
        struct unet_window w;

        return native_get_struct(sock, &w, sizeof w, WINDOW_FIRST, theirs, get);
}

int unet_window_grant(int sock, uint32_t bytes)
{
        int err;
        struct native_slot *n = native_enter(sock, &err);

        return n != NULL ? native_leave(n, grant(n->us, bytes)) : (int)native_result(err);
}

int unet_flow_set(int sock, const struct unet_flow *theirs)
{
        struct native_slot *n;
        struct unet_flow f;
        int err = native_take_struct(&f, sizeof f, FLOW_FIRST, theirs);

        if (err != 0)
                return (int)native_result(err);
        n = native_enter(sock, &err);
        return n != NULL ? native_leave(n, set_flow(n->us, &f)) : (int)native_result(err);
}

int unet_flow_get(int sock, struct unet_flow *theirs)
{
        struct unet_flow f;

        return native_get_struct(sock, &f, sizeof f, FLOW_FIRST, theirs, get_flow);
}
