/*
 * UDP. The first byte chooses: a packet for the parser, or a program for a whole UDP: sockets
 * opened, bound, connected, closed, datagrams arriving and read, errors, a death and a recovery.
 * After each step every invariant holds; at the end nothing is leaked.
 */
#include "tests/fuzz/message.h"
#include "tests/udp/reading.h"
#include "udp/udp_pcb.h"

#include <sys/socket.h>

/* ---- the parser ---- */

static void check_dgram(const struct ip_pkt *p, const struct udp_dgram *d)
{
        assert(d->inl == p->inl + UDP_HDR && UDP_HDR + d->inl_len <= p->inl_len);
        assert((d->data.id == 0) == (d->data.len == 0));
        assert(UDP_HDR + udp_dgram_len(d) <= ip_payload_len(p));
        if (d->data.id != 0)
                assert(d->data.id == p->data.id && d->data.off == p->data.off &&
                       d->data.len <= p->data.len);
}

static void fuzz_parser(const uint8_t *data, size_t size)
{
        struct fuzz_message m;
        struct udp_dgram d;
        struct ip_pkt pkt;

        if (!fuzz_message(data, size, &m))
                return;
        if (ip_rx(&m.host, FUZZ_CHAN, &m.rx, &pkt) == DROP_NONE) {
                if (udp_hdr_parse(m.frames, &pkt, FUZZ_CHAN, false, &d) == DROP_NONE)
                        check_dgram(&pkt, &d);
                udp_hdr_parse(m.frames, &pkt, FUZZ_CHAN, true, &d);
        }
        fuzz_message_free(&m);
}

/* ---- a whole UDP ---- */

#define PCBS    8u
#define LENT    8u /* frames of the peer, half of them small */
#define PRIVATE 6u /* of each class */

struct world {
        struct udp u;
        struct frames frames;
        struct counters cnt;
        bool lent[LENT + 1];
        const uint8_t *p, *end; /* the program */
        nstime now;
};

static unsigned next_byte(struct world *w)
{
        return w->p < w->end ? *w->p++ : 0;
}

static void give_back(void *arg, uint32_t chan, uint32_t num)
{
        struct world *w = arg;

        assert(chan == FUZZ_CHAN && num <= LENT && w->lent[num]);
        w->lent[num] = false;
}

static void touched(void *arg, uint32_t pcb)
{
        struct world *w = arg;

        assert(pcb != 0 && udp_pcb_at(&w->u, pcb)->live);
}

static struct frame_pool *private_pool(struct world *w)
{
        return w->frames.region[FRAME_REGION_PRIVATE].pool;
}

#define LENT_BYTES    (LENT / 2 * (FRAME_LARGE_BYTES + FRAME_SMALL_BYTES))
#define PRIVATE_BYTES (PRIVATE * (FRAME_LARGE_BYTES + FRAME_SMALL_BYTES))

/* A world is large and most of it need not be cleared, so there is one and it is made anew. */
static struct world *make_world(const uint8_t *data, size_t size)
{
        static _Alignas(CACHE_LINE) uint8_t lent[LENT_BYTES], private[PRIVATE_BYTES], shared[65536],
                pool[8192];
        static const uint8_t secret[16] = "secret";
        static struct world world;
        struct udp_limits l = {.pcbs = PCBS, .errors = 4, .lend_max = 3 * FRAME_LARGE_BYTES};
        struct frame_geom mine = {{[FRAME_LARGE] = PRIVATE, [FRAME_SMALL] = PRIVATE}};
        struct frame_geom peers = {{[FRAME_LARGE] = LENT / 2, [FRAME_SMALL] = LENT / 2}};
        struct world *w = &world;

        assert(udp_shared_bytes(&l) <= sizeof shared && frame_pool_bytes(mine) <= sizeof pool);
        memset(shared, 0, udp_shared_bytes(&l));
        memset(pool, 0, sizeof pool);
        memset(w->lent, 0, sizeof w->lent);
        w->p = data;
        w->end = data + size;
        w->frames.give_back = give_back;
        w->frames.arg = w;
        w->frames.region[FRAME_REGION_PRIVATE] =
                (struct frame_region){private, (struct frame_pool *)pool, mine};
        w->frames.region[FRAME_REGION_RX(FUZZ_CHAN)] = (struct frame_region){lent, NULL, peers};
        frame_pool_init((struct frame_pool *)pool, mine);
        w->u = (struct udp){.sh = (struct udp_shared *)shared,
                            .frames = &w->frames,
                            .cnt = &w->cnt,
                            .touched = touched,
                            .arg = w};
        udp_shared_init(w->u.sh, &l, secret);
        return w;
}

