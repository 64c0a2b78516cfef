/*
 * BBR over whole paths, in virtual time: what it is chosen for (losses that are no congestion,
 * short buffers, long ones), and what it must not do to others. The machine's steps have tests of
 * their own: tests/tcp/bbr_test.c.
 */
#include "tcp/tcp_bbr.h"
#include "tests/sim/bed.h"
#include "tests/unit.h"

/* What a stream has of a wire of 100 Mb/s with packets of 1500 bytes: their headers and timestamps
 * take the rest. */
#define WIRE_KBPS 96500u
#define RTT       (40 * NS_PER_MS)
#define BDP       500000u

/* Kb/s of one stream over 100 Mb/s and 40 ms, after three seconds, for ten. */
static unsigned alone(const char *cc, uint64_t queue, double loss)
{
        struct bed b = bed(1, 100, RTT, queue, loss);
        unsigned kbps[FLOWS_MOST];

        bed_opens(&b, cc);
        bed_runs(&b, 3 * NS_PER_S);
        bed_measures(&b, 10 * NS_PER_S, kbps);
        pair_check(b.p);
        pair_free(b.p);
        return kbps[0];
}

/* One packet in a hundred is lost, and not for want of room: CUBIC takes each for congestion. */
static void losses_at_random_do_not_stop_it(void **state)
{
        assert_in_range(alone("bbr", 2 * BDP, 0.01), WIRE_KBPS * 80 / 100, WIRE_KBPS);
        assert_in_range(alone("cubic", 2 * BDP, 0.01), 0, WIRE_KBPS * 10 / 100);
}

/* A queue of a tenth, and of a twentieth, of what is under way. */
static void a_short_queue_is_enough(void **state)
{
        assert_in_range(alone("bbr", BDP / 10, 0), WIRE_KBPS * 87 / 100, WIRE_KBPS);
        assert_in_range(alone("bbr", BDP / 20, 0), WIRE_KBPS * 78 / 100, WIRE_KBPS);
        assert_in_range(alone("cubic", BDP / 20, 0), 0, WIRE_KBPS * 40 / 100);
}

/* What CUBIC fills to the brim is left empty but for the probes: the round trip is not twice the
 * shortest, and seldom much more. */
static void a_long_queue_stays_empty(void **state)
{
        struct bed b = bed(1, 100, RTT, 20 * BDP, 0);
        struct flow *f = bed_opens(&b, "bbr");
        nstime sum = 0, most = 0;
        unsigned n = 500;

        bed_runs(&b, 2 * NS_PER_S);
        for (unsigned i = 0; i < n; i++) {
                bed_runs(&b, 20 * NS_PER_MS);
                sum += bed_sender(&b, f)->srtt;
                most = MAX(most, bed_sender(&b, f)->srtt);
        }
        print_message("  mean %.1f ms, most %.1f ms\n", (double)sum / n / 1e6, (double)most / 1e6);
        assert_true(sum / n <= RTT * 5 / 4);
        assert_true(most <= 2 * RTT);
        assert_in_range(f->got * 8 / 12, WIRE_KBPS * 1000ull * 90 / 100, WIRE_KBPS * 1000ull);
        pair_free(b.p);
}

/* (sum x)^2 / (n sum x^2), in thousandths. */
static unsigned jain(const unsigned *x, unsigned n)
{
        uint64_t sum = 0, squares = 0;

        for (unsigned i = 0; i < n; i++) {
                sum += x[i];
                squares += (uint64_t)x[i] * x[i];
        }
        return (unsigned)(sum * sum * 1000 / (n * squares));
}

static void two_share(void **state)
{
        for (unsigned tenths = 1; tenths <= 20; tenths += 19) {
                struct bed b = bed(tenths, 100, RTT, BDP * tenths / 10, 0);
                unsigned kbps[FLOWS_MOST];
                bed_opens(&b, "bbr");
                bed_runs(&b, 4 * NS_PER_S); /* one is there already */
                bed_opens(&b, "bbr");
                bed_runs(&b, 6 * NS_PER_S);
                bed_measures(&b, 20 * NS_PER_S, kbps);
                assert_in_range(jain(kbps, 2), 800, 1000);
                assert_in_range(kbps[0] + kbps[1], WIRE_KBPS * 85 / 100, WIRE_KBPS);
                pair_free(b.p);
        }
}

