/*
 * A process that scribbles into everything that it may write: its transmit region (ring, positions, returned frames,
 * payload), its bell, the pipes and the sleepers' sockets of its peer. The victim talks to a friend all the while; those
 * connections carry exactly what was written, nothing crashes (this runs under ASan too), and memory stays bounded.
 */
#include "tests/sock/sides.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sock/ustack.h"

#define FRIENDS  4                      /* connections of the friend */
#define LISTENED 64                     /* connections of the victim */
#define HOSTILES 24
#define WHILE_MS 150                    /* of each hostile process */

static struct shared {
        _Atomic uint64_t port, echoed;
        _Atomic int friend_stop, victim_stop;
        _Atomic uint64_t drops, recoveries;
        struct {
                _Atomic uint32_t len;
                char name[32];
        } sleeper[STACK_WAITERS];
} *sh;

/* ---- the victim: echoes to whoever greets with an F, reads from the others and writes a little ---- */

static void publish_sleepers(void)
{
        int err;
        struct stack_state *st = ustack_mine(&err)->s.st;

        for (int i = 0; i < (int)STACK_WAITERS; i++) {
                if (st->waiter[i].proc == 0)
                        continue;
                memcpy(sh->sleeper[i].name, st->waiter[i].name, sizeof st->waiter[i].name);
                sh->sleeper[i].len = st->waiter[i].name_len;
        }
        sh->drops = 0;
        for (int i = 0; i < (int)DROP_COUNT; i++)
                sh->drops += st->cnt.drop[i];
        sh->recoveries = st->cnt.n[COUNT_STACK_RECOVERIES];
}

static void *echo_alone(void *arg)
{
        int c = *(int *)arg;
        char buf[2000];
        ssize_t n;

        while ((n = unet_recv(c, buf, sizeof buf, 0)) > 0)
                CHECK(unet_send(c, buf, (size_t)n, 0) == n);
        return NULL;
}

static struct victim_conn {
        int sock;
        char who;
} conn[LISTENED];

static void victim_close(struct victim_conn *c)
{
        CHECK(unet_close(c->sock) == 0);
        c->sock = -1;
}

/* The first 'T' is given to a thread of its own, which sleeps in recv. */
static void victim_greeting(struct victim_conn *c)
{
        static int sock;
        pthread_t thread;
        ssize_t n = unet_recv(c->sock, &c->who, 1, MSG_DONTWAIT);

        if (n == 0 || (n < 0 && errno != EAGAIN)) {
                victim_close(c);
        } else if (n == 1 && c->who == 'T' && sock == 0) {
                sock = c->sock;
                CHECK(pthread_create(&thread, NULL, echo_alone, &sock) == 0);
                c->sock = -1;
        }
}

static void victim_serve(struct victim_conn *c)
{
        static char buf[30000];
        ssize_t n;

        if (c->who == 0) {
                victim_greeting(c);
                return;
        }
        n = unet_recv(c->sock, buf, sizeof buf, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN))
                victim_close(c);
        else if (n > 0 && c->who == 'F')
                CHECK(unet_send(c->sock, buf, (size_t)n, 0) == n);
        else if (n > 0)
                unet_send(c->sock, buf, (size_t)n, MSG_DONTWAIT);
}

static void victim_accept(int l)
{
        int c = unet_accept(l, NULL, NULL);

        for (int i = 0; c >= 0 && i < LISTENED; i++)
                if (conn[i].sock < 0) {
                        conn[i] = (struct victim_conn){.sock = c};
                        return;
                }
        if (c >= 0)
                unet_close(c);
}

static void victim(struct side *s)
{
        struct unet_pollfd v[LISTENED + 1];
        int l = tcp_listen_any();

        CHECK(unet_set_nonblock(l, 1) == 0);
        for (int i = 0; i < LISTENED; i++)
                conn[i].sock = -1;
        sh->port = port_of(l);
        while (!sh->victim_stop) {
                for (int i = 0; i < LISTENED; i++)
                        v[i] = (struct unet_pollfd){.sock = conn[i].sock, .fd = -1, .events = POLLIN};
                v[LISTENED] = (struct unet_pollfd){.sock = l, .fd = -1, .events = POLLIN};
                CHECK(unet_poll(v, LISTENED + 1, 20) >= 0);
                for (int i = 0; i < LISTENED; i++)
                        if (v[i].revents && conn[i].sock >= 0)
                                victim_serve(&conn[i]);
                if (v[LISTENED].revents)
                        victim_accept(l);
                publish_sleepers();
        }
        exit(0);
}

/* ---- the friend ---- */

