/*
 * TCP Fast Open (RFC 7413): data in the SYN.
 *
 * The server's side. A connection whose SYN brings a cookie of ours is ESTABLISHED at once: it can
 * be accepted, read and written. Until its SYN-ACK is acknowledged it has FO_OPEN. Then nothing but
 * the SYN-ACK is repeated, SND.UNA is one past it as if it had been acknowledged, and the
 * connection counts in its listener's fastopen_open.
 *
 *      take_syn() -> fastopen_accepts() -> open_at_once()
 *      check_seq(), process_ack() -> fastopen_confirmed()
 *
 * The cookie is SipHash-2-4 of the peer's address and ours, as Linux makes it: machines behind one
 * address may share a key (§4.1.2).
 *
 * The client's side. What the peers gave us stands in a cache of the stack, by both addresses: the
 * cookie, and the peer's MSS. With a cookie there the SYN waits for the first write (FO_WAITS) and
 * takes it along. Data that the SYN-ACK does not acknowledge is sent again at once. A SYN is
 * repeated without data and option.
 *
 *   tcp_connect() -> fastopen_begin();  tcp_send_commit() -> tcp_fastopen_go()
 *   output_syn() -> fastopen_syn()
 *   input_syn_ack() -> fastopen_answered(), fastopen_syn_acked()
 */
#include "base/siphash.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_send.h"

#define COOKIE_BYTES 8u
/* Left free in a SYN with data, as by Linux: for routers that add some. */
#define OPTIONS_MOST 40u
#define RESETS_COUNT (60 * NS_PER_S) /* as Linux: RFC 7413 §5.1 */
/* After a SYN with data was lost; doubled with each that follows. */
#define AVOID_FIRST  (60 * NS_PER_S)
#define AVOID_DOUBLE 8u

enum { FOR_KEY = 5 }; /* see tcp_iss.c */

/* ---- cookies of ours ---- */

/* The key of number i: the stack's own if none was set. */
static void key_of(const struct tcp *t, const struct tcp_opts *o, unsigned i, struct sip_key *key)
{
        struct sip_key secret = sip_key_of(t->sh->secret);
        uint64_t words[] = {FOR_KEY, 0};

        if (o->fastopen_keys != 0) {
                *key = sip_key_of(o->fastopen_key[i]);
                return;
        }
        for (int k = 0; k < 2; k++) {
                words[1] = (uint64_t)k;
                key->k[k] = siphash24(&secret, words, sizeof words);
        }
}

static void make_cookie(const struct tcp *t, const struct tcp_conn *tc, const struct tcp_opts *o,
                        unsigned i, uint8_t cookie[COOKIE_BYTES])
{
        const struct tcp_tuple *ends = &tc->tuple;
        be32 v4[2] = {be32_of(ip_addr_get_v4(ends->raddr)), be32_of(ip_addr_get_v4(ends->laddr))};
        ip_addr v6[2] = {ends->raddr, ends->laddr};
        struct sip_key key;
        uint64_t made;

        key_of(t, o, i, &key);
        made = ip_addr_is_v4(ends->raddr) ? siphash24(&key, v4, sizeof v4)
                                          : siphash24(&key, v6, sizeof v6);
        memcpy(cookie, &made, COOKIE_BYTES);
}

/* The number of the key that the peer's cookie was made by; -1: none. Any two are compared in the
 * same time. */
static int key_of_cookie(const struct tcp *t, const struct tcp_conn *tc, const struct tcp_opts *o,
                         const struct tcp_seg *syn)
{
        unsigned keys = MAX(o->fastopen_keys, 1u);
        uint8_t cookie[COOKIE_BYTES], differs;

        if (syn->fastopen != 1 + COOKIE_BYTES)
                return -1;
        for (unsigned i = 0; i < keys; i++) {
                make_cookie(t, tc, o, i, cookie);
                differs = 0;
                for (unsigned k = 0; k < COOKIE_BYTES; k++)
                        differs |= cookie[k] ^ syn->cookie[k];
                if (differs == 0)
                        return (int)i;
        }
        return -1;
}

/* ---- the server's side ---- */

/* §5.1: no more than so many that nobody has confirmed. Those count, too, that were reset: who
 * forges addresses, or replays cookies of others, makes them do that. When there has been none for
 * a minute they are forgotten. */
static bool has_place(struct tcp_listener *l, nstime now)
{
        if (now >= l->fastopen_calm_at)
                l->fastopen_resets = 0;
        return (uint64_t)l->fastopen_open + l->fastopen_resets < l->opts.fastopen_most;
}

bool fastopen_accepts(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *syn, nstime now)
{
        struct tcp_listener *l = tcp_listener_at(t, tc->listener);
        int key;

        if ((syn->len == 0 && syn->fastopen == 0) || !has_place(l, now))
                return false;
        if (l->opts.fastopen & TCP_FASTOPEN_BARE)
                return true;
        if (syn->fastopen == 0)
                return false;
        tc->fastopen |= syn->fastopen_old ? FO_OLD : 0;
        if (syn->fastopen == 1) {
                tc->fastopen |= FO_GIVES;
                count(t->cnt, COUNT_TCP_FASTOPEN_ASKED);
                return false;
        }
        key = key_of_cookie(t, tc, &l->opts, syn);
        if (key != 0)
                tc->fastopen |= FO_GIVES; /* that of the key which is to be used */
        if (key < 0)
                count(t->cnt, COUNT_TCP_FASTOPEN_WRONG);
        return key >= 0;
}

