/* References of a socket: one for each process slot that holds it; and what ends with the last one,
 * or with a process. */
#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/attach/ustack_wake.h"
#include "tcp/tcp_lend.h"
#include "tcp/tcp_listen.h"
#include "tcp/tcp_stream.h"

#include "sock/wait/usock_crowd.h"
#include "sock/udp/usock_udp.h"

/* Sockets of a dead process, between flushes: each looks at all that wait for a full channel. */
#define CLOSED_MANY 4096u

void ustack_end_role(struct ustack *u, struct sock_rec *rec, nstime now)
{
        struct stack *s = &u->s;

        assert(ustack_locked(u));
        switch (rec->role) {
        case SOCK_ROLE_CONN:
                stack_begin(s->st, rec->conn);
                tcp_set_sock(&s->tcp, rec->conn, 0);
                tcp_close(&s->tcp, tcp_conn_at(&s->tcp, rec->conn), now);
                stack_end(s->st);
                break;
        case SOCK_ROLE_LISTENER:
                tcp_unlisten(&s->tcp, rec->conn);
                break;
        case SOCK_ROLE_UDP:
                if (unlikely(rec->member))
                        stack_group_leave_all(s, pool_index(&s->st->socks, rec));
                usock_udp_cork_end(u, rec);
                udp_close(&s->udp, rec->conn);
                break;
        }
        sock_set_role(rec, SOCK_ROLE_NONE);
}

void ustack_turn_over(struct ustack *u, struct sock_rec *rec)
{
        if (likely(!atomic_load_explicit(&rec->awaited, memory_order_relaxed)))
                return;
        atomic_store_explicit(&rec->awaited, 0, memory_order_relaxed);
        ustack_event(&u->s, pool_index(&u->s.st->socks, rec), TCP_EV_READABLE | TCP_EV_WRITABLE);
}

/* What was reserved and not committed was never sent. */
static void end_writing(struct ustack *u, struct sock_rec *rec, nstime now)
{
        WRITE_ONCE(rec->writer, 0);
        ustack_turn_over(u, rec);
        if (rec->role == SOCK_ROLE_CONN)
                tcp_send_commit(&u->s.tcp, tcp_conn_at(&u->s.tcp, rec->conn), 0, false, false, now);
        if (rec->tx_frame != 0)
                frame_drop(u->s.frames, rec->tx_frame);
        rec->tx_frame = 0;
}

/* What the process has been lent of the connection is given back. */
static void end_loans(struct ustack *u, const struct sock_rec *rec, uint32_t slot, nstime now)
{
        const struct tcp_conn *tc =
                rec->role == SOCK_ROLE_CONN ? tcp_conn_at(&u->s.tcp, rec->conn) : NULL;

        if (likely(tc == NULL || tc->rcv_lent == 0))
                return;
        stack_begin(u->s.st, rec->conn);
        tcp_loans_end(&u->s.tcp, tc, slot + 1, stack_time(&u->s, now));
        stack_end(u->s.st);
        stack_flush(&u->s, now);
}

/* True: it is closed; what is to be sent for that goes with the next flush. */
static bool let_go(struct ustack *u, uint32_t sock, uint32_t slot, nstime now)
{
        struct sock_rec *rec = stack_sock(&u->s, sock);

        assert(ustack_locked(u));
        assert(slot < STACK_PROCS);
        end_loans(u, rec, slot, now);
        if (unlikely(rec->writer == slot + 1))
                end_writing(u, rec, now);
        sock_let_go(u->s.st, rec, slot);
        if (unlikely(atomic_load_explicit(&rec->relay, memory_order_relaxed) == slot + 1))
                atomic_store(&rec->relay, 0);
        if (sock_held(rec))
                return false;
        now = stack_time(&u->s, now);
        ustack_end_role(u, rec, now);
        pool_free(&u->s.st->socks, sock);
        return true;
}

void ustack_unref(struct ustack *u, uint32_t sock, uint32_t slot, nstime now)
{
        if (let_go(u, sock, slot, now))
                stack_flush(&u->s, now);
}

/* Under the lock. */
static void end_flight(struct ustack *u, struct sock_rec *rec, nstime now)
{
        assert(ustack_locked(u));
        if (rec->flights != 0 && --rec->flights == 0)
                ustack_unref(u, pool_index(&u->s.st->socks, rec), SOCK_REF_FLIGHT, now);
}

