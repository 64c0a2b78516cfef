/* The receive queue: blocks, lent frames, memory, and a long random run beside a plain list. */
#include "tests/udp/scene.h"

#include <errno.h>

#include "base/prng.h"
#include "udp/udp_pcb.h"
#include "tests/udp/reading.h"

static struct udp_queue *queue(struct scene *s, uint32_t pcb)
{
        return &udp_pcb_at(&s->u, pcb)->q;
}

static uint32_t blocks_used(struct scene *s)
{
        const uint32_t *used = s->frames->region[FRAME_REGION_PRIVATE].pool->used;

        return used[FRAME_SMALL] + used[FRAME_LARGE];
}

static void small_datagrams_share_a_block(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);

        for (uint8_t i = 0; i < 15; i++) /* 128 bytes each, 64 of the block its own */
                assert_int_equal(arrives(s, .len = 64, .fill = i), UDP_DONE);
        assert_int_equal(blocks_used(s), 1);
        assert_int_equal(arrives(s, .len = 64, .fill = 15), UDP_DONE);
        assert_int_equal(blocks_used(s), 2);
        for (uint8_t i = 0; i < 16; i++)
                expect_read(s, pcb, .len = 64, .fill = i);
        expect_nothing(s, pcb);
        assert_int_equal(blocks_used(s), 0); /* the large block goes at once */
}

static void a_queue_that_is_emptied_each_time_keeps_its_small_block(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);

        for (int i = 0; i < 1000; i++) {
                arrives(s, .len = 64, .fill = (uint8_t)i);
                expect_read(s, pcb, .len = 64, .fill = (uint8_t)i);
                assert_int_equal(blocks_used(s), 1);
        }
}

static void a_lent_frame_is_kept_until_the_datagram_is_read(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);

        assert_int_equal(arrives(s, .len = 1400, .in_frame = 1400, .small = true), UDP_TOOK);
        assert_int_equal(arrives(s, .len = 60100, .in_frame = 60000, .fill = 9), UDP_TOOK);
        assert_int_equal(s->given_back, 0);
        expect_read(s, pcb, .len = 1400);
        assert_int_equal(s->given_back, 1);
        expect_read(s, pcb, .len = 60100, .fill = 9);
        assert_int_equal(s->given_back, 2);
}

/* Half of what the peer has to lend is not ours to sit on. */
static void beyond_its_share_it_copies_and_gives_back(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);

        s->u.sh->limits.lend_max = 2 * FRAME_LARGE_BYTES;
        for (uint8_t i = 0; i < 10; i++)
                assert_int_equal(arrives(s, .len = 20000 + i, .in_frame = 19900, .fill = i),
                                 i < 2 ? UDP_TOOK : UDP_DONE);
        assert_int_equal(s->given_back, 8);
        assert_int_equal(queue(s, pcb)->lent, 2 * FRAME_LARGE_BYTES);
        for (uint8_t i = 10; i < 20; i++)
                assert_int_equal(
                        arrives(s, .len = 1400, .in_frame = 1400, .fill = i, .small = i % 2),
                        UDP_DONE);
        udp_pcb_check(&s->u, pcb);
        for (uint8_t i = 0; i < 10; i++)
                expect_read(s, pcb, .len = 20000 + i, .fill = i);
        for (uint8_t i = 10; i < 20; i++)
                expect_read(s, pcb, .len = 1400, .fill = i);
}

/* Many sockets, each within its limit, together leave the peer half of its frames. */
static void all_together_keep_half_of_what_the_peer_has(void **state)
{
        struct scene *s = *state;
        uint32_t pcb[30];

        for (uint16_t i = 0; i < 30; i++) {
                pcb[i] = bound(s, 0, (uint16_t)(100 + i));
                assert_int_equal(
                        arrives(s, .len = 1400, .in_frame = 1400, .dport = (uint16_t)(100 + i)),
                        i < 12 ? UDP_TOOK : UDP_DONE); /* of 24 large ones */
        }
        assert_int_equal(arrives(s, .len = 1400, .in_frame = 1400, .small = true, .dport = 100),
                         UDP_TOOK);
        expect_read(s, pcb[0], .len = 1400, .dport = 100);
        assert_int_equal(arrives(s, .len = 1400, .in_frame = 1400, .dport = 129), UDP_TOOK);
        for (uint16_t i = 1; i < 30; i++)
                expect_read(s, pcb[i], .len = 1400, .dport = (uint16_t)(100 + i));
}

