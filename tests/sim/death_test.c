/* Death at every store of what a process does with its connections (tests/sim/death.h). */
#include "tcp/tcp_lend.h"
#include "tcp/tcp_listen.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_plan.h"
#include "tcp/tcp_stamp.h"
#include "tcp/tcp_stream.h"
#include "tcp/tcp_watch.h"
#include "tests/sim/death.h"

#include <errno.h>
#include <stdlib.h>
#include "tests/unit.h"

static void writes_little(struct view *v)
{
        write_bytes(v, 0, 0, 60);
}

/* Bytes that make the last unsent segment longer: the short way of small writes. */
static void appends(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);

        stack_begin(s->st, tc->self);
        assert_true(tcp_send_append(&s->tcp, tc, &stream[0][0][tc->snd_end - tc->iss - 1], 40));
        stack_end(s->st);
}

/* The short way of small reads. */
static void reads_some(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);
        uint32_t off = copied_seq(tc) - tc->irs - 1;
        uint8_t buf[40];

        stack_begin(s->st, tc->self);
        assert_true(tcp_recv_take(&s->tcp, tc, buf, sizeof buf));
        stack_end(s->st);
        assert_memory_equal(buf, &stream[1][0][off], sizeof buf);
}

/* Bytes that were read and did not find the application's memory. */
#define RETURNED 40u

static void gives_back(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);
        uint32_t seq = copied_seq(tc), off = seq - RETURNED - tc->irs - 1;

        stack_begin(s->st, tc->self);
        assert_true(tcp_recv_give_back(&s->tcp, tc, &stream[1][0][off], RETURNED, seq));
        assert_false(tcp_recv_give_back(&s->tcp, tc, &stream[1][0][off], RETURNED, seq));
        stack_end(s->st);
        assert_int_equal(copied_seq(tc), seq - RETURNED);
}

static void lends(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);
        struct tcp_lent lent[8];

        s->now = v->w->now;
        stack_begin(s->st, tc->self);
        assert_true(tcp_recv_lend(&s->tcp, tc, LENDS, false, lent, 8, v->w->now) > 0);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

/* The same as a copy of what came in the peer's frames. */
static void lends_copies(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_lent lent[8];

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        assert_true(tcp_recv_lend(&s->tcp, conn(v, 0, 0), LENDS, true, lent, 8, v->w->now) > 0);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

static void returns(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);

        s->now = v->w->now;
        for (uint32_t i = s->tcp.sh->loans.fresh - 1; i != 0; i--) {
                uint64_t token = (uint64_t)loan(v, i)->serial << 32 | i;
                if (loan(v, i)->proc == 0)
                        continue;
                stack_begin(s->st, tc->self);
                assert_int_equal(tcp_recv_return(&s->tcp, tc, LENDS, token, v->w->now), 0);
                stack_end(s->st);
        }
        stack_flush(s, v->w->now);
}

/* Acknowledgements that free what was sent, in whole and in part, and data on both connections. */
static void prepare_acks(struct view *v)
{
        for (int i = 0; i < 4; i++)
                write_bytes(v, 0, 0, 1500);
        stack_run(&v->s[1], v->w->now);
        read_bytes(v, 1, 0, 4000);
        write_bytes(v, 1, 0, 700);
        stack_flush_acks(&v->s[1], v->w->now);
}

