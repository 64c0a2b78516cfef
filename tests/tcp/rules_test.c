/* Rules of the RFCs that no other scenario has by the way: docs/requirements/tcp.csv. */
#include "tests/tcp/scenarios.h"
#include "tcp/tcp_life.h"

static const struct scene_setup small = {.rcvbuf = 3000}, timestamps = {.ts = true},
                                wide = {.wnd = 40000, .sndbuf = 100000},
                                widest = {.wnd = 65535, .wscale = 14, .sndbuf = 200000},
                                plain_sack = {.sack = true}, scaled = {.wscale = 3, .wnd = 1000},
                                keepalive = {.keepalive = true}, reno = {.reno = true};

/* MUST-66: urgent data is announced by a segment that the closed window refuses, and by one
 * without data. */
static void a_closed_window_takes_urgent_pointers(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 1500);
        peer_sends(s, .seq = 1501, .ack = 1, .len = 1500);
        forget_sent(s);
        assert_false(s->tc->events & TCP_EV_URGENT);
        peer_sends(s, .seq = 3001, .ack = 1, .flags = TCP_ACK | TCP_URG, .urg = 10);
        assert_true(s->tc->events & TCP_EV_URGENT);
        assert_int_equal(tcp_recv_urgent(&s->rig->t, s->tc, false), -EAGAIN);
        app_reads(s, 3000);
        forget_sent(s);
}

/* MUST-31: any number of bytes may be urgent; the last is the one that is told of. */
static void urgent_data_may_be_long(void **state)
{
        struct scene *s = *state;

        app_writes_urgent(s, 5000);
        for (uint32_t i = 0; i < 5; i++) {
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000, .flags = TCP_ACK | TCP_URG);
                assert_int_equal(s->last.urg, 5000 - 1000 * i);
        }
        peer_sends(s, .seq = 1, .ack = 5001);
}

/* SHLD-15: what is new waits for the window, though what is old was sent beyond it. */
static void nothing_new_goes_beyond_a_shrunken_window(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001, .wnd = 1000);
        app_writes(s, 3000);
        expect_silence(s);
        peer_sends(s, .seq = 1, .ack = 3001, .wnd = 3000);
        expect_sent(s, .seq = 3001, .len = 1000);
        expect_sent(s, .seq = 4001, .len = 1000);
        expect_sent(s, .seq = 5001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 6001);
}

/* MUST-25: nobody asks unless the application wants it. */
static void a_silent_connection_is_left_alone(void **state)
{
        struct scene *s = *state;

        advance_ms(s, 7 * 24 * 3600 * 1000);
        expect_silence(s);
        expect_state(s, TCPS_ESTABLISHED);
}

/* MUST-27 */
static void keepalive_has_the_times_that_it_is_given(void **state)
{
        struct scene *s = *state;

        s->opts.keepidle_s = 10;
        s->opts.keepintvl_s = 3;
        s->opts.keepcnt = 2;
        app_sets(s);
        advance_ms(s, 9999);
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 0, .ack = 1);
        advance_ms(s, 3000);
        expect_sent(s, .seq = 0, .ack = 1);
        expect_silence(s);
        advance_ms(s, 3000);
        expect_sent(s, .seq = 1, .ack = 1, .flags = RA);
        expect_state(s, TCPS_CLOSED);
}

/* RFC 6298 §5.1 to 5.3: it runs from the first segment, begins anew when something is acknowledged,
 * and ends with the last. */
static void the_timer_begins_anew_with_each_acknowledgement(void **state)
{
        struct scene *s = *state;

        app_writes(s, 2000);
        forget_sent(s);
        advance_ms(s, 150);
        peer_sends(s, .seq = 1, .ack = 1001);
        advance_ms(s, (uint32_t)((s->tc->rto - 1) / NS_PER_MS));
        expect_silence(s);
        advance_ms(s, 1);
        expect_sent(s, .seq = 1001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 2001);
        assert_int_equal(s->tc->rtx_at, NSTIME_NEVER);
}

