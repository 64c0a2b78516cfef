/*
 * Emulated endpoints through a real unetd: who may talk to whom, who gets how much, what is left of
 * the dead, and what a hostile endpoint can do to the others.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <unet/unet.h>

#include "base/prng.h"
#include "tests/unetd/world.h"
#include "unet/ep.h"
#include "unet/shm/shm_link.h"

#define SECONDS  (NS_PER_S)
#define PATIENCE (PATIENCE_MS * NS_PER_MS) /* for what comes for certain */
#define BUFFERS  40u

/* ---- endpoints ---- */

static struct unet_ep *ep_new(void)
{
        struct unet_ep_opts opts = {.rx_slots = 4096};
        struct unet_ep *ep;
        struct unet_segment seg;

        assert_int_equal(unet_ep_open(&opts, &ep), 0);
        seg = unet_ep_segment(ep);
        for (uint32_t i = 0; i < BUFFERS; i++) {
                struct unet_frag buf = {(uint32_t)seg.tx_bytes + i * 65536, 65536};
                assert_int_equal(unet_ep_provide(ep, &buf, 1), 1);
        }
        return ep;
}

struct call {
        struct unet_ep *ep;
        const char *name;
        int64_t timeout;
        int err;
        uint32_t chan;
        pthread_t thread;
};

static void *call(void *arg)
{
        struct call *c = arg;

        c->err = unet_emul_connect(c->ep, c->name, c->timeout, &c->chan);
        return NULL;
}

static void call_start(struct call *c, struct unet_ep *ep, const char *name, int64_t timeout)
{
        *c = (struct call){.ep = ep, .name = name, .timeout = timeout};
        assert_int_equal(pthread_create(&c->thread, NULL, call, c), 0);
}

static int call_end(struct call *c)
{
        assert_int_equal(pthread_join(c->thread, NULL), 0);
        return c->err;
}

static void join(struct unet_ep *a, struct unet_ep *b, uint32_t *ca, uint32_t *cb)
{
        int fd = unet_emul_listen("join", 0);
        struct call c;

        assert_true(fd >= 0);
        call_start(&c, a, "join", PATIENCE);
        assert_int_equal(unet_emul_accept(b, fd, PATIENCE, cb), 0);
        assert_int_equal(call_end(&c), 0);
        *ca = c.chan;
        close(fd);
}

static int send_bytes(struct unet_ep *ep, uint32_t chan, uint32_t len)
{
        struct unet_send m = {.chan = chan};

        if (len <= UNET_EP_INLINE) {
                m.inl = unet_ep_segment(ep).base;
                m.inl_len = (uint16_t)len;
        } else {
                m.nfrags = 1;
                m.frag[0] = (struct unet_frag){0, len};
        }
        return unet_ep_send(ep, &m, 1);
}

/* Receives one message and gives its buffers back; its length. */
static uint32_t receive(struct unet_ep *ep, uint32_t *chan)
{
        struct unet_recv m;

        while (unet_ep_recv(ep, &m, 1) == 0)
                assert_true(unet_ep_wait(ep, UNET_READABLE, PATIENCE) > 0);
        for (int i = 0; i < m.nfrags; i++)
                unet_ep_provide(ep, &(struct unet_frag){m.frag[i].off, m.frag[i].size}, 1);
        *chan = m.chan;
        return m.len;
}

static void must_pass(struct unet_ep *a, struct unet_ep *b, uint32_t ca, uint32_t cb)
{
        uint32_t chan;

        assert_int_equal(send_bytes(a, ca, 3000), 1);
        assert_int_equal(receive(b, &chan), 3000);
        assert_int_equal(chan, cb);
}

static bool is_closed(struct unet_ep *ep, uint32_t chan)
{
        struct unet_chan_info info;

        assert_int_equal(unet_chan_info(ep, chan, &info), 0);
        return info.closed;
}

/* What the endpoints of a process came to together. */
struct total {
        pid_t pid;
        struct unetd_emul_counts n;
};

