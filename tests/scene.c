/* See scene.h. */
#include <stdlib.h>

#include "base/checksum.h"
#include "tcp/tcp_cc.h"
#include "tcp/tcp_window.h"
#include "tests/scene.h"
#include "tests/unit.h"

#define START (1000 * NS_PER_S)

uint8_t scene_byte(uint32_t rel_seq)
{
        return (uint8_t)(rel_seq * 31 + (rel_seq >> 8) * 7);
}

/* ---- what leaves ---- */

static void keep(struct scene *s, const struct tcp_seg *seg, bool reply)
{
        assert_true(s->tail < ARRAY_LEN(s->sent));
        s->sent[s->tail].at = s->now;
        s->sent[s->tail].seg = *seg;
        s->sent[s->tail++].reply = reply;
}

/* As the stack: everything touched is asked for output; what was built can be parsed back. */
static void run_output(struct scene *s)
{
        struct tcp_seg seg, back;
        uint8_t hdr[TCP_MAX_HDR];

        for (unsigned i = 0; i < s->rig->replies; i++)
                keep(s, &s->rig->reply[i].seg, true);
        s->rig->replies = 0;
        for (uint32_t i = 1; i < RIG_CONNS; i++) {
                if (!s->rig->touched[i])
                        continue;
                s->rig->touched[i] = false;
                while (rig_output(s->rig, i, &seg, s->now)) {
                        unsigned n = tcp_hdr_write(&seg, hdr);
                        assert_int_equal(tcp_hdr_parse(hdr, n, &back), n);
                        assert_int_equal(back.seq, seg.seq);
                        keep(s, &seg, false);
                        rig_check(s->rig);
                }
        }
        rig_check(s->rig);
}

static void describe(const struct scene *s, const struct tcp_seg *g, const char *what)
{
        print_error(
                "%s seq %u ack %u len %u flags %s%s%s%s%s%s%s wnd %u mss %u urg %u nsack %u ecn %u",
                what, g->seq - SCENE_ISS, g->ack - SCENE_IRS, g->len, g->flags & TCP_SYN ? "S" : "",
                g->flags & TCP_FIN ? "F" : "", g->flags & TCP_RST ? "R" : "",
                g->flags & TCP_ACK ? "A" : "", g->flags & TCP_URG ? "U" : "",
                g->flags & TCP_ECE ? "E" : "", g->flags & TCP_CWR ? "W" : "", g->wnd, g->mss,
                g->urg, g->nsack, g->ecn);
        for (unsigned i = 0; i < g->nsack; i++)
                print_error(" %u:%u", g->sack[i].left - SCENE_IRS, g->sack[i].right - SCENE_IRS);
        print_error("  (at %.3f ms)\n", (double)(s->now - START) / 1e6);
}

static bool matches(const struct scene_out *o, const struct scene_packet *p)
{
        const struct tcp_seg *g = &p->seg;
        uint8_t flags = o->flags ? o->flags : TCP_ACK;

        if ((o->seq && g->seq != SCENE_ISS + o->seq) || (o->ack && g->ack != SCENE_IRS + o->ack) ||
            g->len != o->len)
                return false;
        if ((g->flags & ~TCP_PSH) != flags || (o->wnd && g->wnd != o->wnd) ||
            (o->zero_wnd && g->wnd != 0))
                return false;
        if (g->ecn != o->ecn)
                return false;
        if ((o->mss && g->mss != o->mss) || (o->urg && g->urg != o->urg) || g->nsack != o->nsack)
                return false;
        for (unsigned i = 0; i < o->nsack; i++)
                if (g->sack[i].left != SCENE_IRS + o->sack[i].left ||
                    g->sack[i].right != SCENE_IRS + o->sack[i].right)
                        return false;
        return p->reply == o->is_reply;
}

static void check_payload(const struct scene *s, const struct tcp_seg *g, const char *file,
                          int line)
{
        const uint8_t *p = g->len ? rig_payload(s->rig, g) : NULL;

        for (uint32_t i = 0; i < g->len; i++)
                _assert_int_equal(p[i], scene_byte(g->seq + !!(g->flags & TCP_SYN) - SCENE_ISS + i),
                                  file, line);
}

