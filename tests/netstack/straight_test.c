/*
 * Datagrams that go straight to who is reading, past the queue (netstack/stack.h): from a channel
 * as an RDMA device's, whose packets lie in one piece and are summed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <sys/mman.h>

#include "base/checksum.h"
#include "netstack/stack.h"

#define OURS   0x0a000001u
#define THEIRS 0x0a000002u
#define PORT   7000
#define FROM   5000
#define BYTES  1000u
#define INLINE 240u
#define MANY   64u

struct scene {
        struct stack_state *st;
        size_t bytes;
        struct bell bell;
        struct stack s;
        struct unet_chan ch;
        uint8_t (*frame)[FRAME_LARGE_BYTES]; /* message i lies in frame i + 1 */
        uint32_t len[MANY];
        int put, taken, asked; /* messages; the most that was asked for at once */
        uint32_t framed, back; /* frames lent, and given back */
        bool vouches;
        uint32_t pcb, other;
        uint32_t events;
        struct reader {
                struct stack_straight to;
                uint32_t n;
                bool refuses;
                uint8_t bytes[MANY][BYTES];
                uint32_t len[MANY];
                uint16_t sport[MANY];
        } r;
};
static struct scene *now; /* of the functions of the channel */

/* ---- the channel ---- */

static int take(struct unet_chan *ch, struct unet_rx *rx, int n)
{
        int got = 0;

        now->asked = MAX(now->asked, n);
        for (; got < n && now->taken < now->put; got++, now->taken++) {
                uint32_t len = now->len[now->taken], inl = MIN(len, INLINE);
                rx[got] = (struct unet_rx){.frame = len > inl ? (uint32_t)now->taken + 1 : 0,
                                           .off = inl,
                                           .len = len - inl,
                                           .inl_len = inl};
                now->framed += rx[got].frame != 0;
                memcpy(rx[got].inl, now->frame[now->taken], inl);
        }
        return got;
}