/* Marks that are reached and some that are not. */
static void watches(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_marks m = {.acked = 1, .rtt = 1, .unsent_below = 500, .limits = ~0u};

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        tcp_watch_set(&s->tcp, conn(v, 0, 0), &m);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

static void asks_for_times(struct view *v)
{
        struct stack *s = &v->s[0];

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        tcp_stamp_ask(&s->tcp, conn(v, 0, 0), TCP_STAMP_QUEUED | TCP_STAMP_SENT | TCP_STAMP_ACKED);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

/* After a plan another one, whose window is smaller. */
static void plans(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);
        struct tcp_plan plan = {.rate = 1 << 30, .good_for = 60 * NS_PER_S};
        struct tcp_plan_report r;

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        assert_int_equal(tcp_plan_take(tc, &r, v->w->now), 0);
        plan.serial = r.serial;
        plan.cwnd = r.serial == 0 ? 2 * r.cwnd : r.cwnd / 2;
        assert_int_equal(tcp_plan_set(&s->tcp, tc, &plan, v->w->now), 0);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

static void prepare_watched_acks(struct view *v)
{
        watches(v);
        prepare_acks(v);
}

static void prepare_planned_acks(struct view *v)
{
        plans(v);
        prepare_acks(v);
}

static void prepare_timed(struct view *v)
{
        write_bytes(v, 0, 0, 500);
}

static void prepare_timed_acks(struct view *v)
{
        prepare_timed(v);
        asks_for_times(v);
        prepare_acks(v);
        asks_for_times(v);
}

static void prepare_told_times(struct view *v)
{
        prepare_timed_acks(v);
        runs_with_input(v);
        assert_true(conn(v, 0, 0)->stamped > 3);
}

/* The next `n` messages to a side are lost; then the rest is received. */
static void lose(struct view *v, int side, int n)
{
        struct unet_chan *ch = &v->chan[side].base;
        struct unet_rx rx;

        for (int i = 0; i < n; i++) {
                assert_int_equal(ch->ops->recv(ch, &rx, 1), 1);
                if (rx.frame != 0)
                        ch->ops->release(ch, &rx.frame, 1);
        }
}

/* Data beyond a gap. */
static void prepare_gap(struct view *v)
{
        conn(v, 1, 0)->nodelay = 1;
        write_bytes(v, 1, 0, 1400);
        lose(v, 0, 1);
        write_bytes(v, 1, 0, 1400);
        write_bytes(v, 1, 0, 60);
}

/* What fills the gap, after what lies beyond it. */
static void prepare_filling(struct view *v)
{
        prepare_gap(v);
        stack_run(&v->s[0], v->w->now);
        stack_flush_acks(&v->s[0], v->w->now);
        v->w->now += 300 * NS_PER_MS;
        stack_run(&v->s[1], v->w->now);
}

/* The peer says that one of ours is missing. */
static void prepare_sack(struct view *v)
{
        conn(v, 0, 0)->nodelay = 1;
        for (int i = 0; i < 4; i++)
                write_bytes(v, 0, 0, 1400);
        lose(v, 1, 1);
        stack_run(&v->s[1], v->w->now);
        stack_flush_acks(&v->s[1], v->w->now);
        v->w->now += 10 * NS_PER_MS;
}

/* RFC 1191: smaller segments from now on. What is queued is cut. */
static void cuts(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_conn *tc = conn(v, 0, 0);

        s->now = v->w->now;
        stack_begin(s->st, tc->self);
        tcp_icmp(&s->tcp, &tc->tuple, tc->snd_una, EMSGSIZE, false, 540, v->w->now);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

static void takes_times(struct view *v)
{
        struct stack *s = &v->s[0];
        struct tcp_stamp stamp;

        stack_begin(s->st, v->w->conn[0][0]);
        while (tcp_stamp_take(&s->tcp, conn(v, 0, 0), &stamp))
                assert_true(stamp.at <= v->w->now && stamp.what != 0);
        stack_end(s->st);
}

static void prepare_cut(struct view *v)
{
        write_bytes(v, 0, 0, 3000);
        write_bytes(v, 0, 0, 1400);
}

static void shuts_down(struct view *v)
{
        struct stack *s = &v->s[0];

        s->now = v->w->now;
        stack_begin(s->st, v->w->conn[0][0]);
        tcp_shutdown_send(&s->tcp, conn(v, 0, 0), v->w->now);
        stack_end(s->st);
        stack_flush(s, v->w->now);
}

/* The answer to our FIN, and the peer's own. */
static void prepare_last(struct view *v)
{
        prepare_close(v);
        shuts_down(v);
        stack_run(&v->s[1], v->w->now);
        read_bytes(v, 1, 0, 100000);
        v->s[1].now = v->w->now;
        stack_begin(v->s[1].st, v->w->conn[1][0]);
        tcp_shutdown_send(&v->s[1].tcp, conn(v, 1, 0), v->w->now);
        stack_end(v->s[1].st);
        stack_flush(&v->s[1], v->w->now);
        stack_flush_acks(&v->s[1], v->w->now);
}

static void opens(struct view *v)
{
        open_from(v, 0, 41000);
}

static void prepare_syn(struct view *v)
{
        open_from(v, 1, 41001);
}

/* And its headers are kept. */
static void prepare_saved_syn(struct view *v)
{
        struct tcp_opts o;

        tcp_opts_default(&o);
        o.save_syn = 1;
        tcp_listen_opts(&v->s[0].tcp, v->w->listener[0], &o);
        prepare_syn(v);
}

static void prepare_timers(struct view *v)
{
        write_bytes(v, 0, 0, 1000);
        write_bytes(v, 0, 1, 1000);
        v->w->now += 300 * NS_PER_MS;
}

static void a_small_write_may_end_anywhere(void **state)
{
        dies_everywhere(.act = writes_little);
}

static void a_large_write_may_end_anywhere(void **state)
{
        dies_everywhere(.act = writes_much);
}

static void a_write_to_the_tail_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_tail, .act = appends);
}

static void a_read_may_end_anywhere(void **state)
{
        dies_everywhere(.act = reads_all, .reads = true);
}

static void a_small_read_may_end_anywhere(void **state)
{
        dies_everywhere(.act = reads_some, .reads = true);
}

static void giving_back_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = reads_some, .act = gives_back, .gives_back = RETURNED);
        dies_everywhere(.prepare = reads_all, .act = gives_back, .gives_back = RETURNED);
}

