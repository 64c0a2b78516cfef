/*
 * Neighbours: made, found, aged and given up. arp.h has the picture.
 *
 * arp_resolve() -> arp_make() -> arp_ask();  arp_expire() -> entry_due();  arp_set_state() is where
 * states change.
 */
#include "arp/arp_cache.h"

#include <errno.h>

#define AGE   offsetof(struct arp_entry, age)
#define DUE   offsetof(struct arp_entry, due)
#define TIMER offsetof(struct arp_entry, timer)

/* ---- lists ---- */

static struct arp_link *link_at(const struct pool *p, uint32_t off, uint32_t idx)
{
        return (struct arp_link *)((char *)pool_at(p, idx) + off);
}

void arp_list_push(struct arp_list *l, const struct pool *p, uint32_t off, uint32_t idx)
{
        *link_at(p, off, idx) = (struct arp_link){.prev = l->tail};
        if (l->tail != 0)
                link_at(p, off, l->tail)->next = idx;
        else
                l->head = idx;
        l->tail = idx;
}

void arp_list_remove(struct arp_list *l, const struct pool *p, uint32_t off, uint32_t idx)
{
        struct arp_link k = *link_at(p, off, idx);

        if (k.prev != 0)
                link_at(p, off, k.prev)->next = k.next;
        else
                l->head = k.next;
        if (k.next != 0)
                link_at(p, off, k.next)->prev = k.prev;
        else
                l->tail = k.prev;
}

/* ---- token buckets ---- */

nstime arp_bucket_next(nstime full_at)
{
        return full_at - (ARP_BUCKET_BURST - 1) * ARP_BUCKET_INTERVAL;
}

void arp_bucket_take(nstime *full_at, nstime now)
{
        *full_at = MAX(*full_at, now) + ARP_BUCKET_INTERVAL;
}

/* ---- the cache ---- */

void arp_config_default(struct arp_config *cfg, const uint8_t mac[6])
{
        *cfg = (struct arp_config){
                .hrd = 1,
                .ll_len = 6,
                .polls = 3,
                .requests = 3,
                .reachable_time = ARP_REACHABLE_S * NS_PER_S,
                .delay_time = 5 * NS_PER_S,
                .stale_time = 600 * NS_PER_S,
                .failed_time = NS_PER_S,
                .lock_time = NS_PER_S,
        };
        memcpy(cfg->ll_addr, mac, 6);
        memset(cfg->ll_all, 0xff, 6);
}

void arp_format(struct arp_cache *c, const struct arp_config *cfg, const uint8_t seed[16],
                nstime now)
{
        uint8_t secret[16];

        assert(cfg->ll_len != 0 && cfg->ll_len <= ARP_LL_MAX);
        memset(c, 0, offsetof(struct arp_cache, entry));
        for (uint32_t i = 0; i <= ARP_ENTRIES; i++)
                c->entry[i] = (struct arp_entry){0};
        c->cfg = *cfg;
        prng_init(&c->rnd, seed);
        prng_bytes(&c->rnd, secret, sizeof secret);
        c->key = sip_key_of(secret);
        c->probed_at = now - ARP_RATE_LIMIT_INTERVAL;
        wheel_reset(&c->wheel, now);
        pool_init(&c->entries, c->entry, sizeof c->entry[0], ARP_ENTRIES + 1);
        pool_init(&c->parts, c->part, sizeof c->part[0], ARP_PARTS + 1);
}

static uint32_t *hash_head(struct arp_cache *c, uint32_t ip)
{
        static_assert((ARP_ENTRIES & (ARP_ENTRIES - 1)) == 0, "a mask");
        return &c->hash[siphash13(&c->key, &ip, sizeof ip) & (ARP_ENTRIES - 1)];
}

struct arp_entry *arp_find(const struct arp_cache *c, uint32_t ip)
{
        struct arp_cache *w = (struct arp_cache *)(uintptr_t)c;

        for (uint32_t i = *hash_head(w, ip); i != 0; i = c->entry[i].hash_next)
                if (c->entry[i].ip == ip)
                        return &w->entry[i];
        return NULL;
}

