/*
 * Random conversations with a system-wide unetd, by two hostile users at once: one is a client
 * whose keeper agrees to all, the other is its own keeper, which answers late, wrongly or not, and
 * offers what it likes. Messages are mostly what could be honest, about stacks of both, and then
 * changed. A stack has few channels, so that they yield to each other; bells are mixed up, also
 * with those of the other user. Built for the sanitizers; without them a crash is seen all the
 * same.
 *
 * UNET_SEED makes it another run, UNET_FUZZ_MESSAGES sets its length (of each user),
 * UNET_FUZZ_SECONDS lets it go on for that long.
 */
#include "tests/users/users.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memfd.h"
#include "unet/shm/shm_ring.h"

enum { CONNS = 4, STACKS = 4, ASKED = 8, STRANGE = 8, PORTS = 4 };

#define FEW_CHANNELS 5 /* of a stack */

struct player {
        unsigned seed;
        int conn[CONNS]; /* -1: none */
        int keeper;      /* the connection that is our keeper's, or -1 */
        struct hostile_stack st[STACKS];
        unsigned nst;
        int sock[PORTS]; /* bound TCP and UDP sockets by turns, and their ports */
        uint16_t port[PORTS];
        int strange[STRANGE];
        int region;                    /* a channel's */
        int epoll;                     /* a keeper's, of sockets in messages */
        struct unetd_msg asked[ASKED]; /* by unetd, of our keeper */
        unsigned nasked;
        unsigned sent, done, refused;
};

static struct player p;

static uint32_t rnd(uint32_t below)
{
        return (uint32_t)rand_r(&p.seed) % below;
}

/* ---- what there is ---- */

