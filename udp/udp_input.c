/*
 * Datagrams in: to the pcb's queue, and from there to the application. RFC 768, RFC 1122 §4.1.3.
 *
 * udp_rx() -> udp_lookup() -> udp_rx_to() -> udp_queue_put();  udp_recv_look() ... udp_recv_take()
 */
#include <errno.h>

#include "udp/udp_pcb.h"

static enum udp_verdict dropped(struct udp *u, struct udp_pcb *p, enum drop why)
{
        count_drop(u->cnt, why);
        p->dropped++;
        return UDP_DONE;
}

enum udp_verdict udp_rx(struct udp *u, const struct udp_dgram *d, nstime now)
{
        uint32_t pcb = udp_lookup(u, &d->tuple);

        if (unlikely(pcb == 0)) {
                count_drop(u->cnt, DROP_UDP_NO_PORT);
                return UDP_NO_PORT;
        }
        return udp_rx_to(u, pcb, d, now);
}

enum udp_verdict udp_rx_to(struct udp *u, uint32_t pcb, const struct udp_dgram *d, nstime now)
{
        struct udp_pcb *p = pcb_at(u, pcb);
        enum udp_put put = udp_queue_put(&p->q, u, d, p->opts.rcvbuf, now);

        if (unlikely(put == UDP_PUT_FULL))
                return dropped(u, p, DROP_UDP_FULL);
        if (unlikely(put == UDP_PUT_NO_MEMORY))
                return dropped(u, p, DROP_UDP_NO_MEMORY);
        count(u->cnt, COUNT_UDP_IN);
        p->in++;
        if ((p->events & UDP_EV_READABLE) == 0)
                pcb_raise(u, pcb, UDP_EV_READABLE);
        return put == UDP_PUT_TOOK ? UDP_TOOK : UDP_DONE;
}

bool udp_rx_short(struct udp *u, uint32_t pcb, const struct udp_tuple *t, const uint8_t *bytes,
                  uint32_t n, nstime now)
{
        struct udp_pcb *p = pcb_at(u, pcb);

        if (unlikely(!udp_queue_put_short(&p->q, u, t, bytes, n, p->opts.rcvbuf, now)))
                return false;
        count(u->cnt, COUNT_UDP_IN);
        p->in++;
        if (unlikely((p->events & UDP_EV_READABLE) == 0))
                pcb_raise(u, pcb, UDP_EV_READABLE);
        return true;
}

/* ---- to many ---- */

/* Linux's __udp_is_mcast_sock(). */
static bool matches(const struct udp_pcb *p, const struct udp_tuple *t)
{
        return p->lport == t->lport &&
               (ip_addr_is_any(p->laddr) || ip_addr_eq(p->laddr, t->laddr)) &&
               (p->rport == 0 || (p->rport == t->rport && ip_addr_eq(p->raddr, t->raddr)));
}

static void rx_copy(struct udp *u, uint32_t pcb, const struct udp_dgram *d, nstime now)
{
        struct udp_pcb *p = pcb_at(u, pcb);

        switch (udp_queue_put_copy(&p->q, u, d, p->opts.rcvbuf, now)) {
        case UDP_PUT_FULL:
                dropped(u, p, DROP_UDP_FULL);
                return;
        case UDP_PUT_NO_MEMORY:
                dropped(u, p, DROP_UDP_NO_MEMORY);
                return;
        case UDP_PUT_TOOK:
        case UDP_PUT_COPIED:
                break;
        }
        count(u->cnt, COUNT_UDP_IN);
        p->in++;
        pcb_raise(u, pcb, UDP_EV_READABLE);
}

unsigned udp_rx_many(struct udp *u, const struct udp_dgram *d,
                     bool (*wants)(void *arg, uint32_t sock), void *arg, nstime now)
{
        unsigned n = 0;

        for (uint32_t i = udp_port_chain(u->sh, d->tuple.lport); i != 0;
             i = pcb_at(u, i)->port_next) {
                if (!matches(pcb_at(u, i), &d->tuple) || !wants(arg, pcb_at(u, i)->sock))
                        continue;
                rx_copy(u, i, d, now);
                n++;
        }
        if (n == 0)
                count_drop(u->cnt, DROP_UDP_NO_PORT);
        return n;
}

/* RFC 1122 §4.1.3.3. Without IP_RECVERR only who is connected is told, and only of hard errors:
 * Linux's __udp4_lib_err(). The tuple quoted must be exactly ours, so that a stranger has to
 * guess it. */
bool udp_icmp(struct udp *u, const struct icmp_err *e)
{
        struct udp_tuple t = {
                .laddr = e->laddr, .raddr = e->raddr, .lport = e->lport, .rport = e->rport};
        uint32_t pcb = udp_lookup(u, &t);

        if (pcb == 0 || e->err == 0 ||
            (!pcb_at(u, pcb)->opts.recverr && (!udp_connected(u, pcb) || !e->hard)))
                return pcb != 0;
        WRITE_ONCE(pcb_at(u, pcb)->err, e->err);
        pcb_raise(u, pcb, UDP_EV_ERROR);
        return true;
}

/* ---- the application's side ---- */

bool udp_recv_look(const struct udp *u, uint32_t pcb, struct udp_sight *s)
{
        const struct udp_pcb *p = pcb_at(u, pcb);

        if (unlikely(READ_ONCE(p->err) != 0) || !udp_queue_look(&p->q, u, s))
                return false;
        s->msg.dport = READ_ONCE(p->lport);
        return true;
}

bool udp_recv_look_short(const struct udp *u, const struct udp_pcb *p, struct udp_sight *s)
{
        return likely(READ_ONCE(p->err) == 0) && udp_queue_look_short(&p->q, u, s);
}

bool udp_recv_take_short(struct udp_pcb *p, const struct udp_sight *s, bool alone)
{
        return alone ? udp_queue_take_alone(&p->q, s) : udp_queue_take(&p->q, s);
}

bool udp_recv_take(struct udp *u, uint32_t pcb, const struct udp_sight *s)
{
        return udp_queue_take(&pcb_at(u, pcb)->q, s);
}

void udp_settle(struct udp *u, uint32_t pcb)
{
        udp_queue_settle(&pcb_at(u, pcb)->q, u);
}

int udp_recv_peek(struct udp *u, uint32_t pcb, uint32_t skip, struct udp_msg *msg, int n)
{
        struct udp_pcb *p = pcb_at(u, pcb);
        int shown;

        if (unlikely(p->err != 0))
                return -udp_take_error(u, pcb);
        shown = udp_queue_peek(&p->q, u, skip, msg, n);
        for (int i = 0; i < shown; i++)
                msg[i].dport = p->lport;
        if (shown != 0 || n == 0 || p->shut & UDP_SHUT_RD)
                return shown;
        return -EAGAIN;
}

uint32_t udp_recv_avail(const struct udp *u, uint32_t pcb)
{
        struct udp_msg first;

        return udp_queue_peek(&pcb_at(u, pcb)->q, u, 0, &first, 1) == 1 ? first.len : 0;
}
