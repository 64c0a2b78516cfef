/*
 * What the keeper does with a stack (unetd/keeper/keeper_ops.h): it goes on when no process does,
 * and finishes what dead ones leave. It only tries the lock: whoever holds it is at work.
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_directory.h"
#include "sock/attach/ustack_link.h"
#include "sock/attach/ustack_wake.h"
#include "sock/keeper/keeper_view.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

/* Without anything going on before the keeper goes back to sleep. */
#define QUIET       (64 * NS_PER_MS)
#define LOOK_EVERY  (4 * NS_PER_MS)
#define LOOK_SELDOM (48 * NS_PER_MS)
/* A look comes too late by a tenth, at most, of the time for which none was needed. */
#define LATE 10
/* Longer than any timer of TCP lets a connection be silent. */
#define STUCK (150 * NS_PER_S)
/* An empty stack stays this long for `unet pcap` to read the rest: it may get no processor. */
#define CAPTURE_WAIT (60 * NS_PER_S)

static void no_event(struct stack *s, uint32_t sock, uint32_t events)
{
        ustack_event(s, sock, events);
}

/* A socket that is in a message, and whose keeper has been told so. */
static bool in_message(const struct sock_rec *rec)
{
        return (rec->refs & sock_ref_bit(SOCK_REF_FLIGHT)) != 0 && rec->flyer == 0;
}

static bool flight_next(void *view, uint32_t *at, uint64_t *cookie)
{
        const struct keeper_view *v = view;
        struct pool *p = &v->u.s.st->socks;

        for (uint32_t i = MAX(*at, 1u); i < p->fresh; i++) {
                const struct sock_rec *rec = pool_at(p, i);
                if (!in_message(rec))
                        continue;
                *cookie = READ_ONCE(rec->cookie);
                *at = i + 1;
                return true;
        }
        return false;
}

static int attach(void **out, uint32_t stack_id, const struct unetd_stack_fds *fds)
{
        struct keeper_view *v = calloc(1, sizeof *v);
        int err;

        if (v == NULL)
                return -ENOMEM;
        err = ustack_attach(&v->u, stack_id, fds);
        if (err != 0) {
                free(v);
                return err;
        }
        v->state_fd = fds->state;
        v->u.borrows = true;
        v->u.s.map_chan = NULL; /* chan_attach brings them */
        v->u.s.event = no_event;
        v->u.s.promiser = NULL; /* the keeper outlives those who listen */
        *out = v;
        return 0;
}

static void detach(void *view)
{
        struct keeper_view *v = view;

        ustack_detach(&v->u);
        free(v);
}

/* What was captured and not read by `unet pcap` yet is waited for, up to CAPTURE_WAIT. */
static bool capture_awaited(struct keeper_view *v, nstime now)
{
        if (!capture_unread(v->u.s.capture))
                v->capture_until = 0;
        else if (v->capture_until == 0)
                v->capture_until = now + CAPTURE_WAIT;
        return now < v->capture_until;
}

/* Nothing happened for a while: whoever rings next wakes us. False: something came just now. */
static bool rest(struct keeper_view *v)
{
        struct stack_state *st = v->u.s.st;

        assert(ustack_locked(&v->u));
        atomic_store_explicit(&st->ticking, 0, memory_order_relaxed);
        st->keeper_at = stack_deadline(&v->u.s);
        st->rests++;
        /* Under a leader, too: it may be stopped, and what was rung for is done. */
        stack_arm(&v->u.s);
        if (st->leader == 0)
                bell_arm_count(v->u.s.bell, BELL_UNATTENDED, st->rests);
        return !stack_pending(&v->u.s, 0);
}

void keeper_note_listener(struct keeper_view *v, const struct sock_rec *rec, uint32_t slot)
{
        assert(ustack_locked(&v->u));
        assert(v->ngone <= ARRAY_LEN(v->gone));
        if (!sock_held_only_by(v->u.s.st, rec, slot) || !rec->registered ||
            v->ngone == ARRAY_LEN(v->gone) || ustack_shares_port(&v->u, rec, slot))
                return;
        v->gone[v->ngone++] = (struct keeper_listener){
                .proto = ustack_entry_proto(rec),
                .port = rec->lport,
                .addr = rec->reg_addr,
                .sock = ustack_entry_sock(rec),
        };
}