/* RFC 5681 eq. 4: what a timeout halves it halves once, however often the segment is lost again. */
static void repeated_timeouts_halve_once(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10000);
        forget_sent(s);
        advance_ms(s, 200);
        expect_sent(s, .seq = 1, .len = 1000);
        assert_int_equal(s->tc->ssthresh, 5000);
        assert_int_equal(s->tc->cwnd, 1000);
        advance_ms(s, 400 + 800);
        forget_sent(s);
        assert_int_equal(s->tc->ssthresh, 5000);
        app_aborts(s);
        forget_sent(s);
}

/* RFC 2018 §2: what was not agreed upon is not sent. */
static void without_agreement_no_block_is_sent(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 501, .ack = 1, .len = 500);
        expect_sent(s, .seq = 1, .ack = 1);
        assert_int_equal(s->last.nsack, 0);
        assert_false(s->last.sack_ok);
        peer_sends(s, .seq = 1, .ack = 1, .len = 500);
        forget_sent(s);
        app_reads(s, 1000);
}

static void what_was_agreed_upon_is_in_no_other_segment(void **state)
{
        struct scene *s = *state;

        app_writes(s, 10);
        expect_sent(s, .seq = 1, .len = 10);
        assert_false(s->last.sack_ok);
        assert_int_equal(s->last.mss, 0);
        assert_int_equal(s->last.wscale, TCP_NO_WSCALE);
        peer_sends(s, .seq = 1, .ack = 11);
}

/* RFC 7323 §2.2: the window of the SYN-ACK is as it stands; those that follow are scaled. */
static void the_window_of_a_syn_is_not_scaled(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 0, .ack = 1, .flags = SA, .mss = 1000, .wscale = 3, .wnd = 1000);
        expect_sent(s, .seq = 1, .ack = 1);
        assert_int_equal(s->tc->snd_wnd, 1000);
        peer_sends(s, .seq = 1, .ack = 1, .wnd = 1000);
        assert_int_equal(s->tc->snd_wnd, 8000);
}

/* RFC 7323 §5.2, §5.5: a reset is good however old it looks, and after 24 days of silence any
 * time is. */
static void an_old_looking_reset_is_taken(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .tsval = 9000);
        app_reads(s, 10);
        forget_sent(s);
        peer_sends(s, .seq = 11, .ack = 1, .flags = RA, .tsval = 1);
        expect_state(s, TCPS_CLOSED);
}

static void after_24_days_any_time_is_good(void **state)
{
        struct scene *s = *state;

        peer_sends(s, .seq = 1, .ack = 1, .len = 10, .tsval = 9000);
        advance_ms(s, 25u * 24 * 3600 * 1000);
        forget_sent(s);
        peer_sends(s, .seq = 11, .ack = 1, .len = 10, .tsval = 1);
        assert_int_equal(s->rig->cnt.drop[DROP_TCP_PAWS], 0);
        app_reads(s, 20);
        forget_sent(s);
}

/* MUST-1: a window of more than 32,767 is one. */
static void a_window_has_sixteen_bits(void **state)
{
        struct scene *s = *state;

        s->tc->cwnd = 1 << 20;
        app_writes(s, 50000);
        for (uint32_t i = 0; i < 40; i++)
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000);
        expect_silence(s);
        app_aborts(s);
        forget_sent(s);
}

/* REC-1, RFC 7323 §2.3: the largest there is, nearly 2^30, and in it more than 16 bits
 * could say. */
static void a_scaled_window_has_thirty_bits(void **state)
{
        struct scene *s = *state;

        assert_int_equal(s->tc->snd_wnd, 65535u << 14);
        s->tc->cwnd = 1 << 20;
        app_writes(s, 100000);
        for (uint32_t i = 0; i < 100; i++)
                expect_sent(s, .seq = 1 + 1000 * i, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 100001, .zero_wnd = true);
        app_writes(s, 1000);
        expect_silence(s); /* RFC 7323 §2.4: all of it taken back */
        peer_sends(s, .seq = 1, .ack = 100001);
        expect_sent(s, .seq = 100001, .len = 1000);
        peer_sends(s, .seq = 1, .ack = 101001);
}

/* SHLD-14: what was offered stays so, however small the buffer becomes; the window closes by
 * what arrives. */