void scene_expect_sent(struct scene *s, const struct scene_out *o, const char *file, int line)
{
        struct tcp_seg want = {.seq = SCENE_ISS + o->seq,
                               .ack = SCENE_IRS + o->ack,
                               .len = o->len,
                               .mss = o->mss,
                               .flags = o->flags ? o->flags : TCP_ACK,
                               .wnd = (uint16_t)o->wnd,
                               .ecn = o->ecn,
                               .urg = o->urg};

        if (s->head == s->tail) {
                describe(s, &want, "nothing left; expected");
                _fail(file, line);
        }
        if (!matches(o, &s->sent[s->head])) {
                describe(s, &s->sent[s->head].seg, "left");
                describe(s, &want, "expected");
                _fail(file, line);
        }
        s->last = s->sent[s->head].seg;
        if (s->tc && s->tc->live)
                check_payload(s, &s->last, file, line);
        if (++s->head == s->tail)
                s->head = s->tail = 0;
}

void scene_expect_silence(struct scene *s, const char *file, int line)
{
        if (s->head == s->tail)
                return;
        describe(s, &s->sent[s->head].seg, "left, and nothing should have");
        _fail(file, line);
}

void forget_sent(struct scene *s)
{
        s->head = s->tail = 0;
}

/* ---- what arrives ---- */

static void options(const struct scene *s, const struct scene_in *in, struct tcp_seg *g)
{
        if (g->flags & TCP_SYN) {
                g->mss = in->mss ? in->mss : s->setup.mss;
                g->wscale = in->wscale        ? in->wscale
                            : s->setup.wscale ? s->setup.wscale
                                              : TCP_NO_WSCALE;
                g->sack_ok = in->sack_ok || s->setup.sack;
                g->fastopen = in->fastopen;
                g->fastopen_old = in->fastopen_old;
        }
        g->has_ts = in->has_ts || (s->setup.ts && !in->no_ts && !(g->flags & TCP_RST));
        g->tsval = in->tsval ? in->tsval : s->tsval + (uint32_t)((s->now - START) / NS_PER_MS);
        g->tsecr = in->tsecr;
        g->nsack = in->nsack;
        for (unsigned i = 0; i < in->nsack; i++)
                g->sack[i] = (struct tcp_sack_block){SCENE_ISS + in->sack[i].left,
                                                     SCENE_ISS + in->sack[i].right};
        if (g->flags & TCP_SYN)
                memcpy(g->cookie, in->cookie, sizeof g->cookie);
}

/* Small payload comes in the descriptor, larger in a private frame, as over a provider with memory
 * of its own. */
static void payload(struct scene *s, struct tcp_seg *g, uint8_t *inl, uint32_t rel)
{
        uint8_t *p = inl;

        if (g->len > 190) {
                enum frame_class c = g->len > FRAME_SMALL_BYTES ? FRAME_LARGE : FRAME_SMALL;
                g->data = (struct buf){frame_alloc(&s->rig->frames, FRAME_REGION_PRIVATE, c, 0), 0,
                                       g->len};
                assert_int_not_equal(g->data.id, 0);
                p = frame_addr(&s->rig->frames, g->data.id);
        } else {
                g->inl = inl;
        }
        for (uint32_t i = 0; i < g->len; i++)
                p[i] = scene_byte(rel + !!(g->flags & TCP_SYN) + i);
}

/* As over a link whose driver copies from its own buffers. */
static void unsummed_payload(struct tcp_seg *g, uint8_t *p, uint32_t rel, bool corrupt)
{
        for (uint32_t i = 0; i < g->len; i++)
                p[i] = scene_byte(rel + i);
        g->inl = p;
        g->unsummed = true;
        g->sum = csum_finish(csum_partial(p, g->len, 0)).raw;
        p[g->len / 2] ^= corrupt;
}

void scene_peer_sends(struct scene *s, const struct scene_in *in)
{
        uint8_t inl[192], whole[4096];
        struct tcp_seg g = {
                .sport = s->tuple.rport,
                .dport = s->tuple.lport,
                .seq = SCENE_IRS + in->seq,
                .ack = in->ack == 0 && in->flags == TCP_SYN ? 0 : SCENE_ISS + in->ack,
                .len = in->len,
                .wnd = in->zero_wnd ? 0
                       : in->wnd    ? in->wnd
                                    : s->wnd,
                .urg = in->urg,
                .flags = in->flags    ? in->flags
                         : in->no_ack ? 0
                                      : TCP_ACK,
                .wscale = TCP_NO_WSCALE,
                .ecn = in->ecn,
        };

        options(s, in, &g);
        if (in->unsummed && g.len <= sizeof whole)
                unsummed_payload(&g, whole, in->seq, in->corrupt);
        else if (g.len != 0)
                payload(s, &g, inl, in->seq);
        if (!tcp_rx(&s->rig->t, &s->tuple, &s->link, &g, s->now) && g.data.id != 0)
                frame_drop(&s->rig->frames, g.data.id);
        run_output(s);
}

