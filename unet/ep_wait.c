/* Waiting and upcalls: what is true now, spinning, sleeping, dispatching. */
#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "unet/ep.h"

#define SPIN_LOOKS 32 /* looks between two readings of the clock */

/* ---- what is true ---- */

static void note_gone(struct unet_ep *ep, struct ep_link *l)
{
        if (!l->gone && l->l.ops->gone != NULL && l->l.ops->gone(l->l.ch))
                ep_link_gone(ep, l);
        ep_read_board(ep, l);
}

/* Reports of injected messages are taken first: what is pending after that is messages. */
static bool link_readable(struct unet_ep *ep, struct ep_link *l)
{
        struct unet_chan *ch = l->l.ch;

        if (!ch->ops->pending(ch))
                return false;
        ep_collect_injected(ep, l);
        return ch->ops->pending(ch);
}

static bool link_writable(const struct ep_link *l)
{
        if (!l->blocked || l->gone)
                return l->blocked;
        return l->l.ch->ops->room(l->l.ch) > 0 && (l->free_send != 0 || l->done_head != 0);
}

static int true_of_link(struct unet_ep *ep, struct ep_link *l)
{
        int is = 0;

        note_gone(ep, l); /* first: what was sent before leaving is seen after this */
        if (unlikely(l->nending != 0))
                ep_tell_endings(ep, l);
        if (link_readable(ep, l))
                is |= UNET_READABLE;
        if (l->done_head != 0)
                is |= UNET_INJECTED;
        if (link_writable(l))
                is |= UNET_WRITABLE;
        if ((l->gone && !l->gone_told) || l->chan_gone)
                is |= UNET_CLOSED;
        return is;
}

static int true_now(struct unet_ep *ep, int what)
{
        int is = ep->rx_count > 0 ? UNET_READABLE : 0;

        for (uint32_t i = 0; i < ep->nlinks; i++)
                if (ep->link[i].serial != 0)
                        is |= true_of_link(ep, &ep->link[i]);
        return is & what;
}

/* A caller that has been told of closed channels is not told again. */
static int told(struct unet_ep *ep, int is)
{
        for (uint32_t i = 0; i < ep->nlinks && (is & UNET_CLOSED); i++) {
                ep->link[i].gone_told |= ep->link[i].gone;
                ep->link[i].chan_gone = false;
        }
        return is;
}

/* ---- sleeping ---- */

struct wait {
        struct unet_ep *ep;
        int what;
};

/* Asked by the station between arming the bell and sleeping. */
static bool look_again(void *arg)
{
        struct wait *w = arg;
        bool again = false;

        for (uint32_t i = 0; i < w->ep->nlinks; i++) {
                struct ep_link *l = &w->ep->link[i];
                if (l->serial != 0 && l->l.ops->arm != NULL)
                        again |= l->l.ops->arm(l->l.ch);
        }
        return again || true_now(w->ep, w->what) != 0;
}

static void hung_up(void *arg, uint32_t link)
{
        struct wait *w = arg;

        if (link < w->ep->nlinks && w->ep->link[link].serial != 0)
                ep_link_gone(w->ep, &w->ep->link[link]);
}

/* Peers ring for messages in any case; for places and returns only when asked. */
static void want_room(struct unet_ep *ep, int what)
{
        for (uint32_t i = 0; i < ep->nlinks; i++) {
                struct ep_link *l = &ep->link[i];
                bool on = ((what & UNET_WRITABLE) && l->blocked) ||
                          ((what & UNET_INJECTED) && l->under_way != 0);

                if (l->serial != 0 && l->l.ch->ops->want_room != NULL)
                        l->l.ch->ops->want_room(l->l.ch, on);
        }
}

static int spin(struct unet_ep *ep, int what, int64_t until)
{
        int is;

        do {
                for (int i = 0; i < SPIN_LOOKS; i++) {
                        is = true_now(ep, what);
                        if (is != 0)
                                return is;
                }
                cpu_relax();
        } while (clock_now() < until);
        return 0;
}

