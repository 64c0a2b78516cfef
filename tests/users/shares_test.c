/* What one user can take, and what is left for others: leases, the directory, and all that users
 * share (unetd/daemon/shares.h). */
#include "tests/users/users.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "unetd/client/name.h"

#define LOOPBACK 0x7f000001u

/* ---- client ports ---- */

static int leases_by_number(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        uint32_t n = DIR_BLOCK_PORTS, port = table->port;
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        for (uint32_t block = 1; block < DIR_BLOCKS; block++) {
                bool his = hostile_dir->lease[block] != 0 || port / n == block;
                struct unetd_msg msg = {.type = UNETD_PORT_LEASE,
                                        .lease = {.stack = st.id,
                                                  .first = (uint16_t)(block * n),
                                                  .count = (uint16_t)n}};

                if (!his)
                        continue;
                must(hostile_ask(c, &msg, NULL, 0) == -EADDRNOTAVAIL);
                must(hostile_send(k, &msg, NULL, 0) == 0); /* nor as an offer */
        }
        must(hostile_sees(IPPROTO_TCP, LOOPBACK, (uint16_t)port, 0) == VICTIM);
        must(directory_lessee_of(hostile_dir, (uint16_t)port) != st.id);
        return 0;
}

static void a_lease_covers_nothing_of_others(void **state)
{
        if (users_cannot_run())
                skip();
        users_victim_start();
        users_run(HOSTILE, leases_by_number);
        users_victim_goes_on();
}

/* ---- the directory ---- */

