/* Data beyond gaps, and the SACK blocks that report it: RFC 9293 §3.10.7.4, RFC 2018, RFC 2883. */
#include "tests/tcp/scenarios.h"

/* What is not simply next is summed before anything is made of it. */
static void unsummed_text_beyond_a_gap(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000, .unsummed = true, .corrupt = true);
        expect_silence(s);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_CHECKSUM], 1);
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000, .unsummed = true);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 2001}});
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000, .unsummed = true, .corrupt = true);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000, .unsummed = true);
        expect_sent(s, .seq = 1, .ack = 2001);
        app_reads(s, 2000);
}

/* SHLD-31: out of order is kept; each is answered at once; blocks as RFC 2018 §4 orders them. */
static void gaps_are_reported_and_filled(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 501, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{501, 1001}});
        peer_sends(s, .seq = 2001, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{2001, 2501}, {501, 1001}});
        peer_sends(s, .seq = 1001, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{501, 1501}, {2001, 2501}});
        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 1501, .nsack = 1, .sack = {{2001, 2501}});
        peer_sends(s, .seq = 1501, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 2501);
        app_reads(s, 2500);
        advance_ms(s, 100);
        expect_silence(s);
}

/* RFC 2018 §4: after the block that grew just now those that were reported most recently. */
static void blocks_are_reported_most_recent_first(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1001, .ack = 1, .len = 100);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{1001, 1101}});
        peer_sends(s, .seq = 2001, .ack = 1, .len = 100);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{2001, 2101}, {1001, 1101}});
        peer_sends(s, .seq = 3001, .ack = 1, .len = 100);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 3,
                    .sack = {{3001, 3101}, {2001, 2101}, {1001, 1101}});
        peer_sends(s, .seq = 4001, .ack = 1, .len = 100);
        peer_sends(s, .seq = 5001, .ack = 1, .len = 100);
        forget_sent(s);
        peer_sends(s, .seq = 2101, .ack = 1, .len = 100); /* an old one grows */
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 4,
                    .sack = {{2001, 2201}, {5001, 5101}, {4001, 4101}, {3001, 3101}});
        peer_sends(s, .seq = 4101, .ack = 1, .len = 900); /* two become one */
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 4,
                    .sack = {{4001, 5101}, {2001, 2201}, {3001, 3101}, {1001, 1101}});
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        expect_sent(s, .seq = 1, .ack = 1101, .nsack = 3,
                    .sack = {{4001, 5101}, {2001, 2201}, {3001, 3101}});
}

/* All that is missing of a segment is kept, whatever lies between, and the first of what was there
 * is reported (RFC 2883 §4). */
static void a_segment_that_bridges_gaps_is_taken_whole(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 201, .ack = 1, .len = 100);
        peer_sends(s, .seq = 401, .ack = 1, .len = 100);
        peer_sends(s, .seq = 601, .ack = 1, .len = 100);
        forget_sent(s);
        peer_sends(s, .seq = 151, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{201, 301}, {151, 701}});
        peer_sends(s, .seq = 901, .ack = 1, .len = 100, .flags = F);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{901, 1002}, {151, 701}});
        peer_sends(s, .seq = 651, .ack = 1, .len = 350, .flags = F);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{651, 701}, {151, 1002}});
        /* In order, and part of it for the second time. */
        peer_sends(s, .seq = 1, .ack = 1, .len = 250);
        expect_sent(s, .seq = 1, .ack = 1002, .nsack = 1, .sack = {{151, 201}});
        app_reads(s, 1000);
        app_reads(s, 0);
        forget_sent(s);
}

/* The same when frames are worth keeping. */
static void a_large_segment_that_bridges_gaps_is_taken_whole(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1001, .ack = 1, .len = 10);
        peer_sends(s, .seq = 2001, .ack = 1, .len = 10);
        peer_sends(s, .seq = 3001, .ack = 1, .len = 10);
        forget_sent(s);
        peer_sends(s, .seq = 501, .ack = 1, .len = 3000);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 2, .sack = {{1001, 1011}, {501, 3501}});
        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 3501);
        app_reads(s, 3500);
        forget_sent(s);
}

/* The same FIN beyond a gap, again and again, takes no memory. */
static void repeated_fin_beyond_a_gap_is_one(void **state)
{
        struct scene *s = *state;
        uint32_t used = s->rig->t.sh->rxsegs.used;

        for (int i = 0; i < 10; i++)
                peer_sends(s, .seq = 501, .ack = 1, .flags = F);
        assert_int_equal(s->rig->t.sh->rxsegs.used, used + 1);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 502);
        app_reads(s, 500);
        app_reads(s, 0);
}

/* A FIN takes a sequence number, alone as well. */
static void fin_beyond_a_gap_is_reported(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 501, .ack = 1, .flags = F);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{501, 502}});
        peer_sends(s, .seq = 401, .ack = 1, .len = 100);
        expect_sent(s, .seq = 1, .ack = 1, .nsack = 1, .sack = {{401, 502}});
        peer_sends(s, .seq = 1, .ack = 1, .len = 400);
        expect_sent(s, .seq = 1, .ack = 502);
        expect_state(s, TCPS_CLOSE_WAIT);
}

/* RFC 2883 §4.1, 4.2 */
static void duplicates_are_reported(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 501, .nsack = 1, .sack = {{1, 501}});
        peer_sends(s, .seq = 1001, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 501, .nsack = 1, .sack = {{1001, 1501}});
        peer_sends(s, .seq = 1001, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 501, .nsack = 2, .sack = {{1001, 1501}, {1001, 1501}});
}

static void overlapping_pieces_make_one_stream(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 301, .ack = 1, .len = 300);
        peer_sends(s, .seq = 201, .ack = 1, .len = 250);
        peer_sends(s, .seq = 551, .ack = 1, .len = 450);
        peer_sends(s, .seq = 101, .ack = 1, .len = 900);
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        app_reads(s, 1000);
        forget_sent(s);
}

static void fin_beyond_a_gap_waits(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 101, .ack = 1, .len = 100, .flags = F);
        forget_sent(s);
        expect_state(s, TCPS_ESTABLISHED);
        peer_sends(s, .seq = 1, .ack = 1, .len = 100);
        expect_sent(s, .seq = 1, .ack = 202);
        expect_state(s, TCPS_CLOSE_WAIT);
        app_reads(s, 200);
        app_reads(s, 0);
}

int main(void)
{
        static const struct scene_setup sack = {.sack = true};
        const struct CMUnitTest tests[] = {
                scenario(unsummed_text_beyond_a_gap, established, &sack),
                scenario(gaps_are_reported_and_filled, established, &sack),
                scenario(blocks_are_reported_most_recent_first, established, &sack),
                scenario(a_segment_that_bridges_gaps_is_taken_whole, established, &sack),
                scenario(a_large_segment_that_bridges_gaps_is_taken_whole, established, &sack),
                scenario(repeated_fin_beyond_a_gap_is_one, established, &sack),
                scenario(fin_beyond_a_gap_is_reported, established, &sack),
                scenario(duplicates_are_reported, established, &sack),
                scenario(overlapping_pieces_make_one_stream, established, &sack),
                scenario(overlapping_pieces_make_one_stream, accepted, NULL),
                scenario(fin_beyond_a_gap_waits, established, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