static void memory_is_charged_as_it_is_held(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);

        arrives(s, .len = 64);
        assert_int_equal(queue(s, pcb)->charged, 128);
        arrives(s, .len = 1);
        assert_int_equal(queue(s, pcb)->charged, 128 + 72);
        arrives(s, .len = 100, .in_frame = 100, .small = true);
        assert_int_equal(queue(s, pcb)->charged, 128 + 72 + 64 + FRAME_SMALL_BYTES);
        arrives(s, .len = 100, .in_frame = 100);
        assert_int_equal(queue(s, pcb)->charged,
                         128 + 72 + 64 + FRAME_SMALL_BYTES + 64 + FRAME_LARGE_BYTES);
        read_first(&s->u, pcb, 4);
        assert_int_equal(queue(s, pcb)->charged, 0);
}

static void a_full_buffer_drops_and_counts(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);
        struct udp_opts o;

        udp_get_opts(&s->u, pcb, &o);
        o.rcvbuf = 1280;
        udp_set_opts(&s->u, pcb, &o);
        for (uint8_t i = 0; i < 12; i++)
                arrives(s, .len = 64, .fill = i);
        assert_int_equal(s->cnt.drop[DROP_UDP_FULL], 2);
        assert_int_equal(s->cnt.n[COUNT_UDP_IN], 10);
        expect_read(s, pcb, .len = 64, .fill = 0);
        arrives(s, .len = 64, .fill = 99);
        for (uint8_t i = 1; i < 10; i++)
                expect_read(s, pcb, .len = 64, .fill = i);
        expect_read(s, pcb, .len = 64, .fill = 99);
}

/* As Linux: whatever the limit, one datagram fits into an empty buffer. */
static void an_empty_queue_takes_any_one_datagram(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);
        struct udp_opts o;

        udp_get_opts(&s->u, pcb, &o);
        o.rcvbuf = 1;
        udp_set_opts(&s->u, pcb, &o);
        assert_int_equal(arrives(s, .len = 60000, .in_frame = 60000), UDP_TOOK);
        assert_int_equal(arrives(s, .len = 1), UDP_DONE);
        assert_int_equal(s->cnt.drop[DROP_UDP_FULL], 1);
        expect_read(s, pcb, .len = 60000);
}

static void without_memory_it_drops_and_says_so(void **state)
{
        struct scene *s = *state;
        uint32_t pcb;

        scene_frames(s, 1, 1);
        pcb = bound(s, 0, 53);
        for (int i = 0; s->cnt.drop[DROP_UDP_NO_MEMORY] == 0; i++)
                arrives(s, .len = 100, .fill = (uint8_t)i);
        /* Its record still fits. */
        assert_int_equal(arrives(s, .len = 1400, .in_frame = 1400), UDP_TOOK);
        s->u.sh->limits.lend_max = 0;
        assert_int_equal(arrives(s, .len = 20000, .in_frame = 20000), UDP_DONE);
        assert_int_equal(s->cnt.drop[DROP_UDP_NO_MEMORY], 2);
        read_first(&s->u, pcb, 1);
        udp_pcb_check(&s->u, pcb);
}

static void many_are_shown_and_consumed_at_once(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);
        struct udp_msg m[64];

        for (uint8_t i = 0; i < 50; i++)
                arrives(s, .len = (uint32_t)i + 1, .fill = i);
        assert_int_equal(udp_recv_peek(&s->u, pcb, 0, m, 64), 50);
        assert_int_equal(udp_recv_peek(&s->u, pcb, 0, m, 0), 0);
        assert_int_equal(udp_recv_peek(&s->u, pcb, 45, m, 3), 3);
        for (uint8_t i = 0; i < 3; i++) {
                assert_int_equal(m[i].len, 46 + i);
                assert_int_equal(m[i].span[0].ptr[0], 45 + i);
        }
        assert_int_equal(udp_recv_peek(&s->u, pcb, 50, m, 3), -EAGAIN);
        read_first(&s->u, pcb, 30);
        expect_read(s, pcb, .len = 31, .fill = 30);
        assert_int_equal(udp_recv_avail(&s->u, pcb), 32);
}

/* Copying happens without the lock, while more arrives: spans stay where they are
 * until consumed. */
static void spans_stay_valid_while_more_arrives(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);
        struct udp_msg m;

        arrives(s, .len = 100, .fill = 1);
        assert_int_equal(udp_recv_peek(&s->u, pcb, 0, &m, 1), 1);
        for (int i = 0; i < 500; i++)
                arrives(s, .len = 100, .fill = 2);
        for (uint32_t i = 0; i < 100; i++)
                assert_int_equal(m.span[0].ptr[i], (uint8_t)(1 + 7 * i));
}

/* ---- reading without the lock ---- */

