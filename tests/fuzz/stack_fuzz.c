/*
 * A whole stack beside a hostile process: side 0 is the victim, side 1's memory is written by
 * whoever made the input.
 *
 * The input is a program. Honest steps open connections and move data both ways over shared memory;
 * hostile ones write into side 1's transmit region, which is all that a peer can write: slots of
 * the ring with any flags, lengths and frame references, returned frames that never were lent, the
 * control words, single bytes anywhere, payload under the reader's eyes. The victim takes what
 * comes by loans, too, keeps SYNs and follows plans of its own; its channel becomes quiet and hot.
 * The victim's asserts must hold, its turns end, and when the channel goes down all it had is free
 * again.
 */
#include "tests/fuzz/choices.h"
#include "tests/fuzz/fuzz.h"

#include "base/checksum.h"
#include "tcp/tcp_lend.h"
#include "tcp/tcp_plan.h"
#include "tcp/tcp_saved_syn.h"
#include "tests/sim/pair.h"
#include "tests/udp/reading.h"

#define STEPS    120
#define PORT     80u
#define UDP_PORT 53u
#define LENT     8  /* loans that the victim keeps */
#define PROC     1u /* whose they are */

static const struct pair_size size = {
        .tx = {{[FRAME_SMALL] = 24, [FRAME_LARGE] = 2}},
        .rx = {{[FRAME_SMALL] = 24, [FRAME_LARGE] = 1}},
        .conns = 8,
        .segs = 128,
};

struct world {
        struct pair *p;
        struct shm_region *hostile;
        uint32_t conn[2]; /* one that was opened honestly, by side; 0: none */
        uint32_t listener[2];
        uint32_t udp; /* the victim's */
        struct tcp_lent lent[LENT];
        unsigned nlent;
        uint16_t port;
        struct choices in;
};

static struct stack *victim(struct world *w)
{
        return &w->p->side[0].s;
}

static struct shm_pos *hostile_pos(struct world *w)
{
        return &w->p->side[1].st->chan[PAIR_CHAN].shm.pos;
}

/* The victim alone. Its turns must come to rest whatever it finds. */
static void run_victim(struct world *w)
{
        w->p->side[1].dead = true;
        pair_settle(w->p);
        w->p->side[1].dead = false;
}

/* ---- honest steps ---- */

static struct tcp_conn *live(struct world *w, int side)
{
        struct tcp_conn *tc;

        if (w->conn[side] == 0)
                return NULL;
        tc = pair_conn(w->p, side, w->conn[side]);
        return tc->live && tc->sock != 0 ? tc : NULL;
}

/* Both turn for a while; a peer made to misbehave may keep them at it for ever, which is its
 * own loss. */
static void run_both(struct world *w, unsigned turns)
{
        for (unsigned i = 0; i < turns; i++) {
                bool any = stack_run(&w->p->side[0].s, w->p->now);
                stack_flush_acks(&w->p->side[0].s, w->p->now);
                pair_check(w->p);
                any |= stack_run(&w->p->side[1].s, w->p->now);
                stack_flush_acks(&w->p->side[1].s, w->p->now);
                if (!any)
                        break;
        }
}

static void step_open(struct world *w, unsigned how)
{
        int from = how & 1;
        struct tcp_tuple t = {.laddr = pair_addr(from),
                              .raddr = pair_addr(!from),
                              .lport = w->port++,
                              .rport = PORT,
                              .chan = PAIR_CHAN};
        struct tcp_link link = stack_tcp_link(&w->p->side[from].s, PAIR_CHAN);
        struct tcp_opts o;
        int c;

        tcp_opts_default(&o);
        if (live(w, 0) != NULL || live(w, 1) != NULL)
                return;
        c = tcp_connect(&w->p->side[from].s.tcp, &t, &link, &o, w->p->now);
        if (c <= 0)
                return;
        tcp_set_sock(&w->p->side[from].s.tcp, (uint32_t)c, 1);
        stack_flush(&w->p->side[from].s, w->p->now);
        run_both(w, 20);
        w->conn[from] = (uint32_t)c;
        w->conn[!from] = tcp_accept(&w->p->side[!from].s.tcp, w->listener[!from]);
        if (w->conn[!from] != 0)
                tcp_set_sock(&w->p->side[!from].s.tcp, w->conn[!from], 1);
}

static void step_write(struct world *w, unsigned how)
{
        static const uint8_t data[70000];
        int side = how & 1;
        size_t n = how & 2 ? 1 + number(&w->in, 2) : 1 + number(&w->in, 1);

        if (live(w, side) != NULL)
                pair_write(w->p, side, w->conn[side], data, n);
        if (how & 4)
                run_both(w, 1 + how / 16);
}

