/*
 * Two users and one system-wide unetd: each has a keeper of his own, neither sees, opens or
 * disturbs what is the other's, and a channel between them gives each side exactly what it may
 * have. Needs root, to be both.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <unet/unet.h>

#include "tests/unetd/world.h"
#include "unet/shm/shm_ring.h"
#include "unetd/client/name.h"
#include "unetd/client/stopped.h"
#include "unetd/client/wire.h"

#define ALICE 65534u
#define BOB   54321u

static pid_t system_unetd;

/* What the two tell each other through a shared page. */
struct table {
        _Atomic uint32_t alice_stack, bob_stack;
        _Atomic uint32_t bob_saw, done, port, reused;
        _Atomic uint32_t ready, stopped, sent;
        _Atomic int32_t bob_keeper;
};
static struct table *table;

static bool reachable_by(uint32_t uid)
{
        int status;
        pid_t pid = fork();

        if (pid == 0)
                _exit(setresuid(uid, uid, uid) == 0 && access(TEST_LIBEXEC "/unetd", X_OK) == 0
                              ? 0
                              : 1);
        waitpid(pid, &status, 0);
        return status == 0;
}

static bool cannot_run(void)
{
        if (geteuid() != 0) {
                print_message("skipped: only root can be two users\n");
                return true;
        }
        if (!reachable_by(ALICE)) {
                print_message("skipped: the build tree is closed to other users\n");
                return true;
        }
        return false;
}

static int setup(void **state)
{
        struct unetd_client c = {.pid = 0};

        world_setup(state);
        table = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        system_unetd = 0;
        if (geteuid() != 0)
                return 0;
        system_unetd = fork();
        if (system_unetd == 0) {
                execl(TEST_LIBEXEC "/unetd", "unetd", "--system", "--foreground", "--log",
                      "/dev/null", NULL);
                _exit(127);
        }
        eventually(unetd_open(&c, UNETD_NO_START) == 0);
        unetd_close(&c);
        return 0;
}

static int teardown(void **state)
{
        munmap(table, 4096);
        if (system_unetd > 0) {
                kill(system_unetd, SIGKILL);
                waitpid(system_unetd, NULL, 0);
        }
        return 0;
}

static void become(uint32_t uid)
{
        gid_t gid = uid;

        if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
                abort();
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
}

/* In a child: like assert_true, but by exit status, which is the line. */
#define must(cond)                                                                 \
        do {                                                                       \
                if (!(cond)) {                                                     \
                        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
                        _exit(1);                                                  \
                }                                                                  \
        } while (0)
#define must_eventually(cond)                                       \
        do {                                                        \
                bool is_ = (cond);                                  \
                for (int64_t until_ = world_now_ms() + PATIENCE_MS; \
                     !is_ && world_now_ms() < until_;) {            \
                        world_sleep_ms(1);                          \
                        is_ = (cond);                               \
                }                                                   \
                must(is_);                                          \
        } while (0)

static void must_stack(struct unetd_client *c, struct fake_stack *st)
{
        int r;

        must(unetd_open(c, 0) == 0);
        must(c->shared);
        must(unetd_stack_fds_make(&st->fds, FAKE_BYTES) == 0);
        st->s = mmap(NULL, FAKE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, st->fds.state, 0);
        must(st->s != MAP_FAILED);
        st->s->magic = FAKE_MAGIC;
        st->id = 0;
        r = unetd_stack_new(c, &st->fds, 0, &st->id);
        if (r != 0)
                fprintf(stderr, "uid %u: %s\n", (unsigned)geteuid(), strerror(-r));
        must(r == 0);
}

static bool only_mine(void *arg, const struct unetd_status_item *item)
{
        if (item->kind != UNETD_S_DAEMON)
                must(item->uid == *(uint32_t *)arg);
        return true;
}

static bool reopens(int fd, int flags)
{
        char path[64];
        int got;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        got = open(path, flags | O_NONBLOCK);
        if (got >= 0)
                close(got);
        return got >= 0;
}