static bool add_row(void *arg, const struct unetd_status_item *item)
{
        struct total *t = arg;
        const struct unetd_emul_counts *n = &item->emul;

        if (item->kind != UNETD_S_EMUL || item->pid != t->pid)
                return true;
        t->n.sent += n->sent;
        t->n.bad_source += n->bad_source;
        t->n.no_channel += n->no_channel;
        t->n.malformed += n->malformed;
        t->n.quota += n->quota;
        return true;
}

static struct unetd_emul_counts counts_of(struct unetd_client *c, pid_t pid)
{
        struct total t = {.pid = pid};

        assert_int_equal(unetd_status(c, add_row, &t), 0);
        return t.n;
}

/* ---- names ---- */

static void names_are_found_or_not(void **state)
{
        struct unet_ep *a = ep_new(), *b = ep_new();
        char own[64], other[64];
        uint32_t chan, ca;
        struct call c;
        int fd;

        assert_int_equal(unet_emul_connect(a, "nobody", PATIENCE, &chan), -ECONNREFUSED);
        fd = unet_emul_listen("here", 0);
        assert_true(fd >= 0);
        assert_int_equal(unet_emul_listen("here", 0), -EADDRINUSE);
        assert_int_equal(unet_emul_listen("", 0), -ENAMETOOLONG);
        assert_int_equal(unet_emul_listen("a/b", 0), -EINVAL);
        assert_int_equal(unet_emul_listen("x", 1u << 20), -EINVAL);
        assert_int_equal(
                unet_emul_listen(
                        "a name that is longer than the sixty-three bytes there are for it", 0),
                -ENAMETOOLONG);
        snprintf(own, sizeof own, "%u/here", (unsigned)geteuid());
        snprintf(other, sizeof other, "%u/here", (unsigned)geteuid() + 1);
        assert_int_equal(unet_emul_connect(a, other, PATIENCE, &chan), -ECONNREFUSED);

        /* Nobody accepts; the call that was given up is not accepted later. */
        assert_int_equal(unet_emul_connect(a, "here", SECONDS / 100, &chan), -ETIMEDOUT);
        assert_int_equal(unet_emul_accept(b, fd, SECONDS / 100, &chan), -ETIMEDOUT);
        call_start(&c, a, own, PATIENCE);
        assert_int_equal(unet_emul_accept(b, fd, PATIENCE, &chan), 0);
        assert_int_equal(call_end(&c), 0);
        must_pass(a, b, c.chan, chan);

        /* Who waits when the name goes is told; the name is free then. */
        ca = c.chan;
        call_start(&c, a, "here", PATIENCE);
        world_sleep_ms(20);
        close(fd);
        assert_int_equal(call_end(&c), -ECONNREFUSED);
        eventually((fd = unet_emul_listen("here", 0)) >= 0);
        close(fd);
        must_pass(b, a, chan, ca);
        unet_ep_close(a);
        unet_ep_close(b);
}

/* Several callers, and a descriptor that tells of all of them. */
static void every_call_rings(void **state)
{
        enum { N = 20 };
        struct unet_ep *b = ep_new(), *a[N];
        struct call c[N];
        uint32_t chan[N], from;
        int fd = unet_emul_listen("many", 0);

        assert_true(fd >= 0);
        for (int i = 0; i < N; i++) {
                a[i] = ep_new();
                call_start(&c[i], a[i], "many", PATIENCE);
        }
        for (int i = 0; i < N; i++)
                assert_int_equal(unet_emul_accept(b, fd, PATIENCE, &chan[i]), 0);
        for (int i = 0; i < N; i++) {
                assert_int_equal(call_end(&c[i]), 0);
                assert_int_equal(send_bytes(a[i], c[i].chan, 100 + (uint32_t)i), 1);
                assert_int_equal(receive(b, &from), 100 + i);
        }
        assert_int_equal(unet_emul_accept(b, fd, 0, &from), -ETIMEDOUT);
        for (int i = 0; i < N; i++)
                unet_ep_close(a[i]);
        unet_ep_close(b);
        close(fd);
}

