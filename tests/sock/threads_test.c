/*
 * More threads asleep in one stack than there are bits for them (STACK_WAITERS): they sleep, and
 * are woken by what they wait for and by nothing else. Who is armed sleeps or is about to, and
 * whoever wakes him disarms him: that is counted under the lock.
 */
#include "tests/sock/sides.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_wake.h"

#define THREADS (STACK_WAITERS + (SLOWER > 1 ? 60u : 140u))

static struct one {
        pthread_t thread;
        int sock;
} one[THREADS];
static int listener;
static struct unet_pollset *set;

/* Those that have a place, or of these the armed ones. Under the lock. */
static uint32_t places(struct stack_state *st, bool only_armed)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < STACK_WAITERS + st->sleepers.fresh; i++) {
                /* 0 of a pool is nothing. */
                const struct waiter_slot *ws = i == STACK_WAITERS ? NULL : stack_waiter(st, i);
                n += ws != NULL && ws->proc != 0 && (!only_armed || atomic_load(&ws->armed));
        }
        return n;
}

static uint32_t counted(bool only_armed)
{
        int err;
        struct ustack *u = ustack_mine(&err);
        uint32_t n;

        ustack_lock(u);
        n = places(u->s.st, only_armed);
        ustack_leave(u);
        return n;
}

static void start(void *(*fn)(void *))
{
        for (uint32_t i = 0; i < THREADS; i++)
                CHECK(pthread_create(&one[i].thread, NULL, fn, &one[i]) == 0);
}

static void all_asleep(void)
{
        EVENTUALLY(counted(true) == THREADS);
}

static void join_all(void)
{
        for (uint32_t i = 0; i < THREADS; i++)
                CHECK(pthread_join(one[i].thread, NULL) == 0);
        CHECK(counted(false) == 0);
}

static void connect_all(struct side *s)
{
        uint16_t port = (uint16_t)hear(s);

        for (uint32_t i = 0; i < THREADS; i++)
                one[i].sock = tcp_connect_to(port);
}

static void accept_all(struct side *s)
{
        int l = tcp_listen_any();

        tell(s, port_of(l));
        for (uint32_t i = 0; i < THREADS; i++) {
                one[i].sock = unet_accept(l, NULL, NULL);
                CHECK(one[i].sock >= 0);
        }
        CHECK(unet_close(l) == 0);
}

static void close_all(void)
{
        for (uint32_t i = 0; i < THREADS; i++)
                CHECK(unet_close(one[i].sock) == 0);
}

/* ---- each in recv() on its own connection ---- */

static void *echo(void *arg)
{
        struct one *o = arg;
        char byte;

        while (unet_recv(o->sock, &byte, 1, 0) == 1)
                CHECK(unet_send(o->sock, &byte, 1, 0) == 1);
        return NULL;
}

static void echoes(struct side *s)
{
        connect_all(s);
        start(echo);
        all_asleep();
        tell(s, 0);
        join_all();
        close_all();
}

static void asks(struct side *s)
{
        accept_all(s);
        hear(s);
        for (int round = 0; round < 2; round++) {
                for (uint32_t i = 0; i < THREADS; i++)
                        CHECK(unet_send(one[i].sock, "?", 1, 0) == 1);
                for (uint32_t i = THREADS; i-- > 0;) {
                        char byte;
                        CHECK(unet_recv(one[i].sock, &byte, 1, 0) == 1 && byte == '?');
                }
        }
        for (uint32_t i = 0; i < THREADS; i++)
                CHECK(unet_shutdown(one[i].sock, SHUT_WR) == 0);
        for (uint32_t i = 0; i < THREADS; i++) {
                char byte;
                CHECK(unet_recv(one[i].sock, &byte, 1, 0) == 0);
        }
        close_all();
}

static void many_threads_sleep_in_recv(void **state)
{
        play(TWO_PROCESSES, echoes, asks, 0);
}

/* ---- all in accept() on one listener: a connection wakes one ---- */

static void *accept_one(void *arg)
{
        struct one *o = arg;

        o->sock = unet_accept(listener, NULL, NULL);
        CHECK(o->sock >= 0);
        CHECK(unet_send(o->sock, "!", 1, 0) == 1);
        return NULL;
}

static bool all_armed(struct ustack *u)
{
        ustack_lock(u);
        if (places(u->s.st, true) == THREADS)
                return true;
        ustack_leave(u);
        return false;
}

static uint32_t waited_for(struct stack *s)
{
        for (uint32_t i = 1; i < s->st->socks.fresh; i++)
                if (stack_sock(s, i)->refs != 0 && stack_sock(s, i)->waiters != 0)
                        return i;
        return 0;
}

/* As many events as threads, while none of those that were woken can look: each wakes one that
 * sleeps, or nobody. */
