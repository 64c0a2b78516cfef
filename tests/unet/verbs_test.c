/*
 * What is particular to verbs, in a machine with two RDMA devices that it may take down
 * (tests/vm/vm): who gets through, what happens when port or queue pair fail, and that nothing is
 * left behind.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair_verbs.h"
#include "unet/verbs/verbs_chan.h"

#define PATIENCE (10 * NS_PER_S)

static struct pair *new_pair(void)
{
        struct pair *p = pair_new(&verbs_providers[0], (struct unet_ep_opts){.spin_ns = -1});

        pair_provide(p, 32, 4096);
        return p;
}

static struct verbs_chan *chan_of(const struct unet_ep *ep, uint32_t link)
{
        return (struct verbs_chan *)ep->link[link].l.ch;
}

static void shell(const char *command)
{
        if (system(command) != 0)
                fail_msg("failed: %s", command);
}

static void sleep_ms(int ms)
{
        usleep((useconds_t)ms * 1000);
}

/* A datagram past all that the library would check. */
static void post_raw(struct verbs_chan *c, uint32_t qkey, uint32_t imm, enum ibv_wr_opcode opcode)
{
        struct ibv_sge sge = {
                .addr = (uintptr_t)c->port->tx.base, .length = 16, .lkey = c->port->tx_mr->lkey};
        struct ibv_send_wr *bad, wr = {
                                         .wr_id = c->port->posted,
                                         .sg_list = &sge,
                                         .num_sge = 1,
                                         .opcode = opcode,
                                         .imm_data = be32_of(imm).raw,
                                         .wr.ud = {.ah = c->host->ah,
                                                   .remote_qpn = c->peer.qpn,
                                                   .remote_qkey = qkey},
                                 };

        assert_int_equal(ibv_post_send(c->port->qp, &wr, &bad), 0);
}

/* ---- who gets through ---- */

static void a_wrong_qkey_gets_nothing_through(void **state)
{
        struct pair *p = new_pair();
        struct verbs_chan *a = chan_of(p->a, 0);

        post_raw(a, a->peer.qkey ^ 1, 0, IBV_WR_SEND_WITH_IMM);
        sleep_ms(100);
        pair_expect_none(p);
        assert_int_equal(pair_send(p, 1, 100, 0, 0), 1);
        pair_expect(p, 1, 100);
        assert_int_equal(unet_ep_stat(p->b, "NI_RX_MSGS"), 1);
        pair_free(p);
}

static void a_stranger_with_the_right_qkey_is_dropped_and_counted(void **state)
{
        struct pair *p = new_pair(), *q = new_pair();
        struct verbs_chan *stranger = chan_of(q->a, 0), *a = chan_of(p->a, 0);

        stranger->peer.qpn = a->peer.qpn;
        post_raw(stranger, a->peer.qkey, 0, IBV_WR_SEND_WITH_IMM);
        sleep_ms(100);
        pair_expect_none(p);
        assert_int_equal(unet_ep_stat(p->b, "NI_NO_CHANNEL"), 1);
        stranger->peer.qpn = chan_of(q->b, 0)->port->qp->qp_num;
        pair_free(q);
        pair_free(p);
}

static void what_is_not_ours_is_dropped_and_counted(void **state)
{
        struct pair *p = new_pair();
        struct verbs_chan *a = chan_of(p->a, 0);

        post_raw(a, a->peer.qkey, 0, IBV_WR_SEND); /* no immediate data */
        /* More in the descriptor than came. */
        post_raw(a, a->peer.qkey, 17u << VERBS_IMM_INLINE, IBV_WR_SEND_WITH_IMM);
        post_raw(a, a->peer.qkey, VERBS_SEQ_MASK - 5, IBV_WR_SEND_WITH_IMM); /* of long ago */
        sleep_ms(100);
        pair_expect_none(p);
        assert_int_equal(unet_ep_stat(p->b, "NI_MALFORMED"), 2);
        assert_int_equal(unet_ep_stat(p->b, "NI_LATE"), 1);
        a->tx_seq = 1; /* the second of them had number 0 */
        assert_int_equal(pair_send(p, 1, 100, 100, 0), 1);
        pair_expect(p, 1, 100);
        pair_free(p);
}

