/* See plain.h. */
#include "config/plain.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Beside the newline, and the zero that inih puts behind it. */
#define LINE_BYTES (INI_MAX_LINE - 2)

static const char *wrong_in(FILE *f, int *line)
{
        int c, before = 0, length = 0;

        *line = 1;
        for (long at = 0; (c = getc(f)) != EOF; at++, before = c) {
                if (at == CONFIG_SIZE_MAX)
                        return "the file is larger than 1 MB";
                if (c == '\0')
                        return "a zero byte: this is no text";
                if (before == '\r' && c != '\n')
                        return "a carriage return inside a line";
                length = c == '\n' ? 0 : length + 1;
                if (length > LINE_BYTES)
                        return "the line is too long";
                *line += c == '\n';
        }
        return before == '\r' ? "a carriage return inside a line" : NULL;
}

/* Directories are refused by who reads them; /dev/null is as good as an empty file. */
static bool is_file(const struct stat *st)
{
        return S_ISREG(st->st_mode) || S_ISDIR(st->st_mode) ||
               (S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3));
}

int config_plain(const char *path, int *line, const char **why)
{
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), err;
        struct stat st;
        FILE *f;

        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) == 0 && !is_file(&st)) {
                close(fd);
                *line = 0;
                *why = "this is no file, but a pipe or a device";
                return -EINVAL;
        }
        f = fdopen(fd, "r");
        if (f == NULL) {
                err = -errno;
                close(fd);
                return err;
        }
        errno = 0;
        *why = wrong_in(f, line);
        err = ferror(f) ? -(errno != 0 ? errno : EIO) : *why != NULL ? -EINVAL : 0;
        fclose(f);
        return err;
}