/* ---- fairness ---- */

/* Two senders, of 200-byte and of 4 KB messages, have their queues full when the switch begins: as
 * long as both have something to send, they differ by no more than one share. */
static void senders_share_by_bytes(void **state)
{
        enum { SHARE = 65536, SLACK = 4096 + 200 + 2 * 4 };
        const uint32_t len[2] = {200, 4096}, n[2] = {400, 30};
        struct unet_ep *s[2] = {ep_new(), ep_new()}, *sink = ep_new();
        uint32_t cs[2], cr[2], got[2] = {0}, from;
        struct unetd_client c = {.pid = 0};
        pid_t daemon;

        for (int i = 0; i < 2; i++)
                join(s[i], sink, &cs[i], &cr[i]);
        assert_int_equal(unetd_open(&c, UNETD_NO_START), 0);
        daemon = world_daemon_pid(&c);
        kill(daemon, SIGSTOP);
        for (int i = 0; i < 2; i++)
                for (uint32_t k = 0; k < n[i]; k++)
                        assert_int_equal(send_bytes(s[i], cs[i], len[i]), 1);
        kill(daemon, SIGCONT);
        while (got[0] < n[0] && got[1] < n[1]) {
                uint32_t bytes = receive(sink, &from);
                int i = from == cr[1];

                assert_int_equal(bytes, len[i]);
                got[i]++;
                assert_in_range(got[0] * len[0] + SHARE + SLACK - got[1] * len[1], 0,
                                2 * (SHARE + SLACK));
        }
        unetd_close(&c);
        for (int i = 0; i < 2; i++)
                unet_ep_close(s[i]);
        unet_ep_close(sink);
}

/* ---- death ---- */

static int die_with_a_channel(void *arg)
{
        struct unet_ep *ep;
        uint32_t chan;

        if (unet_ep_open(NULL, &ep) != 0 || unet_emul_connect(ep, "grave", PATIENCE, &chan) != 0)
                return 1;
        for (int i = 0; i < 10; i++)
                if (send_bytes(ep, chan, 5000) != 1)
                        return 2;
        *(_Atomic bool *)arg = true;
        kill(getpid(), SIGKILL);
        return 3;
}

static void the_dead_leave_nothing(void **state)
{
        static _Atomic bool dummy;
        struct unet_ep *b = ep_new();
        struct unetd_client c = {.pid = 0};
        int fd = unet_emul_listen("grave", 0), fds = 0;
        uint32_t chan, from;
        pid_t daemon;

        assert_true(fd >= 0);
        assert_int_equal(unetd_open(&c, UNETD_NO_START), 0);
        daemon = world_daemon_pid(&c);
        for (int round = 0; round < 30; round++) {
                pid_t pid = fork();
                int status;

                if (pid == 0)
                        _exit(die_with_a_channel(&dummy));
                assert_int_equal(unet_emul_accept(b, fd, PATIENCE, &chan), 0);
                assert_int_equal(waitpid(pid, &status, 0), pid);
                assert_true(WIFSIGNALED(status));
                eventually(is_closed(b, chan));
                for (int i = 0; i < 10; i++) /* what it sent before is there */
                        assert_int_equal(receive(b, &from), 5000);
                assert_int_equal(send_bytes(b, chan, 8), -EPIPE);
                assert_int_equal(unet_chan_close(b, chan), 0);
                eventually(world_count(&c).n[UNETD_S_EMUL] == 1);
                if (round == 0)
                        fds = world_fds(daemon);
                world_fds_back_to("unetd", daemon, fds);
        }
        unet_ep_close(b);
        close(fd);
        unetd_close(&c);
}

