/* The queue pair of an endpoint: setting up, completions, events, repair. */
#include "unet/verbs/verbs_port.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define INLINE_WANTED 256u /* bytes that the device copies when they are posted; we take less */
/* What the station is told of our descriptors: no link's number. */
#define NO_KEY     UINT32_MAX
#define POLL_BATCH VERBS_PEEK
/* Sleeps that a completion ended, until what the device reports is looked at all the same. */
#define LOOK_AT_DEVICE 64u
#define IPV4_SOURCE    32u /* in the GRH area: 20 bytes of nothing, then the IPv4 header */
#define GRH_SOURCE     8u

/* ---- receive buffers ---- */

void verbs_buf_free(struct verbs_port *p, uint32_t number)
{
        struct verbs_buf *b = &p->buf[number];

        *b = (struct verbs_buf){.next = p->idle, .state = VERBS_IDLE};
        p->idle = number;
        p->nidle++;
}

/* A frame's messages were all released: its buffers are idle. */
static void free_frame(struct verbs_port *p, uint32_t frame)
{
        uint32_t next;

        for (uint32_t i = p->lent[frame].first; i != 0; i = next) {
                next = p->buf[i].next;
                verbs_buf_free(p, i);
        }
        p->lent[frame].first = 0;
}

/* False: there is no such loan. */
static bool give_back_one(struct verbs_port *p, uint32_t frame)
{
        if (p->per_frame == 0) {
                if (frame - 1 >= p->nbufs || p->buf[frame].state != VERBS_LENT)
                        return false;
                verbs_buf_free(p, frame);
                return true;
        }
        if (frame - 1 >= verbs_frame_of(p, p->nbufs) || p->lent[frame].n == 0)
                return false;
        if (--p->lent[frame].n == 0)
                free_frame(p, frame);
        return true;
}

void verbs_give_back(struct verbs_port *p, const uint32_t *frame, int n)
{
        for (int i = 0; i < n; i++)
                if (!give_back_one(p, frame[i]))
                        count(p->cnt, COUNT_NI_BAD_RETURN);
}

struct unet_mem verbs_rx_mem(const struct verbs_port *p)
{
        if (p->per_frame == 0)
                return unet_mem_flat(p->pool, (size_t)p->nbufs * p->stride);
        return unet_mem_frames(p->pool,
                               (struct frame_geom){{[FRAME_LARGE] = verbs_frame_of(p, p->nbufs)}});
}

/* Posts up to VERBS_REPOST buffers; returns how many, 0 also when the device does not take them. */
static uint32_t post_some(struct verbs_port *p)
{
        struct ibv_recv_wr wr[VERBS_REPOST], *bad = NULL;
        struct ibv_sge sge[VERBS_REPOST];
        uint32_t n = 0, number;

        for (number = p->idle; number != 0 && n < VERBS_REPOST; number = p->buf[number].next, n++) {
                sge[n] = (struct ibv_sge){
                        .addr = (uintptr_t)verbs_buf_at(p, number) + VERBS_HEADROOM - VERBS_GRH,
                        .length = VERBS_GRH + p->dev.mtu,
                        .lkey = p->pool_mr->lkey,
                };
                wr[n] = (struct ibv_recv_wr){
                        .wr_id = number, .next = &wr[n + 1], .sg_list = &sge[n], .num_sge = 1};
        }
        if (n == 0)
                return 0;
        wr[n - 1].next = NULL;
        if (ibv_post_recv(p->qp, wr, &bad) != 0) {
                n = bad != NULL ? (uint32_t)(bad - wr) : 0;
                p->broken = true;
        }
        for (uint32_t i = 0; i < n; i++) {
                number = p->idle;
                p->idle = p->buf[number].next;
                p->buf[number].state = VERBS_POSTED;
        }
        p->nidle -= n;
        return n;
}

void verbs_repost(struct verbs_port *p)
{
        while (p->nidle >= p->repost_at && !p->broken && !p->dead)
                post_some(p);
}

/* ---- peers ---- */

static uint32_t source_hash(ip_addr addr, uint32_t qpn)
{
        uint64_t h = (addr.w[0] ^ addr.w[1] ^ qpn) * 0x9e3779b97f4a7c15u;

        return (uint32_t)(h >> 32) % VERBS_SOURCES;
}