static bool live(struct world *w, uint32_t pcb)
{
        struct udp_report r;

        return udp_get_report(&w->u, pcb, &r);
}

static void check_world(struct world *w)
{
        for (uint32_t i = 1; i <= PCBS; i++)
                if (live(w, i))
                        udp_pcb_check(&w->u, i);
}

static void end_world(struct world *w)
{
        for (uint32_t i = 1; i <= PCBS; i++)
                if (live(w, i))
                        udp_close(&w->u, i);
        for (uint32_t i = 1; i <= LENT; i++)
                assert(!w->lent[i]);
        assert(private_pool(w)->used[FRAME_SMALL] + private_pool(w)->used[FRAME_LARGE] == 0);
}

/* Few addresses and ports, so that they meet. */
static ip_addr some_addr(unsigned byte)
{
        return byte % 4 == 0 ? (ip_addr){{0, 0}} : ip_addr_v4(0x0a000000 + byte % 4);
}

static uint16_t some_port(unsigned byte)
{
        return (uint16_t)(byte / 4 % 4);
}

static void step_open(struct world *w, uint32_t pcb)
{
        struct udp_opts o;
        unsigned b = next_byte(w);

        udp_opts_default(&o);
        o.reuseaddr = b & 1;
        o.reuseport = b >> 1 & 1;
        o.rcvbuf = b & 4 ? 3000 : UDP_RCVBUF;
        udp_open(&w->u, &o);
}

static void step_bind(struct world *w, uint32_t pcb)
{
        unsigned b = next_byte(w);

        udp_bind(&w->u, pcb, some_addr(b), some_port(b));
}

static void step_connect(struct world *w, uint32_t pcb)
{
        unsigned b = next_byte(w);

        udp_connect(&w->u, pcb, ip_addr_v4(FUZZ_US), ip_addr_v4(0x0a000000 + b % 4), some_port(b));
}

static uint32_t lend(struct world *w)
{
        uint32_t num = 1 + next_byte(w) % LENT;

        if (w->lent[num])
                return 0;
        w->lent[num] = true;
        return frame_id(FRAME_REGION_RX(FUZZ_CHAN), num);
}

static void step_arrival(struct world *w, uint32_t unused)
{
        static const uint8_t inl[UNET_INLINE_MAX];
        unsigned ends = next_byte(w), ports = next_byte(w), what = next_byte(w);
        struct udp_dgram d = {
                .tuple = {.laddr = ip_addr_v4(0x0a000000 + ends % 4),
                          .raddr = ip_addr_v4(0x0a000000 + ends / 4 % 4),
                          .lport = some_port(ports),
                          .rport = some_port(ports / 4),
                          .chan = FUZZ_CHAN},
                .inl = inl,
                .inl_len = what % 200,
        };
        enum udp_verdict v;

        if (what & 1 && (d.data.id = lend(w)) != 0)
                d.data.len = 1 + (frame_size(&w->frames, d.data.id) - 1) * next_byte(w) / 255;
        v = udp_rx(&w->u, &d, w->now);
        assert(v != UDP_TOOK || d.data.id != 0);
        if (v != UDP_TOOK && d.data.id != 0)
                frame_drop(&w->frames, d.data.id);
}

static void step_read(struct world *w, uint32_t pcb)
{
        struct udp_msg m[8];
        int n = udp_recv_peek(&w->u, pcb, 0, m, 1 + (int)(next_byte(w) % 8));

        for (int i = 0; i < n; i++) {
                uint32_t len = 0;
                for (int k = 0; k < m[i].nspan; k++)
                        len += m[i].span[k].len;
                assert(len == m[i].len);
        }
        if (n > 0)
                read_first(&w->u, pcb, (uint32_t)n);
}

static void step_send(struct world *w, uint32_t pcb)
{
        unsigned b = next_byte(w);
        struct udp_tuple to = {
                .laddr = ip_addr_v4(FUZZ_US), .raddr = some_addr(b), .rport = some_port(b)};
        struct udp_out out;

        if (udp_output_prepare(&w->u, pcb, b & 0x80 ? &to : NULL, b * 300, b & 1, b, &out) == 0)
                assert(out.tuple.lport != 0 && out.tuple.rport != 0);
}

