/*
 * Channels to stacks of other hosts: what is known of the far end, and what the agents say to each other of it (links.c has the
 * story).
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "unetd/links.h"

/* One that waits until agents have heard of ports. */
struct telling {
        struct waiter *w;
        unsigned left;
};

/* ---- channels ---- */

static bool same_far_end(const struct remote *r, const struct rlink *l, uint32_t addr, const struct agent_msg *m)
{
        return r->link == l && r->addr == addr && r->instance == m->instance && r->stack == m->stack;
}

struct chan *remote_find(const struct rlink *l, uint32_t addr, const struct agent_msg *m)
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

void remote_learn(struct chan *ch, const struct agent_msg *m)
{
        learn(ch->remote, m);
        if (ch->end[0].state == END_UP)
                publish(ch);
}

static void put_range(struct agent_msg *m, uint8_t proto, uint16_t first, uint16_t count)
{
        if (m->nranges < AGENT_RANGES)
                m->range[m->nranges++] = (struct vlink_range){.proto = proto, .first = first, .count = count};
}

struct agent_msg link_says(const struct rlink *l, enum agent_op op)
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

struct remote *remote_new(struct rlink *l, uint32_t addr, uint32_t mine, const struct agent_msg *m)
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
        info->peer_chan = r->link->agent->index;
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

void remotes_moved(const struct rlink *l)
{
        struct agent_msg m = link_says(l, AGENT_MOVED);

        tell_all(l, &m, NULL);
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
                struct agent_msg m = link_says(l, add ? AGENT_PORTS : AGENT_UNPORTS);
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


void remote_up(struct chan *ch)
{
        uint32_t id = ch->remote->asked;

        publish(ch);
        ch->remote->asked = 0;
        if (id != 0)
                agent_answer_open(ch, id, 0, 0);
}

void remote_gone(struct chan *ch)
{
        struct remote *r = ch->remote;
        struct agent_msg m = {.op = AGENT_CLOSE, .instance = (uint32_t)unetd.instance};

        if (r->asked != 0)
                agent_refuse(r->link->agent, r->asked, -ECONNRESET);
        tell(ch, &m, NULL);
        *vlink_write(r->link->book, ch->end[0].slot) = (struct vlink_peer){.addr = 0};
        vlink_written(r->link->book);
        ch->remote = NULL;
        free(r);
}

int remote_told(uint32_t from, const struct agent_msg *m)
{
        struct chan *ch = chan_numbered(m->yours, from);

        if (!ch || ch->remote->instance != m->instance)
                return -ENOENT;
        if (m->op == AGENT_CLOSE) {
                ch->remote->theirs = 0;
                chan_close(ch, -ECONNRESET);
                return 0;
        }
        remote_learn(ch, m);
        return 0;
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

