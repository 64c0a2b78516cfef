/*
 * Sockets that left in messages (SCM_RIGHTS): a reference stands for them until nobody has them any
 * more.
 *
 * The descriptor is put into an epoll instance and closed. The kernel takes it out of there when
 * its file is no more: when no process has it and it is in no message. /proc shows what is in there
 * still, by the cookies.
 */
#include "unetd/keeper/keeper.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define FLIGHTS_MAX     4096u
#define FLIGHTS_GAP     (5 * NS_PER_MS)
#define FLIGHTS_GAP_MAX NS_PER_S

static bool flight_watch(uint64_t cookie, int fd)
{
        struct epoll_event ev = {.events = 0, .data.u64 = cookie};

        if (keeper.flights_ep == 0)
                keeper.flights_ep = epoll_create1(EPOLL_CLOEXEC);
        return keeper.flights_ep > 0 &&
               (epoll_ctl(keeper.flights_ep, EPOLL_CTL_ADD, fd, &ev) == 0 || errno == EEXIST);
}

void kflight_take(struct wire_in *in)
{
        struct kstack *st = kstack_find(in->msg.stack.stack);
        struct kflight *f = NULL;

        if (!st || in->n != 1)
                return;
        if (keeper.nflights < FLIGHTS_MAX && flight_watch(in->msg.stack.cookie, in->fds[0]))
                f = calloc(1, sizeof *f);
        if (!f) {
                keeper.ops->flight(st->view, in->msg.stack.cookie, true, NULL);
                return;
        }
        *f = (struct kflight){.stack = st->id, .cookie = in->msg.stack.cookie};
        LIST_INSERT_HEAD(&keeper.flights, f, link);
        keeper.nflights++;
        keeper.flights_gap = FLIGHTS_GAP;
        keeper.flights_at = keeper.loop.now + FLIGHTS_GAP;
}

bool kflights_of(const struct kstack *st)
{
        const struct kflight *f;

        LIST_FOREACH (f, &keeper.flights, link)
                if (f->stack == st->id)
                        return true;
        return false;
}

void kflights_due(void)
{
        keeper.flights_at = keeper.loop.now;
}

/* Returns true if the epoll instance has the socket, by what /proc says of the instance. */
static bool still_there(const char *text, uint64_t cookie)
{
        while ((text = strstr(text, " data:")) != NULL) {
                text += 6;
                if (strtoull(text, NULL, 16) == cookie)
                        return true;
        }
        return false;
}

/* The text of /proc, to be freed; NULL: it cannot be had. */
static char *flights_text(void)
{
        char path[64], *text = NULL;
        size_t room = 0;
        FILE *f;

        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", keeper.flights_ep);
        f = fopen(path, "re");
        if (f && getdelim(&text, &room, 0, f) < 0) {
                free(text);
                text = NULL;
        }
        if (f)
                fclose(f);
        return text;
}

/* No process has it: if unetd has not either, only the message does, or somebody without
 * the library. Told at each look: who adopts it lets unetd have it again, and may have come and
 * ended between two looks. */
static void aloft(struct kflight *f, const struct keeper_listener *at)
{
        struct unetd_msg msg = {.type = UNETD_K_ALOFT,
                                .port = {.stack = f->stack,
                                         .proto = at->proto,
                                         .port = at->port,
                                         .addr = at->addr,
                                         .sock = at->sock}};

        conn_send(&keeper.daemon, &msg, NULL, 0);
        if (!f->aloft)
                keeper.flights_gap = FLIGHTS_GAP;
        f->aloft = true;
}

static void flights_look(const char *text)
{
        struct kflight *f = LIST_FIRST(&keeper.flights), *next;

        keeper.flights_missed = false;
        for (; f; f = next) {
                struct kstack *st = kstack_find(f->stack);
                struct keeper_listener at;
                int r = st ? keeper.ops->flight(st->view, f->cookie, !still_there(text, f->cookie),
                                                &at)
                           : 0;
                next = LIST_NEXT(f, link);
                keeper.flights_missed |= r == -EAGAIN;
                if (r == KEEPER_ALOFT)
                        aloft(f, &at);
                if (r != 0)
                        continue;
                if (st)
                        kstack_due(st);
                LIST_REMOVE(f, link);
                assert(keeper.nflights != 0);
                keeper.nflights--;
                free(f);
        }
}

nstime kflights_work(void)
{
        char *text;

        if (LIST_EMPTY(&keeper.flights))
                return NSTIME_NEVER;
        if (keeper.loop.now < keeper.flights_at)
                return keeper.flights_at;
        assert(keeper.flights_ep > 0);
        text = flights_text();
        if (text)
                flights_look(text);
        free(text);
        keeper.flights_at = keeper.loop.now + keeper.flights_gap;
        keeper.flights_gap = nstime_min(keeper.flights_gap * 2, FLIGHTS_GAP_MAX);
        return LIST_EMPTY(&keeper.flights) ? NSTIME_NEVER : keeper.flights_at;
}
