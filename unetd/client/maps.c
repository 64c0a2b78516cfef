/* See maps.h. */
#include "unetd/client/maps.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum answer { MAPS_NOT, MAPS_IT, MAPS_NOTHING, MAPS_UNREADABLE };

static enum answer ask(int32_t pid, int fd)
{
        struct stat sb;
        char path[32], *line = NULL;
        size_t room = 0;
        enum answer a = MAPS_NOTHING;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/maps", pid);
        f = fstat(fd, &sb) == 0 ? fopen(path, "re") : NULL;
        if (!f)
                return MAPS_UNREADABLE;
        while (a != MAPS_IT && getline(&line, &room, f) > 0) {
                unsigned maj, min;
                unsigned long ino;

                a = MAPS_NOT;
                if (sscanf(line, "%*s %*s %*s %x:%x %lu", &maj, &min, &ino) == 3 &&
                    ino == sb.st_ino && maj == major(sb.st_dev) && min == minor(sb.st_dev))
                        a = MAPS_IT;
        }
        free(line);
        fclose(f);
        return a;
}

bool maps_file(int32_t pid, int fd)
{
        return ask(pid, fd) != MAPS_NOT;
}

bool maps_file_unknown(int fd, bool (*known)(void *arg, int32_t pid), void *arg)
{
        DIR *d = opendir("/proc");
        const struct dirent *e;
        bool found = false;

        while (d && !found && (e = readdir(d)) != NULL) {
                int32_t pid = e->d_name[0] >= '1' && e->d_name[0] <= '9' ? atoi(e->d_name) : 0;
                found = pid != 0 && pid != getpid() && !known(arg, pid) && ask(pid, fd) == MAPS_IT;
        }
        if (d)
                closedir(d);
        return found;
}
