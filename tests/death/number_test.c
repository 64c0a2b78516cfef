/* unetd and the keeper die at once, and a stack comes to the next unetd when another has been given
 * its number: a program of its own, as it leaves another unetd behind. */
#include <signal.h>

#include "sock/attach/ustack.h"
#include "tests/sock/sides.h"

struct pair {
        int here, there;
};

static struct pair to_itself(void)
{
        int l = tcp_listen_any();
        struct pair p = {.here = tcp_connect_to(port_of(l)), .there = unet_accept(l, NULL, NULL)};

        CHECK(p.here >= 0 && p.there >= 0);
        return p;
}

static void carries(struct pair p)
{
        char byte = 0;

        CHECK(unet_send(p.here, "x", 1, 0) == 1 && unet_recv(p.there, &byte, 1, 0) == 1);
        CHECK(byte == 'x');
}

/* Its connection goes on without unetd, and what it opens from then on is of a new stack. What was
 * asked when that came to light is refused, as it was about the old one. */
static void loses_its_number(struct side *s)
{
        struct sockaddr_in any = loopback(0);
        struct pair before = to_itself();
        const struct ustack *u;
        uint32_t id;
        int err;

        u = ustack_mine(&err);
        id = u->id;
        tell(s, id);
        hear(s);
        CHECK_ERR(unet_bind(unet_socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&any,
                            sizeof any),
                  ENOENT); /* it notices */
        carries(before);
        carries(to_itself());
        CHECK(u->id == 0 && ustack_mine(&err) != u);
        CHECK(ustack_mine(&err)->id != 0 && ustack_mine(&err)->id != id);
        tell(s, 0);
}

static void is_given_the_number(struct side *s)
{
        uint32_t id = (uint32_t)hear(s);
        pid_t keeper;
        int err;

        tcp_listen_any();
        keeper = world_keeper();
        CHECK(keeper > 0 && kill(keeper, SIGSTOP) == 0); /* it looks for no other unetd */
        CHECK(kill(world_unetd(), SIGKILL) == 0 && kill(keeper, SIGKILL) == 0);
        ustack_mine(&err)->id = id;
        tcp_listen_any();
        CHECK(ustack_mine(&err)->id == id);
        tell(s, 0);
        hear(s);
}

static void who_loses_its_number_goes_on(void **state)
{
        play(TWO_PROCESSES, loses_its_number, is_given_the_number, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(who_loses_its_number_goes_on),
        };

        return cmocka_run_group_tests(tests, world_begin, world_end);
}
