/*
 * Hostile input to both daemons: malformed, truncated and oversize messages, wrong descriptors,
 * floods. Afterwards both must serve a well-behaved client, and have as many descriptors open as
 * before. UNET_SEED makes it another run, UNET_FUZZ_MESSAGES sets its length.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unetd/world.h"
#include "unetd/client/name.h"
#include "unetd/client/wire.h"

#define BYSTANDERS 2

/* A well-behaved program with two stacks and a channel, and what the daemons had open with it. */
struct bystander {
        struct unetd_client c;
        struct fake_stack st[BYSTANDERS];
        uint32_t chan, peer_chan;
        pid_t daemon, keeper;
        int daemon_fds, keeper_fds;
};

static void bystander_start(struct bystander *b)
{
        struct unetd_stack_fds got;

        memset(b, 0, sizeof *b);
        assert_int_equal(unetd_open(&b->c, 0), 0);
        for (int i = 0; i < BYSTANDERS; i++)
                fake_stack_new(&b->c, &b->st[i]);
        assert_int_equal(unetd_chan_open(&b->c, b->st[0].id, b->st[1].id, &b->chan, &b->peer_chan),
                         0);
        assert_int_equal(unetd_stack_get(&b->c, b->st[0].id, &got), 0);
        unetd_stack_fds_close(&got);
        b->daemon = world_daemon_pid(&b->c);
        b->keeper = world_keeper_pid(&b->c);
        b->daemon_fds = world_fds(b->daemon);
        b->keeper_fds = world_fds(b->keeper);
}

/* Nothing of it was touched, nothing of the other's is left. */
static void bystander_check(struct bystander *b)
{
        struct unetd_chan ch;
        struct unetd_stack_fds got;
        uint32_t chan, peer;

        assert_true(world_alive(b->daemon) && world_alive(b->keeper));
        assert_int_equal(unetd_chan_open(&b->c, b->st[0].id, b->st[1].id, &chan, &peer), 0);
        assert_int_equal(chan, b->chan);
        assert_int_equal(unetd_chan_get(&b->c, b->st[1].id, peer, &ch), 0);
        unetd_chan_close(&ch);
        assert_int_equal(unetd_stack_get(&b->c, b->st[1].id, &got), 0);
        unetd_stack_fds_close(&got);
        assert_int_equal(b->st[0].s->chan_peer[b->chan], b->st[1].id);
        assert_int_equal((b->st[0].s->died[0] | b->st[1].s->died[0]) & 1, 0);
        eventually(world_count(&b->c).n[UNETD_S_STACK] == BYSTANDERS);
        eventually(world_count(&b->c).n[UNETD_S_CHAN] == 1);
        world_fds_back_to("unetd", b->daemon, b->daemon_fds);
        world_fds_back_to("keeper", b->keeper, b->keeper_fds);
}

static void bystander_stop(struct bystander *b)
{
        for (int i = 0; i < BYSTANDERS; i++)
                fake_stack_forget(&b->st[i]);
        unetd_close(&b->c);
}

/* ---- raw sending ---- */

