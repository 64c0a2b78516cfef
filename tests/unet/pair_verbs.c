/* Endpoint pairs over RDMA devices. What was sent has arrived when the receiver has seen its
 * number; a queue can be filled while the queue pair drains. */
#include "pair_verbs.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "unet/verbs/verbs_chan.h"

#define QUIET_NS (300 * NS_PER_MS) /* what has not arrived by then was lost */

/* ---- joining ---- */

const char *address_of_env(const char *name)
{
        const char *addr = getenv(name);

        if (addr == NULL)
                fail_msg("%s is not set: run in tests/vm/vm", name);
        return addr;
}

static struct sockaddr_in at_address(const char *addr)
{
        struct sockaddr_in sa = {.sin_family = AF_INET};

        assert_int_equal(inet_pton(AF_INET, addr, &sa.sin_addr), 1);
        return sa;
}

void tcp_pair(const char *from, const char *to, int sock[2])
{
        struct sockaddr_in here = at_address(from), there = at_address(to);
        int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        socklen_t len = sizeof there;

        assert_int_equal(bind(listener, (struct sockaddr *)&there, sizeof there), 0);
        assert_int_equal(listen(listener, 1), 0);
        assert_int_equal(getsockname(listener, (struct sockaddr *)&there, &len), 0);
        sock[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(sock[0], (struct sockaddr *)&here, sizeof here), 0);
        assert_int_equal(connect(sock[0], (struct sockaddr *)&there, sizeof there), 0);
        sock[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        assert_true(sock[1] >= 0);
        close(listener);
}

struct joining {
        struct unet_ep *ep;
        int sock, err;
        uint32_t chan;
};

static void *join_one(void *arg)
{
        struct joining *j = arg;

        j->err = unet_verbs_over(j->ep, j->sock, 10 * NS_PER_S, &j->chan);
        return NULL;
}

void join_verbs(struct pair *p)
{
        struct joining a = {.ep = p->a}, b = {.ep = p->b};
        pthread_t thread;
        int sock[2];

        tcp_pair(address_of_env("VM_ADDR"), address_of_env("VM_PEER"), sock);
        a.sock = sock[0];
        b.sock = sock[1];
        assert_int_equal(pthread_create(&thread, NULL, join_one, &a), 0);
        join_one(&b);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(a.err, 0);
        assert_int_equal(b.err, 0);
        p->ca = a.chan;
        p->cb = b.chan;
}

/* ---- settling and holding ---- */

static nstime now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

/* NULL: closed. */
static struct verbs_chan *chan_of(const struct unet_ep *ep)
{
        return ep->nlinks > 0 && ep->link[0].serial != 0 ? (struct verbs_chan *)ep->link[0].l.ch
                                                         : NULL;
}

static void set_state(struct verbs_chan *c, enum ibv_qp_state state)
{
        struct ibv_qp_attr attr = {.qp_state = state};

        assert_int_equal(ibv_modify_qp(c->port->qp, &attr, IBV_QP_STATE), 0);
}

static bool held(const struct verbs_chan *c)
{
        struct ibv_qp_init_attr init;
        struct ibv_qp_attr attr;

        assert_int_equal(ibv_query_qp(c->port->qp, &attr, IBV_QP_STATE, &init), 0);
        return attr.qp_state == IBV_QPS_SQD;
}

static void hold_verbs(struct pair *p)
{
        set_state(chan_of(p->a), IBV_QPS_SQD);
}

/* The device looks at its queue again at the next doorbell: one for a datagram that nobody takes,
 * with a wrong Q_Key. */
static void let_go(struct verbs_chan *c)
{
        struct ibv_send_wr *bad, wr = {
                                         .opcode = IBV_WR_SEND_WITH_IMM,
                                         .wr.ud = {.ah = c->host->ah,
                                                   .remote_qpn = c->peer.qpn,
                                                   .remote_qkey = c->peer.qkey ^ 1},
                                 };

        set_state(c, IBV_QPS_RTS);
        assert_int_equal(ibv_post_send(c->port->qp, &wr, &bad), 0);
}

static bool arrived(struct verbs_chan *from, struct verbs_chan *to)
{
        if (to != NULL)
                verbs_poll_receives(to->port);
        if (from != NULL)
                verbs_poll_sends(from->port);
        if (from == NULL || to == NULL)
                return from == to || to == NULL || to->ended;
        return from->tx_seq == to->rx_seq &&
               from->port->posted - from->port->retired <= from->port->unsignalled;
}

static bool all_arrived(struct verbs_chan *a, struct verbs_chan *b)
{
        bool there = arrived(a, b), back = arrived(b, a);

        return there && back;
}

static void settle_verbs(struct pair *p)
{
        struct verbs_chan *a = chan_of(p->a), *b = chan_of(p->b);
        uint32_t seen = 0;
        nstime last = now();

        if (a != NULL && held(a))
                let_go(a);
        while (!all_arrived(a, b) && now() < last + QUIET_NS) {
                uint32_t come = (a != NULL ? a->rx_seq : 0) + (b != NULL ? b->rx_seq : 0);
                if (come != seen)
                        last = now();
                seen = come;
        }
}

const struct provider verbs_providers[] = {
        {.name = "verbs",
         .drops_behind = true,
         .hears_close = true,
         .join = join_verbs,
         .settle = settle_verbs,
         .hold = hold_verbs},
        {.name = "verbs direct",
         .direct = true,
         .drops_behind = true,
         .hears_close = true,
         .join = join_verbs,
         .settle = settle_verbs,
         .hold = hold_verbs},
};
const int nverbs_providers = ARRAY_LEN(verbs_providers);