static void look_and_take(struct scene *s, uint32_t pcb, const struct arrival *a)
{
        struct udp_sight first;
        uint32_t at = 0;

        assert_true(udp_queue_unread(&udp_pcb_at(&s->u, pcb)->q));
        assert_true(udp_recv_look(&s->u, pcb, &first));
        assert_int_equal(first.msg.len, a->len);
        assert_int_equal(first.msg.sport, a->sport);
        for (int k = 0; k < first.msg.nspan; k++)
                for (uint32_t i = 0; i < first.msg.span[k].len; i++, at++)
                        assert_int_equal(first.msg.span[k].ptr[i],
                                         (uint8_t)(a->fill + at * 7 + (at >> 8)));
        assert_true(udp_recv_take(&s->u, pcb, &first));
}

static void what_two_look_at_one_of_them_reads(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);
        struct udp_sight a, b;

        assert_false(udp_recv_look(&s->u, pcb, &a));
        arrives(s, .len = 10);
        arrives(s, .len = 20);
        assert_true(udp_recv_look(&s->u, pcb, &a));
        assert_true(udp_recv_look(&s->u, pcb, &b));
        assert_true(udp_recv_take(&s->u, pcb, &b));
        assert_false(udp_recv_take(&s->u, pcb, &a));
        assert_true(udp_recv_look(&s->u, pcb, &a));
        assert_int_equal(a.msg.len, 20);
        assert_true(udp_recv_take(&s->u, pcb, &a));
        assert_false(udp_queue_unread(&udp_pcb_at(&s->u, pcb)->q));
        assert_false(udp_recv_look(&s->u, pcb, &a));
        udp_settle(&s->u, pcb);
        udp_pcb_check(&s->u, pcb);
}

/* The short way says the same as the long one, or nothing: of frames, and of the first datagram of
 * another block. */
static void the_short_way_reads_the_same(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53), shorts = 0;
        struct udp_pcb *p = udp_pcb_at(&s->u, pcb);
        struct udp_sight a, b;

        assert_false(udp_recv_look_short(&s->u, p, &a));
        for (uint32_t i = 0; i < 3000; i++)
                if (i % 100 == 99)
                        arrives(s, .len = 1400, .in_frame = 1400, .small = true);
                else
                        arrives(s, .len = i % 200, .fill = (uint8_t)i);
        for (uint32_t i = 0; i < 3000; i++) {
                bool framed = i % 100 == 99;
                assert_true(udp_recv_look(&s->u, pcb, &a));
                if (!udp_recv_look_short(&s->u, p, &b)) {
                        assert_true(udp_recv_take(&s->u, pcb, &a));
                        continue;
                }
                assert_false(framed);
                assert_int_equal(b.msg.len, i % 200);
                assert_int_equal(a.msg.len, b.msg.len);
                assert_int_equal(a.last, b.last);
                assert_int_equal(a.next, b.next);
                if (b.msg.len != 0)
                        assert_ptr_equal(a.msg.span[0].ptr, b.msg.span[0].ptr);
                assert_true(udp_recv_take_short(p, &b, i % 2));
                assert_false(udp_recv_take_short(p, &b, i % 3));
                shorts++;
        }
        assert_false(udp_recv_look_short(&s->u, p, &a));
        assert_in_range(shorts, 2900, 2969);
        udp_settle(&s->u, pcb);
        udp_pcb_check(&s->u, pcb);
}

/* By the short way in: the same records, as many as the buffer takes, and not one more. */
static void the_short_way_in_fills_the_same_queue(void **state)
{
        struct scene *s = *state;
        uint32_t pcbs[2] = {bound(s, 0, 53), bound(s, 0, 54)};
        struct udp_queue *a = queue(s, pcbs[0]), *b = queue(s, pcbs[1]);
        struct udp_opts o;

        udp_get_opts(&s->u, pcbs[0], &o);
        o.rcvbuf = 100000;
        for (int i = 0; i < 2; i++)
                udp_set_opts(&s->u, pcbs[i], &o);
        for (uint32_t i = 0; i < 1000 && s->cnt.drop[DROP_UDP_FULL] == 0; i++) {
                arrives(s, .dport = 53, .len = i % 200, .fill = (uint8_t)i);
                arrives(s, .dport = 54, .len = i % 200, .fill = (uint8_t)i, .shortly = true);
                assert_int_equal(a->count, b->count);
                assert_int_equal(a->charged, b->charged);
                assert_int_equal(a->tail.off, b->tail.off);
        }
        assert_int_equal(s->cnt.drop[DROP_UDP_FULL], 2);
        assert_true(a->count > 100);
        for (uint32_t i = 0, n = a->count; i < n; i++) {
                expect_read(s, pcbs[0], .dport = 53, .len = i % 200, .fill = (uint8_t)i);
                expect_read(s, pcbs[1], .dport = 54, .len = i % 200, .fill = (uint8_t)i);
        }
        udp_pcb_check(&s->u, pcbs[1]);
}

