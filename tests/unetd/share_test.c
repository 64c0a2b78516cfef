/* Connections that have a share of each turn together (unetd/loop/conn.h). */
#include <sys/socket.h>
#include <unistd.h>

#include "unetd/loop/conn.h"
#include "tests/unit.h"

#define TURNS 20

static struct loop loop;
static struct conn_share share;
static int turns;

static struct talker {
        struct conn conn;
        int peer;
} alice, bob;
static char heard[TURNS + 1];
static unsigned nheard;

/* Each message takes all that there is. */
static void takes_long(struct conn *c, struct wire_in *in)
{
        nstime began = loop_clock();

        assert_in_range(nheard, 0, TURNS - 1);
        heard[nheard++] = c == &alice.conn ? 'A' : 'B';
        while (loop_clock() - began < SHARE_A_TURN)
                ;
}

static void ended(struct conn *c)
{
        fail();
}

static nstime after(struct loop *l)
{
        l->stop = turns-- == 0;
        return loop_clock();
}

static void connect_to(struct talker *t)
{
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        t->peer = pair[1];
        t->conn = (struct conn){.message = takes_long, .ended = ended, .share = &share};
        assert_int_equal(conn_init(&t->conn, &loop, pair[0], 64), 0);
}

static int setup(void **state)
{
        assert_int_equal(loop_init(&loop, after), 0);
        share = (struct conn_share){0};
        memset(heard, 0, sizeof heard);
        nheard = 0;
        connect_to(&alice);
        connect_to(&bob);
        return 0;
}

static int teardown(void **state)
{
        conn_free(&alice.conn);
        conn_free(&bob.conn);
        close(alice.peer);
        close(bob.peer);
        close(loop.epoll);
        return 0;
}

static void run(int n)
{
        turns = n;
        loop.stop = false;
        loop_run(&loop);
}

static void say(const struct talker *t, int times)
{
        struct unetd_msg msg = {.type = UNETD_STATUS};

        while (times-- > 0)
                assert_int_equal(wire_send(t->peer, &msg, NULL, 0, MSG_DONTWAIT), 0);
}

static void who_used_up_the_share_comes_last(void **state)
{
        say(&alice, 5);
        say(&bob, 2);
        run(TURNS);
        assert_string_equal(heard, "ABABAAA");
}

static void what_is_refused_counts(void **state)
{
        assert_int_equal(send(alice.peer, "?", 1, MSG_DONTWAIT), 1);
        run(1);
        assert_true(share.turn == loop.now && share.spent > 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(who_used_up_the_share_comes_last, setup, teardown),
                cmocka_unit_test_setup_teardown(what_is_refused_counts, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
