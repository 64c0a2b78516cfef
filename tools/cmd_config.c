/* unet config: whether the config file is right, and what holds. */
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "tools/command.h"
#include "tools/show.h"

static void add_row(void *arg, const char *section, const char *key, const char *value,
                    const char *text)
{
        json_array_append_new(arg,
                              json_pack("{so ss so ss}", "section", show_string(section), "key",
                                        key, "value", show_string(value), "meaning", text));
}

static int show_settings(const struct unetd_config *c, bool json)
{
        static const struct show_column cols[] = {
                {"section", "section", SHOW_PLAIN},
                {"key", "key", SHOW_PLAIN},
                {"value", "value", SHOW_PLAIN},
                {"meaning", "meaning", SHOW_PLAIN},
        };
        json_t *rows = json_array();

        config_each(c, add_row, rows);
        show_rows(rows, cols, ARRAY_LEN(cols), json);
        return EXIT_DONE;
}

static int check(const char *path, bool found, bool json)
{
        if (json)
                show_json(json_pack("{sb so}", "valid", 1, "file",
                                    found ? show_string(path) : json_null()));
        else if (found)
                printf("%s is right\n", path);
        else
                printf("there is no config file; the defaults hold\n");
        return EXIT_DONE;
}

static int run(const struct command *cmd, int argc, char **argv)
{
        struct unetd_config c = UNETD_CONFIG_DEFAULT;
        struct config_error err;
        char path[CONFIG_PATH_MAX];
        bool json = false, found;
        const char *verb;

        while (command_option(cmd, argc, argv, NULL, &json) != -1)
                continue;
        verb = optind < argc ? argv[optind++] : "";
        while (command_option(cmd, argc, argv, NULL, &json) != -1)
                continue;
        if ((strcmp(verb, "check") != 0 && strcmp(verb, "show") != 0) || argc - optind > 1)
                return command_usage(cmd, "check or show?");
        found = optind < argc || config_find(path);
        if (optind < argc)
                snprintf(path, sizeof path, "%s", argv[optind]);
        if (found && config_read(path, &c, &err) != 0) {
                if (json)
                        show_json(json_pack("{sb so si so}", "valid", 0, "file",
                                            show_string(err.path), "line", err.line, "error",
                                            show_string(err.text)));
                config_complain(&err);
                return EXIT_NOTHING;
        }
        return verb[0] == 'c' ? check(path, found, json) : show_settings(&c, json);
}

const struct command cmd_config = {
        "config",
        "check|show [--json] [FILE]",
        "checks the config file, or shows the settings that hold",
        "  check    says whether the file is right; if not, file, line and what is wrong\n"
        "  show     every key, its value, what it means\n"
        "  --json   as JSON\n",
        run,
};