void advance_ms(struct scene *s, uint32_t ms)
{
        nstime until = s->now + ms * NS_PER_MS;

        run_output(s);
        for (;;) {
                nstime next = NSTIME_NEVER;
                uint32_t who = 0;
                for (uint32_t i = 1; i < s->rig->t.sh->conns.fresh; i++) {
                        struct tcp_conn *tc = tcp_conn_at(&s->rig->t, i);
                        if (tc->live && tcp_deadline(tc) < next) {
                                next = tcp_deadline(tc);
                                who = i;
                        }
                }
                if (next > until)
                        break;
                s->now = MAX(s->now, next);
                tcp_expire(&s->rig->t, tcp_conn_at(&s->rig->t, who), s->now);
                run_output(s);
        }
        s->now = until;
}

void turn_ends(struct scene *s)
{
        tcp_flush_ack(&s->rig->t, s->tc);
        run_output(s);
}

/* ---- the application ---- */

void scene_app_writes(struct scene *s, uint32_t n, int how, const char *file, int line)
{
        struct span span[4];
        uint32_t left = n;

        while (left != 0) {
                int got = tcp_send_reserve(&s->rig->t, s->tc, left, span, 4), done = 0;
                if (got <= 0) {
                        print_error("write of %u: reserve returns %d\n", left, got);
                        _fail(file, line);
                }
                for (int i = 0; done < got; done += (int)span[i++].len)
                        for (uint32_t j = 0; j < span[i].len; j++)
                                span[i].ptr[j] =
                                        scene_byte((uint32_t)(1 + s->written) + (uint32_t)done + j);
                left -= (uint32_t)got;
                tcp_send_commit(&s->rig->t, s->tc, (size_t)got, how == 1 || left != 0,
                                how == 2 && left == 0, s->now);
                s->written += (uint64_t)got;
        }
        run_output(s);
}

void scene_app_reads(struct scene *s, uint32_t n, const char *file, int line)
{
        struct span span[4];

        if (n == 0)
                _assert_int_equal(tcp_recv_peek(&s->rig->t, s->tc, 0, 1, span, 4), 0, file, line);
        while (n != 0) {
                int got = tcp_recv_peek(&s->rig->t, s->tc, 0, n, span, 4), done = 0;
                if (got <= 0) {
                        print_error("read of %u: peek returns %d\n", n, got);
                        _fail(file, line);
                }
                for (int i = 0; done < got; done += (int)span[i++].len)
                        for (uint32_t j = 0; j < span[i].len; j++)
                                _assert_int_equal(
                                        span[i].ptr[j],
                                        scene_byte((uint32_t)(1 + s->read) + (uint32_t)done + j),
                                        file, line);
                tcp_recv_consume(&s->rig->t, s->tc, (size_t)got, s->now);
                s->read += (uint64_t)got;
                n -= (uint32_t)got;
        }
        run_output(s);
}

void scene_expect_state(struct scene *s, enum tcp_state st, const char *file, int line)
{
        if (s->tc->state == st)
                return;
        print_error("%s, expected %s\n", tcp_state_name(s->tc->state), tcp_state_name(st));
        _fail(file, line);
}

void scene_expect_poll(struct scene *s, short ev, const char *file, int line)
{
        _assert_int_equal(tcp_poll_events(&s->rig->t, s->tc), ev, file, line);
}

void app_shuts_send(struct scene *s)
{
        tcp_shutdown_send(&s->rig->t, s->tc, s->now);
        run_output(s);
}

void app_shuts_recv(struct scene *s)
{
        tcp_shutdown_recv(&s->rig->t, s->tc, s->now);
        run_output(s);
}

void app_closes(struct scene *s)
{
        tcp_close(&s->rig->t, s->tc, s->now);
        run_output(s);
}

void app_aborts(struct scene *s)
{
        tcp_abort(&s->rig->t, s->tc, s->now);
        run_output(s);
}

void app_sets(struct scene *s)
{
        tcp_set_opts(&s->rig->t, s->tc, &s->opts, s->now);
        run_output(s);
}

int app_grants(struct scene *s, uint32_t bytes)
{
        int err = tcp_window_grant(&s->rig->t, s->tc, bytes, s->now);

        run_output(s);
        return err;
}

