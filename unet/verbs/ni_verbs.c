/* See ni_verbs.h. */
#include "unet/verbs/ni_verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memfd.h"
#include "unet/verbs/verbs_chan.h"

#define RX_BUFFERS 512u
#define FD_HIGH    900 /* out of the application's way */

/* What the driver has and nobody else. */
struct driver {
        struct verbs_port *port;
        /* The port's: asked for without the stack's lock, when it may be gone. */
        int wake_fd[VERBS_WAKE_FDS], cmd_fd;
        uint32_t posted;               /* place in the ring */
        uint32_t done_at[VLINK_SLOTS]; /* by place: the port's count of posts behind it */
        uint32_t seen;                 /* the book's seq that peers are of */
        struct verbs_chan *peer[VLINK_CHANS];
        atomic_flag polling; /* completion queues are looked at without the stack's lock, too */
        struct driver *past; /* the one before it, which somebody may still look at */
};

struct vlink {
        struct vlink_shared *sh;
        const struct vlink_book *book;
        struct counters *cnt;
        void (*ring)(void *arg);
        void *arg;
        uint32_t as;         /* who we are in the shared part, when we drive */
        struct driver *d;    /* NULL: another process drives */
        struct driver *past; /* what it was before */
};

static struct ni_verbs *nv(struct unet_chan *ch)
{
        return (struct ni_verbs *)ch;
}

static uint8_t *slot_at(const struct vlink *v, uint32_t place)
{
        return (uint8_t *)v->sh + vlink_ring_off() +
               (size_t)(place % VLINK_SLOTS) * VLINK_SLOT_BYTES;
}

/* ---- completion queues ---- */

static void poll_begin(struct driver *d)
{
        while (atomic_flag_test_and_set_explicit(&d->polling, memory_order_acquire))
                ;
}

static void poll_end(struct driver *d)
{
        atomic_flag_clear_explicit(&d->polling, memory_order_release);
}

/* ---- the driver's turns ---- */

static void drop_peer(struct driver *d, uint32_t k)
{
        if (d->peer[k] != NULL)
                verbs_chan_abort(d->peer[k]);
        d->peer[k] = NULL;
}

static bool is_peer(const struct verbs_chan *c, const struct vlink_peer *p)
{
        return c != NULL && c->peer.qpn == p->qpn && ip_addr_eq(c->peer.addr, ip_addr_v4(p->addr));
}

/* One that moved to another queue pair is another peer to the device. */
static void part_from(struct driver *d, uint32_t k, const struct vlink_peer *p)
{
        if (!is_peer(d->peer[k], p))
                drop_peer(d, k);
}

static void meet(struct driver *d, uint32_t k, const struct vlink_peer *p)
{
        struct verbs_peer to = {.addr = ip_addr_v4(p->addr), .qpn = p->qpn, .qkey = p->qkey};

        if (p->addr == 0 || p->qpn == 0)
                return;
        if (d->peer[k] != NULL)
                d->peer[k]->peer.qkey = to.qkey;
        else if (verbs_chan_open(d->port, &to, d->port->dev.mtu, &d->peer[k]) == 0)
                d->peer[k]->unordered = true;
}

/* All peers of the book as it was at `seq`. False: it is being written. */
static bool follow_peers(struct vlink *v, uint32_t seq,
                         void (*follow)(struct driver *d, uint32_t k, const struct vlink_peer *p))
{
        for (uint32_t k = 0; k < VLINK_CHANS; k++) {
                struct vlink_peer p;
                if (!vlink_read(v->book, k, &p))
                        p = (struct vlink_peer){.addr = 0};
                if (atomic_load_explicit(&v->book->seq, memory_order_relaxed) != seq)
                        return false;
                follow(v->d, k, &p);
        }
        return true;
}

/* Those that are gone first: another channel may have got their queue pair. What changes meanwhile
 * the next turn sees. */
static void follow_book(struct vlink *v)
{
        uint32_t seq = atomic_load_explicit(&v->book->seq, memory_order_acquire);

        if (likely(seq == v->d->seen) || (seq & 1))
                return;
        if (follow_peers(v, seq, part_from) && follow_peers(v, seq, meet))
                v->d->seen = seq;
}

