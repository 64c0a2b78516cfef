/*
 * The verbs channel: sending and receiving.
 *
 *      verbs_send(): describe() each -> one ibv_post_send() -> note() what the device took -> verbs_poll_sends()
 *      verbs_poll_receives() -> the channel's buffers -> verbs_recv() -> verbs_release() -> verbs_repost()
 *
 * What the device copies when it is posted (inline) is injected at once. Of the rest the last of a chain asks for a
 * completion, which retires all before it; a chain of inline messages asks for none until VERBS_SIGNAL_EVERY are without.
 */
#include "unet/verbs_chan.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define GOODBYE_NS  (1 * NS_PER_S)      /* most that closing waits for what is still to be sent */
#define GOODBYE_NAP (50 * NS_PER_US)

static struct verbs_chan *verbs(struct unet_chan *ch)
{
        return (struct verbs_chan *)ch;
}

/* ---- sending ---- */

struct chain {
        int n;
        struct ibv_send_wr wr[VERBS_CHAIN];
        struct ibv_sge sge[VERBS_CHAIN][VERBS_SGES];
};

/* The descriptor's bytes from where they are, or from a staging place when they are not copied at once. */
static void describe_inline(const struct verbs_port *p, const struct unet_tx *tx, uint32_t place, bool now,
                            struct ibv_sge *sge)
{
        uint8_t *at = p->memory + place % VERBS_SEND_DEPTH * VERBS_STAGE;

        if (!now)
                memcpy(at, tx->inl, tx->inl_len);
        *sge = (struct ibv_sge){.addr = now ? (uintptr_t)tx->inl : (uintptr_t)at, .length = tx->inl_len,
                                .lkey = p->memory_mr->lkey};
}

static struct ibv_sge piece(const struct verbs_port *p, uint32_t off, uint32_t len)
{
        return (struct ibv_sge){.addr = (uintptr_t)p->segment + off, .length = len, .lkey = p->segment_mr->lkey};
}

/* Fills in the next work request of the chain. */
static void describe(struct verbs_chan *c, struct chain *k, const struct unet_tx *tx)
{
        struct verbs_port *p = c->port;
        struct ibv_send_wr *wr = &k->wr[k->n];
        struct ibv_sge *sge = k->sge[k->n];
        bool now = unet_tx_bytes(tx) <= p->max_inline;
        uint32_t imm = (uint32_t)tx->inl_len << VERBS_IMM_INLINE | ((c->tx_seq + (uint32_t)k->n) & VERBS_SEQ_MASK);
        int n = 0;

        if (tx->inl_len != 0)
                describe_inline(p, tx, p->posted + (uint32_t)k->n, now, &sge[n++]);
        if (tx->frame != 0)
                sge[n++] = piece(p, tx->off, tx->len);
        for (int i = 0; i < tx->nmore && tx->frame != 0; i++)
                sge[n++] = piece(p, tx->more[i].off, tx->more[i].len);
        *wr = (struct ibv_send_wr){
                .wr_id = p->posted + (uint32_t)k->n + 1,
                .next = wr + 1,
                .sg_list = sge,
                .num_sge = n,
                .opcode = IBV_WR_SEND_WITH_IMM,
                .send_flags = now ? IBV_SEND_INLINE : 0,
                .imm_data = be32_of(imm).raw,
                .wr.ud = {.ah = c->host->ah, .remote_qpn = c->peer.qpn, .remote_qkey = c->peer.qkey},
        };
        k->n++;
}

/* Ends the chain and asks for a completion where one is due. */
static void finish(struct verbs_port *p, struct chain *k)
{
        struct ibv_send_wr *last = &k->wr[k->n - 1];
        bool frames = p->frames_unsignalled;

        last->next = NULL;
        for (int i = 0; i < k->n; i++)
                frames |= !(k->wr[i].send_flags & IBV_SEND_INLINE);
        if (frames || p->unsignalled + (uint32_t)k->n >= VERBS_SIGNAL_EVERY)
                last->send_flags |= IBV_SEND_SIGNALED;
}

/* One doorbell. Returns how many the device took. */
static int ring(struct verbs_port *p, struct chain *k)
{
        struct ibv_send_wr *bad = NULL;
        int taken = k->n;

        count(p->cnt, COUNT_NI_BELLS);
        if (unlikely(ibv_post_send(p->qp, k->wr, &bad) != 0))
                taken = bad != NULL ? (int)(bad - k->wr) : 0;
        return taken;
}

static void note(struct verbs_chan *c, const struct ibv_send_wr *wr, uint32_t frame)
{
        struct verbs_port *p = c->port;
        struct verbs_slot *s = &p->slot[p->posted++ % VERBS_SEND_DEPTH];
        bool now = wr->send_flags & IBV_SEND_INLINE;

        *s = (struct verbs_slot){c, now ? 0 : frame};
        c->named += frame != 0;
        if (now && frame != 0)
                c->done[c->done_prod++ % VERBS_NAMES] = frame;
        if (wr->send_flags & IBV_SEND_SIGNALED) {
                p->unsignalled = 0;
                p->frames_unsignalled = false;
        } else {
                p->unsignalled++;
                p->frames_unsignalled |= !now;
        }
        c->tx_seq = (c->tx_seq + 1) & VERBS_SEQ_MASK;
}