void fastopen_opened(struct tcp *t, struct tcp_conn *tc)
{
        assert(tc->state == TCPS_SYN_RECEIVED && !(tc->fastopen & FO_OPEN));
        tc->fastopen |= FO_OPEN;
        tc->fastopen_listener = tc->listener;
        tcp_listener_at(t, tc->listener)->fastopen_open++;
        count(t->cnt, COUNT_TCP_FASTOPEN_IN);
}

void fastopen_over(struct tcp *t, struct tcp_conn *tc)
{
        assert(tc->fastopen & FO_OPEN);
        tc->fastopen &= (uint8_t)~FO_OPEN;
        if (tc->state == TCPS_ESTABLISHED)
                tc->slow &= (uint8_t)~SLOW_STATE;
        if (tc->fastopen_listener != 0)
                tcp_listener_at(t, tc->fastopen_listener)->fastopen_open--;
        tc->fastopen_listener = 0;
}

void fastopen_reset(struct tcp *t, const struct tcp_conn *tc, nstime now)
{
        struct tcp_listener *l;

        if (tc->fastopen_listener == 0)
                return;
        l = tcp_listener_at(t, tc->fastopen_listener);
        l->fastopen_resets++;
        l->fastopen_calm_at = now + RESETS_COUNT;
}

void fastopen_unlisten(struct tcp *t, struct tcp_listener *l)
{
        for (uint32_t i = 1; i < t->sh->conns.fresh && l->fastopen_open != 0; i++) {
                struct tcp_conn *tc = conn_at(t, i);
                if (!tc->live || tc->fastopen_listener != l->self)
                        continue;
                tc->fastopen_listener = 0;
                l->fastopen_open--;
        }
}

bool fastopen_confirmed(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        bool repeated;

        if (seq_leq(seg->ack, tc->iss) || seq_gt(seg->ack, tc->snd_nxt)) {
                output_refuse(t, &tc->tuple, seg);
                return false;
        }
        repeated = tc->dups != 0 || tc->retrans != 0;
        fastopen_over(t, tc);
        if (!repeated) /* Karn's: which it answers is not known */
                rtt_sample(tc, now - tc->syn_sent);
        tc->backoff = tc->dups = 0;
        if (repeated && flight(tc) != 0 && seg->ack == tc->snd_una)
                /* Before the SYN-ACK it was none of the peer's connections'. */
                path_send_again(t, tc, 0, now);
        else
                timer_arm_rtx(tc, now);
        return true;
}

/* ---- what peers gave us ---- */

static struct fastopen_peer *ways_of(const struct tcp *t, const struct tcp_tuple *ends)
{
        struct tcp_tuple both = *ends;

        both.lport = both.rport = 0;
        return t->sh->fastopen[iss_function(t, &both, FOR_KEY) % FASTOPEN_SETS];
}

/* NULL: never heard of. */
static struct fastopen_peer *peer_find(const struct tcp *t, const struct tcp_tuple *ends)
{
        struct fastopen_peer *p = ways_of(t, ends);

        for (unsigned i = 0; i < FASTOPEN_WAYS; i++)
                if (ip_addr_eq(p[i].raddr, ends->raddr) && ip_addr_eq(p[i].laddr, ends->laddr))
                        return p[i].len <= TCP_MAX_COOKIE ? &p[i] : NULL;
        return NULL;
}

/* Makes a record of a peer, in place of the one that was heard of longest ago. */
static struct fastopen_peer *peer_make(const struct tcp *t, const struct tcp_tuple *ends)
{
        struct fastopen_peer *p = ways_of(t, ends), *oldest = p;

        for (unsigned i = 1; i < FASTOPEN_WAYS; i++)
                if (p[i].at < oldest->at)
                        oldest = &p[i];
        *oldest = (struct fastopen_peer){.raddr = ends->raddr, .laddr = ends->laddr};
        return oldest;
}

/* §4.1.3.1: a way that drops such SYNs is not tried for a while. */
static bool is_avoided(const struct fastopen_peer *p, nstime now)
{
        return p != NULL && p->losses != 0 &&
               now < p->at + (AVOID_FIRST << MIN(p->losses - 1u, AVOID_DOUBLE));
}

