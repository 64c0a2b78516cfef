/* Two TCPs over a bad link: every byte arrives, nothing stalls, everything is freed. The seed is
 * printed on failure. */
#include <stdlib.h>

#include "tcp/tcp_cc.h"
#include "tests/long_run.h"
#include "tests/tcp/pair.h"
#include "tests/unit.h"

#define SEEDS (long_run() ? 300u : 100u)

static void check_nothing_left(const struct pair *p)
{
        for (int s = 0; s < 2; s++) {
                assert_int_equal(rig_frames_used(p->rig[s]), 0);
                assert_int_equal(p->rig[s]->t.sh->conns.used, 0);
                assert_int_equal(p->rig[s]->t.sh->txsegs.used, 0);
                assert_int_equal(p->rig[s]->t.sh->rxsegs.used, 0);
        }
}

static void check_run(struct pair *p, uint64_t seed, const char *what, nstime limit)
{
        bool ok = pair_run(p, limit);

        if (!ok) {
                print_error("%s: seed %llu: client wrote %llu of %llu read %llu err %d; server "
                            "wrote %llu of "
                            "%llu "
                            "read %llu err %d\n",
                            what, (unsigned long long)seed, (unsigned long long)p->app[0].written,
                            (unsigned long long)p->app[0].to_write,
                            (unsigned long long)p->app[0].read, p->app[0].error,
                            (unsigned long long)p->app[1].written,
                            (unsigned long long)p->app[1].to_write,
                            (unsigned long long)p->app[1].read, p->app[1].error);
                fail();
        }
        assert_int_equal(p->app[0].read, p->app[1].to_write);
        assert_int_equal(p->app[1].read, p->app[0].to_write);
        pair_settle(p, 400 * NS_PER_S);
        check_nothing_left(p);
}

static void clean_link_moves_data_both_ways(void **state)
{
        struct pair_link net = {.delay = NS_PER_MS, .mss = 1460};
        struct pair *p = pair_new(&net, &rig_size_default, 1);

        p->app[0].to_write = 1000000;
        p->app[1].to_write = 300000;
        check_run(p, 1, "clean", 60 * NS_PER_S);
        pair_free(p);
}

/* Routers that mark instead of losing: who sends slows down, and nothing is sent twice.
 * Then both. */
static void a_link_that_marks(void **state)
{
        struct pair_link net = {.delay = 5 * NS_PER_MS, .mss = 1460, .mark = 0.01};

        for (uint64_t seed = 1; seed <= (long_run() ? 20 : 8); seed++) {
                struct pair *p = pair_new(&net, &rig_size_default, seed);
                p->net.drop = seed % 2 == 0 ? 0.01 : 0;
                p->opts[0].ecn = TCP_ECN_ASK;
                p->opts[seed / 2 % 2].cc = TCP_CC_RENO;
                p->app[0].to_write = 600000;
                p->app[1].to_write = 400000;
                check_run(p, seed, "marks", 200 * NS_PER_S);
                for (int s = 0; s < 2; s++) {
                        const uint64_t *n = p->rig[s]->cnt.n;
                        if (p->net.drop != 0)
                                continue;
                        assert_in_range(n[COUNT_TCP_ECN_CUT], 1,
                                        p->rig[!s]->cnt.n[COUNT_TCP_ECN_MARKED]);
                        assert_int_equal(n[COUNT_TCP_RETRANS] + n[COUNT_TCP_RTO], 0);
                }
                pair_free(p);
        }
}

static void lossless_link_lends_frames(void **state)
{
        struct pair_link net = {.delay = NS_PER_US, .mss = 65495, .lossless = true};
        struct pair *p = pair_new(&net, &rig_size_default, 1);

        p->app[0].to_write = 20000000;
        p->app[0].max_write = 262144;
        p->app[1].max_read = 262144;
        p->app[1].to_write = 1000;
        check_run(p, 1, "lossless", 60 * NS_PER_S);
        assert_int_equal(p->rig[0]->cnt.n[COUNT_TCP_RETRANS], 0);
        pair_free(p);
}

/* Everything at random from the seed: the link, the buffers, how the applications write
 * and read. */
static struct pair *bad_link(uint64_t seed)
{
        struct pair_link net = {.mss = 1460};
        struct pair *p = pair_new(&net, &rig_size_default, seed);

