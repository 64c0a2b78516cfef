/* The simulated link: each impairment by itself, exact, and the same seed giving the same trace. */
#include <stdlib.h>

#include "tests/sim/ni_sim.h"
#include "tests/unit.h"

#define MS NS_PER_MS

struct link {
        struct sim *sim;
        uint8_t tx[2][65536];
};

static struct link *link_with(uint64_t seed, struct sim_params p)
{
        struct link *l = calloc(1, sizeof *l);
        struct sim_params dir[2] = {p, p};

        assert_non_null(l);
        l->sim = sim_create(seed, dir);
        assert_non_null(l->sim);
        for (int i = 0; i < 2; i++) {
                for (size_t k = 0; k < sizeof l->tx[i]; k++)
                        l->tx[i][k] = (uint8_t)(k * 7 + (size_t)i);
                sim_set_tx_mem(l->sim, i, unet_mem_flat(l->tx[i], sizeof l->tx[i]));
        }
        return l;
}

static void link_free(struct link *l)
{
        sim_destroy(l->sim);
        free(l);
}

/* One message of 4 bytes of number inline and `len` bytes of the segment. */
static int send_number(struct link *l, uint32_t number, uint32_t len)
{
        struct unet_tx tx = {.inl = (uint8_t *)&number,
                             .inl_len = 4,
                             .frame = len ? number + 1 : 0,
                             .off = 8,
                             .len = len};

        return sim_ops.send(sim_end(l->sim, 0), &tx, 1);
}

/* The number of the next message at side 1, -1 when there is none; its payload is checked
 * and released. */
static int64_t recv_number(struct link *l)
{
        struct unet_rx rx;
        uint32_t number;

        if (sim_ops.recv(sim_end(l->sim, 1), &rx, 1) == 0)
                return -1;
        assert_int_equal(rx.inl_len, 4);
        memcpy(&number, rx.inl, 4);
        if (rx.frame != 0) {
                struct unet_mem mem = sim_rx_mem(l->sim, 1);
                assert_memory_equal(unet_mem_at(&mem, rx.frame, rx.off, rx.len), l->tx[0] + 8,
                                    rx.len);
                sim_ops.release(sim_end(l->sim, 1), &rx.frame, 1);
        }
        return number;
}

static void a_message_arrives_after_the_delay_and_not_before(void **state)
{
        struct link *l = link_with(1, (struct sim_params){.delay = 10 * MS});

        assert_int_equal(send_number(l, 5, 1000), 1);
        assert_int_equal(sim_next(l->sim), 10 * MS);
        sim_advance(l->sim, 10 * MS - 1);
        assert_false(sim_ops.pending(sim_end(l->sim, 1)));
        sim_advance(l->sim, 10 * MS);
        assert_int_equal(recv_number(l), 5);
        assert_int_equal(sim_next(l->sim), NSTIME_NEVER);
        assert_int_equal(sim_loans(l->sim, 1), 0);
        link_free(l);
}

static void frames_come_back_at_injection(void **state)
{
        struct link *l = link_with(1, (struct sim_params){.delay = 10 * MS});
        uint32_t frame[4];

        send_number(l, 7, 100);
        send_number(l, 8, 0); /* no frame, nothing to reap */
        send_number(l, 9, 100);
        assert_int_equal(sim_ops.reap(sim_end(l->sim, 0), frame, 4), 2);
        assert_int_equal(frame[0], 8);
        assert_int_equal(frame[1], 10);
        link_free(l);
}

/* 1004 bytes at 8.032 Mb/s take a millisecond each. */
static void the_rate_spaces_packets(void **state)
{
        struct link *l = link_with(1, (struct sim_params){.rate = 8032000, .delay = 5 * MS});

        for (uint32_t i = 0; i < 3; i++)
                send_number(l, i, 1000);
        for (int i = 0; i < 3; i++) {
                assert_int_equal(sim_next(l->sim), (6 + i) * MS);
                sim_advance(l->sim, sim_next(l->sim));
                assert_int_equal(recv_number(l), i);
        }
        link_free(l);
}

static void a_full_queue_drops_the_tail_and_counts(void **state)
{
        struct link *l = link_with(1, (struct sim_params){.rate = 8032000, .queue_bytes = 2008});

        for (uint32_t i = 0; i < 5; i++)
                assert_int_equal(send_number(l, i, 1000), 1);
        assert_int_equal(sim_counters(l->sim, 0)->drop[DROP_NI_TX_FULL], 3);
        sim_advance(l->sim, 100 * MS);
        assert_int_equal(recv_number(l), 0);
        assert_int_equal(recv_number(l), 1);
        assert_int_equal(recv_number(l), -1);
        link_free(l);
}

