/*
 * The loop that joins channels and protocols. stack_rx.c, stack_out.c and stack_icmp.c are the
 * roads it takes.
 *
 *      stack_run() -> stack_take() -> for each channel: frames returned; stack_run_rx(); room
 *                                  -> wheel_pop() -> tcp_expire()
 *                  -> drain(): for each connection touched: stack_output_conn(); deadline; events
 *                  -> ops->flush()
 */
#include "netstack/stack_road.h"

#include "netstack/stack_trace.h"
#include "tcp/tcp_group.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_stamp.h"
#include "tcp/tcp_watch.h"

#define REAP_BATCH  64
#define REAP_ROUNDS (SHM_RETS / REAP_BATCH) /* what can be on loan in one go */
/* Between looks of those who are told by nobody; a full ring is 2.5 ms of 10 Gb/s. */
#define ROOM_LOOK   NS_PER_MS
#define ROOM_ENOUGH SHM_PUBLISH_EVERY /* free slots before those who waited for one go on */

static const uint32_t wheel_off = offsetof(struct tcp_conn, wheel);

static struct pool *conns(struct stack *s)
{
        return &s->tcp.sh->conns;
}

/* ---- the list of connections touched ---- */

static void touched(void *arg, uint32_t conn)
{
        struct stack *s = arg;
        struct stack_state *st = s->st;
        struct tcp_conn *tc = tcp_conn_at(&s->tcp, conn);

        if (tc->out_queued)
                return;
        tc->out_queued = 1;
        tc->out_next = 0;
        tc->out_prev = st->out_tail;
        if (st->out_tail != 0)
                tcp_conn_at(&s->tcp, st->out_tail)->out_next = conn;
        else
                WRITE_ONCE(st->out_head, conn);
        st->out_tail = conn;
}

/* At the head out_prev says nothing: who was before it has been taken off. */
static void out_unlink(struct stack *s, struct tcp_conn *tc)
{
        struct stack_state *st = s->st;
        bool head = st->out_head == tc->self;

        if (head)
                WRITE_ONCE(st->out_head, tc->out_next);
        else
                tcp_conn_at(&s->tcp, tc->out_prev)->out_next = tc->out_next;
        if (tc->out_next != 0)
                tcp_conn_at(&s->tcp, tc->out_next)->out_prev = tc->out_prev;
        else
                st->out_tail = head ? 0 : tc->out_prev;
        tc->out_queued = 0;
}

/* ---- connections that wait for room on their channel ---- */

/* The connection waits on its channel's list until the channel has room: a turn costs by those that
 * can go on, not by those that wait. */
static void stick(struct stack *s, struct tcp_conn *tc)
{
        struct chan_slot *slot = &s->st->chan[tc->tuple.chan];

        if (tc->stuck)
                return;
        tc->stuck = 1;
        tc->stuck_next = 0;
        tc->stuck_prev = slot->stuck_tail;
        *(slot->stuck_tail != 0 ? &tcp_conn_at(&s->tcp, slot->stuck_tail)->stuck_next
                                : &slot->stuck_head) = tc->self;
        slot->stuck_tail = tc->self;
        s->st->nstuck++;
}

static void unstick(struct stack *s, struct tcp_conn *tc)
{
        struct chan_slot *slot = &s->st->chan[tc->tuple.chan];

        assert(tc->stuck && s->st->nstuck != 0);
        *(tc->stuck_prev != 0 ? &tcp_conn_at(&s->tcp, tc->stuck_prev)->stuck_next
                              : &slot->stuck_head) = tc->stuck_next;
        *(tc->stuck_next != 0 ? &tcp_conn_at(&s->tcp, tc->stuck_next)->stuck_prev
                              : &slot->stuck_tail) = tc->stuck_prev;
        tc->stuck = 0;
        s->st->nstuck--;
}

/* Returns true if connections wait for the channel, and it has the room that the least demanding of
 * them needs. No lock needed. */
