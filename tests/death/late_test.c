/* A server has been elsewhere while its first peer came, and unetd went: a program of its own, as
 * it leaves another unetd behind. */
#include <signal.h>
#include <sys/time.h>

#include "tests/sock/sides.h"

#define PATIENCE_S (PATIENCE_MS / 1000)

static int patient(int c)
{
        const struct timeval patience = {.tv_sec = PATIENCE_S};

        CHECK(unet_setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
        return c;
}

/* The connection is there, made by the keeper, before the server looks; and by then another unetd
 * is, too. */
static void calls_early(struct side *s)
{
        int c = patient(tcp_connect_to((uint16_t)hear(s)));
        char byte = 'y';

        CHECK(unet_send(c, &byte, 1, 0) == 1 && kill(world_unetd(), SIGKILL) == 0);
        tcp_listen_any();
        tell(s, 0);
        CHECK(unet_recv(c, &byte, 1, 0) == 1);
}

static void looks_late(struct side *s)
{
        int l = tcp_listen_any(), c;
        char byte;

        tell(s, port_of(l));
        hear(s);
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0 && unet_recv(c, &byte, 1, 0) == 1 && unet_send(c, &byte, 1, 0) == 1);
}

/* It asks for its first channel with its lock held; who takes notice of another unetd takes
 * that lock. */
static void a_server_meets_its_first_peer_after_unetd_died(void **state)
{
        play(TWO_PROCESSES, calls_early, looks_late, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_server_meets_its_first_peer_after_unetd_died),
        };

        return cmocka_run_group_tests(tests, world_begin, world_end);
}
