/* What unetds that were killed have left in their directory: what is dead goes, all else stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "unetd/daemon/leftovers.h"

#define HOUR (60 * 60)
#define DAY  (24 * HOUR)

static char dir[64];

static const char *path_of(const char *name)
{
        static char path[108];

        snprintf(path, sizeof path, "%s/%s", dir, name);
        return path;
}

static bool is_there(const char *name)
{
        struct stat st;

        return lstat(path_of(name), &st) == 0;
}

/* Its file stays when it is closed. */
static int bound(const char *name)
{
        struct sockaddr_un sun = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        strcpy(sun.sun_path, path_of(name));
        assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof sun), 0);
        return fd;
}

static void dead(const char *name)
{
        close(bound(name));
}

static int alive(const char *name)
{
        int fd = bound(name);

        assert_int_equal(listen(fd, 1), 0);
        return fd;
}

static void file(const char *name)
{
        close(open(path_of(name), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

static void is_old(const char *name, time_t age)
{
        const struct timespec t[2] = {{.tv_sec = time(NULL) - age}, {.tv_sec = time(NULL) - age}};

        assert_int_equal(utimensat(AT_FDCWD, path_of(name), t, AT_SYMLINK_NOFOLLOW), 0);
}

static void a_unetd_begins(void)
{
        char own[108];

        snprintf(own, sizeof own, "%s", path_of("default.36.4"));
        leftovers_remove(dir, own);
}

static int setup(void **state)
{
        snprintf(dir, sizeof dir, "/tmp/unet-leftovers-XXXXXX");
        return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
        char command[128];

        snprintf(command, sizeof command, "rm -r %s", dir);
        return system(command);
}

static void what_is_dead_goes(void **state)
{
        dead("default.36.7");
        dead("other-domain.v2.35.4026531840");
        dead("default.36.41");
        a_unetd_begins();
        assert_false(is_there("default.36.7"));
        assert_false(is_there("other-domain.v2.35.4026531840"));
        assert_false(is_there("default.36.41"));
}

static void who_lives_stays(void **state)
{
        int idle = alive("default.36.7"), full = alive("default.36.8"), fd;
        struct sockaddr_un sun = {.sun_family = AF_UNIX};

        strcpy(sun.sun_path, path_of("default.36.8"));
        do /* nobody accepts: its queue is full */
                fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        while (connect(fd, (struct sockaddr *)&sun, sizeof sun) == 0);
        assert_int_equal(errno, EAGAIN);
        a_unetd_begins();
        assert_true(is_there("default.36.7"));
        assert_true(is_there("default.36.8"));
        close(idle);
        close(full);
}

static void who_begins_stays(void **state)
{
        dead("default.36.7+");
        dead("default.36.8+");
        is_old("default.36.8+", HOUR);
        a_unetd_begins();
        assert_true(is_there("default.36.7+"));
        assert_false(is_there("default.36.8+"));
}

static void its_own_stays(void **state)
{
        dead("default.36.4");
        file("default.36.4.leases");
        is_old("default.36.4.leases", 2 * DAY);
        a_unetd_begins();
        assert_true(is_there("default.36.4"));
        assert_true(is_there("default.36.4.leases"));
}

/* Since the end of their unetd, however long it ran. */
static void leases_stay_for_a_day(void **state)
{
        int fd = alive("default.36.9");

        dead("default.36.7");
        file("default.36.7.leases");
        is_old("default.36.7.leases", 2 * DAY);
        file("default.36.8.leases");
        is_old("default.36.8.leases", 2 * DAY);
        file("default.36.9.leases");
        is_old("default.36.9.leases", 2 * DAY);
        file("default.36.10.leases");
        is_old("default.36.10.leases", HOUR);
        for (int i = 0; i < 2; i++)
                a_unetd_begins();
        assert_false(is_there("default.36.7"));
        assert_true(is_there("default.36.7.leases"));
        assert_false(is_there("default.36.8.leases"));
        assert_true(is_there("default.36.9.leases"));
        assert_true(is_there("default.36.10.leases"));
        is_old("default.36.7.leases", 2 * DAY);
        a_unetd_begins();
        assert_false(is_there("default.36.7.leases"));
        close(fd);
}

static void all_else_stays(void **state)
{
        static const char *const name[] = {"default.36", "36.7",       "default.36.7x",
                                           ".36.7",      "a b.36.7",   "default.36.7.lease",
                                           "default..7", "default.x.7"};

        for (size_t i = 0; i < sizeof name / sizeof *name; i++)
                dead(name[i]);
        file("default.36.7");
        assert_int_equal(mkdir(path_of("directory.36.7"), 0700), 0);
        assert_int_equal(symlink("/etc/passwd", path_of("link.36.7")), 0);
        assert_int_equal(symlink("/etc/passwd", path_of("link.36.7.leases")), 0);
        assert_int_equal(mkfifo(path_of("pipe.36.7"), 0600), 0);
        a_unetd_begins();
        for (size_t i = 0; i < sizeof name / sizeof *name; i++)
                assert_true(is_there(name[i]));
        assert_true(is_there("default.36.7"));
        assert_true(is_there("directory.36.7"));
        assert_true(is_there("link.36.7"));
        assert_true(is_there("link.36.7.leases"));
        assert_true(is_there("pipe.36.7"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(what_is_dead_goes, setup, teardown),
                cmocka_unit_test_setup_teardown(who_lives_stays, setup, teardown),
                cmocka_unit_test_setup_teardown(who_begins_stays, setup, teardown),
                cmocka_unit_test_setup_teardown(its_own_stays, setup, teardown),
                cmocka_unit_test_setup_teardown(leases_stay_for_a_day, setup, teardown),
                cmocka_unit_test_setup_teardown(all_else_stays, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
