/*
 * What a hostile user can do with connections to unetd, and with the memory that he gives it.
 */
#include "tests/users/neighbour.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- connections ---- */

static int says_nothing_a_thousand_times(void)
{
        struct rlimit many = {1100, 4096};

        setrlimit(RLIMIT_NOFILE, &many);
        for (int i = 0; i < 1000; i++)
                must(hostile_dial() >= 0);
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

/* Before the answer comes, with a stack's descriptors on their way. */
static int closes_midway(void)
{
        struct unetd_msg hello = {.type = UNETD_HELLO, .seq = 1, .hello = {.abi = UNETD_ABI}};
        struct unetd_msg msg = {.type = UNETD_STACK_NEW, .seq = 2};
        struct hostile_stack st;
        int fds[UNETD_STACK_FDS];

        must(unetd_stack_fds_make(&st.fds, 1 << 20) == 0);
        fds[UNETD_FD_STATE] = st.fds.state;
        fds[UNETD_FD_BELL] = st.fds.bell;
        fds[UNETD_FD_LEADER] = st.fds.leader;
        fds[UNETD_FD_RING_LEADER] = st.fds.ring_leader;
        fds[UNETD_FD_KEEPER] = st.fds.keeper;
        fds[UNETD_FD_RING_KEEPER] = st.fds.ring_keeper;
        for (int i = 0; i < 500; i++) {
                int fd = hostile_dial();

                must(fd >= 0 && hostile_send(fd, &hello, NULL, 0) == 0);
                hostile_send(fd, &msg, fds, UNETD_STACK_FDS);
                if (i % 3 == 1)
                        shutdown(fd, SHUT_RD);
                if (i % 3 == 2)
                        shutdown(fd, SHUT_WR);
                close(fd);
        }
        return 0;
}

static int asks_and_cannot_hear(void)
{
        int fd = hostile_client(), r = 0;

        must(shutdown(fd, SHUT_RD) == 0);
        for (int i = 0; i < 2000 && r == 0; i++) {
                struct unetd_msg msg = {.type = UNETD_STATUS, .seq = (uint32_t)i + 10};

                r = hostile_send(fd, &msg, NULL, 0);
        }
        return 0;
}

/* One connection, and eight processes that say what they like on it. */
static int shares_a_connection(void)
{
        int fd, pid[8];

        comes();
        fd = client;
        for (unsigned k = 0; k < ARRAY_LEN(pid); k++) {
                pid[k] = fork();
                if (pid[k] != 0)
                        continue;
                for (unsigned i = 0; i < 500; i++) {
                        struct unetd_msg msg = {.type = (uint16_t)(1 + (i * 7 + k) % UNETD_TYPES),
                                                .seq = i};

                        msg.stack.stack = i % 2 ? own.id : victims_stack();
                        if (wire_send(fd, &msg, &fd, i % 2, MSG_DONTWAIT) < 0)
                                recv(fd, &msg, sizeof msg, MSG_DONTWAIT);
                }
                _exit(0);
        }
        for (unsigned k = 0; k < ARRAY_LEN(pid); k++)
                waitpid(pid[k], NULL, 0);
        return 0;
}

/* Who made it is no more; who speaks is his child, with a stack. */
static int leaves_it_to_a_child(void)
{
        int fd = hostile_dial(), status;
        pid_t pid = fork();

        must(fd >= 0);
        if (pid == 0) {
                pid_t grandchild = fork();

                if (grandchild != 0)
                        _exit(0);
                while (getppid() == pid)
                        usleep(1000);
                hostile_hello(fd);
                hostile_stack(fd, &own);
                _exit(0);
        }
        close(fd);
        must(waitpid(pid, &status, 0) == pid);
        return 0;
}

/* A bystander speaks on it: it is the hostile one's still. */
static int passed[2];

static int passes_it_on(void)
{
        struct unetd_msg msg = {.type = UNETD_HELLO};
        int fd = hostile_client();

        table->value[1] = geteuid();
        must(wire_send(passed[1], &msg, &fd, 1, 0) == 0);
        must_eventually(table->done == 1);
        return 0;
}

static int speaks_on_it(void)
{
        struct hostile_stack st;
        struct wire_in in;

        must(wire_recv(passed[0], &in, 0) == 0 && in.n == 1);
        hostile_stack(in.fds[0], &st);
        must(st.id == 0 ||
             st.id - unetd_stacks_of((uint32_t)table->value[1]) < UNETD_STACKS_OF_USER);
        return 0;
}

/* ---- memory ---- */

static int gives_memory_of_each_size(void)
{
        static const off_t sizes[] = {0, 1, 4095, 4096, 1 << 20, (off_t)1 << 40, (off_t)1 << 52};
        struct unetd_msg msg = {.type = UNETD_STACK_NEW};

        comes();
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
                for (int which = 0; which < 2; which++) {
                        int fds[UNETD_STACK_FDS] = {own.fds.state,  own.fds.bell,
                                                    own.fds.leader, own.fds.ring_leader,
                                                    own.fds.keeper, own.fds.ring_keeper};
                        int fd = memfd_create("unet-state", MFD_ALLOW_SEALING | MFD_CLOEXEC);

                        must(fd >= 0);
                        if (ftruncate(fd, sizes[i]) == 0)
                                fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
                        fds[which == 0 ? UNETD_FD_STATE : UNETD_FD_BELL] = fd;
                        hostile_ask(client, &msg, fds, UNETD_STACK_FDS);
                        close(fd);
                }
        return 0;
}

/* His end of a channel to the victim, without a page of it. */
static int empties_his_region(void)
{
        struct unetd_msg msg = {.type = UNETD_CHAN_OPEN};
        struct unetd_chan_info info;
        int fds[UNETD_CHAN_FDS_MAX], n = 0;
        struct stat st;

        comes();
        msg.chan.stack = own.id;
        msg.chan.peer_stack = victims_stack();
        must(hostile_ask(client, &msg, NULL, 0) == 0);
        must_eventually((n = (int)hostile_channel(&info, fds)) > 0);
        must(fstat(fds[UNETD_FD_TX], &st) == 0);
        for (int i = 0; i < 300; i++) {
                char junk[4096];

                memset(junk, i, sizeof junk);
                pwrite(fds[UNETD_FD_TX], junk, sizeof junk, i * 4096 % st.st_size);
                fallocate(fds[UNETD_FD_TX], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                          st.st_size);
                must(ftruncate(fds[UNETD_FD_TX], 0) < 0);
                must(ftruncate(fds[UNETD_FD_RX], 0) < 0 && write(fds[UNETD_FD_RX], "x", 1) < 0);
        }
        return 0;
}

/* What the victim gave may not be opened for writing, by any road. */
static int opens_the_victims_region(void)
{
        struct unetd_msg msg = {.type = UNETD_CHAN_OPEN};
        struct unetd_chan_info info;
        int fds[UNETD_CHAN_FDS_MAX], n = 0;
        char path[64];

        comes();
        prctl(PR_SET_DUMPABLE, 1);
        msg.chan.stack = own.id;
        msg.chan.peer_stack = victims_stack();
        must(hostile_ask(client, &msg, NULL, 0) == 0);
        must_eventually((n = (int)hostile_channel(&info, fds)) > 0);
        for (int i = UNETD_FD_RX; i <= UNETD_FD_PEER_BELL; i++) {
                snprintf(path, sizeof path, "/proc/self/fd/%d", fds[i]);
                must(open(path, O_RDWR | O_CLOEXEC) < 0);
                must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0) == MAP_FAILED);
                must(fchmod(fds[i], 0666) < 0 && fchown(fds[i], geteuid(), geteuid()) < 0);
                must(fcntl(fds[i], F_ADD_SEALS, F_SEAL_WRITE) < 0);
                must(fallocate(fds[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
        }
        return 0;
}

static void a_passed_connection(void **state)
{
        pid_t hostile;

        look_before();
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, passed), 0);
        hostile = users_begin(neighbour++, passes_it_on);
        users_run(neighbour++, speaks_on_it);
        table->done = 1;
        users_wait(hostile);
        close(passed[0]);
        close(passed[1]);
        is_as_before();
}

#define ATTACKS(X)                   \
        X(closes_midway)             \
        X(asks_and_cannot_hear)      \
        X(shares_a_connection)       \
        X(leaves_it_to_a_child)      \
        X(gives_memory_of_each_size) \
        X(empties_his_region)        \
        X(opens_the_victims_region)

ATTACKS(ATTACK_SCENE)

static void who_says_nothing_a_thousand_times(void **state)
{
        harms_nobody_meanwhile(says_nothing_a_thousand_times, NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_victim_begins),
                ATTACKS(ATTACK_ROW) cmocka_unit_test(who_says_nothing_a_thousand_times),
                cmocka_unit_test(a_passed_connection),
        };

        if (users_cannot_run() || !neighbours_have_own_network())
                return 77;
        return cmocka_run_group_tests(tests, users_setup, users_teardown);
}