static long send_raw(int fd, const void *bytes, size_t len, const int *fds, size_t n)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(64 * sizeof(int))];
        } ctl = {.bytes = {0}};
        struct iovec iov = {(void *)(uintptr_t)bytes, len};
        struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

        if (n > 0) {
                mh.msg_control = &ctl;
                mh.msg_controllen = CMSG_SPACE(n * sizeof(int));
                CMSG_FIRSTHDR(&mh)->cmsg_level = SOL_SOCKET;
                CMSG_FIRSTHDR(&mh)->cmsg_type = SCM_RIGHTS;
                CMSG_FIRSTHDR(&mh)->cmsg_len = CMSG_LEN(n * sizeof(int));
                memcpy(CMSG_DATA(CMSG_FIRSTHDR(&mh)), fds, n * sizeof(int));
        }
        return sendmsg(fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The reply's error; 1 when none came, 2 when the connection ended. */
static int reply_error(int fd, unsigned ms)
{
        int64_t until = world_now_ms() + ms;
        struct wire_in in;
        int r;

        while ((r = wire_recv(fd, &in, MSG_DONTWAIT)) == -EAGAIN && world_now_ms() < until)
                world_sleep_ms(1);
        if (r == -EAGAIN)
                return 1;
        if (r < 0)
                return 2;
        wire_in_close(&in);
        return in.msg.err;
}

static struct unetd_msg plain(uint16_t type)
{
        return (struct unetd_msg){.magic = UNETD_MAGIC, .type = type, .seq = 7};
}

/* A connection to the keeper, made by asking for something. */
static int keeper_fd(struct unetd_client *c)
{
        struct unetd_stack_fds got;

        assert_int_equal(unetd_stack_get(c, 0xffffffff, &got), -ENOENT);
        return c->keeper.fd;
}

/* ---- malformed messages, one by one ---- */

static void say_nonsense(int fd, uint16_t good_type)
{
        struct unetd_msg m = plain(good_type);
        char big[4096] = "";
        int fds[30];

        for (int i = 0; i < 30; i++)
                fds[i] = STDERR_FILENO;
        memcpy(big, &m, sizeof m);
        for (size_t len = 1; len < sizeof m; len += 9) { /* truncated */
                assert_int_equal(send_raw(fd, &m, len, NULL, 0), (long)len);
                assert_int_equal(reply_error(fd, PATIENCE_MS), -EBADMSG);
        }
        assert_true(send_raw(fd, big, sizeof big, NULL, 0) > 0); /* oversize */
        assert_int_equal(reply_error(fd, PATIENCE_MS), -EBADMSG);
        m.magic = 0;
        send_raw(fd, &m, sizeof m, NULL, 0);
        assert_int_equal(reply_error(fd, PATIENCE_MS), -EBADMSG);
        m = plain(UNETD_TYPES);
        send_raw(fd, &m, sizeof m, NULL, 0);
        assert_int_equal(reply_error(fd, PATIENCE_MS), -EBADMSG);
        m = plain(good_type);
        m.nfds = 3; /* fewer came */
        send_raw(fd, &m, sizeof m, fds, 1);
        assert_int_equal(reply_error(fd, PATIENCE_MS), -EBADMSG);
        m.nfds = 0; /* more came */
        send_raw(fd, &m, sizeof m, fds, 1);
        assert_int_equal(reply_error(fd, PATIENCE_MS), -EBADMSG);
        m.nfds = 30;
        send_raw(fd, &m, sizeof m, fds, 30);
        assert_int_equal(reply_error(fd, PATIENCE_MS), -EBADMSG);
        m.nfds = 1; /* a type that has none */
        send_raw(fd, &m, sizeof m, fds, 1);
        assert_int_equal(reply_error(fd, PATIENCE_MS), -EBADMSG);
}

static void malformed_messages_get_an_error(void **state)
{
        struct bystander b;
        struct unetd_client evil = {.pid = 0};

        bystander_start(&b);
        assert_int_equal(unetd_open(&evil, 0), 0);
        say_nonsense(evil.daemon.fd, UNETD_PORT_LEASE);
        say_nonsense(keeper_fd(&evil), UNETD_STACK_GET);
        unetd_close(&evil);
        bystander_check(&b);
        bystander_stop(&b);
}

static void nothing_is_served_before_hello(void **state)
{
        struct bystander b;
        struct sockaddr_un sun;
        struct unetd_msg m = plain(UNETD_STATUS);
        socklen_t len = unetd_name(&sun, geteuid(), getenv("UNET_DOMAIN"), 0);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

        bystander_start(&b);
        assert_int_equal(connect(fd, (struct sockaddr *)&sun, len), 0);
        send_raw(fd, &m, sizeof m, NULL, 0);
        assert_int_equal(reply_error(fd, PATIENCE_MS), -EBADMSG);
        m = plain(UNETD_HELLO);
        m.hello.abi = UNETD_ABI + 1;
        send_raw(fd, &m, sizeof m, NULL, 0);
        assert_int_equal(reply_error(fd, PATIENCE_MS), -EPROTONOSUPPORT);
        send_raw(fd, NULL, 0, NULL, 0); /* an empty packet counts as the end */
        assert_int_equal(reply_error(fd, PATIENCE_MS), 2);
        close(fd);
        bystander_check(&b);
        bystander_stop(&b);
}

static void a_stack_of_huge_pages_is_refused(void **state)
{
        struct bystander b;
        struct fake_stack st;
        struct unetd_stack_fds f;
        int huge = memfd_create("huge", MFD_HUGETLB | MFD_ALLOW_SEALING), plain_fd;

        bystander_start(&b);
        fake_stack_make(&st);
        f = st.fds;
        if (huge >= 0) {
                assert_int_equal(ftruncate(huge, 2 << 20), 0);
                assert_int_equal(
                        fcntl(huge, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
                f.state = huge;
                assert_int_equal(unetd_stack_new(&b.c, &f, 0, &st.id), -EINVAL);
                close(huge);
        }
        plain_fd = memfd_create("unsealed", MFD_ALLOW_SEALING);
        assert_int_equal(ftruncate(plain_fd, FAKE_BYTES), 0);
        assert_int_equal(fchmod(plain_fd, 0600), 0);
        f.state = plain_fd;
        assert_int_equal(unetd_stack_new(&b.c, &f, 0, &st.id), -EPERM);
        close(plain_fd);
        f = st.fds;
        f.bell = st.fds.state; /* not one page */
        assert_int_equal(unetd_stack_new(&b.c, &f, 0, &st.id), -ERANGE);
        f.bell = fd_reopen(st.fds.bell, O_RDONLY);
        assert_int_equal(unetd_stack_new(&b.c, &f, 0, &st.id), -EACCES);
        close(f.bell);
        f = st.fds;
        f.leader = st.fds.keeper; /* not what the ringer is for */
        assert_int_equal(unetd_stack_new(&b.c, &f, 0, &st.id), -EINVAL);
        fake_stack_forget(&st);
        bystander_check(&b);
        bystander_stop(&b);
}

/* ---- floods ---- */

/* Sends requests and never reads; returns how the connection ended. */
static int flood(int fd, uint16_t type)
{
        struct unetd_msg m = plain(type);

        for (int i = 0; i < 1000000; i++) {
                if (send_raw(fd, &m, sizeof m, NULL, 0) >= 0)
                        continue;
                if (errno != EAGAIN)
                        return errno;
                world_sleep_ms(1);
        }
        return 0;
}

static void who_never_reads_is_disconnected(void **state)
{
        struct bystander b;
        struct unetd_client evil = {.pid = 0};
        int r;

        bystander_start(&b);
        assert_int_equal(unetd_open(&evil, 0), 0);
        keeper_fd(&evil);
        r = flood(evil.daemon.fd, UNETD_HELLO); /* each reply has a descriptor */
        assert_true(r == EPIPE || r == ECONNRESET);
        r = flood(evil.keeper.fd, UNETD_STACK_GET);
        assert_true(r == EPIPE || r == ECONNRESET);
        unetd_close(&evil);
        bystander_check(&b);
        bystander_stop(&b);
}

static int connect_raw(void)
{
        struct sockaddr_un sun;
        socklen_t len = unetd_name(&sun, geteuid(), getenv("UNET_DOMAIN"), 0);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);

        assert_true(fd >= 0);
        if (connect(fd, (struct sockaddr *)&sun, len) == 0)
                return fd;
        close(fd);
        return -1;
}

static void many_silent_connections_harm_nobody(void **state)
{
        struct bystander b;
        int fd[1000];

        bystander_start(&b);
        for (size_t i = 0; i < ARRAY_LEN(fd); i++)
                fd[i] = connect_raw();
        assert_int_equal(unetd_proc_add(&b.c, b.st[0].id, 0, 0), 0);
        for (size_t i = 0; i < ARRAY_LEN(fd); i++)
                if (fd[i] >= 0)
                        close(fd[i]);
        bystander_check(&b);
        bystander_stop(&b);
}

/* More connections than it may have descriptors: those it has are served, it does not spin, and it
 * recovers. */
static void out_of_descriptors_it_goes_on(void **state)
{
        struct rlimit rl = {64, 64};
        struct unetd_client c = {.pid = 0};
        pid_t pid = fork();
        int fd[100];

        if (pid == 0) {
                setrlimit(RLIMIT_NOFILE, &rl);
                execl(TEST_LIBEXEC "/unetd", "unetd", "--foreground", "--log", "/dev/null", NULL);
                _exit(127);
        }
        eventually(unetd_open(&c, UNETD_NO_START) == 0);
        for (size_t i = 0; i < ARRAY_LEN(fd); i++)
                fd[i] = connect_raw();
        assert_int_equal(world_daemon_pid(&c), pid);
        for (size_t i = 0; i < ARRAY_LEN(fd); i++)
                if (fd[i] >= 0)
                        close(fd[i]);
        unetd_close(&c);
        eventually(unetd_open(&c, UNETD_NO_START) == 0);
        unetd_close(&c);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
}

/* ---- a hostile keeper ---- */

/* A client that says it is a keeper, when there is one: what it offers must be in order, and goes
 * with it. */
static int offers_nonsense(void *arg)
{
        struct unetd_client c = {.pid = 0};
        struct unetd_msg m = plain(UNETD_K_STACK);
        int fds[6] = {0, 0, 0, 0, 0, 0}, fd;

        if (unetd_open(&c, 0) != 0 || unetd_offer_keeper(&c, &fd) != -EEXIST)
                return 1;
        m.seq = 0;
        for (uint16_t type = 1; type < UNETD_TYPES; type++) {
                for (unsigned n = 0; n <= 6; n++) {
                        m.type = type;
                        m.nfds = (uint16_t)n;
                        m.stack.stack = *(uint32_t *)arg;
                        m.stack.slot = 5;
                        /* K_GONE, K_ORPHAN and K_PROC_GONE would be believed: it is the
                         * same user */
                        if (type != UNETD_K_GONE && type != UNETD_K_ORPHAN &&
                            type != UNETD_K_PROC_GONE)
                                send_raw(fd, &m, sizeof m, fds, n);
                        world_sleep_ms(1);
                }
        }
        return 0;
}

static void a_false_keeper_offers_in_vain(void **state)
{
        struct bystander b;

        bystander_start(&b);
        assert_int_equal(world_child(offers_nonsense, &b.st[0].id), 0);
        bystander_check(&b);
        bystander_stop(&b);
}

/* ms, on a busy machine: less than anybody waits for one that is stopped. */
#define AT_ONCE 2000

/* A keeper that is stopped: callers get -ETIMEDOUT, and only the first has to wait for that; others
 * are served, and it goes on where it was. */
static void a_stopped_keeper_holds_up_its_own_calls_only(void **state)
{
        struct bystander b;
        struct fake_stack st;
        uint32_t chan, peer;
        int64_t began;

        bystander_start(&b);
        fake_stack_make(&st);
        kill(b.keeper, SIGSTOP);
        assert_int_equal(unetd_stack_new(&b.c, &st.fds, 0, &st.id), -ETIMEDOUT);
        began = world_now_ms();
        assert_int_equal(unetd_stack_new(&b.c, &st.fds, 0, &st.id), -ETIMEDOUT);
        assert_int_equal(unetd_chan_open(&b.c, b.st[0].id, b.st[0].id, &chan, &peer), -ETIMEDOUT);
        assert_true(world_now_ms() - began < AT_ONCE);
        assert_int_equal(unetd_listen_add(&b.c, b.st[0].id, 6, (ip_addr){{0, 0}}, 4242, 0, -1), 0);
        assert_int_equal(unetd_listen_del(&b.c, b.st[0].id, 6, (ip_addr){{0, 0}}, 4242, 0), 0);
        kill(b.keeper, SIGCONT);
        eventually(st.s->attached == 1);
        fake_stack_forget(&st);
        bystander_stop(&b);
}

/* What is asked of the keeper itself is waited for once, too, while it is stopped. */
static void a_stopped_keeper_is_asked_once(void **state)
{
        struct unetd_stack_fds got;
        struct bystander b;
        int64_t began;

        bystander_start(&b);
        kill(b.keeper, SIGSTOP);
        assert_int_equal(unetd_stack_get(&b.c, b.st[0].id, &got), -ETIMEDOUT);
        began = world_now_ms();
        for (int i = 0; i < 3; i++)
                assert_int_equal(unetd_stack_get(&b.c, b.st[0].id, &got), -ETIMEDOUT);
        assert_true(world_now_ms() - began < AT_ONCE);
        kill(b.keeper, SIGCONT);
        bystander_check(&b);
        bystander_stop(&b);
}

/* ---- fuzzing ---- */

static unsigned seed;

static uint32_t rnd(uint32_t below)
{
        return (uint32_t)rand_r(&seed) % below;
}

struct fds {
        int fd[24];
        size_t n;
        struct fake_stack st;
};

/* One of each kind that could be mistaken for something. */
static void fds_make(struct fds *f)
{
        int p[2], sp[2];

        fake_stack_make(&f->st);
        assert_int_equal(pipe2(p, O_NONBLOCK), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sp), 0);
        int all[] = {f->st.fds.state,
                     f->st.fds.bell,
                     f->st.fds.leader,
                     f->st.fds.ring_leader,
                     f->st.fds.keeper,
                     f->st.fds.ring_keeper,
                     p[0],
                     p[1],
                     sp[0],
                     sp[1],
                     open("/", O_RDONLY),
                     open("/", O_PATH),
                     open("/dev/null", O_RDWR),
                     memfd_create("x", MFD_ALLOW_SEALING),
                     socket(AF_INET, SOCK_STREAM, 0),
                     epoll_create1(0),
                     open("/proc/self/mem", O_RDWR),
                     fd_reopen(f->st.fds.state, O_RDONLY)};
        f->n = ARRAY_LEN(all);
        memcpy(f->fd, all, sizeof all);
}

/* Replies that have come, counted by kind: a fuzzer that only ever gets errors finds little. */
static long served, refused;

static bool drain(int fd)
{
        int err;

        while ((err = reply_error(fd, 0)) <= 0) {
                served += err == 0;
                refused += err < 0;
        }
        return err == 1;
}

/* A request that could be an honest one, of this stack or of the bystander's. */
static size_t plausible(struct unetd_msg *m, const struct fds *f, const uint32_t ids[2], int *fds)
{
        static const ip_addr addrs[] = {{{0, 0}}, {{0, 0x0100007fffff0000}}};

        *m = plain((uint16_t)(UNETD_HELLO + rnd(UNETD_CHAN_GET - UNETD_HELLO + 1)));
        m->seq = 1 + rnd(4);
        if (m->type == UNETD_STATUS) {
                m->status = (struct unetd_status_item){.kind = rnd(UNETD_S_KINDS), .index = rnd(3)};
                return 0;
        }
        if (m->type == UNETD_PROC_DEL && rnd(20))
                m->type = UNETD_CHAN_OPEN; /* without a process there is no stack to play with */
        if (m->type == UNETD_HELLO) {
                m->hello.abi = UNETD_ABI + !rnd(100); /* the wrong one ends all service */
                return 0;
        }
        m->stack.stack = ids[rnd(16) == 0];
        if (m->type >= UNETD_LISTEN_ADD && m->type <= UNETD_PORT_RELEASE) {
                m->port.proto = rnd(2) ? 6 : 17;
                m->port.port = (uint16_t)(40000 + rnd(4));
                m->port.addr = addrs[rnd(2)];
        } else if (m->type == UNETD_CHAN_OPEN || m->type == UNETD_CHAN_GET) {
                m->chan.chan = rnd(3);
                m->chan.peer_stack = ids[rnd(2)];
        } else {
                m->stack.slot = rnd(4);
        }
        if (m->type == UNETD_STACK_NEW)
                memcpy(fds, f->fd, 6 * sizeof *fds);
        return m->type == UNETD_STACK_NEW ? 6 : 0;
}

static void garbage(struct unetd_msg *m)
{
        for (size_t i = 0; i < sizeof *m; i++)
                ((uint8_t *)m)[i] = (uint8_t)(rnd(3) ? 0 : rnd(256));
        m->magic = UNETD_MAGIC;
        m->type = (uint16_t)rnd(UNETD_TYPES + 2);
}

/* A few bytes and descriptors changed. */
static size_t mutate(struct unetd_msg *m, const struct fds *f, int *fds, size_t n)
{
        for (uint32_t i = rnd(4); i > 0; i--)
                ((uint8_t *)m)[rnd(3) ? rnd(64) : rnd(sizeof *m)] = (uint8_t)rnd(256);
        if (rnd(4) == 0)
                n = rnd(12);
        for (size_t i = 0; i < n; i++)
                if (rnd(6) == 0 || fds[i] < 0)
                        fds[i] = f->fd[rnd((uint32_t)f->n)];
        return n;
}

/* What would be believed of the same user, and outlive the fuzzer or harm the bystander, whose
 * stacks have numbers next to each other. */
static void tame(struct unetd_msg *m, const uint32_t ids[2])
{
        if (m->type == UNETD_PROC_ADD && m->stack.pid != 0 && m->stack.pid != getpid())
                m->stack.pid = 0; /* a living stranger would keep the stack */
        if (m->type == UNETD_K_HELLO && rnd(200))
                m->type = UNETD_STACK_NEW; /* after it, only a keeper's words count */
        if (m->stack.stack - ids[1] < BYSTANDERS && m->type != UNETD_STACK_GET &&
            m->type != UNETD_CHAN_GET)
                m->stack.stack = ids[0]; /* the bystander's only as a peer */
}

/* False: the connection is gone. */
static bool random_send(const struct unetd_client *c, const struct fds *f, const uint32_t ids[2])
{
        char buf[1024];
        struct unetd_msg m;
        int fds[12], fd;
        size_t n, len = rnd(50) ? sizeof m : rnd(sizeof buf);

        memset(fds, 0xff, sizeof fds);
        n = plausible(&m, f, ids, fds);
        if (rnd(10) == 0)
                garbage(&m);
        if (rnd(2))
                n = mutate(&m, f, fds, n);
        tame(&m, ids);
        m.nfds = (uint16_t)(rnd(50) ? n : rnd(10));
        memset(buf, 0x5a, sizeof buf);
        memcpy(buf, &m, sizeof m);
        fd = (m.type >= UNETD_STACK_GET) ^ !rnd(20) ? c->keeper.fd : c->daemon.fd;
        while (send_raw(fd, buf, len, fds, n) < 0 && errno != EBADF) {
                if (errno != EAGAIN || !drain(fd))
                        return false;
                world_sleep_ms(1);
        }
        return rnd(4) ? drain(fd) : true;
}

static int fuzzer(void *arg)
{
        const char *env = getenv("UNET_FUZZ_MESSAGES");
        long messages = env ? atol(env) : 20000;
        struct unetd_client c = {.pid = 0};
        struct fds f;
        uint32_t ids[2] = {0, *(uint32_t *)arg};
        bool up = false;

        fds_make(&f);
        for (long i = 0; i < messages; i++) {
                if (!up || i % 500 == 0) {
                        unetd_close(&c);
                        if (unetd_open(&c, 0) != 0)
                                return 1;
                        unetd_stack_new(&c, &f.st.fds, 0, &ids[0]);
                        keeper_fd(&c);
                }
                up = random_send(&c, &f, ids);
        }
        printf("%ld served, %ld refused\n", served, refused);
        fflush(stdout);
        return 0;
}

/* The switch of emulated endpoints stays, once somebody wanted it: a random message may be the
 * first that does. */
static void start_switch(void)
{
        struct unetd_msg m = plain(UNETD_EMUL_ATTACH);
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;
        int fd;

        assert_int_equal(unetd_open(&c, 0), 0);
        fake_stack_make(&st);
        fd = fd_reopen(st.fds.state, O_RDONLY);
        m.nfds = UNETD_EMUL_FDS;
        assert_true(send_raw(c.daemon.fd, &m, sizeof m, (const int[]){fd, fd}, UNETD_EMUL_FDS) > 0);
        assert_true(reply_error(c.daemon.fd, PATIENCE_MS) < 0);
        close(fd);
        fake_stack_forget(&st);
        unetd_close(&c);
}

static void random_messages_harm_nobody(void **state)
{
        struct bystander b;
        const char *env = getenv("UNET_SEED");

        seed = env ? (unsigned)strtoul(env, NULL, 10) : 1;
        print_message("UNET_SEED=%u\n", seed);
        start_switch();
        bystander_start(&b);
        assert_int_equal(b.st[BYSTANDERS - 1].id, b.st[0].id + BYSTANDERS - 1);
        assert_int_equal(world_child(fuzzer, &b.st[0].id), 0);
        bystander_check(&b);
        bystander_stop(&b);
}

#define t(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                t(malformed_messages_get_an_error),
                t(nothing_is_served_before_hello),
                t(a_stack_of_huge_pages_is_refused),
                t(who_never_reads_is_disconnected),
                t(many_silent_connections_harm_nobody),
                t(out_of_descriptors_it_goes_on),
                t(a_false_keeper_offers_in_vain),
                t(a_stopped_keeper_holds_up_its_own_calls_only),
                t(a_stopped_keeper_is_asked_once),
                t(random_messages_harm_nobody),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
