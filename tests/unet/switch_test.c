/* The switch: who gets how much, who may send where, what happens to slow and to dead endpoints. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pair.h"
#include "unet/shm/switch.h"

struct node {
        struct unet_ep *ep;
        struct unet_segment seg;
        uint32_t link, port;
};

static struct node node_on(struct unet_switch *sw, struct unet_ep_opts opts)
{
        struct node n;

        assert_int_equal(unet_ep_open(&opts, &n.ep), 0);
        n.seg = unet_ep_segment(n.ep);
        n.port = switch_join(sw, NULL, n.ep, &n.link);
        for (uint32_t i = 0; i < 60; i++) {
                struct unet_frag buf = {(uint32_t)n.seg.tx_bytes + i * 65536, 65536};
                unet_ep_provide(n.ep, &buf, 1);
        }
        return n;
}

/* A channel from a to b; each one's number of it. */
static void join(struct unet_switch *sw, const struct node *a, const struct node *b, uint32_t *ca,
                 uint32_t *cb)
{
        uint32_t tag[2];

        assert_int_equal(unet_switch_connect(sw, a->port, b->port, tag), 0);
        assert_int_equal(ep_chan_tagged(a->ep, a->link, tag[0], tag[0], ca), 0);
        assert_int_equal(ep_chan_tagged(b->ep, b->link, tag[1], tag[1], cb), 0);
}

static int send_bytes(const struct node *n, uint32_t chan, uint32_t len)
{
        struct unet_send m = {.chan = chan};

        if (len <= UNET_EP_INLINE) {
                m.inl = n->seg.base;
                m.inl_len = (uint16_t)len;
        } else {
                m.nfrags = 1;
                m.frag[0] = (struct unet_frag){0, len};
        }
        return unet_ep_send(n->ep, &m, 1);
}

/* Receives everything there is; adds up bytes by channel. */
static uint32_t drain(const struct node *n, uint64_t *bytes_of)
{
        struct unet_recv m;
        uint32_t got = 0;

        while (unet_ep_recv(n->ep, &m, 1) == 1) {
                got++;
                if (bytes_of != NULL)
                        bytes_of[m.chan] += m.len;
                for (int i = 0; i < m.nfrags; i++)
                        unet_ep_provide(n->ep, &(struct unet_frag){m.frag[i].off, m.frag[i].size},
                                        1);
        }
        return got;
}

static void settle(struct unet_switch *sw)
{
        while (unet_switch_step(sw) > 0)
                ;
}

/* One sends 200-byte messages, one 1400, one 16 KB, each as much as it can: each gets about a third
 * of the bytes, for as long as it has enough to send. */
static void ports_share_by_bytes(void **state)
{
        const uint32_t len[3] = {200, 1400, 16384};
        struct unet_switch_opts opts = {.quota = 16 << 20};
        struct unet_switch *sw;
        struct node s[3], sink;
        uint32_t cs[3], cr[3];
        uint64_t bytes[8] = {0}, least = UINT64_MAX, most = 0;

        assert_int_equal(unet_switch_open(&opts, &sw), 0);
        sink = node_on(sw, (struct unet_ep_opts){0});
        for (int i = 0; i < 3; i++) {
                s[i] = node_on(sw, (struct unet_ep_opts){0});
                join(sw, &s[i], &sink, &cs[i], &cr[i]);
        }
        for (int round = 0; round < 100; round++) {
                for (int i = 0; i < 3; i++)
                        while (send_bytes(&s[i], cs[i], len[i]) == 1)
                                ;
                unet_switch_step(sw);
                drain(&sink, bytes);
        }
        for (int i = 0; i < 3; i++) {
                print_message("%u-byte messages: %llu bytes\n", len[i],
                              (unsigned long long)bytes[cr[i]]);
                least = MIN(least, bytes[cr[i]]);
                most = MAX(most, bytes[cr[i]]);
        }
        assert_true(most * 4 < least * 5);
        for (int i = 0; i < 3; i++)
                unet_ep_close(s[i].ep);
        unet_ep_close(sink.ep);
        unet_switch_close(sw);
}