/* Bob has a stack, and waits. */
static void bob(void)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;
        struct unetd_chan ch;
        uint32_t uid = BOB, chan = 0;

        become(BOB);
        must_stack(&c, &st);
        must(unetd_status(&c, only_mine, &uid) == 0);
        table->bob_keeper = world_keeper_pid(&c);
        table->bob_stack = st.id;
        must_eventually(st.s->chan_peer[0] != 0);
        must(st.s->chan_peer[chan] == table->alice_stack);
        must(unetd_chan_get(&c, st.id, chan, &ch) == 0);
        must(ch.peer_uid == ALICE);
        table->bob_saw = 1;
        must_eventually(table->done);
        must_eventually(st.s->chan_peer[0] == 0); /* Alice has gone */
        _exit(0);
}

static void alice_tries_everything(void)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;
        struct unetd_stack_fds got;
        struct unetd_chan ch;
        uint32_t uid = ALICE, chan, peer, theirs;
        uint16_t port = 80, first = 0, count = 0;
        char path[64];

        become(ALICE);
        must_stack(&c, &st);
        table->alice_stack = st.id;
        must_eventually(table->bob_stack != 0);
        theirs = table->bob_stack;

        must(unetd_status(&c, only_mine, &uid) == 0);
        must(unetd_stack_get(&c, theirs, &got) == -ENOENT);
        must(unetd_chan_get(&c, theirs, 0, &ch) == -ENOENT);
        must(unetd_proc_add(&c, theirs, 1, 0) == -EPERM);
        must(unetd_proc_add(&c, st.id, 1, table->bob_keeper) == -EPERM);
        must(unetd_proc_del(&c, theirs, 0) == -EPERM);
        must(unetd_listen_add(&c, theirs, IPPROTO_TCP, ip_addr_v4(0), 4242, 0, -1) == -EPERM);
        must(unetd_port_hold(&c, theirs, IPPROTO_TCP, ip_addr_v4(0), &port) == -EPERM);
        must(unetd_port_lease(&c, theirs, &first, &count) == -EPERM);
        must(unetd_chan_open(&c, theirs, st.id, &chan, &peer) == -EPERM);
        must(unetd_stack_new(&c, &st.fds, 0, &theirs) == -EINVAL); /* a number of hers it is not */

        must(unetd_chan_open(&c, st.id, theirs, &chan, &peer) == 0);
        must(unetd_chan_get(&c, st.id, chan, &ch) == 0);
        must(ch.peer_uid == BOB);
        must(!reopens(ch.rx, O_RDWR));
        must(!reopens(ch.peer_bell, O_RDWR));
        must(!reopens(ch.peer_leader, O_RDONLY));
        must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ch.rx, 0) == MAP_FAILED);
        must(ftruncate(ch.tx, 0) < 0); /* sealed: Bob's view of it stays */
        must(fcntl(ch.tx, F_ADD_SEALS, F_SEAL_WRITE) < 0);
        must(fcntl(ch.peer_leader, F_SETFL, 0) == 0); /* her own description only */
        must(kill(table->bob_keeper, 0) < 0 && errno == EPERM);
        snprintf(path, sizeof path, "/proc/%d/fd", (int)table->bob_keeper);
        must(open(path, O_RDONLY | O_DIRECTORY) < 0);
        must_eventually(table->bob_saw);
        _exit(0);
}