static void hash_in(struct arp_cache *c, struct arp_entry *e)
{
        uint32_t *head = hash_head(c, e->ip);

        e->hash_next = *head;
        *head = arp_index(c, e);
}

static void hash_out(struct arp_cache *c, struct arp_entry *e)
{
        uint32_t *at = hash_head(c, e->ip), i = arp_index(c, e);

        while (*at != i)
                at = &c->entry[*at].hash_next;
        *at = e->hash_next;
}

/* ---- lists of entries ---- */

/* The list whose order says which entry gives way first; NULL: this one never does. */
static struct arp_list *age_list(struct arp_cache *c, const struct arp_entry *e)
{
        if (e->state == ARP_STATIC)
                return NULL;
        if (e->state == ARP_INCOMPLETE && e->used)
                return &c->asking;
        return e->state <= ARP_FAILED || !e->used ? &c->spare : &c->inuse;
}

static void age_out(struct arp_cache *c, struct arp_entry *e, struct arp_list *l)
{
        if (l != NULL)
                arp_list_remove(l, &c->entries, AGE, arp_index(c, e));
}

static void age_in(struct arp_cache *c, struct arp_entry *e)
{
        struct arp_list *l = age_list(c, e);

        if (l != NULL)
                arp_list_push(l, &c->entries, AGE, arp_index(c, e));
}

static void arp_mark_used(struct arp_cache *c, struct arp_entry *e)
{
        age_out(c, e, age_list(c, e));
        e->used = 1;
        age_in(c, e);
}

void arp_owe(struct arp_cache *c, struct arp_entry *e, uint8_t owes)
{
        if (e->owes == 0 && owes != 0)
                arp_list_push(&c->due, &c->entries, DUE, arp_index(c, e));
        else if (e->owes != 0 && owes == 0)
                arp_list_remove(&c->due, &c->entries, DUE, arp_index(c, e));
        e->owes = owes;
}

static void set_timer(struct arp_cache *c, struct arp_entry *e, nstime at)
{
        wheel_set(&c->wheel, &c->entries, TIMER, arp_index(c, e), at);
}

/* Its turn is another's. */
static void give_token_back(struct arp_cache *c, struct arp_entry *e)
{
        if (e->token)
                c->request_full_at -= ARP_BUCKET_INTERVAL;
        e->token = 0;
}

/* ---- entries ---- */

struct arp_entry *arp_make(struct arp *a, uint32_t ip, bool ours, nstime now)
{
        struct arp_cache *c = a->c;
        uint32_t i = pool_alloc(&c->entries), gen;
        struct arp_entry *e;

        if (i == 0) {
                uint32_t victim = c->spare.head;

                if (victim == 0 && ours)
                        victim = c->asking.head != 0 ? c->asking.head : c->inuse.head;
                if (victim == 0)
                        return NULL;
                arp_free(a, &c->entry[victim]);
                i = pool_alloc(&c->entries);
        }
        e = &c->entry[i];
        gen = e->gen + 1;
        *e = (struct arp_entry){.ip = ip,
                                .gen = gen,
                                .used = ours,
                                .learnt = now,
                                .asked_at = now - ARP_REQUEST_INTERVAL};
        arp_fence();
        e->state = ARP_INCOMPLETE;
        hash_in(c, e);
        age_in(c, e);
        return e;
}

void arp_free(struct arp *a, struct arp_entry *e)
{
        struct arp_cache *c = a->c;
        uint32_t i = arp_index(c, e);

        arp_hold_drop(a, e, DROP_ARP_UNREACHABLE);
        arp_owe(c, e, 0);
        give_token_back(c, e);
        age_out(c, e, age_list(c, e));
        hash_out(c, e);
        wheel_cancel(&c->wheel, &c->entries, TIMER, i);
        e->state = ARP_FREE;
        e->gen++;
        arp_fence();
        pool_free(&c->entries, i); /* overwrites the address */
}

