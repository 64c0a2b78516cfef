/*
 * Every message that a client may send to a system-wide unetd, and every one that a keeper may, by
 * a hostile user: in a wrong form, early and late, about another user's stacks, ports and channels,
 * with each wrong kind of descriptor and a wrong number of them. The victim's transfers go on
 * meanwhile; unetd answers afterwards, and nothing of it is left. In a short run of all that could
 * be sent one in ONE_OF is, of each type other ones; UNET_SEED makes it others.
 */
#include "tests/long_run.h"
#include "tests/users/users.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

/* ---- the table: whom it is about, what it says, what it brings ---- */

enum { TARGETS = 8, FILLS = 7, KINDS = 18, BRINGS = 1 + KINDS + UNETD_FDS_MAX + UNETD_STACK_FDS };
#define TYPES (UNETD_TYPES + 2u) /* two that there are not */

#define ONE_OF (long_run() ? 1u : 4u)

struct hostile {
        int fd;  /* the connection; -1: none */
        int ask; /* another one, that unetd answers by; -1: none */
        struct hostile_stack st;
        bool has_stack;
        int kind[KINDS];
};

static uint32_t target(const struct hostile *h, unsigned i)
{
        const uint32_t ids[TARGETS] = {h->st.id,           table->stack,    0,
                                       UNETD_IFACE,        UNETD_IFACE | 7, UNETD_REMOTE | 1,
                                       UNETD_STACK_ID_MAX, UINT32_MAX};

        return ids[i];
}

static void fill_port(struct unetd_msg *m, uint8_t proto, uint32_t stack)
{
        m->port = (struct unetd_port){.stack = stack,
                                      .proto = proto,
                                      .port = (uint16_t)table->port,
                                      .addr = ip_addr_v4(INADDR_LOOPBACK)};
}

static void fill(struct unetd_msg *m, const struct hostile *h, unsigned how, uint32_t stack)
{
        memset(m->bytes, how == 1 ? 0xff : 0, sizeof m->bytes);
        switch (how) {
        case 2:
                fill_port(m, IPPROTO_TCP, stack);
                return;
        case 3:
                fill_port(m, IPPROTO_UDP, stack);
                return;
        case 4: /* a channel of the victim's with us, and of ours with him */
                m->chan.peer_stack = target(h, 1);
                break;
        case 5:
                m->chan.peer_stack = h->st.id;
                break;
        case 6:
                m->lease = (struct unetd_lease){
                        .stack = stack, .first = (uint16_t)(table->port / 64 * 64), .count = 64};
                return;
        default:
                break;
        }
        m->stack.stack = stack;
}

/* Nothing; one of each wrong kind; too few and too many that could be right; and a stack's, of
 * which one is something else. */
static unsigned bring(const struct hostile *h, unsigned what, int fds[UNETD_FDS_MAX])
{
        int own[UNETD_STACK_FDS] = {h->st.fds.state,       h->st.fds.bell,   h->st.fds.leader,
                                    h->st.fds.ring_leader, h->st.fds.keeper, h->st.fds.ring_keeper};
        unsigned n = UNETD_STACK_FDS;

        if (what == 0)
                return 0;
        if (what <= KINDS) {
                fds[0] = h->kind[what - 1];
                return 1;
        }
        what -= KINDS + 1;
        if (what < UNETD_FDS_MAX)
                n = what + 1;
        for (unsigned i = 0; i < n; i++)
                fds[i] = own[i % UNETD_STACK_FDS];
        if (what >= UNETD_FDS_MAX)
                fds[what - UNETD_FDS_MAX] = h->kind[table->value[1]++ % KINDS];
        return n;
}

