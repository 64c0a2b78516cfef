/*
 * Two whole stacks, each with a queue pair of its own, from one RDMA device of a machine to the
 * other (tests/vm/vm): segments in the channel's frames, as sent and as received, in real time.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/sim/pair.h"
#include "tests/unit.h"
#include "unet/verbs/verbs_chan.h"

#define TRANSFER (4u << 20)
#define PIECE    65536u
#define PATIENCE (60 * NS_PER_S) /* without a byte */
#define BUFFERS  512u

struct world {
        struct pair *p;
        struct verbs_port *port[2];
        struct verbs_chan *chan[2];
        uint32_t conn[2];
};

static nstime now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

/* ---- joining ---- */

static ip_addr address_of_env(const char *name)
{
        const char *text = getenv(name);
        struct in_addr a;

        if (text == NULL || inet_pton(AF_INET, text, &a) != 1)
                fail_msg("%s is not set: run in tests/vm/vm", name);
        return ip_addr_v4(ntohl(a.s_addr));
}

static void open_port(struct world *w, int side, const char *name)
{
        struct pair_side *d = &w->p->side[side];
        size_t bytes = frame_geom_bytes(w->p->size.tx);
        struct verbs_setup s = {.buffers = BUFFERS, .frames = true, .cnt = &d->st->cnt};

        d->tx_frames = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(d->tx_frames, MAP_FAILED);
        s.tx = unet_mem_frames(d->tx_frames, w->p->size.tx);
        assert_int_equal(verbs_port_open(address_of_env(name), &s, &w->port[side]), 0);
}

/* Each is told of the other; the transports sum, as on any link of others. */
static void join(struct world *w, int side)
{
        const struct verbs_port *other = w->port[!side];
        const struct verbs_peer peer = {other->dev.addr, other->qp->qp_num, other->qkey};
        struct unet_mem rx = verbs_rx_mem(w->port[side]);
        struct pair_side *d = &w->p->side[side];

        assert_int_equal(verbs_chan_open(w->port[side], &peer, other->dev.mtu, &w->chan[side]), 0);
        w->chan[side]->base.caps.csum = true;
        w->chan[side]->unordered = true;
        d->st->chan[PAIR_CHAN].shm.rx_geom = rx.geom;
        stack_chan_mapped(&d->s, PAIR_CHAN, &w->chan[side]->base, d->tx_frames, rx.base);
}

static struct world *new_world(void)
{
        struct world *w = calloc(1, sizeof *w);

        assert_non_null(w);
        w->p = pair_unjoined(1, &pair_size_default);
        open_port(w, 0, "VM_ADDR");
        open_port(w, 1, "VM_PEER");
        join(w, 0);
        join(w, 1);
        return w;
}

static void free_world(struct world *w)
{
        for (int i = 0; i < 2; i++) {
                verbs_chan_abort(w->chan[i]);
                verbs_port_close(w->port[i], false);
        }
        pair_free(w->p);
        free(w);
}

/* ---- real time ---- */

static void run(struct world *w)
{
        for (int i = 0; i < 2; i++) {
                struct stack *s = &w->p->side[i].s;
                w->p->now = now();
                stack_run(s, w->p->now);
                stack_flush_acks(s, w->p->now);
        }
}

static void connect_both(struct world *w)
{
        struct tcp *client = &w->p->side[0].s.tcp, *server = &w->p->side[1].s.tcp;
        struct tcp_tuple t = {.laddr = pair_addr(0),
                              .raddr = pair_addr(1),
                              .lport = 40000,
                              .rport = 80,
                              .chan = PAIR_CHAN};
        struct tcp_link link = stack_tcp_link(&w->p->side[0].s, PAIR_CHAN);
        nstime end = now() + PATIENCE;
        struct tcp_opts o;
        int l, c;

        tcp_opts_default(&o);
        l = tcp_listen(server, pair_addr(1), 80, 8, &o);
        c = tcp_connect(client, &t, &link, &o, now());
        assert_true(l > 0 && c > 0);
        tcp_set_sock(client, (uint32_t)c, 1);
        stack_flush(&w->p->side[0].s, now());
        while (!tcp_acceptable(server, (uint32_t)l) && now() < end)
                run(w);
        w->conn[0] = (uint32_t)c;
        w->conn[1] = tcp_accept(server, (uint32_t)l);
        assert_int_not_equal(w->conn[1], 0);
        tcp_set_sock(server, w->conn[1], 1);
}

static uint8_t stream_byte(size_t i)
{
        return (uint8_t)(i * 167 + i / 251 + (i >> 16) * 13);
}

static size_t push(struct world *w, size_t sent, size_t total)
{
        static uint8_t data[PIECE];
        size_t n = MIN(sizeof data, total - sent);
        int r;

        for (size_t i = 0; i < n; i++)
                data[i] = stream_byte(sent + i);
        r = n > 0 ? pair_write(w->p, 0, w->conn[0], data, n) : 0;
        assert_true(r >= 0);
        return (size_t)r;
}

static size_t pull(struct world *w, size_t got)
{
        static uint8_t data[PIECE];
        int r = pair_read(w->p, 1, w->conn[1], data, sizeof data);

        if (r == -EAGAIN)
                return 0;
        assert_true(r > 0);
        for (int i = 0; i < r; i++)
                if (data[i] != stream_byte(got + (size_t)i))
                        fail_msg("byte %zu differs", got + (size_t)i);
        return (size_t)r;
}

static void transfer(struct world *w)
{
        size_t sent = 0, got = 0;
        nstime begin = now(), moved = begin;

        connect_both(w);
        while (got < TRANSFER) {
                size_t n = pull(w, got);

                sent += push(w, sent, TRANSFER);
                got += n;
                run(w);
                if (n > 0)
                        moved = now();
                if (now() > moved + PATIENCE) {
                        pair_say(w->p);
                        fail_msg("stalled at %zu of %u", got, TRANSFER);
                }
        }
        printf("%u bytes in %.2f s, %.3f Gb/s\n", TRANSFER, (double)(now() - begin) / 1e9,
               (double)TRANSFER * 8 / (double)(now() - begin));
        pair_say(w->p);
        pair_check(w->p);
}

/* ---- tests ---- */

static void shell(const char *command)
{
        if (system(command) != 0)
                fail_msg("failed: %s", command);
}

static void bytes_arrive_over_verbs(void **state)
{
        struct world *w = new_world();

        (void)state;
        transfer(w);
        free_world(w);
}

static void bytes_arrive_when_the_wire_loses_and_reorders(void **state)
{
        struct world *w = new_world();

        (void)state;
        shell("modprobe sch_netem && tc qdisc add dev veth0 root netem delay 2ms 1ms loss 1%");
        transfer(w);
        shell("tc qdisc del dev veth0 root");
        free_world(w);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(bytes_arrive_over_verbs),
                cmocka_unit_test(bytes_arrive_when_the_wire_loses_and_reorders),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
