/*
 * RDMA devices: this host's agent on each, the links of stacks to them, and channels to stacks of other hosts.
 *
 *      here:   remote_open() -- OPEN --> there: asked() -> open_asked() -> its keeper attaches -> remote_up() -- answer -->
 *      here:   open_answered() -> our keeper attaches -> remote_up() -> the waiter is answered
 *
 * An agent speaks for its host: which stack has a port, by the directory; with which queue pair, by the stack's word; and
 * that whoever has this queue pair may send from these ports. Nobody else's word is taken (cm.h says why it is an agent's),
 * and what a stack is told stands in its book, which it cannot write. Between two stacks there is one channel, whoever asks.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unetd/agent_wire.h"
#include "unetd/cm.h"
#include "unetd/daemon.h"
#include "unetd/fdcheck.h"

#define SILENT_HOSTS 16u                /* without an agent, remembered */
#define SILENT_NS    (5 * NS_PER_S)
#define LINK_MTU_MIN   256u               /* as long as the smallest datagram of RDMA */
#define LINK_PINNED_KB 3328u            /* about what a driver pins (unet/ni_verbs.c), before it has said */

struct agent {
        struct cm cm;                   /* first: handlers cast */
        const struct unetd_iface_config *cfg;
        bool works;
        struct {
                uint32_t addr;
                nstime until;
        } silent[SILENT_HOSTS];
};

/* A request that waits for another host's agent. */
struct opening {
        LIST_ENTRY(opening) link;
        struct waiter *w;               /* NULL: it waited too long */
        struct rlink *via;               /* NULL: its stack is gone */
        uint32_t mine, addr;
};

/* One that waits until agents have heard of ports. */
struct telling {
        struct waiter *w;
        unsigned left;
};

static struct agent agents[UNETD_IFACES];
static LIST_HEAD(, opening) openings = LIST_HEAD_INITIALIZER(openings);
static uint32_t last_number;

/* The one that a request names in a stack's place; NULL: none. */
static struct agent *agent_find(uint32_t peer)
{
        uint32_t i = peer & ~UNETD_IFACE;

        return unetd_is_iface(peer) && i < UNETD_IFACES && agents[i].works ? &agents[i] : NULL;
}

static struct agent *agent_at(uint32_t addr)
{
        for (uint32_t i = 0; i < UNETD_IFACES; i++)
                if (agents[i].works && agents[i].cfg->addr == addr)
                        return &agents[i];
        return NULL;
}

/* ---- silent hosts ---- */

static bool is_silent(const struct agent *a, uint32_t addr)
{
        for (unsigned i = 0; i < SILENT_HOSTS; i++)
                if (a->silent[i].addr == addr && a->silent[i].until > unetd.loop.now)
                        return true;
        return false;
}

static void note_silence(struct agent *a, uint32_t addr, bool silent)
{
        unsigned at = addr % SILENT_HOSTS;

        if (!silent && a->silent[at].addr != addr)
                return;
        a->silent[at].addr = addr;
        a->silent[at].until = silent ? loop_clock() + SILENT_NS : 0;
}

/* ---- links ---- */

static int memfd_new(const char *name, size_t bytes)
{
        int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

        if (fd < 0)
                return -errno;
        if (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)bytes) < 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
                int err = errno;
                close(fd);
                return -err;
        }
        return fd;
}

static struct rlink *link_find(const struct stack *st, const struct agent *a)
{
        struct rlink *l;

        LIST_FOREACH(l, &st->links, link)
                if (l->agent == a)
                        return l;
        return NULL;
}

static void link_free(struct rlink *l)
{
        struct opening *o;

        LIST_FOREACH(o, &openings, link)
                if (o->via == l)
                        o->via = NULL;
        if (l->st)
                LIST_REMOVE(l, link);
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
        int fd, r = l->mem = memfd_new("unet-link", vlink_bytes());

        if (r >= 0)
                r = write_magic(l->mem);
        fd = r < 0 ? r : memfd_new("unet-book", sizeof *l->book);
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
        l->book->bytes = sizeof *l->book;
        l->book->addr = l->agent->cfg->addr;
        return l->book_fd < 0 ? l->book_fd : 0;
}

