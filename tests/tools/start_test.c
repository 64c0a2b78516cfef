/* What `unet run` adds to the start of a program that makes no socket, counted: system calls and
 * libraries, of `unet` itself and of the program. bench/start measures the time. */
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/unit.h"

#define PROGRAM "/bin/true"
#define IMAGES  2

/* Some twice what there is; libpcap alone has ten libraries. */
#define LAUNCHER_CALLS     200
#define LAUNCHER_LIBRARIES 6 /* jansson, inih, ncursesw, tinfo, libm, libc */
/* One library is mapped, and nothing is done there. */
#define SHIM_CALLS 15

struct image {
        int calls, libraries;
};

/* A program and what it executes in its place. */
struct start {
        struct image image[IMAGES];
        int n;
        bool opens_library; /* in the call that is under way */
};

static bool is_library(pid_t pid, uint64_t path)
{
        char text[256] = "";
        struct iovec to = {text, sizeof text - 1}, from = {(void *)(uintptr_t)path, to.iov_len};

        /* Up to the end of a page, when the next one is not there. */
        if (process_vm_readv(pid, &to, 1, &from, 1, 0) < 0) {
                from.iov_len = 4096 - path % 4096;
                process_vm_readv(pid, &to, 1, &from, 1, 0);
        }
        return strstr(text, "/lib") != NULL && strstr(text, ".so") != NULL;
}

static void count(struct start *s, pid_t pid, const struct __ptrace_syscall_info *info)
{
        struct image *now = &s->image[s->n - 1];

        if (info->op == PTRACE_SYSCALL_INFO_ENTRY) {
                s->opens_library =
                        info->entry.nr == SYS_openat && is_library(pid, info->entry.args[1]);
                now->calls++;
        } else if (s->opens_library) {
                now->libraries += !info->exit.is_error;
        }
}

/* Until it ends, well. */
static void follow(struct start *s, pid_t pid)
{
        struct __ptrace_syscall_info info;
        int status;

        for (;;) {
                assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
                assert_int_equal(waitpid(pid, &status, 0), pid);
                if (WIFEXITED(status))
                        break;
                assert_true(WIFSTOPPED(status));
                if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8)) {
                        assert_true(s->n < IMAGES);
                        s->n++;
                } else if (WSTOPSIG(status) == (SIGTRAP | 0x80) && s->n > 0) {
                        assert_true(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) > 0);
                        count(s, pid, &info);
                }
        }
        assert_int_equal(WEXITSTATUS(status), 0);
}

static struct start start(char **argv)
{
        struct start s = {.n = 0};
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
                        _exit(99);
                raise(SIGSTOP);
                execv(argv[0], argv);
                _exit(98);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFSTOPPED(status)) {
                print_message("skipped: ptrace is not allowed here\n");
                skip();
        }
        assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL,
                                PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL),
                         0);
        follow(&s, pid);
        return s;
}

static void a_start_costs_a_few_calls_more(void **state)
{
        char *bare[] = {PROGRAM, NULL}, *over[] = {UNET, "run", PROGRAM, NULL};
        struct start without = start(bare), with = start(over);

        print_message(
                "unet: %d calls, %d libraries; the program: %d and %d, without it %d and %d\n",
                with.image[0].calls, with.image[0].libraries, with.image[1].calls,
                with.image[1].libraries, without.image[0].calls, without.image[0].libraries);
        assert_int_equal(without.n, 1);
        assert_int_equal(with.n, 2);
        assert_in_range(with.image[0].calls, 1, LAUNCHER_CALLS);
        assert_in_range(with.image[0].libraries, 1, LAUNCHER_LIBRARIES);
        assert_int_equal(with.image[1].libraries, without.image[0].libraries + 1);
        assert_in_range(with.image[1].calls, without.image[0].calls,
                        without.image[0].calls + SHIM_CALLS);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_start_costs_a_few_calls_more),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
