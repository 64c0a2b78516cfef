/* Everything that is derived in a stack's state, made anew after a process died inside. */
#include "netstack/stack_road.h"
#include "tcp/tcp_listen.h"
#include "tcp/tcp_loop.h"

#include <stdlib.h>

/* Every pool of frames of ours, mapped here or not: records are in the state. */
static void each_frame_pool(struct stack_state *st, void (*fn)(struct frame_pool *))
{
        fn(at_offset(st, st->rxpool_off));
        for (uint32_t k = 0; k < atomic_load_explicit(&st->chans, memory_order_relaxed); k++)
                if (atomic_load_explicit(&st->chan[k].state, memory_order_relaxed) != CHAN_FREE)
                        fn(stack_chan_pool(st, k));
}

/* The same of names. */
static void name_named(struct stack *s, uint32_t k)
{
        struct frame_region *r = s->frames->region;

        r[FRAME_REGION_NAMED(FRAME_REGION_TX(k))].pool = stack_chan_pool(s->st, k);
        r[FRAME_REGION_NAMED(FRAME_REGION_RX(k))].geom = s->st->chan[k].shm.rx_geom;
}

/* Recounting references needs each region's pool, and of those that peers lend how their frames
 * lie: a region that this process never mapped still has its records. */
static void name_pools(struct stack *s)
{
        for (uint32_t k = 0; k < atomic_load_explicit(&s->st->chans, memory_order_relaxed); k++) {
                if (atomic_load_explicit(&s->st->chan[k].state, memory_order_relaxed) == CHAN_FREE)
                        continue;
                s->frames->region[FRAME_REGION_TX(k)].pool = stack_chan_pool(s->st, k);
                s->frames->region[FRAME_REGION_RX(k)].geom = s->st->chan[k].shm.rx_geom;
                if (s->st->chan[k].names != 0)
                        name_named(s, k);
        }
}

static void rebuild_socks(struct stack *s)
{
        struct pool *p = &s->st->socks;
        uint64_t *live = calloc(p->fresh / 64 + 1, sizeof *live);

        if (live == NULL)
                return; /* the free list may be short a few records; nothing is wrong in it */
        FOR_SOCKS (s->st, i, rec) {
                sock_refs_recover(s->st, rec);
                if (sock_held(rec))
                        live[i / 64] |= 1ull << (i % 64);
        }
        pool_rebuild(p, live);
        free(live);
}

/* A sleeper keeps its place. The lists end: all sleepers are woken (ustack_look_again()). */
static void rebuild_crowd(struct stack_state *st)
{
        static_assert(STACK_CROWD % 64 == 0, "whole words");
        uint64_t live[STACK_CROWD / 64] = {0};

        for (uint32_t i = 1; i < st->sleepers.fresh; i++) {
                struct crowd_waiter *cw = pool_at(&st->sleepers, i);
                if (cw->slot.proc == 0)
                        continue;
                cw->wants = 0;
                live[i / 64] |= 1ull << (i % 64);
        }
        pool_rebuild(&st->sleepers, live);
        FOR_SOCKS (st, i, rec) {
                rec->waiters &= ~WAITERS_CROWD;
                rec->crowd = 0;
        }
        st->news_waiters &= ~WAITERS_CROWD;
        st->crowd_news = 0;
        st->wants.free = st->wants.used = 0;
        st->wants.fresh = 1;
}

static void hold(struct stack *s, uint32_t id)
{
        struct frame_pool *p = id != 0 ? s->frames->region[frame_id_region(id)].pool : NULL;

        assert(id == 0 || frame_id_region(id) < FRAME_REGIONS);
        if (p != NULL && frame_id_num(id) <= frame_geom_total(p->geom))
                frame_pool_rec(p, frame_id_num(id))->refs++;
}

/* Frames that sockets have: one that somebody who lives copies into, and those of a datagram that
 * is begun. */
static void hold_frames(struct stack *s)
{
        FOR_SOCKS (s->st, i, rec) {
                if (!sock_held(rec) || rec->role != SOCK_ROLE_UDP)
                        continue;
                if (rec->writer != 0)
                        hold(s, rec->tx_frame);
                if (rec->corked[0] == 0)
                        rec->corked[1] = 0;
                rec->cork = (uint8_t)((rec->cork & ~SOCK_CORK_OURS) |
                                      (rec->corked[0] != 0 ? SOCK_CORK_OURS : 0));
                hold(s, rec->corked[0]);
                hold(s, rec->corked[1]);
        }
}

/* Returns true if a live socket record says that it has this connection, listener or pcb. A number
 * that no record ever had is somebody else's than the socket layer's: a test's. */