/* What links to the interface have pinned, those that nobody drives yet as well. */
static uint64_t pinned_kb(const struct agent *a)
{
        uint64_t sum = 0;
        struct stack *st;
        struct rlink *l;

        for (unsigned b = 0; b < STACK_BUCKETS; b++)
                LIST_FOREACH(st, &unetd.stacks[b], link)
                        LIST_FOREACH(l, &st->links, link)
                                if (l->agent == a)
                                        sum += MAX(l->pinned_kb, (uint32_t)LINK_PINNED_KB);
        return sum;
}

static int link_new(struct stack *st, struct agent *a, struct rlink **out)
{
        struct rlink *l;
        int r;

        if (pinned_kb(a) + LINK_PINNED_KB > (uint64_t)a->cfg->pinned_mb * 1024)
                return -EDQUOT;
        l = calloc(1, sizeof *l);
        if (!l)
                return -ENOMEM;
        *l = (struct rlink){.agent = a, .mem = -1, .book_fd = -1};
        r = make_memory(l);
        if (r < 0) {
                link_free(l);
                return r;
        }
        l->st = st;
        LIST_INSERT_HEAD(&st->links, l, link);
        *out = l;
        return 0;
}

void links_free(struct stack *st)
{
        struct rlink *l;

        while ((l = LIST_FIRST(&st->links)))
                link_free(l);
}

/* The stack and interface that a request names; *l is NULL when there is no link yet. */
static int find(struct user *u, const struct unetd_msg *msg, struct stack **st, struct agent **a, struct rlink **l)
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
        int r = find(cl->user, msg, &st, &a, &l), fds[UNETD_LINK_FDS];

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
        return REPLY_LATER;             /* it is answered */
}

/* ---- channels ---- */

static bool same_far_end(const struct remote *r, const struct rlink *l, uint32_t addr, const struct agent_msg *m)
{
        return r->link == l && r->addr == addr && r->instance == m->instance && r->stack == m->stack;
}

static struct chan *chan_between(const struct rlink *l, uint32_t addr, const struct agent_msg *m)
{
        struct chan *ch;

        LIST_FOREACH(ch, &unetd.chans, link)
                if (ch->remote && ch->end[0].state != END_CLOSING && ch->end[0].state != END_FREE &&
                    same_far_end(ch->remote, l, addr, m))
                        return ch;
        return NULL;
}

/* By our number; only the host it leads to may name it. */
static struct chan *chan_numbered(uint32_t number, uint32_t addr)
{
        struct chan *ch;

        LIST_FOREACH(ch, &unetd.chans, link)
                if (ch->remote && ch->remote->mine == number && ch->remote->addr == addr)
                        return ch;
        return NULL;
}

/* What is known of the far end goes into the stack's book. */
static void publish(const struct chan *ch)
{
        const struct remote *r = ch->remote;
        struct vlink_peer *p = vlink_write(r->link->book, ch->end[0].slot);

        p->addr = r->addr;
        p->qpn = r->qpn;
        p->qkey = r->qkey;
        p->nranges = r->nranges;
        memcpy(p->range, r->range, sizeof p->range);
        vlink_written(r->link->book);
}

static void add_range(struct remote *r, struct vlink_range g)
{
        for (uint32_t i = 0; i < r->nranges; i++)
                if (memcmp(&r->range[i], &g, sizeof g) == 0)
                        return;
        if (r->nranges < VLINK_RANGES)
                r->range[r->nranges++] = g;
}

static void del_range(struct remote *r, struct vlink_range g)
{
        for (uint32_t i = 0; i < r->nranges; i++)
                if (memcmp(&r->range[i], &g, sizeof g) == 0) {
                        r->range[i] = r->range[--r->nranges];
                        return;
                }
}

