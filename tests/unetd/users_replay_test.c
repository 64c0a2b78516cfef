/*
 * A user who has many stacks and channels loses his keeper. The next one is told of all of them, by
 * and by. What is counted is descriptors: a message that waits for the keeper has copies of its
 * own.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/long_run.h"
#include "two_users.h"

#define MOST  800
#define MANY  (long_run() ? MOST : 300) /* where the limits do not allow for fewer */
#define FEW   100
#define SPARE 32 /* stacks that she gives back: what waits for her keeper counts as hers, too */

static struct one {
        struct fake_state *s;
        uint32_t id, chan; /* to the one before */
} all[MOST];
static unsigned n;

/* ---- Alice, in a child ---- */

static int stack_made(struct unetd_client *c, struct one *st)
{
        struct unetd_stack_fds fds;
        int r;

        must(unetd_stack_fds_make(&fds, FAKE_BYTES) == 0);
        st->s = mmap(NULL, FAKE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds.state, 0);
        must(st->s != MAP_FAILED);
        st->s->magic = FAKE_MAGIC;
        st->id = 0;
        r = unetd_stack_new(c, &fds, 0, &st->id);
        unetd_stack_fds_close(&fds);
        return r;
}

static uint32_t stacks_of(struct unetd_client *c)
{
        return world_count(c).n[UNETD_S_STACK];
}

/* Makes stacks in a row, each with a channel to the one before: `most`, or a few less than she may
 * have. */
static void must_have(struct unetd_client *c, unsigned most)
{
        uint32_t peer;
        int r = 0;

        for (n = 0; n < most && r == 0; n++) {
                r = stack_made(c, &all[n]);
                if (r == 0 && n > 0)
                        r = unetd_chan_open(c, all[n].id, all[n - 1].id, &all[n].chan, &peer);
        }
        must(r == 0 || r == -EDQUOT);
        if (r == 0)
                return;
        must(n > 2 * SPARE);
        if (all[n - 1].id == 0)
                n--;
        for (unsigned i = 0; i < SPARE; i++)
                must(unetd_proc_del(c, all[--n].id, 0) == 0);
        must_eventually(stacks_of(c) == n);
}

static uint32_t attached(void)
{
        uint32_t sum = 0;

        for (unsigned i = 0; i < n; i++)
                sum += all[i].s->attached;
        return sum;
}

static bool has_its_channel(const struct one *st)
{
        return st == all || st->s->chan_peer[st->chan] == st[-1].id;
}

static bool all_are_back(void)
{
        for (unsigned i = 0; i < n; i++)
                if (all[i].s->attached < 2 || !has_its_channel(&all[i]))
                        return false;
        return true;
}

static void forget_and_hold(void)
{
        for (unsigned i = 0; i < n; i++) {
                all[i].s->hold = getpid();
                memset((void *)all[i].s->chan_peer, 0, sizeof all[i].s->chan_peer);
        }
}

static void let_go(void)
{
        for (unsigned i = 0; i < n; i++)
                all[i].s->hold = 0;
}

static void kill_keeper(struct unetd_client *c)
{
        pid_t keeper = world_keeper_pid(c);

        must(keeper > 0 && kill(keeper, SIGKILL) == 0);
}

static pid_t must_fork(int (*fn)(struct unetd_client *c))
{
        pid_t pid = fork();

        must(pid >= 0);
        if (pid == 0) {
                struct unetd_client c = {.pid = 0};

                prctl(PR_SET_PDEATHSIG, SIGKILL); /* with Alice */
                must(unetd_open(&c, 0) == 0);
                _exit(fn(&c));
        }
        return pid;
}

/* ---- what her processes ask for while the keeper has been told of one stack ---- */

static int enter_and_leave(struct unetd_client *c)
{
        must(unetd_proc_add(c, all[0].id, 1, 0) == 0);
        must(unetd_proc_del(c, all[0].id, 1) == 0);
        return 0;
}

static int make_another(struct unetd_client *c)
{
        struct one st;
        uint32_t chan, peer;
        int r = stack_made(c, &st);

        must(r == 0 || r == -EDQUOT);
        if (r == 0)
                r = unetd_chan_open(c, st.id, all[1].id, &chan, &peer);
        must(r == 0 || r == -EDQUOT);
        return 0;
}

static int open_a_channel(struct unetd_client *c)
{
        uint32_t chan, peer;
        int r = unetd_chan_open(c, all[0].id, all[2].id, &chan, &peer);

        must(r == 0 || r == -EDQUOT);
        must(r != 0 || all[0].s->chan_peer[chan] == all[2].id);
        return 0;
}

static int ask_the_keeper(struct unetd_client *c)
{
        struct unetd_stack_fds fds;

        must(unetd_stack_get(c, all[0].id, &fds) == 0);
        unetd_stack_fds_close(&fds);
        return 0;
}

/* It is a process of stack 1, and maps it no more, as if it were another program. */
static int be_another_program(struct unetd_client *c)
{
        prctl(PR_SET_DUMPABLE, 1); /* its keeper may look */
        must(unetd_proc_add(c, all[1].id, 1, 0) == 0);
        table->stopped = 1;
        must_eventually(table->ready == 2);
        unetd_close(c);
        for (unsigned i = 0; i < n; i++)
                munmap(all[i].s, FAKE_BYTES);
        pause();
        return 0;
}