static void one_for_each_event(void)
{
        int err;
        struct ustack *u = ustack_mine(&err);
        uint32_t sock;

        EVENTUALLY(all_armed(u));
        sock = waited_for(&u->s);
        CHECK(sock != 0);
        for (uint32_t asleep = THREADS; asleep-- > 0;) {
                ustack_event(&u->s, sock, TCP_EV_ACCEPT);
                CHECK(places(u->s.st, true) == asleep);
        }
        ustack_event(&u->s, sock, TCP_EV_ACCEPT);
        ustack_leave(u);
}

static void accepts(struct side *s)
{
        listener = tcp_listen_any();
        start(accept_one);
        one_for_each_event();
        all_asleep(); /* there was nothing for them */
        tell(s, port_of(listener));
        join_all();
        tell(s, 0);
        close_all();
}

static void connects(struct side *s)
{
        uint16_t port = (uint16_t)hear(s);

        for (uint32_t i = 0; i < THREADS; i++) {
                one[i].sock = tcp_connect_to(port);
                CHECK(unet_recv(one[i].sock, &(char){0}, 1, 0) == 1);
        }
        hear(s);
        close_all();
}

static void a_connection_wakes_one_of_many(void **state)
{
        play(TWO_PROCESSES, accepts, connects, 0);
}

/* ---- all in recv() on one port: each datagram wakes one, also of those that come at once ---- */

#define AT_ONCE 20u

static void *take_one(void *arg)
{
        char byte;

        CHECK(unet_recv(listener, &byte, 1, 0) == 1 && byte == '!');
        return NULL;
}

static void takes(struct side *s)
{
        int err;
        struct ustack *u = ustack_mine(&err);
        struct sockaddr_in sa = loopback(0);

        listener = unet_socket(AF_INET, SOCK_DGRAM, 0);
        CHECK(unet_bind(listener, (struct sockaddr *)&sa, sizeof sa) == 0);
        tell(s, port_of(listener));
        take_one(NULL); /* there is a channel now */
        start(take_one);
        EVENTUALLY(all_armed(u));
        tell(s, 0);
        hear(s);
        stack_run(&u->s, ustack_now());
        CHECK(places(u->s.st, true) == THREADS - AT_ONCE);
        ustack_leave(u);
        EVENTUALLY(counted(true) == THREADS - AT_ONCE);
        tell(s, 0);
        join_all();
        CHECK(unet_close(listener) == 0);
}

static void gives(struct side *s)
{
        struct sockaddr_in sa = loopback((uint16_t)hear(s));
        int sock = unet_socket(AF_INET, SOCK_DGRAM, 0);

        CHECK(unet_connect(sock, (struct sockaddr *)&sa, sizeof sa) == 0);
        CHECK(unet_send(sock, "!", 1, 0) == 1);
        hear(s);
        for (uint32_t i = 0; i < THREADS; i++) {
                CHECK(unet_send(sock, "!", 1, 0) == 1);
                if (i + 1 == AT_ONCE) {
                        tell(s, 0);
                        hear(s);
                }
        }
        CHECK(unet_close(sock) == 0);
}

static void a_datagram_wakes_one_of_many(void **state)
{
        play(TWO_PROCESSES, takes, gives, 0);
}

/* ---- and when it stops listening, everybody ---- */

static void *accept_none(void *arg)
{
        CHECK_ERR(unet_accept(listener, NULL, NULL), EINVAL);
        return NULL;
}

static void stops_listening(struct side *s)
{
        listener = tcp_listen_any();
        start(accept_none);
        all_asleep();
        CHECK(unet_shutdown(listener, SHUT_RD) == 0);
        join_all();
        CHECK(unet_close(listener) == 0);
}

static void a_shutdown_wakes_all(void **state)
{
        assert_int_equal(play_alone(stops_listening, 0), 0);
}

/* ---- in poll() on two connections, in a poll set, and until a time ---- */

static void *poll_two(void *arg)
{
        struct one *o = arg;
        struct unet_pollfd v[2] = {{.sock = listener, .fd = -1, .events = POLLIN},
                                   {.sock = o->sock, .fd = -1, .events = POLLIN}};

        CHECK(unet_poll(v, 2, -1) == 1 && v[0].revents == 0 && v[1].revents == POLLIN);
        CHECK(unet_recv(o->sock, &(char){0}, 1, 0) == 1);
        return NULL;
}

static void *wait_in_set(void *arg)
{
        struct unet_event ev;

        CHECK(unet_pollset_wait(set, &ev, 1, -1) == 1);
        return NULL;
}