static struct verbs_chan **source_find(struct verbs_port *p, ip_addr addr, uint32_t qpn)
{
        struct verbs_chan **at = &p->source[source_hash(addr, qpn)];

        while (*at != NULL && ((*at)->peer.qpn != qpn || !ip_addr_eq((*at)->peer.addr, addr)))
                at = &(*at)->next;
        return at;
}

int verbs_source_add(struct verbs_port *p, struct verbs_chan *c)
{
        struct verbs_chan **at = source_find(p, c->peer.addr, c->peer.qpn);

        if (*at != NULL)
                return -EEXIST;
        *at = c;
        p->nchans++;
        return 0;
}

void verbs_source_remove(struct verbs_port *p, struct verbs_chan *c)
{
        *source_find(p, c->peer.addr, c->peer.qpn) = c->next;
        p->nchans--;
        for (uint32_t i = 1; i <= p->nbufs; i++)
                if (p->buf[i].ch == c && (p->buf[i].state == VERBS_WAITING || p->per_frame == 0))
                        verbs_buf_free(p, i);
        for (uint32_t i = 0; i < VERBS_SEND_DEPTH; i++)
                if (p->slot[i].ch == c)
                        p->slot[i].ch = NULL;
}

static struct ibv_ah *make_handle(struct verbs_port *p, ip_addr addr)
{
        struct ibv_ah_attr attr = {
                .grh = {.dgid = verbs_gid(addr), .sgid_index = p->dev.gid_index, .hop_limit = 64},
                .is_global = 1,
                .port_num = p->dev.port,
        };

        return ibv_create_ah(p->pd, &attr);
}

static struct verbs_host *new_host(struct verbs_port *p, ip_addr addr, struct ibv_ah *ah)
{
        struct verbs_host *h = ah != NULL ? calloc(1, sizeof *h) : NULL;

        if (h != NULL) {
                *h = (struct verbs_host){.next = p->hosts, .addr = addr, .ah = ah};
                p->hosts = h;
        }
        return h;
}

struct verbs_host *verbs_host_get(struct verbs_port *p, ip_addr addr)
{
        struct verbs_host *h = p->hosts;

        while (h != NULL && (h->stale || !ip_addr_eq(h->addr, addr)))
                h = h->next;
        if (h == NULL) {
                struct ibv_ah *ah = make_handle(p, addr);
                h = new_host(p, addr, ah);
                if (h == NULL && ah != NULL)
                        ibv_destroy_ah(ah);
                if (h == NULL)
                        return NULL;
        }
        h->users++;
        return h;
}

static void free_host(struct verbs_host **at, bool forget)
{
        struct verbs_host *h = *at;

        *at = h->next;
        if (!forget)
                ibv_destroy_ah(h->ah);
        free(h);
}

/* The device looks a handle up when it comes to a message, which may be long after it was posted:
 * without it the queue pair fails. */
static void end_handles(struct verbs_port *p)
{
        p->leaving = false;
        for (struct verbs_host **at = &p->hosts; *at != NULL;) {
                bool left = (*at)->users == 0;
                if (left && (int32_t)(p->retired - (*at)->upto) >= 0) {
                        free_host(at, false);
                        continue;
                }
                p->leaving |= left;
                at = &(*at)->next;
        }
}

void verbs_host_put(struct verbs_port *p, struct verbs_host *h)
{
        if (--h->users != 0)
                return;
        h->upto = p->posted;
        p->leaving = true;
}

/* Our own index among the port's addresses is in the handles. */
static void remake_handles(struct verbs_port *p)
{
        for (struct verbs_host *h = p->hosts, *old; h != NULL; h = h->next) {
                struct ibv_ah *ah;
                if (h->users == 0) {
                        h->stale = true;
                        continue;
                }
                ah = make_handle(p, h->addr);
                old = new_host(p, h->addr, ah);
                if (old == NULL && ah != NULL)
                        ibv_destroy_ah(ah);
                if (old == NULL)
                        continue;
                old->ah = h->ah;
                old->stale = true;
                old->upto = p->posted;
                h->ah = ah;
                p->leaving = true;
        }
}

/* ---- sends ---- */

static struct verbs_slot *slot_of(struct verbs_port *p, const struct ibv_send_wr *wr)
{
        return &p->slot[((uint32_t)wr->wr_id - 1) % VERBS_SEND_DEPTH];
}

