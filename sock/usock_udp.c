/*
 * UDP sockets. A datagram to a port that is on the fabric goes there; any other is the kernel's (-ENOENT), and so is
 * what the kernel receives on the same port: the shim has a kernel socket bound to it.
 *
 * A full channel is back-pressure, not loss: send says -EAGAIN and POLLOUT comes when there is room (paper §3.1).
 *
 * A read takes no lock (udp.h); the reader takes it when nothing is queued, to let in what came, and every
 * SETTLE_EVERY datagrams, to give their memory back.
 */
#include "sock/ustack.h"

#include <errno.h>
#include <netinet/in.h>

#include "sock/cursor.h"
#include "sock/usock_cmsg.h"
#include "sock/usock_udp.h"

#define COPY_SHORT_MAX USOCK_SHORT_MAX
#define SETTLE_EVERY 32u                /* datagrams read between two turns of the lock */
#define BATCH        16u                /* datagrams of one call behind one bell */

/* ---- where to ---- */

/* By an interface. */
static int way_out(struct usock *s, ip_addr addr, uint16_t port, const struct usock_sent *sent, ip_addr *src, uint8_t *many,
                   const char **why)
{
        bool group = ip_addr_is_v4(addr) && ip_addr_get_v4(addr) >= 0xe0000000;
        const struct usock_own own = usock_own(s);
        ip_addr from = own.bound_many ? (ip_addr){{0, 0}} : own.addr;
        uint32_t oif = sent != NULL && sent->ifindex != 0 ? usock_device(sent->ifindex) : own.oif;
        int chan, cast;

        if (sent != NULL && sent->src != 0)
                from = ip_addr_v4(sent->src);
        chan = group ? usock_group_route(s, addr, sent, src, why)
                     : ustack_way_out(s->u, IP_PROTO_UDP, addr, port, from, oif, src, why);

        if (chan < 0)
                return chan;
        cast = usock_many(s, (uint32_t)chan, addr);
        *many = cast > 0;
        return cast < 0 ? cast : chan;
}

/* Where it goes first: a source route begins elsewhere. */
static ip_addr first_hop(const struct usock_sent *sent, ip_addr addr)
{
        bool any = sent->opts.len != 0 && ip_addr_is_v4(addr);

        return any ? ip_addr_v4(ip_opts_first_hop(&sent->opts, ip_addr_get_v4(addr))) : addr;
}

/* The channel to whoever has the port and our address towards it, or -ENOENT. */
static int route(struct usock *s, ip_addr addr, uint16_t port, const struct usock_sent *sent, ip_addr *src, uint8_t *many,
                 const char **why)
{
        ip_addr hop = unlikely(sent != NULL) ? first_hop(sent, addr) : addr;
        const struct directory *dir = ustack_directory();
        struct dir_hit hit = {0, 0, 0};
        int chan;

        *why = "no unetd";
        if (dir == NULL)
                return -ENOENT;
        *many = 0;
        if (!directory_is_local(dir, hop))
                return way_out(s, hop, port, sent, src, many, why);
        *why = "a source route that begins at this host";
        if (unlikely(!ip_addr_eq(hop, addr)))
                return -ENOENT;
        *why = "no socket on the fabric has this port";
        if (!ustack_lookup(IP_PROTO_UDP, addr, port, s->idx, &hit))
                return -ENOENT;
        *src = ustack_source_to(addr);
        *why = "no channel to that stack";
        chan = ustack_chan_to(s->u, hit.stack);
        if (chan < 0)
                return -ENOENT;
        *why = "accelerated";
        return chan;
}

int usock_udp_connect(struct usock *s, ip_addr addr, uint16_t port, const char **why)
{
        struct sock_rec *rec = usock_rec(s);
        ip_addr laddr;
        uint8_t many;
        int chan = route(s, addr, port, NULL, &laddr, &many, why), err;

        if (chan < 0)
                return chan;
        ustack_lock(s->u);
        if (!ip_addr_is_any(rec->laddr) && !rec->bound_many)
                laddr = rec->laddr;
        err = udp_connect(&s->u->s.udp, rec->conn, laddr, addr, port);
        if (err == 0) {
                rec->laddr = rec->bound_many ? rec->laddr : laddr;
                rec->raddr = addr;
                WRITE_ONCE(rec->rport, port);
                WRITE_ONCE(rec->chan, (uint32_t)chan + 1);
                WRITE_ONCE(rec->many, many);
                usock_udp_cork_moved(s);
        }
        ustack_leave(s->u);
        return err;
}