static void step_read(struct world *w, unsigned how)
{
        static uint8_t data[70000];
        int side = how & 1;

        if (live(w, side) != NULL)
                pair_read(w->p, side, w->conn[side], data,
                          how & 2 ? sizeof data : 1 + number(&w->in, 1));
        run_both(w, 1 + how / 64);
}

static void step_end(struct world *w, unsigned how)
{
        int side = how & 1;
        struct tcp_conn *tc = live(w, side);
        struct tcp *t = &w->p->side[side].s.tcp;

        if (tc == NULL)
                return;
        if (how & 2)
                tcp_shutdown_send(t, tc, w->p->now);
        else if (how & 4)
                tcp_close(t, tc, w->p->now);
        stack_flush(&w->p->side[side].s, w->p->now);
}

static void step_time(struct world *w, unsigned how)
{
        pair_wait(w->p, w->p->now + (nstime)(how + 1) * (how & 1 ? NS_PER_MS : NS_PER_S));
}

static void step_udp(struct world *w, unsigned how)
{
        struct udp_msg m[4];
        int n = udp_recv_peek(&victim(w)->udp, w->udp, 0, m, 4);
        uint32_t sum = 0;

        for (int i = 0; i < n; i++) /* every byte shown can be read */
                for (int k = 0; k < m[i].nspan; k++)
                        sum += csum_partial(m[i].span[k].ptr, m[i].span[k].len, sum) & 1;
        if (n > 0 && (how & 1 || sum == 12345))
                read_first(&victim(w)->udp, w->udp, (uint32_t)n);
}

/* ---- loans, plans, saved SYNs, quiet channels ---- */

static void borrow(struct world *w, struct tcp_conn *tc, unsigned how)
{
        uint32_t sum = 0;
        int n = tcp_recv_lend(&victim(w)->tcp, tc, PROC, how & 4, &w->lent[w->nlent],
                              (int)(LENT - w->nlent), w->p->now);

        for (; n > 0; n--) { /* every byte lent can be read */
                sum += csum_partial(w->lent[w->nlent].ptr, w->lent[w->nlent].len, sum) & 1;
                w->nlent++;
        }
        assert(sum <= LENT);
}

static void give_back(struct world *w, struct tcp_conn *tc, unsigned how)
{
        uint64_t token = how & 8 ? number(&w->in, 4) : 0;

        if (w->nlent != 0 && token == 0)
                token = w->lent[--w->nlent].token;
        tcp_recv_return(&victim(w)->tcp, tc, PROC, token, w->p->now);
}

static void step_lend(struct world *w, unsigned how)
{
        struct tcp_conn *tc = live(w, 0);

        if (how & 1 && tc != NULL && w->nlent < LENT)
                borrow(w, tc, how);
        else if (how & 2 && tc != NULL)
                give_back(w, tc, how);
        else if (how & 16) {
                tcp_loans_end(&victim(w)->tcp, NULL, PROC, w->p->now);
                w->nlent = 0;
        }
        stack_flush(victim(w), w->p->now);
        run_both(w, how / 64);
}

static void step_plan(struct world *w, unsigned how)
{
        struct tcp_conn *tc = live(w, 0);
        struct tcp_plan_report r;
        uint8_t syn[TCP_SAVED_SYN_MOST];
        struct tcp_plan m = {.good_for = (how & 4 ? 1000 : 1) * NS_PER_MS};

        if (tc == NULL)
                return;
        assert(tcp_saved_syn(&victim(w)->tcp, tc, syn) <= sizeof syn);
        if (how & 8)
                tcp_saved_syn_forget(&victim(w)->tcp, tc);
        if (tcp_plan_take(tc, &r, w->p->now) < 0)
                return;
        m.serial = r.serial;
        m.cwnd = 1 + number(&w->in, how & 16 ? 4 : 2);
        m.rate = how & 32 ? number(&w->in, 4) : 0;
        tcp_plan_set(&victim(w)->tcp, tc, how & 1 ? &m : NULL, w->p->now);
        stack_flush(victim(w), w->p->now);
}

/* Nothing went by the channel, or its keeper looks. */
static void step_quiet(struct world *w, unsigned how)
{
        struct pair_side *side = &w->p->side[how & 1];

        if (how & 2)
                side->st->sweep_at = 0;
        stack_run(&side->s, w->p->now);
        if (how & 4)
                stack_heard_quiet(&side->s, side->s.now);
        run_both(w, how / 64);
}

/* ---- hostile steps ---- */

static uint8_t any_proto(unsigned how)
{
        static const uint8_t proto[] = {IP_PROTO_TCP, IP_PROTO_TCP, IP_PROTO_UDP, IP_PROTO_ICMP,
                                        99};

        return proto[how % ARRAY_LEN(proto)];
}