/* Ends the chain and asks for a completion where one is due: for a frame, unless the device copies
 * it now, somebody waits; of the rest only the places have to come back. */
static void finish_chain(struct verbs_port *p)
{
        struct verbs_chain *k = &p->chain;
        struct ibv_send_wr *last = &k->wr[k->n - 1];

        last->next = NULL;
        for (int i = 0; i < k->n; i++)
                p->awaited |= !(k->wr[i].send_flags & IBV_SEND_INLINE) &&
                              slot_of(p, &k->wr[i])->frame != 0;
        p->unsignalled += (uint32_t)k->n;
        if (!p->awaited && p->unsignalled < VERBS_SIGNAL_EVERY)
                return;
        last->send_flags |= IBV_SEND_SIGNALED;
        p->signalled = (uint32_t)last->wr_id;
        p->unsignalled = 0;
        p->awaited = false;
}

/* What the device copied is injected. */
static void note_copied(struct verbs_port *p, const struct ibv_send_wr *wr)
{
        struct verbs_slot *s = slot_of(p, wr);

        if ((wr->send_flags & IBV_SEND_INLINE) && s->ch != NULL && s->frame != 0) {
                s->ch->done[s->ch->done_prod++ % VERBS_NAMES] = s->frame;
                s->frame = 0;
        }
}

/* What the device does not take is lost with everything else that is under way, in the repair. */
void verbs_ring(struct verbs_port *p)
{
        struct ibv_send_wr *bad = NULL;
        int n = p->chain.n;

        if (n == 0)
                return;
        finish_chain(p);
        p->chain.n = 0;
        count(p->cnt, COUNT_NI_BELLS);
        if (unlikely(p->dead || ibv_post_send(p->qp, p->chain.wr, &bad) != 0)) {
                p->broken = true;
                return;
        }
        for (int i = 0; i < n; i++)
                note_copied(p, &p->chain.wr[i]);
}

static void retire_upto(struct verbs_port *p, uint32_t end)
{
        for (; p->retired != end; p->retired++) {
                struct verbs_slot *s = &p->slot[p->retired % VERBS_SEND_DEPTH];
                if (s->ch != NULL && s->frame != 0)
                        s->ch->done[s->ch->done_prod++ % VERBS_NAMES] = s->frame;
                *s = (struct verbs_slot){NULL, 0};
        }
}

/* A batch of completions: those of a peek come first, and may be fewer than there are. */
static int fetch(struct ibv_cq *cq, const struct ibv_wc *peeked, int *npeeked,
                 struct ibv_wc wc[POLL_BATCH])
{
        int n = *npeeked, more;

        memcpy(wc, peeked, (size_t)n * sizeof *wc);
        *npeeked = 0;
        more = n < POLL_BATCH ? ibv_poll_cq(cq, POLL_BATCH - n, wc + n) : 0;
        return n + (more > 0 ? more : 0);
}

static void peek(struct ibv_cq *cq, struct ibv_wc wc[POLL_BATCH], int *n)
{
        int more = ibv_poll_cq(cq, POLL_BATCH, wc);

        *n = more > 0 ? more : 0;
}

bool verbs_port_peek(struct verbs_port *p)
{
        if (p->dead)
                return false;
        if (p->ncame == 0)
                peek(p->rcq, p->came, &p->ncame);
        if (p->nwent == 0 && verbs_sends_due(p))
                peek(p->scq, p->went, &p->nwent);
        return p->ncame + p->nwent > 0;
}

/* The device is believed: it is on our side of the seam. */
void verbs_poll_sends(struct verbs_port *p)
{
        struct ibv_wc wc[POLL_BATCH];
        int n = POLL_BATCH;

        while (verbs_sends_due(p) && n == POLL_BATCH && !p->dead) {
                n = fetch(p->scq, p->went, &p->nwent, wc);
                for (int i = 0; i < n; i++) {
                        if (unlikely(wc[i].status != IBV_WC_SUCCESS))
                                p->broken = true;
                        else
                                retire_upto(p, (uint32_t)wc[i].wr_id);
                }
        }
        if (unlikely(p->broken))
                verbs_port_repair(p);
        if (unlikely(p->leaving))
                end_handles(p);
}