static int sealed(size_t bytes, unsigned seals)
{
        int fd = memfd_create("unet-state", MFD_ALLOW_SEALING | MFD_CLOEXEC);

        must(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
        return fd;
}

static void make_kinds(struct hostile *h)
{
        int p[2], blocking[2], pair[2], lines[2], n = 0;
        const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

        prctl(PR_SET_DUMPABLE, 1); /* not since the uid changed; /proc/self is root's then */
        must(pipe2(p, O_NONBLOCK) == 0 && pipe2(blocking, 0) == 0);
        must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0 &&
             socketpair(AF_UNIX, SOCK_DGRAM, 0, lines) == 0);
        h->kind[n++] = p[0];
        h->kind[n++] = blocking[1];
        h->kind[n++] = pair[0];
        h->kind[n++] = lines[0];
        h->kind[n++] = socket(AF_INET, SOCK_STREAM, 0);
        h->kind[n++] = socket(AF_INET, SOCK_DGRAM, 0);
        h->kind[n++] = eventfd(0, EFD_NONBLOCK);
        h->kind[n++] = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
        h->kind[n++] = epoll_create1(0);
        h->kind[n++] = (int)syscall(SYS_pidfd_open, getpid(), 0);
        h->kind[n++] = open("/", O_RDONLY | O_DIRECTORY);
        h->kind[n++] = open("/", O_PATH);
        h->kind[n++] = open("/dev/null", O_RDWR);
        h->kind[n++] = open("/dev/zero", O_RDWR);
        h->kind[n++] = open("/proc/self/mem", O_RDWR);
        h->kind[n++] = sealed(1 << 20, F_SEAL_SEAL); /* could shrink */
        h->kind[n++] = sealed(1, seals);
        h->kind[n++] = fd_reopen(h->st.fds.state, O_RDONLY);
        must(n == KINDS);
        for (int i = 0; i < n; i++)
                must(h->kind[i] >= 0);
}

/* ---- sending ---- */

static unsigned sent, done, refused; /* in this child: messages, and answers to them */

static bool is_sent(uint16_t type, unsigned i)
{
        const char *seed = getenv("UNET_SEED");

        return (i + type + (seed ? (unsigned)atoi(seed) : 0)) % ONE_OF == 0;
}

/* What has come is counted. False: the connection is no more. */
static bool drain(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};
        struct wire_in in;

        while (poll(&p, 1, 0) == 1) {
                int r = wire_recv(fd, &in, MSG_DONTWAIT);

                wire_in_close(&in);
                done += r == 0 && in.msg.err == 0;
                refused += r == 0 && in.msg.err < 0;
                if (r == -ECONNRESET || (p.revents & POLLHUP && r < 0))
                        return false;
        }
        return true;
}

static bool send_bytes(int fd, const void *bytes, size_t len, const int *fds, unsigned n)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(RIGHTS_MAX * sizeof(int))];
        } ctl;
        struct iovec iov = {(void *)(uintptr_t)bytes, len};
        struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

        if (n > 0) {
                memset(&ctl, 0, sizeof ctl);
                mh.msg_control = &ctl;
                mh.msg_controllen = CMSG_SPACE(n * sizeof(int));
                *CMSG_FIRSTHDR(&mh) = (struct cmsghdr){.cmsg_len = CMSG_LEN(n * sizeof(int)),
                                                       .cmsg_level = SOL_SOCKET,
                                                       .cmsg_type = SCM_RIGHTS};
                memcpy(CMSG_DATA(CMSG_FIRSTHDR(&mh)), fds, n * sizeof(int));
        }
        while (sendmsg(fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
                if (errno != EAGAIN || !drain(fd))
                        return false;
                usleep(100);
        }
        sent++;
        return true;
}

/* Who sends too many descriptors is not listened to for a while. */
static int dial_again(bool hello)
{
        int64_t until = users_now_ms() + USERS_PATIENCE_MS;

        for (;;) {
                int fd = hostile_dial();

                if (fd >= 0 && (!hello || hostile_hello(fd) == 0))
                        return fd;
                if (fd >= 0)
                        close(fd);
                must(users_now_ms() < until);
                usleep(1000);
        }
}

/* Each type in turn begins with a connection, and a stack of its own if unetd gives it one. */
static void begin(struct hostile *h, bool hello, bool stack)
{
        if (h->fd >= 0)
                close(h->fd);
        h->fd = dial_again(hello);
        if (!stack)
                return;
        if (h->has_stack)
                hostile_stack_close(&h->st);
        h->has_stack = true;
        hostile_stack(h->fd, &h->st);
}

static int ask_status(const struct hostile *h)
{
        struct unetd_msg m = {.type = UNETD_STATUS};

        return h->ask < 0 ? -ECONNRESET : hostile_ask(h->ask, &m, NULL, 0);
}

/* What was sent before on it has been looked at, and answered, where it is not about to be; or the
 * connection has ended. Asked twice: a user who has used up his share of a turn is heard in the
 * next one. */
