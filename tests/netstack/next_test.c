/*
 * The next segment of a stream, quickly (netstack/stack_next.c): what comes by that road and by the
 * long one comes to the same, whatever is in the headers. Two stacks have the same connection and
 * are sent the same packets; to one of them the channel shows so little of each beside its frame
 * that only the long road takes it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <sys/mman.h>

#include "base/checksum.h"
#include "netstack/stack_road.h"
#include "tcp/tcp_conn.h"

#define OURS   0x0a000001u
#define THEIRS 0x0a000002u
#define PORT   7000
#define FROM   5000
#define HDR    52u /* IP, TCP, timestamps */
#define BYTES  1000u
/* Beside a frame: less than the headers, so that only the long road takes it. */
#define SHORT (HDR - 1)
#define LONG  240u
#define TSVAL 1000u
#define IRS   5u
#define PIECE (4u * FRAME_LARGE_BYTES)

/* One end: the stack, and what the other one has for it. */
struct end {
        struct stack_state *st;
        size_t bytes;
        struct bell bell;
        struct stack s;
        struct unet_chan ch;
        uint8_t (*frame)[FRAME_LARGE_BYTES];
        uint32_t shown; /* bytes of a packet that lie beside its frame */
        uint32_t len;   /* of the packet that is there; 0: none */
        struct tcp_conn *tc;
};
struct scene {
        struct end e[2]; /* the quick one; the other */
        uint32_t seq;    /* of the next segment */
};
static struct end *now; /* of the functions of the channel */

/* ---- the channel ---- */

static int take(struct unet_chan *ch, struct unet_rx *rx, int n)
{
        uint32_t len = now->len, inl = MIN(len, now->shown);

        if (len == 0)
                return 0;
        now->len = 0;
        *rx = (struct unet_rx){
                .frame = len > inl ? 1 : 0, .off = inl, .len = len - inl, .inl_len = inl};
        memcpy(rx->inl, now->frame[0], inl);
        return 1;
}

static void release(struct unet_chan *ch, const uint32_t *frame, int n)
{
}

static int reap(struct unet_chan *ch, uint32_t *frame, int n)
{
        return 0;
}

static uint32_t room(struct unet_chan *ch)
{
        return 64;
}

static bool pending(struct unet_chan *ch)
{
        return now->len != 0;
}

static int send(struct unet_chan *ch, const struct unet_tx *tx, int n)
{
        return n;
}

static void flush(struct unet_chan *ch)
{
}

static const struct unet_ni_ops ops = {.name = "test",
                                       .send = send,
                                       .recv = take,
                                       .release = release,
                                       .reap = reap,
                                       .room = room,
                                       .pending = pending,
                                       .flush = flush};

/* ---- the stacks ---- */

static void event(struct stack *s, uint32_t sock, uint32_t events)
{
}

static bool vouch(struct stack *s, uint32_t k, uint8_t proto, ip_addr addr, uint16_t port)
{
        return true;
}

