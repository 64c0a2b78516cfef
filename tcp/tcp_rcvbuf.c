/*
 * The receive buffer: data in order that the application has not read.
 *
 * A frame lent by the peer is kept as it is and given back when read. What came in the descriptor,
 * and what is tiny, is copied into a private frame, one after the other. So a trickle of small
 * messages costs neither a frame each nor the peer's frames. The window offered is the buffer's
 * limit less what is unread.
 */
#include <errno.h>
#include <poll.h>

#include "base/checksum.h"
#include "tcp/tcp_conn.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_recv.h"
#include "tcp/tcp_send.h"
#include "tcp/tcp_stream.h"
#include "tcp/tcp_window.h"

/* A lent frame with this little in it is copied out and given back. */
#define TINY          512u
#define RCV_LIMIT_MAX (6u << 20)
/* The size to which a buffer grows for a reader that is behind: that of a cache. */
#define RCV_LIMIT_NEAR (512u << 10)

static struct frame_rec *private_rec(const struct tcp *t, uint32_t frame)
{
        return frame_pool_rec(t->frames->region[FRAME_REGION_PRIVATE].pool, frame_id_num(frame));
}

void rcvbuf_free_buf(struct tcp *t, struct tcp_conn *tc, uint32_t frame)
{
        if (frame_id_region(frame) != FRAME_REGION_PRIVATE)
                --*lent_count(t, frame);
        else if (private_rec(t, frame)->refs == 1)
                tc->rcv_mem -= frame_size(t->frames, frame);
        frame_drop(t->frames, frame);
}

static void free_head(struct tcp *t, struct tcp_conn *tc)
{
        uint32_t i = tc->rcv_head;
        struct tcp_rxseg *s = rxseg_at(t, i);
        uint32_t frame = s->data.id;

        tc->rcv_head = s->next;
        if (tc->rcv_head == 0)
                tc->rcv_tail = 0;
        store_order(); /* out of the queue, then free */
        pool_free(&t->sh->rxsegs, i);
        rcvbuf_free_buf(t, tc, frame);
}

/* The empty record that waited for small data goes. */
static void drop_empty(struct tcp *t, struct tcp_conn *tc)
{
        if (tc->rcv_unread == 0 && tc->rcv_head != 0)
                free_head(t, tc);
}

/* When private frames run out, what is left is for connections that have little unread. */
static bool has_its_share(const struct tcp *t, const struct tcp_conn *tc, enum frame_class c)
{
        return tc->rcv_mem > FRAME_LARGE_BYTES &&
               frame_avail(t->frames, FRAME_REGION_PRIVATE, c) <
                       t->frames->region[FRAME_REGION_PRIVATE].geom.count[c] / 8;
}

static bool fresh_fill(struct tcp *t, struct tcp_conn *tc, uint32_t len)
{
        enum frame_class c = len > FRAME_SMALL_BYTES ? FRAME_LARGE : FRAME_SMALL;
        uint32_t id =
                has_its_share(t, tc, c) ? 0 : frame_alloc(t->frames, FRAME_REGION_PRIVATE, c, 0);

        if (id == 0)
                return false;
        drop_empty(t, tc);
        if (tc->rcv_fill != 0)
                rcvbuf_free_buf(t, tc, tc->rcv_fill);
        tc->rcv_mem += frame_class_bytes(c);
        tc->rcv_fill = id;
        tc->rcv_fill_off = 0;
        return true;
}

static uint32_t fill_room(const struct tcp *t, const struct tcp_conn *tc)
{
        return tc->rcv_fill ? frame_size(t->frames, tc->rcv_fill) - tc->rcv_fill_off : 0;
}

/* Copies into the fill frame, where there is room. False: it is summed only now, and wrong. */
static bool copy_to_fill(const struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg,
                         uint32_t skip, uint32_t len)
{
        const uint8_t *from =
                seg->inl ? seg->inl : frame_addr(t->frames, seg->data.id) + seg->data.off;
        uint8_t *to = frame_addr(t->frames, tc->rcv_fill) + tc->rcv_fill_off;

        if (seg->unsummed) {
                assert(skip == 0 && len == seg->len);
                if (unlikely(csum_finish(csum_copy(to, from, len, seg->sum)).raw != 0))
                        return false;
        } else {
                memcpy(to, from + skip, len);
        }
        tc->rcv_fill_off += len;
        return true;
}