static void friend_round(int c, uint64_t seed, uint64_t *at, uint64_t *rng)
{
        static uint8_t out[20000], in[20000];
        size_t n = 1 + rnd(rng) % sizeof out;

        fill(out, n, seed, *at);
        CHECK(unet_send(c, out, n, 0) == (ssize_t)n);
        CHECK(unet_recv(c, in, n, MSG_WAITALL) == (ssize_t)n);
        CHECK(memcmp(in, out, n) == 0);
        *at += n;
        sh->echoed += n;
}

static void friend(struct side *s)
{
        int c[FRIENDS], t = tcp_connect_to((uint16_t)sh->port);
        uint64_t at[FRIENDS + 1] = {0}, rng = s->arg;

        CHECK(unet_send(t, "T", 1, 0) == 1);
        for (int i = 0; i < FRIENDS; i++) {
                c[i] = tcp_connect_to((uint16_t)sh->port);
                CHECK(unet_send(c[i], "F", 1, 0) == 1);
        }
        while (!sh->friend_stop) {
                for (int i = 0; i < FRIENDS; i++)
                        friend_round(c[i], s->arg + (uint64_t)i, &at[i], &rng);
                friend_round(t, s->arg + FRIENDS, &at[FRIENDS], &rng);
        }
        exit(0);
}

/* ---- the hostile process ---- */

struct target {
        struct ustack *u;
        struct shm_chan *ch;
        struct unetd_chan *fds;
        int sock;
        uint64_t rng;
        uint32_t seq;                   /* next position of a slot forged in order */
};

static void random_bytes(struct target *t, void *p, size_t n)
{
        for (size_t i = 0; i < n; i++)
                ((uint8_t *)p)[i] = (uint8_t)rnd(&t->rng);
}

/* Anywhere before the frames. */
static void scribbles(struct target *t)
{
        uint8_t *base = (uint8_t *)t->ch->mine;
        size_t at = rnd(&t->rng) % offsetof(struct shm_region, frames);

        random_bytes(t, base + at, MIN(rnd(&t->rng) % 64, offsetof(struct shm_region, frames) - at));
}

/* A slot that the victim will take for the next message. */
static void forges(struct target *t, bool changed_only)
{
        struct shm_slot *slot = &t->ch->mine->ring[t->seq % SHM_SLOTS];

        if (t->seq - atomic_load(&t->ch->peer->ctrl.cons) >= SHM_SLOTS) {
                CHECK(write(t->fds->peer_leader, "", 1) == 1 || errno == EAGAIN);
                sched_yield();
                return;
        }
        if (changed_only)
                slot->body[rnd(&t->rng) % 80] = (uint8_t)rnd(&t->rng);
        else
                random_bytes(t, slot->body, sizeof slot->body);
        slot->inl_len = (uint8_t)(rnd(&t->rng) % 4 ? 40 + rnd(&t->rng) % 60 : rnd(&t->rng));
        slot->flags = (uint8_t)(rnd(&t->rng) % 8 ? rnd(&t->rng) % 2 : rnd(&t->rng));
        if (slot->flags & SHM_F_FRAME && rnd(&t->rng) % 2) {
                struct shm_frame_ref ref = {(uint32_t)(rnd(&t->rng) % 20000), (uint32_t)(rnd(&t->rng) % 4096),
                                            (uint32_t)(rnd(&t->rng) % 70000)};
                memcpy(slot->body, &ref, sizeof ref);
        }
        atomic_store(&slot->seq, ++t->seq);
}

static void gives_back_anything(struct target *t)
{
        struct shm_region *r = t->ch->mine;

        for (int i = 0; i < 64; i++)
                r->ret[rnd(&t->rng) % SHM_RETS] = (uint32_t)(rnd(&t->rng) % (rnd(&t->rng) % 2 ? 17000 : UINT32_MAX));
        atomic_fetch_add(&r->ctrl.ret_prod, (uint32_t)(rnd(&t->rng) % 128));
        atomic_store(&r->ctrl.cons, (uint32_t)rnd(&t->rng));
}

static void rings_everything(struct target *t)
{
        static char junk[4096];

        random_bytes(t, t->u->s.bell, 64);
        if (write(t->fds->peer_leader, junk, sizeof junk) < 0)
                CHECK(errno == EAGAIN);
        if (write(t->fds->peer_keeper, junk, sizeof junk) < 0)
                CHECK(errno == EAGAIN);
}

