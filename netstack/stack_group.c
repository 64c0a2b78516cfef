/* See stack_group.h. RFC 1112, RFC 1122 §3.3.6, §3.3.7 and §4.1.3.5. */
#include "netstack/stack_road.h"

/* The bridge of a shared interface reads reports whole (unetd/bridge/gate_igmp.h). */
#define IGMP_ROOM IGMP_MIN_ROOM

uint32_t stack_ifc(const struct stack *s, uint32_t k)
{
        return s->st->chan[k].netif - 1;
}

/* ---- in ---- */

/* The argument of the callback of udp_rx_many(). */
struct asker {
        struct stack *s;
        uint32_t ifc, group, src; /* group 0: everybody */
};

static bool wants(void *arg, uint32_t sock)
{
        const struct asker *a = arg;

        if (a->group == 0 || sock == 0)
                return true;
        return igmp_wants(a->s->igmp, a->ifc, a->group, sock, a->src,
                          !stack_sock(a->s, sock)->members_only);
}

void stack_rx_many(struct stack *s, uint32_t k, const struct udp_dgram *d)
{
        uint32_t dst = ip_addr_get_v4(d->tuple.laddr);
        struct asker a = {s, stack_ifc(s, k), ip_v4_multicast(dst) ? dst : 0,
                          ip_addr_get_v4(d->tuple.raddr)};

        udp_rx_many(&s->udp, d, wants, &a, s->now);
}

void stack_rx_igmp(struct stack *s, uint32_t k, const struct ip_pkt *pkt)
{
        enum drop why = DROP_IP_PROTOCOL;

        if (s->chan[k].netif.nif != NULL)
                why = igmp_rx(s->igmp, s->frames, stack_ifc(s, k), pkt, &s->st->prng, s->now);
        if (why != DROP_NONE)
                count_drop(&s->st->cnt, why);
        else
                count(&s->st->cnt, COUNT_IGMP_IN);
}

/* ---- out ---- */

/* Delivers a datagram of ours as if it had arrived: to the sockets of this stack, when the host is
 * a member (RFC 1112 §6.1), or to everybody. */
static void loop_back(struct stack *s, uint32_t k, const struct udp_out *o,
                      const struct stack_payload *p)
{
        uint32_t dst = ip_addr_get_v4(o->tuple.raddr);
        struct udp_dgram d = {.tuple = {.laddr = o->tuple.raddr,
                                        .raddr = o->tuple.laddr,
                                        .lport = o->tuple.rport,
                                        .rport = o->tuple.lport,
                                        .chan = (uint16_t)k,
                                        .ttl = o->ttl,
                                        .tos = o->tos},
                              .inl = p->inl};
        struct ip_optbuf opts;

        if (o->opts != NULL) {
                stack_opts_loop(s, o, &opts);
                d.opts = &opts;
        }
        if (p->data.id != 0)
                d.data = p->data;
        else
                d.inl_len = p->len;
        if (!ip_v4_multicast(dst) || igmp_member(s->igmp, stack_ifc(s, k), dst))
                stack_rx_many(s, k, &d);
}

/* Sends a datagram to the other stacks that share the interface. It is lost where the queue is
 * full, as datagrams may be. */
static void loop_beside(struct stack *s, uint32_t k, const struct udp_out *o,
                        const struct stack_payload *p)
{
        struct netif_view *v = &s->chan[k].netif;
        int err;

        if (p->data.id != 0)
                frame_hold(s->frames, p->data.id);
        v->inward = true;
        err = stack_send_udp(s, k, o, p);
        v->inward = false;
        if (err != 0 && p->data.id != 0)
                frame_drop(s->frames, p->data.id);
}

int stack_send_many(struct stack *s, uint32_t k, const struct udp_out *o,
                    const struct stack_payload *p, bool loop)
{
        int err = 0;

        if (p->data.id != 0)
                frame_hold(s->frames, p->data.id);
        if (o->ttl != 0)
                err = stack_send_udp(s, k, o, p);
        else if (p->data.id != 0)
                frame_drop(s->frames, p->data.id);
        if (err == 0 && loop)
                loop_back(s, k, o, p);
        if (err == 0 && loop && s->chan[k].caps.shared)
                loop_beside(s, k, o, p);
        if (p->data.id != 0)
                frame_drop(s->frames, p->data.id);
        return err;
}

/* ---- IGMP's own ---- */

void stack_group_run(struct stack *s, uint32_t k)
{
        uint8_t out[IGMP_ROOM];
        struct igmp_msg msg;

        assert(s->chan[k].netif.nif != NULL);
        if (!s->igmp->ifs[stack_ifc(s, k)].up)
                igmp_if_up(s->igmp, stack_ifc(s, k), s->chan[k].netif.nif->cfg.addr, s->now);
        while (igmp_output(s->igmp, out, sizeof out, &msg, &s->st->prng, s->now)) {
                uint32_t chan = stack_netif(s->st, msg.ifc)->chan;
                if (chan == 0 || stack_chan_get(s, chan - 1) == NULL)
                        continue; /* it is said again (RFC 3376 §8.1) */
                netif_send_many(s, chan - 1, msg.dst, out, msg.len);
                count(&s->st->cnt, COUNT_IGMP_OUT);
        }
}

void stack_group_leave_all(struct stack *s, uint32_t sock)
{
        assert(sock != 0);
        igmp_leave_all(s->igmp, sock, s->now);
        for (uint32_t i = 0; i < s->st->netifs; i++) {
                uint32_t chan = stack_netif(s->st, i)->chan;
                if (chan != 0 && stack_chan_get(s, chan - 1) != NULL)
                        stack_group_run(s, chan - 1);
        }
}

/* ---- after a death ---- */

static bool lives(void *arg, uint32_t sock)
{
        const struct stack *s = arg;

        return sock < s->st->socks.fresh && sock_held(stack_sock(s, sock));
}

void stack_group_recover(struct stack *s, nstime now)
{
        igmp_recover(s->igmp, lives, s, now);
}
