/* One thread sleeps as the stack's leader, and others are at work. */
#include "tests/sock/sides.h"

#include <pthread.h>
#include <unistd.h>

#include "sock/attach/ustack.h"

#define ROUNDS 12

/* ---- their timers are seen to ---- */

static void *recv_one(void *sock)
{
        CHECK(unet_recv(*(int *)sock, &(char){0}, 1, 0) == 1);
        return NULL;
}

/* Whoever leads looks at nothing by himself; nor does the keeper. */
static bool all_is_quiet(void)
{
        int err;
        struct ustack *u = ustack_mine(&err);
        bool quiet;

        ustack_lock(u);
        quiet = (u->s.st->leader == 0 || u->s.st->leader_at == NSTIME_NEVER) &&
                u->s.st->keeper_at == NSTIME_NEVER && !atomic_load(&u->s.st->ticking);
        ustack_leave(u);
        return quiet;
}

/* A third of what goes out is lost, by the same seed each time. */
static void asks_seldom(struct side *s)
{
        struct unet_feedback f;
        pthread_t leader;
        int idle, c;

        CHECK(setenv("UNET_FAULT", "loss=0.33,seed=7", 1) == 0);
        idle = side_connect(s);
        c = tcp_connect_to((uint16_t)hear(s));
        CHECK(pthread_create(&leader, NULL, recv_one, &idle) == 0);
        for (int i = 0; i < ROUNDS; i++) {
                EVENTUALLY(all_is_quiet());
                CHECK(unet_send(c, "?", 1, 0) == 1);
                CHECK(unet_recv(c, &(char){0}, 1, 0) == 1);
        }
        CHECK(unet_feedback(c, &f) == 0 && f.segs_retrans > 0);
        CHECK(unet_close(c) == 0);
        CHECK(unet_send(idle, "!", 1, 0) == 1);
        CHECK(pthread_join(leader, NULL) == 0);
}

static void answers(struct side *s)
{
        int idle = side_accept(s), l = tcp_listen_any(), c;
        char byte;

        tell(s, port_of(l));
        c = unet_accept(l, NULL, NULL);
        CHECK(c >= 0);
        while (unet_recv(c, &byte, 1, 0) == 1)
                CHECK(unet_send(c, &byte, 1, 0) == 1);
        CHECK(unet_recv(idle, &byte, 1, 0) == 1);
        CHECK(unet_send(idle, &byte, 1, 0) == 1);
}

static void what_another_lost_is_sent_again(void **state)
{
        play(TWO_PROCESSES, asks_seldom, answers, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_another_lost_is_sent_again),
        };

        return run_sides(tests);
}
