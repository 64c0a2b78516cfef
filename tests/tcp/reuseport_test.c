/* Listeners that share a port (SO_REUSEPORT): whose a connection is, and what becomes of it when
 * some of them close. */
#include "tests/tcp/scenarios.h"

#define PEERS     64u   /* each from a port of its own */
#define FIRST     2000u /* of those ports */
#define HALF_OPEN 128u  /* what a listener remembers: tcp_listen.c */

static const struct scene_setup lossless = {.lossless = true};

static uint32_t listens(struct scene *s, ip_addr addr, uint32_t backlog)
{
        int l = tcp_listen(&s->rig->t, addr, s->tuple.lport, backlog, &s->opts);

        assert_true(l > 0);
        return (uint32_t)l;
}

/* The scene's listener, and two more. */
static int three_listening(void **state)
{
        struct scene *s;

        listening(state);
        s = *state;
        tcp_unlisten(&s->rig->t, s->listener);
        s->opts.reuseport = 1;
        s->listener = listens(s, (ip_addr){{0, 0}}, PEERS);
        assert_int_equal(s->listener, 1);
        assert_int_equal(listens(s, (ip_addr){{0, 0}}, PEERS), 2);
        assert_int_equal(listens(s, (ip_addr){{0, 0}}, PEERS), 3);
        return 0;
}

/* The listener that the SYN of a peer's port went to; 0: it did not get there. */
static uint32_t whose(struct scene *s, uint16_t rport)
{
        for (uint32_t i = 1; i < s->rig->t.sh->conns.fresh; i++) {
                const struct tcp_conn *tc = tcp_conn_at(&s->rig->t, i);
                if (tc->live && tc->tuple.rport == rport && tc->acc_state == ACC_HALF_OPEN)
                        return tc->listener;
        }
        return 0;
}

static void syn_of(struct scene *s, uint16_t rport)
{
        s->tuple.rport = rport;
        peer_sends(s, .seq = 0, .flags = S);
        expect_sent(s, .flags = SA, .ack = 1);
}

static void peers_knock(struct scene *s)
{
        for (uint16_t i = 0; i < PEERS; i++)
                syn_of(s, (uint16_t)(FIRST + i));
}

static uint32_t half_open(const struct scene *s, uint32_t listener)
{
        return tcp_listener_at(&s->rig->t, listener)->half_open;
}

/* The secret is the scene's, so it is always the same ones. */
static void connections_spread_over_those_that_share(void **state)
{
        struct scene *s = *state;
        uint32_t sum = 0;

        peers_knock(s);
        for (uint32_t l = 1; l <= 3; l++) {
                assert_in_range(half_open(s, l), PEERS / 6, PEERS / 2);
                sum += half_open(s, l);
        }
        assert_int_equal(sum, PEERS);
        forget_sent(s);
}

static void a_repeated_syn_goes_to_the_same(void **state)
{
        struct scene *s = *state;

        for (uint16_t i = 0; i < PEERS; i++) {
                uint32_t first;

                syn_of(s, (uint16_t)(FIRST + i));
                first = whose(s, s->tuple.rport);
                peer_sends(s, .seq = 1, .flags = R); /* what it was is forgotten */
                expect_silence(s);
                assert_int_equal(whose(s, s->tuple.rport), 0);
                syn_of(s, s->tuple.rport);
                assert_int_equal(whose(s, s->tuple.rport), first);
        }
        forget_sent(s);
}

/* As Linux without net.ipv4.tcp_migrate_req. */
static void what_one_has_ends_with_it_and_later_ones_go_to_the_others(void **state)
{
        struct scene *s = *state;
        uint32_t had, others;

        peers_knock(s);
        had = half_open(s, 2);
        others = PEERS - had;
        forget_sent(s);
        tcp_unlisten(&s->rig->t, 2);
        advance_ms(s, 1);
        expect_silence(s);
        assert_int_equal(s->rig->t.sh->conns.used, others);
        assert_int_equal(half_open(s, 1) + half_open(s, 3), others);
        for (uint16_t i = 0; i < PEERS; i++)
                syn_of(s, (uint16_t)(FIRST + PEERS + i));
        assert_int_equal(half_open(s, 1) + half_open(s, 3), others + PEERS);
        forget_sent(s);
}

static void each_has_its_own_backlog(void **state)
{
        struct scene *s = *state;

        tcp_listen_backlog(&s->rig->t, 2, 0);
        for (uint16_t i = 0; i < PEERS; i++) {
                s->tuple.rport = (uint16_t)(FIRST + i);
                peer_sends(s, .seq = 0, .flags = S);
                forget_sent(s);
        }
        assert_int_equal(half_open(s, 2), 1); /* as Linux: one more than the backlog */
        assert_in_range(half_open(s, 1), PEERS / 6, PEERS / 2);
        assert_in_range(half_open(s, 3), PEERS / 6, PEERS / 2);
}

