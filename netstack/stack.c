/*
 * The stack's state: how a segment is laid out, how a process attaches, how channels come and go,
 * and how everything derived is made anew after a process died inside. The loop begins in
 * stack_loop.c.
 */
#include "netstack/stack_road.h"
#include "tcp/tcp_lend.h"
#include "tcp/tcp_loop.h"

#include <errno.h>
#include <sys/mman.h>

void stack_limits_default(struct stack_limits *l)
{
        *l = (struct stack_limits){
                .tcp = {.conns = 65536,
                        .listeners = 1024,
                        .txsegs = 262144,
                        .rxsegs = 262144,
                        .time_wait_max = 16384},
                .udp = {.pcbs = 4096},
                .socks = 65536,
                .chans = 64,
                .rx = {{[FRAME_SMALL] = 65536, [FRAME_LARGE] = 1024}},
                .tx = {{[FRAME_SMALL] = 16384, [FRAME_LARGE] = 512}},
        };
}

void stack_limits_large(struct stack_limits *l)
{
        stack_limits_default(l);
        l->tcp.conns = STACK_CONNS_MAX;
        l->socks = STACK_CONNS_MAX;
        l->chans = STACK_CHANS;
}

/* Offsets of everything behind struct stack_state; one place says the order. */
struct layout {
        size_t tcp, udp, socks, chan_pool, rxpool, rxframes, capture, ip, trace, netifs, igmp,
                routes, crowd, wants, holders, end;
};

static size_t take(size_t *at, size_t bytes, size_t align)
{
        size_t here = ALIGN_UP(*at, align);

        *at = here + bytes;
        return here;
}

static struct layout layout_of(const struct stack_limits *l)
{
        struct layout o;
        size_t at = sizeof(struct stack_state);

        o.tcp = take(&at, tcp_shared_bytes(&l->tcp), 4096);
        o.udp = take(&at, udp_shared_bytes(&l->udp), 4096);
        o.socks = take(&at, pool_bytes(sizeof(struct sock_rec), l->socks), 4096);
        o.chan_pool = take(&at, l->chans * ALIGN_UP(frame_pool_bytes(l->tx), 4096), 4096);
        o.rxpool = take(&at, frame_pool_bytes(l->rx), 4096);
        o.rxframes = take(&at, frame_geom_bytes(l->rx), 65536);
        o.capture = take(&at, capture_bytes(STACK_CAPTURE), 4096);
        o.ip = take(&at, sizeof(struct stack_ip), 4096);
        o.trace = take(&at, trace_bytes(STACK_TRACE), 4096);
        o.netifs = take(&at, NETIF_MAX * ALIGN_UP(sizeof(struct netif), 4096), 4096);
        o.igmp = take(&at, sizeof(struct igmp), 4096);
        o.routes = take(&at, sizeof(struct route_table), 4096);
        o.crowd = take(&at, pool_bytes(sizeof(struct crowd_waiter), STACK_CROWD), 4096);
        o.wants = take(&at, pool_bytes(sizeof(struct crowd_want), STACK_WANTS), 4096);
        o.holders = take(&at, (size_t)l->socks * sizeof(struct sock_holders), 4096);
        o.end = at;
        return o;
}

size_t stack_bytes(const struct stack_limits *l)
{
        return layout_of(l).end;
}

