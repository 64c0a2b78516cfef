/*
 * UDP sockets: where datagrams go, and sending. One to a port that is on the fabric goes there; any
 * other is the kernel's (-ENOENT), and so is what the kernel receives on the same port: the shim
 * has a kernel socket bound to it.
 *
 * A full channel is back-pressure, not loss: send says -EAGAIN and POLLOUT comes when there is room
 * (paper §3.1).
 */
#include "sock/attach/ustack.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/syscall.h>

#include "base/sys.h"
#include "sock/attach/cursor.h"
#include "sock/attach/handle.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_directory.h"
#include "sock/attach/ustack_wake.h"
#include "sock/udp/usock_cmsg.h"
#include "sock/udp/usock_udp.h"
#include "sock/usock_ready.h"
#include "sock/usock_process.h"
#include "sock/usock_dgram.h"

/* What a socket waits for (sock_rec.blocked): a place in the channel's queue, or a frame of one of
 * the classes, a bit each. */
#define BLOCKED_CHAN           0xffffu /* channel + 1 */
#define BLOCKED(chan, classes) ((classes) * (BLOCKED_CHAN + 1) + (chan) + 1)

/* It waits from now on. Who has it in a set hears of it, to look at it when there is room;
 * usock_unblocked() has no lock. */
static void blocks(struct usock *s, uint32_t on)
{
        if (__atomic_exchange_n(&usock_rec(s)->blocked, on, __ATOMIC_RELAXED) == 0)
                ustack_news(s->u, s->idx);
}

/* ---- where to ---- */

/* By an interface. */
static int way_out(struct usock *s, ip_addr addr, uint16_t port, const struct usock_sent *sent,
                   ip_addr *src, uint8_t *many, const char **why)
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

/* The channel to whoever has the port, his stack if he is on this host, and our address towards it;
 * or -ENOENT. */
static int route(struct usock *s, ip_addr addr, uint16_t port, const struct usock_sent *sent,
                 ip_addr *src, uint8_t *many, uint32_t *peer, const char **why)
{
        ip_addr hop = unlikely(sent != NULL) ? first_hop(sent, addr) : addr;
        const struct directory *dir = ustack_directory();
        struct dir_hit hit = {0, 0, 0};
        int chan, local;

        *why = "no unetd";
        if (dir == NULL || ip_addr_eq(addr, ip_addr_v4(USTACK_LOOPBACK_BROADCAST)))
                return -ENOENT; /* the kernel asks for SO_BROADCAST, and has all receivers */
        *many = 0;
        *peer = 0;
        *why = ustack_rule(dir, IP_PROTO_UDP, RULE_CONNECTS, addr, port);
        if (unlikely(*why != NULL))
                return -ENOENT;
        *why = "unetd is in mid-write of its directory, and does not get on";
        local = ustack_is_local(dir, hop);
        if (unlikely(local < 0))
                return -ENOENT;
        if (!local)
                return way_out(s, hop, port, sent, src, many, why);
        *why = "a source route that begins at this host";
        if (unlikely(!ip_addr_eq(hop, addr)))
                return -ENOENT;
        *why = "no socket on the fabric has this port";
        if (!ustack_lookup(IP_PROTO_UDP, addr, port, READ_ONCE(usock_rec(s)->lport), &hit))
                return -ENOENT;
        *why = ustack_kernel_refuses(dir, IP_PROTO_UDP, addr, port);
        if (unlikely(*why != NULL))
                return -ENOENT;
        *src = ustack_source_to(addr);
        *why = "no channel to that stack";
        *peer = hit.stack;
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
        uint32_t peer;
        int chan = route(s, addr, port, NULL, &laddr, &many, &peer, why), err;

        assert(s->kind == USOCK_UDP);
        assert(!ustack_locked(s->u));
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
                WRITE_ONCE(rec->chan, ustack_chan_leads(s->u, (uint32_t)chan, peer)
                                              ? (uint32_t)chan + 1
                                              : SOCK_CHAN_GONE);
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

        assert(s->kind == USOCK_UDP);
        if (err == 0 && (dir == NULL || ustack_is_local(dir, addr) != 1))
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

        assert(s->kind == USOCK_UDP);
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

void usock_udp_unbind(struct usock *s)
{
        struct sock_rec *rec = usock_rec(s);

        assert(s->kind == USOCK_UDP);
        usock_withdraw(s);
        ustack_lock(s->u);
        udp_unbind(&s->u->s.udp, rec->conn);
        WRITE_ONCE(rec->rport, 0);
        WRITE_ONCE(rec->chan, 0);
        rec->laddr = (ip_addr){{0, 0}};
        WRITE_ONCE(rec->lport, 0);
        rec->bound = 0;
        ustack_leave(s->u);
}

int usock_udp_register(struct usock *s)
{
        struct sock_rec *rec = usock_rec(s);
        ip_addr addr;
        bool many;
        int err;

        assert(s->kind == USOCK_UDP);
        if (READ_ONCE(rec->registered) != SOCK_UNREGISTERED)
                return 0;
        addr = ustack_listen_addr(rec);
        ustack_lock(s->u);
        many = rec->bound_many;
        err = rec->lport != 0 ? 0 : -EINVAL;
        ustack_leave(s->u);
        if (err != 0 || many)
                return err; /* to many nobody on the fabric sends */
        ustack_take_ifaces(s->u, addr);
        err = usock_register(s, SOCK_TAKES, SOCK_ROLE_UDP);
        /* As in Linux with SO_REUSEADDR: what is sent to one host is another's, what is sent to
         * many is ours too. */
        return err == -EADDRINUSE && READ_ONCE(rec->reuse) != 0 && usock_has_ifaces() ? 0 : err;
}

/* ---- sending ---- */

/* The source that was asked for must be ours, and on an interface that interface's
 * (ip(7), IP_PKTINFO). */
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
                       : dir == NULL || ustack_is_local(dir, src) != 1)
                return sent->src >= 0xe0000000 || sent->src >> 24 == 0 ? -EINVAL : -ENETUNREACH;
        if (d->to.rport == 0 && !usock_peer(s, &d->to.raddr, &d->to.rport))
                return -EDESTADDRREQ;
        d->to.laddr = src;
        d->to.lport = READ_ONCE(rec->lport);
        return 0;
}

