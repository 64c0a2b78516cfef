/*
 * A whole TCP with a peer that sends anything. The input is a program: the application's calls,
 * segments near the valid ones (sequence numbers around the edges of both windows, any flags, any
 * options), lost and delayed returns of frames, time. After each step every invariant holds; at the
 * end, when the peer has fallen silent and the application has closed, everything is free again,
 * after a bounded number of timers.
 */
#include "tests/fuzz/choices.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/tcp/rig.h"

#define STEPS 400
/* More than retransmission, persist and keepalive can want until they give up. */
#define TIMERS     5000
#define LENT       256u
#define OURS       0x0a000001u
#define PEERS      0x0a000002u
#define PORT       80u
#define FIRST_PORT 4000u

static const struct rig_size size = {
        .limits = {.conns = 6, .listeners = 2, .txsegs = 128, .rxsegs = 96, .time_wait_max = 2},
        .rx = {.count = {[FRAME_SMALL] = 24, [FRAME_LARGE] = 1}},
        .tx = {.count = {[FRAME_SMALL] = 24, [FRAME_LARGE] = 1}},
};

struct world {
        struct rig *r, *peer; /* the peer is only memory that its payload lies in */
        struct choices in;
        nstime now;
        struct tcp_link link;
        uint32_t listener;
        bool closed[RIG_CONNS]; /* the application has let go */
        uint32_t lent[LENT];    /* frames on loan to the peer */
        unsigned nlent;
};

static struct tcp_conn *conn(struct world *w, unsigned i)
{
        struct tcp_conn *tc = tcp_conn_at(&w->r->t, 1 + i % (size.limits.conns - 1));

        return tc->live ? tc : NULL;
}

/* One that the application holds. */
static struct tcp_conn *held(struct world *w, unsigned i)
{
        struct tcp_conn *tc = conn(w, i);

        return tc != NULL && tc->sock != 0 ? tc : NULL;
}

/* ---- output ---- */

static void give_frame_back(struct world *w)
{
        if (w->nlent == 0)
                return;
        frame_unlend(&w->r->frames, FRAME_REGION_TX(RIG_CHAN), w->lent[--w->nlent]);
        tcp_frames_back(&w->r->t, FRAME_REGION_TX(RIG_CHAN));
}

static void posted(struct world *w, const struct tcp_seg *seg)
{
        uint8_t hdr[TCP_MAX_HDR];

        assert(tcp_hdr_write(seg, hdr) <= TCP_MAX_HDR);
        assert(seg->len <= w->link.mss);
        if (seg->len == 0 || w->nlent == LENT)
                return;
        frame_lend(&w->r->frames, seg->data.id);
        w->lent[w->nlent++] = frame_id_num(seg->data.id);
}

/* As the stack's loop; the queue takes `room` segments. */
static void output(struct world *w, unsigned room)
{
        struct tcp_seg seg;

        for (uint32_t i = 1; i < RIG_CONNS; i++) {
                if (!w->r->touched[i])
                        continue;
                w->r->touched[i] = false;
                while (room > 0 && tcp_conn_at(&w->r->t, i)->live &&
                       rig_output(w->r, i, &seg, w->now)) {
                        posted(w, &seg);
                        room--;
                }
                if (room == 0)
                        w->r->touched[i] = tcp_conn_at(&w->r->t, i)->live;
        }
        w->r->replies = 0;
}

/* ---- the peer ---- */

/* A number near one of those that matter to the connection. */
static uint32_t near(struct world *w, const uint32_t *edge, unsigned n)
{
        static const int32_t by[] = {0,    0,     0,    1,     -1,     2,       100,     -100,
                                     1000, -1000, 1460, 65535, -65535, 1 << 20, 1 << 30, INT32_MIN};
        unsigned b = byte(&w->in);

        if (b == 255)
                return number(&w->in, 4);
        return edge[b % n] + (uint32_t)by[b / 16];
}