void stack_format(struct stack_state *st, const struct stack_limits *l, const uint8_t seed[32],
                  nstime now)
{
        struct layout o = layout_of(l);
        uint8_t secret[16];

        st->abi = STACK_ABI;
        st->bytes = o.end;
        st->tcp_off = o.tcp;
        st->udp_off = o.udp;
        st->sock_off = o.socks;
        st->rxpool_off = o.rxpool;
        st->rxframes_off = o.rxframes;
        st->capture_off = o.capture;
        st->ip_off = o.ip;
        st->trace_off = o.trace;
        st->netif_off = o.netifs;
        st->igmp_off = o.igmp;
        igmp_init(at_offset(st, o.igmp));
        st->route_off = o.routes;
        st->crowd_off = o.crowd;
        st->wants_off = o.wants;
        st->holders_off = o.holders;
        st->limits = *l;
        st->chan_pool_off = o.chan_pool;
        st->chan_room = l->chans;
        st->quiet_after = QUIET_AFTER;
        st->quiet_few = QUIET_FEW;
        st->look_at = NSTIME_NEVER;
        prng_init(&st->prng, seed);
        icmp_rate_init(&st->icmp, &st->prng);
        stack_ip_format(at_offset(st, o.ip), &st->prng);
        wheel_reset(&st->wheel, now);
        pool_init(&st->socks, at_offset(st, o.socks), sizeof(struct sock_rec), l->socks);
        pool_init(&st->sleepers, at_offset(st, o.crowd), sizeof(struct crowd_waiter), STACK_CROWD);
        pool_init(&st->wants, at_offset(st, o.wants), sizeof(struct crowd_want), STACK_WANTS);
        frame_pool_init(at_offset(st, o.rxpool), l->rx);
        capture_init(at_offset(st, o.capture), STACK_CAPTURE);
        trace_init(at_offset(st, o.trace), STACK_TRACE);
        prng_bytes(&st->prng, secret, sizeof secret);
        tcp_shared_init(at_offset(st, o.tcp), &l->tcp, secret);
        prng_bytes(&st->prng, secret, sizeof secret);
        udp_shared_init(at_offset(st, o.udp), &l->udp, secret);
        prng_bytes(&st->prng, secret, sizeof secret);
        route_format(at_offset(st, o.routes), secret);
        st->magic = STACK_MAGIC;
}

/* ---- a process's view ---- */

#define LIMIT_MAX (1u << 24) /* far above what anybody wants, and nothing below overflows */

static bool limits_possible(const struct stack_limits *l)
{
        const uint32_t all[] = {l->tcp.conns,
                                l->tcp.listeners,
                                l->tcp.txsegs,
                                l->tcp.rxsegs,
                                l->udp.pcbs,
                                l->udp.errors,
                                l->socks,
                                l->rx.count[FRAME_SMALL],
                                l->rx.count[FRAME_LARGE],
                                l->tx.count[FRAME_SMALL],
                                l->tx.count[FRAME_LARGE]};

        for (size_t i = 0; i < ARRAY_LEN(all); i++)
                if (all[i] > LIMIT_MAX)
                        return false;
        return l->chans <= STACK_CHANS;
}

static bool laid_out(const struct stack_state *st, const struct stack_limits *l,
                     const struct layout *o)
{
        return st->tcp_off == o->tcp && st->udp_off == o->udp && st->sock_off == o->socks &&
               st->rxpool_off == o->rxpool && st->rxframes_off == o->rxframes &&
               st->capture_off == o->capture && st->ip_off == o->ip && st->trace_off == o->trace &&
               st->netif_off == o->netifs && st->igmp_off == o->igmp &&
               st->route_off == o->routes && st->crowd_off == o->crowd &&
               st->wants_off == o->wants && st->holders_off == o->holders &&
               st->chan_pool_off == o->chan_pool &&
               pool_is(&st->sleepers, at_offset(st, o->crowd), sizeof(struct crowd_waiter),
                       STACK_CROWD) &&
               pool_is(&st->wants, at_offset(st, o->wants), sizeof(struct crowd_want),
                       STACK_WANTS) &&
               pool_is(&st->socks, at_offset(st, o->socks), sizeof(struct sock_rec), l->socks) &&
               tcp_shared_is(at_offset(st, o->tcp), &l->tcp) &&
               udp_shared_is(at_offset(st, o->udp), &l->udp);
}

/* A process may have written anything into it before it died: who maps it next must not follow that
 * out of it. */
static bool state_is_ours(const struct stack_state *st, size_t bytes)
{
        struct stack_limits limits;
        struct layout o;

        if (bytes < sizeof *st || st->magic != STACK_MAGIC || st->abi != STACK_ABI ||
            st->bytes > bytes)
                return false;
        limits = st->limits;
        if (!limits_possible(&limits))
                return false;
        o = layout_of(&limits);
        return o.end == st->bytes && laid_out(st, &limits, &o);
}

static void give_back(void *arg, uint32_t chan, uint32_t num)
{
        struct stack *s = arg;
        struct stack_chan *c = &s->chan[chan];

        if (c->ops == NULL)
                return;
        stack_heat(s->st, chan);
        c->ops->release(c->ch, &num, 1);
}

static void uncharge(void *arg, uint32_t owner, uint32_t bytes)
{
        struct stack *s = arg;

        tcp_uncharge(&s->tcp, owner, bytes);
}

