/* The bell's descriptors: what a ring is, to whom it goes, and what their owner or a peer can do
 * to them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memfd.h"
#include "unet/bell_fd.h"
#include "tests/unit.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

static int bell, ringer;

static int setup(void **state)
{
        signal(SIGPIPE, SIG_DFL); /* a ring raises none */
        bell = bell_make();
        ringer = bell_ringer(bell);
        bell_caller = bell_caller_new();
        return bell >= 0 && ringer >= 0 && bell_caller >= 0 ? 0 : -1;
}

static int teardown(void **state)
{
        close(bell);
        close(ringer);
        close(bell_caller);
        return 0;
}

static bool rung(void)
{
        struct pollfd p = {.fd = bell, .events = POLLIN};

        return poll(&p, 1, 0) == 1;
}

static void a_ring_stays_until_it_is_taken(void **state)
{
        assert_false(rung());
        assert_false(bell_drain(bell));
        bell_ring(ringer);
        assert_true(rung());
        assert_true(bell_drain(bell));
        assert_false(rung());
}

/* Whatever is rung besides. */
static void who_hears_a_ring_knows_whether_a_quiet_channel_is_meant(void **state)
{
        bell_ring(ringer);
        assert_false(bell_hear(bell, true));
        bell_ring(ringer);
        bell_ring(ringer | BELL_QUIET);
        bell_ring(ringer);
        assert_false(bell_hear(bell, false));
        assert_true(bell_hear(bell, true));
        assert_false(rung());
        assert_false(bell_hear(bell, true));
}

/* The queue is full, and what is rung then is lost. */
static void a_quiet_channel_is_heard_among_many_rings(void **state)
{
        for (int i = 0; i < 12; i++)
                bell_ring(ringer);
        bell_ring(ringer | BELL_QUIET);
        assert_true(bell_hear(bell, true));
        bell_drain(bell);
        bell_ring(ringer);
        assert_false(bell_hear(bell, true));
}

static void who_takes_rings_never_waits(void **state)
{
        assert_int_equal(fcntl(bell, F_SETFL, 0), 0);
        bell_ring(ringer);
        assert_true(bell_drain(bell));
        assert_false(bell_take(bell));
        assert_false(bell_drain(bell));
}

static void who_rings_never_waits(void **state)
{
        for (int i = 0; i < 1000; i++)
                bell_ring(ringer);
        assert_true(rung());
        while (rung())
                assert_true(bell_drain(bell));
}

static void each_has_a_ringer_of_his_own(void **state)
{
        int other = bell_ringer(bell);

        assert_true(bell_is_ringer(other, bell) && bell_is_ringer(ringer, bell));
        assert_int_equal(fcntl(ringer, F_SETFL, 0), 0);
        assert_true(fcntl(other, F_GETFL) & O_NONBLOCK);
        bell_ring(other);
        assert_true(rung());
        close(other);
}

static void a_dead_bell_raises_no_signal(void **state)
{
        close(bell);
        bell_ring(ringer);
        bell_ring(ringer);
        assert_int_equal(write(ringer, "", 1), -1);
        bell = -1;
}

static void a_bell_that_is_shut_raises_no_signal(void **state)
{
        assert_int_equal(shutdown(bell, SHUT_RDWR), 0);
        bell_ring(ringer);
        assert_int_equal(write(ringer, "", 1), -1);
        assert_int_equal(errno, EPIPE);
}

static void no_other_kind_is_a_bell(void **state)
{
        struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "/tmp/unet-bell-test"};
        int pair[2], p[2], named = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0),
                           stream = socket(AF_UNIX, SOCK_STREAM, 0);

        assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), 0);
        assert_int_equal(pipe2(p, O_NONBLOCK), 0);
        unlink(un.sun_path);
        assert_int_equal(bind(named, (struct sockaddr *)&un, sizeof un), 0);
        unlink(un.sun_path);
        assert_int_equal(bell_ringer(named), -EINVAL);   /* a path is looked up */
        assert_int_equal(bell_ringer(pair[0]), -EINVAL); /* no name */
        assert_int_equal(bell_ringer(stream), -EINVAL);
        assert_int_equal(bell_ringer(p[0]), -EINVAL);
        assert_int_equal(bell_ringer(-1), -EINVAL);
        assert_false(bell_is_ringer(pair[0], bell));
        assert_false(bell_is_ringer(p[1], bell));
        assert_false(bell_is_ringer(ringer, ringer));
        close(pair[0]), close(pair[1]), close(p[0]), close(p[1]), close(named), close(stream);
}

