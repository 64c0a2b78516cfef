/*
 * What the keeper does with a stack (unetd/keeper_ops.h): it goes on when no process does, and finishes what dead ones
 * leave. It only tries the lock: whoever holds it is at work.
 */
#include "sock/keeper_side.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "netstack/sys.h"
#include "sock/ustack.h"
#include "unetd/maps.h"

#define DOWN_EVERY  (50 * NS_PER_MS)
#define QUIET       (64 * NS_PER_MS)    /* without anything going on before the keeper goes back to sleep */
#define LOOK_EVERY  (4 * NS_PER_MS)
#define FORK_WAIT   NS_PER_S            /* the child of a process that died while it forked is looked for so often */
#define CLOCK_SLACK_MS 20               /* the kernel tells in ticks */
#define STUCK       (150 * NS_PER_S)    /* longer than any timer of TCP lets a connection be silent */
#define CAPTURE_WAIT NS_PER_S           /* an empty stack stays this long for `unet pcap` to read the rest */

struct keeper_view {
        struct ustack u;
        nstime busy_at;                 /* when something was last going on */
        uint64_t seen;                  /* messages received as of the last tick */
        struct keeper_listener gone[64];
        uint32_t ngone;
        nstime down_looked[STACK_CHANS];        /* when a channel that is down was last looked at */
        uint32_t *unwatched;            /* sockets in messages that another keeper watched, until the first tick */
        uint32_t nunwatched;
        bool resting;                   /* the bell is armed for us, or a process's leader sleeps */
        bool strangers;                 /* no process that unetd knows is left, but there are others */
        bool nobody;                    /* there are none, and what they left was gone through */
        int state_fd;                   /* the caller's */
        nstime forking_until[STACK_PROCS];
        nstime capture_until;           /* 0: nobody captures, or everything was read */
        struct unetd_far taken[DIR_IFACES];    /* links that we drive now, and unetd does not know of */
        uint32_t ntaken;
        uint64_t moved;                 /* messages sent and received by a stack without processes */
        nstime moved_at;                /* when that last changed; 0: not looked at yet */
};

static void no_event(struct stack *s, uint32_t sock, uint32_t events)
{
        ustack_event(s, sock, events);
}

/* A socket that is in a message, and whose keeper has been told so. */
static bool in_message(const struct sock_rec *rec)
{
        return rec->refs >> SOCK_REF_FLIGHT & 1 && rec->flyer == 0;
}

/*
 * What is under way when the stack is brought to us is what another keeper was told of: its processes wait for our answer,
 * and have told us of nothing yet. They may have by the first tick, which a busy machine lets come late.
 */
static bool note_unwatched(struct keeper_view *v)
{
        struct pool *p = &v->u.s.st->socks;
        uint32_t n = 0;

        for (uint32_t i = 1; i < p->fresh; i++)
                n += in_message(pool_at(p, i));
        if (n == 0)
                return true;
        v->unwatched = calloc(n, sizeof *v->unwatched);
        for (uint32_t i = 1; v->unwatched != NULL && i < p->fresh && v->nunwatched < n; i++)
                if (in_message(pool_at(p, i)))
                        v->unwatched[v->nunwatched++] = i;
        return v->unwatched != NULL;
}

static int attach(void **out, uint32_t stack_id, const struct unetd_stack_fds *fds)
{
        struct keeper_view *v = calloc(1, sizeof *v);
        int err;

        if (v == NULL)
                return -ENOMEM;
        err = ustack_attach(&v->u, stack_id, fds);
        if (err == 0 && !note_unwatched(v)) {
                ustack_detach(&v->u);
                err = -ENOMEM;
        }
        if (err != 0) {
                free(v);
                return err;
        }
        v->state_fd = fds->state;
        v->u.s.map_chan = NULL;         /* chan_attach brings them */
        v->u.s.event = no_event;
        *out = v;
        return 0;
}

static void detach(void *view)
{
        struct keeper_view *v = view;

        ustack_detach(&v->u);
        free(v->unwatched);
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

        atomic_store_explicit(&st->ticking, 0, memory_order_relaxed);
        st->keeper_at = stack_deadline(&v->u.s);
        st->rests++;
        if (st->leader != 0)
                return true;
        bell_arm_count(v->u.s.bell, BELL_UNATTENDED, st->rests);
        return !stack_pending(&v->u.s, 0);
}

