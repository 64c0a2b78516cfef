/*
 * The send buffer: reserve, copy without the lock, commit; and the txsegs that hold what is not
 * acknowledged yet.
 *
 * Bytes are written one after the other into the *fill frame*. A write that continues the last
 * segment, when that was not sent yet and has room, makes it longer; any other starts a segment of
 * at most snd_mss bytes. Segments share frames by reference. A reservation is a list of txsegs that
 * stand beside the queue until they are committed.
 */
#include <errno.h>

#include "tcp/tcp_group.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_rate.h"
#include "tcp/tcp_send.h"
#include "tcp/tcp_stream.h"
#include "tcp/tcp_watch.h"

/* A write up to this does not ask for a large frame by itself. */
#define SMALL_WRITE    FRAME_SMALL_BYTES
#define TXSEG_SPARE(p) ((p)->cap / 16) /* kept for splits: without them nothing could move */

static void append(struct tcp *t, struct tcp_conn *tc, uint32_t i)
{
        struct tcp_txseg *s = txseg_at(t, i);

        s->next = 0;
        s->prev = tc->snd_tail;
        store_order();
        if (tc->snd_tail != 0)
                txseg_at(t, tc->snd_tail)->next = i;
        else
                tc->snd_head = i;
        tc->snd_tail = i;
        if (tc->snd_next == 0)
                tc->snd_next = i;
}

static void release(struct tcp *t, uint32_t i)
{
        uint32_t frame = txseg_at(t, i)->frame;

        pool_free(&t->sh->txsegs, i);
        if (frame != 0)
                frame_drop(t->frames, frame);
}

void txseg_free_head(struct tcp *t, struct tcp_conn *tc)
{
        uint32_t i = tc->snd_head;
        struct tcp_txseg *s = txseg_at(t, i);

        tc->snd_head = s->next;
        if (s->next != 0)
                txseg_at(t, s->next)->prev = 0;
        else
                tc->snd_tail = 0;
        if (tc->snd_next == i)
                tc->snd_next = s->next;
        store_order();
        release(t, i);
}

/* The counts of bytes sacked, lost and retransmitted follow a segment that gets `bytes` shorter. */
static void uncount_marks(struct tcp_conn *tc, const struct tcp_txseg *s, uint32_t bytes)
{
        if (s->marks & TXS_SACKED) {
                assert(tc->sacked >= bytes);
                tc->sacked -= bytes;
        } else if (s->marks & TXS_LOST) {
                assert(tc->lost >= bytes);
                tc->lost -= bytes;
        }
        if (s->marks & TXS_RETX) {
                assert(tc->retx >= bytes);
                tc->retx -= bytes;
        }
}

void txseg_trim(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s, uint32_t bytes)
{
        assert(bytes < txseg_space(s) || bytes == s->len);
        uncount_marks(tc, s, bytes);
        range_skip(&s->off, &s->len, bytes);
        s->seq += bytes;
}

bool txseg_split(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s, uint32_t at)
{
        uint32_t i = pool_alloc(&t->sh->txsegs);
        struct tcp_txseg *rest;

        assert(at != 0 && at < s->len + (s->len && s->ctl & TCP_FIN));
        if (i == 0)
                return false;
        rest = txseg_at(t, i);
        *rest = *s;
        rest->seq += at;
        rest->off += at;
        rest->len -= at;
        rest->prev = pool_index(&t->sh->txsegs, s);
        if (rest->len != 0)
                frame_hold(t->frames, rest->frame);
        else
                rest->frame = 0;
        store_order();
        if (s->next != 0)
                txseg_at(t, s->next)->prev = i;
        else
                tc->snd_tail = i;
        s->next = i;
        store_order();
        s->len = at;
        s->ctl = 0;
        return true;
}

bool txseg_merge(struct tcp *t, struct tcp_conn *tc, struct tcp_txseg *s, uint32_t most)
{
        uint32_t i = s->next;
        struct tcp_txseg *n;

        if (i == 0)
                return false;
        n = txseg_at(t, i);
        assert(n->seq == txseg_end(s) && !(s->ctl & TCP_FIN));
        if (n->frame != s->frame || n->off != s->off + s->len || s->len + n->len > most)
                return false;
        s->ctl |= n->ctl;
        s->len += n->len;
        store_order();
        s->next = n->next;
        *(s->next ? &txseg_at(t, s->next)->prev : &tc->snd_tail) = n->prev;
        store_order();
        release(t, i);
        return true;
}

