/* Hosts without RoCE are known by what their kernel says of the port (unetd/agent/knock.h). */
#include <stdlib.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unetd/agent/knock.h"
#include "tests/unit.h"

#define HERE    0x7f000001u
#define THERE   0x7f000203u /* loopback has all of 127/8 */
#define NOWHERE 0x7f000204u

struct scene {
        struct loop loop;
        struct knock knock;
        int taken; /* has the port at THERE */
        uint32_t said[4];
        unsigned nsaid;
};

static struct scene *the_scene;

static void nobody(struct knock *k, uint32_t addr)
{
        struct scene *s = the_scene;

        assert_ptr_equal(k, &s->knock);
        assert_true(s->nsaid < ARRAY_LEN(s->said));
        s->said[s->nsaid++] = addr;
        s->loop.stop = true;
}

static nstime after(struct loop *l)
{
        return l->now + NS_PER_S;
}

static int setup(void **state)
{
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(THERE)};
        socklen_t len = sizeof sin;
        struct scene *s = the_scene = calloc(1, sizeof *s);

        s->taken = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(s->taken, (struct sockaddr *)&sin, sizeof sin), 0);
        getsockname(s->taken, (struct sockaddr *)&sin, &len);
        assert_int_equal(loop_init(&s->loop, after), 0);
        assert_int_equal(knock_open(&s->knock, &s->loop, HERE, ntohs(sin.sin_port), nobody), 0);
        *state = s;
        return 0;
}

static int teardown(void **state)
{
        struct scene *s = *state;

        close(s->knock.source.fd);
        close(s->loop.epoll);
        close(s->taken);
        free(s);
        return 0;
}

static void who_has_nobody_there_says_so(void **state)
{
        struct scene *s = *state;

        knock_at(&s->knock, NOWHERE);
        loop_run(&s->loop);
        assert_int_equal(s->nsaid, 1);
        assert_int_equal(s->said[0], NOWHERE);
}

/* On loopback an error is there before the datagram of a later call: THERE's, if it made one, would
 * come first. */
static void who_has_somebody_says_nothing(void **state)
{
        struct scene *s = *state;
        char byte;

        knock_at(&s->knock, THERE);
        assert_int_equal(recv(s->taken, &byte, 1, 0), 0);
        knock_at(&s->knock, NOWHERE);
        loop_run(&s->loop);
        assert_int_equal(s->nsaid, 1);
        assert_int_equal(s->said[0], NOWHERE);
}

/* The error of the first would be what the second call returns. */
static void an_error_does_not_keep_the_next_from_going(void **state)
{
        struct scene *s = *state;
        char byte;

        for (int i = 0; i < 20; i++) {
                knock_at(&s->knock, NOWHERE);
                knock_at(&s->knock, THERE);
                assert_int_equal(recv(s->taken, &byte, 1, 0), 0);
        }
}

static void an_answer_is_no_refusal(void **state)
{
        struct scene *s = *state;
        struct sockaddr_in from;
        socklen_t len = sizeof from;
        char byte;

        knock_at(&s->knock, THERE);
        assert_int_equal(recvfrom(s->taken, &byte, 1, 0, (struct sockaddr *)&from, &len), 0);
        assert_int_equal(sendto(s->taken, "x", 1, 0, (struct sockaddr *)&from, len), 1);
        knock_at(&s->knock, NOWHERE);
        loop_run(&s->loop);
        assert_int_equal(s->nsaid, 1);
        assert_int_equal(recv(s->knock.source.fd, &byte, 1, MSG_DONTWAIT), -1);
}

/* Anybody may send to it, faster than it reads. */
static void who_sends_without_end_is_not_read_without_end(void **state)
{
        struct scene *s = *state;
        struct sockaddr_in to;
        socklen_t len = sizeof to;
        char byte;

        assert_int_equal(getsockname(s->knock.source.fd, (struct sockaddr *)&to, &len), 0);
        for (int i = 0; i < 64; i++)
                assert_int_equal(sendto(s->taken, "x", 1, 0, (struct sockaddr *)&to, len), 1);
        for (int turn = 0; turn < 2; turn++) {
                s->knock.source.ready(&s->knock.source, EPOLLIN);
                assert_int_equal(recv(s->knock.source.fd, &byte, 1, MSG_DONTWAIT), 1);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(who_has_nobody_there_says_so, setup, teardown),
                cmocka_unit_test_setup_teardown(who_has_somebody_says_nothing, setup, teardown),
                cmocka_unit_test_setup_teardown(an_error_does_not_keep_the_next_from_going, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(an_answer_is_no_refusal, setup, teardown),
                cmocka_unit_test_setup_teardown(who_sends_without_end_is_not_read_without_end,
                                                setup, teardown),
        };

        alarm(60);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
