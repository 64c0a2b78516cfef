/* Reassembly: RFC 791 §3.2, RFC 815, RFC 1122 §3.3.2, RFC 1858, RFC 3128, RFC 3168 §5.3,
 * RFC 5722. */
#include "ip/frag.h"
#include "ip/reass.h"
#include "base/prng.h"
#include "tests/ip/packet.h"
#include "tests/unit.h"

#define MF 0x2000u

struct scene {
        struct frames *frames;
        struct counters cnt;
        struct reass r;
        nstime now;
        struct ip_pkt out;
        uint8_t data[65536]; /* what the datagrams of a test hold */
};

static int setup_with(void **state, struct frame_geom g)
{
        struct scene *s = calloc(1, sizeof *s);
        struct frame_region *r;

        s->frames = lent_frames();
        r = &s->frames->region[FRAME_REGION_PRIVATE];
        r->geom = g;
        r->pool = calloc(1, frame_pool_bytes(g));
        frame_pool_init(r->pool, g);
        r->base = malloc(frame_geom_bytes(g));
        s->r = (struct reass){calloc(1, sizeof(struct reass_shared)), s->frames, &s->cnt};
        reass_reset(s->r.sh, (const uint8_t *)"0123456789abcdef");
        s->now = NS_PER_S;
        for (size_t i = 0; i < sizeof s->data; i++)
                s->data[i] = (uint8_t)(i * 7 + i / 251);
        *state = s;
        return 0;
}

static int setup(void **state)
{
        return setup_with(state, (struct frame_geom){{[FRAME_SMALL] = 512, [FRAME_LARGE] = 64}});
}

static int setup_few(void **state)
{
        return setup_with(state, (struct frame_geom){{[FRAME_SMALL] = 4, [FRAME_LARGE] = 8}});
}

/* Everything is given back when its time is over. */
static int teardown(void **state)
{
        struct scene *s = *state;
        struct frame_region *r = &s->frames->region[FRAME_REGION_PRIVATE];
        struct ip_pkt about;
        uint16_t ifc;

        while (reass_expire(&s->r, s->now + 2 * REASS_TIMEOUT, &about, &ifc))
                ;
        reass_check(&s->r);
        assert_int_equal(s->r.sh->count, 0);
        assert_int_equal(s->r.sh->bytes, 0);
        assert_int_equal(r->pool->used[FRAME_SMALL] + r->pool->used[FRAME_LARGE], 0);
        free(r->base);
        free(r->pool);
        free(s->r.sh);
        free_lent_frames(s->frames);
        free(s);
        return 0;
}

struct piece {
        uint32_t off, len;
        bool last;
        uint16_t id, ifc;
        uint8_t proto, tos;
        uint32_t src;
        uint32_t in_frame;
        uint32_t slip; /* bytes are those of off + slip */
        const uint8_t *options;
        unsigned options_len;
};

/* The fragment arrives; its bytes are those of s->data. */
static enum reass_verdict arrives_(struct scene *s, struct piece p)
{
        struct unet_rx rx = ip_build(s->frames, .src = p.src, .proto = p.proto, .tos = p.tos,
                                     .id = p.id, .frag = (uint16_t)(p.off / 8 | (p.last ? 0 : MF)),
                                     .payload = s->data + p.off + p.slip, .len = p.len,
                                     .options = p.options, .options_len = p.options_len,
                                     .in_frame = p.len > 100 ? p.len - 40 : p.in_frame);
        enum reass_verdict v;

        assert_int_equal(ip_rx(&wire, CHAN, &rx, &s->out), DROP_IP_FRAGMENT);
        v = reass_rx(&s->r, p.ifc, &s->out, s->now);
        reass_check(&s->r);
        return v;
}
#define arrives(s, o, n, ...) arrives_(s, (struct piece){.off = (o), .len = (n), ##__VA_ARGS__})

/* s->out is a datagram of `len` bytes of s->data. Its frame, if it is ours now, is given back. */
static void expect_whole(struct scene *s, uint32_t len)
{
        struct ip_pkt again;

        assert_int_equal(ip_payload_len(&s->out), len);
        assert_int_equal(s->out.total_len, s->out.hdr_len + len);
        assert_false(s->out.more_frags);
        assert_int_equal(s->out.frag_off, 0);
        assert_int_equal(ip_hdr_parse(s->out.hdr, s->out.hdr_len, true, &again), 0);
        assert_memory_equal(s->out.inl, s->data, s->out.inl_len);
        if (s->out.data.id == 0)
                return;
        assert_memory_equal(frame_addr(s->frames, s->out.data.id) + s->out.data.off,
                            s->data + s->out.inl_len, s->out.data.len);
        frame_drop(s->frames, s->out.data.id);
}

