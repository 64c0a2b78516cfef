/*
 * A peer that sends anything: segments at random around the windows, in every state, between calls
 * of an application at random. No byte of it may reach an assert (style: asserts speak about us),
 * what is read is what was sent at that place of the stream, and at the end nothing is left in use.
 * The seed is printed on failure.
 */
#include "tests/long_run.h"
#include "tests/tcp/scenarios.h"

#include <stdio.h>

struct storm {
        struct scene *s;
        uint64_t x;
        bool closed;
};

static uint32_t below(struct storm *w, uint32_t n)
{
        w->x ^= w->x << 13;
        w->x ^= w->x >> 7;
        w->x ^= w->x << 17;
        return (uint32_t)(w->x >> 20) % n;
}

static bool chance(struct storm *w, uint32_t percent)
{
        return below(w, 100) < percent;
}

/* A number near one of the edges that matter. */
static uint32_t near(struct storm *w, uint32_t a, uint32_t b)
{
        uint32_t at = chance(w, 50) ? a : b;

        if (chance(w, 50))
                return at;
        if (chance(w, 5))
                return at + below(w, UINT32_MAX);
        return at + below(w, 4000) - 2000;
}

static uint8_t any_flags(struct storm *w)
{
        static const uint8_t common[] = {TCP_ACK,           TCP_ACK, TCP_ACK,          TCP_ACK,
                                         TCP_ACK | TCP_PSH, F,       TCP_ACK | TCP_URG};

        if (chance(w, 93))
                return common[below(w, ARRAY_LEN(common))];
        if (chance(w, 30))
                return (uint8_t)below(w, 256);
        return chance(w, 50) ? S : chance(w, 50) ? SA : RA;
}

static void segment_arrives(struct storm *w)
{
        struct scene *s = w->s;
        const struct tcp_conn *tc = s->tc;
        struct scene_in in = {
                .seq = near(w, tc->rcv_nxt, tc->rcv_adv) - SCENE_IRS,
                .ack = near(w, tc->snd_una, tc->snd_nxt) - SCENE_ISS,
                .len = chance(w, 40)   ? below(w, 1400)
                       : chance(w, 30) ? below(w, 20)
                                       : 0,
                .flags = any_flags(w),
                .wnd = (uint16_t)(chance(w, 20) ? below(w, 3000) : 0),
                .zero_wnd = chance(w, 10),
                .urg = (uint16_t)below(w, 3000),
                .tsval = chance(w, 10) ? below(w, UINT32_MAX) : 0,
        };

        in.nsack = (uint8_t)(chance(w, 30) ? below(w, 5) : 0);
        for (unsigned i = 0; i < in.nsack; i++) {
                in.sack[i].left = near(w, tc->snd_una, tc->snd_nxt) - SCENE_ISS;
                in.sack[i].right = in.sack[i].left + below(w, 3000);
        }
        scene_peer_sends(s, &in);
}

static void application_reads(struct storm *w)
{
        struct scene *s = w->s;
        struct span span[4];
        uint32_t from = copied_seq(s->tc) - SCENE_IRS;
        int got = tcp_recv_peek(&s->rig->t, s->tc, 0, 1 + below(w, 4000), span, 4), done = 0;

        if (got <= 0)
                return;
        if (s->tc->urg_state == URG_NONE && !(s->tc->slow & SLOW_SHUT))
                for (int i = 0; done < got; done += (int)span[i++].len)
                        for (uint32_t j = 0; j < span[i].len; j++)
                                assert_int_equal(span[i].ptr[j],
                                                 scene_byte(from + (uint32_t)done + j));
        tcp_recv_consume(&s->rig->t, s->tc, below(w, (uint32_t)got + 1), s->now);
}

static void application_writes(struct storm *w)
{
        struct scene *s = w->s;
        struct span span[8];
        int got = tcp_send_reserve(&s->rig->t, s->tc, 1 + below(w, chance(w, 50) ? 100 : 9000),
                                   span, 8);

        if (got <= 0)
                return;
        if (chance(w, 20))
                segment_arrives(w); /* while the application copies */
        tcp_send_commit(&s->rig->t, s->tc, below(w, (uint32_t)got + 1), chance(w, 10), chance(w, 5),
                        s->now);
        if (chance(w, 10))
                tcp_send_end_record(&s->rig->t, s->tc);
}

