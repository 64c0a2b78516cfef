/* UNET_LOG=1: every socket's decision on standard error, a line each, for `unet why` and for people. */
#include "sock/shim/shim.h"

#include <stdlib.h>
#include <unistd.h>

void log_start(void)
{
        const char *level = getenv("UNET_LOG");

        shim.log = level ? atoi(level) : 0;
}

static const char *mode_name(const struct file *f)
{
        switch (f->mode) {
        case MODE_TCP:
                return "ours";
        case MODE_LISTEN:
        case MODE_UDP:
                return "both";
        case MODE_KERNEL:
                return "kernel";
        default:
                return "undecided";
        }
}

void log_decision(const struct file *f)
{
        char line[256];
        int n;

        if (likely(shim.log < 1))
                return;
        n = snprintf(line, sizeof(line), "unet: pid %d fd %d %s: %s: %s\n", (int)getpid(), f->kfd,
                     f->kind == USOCK_UDP ? "udp" : "tcp", mode_name(f), f->why ? f->why : "-");
        if (n > 0)
                sys3(SYS_write, STDERR_FILENO, line, MIN((size_t)n, sizeof(line) - 1));
}