/* Some of it leaves, some waits; and the peer gives back what it has read of an earlier one. */
static void sends_by_name(struct view *v)
{
        write_by_name(v, 0, 0, 9000);
        runs_with_input(v);
}

static void prepare_by_name(struct view *v)
{
        write_by_name(v, 0, 0, 5000);
        write_by_name(v, 0, 0, 5000);
        assert_true(stack_run(&v->s[1], v->w->now));
        read_bytes(v, 1, 0, 7000);
}

static void sending_by_name_may_end_anywhere(void **state)
{
        dies_everywhere(.act = sends_by_name);
        dies_everywhere(.prepare = prepare_by_name, .act = sends_by_name);
        dies_everywhere(.prepare = prepare_by_name, .act = runs_with_input);
        dies_everywhere(.prepare = prepare_by_name, .act = closes, .after = RESETS);
}

static void lending_may_end_anywhere(void **state)
{
        dies_everywhere(.act = lends, .reads = true);
        dies_everywhere(.act = lends_copies, .reads = true);
}

static void returning_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = lends, .act = returns);
        dies_everywhere(.prepare = lends_copies, .act = returns);
}

static void a_turn_with_input_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_input, .act = runs_with_input);
}

static void a_turn_with_acks_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_acks, .act = runs_with_input);
}

static void a_turn_with_a_gap_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_gap, .act = runs_with_input);
}

static void a_turn_that_fills_a_gap_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_filling, .act = runs_with_input);
}

static void a_turn_with_a_loss_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_sack, .act = runs_with_input);
}

static void cutting_segments_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_cut, .act = cuts);
}

static void changing_the_window_may_end_anywhere(void **state)
{
        dies_everywhere(.act = changes_window);
        dies_everywhere(.prepare = changes_window, .act = changes_window);
}

static void a_grant_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = changes_window, .act = grants);
}

