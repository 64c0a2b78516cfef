/*
 * RDMA devices: this host's agent on each, and the links of stacks to them.
 *
 *   here:  remote_open() -- OPEN --> there: agent_asked() -> open_asked() -> its keeper attaches
 *          -> remote_up() -- answer -->
 *   here:  open_answered() -> our keeper attaches -> remote_up() -> the waiter is answered
 *
 * An agent speaks for its host. It says which stack has a port, by the directory, and with which
 * queue pair, by the process that the kernel names as its maker (owners.h). It says, too, that the
 * owner of this queue pair may send from these ports. An agent believes other agents only (cm.h
 * says how it knows one). What a stack is told stands in its book, which the stack cannot write.
 * Two stacks have one channel, whichever asks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memfd.h"
#include "unetd/daemon/shares.h"
#include "unetd/daemon/links.h"
#include "unetd/daemon/links_int.h"
#include "unetd/daemon/stacks.h"
#include "unetd/daemon/users.h"
#include "unetd/monitor/monitor.h"
#include "unetd/agent/owners.h"
#include "unetd/client/wire.h"

#define AGENT_AGAIN_SOON (50 * NS_PER_MS)
#define AGENT_AGAIN      (2 * NS_PER_S)
#define BOOK_NAME        "unet-book"
#define BOOK_LINK        "/memfd:" BOOK_NAME
/* What a driver pins, about (unet/verbs/ni_verbs.c). What it says is shown, and not counted: a
 * process may say what it likes. */
#define LINK_PINNED_KB 3328u

static struct agent agents[UNETD_IFACES];

/* Finds the agent that a request names in a stack's place; NULL: none. */
static struct agent *agent_find(uint32_t peer)
{
        uint32_t i = peer & ~UNETD_IFACE;

        return unetd_is_iface(peer) && i < UNETD_IFACES && agents[i].works ? &agents[i] : NULL;
}

struct agent *agent_at(uint32_t addr)
{
        for (uint32_t i = 0; i < UNETD_IFACES; i++)
                if (agents[i].works && agents[i].cfg->addr == addr)
                        return &agents[i];
        return NULL;
}

/* ---- links ---- */

struct rlink *link_numbered(const struct stack *st, uint32_t index)
{
        return index < UNETD_IFACES ? link_find(st, &agents[index]) : NULL;
}

struct rlink *link_find(const struct stack *st, const struct agent *a)
{
        struct rlink *l;

        LIST_FOREACH (l, &st->links, link)
                if (l->agent == a)
                        return l;
        return NULL;
}

static void link_free(struct rlink *l)
{
        openings_forget_link(l);
        LIST_REMOVE(l, link);
        l->st->user->kept -= SHARE_LINK_FDS;
        if (l->book)
                munmap(l->book, sizeof *l->book);
        if (l->mem >= 0)
                close(l->mem);
        if (l->book_fd >= 0)
                close(l->book_fd);
        free(l);
}

static int write_magic(int fd)
{
        const uint64_t magic = VLINK_MAGIC;

        return pwrite(fd, &magic, sizeof magic, 0) == sizeof magic ? 0 : -EIO;
}