static bool stuck_has_room(const struct stack *s, uint32_t k, const struct unet_ni_ops *ops,
                           struct unet_chan *ch)
{
        uint32_t n = MAX(READ_ONCE(s->st->chan[k].starved), 1);

        return READ_ONCE(s->st->chan[k].stuck_head) != 0 && ops->room(ch) >= n &&
               READ_ONCE(s->frames->region[FRAME_REGION_TX(k)].pool->loans) + n <= STACK_LOANS_MAX;
}

/* Moves as many of the channel's stuck connections as it has free slots back to the list of those
 * touched: each needs a slot at least. Returns false if none is stuck. */
static bool let_go_on(struct stack *s, uint32_t k)
{
        const struct chan_slot *slot = &s->st->chan[k];
        bool any = slot->stuck_head != 0;
        uint32_t conn;

        for (uint32_t n = MAX(s->chan[k].ops->room(s->chan[k].ch), 1);
             n > 0 && (conn = slot->stuck_head) != 0; n--) {
                unstick(s, tcp_conn_at(&s->tcp, conn));
                touched(s, conn);
        }
        return any;
}

/* Call at the beginning of a drain: stuck connections go on, of every channel that has room by now.
 * Returns true if there were any. */
static bool first_go_on(struct stack *s)
{
        bool any = false;

        STACK_FOR_HOT (s, k)
                if (s->chan[k].ops != NULL && stuck_has_room(s, k, s->chan[k].ops, s->chan[k].ch))
                        any |= let_go_on(s, k);
        return any;
}

/* Call after a round of a drain: where nobody waits for room any more, the connections of the last
 * round needed less than there was, and others may go. Each round empties a list or fills a
 * channel. */
static bool more_go_on(struct stack *s)
{
        bool any = false;

        STACK_FOR_HOT (s, k)
                if (s->chan[k].ops != NULL && s->st->chan[k].starved == 0)
                        any |= let_go_on(s, k);
        return any;
}

/* The record is about to be freed. */
static void gone(void *arg, uint32_t conn)
{
        struct stack *s = arg;
        struct tcp_conn *tc = tcp_conn_at(&s->tcp, conn);

        wheel_cancel(&s->st->wheel, conns(s), wheel_off, conn);
        if (tc->out_queued)
                out_unlink(s, tc);
        if (tc->stuck)
                unstick(s, tc);
}

/* Returns true if acknowledgement i, which was put off, is still owed: it may have gone with data
 * meanwhile. */
static bool owes_ack(struct stack *s, uint32_t i)
{
        struct tcp_conn *tc = tcp_conn_at(&s->tcp, s->st->acks[i]);

        return tc->live && tcp_ack_waits(tc);
}

/* Takes acknowledgements that have gone out of the table. */
static void sift_acks(struct stack *s)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < s->st->nacks; i++)
                if (owes_ack(s, i))
                        s->st->acks[n++] = s->st->acks[i];
        WRITE_ONCE(s->st->nacks, n);
}

/* Remembers an acknowledgement that waits for the end of the turn; with the table full it goes now.
 * If the connection waits for its channel, the acknowledgement goes when there is room. */
static void note_ack(struct stack *s, struct tcp_conn *tc)
{
        struct stack_state *st = s->st;

        if (tc->stuck || !tcp_ack_waits(tc))
                return;
        for (uint32_t i = 0; i < st->nacks; i++)
                if (st->acks[i] == tc->self)
                        return;
        if (unlikely(st->nacks == ARRAY_LEN(st->acks)))
                sift_acks(s);
        if (unlikely(st->nacks == ARRAY_LEN(st->acks))) {
                tcp_flush_ack(&s->tcp, tc);
                return;
        }
        st->acks[st->nacks] = tc->self;
        WRITE_ONCE(st->nacks, st->nacks + 1);
}

