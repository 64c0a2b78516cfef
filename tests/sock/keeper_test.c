/*
 * What dead processes leave is finished: everything that send() took arrives, whether the process
 * exited or was killed, and the peer sees the end. Hundreds of rounds of each, a thousand in a long
 * run (fewer under sanitizers, which cost ten times as much), leave nothing behind in unetd and in
 * the keeper.
 */
#include "tests/long_run.h"
#include "tests/sock/sides.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (4u << 20) /* more than buffers hold at once: the rest was not taken */

static uint8_t data[BYTES];

/* The address sanitizer keeps what is freed, the thread sanitizer remembers who touched it. */
#define HOARDS (SLOWER > 1)

/* Sends without blocking as much as is taken, and says how much. */
static uint64_t send_what_is_taken(int c, uint64_t seed)
{
        uint64_t at = 0;
        ssize_t n;

        fill(data, BYTES, seed, 0);
        while (at < BYTES && (n = unet_send(c, data + at, BYTES - at, MSG_DONTWAIT)) > 0)
                at += (uint64_t)n;
        return at;
}

/* All of it, and then the end of the stream or a reset. */
static void expect_bytes(int c, uint64_t seed, uint64_t want)
{
        uint64_t at = 0;
        ssize_t n;

        while ((n = unet_recv(c, data, BYTES, 0)) > 0) {
                CHECK(filled(data, (size_t)n, seed, at));
                at += (uint64_t)n;
        }
        CHECK(n == 0 || errno == ECONNRESET);
        CHECK(at == want);
}

/* ---- exit right after send ---- */

static void exits_a(struct side *s)
{
        int c = side_connect(s);

        tell(s, send_what_is_taken(c, s->arg));
        _exit(0);
}

static void ends_normally_a(struct side *s)
{
        int c = side_connect(s);

        tell(s, send_what_is_taken(c, s->arg));
        exit(0);
}

static void receives_b(struct side *s)
{
        int c = side_accept(s);
        uint64_t want = hear(s);

        CHECK(want > 0);
        expect_bytes(c, s->arg, want);
}

static void all_that_was_sent_arrives_after_exit(void **state)
{
        for (uint64_t i = 0; i < 20; i++) {
                play(TWO_PROCESSES, exits_a, receives_b, test_seed() + i);
                play(TWO_PROCESSES, ends_normally_a, receives_b, test_seed() + i);
        }
}

/* ---- killed ---- */

static void killed_a(struct side *s)
{
        int c = side_connect(s);

        tell(s, (uint64_t)getpid());
        tell(s, send_what_is_taken(c, s->arg));
        pause();
}

/* Kills the other side, and does as if it had ended well: play() sees only this side. */
static void killer_b(struct side *s)
{
        int c = side_accept(s);
        pid_t other = (pid_t)hear(s);
        uint64_t want = hear(s);

        kill(other, SIGKILL);
        expect_bytes(c, s->arg, want);
}

