/*
 * What a device may say and do that soft-RoCE never does: events of itself, completions with
 * errors, work requests that it does not take, objects that it does not make. The device is played
 * (fake_verbs.h); endpoints are as in pair_verbs.h.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_verbs.h"
#include "pair_verbs.h"
#include "unet/verbs/ni_verbs.h"
#include "unet/verbs/verbs_chan.h"

#define A        0
#define B        1
#define PATIENCE (10 * NS_PER_S)

static struct pair *new_pair(void)
{
        struct pair *p;

        fake_reset(0x7f000001, 0x7f000002);
        p = pair_new(&verbs_providers[0], (struct unet_ep_opts){.spin_ns = -1});
        pair_provide(p, 32, 4096);
        return p;
}

static void end_pair(struct pair *p)
{
        pair_free(p);
        assert_int_equal(fake_live(), 0);
}

/* One message either way, of which a piece lies in the segment. */
static void works(struct pair *p, uint32_t number)
{
        assert_int_equal(pair_send(p, number, 1000, 10, 0), 1);
        pair_expect(p, number, 1000);
}

/* What was to be sent when it went wrong is lost, and its buffer is the caller's again. */
static void send_and_get_back(struct pair *p)
{
        uint32_t flag = 0;
        struct unet_send s = {.chan = p->ca, .nfrags = 1, .frag = {{0, 100}}, .injected = &flag};

        assert_int_equal(unet_ep_send(p->a, &s, 1), 1);
        for (int i = 0; i < 10 && flag == 0; i++)
                unet_ep_poll(p->a);
        assert_int_equal(flag, 1);
}

/* ---- completions ---- */

static const enum ibv_wc_status wrongs[] = {
        IBV_WC_LOC_LEN_ERR,       IBV_WC_LOC_QP_OP_ERR,    IBV_WC_LOC_PROT_ERR,
        IBV_WC_WR_FLUSH_ERR,      IBV_WC_REM_ACCESS_ERR,   IBV_WC_RETRY_EXC_ERR,
        IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_RESP_TIMEOUT_ERR, IBV_WC_FATAL_ERR,
        IBV_WC_GENERAL_ERR,
};

static void a_send_that_ends_wrong_is_lost_and_the_next_ones_are_not(void **state)
{
        struct pair *p = new_pair();

        for (uint32_t i = 0; i < ARRAY_LEN(wrongs); i++) {
                works(p, i);
                fake_send_status(A, wrongs[i]);
                send_and_get_back(p);
                assert_int_equal(unet_ep_stat(p->a, "NI_REPAIRS"), i + 1);
                works(p, i + 100);
        }
        end_pair(p);
}

static void a_receive_that_ends_wrong_costs_that_message(void **state)
{
        struct pair *p = new_pair();
        int posted = fake_posted(B);

        for (uint32_t i = 0; i < ARRAY_LEN(wrongs); i++) {
                fake_recv_status(B, wrongs[i]);
                assert_int_equal(pair_send(p, i, 1000, 10, 0), 1);
                pair_expect_none(p);
                assert_int_equal(unet_ep_stat(p->b, "NI_REPAIRS"), i + 1);
                assert_int_equal(fake_posted(B), posted);
                works(p, i + 100);
        }
        end_pair(p);
}

static void what_makes_no_sense_is_dropped_and_counted(void **state)
{
        static const struct {
                unsigned flags;
                uint32_t len;
        } odd[] = {
                {0, 1040},
                {IBV_WC_GRH, 1040},
                {IBV_WC_WITH_IMM, 1040},
                {IBV_WC_GRH | IBV_WC_WITH_IMM, 0},
                {IBV_WC_GRH | IBV_WC_WITH_IMM, 39},
                {IBV_WC_GRH | IBV_WC_WITH_IMM, 40},
                {IBV_WC_GRH | IBV_WC_WITH_IMM, 45}, /* less than was in the descriptor */
                {IBV_WC_GRH | IBV_WC_WITH_IMM, 40 + 4097},
                {IBV_WC_GRH | IBV_WC_WITH_IMM, UINT32_MAX},
        };
        struct pair *p = new_pair();

        for (uint32_t i = 0; i < ARRAY_LEN(odd); i++) {
                fake_recv_odd(B, odd[i].flags, odd[i].len);
                assert_int_equal(pair_send(p, i, 1000, 10, 0), 1);
                pair_expect_none(p);
                assert_int_equal(unet_ep_stat(p->b, "NI_MALFORMED"), i + 1);
                works(p, i + 100);
        }
        end_pair(p);
}

