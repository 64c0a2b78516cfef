/*
 * Errors kept for who asked for them (IP_RECVERR): each with what it is about, until
 * recvmsg(MSG_ERRQUEUE) takes it.
 *
 * One table for all pcbs: errors are few, and a flood of them must not take memory from anything
 * else. An entry's pcb is written last and cleared first, so that none is believed half written
 * after a death.
 */
#include "udp/udp_pcb.h"

static void give_up(struct udp_error *e)
{
        __atomic_store_n(&e->pcb, 0, __ATOMIC_RELEASE);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* The pcb's that came first. */
static struct udp_error *oldest(const struct udp *u, uint32_t pcb)
{
        struct udp_error *table = udp_errors(u->sh), *first = NULL;

        for (uint32_t i = 0; i < u->sh->limits.errors; i++)
                if (table[i].pcb == pcb && (first == NULL || table[i].order < first->order))
                        first = &table[i];
        return first;
}

static struct udp_error *free_slot(const struct udp *u)
{
        struct udp_error *table = udp_errors(u->sh);

        for (uint32_t i = 0; i < u->sh->limits.errors; i++)
                if (table[i].pcb == 0)
                        return &table[i];
        return NULL;
}

uint32_t udp_error_wanted(struct udp *u, const struct icmp_err *e)
{
        struct udp_tuple t = {
                .laddr = e->laddr, .raddr = e->raddr, .lport = e->lport, .rport = e->rport};
        uint32_t pcb = e->err != 0 ? udp_lookup(u, &t) : 0;

        return pcb != 0 && pcb_at(u, pcb)->opts.recverr ? pcb : 0;
}

void udp_error_add(struct udp *u, uint32_t pcb, const struct udp_error *what)
{
        struct udp_pcb *p = pcb_at(u, pcb);
        struct udp_error *e = p->nerrs < UDP_ERRORS_EACH ? free_slot(u) : NULL;
        uint32_t n = MIN(what->len, UDP_ERROR_DATA);

        if (e == NULL) {
                count_drop(u->cnt, DROP_UDP_ERROR_LOST);
                return;
        }
        memcpy(e, what, offsetof(struct udp_error, data) + n);
        e->pcb = 0;
        e->len = n;
        e->order = u->sh->error_order++;
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        __atomic_store_n(&e->pcb, pcb, __ATOMIC_RELEASE);
        WRITE_ONCE(p->nerrs, p->nerrs + 1);
        pcb_raise(u, pcb, UDP_EV_ERROR);
}

bool udp_error_take(struct udp *u, uint32_t pcb, struct udp_error *out)
{
        struct udp_pcb *p = pcb_at(u, pcb);
        struct udp_error *e = p->nerrs != 0 ? oldest(u, pcb) : NULL, *next;

        if (e == NULL)
                return false;
        *out = *e;
        give_up(e);
        WRITE_ONCE(p->nerrs, p->nerrs - 1);
        next = oldest(u, pcb);
        if (next != NULL && !next->local)
                WRITE_ONCE(p->err, next->err);
        else if (!out->local)
                WRITE_ONCE(p->err, 0);
        return true;
}

void udp_errors_drop(struct udp *u, uint32_t pcb)
{
        struct udp_error *e;

        while (pcb_at(u, pcb)->nerrs != 0 && (e = oldest(u, pcb)) != NULL) {
                give_up(e);
                WRITE_ONCE(pcb_at(u, pcb)->nerrs, pcb_at(u, pcb)->nerrs - 1);
        }
}

bool udp_has_errors(const struct udp *u, uint32_t pcb)
{
        return pcb_at(u, pcb)->nerrs != 0;
}

void udp_errors_recover(struct udp *u)
{
        struct udp_error *table = udp_errors(u->sh);

        for (uint32_t i = 1; i < u->sh->pcbs.fresh; i++)
                pcb_at(u, i)->nerrs = 0;
        for (uint32_t i = 0; i < u->sh->limits.errors; i++) {
                uint32_t pcb = table[i].pcb;
                if (pcb == 0)
                        continue;
                if (pcb >= u->sh->pcbs.fresh || !pcb_at(u, pcb)->live ||
                    pcb_at(u, pcb)->nerrs == UDP_ERRORS_EACH)
                        table[i].pcb = 0;
                else
                        pcb_at(u, pcb)->nerrs++;
                table[i].len = MIN(table[i].len, UDP_ERROR_DATA);
        }
}

void udp_errors_check(const struct udp *u, uint32_t pcb)
{
        const struct udp_error *table = udp_errors(u->sh);
        uint32_t n = 0;

        for (uint32_t i = 0; i < u->sh->limits.errors; i++)
                n += table[i].pcb == pcb;
        assert(n == pcb_at(u, pcb)->nerrs);
}
