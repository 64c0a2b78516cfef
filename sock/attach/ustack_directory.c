/*
 * unetd's directory, and questions to it. A reader that comes in mid-write has no consistent view,
 * which is no answer: unetd may merely have lost its CPU. So a question waits, for a second at
 * most. Who holds a stack's lock asks only what stands at the end, which waits for a moment.
 */
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/attach/ustack_directory.h"
#include "sock/attach/ustack_link.h"

#include <errno.h>
#include <sys/mman.h>
#include <time.h>

#include "base/sandbox.h"
#include "base/sys.h"

#define YIELDS    8u /* at once; then one look a millisecond */
#define LOOKS_MAX 1000u

/* The client's, which stays where it is, or the keeper's; read without the lock. */
static const struct directory *_Atomic current;

void ustack_directory_is(const struct directory *dir)
{
        atomic_store_explicit(&current, dir, memory_order_release);
}

void ustack_set_directory(int fd)
{
        const struct directory *dir = ustack_map(fd, sizeof *dir, PROT_READ);

        sys1(SYS_close, fd);
        ustack_unmap(atomic_exchange(&current, dir), sizeof *dir);
}

const struct directory *ustack_directory(void)
{
        return atomic_load_explicit(&current, memory_order_acquire);
}

static const struct directory *directory_by(unsigned flags)
{
        const struct directory *dir = ustack_directory();

        if (dir == NULL) {
                ustack_client();
                ustack_client_open(flags);
                ustack_client_done();
                dir = ustack_directory();
        }
        return dir;
}

const struct directory *ustack_directory_anyway(void)
{
        return directory_by(0);
}

const struct directory *ustack_directory_if_any(void)
{
        return directory_by(UNETD_NO_START);
}

/* For the writer to get on. False: that was long enough. */
static bool wait_for_writer(uint32_t look)
{
        const struct timespec ms = {.tv_nsec = NS_PER_MS};

        if (look < YIELDS || sandbox_forbidden != 0)
                sandbox_yield();
        else
                sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &ms, NULL);
        return look < LOOKS_MAX;
}

bool ustack_read(const struct directory *dir, struct dir_reading *r)
{
        while (!dir_read(dir, r)) {
                if (r->whole || !wait_for_writer(r->looks++))
                        return false;
                r->tries = 0;
        }
        return true;
}

bool ustack_ifaces(const struct directory *dir, struct dir_iface all[DIR_IFACES])
{
        struct dir_reading r = {0};

        if (dir == NULL || READ_ONCE(dir->nifaces) == 0)
                return false;
        while (ustack_read(dir, &r))
                memcpy(all, dir->iface, sizeof dir->iface);
        return r.whole;
}

bool ustack_iface(const struct directory *dir, uint32_t peer, struct dir_iface *f)
{
        struct dir_reading r = {0};
        bool found = false;

        while (dir != NULL && ustack_read(dir, &r)) {
                found = false;
                for (uint32_t i = 0; i < DIR_IFACES && !found; i++) {
                        found = dir->iface[i].peer == peer;
                        if (found)
                                *f = dir->iface[i];
                }
        }
        return r.whole && found;
}

int ustack_is_local(const struct directory *dir, ip_addr addr)
{
        int local = directory_is_local(dir, addr);

        for (uint32_t look = 0; unlikely(local == -EAGAIN) && wait_for_writer(look); look++)
                local = directory_is_local(dir, addr);
        return local;
}

bool ustack_takes(uint32_t stack, ip_addr addr, uint16_t port, uint64_t since)
{
        const struct directory *dir = ustack_directory();
        struct dir_reading r = {0};
        bool found = false;

        atomic_thread_fence(memory_order_seq_cst); /* what was sent, before this is read */
        if (dir == NULL || directory_generation(dir) == since)
                return true;
        while (ustack_read(dir, &r))
                found = dir_has(dir, IP_PROTO_TCP, addr, port, stack) ||
                        dir_has(dir, IP_PROTO_TCP, (ip_addr){{0, 0}}, port, stack);
        return found || !r.whole;
}

int ustack_verbs_to(const struct directory *dir, ip_addr addr, struct dir_iface *f)
{
        int found = directory_verbs(dir, addr, f);

        for (uint32_t look = 0; unlikely(found == -EAGAIN) && wait_for_writer(look); look++)
                found = directory_verbs(dir, addr, f);
        return found;
}

/* ---- under a stack's lock: no longer than a moment ---- */

bool ustack_vouch(struct stack *s, uint32_t k, uint8_t proto, ip_addr addr, uint16_t port)
{
        const struct directory *dir = ustack_directory();
        int vouches = -EAGAIN;

        if (s->st->chan[k].remote != 0)
                return ustack_remote_vouches(s, k, proto, port);
        for (uint32_t tries = 0; dir != NULL && tries < YIELDS && vouches == -EAGAIN; tries++) {
                vouches = directory_vouches(dir, proto, addr, port, s->st->chan[k].peer);
                if (unlikely(vouches == -EAGAIN))
                        sandbox_yield(); /* no longer than so: the stack's lock is held */
        }
        return vouches == 1;
}

#define PLACES 16u /* of several that have a port, as many are looked at */

bool ustack_elsewhere(struct stack *s, uint32_t k, ip_addr addr, uint16_t port)
{
        struct dir_hit hit;

        for (uint32_t i = 0; i < PLACES; i++)
                if (!ustack_lookup(IP_PROTO_UDP, addr, port, i, &hit))
                        return false;
                else if (hit.stack != s->st->chan[k].peer)
                        return true;
        return false;
}

bool ustack_lookup(uint8_t proto, ip_addr addr, uint16_t port, uint32_t hint, struct dir_hit *hit)
{
        const struct directory *dir = ustack_directory();
        int found = -EAGAIN;

        for (uint32_t tries = 0; dir != NULL && tries < YIELDS && found == -EAGAIN; tries++) {
                found = directory_lookup(dir, proto, addr, port, hint, hit);
                if (found == -EAGAIN)
                        sandbox_yield();
        }
        return found == 1;
}