static void tell(struct stack *s, struct tcp_conn *tc)
{
        uint32_t events = tc->events;

        if (tc->acc_state == ACC_QUEUED && tc->listener != 0) {
                struct tcp_listener *l = tcp_listener_at(&s->tcp, tc->listener);
                if (l->events != 0 && l->sock != 0) {
                        l->events = 0;
                        s->event(s, l->sock, TCP_EV_ACCEPT);
                }
        }
        if (events != 0 && tc->sock != 0) {
                tc->events = 0;
                s->event(s, tc->sock, events);
        }
}

/* Tells what a watch, a time of sending or a group wants to know of the connection. */
static void look(struct stack *s, struct tcp_conn *tc)
{
        if (conn_is_watched(tc))
                tcp_watch_look(tc);
        if (tc->stamps != 0)
                tcp_stamp_look(&s->tcp, tc, s->now);
        if (tc->send_share != 0)
                tcp_group_look(&s->tcp, tc);
}

/* Does what each touched connection is due. If its channel is full, it waits for room there; if its
 * channel is not mapped in this process, it stays on the list, behind the others. */
static void drain_list(struct stack *s)
{
        struct stack_state *st = s->st;
        uint32_t first_left = 0, conn;

        while ((conn = st->out_head) != 0 && conn != first_left) {
                struct tcp_conn *tc = tcp_conn_at(&s->tcp, conn);
                bool done;

                stack_begin(st, conn);
                WRITE_ONCE(st->out_head, tc->out_next);
                if (st->out_head == 0)
                        st->out_tail = 0;
                tc->out_queued = 0;
                done = stack_output_conn(s, tc);
                if (unlikely(!done) && st->chan[tc->tuple.chan].starved != 0) {
                        tcp_queue_full(tc, s->now);
                        stick(s, tc);
                } else if (unlikely(!done)) {
                        touched(s, conn);
                        if (first_left == 0)
                                first_left = conn;
                }
                if (tc->live) {
                        if (unlikely(tc->slow & SLOW_FLOW))
                                look(s, tc);
                        wheel_set(&st->wheel, conns(s), wheel_off, conn, tcp_deadline(tc));
                        note_ack(s, tc);
                        tell(s, tc);
                }
                stack_end(st);
        }
}

static void drain(struct stack *s)
{
        bool more = s->st->nstuck != 0 && first_go_on(s);

        for (more |= s->st->out_head != 0; more; more = s->st->nstuck != 0 && more_go_on(s))
                drain_list(s);
}

static bool drain_due(const struct stack *s)
{
        return s->st->out_head != 0 || unlikely(s->st->nstuck != 0);
}

void stack_flush_bells(struct stack *s)
{
        STACK_FOR_HOT (s, k) {
                uint64_t rung = s->st->cnt.n[COUNT_NI_BELLS];
                if (s->chan[k].ops == NULL)
                        continue;
                s->chan[k].ops->flush(s->chan[k].ch);
                if (unlikely(s->st->cnt.n[COUNT_NI_BELLS] != rung))
                        trace(s->trace, s->now, TRACE_RING, 0, k);
        }
}

void stack_flush(struct stack *s, nstime now)
{
        stack_time(s, now);
        if (drain_due(s))
                drain(s);
        stack_flush_bells(s);
}

bool stack_owes_acks(struct stack *s)
{
        for (uint32_t i = 0; i < s->st->nacks; i++)
                if (owes_ack(s, i))
                        return true;
        WRITE_ONCE(s->st->nacks, 0);
        return false;
}

void stack_flush_acks(struct stack *s, nstime now)
{
        struct stack_state *st = s->st;

        if (st->nacks == 0 || !stack_owes_acks(s))
                return;
        for (uint32_t i = 0; i < st->nacks; i++)
                if (owes_ack(s, i))
                        tcp_flush_ack(&s->tcp, tcp_conn_at(&s->tcp, st->acks[i]));
        WRITE_ONCE(st->nacks, 0);
        stack_flush(s, now);
}

