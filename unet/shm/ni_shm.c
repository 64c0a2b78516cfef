/* Provider `shm`, the protocol stack's side. See shm_ring.h for what lies in memory and who may
 * write it. */
#include "unet/shm/ni_shm.h"

#include "unet/bell_fd.h"

static struct shm_chan *shm(struct unet_chan *ch)
{
        return (struct shm_chan *)ch;
}

static uint32_t shm_room(struct unet_chan *ch)
{
        struct shm_chan *c = shm(ch);

        return shm_tx_room(&READ_ONCE(c->sh)->pos, READ_ONCE(c->peer));
}

static int shm_send(struct unet_chan *ch, const struct unet_tx *tx, int n)
{
        struct shm_chan *c = shm(ch);
        uint32_t room = shm_tx_room(&c->sh->pos, c->peer);
        uint64_t bytes = 0;
        int i;

        if (!c->sent)
                c->quiet_before = atomic_load_explicit(&c->peer->ctrl.quiet, memory_order_acquire);
        for (i = 0; i < n && room > 0; i++, room--) {
                assert(tx[i].inl_len <= SHM_INLINE_MAX);
                shm_claim_ahead(&c->sh->pos, c->mine, tx[i].inl_len);
                shm_tx_push(&c->sh->pos, c->mine, &tx[i]);
                bytes += tx[i].inl_len + tx[i].len;
        }
        if (i < n)
                count(c->cnt, COUNT_NI_TX_FULL);
        if (i > 0) {
                count_add(c->cnt, COUNT_NI_TX_MSGS, (uint64_t)i);
                count_add(c->cnt, COUNT_NI_TX_BYTES, bytes);
                c->sent = true;
        }
        return i;
}

/* Returns true if it is a name, and makes it one here (frame.h). */
static __attribute__((noinline)) bool take_name(const struct shm_chan *c, struct unet_rx *rx)
{
        if (!c->names || !frame_name_holds(c->sh->rx_geom, rx->frame, rx->off, rx->len))
                return false;
        rx->frame |= FRAME_NAMED;
        return true;
}

static bool shm_pull_checked(struct shm_chan *c, struct unet_rx *rx)
{
        if (!shm_rx_pull(&c->sh->pos, c->peer, rx)) {
                count_drop(c->cnt, DROP_NI_MALFORMED);
                return false;
        }
        if (rx->frame != 0 && !frame_geom_holds(c->sh->rx_geom, rx->frame, rx->off, rx->len) &&
            !take_name(c, rx)) {
                count_drop(c->cnt, DROP_NI_BAD_FRAME);
                return false;
        }
        return true;
}

/* A peer that fills the ring with rubbish as fast as it is read holds us up for one round of the
 * ring, no longer. */
static int shm_recv(struct unet_chan *ch, struct unet_rx *rx, int n)
{
        struct shm_chan *c = shm(ch);
        struct shm_pos *pos = &c->sh->pos;
        uint32_t start = pos->rx_cons;
        uint64_t bytes = 0;
        /* The next batch is there too. */
        bool more = n >= 4 && shm_rx_backlog(pos, c->peer, 2 * (uint32_t)n);
        int got = 0;

        while (got < n && pos->rx_cons - start < SHM_SLOTS && shm_rx_ready(pos, c->peer)) {
                if (more)
                        shm_prefetch_ahead(pos, c->peer, (uint32_t)n);
                if (!shm_pull_checked(c, &rx[got]))
                        continue;
                bytes += rx[got].inl_len + rx[got].len;
                got++;
        }
        if (pos->rx_cons != start) {
                if (shm_rx_unpublished(pos, c->mine) >= SHM_PUBLISH_EVERY)
                        shm_rx_publish(pos, c->mine);
                count_add(c->cnt, COUNT_NI_RX_MSGS, (uint64_t)got);
                count_add(c->cnt, COUNT_NI_RX_BYTES, bytes);
                c->gave = true;
        }
        return got;
}

static void shm_release(struct unet_chan *ch, const uint32_t *frame, int n)
{
        struct shm_chan *c = shm(ch);

        for (int i = 0; i < n; i++)
                shm_ret_push(&c->sh->pos, c->mine, frame[i]);
        c->gave = true;
}

static int shm_reap(struct unet_chan *ch, uint32_t *frame, int n)
{
        struct shm_chan *c = shm(ch);
        int got = 0;

        while (got < n && shm_ret_ready(&c->sh->pos, c->peer))
                frame[got++] = shm_ret_pull(&c->sh->pos, c->peer);
        return got;
}

static bool shm_pending(struct unet_chan *ch)
{
        struct shm_chan *c = shm(ch);
        /* Another channel may just be taking the place of this one. */
        struct shm_shared *sh = READ_ONCE(c->sh);
        const struct shm_region *peer = READ_ONCE(c->peer);

        return shm_rx_ready(&sh->pos, peer) || shm_ret_ready(&sh->pos, peer);
}