static bool has_socket(const struct stack *s, uint32_t sock, uint8_t role, uint32_t index)
{
        const struct pool *p = &s->st->socks;
        const struct sock_rec *rec;

        if (sock == 0 || sock >= p->fresh)
                return sock != 0;
        rec = pool_at(p, sock);
        return sock_held(rec) && rec->role == role && rec->conn == index;
}

/* A reservation is out while a process copies without the lock, which its socket says. Any other
 * was made or committed by the process that died. */
static void end_reservations(struct stack *s)
{
        struct pool *conns = &s->tcp.sh->conns;

        for (uint32_t i = 1; i < conns->fresh; i++) {
                struct tcp_conn *tc = pool_at(conns, i);
                if (tc->live && tc->flags & TCF_RSV &&
                    !(has_socket(s, tc->sock, SOCK_ROLE_CONN, i) &&
                      stack_sock(s, tc->sock)->writer != 0)) {
                        tc->rsv_head = tc->rsv_tail = tc->rsv_bytes = 0;
                        conn_unflag(tc, TCF_RSV);
                }
        }
}

static void close_pcbs(struct stack *s)
{
        for (uint32_t i = 1; i < udp_pcb_cap(&s->udp); i++) {
                struct udp_report r;
                if (udp_get_report(&s->udp, i, &r) && !has_socket(s, r.sock, SOCK_ROLE_UDP, i))
                        udp_close(&s->udp, i);
        }
}

static void close_listeners(struct stack *s)
{
        for (uint32_t i = 1; i < s->tcp.sh->listeners.fresh; i++) {
                const struct tcp_listener *l = tcp_listener_at(&s->tcp, i);
                if (l->live && !has_socket(s, l->sock, SOCK_ROLE_LISTENER, i))
                        tcp_unlisten(&s->tcp, i);
        }
}

/* Returns true if nobody will close the connection: it is not closed, waits at no listener, and no
 * socket has it. */
static bool is_nobodys(const struct stack *s, const struct tcp_conn *tc)
{
        return tc->live && !(tc->flags & TCF_CLOSED_BY_APP) && tc->acc_state != ACC_HALF_OPEN &&
               tc->acc_state != ACC_QUEUED && !has_socket(s, tc->sock, SOCK_ROLE_CONN, tc->self);
}

static void close_conns(struct stack *s, nstime now)
{
        struct pool *conns = &s->tcp.sh->conns;

        for (uint32_t i = 1; i < conns->fresh; i++) {
                struct tcp_conn *tc = pool_at(conns, i);
                if (!is_nobodys(s, tc))
                        continue;
                stack_begin(s->st, i);
                tcp_set_sock(&s->tcp, i, 0);
                tcp_close(&s->tcp, tc, now);
                stack_end(s->st);
        }
}

void stack_close_nobodys(struct stack *s, nstime now)
{
        close_pcbs(s);
        close_listeners(s);
        close_conns(s, now);
        stack_flush(s, now);
}

void stack_recover(struct stack *s, nstime now)
{
        struct stack_state *st = s->st;
        uint32_t broken = st->gen & 1 ? st->busy : 0;

        count(&st->cnt, COUNT_STACK_RECOVERIES);
        now = stack_time(s, now);
        trace(s->trace, now, TRACE_STACK_RECOVER, broken, broken);
        stack_sync(s);
        for (uint32_t k = 0; k < s->nchan; k++)
                if (s->chan[k].ops != NULL && s->chan[k].ops->repair != NULL)
                        s->chan[k].ops->repair(s->chan[k].ch);
        for (uint32_t i = 0; i < st->netifs; i++) {
                struct arp a = {&stack_netif(st, i)->arp, &st->cnt};
                if (stack_netif(st, i)->chan != 0)
                        arp_recover(&a, now);
        }
        route_recover(s->routes);
        name_pools(s);
        each_frame_pool(st, frame_pool_zero_refs);
        WRITE_ONCE(st->out_head, 0);
        st->out_tail = 0;
        st->nstuck = 0;
        for (uint32_t k = 0; k < atomic_load_explicit(&st->chans, memory_order_relaxed); k++)
                st->chan[k].stuck_head = st->chan[k].stuck_tail = 0;
        for (uint32_t k = 0; k < atomic_load_explicit(&st->chans, memory_order_relaxed); k++)
                stack_heat(st, k);
        WRITE_ONCE(st->nacks, 0);
        wheel_reset(&st->wheel, now);
        stack_loop_forget(s);
        end_reservations(s);
        tcp_recover(&s->tcp, broken, now);
        udp_recover(&s->udp);
        rebuild_socks(s);
        rebuild_crowd(st);
        hold_frames(s);
        stack_ip_recover(s->ip, &st->prng);
        stack_group_recover(s, now);
        each_frame_pool(st, frame_pool_rebuild);
        stack_loop_relink(s);
        stack_end(st);
        stack_close_nobodys(s, now);
}
