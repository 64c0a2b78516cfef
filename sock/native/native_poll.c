/* The native API: poll, over sockets of ours and kernel descriptors. */
#include "sock/native/native.h"
#include "sock/usock_ready.h"

#include <limits.h>
#include <stdlib.h>

#define FEW 64u

struct watch {
        struct unet_pollfd *v;
        struct native_slot **slot;
        struct usock_item *item;
        unsigned n;
};

/* Holds the sockets and makes the items; returns how many entries are invalid: those end
 * the wait. */
static unsigned watch_begin(struct watch *w)
{
        unsigned invalid = 0;

        for (unsigned i = 0; i < w->n; i++) {
                struct unet_pollfd *p = &w->v[i];
                w->slot[i] = p->sock >= 0 ? native_get(p->sock) : NULL;
                w->item[i] = (struct usock_item){.s = w->slot[i] ? w->slot[i]->us : NULL,
                                                 .fd = p->sock >= 0 ? -1 : p->fd,
                                                 .events = p->events};
                p->revents = p->sock >= 0 && w->slot[i] == NULL ? POLLNVAL : 0;
                invalid += p->revents != 0;
        }
        return invalid;
}

static int watch_end(struct watch *w, int r)
{
        int ready = 0;

        for (unsigned i = 0; i < w->n; i++) {
                w->v[i].revents |= r >= 0 ? w->item[i].revents : 0;
                ready += w->v[i].revents != 0;
                if (w->slot[i] != NULL)
                        native_put(w->slot[i]);
        }
        return r >= 0 ? ready : r;
}

static int wait_on(struct watch *w, nstime timeout, const sigset_t *mask)
{
        unsigned invalid = watch_begin(w);

        return watch_end(w, usock_wait(w->item, (int)w->n, invalid > 0 ? 0 : timeout, mask));
}

static int do_poll(struct unet_pollfd *v, unsigned n, nstime timeout, const sigset_t *mask)
{
        struct native_slot *slots[FEW];
        struct usock_item items[FEW];
        struct watch w = {v, slots, items, n};
        int r;

        if (v == NULL && n > 0)
                return -EFAULT;
        if (n > INT_MAX)
                return -EINVAL;
        if (n <= FEW)
                return wait_on(&w, timeout, mask);
        w.slot = malloc(n * sizeof *w.slot);
        w.item = malloc(n * sizeof *w.item);
        r = w.slot != NULL && w.item != NULL ? wait_on(&w, timeout, mask) : -ENOMEM;
        free(w.slot);
        free(w.item);
        return r;
}

int unet_poll(struct unet_pollfd *v, unsigned n, int timeout_ms)
{
        return (int)native_result(
                do_poll(v, n, timeout_ms < 0 ? -1 : timeout_ms * NS_PER_MS, NULL));
}

int unet_ppoll(struct unet_pollfd *v, unsigned n, const struct timespec *timeout,
               const sigset_t *mask)
{
        nstime t = -1;

        if (timeout != NULL) {
                if (!native_time_valid(timeout))
                        return (int)native_result(-EINVAL);
                t = native_time(timeout);
        }
        return (int)native_result(do_poll(v, n, t, mask));
}
