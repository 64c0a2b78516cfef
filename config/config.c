/* Which keys there are, what values they take, and where the file is. */
#include "config/config.h"

#include <errno.h>
#include <ini.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum kind { NUMBER, SIGNED, TEXT };

struct key {
        const char *section, *name, *text;
        enum kind kind;
        size_t off;
        long min, max;                  /* of numbers; TEXT: max is the size of the buffer */
};

#define COUNT(section, name, field, min, max, text)                                                              \
        {section, name, text, NUMBER, offsetof(struct unetd_config, field), min, max}

static const struct key keys[] = {
        {"daemon", "idle", "seconds without clients and stacks after which unetd leaves; -1: never", SIGNED,
         offsetof(struct unetd_config, idle_s), -1, 86400},
        {"daemon", "log", "file that unetd writes what happens to; empty: none", TEXT,
         offsetof(struct unetd_config, log), 0, sizeof(((struct unetd_config *)0)->log)},
        COUNT("daemon", "lease_ports", lease_ports, 1, 4096, "client ports that a stack gets at once"),
        COUNT("daemon", "queue", queue_max, 1, 65536, "replies kept for a client that does not read them"),
        COUNT("limits", "clients", per_uid.clients, 1, 1048576, "connections to unetd of one user"),
        COUNT("limits", "stacks", per_uid.stacks, 1, 1048576, "stacks of one user"),
        COUNT("limits", "processes", per_uid.procs, 1, 1048576, "processes in all stacks of one user"),
        COUNT("limits", "channels", per_uid.chans, 1, 1048576, "channels of one user"),
        COUNT("limits", "channels_per_stack", per_uid.chans_per_stack, 1, 1024, "channels of one stack"),
        COUNT("limits", "listeners", per_uid.listeners, 1, 12288, "listening ports of one user"),
        COUNT("limits", "holds", per_uid.holds, 1, 65536, "ports held in the kernel for one user"),
        COUNT("limits", "leases", per_uid.leases, 1, 65536, "blocks of client ports of one user"),
        COUNT("limits", "emulated", per_uid.emul_endpoints, 1, 1023, "emulated endpoints of one user"),
        COUNT("limits", "emulated_names", per_uid.emul_names, 1, 65536, "names that emulated endpoints listen on"),
        COUNT("limits", "emulated_channels", per_uid.emul_chans, 2, 4096, "ends of channels between emulated endpoints"),
        COUNT("limits", "emulated_waiting_kb", per_uid.emul_kb, 64, 4194304,
              "KB of messages of emulated endpoints that wait for their receivers"),
        COUNT("limits", "emulated_waiting", per_uid.emul_msgs, 1, 1048576, "such messages with more than a descriptor"),
        COUNT("memory", "large_frames", geom.count[FRAME_LARGE], 16, 65536,
              "64 KB frames that a channel can send from, each way"),
        COUNT("memory", "small_frames", geom.count[FRAME_SMALL], 64, 1048576,
              "2 KB frames that a channel can send from, each way"),
};

/* ---- one line ---- */

struct reading {
        struct unetd_config *c;
        struct config_error *err;
        uint64_t seen;                  /* bit of each key */
        bool failed;
};
static_assert(ARRAY_LEN(keys) <= 64, "one bit each in struct reading");

/* Keeps the first complaint; inih reports the line of the same one. */
static int complain(struct reading *r, const char *format, const char *a, const char *b)
{
        if (!r->failed)
                snprintf(r->err->text, sizeof r->err->text, format, a, b);
        r->failed = true;
        return 0;
}

static const struct key *find_key(const char *section, const char *name)
{
        for (size_t i = 0; i < ARRAY_LEN(keys); i++)
                if (strcmp(keys[i].section, section) == 0 && strcmp(keys[i].name, name) == 0)
                        return &keys[i];
        return NULL;
}

static bool known_section(const char *section)
{
        for (size_t i = 0; i < ARRAY_LEN(keys); i++)
                if (strcmp(keys[i].section, section) == 0)
                        return true;
        return false;
}

static int set_text(struct reading *r, const struct key *k, const char *value)
{
        if (strlen(value) >= (size_t)k->max)
                return complain(r, "the value of \"%s\" is too long%s", k->name, "");
        memcpy((char *)r->c + k->off, value, strlen(value) + 1);
        return 1;
}

static int set_number(struct reading *r, const struct key *k, const char *value)
{
        char range[64], *end;
        long v;

        errno = 0;
        v = strtol(value, &end, 10);
        if (end == value || *end || errno != 0 || v < k->min || v > k->max) {
                snprintf(range, sizeof range, "%ld to %ld", k->min, k->max);
                return complain(r, "\"%s\" wants a number from %s", k->name, range);
        }
        *(int32_t *)((char *)r->c + k->off) = (int32_t)v;
        return 1;
}

static int one_line(void *arg, const char *section, const char *name, const char *value)
{
        struct reading *r = arg;
        const struct key *k = find_key(section, name);

        if (!k && *section == '\0')
                return complain(r, "\"%s\" stands before any [section]%s", name, "");
        if (!k && !known_section(section))
                return complain(r, "there is no section [%s]%s", section, "");
        if (!k)
                return complain(r, "unknown key \"%s\" in [%s]", name, section);
        if (r->seen >> (k - keys) & 1)
                return complain(r, "\"%s\" is set twice%s", name, "");
        r->seen |= (uint64_t)1 << (k - keys);
        return k->kind == TEXT ? set_text(r, k, value) : set_number(r, k, value);
}

/* ---- the file ---- */

int config_read(const char *path, struct unetd_config *c, struct config_error *err)
{
        struct unetd_config copy = *c;
        struct reading r = {.c = &copy, .err = err};
        int line;

        *err = (struct config_error){0};
        snprintf(err->path, sizeof err->path, "%s", path);
        errno = 0;
        line = ini_parse(path, one_line, &r);
        if (line < 0) {
                int why = errno ? errno : ENOMEM;
                snprintf(err->text, sizeof err->text, "%s", strerror(why));
                return -why;
        }
        if (line > 0) {
                err->line = line;
                if (!r.failed)
                        snprintf(err->text, sizeof err->text, "not \"key = value\" and not \"[section]\"");
                return -EINVAL;
        }
        *c = copy;
        return 0;
}

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
               try_dir(path, "/etc", "");
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

void config_each(const struct unetd_config *c,
                 void (*row)(void *arg, const char *section, const char *key, const char *value, const char *text),
                 void *arg)
{
        for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
                const char *at = (const char *)c + keys[i].off;
                char number[16];

                snprintf(number, sizeof number, "%d", keys[i].kind == TEXT ? 0 : *(const int32_t *)at);
                row(arg, keys[i].section, keys[i].name, keys[i].kind == TEXT ? at : number, keys[i].text);
        }
}