void stack_flush_last_acks(struct stack *s, nstime now)
{
        struct stack_state *st = s->st;

        if (st->nacks == 0)
                return;
        for (uint32_t i = 0; i < st->nacks; i++) {
                struct tcp_conn *tc = tcp_conn_at(&s->tcp, st->acks[i]);
                if (tc->state == TCPS_TIME_WAIT && owes_ack(s, i))
                        tcp_flush_ack(&s->tcp, tc);
        }
        stack_flush(s, now);
        sift_acks(s);
}

/* ---- channels ---- */

/* Frames that the peer has finished with come back; whoever waited for them or for a slot is looked
 * at again. A peer that gives back for ever does not keep us here. */
static bool run_reap(struct stack *s, uint32_t k, struct stack_chan *c)
{
        uint32_t num[REAP_BATCH];
        bool any = false;
        int n;

        for (uint32_t round = 0;
             round < REAP_ROUNDS && (n = c->ops->reap(c->ch, num, REAP_BATCH)) > 0; round++) {
                any = true;
                for (int i = 0; i < n; i++)
                        if (!frame_unlend(s->frames, FRAME_REGION_TX(k), num[i]))
                                count(&s->st->cnt, COUNT_NI_BAD_RETURN);
        }
        if (any)
                tcp_frames_back(&s->tcp, FRAME_REGION_TX(k));
        return any;
}

/* The peer is to say when it has consumed or returned something: whoever asks, or waits. */
static void want_room(struct stack *s, uint32_t k, bool on)
{
        struct stack_chan *c = &s->chan[k];

        if (c->ops->want_room != NULL)
                c->ops->want_room(c->ch,
                                  on || s->st->chan[k].starved ||
                                          s->frames->region[FRAME_REGION_TX(k)].pool->starved);
}

/* For those who wait: a part of the queue, and no more frames with the peer than may be. No
 * lock needed. */
static __attribute__((noinline)) bool has_room_enough(const struct stack *s, uint32_t k,
                                                      const struct unet_ni_ops *ops,
                                                      struct unet_chan *ch)
{
        uint32_t n = READ_ONCE(s->st->chan[k].starved);

        return ops->room(ch) >= MAX(n, ROOM_ENOUGH) &&
               READ_ONCE(s->frames->region[FRAME_REGION_TX(k)].pool->loans) + n <= STACK_LOANS_MAX;
}

static void run_room(struct stack *s, uint32_t k, struct stack_chan *c)
{
        struct chan_slot *slot = &s->st->chan[k];

        if (unlikely(slot->starved) && has_room_enough(s, k, c->ops, c->ch)) {
                WRITE_ONCE(slot->starved, 0);
                want_room(s, k, false);
                s->event(s, 0, TCP_EV_WRITABLE);
        }
}

void stack_wait_frame(struct stack *s, uint32_t k, enum frame_class c)
{
        struct frame_pool *p = s->frames->region[FRAME_REGION_TX(k)].pool;

        assert(k < STACK_CHANS && s->chan[k].ops != NULL);
        WRITE_ONCE(p->starved, p->starved | 1u << c);
        want_room(s, k, true);
}

void stack_frame_came(struct stack *s, uint32_t k)
{
        assert(k < STACK_CHANS);
        if (s->chan[k].ops != NULL)
                want_room(s, k, false);
        s->event(s, 0, TCP_EV_WRITABLE);
}

void stack_want_returns(struct stack *s, bool on)
{
        STACK_FOR_HOT (s, k)
                if (s->chan[k].ops != NULL)
                        want_room(s, k, on && s->frames->region[FRAME_REGION_TX(k)].pool->loans);
}

void stack_arm(struct stack *s)
{
        STACK_FOR_HOT (s, k)
                if (s->chan[k].ops != NULL && unlikely(s->chan[k].ops->arm != NULL))
                        s->chan[k].ops->arm(s->chan[k].ch);
}

