/*
 * Promises (unet/ni_promise.h) in shared memory. Each side writes in its own region alone:
 *
 *      who listens    promise[]: turn, listener, how, for how many; and how many came
 *      who connects   taken[]: how many it has taken, in which turn
 *
 * A turn is odd while its promise holds, and the SYN says the turn. So what was taken before a
 * promise ended is kept. Nothing else is promised in its place until all that was taken has come:
 * who connects writes what he takes, and then looks whether the turn is the same; who listens ends
 * the turn, and then looks what was taken. What was taken and never sent, by a process that died or
 * a connection that was closed first, is waited for a second.
 */
#include "unet/ni_promise.h"
#include "unet/shm/ni_shm.h"

#define WAITS NS_PER_S

static struct shm_chan *shm(struct unet_chan *ch)
{
        return (struct shm_chan *)ch;
}

/* From 1, as the SYN says it. */
static uint16_t said_of(uint32_t turn)
{
        return (uint16_t)(turn >> 1) + 1;
}

static bool leads_to(const struct shm_promise *p, struct unet_door door)
{
        return READ_ONCE(p->addr) == door.addr.raw && READ_ONCE(p->port) == door.port.raw;
}

static uint64_t taken_of(uint32_t turn, uint32_t count)
{
        return (uint64_t)turn << 32 | count;
}

/* ---- who listens ---- */

static uint32_t turn_of(const struct shm_promise *p)
{
        return atomic_load_explicit(&p->turn, memory_order_relaxed);
}

static bool holds(const struct shm_promise *p)
{
        return turn_of(p) & 1;
}

static bool is_like(const struct shm_promise *p, const struct unet_promise *q)
{
        return p->wnd == q->wnd && p->mss == q->mss && p->wscale == q->wscale;
}

/* Index of the listener's, or of one that holds no more, or of any. */
static uint32_t place_of(const struct shm_region *mine, struct unet_door door)
{
        uint32_t found = door.port.raw % SHM_PROMISES;

        for (uint32_t i = 0; i < SHM_PROMISES; i++) {
                if (leads_to(&mine->promise[i], door))
                        return i;
                if (!holds(&mine->promise[i]))
                        found = i;
        }
        return found;
}

static void end(struct shm_promise *p, nstime now)
{
        if (!holds(p))
                return;
        WRITE_ONCE(p->ended, now);
        atomic_store_explicit(&p->turn, turn_of(p) + 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
}

/* Of the turn that has ended some were taken and have not come. */
static bool is_awaited(const struct shm_chan *c, uint32_t i, nstime now)
{
        const struct shm_promise *p = &c->mine->promise[i];
        uint64_t taken = atomic_load_explicit(&c->peer->taken[i], memory_order_acquire);

        return taken >> 32 == turn_of(p) - 1 && (uint32_t)taken != p->came &&
               now - p->ended < WAITS;
}

static void renew(struct shm_promise *p, const struct unet_promise *q)
{
        WRITE_ONCE(p->pid, q->by.pid);
        WRITE_ONCE(p->fd, q->by.fd);
        WRITE_ONCE(p->room, p->came + q->room);
}

static void make(struct unet_chan *ch, struct unet_door door, const struct unet_promise *q,
                 nstime now)
{
        struct shm_region *mine = shm(ch)->mine;
        uint32_t i = place_of(mine, door);
        struct shm_promise *p = &mine->promise[i];

        assert(q->room != 0);
        if (holds(p) && leads_to(p, door) && is_like(p, q)) {
                renew(p, q);
                return;
        }
        end(p, now);
        if (is_awaited(shm(ch), i, now))
                return;
        WRITE_ONCE(p->addr, door.addr.raw);
        WRITE_ONCE(p->port, door.port.raw);
        WRITE_ONCE(p->wnd, q->wnd);
        WRITE_ONCE(p->mss, q->mss);
        WRITE_ONCE(p->wscale, q->wscale);
        WRITE_ONCE(p->came, 0);
        renew(p, q);
        atomic_store_explicit(&p->turn, turn_of(p) + 1, memory_order_release);
}

static void withdraw(struct unet_chan *ch, nstime now)
{
        for (uint32_t i = 0; i < SHM_PROMISES; i++)
                end(&shm(ch)->mine->promise[i], now);
}

static bool keep(struct unet_chan *ch, struct unet_door door, uint16_t said, struct unet_promise *q)
{
        for (uint32_t i = 0; i < SHM_PROMISES; i++) {
                struct shm_promise *p = &shm(ch)->mine->promise[i];
                if (!leads_to(p, door))
                        continue;
                if (said_of(turn_of(p) - !holds(p)) != said || p->came == p->room)
                        return false;
                WRITE_ONCE(p->came, p->came + 1);
                *q = (struct unet_promise){.wnd = p->wnd, .mss = p->mss, .wscale = p->wscale};
                return true;
        }
        return false;
}

/* ---- who connects ---- */

/* How many of this turn were taken. */
static uint32_t count_taken(const struct shm_chan *c, uint32_t i, uint32_t turn)
{
        uint64_t taken = atomic_load_explicit(&c->mine->taken[i], memory_order_relaxed);

        return taken >> 32 == turn ? (uint32_t)taken : 0;
}

/* Returns the index of a promise of the peer's that holds and has room, and its turn; SHM_PROMISES:
 * there is none. */
static uint32_t find(const struct shm_chan *c, struct unet_door door, uint32_t *turn)
{
        for (uint32_t i = 0; i < SHM_PROMISES; i++) {
                const struct shm_promise *p = &c->peer->promise[i];
                *turn = atomic_load_explicit(&p->turn, memory_order_acquire);
                if (*turn & 1 && leads_to(p, door))
                        return (int32_t)(READ_ONCE(p->room) - count_taken(c, i, *turn)) > 0
                                       ? i
                                       : SHM_PROMISES;
        }
        return SHM_PROMISES;
}

static bool look(struct unet_chan *ch, struct unet_door door, struct unet_promise *q)
{
        uint32_t turn, i = find(shm(ch), door, &turn);
        const struct shm_promise *p;

        if (i == SHM_PROMISES)
                return false;
        p = &shm(ch)->peer->promise[i];
        *q = (struct unet_promise){.wnd = READ_ONCE(p->wnd),
                                   .mss = READ_ONCE(p->mss),
                                   .wscale = READ_ONCE(p->wscale),
                                   .by = {READ_ONCE(p->pid), READ_ONCE(p->fd)}};
        atomic_thread_fence(memory_order_acquire);
        return turn_of(p) == turn;
}

static uint16_t take(struct unet_chan *ch, struct unet_door door)
{
        struct shm_chan *c = shm(ch);
        uint32_t turn, i = find(c, door, &turn);
        uint64_t before;

        if (i == SHM_PROMISES || said_of(turn) == 0)
                return 0;
        before = atomic_load_explicit(&c->mine->taken[i], memory_order_relaxed);
        atomic_store_explicit(&c->mine->taken[i], taken_of(turn, count_taken(c, i, turn) + 1),
                              memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
        if (turn_of(&c->peer->promise[i]) == turn)
                return said_of(turn);
        atomic_store_explicit(&c->mine->taken[i], before, memory_order_relaxed);
        return 0;
}

const struct unet_promise_ops shm_promise_ops = {
        .make = make, .withdraw = withdraw, .look = look, .take = take, .keep = keep};