static unsigned tcp_header(struct world *w, uint8_t *at)
{
        struct tcp_conn *tc = live(w, 0);
        struct tcp_seg seg = {.sport = PORT,
                              .dport = (uint16_t)(w->port - 1),
                              .flags = (uint8_t)byte(&w->in),
                              .wscale = TCP_NO_WSCALE,
                              .wnd = 5000};

        if (tc != NULL) {
                seg.sport = tc->tuple.rport;
                seg.dport = tc->tuple.lport;
                seg.seq = tc->rcv_nxt + (byte(&w->in) & 7 ? 0 : number(&w->in, 4));
                seg.ack = tc->snd_una + (byte(&w->in) & 7 ? 0 : number(&w->in, 4));
        }
        return tcp_hdr_write(&seg, at);
}

static unsigned transport_header(struct world *w, uint8_t proto, uint8_t *at)
{
        if (proto == IP_PROTO_TCP)
                return tcp_header(w, at);
        if (proto == IP_PROTO_UDP)
                udp_hdr_write(at, 4000, UDP_PORT, number(&w->in, 2), (be16){0});
        else
                at[0] = byte(&w->in) & 1 ? ICMP_ECHO_REQUEST : (uint8_t)byte(&w->in);
        return 8;
}

/* A packet that is nearly right: IP header for `len` bytes, transport, then whatever comes. */
static unsigned any_packet(struct world *w, uint8_t *at, uint32_t tail)
{
        unsigned how = byte(&w->in), n;
        uint8_t proto = any_proto(how);
        struct ip_tmpl ip;

        memset(at, 0, SHM_INLINE_MAX);
        ip_tmpl_init(&ip, pair_addr(1), pair_addr(0), proto, 0, 64, how & 32);
        n = IP_MIN_HDR + transport_header(w, proto, at + IP_MIN_HDR);
        for (unsigned k = how & 64 ? byte(&w->in) % 64 : 0; k > 0; k--)
                at[n++] = (uint8_t)byte(&w->in);
        ip_hdr_write(&ip, at, (uint16_t)(n + tail + (how & 128 ? byte(&w->in) : 0)), 0);
        for (unsigned k = byte(&w->in) % 4; k > 1; k--) /* and nearly wrong */
                at[byte(&w->in) % n] = (uint8_t)byte(&w->in);
        return n;
}

static struct shm_frame_ref any_ref(struct world *w)
{
        unsigned how = byte(&w->in);
        struct shm_frame_ref r = {
                .frame = how % 30, .off = number(&w->in, 1), .len = number(&w->in, 2)};

        if (how & 64)
                r.off = number(&w->in, 4);
        if (how & 128)
                r.len = number(&w->in, 4);
        if (how == 255)
                r.frame = number(&w->in, 4);
        return r;
}

/* The next slot, as a provider would fill it, but for what is in it. */
static void step_slot(struct world *w, unsigned how)
{
        struct shm_pos *pos = hostile_pos(w);
        struct shm_slot *s = &w->hostile->ring[pos->tx_prod % SHM_SLOTS];
        struct shm_frame_ref ref = any_ref(w);
        uint8_t packet[SHM_INLINE_MAX + 80];
        unsigned n = any_packet(w, packet, how & 1 ? ref.len : 0);

        s->flags = how & 1 ? SHM_F_FRAME : 0;
        s->inl_len = how & 2 ? (uint8_t)n : (uint8_t)(n + byte(&w->in) % 8);
        if (how & 4) {
                s->flags = (uint8_t)byte(&w->in);
                s->inl_len = (uint8_t)byte(&w->in);
        }
        memcpy(s->body, &ref, how & 1 ? sizeof ref : 0);
        memcpy(s->body + (how & 1 ? sizeof ref : 0), packet, MIN(n, SHM_INLINE_MAX));
        s->nmore = (uint16_t)(how & 8 ? number(&w->in, 2) : 0);
        atomic_store_explicit(&s->seq, ++pos->tx_prod, memory_order_release);
        if (how & 16)
                run_victim(w);
}

/* Frames "given back": any number, more than were lent, the same twice. */
static void step_returns(struct world *w, unsigned how)
{
        uint32_t prod = atomic_load_explicit(&w->hostile->ctrl.ret_prod, memory_order_relaxed);

        for (unsigned n = how % 32; n > 0; n--)
                w->hostile->ret[prod++ % SHM_RETS] =
                        how & 128 ? number(&w->in, 4) : byte(&w->in) % 30;
        atomic_store_explicit(&w->hostile->ctrl.ret_prod, prod, memory_order_release);
        hostile_pos(w)->ret_prod = prod;
        run_victim(w);
}

