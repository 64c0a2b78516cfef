/* The list of ways, and what they have in common. */
#include "sock/attach/ustack_way.h"

#include <sys/mman.h>

#include "sock/attach/ustack_chan.h"

static const struct ustack_way *const ways[] = {&ustack_way_rings, &ustack_way_xdp,
                                                &ustack_way_remote};

static const struct ustack_way *ustack_way_of(const struct unetd_chan *fds)
{
        for (size_t i = 0; i < ARRAY_LEN(ways); i++)
                if (ways[i]->takes(fds))
                        return ways[i];
        return NULL;
}

/* What is sent from stays: a thread may be copying into it. */
void ustack_way_end(struct ustack *u, uint32_t k)
{
        const struct ustack_way *way = u->way[k];

        assert(k < STACK_CHANS);
        if (way == NULL)
                return;
        way->end(u, k);
        if (!ustack_way_borrows(u, &u->chan_fds[k]))
                unetd_chan_close(&u->chan_fds[k]);
        else
                u->chan_fds[k].peer_bell = -1;
        u->way[k] = NULL;
}

/* Over the same region as before, if it is the same channel that goes another way now. */
static bool map_mine(struct shm_chan *c, const struct unetd_chan *fds)
{
        void *mine = ustack_map_over(c->mine, &c->mine_bytes, fds->tx,
                                     SHM_REGION_BYTES(fds->tx_geom), PROT_READ | PROT_WRITE);

        if (mine != NULL)
                c->mine = mine;
        return mine != NULL;
}

bool ustack_own_way;

bool ustack_way_map(struct ustack *u, uint32_t k, const struct unetd_chan *fds)
{
        const struct ustack_way *way = ustack_way_of(fds);

        assert(k < STACK_CHANS);
        ustack_way_end(u, k);
        if (way == NULL || !map_mine(&u->chan[k], fds) || !way->map(u, k, fds))
                return false;
        u->chan_fds[k] = *fds;
        u->way[k] = way;
        if (unlikely(ustack_chan_is_own(u, k)))
                WRITE_ONCE(ustack_own_way, true);
        return true;
}

void ustack_way_seat(struct ustack *u, uint32_t k)
{
        assert(k < STACK_CHANS && u->way[k] != NULL);
        u->way[k]->seat(u, k);
}

void ustack_ways_repair(struct ustack *u)
{
        assert(ustack_locked(u));
        for (uint32_t k = 0; k < u->s.nchan; k++) {
                const struct ustack_way *way = ustack_way_at(u, k);
                if (unlikely(way != NULL && way->repair != NULL))
                        way->repair(u, k);
        }
}

void ustack_ways_unmap(struct ustack *u, uint32_t k)
{
        for (size_t i = 0; i < ARRAY_LEN(ways); i++)
                ways[i]->unmap(u, k);
}
