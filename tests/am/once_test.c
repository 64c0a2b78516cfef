/*
 * Handlers run exactly once, byte for byte, over a network that loses, copies, overtakes, spoils
 * and refuses: jobs in virtual time, a seed each. --seeds N [--from S] runs others.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "am/am_int.h"
#include "tests/am/job.h"
#include "tests/long_run.h"
#include "tests/unit.h"

#define MOST_RANKS 4u
#define SEG        20480u
#define NUMBERS    64u /* requests of each rank to each other */

static uint64_t seeds, first_seed = 1;

enum { ASK, ANSWER, TELL };

struct world {
        uint64_t seed;
        uint32_t ranks, count;
        uint8_t seen[MOST_RANKS][MOST_RANKS][NUMBERS]; /* handlers run, by target, source, number */
        uint8_t answered[MOST_RANKS][MOST_RANKS][NUMBERS]; /* at the source, by target */
        uint8_t seg[MOST_RANKS][SEG];
        uint32_t wrong, lost, timeouts; /* the last: of rank 0 */
        int lost_err;
};

/* What a message says follows from who sends it and its number. */
static size_t size_of(uint64_t from, uint64_t to, uint64_t number)
{
        static const size_t sizes[] = {0, 1, 8, 100, 199, 200, 777, 2000};

        return sizes[(from * 5 + to * 3 + number) % ARRAY_LEN(sizes)];
}

static void fill(uint8_t *p, size_t n, uint64_t from, uint64_t number)
{
        for (size_t i = 0; i < n; i++)
                p[i] = (uint8_t)(i * 31 + from * 101 + number * 7);
}

static bool is_right(const uint8_t *p, size_t n, uint64_t from, uint64_t number)
{
        for (size_t i = 0; i < n; i++)
                if (p[i] != (uint8_t)(i * 31 + from * 101 + number * 7))
                        return false;
        return true;
}

static void on_request(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                       void *ctx)
{
        struct world *w = ctx;
        uint32_t me = uam_rank(uam_token_am(t)), from = uam_token_rank(t);
        uint8_t back[2000];

        if (nargs != 3 || arg[0] >= w->count || arg[1] != from || arg[2] != ~arg[0] ||
            (len != 0 &&
             (len != size_of(from, me, arg[0]) || !is_right(data, len, from, arg[0])))) {
                w->wrong++;
                return;
        }
        w->seen[me][from][arg[0]]++;
        switch (arg[0] % 3) {
        case 0:
                w->wrong += uam_reply_short(t, ANSWER, arg, nargs) != 0;
                break;
        case 1:
                fill(back, size_of(me, from, arg[0]), me, arg[0]);
                w->wrong += uam_reply_medium(t, ANSWER, back, size_of(me, from, arg[0]), arg,
                                             nargs) != 0;
        }
}

static void on_reply(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                     void *ctx)
{
        struct world *w = ctx;
        uint32_t me = uam_rank(uam_token_am(t)), from = uam_token_rank(t);

        if (nargs != 3 || arg[0] >= w->count || arg[1] != me ||
            (arg[0] % 3 == 1 && !is_right(data, len, from, arg[0])))
                w->wrong++;
        else
                w->answered[me][from][arg[0]]++;
}

static void on_lost(void *arg, uint32_t rank, int err)
{
        struct world *w = arg;

        w->lost++;
        w->lost_err = err;
}

static void send_one(struct world *w, struct uam *am, uint32_t to, uint64_t number,
                     struct uam_event *e)
{
        uint32_t me = uam_rank(am);
        uam_arg arg[3] = {number, me, ~number};
        size_t n = size_of(me, to, number);
        uint8_t data[2000];
        int err;

        fill(data, n, me, number);
        if (number % 4 == 3)
                err = uam_request_long(am, to, ASK, 0, data, n, me * 2048 + number % 2 * 8192,
                                       number % 8 == 3 ? e : NULL, arg, 3);
        else if (number % 4 == 2)
                err = uam_request_medium(am, to, ASK, 0, data, n, arg, 3);
        else
                err = uam_request_short(am, to, ASK, 0, arg, 3);
        w->wrong += err != 0;
}

static void set_up(struct world *w, struct uam *am)
{
        uam_register(am, ASK, on_request, UAM_ANY & ~UAM_REPLY, w);
        uam_register(am, ANSWER, on_reply, UAM_ANY & ~UAM_REQUEST, w);
        uam_on_lost(am, on_lost, w);
        uam_segment(am, w->seg[uam_rank(am)], SEG);
}

