/* Ports that sockets which are only bound vouch for (unetd/daemon/vouch.c), and leases
 * beside them. */
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unetd/world.h"

enum { SENDS = IPPROTO_TCP | DIR_HELD };

static const ip_addr any = {{0, 0}};

struct scene {
        struct unetd_client c;
        struct fake_stack a, b;
};

static int setup(void **state)
{
        static struct scene s;

        world_setup(state);
        s = (struct scene){.c = {.pid = 0}};
        assert_int_equal(unetd_open(&s.c, 0), 0);
        fake_stack_new(&s.c, &s.a);
        fake_stack_new(&s.c, &s.b);
        *state = &s;
        return 0;
}

static int teardown(void **state)
{
        struct scene *s = *state;

        fake_stack_forget(&s->a);
        fake_stack_forget(&s->b);
        unetd_close(&s->c);
        return world_teardown(state);
}

static bool may_send(const struct scene *s, const struct fake_stack *st, uint16_t port)
{
        return directory_vouches(s->c.dir, IPPROTO_TCP, world_localhost(), port, st->id) == 1;
}

static uint16_t port_of(int fd)
{
        struct sockaddr_in sin;
        socklen_t len = sizeof sin;

        assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &len), 0);
        return ntohs(sin.sin_port);
}

/* -1: the port is somebody's. */
static int bound_socket(uint32_t addr, uint16_t port)
{
        struct sockaddr_in sin = {
                .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(addr)};
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        if (bind(fd, (struct sockaddr *)&sin, sizeof sin) == 0)
                return fd;
        close(fd);
        return -1;
}

/* That was told to connect. */
static int used_socket(uint16_t to)
{
        struct sockaddr_in sin = {.sin_family = AF_INET,
                                  .sin_port = htons(to),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM, 0),
            r = connect(fd, (struct sockaddr *)&sin, sizeof sin);

        assert_true(r == 0 || errno == ECONNREFUSED);
        return fd;
}

static void a_bound_socket_vouches_for_its_port(void **state)
{
        struct scene *s = *state;
        uint16_t port = own_port();
        int fd = bound_socket(INADDR_ANY, port);
        struct world_count n;
        struct dir_hit hit;

        assert_false(may_send(s, &s->a, port));
        assert_int_equal(unetd_listen_add(&s->c, s->a.id, SENDS, any, port, 0, fd), 0);
        assert_true(may_send(s, &s->a, port));
        assert_false(may_send(s, &s->b, port));
        /* Nobody listens. */
        assert_int_equal(directory_lookup(s->c.dir, IPPROTO_TCP, world_localhost(), port, 0, &hit),
                         0);
        n = world_count(&s->c);
        assert_int_equal(n.n[UNETD_S_HOLD], 1);
        assert_int_equal(n.n[UNETD_S_LISTENER], 0);
        close(fd); /* unetd has it too */
        assert_int_equal(unetd_port_hold(&s->c, s->a.id, IPPROTO_TCP, any, &port), -EADDRINUSE);
        assert_int_equal(unetd_listen_del(&s->c, s->a.id, SENDS, any, port, 0), 0);
        assert_false(may_send(s, &s->a, port));
        assert_int_equal(unetd_port_hold(&s->c, s->a.id, IPPROTO_TCP, any, &port), 0);
}

static void what_is_not_bound_vouches_for_nothing(void **state)
{
        struct scene *s = *state;
        uint16_t listens = 0, again = 0;
        int l = world_socket(IPPROTO_TCP, &listens), b = bound_socket(INADDR_LOOPBACK, 0),
            idle = socket(AF_INET, SOCK_STREAM, 0), connected = used_socket(listens),
            refused = used_socket(1);
        uint16_t port = port_of(b);
        const struct {
                uint8_t proto;
                ip_addr addr;
                uint16_t port;
                int fd, says;
        } claim[] = {
                {SENDS, world_localhost(), port, -1, -EACCES},
                {SENDS, any, port, b, -EINVAL},
                {SENDS, world_localhost(), (uint16_t)(port + 1), b, -EINVAL},
                {SENDS, world_localhost(), listens, l, -EINVAL},
                {SENDS, world_localhost(), port_of(connected), connected, -EINVAL},
                /* What it tells of a port that it had. */
                {SENDS, world_localhost(), port_of(refused), refused, -EINVAL},
                {SENDS, any, 80, idle, -EINVAL}, /* asked, it is bound, but not to what it claims */
                {IPPROTO_UDP | DIR_HELD, world_localhost(), port, b, -EINVAL},
                {SENDS, world_localhost(), port, b, 0},
                {SENDS, world_localhost(), port, b, -EADDRINUSE},
        };

        for (size_t i = 0; i < ARRAY_LEN(claim); i++)
                assert_int_equal(unetd_listen_add(&s->c, s->a.id, claim[i].proto, claim[i].addr,
                                                  claim[i].port, 0, claim[i].fd),
                                 claim[i].says);
        assert_int_equal(unetd_port_hold(&s->c, s->a.id, SENDS, world_localhost(), &again),
                         -EINVAL);
        close(l), close(b), close(idle), close(connected), close(refused);
}