static void a_window_once_offered_is_not_taken_back(void **state)
{
        struct scene *s = *state;

        assert_int_equal(s->tc->rcv_adv - s->tc->irs, 3001);
        s->opts.rcvbuf = 1500;
        app_sets(s);
        peer_sends(s, .seq = 1, .ack = 1, .len = 1000);
        peer_sends(s, .seq = 1001, .ack = 1, .len = 1000);
        advance_ms(s, 500);
        expect_sent(s, .ack = 2001, .wnd = 1000);
        app_reads(s, 2000); /* free are 1500, which moves the edge */
        peer_sends(s, .seq = 2001, .ack = 1, .len = 1000);
        app_reads(s, 1000);
        advance_ms(s, 500);
        forget_sent(s);
        assert_int_equal(s->tc->rcv_adv - s->tc->rcv_nxt, 1500);
}

/* SHLD-17: data beyond the edge is not acknowledged for an hour, and the peer is there. */
static void what_lies_beyond_the_edge_ends_no_connection(void **state)
{
        struct scene *s = *state;

        app_writes(s, 3000);
        forget_sent(s);
        peer_sends(s, .seq = 1, .ack = 1001, .zero_wnd = true);
        for (int i = 0; i < 3600; i++) {
                advance_ms(s, 1000);
                if (s->head != s->tail)
                        peer_sends(s, .seq = 1, .ack = 1001, .zero_wnd = true);
                forget_sent(s);
        }
        expect_state(s, TCPS_ESTABLISHED);
        peer_sends(s, .seq = 1, .ack = 3001);
}

/* MUST-9: another secret, other numbers. */
static void initial_sequence_numbers_need_the_secret(void **state)
{
        struct scene *s = *state;
        struct rig *other = rig_new(&rig_size_default, 8);

        assert_int_not_equal(iss_new(&other->t, &s->tuple, s->now),
                             iss_new(&s->rig->t, &s->tuple, s->now));
        assert_int_not_equal(ts_offset_new(&other->t, &s->tuple),
                             ts_offset_new(&s->rig->t, &s->tuple));
        rig_free(other);
}

/* MUST-41: who begins to listen takes nothing from the connections that the port has. */
static void a_new_listener_takes_no_connection(void **state)
{
        struct scene *s = *state;
        int l;

        tcp_unlisten(&s->rig->t, s->listener);
        s->listener = 0;
        l = tcp_listen(&s->rig->t, (ip_addr){{0, 0}}, s->tuple.lport, 4, &s->opts);
        assert_true(l > 0);
        assert_true(tcp_listen(&s->rig->t, s->tuple.laddr, s->tuple.lport, 4, &s->opts) > 0);
        peer_sends(s, .seq = 1, .ack = 1, .len = 100);
        app_reads(s, 100);
        app_writes(s, 100);
        expect_sent(s, .seq = 1, .len = 100, .ack = 101);
        peer_sends(s, .seq = 101, .ack = 101);
        expect_state(s, TCPS_ESTABLISHED);
        assert_false(tcp_acceptable(&s->rig->t, (uint32_t)l));
}

/* MUST-42: a port may be listened at while a connection of it is being opened. */
static void a_port_that_opens_may_listen(void **state)
{
        struct scene *s = *state;
        uint16_t rport = s->tuple.rport;
        int l = tcp_listen(&s->rig->t, (ip_addr){{0, 0}}, s->tuple.lport, 4, &s->opts);

        assert_true(l > 0);
        s->tuple.rport = 9;
        peer_sends(s, .seq = 0, .flags = S);
        expect_sent(s, .ack = 1, .flags = SA);
        s->tuple.rport = rport;
        peer_sends(s, .seq = 0, .ack = 1, .flags = SA);
        expect_sent(s, .seq = 1, .ack = 1);
        expect_state(s, TCPS_ESTABLISHED);
        tcp_unlisten(&s->rig->t, (uint32_t)l);
        advance_ms(s, 1);
        assert_int_equal(s->rig->t.sh->conns.used, 1);
}

/* SHLD-2: what a reset says in words is passed over, and the reset counts. */
static void a_reset_may_bring_data(void **state)
{
        struct scene *s = *state;
        struct span span[1];

        peer_sends(s, .seq = 1, .ack = 1, .len = 20, .flags = RA);
        expect_silence(s);
        expect_state(s, TCPS_CLOSED);
        assert_int_equal(tcp_take_error(s->tc), ECONNRESET);
        assert_int_equal(tcp_recv_peek(&s->rig->t, s->tc, 0, 20, span, 1), 0);
}