static void await_unetd(struct hostile *h)
{
        while (ask_status(h) < 0 || ask_status(h) < 0) {
                if (h->ask >= 0)
                        close(h->ask);
                h->ask = dial_again(true); /* it is listened to again in a moment */
        }
        drain(h->fd);
}

/* Each message is looked at before the next one: unetd does not listen to who has sent it many
 * strange descriptors. */
static bool send_one(struct hostile *h, const struct unetd_msg *m, const int *fds, unsigned n,
                     bool answered)
{
        struct pollfd p = {.fd = h->fd, .events = POLLIN};

        if (!send_bytes(h->fd, m, sizeof *m, fds, n))
                return false;
        if (answered)
                poll(&p, 1, 5); /* some answers come late, some never */
        else if (n > 0)
                await_unetd(h);
        return drain(h->fd);
}

/* All of one type, on one connection while it lasts; after that by `again`, or no more if that is
 * NULL. */
static void send_all(struct hostile *h, uint16_t type, uint32_t seq, bool answered,
                     void (*again)(struct hostile *h))
{
        for (unsigned i = 0; i < TARGETS * FILLS + 2 * BRINGS; i++) {
                bool brings = i >= TARGETS * FILLS;
                unsigned k = i - TARGETS * FILLS;
                struct unetd_msg m = {.magic = UNETD_MAGIC, .type = type, .seq = seq};
                int fds[UNETD_FDS_MAX];
                unsigned n;

                if (!is_sent(type, i))
                        continue;
                n = brings ? bring(h, k % BRINGS, fds) : 0;
                fill(&m, h, brings ? 0 : i % FILLS, target(h, brings ? k / BRINGS : i / FILLS));
                m.nfds = (uint16_t)n;
                if (send_one(h, &m, fds, n, answered))
                        continue;
                if (!again)
                        return;
                again(h);
        }
}

/* Of no form that there is: lengths, magic, numbers of descriptors. */
static void send_malformed(struct hostile *h, uint16_t type, void (*again)(struct hostile *h))
{
        static const size_t lengths[] = {
                1, 2, 8, sizeof(struct unetd_msg) - 1, sizeof(struct unetd_msg) + 1, 4096};
        uint8_t bytes[4096];

        for (unsigned i = 0; i < ARRAY_LEN(lengths) + 4; i++) {
                struct unetd_msg m = {.magic = UNETD_MAGIC, .type = type, .seq = 1};
                size_t len = i < ARRAY_LEN(lengths) ? lengths[i] : sizeof m;
                int fds[16];
                unsigned n = i == ARRAY_LEN(lengths) + 2 ? ARRAY_LEN(fds) : i & 1;

                for (unsigned k = 0; k < ARRAY_LEN(fds); k++)
                        fds[k] = h->kind[k];
                m.magic += i == ARRAY_LEN(lengths);
                m.nfds = (uint16_t)(i == ARRAY_LEN(lengths) + 1   ? 0xffff
                                    : i == ARRAY_LEN(lengths) + 3 ? n + 1
                                                                  : n);
                memset(bytes, 0x5a, sizeof bytes);
                memcpy(bytes, &m, sizeof m);
                if (!send_bytes(h->fd, bytes, len, fds, n) || !drain(h->fd))
                        again(h);
        }
}

static int say(void)
{
        printf("%u messages: %u done, %u refused\n", sent, done, refused);
        fflush(stdout);
        return 0;
}

/* ---- roles, in a child of the hostile user ---- */

static void as_client(struct hostile *h)
{
        begin(h, true, false);
}

static void as_stranger(struct hostile *h)
{
        begin(h, false, false);
}

/* Who says that he is the keeper while there is one: what he says is the other's to hold. */
static void as_false_keeper(struct hostile *h)
{
        struct unetd_msg m = {.type = UNETD_K_HELLO};

        begin(h, true, false);
        hostile_ask(h->fd, &m, NULL, 0);
}

static struct hostile prepare(void)
{
        struct hostile h = {.fd = -1, .ask = -1};

        must(hostile_keeper(HOSTILE_ANSWERS) >=
             0); /* a real one would not take a stack with nothing in it */
        h.fd = dial_again(true);
        h.has_stack = true;
        must(hostile_stack(h.fd, &h.st) == 0);
        make_kinds(&h);
        return h;
}

