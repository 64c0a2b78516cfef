/*
 * kill -9 at random moments. A process with connections to a peer forks a child that shares its
 * stack and uses some of them; the child is killed after a random time, over and over. Every
 * connection carries exactly the bytes written to it, whatever the child was doing, and none is
 * reset.
 *
 * What the child had been about to do when it died is known from notes in shared memory: before a
 * call it notes how many bytes the call may move, after it how many it moved. The peer then says
 * how far it got.
 */
#include "tests/sock/sides.h"

#include <linux/sockios.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "unet/flow.h"

#define CONNS   8
#define CHILDS  4    /* connections from here on are the child's while it lives */
#define PASSING 255u /* the number of connections that come and go */
#define CHUNK   20000u
#define ROUNDS  (1000 / SLOWER)
#define DEATHS  (200 / SLOWER) /* of a process that has its stack to itself */
#define RESET   UINT64_MAX

struct hello {
        uint64_t seed, number;
};

/* One connection as its owner, parent or child, knows it. */
struct line {
        uint64_t seed;
        _Atomic uint64_t sent, sent_try; /* bytes moved for certain; bytes moved at most */
        _Atomic uint64_t got, got_try;
        int sock;
};

static struct shared {
        struct line line[CONNS];
        uint64_t seeds;
        uint16_t port;
        _Atomic uint64_t ops;
} * sh;

static uint8_t buf[CHUNK];

static uint64_t peer_seed(uint64_t seed)
{
        return seed ^ 0x5555;
}

/* ---- the peer: reads, checks and writes on whatever it accepts ---- */

#define PEER_CONNS 64

struct peer_conn {
        int sock;
        bool greeted, sends;
        struct hello hello;
        uint64_t got, sent;
};

static struct peer_conn peer[PEER_CONNS];

static void peer_close(struct peer_conn *p)
{
        CHECK(unet_close(p->sock) == 0);
        *p = (struct peer_conn){.sock = -1};
}

static void peer_greeting(struct peer_conn *p)
{
        ssize_t n = unet_recv(p->sock, &p->hello, sizeof p->hello, MSG_DONTWAIT | MSG_PEEK);

        if (n == 0 || (n < 0 && errno != EAGAIN)) {
                peer_close(p);
        } else if (n == sizeof p->hello) {
                CHECK(unet_recv(p->sock, &p->hello, sizeof p->hello, 0) == n);
                p->greeted = true;
        }
}

/* By loan, or by a copy. */
static ssize_t peer_take(struct peer_conn *p)
{
        struct unet_loan v = {.ptr = buf};
        ssize_t n;

        if (p->got % 3 == 0) {
                n = unet_recv_lend(p->sock, &v, 1, MSG_DONTWAIT);
                n = n > 0 ? (ssize_t)v.len : n;
        } else {
                n = unet_recv(p->sock, buf, sizeof buf, MSG_DONTWAIT);
        }
        if (n > 0)
                CHECK(filled(v.ptr, (size_t)n, p->hello.seed, p->got));
        if (n > 0 && v.ptr != buf)
                CHECK(unet_recv_return(p->sock, &v, 1) == 0);
        return n;
}

/* Everything there is. */
static void peer_read(struct peer_conn *p)
{
        ssize_t n;

        if (!p->greeted)
                peer_greeting(p);
        while (p->greeted && (n = peer_take(p)) != -1) {
                if (n == 0) {
                        peer_close(p);
                        return;
                }
                p->got += (uint64_t)n;
        }
        if (p->greeted && errno != EAGAIN)
                peer_close(p);
}

static void peer_write(struct peer_conn *p, uint64_t *rng)
{
        size_t want = 1 + rnd(rng) % CHUNK;
        ssize_t n;

        if (!p->greeted)
                return;
        fill(buf, want, peer_seed(p->hello.seed), p->sent);
        n = unet_send(p->sock, buf, want, MSG_DONTWAIT);
        if (n > 0)
                p->sent += (uint64_t)n;
        else if (errno != EAGAIN)
                peer_close(p);
}

/* False: there is none to be accepted. */
static bool peer_accept(int l)
{
        int c = unet_accept(l, NULL, NULL);

        for (int i = 0; c >= 0 && i < PEER_CONNS; i++) {
                if (peer[i].sock >= 0)
                        continue;
                peer[i] = (struct peer_conn){.sock = c};
                CHECK(unet_set_nonblock(c, 1) == 0);
                return true;
        }
        CHECK(c < 0);
        return false;
}