/* We sit on half of what the peer has to lend, of this class or of all: its other connections must
 * not starve for what ours do not read. */
static bool lent_enough(const struct tcp *t, uint32_t frame)
{
        struct frame_geom g = t->frames->region[frame_id_region(frame)].geom;
        enum frame_class c = frame_geom_class(g, frame_id_num(frame));
        const uint32_t *lent = lent_of(t, frame);

        return lent[c] >= g.count[c] / 2 ||
               lent[FRAME_SMALL] + lent[FRAME_LARGE] >= FRAME_LOANS_TCP;
}

/* A frame is kept as it is when what is in it is worth its size. A lent one costs us nothing but
 * the peer much. */
static bool worth_keeping(const struct tcp *t, const struct tcp_seg *seg, uint32_t len)
{
        if (seg->inl != NULL || len <= TINY)
                return false;
        if (frame_id_region(seg->data.id) != FRAME_REGION_PRIVATE)
                return !lent_enough(t, seg->data.id);
        return len >= frame_size(t->frames, seg->data.id) / 4;
}

static void keep(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t skip,
                 uint32_t len, struct buf *out)
{
        *out = (struct buf){seg->data.id, seg->data.off + skip, len};
        if (frame_id_region(seg->data.id) == FRAME_REGION_PRIVATE)
                tc->rcv_mem += frame_size(t->frames, seg->data.id);
        else
                ++*lent_count(t, seg->data.id);
}

bool rcvbuf_copy(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t skip,
                 uint32_t len, struct buf *out)
{
        if (fill_room(t, tc) < len && !fresh_fill(t, tc, len))
                return false;
        *out = (struct buf){tc->rcv_fill, tc->rcv_fill_off, len};
        if (!copy_to_fill(t, tc, seg, skip, len))
                return false;
        frame_hold(t->frames, out->id);
        return true;
}

bool rcvbuf_take(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t skip,
                 uint32_t len, struct buf *out, bool *took)
{
        *took = worth_keeping(t, seg, len);
        if (!*took) {
                if (rcvbuf_copy(t, tc, seg, skip, len, out))
                        return true;
                if (seg->inl != NULL || (frame_id_region(seg->data.id) != FRAME_REGION_PRIVATE &&
                                         lent_enough(t, seg->data.id)))
                        return false;
                *took = true; /* no memory for a copy: rather the frame than nothing */
        }
        keep(t, tc, seg, skip, len, out);
        return true;
}

void rcvbuf_link(struct tcp *t, struct tcp_conn *tc, uint32_t i)
{
        struct tcp_rxseg *s = rxseg_at(t, i);

        drop_empty(t, tc);
        s->next = 0;
        store_order();
        if (tc->rcv_tail != 0)
                rxseg_at(t, tc->rcv_tail)->next = i;
        else
                tc->rcv_head = i;
        tc->rcv_tail = i;
        WRITE_ONCE(tc->rcv_unread, tc->rcv_unread + s->data.len);
        store_order();
}

/* The last record ends where the fill frame is filled: what is copied next makes it longer. */
static bool tail_ends_at_fill(const struct tcp *t, const struct tcp_conn *tc)
{
        const struct tcp_rxseg *tail;

        if (tc->rcv_tail == 0)
                return false;
        tail = rxseg_at(t, tc->rcv_tail);
        return tail->data.id == tc->rcv_fill && tail->data.off + tail->data.len == tc->rcv_fill_off;
}

bool rcvbuf_append(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, uint32_t skip,
                   uint32_t len, bool *took)
{
        struct tcp_rxseg *s;
        uint32_t i;

        if (!worth_keeping(t, seg, len) && tail_ends_at_fill(t, tc) && len <= fill_room(t, tc)) {
                if (!copy_to_fill(t, tc, seg, skip, len))
                        return false;
                s = rxseg_at(t, tc->rcv_tail);
                s->at = rxseg_time(tc->last_received);
                store_order();
                s->data.len += len;
                WRITE_ONCE(tc->rcv_unread, tc->rcv_unread + len);
                store_order();
                return true;
        }
        i = pool_alloc(&t->sh->rxsegs);
        if (i == 0)
                return false;
        s = rxseg_at(t, i);
        if (!rcvbuf_take(t, tc, seg, skip, len, &s->data, took)) {
                pool_free(&t->sh->rxsegs, i);
                return false;
        }
        s->seq = seg->seq + skip;
        s->fin = 0;
        s->at = rxseg_time(tc->last_received);
        rcvbuf_link(t, tc, i);
        return true;
}