static void retire(struct vlink *v)
{
        struct driver *d = v->d;
        uint32_t cons = atomic_load_explicit(&v->sh->tx_cons, memory_order_relaxed);

        verbs_poll_sends(d->port);
        while (cons != d->posted &&
               (int32_t)(d->port->retired - d->done_at[cons % VLINK_SLOTS]) >= 0)
                cons++;
        atomic_store_explicit(&v->sh->tx_cons, cons, memory_order_release);
}

static void post_one(struct vlink *v, uint32_t place)
{
        const struct vlink_slot s = v->sh->slot[place % VLINK_SLOTS];
        struct verbs_chan *c = s.chan < VLINK_CHANS ? v->d->peer[s.chan] : NULL;

        if (likely(c != NULL && s.len <= c->base.caps.mtu && s.len != 0 &&
                   s.inl <= MIN(s.len, UNET_INLINE_MAX)))
                verbs_chan_post(c, (uint32_t)(slot_at(v, place) - (uint8_t *)v->sh), s.len, s.inl);
        else
                count_drop(v->cnt, DROP_NI_NO_CHANNEL);
        v->d->done_at[place % VLINK_SLOTS] = v->d->port->posted;
}

static void pump(struct vlink *v)
{
        struct driver *d = v->d;
        uint32_t prod = atomic_load_explicit(&v->sh->tx_prod, memory_order_acquire);

        follow_book(v);
        atomic_store_explicit(&v->sh->rung, 0, memory_order_relaxed);
        if (unlikely(d->port->down))
                verbs_port_events(d->port);
        for (; d->posted != prod && verbs_port_room(d->port) > 0; d->posted++)
                post_one(v, d->posted);
        atomic_store_explicit(&v->sh->tx_posted, d->posted, memory_order_relaxed);
        verbs_ring(d->port);
}

static void turn(struct vlink *v)
{
        poll_begin(v->d);
        atomic_fetch_add_explicit(&v->sh->turns, 1, memory_order_relaxed);
        retire(v);
        pump(v);
        poll_end(v->d);
}

/* A turn would find nothing to do: most come after calls that sent nothing. */
static bool is_idle(const struct vlink *v)
{
        const struct driver *d = v->d;

        return d->posted == atomic_load_explicit(&v->sh->tx_prod, memory_order_relaxed) &&
               atomic_load_explicit(&v->sh->rung, memory_order_relaxed) == 0 &&
               d->seen == atomic_load_explicit(&v->book->seq, memory_order_relaxed) &&
               !d->port->down && !verbs_sends_due(d->port) && !verbs_repost_due(d->port);
}

/* Under the lock. Somebody else may have taken over, which the shared part says. */
static bool drives(struct vlink *v)
{
        if (v->d == NULL)
                return false;
        if (likely(atomic_load_explicit(&v->sh->driver, memory_order_relaxed) == v->as))
                return true;
        vlink_yield(v);
        return false;
}

void vlink_give_up(struct vlink *v)
{
        if (!drives(v))
                return;
        vlink_yield(v);
        atomic_store_explicit(&v->sh->driver, 0, memory_order_release);
        v->ring(v->arg);
}

/* The device died, or is being removed, which takes until all who use it have closed it: then
 * nobody drives. To be asked while nothing that was received is looked at. */
static bool goes_on(struct vlink *v)
{
        if (!drives(v))
                return false;
        if (likely(!v->d->port->dead && !vlink_away(v)))
                return true;
        vlink_give_up(v);
        return false;
}

/* ---- the table ---- */

static uint32_t ring_room(const struct ni_verbs *n)
{
        const struct vlink_shared *sh = READ_ONCE(n->link)->sh;
        const struct vlink_chan_shared *c = &sh->chan[n->chan];
        uint32_t used = atomic_load_explicit(&sh->tx_prod, memory_order_relaxed) -
                        atomic_load_explicit(&sh->tx_cons, memory_order_relaxed);

        return MIN(VLINK_SLOTS - MIN(used, VLINK_SLOTS),
                   VLINK_SLOTS - MIN(c->reap_tail - c->reap_head, VLINK_SLOTS));
}

