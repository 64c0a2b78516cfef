/*
 * Sockets that left in messages (SCM_RIGHTS): a reference stands for them until nobody has them any
 * more.
 *
 * The descriptor is put into an epoll instance and closed. The kernel takes it out of there when
 * its file is no more: when no process has it and it is in no message. /proc shows what is in there
 * still, by the cookies. unetd has the instance, too, and gives it to the next keeper.
 */
#include "unetd/keeper/keeper.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define FLIGHTS_MAX     4096u
#define FLIGHTS_GAP     (5 * NS_PER_MS)
#define FLIGHTS_GAP_MAX NS_PER_S

static void offer(int ep)
{
        struct unetd_msg msg = {.type = UNETD_K_FLIGHTS};

        conn_send(&keeper.daemon, &msg, &ep, 1);
}

void kflights_offer(void)
{
        for (uint32_t i = 0; i < keeper.nflights_eps; i++)
                offer(keeper.flights_ep[i]);
}

static bool add_ep(int ep)
{
        if (ep < 0 || keeper.nflights_eps == KEEPER_FLIGHTS_EPS)
                return false;
        keeper.flights_ep[keeper.nflights_eps++] = ep;
        return true;
}

void kflights_take(struct wire_in *in)
{
        if (in->n == 1 && add_ep(in->fds[0]))
                wire_in_take(in, 0);
}

static bool flight_watch(uint64_t cookie, int fd)
{
        struct epoll_event ev = {.events = 0, .data.u64 = cookie};

        if (keeper.nflights_eps == 0) {
                if (!add_ep(epoll_create1(EPOLL_CLOEXEC)))
                        return false;
                offer(keeper.flights_ep[0]);
        }
        return epoll_ctl(keeper.flights_ep[0], EPOLL_CTL_ADD, fd, &ev) == 0 || errno == EEXIST;
}

static int flight_begin(const struct kstack *st, uint64_t cookie, bool own)
{
        struct kflight *f = keeper.nflights < FLIGHTS_MAX ? calloc(1, sizeof *f) : NULL;

        if (!f)
                return -EDQUOT;
        *f = (struct kflight){.stack = st->id, .cookie = cookie, .own = own};
        LIST_INSERT_HEAD(&keeper.flights, f, link);
        keeper.nflights++;
        keeper.flights_gap = FLIGHTS_GAP;
        keeper.flights_at = keeper.loop.now + FLIGHTS_GAP;
        return 0;
}

int kflight_take(struct wire_in *in)
{
        struct kstack *st = kstack_find(in->msg.stack.stack);

        if (!st || in->n != 1)
                return st ? -EBADMSG : -ENOENT;
        return flight_watch(in->msg.stack.cookie, in->fds[0])
                       ? flight_begin(st, in->msg.stack.cookie, true)
                       : -EDQUOT;
}

void kflights_begin(const struct kstack *st)
{
        uint64_t cookie;
        uint32_t at = 0;

        while (keeper.ops->flight_next(st->view, &at, &cookie))
                if (flight_begin(st, cookie, false) < 0)
                        keeper.ops->flight(st->view, cookie, true, NULL);
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

/* What /proc says of an epoll instance, to be freed; NULL: it cannot be had. */
static char *ep_text(int ep)
{
        char path[64], *text = NULL;
        size_t room = 0;
        FILE *f;

        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", ep);
        f = fopen(path, "re");
        if (f && getdelim(&text, &room, 0, f) < 0) {
                free(text);
                text = NULL;
        }
        if (f)
                fclose(f);
        return text;
}

/* Reads all of them. Returns false if one cannot be read. The keeper keeps none that is empty,
 * except for its own. */
static bool eps_read(char *text[KEEPER_FLIGHTS_EPS])
{
        uint32_t n = 0;
        bool all = true;

        for (uint32_t i = 0; i < keeper.nflights_eps; i++) {
                text[n] = ep_text(keeper.flights_ep[i]);
                all &= text[n] != NULL;
                if (i > 0 && text[n] && !strstr(text[n], " data:")) {
                        close(keeper.flights_ep[i]);
                        free(text[n]);
                        continue;
                }
                keeper.flights_ep[n++] = keeper.flights_ep[i];
        }
        keeper.nflights_eps = n;
        return all;
}

/* Returns true if one of the epoll instances has the socket. */
static bool still_there(char *const text[KEEPER_FLIGHTS_EPS], uint64_t cookie)
{
        for (uint32_t i = 0; i < keeper.nflights_eps; i++)
                for (const char *t = text[i]; (t = strstr(t, " data:")) != NULL;)
                        if (strtoull(t += 6, NULL, 16) == cookie)
                                return true;
        return false;
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

/* Those that another keeper began to watch are in an instance of his, which may come still. */
static bool is_over(char *const text[KEEPER_FLIGHTS_EPS], const struct kflight *f)
{
        return !still_there(text, f->cookie) && (f->own || !keeper_may_be_handed_more());
}

static void flights_look(char *const text[KEEPER_FLIGHTS_EPS])
{
        struct kflight *f = LIST_FIRST(&keeper.flights), *next;

        keeper.flights_missed = false;
        for (; f; f = next) {
                struct kstack *st = kstack_find(f->stack);
                struct keeper_listener at;
                int r = st ? keeper.ops->flight(st->view, f->cookie, is_over(text, f), &at) : 0;
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
        char *text[KEEPER_FLIGHTS_EPS] = {NULL};

        if (LIST_EMPTY(&keeper.flights))
                return NSTIME_NEVER;
        if (keeper.loop.now < keeper.flights_at)
                return keeper.flights_at;
        if (eps_read(text))
                flights_look(text);
        for (uint32_t i = 0; i < keeper.nflights_eps; i++)
                free(text[i]);
        keeper.flights_at = keeper.loop.now + keeper.flights_gap;
        keeper.flights_gap = nstime_min(keeper.flights_gap * 2, FLIGHTS_GAP_MAX);
        return LIST_EMPTY(&keeper.flights) ? NSTIME_NEVER : keeper.flights_at;
}
