/*
 * Routes. RFC 1122 §3.3.1, §3.3.4. route.h has the order of a lookup.
 *
 * route_lookup() -> find_memo(), else resolve() -> resolve_link() or resolve_host() -> longest()
 * -> best_of()
 */
#include "ip/route.h"

#include <errno.h>

static void fence(void) /* the compiler moves no store across: a process may die here */
{
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static uint32_t mask_of(uint8_t prefix)
{
        return prefix == 0 ? 0 : UINT32_MAX << (32 - prefix);
}

static bool is_unicast(uint32_t a)
{
        return a >> 24 != 0 && a >> 28 < 0xe;
}

static bool is_loopback(uint32_t a)
{
        return a >> 24 == 127;
}

static bool is_group(uint32_t a)
{
        return a >> 28 == 0xe;
}

static bool is_link_local(uint32_t a) /* RFC 3927 §2.1 */
{
        return a >> 16 == 0xa9fe;
}

static void changed(struct route_table *t)
{
        if (++t->gen == 0)
                t->gen = 1; /* 0 is in memory that never held a result */
}

void route_format(struct route_table *t, const uint8_t seed[16])
{
        memset(t, 0, sizeof *t);
        t->key = sip_key_of(seed);
        t->gen = 1;
        pool_init(&t->recs, t->rec, sizeof t->rec[0], ROUTE_MAX + 1);
}

/* ---- chains, one for each (prefix, network) and what collides with it ---- */

static uint32_t *head_of(const struct route_table *t, uint32_t dst, uint8_t prefix)
{
        uint64_t k = (uint64_t)prefix << 32 | dst;

        static_assert((ROUTE_MAX & (ROUTE_MAX - 1)) == 0, "a mask");
        return &((struct route_table *)(uintptr_t)t)
                        ->hash[siphash13(&t->key, &k, sizeof k) & (ROUTE_MAX - 1)];
}

static void chain_in(struct route_table *t, uint32_t i)
{
        struct route_rec *rec = &t->rec[i];
        uint32_t *head = head_of(t, rec->r.dst, rec->r.prefix);

        rec->next = *head;
        *head = i;
        t->by_length[rec->r.prefix]++;
        t->lengths |= 1ull << rec->r.prefix;
}

static void chain_out(struct route_table *t, uint32_t i)
{
        const struct route_rec *rec = &t->rec[i];
        uint32_t *at = head_of(t, rec->r.dst, rec->r.prefix);

        while (*at != i)
                at = &t->rec[*at].next;
        *at = rec->next;
        if (--t->by_length[rec->r.prefix] == 0)
                t->lengths &= ~(1ull << rec->r.prefix);
}

/* The record with the same key; 0: none. */
static uint32_t find(const struct route_table *t, const struct route *r)
{
        if (r->prefix > 32)
                return 0;
        for (uint32_t i = *head_of(t, r->dst, r->prefix); i != 0; i = t->rec[i].next) {
                const struct route *o = &t->rec[i].r;

                if (o->dst == r->dst && o->prefix == r->prefix && o->metric == r->metric &&
                    o->ifindex == r->ifindex && o->gateway == r->gateway)
                        return i;
        }
        return 0;
}

static void remove_rec(struct route_table *t, uint32_t i)
{
        t->rec[i].live = 0;
        fence();
        chain_out(t, i);
        pool_free(&t->recs, i);
        changed(t);
}

static int insert(struct route_table *t, const struct route *r)
{
        uint32_t i;

        if (find(t, r) != 0)
                return -EEXIST;
        i = pool_alloc(&t->recs);
        if (i == 0)
                return -ENOSPC;
        t->rec[i].r = *r;
        t->rec[i].dead_until = 0;
        fence();
        t->rec[i].live = 1;
        chain_in(t, i);
        changed(t);
        return 0;
}

/* ---- interfaces and addresses ---- */

static bool if_exists(const struct route_table *t, uint32_t ifindex)
{
        return ifindex >= 1 && ifindex <= ROUTE_IFS && t->ifs[ifindex].flags != 0;
}

static bool if_up(const struct route_table *t, uint32_t ifindex)
{
        return ifindex <= ROUTE_IFS && t->ifs[ifindex].flags & ROUTE_IF_UP;
}

static bool same_network(const struct route_addr *a, uint32_t ip)
{
        return ((a->addr ^ ip) & mask_of(a->prefix)) == 0;
}

static struct route connected_route(const struct route_addr *a)
{
        return (struct route){.dst = a->addr & mask_of(a->prefix),
                              .prefix = a->prefix,
                              .ifindex = a->ifindex,
                              .flags = ROUTE_F_CONNECTED};
}

/* An address of the interface with that network; NULL: none. */
static const struct route_addr *addr_of_network(const struct route_table *t, uint32_t ifindex,
                                                uint32_t dst, uint8_t prefix)
{
        for (uint32_t i = 0; i < t->addrs; i++) {
                const struct route_addr *a = &t->addr[i];

                if (a->ifindex != 0 && a->ifindex == ifindex && a->prefix == prefix &&
                    same_network(a, dst))
                        return a;
        }
        return NULL;
}

static struct route_addr *find_addr(const struct route_table *t, uint32_t addr)
{
        for (uint32_t i = 0; i < t->addrs; i++)
                if (t->addr[i].ifindex != 0 && t->addr[i].addr == addr)
                        return (struct route_addr *)(uintptr_t)&t->addr[i];
        return NULL;
}

static void remove_addr(struct route_table *t, struct route_addr *a)
{
        struct route_addr gone = *a;
        struct route r = connected_route(&gone);
        uint32_t i;

        a->ifindex = 0;
        fence();
        if (addr_of_network(t, gone.ifindex, r.dst, r.prefix) == NULL && (i = find(t, &r)) != 0 &&
            t->rec[i].r.flags & ROUTE_F_CONNECTED)
                remove_rec(t, i);
        for (i = 1; i < t->recs.fresh; i++)
                if (t->rec[i].live && t->rec[i].r.src == gone.addr)
                        remove_rec(t, i);
        changed(t);
}

int route_if_set(struct route_table *t, uint32_t ifindex, uint8_t flags, uint32_t mtu)
{
        if (ifindex < 1 || ifindex > ROUTE_IFS || (flags != 0 && mtu < 68))
                return -EINVAL;
        for (uint32_t i = 0; flags == 0 && i < t->addrs; i++)
                if (t->addr[i].ifindex == ifindex)
                        remove_addr(t, &t->addr[i]);
        for (uint32_t i = 1; flags == 0 && i < t->recs.fresh; i++)
                if (t->rec[i].live && t->rec[i].r.ifindex == ifindex)
                        remove_rec(t, i);
        t->ifs[ifindex].mtu = mtu;
        t->ifs[ifindex].flags = flags;
        changed(t);
        return 0;
}

static int check_addr(const struct route_table *t, uint32_t ifindex, uint32_t addr, uint8_t prefix)
{
        if (!is_unicast(addr) || prefix > 32 || (prefix < 31 && addr == (addr | ~mask_of(prefix))))
                return -EINVAL;
        if (!if_exists(t, ifindex))
                return -ENODEV;
        return find_addr(t, addr) != NULL ? -EEXIST : 0;
}

/* RFC 1122 §3.3.1.1: the mask says what is on the link. */
static int add_connected(struct route_table *t, const struct route_addr *a)
{
        struct route r = connected_route(a);
        int err = a->prefix < 32 ? insert(t, &r) : 0;

        return err == -EEXIST ? 0 : err;
}

int route_addr_add(struct route_table *t, uint32_t ifindex, uint32_t addr, uint8_t prefix)
{
        int err = check_addr(t, ifindex, addr, prefix);
        struct route_addr *a = NULL, new = {addr, prefix, (uint8_t)ifindex};

        if (err != 0)
                return err;
        for (uint32_t i = 0; a == NULL && i < ROUTE_ADDRS; i++)
                if (t->addr[i].ifindex == 0)
                        a = &t->addr[i];
        if (a == NULL)
                return -ENOSPC;
        err = add_connected(t, &new);
        if (err != 0)
                return err;
        t->addrs = MAX(t->addrs, (uint32_t)(a - t->addr) + 1);
        a->addr = addr;
        a->prefix = prefix;
        fence();
        a->ifindex = (uint8_t)ifindex;
        changed(t);
        return 0;
}

int route_addr_del(struct route_table *t, uint32_t ifindex, uint32_t addr)
{
        struct route_addr *a = find_addr(t, addr);

        if (a == NULL || a->ifindex != ifindex)
                return -ENOENT;
        remove_addr(t, a);
        return 0;
}

uint32_t route_owner(const struct route_table *t, uint32_t addr)
{
        const struct route_addr *a = find_addr(t, addr);

        if (a != NULL)
                return a->ifindex;
        for (uint32_t i = 1; is_loopback(addr) && i <= ROUTE_IFS; i++)
                if (t->ifs[i].flags & ROUTE_IF_LOCAL)
                        return i;
        return 0;
}

/* RFC 3021: a network of 31 bits has none. */
static bool broadcast_of(const struct route_addr *a, uint32_t ip)
{
        return a->ifindex != 0 && a->prefix < 31 && ip == (a->addr | ~mask_of(a->prefix));
}

/* The interface on whose network it is the broadcast address; 0: none. `only`: of this one, 0: of
 * any that is up. */
static uint32_t broadcast_on(const struct route_table *t, uint32_t only, uint32_t ip)
{
        for (uint32_t i = 0; i < t->addrs; i++) {
                const struct route_addr *a = &t->addr[i];

                if (broadcast_of(a, ip) && (only == 0 ? if_up(t, a->ifindex) : a->ifindex == only))
                        return a->ifindex;
        }
        return 0;
}

/* ---- routes ---- */

/* RFC 1122 §3.3.1.2: a gateway is on a network that we are on. */
static bool gateway_on_link(const struct route_table *t, const struct route *r)
{
        for (uint32_t i = 1; i < t->recs.fresh; i++) {
                const struct route *o = &t->rec[i].r;

                if (t->rec[i].live && o->gateway == 0 && o->ifindex == r->ifindex &&
                    o->prefix != 0 && ((o->dst ^ r->gateway) & mask_of(o->prefix)) == 0)
                        return true;
        }
        return false;
}

static int check_gateway(const struct route_table *t, const struct route *r)
{
        if (r->gateway == 0)
                return 0;
        if (!is_unicast(r->gateway) || is_loopback(r->gateway) || find_addr(t, r->gateway) != NULL)
                return -EINVAL;
        return r->flags & ROUTE_F_ONLINK || gateway_on_link(t, r) ? 0 : -ENETUNREACH;
}

static int check_route(const struct route_table *t, const struct route *r)
{
        if (r->prefix > 32 || (r->dst & ~mask_of(r->prefix)) != 0 || r->type > ROUTE_BLACKHOLE ||
            r->flags & ~(ROUTE_F_ONLINK | ROUTE_F_REDIRECT) || (r->mtu != 0 && r->mtu < 68))
                return -EINVAL;
        if (r->type != ROUTE_UNICAST)
                return r->ifindex == 0 && r->gateway == 0 && r->src == 0 ? 0 : -EINVAL;
        if (!if_exists(t, r->ifindex))
                return -ENODEV;
        if (r->src != 0 && route_owner(t, r->src) == 0)
                return -EADDRNOTAVAIL;
        return check_gateway(t, r);
}

int route_add(struct route_table *t, const struct route *r)
{
        int err = check_route(t, r);

        return err != 0 ? err : insert(t, r);
}

int route_del(struct route_table *t, const struct route *r)
{
        uint32_t i = find(t, r);

        if (i == 0)
                return -ESRCH;
        if (t->rec[i].r.flags & ROUTE_F_CONNECTED)
                return -EBUSY;
        remove_rec(t, i);
        return 0;
}

bool route_walk(const struct route_table *t, uint32_t i, struct route_report *r)
{
        if (i == 0 || i > ROUTE_MAX || !t->rec[i].live)
                return false;
        *r = (struct route_report){t->rec[i].r,
                                   t->rec[i].r.ifindex == 0 || if_up(t, t->rec[i].r.ifindex),
                                   t->rec[i].dead_until};
        return true;
}

bool route_addr_walk(const struct route_table *t, uint32_t i, struct route_addr *r)
{
        if (i >= ROUTE_ADDRS || t->addr[i].ifindex == 0)
                return false;
        *r = t->addr[i];
        return true;
}

/* ---- the source ---- */

static unsigned common_bits(uint32_t a, uint32_t b)
{
        return a == b ? 32 : (unsigned)__builtin_clz(a ^ b);
}

/* The rank of a source, the rules in one number: a rule that comes first outweighs all that follow.
 * 0: never. */
static unsigned source_rank(const struct route_addr *a, uint32_t ifindex, uint32_t dst,
                            uint32_t next_hop)
{
        if (a->ifindex == 0 || is_loopback(a->addr) != is_loopback(dst))
                return 0;
        return 1u << 11 | (unsigned)(a->addr == dst) << 10 |
               (unsigned)(is_link_local(a->addr) == is_link_local(dst)) << 9 |
               (unsigned)(a->ifindex == ifindex) << 7 | (unsigned)same_network(a, next_hop) << 6 |
               common_bits(a->addr, dst);
}

uint32_t route_source(const struct route_table *t, uint32_t ifindex, uint32_t dst,
                      uint32_t next_hop)
{
        unsigned most = 0;
        uint32_t best = 0;

        for (uint32_t i = 0; i < t->addrs; i++) {
                unsigned rank = source_rank(&t->addr[i], ifindex, dst, next_hop);

                if (rank > most) {
                        most = rank;
                        best = t->addr[i].addr;
                }
        }
        return best;
}

/* ---- lookup ---- */

/* A lookup under way. */
struct query {
        const struct route_table *t;
        const struct route_key *key;
        nstime now;
        nstime until; /* when what was found out may no longer hold, as far as time is concerned */
};

static bool usable(const struct query *q, const struct route *r)
{
        if (r->type != ROUTE_UNICAST)
                return true;
        return if_up(q->t, r->ifindex) && (q->key->oif == 0 || q->key->oif == r->ifindex);
}

/* Returns true if a is to be preferred to b, both usable and of one prefix. */
static bool better(const struct query *q, const struct route_rec *a, const struct route_rec *b)
{
        bool a_dead = a->dead_until > q->now, b_dead = b->dead_until > q->now;
        bool a_src = false, b_src = false;

        if (a_dead != b_dead)
                return b_dead; /* RFC 1122 §3.3.1.5 */
        if (a->r.metric != b->r.metric)
                return a->r.metric < b->r.metric;
        if (q->key->src != 0) {
                uint32_t owner = route_owner(q->t, q->key->src);
                a_src = a->r.ifindex == owner;
                b_src = b->r.ifindex == owner;
        }
        if (a_src != b_src)
                return a_src;
        if (a->r.ifindex != b->r.ifindex)
                return a->r.ifindex < b->r.ifindex;
        return a->r.gateway < b->r.gateway;
}

/* The best route to exactly this network; NULL: none. */
static const struct route_rec *best_of(struct query *q, uint32_t dst, uint8_t prefix)
{
        const struct route_rec *best = NULL;

        for (uint32_t i = *head_of(q->t, dst, prefix); i != 0; i = q->t->rec[i].next) {
                const struct route_rec *rec = &q->t->rec[i];

                if (rec->r.dst != dst || rec->r.prefix != prefix || !usable(q, &rec->r))
                        continue;
                if (rec->dead_until > q->now)
                        q->until = nstime_min(q->until, rec->dead_until);
                if (best == NULL || better(q, rec, best))
                        best = rec;
        }
        return best;
}

/* RFC 4632 §5.1: the longest prefix. */
static const struct route_rec *longest(struct query *q, uint32_t dst)
{
        uint64_t left = q->t->lengths;

        while (left != 0) {
                uint8_t prefix = (uint8_t)(63 - __builtin_clzll(left));
                const struct route_rec *rec = best_of(q, dst & mask_of(prefix), prefix);

                if (rec != NULL)
                        return rec;
                left &= ~(1ull << prefix);
        }
        return NULL;
}

static int reject_errno(const struct route *r)
{
        static const int errs[] = {
                [ROUTE_UNICAST] = 0,
                [ROUTE_UNREACHABLE] = -EHOSTUNREACH,
                [ROUTE_PROHIBIT] = -EACCES,
                [ROUTE_BLACKHOLE] = -EINVAL,
        };
        return errs[r->type];
}

static bool can_broadcast(const struct route_table *t, uint32_t ifindex)
{
        const uint8_t both = ROUTE_IF_UP | ROUTE_IF_BROADCAST;

        return ifindex <= ROUTE_IFS && (t->ifs[ifindex].flags & both) == both;
}

/* The interface by which a limited broadcast or a group is sent; 0: none. */
static uint32_t link_for(struct query *q)
{
        const struct route_rec *rec;
        uint32_t owner = q->key->src != 0 ? route_owner(q->t, q->key->src) : 0;

        if (q->key->oif != 0)
                return can_broadcast(q->t, q->key->oif) ? q->key->oif : 0;
        if (can_broadcast(q->t, owner))
                return owner;
        rec = longest(q, q->key->dst);
        if (rec != NULL && can_broadcast(q->t, rec->r.ifindex))
                return rec->r.ifindex;
        for (uint32_t i = 1; i <= ROUTE_IFS; i++)
                if (can_broadcast(q->t, i))
                        return i;
        return 0;
}

static void answer(const struct query *q, struct route_result *res, enum route_kind kind,
                   uint32_t ifindex, uint32_t next_hop, uint32_t src)
{
        *res = (struct route_result){.next_hop = next_hop,
                                     .gen = q->t->gen,
                                     .kind = (uint8_t)kind,
                                     .ifindex = (uint8_t)ifindex,
                                     .prefix = 32};
        res->src = q->key->src != 0 ? q->key->src : src;
        if (res->src == 0)
                res->src = route_source(q->t, ifindex, q->key->dst, next_hop);
}

static int resolve_link(struct query *q, enum route_kind kind, struct route_result *res)
{
        uint32_t ifindex = link_for(q);

        if (ifindex == 0)
                return -ENETUNREACH;
        answer(q, res, kind, ifindex, q->key->dst, 0);
        return 0;
}

static int resolve_host(struct query *q, struct route_result *res)
{
        const struct route_rec *rec = longest(q, q->key->dst);

        if (rec == NULL)
                return -ENETUNREACH;
        if (rec->r.type != ROUTE_UNICAST)
                return reject_errno(&rec->r);
        answer(q, res, ROUTE_TO_HOST, rec->r.ifindex,
               rec->r.gateway != 0 ? rec->r.gateway : q->key->dst, rec->r.src);
        res->gateway = rec->r.gateway != 0;
        res->prefix = rec->r.prefix;
        res->mtu = rec->r.mtu;
        return 0;
}

static int resolve(struct query *q, struct route_result *res)
{
        uint32_t dst = q->key->dst, on;

        if ((on = route_owner(q->t, dst)) != 0) {
                answer(q, res, ROUTE_TO_LOCAL, on, dst, dst);
                return 0;
        }
        if (dst == UINT32_MAX)
                return resolve_link(q, ROUTE_TO_BROADCAST, res);
        if ((on = broadcast_on(q->t, q->key->oif, dst)) != 0 && can_broadcast(q->t, on)) {
                answer(q, res, ROUTE_TO_BROADCAST, on, dst, 0);
                return 0;
        }
        if (is_group(dst))
                return resolve_link(q, ROUTE_TO_GROUP, res);
        if (!is_unicast(dst))
                return -EINVAL;
        return is_loopback(dst) ? -ENETUNREACH : resolve_host(q, res);
}

/* ---- results remembered ---- */

static struct route_memo *memo_of(struct route_table *t, const struct route_key *key)
{
        static_assert(sizeof *key == 12 && (ROUTE_CACHE & (ROUTE_CACHE - 1)) == 0,
                      "no hole; a mask");
        return &t->memo[siphash13(&t->key, key, sizeof *key) & (ROUTE_CACHE - 1)];
}

static bool memo_holds(const struct route_table *t, const struct route_memo *m,
                       const struct route_key *key, nstime now)
{
        return m->gen == t->gen && memcmp(&m->key, key, sizeof *key) == 0 && now < m->until;
}

static void remember(struct route_memo *m, const struct query *q, const struct route_result *res)
{
        m->gen = 0;
        fence();
        m->key = *q->key;
        m->until = q->until;
        m->res = *res;
        fence();
        m->gen = q->t->gen;
}

int route_lookup(struct route_table *t, const struct route_key *key, nstime now,
                 struct route_result *res)
{
        struct query q = {t, key, now, NSTIME_NEVER};
        struct route_memo *m = memo_of(t, key);
        struct route_result found;
        int err;

        if (likely(memo_holds(t, m, key, now))) {
                *res = m->res;
                return 0;
        }
        if (key->src != 0 && route_owner(t, key->src) == 0)
                return -EADDRNOTAVAIL;
        err = resolve(&q, &found);
        if (err != 0)
                return err;
        remember(m, &q, &found);
        *res = found;
        return 0;
}

/* ---- dead gateways ---- */

void route_gateway_died(struct route_table *t, uint32_t ifindex, uint32_t gateway, nstime now)
{
        bool any = false;

        assert(gateway != 0);
        t->dead_until = now + ROUTE_DEAD_TIME;
        for (uint32_t i = 1; i < t->recs.fresh; i++) {
                struct route_rec *rec = &t->rec[i];

                if (!rec->live || rec->r.gateway != gateway || rec->r.ifindex != ifindex)
                        continue;
                any |= rec->dead_until <= now;
                rec->dead_until = now + ROUTE_DEAD_TIME;
        }
        if (any)
                changed(t);
}

/* ---- consistency ---- */

/* Returns true if a death has left the route of a change in several steps: its interface, address
 * or source is gone. */
static bool orphan(const struct route_table *t, const struct route *r)
{
        if (r->type != ROUTE_UNICAST)
                return false;
        if (!if_exists(t, r->ifindex) || (r->src != 0 && route_owner(t, r->src) == 0))
                return true;
        return r->flags & ROUTE_F_CONNECTED &&
               addr_of_network(t, r->ifindex, r->dst, r->prefix) == NULL;
}

void route_recover(struct route_table *t)
{
        uint64_t live[ROUTE_MAX / 64 + 1] = {0};

        memset(t->hash, 0, sizeof t->hash);
        memset(t->by_length, 0, sizeof t->by_length);
        memset(t->memo, 0, sizeof t->memo);
        t->lengths = 0;
        t->dead_until = 0;
        for (uint32_t i = 0; i < t->addrs; i++)
                if (t->addr[i].ifindex != 0 && !if_exists(t, t->addr[i].ifindex))
                        t->addr[i].ifindex = 0;
        for (uint32_t i = 1; i < t->recs.fresh; i++) {
                t->rec[i].live = t->rec[i].live && !orphan(t, &t->rec[i].r);
                live[i / 64] |= (uint64_t)t->rec[i].live << i % 64;
                t->dead_until = MAX(t->dead_until, t->rec[i].dead_until);
        }
        pool_rebuild(&t->recs, live);
        for (uint32_t i = 1; i < t->recs.fresh; i++)
                if (t->rec[i].live)
                        chain_in(t, i);
        for (uint32_t i = 0; i < t->addrs; i++)
                if (t->addr[i].ifindex != 0)
                        add_connected(t, &t->addr[i]);
        changed(t);
}

static void check_rec(const struct route_table *t, uint32_t i)
{
        const struct route *r = &t->rec[i].r;

        assert(r->prefix <= 32 && (r->dst & ~mask_of(r->prefix)) == 0 &&
               r->type <= ROUTE_BLACKHOLE);
        assert(!orphan(t, r));
        assert(find(t, r) == i);
}

void route_check(const struct route_table *t)
{
        uint32_t live = 0, chained = 0, lengths = 0;

        for (uint32_t i = 1; i < t->recs.fresh; i++) {
                live += t->rec[i].live;
                if (t->rec[i].live)
                        check_rec(t, i);
        }
        for (uint32_t h = 0; h < ROUTE_MAX; h++) {
                for (uint32_t i = t->hash[h]; i != 0; i = t->rec[i].next) {
                        assert(t->rec[i].live &&
                               head_of(t, t->rec[i].r.dst, t->rec[i].r.prefix) == &t->hash[h]);
                        assert(++chained <= live);
                }
        }
        for (uint32_t n = 0; n <= 32; n++) {
                lengths += t->by_length[n];
                assert((t->by_length[n] != 0) == (t->lengths >> n & 1));
        }
        for (uint32_t i = 0; i < t->addrs; i++) {
                struct route r = connected_route(&t->addr[i]);

                if (t->addr[i].ifindex != 0)
                        assert(if_exists(t, t->addr[i].ifindex) &&
                               (r.prefix == 32 || find(t, &r) != 0));
        }
        assert(live == t->recs.used && live == chained && live == lengths && t->gen != 0);
}
