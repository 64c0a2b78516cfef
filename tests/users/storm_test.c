/*
 * One user does as much as he may at one moment, and another is served meanwhile: what unetd does
 * for a claim, an answer or an end does not grow with what somebody else has. How long the other
 * waits is printed; a hang fails the test.
 */
#include "tests/users/users.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define LOOPBACK 0x7f000001u
enum { CLAIMS = 3000, CONNS = 64, ASKS = 60 };

static void many_descriptors(void)
{
        struct rlimit rl;

        must(getrlimit(RLIMIT_NOFILE, &rl) == 0);
        rl.rlim_cur = rl.rlim_max;
        must(setrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur > CLAIMS + 100);
}

/* The longest that a stranger waits until unetd says hello, while `more` is true. */
static int64_t longest_hello(bool (*more)(void))
{
        int64_t longest = 0;

        do {
                struct unetd_client c = {.pid = 0};
                int64_t began = users_now_ms();

                eventually(unetd_open(&c, UNETD_NO_START | UNETD_SYSTEM) == 0);
                unetd_close(&c);
                longest = MAX(longest, users_now_ms() - began);
                usleep(1000);
        } while (more());
        return longest;
}

/* ---- claims whose sockets go all at once ---- */

static uint16_t shared_port;

/* Each at another address, and shared: unetd keeps no copy of them. */
static int claims_and_leaves(void)
{
        int k, c, *sock = calloc(CLAIMS, sizeof *sock);
        struct hostile_stack st;
        uint16_t port = 0;

        many_descriptors();
        k = hostile_keeper(HOSTILE_ANSWERS);
        c = hostile_client();
        must(k >= 0 && hostile_stack(c, &st) == 0);
        for (uint32_t i = 0; i < CLAIMS; i++) {
                sock[i] = hostile_socket(IPPROTO_UDP, LOOPBACK + 1 + i, &port, true);
                must(sock[i] >= 0);
                must(hostile_listen(c, st.id, IPPROTO_UDP, LOOPBACK + 1 + i, port, sock[i]) == 0);
        }
        table->port = port;
        table->ready = 1;
        must_eventually(table->done == 1);
        for (uint32_t i = 0; i < CLAIMS; i++)
                close(sock[i]);
        for (uint32_t i = 0; i < CLAIMS; i++)
                must_eventually(hostile_sees(IPPROTO_UDP, LOOPBACK + 1 + i, port, 0) == UINT32_MAX);
        table->done = 2;
        return 0;
}

/* Somebody else at all of these addresses. */
static int claims_the_wildcard(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client(), sock;
        struct hostile_stack st;

        shared_port = (uint16_t)table->port;
        must(k >= 0 && hostile_stack(c, &st) == 0);
        sock = hostile_socket(IPPROTO_UDP, 0, &shared_port, true);
        must(sock >= 0);
        must(hostile_listen(c, st.id, IPPROTO_UDP, 0, shared_port, sock) == 0);
        table->done = 1;
        return 0;
}

static bool not_claimed(void)
{
        return table->done == 0;
}

static bool not_gone(void)
{
        return table->done == 1;
}

static void many_claims_keep_nobody_waiting(void **state)
{
        pid_t hostile, other;

        if (users_cannot_run())
                skip();
        hostile = users_begin(HOSTILE, claims_and_leaves);
        eventually(table->ready == 1);
        other = users_begin(VICTIM, claims_the_wildcard);
        print_message("longest wait while another claims the port: %lld ms\n",
                      (long long)longest_hello(not_claimed));
        users_wait(other);
        print_message("longest wait while %d claims end: %lld ms\n", CLAIMS,
                      (long long)longest_hello(not_gone));
        users_wait(hostile);
}

/* ---- requests that wait for a keeper which says nothing ---- */