/* ---- posting ---- */

static void what_the_device_does_not_take_is_lost_and_comes_back(void **state)
{
        struct pair *p = new_pair();

        for (uint32_t i = 0; i < 5; i++) {
                fake_post_send_limit(A, 0);
                send_and_get_back(p);
                assert_int_equal(unet_ep_stat(p->a, "NI_REPAIRS"), i + 1);
                works(p, i);
        }
        end_pair(p);
}

/* Of a chain the device has taken some. */
static void a_chain_that_is_taken_in_part(void **state)
{
        struct pair *p = new_pair();
        uint32_t flag[8];
        struct unet_send s[8];

        for (int taken = 0; taken < 8; taken++) {
                for (uint32_t i = 0; i < 8; i++) {
                        flag[i] = 0;
                        s[i] = (struct unet_send){.chan = p->ca,
                                                  .nfrags = 1,
                                                  .frag = {{i * 128, 100}},
                                                  .injected = &flag[i]};
                }
                fake_post_send_limit(A, taken);
                assert_int_equal(unet_ep_send(p->a, s, 8), 8);
                for (int i = 0; i < 10; i++)
                        unet_ep_poll(p->a);
                for (int i = 0; i < 8; i++)
                        assert_int_equal(flag[i], 1);
                assert_int_equal(unet_ep_stat(p->a, "NI_REPAIRS"), taken + 1);
                for (struct unet_recv m; unet_ep_recv(p->b, &m, 1) == 1;)
                        pair_give_back(p, &m);
                works(p, 1);
        }
        end_pair(p);
}

/* Each time the device takes so many of the buffers that come back, and then one no more: once. */
static void buffers_that_the_device_does_not_take(void **state)
{
        struct pair *p = new_pair();
        int posted = fake_posted(B);

        for (int taken = 0; taken < (int)VERBS_REPOST; taken += 5) {
                fake_post_recv_limit(B, taken);
                for (uint32_t i = 0; i < 2 * VERBS_REPOST; i++) {
                        assert_int_equal(pair_send(p, i, 100, 100, 0), 1);
                        pair_settle(p);
                        for (struct unet_recv m; unet_ep_recv(p->b, &m, 1) == 1;)
                                pair_give_back(p, &m);
                }
                assert_true(unet_ep_stat(p->b, "NI_REPAIRS") > (uint64_t)taken / 5);
                assert_true(fake_posted(B) > posted - (int)VERBS_REPOST);
                works(p, 1);
        }
        end_pair(p);
}

/* ---- events ---- */

/* Who sleeps is told. */
static void hear(struct unet_ep *ep, int device)
{
        do
                assert_int_equal(unet_ep_wait(ep, UNET_READABLE, NS_PER_MS), -ETIMEDOUT);
        while (fake_unheard(device));
}

static void a_port_that_goes_down_and_comes_back(void **state)
{
        struct pair *p = new_pair();

        for (uint32_t i = 1; i <= 3; i++) {
                fake_port(A, false);
                hear(p->a, A);
                assert_int_equal(unet_ep_stat(p->a, "NI_PORT_DOWN"), i);
                assert_int_equal(pair_send(p, 1, 100, 0, 0), -EAGAIN);
                fake_port(A, true);
                assert_int_equal(unet_ep_wait(p->a, UNET_WRITABLE, PATIENCE), UNET_WRITABLE);
                assert_int_equal(unet_ep_stat(p->a, "NI_PORT_UP"), i);
                works(p, i);
        }
        end_pair(p);
}

static void an_address_that_moves_is_followed_and_one_that_goes_is_waited_for(void **state)
{
        struct pair *p = new_pair();

        for (uint32_t i = 1; i <= 3; i++) {
                int objects = fake_live();
                fake_move_gid(A);
                hear(p->a, A);
                assert_int_equal(fake_live(), objects);
                works(p, i);
        }
        fake_lose_gid(A);
        hear(p->a, A);
        assert_int_equal(unet_ep_stat(p->a, "NI_PORT_DOWN"), 1);
        assert_int_equal(pair_send(p, 1, 100, 0, 0), -EAGAIN);
        end_pair(p);
}