static void a_unetd_that_dies_ends_its_channels(void **state)
{
        struct unet_ep *a = ep_new(), *b = ep_new();
        struct unetd_client c = {.pid = 0};
        uint32_t ca, cb;
        pid_t daemon;
        int fd;

        join(a, b, &ca, &cb);
        fd = unet_emul_listen("orphan", 0);
        assert_int_equal(unetd_open(&c, UNETD_NO_START), 0);
        daemon = world_daemon_pid(&c);
        unetd_close(&c);
        kill(daemon, SIGKILL);
        assert_int_equal(unet_ep_wait(a, UNET_CLOSED, PATIENCE), UNET_CLOSED);
        assert_true(is_closed(a, ca));
        assert_int_equal(send_bytes(a, ca, 8), -EPIPE);
        assert_int_equal(unet_chan_close(a, ca), 0);
        eventually(!world_alive(daemon));
        assert_int_equal(unet_emul_accept(b, fd, PATIENCE, &cb), -EPIPE);
        close(fd);

        /* The same endpoints go on over the next one. */
        join(a, b, &ca, &cb);
        must_pass(a, b, ca, cb);
        unet_ep_close(a);
        unet_ep_close(b);
}

/* ---- limits ---- */

static char config_path[64];

/* The daemon of this world starts with these lines. */
static void configure(const char *lines)
{
        FILE *f;

        snprintf(config_path, sizeof config_path, "/tmp/unet-emul-test-%d.conf", (int)getpid());
        f = fopen(config_path, "we");
        assert_non_null(f);
        fputs(lines, f);
        assert_int_equal(fclose(f), 0);
        setenv("UNET_CONFIG", config_path, 1);
}

static int teardown(void **state)
{
        int r = world_teardown(state);

        if (config_path[0])
                unlink(config_path);
        config_path[0] = 0;
        unsetenv("UNET_CONFIG");
        return r;
}

static void a_user_has_limits(void **state)
{
        struct unet_ep *a, *b, *d;
        struct unetd_client c = {.pid = 0};
        uint32_t ca, cb, chan;
        struct call call;
        int fd;

        configure("[limits]\nemulated = 2\nemulated_names = 1\nemulated_channels = "
                  "2\nemulated_waiting = 5\n");
        a = ep_new();
        b = ep_new();
        d = ep_new();
        join(a, b, &ca, &cb);
        assert_int_equal(unet_emul_connect(d, "x", PATIENCE, &chan), -EDQUOT);
        eventually((fd = unet_emul_listen("one", 0)) >= 0);
        assert_int_equal(unet_emul_listen("two", 0), -EDQUOT);
        call_start(&call, a, "one", PATIENCE);
        assert_int_equal(unet_emul_accept(b, fd, PATIENCE, &chan), -EDQUOT);
        assert_int_equal(call_end(&call), -EDQUOT);

        /* b takes nothing: five messages wait, the others are counted; then there is room again. */
        assert_int_equal(unetd_open(&c, UNETD_NO_START), 0);
        for (int i = 0; i < 8; i++)
                assert_int_equal(send_bytes(a, ca, 5000), 1);
        eventually(counts_of(&c, getpid()).sent == 8);
        for (int i = 0; i < 5; i++)
                assert_int_equal(receive(b, &chan), 5000);
        assert_int_equal(counts_of(&c, getpid()).quota, 3);
        assert_int_equal(unet_ep_wait(b, UNET_READABLE, SECONDS / 20), -ETIMEDOUT);
        unet_ep_poll(b);
        must_pass(a, b, ca, cb);

        /* A channel that ends makes room for another, an endpoint that goes too. */
        assert_int_equal(unet_chan_close(a, ca), 0);
        assert_int_equal(unet_ep_wait(b, UNET_CLOSED, PATIENCE), UNET_CLOSED);
        call_start(&call, a, "one", PATIENCE);
        assert_int_equal(unet_emul_accept(b, fd, PATIENCE, &cb), 0);
        assert_int_equal(call_end(&call), 0);
        must_pass(a, b, call.chan, cb);
        unet_ep_close(a);
        eventually(world_count(&c).n[UNETD_S_EMUL] == 1);
        call_start(&call, d, "one", PATIENCE);
        assert_int_equal(unet_emul_accept(b, fd, PATIENCE, &cb), 0);
        assert_int_equal(call_end(&call), 0);
        must_pass(d, b, call.chan, cb);
        unet_ep_close(b);
        unet_ep_close(d);
        close(fd);
        unetd_close(&c);
}

