/* The lines "[section]" of a file, as inih takes them: blanks before, anything behind
 * the bracket. */
#include "config/sections.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BOM "\xEF\xBB\xBF" /* some editors begin a file with it */

/* The name in `line`, if it is such a line. */
static const char *name_in(char *line, char *name, size_t room)
{
        char *end;

        line += strspn(line, " \t\r\n\v\f");
        end = *line == '[' ? strchr(line, ']') : NULL;
        if (end == NULL)
                return NULL;
        *end = '\0';
        snprintf(name, room, "%s", line + 1);
        return name;
}

static int each_line(FILE *f, bool (*fn)(void *arg, const char *section, int line), void *arg)
{
        char *line = NULL, name[64];
        size_t room = 0;
        bool more = true;

        errno = 0;
        for (int n = 1; more && getline(&line, &room, f) >= 0; n++) {
                char *start =
                        n == 1 && strncmp(line, BOM, strlen(BOM)) == 0 ? line + strlen(BOM) : line;
                if (name_in(start, name, sizeof name) != NULL)
                        more = fn(arg, name, n);
        }
        free(line);
        return ferror(f) ? -EIO : -errno;
}

int config_sections(const char *path, bool (*fn)(void *arg, const char *section, int line),
                    void *arg)
{
        FILE *f = fopen(path, "re");
        struct stat st;
        int err;

        if (f == NULL)
                return -errno;
        if (fstat(fileno(f), &st) < 0)
                err = -errno;
        else
                err = S_ISDIR(st.st_mode) ? -EISDIR : each_line(f, fn, arg);
        fclose(f);
        return err;
}
