/* Channels to stacks of other hosts: what is known of the far end, and what the agents tell each
 * other (links.c has the story). */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "unetd/daemon/chans.h"
#include "unetd/daemon/clients.h"
#include "unetd/daemon/links.h"
#include "unetd/daemon/links_int.h"

#define PROBE_EVERY (10 * NS_PER_S)
#define PROBE_AGAIN NS_PER_S /* after the agent was silent, or busy */
/* Of channels that another host asked for: our answer is there by then. */
#define PROBE_FIRST (20 * NS_PER_MS)
#define ASKED_NS    (CM_TRY / 2) /* before another host's agent asks again */
/* Of channels from an earlier unetd: the keepers have told everything by then. */
#define PROBE_RESTORED (300 * NS_PER_MS)

static nstime next_probe = NSTIME_NEVER; /* or the next late answer */

/* Those of all channels: what other hosts say is looked up here, among few. */
static LIST_HEAD(, remote) remotes = LIST_HEAD_INITIALIZER(remotes);

static void probe_at(struct remote *r, nstime when);

/* A waiter until agents have heard of ports. */
struct telling {
        struct waiter *w;
        unsigned left;
};

/* ---- channels ---- */

static bool same_far_end(const struct remote *r, const struct rlink *l, uint32_t addr,
                         const struct agent_msg *m)
{
        return r->link == l && r->addr == addr && r->instance == m->instance &&
               r->stack == m->stack;
}

void remote_seat(struct chan *ch, struct remote *r)
{
        assert(ch->remote == NULL && r->chan == NULL);
        ch->remote = r;
        r->chan = ch;
        LIST_INSERT_HEAD(&remotes, r, all);
}

struct chan *remote_find(const struct rlink *l, uint32_t addr, const struct agent_msg *m)
{
        struct remote *r;

        LIST_FOREACH (r, &remotes, all)
                if (r->chan->end[0].state != END_CLOSING && r->chan->end[0].state != END_FREE &&
                    same_far_end(r, l, addr, m))
                        return r->chan;
        return NULL;
}

/* Finds a channel by our number. Only the host that it leads to may name it. */
static struct chan *chan_numbered(uint32_t number, uint32_t addr)
{
        struct remote *r;

        LIST_FOREACH (r, &remotes, all)
                if (r->mine == number && r->addr == addr &&
                    (r->chan->end[0].state == END_OPENING || r->chan->end[0].state == END_UP))
                        return r->chan;
        return NULL;
}

/* Numbers go up from a random one: a host that knew a number of an earlier unetd's must not take
 * another channel for it. */
uint32_t remote_number(void)
{
        static uint32_t last;
        bool used = true;
        struct remote *r;

        if (last == 0)
                last = (uint32_t)unetd.instance;
        while (used) {
                last = (last + 1) & UNETD_STACK_ID_MAX;
                used = last == 0;
                LIST_FOREACH (r, &remotes, all)
                        used |= r->mine == last;
        }
        return last;
}

/* Writes what is known of the far end into the stack's book. */
static void publish(const struct chan *ch)
{
        const struct remote *r = ch->remote;
        struct vlink_peer p = {.addr = r->addr,
                               .qpn = r->qpn,
                               .qkey = r->qkey,
                               .nranges = r->nranges,
                               .instance = r->instance,
                               .stack = r->stack,
                               .mine = r->mine,
                               .theirs = r->theirs,
                               .mtu = r->mtu,
                               .no_csum = r->no_csum,
                               .version = r->version};

        assert(ch->end[0].stack == ch->remote->link->st);
        memcpy(p.range, r->range, sizeof p.range);
        vlink_put(r->link->book, ch->end[0].slot, &p);
}

struct remote *remote_restore(const struct stack *st, const struct unetd_chan_info *info)
{
        struct rlink *l = link_numbered(st, info->peer_chan);
        struct vlink_peer p;
        struct remote *r;

