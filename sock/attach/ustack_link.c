/*
 * A stack's links to RDMA devices (unet/verbs/vlink.h): who drives them, and channels to stacks of
 * other hosts.
 *
 * The first process that has to do with an interface over verbs (a connect, a listener, a UDP port)
 * makes the queue pair and is the driver. Others of the stack put what they send into the ring and
 * wake it. When it dies, runs another program, or does not come back to what waits for it, the
 * keeper makes a queue pair and drives (sock/keeper/keeper_side.c).
 */
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/attach/ustack_link.h"
#include "sock/attach/ustack_wake.h"
#include "sock/attach/ustack_way.h"

#include <errno.h>
#include <poll.h>

#include "base/sandbox.h"
#include "base/sys.h"
#include "unet/bell_fd.h"

#define STANDS_STILL (20 * NS_PER_MS)
#define DRIVE_AGAIN  (100 * NS_PER_MS) /* between two attempts of the keeper's */

static uint32_t index_of(uint32_t iface)
{
        return (iface & ~UNETD_IFACE) % DIR_IFACES;
}

/* Asked for without the lock, too: once it is there it stays, and is whole. */
static struct vlink *link_at(const struct ustack *u, uint32_t i)
{
        assert(i < DIR_IFACES);
        return __atomic_load_n(&u->link[i], __ATOMIC_ACQUIRE);
}

#define FOR_LINKS(u, i, v)                        \
        for (uint32_t i = 0; i < DIR_IFACES; i++) \
                for (struct vlink *v = link_at(u, i); unlikely(v != NULL); v = NULL)

static uint32_t driver_of(struct vlink *v)
{
        return atomic_load_explicit(&vlink_shared(v)->driver, memory_order_relaxed);
}

/* ---- waking the driver ---- */

/* Under the lock: something is in the ring that is another process's to post; or nobody drives
 * any more. */
static void ring(void *arg)
{
        struct ustack *u = arg;

        FOR_LINKS (u, i, v) {
                uint32_t driver = driver_of(v);

                if (vlink_drives(v) || (driver != 0 && !vlink_waits(v)))
                        continue;
                if ((driver == VLINK_KEEPER || driver == 0 || !usock_wake_process(u, driver)) &&
                    u->fds.ring_keeper >= 0)
                        bell_ring(u->fds.ring_keeper);
        }
}

/* ---- driving ---- */

static bool has_other_processes(const struct ustack *u)
{
        for (uint32_t i = 0, n = stack_procs(u->s.st); i < n; i++)
                if (i != u->slot &&
                    atomic_load_explicit(&u->s.st->proc[i].pid, memory_order_relaxed) != 0)
                        return true;
        return false;
}

/* Nobody drives; or the keeper does, and we are all there is. */
static bool wants_us(const struct ustack *u, struct vlink *v)
{
        uint32_t driver = atomic_load_explicit(&vlink_shared(v)->driver, memory_order_acquire);

        if (sandbox_forbids(SANDBOX_DEVICE))
                return false;
        if (driver == VLINK_KEEPER)
                return !has_other_processes(u);
        return driver == 0 || atomic_load_explicit(&u->s.st->proc[(driver - 1) % STACK_PROCS].pid,
                                                   memory_order_relaxed) == 0;
}

static bool goes_by(const struct ustack *u, uint32_t k, const struct vlink *v)
{
        return u->way[k] == &ustack_way_remote && u->remote[k].link == v;
}

/* Becomes the driver of link i, as vlink_drive(). Under the lock. */
static int ustack_drive(struct ustack *u, uint32_t i, uint32_t as, struct vlink_qp *qp)
{
        struct vlink *v = link_at(u, i);
        int err = vlink_drive(v, as, qp);

        assert(ustack_locked(u));
        assert(i < DIR_IFACES);
        for (uint32_t k = 0; err == 0 && k < u->s.nchan; k++)
                if (goes_by(u, k, v))
                        u->s.frames->region[FRAME_REGION_RX(k)].base = vlink_rx_frames(v);
        return err;
}

int ustack_link_map(struct ustack *u, uint32_t i, int mem, int book)
{
        struct vlink *v;
        int err;

        assert(i < DIR_IFACES);
        if (u->link[i] != NULL)
                return 0;
        err = vlink_map(mem, book, &u->s.st->cnt, ring, u, &v);
        if (err == 0)
                __atomic_store_n(&u->link[i], v, __ATOMIC_RELEASE);
        return err;
}