static void step_icmp(struct world *w, uint32_t unused)
{
        unsigned ends = next_byte(w), ports = next_byte(w);
        struct icmp_err e = {.laddr = ip_addr_v4(FUZZ_US),
                             .raddr = ip_addr_v4(0x0a000000 + ends % 4),
                             .lport = some_port(ports),
                             .rport = some_port(ports / 4),
                             .err = 111,
                             .hard = ends & 0x80};

        udp_icmp(&w->u, &e);
}

static void step_odds(struct world *w, uint32_t pcb)
{
        switch (next_byte(w) % 4) {
        case 0:
                udp_disconnect(&w->u, pcb);
                break;
        case 1:
                udp_shutdown(&w->u, pcb, SHUT_RDWR);
                break;
        case 2:
                udp_take_events(&w->u, pcb);
                udp_take_error(&w->u, pcb);
                break;
        default:
                udp_recv_avail(&w->u, pcb);
                udp_poll_events(&w->u, pcb);
        }
}

/* As stack_recover() does; what is derived is spoilt before. */
static void step_die(struct world *w, uint32_t unused)
{
        struct frame_pool *p = private_pool(w);

        for (uint32_t i = 1; i <= PCBS; i++)
                if (live(w, i))
                        udp_pcb_at(&w->u, i)->q.count = udp_pcb_at(&w->u, i)->key_next =
                                next_byte(w);
        for (uint32_t i = 1; i <= 2 * PRIVATE; i++)
                frame_pool_rec(p, i)->refs = 0;
        udp_recover(&w->u);
        frame_pool_rebuild(p);
}

static void step_close(struct world *w, uint32_t pcb)
{
        udp_close(&w->u, pcb);
}

static void fuzz_program(const uint8_t *data, size_t size)
{
        static const struct {
                void (*run)(struct world *, uint32_t pcb);
                bool needs_pcb;
        } steps[] = {
                {step_open, false},    {step_bind, true},     {step_connect, true},
                {step_arrival, false}, {step_arrival, false}, {step_read, true},
                {step_send, true},     {step_icmp, false},    {step_odds, true},
                {step_die, false},     {step_close, true},
        };
        struct world *w = make_world(data, size);

        for (int n = 0; w->p < w->end && n < 200; n++, w->now += NS_PER_US) {
                unsigned op = next_byte(w) % ARRAY_LEN(steps);
                uint32_t pcb = 1 + next_byte(w) % PCBS;

                if (steps[op].needs_pcb && !live(w, pcb))
                        continue;
                steps[op].run(w, pcb);
                check_world(w);
        }
        end_world(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        if (size > 0 && data[0] & 0x80)
                fuzz_program(data + 1, size - 1);
        else
                fuzz_parser(data, size);
        return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
        static const uint8_t dgram[UDP_HDR + 64] = {0x0f, 0xa0, 0, 53, 0, UDP_HDR + 64};
        /* open, bind, arrive, arrive with a frame, read, close; then with a connection and
         * an error. */
        static const uint8_t life[] = {0x80, 0, 0, 0, 1,  0, 4,  3, 0, 5, 4,  10,
                                       3,    0, 5, 4, 11, 0, 99, 5, 0, 7, 10, 0};
        static const uint8_t talk[] = {0x80, 0, 0, 1, 1,    0,    4, 2, 0, 6, 4, 0, 9, 0x14, 20,  6,
                                       0,    0, 7, 0, 0x82, 0x14, 8, 0, 2, 9, 0, 1, 6, 0,    0x86};

        switch (i) {
        case 0:
                return fuzz_seed_packet(buf, FUZZ_FIX_SUM, 240, IP_PROTO_UDP, dgram, sizeof dgram);
        case 1:
                return fuzz_seed_packet(buf, FUZZ_FIX_SUM | FUZZ_LOCAL, 30, IP_PROTO_UDP, dgram,
                                        sizeof dgram);
        case 2:
                memcpy(buf, life, sizeof life);
                return sizeof life;
        case 3:
                memcpy(buf, talk, sizeof talk);
                return sizeof talk;
        case 4: /* many of everything */
                for (size_t k = 0; k < 400; k++)
                        buf[k] = (uint8_t)(k * k * 7 + k / 3);
                buf[0] = 0x80;
                return 400;
        default:
                return 0;
        }
}
