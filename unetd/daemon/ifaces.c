/*
 * Interfaces that this unetd owns: [interface NAME] of the config file. unetd's program takes their
 * packets from the moment a stack asks for one until no stack uses it any more. Before and after,
 * the packets are the kernel's.
 *
 *   nobody <--> one stack: rings of its own, passed to it (unet/xdp/xdp.h) <--> several: a bridge
 *           (gate.h) ---> nobody
 *
 * Rings and memory are made anew each time, so that no stack sees another's packets.
 *
 * What another user's stack sends by its own rings is checked on the way (unet/xdp/send_check.h,
 * `check` of the config file). An AF_XDP socket on the interface itself cannot be checked: then the
 * way is tcx, or the bridge.
 *
 * The last stack of several gets a socket when it has been alone for back_gap. Each change loses
 * the packets on their way, so back_gap doubles each time that another stack came soon afterwards.
 * With AF_XDP the queue may still be taken: by the socket of a process of the first stack that is
 * stopped, or does not let go. Then unetd tries again later, and the stack goes on by the bridge.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "unetd/daemon/chans.h"
#include "unetd/daemon/daemon.h"
#include "unetd/daemon/discard.h"
#include "unetd/daemon/ifaces.h"
#include "unetd/daemon/leases.h"
#include "unetd/daemon/ports.h"
#include "unetd/bridge/gate.h"
#include "unetd/daemon/probe.h"
#include "unetd/daemon/shares.h"
#include "unetd/daemon/stacks.h"
#include "unetd/daemon/users.h"
#include "unetd/monitor/monitor.h"

struct iface {
        const struct unetd_iface_config *cfg;
        uint32_t number; /* its index in the directory */
        bool works;
        bool removed; /* another interface may take its place once no stack uses it */
        /* A first stack gets no rings: the config wants none, or they cannot be had. */
        bool gate_only;
        uint32_t users;   /* stacks with a channel to it */
        unsigned ifindex; /* the device when unetd tried it, or when the first stack came */
        uint32_t alone;   /* the stack that has the socket; 0: none has */
        uint32_t mtu;     /* the MTU that its packet socket was last told */
        /* `check` is for what `alone` sends by them, or what is sent by `last`. */
        struct root_rings rings;
        /* The interface is removed: its stack may send its last words by this socket. */
        struct pkt_sealed last;
        /* ... until then, or until its keeper says that it has. NSTIME_NEVER: there is none. */
        nstime last_until;
        struct gate *gate; /* NULL: not shared */
        /* A bridge has one stack: when to try a socket, and how long the stack must be alone
         * before. */
        nstime back_at, back_gap;
        nstime back_since;           /* since when the stack was alone again; 0: it never was */
        char how[XDP_LINE_MAX + 40]; /* the provider in use, or why there is none */
};

#define BACK_FIRST NS_PER_S
#define BACK_LAST  (64 * NS_PER_S)
#define LAST_WORDS NS_PER_S

static struct iface ifaces[UNETD_IFACES];
static struct gate *closed; /* bridges, until the loop's batch is over */
static_assert(UNETD_IFACES <= DIR_IFACES, "all can be published");

/* The device may have been renamed. It counts as the same as long as no other has the configured
 * name. */
const char *iface_device(uint32_t i, char name[IF_NAMESIZE])
{
        const char *meant = unetd.cfg.iface[i].name;

        if (ifaces[i].ifindex == 0 || if_nametoindex(meant) != 0 ||
            !if_indextoname(ifaces[i].ifindex, name))
                return meant;
        return name;
}

static const char *device_of(const struct iface *f, char name[IF_NAMESIZE])
{
        return iface_device((uint32_t)(f - ifaces), name);
}

static uint32_t index_of(const struct iface *f)
{
        return (uint32_t)(f - ifaces);
}

static bool try_packet(const struct iface *f, char line[XDP_LINE_MAX])
{
        struct pkt_dev dev;
        int r = monitor_packet_open(index_of(f), &dev, line);

        if (r == 0)
                pkt_dev_close(&dev);
        return r == 0;
}

/* Opens the interface and gives it back, so that the log names a failure when unetd starts. An
 * interface that cannot be had (without privilege, say) stays the kernel's. */
