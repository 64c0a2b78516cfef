/*
 * TCP. The first byte chooses: a header for the parser, or a program for a whole connection:
 * segments whose fields are near the edges of the windows or anywhere, calls of the application,
 * time, deaths inside. After each step every invariant holds; at the end nothing is in use.
 */
#include <errno.h>

#include "tests/fuzz/fuzz.h"
#include "tests/tcp/rig.h"

/* ---- the parser ---- */

static void fuzz_parser(const uint8_t *data, size_t size)
{
        struct tcp_seg seg, back;
        uint8_t hdr[TCP_MAX_HDR];
        int n = tcp_hdr_parse(data, size, &seg);

        if (n < 0) {
                assert(-n > DROP_NONE && -n < DROP_COUNT);
                return;
        }
        assert((size_t)n <= size && n >= (int)TCP_MIN_HDR && seg.nsack <= TCP_MAX_SACK);
        if (seg.has_ts && seg.nsack == TCP_MAX_SACK)
                return; /* more than we would ever write */
        n = (int)tcp_hdr_write(&seg, hdr);
        assert(tcp_hdr_parse(hdr, (size_t)n, &back) == n);
        assert(back.seq == seg.seq && back.ack == seg.ack && back.flags == seg.flags &&
               back.wnd == seg.wnd);
        assert(back.mss == seg.mss && back.wscale == seg.wscale && back.sack_ok == seg.sack_ok);
        assert(back.has_ts == seg.has_ts && back.tsval == seg.tsval && back.tsecr == seg.tsecr);
        assert(back.nsack == seg.nsack &&
               memcmp(back.sack, seg.sack, seg.nsack * sizeof seg.sack[0]) == 0);
}

/* ---- a whole connection ---- */

static const struct rig_size small = {
        .limits = {.conns = 4, .listeners = 2, .txsegs = 40, .rxsegs = 40, .time_wait_max = 2},
        .rx = {.count = {[FRAME_SMALL] = 10, [FRAME_LARGE] = 1}},
        .tx = {.count = {[FRAME_SMALL] = 8, [FRAME_LARGE] = 1}},
};

struct world {
        struct rig *r;
        struct tcp_conn *tc;
        struct tcp_tuple tuple;
        struct tcp_link link;
        struct tcp_opts opts;
        uint32_t conn, listener;
        nstime now;
        const uint8_t *p, *end; /* the program */
};

static uint32_t next_byte(struct world *w)
{
        return w->p < w->end ? *w->p++ : 0;
}

static uint32_t next_word(struct world *w)
{
        uint32_t a = next_byte(w);

        return a << 8 | next_byte(w);
}

static void output(struct world *w)
{
        struct tcp_seg seg;

        for (uint32_t i = 1; i < RIG_CONNS; i++) {
                if (!w->r->touched[i])
                        continue;
                w->r->touched[i] = false;
                while (rig_output(w->r, i, &seg, w->now))
                        assert(seg.len == 0 || seg.data.len == seg.len);
        }
        w->r->replies = 0;
        rig_check(w->r);
}

/* A number near a or b, or anywhere, as a byte says. */
static uint32_t near(struct world *w, uint32_t a, uint32_t b)
{
        uint32_t how = next_byte(w);

        if (how < 160)
                return how & 1 ? a : b;
        if (how < 240)
                return (how & 1 ? a : b) + next_byte(w) - 128;
        return (how & 1 ? a : b) + (next_word(w) << 16);
}