/* A listener whose last process slot this is, is told to unetd, which takes it out of the directory. */
static void note_listener(struct keeper_view *v, const struct sock_rec *rec, uint32_t slot)
{
        if (rec->refs != 1ull << slot || !rec->registered || v->ngone == ARRAY_LEN(v->gone) ||
            ustack_shares_port(&v->u, rec, 1ull << slot))
                return;
        v->gone[v->ngone++] = (struct keeper_listener){
                .proto = ustack_entry_proto(rec),
                .port = rec->lport,
                .addr = rec->reg_addr,
        };
}

/* Descriptors of the socket are in no message any more. Under the lock. */
static void end_flights(struct keeper_view *v, struct sock_rec *rec)
{
        note_listener(v, rec, SOCK_REF_FLIGHT);
        rec->flights = 0;
        ustack_unref(&v->u, pool_index(&v->u.s.st->socks, rec), SOCK_REF_FLIGHT, ustack_now());
}

/* What another keeper watched nobody watches any more. */
static void end_unwatched(struct keeper_view *v)
{
        for (uint32_t i = 0; i < v->nunwatched; i++) {
                struct sock_rec *rec = stack_sock(&v->u.s, v->unwatched[i]);
                if (in_message(rec))
                        end_flights(v, rec);
        }
        v->nunwatched = 0;
}

/*
 * Once rung, the keeper keeps looking in until it has been quiet for QUIET: seldom while processes see to the queues
 * themselves, every millisecond while it is the keeper who finds the work. Processes that come and go meanwhile need not
 * arm the bell, and their peers not ring it.
 */
static nstime tick(void *view, nstime now, bool *active)
{
        struct keeper_view *v = view;
        struct ustack *u = &v->u;
        struct stack_state *st = u->s.st;
        bool found, rested;

        *active = true;
        v->resting = false;
        if (!ustack_trylock(u))
                return now + NS_PER_MS;
        stack_sync(&u->s);
        ustack_follow(u);
        atomic_store_explicit(&st->ticking, 1, memory_order_relaxed);
        if (st->leader == 0)
                bell_disarm(u->s.bell);
        end_unwatched(v);
        found = stack_run(&u->s, now);
        while (v->ntaken < ARRAY_LEN(v->taken) && ustack_links_keep(u, now, &v->taken[v->ntaken]))
                v->ntaken++;
        ustack_links_arm(u);
        found |= stack_pending(&u->s, 0);
        if (found || st->cnt.n[COUNT_NI_RX_MSGS] != v->seen)
                v->busy_at = now;
        v->seen = st->cnt.n[COUNT_NI_RX_MSGS];
        rested = now - v->busy_at >= QUIET && rest(v);
        v->resting = rested;
        ustack_unlock(u);
        *active = !rested && found;
        if (!rested)
                return now + LOOK_EVERY;
        if (capture_awaited(v, now))
                return now + NS_PER_MS;
        return v->strangers ? nstime_min(st->keeper_at, now + NS_PER_S) : st->keeper_at;
}

static bool resting(void *view)
{
        return ((struct keeper_view *)view)->resting;
}

static int dup_high(int fd)
{
        return fd < 0 ? -1 : (int)sys3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
}

/* The keeper lends its descriptors for the call only. */
static int chan_dup(const struct unetd_chan *from, struct unetd_chan *to)
{
        *to = *from;
        int *fd[] = {&to->tx, &to->rx, &to->peer_bell, &to->peer_leader, &to->peer_keeper, &to->mem, &to->xsk, &to->packet,
                     &to->book};
        bool failed = false;

        for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
                bool there = *fd[i] >= 0;
                *fd[i] = dup_high(*fd[i]);
                failed |= there && *fd[i] < 0;
        }
        if (failed)
                unetd_chan_close(to);
        return failed ? -EMFILE : 0;
}

/* What the stack is on the interface, and the frames that come by it. */
static void iface_config(const struct ustack *u, uint32_t slot, const struct unetd_chan *chan, struct netif_config *cfg,
                         struct frame_geom *rx)
{
        const struct unetd_iface *f = &chan->iface;
        bool xdp = unetd_chan_is_xdp(chan);

