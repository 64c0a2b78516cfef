/* One suite for every provider: each behaviour that <unet/unet.h> promises, over each row of the
 * table in pair.c. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include "pair_unetd.h"
#include "pair_verbs.h"
#include "pair_xdp.h"
#include "tests/unetd/world.h"

static const struct provider *how(void **state)
{
        return *state;
}

static struct pair *plain_pair(void **state)
{
        return pair_new(how(state), (struct unet_ep_opts){0});
}

/* ---- sending and receiving ---- */

static void a_small_message_travels_in_the_descriptor(void **state)
{
        struct pair *p = plain_pair(state);
        struct unet_recv m;

        assert_int_equal(pair_send(p, 1, UNET_EP_INLINE, UNET_EP_INLINE, 0), 1);
        pair_settle(p);
        assert_int_equal(unet_ep_recv(p->b, &m, 1), 1);
        assert_int_equal(m.chan, p->cb);
        assert_int_equal(m.len, UNET_EP_INLINE);
        assert_int_equal(m.inl_len, UNET_EP_INLINE);
        assert_int_equal(m.nfrags, 0);
        assert_int_equal(m.loan, 0);
        assert_true(message_is(&m, 1));
        pair_expect_none(p);
        pair_free(p);
}

static void every_length_arrives_whole(void **state)
{
        struct pair *p = plain_pair(state);
        const uint32_t lens[] = {1,   2,   8,   40,   63,   64,   65,   199,   200,
                                 201, 255, 256, 1000, 2048, 2049, 4096, 16384, 65000};
        struct unet_chan_info info;

        assert_int_equal(unet_chan_info(p->a, p->ca, &info), 0);
        pair_provide(p, 3, 65536);
        for (uint32_t i = 0; i < ARRAY_LEN(lens) && lens[i] <= info.mtu; i++) {
                for (uint32_t inl = 0; inl <= UNET_EP_INLINE; inl += 40) {
                        assert_int_equal(pair_send(p, i, lens[i], inl, 64 * i), 1);
                        pair_expect(p, i, lens[i]);
                }
        }
        pair_free(p);
}

static void the_longest_message_fits_and_one_byte_more_does_not(void **state)
{
        struct pair *p = plain_pair(state);
        struct unet_chan_info info;

        assert_int_equal(unet_chan_info(p->a, p->ca, &info), 0);
        pair_provide(p, 2, 65536);
        assert_int_equal(pair_send(p, 1, info.mtu, 0, 0), 1);
        pair_expect(p, 1, info.mtu);
        assert_int_equal(pair_send(p, 1, info.mtu + 1, 0, 0), -EMSGSIZE);
        pair_expect_none(p);
        pair_free(p);
}

static void pieces_are_gathered_in_order(void **state)
{
        struct pair *p = plain_pair(state);
        struct unet_send m = {.chan = p->ca,
                              .inl = "head",
                              .inl_len = 4,
                              .nfrags = 4,
                              .frag = {{1000, 3}, {10, 1}, {500, 0}, {700, 2}}};
        struct unet_recv r;
        char flat[16];

        pair_provide(p, 1, 4096);
        memcpy(p->sa.base + 1000, "abc", 3);
        memcpy(p->sa.base + 10, "d", 1);
        memcpy(p->sa.base + 700, "ef", 2);
        assert_int_equal(unet_ep_send(p->a, &m, 1), 1);
        pair_settle(p);
        assert_int_equal(unet_ep_recv(p->b, &r, 1), 1);
        assert_int_equal(unet_recv_copy(&r, flat, sizeof flat), 10);
        assert_memory_equal(flat, "headabcdef", 10);
        assert_int_equal(unet_recv_copy(&r, flat, 5), 5);
        pair_free(p);
}

/* In windows that no queue of any provider overflows. */
static void messages_stay_in_order(void **state)
{
        struct pair *p = plain_pair(state);
        uint32_t sent = 0, got = 0;

        pair_provide(p, 32, 4096);
        for (int round = 0; round < 200; round++) {
                for (int i = 0; i < 16; i++, sent++)
                        assert_int_equal(pair_send(p, sent, 1 + sent * 37 % 3000, sent % 200,
                                                   4096 * (sent % 16)),
                                         1);
                for (int i = 0; i < 16; i++, got++)
                        pair_expect(p, got, 1 + got * 37 % 3000);
        }
        pair_expect_none(p);
        pair_free(p);
}