static void segment(struct world *w)
{
        static uint8_t bytes[256];
        struct tcp_seg g = {
                .sport = w->tuple.rport, .dport = w->tuple.lport, .wscale = TCP_NO_WSCALE};
        uint32_t kind = next_byte(w);

        g.flags = kind < 200 ? TCP_ACK : (uint8_t)next_byte(w);
        g.seq = near(w, w->tc->rcv_nxt, w->tc->rcv_adv);
        g.ack = near(w, w->tc->snd_una, w->tc->snd_nxt);
        g.wnd = (uint16_t)(kind & 1 ? 60000 : next_word(w));
        g.len = kind & 2 ? next_byte(w) : 0;
        g.inl = bytes;
        g.urg = kind & 4 ? (uint16_t)next_byte(w) : 0;
        g.mss = kind & 8 ? (uint16_t)next_word(w) : 1000;
        g.sack_ok = true;
        g.has_ts = w->tc->ts_ok || kind & 16;
        g.tsval = kind & 32 ? next_word(w) << 16 : w->tc->ts_recent;
        if (kind & 64)
                for (g.nsack = 0; g.nsack < next_byte(w) % 4; g.nsack++) {
                        uint32_t left = near(w, w->tc->snd_una, w->tc->snd_nxt);
                        g.sack[g.nsack] = (struct tcp_sack_block){left, left + next_byte(w)};
                }
        tcp_rx(&w->r->t, &w->tuple, &w->link, &g, w->now);
}

static void copy_and_commit(struct world *w)
{
        struct span span[4];
        int got = tcp_send_reserve(&w->r->t, w->tc, next_word(w) % 5000, span, 4);

        if (got > 0)
                tcp_send_commit(&w->r->t, w->tc, next_word(w) % ((uint32_t)got + 1),
                                next_byte(w) & 1, (next_byte(w) & 7) == 0, w->now);
}

static void read_some(struct world *w)
{
        struct span span[4];
        int got = tcp_recv_peek(&w->r->t, w->tc, 0, 1 + next_word(w), span, 4);

        if (got > 0)
                tcp_recv_consume(&w->r->t, w->tc, next_word(w) % ((uint32_t)got + 1), w->now);
}

static void pass_time(struct world *w)
{
        w->now += (nstime)(next_word(w) + 1) * (next_byte(w) & 1 ? NS_PER_MS : NS_PER_US);
        for (uint32_t i = 1; i < w->r->t.sh->conns.fresh; i++)
                if (tcp_conn_at(&w->r->t, i)->live &&
                    tcp_deadline(tcp_conn_at(&w->r->t, i)) <= w->now)
                        tcp_expire(&w->r->t, tcp_conn_at(&w->r->t, i), w->now);
}

static void act(struct world *w)
{
        struct tcp *t = &w->r->t;
        uint32_t what = next_byte(w);

        if (what < 140)
                segment(w);
        else if (w->tc->acc_state == ACC_HALF_OPEN || what < 180)
                pass_time(w);
        else if (w->tc->acc_state == ACC_QUEUED)
                tcp_set_sock(t, tcp_accept(t, w->listener), 1);
        else if (what < 205)
                copy_and_commit(w);
        else if (what < 230)
                read_some(w);
        else if (what < 235)
                tcp_shutdown_send(t, w->tc, w->now);
        else if (what < 238)
                tcp_shutdown_recv(t, w->tc, w->now);
        else if (what < 244)
                rig_recover(w->r, what & 1 ? w->conn : 0, w->now);
        else if (what < 250)
                tcp_icmp(t, &w->tuple, w->tc->snd_una, EHOSTUNREACH, what & 1, next_word(w),
                         w->now);
        else
                tcp_flush_ack(t, w->tc);
}

