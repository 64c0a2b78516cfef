/* Where the file is, and how a complaint about it reads. */
#include "config/config.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* dir/unet.conf or dir/sub/unet.conf, if it can be read. */
static bool try_dir(char path[CONFIG_PATH_MAX], const char *dir, const char *sub)
{
        if (!dir || dir[0] != '/')
                return false;
        return snprintf(path, CONFIG_PATH_MAX, "%s%s/unet.conf", dir, sub) < CONFIG_PATH_MAX &&
               access(path, F_OK) == 0;
}

static const char *home(void)
{
        const char *dir = secure_getenv("HOME");
        const struct passwd *pw = dir ? NULL : getpwuid(geteuid());

        return dir ? dir : pw ? pw->pw_dir : NULL;
}

bool config_find(char path[CONFIG_PATH_MAX])
{
        const char *named = secure_getenv("UNET_CONFIG"), *xdg = secure_getenv("XDG_CONFIG_HOME");

        if (named) {
                snprintf(path, CONFIG_PATH_MAX, "%s", named);
                return *named != '\0';
        }
        return (xdg && *xdg ? try_dir(path, xdg, "") : try_dir(path, home(), "/.config")) ||
               try_dir(path, "/etc", "") || try_dir(path, "/etc", "/unet");
}

int config_load(struct unetd_config *c, struct config_error *err)
{
        char path[CONFIG_PATH_MAX];

        return config_find(path) ? config_read(path, c, err) : 0;
}

void config_complain(const struct config_error *err)
{
        if (err->line > 0)
                fprintf(stderr, "%s:%d: %s\n", err->path, err->line, err->text);
        else
                fprintf(stderr, "%s: %s\n", err->path, err->text);
}