#define expect_drops(s, why, n) assert_int_equal((s)->cnt.drop[why], n)

/* ---- what is put together ---- */

static void two_pieces_make_a_datagram(void **state)
{
        struct scene *s = *state;

        assert_int_equal(arrives(s, 0, 1000), REASS_KEPT);
        assert_int_equal(arrives(s, 1000, 333, .last = true), REASS_WHOLE);
        expect_whole(s, 1333);
        assert_int_equal(s->cnt.n[COUNT_IP_FRAGS_IN], 2);
        assert_int_equal(s->cnt.n[COUNT_IP_REASSEMBLED], 1);
}

/* RFC 1122 §3.3.2: at least 576, and no limit but IP's own. */
static void any_order_and_any_size_up_to_the_longest(void **state)
{
        static const uint32_t sizes[] = {
                16, 100, 556, 2048, 2056, 5000, REASS_FLAT, REASS_FLAT + 1, 40000, 65515};
        struct scene *s = *state;
        struct prng_fast rnd;

        prng_fast_init(&rnd, 1);
        for (uint32_t round = 0; round < 40; round++) {
                uint32_t len = sizes[round % ARRAY_LEN(sizes)],
                         unit = 8 * (1 + prng_fast_below(&rnd, 180));
                uint32_t n = (len + unit - 1) / unit, order[8192];

                for (uint32_t i = 0; i < n; i++) {
                        uint32_t k = prng_fast_below(&rnd, i + 1);
                        order[i] = order[k];
                        order[k] = i;
                }
                if (n == 1)
                        continue;
                for (uint32_t i = 0; i < n; i++) {
                        uint32_t off = order[i] * unit;
                        enum reass_verdict v =
                                arrives(s, off, MIN(unit, len - off), .last = off + unit >= len,
                                        .id = (uint16_t)round);
                        assert_int_equal(v, i + 1 == n ? REASS_WHOLE : REASS_KEPT);
                }
                expect_whole(s, len);
        }
}

/* 8,189 fragments of 8 bytes: the cost of one does not depend on the others, and neither does
 * the memory. */
static void the_smallest_fragments_make_the_longest_datagram(void **state)
{
        struct scene *s = *state;

        for (uint32_t off = 65504; off != 0; off -= 8)
                assert_int_equal(arrives(s, off, off == 65504 ? 11 : 8, .last = off == 65504),
                                 REASS_KEPT);
        assert_int_equal(arrives(s, 0, 8), REASS_WHOLE);
        expect_whole(s, 65515);
}

/* What goes to a transport's parser: its header in the bytes, a long payload in the frame. */
static void a_long_segment_has_its_header_apart(void **state)
{
        struct scene *s = *state;

        s->data[12] = 8 << 4; /* TCP with options */
        arrives(s, 0, 2000, .proto = IP_PROTO_TCP);
        for (uint32_t off = 2000; off < 38000; off += 2000)
                arrives(s, off, 2000, .proto = IP_PROTO_TCP);
        assert_int_equal(arrives(s, 38000, 1000, .proto = IP_PROTO_TCP, .last = true), REASS_WHOLE);
        assert_int_equal(s->out.inl_len, 32);
        expect_whole(s, 39000);
}

/* RFC 791 §3.2: same source, destination, protocol and identification; and the interface is ours
 * to add. */
static void what_differs_in_any_part_of_the_key_stays_apart(void **state)
{
        struct scene *s = *state;

        arrives(s, 0, 800);
        assert_int_equal(arrives(s, 800, 8, .last = true, .id = 1), REASS_KEPT);
        assert_int_equal(arrives(s, 800, 8, .last = true, .proto = IP_PROTO_ICMP), REASS_KEPT);
        assert_int_equal(arrives(s, 800, 8, .last = true, .src = FAR), REASS_KEPT);
        assert_int_equal(arrives(s, 800, 8, .last = true, .ifc = 1), REASS_KEPT);
        assert_int_equal(s->r.sh->count, 5);
        assert_int_equal(arrives(s, 800, 8, .last = true), REASS_WHOLE);
        expect_whole(s, 808);
}

static void a_repeated_fragment_changes_nothing(void **state)
{
        struct scene *s = *state;

        arrives(s, 0, 800);
        arrives(s, 0, 800);
        arrives(s, 80, 80);
        arrives(s, 1600, 13, .last = true);
        arrives(s, 1600, 13, .last = true);
        assert_int_equal(arrives(s, 800, 800), REASS_WHOLE);
        expect_whole(s, 1613);
}