static void open_one(struct world *w)
{
        struct tcp_seg syn = {.sport = 80,
                              .dport = 90,
                              .seq = 0xffffff00u,
                              .flags = TCP_SYN,
                              .wnd = 5000,
                              .mss = 1000,
                              .wscale = 3,
                              .sack_ok = true,
                              .has_ts = true,
                              .tsval = 1};
        uint32_t how = next_byte(w);

        tcp_opts_default(&w->opts);
        w->opts.rcvbuf = how & 2 ? 3000 : 0;
        w->opts.no_sack = how >> 2 & 1;
        w->opts.cc = how >> 3 & 1;
        w->link = (struct tcp_link){
                .tx_region = FRAME_REGION_TX(RIG_CHAN), .mss = 1460, .lossless = how >> 4 & 1};
        w->conn = 1;
        if (how & 1) {
                tcp_connect(&w->r->t, &w->tuple, &w->link, &w->opts, w->now);
                tcp_set_sock(&w->r->t, w->conn, 1);
        } else {
                w->listener =
                        (uint32_t)tcp_listen(&w->r->t, w->tuple.laddr, w->tuple.lport, 2, &w->opts);
                tcp_rx(&w->r->t, &w->tuple, &w->link, &syn, w->now);
        }
        w->tc = tcp_conn_at(&w->r->t, w->conn);
        output(w);
        if (how & 1) {
                syn.flags |= TCP_ACK;
                syn.ack = w->tc->snd_nxt;
        } else {
                syn = (struct tcp_seg){.sport = 80,
                                       .dport = 90,
                                       .seq = 0xffffff01u,
                                       .ack = w->tc->snd_nxt,
                                       .wnd = 5000,
                                       .flags = TCP_ACK,
                                       .has_ts = w->tc->ts_ok,
                                       .tsval = 1};
        }
        if (how & 32)
                return; /* from the half-open state */
        tcp_rx(&w->r->t, &w->tuple, &w->link, &syn, w->now);
        output(w);
}

static void close_all(struct world *w)
{
        struct tcp *t = &w->r->t;

        if (w->listener != 0)
                tcp_unlisten(t, w->listener);
        if (w->tc->live)
                tcp_close(t, w->tc, w->now);
        output(w);
        tcp_chan_down(t, RIG_CHAN, ECONNRESET, w->now);
        output(w);
        assert(t->sh->conns.used == 0 && t->sh->txsegs.used == 0 && t->sh->rxsegs.used == 0);
        assert(rig_frames_used(w->r) == 0);
}

static void fuzz_connection(const uint8_t *data, size_t size)
{
        struct world w = {
                .r = rig_new(&small, 1),
                .p = data,
                .end = data + size,
                .now = 1000 * NS_PER_S,
                .tuple = {ip_addr_v4(0x0a000001), ip_addr_v4(0x0a000002), 90, 80, RIG_CHAN}};

        open_one(&w);
        for (int steps = 0; w.p < w.end && w.tc->live && steps < 400; steps++) {
                act(&w);
                output(&w);
        }
        close_all(&w);
        rig_free(w.r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        if (size == 0)
                return 0;
        (data[0] & 1 ? fuzz_connection : fuzz_parser)(data + 1, size - 1);
        return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
        static const uint8_t header[] = {0,    0,    80,   0,    90, 1, 2, 3, 4, 5, 6, 7,  8,
                                         0x90, 0x10, 0x12, 0x34, 0,  0, 0, 0, 1, 1, 5, 10, 0,
                                         0,    0,    1,    0,    0,  0, 9, 1, 1, 1, 1};
        static const uint8_t syn[] = {0,  0, 80, 0, 90, 1, 2, 3, 4, 0, 0,   0, 0, 0xa0,
                                      2,  1, 2,  0, 0,  0, 0, 2, 4, 5, 180, 4, 2, 8,
                                      10, 0, 0,  0, 1,  0, 0, 0, 0, 1, 3,   3, 7};

        if (i == 0) {
                memcpy(buf, header, sizeof header);
                return sizeof header;
        }
        if (i == 1) {
                memcpy(buf, syn, sizeof syn);
                return sizeof syn;
        }
        if (i >= 34)
                return 0;
        buf[0] = 1; /* a program: how the connection was opened, then anything */
        buf[1] = (uint8_t)(i - 2);
        for (unsigned k = 2; k < 600; k++)
                buf[k] = (uint8_t)((k * 167 + i * 91) * (k + i) >> 3);
        return 600;
}