        if (!l || !vlink_read(l->book, info->chan, &p) ||
            p.mine != (info->peer_stack & UNETD_STACK_ID_MAX))
                return NULL;
        r = calloc(1, sizeof *r);
        if (!r)
                return NULL;
        *r = (struct remote){.link = l,
                             .addr = p.addr,
                             .instance = p.instance,
                             .stack = p.stack,
                             .mine = p.mine,
                             .theirs = p.theirs,
                             .qpn = p.qpn,
                             .qkey = p.qkey,
                             .mtu = p.mtu,
                             .no_csum = p.no_csum != 0,
                             .version = p.version,
                             .proven = true,
                             .nranges = MIN(p.nranges, VLINK_RANGES)};
        memcpy(r->range, p.range, sizeof r->range);
        probe_at(r, unetd.loop.now + PROBE_RESTORED);
        return r;
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

/* Takes over everything, or what has changed. An older version is ignored. After a missed version
 * unetd asks for everything. */
static void learn(struct remote *r, const struct agent_msg *m)
{
        bool all = m->op == AGENT_OPEN || m->op == AGENT_HERE;
        int32_t newer = (int32_t)(m->version - r->version);

        if (m->mine != 0)
                r->theirs = m->mine;
        if (newer < 0 || (newer == 0 && !all))
                return;
        if (newer > 1 && !all)
                probe_at(r, unetd.loop.now);
        r->version = m->version;
        if (m->qpn != 0) {
                r->qpn = m->qpn;
                r->qkey = m->qkey;
        }
        if (all && !(m->flags & AGENT_MORE))
                r->nranges = 0;
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

/* Adds a range once, however many sockets have the port. */
static void put_range(struct agent_msg *m, uint8_t proto, uint16_t first, uint16_t count)
{
        struct vlink_range g = {.proto = proto, .first = first, .count = count};

        for (uint16_t i = 0; i < m->nranges; i++)
                if (memcmp(&m->range[i], &g, sizeof g) == 0)
                        return;
        if (m->nranges < AGENT_RANGES)
                m->range[m->nranges++] = g;
        else
                m->flags |= AGENT_MORE;
}

struct agent_msg link_says(const struct rlink *l, enum agent_op op)
{
        const struct listener *p;
        const struct lease *b;
        struct agent_msg m = {.op = (uint8_t)op,
                              .instance = l->instance,
                              .version = l->version,
                              .stack = l->st->id,
                              .qpn = l->qpn,
                              .qkey = l->qkey,
                              .mtu = l->mtu,
                              .flags = l->agent->cfg->checksum ? 0 : AGENT_NO_CSUM};

        if (op != AGENT_OPEN && op != AGENT_HERE)
                return m;
        LIST_FOREACH (b, &l->st->leases, link)
                put_range(&m, IPPROTO_TCP, b->first, b->count);
        LIST_FOREACH (p, &l->st->listeners, link)
                put_range(&m, p->proto, p->port, 1);
        LIST_FOREACH (p, &l->st->holds, link)
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
                             .version = m->version,
                             .no_csum = !l->agent->cfg->checksum && (m->flags & AGENT_NO_CSUM)};
        learn(r, m);
        probe_at(r, unetd.loop.now + PROBE_EVERY);
        return r;
}

void remote_describe(const struct chan *ch, struct unetd_chan_info *info,
                     int fds[UNETD_CHAN_FDS_MAX])
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

/* Anybody on the network may ask in another's name, and so use up a stack's numbers. What he asked
 * for goes if there is nobody of that name, as if that host did not know it. */
static bool is_nobodys(const struct remote *r, const struct agent_msg *m)
{
        return m ? m->err == ENOENT : !r->proven;
}

/* Handles the answer of the agent at a channel's far end; `m` NULL: it did not answer. */
static void take_answer(struct chan *ch, const struct agent_msg *m)
{
        struct remote *r = ch->remote;
        nstime patience = r->link->agent->cfg->silence_s * NS_PER_S, now = loop_clock();

        assert(ch->remote != NULL);
        if (m)
                r->silent_since = 0;
        else if (r->silent_since == 0)
                r->silent_since = now;
        r->proven |= m && m->err == 0;
        if (is_nobodys(r, m) || (!m && patience != 0 && now - r->silent_since >= patience)) {
                r->theirs = 0; /* tell no agent of the end */
                chan_close(ch, -ECONNRESET);
        } else if (!m || m->err != 0) {
                probe_at(r, now + PROBE_AGAIN); /* the agent may have missed something */
        } else if (m->op == AGENT_HERE) {
                remote_learn(ch, m);
        }
}

struct said {
        struct telling *t;   /* NULL: no request waits */
        uint32_t mine, addr; /* name the channel, which may be gone */
        bool probe;
};

static void heard(void *arg, int err, const void *data, size_t len)
{
        struct said *s = arg;
        struct telling *t = s->t;
        struct chan *ch = chan_numbered(s->mine, s->addr);
        struct agent_msg m;

        if (ch && s->probe)
                ch->remote->probing = false;
        if (ch && err == -EBUSY)
                probe_at(ch->remote, loop_clock() + PROBE_AGAIN);
        else if (ch)
                take_answer(ch, err == 0 && agent_read(&m, true, data, len) ? &m : NULL);
        free(s);
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

/* Sends a message to the agent at a channel's far end; `t` NULL: no request waits. Returns true if
 * an answer will come. */
static bool tell(const struct chan *ch, struct agent_msg *m, struct telling *t)
{
        const struct remote *r = ch->remote;
        uint8_t bytes[CM_ASK_MAX];
        struct said *s;

        m->yours = r->theirs;
        m->mine = r->mine;
        if (m->yours == 0 || !r->link->agent->works || !(s = calloc(1, sizeof *s)))
                return false;
        *s = (struct said){.t = t, .mine = r->mine, .addr = r->addr, .probe = m->op == AGENT_HERE};
        if (cm_ask(&r->link->agent->cm, r->link->st->user->uid, r->addr, bytes,
                   agent_write(m, false, bytes, sizeof bytes), heard, s))
                return true;
        free(s);
        return false;
}

/* Sends a message to all agents with a channel to the stack. Returns how many will answer. */
static unsigned tell_all(const struct rlink *l, struct agent_msg *m, struct telling *t)
{
        unsigned n = 0;
        struct remote *r;

        LIST_FOREACH (r, &remotes, all)
                if (r->link == l && r->chan->end[0].state == END_UP)
                        n += tell(r->chan, m, t);
        return n;
}

void remotes_moved(const struct rlink *l)
{
        struct agent_msg m = link_says(l, AGENT_MOVED);

        tell_all(l, &m, NULL);
}

int links_ports(struct client *cl, const struct unetd_msg *request, struct stack *st,
                struct vlink_range r, bool add)
{
        struct telling *t = NULL;
        unsigned n = 0;
        struct rlink *l;

        if (LIST_EMPTY(&st->links))
                return 0;
        if (cl && !(t = calloc(1, sizeof *t)))
                return 0;
        LIST_FOREACH (l, &st->links, link) {
                link_changed(l);
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
        t->w->deadline = unetd.loop.now + AGENT_NS;
        return REPLY_LATER;
}

void remote_up(struct chan *ch)
{
        uint32_t id = ch->remote->asked;

        publish(ch);
        ch->remote->asked = 0;
        if (id != 0)
                agent_answer_open(ch, id, 0, 0);
        if (!ch->remote->proven)
                probe_at(ch->remote, loop_clock() + PROBE_FIRST);
}

void remote_gone(struct chan *ch)
{
        struct remote *r = ch->remote;
        struct agent_msg m = {.op = AGENT_CLOSE, .instance = r->link->instance};
        const struct vlink_peer nobody = {.addr = 0};

        assert(ch->end[0].state == END_FREE);
        if (r->asked != 0)
                agent_refuse(r->link->agent, r->asked, -ECONNRESET);
        tell(ch, &m, NULL);
        vlink_put(r->link->book, ch->end[0].slot, &nobody);
        ch->remote = NULL;
        LIST_REMOVE(r, all);
        free(r);
}

void remote_asked(struct remote *r, uint32_t id)
{
        if (r->asked != 0)
                agent_refuse(r->link->agent, r->asked, -EAGAIN);
        r->asked = id;
        r->asked_until = unetd.loop.now + ASKED_NS;
        next_probe = nstime_min(next_probe, r->asked_until);
}

/* Returns when the question is to be answered; NSTIME_NEVER: there is none any more. */
static nstime answer_late(struct remote *r)
{
        if (r->asked != 0 && r->asked_until <= unetd.loop.now) {
                agent_refuse(r->link->agent, r->asked, -EAGAIN);
                r->asked = 0;
        }
        return r->asked != 0 ? r->asked_until : NSTIME_NEVER;
}

int agent_knows_not(nstime patience)
{
        return unetd.loop.now - unetd.began < patience ? -EAGAIN : -ENOENT;
}

int remote_told(struct agent *a, uint32_t id, uint32_t from, const struct agent_msg *m)
{
        struct chan *ch = chan_numbered(m->yours, from);

        if (!ch || ch->remote->instance != m->instance ||
            (ch->remote->theirs != 0 && m->mine != 0 && ch->remote->theirs != m->mine))
                return agent_knows_not(AGENT_YOUNG_CHANS);
        ch->remote->silent_since = 0;
        if (m->op == AGENT_CLOSE) {
                ch->remote->theirs = 0;
                chan_close(ch, -ECONNRESET);
                return 0;
        }
        remote_learn(ch, m);
        if (m->op != AGENT_HERE)
                return 0;
        agent_answer_here(ch, id);
        return REPLY_LATER; /* agent_answer_here() answered */
}

/* ---- whether it is there still ---- */

static void probe_at(struct remote *r, nstime when)
{
        r->probe_at = when;
        next_probe = nstime_min(next_probe, when);
}

static void probe(struct chan *ch)
{
        struct agent_msg m = link_says(ch->remote->link, AGENT_HERE);

        ch->remote->probe_at = unetd.loop.now + (ch->remote->proven ? PROBE_EVERY : PROBE_AGAIN);
        if (!ch->remote->probing)
                ch->remote->probing = tell(ch, &m, NULL);
}

/* Probes far ends. So unetd notices a lost AGENT_CLOSE, and changes of which an agent could not be
 * told. */
nstime remotes_tick(void)
{
        struct remote *r, *next;

        if (unetd.loop.now < next_probe)
                return next_probe;
        next_probe = NSTIME_NEVER;
        for (r = LIST_FIRST(&remotes); r; r = next) {
                next = LIST_NEXT(r, all);
                next_probe = nstime_min(next_probe, answer_late(r));
                if (r->chan->end[0].state != END_UP)
                        continue;
                if (r->probe_at <= unetd.loop.now && !r->link->agent->works) {
                        /* Our device is gone: that counts as silence of the host. */
                        take_answer(r->chan, NULL);
                        continue;
                }
                if (r->probe_at <= unetd.loop.now)
                        probe(r->chan);
                next_probe = nstime_min(next_probe, r->probe_at);
        }
        return next_probe;
}

/* ---- unet status ---- */

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
