/* What subcommands share: options that all have, usage, complaints. */
#include "tools/command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/show.h"

#define OPTIONS_MAX 16

static bool json_wanted; /* --json was given: what goes wrong is said there too */

int command_option(const struct command *cmd, int argc, char **argv, const struct option *extra,
                   bool *json)
{
        struct option opts[OPTIONS_MAX] = {{"help", no_argument, NULL, 'h'}};
        int n = 1, opt;

        if (json)
                opts[n++] = (struct option){"json", no_argument, NULL, 'j'};
        for (; extra && extra->name && n < OPTIONS_MAX - 1; extra++)
                opts[n++] = *extra;
        while ((opt = getopt_long(argc, argv, json ? "+hj" : "+h", opts, NULL)) == 'j')
                *json = json_wanted = true;
        if (opt == 'h') {
                command_help(cmd);
                exit(EXIT_DONE);
        }
        if (opt == '?') {
                fprintf(stderr, "usage: unet %s %s\n", cmd->name, cmd->synopsis);
                exit(EXIT_USAGE);
        }
        return opt;
}

void command_help(const struct command *cmd)
{
        printf("usage: unet %s %s\n\n%s\n\n%s", cmd->name, cmd->synopsis, cmd->summary, cmd->help);
}

int command_usage(const struct command *cmd, const char *format, ...)
{
        va_list args;

        fprintf(stderr, "unet %s: ", cmd->name);
        va_start(args, format);
        vfprintf(stderr, format, args);
        va_end(args);
        fprintf(stderr, "\nusage: unet %s %s\n", cmd->name, cmd->synopsis);
        return EXIT_USAGE;
}

int command_fail(const char *format, ...)
{
        char text[1024];
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        fprintf(stderr, "unet: %s\n", text);
        if (json_wanted && !show_json_shown())
                show_json(json_pack("{so}", "error", show_string(text)));
        return EXIT_NOTHING;
}

bool command_number(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
        char *end;

        *out = strtoull(text, &end, 10);
        return end != text && !*end && text[0] != '-' && *out >= min && *out <= max;
}

volatile sig_atomic_t command_stopped;

static void on_signal(int sig)
{
        command_stopped = 1;
}

void command_catch_signals(void)
{
        struct sigaction sa = {.sa_handler = on_signal};

        sigaction(SIGINT, &sa, NULL);
        sigaction(SIGTERM, &sa, NULL);
}
