/* A connection's record: made, changed in state, ended, freed. And the block that all of
 * them share. */
#include <errno.h>

#include "base/trace.h"
#include "tcp/tcp_cc.h"
#include "tcp/tcp_conn.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_listen.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_recv.h"
#include "tcp/tcp_send.h"

#define SND_LIMIT_FIRST    (256u << 10)
#define SND_LIMIT_LOSSLESS (2u << 20)
#define RCV_LIMIT_FIRST    (256u << 10)
#define RCV_LIMIT_LOSSLESS (2u << 20)
/* 2 MSL with MSL 30 s, as Linux; RFC 9293 §3.4.2 says 2 minutes. */
#define TIME_WAIT_FOR (60 * NS_PER_S)

static uint32_t power_of_two(uint32_t n)
{
        uint32_t p = 1;

        while (p < n)
                p <<= 1;
        return p;
}

/* Loans at once, of all connections. */
static uint32_t loans_of(const struct tcp_limits *l)
{
        return MAX(l->rxsegs / 8, 8u);
}

/* Offsets of the tables; the layout follows from the limits alone. */
struct layout {
        size_t conn_hash, listen_hash, scratch, conns, listeners, txsegs, rxsegs, loans, end;
};

static size_t align_line(size_t n)
{
        return (n + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

static struct layout layout_of(const struct tcp_limits *l)
{
        uint32_t most =
                MAX(MAX(l->conns, l->listeners), MAX(MAX(l->txsegs, l->rxsegs), loans_of(l))) + 1;
        struct layout at;

        at.conn_hash = align_line(sizeof(struct tcp_shared));
        at.listen_hash = align_line(at.conn_hash + sizeof(uint32_t) * power_of_two(l->conns));
        at.scratch = align_line(at.listen_hash + sizeof(uint32_t) * power_of_two(l->listeners));
        at.conns = align_line(at.scratch + sizeof(uint64_t) * (most / 64 + 1));
        at.listeners = align_line(at.conns + pool_bytes(sizeof(struct tcp_conn), l->conns + 1));
        at.txsegs = align_line(at.listeners +
                               pool_bytes(sizeof(struct tcp_listener), l->listeners + 1));
        at.rxsegs = align_line(at.txsegs + pool_bytes(sizeof(struct tcp_txseg), l->txsegs + 1));
        at.loans = align_line(at.rxsegs + pool_bytes(sizeof(struct tcp_rxseg), l->rxsegs + 1));
        at.end = align_line(at.loans + pool_bytes(sizeof(struct tcp_loan), loans_of(l) + 1));
        return at;
}

size_t tcp_shared_bytes(const struct tcp_limits *l)
{
        return layout_of(l).end;
}

void tcp_shared_init(struct tcp_shared *sh, const struct tcp_limits *l, const uint8_t secret[16])
{
        struct layout at = layout_of(l);
        char *base = (char *)sh;

        assert(l->conns < 1u << 20); /* frame_owner() */
        sh->limits = *l;
        memcpy(sh->secret, secret, sizeof sh->secret);
        sh->conn_hash_off = at.conn_hash;
        sh->conn_hash_max = power_of_two(l->conns);
        sh->conn_hash_n = MIN(CONN_BUCKETS_FIRST, sh->conn_hash_max);
        sh->listen_hash_off = at.listen_hash;
        sh->listen_hash_mask = power_of_two(l->listeners) - 1;
        sh->scratch_off = at.scratch;
        pool_init(&sh->conns, base + at.conns, sizeof(struct tcp_conn), l->conns + 1);
        pool_init(&sh->listeners, base + at.listeners, sizeof(struct tcp_listener),
                  l->listeners + 1);
        pool_init(&sh->txsegs, base + at.txsegs, sizeof(struct tcp_txseg), l->txsegs + 1);
        pool_init(&sh->rxsegs, base + at.rxsegs, sizeof(struct tcp_rxseg), l->rxsegs + 1);
        pool_init(&sh->loans, base + at.loans, sizeof(struct tcp_loan), loans_of(l) + 1);
}

bool tcp_shared_is(const struct tcp_shared *sh, const struct tcp_limits *l)
{
        struct layout at = layout_of(l);
        const char *base = (const char *)sh;

        return sh->conn_hash_off == at.conn_hash && sh->conn_hash_max == power_of_two(l->conns) &&
               sh->conn_hash_n != 0 && sh->conn_hash_n <= sh->conn_hash_max &&
               sh->listen_hash_off == at.listen_hash &&
               sh->listen_hash_mask == power_of_two(l->listeners) - 1 &&
               sh->scratch_off == at.scratch &&
               pool_is(&sh->conns, base + at.conns, sizeof(struct tcp_conn), l->conns + 1) &&
               pool_is(&sh->listeners, base + at.listeners, sizeof(struct tcp_listener),
                       l->listeners + 1) &&
               pool_is(&sh->txsegs, base + at.txsegs, sizeof(struct tcp_txseg), l->txsegs + 1) &&
               pool_is(&sh->rxsegs, base + at.rxsegs, sizeof(struct tcp_rxseg), l->rxsegs + 1) &&
               pool_is(&sh->loans, base + at.loans, sizeof(struct tcp_loan), loans_of(l) + 1);
}

struct tcp_conn *tcp_conn_at(const struct tcp *t, uint32_t conn)
{
        return pool_at(&t->sh->conns, conn);
}

const char *tcp_state_name(enum tcp_state s)
{
        static const char *const names[] = {
                "CLOSED",     "LISTEN",     "SYN-SENT", "SYN-RECEIVED", "ESTABLISHED", "FIN-WAIT-1",
                "FIN-WAIT-2", "CLOSE-WAIT", "CLOSING",  "LAST-ACK",     "TIME-WAIT",
        };

        return names[s];
}

uint32_t conn_rcv_limit(const struct tcp_opts *o, const struct tcp_link *link)
{
        uint32_t limit = o->rcvbuf        ? o->rcvbuf
                         : link->lossless ? RCV_LIMIT_LOSSLESS
                                          : RCV_LIMIT_FIRST;

        return o->window_clamp != 0 ? MIN(limit, o->window_clamp) : limit;
}

static void size_buffers(struct tcp_conn *tc)
{
        const struct tcp_opts *o = &tc->opts;

        WRITE_ONCE(tc->snd_limit, o->sndbuf           ? MAX(o->sndbuf, SND_LIMIT_LEAST)
                                  : tc->link.lossless ? SND_LIMIT_LOSSLESS
                                                      : SND_LIMIT_FIRST);
        rcvbuf_size(tc, o->credit ? 0 : conn_rcv_limit(o, &tc->link));
}

void conn_end_time_wait(struct tcp *t, struct tcp_conn *tc, enum count why)
{
        uint32_t was = t->busy ? *t->busy : 0;

        assert(tc->live && tc->state == TCPS_TIME_WAIT);
        if (unlikely(tcp_ack_waits(tc)))
                output_ack_now(t, tc, tc->slow_at - TIME_WAIT_FOR);
        count(t->cnt, why);
        if (t->busy)
                *t->busy = tc->self;
        conn_done(t, tc, 0);
        if (t->busy)
                *t->busy = was;
}

/* Takes a record; when the table is full, the oldest connection in TIME-WAIT makes room, or the
 * oldest orphan. */
static uint32_t take_record(struct tcp *t)
{
        uint32_t i = pool_alloc(&t->sh->conns);

        if (i != 0)
                return i;
        if (t->sh->time_wait.head != 0)
                conn_end_time_wait(t, conn_at(t, t->sh->time_wait.head),
                                   COUNT_TCP_TIME_WAIT_RECYCLED);
        else if (t->sh->orphans.head != 0)
                orphan_end(t, conn_at(t, t->sh->orphans.head), false);
        return pool_alloc(&t->sh->conns);
}

struct tcp_conn *conn_new(struct tcp *t, const struct tcp_tuple *tuple, const struct tcp_link *link,
                          const struct tcp_opts *opts, nstime now)
{
        uint32_t i = take_record(t);
        struct tcp_conn *tc;

        if (i == 0)
                return NULL;
        tc = conn_at(t, i);
        zero_lines(tc, sizeof *tc);
        tc->self = i;
        tc->gen = (uint16_t)(++t->sh->gen & 0xfff);
        tc->tuple = *tuple;
        write_words(&tc->link, link, sizeof *link);
        write_words(&tc->opts, opts, sizeof *opts);
        tc->nodelay = opts->nodelay;
        tc->cork = opts->cork;
        tc->cc = opts->cc;
        tc->syn_wscale = open_wscale(opts);
        conn_heed_ttl(tc);
        tc->slow = SLOW_STATE | ((opts->send_window | opts->unsent_most) != 0 ? SLOW_FLOW : 0);
        tc->delack_at = tc->rtx_at = tc->slow_at = tc->cork_at = NSTIME_NEVER;
        tc->last_received = tc->last_sent = tc->limit_since = now;
        tc->min_rtt = NSTIME_NEVER;
        tc->quick = 16;
        if (!link->lossless) /* no timestamps there */
                tc->ts_offset = ts_offset_new(t, tuple);
        size_buffers(tc);
        path_init(t, tc, now);
        conn_size_mss(tc);
        rtt_init(tc);
        if (t->busy)
                *t->busy = i;
        live_set(&tc->live, 1);
        demux_add(t, tc);
        return tc;
}

/* RFC 9293 §3.7.1: effective send MSS = min(what the peer takes, what link and path carry) -
 * options of every segment, IP's too. */
void conn_size_mss(struct tcp_conn *tc)
{
        uint32_t mss = tc->link.mss;

        if (tc->mss_clamp != 0)
                mss = MIN(mss, tc->mss_clamp);
        if (tc->opts.maxseg != 0)
                mss = MIN(mss, tc->opts.maxseg);
        if (tc->path.mss != 0)
                mss = MIN(mss, tc->path.mss);
        WRITE_ONCE(tc->snd_mss, MAX(mss, 48u + tc->opts.ip_opts.len) - conn_options_len(tc));
}

static void line_remove(struct tcp *t, struct tcp_line *l, struct tcp_conn *tc)
{
        assert(l->n != 0);
        *(tc->line_prev ? &conn_at(t, tc->line_prev)->line_next : &l->head) = tc->line_next;
        *(tc->line_next ? &conn_at(t, tc->line_next)->line_prev : &l->tail) = tc->line_prev;
        tc->line_prev = tc->line_next = 0;
        l->n--;
}

void line_append(struct tcp *t, struct tcp_line *l, struct tcp_conn *tc)
{
        assert(tc->acc_state != ACC_QUEUED);
        tc->line_prev = l->tail;
        tc->line_next = 0;
        *(l->tail ? &conn_at(t, l->tail)->line_next : &l->head) = tc->self;
        l->tail = tc->self;
        l->n++;
}

/* The legal arrows of RFC 9293 figure 5, and from anywhere to CLOSED. */
static bool legal_arrow(enum tcp_state from, enum tcp_state to)
{
        static const uint16_t to_of[] = {
                [TCPS_CLOSED] = 1 << TCPS_SYN_SENT | 1 << TCPS_SYN_RECEIVED,
                [TCPS_SYN_SENT] = 1 << TCPS_ESTABLISHED | 1 << TCPS_SYN_RECEIVED,
                [TCPS_SYN_RECEIVED] = 1 << TCPS_ESTABLISHED | 1 << TCPS_FIN_WAIT_1,
                [TCPS_ESTABLISHED] = 1 << TCPS_FIN_WAIT_1 | 1 << TCPS_CLOSE_WAIT,
                [TCPS_FIN_WAIT_1] = 1 << TCPS_FIN_WAIT_2 | 1 << TCPS_CLOSING | 1 << TCPS_TIME_WAIT,
                [TCPS_FIN_WAIT_2] = 1 << TCPS_TIME_WAIT,
                [TCPS_CLOSE_WAIT] = 1 << TCPS_LAST_ACK,
                [TCPS_CLOSING] = 1 << TCPS_TIME_WAIT,
                [TCPS_LAST_ACK] = 0,
                [TCPS_TIME_WAIT] = 0,
        };

        return to == TCPS_CLOSED || (to_of[from] >> to & 1);
}

void tcp_set_state(struct tcp *t, struct tcp_conn *tc, enum tcp_state to)
{
        assert(legal_arrow(tc->state, to));
        trace(t->trace, *t->clock, TRACE_TCP_STATE, tc->self, tc->state, to);
        if (tc->state == TCPS_TIME_WAIT)
                line_remove(t, &t->sh->time_wait, tc);
        else if (conn_is_orphan(tc) && (to == TCPS_CLOSED || to == TCPS_TIME_WAIT))
                line_remove(t, &t->sh->orphans, tc);
        store_order();
        WRITE_ONCE(tc->state, (uint8_t)to);
        if (to == TCPS_ESTABLISHED && !(tc->fastopen & FO_OPEN))
                tc->slow &= (uint8_t)~SLOW_STATE;
        else
                tc->slow |= SLOW_STATE;
        if (to == TCPS_TIME_WAIT)
                line_append(t, &t->sh->time_wait, tc);
}

void conn_raise(struct tcp *t, struct tcp_conn *tc, uint32_t events)
{
        tc->events |= events;
        touch(t, tc);
}

/* `owed`: OWE_RST when the peer is still to be told, by tcp_output(). */
static void end(struct tcp *t, struct tcp_conn *tc, int err, uint8_t owed)
{
        assert(err >= 0 && (owed & ~OWE_RST) == 0);
        if (err != 0)
                WRITE_ONCE(tc->err, (int16_t)err);
        conn_shut(tc, SHUT_BOTH);
        tcp_set_state(t, tc, TCPS_CLOSED);
        demux_remove(t, tc);
        sndbuf_purge(t, tc);
        reass_purge(t, tc);
        group_ends(t, tc);
        sndbuf_unwait(t, tc);
        if (unlikely(t->sh->wait_head != 0))
                sndbuf_wake(t, ANY_REGION);
        tc->delack_at = tc->rtx_at = tc->slow_at = tc->cork_at = NSTIME_NEVER;
        tc->rtx_kind = RTX_NONE;
        tc->owed = owed;
        conn_raise(t, tc, TCP_EV_CLOSED | TCP_EV_READABLE | TCP_EV_WRITABLE);
        if (tc->acc_state == ACC_HALF_OPEN)
                listen_forget(t, tc);
        if (conn_unconfirmed(tc))
                fastopen_over(t, tc);
        conn_reap(t, tc);
}

void conn_done(struct tcp *t, struct tcp_conn *tc, int err)
{
        if (tc->state != TCPS_CLOSED)
                end(t, tc, err, 0);
}

/* Somebody may still ask for it: a socket, a writer who copies, or the listener whose queue it
 * stands in. */
static bool wanted(const struct tcp_conn *tc)
{
        return tc->sock != 0 || tc->flags & TCF_RSV || tc->acc_state == ACC_QUEUED ||
               tc->acc_state == ACC_HALF_OPEN ||
               ((tc->acc_state == ACC_TAKEN || tc->flags & TCF_ACTIVE) &&
                !(tc->flags & TCF_CLOSED_BY_APP));
}

bool conn_reap(struct tcp *t, struct tcp_conn *tc)
{
        if (tc->state != TCPS_CLOSED || tc->owed != 0 || wanted(tc))
                return false;
        assert(tc->live && tc->snd_head == 0 && tc->ooo_head == 0);
        rcvbuf_purge(t, tc);
        sndbuf_drop_fill(t, tc);
        saved_syn_drop(t, tc);
        stamp_drop(t, tc);
        group_over(t, tc);
        if (t->gone)
                t->gone(t->arg, tc->self);
        live_set(&tc->live, 0);
        tc->slow_at = NSTIME_NEVER;
        tc->events = 0;
        pool_free(&t->sh->conns, tc->self);
        return true;
}

void conn_reset(struct tcp *t, struct tcp_conn *tc, int err)
{
        if (tc->state == TCPS_CLOSED)
                return;
        end(t, tc, err, tc->state == TCPS_SYN_SENT || tc->state == TCPS_TIME_WAIT ? 0 : OWE_RST);
}

void conn_enter_time_wait(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        if (tc->state != TCPS_TIME_WAIT) {
                struct tcp_line *l = &t->sh->time_wait;

                if (l->n >= t->sh->limits.time_wait_max && l->head != 0)
                        conn_end_time_wait(t, conn_at(t, l->head), COUNT_TCP_TIME_WAIT_RECYCLED);
                tcp_set_state(t, tc, TCPS_TIME_WAIT);
                sndbuf_purge(t, tc);
                tc->rtx_at = tc->cork_at = NSTIME_NEVER;
                tc->rtx_kind = RTX_NONE;
                group_ends(t, tc);
                conn_raise(t, tc, TCP_EV_CLOSED);
        }
        if (tc->flags & TCF_CLOSED_BY_APP)
                group_over(t, tc);
        tc->slow_at = now + TIME_WAIT_FOR;
}

void conn_set_limit(struct tcp_conn *tc, enum tcp_limit limit, nstime now)
{
        if (likely(tc->limit == limit))
                return;
        assert(limit < TCP_LIMITS);
        if (conn_is_watched(tc))
                watch_limit(tc, limit);
        tc->limited[tc->limit] += now - tc->limit_since;
        tc->limit_since = now;
        tc->limit = (uint8_t)limit;
}

/* There is something to send, and it is not the application or a window that holds it up. */
void tcp_queue_full(struct tcp_conn *tc, nstime now)
{
        if (tc->snd_next != 0)
                conn_set_limit(tc, TCP_LIM_NIQ, now);
}

void tcp_set_sock(struct tcp *t, uint32_t conn, uint32_t sock)
{
        assert(conn_at(t, conn)->live);
        conn_at(t, conn)->sock = sock;
}

void tcp_listener_set_sock(struct tcp *t, uint32_t listener, uint32_t sock)
{
        tcp_listener_at(t, listener)->sock = sock;
}

int tcp_take_error(struct tcp_conn *tc)
{
        int err = tc->err ? tc->err : tc->err_soft;

        WRITE_ONCE(tc->err, 0);
        tc->err_soft = 0;
        return err;
}
