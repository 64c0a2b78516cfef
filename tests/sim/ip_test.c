/* Two stacks on a link of 1500 bytes: datagrams in pieces, errors about them, and paths that carry
 * less. RFC 791, 1122, 1191. */
#include <stdlib.h>
#include <errno.h>

#include "base/checksum.h"
#include "tests/sim/pair.h"
#include "tests/udp/reading.h"
#include "tests/unit.h"

#define PORT 4000u

static const struct sim_params wire[2] = {{.mtu = 1500, .delay = NS_PER_MS, .csum = true},
                                          {.mtu = 1500, .delay = NS_PER_MS, .csum = true}};

struct scene {
        struct pair *p;
        uint32_t pcb[2];
        uint8_t data[UDP_MAX_PAYLOAD];
};

static void opens(struct scene *s, int i)
{
        struct udp *u = &s->p->side[i].s.udp;
        struct udp_opts o;

        udp_opts_default(&o);
        s->pcb[i] = udp_open(u, &o);
        assert_int_equal(udp_bind(u, s->pcb[i], pair_addr(i), PORT), 0);
}

static int setup(void **state)
{
        struct scene *s = calloc(1, sizeof *s);

        s->p = pair_sim(1, wire);
        opens(s, 0);
        opens(s, 1);
        for (size_t i = 0; i < sizeof s->data; i++)
                s->data[i] = (uint8_t)(i * 13 + i / 251);
        *state = s;
        return 0;
}

static int teardown(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 2; i++)
                udp_close(&s->p->side[i].s.udp, s->pcb[i]);
        assert_int_equal(pair_leaks(s->p), 0);
        pair_free(s->p);
        free(s);
        return 0;
}

/* Side 0 sends `len` bytes; 0 or -errno. */
static int sends(struct scene *s, uint32_t len, enum pmtu_mode mode)
{
        struct stack *st = &s->p->side[0].s;
        struct udp_tuple to = {.laddr = pair_addr(0), .raddr = pair_addr(1), .rport = PORT};
        struct stack_payload pay = {.len = len};
        struct udp_out out;
        struct udp_opts o;
        int err;

        udp_get_opts(&st->udp, s->pcb[0], &o);
        o.pmtu_mode = (uint8_t)mode;
        udp_set_opts(&st->udp, s->pcb[0], &o);
        pay.data = (struct buf){frame_alloc(st->frames, FRAME_REGION_TX(PAIR_CHAN), FRAME_LARGE, 0),
                                0, len};
        assert_int_not_equal(pay.data.id, 0);
        memcpy(frame_addr(st->frames, pay.data.id), s->data, len);
        st->now = s->p->now;
        assert_int_equal(udp_output_prepare(&st->udp, s->pcb[0], &to, len, true,
                                            csum_partial(s->data, len, 0), &out),
                         0);
        err = stack_send_udp(st, PAIR_CHAN, &out, &pay);
        if (err != 0)
                frame_drop(st->frames, pay.data.id);
        stack_flush(st, s->p->now);
        pair_wait(s->p, s->p->now + 50 * NS_PER_MS);
        while (pair_step(s->p, s->p->now + 50 * NS_PER_MS))
                ;
        return err;
}

static void arrived(struct scene *s, uint32_t len)
{
        struct udp *u = &s->p->side[1].s.udp;
        struct udp_msg m;
        uint32_t at = 0;

        assert_int_equal(udp_recv_peek(u, s->pcb[1], 0, &m, 1), 1);
        assert_int_equal(m.len, len);
        for (int i = 0; i < m.nspan; at += (uint32_t)m.span[i++].len)
                assert_memory_equal(m.span[i].ptr, s->data + at, m.span[i].len);
        assert_int_equal(at, len);
        read_first(u, s->pcb[1], 1);
}

#define counted(s, i, what) ((s)->p->side[i].st->cnt.n[COUNT_##what])
#define dropped(s, i, why)  ((s)->p->side[i].st->cnt.drop[DROP_##why])