/* How far the connection with this number got: RESET when there is none. One may have come whole
 * before we ran. */
static uint64_t peer_count(int l, uint64_t number)
{
        while (peer_accept(l))
                ;
        for (int i = 0; i < PEER_CONNS; i++) {
                if (peer[i].sock >= 0 && !peer[i].greeted)
                        peer_read(&peer[i]);
                if (peer[i].sock < 0 || !peer[i].greeted || peer[i].hello.number != number)
                        continue;
                peer_read(&peer[i]);
                return peer[i].sock < 0 ? RESET : peer[i].got;
        }
        return RESET;
}

static void peer_side(struct side *s)
{
        struct unet_pollfd v[PEER_CONNS + 2];
        uint64_t rng = test_seed() + 1;
        int l = tcp_listen_any();

        CHECK(unet_set_nonblock(l, 1) == 0);
        for (int i = 0; i < PEER_CONNS; i++)
                peer[i].sock = -1;
        tell(s, port_of(l));
        for (;;) {
                for (int i = 0; i < PEER_CONNS; i++)
                        v[i] = (struct unet_pollfd){
                                .sock = peer[i].sock, .fd = -1, .events = POLLIN | POLLOUT};
                v[PEER_CONNS] = (struct unet_pollfd){.sock = l, .fd = -1, .events = POLLIN};
                v[PEER_CONNS + 1] = (struct unet_pollfd){.sock = -1, .fd = s->in, .events = POLLIN};
                CHECK(unet_poll(v, PEER_CONNS + 2, -1) > 0);
                for (int i = 0; i < PEER_CONNS; i++) {
                        if (v[i].revents & (POLLIN | POLLERR | POLLHUP))
                                peer_read(&peer[i]);
                        if (peer[i].sock >= 0 && v[i].revents & POLLOUT)
                                peer_write(&peer[i], &rng);
                }
                if (v[PEER_CONNS].revents)
                        peer_accept(l);
                if (v[PEER_CONNS + 1].revents) {
                        uint64_t number = hear(s);
                        if (number == RESET)
                                return;
                        tell(s, peer_count(l, number));
                }
        }
}

/* ---- parent and child ---- */

static bool line_open(struct line *l, uint64_t number)
{
        struct hello h = {.seed = rnd(&sh->seeds), .number = number};

        *l = (struct line){.seed = h.seed, .sock = tcp_connect_to(sh->port)};
        CHECK(unet_set_nonblock(l->sock, 1) == 0);
        return unet_send(l->sock, &h, sizeof h, 0) == sizeof h;
}

/* Memory of the process's own, and which of its parts a peer may be reading. */
#define PARTS 16

static struct {
        pid_t pid; /* whose it is */
        uint8_t *at;
        bool busy[PARTS];
} own;

static void reap(const struct line *l)
{
        uint64_t cookie[PARTS];
        int n = unet_memory_reap(l->sock, cookie, PARTS);

        CHECK(n >= 0);
        while (n-- > 0) {
                CHECK(cookie[n] < PARTS && own.busy[cookie[n]]);
                own.busy[cookie[n]] = false;
        }
}

/* A part that may be written; PARTS: there is none, or another time. */
static uint64_t free_part(struct line *l, uint64_t *rng)
{
        uint64_t part = rnd(rng) % PARTS;
        void *p = NULL;

        if (own.pid != getpid()) {
                memset(&own, 0, sizeof own);
                own.pid = getpid();
                if (unet_memory_new(PARTS * CHUNK, &p) == 0)
                        own.at = p;
        }
        reap(l);
        return own.at != NULL && rnd(rng) % 2 && !own.busy[part] ? part : PARTS;
}

static ssize_t line_send(struct line *l, size_t want, uint64_t at, uint64_t part)
{
        uint8_t *p = part == PARTS ? buf : own.at + part * CHUNK;
        ssize_t n;

        fill(p, want, l->seed, at);
        l->sent_try = at + want;
        if (part == PARTS)
                return unet_send(l->sock, buf, want, MSG_DONTWAIT);
        own.busy[part] = true;
        n = unet_memory_send(l->sock, p, want, MSG_DONTWAIT, part);
        own.busy[part] = n > 0;
        return n;
}

