/*
 * A subcommand of `unet`: one file each, one line in the table of unet.c.
 *
 * Exit status is the same for all: 0 done; 1 it failed, or there was nothing to show; 2 wrong
 * usage.
 */
#ifndef TOOLS_COMMAND_H
#define TOOLS_COMMAND_H

#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum { EXIT_DONE = 0, EXIT_NOTHING = 1, EXIT_USAGE = 2 };

struct command {
        const char *name;
        const char *synopsis; /* after the name */
        const char *summary;  /* one line, for `unet --help` */
        const char *help;     /* the options, one a line, for `unet NAME --help` */
        int (*run)(const struct command *cmd, int argc, char **argv);
};

extern const struct command cmd_am, cmd_run, cmd_ss, cmd_why, cmd_stat, cmd_status, cmd_pcap,
        cmd_trace, cmd_config, cmd_if, cmd_arp, cmd_route, cmd_ping, cmd_top, cmd_metrics;

/*
 * The next option, as getopt_long() gives it, or -1. --help is answered and ends the program here,
 * and so does an option that is unknown. --json sets *json; `json` NULL: the command has no such
 * option. Options end at the first argument that is none.
 */
int command_option(const struct command *cmd, int argc, char **argv, const struct option *extra,
                   bool *json);
/* Complains, says how the command is used, returns EXIT_USAGE. */
int command_usage(const struct command *cmd, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
void command_help(const struct command *cmd);
/* "unet: ..." on standard error, and {"error": "..."} where --json was asked for and nothing shown
 * yet, so that who parses the output always can. Returns EXIT_NOTHING. */
int command_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A number of that range, and nothing behind it. */
bool command_number(const char *text, uint64_t min, uint64_t max, uint64_t *out);
/* From now on SIGINT and SIGTERM end what the command does, and not the command. */
void command_catch_signals(void);
extern volatile sig_atomic_t command_stopped; /* one came */

/* Executes a program with the shim in front of its libc (cmd_run.c). Returns an exit status when
 * it cannot. */
int run_program(char **argv);

#endif
