/* TCP segments on a link, with IP's header and their checksum: RFC 9293 §3.1, 3.7.1,
 * 3.9.2, 3.10.7.4. */
#include <stdlib.h>

#include "base/checksum.h"
#include "tests/sim/pair.h"
#include "tests/unit.h"

static const struct sim_params wire[2] = {{.mtu = 1500, .delay = NS_PER_MS, .csum = true},
                                          {.mtu = 1500, .delay = NS_PER_MS, .csum = true}};

struct sent { /* by side 0, or its answers by side 1; the last of each */
        uint8_t bytes[1500];
        size_t len;
        unsigned n;
        uint16_t mss; /* of its SYN */
};

struct world {
        struct pair *p;
        uint32_t client, server;
        struct sent sent[2];
};

static uint32_t segment_sum(const uint8_t *p, const struct ip_pkt *pkt)
{
        uint8_t pseudo[12] = {[9] = IP_PROTO_TCP};
        uint32_t len = pkt->total_len - pkt->hdr_len;

        memcpy(pseudo, p + 12, 8);
        pseudo[10] = (uint8_t)(len >> 8);
        pseudo[11] = (uint8_t)len;
        return csum_finish(
                       csum_partial(p + pkt->hdr_len, len, csum_partial(pseudo, sizeof pseudo, 0)))
                .raw;
}

/* MUST-2: whatever leaves has a sum that is right over all of it and the pseudo-header. */
static void note_sent(void *arg, nstime now, int side, enum sim_event what, const uint8_t *bytes,
                      size_t len)
{
        struct sent *s = &((struct world *)arg)->sent[side];
        struct ip_pkt pkt;
        struct tcp_seg seg;

        if (what != SIM_SENT)
                return;
        assert_true(len <= sizeof s->bytes);
        assert_int_equal(ip_hdr_parse(bytes, len, true, &pkt), 0);
        assert_int_equal(segment_sum(bytes, &pkt), 0);
        assert_true(tcp_hdr_parse(bytes + pkt.hdr_len, len - pkt.hdr_len, &seg) > 0);
        if (seg.flags & TCP_SYN)
                s->mss = seg.mss;
        memcpy(s->bytes, bytes, len);
        s->len = len;
        s->n++;
}

static int setup(void **state)
{
        struct world *w = calloc(1, sizeof *w);

        w->p = pair_sim(1, wire);
        sim_set_trace(w->p->sim, note_sent, w);
        pair_connect(w->p, 80, &w->client, &w->server);
        *state = w;
        return 0;
}

static void passes(struct world *w)
{
        for (int i = 0; i < 100; i++)
                pair_wait(w->p, w->p->now + NS_PER_MS);
}

static int teardown(void **state)
{
        struct world *w = *state;

        tcp_close(&w->p->side[0].s.tcp, pair_conn(w->p, 0, w->client), w->p->now);
        tcp_close(&w->p->side[1].s.tcp, pair_conn(w->p, 1, w->server), w->p->now);
        for (int i = 0; i < 2; i++)
                stack_flush(&w->p->side[i].s, w->p->now);
        assert_int_equal(pair_end(w->p), 0);
        pair_free(w->p);
        free(w);
        return 0;
}

/* MUST-67: MMS_R less the header, both ways. */
static void a_syn_tells_what_can_be_received(void **state)
{
        struct world *w = *state;

        assert_int_equal(w->sent[0].mss, 1500 - 40);
        assert_int_equal(w->sent[1].mss, 1500 - 40);
}

