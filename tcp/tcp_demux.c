/*
 * Which connection, which listener: tables of indices keyed with the stack's secret, chains through
 * the records.
 *
 * Most segments belong to connections that had one lately: a small table by ports is looked at
 * before the hash is computed. All of this is derived: demux_clear() and demux_add() make it anew.
 *
 * The table of connections grows with them by linear hashing (Litwin, 1980): one more bucket for
 * each connection that there is no bucket for, which takes its part of one other chain. So a stack
 * with few connections touches few pages, and nobody waits while a table of a million is made anew.
 */
#include "base/siphash.h"
#include "tcp/tcp_answers.h"
#include "tcp/tcp_conn.h"
#include "tcp/tcp_life.h"

static uint32_t *conn_buckets(const struct tcp_shared *sh)
{
        return (uint32_t *)((char *)(uintptr_t)sh + sh->conn_hash_off);
}

static uint32_t *listen_buckets(const struct tcp_shared *sh)
{
        return (uint32_t *)((char *)(uintptr_t)sh + sh->listen_hash_off);
}

/* A function that a stranger cannot predict, so that nobody can fill one chain. */
static uint64_t hash_of(const struct tcp_shared *sh, const struct tcp_tuple *tuple)
{
        struct sip_key key = sip_key_of(sh->secret);
        uint64_t words[] = {
                tuple->laddr.w[0], tuple->laddr.w[1], tuple->raddr.w[0], tuple->raddr.w[1],
                (uint64_t)tuple->chan << 32 | (uint64_t)tuple->lport << 16 | tuple->rport};

        return siphash13(&key, words, sizeof words);
}

static bool same_tuple(const struct tcp_tuple *a, const struct tcp_tuple *b)
{
        return a->rport == b->rport && a->lport == b->lport && a->chan == b->chan &&
               ip_addr_eq(a->raddr, b->raddr) && ip_addr_eq(a->laddr, b->laddr);
}

/* Linear hashing with n buckets, where 2^k <= n < 2^(k+1): the low k + 1 bits of the hash name the
 * bucket or, if there is none yet, the low k. */
static uint32_t *bucket_of(const struct tcp_shared *sh, uint32_t hash)
{
        uint32_t n = sh->conn_hash_n, half = 1u << (31 - __builtin_clz(n));
        uint32_t b = hash & (2 * half - 1);

        return &conn_buckets(sh)[b < n ? b : b - half];
}

static struct tcp_recent *recent_of(struct tcp_shared *sh, const struct tcp_tuple *tuple)
{
        return &sh->recent[(tuple->chan + tuple->lport + tuple->rport) % TCP_RECENT];
}

static uint32_t ports_of(const struct tcp_tuple *tuple)
{
        return (uint32_t)tuple->lport << 16 | tuple->rport;
}

struct tcp_conn *demux_find(const struct tcp *t, const struct tcp_tuple *tuple)
{
        struct tcp_shared *sh = t->sh;
        struct tcp_recent *recent = recent_of(sh, tuple);
        uint32_t i = recent->conn;

        if (likely(i != 0 && recent->ports == ports_of(tuple)) &&
            same_tuple(&conn_at(t, i)->tuple, tuple))
                return conn_at(t, i);
        for (i = *bucket_of(sh, (uint32_t)hash_of(sh, tuple)); i != 0;
             i = conn_at(t, i)->hash_next) {
                if (same_tuple(&conn_at(t, i)->tuple, tuple)) {
                        *recent = (struct tcp_recent){i, ports_of(tuple)};
                        return conn_at(t, i);
                }
        }
        return NULL;
}

/* Adds a bucket, and moves what belongs in it from the chain that had it. */
static void grow(struct tcp *t)
{
        struct tcp_shared *sh = t->sh;
        uint32_t n = sh->conn_hash_n, from = n - (1u << (31 - __builtin_clz(n))),
                 i = conn_buckets(sh)[from], next;
        uint32_t *kept = &conn_buckets(sh)[from], *moved = &conn_buckets(sh)[n];

        sh->conn_hash_n = n + 1;
        for (; i != 0; i = next) {
                uint32_t **to =
                        bucket_of(sh, conn_at(t, i)->hash) == &conn_buckets(sh)[n] ? &moved : &kept;
                next = conn_at(t, i)->hash_next;
                **to = i;
                *to = &conn_at(t, i)->hash_next;
        }
        *kept = *moved = 0;
}

void demux_add(struct tcp *t, struct tcp_conn *tc)
{
        uint32_t *head;

        assert(tc->live && tc->self != 0);
        if (t->sh->conns.used > t->sh->conn_hash_n && t->sh->conn_hash_n < t->sh->conn_hash_max)
                grow(t);
        tc->hash = (uint32_t)hash_of(t->sh, &tc->tuple);
        head = bucket_of(t->sh, tc->hash);

        tc->hash_next = *head;
        *head = tc->self;
        *recent_of(t->sh, &tc->tuple) = (struct tcp_recent){tc->self, ports_of(&tc->tuple)};
        if (t->answers != NULL)
                t->answers->count(t->arg, &tc->tuple, 1);
}

void demux_remove(struct tcp *t, struct tcp_conn *tc)
{
        struct tcp_recent *recent = recent_of(t->sh, &tc->tuple);
        uint32_t *at = bucket_of(t->sh, tc->hash);

        if (recent->conn == tc->self)
                recent->conn = 0;
        while (*at != 0 && *at != tc->self)
                at = &conn_at(t, *at)->hash_next;
        if (*at == tc->self) {
                *at = tc->hash_next;
                if (t->answers != NULL)
                        t->answers->count(t->arg, &tc->tuple, -1);
        }
        tc->hash_next = 0;
}

