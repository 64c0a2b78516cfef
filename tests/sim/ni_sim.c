/* The simulated link: see ni_sim.h for the road of a packet. */
#include <stdlib.h>

#include "tests/sim/ni_sim.h"
#include "unet/wrap/chance.h"

#define DEFAULT_MTU      1500u
#define DEFAULT_RX_SLOTS 4096u
#define DEFAULT_RTO_MIN  (200 * NS_PER_MS)

struct packet {
        struct packet *next; /* in the receive queue */
        nstime at;           /* arrival */
        uint64_t serial;     /* order among equal arrivals */
        int to;
        uint32_t inl_len, len; /* len: all bytes */
        uint32_t frame;        /* receive frame, once arrived */
        uint8_t bytes[];
};

struct waiting { /* a packet that waits for the wire */
        nstime leaves;
        uint32_t bytes;
};

struct end {
        struct unet_chan base;
        struct sim *sim;
        int side;

        /* The direction that starts here. */
        struct sim_params p;
        struct prng_fast rng;
        bool bad;             /* Gilbert-Elliott state */
        nstime wire_free;     /* when the last packet will have left */
        uint64_t wire_rest;   /* and the part of a nanosecond after that, in 1/rate */
        nstime last_arrival;  /* keeps jitter from reordering */
        struct waiting *wait; /* FIFO: head .. head + count - 1 */
        size_t wait_head, wait_count, wait_cap;
        uint64_t wait_bytes;
        struct unet_mem tx_mem;
        uint32_t *reaped; /* frames whose sends are finished with them */
        size_t reaped_count, reaped_cap;

        /* What arrives here. */
        struct packet *rx_head, **rx_tail;
        uint32_t rx_count;
        struct unet_mem rx_mem;
        uint32_t *rx_free; /* stack of free frame numbers */
        uint32_t rx_free_count;
        bool *lent; /* by frame number */
        uint32_t loans;
        struct counters own, *c; /* c: own, or the user's */
};

struct sim {
        nstime now;
        uint64_t serial, hash;
        struct packet **heap; /* by (at, serial), the earliest first */
        size_t heap_count, heap_cap;
        sim_trace_fn *trace;
        void *trace_arg;
        struct end end[2];
};

static struct end *end_of(struct unet_chan *ch)
{
        return (struct end *)ch;
}

/* The link is a tool of tests; without memory there is nothing sensible left to simulate. */
static void *grow(void *array, size_t count, size_t *cap, size_t size)
{
        if (count < *cap)
                return array;
        *cap = MAX(*cap * 2, (size_t)64);
        array = realloc(array, *cap * size);
        if (array == NULL)
                abort();
        return array;
}

/* ---- trace ---- */

static uint64_t fnv(uint64_t h, const void *bytes, size_t n)
{
        const uint8_t *p = bytes;

        for (size_t i = 0; i < n; i++)
                h = (h ^ p[i]) * 0x100000001b3u;
        return h;
}

static void event(struct end *e, enum sim_event what, const uint8_t *bytes, size_t len)
{
        struct sim *s = e->sim;
        struct {
                nstime now;
                uint32_t side, what, len;
        } head = {s->now, (uint32_t)e->side, (uint32_t)what, (uint32_t)len};

        s->hash = fnv(s->hash, &head.now, sizeof head.now);
        s->hash = fnv(s->hash, &head.side, 3 * sizeof(uint32_t));
        s->hash = fnv(s->hash, bytes, len);
        if (s->trace != NULL)
                s->trace(s->trace_arg, s->now, e->side, what, bytes, len);
}

uint64_t sim_trace(const struct sim *s)
{
        return s->hash;
}

void sim_set_trace(struct sim *s, sim_trace_fn *fn, void *arg)
{
        s->trace = fn;
        s->trace_arg = arg;
}

/* ---- packets under way, a binary heap ---- */

static bool before(const struct packet *a, const struct packet *b)
{
        return a->at != b->at ? a->at < b->at : a->serial < b->serial;
}

