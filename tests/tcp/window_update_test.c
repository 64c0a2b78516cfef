/* When a reader opens the window, and who says so: RFC 9293 §3.8.6.2.2. */
#include "tests/tcp/scenarios.h"

static void window_opens_again_when_the_reader_reads(void **state)
{
        struct scene *s = *state;

        for (uint32_t i = 0; i < 4; i++)
                peer_sends(s, .seq = 1 + 1000 * i, .ack = 1, .len = 1000);
        expect_sent(s, .seq = 1, .ack = 2001);
        expect_sent(s, .seq = 1, .ack = 4001, .zero_wnd = true);
        app_reads(s, 500);
        expect_silence(s); /* less than a segment: MUST-39 */
        app_reads(s, 500);
        expect_sent(s, .seq = 1, .ack = 4001, .wnd = 1000);
        app_reads(s, 3000);
        expect_sent(s, .seq = 1, .ack = 4001, .wnd = 4000);
}

/* Less than a segment is left of the window of 4000: the sender can do nothing with an
 * acknowledgement before the reader has read, and then one says both. Nobody reads: it comes all
 * the same. */
static void what_fills_the_window_is_acknowledged_by_the_reader(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000);
        expect_sent(s, .seq = 1, .ack = 2001);
        peer_sends(s, .seq = 2001, .ack = 1, .len = 1000);
        peer_sends(s, .seq = 3001, .ack = 1, .len = 900);
        app_reads(s, 2000);
        expect_sent(s, .seq = 1, .ack = 3901, .wnd = 2100);
        peer_sends(s, .seq = 3901, .ack = 1, .len = 1000);
        peer_sends(s, .seq = 4901, .ack = 1, .len = 1000);
        expect_silence(s);
        advance_ms(s, 2);
        expect_sent(s, .seq = 1, .ack = 5901, .wnd = 100);
}

/* Eff.snd.MSS of RFC 9293 §3.8.6.2.2 is what a segment carries besides its options. A window of
 * little more than two such: were one that was read not worth a new right edge, the sender could
 * send only two and wait. */
static void one_segment_of_two_that_is_read_moves_the_window(void **state)
{
        struct scene *s = *state;

        for (uint32_t seq = 1; seq < 1 + 4 * 988; seq += 988) {
                peer_sends(s, .seq = seq, .ack = 1, .len = 988);
                app_reads(s, 988);
                turn_ends(s);
                expect_sent(s, .seq = 1, .ack = seq + 988, .wnd = 2050);
        }
}

int main(void)
{
        static const struct scene_setup two_segments = {.rcvbuf = 2050, .ts = true},
                                        rcvbuf = {.rcvbuf = 4000};
        const struct CMUnitTest tests[] = {
                scenario(window_opens_again_when_the_reader_reads, established, &rcvbuf),
                scenario(what_fills_the_window_is_acknowledged_by_the_reader, established, &rcvbuf),
                scenario(one_segment_of_two_that_is_read_moves_the_window, established,
                         &two_segments),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
