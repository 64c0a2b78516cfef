/*
 * After a process died inside: everything derived is made anew from the connections and listeners.
 *
 * Derived: demultiplexing, free lists, accept queues' links and counts, the TIME-WAIT list, the list of those
 * that wait for frames, references of frames. The connection that was being changed is reset; of its queues
 * only those are looked into that hold what belongs to others.
 */
#include <errno.h>

#include "tcp/tcp_conn.h"

static uint64_t *scratch(const struct tcp_shared *sh)
{
        return (uint64_t *)((char *)(uintptr_t)sh + sh->scratch_off);
}

static void set_live(uint64_t *live, uint32_t i)
{
        live[i / 64] |= 1ull << (i % 64);
}

static void clear(uint64_t *live, const struct pool *p)
{
        memset(live, 0, sizeof *live * (p->cap / 64 + 1));
}

#define for_each_conn(t, tc)                                                                                 \
        for (uint32_t i_ = 1; i_ < (t)->sh->conns.fresh; i_++)                                               \
                for (struct tcp_conn *tc = conn_at(t, i_); tc != NULL; tc = NULL)                            \
                        if (tc->live)

/* One more reference for a frame of ours; a lent one has no record here and is counted. */
static void hold(struct tcp *t, uint32_t id)
{
        struct frame_pool *p;

        if (id == 0)
                return;
        p = t->frames->region[frame_id_region(id)].pool;
        if (p != NULL)
                frame_pool_rec(p, frame_id_num(id))->refs++;
        else
                ++*lent_count(t, id);
}

/* Whether a record of a broken connection's receive queues names a range that it can have. */
static bool names_range(const struct tcp *t, const struct tcp_conn *tc, const struct buf *b)
{
        uint32_t region = frame_id_region(b->id);
        const struct frame_region *r = &t->frames->region[region];

        if (b->id == 0)
                return b->len == 0;
        if (region != FRAME_REGION_PRIVATE && region != FRAME_REGION_RX(tc->tuple.chan))
                return false;
        return frame_geom_holds(r->pool ? r->pool->geom : r->geom, frame_id_num(b->id), b->off, b->len);
}

/*
 * Cuts a receive queue of the broken connection where it stops making sense, and returns its last record. A
 * record leaves its queue before it is freed (free_head() in tcp_rcvbuf.c), so what still hangs together
 * holds its frames, and those that were lent can be given back. Sequence numbers tell the queue from the free
 * list that a record may be in.
 */
static uint32_t cut(const struct tcp *t, const struct tcp_conn *tc, uint32_t *head, bool gaps)
{
        uint32_t *link = head, last = 0, end = 0;

        for (uint32_t steps = 0; *link != 0; steps++) {
                struct tcp_rxseg *s;
                if (*link >= t->sh->rxsegs.fresh || steps >= t->sh->rxsegs.fresh)
                        break;
                s = rxseg_at(t, *link);
                if (!names_range(t, tc, &s->data) ||
                    (last != 0 && (gaps ? seq_lt(s->seq, end) : s->seq != end)))
                        break;
                end = s->seq + s->data.len;
                s->prev = last;
                last = *link;
                link = &s->next;
        }
        *link = 0;
        return last;
}

/* What it sent is not looked at: those frames are ours, and free when nobody names them. */
static void mistrust_queues(const struct tcp *t, struct tcp_conn *tc)
{
        tc->snd_head = tc->snd_next = tc->snd_tail = 0;
        tc->rsv_head = tc->rsv_tail = tc->rsv_bytes = 0;
        tc->rcv_tail = cut(t, tc, &tc->rcv_head, false);
        tc->ooo_tail = cut(t, tc, &tc->ooo_head, true);
        tc->ooo_recent = 0;
        tc->snd_fill = tc->rcv_fill = 0;
        tc->sacked = tc->lost = tc->retx = 0;
        tc->flags &= ~(uint32_t)(TCF_RSV | TCF_WAITS);
}

static void mark_txsegs(struct tcp *t, uint64_t *live, uint32_t head)
{
        for (uint32_t i = head; i != 0; i = txseg_at(t, i)->next) {
                set_live(live, i);
                hold(t, txseg_at(t, i)->frame);
        }
}

/* Returns the bytes in the queue. */
static uint32_t mark_rxsegs(struct tcp *t, uint64_t *live, uint32_t head)
{
        uint32_t sum = 0;

        for (uint32_t i = head; i != 0; i = rxseg_at(t, i)->next) {
                set_live(live, i);
                hold(t, rxseg_at(t, i)->data.id);
                sum += rxseg_at(t, i)->data.len;
        }
        return sum;
}