/* MUST-56: time exceeded, and a parameter problem, which ip/ calls hard. */
static void soft_icmp_errors_end_no_opening(void **state)
{
        struct scene *s = *state;

        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS, EHOSTUNREACH, false, 0, s->now);
        expect_state(s, TCPS_SYN_SENT);
        assert_int_equal(tcp_take_error(s->tc), EHOSTUNREACH);
        tcp_icmp(&s->rig->t, &s->tuple, SCENE_ISS, EPROTO, true, 0, s->now);
        expect_state(s, TCPS_SYN_SENT);
        assert_int_equal(tcp_take_error(s->tc), EPROTO);
}

/* RFC 7323 §3.2: in every segment, a reset too; §5.4: milliseconds, from a point of each
 * connection's own. */
static void timestamps_are_in_every_segment(void **state)
{
        struct scene *s = *state;
        struct tcp_tuple other = s->tuple;
        uint32_t first;

        app_writes(s, 10);
        expect_sent(s, .seq = 1, .len = 10);
        assert_true(s->last.has_ts);
        assert_int_equal(s->last.tsecr, s->tc->ts_recent);
        first = s->last.tsval;
        assert_int_not_equal(first, (uint32_t)(s->now / NS_PER_MS));
        advance_ms(s, 7);
        peer_sends(s, .seq = 1, .ack = 11, .len = 1000);
        advance_ms(s, 500);
        expect_sent(s, .seq = 11, .ack = 1001);
        assert_true(s->last.has_ts);
        assert_in_range(s->last.tsval - first, 7, 507);
        app_aborts(s);
        expect_sent(s, .seq = 11, .ack = 1001, .flags = RA);
        assert_true(s->last.has_ts);
        assert_int_equal(s->last.tsval - first, 507);
        other.rport++;
        assert_int_not_equal(ts_offset_new(&s->rig->t, &other),
                             ts_offset_new(&s->rig->t, &s->tuple));
}

/* RFC 7323 appendix A (RFC 6691): the MSS option says nothing of options; data makes room
 * for them. */
static void data_makes_room_for_timestamps(void **state)
{
        struct scene *s = *state;

        assert_int_equal(s->link.mss, 1012); /* which the SYN told: syn_sent() */
        app_writes(s, 1500);
        expect_sent(s, .seq = 1, .len = 1000);
        expect_sent(s, .seq = 1001, .len = 500);
        peer_sends(s, .seq = 1, .ack = 1501);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(a_closed_window_takes_urgent_pointers, established, &small),
                scenario(urgent_data_may_be_long, established, NULL),
                scenario(nothing_new_goes_beyond_a_shrunken_window, established, NULL),
                scenario(a_silent_connection_is_left_alone, established, NULL),
                scenario(keepalive_has_the_times_that_it_is_given, established, &keepalive),
                scenario(the_timer_begins_anew_with_each_acknowledgement, established, NULL),
                scenario(repeated_timeouts_halve_once, established, &reno),
                scenario(without_agreement_no_block_is_sent, established, NULL),
                scenario(what_was_agreed_upon_is_in_no_other_segment, established, &plain_sack),
                scenario(the_window_of_a_syn_is_not_scaled, syn_sent, &scaled),
                scenario(an_old_looking_reset_is_taken, established, &timestamps),
                scenario(after_24_days_any_time_is_good, established, &timestamps),
                scenario(a_window_has_sixteen_bits, established, &wide),
                scenario(a_scaled_window_has_thirty_bits, established, &widest),
                scenario(a_window_once_offered_is_not_taken_back, established, &small),
                scenario(what_lies_beyond_the_edge_ends_no_connection, established, NULL),
                scenario(initial_sequence_numbers_need_the_secret, scene_blank, NULL),
                scenario(a_new_listener_takes_no_connection, accepted, NULL),
                scenario(a_port_that_opens_may_listen, syn_sent, NULL),
                scenario(a_reset_may_bring_data, established, NULL),
                scenario(soft_icmp_errors_end_no_opening, syn_sent, NULL),
                scenario(timestamps_are_in_every_segment, established, &timestamps),
                scenario(data_makes_room_for_timestamps, established, &timestamps),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
