/*
 * Relays, as the other processes of the stack see them. A relay (sock/shim/relay.c) carries a
 * connection for a process that has left the stack; others, who share the connection with that
 * process, have it as before.
 *
 * Order. Such processes take turns in their own ways: sshd's monitor goes on with a connection when
 * its child has ended. Before another process sends or reads, it asks the relay, and waits until
 * the relay has looked once more. Then what the child wrote has left the relay, and what it read is
 * out of the connection. The relay sleeps meanwhile, so a signal wakes it, one that is ignored by
 * whoever else may have its process number.
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"
#include "sock/usock_process.h"
#include "tcp/tcp_listen.h"

#include <signal.h>

#include "base/sandbox.h"
#include "base/sys.h"

#define PATIENCE (5 * NS_PER_S) /* the relay cannot send, or is stopped */

static bool is_relay; /* this process: it asks no other, who may be asking it */

static bool is_answered(const struct sock_rec *rec, uint32_t relay, uint32_t asked)
{
        return atomic_load(&rec->relay) != relay ||
               (int32_t)(atomic_load(&rec->relay_done) - asked) >= 0;
}

void usock_relay_ask(struct usock *s)
{
        const struct timespec pause = {.tv_nsec = 50 * NS_PER_US};
        struct sock_rec *rec = usock_rec(s);
        uint32_t relay = atomic_load(&rec->relay), asked;
        nstime until = ustack_now() + PATIENCE;

        assert(!ustack_locked(s->u));
        if (relay == 0 || relay == s->u->slot + 1 || is_relay || sandbox_forbidden != 0)
                return;
        asked = atomic_fetch_add(&rec->relay_asked, 1) + 1;
        if (sys2(SYS_kill, (int)atomic_load(&s->u->s.st->proc[relay - 1].pid), SIGURG) < 0)
                return;
        while (!is_answered(rec, relay, asked) && ustack_now() < until)
                sys2(SYS_nanosleep, &pause, NULL);
}

void usock_relay_begin(struct usock *s)
{
        usock_relay_ask(s);
        is_relay = true;
        atomic_store(&usock_rec(s)->relay, s->u->slot + 1);
}

uint32_t usock_relay_asked(const struct usock *s)
{
        return atomic_load(&usock_rec(s)->relay_asked);
}

void usock_relay_answer(struct usock *s, uint32_t asked)
{
        atomic_store(&usock_rec(s)->relay_done, asked);
}

bool usock_expects(struct usock *s)
{
        const struct sock_rec *rec = usock_rec(s);
        bool expects;

        ustack_lock(s->u);
        expects = rec->role == SOCK_ROLE_LISTENER &&
                  (rec->registered != SOCK_UNREGISTERED || tcp_expects(&s->u->s.tcp, rec->conn));
        ustack_leave(s->u);
        return expects;
}

bool usock_is_shared(const struct usock *s)
{
        bool shared;

        ustack_lock(s->u);
        shared = sock_held_besides(s->u->s.st, usock_rec(s), s->u->slot);
        ustack_leave(s->u);
        return shared;
}