static void what_was_read_is_held_until_somebody_settles(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);
        struct udp_sight first;

        arrives(s, .len = 1400, .in_frame = 1400, .small = true);
        arrives(s, .len = 64);
        assert_true(udp_recv_look(&s->u, pcb, &first));
        assert_true(udp_recv_take(&s->u, pcb, &first));
        udp_pcb_check(&s->u, pcb);
        assert_int_equal(s->given_back, 0);
        assert_int_equal(queue(s, pcb)->count, 2);
        udp_settle(&s->u, pcb);
        udp_pcb_check(&s->u, pcb);
        assert_int_equal(s->given_back, 1);
        assert_int_equal(queue(s, pcb)->count, 1);
        expect_read(s, pcb, .len = 64);
}

/* A reader that was stopped between looking and taking, while the place it looked at was
 * used again. */
static void a_slow_reader_takes_nothing_that_came_later(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);
        struct udp_sight slow;

        arrives(s, .len = 64);
        assert_true(udp_recv_look(&s->u, pcb, &slow));
        for (int i = 0; i < 100; i++) {
                expect_read(s, pcb, .len = 64); /* the block begins anew */
                arrives(s, .len = 64);
                assert_false(udp_recv_take(&s->u, pcb, &slow));
        }
        expect_read(s, pcb, .len = 64);
}

/* What was read does not count against the buffer, though nobody has settled yet. */
static void room_is_found_where_datagrams_were_read(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);
        struct udp_opts o;

        udp_get_opts(&s->u, pcb, &o);
        o.rcvbuf = 1280;
        udp_set_opts(&s->u, pcb, &o);
        for (uint8_t i = 0; i < 100; i++) {
                struct arrival a = {.len = 64, .fill = i, .sport = 4000};

                arrives_(s, a);
                look_and_take(s, pcb, &a);
        }
        assert_int_equal(s->cnt.drop[DROP_UDP_FULL], 0);
        udp_settle(&s->u, pcb);
        assert_int_equal(queue(s, pcb)->charged, 0);
}

static void closing_counts_only_what_nobody_read(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);
        struct udp_sight first;

        for (uint8_t i = 0; i < 5; i++)
                arrives(s, .len = 500, .in_frame = 400, .small = true);
        for (uint8_t i = 0; i < 2; i++) {
                assert_true(udp_recv_look(&s->u, pcb, &first));
                assert_true(udp_recv_take(&s->u, pcb, &first));
        }
        udp_close(&s->u, pcb);
        assert_int_equal(s->cnt.drop[DROP_UDP_UNREAD], 3);
        assert_int_equal(s->given_back, 5);
}

static void empty_datagrams_are_datagrams(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);
        struct udp_msg m;

        arrives(s, .len = 0);
        arrives(s, .len = 0, .sport = 5);
        assert_int_equal(udp_recv_peek(&s->u, pcb, 0, &m, 1), 1);
        assert_int_equal(m.nspan, 0);
        expect_read(s, pcb, .len = 0);
        expect_read(s, pcb, .len = 0, .sport = 5);
        expect_nothing(s, pcb);
}

/* RFC 1122 §4.1.3.2. Whoever reads by the shortest way leaves such a datagram to those who ask
 * for options. */
static void ip_options_stay_with_their_datagram(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53);
        struct udp_sight sight;

        arrives(s, .len = 64, .nopts = 40);
        arrives(s, .len = 64, .fill = 1);
        arrives(s, .len = 0, .fill = 2, .nopts = 4);
        arrives(s, .len = 2000, .in_frame = 1900, .fill = 3, .nopts = 8);
        assert_int_equal(queue(s, pcb)->charged, 168 + 128 + 72 + 176 + FRAME_LARGE_BYTES);
        assert_false(udp_recv_look_short(&s->u, udp_pcb_at(&s->u, pcb), &sight));
        expect_read(s, pcb, .len = 64, .nopts = 40);
        assert_true(udp_recv_look_short(&s->u, udp_pcb_at(&s->u, pcb), &sight));
        expect_read(s, pcb, .len = 64, .fill = 1);
        assert_false(udp_recv_look_short(&s->u, udp_pcb_at(&s->u, pcb), &sight));
        expect_read(s, pcb, .len = 0, .fill = 2, .nopts = 4);
        expect_read(s, pcb, .len = 2000, .fill = 3, .nopts = 8);
}