static void batches_go_in_and_out(void **state)
{
        struct pair *p = plain_pair(state);
        struct unet_send m[40];
        struct unet_recv r[40];
        uint8_t byte[40];
        int got;

        for (int i = 0; i < 40; i++) {
                byte[i] = (uint8_t)i;
                m[i] = (struct unet_send){.chan = p->ca, .inl = &byte[i], .inl_len = 1};
        }
        assert_int_equal(unet_ep_send(p->a, m, 40), 40);
        pair_settle(p);
        got = unet_ep_recv(p->b, r, 7);
        assert_int_equal(got, 7);
        got += unet_ep_recv(p->b, r + 7, 33);
        assert_int_equal(got, 40);
        for (int i = 0; i < 40; i++)
                assert_int_equal(r[i].inl[0], i);
        pair_free(p);
}

static void bad_messages_are_refused(void **state)
{
        struct pair *p = plain_pair(state);
        const uint32_t tx = (uint32_t)p->sa.tx_bytes;
        struct unet_send good = {.chan = p->ca, .inl = "x", .inl_len = 1}, m[2];

        m[0] = good;
        m[0].chan = 77;
        assert_int_equal(unet_ep_send(p->a, m, 1), -EBADF);
        m[0].chan = 0;
        assert_int_equal(unet_ep_send(p->a, m, 1), -EBADF);
        m[0] = good;
        m[0].inl_len = 0;
        assert_int_equal(unet_ep_send(p->a, m, 1), -EINVAL);
        m[0].inl_len = UNET_EP_INLINE + 1;
        assert_int_equal(unet_ep_send(p->a, m, 1), -EINVAL);
        m[0] = good;
        m[0].nfrags = UNET_EP_FRAGS + 1;
        assert_int_equal(unet_ep_send(p->a, m, 1), -EINVAL);
        m[0].nfrags = 1;
        m[0].frag[0] = (struct unet_frag){tx - 1, 2};
        assert_int_equal(unet_ep_send(p->a, m, 1), -EINVAL);
        m[0].frag[0] = (struct unet_frag){UINT32_MAX, 2};
        assert_int_equal(unet_ep_send(p->a, m, 1), -EINVAL);

        /* What stands before a bad one is sent. */
        m[1] = m[0];
        m[0] = good;
        assert_int_equal(unet_ep_send(p->a, m, 2), 1);
        pair_settle(p);
        pair_free(p);
}

/* ---- back-pressure and injection ---- */

static void a_full_send_queue_says_try_later_and_loses_nothing(void **state)
{
        struct pair *p = plain_pair(state);
        uint32_t sent = 0, got = 0, refused = 0;

        pair_provide(p, 64, 1024);
        pair_hold(p);
        while (refused < 3 && sent < 100000) {
                int n = pair_send(p, sent, 8, 8, 0);
                assert_true(n == 1 || n == -EAGAIN);
                sent += n == 1;
                refused += n != 1;
        }
        assert_int_equal(refused, 3);
        assert_true(unet_ep_stat(p->a, "NI_TX_FULL") >= 3);
        while (got < sent && p->how->settle == NULL)
                pair_expect(p, got++, 8);
        pair_settle(p);
        if (p->how->settle == NULL)
                assert_int_equal(got, sent);
        assert_int_equal(pair_send(p, sent, 8, 8, 0), 1);
        pair_free(p);
}