static int a_client(void)
{
        struct hostile h = prepare();

        for (uint16_t type = 0; type < TYPES; type++) {
                begin(&h, true, true);
                send_all(&h, type, 1, true, as_client);
                send_malformed(&h, type, as_client);
                await_unetd(&h);
        }
        must(done > 0 && refused > TYPES * TARGETS);
        return say();
}

static int before_hello(void)
{
        struct hostile h = prepare();

        for (uint16_t type = 0; type < TYPES; type++) {
                if (type == UNETD_HELLO)
                        continue;
                as_stranger(&h);
                send_all(&h, type, 1, true, as_stranger);
                send_malformed(&h, type, as_stranger);
                await_unetd(&h);
        }
        must(done == 0 && refused > TYPES * TARGETS);
        return say();
}

static int a_false_keeper(void)
{
        struct hostile h = prepare();

        for (uint16_t type = 0; type < TYPES; type++) {
                begin(&h, true, true);
                as_false_keeper(&h);
                send_all(&h, type, 0, false, as_false_keeper);
                send_malformed(&h, type, as_false_keeper);
                await_unetd(&h);
        }
        return say();
}

/* Of table->value[0], by a user who has no other keeper; until unetd has enough of it. */
static int the_keeper(void)
{
        uint16_t type = (uint16_t)table->value[0];
        struct hostile h = {.fd = -1, .ask = -1};
        int keeper = hostile_keeper(HOSTILE_ANSWERS), client;

        must(keeper >= 0);
        client = dial_again(true);
        hostile_stack(client, &h.st);
        h.fd = keeper;
        make_kinds(&h);
        for (uint32_t seq = 0; seq < 3;
             seq++) /* said unasked; and as answers, to what was asked and to what was not */
                send_all(&h, type, seq, false, NULL);
        await_unetd(&h);
        return 0;
}

/* ---- tests ---- */

static int fds_of_unetd(void)
{
        return users_fds(users_unetd()) + users_fds(users_broker());
}

struct left {
        uint32_t items, victims_stack;
};

static bool look(void *arg, const struct unetd_status_item *item)
{
        struct left *l = arg;

        if (item->kind == UNETD_S_STACK && item->uid == VICTIM)
                l->victims_stack = item->stack;
        else if (item->kind > UNETD_S_KEEPER && item->kind != UNETD_S_CHAN && item->uid >= HOSTILE)
                l->items++;
        return true;
}

static struct left what_is_left(void)
{
        struct left l = {0, 0};
        struct unetd_client c = {.pid = 0};

        if (unetd_open(&c, UNETD_NO_START | UNETD_SYSTEM) < 0 || unetd_status(&c, look, &l) < 0)
                l.items = UINT32_MAX;
        unetd_close(&c);
        return l;
}

static void goes_on(int fds)
{
        users_victim_goes_on();
        users_unetd_answers();
        eventually(what_is_left().items == 0);
        eventually(fds_of_unetd() <= fds);
}

/* The victim runs. Descriptors of unetd. */
static int start(void)
{
        table->port = users_victim_start();
        table->stack = what_is_left().victims_stack;
        assert_int_not_equal(table->stack, 0);
        return fds_of_unetd();
}

static void by(int (*role)(void))
{
        int fds;

        if (users_cannot_run())
                skip();
        fds = start();
        users_run(HOSTILE, role);
        goes_on(fds + 1); /* he may have a keeper now */
}

static void requests_of_a_client(void **state)
{
        by(a_client);
}

static void requests_before_hello(void **state)
{
        by(before_hello);
}

static void words_of_a_false_keeper(void **state)
{
        by(a_false_keeper);
}

/* Another user for each type, since a keeper that says wrong things is soon none. */
static void words_of_a_keeper(void **state)
{
        int fds;

        if (users_cannot_run())
                skip();
        fds = start();
        for (uint16_t type = 0; type < TYPES; type++) {
                table->value[0] = type;
                users_run(HOSTILE + 1 + type, the_keeper);
        }
        goes_on(fds + (int)TYPES); /* a keeper of each may be there */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(requests_of_a_client, users_setup, users_teardown),
                cmocka_unit_test_setup_teardown(requests_before_hello, users_setup, users_teardown),
                cmocka_unit_test_setup_teardown(words_of_a_false_keeper, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(words_of_a_keeper, users_setup, users_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
