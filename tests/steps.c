/* Death at each store. See steps.h. */
#include "tests/steps.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/unit.h"

void *steps_memory(size_t bytes)
{
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        assert_ptr_not_equal(p, MAP_FAILED);
        return p;
}

void steps_free(void *mem, size_t bytes)
{
        munmap(mem, bytes);
}

/* The child, stopped before it begins; 0: it may not be traced. */
static pid_t start_child(void *mem, void (*act)(void *mem))
{
        pid_t pid = fork();
        int status;

        if (pid == 0) {
                if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
                        _exit(99);
                raise(SIGSTOP);
                act(mem);
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WIFSTOPPED(status) ? pid : 0;
}

/* One instruction; false when the child has ended, well. */
static int step(pid_t pid)
{
        int status;

        assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status))
                assert_int_equal(WEXITSTATUS(status), 0);
        else
                assert_int_equal(WSTOPSIG(status), SIGTRAP);
        return WIFSTOPPED(status);
}

void steps_die(void *mem, size_t bytes, void (*act)(void *mem), void (*after)(void *copy))
{
        void *last = steps_memory(bytes), *copy = steps_memory(bytes);
        unsigned steps = 0, deaths = 0;
        pid_t pid;

        memcpy(last, mem, bytes);
        pid = start_child(mem, act);
        if (pid == 0) {
                print_message("skipped: ptrace is not allowed here\n");
                skip();
        }
        for (; step(pid); steps++) {
                if (memcmp(last, mem, bytes) == 0)
                        continue;
                deaths++;
                memcpy(last, mem, bytes);
                memcpy(copy, mem, bytes);
                after(copy);
        }
        print_message("%u instructions, died after %u\n", steps, deaths);
        assert_true(deaths > 0);
        steps_free(last, bytes);
        steps_free(copy, bytes);
}
