/*
 * After a process died inside: everything derived is made anew from the connections and listeners.
 *
 * Derived: demultiplexing, free lists, accept queues' links and counts, the TIME-WAIT list, the
 * list of those that wait for frames, references of frames and whom they are charged to. The
 * connection that was being changed is mended first (tcp_mend.c).
 */
#include <errno.h>

#include "tcp/tcp_conn.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_recv.h"
#include "tcp/tcp_send.h"

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

/* Counts a reference of a frame of ours; a lent one has no record here and is counted. */
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
        for_each_conn (t, tc) {
                tc->hash_next = tc->wait_next = tc->wait_prev = tc->line_next = tc->line_prev = 0;
                conn_unflag(tc, TCF_WAITS);
                set_live(live, tc->self);
                if (tc->state != TCPS_CLOSED)
                        demux_add(t, tc);
                hold(t, tc->snd_fill);
                hold(t, tc->rcv_fill);
                hold(t, tc->saved_syn);
                hold(t, tc->stamps);
                stamp_recover(t, tc);
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
                WRITE_ONCE(l->q_head, 0);
                l->q_tail = l->queued = l->half_open = l->fastopen_open = 0;
                set_live(live, i);
                demux_add_listener(t, l);
        }
        pool_rebuild(&t->sh->listeners, live);
}

static void rebuild_segs(struct tcp *t)
{
        uint64_t *live = scratch(t->sh);

        clear(live, &t->sh->txsegs);
        for_each_conn (t, tc) {
                mark_txsegs(t, live, tc->snd_head);
                mark_txsegs(t, live, tc->rsv_head);
        }
        pool_rebuild(&t->sh->txsegs, live);
        clear(live, &t->sh->rxsegs);
        for_each_conn (t, tc) {
                WRITE_ONCE(tc->rcv_unread, mark_rxsegs(t, live, tc->rcv_head));
                mark_rxsegs(t, live, tc->ooo_head);
        }
        pool_rebuild(&t->sh->rxsegs, live);
        clear(live, &t->sh->loans);
        lend_recover(t, live);
}

/* TIME-WAIT: by the time each ends. */
static void requeue_time_wait(struct tcp *t, struct tcp_conn *tc)
{
        struct tcp_line *l = &t->sh->time_wait;
        uint32_t after = l->tail;

        while (after != 0 && conn_at(t, after)->slow_at > tc->slow_at)
                after = conn_at(t, after)->line_prev;
        tc->line_prev = after;
        tc->line_next = after ? conn_at(t, after)->line_next : l->head;
        *(after ? &conn_at(t, after)->line_next : &l->head) = tc->self;
        *(tc->line_next ? &conn_at(t, tc->line_next)->line_prev : &l->tail) = tc->self;
        l->n++;
}

static void rebuild_lists(struct tcp *t)
{
        t->sh->time_wait = t->sh->orphans = (struct tcp_line){0, 0, 0};
        t->sh->wait_head = 0;
        for_each_conn (t, tc) {
                if (tc->state == TCPS_TIME_WAIT)
                        requeue_time_wait(t, tc);
                else if (conn_is_orphan(tc))
                        line_append(t, &t->sh->orphans, tc);
                if (tc->listener == 0 && tc->acc_state != ACC_TAKEN)
                        /* Death came between the two: it is the one being reset. */
                        tc->acc_state = ACC_NONE;
                if (tc->acc_state == ACC_QUEUED)
                        listen_requeue(t, tc);
                else if (tc->acc_state == ACC_HALF_OPEN)
                        tcp_listener_at(t, tc->listener)->half_open++;
                if (tc->fastopen & FO_OPEN && tc->fastopen_listener != 0)
                        tcp_listener_at(t, tc->fastopen_listener)->fastopen_open++;
        }
}

static void charge(void *arg, uint32_t owner, uint32_t bytes)
{
        struct tcp *t = arg;
        struct tcp_conn *tc = conn_at(t, owner & ((1u << 20) - 1));

        if (tc->live && frame_owner(tc) == owner)
                WRITE_ONCE(tc->snd_mem, tc->snd_mem + bytes);
}

/* Counts what a connection holds of its channel's frames, those on loan included. */
static void recharge(struct tcp *t)
{
        for_each_conn (t, tc)
                WRITE_ONCE(tc->snd_mem, 0);
        for (uint32_t r = FRAME_REGION_TX(0); r < FRAME_REGIONS / 2; r += 2)
                if (t->frames->region[r].pool != NULL)
                        frame_pool_charges(t->frames->region[r].pool, charge, t);
}

/* Frees a connection that was only being made: it has no state yet, and nobody knows of it but
 * perhaps its listener's count. */
static void give_up(struct tcp *t, struct tcp_conn *tc)
{
        if (tc->state != TCPS_CLOSED)
                conn_reset(t, tc, ECONNRESET);
        else if (tc->acc_state == ACC_HALF_OPEN)
                listen_forget(t, tc);
        if (!tc->live)
                return;
        if (tc->sock == 0)
                conn_flag(tc, TCF_CLOSED_BY_APP);
        reass_purge(t, tc);
        rcvbuf_purge(t, tc);
        tc->rcv_mem = 0;
}

void tcp_recover(struct tcp *t, uint32_t broken, nstime now)
{
        struct tcp_conn *tc = broken ? conn_at(t, broken) : NULL;
        bool mended = tc != NULL && tc->live && mend_queues(t, tc);

        demux_clear(t);
        memset(t->sh->lent, 0, sizeof t->sh->lent);
        rebuild_conns(t);
        rebuild_listeners(t);
        rebuild_segs(t);
        rebuild_lists(t);
        group_recover(t);
        recharge(t);
        if (mended)
                mend_finish(t, tc, now);
        else if (tc != NULL && tc->live)
                give_up(t, tc);
        for_each_conn (t, other) {
                if (sndbuf_writable(t, other))
                        conn_unflag(other, TCF_SND_FULL);
                conn_raise(t, other, TCP_EV_WRITABLE);
                conn_reap(t, other); /* one that was being freed */
        }
}
