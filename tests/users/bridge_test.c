/* Places at an interface's bridge, in a network namespace of the test's own: one user's stacks leave some to others. */
#include "tests/users/users.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

static int enters_the_interface(int fd)
{
        struct unetd_msg msg = {.type = UNETD_CHAN_OPEN};
        struct hostile_stack st;

        must(hostile_stack(fd, &st) == 0);
        hostile_stack_close(&st);
        msg.chan.stack = st.id;
        msg.chan.peer_stack = UNETD_IFACE;
        return hostile_ask(fd, &msg, NULL, 0);
}

static int takes_all_places(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client(), r;
        uint32_t n = 0;

        must(k >= 0);
        while ((r = enters_the_interface(c)) == 0)
                n++;
        must(r == -EDQUOT);
        table->value[table->ready] = n;
        table->ready++;
        must_eventually(table->done == 1);
        return 0;
}

static void places_are_left_to_others(void **state)
{
        pid_t first, second;

        first = users_begin(HOSTILE, takes_all_places);
        eventually(table->ready == 1);
        second = users_begin(BYSTANDER, takes_all_places);
        eventually(table->ready == 2);
        print_message("places at a bridge: %d, then %d\n", (int)table->value[0], (int)table->value[1]);
        assert_true(table->value[1] > 0 && table->value[1] >= table->value[0] / 3);
        users_unetd_answers();
        table->done = 1;
        users_wait(first);
        users_wait(second);
}

static int setup(void **state)
{
        return users_setup_with("[interface unet0]\naddress = 10.79.0.1/24\nlink = packet\nprobe = no\n");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(places_are_left_to_others, setup, users_teardown),
        };

        if (users_cannot_run())
                return 77;
        if (unshare(CLONE_NEWNET) < 0 || system("ip link set lo up && ip link add unet0 type veth peer name unet1 && "
                                                "ip link set unet0 up && ip link set unet1 up") != 0) {
                print_message("skipped: network namespaces cannot be made here\n");
                return 77;
        }
        return cmocka_run_group_tests(tests, NULL, NULL);
}