/* The peer opens its window and has not taken our probe: it counts as never sent, and goes with
 * what follows it. */
void sndbuf_unsend_probe(struct tcp *t, struct tcp_conn *tc)
{
        struct tcp_txseg *s;

        if (tc->snd_head == 0)
                return;
        s = txseg_at(t, tc->snd_head);
        if (txseg_end(s) != tc->snd_nxt || s->len != 1 ||
            s->marks & (TXS_SACKED | TXS_LOST | TXS_RETX))
                return;
        s->marks &= TXS_EVER_RETX;
        tc->snd_next = tc->snd_head;
        WRITE_ONCE(tc->snd_nxt, tc->snd_una);
        txseg_merge(t, tc, s, tc->snd_mss);
}

/* Everything is acknowledged: an idle connection keeps its frame only while few do. */
void sndbuf_idle(struct tcp *t, struct tcp_conn *tc)
{
        const struct frame_pool *p = t->frames->region[tc->link.tx_region].pool;

        if (unlikely(frames_scarce(p)) && tc->rsv_head == 0)
                sndbuf_drop_fill(t, tc);
}

/* A frame with nothing in it but us is written from its start again, still warm. */
static void rewind_fill(struct tcp *t, struct tcp_conn *tc)
{
        const struct frame_rec *r = frame_pool_rec(t->frames->region[tc->link.tx_region].pool,
                                                   frame_id_num(tc->snd_fill));

        if (r->refs == 1 && r->loans == 0)
                tc->snd_fill_off = 0;
}

void sndbuf_drop_fill(struct tcp *t, struct tcp_conn *tc)
{
        if (tc->snd_fill != 0)
                frame_drop(t->frames, tc->snd_fill);
        tc->snd_fill = 0;
}

static uint32_t fill_room(const struct tcp *t, const struct tcp_conn *tc)
{
        return tc->snd_fill ? frame_size(t->frames, tc->snd_fill) - tc->snd_fill_off : 0;
}

/* A small buffer over a link whose segments are longer than a small frame (4 KB over verbs). Each
 * packet costs there, so large frames are used all the same: three at most for what the limit lets
 * be under way. Bytes count, not frames. */
static bool counts_bytes(const struct tcp_conn *tc)
{
        return READ_ONCE(tc->snd_limit) < 2 * FRAME_LARGE_BYTES && !READ_ONCE(tc->link.lossless) &&
               READ_ONCE(tc->snd_mss) > FRAME_SMALL_BYTES;
}

/* A segment ends where its frame does. While the peer is behind, small writes get large frames.
 * Nagle then holds them until its acknowledgement, or a full segment. The end of a small frame
 * would send them two at a time (docs/decisions.md). */
#define BEHIND (4 * SMALL_WRITE)

static enum frame_class class_for(const struct tcp_conn *tc, size_t want)
{
        bool backlog =
                tc->snd_end - tc->snd_nxt >= SMALL_WRITE || tc->snd_end - tc->snd_una >= BEHIND;

        if (tc->snd_limit < 2 * FRAME_LARGE_BYTES && !counts_bytes(tc))
                return FRAME_SMALL;
        return want > SMALL_WRITE || backlog ? FRAME_LARGE : FRAME_SMALL;
}

/* Waits for frames to come back to the region: on a list, once. */
static void wait_for_frames(struct tcp *t, struct tcp_conn *tc)
{
        if (tc->flags & TCF_WAITS)
                return;
        conn_flag(tc, TCF_WAITS | TCF_SND_FULL);
        tc->wait_prev = 0;
        tc->wait_next = t->sh->wait_head;
        if (tc->wait_next != 0)
                conn_at(t, tc->wait_next)->wait_prev = tc->self;
        t->sh->wait_head = tc->self;
}

void sndbuf_unwait(struct tcp *t, struct tcp_conn *tc)
{
        if (!(tc->flags & TCF_WAITS))
                return;
        assert(t->sh->wait_head != 0);
        conn_unflag(tc, TCF_WAITS);
        if (tc->wait_next != 0)
                conn_at(t, tc->wait_next)->wait_prev = tc->wait_prev;
        *(tc->wait_prev ? &conn_at(t, tc->wait_prev)->wait_next : &t->sh->wait_head) =
                tc->wait_next;
}