/* Places in the send queue, at most n. */
static int room_for(struct verbs_port *p, int n)
{
        if (verbs_port_room(p) < (uint32_t)n)
                verbs_poll_sends(p);
        return (int)MIN((uint32_t)n, verbs_port_room(p));
}

/* How many of n can be sent: frames that were not reaped are in the way of others. */
static int sendable(const struct verbs_chan *c, const struct unet_tx *tx, int n)
{
        uint32_t names = VERBS_NAMES - c->named;
        int i;

        for (i = 0; i < n && (tx[i].frame == 0 || names > 0); i++)
                names -= tx[i].frame != 0;
        return i;
}

static int send_chain(struct verbs_chan *c, const struct unet_tx *tx, int n)
{
        struct verbs_port *p = c->port;
        struct chain k;
        int taken;

        k.n = 0;
        n = sendable(c, tx, room_for(p, n));
        if (n == 0)
                return 0;
        while (k.n < n)
                describe(c, &k, &tx[k.n]);
        finish(p, &k);
        taken = ring(p, &k);
        for (int i = 0; i < taken; i++) {
                note(c, &k.wr[i], tx[i].frame);
                count_add(p->cnt, COUNT_NI_TX_BYTES, unet_tx_bytes(&tx[i]));
        }
        count_add(p->cnt, COUNT_NI_TX_MSGS, (uint64_t)taken);
        return taken;
}

/* A port that was down may be up again, which somebody who never sleeps learns here. */
static int verbs_send(struct unet_chan *ch, const struct unet_tx *tx, int n)
{
        struct verbs_chan *c = verbs(ch);
        int sent = 0, want, got = 0;

        if (unlikely(c->port->down))
                verbs_port_events(c->port);
        do {
                want = MIN(n - sent, VERBS_CHAIN);
                got = want > 0 ? send_chain(c, tx + sent, want) : 0;
                sent += got;
        } while (got == want && got > 0);
        if (sent < n)
                count(c->port->cnt, COUNT_NI_TX_FULL);
        return sent;
}

static int verbs_reap(struct unet_chan *ch, uint32_t *frame, int n)
{
        struct verbs_chan *c = verbs(ch);
        int got = 0;

        verbs_poll_sends(c->port);
        for (; got < n && c->done_cons != c->done_prod; got++)
                frame[got] = c->done[c->done_cons++ % VERBS_NAMES];
        c->named -= (uint32_t)got;
        return got;
}

static uint32_t verbs_room(struct unet_chan *ch)
{
        return (uint32_t)room_for(verbs(ch)->port, VERBS_SEND_DEPTH);
}

/* ---- receiving ---- */

static uint32_t take_first(struct verbs_chan *c)
{
        uint32_t number = c->first;

        c->first = c->port->buf[number].next;
        if (c->first == 0)
                c->last = 0;
        return number;
}

static void give(struct verbs_chan *c, uint32_t number, struct unet_rx *rx)
{
        struct verbs_port *p = c->port;
        struct verbs_buf *b = &p->buf[number];
        const uint8_t *payload = verbs_buf_at(p, number) + VERBS_HEADROOM;

        rx->nmore = 0;
        rx->inl_len = b->inl_len;
        memcpy(rx->inl, payload, b->inl_len);
        rx->len = b->len - b->inl_len;
        rx->off = (uint32_t)(payload + b->inl_len - p->pool);
        rx->frame = rx->len != 0 ? number : 0;
        b->state = VERBS_LENT;
        if (rx->len == 0)
                verbs_buf_free(p, number);
}

static int verbs_recv(struct unet_chan *ch, struct unet_rx *rx, int n)
{
        struct verbs_chan *c = verbs(ch);
        uint64_t bytes = 0;
        int got = 0;

        if (c->first == 0)
                verbs_poll_receives(c->port);
        for (; got < n && c->first != 0; got++) {
                give(c, take_first(c), &rx[got]);
                bytes += rx[got].inl_len + rx[got].len;
        }
        count_add(c->port->cnt, COUNT_NI_RX_MSGS, (uint64_t)got);
        count_add(c->port->cnt, COUNT_NI_RX_BYTES, bytes);
        return got;
}

static void verbs_release(struct unet_chan *ch, const uint32_t *frame, int n)
{
        struct verbs_port *p = verbs(ch)->port;

        for (int i = 0; i < n; i++)
                if (frame[i] <= p->nbufs && p->buf[frame[i]].state == VERBS_LENT)
                        verbs_buf_free(p, frame[i]);
                else
                        count(p->cnt, COUNT_NI_BAD_RETURN);
}

static bool verbs_pending(struct unet_chan *ch)
{
        struct verbs_chan *c = verbs(ch);

        if (c->first == 0)
                verbs_poll_receives(c->port);
        verbs_poll_sends(c->port);
        return c->first != 0 || c->done_cons != c->done_prod;
}