/* A side that is started, and whose death is what it is for. */
static void victim(struct side *s)
{
        pid_t pid = fork();
        int status;

        CHECK(pid >= 0);
        if (pid == 0) {
                killed_a(s);
                _exit(1);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

static void what_was_taken_arrives_after_a_kill(void **state)
{
        for (uint64_t i = 0; i < 20; i++)
                play(TWO_PROCESSES, victim, killer_b, test_seed() + i);
}

/* Nothing was sent: the peer, asleep in recv, learns of the death by itself. */
static void silent_a(struct side *s)
{
        pid_t pid = fork();

        if (pid == 0) {
                side_connect(s);
                tell(s, (uint64_t)getpid());
                pause();
        }
        waitpid(pid, NULL, 0);
}

static void silent_b(struct side *s)
{
        int c = side_accept(s);
        pid_t other = (pid_t)hear(s);
        char b;

        kill(other, SIGKILL);
        CHECK(unet_recv(c, &b, 1, 0) <= 0);
}

static void a_sleeper_learns_that_its_peer_was_killed(void **state)
{
        for (int i = 0; i < 10; i++)
                play(TWO_PROCESSES, silent_a, silent_b, 0);
}

/* A listener's process dies: its port is refused, and free again. */
static void listener_dies(struct side *s)
{
        int pipes[2], c;
        uint64_t port;
        struct sockaddr_in a;
        pid_t pid;

        CHECK(pipe(pipes) == 0);
        pid = fork();
        if (pid == 0) {
                port = port_of(tcp_listen_at(own_port()));
                CHECK(write(pipes[1], &port, sizeof port) == sizeof port);
                pause();
        }
        CHECK(read(pipes[0], &port, sizeof port) == sizeof port);
        a = loopback((uint16_t)port);
        c = tcp_connect_to((uint16_t)port);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        CHECK(unet_recv(c, &(char){0}, 1, 0) <= 0);
        CHECK(unet_close(c) == 0);
        c = unet_socket(AF_INET, SOCK_STREAM, 0);
        EVENTUALLY(unet_connect(c, (struct sockaddr *)&a, sizeof a) < 0 && errno == ECONNREFUSED);
        EVENTUALLY(unet_bind(c, (struct sockaddr *)&a, sizeof a) == 0);
}

static void a_dead_listener_gives_its_port_back(void **state)
{
        for (int i = 0; i < 5; i++)
                assert_int_equal(play_alone(listener_dies, 0), 0);
}

/* ---- fork ---- */

static void fork_a(struct side *s)
{
        int c = side_connect(s), status;
        pid_t pid = fork();

        if (pid == 0) {
                CHECK(unet_send(c, "child.", 6, 0) == 6);
                _exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        CHECK(unet_send(c, "parent", 6, 0) == 6);
        pid = fork();
        if (pid == 0) {
                hear(s); /* the parent has gone: the connection is the child's alone */
                CHECK(unet_send(c, "orphan", 6, 0) == 6);
                CHECK(unet_close(c) == 0);
                _exit(0);
        }
        _exit(0);
}

static void fork_b(struct side *s)
{
        int c = side_accept(s);
        char buf[16];

        CHECK(unet_recv(c, buf, 12, MSG_WAITALL) == 12 && memcmp(buf, "child.parent", 12) == 0);
        sleep_ms(50);
        CHECK_ERR(unet_recv(c, buf, 1, MSG_DONTWAIT), EAGAIN);
        tell(s, 0);
        CHECK(unet_recv(c, buf, 6, MSG_WAITALL) == 6 && memcmp(buf, "orphan", 6) == 0);
        CHECK(unet_recv(c, buf, 1, 0) == 0);
}

static void a_connection_outlives_the_process_that_made_it(void **state)
{
        play(TWO_PROCESSES, fork_a, fork_b, 0);
}

/* ---- peers come and go while a thread looks ---- */

static _Atomic bool look_on;

static void *look(void *arg)
{
        struct unet_pollfd p = {.sock = *(int *)arg, .fd = -1, .events = POLLIN};

        while (look_on)
                unet_poll(&p, 1, 0);
        return NULL;
}

static void short_life(uint16_t port)
{
        int c = tcp_connect_to(port);

        CHECK(unet_send(c, "x", 1, 0) == 1);
        CHECK(unet_recv(c, &(char){0}, 1, 0) == 1);
        _exit(0);
}

/* The queues of dead peers are looked at by a thread that holds no lock, while another one lets go
 * of them.
 */
static void come_and_go(struct side *s)
{
        int ports[2], l, status;
        uint64_t port;
        pthread_t t;
        pid_t pid;

        CHECK(pipe(ports) == 0);
        pid = fork();
        if (pid == 0) {
                CHECK(read(ports[0], &port, sizeof port) == sizeof port);
                for (int i = 0; i < 200; i++) {
                        pid_t one = fork();
                        if (one == 0)
                                short_life((uint16_t)port);
                        CHECK(waitpid(one, &status, 0) == one && status == 0);
                }
                _exit(0);
        }
        l = tcp_listen_any();
        look_on = true;
        CHECK(pthread_create(&t, NULL, look, &l) == 0);
        port = port_of(l);
        CHECK(write(ports[1], &port, sizeof port) == sizeof port);
        for (int i = 0; i < 200; i++) {
                int c = unet_accept(l, NULL, NULL);
                CHECK(unet_recv(c, &(char){0}, 1, 0) == 1 && unet_send(c, "y", 1, 0) == 1);
                CHECK(unet_close(c) == 0);
        }
        look_on = false;
        pthread_join(t, NULL);
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void peers_come_and_go_while_a_thread_looks(void **state)
{
        assert_int_equal(play_alone(come_and_go, 0), 0);
}

/* ---- a thousand rounds ---- */

struct size {
        int fds;
        long rss_kb;
};

static struct size size_of(pid_t pid)
{
        struct size z = {0, 0};
        struct dirent *e;
        char path[64];
        long total;
        FILE *f;
        DIR *d;

        snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
        d = opendir(path);
        while (d != NULL && (e = readdir(d)) != NULL)
                z.fds += e->d_name[0] != '.';
        if (d != NULL)
                closedir(d);
        snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
        f = fopen(path, "r");
        if (f != NULL && fscanf(f, "%ld %ld", &total, &z.rss_kb) == 2)
                z.rss_kb *= 4;
        if (f != NULL)
                fclose(f);
        return z;
}

static uint16_t server_port;
static int server_pipe[2];

/* One process that serves all rounds, and says how much it got. It looks into its stack now and
 * then: channels of dead peers are kept as long as a process may have them mapped. */
static void server(void)
{
        int l = tcp_listen_any();
        struct timeval tv = {0, 20000};
        uint64_t port = port_of(l), got;

        CHECK(unet_setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
        CHECK(write(server_pipe[1], &port, sizeof port) == sizeof port);
        for (;;) {
                int c = unet_accept(l, NULL, NULL);
                ssize_t n;
                if (c < 0 && errno == EAGAIN)
                        continue;
                CHECK(c >= 0);
                tv.tv_sec = PATIENCE_MS / 1000;
                CHECK(unet_setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
                got = 0;
                while ((n = unet_recv(c, data, BYTES, 0)) > 0)
                        got += (uint64_t)n;
                CHECK(unet_close(c) == 0);
                CHECK(write(server_pipe[1], &got, sizeof got) == sizeof got);
        }
}

#define ROUND_BYTES 100000

static void round_client(struct side *s)
{
        int c = tcp_connect_to(server_port);

        CHECK(unet_send(c, data, ROUND_BYTES, 0) == ROUND_BYTES);
        if (s->arg)
                kill(getpid(), SIGKILL);
        _exit(0);
}

static void one_round(bool die)
{
        uint64_t got;

        assert_int_equal(play_alone(round_client, die), die ? 256 + SIGKILL : 0);
        assert_int_equal(read(server_pipe[0], &got, sizeof got), sizeof got);
        assert_int_equal(got, ROUND_BYTES);
}

/* When they have not changed for a while. */
static void settle(struct size *daemon, struct size *keeper)
{
        for (int i = 0, same = 0; i < 400 && same < 30; i++) {
                struct size d = size_of(world_unetd()), k = size_of(world_keeper());
                same = d.fds == daemon->fds && k.fds == keeper->fds ? same + 1 : 0;
                *daemon = d;
                *keeper = k;
                sleep_ms(50);
        }
}

/* However busy the machine: what is still to be given back will be. */
static void settle_to(int daemon_fds, int keeper_fds, struct size *daemon, struct size *keeper)
{
        int64_t until = now_ms() + PATIENCE_MS;

        do
                settle(daemon, keeper);
        while ((daemon->fds > daemon_fds || keeper->fds > keeper_fds) && now_ms() < until);
}

/* A log tells by this what was not given back. */
static void print_descriptors(const char *who, pid_t pid)
{
        char path[64], link[320], to[256];
        struct dirent *e;
        DIR *d;

        snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
        d = opendir(path);
        while (d != NULL && (e = readdir(d)) != NULL) {
                snprintf(link, sizeof link, "%s/%s", path, e->d_name);
                ssize_t n = readlink(link, to, sizeof to - 1);
                to[n < 0 ? 0 : n] = 0;
                if (n > 0)
                        print_message("%s: %s %s\n", who, e->d_name, to);
        }
        if (d != NULL)
                closedir(d);
}

static void rounds(int from, int to)
{
        for (int i = from; i < to; i++) {
                one_round(false);
                one_round(true);
        }
}

static void print_sizes(const char *who, const struct size *a, const struct size *b)
{
        print_message("%s: %d descriptors, %ld kB; then %d, %ld kB\n", who, a->fds, a->rss_kb,
                      b->fds, b->rss_kb);
}

/* ---- who connects when a server is no more, and the keeper does not know that yet ---- */

static pid_t start_listener(uint16_t *port)
{
        int p[2], l;
        pid_t pid;

        CHECK(pipe(p) == 0);
        pid = fork();
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                l = tcp_listen_any();
                *port = port_of(l);
                CHECK(write(p[1], port, sizeof *port) == sizeof *port);
                for (;;)
                        unet_close(unet_accept(l, NULL, NULL));
        }
        CHECK(read(p[0], port, sizeof *port) == sizeof *port);
        close(p[0]);
        close(p[1]);
        return pid;
}

static uint64_t wakes_of(pid_t pid)
{
        char path[40], line[128];
        uint64_t n = 0;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/status", pid);
        f = fopen(path, "re");
        CHECK(f != NULL);
        while (fgets(line, sizeof line, f) != NULL)
                if (strncmp(line, "voluntary_ctxt_switches:", 24) == 0)
                        n = strtoull(line + 24, NULL, 10);
        fclose(f);
        return n;
}

/* It looks in every few milliseconds before that. */
static void until_it_rests(pid_t pid)
{
        uint64_t before;

        do {
                before = wakes_of(pid);
                sleep_ms(200);
        } while (wakes_of(pid) != before);
}

static void connects_after_the_end(struct side *s)
{
        struct unet_pollfd v = {.fd = -1, .events = POLLOUT};
        pid_t server, keeper;
        struct sockaddr_in sa;
        socklen_t len = sizeof(int);
        uint16_t port;
        int err = 0;

        server = start_listener(&port);
        CHECK(unet_close(tcp_connect_to(port)) == 0);
        keeper = world_keeper();
        CHECK(keeper > 0);
        until_it_rests(keeper);
        CHECK(kill(keeper, SIGSTOP) == 0);
        CHECK(kill(server, SIGKILL) == 0 && waitpid(server, NULL, 0) == server);
        v.sock = unet_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        sa = loopback(port);
        CHECK_ERR(unet_connect(v.sock, (struct sockaddr *)&sa, sizeof sa), EINPROGRESS);
        CHECK(kill(keeper, SIGCONT) == 0);
        CHECK(unet_poll(&v, 1, PATIENCE_MS) == 1);
        CHECK(unet_getsockopt(v.sock, SOL_SOCKET, SO_ERROR, &err, &len) == 0);
        CHECK(err == ECONNREFUSED);
        CHECK(unet_close(v.sock) == 0);
}

static void a_server_that_is_no_more_refuses(void **state)
{
        assert_int_equal(play_alone(connects_after_the_end, 0), 0);
}

/* A check that fails leaves it stopped. */
static int let_the_keeper_go_on(void **state)
{
        pid_t keeper = world_keeper();

        return keeper > 0 ? kill(keeper, SIGCONT) : 0;
}

/* Of each kind; a leak of one descriptor a round is seen after a few. */
#define FIRST_ROUNDS (HOARDS || !long_run() ? 50 : 100)
#define ALL_ROUNDS   (!long_run() ? 200 : HOARDS ? 250 : 1000)

/* What an allocator may keep, and the pages of channel numbers that were in use: the lowest free
 * one is taken, and on a busy machine hundreds are not free yet. A few kilobytes each, 1,024 at
 * most. */
#define KEPT_KB 2048

/* Descriptors exactly, memory but for what may be kept: after the first rounds and after all of
 * them. */
static void many_rounds_leave_nothing_behind(void **state)
{
        struct size d1 = {0, 0}, k1 = d1, d2 = d1, k2 = d1;
        uint64_t port;
        pid_t pid;

        assert_int_equal(pipe(server_pipe), 0);
        pid = fork();
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                server();
        }
        assert_int_equal(read(server_pipe[0], &port, sizeof port), sizeof port);
        server_port = (uint16_t)port;
        assert_true(world_keeper() > 0);
        rounds(0, FIRST_ROUNDS);
        settle(&d1, &k1);
        rounds(FIRST_ROUNDS, ALL_ROUNDS);
        settle_to(d1.fds, k1.fds, &d2, &k2);
        print_sizes("unetd", &d1, &d2);
        print_sizes("keeper", &k1, &k2);
        if (d2.fds > d1.fds)
                print_descriptors("unetd", world_unetd());
        if (k2.fds > k1.fds)
                print_descriptors("keeper", world_keeper());
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_in_range(d2.fds, 1, d1.fds);
        assert_in_range(k2.fds, 1, k1.fds);
        assert_true(HOARDS || d2.rss_kb < d1.rss_kb + KEPT_KB);
        assert_true(HOARDS || k2.rss_kb < k1.rss_kb + KEPT_KB);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(all_that_was_sent_arrives_after_exit),
                cmocka_unit_test(what_was_taken_arrives_after_a_kill),
                cmocka_unit_test(a_sleeper_learns_that_its_peer_was_killed),
                cmocka_unit_test(a_dead_listener_gives_its_port_back),
                cmocka_unit_test_teardown(a_server_that_is_no_more_refuses, let_the_keeper_go_on),
                cmocka_unit_test(a_connection_outlives_the_process_that_made_it),
                cmocka_unit_test(peers_come_and_go_while_a_thread_looks),
                cmocka_unit_test(many_rounds_leave_nothing_behind),
        };

        return run_sides(tests);
}
