/* Emulated endpoints of several users at one switch: one of them leaves endpoints and places at a
 * name to the others, and what his take of unetd's memory is counted. */
#include "tests/users/users.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <unet/unet.h>

#include "unet/ep.h"
#include "unet/shm/shm_link.h"

#define LATECOMER 64004u
#define CALLS     80 /* more than may wait at a name */
#define MESSAGE   60000u
#define MESSAGES  200 /* more than there are frames */

static void lift_descriptors(void)
{
        struct rlimit rl;

        must(getrlimit(RLIMIT_NOFILE, &rl) == 0);
        rl.rlim_cur = rl.rlim_max;
        must(setrlimit(RLIMIT_NOFILE, &rl) == 0);
}

/* ---- endpoints ---- */

/* Of nothing but a ring, and a station that all share; the descriptors stay. */
static int attach(uint32_t *port)
{
        static struct shm_offer mine;
        static struct counters cnt;
        static struct station st;
        struct unetd_client c = {.pid = 0};
        struct frame_geom flat = {{0}};
        struct shm_offer theirs;
        struct shm_link *l;
        int sock, r;

        if (mine.region_bytes == 0) {
                must(station_open(&st, 1 << 20, 0) == 0);
                must(shm_link_make(&st, flat, &cnt, &l) == 0);
                mine = shm_link_mine(l);
        }
        must(unetd_open(&c, UNETD_NO_START) == 0);
        r = unetd_emul_attach(&c, &mine, &theirs, port, &sock);
        if (r == 0) {
                close(theirs.region);
                close(theirs.station);
        }
        unetd_close(&c);
        return r;
}

static int attaches_all_it_may(void)
{
        uint32_t n = 0, port;
        int r;

        lift_descriptors();
        while ((r = attach(&port)) == 0)
                n++;
        must(r == -EDQUOT);
        table->value[table->ready] = n;
        table->ready++;
        must_eventually(table->done == 1);
        return 0;
}

static void endpoints_are_left_to_others(void **state)
{
        static const uint32_t who[] = {HOSTILE, VICTIM, BYSTANDER, LATECOMER};
        pid_t pid[ARRAY_LEN(who)];

        if (users_cannot_run())
                skip();
        for (uint32_t i = 0; i < ARRAY_LEN(who); i++) {
                pid[i] = users_begin(who[i], attaches_all_it_may);
                eventually(table->ready == i + 1);
        }
        print_message("emulated endpoints: %d, %d, %d, %d\n", (int)table->value[0],
                      (int)table->value[1], (int)table->value[2], (int)table->value[3]);
        assert_in_range(table->value[0], 1, 256);
        assert_true(table->value[3] >= table->value[0] / 4);
        users_unetd_answers();
        table->done = 1;
        for (uint32_t i = 0; i < ARRAY_LEN(who); i++)
                users_wait(pid[i]);
}

/* ---- calls ---- */

static int listen_at_door(void)
{
        struct unetd_msg msg = {.type = UNETD_EMUL_LISTEN, .emul = {.flags = UNETD_EMUL_ANYBODY}};
        int listener = hostile_client();

        strcpy(msg.emul.name, "door");
        must(hostile_ask(listener, &msg, NULL, 0) == 0);
        return listener;
}

/* It is rung: the name's number. */
static uint32_t hear_call(int listener)
{
        struct wire_in in = {.n = 0};

        while (in.msg.type != UNETD_EMUL_CALL)
                must(hostile_recv(listener, &in, USERS_PATIENCE_MS) == 0);
        return in.msg.emul.listener;
}

/* Whose call it was. */
static uint32_t accept_call(int c, uint32_t port, uint32_t id)
{
        struct unetd_msg msg = {.type = UNETD_EMUL_ACCEPT, .emul = {.port = port, .listener = id}};

        must(hostile_ask(c, &msg, NULL, 0) == 0);
        return msg.emul.uid;
}

static int answers_late(void)
{
        int listener = listen_at_door(), c = hostile_client();
        uint32_t id, port, uid = 0;

        must(attach(&port) == 0);
        table->ready = 1;
        must_eventually(table->done == 1);
        id = hear_call(listener);
        while (uid != BYSTANDER) {
                uid = accept_call(c, port, id);
                table->value[1] += uid == HOSTILE;
        }
        table->ready = 4;
        return 0;
}

static int call(uint32_t port, uint32_t whom)
{
        struct unetd_msg msg = {
                .type = UNETD_EMUL_CONNECT, .seq = 1u << 30, .emul = {.port = port, .uid = whom}};
        int fd = hostile_client();

        strcpy(msg.emul.name, "door");
        must(hostile_send(fd, &msg, NULL, 0) == 0);
        return fd;
}

/* unetd has seen to what came before. */
static void in_step(int fd)
{
        for (int i = 0; i < 2; i++) {
                struct unetd_msg msg = {.type = UNETD_STATUS};

                must(hostile_ask(fd, &msg, NULL, 0) == 0);
        }
}

static int calls_again_and_again(void)
{
        uint32_t port;
        int refused = 0;

        must(attach(&port) == 0);
        for (int i = 0; i < CALLS; i++) {
                struct wire_in in;
                int fd = call(port, VICTIM);

                in_step(hostile_client());
                if (hostile_recv(fd, &in, 0) == 0) {
                        must(in.msg.err == -ECONNREFUSED);
                        refused++;
                }
        }
        table->value[0] = CALLS - refused;
        table->ready = 2;
        must_eventually(table->ready == 4);
        return 0;
}