static void verbs_want_room(struct unet_chan *ch, bool on)
{
        struct verbs_chan *c = verbs(ch);

        if (c->want_room == on)
                return;
        c->want_room = on;
        if (on)
                c->port->nwant_room++;
        else
                c->port->nwant_room--;
}

/* The doorbell was rung by verbs_send(). */
static void verbs_flush(struct unet_chan *ch)
{
        verbs_repost(verbs(ch)->port);
}

const struct unet_ni_ops verbs_ni_ops = {
        .name = "verbs",
        .send = verbs_send,
        .recv = verbs_recv,
        .release = verbs_release,
        .reap = verbs_reap,
        .room = verbs_room,
        .pending = verbs_pending,
        .want_room = verbs_want_room,
        .flush = verbs_flush,
};

/* ---- as a link ---- */

static bool gone(struct unet_chan *ch)
{
        return verbs(ch)->ended || verbs(ch)->port->dead;
}

static bool arm(struct unet_chan *ch)
{
        verbs_port_arm(verbs(ch)->port);
        return false;
}

/* It may run anywhere: spin. */
static uint32_t peer_cpu(struct unet_chan *ch)
{
        (void)ch;
        return UINT32_MAX;
}

static nstime clock_now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static void wait_for(struct verbs_port *p, bool (*true_of)(const struct verbs_port *, uint32_t), uint32_t arg)
{
        const struct timespec nap = {0, GOODBYE_NAP};
        nstime end = clock_now() + GOODBYE_NS;

        for (verbs_poll_sends(p); !p->dead && !p->down && !true_of(p, arg); verbs_poll_sends(p)) {
                if (clock_now() > end)
                        return;
                nanosleep(&nap, NULL);
        }
}

static bool has_room(const struct verbs_port *p, uint32_t unused)
{
        (void)unused;
        return p->posted - p->retired < VERBS_SEND_DEPTH;
}

static bool is_retired(const struct verbs_port *p, uint32_t upto)
{
        return (int32_t)(p->retired - upto) >= 0;
}

/* END goes out after everything else, and its completion says that all of it has left. */
static void say_goodbye(struct verbs_chan *c)
{
        struct verbs_port *p = c->port;
        struct ibv_send_wr *bad, wr = {
                .wr_id = p->posted + 1,
                .opcode = IBV_WR_SEND_WITH_IMM,
                .send_flags = IBV_SEND_SIGNALED,
                .imm_data = be32_of(VERBS_IMM_END | c->tx_seq).raw,
                .wr.ud = {.ah = c->host->ah, .remote_qpn = c->peer.qpn, .remote_qkey = c->peer.qkey},
        };

        wait_for(p, has_room, 0);
        if (!p->dead && !p->down && has_room(p, 0) && ibv_post_send(p->qp, &wr, &bad) == 0) {
                note(c, &wr, 0);
                wait_for(p, is_retired, p->posted);
        }
}

static void free_chan(struct verbs_chan *c, bool forget)
{
        verbs_want_room(&c->base, false);
        verbs_source_remove(c->port, c);
        verbs_host_put(c->port, c->host, forget);
        free(c);
}

void verbs_chan_abort(struct verbs_chan *c)
{
        free_chan(c, false);
}

static void close_link(struct unet_chan *ch, bool forget)
{
        struct verbs_chan *c = verbs(ch);
        struct verbs_port *p = c->port;

        if (!forget) {
                if (!c->ended)
                        say_goodbye(c);
                shutdown(c->sock, SHUT_RDWR);
        }
        close(c->sock);
        free_chan(c, forget);
        if (p->nchans == 0)
                verbs_port_close(p, forget);
}

static const struct link_ops ops = {.gone = gone, .arm = arm, .peer_cpu = peer_cpu, .close = close_link};

struct link verbs_chan_link(struct verbs_chan *c, int sock)
{
        c->sock = sock;
        return (struct link){.ops = &ops,
                             .ch = &c->base,
                             .rx_mem = unet_mem_flat(c->port->pool, (size_t)c->port->nbufs * c->port->stride),
                             .port = c->port,
                             .sock = sock};
}

/* ---- opening ---- */

int verbs_chan_open(struct verbs_port *p, const struct verbs_peer *peer, uint32_t mtu, struct verbs_chan **out)
{
        struct verbs_chan *c = calloc(1, sizeof *c);
        int err;

        if (c == NULL)
                return -ENOMEM;
        *c = (struct verbs_chan){.port = p, .peer = *peer, .sock = -1};
        c->base.ops = &verbs_ni_ops;
        c->base.caps = (struct unet_caps){
                .mtu = MIN(mtu, p->dev.mtu), .inline_max = UNET_INLINE_MAX, .rto_min = 10 * NS_PER_MS};
        c->host = verbs_host_get(p, peer->addr);
        err = c->host != NULL ? verbs_source_add(p, c) : -errno;
        if (err == 0) {
                *out = c;
                return 0;
        }
        if (c->host != NULL)
                verbs_host_put(p, c->host, false);
        free(c);
        return err;
}
