/* Asks another host's agent for a channel to the stack that has a port there, and answers such
 * questions (links.c has the story). */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "unetd/daemon/chans.h"
#include "unetd/daemon/clients.h"
#include "unetd/daemon/links.h"
#include "unetd/daemon/links_int.h"
#include "unetd/daemon/stacks.h"

/* A host without an agent is not asked for so long; doubled each time. */
#define SILENT_NS (5 * NS_PER_S)
/* How often SILENT_NS doubles. */
#define SILENT_MAX 3u
#define BUSY_TRIES 20u /* a unetd that has just begun does not know its stacks yet */
#define BUSY_AGAIN (100 * NS_PER_MS)

/* A question to another host's agent, with the request that waits for it. */
struct opening {
        LIST_ENTRY(opening) link;
        struct waiter *w;  /* NULL: it was answered with -ETIMEDOUT */
        struct rlink *via; /* the link that asks; NULL: its stack is gone */
        uint32_t mine, addr;
        uint8_t proto;
        uint16_t port;
        unsigned tries;
        nstime again; /* when to ask again; NSTIME_NEVER: the question is out */
};

static LIST_HEAD(, opening) openings = LIST_HEAD_INITIALIZER(openings);

/* ---- silent hosts ---- */

static bool is_silent(const struct agent *a, uint32_t addr)
{
        for (unsigned i = 0; i < SILENT_HOSTS; i++)
                if (a->silent[i].addr == addr && a->silent[i].until > unetd.loop.now)
                        return true;
        return false;
}

static void note_silence(struct agent *a, uint32_t addr)
{
        unsigned at = addr % SILENT_HOSTS;

        a->silent[at].times =
                a->silent[at].addr == addr ? MIN(a->silent[at].times + 1, SILENT_MAX) : 0;
        a->silent[at].addr = addr;
        a->silent[at].until = loop_clock() + (SILENT_NS << a->silent[at].times);
}

static void note_word(struct agent *a, uint32_t addr)
{
        unsigned at = addr % SILENT_HOSTS;

        if (a->silent[at].addr == addr)
                a->silent[at].addr = 0;
}

/* ---- asking for a channel ---- */

void openings_forget_link(const struct rlink *l)
{
        struct opening *o;

        LIST_FOREACH (o, &openings, link)
                if (o->via == l)
                        o->via = NULL;
}

void opening_forget(struct opening *o)
{
        o->w = NULL;
}

