/* What the broker has of users' stacks (unetd/daemon/stacks.h): it writes into none. */
#include "tests/users/users.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

static bool is_state(const char *fd)
{
        char name[64] = "";

        return readlink(fd, name, sizeof name - 1) > 0 &&
               strncmp(name, "/memfd:unet-state", 17) == 0;
}

static int how_opened(pid_t pid, const char *fd)
{
        char path[300], line[100];
        int flags = -1;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/fdinfo/%s", (int)pid, fd);
        f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f))
                if (sscanf(line, "flags: %o", (unsigned *)&flags) == 1)
                        break;
        if (f)
                fclose(f);
        return flags;
}

/* It cannot open it anew for writing either: it is its owner's alone. */
static bool is_closed_to(pid_t pid, const char *fd)
{
        char status[64];
        struct stat st, process;

        snprintf(status, sizeof status, "/proc/%d/status", (int)pid);
        return stat(fd, &st) == 0 && stat(status, &process) == 0 && (st.st_mode & 07777) == 0600 &&
               st.st_uid != process.st_uid;
}

/* How many states it has. */
static unsigned has_states_for_reading(pid_t pid)
{
        struct dirent *e;
        char path[64], fd[330];
        unsigned n = 0;
        DIR *d;

        snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
        d = opendir(path);
        assert_non_null(d);
        while ((e = readdir(d))) {
                snprintf(fd, sizeof fd, "%s/%s", path, e->d_name);
                if (!is_state(fd))
                        continue;
                assert_int_equal(how_opened(pid, e->d_name) & O_ACCMODE, O_RDONLY);
                assert_true(is_closed_to(pid, fd));
                n++;
        }
        closedir(d);
        return n;
}

static int passes_a_writable_one(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

static bool find_keeper(void *arg, const struct unetd_status_item *item)
{
        if (item->kind == UNETD_S_KEEPER && item->uid == VICTIM)
                *(pid_t *)arg = item->pid;
        return true;
}

static pid_t keeper_of_victim(void)
{
        struct unetd_client c = {.pid = 0};
        pid_t pid = 0;

        assert_int_equal(unetd_open(&c, UNETD_NO_START | UNETD_SYSTEM), 0);
        unetd_status(&c, find_keeper, &pid);
        unetd_close(&c);
        return pid;
}

static bool has_another_keeper(pid_t than)
{
        pid_t pid = keeper_of_victim();

        return pid > 0 && pid != than;
}

static void the_broker_writes_into_no_stack(void **state)
{
        pid_t hostile, keeper;

        if (users_cannot_run())
                skip();
        users_victim_start();
        hostile = users_begin(HOSTILE, passes_a_writable_one);
        eventually(table->ready == 1);
        assert_true(has_states_for_reading(users_broker()) >= 2);
        keeper = keeper_of_victim();
        assert_true(keeper > 1);
        kill(keeper, SIGKILL); /* the next one opens it anew */
        eventually(has_another_keeper(keeper));
        users_victim_goes_on();
        assert_true(has_states_for_reading(users_broker()) >= 2);
        table->done = 1;
        users_wait(hostile);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(the_broker_writes_into_no_stack, users_setup,
                                                users_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
