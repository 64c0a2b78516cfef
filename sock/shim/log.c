/* UNET_LOG=1: every socket's decision on standard error, a line each, for `unet why` and
 * for people. */
#include "sock/shim/process.h"
#include "sock/shim/shim.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * What is standard error: as it was when the program began, or what it has put there by dup2()
 * since: the last few, for a child of vfork() puts its own there in our memory. Another file that
 * only got the number, standard error being closed, is none; and a connection at it is somebody's,
 * who has asked for no log.
 */
static struct known {
        dev_t dev;
        ino_t ino;
} known[4];
static unsigned nknown; /* so far: those that came last are there */

static bool is_inet(int fd)
{
        int domain = 0;
        socklen_t len = sizeof(domain);

        return sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
               domain != AF_UNIX;
}

static bool is_known(const struct stat *sb)
{
        for (unsigned i = 0; i < MIN(nknown, (unsigned)ARRAY_LEN(known)); i++)
                if (known[i].dev == sb->st_dev && known[i].ino == sb->st_ino)
                        return true;
        return false;
}

void log_to(void)
{
        struct stat sb;

        if (shim.log < 1 || sys2(SYS_fstat, STDERR_FILENO, &sb) < 0 || is_inet(STDERR_FILENO) ||
            is_known(&sb))
                return;
        known[nknown++ % ARRAY_LEN(known)] = (struct known){sb.st_dev, sb.st_ino};
}

static bool is_standard_error(void)
{
        struct stat sb;

        return sys2(SYS_fstat, STDERR_FILENO, &sb) == 0 && is_known(&sb);
}

/* Before the program opens anything. */
__attribute__((constructor)) static void log_begin(void)
{
        const char *level = getenv("UNET_LOG");

        shim.log = level ? atoi(level) : 0;
        log_to();
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

/* A row of `unet why`. */
static void log_line(int fd, const char *what, const char *mode, const char *why)
{
        char line[256];
        int n;

        if (likely(shim.log < 1) || !is_standard_error())
                return;
        n = snprintf(line, sizeof(line), "unet: pid %d fd %d %s: %s: %s\n", (int)getpid(), fd, what,
                     mode, why ? why : "-");
        if (n > 0)
                sys3(SYS_write, STDERR_FILENO, line, MIN((size_t)n, sizeof(line) - 1));
}

void log_decision(const struct file *f)
{
        log_line(f->kfd, f->kind == USOCK_UDP ? "udp" : "tcp", mode_name(f), f->why);
}

void log_fork_refused(void)
{
        log_line(-1, "fork", "refused", "the stack has no slot for one more process");
}
