/* Descriptors in messages (base/rights.h). */
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/rights.h"
#include "tests/unit.h"

static struct msghdr message(union rights *r, size_t bytes)
{
        return (struct msghdr){.msg_control = r, .msg_controllen = bytes};
}

static int open_one(void)
{
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        assert_true(fd >= 0);
        return fd;
}

static bool is_open(int fd)
{
        return fcntl(fd, F_GETFD) >= 0;
}

static void what_was_put_is_taken_in_order(void **state)
{
        const int given[3] = {7, 0, 9};
        struct msghdr m = {0};
        union rights r;
        int fds[3];

        rights_put(&m, &r, given, 3);
        assert_int_equal(rights_take(&m, fds, 3), 3);
        assert_memory_equal(fds, given, sizeof fds);
}

static void none_is_no_control_message(void **state)
{
        struct msghdr m = {0};
        union rights r;

        rights_put(&m, &r, NULL, 0);
        assert_int_equal(m.msg_controllen, 0);
        assert_int_equal(rights_take(&m, NULL, 0), 0);
}

static void those_that_are_too_many_are_closed(void **state)
{
        int given[4] = {open_one(), open_one(), open_one(), open_one()}, fds[2];
        struct msghdr m = {0};
        union rights r;

        rights_put(&m, &r, given, 4);
        assert_int_equal(rights_take(&m, fds, 2), 4);
        assert_memory_equal(fds, given, sizeof fds);
        for (int i = 0; i < 4; i++)
                assert_int_equal(is_open(given[i]), i < 2);
        close(given[0]);
        close(given[1]);
}

static void another_control_message_has_none(void **state)
{
        union rights r = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)),
                                   .cmsg_level = SOL_SOCKET,
                                   .cmsg_type = SCM_CREDENTIALS}};
        struct msghdr m = message(&r, CMSG_SPACE(sizeof(int)));

        assert_int_equal(rights_take(&m, NULL, 0), 0);
}

static unsigned seen;

static void see(int fd)
{
        assert_int_equal(fd, 5);
        seen++;
}

/* What a program hands to sendmsg(): no more is read than there is. */
static void a_length_that_is_wrong_is_not_believed(void **state)
{
        static const struct {
                size_t says, room;
                unsigned fds;
        } v[] = {{0, 8, 0},
                 {CMSG_LEN(0) - 1, 8, 0},
                 {CMSG_LEN(0), 8, 0},
                 {CMSG_LEN(3), 8, 0},
                 {CMSG_LEN(4), 8, 1},
                 {CMSG_LEN(8), 8, 2},
                 {CMSG_LEN(12), 8, 2},
                 {SIZE_MAX, 8, 2},
                 {CMSG_LEN(8), 0, 0}};

        for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
                union rights r = {.head = {.cmsg_len = v[i].says,
                                           .cmsg_level = SOL_SOCKET,
                                           .cmsg_type = SCM_RIGHTS}};
                struct msghdr m = message(&r, CMSG_LEN(v[i].room));
                const int five[4] = {5, 5, -1, -1};

                memcpy(CMSG_DATA(&r.head), five, sizeof five);
                seen = 0;
                rights_each(&m, see);
                assert_int_equal(seen, v[i].fds);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_was_put_is_taken_in_order),
                cmocka_unit_test(none_is_no_control_message),
                cmocka_unit_test(those_that_are_too_many_are_closed),
                cmocka_unit_test(another_control_message_has_none),
                cmocka_unit_test(a_length_that_is_wrong_is_not_believed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
