/* A bridge's life: opening, stacks that join and leave, waking and sleeping. The moving is in
 * gate_io.c. See gate.h. */
#include "unetd/bridge/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "arp/ether.h"
#include "base/memfd.h"
#include "unet/bell_fd.h"
#include "unetd/client/wire.h"

#define LINGER (20 * NS_PER_US) /* it looks so long before it sleeps */

/* ---- opening ---- */

static struct gate *gate_of(struct loop_source *s, size_t at)
{
        return (struct gate *)((char *)s - at);
}

static void wire_ready(struct loop_source *s, uint32_t events)
{
        gate_of(s, offsetof(struct gate, wire))->awake = true;
}

static void rang(struct loop_source *s, uint32_t events)
{
        struct gate *g = gate_of(s, offsetof(struct gate, rings));

        if (bell_drain_rights(s->fd, g->closes))
                g->awake = true;
}

static int make_bell(struct gate *g)
{
        int fd;

        g->bell_fd = unet_memfd_make_sealed("unet-gate-bell", BELL_BYTES);
        if (g->bell_fd < 0)
                return g->bell_fd;
        g->bell = unet_memfd_map(g->bell_fd, BELL_BYTES, true, NULL);
        if (g->bell == NULL)
                return -ENOMEM;
        fd = bell_make();
        g->rings = (struct loop_source){.fd = fd, .ready = rang};
        return fd < 0 ? fd : bell_hold(g->bell_fd);
}

