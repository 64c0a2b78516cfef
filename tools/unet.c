/* The `unet` command: runs programs over the user-level stack, and looks at stacks from outside. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/command.h"

static const struct command *const commands[] = {
        &cmd_run,   &cmd_ss, &cmd_top, &cmd_why,   &cmd_stat, &cmd_metrics, &cmd_status, &cmd_pcap,
        &cmd_trace, &cmd_if, &cmd_arp, &cmd_route, &cmd_ping, &cmd_config,  &cmd_am,
};

static void help(FILE *out)
{
        fputs("usage: unet COMMAND [OPTION...] [ARGUMENT...]\n\n", out);
        for (size_t i = 0; i < ARRAY_LEN(commands); i++)
                fprintf(out, "  %-8s %s\n", commands[i]->name, commands[i]->summary);
        fputs("\nunet COMMAND --help says more. Exit status: 0 done, 1 failed or nothing to show, "
              "2 usage.\n",
              out);
}

static const struct command *find(const char *name)
{
        for (size_t i = 0; i < ARRAY_LEN(commands); i++)
                if (strcmp(commands[i]->name, name) == 0)
                        return commands[i];
        return NULL;
}

/* A program started without one of the three streams must not get a connection of ours in its
 * place, and print into it. A descriptor that fails as a closed one does takes the place. */
static void hold_streams(void)
{
        for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
                if (fcntl(fd, F_GETFD) < 0)
                        open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

/* What could not be written was not shown. */
static int shown(int status)
{
        if (fflush(stdout) == 0 && !ferror(stdout))
                return status;
        fprintf(stderr, "unet: standard output: %s\n", strerror(errno));
        return status == EXIT_DONE ? EXIT_NOTHING : status;
}

int main(int argc, char **argv)
{
        const struct command *cmd = argc > 1 ? find(argv[1]) : NULL;

        if (cmd && cmd != &cmd_run)
                hold_streams();
        if (cmd)
                return shown(cmd->run(cmd, argc - 1, argv + 1));
        if (argc > 1 && strcmp(argv[1], "help") == 0 && argc > 2 && find(argv[2])) {
                command_help(find(argv[2]));
                return EXIT_DONE;
        }
        if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
                help(stdout);
                return EXIT_DONE;
        }
        if (argc > 1 && strcmp(argv[1], "--version") == 0) {
                printf("unet %s\n", UNET_TOOLS_VERSION);
                return EXIT_DONE;
        }
        if (argc > 1)
                fprintf(stderr, "unet: no command \"%s\"\n", argv[1]);
        help(stderr);
        return EXIT_USAGE;
}
