/*
 * What a user can hold of his own stack while others ring it: each descriptor that he gave to unetd or got from it is at the end
 * of a splice() that waits for a socket in which nothing comes, locked, and punched full of holes. unetd, and who has a
 * channel to him, must not wait.
 */
#include "tests/users/users.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* ---- holding ---- */

/* An empty connection: who reads from it waits. */
static int silent(void)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        socklen_t len = sizeof a;

        must(bind(listening, (struct sockaddr *)&a, sizeof a) == 0 && listen(listening, 1) == 0);
        must(getsockname(listening, (struct sockaddr *)&a, &len) == 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
        return fd;
}

static void splice_in(int fd)
{
        splice(silent(), NULL, fd, NULL, 1, 0);
}

static void splice_out(int fd)
{
        splice(fd, NULL, silent(), NULL, 1, 0);
}

static void tee_in(int fd)
{
        int p[2];

        must(pipe2(p, O_CLOEXEC) == 0);
        tee(p[0], fd, 1, 0);
}

static void read_it(int fd)
{
        char byte;

        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
        if (recv(fd, &byte, 1, 0) < 0 && errno == ENOTSOCK)
                read(fd, &byte, 1);
}

/* Of what lies in memory. */
static void lock_it(int fd)
{
        struct flock all = {.l_type = F_WRLCK};

        flock(fd, LOCK_EX);
        fcntl(fd, F_OFD_SETLKW, &all);
        pause();
}

static void punch_it(int fd)
{
        while (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20) == 0)
                ;
}

typedef void hold(int fd);
static hold *const holds[] = {splice_in, splice_out, tee_in, read_it, lock_it, punch_it};

struct held {
        hold *how;
        int fd;
        _Atomic int tid;
        _Atomic bool ended;
};

static void *keep_hold(void *arg)
{
        struct held *h = arg;

        h->tid = (int)syscall(SYS_gettid);
        h->how(h->fd);
        h->ended = true;
        return NULL;
}

/* It waits in the kernel, or never will. */
static bool is_in_place(const struct held *h)
{
        char path[64], text[512] = "";
        const char *state;
        int fd, n;

        if (h->ended || h->how == punch_it)
                return true;
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", h->tid);
        fd = h->tid != 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        n = fd < 0 ? 0 : (int)read(fd, text, sizeof text - 1);
        close(fd);
        state = n > 0 ? strrchr(text, ')') : NULL;
        return state != NULL && (state[2] == 'S' || state[2] == 'D');
}

static void hold_all(const int *fds, unsigned n)
{
        static struct held all[ARRAY_LEN(holds) * 32];
        static unsigned used;
        unsigned before = used;
        pthread_t thread;

        for (unsigned i = 0; i < n; i++)
                for (unsigned k = 0; k < ARRAY_LEN(holds); k++) {
                        must(used < ARRAY_LEN(all));
                        all[used] = (struct held){.how = holds[k], .fd = fds[i]};
                        must(pthread_create(&thread, NULL, keep_hold, &all[used]) == 0);
                        used++;
                }
        for (unsigned i = before; i < used; i++)
                must_eventually(is_in_place(&all[i]));
}

/* ---- who holds ---- */

/* When he holds it: before anybody opens a channel to him, or after. */
enum when { BEFORE, AFTER };

/* table->ready: 1: his stack's are held; 2: those of a channel too. */
static int holds_his_own(void)
{
        struct unetd_chan_info info;
        struct hostile_stack st;
        int c, fds[UNETD_CHAN_FDS_MAX], own[UNETD_STACK_FDS];
        unsigned n;

        prctl(PR_SET_DUMPABLE, 1);
        must(hostile_keeper(HOSTILE_ANSWERS) >= 0);
        c = hostile_client();
        must(hostile_stack(c, &st) == 0);
        memcpy(own, &st.fds, sizeof own);
        table->stack = st.id;
        if (table->value[0] == BEFORE)
                hold_all(own, UNETD_STACK_FDS);
        table->ready = 1;
        must_eventually((n = hostile_channel(&info, fds)) > 0);
        if (table->value[0] == AFTER)
                hold_all(own, UNETD_STACK_FDS);
        hold_all(fds, n);
        table->ready = 2;
        pause();
        return 0;
}

/* Opens a channel to him, and rings both who wait for him there. */
static int rings_him(void)
{
        struct unetd_msg open = {.type = UNETD_CHAN_OPEN};
        struct unetd_chan_info info;
        struct hostile_stack st;
        int c, fds[UNETD_CHAN_FDS_MAX], err;
        unsigned n;

        must(hostile_keeper(HOSTILE_ANSWERS) >= 0);
        c = hostile_client();
        must(hostile_stack(c, &st) == 0);
        open.chan = (struct unetd_chan_info){.stack = st.id, .peer_stack = table->stack};
        err = hostile_ask(c, &open, NULL, 0);
        if (err != 0)
                fprintf(stderr, "no channel: %s\n", strerror(-err));
        must(err == 0);
        must_eventually((n = hostile_channel(&info, fds)) > 0);
        must(n == UNETD_CHAN_FDS);
        must_eventually(table->ready == 2);
        for (int i = 0; i < 100; i++) {
                must(write(fds[UNETD_FD_PEER_LEADER], "", 1) == 1 || errno == EAGAIN);
                must(write(fds[UNETD_FD_PEER_KEEPER], "", 1) == 1 || errno == EAGAIN);
        }
        table->done = 1;
        return 0;
}

static pid_t hostile, rings;

static void is_rung(enum when when)
{

        users_victim_start();
        table->value[0] = when;
        hostile = users_begin(HOSTILE, holds_his_own);
        eventually(table->ready == 1);
        rings = users_begin(BYSTANDER, rings_him);
        eventually(table->done);
        users_wait(rings);
        rings = 0;
        users_unetd_answers();
        users_victim_goes_on();
        users_kill(hostile);
        hostile = 0;
        users_unetd_answers();
        users_victim_goes_on();
}

static void a_channel_to_who_holds_his_own(void **state)
{
        if (users_cannot_run())
                skip();
        is_rung(BEFORE);
}

static void who_holds_his_own_is_rung(void **state)
{
        if (users_cannot_run())
                skip();
        is_rung(AFTER);
}

/* Whom they hold ends after them. */
static int teardown(void **state)
{
        if (hostile > 0)
                kill(hostile, SIGKILL);
        if (rings > 0)
                kill(rings, SIGKILL);
        hostile = rings = 0;
        return users_teardown(state);
}

#define t(name) cmocka_unit_test_setup_teardown(name, users_setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                t(a_channel_to_who_holds_his_own),
                t(who_holds_his_own_is_rung),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