static bool try(struct iface *f)
{
        char line[XDP_LINE_MAX] = "";
        int r = -ENOTSUP;

        if (f->cfg->provider == IFACE_VERBS) /* links.c */
                return false;
        f->ifindex = if_nametoindex(f->cfg->name);
        if (f->cfg->provider != IFACE_PACKET) {
                r = monitor_rings_try(index_of(f), line);
                log_line("interface %s: %s", f->cfg->name, line);
        }
        if (r == 0)
                return true;
        if (f->cfg->provider == IFACE_XDP)
                return false;
        f->gate_only = try_packet(f, line);
        log_line("interface %s: %s", f->cfg->name, line);
        return f->gate_only;
}

/* Does not use an interface whose address another host has. */
static void heed(struct iface *f, const struct probe *p)
{
        const uint8_t *m = p->rival;

        if (p->result == PROBE_TAKEN)
                log_line("interface %s: NOT USED: its address %u.%u.%u.%u is in use by "
                         "%02x:%02x:%02x:%02x:%02x:%02x",
                         p->ifname, p->addr >> 24, p->addr >> 16 & 255, p->addr >> 8 & 255,
                         p->addr & 255, m[0], m[1], m[2], m[3], m[4], m[5]);
        else if (p->result == PROBE_UNKNOWN)
                log_line("interface %s: whether somebody else has its address is not known: %s",
                         p->ifname, p->why);
        f->works = p->result != PROBE_TAKEN;
}

/* Probes the addresses of all interfaces, or of one. */
static void probe_all(const struct iface *only)
{
        struct probe p[UNETD_IFACES];
        struct iface *who[UNETD_IFACES];
        uint32_t n = 0;

        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++) {
                const struct unetd_iface_config *c = ifaces[i].cfg;

                if (!ifaces[i].works || c->probe == IFACE_PROBE_NO || (only && only != &ifaces[i]))
                        continue;
                who[n] = &ifaces[i];
                p[n++] = (struct probe){.ifname = c->name,
                                        .sock = monitor_arp_open(i),
                                        .addr = c->addr,
                                        .prefix = c->prefix,
                                        .speed = c->probe == IFACE_PROBE_FULL ? 1 : PROBE_QUICK};
        }
        probe_addresses(p, n, unetd.signals.fd);
        for (uint32_t i = 0; i < n; i++)
                heed(who[i], &p[i]);
}

static void publish(struct iface *f)
{
        struct dir_iface d = {.peer = UNETD_IFACE | (uint32_t)(f - ifaces),
                              .addr = f->cfg->addr,
                              .gateway = f->cfg->gateway,
                              .prefix = f->cfg->prefix};

        memcpy(d.name, f->cfg->name, sizeof d.name);
        f->number = directory_add_iface(&unetd.dir, &d);
}

void ifaces_init(void)
{
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++) {
                ifaces[i] = (struct iface){.cfg = &unetd.cfg.iface[i],
                                           .back_at = NSTIME_NEVER,
                                           .last_until = NSTIME_NEVER,
                                           .rings.check = SEND_CHECK_NONE,
                                           .back_gap = BACK_FIRST};
                ifaces[i].works = try(&ifaces[i]);
        }
        probe_all(NULL);
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++)
                if (ifaces[i].works)
                        publish(&ifaces[i]);
}

static void close_socket(struct iface *f)
{
        if (f->alone == 0)
                return;
        if (f->last_until == NSTIME_NEVER) /* end it in all processes that have it still */
                monitor_sender_end(&f->rings.sock.packet, &f->rings.check);
        xdp_sock_close(&f->rings.sock);
        xdp_dev_close(&f->rings.dev);
        f->alone = 0;
}

/* The interface is removed: a stack's keeper resets its connections when it hears of that. It
 * receives nothing any more, but may still send: close_socket() lets the device go, not this
 * socket. */
static void leave_last_words(struct iface *f)
{
        if (f->alone == 0 || f->users == 0)
                return;
        f->last = f->rings.sock.packet;
        f->rings.sock.packet = (struct pkt_sealed){-1, -1};
        f->last_until = unetd.loop.now + LAST_WORDS;
}

static void end_last_words(struct iface *f)
{
        if (f->last_until == NSTIME_NEVER)
                return;
        monitor_sender_end(&f->last, &f->rings.check);
        pkt_sealed_close(&f->last);
        f->last_until = NSTIME_NEVER;
}

/* This may be a handler of the loop's, with events of the bridge's to come in the same batch. */
static void close_gate(struct iface *f)
{
        if (!f->gate)
                return;
        gate_close(f->gate);
        f->gate->next = closed;
        closed = f->gate;
        f->gate = NULL;
}

/* Gives the interface's packets back to the kernel. */
static void give_back(struct iface *f)
{
        close_socket(f);
        close_gate(f);
        f->how[0] = '\0';
}