static void events_of_a_queue_pair_set_it_up_anew(void **state)
{
        static const enum ibv_event_type types[] = {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR,
                                                    IBV_EVENT_QP_ACCESS_ERR};
        struct pair *p = new_pair();

        for (uint32_t i = 0; i < ARRAY_LEN(types); i++) {
                fake_stop_qp(B);
                fake_event(B, types[i]);
                hear(p->b, B);
                assert_int_equal(unet_ep_stat(p->b, "NI_REPAIRS"), i + 1);
                works(p, i);
        }
        end_pair(p);
}

static void events_that_say_nothing_change_nothing(void **state)
{
        static const enum ibv_event_type types[] = {
                IBV_EVENT_COMM_EST,          IBV_EVENT_SQ_DRAINED,         IBV_EVENT_PATH_MIG,
                IBV_EVENT_LID_CHANGE,        IBV_EVENT_PKEY_CHANGE,        IBV_EVENT_SM_CHANGE,
                IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_QP_LAST_WQE_REACHED};
        struct pair *p = new_pair();

        for (uint32_t i = 0; i < ARRAY_LEN(types); i++)
                fake_event(A, types[i]);
        hear(p->a, A);
        assert_int_equal(unet_ep_stat(p->a, "NI_REPAIRS"), 0);
        assert_int_equal(unet_ep_stat(p->a, "NI_DEVICE_LOST"), 0);
        works(p, 1);
        end_pair(p);
}

/* Its channels close, what is under way comes back, and all of it can be let go. */
/* Whoever sleeps asks the device whether there is something, which it says is not so by errno:
 * nobody's but the program's, whose call did not fail (a recv() that returns 0, say). */
static void errno_stays_the_programs(void **state)
{
        struct pair *p = new_pair();

        for (int i = 0; i < 3; i++) {
                errno = 0;
                assert_int_equal(unet_ep_wait(p->b, UNET_READABLE, NS_PER_MS), -ETIMEDOUT);
                assert_int_equal(errno, 0);
                works(p, (uint32_t)i);
        }
        end_pair(p);
}

static void a_device_that_fails_closes_its_channels(void **state)
{
        static const enum ibv_event_type types[] = {IBV_EVENT_DEVICE_FATAL, IBV_EVENT_CQ_ERR};

        for (uint32_t i = 0; i < 2 * ARRAY_LEN(types); i++) {
                struct pair *p = new_pair();
                struct unet_ep *ep = i & 1 ? p->b : p->a;

                works(p, 1);
                fake_event(i & 1 ? B : A, types[i / 2]);
                assert_int_equal(unet_ep_wait(ep, UNET_CLOSED, PATIENCE), UNET_CLOSED);
                assert_int_equal(unet_ep_stat(ep, "NI_DEVICE_LOST"), 1);
                if ((i & 1) == 0)
                        assert_true(pair_send(p, 2, 100, 0, 0) < 0);
                end_pair(p);
        }
}

static void a_device_that_fails_with_messages_under_way(void **state)
{
        struct pair *p = new_pair();
        uint32_t flag[8];

        for (uint32_t i = 0; i < 8; i++) {
                struct unet_send s = {
                        .chan = p->ca, .nfrags = 1, .frag = {{i * 128, 100}}, .injected = &flag[i]};
                flag[i] = 0;
                if (i == 4)
                        fake_event(A, IBV_EVENT_DEVICE_FATAL);
                unet_ep_send(p->a, &s, 1);
        }
        assert_int_equal(unet_ep_wait(p->a, UNET_CLOSED, PATIENCE), UNET_CLOSED);
        for (int i = 0; i < 4; i++)
                assert_int_equal(flag[i], 1);
        end_pair(p);
}

/* ---- peers that go ---- */

/* Two queue pairs that know each other. */
struct two {
        struct counters cnt;
        uint8_t *memory;
        struct verbs_port *port[2];
        struct verbs_chan *chan[2];
};

static struct verbs_peer peer_of(const struct verbs_port *p)
{
        return (struct verbs_peer){.addr = p->dev.addr, .qpn = p->qp->qp_num, .qkey = p->qkey};
}

static void meet(struct two *t, int side)
{
        struct verbs_peer other = peer_of(t->port[1 - side]);

        assert_int_equal(verbs_chan_open(t->port[side], &other, 4096, &t->chan[side]), 0);
        t->chan[side]->unordered = true;
}

static struct two *new_two(void)
{
        struct two *t = calloc(1, sizeof *t);

