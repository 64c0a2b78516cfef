/*
 * A signal that is put off never waits for the end of a sleep (sock/usock_sys.h), at whichever
 * instruction before the system call it arrives: the thread goes step by step, and at each step of
 * its way there is one.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "sock/usock_process.h"
#include "sock/usock_sys.h"
#include "tests/unit.h"

#if defined(__x86_64__)

#define TRAP_FLAG 0x100
#define STEPS_MAX 10000u

static const uint8_t SYSCALL[] = {0x0f, 0x05};

static volatile unsigned steps, put_off_at;
static volatile bool at_the_call; /* the signal came where the system call is next */

static void begin_steps(int sig, siginfo_t *info, void *uc)
{
        ((ucontext_t *)uc)->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void step(int sig, siginfo_t *info, void *uc)
{
        greg_t *reg = ((ucontext_t *)uc)->uc_mcontext.gregs;

        if (++steps != put_off_at)
                return;
        at_the_call = memcmp((const void *)reg[REG_RIP], SYSCALL, sizeof SYSCALL) == 0;
        reg[REG_EFL] &= ~TRAP_FLAG;
        usock_tls.pending = 1;
        usock_sys_ends(uc);
}

static void handle(int sig, void (*handler)(int, siginfo_t *, void *))
{
        struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};

        assert_int_equal(sigaction(sig, &sa, NULL), 0);
}

/* Reads from a socket that has a byte; the signal comes after so many steps. */
static long read_with_signal_at(int fd, unsigned step)
{
        char byte;
        long r;

        steps = 0;
        put_off_at = step;
        usock_tls.pending = 0;
        raise(SIGUSR1);
        r = usock_sys6(SYS_recvfrom, fd, (long)&byte, 1, MSG_DONTWAIT, 0, 0);
        usock_tls.pending = 0;
        return r;
}

static void a_signal_at_each_step_is_before_the_call(void **state)
{
        int fd[2];
        unsigned n = 0;

        assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, fd), 0);
        assert_int_equal(send(fd[0], "", 1, 0), 1);
        handle(SIGUSR1, begin_steps);
        handle(SIGTRAP, step);
        do {
                assert_true(++n < STEPS_MAX);
                assert_int_equal(read_with_signal_at(fd[1], n), -EINTR);
                assert_int_equal(steps, n);
        } while (!at_the_call);
        print_message("%u steps\n", n);
        assert_int_equal(recv(fd[1], (char[1]){0}, 1, MSG_DONTWAIT), 1); /* nobody has read it */
        close(fd[0]);
        close(fd[1]);
}

static void without_a_signal_the_call_is_made(void **state)
{
        int fd[2];
        char byte = 0;

        assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, fd), 0);
        assert_int_equal(send(fd[0], "x", 1, 0), 1);
        assert_int_equal(usock_sys6(SYS_recvfrom, fd[1], (long)&byte, 1, 0, 0, 0), 1);
        assert_int_equal(byte, 'x');
        assert_int_equal(usock_sys6(SYS_recvfrom, fd[1], (long)&byte, 1, MSG_DONTWAIT, 0, 0),
                         -EAGAIN);
        close(fd[0]);
        close(fd[1]);
}

/* The kernel would begin the call again after a handler with SA_RESTART. */
static void ends_it(int sig, siginfo_t *info, void *uc)
{
        usock_tls.pending = 1;
        usock_sys_ends(uc);
}

static void a_signal_in_the_call_ends_it(void **state)
{
        struct sigaction sa = {.sa_sigaction = ends_it, .sa_flags = SA_SIGINFO | SA_RESTART};
        int fd[2];
        char byte;

        assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, fd), 0);
        assert_int_equal(sigaction(SIGALRM, &sa, NULL), 0);
        alarm(1);
        assert_int_equal(usock_sys6(SYS_recvfrom, fd[1], (long)&byte, 1, 0, 0, 0), -EINTR);
        assert_true(usock_tls.pending);
        usock_tls.pending = 0;
        close(fd[0]);
        close(fd[1]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_signal_at_each_step_is_before_the_call),
                cmocka_unit_test(without_a_signal_the_call_is_made),
                cmocka_unit_test(a_signal_in_the_call_ends_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
        puts("skipped: the steps to a system call are known for x86-64 alone");
        return 77;
}

#endif
