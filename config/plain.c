/* See plain.h. */
#include "config/plain.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>

#define LINE_BYTES (INI_MAX_LINE - 2)   /* beside the newline, and the zero that inih puts behind it */

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

int config_plain(const char *path, int *line, const char **why)
{
        FILE *f = fopen(path, "re");
        int err;

        if (f == NULL)
                return -errno;
        errno = 0;
        *why = wrong_in(f, line);
        err = ferror(f) ? -(errno != 0 ? errno : EIO) : *why != NULL ? -EINVAL : 0;
        fclose(f);
        return err;
}
