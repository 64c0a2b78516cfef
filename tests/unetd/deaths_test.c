/* Deaths of unetd and of keepers: who goes on, what is registered again, who is given up. */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unetd/world.h"

static const ip_addr any = {{0, 0}};

static void a_dead_keeper_is_replaced_and_told_all(void **state)
{
        struct unetd_client c;
        struct fake_stack a, b;
        struct unetd_stack_fds got;
        uint32_t chan, peer;
        pid_t keeper;

        world_client(&c);
        fake_stack_new(&c, &a);
        fake_stack_new(&c, &b);
        assert_int_equal(unetd_chan_open(&c, a.id, b.id, &chan, &peer), 0);
        keeper = world_keeper_pid(&c);
        kill(keeper, SIGKILL);
        eventually(world_keeper_pid(&c) != keeper && a.s->attached == 2);
        assert_int_equal(unetd_stack_get(&c, a.id, &got), 0);
        unetd_stack_fds_close(&got);
        eventually(unetd_chan_get(&c, a.id, chan, &(struct unetd_chan){.tx = -1}) == 0);
        assert_int_equal(unetd_proc_del(&c, b.id, 0), 0); /* the new one knows its process */
        eventually(a.s->chan_peer[chan] == 0);
        assert_int_equal(world_count(&c).n[UNETD_S_STACK], 1);
        fake_stack_forget(&a);
        fake_stack_forget(&b);
        unetd_close(&c);
}

#define SLOTS 21u /* all but the first are the child's */

/* Registers a child as all other processes of the stack. */
static pid_t other_processes(const struct fake_stack *st)
{
        int ready[2];
        pid_t pid;
        char c;

        assert_int_equal(pipe(ready), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                struct unetd_client own = {.pid = 0};
                int r;

                prctl(PR_SET_PDEATHSIG, SIGKILL);
                r = unetd_open(&own, 0);
                for (uint32_t slot = 1; slot < SLOTS && r == 0; slot++)
                        r = unetd_proc_add(&own, st->id, slot, 0);
                if (r == 0 && write(ready[1], "r", 1) == 1)
                        pause();
                _exit(1);
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &c, 1), 1);
        close(ready[0]);
        return pid;
}

/* A new keeper hears of the dead first, and not yet of who lives: unetd is stopped. */
static void who_dies_with_the_keeper_takes_no_stack_along(void **state)
{
        struct unetd_client c;
        struct fake_stack st;
        struct unetd_stack_fds got;
        pid_t keeper, child, daemon;

        world_client(&c);
        fake_stack_new(&c, &st);
        child = other_processes(&st);
        daemon = world_daemon_pid(&c);
        keeper = world_keeper_pid(&c);
        kill(keeper, SIGSTOP); /* it does not see the child die */
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        st.s->hold = getpid();
        kill(keeper, SIGKILL);
        eventually(st.s->attached == 2);
        kill(daemon, SIGSTOP);
        st.s->hold = 0;
        eventually(st.s->died[0] != 0);
        kill(daemon, SIGCONT);
        assert_int_equal(unetd_stack_get(&c, st.id, &got), 0);
        unetd_stack_fds_close(&got);
        fake_stack_forget(&st);
        unetd_close(&c);
}

static int renewals;

static void renew(struct unetd_client *c, void *arg)
{
        struct fake_stack *st = arg;
        uint32_t id = st->id;

        renewals++;
        assert_int_equal(unetd_stack_new(c, &st->fds, 0, &id), 0);
        assert_int_equal(id, st->id);
        assert_int_equal(unetd_listen_add(c, st->id, IPPROTO_TCP, any, 4242, 0, -1), 0);
}

static void a_dead_unetd_is_replaced_and_the_keeper_stays(void **state)
{
        struct unetd_client c;
        struct fake_stack a, b;
        uint32_t chan, peer, again, peer_again;
        uint64_t before;
        pid_t keeper, daemon;

        world_client(&c);
        fake_stack_new(&c, &a);
        fake_stack_new(&c, &b);
        c.renewed = renew;
        c.arg = &a;
        renewals = 0;
        assert_int_equal(unetd_chan_open(&c, a.id, b.id, &chan, &peer), 0);
        assert_int_equal(unetd_listen_add(&c, a.id, IPPROTO_TCP, any, 4242, 0, -1), 0);
        before = c.instance;
        keeper = world_keeper_pid(&c);
        daemon = world_daemon_pid(&c);
        kill(daemon, SIGKILL);
        eventually(!world_alive(daemon));
        eventually(world_keeper_pid(&c) == keeper);
        assert_true(c.instance != before);
        assert_int_equal(renewals, 1);
        assert_int_equal(world_lookup(&c, IPPROTO_TCP, world_localhost(), 4242), a.id);
        assert_int_equal(a.s->attached, 1);
        eventually(world_count(&c).n[UNETD_S_STACK] == 2);
        eventually(world_count(&c).n[UNETD_S_CHAN] == 1);
        assert_int_equal(unetd_chan_open(&c, a.id, b.id, &again, &peer_again), 0);
        assert_int_equal(again, chan);
        assert_int_equal(peer_again, peer);
        assert_int_equal(unetd_proc_del(&c, b.id, 0), 0);
        eventually(a.s->chan_peer[chan] == 0);
        fake_stack_forget(&a);
        fake_stack_forget(&b);
        unetd_close(&c);
}

