/* Our stack and lwIP, one thing at a time; each side as client and as server. Bad links are in
 * oracle_seeds.c. */
#include <errno.h>

#include "base/checksum.h"
#include "tcp/tcp_info.h"
#include "tests/oracle/meet.h"
#include "tests/udp/reading.h"
#include "tests/unit.h"

#define PORT 80u

static const struct sim_params wire[2] = {{.mtu = 1500, .delay = 5 * NS_PER_MS, .csum = true},
                                          {.mtu = 1500, .delay = 5 * NS_PER_MS, .csum = true}};

struct talk {
        struct meet *m;
        uint32_t us, listener;
        struct lw_conn *lw;
};

static struct tcp_opts defaults(void)
{
        struct tcp_opts o;

        tcp_opts_default(&o);
        return o;
}

static void we_connect(struct talk *t, const struct tcp_opts *o)
{
        lw_listen(PORT);
        t->us = meet_connect(t->m, PORT, 40000, o);
        meet_pass(t->m, 100 * NS_PER_MS);
        t->lw = lw_accept();
        assert_non_null(t->lw);
}

static void lwip_connects(struct talk *t, const struct tcp_opts *o)
{
        t->listener = meet_listen(t->m, PORT, o);
        t->lw = lw_connect(MEET_US, PORT, 50000);
        meet_pass(t->m, 100 * NS_PER_MS);
        t->us = meet_accept(t->m, t->listener);
        assert_int_not_equal(t->us, 0);
        assert_int_equal(lw_state(t->lw), LW_OPEN);
}

/* A connection on a link; who is client is asked for twice by each scenario. */
static struct talk talk_new(const struct sim_params link[2], bool we_are_client,
                            const struct tcp_opts *o)
{
        struct talk t = {.m = meet_new(1, link)};

        if (we_are_client)
                we_connect(&t, o);
        else
                lwip_connects(&t, o);
        assert_int_equal(meet_conn(t.m, t.us)->state, TCPS_ESTABLISHED);
        return t;
}

/* All timers run out; nothing of ours is left, and nothing was lost on the way that had to be
 * sent again. */
static void talk_end(struct talk *t, bool clean)
{
        if (clean)
                assert_int_equal(t->m->p->side[0].st->cnt.n[COUNT_TCP_RETRANS], 0);
        for (int k = DROP_IP_SHORT; k <= DROP_TCP_CHECKSUM; k++)
                if (k != DROP_UDP_NO_PORT && k != DROP_ICMP_IGNORED)
                        assert_int_equal(t->m->p->side[0].st->cnt.drop[k], 0);
        meet_pass(t->m, 400 * NS_PER_S);
        assert_int_equal(pair_leaks(t->m->p), 0);
        lw_free(t->lw);
        meet_free(t->m);
}

static void we_write(struct talk *t, size_t from, size_t n)
{
        static uint8_t data[200000];

        assert_true(n <= sizeof data);
        for (size_t i = 0; i < n; i++)
                data[i] = meet_byte(0, from + i);
        for (size_t done = 0; done < n;) {
                int r = pair_write(t->m->p, 0, t->us, data + done, n - done);
                assert_true(r >= 0);
                done += (size_t)r;
                if (r == 0)
                        meet_wait(t->m, t->m->p->now + NS_PER_S);
        }
}

static void lwip_reads(struct talk *t, size_t from, size_t n)
{
        static uint8_t data[65536];

        for (size_t done = 0; done < n;) {
                int r = lw_read(t->lw, data, MIN(n - done, sizeof data));
                if (r < 0) {
                        meet_wait(t->m, t->m->p->now + NS_PER_S);
                        continue;
                }
                assert_int_not_equal(r, 0);
                for (int i = 0; i < r; i++)
                        assert_int_equal(data[i], meet_byte(0, from + done + (size_t)i));
                done += (size_t)r;
        }
}

