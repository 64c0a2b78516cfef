/* Where an endpoint sleeps. The order of arming, looking and sleeping is in station_sleep(). */
#include "unet/station.h"

#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memfd.h"

#define EVENTS_MAX 16

/* Maps a new memfd over the reserved addresses; *reader gets its twin when it is to be
 * passed on. */
static int place(const char *name, size_t bytes, uint8_t *at, int *reader)
{
        int fd, err = 0;

        if (bytes == 0)
                return 0;
        fd = unet_memfd_make(name, bytes);
        if (fd < 0)
                return fd;
        if (unet_memfd_map(fd, bytes, true, at) == NULL)
                err = -ENOMEM;
        if (err == 0)
                err = unet_memfd_freeze(fd);
        if (err == 0 && reader != NULL) {
                *reader = unet_memfd_reader(fd);
                err = *reader < 0 ? *reader : 0;
        }
        close(fd);
        return err;
}

int station_open(struct station *s, size_t tx_bytes, size_t rx_bytes)
{
        size_t shared = BELL_BYTES + tx_bytes;
        uint8_t *map = mmap(NULL, shared + rx_bytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        int err;

        if (map == MAP_FAILED)
                return -ENOMEM;
        *s = (struct station){.bell = (struct bell *)map,
                              .shared_bytes = shared,
                              .private_bytes = rx_bytes,
                              .reader_fd = -1,
                              .epoll_fd = -1};
        err = place("unet-tx", shared, map, &s->reader_fd);
        if (err == 0)
                err = place("unet-rx", rx_bytes, map + shared, NULL);
        if (err == 0) {
                atomic_store_explicit(&s->bell->cpu, UINT32_MAX, memory_order_relaxed);
                s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
                err = s->epoll_fd < 0 ? -errno : 0;
        }
        if (err != 0)
                station_close(s);
        return err;
}

static void close_fd(int fd)
{
        if (fd >= 0)
                close(fd);
}

void station_close(struct station *s)
{
        close_fd(s->reader_fd);
        close_fd(s->epoll_fd);
        munmap(s->bell, s->shared_bytes + s->private_bytes);
}

int station_watch(struct station *s, int sock, uint32_t key)
{
        struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP,
                                 .data.u64 = (uint64_t)key << 32 | (uint32_t)sock};

        return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, sock, &ev) == 0 ? 0 : -errno;
}

void station_unwatch(struct station *s, int sock)
{
        epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, sock, NULL);
}

void station_ring(int sock)
{
        send(sock, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Rings left over, from a peer that rings without end, cost a spurious wake-up later. */
static void swallow_rings(int sock)
{
        char rings[256];

        recv(sock, rings, sizeof rings, MSG_DONTWAIT);
}

static int collect(struct station *s, const struct station_waiter *w,
                   const struct timespec *timeout)
{
        struct epoll_event ev[EVENTS_MAX];
        int n = epoll_pwait2(s->epoll_fd, ev, EVENTS_MAX, timeout, NULL);

        for (int i = 0; i < n; i++) {
                if (ev[i].events & EPOLLIN)
                        swallow_rings((int)(uint32_t)ev[i].data.u64);
                if (ev[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
                        w->gone(w->arg, (uint32_t)(ev[i].data.u64 >> 32));
        }
        return n < 0 ? -errno : 0;
}

uint32_t station_note_cpu(struct station *s)
{
        uint32_t cpu = (uint32_t)sched_getcpu();

        if (atomic_load_explicit(&s->bell->cpu, memory_order_relaxed) != cpu)
                atomic_store_explicit(&s->bell->cpu, cpu, memory_order_relaxed);
        return cpu;
}

void station_arm(struct station *s)
{
        bell_arm(s->bell, BELL_ASLEEP);
}

void station_wake(struct station *s, const struct station_waiter *w)
{
        static const struct timespec now = {0, 0};

        bell_disarm(s->bell);
        collect(s, w, &now);
}

/*
 * No wake-up is lost. Write A for the store that arms (1), L for our look at the queues (3), M for
 * a sender's store of its message (a), W for its load of the bell word (c); a full fence stands
 * between A and L, and between M and W.
 *
 *   - If L saw M, we do not sleep.
 *   - If L did not see M, then our fence came before the sender's in the one order of all such
 *     fences (were it the other way round, M, before the sender's fence, would be seen by L, after
 *     ours). So W, after the sender's fence, sees A or something newer of ours.
 *   - Newer is another round of arming, which the same argument covers, or the disarming at the end
 *     of this sleep, which is followed by the caller's look at the queues.
 *   - Seeing A, the sender rings unless it has rung for this very A already (the count in the word
 *     tells rounds apart): then its byte was written after A, and we have not read from the socket
 *     since A, so epoll finds it.
 *
 * Rings are read only after epoll has returned, that is when the caller is about to look again. A
 * full socket loses a ring, not a wake-up: it holds others. A load in L and the message's bytes
 * behind it are ordered by the acquire load of the slot's sequence word.
 */
int station_sleep(struct station *s, const struct station_waiter *w, nstime timeout)
{
        struct timespec ts = {timeout / NS_PER_S, timeout % NS_PER_S};
        int err = 0;

        station_arm(s);        /* A, fence */
        if (!w->ready(w->arg)) /* L */
                err = collect(s, w, timeout < 0 ? NULL : &ts);
        bell_disarm(s->bell);
        return err;
}
