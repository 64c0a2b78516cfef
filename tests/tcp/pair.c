/* See pair.h. */
#include "tests/tcp/pair.h"

#include "ip/ip.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TURN (20 * NS_PER_MS) /* applications look at their sockets at least so often */

enum { CLIENT, SERVER };

uint64_t pair_random(struct pair *p) /* splitmix64 */
{
        uint64_t z = p->seed += 0x9e3779b97f4a7c15ull;

        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        return z ^ z >> 31;
}

double pair_chance(struct pair *p)
{
        return (double)(pair_random(p) >> 11) / 9007199254740992.0;
}

static uint8_t byte_at(int side, uint64_t pos)
{
        return (uint8_t)(pos * 131 + (pos >> 8) * 17 + (uint64_t)side * 101);
}

struct pair *pair_new(const struct pair_link *net, const struct rig_size *size, uint64_t seed)
{
        struct pair *p = calloc(1, sizeof *p);

        p->seed = seed;
        p->net = *net;
        p->now = NS_PER_S * 1000;
        p->room = 65536;
        p->queue = calloc(p->room, sizeof *p->queue);
        p->link = (struct tcp_link){
                .tx_region = FRAME_REGION_TX(RIG_CHAN), .mss = net->mss, .lossless = net->lossless};
        for (int s = 0; s < 2; s++) {
                p->rig[s] = rig_new(size, pair_random(p));
                tcp_opts_default(&p->opts[s]);
                p->app[s].max_write = p->app[s].max_read = 16384;
        }
        rig_lend(p->rig[0], p->rig[1]);
        rig_lend(p->rig[1], p->rig[0]);
        p->tuple[CLIENT] = (struct tcp_tuple){ip_addr_v4(0x0a000001), ip_addr_v4(0x0a000002), 40000,
                                              80, RIG_CHAN};
        p->tuple[SERVER] = (struct tcp_tuple){ip_addr_v4(0x0a000002), ip_addr_v4(0x0a000001), 80,
                                              40000, RIG_CHAN};
        return p;
}

void pair_free(struct pair *p)
{
        for (unsigned i = 0; i < p->queued; i++)
                free(p->queue[i].bytes);
        free(p->queue);
        rig_free(p->rig[0]);
        rig_free(p->rig[1]);
        free(p);
}

/* ---- the link ---- */

static void push(struct pair *p, struct packet *k)
{
        assert(p->queued < p->room);
        k->order = p->order++;
        p->queue[p->queued++] = *k;
}

static void lend(struct pair *p, int from, const struct tcp_seg *seg, struct packet *k)
{
        k->seg = *seg;
        if (seg->len != 0) {
                k->frame = frame_id_num(seg->data.id);
                frame_lend(&p->rig[from]->frames, seg->data.id);
        }
}

static void serialise(struct pair *p, int from, const struct tcp_seg *seg, struct packet *k)
{
        k->bytes = malloc(TCP_MAX_HDR + seg->len);
        k->hlen = tcp_hdr_write(seg, k->bytes);
        k->len = seg->len;
        k->ecn = seg->ecn != 0 && p->net.mark != 0 && pair_chance(p) < p->net.mark ? IP_ECN_CE
                                                                                   : seg->ecn;
        assert(k->hlen - TCP_MIN_HDR + k->len <= p->net.mss + (seg->flags & TCP_SYN ? 40u : 0u));
        if (seg->len != 0)
                memcpy(k->bytes + k->hlen, rig_payload(p->rig[from], seg), seg->len);
}