static void *recv_in_vain(void *arg)
{
        struct timeval tv = {.tv_usec = 50000};
        struct one *o = arg;

        CHECK(unet_setsockopt(o->sock, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
        CHECK_ERR(unet_recv(o->sock, &(char){0}, 1, 0), EAGAIN);
        return NULL;
}

static void polls(struct side *s)
{
        connect_all(s);
        start(recv_in_vain);
        join_all();
        listener = tcp_listen_any(); /* nobody comes */
        start(poll_two);
        all_asleep();
        tell(s, 0);
        join_all();
        CHECK((set = unet_pollset_create()) != NULL);
        CHECK(unet_pollset_add(set, one[0].sock, POLLIN, 0) == 0);
        start(wait_in_set);
        all_asleep();
        tell(s, 0);
        join_all();
        unet_pollset_destroy(set);
        tell(s, 0);
        close_all();
}

static void speaks(struct side *s)
{
        accept_all(s);
        hear(s);
        for (uint32_t i = 0; i < THREADS; i++)
                CHECK(unet_send(one[i].sock, "!", 1, 0) == 1);
        hear(s);
        CHECK(unet_send(one[0].sock, "!", 1, 0) == 1);
        hear(s);
        close_all();
}

static void they_wait_for_anything(void **state)
{
        play(TWO_PROCESSES, polls, speaks, 0);
}

/* ---- a process that dies with all its threads asleep ---- */

static void dies(struct side *s)
{
        pid_t pid;

        connect_all(s);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
                start(echo);
                EVENTUALLY(counted(true) == THREADS);
                _exit(kill(getpid(), SIGKILL));
        }
        CHECK(waitpid(pid, NULL, 0) == pid);
        EVENTUALLY(counted(false) == 0);
        start(echo);
        EVENTUALLY(counted(true) == THREADS);
        tell(s, 0);
        join_all();
        close_all();
}

static void a_death_leaves_nobody_asleep(void **state)
{
        play(TWO_PROCESSES, dies, asks, 0);
}

/* ---- a process dies between leaving the lock and waking whom it had chosen ---- */

#define DEAD_SLOT 40u

static void dies_before_it_wakes(struct side *s)
{
        int err;
        struct ustack *u = ustack_mine(&err);
        struct stack_state *st = u->s.st;

        connect_all(s);
        start(echo);
        all_asleep();
        ustack_lock(u);
        for (uint32_t i = 0; i < STACK_WAITERS; i++)
                atomic_store(&st->waiter[i].armed, 0);
        for (uint32_t i = 1; i < st->sleepers.fresh; i++)
                atomic_store(&stack_waiter(st, STACK_WAITERS + i)->armed, 0);
        atomic_store(&st->proc[DEAD_SLOT].pid, 1);
        atomic_store(&st->proc[DEAD_SLOT].waking, 1);
        ustack_proc_gone(u, DEAD_SLOT, ustack_now());
        ustack_leave(u);
        all_asleep(); /* each was woken, and sleeps again */
        tell(s, 0);
        join_all();
        close_all();
}

static void who_was_to_be_woken_by_the_dead_is(void **state)
{
        play(TWO_PROCESSES, dies_before_it_wakes, asks, 0);
}

/* True: a peer slept, for all we know had been rung, and was rung again after the death of who may
 * not have done it. */
static bool rings_for_the_dead(struct ustack *u)
{
        struct stack_state *st = u->s.st;
        uint64_t rung;

        ustack_lock(u);
        for (uint32_t k = 0; k < u->s.nchan; k++)
                if (u->chan[k].bell != NULL)
                        st->chan[k].shm.rung = atomic_load(&u->chan[k].bell->word);
        rung = st->cnt.n[COUNT_NI_BELLS];
        atomic_store(&st->proc[DEAD_SLOT].pid, 1);
        atomic_store(&st->proc[DEAD_SLOT].waking, 1);
        ustack_proc_gone(u, DEAD_SLOT, ustack_now());
        rung = st->cnt.n[COUNT_NI_BELLS] - rung;
        ustack_leave(u);
        return rung != 0;
}

static void dies_before_it_rings(struct side *s)
{
        int err;
        struct ustack *u = ustack_mine(&err);

        connect_all(s);
        EVENTUALLY(rings_for_the_dead(u));
        CHECK(unet_send(one[0].sock, "?", 1, 0) == 1);
        CHECK(unet_recv(one[0].sock, &(char){0}, 1, 0) == 1);
        close_all();
}

static void answers_one(struct side *s)
{
        accept_all(s);
        CHECK(unet_recv(one[0].sock, &(char){0}, 1, 0) == 1);
        CHECK(unet_send(one[0].sock, "!", 1, 0) == 1);
        close_all();
}

static void who_was_to_be_rung_by_the_dead_is(void **state)
{
        play(TWO_PROCESSES, dies_before_it_rings, answers_one, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(many_threads_sleep_in_recv),
                cmocka_unit_test(a_connection_wakes_one_of_many),
                cmocka_unit_test(a_datagram_wakes_one_of_many),
                cmocka_unit_test(a_shutdown_wakes_all),
                cmocka_unit_test(they_wait_for_anything),
                cmocka_unit_test(a_death_leaves_nobody_asleep),
                cmocka_unit_test(who_was_to_be_woken_by_the_dead_is),
                cmocka_unit_test(who_was_to_be_rung_by_the_dead_is),
        };

        return run_sides(tests);
}