static void lwip_writes(struct talk *t, size_t from, size_t n)
{
        static uint8_t data[200000];

        assert_true(n <= sizeof data);
        for (size_t i = 0; i < n; i++)
                data[i] = meet_byte(1, from + i);
        for (size_t done = 0; done < n;) {
                int r = lw_write(t->lw, data + done, n - done);
                done += (size_t)r;
                if (r == 0)
                        meet_wait(t->m, t->m->p->now + NS_PER_S);
        }
        meet_settle(t->m);
}

static void we_read(struct talk *t, size_t from, size_t n)
{
        static uint8_t data[65536];

        for (size_t done = 0; done < n;) {
                int r = pair_read(t->m->p, 0, t->us, data, MIN(n - done, sizeof data));
                if (r == -EAGAIN) {
                        meet_wait(t->m, t->m->p->now + NS_PER_S);
                        continue;
                }
                assert_true(r > 0);
                for (int i = 0; i < r; i++)
                        assert_int_equal(data[i], meet_byte(1, from + done + (size_t)i));
                done += (size_t)r;
        }
}

static void we_see_the_end(struct talk *t)
{
        uint8_t byte;
        int r;

        while ((r = pair_read(t->m->p, 0, t->us, &byte, 1)) == -EAGAIN)
                meet_wait(t->m, t->m->p->now + NS_PER_S);
        assert_int_equal(r, 0);
}

static void lwip_sees_the_end(struct talk *t)
{
        uint8_t byte;
        int r;

        while ((r = lw_read(t->lw, &byte, 1)) == -1)
                meet_wait(t->m, t->m->p->now + NS_PER_S);
        assert_int_equal(r, 0);
}

static void both_close(struct talk *t)
{
        meet_shutdown(t->m, t->us);
        assert_true(lw_shutdown_send(t->lw));
        lwip_sees_the_end(t);
        we_see_the_end(t);
        meet_close(t->m, t->us);
        assert_true(lw_close(t->lw));
}

/* ---- scenarios; each for both roles ---- */

static void each_role(void (*scenario)(bool we_are_client))
{
        scenario(true);
        scenario(false);
}

static void carry_both_ways(bool client)
{
        struct tcp_opts o = defaults();
        struct talk t = talk_new(wire, client, &o);

        for (size_t at = 0; at < 2000000;
             at += 20000) { /* less than either buffer: nobody waits for a reader */
                we_write(&t, at, 20000);
                lwip_writes(&t, at, 20000);
                we_read(&t, at, 20000);
                lwip_reads(&t, at, 20000);
        }
        both_close(&t);
        talk_end(&t, true);
}
static void bytes_go_both_ways(void **state)
{
        each_role(carry_both_ways);
}

/* RFC 9293 §3.7.1: each sends what the other's MSS option and its own link allow. RFC 7323: lwIP
 * scales by 1.
 */
static void agree(bool client)
{
        struct tcp_opts o = defaults();
        struct talk t = talk_new(wire, client, &o);
        struct tcp_report r;

        tcp_get_report(&t.m->s->tcp, meet_conn(t.m, t.us), &r, t.m->p->now);
        assert_int_equal(r.mss, 1460);
        assert_int_equal(lw_mss(t.lw), 1460);
        assert_true(lw_scales(t.lw));
        assert_int_equal(r.snd_wscale, 1);
        assert_false(r.sack_ok); /* lwIP offers neither */
        assert_false(r.ts_ok);
        both_close(&t);
        talk_end(&t, true);
}
static void options_are_agreed_on(void **state)
{
        each_role(agree);
}

static void agree_on_small(bool client)
{
        struct sim_params narrow[2] = {wire[0], wire[1]};
        struct tcp_opts o = defaults();
        struct tcp_report r;
        struct talk t;

        narrow[0].mtu = 576; /* ours; lwIP's interface can do 1500 */
        o.no_wscale = 1;
        t = talk_new(narrow, client, &o);
        tcp_get_report(&t.m->s->tcp, meet_conn(t.m, t.us), &r, t.m->p->now);
        assert_int_equal(r.mss, 536);
        assert_int_equal(lw_mss(t.lw), 536);
        assert_false(lw_scales(t.lw));
        we_write(&t, 0, 30000);
        lwip_writes(&t, 0, 30000);
        lwip_reads(&t, 0, 30000);
        we_read(&t, 0, 30000);
        both_close(&t);
        talk_end(&t, true);
}
static void the_smaller_mss_is_kept(void **state)
{
        each_role(agree_on_small);
}