void fastopen_answered(struct tcp *t, struct tcp_conn *tc, const struct tcp_seg *seg, nstime now)
{
        struct fastopen_peer *p;

        if (!(tc->fastopen & FO_SENT) || tc->opts.fastopen & TCP_FASTOPEN_BARE)
                return;
        p = peer_find(t, &tc->tuple);
        if (p == NULL)
                p = peer_make(t, &tc->tuple);
        p->at = now;
        p->mss = seg->mss;
        if (seg->fastopen > 1) {
                p->len = seg->fastopen - 1;
                p->old = seg->fastopen_old;
                memcpy(p->cookie, seg->cookie, sizeof p->cookie);
                p->losses = 0;
        } else if (tc->dups == 0) {
                p->losses = 0;
                if (p->len == 0) { /* who did not know the one number is asked by the other, once */
                        p->old = !p->old && !p->asked_old;
                        p->asked_old = true;
                }
        } else if (tc->fastopen & FO_DATA && seq_lt(seg->ack, tc->snd_nxt)) {
                p->losses += p->losses != UINT8_MAX;
        }
}

/* ---- the client's side ---- */

bool fastopen_begin(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        const struct fastopen_peer *p = peer_find(t, &tc->tuple);

        assert(tc->state == TCPS_SYN_SENT && tc->flags & TCF_ACTIVE);
        if (is_avoided(p, now))
                return false;
        if (p != NULL && p->mss != 0) {
                tc->mss_clamp = p->mss;
                conn_size_mss(tc);
        }
        tc->fastopen = FO_ASKS;
        if (!(tc->opts.fastopen & TCP_FASTOPEN_BARE) && (p == NULL || p->len == 0))
                return false;
        tc->fastopen |= FO_WAITS;
        return true;
}

bool tcp_fastopen_waits(const struct tcp_conn *tc)
{
        return READ_ONCE(tc->fastopen) & FO_WAITS;
}

void tcp_fastopen_go(struct tcp *t, struct tcp_conn *tc, nstime now)
{
        if (!(tc->fastopen & FO_WAITS))
                return;
        WRITE_ONCE(tc->fastopen, tc->fastopen & (uint8_t)~FO_WAITS);
        tc->stalled_at = now;
        tc->owed |= OWE_SYN;
        touch(t, tc);
}

uint32_t fastopen_room(const struct tcp_conn *tc)
{
        uint32_t most = MIN(tc->snd_mss, FRAME_SMALL_BYTES);

        return most > OPTIONS_MOST ? most - OPTIONS_MOST : 1;
}

static void take_data(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now)
{
        struct tcp_txseg *s = txseg_at(t, tc->snd_next);

        seg->len = s->len;
        seg->data = (struct buf){s->frame, s->off, s->len};
        s->sent = now;
        tc->bytes_sent += s->len;
        tc->fastopen |= FO_DATA;
        tc->snd_next = s->next;
        WRITE_ONCE(tc->snd_nxt, txseg_end(s));
        count(t->cnt, COUNT_TCP_FASTOPEN_OUT);
}

static void ask(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now)
{
        const struct fastopen_peer *p = peer_find(t, &tc->tuple);

        tc->fastopen |= FO_SENT;
        if (!(tc->opts.fastopen & TCP_FASTOPEN_BARE)) {
                seg->fastopen = p != NULL ? 1 + p->len : 1;
                seg->fastopen_old = p != NULL && p->old;
                if (p != NULL)
                        memcpy(seg->cookie, p->cookie, sizeof p->cookie);
        }
        if (tc->snd_next != 0)
                take_data(t, tc, seg, now);
}

void fastopen_syn(struct tcp *t, struct tcp_conn *tc, struct tcp_seg *seg, nstime now)
{
        if (conn_unconfirmed(tc)) {
                tc->syn_sent = now;
                /* Less what the SYN brought. */
                seg->wnd = (uint16_t)MIN(tc->rcv_adv - tc->rcv_nxt, UINT16_MAX);
        }
        if (tc->state == TCPS_SYN_SENT) {
                if ((tc->fastopen & (FO_ASKS | FO_SENT)) == FO_ASKS)
                        ask(t, tc, seg, now);
        } else if (tc->fastopen & FO_GIVES && tc->listener != 0) {
                make_cookie(t, tc, &tcp_listener_at(t, tc->listener)->opts, 0, seg->cookie);
                seg->fastopen = 1 + COOKIE_BYTES;
                seg->fastopen_old = tc->fastopen & FO_OLD;
        }
}

void fastopen_syn_acked(struct tcp *t, struct tcp_conn *tc, uint32_t ack, nstime now)
{
        struct tcp_txseg *s;

        assert(seq_leq(tc->snd_una, ack) && seq_leq(ack, tc->snd_nxt));
        while (tc->snd_head != 0 && seq_lt((s = txseg_at(t, tc->snd_head))->seq, ack)) {
                if (seq_gt(txseg_end(s), ack)) {
                        txseg_trim(t, tc, s, ack - s->seq);
                        break;
                }
                txseg_free_head(t, tc);
        }
        tc->bytes_acked += ack - tc->snd_una;
        WRITE_ONCE(tc->snd_una, ack);
        if (ack != tc->snd_nxt) {
                path_send_again(t, tc, 0, now);
                count(t->cnt, COUNT_TCP_FASTOPEN_FAILED);
        } else if (tc->fastopen & FO_DATA) {
                tc->fastopen |= FO_TAKEN;
        }
        tc->stalled_at = flight(tc) != 0 ? now : 0;
}