int usock_udp_hear(struct usock *s, const struct sockaddr *sa, socklen_t len)
{
        const struct directory *dir = ustack_directory();
        struct sock_rec *rec = usock_rec(s);
        ip_addr addr, laddr;
        uint16_t port;
        int err = usock_addr_in(sa, len, &addr, &port);

        if (err == 0 && (dir == NULL || !directory_is_local(dir, addr)))
                err = -ENOENT;
        if (err != 0)
                return err;
        laddr = ip_addr_is_any(rec->laddr) ? ustack_source_to(addr) : rec->laddr;
        ustack_lock(s->u);
        err = udp_connect(&s->u->s.udp, rec->conn, laddr, addr, port);
        if (err == 0) {
                WRITE_ONCE(rec->rport, 0);
                WRITE_ONCE(rec->chan, 0);
        }
        ustack_leave(s->u);
        return err;
}

void usock_udp_disconnect(struct usock *s, const ip_addr *bound)
{
        struct sock_rec *rec = usock_rec(s);

        ustack_lock(s->u);
        udp_disconnect(&s->u->s.udp, rec->conn);
        WRITE_ONCE(rec->rport, 0);
        WRITE_ONCE(rec->chan, 0);
        if (bound != NULL)
                rec->laddr = *bound;
        else if (rec->registered)
                rec->laddr = rec->reg_addr;
        ustack_leave(s->u);
}

int usock_udp_register(struct usock *s)
{
        struct sock_rec *rec = usock_rec(s);
        ip_addr addr;
        bool many;
        int err;

        if (READ_ONCE(rec->registered) != SOCK_UNREGISTERED)
                return 0;
        ustack_lock(s->u);
        addr = ustack_listen_addr(rec);
        many = rec->bound_many;
        err = rec->lport != 0 ? 0 : -EINVAL;
        ustack_leave(s->u);
        if (err != 0 || many)
                return err;             /* to many nobody on the fabric sends */
        ustack_take_ifaces(s->u, addr);
        err = usock_register(s, SOCK_TAKES, SOCK_ROLE_UDP);
        /* As in Linux with SO_REUSEADDR: what is sent to one host is another's, what is sent to many is ours too. */
        return err == -EADDRINUSE && READ_ONCE(rec->reuse) != 0 && usock_has_ifaces() ? 0 : err;
}

/* ---- sending ---- */

#define MORE 2u                         /* another one follows in this call */

/* The source that was asked for must be ours, and on an interface that interface's (ip(7), IP_PKTINFO). */
static int take_source(struct usock *s, const struct usock_sent *sent, struct udp_dest *d)
{
        const struct sock_rec *rec = usock_rec(s);
        const struct stack_state *st = s->u->s.st;
        const struct directory *dir = ustack_directory();
        uint32_t netif = st->chan[d->chan].netif;
        ip_addr src = ip_addr_v4(sent->src);

        d->sent = sent;
        if (sent->src == 0)
                return 0;
        if (netif != 0 ? stack_netif(st, netif - 1)->cfg.addr != sent->src
                       : dir == NULL || !directory_is_local(dir, src))
                return sent->src >= 0xe0000000 || sent->src >> 24 == 0 ? -EINVAL : -ENETUNREACH;
        if (d->to.rport == 0 && !usock_peer(s, &d->to.raddr, &d->to.rport))
                return -EDESTADDRREQ;
        d->to.laddr = src;
        d->to.lport = READ_ONCE(rec->lport);
        return 0;
}

#define NO_CHAN (0u - 1)                /* no channel leads to the peer: nobody on the fabric had the port */

static bool is_ready(const struct ustack *u, uint32_t chan)
{
        return atomic_load_explicit(&u->s.st->chan[chan].state, memory_order_relaxed) == CHAN_READY;
}

