/*
 * unetd is killed and started anew. A user's programs have connections, client ports and a listener
 * with another's; a hostile one asks for all of these: before they come back, and at the same time.
 */
#include "tests/users/users.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "unetd/client/name.h"

#define LOOPBACK   0x7f000001u
#define LOOPBACK_2 0x7f000002u
#define MOST       64

/* ---- what the victim has ---- */

static struct {
        uint16_t first[MOST];
        uint32_t stack[MOST], n;
        struct unetd_client see;
} had;

static bool is_the_victims(uint32_t stack)
{
        return stack != 0 && stack - unetd_stacks_of(VICTIM) < UNETD_STACKS_OF_USER;
}

static void see(void)
{
        if (had.see.dir != NULL)
                unetd_close(&had.see);
        had.see = (struct unetd_client){.pid = 0};
        assert_int_equal(unetd_open(&had.see, UNETD_NO_START | UNETD_SYSTEM), 0);
}

static void remember(void)
{
        see();
        had.n = 0;
        for (uint32_t block = 0; block < DIR_BLOCKS && had.n < MOST; block++)
                if (is_the_victims(had.see.dir->lease[block])) {
                        had.stack[had.n] = had.see.dir->lease[block];
                        had.first[had.n++] = (uint16_t)(block * DIR_BLOCK_PORTS);
                }
        assert_in_range(had.n, 1, MOST);
}

static bool has_it_all(void)
{
        struct dir_hit hit = {.uid = 0};

        for (uint32_t i = 0; i < had.n; i++)
                if (directory_lessee_of(had.see.dir, had.first[i]) != had.stack[i])
                        return false;
        return directory_lookup(had.see.dir, IPPROTO_TCP, ip_addr_v4(LOOPBACK),
                                (uint16_t)table->port, 0, &hit) == 1 &&
               hit.uid == BYSTANDER &&
               directory_lookup(had.see.dir, IPPROTO_UDP, ip_addr_v4(LOOPBACK),
                                (uint16_t)table->port, 0, &hit) == 1 &&
               hit.uid == BYSTANDER;
}

/* ---- what the hostile one asks for ---- */

static void asks_for_its_ports(int keeper, int client, uint32_t stack)
{
        for (uint32_t i = 0; i < had.n; i++) {
                struct unetd_msg msg = {
                        .type = UNETD_PORT_LEASE,
                        .lease = {.stack = stack, .first = had.first[i], .count = DIR_BLOCK_PORTS}};

                must(hostile_send(keeper, &msg, NULL, 0) == 0); /* as an offer */
                must(hostile_ask(client, &msg, NULL, 0) < 0);
        }
}

static void asks_for_its_listener(int keeper, int client, uint32_t stack)
{
        static const uint8_t protos[] = {IPPROTO_TCP, IPPROTO_UDP};

        for (size_t i = 0; i < ARRAY_LEN(protos); i++) {
                uint16_t port = (uint16_t)table->port;
                struct unetd_msg msg = {.type = UNETD_PORT_HOLD,
                                        .port = {.stack = stack,
                                                 .proto = protos[i],
                                                 .port = port,
                                                 .addr = ip_addr_v4(LOOPBACK)}};
                int sock = hostile_socket(protos[i], LOOPBACK_2, &port, true);

                must(sock >= 0);
                must(hostile_ask(client, &msg, NULL, 0) == -EADDRINUSE);
                must(hostile_listen(client, stack, protos[i], LOOPBACK, port, sock) < 0);
                must(hostile_listen(client, stack, protos[i], 0, port, sock) < 0);
                must(hostile_listen(client, stack, protos[i], LOOPBACK, port, -1) < 0);
                msg.type = UNETD_LISTEN_ADD;
                must(hostile_send(keeper, &msg, NULL, 0) == 0);
                close(sock);
        }
}