static void sends_as(struct world *w, uint8_t ttl, uint8_t tos)
{
        struct stack *s = &w->p->side[0].s;
        struct tcp_conn *tc = pair_conn(w->p, 0, w->client);
        uint8_t data[100] = {0};
        struct tcp_opts o;
        struct ip_pkt pkt;
        unsigned before = w->sent[0].n;

        tcp_get_opts(tc, &o);
        o.ttl = ttl;
        o.tos = tos;
        tcp_set_opts(&s->tcp, tc, &o, w->p->now);
        assert_int_equal(pair_write(w->p, 0, w->client, data, sizeof data), sizeof data);
        passes(w);
        assert_true(w->sent[0].n > before);
        assert_int_equal(ip_hdr_parse(w->sent[0].bytes, w->sent[0].len, true, &pkt), 0);
        assert_int_equal(pkt.ttl, ttl);
        assert_int_equal(pkt.tos, tos);
        assert_int_equal(pair_read(w->p, 1, w->server, data, sizeof data), sizeof data);
}

/* MUST-48, -49, SHLD-21, -22: what the application says stands in the header, and may change. */
static void ttl_and_diffserv_are_the_applications(void **state)
{
        sends_as(*state, 64, 0);
        sends_as(*state, 33, 0xb8);
        sends_as(*state, 255, 0x20);
}

/* MUST-3: with one bit wrong in its text, header or addresses it did not come. */
static void a_wrong_checksum_is_dropped(void **state)
{
        static const unsigned at[] = {20 + 4, 20 + 13, 20 + 16, 20 + 17, 20 + 32, 20 + 32 + 99};
        struct world *w = *state;
        struct stack *s = &w->p->side[0].s;
        struct stack_chan *c = &s->chan[PAIR_CHAN];
        uint64_t *drops = &w->p->side[1].st->cnt.drop[DROP_TCP_CHECKSUM];
        uint8_t data[100] = {0}, packet[20 + 32 + 100];
        struct unet_tx tx = {.inl = packet, .inl_len = sizeof packet};
        struct tcp_conn *tc;

        assert_int_equal(pair_write(w->p, 0, w->client, data, sizeof data), sizeof data);
        /* What is with the peer in a millisecond. */
        assert_int_equal(w->sent[0].len, sizeof packet);
        memcpy(packet, w->sent[0].bytes, sizeof packet);
        passes(w);
        assert_int_equal(pair_read(w->p, 1, w->server, data, sizeof data), sizeof data);
        assert_int_equal(*drops, 0);
        sim_set_trace(w->p->sim, NULL, NULL);
        tc = pair_conn(w->p, 1, w->server);
        for (unsigned i = 0; i < ARRAY_LEN(at); i++) {
                uint64_t in = tc->segs_in;
                packet[at[i]] ^= 1;
                assert_int_equal(c->ops->send(c->ch, &tx, 1), 1);
                passes(w);
                assert_int_equal(*drops, i + 1);
                assert_int_equal(tc->segs_in, in);
                packet[at[i]] ^= 1;
        }
        assert_int_equal(c->ops->send(c->ch, &tx, 1), 1);
        passes(w);
        assert_int_equal(w->p->side[1].st->cnt.drop[DROP_TCP_OLD_DUPLICATE], 1);
}

/* MUST-58, -59: what has come together is all looked at before any of it is acknowledged, and then
 * by one. */
static void what_came_together_is_acknowledged_together(void **state)
{
        static uint8_t data[8 * 1448];
        struct world *w = *state;
        unsigned before;

        passes(w);
        before = w->sent[1].n;
        assert_int_equal(pair_write(w->p, 0, w->client, data, sizeof data), sizeof data);
        pair_wait(w->p, w->p->now + NS_PER_MS);
        passes(w);
        assert_int_equal(pair_conn(w->p, 0, w->client)->bytes_acked, sizeof data);
        assert_int_equal(w->sent[1].n - before, 1);
        assert_int_equal(pair_read(w->p, 1, w->server, data, sizeof data), sizeof data);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(a_syn_tells_what_can_be_received),
                TEST(ttl_and_diffserv_are_the_applications),
                TEST(a_wrong_checksum_is_dropped),
                TEST(what_came_together_is_acknowledged_together),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