void app_accepts(struct scene *s)
{
        s->conn = tcp_accept(&s->rig->t, s->listener);
        assert_int_not_equal(s->conn, 0);
        s->tc = tcp_conn_at(&s->rig->t, s->conn);
        tcp_set_sock(&s->rig->t, s->conn, 1);
}

/* ---- setups ---- */

static void set_options(struct scene *s)
{
        const struct scene_setup *u = &s->setup;

        tcp_opts_default(&s->opts);
        s->opts.cc = u->dctcp ? TCP_CC_DCTCP : u->reno ? TCP_CC_RENO : TCP_CC_CUBIC;
        s->opts.nodelay = !u->nagle;
        s->opts.no_sack = !u->sack;
        s->opts.no_timestamps = !u->ts;
        s->opts.no_wscale = u->wscale == 0;
        s->opts.rcvbuf = u->rcvbuf;
        s->opts.sndbuf = u->sndbuf;
        s->opts.user_timeout_ms = u->user_timeout_ms;
        s->opts.keepalive = u->keepalive;
        s->opts.ecn = u->ecn;
        s->opts.credit = u->most != 0;
        s->opts.window_most = u->most;
        s->opts.window_first = u->credit;
}

int scene_blank(void **state)
{
        struct scene *s = calloc(1, sizeof *s);

        if (*state != NULL)
                s->setup = *(struct scene_setup *)*state;
        s->setup.mss = s->setup.mss ? s->setup.mss : SCENE_MSS;
        s->wnd = s->setup.wnd ? s->setup.wnd : UINT16_MAX;
        s->now = START;
        s->tsval = 5000;
        s->rig = rig_new(&rig_size_default, 7);
        s->link = (struct tcp_link){.tx_region = FRAME_REGION_TX(RIG_CHAN),
                                    .mss = (uint16_t)(s->setup.mss + (s->setup.ts ? 12 : 0)),
                                    .lossless = s->setup.lossless};
        s->tuple = (struct tcp_tuple){ip_addr_v4(0x0a000001), ip_addr_v4(0x0a000002), 40000, 80,
                                      RIG_CHAN};
        set_options(s);
        *state = s;
        return 0;
}

/* Sequence numbers of ours come from a hash; before the SYN left they may be moved. */
static void rebase(struct tcp_conn *tc)
{
        tc->iss = tc->snd_una = SCENE_ISS;
        tc->snd_nxt = tc->snd_end = SCENE_ISS + 1;
}

int listening(void **state)
{
        struct scene *s;
        int l;

        scene_blank(state);
        s = *state;
        l = tcp_listen(&s->rig->t, (ip_addr){{0, 0}}, s->tuple.lport, 4, &s->opts);
        assert_true(l > 0);
        s->listener = (uint32_t)l;
        tcp_listener_set_sock(&s->rig->t, s->listener, 9);
        return 0;
}

/* What a SYN says, where the scene is about that. */
static int ecn_of(const struct scene *s, int flags)
{
        return s->setup.ecn != 0 ? flags : 0;
}

void app_connects(struct scene *s)
{
        int c = tcp_connect(&s->rig->t, &s->tuple, &s->link, &s->opts, s->now);

        assert_true(c > 0);
        s->conn = (uint32_t)c;
        s->tc = tcp_conn_at(&s->rig->t, s->conn);
        tcp_set_sock(&s->rig->t, s->conn, 1);
        rebase(s->tc);
        s->written = s->read = 0;
        run_output(s);
}

int syn_sent(void **state)
{
        struct scene *s;

        scene_blank(state);
        s = *state;
        app_connects(s);
        expect_sent(s, .flags = (uint8_t)(TCP_SYN | ecn_of(s, TCP_ECE | TCP_CWR)),
                    .mss = s->link.mss, .ecn = s->setup.dctcp ? IP_ECN_ECT0 : 0);
        return 0;
}

static void send_syn(struct scene *s, int flags, uint32_t ack)
{
        peer_sends(s, .seq = 0, .ack = ack, .flags = (uint8_t)flags, .mss = (uint16_t)s->link.mss);
}

int established(void **state)
{
        struct scene *s;

        syn_sent(state);
        s = *state;
        send_syn(s, TCP_SYN | TCP_ACK | ecn_of(s, TCP_ECE), 1);
        expect_sent(s, .seq = 1, .ack = 1, .ecn = s->setup.dctcp ? IP_ECN_ECT0 : 0);
        if (s->setup.wscale)
                peer_sends(s, .seq = 1, .ack = 1); /* the first window that is scaled */
        expect_silence(s);
        s->tc->quick = 0;
        return 0;
}