static void wakes_sleepers(struct target *t)
{
        static int fd = -1;
        char junk[300];

        if (fd < 0)
                fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        for (int i = 0; i < (int)STACK_WAITERS; i++) {
                struct sockaddr_un un = {.sun_family = AF_UNIX};
                uint32_t len = sh->sleeper[i].len;
                if (len == 0)
                        continue;
                memcpy(un.sun_path, sh->sleeper[i].name, len);
                sendto(fd, junk, rnd(&t->rng) % sizeof junk, MSG_NOSIGNAL, (struct sockaddr *)&un,
                       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
        }
}

/* Real data, whose headers and payload change on their way. */
static void changes_what_it_sends(struct target *t)
{
        static char data[20000];
        struct shm_region *r = t->ch->mine;

        unet_send(t->sock, data, 1 + rnd(&t->rng) % sizeof data, MSG_DONTWAIT);
        for (int i = 0; i < 20; i++)
                r->ring[rnd(&t->rng) % SHM_SLOTS].body[rnd(&t->rng) % 80] ^= (uint8_t)(1u << rnd(&t->rng) % 8);
        random_bytes(t, r->frames + rnd(&t->rng) % 100000, 100);
        unet_recv(t->sock, data, sizeof data, MSG_DONTWAIT);
}

static void one_act(struct target *t, uint64_t what)
{
        switch (what) {
        case 0:
                scribbles(t);
                break;
        case 1:
                forges(t, false);
                break;
        case 2:
                forges(t, true);
                break;
        case 3:
                gives_back_anything(t);
                break;
        case 4:
                rings_everything(t);
                break;
        case 5:
                wakes_sleepers(t);
                break;
        default:
                changes_what_it_sends(t);
                break;
        }
}

#define ACTS 7

static void hostile(struct side *s)
{
        struct target t = {.rng = s->arg};
        static char data[30000];
        int64_t end = now_ms() + WHILE_MS;
        uint64_t what = s->arg % (ACTS + 1);
        int err;

        t.sock = tcp_connect_to((uint16_t)sh->port);
        unet_send(t.sock, "H", 1, 0);
        for (int i = 0; i < 20; i++) {
                unet_send(t.sock, data, sizeof data, MSG_DONTWAIT);
                unet_recv(t.sock, data, sizeof data, MSG_DONTWAIT);
        }
        t.u = ustack_mine(&err);
        for (int k = 0; k < (int)STACK_CHANS && t.ch == NULL; k++)
                if (t.u->chan[k].mine != NULL) {
                        t.ch = &t.u->chan[k];
                        t.fds = &t.u->chan_fds[k];
                        t.seq = t.u->s.st->chan[k].shm.pos.tx_prod;
                }
        CHECK(t.ch != NULL);
        while (now_ms() < end)
                for (int i = 0; i < 50; i++)
                        one_act(&t, what < ACTS ? what : rnd(&t.rng) % ACTS);
        _exit(0);
}

/* ---- all together ---- */

static pid_t spawn(side_fn fn, uint64_t arg)
{
        struct side s = {.in = -1, .out = -1, .arg = arg};
        pid_t pid = fork();

        if (pid == 0) {
                alarm(100);
                fn(&s);
                exit(0);
        }
        return pid;
}

static long rss_kb(pid_t pid)
{
        char path[64];
        long total = 0, rss = 0;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
        f = fopen(path, "r");
        if (f != NULL && fscanf(f, "%ld %ld", &total, &rss) != 2)
                rss = 0;
        if (f != NULL)
                fclose(f);
        return rss * 4;
}

/* Stays alive, and is not reaped: dead before its time, it is a zombie. */
static bool lives(pid_t pid)
{
        siginfo_t si = {.si_pid = 0};

        return waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid == 0;
}

static void ends_well(pid_t pid)
{
        int status;

        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

static void a_hostile_peer_harms_nobody_else(void **state)
{
        pid_t v = spawn(victim, 0), f;
        uint64_t before;
        long first = 0;

        while (sh->port == 0 && lives(v))
                sleep_ms(1);
        f = spawn(friend, test_seed());
        for (uint64_t i = 0; i < HOSTILES && lives(v) && lives(f); i++) {
                ends_well(spawn(hostile, test_seed() / 8 * 8 + i));
                if (i == 0)
                        first = rss_kb(v);
        }
        before = sh->echoed;
        for (int i = 0; i < 10000 && sh->echoed == before && lives(f); i++)
                sleep_ms(1);
        print_message("%llu bytes echoed to the friend, %llu drops; victim's memory %ld kB, then %ld kB\n",
                      (unsigned long long)sh->echoed, (unsigned long long)sh->drops, first, rss_kb(v));
        assert_true(sh->echoed > before && sh->drops > 0);
        assert_int_equal(sh->recoveries, 0);
        assert_true(rss_kb(v) < first + 300000);
        sh->friend_stop = 1;
        ends_well(f);
        sh->victim_stop = 1;
        ends_well(v);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_hostile_peer_harms_nobody_else),
        };

        sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        return sh == MAP_FAILED ? 1 : run_sides(tests);
}