static void any_options(struct world *w, const struct tcp_conn *tc, struct tcp_seg *seg)
{
        unsigned what = byte(&w->in);
        uint32_t edge[] = {tc->snd_una, tc->snd_nxt, tc->snd_una + tc->snd_mss};

        seg->has_ts = what & 1 ? !tc->ts_ok : tc->ts_ok;
        if (seg->has_ts) {
                seg->tsval = tc->ts_recent + (what & 2 ? number(&w->in, 4) : 1);
                seg->tsecr = (uint32_t)(w->now / NS_PER_MS) + tc->ts_offset -
                             (what & 4 ? number(&w->in, 2) : 1);
        }
        if (seg->flags & TCP_SYN) {
                seg->mss = what & 8 ? (uint16_t)number(&w->in, 2) : 1000;
                seg->sack_ok = what & 16;
                seg->wscale = what & 32 ? (uint8_t)(byte(&w->in) % 15) : TCP_NO_WSCALE;
                seg->fastopen = what & 128 ? (uint8_t)(1 + byte(&w->in) % 9 * 2) : 0;
                seg->fastopen_old = seg->fastopen & 2;
        } else if (what & 64) {
                seg->nsack = (uint8_t)(1 + byte(&w->in) % (seg->has_ts ? 3 : 4));
                for (unsigned i = 0; i < seg->nsack; i++)
                        seg->sack[i] = (struct tcp_sack_block){near(w, edge, 3), near(w, edge, 3)};
        }
}

/* Payload in the descriptor, in a frame of ours, or in one of the peer's. */
static bool any_payload(struct world *w, struct tcp_seg *seg, uint8_t *inl)
{
        unsigned how = byte(&w->in);
        struct rig *from = how & 1 ? w->peer : w->r;
        uint32_t region = how & 1 ? FRAME_REGION_TX(RIG_CHAN) : FRAME_REGION_PRIVATE, id;

        seg->inl = inl;
        if (seg->len <= 180 && how & 2)
                return true;
        id = frame_alloc(&from->frames, region,
                         seg->len > FRAME_SMALL_BYTES - 64 ? FRAME_LARGE : FRAME_SMALL, 0);
        seg->inl = NULL;
        seg->data = (struct buf){id, how & 63, seg->len};
        if (id == 0 || seg->len == 0)
                goto none;
        if (from == w->r)
                return true;
        frame_lend(&from->frames, id);
        frame_drop(&from->frames, id);
        seg->data.id = frame_id(FRAME_REGION_RX(RIG_CHAN), frame_id_num(id));
        return true;
none:
        if (id != 0)
                frame_drop(&from->frames, id);
        seg->data = (struct buf){0, 0, 0};
        seg->inl = inl;
        seg->len = MIN(seg->len, 180);
        return id != 0 || seg->len == 0;
}

static void deliver(struct world *w, const struct tcp_tuple *tuple, struct tcp_seg *seg)
{
        static uint8_t inl[256];

        if (!any_payload(w, seg, inl))
                return;
        if (!tcp_rx(&w->r->t, tuple, &w->link, seg, w->now) && seg->data.id != 0)
                frame_drop(&w->r->frames, seg->data.id);
}

static void step_segment(struct world *w, unsigned which)
{
        static const uint8_t flags[] = {
                /* RST and SYN seldom: what lives long goes far */
                TCP_ACK,           TCP_ACK,           TCP_ACK,           TCP_ACK,
                TCP_ACK,           TCP_ACK | TCP_PSH, TCP_ACK | TCP_PSH, TCP_ACK | TCP_PSH,
                TCP_ACK,           TCP_ACK,           TCP_ACK,           TCP_ACK | TCP_FIN,
                TCP_ACK | TCP_URG, TCP_ACK | TCP_URG, TCP_SYN | TCP_ACK, TCP_SYN | TCP_ACK,
                TCP_SYN,           TCP_RST,           TCP_RST | TCP_ACK, 0};
        static const uint16_t len[] = {0, 0, 0, 1, 10, 100, 500, 1000, 1460, 4000};
        struct tcp_conn *tc = conn(w, which);
        struct tcp_tuple tuple;
        struct tcp_seg seg = {.wscale = TCP_NO_WSCALE};
        unsigned b = byte(&w->in);

        if (tc == NULL)
                return;
        tuple = tc->tuple;
        seg.sport = tuple.rport;
        seg.dport = tuple.lport;
        seg.flags = b < 250 ? flags[b % ARRAY_LEN(flags)] : (uint8_t)number(&w->in, 1);
        seg.seq = near(w, (uint32_t[]){tc->rcv_nxt, tc->rcv_nxt, tc->rcv_adv, tc->irs}, 4);
        seg.ack = near(w, (uint32_t[]){tc->snd_una, tc->snd_nxt, tc->snd_nxt, tc->iss + 1}, 4);
        b = byte(&w->in);
        seg.len = len[b % ARRAY_LEN(len)];
        seg.wnd = b < 200 ? 60000 : b < 230 ? 0 : (uint16_t)number(&w->in, 2);
        seg.urg = seg.flags & TCP_URG ? (uint16_t)number(&w->in, 2) : 0;
        any_options(w, tc, &seg);
        deliver(w, &tuple, &seg);
}