static int make_tables(struct gate *g, uint8_t prefix, nstime now)
{
        struct arp_config cfg;
        struct arp arp;
        uint8_t seed[64];

        g->flows = mmap(NULL, sizeof *g->flows, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        g->rx = mmap(NULL, GATE_BATCH * GATE_ROOM, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        g->cache = calloc(1, sizeof *g->cache);
        if (g->flows == MAP_FAILED || g->rx == MAP_FAILED || g->cache == NULL)
                return -ENOMEM;
        if (getrandom(seed, sizeof seed, 0) != sizeof seed)
                return -EIO;
        gate_flows_init(g->flows, seed);
        gate_answerer_init(&g->answerer, (struct ip_ifaddr){g->rules.addr, prefix},
                           g->dev.info.veth, g->rules.ttl, seed + 16, &g->cnt);
        arp_config_default(&cfg, g->dev.info.mac);
        arp_format(g->cache, &cfg, seed + 48, now);
        arp = (struct arp){g->cache, &g->cnt};
        return arp_addr_add(&arp, g->rules.addr, prefix, false, now);
}

int gate_open(struct gate **out, struct loop *loop, struct pkt_dev *dev,
              const struct gate_rules *rules, uint8_t prefix,
              void (*closes)(const int *fds, unsigned n))
{
        struct gate *g = calloc(1, sizeof *g);
        int r;

        assert(dev != NULL && rules != NULL);
        if (!g) {
                pkt_dev_close(dev);
                return -ENOMEM;
        }
        g->dev = *dev;
        g->loop = loop;
        g->bell_fd = g->wire.fd = g->rings.fd = -1;
        g->flows = MAP_FAILED;
        g->rx = MAP_FAILED;
        g->rules = *rules;
        g->closes = closes;
        r = make_bell(g);
        if (r == 0)
                r = make_tables(g, prefix, loop->now);
        if (r == 0) {
                memcpy(g->rules.mac, g->dev.info.mac, sizeof g->rules.mac);
                g->rules.flows = g->flows;
                g->rules.groups = &g->groups;
                g->rules.ids = &g->answerer.ids;
                g->rules.prng = &g->answerer.prng;
                g->wire = (struct loop_source){.fd = g->dev.sock, .ready = wire_ready};
                r = loop_add(loop, &g->wire, EPOLLIN);
        }
        if (r == 0)
                r = loop_add(loop, &g->rings, EPOLLIN);
        if (r < 0) {
                gate_close(g);
                free(g);
                return r;
        }
        g->awake = true;
        *out = g;
        return 0;
}

int gate_reopen(struct gate *g, struct pkt_dev *dev)
{
        assert(dev->sock >= 0);
        loop_del(g->loop, &g->wire);
        pkt_dev_close(&g->dev);
        g->dev = *dev;
        g->wire.fd = g->dev.sock;
        return loop_add(g->loop, &g->wire, EPOLLIN);
}

void gate_close(struct gate *g)
{
        int rings = g->rings.fd;

        for (uint32_t i = 0; i < g->nports; i++)
                assert(g->port[i] == NULL);
        loop_del(g->loop, &g->wire);
        loop_del(g->loop, &g->rings);
        pkt_dev_close(&g->dev);
        if (rings >= 0)
                bell_close(rings, g->closes);
        if (g->bell)
                munmap(g->bell, BELL_BYTES);
        if (g->bell_fd >= 0)
                close(g->bell_fd);
        if (g->flows != MAP_FAILED)
                munmap(g->flows, sizeof *g->flows);
        if (g->rx != MAP_FAILED)
                munmap(g->rx, GATE_BATCH * GATE_ROOM);
        free(g->cache);
}

void gates_free(struct gate **list)
{
        struct gate *g;

        while ((g = *list)) {
                *list = g->next;
                free(g);
        }
}

/* ---- stacks ---- */

static void port_free(struct gate_port *p)
{
        struct shm_chan *c = &p->chan;

        if (c->mine)
                munmap(c->mine, c->mine_bytes);
        if (c->peer)
                munmap((void *)(uintptr_t)c->peer, c->peer_bytes);
        if (c->bell)
                munmap((void *)(uintptr_t)c->bell, BELL_BYTES);
        if (c->leader_fd >= 0)
                close(c->leader_fd);
        if (c->keeper_fd >= 0)
                close(c->keeper_fd);
        if (p->region >= 0)
                close(p->region);
        free(p->pool);
        free(p);
}

static int port_map(struct gate_port *p, const struct gate_peer *peer)
{
        struct shm_chan *c = &p->chan;

        assert(p->region < 0 && p->chan.mine == NULL);
        c->mine_bytes = SHM_REGION_BYTES(GATE_FRAMES);
        c->peer_bytes = SHM_REGION_BYTES(peer->geom);
        p->region = unet_memfd_make_sealed("unet-gate", c->mine_bytes);
        if (p->region < 0)
                return p->region;
        c->mine = unet_memfd_map(p->region, c->mine_bytes, true, NULL);
        c->peer = unet_memfd_map(peer->tx, c->peer_bytes, false, NULL);
        c->bell = unet_memfd_map(peer->bell, BELL_BYTES, false, NULL);
        c->leader_fd = bell_ringer(peer->leader);
        c->keeper_fd = bell_ringer(peer->keeper);
        if (c->leader_fd < 0 || c->keeper_fd < 0)
                return -EMFILE;
        return c->mine && c->peer && c->bell && p->pool ? 0 : -ENOMEM;
}

int gate_join(struct gate *g, const struct gate_peer *peer, struct gate_port **out)
{
        struct gate_port *p = calloc(1, sizeof *p);
        uint32_t num = 0;
        int r;

        assert(peer->stack != 0);
        if (!p)
                return -ENOMEM;
        *p = (struct gate_port){.gate = g,
                                .region = -1,
                                .chan = {.leader_fd = -1, .keeper_fd = -1},
                                .sender = {.stack = peer->stack},
                                .pool = calloc(1, frame_pool_bytes(GATE_FRAMES))};
        p->shared = (struct shm_shared){
                .pos = shm_pos_begin(peer->serial), .tx_geom = GATE_FRAMES, .rx_geom = peer->geom};
        while (num < GATE_PORTS && g->port[num])
                num++;
        r = num < GATE_PORTS ? port_map(p, peer) : -EMFILE;
        if (r < 0) {
                port_free(p);
                return r;
        }
        p->num = num;
        frame_pool_init(p->pool, GATE_FRAMES);
        shm_chan_init(&p->chan, &p->shared, &p->cnt);
        g->frames.region[num] =
                (struct frame_region){.base = p->chan.mine->frames, .pool = p->pool};
        g->port[num] = p;
        g->nports = MAX(g->nports, num + 1);
        g->awake = true;
        *out = p;
        return 0;
}

void gate_leave(struct gate_port *p)
{
        struct gate *g = p->gate;

        assert(p->num < GATE_PORTS && p->gate->port[p->num] == p);
        gate_drain(p, g->loop->now);
        gate_flows_forget(g->flows, p->sender.stack);
        gate_groups_forget(&g->groups, p->sender.stack);
        g->frames.region[p->num] = (struct frame_region){.base = NULL};
        g->port[p->num] = NULL;
        port_free(p);
}

int gate_describe(const struct gate_port *p, struct unetd_chan_info *info,
                  int fds[UNETD_CHAN_FDS_MAX])
{
        const struct gate *g = p->gate;
        int r = 0;

        info->rx_geom = GATE_FRAMES;
        memcpy(info->iface.mac, g->dev.info.mac, sizeof info->iface.mac);
        info->iface.mtu = g->dev.info.mtu;
        info->iface.csum_pseudo = g->dev.info.veth;
        fds[UNETD_FD_RX] = fd_reopen(p->region, O_RDONLY);
        fds[UNETD_FD_PEER_BELL] = fd_reopen(g->bell_fd, O_RDONLY);
        fds[UNETD_FD_PEER_LEADER] = bell_ringer(g->rings.fd);
        fds[UNETD_FD_PEER_KEEPER] = bell_ringer(g->rings.fd);
        for (unsigned i = 1; i < UNETD_CHAN_FDS; i++)
                if (fds[i] < 0)
                        r = fds[i];
        if (r < 0)
                fds_close(fds + 1, UNETD_CHAN_FDS - 1);
        return r;
}

/* ---- running ---- */

void gate_follow(struct gate *g, const struct netconf_if *link, nstime now)
{
        static const uint8_t unknown[ETHER_MAC];
        struct arp arp = {g->cache, &g->cnt};

        if (link->mtu != 0)
                g->dev.info.mtu = link->mtu;
        if (memcmp(link->mac, unknown, ETHER_MAC) == 0 ||
            memcmp(link->mac, g->rules.mac, ETHER_MAC) == 0)
                return;
        memcpy(g->dev.info.mac, link->mac, ETHER_MAC);
        memcpy(g->rules.mac, link->mac, ETHER_MAC);
        memcpy(g->cache->cfg.ll_addr, link->mac, ETHER_MAC);
        arp_link_up(&arp, now);
}

/* Arms the bell. Returns false if something came just now. What comes by the wire wakes the
 * loop. */
static bool rest(struct gate *g)
{
        bell_arm(g->bell, BELL_ASLEEP);
        if (!gate_pending(g))
                return true;
        bell_disarm(g->bell);
        return false;
}

nstime gate_turn(struct gate *g, nstime now)
{
        struct arp arp = {g->cache, &g->cnt};

        if (arp_deadline(&arp) <= now)
                /* Nobody rings while the bell is disarmed: it is armed again before a rest. */
                g->awake = true;
        if (g->awake) {
                bell_disarm(g->bell);
                if (gate_move(g, now))
                        g->last_work = now;
                else if (now - g->last_work >= LINGER && rest(g))
                        g->awake = false;
        }
        return g->awake ? now : arp_deadline(&arp);
}