static void buffers_are_told_when_injected(void **state)
{
        struct pair *p = plain_pair(state);
        uint32_t flag = 0, inline_flag = 0;
        struct unet_send m = {
                .chan = p->ca, .nfrags = 1, .frag = {{0, 1000}}, .injected = &flag, .cookie = 99};
        struct unet_send small = {
                .chan = p->ca, .inl = "x", .inl_len = 1, .injected = &inline_flag, .cookie = 98};
        struct unet_recv r;
        uint64_t cookie[4];

        pair_provide(p, 4, 4096);
        assert_int_equal(unet_ep_send(p->a, &small, 1), 1);
        assert_int_equal(inline_flag, 1);
        assert_int_equal(unet_ep_send(p->a, &m, 1), 1);
        pair_settle(p);
        assert_int_equal(unet_ep_recv(p->b, &r, 1), 1);
        assert_int_equal(unet_ep_recv(p->b, &r, 1), 1);
        pair_give_back(p, &r);
        pair_settle(p);
        assert_int_equal(unet_ep_reap(p->a, cookie, 4), 1);
        assert_int_equal(cookie[0], 99);
        assert_int_equal(flag, 1);
        assert_int_equal(unet_ep_reap(p->a, cookie, 4), 0);
        pair_free(p);
}

static void unreaped_cookies_hold_the_sender_up(void **state)
{
        struct pair *p = plain_pair(state);
        struct unet_send m = {.chan = p->ca, .nfrags = 1, .frag = {{0, 10}}, .cookie = 1};
        struct unet_recv r;
        uint64_t cookie[8];
        int sent = 0, n;

        pair_provide(p, 4, 4096);
        while ((n = unet_ep_send(p->a, &m, 1)) == 1 && sent < 100000) {
                sent++;
                pair_settle(p);
                if (unet_ep_recv(p->b, &r, 1) == 1)
                        pair_give_back(p, &r);
                pair_settle(p);
        }
        assert_int_equal(n, -EAGAIN);
        assert_int_equal(sent, EP_SENDS);
        assert_int_equal(unet_ep_reap(p->a, cookie, 8), 8);
        assert_int_equal(unet_ep_send(p->a, &m, 1), 1);
        pair_free(p);
}

/* ---- base level: free queue and receive queue ---- */

static void without_a_buffer_a_message_is_dropped_and_counted(void **state)
{
        struct pair *p = plain_pair(state);

        if (p->how->direct)
                goto out;
        assert_int_equal(pair_send(p, 1, 1000, 0, 0), 1);
        assert_int_equal(pair_send(p, 2, 8, 8, 0), 1);
        pair_expect(p, 2, 8);
        assert_int_equal(unet_ep_stat(p->b, "NI_NO_BUFFER"), 1);
        pair_provide(p, 1, 1024);
        assert_int_equal(pair_send(p, 3, 1000, 0, 0), 1);
        pair_expect(p, 3, 1000);
        assert_int_equal(unet_ep_stat(p->b, "NI_NO_BUFFER"), 1);
out:
        pair_free(p);
}

static void a_message_fills_several_buffers(void **state)
{
        struct pair *p = plain_pair(state);
        struct unet_recv m;

        if (p->how->direct)
                goto out;
        pair_provide(p, 5, 100);
        assert_int_equal(pair_send(p, 1, 350, 0, 0), 1);
        pair_settle(p);
        assert_int_equal(unet_ep_recv(p->b, &m, 1), 1);
        assert_int_equal(m.nfrags, 4);
        assert_int_equal(m.frag[3].len, 50);
        assert_int_equal(m.frag[3].size, 100);
        assert_true(message_is(&m, 1));

        /* One buffer is left: not enough, and it is not lost. */
        assert_int_equal(pair_send(p, 2, 101, 0, 0), 1);
        assert_int_equal(pair_send(p, 3, 100, 0, 0), 1);
        pair_expect(p, 3, 100);
        assert_int_equal(unet_ep_stat(p->b, "NI_NO_BUFFER"), 1);
        pair_give_back(p, &m);

        /* More than four pieces there cannot be. */
        assert_int_equal(pair_send(p, 4, 401, 0, 0), 1);
        pair_expect_none(p);
        assert_int_equal(unet_ep_stat(p->b, "NI_NO_BUFFER"), 2);
out:
        pair_free(p);
}