/* b takes nothing. a loses what it sends to b, by quota, and c hears all of what a and d send
 * to it. */
static void a_slow_receiver_costs_only_its_senders(void **state)
{
        struct unet_switch *sw;
        struct node a, b, c, d;
        uint32_t ab, ba, ac, ca, dc, cd, got = 0, sent = 0;
        const struct counters *na, *nb;

        assert_int_equal(unet_switch_open(NULL, &sw), 0);
        a = node_on(sw, (struct unet_ep_opts){0});
        b = node_on(sw, (struct unet_ep_opts){0});
        c = node_on(sw, (struct unet_ep_opts){0});
        d = node_on(sw, (struct unet_ep_opts){0});
        join(sw, &a, &b, &ab, &ba);
        join(sw, &a, &c, &ac, &ca);
        join(sw, &d, &c, &dc, &cd);
        for (int i = 0; i < 500; i++) {
                assert_int_equal(send_bytes(&a, ab, 60000), 1);
                assert_int_equal(send_bytes(&a, ac, 100), 1);
                assert_int_equal(send_bytes(&d, dc, 60000), 1);
                sent += 2;
                settle(sw);
                got += drain(&c, NULL);
        }
        settle(sw);
        got += drain(&c, NULL);
        assert_int_equal(got, sent);
        na = unet_switch_counters(sw, a.port);
        nb = unet_switch_counters(sw, b.port);
        assert_true(na->drop[DROP_NI_QUOTA] + nb->drop[DROP_NI_NO_BUFFER] > 300);
        assert_true(na->drop[DROP_NI_QUOTA] > 0);
        assert_true(unet_switch_charged(sw, a.port) > 0);
        assert_int_equal(unet_switch_counters(sw, d.port)->drop[DROP_NI_QUOTA], 0);

        /* When b goes, a is charged for nothing any more. */
        unet_ep_close(b.ep);
        settle(sw);
        assert_int_equal(unet_switch_charged(sw, a.port), 0);
        unet_ep_close(a.ep);
        unet_ep_close(c.ep);
        unet_ep_close(d.ep);
        unet_switch_close(sw);
}

static void a_full_receive_ring_drops_at_the_receiver(void **state)
{
        struct unet_switch *sw;
        struct node a, b;
        uint32_t ab, ba, sent = 0;

        assert_int_equal(unet_switch_open(NULL, &sw), 0);
        a = node_on(sw, (struct unet_ep_opts){0});
        b = node_on(sw, (struct unet_ep_opts){.rx_slots = 4096});
        join(sw, &a, &b, &ab, &ba);
        for (int i = 0; i < 1000; i++) {
                sent += send_bytes(&a, ab, 8) == 1;
                settle(sw);
        }
        assert_int_equal(sent, 1000);
        assert_int_equal(
                drain(&b, NULL) + unet_switch_counters(sw, b.port)->drop[DROP_NI_QUEUE_FULL], 1000);
        unet_ep_close(a.ep);
        unet_ep_close(b.ep);
        unet_switch_close(sw);
}