static void close_fds(struct ustack *u, uint32_t i)
{
        int mem = u->link_mem[i], book = u->link_book[i];

        WRITE_ONCE(u->link_mem[i], 0); /* read without the lock: ustack_links_own() */
        WRITE_ONCE(u->link_book[i], 0);
        if (mem != 0) {
                sys1(SYS_close, mem);
                sys1(SYS_close, book);
        }
}

/* For a unetd that knows nothing of the link. */
static void keep_fds(struct ustack *u, uint32_t i, int mem, int book)
{
        close_fds(u, i);
        WRITE_ONCE(u->link_mem[i], mem);
        WRITE_ONCE(u->link_book[i], book);
}

/* The link to the interface, and somebody who drives it. */
static int link_ready(struct ustack *u, const struct dir_iface *f)
{
        uint32_t i = index_of(f->peer);
        struct vlink *v = link_at(u, i);
        struct unetd_client *c;
        struct vlink_qp qp = {0, 0, 0};
        int mem = -1, book = -1, err = 0;

        if (v != NULL && !wants_us(u, v))
                return 0;
        c = ustack_client();
        if (link_at(u, i) == NULL)
                err = unetd_link_open(c, u->id, f->peer, &mem, &book);
        ustack_lock(u);
        if (err == 0)
                err = ustack_link_map(u, i, mem, book);
        if (mem >= 0)
                keep_fds(u, i, mem, book);
        v = link_at(u, i);
        if (err == 0 && wants_us(u, v))
                err = ustack_drive(u, i, u->slot + 1, &qp);
        ustack_leave(u);
        if (err == 0 && qp.qpn != 0)
                err = unetd_link_drive(c, u->id, f->peer, qp.qpn, qp.qkey, qp.mtu,
                                       vlink_shared(v)->pinned_kb);
        ustack_client_done();
        return err;
}

void ustack_link_take(struct ustack *u, const struct dir_iface *f)
{
        link_ready(u, f);
}

/* ---- channels ---- */

/* One whose peer has the port, as its agent says. */
static int chan_there(const struct ustack *u, const struct dir_iface *f, uint8_t proto, uint32_t to,
                      uint16_t port)
{
        const struct stack_state *st = u->s.st;
        const struct vlink *v = link_at(u, index_of(f->peer));

        for (uint32_t k = 0; k < atomic_load_explicit(&st->chans, memory_order_acquire); k++)
                if (atomic_load_explicit(&st->chan[k].state, memory_order_acquire) == CHAN_READY &&
                    st->chan[k].remote == to && st->chan[k].own.addr == f->addr &&
                    vlink_vouches(vlink_book(v), k, proto, port))
                        return (int)k;
        return -ENOENT;
}

static const char *why_not(int err)
{
        switch (err) {
        case -EDQUOT:
                return "no memory may be pinned for another queue pair (pinned in unet.conf)";
        case -ENOMEM:
                return "memory for a queue pair cannot be pinned (RLIMIT_MEMLOCK)";
        case -ENODEV:
                return "no RDMA device has the interface's address";
        case -ENETDOWN:
                return "the RDMA device's port is down";
        case -EOPNOTSUPP:
                return "the RDMA device has too little room for a queue pair";
        case -ENOSYS:
                return "built without verbs";
        default:
                return "no RDMA device to that host can be used";
        }
}

int ustack_remote(struct ustack *u, const struct dir_iface *f, uint8_t proto, ip_addr to,
                  uint16_t port, const char **why)
{
        uint32_t addr = ip_addr_get_v4(to), chan;
        int k, err = link_ready(u, f);

        *why = why_not(err);
        if (err != 0)
                return -ENOENT;
        k = chan_there(u, f, proto, addr, port);
        if (k >= 0)
                return k;
        err = unetd_remote_open(ustack_client(), u->id, f->peer, proto, addr, port, &chan);
        ustack_client_done();
        *why = err == -ENOENT ? "nobody on the fabric of that host has this port"
                              : "no unetd answers at that host";
        return err != 0 ? -ENOENT : (int)chan;
}

static bool remote_map(struct ustack *u, uint32_t k, const struct unetd_chan *fds)
{
        uint32_t i = fds->peer_chan % DIR_IFACES;

        if (k >= VLINK_CHANS || ustack_link_map(u, i, fds->mem, fds->book) != 0)
                return false;
        ni_verbs_init(&u->remote[k], link_at(u, i), k, fds->mtu, !fds->no_csum,
                      unet_mem_frames(u->chan[k].mine->frames, fds->tx_geom));
        return true;
}