static void half_close_ours(bool client)
{
        struct tcp_opts o = defaults();
        struct talk t = talk_new(wire, client, &o);

        we_write(&t, 0, 5000);
        meet_shutdown(t.m, t.us);
        lwip_reads(&t, 0, 5000);
        lwip_sees_the_end(&t);
        meet_pass(t.m, 20 * NS_PER_MS);
        assert_int_equal(meet_conn(t.m, t.us)->state, TCPS_FIN_WAIT_2);
        for (size_t at = 0; at < 60000; at += 20000) {
                lwip_writes(&t, at, 20000);
                we_read(&t, at, 20000);
        }
        assert_true(lw_close(t.lw));
        we_see_the_end(&t);
        assert_int_equal(meet_conn(t.m, t.us)->state, TCPS_TIME_WAIT);
        meet_close(t.m, t.us);
        talk_end(&t, true);
}
static void we_close_our_half(void **state)
{
        each_role(half_close_ours);
}

static void half_close_lwips(bool client)
{
        struct tcp_opts o = defaults();
        struct talk t = talk_new(wire, client, &o);

        lwip_writes(&t, 0, 5000);
        assert_true(lw_shutdown_send(t.lw));
        we_read(&t, 0, 5000);
        we_see_the_end(&t);
        assert_int_equal(meet_conn(t.m, t.us)->state, TCPS_CLOSE_WAIT);
        we_write(&t, 0, 30000);
        lwip_reads(&t, 0, 30000);
        meet_close(t.m, t.us);
        lwip_sees_the_end(&t);
        assert_true(lw_close(t.lw));
        talk_end(&t, true);
}
static void lwip_closes_its_half(void **state)
{
        each_role(half_close_lwips);
}

/* Both FINs are under way at once: CLOSING (RFC 9293 figure 13). */
static void close_at_once(bool client)
{
        struct tcp_opts o = defaults();
        struct talk t = talk_new(wire, client, &o);

        meet_shutdown(t.m, t.us);
        assert_true(lw_shutdown_send(t.lw));
        meet_pass(t.m, 6 * NS_PER_MS);
        assert_int_equal(meet_conn(t.m, t.us)->state, TCPS_CLOSING);
        meet_pass(t.m, 300 * NS_PER_MS);
        assert_int_equal(meet_conn(t.m, t.us)->state, TCPS_TIME_WAIT);
        meet_close(t.m, t.us);
        assert_true(lw_close(t.lw));
        talk_end(&t, true);
}
static void both_close_at_once(void **state)
{
        each_role(close_at_once);
}

static void reset_by_us(bool client)
{
        struct tcp_opts o = defaults();
        struct talk t = talk_new(wire, client, &o);

        we_write(&t, 0, 3000);
        lwip_reads(&t, 0, 3000);
        meet_abort(t.m, t.us);
        meet_close(t.m, t.us);
        meet_pass(t.m, 50 * NS_PER_MS);
        assert_int_equal(lw_state(t.lw), LW_RESET);
        talk_end(&t, true);
}
static void our_reset_arrives(void **state)
{
        each_role(reset_by_us);
}

static void reset_by_lwip(bool client)
{
        struct tcp_opts o = defaults();
        struct talk t = talk_new(wire, client, &o);
        uint8_t byte;

        lwip_writes(&t, 0, 3000);
        we_read(&t, 0, 3000);
        lw_abort(t.lw);
        meet_pass(t.m, 50 * NS_PER_MS);
        assert_int_equal(pair_read(t.m->p, 0, t.us, &byte, 1), -ECONNRESET);
        meet_close(t.m, t.us);
        talk_end(&t, true);
}
static void lwips_reset_arrives(void **state)
{
        each_role(reset_by_lwip);
}

