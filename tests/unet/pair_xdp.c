/* Endpoint pairs over AF_XDP. What was sent has arrived when the receiver's ring has had as many
 * frames, or its kernel says that it dropped them; a queue can be filled while nobody kicks it. */
#include "pair_xdp.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "tests/netns/bed.h"
#include "tests/unet/xdp_link.h"
#include "unet/xdp/xdp_open.h"

#define MTU      3498u /* the most that veth's driver takes */
#define QUIET_MS 300   /* what has not arrived by then was lost */

static int ns[2] = {-1, -1};
static struct xdp_dev dev[2];
static _Atomic uint32_t no_flags;

const char *xdp_pairs_impossible(void)
{
        static char line[XDP_LINE_MAX];
        const char *why = bed_impossible();
        struct xdp_dev d;
        int err;

        if (why != NULL)
                return why;
        ns[0] = bed_ns();
        ns[1] = bed_ns();
        bed_veth(ns[0], "ends0", ns[1], "ends1", MTU, 1);
        bed_enter(ns[0]);
        err = xdp_dev_open(&d, "ends0", XDP_WANT_NATIVE, line);
        if (err == 0)
                xdp_dev_close(&d);
        return err == 0 ? NULL : err == -EPERM ? "XDP programs may not be loaded here" : line;
}

static struct xdp_sock open_end(int i)
{
        char name[8], line[XDP_LINE_MAX];
        struct xdp_sock s = {.xsk = -1};
        int err;

        snprintf(name, sizeof name, "ends%d", i);
        bed_enter(ns[i]);
        err = xdp_dev_open(&dev[i], name, XDP_WANT_NATIVE, line);
        if (err == 0)
                err = xdp_sock_open(&s, &dev[i], 0, (struct xdp_sizes){0}, line);
        if (err != 0)
                fail_msg("%s", line);
        return s;
}

static void join_xdp(struct pair *p)
{
        struct xdp_sock a = open_end(0), b = open_end(1);

        assert_int_equal(xdp_link_over(p->a, a.xsk, a.mem, dev[1].mac, &p->ca), 0);
        assert_int_equal(xdp_link_over(p->b, b.xsk, b.mem, dev[0].mac, &p->cb), 0);
}

/* NULL: closed. */
static struct ni_xdp *ni_of(const struct unet_ep *ep)
{
        return ep != NULL && ep->nlinks > 0 && ep->link[0].serial != 0
                       ? xdp_link_ni(ep->link[0].l.ch)
                       : NULL;
}

static void hold_xdp(struct pair *p)
{
        ni_of(p->a)->tx.flags = &no_flags;
}

static uint32_t dropped(const struct ni_xdp *x)
{
        struct xdp_statistics st = {0};
        socklen_t len = sizeof st;

        assert_int_equal(getsockopt(x->xsk, SOL_XDP, XDP_STATISTICS, &st, &len), 0);
        return (uint32_t)(st.rx_dropped + st.rx_ring_full);
}

static bool arrived(const struct ni_xdp *from, const struct ni_xdp *to)
{
        return from == NULL || to == NULL ||
               xdp_own(from->tx.prod) == xdp_theirs(to->rx.prod) + dropped(to);
}

static void settle_xdp(struct pair *p)
{
        struct ni_xdp *a = ni_of(p->a), *b = ni_of(p->b);
        const struct timespec ms = {.tv_nsec = NS_PER_MS};

        if (a != NULL) /* where the flags of TX are is known from another ring: all lie alike */
                a->tx.flags = (_Atomic uint32_t *)((char *)a->tx.map +
                                                   ((char *)a->rx.flags - (char *)a->rx.map));
        for (int i = 0; i < QUIET_MS && !(arrived(a, b) && arrived(b, a)); i++) {
                if (a != NULL)
                        a->base.ops->flush(&a->base);
                if (b != NULL)
                        b->base.ops->flush(&b->base);
                if (!(arrived(a, b) && arrived(b, a)))
                        nanosleep(&ms, NULL);
        }
}

static void leave_xdp(struct pair *p)
{
        xdp_dev_close(&dev[0]);
        xdp_dev_close(&dev[1]);
}

const struct provider xdp_providers[] = {
        {.name = "xdp",
         .drops_behind = true,
         .join = join_xdp,
         .settle = settle_xdp,
         .hold = hold_xdp,
         .leave = leave_xdp},
        {.name = "xdp direct",
         .direct = true,
         .drops_behind = true,
         .join = join_xdp,
         .settle = settle_xdp,
         .hold = hold_xdp,
         .leave = leave_xdp},
};
const int nxdp_providers = ARRAY_LEN(xdp_providers);