/* Descriptors of the socket are in no message any more. Under the lock. */
static void end_flights(struct keeper_view *v, struct sock_rec *rec)
{
        assert(ustack_locked(&v->u));
        keeper_note_listener(v, rec, SOCK_REF_FLIGHT);
        rec->flights = 0;
        ustack_unref(&v->u, pool_index(&v->u.s.st->socks, rec), SOCK_REF_FLIGHT, ustack_now());
}

/* Whose timer is due soon costs the others who sleep on that processor: up to 3 us a round trip in
 * a virtual machine (docs/decisions.md). */
static nstime next_look(const struct keeper_view *v, nstime now)
{
        return now + MIN(MAX((now - v->needed_at) / LATE, LOOK_EVERY), LOOK_SELDOM);
}

/*
 * Once rung, the keeper keeps looking in until it has been quiet for QUIET: seldom while processes
 * see to the queues themselves, every millisecond while it is the keeper who finds the work: what
 * it comes upon between two turns of theirs does not count. Processes that come and go meanwhile
 * need not arm the bell, and their peers not ring it.
 */
static nstime tick(void *view, nstime now, bool *active)
{
        struct keeper_view *v = view;
        struct ustack *u = &v->u;
        struct stack_state *st = u->s.st;
        bool found, rested, others;
        nstime again, unknown;

        if (v->resting || v->needed_at == 0)
                v->needed_at = now;
        *active = v->resting = false;
        *active = v->heard;
        unknown = keeper_bury_unknown(v, now);
        if (!ustack_trylock(u))
                return next_look(v, now);
        v->heard = u->woke = false;
        stack_sync(&u->s);
        ustack_follow(u);
        atomic_store_explicit(&st->ticking, 1, memory_order_relaxed);
        if (st->leader == 0)
                bell_disarm(u->s.bell);
        ustack_wake_asked(u);
        others = st->cnt.n[COUNT_NI_RX_MSGS] != v->seen;
        found = stack_run(&u->s, now);
        stack_flush_last_acks(&u->s, now);
        while (v->ntaken < ARRAY_LEN(v->taken) && ustack_links_keep(u, now, &v->taken[v->ntaken]))
                v->ntaken++;
        again = ustack_links_again(u, now);
        ustack_links_arm(u);
        found |= stack_pending(&u->s, 0);
        if (found || st->cnt.n[COUNT_NI_RX_MSGS] != v->seen)
                v->busy_at = now;
        v->seen = st->cnt.n[COUNT_NI_RX_MSGS];
        rested = now - v->busy_at >= QUIET && rest(v);
        v->resting = rested;
        if (!others) /* who led is at work elsewhere */
                ustack_let_lead(u);
        ustack_unlock(u);
        *active = !rested && found && !others;
        if (found && !others)
                v->needed_at = now;
        if (!rested)
                return next_look(v, now);
        if (capture_awaited(v, now))
                return now + NS_PER_MS;
        again = nstime_min(nstime_min(again, unknown), st->keeper_at);
        return v->strangers ? nstime_min(again, now + NS_PER_S) : again;
}

static void rang(void *view)
{
        struct keeper_view *v = view;

        v->heard |= stack_heard_quiet(&v->u.s, ustack_now());
}

static bool resting(void *view)
{
        return ((struct keeper_view *)view)->resting;
}

static bool is_aloft(const struct sock_rec *rec, struct keeper_listener *at)
{
        if (rec->refs != sock_ref_bit(SOCK_REF_FLIGHT) || rec->more != 0 || !rec->registered ||
            rec->flyer != 0)
                return false;
        *at = (struct keeper_listener){
                .proto = ustack_entry_proto(rec),
                .port = rec->lport,
                .addr = rec->reg_addr,
                .sock = ustack_entry_sock(rec),
        };
        return true;
}

static int in_flight(void *view, uint64_t cookie, bool over, struct keeper_listener *at)
{
        struct keeper_view *v = view;
        struct ustack *u = &v->u;
        struct sock_rec *rec = NULL;
        bool alone = false;
        uint32_t sock;

        if (!ustack_trylock(u))
                return -EAGAIN;
        sock = ustack_find_cookie(u, cookie);
        if (sock != 0 && stack_sock(&u->s, sock)->flights != 0)
                rec = stack_sock(&u->s, sock);
        if (rec != NULL && over)
                end_flights(v, rec);
        else if (rec != NULL)
                alone = is_aloft(rec, at);
        ustack_unlock(u);
        return alone ? KEEPER_ALOFT : rec != NULL && !over;
}

