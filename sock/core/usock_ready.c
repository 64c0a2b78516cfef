/* Readiness of sockets: what poll(2) would say, and how it is asked for cheaply. No lock is taken
 * but for the room. */
#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"

#include "sock/usock_ready.h"
#include "tcp/tcp_listen.h"
#include "tcp/tcp_stream.h"

static_assert(((USOCK_POLL_SOME | USOCK_POLL_MADE | USOCK_POLL_KEPT) &
               (POLLIN | POLLPRI | POLLOUT | POLLERR | POLLHUP | POLLNVAL | POLLRDNORM |
                POLLRDBAND | POLLWRNORM | POLLWRBAND | POLLMSG | POLLRDHUP)) == 0,
              "none is an event that a program may ask for");

/* While somebody copies without the lock nobody else may: it is as if there was nothing. Whoever is
 * about to sleep looks under the lock (usock_wait.c), so that the end of the copy, under the lock
 * too, sees this. */
static bool await_turn(struct sock_rec *rec)
{
        atomic_store_explicit(&rec->awaited, 1, memory_order_relaxed);
        return true;
}

/* SO_RCVLOWAT: less than that is nothing to read, unless no more will come. */
static bool too_little(struct usock *s, const struct sock_rec *rec, const struct tcp_conn *tc)
{
        return !tcp_recv_enough(tc, READ_ONCE(rec->rcvlowat)) &&
               !(tcp_poll_events(&s->u->s.tcp, tc) & (POLLRDHUP | POLLHUP | POLLERR));
}

static bool connecting(const struct tcp_conn *tc)
{
        uint8_t state = READ_ONCE(tc->state);

        return state == TCPS_SYN_SENT || state == TCPS_SYN_RECEIVED;
}

/* In the error queue. */
static bool has_notes(const struct sock_rec *rec, const struct tcp_conn *tc)
{
        return READ_ONCE(rec->zc_told) != READ_ONCE(rec->zc_sent) || READ_ONCE(tc->stamped) != 0;
}

short usock_poll(struct usock *s)
{
        struct sock_rec *rec = usock_rec(s);
        struct stack *st = &s->u->s;
        short ev;

        switch (sock_role(rec)) {
        case SOCK_ROLE_CONN:
                ev = tcp_poll_events(&st->tcp, tcp_conn_at(&st->tcp, READ_ONCE(rec->conn)));
                if (!connecting(tcp_conn_at(&st->tcp, READ_ONCE(rec->conn))))
                        ev |= USOCK_POLL_MADE;
                if (unlikely(READ_ONCE(rec->reader) != 0) && READ_ONCE(s->ahead.left) == 0 &&
                    await_turn(rec))
                        ev &= (short)~(POLLIN | POLLRDNORM);
                if (unlikely(READ_ONCE(rec->writer) != 0) && await_turn(rec))
                        ev &= (short)~(POLLOUT | POLLWRNORM);
                if (ev & POLLIN)
                        ev |= USOCK_POLL_SOME;
                if (unlikely(has_notes(rec, tcp_conn_at(&st->tcp, READ_ONCE(rec->conn)))) &&
                    !(ev & POLLERR))
                        ev |= POLLERR | USOCK_POLL_KEPT;
                if (unlikely(READ_ONCE(rec->waits_for_more)) &&
                    too_little(s, rec, tcp_conn_at(&st->tcp, READ_ONCE(rec->conn))))
                        ev &= (short)~(POLLIN | POLLRDNORM);
                return ev;
        case SOCK_ROLE_LISTENER:
                return tcp_acceptable(&st->tcp, READ_ONCE(rec->conn)) ? POLLIN | POLLRDNORM : 0;
        case SOCK_ROLE_UDP:
                usock_udp_fetch(s);
                ev = udp_poll_events(&st->udp, READ_ONCE(rec->conn));
                if (unlikely(ev & POLLERR) && !udp_readable(&st->udp, READ_ONCE(rec->conn)))
                        ev |= USOCK_POLL_KEPT;
                if (!usock_udp_room(s) ||
                    (unlikely(READ_ONCE(rec->writer) != 0) && await_turn(rec)))
                        ev &= (short)~(POLLOUT | POLLWRNORM | POLLWRBAND);
                return ev;
        default:
                return POLLOUT | POLLWRNORM | POLLHUP; /* as Linux: a TCP socket never connected */
        }
}

size_t usock_send_room(struct usock *s)
{
        struct ustack *u = s->u;
        size_t room = 0;

        ustack_lock(u);
        if (usock_rec(s)->role == SOCK_ROLE_CONN)
                room = tcp_send_room(&u->s.tcp, usock_conn(s));
        ustack_leave(u);
        return room;
}

bool usock_readable(struct usock *s)
{
        const struct udp_pcb *pcb = atomic_load_explicit(&s->pcb, memory_order_relaxed);
        struct sock_rec *rec = usock_rec(s);
        struct stack *st = &s->u->s;

        if (pcb != NULL) {
                usock_udp_fetch(s);
                return udp_pcb_readable(pcb);
        }
        if (READ_ONCE(s->ahead.left) != 0)
                return true;
        if (unlikely(READ_ONCE(rec->waits_for_more)))
                return usock_poll(s) & (POLLIN | POLLRDNORM | POLLHUP | POLLERR);
        if (sock_role(rec) == SOCK_ROLE_CONN)
                return !(unlikely(READ_ONCE(rec->reader) != 0) && await_turn(rec)) &&
                       tcp_readable(&st->tcp, tcp_conn_at(&st->tcp, READ_ONCE(rec->conn)));
        if (sock_role(rec) == SOCK_ROLE_UDP) {
                usock_udp_fetch(s);
                return udp_readable(&st->udp, READ_ONCE(rec->conn));
        }
        return usock_poll(s) & (POLLIN | POLLRDNORM | POLLHUP | POLLERR);
}

const _Atomic uint32_t *usock_told_by(const struct usock *s)
{
        return s->kind == USOCK_TCP ? &s->u->s.st->news_count : NULL;
}

void usock_edges(struct usock *s, uint32_t *in, uint32_t *out)
{
        struct sock_rec *rec = usock_rec(s);

        *in = atomic_load_explicit(&rec->edge_in, memory_order_acquire);
        *out = atomic_load_explicit(&rec->edge_out, memory_order_acquire);
}