static void bad_buffers_are_refused(void **state)
{
        struct pair *p = pair_new(how(state), (struct unet_ep_opts){.free_slots = 2});
        const uint32_t tx = (uint32_t)p->sb.tx_bytes, end = tx + (uint32_t)p->sb.rx_bytes;
        const struct unet_frag bad[] = {{tx, 0},      {tx - 1, 10},     {0, 10},
                                        {end - 1, 2}, {UINT32_MAX, 10}, {tx, UINT32_MAX}};
        struct unet_frag good = {tx, 10};

        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                assert_int_equal(unet_ep_provide(p->b, &bad[i], 1), -EINVAL);
        assert_int_equal(unet_ep_provide(p->b, &good, 1), 1);
        assert_int_equal(unet_ep_provide(p->b, &good, 1), 1);
        assert_int_equal(unet_ep_provide(p->b, &good, 1), -EAGAIN);
        pair_free(p);
}

static void a_full_receive_queue_drops_or_holds_the_sender_up(void **state)
{
        struct pair *p = pair_new(how(state), (struct unet_ep_opts){.rx_slots = 8});

        for (uint32_t i = 0; i < 12; i++)
                assert_int_equal(pair_send(p, i, 8, 8, 0), 1);
        pair_settle(p);
        assert_int_equal(unet_ep_poll(p->b), 8);
        assert_int_equal(unet_ep_stat(p->b, "NI_QUEUE_FULL"), p->how->direct ? 0 : 4);
        for (uint32_t i = 0; i < (p->how->direct ? 12 : 8); i++)
                pair_expect(p, i, 8);
        pair_expect_none(p);
        pair_free(p);
}

/* ---- direct: loans ---- */

static void a_loan_lasts_until_released(void **state)
{
        struct pair *p = plain_pair(state);
        struct unet_recv m[4];
        uint32_t flag[4] = {0}, len;
        struct unet_chan_info info;

        if (!p->how->direct)
                goto out;
        assert_int_equal(unet_chan_info(p->a, p->ca, &info), 0);
        len = MIN(4096, info.mtu);
        for (uint32_t i = 0; i < 4; i++) {
                struct unet_send s = {.chan = p->ca,
                                      .nfrags = 1,
                                      .frag = {{4096 * i, len}},
                                      .injected = &flag[i]};
                memset(p->sa.base + 4096 * i, (int)i, 4096);
                assert_int_equal(unet_ep_send(p->a, &s, 1), 1);
        }
        pair_settle(p);
        assert_int_equal(unet_ep_recv(p->b, m, 4), 4);
        for (int i = 0; i < 4; i++) {
                assert_int_not_equal(m[i].loan, 0);
                assert_int_equal(m[i].frag[0].ptr[len - 1], i);
        }
        if (!p->how->drops_behind) { /* elsewhere the provider copied when it took the message */
                unet_ep_release(p->b, &m[2], 1);
                unet_ep_reap(p->a, NULL, 0);
                assert_int_equal(flag[2], 1);
                assert_int_equal(flag[0] + flag[1] + flag[3], 0);
        }
        unet_ep_release(p->b, &m[0], 2);
        unet_ep_release(p->b, &m[3], 1);
        pair_settle(p);
        unet_ep_reap(p->a, NULL, 0);
        assert_int_equal(flag[0] + flag[1] + flag[2] + flag[3], 4);
out:
        pair_free(p);
}

/* ---- waiting ---- */

static void waiting_ends_with_the_timeout(void **state)
{
        struct pair *p = pair_new(how(state), (struct unet_ep_opts){.spin_ns = -1});

        assert_int_equal(unet_ep_wait(p->b, UNET_READABLE, 1000000), -ETIMEDOUT);
        assert_int_equal(unet_ep_wait(p->b, UNET_READABLE, 0), -ETIMEDOUT);
        assert_int_equal(unet_ep_wait(p->b, 0, 0), -EINVAL);
        assert_int_equal(unet_ep_wait(p->b, 1 << 20, 0), -EINVAL);
        assert_true(unet_ep_stat(p->b, "NI_SLEEPS") >= 1);
        pair_free(p);
}

static void waiting_ends_when_a_message_comes(void **state)
{
        struct pair *p = plain_pair(state);

        assert_int_equal(pair_send(p, 1, 8, 8, 0), 1);
        if (p->sw != NULL)
                pair_settle(p);
        assert_int_equal(unet_ep_wait(p->b, UNET_READABLE, UNET_FOREVER), UNET_READABLE);
        pair_expect(p, 1, 8);
        pair_free(p);
}