static void fed(void *arg, uint32_t region)
{
        struct stack *s = arg;

        stack_frame_came(s, frame_region_chan(region));
}

int stack_view_init(struct stack *s, struct stack_state *st, size_t bytes, struct bell *bell)
{
        struct frames *f;

        if (!state_is_ours(st, bytes))
                return -EPROTO;
        f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (f == MAP_FAILED)
                return -ENOMEM;
        memset(s, 0, offsetof(struct stack, chan));
        memset(&s->nchan, 0, sizeof *s - offsetof(struct stack, nchan));
        s->st = st;
        s->frames = f;
        s->bell = bell;
        s->look_at = NSTIME_NEVER;
        s->capture = at_offset(st, st->capture_off);
        s->trace = at_offset(st, st->trace_off);
        s->ip = at_offset(st, st->ip_off);
        s->igmp = at_offset(st, st->igmp_off);
        s->routes = at_offset(st, st->route_off);
        f->give_back = give_back;
        f->uncharge = uncharge;
        f->fed = fed;
        f->arg = s;
        f->region[FRAME_REGION_PRIVATE] =
                (struct frame_region){.base = at_offset(st, st->rxframes_off),
                                      .pool = at_offset(st, st->rxpool_off),
                                      .geom = st->limits.rx};
        stack_loop_init(s);
        return 0;
}

void stack_view_fini(struct stack *s)
{
        assert(s->frames != NULL);
        munmap(s->frames, sizeof *s->frames);
}

void stack_set_addrs(struct stack_state *st, const ip_addr *addrs, uint32_t n)
{
        st->naddr = 0;
        for (uint32_t i = 0; i < n && st->naddr < STACK_ADDRS; i++)
                if (ip_addr_is_v4(addrs[i]))
                        st->addr[st->naddr++] =
                                (struct ip_ifaddr){.addr = ip_addr_get_v4(addrs[i]), .prefix = 32};
}

/* ---- channels ---- */

static int chan_claim(struct stack_state *st, uint32_t k, uint32_t peer, struct frame_geom tx,
                      struct frame_geom rx)
{
        struct chan_slot *c = &st->chan[k];

        if (k >= st->limits.chans || tx.count[FRAME_SMALL] > st->limits.tx.count[FRAME_SMALL] ||
            tx.count[FRAME_LARGE] > st->limits.tx.count[FRAME_LARGE])
                return -EINVAL;
        if (atomic_load_explicit(&c->state, memory_order_relaxed) != CHAN_FREE)
                return -EBUSY;
        c->peer = peer;
        c->netif = 0;
        c->remote = 0;
        c->names = st->has_memory != 0 && frame_chan_may_name(k) ? STACK_NAMES_OUT : 0;
        c->starved = 0;
        c->generation++;
        c->shm = (struct shm_shared){.tx_geom = tx, .rx_geom = rx};
        frame_pool_init(stack_chan_pool(st, k), tx);
        stack_chan_pool(st, k)->sent = 1;
        return 0;
}

static void chan_publish(struct stack_state *st, uint32_t k)
{
        assert(k < st->limits.chans);
        assert(atomic_load_explicit(&st->chan[k].state, memory_order_relaxed) == CHAN_FREE);
        if (k >= atomic_load_explicit(&st->chans, memory_order_relaxed))
                atomic_store_explicit(&st->chans, k + 1, memory_order_relaxed);
        stack_heat(st, k);
        atomic_store_explicit(&st->chan[k].state, CHAN_READY, memory_order_release);
        atomic_fetch_add_explicit(&st->chan_gen, 1, memory_order_release);
}

int stack_chan_add(struct stack_state *st, uint32_t k, uint32_t peer, uint32_t peer_uid,
                   struct frame_geom tx, struct frame_geom rx)
{
        int err = chan_claim(st, k, peer, tx, rx);

        if (err != 0)
                return err;
        st->chan[k].peer_uid = peer_uid;
        chan_publish(st, k);
        return 0;
}

int stack_remote_add(struct stack_state *st, uint32_t k, uint32_t peer, uint32_t remote,
                     struct ip_ifaddr own, struct frame_geom tx, struct frame_geom rx)
{
        int err = chan_claim(st, k, peer, tx, rx);