/* ---- changes ---- */

/* Returns a free place; -EEXIST: the interface is there already; -EADDRINUSE: another one has its
 * address. */
static int place_for(const struct unetd_iface_config *c)
{
        int place = -ENOSPC;

        for (uint32_t i = UNETD_IFACES; i-- > 0;) {
                const struct iface *f = &ifaces[i];

                if (i >= unetd.cfg.nifaces || (f->removed && f->users == 0))
                        place = (int)i;
                else if (f->works && strcmp(f->cfg->name, c->name) == 0)
                        return -EEXIST;
                else if (f->works && f->cfg->addr == c->addr)
                        return -EADDRINUSE;
        }
        return place;
}

int iface_add(const struct unetd_iface_config *c, int client, uint32_t *index)
{
        int place = place_for(c), r;
        struct iface *f;

        if (c->provider == IFACE_VERBS)
                return -EOPNOTSUPP;
        if (!root_iface_is_sane(c))
                return -EINVAL;
        if (if_nametoindex(c->name) == 0)
                return -ENXIO;
        if (place < 0)
                return place;
        r = monitor_iface_set((uint32_t)place, c, client);
        if (r < 0)
                return r;
        f = &ifaces[place];
        *f = (struct iface){.cfg = &unetd.cfg.iface[place],
                            .removed = true,
                            .back_at = NSTIME_NEVER,
                            .last_until = NSTIME_NEVER,
                            .rings.check = SEND_CHECK_NONE,
                            .back_gap = BACK_FIRST};
        f->works = try(f);
        if (!f->works)
                return -ENODATA;
        probe_all(f);
        if (!f->works)
                return -EADDRINUSE;
        f->removed = false;
        publish(f);
        *index = (uint32_t)place;
        return 0;
}

int iface_remove(const char *name, uint32_t *index)
{
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++) {
                struct iface *f = &ifaces[i];

                if (!f->works || strcmp(f->cfg->name, name) != 0)
                        continue;
                f->works = false;
                f->removed = true;
                directory_del_iface(&unetd.dir, f->number);
                chans_iface_gone(f);
                leave_last_words(f);
                give_back(f);
                *index = i;
                return 0;
        }
        return -ENODEV;
}

void ifaces_offer(struct stack *st, ip_addr addr)
{
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++)
                if (ifaces[i].works &&
                    (ip_addr_is_any(addr) || ip_addr_eq(addr, ip_addr_v4(ifaces[i].cfg->addr))))
                        chan_offer_iface(st, &ifaces[i]);
}

struct iface *iface_find(uint32_t peer)
{
        uint32_t i = peer & ~UNETD_IFACE;

        return unetd_is_iface(peer) && i < unetd.cfg.nifaces && ifaces[i].works ? &ifaces[i] : NULL;
}

/* ---- who has a port of ours ---- */

/* A bridge asks whose a packet is that belongs to no connection that it knows: to a new one, to
 * one from before there was a bridge, or to one that it forgot. */

/* Returns the stack that gets packets to a port. A listener or a hold comes before a lease: the
 * bridge knows the lessee's connections by themselves. */
static uint32_t port_owner(void *arg, uint8_t proto, uint16_t port, uint32_t hint)
{
        const struct iface *f = arg;
        const ip_addr addr = ip_addr_v4(f->cfg->addr), any = {{0, 0}};
        struct dir_hit hit;
        uint32_t stack;

        if (directory_lookup(unetd.dir.d, proto, addr, port, hint, &hit) == 1 ||
            dir_probe(unetd.dir.d, proto | DIR_HELD, addr, port, hint, &hit) ||
            dir_probe(unetd.dir.d, proto | DIR_HELD, any, port, hint, &hit))
                return hit.stack;
        stack = port_lessee(proto, port);
        return stack != 0 ? stack : port_listened(proto, port);
}

static bool may_use_port(void *arg, uint8_t proto, uint16_t port, uint32_t stack)
{
        const struct iface *f = arg;
        const ip_addr addr = ip_addr_v4(f->cfg->addr);

        return dir_is_at(unetd.dir.d, proto, addr, port, stack) ||
               (!dir_is_at(unetd.dir.d, proto, addr, port, DIR_ANYBODY) &&
                port_owner(arg, proto, port, 0) == stack);
}

static bool is_at(void *arg, uint32_t addr, uint16_t port, uint32_t stack)
{
        return dir_is_held(unetd.dir.d, IPPROTO_UDP, ip_addr_v4(addr), port, stack);
}

