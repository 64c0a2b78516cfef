/* The native API: what the kernel does not give. What a sender knows, what limits it, and buffers
 * of an exact size. */
#include "sock/attach/handle.h"
#include "sock/native/native.h"
#include "tcp/tcp_cc.h"
#include "tcp/tcp_info.h"
#include "tcp/tcp_listen.h"
#include "unetd/client/timens.h"

static_assert(UNET_LIMIT_APP == (int)TCP_LIM_APP && UNET_LIMIT_RWND == (int)TCP_LIM_RWND &&
                      UNET_LIMIT_CWND == (int)TCP_LIM_CWND && UNET_LIMIT_NIQ == (int)TCP_LIM_NIQ &&
                      UNET_LIMIT_SNDBUF == (int)TCP_LIM_SNDBUF &&
                      UNET_LIMIT_PACING == (int)TCP_LIM_PACING &&
                      UNET_LIMIT_PEER == (int)TCP_LIM_PEER &&
                      UNET_LIMIT_CLAMP == (int)TCP_LIM_CLAMP && UNET_LIMITS == (int)TCP_LIMITS,
              "the same list");

const char *unet_limit_name(enum unet_limit limit)
{
        static const char *const names[UNET_LIMITS] = {
                "nothing",         "application", "receiver window", "congestion window",
                "interface queue", "send buffer", "pacing",          "peer has not read",
                "own limit",
        };

        return (unsigned)limit < UNET_LIMITS ? names[limit] : "unknown";
}

static uint32_t niq_room(struct ustack *u, uint16_t chan)
{
        struct stack_chan *c = &u->s.chan[chan];

        return c->ops != NULL ? c->ops->room(c->ch) : 0;
}

static void tell(const struct tcp_report *r, struct unet_feedback *f)
{
        *f = (struct unet_feedback){
                .state = tcp_state_name(r->state),
                .congestion = tcp_cc_name(r->cc),
                .cwnd = r->cwnd,
                .ssthresh = r->ssthresh,
                .snd_wnd = r->snd_wnd,
                .rcv_wnd = r->rcv_wnd,
                .mss = r->mss,
                .in_flight = r->unacked,
                .unsent = r->unsent,
                .unread = r->unread,
                .sndbuf = r->sndbuf,
                .rcvbuf = r->rcvbuf,
                .memory = r->memory,
                .srtt = r->srtt,
                .rttvar = r->rttvar,
                .rto = r->rto,
                .min_rtt = r->min_rtt,
                .bytes_sent = r->bytes_sent,
                .bytes_acked = r->bytes_acked,
                .bytes_received = r->bytes_received,
                .bytes_retrans = r->bytes_retrans,
                .segs_out = r->segs_out,
                .segs_in = r->segs_in,
                .segs_retrans = r->retrans,
                .delivery_rate = r->delivery_rate,
                .ca_state = r->ca_state,
                .last_sent = r->last_sent + timens.monotonic,
                .last_received = r->last_received + timens.monotonic,
                .limit = (enum unet_limit)r->limit,
        };
        static_assert(sizeof f->limited == sizeof r->limited, "the same list");
        memcpy(f->limited, r->limited, sizeof f->limited);
}

static int do_feedback(struct usock *s, struct unet_feedback *f)
{
        struct ustack *u = s->u;
        struct tcp_report r;
        uint32_t room;

        ustack_lock(u);
        usock_tcp_settle(s);
        if (usock_rec(s)->role != SOCK_ROLE_CONN) {
                ustack_leave(u);
                return -ENOTCONN;
        }
        tcp_get_report(&u->s.tcp, usock_conn(s), &r, ustack_now());
        room = niq_room(u, r.tuple.chan);
        ustack_leave(u);
        tell(&r, f);
        f->niq_room = room;
        return 0;
}

int unet_feedback(int sock, struct unet_feedback *f)
{
        struct native_slot *n = native_get(sock);
        int err = n == NULL ? -EBADF : f == NULL ? -EFAULT : do_feedback(n->us, f);

        return (int)native_done(n, err);
}

/* ---- buffers ---- */

static void set_tcp(struct usock *s, uint32_t sndbuf, uint32_t rcvbuf)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct tcp_opts *o = &rec->opts;
        nstime now = ustack_now();

        if (rec->role == SOCK_ROLE_CONN)
                tcp_get_opts(usock_conn(s), o);
        o->sndbuf = sndbuf;
        o->rcvbuf = rcvbuf;
        if (rec->role == SOCK_ROLE_CONN) {
                now = stack_time(&u->s, now);
                stack_begin(u->s.st, rec->conn);
                tcp_set_opts(&u->s.tcp, usock_conn(s), o, now);
                stack_end(u->s.st);
                stack_flush(&u->s, now);
        } else if (rec->role == SOCK_ROLE_LISTENER) {
                tcp_listen_opts(&u->s.tcp, rec->conn, o);
        }
}

static void set_udp(struct usock *s, uint32_t sndbuf, uint32_t rcvbuf)
{
        struct udp *udp = &s->u->s.udp;
        struct udp_opts o;

        udp_get_opts(udp, usock_rec(s)->conn, &o);
        o.sndbuf = sndbuf != 0 ? sndbuf : UDP_SNDBUF;
        o.rcvbuf = rcvbuf != 0 ? rcvbuf : UDP_RCVBUF;
        udp_set_opts(udp, usock_rec(s)->conn, &o);
}

int unet_set_buffers(int sock, uint32_t sndbuf, uint32_t rcvbuf)
{
        struct native_slot *n = native_get(sock);

        if (n == NULL)
                return (int)native_result(-EBADF);
        ustack_lock(n->us->u);
        usock_tcp_settle(n->us);
        if (n->us->kind == USOCK_UDP)
                set_udp(n->us, sndbuf, rcvbuf);
        else
                set_tcp(n->us, sndbuf, rcvbuf);
        ustack_leave(n->us->u);
        return (int)native_done(n, 0);
}

/* As they are now: a connection's own size, when the stack chooses it. */
static void buffers_now(struct usock *s, uint32_t *sndbuf, uint32_t *rcvbuf)
{
        struct sock_rec *rec = usock_rec(s);
        struct udp_opts o;

        if (rec->role == SOCK_ROLE_UDP) {
                udp_get_opts(&s->u->s.udp, rec->conn, &o);
                *sndbuf = o.sndbuf;
                *rcvbuf = o.rcvbuf;
        } else if (rec->role == SOCK_ROLE_CONN) {
                *sndbuf = usock_conn(s)->snd_limit;
                *rcvbuf = usock_conn(s)->rcv_size;
        } else {
                *sndbuf = rec->opts.sndbuf;
                *rcvbuf = rec->opts.rcvbuf;
        }
}

int unet_get_buffers(int sock, uint32_t *sndbuf, uint32_t *rcvbuf)
{
        struct native_slot *n = native_get(sock);
        uint32_t snd, rcv;

        if (n == NULL || sndbuf == NULL || rcvbuf == NULL)
                return (int)native_done(n, n == NULL ? -EBADF : -EFAULT);
        ustack_lock(n->us->u);
        buffers_now(n->us, &snd, &rcv);
        ustack_leave(n->us->u);
        *sndbuf = snd;
        *rcvbuf = rcv;
        return (int)native_done(n, 0);
}
