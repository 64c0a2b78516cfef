/* Two stacks over an Ethernet: neighbours are found, lost and found again, and connections do
 * not notice. */
#include <errno.h>

#include "tests/sim/pair.h"
#include "tests/unit.h"

static const struct sim_params lan[2] = {{.mtu = 1500, .delay = 20 * NS_PER_US, .csum = true},
                                         {.mtu = 1500, .delay = 20 * NS_PER_US, .csum = true}};

static uint8_t stream_byte(size_t i)
{
        return (uint8_t)(i * 167 + i / 251 + (i >> 16) * 13);
}

static nstime changed_at, transferred_at;

/* `total` bytes from side 0 to side 1; `midway` is called once, after half of them. */
static void transfer(struct pair *p, size_t total, void (*midway)(struct pair *p))
{
        static uint8_t data[100000];
        size_t sent = 0, got = 0;
        uint32_t conn[2];
        nstime start;

        pair_connect(p, 80, &conn[0], &conn[1]);
        start = p->now;
        while (got < total) {
                size_t n = MIN(sizeof data, total - sent);
                int r;

                for (size_t i = 0; i < n; i++)
                        data[i] = stream_byte(sent + i);
                r = n != 0 ? pair_write(p, 0, conn[0], data, n) : 0;
                sent += (size_t)MAX(r, 0);
                while ((r = pair_read(p, 1, conn[1], data, sizeof data)) > 0)
                        for (int i = 0; i < r; i++, got++)
                                if (data[i] != stream_byte(got))
                                        fail_msg("byte %zu differs", got);
                if (midway != NULL && got >= total / 2) {
                        midway(p);
                        midway = NULL;
                }
                pair_settle(p);
                pair_wait(p, p->now + NS_PER_S);
                if (p->now - start > 600 * NS_PER_S) {
                        pair_say(p);
                        fail_msg("stalled at %zu", got);
                }
        }
        transferred_at = p->now;
        for (int i = 0; i < 2; i++) {
                tcp_set_sock(&p->side[i].s.tcp, conn[i], 0);
                tcp_close(&p->side[i].s.tcp, pair_conn(p, i, conn[i]), p->now);
                stack_flush(&p->side[i].s, p->now);
        }
        assert_int_equal(pair_end(p), 0);
}

static void bytes_arrive_over_ethernet(void **state)
{
        struct pair *p = pair_ether(1, lan);

        transfer(p, 3000000, NULL);
        assert_true(p->side[0].st->cnt.n[COUNT_ARP_REQUEST] >= 1);
        assert_true(p->side[1].st->cnt.n[COUNT_ARP_REPLY] >= 1);
        pair_free(p);
}

static void bytes_arrive_over_a_bad_ethernet(void **state)
{
        for (uint64_t seed = 1; seed <= 10; seed++) {
                struct sim_params bad[2] = {lan[0], lan[1]};
                struct pair *p;

                bad[0].loss = bad[1].loss = 0.03;
                bad[0].reorder = bad[1].reorder = 0.05;
                bad[0].reorder_by = bad[1].reorder_by = NS_PER_MS;
                bad[0].corrupt = bad[1].corrupt = 0.01;
                bad[0].duplicate = bad[1].duplicate = 0.02;
                print_message("seed %llu\n", (unsigned long long)seed);
                p = pair_ether(seed, bad);
                transfer(p, 400000, NULL);
                pair_free(p);
        }
}

/* The other host's card was replaced: it says so, as hosts do when an address comes up (RFC
 * 5227 §2.3). */
static void new_card(struct pair *p)
{
        struct netif *n = stack_netif(p->side[1].st, 0);
        struct arp a = {&n->arp, &p->side[1].st->cnt};

        n->cfg.mac[5] = n->arp.cfg.ll_addr[5] = 0x77;
        arp_link_up(&a, p->now);
}

static void neighbour_may_change_its_address(void **state)
{
        struct pair *p = pair_ether(1, lan);

        transfer(p, 3000000, new_card);
        assert_true(p->side[0].st->cnt.n[COUNT_ARP_CHANGED] >= 1);
        pair_free(p);
}

/* ... or does not say so, and must be asked again (RFC 1122 §2.3.2.1). */
static void new_card_silently(struct pair *p)
{
        struct netif *n = stack_netif(p->side[1].st, 0);

        n->cfg.mac[5] = n->arp.cfg.ll_addr[5] = 0x77;
        changed_at = p->now;
}

/* TCP's second timeout in a row makes ARP ask at once; with three polls of a second that is soon
 * enough for a user. */
static void neighbour_is_asked_again_when_silent(void **state)
{
        struct pair *p = pair_ether(1, lan);

        transfer(p, 3000000, new_card_silently);
        assert_true(p->side[0].st->cnt.n[COUNT_ARP_CHANGED] >= 1);
        assert_true(transferred_at - changed_at < 15 * NS_PER_S);
        pair_free(p);
}