bool ifaces_flow_of_others(uint32_t stack, uint16_t first, uint32_t count)
{
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++)
                if (ifaces[i].gate &&
                    gate_flows_of_others(ifaces[i].gate->flows, stack, first, count))
                        return true;
        return false;
}

/* ---- users ---- */

static void publish_use(const struct iface *f)
{
        if (!f->removed)
                directory_iface_taken(&unetd.dir, f->number, f->alone, f->users, f->how);
}

static bool is_checked(const struct iface *f, uint32_t stack)
{
        const struct stack *st = stack_find(stack);

        if (f->cfg->check == IFACE_CHECK_AUTO)
                return !st || st->user->uid != unetd.uid;
        return f->cfg->check == IFACE_CHECK_YES;
}

static int open_socket(struct iface *f, uint32_t stack, bool at_once, char line[XDP_LINE_MAX])
{
        int r = monitor_rings_open(index_of(f), is_checked(f, stack), at_once, &f->rings, line);

        if (r == 0)
                f->mtu = f->rings.sock.geom.mtu;
        return r;
}

void iface_has_mtu(uint32_t i, uint32_t mtu)
{
        struct iface *f = &ifaces[i];

        if (f->alone == 0 || f->mtu == mtu)
                return;
        f->mtu = mtu;
        monitor_sender_mtu(&f->rings.sock.packet, mtu);
}

void iface_has_mac(uint32_t i)
{
        struct iface *f = &ifaces[i];

        if (f->rings.check.refused >= 0)
                monitor_sender_mac(i, &f->rings.check);
}

static int open_gate(struct iface *f, char line[XDP_LINE_MAX])
{
        struct gate_rules rules = {.addr = f->cfg->addr,
                                   .ttl = (uint8_t)unetd.cfg.ip_ttl,
                                   .owner = port_owner,
                                   .is_at = is_at,
                                   .may = may_use_port,
                                   .arg = f};
        struct pkt_dev dev;
        int r = monitor_packet_open(index_of(f), &dev, line);

        if (r == 0 && (r = gate_open(&f->gate, &unetd.loop, &dev, &rules, f->cfg->prefix,
                                     discard_strange)) < 0)
                snprintf(line, XDP_LINE_MAX, "%s", strerror(-r));
        return r;
}

static void say_alone(struct iface *f, int err, const char *line)
{
        bool tcx = f->rings.dev.mode == XDP_MODE_TCX;

        snprintf(f->how, sizeof f->how, "%s%s",
                 err != 0 ? ""
                 : tcx    ? "rings of its own: "
                          : "socket of its own (AF_XDP): ",
                 line);
}

static void say_how(const struct iface *f, uint32_t stack, const char *which)
{
        const struct stack *st = stack_find(stack);

        user_log(st ? st->user : NULL, "interface %s, for stack %u%s: %s", f->cfg->name, stack,
                 which, f->how);
}

/* Gives the first stack a socket to itself. 0 or a negative errno. */
static int enter_alone(struct iface *f, uint32_t stack)
{
        char line[XDP_LINE_MAX];
        int r = open_socket(f, stack, false, line);

        say_alone(f, r, line);
        say_how(f, stack, "");
        if (r == 0)
                f->alone = stack;
        return r;
}

/* Opens a bridge for a second stack. The caller moves the stack that was there before. */
static int enter_gate(struct iface *f, uint32_t stack)
{
        char line[XDP_LINE_MAX];
        int r = open_gate(f, line);

        snprintf(f->how, sizeof f->how, "%s%s", r == 0 ? "bridge: " : "no bridge: ", line);
        say_how(f, stack, f->alone != 0 ? " besides another" : "");
        if (r < 0)
                return r;
        if (f->back_since != 0 && unetd.loop.now - f->back_since < BACK_LAST)
                f->back_gap = MIN(f->back_gap * 2, BACK_LAST);
        else
                f->back_gap = BACK_FIRST;
        close_socket(f);
        return 0;
}

/* Plans a socket for the stack of a bridge that has only one. */
static void plan_back(struct iface *f)
{
        f->back_at = f->gate && f->users == 1 && !f->gate_only ? unetd.loop.now + f->back_gap
                                                               : NSTIME_NEVER;
}