/* A connection may hold as much of a region as it leaves free: one alone half of it, each of many a
 * fair part. A connection that has nothing always gets something (dynamic thresholds: Choudhury and
 * Hahne, 1998). */
static bool over_share(const struct tcp *t, const struct tcp_conn *tc)
{
        const struct frame_pool *p = t->frames->region[tc->link.tx_region].pool;
        uint64_t free =
                (uint64_t)(p->geom.count[FRAME_LARGE] - p->used[FRAME_LARGE]) * FRAME_LARGE_BYTES +
                (uint64_t)(p->geom.count[FRAME_SMALL] - p->used[FRAME_SMALL]) * FRAME_SMALL_BYTES;

        return tc->snd_mem > free;
}

void sndbuf_wake(struct tcp *t, uint32_t region)
{
        for (uint32_t i = t->sh->wait_head, next; i != 0; i = next) {
                struct tcp_conn *tc = conn_at(t, i);
                next = tc->wait_next;
                if ((region == ANY_REGION || tc->link.tx_region == region) && !over_share(t, tc)) {
                        sndbuf_unwait(t, tc);
                        sndbuf_freed(t, tc);
                }
        }
}

void tcp_frames_back(struct tcp *t, uint32_t region)
{
        sndbuf_wake(t, region);
}

/* Bytes that may still be written by the limit; frames count whole (SO_SNDBUF), until the other
 * side returned them. */
static uint32_t limit_room(const struct tcp_conn *tc)
{
        uint32_t data = tc->snd_end - tc->snd_una;
        uint32_t used = counts_bytes(tc) ? data : MAX(tc->snd_mem, data);

        return used < tc->snd_limit ? tc->snd_limit - used : 0;
}

bool sndbuf_is_lent(const struct tcp_conn *tc)
{
        return !counts_bytes(tc) && tc->snd_end - tc->snd_una < tc->snd_mem / 2;
}

/* Allocates a frame of the class that fits better, or of the other. */
static uint32_t alloc_either(struct tcp *t, const struct tcp_conn *tc, enum frame_class c)
{
        uint32_t id = frame_alloc(t->frames, tc->link.tx_region, c, frame_owner(tc));

        if (id != 0)
                return id;
        c = c == FRAME_LARGE ? FRAME_SMALL : FRAME_LARGE;
        return frame_alloc(t->frames, tc->link.tx_region, c, frame_owner(tc));
}

static bool new_fill(struct tcp *t, struct tcp_conn *tc, size_t want)
{
        uint32_t id = 0;

        /* full: ours no longer, so that it is free when the others let go. */
        sndbuf_drop_fill(t, tc);
        if (tc->snd_mem != 0 && limit_room(tc) == 0)
                return false;
        if (!over_share(t, tc))
                id = alloc_either(t, tc, class_for(tc, want));
        if (id == 0) {
                wait_for_frames(t, tc);
                return false;
        }
        WRITE_ONCE(tc->snd_mem, tc->snd_mem + frame_size(t->frames, id));
        tc->snd_fill = id;
        tc->snd_fill_off = 0;
        return true;
}

/* The last segment can become longer when it was not sent and the next byte written lies right
 * behind it. */
static bool extends_tail(const struct tcp *t, const struct tcp_conn *tc, uint32_t frame,
                         uint32_t off)
{
        const struct tcp_txseg *s;

        if (tc->snd_next == 0)
                return false;
        s = txseg_at(t, tc->snd_tail);
        return s->frame == frame && s->off + s->len == off && s->len < tc->snd_mss;
}

/* The longest piece that fits at the fill position. */
static uint32_t piece_len(const struct tcp *t, const struct tcp_conn *tc, size_t want)
{
        uint32_t most = tc->snd_mss;

        if (tc->rsv_head == 0 && extends_tail(t, tc, tc->snd_fill, tc->snd_fill_off))
                most -= txseg_at(t, tc->snd_tail)->len;
        return (uint32_t)MIN(MIN(want, most), fill_room(t, tc));
}