uint32_t verbs_port_room(struct verbs_port *p)
{
        if (unlikely(p->down || p->dead))
                return 0;
        return VERBS_SEND_DEPTH - (p->posted - p->retired);
}

/* ---- messages that have come ---- */

static ip_addr source_of(const struct verbs_port *p, const uint8_t *grh)
{
        ip_addr a;
        be32 v4;

        if (ip_addr_is_v4(p->dev.addr)) {
                memcpy(&v4, grh + IPV4_SOURCE, sizeof v4);
                return ip_addr_v4(be32_get(v4));
        }
        memcpy(&a, grh + GRH_SOURCE, sizeof a);
        return a;
}

/* In the order they were sent, or not at all: what was overtaken is too late. */
static bool in_order(struct verbs_port *p, struct verbs_chan *c, uint32_t seq)
{
        uint32_t ahead = (seq - c->rx_seq) & VERBS_SEQ_MASK;

        if (c->unordered)
                return true;
        if (unlikely(ahead > VERBS_SEQ_MASK / 2))
                return false;
        count_add(p->cnt, COUNT_NI_MISSED, ahead);
        c->rx_seq = (seq + 1) & VERBS_SEQ_MASK;
        return true;
}

static void append(struct verbs_port *p, struct verbs_chan *c, uint32_t number)
{
        if (c->last != 0)
                p->buf[c->last].next = number;
        else
                c->first = number;
        c->last = number;
}

/* Puts a message in its channel's queue. */
static enum drop sort(struct verbs_port *p, const struct ibv_wc *wc, uint32_t number)
{
        const uint8_t *grh = verbs_buf_at(p, number) + VERBS_HEADROOM - VERBS_GRH;
        struct verbs_buf *b = &p->buf[number];
        struct verbs_chan *c;
        uint32_t imm, inl;

        if (!(wc->wc_flags & IBV_WC_GRH) || !(wc->wc_flags & IBV_WC_WITH_IMM) ||
            wc->byte_len < VERBS_GRH)
                return DROP_NI_MALFORMED;
        c = *source_find(p, source_of(p, grh), wc->src_qp);
        if (c == NULL)
                return DROP_NI_NO_CHANNEL;
        imm = be32_get((be32){wc->imm_data});
        if (!in_order(p, c, imm & VERBS_SEQ_MASK))
                return DROP_NI_LATE;
        inl = imm >> VERBS_IMM_INLINE & 0xff;
        b->len = wc->byte_len - VERBS_GRH;
        if (imm & VERBS_IMM_END) {
                c->ended = true;
                verbs_buf_free(p, number);
                return DROP_NONE;
        }
        if (b->len == 0 || inl > b->len || inl > UNET_INLINE_MAX || b->len > c->base.caps.mtu)
                return DROP_NI_MALFORMED;
        *b = (struct verbs_buf){.ch = c, .len = b->len, .inl_len = inl, .state = VERBS_WAITING};
        append(p, c, number);
        return DROP_NONE;
}

/* A batch of completions. */
static void sort_batch(struct verbs_port *p, const struct ibv_wc *wc, int n)
{
        for (int i = 0; i < n; i++) {
                uint32_t number = (uint32_t)wc[i].wr_id;
                enum drop why;

                if (unlikely(wc[i].status != IBV_WC_SUCCESS)) {
                        p->broken = true; /* flushed; the repair finds the buffer */
                        continue;
                }
                why = sort(p, &wc[i], number);
                if (unlikely(why != DROP_NONE)) {
                        count_drop(p->cnt, why);
                        verbs_buf_free(p, number);
                }
        }
}

static void after_receives(struct verbs_port *p, uint32_t seen)
{
        if (unlikely(p->broken))
                verbs_port_repair(p);
        if (seen > 0)
                verbs_repost(p);
}

/* As many as there can be, so that after arming none is left that made no event. */
void verbs_poll_receives(struct verbs_port *p)
{
        struct ibv_wc wc[POLL_BATCH];
        uint32_t seen = 0;
        int n = POLL_BATCH;

        for (; n == POLL_BATCH && seen < p->nbufs && !p->dead; seen += (uint32_t)MAX(n, 0)) {
                n = fetch(p->rcq, p->came, &p->ncame, wc);
                sort_batch(p, wc, n);
        }
        after_receives(p, seen);
}

