/*
 * SYNs that the program behind an interface answers (unet/ni_answer.h): what it answers and how,
 * and what it leaves to the stack. SYNs are made here, byte by byte, and sent by a packet socket at
 * the other end, which the answers come to.
 */
#include <sys/socket.h>

#include "base/checksum.h"
#include "base/siphash.h"
#include "tests/netns/xdp_pair.h"
#include "base/clock.h"

#define LEN   TCX_ANSWER_BYTES
#define IP    14
#define TCP   34
#define OPTS  54
#define QUIET 60 /* ms in which an answer would have come */

static const struct xdp_sizes enough = {.rx_chunks = 512, .rx_large = 8, .tx_chunks = 32};
static const uint8_t secret[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const uint8_t ours[6] = {2, 0, 0, 0, 0, 1}, theirs[6] = {2, 0, 0, 0, 0, 2};
static const ip_addr our_addr = {{0, 0x010a0a0affff0000}}, their_addr = {{0, 0x020a0a0affff0000}};

static void put16(uint8_t *p, unsigned v)
{
        p[0] = (uint8_t)(v >> 8);
        p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
        put16(p, v >> 16);
        put16(p + 2, v & 0xffff);
}

static uint32_t get32(const uint8_t *p)
{
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint32_t pseudo(const uint8_t *f)
{
        uint8_t p[12] = {0};

        memcpy(p, f + IP + 12, 8);
        p[9] = 6;
        put16(p + 10, LEN - TCP);
        return csum_partial(p, sizeof p, 0);
}

/* Its sums, or of TCP's the pseudo header's only, as it is where the rest is left to a device. */
static void seal(uint8_t *f, bool left)
{
        be16 sum;

        memset(f + IP + 10, 0, 2);
        sum = csum_finish(csum_partial(f + IP, 20, 0));
        memcpy(f + IP + 10, &sum, 2);
        memset(f + TCP + 16, 0, 2);
        sum = csum_finish(left ? pseudo(f) : csum_partial(f + TCP, LEN - TCP, pseudo(f)));
        if (left)
                sum.raw = (uint16_t)~sum.raw;
        memcpy(f + TCP + 16, &sum, 2);
}

/* 10.10.10.2 -> 10.10.10.1, or the way back: what both have in common. */
static void frame_of(uint8_t *f, bool syn, uint16_t peer_port)
{
        static const uint8_t opts[20] = {2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0,
                                         0, 9, 0, 0,    0, 0, 1, 3,  3, 7};
        uint8_t us[4] = {10, 10, 10, 1}, them[4] = {10, 10, 10, 2};

        memset(f, 0, LEN);
        memcpy(f, syn ? ours : theirs, 6);
        memcpy(f + 6, syn ? theirs : ours, 6);
        put16(f + 12, 0x0800);
        f[IP] = 0x45;
        put16(f + IP + 2, LEN - IP);
        put16(f + IP + 6, 0x4000);
        f[IP + 8] = 64;
        f[IP + 9] = 6;
        memcpy(f + IP + 12, syn ? them : us, 4);
        memcpy(f + IP + 16, syn ? us : them, 4);
        put16(f + TCP, syn ? peer_port : 80);
        put16(f + TCP + 2, syn ? 80 : peer_port);
        f[TCP + 12] = 0xa0;
        f[TCP + 13] = syn ? 0x02 : 0x12;
        put16(f + TCP + 14, syn ? 64240 : 65535);
        memcpy(f + OPTS, opts, sizeof opts);
        if (!syn)
                f[OPTS + 19] = 9;
}

static void make_syn(uint8_t *f, uint16_t port, uint32_t seq)
{
        frame_of(f, true, port);
        put32(f + TCP + 4, seq);
        put32(f + OPTS + 8, seq ^ 0x55aa); /* TSval */
        seal(f, false);
}

static struct unet_ends ends_with(uint16_t port)
{
        return (struct unet_ends){.peer = be32_of(0x0a0a0a02),
                                  .own = be32_of(0x0a0a0a01),
                                  .peer_port = be16_of(port),
                                  .own_port = be16_of(80)};
}

static const struct unet_answer_ops *answers(const struct end *e)
{
        assert_non_null(e->ni.base.answers);
        return e->ni.base.answers;
}

static void teach_with_room(struct end *e, nstime until, uint32_t ahead)
{
        struct unet_ends ends = ends_with(4000);
        uint8_t f[LEN];
        struct unet_lesson l = {
                .frame = f,
                .len = LEN,
                .secret = secret,
                .until = until,
                .ahead = ahead,
                .ends = {our_addr.w[0], our_addr.w[1], their_addr.w[0], their_addr.w[1]}};

        frame_of(f, false, 4000);
        seal(f, false);
        answers(e)->counts(&e->ni.base);
        assert_true(answers(e)->learn(&e->ni.base, &ends, &l));
        assert_true(answers(e)->knows(&e->ni.base, &ends, until - 1));
        assert_false(answers(e)->knows(&e->ni.base, &ends, until));
}

static void teach(struct end *e, nstime until)
{
        teach_with_room(e, until, 1000);
}

static struct pair taught(void)
{
        struct pair p = pair_make(XDP_WANT_TCX, 1500, enough);

        teach(p.e, clock_now() + 60 * NS_PER_S);
        return p;
}

static void sends(const struct pair *p, const uint8_t *f, uint32_t len)
{
        assert_int_equal(send(p->peer, f, len, 0), len);
}

/* The stack has it, whatever else was done. */
static void comes(struct pair *p, const uint8_t *f, uint32_t len)
{
        struct unet_rx rx;

        await(p->e, &rx);
        assert_int_equal(rx.inl_len, len);
        assert_memory_equal(rx.inl, f, len);
}

static bool was_answered(struct pair *p, uint16_t port, uint32_t seq, struct unet_answer *a)
{
        struct unet_ends ends = ends_with(port);

        return answers(p->e)->took(&p->e->ni.base, &ends, seq, a);
}

static void reply_comes(const struct pair *p, uint8_t *f)
{
        assert_true(kernel_has_some(p->peer, PATIENCE));
        assert_int_equal(recv(p->peer, f, LEN, MSG_DONTWAIT | MSG_TRUNC), LEN);
}

static uint32_t keyed(uint16_t port, uint64_t purpose)
{
        const uint64_t words[] = {our_addr.w[0],   our_addr.w[1],      their_addr.w[0],
                                  their_addr.w[1], 80ull << 16 | port, purpose};
        struct sip_key key = sip_key_of(secret);

        return (uint32_t)siphash24(&key, words, sizeof words);
}

/* Answered by the lesson, with what is this SYN's filled in. */
static void check_reply(const uint8_t *syn, const uint8_t *reply, const struct unet_answer *a,
                        uint16_t port, bool left)
{
        uint32_t clock_4us = (uint32_t)(a->at / (4 * NS_PER_US)),
                 ms = (uint32_t)(a->at / NS_PER_MS);
        uint8_t want[LEN];

        frame_of(want, false, port);
        put32(want + TCP + 4, a->iss);
        put32(want + TCP + 8, get32(syn + TCP + 4) + 1);
        put32(want + OPTS + 8, ms - 1 + keyed(port, 1));
        memcpy(want + OPTS + 12, syn + OPTS + 8, 4);
        seal(want, left);
        assert_memory_equal(reply, want, LEN);
        assert_int_equal(a->iss, clock_4us + keyed(port, 0));
        assert_int_equal(a->wnd, 65535);
        assert_int_equal(a->wscale, 9);
}

static void a_syn_is_answered(void **state)
{
        struct pair p = taught();
        uint8_t syn[LEN], reply[LEN];
        struct unet_answer a;
        nstime before;

        for (unsigned i = 0; i < 40; i++) {
                uint16_t port = (uint16_t)(5000 + 17 * i);
                bool left = i % 2 == 1;

                make_syn(syn, port, 0xfffffff0 + 7 * i);
                seal(syn, left);
                before = clock_now();
                sends(&p, syn, LEN);
                comes(&p, syn, LEN);
                assert_true(was_answered(&p, port, 0xfffffff0 + 7 * i, &a));
                assert_false(was_answered(&p, port, 1, &a));
                assert_false(was_answered(&p, 4999, 0xfffffff0 + 7 * i, &a));
                assert_in_range(a.at, before, clock_now());
                reply_comes(&p, reply);
                check_reply(syn, reply, &a, port, left);
        }
        assert_int_equal(p.e->ni.notes, 1); /* asked for, and not flushed yet */
        flush(p.e);
        assert_int_equal(p.e->ni.notes, 0);
        pair_end(&p);
}

/* It comes to the stack as if nobody could answer. */
static void is_left(struct pair *p, const uint8_t *f, uint32_t len, const char *why)
{
        struct unet_answer a;

        sends(p, f, len);
        comes(p, f, len);
        if (was_answered(p, 6000, 77, &a) || kernel_has_some(p->peer, QUIET))
                fail_msg("answered: %s", why);
}

static void is_right_again(struct pair *p, const char *after)
{
        uint8_t syn[LEN], reply[LEN];
        struct unet_answer a;

        make_syn(syn, 6000, 77);
        sends(p, syn, LEN);
        comes(p, syn, LEN);
        if (!was_answered(p, 6000, 77, &a))
                fail_msg("not answered after: %s", after);
        reply_comes(p, reply);
        flush(p->e);
}

static const struct {
        const char *why;
        uint8_t at, xor;
        bool seal;
} others[] = {
        {"another source address of the link", 11, 1, true},
        {"to another address of the link", 5, 1, true},
        {"to everybody", 0, 1, true},
        {"no IPv4", 12, 0x80, true},
        {"version 6", IP, 0x20, true},
        {"a longer IP header", IP, 0x03, true},
        {"a shorter packet than the frame", IP + 3, 0x04, true},
        {"more fragments", IP + 6, 0x20, true},
        {"not the first fragment", IP + 7, 1, true},
        {"UDP", IP + 9, 6 ^ 17, true},
        {"from another host", IP + 15, 4, true},
        {"to another address", IP + 19, 4, true},
        {"to another port", TCP + 3, 1, true},
        {"from port 0", TCP, 0x17, true},
        {"SYN and ACK", TCP + 13, 0x10, true},
        {"SYN and FIN", TCP + 13, 0x01, true},
        {"SYN and RST", TCP + 13, 0x04, true},
        {"SYN and PSH", TCP + 13, 0x08, true},
        {"SYN and URG", TCP + 13, 0x20, true},
        {"SYN and ECE", TCP + 13, 0x40, true},
        {"SYN and CWR", TCP + 13, 0x80, true},
        {"no SYN", TCP + 13, 0x02, true},
        {"AE", TCP + 12, 0x01, true},
        {"a shorter TCP header", TCP + 12, 0x10, true},
        {"no MSS", OPTS, 3, true},
        {"an MSS of another length", OPTS + 1, 1, true},
        {"no SACK", OPTS + 4, 1, true},
        {"no timestamps", OPTS + 6, 1, true},
        {"timestamps of another length", OPTS + 7, 1, true},
        {"no NOP", OPTS + 16, 1, true},
        {"no window scale", OPTS + 17, 1, true},
        {"a window scale of 15", OPTS + 19, 7 ^ 15, true},
        {"a bad IP sum", IP + 8, 1, false},
        {"a bad TCP sum", TCP + 15, 1, false},
        {"another bad TCP sum", TCP + 16, 0x80, false},
};

static void others_are_left_to_the_stack(void **state)
{
        struct pair p = taught();
        uint8_t f[LEN + 4];

        is_right_again(&p, "nothing");
        for (unsigned i = 0; i < ARRAY_LEN(others); i++) {
                bool zero = others[i].at == TCP;
                make_syn(f, zero ? 0x1700 : 6000, 77);
                f[others[i].at] ^= others[i].xor ;
                if (others[i].seal)
                        seal(f, false);
                is_left(&p, f, LEN, others[i].why);
        }
        make_syn(f, 6000, 77);
        f[IP + 3] += 4;
        memset(f + LEN, 0, 4);
        seal(f, false);
        is_left(&p, f, LEN + 4, "data");
        is_right_again(&p, "all of these");
        pair_end(&p);
}

/* Neither what has its ends already, nor what was answered just now, nor what was forgotten. */
static void what_is_there_is_left_to_the_stack(void **state)
{
        struct pair p = pair_make(XDP_WANT_TCX, 1500, enough);
        struct unet_chan *ch = &p.e->ni.base;
        struct unet_ends ends = ends_with(6000);
        uint8_t syn[LEN], reply[LEN];
        struct unet_answer a;

        make_syn(syn, 6000, 77);
        is_left(&p, syn, LEN, "nothing was learnt");
        teach(p.e, clock_now() + 60 * NS_PER_S);
        is_right_again(&p, "the lesson");
        answers(p.e)->count(ch, &ends, 1);
        is_left(&p, syn, LEN, "there is a connection");
        answers(p.e)->count(ch, &ends, -1);
        sends(&p, syn, LEN);
        sends(&p, syn, LEN); /* repeated, before the stack has seen it */
        comes(&p, syn, LEN);
        assert_true(was_answered(&p, 6000, 77, &a));
        answers(p.e)->count(ch, &ends, 1);
        comes(&p, syn, LEN);
        assert_false(was_answered(&p, 6000, 77, &a));
        reply_comes(&p, reply);
        assert_false(kernel_has_some(p.peer, QUIET));
        is_left(&p, syn, LEN, "there is a connection now");
        answers(p.e)->count(ch, &ends, -1);
        is_right_again(&p, "its end");
        answers(p.e)->forget(ch);
        is_left(&p, syn, LEN, "it was forgotten");
        assert_false(answers(p.e)->knows(ch, &ends, clock_now()));
        teach(p.e, clock_now() - 1);
        is_left(&p, syn, LEN, "its time is over");
        teach(p.e, clock_now() + 60 * NS_PER_S);
        is_right_again(&p, "another lesson");
        answers(p.e)->count(ch, &ends, 1);
        ch->ops->repair(ch);
        is_left(&p, syn, LEN, "somebody died");
        assert_false(answers(p.e)->counts(ch)); /* and what there is was to be counted again */
        teach(p.e, clock_now() + 60 * NS_PER_S);
        is_right_again(&p, "a death");
        pair_end(&p);
}

/* An answer did not arrive: for a time none is given, nor learnt. */
static void who_is_mistrusted_is_left_to_the_stack(void **state)
{
        struct pair p = taught();
        struct unet_chan *ch = &p.e->ni.base;
        struct unet_ends ends = ends_with(6000);
        nstime now = clock_now();
        uint8_t syn[LEN];

        make_syn(syn, 6000, 77);
        is_right_again(&p, "nothing");
        answers(p.e)->mistrust(ch, &ends, now + 60 * NS_PER_S);
        is_left(&p, syn, LEN, "it is mistrusted");
        assert_true(answers(p.e)->knows(ch, &ends, now));
        answers(p.e)->forget(ch);
        assert_true(answers(p.e)->knows(ch, &ends, now));
        assert_false(answers(p.e)->knows(ch, &ends, now + 60 * NS_PER_S));
        teach(p.e, now + 60 * NS_PER_S);
        is_right_again(&p, "its time");
        pair_end(&p);
}

/* What was answered before a death is taken off no count that was made after it. */
static void what_is_counted_again_is_counted_once(void **state)
{
        struct pair p = taught();
        struct unet_chan *ch = &p.e->ni.base;
        struct unet_ends ends = ends_with(6000);
        uint8_t syn[LEN], reply[LEN];
        struct unet_answer a;

        make_syn(syn, 6000, 77);
        sends(&p, syn, LEN);
        reply_comes(&p, reply);
        ch->ops->repair(ch);
        teach(p.e, clock_now() + 60 * NS_PER_S);
        comes(&p, syn, LEN);
        assert_true(was_answered(&p, 6000, 77, &a));
        answers(p.e)->count(ch, &ends, 1);
        flush(p.e);
        is_left(&p, syn, LEN, "there is a connection");
        answers(p.e)->count(ch, &ends, -1);
        is_right_again(&p, "its end");
        assert_int_equal(p.e->ni.answers->allowed - p.e->ni.answers->made, 64);
        pair_end(&p);
}

/* Of a flood it answers what the stack can catch up with, and what there is room for. */
static void check_ahead(struct pair *p, uint32_t from, uint32_t to)
{
        uint8_t syn[LEN], reply[LEN];
        unsigned answered = 0;
        struct unet_answer a;

        flush(p->e);
        for (unsigned i = 0; i < 300; i++) {
                make_syn(syn, (uint16_t)(7000 + i), i);
                sends(p, syn, LEN);
        }
        for (unsigned i = 0; i < 300; i++) {
                make_syn(syn, (uint16_t)(7000 + i), i);
                comes(p, syn, LEN);
                answered += was_answered(p, (uint16_t)(7000 + i), i, &a);
        }
        assert_in_range(answered, from, to);
        for (unsigned i = 0; i < answered; i++)
                reply_comes(p, reply);
        assert_false(kernel_has_some(p->peer, QUIET));
        flush(p->e);
        is_right_again(p, "a flood");
}

static void it_is_not_far_ahead(void **state)
{
        struct pair p = taught();

        check_ahead(&p, 32, 64);
        teach_with_room(p.e, clock_now() + 60 * NS_PER_S, 5);
        check_ahead(&p, 5, 5);
        teach(p.e, clock_now() + 60 * NS_PER_S);
        check_ahead(&p, 5, 5); /* the room was less, and nobody said that it is not */
        answers(p.e)->forget(&p.e->ni.base);
        teach(p.e, clock_now() + 60 * NS_PER_S);
        check_ahead(&p, 32, 64);
        pair_end(&p);
}

/* What one packet of a batch leads to may be flushed before the next one is looked at. */
static void a_flush_forgets_nothing(void **state)
{
        struct pair p = taught();
        struct unet_rx rx[8];
        uint8_t syn[LEN];
        struct unet_answer a;

        for (unsigned i = 0; i < 8; i++) {
                make_syn(syn, (uint16_t)(7000 + i), i);
                sends(&p, syn, LEN);
        }
        assert_int_equal(p.e->ni.base.ops->recv(&p.e->ni.base, rx, 8), 8);
        for (unsigned i = 0; i < 8; i += 2) {
                assert_true(was_answered(&p, (uint16_t)(7000 + i), i, &a));
                assert_false(was_answered(&p, (uint16_t)(7000 + i), i, &a));
                flush(p.e);
        }
        assert_int_equal(p.e->ni.notes, 4);
        assert_false(take(p.e, rx)); /* the others it did not come to: a bad sum, perhaps */
        assert_int_equal(p.e->ni.notes, 0);
        pair_end(&p);
}

/* Who has no buffer left gets no SYN, and answers none. */
static void without_a_chunk_there_is_no_answer(void **state)
{
        struct pair p =
                pair_make(XDP_WANT_TCX, 1500,
                          (struct xdp_sizes){.rx_chunks = 16, .rx_large = 1, .tx_chunks = 16});
        uint8_t syn[LEN], reply[LEN];
        struct unet_answer a;

        teach(p.e, clock_now() + 60 * NS_PER_S);
        for (uint32_t i = 0; i < 16; i++)
                kernel_sends(p.peer, i, 300);
        make_syn(syn, 6000, 77);
        sends(&p, syn, LEN);
        assert_false(kernel_has_some(p.peer, QUIET));
        for (uint32_t i = 0; i < 16; i++)
                expect(p.e, i, 300);
        flush(p.e);
        sends(&p, syn, LEN);
        comes(&p, syn, LEN);
        assert_true(was_answered(&p, 6000, 77, &a));
        reply_comes(&p, reply);
        pair_end(&p);
}

/* The program trusts nothing of what stands in there, and goes on. */
static void rubbish_is_harmless(void **state)
{
        struct pair p = taught();
        uint64_t x = 0x9e3779b97f4a7c15;
        uint8_t syn[LEN], drain[256];
        struct unet_rx rx;

        for (unsigned round = 0; round < 200; round++) {
                uint8_t *bytes = (uint8_t *)p.e->ni.answers;
                for (size_t i = 0; i < sizeof *p.e->ni.answers; i++) {
                        x = x * 6364136223846793005u + 1442695040888963407u;
                        if (round % 2 == 0 || x >> 60 == 0)
                                bytes[i] = (uint8_t)(x >> 33);
                }
                make_syn(syn, (uint16_t)(6000 + round), round);
                if (round % 2 == 1) { /* so far that it answers */
                        teach(p.e, clock_now() + 60 * NS_PER_S);
                        p.e->ni.answers->place[tcx_place(be32_of(0x0a0a0a02).raw, be16_of(80).raw)]
                                .frame[round % LEN] ^= 0xff;
                }
                sends(&p, syn, LEN);
                await(p.e, &rx);
                flush(p.e);
                while (recv(p.peer, drain, sizeof drain, MSG_DONTWAIT) > 0)
                        ;
        }
        memset(p.e->ni.answers, 0, sizeof *p.e->ni.answers);
        teach(p.e, clock_now() + 60 * NS_PER_S);
        is_right_again(&p, "rubbish");
        pair_end(&p);
}

/* What the ring says of a packet is believed where it can be true only. */
static void notes_are_checked(void **state)
{
        struct pair p = taught();
        struct xdp_desc *d = p.e->ni.rx.desc;
        uint8_t syn[LEN], reply[LEN];
        struct unet_rx rx;

        make_syn(syn, 6000, 77);
        sends(&p, syn, LEN);
        reply_comes(&p, reply);
        d[0].len = 60;
        assert_false(take(p.e, &rx));
        assert_int_equal(p.e->cnt.drop[DROP_NI_MALFORMED], 1);
        make_syn(syn, 6001, 78);
        sends(&p, syn, LEN);
        reply_comes(&p, reply);
        d[1].options |= 2;
        assert_false(take(p.e, &rx));
        assert_int_equal(p.e->cnt.drop[DROP_NI_MALFORMED], 2);
        pair_end(&p);
}

/* AF_XDP answers nothing. */
static void a_socket_has_none(void **state)
{
        struct pair p = pair_make(XDP_WANT_NATIVE, 1500, few);

        assert_null(p.e->ni.base.answers);
        pair_end(&p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_syn_is_answered),
                cmocka_unit_test(others_are_left_to_the_stack),
                cmocka_unit_test(what_is_there_is_left_to_the_stack),
                cmocka_unit_test(who_is_mistrusted_is_left_to_the_stack),
                cmocka_unit_test(what_is_counted_again_is_counted_once),
                cmocka_unit_test(it_is_not_far_ahead),
                cmocka_unit_test(a_flush_forgets_nothing),
                cmocka_unit_test(without_a_chunk_there_is_no_answer),
                cmocka_unit_test(rubbish_is_harmless),
                cmocka_unit_test(notes_are_checked),
                cmocka_unit_test(a_socket_has_none),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