static bool all_answered(const struct world *w, uint32_t me)
{
        for (uint32_t r = 0; r < w->ranks; r++)
                for (uint64_t n = 0; n < w->count; n++)
                        if (r != me && n % 3 != 2 && w->answered[me][r][n] == 0)
                                return false;
        return true;
}

static void everybody_to_everybody(struct job *j, struct uam *am, void *arg)
{
        struct world *w = arg;
        struct uam_event e = {0};
        uint32_t me = uam_rank(am);
        uint8_t got[600];

        set_up(w, am);
        memset(w->seg[me] + 16384, (int)me + 1, 4096);
        for (uint64_t n = 0; n < w->count; n++)
                for (uint32_t r = 0; r < w->ranks; r++)
                        if (r != me)
                                send_one(w, am, r, n, &e);
        for (uint32_t r = 0; r < w->ranks; r++) {
                if (r == me)
                        continue;
                w->wrong += uam_flush(am, r, UNET_FOREVER) != 0;
                w->wrong += uam_get(am, r, 16384 + me, got, sizeof got, &e) != 0;
                uam_wait_for(am, e.left == 0);
                for (size_t i = 0; i < sizeof got; i++)
                        w->wrong += got[i] != r + 1;
        }
        w->wrong += e.err != 0;
        uam_wait_for(am, all_answered(w, me));
}

/* What is not as it must be; NULL: all is. */
static const char *check(const struct world *w)
{
        for (uint32_t a = 0; a < w->ranks; a++)
                for (uint32_t b = 0; b < w->ranks; b++)
                        for (uint64_t n = 0; n < w->count; n++) {
                                if (w->seen[a][b][n] != (a != b))
                                        return w->seen[a][b][n] > 1 ? "a request ran twice"
                                                                    : "a request did not run";
                                if (w->answered[a][b][n] != (a != b && n % 3 != 2))
                                        return "a reply did not run once";
                        }
        return w->wrong != 0  ? "something came wrong, or a call failed"
               : w->lost != 0 ? "a peer was lost"
                              : NULL;
}

static void print_stats(void)
{
        for (int i = 0; i < UAM_NSTATS; i++)
                print_message("  %8lu %s\n", (unsigned long)job_stat((enum uam_stat)i),
                              uam_stat_text((enum uam_stat)i));
}

static void must_be_right(const struct world *w, bool ended, const char *what)
{
        const char *wrong = ended ? check(w) : "it did not end";

        if (wrong == NULL)
                return;
        print_message("%s, seed %lu: %s\n", what, (unsigned long)w->seed, wrong);
        print_stats();
        fail();
}

static struct job_opts opts_of(struct world *w, uint64_t seed)
{
        struct prng_fast g;
        struct job_opts o = {.net.seed = seed};

        prng_fast_init(&g, seed);
        memset(w, 0, sizeof *w);
        w->seed = seed;
        w->ranks = 2 + prng_fast_below(&g, MOST_RANKS - 1);
        w->count = 4 + prng_fast_below(&g, 28);
        o.net.nodes = w->ranks;
        o.am.window = 1 + prng_fast_below(&g, 8);
        o.am.buffer_bytes = 2048;
        o.net.loss = prng_fast_below(&g, 300) / 1000.0;
        o.net.twice = prng_fast_below(&g, 200) / 1000.0;
        o.net.late = prng_fast_below(&g, 200) / 1000.0;
        o.net.corrupt = prng_fast_below(&g, 2) != 0 ? prng_fast_below(&g, 100) / 1000.0 : 0;
        o.net.refuse = prng_fast_below(&g, 2) != 0 ? prng_fast_below(&g, 300) / 1000.0 : 0;
        o.net.jitter = prng_fast_below(&g, 2) != 0 ? 20 * NS_PER_US : 0;
        return o;
}

static void every_handler_runs_once_whatever_the_network_does(void **state)
{
        static struct world w;
        uint64_t sums[UAM_NSTATS] = {0};

        for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++) {
                struct job_opts o = opts_of(&w, seed);
                must_be_right(&w, job_run(&o, everybody_to_everybody, &w), "by chance");
                for (int i = 0; i < UAM_NSTATS; i++)
                        sums[i] += job_stat((enum uam_stat)i);
        }
        /* Every repair was needed in some run: the test tests what it says. */
        assert_true(sums[UAM_STAT_REPEATED] && sums[UAM_STAT_NACKS] && sums[UAM_STAT_TIMEOUTS] &&
                    sums[UAM_STAT_DUPLICATES] && sums[UAM_STAT_GAPS] && sums[UAM_STAT_CHECKSUM] &&
                    sums[UAM_STAT_NO_PLACE]);
        assert_int_equal(sums[UAM_STAT_MALFORMED] + sums[UAM_STAT_STRAYS], 0);
}