/* Whoever has the longer breath: in a long queue CUBIC, in a short one BBR, and neither alone. */
static void cubic_is_not_starved(void **state)
{
        static const unsigned tenths[] = {2, 40};

        for (unsigned i = 0; i < ARRAY_LEN(tenths); i++) {
                struct bed b = bed(1, 100, RTT, BDP * tenths[i] / 10, 0);
                unsigned kbps[FLOWS_MOST];
                bed_opens(&b, "cubic");
                bed_opens(&b, "bbr");
                bed_runs(&b, 5 * NS_PER_S);
                bed_measures(&b, 20 * NS_PER_S, kbps);
                assert_in_range(kbps[0], WIRE_KBPS * 15 / 100, WIRE_KBPS);
                assert_in_range(kbps[1], WIRE_KBPS * 15 / 100, WIRE_KBPS);
                pair_free(b.p);
        }
}

/* A program that sends little for a while does not make the path look small. */
static void little_to_send_says_nothing_about_the_path(void **state)
{
        struct bed b = bed(1, 100, RTT, BDP, 0);
        struct flow *f = bed_opens(&b, "bbr");
        unsigned kbps[FLOWS_MOST];
        uint64_t before;

        bed_runs(&b, 3 * NS_PER_S);
        before = bbr_max_bw(bbr_of(bed_sender(&b, f)));
        f->every = 100 * NS_PER_MS;
        f->piece = 50000;
        f->next = b.p->now + NS_PER_S; /* what is in the buffer leaves first */
        bed_runs(&b, NS_PER_S);
        bed_measures(&b, 10 * NS_PER_S, kbps);
        assert_in_range(kbps[0], 3900, 4100);
        assert_in_range(bbr_max_bw(bbr_of(bed_sender(&b, f))), before * 9 / 10, before * 11 / 10);
        f->every = 0;
        bed_runs(&b, NS_PER_S);
        bed_measures(&b, 2 * NS_PER_S, kbps);
        assert_in_range(kbps[0], WIRE_KBPS * 85 / 100, WIRE_KBPS);
        pair_free(b.p);
}

static void goes_on_after_an_outage(void **state)
{
        struct bed b = bed(1, 100, RTT, BDP, 0);
        struct flow *f = bed_opens(&b, "bbr");
        unsigned kbps[FLOWS_MOST];

        bed_runs(&b, 4 * NS_PER_S);
        b.dir[0].loss = 1;
        sim_set_params(b.p->sim, 0, &b.dir[0]);
        bed_runs(&b, 3 * NS_PER_S);
        b.dir[0].loss = 0;
        sim_set_params(b.p->sim, 0, &b.dir[0]);
        bed_runs(&b, 4 * NS_PER_S); /* the timeout has been put off for so long */
        assert_int_equal(bed_sender(&b, f)->ca_state, CA_OPEN);
        bed_measures(&b, 10 * NS_PER_S, kbps);
        assert_in_range(kbps[0], WIRE_KBPS * 85 / 100, WIRE_KBPS);
        pair_free(b.p);
}

