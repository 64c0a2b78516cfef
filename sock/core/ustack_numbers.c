/*
 * Descriptor numbers that the library keeps (unetd/client/fd_room.h): a program that uses up its
 * own still has sockets and channels.
 */
#include "base/sandbox.h"
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/wait/usock_wake.h"
#include "unetd/client/fd_room.h"
#include "unetd/client/wire.h"

void ustack_keep_numbers(void)
{
        struct ustack *all[USTACKS_MAX];
        bool full;

        if (sandbox_forbidden != 0)
                return;
        full = !fd_room_keep() || !ustack_chan_fits();
        if (!fd_above())
                usock_place_keep();
        for (uint32_t i = 0, n = ustack_all(all); i < n; i++)
                ustack_set_full(all[i], all[i]->slot, full);
}

void ustack_lack_numbers(void)
{
        fd_room_lack();
        ustack_keep_numbers();
}
