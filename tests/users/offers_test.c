/* What a hostile user's keeper says of channels that unetd does not know, and of those that yield:
 * unetd goes on, and so does who waits. */
#include "tests/users/users.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "base/memfd.h"
#include "unet/shm/shm_ring.h"

static int setup(void **state)
{
        return users_setup_with("[limits]\nchannels_per_stack = 1\n");
}

/* ---- a keeper ---- */

static void parts(struct unetd_msg *answer)
{
        if (table->value[5] != 0) {
                usleep((useconds_t)table->value[5] * 1000);
                answer->err = -EBUSY;
                return;
        }
        table->ready = 2;
        must_eventually(table->done != 0);
}

/* Answers with 0; the one channel that there is yields, and parts when it is said to. Counted: in
 * value[1] how often it was told of a stack, in value[2] of a channel that goes, in value[3] and
 * [4] how often one was to yield and to part. With value[5] it refuses to part, after so many ms.
 */
static void *keep(void *fd)
{
        struct wire_in in;

        while (hostile_recv(*(int *)fd, &in, -1) == 0) {
                struct unetd_msg answer = in.msg;

                wire_in_close(&in);
                if (answer.type == UNETD_K_STACK)
                        table->value[1]++;
                answer.err = 0;
                if (answer.type == UNETD_K_FLIGHT) {
                        must_eventually(table->done != 0);
                } else if (answer.type == UNETD_K_CHAN_YIELD) {
                        answer.stack.slot = 0;
                        table->value[3]++;
                } else if (answer.type == UNETD_K_CHAN_PART) {
                        table->value[4]++;
                        parts(&answer);
                }
                if (answer.seq != 0)
                        hostile_send(*(int *)fd, &answer, NULL, 0);
                if (answer.type == UNETD_K_CHAN_DOWN)
                        table->value[2]++;
        }
        return NULL;
}

static int be_keeper(void)
{
        static int fd;
        struct unetd_msg msg = {.type = UNETD_K_HELLO};
        pthread_t thread;

        fd = hostile_client();
        must(hostile_ask(fd, &msg, NULL, 0) == 0);
        must(pthread_create(&thread, NULL, keep, &fd) == 0);
        return fd;
}

/* Two turns of unetd's: it has seen to what came before, and is there. */
static void in_step(int client)
{
        for (int i = 0; i < 2; i++) {
                struct unetd_msg msg = {.type = UNETD_STATUS};

                must(hostile_ask(client, &msg, NULL, 0) == 0);
        }
}

/* ---- numbers that there are not ---- */

static void offer(int keeper, uint32_t stack, uint32_t number, uint32_t peer, unsigned n)
{
        const struct frame_geom geom = {{0}};
        int fd = unet_memfd_make_sealed("unet-channel", SHM_REGION_BYTES(geom));
        const int fds[] = {fd, fd, fd, fd, fd};
        struct unetd_msg m = {
                .type = UNETD_K_CHAN,
                .chan = {.stack = stack, .chan = number, .peer_stack = peer, .peer_chan = number}};

        must(fd >= 0 && n <= ARRAY_LEN(fds));
        must(hostile_send(keeper, &m, fds, n) == 0);
        close(fd);
}

static int offers_numbers(void)
{
        static const uint32_t number[] = {UNETD_CHANS_MAX, UNETD_CHANS_MAX + 1, UINT32_MAX};
        struct unetd_msg hello = {.type = UNETD_K_HELLO};
        struct hostile_stack st;
        struct wire_in in;
        int c, late;

        be_keeper();
        c = hostile_client();
        must(hostile_stack(c, &st) == 0);
        late = hostile_client(); /* a keeper beside: it is listened to, too */
        must(hostile_ask(late, &hello, NULL, 0) == -EEXIST);
        for (unsigned i = 0; i < ARRAY_LEN(number); i++) {
                offer(late, st.id, number[i], st.id, UNETD_CHAN_FDS);
                offer(late, st.id, number[i], UNETD_REMOTE | 1, UNETD_REMOTE_FDS);
        }
        must(send(late, "", 1, 0) == 1); /* that is no message, and is answered so */
        must(hostile_recv(late, &in, USERS_PATIENCE_MS) == 0);
        must(in.msg.type == UNETD_ERROR);
        return 0;
}

