/*
 * The keeper's stacks: from the descriptors that unetd sends to the day when no process and no
 * connection is left.
 */
#include "unetd/keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "unet/bell_fd.h"

#define ACTIVE_NS    NS_PER_MS
#define ORPHAN_EVERY NS_PER_S /* an orphan is asked whether it is empty at least so often */

static void rang(struct loop_source *s, uint32_t events)
{
        struct kstack *st = (struct kstack *)s;

        if (!bell_drain(s->fd))
                return;
        keeper.ops->rang(st->view);
        kstack_due(st);
}

static struct unetd_stack_fds stack_fds(const struct kstack *st)
{
        return (struct unetd_stack_fds){
                .state = st->fds[UNETD_FD_STATE],
                .bell = st->fds[UNETD_FD_BELL],
                .leader = st->fds[UNETD_FD_LEADER],
                .ring_leader = st->fds[UNETD_FD_RING_LEADER],
                .keeper = st->fds[UNETD_FD_KEEPER],
                .ring_keeper = st->fds[UNETD_FD_RING_KEEPER],
        };
}

static void kstack_free(struct kstack *st)
{
        struct kproc *p;
        struct kchan *ch;

        for (int i = 0; i < KEEPER_WAKE_FDS; i++)
                st->wake[i].source.fd = -1;
        if (st->view)
                keeper.ops->detach(st->view);
        while ((ch = LIST_FIRST(&st->chans)))
                kchan_free(ch);
        klinks_free(st);
        while ((p = LIST_FIRST(&st->procs))) {
                kproc_release(p);
                LIST_REMOVE(p, link);
                free(p);
        }
        loop_del(&keeper.loop, &st->bell);
        for (unsigned i = 0; i < UNETD_STACK_FDS; i++)
                close(st->fds[i]);
        LIST_REMOVE(st, link);
        free(st);
}

/* unetd has it for reading only. */
static int begin_to_write(int *state)
{
        int writer = fd_reopen(*state, O_RDWR);

        if (writer < 0)
                return writer;
        close(*state);
        *state = writer;
        return 0;
}

int kstack_new(struct wire_in *in, struct kstack **out)
{
        struct kstack *st = calloc(1, sizeof *st);
        struct unetd_stack_fds fds;
        int r;

        assert(in->n >= UNETD_STACK_FDS && !kstack_find(in->msg.stack.stack));
        if (!st)
                return -ENOMEM;
        st->alone_since = NSTIME_NEVER;
        st->id = in->msg.stack.stack;
        st->pid = in->msg.stack.pid;
        st->bell = (struct loop_source){.fd = -1, .ready = rang};
        for (unsigned i = 0; i < UNETD_STACK_FDS; i++)
                st->fds[i] = wire_in_take(in, i);
        LIST_INSERT_HEAD(&keeper.stacks, st, link);
        r = begin_to_write(&st->fds[UNETD_FD_STATE]);
        fds = stack_fds(st);
        if (r == 0)
                r = keeper.ops->attach(&st->view, st->id, &fds);
        if (r == 0) {
                st->bell.fd = st->fds[UNETD_FD_KEEPER];
                r = loop_add(&keeper.loop, &st->bell, EPOLLIN);
        }
        if (r < 0) {
                kstack_free(st);
                return r;
        }
        kflights_begin(st);
        *out = st;
        return 0;
}

static void listeners_work(struct kstack *st)
{
        struct keeper_listener l;

        while (keeper.ops->listener_gone(st->view, &l)) {
                struct unetd_msg msg = {.type = UNETD_K_UNLISTEN,
                                        .port = {.stack = st->id,
                                                 .proto = l.proto,
                                                 .port = l.port,
                                                 .addr = l.addr,
                                                 .sock = l.sock}};
                conn_send(&keeper.daemon, &msg, NULL, 0);
        }
}

static void links_work(struct kstack *st)
{
        struct unetd_msg msg = {.type = UNETD_K_LINK};

        while (keeper.ops->link_moved(st->view, &msg.link))
                conn_send(&keeper.daemon, &msg, NULL, 0);
}

static void device_woke(struct loop_source *s, uint32_t events)
{
        kstack_due(((struct kwake *)s)->stack);
}

/* What it sleeps on may be others now. A closed one has left the loop by itself, and its number may
 * be another's. */
static void devices_watch(struct kstack *st)
{
        int fd[KEEPER_WAKE_FDS], n = keeper.ops->wake_fds(st->view, fd);

        assert(n <= KEEPER_WAKE_FDS);
        for (int i = 0; i < n; i++) {
                struct kwake *w = &st->wake[i];
                *w = (struct kwake){.source = {.fd = fd[i], .ready = device_woke}, .stack = st};
                if (loop_add(&keeper.loop, &w->source, EPOLLIN) == -EEXIST)
                        loop_mod(&keeper.loop, &w->source, EPOLLIN);
        }
        for (int i = n; i < st->nwakes; i++)
                st->wake[i].source.fd = -1;
        st->nwakes = n;
}

static bool has_peer(const struct kstack *st)
{
        struct kchan *ch;

        LIST_FOREACH (ch, &st->chans, link)
                if (ch->info.peer_stack != st->id)
                        return true;
        return false;
}

/* An orphan without a peer can reach nobody: it is given time to find that out, no more. */
static bool given_up(struct kstack *st)
{
        nstime grace = keeper.cfg.idle_s * NS_PER_S;

        if (has_peer(st) || grace < 0) {
                st->alone_since = NSTIME_NEVER;
                return false;
        }
        if (st->alone_since == NSTIME_NEVER)
                st->alone_since = keeper.loop.now;
        st->deadline = nstime_min(st->deadline, st->alone_since + grace);
        return keeper.loop.now - st->alone_since >= grace;
}

void kstack_work(struct kstack *st)
{
        bool active = false, pending;

        assert(st->view != NULL);
        kprocs_work(st);
        kchans_work(st);
        st->deadline = keeper.ops->tick(st->view, keeper.loop.now, &active);
        listeners_work(st);
        links_work(st);
        devices_watch(st);
        if (keeper.ops->resting(st->view))
                kchans_watch(st);
        pending = kprocs_dying(st) || kchans_pending(st);
        if (active || pending)
                st->deadline = nstime_min(st->deadline, keeper.loop.now + ACTIVE_NS);
        if (!LIST_EMPTY(&st->procs) || st->awaited != 0 || kflights_of(st))
                return;
        if (!st->orphan) {
                st->orphan = true;
                keeper_tell(UNETD_K_ORPHAN, st->id, 0);
        }
        if (!pending && (keeper.ops->empty(st->view) || given_up(st))) {
                keeper_tell(UNETD_K_GONE, st->id, 0);
                kstack_free(st);
        } else {
                st->deadline = nstime_min(st->deadline, keeper.loop.now + ORPHAN_EVERY);
        }
}