/* False: the connection was reset. */
static bool line_write(struct line *l, uint64_t *rng)
{
        size_t want = 1 + rnd(rng) % (rnd(rng) % 2 ? CHUNK : 1000);
        uint64_t at = l->sent;
        ssize_t n = line_send(l, want, at, free_part(l, rng));

        if (n > 0)
                l->sent = at + (uint64_t)n;
        l->sent_try = l->sent;
        return n >= 0 || errno == EAGAIN;
}

static bool line_read(struct line *l, uint64_t *rng)
{
        size_t want = 1 + rnd(rng) % (rnd(rng) % 2 ? CHUNK : 1000);
        uint64_t at = l->got;
        ssize_t n;

        l->got_try = at + want;
        n = unet_recv(l->sock, buf, want, MSG_DONTWAIT);
        if (n > 0) {
                CHECK(filled(buf, (size_t)n, peer_seed(l->seed), at));
                l->got = at + (uint64_t)n;
        }
        l->got_try = l->got;
        return n > 0 || (n < 0 && errno == EAGAIN);
}

static void passing_line(uint64_t *rng)
{
        struct line l;

        if (line_open(&l, PASSING))
                line_write(&l, rng);
        CHECK(unet_close(l.sock) == 0);
}

static void wait_a_bit(const struct line *l)
{
        struct unet_pollfd v = {.sock = l->sock, .fd = -1, .events = POLLIN};

        CHECK(unet_poll(&v, 1, 1) >= 0);
}

static void child_main(uint64_t seed)
{
        uint64_t rng = seed;

        for (;;) {
                struct line *l = &sh->line[CHILDS + rnd(&rng) % (CONNS - CHILDS)];
                uint64_t what = rnd(&rng) % 32;
                if (what < 15)
                        line_write(l, &rng);
                else if (what < 30)
                        line_read(l, &rng);
                else if (what < 31)
                        wait_a_bit(l);
                else
                        passing_line(&rng);
                atomic_fetch_add(&sh->ops, 1);
        }
}

static uint64_t now_us(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static uint64_t resets;

static void reopen(struct line *l)
{
        CHECK(unet_close(l->sock) == 0);
        resets++;
        line_open(l, (uint64_t)(l - sh->line));
}

/* How much of what was being written when the child died was taken: the peer has all of it when
 * nothing is on its way. False: reset. */
static bool settle_written(struct side *s, struct line *l)
{
        uint64_t got;
        int left;

        while (unet_ioctl(l->sock, SIOCOUTQ, &left) == 0 && left > 0) {
                struct unet_pollfd v = {.sock = l->sock, .fd = -1};
                unet_poll(&v, 1, 1);
                if (v.revents & (POLLERR | POLLHUP))
                        return false;
        }
        tell(s, (uint64_t)(l - sh->line));
        got = hear(s);
        if (got == RESET)
                return false;
        CHECK(got >= l->sent && got <= l->sent_try);
        l->sent = l->sent_try = got;
        return true;
}

/* How much of what was being read was taken: the next bytes show where they stand in the stream. */
static bool settle_read(struct line *l)
{
        uint8_t next[32];
        uint64_t at = l->got;

        if (l->got_try == at)
                return true;
        CHECK(unet_set_nonblock(l->sock, 0) == 0);
        if (unet_recv(l->sock, next, sizeof next, MSG_WAITALL) != sizeof next)
                return false;
        CHECK(unet_set_nonblock(l->sock, 1) == 0);
        while (at <= l->got_try && !filled(next, sizeof next, peer_seed(l->seed), at))
                at++;
        CHECK(at <= l->got_try);
        l->got = l->got_try = at + sizeof next;
        return true;
}

static void one_death(struct side *s, uint64_t *rng)
{
        uint64_t end, seed = rnd(rng), before = resets;
        int status;
        pid_t pid = fork();

        CHECK(pid >= 0);
        if (pid == 0)
                child_main(seed);
        for (end = now_us() + rnd(rng) % 1500; now_us() < end;) {
                struct line *l = &sh->line[rnd(rng) % CHILDS];
                if (!(rnd(rng) % 2 ? line_write(l, rng) : line_read(l, rng)))
                        reopen(l); /* cannot be: nobody died yet */
        }
        CHECK(resets == before);
        CHECK(kill(pid, SIGKILL) == 0);
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
              WTERMSIG(status) == SIGKILL);
        for (struct line *l = sh->line + CHILDS; l < sh->line + CONNS; l++)
                if (!settle_written(s, l) || !settle_read(l))
                        reopen(l);
        for (struct line *l = sh->line; l < sh->line + CHILDS; l++)
                if (!line_read(l, rng) || !line_write(l, rng))
                        reopen(l);
        CHECK(resets == before);
}