        assert(remote != 0);
        if (err != 0)
                return err;
        st->chan[k].remote = remote;
        st->chan[k].own = own;
        chan_publish(st, k);
        return 0;
}

struct netif *stack_netif(const struct stack_state *st, uint32_t i)
{
        assert(i < NETIF_MAX);
        return at_offset(st, st->netif_off + i * ALIGN_UP(sizeof(struct netif), 4096));
}

/* The first interface that no channel has, or that was never used; NETIF_MAX: there is none. */
static uint32_t netif_free(const struct stack_state *st)
{
        for (uint32_t i = 0; i < st->netifs; i++)
                if (stack_netif(st, i)->chan == 0)
                        return i;
        return st->netifs;
}

int stack_netif_add(struct stack_state *st, uint32_t k, uint32_t peer,
                    const struct netif_config *cfg, struct frame_geom tx, struct frame_geom rx,
                    const uint8_t seed[16], nstime now)
{
        uint32_t i = netif_free(st);
        struct netif *n;
        struct arp_config arp_cfg;
        struct counters cnt;
        struct arp a;
        int err;

        assert(cfg->mtu != 0 && cfg->prefix <= 32);
        if (i == NETIF_MAX)
                return -ENOSPC;
        err = chan_claim(st, k, peer, tx, rx);
        if (err != 0)
                return err;
        n = stack_netif(st, i);
        WRITE_ONCE(n->chan, k + 1);
        n->routed = false;
        n->cfg = *cfg;
        if (n->cfg.ifindex == 0)
                n->cfg.ifindex = (uint8_t)(i + 1);
        n->cfg.mtu_max = MAX(cfg->mtu_max, cfg->mtu);
        n->addr = (struct ip_ifaddr){cfg->addr, cfg->prefix};
        arp_config_default(&arp_cfg, cfg->mac);
        arp_format(&n->arp, &arp_cfg, seed, now);
        /* unetd has probed for the address when it took the interface up: it is announced
         * and defended. */
        a = (struct arp){&n->arp, &cnt};
        err = arp_addr_add(&a, cfg->addr, cfg->prefix, false, now);
        if (err != 0)
                return err;
        st->chan[k].shm.pos = shm_pos_begin(cfg->serial);
        st->chan[k].netif = i + 1;
        st->chan[k].peer_uid = 0;
        WRITE_ONCE(st->netifs, MAX(st->netifs, i + 1));
        chan_publish(st, k);
        return 0;
}

bool stack_netif_move(struct stack *s, uint32_t k, const struct netif_config *cfg,
                      struct frame_geom rx)
{
        struct chan_slot *slot = &s->st->chan[k];
        struct netif *n = stack_netif(s->st, slot->netif - 1);

        assert(k < STACK_CHANS && slot->netif != 0);
        if (n->cfg.serial == cfg->serial)
                return false;
        s->frames->region[FRAME_REGION_TX(k)].pool = stack_chan_pool(s->st, k);
        frame_unlend_all(s->frames, FRAME_REGION_TX(k));
        slot->shm = (struct shm_shared){
                .pos = shm_pos_begin(cfg->serial), .tx_geom = slot->shm.tx_geom, .rx_geom = rx};
        if (memcmp(n->cfg.mac, cfg->mac, ETHER_MAC) != 0)
                stack_route_mac(s, n, cfg->mac, stack_time(s, s->now));
        n->cfg = *cfg;
        n->cfg.mtu_max = MAX(cfg->mtu_max, cfg->mtu);
        s->st->net_gen = 0; /* the link may have changed since it was asked what it is */
        slot->generation++;
        atomic_fetch_add_explicit(&s->st->chan_gen, 1, memory_order_release);
        tcp_frames_back(&s->tcp, FRAME_REGION_TX(k));
        return true;
}

/* Field by field, since some are looked at without the lock. */
static void set_view(struct stack_chan *c, const struct stack_chan *to)
{
        WRITE_ONCE(c->ch, NULL);
        c->ops = to->ops;
        c->caps = to->caps;
        c->generation = to->generation;
        WRITE_ONCE(c->remote, to->remote);
        c->stranger = to->stranger;
        c->netif = to->netif;
        WRITE_ONCE(c->outside, to->outside);
        WRITE_ONCE(c->wire, to->wire);
        WRITE_ONCE(c->copied, to->copied);
        /* Release: the channel is ready for stack_chan_peek(). */
        __atomic_store_n(&c->ch, to->ch, __ATOMIC_RELEASE);
}