/* A router on the way with a link of a smaller MTU behind it. */
static bool too_big(struct pair *p, int from, const struct tcp_seg *seg)
{
        uint8_t hdr[TCP_MAX_HDR];
        uint32_t len = 20 + tcp_hdr_write(seg, hdr) + seg->len;
        bool limited = p->net.mtu != 0 && p->now >= p->net.mtu_from &&
                       (p->net.mtu_until == 0 || p->now < p->net.mtu_until);
        struct packet k = {
                .to = from, .at = p->now + p->net.delay, .mtu = p->net.mtu, .icmp_seq = seg->seq};

        if (!limited || len <= p->net.mtu) {
                p->largest = MAX(p->largest, len);
                return false;
        }
        if (p->net.tells)
                push(p, &k);
        return true;
}

/* FNV-1a. */
static void digest(struct pair *p, const void *what, size_t n)
{
        const uint8_t *byte = what;

        for (size_t i = 0; i < n; i++)
                p->digest = (p->digest ^ byte[i]) * 0x100000001b3;
}

static void note(struct pair *p, int from, const struct tcp_seg *seg)
{
        uint8_t hdr[TCP_MAX_HDR];

        digest(p, hdr, tcp_hdr_write(seg, hdr));
        digest(p, &seg->len, sizeof seg->len);
        digest(p, &seg->ecn, sizeof seg->ecn);
        digest(p, &from, sizeof from);
        digest(p, &p->now, sizeof p->now);
        p->sent_pkts++;
}

static void send_packet(struct pair *p, int from, const struct tcp_seg *seg)
{
        int copies = p->net.lossless ? 1 : pair_chance(p) < p->net.dup ? 2 : 1;

        note(p, from, seg);
        if (getenv("PAIR_TRACE"))
                fprintf(stderr, "%.6f %s %s%s%s%s seq %u len %u ack %u wnd %u sack %u\n",
                        (double)p->now / 1e9, from ? "S" : "C", seg->flags & TCP_SYN ? "S" : "",
                        seg->flags & TCP_FIN ? "F" : "", seg->flags & TCP_RST ? "R" : "",
                        seg->flags & TCP_PSH ? "P" : "", seg->seq, seg->len, seg->ack, seg->wnd,
                        seg->nsack);
        while (copies-- > 0 && !too_big(p, from, seg)) {
                struct packet k = {.to = !from, .at = p->now + p->net.delay};
                if (p->net.jitter)
                        k.at += (nstime)(pair_chance(p) * (double)p->net.jitter);
                if (!p->net.lossless && pair_chance(p) < p->net.drop)
                        continue;
                if (!p->net.lossless && pair_chance(p) < p->net.reorder)
                        k.at += p->net.delay * 2;
                if (p->net.lossless)
                        lend(p, from, seg, &k);
                else
                        serialise(p, from, seg, &k);
                push(p, &k);
        }
}