static struct arrival random_arrival(struct prng_fast *g, uint8_t fill)
{
        struct arrival a = {
                .fill = fill, .sport = (uint16_t)(1 + prng_fast_below(g, 9)), .dport = 53};

        a.nopts = prng_fast_below(g, 4) == 0 ? (uint8_t)(4 + 4 * prng_fast_below(g, 10)) : 0;
        a.len = prng_fast_below(g, 232);
        switch (prng_fast_below(g, 4)) {
        case 0:
                a.in_frame = 1 + prng_fast_below(g, 2048);
                a.small = true;
                break;
        case 1:
                a.in_frame = 1 + prng_fast_below(g, 40000);
                break;
        }
        a.len += a.in_frame;
        a.shortly = prng_fast_below(g, 2) == 0;
        return a;
}

static void random_use_matches_a_plain_list(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53), head = 0, n = 0;
        struct arrival model[64];
        struct prng_fast g;
        uint64_t seed = 4711;

        print_message("seed %llu\n", (unsigned long long)seed);
        prng_fast_init(&g, seed);
        s->u.sh->limits.lend_max = 6 * FRAME_LARGE_BYTES;
        for (int step = 0; step < 20000; step++) {
                if (prng_fast_below(&g, step / 100 % 2 ? 5 : 3) < 2 && n < ARRAY_LEN(model)) {
                        struct arrival a = random_arrival(&g, (uint8_t)step);
                        uint64_t in = s->cnt.n[COUNT_UDP_IN];

                        arrives_(s, a);
                        if (s->cnt.n[COUNT_UDP_IN] != in)
                                model[(head + n++) % ARRAY_LEN(model)] = a;
                } else if (n != 0) {
                        expect_read_(s, pcb, model[head++ % ARRAY_LEN(model)], __FILE__, __LINE__);
                        n--;
                }
                assert_int_equal(queue(s, pcb)->count, n);
        }
}

/* The same without the lock, settling now and then. */
static void random_reading_without_the_lock_matches_too(void **state)
{
        struct scene *s = *state;
        uint32_t pcb = bound(s, 0, 53), head = 0, n = 0;
        struct arrival model[64];
        struct prng_fast g;
        uint64_t seed = 4712;

        print_message("seed %llu\n", (unsigned long long)seed);
        prng_fast_init(&g, seed);
        s->u.sh->limits.lend_max = 6 * FRAME_LARGE_BYTES;
        for (int step = 0; step < 20000; step++) {
                if (prng_fast_below(&g, step / 100 % 2 ? 5 : 3) < 2 && n < ARRAY_LEN(model)) {
                        struct arrival a = random_arrival(&g, (uint8_t)step);
                        uint64_t in = s->cnt.n[COUNT_UDP_IN];

                        arrives_(s, a);
                        if (s->cnt.n[COUNT_UDP_IN] != in)
                                model[(head + n++) % ARRAY_LEN(model)] = a;
                } else if (n != 0) {
                        look_and_take(s, pcb, &model[head++ % ARRAY_LEN(model)]);
                        n--;
                }
                if (prng_fast_below(&g, 10) == 0)
                        udp_settle(&s->u, pcb);
                udp_pcb_check(&s->u, pcb);
                assert_int_equal(udp_queue_unread(&udp_pcb_at(&s->u, pcb)->q), n != 0);
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(small_datagrams_share_a_block),
                TEST(a_queue_that_is_emptied_each_time_keeps_its_small_block),
                TEST(a_lent_frame_is_kept_until_the_datagram_is_read),
                TEST(beyond_its_share_it_copies_and_gives_back),
                TEST(all_together_keep_half_of_what_the_peer_has),
                TEST(memory_is_charged_as_it_is_held),
                TEST(a_full_buffer_drops_and_counts),
                TEST(an_empty_queue_takes_any_one_datagram),
                TEST(without_memory_it_drops_and_says_so),
                TEST(many_are_shown_and_consumed_at_once),
                TEST(spans_stay_valid_while_more_arrives),
                TEST(what_two_look_at_one_of_them_reads),
                TEST(the_short_way_reads_the_same),
                TEST(the_short_way_in_fills_the_same_queue),
                TEST(what_was_read_is_held_until_somebody_settles),
                TEST(a_slow_reader_takes_nothing_that_came_later),
                TEST(room_is_found_where_datagrams_were_read),
                TEST(closing_counts_only_what_nobody_read),
                TEST(empty_datagrams_are_datagrams),
                TEST(ip_options_stay_with_their_datagram),
                TEST(random_use_matches_a_plain_list),
                TEST(random_reading_without_the_lock_matches_too),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