#define NO_CHAN (0u - 1) /* no channel leads to the peer: nobody on the fabric had the port */

static bool is_ready(const struct ustack *u, uint32_t chan)
{
        return chan < STACK_CHANS &&
               atomic_load_explicit(&u->s.st->chan[chan].state, memory_order_relaxed) == CHAN_READY;
}

static int dest_of(struct usock *s, const struct msghdr *m, const struct usock_sent *sent,
                   struct udp_dest *d)
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
                if (likely(is_ready(s->u, d->chan) && d->many < SOCK_MANY_PLACES &&
                           (sent == NULL || sent->opts.len == 0)))
                        return 0;
                if (!usock_peer(s, &d->to.raddr, &d->to.rport))
                        return -EDESTADDRREQ;
                if (is_ready(s->u, d->chan) && d->many < SOCK_MANY_PLACES &&
                    ip_addr_eq(first_hop(sent, d->to.raddr), d->to.raddr)) {
                        d->to = (struct udp_tuple){.rport = 0};
                        return 0;
                }
        } else {
                err = usock_addr_in(m->msg_name, m->msg_namelen, &d->to.raddr, &d->to.rport);
                if (err != 0)
                        return err == -EADDRNOTAVAIL ? -ENOENT : err;
                if (unlikely(d->to.rport == 0))
                        /* nobody's: whose datagram came from there wants no answer. */
                        return -EINVAL;
        }
        if (ip_addr_is_any(d->to.raddr))
                d->to.raddr = ip_addr_v4(INADDR_LOOPBACK);
        err = route(s, d->to.raddr, d->to.rport, sent, &d->to.laddr, &d->many, &d->peer, &why);
        if (err < 0)
                return err;
        d->chan = (uint32_t)err;
        return 0;
}

bool usock_udp_connected_to(struct usock *s, struct udp_dest *d)
{
        const struct sock_rec *rec = usock_rec(s);

        *d = (struct udp_dest){.chan = READ_ONCE(rec->chan) - 1, .many = READ_ONCE(rec->many)};
        return READ_ONCE(rec->rport) != 0 && d->chan != NO_CHAN && d->many == 0 &&
               is_ready(s->u, d->chan);
}