/* Whatever unetd gives him. */
static void takes_what_there_is(int client, uint32_t stack)
{
        struct unetd_msg msg;
        int r;

        do {
                msg = (struct unetd_msg){.type = UNETD_PORT_LEASE,
                                         .lease = {.stack = stack, .count = 4096}};
                r = hostile_ask(client, &msg, NULL, 0);
                for (uint32_t i = 0; r == 0 && i < had.n; i++)
                        must((uint16_t)(had.first[i] - msg.lease.first) >= msg.lease.count);
        } while (r == 0);
        must(r == -EDQUOT || r == -EADDRNOTAVAIL);
}

static int wait_for_unetd(void)
{
        int fd;

        while ((fd = hostile_dial()) < 0)
                ;
        return fd;
}

static int asks_for_all(void)
{
        int first = wait_for_unetd(), keeper = -1, client;
        struct hostile_stack st;

        must_eventually((keeper = hostile_keeper(HOSTILE_ANSWERS)) >= 0);
        client = hostile_client();
        must(hostile_stack(client, &st) == 0);
        asks_for_its_ports(keeper, client, st.id);
        asks_for_its_listener(keeper, client, st.id);
        takes_what_there_is(client, st.id);
        asks_for_its_ports(keeper, client, st.id);
        close(first);
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

/* ---- */

/* Whether it was begun with this test's domain, as the two's programs and keepers are. */
static bool is_of_this_test(const char *pid)
{
        char path[NAME_MAX + sizeof "/proc//environ"], want[128], *entry = NULL;
        size_t room = 0;
        bool is = false;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%s/environ", pid);
        snprintf(want, sizeof want, "UNET_DOMAIN=%s", unetd_domain());
        f = fopen(path, "re");
        while (f != NULL && !is && getdelim(&entry, &room, '\0', f) > 0)
                is = strcmp(entry, want) == 0;
        if (f != NULL)
                fclose(f);
        free(entry);
        return is;
}

/* All processes of the two, their keepers too. */
static void tell_the_others(int sig)
{
        DIR *d = opendir("/proc");
        struct dirent *e;
        struct stat st;

        assert_non_null(d);
        while ((e = readdir(d)) != NULL)
                if (atoi(e->d_name) > 1 && fstatat(dirfd(d), e->d_name, &st, 0) == 0 &&
                    (st.st_uid == VICTIM || st.st_uid == BYSTANDER) && is_of_this_test(e->d_name))
                        kill(atoi(e->d_name), sig);
        closedir(d);
}

/* A test that fails leaves nobody stopped. */
static int teardown(void **state)
{
        tell_the_others(SIGCONT);
        return users_teardown(state);
}

static void goes_on_as_before(pid_t hostile)
{
        users_victim_goes_on();
        see();
        eventually(has_it_all());
        users_victim_goes_on();
        table->done = 1;
        users_wait(hostile);
        users_unetd_answers();
}

static void who_comes_first_gets_nothing_of_others(void **state)
{
        pid_t hostile;

        if (users_cannot_run())
                skip();
        users_victim_start_apart();
        users_victim_goes_on();
        remember();
        tell_the_others(SIGSTOP);
        users_unetd_dies();
        users_unetd_begins();
        hostile = users_begin(HOSTILE, asks_for_all);
        eventually(table->ready == 1);
        tell_the_others(SIGCONT);
        goes_on_as_before(hostile);
}

#define TIMES 5

static void nor_does_who_comes_at_the_same_time(void **state)
{
        if (users_cannot_run())
                skip();
        users_victim_start_apart();
        for (int i = 0; i < TIMES; i++) {
                pid_t hostile;

                table->ready = table->done = 0;
                users_victim_goes_on();
                remember();
                users_unetd_dies();
                hostile = users_begin(HOSTILE, asks_for_all);
                users_unetd_begins();
                eventually(table->ready == 1);
                goes_on_as_before(hostile);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(who_comes_first_gets_nothing_of_others, users_setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(nor_does_who_comes_at_the_same_time, users_setup,
                                                users_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