static void go_back(struct iface *f)
{
        uint32_t stack = chan_alone(f);
        char line[XDP_LINE_MAX];
        int r = stack != 0 ? open_socket(f, stack, true, line) : -EAGAIN;

        if (r < 0) {
                f->back_gap = MIN(f->back_gap * 2, BACK_LAST);
                plan_back(f);
                return;
        }
        f->alone = stack;
        f->back_at = NSTIME_NEVER;
        f->back_since = unetd.loop.now;
        say_alone(f, 0, line);
        say_how(f, stack, ", which is alone again");
        chan_unshare(f);
        close_gate(f);
        publish_use(f);
}

/* The device was deleted and made again. The stack that had a socket of the old one goes by a
 * bridge on the new one, and gets a socket again later. */
static void take_anew(struct iface *f)
{
        bool shared = f->gate != NULL;
        struct pkt_dev dev;
        char line[XDP_LINE_MAX];
        int r = 0;

        if (shared && (r = monitor_packet_open(index_of(f), &dev, line)) == 0)
                r = gate_reopen(f->gate, &dev);
        else if (!shared)
                r = enter_gate(f, f->alone);
        if (shared || r < 0)
                log_line("interface %s, another device than before: %s", f->cfg->name,
                         r < 0 ? strerror(-r) : line);
        if (r == 0 && !shared)
                chans_share(f);
        plan_back(f);
        publish_use(f);
}

void ifaces_look(void)
{
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++) {
                struct iface *f = &ifaces[i];
                unsigned now = f->works && f->users != 0 ? if_nametoindex(f->cfg->name) : 0;

                if (now != 0 && now != f->ifindex) {
                        f->ifindex = now;
                        take_anew(f);
                }
        }
}

/* Processes of a stack that is gone may still hold its AF_XDP socket, and with it the queue. Then
 * the bridge takes the interface, unless the config wants AF_XDP only. */
int iface_enter(struct iface *f, uint32_t stack)
{
        int r = f->users == 0 && !f->gate_only ? enter_alone(f, stack) : -ENOTSUP;
        char name[IF_NAMESIZE];

        assert(stack != 0);
        if (f->gate)
                r = 0;
        else if (r < 0 && (f->users != 0 || f->cfg->provider != IFACE_XDP))
                r = enter_gate(f, stack);
        if (r == 0 && f->users++ == 0)
                f->ifindex = if_nametoindex(device_of(f, name));
        plan_back(f);
        publish_use(f);
        return r;
}

void iface_leave(struct iface *f, struct gate_port *port)
{
        if (port)
                gate_leave(port);
        assert(f->users != 0);
        if (--f->users == 0) {
                give_back(f);
                end_last_words(f);
        }
        plan_back(f);
        publish_use(f);
}

bool iface_is_shared(const struct iface *f)
{
        return f->gate != NULL;
}

static bool may_take_place(const struct gate *g, const struct user *u)
{
        uint32_t have = 0, taken = 0;

        for (uint32_t i = 0; i < g->nports; i++) {
                const struct stack *st = g->port[i] ? stack_find(g->port[i]->sender.stack) : NULL;

                have += st && st->user == u;
                taken += g->port[i] != NULL;
        }
        return share_may_take(have, taken, GATE_PORTS);
}

int iface_plug(struct iface *f, const struct end *e, struct gate_port **port)
{
        struct gate_peer peer = {.stack = e->stack->id,
                                 .serial = e->chan->serial,
                                 .tx = e->tx,
                                 .geom = e->geom,
                                 .bell = e->stack->fds[UNETD_FD_BELL],
                                 .leader = e->stack->fds[UNETD_FD_LEADER],
                                 .keeper = e->stack->fds[UNETD_FD_KEEPER]};

        assert(f->gate != NULL);
        return may_take_place(f->gate, e->stack->user) ? gate_join(f->gate, &peer, port) : -EDQUOT;
}