/* 0: it went well there; 2: there are no namespaces here. */
static int elsewhere(int (*what)(void))
{
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
                _exit(unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 ? 2 : what());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static int rings(void)
{
        return write(ringer, "", 1) == 1 ? 0 : 1;
}

/* Its name may be another's there. */
static int makes_one(void)
{
        int theirs = bell_make();

        return bell_ringer(bell) == -EXDEV && bell_ringer(theirs) >= 0 ? 0 : 1;
}

static void a_ringer_is_good_in_every_network_namespace(void **state)
{
        int r = elsewhere(rings);

        if (r == 2) {
                print_message("skipped: no network namespaces here\n");
                skip();
        }
        assert_int_equal(r, 0);
        assert_true(rung());
        assert_int_equal(elsewhere(makes_one), 0);
}

/* ---- by name ---- */

static int named(void)
{
        int name = bell_named(ringer);

        assert_true(bell_is_named(name));
        assert_false(bell_is_named(ringer) || bell_is_named(-1));
        return name;
}

static void a_name_rings_without_a_ringer(void **state)
{
        int name = named();

        close(ringer);
        ringer = -1;
        assert_true(bell_ring(name));
        assert_false(bell_hear(bell, true));
        assert_true(bell_ring(name | BELL_QUIET));
        assert_true(bell_hear(bell, true));
        assert_false(rung());
        ringer = bell_unnamed(name);
        assert_true(bell_is_ringer(ringer, bell));
}

static void a_name_answers_while_its_bell_is_there(void **state)
{
        int name = named(), copy = dup(bell);

        assert_true(bell_answers(name));
        close(bell);
        assert_true(bell_answers(name) && bell_ring(name));
        bell = copy;
        assert_true(rung()); /* and the question was none */
        bell_drain(bell);
        assert_true(bell_answers(name) && !rung());
        close(bell);
        bell = -1;
        assert_false(bell_answers(name));
        assert_true(bell_ring(name)); /* there is nobody to be rung otherwise */
        assert_true(bell_unnamed(name) < 0);
}

#define DEAF 100 /* more rings than a caller has room for stay in their queues */

static int deaf[DEAF]; /* bells that nobody reads */

static void use_up_the_caller(void)
{
        for (int i = 0; i < DEAF; i++) {
                deaf[i] = bell_make();
                int r = bell_ringer(deaf[i]), of = bell_named(r);
                close(r);
                for (int k = 0; k < 20; k++)
                        assert_true(bell_ring(of));
        }
}

static void close_the_deaf(void)
{
        for (int i = 0; i < DEAF; i++)
                close(deaf[i]);
}

/* By who does not read, or by who spoils it, as a child of another user may. */
static void a_caller_that_is_used_up_is_renewed(void **state)
{
        int name = named(), number = bell_caller;

        use_up_the_caller();
        assert_true(bell_ring(name) && rung());
        bell_drain(bell);
        assert_int_equal(shutdown(bell_caller, SHUT_RDWR), 0);
        assert_true(bell_ring(name) && rung());
        assert_int_equal(bell_caller, number);
        assert_true(fcntl(bell_caller, F_GETFD) & FD_CLOEXEC);
        close_the_deaf();
}

/* Where the kernel puts nothing in its place. */
static void a_caller_above_the_soft_limit_rings_when_it_is_used_up(void **state)
{
        int name = named(), high = fcntl(bell_caller, F_DUPFD_CLOEXEC, 400);
        struct rlimit was, low;

        close(bell_caller);
        bell_caller = high;
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
        low = (struct rlimit){300, was.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        use_up_the_caller();
        assert_true(bell_ring(name) && rung());
        bell_drain(bell);
        assert_int_equal(shutdown(bell_caller, SHUT_RDWR), 0);
        assert_true(bell_ring(name) && rung());
        bell_drain(bell);
        assert_true(bell_ring(name) && rung());
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
        close_the_deaf();
}

static void a_bell_that_is_shut_or_full_has_been_rung(void **state)
{
        int name = named();

        for (int i = 0; i < 1000; i++)
                assert_true(bell_ring(name));
        assert_int_equal(shutdown(bell, SHUT_RDWR), 0);
        assert_true(bell_ring(name));
}

/* Names that users chose, and the empty one. */
static void only_a_name_of_the_kernels_is_rung(void **state)
{
        const struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "\0unet-bell-test-name"};
        int other = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0), r,
            alone = socket(AF_UNIX, SOCK_DGRAM, 0);

        assert_int_equal(bind(other, (const struct sockaddr *)&un, sizeof un), 0);
        r = bell_ringer(other);
        assert_true(r >= 0);
        assert_int_equal(bell_named(r), -1);
        assert_int_equal(bell_named(alone), -1);
        assert_int_equal(bell_named(-1), -1);
        close(other), close(r), close(alone);
}