/* RFC 791 §3.1: the options of the first fragment are the datagram's. */
static void the_header_is_the_first_ones(void **state)
{
        static const uint8_t alert[] = {148, 4, 0, 0};
        struct scene *s = *state;

        arrives(s, 800, 16, .last = true);
        assert_int_equal(arrives(s, 0, 800, .tos = 0x10, .options = alert, .options_len = 4),
                         REASS_WHOLE);
        assert_int_equal(s->out.hdr_len, 24);
        assert_memory_equal(s->out.hdr + 20, alert, 4);
        assert_int_equal(s->out.tos, 0x10);
        expect_whole(s, 816);
}

/* What frag.h cuts, this puts together. */
static void what_we_cut_we_can_put_together(void **state)
{
        static const uint32_t mtus[] = {68, 576, 1006, 1500, 9000};
        struct scene *s = *state;

        for (uint32_t i = 0; i < ARRAY_LEN(mtus); i++) {
                struct ip_tmpl t;
                struct frag g;
                struct frag_piece p;
                uint8_t hdr[IP_MAX_HDR];
                uint32_t pieces = 0;
                enum reass_verdict v = REASS_KEPT;

                ip_tmpl_init(&t, ip_addr_v4(PEER), ip_addr_v4(US), IP_PROTO_UDP, 0, 64, false);
                ip_hdr_write(&t, hdr, 20, 0);
                frag_begin(&g, hdr, 20, 30001, mtus[i], (uint16_t)(100 + i));
                while (frag_next(&g, hdr, &p)) {
                        struct ip_pkt *pkt = &s->out;
                        assert_true(p.hdr_len + p.len <= mtus[i]);
                        assert_int_equal(ip_hdr_parse(hdr, p.hdr_len, true, pkt), 0);
                        assert_int_equal(pkt->id, 100 + i);
                        pkt->inl = s->data + p.off;
                        pkt->inl_len = p.len;
                        pkt->data = (struct buf){0};
                        v = reass_rx(&s->r, 0, pkt, s->now);
                        pieces++;
                }
                assert_int_equal(v, REASS_WHOLE);
                assert_true(pieces >= 30001 / mtus[i]);
                expect_whole(s, 30001);
        }
}

/* ---- what is refused ---- */

/* RFC 791: lengths but the last's are multiples of 8; and "ping of death". */
static void misshapen_fragments_are_dropped(void **state)
{
        struct scene *s = *state;

        arrives(s, 0, 0);
        arrives(s, 8, 0, .last = true);
        arrives(s, 0, 15);
        arrives(s, 65528, 8, .last = true);
        arrives(s, 65512, 8);
        arrives(s, 65512, 4, .last = true);
        expect_drops(s, DROP_IP_FRAG_BAD, 6);
        assert_int_equal(s->r.sh->count, 0);
        arrives(s, 65512, 3, .last = true); /* 65,535 with the header */
        assert_int_equal(s->r.sh->count, 1);
}

/* The whole must fit with the first fragment's header too, which may be longer than the others'. */
static void a_whole_that_is_too_long_with_its_header_is_dropped(void **state)
{
        static const uint8_t nops[4] = {1, 1, 1, 1};
        struct scene *s = *state;

        arrives(s, 65512, 3, .last = true);
        for (uint32_t off = 8; off < 65512; off += 1456)
                arrives(s, off, MIN(1456, 65512 - off));
        assert_int_equal(arrives(s, 0, 8, .options = nops, .options_len = 4), REASS_KEPT);
        expect_drops(s, DROP_IP_FRAG_BAD, 1);
}

/* RFC 1858 §3.2.1, RFC 3128: TCP's header is not cut, so that filters see what we see. */
static void tiny_first_fragments_of_tcp_are_dropped(void **state)
{
        struct scene *s = *state;

        arrives(s, 0, 8, .proto = IP_PROTO_TCP);
        arrives(s, 0, 16, .proto = IP_PROTO_TCP);
        arrives(s, 8, 800, .proto = IP_PROTO_TCP);
        expect_drops(s, DROP_IP_FRAG_TINY, 3);
        arrives(s, 0, 24, .proto = IP_PROTO_TCP);
        arrives(s, 0, 8, .proto = IP_PROTO_UDP);
        expect_drops(s, DROP_IP_FRAG_TINY, 3);
}