int syn_received(void **state)
{
        struct scene *s;

        listening(state);
        s = *state;
        s->rig->t.sh->conns.fresh = 1;
        send_syn(s, TCP_SYN | ecn_of(s, TCP_ECE | TCP_CWR), 0);
        forget_sent(s);
        s->conn = 1;
        s->tc = tcp_conn_at(&s->rig->t, s->conn);
        rebase(s->tc);
        return 0;
}

int accepted(void **state)
{
        struct scene *s;

        syn_received(state);
        s = *state;
        peer_sends(s, .seq = 1, .ack = 1);
        expect_silence(s);
        app_accepts(s);
        s->tc->quick = 0;
        return 0;
}

int fin_wait_1(void **state)
{
        struct scene *s;

        established(state);
        s = *state;
        app_shuts_send(s);
        expect_sent(s, .seq = 1, .ack = 1, .flags = TCP_FIN | TCP_ACK);
        expect_state(s, TCPS_FIN_WAIT_1);
        return 0;
}

int fin_wait_2(void **state)
{
        struct scene *s;

        fin_wait_1(state);
        s = *state;
        peer_sends(s, .seq = 1, .ack = 2);
        expect_silence(s);
        expect_state(s, TCPS_FIN_WAIT_2);
        return 0;
}

int close_wait(void **state)
{
        struct scene *s;

        established(state);
        s = *state;
        peer_sends(s, .seq = 1, .ack = 1, .flags = TCP_FIN | TCP_ACK);
        turn_ends(s);
        expect_sent(s, .seq = 1, .ack = 2);
        expect_state(s, TCPS_CLOSE_WAIT);
        return 0;
}

int closing(void **state)
{
        struct scene *s;

        fin_wait_1(state);
        s = *state;
        peer_sends(s, .seq = 1, .ack = 1, .flags = TCP_FIN | TCP_ACK);
        expect_sent(s, .seq = 2, .ack = 2);
        expect_state(s, TCPS_CLOSING);
        return 0;
}

int last_ack(void **state)
{
        struct scene *s;

        close_wait(state);
        s = *state;
        app_shuts_send(s);
        expect_sent(s, .seq = 1, .ack = 2, .flags = TCP_FIN | TCP_ACK);
        expect_state(s, TCPS_LAST_ACK);
        return 0;
}

int time_wait(void **state)
{
        struct scene *s;

        fin_wait_2(state);
        s = *state;
        peer_sends(s, .seq = 1, .ack = 2, .flags = TCP_FIN | TCP_ACK);
        expect_sent(s, .seq = 2, .ack = 2);
        expect_state(s, TCPS_TIME_WAIT);
        return 0;
}

/* Everything is given back at the end, whatever state the scenario left. */
static void dispose(struct scene *s)
{
        struct tcp *t = &s->rig->t;

        if (s->listener != 0 && tcp_listener_at(t, s->listener)->live)
                tcp_unlisten(t, s->listener);
        if (s->tc != NULL && s->tc->live && !(s->tc->flags & TCF_CLOSED_BY_APP))
                tcp_abort(t, s->tc, s->now);
        for (uint32_t i = 1; i < t->sh->conns.fresh; i++)
                if (tcp_conn_at(t, i)->live && tcp_conn_at(t, i)->state != TCPS_CLOSED)
                        tcp_abort(t, tcp_conn_at(t, i), s->now);
        if (s->tc != NULL && s->tc->live && !(s->tc->flags & TCF_CLOSED_BY_APP))
                tcp_close(t, s->tc, s->now);
        run_output(s);
        advance_ms(s, 1);
}

int scene_end(void **state)
{
        struct scene *s = *state;

        expect_silence(s);
        dispose(s);
        assert_int_equal(s->rig->t.sh->conns.used, 0);
        assert_int_equal(s->rig->t.sh->txsegs.used, 0);
        assert_int_equal(s->rig->t.sh->rxsegs.used, 0);
        assert_int_equal(rig_frames_used(s->rig), 0);
        rig_free(s->rig);
        free(s);
        return 0;
}

void expect_told(const struct scene *s, enum tcp_state state, bool syn_data)
{
        struct tcp_report r;

        tcp_get_report(&s->rig->t, s->tc, &r, s->now);
        assert_int_equal(r.state, state);
        assert_int_equal(r.syn_data, syn_data);
}
