/* SYNs that are answered before they come here, by the channel (unet/ni_answer.h) or by a promise
 * (unet/ni_promise.h), and TCP, which must know of them (struct tcp_answers). */
#include "netstack/stack_road.h"

#include "netstack/stack_trace.h"
#include "tcp/tcp_answers.h"
#include "tcp/tcp_hdr.h"
#include "unet/ni_answer.h"
#include "unet/ni_promise.h"

#define MISTRUSTED  (60 * NS_PER_S)
#define WSCALE_MOST 14u             /* RFC 7323 §2.3 */
#define HOLDS       (10 * NS_PER_S) /* then neighbour, route and sizes are looked at again */

/* NULL: its channel does not answer, or is none. */
static struct unet_chan *answering(struct stack *s, uint32_t k)
{
        const struct stack_chan *c = stack_chan_get(s, k);

        return c != NULL && c->netif.nif != NULL && c->ch->answers != NULL ? c->ch : NULL;
}

/* Returns true if somebody captures or traces: then all that leaves is to be seen leaving. */
static bool is_watched(const struct stack *s)
{
        return capture_on(s->capture) || stack_traced(s);
}

static struct unet_ends ends_of(const struct tcp_tuple *t)
{
        return (struct unet_ends){.peer = be32_of(ip_addr_get_v4(t->raddr)),
                                  .own = be32_of(ip_addr_get_v4(t->laddr)),
                                  .peer_port = be16_of(t->rport),
                                  .own_port = be16_of(t->lport)};
}

static bool took(void *arg, const struct tcp_tuple *tuple, uint32_t seq, struct tcp_answer *a)
{
        struct unet_chan *ch = answering(arg, tuple->chan);
        struct unet_ends e = ends_of(tuple);
        struct unet_answer how;

        if (ch == NULL || !ch->answers->took(ch, &e, seq, &how))
                return false;
        if (is_watched(arg)) /* since a moment ago */
                ch->answers->forget(ch);
        *a = (struct tcp_answer){
                .at = how.at, .iss = how.iss, .wnd = how.wnd, .wscale = how.wscale};
        return true;
}

static void count_ends(void *arg, const struct tcp_tuple *tuple, int by)
{
        struct unet_chan *ch = answering(arg, tuple->chan);
        struct unet_ends e = ends_of(tuple);

        if (ch != NULL)
                ch->answers->count(ch, &e, by);
}

/* Its SYN-ACK as it would be sent now, with Ethernet's header; bytes, 0: nobody knows where to. */
static uint32_t answer_of(struct stack *s, const struct tcp_conn *tc, struct netif_hdr *h)
{
        const struct netif_view *v = &s->chan[tc->tuple.chan].netif;
        const uint8_t *mac = netif_near(v, ip_addr_get_v4(tc->tuple.raddr));
        struct tcp_seg seg;
        struct ip_tmpl ip;
        unsigned thl;

        if (mac == NULL)
                return 0;
        tcp_answer_of(tc, &seg);
        thl = tcp_hdr_write(&seg, h->ip + IP_MIN_HDR);
        ip_tmpl_init(&ip, tc->tuple.laddr, tc->tuple.raddr, IP_PROTO_TCP, tc->opts.tos,
                     tc->opts.ttl, true);
        ip_hdr_write(&ip, h->ip, (uint16_t)(IP_MIN_HDR + thl), 0);
        ether_write(h->link + NETIF_ROOM - ETHER_HDR, mac, v->nif->cfg.mac, ETHER_IPV4);
        return ETHER_HDR + IP_MIN_HDR + thl;
}

static void learn(void *arg, const struct tcp_conn *tc, uint32_t room)
{
        struct stack *s = arg;
        struct unet_chan *ch = answering(s, tc->tuple.chan);
        struct unet_ends e = ends_of(&tc->tuple);
        struct unet_lesson l = {.secret = s->tcp.sh->secret,
                                .until = s->now + HOLDS,
                                .ahead = room,
                                .ends = {tc->tuple.laddr.w[0], tc->tuple.laddr.w[1],
                                         tc->tuple.raddr.w[0], tc->tuple.raddr.w[1]}};
        struct netif_hdr h;

        assert(room != 0);
        if (ch == NULL || is_watched(s) || ch->answers->knows(ch, &e, s->now))
                return;
        l.len = answer_of(s, tc, &h);
        l.frame = h.link + NETIF_ROOM - ETHER_HDR;
        if (l.len == 0)
                return;
        if (!ch->answers->counts(ch))
                tcp_count_all(&s->tcp, tc->tuple.chan);
        ch->answers->learn(ch, &e, &l);
}