void stack_chan_mapped(struct stack *s, uint32_t k, struct unet_chan *ch, uint8_t *tx_frames,
                       const uint8_t *rx_frames)
{
        struct chan_slot *slot = &s->st->chan[k];
        struct stack_chan c = {.ops = ch->ops,
                               .ch = ch,
                               .caps = ch->caps,
                               .generation = slot->generation,
                               .remote = slot->remote != 0,
                               .outside = slot->remote != 0 || slot->netif != 0,
                               .wire = slot->netif != 0 && !ch->caps.shared,
                               .copied = ch->caps.copied,
                               .stranger = slot->remote != 0 ||
                                           (slot->netif == 0 && slot->peer_uid != s->st->uid)};

        assert(k < STACK_CHANS && ch->ops != NULL);
        s->frames->region[FRAME_REGION_TX(k)] = (struct frame_region){
                .base = tx_frames, .pool = stack_chan_pool(s->st, k), .geom = slot->shm.tx_geom};
        s->frames->region[FRAME_REGION_RX(k)] = (struct frame_region){
                .base = (uint8_t *)(uintptr_t)rx_frames, .geom = slot->shm.rx_geom};
        if (unlikely(slot->names & STACK_NAMES_OUT))
                s->frames->region[FRAME_REGION_NAMED(FRAME_REGION_TX(k))].pool =
                        stack_chan_pool(s->st, k);
        if (slot->netif !=
            0) { /* an interface's frames are copied when they are sent, unless a bridge does it */
                s->frames->region[FRAME_REGION_TX(k)].pool->sent = ch->caps.shared;
                c.netif.nif = stack_netif(s->st, slot->netif - 1);
                c.netif.arp = (struct arp){&c.netif.nif->arp, &s->st->cnt};
                c.caps.mtu = c.netif.nif->cfg.mtu;
                c.caps.inline_max -= ETHER_HDR;
        }
        set_view(&s->chan[k], &c);
        /* Flows that were learnt of another peer do not hold for this one. */
        memset(s->flow, 0, sizeof s->flow);
        WRITE_ONCE(s->nchan, MAX(s->nchan, k + 1));
}

void stack_chan_named(struct stack *s, uint32_t k, const uint8_t *memory)
{
        struct frame_geom g = s->st->chan[k].shm.rx_geom;

        assert(frame_chan_may_name(k));
        s->frames->region[FRAME_REGION_NAMED(FRAME_REGION_RX(k))] = (struct frame_region){
                .base = (uint8_t *)(uintptr_t)memory - frame_named_at(g), .geom = g};
}

void stack_chan_unmapped(struct stack *s, uint32_t k)
{
        assert(k < STACK_CHANS);
        set_view(&s->chan[k], &(struct stack_chan){0});
        s->frames->region[FRAME_REGION_TX(k)].base = NULL;
        s->frames->region[FRAME_REGION_RX(k)].base = NULL;
}

bool stack_chan_map(struct stack *s, uint32_t k)
{
        assert(k < STACK_CHANS);
        if (likely(s->chan[k].ops != NULL && s->chan[k].generation == s->st->chan[k].generation))
                return true;
        return s->map_chan != NULL && s->map_chan(s, k);
}

struct stack_chan *stack_chan_get(struct stack *s, uint32_t k)
{
        if (k >= STACK_CHANS || !chan_is_open(&s->st->chan[k]))
                return NULL;
        if (unlikely(!stack_chan_map(s, k)))
                return NULL;
        stack_heat(s->st, k);
        return &s->chan[k];
}

void stack_chan_down(struct stack *s, uint32_t k, nstime now)
{
        struct chan_slot *slot = &s->st->chan[k];

        assert(k < STACK_CHANS);
        if (!chan_is_open(slot))
                return;
        now = stack_time(s, now);
        stack_heat(s->st, k);
        stack_last_words(s, k);
        if (slot->netif !=
            0) { /* a host that is told nothing repeats itself for a quarter of an hour */
                tcp_chan_leave(&s->tcp, (uint16_t)k, ENETDOWN);
                stack_flush(s, now);
        }
        atomic_store_explicit(&slot->state, CHAN_DOWN, memory_order_release);
        tcp_chan_down(&s->tcp, (uint16_t)k, slot->netif != 0 ? ENETDOWN : ECONNRESET, now);
        if (s->frames->region[FRAME_REGION_TX(k)].pool != NULL)
                frame_unlend_all(s->frames, FRAME_REGION_TX(k));
        stack_flush(s, now);
        atomic_fetch_add_explicit(&s->st->chan_gen, 1, memory_order_release);
}