static inline void reserve_range(struct tcp *t, struct tcp_conn *tc, uint32_t i, uint32_t frame,
                                 uint32_t off, uint32_t len)
{
        *txseg_at(t, i) = (struct tcp_txseg){.len = len, .frame = frame, .off = off};
        frame_hold(t->frames, frame);
        if (tc->rsv_tail != 0)
                txseg_at(t, tc->rsv_tail)->next = i;
        else
                tc->rsv_head = i;
        tc->rsv_tail = i;
        tc->rsv_bytes += len;
}

static void reserve_piece(struct tcp *t, struct tcp_conn *tc, uint32_t i, uint32_t len)
{
        reserve_range(t, tc, i, tc->snd_fill, tc->snd_fill_off, len);
        tc->snd_fill_off += len;
}

/* A small write is not cut for the sake of a few bytes at the end of a frame, nor a large one for
 * less than a segment: the bytes would travel in two segments. */
static bool fill_is_used_up(const struct tcp *t, const struct tcp_conn *tc, size_t want)
{
        uint32_t room = fill_room(t, tc);

        return room == 0 ||
               (room < want && room < MIN(tc->snd_mss, FRAME_SMALL_BYTES) &&
                !(tc->rsv_head == 0 && extends_tail(t, tc, tc->snd_fill, tc->snd_fill_off)));
}

static bool add_span(struct tcp *t, const struct tcp_txseg *s, struct span *span, int n, int *used)
{
        uint8_t *p = frame_addr(t->frames, s->frame) + s->off;

        if (*used != 0 && span[*used - 1].ptr + span[*used - 1].len == p) {
                span[*used - 1].len += s->len;
                return true;
        }
        if (*used == n)
                return false;
        span[(*used)++] = (struct span){p, s->len};
        return true;
}

/* The error of a write, as Linux gives it: a pending error once, then EPIPE. */
static int send_error(struct tcp_conn *tc)
{
        if (tc->err != 0) {
                int err = tc->err;
                WRITE_ONCE(tc->err, 0);
                return -err;
        }
        if (tc->shut & SHUT_SND || tc->state == TCPS_CLOSED)
                return -EPIPE;
        return 0;
}

/* TCP_NOTSENT_LOWAT: no more is taken while so much has not been sent. As Linux, which asks for
 * each new buffer and not for each byte, it goes beyond by less than a segment. */
static bool at_unsent_mark(const struct tcp_conn *tc)
{
        uint32_t lowat = tc->opts.notsent_lowat;

        return unlikely(lowat != 0) && tc->snd_end - tc->snd_nxt + tc->rsv_bytes >= lowat;
}

/* Under opts.unsent_most. */
static uint32_t unsent_room(const struct tcp_conn *tc)
{
        uint32_t most = READ_ONCE(tc->opts.unsent_most), unsent;

        if (likely(most == 0))
                return UINT32_MAX;
        unsent = tcp_unsent(tc);
        return most > unsent ? most - unsent : 0;
}

/* Under the limit of its group, as it was last. */
static uint32_t group_room(const struct tcp_conn *tc)
{
        uint32_t most = READ_ONCE(tc->snd_most),
                 data = READ_ONCE(tc->snd_end) - READ_ONCE(tc->snd_una);

        if (likely(most == 0))
                return UINT32_MAX;
        return most > data ? most - data : 0;
}

static inline bool is_full_by_group(const struct tcp_conn *tc)
{
        uint32_t most = READ_ONCE(tc->snd_most);

        return unlikely(most != 0) && group_room(tc) < (most + 2) / 3;
}

/* A small write that goes whole behind what is in the fill frame: nearly every write of
 * a conversation. */
static bool fits_fill(const struct tcp *t, const struct tcp_conn *tc, size_t want)
{
        if (want > tc->snd_mss || want > fill_room(t, tc) ||
            tc->snd_end - tc->snd_una >= tc->snd_limit ||
            pool_room(&t->sh->txsegs) <= TXSEG_SPARE(&t->sh->txsegs) || at_unsent_mark(tc))
                return false;
        return tc->snd_next == 0 || !extends_tail(t, tc, tc->snd_fill, tc->snd_fill_off) ||
               txseg_at(t, tc->snd_tail)->len + want <= tc->snd_mss;
}