static int dest_of(struct usock *s, const struct msghdr *m, const struct usock_sent *sent, struct udp_dest *d)
{
        struct sock_rec *rec = usock_rec(s);
        const char *why;
        int err;

        *d = (struct udp_dest){.chan = READ_ONCE(rec->chan) - 1, .many = READ_ONCE(rec->many)};
        if (m->msg_name == NULL || m->msg_namelen == 0) {
                if (READ_ONCE(rec->rport) == 0)
                        return -EDESTADDRREQ;
                if (d->chan == NO_CHAN)
                        return -ENOENT;
                if (likely(is_ready(s->u, d->chan) && (sent == NULL || sent->opts.len == 0)))
                        return 0;
                if (!usock_peer(s, &d->to.raddr, &d->to.rport))
                        return -EDESTADDRREQ;
                if (is_ready(s->u, d->chan) && ip_addr_eq(first_hop(sent, d->to.raddr), d->to.raddr)) {
                        d->to = (struct udp_tuple){.rport = 0};
                        return 0;
                }
        } else {
                err = usock_addr_in(m->msg_name, m->msg_namelen, &d->to.raddr, &d->to.rport);
                if (err != 0)
                        return err == -EADDRNOTAVAIL ? -ENOENT : err;
        }
        if (ip_addr_is_any(d->to.raddr))
                d->to.raddr = ip_addr_v4(INADDR_LOOPBACK);
        err = route(s, d->to.raddr, d->to.rport, sent, &d->to.laddr, &d->many, &why);
        if (err < 0)
                return err;
        d->chan = (uint32_t)err;
        return 0;
}

static inline int post_one(struct usock *s, const struct udp_dest *d, struct udp_out *out, const struct stack_payload *p)
{
        if (unlikely(d->many))
                return d->many == MORE ? stack_send_udp_more(&s->u->s, d->chan, out, p) :
                                         usock_group_post(s, d->chan, out, d->sent != NULL && d->sent->ttl_set, p);
        return stack_send_udp(&s->u->s, d->chan, out, p);
}

/* What was said of this datagram alone. */
static void apply_sent(const struct usock_sent *sent, struct udp_out *out)
{
        if (sent->ttl_set)
                out->ttl = sent->ttl;
        if (sent->tos_set)
                out->tos = sent->tos;
        if (sent->opts.len != 0)
                out->opts = &sent->opts;
}

static void too_long(struct usock *s, const struct udp_dest *d, const struct udp_out *out)
{
        struct stack *st = &s->u->s;
        struct udp_opts o;

        udp_get_opts(&st->udp, usock_rec(s)->conn, &o);
        if (o.recverr)
                usock_udp_too_long(s, &out->tuple, frag_mtu(o.pmtu_mode, st->chan[d->chan].caps.mtu,
                                                            stack_path_mtu(st, out->tuple.raddr)));
}

int usock_udp_post(struct usock *s, const struct udp_dest *d, const struct stack_payload *p)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        const struct unet_caps *caps = &u->s.chan[d->chan].caps;
        uint32_t sum = unlikely(caps->csum) ? stack_payload_sum(&u->s, p) : 0;
        struct udp_out out;
        int err;

        if (d->to.rport == 0 && unlikely(rec->chan != d->chan + 1))
                return -EAGAIN;         /* another thread has connected it elsewhere: once more */
        err = udp_output_prepare(&u->s.udp, rec->conn, d->to.rport != 0 ? &d->to : NULL, p->len, caps->csum, sum, &out);
        if (err != 0)
                return err;
        if (unlikely(d->sent != NULL))
                apply_sent(d->sent, &out);
        err = post_one(s, d, &out, p);
        if (err == -EAGAIN && stack_pending(&u->s, 0)) {
                stack_run(&u->s, ustack_now());
                err = post_one(s, d, &out, p);
        }
        WRITE_ONCE(rec->blocked, err == -EAGAIN ? d->chan + 1 : 0);
        if (err != 0)
                udp_output_cancel(&u->s.udp, rec->conn);
        if (unlikely(err == -EMSGSIZE))
                too_long(s, d, &out);
        return err;
}

static ssize_t send_staged(struct usock *s, const struct udp_dest *d, const uint8_t *p, size_t n)
{
        struct stack_payload pay = {.inl = p, .len = (uint32_t)n};
        int err;

        ustack_lock(s->u);
        err = stack_chan_get(&s->u->s, d->chan) != NULL ? usock_udp_post(s, d, &pay) : -ENOENT;
        ustack_leave(s->u);
        return err != 0 ? err : (ssize_t)n;
}