static void step_syn(struct world *w, unsigned which)
{
        struct tcp_tuple tuple = {ip_addr_v4(OURS), ip_addr_v4(PEERS), PORT,
                                  (uint16_t)(FIRST_PORT + which % 8), RIG_CHAN};
        struct tcp_seg seg = {.sport = tuple.rport,
                              .dport = PORT,
                              .seq = number(&w->in, 4),
                              .flags = TCP_SYN,
                              .wnd = 65535,
                              .wscale = which & 8 ? 3 : TCP_NO_WSCALE,
                              .mss = which & 16 ? 536 : 1460,
                              .sack_ok = which & 32,
                              .has_ts = which & 64,
                              .tsval = 1};

        deliver(w, &tuple, &seg);
}

static void step_icmp(struct world *w, unsigned which)
{
        struct tcp_conn *tc = conn(w, which);
        unsigned b = byte(&w->in);

        if (tc != NULL)
                tcp_icmp(&w->r->t, &tc->tuple, tc->snd_una + (b & 8 ? number(&w->in, 4) : 0),
                         EHOSTUNREACH, b & 1, b & 2 ? number(&w->in, 2) : 0, w->now);
}

/* ---- the application ---- */

static void any_opts(struct world *w, struct tcp_opts *o)
{
        unsigned a = byte(&w->in), b = byte(&w->in);

        tcp_opts_default(o);
        o->nodelay = a & 1;
        o->cork = a >> 1 & 1;
        o->quickack = a >> 2 & 1;
        o->keepalive = a >> 3 & 1;
        o->oobinline = a >> 4 & 1;
        o->cc = a >> 5 & 1;
        o->no_sack = a >> 6 & 1;
        o->no_timestamps = a >> 7;
        o->rcvbuf = b & 1 ? number(&w->in, 2) : 0;
        o->sndbuf = b & 2 ? number(&w->in, 2) : 0;
        o->maxseg = b & 4 ? (uint16_t)(88 + byte(&w->in)) : 0;
        o->linger_s = b & 8 ? 0 : -1;
        o->user_timeout_ms = b & 16 ? number(&w->in, 2) : 0;
        o->window_clamp = b & 32 ? 1 + number(&w->in, 2) : 0;
        o->no_wscale = b >> 6 & 1;
        o->defer_accept_s = b & 128 ? byte(&w->in) % 4 : 0;
        o->ecn = b >> 5 & a % 3;
        o->fastopen = b >> 5;
        o->fastopen_most = b >> 6 & a;
        o->keepidle_s = 1 + b % 8;
        o->keepintvl_s = 1;
}

static void step_connect(struct world *w, unsigned which)
{
        struct tcp_tuple tuple = {ip_addr_v4(OURS), ip_addr_v4(PEERS),
                                  (uint16_t)(FIRST_PORT + which % 8), PORT, RIG_CHAN};
        struct tcp_opts o;
        int c;

        any_opts(w, &o);
        c = tcp_connect(&w->r->t, &tuple, &w->link, &o, w->now);
        if (c > 0)
                tcp_set_sock(&w->r->t, (uint32_t)c, 1);
}

static void step_accept(struct world *w, unsigned which)
{
        uint32_t c;

        if (w->listener == 0) {
                struct tcp_opts o;
                any_opts(w, &o);
                w->listener = (uint32_t)tcp_listen(&w->r->t, ip_addr_v4(OURS), PORT, which % 4, &o);
        } else if ((c = tcp_accept(&w->r->t, w->listener)) != 0) {
                tcp_set_sock(&w->r->t, c, 1);
        }
}