static void only_the_owner_of_a_tag_may_send_with_it(void **state)
{
        struct unet_switch *sw;
        struct node a, b, c;
        uint32_t ab, ba, forged, unknown, tag[2];
        const struct counters *nc;

        assert_int_equal(unet_switch_open(NULL, &sw), 0);
        a = node_on(sw, (struct unet_ep_opts){0});
        b = node_on(sw, (struct unet_ep_opts){0});
        c = node_on(sw, (struct unet_ep_opts){0});
        join(sw, &a, &b, &ab, &ba);
        assert_int_equal(unet_switch_connect(sw, a.port, b.port, tag), 0);
        assert_int_equal(ep_chan_tagged(c.ep, c.link, tag[0], 1, &forged), 0);
        assert_int_equal(ep_chan_tagged(c.ep, c.link, 424242, 2, &unknown), 0);
        assert_int_equal(ep_chan_tagged(c.ep, c.link, 1, 2, &unknown), -EEXIST);
        assert_int_equal(ep_chan_tagged(c.ep, 7, 1, 2, &unknown), -ENODEV);
        assert_int_equal(send_bytes(&c, forged, 8), 1);
        assert_int_equal(send_bytes(&c, unknown, 8), 1);
        settle(sw);
        nc = unet_switch_counters(sw, c.port);
        assert_int_equal(nc->drop[DROP_NI_BAD_SOURCE], 1);
        assert_int_equal(nc->drop[DROP_NI_NO_CHANNEL], 1);
        assert_int_equal(drain(&b, NULL), 0);

        /* An endpoint that has not registered a tag drops what comes with it. */
        assert_int_equal(send_bytes(&a, ab, 8), 1);
        assert_int_equal(unet_chan_close(b.ep, ba), 0);
        settle(sw);
        assert_int_equal(drain(&b, NULL), 0);
        assert_int_equal(unet_ep_stat(b.ep, "NI_NO_CHANNEL"), 1);

        assert_int_equal(unet_switch_connect(sw, a.port, 999, tag), -EINVAL);
        assert_int_equal(unet_switch_disconnect(sw, 424242), -ENOENT);
        unet_ep_close(a.ep);
        unet_ep_close(b.ep);
        unet_ep_close(c.ep);
        unet_switch_close(sw);
}

static void tags_are_not_reused_at_once(void **state)
{
        struct unet_switch *sw;
        struct node a, b;
        static uint32_t seen[3 * SWITCH_ROUTES];
        uint32_t tag[2], n = 0;

        assert_int_equal(unet_switch_open(NULL, &sw), 0);
        a = node_on(sw, (struct unet_ep_opts){0});
        b = node_on(sw, (struct unet_ep_opts){0});
        while (n < ARRAY_LEN(seen)) {
                assert_int_equal(unet_switch_connect(sw, a.port, b.port, tag), 0);
                assert_int_equal(unet_switch_disconnect(sw, tag[n % 4 == 0]), 0);
                assert_int_equal(unet_switch_disconnect(sw, tag[0]), -ENOENT);
                assert_int_equal(unet_switch_disconnect(sw, tag[1]), -ENOENT);
                seen[n++] = tag[0];
                seen[n++] = tag[1];
        }
        for (uint32_t i = 0; i < n; i += 97)
                for (uint32_t k = 0; k < n; k++)
                        assert_true(k == i || seen[k] != seen[i]);
        while (unet_switch_connect(sw, a.port, b.port, tag) == 0)
                ;
        assert_int_equal(unet_switch_connect(sw, a.port, b.port, tag), -ENOSPC);
        unet_ep_close(a.ep);
        unet_ep_close(b.ep);
        unet_switch_close(sw);
}

/* The ends of a channel are seen at the other side, whichever way they come; a full queue delays
 * them only. */
static void an_ended_channel_is_seen(void **state)
{
        struct unet_switch *sw;
        struct node a, b;
        uint32_t ab, ba, ab2, ba2;
        struct unet_chan_info info;

        assert_int_equal(unet_switch_open(NULL, &sw), 0);
        a = node_on(sw, (struct unet_ep_opts){0});
        b = node_on(sw, (struct unet_ep_opts){0});
        join(sw, &a, &b, &ab, &ba);
        join(sw, &a, &b, &ab2, &ba2);
        while (send_bytes(&a, ab2, 8) == 1)
                ;
        assert_int_equal(unet_chan_close(a.ep, ab), 0);
        settle(sw);
        assert_int_equal(unet_chan_info(b.ep, ba, &info), 0);
        assert_false(info.closed);
        unet_ep_poll(a.ep); /* there is room now */
        settle(sw);
        assert_int_equal(unet_ep_wait(b.ep, UNET_CLOSED, UNET_FOREVER), UNET_CLOSED);
        assert_int_equal(unet_ep_wait(b.ep, UNET_CLOSED, 0), -ETIMEDOUT);
        assert_int_equal(unet_chan_info(b.ep, ba, &info), 0);
        assert_true(info.closed);
        assert_int_equal(send_bytes(&b, ba, 8), -EPIPE);
        assert_int_equal(send_bytes(&b, ba2, 8), 1);
        settle(sw);
        assert_int_equal(drain(&a, NULL), 1);

        unet_ep_close(b.ep);
        settle(sw);
        assert_int_equal(send_bytes(&a, ab2, 8), -EPIPE);
        assert_int_equal(unet_chan_close(a.ep, ab2), 0);
        unet_ep_close(a.ep);
        unet_switch_close(sw);
}

