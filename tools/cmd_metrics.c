/* unet metrics: the counters of unet stat as OpenMetrics text. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/command.h"
#include "tools/metrics.h"
#include "tools/sample.h"
#include "tools/serve.h"
#include "unetd/client/client.h"

#define TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

static uint64_t most = 64; /* stacks of each user */

static bool note_daemon(void *arg, const struct unetd_status_item *item)
{
        struct metrics_daemon *d = arg;

        if (item->kind == UNETD_S_DAEMON) {
                d->clients = item->clients;
                d->stacks = item->stacks;
                d->channels = item->chans;
                d->listeners = item->listeners;
        }
        return item->kind <= UNETD_S_DAEMON;
}

static void ask_daemon(struct metrics_daemon *d)
{
        struct unetd_client c = {0};

        if (unetd_open(&c, UNETD_NO_START) != 0)
                return;
        d->up = unetd_status(&c, note_daemon, d) == 0;
        unetd_close(&c);
}

static void page(FILE *out)
{
        struct metrics_daemon d = {.up = false};
        json_t *rows = json_array();

        ask_daemon(&d);
        if (d.up)
                stacks_rows(sample_add, NULL, rows);
        metrics_write(out, &d, rows, (unsigned)most);
        json_decref(rows);
}

/* A reader of the file sees all of the old one or all of the new one. */
static int write_file(const char *path)
{
        char *temporary = NULL;
        int fd, ok = false;
        FILE *out;

        if (asprintf(&temporary, "%s.XXXXXX", path) < 0)
                return command_fail("%s", strerror(errno));
        fd = mkstemp(temporary);
        out = fd >= 0 ? fdopen(fd, "w") : NULL;
        if (out) {
                page(out);
                ok = fchmod(fd, 0644) == 0 && fflush(out) == 0 && !ferror(out);
                ok = fclose(out) == 0 && ok && rename(temporary, path) == 0;
        }
        if (!ok) {
                int err = errno;

                if (fd >= 0)
                        unlink(temporary);
                free(temporary);
                return command_fail("%s: %s", path, strerror(err));
        }
        free(temporary);
        return EXIT_DONE;
}

static int run(const struct command *cmd, int argc, char **argv)
{
        static const struct option extra[] = {{"output", required_argument, NULL, 'o'},
                                              {"listen", required_argument, NULL, 'l'},
                                              {"stacks", required_argument, NULL, 's'},
                                              {NULL, 0, NULL, 0}};
        const char *output = NULL, *where = NULL, *why;
        int opt;

        while ((opt = command_option(cmd, argc, argv, extra, NULL)) != -1) {
                if (opt == 'o')
                        output = optarg;
                if (opt == 'l')
                        where = optarg;
                if (opt == 's' && !command_number(optarg, 1, 4096, &most))
                        return command_usage(cmd, "not a number from 1 to 4096: %s", optarg);
        }
        if (optind < argc)
                return command_usage(cmd, "no arguments are taken");
        if (output && where)
                return command_usage(cmd, "--output or --listen, not both");
        if (output)
                return write_file(output);
        if (!where) {
                page(stdout);
                return EXIT_DONE;
        }
        why = serve_page(where, TYPE, page);
        return why ? command_fail("%s: %s", where, why) : EXIT_DONE;
}

const struct command cmd_metrics = {
        "metrics",
        "[--output FILE | --listen ADDRESS] [--stacks N]",
        "counters of stacks as OpenMetrics text, for Prometheus and the like",
        "  --output FILE     into a file, which is replaced as a whole (node_exporter's textfile "
        "collector)\n"
        "  --listen ADDRESS  over HTTP, until it is ended: PORT (of 127.0.0.1), ADDRESS:PORT, or "
        "the path of a Unix socket\n"
        "  --stacks N        of so many stacks of each user at most (64)\n"
        "\n"
        "There is something to show also when there is no stack, and no unetd: unet_up 0.\n",
        run,
};