static void step_write(struct world *w, unsigned which)
{
        struct tcp_conn *tc = held(w, which);
        unsigned b = byte(&w->in);
        size_t want = b & 3 ? 1 + number(&w->in, 1) : 1 + number(&w->in, 2);
        struct span span[4];
        static const uint8_t small[64];
        int got;

        if (tc == NULL)
                return;
        if (b & 64 && want <= sizeof small && !(tc->flags & TCF_RSV)) {
                tcp_send_append(&w->r->t, tc, small, (uint32_t)want);
                return;
        }
        got = tcp_send_reserve(&w->r->t, tc, want, span, 4);
        assert(got <= (int)want);
        for (int i = 0, at = 0; at < got; at += (int)span[i++].len)
                memset(span[i].ptr, 'x', span[i].len);
        if (got > 0)
                tcp_send_commit(&w->r->t, tc, b & 32 ? (size_t)got / 2 : (size_t)got, b & 4, b & 8,
                                w->now);
}

static void step_read(struct world *w, unsigned which)
{
        struct tcp_conn *tc = held(w, which);
        unsigned b = byte(&w->in);
        struct span span[4];
        int got;

        if (tc == NULL)
                return;
        if (b & 128) {
                tcp_recv_urgent(&w->r->t, tc, b & 1);
                return;
        }
        got = tcp_recv_peek(&w->r->t, tc, b & 64 ? b : 0, b & 32 ? 100000 : 1 + b, span, 4);
        if (got > 0 && !(b & 64))
                tcp_recv_consume(&w->r->t, tc, (size_t)got, w->now);
}

static void step_end(struct world *w, unsigned which)
{
        struct tcp_conn *tc = held(w, which);
        unsigned how = byte(&w->in) % 32;

        if (tc == NULL)
                return;
        if (how == 0)
                tcp_shutdown_recv(&w->r->t, tc, w->now);
        else if (how < 4)
                tcp_shutdown_send(&w->r->t, tc, w->now);
        else if (how == 4)
                tcp_abort(&w->r->t, tc, w->now);
        else if (how < 8)
                tcp_close(&w->r->t, tc, w->now);
}

static void step_opts(struct world *w, unsigned which)
{
        struct tcp_conn *tc = held(w, which);
        struct tcp_opts o;

        any_opts(w, &o);
        if (tc != NULL)
                tcp_set_opts(&w->r->t, tc, &o, w->now);
}

/* ---- time ---- */

static void expire_all(struct world *w)
{
        for (uint32_t i = 1; i < w->r->t.sh->conns.fresh; i++) {
                struct tcp_conn *tc = tcp_conn_at(&w->r->t, i);
                if (tc->live && tcp_deadline(tc) <= w->now)
                        tcp_expire(&w->r->t, tc, w->now);
        }
}

static nstime first_deadline(struct world *w)
{
        nstime d = NSTIME_NEVER;

        for (uint32_t i = 1; i < w->r->t.sh->conns.fresh; i++)
                if (tcp_conn_at(&w->r->t, i)->live)
                        d = nstime_min(d, tcp_deadline(tcp_conn_at(&w->r->t, i)));
        return d;
}

static void step_time(struct world *w, unsigned which)
{
        nstime d = first_deadline(w);

        if (which & 1 && d != NSTIME_NEVER)
                w->now = MAX(w->now, d);
        else
                w->now += number(&w->in, 2) * 100 * NS_PER_US;
        expire_all(w);
}

static void step_output(struct world *w, unsigned which)
{
        output(w, which & 7 ? 1000 : which >> 3);
}

static void step_return(struct world *w, unsigned which)
{
        for (unsigned n = which % 16; n > 0; n--)
                give_frame_back(w);
}

/* A process died inside: as stack_recover() does, with a connection that was being changed
 * or none. */
static void step_die(struct world *w, unsigned which)
{
        struct tcp_conn *broken = which & 1 ? conn(w, which >> 1) : NULL;
        struct frame_pool *mine = w->r->frames.region[FRAME_REGION_PRIVATE].pool,
                          *tx = w->r->frames.region[FRAME_REGION_TX(RIG_CHAN)].pool;

        frame_pool_zero_refs(mine);
        frame_pool_zero_refs(tx);
        tcp_recover(&w->r->t, broken != NULL ? broken->self : 0, w->now);
        frame_pool_rebuild(mine);
        frame_pool_rebuild(tx);
}