static void end(pid_t pid)
{
        int status;

        kill(pid, SIGKILL);
        must(waitpid(pid, &status, 0) == pid);
}

static void alice_loses_her_keeper_twice(void)
{
        int (*const asks[])(struct unetd_client *) = {enter_and_leave, make_another, open_a_channel,
                                                      ask_the_keeper};
        struct unetd_client c = {.pid = 0};
        pid_t child[ARRAY_LEN(asks)], other;
        uint32_t before;

        become(ALICE);
        must(unetd_open(&c, 0) == 0 && c.shared);
        must_have(&c, MANY);
        other = must_fork(be_another_program);
        must_eventually(table->stopped == 1);
        table->sent = n;
        table->ready = 1;
        must_eventually(table->done == 1);
        forget_and_hold();
        before = attached();
        kill_keeper(&c);
        must_eventually(attached() == before + 1);
        table->ready = 2;
        for (unsigned i = 0; i < ARRAY_LEN(asks); i++)
                child[i] = must_fork(asks[i]);
        must_eventually(table->done == 2);
        kill_keeper(&c);
        must_eventually(attached() >= before + 2);
        let_go();
        must_eventually(all_are_back());
        for (unsigned i = 0; i < ARRAY_LEN(asks); i++) {
                int status;

                must(waitpid(child[i], &status, 0) == child[i] && status == 0);
        }
        must_eventually(all[1].s->execed > 0);
        end(other);
        for (unsigned i = 0; i < n; i++) {
                struct unetd_stack_fds fds;

                must(unetd_stack_get(&c, all[i].id, &fds) == 0);
                unetd_stack_fds_close(&fds);
        }
        must(unetd_proc_del(&c, all[0].id, 0) == 0);
        must_eventually(all[1].s->chan_peer[all[1].chan] == 0);
        table->ready = 3;
        must_eventually(table->done == 3);
        _exit(0);
}

/* ---- Bob, in a child ---- */

static bool see(void *arg, const struct unetd_status_item *item)
{
        return true;
}

static void bob_is_served(void)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;

        become(BOB);
        must_stack(&c, &st);
        for (int i = 0; i < 100; i++)
                must(unetd_status(&c, see, NULL) == 0);
        _exit(0);
}

/* ---- root, who looks on ---- */

static pid_t begin(void (*fn)(void))
{
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
                fn();
        return pid;
}

static bool has_ended(pid_t pid)
{
        siginfo_t si = {.si_pid = 0};

        return waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == pid;
}

static void until_she_is(pid_t alice, uint32_t ready)
{
        eventually(table->ready >= ready || has_ended(alice));
        assert_true(table->ready >= ready);
}

static pid_t daemon_pid(void)
{
        struct unetd_client c = {.pid = 0};
        pid_t pid;

        assert_int_equal(unetd_open(&c, UNETD_NO_START), 0);
        pid = world_daemon_pid(&c);
        unetd_close(&c);
        return pid;
}

static void a_new_keeper_is_told_by_and_by(void **state)
{
        pid_t alice, daemon;
        int before, most;

        if (cannot_run())
                skip();
        daemon = daemon_pid();
        alice = begin(alice_loses_her_keeper_twice);
        until_she_is(alice, 1);
        before = world_fds(daemon);
        most = before + 400; /* what waits for the keeper, and the rest of one stack */
        table->done = 1;
        until_she_is(alice, 2);
        must_child(begin(bob_is_served));
        print_message("%u stacks; unetd has %d descriptors, and had %d\n", (unsigned)table->sent,
                      world_fds(daemon), before);
        assert_true(world_fds(daemon) < most);
        table->done = 2;
        until_she_is(alice, 3);
        must_child(begin(bob_is_served));
        assert_true(world_fds(daemon) < most);
        table->done = 3;
        must_child(alice);
}

/* ---- given up ---- */

/* Kills her keeper unless it is the one that was killed last. A keeper that has just begun is
 * root's still, and cannot be killed yet. */
static void kill_the_next(struct unetd_client *c, pid_t *last)
{
        pid_t keeper = world_keeper_pid(c);

        if (keeper > 0 && keeper != *last && kill(keeper, SIGKILL) == 0)
                *last = keeper;
}

static bool has_lost_all(struct unetd_client *c, pid_t *last)
{
        kill_the_next(c, last);
        return stacks_of(c) == 0;
}

static void alice_is_given_up(void)
{
        struct unetd_client c = {.pid = 0};
        struct one another;
        pid_t last = 0;

        become(ALICE);
        must(unetd_open(&c, 0) == 0);
        must_have(&c, FEW);
        table->ready = 1;
        must_eventually(has_lost_all(&c, &last));
        must(stack_made(&c, &another) == 0); /* she is served all the same */
        table->ready = 2;
        must_eventually(table->done == 2);
        _exit(0);
}

static void who_is_given_up_leaves_nothing_behind(void **state)
{
        pid_t alice, daemon;
        int before;

        if (cannot_run())
                skip();
        daemon = daemon_pid();
        before = world_fds(daemon);
        alice = begin(alice_is_given_up);
        until_she_is(alice, 1);
        while (table->ready == 1 && !has_ended(alice))
                must_child(begin(bob_is_served));
        eventually(world_fds(daemon) < before + 60); /* what Alice and Bob have now */
        table->done = 2;
        must_child(alice);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                USERS_TEST(a_new_keeper_is_told_by_and_by),
                USERS_TEST(who_is_given_up_leaves_nothing_behind),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