/* Of a user with limits. */
static struct node node_of(struct unet_switch *sw, struct unet_switch_account *account)
{
        struct node n;

        assert_int_equal(unet_ep_open(NULL, &n.ep), 0);
        n.seg = unet_ep_segment(n.ep);
        n.port = switch_join(sw, account, n.ep, &n.link);
        return n;
}

static void an_account_bounds_several_ports(void **state)
{
        struct unet_switch_account mine = {.bytes_max = 10 * 65536, .msgs_max = 6, .chans_max = 6},
                                   his = mine;
        struct unet_switch *sw;
        struct node a[2], sink;
        uint32_t c[2], cs, tag[2];
        const struct counters *n;

        assert_int_equal(unet_switch_open(NULL, &sw), 0);
        sink = node_of(sw, &his);
        for (int i = 0; i < 2; i++) {
                a[i] = node_of(sw, &mine);
                join(sw, &a[i], &sink, &c[i], &cs);
        }
        assert_int_equal(mine.chans, 2);
        assert_int_equal(unet_switch_connect(sw, a[0].port, a[1].port, tag), 0);
        assert_int_equal(unet_switch_connect(sw, a[0].port, a[1].port, tag), 0);
        assert_int_equal(unet_switch_connect(sw, a[0].port, sink.port, tag), -EDQUOT);
        for (int i = 0; i < 10; i++)
                assert_int_equal(send_bytes(&a[i % 2], c[i % 2], 60000), 1);
        settle(sw);
        assert_int_equal(mine.msgs, 6);
        assert_int_equal(mine.bytes, 6 * 65536);
        n = unet_switch_counters(sw, a[0].port);
        assert_int_equal(n->drop[DROP_NI_QUOTA] +
                                 unet_switch_counters(sw, a[1].port)->drop[DROP_NI_QUOTA],
                         4);

        /* Who goes is charged for nothing; nor is who sent to one that goes. */
        unet_ep_close(a[0].ep);
        settle(sw);
        assert_int_equal(mine.msgs, 3);
        assert_int_equal(mine.chans, 1);
        unet_ep_close(sink.ep);
        settle(sw);
        assert_int_equal(mine.msgs, 0);
        assert_int_equal(mine.bytes, 0);
        assert_int_equal(mine.chans + his.chans, 0);
        unet_ep_close(a[1].ep);
        settle(sw);
        unet_switch_close(sw);
}

/* A user with ten ports has no more than one with a single port, however long their messages. */
static void accounts_share_and_not_ports(void **state)
{
        enum { MANY = 10 };
        struct unet_switch_account rich = {.bytes_max = 1 << 30,
                                           .msgs_max = 1 << 20,
                                           .chans_max = 100},
                                   poor = rich;
        struct unet_switch_opts opts = {.quota = 16 << 20};
        const uint32_t len[3] = {200, 1400, 16384};
        uint32_t cs[MANY + 1], cr[MANY + 1];
        struct node s[MANY + 1], sink;
        struct unet_switch *sw;
        uint64_t many = 0, one;

        assert_int_equal(unet_switch_open(&opts, &sw), 0);
        sink = node_on(sw, (struct unet_ep_opts){.rx_slots = 4096});
        for (int i = 0; i <= MANY; i++) {
                s[i] = node_of(sw, i < MANY ? &rich : &poor);
                join(sw, &s[i], &sink, &cs[i], &cr[i]);
        }
        for (int round = 0; round < 300; round++) {
                for (int i = 0; i <= MANY; i++)
                        while (send_bytes(&s[i], cs[i], len[i % 3]) == 1)
                                ;
                assert_true(unet_switch_step(sw) > 0);
                drain(&sink, NULL);
        }
        for (int i = 0; i < MANY; i++)
                many += unet_switch_counters(sw, s[i].port)->n[COUNT_NI_RX_BYTES];
        one = unet_switch_counters(sw, s[MANY].port)->n[COUNT_NI_RX_BYTES];
        print_message("ten ports: %llu bytes, one port: %llu\n", (unsigned long long)many,
                      (unsigned long long)one);
        assert_true(many * 4 < one * 5 && one * 4 < many * 5);
        for (int i = 0; i <= MANY; i++)
                unet_ep_close(s[i].ep);
        unet_ep_close(sink.ep);
        settle(sw);
        unet_switch_close(sw);
}