/* RFC 4861 §6.3.2: by chance, so that neighbours do not fall into step. */
static nstime reachable_for(struct arp_cache *c)
{
        return c->cfg.reachable_time / 2 + c->cfg.reachable_time * prng_below(&c->rnd, 1024) / 1024;
}

static nstime state_lasts(struct arp_cache *c, enum arp_state s)
{
        switch (s) {
        case ARP_FAILED:
                return c->cfg.failed_time;
        case ARP_STALE:
                return c->cfg.stale_time;
        case ARP_DELAY:
                return c->cfg.delay_time;
        case ARP_REACHABLE:
                return reachable_for(c);
        default:
                return NSTIME_NEVER; /* arp_ask() sets it */
        }
}

/* The part of `owes` that an entry still owes in its state. */
static uint8_t still_owed(const struct arp_entry *e, uint8_t owes)
{
        uint8_t held = e->held != 0 && e->state != ARP_INCOMPLETE ? ARP_OWES_HELD : 0;
        bool asks = e->state == ARP_INCOMPLETE || e->state == ARP_PROBE;

        return held | (asks ? owes & ARP_OWES_REQUEST : 0);
}

void arp_set_state(struct arp *a, struct arp_entry *e, enum arp_state state, nstime now)
{
        struct arp_cache *c = a->c;
        struct arp_list *from = age_list(c, e);
        nstime lasts = state_lasts(c, state);

        if (state == ARP_REACHABLE)
                e->confirmed = now;
        if (state == ARP_INCOMPLETE || state == ARP_PROBE)
                e->asked = 0;
        if (state < ARP_STALE && arp_known(e))
                e->gen++; /* nobody sends to it any more */
        give_token_back(c, e);
        age_out(c, e, from);
        e->state = (uint8_t)state;
        age_in(c, e);
        arp_owe(c, e, still_owed(e, e->owes));
        set_timer(c, e, lasts == NSTIME_NEVER ? NSTIME_NEVER : now + lasts);
}

void arp_learn(struct arp *a, struct arp_entry *e, const uint8_t *ll, nstime now)
{
        uint8_t next = !e->cur;

        if (arp_known(e))
                count(a->cnt, COUNT_ARP_CHANGED);
        memcpy(e->ll[next], ll, a->c->cfg.ll_len);
        e->learnt = now;
        e->gen++;
        arp_fence();
        e->cur = next;
        arp_fence();
}

/* ---- asking ---- */

static void fail(struct arp *a, struct arp_entry *e, nstime now)
{
        count(a->cnt, COUNT_ARP_FAILED);
        arp_set_state(a, e, ARP_FAILED, now);
}

/* When it is the entry's turn: once a second to a destination (RFC 1122 §2.3.2.1), and not more
 * than so many to all together. */
static nstime turn_of(struct arp_cache *c, struct arp_entry *e, nstime now)
{
        nstime at = e->asked_at + ARP_REQUEST_INTERVAL;

        if (at > now || e->token)
                return at;
        at = arp_bucket_next(c->request_full_at);
        arp_bucket_take(&c->request_full_at, now);
        e->token = 1;
        return at;
}

void arp_ask(struct arp *a, struct arp_entry *e, nstime now)
{
        struct arp_cache *c = a->c;
        nstime at = turn_of(c, e, now);

        if (at > now) {
                set_timer(c, e, at);
        } else if (arp_addr_source(c, e->ip) == 0) {
                arp_asked(a, e, now); /* nobody to answer to: in vain, as if it had been lost */
        } else {
                arp_owe(c, e, e->owes | ARP_OWES_REQUEST);
                set_timer(c, e, NSTIME_NEVER);
        }
}

void arp_asked(struct arp *a, struct arp_entry *e, nstime now)
{
        e->asked_at = now;
        e->asked++;
        e->token = 0; /* spent */
        arp_owe(a->c, e, e->owes & (uint8_t)~ARP_OWES_REQUEST);
        set_timer(a->c, e, now + ARP_REQUEST_INTERVAL);
}

/* ---- what the caller asks ---- */