/* Listeners at addresses that are chosen to lie where the victim's entry is to go. */
static int crowds_the_directory(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        uint16_t port = (uint16_t)table->value[0];
        uint32_t want = dir_hash(hostile_dir, IPPROTO_TCP, ip_addr_v4(LOOPBACK), port);
        uint32_t any = dir_hash(hostile_dir, IPPROTO_TCP, (ip_addr){{0, 0}}, port), placed = 0,
                 refused = 0;
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        for (uint32_t addr = LOOPBACK + 1; addr < 0x7f200000 && refused < 64 && placed < 3000;
             addr++) {
                uint32_t at = dir_hash(hostile_dir, IPPROTO_TCP, ip_addr_v4(addr), port);
                int sock, r;

                if ((at - want + 2) % DIR_SLOTS > DIR_RUN + 4 &&
                    (at - any + 2) % DIR_SLOTS > DIR_RUN + 4)
                        continue;
                sock = hostile_socket(IPPROTO_TCP, addr, &port, false);
                must(sock >= 0);
                r = hostile_listen(c, st.id, IPPROTO_TCP, addr, port, sock);
                close(sock);
                placed += r == 0;
                refused += r == -ENOSPC;
                must(r == 0 || r == -ENOSPC);
        }
        table->value[1] = placed;
        table->value[2] = refused;
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

static int finds_room_in_it(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client(), sock;
        uint16_t port = (uint16_t)table->value[0];
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        sock = hostile_socket(IPPROTO_TCP, LOOPBACK, &port, false);
        must(sock >= 0 && hostile_listen(c, st.id, IPPROTO_TCP, LOOPBACK, port, sock) == 0);
        must(hostile_sees(IPPROTO_TCP, LOOPBACK, port, 0) == VICTIM);
        return 0;
}

static void colliding_listeners_keep_nobody_off(void **state)
{
        pid_t hostile;

        if (users_cannot_run())
                skip();
        table->value[0] = 24017;
        hostile = users_begin(HOSTILE, crowds_the_directory);
        eventually(table->ready == 1);
        print_message("one user's listeners around one key: %d placed, %d refused\n",
                      (int)table->value[1], (int)table->value[2]);
        users_run(VICTIM, finds_room_in_it);
        table->done = 1;
        users_wait(hostile);
}

/* ---- channels of a stack ---- */

/* Stacks of its own, as many as it takes, each with a channel to the victim's; whoever asks pays.
 */
static int takes_his_channels(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client(), r = 0;
        uint32_t n = 0;

        must(k >= 0);
        while (r == 0) {
                struct unetd_msg msg = {.type = UNETD_CHAN_OPEN};
                struct hostile_stack st;

                must(hostile_stack(c, &st) == 0);
                hostile_stack_close(&st);
                msg.chan.stack = st.id;
                msg.chan.peer_stack = table->stack;
                r = hostile_ask(c, &msg, NULL, 0);
                n += r == 0;
        }
        must(r == -EDQUOT);
        table->value[0] = n;
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

static int has_one_more(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        struct unetd_msg msg = {.type = UNETD_CHAN_OPEN};
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        msg.chan.stack = st.id;
        msg.chan.peer_stack = table->stack;
        must(hostile_ask(c, &msg, NULL, 0) == 0);
        return 0;
}

/* The victim: a stack that others open channels to, and that has as many left as it is owed. */
static int is_called(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        struct hostile_stack st, mine;
        uint32_t n = 0;
        int r = 0;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        table->stack = st.id;
        must_eventually(table->done == 1);
        while (r == 0) {
                struct unetd_msg msg = {.type = UNETD_CHAN_OPEN};

                must(hostile_stack(c, &mine) == 0);
                hostile_stack_close(&mine);
                msg.chan.stack = st.id;
                msg.chan.peer_stack = mine.id;
                r = hostile_ask(c, &msg, NULL, 0);
                n += r == 0;
        }
        must(n >= 31 - 1); /* two others have 32 and one */
        return 0;
}

static int few_channels(void **state)
{
        return users_setup_with("[limits]\nchannels_per_stack = 64\n");
}

static void channels_of_a_stack_are_left_to_others(void **state)
{
        pid_t hostile, called;

        if (users_cannot_run())
                skip();
        called = users_begin(VICTIM, is_called);
        eventually(table->stack != 0);
        hostile = users_begin(HOSTILE, takes_his_channels);
        eventually(table->ready == 1);
        print_message("channels of a stack that one other user has: %d of 64\n",
                      (int)table->value[0]);
        assert_in_range(table->value[0], 1, 32);
        users_run(BYSTANDER, has_one_more);
        table->done = 1;
        users_wait(called);
        users_wait(hostile);
}

enum { RACERS = 40 };

/* The victim's numbers go up: who knows one knows the next. */
static int has_a_stack(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        table->stack = unetd_stacks_of(VICTIM) + (st.id + 1) % UNETD_STACKS_OF_USER;
        return 0;
}

/* Stacks at hand, and a channel from each to whatever stack comes next, before its program has any
 * itself. */
static int opens_before_others(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client(), r = 0;
        struct hostile_stack st;
        uint32_t id[RACERS];

        must(k >= 0);
        for (int i = 0; i < RACERS; i++) {
                must(hostile_stack(c, &st) == 0);
                hostile_stack_close(&st);
                id[i] = st.id;
        }
        table->ready = 1;
        for (int i = 0; i < RACERS && (r == 0 || r == -ENOENT || r == -ETIMEDOUT);) {
                struct unetd_msg msg = {.type = UNETD_CHAN_OPEN,
                                        .chan = {.stack = id[i], .peer_stack = table->stack}};

                r = hostile_ask(c, &msg, NULL, 0);
                i += r == 0;
                table->value[0] = i;
        }
        must(r == -EDQUOT);
        table->ready = 2;
        must_eventually(table->done == 1);
        return 0;
}

static void who_comes_first_leaves_channels(void **state)
{
        pid_t hostile;

        if (users_cannot_run())
                skip();
        users_run(VICTIM, has_a_stack);
        hostile = users_begin(HOSTILE, opens_before_others);
        eventually(table->ready == 1);
        users_victim_start();
        eventually(table->ready == 2);
        print_message("channels of a program's stack that one other user has at once: %d of 64\n",
                      (int)table->value[0]);
        assert_in_range(table->value[0], 1, 32);
        users_run(BYSTANDER, has_one_more);
        users_victim_goes_on();
        users_unetd_answers();
        table->done = 1;
        users_wait(hostile);
}

/* ---- descriptors of keepers ---- */

enum { SIDE = 5, OF_VICTIM = 3 }; /* stacks of the one who calls, and of those who are called */

/* Room for 256 in a keeper (KEEPER_FDS in unetd/daemon/shares.c): the stacks and channels of who
 * calls need 161, and 286 if he paid for both ends of a channel. The limit stays: the last test. */
static int keepers_have_few(void **state)
{
        struct rlimit few = {512 + 256, 512 + 256};

        return setrlimit(RLIMIT_NOFILE, &few) < 0 ? -1 : users_setup(state);
}

static int make_stacks(int64_t id[], int n)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        struct hostile_stack st;

        must(k >= 0);
        for (int i = 0; i < n; i++) {
                must(hostile_stack(c, &st) == 0);
                hostile_stack_close(&st);
                id[i] = st.id;
        }
        return c;
}

static int opens(int c, int64_t from, int64_t to)
{
        struct unetd_msg msg = {.type = UNETD_CHAN_OPEN,
                                .chan = {.stack = (uint32_t)from, .peer_stack = (uint32_t)to}};

        return hostile_ask(c, &msg, NULL, 0);
}

/* When others have taken what they get, there is room for a stack, and for a channel of his own,
 * whose ends are both his keeper's. */
static int has_stacks(void)
{
        int64_t id[OF_VICTIM];
        struct hostile_stack st;
        int c = make_stacks(id, OF_VICTIM);

        for (int i = 0; i < OF_VICTIM; i++)
                table->value[i] = id[i];
        table->ready++;
        must_eventually(table->done == 1);
        must(hostile_stack(c, &st) == 0);
        must(opens(c, id[0], st.id) == 0);
        return 0;
}

static int has_the_others(void)
{
        int64_t id[SIDE - OF_VICTIM];

        make_stacks(id, SIDE - OF_VICTIM);
        for (int i = OF_VICTIM; i < SIDE; i++)
                table->value[i] = id[i - OF_VICTIM];
        table->ready++;
        must_eventually(table->done == 1);
        return 0;
}

static int calls_each(void)
{
        int64_t id[SIDE];
        int c = make_stacks(id, SIDE);

        for (int i = 0; i < SIDE * SIDE; i++)
                must(opens(c, id[i / SIDE], table->value[i % SIDE]) == 0);
        return 0;
}

static void an_end_counts_with_the_keeper_that_has_it(void **state)
{
        pid_t called[2];

        if (users_cannot_run())
                skip();
        called[0] = users_begin(VICTIM, has_stacks);
        called[1] = users_begin(BYSTANDER, has_the_others);
        eventually(table->ready == 2);
        users_run(HOSTILE, calls_each);
        table->done = 1;
        users_wait(called[0]);
        users_wait(called[1]);
}

/* As many channels to one user's stacks as he gets. */
static int calls_all_it_may(void)
{
        int64_t id[2 * SIDE];
        int c = make_stacks(id, 2 * SIDE), n = 0, r = 0;

        for (int i = 0; i < 2 * SIDE * OF_VICTIM && r == 0; i++, n += r == 0)
                r = opens(c, id[i / OF_VICTIM], table->value[i % OF_VICTIM]);
        must(r == -EDQUOT);
        table->value[SIDE] = n;
        table->ready++;
        must_eventually(table->done == 1);
        return 0;
}

static void others_leave_room_in_a_keeper(void **state)
{
        pid_t called, calls;

        if (users_cannot_run())
                skip();
        called = users_begin(VICTIM, has_stacks);
        eventually(table->ready == 1);
        calls = users_begin(HOSTILE, calls_all_it_may);
        eventually(table->ready == 2);
        print_message("channels for one other user in a keeper with room for 256 descriptors: %d\n",
                      (int)table->value[SIDE]);
        assert_in_range(table->value[SIDE], 1, 128 / UNETD_CHAN_FDS);
        table->done = 1;
        users_wait(called);
        users_wait(calls);
}

/* ---- client ports ---- */

static int leases_all(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client(), r;
        struct hostile_stack st;
        uint32_t n = 0;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        do {
                struct unetd_msg msg = {.type = UNETD_PORT_LEASE, .lease = {.stack = st.id}};

                r = hostile_ask(c, &msg, NULL, 0);
                n += r == 0 ? msg.lease.count : 0;
        } while (r == 0);
        must(r == -EDQUOT);
        table->value[table->ready] = n;
        table->ready++;
        must_eventually(table->done == 1);
        return 0;
}

static void client_ports_are_left_to_others(void **state)
{
        pid_t first, second;

        if (users_cannot_run())
                skip();
        first = users_begin(HOSTILE, leases_all);
        eventually(table->ready == 1);
        second = users_begin(VICTIM, leases_all);
        eventually(table->ready == 2);
        print_message("client ports: %d, then %d\n", (int)table->value[0], (int)table->value[1]);
        assert_true(table->value[1] > 0 && table->value[1] >= table->value[0] / 3);
        table->done = 1;
        users_wait(first);
        users_wait(second);
}

/* Every other block of four, by number. */
static int cuts_the_ports(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        uint32_t had = 0, n = DIR_BLOCK_PORTS;
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        for (uint32_t port = n; port + n < 65536; port += 2 * n) {
                struct unetd_msg msg = {
                        .type = UNETD_PORT_LEASE,
                        .lease = {.stack = st.id, .first = (uint16_t)port, .count = (uint16_t)n}};

                had += hostile_ask(c, &msg, NULL, 0) == 0;
        }
        table->value[0] = had;
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

static int leases_some(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        struct unetd_msg msg = {.type = UNETD_PORT_LEASE, .lease = {.count = 64}};
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        msg.lease.stack = st.id;
        must(hostile_ask(c, &msg, NULL, 0) == 0);
        table->value[1] = msg.lease.count;
        return 0;
}

static void nobody_cuts_the_ports_for_others(void **state)
{
        pid_t hostile;

        if (users_cannot_run())
                skip();
        hostile = users_begin(HOSTILE, cuts_the_ports);
        eventually(table->ready == 1);
        users_run(VICTIM, leases_some);
        print_message("blocks of ports by number: %d; another user then has a run of %d\n",
                      (int)table->value[0], (int)table->value[1]);
        assert_true(table->value[0] > 0 && table->value[1] == 64);
        table->done = 1;
        users_wait(hostile);
}

enum { TURNS = 48 };

/* A program after the other, of two users in turns; all stay. */
static int leases_in_turns(uint32_t turn)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        struct hostile_stack st;
        bool seen[65536 / 128] = {false};
        uint32_t zones = 0;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        for (uint32_t i = 0; i < TURNS; i++) {
                struct unetd_msg msg = {.type = UNETD_PORT_LEASE,
                                        .lease = {.stack = st.id, .count = DIR_BLOCK_PORTS}};

                must_eventually(table->ready == 2 * i + turn);
                must(hostile_ask(c, &msg, NULL, 0) == 0);
                zones += !seen[msg.lease.first / 128];
                seen[msg.lease.first / 128] = true;
                table->ready++;
        }
        table->value[turn] = zones;
        must_eventually(table->done == 1);
        return 0;
}

static int leases_first(void)
{
        return leases_in_turns(0);
}

static int leases_second(void)
{
        return leases_in_turns(1);
}

static void who_comes_in_turns_takes_no_zone_for_each_program(void **state)
{
        pid_t first, second;

        if (users_cannot_run())
                skip();
        first = users_begin(HOSTILE, leases_first);
        second = users_begin(VICTIM, leases_second);
        eventually(table->value[0] != 0 && table->value[1] != 0);
        print_message("zones for %d leases: %d, %d\n", TURNS, (int)table->value[0],
                      (int)table->value[1]);
        assert_in_range(table->value[0], 1, 16);
        assert_in_range(table->value[1], 1, 16);
        table->done = 1;
        users_wait(first);
        users_wait(second);
}

#define TIMES      200
#define USER_LINES 20 /* unetd/daemon/users.h: at once, and one a second */

static char logs[64];

static int four_ports(void **state)
{
        char config[128];

        snprintf(logs, sizeof logs, "/tmp/unet-users-%d.log", (int)getpid());
        snprintf(config, sizeof config, "[daemon]\nlog = %s\n[limits]\nleases = 4\n", logs);
        return users_setup_with(config);
}

static int asks_for_ports(int c, uint32_t stack)
{
        struct unetd_msg msg = {.type = UNETD_PORT_LEASE, .lease = {.stack = stack}};

        return hostile_ask(c, &msg, NULL, 0);
}

/* He has none, gets some, gets no more: each time that may be said. */
static int leases_and_gives_back(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();

        must(k >= 0);
        for (int i = 0; i < TIMES; i++) {
                struct unetd_msg gone = {.type = UNETD_K_GONE};
                struct hostile_stack st;

                must(hostile_stack(c, &st) == 0);
                must_eventually(asks_for_ports(c, st.id) == 0);
                must(asks_for_ports(c, st.id) == -EDQUOT);
                gone.stack.stack = st.id;
                must(hostile_send(k, &gone, NULL, 0) == 0);
                hostile_stack_close(&st);
        }
        return 0;
}

static void who_gives_ports_back_does_not_fill_the_log(void **state)
{
        int64_t began = users_now_ms();
        int n;

        if (users_cannot_run())
                skip();
        users_run(HOSTILE, leases_and_gives_back);
        n = (int)users_lines_logged(logs, "no more client ports");
        print_message("lines of %d that might have been written: %d\n", TIMES, n);
        assert_in_range(n, 1, USER_LINES + 1 + (users_now_ms() - began) / 1000);
        unlink(logs);
}

/* ---- ports that unetd holds ---- */

static int holds_all(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client(), r;
        struct hostile_stack st;
        int64_t n = -1;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        do {
                struct unetd_msg msg = {.type = UNETD_PORT_HOLD,
                                        .port = {.stack = st.id,
                                                 .proto = IPPROTO_TCP,
                                                 .addr = ip_addr_v4(LOOPBACK)}};

                r = hostile_ask(c, &msg, NULL, 0);
                n++;
        } while (r == 0);
        must(r == -EDQUOT);
        table->value[table->ready] = n;
        table->ready++;
        must_eventually(table->done == 1);
        return 0;
}

static void ports_are_held_for_others_too(void **state)
{
        pid_t first, second;

        if (users_cannot_run())
                skip();
        first = users_begin(HOSTILE, holds_all);
        eventually(table->ready == 1);
        second = users_begin(VICTIM, holds_all);
        eventually(table->ready == 2);
        print_message("ports that unetd holds for a user: %d, for the next one: %d\n",
                      (int)table->value[0], (int)table->value[1]);
        assert_in_range(table->value[0], 1, 1024);
        assert_true(table->value[1] > 0 && table->value[1] >= table->value[0] / 3);
        users_unetd_answers();
        table->done = 1;
        users_wait(first);
        users_wait(second);
}

/* ---- listeners ---- */

/* At addresses of his own, all at one port. */
static int listens_everywhere(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client(), r = 0;
        uint32_t n = 0, first = LOOPBACK + 1 + 0x10000 * (1 + (uint32_t)table->ready);
        struct hostile_stack st;
        uint16_t port = 0;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        for (; r == 0; n += r == 0) {
                int sock = hostile_socket(IPPROTO_TCP, first + n, &port, true);

                must(sock >= 0);
                r = hostile_listen(c, st.id, IPPROTO_TCP, first + n, port, sock);
                close(sock);
        }
        must(r == -EDQUOT);
        table->value[table->ready] = n;
        table->ready++;
        must_eventually(table->done == 1);
        return 0;
}

static void entries_are_left_to_others(void **state)
{
        static const uint32_t who[] = {HOSTILE, VICTIM, BYSTANDER};
        pid_t pid[ARRAY_LEN(who)];

        if (users_cannot_run())
                skip();
        for (uint32_t i = 0; i < ARRAY_LEN(who); i++) {
                pid[i] = users_begin(who[i], listens_everywhere);
                eventually(table->ready == i + 1);
        }
        print_message("listeners: %d, %d, %d\n", (int)table->value[0], (int)table->value[1],
                      (int)table->value[2]);
        assert_in_range(table->value[0], 1, 4096);
        assert_true(table->value[2] >= table->value[0] / 4);
        users_unetd_answers();
        table->done = 1;
        for (uint32_t i = 0; i < ARRAY_LEN(who); i++)
                users_wait(pid[i]);
}

/* ---- names ---- */

/* All names of the victim's, half of them with a full backlog. */
static int squats(void)
{
        for (unsigned i = 0; i < UNETD_NAMES; i++) {
                struct sockaddr_un sun;
                socklen_t len = unetd_name(&sun, VICTIM, "squatted", i);
                int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

                must(fd >= 0 && bind(fd, (struct sockaddr *)&sun, len) == 0);
                must(i % 2 == 0 || listen(fd, 0) == 0);
        }
        table->ready = 1;
        must_eventually(table->done == 1);
        return 0;
}

static int begins_to_use_unet(void)
{
        struct unetd_client c = {.pid = 0};
        int64_t began = users_now_ms();

        setenv("UNET_DOMAIN", "squatted", 1);
        must(unetd_open(&c, 0) == -ECONNREFUSED);
        fprintf(stderr, "that no unetd can be had is known after %d ms\n",
                (int)(users_now_ms() - began));
        must(users_now_ms() - began < 10000); /* waiting for each of the names took 12 s and more */
        return 0;
}

static void names_of_others_are_not_waited_for(void **state)
{
        pid_t hostile;

        if (users_cannot_run())
                skip();
        hostile = users_begin(HOSTILE, squats);
        eventually(table->ready == 1);
        users_run(VICTIM, begins_to_use_unet);
        table->done = 1;
        users_wait(hostile);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(a_lease_covers_nothing_of_others, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(colliding_listeners_keep_nobody_off, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(channels_of_a_stack_are_left_to_others,
                                                few_channels, users_teardown),
                cmocka_unit_test_setup_teardown(who_comes_first_leaves_channels, few_channels,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(client_ports_are_left_to_others, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(nobody_cuts_the_ports_for_others, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(who_comes_in_turns_takes_no_zone_for_each_program,
                                                users_setup, users_teardown),
                cmocka_unit_test_setup_teardown(who_gives_ports_back_does_not_fill_the_log,
                                                four_ports, users_teardown),
                cmocka_unit_test_setup_teardown(ports_are_held_for_others_too, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(entries_are_left_to_others, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(names_of_others_are_not_waited_for, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(others_leave_room_in_a_keeper, keepers_have_few,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(an_end_counts_with_the_keeper_that_has_it,
                                                keepers_have_few, users_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