/* RFC 1122 §3.3.3, §3.3.2: what does not fit goes in pieces and is put together, up to the longest
 * there is. */
static void long_datagrams_arrive_whole(void **state)
{
        static const uint32_t len[] = {1472, 1473, 2960, 8192, 20000, UDP_MAX_PAYLOAD};
        struct scene *s = *state;

        for (size_t i = 0; i < ARRAY_LEN(len); i++) {
                assert_int_equal(sends(s, len[i], PMTU_WANT), 0);
                arrived(s, len[i]);
        }
        assert_int_equal(counted(s, 0, IP_FRAGMENTED), 5);
        assert_int_equal(counted(s, 1, IP_REASSEMBLED), 5);
        assert_int_equal(counted(s, 0, IP_FRAGS_OUT), counted(s, 1, IP_FRAGS_IN));
}

/* As sends(), of bytes that lie in no frame. */
static int sends_copied(struct scene *s, uint32_t len, enum pmtu_mode mode)
{
        static uint8_t at[STACK_UDP_ROOM + 2000];
        struct stack *st = &s->p->side[0].s;
        struct udp_tuple to = {.laddr = pair_addr(0), .raddr = pair_addr(1), .rport = PORT};
        struct stack_payload pay = {.inl = at + STACK_UDP_ROOM, .len = len, .room = at};
        struct udp_out out;
        struct udp_opts o;
        int err;

        udp_get_opts(&st->udp, s->pcb[0], &o);
        o.pmtu_mode = (uint8_t)mode;
        udp_set_opts(&st->udp, s->pcb[0], &o);
        memcpy(at + STACK_UDP_ROOM, s->data, len);
        st->now = s->p->now;
        assert_int_equal(udp_output_prepare(&st->udp, s->pcb[0], &to, len, true,
                                            stack_payload_sum(st, &pay), &out),
                         0);
        err = stack_send_udp(st, PAIR_CHAN, &out, &pay);
        memset(at, 0xee, sizeof at); /* it is the sender's again */
        while (pair_step(s->p, s->p->now + 50 * NS_PER_MS))
                ;
        return err;
}

/* Where a channel copies, a datagram needs no frame, and its headers go in front of it; unless it
 * has to be cut. */
static void what_is_copied_needs_no_frame(void **state)
{
        static const uint32_t len[] = {0, 1, 300, 1471, 1472};
        struct scene *s = *state;
        struct udp_msg m;

        for (size_t i = 0; i < ARRAY_LEN(len); i++) {
                assert_int_equal(sends_copied(s, len[i], PMTU_WANT), 0);
                arrived(s, len[i]);
        }
        assert_int_equal(sends_copied(s, 1473, PMTU_WANT), -E2BIG);
        assert_int_equal(sends_copied(s, 1473, PMTU_DO), -EMSGSIZE);
        assert_int_equal(udp_recv_peek(&s->p->side[1].s.udp, s->pcb[1], 0, &m, 1), -EAGAIN);
}

static void what_must_not_be_cut_is_refused(void **state)
{
        struct scene *s = *state;

        assert_int_equal(sends(s, 1473, PMTU_DO), -EMSGSIZE);
        assert_int_equal(sends(s, 1473, PMTU_PROBE), -EMSGSIZE);
        assert_int_equal(sends(s, 1472, PMTU_DO), 0);
        arrived(s, 1472);
}

/* RFC 1122 §3.3.2: a piece is lost; a minute later the sender is told, if the first one
 * was there. */
