/*
 * A process's stacks: making one, mapping somebody else's, mapping channels, and the way in and out.
 *
 * Going out matters as much as going in. Inside, the queues are polled and the bell says so. Whoever leaves last says
 * UNATTENDED, so that a message that comes now wakes the keeper; unless the keeper looks in every few milliseconds
 * anyway (st->ticking), which it does for a while after it was woken: a stream costs no system call either way.
 */
#include "sock/ustack.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "netstack/sys.h"
#include "unet/ni_fault.h"

static struct {
        pthread_mutex_t lock;           /* of this struct and the client */
        struct unetd_client client;
        bool open;
        const struct directory *dir;    /* the keeper's */
        struct ustack *stack[USTACKS_MAX];
        _Atomic uint32_t nstacks;
        _Atomic(struct ustack *) mine;
} proc = {.lock = PTHREAD_MUTEX_INITIALIZER};

nstime ustack_now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

uint64_t ustack_boot_ms(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_BOOTTIME, &ts);
        return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / NS_PER_MS;
}

/* ---- unetd ---- */

static int client_open(void)
{
        int err;

        if (proc.open)
                return 0;
        err = unetd_open(&proc.client, 0);
        proc.open = err == 0;
        return err;
}

/* A child that came to its stacks while unetd could not be reached says so now. */
static void make_known(void)
{
        for (uint32_t i = 0; i < proc.nstacks; i++) {
                struct ustack *u = proc.stack[i];
                if (unlikely(u->unknown))
                        u->unknown = unetd_proc_add(&proc.client, u->id, u->slot, 0) != 0;
        }
}

struct unetd_client *ustack_client(void)
{
        pthread_mutex_lock(&proc.lock);
        make_known();
        return &proc.client;
}

struct unetd_client *ustack_client_held(void)
{
        return &proc.client;
}

void ustack_client_done(void)
{
        pthread_mutex_unlock(&proc.lock);
}

void ustack_client_forked(void)
{
        pthread_mutex_unlock(&proc.lock);       /* locked before the fork, by the thread that is left */
}

const struct directory *ustack_directory(void)
{
        return proc.open ? proc.client.dir : proc.dir;
}

bool ustack_vouch(struct stack *s, uint32_t k, uint8_t proto, ip_addr addr, uint16_t port)
{
        const struct directory *dir = ustack_directory();

        if (s->st->chan[k].remote != 0)
                return ustack_remote_vouches(s, k, proto, port);
        return dir != NULL && directory_vouches(dir, proto, addr, port, s->st->chan[k].peer);
}

bool ustack_lookup(uint8_t proto, ip_addr addr, uint16_t port, uint32_t hint, struct dir_hit *hit)
{
        const struct directory *dir = ustack_directory();
        int found = -EAGAIN;

        for (int tries = 0; dir != NULL && tries < 8 && found == -EAGAIN; tries++) {
                found = directory_lookup(dir, proto, addr, port, hint, hit);
                if (found == -EAGAIN)
                        sched_yield();
        }
        return found == 1;
}

/* One socket's entry in the directory, with the kernel socket that holds its port; without one, unetd holds it. */
static void register_again(struct unetd_client *c, struct ustack *u, const struct usock *h)
{
        struct sock_rec *rec = usock_rec(h);
        uint8_t proto = ustack_entry_proto(rec);
        uint16_t port = rec->lport;

        if (h->kfd < 0 && rec->bound && port != 0)
                unetd_port_hold(c, u->id, proto, rec->laddr, &port);
        if (rec->registered)
                unetd_listen_add(c, u->id, proto, rec->reg_addr, rec->lport, h->kfd);
}

/* Another unetd took over: the stacks of this process, their ports and names are made known to it as they were. */
static void renewed(struct unetd_client *c, void *arg)
{
        for (uint32_t i = 0; i < proc.nstacks; i++) {
                struct ustack *u = proc.stack[i];
                if (u->id == 0)
                        continue;               /* nobody's but ours: ustack_lose() */
                unetd_stack_new(c, &u->fds, u->slot, &u->id);
                ustack_lock(u);
                for (const struct usock *h = u->handles; h != NULL; h = h->next)
                        register_again(c, u, h);
                for (uint32_t b = 0; b < u->s.st->nblocks; b++) {
                        uint16_t first = u->s.st->block[b].first, count;
                        unetd_port_lease(c, u->id, &first, &count);
                }
                ustack_leave(u);
        }
}