/* Nobody has the address: connect hears of it, and no frame and no packet stays anywhere. */
static void nobody_answers(void **state)
{
        struct pair *p = pair_ether(1, lan);
        struct stack *s = &p->side[0].s;
        struct tcp_tuple t = {.laddr = pair_addr(0),
                              .raddr = ip_addr_v4(0x0a000063),
                              .lport = 40000,
                              .rport = 80,
                              .chan = PAIR_CHAN};
        struct tcp_link link = stack_tcp_link(s, PAIR_CHAN);
        struct tcp_opts o;
        int c;

        tcp_opts_default(&o);
        c = tcp_connect(&s->tcp, &t, &link, &o, p->now);
        assert_true(c > 0);
        tcp_set_sock(&s->tcp, (uint32_t)c, 1);
        stack_flush(s, p->now);
        while (!(p->side[0].events & TCP_EV_CLOSED) && pair_step(p, p->now + 4 * NS_PER_S))
                ;
        assert_true(p->side[0].events & TCP_EV_CLOSED); /* after three requests, a second apart */
        assert_int_equal(tcp_take_error(tcp_conn_at(&s->tcp, (uint32_t)c)), EHOSTUNREACH);
        tcp_set_sock(&s->tcp, (uint32_t)c, 0);
        tcp_close(&s->tcp, tcp_conn_at(&s->tcp, (uint32_t)c), p->now);
        assert_int_equal(pair_end(p), 0);
        pair_free(p);
}

/* RFC 1122 §3.3.1.1: what is not on our network goes to the gateway; without one it
 * goes nowhere. */
static void without_a_gateway_there_is_no_way_out(void **state)
{
        struct pair *p = pair_ether(1, lan);
        struct stack *s = &p->side[0].s;
        struct tcp_tuple t = {.laddr = pair_addr(0),
                              .raddr = ip_addr_v4(0xc0000201),
                              .lport = 40000,
                              .rport = 80,
                              .chan = PAIR_CHAN};
        struct tcp_link link = stack_tcp_link(s, PAIR_CHAN);
        struct tcp_opts o;

        tcp_opts_default(&o);
        assert_true(tcp_connect(&s->tcp, &t, &link, &o, p->now) > 0);
        stack_flush(s, p->now);
        pair_settle(p);
        assert_int_equal(p->side[0].st->cnt.drop[DROP_IP_NO_ROUTE], 1);
        assert_int_equal(p->side[0].st->cnt.n[COUNT_ARP_REQUEST], 0);
        pair_free(p);
}

/* `unet pcap` shows IP packets: no Ethernet header, and no ARP. */
static void captures_are_of_ip(void **state)
{
        static uint8_t bytes[CAPTURE_SNAP_MAX];
        struct pair *p = pair_ether(1, lan);
        struct capture *c = p->side[0].s.capture;
        struct capture_reader r;
        struct capture_rec rec;
        unsigned seen = 0;

        capture_reader_init(&r, c);
        atomic_store(&c->snap, CAPTURE_SNAP_MAX);
        transfer(p, 100000, NULL);
        while (capture_read(&r, c, STACK_CAPTURE, &rec, bytes, sizeof bytes)) {
                struct ip_pkt pkt;
                assert_int_equal(ip_hdr_parse(bytes, rec.kept, true, &pkt), 0);
                assert_int_equal(pkt.total_len, rec.len);
                seen++;
        }
        assert_int_equal(r.missed, 0);
        assert_true(seen > 70);
        pair_free(p);
}

/* Who waits for the stack's lock has read his clock before others who were in there meanwhile: what
 * he sends is not dated before what they sent, or the other side would drop it (RFC 7323 §5.3). */
static void a_caller_that_waited_for_the_lock_sends_nothing_old(void **state)
{
        struct pair *p = pair_ether(1, lan);
        static uint8_t data[1000];
        uint32_t conn[2];

        pair_connect(p, 80, &conn[0], &conn[1]);
        pair_wait(p, p->now + NS_PER_S);
        assert_int_equal(pair_write(p, 0, conn[0], data, sizeof data), sizeof data);
        for (nstime until = p->now + NS_PER_MS; p->now < until;)
                pair_wait(p, until);
        p->now -= 20 * NS_PER_MS;
        assert_int_equal(pair_write(p, 0, conn[0], data, sizeof data), sizeof data);
        p->now += 20 * NS_PER_MS;
        for (nstime until = p->now + 10 * NS_PER_MS; p->now < until;)
                pair_wait(p, until);
        assert_int_equal(p->side[1].st->cnt.drop[DROP_TCP_PAWS], 0);
        assert_int_equal(pair_conn(p, 1, conn[1])->bytes_received, 2 * sizeof data);
        pair_free(p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(bytes_arrive_over_ethernet),
                cmocka_unit_test(bytes_arrive_over_a_bad_ethernet),
                cmocka_unit_test(neighbour_may_change_its_address),
                cmocka_unit_test(neighbour_is_asked_again_when_silent),
                cmocka_unit_test(nobody_answers),
                cmocka_unit_test(without_a_gateway_there_is_no_way_out),
                cmocka_unit_test(captures_are_of_ip),
                cmocka_unit_test(a_caller_that_waited_for_the_lock_sends_nothing_old),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