static void a_full_send_queue_refuses_and_loses_nothing(void **state)
{
        struct link *l = link_with(1, (struct sim_params){.rate = 8032000, .tx_slots = 2});

        assert_int_equal(sim_ops.room(sim_end(l->sim, 0)), 2);
        assert_int_equal(send_number(l, 0, 1000), 1);
        assert_int_equal(send_number(l, 1, 1000), 1);
        assert_int_equal(send_number(l, 2, 1000), 0);
        assert_int_equal(sim_counters(l->sim, 0)->n[COUNT_NI_TX_FULL], 1);
        assert_int_equal(sim_next(l->sim), 1 * MS);
        sim_advance(l->sim, 1 * MS);
        assert_int_equal(send_number(l, 2, 1000), 1);
        sim_advance(l->sim, 10 * MS);
        for (int i = 0; i < 3; i++)
                assert_int_equal(recv_number(l), i);
        link_free(l);
}

static void a_full_receive_queue_drops_and_counts(void **state)
{
        struct link *l = link_with(1, (struct sim_params){.rx_slots = 2});

        for (uint32_t i = 0; i < 3; i++)
                send_number(l, i, 10);
        sim_advance(l->sim, 1);
        assert_int_equal(sim_counters(l->sim, 1)->drop[DROP_NI_QUEUE_FULL], 1);
        assert_int_equal(recv_number(l), 0);
        link_free(l);
}

/* Twice rx_slots frames; keeping the loans runs them out. */
static void kept_loans_run_the_buffers_out(void **state)
{
        struct link *l = link_with(1, (struct sim_params){.rx_slots = 4});
        struct unet_rx rx;

        for (uint32_t i = 0; i < 9; i++) {
                send_number(l, i, 10);
                sim_advance(l->sim, i);
                assert_int_equal(sim_ops.recv(sim_end(l->sim, 1), &rx, 1), i < 8);
        }
        assert_int_equal(sim_counters(l->sim, 1)->drop[DROP_NI_NO_BUFFER], 1);
        assert_int_equal(sim_loans(l->sim, 1), 8);
        link_free(l);
}

static void bad_messages_are_counted_and_their_frames_returned(void **state)
{
        struct link *l = link_with(1, (struct sim_params){.mtu = 1000});
        uint8_t b = 0;
        struct unet_tx outside = {.inl = &b, .inl_len = 1, .frame = 1, .off = 65530, .len = 10};
        struct unet_tx wraps = {.inl = &b, .inl_len = 1, .frame = 1, .off = UINT32_MAX, .len = 2};
        struct unet_tx empty = {.inl = &b};
        uint32_t frame[4], bogus = 123456;

        send_number(l, 1, 1000); /* 1004 bytes */
        sim_ops.send(sim_end(l->sim, 0), &outside, 1);
        sim_ops.send(sim_end(l->sim, 0), &wraps, 1);
        sim_ops.send(sim_end(l->sim, 0), &empty, 1);
        assert_int_equal(sim_counters(l->sim, 0)->drop[DROP_NI_MALFORMED], 4);
        assert_int_equal(sim_ops.reap(sim_end(l->sim, 0), frame, 4), 3);
        sim_ops.release(sim_end(l->sim, 0), &bogus, 1);
        assert_int_equal(sim_counters(l->sim, 0)->n[COUNT_NI_BAD_RETURN], 1);
        link_free(l);
}

static void ranges_are_gathered_in_order(void **state)
{
        struct link *l = link_with(1, (struct sim_params){0});
        struct unet_range more[2] = {{.off = 100, .len = 3}, {.off = 50, .len = 2}};
        struct unet_tx tx = {.inl = (const uint8_t *)"hd",
                             .inl_len = 2,
                             .nmore = 2,
                             .frame = 1,
                             .off = 10,
                             .len = 4,
                             .more = more};
        struct unet_mem mem = sim_rx_mem(l->sim, 1);
        struct unet_rx rx;
        uint8_t *p;

        sim_ops.send(sim_end(l->sim, 0), &tx, 1);
        sim_advance(l->sim, 0);
        assert_int_equal(sim_ops.recv(sim_end(l->sim, 1), &rx, 1), 1);
        assert_int_equal(rx.len, 9);
        p = unet_mem_at(&mem, rx.frame, rx.off, rx.len);
        assert_memory_equal(p, l->tx[0] + 10, 4);
        assert_memory_equal(p + 4, l->tx[0] + 100, 3);
        assert_memory_equal(p + 7, l->tx[0] + 50, 2);
        link_free(l);
}

/* Sends n small packets a microsecond apart and lets all arrive. */
static void run(struct link *l, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                send_number(l, i, 0);
                sim_advance(l->sim, sim_now(l->sim) + NS_PER_US);
        }
        while (sim_next(l->sim) != NSTIME_NEVER)
                sim_advance(l->sim, sim_next(l->sim));
}

