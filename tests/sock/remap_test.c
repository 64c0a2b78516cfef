/*
 * A channel's number is used again, for regions of other sizes: who looked at the old ones without
 * the lock finds something that can be read, at any moment, and little memory stays with what is
 * over.
 */
#include "tests/sock/sides.h"

#include <sys/mman.h>
#include <unistd.h>

#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"

#define K 20u /* nobody has this one */

static struct unetd_chan channel(uint32_t frames)
{
        struct frame_geom g = {{[FRAME_LARGE] = frames}};
        struct unetd_chan c = {.tx_geom = g,
                               .rx_geom = g,
                               .peer_stack = 77,
                               .mem = -1,
                               .xsk = -1,
                               .packet = -1,
                               .ring = -1,
                               .sender = -1,
                               .book = -1,
                               .peer_leader = -1,
                               .peer_keeper = -1};
        const struct {
                int *fd;
                size_t bytes;
        } part[] = {{&c.tx, SHM_REGION_BYTES(g)},
                    {&c.rx, SHM_REGION_BYTES(g)},
                    {&c.peer_bell, BELL_BYTES}};

        for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) {
                *part[i].fd = memfd_create("part", MFD_CLOEXEC);
                CHECK(*part[i].fd >= 0 && ftruncate(*part[i].fd, (off_t)part[i].bytes) == 0);
        }
        return c;
}

/* As a thread that has just loaded the word does, whatever has happened to the channel since. */
static void can_be_read(const volatile void *p, size_t bytes)
{
        const volatile uint8_t *b = p;

        for (size_t at = 0; at < bytes; at += 4096)
                (void)b[at];
}

static void goes_on(struct side *s)
{
        static const uint32_t frames[] = {2, 4, 1, 4, 3, 8, 2, 8};
        const volatile void *first = NULL, *bell = NULL;
        size_t first_bytes = 0;
        struct ustack *u;
        int err;

        CHECK(tcp_listen_any() >= 0);
        u = ustack_mine(&err);
        CHECK(u != NULL && u->chan[K].peer == NULL);
        ustack_lock(u);
        for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++) {
                const volatile void *peer = u->chan[K].peer, *mine = u->chan[K].mine;
                size_t bytes = u->chan[K].peer_bytes;
                struct unetd_chan fds = channel(frames[i]);

                CHECK(ustack_map_chan_fds(u, K, &fds));
                CHECK(u->chan[K].peer_bytes >= SHM_REGION_BYTES(fds.rx_geom));
                can_be_read(u->chan[K].peer, u->chan[K].peer_bytes);
                can_be_read(peer, peer != NULL ? bytes : 0);
                can_be_read(mine, mine != NULL ? bytes : 0);
                if (i == 0) {
                        first = u->chan[K].peer;
                        first_bytes = u->chan[K].peer_bytes;
                        bell = u->chan[K].bell;
                }
                CHECK(u->chan[K].bell == bell);
                can_be_read(first, first_bytes);
                if (peer != NULL && bytes >= SHM_REGION_BYTES(fds.rx_geom))
                        /* In their place. */
                        CHECK(u->chan[K].peer == peer && u->chan[K].mine == mine);
        }
        ustack_chan_over(&u->s, K);
        can_be_read(u->chan[K].peer, u->chan[K].peer_bytes);
        _exit(0);
}

static void a_number_is_used_again(void **state)
{
        assert_int_equal(play_alone(goes_on, 0), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_number_is_used_again),
        };

        return run_sides(tests);
}
