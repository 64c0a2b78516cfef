/*
 * What a process says about room for one more channel, in the books of its stacks: keepers attach
 * none where a process has said that it has none. Of descriptor numbers they look for themselves
 * (sock/keeper/keeper_side_chans.c).
 */
#include "base/sandbox.h"
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/wait/usock_wake.h"
#include "unetd/client/wire.h"

void ustack_note_room(void)
{
        bool full;

        if (sandbox_forbidden != 0)
                return;
        full = !ustack_chan_fits();
        FOR_USTACKS (u)
                ustack_set_full(u, u->slot, full);
        if (!fd_above())
                usock_place_keep(); /* the program may use up its numbers */
}
