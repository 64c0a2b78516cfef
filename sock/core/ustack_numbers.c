/*
 * What a process says about room for one more channel, in the books of its stacks: keepers attach
 * none where a process has said that it has none.
 */
#include "base/sandbox.h"
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/wait/usock_wake.h"
#include "unetd/client/wire.h"

static void say_full(bool full)
{
        struct ustack *all[USTACKS_MAX];

        for (uint32_t i = 0, n = ustack_all(all); i < n; i++)
                ustack_set_full(all[i], all[i]->slot, full);
}

void ustack_note_room(void)
{
        if (sandbox_forbidden != 0)
                return;
        say_full(!ustack_chan_fits());
        if (!fd_above())
                usock_place_keep(); /* the program may use up its numbers */
}

void ustack_lack_numbers(void)
{
        if (sandbox_forbidden == 0)
                say_full(true);
}
