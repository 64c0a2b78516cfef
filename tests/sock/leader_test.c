/* One thread sleeps as the stack's leader, and others are at work. */
#include "tests/sock/sides.h"

#include <pthread.h>

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

/* ---- one who led does not come back ---- */

/* The thread that reads what the leader was rung for, and waits for nothing after it. */
struct reader {
        pthread_t thread;
        int sock;
        _Atomic bool has_read, closes;
};

static struct ustack *locked(void)
{
        int err;
        struct ustack *u = ustack_mine(&err);

        ustack_lock(u);
        return u;
}

static unsigned count_asleep(void)
{
        struct ustack *u = locked();
        unsigned n = 0;

        for (uint32_t i = 0; i < STACK_WAITERS; i++)
                n += u->s.st->waiter[i].proc != 0 && atomic_load(&u->s.st->waiter[i].armed);
        ustack_leave(u);
        return n;
}

/* A waiter leads, or has been woken to. */
static bool is_led(void)
{
        struct ustack *u = locked();
        bool led = u->s.st->leader != 0;

        for (uint32_t i = 0; i < STACK_WAITERS; i++)
                led |= u->s.st->waiter[i].proc != 0 && !atomic_load(&u->s.st->waiter[i].armed);
        ustack_leave(u);
        return led;
}

static void *read_and_stay_away(void *arg)
{
        struct reader *r = arg;

        recv_one(&r->sock);
        atomic_store(&r->has_read, true);
        while (!atomic_load(&r->closes))
                sleep_ms(1);
        CHECK(unet_close(r->sock) == 0);
        CHECK(is_led());
        return NULL;
}

/* One sleeps as the leader and is rung for the other's byte; the other does not sleep again. */
static void start_reader(struct side *s, struct reader *r, int idle, pthread_t *sleeper)
{
        static int sock;

        sock = idle;
        *r = (struct reader){.sock = side_accept(s)};
        CHECK(pthread_create(sleeper, NULL, recv_one, &sock) == 0);
        EVENTUALLY(count_asleep() == 1 && is_led());
        CHECK(pthread_create(&r->thread, NULL, read_and_stay_away, r) == 0);
        EVENTUALLY(count_asleep() == 2);
        tell(s, 0);
        EVENTUALLY(atomic_load(&r->has_read));
}

static void end_reader(struct side *s, struct reader *r, pthread_t sleeper)
{
        atomic_store(&r->closes, true);
        CHECK(pthread_join(r->thread, NULL) == 0);
        tell(s, 0);
        CHECK(pthread_join(sleeper, NULL) == 0);
}

static void closes(struct side *s)
{
        int idle = side_accept(s);
        pthread_t sleeper;
        struct reader r;

        start_reader(s, &r, idle, &sleeper);
        end_reader(s, &r, sleeper);
}

static void works_long(struct side *s)
{
        int idle = side_accept(s);
        pthread_t sleeper;
        struct reader r;

        start_reader(s, &r, idle, &sleeper);
        tell(s, 0); /* nobody reads that byte: it rings the keeper */
        EVENTUALLY(is_led());
        end_reader(s, &r, sleeper);
}

static void sends(struct side *s, int bytes)
{
        int idle = side_connect(s), c = side_connect(s);

        for (int i = 0; i < bytes; i++) {
                hear(s);
                CHECK(unet_send(c, "!", 1, 0) == 1);
        }
        hear(s);
        CHECK(unet_send(idle, "!", 1, 0) == 1);
}

static void sends_one(struct side *s)
{
        sends(s, 1);
}

static void sends_two(struct side *s)
{
        sends(s, 2);
}

static void who_closes_lets_another_lead(void **state)
{
        play(TWO_PROCESSES, sends_one, closes, 0);
}

static void while_who_led_works_the_keeper_lets_another_lead(void **state)
{
        play(TWO_PROCESSES, sends_two, works_long, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(who_closes_lets_another_lead),
                cmocka_unit_test(while_who_led_works_the_keeper_lets_another_lead),
                cmocka_unit_test(what_another_lost_is_sent_again),
        };

        return run_sides(tests);
}