/* ---- promises ---- */

/* NULL: none is made by this channel, or used. Both ends are one user's. */
static struct unet_chan *promising(struct stack *s, uint32_t k)
{
        const struct stack_chan *c = stack_chan_get(s, k);
        bool may = c != NULL && c->ch->promises != NULL && c->caps.inside && c->caps.lossless &&
                   !c->stranger && !is_watched(s);

        return may ? c->ch : NULL;
}

static struct unet_door door_of(ip_addr addr, uint16_t port)
{
        return (struct unet_door){be32_of(ip_addr_get_v4(addr)), be16_of(port)};
}

static void promise(void *arg, const struct tcp_conn *tc, uint32_t room)
{
        struct stack *s = arg;
        struct unet_chan *ch = promising(s, tc->tuple.chan);
        struct unet_promise p = {.room = room};
        struct tcp_seg seg;

        if (ch == NULL || !ip_addr_is_v4(tc->tuple.laddr) || s->promiser == NULL ||
            !s->promiser(s, &p.by))
                return;
        tcp_answer_of(tc, &seg);
        p.wnd = seg.wnd;
        p.mss = seg.mss;
        p.wscale = seg.wscale;
        ch->promises->make(ch, door_of(tc->tuple.laddr, tc->tuple.lport), &p, s->now);
        s->st->promised = 1;
}

static uint16_t promised(void *arg, const struct tcp_tuple *tuple, struct tcp_seg *answer)
{
        struct stack *s = arg;
        struct unet_chan *ch = promising(s, tuple->chan);
        struct unet_door door = door_of(tuple->raddr, tuple->rport);
        struct unet_promise p;

        if (ch == NULL || !ip_addr_is_v4(tuple->raddr) || s->lives == NULL)
                return 0;
        if (!ch->promises->look(ch, door, &p) || p.wscale > WSCALE_MOST || !s->lives(s, p.by))
                return 0;
        *answer = (struct tcp_seg){.flags = TCP_SYN | TCP_ACK,
                                   .wnd = p.wnd,
                                   .mss = p.mss,
                                   .wscale = p.wscale,
                                   .sack_ok = true};
        return ch->promises->take(ch, door);
}

static bool keep(void *arg, const struct tcp_tuple *tuple, uint16_t said, struct tcp_answer *a)
{
        const struct stack_chan *c = stack_chan_get(arg, tuple->chan);
        struct unet_promise p;

        if (c == NULL || c->ch->promises == NULL ||
            !c->ch->promises->keep(c->ch, door_of(tuple->laddr, tuple->lport), said, &p))
                return false;
        *a = (struct tcp_answer){.wnd = p.wnd, .wscale = p.wscale};
        return true;
}

static void withdraw(struct stack *s)
{
        s->st->promised = 0;
        for (uint32_t k = 0; k < s->nchan; k++) {
                const struct stack_chan *c = stack_chan_get(s, k);
                if (c != NULL && c->ch->promises != NULL && c->caps.inside)
                        c->ch->promises->withdraw(c->ch, s->now);
        }
}

static void forget(void *arg)
{
        struct stack *s = arg;

        if (s->st->promised)
                withdraw(s);
        for (uint32_t i = 0; i < s->st->netifs; i++) {
                uint32_t k = stack_netif(s->st, i)->chan;
                struct unet_chan *ch = k != 0 ? answering(s, k - 1) : NULL;
                if (ch != NULL)
                        ch->answers->forget(ch);
        }
}

/* The program's SYN-ACK was lost: by accident, or because all are. What the program sends bypasses
 * XDP programs behind the peer's driver (generic), one of ours even (skb_is_redirected()), and the
 * peer would wait a second for each of its connections. */
static void lost(void *arg, const struct tcp_conn *tc)
{
        struct stack *s = arg;
        struct unet_chan *ch = answering(s, tc->tuple.chan);
        struct unet_ends e = ends_of(&tc->tuple);

        if (ch != NULL)
                ch->answers->mistrust(ch, &e, s->now + MISTRUSTED);
}

const struct tcp_answers stack_answers = {.took = took,
                                          .count = count_ends,
                                          .learn = learn,
                                          .lost = lost,
                                          .promise = promise,
                                          .promised = promised,
                                          .keep = keep,
                                          .forget = forget};
