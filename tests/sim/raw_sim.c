/* The simulated link under raw endpoints. */
#include "tests/sim/raw_sim.h"

/* A waiter on a simulated link waits for a message that is under way: let it arrive. */
static bool arm(struct unet_chan *ch)
{
        struct sim *s = sim_of(ch);
        nstime next = sim_next(s);

        if (next == NSTIME_NEVER)
                return false;
        sim_advance(s, next);
        return true;
}

static void close_end(struct unet_chan *ch, bool forget)
{
}

int raw_sim_attach(struct unet_ep *ep, struct sim *s, int side, uint32_t *chan)
{
        static const struct link_ops ops = {.arm = arm, .close = close_end};
        struct unet_segment seg = unet_ep_segment(ep);
        struct link l = {
                .ops = &ops, .ch = sim_end(s, side), .rx_mem = sim_rx_mem(s, side), .sock = -1};

        sim_set_tx_mem(s, side, unet_mem_flat(seg.base, seg.tx_bytes));
        sim_set_counters(s, side, &ep->cnt);
        return ep_attach(ep, &l, chan);
}