        fake_reset(0x7f000001, 0x7f000002);
        t->memory = calloc(1, 65536);
        for (uint32_t i = 0; i < 2; i++) {
                const struct verbs_setup s = {.tx = unet_mem_flat(t->memory, 65536),
                                              .buffers = 256,
                                              .frames = true,
                                              .cnt = &t->cnt};
                assert_int_equal(verbs_port_open(ip_addr_v4(0x7f000001 + i), &s, &t->port[i]), 0);
        }
        meet(t, A);
        meet(t, B);
        return t;
}

static void end_two(struct two *t)
{
        for (int i = 0; i < 2; i++) {
                verbs_chan_abort(t->chan[i]);
                verbs_port_close(t->port[i], false);
        }
        assert_int_equal(fake_live(), 0);
        free(t->memory);
        free(t);
}

static void a_posts(struct two *t, int n)
{
        for (int i = 0; i < n; i++)
                verbs_chan_post(t->chan[A], 0, 1000, 0);
        verbs_ring(t->port[A]);
        verbs_poll_sends(t->port[A]);
}

static void b_has(struct two *t, int n)
{
        struct unet_rx rx[64];

        assert_int_equal(verbs_ni_ops.recv(&t->chan[B]->base, rx, 64), n);
        for (int i = 0; i < n; i++)
                verbs_ni_ops.release(&t->chan[B]->base, &rx[i].frame, 1);
}

/* The device looks at a work request when it comes to it, and only then for its handle. */
static void what_was_posted_to_a_peer_that_went_is_sent(void **state)
{
        struct two *t = new_two();

        for (int i = 0; i < 3; i++) {
                int objects = fake_live();
                fake_hold(true);
                a_posts(t, 3);
                verbs_chan_abort(t->chan[A]);
                verbs_poll_sends(t->port[A]);
                fake_hold(false);
                b_has(t, 3);
                meet(t, A); /* the handle has a user again */
                a_posts(t, 2);
                b_has(t, 2);
                assert_int_equal(t->cnt.n[COUNT_NI_REPAIRS], 0);
                assert_int_equal(fake_live(), objects);
        }
        end_two(t);
}

static void a_handle_nobody_uses_goes_when_all_is_sent(void **state)
{
        struct two *t = new_two();
        struct verbs_chan *other;
        int objects = fake_live();

        assert_int_equal(
                verbs_chan_open(t->port[A],
                                &(struct verbs_peer){.addr = ip_addr_v4(0x7f000003), .qpn = 9},
                                4096, &other),
                0);
        a_posts(t, 1);
        verbs_chan_abort(other);
        assert_int_equal(fake_live(), objects + 1);
        for (int i = 0; i < 4; i++) {
                a_posts(t, 16);
                b_has(t, i == 0 ? 17 : 16);
        }
        assert_int_equal(fake_live(), objects);
        end_two(t);
}

static void what_was_posted_before_an_address_moved_is_no_error(void **state)
{
        struct two *t = new_two();

        fake_hold(true);
        a_posts(t, 3);
        fake_move_gid(A);
        verbs_port_events(t->port[A]);
        verbs_poll_sends(t->port[A]);
        fake_hold(false); /* from an address that it has no more: lost */
        for (int i = 0; i < 4; i++) {
                a_posts(t, 16);
                b_has(t, 16);
        }
        assert_int_equal(t->cnt.n[COUNT_NI_REPAIRS], 0);
        end_two(t);
}

/* ---- peers of a stack ---- */

/* A stack's link, which this process drives, with a channel to slot 0 of its book. */
struct stack_link {
        struct counters cnt;
        struct vlink_book *book;
        struct vlink *v;
        uint8_t bytes[1000];
        struct ni_verbs ni;
};

static void no_ring(void *arg)
{
}

static struct stack_link *new_link(uint32_t addr)
{
        const uint64_t magic = VLINK_MAGIC;
        struct stack_link *l = calloc(1, sizeof *l);
        int mem = memfd_create("link", MFD_CLOEXEC), book = memfd_create("book", MFD_CLOEXEC);
        struct vlink_qp qp;

        assert_int_equal(ftruncate(mem, (off_t)vlink_bytes()), 0);
        assert_int_equal(pwrite(mem, &magic, sizeof magic, 0), sizeof magic);
        assert_int_equal(ftruncate(book, sizeof *l->book), 0);
        l->book = mmap(NULL, sizeof *l->book, PROT_READ | PROT_WRITE, MAP_SHARED, book, 0);
        l->book->magic = VLINK_MAGIC;
        l->book->addr = addr;
        assert_int_equal(vlink_map(mem, book, &l->cnt, no_ring, NULL, &l->v), 0);
        close(mem);
        close(book);
        assert_int_equal(vlink_drive(l->v, 1, &qp), 0);
        ni_verbs_init(&l->ni, l->v, 0, 4096, true, unet_mem_flat(l->bytes, sizeof l->bytes));
        return l;
}

