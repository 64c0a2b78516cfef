/*
 * More connections of one stack than 16 bits number, and more to one address than its client ports: the last ones work as the first.
 */
#include "tests/sock/sides.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "unet/sock.h"

#define PAIRS     40000                 /* both ends are this stack's: 80,000 connections */
#define ADDRESSES 2                     /* of 127.0.0.0/8: each has as many connections as there are client ports */
#define LOOKED_AT 97                    /* of so many one is used at the end */

static void exchange(int a, int b)
{
        char byte = 'x';

        CHECK(unet_send(a, &byte, 1, 0) == 1);
        byte = 0;
        CHECK(unet_recv(b, &byte, 1, 0) == 1 && byte == 'x');
}

static void many(struct side *s)
{
        static int near[PAIRS], far[PAIRS];
        struct sockaddr_in to = loopback(0);
        socklen_t len = sizeof to;
        int l = unet_socket(AF_INET, SOCK_STREAM, 0);

        (void)s;
        to.sin_addr.s_addr = htonl(INADDR_ANY);
        CHECK(l >= 0 && unet_bind(l, (struct sockaddr *)&to, sizeof to) == 0 && unet_listen(l, 16) == 0);
        CHECK(unet_getsockname(l, (struct sockaddr *)&to, &len) == 0);
        for (int i = 0; i < PAIRS; i++) {
                to.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)(i % ADDRESSES));
                near[i] = unet_socket(AF_INET, SOCK_STREAM, 0);
                CHECK(near[i] >= 0 && unet_connect(near[i], (struct sockaddr *)&to, sizeof to) == 0);
                far[i] = unet_accept(l, NULL, NULL);
                CHECK(far[i] >= 0);
        }
        for (int i = 0; i < PAIRS; i += LOOKED_AT) {
                exchange(near[i], far[i]);
                exchange(far[i], near[i]);
        }
        for (int i = 0; i < PAIRS; i++)
                CHECK(unet_close(near[i]) == 0 && unet_close(far[i]) == 0);
}

static void a_stack_has_more_connections_than_16_bits_number(void **state)
{
        (void)state;
        assert_int_equal(play_alone(many, 0), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_stack_has_more_connections_than_16_bits_number),
        };

        return run_sides(tests);
}