/* RFC 2525 §2.17: whoever closes with data unread says so. */
static void close_unread(bool client)
{
        struct tcp_opts o = defaults();
        struct talk t = talk_new(wire, client, &o);

        lwip_writes(&t, 0, 3000);
        meet_pass(t.m, 50 * NS_PER_MS);
        meet_close(t.m, t.us);
        meet_pass(t.m, 50 * NS_PER_MS);
        assert_int_equal(lw_state(t.lw), LW_RESET);
        talk_end(&t, true);
}
static void closing_with_data_unread_resets(void **state)
{
        each_role(close_unread);
}

static void closed_ports_refuse(void **state)
{
        struct tcp_opts o = defaults();
        struct meet *m = meet_new(1, wire);
        struct lw_conn *lw = lw_connect(MEET_US, 81, 50000);
        uint32_t us = meet_connect(m, 81, 40000, &o);

        meet_pass(m, 100 * NS_PER_MS);
        assert_int_equal(lw_state(lw), LW_REFUSED);
        assert_int_equal(tcp_take_error(meet_conn(m, us)), ECONNREFUSED);
        meet_close(m, us);
        meet_pass(m, NS_PER_S);
        assert_int_equal(pair_leaks(m->p), 0);
        lw_free(lw);
        meet_free(m);
}

/* RFC 9293 §3.8.6.1: a window that closes is probed, and its opening is noticed, even if the news
 * is lost. */
static void stall_reader_ours(bool client)
{
        struct tcp_opts o = defaults();
        struct talk t;

        o.rcvbuf = 8000;
        t = talk_new(wire, client, &o);
        for (size_t at = 0; at < 30000;) { /* lwIP's own buffer takes the rest */
                uint8_t data[1000];
                int r;
                for (size_t i = 0; i < sizeof data; i++)
                        data[i] = meet_byte(1, at + i);
                r = lw_write(t.lw, data, sizeof data);
                assert_int_equal(r, sizeof data);
                at += (size_t)r;
        }
        meet_pass(t.m, 60 * NS_PER_S);
        assert_true(tcp_recv_avail(meet_conn(t.m, t.us)) <= 8000);
        assert_true(tcp_recv_avail(meet_conn(t.m, t.us)) > 6000);
        we_read(&t, 0, 30000);
        both_close(&t);
        talk_end(&t, true);
}
static void our_window_closes_and_opens(void **state)
{
        each_role(stall_reader_ours);
}

static void stall_reader_lwip(bool client)
{
        struct tcp_opts o = defaults();
        struct talk t = talk_new(wire, client, &o);
        struct tcp_report r;

        we_write(&t, 0, 150000);
        meet_pass(t.m, 60 * NS_PER_S);
        tcp_get_report(&t.m->s->tcp, meet_conn(t.m, t.us), &r, t.m->p->now);
        assert_true(r.snd_wnd < 1460);
        assert_int_equal(r.limit, TCP_LIM_RWND);
        lwip_reads(&t, 0, 150000);
        both_close(&t);
        talk_end(&t, false);
}
static void lwips_window_closes_and_opens(void **state)
{
        each_role(stall_reader_lwip);
}

/* ---- UDP ---- */

static uint32_t udp_socket(struct meet *m, uint16_t port)
{
        struct udp_opts o;
        uint32_t pcb;

        udp_opts_default(&o);
        pcb = udp_open(&m->s->udp, &o);
        assert_int_not_equal(pcb, 0);
        assert_int_equal(udp_bind(&m->s->udp, pcb, ip_addr_v4(MEET_US), port), 0);
        return pcb;
}