/* ---- a world ---- */

static struct world world_new(const uint8_t *data, size_t n)
{
        struct world w = {.r = rig_new(&size, 1),
                          .peer = rig_new(&size, 2),
                          .in = {data, data + n},
                          .now = 1000 * NS_PER_S};
        unsigned b = byte(&w.in);

        rig_lend(w.peer, w.r);
        w.link = (struct tcp_link){.tx_region = FRAME_REGION_TX(RIG_CHAN),
                                   .mss = b & 1 ? 1460 : 16000,
                                   .lossless = b & 2,
                                   .rto_min = b & 4 ? 200 * NS_PER_MS : 0};
        return w;
}

/* What the rules ask of the end: no peer, no application, only time. */
static void wind_up(struct world *w)
{
        if (w->listener != 0)
                tcp_unlisten(&w->r->t, w->listener);
        for (uint32_t i = 1; i < w->r->t.sh->conns.fresh; i++)
                if (tcp_conn_at(&w->r->t, i)->live && tcp_conn_at(&w->r->t, i)->sock != 0)
                        tcp_close(&w->r->t, tcp_conn_at(&w->r->t, i), w->now);
        for (int n = 0; w->r->t.sh->conns.used != 0; n++) {
                nstime d;
                output(w, 1000);
                step_return(w, 15);
                rig_check(w->r);
                d = first_deadline(w);
                assert(n < TIMERS);
                assert(d != NSTIME_NEVER || w->r->t.sh->conns.used == 0);
                w->now = MAX(w->now, d);
                expire_all(w);
        }
        while (w->nlent > 0)
                give_frame_back(w);
        assert(w->r->t.sh->txsegs.used == 0 && w->r->t.sh->rxsegs.used == 0 &&
               w->r->t.sh->listeners.used == 0);
        assert(rig_frames_used(w->r) == 0 && rig_frames_used(w->peer) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        static void (*const steps[])(struct world *, unsigned) = {
                step_segment, step_segment, step_segment, step_segment, step_segment, step_segment,
                step_segment, step_syn,     step_icmp,    step_connect, step_accept,  step_write,
                step_write,   step_read,    step_end,     step_opts,    step_time,    step_time,
                step_output,  step_output,  step_return,  step_die};
        struct world w = world_new(data, n);

        for (int i = 0; i < STEPS && w.in.at < w.in.end; i++) {
                unsigned op = byte(&w.in);
                steps[op % ARRAY_LEN(steps)](&w, byte(&w.in));
                if (op & 0x80)
                        output(&w, 1000);
                rig_check(w.r);
        }
        wind_up(&w);
        rig_free(w.r);
        rig_free(w.peer);
        return 0;
}

/* Programs are worth little when nothing gets established: the seeds do that, and go on
 * at random. */
static size_t random_program(unsigned i, uint8_t *buf, size_t at)
{
        uint64_t x = 0x9e3779b97f4a7c15u * (i + 1);

        while (at < 700) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                buf[at++] = (uint8_t)(x >> 33);
        }
        return at;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
        enum { SEGMENT = 0, SYN = 7, CONNECT = 9, ACCEPT = 10, WRITE = 11, OUTPUT = 18 };
        /* Listen, SYN, our SYN-ACK, its ACK, accept, write. */
        static const uint8_t passive[] = {1, ACCEPT, 3, 0,       0, SYN, 0x70, 1,      2, 3,
                                          4, OUTPUT, 1, SEGMENT, 0, 0,   0,    1,      0, 0,
                                          2, ACCEPT, 0, WRITE,   0, 1,   200,  OUTPUT, 1};
        /* Connect, our SYN, its SYN-ACK, write. */
        static const uint8_t active[] = {1, CONNECT, 1, 0,     0, OUTPUT, 1,   SEGMENT, 0,
                                         4, 255,     9, 9,     9, 9,      1,   0,       1,
                                         2, OUTPUT,  1, WRITE, 0, 1,      200, OUTPUT,  1};
        size_t n = i % 2 ? sizeof passive : sizeof active;

        if (i >= 24)
                return 0;
        memcpy(buf, i % 2 ? passive : active, n);
        buf[0] = (uint8_t)i;
        return random_program(i, buf, n);
}
