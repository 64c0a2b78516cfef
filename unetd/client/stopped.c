/* See stopped.h. Inside the client library, too: direct system calls only. */
#include "unetd/client/stopped.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unetd/client/sys.h"

/* The beginning of /proc/PID/`what`, or nothing. */
static void read_of(int32_t pid, const char *what, char line[128])
{
        char path[48];
        long n;
        int fd;

        line[0] = 0;
        snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
        fd = pid > 0 ? sys_open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (fd < 0)
                return;
        n = sys_read(fd, line, 127);
        sys_close(fd);
        line[n > 0 ? n : 0] = 0;
}

static bool state_is_one_of(int32_t pid, const char *states)
{
        char line[128];
        const char *state;

        read_of(pid, "stat", line);
        state = strrchr(line, ')'); /* behind the name, which may have any character */
        return state != NULL && state[1] == ' ' && state[2] != 0 &&
               strchr(states, state[2]) != NULL;
}

bool process_is_stopped(int32_t pid)
{
        return state_is_one_of(pid, "TtZX");
}

bool process_is_frozen(int32_t pid, uint64_t *ran)
{
        uint64_t before = *ran;
        char line[128];

        read_of(pid, "schedstat", line);
        *ran = strtoull(line, NULL, 10);
        return before != 0 && *ran == before && state_is_one_of(pid, "SD");
}