/* §5.3.4: every five seconds, for two tenths of one, with half of what the path holds. */
static void the_round_trip_is_probed(void **state)
{
        struct bed b = bed(1, 100, RTT, BDP, 0);
        struct flow *f = bed_opens(&b, "bbr");
        nstime began = b.p->now, last = began, in = 0;
        unsigned probes = 0;
        bool was = false;

        while (b.p->now < began + 21 * NS_PER_S) {
                struct bbr *x = bbr_of(bed_sender(&b, f));
                bool is;
                bed_runs(&b, 10 * NS_PER_MS);
                is = x->state == BBR_PROBE_RTT;
                if (is && !was) {
                        assert_in_range((b.p->now - last) / NS_PER_MS, 4900, 5600);
                        last = b.p->now;
                        probes++;
                }
                in += is ? 10 * NS_PER_MS : 0;
                if (is && x->probe_rtt_done != 0)
                        assert_in_range(pipe_bytes(bed_sender(&b, f)), 0, BDP * 6 / 10);
                was = is;
        }
        assert_in_range(probes, 3, 4);
        assert_in_range(in / probes / NS_PER_MS, 200, 350);
        pair_free(b.p);
}

/* §5.4.1: who was silent has let the path drain already. */
static void silence_is_a_probe(void **state)
{
        struct bed b = bed(1, 100, RTT, BDP, 0);
        struct flow *f = bed_opens(&b, "bbr");
        uint64_t got;

        bed_runs(&b, 4 * NS_PER_S);
        f->every = 6 * NS_PER_S; /* a write of little, and then of all there is */
        f->next = b.p->now + f->every;
        f->piece = 1000;
        bed_runs(&b, f->every - 1);
        f->every = 0;
        got = f->got;
        for (nstime end = b.p->now + NS_PER_S; b.p->now < end;) {
                bed_runs(&b, 10 * NS_PER_MS);
                assert_int_not_equal(bbr_of(bed_sender(&b, f))->state, BBR_PROBE_RTT);
        }
        assert_in_range((f->got - got) * 8 / 1000, WIRE_KBPS * 80 / 100, WIRE_KBPS);
        pair_free(b.p);
}

/* The draft's test cases of that name: within some cycles of probing. */
static void ten_times_more_and_less_is_found(void **state)
{
        struct bed b = bed(1, 10, RTT, BDP, 0);
        unsigned kbps[FLOWS_MOST];

        bed_opens(&b, "bbr");
        bed_runs(&b, 4 * NS_PER_S);
        b.dir[0].rate = 100 * MBPS;
        sim_set_params(b.p->sim, 0, &b.dir[0]);
        bed_runs(&b, 6 * NS_PER_S);
        bed_measures(&b, 5 * NS_PER_S, kbps);
        assert_in_range(kbps[0], WIRE_KBPS * 85 / 100, WIRE_KBPS);
        b.dir[0].rate = 10 * MBPS;
        sim_set_params(b.p->sim, 0, &b.dir[0]);
        bed_runs(&b, 10 * NS_PER_S);
        bed_measures(&b, 10 * NS_PER_S, kbps);
        assert_in_range(kbps[0], WIRE_KBPS * 85 / 1000, WIRE_KBPS / 10);
        assert_true(bed_sender(&b, &b.flow[0])->srtt < 4 * RTT);
        pair_free(b.p);
}

/* Between hosts of one room: a quantum takes no longer than a round trip. */
static void a_short_way_is_filled(void **state)
{
        struct bed b = bed(1, 10000, 100 * NS_PER_US, 1000000, 0);
        unsigned kbps[FLOWS_MOST];

        bed_opens(&b, "bbr");
        bed_runs(&b, NS_PER_S / 20);
        bed_measures(&b, NS_PER_S / 20, kbps);
        assert_in_range(kbps[0], 85 * WIRE_KBPS, 100 * WIRE_KBPS);
        pair_free(b.p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(losses_at_random_do_not_stop_it),
                cmocka_unit_test(a_short_queue_is_enough),
                cmocka_unit_test(a_long_queue_stays_empty),
                cmocka_unit_test(two_share),
                cmocka_unit_test(cubic_is_not_starved),
                cmocka_unit_test(little_to_send_says_nothing_about_the_path),
                cmocka_unit_test(goes_on_after_an_outage),
                cmocka_unit_test(the_round_trip_is_probed),
                cmocka_unit_test(silence_is_a_probe),
                cmocka_unit_test(ten_times_more_and_less_is_found),
                cmocka_unit_test(a_short_way_is_filled),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