/* Spinning is for a peer that runs at the same time: one that last waited on our
 * processor cannot. */
static bool worth_spinning(struct unet_ep *ep)
{
        uint32_t here = station_note_cpu(&ep->st);

        if (ep->opts.spin_ns <= 0)
                return false;
        for (uint32_t i = 0; i < ep->nlinks; i++) {
                const struct ep_link *l = &ep->link[i];
                if (l->serial != 0 && !l->gone && l->l.ops->peer_cpu != NULL &&
                    l->l.ops->peer_cpu(l->l.ch) != here)
                        return true;
        }
        return false;
}

static int sleep_until(struct unet_ep *ep, int what, int64_t deadline)
{
        struct wait w = {ep, what};
        const struct station_waiter waiter = {look_again, hung_up, &w};
        int is, err;

        do {
                int64_t left = deadline < 0 ? -1 : MAX(deadline - clock_now(), 0);
                count(&ep->cnt, COUNT_NI_SLEEPS);
                err = station_sleep(&ep->st, &waiter, left);
                is = true_now(ep, what);
                if (is != 0 || err != 0)
                        return is != 0 ? is : err;
        } while (deadline < 0 || clock_now() < deadline);
        return -ETIMEDOUT;
}

int unet_ep_wait(struct unet_ep *ep, int what, int64_t timeout)
{
        int is = true_now(ep, what);
        int64_t now, deadline;

        if ((what & ~(UNET_READABLE | UNET_INJECTED | UNET_WRITABLE | UNET_CLOSED)) || what == 0)
                return -EINVAL;
        if (is != 0)
                return told(ep, is);
        now = clock_now();
        deadline = timeout < 0 || timeout > INT64_MAX - now ? -1 : now + timeout;
        if (worth_spinning(ep))
                is = spin(ep, what,
                          deadline < 0 ? now + ep->opts.spin_ns
                                       : MIN(deadline, now + ep->opts.spin_ns));
        if (is == 0) {
                want_room(ep, what);
                is = sleep_until(ep, what, deadline);
                want_room(ep, 0);
        }
        return is > 0 ? told(ep, is) : is;
}

int unet_ep_fd(const struct unet_ep *ep)
{
        return ep->st.epoll_fd;
}

int unet_ep_arm(struct unet_ep *ep, int what)
{
        struct wait w = {ep, what};
        const struct station_waiter waiter = {look_again, hung_up, &w};
        int is;

        station_wake(&ep->st, &waiter);
        want_room(ep, what);
        station_arm(&ep->st);
        is = look_again(&w) ? true_now(ep, what) : 0;
        if (is != 0)
                bell_disarm(ep->st.bell);
        return told(ep, is);
}

/* ---- upcalls ---- */

void unet_ep_set_upcall(struct unet_ep *ep, enum unet_upcall when, unet_upcall_fn *fn, void *arg)
{
        ep->upcall[when] = (struct upcall){fn, arg};
}

void unet_ep_upcalls(struct unet_ep *ep, bool enabled)
{
        atomic_store_explicit(&ep->upcalls_off, !enabled, memory_order_relaxed);
}

static int upcall(struct unet_ep *ep, enum unet_upcall when, uint32_t least)
{
        const struct upcall *u = &ep->upcall[when];

        if (u->fn == NULL || ep->rx_count < least ||
            atomic_load_explicit(&ep->upcalls_off, memory_order_relaxed))
                return 0;
        u->fn(ep, u->arg);
        return 1;
}

int unet_ep_dispatch(struct unet_ep *ep)
{
        int called;

        unet_ep_poll(ep);
        called = upcall(ep, UNET_UP_ALMOST_FULL, ep->opts.almost_full);
        return called + upcall(ep, UNET_UP_NONEMPTY, 1);
}
