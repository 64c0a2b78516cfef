/*
 * unet why: which sockets are accelerated, which are not, and why. Two ways to ask: run a program
 * and listen to what the shim says about each decision (cmd_why.c), or look at a process that runs
 * (why_pid.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/command.h"
#include "tools/show.h"
#include "tools/why_pid.h"

#define LINE_MAX_ 4096

static const struct show_column columns[] = {
        {"pid", "pid", SHOW_PLAIN},        {"fd", "fd", SHOW_PLAIN},
        {"protocol", "proto", SHOW_PLAIN}, {"local", "local", SHOW_PLAIN},
        {"peer", "peer", SHOW_PLAIN},      {"carried", "carried by", SHOW_PLAIN},
        {"why", "why", SHOW_PLAIN},
};
/* What the shim says has no addresses. */
static const struct show_column columns_run[] = {
        {"pid", "pid", SHOW_PLAIN},        {"fd", "fd", SHOW_PLAIN},
        {"protocol", "proto", SHOW_PLAIN}, {"carried", "carried by", SHOW_PLAIN},
        {"why", "why", SHOW_PLAIN},
};

/* "unet: pid 12 fd 5 tcp: ours: reason" of UNET_LOG (sock/shim/log.c) becomes a row; anything else
 * is the program's. */
static bool decision_row(const char *line, json_t *rows)
{
        char proto[8], carried[16], why[256];
        int pid, fd;

        if (sscanf(line, "unet: pid %d fd %d %7[a-z]: %15[a-z]: %255[^\n]", &pid, &fd, proto,
                   carried, why) != 5)
                return false;
        json_array_append_new(
                rows, json_pack("{si si ss ss so}", "pid", pid, "fd", fd, "protocol", proto,
                                "carried", strcmp(carried, "ours") == 0 ? "u-net" : carried, "why",
                                strcmp(why, "-") == 0 ? json_null() : show_text(why, sizeof why)));
        return true;
}

static bool any_carried_by_us(const json_t *rows)
{
        json_t *row;
        size_t i;

        json_array_foreach ((json_t *)(uintptr_t)rows, i, row) {
                const char *c = json_string_value(json_object_get(row, "carried"));

                if (c && (strcmp(c, "u-net") == 0 || strcmp(c, "both") == 0))
                        return true;
        }
        return false;
}

/* Runs the program with its decisions logged into the pipe. */
static _Noreturn void become_program(int pipe_w, bool stdout_is_ours, char **argv)
{
        if (stdout_is_ours)
                dup2(STDERR_FILENO, STDOUT_FILENO);
        dup2(pipe_w, STDERR_FILENO);
        close(pipe_w);
        setenv("UNET_LOG", "1", 1);
        _exit(run_program(argv));
}

static int ask_program(char **argv, bool json)
{
        json_t *rows = json_array();
        char line[LINE_MAX_];
        int fd[2], status;
        bool ours;
        pid_t pid;
        FILE *f;

        if (pipe(fd) != 0 || (pid = fork()) < 0)
                return command_fail("%s", strerror(errno));
        if (pid == 0) {
                close(fd[0]);
                become_program(fd[1], json, argv);
        }
        close(fd[1]);
        f = fdopen(fd[0], "r");
        while (f && fgets(line, sizeof line, f))
                if (!decision_row(line, rows))
                        fputs(line, stderr);
        waitpid(pid, &status, 0);
        ours = any_carried_by_us(rows);
        if (json_array_size(rows) == 0 && !json)
                fprintf(stderr, "unet: the program opened no TCP or UDP socket (or is linked "
                                "statically)\n");
        show_rows(rows, columns_run, ARRAY_LEN(columns_run), json);
        return ours ? EXIT_DONE : EXIT_NOTHING;
}

static int ask_process(const struct command *cmd, const char *text, bool json)
{
        json_t *rows;
        char *end;
        long pid = strtol(text, &end, 10);
        char why[WHY_TEXT];
        bool ours, whole;

        if (end == text || *end || pid < 1 || pid > INT32_MAX)
                return command_usage(cmd, "not a process: %s", text);
        rows = json_array();
        whole = why_pid((int)pid, rows, why);
        ours = any_carried_by_us(rows);
        show_rows(rows, columns, ARRAY_LEN(columns), json);
        if (!whole)
                return command_fail("process %ld: %s", pid, why);
        return ours ? EXIT_DONE : EXIT_NOTHING;
}

static int run(const struct command *cmd, int argc, char **argv)
{
        static const struct option extra[] = {{"pid", required_argument, NULL, 'p'},
                                              {NULL, 0, NULL, 0}};
        const char *pid = NULL;
        bool json = false;
        int opt;

        while ((opt = command_option(cmd, argc, argv, extra, &json)) != -1)
                if (opt == 'p')
                        pid = optarg;
        if ((pid != NULL) == (optind < argc))
                return command_usage(cmd, pid ? "--pid or a program, not both"
                                              : "which program or process?");
        return pid ? ask_process(cmd, pid, json) : ask_program(argv + optind, json);
}

const struct command cmd_why = {
        "why",
        "[--json] PROGRAM [ARGUMENT...] | [--json] --pid PID",
        "which sockets are accelerated, which are not, and why",
        "  PROGRAM    runs it, and shows what was decided for each socket when it has ended\n"
        "  --pid PID  looks at a process that runs\n"
        "  --json     as JSON; the program's own output goes to standard error\n"
        "\n"
        "Exit status: 0 something was accelerated, 1 nothing was.\n",
        run,
};