static void we_send_dgram(struct meet *m, uint32_t pcb, uint16_t port, const uint8_t *data,
                          uint32_t n)
{
        struct udp_tuple to = {
                .laddr = ip_addr_v4(MEET_US), .raddr = ip_addr_v4(MEET_LWIP), .rport = port};
        struct stack_payload p = {.inl = data, .len = n};
        struct udp_out out;

        if (n + IP_MIN_HDR + UDP_HDR > m->s->chan[PAIR_CHAN].caps.inline_max) {
                p.data = (struct buf){
                        frame_alloc(m->s->frames, FRAME_REGION_TX(PAIR_CHAN), FRAME_SMALL, 0), 0,
                        n};
                memcpy(frame_addr(m->s->frames, p.data.id), data, n);
        }
        assert_int_equal(
                udp_output_prepare(&m->s->udp, pcb, &to, n, true, csum_partial(data, n, 0), &out),
                0);
        assert_int_equal(stack_send_udp(m->s, PAIR_CHAN, &out, &p), 0);
        stack_flush_bells(m->s);
}

static void we_receive_dgram(struct meet *m, uint32_t pcb, const uint8_t *data, uint32_t n)
{
        struct udp_msg msg;
        uint32_t at = 0;

        assert_int_equal(udp_recv_peek(&m->s->udp, pcb, 0, &msg, 1), 1);
        assert_int_equal(msg.len, n);
        for (int i = 0; i < msg.nspan; at += msg.span[i++].len)
                assert_memory_equal(msg.span[i].ptr, data + at, msg.span[i].len);
        read_first(&m->s->udp, pcb, 1);
}

static const uint32_t sizes[] = {0, 1, 2, 7, 100, 211, 212, 213, 240, 241, 1000, 1399, 1472};

static void fill(uint8_t *data, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                data[i] = meet_byte(2, i + n);
}

static void lwip_echoes_datagrams(void **state)
{
        struct meet *m = meet_new(1, wire);
        uint32_t pcb = udp_socket(m, 4000);
        uint8_t data[1472];

        lw_udp_echo(7);
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
                fill(data, sizes[i]);
                we_send_dgram(m, pcb, 7, data, sizes[i]);
                meet_pass(m, 20 * NS_PER_MS);
                we_receive_dgram(m, pcb, data, sizes[i]);
        }
        udp_close(&m->s->udp, pcb);
        meet_pass(m, NS_PER_S);
        assert_int_equal(pair_leaks(m->p), 0);
        meet_free(m);
}

static void we_echo_datagrams(void **state)
{
        struct meet *m = meet_new(1, wire);
        uint32_t pcb = udp_socket(m, 7);
        uint8_t data[1472], back[1472];

        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
                fill(data, sizes[i]);
                lw_udp_send(4000, MEET_US, 7, data, sizes[i]);
                meet_pass(m, 20 * NS_PER_MS);
                we_receive_dgram(m, pcb, data, sizes[i]);
                we_send_dgram(m, pcb, 4000, data, sizes[i]);
                meet_pass(m, 20 * NS_PER_MS);
                assert_int_equal(lw_udp_received(back, sizeof back), sizes[i]);
                assert_memory_equal(back, data, sizes[i]);
        }
        udp_close(&m->s->udp, pcb);
        meet_pass(m, NS_PER_S);
        assert_int_equal(pair_leaks(m->p), 0);
        meet_free(m);
}

/* RFC 1122 §4.1.3.1 */
static void lwip_says_port_unreachable(void **state)
{
        struct meet *m = meet_new(1, wire);
        uint32_t pcb = udp_socket(m, 4000);

        assert_int_equal(
                udp_connect(&m->s->udp, pcb, ip_addr_v4(MEET_US), ip_addr_v4(MEET_LWIP), 9), 0);
        we_send_dgram(m, pcb, 9, (const uint8_t *)"x", 1);
        meet_pass(m, 20 * NS_PER_MS);
        assert_int_equal(udp_take_error(&m->s->udp, pcb), ECONNREFUSED);
        udp_close(&m->s->udp, pcb);
        meet_free(m);
}