static uint32_t room(struct unet_chan *ch)
{
        return ring_room(nv(ch));
}

static uint8_t *place_of_next(struct unet_chan *ch)
{
        const struct vlink *v = nv(ch)->link;

        return slot_at(v, atomic_load_explicit(&v->sh->tx_prod, memory_order_relaxed));
}

static void put(struct ni_verbs *n, const struct unet_tx *tx, uint32_t place, size_t len)
{
        struct vlink_shared *sh = n->link->sh;
        struct vlink_chan_shared *c = &sh->chan[n->chan];
        uint8_t *to = slot_at(n->link, place);
        bool ours = tx->inl == to || unet_mem_gather(&n->tx, tx, to);

        assert(ours);
        sh->slot[place % VLINK_SLOTS] =
                (struct vlink_slot){n->chan, (uint32_t)len, (uint32_t)MIN(len, UNET_INLINE_MAX)};
        if (tx->frame != 0) {
                c->reap[c->reap_tail % VLINK_SLOTS] = tx->frame;
                __atomic_store_n(&c->reap_tail, c->reap_tail + 1, __ATOMIC_RELEASE);
        }
        atomic_store_explicit(&sh->tx_prod, place + 1, memory_order_release);
}

static int send(struct unet_chan *ch, const struct unet_tx *tx, int n)
{
        struct ni_verbs *c = nv(ch);
        struct vlink_shared *sh = c->link->sh;
        uint32_t fits = ring_room(c);
        uint64_t bytes = 0;
        int i;

        if (unlikely(fits < (uint32_t)n) && drives(c->link)) {
                turn(c->link);
                fits = ring_room(c);
        }
        for (i = 0; i < n && (uint32_t)i < fits; i++) {
                size_t len = unet_tx_bytes(&tx[i]);
                assert(len <= VLINK_SLOT_BYTES);
                put(c, &tx[i], atomic_load_explicit(&sh->tx_prod, memory_order_relaxed), len);
                bytes += len;
        }
        if (i < n)
                count(c->link->cnt, COUNT_NI_TX_FULL);
        count_add(c->link->cnt, COUNT_NI_TX_MSGS, (uint64_t)i);
        count_add(c->link->cnt, COUNT_NI_TX_BYTES, bytes);
        return i;
}

static int reap(struct unet_chan *ch, uint32_t *frame, int n)
{
        struct vlink_chan_shared *c = &nv(ch)->link->sh->chan[nv(ch)->chan];
        int got = 0;

        while (got < n && c->reap_head != c->reap_tail) {
                frame[got++] = c->reap[c->reap_head % VLINK_SLOTS];
                c->reap_head++;
        }
        return got;
}

static int recv(struct unet_chan *ch, struct unet_rx *rx, int n)
{
        struct ni_verbs *c = nv(ch);
        struct vlink *v = c->link;
        struct verbs_chan *from;
        int got = 0;

        if (!goes_on(v))
                return 0;
        if (!is_idle(v))
                turn(v);
        from = v->d->peer[c->chan];
        if (from == NULL)
                return 0;
        poll_begin(v->d);
        got = verbs_ni_ops.recv(&from->base, rx, n);
        poll_end(v->d);
        return got;
}

static void release(struct unet_chan *ch, const uint32_t *frame, int n)
{
        struct vlink *v = nv(ch)->link;

        if (drives(v))
                verbs_give_back(v->d->port, frame, n);
}

/* Without the lock: completions are fetched and not looked at. */
static bool pending(struct unet_chan *ch)
{
        struct ni_verbs *c = nv(ch);
        /* Another channel may just be taking the place of this one. */
        struct vlink *v = READ_ONCE(c->link);
        struct driver *d = __atomic_load_n(&v->d, __ATOMIC_ACQUIRE);
        bool any;

        if (d == NULL || atomic_flag_test_and_set_explicit(&d->polling, memory_order_acquire))
                return false; /* nothing, or somebody else looks */
        any = (d->posted != atomic_load_explicit(&v->sh->tx_prod, memory_order_relaxed) &&
               verbs_port_room(d->port) > 0) ||
              verbs_port_peek(d->port) ||
              (d->peer[c->chan] != NULL && d->peer[c->chan]->first != 0);
        poll_end(d);
        return any;
}

