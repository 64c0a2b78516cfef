#include <fcntl.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "unetd/loop/log.h"

static int log_fd = -1;

void log_open(const char *file, bool foreground)
{
        if (file && *file)
                log_fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        else if (foreground)
                log_fd = STDERR_FILENO;
}

void log_line(const char *fmt, ...)
{
        char line[512];
        struct timespec ts;
        struct tm tm;
        size_t n;
        va_list ap;

        if (log_fd < 0)
                return;
        clock_gettime(CLOCK_REALTIME, &ts);
        gmtime_r(&ts.tv_sec, &tm);
        n = strftime(line, sizeof line, "%FT%TZ ", &tm);
        n += (size_t)snprintf(line + n, sizeof line - n, "%s[%d] ", program_invocation_short_name,
                              (int)getpid());
        va_start(ap, fmt);
        n += (size_t)vsnprintf(line + n, sizeof line - n, fmt, ap);
        va_end(ap);
        n = MIN(n, sizeof line - 1);
        line[n++] = '\n';
        if (write(log_fd, line, n) < 0)
                return; /* a full disk does not stop the daemon */
}