void usock_fly(struct usock *s)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        int err;

        assert(!ustack_locked(u));
        ustack_lock(u);
        sock_hold(u->s.st, rec, SOCK_REF_FLIGHT);
        rec->flights++;
        rec->flyer = u->slot + 1;
        ustack_leave(u);
        err = unetd_flight(ustack_client(), u->id, READ_ONCE(rec->cookie), usock_kfd(s));
        ustack_client_done();
        ustack_lock(u);
        rec->flyer = 0;
        if (err != 0 && err != -ETIMEDOUT) /* late, it is told all the same */
                end_flight(u, rec, ustack_now());
        ustack_leave(u);
}

void usock_landed(struct usock *s)
{
        ustack_lock(s->u);
        end_flight(s->u, usock_rec(s), ustack_now());
        ustack_leave(s->u);
}

void ustack_end_copies(struct ustack *u, struct sock_rec *rec, uint32_t slot, nstime now)
{
        assert(ustack_locked(u));
        if (rec->writer == slot + 1)
                end_writing(u, rec, now);
        if (rec->reader == slot + 1) {
                WRITE_ONCE(rec->reader, 0);
                ustack_turn_over(u, rec);
        }
        if (rec->flyer == slot + 1) {
                rec->flyer = 0;
                end_flight(u, rec, now);
        }
}

/* The threads of a process slot are no more. */
static void end_waiters(struct stack_state *st, uint32_t slot)
{
        for (uint32_t w = 0; w < STACK_WAITERS; w++) {
                if (st->waiter[w].proc != slot + 1)
                        continue;
                if (st->leader == w + 1)
                        WRITE_ONCE(st->leader, 0);
                st->waiter[w].proc = 0;
        }
        crowd_end(st, slot + 1);
}

/* What they were to wake and to ring sleeps on. */
static void end_wakes(struct ustack *u, uint32_t slot)
{
        if (atomic_exchange(&u->s.st->proc[slot].waking, 0) == 0)
                return;
        ustack_wake_all(u);
        ustack_ring_peers(u);
}

/* What the slot holds ends, but for sockets that are kept over an exec where `keep` says so. True:
 * there are such. */
static bool end_refs(struct ustack *u, uint32_t slot, bool keep, nstime now)
{
        uint32_t closed = 0;
        bool any = false;

        assert(ustack_locked(u));
        assert(slot < STACK_PROCS && slot != SOCK_REF_FLIGHT);
        now = stack_time(&u->s, now);
        FOR_SOCKS (u->s.st, i, rec) {
                if (!sock_held_by(u->s.st, rec, slot))
                        continue;
                ustack_end_copies(u, rec, slot, now);
                end_loans(u, rec, slot, now);
                if (keep && sock_kept_by(u->s.st, rec, slot))
                        any = true;
                else if (let_go(u, i, slot, now) && ++closed % CLOSED_MANY == 0)
                        stack_flush(&u->s, now);
        }
        tcp_loans_end(&u->s.tcp, NULL, slot + 1, now);
        stack_flush(&u->s, now);
        end_waiters(u->s.st, slot);
        end_wakes(u, slot);
        ustack_set_full(u, slot, false);
        return any;
}

void ustack_proc_gone(struct ustack *u, uint32_t slot, nstime now)
{
        struct stack_state *st = u->s.st;
        uint32_t n = stack_procs(st);

        end_refs(u, slot, false, now);
        stack_memory_end(st, slot + 1);
        atomic_store(&st->proc[slot].pid, 0);
        while (n > 0 && atomic_load(&st->proc[n - 1].pid) == 0)
                n--;
        atomic_store_explicit(&st->procs, n, memory_order_release);
}

bool ustack_proc_execed(struct ustack *u, uint32_t slot, nstime now)
{
        stack_memory_end(u->s.st, slot + 1);
        return end_refs(u, slot, true, now);
}

void ustack_nobody_left(struct ustack *u, nstime now)
{
        assert(ustack_locked(u));
        FOR_SOCKS (u->s.st, i, rec) {
                for (uint32_t slot = sock_next_holder(u->s.st, rec, 0); slot < STACK_PROCS;
                     slot = sock_next_holder(u->s.st, rec, slot + 1))
                        if (slot != SOCK_REF_FLIGHT)
                                ustack_unref(u, i, slot, now);
        }
        stack_close_nobodys(&u->s, now);
}
