/* The invariants of a connection, spelled. Speaks about us: no bytes of a peer can make one
 * of these false. */
#include "tcp/tcp_conn.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_send.h"

static void check_send_queue(const struct tcp *t, const struct tcp_conn *tc)
{
        uint32_t at = tc->snd_una, prev = 0, sacked = 0, lost = 0, retx = 0;
        bool unsent = false;

        for (uint32_t i = tc->snd_head; i != 0; i = txseg_at(t, i)->next) {
                const struct tcp_txseg *s = txseg_at(t, i);
                if (i == tc->snd_next) {
                        assert(s->seq == tc->snd_nxt);
                        unsent = true;
                }
                assert(s->prev == prev && s->seq == at);
                assert(s->len != 0 || s->ctl & TCP_FIN);
                assert(s->len == 0 || s->frame != 0);
                assert(!(s->ctl & TCP_FIN) || s->next == 0);
                assert(!unsent || (s->marks & ~TXS_EVER_RETX) == 0);
                assert((s->marks & (TXS_SACKED | TXS_LOST)) != (TXS_SACKED | TXS_LOST));
                sacked += s->marks & TXS_SACKED ? txseg_space(s) : 0;
                lost += s->marks & TXS_LOST ? txseg_space(s) : 0;
                retx += s->marks & TXS_RETX ? txseg_space(s) : 0;
                at = txseg_end(s);
                prev = i;
        }
        assert(tc->snd_tail == prev);
        assert((tc->snd_next != 0) == unsent);
        assert(sacked == tc->sacked && lost == tc->lost && retx == tc->retx);
        assert(tc->snd_head == 0 ||
               at == tc->snd_end + !!(txseg_at(t, tc->snd_tail)->ctl & TCP_FIN));
}

/* Asserts that a run has no gap from its first record to its last, and one behind it. */
static void check_run(const struct tcp *t, uint32_t first)
{
        uint32_t last = rxseg_at(t, first)->run, i = first;

        assert(rxseg_at(t, last)->run == first);
        for (;;) {
                uint32_t next = rxseg_at(t, i)->next,
                         end = rxseg_at(t, i)->seq + rxseg_at(t, i)->data.len;
                assert(next != 0 || i == last);
                assert(next == 0 || (rxseg_at(t, next)->seq == end) == (i != last));
                if (i == last)
                        return;
                i = next;
        }
}

static void check_receive_queue(const struct tcp *t, const struct tcp_conn *tc)
{
        uint32_t sum = 0, last = 0, prev = 0, end = tc->rcv_nxt, records = 0;

        for (uint32_t i = tc->rcv_head; i != 0; i = rxseg_at(t, i)->next) {
                assert(rxseg_at(t, i)->data.len != 0 ||
                       (tc->rcv_unread == 0 && rxseg_at(t, i)->data.id == tc->rcv_fill));
                sum += rxseg_at(t, i)->data.len;
                last = i;
        }
        assert(sum == tc->rcv_unread && last == tc->rcv_tail);
        for (uint32_t i = tc->ooo_head; i != 0; i = rxseg_at(t, i)->next) {
                const struct tcp_rxseg *s = rxseg_at(t, i);
                assert(s->prev == prev);
                assert(prev == 0 ? seq_gt(s->seq, end) : seq_geq(s->seq, end));
                end = s->seq + s->data.len;
                prev = i;
                records++;
        }
        assert(records == tc->ooo_records);
        for (uint32_t i = tc->ooo_head; i != 0; i = rxseg_at(t, rxseg_at(t, i)->run)->next)
                check_run(t, i);
        assert(tc->ooo_tail == prev && !(tc->slow & SLOW_OOO) == (tc->ooo_head == 0));
}

/* A writer that was refused room has been told as soon as there is some: no level comes without its
 * event. */
static void check_room_is_told(const struct tcp *t, const struct tcp_conn *tc)
{
        assert(!(tc->flags & TCF_SND_FULL) || tc->shut & SHUT_SND || !sndbuf_writable(t, tc));
}

void tcp_conn_check(const struct tcp *t, const struct tcp_conn *tc)
{
        if (!tc->live)
                return;
        assert(conn_at(t, tc->self) == tc);
        check_receive_queue(t, tc);
        if (tc->state < TCPS_ESTABLISHED || tc->state == TCPS_TIME_WAIT)
                return;
        assert(seq_leq(tc->snd_una, tc->snd_nxt));
        assert(seq_leq(tc->snd_nxt, tc->snd_end + !!(tc->flags & TCF_FIN_QUEUED)));
        assert(seq_leq(tc->rcv_nxt, tc->rcv_adv));
        assert(!tc->opts.credit || tc->rcv_limit == 0);
        assert(tc->cwnd >= tc->snd_mss || tc->ca_state != CA_OPEN);
        assert(flight(tc) == 0 || tc->rtx_at != NSTIME_NEVER || tc->owed & (OWE_TLP | OWE_PROBE));
        assert((tc->state == TCPS_ESTABLISHED && !(tc->fastopen & FO_OPEN)) ==
               !(tc->slow & SLOW_STATE));
        assert(tc->path.probe == 0 || (tc->path.mss != 0 && tc->path.probe > tc->path.mss));
        assert(tc->path.search_hi == 0 || tc->path.search_hi >= tc->path.mss);
        check_send_queue(t, tc);
        check_room_is_told(t, tc);
}
