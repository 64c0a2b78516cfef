/*
 * The verbs channel: sending and receiving.
 *
 *   verbs_send(): send_one() each -> the port's chain -> verbs_flush(): verbs_ring(), one doorbell
 *                 -> verbs_poll_sends()
 *   verbs_poll_receives() -> the channel's buffers -> verbs_recv() -> verbs_release()
 *           -> verbs_repost()
 *
 * What the device copies at the doorbell (inline) is injected then. Of the rest the last of a chain
 * asks for a completion, which retires all before it; chains of inline messages ask for none until
 * VERBS_SIGNAL_EVERY are without.
 */
#include "unet/verbs/verbs_chan.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define GOODBYE_NS  (1 * NS_PER_S) /* most that closing waits for what is still to be sent */
#define GOODBYE_NAP (50 * NS_PER_US)

static struct verbs_chan *verbs(struct unet_chan *ch)
{
        return (struct verbs_chan *)ch;
}

/* ---- sending ---- */

/* Copies the message's inline bytes to where the device reads them. The caller may change its own
 * when send returns, and the device may read later. */
static struct ibv_sge stage(const struct verbs_port *p, const struct unet_tx *tx)
{
        uint8_t *at = p->memory + p->posted % VERBS_SEND_DEPTH * VERBS_STAGE;

        memcpy(at, tx->inl, tx->inl_len);
        return (struct ibv_sge){
                .addr = (uintptr_t)at, .length = tx->inl_len, .lkey = p->memory_mr->lkey};
}

static struct ibv_sge piece(const struct verbs_port *p, uint32_t frame, uint32_t off, uint32_t len)
{
        return (struct ibv_sge){.addr = (uintptr_t)unet_mem_at(&p->tx, frame, off, len),
                                .length = len,
                                .lkey = p->tx_mr->lkey};
}

/* The next work request of the chain, with what all of a channel have in common; in place, and the
 * rest of it is never set. `sge` is the list of its pieces, and num_sge 0. */
static struct ibv_send_wr *work_request(const struct verbs_chan *c, uint32_t imm)
{
        struct verbs_chain *k = &c->port->chain;
        struct ibv_send_wr *wr = &k->wr[k->n];

        wr->wr_id = c->port->posted + 1;
        wr->next = wr + 1;
        wr->sg_list = k->sge[k->n];
        wr->num_sge = 0;
        wr->opcode = IBV_WR_SEND_WITH_IMM;
        wr->send_flags = 0;
        wr->imm_data = be32_of(imm).raw;
        wr->wr.ud.ah = c->host->ah;
        wr->wr.ud.remote_qpn = c->peer.qpn;
        wr->wr.ud.remote_qkey = c->peer.qkey;
        return wr;
}

/* It is whole: the next doorbell hands it over. */
static void chain(struct verbs_chan *c, uint32_t frame)
{
        struct verbs_port *p = c->port;

        p->chain.n++;
        p->slot[p->posted++ % VERBS_SEND_DEPTH] = (struct verbs_slot){c, frame};
        c->named += frame != 0;
        c->tx_seq = (c->tx_seq + 1) & VERBS_SEQ_MASK;
        if (p->chain.n == VERBS_CHAIN)
                verbs_ring(p);
}

static void send_one(struct verbs_chan *c, const struct unet_tx *tx)
{
        struct verbs_port *p = c->port;
        struct ibv_send_wr *wr =
                work_request(c, (uint32_t)tx->inl_len << VERBS_IMM_INLINE | c->tx_seq);
        struct ibv_sge *sge = wr->sg_list;

        if (tx->inl_len != 0)
                sge[wr->num_sge++] = stage(p, tx);
        if (tx->frame != 0)
                sge[wr->num_sge++] = piece(p, tx->frame, tx->off, tx->len);
        for (int i = 0; i < tx->nmore && tx->frame != 0; i++)
                sge[wr->num_sge++] = piece(p, tx->frame, tx->more[i].off, tx->more[i].len);
        wr->send_flags = unet_tx_bytes(tx) <= p->max_inline ? IBV_SEND_INLINE : 0;
        chain(c, tx->frame);
}

