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

/* ---- names ---- */

/* Without names nothing of theirs is touched. */
#define for_each_name(p, r)                                                  \
        for (uint32_t num_ = frame_geom_total((p)->geom) + 1,                \
                      end_ = num_ + ((p)->name_last != 0 ? FRAME_NAMES : 0); \
             num_ < end_; num_++)                                            \
                for (struct frame_rec *r = frame_pool_rec(p, num_); r != NULL; r = NULL)

uint32_t frame_name(struct frames *f, uint32_t region, uint32_t owner, uint32_t serial)
{
        struct frame_pool *p = f->region[region].pool;

        assert(owner != 0);
        for (uint32_t n = 0; n < FRAME_NAMES; n++) {
                uint32_t num = frame_geom_total(p->geom) + (p->name_last % FRAME_NAMES) + 1;
                struct frame_rec *r = frame_pool_rec(p, num);
                p->name_last = p->name_last % FRAME_NAMES + 1;
                if (r->owner != 0)
                        continue;
                r->refs = 1;
                r->loans = 0;
                WRITE_ONCE(r->next, serial);
                /* Release: who asks without the lock finds the serial number. */
                __atomic_store_n(&r->owner, owner, __ATOMIC_RELEASE);
                return frame_id(FRAME_REGION_NAMED(region), num);
        }
        return 0;
}

bool frame_name_over(const struct frames *f, uint32_t id, uint32_t serial)
{
        const struct frame_pool *p = f->region[frame_id_region(id)].pool;
        const struct frame_rec *r;

        if (!frame_is_name(p->geom, frame_id_num(id)))
                return true; /* the number is another channel's now */
        r = frame_pool_rec(p, frame_id_num(id));
        return __atomic_load_n(&r->owner, __ATOMIC_ACQUIRE) == 0 || READ_ONCE(r->next) != serial;
}

bool frame_pool_any_name(const struct frame_pool *p, bool (*fn)(void *arg, uint32_t serial),
                         void *arg)
{
        for_each_name(p, r) if (r->owner != 0 && fn(arg, r->next)) return true;
        return false;
}

static void name_end_if_idle(struct frames *f, struct frame_rec *r)
{
        uint32_t owner = r->owner;

        if (r->refs != 0 || r->loans != 0)
                return;
        __atomic_store_n(&r->owner, 0, __ATOMIC_RELEASE);
        if (owner != 0 && f->uncharge != NULL)
                f->uncharge(f->arg, owner, 0);
}

/* ---- ends ---- */

static inline void free_if_idle(struct frames *f, uint32_t region, struct frame_pool *p,
                                uint32_t num)
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
                f->give_back(f->arg, frame_region_chan(frame_id_region(id)), frame_id_num(id));
                return;
        }
        r = frame_pool_rec(p, frame_id_num(id));
        assert(r->refs != 0);
        r->refs--;
        if (unlikely(id & FRAME_NAMED))
                name_end_if_idle(f, r);
        else
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

        if (num == 0 || num > frame_geom_total(p->geom) + FRAME_NAMES ||
            CHECKED(frame_pool_rec(p, num)->loans == 0)) {
                p->bad_returns++;
                return false;
        }
        r = frame_pool_rec(p, num);
        r->loans--;
        WRITE_ONCE(p->loans, p->loans - 1);
        if (unlikely(num > frame_geom_total(p->geom)))
                name_end_if_idle(f, r);
        else
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
        for_each_name(p, r)
        {
                if (r->loans == 0)
                        continue;
                r->loans = 0;
                name_end_if_idle(f, r);
        }
        WRITE_ONCE(p->loans, 0);
}

void frame_pool_zero_refs(struct frame_pool *p)
{
        for_each_touched (p, c, num)
                frame_pool_rec(p, num)->refs = 0;
        for_each_name(p, r) r->refs = 0;
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
        for_each_name(p, r)
        {
                WRITE_ONCE(p->loans, p->loans + r->loans);
                if (r->owner != 0 && r->refs == 0 && r->loans == 0)
                        r->owner = 0; /* all who wait are woken */
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
