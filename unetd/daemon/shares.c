/* See shares.h. */
#include "unetd/daemon/shares.h"

#include <sys/resource.h>

#define OWN_FDS    256u /* unetd's own, besides what users make it hold */
#define KEEPER_FDS 512u /* a keeper's own; a little more than it has */

bool share_may_take(uint32_t have, uint32_t taken, uint32_t total)
{
        return !unetd.cfg.shared || share_leaves_others(have, taken, total);
}

bool share_leaves_others(uint32_t have, uint32_t taken, uint32_t total)
{
        uint32_t others = taken - have;

        assert(have <= taken);
        return taken < total && have + 1 <= (total - others + 1) / 2;
}

/* Returns the descriptors that unetd has for a user: of everything that struct unetd_limits counts,
 * of what waits to be closed or to be read, and of messages that wait for his keeper and clients.
 */
static uint32_t held_by(const struct user *u)
{
        const struct unetd_limits *n = &u->used;

        return n->clients + n->stacks * UNETD_STACK_FDS + n->procs + n->chans + n->listeners +
               n->holds + n->emul_endpoints * (UNETD_EMUL_FDS + 2) + u->trash.n +
               u->trash.in_child + u->keeper.queued_fds + u->queued_fds + u->unread +
               u->unread_keepers + u->nflights;
}

/* A keeper lends its view those of a channel to a stack. It opens the others once more. */
uint32_t share_end_fds(const struct chan *ch)
{
        if (ch->iface)
                return 2 * UNETD_CHAN_FDS_MAX;
        return ch->remote ? 2 * UNETD_REMOTE_FDS : UNETD_CHAN_FDS;
}

/* Returns the descriptors that his keeper has for him. */
static uint32_t kept_for(const struct user *u)
{
        const struct unetd_limits *n = &u->used;

        return n->clients + n->stacks * UNETD_STACK_FDS + n->procs + u->kept + n->listeners;
}

/* Returns the sum over all users. */
static uint32_t all(uint32_t (*of)(const struct user *u))
{
        const struct user *u;
        uint32_t n = 0;

        LIST_FOREACH (u, &unetd.users, link)
                n += of(u);
        return n;
}

static uint32_t entries_of(const struct user *u)
{
        return u->used.listeners + u->used.holds;
}

static uint32_t leases_of(const struct user *u)
{
        return u->used.leases;
}

static uint32_t endpoints_of(const struct user *u)
{
        return u->used.emul_endpoints;
}

static uint32_t joined_of(const struct user *u)
{
        return u->emul.chans;
}

bool share_may_attach(const struct user *u)
{
        return share_may_hold(u, UNETD_EMUL_FDS) &&
               share_may_take(endpoints_of(u), all(endpoints_of), SWITCH_PORTS - 1);
}

bool share_may_join(const struct user *u)
{
        return share_may_take(joined_of(u), all(joined_of), SWITCH_ROUTES);
}

bool share_may_enter(const struct user *u)
{
        return share_may_hold(u, 1) && share_may_take(entries_of(u), all(entries_of), DIR_MAX);
}

bool share_may_lease(const struct user *u, uint32_t more)
{
        assert(more != 0);
        return share_may_take(leases_of(u) + more - 1, all(leases_of) + more - 1,
                              unetd.lease_end - unetd.lease_low);
}

bool share_may_hold(const struct user *u, uint32_t more)
{
        struct rlimit rl;
        uint32_t total;

        assert(more != 0);
        if (!unetd.cfg.shared || getrlimit(RLIMIT_NOFILE, &rl) < 0)
                return true;
        total = rl.rlim_cur > UINT32_MAX ? UINT32_MAX : (uint32_t)rl.rlim_cur;
        return total > OWN_FDS &&
               share_may_take(held_by(u) + more - 1, all(held_by) + more - 1, total - OWN_FDS);
}

bool share_keeper_may_hold(const struct user *u, uint32_t more)
{
        assert(more != 0);
        return unetd.keeper_fds <= KEEPER_FDS ||
               kept_for(u) + more <= unetd.keeper_fds - KEEPER_FDS;
}

static uint32_t ends_for(const struct user *u, const struct user *payer)
{
        const struct chan *ch;
        uint32_t n = 0;

        LIST_FOREACH (ch, &unetd.chans, link)
                for (int i = 0; i < 2; i++)
                        n += ch->end[i].state != END_FREE && ch->end[i].payer == payer &&
                             ch->end[i].stack->user == u;
        return n;
}

/* Returns true if the payer, who has so many ends at the keeper, leaves enough of its descriptors
 * to others. */
static bool leaves_to_others(const struct user *u, uint32_t ends)
{
        uint32_t more = UNETD_CHAN_FDS - 1;

        return share_may_take(ends * UNETD_CHAN_FDS + more, kept_for(u) + more,
                              unetd.keeper_fds - KEEPER_FDS);
}

/* ends_for() walks all channels. It is called only if the payer's ends at all keepers are too many
 * for this one. */
bool share_keeper_may_take(const struct user *u, const struct user *payer, const struct chan *ch)
{
        if (!share_keeper_may_hold(u, share_end_fds(ch)))
                return false;
        return payer == u || unetd.keeper_fds <= KEEPER_FDS ||
               leaves_to_others(u, MIN(u->ends, payer->used.chans)) ||
               leaves_to_others(u, ends_for(u, payer));
}