static int make_memory(struct rlink *l)
{
        int fd, r = l->mem = unet_memfd_make_sealed("unet-link", vlink_bytes());

        if (r >= 0)
                r = write_magic(l->mem);
        fd = r < 0 ? r : unet_memfd_make_sealed(BOOK_NAME, sizeof *l->book);
        if (fd < 0)
                return fd;
        l->book = mmap(NULL, sizeof *l->book, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        l->book_fd = fd_reopen(fd, O_RDONLY);
        close(fd);
        if (l->book == MAP_FAILED) {
                l->book = NULL;
                return -ENOMEM;
        }
        l->book->magic = VLINK_MAGIC;
        l->book->stack = l->st->id;
        l->book->instance = l->instance;
        l->book->bytes = sizeof *l->book;
        l->book->addr = l->agent->cfg->addr;
        return l->book_fd < 0 ? l->book_fd : 0;
}

/* Gives the keeper the link, for the next unetd. */
static void link_to_keeper(const struct rlink *l)
{
        struct unetd_msg msg = {
                .type = UNETD_K_RLINK,
                .link = {.stack = l->st->id, .iface = UNETD_IFACE | l->agent->index}};
        int fds[UNETD_LINK_FDS] = {[UNETD_FD_LINK_MEM] = l->mem, [UNETD_FD_LINK_BOOK] = l->book_fd};

        assert(l->mem >= 0 && l->book_fd >= 0 && l->book != NULL);
        if (!l->st->untold) /* else stack_tell() says so */
                conn_send(&l->st->user->keeper, &msg, fds, UNETD_LINK_FDS);
}

void links_replay(const struct stack *st)
{
        const struct rlink *l;

        LIST_FOREACH (l, &st->links, link)
                link_to_keeper(l);
}

/* Returns how many links there are to the interface; `of` NULL: all users'. */
static uint32_t links_to(const struct agent *a, const struct user *of)
{
        uint32_t n = 0;
        struct stack *st;
        struct rlink *l;

        for (unsigned b = 0; b < STACK_BUCKETS; b++)
                LIST_FOREACH (st, &unetd.stacks[b], link)
                        LIST_FOREACH (l, &st->links, link)
                                n += l->agent == a && (!of || st->user == of);
        return n;
}

/* `again`: a link of an earlier unetd's, where he may have been the first: his share is that of who
 * is alone. He can bring links of all stacks that he has ever had. */
static bool may_pin(const struct agent *a, const struct user *u, bool again)
{
        uint32_t his = links_to(a, u), all = links_to(a, NULL),
                 total = a->cfg->pinned_mb * 1024 / LINK_PINNED_KB;

        return all < total && share_may_take(his, again ? his : all, total);
}

static int link_new(struct stack *st, struct agent *a, struct rlink **out)
{
        struct rlink *l;
        int r;

        assert(a->cfg != NULL && !link_find(st, a));
        if (!may_pin(a, st->user, false) || !share_keeper_may_hold(st->user, SHARE_LINK_FDS))
                return -EDQUOT;
        l = calloc(1, sizeof *l);
        if (!l)
                return -ENOMEM;
        *l = (struct rlink){.st = st,
                            .agent = a,
                            .mem = -1,
                            .book_fd = -1,
                            .instance = (uint32_t)unetd.instance};
        LIST_INSERT_HEAD(&st->links, l, link);
        st->user->kept += SHARE_LINK_FDS;
        r = make_memory(l);
        if (r < 0) {
                link_free(l);
                return r;
        }
        link_to_keeper(l);
        *out = l;
        return 0;
}

void link_changed(struct rlink *l)
{
        assert(l->book != NULL);
        l->book->version = ++l->version;
}

/* ---- links of an earlier unetd ---- */

/* Returns true if the descriptor is a book: a memory file that a unetd of this user made, and that
 * nobody else can write. */
static bool is_our_book(int fd)
{
        char name[64];

        return unet_memfd_check(fd, sizeof(struct vlink_book), false, geteuid()) == 0 &&
               fd_link(fd, name, sizeof name) > 0 &&
               strncmp(name, BOOK_LINK, strlen(BOOK_LINK)) == 0;
}

static struct vlink_book *map_book(int fd)
{
        int rw = fd_reopen(fd, O_RDWR);
        void *p = rw < 0 ? MAP_FAILED
                         : mmap(NULL, sizeof(struct vlink_book), PROT_READ | PROT_WRITE, MAP_SHARED,
                                rw, 0);

        if (rw >= 0)
                close(rw);
        return p == MAP_FAILED ? NULL : p;
}

/* Makes a link of what an earlier unetd had. Takes the descriptors that the link keeps. */
static void link_restore(struct stack *st, struct agent *a, struct wire_in *in)
{
        struct vlink_book *b = map_book(in->fds[UNETD_FD_LINK_BOOK]);
        struct rlink *l = b ? calloc(1, sizeof *l) : NULL;

        assert(in->n == UNETD_LINK_FDS && !link_find(st, a));
        if (!l || b->magic != VLINK_MAGIC || b->stack != st->id || b->addr != a->cfg->addr) {
                if (b)
                        munmap(b, sizeof *b);
                free(l);
                return;
        }
        vlink_redo(b);
        *l = (struct rlink){.st = st,
                            .agent = a,
                            .book = b,
                            .qpn = b->qpn,
                            .qkey = b->qkey,
                            .mtu = b->mtu,
                            .pinned_kb = b->pinned_kb,
                            .instance = b->instance,
                            .version = b->version};
        l->mem = wire_in_take(in, UNETD_FD_LINK_MEM);
        l->book_fd = wire_in_take(in, UNETD_FD_LINK_BOOK);
        if (a->works)
                b->away = false; /* the device came back while there was no unetd */
        LIST_INSERT_HEAD(&st->links, l, link);
        st->user->kept += SHARE_LINK_FDS;
        link_changed(l); /* its ports may be others now */
}

void link_offered(struct user *u, struct wire_in *in)
{
        uint32_t i = in->msg.link.iface & ~UNETD_IFACE;
        struct stack *st;

        if (in->n != UNETD_LINK_FDS || !unetd_is_iface(in->msg.link.iface) || i >= UNETD_IFACES ||
            !agents[i].cfg || stack_of(u, in->msg.link.stack, &st) < 0 ||
            link_find(st, &agents[i]) || !may_pin(&agents[i], u, true))
                return;
        if (unet_memfd_check(in->fds[UNETD_FD_LINK_MEM], vlink_bytes(), true, UNET_MEMFD_ANYBODY) ==
                    0 &&
            is_our_book(in->fds[UNETD_FD_LINK_BOOK]))
                link_restore(st, &agents[i], in);
}

void links_free(struct stack *st)
{
        struct rlink *l;

        while ((l = LIST_FIRST(&st->links)))
                link_free(l);
}

int link_named(struct user *u, const struct unetd_msg *msg, struct stack **st, struct agent **a,
               struct rlink **l)
{
        int r = stack_of(u, msg->link.stack, st);

        if (r < 0)
                return r;
        *a = agent_find(msg->link.iface);
        if (!*a)
                return -ENOENT;
        *l = link_find(*st, *a);
        return 0;
}

int link_open(struct client *cl, struct unetd_msg *msg)
{
        struct stack *st;
        struct agent *a;
        struct rlink *l;
        int r = link_named(cl->user, msg, &st, &a, &l), fds[UNETD_LINK_FDS];

        if (r == 0 && st->state != STACK_UP)
                r = -ENOENT;
        if (r == 0 && !l)
                r = link_new(st, a, &l);
        if (r < 0)
                return r;
        fds[UNETD_FD_LINK_MEM] = l->mem;
        fds[UNETD_FD_LINK_BOOK] = l->book_fd;
        msg->err = 0;
        msg->link.addr = l->book->addr;
        conn_send(&cl->conn, msg, fds, UNETD_LINK_FDS);
        return REPLY_LATER; /* it is sent */
}

/* ---- drivers ---- */

static bool is_thread_of(int32_t pid, int32_t tid)
{
        struct root_process p;

        monitor_process(pid, tid, &p);
        return p.has_thread;
}

static bool is_of_user(const struct user *u, int32_t tid)
{
        struct root_process p;

        monitor_process(tid, 0, &p);
        return p.is_there && p.uid == u->uid;
}

/* Checks who may name a queue pair: the process that made it, or the user's keeper, for any of the
 * user's processes. */
static int may_name(const struct user *u, int32_t pid, const struct rlink *l, uint32_t qpn)
{
        int32_t tid;
        int r = owner_of(l->agent->cfg->addr, qpn, &tid);

        if (r < 0)
                return r;
        if (is_thread_of(pid, tid) || (pid == u->keeper_pid && is_of_user(u, tid)))
                return 0;
        return -EPERM;
}

int link_drive(struct user *u, int32_t pid, const struct unetd_msg *msg)
{
        const struct unetd_far *by = &msg->link;
        struct stack *st;
        struct agent *a;
        struct rlink *l;
        int r = link_named(u, msg, &st, &a, &l);

        if (r < 0 || !l)
                return r < 0 ? r : -ENOENT;
        if (by->qpn == 0 || by->mtu < LINK_MTU_MIN)
                return -EINVAL;
        if (by->qpn == l->qpn && by->qkey == l->qkey)
                return 0; /* said again */
        r = may_name(u, pid, l, by->qpn);
        if (r < 0) {
                l->refused++;
                user_log(u, "interface %s: process %d may not name queue pair %u: %s", a->cfg->name,
                         pid, by->qpn, strerror(-r));
                return -EPERM;
        }
        l->book->qpn = l->qpn = by->qpn;
        l->book->qkey = l->qkey = by->qkey;
        l->book->mtu = l->mtu = MIN(by->mtu, VLINK_SLOT_BYTES);
        l->book->pinned_kb = l->pinned_kb = by->pinned_kb;
        link_changed(l);
        remotes_moved(l);
        return 0;
}

/* The book's queue pair may be out of date: unetd believes it if the device says that a process of
 * the user has it. */
int link_back(struct user *u, struct wire_in *in)
{
        uint32_t i = in->msg.link.iface & ~UNETD_IFACE;
        struct stack *st;
        struct rlink *l;
        int32_t tid;
        int r = stack_of(u, in->msg.link.stack, &st);

        if (r < 0)
                return r;
        if (link_numbered(st, i))
                return 0;
        link_offered(u, in);
        l = link_numbered(st, i);
        if (!l)
                return -EINVAL;
        if (l->qpn != 0 && (owner_of(l->agent->cfg->addr, l->qpn, &tid) < 0 || !is_of_user(u, tid)))
                l->book->qpn = l->qpn = 0;
        link_to_keeper(l);
        return 0;
}

/* ---- unet status ---- */

bool link_status(const struct stack *st, uint32_t *skip, struct unetd_status_item *item)
{
        const struct rlink *l;

        LIST_FOREACH (l, &st->links, link) {
                if ((*skip)-- != 0)
                        continue;
                item->uid = st->user->uid;
                item->stack = st->id;
                memcpy(item->qp.iface, l->agent->cfg->name, sizeof item->qp.iface);
                item->qp.at = l->agent->cfg->addr;
                item->qp.qpn = l->qpn;
                item->qp.mtu = l->mtu;
                item->qp.pinned_kb = l->pinned_kb;
                item->qp.refused = l->refused;
                return true;
        }
        return false;
}

/* ---- agents ---- */

static const char *agent_state(int r)
{
        switch (r) {
        case 0:
                return "other hosts' agents are answered";
        case -ENOENT:
        case -ENXIO:
                return "the kernel has no RDMA (no /dev/infiniband/rdma_cm)";
        case -ENODEV:
        case -EADDRNOTAVAIL:
                return "no RDMA device has its address";
        case -EACCES:
        case -EPERM:
                return "no RDMA without root's privilege";
        default:
                return strerror(-r);
        }
}

/* Tells the keepers whose processes have the device open to close it, or that they may open it
 * again. */
static void links_away(struct agent *a, bool away)
{
        struct stack *st;
        struct rlink *l;

        for (unsigned b = 0; b < STACK_BUCKETS; b++)
                LIST_FOREACH (st, &unetd.stacks[b], link)
                        LIST_FOREACH (l, &st->links, link) {
                                if (l->agent != a || l->book->away == away)
                                        continue;
                                l->book->away = away;
                                if (away)
                                        l->book->qpn = l->qpn = 0;
                                link_to_keeper(l);
                        }
}

/* The device goes. Channels wait for another device with the address, as long as for a silent host
 * (remotes.c). */
static void agent_lost(struct cm *cm)
{
        struct agent *a = (struct agent *)cm;

        log_line("interface %s: verbs: its RDMA device is being removed", a->cfg->name);
        a->works = false;
        a->failed = -ENODEV;
        a->again = loop_clock() + AGENT_AGAIN;
        directory_verbs_state(&unetd.dir, UNETD_IFACE | a->index, agent_state(a->failed));
        links_away(a, true);
        cm_close(cm);
        /* Those hosts were not silent: our device was gone. */
        memset(a->silent, 0, sizeof a->silent);
}

/* Tries to open the device. Another unetd, which is dying or about to exit, may have the address
 * still; or the device may come later. */
static void agent_start(struct agent *a)
{
        static const struct cm_ops ops = {.asked = agent_asked, .gone = agent_lost};
        const struct unetd_iface_config *cfg = a->cfg;
        struct dir_iface d = {
                .peer = UNETD_IFACE | a->index, .addr = cfg->addr, .prefix = cfg->prefix};
        int r = cm_open(&a->cm, &unetd.loop, cfg->addr, &ops);

        assert(a->cfg != NULL && !a->works);
        if (r != a->failed)
                log_line("interface %s: verbs: %s", cfg->name, agent_state(r));
        a->failed = r;
        a->again = loop_clock() + (r == -EADDRINUSE ? AGENT_AGAIN_SOON : AGENT_AGAIN);
        if (r < 0)
                return;
        a->works = true;
        links_away(a, false);
        memcpy(d.name, cfg->name, sizeof d.name);
        if (a->listed)
                directory_verbs_state(&unetd.dir, d.peer, "");
        else
                directory_add_verbs(&unetd.dir, &d);
        a->listed = true;
}

void links_init(void)
{
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++)
                if (unetd.cfg.iface[i].provider == IFACE_VERBS) {
                        agents[i].cfg = &unetd.cfg.iface[i];
                        agents[i].index = i;
                        agents[i].failed = 1; /* no errno: the first result is logged */
                        agent_start(&agents[i]);
                }
}

bool links_are_there(void)
{
        for (const struct agent *a = agents; a < agents + UNETD_IFACES; a++)
                if (a->cfg)
                        return true;
        return false;
}

nstime links_tick(void)
{
        nstime when = NSTIME_NEVER;

        for (struct agent *a = agents; a < agents + UNETD_IFACES; a++) {
                if (a->cfg && !a->works && a->again <= loop_clock())
                        agent_start(a);
                if (a->cfg)
                        when = nstime_min(when, a->works ? cm_tick(&a->cm) : a->again);
        }
        return nstime_min(nstime_min(when, openings_tick()), remotes_tick());
}