/* Two stacks with a channel; unetd dies while their keeper, which is returned, is stopped. */
static pid_t stays_behind(struct unetd_client *c, struct fake_stack *a, struct fake_stack *b,
                          uint32_t *chan)
{
        uint32_t peer;
        pid_t keeper, daemon;

        world_client(c);
        fake_stack_new(c, a);
        fake_stack_new(c, b);
        assert_int_equal(unetd_chan_open(c, a->id, b->id, chan, &peer), 0);
        keeper = world_keeper_pid(c);
        daemon = world_daemon_pid(c);
        kill(keeper, SIGSTOP);
        kill(daemon, SIGKILL);
        eventually(!world_alive(daemon));
        return keeper;
}

/* unetd dies while the keeper is stopped; a stranger starts another, with another keeper; then the
 * old one wakes up. */
static void a_keeper_that_comes_late_hands_over(void **state)
{
        struct unetd_client c, stranger;
        struct fake_stack a, b, other;
        struct unetd_chan ch;
        uint32_t chan;
        pid_t keeper;

        keeper = stays_behind(&c, &a, &b, &chan);
        world_client(&stranger);
        fake_stack_new(&stranger, &other);
        assert_int_not_equal(world_keeper_pid(&stranger), keeper);
        assert_int_equal(world_count(&stranger).n[UNETD_S_STACK], 1);
        kill(keeper, SIGCONT);
        eventually(!world_alive(keeper));
        eventually(world_count(&stranger).n[UNETD_S_STACK] == 3);
        eventually(a.s->attached == 2 && b.s->attached == 2);
        eventually(unetd_chan_get(&c, a.id, chan, &ch) == 0);
        unetd_chan_close(&ch);
        assert_int_equal(unetd_proc_del(&c, b.id, 0), 0);
        eventually(a.s->chan_peer[chan] == 0);
        eventually(world_count(&c).n[UNETD_S_STACK] == 2);
        fake_stack_forget(&a);
        fake_stack_forget(&b);
        fake_stack_forget(&other);
        unetd_close(&stranger);
        unetd_close(&c);
}

/* The same, but the stranger's stack has been given the number of one that is still away: its
 * keeper hands over what is left, and its client learns that it has none any more. */
static void a_number_given_to_another_is_not_shared(void **state)
{
        struct unetd_client c, stranger;
        struct fake_stack a, b, other;
        uint32_t chan, id;
        pid_t keeper;

        keeper = stays_behind(&c, &a, &b, &chan);
        world_client(&stranger);
        fake_stack_make(&other);
        other.id = a.id;
        assert_int_equal(unetd_stack_new(&stranger, &other.fds, 1, &other.id), 0);
        kill(keeper, SIGCONT);
        eventually(!world_alive(keeper));
        eventually(world_count(&stranger).n[UNETD_S_STACK] == 2 && b.s->attached == 2);
        id = a.id;
        assert_int_equal(unetd_stack_new(&c, &a.fds, 0, &id), -EEXIST);
        id = other.id;
        assert_int_equal(unetd_stack_new(&stranger, &other.fds, 1, &id), 0);
        assert_int_equal(other.s->chan_peer[chan], 0);
        assert_int_equal(a.s->attached, 1);
        assert_int_equal(unetd_proc_del(&stranger, other.id, 0), -ENOENT); /* a's process */
        assert_int_equal(unetd_proc_del(&stranger, other.id, 1), 0);
        eventually(world_count(&stranger).n[UNETD_S_STACK] == 1);
        fake_stack_forget(&a);
        fake_stack_forget(&b);
        fake_stack_forget(&other);
        unetd_close(&stranger);
        unetd_close(&c);
}

/* Something in a stack kills every keeper: it is given up, not started for ever. */
static void a_keeper_that_dies_and_dies_is_given_up(void **state)
{
        struct unetd_client c;
        struct fake_stack a, b;
        pid_t last = 0;
        int deaths = 0;

        world_client(&c);
        fake_stack_new(&c, &a);
        for (int64_t until = world_now_ms() + PATIENCE_MS;
             world_count(&c).n[UNETD_S_STACK] == 1 && world_now_ms() < until;) {
                pid_t keeper = world_keeper_pid(&c);
                if (keeper > 0 && keeper != last) {
                        kill(keeper, SIGKILL);
                        last = keeper;
                        deaths++;
                }
                world_sleep_ms(1);
        }
        print_message("%d keepers were killed\n", deaths);
        assert_int_equal(world_count(&c).n[UNETD_S_STACK], 0);
        assert_true(deaths > 1);
        fake_stack_new(&c, &b); /* the user is served all the same */
        fake_stack_forget(&a);
        fake_stack_forget(&b);
        unetd_close(&c);
}

/* Both die at once: what the client registers again is served, what nobody registers is gone. */
static void both_daemons_dead_the_client_starts_anew(void **state)
{
        struct unetd_client c;
        struct fake_stack a;
        pid_t keeper, daemon;

        world_client(&c);
        fake_stack_new(&c, &a);
        c.renewed = renew;
        c.arg = &a;
        renewals = 0;
        keeper = world_keeper_pid(&c);
        daemon = world_daemon_pid(&c);
        kill(keeper, SIGSTOP);
        kill(daemon, SIGKILL);
        kill(keeper, SIGKILL);
        eventually(!world_alive(daemon) && !world_alive(keeper));
        assert_int_equal(world_count(&c).n[UNETD_S_STACK], 1);
        assert_int_equal(renewals, 1);
        eventually(a.s->attached == 2);
        fake_stack_forget(&a);
        unetd_close(&c);
}

#define t(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                t(a_dead_keeper_is_replaced_and_told_all),
                t(who_dies_with_the_keeper_takes_no_stack_along),
                t(a_dead_unetd_is_replaced_and_the_keeper_stays),
                t(a_keeper_that_comes_late_hands_over),
                t(a_number_given_to_another_is_not_shared),
                t(a_keeper_that_dies_and_dies_is_given_up),
                t(both_daemons_dead_the_client_starts_anew),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
