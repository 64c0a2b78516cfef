/* Nagle, cork, MSG_MORE, PSH: RFC 9293 §3.7.4, RFC 1122 §4.2.2.2. */
#include "tests/tcp/scenarios.h"

/* RFC 9293 §3.7.4, and Minshall: a full segment in flight holds nothing back. */
static void nagle_holds_the_second_small_segment(void **state)
{
        struct scene *s = *state;

        app_writes(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
        app_writes(s, 10);
        expect_sent(s, .seq = 1001, .len = 10);
        app_writes(s, 10);
        app_writes(s, 20);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 1011);
        expect_sent(s, .seq = 1011, .len = 30);
        app_writes(s, 10);
        expect_silence(s);
        s->opts.nodelay = 1; /* MUST-17, and it takes effect at once */
        app_sets(s);
        expect_sent(s, .seq = 1041, .len = 10);
        peer_sends(s, .seq = 1, .ack = 1051);
}

static void fin_goes_along_whatever_nagle_says(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        expect_sent(s, .seq = 1, .len = 10);
        app_writes(s, 10);
        expect_silence(s);
        app_shuts_send(s);
        expect_sent(s, .seq = 11, .len = 10, .flags = F);
        peer_sends(s, .seq = 1, .ack = 22);
}

static void cork_holds_until_taken_off_or_200_ms(void **state)
{
        struct scene *s = *state;

        s->opts.cork = 1;
        app_sets(s);
        app_writes(s, 300);
        app_writes(s, 300);
        expect_silence(s);
        app_writes(s, 600);
        expect_sent(s, .seq = 1, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 1001);
        expect_silence(s);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1001, .len = 200);
        app_writes(s, 5);
        expect_silence(s);
        s->opts.cork = 0;
        app_sets(s);
        expect_sent(s, .seq = 1201, .len = 5);
        peer_sends(s, .seq = 1, .ack = 1206);
}

/* As Linux: what is said while there is urgent data is not held back by it. */
static void nagle_holds_nothing_behind_urgent_data(void **state)
{
        struct scene *s = *state;

        app_writes_urgent(s, 3);
        expect_sent(s, .seq = 1, .len = 3, .flags = TCP_ACK | TCP_URG);
        app_writes(s, 3);
        expect_sent(s, .seq = 4, .len = 3);
        peer_sends(s, .seq = 1, .ack = 4);
        app_writes(s, 3);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 7);
        expect_sent(s, .seq = 7, .len = 3);
        peer_sends(s, .seq = 1, .ack = 10);
}

static void msg_more_waits_for_the_rest(void **state)
{
        struct scene *s = *state;

        app_writes_more(s, 100);
        expect_silence(s);
        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 200);
        peer_sends(s, .seq = 1, .ack = 201);
}

/* RFC 9293 §3.9.1.2, and Linux: it is a SEND without the PUSH flag, as long as that holds nothing
 * back for good. */
static void msg_more_does_not_push(void **state)
{
        struct scene *s = *state;

        app_writes_more(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_false(s->last.flags & TCP_PSH);
        peer_sends(s, .seq = 1, .ack = 1001);
        app_writes_more(s, 100);
        expect_silence(s);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1001, .len = 100);
        assert_true(s->last.flags & TCP_PSH); /* MUST-61: there is no more */
        peer_sends(s, .seq = 1, .ack = 1101);
}

static void msg_more_pushes_half_a_window(void **state)
{
        struct scene *s = *state;

        s->tc->max_wnd = 2400;
        app_writes_more(s, 1000);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_false(s->last.flags & TCP_PSH);
        app_writes_more(s, 1000);
        expect_sent(s, .seq = 1001, .len = 1000);
        assert_true(s->last.flags & TCP_PSH);
        peer_sends(s, .seq = 1, .ack = 2001);
}

/* As Linux: TCP_NODELAY pushes when it is set, though it was set before. */
static void nodelay_pushes_what_msg_more_holds(void **state)
{
        struct scene *s = *state;

        s->opts.nodelay = 1;
        app_sets(s);
        app_writes_more(s, 100);
        expect_silence(s);
        app_sets(s);
        expect_sent(s, .seq = 1, .len = 100);
        assert_false(s->last.flags & TCP_PSH);
        peer_sends(s, .seq = 1, .ack = 101);
}

/* As Linux: it speaks of the write, not of the connection. With the next segment that comes, what
 * was held goes by Nagle's rule. */
static void what_arrives_releases_what_msg_more_holds(void **state)
{
        struct scene *s = *state;

        s->opts.nodelay = 1;
        app_sets(s);
        app_writes_more(s, 3100);
        for (uint32_t i = 0; i < 3; i++)
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 2001);
        expect_sent(s, .seq = 3001, .len = 100);
        peer_sends(s, .seq = 1, .ack = 3101);
}

static void what_arrives_does_not_uncork(void **state)
{
        struct scene *s = *state;

        s->opts.nodelay = s->opts.cork = 1;
        app_sets(s);
        app_writes(s, 3100);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 3001);
        expect_silence(s);
        advance_ms(s, 200);
        expect_sent(s, .seq = 3001, .len = 100);
        peer_sends(s, .seq = 1, .ack = 3101);
}

int main(void)
{
        static const struct scene_setup nagle = {.nagle = true};
        const struct CMUnitTest tests[] = {
                scenario(nagle_holds_the_second_small_segment, established, &nagle),
                scenario(fin_goes_along_whatever_nagle_says, established, &nagle),
                scenario(cork_holds_until_taken_off_or_200_ms, established, NULL),
                scenario(nagle_holds_nothing_behind_urgent_data, established, &nagle),
                scenario(msg_more_waits_for_the_rest, established, NULL),
                scenario(msg_more_does_not_push, established, NULL),
                scenario(msg_more_pushes_half_a_window, established, NULL),
                scenario(nodelay_pushes_what_msg_more_holds, established, NULL),
                scenario(what_arrives_releases_what_msg_more_holds, established, NULL),
                scenario(what_arrives_does_not_uncork, established, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
