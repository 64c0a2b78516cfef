/* A bridge that is closed in a handler of the loop's, as its last stack leaves, while the same
 * batch has an event of its own. */
#include "unetd/bridge/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include <malloc.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct scene {
        struct loop loop;
        struct loop_source leaver; /* who causes the end */
        struct gate *gate;
        bool over;
};

static struct scene *the_scene;

static void closes(const int *fds, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                close(fds[i]);
}

static void leaves(struct loop_source *s, uint32_t events)
{
        assert_false(the_scene->over);
        gate_close(the_scene->gate);
        the_scene->loop.stop = true;
        the_scene->over = true;
}

static nstime after(struct loop *l)
{
        if (the_scene->over)
                gates_free(&the_scene->gate);
        return NSTIME_NEVER;
}

static void events_of_the_same_batch_find_it_closed(void **state)
{
        const struct gate_rules rules = {.addr = 0x0a4f0001};
        struct scene s = {.gate = NULL};
        struct pkt_dev dev = {.link = -1};
        int wire[2];

        the_scene = &s;
        assert_int_not_equal(mallopt(M_PERTURB, 0x5a), 0); /* what is freed is written over */
        assert_int_equal(loop_init(&s.loop, after), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, wire), 0);
        dev.sock = wire[0];
        s.leaver = (struct loop_source){.fd = eventfd(1, EFD_CLOEXEC), .ready = leaves};
        assert_int_equal(loop_add(&s.loop, &s.leaver, EPOLLIN), 0);
        assert_int_equal(gate_open(&s.gate, &s.loop, &dev, &rules, 24, closes), 0);
        assert_int_equal(write(wire[1], "frame", 5), 5);
        loop_run(&s.loop);
        assert_true(s.over);
        assert_null(s.gate);
        close(wire[1]);
        close(s.leaver.fd);
        close(s.loop.epoll);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(events_of_the_same_batch_find_it_closed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
