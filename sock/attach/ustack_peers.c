/*
 * Peers that are no more, with nobody left to say so.
 *
 * A stack hears from its keeper that a peer has ended, and the keeper from unetd. Both may have been killed with the peer. What
 * it leaves then is a pipe without a reader: its processes and its keeper have the read ends of its pipes while they live,
 * and so has unetd, which keeps those of a stack that has ended until all its peers have been told. We have the write ends:
 * poll(2) says POLLERR.
 *
 * They are looked at every USTACK_PEERS_EVERY by whoever is at work in the stack; who has waited for longer than that sleeps on
 * them too, and wakes for nothing else. What follows is what the keeper does (chan_down() of sock/keeper/keeper_side.c), which may do
 * it as well: under the lock the second finds nothing to do.
 */
#include "sock/attach/ustack.h"

#include <poll.h>

#include "base/sys.h"

/* The channel's view is that of the slot as it is now, and it has a peer with a pipe: the gateway of an interface is one. */
static bool has_pipe(const struct ustack *u, uint32_t k)
{
        const struct chan_slot *slot = &u->s.st->chan[k];

        return atomic_load_explicit(&slot->state, memory_order_relaxed) != CHAN_FREE && u->s.chan[k].ops != NULL &&
               u->s.chan[k].generation == slot->generation && u->chan_fds[k].peer_leader >= 0;
}

int ustack_peers_fds(const struct ustack *u, struct pollfd *pfd)
{
        int n = 0;

        for (uint32_t k = 0; k < u->s.nchan; k++)
                if (has_pipe(u, k))
                        pfd[n++] = (struct pollfd){.fd = u->chan_fds[k].peer_leader};
        return n;
}

static void end(struct ustack *u, uint32_t k, nstime now)
{
        stack_chan_down(&u->s, k, now);
        if (stack_chan_free(&u->s, k))
                stack_sync(&u->s);
}

void ustack_peers_look(struct ustack *u, nstime now)
{
        struct pollfd pfd[STACK_CHANS];
        const struct timespec at_once = {0};
        uint32_t chan[STACK_CHANS], n = 0;

        u->peers_at = now + USTACK_PEERS_EVERY;
        for (uint32_t k = 0; k < u->s.nchan; k++)
                if (has_pipe(u, k)) {
                        chan[n] = k;
                        pfd[n++] = (struct pollfd){.fd = u->chan_fds[k].peer_leader};
                }
        if (n == 0 || sys5(SYS_ppoll, pfd, n, &at_once, NULL, 0) <= 0)
                return;
        for (uint32_t i = 0; i < n; i++)
                if (pfd[i].revents & POLLERR)
                        end(u, chan[i], now);
}