/* Reserves a piece at the fill position. Returns false if there is no room or no span for it. */
static bool reserve_more(struct tcp *t, struct tcp_conn *tc, size_t want, struct span *span, int n,
                         int *used)
{
        struct tcp_txseg piece;

        if (pool_room(&t->sh->txsegs) <= TXSEG_SPARE(&t->sh->txsegs)) {
                wait_for_frames(t, tc);
                return false;
        }
        if (at_unsent_mark(tc))
                return false;
        if (fill_is_used_up(t, tc, want) && !new_fill(t, tc, want))
                return false;
        if (tc->snd_end - tc->snd_una + tc->rsv_bytes >= tc->snd_limit)
                return false;
        piece = (struct tcp_txseg){
                .len = piece_len(t, tc, want), .frame = tc->snd_fill, .off = tc->snd_fill_off};
        if (!add_span(t, &piece, span, n, used))
                return false;
        reserve_piece(t, tc, pool_alloc(&t->sh->txsegs), piece.len);
        return true;
}

static void reserve_all(struct tcp *t, struct tcp_conn *tc, size_t want, struct span *span, int n)
{
        int used = 0;

        want = MIN(want, (size_t)INT32_MAX);
        while (tc->rsv_bytes < want && reserve_more(t, tc, want - tc->rsv_bytes, span, n, &used))
                ;
        if (tc->rsv_bytes != 0)
                sndbuf_unwait(t, tc);
}

/* The part of `want` that its own limits and its group's let it write. */
static size_t may_write(struct tcp *t, struct tcp_conn *tc, size_t want)
{
        want = MIN(want, unsent_room(tc));
        return tc->send_share != 0 ? group_writes(t, tc, (uint32_t)MIN(want, INT32_MAX)) : want;
}

/* What a reservation came to, in bytes. */
static inline int reserved(struct tcp *t, struct tcp_conn *tc)
{
        if (tc->rsv_bytes == 0) {
                conn_flag(tc, TCF_SND_FULL);
                return 0;
        }
        conn_flag(tc, TCF_RSV);
        if (unlikely(tc->send_share != 0))
                group_writes(t, tc, 0);
        return (int)tc->rsv_bytes;
}

int tcp_send_reserve(struct tcp *t, struct tcp_conn *tc, size_t want, struct span *span, int n)
{
        if (unlikely((tc->err | (tc->shut & SHUT_SND)) != 0 || tc->state < TCPS_ESTABLISHED)) {
                int err = send_error(tc);
                if (err != 0 || (tc->state < TCPS_ESTABLISHED && !tcp_fastopen_waits(tc)))
                        return err;
                want = tc->state < TCPS_ESTABLISHED ? MIN(want, fastopen_room(tc)) : want;
        }
        if (tc->flags & TCF_RSV)
                return -EBUSY;
        if (want == 0)
                return 0;
        if (tc->snd_fill != 0 && tc->snd_head == 0)
                rewind_fill(t, tc);
        if (unlikely(tc->slow & SLOW_FLOW))
                want = may_write(t, tc, want);
        if (want != 0 && likely(fits_fill(t, tc, want))) {
                span[0] = (struct span){frame_addr(t->frames, tc->snd_fill) + tc->snd_fill_off,
                                        (uint32_t)want};
                reserve_piece(t, tc, pool_alloc(&t->sh->txsegs), (uint32_t)want);
        } else {
                reserve_all(t, tc, want, span, n);
        }
        return reserved(t, tc);
}

int tcp_send_reserve_named(struct tcp *t, struct tcp_conn *tc, uint32_t name, uint32_t off,
                           size_t want)
{
        int err = send_error(tc);

        if (err != 0)
                return err;
        if (tc->flags & TCF_RSV)
                return -EBUSY;
        want = tc->state < TCPS_ESTABLISHED || at_unsent_mark(tc) ? 0 : MIN(want, limit_room(tc));
        if (unlikely(tc->slow & SLOW_FLOW))
                want = may_write(t, tc, want);
        while (tc->rsv_bytes < want && pool_room(&t->sh->txsegs) > TXSEG_SPARE(&t->sh->txsegs))
                reserve_range(t, tc, pool_alloc(&t->sh->txsegs), name, off + tc->rsv_bytes,
                              (uint32_t)MIN(want - tc->rsv_bytes, tc->snd_mss));
        return reserved(t, tc);
}

void tcp_send_in_place(struct tcp *t, const struct tcp_conn *tc)
{
        for (uint32_t i = tc->rsv_head; i != 0; i = txseg_at(t, i)->next)
                frame_near(t->frames, txseg_at(t, i)->frame);
}

