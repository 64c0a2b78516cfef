/* See unread.h. */
#include "unetd/daemon/unread.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "unetd/daemon/discard.h"

#define UNREAD_BYTES 2048 /* less than the least that the kernel takes */
#define LOOK_EVERY   (100 * NS_PER_MS)

struct unread {
        LIST_ENTRY(unread) link;
        struct user *user;
        uint32_t *count;
        int fd;
};

static LIST_HEAD(, unread) all = LIST_HEAD_INITIALIZER(all);

void unread_limit(int fd)
{
        const int bytes = UNREAD_BYTES;

        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

bool unread_is(int fd)
{
        int bytes;

        return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

void unread_hang_up(struct user *u, int fd, uint32_t *count)
{
        struct unread *r = fd >= 0 && unetd.cfg.shared && unread_is(fd) ? malloc(sizeof *r) : NULL;

        if (!r) {
                discard(u, &fd, 1, false);
                return;
        }
        shutdown(fd, SHUT_RDWR);
        *r = (struct unread){.user = u, .count = count, .fd = fd};
        LIST_INSERT_HEAD(&all, r, link);
        ++*count;
}

static void look(void)
{
        struct unread *r = LIST_FIRST(&all), *next;

        for (; r; r = next) {
                next = LIST_NEXT(r, link);
                if (unread_is(r->fd))
                        continue;
                discard(r->user, &r->fd, 1, false);
                --*r->count;
                LIST_REMOVE(r, link);
                free(r);
        }
}

nstime unread_tick(void)
{
        static nstime look_at;

        if (LIST_EMPTY(&all))
                return NSTIME_NEVER;
        if (unetd.loop.now >= look_at) {
                look();
                look_at = unetd.loop.now + LOOK_EVERY;
        }
        return LIST_EMPTY(&all) ? NSTIME_NEVER : look_at;
}
