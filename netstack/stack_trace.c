#include "netstack/stack_trace.h"

#include "netstack/stack.h"
#include "tcp/tcp_hdr.h"

static void trace_drops(struct stack *s, uint32_t k, uint8_t proto, uint32_t len,
                        const struct counters *before)
{
        const struct counters *cnt = &s->st->cnt;

        for (uint32_t why = 1; why < DROP_COUNT; why++)
                for (uint64_t n = cnt->drop[why] - before->drop[why]; n > 0; n--)
                        trace(s->trace, s->now, TRACE_DROP, s->st->busy, why, proto, len, k);
}

/* The window that the peer offers, when it closes and when it opens again. */
static void trace_window(struct stack *s, uint32_t conn)
{
        const struct tcp_conn *tc;

        if (conn == 0 || !(tc = tcp_conn_at(&s->tcp, conn))->live || tc->state < TCPS_ESTABLISHED)
                return;
        if (tc->snd_wnd == 0 ? s->shut_window == conn : s->shut_window != conn)
                return;
        s->shut_window = tc->snd_wnd == 0 ? conn : 0;
        trace(s->trace, s->now, TRACE_TCP_WINDOW, conn, tc->snd_wnd, tc->snd_nxt - tc->snd_una);
}

static void trace_recovery(struct stack *s, uint32_t conn, const struct counters *before)
{
        const struct tcp_conn *tc;

        if (conn == 0 ||
            s->st->cnt.n[COUNT_TCP_FAST_RECOVERY] == before->n[COUNT_TCP_FAST_RECOVERY])
                return;
        tc = tcp_conn_at(&s->tcp, conn);
        trace(s->trace, s->now, TRACE_TCP_RECOVERY, conn, tc->cwnd, tc->ssthresh,
              tc->snd_nxt - tc->snd_una);
}

static void trace_packet(struct stack *s, const uint8_t *p, uint32_t n, uint8_t proto, uint32_t len)
{
        struct tcp_seg seg;
        int thl;

        if (proto == IP_PROTO_TCP && (thl = tcp_hdr_parse(p, n, &seg)) >= 0)
                trace(s->trace, s->now, TRACE_TCP_IN, s->st->busy, seg.seq, seg.ack,
                      len - (uint32_t)thl, seg.flags);
        else if (proto == IP_PROTO_UDP && n >= UDP_HDR)
                trace(s->trace, s->now, TRACE_UDP_IN, 0, be16_at(p), be16_at(p + 2), len - UDP_HDR);
        else if (proto == IP_PROTO_ICMP && n >= 2)
                trace(s->trace, s->now, TRACE_ICMP_IN, 0, p[0], p[1], len);
}

void stack_trace_in(struct stack *s, uint32_t k, const struct unet_rx *rx,
                    const struct counters *before)
{
        uint32_t total = rx->inl_len + (rx->frame != 0 ? rx->len : 0), hdr, proto;

        if (rx->inl_len < IP_MIN_HDR || (hdr = (rx->inl[0] & 0xfu) * 4) > rx->inl_len) {
                trace_drops(s, k, 0, total, before);
                return;
        }
        proto = rx->inl[9];
        if (proto != IP_PROTO_TCP)
                s->st->busy = 0; /* of an earlier segment */
        trace_packet(s, rx->inl + hdr, rx->inl_len - hdr, (uint8_t)proto, total - hdr);
        trace_drops(s, k, (uint8_t)proto, total - hdr, before);
        trace_recovery(s, s->st->busy, before);
        trace_window(s, s->st->busy);
}

void stack_trace_udp_out(struct stack *s, const struct udp_out *o, uint32_t len)
{
        trace(s->trace, s->now, TRACE_UDP_OUT, 0, o->tuple.lport, o->tuple.rport, len);
}

void stack_trace_out(struct stack *s, const struct tcp_conn *tc, const struct tcp_seg *seg,
                     const struct counters *before)
{
        const struct counters *cnt = &s->st->cnt;

        trace(s->trace, s->now, TRACE_TCP_OUT, tc->self, seg->seq, seg->ack, seg->len, seg->flags);
        if (cnt->n[COUNT_TCP_TLP] != before->n[COUNT_TCP_TLP])
                trace(s->trace, s->now, TRACE_TCP_TLP, tc->self, seg->seq, seg->len);
        if (cnt->n[COUNT_TCP_RETRANS] != before->n[COUNT_TCP_RETRANS])
                trace(s->trace, s->now, TRACE_TCP_RETRANSMIT, tc->self, seg->seq, seg->len,
                      tc->cwnd, tc->snd_nxt - tc->snd_una);
}

void stack_trace_timer(struct stack *s, const struct tcp_conn *tc, const struct counters *before)
{
        const struct counters *cnt = &s->st->cnt;

        if (cnt->n[COUNT_TCP_RTO] != before->n[COUNT_TCP_RTO])
                trace(s->trace, s->now, TRACE_TCP_RTO, tc->self, (uint64_t)tc->rto, tc->backoff,
                      tc->snd_nxt - tc->snd_una);
        else if (tc->rtx_kind == RTX_PERSIST && tc->probes != 0)
                trace(s->trace, s->now, TRACE_TCP_PROBE, tc->self, tc->probes, (uint64_t)tc->rto);
        trace_recovery(s, tc->self, before);
}

void stack_capture(struct stack *s, const struct stack_chan *c, enum capture_dir dir,
                   const uint8_t *inl, uint32_t inl_len, uint32_t frame, uint32_t off, uint32_t len)
{
        struct capture_pkt p = {.hdr = inl,
                                .hdr_len = inl_len,
                                .data_len = len,
                                .dir = dir,
                                .chan = (uint16_t)(c - s->chan)};

        if (frame != 0 && s->frames->region[frame_id_region(frame)].base != NULL)
                p.data = frame_addr(s->frames, frame) + off;
        if (c->netif.nif != NULL && !netif_strip(&p))
                return;
        capture_write(s->capture, &p, s->now);
}