static bool earlier(const struct packet *a, const struct packet *b)
{
        return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static int next_packet(const struct pair *p)
{
        int best = -1;

        for (unsigned i = 0; i < p->queued; i++)
                if (best < 0 || earlier(&p->queue[i], &p->queue[best]))
                        best = (int)i;
        return best;
}

/* As the stack does for a provider with frames of its own: small payload in the descriptor, else in
 * a private frame. */
static bool unpack(struct pair *p, struct packet *k, struct tcp_seg *seg)
{
        struct frames *f = &p->rig[k->to]->frames;
        int hlen = tcp_hdr_parse(k->bytes, k->hlen, seg);

        assert(hlen == (int)k->hlen);
        seg->ecn = k->ecn;
        seg->len = k->len;
        seg->inl = k->bytes + k->hlen;
        seg->data = (struct buf){0, 0, 0};
        if (k->len <= 190)
                return true;
        seg->inl = NULL;
        seg->data = (struct buf){
                frame_alloc(f, FRAME_REGION_PRIVATE, k->len > 2048 ? FRAME_LARGE : FRAME_SMALL, 0),
                0, k->len};
        if (seg->data.id == 0)
                return false;
        memcpy(frame_addr(f, seg->data.id), k->bytes + k->hlen, k->len);
        return true;
}

static void deliver(struct pair *p, struct packet k)
{
        struct rig *r = p->rig[k.to];
        struct tcp_tuple tuple = p->tuple[k.to];
        struct tcp_seg seg;
        bool took;

        if (k.mtu != 0) {
                tcp_icmp(&r->t, &tuple, k.icmp_seq, EMSGSIZE, true, k.mtu, p->now);
                rig_check(r);
                return;
        }
        if (k.bytes == NULL) {
                seg = k.seg;
                seg.inl = NULL;
                seg.data.id = k.frame ? frame_id(FRAME_REGION_RX(RIG_CHAN), k.frame) : 0;
        } else if (!unpack(p, &k, &seg)) {
                free(k.bytes);
                return;
        }
        tuple.lport = seg.dport;
        tuple.rport = seg.sport;
        took = tcp_rx(&r->t, &tuple, &p->link, &seg, p->now);
        if (!took && seg.data.id != 0)
                frame_drop(&r->frames, seg.data.id);
        free(k.bytes);
        rig_check(r);
}

/* ---- the loop ---- */

/* As netif_output(): what goes on where a segment of new data ends, and says nothing else. */
static void go_on(struct pair *p, int s, struct tcp_conn *tc, struct tcp_seg *seg)
{
        struct rig *r = p->rig[s];
        uint8_t flags;

        if (!p->net.runs || seg->len != tc->snd_mss || seg->seq + seg->len != tc->snd_nxt ||
            seg->nsack != 0 || seg->ecn != 0 || (seg->flags & ~(TCP_ACK | TCP_PSH)) != 0)
                return;
        while (tcp_output_next(&r->t, tc, &seg->data, &flags, p->now)) {
                rig_check(r);
                seg->seq += seg->len;
                seg->flags = TCP_ACK | flags;
                assert(seg->data.len == seg->len);
                send_packet(p, s, seg);
                p->next_pkts++;
        }
}

static void run_output(struct pair *p, int s)
{
        struct rig *r = p->rig[s];
        struct tcp_seg seg;

        for (uint32_t i = 1; i < RIG_CONNS; i++) {
                if (!r->touched[i])
                        continue;
                r->touched[i] = false;
                while (rig_output(r, i, &seg, p->now)) {
                        rig_check(r);
                        send_packet(p, s, &seg);
                        go_on(p, s, tcp_conn_at(&r->t, i), &seg);
                }
                if (p->net.lossless && tcp_conn_at(&r->t, i)->live) {
                        tcp_flush_ack(&r->t, tcp_conn_at(&r->t, i));
                        if (rig_output(r, i, &seg, p->now))
                                send_packet(p, s, &seg);
                }
        }
        for (unsigned i = 0; i < r->replies; i++)
                send_packet(p, s, &r->reply[i].seg);
        r->replies = 0;
}

static nstime next_deadline(const struct pair *p, int s)
{
        nstime d = NSTIME_NEVER;

        for (uint32_t i = 1; i < p->rig[s]->t.sh->conns.fresh; i++)
                if (tcp_conn_at(&p->rig[s]->t, i)->live)
                        d = nstime_min(d, tcp_deadline(tcp_conn_at(&p->rig[s]->t, i)));
        return d;
}

static void expire(struct pair *p, int s)
{
        struct rig *r = p->rig[s];

        for (uint32_t i = 1; i < r->t.sh->conns.fresh; i++) {
                struct tcp_conn *tc = tcp_conn_at(&r->t, i);
                if (tc->live && tcp_deadline(tc) <= p->now) {
                        tcp_expire(&r->t, tc, p->now);
                        rig_check(r);
                }
        }
}

static bool step(struct pair *p, nstime until)
{
        nstime at;
        int i;

        run_output(p, 0);
        run_output(p, 1);
        i = next_packet(p);
        at = nstime_min(next_deadline(p, 0), next_deadline(p, 1));
        at = nstime_min(at, i >= 0 ? p->queue[i].at : NSTIME_NEVER);
        if (at > until)
                return false;
        p->now = MAX(p->now, at);
        if (i >= 0 && p->queue[i].at <= p->now) {
                struct packet k = p->queue[i];
                p->queue[i] = p->queue[--p->queued];
                deliver(p, k);
        }
        expire(p, 0);
        expire(p, 1);
        if (p->net.death != 0 && pair_chance(p) < p->net.death) {
                int s = (int)(pair_random(p) % 2);
                rig_recover(p->rig[s], 0, p->now);
                rig_check(p->rig[s]);
        }
        return true;
}

/* ---- the applications ---- */

static void app_write(struct pair *p, int s, struct tcp_conn *tc)
{
        struct pair_app *a = &p->app[s];
        struct rig *r = p->rig[s];
        struct span span[4];
        uint64_t piece = 1 + pair_random(p) % a->max_write,
                 want = MIN(a->to_write - a->written, piece);
        int got, done = 0;

        if (want == 0)
                return;
        got = tcp_send_reserve(&r->t, tc, want, span, 4);
        if (got < 0)
                a->error = -got;
        if (got <= 0)
                return;
        for (int i = 0; done < got; done += (int)span[i++].len)
                for (uint32_t j = 0; j < span[i].len; j++)
                        span[i].ptr[j] = byte_at(s, a->written + (uint64_t)done + j);
        tcp_send_commit(&r->t, tc, (size_t)got, pair_chance(p) < 0.05, false, p->now);
        a->written += (uint64_t)got;
}

static void app_read(struct pair *p, int s, struct tcp_conn *tc)
{
        struct pair_app *a = &p->app[s];
        struct rig *r = p->rig[s];
        struct span span[4];
        int got = tcp_recv_peek(&r->t, tc, 0, 1 + pair_random(p) % a->max_read, span, 4), done = 0;

        if (got == 0)
                a->saw_end = true;
        if (got < 0 && got != -EAGAIN)
                a->error = -got;
        for (int i = 0; done < got; done += (int)span[i++].len)
                for (uint32_t j = 0; j < span[i].len; j++)
                        assert(span[i].ptr[j] == byte_at(!s, a->read + (uint64_t)done + j));
        if (got > 0) {
                a->read += (uint64_t)got;
                tcp_recv_consume(&r->t, tc, (size_t)got, p->now);
        }
}

static void app_turn(struct pair *p, int s)
{
        struct pair_app *a = &p->app[s];
        struct tcp_conn *tc;

        if (s == SERVER && p->conn[s] == 0 && tcp_acceptable(&p->rig[s]->t, p->listener)) {
                p->conn[s] = tcp_accept(&p->rig[s]->t, p->listener);
                tcp_set_sock(&p->rig[s]->t, p->conn[s], 1);
        }
        if (p->conn[s] == 0 || pair_chance(p) < a->idle)
                return;
        tc = tcp_conn_at(&p->rig[s]->t, p->conn[s]);
        if (tcp_fastopen_waits(tc)) {
                app_write(p, s, tc);
                tcp_fastopen_go(&p->rig[s]->t, tc, p->now);
        }
        if (tc->state == TCPS_SYN_SENT || tc->state == TCPS_SYN_RECEIVED)
                return;
        if (!a->saw_end)
                app_read(p, s, tc);
        if (!a->shut)
                app_write(p, s, tc);
        if (!a->shut && a->written == a->to_write) {
                a->shut = true;
                tcp_shutdown_send(&p->rig[s]->t, tc, p->now);
        }
        if (a->shut && a->saw_end) {
                tcp_close(&p->rig[s]->t, tc, p->now);
                p->conn[s] = 0;
                if (s == SERVER)
                        p->listener = 0;
        }
        rig_check(p->rig[s]);
}

static bool over(const struct pair *p)
{
        return p->app[0].shut && p->app[0].saw_end && p->app[1].shut && p->app[1].saw_end;
}

static bool dead(const struct pair *p)
{
        return p->app[0].error || p->app[1].error;
}

bool pair_run(struct pair *p, nstime limit)
{
        int c;

        p->first_listener = (uint32_t)tcp_listen(&p->rig[SERVER]->t, (ip_addr){{0, 0}}, 80, 4,
                                                 &p->opts[SERVER]);
        p->listener = p->first_listener;
        c = tcp_connect(&p->rig[CLIENT]->t, &p->tuple[CLIENT], &p->link, &p->opts[CLIENT], p->now);
        assert(c > 0);
        p->conn[CLIENT] = (uint32_t)c;
        tcp_set_sock(&p->rig[CLIENT]->t, p->conn[CLIENT], 1);
        return pair_run_on(p, limit);
}

bool pair_run_on(struct pair *p, nstime limit)
{
        nstime until = p->now + limit;

        while (!over(p) && !dead(p)) {
                nstime next = p->now + TURN;
                if (!step(p, next))
                        p->now = next;
                if (p->now > until)
                        return false;
                if (p->listener != 0 || p->conn[SERVER] == 0)
                        p->listener = p->conn[SERVER] == 0 ? p->first_listener : p->listener;
                app_turn(p, 0);
                app_turn(p, 1);
                if (p->break_at != 0 && p->app[SERVER].read >= p->break_at) {
                        if (p->beyond_mending)
                                tcp_conn_at(&p->rig[SERVER]->t, p->conn[SERVER])->snd_nxt -=
                                        1000000;
                        rig_recover(p->rig[SERVER], p->conn[SERVER], p->now);
                        p->break_at = 0;
                }
        }
        return over(p);
}

void pair_settle(struct pair *p, nstime for_how_long)
{
        nstime until = p->now + for_how_long;

        while (step(p, until))
                ;
        p->now = until;
}

void pair_connect_more(struct pair *p, uint32_t conn[2])
{
        struct tcp *client = &p->rig[CLIENT]->t, *server = &p->rig[SERVER]->t;
        struct tcp_tuple tuple = p->tuple[CLIENT];

        if (p->listener == 0)
                p->listener =
                        (uint32_t)tcp_listen(server, (ip_addr){{0, 0}}, 80, 4, &p->opts[SERVER]);
        tuple.lport = (uint16_t)(tuple.lport + p->rig[CLIENT]->t.sh->conns.used);
        conn[CLIENT] = (uint32_t)tcp_connect(client, &tuple, &p->link, &p->opts[CLIENT], p->now);
        tcp_set_sock(client, conn[CLIENT], 1);
        pair_settle(p, NS_PER_MS);
        conn[SERVER] = tcp_accept(server, p->listener);
        tcp_set_sock(server, conn[SERVER], 1);
        assert(conn[SERVER] != 0);
}

uint32_t pair_pour(struct pair *p, int side, uint32_t conn, uint32_t n)
{
        struct tcp *t = &p->rig[side]->t;
        struct span span[4];
        int got = tcp_send_reserve(t, tcp_conn_at(t, conn), n, span, 4);

        assert(got >= 0);
        for (int i = 0, done = 0; done < got; done += (int)span[i++].len)
                memset(span[i].ptr, 0, span[i].len);
        if (got > 0)
                tcp_send_commit(t, tcp_conn_at(t, conn), (size_t)got, false, false, p->now);
        return (uint32_t)got;
}

uint32_t pair_drain(struct pair *p, int side, uint32_t conn)
{
        struct tcp *t = &p->rig[side]->t;
        struct span span[4];
        int got = tcp_recv_peek(t, tcp_conn_at(t, conn), 0, 1u << 20, span, 4);

        if (got <= 0)
                return 0;
        tcp_recv_consume(t, tcp_conn_at(t, conn), (size_t)got, p->now);
        return (uint32_t)got;
}
