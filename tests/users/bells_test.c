/* What a user can hold of his own stack while others ring it: unetd, and who has a channel to him,
 * must not wait. */
#include "tests/users/hold.h"
#include "tests/users/users.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

/* ---- who holds ---- */

/* When he holds it: before anybody opens a channel to him, or after. */
enum when { BEFORE, AFTER };

/* table->ready: 1: his stack's are held; 2: those of a channel too. */
static int holds_his_own(void)
{
        struct unetd_chan_info info;
        struct hostile_stack st;
        int c, fds[UNETD_CHAN_FDS_MAX], own[UNETD_STACK_FDS];
        unsigned n;

        prctl(PR_SET_DUMPABLE, 1);
        must(hostile_keeper(HOSTILE_ANSWERS) >= 0);
        c = hostile_client();
        must(hostile_stack(c, &st) == 0);
        memcpy(own, &st.fds, sizeof own);
        table->stack = st.id;
        if (table->value[0] == BEFORE)
                hold_all(own, UNETD_STACK_FDS);
        table->ready = 1;
        must_eventually((n = hostile_channel(&info, fds)) > 0);
        if (table->value[0] == AFTER)
                hold_all(own, UNETD_STACK_FDS);
        hold_all(fds, n);
        table->ready = 2;
        pause();
        return 0;
}

/* Opens a channel to him, and rings both who wait for him there. */
static int rings_him(void)
{
        struct unetd_msg open = {.type = UNETD_CHAN_OPEN};
        struct unetd_chan_info info;
        struct hostile_stack st;
        int c, fds[UNETD_CHAN_FDS_MAX], err;
        unsigned n;

        must(hostile_keeper(HOSTILE_ANSWERS) >= 0);
        c = hostile_client();
        must(hostile_stack(c, &st) == 0);
        open.chan = (struct unetd_chan_info){.stack = st.id, .peer_stack = table->stack};
        err = hostile_ask(c, &open, NULL, 0);
        if (err != 0)
                fprintf(stderr, "no channel: %s\n", strerror(-err));
        must(err == 0);
        must_eventually((n = hostile_channel(&info, fds)) > 0);
        must(n == UNETD_CHAN_FDS);
        must_eventually(table->ready == 2);
        for (int i = 0; i < 100; i++) {
                must(write(fds[UNETD_FD_PEER_LEADER], "", 1) == 1 || errno == EAGAIN);
                must(write(fds[UNETD_FD_PEER_KEEPER], "", 1) == 1 || errno == EAGAIN);
        }
        table->done = 1;
        return 0;
}

static pid_t hostile, rings;

static void is_rung(enum when when)
{

        users_victim_start();
        table->value[0] = when;
        hostile = users_begin(HOSTILE, holds_his_own);
        eventually(table->ready == 1);
        rings = users_begin(BYSTANDER, rings_him);
        eventually(table->done);
        users_wait(rings);
        rings = 0;
        users_unetd_answers();
        users_victim_goes_on();
        users_kill(hostile);
        hostile = 0;
        users_unetd_answers();
        users_victim_goes_on();
}

static void a_channel_to_who_holds_his_own(void **state)
{
        if (users_cannot_run())
                skip();
        is_rung(BEFORE);
}

static void who_holds_his_own_is_rung(void **state)
{
        if (users_cannot_run())
                skip();
        is_rung(AFTER);
}

/* Whom they hold ends after them. */
static int teardown(void **state)
{
        if (hostile > 0)
                kill(hostile, SIGKILL);
        if (rings > 0)
                kill(rings, SIGKILL);
        hostile = rings = 0;
        return users_teardown(state);
}

#define t(name) cmocka_unit_test_setup_teardown(name, users_setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                t(a_channel_to_who_holds_his_own),
                t(who_holds_his_own_is_rung),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