static void heap_push(struct sim *s, struct packet *p)
{
        size_t i;

        s->heap = grow(s->heap, s->heap_count, &s->heap_cap, sizeof(struct packet *));
        for (i = s->heap_count++; i > 0 && before(p, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
                s->heap[i] = s->heap[(i - 1) / 2];
        s->heap[i] = p;
}

static struct packet *heap_pop(struct sim *s)
{
        struct packet *top = s->heap[0], *last = s->heap[--s->heap_count];
        size_t i = 0, child;

        while ((child = 2 * i + 1) < s->heap_count) {
                if (child + 1 < s->heap_count && before(s->heap[child + 1], s->heap[child]))
                        child++;
                if (!before(s->heap[child], last))
                        break;
                s->heap[i] = s->heap[child];
                i = child;
        }
        s->heap[i] = last;
        return top;
}

/* ---- sending ---- */

static void drain_wire(struct end *e)
{
        while (e->wait_count > 0 && e->wait[e->wait_head].leaves <= e->sim->now) {
                e->wait_bytes -= e->wait[e->wait_head].bytes;
                e->wait_head = (e->wait_head + 1) % e->wait_cap;
                e->wait_count--;
        }
}

static void wait_push(struct end *e, struct waiting w)
{
        if (e->wait_count == e->wait_cap) {
                size_t cap = e->wait_cap ? e->wait_cap * 2 : 64;
                struct waiting *bigger = calloc(cap, sizeof *bigger);
                if (bigger == NULL)
                        abort();
                for (size_t i = 0; i < e->wait_count; i++)
                        bigger[i] = e->wait[(e->wait_head + i) % e->wait_cap];
                free(e->wait);
                e->wait = bigger;
                e->wait_cap = cap;
                e->wait_head = 0;
        }
        e->wait[(e->wait_head + e->wait_count++) % e->wait_cap] = w;
        e->wait_bytes += w.bytes;
}

static uint32_t sim_room(struct unet_chan *ch)
{
        struct end *e = end_of(ch);

        drain_wire(e);
        if (e->p.tx_slots == 0)
                return UINT32_MAX;
        return e->wait_count < e->p.tx_slots ? e->p.tx_slots - (uint32_t)e->wait_count : 0;
}

/* What happens to one packet, drawn at once and always with the same number of draws. */
struct fate {
        bool lost, duplicated, reordered, corrupted;
        nstime jitter;
        uint64_t bit;
};

static struct fate draw_fate(struct end *e, size_t len)
{
        const struct sim_params *p = &e->p;
        bool starts = chance(&e->rng, p->burst_start), ends = chance(&e->rng, p->burst_end);
        bool bad_loss = chance(&e->rng, p->burst_loss > 0 ? p->burst_loss : 1);
        struct fate f = {.lost = chance(&e->rng, p->loss)};

        e->bad = e->bad ? !ends : starts;
        f.lost |= e->bad && bad_loss;
        f.duplicated = chance(&e->rng, p->duplicate);
        f.reordered = chance(&e->rng, p->reorder);
        f.corrupted = chance(&e->rng, p->corrupt);
        f.jitter = (nstime)chance_upto(&e->rng, (uint64_t)p->jitter);
        f.bit = chance_upto(&e->rng, len * 8 - 1);
        return f;
}

/* As a router with a threshold marks: ECT becomes CE, and the header's checksum goes along (RFC
 * 1624, eqn. 3). */
static void mark(struct packet *p)
{
        uint32_t was = (uint32_t)p->bytes[0] << 8 | p->bytes[1], sum;

        if (p->len < 20 || p->bytes[0] >> 4 != 4 || (p->bytes[1] & 3) == 0)
                return;
        p->bytes[1] |= 3;
        sum = (~((uint32_t)p->bytes[10] << 8 | p->bytes[11]) & 0xffff) + (~was & 0xffff) +
              ((uint32_t)p->bytes[0] << 8 | p->bytes[1]);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = ~((sum & 0xffff) + (sum >> 16));
        p->bytes[10] = (uint8_t)(sum >> 8);
        p->bytes[11] = (uint8_t)sum;
}

/* When the packet will have left the wire, or NSTIME_NEVER: it did not fit into the queue. */
static nstime through_queue(struct end *e, size_t len)
{
        nstime now = e->sim->now, start = MAX(now, e->wire_free);
        unsigned __int128 work;

        if (e->p.rate == 0)
                return now;
        drain_wire(e);
        if (e->p.queue_bytes != 0 && e->wait_bytes + len > e->p.queue_bytes)
                return NSTIME_NEVER;
        if (start != e->wire_free)
                e->wire_rest = 0;
        work = (unsigned __int128)len * 8 * NS_PER_S + e->wire_rest;
        e->wire_rest = (uint64_t)(work % e->p.rate);
        e->wire_free = start + (nstime)(work / e->p.rate);
        wait_push(e, (struct waiting){e->wire_free, (uint32_t)len});
        return e->wire_free;
}

static struct packet *packet_copy(const struct packet *p)
{
        struct packet *q = malloc(sizeof *q + p->len);

        if (q == NULL)
                abort();
        memcpy(q, p, sizeof *q + p->len);
        return q;
}

static void launch(struct end *e, struct packet *p, nstime at)
{
        p->at = at;
        p->serial = e->sim->serial++;
        heap_push(e->sim, p);
}

static void put_on_wire(struct end *e, struct packet *p, nstime left, struct fate f)
{
        nstime at = left + e->p.delay + f.jitter;

        if (f.corrupted) {
                p->bytes[f.bit / 8] ^= (uint8_t)(1u << f.bit % 8);
                event(e, SIM_CORRUPTED, p->bytes, p->len);
        }
        if (f.reordered) {
                at += e->p.reorder_by;
                event(e, SIM_REORDERED, p->bytes, p->len);
        } else {
                at = e->last_arrival = MAX(at, e->last_arrival);
        }
        if (f.duplicated) {
                event(e, SIM_DUPLICATED, p->bytes, p->len);
                launch(e, packet_copy(p), at);
        }
        launch(e, p, at);
}

static void drop_on_way(struct end *e, struct packet *p, enum sim_event what, enum drop why)
{
        event(e, what, p->bytes, p->len);
        count_drop(e->c, why);
        free(p);
}

static void send_packet(struct end *e, struct packet *p)
{
        struct fate f = draw_fate(e, p->len);
        nstime left;

        event(e, SIM_SENT, p->bytes, p->len);
        if (f.lost) {
                drop_on_way(e, p, SIM_LOST, DROP_LINK_LOST);
                return;
        }
        drain_wire(e);
        if (e->p.mark_bytes != 0 && e->wait_bytes > e->p.mark_bytes)
                mark(p);
        left = through_queue(e, p->len);
        if (left == NSTIME_NEVER)
                drop_on_way(e, p, SIM_QUEUE_FULL, DROP_NI_TX_FULL);
        else
                put_on_wire(e, p, left, f);
}

static struct packet *gather(struct end *e, const struct unet_tx *tx)
{
        size_t len = unet_tx_bytes(tx);
        struct packet *p;

        if (len == 0 || len > e->p.mtu || tx->nmore >= UNET_RANGES_MAX)
                return NULL;
        p = calloc(1, sizeof *p + len);
        if (p == NULL)
                abort();
        p->to = !e->side;
        p->inl_len = (uint16_t)MIN(tx->inl_len, UNET_INLINE_MAX);
        p->len = (uint32_t)len;
        if (unet_mem_gather(&e->tx_mem, tx, p->bytes))
                return p;
        free(p);
        return NULL;
}

static void reap_later(struct end *e, uint32_t frame)
{
        e->reaped = grow(e->reaped, e->reaped_count, &e->reaped_cap, sizeof(uint32_t));
        e->reaped[e->reaped_count++] = frame;
}

static void send_one(struct end *e, const struct unet_tx *tx)
{
        struct packet *p = gather(e, tx);

        if (tx->frame != 0)
                reap_later(e, tx->frame);
        if (p == NULL) {
                count_drop(e->c, DROP_NI_MALFORMED);
                return;
        }
        count(e->c, COUNT_NI_TX_MSGS);
        count_add(e->c, COUNT_NI_TX_BYTES, p->len);
        send_packet(e, p);
}

static int sim_send(struct unet_chan *ch, const struct unet_tx *tx, int n)
{
        struct end *e = end_of(ch);
        int i;

        for (i = 0; i < n && sim_room(ch) > 0; i++)
                send_one(e, &tx[i]);
        if (i < n)
                count(e->c, COUNT_NI_TX_FULL);
        return i;
}

static int sim_reap(struct unet_chan *ch, uint32_t *frame, int n)
{
        struct end *e = end_of(ch);
        size_t k = MIN((size_t)n, e->reaped_count);

        if (k == 0)
                return 0;
        memcpy(frame, e->reaped, k * sizeof *frame);
        e->reaped_count -= k;
        memmove(e->reaped, e->reaped + k, e->reaped_count * sizeof *frame);
        return (int)k;
}

/* ---- receiving ---- */

/* A frame for the part that does not travel inline. False: none free. */
static bool place(struct end *e, struct packet *p)
{
        uint32_t tail = p->len - p->inl_len;

        if (tail == 0)
                return true;
        if (e->rx_free_count == 0)
                return false;
        p->frame = e->rx_free[--e->rx_free_count];
        e->lent[p->frame] = true;
        e->loans++;
        memcpy(unet_mem_at(&e->rx_mem, p->frame, 0, tail), p->bytes + p->inl_len, tail);
        return true;
}

static void arrive(struct end *e, struct packet *p)
{
        bool full = e->rx_count >= e->p.rx_slots;

        if (full || !place(e, p)) {
                count_drop(e->c, full ? DROP_NI_QUEUE_FULL : DROP_NI_NO_BUFFER);
                event(e, SIM_REFUSED, p->bytes, p->len);
                free(p);
                return;
        }
        event(e, SIM_ARRIVED, p->bytes, p->len);
        p->next = NULL;
        *e->rx_tail = p;
        e->rx_tail = &p->next;
        e->rx_count++;
}

static int sim_recv(struct unet_chan *ch, struct unet_rx *rx, int n)
{
        struct end *e = end_of(ch);
        int i;

        for (i = 0; i < n && e->rx_head != NULL; i++) {
                struct packet *p = e->rx_head;

                e->rx_head = p->next;
                if (e->rx_head == NULL)
                        e->rx_tail = &e->rx_head;
                e->rx_count--;
                rx[i].frame = p->frame;
                rx[i].off = 0;
                rx[i].len = p->len - p->inl_len;
                rx[i].inl_len = p->inl_len;
                rx[i].nmore = 0;
                memcpy(rx[i].inl, p->bytes, p->inl_len);
                count(e->c, COUNT_NI_RX_MSGS);
                count_add(e->c, COUNT_NI_RX_BYTES, p->len);
                free(p);
        }
        return i;
}

static void sim_release(struct unet_chan *ch, const uint32_t *frame, int n)
{
        struct end *e = end_of(ch);

        for (int i = 0; i < n; i++) {
                if (frame[i] == 0 || frame[i] > frame_geom_total(e->rx_mem.geom) ||
                    !e->lent[frame[i]]) {
                        count(e->c, COUNT_NI_BAD_RETURN);
                        continue;
                }
                e->lent[frame[i]] = false;
                e->loans--;
                e->rx_free[e->rx_free_count++] = frame[i];
        }
}

static bool sim_pending(struct unet_chan *ch)
{
        struct end *e = end_of(ch);

        return e->rx_head != NULL || e->reaped_count != 0;
}

/* Everything is visible at once, and nobody sleeps in virtual time. */
static void sim_flush(struct unet_chan *ch)
{
        (void)ch;
}

const struct unet_ni_ops sim_ops = {
        .name = "sim",
        .send = sim_send,
        .recv = sim_recv,
        .release = sim_release,
        .reap = sim_reap,
        .room = sim_room,
        .pending = sim_pending,
        .flush = sim_flush,
};

/* ---- the link ---- */

nstime sim_now(const struct sim *s)
{
        return s->now;
}

static nstime next_room(const struct end *e)
{
        if (e->p.tx_slots == 0 || e->wait_count < e->p.tx_slots)
                return NSTIME_NEVER;
        return e->wait[e->wait_head].leaves;
}

nstime sim_next(const struct sim *s)
{
        nstime next = nstime_min(next_room(&s->end[0]), next_room(&s->end[1]));

        return s->heap_count > 0 ? nstime_min(next, s->heap[0]->at) : next;
}

/* Packets arrive at their own times, in order, even when the clock jumps. */
void sim_advance(struct sim *s, nstime now)
{
        while (s->heap_count > 0 && s->heap[0]->at <= now) {
                struct packet *p = heap_pop(s);

                s->now = MAX(s->now, p->at);
                arrive(&s->end[p->to], p);
        }
        s->now = MAX(s->now, now);
        drain_wire(&s->end[0]);
        drain_wire(&s->end[1]);
}

struct unet_chan *sim_end(struct sim *s, int side)
{
        return &s->end[side].base;
}

struct sim *sim_of(struct unet_chan *end)
{
        return end_of(end)->sim;
}

struct unet_caps sim_caps(const struct sim *s, int side)
{
        return s->end[side].base.caps;
}

void sim_set_tx_mem(struct sim *s, int side, struct unet_mem mem)
{
        s->end[side].tx_mem = mem;
}

struct unet_mem sim_rx_mem(const struct sim *s, int side)
{
        return s->end[side].rx_mem;
}

const struct counters *sim_counters(const struct sim *s, int side)
{
        return s->end[side].c;
}

void sim_set_counters(struct sim *s, int side, struct counters *c)
{
        s->end[side].c = c;
}

uint64_t sim_queued(struct sim *s, int side)
{
        drain_wire(&s->end[side]);
        return s->end[side].wait_bytes;
}

uint32_t sim_loans(const struct sim *s, int side)
{
        return s->end[side].loans;
}

static struct sim_params with_defaults(struct sim_params p)
{
        if (p.mtu == 0)
                p.mtu = DEFAULT_MTU;
        if (p.rx_slots == 0)
                p.rx_slots = DEFAULT_RX_SLOTS;
        if (p.rto_min == 0)
                p.rto_min = DEFAULT_RTO_MIN;
        assert(p.mtu <= FRAME_LARGE_BYTES);
        return p;
}

static struct unet_caps caps_of(const struct sim_params *p)
{
        return (struct unet_caps){
                .mtu = p->mtu,
                .inline_max = UNET_INLINE_MAX,
                .csum = p->csum || p->corrupt > 0,
                .copied = true,
                .rto_min = p->rto_min,
        };
}

void sim_set_params(struct sim *s, int from_side, const struct sim_params *p)
{
        struct end *e = &s->end[from_side];
        uint32_t mtu = e->p.mtu, rx_slots = e->p.rx_slots;

        e->p = with_defaults(*p);
        e->p.mtu = mtu;
        e->p.rx_slots = rx_slots;
        e->base.caps = caps_of(&e->p);
}

/* As many receive frames as the queue has slots, and as many again for loans. */
static bool end_init(struct end *e, struct sim *s, int side, uint64_t seed,
                     const struct sim_params dir[2])
{
        struct sim_params p = with_defaults(dir[side]), in = with_defaults(dir[!side]);
        enum frame_class c = in.mtu <= FRAME_SMALL_BYTES ? FRAME_SMALL : FRAME_LARGE;
        uint32_t frames = 2 * p.rx_slots;
        struct frame_geom geom = {{0}};

        geom.count[c] = frames;
        *e = (struct end){
                .base = {.ops = &sim_ops, .caps = caps_of(&p)}, .sim = s, .side = side, .p = p};
        prng_fast_init(&e->rng, seed * 2 + (uint64_t)side);
        e->c = &e->own;
        e->rx_tail = &e->rx_head;
        e->rx_mem = unet_mem_frames(calloc(frame_geom_bytes(geom), 1), geom);
        e->rx_free = calloc(frames, sizeof *e->rx_free);
        e->lent = calloc(frames + 1, sizeof *e->lent);
        if (e->rx_mem.base == NULL || e->rx_free == NULL || e->lent == NULL)
                return false;
        for (uint32_t num = frames; num > 0; num--)
                e->rx_free[e->rx_free_count++] = num;
        return true;
}

struct sim *sim_create(uint64_t seed, const struct sim_params dir[2])
{
        struct sim *s = calloc(1, sizeof *s);

        if (s == NULL)
                return NULL;
        s->hash = 0xcbf29ce484222325u;
        if (end_init(&s->end[0], s, 0, seed, dir) && end_init(&s->end[1], s, 1, seed, dir))
                return s;
        sim_destroy(s);
        return NULL;
}

static void end_free(struct end *e)
{
        while (e->rx_head != NULL) {
                struct packet *p = e->rx_head;
                e->rx_head = p->next;
                free(p);
        }
        free(e->wait);
        free(e->reaped);
        free(e->rx_mem.base);
        free(e->rx_free);
        free(e->lent);
}

void sim_destroy(struct sim *s)
{
        if (s == NULL)
                return;
        for (size_t i = 0; i < s->heap_count; i++)
                free(s->heap[i]);
        free(s->heap);
        end_free(&s->end[0]);
        end_free(&s->end[1]);
        free(s);
}