        *cfg = (struct netif_config){.addr = f->addr, .gateway = f->gateway, .prefix = (uint8_t)f->prefix,
                                     .ifindex = (uint8_t)((chan->peer_stack & ~UNETD_IFACE) + 1),
                                     .serial = f->serial, .mtu = xdp ? u->xdp[slot]->ni.geom.mtu : f->mtu};
        memcpy(cfg->name, f->name, sizeof cfg->name);
        cfg->mtu_max = xdp ? u->xdp[slot]->ni.geom.chunk_bytes - XDP_HEADROOM - XDP_ETH_BYTES : SHM_MTU;
        memcpy(cfg->mac, xdp ? u->xdp[slot]->ni.geom.mac : f->mac, sizeof cfg->mac);
        *rx = xdp ? xdp_frame_geom(&u->xdp[slot]->ni.geom) : chan->rx_geom;
}

/* The channel is in the state: it was brought by a keeper before us, or changes. */
static bool is_same(const struct ustack *u, uint32_t slot, const struct unetd_chan *chan)
{
        const struct chan_slot *c = &u->s.st->chan[slot];

        return atomic_load(&c->state) == CHAN_READY && c->peer == chan->peer_stack &&
               (c->netif != 0) == unetd_chan_is_iface(chan);
}

static int iface_attach(struct ustack *u, uint32_t slot, const struct unetd_chan *chan)
{
        struct netif_config cfg;
        struct frame_geom rx;
        struct unetd_chan mine;
        uint8_t seed[16];
        int err = chan_dup(chan, &mine);

        if (err != 0)
                return err;
        if (unetd_chan_is_xdp(chan) && !ustack_map_iface_fds(u, slot, &mine)) {
                unetd_chan_close(&mine);
                return -EPROTO;
        }
        iface_config(u, slot, chan, &cfg, &rx);
        err = getrandom(seed, sizeof seed, 0) != sizeof seed ? -EIO : 0;
        if (err == 0 && is_same(u, slot, chan)) {
                if (stack_netif_move(&u->s, slot, &cfg, rx))
                        ustack_wake_all(u);     /* who sleeps by the old way holds it, and its queue cannot be had again */
        } else if (err == 0) {
                err = stack_netif_add(u->s.st, slot, chan->peer_stack, &cfg, chan->tx_geom, rx, seed, ustack_now());
        }
        if (unetd_chan_is_xdp(chan)) {
                if (err == 0)
                        ustack_iface_mapped(u, slot);
        } else if (err != 0 || !ustack_map_chan_fds(u, slot, &mine)) {
                unetd_chan_close(&mine);
        }
        return err;
}

static int iface_attach_locked(struct ustack *u, uint32_t slot, const struct unetd_chan *chan)
{
        int err = -EAGAIN;

        if (ustack_trylock(u)) {
                err = iface_attach(u, slot, chan);
                stack_sync(&u->s);
                ustack_unlock(u);
        }
        return err;
}

static int chan_attach(void *view, uint32_t slot, const struct unetd_chan *chan)
{
        struct keeper_view *v = view;
        struct ustack *u = &v->u;
        struct unetd_chan mine;
        int err;

        if (slot >= STACK_CHANS)
                return -ENOSPC;
        if (unetd_chan_is_iface(chan))
                return iface_attach_locked(u, slot, chan);
        if (unetd_chan_is_remote(chan))
                err = stack_remote_add(u->s.st, slot, chan->peer_stack, chan->remote,
                                       (struct ip_ifaddr){chan->iface.addr, (uint8_t)chan->iface.prefix}, chan->tx_geom,
                                       vlink_rx_geom());
        else
                err = stack_chan_add(u->s.st, slot, chan->peer_stack, chan->peer_uid, chan->tx_geom, chan->rx_geom);
        if (err != 0 && !(err == -EBUSY && is_same(u, slot, chan)))
                return err;
        err = chan_dup(chan, &mine);
        if (err != 0)
                return err;
        if (ustack_map_chan_fds(u, slot, &mine))
                return 0;
        unetd_chan_close(&mine);
        return -ENOMEM;
}