        p->net.drop = pair_chance(p) * 0.08;
        p->net.dup = pair_chance(p) * 0.05;
        p->net.reorder = pair_chance(p) * 0.1;
        p->net.delay = (nstime)(pair_chance(p) * 30e6) + NS_PER_US;
        p->net.jitter = pair_chance(p) < 0.5 ? p->net.delay / 2 : 0;
        p->net.death = pair_chance(p) < 0.2 ? 0.01 : 0;
        p->net.mss = p->link.mss = (uint16_t)(100 + pair_random(p) % 3000);
        for (int s = 0; s < 2; s++) {
                p->app[s].to_write = pair_random(p) % 200000;
                p->app[s].max_write = 1 + (uint32_t)(pair_random(p) % 20000);
                p->app[s].max_read = 200 + (uint32_t)(pair_random(p) % 20000);
                p->app[s].idle = pair_chance(p) * 0.9;
                p->opts[s].nodelay = pair_chance(p) < 0.3;
                p->opts[s].no_sack = pair_chance(p) < 0.2;
                p->opts[s].no_timestamps = pair_chance(p) < 0.3;
                p->opts[s].no_wscale = pair_chance(p) < 0.3;
                p->opts[s].cc = (uint8_t)(pair_random(p) % TCP_CC_COUNT);
                if (pair_chance(p) < 0.4)
                        p->opts[s].rcvbuf = 200 + (uint32_t)(pair_random(p) % 20000);
                if (pair_chance(p) < 0.4)
                        p->opts[s].sndbuf = 4096 + (uint32_t)(pair_random(p) % 40000);
                if (p->app[s].max_write < 100)
                        p->app[s].to_write /= 10;
        }
        if (seed % 4 == 0) { /* data in the SYN */
                p->opts[0].fastopen = TCP_FASTOPEN_USE | TCP_FASTOPEN_BARE;
                p->opts[1].fastopen = TCP_FASTOPEN_BARE | TCP_FASTOPEN_SERVE;
                p->opts[1].fastopen_most = 5;
        }
        return p;
}

static void bad_links_deliver_every_byte(void **state)
{
        const char *first = getenv("PAIR_SEED"), *many = getenv("PAIR_SEEDS");
        uint64_t from = first ? strtoull(first, NULL, 0) : 1, n = many    ? strtoull(many, NULL, 0)
                                                                  : first ? 1
                                                                          : SEEDS;
        uint64_t fastopen = 0;

        for (uint64_t seed = from; seed < from + n; seed++) {
                struct pair *p = bad_link(seed);
                p->net.runs = seed % 2 == 0;
                check_run(p, seed, "bad link", 3000 * NS_PER_S);
                fastopen += p->rig[1]->cnt.n[COUNT_TCP_FASTOPEN_IN];
                pair_free(p);
        }
        assert_true(n < 100 || fastopen >= n / 8);
}

/* What tcp_output_next() gives is what tcp_output() would have given then, bit for bit, and so is
 * all that follows. */
static void runs_are_what_goes_one_by_one(void **state)
{
        uint64_t next = 0;

        for (uint64_t seed = 1; seed <= SEEDS * 2 / 3; seed++) {
                uint64_t digest[2];
                for (int runs = 0; runs < 2; runs++) {
                        struct pair *p = bad_link(seed);
                        p->net.runs = runs;
                        p->opts[0].ecn = seed % 5 == 0 ? TCP_ECN_ASK : p->opts[0].ecn;
                        if (seed % 3 == 0) {
                                p->app[0].to_write = 600000;
                                p->app[0].max_write = 131072;
                                p->app[1].max_read = 262144;
                                p->net.drop /= 8;
                        }
                        check_run(p, seed, "runs", 3000 * NS_PER_S);
                        digest[runs] = p->digest;
                        next += p->next_pkts;
                        pair_free(p);
                }
                if (digest[0] != digest[1])
                        fail_msg("seed %llu: other packets", (unsigned long long)seed);
        }
        assert_in_range(next, 1000, UINT64_MAX);
}

/* Few frames, few records, lent frames that come back late, deaths inside: nothing is lost and
 * nothing stalls. */
static void scarce_memory_delivers_every_byte(void **state)
{
        const char *first = getenv("PAIR_SEED"), *many = getenv("PAIR_SEEDS");
        uint64_t from = first ? strtoull(first, NULL, 0) : 1, n = many    ? strtoull(many, NULL, 0)
                                                                  : first ? 1
                                                                          : SEEDS * 2 / 3;

        for (uint64_t seed = from; seed < from + n; seed++) {
                struct pair_link net = {
                        .delay = NS_PER_US, .mss = 65495, .lossless = true, .death = 0.01};
                struct rig_size size = rig_size_default;
                uint64_t x = seed * 0x9e3779b97f4a7c15ull;
                struct pair *p;

                size.tx.count[FRAME_SMALL] = 4 + (uint32_t)(x >> 8 & 15);
                size.tx.count[FRAME_LARGE] = (uint32_t)(x >> 16 & 3);
                size.rx.count[FRAME_SMALL] = 6 + (uint32_t)(x >> 24 & 15);
                size.limits.txsegs = 20 + (uint32_t)(x >> 32 & 63);
                size.limits.rxsegs = 20 + (uint32_t)(x >> 40 & 63);
                p = pair_new(&net, &size, seed);
                for (int s = 0; s < 2; s++) {
                        p->app[s].to_write = pair_random(p) % 500000;
                        p->app[s].max_write = 1 + (uint32_t)(pair_random(p) % 40000);
                        p->app[s].max_read = 200 + (uint32_t)(pair_random(p) % 40000);
                        p->app[s].idle = pair_chance(p) * 0.9;
                        p->opts[s].nodelay = pair_chance(p) < 0.5;
                        if (p->app[s].max_write < 100)
                                p->app[s].to_write /= 10;
                }
                check_run(p, seed, "scarce", 3000 * NS_PER_S);
                pair_free(p);
        }
}