static int waits_for_his_own(void)
{
        struct unetd_msg msg;
        struct hostile_stack st;
        int conn[CONNS];

        must(hostile_keeper(HOSTILE_ATTACHES) >= 0);
        for (int i = 0; i < CONNS; i++)
                conn[i] = hostile_client();
        must(hostile_stack(conn[0], &st) == 0);
        for (int i = 0; i < CONNS; i++)
                for (int n = 0; n < ASKS; n++) {
                        msg = (struct unetd_msg){.type = UNETD_PROC_ADD,
                                                 .seq = (uint32_t)n + 1,
                                                 .stack = {.stack = st.id,
                                                           .slot = 1 + (uint32_t)i,
                                                           .pid = getpid()}};
                        must(hostile_send(conn[i], &msg, NULL, 0) == 0);
                }
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

static int64_t until;

static bool not_over(void)
{
        return users_now_ms() < until;
}

static void many_who_wait_keep_nobody_waiting(void **state)
{
        pid_t hostile;

        if (users_cannot_run())
                skip();
        hostile = users_begin(HOSTILE, waits_for_his_own);
        eventually(table->ready == 1);
        /* Longer than who waits for a stopped keeper: then all are looked at. */
        until = users_now_ms() + 6000;
        print_message("longest wait beside %d requests: %lld ms\n", CONNS * ASKS,
                      (long long)longest_hello(not_over));
        table->done = 1;
        users_wait(hostile);
}

/* ---- requests by many connections ---- */

enum { FLOODING = 800 };

/* Each of them asks for a list of the kernel's sockets, in vain, as fast as it is answered. */
static int asks_by_many_connections(void)
{
        struct unetd_msg msg = {.type = UNETD_LISTEN_ADD, .seq = 1};
        static int conn[FLOODING];
        struct hostile_stack st;
        uint16_t port = 0;
        struct wire_in in;
        int sock;

        many_descriptors();
        must(hostile_keeper(HOSTILE_ANSWERS) >= 0);
        for (int i = 0; i < FLOODING; i++)
                conn[i] = hostile_client();
        must(hostile_stack(conn[0], &st) == 0);
        sock = hostile_socket(IPPROTO_UDP, LOOPBACK + 1, &port, true);
        must(sock >= 0);
        msg.port = (struct unetd_port){
                .stack = st.id, .proto = IPPROTO_UDP, .port = port, .addr = ip_addr_v4(LOOPBACK)};
        while (table->done == 0) {
                for (int i = 0; i < FLOODING; i++) {
                        while (hostile_recv(conn[i], &in, 0) == 0)
                                wire_in_close(&in);
                        for (int n = 0;
                             n < 8 && wire_send(conn[i], &msg, &sock, 1, MSG_DONTWAIT) == 0; n++)
                                ;
                }
                table->ready = 1;
        }
        return 0;
}

static void many_connections_keep_nobody_waiting(void **state)
{
        pid_t hostile;

        if (users_cannot_run())
                skip();
        users_victim_start();
        hostile = users_begin(HOSTILE, asks_by_many_connections);
        eventually(table->ready == 1);
        for (int i = 0; i < 20; i++)
                users_unetd_answers();
        until = users_now_ms() + 2000;
        print_message("longest wait beside %d connections that ask: %lld ms\n", FLOODING,
                      (long long)longest_hello(not_over));
        users_victim_goes_on();
        table->done = 1;
        users_wait(hostile);
}

/* ---- answers that nobody reads ---- */

enum { DEAF = 150, HELLOS = 400 };

/* Each asks for the directory, a descriptor, until nobody listens. */
static int reads_nothing(void)
{
        struct unetd_msg hello = {.type = UNETD_HELLO, .seq = 1, .hello = {.abi = UNETD_ABI}};

        must(hostile_client() >= 0); /* there is a unetd */
        for (int i = 0; i < DEAF; i++) {
                int fd = hostile_dial();
                struct timeval soon = {0, 200000};

                must(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon) == 0);
                for (int n = 0; n < HELLOS && hostile_send(fd, &hello, NULL, 0) == 0; n++)
                        ;
        }
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

static void unread_answers_keep_nobody_out(void **state)
{
        pid_t hostile;

        if (users_cannot_run())
                skip();
        users_victim_start();
        hostile = users_begin(HOSTILE, reads_nothing);
        eventually(table->ready == 1);
        for (int i = 0; i < 20; i++)
                users_unetd_answers();
        users_victim_goes_on();
        table->done = 1;
        users_wait(hostile);
}

/* ---- programs that start while others have not read their answers ---- */

enum { UNREAD = 512, STARTING = 20 };

/* Nobody of this user gets a descriptor until it has read them. */
static int has_not_read(void)
{
        struct unetd_msg hello = {.type = UNETD_HELLO, .seq = 1, .hello = {.abi = UNETD_ABI}};
        static struct pollfd conn[UNREAD];
        struct wire_in in;
        int one_more;

        many_descriptors();
        for (int i = 0; i < UNREAD; i++) {
                conn[i] = (struct pollfd){.fd = hostile_dial(), .events = POLLIN};
                must(conn[i].fd >= 0 && hostile_send(conn[i].fd, &hello, NULL, 0) == 0);
                must(poll(&conn[i], 1, USERS_PATIENCE_MS) == 1);
        }
        one_more = hostile_dial();
        must(one_more >= 0 && hostile_hello(one_more) == -EAGAIN);
        table->ready = 1;
        must_eventually(table->value[0] == STARTING);
        for (int i = 0; i < ASKS; i++) /* theirs are refused as well meanwhile */
                must(hostile_hello(one_more) == -EAGAIN);
        for (int i = 0; i < UNREAD; i++) {
                must(hostile_recv(conn[i].fd, &in, USERS_PATIENCE_MS) == 0);
                wire_in_close(&in);
        }
        must_eventually(table->done == 1);
        return 0;
}

static int starts(void)
{
        struct unetd_client c = {.pid = 0};

        atomic_fetch_add(&table->value[0], 1);
        must(unetd_open(&c, UNETD_NO_START | UNETD_SYSTEM) == 0);
        unetd_close(&c);
        return 0;
}

static void programs_that_start_at_once_wait_for_each_other(void **state)
{
        pid_t first, next[STARTING];

        if (users_cannot_run())
                skip();
        first = users_begin(HOSTILE, has_not_read);
        eventually(table->ready == 1);
        for (int i = 0; i < STARTING; i++)
                next[i] = users_begin(HOSTILE, starts);
        for (int i = 0; i < STARTING; i++)
                users_wait(next[i]);
        table->done = 1;
        users_wait(first);
}

/* ---- questions that a keeper never answers ---- */

enum { ASKING = 400 };

/* Returns true if one of the requests was refused for want of room. They go with the connection,
 * and the questions stay. */
static bool asks_on(uint32_t stack)
{
        struct unetd_msg msg;
        bool refused = false;
        struct wire_in in;
        int c = hostile_client();

        for (uint32_t n = 0; n < ASKS; n++) {
                msg = (struct unetd_msg){.type = UNETD_PROC_ADD,
                                         .seq = 100 + n,
                                         .stack = {.stack = stack, .slot = 7, .pid = getpid()}};
                must(hostile_send(c, &msg, NULL, 0) == 0);
        }
        msg = (struct unetd_msg){.type = UNETD_STATUS, .seq = 1};
        must(hostile_send(c, &msg, NULL, 0) == 0);
        do {
                must(hostile_recv(c, &in, USERS_PATIENCE_MS) == 0);
                wire_in_close(&in);
                refused |= in.msg.err == -EDQUOT;
        } while (in.msg.seq != 1);
        close(c);
        return refused;
}

static int asks_without_end(void)
{
        int k = hostile_keeper(HOSTILE_ATTACHES), c = hostile_client(), n = 0;
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        while (!asks_on(st.id))
                must(n++ < ASKING);
        return 0;
}

static void questions_to_a_keeper_have_an_end(void **state)
{
        if (users_cannot_run())
                skip();
        users_victim_start();
        users_run(HOSTILE, asks_without_end);
        users_victim_goes_on();
        users_unetd_answers();
}

/* ---- descriptors of unetd's, by every way there is ---- */

enum { FDS = 1500 };

/* For all that comes after in this program: unetd takes more where it may, and then there is enough
 * for everybody. */
static int with_few_descriptors(void **state)
{
        const struct rlimit few = {FDS, FDS};

        return setrlimit(RLIMIT_NOFILE, &few) == 0 ? users_setup(state) : -1;
}

/* Slots of a process; then stacks that its keeper says it had with an earlier unetd. */
static int takes_descriptors(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client(), fds[UNETD_STACK_FDS];
        struct hostile_stack st, more;
        struct unetd_msg msg;
        int slots = 1, r = 0;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        for (; r == 0; slots++) {
                msg = (struct unetd_msg){
                        .type = UNETD_PROC_ADD,
                        .stack = {.stack = st.id, .slot = (uint32_t)slots, .pid = getpid()}};
                r = hostile_ask(c, &msg, NULL, 0);
        }
        must(r == -EDQUOT);
        table->value[0] = slots;
        must(unetd_stack_fds_make(&more.fds, 1 << 20) == 0);
        fds[UNETD_FD_STATE] = more.fds.state;
        fds[UNETD_FD_BELL] = more.fds.bell;
        fds[UNETD_FD_LEADER] = more.fds.leader;
        fds[UNETD_FD_RING_LEADER] = more.fds.ring_leader;
        fds[UNETD_FD_KEEPER] = more.fds.keeper;
        fds[UNETD_FD_RING_KEEPER] = more.fds.ring_keeper;
        r = 0;
        for (uint32_t i = 1; i <= FDS && r == 0;
             i++) { /* who brings too much that is not wanted is cut off */
                msg = (struct unetd_msg){.type = UNETD_K_STACK,
                                         .stack = {.stack = unetd_stacks_of(HOSTILE) +
                                                            (st.id + i) % UNETD_STACKS_OF_USER}};
                r = hostile_send(k, &msg, fds, UNETD_STACK_FDS);
        }
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

static void no_way_takes_all_descriptors(void **state)
{
        pid_t hostile;

        if (users_cannot_run())
                skip();
        hostile = users_begin(HOSTILE, takes_descriptors);
        eventually(table->ready == 1);
        print_message("one user got %d slots\n", (int)table->value[0] - 2);
        users_victim_start();
        users_victim_goes_on();
        table->done = 1;
        users_wait(hostile);
}

/* ---- descriptors in flight ---- */

/* The kernel counts them against the limit of unetd's descriptors. Who attacks has several
 * processes. */
enum { LEAVING = 500, LEAVERS = 5, GETS = 80 };

/* Asks for descriptors, and does not read. */
static int asks_and_reads_nothing(uint32_t gets)
{
        struct unetd_msg msg = {.type = UNETD_HELLO, .seq = 1, .hello = {.abi = UNETD_ABI}};
        struct timeval soon = {0, 200000};
        int fd = hostile_dial();

        if (fd < 0)
                return fd;
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
        if (hostile_send(fd, &msg, NULL, 0) < 0)
                return fd;
        for (uint32_t n = 0; n < gets; n++) {
                msg = (struct unetd_msg){.type = UNETD_KEEPER_GET, .seq = n + 2};
                if (hostile_send(fd, &msg, NULL, 0) < 0)
                        break;
        }
        return fd;
}

static int keeps_answers(void)
{
        for (int i = 0; i < DEAF; i++)
                asks_and_reads_nothing(GETS);
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

/* unetd ends the connections, and what it has sent stays where it is. */
static int leaves_answers(void)
{
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int i = 0; i < LEAVING; i++) {
                struct pollfd p = {.fd = asks_and_reads_nothing(6), .events = POLLIN};

                if (p.fd >= 0 && poll(&p, 1, USERS_PATIENCE_MS) == 1) /* it was served */
                        shutdown(p.fd, SHUT_WR);
        }
        atomic_fetch_add(&table->value[0], 1);
        must_eventually(table->done == 1);
        return 0;
}

static int keeps_answers_and_leaves(void)
{
        int status;

        for (int i = 0; i < LEAVERS; i++)
                if (fork() == 0)
                        _exit(leaves_answers());
        must_eventually(table->value[0] == LEAVERS);
        table->ready = 1;
        while (wait(&status) > 0)
                must(status == 0);
        return 0;
}

static void others_go_on_beside(int (*attack)(void))
{
        pid_t hostile;

        if (users_cannot_run())
                skip();
        users_victim_start();
        hostile = users_begin(HOSTILE, attack);
        eventually(table->ready == 1);
        for (int i = 0; i < 20; i++)
                users_unetd_answers();
        users_victim_goes_on();
        assert_true(users_fds(users_broker()) < FDS * 3 / 4);
        table->done = 1;
        users_wait(hostile);
        eventually(users_fds(users_broker()) < 200); /* nothing is left behind */
}

static void answers_that_wait_take_no_descriptors_of_others(void **state)
{
        others_go_on_beside(keeps_answers);
}

static void answers_that_stay_unread_keep_nobody_out(void **state)
{
        others_go_on_beside(keeps_answers_and_leaves);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(many_claims_keep_nobody_waiting, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(many_who_wait_keep_nobody_waiting, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(many_connections_keep_nobody_waiting, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(unread_answers_keep_nobody_out, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(programs_that_start_at_once_wait_for_each_other,
                                                users_setup, users_teardown),
                cmocka_unit_test_setup_teardown(questions_to_a_keeper_have_an_end, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(no_way_takes_all_descriptors, with_few_descriptors,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(answers_that_wait_take_no_descriptors_of_others,
                                                with_few_descriptors, users_teardown),
                cmocka_unit_test_setup_teardown(answers_that_stay_unread_keep_nobody_out,
                                                with_few_descriptors, users_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