/* Idle connections may not keep a frame each when frames run out. */
static bool scarce(const struct tcp *t)
{
        return frames_scarce(t->frames->region[FRAME_REGION_PRIVATE].pool);
}

/* The last record was read to its end. When it is in the fill frame it stays, empty, and the frame
 * is filled from its start again if nobody else is in it: a conversation in small messages
 * allocates nothing. */
static void keep_or_free_last(struct tcp *t, struct tcp_conn *tc, struct tcp_rxseg *s)
{
        if (s->data.id != tc->rcv_fill) {
                free_head(t, tc);
                return;
        }
        if (scarce(t)) {
                free_head(t, tc);
                rcvbuf_free_buf(t, tc, tc->rcv_fill);
                tc->rcv_fill = 0;
        } else if (private_rec(t, tc->rcv_fill)->refs == 2) {
                s->data.off = tc->rcv_fill_off = 0;
        }
}

static void drop_bytes(struct tcp *t, struct tcp_conn *tc, uint32_t bytes)
{
        WRITE_ONCE(tc->rcv_unread, tc->rcv_unread - bytes);
        while (bytes != 0) {
                struct tcp_rxseg *s = rxseg_at(t, tc->rcv_head);
                uint32_t take = MIN(bytes, s->data.len);
                bytes -= take;
                range_skip(&s->data.off, &s->data.len, take);
                s->seq += take;
                if (s->data.len != 0)
                        return;
                if (s->next == 0)
                        keep_or_free_last(t, tc, s);
                else
                        free_head(t, tc);
        }
}

/* Bytes from the read position to the urgent byte; UINT32_MAX when there is none ahead. */
static uint32_t to_mark(const struct tcp_conn *tc)
{
        uint32_t at = READ_ONCE(tc->rcv_up) - 1 - copied_seq(tc);

        if (READ_ONCE(tc->urg_state) == URG_NONE || (int32_t)at < 0)
                return UINT32_MAX;
        return at;
}

/* The urgent byte is not part of the stream unless SO_OOBINLINE: the reader that comes to it
 * steps over it. */
static void skip_urgent(struct tcp *t, struct tcp_conn *tc)
{
        if (to_mark(tc) == 0 && !tc->opts.oobinline && tc->rcv_unread != 0)
                drop_bytes(t, tc, 1);
}

/* End of the queue: the error, the end of the stream, or nothing yet. */
static int recv_nothing(struct tcp_conn *tc)
{
        int err = tc->err;

        if (tc->flags & TCF_FIN_RCVD) /* as Linux: whatever came after it */
                return 0;
        if (err != 0) {
                WRITE_ONCE(tc->err, 0);
                return -err;
        }
        if (tc->shut & SHUT_RCV || tc->state == TCPS_CLOSED)
                return 0;
        return -EAGAIN;
}

int tcp_recv_peek(struct tcp *t, struct tcp_conn *tc, size_t skip, size_t want, struct span *span,
                  int n)
{
        uint32_t limit, got = 0;
        int used = 0;

        if (unlikely(tc->urg_state != URG_NONE))
                skip_urgent(t, tc);
        if (skip >= tc->rcv_unread)
                return recv_nothing(tc);
        limit = (uint32_t)MIN(want, tc->rcv_unread - skip);
        if (unlikely(tc->urg_state != URG_NONE) && to_mark(tc) > skip)
                limit = (uint32_t)MIN(limit, to_mark(tc) - skip); /* a read stops before it */
        for (uint32_t i = tc->rcv_head; i != 0 && got < limit && used < n;
             i = rxseg_at(t, i)->next) {
                const struct tcp_rxseg *s = rxseg_at(t, i);
                uint32_t len;
                if (skip >= s->data.len) {
                        skip -= s->data.len;
                        continue;
                }
                len = (uint32_t)MIN(s->data.len - skip, limit - got);
                span[used++] =
                        (struct span){frame_addr(t->frames, s->data.id) + s->data.off + skip, len};
                got += len;
                skip = 0;
        }
        return (int)got;
}

