/* What one user asks of another: his keeper is not harmed by any number of questions, and nobody
 * waits long for one that does not answer. */
#include "tests/users/users.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

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

/* What connect() and bind() of a program ask of unetd. If each were waited for as long as for its
 * own keeper, 50 s, the test would not end in its time. */
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
        users_run(VICTIM, users_victim_meets);
        print_message("a program that connects to him and binds his port: %d ms\n",
                      (int)table->value[0]);
        assert_int_equal(table->failed, 0);
        table->done = 1;
        users_wait(hostile);
}

/* ---- a keeper that has no descriptors left ---- */

/* What comes with a K_CHAN does not get to it, and it says that this was no message. */
static void *keeps_without_descriptors(void *fd)
{
        struct wire_in in;

        while (hostile_recv(*(int *)fd, &in, -1) == 0) {
                struct unetd_msg answer = in.msg;

                wire_in_close(&in);
                answer.err = 0;
                if (answer.type == UNETD_K_CHAN)
                        answer = (struct unetd_msg){
                                .type = UNETD_ERROR, .seq = in.msg.seq, .err = -EBADMSG};
                if (answer.seq != 0)
                        hostile_send(*(int *)fd, &answer, NULL, 0);
        }
        return NULL;
}

static int has_no_descriptors(void)
{
        struct unetd_msg msg = {.type = UNETD_K_HELLO};
        struct hostile_stack st;
        pthread_t thread;
        int fd = hostile_client();

        must(hostile_ask(fd, &msg, NULL, 0) == 0);
        must(pthread_create(&thread, NULL, keeps_without_descriptors, &fd) == 0);
        must(hostile_stack(hostile_client(), &st) == 0);
        table->stack = st.id;
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

static int is_refused_each_time(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        for (int i = 0; i < 20; i++) {
                struct unetd_msg msg = {.type = UNETD_CHAN_OPEN,
                                        .chan = {.stack = st.id, .peer_stack = table->stack}};

                must(hostile_ask(c, &msg, NULL, 0) == -EBADMSG); /* and not -ETIMEDOUT */
        }
        return 0;
}

static void a_keeper_without_descriptors_has_answered(void **state)
{
        pid_t full;

        if (users_cannot_run())
                skip();
        full = users_begin(BYSTANDER, has_no_descriptors);
        eventually(table->ready == 1);
        users_run(VICTIM, is_refused_each_time);
        table->done = 1;
        users_wait(full);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(questions_do_not_end_a_keeper, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(who_does_not_answer_is_not_waited_for, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(a_keeper_without_descriptors_has_answered,
                                                users_setup, users_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