/* The next datagram will be as long as this one, and go into a frame that the peer has read: its lines come back while
 * there is other work, in two parts (see FETCH_LINES), or leaving the lock would wait for them. */
static uint8_t *next_small(struct ustack *u, uint32_t chan, size_t n)
{
        return n <= FRAME_SMALL_BYTES ? frame_guess(u->s.frames, FRAME_REGION_TX(chan), FRAME_SMALL) : NULL;
}

uint32_t usock_udp_frame(struct ustack *u, uint32_t chan, size_t n)
{
        enum frame_class c = n <= FRAME_SMALL_BYTES ? FRAME_SMALL : FRAME_LARGE;
        uint32_t id = frame_alloc(u->s.frames, FRAME_REGION_TX(chan), c, 0);

        if (id == 0 && stack_pending(&u->s, 0)) {
                stack_run(&u->s, ustack_now());
                id = frame_alloc(u->s.frames, FRAME_REGION_TX(chan), c, 0);
        }
        return id;
}

static ssize_t send_framed(struct usock *s, const struct udp_dest *d, struct cursor *c, size_t n)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct stack_payload pay = {.len = (uint32_t)n, .data = {.len = (uint32_t)n}};
        int err = -EAGAIN;
        bool good;
        uint8_t *next;

        ustack_lock(u);
        if (stack_chan_get(&u->s, d->chan) == NULL)
                err = -ENOENT;
        else if (rec->writer == 0)
                pay.data.id = usock_udp_frame(u, d->chan, n);
        if (pay.data.id == 0) {
                WRITE_ONCE(rec->blocked, d->chan + 1);
                ustack_leave(u);
                return err;
        }
        WRITE_ONCE(rec->writer, u->slot + 1);
        rec->tx_frame = pay.data.id;
        next = next_small(u, d->chan, n);
        ustack_unlock(u);
        good = copy_in(c, frame_addr(u->s.frames, pay.data.id), n);
        if (next != NULL)
                frame_claim(next, (uint32_t)n / 2);
        ustack_lock(u);
        WRITE_ONCE(rec->writer, 0);
        rec->tx_frame = 0;
        err = likely(good) ? usock_udp_post(s, d, &pay) : -EFAULT;
        if (err != 0)
                frame_drop(u->s.frames, pay.data.id);
        ustack_turn_over(u, rec);
        ustack_leave(u);
        if (next != NULL)
                frame_claim(next + n / 2, (uint32_t)(n - n / 2));
        return err != 0 ? err : (ssize_t)n;
}

/* One datagram, of the next bytes. */
static inline ssize_t send_one(struct usock *s, const struct udp_dest *d, struct cursor *c, size_t n)
{
        uint8_t stage[UNET_INLINE_MAX];

        if (n > UDP_STAGED_MAX)
                return send_framed(s, d, c, n);
        if (unlikely(!copy_in(c, stage, n)))
                return -EFAULT;
        return send_staged(s, d, stage, n);
}

/* ... whose headers may be longer. */
static ssize_t send_one_said(struct usock *s, const struct udp_dest *d, struct cursor *c, size_t n)
{
        return d->sent->opts.len != 0 && n > UDP_STAGED_MAX - IP_OPTS_MAX ? send_framed(s, d, c, n) : send_one(s, d, c, n);
}

/* The bell for what was sent without. */
static void ring(struct usock *s)
{
        ustack_lock(s->u);
        stack_flush_bells(&s->u->s);
        ustack_leave(s->u);
}

/* Datagrams of `segment` bytes each, and a last one (UDP_SEGMENT). Where the queue fills on the way the rest is lost, as
 * datagrams may be. */
static ssize_t send_segments(struct usock *s, struct udp_dest *d, struct cursor *c, size_t total, uint16_t segment)
{
        unsigned behind = 0;
        uint8_t many = d->many;

        for (size_t done = 0, n; done < total; done += n) {
                ssize_t r;
                n = MIN(segment, total - done);
                d->many = (uint8_t)(done + n < total && ++behind % BATCH != 0 ? many | MORE : many);
                r = send_one_said(s, d, c, n);
                if (likely(r >= 0))
                        continue;
                ring(s);
                return done != 0 && r == -EAGAIN ? (ssize_t)total : r;
        }
        return (ssize_t)total;
}

void usock_batch_begin(void)
{
        usock_tls.batch = 1;
}

