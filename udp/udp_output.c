/* Datagrams out: where to, whether at all, and the header. RFC 768, RFC 1122 §4.1.3.5 and
 * .6, §4.1.4. */
#include <errno.h>

#include "udp/udp_pcb.h"

/* The two ends of this datagram. 0 or -errno. */
static int choose_ends(const struct udp_pcb *p, const struct udp_tuple *to, struct udp_tuple *t)
{
        if (to == NULL && !pcb_connected(p))
                return -EDESTADDRREQ;
        if (p->lport == 0)
                return -EINVAL;
        *t = (struct udp_tuple){.laddr = p->laddr, .lport = p->lport};
        t->raddr = to != NULL ? to->raddr : p->raddr;
        t->rport = to != NULL ? to->rport : p->rport;
        t->chan = to != NULL ? to->chan : 0;
        if (unlikely(to != NULL && to->lport != 0))
                t->laddr = to->laddr;
        else if (unlikely(p->bound_many))
                t->laddr = to != NULL ? to->laddr : p->src;
        else if (ip_addr_is_any(t->laddr) && to != NULL)
                t->laddr = to->laddr;
        return t->rport == 0 ? -EINVAL : 0;
}

int udp_output_prepare(struct udp *u, uint32_t pcb, const struct udp_tuple *to, uint32_t len,
                       bool csum, uint32_t payload_sum, struct udp_out *out)
{
        struct udp_pcb *p = pcb_at(u, pcb);
        struct udp_tuple t;
        be16 sum = {0};
        int err;

        if (p->shut & UDP_SHUT_WR)
                return -EPIPE;
        if (p->err != 0)
                return -udp_take_error(u, pcb);
        if (len > UDP_MAX_PAYLOAD)
                return -EMSGSIZE;
        err = choose_ends(p, to, &t);
        if (err != 0)
                return err;
        if (csum && !p->opts.no_check)
                sum = udp_checksum(&t, len, payload_sum);
        *out = (struct udp_out){
                .tuple = t, .tos = p->opts.tos, .ttl = p->opts.ttl, .pmtu_mode = p->opts.pmtu_mode};
        udp_hdr_write(out->hdr, t.lport, t.rport, len, sum);
        count(u->cnt, COUNT_UDP_OUT);
        p->out++;
        return 0;
}

void udp_output_cancel(struct udp *u, uint32_t pcb)
{
        u->cnt->n[COUNT_UDP_OUT]--;
        pcb_at(u, pcb)->out--;
}
