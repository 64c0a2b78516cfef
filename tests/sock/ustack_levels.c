/* The level checker: what poll() says against what waiters were told. */
#include "sock/attach/ustack_levels.h"
#include "tcp/tcp_listen.h"
#include "tcp/tcp_stream.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define IN_LEVELS  (POLLIN | POLLRDNORM | POLLPRI | POLLRDHUP | POLLERR | POLLHUP)
#define OUT_LEVELS (POLLOUT | POLLWRNORM)
#define SEEN_MAX   4096u /* sockets that are looked at; those behind them are not */
#define A_TIME     64u   /* of them, each time that the lock is left */

/* A socket as this process saw it last. */
struct level_seen {
        uint32_t edge_in, edge_out;
        uint32_t conn, id; /* what it is; id tells one connection of a record from the next */
        uint16_t levels;
        uint8_t role; /* SOCK_ROLE_NONE: not looked at, or nothing that can be compared */
};

/* Of a connection whose events are still to be told (netstack/stack_loop.c) nothing is said. */
static bool is_under_way(const struct tcp_conn *tc)
{
        return tc->events != 0 && tc->out_queued;
}

/* What poll() says to nobody while somebody copies. */
static uint16_t hidden_by_copy(const struct sock_rec *rec)
{
        return (READ_ONCE(rec->reader) != 0 ? POLLIN | POLLRDNORM : 0) |
               (READ_ONCE(rec->writer) != 0 ? POLLOUT | POLLWRNORM : 0);
}

static uint16_t conn_levels(struct ustack *u, const struct sock_rec *rec)
{
        const struct tcp_conn *tc = tcp_conn_at(&u->s.tcp, rec->conn);
        short ev = tcp_poll_events(&u->s.tcp, tc);
        bool ends = ev & (POLLRDHUP | POLLHUP | POLLERR);

        if (READ_ONCE(rec->waits_for_more) && !ends &&
            !tcp_recv_enough(tc, READ_ONCE(rec->rcvlowat)))
                ev &= ~(POLLIN | POLLRDNORM);
        if (READ_ONCE(rec->zc_told) != READ_ONCE(rec->zc_sent) || tc->stamped != 0)
                ev |= POLLERR;
        return (uint16_t)ev & (uint16_t)~hidden_by_copy(rec);
}

/* Room for datagrams depends on who looks (usock_udp_room()): it is not compared. */
static uint16_t levels_of(struct ustack *u, const struct sock_rec *rec)
{
        switch (rec->role) {
        case SOCK_ROLE_CONN:
                return conn_levels(u, rec);
        case SOCK_ROLE_LISTENER:
                return tcp_acceptable(&u->s.tcp, rec->conn) ? POLLIN | POLLRDNORM : 0;
        case SOCK_ROLE_UDP:
                return (uint16_t)udp_poll_events(&u->s.udp, rec->conn) & IN_LEVELS;
        default:
                return 0;
        }
}

static uint32_t id_of(struct ustack *u, const struct sock_rec *rec)
{
        return rec->role == SOCK_ROLE_CONN ? tcp_conn_at(&u->s.tcp, rec->conn)->iss
                                           : rec->lport | (uint32_t)rec->cookie << 16;
}

static __attribute__((noreturn)) void missed(const struct sock_rec *rec, uint32_t sock,
                                             const char *what, uint16_t levels)
{
        char line[128];
        int n = snprintf(line, sizeof line,
                         "unet: level checker: socket %u (role %u, port %u): %s %#x\n", sock,
                         rec->role, rec->lport, what, levels);

        if (n > 0)
                (void)!write(STDERR_FILENO, line, (size_t)n);
        abort();
}

/* Who asks during a copy is told at its end (ustack_turn_over()). While nobody has asked, what was
 * so before the copy counts. */
static void remember(struct level_seen *seen, struct level_seen now, uint16_t hidden)
{
        now.levels |= seen->levels & hidden;
        if (hidden & POLLIN)
                now.edge_in = seen->edge_in;
        if (hidden & POLLOUT)
                now.edge_out = seen->edge_out;
        *seen = now;
}

static void check_one(struct ustack *u, uint32_t sock)
{
        const struct sock_rec *rec = stack_sock(&u->s, sock);
        struct level_seen *seen = &u->levels.seen[sock], now;
        uint16_t up, hidden;

        if (!sock_held(rec) || rec->role == SOCK_ROLE_NONE) {
                seen->role = SOCK_ROLE_NONE;
                return;
        }
        if (rec->role == SOCK_ROLE_CONN && is_under_way(tcp_conn_at(&u->s.tcp, rec->conn)))
                return;
        now = (struct level_seen){.edge_in = atomic_load(&rec->edge_in),
                                  .edge_out = atomic_load(&rec->edge_out),
                                  .conn = rec->conn,
                                  .id = id_of(u, rec),
                                  .levels = levels_of(u, rec),
                                  .role = rec->role};
        hidden = atomic_load(&rec->awaited) ? 0 : hidden_by_copy(rec);
        if (now.role != seen->role || now.conn != seen->conn || now.id != seen->id) {
                *seen = now;
                if (hidden != 0)
                        seen->role = SOCK_ROLE_NONE;
                return;
        }
        up = now.levels & (uint16_t)~seen->levels;
        if (up & IN_LEVELS && now.edge_in == seen->edge_in)
                missed(rec, sock, "nobody was told of", up & IN_LEVELS);
        if (up & OUT_LEVELS && now.edge_out == seen->edge_out)
                missed(rec, sock, "nobody was told of", up & OUT_LEVELS);
        remember(seen, now, hidden);
}

void ustack_levels_check(struct ustack *u)
{
        uint32_t n = MIN(u->s.st->socks.fresh, SEEN_MAX);

        assert(ustack_locked(u));
        if (u->levels.seen == NULL || n <= 1)
                return;
        for (uint32_t i = 0; i < MIN(n - 1, A_TIME); i++) {
                u->levels.next = u->levels.next + 1 < n ? u->levels.next + 1 : 1;
                check_one(u, u->levels.next);
        }
}

void ustack_levels_again(struct ustack *u, const struct sock_rec *rec, short events)
{
        uint16_t levels = u->levels.seen != NULL ? levels_of(u, rec) : 0;

        assert(ustack_locked(u));
        if (levels & (uint16_t)events)
                missed(rec, pool_index(&u->s.st->socks, rec), "EAGAIN, and poll() says", levels);
}

void ustack_levels_begin(struct ustack *u)
{
        const char *on = getenv("UNET_CHECK_LEVELS");
        void *p;

        if (on == NULL || *on != '1')
                return;
        p = mmap(NULL, SEEN_MAX * sizeof *u->levels.seen, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        u->levels.seen = p != MAP_FAILED ? p : NULL;
}

void ustack_levels_end(struct ustack *u)
{
        if (u->levels.seen != NULL)
                munmap(u->levels.seen, SEEN_MAX * sizeof *u->levels.seen);
        u->levels.seen = NULL;
}