static void want_room(struct unet_chan *ch, bool on)
{
        struct vlink *v = nv(ch)->link;

        if (drives(v))
                v->d->port->nwant_room = on;
}

static void flush(struct unet_chan *ch)
{
        struct vlink *v = nv(ch)->link;

        if (drives(v)) {
                if (is_idle(v))
                        return;
                turn(v);
                poll_begin(v->d);
                verbs_repost(v->d->port);
                poll_end(v->d);
        } else if (vlink_waits(v) &&
                   atomic_exchange_explicit(&v->sh->rung, 1, memory_order_relaxed) == 0) {
                v->ring(v->arg);
        }
}

/* Sends are copied before the call ends: whatever was not reaped counts as sent. */
static void no_repair(struct unet_chan *ch)
{
        struct vlink_chan_shared *c = &nv(ch)->link->sh->chan[nv(ch)->chan];

        c->reap_head = c->reap_tail;
}

static const struct unet_ni_ops ni_verbs_ops = {
        .name = "verbs",
        .send = send,
        .recv = recv,
        .release = release,
        .reap = reap,
        .room = room,
        .place = place_of_next,
        .pending = pending,
        .want_room = want_room,
        .flush = flush,
        .repair = no_repair,
};

void ni_verbs_init(struct ni_verbs *n, struct vlink *v, uint32_t chan, uint32_t mtu, bool csum,
                   struct unet_mem tx)
{
        n->base.caps = (struct unet_caps){.mtu = MIN(mtu, VLINK_SLOT_BYTES),
                                          .inline_max = UNET_INLINE_MAX,
                                          .csum = csum,
                                          .whole = true,
                                          .copied = true,
                                          .rto_min = 10 * NS_PER_MS};
        n->chan = chan;
        n->tx = tx;
        WRITE_ONCE(n->link, v); /* who looks without the lock finds the last one or this one */
        WRITE_ONCE(n->base.ops, &ni_verbs_ops);
}

/* ---- links ---- */

int vlink_map(int mem, int book, struct counters *cnt, void (*ring)(void *arg), void *arg,
              struct vlink **out)
{
        struct vlink *v = calloc(1, sizeof *v);

        if (v == NULL)
                return -ENOMEM;
        *v = (struct vlink){.cnt = cnt, .ring = ring, .arg = arg};
        v->sh = unet_memfd_map(mem, vlink_bytes(), true, NULL);
        v->book = unet_memfd_map(book, sizeof *v->book, false, NULL);
        if (v->sh != NULL && v->book != NULL && v->sh->magic == VLINK_MAGIC &&
            v->book->magic == VLINK_MAGIC) {
                *out = v;
                return 0;
        }
        vlink_unmap(v);
        return -EPROTO;
}

struct vlink_shared *vlink_shared(struct vlink *v)
{
        return v->sh;
}

const struct vlink_book *vlink_book(const struct vlink *v)
{
        return v->book;
}

bool vlink_drives(const struct vlink *v)
{
        return v->d != NULL;
}

bool vlink_away(const struct vlink *v)
{
        return atomic_load_explicit(&v->book->away, memory_order_relaxed) != 0;
}

bool vlink_waits(const struct vlink *v)
{
        return atomic_load_explicit(&v->sh->tx_prod, memory_order_relaxed) !=
               atomic_load_explicit(&v->sh->tx_posted, memory_order_relaxed);
}

uint8_t *vlink_rx_frames(const struct vlink *v)
{
        return v->d != NULL ? v->d->port->pool : NULL;
}

/* ---- driving ---- */