static void what_never_became_whole_is_told(void **state)
{
        struct scene *s = *state;
        struct sim_params lossy = wire[0];
        uint64_t before;

        lossy.loss = 0.3;
        sim_set_params(s->p->sim, 0, &lossy);
        for (int i = 0; i < 20; i++)
                assert_int_equal(sends(s, 8000, PMTU_DONT), 0);
        before = counted(s, 0, ICMP_IN);
        pair_wait(s->p, s->p->now + REASS_TIMEOUT);
        while (pair_step(s->p, s->p->now + REASS_TIMEOUT))
                ;
        assert_true(dropped(s, 1, IP_FRAG_TIMEOUT) > 5);
        assert_in_range(counted(s, 0, ICMP_IN) - before, 1, dropped(s, 1, IP_FRAG_TIMEOUT));
}

/* RFC 1191: an error that quotes a datagram of ours makes the path narrow, for all that
 * goes there. */
static void a_path_that_was_learnt_holds_for_udp(void **state)
{
        struct scene *s = *state;
        struct stack *st = &s->p->side[0].s;

        stack_path_learnt(st, PAIR_CHAN, pair_addr(1), 1000);
        assert_int_equal(sends(s, 973, PMTU_DO), -EMSGSIZE);
        assert_int_equal(sends(s, 972, PMTU_DO), 0);
        arrived(s, 972);
        assert_int_equal(sends(s, 973, PMTU_WANT), 0);
        arrived(s, 973);
        assert_int_equal(counted(s, 0, IP_FRAGS_OUT), 2);
        assert_int_equal(sends(s, 1472, PMTU_PROBE), 0);
        arrived(s, 1472);
        s->p->now += PMTU_EXPIRES;
        assert_int_equal(sends(s, 1472, PMTU_DO), 0);
        arrived(s, 1472);
}

/* A connection made after that begins with the size that is known. */
static void a_path_that_was_learnt_holds_for_tcp(void **state)
{
        struct scene *s = *state;
        uint32_t client, server;

        stack_path_learnt(&s->p->side[0].s, PAIR_CHAN, pair_addr(1), 1000);
        pair_connect(s->p, 80, &client, &server);
        assert_int_equal(pair_conn(s->p, 0, client)->snd_mss, 1000 - 40 - 12);
        assert_int_equal(pair_conn(s->p, 1, server)->snd_mss, 1460 - 12);
        tcp_close(&s->p->side[0].s.tcp, pair_conn(s->p, 0, client), s->p->now);
        tcp_close(&s->p->side[1].s.tcp, pair_conn(s->p, 1, server), s->p->now);
        for (int i = 0; i < 2; i++)
                stack_flush(&s->p->side[i].s, s->p->now);
        while (pair_step(s->p, s->p->now + 400 * NS_PER_S))
                ;
}

/* A process dies while datagrams are under way: their frames are free, and the next are
 * put together. */
static void a_death_forgets_datagrams_under_way(void **state)
{
        struct scene *s = *state;
        struct sim_params lossy = wire[0];

        lossy.loss = 0.3;
        sim_set_params(s->p->sim, 0, &lossy);
        for (int i = 0; i < 10; i++)
                sends(s, 8000, PMTU_WANT);
        stack_recover(&s->p->side[1].s, s->p->now);
        reass_check(&(struct reass){&s->p->side[1].s.ip->reass, s->p->side[1].s.frames,
                                    &s->p->side[1].st->cnt});
        lossy.loss = 0;
        sim_set_params(s->p->sim, 0, &lossy);
        opens(s, 1); /* the one that it had was nobody's socket */
        assert_int_equal(sends(s, 8000, PMTU_WANT), 0);
        arrived(s, 8000);
}

static uint8_t answer[2000];
static size_t answer_len;

static void note_answer(void *arg, nstime now, int side, enum sim_event what, const uint8_t *bytes,
                        size_t len)
{
        if (side != 1 || what != SIM_SENT || len > sizeof answer)
                return;
        memcpy(answer, bytes, len);
        answer_len = len;
}