static void step_words(struct world *w, unsigned how)
{
        _Atomic uint32_t *word[] = {&w->hostile->ctrl.cons, &w->hostile->ctrl.ret_prod,
                                    &w->hostile->ctrl.want_room, &w->hostile->ctrl.closed,
                                    &w->hostile->ctrl.quiet};
        _Atomic uint32_t *at = word[how % ARRAY_LEN(word)];
        uint32_t v = how & 128
                             ? number(&w->in, 4)
                             : atomic_load_explicit(at, memory_order_relaxed) + byte(&w->in) - 128;

        atomic_store_explicit(at, v, memory_order_release);
        run_victim(w);
}

static void step_scribble(struct world *w, unsigned how)
{
        uint8_t *region = (uint8_t *)w->hostile;
        size_t bytes = SHM_REGION_BYTES(size.tx), at = number(&w->in, 4);

        if (how & 1) /* near what will be read next */
                at = offsetof(struct shm_region, ring) +
                     (hostile_pos(w)->tx_prod + at % 8 - 4) % SHM_SLOTS * 256 + at % 300;
        for (unsigned n = 1 + how % 64; n > 0; n--)
                region[at++ % bytes] = (uint8_t)byte(&w->in);
        run_victim(w);
}

/* ---- a world ---- */

static uint32_t listen_on(struct world *w, int side)
{
        struct tcp_opts o;

        tcp_opts_default(&o);
        o.save_syn = 2;
        return (uint32_t)tcp_listen(&w->p->side[side].s.tcp, pair_addr(side), PORT, 4, &o);
}

static struct world world_new(const uint8_t *data, size_t n)
{
        struct world w = {.p = pair_new(1, NULL, &size), .in = {data, data + n}, .port = 40000};
        struct udp_opts o;

        w.hostile = w.p->side[1].region;
        w.listener[0] = listen_on(&w, 0);
        w.listener[1] = listen_on(&w, 1);
        for (int i = 0; i < 2; i++)
                w.p->side[i].st->quiet_few = 0;
        udp_opts_default(&o);
        o.rcvbuf = 20000;
        w.udp = udp_open(&victim(&w)->udp, &o);
        udp_bind(&victim(&w)->udp, w.udp, pair_addr(0), UDP_PORT);
        return w;
}

/* As the keeper does when it hears that the peer is gone, and as the sockets' owner does then. */
static void wind_up(struct world *w)
{
        struct stack *s = victim(w);

        w->p->side[1].dead = true;
        stack_chan_down(s, PAIR_CHAN, w->p->now);
        tcp_loans_end(&s->tcp, NULL, PROC, w->p->now);
        tcp_unlisten(&s->tcp, w->listener[0]);
        udp_close(&s->udp, w->udp);
        for (uint32_t i = 1; i < s->tcp.sh->conns.fresh; i++)
                if (tcp_conn_at(&s->tcp, i)->live && tcp_conn_at(&s->tcp, i)->sock != 0)
                        tcp_close(&s->tcp, tcp_conn_at(&s->tcp, i), w->p->now);
        stack_flush(s, w->p->now);
        for (int n = 0; s->tcp.sh->conns.used != 0; n++) {
                assert(n < 1000);
                pair_wait(w->p, w->p->now + 100 * NS_PER_S);
        }
        while (s->ip->deadline != NSTIME_NEVER) /* datagrams of which there came a part */
                pair_wait(w->p, w->p->now + REASS_TIMEOUT);
        assert(pair_leaks(w->p) == 0);
        assert(stack_chan_free(s, PAIR_CHAN));
        pair_free(w->p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        static void (*const steps[])(struct world *, unsigned) = {
                step_open,     step_write, step_write,   step_read,  step_read,
                step_end,      step_time,  step_udp,     step_slot,  step_slot,
                step_slot,     step_slot,  step_returns, step_words, step_scribble,
                step_scribble, step_lend,  step_lend,    step_plan,  step_quiet,
        };
        struct world w = world_new(data, n);

        for (int i = 0; i < STEPS && w.in.at < w.in.end; i++) {
                unsigned op = byte(&w.in);
                steps[op % ARRAY_LEN(steps)](&w, byte(&w.in));
        }
        wind_up(&w);
        return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
        /* open, write both ways, read */
        static const uint8_t honest[] = {0,  0, 1,  0x76, 30, 0,    2, 0x77, 40, 0,
                                         16, 1, 18, 0x21, 19, 0xc7, 3, 0xc2, 3,  0xc3};
        uint64_t x = 0x2545f4914f6cdd1du * (i + 1);
        size_t n = sizeof honest;

        if (i >= 16)
                return 0;
        memcpy(buf, honest, n);
        buf[1] = (uint8_t)i;
        while (n < 400) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                buf[n++] = (uint8_t)(x >> 33);
        }
        return n;
}
