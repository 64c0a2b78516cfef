/* What one user asks of another: his keeper is not harmed by any number of questions, and nobody
 * waits long for one that does not answer. */
#include "tests/users/users.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#define LOOPBACK  0x7f000001u
#define ASKERS    600
#define QUESTIONS 63 /* a connection may have one more that waits */

/* ---- questions about a port of his ---- */

static bool find_keeper(void *arg, const struct unetd_status_item *item)
{
        if (item->kind == UNETD_S_KEEPER)
                *(int64_t *)arg = item->pid;
        return true;
}

static int ask_for_keeper(void)
{
        struct unetd_client c = {.pid = 0};
        int64_t pid = 0;

        must(unetd_open(&c, UNETD_NO_START) == 0);
        must(unetd_status(&c, find_keeper, &pid) == 0);
        table->value[0] = pid;
        return 0;
}

static pid_t keeper_of_victim(void)
{
        users_run(VICTIM, ask_for_keeper);
        assert_in_range(table->value[0], 2, INT32_MAX);
        return (pid_t)table->value[0];
}

static int asks_and_asks(void)
{
        struct rlimit rl;
        int fd[ASKERS];

        must(getrlimit(RLIMIT_NOFILE, &rl) == 0);
        rl.rlim_cur = rl.rlim_max;
        must(setrlimit(RLIMIT_NOFILE, &rl) == 0);
        for (int i = 0; i < ASKERS; i++)
                fd[i] = hostile_client();
        for (int q = 0; q < QUESTIONS; q++)
                for (int i = 0; i < ASKERS; i++) {
                        struct unetd_msg msg = {.type = UNETD_PORT_SETTLE,
                                                .seq = (uint32_t)(q * ASKERS + i + 1)};

                        msg.port = (struct unetd_port){.proto = IPPROTO_TCP,
                                                       .port = (uint16_t)table->port,
                                                       .addr = ip_addr_v4(LOOPBACK)};
                        hostile_send(fd[i], &msg, NULL, 0);
                }
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

static void questions_do_not_end_a_keeper(void **state)
{
        pid_t keeper, hostile;

        if (users_cannot_run())
                skip();
        users_victim_start();
        keeper = keeper_of_victim();
        kill(keeper, SIGSTOP); /* it is slow */
        hostile = users_begin(HOSTILE, asks_and_asks);
        eventually(table->ready == 1);
        users_unetd_answers();
        kill(keeper, SIGCONT);
        users_victim_goes_on();
        assert_int_equal(keeper_of_victim(), keeper);
        table->done = 1;
        users_wait(hostile);
        users_victim_goes_on();
        assert_int_equal(keeper_of_victim(), keeper);
}

/* ---- a keeper that does not answer ---- */

static int is_mute(void)
{
        int k = hostile_keeper(HOSTILE_ATTACHES), c = hostile_client(), sock;
        uint16_t port = 0;
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        sock = hostile_socket(IPPROTO_TCP, LOOPBACK, &port, false);
        must(sock >= 0 && hostile_listen(c, st.id, IPPROTO_TCP, LOOPBACK, port, sock) == 0);
        table->stack = st.id;
        table->port = port;
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

/* What connect() and bind() of a program ask of unetd. */
static int asks_the_mute(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        int64_t began = users_now_ms(), first = 0;
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        for (int i = 0; i < 20; i++) {
                struct unetd_msg msg = {.type = UNETD_CHAN_OPEN,
                                        .chan = {.stack = st.id, .peer_stack = table->stack}};

                must(hostile_ask(c, &msg, NULL, 0) == -ETIMEDOUT);
                if (i == 0)
                        first = users_now_ms() - began;
        }
        for (int i = 0; i < 20; i++) {
                struct unetd_msg msg = {.type = UNETD_PORT_SETTLE};

                msg.port = (struct unetd_port){.proto = IPPROTO_TCP,
                                               .port = (uint16_t)table->port,
                                               .addr = ip_addr_v4(LOOPBACK)};
                must(hostile_ask(c, &msg, NULL, 0) == -ENOENT);
        }
        fprintf(stderr, "the first waits %d ms, 40 together %d ms\n", (int)first,
                (int)(users_now_ms() - began));
        /* One that waits as long as for its own keeper takes 50 s. */
        must(users_now_ms() - began < 40000);
        return 0;
}

static void who_does_not_answer_is_not_waited_for(void **state)
{
        pid_t hostile;

        if (users_cannot_run())
                skip();
        hostile = users_begin(HOSTILE, is_mute);
        eventually(table->ready == 1);
        users_run(VICTIM, asks_the_mute);
        table->done = 1;
        users_wait(hostile);
}

/* ---- a keeper that has no descriptors left ---- */

#define SOME 60 /* descriptors; each channel takes several */

static int opens_until_it_is_refused(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client(), r = 0;
        struct dir_hit hit = {.stack = 0};

        must(k >= 0);
        must_eventually(directory_lookup(hostile_dir, IPPROTO_TCP, ip_addr_v4(LOOPBACK),
                                         (uint16_t)table->port, 0, &hit) == 1);
        for (int i = 0; i < SOME && r == 0; i++) {
                struct unetd_msg msg = {.type = UNETD_CHAN_OPEN};
                struct hostile_stack st;

                must(hostile_stack(c, &st) == 0);
                hostile_stack_close(&st);
                msg.chan = (struct unetd_chan_info){.stack = st.id, .peer_stack = hit.stack};
                r = hostile_ask(c, &msg, NULL, 0);
        }
        must(r < 0 && r != -ETIMEDOUT);
        return 0;
}

static void a_keeper_without_descriptors_answers(void **state)
{
        struct rlimit was, few;
        pid_t keeper;

        if (users_cannot_run())
                skip();
        users_victim_start();
        keeper = keeper_of_victim();
        assert_int_equal(prlimit(keeper, RLIMIT_NOFILE, NULL, &was), 0);
        few = was;
        few.rlim_cur = (rlim_t)users_fds(keeper) + SOME;
        assert_int_equal(prlimit(keeper, RLIMIT_NOFILE, &few, NULL), 0);
        users_run(HOSTILE, opens_until_it_is_refused);
        users_victim_goes_on();
        assert_int_equal(prlimit(keeper, RLIMIT_NOFILE, &was, NULL), 0);
        assert_int_equal(keeper_of_victim(), keeper);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(questions_do_not_end_a_keeper, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(who_does_not_answer_is_not_waited_for, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(a_keeper_without_descriptors_answers, users_setup,
                                                users_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
