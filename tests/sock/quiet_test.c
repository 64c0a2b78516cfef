/*
 * Channels that nobody looks at (netstack/stack_quiet.c), between stacks that make each of them so
 * in every turn: what comes by one is heard all the same, by who polls and by who sleeps. Nobody
 * looks at them for another reason (ustack_peers_look()), so that a ring that was lost ends the
 * test.
 */
#include "tests/sock/sides.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "unet/bell_fd.h"

#define PEERS  6u
#define ROUNDS (3000 / SLOWER)

static struct peer {
        pid_t pid;
        int sock;
        pthread_t thread;
} peer[PEERS];
static int ports[2]; /* a pipe */

static struct ustack *mine(void)
{
        int err;
        struct ustack *u = ustack_mine(&err);

        CHECK(u != NULL);
        return u;
}

/* From here on each turn makes quiet what was idle since the last one. */
static void be_quiet_at_once(void)
{
        struct ustack *u = mine();

        ustack_lock(u);
        WRITE_ONCE(u->peers_at, NSTIME_NEVER);
        u->s.st->quiet_few = 0;
        u->s.st->quiet_after = u->s.st->sweep_at = 0;
        ustack_leave(u);
}

static uint32_t quiet_channels(void)
{
        struct ustack *u = mine();
        uint32_t n = 0;

        ustack_lock(u);
        for (uint32_t k = 0; k < u->s.nchan; k++)
                n += u->s.chan[k].ops != NULL &&
                     !(atomic_load(&u->s.st->hot[k / 64]) >> k % 64 & 1);
        ustack_leave(u);
        return n;
}

/* Now and then for so long that the other side sleeps, and seldom that its keeper does. */
static void pause_at_times(uint64_t *seed)
{
        uint64_t x = rnd(seed);

        if (x % 32 == 0)
                sleep_ms((int)(x / 32 % 3));
        else if (x % 512 == 1)
                sleep_ms(80);
}

static void ask(int sock, uint64_t *seed)
{
        uint64_t said = rnd(seed), heard;

        pause_at_times(seed);
        CHECK(unet_send(sock, &said, sizeof said, 0) == sizeof said);
        CHECK(unet_recv(sock, &heard, sizeof heard, MSG_WAITALL) == sizeof heard && heard == said);
}

static void answer_all(int sock, uint64_t seed)
{
        uint64_t said;

        while (unet_recv(sock, &said, sizeof said, MSG_WAITALL) == sizeof said) {
                pause_at_times(&seed);
                CHECK(unet_send(sock, &said, sizeof said, 0) == sizeof said);
        }
        CHECK(unet_close(sock) == 0);
}

/* ---- a program with peers, each a program of its own ---- */

static void begin_peers(void (*plays)(int sock, uint64_t seed))
{
        test_seed(); /* once, for all */
        CHECK(pipe(ports) == 0);
        for (uint32_t i = 0; i < PEERS; i++) {
                uint16_t port;
                int sock;

                peer[i].pid = fork();
                CHECK(peer[i].pid >= 0);
                if (peer[i].pid != 0)
                        continue;
                CHECK(read(ports[0], &port, sizeof port) == sizeof port);
                sock = tcp_connect_to(port);
                be_quiet_at_once();
                plays(sock, test_seed() + i);
                exit(0);
        }
}

static void accept_peers(void)
{
        int l = tcp_listen_any();
        uint16_t port = port_of(l);

        be_quiet_at_once();
        for (uint32_t i = 0; i < PEERS; i++)
                CHECK(write(ports[1], &port, sizeof port) == sizeof port);
        for (uint32_t i = 0; i < PEERS; i++) {
                peer[i].sock = unet_accept(l, NULL, NULL);
                CHECK(peer[i].sock >= 0);
        }
        CHECK(unet_close(l) == 0);
}

static void end_peers(void)
{
        int status;

        for (uint32_t i = 0; i < PEERS; i++)
                CHECK(waitpid(peer[i].pid, &status, 0) == peer[i].pid && status == 0);
}

/* ---- it asks them ---- */

static void asks_peers(struct side *s)
{
        uint64_t seed = test_seed();
        uint32_t quiet = 0;

        begin_peers(answer_all);
        accept_peers();
        for (uint32_t i = 0; i < ROUNDS; i++) {
                ask(peer[rnd(&seed) % PEERS].sock, &seed);
                quiet += quiet_channels();
        }
        CHECK(quiet > ROUNDS);
        for (uint32_t i = 0; i < PEERS; i++)
                CHECK(unet_close(peer[i].sock) == 0);
        end_peers();
}

/* ---- it asks them, and the keeper, which is rung for quiet channels, hears nothing ---- */

/* It waits for something to do: so it does not hold the lock of a stack. If others may not look at
 * it, to open or to read what is there, that is believed. */
