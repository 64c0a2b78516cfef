/* poll and ppoll over any mixture of descriptors. */
#include "sock/shim/cancel.h"
#include "sock/shim/wait.h"
#include "sock/shim/want.h"

#include <limits.h>
#include <sys/mman.h>

static bool poll_concerns_us(const struct pollfd *v, nfds_t n)
{
        if (usock_tls.inside || !shim_started() || n > INT_MAX / sizeof(*v) ||
            !user_read_range(v, n * sizeof(*v)))
                return false;
        for (nfds_t i = 0; i < n; i++)
                if (want_ours(v[i].fd))
                        return true;
        return false;
}

static int poll_wants(struct pollfd *v, struct want *w, nfds_t n, struct until *u,
                      const sigset_t *mask)
{
        int r;

        for (nfds_t i = 0; i < n; i++)
                w[i] = (struct want){.fd = v[i].fd, .events = v[i].events & (short)~USOCK_POLL_OWN};
        r = want_any(w, (int)n, u, mask);
        for (nfds_t i = 0; r >= 0 && i < n; i++)
                if (unlikely(!user_put16(&v[i].revents, (uint16_t)w[i].revents)))
                        r = -EFAULT;
        return r;
}

static int poll_once(struct pollfd *v, nfds_t n, struct until *u, const sigset_t *mask)
{
        struct want stack[WANTS_ON_STACK], *w = stack;
        size_t bytes = n * sizeof(*w);
        int r;

        if (n <= ARRAY_LEN(stack))
                return poll_wants(v, stack, n, u, mask);
        w = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (w == MAP_FAILED)
                return -ENOMEM;
        r = poll_wants(v, w, n, u, mask);
        munmap(w, bytes);
        return r;
}

/* poll is never restarted after a handler; woken for nothing, it goes on until its deadline. */
static int do_poll(struct pollfd *v, nfds_t n, struct until *u, const sigset_t *mask)
{
        ssize_t r;

        cancellation_point();
        do {
                r = poll_once(v, n, u, mask);
                if (r == -ERR_KERNEL)
                        return -ERR_KERNEL;
        } while (result_again(&r));
        return (int)r;
}

int h_poll(struct pollfd *v, nfds_t n, int timeout)
{
        struct until u = until_ms(timeout);
        int r = -ERR_KERNEL;

        if (poll_concerns_us(v, n))
                r = do_poll(v, n, &u, NULL);
        return r == -ERR_KERNEL ? REAL(poll)(v, n, timeout) : r;
}
HOOK_ALSO(poll, __poll);

int h___poll_chk(struct pollfd *v, nfds_t n, int timeout, size_t room)
{
        return room / sizeof(*v) < n ? REAL(__poll_chk)(v, n, timeout, room)
                                     : h_poll(v, n, timeout);
}

int h_ppoll(struct pollfd *v, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
        struct until u;
        int r = -ERR_KERNEL;

        if (poll_concerns_us(v, n) && !bad_time(timeout) && !bad_mask(mask)) {
                u = until_ts(timeout);
                r = do_poll(v, n, &u, mask);
        }
        return r == -ERR_KERNEL ? REAL(ppoll)(v, n, timeout, mask) : r;
}

int h___ppoll_chk(struct pollfd *v, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
                  size_t room)
{
        return room / sizeof(*v) < n ? REAL(__ppoll_chk)(v, n, timeout, mask, room)
                                     : h_ppoll(v, n, timeout, mask);
}