static void learn(struct remote *r, const struct agent_msg *m)
{
        if (m->qpn != 0) {
                r->qpn = m->qpn;
                r->qkey = m->qkey;
        }
        if (m->mine != 0)
                r->theirs = m->mine;
        for (uint16_t i = 0; i < m->nranges; i++) {
                if (m->op == AGENT_UNPORTS)
                        del_range(r, m->range[i]);
                else
                        add_range(r, m->range[i]);
        }
}

static void put_range(struct agent_msg *m, uint8_t proto, uint16_t first, uint16_t count)
{
        if (m->nranges < AGENT_RANGES)
                m->range[m->nranges++] = (struct vlink_range){.proto = proto, .first = first, .count = count};
}

/* Who we are, in what another agent is told: the port that is asked for first, then what the stack may send from. */
static struct agent_msg about(const struct rlink *l, enum agent_op op)
{
        const struct listener *p;
        const struct lease *b;
        struct agent_msg m = {.op = (uint8_t)op,
                              .instance = (uint32_t)unetd.instance,
                              .stack = l->st->id,
                              .qpn = l->qpn,
                              .qkey = l->qkey,
                              .mtu = l->mtu,
                              .flags = l->agent->cfg->checksum ? 0 : AGENT_NO_CSUM};

        if (op != AGENT_OPEN)
                return m;
        LIST_FOREACH(b, &l->st->leases, link)
                put_range(&m, IPPROTO_TCP, (uint16_t)(unetd.lease_low + b->block * unetd.cfg.lease_ports),
                          (uint16_t)unetd.cfg.lease_ports);
        LIST_FOREACH(p, &l->st->listeners, link)
                put_range(&m, p->proto, p->port, 1);
        LIST_FOREACH(p, &l->st->holds, link)
                put_range(&m, p->proto, p->port, 1);
        return m;
}

static struct remote *remote_new(struct rlink *l, uint32_t addr, uint32_t mine, const struct agent_msg *m)
{
        struct remote *r = calloc(1, sizeof *r);

        if (!r)
                return NULL;
        *r = (struct remote){.link = l,
                             .addr = addr,
                             .instance = m->instance,
                             .stack = m->stack,
                             .mine = mine,
                             .mtu = MIN(l->mtu, m->mtu),
                             .no_csum = !l->agent->cfg->checksum && (m->flags & AGENT_NO_CSUM)};
        learn(r, m);
        return r;
}

void remote_describe(const struct chan *ch, struct unetd_chan_info *info, int fds[UNETD_CHAN_FDS])
{
        const struct remote *r = ch->remote;
        const struct unetd_iface_config *cfg = r->link->agent->cfg;

        info->peer_stack = UNETD_REMOTE | (r->mine & UNETD_STACK_ID_MAX);
        info->peer_chan = (uint32_t)(r->link->agent - agents);
        info->peer_uid = UINT32_MAX;
        memcpy(info->iface.name, cfg->name, sizeof info->iface.name);
        info->iface.addr = cfg->addr;
        info->iface.gateway = 0;
        info->iface.prefix = cfg->prefix;
        info->remote = r->addr;
        info->mtu = r->mtu;
        info->no_csum = r->no_csum;
        fds[UNETD_FD_RM_MEM] = r->link->mem;
        fds[UNETD_FD_RM_BOOK] = r->link->book_fd;
}

/* ---- saying ---- */

static void heard(void *arg, int err, const void *data, size_t len)
{
        struct telling *t = arg;

        if (!t || --t->left != 0)
                return;
        if (t->w) {
                t->w->telling = NULL;
                waiter_end(t->w, 0);
        }
        free(t);
}

void telling_forget(struct telling *t)
{
        t->w = NULL;
}

/* Asks the agent at the far end of a channel; `t` may be NULL. */
static bool tell(const struct chan *ch, struct agent_msg *m, struct telling *t)
{
        uint8_t bytes[CM_ASK_MAX];

        m->yours = ch->remote->theirs;
        return m->yours != 0 && cm_ask(&ch->remote->link->agent->cm, ch->remote->addr, bytes,
                                       agent_write(m, false, bytes, sizeof bytes), heard, t) != NULL;
}

