/*
 * More connections of one stack than 16 bits number, and more to one address than a stack once had
 * client ports: the last ones work as the first, and a process that dies with all of them leaves
 * nothing.
 */
#include "tests/sock/sides.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>

#include "unet/sock.h"

#define PAIRS     40000 /* both ends are this stack's: 80,000 connections */
#define ADDRESSES 2     /* of 127.0.0.0/8: each has as many connections as there are client ports */
#define LOOKED_AT 97    /* of so many one is used at the end */

static void exchange(int a, int b)
{
        char byte = 'x';

        CHECK(unet_send(a, &byte, 1, 0) == 1);
        byte = 0;
        CHECK(unet_recv(b, &byte, 1, 0) == 1 && byte == 'x');
}

struct pairs {
        int near[PAIRS], far[PAIRS];
};

static void open_all(struct pairs *p, uint16_t port)
{
        struct sockaddr_in to = loopback(port);
        int l = unet_socket(AF_INET, SOCK_STREAM, 0);

        to.sin_addr.s_addr = htonl(INADDR_ANY);
        CHECK(l >= 0 && unet_bind(l, (struct sockaddr *)&to, sizeof to) == 0 &&
              unet_listen(l, 16) == 0);
        for (int i = 0; i < PAIRS; i++) {
                to.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)(i % ADDRESSES));
                p->near[i] = unet_socket(AF_INET, SOCK_STREAM, 0);
                CHECK(p->near[i] >= 0 &&
                      unet_connect(p->near[i], (struct sockaddr *)&to, sizeof to) == 0);
                p->far[i] = unet_accept(l, NULL, NULL);
                CHECK(p->far[i] >= 0);
        }
}

static struct pairs pairs;

static void uses_many(struct side *s)
{
        open_all(&pairs, (uint16_t)s->arg);
        for (int i = 0; i < PAIRS; i += LOOKED_AT) {
                exchange(pairs.near[i], pairs.far[i]);
                exchange(pairs.far[i], pairs.near[i]);
        }
        for (int i = 0; i < PAIRS; i++)
                CHECK(unet_close(pairs.near[i]) == 0 && unet_close(pairs.far[i]) == 0);
}

static void a_stack_has_more_connections_than_16_bits_number(void **state)
{
        (void)state;
        assert_int_equal(play_alone(uses_many, own_port()), 0);
}

static void dies_with_many(struct side *s)
{
        open_all(&pairs, (uint16_t)s->arg);
        raise(SIGKILL);
}

/* The keeper holds the dead one's lock while it closes what that had: it was minutes, when each
 * close looked at all others. */
static void binds_again(struct side *s)
{
        struct sockaddr_in at = loopback((uint16_t)s->arg);
        int l = unet_socket(AF_INET, SOCK_STREAM, 0);

        CHECK(l >= 0);
        EVENTUALLY(unet_bind(l, (struct sockaddr *)&at, sizeof at) == 0);
        CHECK(unet_listen(l, 1) == 0);
}

static void a_process_that_dies_with_many_leaves_its_port(void **state)
{
        uint16_t port = own_port();

        (void)state;
        assert_int_equal(play_alone(dies_with_many, port), 256 + SIGKILL);
        assert_int_equal(play_alone(binds_again, port), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_stack_has_more_connections_than_16_bits_number),
                cmocka_unit_test(a_process_that_dies_with_many_leaves_its_port),
        };

        return run_sides(tests);
}
