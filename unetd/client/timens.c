/* See timens.h. */
#include "unetd/client/timens.h"

#include <stdlib.h>
#include <string.h>

#include "unetd/client/sys.h"

struct timens timens;

/* proc(5): "<clock> <seconds> <nanoseconds>", a line each. It is about the namespace of children to
 * come, which is ours but in a process between unshare() and fork(). */
static nstime ahead(const char *text, const char *clock)
{
        const char *line = strstr(text, clock);
        char *end;
        nstime s;

        if (line == NULL)
                return 0;
        s = strtoll(line + strlen(clock), &end, 10);
        return s * NS_PER_S + strtoll(end, NULL, 10);
}

void timens_find(void)
{
        char text[256];
        int fd = sys_open("/proc/self/timens_offsets", O_RDONLY | O_CLOEXEC);
        long n = fd >= 0 ? sys_read(fd, text, sizeof text - 1) : -1;

        if (fd >= 0)
                sys_close(fd);
        if (n <= 0)
                return;
        text[n] = 0;
        timens.monotonic = ahead(text, "monotonic");
        timens.boot = ahead(text, "boottime");
}