static int new_neighbour(struct arp *a, uint32_t ip, nstime now, struct arp_entry **e)
{
        if (!arp_unicast(ip) || arp_addr_ours(a->c, ip) || arp_addr_broadcast(a->c, ip))
                return -EINVAL;
        if (arp_addr_source(a->c, ip) == 0)
                return -EADDRNOTAVAIL;
        *e = arp_make(a, ip, true, now);
        if (*e == NULL)
                return -ENOBUFS;
        arp_ask(a, *e, now);
        return 0;
}

static int use(struct arp *a, struct arp_entry *e, nstime now)
{
        arp_mark_used(a->c, e);
        if (e->state == ARP_FAILED) {
                if (wheel_deadline(&e->timer) > now)
                        return -EHOSTUNREACH;
                arp_set_state(a, e, ARP_INCOMPLETE, now);
                arp_ask(a, e, now);
        } else if (e->state == ARP_STALE) {
                arp_set_state(a, e, ARP_DELAY, now);
        }
        return e->state == ARP_INCOMPLETE ? -EINPROGRESS : 0;
}

int arp_resolve(struct arp *a, uint32_t ip, nstime now, struct arp_ref *ref, uint8_t *ll)
{
        struct arp_entry *e = arp_find(a->c, ip);
        int err = e == NULL ? new_neighbour(a, ip, now, &e) : 0;

        if (err == 0)
                err = use(a, e, now);
        if (err == 0)
                memcpy(ll, e->ll[e->cur & 1], a->c->cfg.ll_len);
        if (err == 0 || err == -EINPROGRESS)
                *ref = (struct arp_ref){arp_index(a->c, e), e->gen};
        return err;
}

void arp_confirm_slow(struct arp *a, struct arp_ref ref, nstime now)
{
        struct arp_entry *e = arp_at(a, ref.index);

        if (e->gen == ref.gen && e->state >= ARP_STALE && e->state < ARP_STATIC)
                arp_set_state(a, e, ARP_REACHABLE, now);
}

void arp_doubt(struct arp *a, struct arp_ref ref, nstime now)
{
        struct arp_entry *e = arp_at(a, ref.index);

        if (e->gen != ref.gen || (e->state != ARP_REACHABLE && e->state != ARP_DELAY) ||
            now - e->confirmed < ARP_REQUEST_INTERVAL)
                return;
        arp_set_state(a, e, ARP_PROBE, now);
        arp_ask(a, e, now);
}

/* ---- time ---- */

static void reachable_due(struct arp *a, struct arp_entry *e, nstime now)
{
        if (now - e->confirmed < a->c->cfg.reachable_time / 2)
                /* arp_confirm() only notes the time. */
                set_timer(a->c, e, e->confirmed + reachable_for(a->c));
        else
                arp_set_state(a, e, ARP_STALE, now);
}

/* RFC 1122 §2.3.2.1 (2): polled in vain, it is no longer taken for where it was; then it is asked
 * for among all. */
static void probe_due(struct arp *a, struct arp_entry *e, nstime now)
{
        if (e->asked >= a->c->cfg.polls)
                arp_set_state(a, e, ARP_INCOMPLETE, now);
        arp_ask(a, e, now);
}

static void entry_due(struct arp *a, struct arp_entry *e, nstime now)
{
        switch ((enum arp_state)e->state) {
        case ARP_INCOMPLETE:
                if (e->asked >= a->c->cfg.requests)
                        fail(a, e, now);
                else
                        arp_ask(a, e, now);
                break;
        case ARP_DELAY:
                arp_set_state(a, e, ARP_PROBE, now);
                arp_ask(a, e, now);
                break;
        case ARP_PROBE:
                probe_due(a, e, now);
                break;
        case ARP_REACHABLE:
                reachable_due(a, e, now);
                break;
        case ARP_FAILED:
        case ARP_STALE:
                arp_free(a, e);
                break;
        case ARP_FREE:
        case ARP_STATIC:
                break;
        }
}