/* All that have a channel with the stack. Returns how many will answer. */
static unsigned tell_all(const struct rlink *l, struct agent_msg *m, struct telling *t)
{
        unsigned n = 0;
        struct chan *ch;

        LIST_FOREACH(ch, &unetd.chans, link)
                if (ch->remote && ch->remote->link == l && ch->end[0].state == END_UP)
                        n += tell(ch, m, t);
        return n;
}

int links_ports(struct client *cl, const struct unetd_msg *request, struct stack *st, struct vlink_range r, bool add)
{
        struct telling *t = NULL;
        unsigned n = 0;
        struct rlink *l;

        if (LIST_EMPTY(&st->links))
                return 0;
        if (cl && !(t = calloc(1, sizeof *t)))
                return 0;
        LIST_FOREACH(l, &st->links, link) {
                struct agent_msg m = about(l, add ? AGENT_PORTS : AGENT_UNPORTS);
                put_range(&m, r.proto, r.first, r.count);
                n += tell_all(l, &m, t);
        }
        if (!t)
                return 0;
        t->left = n;
        if (n == 0 || waiter_new(cl, request, &t->w) < 0) {
                t->w = NULL;
                if (n == 0)
                        free(t);
                return 0;
        }
        t->w->telling = t;
        return REPLY_LATER;
}

static int driven(struct rlink *l, const struct unetd_far *by)
{
        struct agent_msg m;

        if (by->qpn == 0 || by->mtu < LINK_MTU_MIN)
                return -EINVAL;
        l->qpn = by->qpn;
        l->qkey = by->qkey;
        l->mtu = MIN(by->mtu, VLINK_SLOT_BYTES);
        l->pinned_kb = by->pinned_kb;
        m = about(l, AGENT_MOVED);
        tell_all(l, &m, NULL);
        return 0;
}

int link_drive(struct user *u, const struct unetd_msg *msg)
{
        struct stack *st;
        struct agent *a;
        struct rlink *l;
        int r = find(u, msg, &st, &a, &l);

        return r < 0 ? r : !l ? -ENOENT : driven(l, &msg->link);
}

/* ---- asking for a channel ---- */

void opening_forget(struct opening *o)
{
        o->w = NULL;
}

static void opening_free(struct opening *o)
{
        if (o->w)
                o->w->opening = NULL;
        LIST_REMOVE(o, link);
        free(o);
}

static void opening_end(struct opening *o, int err)
{
        struct waiter *w = o->w;

        opening_free(o);
        if (w)
                waiter_end(w, err);
}

/* The waiter goes on waiting for our keeper. */
static void wait_for_chan(struct opening *o, struct chan *ch)
{
        struct waiter *w = o->w;

        opening_free(o);
        if (!w)
                return;
        w->request.link.chan = ch->end[0].slot;
        if (ch->end[0].state == END_UP) {
                waiter_end(w, 0);
                return;
        }
        w->chan = ch;
        LIST_INSERT_HEAD(&ch->waiters, w, of_chan);
}

static void open_answered(void *arg, int err, const void *data, size_t len)
{
        struct opening *o = arg;
        struct rlink *l = o->via;
        struct agent_msg m;
        struct chan *ch;
        struct remote *r;

        if (l)
                note_silence(l->agent, o->addr, err != 0);
        if (err != 0 || !l || !agent_read(&m, true, data, len) || m.err != 0 || m.qpn == 0 || m.mtu < LINK_MTU_MIN) {
                opening_end(o, err != 0 ? -EHOSTUNREACH : -ENOENT);
                return;
        }
        ch = chan_between(l, o->addr, &m);
        if (ch) {
                learn(ch->remote, &m);
                if (ch->end[0].state == END_UP)
                        publish(ch);
                wait_for_chan(o, ch);
                return;
        }
        r = remote_new(l, o->addr, o->mine, &m);
        err = r ? chan_new_remote(l->st, r, &ch) : -ENOMEM;
        if (err < 0)
                opening_end(o, err);
        else
                wait_for_chan(o, ch);
}

