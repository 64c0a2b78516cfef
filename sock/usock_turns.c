/* See usock_turns.h. */
#include "sock/usock_turns.h"

#include <sched.h>

#include "sock/ustack.h"

#define RUN_MIN 4u                      /* spins in a row that one offer ended, until turns are taken; ... */
#define RUN_MAX 1024u                   /* ... where messages follow one another without answers, most */

static __thread struct {
        uint32_t run, wanted;
} turns __attribute__((tls_model("initial-exec"))) = {0, RUN_MIN};

static void no_more(void)
{
        usock_tls.turns = USOCK_TURNS_NONE;
        turns.run = 0;
}

void usock_turns_waits(void)
{
        if (usock_tls.turns != USOCK_TURNS_NONE)
                no_more();
}

void usock_turns_spun(int offers, nstime lent)
{
        turns.run = offers == 1 && lent > USOCK_LENT_SHARED ? turns.run + 1 : 0;
        if (turns.run >= turns.wanted)
                usock_tls.turns = USOCK_TURNS_OURS;
}

void usock_turns_sent(void)
{
        nstime then;

        if (usock_tls.turns == USOCK_TURNS_THEIRS) {
                turns.wanted = MIN(turns.wanted * 2, RUN_MAX);
                no_more();
                return;
        }
        then = ustack_now();
        sched_yield();
        if (ustack_now() - then > USOCK_LENT_SHARED)
                usock_tls.turns = USOCK_TURNS_THEIRS;
        else
                no_more();
}

void usock_turns_heard(void)
{
        if (usock_tls.turns == USOCK_TURNS_THEIRS)
                turns.wanted = MAX(turns.wanted / 2, RUN_MIN);
        usock_tls.turns = USOCK_TURNS_OURS;
}