nstime tcp_recv_stamp(const struct tcp *t, const struct tcp_conn *tc, uint32_t offset, nstime now)
{
        uint32_t i = tc->rcv_head;

        while (i != 0 && offset >= rxseg_at(t, i)->data.len) {
                offset -= rxseg_at(t, i)->data.len;
                i = rxseg_at(t, i)->next;
        }
        return i != 0 ? (now & ~(nstime)1023) -
                                (nstime)(uint32_t)(rxseg_time(now) - rxseg_at(t, i)->at) * 1024
                      : now;
}

static void urgent_over(struct tcp_conn *tc)
{
        WRITE_ONCE(tc->urg_state, URG_NONE);
        tc->slow &= (uint8_t)~SLOW_URG;
}

void tcp_recv_consume(struct tcp *t, struct tcp_conn *tc, size_t bytes, nstime now)
{
        /* Recovery after a death may have taken the rest away. */
        bytes = MIN(bytes, tc->rcv_unread);
        drop_bytes(t, tc, (uint32_t)bytes);
        if (unlikely(tc->urg_state != URG_NONE) && (int32_t)(copied_seq(tc) - tc->rcv_up) >= 0)
                urgent_over(tc); /* as Linux: read past it, it is gone */
        if (!tc->opts.rcvbuf && !tc->link.lossless)
                rcvbuf_autosize(t, tc, now);
        output_window_update(t, tc, now);
}

static void link_first(struct tcp *t, struct tcp_conn *tc, uint32_t i)
{
        struct tcp_rxseg *s = rxseg_at(t, i);

        s->next = tc->rcv_head;
        s->at = rxseg_time(tc->last_received);
        store_order();
        tc->rcv_head = i;
        WRITE_ONCE(tc->rcv_unread, tc->rcv_unread + s->data.len);
        store_order();
}

bool tcp_recv_give_back(struct tcp *t, struct tcp_conn *tc, const uint8_t *p, uint32_t n,
                        uint32_t seq)
{
        enum frame_class c = n > FRAME_SMALL_BYTES ? FRAME_LARGE : FRAME_SMALL;
        struct tcp_rxseg *s;
        uint32_t i, frame;

        if (copied_seq(tc) != seq || (tc->group != 0 && !group_grant(t, tc, n)))
                return false;
        i = pool_alloc(&t->sh->rxsegs);
        if (i == 0)
                return false;
        frame = frame_alloc(t->frames, FRAME_REGION_PRIVATE, c, 0);
        if (frame == 0) {
                pool_free(&t->sh->rxsegs, i);
                return false;
        }
        memcpy(frame_addr(t->frames, frame), p, n);
        tc->rcv_mem += frame_class_bytes(c);
        s = rxseg_at(t, i);
        s->data = (struct buf){frame, 0, n};
        s->seq = seq - n;
        s->fin = 0;
        if (tc->rcv_unread == 0)
                rcvbuf_link(t, tc, i);
        else
                link_first(t, tc, i);
        return true;
}

void tcp_caught_up(struct tcp *t, nstime now)
{
        t->sh->caught_up_at = now;
}

/* The most that the receive buffer grows to. Segments that wait at the interface are part of the
 * round trip that the peer's data tell of; if they are most of it, a larger window only makes it
 * longer. */
static uint32_t limit_most(const struct tcp *t, const struct tcp_conn *tc)
{
        return t->sh->caught_up_at < tc->drs_at ? RCV_LIMIT_NEAR : RCV_LIMIT_MAX;
}

/* The reader takes more than half a buffer in a round trip: the buffer, not the path, sets the
 * pace. Who only receives has measured the way when the connection was opened and no queue was on
 * it, if that could be; the peer's data say how long it is now. */
void rcvbuf_autosize(const struct tcp *t, struct tcp_conn *tc, nstime now)
{
        uint32_t read = copied_seq(tc) - tc->drs_seq, limit = tc->rcv_size;
        uint32_t clamp = MIN(tc->opts.window_clamp != 0 ? tc->opts.window_clamp : RCV_LIMIT_MAX,
                             tc->opts.window_most != 0 ? tc->opts.window_most : RCV_LIMIT_MAX);
        nstime way = tc->srtt != 0 ? MAX(tc->srtt, (nstime)tc->train_rtt << 10) : tc->rto;

        if (now - tc->drs_at < way || tc->opts.credit)
                return;
        if (read >= limit / 2 && limit < MIN(limit_most(t, tc), clamp))
                rcvbuf_size(tc, MIN(limit * 2, MIN(RCV_LIMIT_MAX, clamp)));
        tc->drs_seq = copied_seq(tc);
        tc->drs_at = now;
}