static void remote_seat(struct ustack *u, uint32_t k)
{
        struct ni_verbs *n = &u->remote[k];

        stack_chan_mapped(&u->s, k, &n->base, n->tx.base, vlink_rx_frames(n->link));
}

/* The link stays, for others of the stack's channels. */
static void remote_end(struct ustack *u, uint32_t k)
{
}

/* Whatever was lent was lent to the dead process: packets are copied before a call ends, in
 * and out. */
static void remote_repair(struct ustack *u, uint32_t k)
{
        frame_unlend_all(u->s.frames, FRAME_REGION_TX(k));
}

const struct ustack_way ustack_way_remote = {.name = "remote",
                                             .takes = unetd_chan_is_remote,
                                             .map = remote_map,
                                             .seat = remote_seat,
                                             .end = remote_end,
                                             .unmap = remote_end,
                                             .repair = remote_repair};

/* ---- another unetd, whom no keeper may have told ---- */

/* A process that met the link with a channel has its descriptors there. */
static bool link_fds(const struct ustack *u, uint32_t i, int *mem, int *book)
{
        *mem = u->link_mem[i];
        *book = u->link_book[i];
        for (uint32_t k = 0; k < u->s.nchan && *mem <= 0; k++)
                if (goes_by(u, k, u->link[i]) && u->chan_fds[k].mem > 0) {
                        *mem = u->chan_fds[k].mem;
                        *book = u->chan_fds[k].book;
                }
        return *mem > 0;
}

void ustack_links_back(struct ustack *u, struct unetd_client *c)
{
        assert(ustack_locked(u));
        FOR_LINKS (u, i, v) {
                struct vlink_shared *sh = vlink_shared(v);
                int mem, book;

                if (!link_fds(u, i, &mem, &book) ||
                    unetd_link_back(c, u->id, UNETD_IFACE | i, mem, book) != 0)
                        continue;
                if (driver_of(v) == u->slot + 1)
                        unetd_link_drive(c, u->id, UNETD_IFACE | i, sh->qpn, sh->qkey, sh->mtu,
                                         sh->pinned_kb);
        }
}

void ustack_remotes_back(struct ustack *u, struct unetd_client *c)
{
        assert(ustack_locked(u));
        for (uint32_t k = 0; k < u->s.nchan; k++)
                if (u->way[k] == &ustack_way_remote && u->chan_fds[k].mem > 0 &&
                    atomic_load_explicit(&u->s.st->chan[k].state, memory_order_relaxed) ==
                            CHAN_READY)
                        unetd_chan_back(c, u->id, k, &u->chan_fds[k]);
}

bool ustack_remote_vouches(const struct stack *s, uint32_t k, uint8_t proto, uint16_t port)
{
        const struct ustack *u = s->owner;

        return u->way[k] == &ustack_way_remote &&
               vlink_vouches(vlink_book(u->remote[k].link), k, proto, port);
}

/* ---- drivers that do not come ---- */

static bool is_process(uint32_t driver)
{
        return driver != 0 && driver != VLINK_KEEPER;
}

void ustack_links_left(struct ustack *u, uint32_t slot)
{
        assert(ustack_locked(u));
        assert(slot < STACK_PROCS);
        FOR_LINKS (u, i, v)
                if (driver_of(v) == slot + 1)
                        atomic_store_explicit(&vlink_shared(v)->driver, 0, memory_order_relaxed);
}

bool ustack_links_elsewhere(const struct ustack *u)
{
        FOR_LINKS (u, i, v)
                if (is_process(driver_of(v)) && driver_of(v) != u->slot + 1)
                        return true;
        return false;
}

void ustack_links_doubt(struct ustack *u)
{
        assert(ustack_locked(u));
        FOR_LINKS (u, i, v) {
                struct vlink_shared *sh = vlink_shared(v);
                uint32_t driver = driver_of(v),
                         turns = atomic_load_explicit(&sh->turns, memory_order_relaxed);

                if (is_process(driver) && driver != u->slot + 1 && turns == u->turns[i] &&
                    !usock_wake_process(u, driver)) {
                        atomic_store_explicit(&sh->wanted, 1, memory_order_relaxed);
                        bell_ring(u->fds.ring_keeper);
                }
                u->turns[i] = turns;
        }
}