static void end_link(struct stack_link *l)
{
        vlink_unmap(l->v);
        munmap(l->book, sizeof *l->book);
        free(l);
}

static void link_sends(struct stack_link *l, struct two *t)
{
        struct unet_tx tx = {.inl = l->bytes, .inl_len = 100};

        assert_int_equal(l->ni.base.ops->send(&l->ni.base, &tx, 1), 1);
        l->ni.base.ops->flush(&l->ni.base);
        b_has(t, 1);
}

static void tell_book(struct stack_link *l, uint32_t slot, const struct verbs_port *p)
{
        vlink_put(l->book, slot,
                  &(struct vlink_peer){.addr = p != NULL ? ip_addr_get_v4(p->dev.addr) : 0,
                                       .qpn = p != NULL ? p->qp->qp_num : 0,
                                       .qkey = p != NULL ? p->qkey : 0});
}

/* The other stack knows the link's queue pair, and nobody else. */
static struct stack_link *new_link_to(struct two *t)
{
        struct stack_link *l = new_link(0x7f000001);
        struct vlink_shared *sh = vlink_shared(l->v);
        struct verbs_peer us = {.addr = ip_addr_v4(0x7f000001), .qpn = sh->qpn, .qkey = sh->qkey};

        verbs_chan_abort(t->chan[B]);
        assert_int_equal(verbs_chan_open(t->port[B], &us, 4096, &t->chan[B]), 0);
        t->chan[B]->unordered = true;
        return l;
}

/* unetd has closed a channel and given its peer another, before the driver has looked. */
static void a_peer_whose_channel_is_another_now_is_still_met(void **state)
{
        struct two *t = new_two();
        struct stack_link *l = new_link_to(t);

        tell_book(l, 1, t->port[B]);
        l->ni.base.ops->flush(&l->ni.base);
        tell_book(l, 1, NULL);
        tell_book(l, 0, t->port[B]);
        link_sends(l, t);
        end_link(l);
        end_two(t);
}

/* unetd has no processor while it writes: who sends does not wait for it, and forgets nobody. */
static void peers_stay_while_the_book_is_written(void **state)
{
        struct two *t = new_two();
        struct stack_link *l = new_link_to(t);

        tell_book(l, 0, t->port[B]);
        link_sends(l, t);
        l->book->seq++;
        link_sends(l, t);
        l->book->seq++;
        link_sends(l, t);
        end_link(l);
        end_two(t);
}

/* The ring goes round; what lies elsewhere is copied, as ever. */
static void what_was_put_together_in_its_place_is_sent_from_there(void **state)
{
        struct two *t = new_two();
        struct stack_link *l = new_link_to(t);
        const struct unet_ni_ops *ops = l->ni.base.ops;
        struct unet_rx rx;

        tell_book(l, 0, t->port[B]);
        for (uint32_t i = 0; i < 2 * VLINK_SLOTS + 10; i++) {
                uint8_t *at = i % 3 != 0 ? ops->place(&l->ni.base) : l->bytes;
                struct unet_tx tx = {.inl = at, .inl_len = (uint16_t)(900 + i % 100)};

                memset(at, (int)i, tx.inl_len);
                assert_true(ops->room(&l->ni.base) > 0);
                assert_int_equal(ops->send(&l->ni.base, &tx, 1), 1);
                assert_true(ops->place(&l->ni.base) != at);
                ops->flush(&l->ni.base);
                assert_int_equal(verbs_ni_ops.recv(&t->chan[B]->base, &rx, 1), 1);
                assert_int_equal(rx.inl_len + rx.len, tx.inl_len);
                assert_int_equal(rx.inl[0], (uint8_t)i);
                verbs_ni_ops.release(&t->chan[B]->base, &rx.frame, 1);
        }
        end_link(l);
        end_two(t);
}

/* ---- calls that fail ---- */