/* One connection is written until nothing more fits, and nobody reads it; the others share the same
 * frames, and go on. */
static void unread_connection_does_not_starve_others(void **state)
{
        struct pair_link net = {.delay = NS_PER_US, .mss = 65495, .lossless = true};
        struct rig_size size = rig_size_default;
        uint32_t stuck[2], other[2], arrived = 0;
        struct pair *p;

        size.tx.count[FRAME_LARGE] = 8; /* far fewer than the window of one connection wants */
        size.tx.count[FRAME_SMALL] = 16;
        p = pair_new(&net, &size, 1);
        pair_connect_more(p, stuck);
        pair_connect_more(p, other);
        for (int quiet = 0; quiet < 10; quiet++) {
                if (pair_pour(p, 0, stuck[0], 100000) != 0)
                        quiet = 0;
                pair_settle(p, NS_PER_MS);
        }
        for (int i = 0; i < 1000 && arrived < 10000000; i++) {
                pair_pour(p, 0, other[0], 100000);
                pair_settle(p, 10 * NS_PER_US);
                arrived += pair_drain(p, 1, other[1]);
        }
        assert_true(arrived >= 10000000);
        for (int s = 0; s < 2; s++) {
                tcp_close(&p->rig[s]->t, tcp_conn_at(&p->rig[s]->t, stuck[s]), p->now);
                tcp_close(&p->rig[s]->t, tcp_conn_at(&p->rig[s]->t, other[s]), p->now);
        }
        pair_settle(p, 100 * NS_PER_S);
        check_nothing_left(p);
        pair_free(p);
}

/* More than the table holds: the oldest in TIME-WAIT goes, and connections can still be opened. */
static void time_wait_is_bounded(void **state)
{
        struct pair_link net = {.delay = NS_PER_US, .mss = 65495, .lossless = true};
        struct pair *p = pair_new(&net, &rig_size_default, 1);
        struct tcp *client = &p->rig[0]->t, *server = &p->rig[1]->t;

        for (int i = 0; i < 100; i++) {
                uint32_t c[2];
                p->tuple[0].lport = (uint16_t)(20000 + i * 7);
                pair_connect_more(p, c);
                tcp_close(client, tcp_conn_at(client, c[0]), p->now);
                pair_settle(p, NS_PER_MS);
                tcp_close(server, tcp_conn_at(server, c[1]), p->now);
                pair_settle(p, NS_PER_MS);
                assert_true(client->sh->time_wait.n <= client->sh->limits.time_wait_max);
        }
        assert_int_equal(client->sh->time_wait.n, client->sh->limits.time_wait_max);
        assert_int_equal(p->rig[0]->cnt.n[COUNT_TCP_TIME_WAIT_RECYCLED],
                         100 - client->sh->limits.time_wait_max);
        pair_settle(p, 100 * NS_PER_S);
        check_nothing_left(p);
        pair_free(p);
}

/* As they do where one of them has left a SYN-ACK without an answer (tcp_listen.c). */
static void a_cookie_connects_stacks_of_one_host(void **state)
{
        struct pair_link net = {.delay = NS_PER_US, .mss = 65495, .lossless = true};
        struct pair *p = pair_new(&net, &rig_size_default, 1);
        struct tcp *server = &p->rig[1]->t;
        struct tcp_listener *l;
        uint32_t c[2];

        pair_connect_more(p, c);
        l = tcp_listener_at(server, p->listener);
        l->half_open = 1u << 20;
        l->cookies_until = p->now + 100 * NS_PER_S;
        p->tuple[0].lport++;
        pair_connect_more(p, c);
        l->half_open = 0;
        assert_int_equal(p->rig[1]->cnt.n[COUNT_TCP_COOKIE_IN], 1);
        assert_int_equal(pair_pour(p, 0, c[0], 50000), 50000);
        pair_settle(p, NS_PER_S);
        assert_int_equal(tcp_conn_at(server, c[1])->rcv_unread, 50000);
        pair_free(p);
}

#define STACKS  20u
#define ANOTHER 60u

