/* See usock_turns.h. */
#include "sock/wait/usock_turns.h"

#include "base/sandbox.h"
#include "sock/attach/ustack.h"
#include "sock/usock_process.h"

#define RUN_MIN 4u    /* spins in a row that one offer ended, until turns are taken; ... */
#define RUN_MAX 1024u /* ... where messages follow one another without answers, most */

#define QUIET_MIN  64u    /* turns taken until they are left to the kernel; ... */
#define QUIET_MAX  65536u /* ... where it did not see to them, most */
#define WAIT_COSTS 10     /* as much as so many offers */
/* What may be lost before that is given up: at first, ... */
#define CREDIT_MIN (64 * WAIT_COSTS)
#define CREDIT_MAX (128 * WAIT_COSTS) /* ... and after it went well */

static __thread struct {
        uint32_t run, wanted;
        /* Turns taken in a row, and after how many they are left to the kernel. */
        uint32_t taken, quiet_at;
        int credit;
        bool quiet;         /* they are; */
        bool waits, waited; /* for this answer, for the one before */
} turns __attribute__((tls_model("initial-exec"))) = {.wanted = RUN_MIN, .quiet_at = QUIET_MIN};

static void no_more(void)
{
        usock_tls.turns = USOCK_TURNS_NONE;
        turns.run = 0;
        turns.quiet = false;
}

enum usock_turns_wait usock_turns_waits(void)
{
        bool again = turns.waits || turns.waited;

        if (usock_tls.turns == USOCK_TURNS_NONE)
                return USOCK_TURNS_OFFER;
        if (turns.quiet && usock_tls.turns == USOCK_TURNS_THEIRS) {
                turns.waits = true;
                turns.credit -= WAIT_COSTS;
                if (turns.credit > 0)
                        return again ? USOCK_TURNS_SPIN : USOCK_TURNS_NAP;
                turns.quiet_at = MIN(turns.quiet_at * 2, QUIET_MAX);
        }
        no_more();
        return USOCK_TURNS_OFFER;
}

void usock_turns_spun(int offers, nstime lent)
{
        turns.run = offers == 1 && lent > USOCK_LENT_SHARED ? turns.run + 1 : 0;
        if (turns.run >= turns.wanted)
                usock_tls.turns = USOCK_TURNS_OURS;
}

static void took_turn(void)
{
        usock_tls.turns = USOCK_TURNS_THEIRS;
        if (++turns.taken < turns.quiet_at)
                return;
        turns.taken = 0;
        turns.quiet = true;
        turns.waits = turns.waited = false;
        turns.credit = CREDIT_MIN;
}

void usock_turns_sent(struct stack *s)
{
        nstime then;

        if (usock_tls.turns == USOCK_TURNS_THEIRS) {
                turns.wanted = MIN(turns.wanted * 2, RUN_MAX);
                no_more();
                return;
        }
        if (turns.quiet) {
                usock_tls.turns = USOCK_TURNS_THEIRS;
                return;
        }
        if (stack_pending(s, 0)) { /* the answer, most likely: the kernel saw to it */
                took_turn();
                return;
        }
        then = ustack_now();
        sandbox_yield();
        if (ustack_now() - then > USOCK_LENT_SHARED)
                took_turn();
        else
                no_more();
}

void usock_turns_heard(void)
{
        if (usock_tls.turns == USOCK_TURNS_THEIRS) {
                turns.wanted = MAX(turns.wanted / 2, RUN_MIN);
                if (turns.quiet && turns.credit < CREDIT_MAX && ++turns.credit == CREDIT_MAX)
                        turns.quiet_at = QUIET_MIN;
                turns.waited = turns.waits;
                turns.waits = false;
        }
        usock_tls.turns = USOCK_TURNS_OURS;
}