static bool is_idle(pid_t pid)
{
        char path[64], text[256] = "";
        long call, n;
        int fd;

        snprintf(path, sizeof path, "/proc/%d/syscall", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        n = read(fd, text, sizeof text - 1);
        close(fd);
        return n < 0 || (sscanf(text, "%ld", &call) == 1 &&
                         (call == SYS_epoll_wait || call == SYS_epoll_pwait));
}

static bool is_stopped(pid_t pid)
{
        char path[64], state = 0;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        f = fopen(path, "re");
        CHECK(f != NULL && fscanf(f, "%*d (%*[^)]) %c", &state) == 1);
        fclose(f);
        return state == 'T';
}

static void stop_while_idle(pid_t pid)
{
        for (;;) {
                CHECK(kill(pid, SIGSTOP) == 0);
                while (!is_stopped(pid))
                        sleep_ms(1);
                if (is_idle(pid))
                        return;
                CHECK(kill(pid, SIGCONT) == 0);
                sleep_ms(1);
        }
}

static void asks_without_keeper(struct side *s)
{
        uint64_t seed = test_seed();
        pid_t keeper;

        begin_peers(answer_all);
        accept_peers();
        keeper = world_keeper();
        CHECK(keeper > 0);
        stop_while_idle(keeper);
        for (uint32_t i = 0; i < ROUNDS / 6; i++)
                ask(peer[rnd(&seed) % PEERS].sock, &seed);
        CHECK(kill(keeper, SIGCONT) == 0);
        for (uint32_t i = 0; i < PEERS; i++)
                CHECK(unet_close(peer[i].sock) == 0);
        end_peers();
}

/* A check that fails leaves it stopped. */
static int let_the_keeper_go_on(void **state)
{
        pid_t keeper = world_keeper();

        return keeper > 0 ? kill(keeper, SIGCONT) : 0;
}

static void peers_are_heard_while_the_keeper_is_stopped(void **state)
{
        assert_int_equal(play_alone(asks_without_keeper, 0), 0);
}

static void peers_are_heard_when_they_answer(void **state)
{
        assert_int_equal(play_alone(asks_peers, 0), 0);
}

/* ---- it is asked by them: a thread for each, of which one leads ---- */

static void asks_and_leaves(int sock, uint64_t seed)
{
        for (uint32_t i = 0; i < ROUNDS / 2; i++)
                ask(sock, &seed);
        CHECK(unet_close(sock) == 0);
}

static void *answers_one(void *arg)
{
        const struct peer *p = arg;

        answer_all(p->sock, test_seed() + (uint64_t)p->pid);
        return NULL;
}

static void answers_peers(struct side *s)
{
        begin_peers(asks_and_leaves);
        accept_peers();
        for (uint32_t i = 0; i < PEERS; i++)
                CHECK(pthread_create(&peer[i].thread, NULL, answers_one, &peer[i]) == 0);
        for (uint32_t i = 0; i < PEERS; i++)
                CHECK(pthread_join(peer[i].thread, NULL) == 0);
        end_peers();
}

static void peers_are_heard_when_they_ask(void **state)
{
        assert_int_equal(play_alone(answers_peers, 0), 0);
}

/* ---- it waits for somebody, and is rung for nothing ---- */

static void *accepts_one(void *listener)
{
        int sock = unet_accept(*(int *)listener, NULL, NULL);

        CHECK(sock >= 0 && unet_close(sock) == 0);
        return NULL;
}

static uint32_t sleeps_of(struct ustack *u)
{
        uint32_t sleeps;

        ustack_lock(u);
        sleeps = u->s.st->sleeps;
        ustack_leave(u);
        return sleeps;
}

/* Whoever waits wakes, and sleeps again. */
static void ring(struct ustack *u)
{
        uint32_t sleeps = sleeps_of(u);

        CHECK(bell_ring(u->fds.ring_leader));
        EVENTUALLY(sleeps_of(u) != sleeps);
}

static void waits_for_long(struct side *s)
{
        int l = tcp_listen_any(), sock;
        struct ustack *u = mine();
        pthread_t thread;

        CHECK(pthread_create(&thread, NULL, accepts_one, &l) == 0);
        sleep_ms(USTACK_PEERS_EVERY / NS_PER_MS + 100);
        ring(u);
        ustack_lock(u);
        WRITE_ONCE(u->peers_at, NSTIME_NEVER);
        ustack_leave(u);
        ring(u);
        CHECK(READ_ONCE(u->peers_at) == NSTIME_NEVER); /* nobody has looked at all peers */
        sock = tcp_connect_to(port_of(l));
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(unet_close(sock) == 0 && unet_close(l) == 0);
}

static void who_is_rung_in_vain_does_not_look_at_all_peers(void **state)
{
        assert_int_equal(play_alone(waits_for_long, 0), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(peers_are_heard_when_they_answer),
                cmocka_unit_test(peers_are_heard_when_they_ask),
                cmocka_unit_test(who_is_rung_in_vain_does_not_look_at_all_peers),
                cmocka_unit_test_teardown(peers_are_heard_while_the_keeper_is_stopped,
                                          let_the_keeper_go_on),
        };

        return run_sides(tests);
}
