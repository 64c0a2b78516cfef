/*
 * What is lost and how it is mended, for the files of tcp/ only: SACK (RFC 2018), RACK-TLP (RFC
 * 8985), undo, recovery (RFC 6675), PRR (RFC 6937).
 */
#ifndef TCP_LOSS_H
#define TCP_LOSS_H

#include "tcp/tcp_conn.h"

/* tcp_sack.c */
unsigned sack_write(const struct tcp *t, struct tcp_conn *tc, struct tcp_sack_block *out,
                    unsigned room);
void sack_note_dup(struct tcp_conn *tc, uint32_t left, uint32_t right);
/* Marks what the peer reports. */
void sack_input(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now);

/* tcp_watch.c */
/* A segment of a watched connection was taken for lost, or its retransmission timer fired. */
void watch_lost(struct tcp_conn *tc, bool timeout);

/* tcp_rack.c */
void rack_update(struct tcp_conn *tc, const struct tcp_txseg *s, nstime now);
void rack_detect(struct tcp *t, struct tcp_conn *tc, nstime now);
void rack_dsack(struct tcp_conn *tc);
void rack_mark_lost(struct tcp_conn *tc, struct tcp_txseg *s);
void tlp_input(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t acked,
               bool moved, nstime now);
/* The peer reports the last probe as a duplicate: a timer sent it, not a judgement about what is
 * lost (as Linux). */
static inline bool tlp_dup(const struct tcp_conn *tc, const struct tcp_sack_block *b)
{
        return tc->flags & TCF_TLP_RETX && b->right == tc->tlp.end;
}

/* tcp_undo.c */
/* The window was about to be reduced; nothing more can undo that; `seg` was sent again; the peer
 * reports b as a duplicate; an acknowledgement of `acked` bytes, before recovery sees it.
 * undo_timeout(): by a timeout, `first` where nothing was being recovered. */
void undo_begin(struct tcp_conn *tc);
void undo_timeout(struct tcp_conn *tc, bool first);
void undo_forget(struct tcp_conn *tc);
void undo_resent(struct tcp_conn *tc, const struct tcp_seg *seg);
void undo_duplicate(struct tcp_conn *tc, const struct tcp_sack_block *b);
void undo_ack(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t acked);
/* An ACK that a later one has overtaken may bring the report of the last duplicate. */
void undo_old_ack(struct tcp *t, struct tcp_conn *tc);

/* tcp_recovery.c */
/* Enters recovery by an ACK that delivers so many bytes, or by none. */
void recovery_enter(struct tcp *t, struct tcp_conn *tc, uint32_t delivered, nstime now);
void recovery_ack(struct tcp *t, struct tcp_conn *tc, uint32_t acked, uint32_t delivered,
                  nstime now);
/* Nothing comes: the first segment once more, whatever became of it. */
void recovery_probe(struct tcp *t, struct tcp_conn *tc);
void recovery_timeout(struct tcp *t, struct tcp_conn *tc, nstime now);
void recovery_set_slow(struct tcp_conn *tc);

/* tcp_prr.c */
/* Recovery begins by an ACK that delivers so many bytes. */
void prr_init(struct tcp_conn *tc, uint32_t delivered);
/* On each ACK in recovery: `delivered` bytes are newly acknowledged or SACKed. safe: it moved
 * SND.UNA, and nothing more is lost. */
void prr_ack(struct tcp_conn *tc, uint32_t delivered, bool safe);

#endif
