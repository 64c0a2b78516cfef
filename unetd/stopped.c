/* See stopped.h. Inside the client library, too: direct system calls only. */
#include "unetd/stopped.h"

#include <stdio.h>
#include <string.h>

#include "unetd/sys.h"

bool process_is_stopped(int32_t pid)
{
        char path[32], line[128], *state;
        long n;
        int fd;

        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        fd = pid > 0 ? sys_open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (fd < 0)
                return false;
        n = sys_read(fd, line, sizeof line - 1);
        sys_close(fd);
        if (n <= 0)
                return false;
        line[n] = 0;
        state = strrchr(line, ')');     /* behind the name, which may have any character */
        return state != NULL && state[1] == ' ' && strchr("TtZX", state[2] ? state[2] : ' ') != NULL;
}