/* A step ends after so many messages, and the next one goes on with the others. */
static void a_step_is_bounded_and_fair(void **state)
{
        struct unet_switch_opts opts = {.most = 50};
        struct unet_switch *sw;
        struct node s[3], sink;
        uint32_t cs[3], cr[3], steps = 0;
        uint64_t bytes[8] = {0};
        int n;

        assert_int_equal(unet_switch_open(&opts, &sw), 0);
        sink = node_on(sw, (struct unet_ep_opts){.rx_slots = 4096});
        for (int i = 0; i < 3; i++) {
                s[i] = node_on(sw, (struct unet_ep_opts){0});
                join(sw, &s[i], &sink, &cs[i], &cr[i]);
                for (int k = 0; k < 400; k++)
                        assert_int_equal(send_bytes(&s[i], cs[i], 8), 1);
        }
        while ((n = unet_switch_step(sw)) > 0) {
                assert_int_equal(n, 400);
                drain(&sink, bytes);
                steps++;
        }
        assert_int_equal(steps, 3);
        for (int i = 0; i < 3; i++)
                assert_int_equal(bytes[cr[i]], 400 * 8);
        for (int i = 0; i < 3; i++)
                unet_ep_close(s[i].ep);
        unet_ep_close(sink.ep);
        unet_switch_close(sw);
}

static bool only_even(void *arg, uint32_t port, const uint8_t *inl, uint32_t len)
{
        (void)arg;
        (void)port;
        return len > 0 && inl[0] % 2 == 0;
}

static void the_owner_of_the_switch_checks_sources(void **state)
{
        struct unet_switch_opts opts = {.check = only_even};
        struct unet_switch *sw;
        struct node a, b;
        uint32_t ab, ba;

        assert_int_equal(unet_switch_open(&opts, &sw), 0);
        a = node_on(sw, (struct unet_ep_opts){0});
        b = node_on(sw, (struct unet_ep_opts){0});
        join(sw, &a, &b, &ab, &ba);
        for (uint8_t i = 0; i < 10; i++) {
                a.seg.base[0] = i;
                assert_int_equal(send_bytes(&a, ab, 8), 1);
        }
        settle(sw);
        assert_int_equal(drain(&b, NULL), 5);
        assert_int_equal(unet_switch_counters(sw, a.port)->drop[DROP_NI_BAD_SOURCE], 5);
        unet_ep_close(a.ep);
        unet_ep_close(b.ep);
        unet_switch_close(sw);
}

static int open_fds(void)
{
        int n = 0;

        for (int fd = 0; fd < 4096; fd++)
                n += lseek(fd, 0, SEEK_CUR) >= 0 || errno != EBADF;
        return n;
}

/* Endpoints come and go, some while messages wait; the switch keeps nothing of them. */
static void endpoints_come_and_go(void **state)
{
        struct unet_switch *sw;
        int before = open_fds();

        assert_int_equal(unet_switch_open(NULL, &sw), 0);
        for (int round = 0; round < 100; round++) {
                struct node a = node_on(sw, (struct unet_ep_opts){0}),
                            b = node_on(sw, (struct unet_ep_opts){0});
                uint32_t ab, ba;

                assert_in_range(a.port, 1, 2);
                join(sw, &a, &b, &ab, &ba);
                for (int i = 0; i < 5; i++)
                        assert_int_equal(send_bytes(&a, ab, 5000), 1);
                if (round % 2)
                        settle(sw);
                unet_ep_close(round % 3 ? a.ep : b.ep);
                if (round % 5)
                        settle(sw);
                unet_ep_close(round % 3 ? b.ep : a.ep);
                settle(sw);
                settle(sw);
        }
        unet_switch_close(sw);
        assert_int_equal(open_fds(), before);
}