int remote_open(struct client *cl, struct unetd_msg *msg)
{
        uint8_t bytes[CM_ASK_MAX];
        struct stack *st;
        struct agent *a;
        struct rlink *l;
        struct opening *o;
        struct agent_msg m;
        int r = find(cl->user, msg, &st, &a, &l);

        if (r < 0)
                return r;
        if (st->state != STACK_UP || !l || l->qpn == 0 || msg->link.port == 0)
                return -EINVAL;
        if (is_silent(l->agent, msg->link.addr))
                return -EHOSTUNREACH;
        o = calloc(1, sizeof *o);
        if (!o)
                return -ENOMEM;
        *o = (struct opening){.via = l, .mine = ++last_number, .addr = msg->link.addr};
        r = waiter_new(cl, msg, &o->w);
        if (r < 0) {
                free(o);
                return r;
        }
        o->w->opening = o;
        LIST_INSERT_HEAD(&openings, o, link);
        m = about(l, AGENT_OPEN);
        m.proto = msg->link.proto;
        m.port = msg->link.port;
        m.addr = msg->link.addr;
        m.mine = o->mine;
        if (!cm_ask(&l->agent->cm, m.addr, bytes, agent_write(&m, false, bytes, sizeof bytes), open_answered, o))
                opening_end(o, -ENOMEM);
        return REPLY_LATER;
}

/* ---- being asked ---- */

static void answer(struct agent *a, uint32_t id, const struct agent_msg *m)
{
        uint8_t bytes[CM_ANSWER_MAX];

        cm_answer(&a->cm, id, bytes, agent_write(m, true, bytes, sizeof bytes));
}

static void refuse(struct agent *a, uint32_t id, int err)
{
        const struct agent_msg m = {.err = (uint32_t)-err, .instance = (uint32_t)unetd.instance};

        answer(a, id, &m);
}

static void answer_open(const struct chan *ch, uint32_t id, uint8_t proto, uint16_t port)
{
        struct agent_msg m = about(ch->remote->link, AGENT_OPEN);

        if (port != 0) {                /* whatever does not fit in, this does */
                m.nranges = (uint16_t)MIN(m.nranges, AGENT_RANGES - 1);
                memmove(m.range + 1, m.range, m.nranges * sizeof *m.range);
                m.range[0] = (struct vlink_range){.proto = proto, .first = port, .count = 1};
                m.nranges++;
        }
        m.mine = ch->remote->mine;
        m.yours = ch->remote->theirs;
        answer(ch->remote->link->agent, id, &m);
}

/* The link of the stack that takes what is sent there. */
static struct rlink *link_at(const struct agent_msg *m)
{
        struct agent *a = agent_at(m->addr);
        struct dir_hit hit;
        struct stack *st;
        struct rlink *l;

        if (!a || (m->proto != IPPROTO_TCP && m->proto != IPPROTO_UDP) ||
            directory_lookup(unetd.dir.d, m->proto, ip_addr_v4(m->addr), m->port, m->stack, &hit) != 1)
                return NULL;
        st = stack_find(hit.stack);
        l = st && st->state == STACK_UP ? link_find(st, a) : NULL;
        return l && l->qpn != 0 ? l : NULL;
}

static int open_asked(struct agent *a, uint32_t id, uint32_t from, const struct agent_msg *m)
{
        struct rlink *l = link_at(m);
        struct chan *ch;
        struct remote *r;
        int err;

        if (!l || l->agent != a)
                return -ENOENT;
        if (m->qpn == 0 || m->mtu < LINK_MTU_MIN)
                return -EINVAL;
        ch = chan_between(l, from, m);
        if (!ch) {
                r = remote_new(l, from, ++last_number, m);
                err = r ? chan_new_remote(l->st, r, &ch) : -ENOMEM;
                if (err < 0)
                        return err;
        } else {
                learn(ch->remote, m);
        }
        if (ch->end[0].state == END_UP) {
                publish(ch);
                answer_open(ch, id, m->proto, m->port);
                return 0;
        }
        if (ch->remote->asked != 0)
                refuse(a, ch->remote->asked, -EAGAIN);
        ch->remote->asked = id;
        return 0;
}