static int theirs_has_no_name(void)
{
        int theirs = bell_make(), there = bell_ringer(theirs), here = bell_caller;

        if (there < 0 || bell_named(there) != -1 || !bell_is_named(bell_named(ringer)))
                return 1;
        /* It goes on from there, but another in its place would call there. */
        if (!bell_ring(bell_named(ringer)) || shutdown(here, SHUT_RDWR) != 0)
                return 1;
        return bell_ring(bell_named(ringer)) ? 1 : 0;
}

static void names_are_of_the_callers_network_namespace(void **state)
{
        int r = elsewhere(theirs_has_no_name);

        if (r == 2) {
                print_message("skipped: no network namespaces here\n");
                skip();
        }
        assert_int_equal(r, 0);
        assert_true(rung());
}

/* ---- descriptors in a ring ---- */

static int send_rights(int sock, int fd)
{
        char ctl[CMSG_SPACE(sizeof fd)] = {0};
        struct iovec iov = {"", 1};
        struct msghdr m = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof ctl};

        *CMSG_FIRSTHDR(&m) = (struct cmsghdr){
                .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof fd);
        return sendmsg(sock, &m, 0) == 1 ? 0 : -errno;
}

static void a_bell_refuses_descriptors(void **state)
{
        int no = 0;

        if (setsockopt(bell, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no) != 0) {
                print_message("skipped: Linux 6.16 has SO_PASSRIGHTS\n");
                skip();
        }
        assert_int_equal(send_rights(ringer, 0), -EPERM);
        assert_false(rung());
}

static int came[8], ncame;

static void closes(const int *fds, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                came[ncame++] = fds[i];
}

/* As with an older kernel: they are for somebody else to close. */
static void descriptors_that_come_are_handed_on(void **state)
{
        int yes = 1, p[2];
        char byte;

        ncame = 0;
        setsockopt(bell, SOL_SOCKET, SO_PASSRIGHTS, &yes, sizeof yes);
        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        assert_int_equal(send_rights(ringer, p[1]), 0);
        bell_ring(ringer);
        assert_true(bell_drain_rights(bell, closes));
        assert_int_equal(ncame, 1);
        assert_int_equal(send_rights(ringer, p[1]), 0);
        close(p[1]);
        bell_close(bell, closes);
        bell = -1;
        assert_int_equal(ncame, 2);
        close(came[0]), close(came[1]);
        assert_int_equal(read(p[0], &byte, 1), 0);
        close(p[0]);
}

/* Who would keep it open with what he put in there. */
static void nothing_is_sent_to_a_ringer(void **state)
{
        struct sockaddr_un un = {.sun_family = AF_UNIX};
        socklen_t len = sizeof un;

        assert_int_equal(bind(ringer, (struct sockaddr *)&un, sizeof un.sun_family), 0);
        assert_int_equal(getsockname(ringer, (struct sockaddr *)&un, &len), 0);
        assert_int_equal(
                sendto(bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&un, len), -1);
        assert_int_equal(errno, EPIPE);
}

/* ---- the page's lock ---- */

static void the_page_is_held_until_the_last_copy_is_closed(void **state)
{
        int page = unet_memfd_make_sealed("test-bell", 4096), peers = unet_memfd_reader(page), copy;
        struct flock all = {.l_type = F_RDLCK};

        assert_true(page >= 0 && peers >= 0);
        assert_false(bell_is_held(peers));
        assert_int_equal(bell_hold(page), 0);
        assert_true(bell_is_held(peers));
        assert_int_equal(fcntl(peers, F_OFD_SETLK, &all), -1); /* a peer has no part in it */
        copy = dup(page);
        close(page);
        assert_true(bell_is_held(peers));
        close(copy);
        assert_false(bell_is_held(peers));
        close(peers);
}

#define t(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                t(a_ring_stays_until_it_is_taken),
                t(who_rings_never_waits),
                t(who_hears_a_ring_knows_whether_a_quiet_channel_is_meant),
                t(a_quiet_channel_is_heard_among_many_rings),
                t(who_takes_rings_never_waits),
                t(each_has_a_ringer_of_his_own),
                t(a_dead_bell_raises_no_signal),
                t(a_bell_that_is_shut_raises_no_signal),
                t(no_other_kind_is_a_bell),
                t(a_ringer_is_good_in_every_network_namespace),
                t(a_name_rings_without_a_ringer),
                t(a_name_answers_while_its_bell_is_there),
                t(a_caller_that_is_used_up_is_renewed),
                t(a_caller_above_the_soft_limit_rings_when_it_is_used_up),
                t(a_bell_that_is_shut_or_full_has_been_rung),
                t(only_a_name_of_the_kernels_is_rung),
                t(names_are_of_the_callers_network_namespace),
                t(a_bell_refuses_descriptors),
                t(descriptors_that_come_are_handed_on),
                t(nothing_is_sent_to_a_ringer),
                t(the_page_is_held_until_the_last_copy_is_closed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