static void make_strange(void)
{
        int pipes[2], pair[2];

        must(pipe2(pipes, O_CLOEXEC) == 0 &&
             socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
        p.strange[0] = pipes[0];
        p.strange[1] = pipes[1];
        p.strange[2] = pair[0];
        p.strange[3] = eventfd(0, EFD_CLOEXEC);
        p.strange[4] = open("/", O_RDONLY | O_CLOEXEC);
        p.strange[5] = open("/dev/null", O_RDWR | O_CLOEXEC);
        p.strange[6] = memfd_create("unet-state", MFD_ALLOW_SEALING | MFD_CLOEXEC);
        p.strange[7] = open("/dev/zero", O_RDWR | O_CLOEXEC);
        for (int i = 0; i < STRANGE; i++)
                must(p.strange[i] >= 0);
}

static void make_region(void)
{
        p.region = unet_memfd_make_sealed("unet-channel",
                                          SHM_REGION_BYTES(((struct frame_geom){{0}})));
        must(p.region >= 0);
        must((p.epoll = epoll_create1(EPOLL_CLOEXEC)) >= 0);
}

static void make_ports(void)
{
        for (int i = 0; i < PORTS; i++) {
                p.sock[i] = hostile_socket(i % 2 ? IPPROTO_UDP : IPPROTO_TCP,
                                           i < 2 ? INADDR_LOOPBACK : INADDR_ANY, &p.port[i], true);
                must(p.sock[i] >= 0);
        }
}

/* A stack of ours, of the other user's, an interface, none; or any number. The users tell each
 * other what they have. */
static uint32_t some_stack(void)
{
        switch (rnd(8)) {
        case 0:
                return (uint32_t)table->value[rnd(4)];
        case 1:
                return rnd(2) ? UNETD_IFACE | rnd(3) : UNETD_REMOTE | rnd(3);
        case 2:
                return rnd(2) ? 0 : (uint32_t)rand_r(&p.seed);
        default:
                return p.nst != 0 ? p.st[rnd(p.nst)].id : 0;
        }
}

/* One that there is, most often; or one of those that there may be, of which few are used; or any.
 */
static uint32_t some_channel(void)
{
        switch (rnd(8)) {
        case 0:
                return rnd(UNETD_CHANS_MAX + 2);
        case 1:
                return (uint32_t)rand_r(&p.seed);
        default:
                return rnd(FEW_CHANNELS);
        }
}

static unsigned stack_fds(int fds[UNETD_FDS_MAX])
{
        const struct unetd_stack_fds *f = &p.st[rnd(MAX(p.nst, 1u))].fds;

        if (p.nst == 0)
                return 0;
        memcpy(fds,
               (const int[]){f->state, f->bell, f->leader, f->ring_leader, f->keeper,
                             f->ring_keeper},
               UNETD_STACK_FDS * sizeof *fds);
        if (rnd(8) == 0) { /* a bell of another stack's, or in another's place */
                const struct unetd_stack_fds *o = &p.st[rnd(p.nst)].fds;
                const int bells[] = {o->bell, o->leader, o->ring_leader, o->keeper, o->ring_keeper};

                fds[UNETD_FD_BELL + rnd(UNETD_STACK_FDS - 1)] = bells[rnd(ARRAY_LEN(bells))];
        }
        return UNETD_STACK_FDS;
}

/* Of a channel that an earlier unetd made, in form. */
static unsigned channel_fds(struct unetd_msg *m, int fds[UNETD_FDS_MAX])
{
        unsigned n = unetd_is_remote(m->chan.peer_stack) ? UNETD_REMOTE_FDS : UNETD_CHAN_FDS;

        if (rnd(4) == 0)
                return stack_fds(fds);
        for (unsigned i = 0; i < n; i++)
                fds[i] = p.region;
        return n;
}

/* ---- a message that could be honest ---- */

static unsigned fill_port(struct unetd_msg *m, int fds[UNETD_FDS_MAX])
{
        uint32_t i = rnd(PORTS);

        m->port = (struct unetd_port){.stack = some_stack(),
                                      .proto = i % 2 ? IPPROTO_UDP : IPPROTO_TCP,
                                      .port = p.port[i],
                                      .addr = ip_addr_v4(i < 2 ? INADDR_LOOPBACK : INADDR_ANY),
                                      .sock = rnd(2) ? 0 : rnd(1000)};
        fds[0] = p.sock[i];
        return (m->type == UNETD_LISTEN_ADD || m->type == UNETD_FLIGHT) && rnd(4) ? 1 : 0;
}

static unsigned fill(struct unetd_msg *m, int fds[UNETD_FDS_MAX])
{
        switch ((enum unetd_type)m->type) {
        case UNETD_HELLO:
                m->hello = (struct unetd_hello){.abi = UNETD_ABI + !rnd(20), .flags = rnd(2)};
                return 0;
        case UNETD_LISTEN_ADD:
        case UNETD_LISTEN_DEL:
        case UNETD_PORT_HOLD:
        case UNETD_PORT_RELEASE:
        case UNETD_PORT_SETTLE:
        case UNETD_K_UNLISTEN:
        case UNETD_K_ALOFT:
                return fill_port(m, fds);
        case UNETD_PORT_LEASE:
                m->lease =
                        (struct unetd_lease){.stack = some_stack(),
                                             .first = (uint16_t)(rnd(2) ? 0 : 32768 + rnd(64) * 64),
                                             .count = 64};
                return 0;
        case UNETD_CHAN_OPEN:
        case UNETD_CHAN_GET:
        case UNETD_K_CHAN:
        case UNETD_CHAN_BACK:
        case UNETD_K_CHAN_PART:
        case UNETD_K_CHAN_DOWN:
                m->chan = (struct unetd_chan_info){.stack = some_stack(),
                                                   .chan = some_channel(),
                                                   .peer_stack = some_stack(),
                                                   .peer_chan = some_channel()};
                return m->type == UNETD_K_CHAN ? channel_fds(m, fds) : 0;
        case UNETD_K_CHAN_TAKEN:
        case UNETD_K_CHAN_FREE:
        case UNETD_K_CHAN_YIELD:
        case UNETD_K_CHAN_STAY:
                m->stack = (struct unetd_stack){.stack = some_stack(),
                                                .slot = some_channel(),
                                                .uid = rnd(2) ? UINT32_MAX : 0};
                return 0;
        case UNETD_K_FLIGHTS:
                fds[0] = rnd(4) ? p.epoll : p.region;
                return rnd(8) ? 1 : 0;
        case UNETD_STATUS:
                m->status =
                        (struct unetd_status_item){.kind = rnd(UNETD_S_KINDS + 1), .index = rnd(5)};
                return 0;
        default:
                m->stack = (struct unetd_stack){
                        .stack = some_stack(), .slot = rnd(5), .pid = rnd(2) ? 0 : getpid()};
                return m->type == UNETD_STACK_NEW || m->type == UNETD_K_STACK ? stack_fds(fds) : 0;
        }
}

static unsigned change(struct unetd_msg *m, int fds[UNETD_FDS_MAX], unsigned n)
{
        for (uint32_t i = rnd(4); i > 0; i--)
                m->bytes[rnd(rnd(3) ? 24 : sizeof m->bytes)] = (uint8_t)rnd(256);
        if (rnd(4) == 0)
                n = rnd(UNETD_FDS_MAX + 1);
        for (unsigned i = 0; i < n; i++)
                if (fds[i] < 0 || rnd(16) == 0)
                        fds[i] = p.strange[rnd(STRANGE)];
        return n;
}

/* ---- connections ---- */

static void close_conn(int *fd)
{
        if (*fd >= 0)
                close(*fd);
        *fd = -1;
}

/* What unetd asks of the keeper is answered later. */
static void note(int fd, const struct wire_in *in)
{
        p.done += in->msg.err == 0;
        p.refused += in->msg.err != 0;
        if (fd == p.keeper && in->msg.seq != 0)
                p.asked[p.nasked++ % ASKED] = in->msg;
}

static void drain(int *fd)
{
        struct wire_in in;

        while (*fd >= 0) {
                int r = wire_recv(*fd, &in, MSG_DONTWAIT);

                wire_in_close(&in);
                if (r == -EAGAIN)
                        return;
                if (r == -ECONNRESET)
                        close_conn(fd);
                else if (r == 0)
                        note(*fd, &in);
        }
}

static void send_to(int *fd, struct unetd_msg *m, const int *fds, unsigned n)
{
        struct pollfd wait = {.events = POLLIN | POLLOUT};

        for (int tries = 0; *fd >= 0 && tries < 100; tries++) {
                int r = wire_send(*fd, m, fds, n, MSG_DONTWAIT);

                p.sent += r == 0;
                if (r == 0)
                        return;
                if (r != -EAGAIN)
                        close_conn(fd);
                drain(fd);
                wait.fd = *fd;
                poll(&wait, *fd >= 0, 10);
        }
}

/* ---- steps ---- */

static void dial(int *fd)
{
        close_conn(fd);
        *fd = hostile_dial();
        if (*fd >= 0 && rnd(8) && hostile_hello(*fd) != 0)
                close_conn(fd);
}

static void new_stack(int *fd)
{
        struct hostile_stack *st = &p.st[p.nst < STACKS ? p.nst : rnd(STACKS)];
        struct unetd_msg m = {.type = UNETD_STATUS, .seq = 1};

        if (p.nst == STACKS)
                hostile_stack_close(st);
        else
                p.nst++;
        if (p.keeper >= 0) { /* who would answer its K_STACK is the one who would wait here */
                int fds[UNETD_FDS_MAX];

                must(unetd_stack_fds_make(&st->fds, 1 << 20) == 0);
                m = (struct unetd_msg){.type = UNETD_STACK_NEW, .seq = 1};
                stack_fds(fds);
                st->id = p.nasked != 0 ? p.asked[rnd(MIN(p.nasked, ASKED))].stack.stack : 0;
                send_to(fd, &m, fds, UNETD_STACK_FDS);
        } else { /* on one that is no link of an emulated endpoint's by now: that answers nothing */
                close_conn(fd);
                *fd = hostile_dial();
                if (*fd >= 0 && (hostile_hello(*fd) != 0 || hostile_stack(*fd, st) != 0))
                        close_conn(fd);
        }
        table->value[rnd(4)] = st->id;
}

/* Most often one that does something; of the others, a K_HELLO seldom: nothing but a keeper's words
 * count after it. */
static uint16_t any_type(bool keeper)
{
        static const uint8_t often[] = {UNETD_CHAN_OPEN,    UNETD_CHAN_OPEN,  UNETD_PROC_ADD,
                                        UNETD_LISTEN_ADD,   UNETD_LISTEN_DEL, UNETD_PORT_HOLD,
                                        UNETD_PORT_RELEASE, UNETD_PORT_LEASE, UNETD_PORT_SETTLE,
                                        UNETD_STATUS},
                             said[] = {UNETD_K_STACK,      UNETD_K_PROC,      UNETD_K_CHAN,
                                       UNETD_K_PROC_GONE,  UNETD_K_UNLISTEN,  UNETD_K_ALOFT,
                                       UNETD_K_CHAN_TAKEN, UNETD_K_CHAN_FREE, UNETD_LISTEN_ADD,
                                       UNETD_PORT_HOLD,    UNETD_PORT_LEASE,  UNETD_K_FLIGHTS};
        uint16_t type = (uint16_t)(1 + rnd(UNETD_TYPES - 1));

        if (rnd(4) != 0)
                return keeper ? said[rnd(sizeof said)] : often[rnd(sizeof often)];
        return type == UNETD_K_HELLO && rnd(20) ? UNETD_CHAN_OPEN : type;
}

static void any_message(int *fd)
{
        struct unetd_msg m = {.type = any_type(fd == &p.keeper), .seq = 1 + rnd(4)};
        struct pollfd wait = {.events = POLLIN};
        int fds[UNETD_FDS_MAX];
        unsigned n;

        memset(fds, 0xff, sizeof fds);
        n = fill(&m, fds);
        if (rnd(3) == 0)
                n = change(&m, fds, n);
        if (fd == &p.keeper)
                m.seq = rnd(4) ? 0 : rnd(100);
        send_to(fd, &m, fds, n);
        wait.fd = *fd;
        if (*fd >= 0 &&
            rnd(8)) /* for its answer, most often: else unetd never gets to what is sent last */
                poll(&wait, 1, 5);
}

static void answer(void)
{
        struct unetd_msg m;

        if (p.nasked == 0)
                return;
        m = p.asked[rnd(MIN(p.nasked, ASKED))];
        m.err = rnd(4) ? 0 : -(int)rnd(133) + 10;
        if (rnd(8) == 0)
                m.type = (uint16_t)rnd(UNETD_TYPES);
        if (m.type == UNETD_K_CHAN_YIELD)
                m.stack.slot = some_channel();
        if (rnd(8) == 0)
                m.bytes[rnd(sizeof m.bytes)] = (uint8_t)rnd(256);
        send_to(&p.keeper, &m, NULL, 0);
}

static void be_keeper(void)
{
        struct unetd_msg m = {.type = UNETD_K_HELLO, .seq = 1};

        p.nasked = 0;
        close_conn(&p.keeper);
        p.keeper = hostile_dial();
        if (p.keeper < 0 || hostile_hello(p.keeper) != 0)
                close_conn(&p.keeper);
        else
                send_to(&p.keeper, &m, NULL, 0);
}

static void step(bool keeper)
{
        int *fd = &p.conn[rnd(CONNS)];

        if (*fd < 0 || rnd(200) == 0)
                dial(fd);
        else if (keeper && (p.keeper < 0 || rnd(500) == 0))
                be_keeper();
        else if (p.nst == 0 || rnd(50) == 0)
                new_stack(fd);
        else if (keeper && rnd(2))
                answer();
        else
                any_message(keeper && rnd(3) == 0 ? &p.keeper : fd);
        for (int i = 0; i < CONNS; i++)
                drain(&p.conn[i]);
        drain(&p.keeper);
}

static int64_t setting(const char *name, int64_t otherwise)
{
        const char *env = getenv(name);

        return env ? atoll(env) : otherwise;
}

static int play(bool keeper)
{
        int64_t until = users_now_ms() + setting("UNET_FUZZ_SECONDS", 0) * 1000;
        int64_t messages = setting("UNET_FUZZ_MESSAGES", 4000);

        p.seed = (unsigned)setting("UNET_SEED", 1) * 2 + keeper;
        p.keeper = -1;
        for (int i = 0; i < CONNS; i++)
                p.conn[i] = -1;
        if (!keeper) /* else a real one, which takes no stack with nothing in it */
                must(hostile_keeper(HOSTILE_ANSWERS) >= 0);
        make_strange();
        make_ports();
        make_region();
        for (int64_t i = 0; i < messages || users_now_ms() < until; i++)
                step(keeper);
        printf("%s: %u sent, %u done, %u refused\n", keeper ? "keeper" : "client", p.sent, p.done,
               p.refused);
        fflush(stdout);
        return p.sent == 0;
}

static int a_client(void)
{
        return play(false);
}

static int a_keeper(void)
{
        return play(true);
}

/* ---- the test ---- */

static char reports[64];

static int setup(void **state)
{
        char options[256], config[64];

        snprintf(config, sizeof config, "[limits]\nchannels_per_stack = %d\n", FEW_CHANNELS);
        snprintf(reports, sizeof reports, "/tmp/unet-random-%d", (int)getpid());
        snprintf(options, sizeof options, "log_path=%s:detect_leaks=0", reports);
        setenv("ASAN_OPTIONS", options, 1);
        setenv("UBSAN_OPTIONS", options, 1);
        return users_setup_with(config);
}

static void expect_no_report(void)
{
        char pattern[sizeof reports + 2], line[256];
        glob_t g;

        snprintf(pattern, sizeof pattern, "%s*", reports);
        if (glob(pattern, 0, NULL, &g) != 0)
                return;
        for (size_t i = 0; i < g.gl_pathc; i++) {
                FILE *f = fopen(g.gl_pathv[i], "r");

                while (f && fgets(line, sizeof line, f))
                        print_message("%s", line);
                if (f)
                        fclose(f);
                unlink(g.gl_pathv[i]);
        }
        fail_msg("%zu reports of sanitizers", g.gl_pathc);
}

static uint64_t instance(void)
{
        struct unetd_client c = {.pid = 0};
        uint64_t n = 0;

        eventually(unetd_open(&c, UNETD_NO_START | UNETD_SYSTEM) == 0);
        n = c.instance;
        unetd_close(&c);
        return n;
}

static bool count_theirs(void *arg, const struct unetd_status_item *item)
{
        *(unsigned *)arg +=
                item->kind > UNETD_S_KEEPER && item->kind != UNETD_S_CHAN && item->uid >= HOSTILE;
        return true;
}

static unsigned theirs(void)
{
        struct unetd_client c = {.pid = 0};
        unsigned n = 0;

        if (unetd_open(&c, UNETD_NO_START | UNETD_SYSTEM) < 0 ||
            unetd_status(&c, count_theirs, &n) < 0)
                n = UINT32_MAX;
        unetd_close(&c);
        return n;
}

static void random_conversations_harm_nobody(void **state)
{
        uint64_t before;
        pid_t client, keeper;

        if (users_cannot_run())
                skip();
        print_message("UNET_SEED=%lld\n", (long long)setting("UNET_SEED", 1));
        before = instance();
        client = users_begin(HOSTILE, a_client);
        keeper = users_begin(HOSTILE + 1, a_keeper);
        users_wait(client);
        users_wait(keeper);
        assert_true(instance() == before); /* it is the same unetd */
        eventually(theirs() == 0);
        expect_no_report();
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(random_conversations_harm_nobody, setup,
                                                users_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