static void application_acts(struct storm *w)
{
        struct scene *s = w->s;

        if (s->tc->acc_state == ACC_QUEUED)
                app_accepts(s);
        if (s->tc->acc_state == ACC_HALF_OPEN)
                return;
        switch (below(w, 40)) {
        case 0:
                tcp_shutdown_send(&s->rig->t, s->tc, s->now);
                break;
        case 1:
                tcp_shutdown_recv(&s->rig->t, s->tc, s->now);
                break;
        case 2:
                s->opts.nodelay ^= 1;
                s->opts.cork ^= chance(w, 50);
                s->opts.oobinline ^= chance(w, 50);
                tcp_set_opts(&s->rig->t, s->tc, &s->opts, s->now);
                break;
        case 3:
                tcp_icmp(&s->rig->t, &s->tuple, near(w, s->tc->snd_una, s->tc->snd_nxt),
                         EHOSTUNREACH, chance(w, 50), chance(w, 50) ? below(w, 1500) : 0, s->now);
                break;
        case 4:
                rig_recover(s->rig, chance(w, 20) ? s->conn : 0, s->now);
                break;
        default:
                (chance(w, 60) ? application_reads : application_writes)(w);
                break;
        }
}

static void blow(struct storm *w)
{
        struct scene *s = w->s;

        for (int i = 0; i < 300 && s->tc->live; i++) {
                if (chance(w, 60))
                        segment_arrives(w);
                else if (chance(w, 80))
                        application_acts(w);
                else
                        advance_ms(s, below(w, chance(w, 10) ? 5000 : 100));
                forget_sent(s);
                rig_check(s->rig);
        }
        if (s->tc->live && s->tc->acc_state != ACC_QUEUED && s->tc->acc_state != ACC_HALF_OPEN &&
            chance(w, 50)) {
                app_closes(s);
                for (int i = 0; i < 30 && s->tc->live; i++)
                        segment_arrives(w);
        }
        forget_sent(s);
        advance_ms(s, 1000000);
        forget_sent(s);
}

#define SEEDS (long_run() ? 600u : 200u)

static void nothing_from_a_peer_breaks_us(void **state)
{
        int (*const setups[])(void **) = {syn_sent,    syn_received, established, established,
                                          established, accepted,     fin_wait_1,  fin_wait_2,
                                          close_wait,  closing,      last_ack,    time_wait};
        const char *first = getenv("STORM_SEED"), *many = getenv("STORM_SEEDS");
        uint64_t from = first ? strtoull(first, NULL, 0) : 1, n = many    ? strtoull(many, NULL, 0)
                                                                  : first ? 1
                                                                          : SEEDS;

        for (uint64_t seed = from; seed < from + n; seed++) {
                struct storm w = {.x = seed * 0x9e3779b97f4a7c15ull + 1};
                struct scene_setup setup = {
                        .sack = chance(&w, 60),
                        .ts = chance(&w, 40),
                        .wscale = (uint8_t)(chance(&w, 50) ? 2 : 0),
                        .lossless = chance(&w, 20),
                        .reno = chance(&w, 30),
                        .nagle = chance(&w, 50),
                        .rcvbuf = chance(&w, 40) ? 100 + below(&w, 8000) : 0,
                        .sndbuf = chance(&w, 40) ? 4608 + below(&w, 8000) : 0,
                        .wnd = (uint16_t)(chance(&w, 40) ? 1 + below(&w, 5000) : 0),
                        .keepalive = chance(&w, 20),
                };
                void *p = &setup;

                if (getenv("STORM_VERBOSE"))
                        fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
                setups[below(&w, ARRAY_LEN(setups))](&p);
                w.s = p;
                blow(&w);
                w.s->head = w.s->tail = 0;
                scene_end(&p);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(nothing_from_a_peer_breaks_us),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