static void must_child(pid_t pid)
{
        int status;

        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

static void neither_reads_nor_opens_what_is_the_others(void **state)
{
        pid_t a, b;

        if (cannot_run())
                skip();
        b = fork();
        if (b == 0)
                bob();
        a = fork();
        if (a == 0)
                alice_tries_everything();
        must_child(a);
        table->done = 1;
        must_child(b);
}

static void keeper_is_as_the_user(void)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;
        char path[64], line[256];
        unsigned uid = 0, gid = 0;
        FILE *f;

        become(ALICE);
        must_stack(&c, &st);
        snprintf(path, sizeof path, "/proc/%d/status", (int)world_keeper_pid(&c));
        f = fopen(path, "re");
        must(f);
        while (fgets(line, sizeof line, f)) {
                if (strncmp(line, "CapEff:", 7) == 0)
                        must(strtoull(line + 7, NULL, 16) == 0);
                sscanf(line, "Uid: %*u %u", &uid);
                sscanf(line, "Gid: %*u %u", &gid);
                if (strncmp(line, "Groups:", 7) == 0)
                        must(strtoul(line + 7, NULL, 10) == ALICE);
        }
        must(uid == ALICE && gid == ALICE);
        table->bob_keeper = world_keeper_pid(&c);
        must_eventually(ptrace(PTRACE_ATTACH, table->bob_keeper, NULL, NULL) == -1 &&
                        errno == EPERM);
        table->ready = 1;
        must_eventually(table->done);
        _exit(0);
}

/* It has what who started unetd had, which root raises for itself; but for memory that queue
 * pairs pin. */
static void is_limited(pid_t keeper)
{
        enum { HARD = 47, WIDTH = 20 }; /* of proc_pid_limits(5) */
        char path[64], own[256], its[256];
        FILE *a = fopen("/proc/self/limits", "re"), *b;

        snprintf(path, sizeof path, "/proc/%d/limits", (int)keeper);
        b = fopen(path, "re");
        assert_non_null(a);
        assert_non_null(b);
        while (fgets(own, sizeof own, a) && fgets(its, sizeof its, b))
                if (strncmp(own, "Max locked", 10) != 0)
                        assert_memory_equal(own + HARD, its + HARD, WIDTH);
        fclose(a);
        fclose(b);
}

static bool has_a_terminal(pid_t keeper)
{
        char path[64], line[256];

        snprintf(path, sizeof path, "/proc/%d/fd/1", (int)keeper);
        return readlink(path, line, sizeof line) != 9 || strncmp(line, "/dev/null", 9) != 0;
}

static void the_keeper_runs_as_the_user(void **state)
{
        pid_t pid;

        if (cannot_run())
                skip();
        pid = fork();
        if (pid == 0)
                keeper_is_as_the_user();
        eventually(table->ready);
        is_limited(table->bob_keeper);
        assert_false(has_a_terminal(table->bob_keeper));
        table->done = 1;
        must_child(pid);
}

/* ---- ports in a shared unetd ---- */

static bool local_port(int fd, uint16_t *port)
{
        struct sockaddr_in sin;
        socklen_t len = sizeof sin;

        if (getsockname(fd, (struct sockaddr *)&sin, &len) < 0)
                return false;
        *port = ntohs(sin.sin_port);
        return true;
}

static int tcp_listener(uint16_t *port)
{
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        must(fd >= 0 && bind(fd, (struct sockaddr *)&sin, sizeof sin) == 0 && listen(fd, 1) == 0 &&
             local_port(fd, port));
        return fd;
}

static void ports_need_proof(int foreign, uint16_t foreign_port)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;
        ip_addr lo = ip_addr_v4(INADDR_LOOPBACK);
        struct dir_hit hit;
        uint16_t port, low = 80, chosen = 0;
        int fd;

        become(ALICE);
        must_stack(&c, &st);
        fd = tcp_listener(&port);
        must(unetd_listen_add(&c, st.id, IPPROTO_TCP, lo, port, 0, -1) == -EACCES);
        must(unetd_listen_add(&c, st.id, IPPROTO_TCP, lo, port, 0, fd) == 0);
        close(fd); /* unetd has it too: nobody takes the port while the entry stands */
        must(directory_lookup(c.dir, IPPROTO_TCP, lo, port, 0, &hit) == 1 && hit.uid == ALICE);
        must(unetd_port_hold(&c, st.id, IPPROTO_TCP, lo, &low) == -EACCES);
        must(unetd_port_hold(&c, st.id, IPPROTO_TCP, lo, &chosen) == 0);
        must(unetd_listen_add(&c, st.id, IPPROTO_TCP, lo, chosen, 0, -1) == 0);
        /* bound, listening, but in another network namespace */
        must(unetd_listen_add(&c, st.id, IPPROTO_TCP, lo, foreign_port, 0, foreign) == -EINVAL);
        _exit(0);
}