void remote_up(struct chan *ch)
{
        uint32_t id = ch->remote->asked;

        publish(ch);
        ch->remote->asked = 0;
        if (id != 0)
                answer_open(ch, id, 0, 0);
}

void remote_gone(struct chan *ch)
{
        struct remote *r = ch->remote;
        struct agent_msg m = {.op = AGENT_CLOSE, .instance = (uint32_t)unetd.instance};

        if (r->asked != 0)
                refuse(r->link->agent, r->asked, -ECONNRESET);
        tell(ch, &m, NULL);
        *vlink_write(r->link->book, ch->end[0].slot) = (struct vlink_peer){.addr = 0};
        vlink_written(r->link->book);
        ch->remote = NULL;
        free(r);
}

/* Anything but OPEN is about a channel that there is. */
static int told(uint32_t from, const struct agent_msg *m)
{
        struct chan *ch = chan_numbered(m->yours, from);

        if (!ch || ch->remote->instance != m->instance)
                return -ENOENT;
        if (m->op == AGENT_CLOSE) {
                ch->remote->theirs = 0;
                chan_close(ch, -ECONNRESET);
                return 0;
        }
        learn(ch->remote, m);
        if (ch->end[0].state == END_UP)
                publish(ch);
        return 0;
}

static void asked(struct cm *cm, uint32_t id, uint32_t from, const void *data, size_t len)
{
        struct agent *a = (struct agent *)cm;
        struct agent_msg m;
        int err = agent_read(&m, false, data, len) ? 0 : -EBADMSG;

        if (err == 0 && m.op == AGENT_OPEN) {
                err = open_asked(a, id, from, &m);
                if (err == 0)
                        return;         /* it was answered, or will be */
        } else if (err == 0) {
                err = told(from, &m);
        }
        refuse(a, id, err);
}

/* ---- unet status ---- */

bool link_status(const struct stack *st, uint32_t *skip, struct unetd_status_item *item)
{
        const struct rlink *l;

        LIST_FOREACH(l, &st->links, link) {
                if ((*skip)-- != 0)
                        continue;
                item->uid = st->user->uid;
                item->stack = st->id;
                memcpy(item->qp.iface, l->agent->cfg->name, sizeof item->qp.iface);
                item->qp.at = l->agent->cfg->addr;
                item->qp.qpn = l->qpn;
                item->qp.mtu = l->mtu;
                item->qp.pinned_kb = l->pinned_kb;
                return true;
        }
        return false;
}

void remote_status(const struct chan *ch, struct unetd_status_item *item)
{
        const struct remote *r = ch->remote;

        memcpy(item->qp.iface, r->link->agent->cfg->name, sizeof item->qp.iface);
        item->qp.at = r->addr;
        item->qp.qpn = r->qpn;
        item->qp.mtu = r->mtu;
        item->qp.ranges = r->nranges;
        item->qp.no_csum = r->no_csum;
}

/* ---- agents ---- */

static void agent_start(uint32_t i)
{
        static const struct cm_ops ops = {.asked = asked};
        const struct unetd_iface_config *cfg = &unetd.cfg.iface[i];
        struct dir_iface d = {.peer = UNETD_IFACE | i, .addr = cfg->addr, .prefix = cfg->prefix};
        int r = cm_open(&agents[i].cm, &unetd.loop, cfg->addr, &ops);

        log_line("interface %s: verbs: %s", cfg->name, r == 0 ? "other hosts' agents are answered" : strerror(-r));
        if (r < 0)
                return;
        agents[i].cfg = cfg;
        agents[i].works = true;
        memcpy(d.name, cfg->name, sizeof d.name);
        directory_add_verbs(&unetd.dir, &d);
}

void links_init(void)
{
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++)
                if (unetd.cfg.iface[i].provider == IFACE_VERBS)
                        agent_start(i);
}

nstime links_tick(void)
{
        nstime when = NSTIME_NEVER;

        for (unsigned i = 0; i < UNETD_IFACES; i++)
                if (agents[i].works)
                        when = nstime_min(when, cm_tick(&agents[i].cm));
        return when;
}