void usock_batch_end(struct usock *s, bool cut)
{
        if (cut && usock_tls.batch > 1)
                ring(s);
        usock_tls.batch = 0;
}

/* Of a call that sends several. */
static bool batched(int flags)
{
        return (flags & USOCK_BATCH) && usock_tls.batch != 0 && ++usock_tls.batch % BATCH != 1;
}

/* What the datagram has of the socket, if nothing else is said of it. */
static void take_options(struct usock *s, struct usock_sent *sent)
{
        if (!sent->opts_set && READ_ONCE(usock_rec(s)->ip_opts))
                sent->opts = usock_own(s).opts;
}

int usock_udp_said(struct usock *s, const struct msghdr *m, struct usock_sent *sent, struct udp_dest *d)
{
        int err = usock_cmsg_read(m, sent);

        if (err != 0)
                return err;
        take_options(s, sent);
        err = dest_of(s, m, sent, d);
        return err != 0 ? err : take_source(s, sent, d);
}

/* With control messages, or with UDP_SEGMENT or IP options of the socket. */
static ssize_t send_said(struct usock *s, const struct msghdr *m, size_t total, uint16_t segment)
{
        struct cursor c = {m->msg_iov, 0, 0};
        struct usock_sent sent;
        struct udp_dest d;
        int err = usock_udp_said(s, m, &sent, &d);

        if (err != 0)
                return err;
        segment = sent.segment != 0 ? sent.segment : segment;
        if (segment != 0 && total > (size_t)segment * UDP_SEGMENTS_MAX)
                return -EINVAL;
        return segment != 0 && segment < total ? send_segments(s, &d, &c, total, segment) : send_one_said(s, &d, &c, total);
}

/* With one of these flags. */
static ssize_t send_flagged(struct usock *s, const struct msghdr *m, size_t total, int flags)
{
        struct cursor c = {m->msg_iov, 0, 0};
        struct udp_dest d;
        int err;

        if (total > UINT16_MAX)
                return -EMSGSIZE;
        if (flags & MSG_OOB)
                return -EOPNOTSUPP;     /* Linux: "mirror BSD error message compatibility" */
        if (flags & MSG_MORE || READ_ONCE(usock_rec(s)->cork))
                return usock_udp_send_corked(s, m, total, flags);
        if (!batched(flags))
                return usock_udp_send(s, m, total, flags & ~USOCK_BATCH);
        if (total > UDP_MAX_PAYLOAD)
                return -EMSGSIZE;
        if (m->msg_controllen != 0 || READ_ONCE(usock_rec(s)->segment) != 0 || READ_ONCE(usock_rec(s)->ip_opts))
                return send_said(s, m, total, READ_ONCE(usock_rec(s)->segment));
        err = dest_of(s, m, NULL, &d);
        d.many |= MORE;
        return err != 0 ? err : send_one(s, &d, &c, total);
}

ssize_t usock_udp_send(struct usock *s, const struct msghdr *m, size_t total, int flags)
{
        struct cursor c = {m->msg_iov, 0, 0};
        struct udp_dest d;
        int err;

        if (unlikely(flags & (MSG_OOB | USOCK_BATCH | MSG_MORE) || READ_ONCE(usock_rec(s)->cork)))
                return send_flagged(s, m, total, flags);
        if (total > UDP_MAX_PAYLOAD)
                return -EMSGSIZE;
        if (unlikely(m->msg_controllen != 0 || READ_ONCE(usock_rec(s)->segment) != 0 || READ_ONCE(usock_rec(s)->ip_opts)))
                return send_said(s, m, total, READ_ONCE(usock_rec(s)->segment));
        err = dest_of(s, m, NULL, &d);
        return unlikely(err != 0) ? err : send_one(s, &d, &c, total);
}

bool usock_udp_room(struct usock *s)
{
        uint32_t k = READ_ONCE(usock_rec(s)->blocked);
        struct unet_chan *ch = k != 0 ? stack_chan_peek(&s->u->s, k - 1) : NULL;

        return ch == NULL || (!READ_ONCE(s->u->s.chan[k - 1].starved) && ch->ops->room(ch) > 0) || ch->ops->pending(ch);
}

/* ---- receiving ---- */

static bool put_name(const struct usock *s, struct msghdr *m, const struct udp_msg *msg)
{
        return m->msg_name == NULL || usock_addr_out(s->family, msg->src, msg->sport, m->msg_name, &m->msg_namelen);
}

