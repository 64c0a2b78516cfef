/* See leftovers.h. Root alone makes files there (is_roots() in main.c). */
#include "unetd/daemon/leftovers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "unetd/client/name.h"

#define BEGINS 60             /* seconds: a unetd that binds listens within that */
#define KEPT   (24 * 60 * 60) /* of leases, after the end of their unetd */
#define LEASES ".leases"
#define ASIDE  "-" /* about to be removed */

enum kind { OTHER, SOCKET, NEW_SOCKET, LEASE_FILE };

/* Takes ".digits" off the end. */
static bool cut_number(char *name)
{
        char *dot = strrchr(name, '.');

        if (!dot || dot[1] == '\0' || strspn(dot + 1, "0123456789") != strlen(dot + 1))
                return false;
        *dot = '\0';
        return true;
}

static bool cut_end(char *name, const char *end)
{
        size_t n = strlen(name), m = strlen(end);

        if (n <= m || strcmp(name + n - m, end) != 0)
                return false;
        name[n - m] = '\0';
        return true;
}

static enum kind kind_of(const char *file)
{
        enum kind k = SOCKET;
        char name[256];

        snprintf(name, sizeof name, "%s", file);
        if (cut_end(name, LEASES))
                k = LEASE_FILE;
        else if (cut_end(name, "+") || cut_end(name, ASIDE))
                k = NEW_SOCKET;
        return cut_number(name) && cut_number(name) && unetd_domain_valid(name) ? k : OTHER;
}

/* Returns true if it is certain that nobody listens there. */
static bool is_dead(const char *path)
{
        struct sockaddr_un sun = {.sun_family = AF_UNIX};
        int fd, err;

        if (strlen(path) >= sizeof sun.sun_path)
                return false;
        strcpy(sun.sun_path, path);
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return false;
        err = connect(fd, (struct sockaddr *)&sun, sizeof sun) < 0 ? errno : 0;
        close(fd);
        return err == ECONNREFUSED;
}

static bool is_of_type(const char *path, mode_t type, time_t age)
{
        struct stat st;

        return lstat(path, &st) == 0 && (st.st_mode & S_IFMT) == type &&
               time(NULL) - st.st_mtime >= age;
}

static bool is_left(const char *path, time_t age)
{
        return is_of_type(path, S_IFSOCK, age) && is_dead(path);
}

/* A unetd that begins may have put its own in the place meanwhile: that goes back. */
static void remove_socket(const char *path, time_t age)
{
        char aside[sizeof(struct sockaddr_un)];

        if (snprintf(aside, sizeof aside, "%s" ASIDE, path) >= (int)sizeof aside ||
            rename(path, aside) < 0)
                return;
        if (is_left(aside, age))
                unlink(aside);
        else
                rename(aside, path);
}

void leftovers_keep(const char *leases)
{
        utimensat(AT_FDCWD, leases, NULL, AT_SYMLINK_NOFOLLOW);
}

static void look_at(const char *path, enum kind k)
{
        char socket[sizeof(struct sockaddr_un)], leases[sizeof socket + sizeof LEASES];

        switch (k) {
        case SOCKET:
                if (!is_left(path, 0))
                        return;
                snprintf(leases, sizeof leases, "%s" LEASES, path);
                leftovers_keep(leases);
                remove_socket(path, 0);
                return;
        case NEW_SOCKET:
                if (is_left(path, BEGINS))
                        remove_socket(path, BEGINS);
                return;
        case LEASE_FILE:
                snprintf(socket, sizeof socket, "%s", path);
                if (cut_end(socket, LEASES) && access(socket, F_OK) < 0 &&
                    is_of_type(path, S_IFREG, KEPT))
                        unlink(path);
                return;
        case OTHER:
                return;
        }
}

static bool is_own(const char *path, const char *own)
{
        size_t n = strlen(own);

        return strncmp(path, own, n) == 0 && (path[n] < '0' || path[n] > '9');
}

void leftovers_remove(const char *dir, const char *own)
{
        char path[sizeof(struct sockaddr_un)];
        DIR *d = opendir(dir);
        const struct dirent *e;

        while (d && (e = readdir(d)))
                if (snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path &&
                    !is_own(path, own))
                        look_at(path, kind_of(e->d_name));
        if (d)
                closedir(d);
}
