/* unet-keeper with operations on a fake state: everything of the keeper but the stack. */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unetd/fake_state.h"
#include "unetd/keeper/keeper_ops.h"

static bool spend(_Atomic uint32_t *n)
{
        uint32_t v = atomic_load(n);

        if (v > 0)
                atomic_store(n, v - 1);
        return v > 0;
}

static int fake_attach(void **view, uint32_t stack_id, const struct unetd_stack_fds *fds)
{
        struct fake_state *s =
                mmap(NULL, FAKE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds->state, 0);

        if (s == MAP_FAILED)
                return -errno;
        if (s->magic != FAKE_MAGIC) {
                munmap(s, FAKE_BYTES);
                return -EINVAL;
        }
        atomic_fetch_add(&s->attached, 1);
        while (s->hold != 0 && kill(s->hold, 0) == 0)
                usleep(1000);
        *view = s;
        return 0;
}

static void fake_directory(int fd)
{
        close(fd);
}

static void fake_detach(void *view)
{
        munmap(view, FAKE_BYTES);
}

static bool fake_resting(void *view)
{
        return false;
}

static nstime fake_tick(void *view, nstime now, bool *active)
{
        struct fake_state *s = view;

        atomic_fetch_add(&s->ticks, 1);
        *active = spend(&s->active) || spend(&s->unfinished);
        return NSTIME_NEVER;
}

static int fake_chan_attach(void *view, uint32_t slot, const struct unetd_chan *chan)
{
        struct fake_state *s = view;

        if (spend(&s->again))
                return -EAGAIN;
        if (s->refuse_chan)
                return -(int)s->refuse_chan;
        if (slot < FAKE_CHANS)
                s->chan_peer[slot] = chan->peer_stack;
        return 0;
}

static int fake_chan_down(void *view, uint32_t slot)
{
        struct fake_state *s = view;

        if (spend(&s->again))
                return -EAGAIN;
        if (slot < FAKE_CHANS)
                s->chan_peer[slot] = 0;
        atomic_fetch_add(&s->chans_down, 1);
        return 0;
}

static int fake_proc_died(void *view, uint32_t slot)
{
        struct fake_state *s = view;

        if (spend(&s->again))
                return -EAGAIN;
        atomic_fetch_or(&s->died[slot / 32], 1u << slot % 32);
        return 0;
}

/* Everything survives. */
static int fake_proc_execed(void *view, uint32_t slot)
{
        struct fake_state *s = view;

        atomic_fetch_add(&s->execed, 1);
        return 1;
}

static int fake_flight(void *view, uint64_t cookie, bool over, struct keeper_listener *at)
{
        return 0;
}

static bool fake_flight_next(void *view, uint32_t *at, uint64_t *cookie)
{
        return false;
}

static bool fake_empty(void *view)
{
        struct fake_state *s = view;

        return s->unfinished == 0;
}

static bool fake_cookie_owner(void *view, uint64_t cookie)
{
        struct fake_state *s = view;

        for (size_t i = 0; i < ARRAY_LEN(s->cookie); i++)
                if (cookie != 0 && s->cookie[i] == cookie)
                        return true;
        return false;
}

static void fake_rang(void *view)
{
}

static bool fake_has_chan(void *view, uint32_t slot)
{
        return false;
}

static bool fake_has_memory(void *view)
{
        return false;
}

static uint32_t fake_chans(void *view)
{
        return 0;
}

static bool fake_listener_gone(void *view, struct keeper_listener *out)
{
        struct fake_state *s = view;

        if (!spend(&s->gone_listeners))
                return false;
        *out = (struct keeper_listener){.proto = IPPROTO_TCP,
                                        .port = (uint16_t)s->gone_port,
                                        .addr = ip_addr_v4(0x7f000001)};
        return true;
}

static int fake_chan_yield(void *view, const uint64_t *may)
{
        return -ENOENT;
}

static int fake_chan_part(void *view, uint32_t slot)
{
        return -EBUSY;
}

static void fake_chan_stay(void *view, uint32_t slot)
{
}

static bool fake_link_moved(void *view, struct unetd_far *out)
{
        return false;
}

static int fake_link_attach(void *view, uint32_t iface, int mem, int book)
{
        return 0;
}

static void fake_links_again(void *view)
{
}

static bool fake_port_next(void *view, uint32_t *at, struct unetd_msg *msg)
{
        return false;
}

static int fake_wake_fds(void *view, int fd[KEEPER_WAKE_FDS])
{
        return 0;
}

const struct keeper_stack_ops keeper_stack_ops = {
        .attach = fake_attach,
        .directory = fake_directory,
        .detach = fake_detach,
        .tick = fake_tick,
        .resting = fake_resting,
        .chan_attach = fake_chan_attach,
        .chan_down = fake_chan_down,
        .chan_yield = fake_chan_yield,
        .chan_part = fake_chan_part,
        .chan_stay = fake_chan_stay,
        .proc_died = fake_proc_died,
        .proc_execed = fake_proc_execed,
        .flight = fake_flight,
        .flight_next = fake_flight_next,
        .empty = fake_empty,
        .cookie_owner = fake_cookie_owner,
        .rang = fake_rang,
        .has_chan = fake_has_chan,
        .chans = fake_chans,
        .has_memory = fake_has_memory,
        .listener_gone = fake_listener_gone,
        .link_moved = fake_link_moved,
        .link_attach = fake_link_attach,
        .links_again = fake_links_again,
        .port_next = fake_port_next,
        .wake_fds = fake_wake_fds,
};