void tcp_count_all(struct tcp *t, uint16_t chan)
{
        for (uint32_t b = 0; b < t->sh->conn_hash_n; b++)
                for (uint32_t i = conn_buckets(t->sh)[b]; i != 0; i = conn_at(t, i)->hash_next)
                        if (conn_at(t, i)->tuple.chan == chan)
                                t->answers->count(t->arg, &conn_at(t, i)->tuple, 1);
}

static uint32_t *listen_bucket(const struct tcp_shared *sh, uint16_t port)
{
        return &listen_buckets(sh)[(port * 0x9e3779b1u >> 16) & sh->listen_hash_mask];
}

/* The first listener at the port from index i of a chain on. */
static struct tcp_listener *port_from(const struct tcp *t, uint32_t i, uint16_t port)
{
        for (; i != 0; i = tcp_listener_at(t, i)->hash_next)
                if (tcp_listener_at(t, i)->port == port)
                        return tcp_listener_at(t, i);
        return NULL;
}

static struct tcp_listener *addr_from(const struct tcp *t, uint32_t i, ip_addr addr, uint16_t port)
{
        struct tcp_listener *l = port_from(t, i, port);

        while (l != NULL && !ip_addr_eq(l->addr, addr))
                l = port_from(t, l->hash_next, port);
        return l;
}

struct tcp_listener *demux_listener_at(const struct tcp *t, uint16_t port)
{
        return port_from(t, *listen_bucket(t->sh, port), port);
}

struct tcp_listener *demux_listener_next(const struct tcp *t, const struct tcp_listener *l)
{
        return port_from(t, l->hash_next, l->port);
}

/* The next that shares address and port with it. */
static struct tcp_listener *next_sharing(const struct tcp *t, const struct tcp_listener *l)
{
        return addr_from(t, l->hash_next, l->addr, l->port);
}

/* Chooses one of the listeners that share, of which `l` is the first. Linux's
 * reuseport_select_sock(), without a program that selects. */
static struct tcp_listener *choose(const struct tcp *t, struct tcp_listener *l,
                                   const struct tcp_tuple *tuple)
{
        for (uint64_t skip = (hash_of(t->sh, tuple) >> 32) * l->sharing >> 32; skip > 0; skip--)
                l = next_sharing(t, l);
        return l;
}

enum { NO_MATCH, ANY_OF_IPV6, ANY_OF_IPV4, EXACT };

static int match(const struct tcp_listener *l, const struct tcp_tuple *tuple)
{
        if (l->port != tuple->lport)
                return NO_MATCH;
        if (ip_addr_eq(l->addr, tuple->laddr))
                return EXACT;
        if (!ip_addr_is_any(l->addr))
                return NO_MATCH;
        return ip_addr_is_v4(l->addr) ? ANY_OF_IPV4 : ANY_OF_IPV6;
}

/* The one bound to the address is preferred to the one bound to any (RFC 9293 §3.9.1.1). As in
 * Linux, any of IPv4 is preferred to any of IPv6. Those two are the same but to listeners with
 * SO_REUSEPORT. */
struct tcp_listener *demux_listener(const struct tcp *t, const struct tcp_tuple *tuple)
{
        struct tcp_listener *best = NULL;
        int score = NO_MATCH;

        for (uint32_t i = *listen_bucket(t->sh, tuple->lport); i != 0 && score != EXACT;) {
                struct tcp_listener *l = tcp_listener_at(t, i);
                int m = match(l, tuple);

                if (m > score) {
                        best = l;
                        score = m;
                }
                i = l->hash_next;
        }
        return likely(best == NULL || best->sharing == 1) ? best : choose(t, best, tuple);
}

static void set_sharing(struct tcp *t, const struct tcp_listener *l, uint32_t n)
{
        uint32_t head = *listen_bucket(t->sh, l->port);

        for (struct tcp_listener *s = addr_from(t, head, l->addr, l->port); s != NULL;
             s = next_sharing(t, s))
                s->sharing = n;
}

void demux_add_listener(struct tcp *t, struct tcp_listener *l)
{
        uint32_t *head = listen_bucket(t->sh, l->port);
        const struct tcp_listener *other = addr_from(t, *head, l->addr, l->port);

        assert(l->live && l->self != 0);
        l->hash_next = *head;
        *head = l->self;
        set_sharing(t, l, other != NULL ? other->sharing + 1 : 1);
}

void demux_remove_listener(struct tcp *t, struct tcp_listener *l)
{
        uint32_t *at = listen_bucket(t->sh, l->port);

        assert(l->sharing != 0);
        while (*at != 0 && *at != l->self)
                at = &tcp_listener_at(t, *at)->hash_next;
        if (*at == l->self)
                *at = l->hash_next;
        set_sharing(t, l, l->sharing - 1);
}

void demux_clear(struct tcp *t)
{
        struct tcp_shared *sh = t->sh;

        sh->conn_hash_n = MIN(CONN_BUCKETS_FIRST, sh->conn_hash_max);
        memset(conn_buckets(sh), 0, sizeof(uint32_t) * sh->conn_hash_n);
        memset(listen_buckets(sh), 0, sizeof(uint32_t) * (sh->listen_hash_mask + 1));
        memset(sh->recent, 0, sizeof sh->recent);
}