/* ---- what is sent again ---- */

/* What runs have sent, and what of it they have sent again. */
struct repeats {
        uint64_t repeated, sent;
};

static void count_repeats(struct repeats *r)
{
        r->repeated += job_stat(UAM_STAT_REPEATED);
        r->sent += job_stat(UAM_STAT_REQUESTS) + job_stat(UAM_STAT_REPLIES);
}

/* So many of a hundred. */
static double share(const struct repeats *r, const char *of)
{
        double percent = 100.0 * (double)r->repeated / (double)r->sent;

        print_message("of %s, sent again: %.1f of a hundred\n", of, percent);
        return percent;
}

static double share_of_messages(struct fabric_opts net)
{
        static struct world w;
        struct repeats repeats = {0};

        for (uint64_t seed = 1; seed <= 50; seed++) {
                struct job_opts o = {.net = net, .am.buffer_bytes = 2048};

                o.net.nodes = 2;
                o.net.seed = seed;
                memset(&w, 0, sizeof w);
                w.seed = seed;
                w.ranks = 2;
                w.count = NUMBERS;
                must_be_right(&w, job_run(&o, everybody_to_everybody, &w), "sent again");
                count_repeats(&repeats);
        }
        return share(&repeats, "messages");
}

/* What came too early waits for its turn; the first network leaves no order at all. */
static void only_what_is_missing_is_sent_again(void **state)
{
        const nstime ms = NS_PER_MS;

        assert_true(share_of_messages((struct fabric_opts){.delay = 3 * ms, .jitter = ms / 10}) <
                    25);
        assert_true(share_of_messages((struct fabric_opts){.delay = 3 * ms, .jitter = 2 * ms}) <
                    25);
        assert_true(share_of_messages((struct fabric_opts){.delay = 3 * ms, .loss = 0.03}) < 8);
        assert_true(share_of_messages((struct fabric_opts){.delay = 3 * ms, .late = 0.03}) < 8);
}

/* ---- rounds of a few messages, as programs have them (tests/vm/am_rounds.c) ---- */

#define ROUNDS 30u
#define PUT    20000u
#define ASKED  32u

struct rounds {
        uint32_t seen[2], answers[2], wrong;
        uint8_t seg[2][PUT];
};

static void on_round_ask(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                         void *ctx)
{
        struct rounds *r = ctx;

        r->seen[uam_rank(uam_token_am(t))]++;
        r->wrong += uam_reply_short(t, ANSWER, arg, nargs) != 0;
}

static void on_round_answer(struct uam_token *t, const uam_arg *arg, int nargs, void *data,
                            size_t len, void *ctx)
{
        struct rounds *r = ctx;

        r->answers[uam_rank(uam_token_am(t))]++;
}

static void play_rounds(struct job *j, struct uam *am, void *arg)
{
        static uint8_t data[PUT];
        struct rounds *r = arg;
        uint32_t me = uam_rank(am);

        uam_register(am, ASK, on_round_ask, UAM_SHORT | UAM_REQUEST, r);
        uam_register(am, ANSWER, on_round_answer, UAM_SHORT | UAM_REPLY, r);
        uam_segment(am, r->seg[me], PUT);
        for (uint32_t round = 1; round <= ROUNDS; round++) {
                r->wrong += uam_put(am, 1 - me, 0, data, PUT, NULL) != 0;
                for (uint32_t i = 0; i < ASKED; i++)
                        r->wrong += uam_request_short(am, 1 - me, ASK, 0, NULL, 0) != 0;
                uam_wait_for(am, r->answers[me] >= round * ASKED);
                r->wrong += uam_flush(am, UAM_ALL, UNET_FOREVER) != 0 || uam_barrier(am) != 0;
                r->wrong += r->seen[me] < round * ASKED;
        }
}