nstime arp_deadline(const struct arp *a)
{
        const struct arp_cache *c = a->c;

        if (c->due.head != 0 || c->reply_head != c->reply_tail)
                return 0;
        return nstime_min(wheel_next(&c->wheel), arp_addr_deadline(c));
}

void arp_expire(struct arp *a, nstime now)
{
        struct arp_cache *c = a->c;
        uint32_t i;

        arp_addr_expire(a, now);
        while ((i = wheel_pop(&c->wheel, &c->entries, TIMER, now)) != 0)
                entry_due(a, &c->entry[i], now);
}

void arp_link_up(struct arp *a, nstime now)
{
        struct arp_cache *c = a->c;

        arp_addr_link_up(a, now);
        for (uint32_t i = 1; i < c->entries.fresh; i++) {
                struct arp_entry *e = &c->entry[i];

                if (e->state == ARP_FAILED)
                        arp_free(a, e);
                else if (e->state >= ARP_DELAY && e->state < ARP_STATIC)
                        arp_set_state(a, e, ARP_STALE, now);
        }
}

/* ---- tools ---- */

int arp_set(struct arp *a, uint32_t ip, const uint8_t *ll, bool is_static, nstime now)
{
        struct arp_entry *e = arp_find(a->c, ip);

        if (!arp_unicast(ip) || arp_addr_ours(a->c, ip))
                return -EINVAL;
        if (e == NULL)
                e = arp_make(a, ip, true, now);
        if (e == NULL)
                return -ENOBUFS;
        if (!arp_known(e) || memcmp(e->ll[e->cur & 1], ll, a->c->cfg.ll_len) != 0)
                arp_learn(a, e, ll, now);
        arp_set_state(a, e, is_static ? ARP_STATIC : ARP_STALE, now);
        return 0;
}

int arp_del(struct arp *a, uint32_t ip)
{
        struct arp_entry *e = arp_find(a->c, ip);

        if (e == NULL)
                return -ENOENT;
        arp_free(a, e);
        return 0;
}

bool arp_walk(const struct arp *a, uint32_t index, struct arp_report *r)
{
        const struct arp_entry *e = arp_at(a, index <= ARP_ENTRIES ? index : 0);
        enum arp_state state = e->state;

        if (state == ARP_FREE)
                return false;
        *r = (struct arp_report){.ip = e->ip,
                                 .state = state,
                                 .ll_len = a->c->cfg.ll_len,
                                 .used = e->used,
                                 .confirmed = e->confirmed,
                                 .held_pkts = e->held_pkts,
                                 .held_bytes = e->held_bytes};
        if (state >= ARP_STALE)
                memcpy(r->ll, e->ll[e->cur & 1], sizeof r->ll);
        return true;
}

const char *arp_state_name(enum arp_state s)
{
        static const char *const names[] = {"FREE",  "INCOMPLETE", "FAILED",    "STALE",
                                            "DELAY", "PROBE",      "REACHABLE", "STATIC"};
        return (size_t)s < ARRAY_LEN(names) ? names[s] : "?";
}

/* ---- consistency ---- */

/* When the state would have ended, as far as that is remembered; what was asked for is asked
 * for again. */
static nstime recovered_deadline(struct arp_cache *c, const struct arp_entry *e, nstime now)
{
        nstime lasts = state_lasts(c, e->state);

        if (e->state == ARP_INCOMPLETE || e->state == ARP_PROBE)
                return MAX(now, e->asked_at + ARP_REQUEST_INTERVAL);
        return lasts == NSTIME_NEVER ? NSTIME_NEVER : now + lasts;
}

static void recover_entry(struct arp_cache *c, struct arp_entry *e, nstime now)
{
        e->gen++;
        e->owes = 0;
        e->token = 0;
        e->held = e->held_last = e->held_pkts = e->held_bytes = 0;
        wheel_forget(&e->timer);
        hash_in(c, e);
        age_in(c, e);
        set_timer(c, e, recovered_deadline(c, e, now));
}