void stack_sync_chans(struct stack *s)
{
        uint32_t gen = atomic_load_explicit(&s->st->chan_gen, memory_order_acquire), seen = gen;

        for (uint32_t k = 0; k < atomic_load_explicit(&s->st->chans, memory_order_relaxed); k++) {
                uint32_t state = atomic_load_explicit(&s->st->chan[k].state, memory_order_acquire);
                if (s->chan[k].ops != NULL && s->chan[k].generation != s->st->chan[k].generation)
                        stack_chan_unmapped(s, k); /* it goes by something else now */
                /* A channel that is down may have brought what is unread. */
                if (state != CHAN_FREE && !stack_chan_map(s, k) && state != CHAN_DOWN &&
                    s->map_chan != NULL)
                        seen = gen - 1; /* cannot be mapped now: again next time */
                if (state != CHAN_FREE || s->chan[k].ops == NULL)
                        continue;
                stack_chan_unmapped(s, k);
                if (s->unmap_chan != NULL)
                        s->unmap_chan(s, k);
        }
        /* Release: whoever has no lock finds the channels mapped. */
        __atomic_store_n(&s->chan_gen, seen, __ATOMIC_RELEASE);
        stack_route_arrivals(s);
        stack_route_views(s);
}

/* ---- time ---- */

/* RFC 1122 §3.3.2: who sent what never became whole hears of it. */
static bool expire_fragments(struct stack *s)
{
        struct ip_pkt about;
        uint32_t k;

        while (stack_ip_expire(s, &about, &k))
                if (stack_chan_get(s, k) != NULL)
                        stack_icmp_error(s, k, &about, ICMP_TIME_EXCEEDED, ICMP_REASSEMBLY_TIME, 0);
        return true;
}

static void expire_traced(struct stack *s, uint32_t conn)
{
        struct counters before = s->st->cnt;

        tcp_expire(&s->tcp, tcp_conn_at(&s->tcp, conn), s->now);
        stack_trace_timer(s, tcp_conn_at(&s->tcp, conn), &before);
}

/* The second timeout in a row: perhaps nobody is there any more. */
static void doubt_neighbour(struct stack *s, const struct tcp_conn *tc)
{
        struct stack_chan *c = &s->chan[tc->tuple.chan];

        if (unlikely(c->netif.nif != NULL) && tc->live && tc->backoff >= 2)
                netif_doubted(s, c, tc->tuple.raddr);
}

static bool run_timers(struct stack *s)
{
        struct wheel *w = &s->st->wheel;
        bool any = false;
        uint32_t conn;

        if (unlikely(s->ip->deadline <= s->now))
                any = expire_fragments(s);
        if (wheel_next(w) > s->now)
                return any;
        while ((conn = wheel_pop(w, conns(s), wheel_off, s->now)) != 0) {
                stack_begin(s->st, conn);
                if (stack_traced(s))
                        expire_traced(s, conn);
                else
                        tcp_expire(&s->tcp, tcp_conn_at(&s->tcp, conn), s->now);
                doubt_neighbour(s, tcp_conn_at(&s->tcp, conn));
                if (tcp_conn_at(&s->tcp, conn)->live)
                        touched(s, conn);
                stack_end(s->st);
                any = true;
        }
        return any;
}

/* Chunks of an AF_XDP socket come back when the device has done, and no event says so. */
static nstime room_deadline(const struct stack *s, uint32_t k)
{
        if (likely(READ_ONCE(s->st->chan[k].starved) == 0) ||
            !READ_ONCE(s->chan[k].caps.room_unsaid))
                return NSTIME_NEVER;
        return READ_ONCE(s->now) + ROOM_LOOK;
}

nstime stack_deadline(const struct stack *s)
{
        nstime at = nstime_min(wheel_next(&s->st->wheel), READ_ONCE(s->ip->deadline));

        at = nstime_min(at, stack_look_due(s));
        for (uint32_t i = 0; unlikely(i < READ_ONCE(s->st->netifs)); i++) {
                struct netif *n = stack_netif(s->st, i);
                uint32_t chan = READ_ONCE(n->chan);
                if (chan == 0)
                        continue;
                at = nstime_min(nstime_min(at, igmp_deadline(s->igmp)),
                                arp_deadline(&(struct arp){&n->arp, NULL}));
                at = nstime_min(at, room_deadline(s, chan - 1));
        }
        return at;
}