static void ring(struct shm_chan *c, int fd)
{
        struct shm_late *late = c->late;

        count(c->cnt, COUNT_NI_BELLS);
        if (late != NULL && late->n < SHM_LATE_MAX) {
                late->chan[late->n] = c;
                late->fd[late->n++] = fd;
        } else if (!bell_ring(fd) && late != NULL) {
                shm_chan_unheard(c);
                late->unheard = true;
        }
}

/* Whether the peer sleeps until we make room, and there is enough to be worth waking it: it is told
 * of all there is. */
static bool wants_room(struct shm_chan *c)
{
        if (likely(!atomic_load_explicit(&c->peer->ctrl.want_room, memory_order_relaxed)))
                return false;
        if (shm_rx_backlog(&c->sh->pos, c->peer, SHM_SLOTS / 2))
                return false;
        if (shm_rx_unpublished(&c->sh->pos, c->mine) != 0) {
                shm_rx_publish(&c->sh->pos, c->mine);
                atomic_thread_fence(memory_order_seq_cst);
        }
        return true;
}

/* Nobody looks at our ring: its keeper finds what came. The keeper may be stopped: so does who
 * leads, or the next one who does, whom the ring does not let sleep. What was sent before the
 * channel became quiet may have been taken before: nobody finds it, and the next message has to
 * ring again. */
static __attribute__((noinline)) void ring_quiet(struct shm_chan *c, uint32_t quiet)
{
        if (c->quiet_before == quiet)
                c->sh->quiet_rung = quiet;
        ring(c, c->keeper_fd);
        ring(c, c->leader_fd | BELL_QUIET);
}

static void shm_flush(struct unet_chan *ch)
{
        struct shm_chan *c = shm(ch);
        uint32_t word, quiet;
        bool room;

        if (!c->sent && !c->gave)
                return;
        atomic_thread_fence(memory_order_seq_cst); /* (b) of bell.h */
        room = c->gave && wants_room(c);
        word = atomic_load_explicit(&c->bell->word, memory_order_relaxed);
        if (unlikely(bell_mode(word) != BELL_POLLED) && word != c->sh->rung && (c->sent || room)) {
                c->sh->rung = word;
                ring(c, bell_mode(word) == BELL_ASLEEP ? c->leader_fd : c->keeper_fd);
        }
        quiet = atomic_load_explicit(&c->peer->ctrl.quiet, memory_order_acquire);
        if (unlikely(quiet != c->sh->quiet_rung) && c->sent)
                ring_quiet(c, quiet);
        c->sent = c->gave = false;
}

void shm_chan_ring_again(struct shm_chan *c)
{
        c->sh->rung = c->sh->quiet_rung = c->quiet_before = 0;
        c->sent = c->gave = true;
}

void shm_chan_unheard(struct shm_chan *c)
{
        c->sh->rung = SHM_UNHEARD;
}

static void repair(struct unet_chan *ch)
{
        struct shm_chan *c = shm(ch);

        shm_repair(&c->sh->pos, c->mine);
        shm_chan_ring_again(c);
}

static void shm_quiet(struct unet_chan *ch)
{
        struct shm_ctrl *ctrl = &shm(ch)->mine->ctrl;
        uint32_t n = atomic_load_explicit(&ctrl->quiet, memory_order_relaxed);

        atomic_store_explicit(&ctrl->quiet, n + 1, memory_order_release);
        atomic_thread_fence(memory_order_seq_cst);
}

static void shm_want_room(struct unet_chan *ch, bool on)
{
        struct shm_chan *c = shm(ch);

        if (atomic_load_explicit(&c->mine->ctrl.want_room, memory_order_relaxed) != on)
                atomic_store_explicit(&c->mine->ctrl.want_room, on, memory_order_relaxed);
}

static const struct unet_ni_ops shm_ni_ops = {
        .name = "shm",
        .send = shm_send,
        .recv = shm_recv,
        .release = shm_release,
        .reap = shm_reap,
        .room = shm_room,
        .pending = shm_pending,
        .want_room = shm_want_room,
        .quiet = shm_quiet,
        .flush = shm_flush,
        .repair = repair,
};

void shm_chan_init(struct shm_chan *c, struct shm_shared *sh, struct counters *cnt)
{
        assert(sh != NULL && cnt != NULL);
        WRITE_ONCE(c->base.ops, &shm_ni_ops);
        c->base.promises = &shm_promise_ops;
        c->base.caps = (struct unet_caps){
                .mtu = SHM_MTU,
                .inline_max = SHM_INLINE_MAX,
                .lossless = true,
                .inside = true,
                .rto_min = 200 * NS_PER_MS,
        };
        WRITE_ONCE(c->sh, sh);
        c->cnt = cnt;
        c->sent = c->gave = false;
}