/* RFC 5722 §3 ("teardrop" and its like): the datagram dies, with all its fragments, also those that
 * are yet to come. */
static void an_overlap_kills_the_datagram(void **state)
{
        static const struct piece second[] = {
                {.off = 792, .len = 800},               /* from before */
                {.off = 0, .len = 808},                 /* longer */
                {.off = 0, .len = 800, .slip = 1},      /* the same place, other bytes */
                {.off = 80, .len = 80, .slip = 1},      /* inside, other bytes */
                {.off = 1592, .len = 80},               /* into what follows */
                {.off = 2400, .len = 13, .last = true}, /* a second end */
                {.off = 2392, .len = 8, .last = true},  /* an end before what has come */
                {.off = 2416, .len = 8},                /* beyond the end */
        };
        struct scene *s = *state;

        for (uint16_t i = 0; i < ARRAY_LEN(second); i++) {
                struct piece p = second[i];

                p.id = i;
                arrives(s, 0, 800, .id = i);
                arrives(s, 1600, 800, .id = i);
                arrives(s, 2400, 16, .last = true, .id = i);
                assert_int_equal(arrives_(s, p), REASS_KEPT);
                expect_drops(s, DROP_IP_FRAG_OVERLAP, i + 1u);
                assert_int_equal(arrives(s, 800, 800, .id = i), REASS_KEPT);
                expect_drops(s, DROP_IP_FRAG_DEAD, i + 1u);
        }
        assert_int_equal(s->r.sh->bytes, 0);
}

/* RFC 3168 §5.3: CE of any fragment; and what is not ECN-capable cannot be part of what is. */
static void congestion_marks_are_kept(void **state)
{
        static const struct {
                uint8_t a, b;
                int tos; /* -1: dropped */
        } table[] = {
                {0, 0, 0}, {2, 2, 2}, {1, 1, 1},  {3, 3, 3},  {2, 3, 3},  {3, 2, 3},
                {1, 3, 3}, {2, 1, 2}, {0, 3, -1}, {3, 0, -1}, {0, 2, -1}, {1, 0, -1},
        };
        struct scene *s = *state;

        for (uint16_t i = 0; i < ARRAY_LEN(table); i++) {
                arrives(s, 0, 8, .tos = table[i].a, .id = i);
                assert_int_equal(arrives(s, 8, 8, .tos = table[i].b, .id = i, .last = true),
                                 table[i].tos < 0 ? REASS_KEPT : REASS_WHOLE);
                if (table[i].tos >= 0) {
                        assert_int_equal(s->out.tos, table[i].tos);
                        expect_whole(s, 16);
                }
        }
        expect_drops(s, DROP_IP_FRAG_ECN, 4);
}

/* ---- limits ---- */

static void one_source_has_so_many_at_once_and_its_oldest_goes(void **state)
{
        struct scene *s = *state;

        arrives(s, 0, 8, .id = 9999, .src = FAR);
        for (uint16_t i = 0; i < REASS_PER_SOURCE + 3; i++)
                arrives(s, 0, 8, .id = i);
        assert_int_equal(s->r.sh->count, REASS_PER_SOURCE + 1);
        expect_drops(s, DROP_IP_FRAG_EVICTED, 3);
        /* forgotten: a new beginning. */
        assert_int_equal(arrives(s, 8, 8, .last = true, .id = 2), REASS_KEPT);
        assert_int_equal(arrives(s, 8, 8, .last = true, .id = 9), REASS_WHOLE);
        expect_whole(s, 16);
        assert_int_equal(arrives(s, 8, 8, .last = true, .id = 9999, .src = FAR), REASS_WHOLE);
        expect_whole(s, 16);
}

/* A flood of beginnings from made-up sources: what is finished at once gets through. */
static void a_flood_does_not_stop_what_comes_in_one_piece_after_the_other(void **state)
{
        struct scene *s = *state;

        for (uint32_t i = 0; i < 2000; i++) {
                arrives(s, 0, 8, .id = (uint16_t)i, .src = 0x0b000000 + i);
                arrives(s, 4000, 1000, .id = (uint16_t)i, .src = 0x0c000000 + i);
                if (i % 100 != 0)
                        continue;
                for (uint32_t off = 0; off < 7000; off += 1000)
                        assert_int_equal(arrives(s, off, 1000, .id = (uint16_t)i), REASS_KEPT);
                assert_int_equal(arrives(s, 7000, 1000, .id = (uint16_t)i, .last = true),
                                 REASS_WHOLE);
                expect_whole(s, 8000);
        }
        assert_true(s->r.sh->count <= REASS_DGRAMS && s->r.sh->bytes <= REASS_BYTES);
        assert_true(s->cnt.drop[DROP_IP_FRAG_EVICTED] > 1000);
}