/* Closed here, and never there. */
static uint32_t orphan(struct pair *p, uint16_t lport)
{
        struct tcp *client = &p->rig[0]->t;
        uint32_t c[2];

        p->tuple[0].lport = lport;
        pair_connect_more(p, c);
        tcp_close(client, tcp_conn_at(client, c[0]), p->now);
        pair_settle(p, NS_PER_MS);
        return c[0];
}

/* A user who never closes makes so many, each for a minute. He loses his own, from whatever address
 * and by whichever of his stacks, and not another peer's, which has been there for longer. */
static void orphans_are_bounded(void **state)
{
        struct pair_link net = {.delay = NS_PER_US, .mss = 65495, .lossless = true};
        struct rig_size size = rig_size_default;
        struct pair *p;
        const struct tcp *client;
        uint32_t most = 3 * STACKS, others, made = 1;

        size.limits.time_wait_max = most;
        p = pair_new(&net, &size, 1);
        client = &p->rig[0]->t;
        others = orphan(p, 9000);
        tcp_conn_at(client, others)->tuple.chan = ANOTHER;
        while (made < RIG_CONNS / 2) {
                p->tuple[0].chan = p->tuple[1].chan = (uint16_t)(made % STACKS);
                p->tuple[0].raddr = p->tuple[1].laddr = ip_addr_v4(0x7f000001 + made);
                orphan(p, (uint16_t)(20000 + made++ * 7));
                assert_true(client->sh->orphans.n <= most);
        }
        assert_int_equal(client->sh->orphans.n, most);
        assert_int_equal(p->rig[0]->cnt.n[COUNT_TCP_ORPHAN_ENDED], made - most);
        assert_int_equal(tcp_conn_at(client, others)->state, TCPS_FIN_WAIT_2);
        assert_int_equal(tcp_conn_at(client, others)->tuple.chan, ANOTHER);
        pair_settle(p, 100 * NS_PER_S);
        assert_int_equal(client->sh->conns.used, 0);
        assert_int_equal(client->sh->orphans.n, 0);
        pair_free(p);
}

/* A connection that a process died in goes on to its last byte. */
static void mended_connection_goes_on(void **state)
{
        for (uint64_t seed = 1; seed <= 40; seed++) {
                struct pair_link net = {.delay = NS_PER_US, .mss = 65495, .lossless = true};
                struct pair *p;

                if (seed % 2)
                        net = (struct pair_link){
                                .delay = NS_PER_MS, .mss = 1460, .drop = 0.01, .dup = 0.01};
                p = pair_new(&net, &rig_size_default, seed);
                p->app[0].to_write = p->app[1].to_write = 1000000;
                p->app[0].max_write = 100000;
                p->app[1].idle = 0.8;
                p->break_at = 10000 * seed;
                assert_true(pair_run(p, 600 * NS_PER_S));
                assert_int_equal(p->break_at, 0);
                pair_settle(p, 100 * NS_PER_S);
                check_nothing_left(p);
                pair_free(p);
        }
}

/* One that cannot be mended is reset; what the peer had lent to it comes back all the same. */
static void broken_connection_gives_lent_frames_back(void **state)
{
        for (uint64_t seed = 1; seed <= 20; seed++) {
                struct pair_link net = {.delay = NS_PER_US, .mss = 65495, .lossless = true};
                struct pair *p = pair_new(&net, &rig_size_default, seed);

                p->app[0].to_write = p->app[1].to_write = 5000000;
                p->app[0].max_write = 100000;
                p->app[1].idle = 0.8;
                p->break_at = 10000 * seed;
                p->beyond_mending = true;
                assert_false(pair_run(p, 60 * NS_PER_S));
                assert_true(p->app[0].error != 0 || p->app[1].error != 0);
                for (int s = 0; s < 2; s++)
                        if (p->conn[s] != 0)
                                tcp_close(&p->rig[s]->t, tcp_conn_at(&p->rig[s]->t, p->conn[s]),
                                          p->now);
                pair_settle(p, 100 * NS_PER_S);
                check_nothing_left(p);
                pair_free(p);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(clean_link_moves_data_both_ways),
                cmocka_unit_test(a_link_that_marks),
                cmocka_unit_test(lossless_link_lends_frames),
                cmocka_unit_test(bad_links_deliver_every_byte),
                cmocka_unit_test(runs_are_what_goes_one_by_one),
                cmocka_unit_test(unread_connection_does_not_starve_others),
                cmocka_unit_test(time_wait_is_bounded),
                cmocka_unit_test(a_cookie_connects_stacks_of_one_host),
                cmocka_unit_test(orphans_are_bounded),
                cmocka_unit_test(mended_connection_goes_on),
                cmocka_unit_test(broken_connection_gives_lent_frames_back),
                cmocka_unit_test(scarce_memory_delivers_every_byte),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