/* ---- idleness ---- */

static void idle_endpoints_wake_nobody(void **state)
{
        struct unet_ep *a = ep_new(), *b = ep_new();
        struct unetd_client c = {.pid = 0};
        uint32_t ca, cb;
        pid_t daemon;

        join(a, b, &ca, &cb);
        must_pass(a, b, ca, cb);
        assert_int_equal(unetd_open(&c, UNETD_NO_START), 0);
        daemon = world_daemon_pid(&c);
        unetd_close(&c);
        assert_true(world_rests(daemon, 1500)); /* addresses of the machine may change meanwhile */
        must_pass(b, a, cb, ca);
        unet_ep_close(a);
        unet_ep_close(b);
}

static void unetd_stays_for_attached_endpoints(void **state)
{
        struct unet_ep *a, *b;
        struct unetd_client c = {.pid = 0};
        uint32_t ca, cb;
        pid_t daemon;

        configure("[daemon]\nidle = 1\n");
        a = ep_new();
        b = ep_new();
        join(a, b, &ca, &cb);
        assert_int_equal(unetd_open(&c, UNETD_NO_START), 0);
        daemon = world_daemon_pid(&c);
        unetd_close(&c);
        world_sleep_ms(1700);
        assert_true(world_alive(daemon));
        must_pass(a, b, ca, cb);
        unet_ep_close(a);
        unet_ep_close(b);
        eventually(!world_alive(daemon));
}

/* ---- hostile endpoints ---- */

static uint32_t nasty(struct prng_fast *rng)
{
        static const uint32_t near[] = {0,     1,     2,     212,      213,       248,       2048,
                                        65532, 65536, 65537, 1u << 20, INT32_MAX, UINT32_MAX};
        uint32_t v = near[prng_fast_below(rng, ARRAY_LEN(near))];

        return prng_fast_below(rng, 3) ? v + prng_fast_below(rng, 3) - 1
                                       : (uint32_t)prng_fast_u64(rng);
}

/* Rubbish, nearly right and entirely wrong, into ring, control words and returns, with rings of
 * the bell. */