/* A socket of a network namespace that is gone but for it. */
static int foreign_listener(uint16_t *port)
{
        int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), fd;
        struct sockaddr_in sin = {.sin_family = AF_INET,
                                  .sin_port = htons(8080),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

        assert_int_equal(unshare(CLONE_NEWNET), 0);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof sin), 0);
        assert_int_equal(listen(fd, 1), 0);
        assert_int_equal(setns(home, CLONE_NEWNET), 0);
        close(home);
        *port = 8080;
        return fd;
}

static void a_port_is_registered_only_against_its_socket(void **state)
{
        uint16_t port;
        pid_t pid;
        int fd;

        if (cannot_run())
                skip();
        fd = foreign_listener(&port);
        pid = fork();
        if (pid == 0)
                ports_need_proof(fd, port);
        must_child(pid);
        close(fd);
}

/* A server that listens anew for each client, as iperf3 does: unetd's copy of the socket is closed
 * by a child of its. */
static void alice_listens_again_and_again(void)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;
        ip_addr lo = ip_addr_v4(INADDR_LOOPBACK);
        uint16_t port = 0;

        become(ALICE);
        must_stack(&c, &st);
        for (int i = 0; i < 50; i++) {
                int fd = world_socket(IPPROTO_TCP, &port);
                must(unetd_listen_add(&c, st.id, IPPROTO_TCP, lo, port, 0, fd) == 0);
                close(fd);
                must(unetd_listen_del(&c, st.id, IPPROTO_TCP, lo, port, 0) == 0);
        }
        _exit(0);
}

static void a_port_is_free_when_its_listener_is_gone(void **state)
{
        pid_t pid;

        if (cannot_run())
                skip();
        pid = fork();
        if (pid == 0)
                alice_listens_again_and_again();
        must_child(pid);
}

/* ---- a TCP port is one user's ---- */

#define PORT_TAKEN 7 /* bob's status: the kernel has given the port to a stranger meanwhile */

static int bound_to(uint16_t port, int status)
{
        struct sockaddr_in sin = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

        must(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
        if (bind(fd, (struct sockaddr *)&sin, sizeof sin) < 0)
                _exit(status);
        return fd;
}

enum { SENDS = IPPROTO_TCP | DIR_HELD };

/* Says that she listens, and does not any more; and sends from a port that others may be bound to
 * as well. */
static void alice_claims(void)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;
        ip_addr lo = ip_addr_v4(INADDR_LOOPBACK);
        uint16_t port, reused;
        int fd, b;

        become(ALICE);
        must_stack(&c, &st);
        fd = tcp_listener(&port);
        b = bound_to(0, 1);
        must(local_port(b, &reused));
        must(unetd_listen_add(&c, st.id, IPPROTO_TCP, lo, port, 0, fd) == 0);
        must(unetd_listen_add(&c, st.id, SENDS, lo, reused, 0, b) == 0);
        must(shutdown(fd, SHUT_RDWR) == 0); /* the kernel has the port again, which it had chosen */
        table->alice_stack = st.id;
        table->reused = reused;
        table->port = port;
        pause();
}