static double share_of_rounds(struct fabric_opts net)
{
        static struct rounds r;
        struct repeats repeats = {0};

        for (uint64_t seed = 1; seed <= 20; seed++) {
                struct job_opts o = {.net = net, .am.buffer_bytes = 4096};

                o.net.nodes = 2;
                o.net.seed = seed;
                memset(&r, 0, sizeof r);
                assert_true(job_run(&o, play_rounds, &r));
                assert_int_equal(r.wrong, 0);
                assert_true(r.seen[0] == ROUNDS * ASKED && r.seen[1] == ROUNDS * ASKED);
                count_repeats(&repeats);
        }
        return share(&repeats, "rounds");
}

/* A request that comes before its sender has acknowledged a reply waits for the place; it is not
 * left to a timeout. A timeout that was too early is followed by nothing. */
static void rounds_are_not_sent_again_where_messages_overtake_each_other(void **state)
{
        const nstime ms = NS_PER_MS;

        assert_true(share_of_rounds((struct fabric_opts){.delay = 3 * ms, .jitter = ms / 10}) < 2);
        assert_true(share_of_rounds((struct fabric_opts){.delay = ms, .jitter = 4 * ms}) < 2);
        assert_true(share_of_rounds((struct fabric_opts){.delay = 3 * ms, .late = 0.03}) < 5);
        assert_true(share_of_rounds((struct fabric_opts){.delay = 3 * ms, .loss = 0.03}) < 4);
        assert_true(share_of_rounds((struct fabric_opts){
                            .delay = ms, .jitter = 4 * ms, .loss = 0.03}) < 10);
}

/* Who waits in a barrier asks now and then, and is answered; what a lost reply holds up is sent
 * again all the same. */
static void requests_that_go_on_do_not_hold_a_lost_reply_up(void **state)
{
        share_of_rounds((struct fabric_opts){.delay = 300 * NS_PER_MS, .loss = 0.1});
}

/* ---- every fate of the first messages ---- */

#define FIRST 6u /* messages: 4^6 scripts */

static void few_to_each_other(struct job *j, struct uam *am, void *arg)
{
        everybody_to_everybody(j, am, arg);
}

static void scripts(uint32_t window)
{
        static struct world w;
        uint8_t script[FIRST];

        for (uint32_t n = 0; n < 1u << 2 * FIRST; n++) {
                struct job_opts o = {
                        .net = {.nodes = 2, .seed = n, .script = script, .nscript = FIRST},
                        .am = {.window = window, .buffer_bytes = 2048},
                        .tx_bytes = 64 << 10};

                for (uint32_t i = 0; i < FIRST; i++)
                        script[i] = (uint8_t)(n >> 2 * i & 3);
                memset(&w, 0, sizeof w);
                w.seed = n;
                w.ranks = 2;
                w.count = 3;
                must_be_right(&w, job_run(&o, few_to_each_other, &w), "script");
        }
}

static void every_fate_of_the_first_messages_window_1(void **state)
{
        scripts(1);
}

static void every_fate_of_the_first_messages_window_2(void **state)
{
        scripts(2);
}

/* ---- ranks that stop, and die ---- */

static void stops_for_ten_seconds(struct job *j, struct uam *am, void *arg)
{
        if (uam_rank(am) == 1) {
                set_up(arg, am);
                job_sleep(j, 1, 10 * NS_PER_S);
        }
        everybody_to_everybody(j, am, arg);
}

static void a_rank_that_stops_for_ten_seconds_loses_nothing(void **state)
{
        static struct world w;
        struct job_opts o = opts_of(&w, 7);

        must_be_right(&w, job_run(&o, stops_for_ten_seconds, &w), "stopped");
        assert_true(job_time() > 10 * NS_PER_S);
}

static void dies(struct job *j, struct uam *am, void *arg)
{
        struct world *w = arg;
        struct uam_event e = {0};

        set_up(w, am);
        if (uam_rank(am) == 1)
                job_kill(j, 1);
        w->wrong += uam_put(am, 1, 0, "x", 1, &e) != 0;
        uam_wait_for(am, e.left == 0);
        w->wrong += e.err != -ETIMEDOUT;
        w->wrong += uam_request_short(am, 1, TELL, 0, NULL, 0) != -EPIPE;
}

static void a_rank_that_dies_is_told_to_who_waits_for_it(void **state)
{
        static struct world w;
        struct job_opts o = {.net = {.nodes = 3, .seed = 1}, .am.buffer_bytes = 2048};

        assert_true(job_run(&o, dies, &w));
        assert_int_equal(w.wrong, 0);
        assert_int_equal(w.lost, 2);
        assert_int_equal(w.lost_err, -ETIMEDOUT);
        assert_true(job_time() >= 30 * NS_PER_S && job_time() < 60 * NS_PER_S);

        o.am.dead = 5 * NS_PER_S; /* the program's choice */
        memset(&w, 0, sizeof w);
        assert_true(job_run(&o, dies, &w));
        assert_int_equal(w.wrong, 0);
        assert_int_equal(w.lost, 2);
        assert_true(job_time() >= 5 * NS_PER_S && job_time() < 20 * NS_PER_S);
}