/* Its device says who sends: one that forges must do so when joining. */
static void a_peer_speaks_for_its_own_address_only(void **state)
{
        struct {
                be32 magic, version;
                ip_addr addr;
                be32 qpn, qkey, mtu, zero;
        } hello = {.addr = ip_addr_v4(0x01020304), .qpn = be32_of(20), .mtu = be32_of(4096)};
        struct unet_ep *ep;
        uint32_t chan;
        int sock[2];

        assert_int_equal(unet_ep_open(NULL, &ep), 0);
        tcp_pair(address_of_env("VM_ADDR"), address_of_env("VM_PEER"), sock);
        assert_int_equal(unet_verbs_over(ep, sock[1], 0, &chan), -ETIMEDOUT);
        assert_int_equal(recv(sock[0], &hello.magic, 8, MSG_WAITALL), 8);
        assert_int_equal(send(sock[0], &hello, sizeof hello, 0), sizeof hello);
        assert_int_equal(unet_verbs_over(ep, sock[1], PATIENCE, &chan), -EPROTO);
        close(sock[0]);
        assert_int_equal(unet_verbs_over(ep, sock[1], PATIENCE, &chan), -EPIPE);
        close(sock[1]);
        unet_ep_close(ep);
}

static void an_address_without_device_is_refused(void **state)
{
        struct unet_ep *ep;
        uint32_t chan;
        int sock[2];

        assert_int_equal(unet_ep_open(NULL, &ep), 0);
        tcp_pair("127.0.0.1", "127.0.0.1", sock);
        assert_int_equal(unet_verbs_over(ep, sock[0], PATIENCE, &chan), -ENODEV);
        close(sock[0]);
        close(sock[1]);
        unet_ep_close(ep);
}

/* ---- one queue pair, many peers ---- */

static void peers_of_one_queue_pair_are_told_apart(void **state)
{
        struct pair *p = new_pair();
        struct pair q = {.how = p->how, .b = p->b};
        struct unet_recv m;

        assert_int_equal(unet_ep_open(NULL, &q.a), 0);
        join_verbs(&q);
        assert_int_not_equal(q.cb, p->cb);
        assert_ptr_equal(chan_of(p->b, 0)->port, chan_of(p->b, 1)->port);
        assert_ptr_equal(chan_of(p->b, 0)->host, chan_of(p->b, 1)->host);
        assert_int_equal(chan_of(p->b, 0)->host->users, 2);
        for (int i = 0; i < 2; i++) {
                struct unet_send s = {.chan = i ? q.ca : p->ca, .inl = i ? "q" : "p", .inl_len = 1};
                assert_int_equal(unet_ep_send(i ? q.a : p->a, &s, 1), 1);
        }
        for (int i = 0; i < 2; i++) {
                while (unet_ep_recv(p->b, &m, 1) == 0)
                        assert_int_equal(unet_ep_wait(p->b, UNET_READABLE, PATIENCE),
                                         UNET_READABLE);
                assert_int_equal(m.inl[0], m.chan == q.cb ? 'q' : 'p');
        }
        unet_ep_close(q.a);
        assert_int_equal(unet_ep_wait(p->b, UNET_CLOSED, PATIENCE), UNET_CLOSED);
        assert_int_equal(unet_chan_close(p->b, q.cb), 0);
        assert_int_equal(pair_send(p, 1, 4000, 0, 0), 1);
        pair_expect(p, 1, 4000);
        pair_free(p);
}

/* ---- sleeping ---- */

static void *send_later(void *arg)
{
        sleep_ms(200);
        assert_int_equal(pair_send(arg, 1, 1000, 0, 0), 1);
        return NULL;
}

static void a_sleeper_is_woken_by_a_completion(void **state)
{
        struct pair *p = new_pair();
        pthread_t thread;

        for (int i = 0; i < 3; i++) {
                assert_int_equal(pthread_create(&thread, NULL, send_later, p), 0);
                assert_int_equal(unet_ep_wait(p->b, UNET_READABLE, PATIENCE), UNET_READABLE);
                pthread_join(thread, NULL);
                pair_expect(p, 1, 1000);
        }
        pair_free(p);
}

/* ---- what gets lost ---- */

static void what_the_receiver_has_no_buffer_for_is_missed(void **state)
{
        struct pair *p = new_pair();
        uint32_t buffers = chan_of(p->b, 0)->port->nbufs, sent = 0, got = 0;
        struct unet_recv m;

        for (; sent < buffers + 100; sent++) {
                while (pair_send(p, sent, 8, 8, 0) == -EAGAIN)
                        unet_ep_wait(p->a, UNET_WRITABLE, PATIENCE);
                if (sent % 64 == 0)
                        sleep_ms(5);
        }
        sleep_ms(200);
        while (unet_ep_recv(p->b, &m, 1) == 1)
                got++;
        assert_in_range(got, buffers - VERBS_REPOST, buffers);
        assert_int_equal(pair_send(p, 0, 8, 8, 0), 1); /* its number tells */
        pair_expect(p, 0, 8);
        assert_int_equal(unet_ep_stat(p->b, "NI_MISSED"), sent - got);
        pair_free(p);
}

/* ---- failures ---- */

