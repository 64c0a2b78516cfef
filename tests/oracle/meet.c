/* See meet.h. */
#include "tests/oracle/meet.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_TURNS 100000

static void watch(void *arg, nstime now, int side, enum sim_event what, const uint8_t *bytes,
                  size_t len)
{
        struct meet *m = arg;

        if (what != SIM_SENT || side != 0)
                return;
        m->sent++;
        if (lw_sums_right(bytes, len))
                return;
        fprintf(stderr, "packet %llu of ours has a wrong checksum\n", (unsigned long long)m->sent);
        abort();
}

struct meet *meet_new(uint64_t seed, const struct sim_params dir[2])
{
        struct meet *m = calloc(1, sizeof *m);

        if (m == NULL)
                abort();
        srand((unsigned)seed); /* lwIP's port numbers and queries */
        m->p = pair_sim(seed, dir);
        m->p->side[1].dead = true;
        m->s = &m->p->side[0].s;
        lw_start(m->p->sim, MEET_LWIP, dir[1].mtu, m->p->now);
        sim_set_trace(m->p->sim, watch, m);
        return m;
}

void meet_free(struct meet *m)
{
        pair_free(m->p);
        free(m);
}

void meet_settle(struct meet *m)
{
        unsigned turns = 0;

        do {
                pair_settle(m->p);
                if (++turns == MAX_TURNS) {
                        fprintf(stderr, "no rest at %lld ns\n", (long long)m->p->now);
                        abort();
                }
        } while (lw_run(m->p->now) || stack_pending(m->s, m->p->now));
}

void meet_wait(struct meet *m, nstime until)
{
        nstime next =
                nstime_min(nstime_min(lw_deadline(), stack_deadline(m->s)), sim_next(m->p->sim));

        m->p->now = MAX(m->p->now + 1, nstime_min(next, until));
        sim_advance(m->p->sim, m->p->now);
        meet_settle(m);
}

void meet_pass(struct meet *m, nstime time)
{
        nstime until = m->p->now + time;

        meet_settle(m);
        while (m->p->now < until)
                meet_wait(m, until);
}

static void flush(struct meet *m)
{
        stack_flush(m->s, m->p->now);
}

uint32_t meet_connect(struct meet *m, uint16_t port, uint16_t from, const struct tcp_opts *o)
{
        struct tcp_tuple t = {.laddr = ip_addr_v4(MEET_US),
                              .raddr = ip_addr_v4(MEET_LWIP),
                              .lport = from,
                              .rport = port,
                              .chan = PAIR_CHAN};
        struct tcp_link link = stack_tcp_link(m->s, PAIR_CHAN);
        int c = tcp_connect(&m->s->tcp, &t, &link, o, m->p->now);

        if (c <= 0)
                abort();
        tcp_set_sock(&m->s->tcp, (uint32_t)c, 1);
        flush(m);
        return (uint32_t)c;
}

uint32_t meet_listen(struct meet *m, uint16_t port, const struct tcp_opts *o)
{
        int l = tcp_listen(&m->s->tcp, ip_addr_v4(MEET_US), port, 8, o);

        if (l <= 0)
                abort();
        return (uint32_t)l;
}

uint32_t meet_accept(struct meet *m, uint32_t listener)
{
        uint32_t c = tcp_accept(&m->s->tcp, listener);

        if (c != 0)
                tcp_set_sock(&m->s->tcp, c, 1);
        return c;
}

struct tcp_conn *meet_conn(struct meet *m, uint32_t conn)
{
        return pair_conn(m->p, 0, conn);
}

void meet_shutdown(struct meet *m, uint32_t conn)
{
        tcp_shutdown_send(&m->s->tcp, meet_conn(m, conn), m->p->now);
        flush(m);
}

void meet_close(struct meet *m, uint32_t conn)
{
        tcp_set_sock(&m->s->tcp, conn, 0);
        tcp_close(&m->s->tcp, meet_conn(m, conn), m->p->now);
        flush(m);
}

void meet_abort(struct meet *m, uint32_t conn)
{
        tcp_abort(&m->s->tcp, meet_conn(m, conn), m->p->now);
        flush(m);
}