/* Moves one reserved piece, cut to what was written, to the end of the queue. */
static void commit_piece(struct tcp *t, struct tcp_conn *tc, uint32_t i, uint32_t len)
{
        struct tcp_txseg *s = txseg_at(t, i), *tail;

        s->len = len;
        s->seq = tc->snd_end;
        store_order();
        if (extends_tail(t, tc, s->frame, s->off) &&
            (tail = txseg_at(t, tc->snd_tail))->len + len <= tc->snd_mss) {
                tail->len += len;
                store_order();
                release(t, i);
        } else {
                append(t, tc, i);
        }
        store_order();
        WRITE_ONCE(tc->snd_end, tc->snd_end + len);
}

/* Gives back what was reserved and not used: the fill position steps back when it was the last
 * thing reserved. */
static void uncommit_piece(struct tcp *t, struct tcp_conn *tc, uint32_t i, uint32_t frame,
                           uint32_t off)
{
        if (tc->snd_fill == frame && off < tc->snd_fill_off)
                tc->snd_fill_off = off;
        if (i != 0)
                release(t, i);
}

static void drop_reservation(struct tcp *t, struct tcp_conn *tc, size_t bytes, bool keep)
{
        for (uint32_t i = tc->rsv_head, next; i != 0; i = next) {
                struct tcp_txseg *s = txseg_at(t, i);
                uint32_t take = (uint32_t)MIN(bytes, s->len), frame = s->frame, end = s->off + take;
                bool cut = take < s->len;
                next = s->next;
                tc->rsv_head = next;
                if (take != 0 && keep)
                        commit_piece(t, tc, i, take);
                else
                        cut = true;
                if (cut)
                        uncommit_piece(t, tc, take != 0 && keep ? 0 : i, frame, end);
                bytes -= take;
        }
        tc->rsv_head = tc->rsv_tail = tc->rsv_bytes = 0;
        conn_unflag(tc, TCF_RSV);
}

/* RFC 9293 §3.9.1.2: who says that more follows does not push (MAY-15), as on Linux; but half of
 * what the peer ever offered is not to lie there unread because of that. */
static bool waits_unpushed(const struct tcp_conn *tc)
{
        return tc->snd_end - tc->snd_una > tc->max_wnd / 2;
}

void tcp_send_commit(struct tcp *t, struct tcp_conn *tc, size_t bytes, bool more, bool urgent,
                     nstime now)
{
        bool alive = tc->state >= TCPS_SYN_SENT && !(tc->flags & TCF_FIN_QUEUED);

        /* Recovery after a death may have taken the reservation away. */
        bytes = MIN(bytes, tc->rsv_bytes);
        if (unlikely(tc->flags & TCF_RATES))
                rate_written(tc);
        drop_reservation(t, tc, bytes, alive);
        if (unlikely(tc->send_share != 0))
                tcp_group_look(t, tc);
        if (!alive) {
                conn_reap(t, tc); /* over meanwhile, and the record waited for us */
                return;
        }
        if (tc->flags &
            TCF_SND_FULL) /* others were refused room, and what was reserved may have ended that */
                sndbuf_freed(t, tc);
        if (bytes == 0)
                return;
        if (unlikely(urgent)) {
                tc->snd_up = tc->snd_end;
                conn_flag(tc, TCF_URG_OUT);
                tc->owed |= OWE_PUSH;
        }
        if (!more || waits_unpushed(tc))
                txseg_at(t, tc->snd_tail)->ctl |= TCP_PSH;
        if (more && !at_unsent_mark(tc) && unsent_room(tc) != 0 &&
            !is_full_by_group(tc)) /* what follows would have to wait for this to go */
                conn_flag(tc, TCF_MORE);
        else
                conn_unflag(tc, TCF_MORE);
        if (!sndbuf_writable(t, tc))
                conn_flag(tc, TCF_SND_FULL);
        if (unlikely(tc->state == TCPS_SYN_SENT))
                tcp_fastopen_go(t, tc, now);
        touch(t, tc);
}

/* The next byte does not lie right behind the last segment, so neither extends_tail() nor
 * txseg_merge() joins them. */
void tcp_send_end_record(struct tcp *t, struct tcp_conn *tc)
{
        if (tc->rsv_head == 0 && fill_room(t, tc) != 0)
                tc->snd_fill_off++;
}