static void who_does_not_say_so_shares_with_nobody(void **state)
{
        struct scene *s = *state;
        struct tcp *t = &s->rig->t;

        s->opts.reuseport = 0;
        assert_int_equal(tcp_listen(t, (ip_addr){{0, 0}}, s->tuple.lport, 1, &s->opts),
                         -EADDRINUSE);
        assert_int_equal(tcp_listen(t, ip_addr_v4(0), s->tuple.lport, 1, &s->opts), -EADDRINUSE);
        assert_int_equal(tcp_listen(t, s->tuple.laddr, s->tuple.lport, 1, &s->opts), 4);
        s->opts.reuseport = 1;
        assert_int_equal(tcp_listen(t, s->tuple.laddr, s->tuple.lport, 1, &s->opts), -EADDRINUSE);
}

/* Linux's inet_lhash2_lookup(): the address itself, then any of the same family, then any of
 * the other. */
static void those_at_a_narrower_address_come_first(void **state)
{
        struct scene *s = *state;
        uint32_t v4 = listens(s, ip_addr_v4(0), PEERS), exact;

        peers_knock(s);
        assert_int_equal(half_open(s, v4), PEERS);
        exact = listens(s, s->tuple.laddr, PEERS);
        for (uint16_t i = 0; i < PEERS; i++)
                syn_of(s, (uint16_t)(FIRST + PEERS + i));
        assert_int_equal(half_open(s, exact), PEERS);
        assert_int_equal(half_open(s, 1) + half_open(s, 2) + half_open(s, 3), 0);
        forget_sent(s);
}

static void after_a_death_they_share_as_before(void **state)
{
        struct scene *s = *state;

        tcp_unlisten(&s->rig->t, 2);
        peers_knock(s);
        forget_sent(s);
        rig_recover(s->rig, 0, s->now);
        assert_int_equal(tcp_listener_at(&s->rig->t, 1)->sharing, 2);
        assert_int_equal(tcp_listener_at(&s->rig->t, 3)->sharing, 2);
        assert_int_equal(half_open(s, 1) + half_open(s, 3), PEERS);
        for (uint16_t i = 0; i < PEERS; i++)
                syn_of(s, (uint16_t)(FIRST + PEERS + i));
        assert_in_range(half_open(s, 1), PEERS / 2, PEERS * 3 / 2);
        forget_sent(s);
}

/* ---- cookies ---- */

/* A SYN of `rport`, answered by a cookie: what acknowledges it. */
static uint32_t cookie_of(struct scene *s, uint16_t rport)
{
        s->tuple.rport = rport;
        peer_sends(s, .seq = 0, .flags = S);
        expect_sent(s, .flags = SA, .ack = 1, .is_reply = true);
        return s->last.seq + 1 - SCENE_ISS;
}

static void all_are_flooded(struct scene *s)
{
        for (uint32_t l = 1; l <= 3; l++)
                tcp_listener_at(&s->rig->t, l)->half_open = HALF_OPEN;
}

static void the_flood_is_over(struct scene *s)
{
        for (uint32_t l = 1; l <= 3; l++)
                if (tcp_listener_at(&s->rig->t, l)->live)
                        tcp_listener_at(&s->rig->t, l)->half_open = 0;
}

static uint32_t queued(const struct scene *s)
{
        uint32_t n = 0;

        for (uint32_t l = 1; l <= 4; l++)
                if (tcp_listener_at(&s->rig->t, l)->live)
                        n += tcp_listener_at(&s->rig->t, l)->queued;
        return n;
}

static void a_cookie_of_one_is_taken_by_another(void **state)
{
        struct scene *s = *state;
        uint32_t ack[PEERS];

        all_are_flooded(s);
        for (uint16_t i = 0; i < PEERS; i++)
                ack[i] = cookie_of(s, (uint16_t)(FIRST + i));
        the_flood_is_over(s);
        tcp_unlisten(&s->rig->t, 2);
        assert_int_equal(listens(s, (ip_addr){{0, 0}}, PEERS), 2); /* which has never sent one */
        assert_int_equal(listens(s, (ip_addr){{0, 0}}, PEERS), 4);
        for (uint16_t i = 0; i < PEERS; i++) {
                s->tuple.rport = (uint16_t)(FIRST + i);
                peer_sends(s, .seq = 1, .ack = ack[i]);
                expect_silence(s);
        }
        assert_int_equal(queued(s), PEERS);
        for (uint32_t l = 2; l <= 4; l++)
                tcp_unlisten(&s->rig->t, l);
        advance_ms(s, 1);
        forget_sent(s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                scenario(connections_spread_over_those_that_share, three_listening, NULL),
                scenario(a_repeated_syn_goes_to_the_same, three_listening, NULL),
                scenario(what_one_has_ends_with_it_and_later_ones_go_to_the_others, three_listening,
                         NULL),
                scenario(each_has_its_own_backlog, three_listening, &lossless),
                scenario(who_does_not_say_so_shares_with_nobody, three_listening, NULL),
                scenario(those_at_a_narrower_address_come_first, three_listening, NULL),
                scenario(after_a_death_they_share_as_before, three_listening, NULL),
                scenario(a_cookie_of_one_is_taken_by_another, three_listening, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