static void waiting_ends_when_a_buffer_is_injected(void **state)
{
        struct pair *p = plain_pair(state);
        struct unet_send m = {.chan = p->ca, .nfrags = 1, .frag = {{0, 100}}, .cookie = 5};
        struct unet_recv r;
        uint64_t cookie;

        pair_provide(p, 1, 100);
        assert_int_equal(unet_ep_send(p->a, &m, 1), 1);
        pair_settle(p);
        assert_int_equal(unet_ep_recv(p->b, &r, 1), 1);
        pair_give_back(p, &r);
        assert_int_equal(unet_ep_wait(p->a, UNET_INJECTED | UNET_READABLE, UNET_FOREVER),
                         UNET_INJECTED);
        assert_int_equal(unet_ep_reap(p->a, &cookie, 1), 1);
        pair_free(p);
}

static void waiting_ends_when_there_is_room(void **state)
{
        struct pair *p = plain_pair(state);
        struct unet_recv r[64];

        pair_hold(p);
        while (pair_send(p, 0, 8, 8, 0) == 1)
                ;
        if (p->how->settle == NULL)
                assert_int_equal(unet_ep_wait(p->a, UNET_WRITABLE, 1000000), -ETIMEDOUT);
        pair_settle(p);
        for (int i = 0; i < 10; i++)
                unet_ep_recv(p->b, r, 64);
        assert_int_equal(unet_ep_wait(p->a, UNET_WRITABLE, 1000000000), UNET_WRITABLE);
        assert_int_equal(pair_send(p, 0, 8, 8, 0), 1);
        pair_free(p);
}

static void the_descriptor_tells_poll(void **state)
{
        struct pair *p = plain_pair(state);
        struct pollfd fd = {.fd = unet_ep_fd(p->b), .events = POLLIN};

        assert_int_equal(unet_ep_arm(p->b, UNET_READABLE), 0);
        assert_int_equal(poll(&fd, 1, 0), 0);
        assert_int_equal(pair_send(p, 1, 8, 8, 0), 1);
        pair_settle(p);
        if (p->sim == NULL)
                assert_int_equal(poll(&fd, 1, 1000), 1);
        assert_int_equal(unet_ep_arm(p->b, UNET_READABLE), UNET_READABLE);
        pair_expect(p, 1, 8);
        assert_int_equal(unet_ep_arm(p->b, UNET_READABLE), 0);
        assert_int_equal(poll(&fd, 1, 0), 0);
        pair_free(p);
}

/* ---- upcalls ---- */

struct upcalls {
        int nonempty, full;
        uint32_t received;
        bool drain;
};

static void on_nonempty(struct unet_ep *ep, void *arg)
{
        struct upcalls *u = arg;
        struct unet_recv m;

        u->nonempty++;
        while (u->drain && unet_ep_recv(ep, &m, 1) == 1)
                u->received++;
}

static void on_full(struct unet_ep *ep, void *arg)
{
        struct upcalls *u = arg;

        u->full++;
}

static void upcalls_come_when_their_condition_holds(void **state)
{
        struct pair *p =
                pair_new(how(state), (struct unet_ep_opts){.rx_slots = 8, .almost_full = 6});
        struct upcalls u = {0};

        unet_ep_set_upcall(p->b, UNET_UP_NONEMPTY, on_nonempty, &u);
        unet_ep_set_upcall(p->b, UNET_UP_ALMOST_FULL, on_full, &u);
        assert_int_equal(unet_ep_dispatch(p->b), 0);

        for (uint32_t i = 0; i < 5; i++)
                assert_int_equal(pair_send(p, i, 8, 8, 0), 1);
        pair_settle(p);
        assert_int_equal(unet_ep_dispatch(p->b), 1);
        assert_int_equal(u.nonempty, 1);
        assert_int_equal(u.full, 0);

        assert_int_equal(pair_send(p, 5, 8, 8, 0), 1);
        pair_settle(p);
        u.drain = true;
        assert_int_equal(unet_ep_dispatch(p->b), 2);
        assert_int_equal(u.full, 1);
        assert_int_equal(u.received, 6); /* one upcall took everything */
        assert_int_equal(unet_ep_dispatch(p->b), 0);
        pair_free(p);
}