static void opening_free(struct opening *o)
{
        assert(!o->w || o->w->opening == o);
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

/* The agent has answered: the waiter now waits for our keeper. */
static void wait_for_chan(struct opening *o, struct chan *ch)
{
        struct waiter *w = o->w;

        assert(ch->remote != NULL && ch->end[0].state != END_FREE);
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

        if (l && err != 0 && err != -EBUSY)
                note_silence(l->agent, o->addr);
        else if (l && err == 0)
                note_word(l->agent, o->addr);
        if (err == 0 && o->w && l && agent_read(&m, true, data, len) && m.err == EAGAIN &&
            ++o->tries < BUSY_TRIES) {
                o->again = loop_clock() + BUSY_AGAIN;
                return;
        }
        if (err != 0 || !l || !agent_read(&m, true, data, len) || m.err != 0 || m.qpn == 0 ||
            m.mtu < LINK_MTU_MIN) {
                opening_end(o, err != 0 ? -EHOSTUNREACH : -ENOENT);
                return;
        }
        ch = remote_find(l, o->addr, &m);
        if (ch) {
                ch->remote->proven = true;
                remote_learn(ch, &m);
                wait_for_chan(o, ch);
                return;
        }
        r = remote_new(l, o->addr, o->mine, &m);
        if (r)
                r->proven = true;
        err = r ? chan_new_remote(l->st, r, &ch) : -ENOMEM;
        if (err < 0)
                opening_end(o, err);
        else
                wait_for_chan(o, ch);
}

static void opening_ask(struct opening *o)
{
        struct agent_msg m = link_says(o->via, AGENT_OPEN);
        uint8_t bytes[CM_ASK_MAX];

        assert(o->via != NULL);
        o->again = NSTIME_NEVER;
        m.proto = o->proto;
        m.port = o->port;
        m.addr = o->addr;
        m.mine = o->mine;
        if (!cm_ask(&o->via->agent->cm, o->via->st->user->uid, m.addr, bytes,
                    agent_write(&m, false, bytes, sizeof bytes), open_answered, o))
                opening_end(o, -ENOMEM);
}

nstime openings_tick(void)
{
        nstime now = loop_clock(), when = NSTIME_NEVER;
        struct opening *o = LIST_FIRST(&openings), *next;

        for (; o; o = next) {
                next = LIST_NEXT(o, link);
                if (o->again > now)
                        when = nstime_min(when, o->again);
                else if (o->via && o->w)
                        opening_ask(o);
                else
                        opening_end(o, -ENOENT);
        }
        return when;
}

int remote_open(struct client *cl, struct unetd_msg *msg)
{
        struct stack *st;
        struct agent *a;
        struct rlink *l;
        struct opening *o;
        int r = link_named(cl->user, msg, &st, &a, &l);

        if (r < 0)
                return r;
        if (st->state != STACK_UP || !l || l->qpn == 0 || msg->link.port == 0)
                return -EINVAL;
        if (is_silent(l->agent, msg->link.addr))
                return -EHOSTUNREACH;
        o = calloc(1, sizeof *o);
        if (!o)
                return -ENOMEM;
        *o = (struct opening){.via = l,
                              .mine = remote_number(),
                              .addr = msg->link.addr,
                              .proto = msg->link.proto,
                              .port = msg->link.port};
        r = waiter_new(cl, msg, &o->w);
        if (r < 0) {
                free(o);
                return r;
        }
        o->w->opening = o;
        o->w->deadline = unetd.loop.now + AGENT_NS;
        LIST_INSERT_HEAD(&openings, o, link);
        opening_ask(o);
        return REPLY_LATER;
}

/* ---- being asked ---- */

static void answer(struct agent *a, uint32_t id, const struct agent_msg *m)
{
        uint8_t bytes[CM_ANSWER_MAX];

        cm_answer(&a->cm, id, bytes, agent_write(m, true, bytes, sizeof bytes));
}

void agent_refuse(struct agent *a, uint32_t id, int err)
{
        const struct agent_msg m = {.err = (uint32_t)-err, .instance = (uint32_t)unetd.instance};

        answer(a, id, &m);
}

void agent_answer_open(const struct chan *ch, uint32_t id, uint8_t proto, uint16_t port)
{
        struct agent_msg m = link_says(ch->remote->link, AGENT_OPEN);

        assert(ch->remote != NULL);
        if (port != 0) { /* if not all ranges fit, this one must */
                if (m.nranges == AGENT_RANGES) {
                        m.nranges--;
                        m.flags |= AGENT_MORE;
                }
                memmove(m.range + 1, m.range, m.nranges * sizeof *m.range);
                m.range[0] = (struct vlink_range){.proto = proto, .first = port, .count = 1};
                m.nranges++;
        }
        m.mine = ch->remote->mine;
        m.yours = ch->remote->theirs;
        answer(ch->remote->link->agent, id, &m);
}

void agent_answer_here(const struct chan *ch, uint32_t id)
{
        struct agent_msg m = link_says(ch->remote->link, AGENT_HERE);

        m.mine = ch->remote->mine;
        m.yours = ch->remote->theirs;
        answer(ch->remote->link->agent, id, &m);
}

/* Finds the link of the stack that receives what is sent to the address and port. */
static struct rlink *link_at(const struct agent_msg *m)
{
        struct agent *a = agent_at(m->addr);
        struct dir_hit hit;
        struct stack *st;
        struct rlink *l;

        if (!a || (m->proto != IPPROTO_TCP && m->proto != IPPROTO_UDP) ||
            directory_lookup(unetd.dir.d, m->proto, ip_addr_v4(m->addr), m->port, m->stack, &hit) !=
                    1)
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
                return agent_knows_not(AGENT_YOUNG_PORTS);
        if (m->qpn == 0 || m->mtu < LINK_MTU_MIN || m->mine == 0)
                return -EINVAL;
        ch = remote_find(l, from, m);
        if (!ch) {
                r = remote_new(l, from, remote_number(), m);
                err = r ? chan_new_remote(l->st, r, &ch) : -ENOMEM;
                if (err < 0)
                        return err;
        } else {
                remote_learn(ch, m);
        }
        if (ch->end[0].state == END_UP) {
                agent_answer_open(ch, id, m->proto, m->port);
                return 0;
        }
        remote_asked(ch->remote, id);
        return 0;
}

static bool is_on_link(const struct agent *a, uint32_t addr)
{
        uint32_t mask = a->cfg->prefix != 0 ? ~0u << (32 - a->cfg->prefix) : 0;

        return ((addr ^ a->cfg->addr) & mask) == 0;
}

void agent_asked(struct cm *cm, uint32_t id, uint32_t from, const void *data, size_t len)
{
        struct agent *a = (struct agent *)cm;
        struct agent_msg m;
        int err = agent_read(&m, false, data, len) ? 0 : -EBADMSG;

        if (!is_on_link(a, from))
                err = -EPERM;
        note_word(a, from);
        if (err == 0 && m.op == AGENT_OPEN) {
                err = open_asked(a, id, from, &m);
                if (err == 0)
                        return; /* open_asked() has answered, or will */
        } else if (err == 0) {
                err = remote_told(a, id, from, &m);
                if (err == REPLY_LATER)
                        return;
        }
        agent_refuse(a, id, err);
}
