/*
 * Peers that are no more, with nobody left to say so.
 *
 * A stack hears from its keeper that a peer has ended, and the keeper from unetd. Both may have
 * been killed with the peer. What it leaves then is a bell whose name nobody has, and a bell's page
 * without a lock (unet/bell_fd.h): its processes and its keeper hold both while they live. A
 * process asks for the name; one that has a ringer of its own has the page, too. While unetd is the
 * one that made the stack known it tells of all ends, in their order. Until then no peer is found
 * gone by its name: what comes in its stead may be on its way (an interface of its own after the
 * bridge).
 *
 * A thread at work in the stack asks for each peer every USTACK_PEERS_EVERY. A thread that has
 * waited for longer sleeps on its connection to unetd (ustack_daemon_fd()). It asks as often only
 * if there are peers from before this unetd. What follows is what the keeper does
 * (chan_down() of sock/keeper/keeper_side.c), which may do it as well: under the lock the second
 * finds nothing to do.
 */
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"

#include "base/sandbox.h"
#include "unet/bell_fd.h"

/* The channel's view is that of the slot as it is now, and it has a peer with a bell: the bridge of
 * an interface is one. */
static bool has_bell(const struct ustack *u, uint32_t k)
{
        const struct chan_slot *slot = &u->s.st->chan[k];

        return atomic_load_explicit(&slot->state, memory_order_relaxed) != CHAN_FREE &&
               u->s.chan[k].ops != NULL && u->s.chan[k].generation == slot->generation &&
               (u->chan_fds[k].peer_bell >= 0 || bell_is_named(u->chan[k].leader_fd));
}

static bool is_gone(const struct ustack *u, uint32_t k)
{
        int page = u->chan_fds[k].peer_bell;

        if (page >= 0)
                return !sandbox_forbids(SANDBOX_PEERS) && !bell_is_held(page);
        return !ustack_is_told(u) && !sandbox_forbids(SANDBOX_NAMES) &&
               !bell_answers(u->chan[k].leader_fd);
}

nstime ustack_peers_due(const struct ustack *u)
{
        assert(ustack_locked(u));
        if (ustack_is_told(u))
                return NSTIME_NEVER;
        for (uint32_t k = 0; k < u->s.nchan; k++)
                if (has_bell(u, k))
                        return u->peers_at;
        return NSTIME_NEVER;
}

static void end(struct ustack *u, uint32_t k, nstime now)
{
        assert(ustack_locked(u));
        assert(k < STACK_CHANS);
        stack_chan_down(&u->s, k, now);
        if (stack_chan_free(&u->s, k))
                stack_sync(&u->s);
}

void ustack_peers_look(struct ustack *u, nstime now)
{
        WRITE_ONCE(u->peers_at, now + USTACK_PEERS_EVERY);
        stack_heard_quiet(&u->s, now); /* the keeper may be stopped */
        for (uint32_t k = 0; k < u->s.nchan; k++)
                if (has_bell(u, k) && is_gone(u, k))
                        end(u, k, now);
}