static inline int post_one(struct usock *s, const struct udp_dest *d, struct udp_out *out,
                           const struct stack_payload *p)
{
        if (unlikely(d->many))
                return d->many == UDP_MORE
                               ? stack_send_udp_more(&s->u->s, d->chan, out, p)
                               : usock_group_post(s, d->chan, out,
                                                  d->sent != NULL && d->sent->ttl_set, p);
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
                usock_udp_too_long(s, &out->tuple,
                                   frag_mtu(o.pmtu_mode, st->chan[d->chan].caps.mtu,
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
                return -EAGAIN; /* another thread has connected it elsewhere: once more */
        ustack_hear_own(u, d->chan);
        err = udp_output_prepare(&u->s.udp, rec->conn, d->to.rport != 0 ? &d->to : NULL, p->len,
                                 caps->csum, sum, &out);
        if (err != 0)
                return err;
        if (unlikely(d->sent != NULL))
                apply_sent(d->sent, &out);
        err = post_one(s, d, &out, p);
        if (err == -EAGAIN && p->room == NULL && stack_pending(&u->s, 0)) {
                stack_run(&u->s, ustack_now());
                err = post_one(s, d, &out, p);
        }
        if (unlikely(err == -EAGAIN))
                blocks(s, BLOCKED(d->chan, 0));
        else
                WRITE_ONCE(rec->blocked, 0);
        if (err != 0)
                udp_output_cancel(&u->s.udp, rec->conn);
        if (unlikely(err == -EMSGSIZE))
                too_long(s, d, &out);
        return err;
}

static bool leads_there(struct ustack *u, const struct udp_dest *d)
{
        return likely(ustack_chan_leads(u, d->chan, d->peer)) &&
               stack_chan_get(&u->s, d->chan) != NULL;
}

static ssize_t send_staged(struct usock *s, const struct udp_dest *d, const uint8_t *p, size_t n)
{
        struct stack_payload pay = {.inl = p, .len = (uint32_t)n};
        int err;

        assert(n <= UDP_STAGED_MAX);
        ustack_lock(s->u);
        err = leads_there(s->u, d) ? usock_udp_post(s, d, &pay) : -ENOENT;
        ustack_leave(s->u);
        return err != 0 ? err : (ssize_t)n;
}

/* The next datagram will be as long as this one, and go into a frame that the peer has read: its
 * lines come back while there is other work, in two parts (see FETCH_LINES), or leaving the lock
 * would wait for them. */
static uint8_t *next_small(struct ustack *u, uint32_t chan, size_t n)
{
        return n <= FRAME_SMALL_BYTES ? frame_guess(u->s.frames, FRAME_REGION_TX(chan), FRAME_SMALL)
                                      : NULL;
}

uint32_t usock_udp_frame(struct usock *s, uint32_t chan, size_t n)
{
        struct ustack *u = s->u;
        enum frame_class c = n <= FRAME_SMALL_BYTES ? FRAME_SMALL : FRAME_LARGE;
        uint32_t id = frame_alloc(u->s.frames, FRAME_REGION_TX(chan), c, 0);

        assert(ustack_locked(s->u));
        assert(chan < STACK_CHANS);
        if (id == 0 && stack_pending(&u->s, 0)) {
                stack_run(&u->s, ustack_now());
                id = frame_alloc(u->s.frames, FRAME_REGION_TX(chan), c, 0);
        }
        if (unlikely(id == 0)) {
                stack_wait_frame(&u->s, chan, c);
                blocks(s, BLOCKED(chan, 1u << c));
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
        if (!leads_there(u, d))
                err = -ENOENT;
        else if (rec->writer == 0)
                pay.data.id = usock_udp_frame(s, d->chan, n);
        else
                blocks(s, BLOCKED(d->chan, 0));
        if (pay.data.id == 0) {
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

/* Without the lock: the channel may be another one by the time it is taken. */
static inline bool has_place(const struct ustack *u, const struct udp_dest *d)
{
        return unlikely(READ_ONCE(u->s.chan[d->chan].copied));
}

static __attribute__((noinline)) ssize_t send_placed(struct usock *s, const struct udp_dest *d,
                                                     struct cursor *c, size_t n)
{
        int err;

        if (usock_udp_place(s, d, c, n, n, &err) == n)
                return (ssize_t)n;
        return err != 0 ? err : send_framed(s, d, c, n);
}

/* One datagram, of the next bytes. */
static inline ssize_t send_one(struct usock *s, const struct udp_dest *d, struct cursor *c,
                               size_t n)
{
        uint8_t stage[UNET_INLINE_MAX];

        if (n > UDP_STAGED_MAX)
                return has_place(s->u, d) ? send_placed(s, d, c, n) : send_framed(s, d, c, n);
        if (unlikely(!copy_in(c, stage, n)))
                return -EFAULT;
        return send_staged(s, d, stage, n);
}

/* ... whose headers may be longer. */
static ssize_t send_one_said(struct usock *s, const struct udp_dest *d, struct cursor *c, size_t n)
{
        return d->sent->opts.len != 0 && n > UDP_STAGED_MAX - IP_OPTS_MAX ? send_framed(s, d, c, n)
                                                                          : send_one(s, d, c, n);
}

/* The bell for what was sent without. */
static void ring(struct usock *s)
{
        ustack_lock(s->u);
        stack_flush_bells(&s->u->s);
        ustack_leave(s->u);
}

/* Datagrams of `segment` bytes each, and a last one (UDP_SEGMENT). Where the queue fills on the way
 * the rest is lost, as datagrams may be. */
static ssize_t send_segments(struct usock *s, struct udp_dest *d, struct cursor *c, size_t total,
                             uint16_t segment)
{
        unsigned behind = 0;
        uint8_t many = d->many;
        size_t done = 0, n;
        ssize_t r;

        assert(segment != 0 && total > segment);
        while (done < total) {
                int err = 0;
                d->many = many;
                n = has_place(s->u, d) ? usock_udp_place(s, d, c, total - done, segment, &err) : 0;
                done += n;
                r = err;
                if (n == 0 && err == 0) {
                        n = MIN(segment, total - done);
                        d->many = (uint8_t)(done + n < total && ++behind % UDP_BATCH != 0
                                                    ? many | UDP_MORE
                                                    : many);
                        r = send_one_said(s, d, c, n);
                        done += r >= 0 ? n : 0;
                }
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
        return (flags & USOCK_BATCH) && usock_tls.batch != 0 && ++usock_tls.batch % UDP_BATCH != 1;
}

/* What the datagram has of the socket, if nothing else is said of it. */
static void take_options(struct usock *s, struct usock_sent *sent)
{
        if (!sent->opts_set && READ_ONCE(usock_rec(s)->ip_opts))
                sent->opts = usock_own(s).opts;
}

/* Without SO_ZEROCOPY the flag is none: Linux. */
static bool asks_for_notes(int kfd, int flags)
{
        int on = 0;
        socklen_t len = sizeof on;

        return flags & MSG_ZEROCOPY &&
               sys5(SYS_getsockopt, kfd, SOL_SOCKET, SO_ZEROCOPY, &on, &len) == 0 && on;
}

/* The destination has no socket of the kernel's, but one of unetd's that nobody reads. */
static bool is_held(struct usock *s, const struct udp_dest *d)
{
        ip_addr addr = d->to.raddr;
        uint16_t port = d->to.rport;
        struct dir_hit hit;

        return (port != 0 || usock_peer(s, &addr, &port)) &&
               ustack_lookup(IP_PROTO_UDP | DIR_HELD, addr, port, 0, &hit);
}

bool usock_udp_kernel_tells(struct usock *s, int flags, const struct usock_sent *sent,
                            const struct udp_dest *d)
{
        bool stamped = READ_ONCE(usock_rec(s)->cork) & SOCK_CORK_STAMPED ||
                       (sent != NULL && sent->stamped);
        const struct chan_slot *slot = &s->u->s.st->chan[d->chan];
        int kfd = READ_ONCE(s->kfd);

        return kfd >= 0 && slot->netif == 0 && !slot->remote &&
               (stamped || asks_for_notes(kfd, flags)) && !is_held(s, d);
}

int usock_udp_said(struct usock *s, const struct msghdr *m, struct usock_sent *sent,
                   struct udp_dest *d)
{
        int err = usock_cmsg_read(m, sent);

        assert(!ustack_locked(s->u));
        if (err != 0)
                return err;
        take_options(s, sent);
        err = dest_of(s, m, sent, d);
        return err != 0 ? err : take_source(s, sent, d);
}

/* With control messages, or with UDP_SEGMENT or IP options of the socket. */
static ssize_t send_said(struct usock *s, const struct msghdr *m, size_t total, int flags)
{
        uint16_t segment = READ_ONCE(usock_rec(s)->segment);
        struct cursor c = {m->msg_iov, 0, 0};
        struct usock_sent sent;
        struct udp_dest d;
        int err = usock_udp_said(s, m, &sent, &d);

        if (err != 0)
                return err;
        if (unlikely(usock_udp_kernel_tells(s, flags, &sent, &d)))
                return -ENOENT;
        segment = sent.segment != 0 ? sent.segment : segment;
        if (segment != 0 && total > (size_t)segment * UDP_SEGMENTS_MAX)
                return -EINVAL;
        return segment != 0 && segment < total ? send_segments(s, &d, &c, total, segment)
                                               : send_one_said(s, &d, &c, total);
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
                return -EOPNOTSUPP; /* Linux: "mirror BSD error message compatibility" */
        if (flags & MSG_MORE || READ_ONCE(usock_rec(s)->cork) & ~SOCK_CORK_STAMPED)
                return usock_udp_send_corked(s, m, total, flags);
        if (total > UDP_MAX_PAYLOAD)
                return -EMSGSIZE;
        if (m->msg_controllen != 0 || READ_ONCE(usock_rec(s)->segment) != 0 ||
            READ_ONCE(usock_rec(s)->ip_opts))
                return send_said(s, m, total, flags);
        err = dest_of(s, m, NULL, &d);
        if (err == 0 && usock_udp_kernel_tells(s, flags, NULL, &d))
                return -ENOENT;
        if (batched(flags))
                d.many |= UDP_MORE;
        return err != 0 ? err : send_one(s, &d, &c, total);
}

ssize_t usock_udp_send(struct usock *s, const struct msghdr *m, size_t total, int flags)
{
        struct cursor c = {m->msg_iov, 0, 0};
        struct udp_dest d;
        int err;

        if (unlikely(flags & (MSG_OOB | USOCK_BATCH | MSG_MORE | MSG_ZEROCOPY) ||
                     READ_ONCE(usock_rec(s)->cork)))
                return send_flagged(s, m, total, flags);
        if (total > UDP_MAX_PAYLOAD)
                return -EMSGSIZE;
        if (unlikely(m->msg_controllen != 0 || READ_ONCE(usock_rec(s)->segment) != 0 ||
                     READ_ONCE(usock_rec(s)->ip_opts)))
                return send_said(s, m, total, flags);
        err = dest_of(s, m, NULL, &d);
        return unlikely(err != 0) ? err : send_one(s, &d, &c, total);
}

/* Taken back first: who finds it full again after that is told again, and who did before has
 * the edge. */
bool usock_unblocked(struct usock *s)
{
        struct sock_rec *rec = usock_rec(s);

        if (likely(READ_ONCE(rec->blocked) == 0) || !usock_udp_room(s))
                return false;
        WRITE_ONCE(rec->blocked, 0);
        atomic_fetch_add_explicit(&rec->edge_out, 1, memory_order_release);
        return true;
}

bool usock_blocked(const struct usock *s)
{
        return READ_ONCE(usock_rec(s)->blocked) != 0;
}

bool usock_udp_room(struct usock *s)
{
        uint32_t b = READ_ONCE(usock_rec(s)->blocked), k = (b & BLOCKED_CHAN) - 1,
                 classes = b / (BLOCKED_CHAN + 1);
        struct stack *st = &s->u->s;
        struct unet_chan *ch = b != 0 ? stack_chan_peek(st, k) : NULL;

        if (likely(ch == NULL) || ch->ops->pending(ch))
                return true;
        if (classes != 0)
                return !(READ_ONCE(st->frames->region[FRAME_REGION_TX(k)].pool->starved) & classes);
        return !READ_ONCE(st->st->chan[k].starved) && ch->ops->room(ch) > 0;
}