static void spoil(struct prng_fast *rng, struct shm_region *r, uint32_t *pos, int sock)
{
        for (uint32_t n = prng_fast_below(rng, 100); n > 0; n--, ++*pos) {
                struct shm_slot *s = &r->ring[*pos % SHM_SLOTS];

                for (size_t i = 0; i < sizeof s->body / 4; i++) {
                        uint32_t word = nasty(rng);
                        memcpy(s->body + 4 * i, &word, 4);
                }
                s->flags =
                        (uint8_t)(prng_fast_below(rng, 4) ? prng_fast_below(rng, 4) : nasty(rng));
                s->inl_len = (uint8_t)(prng_fast_below(rng, 2) ? 8 : nasty(rng));
                s->nmore =
                        (uint16_t)(prng_fast_below(rng, 2) ? prng_fast_below(rng, 5) : nasty(rng));
                atomic_store_explicit(&s->seq, *pos + 1, memory_order_release);
        }
        if (prng_fast_below(rng, 8) == 0)
                atomic_store(&r->ctrl.cons, nasty(rng));
        if (prng_fast_below(rng, 8) == 0)
                atomic_store(&r->ctrl.ret_prod, nasty(rng));
        if (prng_fast_below(rng, 4) == 0)
                r->ret[prng_fast_below(rng, SHM_RETS)] = nasty(rng);
        for (uint32_t n = prng_fast_below(rng, 4); n > 0; n--)
                send(sock, "rubbish", 1 + prng_fast_below(rng, 7), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Attaches by hand, so as to have the region; never returns. */
static void attack(uint64_t seed)
{
        struct unetd_client c = {.pid = 0};
        struct frame_geom flat = {{0}};
        struct shm_offer mine, theirs;
        struct prng_fast rng;
        struct counters cnt = {.n = {0}};
        const struct shm_region *his;
        struct shm_region *region;
        struct shm_link *l;
        struct station st;
        uint32_t port, pos = 0;
        int sock;

        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
        prng_fast_init(&rng, seed);
        if (station_open(&st, 1 << 20, 0) != 0 || shm_link_make(&st, flat, &cnt, &l) != 0)
                _exit(1);
        mine = shm_link_mine(l);
        region = (struct shm_region *)(shm_link_tx_mem(l).base -
                                       offsetof(struct shm_region, frames));
        if (unetd_open(&c, 0) != 0 || unetd_emul_attach(&c, &mine, &theirs, &port, &sock) != 0)
                _exit(2);
        his = mmap(NULL, theirs.region_bytes, PROT_READ, MAP_SHARED, theirs.region, 0);
        if (his == MAP_FAILED)
                _exit(3);
        for (;;) { /* what is written over before it is read would be waited for */
                if (pos - atomic_load(&his->ctrl.cons) < SHM_SLOTS / 2)
                        spoil(&rng, region, &pos, sock);
                else
                        sched_yield();
        }
}

static uint64_t seed(void)
{
        const char *env = getenv("UNET_SEED");
        uint64_t s = env ? strtoull(env, NULL, 0) : 1;

        print_message("UNET_SEED=%llu\n", (unsigned long long)s);
        return s;
}

static void rubbish_harms_nobody(void **state)
{
        struct unet_ep *a = ep_new(), *b = ep_new();
        struct unetd_client c = {.pid = 0};
        uint64_t first = seed();
        struct unetd_emul_counts n;
        uint32_t ca, cb;
        pid_t pid[3], daemon;
        int fds;

        join(a, b, &ca, &cb);
        assert_int_equal(unetd_open(&c, UNETD_NO_START), 0);
        daemon = world_daemon_pid(&c);
        fds = world_fds(daemon);
        for (int i = 0; i < 3; i++) {
                pid[i] = fork();
                if (pid[i] == 0)
                        attack(first + (uint64_t)i);
        }
        for (int i = 0; i < 3; i++)
                eventually(counts_of(&c, pid[i]).malformed > 1000 &&
                           counts_of(&c, pid[i]).no_channel > 0);
        for (int i = 0; i < 1000; i++) {
                must_pass(a, b, ca, cb);
                must_pass(b, a, cb, ca);
        }
        for (int i = 0; i < 3; i++) {
                kill(pid[i], SIGKILL);
                assert_int_equal(waitpid(pid[i], NULL, 0), pid[i]);
        }
        eventually(world_count(&c).n[UNETD_S_EMUL] == 2);
        must_pass(a, b, ca, cb);
        assert_int_equal(world_daemon_pid(&c), daemon);
        world_fds_back_to("unetd", daemon, fds);
        n = counts_of(&c, getpid());
        assert_int_equal(n.bad_source + n.no_channel + n.malformed + n.quota, 0);
        unet_ep_close(a);
        unet_ep_close(b);
        unetd_close(&c);
}

static void forged_tags_go_nowhere(void **state)
{
        struct unet_ep *a = ep_new(), *b = ep_new(), *thief = ep_new();
        struct unetd_client c = {.pid = 0};
        uint32_t ca, cb, ct, cat, forged;
        struct link_end end;
        struct unet_chan_info info;
        struct unet_recv m;

        join(a, b, &ca, &cb);
        join(thief, a, &ct, &cat);
        assert_int_equal(unet_chan_info(a, ca, &info), 0);
        assert_int_equal(ep_chan_tagged(thief, thief->emul.link, info.tx_tag, 77, &forged), 0);
        assert_int_equal(send_bytes(thief, forged, 8), 1);

        /* Nor does it end what is another's. */
        assert_int_equal(ep_chan_tagged(thief, thief->emul.link, 0, 78, &forged), 0);
        end = (struct link_end){0, info.tx_tag};
        assert_int_equal(
                unet_ep_send(thief,
                             &(struct unet_send){.chan = forged, .inl = &end.tag, .inl_len = 4}, 1),
                1);
        assert_int_equal(send_bytes(thief, ct, 9), 1);
        assert_int_equal(receive(a, &forged), 9);
        assert_int_equal(unetd_open(&c, UNETD_NO_START), 0);
        assert_int_equal(counts_of(&c, getpid()).bad_source, 2);
        assert_int_equal(unet_ep_recv(b, &m, 1), 0);
        assert_false(is_closed(a, ca));
        must_pass(a, b, ca, cb);
        unetd_close(&c);
        unet_ep_close(a);
        unet_ep_close(b);
        unet_ep_close(thief);
}

/* Attaching with the wrong things, and asking for what is not one's own. */
static void wrong_requests_are_refused(void **state)
{
        struct unet_ep *a = ep_new();
        struct unetd_client c = {.pid = 0};
        struct frame_geom flat = {{0}};
        struct shm_offer good, o, theirs;
        struct counters cnt = {.n = {0}};
        struct shm_link *l;
        struct station st;
        uint32_t port, tag;
        int sock, fds;
        pid_t daemon;

        assert_int_equal(unetd_open(&c, 0), 0);
        daemon = world_daemon_pid(&c);
        assert_int_equal(station_open(&st, 1 << 20, 0), 0);
        assert_int_equal(shm_link_make(&st, flat, &cnt, &l), 0);
        o = good = shm_link_mine(l);
        o.geom.count[FRAME_LARGE] = UINT32_MAX;
        assert_true(unetd_emul_attach(&c, &o, &theirs, &port, &sock) < 0);
        world_count(&c);         /* by now the descriptors of that request are closed */
        fds = world_fds(daemon); /* with the switch, which stays */
        o = good;
        o.region_bytes += 4096;
        assert_true(unetd_emul_attach(&c, &o, &theirs, &port, &sock) < 0);
        o = good;
        o.station_bytes = 4096;
        assert_true(unetd_emul_attach(&c, &o, &theirs, &port, &sock) < 0);
        o = good;
        o.station_bytes = 1ull << 40;
        assert_int_equal(unetd_emul_attach(&c, &o, &theirs, &port, &sock), -EDQUOT);
        o = good;
        o.region = STDIN_FILENO;
        assert_true(unetd_emul_attach(&c, &o, &theirs, &port, &sock) < 0);
        o = good;
        o.station = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        assert_true(unetd_emul_attach(&c, &o, &theirs, &port, &sock) < 0);
        close(o.station);
        for (port = 0; port < 2000; port += 100) {
                assert_int_equal(unetd_emul_connect(&c, port, geteuid(), "x", 1000, &tag), -ENOENT);
                assert_int_equal(unetd_emul_accept(&c, port, port, &tag), -ENOENT);
        }
        world_fds_back_to("unetd", daemon, fds);
        assert_int_equal(world_count(&c).n[UNETD_S_EMUL], 0);
        shm_link_abort(l);
        station_close(&st);
        unet_ep_close(a);
        unetd_close(&c);
}

#define t(name) cmocka_unit_test_setup_teardown(name, world_setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                t(names_are_found_or_not),
                t(every_call_rings),
                t(senders_share_by_bytes),
                t(the_dead_leave_nothing),
                t(a_unetd_that_dies_ends_its_channels),
                t(a_user_has_limits),
                t(idle_endpoints_wake_nobody),
                t(unetd_stays_for_attached_endpoints),
                t(rubbish_harms_nobody),
                t(forged_tags_go_nowhere),
                t(wrong_requests_are_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