/* The channel goes, the loan stays readable and is given back over the link. */
static void a_loan_may_outlive_its_channel(void **state)
{
        struct unet_switch *sw;
        struct node a, b;
        struct unet_recv m[2];
        uint32_t ab, ba;

        assert_int_equal(unet_switch_open(NULL, &sw), 0);
        a = node_on(sw, (struct unet_ep_opts){0});
        b = node_on(sw, (struct unet_ep_opts){.direct = true});
        join(sw, &a, &b, &ab, &ba);
        a.seg.base[4999] = 77;
        assert_int_equal(send_bytes(&a, ab, 5000), 1);
        assert_int_equal(send_bytes(&a, ab, 5000), 1);
        settle(sw);
        assert_int_equal(unet_ep_recv(b.ep, m, 1), 1);
        assert_int_equal(unet_ep_poll(b.ep), 1); /* the second waits in the receive queue */
        assert_int_equal(unet_switch_charged(sw, a.port), 2 * 65536);
        assert_int_equal(unet_chan_close(b.ep, ba), 0);
        settle(sw);
        unet_switch_step(sw);
        assert_int_equal(unet_switch_charged(sw, a.port), 65536);
        assert_int_equal(m[0].frag[0].ptr[4999], 77);
        unet_ep_release(b.ep, m, 1);
        unet_switch_step(sw);
        assert_int_equal(unet_switch_charged(sw, a.port), 0);
        unet_ep_close(a.ep);
        unet_ep_close(b.ep);
        unet_switch_close(sw);
}

static void many_endpoints_share_a_switch(void **state)
{
        enum { N = 60 };
        struct unet_ep_opts small = {.tx_bytes = 4096, .rx_bytes = 8 << 20, .rx_slots = 256};
        struct unet_switch *sw;
        static struct node n[N];
        static uint32_t c[N][2];

        assert_int_equal(unet_switch_open(NULL, &sw), 0);
        for (int i = 0; i < N; i++)
                n[i] = node_on(sw, small);
        for (int i = 0; i < N; i++)
                join(sw, &n[i], &n[(i + 1) % N], &c[i][0], &c[(i + 1) % N][1]);
        for (int round = 0; round < 50; round++) {
                for (int i = 0; i < N; i++)
                        assert_int_equal(send_bytes(&n[i], c[i][0], 8 + (uint32_t)(i * 50)), 1);
                settle(sw);
                for (int i = 0; i < N; i++)
                        assert_int_equal(drain(&n[i], NULL), 1);
        }
        for (int i = 0; i < N; i++)
                unet_ep_close(n[i].ep);
        settle(sw);
        unet_switch_close(sw);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(ports_share_by_bytes),
                cmocka_unit_test(a_slow_receiver_costs_only_its_senders),
                cmocka_unit_test(a_full_receive_ring_drops_at_the_receiver),
                cmocka_unit_test(only_the_owner_of_a_tag_may_send_with_it),
                cmocka_unit_test(tags_are_not_reused_at_once),
                cmocka_unit_test(an_ended_channel_is_seen),
                cmocka_unit_test(an_account_bounds_several_ports),
                cmocka_unit_test(accounts_share_and_not_ports),
                cmocka_unit_test(a_step_is_bounded_and_fair),
                cmocka_unit_test(the_owner_of_the_switch_checks_sources),
                cmocka_unit_test(endpoints_come_and_go),
                cmocka_unit_test(a_loan_may_outlive_its_channel),
                cmocka_unit_test(many_endpoints_share_a_switch),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
