/*
 * What dead processes leave is ended when their pidfds say so, which may be later than whoever
 * waited for them goes on: a server's port is to be free when its last process is no more. A
 * program that finds it taken asks unetd (UNETD_PORT_SETTLE), and unetd us.
 *
 * Two turns at the least: that a socket is in messages only shows when the references of the dead
 * are gone. unetd is told so before the answer (K_ALOFT), and has let go of it by then.
 */
#include "unetd/keeper/keeper.h"

#include <errno.h>

#define TURNS     2u
#define TURNS_MAX 200u /* of a millisecond: who holds a stack's lock for longer is stopped */

static void all_due(void)
{
        struct kstack *st;

        LIST_FOREACH (st, &keeper.stacks, link) {
                kprocs_look(st);
                kstack_due(st);
        }
        kflights_due();
}

int ksettle_take(const struct wire_in *in)
{

        if (keeper.nsettles == KEEPER_SETTLES)
                return -ENOBUFS;
        keeper.settle[keeper.nsettles++] = in->msg;
        keeper.settle_turns = 0;
        all_due();
        return 1;
}

static bool unsettled(void)
{
        struct kstack *st;

        if (keeper.flights_missed)
                return true;
        LIST_FOREACH (st, &keeper.stacks, link)
                if (kprocs_dying(st))
                        return true;
        return false;
}

nstime ksettle_work(void)
{
        uint32_t turn;

        assert(keeper.nsettles <= KEEPER_SETTLES);
        if (keeper.nsettles == 0)
                return NSTIME_NEVER;
        turn = ++keeper.settle_turns;
        if (turn < TURNS || (unsettled() && turn < TURNS_MAX)) {
                all_due();
                return keeper.loop.now + (turn < TURNS ? 0 : NS_PER_MS);
        }
        for (uint32_t i = 0; i < keeper.nsettles; i++)
                conn_reply(&keeper.daemon, &keeper.settle[i], 0);
        keeper.nsettles = 0;
        return NSTIME_NEVER;
}