static void disabled_upcalls_wait(void **state)
{
        struct pair *p = plain_pair(state);
        struct upcalls u = {.drain = true};

        unet_ep_set_upcall(p->b, UNET_UP_NONEMPTY, on_nonempty, &u);
        unet_ep_upcalls(p->b, false);
        assert_int_equal(pair_send(p, 1, 8, 8, 0), 1);
        pair_settle(p);
        assert_int_equal(unet_ep_dispatch(p->b), 0);
        assert_int_equal(u.nonempty, 0);
        unet_ep_upcalls(p->b, true);
        assert_int_equal(unet_ep_dispatch(p->b), 1);
        assert_int_equal(u.received, 1);
        pair_free(p);
}

/* ---- channels ---- */

static void a_closed_channel_is_seen_by_the_peer(void **state)
{
        struct pair *p = plain_pair(state);
        struct unet_chan_info info;

        if (!p->how->hears_close)
                goto out;
        assert_int_equal(pair_send(p, 1, 8, 8, 0), 1);
        assert_int_equal(unet_chan_close(p->a, p->ca), 0);
        pair_settle(p);
        assert_int_equal(unet_ep_wait(p->b, UNET_CLOSED, UNET_FOREVER), UNET_CLOSED);
        assert_int_equal(unet_ep_wait(p->b, UNET_CLOSED, 0), -ETIMEDOUT);
        assert_int_equal(unet_chan_info(p->b, p->cb, &info), 0);
        assert_true(info.closed);
        pair_expect(p, 1, 8); /* sent before: still there */
        assert_int_equal(
                unet_ep_send(p->b, &(struct unet_send){.chan = p->cb, .inl = "x", .inl_len = 1}, 1),
                -EPIPE);
        assert_int_equal(pair_send(p, 1, 8, 8, 0), -EBADF);
        assert_int_equal(unet_chan_close(p->b, p->cb), 0);
        assert_int_equal(unet_chan_close(p->b, p->cb), -EBADF);
out:
        pair_free(p);
}

static void closing_returns_what_was_under_way(void **state)
{
        struct pair *p = plain_pair(state);
        uint32_t flag = 0;
        struct unet_send m = {.chan = p->ca, .nfrags = 1, .frag = {{0, 10}}, .injected = &flag};
        struct unet_recv r;

        pair_provide(p, 1, 100);
        assert_int_equal(unet_ep_send(p->a, &m, 1), 1);
        pair_settle(p);
        unet_ep_poll(p->b);
        if (p->how->hears_close) {
                assert_int_equal(unet_chan_close(p->b, p->cb), 0);
                assert_int_equal(unet_ep_recv(p->b, &r, 1), 0);
                pair_settle(p);
                assert_int_equal(unet_ep_wait(p->a, UNET_CLOSED, UNET_FOREVER), UNET_CLOSED);
                assert_int_equal(flag, 1);
        }
        pair_free(p);
}

static void channels_are_told_apart(void **state)
{
        struct pair *p = plain_pair(state);
        uint32_t ca2, cb2;
        struct unet_recv m;

        if (p->how->join != providers[0].join)
                goto out;
        assert_int_equal(unet_chan_pair(p->a, p->b, &ca2, &cb2), 0);
        assert_int_not_equal(ca2, p->ca);
        assert_int_equal(
                unet_ep_send(p->a, &(struct unet_send){.chan = ca2, .inl = "2", .inl_len = 1}, 1),
                1);
        assert_int_equal(unet_ep_recv(p->b, &m, 1), 1);
        assert_int_equal(m.chan, cb2);
        assert_int_equal(unet_chan_close(p->a, ca2), 0);
        assert_int_equal(pair_send(p, 1, 8, 8, 0), 1);
        pair_expect(p, 1, 8);
out:
        pair_free(p);
}

static void statistics_have_names(void **state)
{
        struct pair *p = plain_pair(state);
        struct unet_stat s[64];
        int n = unet_ep_stats(p->a, s, ARRAY_LEN(s));

        assert_in_range(n, 8, 64);
        for (int i = 0; i < n; i++)
                assert_int_equal(unet_ep_stat(p->a, s[i].name), s[i].value);
        assert_int_equal(unet_ep_stat(p->a, "NO_SUCH"), 0);
        pair_free(p);
}