static void rebuild_conns(struct tcp *t)
{
        uint64_t *live = scratch(t->sh);

        clear(live, &t->sh->conns);
        for_each_conn(t, tc)
        {
                tc->hash_next = tc->wait_next = tc->wait_prev = tc->line_next = tc->line_prev = 0;
                tc->flags &= ~(uint32_t)TCF_WAITS;
                set_live(live, tc->self);
                if (tc->state != TCPS_CLOSED)
                        demux_add(t, tc);
                hold(t, tc->snd_fill);
                hold(t, tc->rcv_fill);
        }
        pool_rebuild(&t->sh->conns, live);
}

static void rebuild_listeners(struct tcp *t)
{
        uint64_t *live = scratch(t->sh);

        clear(live, &t->sh->listeners);
        for (uint32_t i = 1; i < t->sh->listeners.fresh; i++) {
                struct tcp_listener *l = tcp_listener_at(t, i);
                if (!l->live)
                        continue;
                l->q_head = l->q_tail = l->queued = l->half_open = 0;
                set_live(live, i);
                demux_add_listener(t, l);
        }
        pool_rebuild(&t->sh->listeners, live);
}

static void rebuild_segs(struct tcp *t)
{
        uint64_t *live = scratch(t->sh);

        clear(live, &t->sh->txsegs);
        for_each_conn(t, tc)
        {
                mark_txsegs(t, live, tc->snd_head);
                mark_txsegs(t, live, tc->rsv_head);
        }
        pool_rebuild(&t->sh->txsegs, live);
        clear(live, &t->sh->rxsegs);
        for_each_conn(t, tc)
        {
                tc->rcv_unread = mark_rxsegs(t, live, tc->rcv_head);
                mark_rxsegs(t, live, tc->ooo_head);
        }
        pool_rebuild(&t->sh->rxsegs, live);
}

/* TIME-WAIT: by the time each ends. */
static void requeue_time_wait(struct tcp *t, struct tcp_conn *tc)
{
        struct tcp_shared *sh = t->sh;
        uint32_t after = sh->tw_tail;

        while (after != 0 && conn_at(t, after)->slow_at > tc->slow_at)
                after = conn_at(t, after)->line_prev;
        tc->line_prev = after;
        tc->line_next = after ? conn_at(t, after)->line_next : sh->tw_head;
        *(after ? &conn_at(t, after)->line_next : &sh->tw_head) = tc->self;
        *(tc->line_next ? &conn_at(t, tc->line_next)->line_prev : &sh->tw_tail) = tc->self;
        sh->tw_count++;
}

static void rebuild_lists(struct tcp *t)
{
        t->sh->tw_head = t->sh->tw_tail = t->sh->tw_count = t->sh->wait_head = 0;
        for_each_conn(t, tc)
        {
                if (tc->state == TCPS_TIME_WAIT)
                        requeue_time_wait(t, tc);
                if (tc->listener == 0 && tc->acc_state != ACC_TAKEN)
                        tc->acc_state = ACC_NONE; /* death came between the two: it is the one being reset */
                if (tc->acc_state == ACC_QUEUED)
                        listen_requeue(t, tc);
                else if (tc->acc_state == ACC_HALF_OPEN)
                        tcp_listener_at(t, tc->listener)->half_open++;
        }
}

/* One that was only being made has no state yet, and nobody knows of it but perhaps its listener's count. */
static void reset_broken(struct tcp *t, struct tcp_conn *tc)
{
        if (tc->state != TCPS_CLOSED)
                conn_reset(t, tc, ECONNRESET);
        else if (tc->acc_state == ACC_HALF_OPEN)
                listen_forget(t, tc);
        if (!tc->live)
                return;
        reass_purge(t, tc);
        rcvbuf_purge(t, tc);
        tc->rcv_mem = 0;
}

void tcp_recover(struct tcp *t, uint32_t broken, nstime now)
{
        struct tcp_conn *tc = broken ? conn_at(t, broken) : NULL;

        if (tc != NULL && tc->live)
                mistrust_queues(t, tc);
        demux_clear(t);
        memset(t->sh->lent, 0, sizeof t->sh->lent);
        rebuild_conns(t);
        rebuild_listeners(t);
        rebuild_segs(t);
        rebuild_lists(t);
        if (tc != NULL && tc->live)
                reset_broken(t, tc);
        for_each_conn(t, other)
        {
                conn_raise(t, other, TCP_EV_WRITABLE);
                conn_reap(t, other); /* one that was being freed */
        }
}