static int calls_once(void)
{
        uint32_t port;
        struct wire_in in;
        int fd;

        must(attach(&port) == 0);
        fd = call(port, VICTIM);
        in_step(hostile_client());
        table->done = 1;
        must(hostile_recv(fd, &in, USERS_PATIENCE_MS) == 0 && in.msg.err == 0);
        return 0;
}

static void nobody_fills_anothers_name_with_calls(void **state)
{
        pid_t victim, hostile;

        if (users_cannot_run())
                skip();
        victim = users_begin(VICTIM, answers_late);
        eventually(table->ready == 1);
        hostile = users_begin(HOSTILE, calls_again_and_again);
        eventually(table->ready == 2);
        print_message("calls of one user that wait at a name: %d\n", (int)table->value[0]);
        assert_in_range(table->value[0], 1, 32);
        users_run(BYSTANDER, calls_once);
        users_wait(victim);
        users_wait(hostile);
}

/* ---- a caller that may not have one more channel ---- */

static int two_channels_each(void **state)
{
        return users_setup_with("[limits]\nemulated_channels = 2\n");
}

/* One of himself to himself is all. */
static int calls_with_no_channel_left(void)
{
        int listener = listen_at_door(), c = hostile_client(), fd;
        struct wire_in in;
        uint32_t port;

        must(attach(&port) == 0);
        fd = call(port, HOSTILE);
        must(accept_call(c, port, hear_call(listener)) == HOSTILE);
        must(hostile_recv(fd, &in, USERS_PATIENCE_MS) == 0 && in.msg.err == 0);
        fd = call(port, VICTIM);
        in_step(hostile_client());
        table->ready = 2;
        must(hostile_recv(fd, &in, USERS_PATIENCE_MS) == 0 && in.msg.err == -EDQUOT);
        return 0;
}

static int accepts_once(void)
{
        int listener = listen_at_door(), c = hostile_client();
        uint32_t port;

        must(attach(&port) == 0);
        table->ready = 1;
        must_eventually(table->done == 1);
        must(accept_call(c, port, hear_call(listener)) == BYSTANDER);
        return 0;
}

static void anothers_limit_is_no_error_of_who_accepts(void **state)
{
        pid_t victim, hostile;

        if (users_cannot_run())
                skip();
        victim = users_begin(VICTIM, accepts_once);
        eventually(table->ready == 1);
        hostile = users_begin(HOSTILE, calls_with_no_channel_left);
        eventually(table->ready == 2);
        users_run(BYSTANDER, calls_once);
        users_wait(victim);
        users_wait(hostile);
}

/* ---- memory ---- */

static bool add_sent(void *arg, const struct unetd_status_item *item)
{
        if (item->kind == UNETD_S_EMUL)
                *(uint64_t *)arg += item->emul.sent;
        return true;
}

static uint64_t taken(void)
{
        struct unetd_client c = {.pid = 0};
        uint64_t n = 0;

        must(unetd_open(&c, UNETD_NO_START) == 0);
        must(unetd_status(&c, add_sent, &n) == 0);
        unetd_close(&c);
        return n;
}

static int fills_frames(void)
{
        int fd = unet_emul_listen("self", 0), sent = 0;
        uint32_t from, to;
        struct unet_ep *a, *b;
        pid_t pid;

        must(fd >= 0);
        pid = fork();
        must(pid >= 0);
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                must(unet_ep_open(&(struct unet_ep_opts){.rx_slots = 64}, &b) == 0);
                must(unet_emul_accept(b, fd, USERS_PATIENCE_MS * 1000000ll, &to) == 0);
                pause();
        }
        must(unet_ep_open(&(struct unet_ep_opts){.rx_slots = 64}, &a) == 0);
        must(unet_emul_connect(a, "self", USERS_PATIENCE_MS * 1000000ll, &from) == 0);
        for (int i = 0; i < MESSAGES; i++) {
                struct unet_send m = {.chan = from, .nfrags = 1, .frag = {{0, MESSAGE}}};

                while ((sent = unet_ep_send(a, &m, 1)) == 0 || sent == -EAGAIN)
                        usleep(1000);
                must(sent == 1);
        }
        must_eventually(taken() == MESSAGES);
        table->ready = 1;
        must_eventually(table->done == 1);
        kill(pid, SIGKILL);
        return 0;
}

static long shared_kb(pid_t pid)
{
        char path[64], line[128];
        long kb = -1;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
        f = fopen(path, "re");
        assert_non_null(f);
        while (fgets(line, sizeof line, f) != NULL)
                sscanf(line, "RssShmem: %ld", &kb);
        fclose(f);
        assert_true(kb >= 0);
        return kb;
}

static void an_endpoint_takes_so_much_of_unetd(void **state)
{
        pid_t hostile;
        long before;

        if (users_cannot_run())
                skip();
        before = shared_kb(users_broker());
        hostile = users_begin(HOSTILE, fills_frames);
        eventually(table->ready == 1);
        print_message("two endpoints, all frames to one of them full: %ld KB of unetd's memory\n",
                      shared_kb(users_broker()) - before);
        assert_in_range(shared_kb(users_broker()) - before, 1024, 8 * 1024);
        table->done = 1;
        users_wait(hostile);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(endpoints_are_left_to_others, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(nobody_fills_anothers_name_with_calls, users_setup,
                                                users_teardown),
                cmocka_unit_test_setup_teardown(anothers_limit_is_no_error_of_who_accepts,
                                                two_channels_each, users_teardown),
                cmocka_unit_test_setup_teardown(an_endpoint_takes_so_much_of_unetd, users_setup,
                                                users_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