/* ---- the timeout ---- */

#define FAR (60 * NS_PER_MS) /* a round trip, three times the first timeout */

static void asks_often(struct job *j, struct uam *am, void *arg)
{
        struct world *w = arg;

        set_up(w, am);
        if (uam_rank(am) != 0)
                return;
        for (int i = 0; i < 200; i++) {
                w->wrong += uam_put(am, 1, 0, "x", 1, NULL) != 0;
                w->wrong += uam_flush(am, 1, UNET_FOREVER) != 0;
        }
        w->wrong += am->peer[1]->srtt < FAR || am->peer[1]->srtt > FAR + FAR / 10;
        w->wrong += am->peer[1]->rto < FAR || am->peer[1]->rto > 2 * FAR;
}

/* RFC 6298: some are too early until a round trip is measured, then none. */
static void the_timeout_is_measured(void **state)
{
        static struct world w;
        struct job_opts o = {.net = {.nodes = 2, .seed = 1, .delay = FAR / 2},
                             .am.buffer_bytes = 2048};

        memset(&w, 0, sizeof w);
        assert_true(job_run(&o, asks_often, &w));
        assert_int_equal(w.wrong, 0);
        assert_in_range(job_stat(UAM_STAT_TIMEOUTS), 1, 40);
}

/* Rank 1 asks, and sleeps: rank 0 waits for what it asked and for what it replied. */
static void asks_and_sleeps(struct job *j, struct uam *am, void *arg)
{
        const uam_arg first[3] = {0, uam_rank(am), ~(uam_arg)0};
        struct world *w = arg;

        set_up(w, am);
        w->wrong += uam_request_short(am, 1 - uam_rank(am), ASK, 0, first, 3) != 0;
        if (uam_rank(am) == 1)
                job_sleep(j, 1, NS_PER_S);
        else
                uam_wait_for(am, w->seen[0][1][0] != 0);
        w->wrong += uam_flush(am, 1 - uam_rank(am), UNET_FOREVER) != 0;
        uam_wait_for(am, w->answered[uam_rank(am)][1 - uam_rank(am)][0] != 0);
        if (uam_rank(am) == 0)
                w->timeouts = (uint32_t)uam_stat(am, UAM_STAT_TIMEOUTS);
}

/* After 20, 60, 140, 300 and 620 ms, of each sequence. */
static void each_sequence_backs_off_by_itself(void **state)
{
        static struct world w;
        struct job_opts o = {.net = {.nodes = 2, .seed = 1}, .am.buffer_bytes = 2048};

        memset(&w, 0, sizeof w);
        w.count = 1;
        w.ranks = 2;
        assert_true(job_run(&o, asks_and_sleeps, &w));
        assert_int_equal(w.wrong, 0);
        assert_int_equal(w.timeouts, 10);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_handler_runs_once_whatever_the_network_does),
                cmocka_unit_test(only_what_is_missing_is_sent_again),
                cmocka_unit_test(rounds_are_not_sent_again_where_messages_overtake_each_other),
                cmocka_unit_test(requests_that_go_on_do_not_hold_a_lost_reply_up),
                cmocka_unit_test(every_fate_of_the_first_messages_window_1),
                cmocka_unit_test(every_fate_of_the_first_messages_window_2),
                cmocka_unit_test(a_rank_that_stops_for_ten_seconds_loses_nothing),
                cmocka_unit_test(a_rank_that_dies_is_told_to_who_waits_for_it),
                cmocka_unit_test(the_timeout_is_measured),
                cmocka_unit_test(each_sequence_backs_off_by_itself),
        };

        seeds = long_run() ? 10000 : 1000;
        for (int i = 1; i + 1 < argc; i += 2) {
                if (strcmp(argv[i], "--seeds") == 0)
                        seeds = strtoull(argv[i + 1], NULL, 0);
                if (strcmp(argv[i], "--from") == 0)
                        first_seed = strtoull(argv[i + 1], NULL, 0);
        }
        return cmocka_run_group_tests(tests, NULL, NULL);
}