static void numbers_that_there_are_not(void **state)
{
        pid_t broker;

        if (users_cannot_run())
                skip();
        broker = users_broker();
        users_run(HOSTILE, offers_numbers);
        users_unetd_answers();
        assert_int_equal(users_broker(), broker);
}

/* ---- a stack's number that is another user's ---- */

static struct unetd_msg with_number(uint16_t type)
{
        return (struct unetd_msg){.type = type, .stack = {.stack = table->stack}};
}

static void put_fds(const struct unetd_stack_fds *f, int fds[UNETD_STACK_FDS])
{
        memcpy(fds,
               (const int[]){[UNETD_FD_STATE] = f->state,
                             [UNETD_FD_BELL] = f->bell,
                             [UNETD_FD_LEADER] = f->leader,
                             [UNETD_FD_RING_LEADER] = f->ring_leader,
                             [UNETD_FD_KEEPER] = f->keeper,
                             [UNETD_FD_RING_KEEPER] = f->ring_keeper},
               UNETD_STACK_FDS * sizeof *fds);
}

static int comes_with_another_number(void)
{
        int k = be_keeper(), c = hostile_client(), fds[UNETD_STACK_FDS];
        struct unetd_msg asks = with_number(UNETD_STACK_NEW), offers = with_number(UNETD_K_STACK);
        struct hostile_stack st;

        must(hostile_stack(c, &st) == 0);
        put_fds(&st.fds, fds);
        must(hostile_ask(c, &asks, fds, UNETD_STACK_FDS) == -EINVAL);
        must(hostile_send(k, &offers, fds, UNETD_STACK_FDS) == 0);
        in_step(c);
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

/* As a program whose stack unetd does not know any more. */
static int comes_back(void)
{
        int c, fds[UNETD_STACK_FDS];
        struct unetd_msg asks = with_number(UNETD_STACK_NEW);
        struct unetd_stack_fds f;

        be_keeper();
        c = hostile_client();
        must(unetd_stack_fds_make(&f, 1 << 20) == 0);
        put_fds(&f, fds);
        must(hostile_ask(c, &asks, fds, UNETD_STACK_FDS) == 0);
        must(asks.stack.stack == table->stack);
        return 0;
}

static void nobody_comes_with_another_users_number(void **state)
{
        pid_t hostile;

        if (users_cannot_run())
                skip();
        table->stack = unetd_stacks_of(VICTIM) + 17;
        hostile = users_begin(HOSTILE, comes_with_another_number);
        eventually(table->ready == 1);
        users_run(VICTIM, comes_back);
        table->done = 1;
        users_wait(hostile);
}

/* ---- a channel that yields, and is brought back ---- */

static int parts_late(void)
{
        struct hostile_stack st;

        be_keeper();
        must(hostile_stack(hostile_client(), &st) == 0);
        table->stack = st.id;
        table->ready = 1;
        must_eventually(table->done == 2);
        return 0;
}

static void open_channel(int client, uint32_t stack, uint32_t peer)
{
        struct unetd_msg msg = {.type = UNETD_CHAN_OPEN, .seq = 1u << 30};

        msg.chan = (struct unetd_chan_info){.stack = stack, .peer_stack = peer};
        must(hostile_send(client, &msg, NULL, 0) == 0);
}

/* There is no number for it, and the end of the other user is asked to part. */
static void ask_until_one_parts(int client, uint32_t stack, uint32_t peer)
{
        struct wire_in in;

        while (table->ready != 2) {
                open_channel(client, stack, peer);
                while (table->ready != 2 && hostile_recv(client, &in, 10) != 0)
                        ;
        }
}

static int answer_to(int client)
{
        struct wire_in in;

        must(hostile_recv(client, &in, USERS_PATIENCE_MS) == 0);
        wire_in_close(&in);
        return in.msg.err;
}

/* A keeper that comes too late says that it has the stack; when it leaves, the one that runs is
 * told all of that again. */
static void tell_again(const struct hostile_stack *st)
{
        int fds[UNETD_STACK_FDS];
        struct unetd_msg hello = {.type = UNETD_K_HELLO},
                         has = {.type = UNETD_K_STACK, .stack = {.stack = st->id}};
        int64_t told = table->value[1];
        int late = hostile_client();

        put_fds(&st->fds, fds);
        must(hostile_ask(late, &hello, NULL, 0) == -EEXIST);
        must(hostile_send(late, &has, fds, UNETD_STACK_FDS) == 0);
        close(late);
        must_eventually(table->value[1] > told);
}

static int yields_and_is_told_again(void)
{
        struct hostile_stack st, other;
        int c[3], r;

        be_keeper();
        for (unsigned i = 0; i < ARRAY_LEN(c); i++)
                c[i] = hostile_client();
        must(hostile_stack(c[0], &st) == 0 && hostile_stack(c[0], &other) == 0);
        open_channel(c[0], st.id, table->stack);
        must(answer_to(c[0]) == 0);
        ask_until_one_parts(c[1], st.id, other.id);
        open_channel(c[2], st.id, table->stack); /* it waits for what becomes of that, a second */
        in_step(c[2]);
        tell_again(&st);
        table->done = 1;
        must_eventually(table->value[2] > 0);
        in_step(c[0]);
        r = answer_to(c[2]);
        must(r == 0 || r == -ETIMEDOUT);
        return 0;
}

static void who_waits_for_a_channel_that_comes_back(void **state)
{
        pid_t broker, other;

        if (users_cannot_run())
                skip();
        broker = users_broker();
        other = users_begin(BYSTANDER, parts_late);
        eventually(table->ready == 1);
        users_run(HOSTILE, yields_and_is_told_again);
        table->done = 2;
        users_wait(other);
        users_unetd_answers();
        assert_int_equal(users_broker(), broker);
}

/* ---- stacks that may come yet ---- */

static int join_a_stack_that_is_not_there(int client)
{
        struct unetd_msg msg = {.type = UNETD_PROC_ADD,
                                .stack = {.stack = unetd_stacks_of(geteuid()) + 7, .slot = 1}};

        return hostile_ask(client, &msg, NULL, 0);
}

static int client_of_an_earlier_unetd(void)
{
        struct unetd_msg hello = {.type = UNETD_HELLO,
                                  .hello = {.abi = UNETD_ABI, .flags = UNETD_HAS_KEEPER}};
        int fd = hostile_dial();

        must(fd >= 0 && hostile_ask(fd, &hello, NULL, 0) == 0);
        return fd;
}

static int asks_while_keepers_offer(void)
{
        struct unetd_msg hello = {.type = UNETD_K_HELLO}, all = {.type = UNETD_K_OFFERED};
        int early = client_of_an_earlier_unetd(), keeper, c, late;

        must(join_a_stack_that_is_not_there(early) == -EAGAIN);
        keeper = be_keeper();
        c = hostile_client();
        must(join_a_stack_that_is_not_there(c) == -EAGAIN);
        must(hostile_send(keeper, &all, NULL, 0) == 0);
        must_eventually(join_a_stack_that_is_not_there(c) == -ENOENT);
        late = hostile_client();
        must(hostile_ask(late, &hello, NULL, 0) == -EEXIST);
        must(join_a_stack_that_is_not_there(c) == -EAGAIN);
        close(late);
        must_eventually(join_a_stack_that_is_not_there(c) == -ENOENT);
        return 0;
}

static void what_a_keeper_may_bring_yet_is_asked_for_again(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(HOSTILE, asks_while_keepers_offer);
        users_unetd_answers();
}

/* ---- stacks that are handed over ---- */

static int join(int client, uint32_t stack)
{
        struct unetd_msg msg = {.type = UNETD_PROC_ADD, .stack = {.stack = stack, .slot = 1}};

        return hostile_ask(client, &msg, NULL, 0);
}

/* The keeper that runs does not have it before it is told. */
static int asks_for_what_is_handed_over(void)
{
        struct unetd_msg hello = {.type = UNETD_K_HELLO}, offer = {.type = UNETD_K_STACK};
        int keeper = be_keeper(), c = hostile_client(), late = hostile_client(),
            fds[UNETD_STACK_FDS];
        struct unetd_msg all = {.type = UNETD_K_OFFERED};
        struct unetd_stack_fds f;

        must(hostile_send(keeper, &all, NULL, 0) == 0);
        must(hostile_ask(late, &hello, NULL, 0) == -EEXIST);
        must(unetd_stack_fds_make(&f, 1 << 20) == 0);
        put_fds(&f, fds);
        offer.stack.stack = unetd_stacks_of(geteuid()) + 9;
        must(hostile_send(late, &offer, fds, UNETD_STACK_FDS) == 0);
        in_step(c);
        for (int i = 0; i < 10; i++)
                must(join(c, offer.stack.stack) == -EAGAIN);
        must(table->value[1] == 0);
        close(late);
        must_eventually(join(c, offer.stack.stack) == 0);
        must(table->value[1] == 1);
        return 0;
}

static void what_is_handed_over_is_asked_for_again(void **state)
{
        if (users_cannot_run())
                skip();
        table->value[1] = 0;
        users_run(HOSTILE, asks_for_what_is_handed_over);
        users_unetd_answers();
}

/* ---- sockets in messages ---- */

/* Who sends one in a message may die as soon as it is answered. */
static int sends_a_socket(void)
{
        int c, sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct unetd_msg msg = {.type = UNETD_FLIGHT, .seq = 77};
        socklen_t len = sizeof msg.stack.cookie;
        struct hostile_stack st;
        struct wire_in in;

        be_keeper();
        c = hostile_client();
        must(hostile_stack(c, &st) == 0);
        msg.stack.stack = st.id;
        must(getsockopt(sock, SOL_SOCKET, SO_COOKIE, &msg.stack.cookie, &len) == 0);
        must(hostile_send(c, &msg, &sock, 1) == 0);
        must(hostile_recv(c, &in, 200) == -ETIMEDOUT);
        table->done = 1;
        must(hostile_recv(c, &in, USERS_PATIENCE_MS) == 0);
        must(in.msg.seq == 77 && in.msg.err == 0);
        return 0;
}

static void a_socket_in_a_message_is_watched_before_that_is_answered(void **state)
{
        if (users_cannot_run())
                skip();
        table->done = 0;
        users_run(HOSTILE, sends_a_socket);
        users_unetd_answers();
}

/* ---- a keeper that takes its time to part ---- */

#define SLOW_MS 300
#define MOST    2 /* times that others wait for him, until unetd has learnt */

static int asks_for_one_more(void)
{
        struct hostile_stack st, other;
        int c, r;

        be_keeper();
        c = hostile_client();
        must(hostile_stack(c, &st) == 0 && hostile_stack(c, &other) == 0);
        open_channel(c, st.id, table->stack);
        must(answer_to(c) == 0);
        while (table->value[3] < 20) { /* several a second, after all were found in use */
                open_channel(c, st.id, other.id);
                r = answer_to(c);
                must(r == -EDQUOT || r == -ETIMEDOUT);
        }
        return 0;
}

static void who_parts_slowly_is_not_waited_for_again_and_again(void **state)
{
        pid_t other;

        if (users_cannot_run())
                skip();
        table->value[5] = SLOW_MS;
        other = users_begin(BYSTANDER, parts_late);
        eventually(table->ready == 1);
        users_run(HOSTILE, asks_for_one_more);
        assert_in_range(table->value[4], 1, MOST);
        table->done = 2;
        users_wait(other);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(numbers_that_there_are_not, setup, users_teardown),
                cmocka_unit_test_setup_teardown(nobody_comes_with_another_users_number, setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(who_waits_for_a_channel_that_comes_back, setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(what_a_keeper_may_bring_yet_is_asked_for_again,
                                                setup, users_teardown),
                cmocka_unit_test_setup_teardown(what_is_handed_over_is_asked_for_again, setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(
                        a_socket_in_a_message_is_watched_before_that_is_answered, setup,
                        users_teardown),
                cmocka_unit_test_setup_teardown(who_parts_slowly_is_not_waited_for_again_and_again,
                                                setup, users_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