int iface_describe(const struct iface *f, const struct gate_port *port,
                   struct unetd_chan_info *info, int fds[UNETD_CHAN_FDS_MAX])
{
        info->peer_stack = UNETD_IFACE | (uint32_t)(f - ifaces);
        info->peer_chan = 0;
        info->peer_uid = 0;
        memcpy(info->iface.name, f->cfg->name, sizeof info->iface.name);
        info->iface.addr = f->cfg->addr;
        info->iface.gateway = f->cfg->gateway;
        info->iface.prefix = f->cfg->prefix;
        info->iface.link = port                      ? UNETD_LINK_GATE
                           : f->rings.sock.ring >= 0 ? UNETD_LINK_TCX
                                                     : UNETD_LINK_XDP;
        if (port)
                return gate_describe(port, info, fds);
        fds[UNETD_FD_IF_MEM] = fcntl(f->rings.sock.mem, F_DUPFD_CLOEXEC, 3);
        fds[UNETD_FD_IF_XSK] = fcntl(f->rings.sock.xsk, F_DUPFD_CLOEXEC, 3);
        fds[UNETD_FD_IF_PACKET] = fcntl(f->rings.sock.packet.sock, F_DUPFD_CLOEXEC, 3);
        if (info->iface.link == UNETD_LINK_TCX) {
                fds[UNETD_FD_IF_RING] = fcntl(f->rings.sock.ring, F_DUPFD_CLOEXEC, 3);
                fds[UNETD_FD_IF_SENDER] = fcntl(f->rings.sock.sender, F_DUPFD_CLOEXEC, 3);
        }
        return 0;
}

struct unetd_emul_counts iface_counts(const struct gate_port *port)
{
        const struct counters *c = &port->cnt;

        return (struct unetd_emul_counts){
                .sent = c->n[COUNT_NI_RX_MSGS],
                .received = c->n[COUNT_NI_TX_MSGS],
                .bad_source = (uint32_t)c->drop[DROP_NI_BAD_SOURCE],
                .malformed = (uint32_t)(c->drop[DROP_NI_MALFORMED] + c->drop[DROP_NI_BAD_FRAME]),
                .queue_full = (uint32_t)c->drop[DROP_NI_QUEUE_FULL],
                .no_buffer = (uint32_t)c->drop[DROP_NI_NO_BUFFER],
        };
}

bool iface_sockets(const struct stack *st, uint32_t *skip, struct unetd_status_item *item)
{
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++) {
                const struct iface *f = &ifaces[i];
                struct xdp_drops n;

                if (f->alone != st->id || (*skip)-- != 0)
                        continue;
                xdp_drops(&f->rings.sock, &f->rings.dev, &n);
                item->uid = st->user->uid;
                item->stack = st->id;
                memcpy(item->xsk.iface, f->cfg->name, sizeof item->xsk.iface);
                item->xsk.no_buffer = n.no_buffer;
                item->xsk.queue_full = n.queue_full;
                item->xsk.fragments = n.fragments;
                item->xsk.odd = n.odd;
                item->xsk.bad_source = send_check_refused(&f->rings.check);
                return true;
        }
        return false;
}

void ifaces_end(void)
{
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++) {
                end_last_words(&ifaces[i]);
                if (ifaces[i].rings.check.refused >= 0)
                        close_socket(&ifaces[i]);
        }
}

nstime ifaces_turn(void)
{
        nstime when = NSTIME_NEVER;

        gates_free(&closed);
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++) {
                struct gate *g = ifaces[i].gate;
                const struct netconf_if *link = &unetd.dir.d->net.ifs[i];

                if (ifaces[i].last_until <= unetd.loop.now)
                        end_last_words(&ifaces[i]);
                when = nstime_min(when, ifaces[i].last_until);
                if (!g)
                        continue;
                if (ifaces[i].back_at <= unetd.loop.now) {
                        go_back(&ifaces[i]);
                        if (!ifaces[i].gate)
                                continue;
                }
                when = nstime_min(when, ifaces[i].back_at);
                gate_follow(g, link, unetd.loop.now);
                when = nstime_min(when, gate_turn(g, unetd.loop.now));
        }
        return when;
}

/* ---- addresses ---- */

uint32_t iface_addrs(ip_addr *addrs, uint32_t n, uint32_t room)
{
        for (uint32_t i = 0; i < unetd.cfg.nifaces && n < room; i++)
                if (ifaces[i].works)
                        addrs[n++] = ip_addr_v4(unetd.cfg.iface[i].addr);
        return n;
}

bool iface_has_addr(ip_addr addr)
{
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++)
                if (ifaces[i].works && ip_addr_eq(addr, ip_addr_v4(unetd.cfg.iface[i].addr)))
                        return true;
        return false;
}

uint32_t iface_indexes(unsigned index[UNETD_IFACES])
{
        char name[IF_NAMESIZE];
        uint32_t n = 0;

        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++)
                if (ifaces[i].works)
                        index[n++] = if_nametoindex(iface_device(i, name));
        return n;
}

bool iface_is(int ifindex)
{
        unsigned index[UNETD_IFACES];

        for (uint32_t i = 0, n = iface_indexes(index); i < n; i++)
                if (index[i] == (unsigned)ifindex)
                        return true;
        return false;
}