void verbs_chan_post(struct verbs_chan *c, uint32_t off, uint32_t len, uint32_t inl)
{
        struct verbs_port *p = c->port;
        struct ibv_send_wr *wr = work_request(c, inl << VERBS_IMM_INLINE | c->tx_seq);

        wr->sg_list[0] = piece(p, 0, off, len);
        wr->num_sge = 1;
        wr->send_flags = len <= p->max_inline ? IBV_SEND_INLINE : 0;
        chain(c, 0);
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

/* A port that was down may be up again, which somebody who never sleeps learns here. */
static int verbs_send(struct unet_chan *ch, const struct unet_tx *tx, int n)
{
        struct verbs_chan *c = verbs(ch);
        uint64_t bytes = 0;
        int sent;

        if (unlikely(c->port->down))
                verbs_port_events(c->port);
        sent = sendable(c, tx, room_for(c->port, n));
        for (int i = 0; i < sent; i++) {
                send_one(c, &tx[i]);
                bytes += unet_tx_bytes(&tx[i]);
        }
        if (sent < n)
                count(c->port->cnt, COUNT_NI_TX_FULL);
        count_add(c->port->cnt, COUNT_NI_TX_MSGS, (uint64_t)sent);
        count_add(c->port->cnt, COUNT_NI_TX_BYTES, bytes);
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
        uint32_t frame = p->per_frame != 0 ? verbs_frame_of(p, number) : 0;

        rx->nmore = 0;
        rx->inl_len = b->inl_len;
        memcpy(rx->inl, payload, b->inl_len);
        rx->len = b->len - b->inl_len;
        rx->off = (uint32_t)(payload + b->inl_len - p->pool -
                             (frame != 0 ? (size_t)(frame - 1) * FRAME_LARGE_BYTES : 0));
        rx->frame = 0;
        if (rx->len == 0) {
                verbs_buf_free(p, number);
                return;
        }
        rx->frame = frame != 0 ? frame : number;
        b->state = VERBS_LENT;
        if (frame != 0) {
                b->next = p->lent[frame].first;
                p->lent[frame].first = number;
                p->lent[frame].n++;
        }
}

static int verbs_recv(struct unet_chan *ch, struct unet_rx *rx, int n)
{
        struct verbs_chan *c = verbs(ch);
        uint64_t bytes = 0;
        int got = 0;

        if (c->first == 0)
                verbs_take_receives(c->port);
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
        verbs_give_back(verbs(ch)->port, frame, n);
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

static void verbs_flush(struct unet_chan *ch)
{
        verbs_ring(verbs(ch)->port);
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

static void wait_for(struct verbs_port *p, bool (*true_of)(const struct verbs_port *, uint32_t),
                     uint32_t arg)
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

        verbs_ring(p);
        wait_for(p, has_room, 0);
        if (p->dead || p->down || !has_room(p, 0))
                return;
        work_request(c, VERBS_IMM_END | c->tx_seq);
        chain(c, 0);
        p->awaited = true;
        verbs_ring(p);
        wait_for(p, is_retired, p->posted);
}

void verbs_chan_abort(struct verbs_chan *c)
{
        verbs_want_room(&c->base, false);
        verbs_source_remove(c->port, c);
        verbs_host_put(c->port, c->host);
        free(c);
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
        verbs_chan_abort(c);
        if (p->nchans == 0)
                verbs_port_close(p, forget);
}

static const struct link_ops ops = {
        .gone = gone, .arm = arm, .peer_cpu = peer_cpu, .close = close_link};

struct link verbs_chan_link(struct verbs_chan *c, int sock)
{
        c->sock = sock;
        return (struct link){.ops = &ops,
                             .ch = &c->base,
                             .rx_mem = verbs_rx_mem(c->port),
                             .port = c->port,
                             .sock = sock};
}

/* ---- opening ---- */

int verbs_chan_open(struct verbs_port *p, const struct verbs_peer *peer, uint32_t mtu,
                    struct verbs_chan **out)
{
        struct verbs_chan *c = calloc(1, sizeof *c);
        int err;

        if (c == NULL)
                return -ENOMEM;
        *c = (struct verbs_chan){.port = p, .peer = *peer, .sock = -1};
        c->base.ops = &verbs_ni_ops;
        c->base.caps = (struct unet_caps){.mtu = MIN(mtu, p->dev.mtu),
                                          .inline_max = UNET_INLINE_MAX,
                                          .rto_min = 10 * NS_PER_MS};
        c->host = verbs_host_get(p, peer->addr);
        err = c->host != NULL ? verbs_source_add(p, c) : -errno;
        if (err == 0) {
                *out = c;
                return 0;
        }
        if (c->host != NULL)
                verbs_host_put(p, c->host);
        free(c);
        return err;
}