static void we_say_port_unreachable(void **state)
{
        struct meet *m = meet_new(1, wire);
        uint8_t data[100] = "a datagram for nobody", icmp[200];
        int n;

        lw_udp_send(4000, MEET_US, 9, data, sizeof data);
        meet_pass(m, 20 * NS_PER_MS);
        n = lw_icmp_received(icmp, sizeof icmp);
        assert_true(n >= 8 + 20 + 8);
        assert_int_equal(icmp[0], ICMP_UNREACHABLE);
        assert_int_equal(icmp[1], ICMP_PORT_UNREACHABLE);
        assert_int_equal(icmp[8 + 20 + 2] << 8 | icmp[8 + 20 + 3], 9);
        assert_memory_equal(icmp + 8 + 20 + 8, data, (size_t)n - 36);
        meet_free(m);
}

/* ---- ICMP echo ---- */

static void we_answer_pings(void **state)
{
        static const uint32_t ping[] = {0, 1, 2, 55, 56, 211, 212, 213, 999, 1400, 1472};
        struct meet *m = meet_new(1, wire);
        uint8_t data[1472], back[1480];

        for (size_t i = 0; i < ARRAY_LEN(ping); i++) {
                fill(data, ping[i]);
                lw_ping(MEET_US, 77, (uint16_t)i, data, ping[i]);
                meet_pass(m, 20 * NS_PER_MS);
                assert_int_equal(lw_icmp_received(back, sizeof back), 8 + ping[i]);
                assert_int_equal(back[0], ICMP_ECHO_REPLY);
                assert_int_equal(back[5], 77);
                assert_int_equal(back[7], i);
                assert_memory_equal(back + 8, data, ping[i]);
        }
        assert_int_equal(pair_leaks(m->p), 0);
        meet_free(m);
}

/* Our stack sends none itself yet; it must take lwIP's answer for what it is, though. */
static void lwips_answer_to_a_ping_is_understood(void **state)
{
        struct meet *m = meet_new(1, wire);
        uint8_t echo[IP_MIN_HDR + ICMP_HDR + 32] = {0};
        struct unet_tx tx = {.inl = echo, .inl_len = sizeof echo};
        struct ip_tmpl ip;
        be16 sum;

        ip_tmpl_init(&ip, ip_addr_v4(MEET_US), ip_addr_v4(MEET_LWIP), IP_PROTO_ICMP, 0, 64, false);
        ip_hdr_write(&ip, echo, sizeof echo, 1);
        echo[IP_MIN_HDR] = ICMP_ECHO_REQUEST;
        sum = csum_finish(csum_partial(echo + IP_MIN_HDR, sizeof echo - IP_MIN_HDR, 0));
        memcpy(echo + IP_MIN_HDR + 2, &sum, 2);
        assert_int_equal(sim_ops.send(sim_end(m->p->sim, 0), &tx, 1), 1);
        meet_pass(m, 20 * NS_PER_MS);
        assert_int_equal(m->p->side[0].st->cnt.n[COUNT_ICMP_IN], 1);
        for (int k = DROP_IP_SHORT; k < DROP_COUNT; k++)
                assert_int_equal(m->p->side[0].st->cnt.drop[k], 0);
        meet_free(m);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(bytes_go_both_ways),
                cmocka_unit_test(options_are_agreed_on),
                cmocka_unit_test(the_smaller_mss_is_kept),
                cmocka_unit_test(we_close_our_half),
                cmocka_unit_test(lwip_closes_its_half),
                cmocka_unit_test(both_close_at_once),
                cmocka_unit_test(our_reset_arrives),
                cmocka_unit_test(lwips_reset_arrives),
                cmocka_unit_test(closing_with_data_unread_resets),
                cmocka_unit_test(closed_ports_refuse),
                cmocka_unit_test(our_window_closes_and_opens),
                cmocka_unit_test(lwips_window_closes_and_opens),
                cmocka_unit_test(lwip_echoes_datagrams),
                cmocka_unit_test(we_echo_datagrams),
                cmocka_unit_test(lwip_says_port_unreachable),
                cmocka_unit_test(we_say_port_unreachable),
                cmocka_unit_test(we_answer_pings),
                cmocka_unit_test(lwips_answer_to_a_ping_is_understood),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
