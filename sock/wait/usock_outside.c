/*
 * A sleeper that is somebody else's event loop: it has a place in each stack, whose socket is in
 * that loop's set.
 *
 *   usock_outside_arm()   it sleeps from here on, and hears of any news; what came since `seen`
 *                         rings at once
 *   usock_outside_ring()  it is to come back, whatever happens
 *
 * It never leads. While it sleeps there, and no thread of the stack leads, the keeper does
 * (ustack_leave()), and wakes it as it wakes any other. No wake-up is lost, for the reason given in
 * usock_wait.c.
 */

#include <stdlib.h>
#include <sys/un.h>

#include "base/sys.h"
#include "sock/wait/usock_wake.h"
#include "sock/usock_ready.h"

struct usock_outside {
        struct usock_place *place;
        uint32_t slot[USTACKS_MAX]; /* + 1, by stack; 0: none */
        bool rung;                  /* its socket has something, by usock_outside_ring() */
};

struct usock_outside *usock_outside_make(void)
{
        struct usock_outside *o = calloc(1, sizeof *o);

        if (o == NULL)
                return NULL;
        o->place = usock_place_get();
        if (o->place == NULL) {
                free(o);
                return NULL;
        }
        return o;
}

int usock_outside_fd(const struct usock_outside *o)
{
        return o->place->fd;
}

static void drain(const struct usock_outside *o)
{
        while (usock_place_hear(o->place))
                ;
}

static void ring_self(struct ustack *u, struct usock_outside *o, uint32_t slot)
{
        atomic_store_explicit(&stack_waiter(u->s.st, slot - 1)->armed, 0, memory_order_relaxed);
        usock_wake(u, slot - 1);
        o->rung = true;
}

/* It has a place in no stack, as in a process that has left its stack. */
static void ring_by_name(struct usock_outside *o)
{
        struct sockaddr_un un = {.sun_family = AF_UNIX};

        memcpy(un.sun_path, o->place->name, o->place->name_len);
        o->rung = sys6(SYS_sendto, o->place->fd, (long)"", 1, MSG_DONTWAIT, (long)&un,
                       (long)(offsetof(struct sockaddr_un, sun_path) + o->place->name_len)) == 1;
}

/* False: there is no place left. */
static bool arm_in(struct usock_outside *o, struct ustack *u, uint32_t *slot, uint32_t seen)
{
        bool placed;

        ustack_lock(u);
        if (*slot == 0)
                *slot = usock_enlist(u, NULL, 0, true, o->place);
        placed = *slot != 0;
        if (placed) {
                atomic_store_explicit(&stack_waiter(u->s.st, *slot - 1)->armed, 1,
                                      memory_order_relaxed);
                if (atomic_load_explicit(&u->s.st->news_count, memory_order_relaxed) != seen ||
                    stack_pending(&u->s, 0))
                        ring_self(u, o, *slot);
        }
        ustack_leave(u);
        return placed;
}

bool usock_outside_arm(struct usock_outside *o, const struct usock_news *seen)
{
        struct ustack *all[USTACKS_MAX];
        uint32_t n = ustack_all(all);
        bool placed = true;

        drain(o);
        o->rung = false;
        for (uint32_t i = 0; i < n; i++)
                placed &= arm_in(o, all[i], &o->slot[i], i < seen->nstacks ? seen->count[i] : 0);
        return placed;
}

void usock_outside_ring(struct usock_outside *o)
{
        struct ustack *all[USTACKS_MAX];
        uint32_t n = ustack_all(all);

        for (uint32_t i = 0; i < n && !o->rung; i++) {
                if (o->slot[i] == 0)
                        continue;
                ustack_lock(all[i]);
                ring_self(all[i], o, o->slot[i]);
                ustack_leave(all[i]);
        }
        if (!o->rung)
                ring_by_name(o);
}

void usock_outside_end(struct usock_outside *o)
{
        struct ustack *all[USTACKS_MAX];
        uint32_t n = ustack_all(all);

        for (uint32_t i = 0; i < n; i++) {
                if (o->slot[i] == 0)
                        continue;
                ustack_lock(all[i]);
                usock_delist(all[i], NULL, 0, o->slot[i]);
                ustack_leave(all[i]);
        }
        drain(o);
        usock_place_put(o->place, false);
        free(o);
}

void usock_outside_forked(struct usock_outside *o)
{
        free(o);
}
