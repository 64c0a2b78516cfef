/* Selective acknowledgement, both directions (RFC 2018), and duplicates reported by it
 * (RFC 2883). */
#include "tcp/tcp_cc.h"
#include "tcp/tcp_loss.h"
#include "tcp/tcp_rate.h"
#include "tcp/tcp_send.h"

/* ---- what we report ---- */

void sack_note_dup(struct tcp_conn *tc, uint32_t left, uint32_t right)
{
        if (!tc->sack_ok)
                return;
        tc->dsack = (struct tcp_sack_block){left, right};
        conn_flag(tc, TCF_DSACK);
}

/* The run that begins with record i; a FIN takes a number, too. */
static struct tcp_sack_block block_from(const struct tcp *t, uint32_t i)
{
        const struct tcp_rxseg *last = rxseg_at(t, rxseg_at(t, i)->run);

        return (struct tcp_sack_block){rxseg_at(t, i)->seq, last->seq + last->data.len + last->fin};
}

static bool reported(const struct tcp_sack_block *b, unsigned n, unsigned from, uint32_t left)
{
        for (unsigned i = from; i < n; i++)
                if (b[i].left == left)
                        return true;
        return false;
}

/* RFC 2018 §4: the block with what arrived last first (after a D-SACK), then those reported
 * most recently. */
static unsigned write_recent(const struct tcp *t, const struct tcp_conn *tc,
                             struct tcp_sack_block *out, unsigned n, unsigned room)
{
        for (unsigned k = 0; k < TCP_MAX_SACK && n < room; k++)
                if (tc->ooo_recent[k] != 0)
                        out[n++] = block_from(t, tc->ooo_recent[k]);
        return n;
}

unsigned sack_write(const struct tcp *t, struct tcp_conn *tc, struct tcp_sack_block *out,
                    unsigned room)
{
        unsigned n = 0, from;

        room = MIN(room, (unsigned)(tc->ts_ok ? TCP_MAX_SACK - 1 : TCP_MAX_SACK));
        if (tc->flags & TCF_DSACK && n < room)
                out[n++] = tc->dsack;
        from = n;
        n = write_recent(t, tc, out, from, room);
        for (uint32_t i = tc->ooo_head; i != 0 && n < room;
             i = rxseg_at(t, rxseg_at(t, i)->run)->next)
                if (!reported(out, n, from, rxseg_at(t, i)->seq))
                        out[n++] = block_from(t, i);
        return n;
}

/* ---- what the peer reports ---- */

/* RFC 2883 §4: below the cumulative ACK, or inside the second block. */
static bool is_dsack(const struct tcp_seg *seg)
{
        const struct tcp_sack_block *b = seg->sack;

        if (seq_leq(b[0].right, seg->ack))
                return true;
        return seg->nsack > 1 && seq_geq(b[0].left, b[1].left) && seq_leq(b[0].right, b[1].right);
}

static bool block_valid(const struct tcp_conn *tc, const struct tcp_sack_block *b, uint32_t ack)
{
        return seq_lt(b->left, b->right) && seq_gt(b->right, ack) &&
               seq_leq(b->right, tc->snd_nxt) && seq_geq(b->left, tc->snd_una);
}

static void mark_sacked(struct tcp_conn *tc, struct tcp_txseg *s, nstime now)
{
        uint32_t space = txseg_space(s);

        rate_delivered(tc, s, now);
        rack_update(tc, s, now);
        if (s->marks & TXS_LOST)
                tc->lost -= space;
        if (s->marks & TXS_RETX)
                tc->retx -= space;
        if (!(s->marks & TXS_EVER_RETX) && seq_lt(txseg_end(s), tc->high_sacked))
                conn_flag(tc, TCF_REORDER); /* RFC 8985 §6.2 step 3 */
        s->marks = (uint8_t)((s->marks & TXS_EVER_RETX) | TXS_SACKED);
        tc->sacked += space;
        tc->high_sacked = seq_max(tc->high_sacked, txseg_end(s));
}

/* A block that begins or ends inside a segment: cut there, so that marks stay whole segments. */
static bool cut_to_block(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s,
                         const struct tcp_sack_block *b)
{
        if (s->marks & TXS_SACKED)
                return false;
        if (seq_lt(s->seq, b->left))
                /* The rest is the next one. */
                return txseg_split(t, tc, s, b->left - s->seq) && false;
        return txseg_split(t, tc, s, b->right - s->seq);
}

/* In their order: one walk for all. */
static void mark_blocks(struct tcp *t, struct tcp_conn *tc, const struct tcp_sack_block *b,
                        unsigned n, nstime now)
{
        for (uint32_t i = tc->snd_head; i != 0 && i != tc->snd_next; i = txseg_at(t, i)->next) {
                struct tcp_txseg *s = txseg_at(t, i);
                for (; n != 0 && seq_geq(s->seq, b->right); n--)
                        b++;
                if (n == 0)
                        break;
                if (seq_leq(txseg_end(s), b->left))
                        continue;
                if ((seq_lt(s->seq, b->left) || seq_gt(txseg_end(s), b->right)) &&
                    !cut_to_block(t, tc, s, b))
                        continue;
                if (!(s->marks & TXS_SACKED))
                        mark_sacked(tc, s, now);
        }
}

static void insert_block(struct tcp_sack_block *sorted, unsigned n, struct tcp_sack_block b)
{
        for (; n != 0 && seq_lt(b.left, sorted[n - 1].left); n--)
                sorted[n] = sorted[n - 1];
        sorted[n] = b;
}

/* The block with what arrived last comes first (RFC 2018 §4). Those that the last ACK did not tell
 * of, since it was lost, would look late in that order. */
void sack_input(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        struct tcp_sack_block sorted[TCP_MAX_SACK];
        unsigned i = 0, n = 0;

        if (seg->nsack == 0)
                return;
        if (tc->sacked == 0)
                tc->high_sacked = tc->snd_una;
        if (is_dsack(seg)) {
                i = 1;
                tc->dsack_dups++;
                count(t->cnt, COUNT_TCP_SPURIOUS);
                if (!tlp_dup(tc, &seg->sack[0])) {
                        rack_dsack(tc);
                        undo_duplicate(tc, &seg->sack[0]);
                }
        }
        for (; i < seg->nsack; i++)
                if (block_valid(tc, &seg->sack[i], seg->ack))
                        insert_block(sorted, n++, seg->sack[i]);
        if (n != 0)
                mark_blocks(t, tc, sorted, n, now);
}
