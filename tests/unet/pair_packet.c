/* Endpoint pairs over packet sockets. What was sent has arrived when the receiver's socket has had
 * as many frames, or says that it dropped them. Held, a sender writes into a queue of ours, which
 * is emptied into its socket later. */
#include "pair_packet.h"

#include <linux/if_packet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/netns/bed.h"
#include "unet/packet/packet_link.h"

#define MTU      9000u
#define QUIET_MS 300 /* what has not arrived by then was lost */

static int ns[2] = {-1, -1};
static struct packet_sock end[2];
static uint32_t arrived[2];     /* frames that the kernel has counted at each end */
static int queue[2] = {-1, -1}; /* of a sender that is held */

const char *packet_pairs_impossible(void)
{
        const char *why = bed_impossible();

        if (why != NULL)
                return why;
        ns[0] = bed_ns();
        ns[1] = bed_ns();
        bed_veth(ns[0], "ends0", ns[1], "ends1", MTU, 1);
        bed_run(ns[0], "ip link set ends0 address 02:00:00:00:4d:00");
        bed_run(ns[1], "ip link set ends1 address 02:00:00:00:4d:01");
        return NULL;
}

static void open_end(int i)
{
        const uint8_t peer[6] = {2, 0, 0, 0, 0x4d, (uint8_t)!i};
        char name[8];

        snprintf(name, sizeof name, "ends%d", i);
        bed_enter(ns[i]);
        assert_int_equal(packet_sock_open(&end[i], name, peer), 0);
        arrived[i] = 0;
}

static void join_packet(struct pair *p)
{
        open_end(0);
        open_end(1);
        assert_int_equal(packet_link_over(p->a, &end[0], end[1].mac, &p->ca), 0);
        assert_int_equal(packet_link_over(p->b, &end[1], end[0].mac, &p->cb), 0);
}

/* NULL: closed. */
static struct unet_chan *chan_of(const struct unet_ep *ep)
{
        return ep != NULL && ep->nlinks > 0 && ep->link[0].serial != 0 ? ep->link[0].l.ch : NULL;
}

static void hold_packet(struct pair *p)
{
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, queue), 0);
        *packet_link_out(chan_of(p->a)) = queue[0];
}

static void let_on(struct pair *p)
{
        static uint8_t message[MTU + ETHER_BYTES];
        ssize_t n;

        if (queue[0] < 0)
                return;
        if (chan_of(p->a) != NULL)
                *packet_link_out(chan_of(p->a)) = end[0].fd;
        while ((n = recv(queue[1], message, sizeof message, MSG_DONTWAIT)) > 0)
                if (chan_of(p->a) != NULL)
                        assert_int_equal(send(end[0].fd, message, (size_t)n, 0), n);
        close(queue[0]);
        close(queue[1]);
        queue[0] = queue[1] = -1;
}

static bool has_all(const struct unet_ep *from, const struct unet_ep *to, int i)
{
        struct tpacket_stats st = {0};
        socklen_t len = sizeof st;

        if (chan_of(from) == NULL || chan_of(to) == NULL)
                return true;
        assert_int_equal(getsockopt(end[i].fd, SOL_PACKET, PACKET_STATISTICS, &st, &len), 0);
        /* Since it was asked last, those that were dropped among them. */
        arrived[i] += st.tp_packets;
        return arrived[i] >= packet_link_sent(chan_of(from));
}

static void settle_packet(struct pair *p)
{
        const struct timespec ms = {.tv_nsec = NS_PER_MS};

        let_on(p);
        for (int i = 0; i < QUIET_MS && !(has_all(p->a, p->b, 1) && has_all(p->b, p->a, 0)); i++)
                nanosleep(&ms, NULL);
}

static void leave_packet(struct pair *p)
{
        let_on(p);
}

const struct provider packet_providers[] = {
        {.name = "packet",
         .drops_behind = true,
         .join = join_packet,
         .settle = settle_packet,
         .hold = hold_packet,
         .leave = leave_packet},
        {.name = "packet direct",
         .direct = true,
         .drops_behind = true,
         .join = join_packet,
         .settle = settle_packet,
         .hold = hold_packet,
         .leave = leave_packet},
};
const int npacket_providers = ARRAY_LEN(packet_providers);
