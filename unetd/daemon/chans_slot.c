/* A stack's numbers of channels: who may take one, and which. */
#include <errno.h>

#include "unetd/daemon/chans_int.h"
#include "unetd/daemon/links.h"
#include "unetd/daemon/shares.h"
#include "unetd/daemon/stacks.h"

/* After a keeper's -ENOSPC, unetd believes for so long that the stack has no room for more
 * channels. */
#define ROOM_KNOWN (10 * NS_PER_S)

static bool is_taken(const struct stack *st, uint32_t slot)
{
        return st->slots[slot / 64] >> (slot % 64) & 1;
}

int slot_take(struct stack *st, uint32_t slot)
{
        if (slot >= UNETD_CHANS_MAX || is_taken(st, slot))
                return -EEXIST;
        st->slots[slot / 64] |= (uint64_t)1 << (slot % 64);
        return 0;
}

static uint32_t slots_at_most(const struct stack *st)
{
        uint32_t most = MIN(unetd.cfg.per_uid.chans_per_stack, UNETD_CHANS_MAX);

        return st->slots_most_until > unetd.loop.now ? MIN(st->slots_most, most) : most;
}

/* Other users than the stack's own are limited, however many stacks they have. */
bool slot_share_is_full(const struct stack *st, const struct user *payer)
{
        uint32_t have = 0, taken = 0;
        const struct end *e;

        if (payer == st->user)
                return false;
        LIST_FOREACH (e, &st->ends, link) {
                have += e->payer == payer;
                taken++;
        }
        return !share_may_take(have, taken, slots_at_most(st));
}

int slot_host_may_take(const struct stack *st, uint32_t addr)
{
        uint32_t have = 0, unproven = 0, taken = 0, most = MIN(slots_at_most(st), VLINK_CHANS);
        const struct end *e;

        LIST_FOREACH (e, &st->ends, link) {
                const struct remote *r = e->chan->remote;

                taken += e->slot < VLINK_CHANS;
                have += r && r->addr == addr;
                unproven += r && !r->proven;
        }
        if (!share_leaves_others(have, taken, most))
                return -EDQUOT;
        return share_leaves_others(unproven, taken, most) ? 0 : -EAGAIN;
}

/* Channels to other hosts have numbers below VLINK_CHANS: a link's book has room for no others. So
 * where there are RDMA devices, other channels leave these alone, if the stack has many more. */
struct numbers {
        uint32_t first, end;
};

static struct numbers numbers_for(const struct stack *st, bool remote)
{
        uint32_t most = slots_at_most(st);

        if (remote)
                return (struct numbers){0, MIN(most, VLINK_CHANS)};
        return (struct numbers){links_are_there() && most > 2 * VLINK_CHANS ? VLINK_CHANS : 0,
                                most};
}

bool slot_is_free(const struct stack *st, const struct user *payer)
{
        struct numbers n = numbers_for(st, false);

        for (uint32_t i = n.first; i < n.end; i++)
                if (!is_taken(st, i))
                        return !slot_share_is_full(st, payer);
        return false;
}

int slot_new(struct stack *st, const struct user *payer, bool remote, uint32_t *slot)
{
        struct numbers n = numbers_for(st, remote);

        if (slot_share_is_full(st, payer))
                return -EDQUOT;
        for (uint32_t i = n.first; i < n.end; i++) {
                if (slot_take(st, i) == 0) {
                        *slot = i;
                        return 0;
                }
        }
        return -EDQUOT;
}

void chan_number_taken(struct user *u, const struct unetd_msg *msg)
{
        struct stack *st;

        if (stack_of(u, msg->stack.stack, &st) == 0)
                slot_take(st, msg->stack.slot);
}

void slot_free(struct stack *st, uint32_t slot)
{
        assert(is_taken(st, slot));
        st->slots[slot / 64] &= ~((uint64_t)1 << (slot % 64));
}

void slot_free_if_unused(struct stack *st, uint32_t slot)
{
        const struct end *e;

        assert(slot < UNETD_CHANS_MAX);
        LIST_FOREACH (e, &st->ends, link)
                if (e->slot == slot)
                        return;
        st->slots[slot / 64] &= ~((uint64_t)1 << (slot % 64));
}

void chan_number_free(struct user *u, const struct unetd_msg *msg)
{
        struct stack *st;

        if (stack_of(u, msg->stack.stack, &st) == 0 && msg->stack.slot < UNETD_CHANS_MAX)
                slot_free_if_unused(st, msg->stack.slot);
}

bool slot_no_room(struct stack *st, uint32_t slot)
{
        if (slot < slots_at_most(st) && st->slots_most_until > unetd.loop.now)
                return false;
        st->slots_most = slot;
        st->slots_most_until = unetd.loop.now + ROOM_KNOWN;
        return slot != 0;
}
