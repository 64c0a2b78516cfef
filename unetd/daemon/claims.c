/* See claims.h. */
#include "unetd/daemon/claims.h"
#include "unetd/daemon/ports.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "unetd/daemon/sockdiag.h"
#include "unetd/daemon/vouch.h"

#define LOOK_EVERY NS_PER_S /* or less often: looking takes 1/LOOK_SHARE of the time at most */
#define LOOK_SHARE 50
#define DOUBTS     16

/* ---- one claim ---- */

static bool is_held(const struct stack *st, const struct unetd_port *p)
{
        const struct listener *h;

        LIST_FOREACH (h, &st->holds, link)
                if (h->port == p->port && h->proto == p->proto && ports_same_addr(h->addr, p->addr))
                        return true;
        return false;
}

struct wanted {
        const struct unetd_port *at;
        bool of_anybody;
        uint32_t uid;
        uint64_t cookie; /* 0: any; afterwards, that of the socket that was found */
        bool found;
        struct sockdiag_socket socket;
        struct sockdiag_others others;
};

static bool is_wanted(void *arg, const struct sockdiag_socket *s)
{
        struct wanted *w = arg;

        sockdiag_note(&w->others, s);
        if (w->found || s->elsewhere || s->port != w->at->port ||
            !ports_same_addr(s->addr, w->at->addr) || (!w->of_anybody && s->uid != w->uid) ||
            (w->cookie != 0 && s->cookie != w->cookie))
                return true;
        w->cookie = s->cookie;
        w->socket = *s;
        w->found = true;
        return true;
}

static bool kernel_has(struct wanted *w)
{
        return sockdiag_each(w->at->proto, w->at->port, is_wanted, w) == 0 && w->found &&
               !sockdiag_contested(&w->others, &w->socket);
}

int claim_judge(const struct stack *st, const struct wire_in *in, bool offered, uint64_t *cookie)
{
        const struct unetd_port *p = &in->msg.port;
        struct wanted w = {.at = p, .uid = st->user->uid, .cookie = p->sock};

        *cookie = 0;
        if (in->n > 1)
                return -EBADMSG;
        if (in->n == 1) {
                *cookie = vouch_cookie(in->fds[0]);
                return vouch_socket(in->fds[0], p);
        }
        if (p->proto & DIR_HELD)
                return -EACCES;
        if (!unetd.cfg.shared || is_held(st, p))
                return 0;
        if (!offered || !kernel_has(&w))
                return -EACCES;
        *cookie = w.cookie;
        return 0;
}

bool claim_stands(const struct stack *st, const struct listener *l)
{
        struct unetd_port at = {.proto = l->proto, .port = l->port, .addr = l->addr};
        struct wanted w = {.at = &at, .of_anybody = true, .cookie = l->cookie};

        if (l->fd >= 0)
                return vouch_socket(l->fd, &at) == 0;
        return l->cookie != 0 ? kernel_has(&w) : is_held(st, &at);
}

/* ---- all of them ---- */

struct sockets {
        struct sockdiag_socket *at;
        size_t n, cap;
};

/* By cookie; and those that are `elsewhere`, by port and user, one of each. */
struct lists {
        struct sockets here, away;
};

static bool put(struct sockets *all, const struct sockdiag_socket *s)
{
        if (all->n == all->cap) {
                size_t cap = all->cap ? all->cap * 2 : 256;
                struct sockdiag_socket *more = realloc(all->at, cap * sizeof *more);

                if (!more)
                        return false;
                all->at = more;
                all->cap = cap;
        }
        all->at[all->n++] = *s;
        return true;
}

static bool gather(void *arg, const struct sockdiag_socket *s)
{
        struct lists *l = arg;

        return put(s->elsewhere ? &l->away : &l->here, s);
}

static int by_cookie(const void *a, const void *b)
{
        uint64_t x = ((const struct sockdiag_socket *)a)->cookie,
                 y = ((const struct sockdiag_socket *)b)->cookie;

        return x < y ? -1 : x > y;
}

static uint64_t place(const struct sockdiag_socket *s)
{
        return (uint64_t)s->proto << 48 | (uint64_t)s->port << 32 | s->uid;
}

static int by_place(const void *a, const void *b)
{
        uint64_t x = place(a), y = place(b);

        return x < y ? -1 : x > y;
}