static void bob_has_the_port(void)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;
        ip_addr lo = ip_addr_v4(INADDR_LOOPBACK);
        struct dir_hit hit;
        int fd;

        become(BOB);
        must_stack(&c, &st);
        must_eventually(table->port != 0);
        fd = bound_to((uint16_t)table->port, PORT_TAKEN);
        must(listen(fd, 1) == 0);
        must(unetd_listen_add(&c, st.id, IPPROTO_TCP, lo, (uint16_t)table->port, 0, fd) == 0);
        must(directory_lookup(c.dir, IPPROTO_TCP, lo, (uint16_t)table->port, 0, &hit) == 1);
        must(hit.stack == st.id && hit.same_key == 1);
        /* The kernel lets both of them connect from there, and unetd the first. */
        fd = bound_to((uint16_t)table->reused, 1);
        must(unetd_listen_add(&c, st.id, SENDS, lo, (uint16_t)table->reused, 0, fd) == -EADDRINUSE);
        must(directory_vouches(c.dir, IPPROTO_TCP, lo, (uint16_t)table->reused,
                               table->alice_stack) == 1);
        _exit(0);
}

static int alice_claims_and_bob_has_the_port(void)
{
        pid_t alice = fork(), bob;
        int status;

        if (alice == 0)
                alice_claims();
        bob = fork();
        if (bob == 0)
                bob_has_the_port();
        assert_int_equal(waitpid(bob, &status, 0), bob);
        kill(alice, SIGKILL);
        waitpid(alice, NULL, 0);
        return status;
}

static void a_claim_that_does_not_hold_any_more_gives_way(void **state)
{
        int status = PORT_TAKEN << 8;

        if (cannot_run())
                skip();
        for (int tries = 0; tries < 10 && WIFEXITED(status) && WEXITSTATUS(status) == PORT_TAKEN;
             tries++) {
                table->port = 0;
                status = alice_claims_and_bob_has_the_port();
        }
        assert_int_equal(status, 0);
}

/* ---- one user cannot stop the service for the other ---- */

/* A connected socket with data that its peer does not read, which its last close waits for: an
 * hour, or until *listening is closed. */
static int lingering_socket(int *listening)
{
        struct linger hour = {1, 3600};
        uint16_t port;
        int l = *listening = tcp_listener(&port), fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in sin = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        static char data[65536];

        must(connect(fd, (struct sockaddr *)&sin, sizeof sin) == 0);
        while (send(fd, data, sizeof data, MSG_DONTWAIT) > 0)
                ;
        must(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof hour) == 0);
        must(fcntl(l, F_SETFD, 0) == 0); /* stays, and does not read */
        return fd;
}

/* Passes it in messages that have no use for it, in one that is refused, and in one that is
 * never read. */
static void alice_obstructs(int ready)
{
        struct unetd_msg m = {.type = UNETD_STATUS, .seq = 1};
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;
        int fd, listening;

        become(ALICE);
        must_stack(&c, &st);
        fd = lingering_socket(&listening);
        must(unetd_listen_add(&c, st.id, IPPROTO_TCP, ip_addr_v4(INADDR_LOOPBACK), 4242, 0, fd) ==
             -EINVAL);
        for (int i = 0; i < 100; i++)
                wire_send(c.daemon.fd, &m, &fd, 1, MSG_DONTWAIT);
        close(fd);
        must(write(ready, "r", 1) == 1);
        pause();
}

static void bob_is_served(void)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;

        become(BOB);
        must_stack(&c, &st);
        _exit(0);
}

