#include "tests/sim/shares.h"
#include "tcp/tcp_group.h"
#include "tcp/tcp_lend.h"

#include <stdio.h>
#include <stdlib.h>
#include "tests/unit.h"

uint32_t below(struct play *k, uint32_t n)
{
        return prng_fast_below(&k->rnd, n);
}

_Noreturn void wrong(const struct play *k, const struct flow *f, const char *what)
{
        fprintf(stderr, "seed %llu: %s; limits %llu %llu %u %u", (unsigned long long)k->seed, what,
                (unsigned long long)k->limits.receive, (unsigned long long)k->limits.send,
                k->limits.members, k->limits.least);
        if (f != NULL)
                fprintf(stderr, "; flow %u: total %llu written %llu read %llu, back %llu %llu %llu",
                        (uint32_t)(f - k->flow), (unsigned long long)f->total,
                        (unsigned long long)f->written, (unsigned long long)f->read,
                        (unsigned long long)f->back, (unsigned long long)f->answered,
                        (unsigned long long)f->heard);
        fputc('\n', stderr);
        abort();
}

struct tcp *server(struct play *k)
{
        return &k->p->side[SERVER].s.tcp;
}

struct tcp *client(struct play *k)
{
        return &k->p->side[CLIENT].s.tcp;
}

struct tcp_conn *conn(struct play *k, const struct flow *f)
{
        return pair_conn(k->p, SERVER, f->server);
}

void flush(struct play *k)
{
        stack_flush(&k->p->side[SERVER].s, k->p->now);
}

uint8_t byte_at(const struct play *k, const struct flow *f, uint64_t pos)
{
        return (uint8_t)(pos * 31 + pos / 253 + (uint64_t)(f - k->flow) * 77);
}

void checks(struct play *k)
{
        uint64_t sum = 0, queued = 0;

        for (uint32_t i = 1; i < server(k)->sh->conns.fresh; i++) {
                const struct tcp_conn *tc = conn_at(server(k), i);
                if (!tc->live || tc->group != k->group)
                        continue;
                sum += tcp_promised(tc);
                queued += tcp_queued(tc);
                if ((k->limits.receive != 0 && tc->group_share < k->limits.least) ||
                    (k->limits.send != 0 && tc->snd_most < k->limits.least))
                        wrong(k, NULL, "less than the least");
        }
        if (k->limits.send != 0 && queued > k->limits.send)
                wrong(k, NULL, "more was written than the group may");
        if (k->limits.receive != 0 && sum > k->limits.receive)
                wrong(k, NULL, "more than the group may hold");
        tcp_group_check(server(k), k->group);
        pair_check(k->p);
}

void connects(struct play *k)
{
        struct stack *s = &k->p->side[CLIENT].s;
        struct tcp_tuple t = {.laddr = pair_addr(CLIENT),
                              .raddr = pair_addr(SERVER),
                              .lport = (uint16_t)(FIRST + k->n),
                              .rport = PORT,
                              .chan = PAIR_CHAN};
        struct tcp_link link = stack_tcp_link(s, PAIR_CHAN);
        struct tcp_opts o;
        int c;

        tcp_opts_default(&o);
        o.nodelay = (uint8_t)below(k, 2);
        o.syncnt = 120;
        c = tcp_connect(&s->tcp, &t, &link, &o, k->p->now);
        if (c <= 0)
                wrong(k, NULL, "no connection");
        tcp_set_sock(&s->tcp, (uint32_t)c, 1);
        stack_flush(s, k->p->now);
        k->flow[k->n++] = (struct flow){
                .client = (uint32_t)c, .total = 1 + below(k, 200000), .back = below(k, 100000)};
}

void accepts(struct play *k)
{
        uint32_t c;

        while ((c = tcp_accept(server(k), k->listener)) != 0) {
                struct flow *f = &k->flow[pair_conn(k->p, SERVER, c)->tuple.rport - FIRST];
                f->server = c;
                tcp_set_sock(server(k), c, 1);
        }
}

void closes(struct play *k, struct flow *f)
{
        tcp_loans_end(server(k), conn(k, f), PROC, k->p->now);
        tcp_close(server(k), conn(k, f), k->p->now);
        f->server = 0;
        f->closed = true;
        flush(k);
        tcp_close(&k->p->side[CLIENT].s.tcp, pair_conn(k->p, CLIENT, f->client), k->p->now);
        stack_flush(&k->p->side[CLIENT].s, k->p->now);
}

/* ---- a scripted play ---- */

void connects_all(struct play *k, uint32_t n, const struct tcp_group_limits *l)
{
        struct sim_params both[2];
        struct tcp_opts o;

        for (int i = 0; i < 2; i++)
                both[i] = (struct sim_params){
                        .mtu = 1500, .rate = 500000000, .delay = 500 * NS_PER_US, .csum = true};
        prng_fast_init(&k->rnd, 1);
        k->p = pair_sim(1, both);
        tcp_opts_default(&o);
        k->limits = *l;
        k->listener = (uint32_t)tcp_listen(server(k), pair_addr(SERVER), PORT, FLOWS, &o);
        k->group = tcp_group_new(server(k));
        assert_int_equal(tcp_group_set(server(k), k->group, l), 0);
        tcp_group_listen(server(k), k->listener, k->group);
        while (k->n < n)
                connects(k);
        for (uint32_t i = 0; i < n; i++)
                while (k->flow[i].server == 0) {
                        pair_wait(k->p, k->p->now + NS_PER_MS);
                        accepts(k);
                }
}

void ends_all(struct play *k)
{
        for (uint32_t i = 0; i < k->n; i++)
                closes(k, &k->flow[i]);
        tcp_unlisten(server(k), k->listener);
        assert_int_equal(pair_end(k->p), 0);
        pair_free(k->p);
}

void passes(struct play *k, nstime time)
{
        nstime until = k->p->now + time;

        while (k->p->now < until)
                pair_wait(k->p, until);
        checks(k);
}