void verbs_take_receives(struct verbs_port *p)
{
        int n = p->ncame;

        if (n == 0 || p->dead) {
                verbs_poll_receives(p);
                return;
        }
        p->ncame = 0;
        sort_batch(p, p->came, n);
        after_receives(p, (uint32_t)n);
}

/* ---- the queue pair ---- */

static int to_init(struct verbs_port *p)
{
        struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = p->dev.port, .qkey = p->qkey};

        return ibv_modify_qp(p->qp, &a,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
}

static int to_state(struct verbs_port *p, enum ibv_qp_state state)
{
        struct ibv_qp_attr a = {.qp_state = state};

        return ibv_modify_qp(p->qp, &a,
                             state == IBV_QPS_RTS ? IBV_QP_STATE | IBV_QP_SQ_PSN : IBV_QP_STATE);
}

/* From RESET to sending, with all idle buffers posted. */
static int start(struct verbs_port *p)
{
        int err = to_init(p);

        if (err == 0)
                err = to_state(p, IBV_QPS_RTR);
        if (err == 0)
                err = to_state(p, IBV_QPS_RTS);
        if (err != 0)
                return -err;
        while (p->nidle > 0 && post_some(p) > 0)
                ;
        return p->broken ? -EIO : 0;
}

static void lose_device(struct verbs_port *p)
{
        if (p->dead)
                return;
        p->dead = true;
        count(p->cnt, COUNT_NI_DEVICE_LOST);
        retire_upto(p, p->posted);
}

static void discard_completions(struct ibv_cq *cq)
{
        struct ibv_wc wc[POLL_BATCH];

        while (ibv_poll_cq(cq, POLL_BATCH, wc) > 0)
                ;
}

/* RESET takes all work requests away: what was under way counts as sent, what was posted
 * is idle. */
void verbs_port_repair(struct verbs_port *p)
{
        if (p->dead || to_state(p, IBV_QPS_RESET) != 0) {
                lose_device(p);
                return;
        }
        p->broken = false;
        count(p->cnt, COUNT_NI_REPAIRS);
        p->ncame = p->nwent = 0;
        discard_completions(p->scq);
        discard_completions(p->rcq);
        p->chain.n = 0;
        retire_upto(p, p->posted);
        p->unsignalled = 0;
        p->awaited = false;
        for (uint32_t i = 1; i <= p->nbufs; i++)
                if (p->buf[i].state == VERBS_POSTED)
                        verbs_buf_free(p, i);
        if (start(p) != 0)
                lose_device(p);
}

/* ---- events ---- */

static void look_at_port(struct verbs_port *p)
{
        uint8_t index = p->dev.gid_index;
        uint32_t mtu = p->dev.mtu; /* buffers and channels are made for it */
        bool down = verbs_dev_refresh(&p->dev) != 0;

        p->dev.mtu = mtu;
        if (p->dev.gid_index != index)
                remake_handles(p);
        if (down != p->down)
                count(p->cnt, down ? COUNT_NI_PORT_DOWN : COUNT_NI_PORT_UP);
        p->down = down;
}

static void heed(struct verbs_port *p, enum ibv_event_type type)
{
        switch (type) {
        case IBV_EVENT_PORT_ACTIVE:
        case IBV_EVENT_PORT_ERR:
        case IBV_EVENT_GID_CHANGE:
                look_at_port(p);
                break;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
                p->broken = true;
                break;
        case IBV_EVENT_DEVICE_FATAL:
        case IBV_EVENT_CQ_ERR:
                lose_device(p);
                break;
        default:
                break;
        }
}

void verbs_port_events(struct verbs_port *p)
{
        struct ibv_async_event e;

        while (!p->dead && ibv_get_async_event(p->dev.ctx, &e) == 0) {
                ibv_ack_async_event(&e);
                heed(p, e.event_type);
        }
}

/* An event that came since the last look. One that stays behind it ends the sleep at once, and is
 * taken then. */
static bool take_event(struct verbs_port *p)
{
        struct ibv_cq *cq;
        void *ctx;

        if (ibv_get_cq_event(p->events, &cq, &ctx) != 0)
                return false;
        ibv_ack_cq_events(cq, 1);
        if (cq == p->rcq)
                p->rcq_armed = false;
        else
                p->scq_armed = false;
        return true;
}