static int chan_down(void *view, uint32_t slot)
{
        struct keeper_view *v = view;
        struct ustack *u = &v->u;
        nstime now = ustack_now();
        bool done;

        if (slot >= STACK_CHANS)
                return 0;
        if (atomic_load(&u->s.st->chan[slot].state) == CHAN_DOWN && now - v->down_looked[slot] < DOWN_EVERY)
                return -EAGAIN;         /* whether it is still in use costs a walk over all connections */
        if (!ustack_trylock(u))
                return -EAGAIN;
        v->down_looked[slot] = now;
        stack_chan_down(&u->s, slot, now);
        done = stack_chan_free(&u->s, slot);
        stack_sync(&u->s);
        ustack_unlock(u);
        return done ? 0 : -EAGAIN;
}

/* Those of a process; after an exec not those that survived it. */
static void note_listeners(struct keeper_view *v, uint32_t slot, bool execed)
{
        struct pool *p = &v->u.s.st->socks;

        for (uint32_t i = 1; i < p->fresh; i++) {
                struct sock_rec *rec = pool_at(p, i);
                if (!(execed && rec->kept >> slot & 1))
                        note_listener(v, rec, slot);
        }
}

static bool has_slot(void *arg, int32_t pid)
{
        const struct stack_state *st = ((const struct keeper_view *)arg)->u.s.st;

        for (uint32_t i = 0; i < STACK_PROCS; i++)
                if (st->proc[i].pid == (uint32_t)pid)
                        return true;
        return false;
}

/*
 * The dead process was in the middle of fork(). Its child says who it is within moments, if it was ever born; if it has not
 * run in all that time, it is seen to have the stack mapped. True: it is still being waited for.
 */
static bool child_awaited(struct keeper_view *v, uint32_t parent, nstime now)
{
        struct stack_state *st = v->u.s.st;
        bool any = false;

        for (uint32_t i = 0; i < STACK_PROCS; i++)
                any |= st->proc[i].pid == STACK_FORKING && st->proc[i].parent == parent;
        if (!any)
                v->forking_until[parent] = 0;
        else if (v->forking_until[parent] == 0)
                v->forking_until[parent] = now + FORK_WAIT;
        if (!any || now < v->forking_until[parent])
                return any;
        v->forking_until[parent] = now + FORK_WAIT;
        return maps_file_unknown(v->state_fd, has_slot, v);
}

static void proc_gone(struct keeper_view *v, uint32_t slot)
{
        ustack_links_left(&v->u, slot);
        note_listeners(v, slot, false);
        ustack_proc_gone(&v->u, slot, ustack_now());
        v->forking_until[slot] = 0;
}

static int proc_died(void *view, uint32_t slot)
{
        struct keeper_view *v = view;
        struct ustack *u = &v->u;
        struct proc_slot *p = u->s.st->proc;

        if (slot >= STACK_PROCS)
                return 0;
        if (!ustack_trylock(u))
                return -EAGAIN;
        if (child_awaited(v, slot, ustack_now())) {
                ustack_unlock(u);
                return -EAGAIN;
        }
        for (uint32_t i = 0; i < STACK_PROCS; i++)
                if (p[i].pid == STACK_FORKING && p[i].parent == slot)
                        proc_gone(v, i);
        proc_gone(v, slot);
        stack_run(&u->s, ustack_now());
        ustack_unlock(u);
        return 0;
}

static int proc_execed(void *view, uint32_t slot)
{
        struct keeper_view *v = view;
        struct ustack *u = &v->u;
        bool holds;

        if (slot >= STACK_PROCS)
                return 0;
        if (!ustack_trylock(u))
                return -EAGAIN;
        ustack_links_left(u, slot);
        note_listeners(v, slot, true);
        holds = ustack_proc_execed(u, slot, ustack_now());
        stack_run(&u->s, ustack_now());
        ustack_unlock(u);
        return holds;
}

static int in_flight(void *view, uint64_t cookie, bool over)
{
        struct keeper_view *v = view;
        struct ustack *u = &v->u;
        struct sock_rec *rec = NULL;
        uint32_t sock;

        if (!ustack_trylock(u))
                return -EAGAIN;
        sock = ustack_find_cookie(u, cookie);
        if (sock != 0 && stack_sock(&u->s, sock)->flights != 0)
                rec = stack_sock(&u->s, sock);
        if (rec != NULL && over)
                end_flights(v, rec);
        ustack_unlock(u);
        return rec != NULL && !over;
}