/* ---- channels ---- */

static void *map(int fd, size_t bytes, int prot)
{
        long p = sys6(SYS_mmap, 0, (long)bytes, prot, MAP_SHARED, fd, 0);

        return p < 0 && p > -4096 ? NULL : (void *)p;
}

static void unmap(const volatile void *p, size_t bytes)
{
        if (p != NULL)
                sys2(SYS_munmap, p, bytes);
}

void *ustack_map(int fd, size_t bytes)
{
        return map(fd, bytes, PROT_READ | PROT_WRITE);
}

void ustack_unmap(const volatile void *p, size_t bytes)
{
        unmap(p, bytes);
}

void ustack_set_directory(int fd)
{
        const struct directory *dir = map(fd, sizeof *dir, PROT_READ);

        sys1(SYS_close, fd);
        unmap(proc.dir, sizeof *dir);
        proc.dir = dir;
}

/* Memory goes back, and the addresses stay readable. */
static void empty(const volatile void *p, size_t bytes)
{
        sys6(SYS_mmap, (long)p, (long)bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* The channel goes by an AF_XDP socket: to an interface that this stack has alone. */
static bool is_xdp(const struct ustack *u, uint32_t k)
{
        return u->xdp[k] != NULL && u->chan_fds[k].xsk >= 0;
}

/* A channel that is no more. Threads of ours look at queues without the lock (stack_pending): they find them empty. */
static void chan_empty(struct ustack *u, uint32_t k)
{
        struct shm_chan *c = &u->chan[k];

        if (u->remote[k].link != NULL && c->mine == NULL) {
                unetd_chan_close(&u->chan_fds[k]);
                return;
        }
        if (is_xdp(u, k)) {
                ni_xdp_forsake(u->xdp[k]);
                unetd_chan_close(&u->chan_fds[k]);
                return;
        }
        if (c->mine == NULL)
                return;
        if (u->fault[k] != NULL)
                ni_fault_end(u->fault[k]);
        u->fault[k] = NULL;
        empty(c->mine, c->mine_bytes);
        empty(c->peer, c->peer_bytes);
        empty(c->bell, BELL_BYTES);
        unetd_chan_close(&u->chan_fds[k]);
}

static void iface_unmap(struct ustack *u, uint32_t k)
{
        struct ni_xdp *x = u->xdp[k];

        if (x == NULL)
                return;
        ni_xdp_detach(x);
        unmap((struct shm_region *)((char *)x->tx_mem.base - offsetof(struct shm_region, frames)),
              SHM_REGION_BYTES(x->tx_mem.geom));
        free(x);
        u->xdp[k] = NULL;
}

/* For good: nobody looks any more. */
static void chan_unmap(struct ustack *u, uint32_t k)
{
        struct shm_chan *c = &u->chan[k];

        chan_empty(u, k);
        unmap(c->mine, c->mine_bytes);
        unmap(c->peer, c->peer_bytes);
        unmap(c->bell, BELL_BYTES);
        *c = (struct shm_chan){0};
        iface_unmap(u, k);
        ustack_remote_unmap(u, k);
}

/* In the place of what was there, when it had the same size. */
static void *map_over(const volatile void *old, size_t old_bytes, int fd, size_t bytes, int prot)
{
        long p;

        if (old != NULL && old_bytes != bytes) {
                unmap(old, old_bytes);
                old = NULL;
        }
        p = sys6(SYS_mmap, (long)old, (long)bytes, prot, MAP_SHARED | (old != NULL ? MAP_FIXED : 0), fd, 0);
        return p < 0 && p > -4096 ? NULL : (void *)p;
}

static bool chan_map_regions(struct shm_chan *c, const struct unetd_chan *fds)
{
        size_t mine = SHM_REGION_BYTES(fds->tx_geom), peer = SHM_REGION_BYTES(fds->rx_geom);

        c->mine = map_over(c->mine, c->mine_bytes, fds->tx, mine, PROT_READ | PROT_WRITE);
        c->peer = map_over(c->peer, c->peer_bytes, fds->rx, peer, PROT_READ);
        /* Spinners look whether there is one, without the lock: it is there before the word says so. */
        __atomic_store_n(&c->bell, map_over(c->bell, BELL_BYTES, fds->peer_bell, BELL_BYTES, PROT_READ), __ATOMIC_RELEASE);
        c->mine_bytes = mine;
        c->peer_bytes = peer;
        c->leader_fd = fds->peer_leader;
        c->keeper_fd = fds->peer_keeper;
        return c->mine != NULL && c->peer != NULL && c->bell != NULL;
}

/* UNET_FAULT (unet run --fault): what this process sends on the channel meets a bad link first. */
static struct unet_chan *with_faults(struct ustack *u, uint32_t k)
{
        const char *spec = getenv("UNET_FAULT");
        struct unet_chan *inner = &u->chan[k].base;
        struct fault_params p;

        if (spec == NULL || u->fds.state < 0 || fault_parse(spec, &p) != 0)
                return inner;
        p.seed += k;
        /* Both ends of a channel of such a process may lose: no shortcuts that a channel without loss allows. */
        inner->caps.lossless = false;
        inner->caps.csum = p.corrupt > 0;
        u->fault[k] = ni_fault_new(inner, &p, &u->s.st->cnt);
        return u->fault[k] != NULL ? u->fault[k] : inner;
}

bool ustack_map_iface_fds(struct ustack *u, uint32_t k, const struct unetd_chan *fds)
{
        struct shm_region *tx = map(fds->tx, SHM_REGION_BYTES(fds->tx_geom), PROT_READ | PROT_WRITE);
        struct ni_xdp *x = calloc(1, sizeof *x);

        iface_unmap(u, k);
        if (x == NULL || tx == NULL ||
            ni_xdp_attach(x, fds->xsk, fds->mem, fds->packet, unet_mem_frames(tx->frames, fds->tx_geom), &u->s.st->cnt) != 0) {
                unmap(tx, SHM_REGION_BYTES(fds->tx_geom));
                free(x);
                return false;
        }
        u->xdp[k] = x;
        u->chan_fds[k] = *fds;
        return true;
}

void ustack_iface_mapped(struct ustack *u, uint32_t k)
{
        struct ni_xdp *x = u->xdp[k];

        stack_chan_mapped(&u->s, k, &x->base, x->tx_mem.base, ni_xdp_rx_frames(x));
}

/* The gateway carries frames of a network: they may be damaged and lost, and lie whole in what it lends. */
static struct unet_caps gate_caps(const struct unetd_chan *fds)
{
        return (struct unet_caps){.mtu = SHM_MTU,
                                  .inline_max = SHM_INLINE_MAX,
                                  .csum = true,
                                  .csum_pseudo = fds->iface.csum_pseudo != 0,
                                  .whole = true,
                                  .shared = true,
                                  .rto_min = 200 * NS_PER_MS};
}

bool ustack_map_chan_fds(struct ustack *u, uint32_t k, const struct unetd_chan *fds)
{
        struct stack_state *st = u->s.st;
        struct shm_chan *c = &u->chan[k];

        if (unetd_chan_is_xdp(fds)) {
                bool mapped = ustack_map_iface_fds(u, k, fds);
                if (mapped)
                        ustack_iface_mapped(u, k);
                return mapped;
        }
        if (unetd_chan_is_remote(fds))
                return ustack_map_remote_fds(u, k, fds);
        ustack_remote_unmap(u, k);
        chan_empty(u, k);
        if (!unetd_chan_is_iface(fds))          /* else a thread may be copying into what it sends from */
                iface_unmap(u, k);
        if (!chan_map_regions(c, fds)) {
                unmap(c->mine, c->mine_bytes);
                unmap(c->peer, c->peer_bytes);
                unmap(c->bell, BELL_BYTES);
                *c = (struct shm_chan){0};
                return false;
        }
        u->chan_fds[k] = *fds;
        shm_chan_init(c, &st->chan[k].shm, &st->cnt);
        if (unetd_chan_is_iface(fds))
                c->base.caps = gate_caps(fds);
        stack_chan_mapped(&u->s, k, unetd_chan_is_iface(fds) ? &c->base : with_faults(u, k), c->mine->frames,
                          c->peer->frames);
        return true;
}

/* Called by the stack when it meets a channel that this process has not mapped; the keeper has its descriptors. */
static bool map_chan(struct stack *s, uint32_t k)
{
        struct ustack *u = s->owner;
        struct unetd_chan fds;
        int err;

        if (pthread_mutex_trylock(&proc.lock) != 0)
                return false;           /* the holder waits for our lock, or will be done soon: next turn */
        err = unetd_chan_get(&proc.client, u->id, k, &fds);
        pthread_mutex_unlock(&proc.lock);
        if (err != 0)
                return false;
        if (ustack_map_chan_fds(u, k, &fds))
                return true;
        unetd_chan_close(&fds);
        return false;
}

/* A channel of a peer that is gone, and that nothing refers to any more. */
static void unmap_chan(struct stack *s, uint32_t k)
{
        chan_empty(s->owner, k);
}

static int chan_find(const struct ustack *u, uint32_t peer)
{
        const struct stack_state *st = u->s.st;

        for (uint32_t k = 0; k < atomic_load_explicit(&st->chans, memory_order_acquire); k++)
                if (atomic_load_explicit(&st->chan[k].state, memory_order_acquire) == CHAN_READY &&
                    st->chan[k].peer == peer)
                        return (int)k;
        return -ENOENT;
}

int ustack_chan_to(struct ustack *u, uint32_t peer)
{
        uint32_t chan, peer_chan;
        int k = chan_find(u, peer), err;

        if (k >= 0)
                return k;
        pthread_mutex_lock(&proc.lock);
        err = unetd_chan_open(&proc.client, u->id, peer, &chan, &peer_chan);
        pthread_mutex_unlock(&proc.lock);
        return err != 0 ? err : (int)chan;
}

/* ---- interfaces ---- */

/* By the stack's routes: the interface, and our address there. */
static bool way_out(struct ustack *u, ip_addr to, ip_addr from, uint32_t oif, ip_addr *src, struct dir_iface *f)
{
        uint32_t bound = ip_addr_is_v4(from) && !ip_addr_is_any(from) ? ip_addr_get_v4(from) : 0;
        struct route_result r;
        int err;

        ustack_lock(u);
        err = stack_route(&u->s, ip_addr_get_v4(to), bound, oif, ustack_now(), &r);
        ustack_leave(u);
        if (err != 0 || r.src == 0 || !directory_iface(ustack_directory(), UNETD_IFACE | (r.ifindex - 1u), f))
                return false;
        *src = ip_addr_v4(r.src);
        return true;
}

int ustack_way_out(struct ustack *u, uint8_t proto, ip_addr to, uint16_t port, ip_addr from, uint32_t oif, ip_addr *src,
                   const char **why)
{
        const struct directory *dir = ustack_directory();
        struct dir_iface f;
        int chan;

        *why = "address of another host";
        if (dir != NULL && dir->nverbs != 0 && directory_verbs(dir, to, &f)) {
                chan = ustack_remote(u, &f, proto, to, port, why);
                if (chan < 0)
                        return chan;
                *why = "accelerated";
                *src = ip_addr_v4(f.addr);
                return chan;
        }
        if (dir == NULL || dir->nifaces == 0 || !ip_addr_is_v4(to) || !way_out(u, to, from, oif, src, &f))
                return -ENOENT;
        *why = "the interface to that host cannot be had";
        chan = ustack_chan_to(u, f.peer);
        if (chan < 0)
                return -ENOENT;
        *why = "accelerated";
        return chan;
}

const struct directory *ustack_directory_anyway(void)
{
        if (!proc.open) {
                pthread_mutex_lock(&proc.lock);
                client_open();
                pthread_mutex_unlock(&proc.lock);
        }
        return ustack_directory();
}

uint32_t ustack_iface_number(const char *name)
{
        const struct directory *dir = ustack_directory_anyway();
        struct dir_iface f;

        for (uint32_t i = 0; dir != NULL && i < DIR_IFACES; i++)
                if (directory_iface_at(dir, i, &f) && strncmp(f.name, name, sizeof f.name) == 0)
                        return (f.peer & ~UNETD_IFACE) + 1;
        return 0;
}

ip_addr ustack_listen_addr(const struct sock_rec *rec)
{
        struct dir_iface f;

        if (rec->oif == 0 || !ip_addr_is_any(rec->laddr) ||
            !directory_iface(ustack_directory(), UNETD_IFACE | (rec->oif - 1u), &f))
                return rec->laddr;
        return ip_addr_v4(f.addr);
}

bool usock_is_device(const char *name, socklen_t len)
{
        char copy[16] = "";

        memcpy(copy, name, MIN(len, (socklen_t)sizeof copy - 1));
        return *copy == '\0' || ustack_iface_number(copy) != 0;
}

bool usock_port_leased(uint16_t port)
{
        const struct directory *dir = ustack_directory_anyway();

        return dir != NULL && directory_lessee_of(dir, port) != 0;
}

bool usock_is_iface_addr(const struct sockaddr *sa, socklen_t len)
{
        const struct directory *dir;
        struct dir_iface f;
        uint16_t port;
        ip_addr addr;

        if (usock_addr_in(sa, len, &addr, &port) != 0)
                return false;
        dir = ustack_directory_anyway();
        for (uint32_t i = 0; dir != NULL && i < DIR_IFACES; i++)
                if (directory_iface_at(dir, i, &f) && ip_addr_eq(addr, ip_addr_v4(f.addr)))
                        return true;
        return false;
}

/* An interface to an address that is not this host's, and our address there. */
static bool leads_out(const struct usock *s, ip_addr addr, bool last, ip_addr *src, struct dir_iface *f)
{
        struct ustack *mine;
        bool found;
        int err;

        if (ip_addr_is_v4(addr) && ip_addr_get_v4(addr) >= 0xe0000000) {
                found = usock_group_iface(s, addr, last, f);
                *src = ip_addr_v4(f->addr);
                return found;
        }
        if (!ip_addr_is_v4(addr) || directory_is_local(ustack_directory(), addr) != 0)
                return false;
        mine = ustack_mine(&err);
        return mine != NULL && way_out(mine, addr, (ip_addr){{0, 0}}, 0, src, f);
}

bool usock_way_out(const struct usock *s, const struct sockaddr *to, socklen_t len, bool last, int family,
                   struct sockaddr *from, socklen_t *from_len, const char **why)
{
        const struct directory *dir = ustack_directory_anyway();
        struct dir_iface f;
        uint16_t port;
        ip_addr addr, src;

        if (dir == NULL || dir->nifaces == 0 || usock_addr_in(to, len, &addr, &port) != 0 ||
            !leads_out(s, addr, last, &src, &f))
                return false;
        usock_addr_out(family, src, 0, from, from_len);
        return true;
}

void ustack_take_ifaces(struct ustack *u, ip_addr laddr)
{
        const struct directory *dir = ustack_directory();

        for (uint32_t i = 0; dir != NULL && i < DIR_IFACES; i++) {
                struct dir_iface f;
                if (directory_iface_at(dir, i, &f) && (ip_addr_is_any(laddr) || ip_addr_eq(laddr, ip_addr_v4(f.addr))))
                        ustack_chan_to(u, f.peer);
        }
        for (uint32_t i = 0; dir != NULL && i < MIN(dir->nverbs, DIR_IFACES); i++)
                if (ip_addr_is_any(laddr) || ip_addr_eq(laddr, ip_addr_v4(dir->verbs[i].addr)))
                        ustack_link_take(u, &dir->verbs[i]);
}

int ustack_wake_fds(const struct ustack *u, struct pollfd *pfd)
{
        int n = 0;

        for (uint32_t i = 0; unlikely(i < u->s.st->netifs); i++) {
                uint32_t chan = stack_netif(u->s.st, i)->chan;
                if (chan != 0 && u->s.chan[chan - 1].ops != NULL && is_xdp(u, chan - 1))
                        pfd[n++] = (struct pollfd){.fd = u->chan_fds[chan - 1].xsk, .events = POLLIN};
        }
        return n;
}

/* ---- addresses ---- */

/* Interfaces, routes and neighbours. */
static void follow_net(struct ustack *u, const struct directory *d)
{
        struct netconf net;

        if (d->nifaces == 0 || d->net.gen == u->s.st->net_gen || !directory_net(d, &net))
                return;
        stack_route_follow(&u->s, &net, ustack_now());
        stack_flush(&u->s, ustack_now());
}

/* The addresses that packets on a channel inside this host may be for, and where others are sent: what unetd publishes. Kept
 * in the state, for those who have no directory. */
void ustack_follow(struct ustack *u)
{
        const struct directory *d = ustack_directory();
        struct stack_state *st = u->s.st;

        if (d == NULL || likely(st->addr_gen == directory_generation(d) + 1))
                return;
        st->addr_gen = directory_generation(d) + 1;
        stack_set_addrs(st, d->addrs, MIN(d->naddrs, DIR_ADDRS));
        follow_net(u, d);
}

/* ---- the lock ---- */

static void entered(struct ustack *u)
{
        if (u->s.st->leader == 0)
                bell_disarm(u->s.bell);
        stack_sync(&u->s);
        ustack_follow(u);
}

static bool none_held(void *arg, uint32_t frame)
{
        return false;
}

/* Packets of an interface are copied before a call ends, in and out: whatever is lent was lent to the dead process. */
static void repair_ifaces(struct ustack *u)
{
        for (uint32_t i = 0; unlikely(i < u->s.st->netifs); i++) {
                uint32_t chan = stack_netif(u->s.st, i)->chan;
                if (chan == 0 || u->s.chan[chan - 1].ops == NULL || !is_xdp(u, chan - 1))
                        continue;
                frame_unlend_all(u->s.frames, FRAME_REGION_TX(chan - 1));
                ni_xdp_reclaim(u->xdp[chan - 1], none_held, NULL);
        }
}

static void repair(struct ustack *u)
{
        stack_recover(&u->s, ustack_now());
        repair_ifaces(u);
        ustack_links_repair(u);
        ustack_look_again(u);
}

bool ustack_trylock(struct ustack *u)
{
        int err = rlock_trylock(&u->s.st->lock);

        if (unlikely(err == -EOWNERDEAD)) {
                repair(u);
                err = 0;
        }
        return err == 0;
}

void ustack_lock(struct ustack *u)
{
        if (unlikely(rlock_lock(&u->s.st->lock) == -EOWNERDEAD))
                repair(u);
        entered(u);
}

void ustack_unlock(struct ustack *u)
{
        rlock_unlock(&u->s.st->lock);
}

/* Nobody is inside from here on. Messages that came meanwhile would be noticed by nobody: they ring the keeper. */
void ustack_leave(struct ustack *u)
{
        struct stack_state *st = u->s.st;
        bool ring = false;

        if (st->leader == 0 && u->s.nchan != 0 && !atomic_load_explicit(&st->ticking, memory_order_relaxed)) {
                bell_arm_count(u->s.bell, BELL_UNATTENDED, st->rests);
                ring = st->rung != st->rests && (stack_pending(&u->s, 0) || stack_deadline(&u->s) < st->keeper_at);
                if (ring)
                        st->rung = st->rests;
        }
        rlock_unlock(&st->lock);
        if (unlikely(ring))
                sys3(SYS_write, u->fds.keeper_w, "", 1);
}

/* ---- making and mapping ---- */

/* A free process slot of the stack, taken under its lock. */
static int take_slot(struct ustack *u)
{
        struct stack_state *st = u->s.st;

        for (uint32_t i = 0; i < STACK_PROCS; i++) {
                uint32_t none = 0;
                if (atomic_compare_exchange_strong(&st->proc[i].pid, &none, (uint32_t)getpid())) {
                        st->proc[i].start = ustack_boot_ms();
                        return (int)i;
                }
        }
        return -ENOSPC;
}

static void ustack_free(struct ustack *u)
{
        ustack_detach(u);
        unetd_stack_fds_close(&u->fds);
        free(u);
}

static int map_state(struct ustack *u)
{
        struct stack_state *st = map(u->fds.state, u->bytes, PROT_READ | PROT_WRITE);
        struct bell *bell = map(u->fds.bell, BELL_BYTES, PROT_READ | PROT_WRITE);

        u->s.st = st;
        u->s.bell = bell;
        return st != NULL && bell != NULL ? 0 : -ENOMEM;
}

static int view(struct ustack *u)
{
        int err = stack_view_init(&u->s, u->s.st, u->bytes, u->s.bell);

        u->s.owner = u;
        u->s.map_chan = map_chan;
        u->s.unmap_chan = unmap_chan;
        u->s.event = ustack_event;
        u->s.vouch = ustack_vouch;
        return err;
}

/* `unet pcap PROGRAM`: from the first packet on. */
static void capture_if_asked(struct ustack *u)
{
        const char *snap = getenv("UNET_CAPTURE");

        if (snap)
                atomic_store(&u->s.capture->snap, (uint32_t)strtoul(snap, NULL, 10));
}

/* A stack of this process, with a bell, a process slot, and nobody who knows it. */
static struct ustack *make(int *err)
{
        struct ustack *u = calloc(1, sizeof *u);
        struct stack_limits l;
        uint8_t seed[32];

        *err = -ENOMEM;
        if (u == NULL)
                return NULL;
        stack_limits_default(&l);
        u->bytes = stack_bytes(&l);
        *err = unetd_stack_fds_make(&u->fds, u->bytes);
        if (*err != 0) {
                free(u);
                return NULL;
        }
        *err = map_state(u);
        if (*err == 0 && getrandom(seed, sizeof seed, 0) != sizeof seed)
                *err = -EIO;
        if (*err == 0) {
                stack_format(u->s.st, &l, seed, ustack_now());
                u->s.st->uid = geteuid();
                *err = view(u);
        }
        if (*err == 0)
                capture_if_asked(u);
        if (*err == 0) {
                u->slot = (uint32_t)take_slot(u);
                return u;
        }
        ustack_free(u);
        return NULL;
}

static struct ustack *make_registered(int *err)
{
        struct ustack *u = make(err);

        if (u == NULL)
                return NULL;
        *err = unetd_stack_new(&proc.client, &u->fds, u->slot, &u->id);
        u->s.st->id = u->id;
        if (*err == 0)
                return u;
        ustack_free(u);
        return NULL;
}

static void remember(struct ustack *u)
{
        uint32_t n = proc.nstacks;

        proc.stack[n] = u;
        atomic_store_explicit(&proc.nstacks, n + 1, memory_order_release);
}

struct ustack *ustack_mine(int *err)
{
        struct ustack *u = atomic_load_explicit(&proc.mine, memory_order_acquire);

        if (likely(u != NULL))
                return u;
        pthread_mutex_lock(&proc.lock);
        u = proc.mine;
        if (u == NULL && (*err = client_open()) == 0 && proc.nstacks < USTACKS_MAX) {
                proc.client.renewed = renewed;
                u = make_registered(err);
                if (u != NULL) {
                        remember(u);
                        atomic_store_explicit(&proc.mine, u, memory_order_release);
                }
        }
        pthread_mutex_unlock(&proc.lock);
        return u;
}

void ustack_lose(struct ustack *u)
{
        int err;
        struct ustack *mine = make(&err);

        if (mine == NULL)
                abort();                /* two processes would be one in the books of the stack */
        usock_move_handles(u, mine);
        for (uint32_t i = 0; i < proc.nstacks; i++)
                if (proc.stack[i] == u)
                        proc.stack[i] = mine;
        if (proc.mine == u)
                proc.mine = NULL;
        ustack_free(u);
}

uint32_t ustack_all(struct ustack *out[USTACKS_MAX])
{
        uint32_t n = atomic_load_explicit(&proc.nstacks, memory_order_acquire);

        memcpy(out, proc.stack, n * sizeof *out);
        return n;
}

int ustack_attach(struct ustack *u, uint32_t id, const struct unetd_stack_fds *fds)
{
        long bytes = sys3(SYS_lseek, fds->state, 0, SEEK_END);
        int err;

        if (bytes < 0)
                return (int)bytes;
        u->fds = *fds;
        u->id = id;
        u->bytes = (size_t)bytes;
        err = map_state(u);
        if (err == 0)
                err = view(u);
        u->fds = (struct unetd_stack_fds){-1, -1, -1, -1, -1, -1};
        if (err != 0)
                ustack_detach(u);
        return err;
}

void ustack_detach(struct ustack *u)
{
        for (uint32_t k = 0; k < STACK_CHANS; k++)
                chan_unmap(u, k);
        ustack_links_unmap(u);
        if (u->s.frames != NULL)
                stack_view_fini(&u->s);
        unmap(u->s.st, u->bytes);
        unmap(u->s.bell, BELL_BYTES);
}

/* Maps a stack whose descriptors the keeper gave; takes them. */
static struct ustack *map_given(const struct unetd_stack_fds *fds, uint32_t id, int *err)
{
        struct ustack *u = calloc(1, sizeof *u);
        off_t bytes = lseek(fds->state, 0, SEEK_END);

        *err = -ENOMEM;
        if (u == NULL || bytes < 0)
                return free(u), NULL;
        u->fds = *fds;
        u->id = id;
        u->bytes = (size_t)bytes;
        *err = map_state(u);
        if (*err == 0)
                *err = view(u);
        if (*err == 0) {
                int slot = take_slot(u);
                *err = slot < 0 ? slot : unetd_proc_add(&proc.client, id, (uint32_t)slot, 0);
                u->slot = (uint32_t)slot;
        }
        if (*err == 0)
                return u;
        ustack_free(u);
        return NULL;
}

struct ustack *ustack_adopt(uint64_t cookie, int *err)
{
        struct unetd_stack_fds fds;
        struct ustack *u = NULL;
        uint32_t id;

        pthread_mutex_lock(&proc.lock);
        if ((*err = client_open()) == 0 && proc.nstacks < USTACKS_MAX) {
                proc.client.renewed = renewed;
                *err = unetd_stack_by_cookie(&proc.client, cookie, &id, &fds);
                if (*err == 0)
                        u = map_given(&fds, id, err);
                if (u != NULL)
                        remember(u);
        }
        pthread_mutex_unlock(&proc.lock);
        return u;
}

/* ---- numbers that are the library's own ---- */

static bool chan_owns(const struct unetd_chan *c, int fd)
{
        return fd == c->tx || fd == c->rx || fd == c->peer_bell || fd == c->peer_leader || fd == c->peer_keeper;
}

static bool stack_owns(const struct ustack *u, int fd)
{
        const struct unetd_stack_fds *f = &u->fds;

        if (fd == f->state || fd == f->bell || fd == f->leader_r || fd == f->leader_w || fd == f->keeper_r ||
            fd == f->keeper_w)
                return true;
        if (ustack_links_own(u, fd))
                return true;
        for (uint32_t k = 0; k < u->s.nchan; k++)
                if (u->chan[k].mine != NULL && chan_owns(&u->chan_fds[k], fd))
                        return true;
        return false;
}

bool usock_owns_fd(int fd)
{
        uint32_t n = atomic_load_explicit(&proc.nstacks, memory_order_acquire);

        if (fd <= 2 || n == 0)
                return false;
        if (fd == proc.client.daemon.fd || fd == proc.client.keeper.fd || usock_wait_owns_fd(fd))
                return true;
        for (uint32_t i = 0; i < n; i++)
                if (stack_owns(proc.stack[i], fd))
                        return true;
        return false;
}