static void a_broken_queue_pair_is_set_up_anew(void **state)
{
        struct pair *p = new_pair();
        struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
        uint32_t flag = 0;
        struct unet_send s = {.chan = p->ca, .nfrags = 1, .frag = {{0, 100}}, .injected = &flag};

        for (int side = 0; side < 2; side++) {
                struct verbs_chan *c = chan_of(side ? p->b : p->a, 0);
                assert_int_equal(pair_send(p, 1, 100, 0, 0), 1);
                pair_expect(p, 1, 100);
                assert_int_equal(ibv_modify_qp(c->port->qp, &err, IBV_QP_STATE), 0);
                flag = 0;
                /* Lost, but its buffer comes back. */
                assert_int_equal(unet_ep_send(p->a, &s, 1), 1);
                for (int i = 0; i < 100 && flag == 0; i++) {
                        unet_ep_poll(p->a);
                        sleep_ms(10);
                }
                assert_int_equal(flag, 1);
                unet_ep_poll(p->b);
                assert_int_equal(unet_ep_stat(side ? p->b : p->a, "NI_REPAIRS"), 1);
        }
        assert_int_equal(pair_send(p, 2, 4000, 40, 0), 1);
        pair_expect(p, 2, 4000);
        pair_free(p);
}

static void a_port_that_is_down_holds_the_sender_up(void **state)
{
        struct pair *p = new_pair();

        shell("ip link set veth0 down");
        assert_int_equal(unet_ep_wait(p->a, UNET_READABLE, 300 * NS_PER_MS), -ETIMEDOUT);
        assert_int_equal(unet_ep_stat(p->a, "NI_PORT_DOWN"), 1);
        assert_int_equal(pair_send(p, 1, 100, 0, 0), -EAGAIN);
        shell("ip link set veth0 up; ip route replace \"$VM_PEER\" dev veth0 src \"$VM_ADDR\" "
              "table 101");
        assert_int_equal(unet_ep_wait(p->a, UNET_WRITABLE, PATIENCE), UNET_WRITABLE);
        assert_int_equal(unet_ep_stat(p->a, "NI_PORT_UP"), 1);
        for (int i = 0; i < 50; i++) { /* the kernel's own resolution comes back in its time */
                assert_int_equal(pair_send(p, 2, 100, 0, 0), 1);
                if (unet_ep_wait(p->b, UNET_READABLE, 100 * NS_PER_MS) == UNET_READABLE)
                        break;
        }
        pair_expect(p, 2, 100);
        pair_free(p);
}

static void a_child_lets_go_and_the_parent_goes_on(void **state)
{
        struct pair *p = new_pair();
        int status = -1;
        pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0) {
                unet_ep_forget(p->a);
                unet_ep_forget(p->b);
                _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        for (uint32_t i = 0; i < 40; i++) {
                assert_int_equal(pair_send(p, i, 3000, 10, 0), 1);
                pair_expect(p, i, 3000);
        }
        assert_int_equal(unet_ep_wait(p->b, UNET_CLOSED, 1), -ETIMEDOUT);
        pair_free(p);
}

static int count_lines(const char *command)
{
        FILE *f = popen(command, "r");
        int n = 0, c;

        assert_non_null(f);
        while ((c = getc(f)) != EOF)
                n += c == '\n';
        pclose(f);
        return n;
}

static void nothing_is_left_behind(void **state)
{
        static const char *objects[] = {"rdma resource show qp", "rdma resource show mr",
                                        "rdma resource show cq", "rdma resource show pd",
                                        "ls /proc/self/fd"};
        int before[ARRAY_LEN(objects)];

        for (int round = 0; round < 60; round++) {
                struct pair *p = new_pair();
                assert_int_equal(pair_send(p, 1, 100, 0, 0), 1);
                pair_expect(p, 1, 100);
                pair_free(p);
                for (size_t i = 0; i < ARRAY_LEN(objects) && round == 9; i++)
                        before[i] = count_lines(objects[i]);
        }
        for (size_t i = 0; i < ARRAY_LEN(objects); i++)
                assert_int_equal(count_lines(objects[i]), before[i]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_wrong_qkey_gets_nothing_through),
                cmocka_unit_test(a_stranger_with_the_right_qkey_is_dropped_and_counted),
                cmocka_unit_test(what_is_not_ours_is_dropped_and_counted),
                cmocka_unit_test(a_peer_speaks_for_its_own_address_only),
                cmocka_unit_test(an_address_without_device_is_refused),
                cmocka_unit_test(peers_of_one_queue_pair_are_told_apart),
                cmocka_unit_test(a_sleeper_is_woken_by_a_completion),
                cmocka_unit_test(what_the_receiver_has_no_buffer_for_is_missed),
                cmocka_unit_test(a_broken_queue_pair_is_set_up_anew),
                cmocka_unit_test(a_port_that_is_down_holds_the_sender_up),
                cmocka_unit_test(a_child_lets_go_and_the_parent_goes_on),
                cmocka_unit_test(nothing_is_left_behind),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
