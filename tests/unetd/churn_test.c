/*
 * A thousand programs are born and die, in order and by kill -9. After round 1,000 unetd and the
 * keeper have the same descriptors open, and the same memory, as after round 100.
 */
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unetd/world.h"

#define WARM     500 /* each block of client ports was somebody's once: their table is in use */
#define ROUNDS   1400
#define SLACK_KB 32 /* what the allocator may keep; 36 bytes a round would be more */

#if defined(__SANITIZE_ADDRESS__)
#define MEMORY_IS_KNOWN 0 /* freed memory stays in quarantine */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MEMORY_IS_KNOWN 0
#endif
#endif
#ifndef MEMORY_IS_KNOWN
#define MEMORY_IS_KNOWN 1
#endif

struct usage {
        int fds;
        long rss;
};

static struct unetd_client c;
static struct fake_stack resident;

/* What a program does with all of it; returns 0, or the number of the step that failed. */
static int live(uint32_t peer)
{
        struct unetd_client mine = {.pid = 0};
        struct unetd_stack_fds f, got;
        struct unetd_chan ch;
        uint32_t id = 0, chan, peer_chan;
        uint16_t port = 0, first = 0, count = 0;
        struct fake_state *s;

        if (unetd_open(&mine, UNETD_NO_START) != 0)
                return 1;
        if (unetd_stack_fds_make(&f, FAKE_BYTES) != 0)
                return 2;
        s = calloc(1, sizeof *s);
        s->magic = FAKE_MAGIC;
        s->unfinished = 3;
        if (pwrite(f.state, s, sizeof *s, 0) != sizeof *s ||
            unetd_stack_new(&mine, &f, 0, &id) != 0)
                return 3;
        if (unetd_chan_open(&mine, id, peer, &chan, &peer_chan) != 0 ||
            unetd_chan_get(&mine, id, chan, &ch) != 0)
                return 4;
        if (unetd_chan_open(&mine, id, id, &chan, &peer_chan) != 0 ||
            unetd_stack_get(&mine, id, &got) != 0)
                return 5;
        if (unetd_listen_add(&mine, id, IPPROTO_TCP, ip_addr_v4(0), 4242, 0, -1) != 0)
                return 6;
        if (unetd_port_hold(&mine, id, IPPROTO_UDP, ip_addr_v4(INADDR_LOOPBACK), &port) != 0 ||
            unetd_port_lease(&mine, id, &first, &count) != 0)
                return 7;
        return 0;
}

static int lives_and_exits(void *arg)
{
        return live(resident.id);
}

static int lives_and_is_killed(void *arg)
{
        int r = live(resident.id);

        if (r == 0)
                raise(SIGKILL);
        return r;
}

static bool settled(void)
{
        struct world_count n = world_count(&c);

        return n.n[UNETD_S_STACK] == 1 && n.n[UNETD_S_CHAN] == 0 && n.n[UNETD_S_LISTENER] == 0 &&
               n.n[UNETD_S_HOLD] == 0 && n.n[UNETD_S_LEASE] == 0;
}

static struct usage usage_of(pid_t pid)
{
        return (struct usage){.fds = world_fds(pid), .rss = world_rss_kb(pid)};
}

static void a_thousand_births_and_deaths_leave_nothing(void **state)
{
        struct usage at_first[2] = {{0, 0}}, now[2];
        pid_t pid[2];

        memset(&c, 0, sizeof c);
        assert_int_equal(unetd_open(&c, 0), 0);
        fake_stack_new(&c, &resident);
        pid[0] = world_daemon_pid(&c);
        pid[1] = world_keeper_pid(&c);
        for (int round = 1; round <= ROUNDS; round++) {
                if (round % 2)
                        assert_int_equal(world_child(lives_and_exits, NULL), 0);
                else
                        assert_int_equal(world_child(lives_and_is_killed, NULL), 128 + SIGKILL);
                if (round != WARM && round != ROUNDS)
                        continue;
                eventually(settled());
                for (int i = 0; i < 2; i++) {
                        now[i] = usage_of(pid[i]);
                        print_message("round %d, %s: %d descriptors, %ld KB\n", round,
                                      i ? "keeper" : "unetd", now[i].fds, now[i].rss);
                        if (round == WARM)
                                at_first[i] = now[i];
                }
        }
        for (int i = 0; i < 2; i++) {
                world_fds_back_to(i ? "keeper" : "unetd", pid[i], at_first[i].fds);
                if (MEMORY_IS_KNOWN)
                        assert_in_range(now[i].rss, 0, at_first[i].rss + SLACK_KB);
        }
        assert_int_equal(world_daemon_pid(&c), pid[0]);
        assert_int_equal(world_keeper_pid(&c), pid[1]);
        assert_int_equal(resident.s->chans_down, ROUNDS);
        fake_stack_forget(&resident);
        unetd_close(&c);
}

#define t(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                t(a_thousand_births_and_deaths_leave_nothing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
