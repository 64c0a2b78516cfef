/* A server that greets first, which cannot have the channel of its first peer at once: its other
 * thread talks to unetd; or its keeper has nobody to vouch for it, while another unetd begins. And
 * a client that cannot. */
#include <pthread.h>

#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"
#include "tests/sock/sides.h"

static void calls(struct side *s)
{
        int c = tcp_connect_to((uint16_t)hear(s));
        char byte;

        tell(s, 0);
        CHECK(unet_recv(c, &byte, 1, 0) == 1 && byte == 'h');
}

static pthread_barrier_t taken;

static void *talks_to_unetd(void *arg)
{
        ustack_client();
        pthread_barrier_wait(&taken);
        usleep(300000);
        ustack_client_done();
        return NULL;
}

/* The keeper has made the connection; this process has seen nothing of its channel yet. */
static void greets(struct side *s)
{
        int l = tcp_listen_any(), c;
        pthread_t other;

        tell(s, port_of(l));
        hear(s);
        CHECK(pthread_barrier_init(&taken, NULL, 2) == 0 &&
              pthread_create(&other, NULL, talks_to_unetd, NULL) == 0);
        pthread_barrier_wait(&taken);
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0 && unet_send(c, "h", 1, 0) == 1);
        pthread_join(other, NULL);
}

static void who_greets_first_has_the_channel(void **state)
{
        play(TWO_PROCESSES, calls, greets, 0);
}

static nstime refused_until;

static bool refused_for_a_while(struct stack *st, uint32_t k)
{
        if (refused_until == 0)
                refused_until = ustack_now() + 100 * NS_PER_MS;
        return ustack_now() > refused_until && ustack_chan_fetch(st, k);
}

static void greets_late(struct side *s)
{
        int l = tcp_listen_any(), c, err;

        ustack_mine(&err)->s.map_chan = refused_for_a_while;
        tell(s, port_of(l));
        hear(s);
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0 && refused_until != 0 && unet_send(c, "h", 1, 0) == 1);
}

static void who_is_refused_the_channel_has_it_later(void **state)
{
        play(TWO_PROCESSES, calls, greets_late, 0);
}

static void connects_late(struct side *s)
{
        int c, err;
        char byte;

        ustack_mine(&err)->s.map_chan = refused_for_a_while;
        c = tcp_connect_to((uint16_t)hear(s));
        CHECK(refused_until != 0);
        tell(s, 0);
        CHECK(unet_recv(c, &byte, 1, 0) == 1 && byte == 'h');
}

static void greets_at_once(struct side *s)
{
        int l = tcp_listen_any(), c;

        tell(s, port_of(l));
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0 && unet_send(c, "h", 1, 0) == 1);
        hear(s);
}

/* No other way leads to who listens: it is waited for. */
static void who_is_refused_the_channel_connects_later(void **state)
{
        play(TWO_PROCESSES, connects_late, greets_at_once, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(who_is_refused_the_channel_has_it_later),
                cmocka_unit_test(who_is_refused_the_channel_connects_later),
                cmocka_unit_test(who_greets_first_has_the_channel),
        };

        return cmocka_run_group_tests(tests, world_begin, world_end);
}