/* ---- all of it, over all of them ---- */

#define T(f)                            \
        {                               \
#f, f, NULL, NULL, NULL \
        }
static const struct CMUnitTest tests[] = {
        T(a_small_message_travels_in_the_descriptor),
        T(every_length_arrives_whole),
        T(the_longest_message_fits_and_one_byte_more_does_not),
        T(pieces_are_gathered_in_order),
        T(messages_stay_in_order),
        T(batches_go_in_and_out),
        T(bad_messages_are_refused),
        T(a_full_send_queue_says_try_later_and_loses_nothing),
        T(buffers_are_told_when_injected),
        T(unreaped_cookies_hold_the_sender_up),
        T(without_a_buffer_a_message_is_dropped_and_counted),
        T(a_message_fills_several_buffers),
        T(bad_buffers_are_refused),
        T(a_full_receive_queue_drops_or_holds_the_sender_up),
        T(a_loan_lasts_until_released),
        T(waiting_ends_with_the_timeout),
        T(waiting_ends_when_a_message_comes),
        T(waiting_ends_when_a_buffer_is_injected),
        T(waiting_ends_when_there_is_room),
        T(the_descriptor_tells_poll),
        T(upcalls_come_when_their_condition_holds),
        T(disabled_upcalls_wait),
        T(a_closed_channel_is_seen_by_the_peer),
        T(closing_returns_what_was_under_way),
        T(channels_are_told_apart),
        T(statistics_have_names),
};

static int run_over(const struct provider *p, CMFixtureFunction setup, CMFixtureFunction teardown)
{
        struct CMUnitTest run[ARRAY_LEN(tests)];

        memcpy(run, tests, sizeof run);
        for (size_t k = 0; k < ARRAY_LEN(run); k++)
                run[k].initial_state = (void *)(uintptr_t)p;
        return _cmocka_run_group_tests(p->name, run, ARRAY_LEN(run), setup, teardown);
}

/* ---- the providers: a row for each; docs/providers.md says what makes one ---- */

static const struct suite {
        const char *name;
        const struct provider *rows;
        const int *nrows;
        /* Why there can be no pairs here; NULL: there always can. */
        const char *(*impossible)(void);
        CMFixtureFunction setup, teardown; /* of each row's tests */
        /* It is run only where it is named: as root, or in a machine that has devices. */
        bool if_named;
} suites[] = {
        {.name = "inside", .rows = providers, .nrows = &nproviders},
        {.name = "unetd",
         .rows = &emul_via_unetd,
         .nrows = &(const int){1},
         .setup = world_setup,
         .teardown = world_teardown},
        {.name = "verbs", .rows = verbs_providers, .nrows = &nverbs_providers, .if_named = true},
        {.name = "xdp",
         .rows = xdp_providers,
         .nrows = &nxdp_providers,
         .impossible = xdp_pairs_impossible,
         .if_named = true},
};

/* How many tests failed, or 77. */
static int run_suite(const struct suite *s, const char *only)
{
        const char *why = s->impossible != NULL ? s->impossible() : NULL;
        int failed = 0;

        if (why != NULL) {
                printf("skipped: %s\n", why);
                return 77;
        }
        for (int i = 0; i < *s->nrows; i++)
                if (only == NULL || strcmp(only, s->name) == 0 ||
                    strcmp(only, s->rows[i].name) == 0)
                        failed += run_over(&s->rows[i], s->setup, s->teardown);
        return failed;
}

static bool has_row(const struct suite *s, const char *name)
{
        bool has = strcmp(name, s->name) == 0;

        for (int i = 0; i < *s->nrows; i++)
                has |= strcmp(name, s->rows[i].name) == 0;
        return has;
}

/* With an argument: only the suite, or the provider, of that name. */
int main(int argc, char **argv)
{
        const char *only = argc > 1 ? argv[1] : NULL;
        int failed = 0;

        for (size_t i = 0; i < ARRAY_LEN(suites); i++)
                if (only != NULL ? has_row(&suites[i], only) : !suites[i].if_named)
                        failed += run_suite(&suites[i], only);
        return failed;
}