static void ask_for_event(struct ibv_cq *cq, bool *armed)
{
        if (!*armed)
                *armed = ibv_req_notify_cq(cq, 0) == 0;
}

/* A poll after this misses nothing: it finds what came before, and what comes later makes an event.
 * A queue that was asked and made none still will. That there is no event the device says by errno,
 * which is the program's. */
void verbs_port_arm(struct verbs_port *p)
{
        int saved = errno;

        if (p->dead)
                return;
        if (!take_event(p) || ++p->arms % LOOK_AT_DEVICE == 0)
                verbs_port_events(p);
        errno = saved;
        if (p->dead)
                return;
        ask_for_event(p->rcq, &p->rcq_armed);
        if (p->nwant_room != 0)
                ask_for_event(p->scq, &p->scq_armed);
}

/* ---- opening and closing ---- */

static int never_block(int fd)
{
        int flags = fcntl(fd, F_GETFL);

        return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 ? 0 : -errno;
}

/* The library's descriptors, like ours, are not to be where the application expects its own. */
static int raise_fd(int *fd, int high)
{
        int raised = high != 0 && *fd < high ? fcntl(*fd, F_DUPFD_CLOEXEC, high) : *fd;

        if (raised < 0)
                return -errno;
        if (raised != *fd)
                close(*fd);
        *fd = raised;
        return 0;
}

static int make_queues(struct verbs_port *p)
{
        struct ibv_qp_init_attr init = {
                .qp_type = IBV_QPT_UD,
                .cap = {.max_send_wr = VERBS_SEND_DEPTH,
                        .max_recv_wr = p->nbufs,
                        .max_send_sge = VERBS_SGES,
                        .max_recv_sge = 1,
                        .max_inline_data = INLINE_WANTED},
        };

        p->events = ibv_create_comp_channel(p->dev.ctx);
        if (p->events == NULL)
                return -errno;
        p->scq = ibv_create_cq(p->dev.ctx, VERBS_SEND_DEPTH, NULL, p->events, 0);
        p->rcq = ibv_create_cq(p->dev.ctx, (int)p->nbufs, NULL, p->events, 0);
        if (p->scq == NULL || p->rcq == NULL)
                return -errno;
        init.send_cq = p->scq;
        init.recv_cq = p->rcq;
        p->qp = ibv_create_qp(p->pd, &init);
        if (p->qp == NULL) { /* it may have no inline data at all */
                init.cap.max_inline_data = 0;
                p->qp = ibv_create_qp(p->pd, &init);
        }
        if (p->qp == NULL)
                return -errno;
        p->max_inline = init.cap.max_inline_data;
        return 0;
}

/* Shared: pages that a fork would have to copy are never the device's. */
static int make_memory(struct verbs_port *p, const struct verbs_setup *s)
{
        size_t staging = VERBS_SEND_DEPTH * VERBS_STAGE, pool = verbs_rx_mem(p).bytes;

        p->memory_bytes = staging + (s->rx_bytes != 0 ? 0 : pool);
        p->memory = mmap(NULL, p->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                         -1, 0);
        if (p->memory == MAP_FAILED) {
                p->memory = NULL;
                return -ENOMEM;
        }
        p->memory_mr = ibv_reg_mr(p->pd, p->memory, p->memory_bytes, IBV_ACCESS_LOCAL_WRITE);
        p->tx_mr = ibv_reg_mr(p->pd, p->tx.base, p->tx.bytes + s->rx_bytes, IBV_ACCESS_LOCAL_WRITE);
        if (p->memory_mr == NULL || p->tx_mr == NULL)
                return -errno;
        p->pool = s->rx_bytes != 0 ? p->tx.base + p->tx.bytes : p->memory + staging;
        p->pool_mr = s->rx_bytes != 0 ? p->tx_mr : p->memory_mr;
        return 0;
}

