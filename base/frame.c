/* Frames: allocation, references and loans. See frame.h for the ownership rules. */
#include "base/frame.h"

#include "base/planted.h"

void frame_pool_init(struct frame_pool *p, struct frame_geom g)
{
        *p = (struct frame_pool){.geom = g, .rec_off = sizeof *p};
}

static uint32_t class_first(struct frame_geom g, enum frame_class c)
{
        return c == FRAME_LARGE ? 1 : g.count[FRAME_LARGE] + 1;
}

static struct frame_pool *pool_of(struct frames *f, uint32_t id)
{
        return f->region[frame_id_region(id)].pool;
}

static bool by_turns(const struct frame_pool *p, enum frame_class c)
{
        return c == FRAME_LARGE && p->sent != 0;
}

static uint32_t take_free(struct frame_pool *p, enum frame_class c)
{
        uint32_t num = p->free[c], round = by_turns(p, c) ? MIN(FRAME_ROUND, p->geom.count[c]) : 0;

        if (likely(num != 0 && p->fresh[c] >= round)) {
                p->free[c] = frame_pool_rec(p, num)->next;
                return num;
        }
        if (p->fresh[c] == p->geom.count[c])
                return 0;
        return class_first(p->geom, c) + p->fresh[c]++;
}

/* near: it is to be used next. */
static void put_free(struct frame_pool *p, enum frame_class c, uint32_t num, bool near)
{
        bool any = p->free[c] != 0, behind = by_turns(p, c) && any && !near;

        frame_pool_rec(p, num)->next = behind ? 0 : p->free[c];
        if (behind)
                frame_pool_rec(p, p->last_free[c])->next = num;
        else
                p->free[c] = num;
        if (behind || !any)
                p->last_free[c] = num;
}

uint32_t frame_alloc(struct frames *f, uint32_t region, enum frame_class c, uint32_t owner)
{
        struct frame_pool *p = f->region[region].pool;
        uint32_t num = take_free(p, c);

        if (num == 0)
                return 0;
        p->used[c]++;
        *frame_pool_rec(p, num) = (struct frame_rec){.owner = owner, .refs = 1};
        return frame_id(region, num);
}

uint8_t *frame_guess(const struct frames *f, uint32_t region, enum frame_class c)
{
        uint32_t num = f->region[region].pool->free[c];

        return num != 0 ? frame_addr(f, frame_id(region, num)) : NULL;
}

uint32_t frame_avail(const struct frames *f, uint32_t region, enum frame_class c)
{
        const struct frame_pool *p = f->region[region].pool;

        return p->geom.count[c] - p->used[c];
}

static void free_if_idle(struct frames *f, uint32_t region, struct frame_pool *p, uint32_t num)
{
        struct frame_rec *r = frame_pool_rec(p, num);
        enum frame_class c = frame_geom_class(p->geom, num);
        uint32_t owner = r->owner;

        if (r->refs != 0 || r->loans != 0)
                return;
        r->owner = 0;
        put_free(p, c, num, r->next != 0);
        p->used[c]--;
        if (owner != 0 && f->uncharge != NULL)
                f->uncharge(f->arg, owner, frame_class_bytes(c));
        if (unlikely(p->starved & 1u << c)) {
                WRITE_ONCE(p->starved, p->starved & ~(1u << c));
                f->fed(f->arg, region);
        }
}

void frame_near(struct frames *f, uint32_t id)
{
        struct frame_rec *r = frame_pool_rec(pool_of(f, id), frame_id_num(id));

        assert(r->refs != 0);
        r->next = 1;
}

void frame_hold(struct frames *f, uint32_t id)
{
        struct frame_rec *r = frame_pool_rec(pool_of(f, id), frame_id_num(id));

        assert(r->refs != 0 && r->refs != UINT16_MAX);
        r->refs++;
}

void frame_drop(struct frames *f, uint32_t id)
{
        struct frame_pool *p = pool_of(f, id);
        struct frame_rec *r;

        if (p == NULL) {
                f->give_back(f->arg, (frame_id_region(id) - 1) / 2, frame_id_num(id));
                return;
        }
        r = frame_pool_rec(p, frame_id_num(id));
        assert(r->refs != 0);
        r->refs--;
        free_if_idle(f, frame_id_region(id), p, frame_id_num(id));
}

void frame_lend(struct frames *f, uint32_t id)
{
        struct frame_pool *p = pool_of(f, id);
        struct frame_rec *r = frame_pool_rec(p, frame_id_num(id));

        assert(r->loans != UINT16_MAX);
        r->loans++;
        WRITE_ONCE(p->loans, p->loans + 1);
}

bool frame_unlend(struct frames *f, uint32_t region, uint32_t num)
{
        struct frame_pool *p = f->region[region].pool;
        struct frame_rec *r;

        if (num == 0 || num > frame_geom_total(p->geom) ||
            CHECKED(frame_pool_rec(p, num)->loans == 0)) {
                p->bad_returns++;
                return false;
        }
        r = frame_pool_rec(p, num);
        r->loans--;
        WRITE_ONCE(p->loans, p->loans - 1);
        free_if_idle(f, region, p, num);
        return true;
}

/* Numbers of a class that were ever handed out: first .. first + fresh - 1. */
#define for_each_touched(p, c, num)                                                        \
        for (enum frame_class c = FRAME_SMALL; c < FRAME_CLASSES; c++)                     \
                for (uint32_t num = class_first((p)->geom, c), end_ = num + (p)->fresh[c]; \
                     num < end_; num++)

void frame_unlend_all(struct frames *f, uint32_t region)
{
        struct frame_pool *p = f->region[region].pool;

        for_each_touched (p, c, num) {
                struct frame_rec *r = frame_pool_rec(p, num);
                if (r->loans != 0) {
                        r->loans = 0;
                        free_if_idle(f, region, p, num);
                }
        }
        WRITE_ONCE(p->loans, 0);
}

void frame_pool_zero_refs(struct frame_pool *p)
{
        for_each_touched (p, c, num)
                frame_pool_rec(p, num)->refs = 0;
}

void frame_pool_rebuild(struct frame_pool *p)
{
        WRITE_ONCE(p->loans, 0);
        p->starved = 0; /* all who wait are woken after a death */
        memset(p->free, 0, sizeof p->free);
        memset(p->used, 0, sizeof p->used);
        for_each_touched (p, c, num) {
                struct frame_rec *r = frame_pool_rec(p, num);
                WRITE_ONCE(p->loans, p->loans + r->loans);
                if (r->refs == 0 && r->loans == 0) {
                        put_free(p, c, num, false);
                } else {
                        p->used[c]++;
                }
        }
}

void frame_pool_charges(const struct frame_pool *p,
                        void (*fn)(void *arg, uint32_t owner, uint32_t bytes), void *arg)
{
        for_each_touched (p, c, num) {
                const struct frame_rec *r = frame_pool_rec(p, num);
                if (r->owner != 0 && (r->refs != 0 || r->loans != 0))
                        fn(arg, r->owner, frame_class_bytes(c));
        }
}