static void a_user_cannot_hold_up_the_other(void **state)
{
        struct unetd_client c = {.pid = 0};
        int ready[2];
        char byte;
        pid_t a, b;

        if (cannot_run())
                skip();
        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        a = fork();
        if (a == 0)
                alice_obstructs(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        b = fork();
        if (b == 0)
                bob_is_served();
        must_child(b);
        kill(a, SIGKILL);
        waitpid(a, NULL, 0);
        assert_int_equal(unetd_open(&c, UNETD_NO_START), 0);
        eventually(world_count(&c).n[UNETD_S_STACK] == 0);
        unetd_close(&c);
        close(ready[0]), close(ready[1]);
}

/* What is in a message to unetd, and nowhere else, unetd closes; and with SO_LINGER for long. */
static void alice_passes(struct unetd_client *c, struct unetd_msg *m, int fd)
{
        table->ready = 1;
        must_eventually(table->stopped);
        must(wire_send(c->daemon.fd, m, &fd, 1, 0) == 0);
        close(fd);
        table->sent = 1;
}

/* The port may be what a child of unetd still closes: its user is told when all is closed. */
static void alice_asks_what_stands_at_a_port(void)
{
        struct unetd_msg add = {
                .type = UNETD_LISTEN_ADD,
                .seq = 1000000,
                .port = {.proto = IPPROTO_TCP, .port = 4242, .addr = ip_addr_v4(INADDR_LOOPBACK)}};
        struct unetd_msg settle = {.type = UNETD_PORT_SETTLE, .seq = 1000001, .port = add.port};
        struct unetd_client c = {.pid = 0}, other = {.pid = 0};
        struct pollfd answer;
        struct fake_stack st;
        struct wire_in in;
        int fd, listening;

        become(ALICE);
        must_stack(&c, &st);
        must(unetd_open(&other, UNETD_NO_START) == 0);
        fd = lingering_socket(&listening);
        add.port.stack = st.id;
        alice_passes(&c, &add, fd);
        answer = (struct pollfd){.fd = c.daemon.fd, .events = POLLIN};
        must(poll(&answer, 1, 60000) == 1 && wire_recv(c.daemon.fd, &in, 0) == 0);
        must(in.msg.seq == 1000000 && in.msg.err == -EINVAL);
        must(wire_send(c.daemon.fd, &settle, NULL, 0, 0) == 0);
        for (int i = 0; i < 3; i++)
                world_count(&other); /* it has heard of it by then */
        must(poll(&answer, 1, 0) == 0);
        close(listening);
        must(poll(&answer, 1, 60000) == 1 && wire_recv(c.daemon.fd, &in, 0) == 0);
        must(in.msg.type == UNETD_PORT_SETTLE && in.msg.seq == 1000001 && in.msg.err == 0);
        _exit(0);
}

static void what_a_child_closes_is_waited_for(void **state)
{
        struct unetd_client c = {.pid = 0};
        pid_t alice, broker;

        if (cannot_run())
                skip();
        assert_int_equal(unetd_open(&c, UNETD_NO_START), 0);
        broker = world_daemon_pid(&c);
        unetd_close(&c);
        alice = fork();
        if (alice == 0)
                alice_asks_what_stands_at_a_port();
        eventually(table->ready);
        kill(broker, SIGSTOP);
        eventually(process_is_stopped(broker));
        table->stopped = 1;
        eventually(table->sent);
        kill(broker, SIGCONT);
        must_child(alice);
}

/* ---- private ones ---- */

/* Its names are of this run, so that no other's is met. */
static const char *private_domain(void)
{
        static char domain[40];

        if (domain[0] == 0)
                snprintf(domain, sizeof domain, "%.28s-own", getenv("UNET_DOMAIN"));
        return domain;
}

static void alices_private_unetd(int ready, int stop)
{
        struct unetd_client c = {.pid = 0};
        char byte;

        become(ALICE);
        setenv("UNET_DOMAIN", private_domain(), 1);
        must(unetd_open(&c, 0) == 0 && !c.shared);
        must(write(ready, "r", 1) == 1);
        must(read(stop, &byte, 1) == 0);
        kill(world_daemon_pid(&c), SIGTERM);
        _exit(0);
}

static void bob_knocks(void)
{
        struct unetd_msg m = {.type = UNETD_HELLO, .hello = {.abi = UNETD_ABI}};
        struct sockaddr_un sun;
        socklen_t len = unetd_name(&sun, ALICE, private_domain(), 0);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        struct wire_in in;

        become(BOB);
        must(connect(fd, (struct sockaddr *)&sun, len) == 0);
        wire_send(fd, &m, NULL, 0, 0);
        must(wire_recv(fd, &in, 0) == -ECONNRESET);
        _exit(0);
}

static void a_private_unetd_serves_its_user_only(void **state)
{
        int ready[2], stop[2];
        char byte;
        pid_t a, b;

        if (cannot_run())
                skip();
        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        assert_int_equal(pipe2(stop, O_CLOEXEC), 0);
        private_domain();
        a = fork();
        if (a == 0) {
                close(stop[1]);
                alices_private_unetd(ready[1], stop[0]);
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        b = fork();
        if (b == 0)
                bob_knocks();
        must_child(b);
        close(stop[1]);
        must_child(a);
        close(ready[0]), close(stop[0]);
}

/* ---- emulated endpoints ---- */

static void alice_listens(void)
{
        struct unet_ep *ep;
        struct unet_recv m;
        uint32_t chan;
        int all, own;

        become(ALICE);
        must(unet_ep_open(NULL, &ep) == 0);
        must(unet_ep_provide(ep, &(struct unet_frag){(uint32_t)unet_ep_segment(ep).tx_bytes, 8192},
                             1) == 1);
        must((all = unet_emul_listen("all", UNET_EMUL_ANYBODY)) >= 0);
        must((own = unet_emul_listen("own", 0)) >= 0);
        table->alice_stack = 1;
        must(unet_emul_accept(ep, all, PATIENCE_MS * NS_PER_MS, &chan) == 0);
        must(unet_ep_wait(ep, UNET_READABLE, PATIENCE_MS * NS_PER_MS) == UNET_READABLE);
        must(unet_ep_recv(ep, &m, 1) == 1 && m.len == 5000);
        must(unet_emul_accept(ep, own, 0, &chan) == -ETIMEDOUT);
        _exit(0);
}

static void bob_calls(void)
{
        struct unet_ep *ep;
        struct unet_send m = {.nfrags = 1, .frag = {{0, 5000}}};
        char name[32];

        become(BOB);
        must_eventually(table->alice_stack == 1);
        must(unet_ep_open(NULL, &ep) == 0);
        /* A name is one user's. */
        must(unet_emul_connect(ep, "all", PATIENCE_MS * NS_PER_MS, &m.chan) == -ECONNREFUSED);
        snprintf(name, sizeof name, "%u/own", ALICE);
        must(unet_emul_connect(ep, name, PATIENCE_MS * NS_PER_MS, &m.chan) == -EACCES);
        snprintf(name, sizeof name, "%u/all", ALICE);
        must(unet_emul_connect(ep, name, PATIENCE_MS * NS_PER_MS, &m.chan) == 0);
        must(unet_ep_send(ep, &m, 1) == 1);
        must(unet_ep_wait(ep, UNET_CLOSED, PATIENCE_MS * NS_PER_MS) == UNET_CLOSED);
        _exit(0);
}

static void emulated_endpoints_meet_where_both_want(void **state)
{
        pid_t alice, bob;
        int status;

        if (cannot_run())
                return;
        alice = fork();
        if (alice == 0)
                alice_listens();
        bob = fork();
        if (bob == 0)
                bob_calls();
        assert_int_equal(waitpid(alice, &status, 0), alice);
        assert_int_equal(status, 0);
        assert_int_equal(waitpid(bob, &status, 0), bob);
        assert_int_equal(status, 0);
}

#define t(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                t(neither_reads_nor_opens_what_is_the_others),
                t(the_keeper_runs_as_the_user),
                t(a_port_is_registered_only_against_its_socket),
                t(a_port_is_free_when_its_listener_is_gone),
                t(a_claim_that_does_not_hold_any_more_gives_way),
                t(a_user_cannot_hold_up_the_other),
                t(what_a_child_closes_is_waited_for),
                t(a_private_unetd_serves_its_user_only),
                t(emulated_endpoints_meet_where_both_want),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