static int cut_pool(struct verbs_port *p, const struct verbs_setup *s)
{
        uint32_t most = (uint32_t)MIN(p->dev.attr.max_qp_wr, p->dev.attr.max_cqe), n;

        p->stride = VERBS_HEADROOM + (p->dev.mtu + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
        p->per_frame = s->frames ? FRAME_LARGE_BYTES / p->stride : 0;
        n = MIN(MAX(s->buffers, VERBS_BUFFERS_MIN), MIN(VERBS_BUFFERS_MAX, most));
        if (s->rx_bytes != 0)
                n = (uint32_t)MIN(n, s->rx_bytes / p->stride);
        if (n == 0)
                return -EINVAL;
        p->nbufs = n;
        p->repost_at = MIN(VERBS_REPOST, MAX(n / 4, 1u));
        p->buf = calloc(n + 1, sizeof *p->buf);
        p->lent = calloc(n + 1, sizeof *p->lent);
        if (p->buf == NULL || p->lent == NULL)
                return -ENOMEM;
        while (n > 0)
                verbs_buf_free(p, n--);
        return 0;
}

/* Bit 31 would make it a privileged one. */
static int draw_qkey(uint32_t *qkey)
{
        if (getrandom(qkey, sizeof *qkey, 0) != sizeof *qkey)
                return -errno;
        *qkey &= INT32_MAX;
        return 0;
}

static int watch(struct verbs_port *p)
{
        int err = never_block(p->events->fd);

        if (err == 0)
                err = never_block(p->dev.ctx->async_fd);
        if (p->st == NULL)
                return err;
        if (err == 0)
                err = station_watch(p->st, p->events->fd, NO_KEY);
        if (err == 0)
                err = station_watch(p->st, p->dev.ctx->async_fd, NO_KEY);
        return err;
}

int verbs_port_open(ip_addr addr, const struct verbs_setup *s, struct verbs_port **out)
{
        struct verbs_port *p = calloc(1, sizeof *p);
        int err;

        if (p == NULL)
                return -ENOMEM;
        p->st = s->st;
        p->cnt = s->cnt;
        p->tx = s->tx;
        err = verbs_dev_open(addr, &p->dev);
        if (err != 0) {
                free(p);
                return err;
        }
        if (p->dev.attr.max_sge < (int)VERBS_SGES ||
            p->dev.attr.max_qp_wr < (int)VERBS_SEND_DEPTH ||
            p->dev.attr.max_cqe < (int)VERBS_SEND_DEPTH)
                err = -EOPNOTSUPP;
        if (err == 0)
                err = raise_fd(&p->dev.ctx->cmd_fd, s->fd_high);
        if (err == 0)
                err = raise_fd(&p->dev.ctx->async_fd, s->fd_high);
        if (err == 0)
                err = draw_qkey(&p->qkey);
        if (err == 0) {
                p->pd = ibv_alloc_pd(p->dev.ctx);
                err = p->pd != NULL ? cut_pool(p, s) : -errno;
        }
        if (err == 0)
                err = make_memory(p, s);
        if (err == 0)
                err = make_queues(p);
        if (err == 0)
                err = raise_fd(&p->events->fd, s->fd_high);
        if (err == 0)
                err = start(p);
        if (err == 0)
                err = watch(p);
        if (err != 0)
                verbs_port_close(p, false);
        else
                *out = p;
        return err;
}

static void free_objects(struct verbs_port *p)
{
        if (p->qp != NULL)
                ibv_destroy_qp(p->qp);
        while (p->hosts != NULL)
                free_host(&p->hosts, false);
        if (p->scq != NULL)
                ibv_destroy_cq(p->scq);
        if (p->rcq != NULL)
                ibv_destroy_cq(p->rcq);
        if (p->tx_mr != NULL)
                ibv_dereg_mr(p->tx_mr);
        if (p->memory_mr != NULL)
                ibv_dereg_mr(p->memory_mr);
        if (p->events != NULL)
                ibv_destroy_comp_channel(p->events);
        if (p->pd != NULL)
                ibv_dealloc_pd(p->pd);
}

/* Objects are the other process's when `forget`; what libibverbs remembers of them here is left
 * to it. */
void verbs_port_close(struct verbs_port *p, bool forget)
{
        assert(p->nchans == 0);
        if (forget) {
                if (p->events != NULL)
                        close(p->events->fd);
                while (p->hosts != NULL)
                        free_host(&p->hosts, true);
        } else {
                if (p->st != NULL && p->events != NULL)
                        station_unwatch(p->st, p->events->fd);
                if (p->st != NULL)
                        station_unwatch(p->st, p->dev.ctx->async_fd);
                free_objects(p);
        }
        verbs_dev_close(&p->dev);
        if (p->memory != NULL)
                munmap(p->memory, p->memory_bytes);
        free(p->buf);
        free(p->lent);
        free(p);
}