static bool has_datagrams(struct stack *s)
{
        for (uint32_t i = 1; i < udp_pcb_cap(&s->udp); i++) {
                struct udp_report r;
                if (udp_get_report(&s->udp, i, &r) && r.queued != 0)
                        return true;
        }
        return false;
}

static bool has_corked(const struct stack *s)
{
        FOR_SOCKS (s->st, i, rec)
                if (rec->corked[0] != 0)
                        return true;
        return false;
}

/* Frames of ours that are queued or with the peer. */
static bool has_frames(const struct stack *s, uint32_t k)
{
        const struct frame_pool *p = stack_chan_pool(s->st, k);
        uint32_t n = p->loans;

        for (int c = 0; c < FRAME_CLASSES; c++)
                n += p->used[c];
        return n != 0;
}

void stack_chans_used(struct stack *s, uint64_t used[STACK_CHANS / 64])
{
        memset(used, has_datagrams(s) || has_corked(s) ? 0xff : 0, STACK_CHANS / 8);
        for (uint32_t k = 0; k < STACK_CHANS; k++)
                if (chan_is_open(&s->st->chan[k]) && has_frames(s, k))
                        used[k / 64] |= (uint64_t)1 << (k % 64);
        for_each_conn (&s->tcp, tc) {
                uint32_t k = tc->tuple.chan;
                if (k < STACK_CHANS && (tc->state != TCPS_TIME_WAIT || tc->sock != 0))
                        used[k / 64] |= (uint64_t)1 << (k % 64);
        }
}

void stack_chan_yield(struct stack *s, uint32_t k, bool yields)
{
        uint32_t from = yields ? CHAN_READY : CHAN_YIELDS;

        assert(k < STACK_CHANS);
        atomic_compare_exchange_strong(&s->st->chan[k].state, &from,
                                       yields ? CHAN_YIELDS : CHAN_READY);
}

/* Returns true if a connection or queued datagram may still refer to the channel or its frames. */
static bool chan_in_use(struct stack *s, uint32_t k)
{
        if (tcp_chan_lent(&s->tcp, k))
                return true;
        for_each_conn (&s->tcp, tc)
                if (tc->tuple.chan == k)
                        return true;
        return has_datagrams(s);
}

/* Sockets that were connected by it find their peer anew: its number may be another's soon. */
static void forget_peers(struct stack *s, uint32_t k)
{
        FOR_SOCKS (s->st, i, rec)
                if (READ_ONCE(rec->chan) == k + 1)
                        WRITE_ONCE(rec->chan, SOCK_CHAN_GONE);
}

bool stack_chan_free(struct stack *s, uint32_t k)
{
        struct chan_slot *slot = &s->st->chan[k];

        assert(k < STACK_CHANS);
        if (atomic_load_explicit(&slot->state, memory_order_relaxed) != CHAN_DOWN)
                return true;
        if (chan_in_use(s, k))
                return false;
        forget_peers(s, k);
        if (slot->netif != 0) {
                igmp_if_gone(s->igmp, slot->netif - 1);
                WRITE_ONCE(stack_netif(s->st, slot->netif - 1)->chan, 0);
        }
        stack_cool(s->st, k);
        atomic_store_explicit(&slot->state, CHAN_FREE, memory_order_release);
        atomic_fetch_add_explicit(&s->st->chan_gen, 1, memory_order_release);
        return true;
}

struct tcp_link stack_tcp_link(struct stack *s, uint32_t k)
{
        const struct unet_caps *caps = &s->chan[k].caps;
        uint32_t mss = caps->mtu - IP_MIN_HDR - TCP_MIN_HDR;

        assert(k < STACK_CHANS);
        return (struct tcp_link){
                .tx_region = FRAME_REGION_TX(k),
                .mss = (uint16_t)MIN(mss, 65535 - IP_MIN_HDR - TCP_MIN_HDR),
                .csum = caps->csum,
                .lossless = caps->lossless,
                .rto_min = caps->rto_min,
        };
}