/* udp_recv_look(), where the bytes of a datagram may lie in the frames of a channel that this process has not mapped yet: all
 * that there were before were mapped, and none has come since; or else nobody maps any meanwhile. */
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
                ustack_lock(u);         /* maps them */
                ustack_leave(u);
        }
        ustack_lock(u);
        seen = udp_recv_look(&u->s.udp, pcb, first) && stack_chan_peek(&u->s, first->msg.chan) != NULL;
        ustack_leave(u);
        return seen;
}

/* The memory of what was read goes back, and what came meanwhile is let in, in one turn of the lock. */
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
 * The bytes of the next datagram lie in its writer's cache. A processor waits for some sixteen lines at a time, and one
 * more prefetch than that waits itself, so those of a datagram are asked for in three parts: before the copy of the one
 * before it, after it, and when somebody asks whether there is something to read (iperf3 UDP -l 1400: 26 and 35 Gb/s).
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

/* The first datagram, without the lock. -EAGAIN: there is none, or something else to tell. m: NULL, or where name and
 * flags go. */
static inline ssize_t read_first(struct usock *s, const struct iovec *iov, size_t total, int flags, struct msghdr *m)
{
        struct ustack *u = s->u;
        uint32_t pcb = usock_rec(s)->conn;
        uint8_t opts[IP_OPTS_MAX];
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
                        first.next = first.head;        /* it is taken and stays where it is */
                if (unlikely(!udp_recv_take(&u->s.udp, pcb, &first)))
                        continue;
                fetch_part(&first.ahead);
                fetch_later(s, first.ahead);
                if (m != NULL) {
                        good &= put_name(s, m, &first.msg);
                        m->msg_flags = (first.msg.len > total ? MSG_TRUNC : 0) | (flags & MSG_CMSG_CLOEXEC);
                        if (unlikely(READ_ONCE(usock_rec(s)->told) != 0))
                                usock_cmsg_put(s, &first.msg, m);
                        else
                                m->msg_controllen = 0;
                }
                if (unlikely(settle_is_due(s) || first.last))
                        settle(u, pcb);
                if (unlikely(READ_ONCE(usock_rec(s)->peeks_on)))
                        usock_udp_read_before(s, flags & MSG_TRUNC ? first.msg.len : n);
                if (unlikely(!good))
                        return -EFAULT;         /* as Linux: the datagram is gone */
                return (ssize_t)(flags & MSG_TRUNC ? first.msg.len : n);
        }
        return -EAGAIN;
}

/* A short datagram and nothing but its bytes, by the shortest way. -EAGAIN: the first one is not for this way. */
ssize_t usock_udp_read_short(struct usock *s, void *p, size_t n)
{
        struct udp_pcb *pcb = atomic_load_explicit(&s->pcb, memory_order_relaxed);
        struct udp_sight first;
        bool good;

        if (unlikely(pcb == NULL)) {
                pcb = udp_pcb_at(&s->u->s.udp, usock_rec(s)->conn);
                atomic_store_explicit(&s->pcb, pcb, memory_order_relaxed);
        }
        if (unlikely(READ_ONCE(usock_rec(s)->peeks_on)))
                return -EAGAIN;
        if (!udp_recv_look_short(&s->u->s.udp, pcb, &first) || first.msg.len > MIN(n, COPY_SHORT_MAX))
                return -EAGAIN;
        good = user_copy_short(p, first.msg.span[0].ptr, first.msg.len);
        if (unlikely(!udp_recv_take_short(pcb, &first, usock_alone(usock_rec(s)))))
                return -EAGAIN;
        if (unlikely(settle_is_due(s) || first.last))
                settle(s->u, usock_rec(s)->conn);
        return likely(good) ? (ssize_t)first.msg.len : -EFAULT;
}

/* What has come is let in. 1: there is something to read; else what to tell: -errno, or 0 after shutdown(SHUT_RD) to who
 * would have waited, as Linux does. */
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
        ustack_leave(u);
        return n == 0 && (flags & MSG_DONTWAIT || usock_nonblock(s)) ? -EAGAIN : n;
}

ssize_t usock_udp_recv(struct usock *s, struct msghdr *m, size_t total, int flags)
{
        ssize_t n;

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