/* Nobody is left, and nothing goes out or comes in: the peer of what is not finished takes nothing
 * any more, and whoever would tell of its end is gone too. */
static bool stuck(struct keeper_view *v, nstime now)
{
        const struct counters *cnt = &v->u.s.st->cnt;
        uint64_t moved = cnt->n[COUNT_NI_RX_MSGS] + cnt->n[COUNT_NI_TX_MSGS];

        if (v->strangers || v->moved_at == 0 || moved != v->moved)
                v->moved_at = now;
        v->moved = moved;
        return now - v->moved_at >= STUCK;
}

static bool empty(void *view)
{
        struct keeper_view *v = view;
        struct pool *conns = &v->u.s.tcp.sh->conns;
        nstime now = ustack_now();

        keeper_bury_strangers(v);
        return stuck(v, now) || (conns->used == v->u.s.tcp.sh->time_wait.n &&
                                 !netif_waits(v->u.s.st) && !capture_awaited(v, now));
}

/* Without the lock, which a busy stack does not leave free for long: who asks looks once more
 * under it. */
static bool cookie_owner(void *view, uint64_t cookie)
{
        return ustack_find_cookie(&((struct keeper_view *)view)->u, cookie) != 0;
}

static bool listener_gone(void *view, struct keeper_listener *out)
{
        struct keeper_view *v = view;

        if (v->ngone == 0)
                return false;
        *out = v->gone[--v->ngone];
        return true;
}

static bool link_moved(void *view, struct unetd_far *out)
{
        struct keeper_view *v = view;

        if (v->ntaken == 0)
                return false;
        *out = v->taken[--v->ntaken];
        return true;
}

static int link_attach(void *view, uint32_t iface, int mem, int book)
{
        uint32_t i = iface & ~UNETD_IFACE;

        return unetd_is_iface(iface) && i < DIR_IFACES
                       ? ustack_link_map(&((struct keeper_view *)view)->u, i, mem, book)
                       : -EINVAL;
}

/* Whoever drives: a process that has told the last unetd, or could not tell it any more, or we. */
static void links_again(void *view)
{
        struct keeper_view *v = view;

        v->ntaken = 0;
        for (uint32_t i = 0; i < DIR_IFACES; i++) {
                struct vlink_shared *sh = v->u.link[i] != NULL ? vlink_shared(v->u.link[i]) : NULL;
                if (sh != NULL && atomic_load_explicit(&sh->driver, memory_order_acquire) != 0)
                        v->taken[v->ntaken++] = (struct unetd_far){.stack = v->u.id,
                                                                   .iface = UNETD_IFACE | i,
                                                                   .qpn = sh->qpn,
                                                                   .qkey = sh->qkey,
                                                                   .mtu = sh->mtu,
                                                                   .pinned_kb = sh->pinned_kb};
        }
}

static bool port_next(void *view, uint32_t *at, struct unetd_msg *msg)
{
        return keeper_port_next(((struct keeper_view *)view)->u.s.st, at, msg);
}

static int wake_fds(void *view, int fd[KEEPER_WAKE_FDS])
{
        struct pollfd pfd[USTACK_LINK_FDS];
        int n = ustack_links_fds(&((struct keeper_view *)view)->u, pfd);

        static_assert(USTACK_LINK_FDS <= KEEPER_WAKE_FDS, "room for all");
        for (int i = 0; i < n; i++)
                fd[i] = pfd[i].fd;
        return n;
}

const struct keeper_stack_ops keeper_stack_ops = {
        .directory = ustack_set_directory,
        .attach = attach,
        .detach = detach,
        .tick = tick,
        .rang = rang,
        .resting = resting,
        .chan_attach = keeper_chan_attach,
        .chan_down = keeper_chan_down,
        .chan_yield = keeper_chan_yield,
        .chan_part = keeper_chan_part,
        .chan_stay = keeper_chan_stay,
        .proc_died = keeper_proc_died,
        .proc_execed = keeper_proc_execed,
        .flight = in_flight,
        .flight_next = flight_next,
        .empty = empty,
        .cookie_owner = cookie_owner,
        .has_chan = keeper_has_chan,
        .chans = keeper_chans,
        .has_memory = keeper_has_memory,
        .listener_gone = listener_gone,
        .link_moved = link_moved,
        .link_attach = link_attach,
        .links_again = links_again,
        .port_next = port_next,
        .wake_fds = wake_fds,
};