/* A quarter of the large frames are reassembly's; a datagram that finds none pushes out the oldest
 * that has one. */
static void large_frames_are_for_others_too(void **state)
{
        struct scene *s = *state; /* of eight large frames and four small ones */

        for (uint16_t i = 0; i < 10; i++)
                arrives(s, 4000, 8, .id = i);
        assert_int_equal(s->r.sh->large, 2);
        expect_drops(s, DROP_IP_FRAG_EVICTED, 8);
        for (uint16_t i = 0; i < 5; i++)
                arrives(s, 0, 8, .id = (uint16_t)(100 + i));
        expect_drops(s, DROP_IP_FRAG_NO_MEMORY, 1);
}

/* ---- time ---- */

/* RFC 1122 §3.3.2: fixed, from the first that came; and an ICMP error when fragment zero
 * is here. */
static void unfinished_datagrams_time_out(void **state)
{
        struct scene *s = *state;
        struct ip_pkt about;
        uint16_t ifc;

        assert_int_equal(reass_deadline(s->r.sh), NSTIME_NEVER);
        arrives(s, 0, 1000, .id = 5, .ifc = 3);
        assert_int_equal(reass_deadline(s->r.sh), s->now + REASS_TIMEOUT);
        s->now += NS_PER_S;
        arrives(s, 8, 1000, .id = 6); /* without its beginning */
        arrives(s, 1000, 1000, .id = 5, .ifc = 3);
        s->now += REASS_TIMEOUT - NS_PER_S;
        assert_false(reass_expire(&s->r, s->now - 1, &about, &ifc));
        assert_true(reass_expire(&s->r, s->now, &about, &ifc));
        assert_int_equal(ifc, 3);
        assert_int_equal(about.id, 5);
        assert_int_equal(ip_addr_get_v4(about.src), PEER);
        assert_int_equal(about.frag_off, 0);
        assert_int_equal(about.inl_len, 64);
        assert_memory_equal(about.inl, s->data, 64);
        assert_false(reass_expire(&s->r, s->now, &about, &ifc));
        /* Too late. */
        assert_int_equal(arrives(s, 2000, 8, .id = 5, .ifc = 3, .last = true), REASS_KEPT);
        s->now += NS_PER_S;
        assert_false(reass_expire(&s->r, s->now, &about, &ifc)); /* no fragment zero, no error */
        expect_drops(s, DROP_IP_FRAG_TIMEOUT, 2);
}

/* A process died: what was under way is forgotten, and the tables are good. */
static void a_reset_forgets_everything(void **state)
{
        struct scene *s = *state;
        struct frame_pool *p = s->frames->region[FRAME_REGION_PRIVATE].pool;

        for (uint16_t i = 0; i < 20; i++)
                arrives(s, 800u * i, 800, .id = i);
        frame_pool_zero_refs(p);
        reass_reset(s->r.sh, (const uint8_t *)"fedcba9876543210");
        frame_pool_rebuild(p);
        reass_check(&s->r);
        arrives(s, 0, 800);
        assert_int_equal(arrives(s, 800, 800, .last = true), REASS_WHOLE);
        expect_whole(s, 1600);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(two_pieces_make_a_datagram),
                TEST(any_order_and_any_size_up_to_the_longest),
                TEST(the_smallest_fragments_make_the_longest_datagram),
                TEST(a_long_segment_has_its_header_apart),
                TEST(what_differs_in_any_part_of_the_key_stays_apart),
                TEST(a_repeated_fragment_changes_nothing),
                TEST(the_header_is_the_first_ones),
                TEST(what_we_cut_we_can_put_together),
                TEST(misshapen_fragments_are_dropped),
                TEST(a_whole_that_is_too_long_with_its_header_is_dropped),
                TEST(tiny_first_fragments_of_tcp_are_dropped),
                TEST(an_overlap_kills_the_datagram),
                TEST(congestion_marks_are_kept),
                TEST(one_source_has_so_many_at_once_and_its_oldest_goes),
                TEST(a_flood_does_not_stop_what_comes_in_one_piece_after_the_other),
                cmocka_unit_test_setup_teardown(large_frames_are_for_others_too, setup_few,
                                                teardown),
                TEST(unfinished_datagrams_time_out),
                TEST(a_reset_forgets_everything),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