static void one_of_each(struct sockets *all)
{
        size_t n = 0;

        for (size_t i = 0; i < all->n; i++)
                if (n == 0 || by_place(&all->at[n - 1], &all->at[i]) != 0)
                        all->at[n++] = all->at[i];
        all->n = n;
}

/* sockdiag_contested(), by what the kernel has listed. */
static bool is_contested(const struct sockets *away, const struct sockdiag_socket *s)
{
        struct sockdiag_others others = {.any = false};
        size_t low = 0, high = s->on_device ? away->n : 0;

        while (low < high) {
                size_t middle = low + (high - low) / 2;

                if (place(&away->at[middle]) >> 32 < place(s) >> 32)
                        low = middle + 1;
                else
                        high = middle;
        }
        for (; s->on_device && low < away->n && place(&away->at[low]) >> 32 == place(s) >> 32;
             low++)
                sockdiag_note(&others, &away->at[low]);
        return sockdiag_contested(&others, s);
}

/* As claim_stands(), by what the kernel has listed. The list lacks TCP sockets that are bound and
 * do nothing else: unetd asks for those when somebody else wants the port. */
static bool is_listed(const struct lists *all, const struct stack *st, const struct listener *l)
{
        const struct sockets *here = &all->here;
        const struct sockdiag_socket key = {.cookie = l->cookie}, *s;

        if (l->proto & DIR_HELD)
                return true;
        if (l->cookie == 0)
                return claim_stands(st, l);
        s = here->n > 0 ? bsearch(&key, here->at, here->n, sizeof key, by_cookie) : NULL;
        return s && s->proto == l->proto && s->port == l->port &&
               ports_same_addr(s->addr, l->addr) && !is_contested(&all->away, s);
}

/* Lists all sockets. Returns false if the kernel does not say. */
static bool list_all(struct lists *all)
{
        memset(all, 0, sizeof *all);
        if (sockdiag_each(IPPROTO_TCP, 0, gather, all) < 0 ||
            sockdiag_each(IPPROTO_UDP, 0, gather, all) < 0)
                return false;
        if (all->here.n > 0)
                qsort(all->here.at, all->here.n, sizeof *all->here.at, by_cookie);
        if (all->away.n > 0)
                qsort(all->away.at, all->away.n, sizeof *all->away.at, by_place);
        one_of_each(&all->away);
        return true;
}

static void lists_free(struct lists *all)
{
        free(all->here.at);
        free(all->away.at);
}

struct looking {
        struct lists all, again;
        bool listed_again;
        unsigned doubts; /* claims that may still be checked one by one */
};

/* Returns true if the claim is stale. The kernel's list may leave out a socket that moves from one
 * port to another meanwhile. So the missing ones are looked up in a second list, and a few of them
 * are then checked one by one, each of which takes as long as a list. */
static bool is_gone(struct looking *k, const struct stack *st, const struct listener *l)
{
        if (is_listed(&k->all, st, l))
                return false;
        if (!k->listed_again && !list_all(&k->again))
                return false;
        k->listed_again = true;
        if (is_listed(&k->again, st, l))
                return false;
        if (k->doubts == 0)
                return true;
        k->doubts--;
        return !claim_stands(st, l);
}

static void look(void)
{
        struct looking k = {.doubts = DOUBTS};
        struct listener *l, *next;
        struct stack *st;
        bool known = list_all(&k.all);

        for (unsigned b = 0; known && b < STACK_BUCKETS; b++)
                LIST_FOREACH (st, &unetd.stacks[b], link)
                        for (l = LIST_FIRST(&st->listeners); l; l = next) {
                                next = LIST_NEXT(l, link);
                                if (is_gone(&k, st, l))
                                        listen_end(st, l);
                        }
        lists_free(&k.all);
        lists_free(&k.again);
}

nstime claims_tick(void)
{
        static nstime look_at;
        nstime began;

        if (!unetd.cfg.shared || unetd.nlisteners == 0)
                return NSTIME_NEVER;
        if (unetd.loop.now < look_at)
                return look_at;
        began = loop_clock();
        look();
        look_at = unetd.loop.now + MAX(LOOK_EVERY, LOOK_SHARE * (loop_clock() - began));
        return look_at;
}