static void release(struct unet_chan *ch, const uint32_t *frame, int n)
{
        now->back += (uint32_t)n;
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
        return now->taken < now->put;
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

/* ---- what arrives ---- */

static void put_sum(uint8_t *at, uint32_t sum)
{
        be16 field = csum_finish(sum);

        memcpy(at, &field, 2);
}

/* A datagram of n bytes, each `fill`; the whole packet. */
static uint8_t *arrives(struct scene *sc, uint16_t sport, uint16_t dport, uint32_t n, uint8_t fill)
{
        uint8_t *p = sc->frame[sc->put];
        be16 total = be16_of((uint16_t)(28 + n)),
             udp[4] = {be16_of(sport), be16_of(dport), be16_of((uint16_t)(8 + n)), {0}};
        be32 src = be32_of(THEIRS), dst = be32_of(OURS);

        memset(p, 0, 28);
        p[0] = 0x45;
        p[8] = 64;
        p[9] = IP_PROTO_UDP;
        memcpy(p + 2, &total, 2);
        memcpy(p + 12, &src, 4);
        memcpy(p + 16, &dst, 4);
        put_sum(p + 10, csum_partial(p, 20, 0));
        memcpy(p + 20, udp, 8);
        memset(p + 28, fill, n);
        put_sum(p + 26, csum_partial(p + 20, 8 + n,
                                     csum_pseudo(ip_addr_v4(THEIRS), ip_addr_v4(OURS), IP_PROTO_UDP,
                                                 8 + n)));
        sc->len[sc->put++] = 28 + n;
        return p;
}

static void some_arrive(struct scene *sc, uint32_t n, uint8_t first)
{
        for (uint32_t i = 0; i < n; i++)
                arrives(sc, FROM, PORT, BYTES, (uint8_t)(first + i));
}

/* ---- the reader ---- */

static bool put(struct stack_straight *to, const struct udp_dgram *d, bool summed, uint32_t *sum)
{
        struct reader *r = (struct reader *)to;

        if (r->refuses)
                return false;
        assert_true(summed && d->inl_len <= BYTES);
        memcpy(r->bytes[r->n], d->inl, d->inl_len);
        *sum = csum_partial(d->inl, d->inl_len, *sum);
        return true;
}

static void is_read(struct stack_straight *to, const struct udp_dgram *d)
{
        struct reader *r = (struct reader *)to;

        r->len[r->n] = d->inl_len;
        r->sport[r->n++] = d->tuple.rport;
}

/* A turn of one who has room for so many. */
static void reads(struct scene *sc, uint32_t places)
{
        sc->r.n = 0;
        sc->r.to = (struct stack_straight){
                .pcb = sc->pcb, .room = places, .put = put, .read = is_read};
        stack_run_straight(&sc->s, 1, &sc->r.to);
        assert_null(sc->s.straight);
}

static void got(struct scene *sc, uint32_t i, uint8_t fill)
{
        assert_true(i < sc->r.n);
        assert_int_equal(sc->r.len[i], BYTES);
        assert_int_equal(sc->r.sport[i], FROM);
        for (uint32_t k = 0; k < BYTES; k++)
                assert_int_equal(sc->r.bytes[i][k], fill);
}

static uint64_t dropped(const struct scene *sc, enum drop why)
{
        return sc->st->cnt.drop[why];
}

/* ---- the stack ---- */

static void event(struct stack *s, uint32_t sock, uint32_t events)
{
        now->events++;
}

static bool vouch(struct stack *s, uint32_t k, uint8_t proto, ip_addr addr, uint16_t port)
{
        return now->vouches;
}

static uint32_t open_at(struct scene *sc, uint16_t port)
{
        struct udp_opts o;
        uint32_t pcb;

        udp_opts_default(&o);
        pcb = udp_open(&sc->s.udp, &o);
        assert_true(pcb != 0);
        udp_set_sock(&sc->s.udp, pcb, 1);
        assert_int_equal(udp_bind(&sc->s.udp, pcb, ip_addr_v4(OURS), port), 0);
        return pcb;
}

static int setup(void **state)
{
        static const uint8_t seed[32] = "whatever";
        struct frame_geom tx = {{[FRAME_LARGE] = 4}}, rx = {{[FRAME_LARGE] = MANY}};
        struct scene *sc = calloc(1, sizeof *sc);
        struct stack_limits l;

        assert_non_null(sc);
        now = sc;
        stack_limits_default(&l);
        sc->bytes = stack_bytes(&l);
        sc->st = mmap(NULL, sc->bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_ptr_not_equal(sc->st, MAP_FAILED);
        stack_format(sc->st, &l, seed, 1);
        assert_int_equal(stack_view_init(&sc->s, sc->st, sc->bytes, &sc->bell), 0);
        sc->s.event = event;
        sc->s.vouch = vouch;
        sc->vouches = true;
        sc->frame = calloc(MANY, sizeof *sc->frame);
        assert_int_equal(stack_remote_add(sc->st, 0, 9, THEIRS,
                                          (struct ip_ifaddr){.addr = OURS, .prefix = 24}, tx, rx),
                         0);
        sc->ch = (struct unet_chan){.ops = &ops,
                                    .caps = {.mtu = 4096,
                                             .inline_max = INLINE,
                                             .csum = true,
                                             .whole = true,
                                             .copied = true}};
        stack_chan_mapped(&sc->s, 0, &sc->ch, calloc(4, FRAME_LARGE_BYTES), (uint8_t *)sc->frame);
        sc->pcb = open_at(sc, PORT);
        sc->other = open_at(sc, PORT + 1);
        *state = sc;
        return 0;
}

static int teardown(void **state)
{
        struct scene *sc = *state;

        udp_pcb_check(&sc->s.udp, sc->pcb);
        udp_pcb_check(&sc->s.udp, sc->other);
        assert_int_equal(sc->taken, sc->put);
        assert_int_equal(sc->back, sc->framed); /* nothing stays lent */
        free(sc->s.frames->region[FRAME_REGION_TX(0)].base);
        stack_view_fini(&sc->s);
        munmap(sc->st, sc->bytes);
        free(sc->frame);
        free(sc);
        return 0;
}

/* ---- scenes ---- */

static void what_has_come_is_there_at_once(void **state)
{
        struct scene *sc = *state;

        some_arrive(sc, 5, 1);
        reads(sc, 16);
        assert_int_equal(sc->r.n, 5);
        for (uint32_t i = 0; i < 5; i++)
                got(sc, i, (uint8_t)(1 + i));
        assert_false(udp_unread(&sc->s.udp, sc->pcb));
        assert_int_equal(sc->st->cnt.n[COUNT_UDP_IN], 5);
        assert_int_equal(udp_consumed(&sc->s.udp, sc->pcb), 5);
        assert_int_equal(sc->events, 0);
}

static void no_more_is_taken_than_there_is_room_for(void **state)
{
        struct scene *sc = *state;

        some_arrive(sc, 9, 1);
        reads(sc, 4);
        assert_int_equal(sc->r.n, 4);
        assert_int_equal(sc->asked, 4);
        assert_int_equal(sc->taken, 4);
        assert_false(udp_unread(&sc->s.udp, sc->pcb));
        reads(sc, 4);
        got(sc, 0, 5);
        got(sc, 3, 8);
        reads(sc, 4);
        assert_int_equal(sc->r.n, 1);
        got(sc, 0, 9);
}

static void what_is_wrong_in_the_middle_is_not_shown(void **state)
{
        struct scene *sc = *state;

        some_arrive(sc, 3, 1);
        arrives(sc, FROM, PORT, BYTES, 99)[28 + 500] ^= 1;
        some_arrive(sc, 1, 4);
        arrives(sc, FROM, PORT, BYTES, 99)[26] ^= 1; /* the sum itself */
        arrives(sc, FROM, PORT, BYTES, 99)[10] ^= 1; /* the IP header's */
        some_arrive(sc, 1, 5);
        reads(sc, 16);
        assert_int_equal(sc->r.n, 5);
        for (uint32_t i = 0; i < 5; i++)
                got(sc, i, (uint8_t)(1 + i));
        assert_int_equal(dropped(sc, DROP_UDP_CHECKSUM), 2);
        assert_int_equal(dropped(sc, DROP_IP_CHECKSUM), 1);
        assert_int_equal(sc->st->cnt.n[COUNT_UDP_IN], 5);
        assert_false(udp_unread(&sc->s.udp, sc->pcb));
}

/* RFC 768: the sender generated none. */
static void one_without_a_checksum_is_taken(void **state)
{
        struct scene *sc = *state;
        uint8_t *p;

        for (uint8_t i = 1; i <= 2; i++) {
                p = arrives(sc, FROM, PORT, BYTES, i);
                p[26] = p[27] = 0;
        }
        reads(sc, 16);
        got(sc, 0, 1);
        got(sc, 1, 2);
}

static void others_have_theirs_in_the_queue(void **state)
{
        struct scene *sc = *state;

        some_arrive(sc, 2, 1);
        arrives(sc, FROM, PORT + 1, BYTES, 50);
        some_arrive(sc, 2, 3);
        reads(sc, 16);
        assert_int_equal(sc->r.n, 4);
        got(sc, 2, 3);
        assert_true(udp_unread(&sc->s.udp, sc->other));
        assert_int_equal(sc->events, 1);
}

static void nothing_overtakes_what_is_queued(void **state)
{
        struct scene *sc = *state;
        struct udp_sight first;

        some_arrive(sc, 1, 1);
        stack_run(&sc->s, 1);
        some_arrive(sc, 2, 2);
        reads(sc, 16);
        assert_int_equal(sc->r.n, 0);
        for (uint8_t i = 1; i <= 3; i++) {
                assert_true(udp_recv_look(&sc->s.udp, sc->pcb, &first));
                assert_int_equal(first.msg.span[0].ptr[0], i);
                assert_true(udp_recv_take(&sc->s.udp, sc->pcb, &first));
        }
        udp_settle(&sc->s.udp, sc->pcb);
        some_arrive(sc, 1, 4);
        reads(sc, 16);
        got(sc, 0, 4);
}

/* The program's memory has gone: what cannot be copied is queued, and so is all behind it. */
static void what_cannot_be_copied_is_queued(void **state)
{
        struct scene *sc = *state;

        some_arrive(sc, 3, 1);
        sc->r.refuses = true;
        reads(sc, 16);
        assert_int_equal(sc->r.n, 0);
        assert_int_equal(udp_count_unread(&sc->s.udp, sc->pcb), 3);
}

static void nobody_speaks_for_a_port_that_is_not_his(void **state)
{
        struct scene *sc = *state;

        sc->vouches = false;
        some_arrive(sc, 3, 1);
        reads(sc, 16);
        assert_int_equal(sc->r.n, 0);
        assert_int_equal(dropped(sc, DROP_NI_BAD_SOURCE), 3);
        assert_false(udp_unread(&sc->s.udp, sc->pcb));
}

/* Another sender, another length, a fragment: none of them is taken for one like that before. */
static void the_like_of_one_is_like_it(void **state)
{
        struct scene *sc = *state;
        uint8_t *p;

        some_arrive(sc, 1, 1);
        arrives(sc, FROM + 1, PORT, BYTES, 2);
        arrives(sc, FROM, PORT, 10, 3);
        p = arrives(sc, FROM, PORT, BYTES, 4); /* says that more follows */
        p[6] = 0x20;
        p[10] = p[11] = 0;
        put_sum(p + 10, csum_partial(p, 20, 0));
        /* Counts less than came: what is behind is no part of it. */
        p = arrives(sc, FROM, PORT, BYTES, 5);
        p[3] = (uint8_t)(p[3] - 4);
        p[25] = (uint8_t)(p[25] - 4);
        p[10] = p[11] = p[26] = p[27] = 0;
        put_sum(p + 10, csum_partial(p, 20, 0));
        reads(sc, 16);
        assert_int_equal(sc->r.n, 4);
        assert_int_equal(sc->r.sport[1], FROM + 1);
        assert_int_equal(sc->r.len[2], 10);
        assert_int_equal(sc->r.len[3], BYTES - 4);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(what_has_come_is_there_at_once, setup, teardown),
                cmocka_unit_test_setup_teardown(no_more_is_taken_than_there_is_room_for, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(what_is_wrong_in_the_middle_is_not_shown, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(one_without_a_checksum_is_taken, setup, teardown),
                cmocka_unit_test_setup_teardown(others_have_theirs_in_the_queue, setup, teardown),
                cmocka_unit_test_setup_teardown(nothing_overtakes_what_is_queued, setup, teardown),
                cmocka_unit_test_setup_teardown(what_cannot_be_copied_is_queued, setup, teardown),
                cmocka_unit_test_setup_teardown(nobody_speaks_for_a_port_that_is_not_his, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(the_like_of_one_is_like_it, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
