/*
 * A server of many client programs: each is a stack of its own, and all of them are accelerated.
 * They cost the server no descriptors.
 *
 *     sock_peers_test [PEERS]
 */
#include "tests/sock/sides.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sock/attach/ustack.h"
#include "sock/usock_process.h"

#define OWN_FDS 16 /* the library's are fewer, whatever a program does */

static uint32_t peers = SLOWER > 1 ? 100 : 300; /* more than the 64 that a word has bits for */
static struct peer {
        pid_t pid;
        int sock; /* the server's */
} peer[STACK_CHANS];
static int start[2], stay[2];

/* A client program: says who it is, and answers all that it is told until the server ends it. */
static void client(uint32_t me)
{
        uint16_t port;
        uint32_t said;
        int sock;

        CHECK(close(stay[1]) == 0);
        CHECK(read(start[0], &port, sizeof port) == sizeof port);
        sock = tcp_connect_to(port);
        CHECK(unet_send(sock, &me, sizeof me, 0) == sizeof me);
        while (unet_recv(sock, &said, sizeof said, MSG_WAITALL) == sizeof said)
                CHECK(unet_send(sock, &said, sizeof said, 0) == sizeof said);
        CHECK(unet_close(sock) == 0);
        exit(0);
}

/* The others would wait for it, and the server for them. */
static void a_client_ended(int sig)
{
        siginfo_t how = {0};

        if (waitid(P_ALL, 0, &how, WEXITED | WNOHANG | WNOWAIT) == 0 && how.si_pid != 0 &&
            (how.si_code != CLD_EXITED || how.si_status != 0))
                _exit(1);
}

static void begin_clients(void)
{
        CHECK(pipe(start) == 0 && pipe(stay) == 0);
        CHECK(signal(SIGCHLD, a_client_ended) != SIG_ERR);
        for (uint32_t i = 0; i < peers; i++) {
                peer[i].pid = fork();
                CHECK(peer[i].pid >= 0);
                if (peer[i].pid == 0)
                        client(i);
        }
}

static void accept_clients(void)
{
        int l = tcp_listen_any();
        uint16_t port = port_of(l);

        for (uint32_t i = 0; i < peers; i++)
                CHECK(write(start[1], &port, sizeof port) == sizeof port);
        for (uint32_t i = 0; i < peers; i++) {
                int sock = unet_accept(l, NULL, NULL);
                uint32_t who = peers;
                CHECK(unet_recv(sock, &who, sizeof who, MSG_WAITALL) == sizeof who && who < peers);
                CHECK(peer[who].sock == 0);
                peer[who].sock = sock;
        }
        CHECK(unet_close(l) == 0);
}

static uint32_t channels(void)
{
        int err;
        const struct stack_state *st = ustack_mine(&err)->s.st;
        uint32_t n = 0;

        for (uint32_t k = 0; k < STACK_CHANS; k++)
                n += atomic_load(&st->chan[k].state) != CHAN_FREE;
        return n;
}

/* Each by itself, and then all at once. */
static void ask_clients(void)
{
        uint32_t said;

        for (uint32_t i = 0; i < peers; i++) {
                CHECK(unet_send(peer[i].sock, &i, sizeof i, 0) == sizeof i);
                CHECK(unet_recv(peer[i].sock, &said, sizeof said, MSG_WAITALL) == sizeof said);
                CHECK(said == i);
        }
        for (uint32_t i = 0; i < peers; i++)
                CHECK(unet_send(peer[i].sock, &i, sizeof i, 0) == sizeof i);
        for (uint32_t i = peers; i-- > 0;) {
                CHECK(unet_recv(peer[i].sock, &said, sizeof said, MSG_WAITALL) == sizeof said);
                CHECK(said == i);
        }
}

static uint32_t own_fds(void)
{
        DIR *d = opendir("/proc/self/fd");
        const struct dirent *e;
        uint32_t n = 0;

        CHECK(d != NULL);
        while ((e = readdir(d)) != NULL)
                n += usock_owns_fd(atoi(e->d_name));
        closedir(d);
        return n;
}

static void end_clients(void)
{
        int status;

        CHECK(signal(SIGCHLD, SIG_DFL) != SIG_ERR); /* under TSan it interrupts waitpid() */
        for (uint32_t i = 0; i < peers; i++)
                CHECK(unet_close(peer[i].sock) == 0);
        for (uint32_t i = 0; i < peers; i++)
                CHECK(waitpid(peer[i].pid, &status, 0) == peer[i].pid && status == 0);
}

static void serves(struct side *s)
{
        begin_clients();
        accept_clients();
        CHECK(channels() == peers);
        ask_clients();
        CHECK(own_fds() > 2 && own_fds() < OWN_FDS);
        end_clients();
        EVENTUALLY(channels() == 0);
}

static void many_programs_are_peers_of_one(void **state)
{
        assert_int_equal(play_alone(serves, 0), 0);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(many_programs_are_peers_of_one),
        };

        if (argc > 1)
                peers = (uint32_t)MIN(strtoul(argv[1], NULL, 0), STACK_CHANS);
        return run_sides(tests);
}