/* The queue pair cannot be set up anew: the device counts as lost. */
static void a_repair_that_fails_at_any_step_loses_the_device(void **state)
{
        int steps = 0;

        for (int n = 1;; n++, steps++) {
                struct pair *p = new_pair();

                fake_send_status(A, IBV_WC_GENERAL_ERR);
                fake_fail_call(n);
                send_and_get_back(p);
                if (!fake_failed()) {
                        fake_fail_call(0);
                        works(p, 1);
                        end_pair(p);
                        break;
                }
                assert_int_equal(unet_ep_stat(p->a, "NI_DEVICE_LOST"), 1);
                assert_int_equal(unet_ep_wait(p->a, UNET_CLOSED, PATIENCE), UNET_CLOSED);
                end_pair(p);
        }
        assert_int_equal(steps, 4); /* RESET, INIT, RTR, RTS */
}

static void opening_that_fails_at_any_step_leaves_nothing_behind(void **state)
{
        int steps = 0;

        for (int n = 1;; n++, steps++) {
                struct counters cnt = {.n = {0}};
                struct verbs_port *port = NULL;
                uint8_t *memory = calloc(1, 65536);
                const struct verbs_setup s = {.tx = unet_mem_flat(memory, 65536),
                                              .buffers = 256,
                                              .frames = true,
                                              .cnt = &cnt};
                int err;

                fake_reset(0x7f000001, 0x7f000002);
                fake_fail_call(n);
                err = verbs_port_open(ip_addr_v4(0x7f000001), &s, &port);
                if (err == 0) /* a queue pair without inline data is one, too */
                        verbs_port_close(port, false);
                assert_int_equal(fake_live(), 0);
                free(memory);
                if (!fake_failed()) {
                        assert_int_equal(err, 0);
                        break;
                }
        }
        assert_true(steps >= 15);
}

static void an_address_that_no_device_has(void **state)
{
        struct counters cnt = {.n = {0}};
        struct verbs_port *port;
        uint8_t memory[4096];
        const struct verbs_setup s = {
                .tx = unet_mem_flat(memory, sizeof memory), .buffers = 256, .cnt = &cnt};
        char text[512];

        fake_reset(0x7f000001, 0x7f000002);
        assert_int_equal(verbs_port_open(ip_addr_v4(0x0a000001), &s, &port), -ENODEV);
        assert_int_equal(verbs_dev_describe(text, sizeof text), 2);
        fake_reset(0x7f000001, 0x7f000002);
        fake_fail_call(1);
        assert_int_equal(verbs_dev_describe(text, sizeof text), 0);
        assert_non_null(strstr(text, "no RDMA"));
        assert_int_equal(fake_live(), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_send_that_ends_wrong_is_lost_and_the_next_ones_are_not),
                cmocka_unit_test(a_receive_that_ends_wrong_costs_that_message),
                cmocka_unit_test(what_makes_no_sense_is_dropped_and_counted),
                cmocka_unit_test(what_the_device_does_not_take_is_lost_and_comes_back),
                cmocka_unit_test(a_chain_that_is_taken_in_part),
                cmocka_unit_test(buffers_that_the_device_does_not_take),
                cmocka_unit_test(a_port_that_goes_down_and_comes_back),
                cmocka_unit_test(an_address_that_moves_is_followed_and_one_that_goes_is_waited_for),
                cmocka_unit_test(events_of_a_queue_pair_set_it_up_anew),
                cmocka_unit_test(events_that_say_nothing_change_nothing),
                cmocka_unit_test(errno_stays_the_programs),
                cmocka_unit_test(a_device_that_fails_closes_its_channels),
                cmocka_unit_test(a_device_that_fails_with_messages_under_way),
                cmocka_unit_test(what_was_posted_to_a_peer_that_went_is_sent),
                cmocka_unit_test(a_handle_nobody_uses_goes_when_all_is_sent),
                cmocka_unit_test(what_was_posted_before_an_address_moved_is_no_error),
                cmocka_unit_test(a_peer_whose_channel_is_another_now_is_still_met),
                cmocka_unit_test(peers_stay_while_the_book_is_written),
                cmocka_unit_test(what_was_put_together_in_its_place_is_sent_from_there),
                cmocka_unit_test(a_repair_that_fails_at_any_step_loses_the_device),
                cmocka_unit_test(opening_that_fails_at_any_step_leaves_nothing_behind),
                cmocka_unit_test(an_address_that_no_device_has),
        };

        setenv("VM_ADDR", "127.0.0.1", 1);
        setenv("VM_PEER", "127.0.0.2", 1);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
