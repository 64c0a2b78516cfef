/* serve_page() ends at SIGTERM, whenever a child of it ends: SIGCHLD comes after each instruction
 * of the handler that SIGTERM has run. */
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/serve.h"
#include "tests/unit.h"

#define INSTRUCTIONS 100 /* of the handler there are fewer */
#define HANGS_S      120

static char path[64];

static void page(FILE *out)
{
}

/* Serves until it is stopped, and is traced; one that cannot be stopped is ended. 0: there is no
 * tracing here. */
static pid_t start_server(void)
{
        pid_t pid = fork();
        int status;

        if (pid == 0) {
                if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
                        _exit(99);
                alarm(HANGS_S);
                raise(SIGSTOP);
                _exit(serve_page(path, "text/plain", page) != NULL);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFSTOPPED(status))
                return 0;
        assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD), 0);
        return pid;
}

/* Until it waits for connections. */
static void run_to_its_wait(pid_t pid)
{
        struct __ptrace_syscall_info info;
        int status;

        do {
                assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
                assert_int_equal(waitpid(pid, &status, 0), pid);
                assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80));
                assert_true(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) > 0);
        } while (info.op != PTRACE_SYSCALL_INFO_ENTRY || info.entry.nr != SYS_ppoll);
}

/* Sends a signal and lets the process run until it is about to take it. */
static void signal_it(pid_t pid, int sig)
{
        int status;

        assert_int_equal(kill(pid, sig), 0);
        assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == sig);
}

/* Its exit status, or minus the signal that it died of. */
static int run_to_its_end(pid_t pid, int sig)
{
        int status;

        for (;;) {
                assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, sig), 0);
                assert_int_equal(waitpid(pid, &status, 0), pid);
                if (WIFEXITED(status))
                        return WEXITSTATUS(status);
                if (WIFSIGNALED(status))
                        return -WTERMSIG(status);
                sig = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        }
}

static int end_of_one_with_sigchld_after(int instructions)
{
        pid_t pid = start_server();
        int status;

        if (pid == 0) {
                print_message("skipped: ptrace is not allowed here\n");
                skip();
        }
        run_to_its_wait(pid);
        signal_it(pid, SIGTERM);
        for (int i = 0; i < instructions; i++) {
                assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, i == 0 ? SIGTERM : 0), 0);
                assert_int_equal(waitpid(pid, &status, 0), pid);
                if (WIFEXITED(status))
                        return WEXITSTATUS(status);
        }
        kill(pid, SIGCHLD);
        return run_to_its_end(pid, instructions == 0 ? SIGTERM : 0);
}

static void sigterm_is_not_lost_when_a_child_ends(void **state)
{
        for (int i = 0; i < INSTRUCTIONS; i++)
                assert_int_equal(end_of_one_with_sigchld_after(i), 0);
}

static void make_path(void)
{
        snprintf(path, sizeof path, "/tmp/unet-serve-test-%d", getpid());
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(sigterm_is_not_lost_when_a_child_ends),
        };

        make_path();
        return cmocka_run_group_tests(tests, NULL, NULL);
}