static void make(struct end *e, uint32_t shown, bool csum)
{
        static const uint8_t seed[32] = "whatever";
        struct frame_geom tx = {{[FRAME_LARGE] = 4}}, rx = {{[FRAME_LARGE] = 4}};
        struct stack_limits l;

        stack_limits_default(&l);
        e->bytes = stack_bytes(&l);
        e->st = mmap(NULL, e->bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_ptr_not_equal(e->st, MAP_FAILED);
        stack_format(e->st, &l, seed, 1);
        assert_int_equal(stack_view_init(&e->s, e->st, e->bytes, &e->bell), 0);
        e->s.event = event;
        e->s.vouch = vouch;
        e->shown = shown;
        e->frame = calloc(4, sizeof *e->frame);
        assert_int_equal(stack_remote_add(e->st, 0, 9, THEIRS,
                                          (struct ip_ifaddr){.addr = OURS, .prefix = 24}, tx, rx),
                         0);
        e->ch = (struct unet_chan){.ops = &ops,
                                   .caps = {.mtu = 4096,
                                            .inline_max = 240,
                                            .csum = csum,
                                            .whole = true,
                                            .copied = true}};
        stack_chan_mapped(&e->s, 0, &e->ch, calloc(1, PIECE), (uint8_t *)e->frame);
}

/* ---- what arrives ---- */

static void put16(uint8_t *p, uint16_t v)
{
        be16 b = be16_of(v);

        memcpy(p, &b, 2);
}

static void put32(uint8_t *p, uint32_t v)
{
        be32 b = be32_of(v);

        memcpy(p, &b, 4);
}

static void sum_it(uint8_t *p, uint32_t len)
{
        be16 sum;

        p[10] = p[11] = 0;
        sum = csum_finish(csum_partial(p, 20, 0));
        memcpy(p + 10, &sum, 2);
        p[36] = p[37] = 0;
        sum = csum_finish(csum_partial(
                p + 20, len - 20,
                csum_pseudo(ip_addr_v4(THEIRS), ip_addr_v4(OURS), IP_PROTO_TCP, len - 20)));
        memcpy(p + 36, &sum, 2);
}

/* The next segment of the stream, of n bytes. */
static uint32_t segment(const struct scene *sc, uint8_t *p, uint32_t n)
{
        memset(p, 0, HDR);
        p[0] = 0x45;
        put16(p + 2, (uint16_t)(HDR + n));
        p[6] = 0x40;
        p[8] = 64;
        p[9] = IP_PROTO_TCP;
        put32(p + 12, THEIRS);
        put32(p + 16, OURS);
        put16(p + 20, FROM);
        put16(p + 22, PORT);
        put32(p + 24, sc->seq);
        put32(p + 28, sc->e[0].tc->snd_nxt);
        p[32] = 8 << 4;
        p[33] = TCP_ACK;
        put16(p + 34, 1000);
        put32(p + 40, 0x0101080a);
        put32(p + 44, TSVAL);
        put32(p + 48, sc->e[0].tc->ts_recent);
        for (uint32_t i = 0; i < n; i++)
                p[HDR + i] = (uint8_t)(sc->seq + i);
        sum_it(p, HDR + n);
        return HDR + n;
}

static void comes(struct end *e, const uint8_t *p, uint32_t len, nstime at)
{
        now = e;
        memcpy(e->frame[0], p, len);
        e->len = len;
        stack_run(&e->s, at);
        assert_int_equal(e->len, 0);
}

/* ---- one connection, twice ---- */

static void open_conn(struct end *e)
{
        const struct tcp_tuple to = {.laddr = ip_addr_v4(OURS),
                                     .raddr = ip_addr_v4(THEIRS),
                                     .lport = PORT,
                                     .rport = FROM};
        struct tcp_link link = stack_tcp_link(&e->s, 0);
        struct tcp_opts o;
        uint8_t p[72] = {0x45, 0, 0, 72, 0, 0, 0x40, 0, 64, IP_PROTO_TCP};
        int conn;

        now = e;
        tcp_opts_default(&o);
        conn = tcp_connect(&e->s.tcp, &to, &link, &o, 1);
        assert_true(conn > 0);
        e->tc = tcp_conn_at(&e->s.tcp, (uint32_t)conn);
        stack_flush(&e->s, 1);
        put32(p + 12, THEIRS);
        put32(p + 16, OURS);
        put16(p + 20, FROM);
        put16(p + 22, PORT);
        put32(p + 24, IRS);
        put32(p + 28, e->tc->snd_nxt);
        p[32] = 13 << 4;
        p[33] = TCP_SYN | TCP_ACK;
        put16(p + 34, 1000);
        put32(p + 40, 0x020405b4); /* MSS */
        put32(p + 44, 0x0402080a); /* SACK, timestamps */
        put32(p + 48, TSVAL);
        put32(p + 52, 0);
        put32(p + 56, 0x01030307); /* window scale */
        put32(p + 60, 0x01010101);
        put32(p + 64, 0x01010101);
        put32(p + 68, 0x01010101);
        sum_it(p, 72);
        comes(e, p, 72, NS_PER_MS);
        assert_int_equal(e->tc->state, TCPS_ESTABLISHED);
        assert_true(e->tc->ts_ok);
}

static void begin(struct scene *sc, bool csum)
{
        *sc = (struct scene){.seq = IRS + 1};
        make(&sc->e[0], LONG, csum);
        make(&sc->e[1], SHORT, csum);
        open_conn(&sc->e[0]);
        open_conn(&sc->e[1]);
}

static void finish(struct scene *sc)
{
        for (int i = 0; i < 2; i++) {
                tcp_conn_check(&sc->e[i].s.tcp, sc->e[i].tc);
                free(sc->e[i].s.frames->region[FRAME_REGION_TX(0)].base);
                stack_view_fini(&sc->e[i].s);
                munmap(sc->e[i].st, sc->e[i].bytes);
                free(sc->e[i].frame);
        }
}

static void expect_same(const struct scene *sc)
{
        const struct tcp_conn *x = sc->e[0].tc, *y = sc->e[1].tc;

        assert_memory_equal(&sc->e[0].st->cnt, &sc->e[1].st->cnt, sizeof sc->e[0].st->cnt);
        assert_int_equal(x->state, y->state);
        assert_int_equal(x->rcv_nxt, y->rcv_nxt);
        assert_int_equal(x->rcv_unread, y->rcv_unread);
        assert_int_equal(x->rcv_adv, y->rcv_adv);
        assert_int_equal(x->snd_wnd, y->snd_wnd);
        assert_int_equal(x->snd_una, y->snd_una);
        assert_int_equal(x->ts_recent, y->ts_recent);
        assert_int_equal(x->owed, y->owed);
        assert_int_equal(x->flags, y->flags);
        assert_int_equal(x->slow, y->slow);
        assert_true(x->delack_at == y->delack_at && x->last_received == y->last_received);
        assert_true(x->segs_in == y->segs_in && x->bytes_received == y->bytes_received);
}

static void both(struct scene *sc, const uint8_t *p, uint32_t len, nstime at)
{
        comes(&sc->e[0], p, len, at);
        comes(&sc->e[1], p, len, at);
        expect_same(sc);
}

/* What the quick road says of a packet of which so much lies beside the frame. */
static bool quick(struct end *e, const uint8_t *p, uint32_t len, uint32_t inl)
{
        struct unet_rx rx = {.frame = 1, .off = inl, .len = len - inl, .inl_len = inl};

        now = e;
        memcpy(e->frame[0], p, len);
        memcpy(rx.inl, p, inl);
        return stack_rx_next(&e->s, 0, &rx);
}

/* ---- scenes ---- */

static void most_segments_of_a_stream_take_the_quick_road(void **state)
{
        struct scene sc;
        uint8_t p[HDR + BYTES];
        uint32_t len;

        for (int csum = 0; csum < 2; csum++) {
                begin(&sc, csum);
                for (uint32_t i = 0; i < 4; i++, sc.seq += BYTES) {
                        len = segment(&sc, p, BYTES);
                        p[33] |= i == 2 ? TCP_PSH : 0;
                        sum_it(p, len);
                        assert_true(quick(&sc.e[0], p, len, LONG));
                        stack_flush(&sc.e[0].s, NS_PER_MS);
                        comes(&sc.e[1], p, len, NS_PER_MS);
                }
                expect_same(&sc);
                assert_int_equal(sc.e[0].tc->rcv_unread, 4 * BYTES);
                finish(&sc);
        }
}

static void others_do_not(void **state)
{
        struct scene sc;
        uint8_t p[HDR + BYTES];
        uint32_t len;

        begin(&sc, true);
        len = segment(&sc, p, BYTES);
        assert_false(quick(&sc.e[0], p, len, SHORT));
        len = segment(&sc, p, 200);
        assert_false(quick(&sc.e[0], p, len, LONG));
        len = segment(&sc, p, BYTES);
        p[12] ^= 1; /* of another host */
        sum_it(p, len);
        assert_false(quick(&sc.e[0], p, len, LONG));
        len = segment(&sc, p, BYTES);
        put32(p + 24, sc.seq + BYTES); /* beyond a gap */
        sum_it(p, len);
        assert_false(quick(&sc.e[0], p, len, LONG));
        sc.e[0].s.chan[0].caps.csum_pseudo = true;
        len = segment(&sc, p, BYTES);
        assert_false(quick(&sc.e[0], p, len, LONG));
        sc.e[0].s.chan[0].caps.csum_pseudo = false;
        assert_true(quick(&sc.e[0], p, len, LONG));
        finish(&sc);
}

/* Each bit of the headers turned over, with the sums as they were and as they then ought to be; and
 * the next two segments after it. */
static void whatever_the_headers_say_both_roads_lead_to_the_same(void **state)
{
        struct scene sc;
        uint8_t p[HDR + BYTES];
        uint32_t len;

        for (uint32_t bit = 0; bit < 2 * 8 * HDR; bit++) {
                if (bit / 2 == 3)
                        continue; /* an IP header of 52 bytes must lie beside the frame */
                begin(&sc, true);
                len = segment(&sc, p, BYTES);
                p[bit / 2 / 8] ^= (uint8_t)(1 << bit / 2 % 8);
                if (bit % 2)
                        sum_it(p, len);
                both(&sc, p, len, 2 * NS_PER_MS);
                for (int i = 0; i < 2; i++) {
                        len = segment(&sc, p, BYTES);
                        both(&sc, p, len, 3 * NS_PER_MS);
                        sc.seq += BYTES;
                }
                finish(&sc);
        }
}

static void what_is_wrong_in_the_payload_is_dropped(void **state)
{
        struct scene sc;
        uint8_t p[HDR + BYTES];
        uint32_t len;

        begin(&sc, true);
        len = segment(&sc, p, BYTES);
        p[HDR + 700] ^= 1;
        both(&sc, p, len, 2 * NS_PER_MS);
        assert_int_equal(sc.e[0].st->cnt.drop[DROP_TCP_CHECKSUM], 1);
        assert_int_equal(sc.e[0].tc->rcv_unread, 0);
        p[HDR + 700] ^= 1;
        both(&sc, p, len, 2 * NS_PER_MS);
        assert_int_equal(sc.e[0].tc->rcv_unread, BYTES);
        finish(&sc);
}

/* It counts less than came: what is behind is no part of it. Or more: it is not whole. */
static void a_length_that_is_not_the_packets(void **state)
{
        struct scene sc;
        uint8_t p[HDR + BYTES];
        uint32_t len;

        for (int more = -4; more <= 4; more += 8) {
                begin(&sc, true);
                len = segment(&sc, p, BYTES);
                put16(p + 2, (uint16_t)((int)len + more));
                sum_it(p, more < 0 ? len - 4 : len);
                both(&sc, p, len, 2 * NS_PER_MS);
                assert_int_equal(sc.e[0].tc->rcv_unread, more < 0 ? BYTES - 4 : 0);
                finish(&sc);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(most_segments_of_a_stream_take_the_quick_road),
                cmocka_unit_test(others_do_not),
                cmocka_unit_test(whatever_the_headers_say_both_roads_lead_to_the_same),
                cmocka_unit_test(what_is_wrong_in_the_payload_is_dropped),
                cmocka_unit_test(a_length_that_is_not_the_packets),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