uint32_t tcp_recv_avail(const struct tcp_conn *tc)
{
        uint32_t unread = READ_ONCE(tc->rcv_unread);
        bool oob_byte = unlikely(READ_ONCE(tc->urg_state) != URG_NONE) &&
                        !READ_ONCE(tc->opts.oobinline) && to_mark(tc) < unread;

        return unread - oob_byte;
}

bool tcp_recv_eof(const struct tcp_conn *tc)
{
        return tc->flags & TCF_FIN_RCVD && tcp_recv_avail(tc) == 0;
}

int tcp_recv_urgent(struct tcp *t, struct tcp_conn *tc, bool peek)
{
        if (tc->opts.oobinline || tc->urg_state == URG_NONE || tc->urg_state == URG_TAKEN)
                return -EINVAL;
        if (tc->urg_state == URG_ANNOUNCED)
                return tc->shut & SHUT_RCV ? 0 : -EAGAIN;
        if (!peek)
                WRITE_ONCE(tc->urg_state, URG_TAKEN);
        return tc->urg_byte;
}

bool tcp_at_mark(const struct tcp_conn *tc, size_t skip)
{
        return to_mark(tc) == skip;
}

/* Returns true if no more comes before some is read: the window that was offered, or that the next
 * ACK offers, is shut. Where segments may be lost it is enough that the window is so small that the
 * peer may wait for more (RFC 9293 §3.8.6.2.1), as Linux has it. */
static bool window_is_shut(const struct tcp_conn *tc)
{
        uint32_t ahead = tcp_window_ahead(tc), free = rcvbuf_window(tc),
                 full = READ_ONCE(tc->rcv_full);
        uint32_t wnd =
                free > ahead && free - ahead >= MIN(rcvbuf_limit(tc) / 2, full) ? free : ahead;

        return tc->link.lossless ? wnd >> READ_ONCE(tc->rcv_wscale) == 0 : wnd <= full;
}

bool tcp_recv_enough(const struct tcp_conn *tc, uint32_t lowat)
{
        return tcp_recv_avail(tc) >= lowat || window_is_shut(tc);
}

void tcp_recv_room(struct tcp_conn *tc, uint32_t lowat)
{
        if (tc->opts.rcvbuf == 0 && !tc->opts.credit && tc->rcv_size < lowat)
                rcvbuf_size(tc,
                            tc->opts.window_clamp != 0 ? MIN(lowat, tc->opts.window_clamp) : lowat);
}

uint32_t tcp_recv_inq(const struct tcp_conn *tc)
{
        uint32_t unread = READ_ONCE(tc->rcv_unread);

        return READ_ONCE(tc->opts.oobinline) ? unread : MIN(unread, to_mark(tc));
}

short tcp_poll_events(const struct tcp *t, const struct tcp_conn *tc)
{
        uint8_t shut = READ_ONCE(tc->shut), state = READ_ONCE(tc->state);
        short ev = 0;

        if (shut == SHUT_BOTH || state == TCPS_CLOSED)
                ev |= POLLHUP;
        if (shut & SHUT_RCV)
                ev |= POLLIN | POLLRDNORM | POLLRDHUP;
        if (READ_ONCE(tc->err) != 0)
                ev |= POLLERR;
        if (state == TCPS_SYN_SENT || state == TCPS_SYN_RECEIVED)
                return tcp_fastopen_waits(tc) ? ev | POLLOUT | POLLWRNORM : ev;
        if (tcp_recv_avail(tc) != 0)
                ev |= POLLIN | POLLRDNORM;
        if (shut & SHUT_SND || sndbuf_writable(t, tc))
                ev |= POLLOUT | POLLWRNORM;
        if (READ_ONCE(tc->urg_state) == URG_HERE)
                ev |= POLLPRI;
        return ev;
}

void rcvbuf_drop_empty(struct tcp *t, struct tcp_conn *tc)
{
        while (tc->rcv_head != 0 && rxseg_at(t, tc->rcv_head)->data.len == 0)
                free_head(t, tc);
}

void rcvbuf_purge(struct tcp *t, struct tcp_conn *tc)
{
        while (tc->rcv_head != 0)
                free_head(t, tc);
        WRITE_ONCE(tc->rcv_unread, 0);
        if (tc->rcv_fill != 0)
                rcvbuf_free_buf(t, tc, tc->rcv_fill);
        tc->rcv_fill = 0;
}