static void a_leased_port_is_not_another_stacks_to_send_from(void **state)
{
        struct scene *s = *state;
        uint16_t first = 0, count = 0, port;
        int fd = -1;

        assert_int_equal(unetd_port_lease(&s->c, s->a.id, &first, &count), 0);
        for (port = first; fd < 0 && port < first + count;
             port++) /* one that is free in the kernel */
                fd = bound_socket(INADDR_ANY, port);
        assert_true(fd >= 0);
        port = port_of(fd);
        assert_int_equal(unetd_listen_add(&s->c, s->b.id, SENDS, any, port, 0, fd), -EADDRINUSE);
        assert_int_equal(unetd_listen_add(&s->c, s->a.id, SENDS, any, port, 0, fd), 0);
        close(fd);
}

/* As many as may be had are leased, of all that there are but for the few in which ports
 * are held. */
static void blocks_in_which_somebody_has_a_port_are_leased_last(void **state)
{
        struct scene *s = *state;
        uint16_t first = 0, count = 0, port[20];

        for (size_t i = 0; i < ARRAY_LEN(port); i++) {
                port[i] = 0;
                assert_int_equal(unetd_port_hold(&s->c, s->a.id, IPPROTO_TCP, any, &port[i]), 0);
        }
        for (int n = 0; n < 200; n++, first = count = 0) {
                assert_int_equal(unetd_port_lease(&s->c, s->b.id, &first, &count), 0);
                for (size_t i = 0; i < ARRAY_LEN(port); i++)
                        assert_true(port[i] < first || port[i] >= first + count);
        }
        /* ... and those held from now on are in none of them. */
        for (int n = 0; n < 200; n++) {
                uint16_t chosen = 0;
                assert_int_equal(unetd_port_hold(&s->c, s->a.id, IPPROTO_TCP, any, &chosen), 0);
                assert_int_equal(directory_lessee_of(s->c.dir, chosen), 0);
        }
}

/* However small a run each asks for. */
static void thousands_of_programs_get_client_ports(void **state)
{
        static bool used[65536];
        struct scene *s = *state;

        memset(used, 0, sizeof used);
        for (int n = 0; n < 5000; n++) {
                uint16_t first = 0, count = 4;

                assert_int_equal(unetd_port_lease(&s->c, n % 2 ? s->a.id : s->b.id, &first, &count),
                                 0);
                assert_int_equal(count, 4);
                for (uint32_t port = first; port < (uint32_t)first + count; port++) {
                        assert_false(used[port]);
                        used[port] = true;
                }
        }
}

/* What is left is in pieces: a stack that wants more than one gets the largest. */
static void client_ports_are_had_though_they_lie_apart(void **state)
{
        struct scene *s = *state;
        uint16_t first = 0, count = 4, before = 0;
        struct fake_stack goes;
        int n = 0;

        fake_stack_new(&s->c, &goes);
        while (unetd_port_lease(&s->c, n % 2 ? s->a.id : goes.id, &first, &count) == 0) {
                n++;
                first = 0;
                count = 4;
        }
        assert_true(n > 100);
        assert_int_equal(unetd_proc_del(&s->c, goes.id, 0), 0);
        eventually(world_count(&s->c).n[UNETD_S_STACK] == 2);
        fake_stack_forget(&goes);
        for (int i = 0; i < n / 2; i++) {
                first = 0;
                count = 64;
                assert_int_equal(unetd_port_lease(&s->c, s->b.id, &first, &count), 0);
                assert_int_equal(count, 4);
                assert_int_not_equal(first, before);
                before = first;
        }
}

#define t(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                t(a_bound_socket_vouches_for_its_port),
                t(what_is_not_bound_vouches_for_nothing),
                t(a_leased_port_is_not_another_stacks_to_send_from),
                t(blocks_in_which_somebody_has_a_port_are_leased_last),
                t(thousands_of_programs_get_client_ports),
                t(client_ports_are_had_though_they_lie_apart),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