uint32_t tcp_send_room(const struct tcp *t, const struct tcp_conn *tc)
{
        uint32_t room = limit_room(tc);

        if (tc->state < TCPS_ESTABLISHED || tc->shut & SHUT_SND)
                return 0;
        room = room != 0 ? room : fill_room(t, tc);
        return MIN(room, MIN(unsent_room(tc), group_room(tc)));
}

/* The part of the buffer that has to be free for another write. Linux asks for a third
 * (sk_stream_is_writeable()). If the buffer is what keeps the sender from sending more, a third of
 * a large one leaves as one burst, which waits in every queue on the way. Between processes it
 * would only cost wake-ups. */
#define ROOM_ENOUGH (256u << 10)

static uint32_t room_for_more(const struct tcp_conn *tc, uint32_t limit)
{
        return READ_ONCE(tc->link.lossless) ? limit / 3 : MIN(limit / 3, ROOM_ENOUGH);
}

/* Returns true if so much is free, and less than half of TCP_NOTSENT_LOWAT unsent. */
bool sndbuf_writable(const struct tcp *t, const struct tcp_conn *tc)
{
        uint32_t end = READ_ONCE(tc->snd_end), data = end - READ_ONCE(tc->snd_una),
                 mem = READ_ONCE(tc->snd_mem);
        uint32_t lowat = READ_ONCE(tc->opts.notsent_lowat), limit = READ_ONCE(tc->snd_limit);

        if (READ_ONCE(tc->flags) & TCF_WAITS || unsent_room(tc) == 0 || is_full_by_group(tc) ||
            (lowat != 0 && 2 * (uint64_t)(end - READ_ONCE(tc->snd_nxt)) >= lowat))
                return false;
        if (counts_bytes(tc))
                mem = data;
        return MAX(mem, data) <= limit - room_for_more(tc, limit) || mem == 0;
}

void sndbuf_freed(struct tcp *t, struct tcp_conn *tc)
{
        if (!(tc->flags & TCF_SND_FULL) || !sndbuf_writable(t, tc))
                return;
        conn_unflag(tc, TCF_SND_FULL);
        conn_raise(t, tc, TCP_EV_WRITABLE);
}

void tcp_uncharge(struct tcp *t, uint32_t owner, uint32_t bytes)
{
        struct tcp_conn *tc = conn_at(t, owner & ((1u << 20) - 1));

        if (tc->live && frame_owner(tc) == owner) {
                WRITE_ONCE(tc->snd_mem, tc->snd_mem - bytes);
                if (unlikely(bytes == 0))
                        conn_raise(t, tc, TCP_EV_FLOW);
                if (unlikely(tc->flags & TCF_SND_FULL))
                        sndbuf_freed(t, tc);
        }
        if (unlikely(t->sh->wait_head != 0))
                sndbuf_wake(t, tc->link.tx_region);
}

void sndbuf_queue_fin(struct tcp *t, struct tcp_conn *tc)
{
        uint32_t i;

        assert(tc->shut & SHUT_SND);
        conn_flag(tc, TCF_FIN_QUEUED);
        if (tc->snd_next != 0) {
                txseg_at(t, tc->snd_tail)->ctl |= TCP_FIN;
                return;
        }
        i = pool_alloc(&t->sh->txsegs);
        if (i == 0) {
                /* Then output asks again: see fin_missing() in tcp_output.c. */
                wait_for_frames(t, tc);
                return;
        }
        *txseg_at(t, i) = (struct tcp_txseg){.seq = tc->snd_end, .ctl = TCP_FIN};
        append(t, tc, i);
}

/* The MSS became smaller: what is queued is cut to it. */
void sndbuf_resegment(struct tcp *t, struct tcp_conn *tc)
{
        for (uint32_t i = tc->snd_head; i != 0; i = txseg_at(t, i)->next) {
                struct tcp_txseg *s = txseg_at(t, i);
                if (s->len > tc->snd_mss && !txseg_split(t, tc, s, tc->snd_mss))
                        return;
        }
}

void sndbuf_purge(struct tcp *t, struct tcp_conn *tc)
{
        tc->snd_next = 0;
        while (tc->snd_head != 0)
                txseg_free_head(t, tc);
        tc->sacked = tc->lost = tc->retx = 0;
        sndbuf_drop_fill(t, tc);
}