/* RFC 1122 §3.2.2.6: what the echo recorded comes back, with us in it. */
static void an_echo_brings_its_options_back(void **state)
{
        static const uint8_t rr[12] = {7, 11, 4};
        struct scene *s = *state;
        struct stack_chan *c = &s->p->side[0].s.chan[PAIR_CHAN];
        uint8_t msg[20 + 12 + 16] = {0};
        struct unet_tx tx = {.inl = msg, .inl_len = sizeof msg};
        struct ip_tmpl t;
        struct ip_pkt pkt;
        be16 sum = {0};

        ip_tmpl_init(&t, pair_addr(0), pair_addr(1), IP_PROTO_ICMP, 0, 64, true);
        ip_hdr_write(&t, msg, sizeof msg, 0);
        msg[0] = 0x48;
        memcpy(msg + 20, rr, sizeof rr);
        memcpy(msg + 10, &sum, 2);
        sum = csum_finish(csum_partial(msg, 32, 0));
        memcpy(msg + 10, &sum, 2);
        msg[32] = ICMP_ECHO_REQUEST;
        sum = csum_finish(csum_partial(msg + 32, 16, 0));
        memcpy(msg + 34, &sum, 2);
        sim_set_trace(s->p->sim, note_answer, NULL);
        assert_int_equal(c->ops->send(c->ch, &tx, 1), 1);
        while (pair_step(s->p, s->p->now + 50 * NS_PER_MS))
                ;
        assert_int_equal(answer_len, sizeof msg);
        assert_int_equal(ip_hdr_parse(answer, answer_len, true, &pkt), 0);
        assert_int_equal(pkt.hdr_len, 32);
        assert_memory_equal(answer + 20, "\x07\x0b\x08\x0a\0\0\x02\0\0\0\0\0", 12);
        assert_int_equal(answer[32], ICMP_ECHO_REPLY);
        assert_int_equal(csum_finish(csum_partial(answer + 32, 16, 0)).raw, 0);
}

/* RFC 1122 §3.2.2, RFC 1812 §4.3.2.3: an error quotes as much as fits 576 bytes, be the datagram
 * short or long. */
static void an_error_quotes_what_it_is_about(void **state)
{
        struct scene *s = *state;
        static const uint32_t lens[] = {1, 180, 400, 508, 600, 1400};

        udp_close(&s->p->side[1].s.udp, s->pcb[1]);
        sim_set_trace(s->p->sim, note_answer, NULL);
        for (unsigned i = 0; i < ARRAY_LEN(lens); i++) {
                size_t want = MIN(20 + 8 + 28 + lens[i], 576);
                struct ip_pkt pkt, about;

                answer_len = 0;
                s->p->now += NS_PER_S; /* the rate limit */
                assert_int_equal(sends(s, lens[i], PMTU_WANT), 0);
                while (pair_step(s->p, s->p->now + 50 * NS_PER_MS))
                        ;
                assert_int_equal(answer_len, want);
                assert_int_equal(ip_hdr_parse(answer, answer_len, true, &pkt), 0);
                assert_int_equal(answer[20], ICMP_UNREACHABLE);
                assert_int_equal(csum_finish(csum_partial(answer + 20, answer_len - 20, 0)).raw, 0);
                assert_int_equal(ip_hdr_parse(answer + 28, answer_len - 28, false, &about), 0);
                assert_int_equal(about.total_len, 28 + lens[i]);
                for (size_t at = 28 + 28; at < answer_len; at++)
                        assert_int_equal(answer[at], s->data[at - 56]);
        }
        opens(s, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(long_datagrams_arrive_whole),
                TEST(what_is_copied_needs_no_frame),
                TEST(what_must_not_be_cut_is_refused),
                TEST(what_never_became_whole_is_told),
                TEST(a_path_that_was_learnt_holds_for_udp),
                TEST(a_path_that_was_learnt_holds_for_tcp),
                TEST(an_echo_brings_its_options_back),
                TEST(an_error_quotes_what_it_is_about),
                TEST(a_death_forgets_datagrams_under_way),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