static void stop(struct vlink *v, bool forget)
{
        struct driver *d = v->d;

        if (d == NULL)
                return;
        __atomic_store_n(&v->d, NULL, __ATOMIC_RELEASE);
        poll_begin(d); /* and never ends: who still looks without the lock sees it taken */
        for (uint32_t k = 0; k < VLINK_CHANS; k++)
                drop_peer(d, k);
        verbs_port_close(d->port, forget);
        d->port = NULL;
        d->past = v->past;
        v->past = d;
}

void vlink_yield(struct vlink *v)
{
        stop(v, false);
}

void vlink_forked(struct vlink *v)
{
        stop(v, true);
}

void vlink_unmap(struct vlink *v)
{
        stop(v, false);
        while (v->past != NULL) {
                struct driver *d = v->past;
                v->past = d->past;
                free(d);
        }
        if (v->sh != NULL)
                munmap(v->sh, vlink_bytes());
        if (v->book != NULL)
                munmap((void *)(uintptr_t)v->book, sizeof *v->book);
        free(v);
}

int vlink_drive(struct vlink *v, uint32_t slot, struct vlink_qp *out)
{
        struct vlink_shared *sh = v->sh;
        struct verbs_setup s = {.tx = unet_mem_flat((uint8_t *)sh, vlink_bytes()),
                                .buffers = RX_BUFFERS,
                                .frames = true,
                                .fd_high = FD_HIGH,
                                .cnt = v->cnt};
        struct driver *d;
        int err;

        vlink_yield(v);
        if (vlink_away(v))
                return -ENODEV;
        d = calloc(1, sizeof *d);
        if (d == NULL)
                return -ENOMEM;
        err = verbs_port_open(ip_addr_v4(v->book->addr), &s, &d->port);
        if (err != 0) {
                free(d);
                return err;
        }
        atomic_flag_clear(&d->polling);
        d->wake_fd[0] = d->port->events->fd;
        d->wake_fd[1] = d->port->dev.ctx->async_fd;
        d->cmd_fd = d->port->dev.ctx->cmd_fd;
        d->seen = 1; /* never the book's: odd */
        /* What the last driver had posted and not heard of again may be lost: as any packet may. */
        d->posted = atomic_load_explicit(&sh->tx_prod, memory_order_relaxed);
        atomic_store_explicit(&sh->tx_posted, d->posted, memory_order_relaxed);
        atomic_store_explicit(&sh->tx_cons, d->posted, memory_order_release);
        sh->qpn = d->port->qp->qp_num;
        sh->qkey = d->port->qkey;
        sh->mtu = d->port->dev.mtu;
        sh->pinned_kb = (uint32_t)((vlink_bytes() + d->port->memory_bytes) / 1024);
        sh->drivers++;
        atomic_store_explicit(&sh->rung, 0, memory_order_relaxed);
        atomic_store_explicit(&sh->wanted, 0, memory_order_relaxed);
        atomic_store_explicit(&sh->driver, slot, memory_order_release);
        v->as = slot;
        __atomic_store_n(&v->d, d, __ATOMIC_RELEASE);
        follow_book(v);
        *out = (struct vlink_qp){sh->qpn, d->port->qkey, sh->mtu};
        return 0;
}

void vlink_arm(struct vlink *v)
{
        if (!goes_on(v))
                return;
        poll_begin(v->d);
        follow_book(v);
        verbs_port_arm(v->d->port);
        /* Of peers that no channel is mapped for yet, too: nobody else would. */
        verbs_poll_receives(v->d->port);
        poll_end(v->d);
}

int vlink_wake_fds(const struct vlink *v, int fd[VERBS_WAKE_FDS])
{
        const struct driver *d = __atomic_load_n(&v->d, __ATOMIC_ACQUIRE);

        if (d == NULL)
                return 0;
        memcpy(fd, d->wake_fd, sizeof d->wake_fd);
        return VERBS_WAKE_FDS;
}

bool vlink_owns_fd(const struct vlink *v, int fd)
{
        const struct driver *d = __atomic_load_n(&v->d, __ATOMIC_ACQUIRE);

        return d != NULL && (fd == d->wake_fd[0] || fd == d->wake_fd[1] || fd == d->cmd_fd);
}