static void loss_is_near_its_probability(void **state)
{
        struct link *l = link_with(42, (struct sim_params){.loss = 0.1, .rx_slots = 20000});
        uint64_t lost;

        run(l, 10000);
        lost = sim_counters(l->sim, 0)->drop[DROP_LINK_LOST];
        assert_in_range(lost, 850, 1150); /* five sigma */
        link_free(l);
}

/* Mean length of a bad period is 1 / burst_end = 20 packets. */
static void burst_loss_comes_in_bursts(void **state)
{
        struct link *l = link_with(
                42,
                (struct sim_params){.burst_start = 0.005, .burst_end = 0.05, .rx_slots = 30000});
        int64_t last = -1, got, bursts = 0, lost = 0;

        run(l, 30000);
        while ((got = recv_number(l)) >= 0) {
                bursts += got != last + 1;
                lost += got - last - 1;
                last = got;
        }
        assert_in_range(lost, 1500, 4500);
        assert_in_range(lost / bursts, 12, 30);
        link_free(l);
}

static void jitter_keeps_the_order_and_reordering_breaks_it(void **state)
{
        struct link *l = link_with(3, (struct sim_params){.delay = 1 * MS, .jitter = 1 * MS});
        int64_t got, last = -1, overtaken = 0;

        run(l, 1000);
        for (int i = 0; i < 1000; i++)
                assert_int_equal(recv_number(l), i);
        link_free(l);

        l = link_with(3, (struct sim_params){
                                 .delay = 1 * MS, .reorder = 0.05, .reorder_by = 5 * NS_PER_US});
        run(l, 1000);
        while ((got = recv_number(l)) >= 0) {
                overtaken += got < last;
                last = got;
        }
        assert_in_range(overtaken, 20, 90);
        link_free(l);
}

static void duplicates_arrive_twice(void **state)
{
        struct link *l = link_with(3, (struct sim_params){.duplicate = 1});

        run(l, 2);
        assert_int_equal(recv_number(l), 0);
        assert_int_equal(recv_number(l), 0);
        assert_int_equal(recv_number(l), 1);
        assert_int_equal(recv_number(l), 1);
        assert_int_equal(recv_number(l), -1);
        link_free(l);
}

static void corruption_flips_one_bit(void **state)
{
        struct link *l = link_with(3, (struct sim_params){.corrupt = 1});
        struct unet_rx rx;
        uint32_t number;

        assert_true(sim_caps(l->sim, 0).csum);
        send_number(l, 0, 0);
        sim_advance(l->sim, 0);
        assert_int_equal(sim_ops.recv(sim_end(l->sim, 1), &rx, 1), 1);
        memcpy(&number, rx.inl, 4);
        assert_int_equal(__builtin_popcount(number), 1);
        link_free(l);
}

static uint64_t trace_of(uint64_t seed)
{
        struct sim_params everything = {.rate = 1000000,
                                        .delay = MS,
                                        .jitter = MS,
                                        .queue_bytes = 500,
                                        .loss = 0.1,
                                        .reorder = 0.1,
                                        .reorder_by = MS,
                                        .duplicate = 0.1,
                                        .corrupt = 0.1};
        struct link *l = link_with(seed, everything);
        uint64_t trace;

        run(l, 500);
        trace = sim_trace(l->sim);
        link_free(l);
        return trace;
}

static void the_same_seed_gives_the_same_trace(void **state)
{
        assert_int_equal(trace_of(11), trace_of(11));
        assert_int_not_equal(trace_of(11), trace_of(12));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_message_arrives_after_the_delay_and_not_before),
                cmocka_unit_test(frames_come_back_at_injection),
                cmocka_unit_test(the_rate_spaces_packets),
                cmocka_unit_test(a_full_queue_drops_the_tail_and_counts),
                cmocka_unit_test(a_full_send_queue_refuses_and_loses_nothing),
                cmocka_unit_test(a_full_receive_queue_drops_and_counts),
                cmocka_unit_test(kept_loans_run_the_buffers_out),
                cmocka_unit_test(bad_messages_are_counted_and_their_frames_returned),
                cmocka_unit_test(ranges_are_gathered_in_order),
                cmocka_unit_test(loss_is_near_its_probability),
                cmocka_unit_test(burst_loss_comes_in_bursts),
                cmocka_unit_test(jitter_keeps_the_order_and_reordering_breaks_it),
                cmocka_unit_test(duplicates_arrive_twice),
                cmocka_unit_test(corruption_flips_one_bit),
                cmocka_unit_test(the_same_seed_gives_the_same_trace),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