/* The line of /proc/<pid>/stat from the state on (proc(5), field 3). False: there is no such process. */
static bool read_stat(uint32_t pid, char line[512], const char **state)
{
        char path[32], *end = NULL;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%u/stat", pid);
        f = fopen(path, "re");
        if (f == NULL)
                return false;
        if (fgets(line, 512, f) != NULL)
                end = strrchr(line, ')');
        fclose(f);
        *state = end != NULL && end[1] == ' ' ? end + 2 : NULL;
        return *state != NULL;
}

/* Field 22: when it began, in ticks since boot. */
static uint64_t began_ms(const char *state)
{
        for (int field = 3; field < 22 && state != NULL; field++)
                if ((state = strchr(state, ' ')) != NULL)
                        state++;
        return state != NULL ? strtoull(state, NULL, 10) * 1000 / (uint64_t)sysconf(_SC_CLK_TCK) : UINT64_MAX;
}

/* The process that took the slot lives, and is not another one that has its number now. */
static bool is_there(const struct proc_slot *p)
{
        char line[512];
        const char *state;

        return p->pid != STACK_FORKING && read_stat(p->pid, line, &state) && *state != 'Z' && *state != 'X' &&
               began_ms(state) <= p->start + CLOCK_SLACK_MS;
}

/* Children that died before they could tell unetd of themselves; only looked for when no process is known any more. */
static void bury_strangers(struct keeper_view *v)
{
        struct stack_state *st = v->u.s.st;

        v->strangers = false;
        if (!ustack_trylock(&v->u))
                return;
        for (uint32_t i = 0; i < STACK_PROCS; i++) {
                if (st->proc[i].pid == 0)
                        continue;
                if (is_there(&st->proc[i]))
                        v->strangers = true;
                else
                        proc_gone(v, i);
        }
        if (!v->strangers && !v->nobody) {
                ustack_nobody_left(&v->u, ustack_now());
                v->nobody = true;
        }
        ustack_unlock(&v->u);
}

/* Nobody is left, and nothing goes out or comes in: the peer of what is not finished takes nothing any more, and whoever
 * would tell of its end is gone too. */
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

        bury_strangers(v);
        return stuck(v, now) || (conns->used == v->u.s.tcp.sh->tw_count && !netif_waits(v->u.s.st) &&
                              !capture_awaited(v, now));
}

static bool cookie_owner(void *view, uint64_t cookie)
{
        struct keeper_view *v = view;
        bool found;

        if (!ustack_trylock(&v->u))
                return false;
        found = ustack_find_cookie(&v->u, cookie) != 0;
        ustack_unlock(&v->u);
        return found;
}

static uint64_t chans(void *view)
{
        const struct stack_state *st = ((const struct keeper_view *)view)->u.s.st;
        uint64_t there = 0;

        static_assert(STACK_CHANS <= 64, "a bit each");
        for (uint32_t k = 0; k < STACK_CHANS; k++)
                if (atomic_load_explicit(&st->chan[k].state, memory_order_relaxed) != CHAN_FREE)
                        there |= 1ull << k;
        return there;
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

        return unetd_is_iface(iface) && i < DIR_IFACES ? ustack_link_map(&((struct keeper_view *)view)->u, i, mem, book) : -EINVAL;
}

/* Whoever drives: a process that has told the last unetd, or could not tell it any more, or we. */
static void links_again(void *view)
{
        struct keeper_view *v = view;

        v->ntaken = 0;
        for (uint32_t i = 0; i < DIR_IFACES; i++) {
                struct vlink_shared *sh = v->u.link[i] != NULL ? vlink_shared(v->u.link[i]) : NULL;
                if (sh != NULL && atomic_load_explicit(&sh->driver, memory_order_acquire) != 0)
                        v->taken[v->ntaken++] = (struct unetd_far){.stack = v->u.id, .iface = UNETD_IFACE | i, .qpn = sh->qpn,
                                                                   .qkey = sh->qkey, .mtu = sh->mtu, .pinned_kb = sh->pinned_kb};
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
        .resting = resting,
        .chan_attach = chan_attach,
        .chan_down = chan_down,
        .proc_died = proc_died,
        .proc_execed = proc_execed,
        .flight = in_flight,
        .empty = empty,
        .cookie_owner = cookie_owner,
        .chans = chans,
        .listener_gone = listener_gone,
        .link_moved = link_moved,
        .link_attach = link_attach,
        .links_again = links_again,
        .port_next = port_next,
        .wake_fds = wake_fds,
};