static void parent_side(struct side *s)
{
        uint64_t rng = test_seed();
        void *all;

        sh->port = (uint16_t)hear(s);
        sh->seeds = rng + 2;
        /* There has been some before the channel: the processes send by name. */
        CHECK(unet_memory_new(1, &all) == 0 && unet_memory_free(all) == 0);
        for (uint64_t i = 0; i < CONNS; i++)
                CHECK(line_open(&sh->line[i], i));
        for (uint32_t i = 0; i < ROUNDS; i++)
                one_death(s, &rng);
        for (struct line *l = sh->line; l < sh->line + CONNS; l++)
                CHECK(settle_written(s, l) && line_read(l, &rng));
        /* The dead have left none of their memory behind. */
        EVENTUALLY(unet_memory_new((256u << 20) - (32u << 20), &all) == 0);
        fprintf(stderr, "%u deaths amid %llu calls, %llu resets\n", ROUNDS,
                (unsigned long long)sh->ops, (unsigned long long)resets);
        tell(s, RESET);
}

static void other_connections_go_on_when_a_process_is_killed(void **state)
{
        test_seed();
        play(TWO_PROCESSES, parent_side, peer_side, 0);
}

/* ---- a stack's only process is killed ---- */

static struct alone {
        _Atomic uint64_t sent, sent_try;
        _Atomic int pid;
        uint64_t slowest_us; /* over all deaths */
} * alone;

/* Writes until it is killed. */
static void alone_main(struct side *s)
{
        uint64_t rng = s->arg, at = 0;
        int c = side_connect(s);

        tell(s, 0);
        for (;;) {
                size_t want = 1 + rnd(&rng) % CHUNK;
                ssize_t n;
                fill(buf, want, s->arg, at);
                alone->sent_try = at + want;
                n = unet_send(c, buf, want, 0);
                CHECK(n > 0);
                alone->sent = alone->sent_try = at += (uint64_t)n;
        }
}

static void alone_side(struct side *s)
{
        pid_t pid = fork();

        CHECK(pid >= 0);
        if (pid == 0)
                alone_main(s);
        alone->pid = pid;
        CHECK(waitpid(pid, &(int){0}, 0) == pid);
}

static void reader_side(struct side *s)
{
        int c = side_accept(s);
        uint64_t rng = s->arg, at = 0, killed, end;
        ssize_t n;

        hear(s);
        end = now_us() + rnd(&rng) % 3000;
        while (now_us() < end)
                if ((n = unet_recv(c, buf, sizeof buf, MSG_DONTWAIT)) > 0) {
                        CHECK(filled(buf, (size_t)n, s->arg, at));
                        at += (uint64_t)n;
                }
        while (alone->pid == 0)
                sleep_ms(1);
        CHECK(kill(alone->pid, SIGKILL) == 0);
        killed = now_us();
        n = unet_recv(c, buf, sizeof buf, 0);
        killed = now_us() - killed;
        if (killed > alone->slowest_us)
                alone->slowest_us = killed;
        for (; n > 0; n = unet_recv(c, buf, sizeof buf, 0)) {
                CHECK(filled(buf, (size_t)n, s->arg, at));
                at += (uint64_t)n;
        }
        CHECK(n == 0);
        CHECK(at <= alone->sent_try && at >= alone->sent);
}

static void what_was_taken_arrives_wherever_the_kill_comes(void **state)
{
        for (uint64_t i = 0; i < DEATHS; i++) {
                alone->sent = alone->sent_try = 0;
                alone->pid = 0;
                play(TWO_PROCESSES, alone_side, reader_side, test_seed() + i);
        }
        print_message("the peer noticed after %llu us at most\n",
                      (unsigned long long)alone->slowest_us);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(other_connections_go_on_when_a_process_is_killed),
                cmocka_unit_test(what_was_taken_arrives_wherever_the_kill_comes),
        };

        sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        alone = mmap(NULL, sizeof *alone, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                     0);
        if (sh == MAP_FAILED || alone == MAP_FAILED)
                return 1;
        return run_sides(tests);
}
