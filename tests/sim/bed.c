/* See bed.h. */
#include "tests/sim/bed.h"

#include "tcp/tcp_cc.h"
#include "tests/unit.h"

static uint8_t data[65536];

struct bed bed(uint64_t seed, uint64_t mbps, nstime rtt, uint64_t queue, double loss)
{
        struct bed b = {.dir = {{.mtu = 1500,
                                 .rate = mbps * MBPS,
                                 .delay = rtt / 2,
                                 .queue_bytes = queue,
                                 .loss = loss,
                                 .csum = true},
                                {.mtu = 1500, .delay = rtt / 2, .csum = true}}};

        b.p = pair_sim(seed, b.dir);
        return b;
}

struct flow *bed_opens(struct bed *b, const char *cc)
{
        struct flow *f = &b->flow[b->n];
        struct tcp_opts o;

        tcp_opts_default(&o);
        o.cc = (uint8_t)tcp_cc_lookup(cc);
        pair_connect_opts(b->p, (uint16_t)(80 + b->n), &o, &f->conn[0], &f->conn[1]);
        b->n++;
        return f;
}

static bool writes(struct bed *b, struct flow *f)
{
        bool any = false;

        if (f->every != 0) {
                if (b->p->now < f->next)
                        return false;
                f->next = MAX(f->next, b->p->now) + f->every;
                return pair_write(b->p, 0, f->conn[0], data, f->piece) > 0;
        }
        while (pair_write(b->p, 0, f->conn[0], data, sizeof data) > 0)
                any = true;
        return any;
}

static bool reads(struct bed *b, struct flow *f)
{
        uint64_t before = f->got;
        int n;

        while ((n = pair_read(b->p, 1, f->conn[1], data, sizeof data)) > 0)
                f->got += (uint64_t)n;
        return f->got != before;
}

static bool all_write(void *arg)
{
        struct bed *b = arg;
        bool any = false;

        for (unsigned i = 0; i < b->n; i++) {
                struct flow *f = &b->flow[i];
                any |= writes(b, f);
                if (f->wrote != NULL)
                        f->wrote(b, f);
        }
        return any;
}

static bool all_read(void *arg)
{
        struct bed *b = arg;
        bool any = false;

        for (unsigned i = 0; i < b->n; i++)
                any |= reads(b, &b->flow[i]);
        return any;
}

void bed_turns(struct bed *b)
{
        pair_turns(b->p, all_write, all_read, b);
}

void bed_runs(struct bed *b, nstime length)
{
        nstime end = b->p->now + length;

        bed_turns(b);
        for (;;) {
                nstime next = sim_next(b->p->sim);

                for (int i = 0; i < 2; i++)
                        next = nstime_min(next, stack_deadline(&b->p->side[i].s));
                for (unsigned i = 0; i < b->n; i++)
                        next = b->flow[i].every != 0 ? nstime_min(next, b->flow[i].next) : next;
                if (next > end)
                        break;
                b->p->now = MAX(next, b->p->now + 1);
                sim_advance(b->p->sim, b->p->now);
                bed_turns(b);
        }
        b->p->now = end;
        sim_advance(b->p->sim, end);
}

void bed_measures(struct bed *b, nstime length, unsigned kbps[FLOWS_MOST])
{
        uint64_t before[FLOWS_MOST];

        for (unsigned i = 0; i < b->n; i++)
                before[i] = b->flow[i].got;
        bed_runs(b, length);
        for (unsigned i = 0; i < b->n; i++) {
                kbps[i] = (unsigned)((b->flow[i].got - before[i]) * 8 * (NS_PER_S / 1000) /
                                     (uint64_t)length);
                print_message("  %s: %u kb/s, srtt %.1f ms, cwnd %u, retrans %u\n",
                              tcp_cc_name(bed_sender(b, &b->flow[i])->cc), kbps[i],
                              (double)bed_sender(b, &b->flow[i])->srtt / 1e6,
                              bed_sender(b, &b->flow[i])->cwnd,
                              bed_sender(b, &b->flow[i])->retrans);
        }
}
