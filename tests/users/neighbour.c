/* See neighbour.h. */
#include "tests/users/neighbour.h"

#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>

#define NEIGHBOURS 64100u /* the first of their numbers */

int client;
struct hostile_stack own;

uint32_t victims_stack(void)
{
        struct dir_hit hit = {.stack = 0};

        must_eventually(directory_lookup(hostile_dir, IPPROTO_TCP, ip_addr_v4(LOOPBACK),
                                         (uint16_t)table->port, 0, &hit) == 1);
        return hit.stack;
}

void comes(void)
{
        must(hostile_keeper(HOSTILE_ANSWERS) >= 0);
        client = hostile_client();
        must(hostile_stack(client, &own) == 0);
}

bool neighbours_have_own_network(void)
{
        if (unshare(CLONE_NEWNET) == 0 &&
            system("ip link set lo up && ip link add unet0 type veth peer name unet1 && "
                   "echo 0 2147483647 >/proc/sys/net/ipv4/ping_group_range") == 0)
                return true;
        print_message("skipped: network namespaces cannot be made here\n");
        return false;
}

void the_victim_begins(void **state)
{
        users_victim_start();
}

uint32_t neighbour = NEIGHBOURS;
static struct {
        int monitor, broker;
} before;

void look_before(void)
{
        table->ready = table->done = 0;
        before.monitor = users_fds(users_unetd());
        before.broker = users_fds(users_broker());
}

/* Of the victim's new connections some come and go. */
#define OF_THE_VICTIMS 8
void is_as_before(void)
{
        users_victim_goes_on();
        users_unetd_answers();
        eventually(users_fds(users_unetd()) <= before.monitor + OF_THE_VICTIMS);
        eventually(users_fds(users_broker()) <= before.broker + OF_THE_VICTIMS);
}

void harms_nobody(int (*attack)(void))
{
        look_before();
        users_run(neighbour++, attack);
        is_as_before();
}

void harms_nobody_meanwhile(int (*attack)(void), int (*beside)(void))
{
        pid_t hostile;

        look_before();
        hostile = users_begin(neighbour++, attack);
        eventually(table->ready == 1);
        users_victim_goes_on();
        if (beside != NULL)
                users_run(neighbour++, beside);
        users_unetd_answers();
        table->done = 1;
        users_wait(hostile);
        is_as_before();
}