void arp_recover(struct arp *a, nstime now)
{
        static const uint64_t none[ARP_PARTS / 64 + 1];
        uint64_t live[ARP_ENTRIES / 64 + 1] = {0};
        struct arp_cache *c = a->c;

        c->spare = c->asking = c->inuse = c->due = c->held = (struct arp_list){0};
        memset(c->hash, 0, sizeof c->hash);
        wheel_reset(&c->wheel, now);
        c->request_full_at = now;
        for (uint32_t i = 1; i < c->entries.fresh; i++)
                if (c->entry[i].state != ARP_FREE)
                        live[i / 64] |= 1ull << i % 64;
        pool_rebuild(&c->entries, live);
        pool_rebuild(&c->parts, none);
        for (uint32_t i = 1; i < c->entries.fresh; i++)
                if (c->entry[i].state != ARP_FREE)
                        recover_entry(c, &c->entry[i], now);
        if (c->reply_tail - c->reply_head > ARP_REPLIES)
                c->reply_head = c->reply_tail;
        arp_addr_recover(c, now);
}

/* Asserts that a list is well linked; returns how many are in it. */
static uint32_t check_list(const struct arp_list *l, const struct pool *p, uint32_t off)
{
        uint32_t n = 0, prev = 0;

        for (uint32_t i = l->head; i != 0; i = link_at(p, off, i)->next) {
                assert(link_at(p, off, i)->prev == prev);
                assert(++n <= p->used);
                prev = i;
        }
        assert(l->tail == prev);
        return n;
}

static uint32_t check_held(const struct arp_cache *c, const struct arp_entry *e)
{
        uint32_t pkts = 0, bytes = 0, parts = 0, last = 0;

        for (uint32_t i = e->held; i != 0; last = i, i = c->part[i].next) {
                pkts++;
                bytes += c->part[i].len;
                assert(c->part[i].entry == arp_index(c, e));
                for (uint32_t k = i; k != 0; k = c->part[k].more)
                        parts++;
        }
        assert(last == e->held_last && pkts == e->held_pkts && bytes == e->held_bytes);
        assert(pkts <= ARP_HOLD_PKTS && bytes <= ARP_HOLD_BYTES);
        return parts;
}

static uint32_t check_entry(const struct arp_cache *c, const struct arp_entry *e)
{
        assert(arp_find(c, e->ip) == e && arp_unicast(e->ip));
        assert(e->state <= ARP_STATIC && e->cur <= 1 && e->owes <= 3);
        assert(e->owes == still_owed(e, e->owes));
        assert((e->held != 0 && e->state != ARP_INCOMPLETE) == !!(e->owes & ARP_OWES_HELD));
        if (e->state == ARP_STATIC)
                assert(wheel_deadline(&e->timer) == NSTIME_NEVER);
        else
                assert(wheel_deadline(&e->timer) != NSTIME_NEVER || e->owes & ARP_OWES_REQUEST);
        return check_held(c, e);
}

void arp_check(const struct arp *a)
{
        struct arp_cache *c = a->c;
        uint32_t live = 0, fixed = 0, owing = 0, parts = 0, pkts = 0, aged;

        for (uint32_t i = 1; i < c->entries.fresh; i++) {
                const struct arp_entry *e = &c->entry[i];

                if (e->state == ARP_FREE)
                        continue;
                parts += check_entry(c, e);
                live++;
                fixed += e->state == ARP_STATIC;
                owing += e->owes != 0;
                pkts += e->held_pkts;
        }
        aged = check_list(&c->spare, &c->entries, AGE) + check_list(&c->asking, &c->entries, AGE) +
               check_list(&c->inuse, &c->entries, AGE);
        assert(live == c->entries.used && live == aged + fixed);
        assert(owing == check_list(&c->due, &c->entries, DUE));
        assert(pkts == check_list(&c->held, &c->parts, offsetof(struct arp_part, age)));
        assert(parts == c->parts.used);
        assert(c->reply_tail - c->reply_head <= ARP_REPLIES);
        wheel_check(&c->wheel, &c->entries, TIMER);
        arp_addr_check(c);
}