/* Something of the stack is left to be finished, or somebody to be reached. */
static bool needed(const struct ustack *u)
{
        const struct tcp_shared *t = u->s.tcp.sh;

        if (t->conns.used != t->time_wait.n)
                return true;
        for (uint32_t k = 0, n = stack_procs(u->s.st); k < n; k++)
                if (atomic_load_explicit(&u->s.st->proc[k].pid, memory_order_relaxed) != 0)
                        return true;
        return false;
}

/* Packets wait in the ring, and who drives has not looked for two ticks. */
static bool stands_still(struct ustack *u, uint32_t i, nstime now)
{
        struct vlink_shared *sh = vlink_shared(u->link[i]);
        uint32_t turns = atomic_load_explicit(&sh->turns, memory_order_relaxed);

        if (turns != u->turns[i] || !vlink_waits(u->link[i]))
                u->turned_at[i] = now;
        u->turns[i] = turns;
        return now - u->turned_at[i] >= STANDS_STILL;
}

/* Only by this a sleeping process learns that its device is being removed. */
static bool to_close(struct ustack *u, struct vlink *v)
{
        if (!vlink_away(v))
                return false;
        if (is_process(driver_of(v)))
                usock_wake_process(u, driver_of(v));
        return true;
}

nstime ustack_links_again(const struct ustack *u, nstime now)
{
        nstime when = NSTIME_NEVER;

        FOR_LINKS (u, i, v)
                if (u->drive_again[i] > now)
                        when = nstime_min(when, u->drive_again[i]);
        return when;
}

bool ustack_links_keep(struct ustack *u, nstime now, struct unetd_far *moved)
{
        assert(ustack_locked(u));
        FOR_LINKS (u, i, v) {
                struct vlink_shared *sh = vlink_shared(v);
                uint32_t driver = driver_of(v);
                struct vlink_qp qp;
                bool take;

                if (sh->drivers == 0 || now < u->drive_again[i] || !needed(u))
                        continue;
                if (to_close(u, v)) {
                        u->drive_again[i] = now + DRIVE_AGAIN;
                        continue;
                }
                if (driver == VLINK_KEEPER)
                        take = !vlink_drives(v);
                else
                        take = driver == 0 ||
                               atomic_load_explicit(&sh->wanted, memory_order_relaxed) ||
                               stands_still(u, i, now);
                if (!take)
                        continue;
                u->drive_again[i] = now + DRIVE_AGAIN;
                if (ustack_drive(u, i, VLINK_KEEPER, &qp) != 0)
                        continue;
                *moved = (struct unetd_far){.stack = u->id,
                                            .iface = UNETD_IFACE | i,
                                            .qpn = qp.qpn,
                                            .qkey = qp.qkey,
                                            .mtu = qp.mtu,
                                            .pinned_kb = sh->pinned_kb};
                return true;
        }
        return false;
}

/* ---- sleeping ---- */

bool ustack_links_any(const struct ustack *u)
{
        FOR_LINKS (u, i, v)
                return true;
        return false;
}

void ustack_links_arm(struct ustack *u)
{
        assert(ustack_locked(u));
        FOR_LINKS (u, i, v)
                vlink_arm(v);
}

int ustack_links_fds(const struct ustack *u, struct pollfd *pfd)
{
        int n = 0, fd[VERBS_WAKE_FDS];

        FOR_LINKS (u, i, v)
                for (int k = 0, have = vlink_wake_fds(v, fd); k < have; k++)
                        pfd[n++] = (struct pollfd){.fd = fd[k], .events = POLLIN};
        return n;
}

bool ustack_links_own(const struct ustack *u, int fd)
{
        FOR_LINKS (u, i, v)
                if (vlink_owns_fd(v, fd) || (fd > 0 && (fd == READ_ONCE(u->link_mem[i]) ||
                                                        fd == READ_ONCE(u->link_book[i]))))
                        return true;
        return false;
}

/* ---- coming and going ---- */

void ustack_links_yield(struct ustack *u)
{
        assert(ustack_locked(u));
        FOR_LINKS (u, i, v)
                if (vlink_drives(v))
                        vlink_give_up(v);
}

void ustack_links_forked(struct ustack *u)
{
        FOR_LINKS (u, i, v)
                vlink_forked(v);
}

void ustack_links_unmap(struct ustack *u)
{
        for (uint32_t i = 0; i < DIR_IFACES; i++) {
                if (u->link[i] != NULL)
                        vlink_unmap(u->link[i]);
                u->link[i] = NULL;
                close_fds(u, i);
        }
}