/* ---- a turn ---- */

bool stack_take(struct stack *s, nstime now)
{
        bool any = false;

        stack_time(s, now);
        stack_sync(s);
        if (unlikely(s->now >= s->st->sweep_at))
                stack_sweep(s);
        if (unlikely(s->now >= stack_look_due(s)))
                stack_look_put_off(s);
        STACK_FOR_HOT (s, k) {
                struct stack_chan *c = &s->chan[k];
                if (c->ops == NULL)
                        continue;
                any |= run_reap(s, k, c);
                any |= stack_run_rx(s, k, c);
                run_room(s, k, c);
                if (unlikely(c->netif.nif != NULL))
                        netif_run(s, k);
        }
        any |= run_timers(s);
        return any;
}

bool stack_run(struct stack *s, nstime now)
{
        bool any = stack_take(s, now);

        if (drain_due(s))
                drain(s);
        stack_flush_bells(s);
        return any;
}

bool stack_pending(struct stack *s, nstime now)
{
        if (atomic_load_explicit(&s->st->chan_gen, memory_order_relaxed) != READ_ONCE(s->chan_gen))
                return true;
        STACK_FOR_HOT (s, k) {
                struct unet_chan *ch = stack_chan_peek(s, k);
                const struct unet_ni_ops *ops = ch != NULL ? READ_ONCE(ch->ops) : NULL;
                if (ops != NULL &&
                    (ops->pending(ch) ||
                     (unlikely(READ_ONCE(s->st->chan[k].starved)) &&
                      (has_room_enough(s, k, ops, ch) || stuck_has_room(s, k, ops, ch)))))
                        return true;
        }
        return now != 0 && stack_deadline(s) <= now;
}

bool stack_has_work(struct stack *s, nstime now)
{
        return READ_ONCE(s->st->out_head) != 0 || READ_ONCE(s->st->nacks) != 0 ||
               stack_pending(s, now);
}

/* ---- for stack.c ---- */

static uint32_t path_mtu(void *arg, const struct tcp_tuple *to)
{
        return stack_path_mtu(arg, to->raddr);
}

static void path_learnt(void *arg, const struct tcp_tuple *to, uint32_t mtu)
{
        stack_path_learnt(arg, to->chan, to->raddr, mtu);
}

void stack_loop_init(struct stack *s)
{
        struct stack_state *st = s->st;

        s->tcp = (struct tcp){
                .sh = (struct tcp_shared *)((char *)st + st->tcp_off),
                .frames = s->frames,
                .cnt = &st->cnt,
                .reply = stack_reply_tcp,
                .answers = &stack_answers,
                .touched = touched,
                .gone = gone,
                .path_mtu = path_mtu,
                .path_learnt = path_learnt,
                .arg = s,
                .trace = s->trace,
                .clock = &s->now,
                .busy = &st->busy,
        };
        s->udp = (struct udp){
                .sh = (struct udp_shared *)((char *)st + st->udp_off),
                .frames = s->frames,
                .cnt = &st->cnt,
                .touched = stack_udp_touched,
                .arg = s,
        };
}

/* Call after a death: the loop's links in every connection record are worthless, nothing is armed,
 * nothing is queued. */
void stack_loop_forget(struct stack *s)
{
        for (uint32_t i = 1; i < conns(s)->fresh; i++) {
                struct tcp_conn *tc = pool_at(conns(s), i);
                wheel_forget(&tc->wheel);
                tc->out_queued = tc->stuck = 0;
        }
}

/* Every connection is looked at once: its output, deadline and events. */
void stack_loop_relink(struct stack *s)
{
        for_each_conn (&s->tcp, tc)
                touched(s, tc->self);
}
