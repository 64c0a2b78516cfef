/* Two users: each has a keeper of his own, neither sees, opens or disturbs what is the other's, and
 * a channel between them gives each side exactly what it may have. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>

#include "two_users.h"

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

int main(void)
{
        const struct CMUnitTest tests[] = {
                USERS_TEST(neither_reads_nor_opens_what_is_the_others),
                USERS_TEST(the_keeper_runs_as_the_user),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