static void setting_a_watch_may_end_anywhere(void **state)
{
        dies_everywhere(.act = watches);
        dies_everywhere(.prepare = watches, .act = watches);
}

static void a_turn_with_acks_that_are_watched_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_watched_acks, .act = runs_with_input);
}

static void times_of_sending_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_timed, .act = asks_for_times);
        dies_everywhere(.prepare = prepare_timed_acks, .act = runs_with_input);
        dies_everywhere(.prepare = prepare_told_times, .act = takes_times);
        dies_everywhere(.prepare = prepare_told_times, .act = closes, .after = RESETS);
}

static void a_plan_may_end_anywhere(void **state)
{
        dies_everywhere(.act = plans);
        dies_everywhere(.prepare = plans, .act = plans);
}

static void a_turn_with_acks_by_plan_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_planned_acks, .act = runs_with_input);
}

static void a_shutdown_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_close, .act = shuts_down, .after = CLOSES);
}

static void a_close_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_close, .act = closes, .after = CLOSES);
}

static void a_close_with_data_unread_may_end_anywhere(void **state)
{
        dies_everywhere(.act = closes, .after = RESETS);
}

static void a_turn_with_the_last_segments_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_last, .act = runs_with_input, .after = CLOSES);
}

static void a_connect_may_end_anywhere(void **state)
{
        dies_everywhere(.act = opens);
}

static void a_turn_with_a_syn_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_syn, .act = runs_with_input);
        dies_everywhere(.prepare = prepare_saved_syn, .act = runs_with_input);
}

static void a_turn_of_timers_may_end_anywhere(void **state)
{
        dies_everywhere(.prepare = prepare_timers, .act = runs_with_input);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_small_write_may_end_anywhere),
                cmocka_unit_test(a_large_write_may_end_anywhere),
                cmocka_unit_test(a_write_to_the_tail_may_end_anywhere),
                cmocka_unit_test(a_read_may_end_anywhere),
                cmocka_unit_test(a_small_read_may_end_anywhere),
                cmocka_unit_test(giving_back_may_end_anywhere),
                cmocka_unit_test(sending_by_name_may_end_anywhere),
                cmocka_unit_test(lending_may_end_anywhere),
                cmocka_unit_test(returning_may_end_anywhere),
                cmocka_unit_test(a_turn_with_input_may_end_anywhere),
                cmocka_unit_test(a_turn_with_acks_may_end_anywhere),
                cmocka_unit_test(a_turn_with_a_gap_may_end_anywhere),
                cmocka_unit_test(a_turn_that_fills_a_gap_may_end_anywhere),
                cmocka_unit_test(a_turn_with_a_loss_may_end_anywhere),
                cmocka_unit_test(cutting_segments_may_end_anywhere),
                cmocka_unit_test(changing_the_window_may_end_anywhere),
                cmocka_unit_test(a_grant_may_end_anywhere),
                cmocka_unit_test(setting_a_watch_may_end_anywhere),
                cmocka_unit_test(a_turn_with_acks_that_are_watched_may_end_anywhere),
                cmocka_unit_test(times_of_sending_may_end_anywhere),
                cmocka_unit_test(a_plan_may_end_anywhere),
                cmocka_unit_test(a_turn_with_acks_by_plan_may_end_anywhere),
                cmocka_unit_test(a_shutdown_may_end_anywhere),
                cmocka_unit_test(a_close_may_end_anywhere),
                cmocka_unit_test(a_close_with_data_unread_may_end_anywhere),
                cmocka_unit_test(a_turn_with_the_last_segments_may_end_anywhere),
                cmocka_unit_test(a_connect_may_end_anywhere),
                cmocka_unit_test(a_turn_with_a_syn_may_end_anywhere),
                cmocka_unit_test(a_turn_of_timers_may_end_anywhere),
        };

        make_streams();
        cmocka_set_test_filter(getenv("UNET_TEST_FILTER"));
        return cmocka_run_group_tests(tests, NULL, NULL);
}
