/* unet pcap: writes the packets of live stacks (taps.h) to a file that tcpdump and tshark read. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/command.h"
#include "tools/show.h"
#include "tools/taps.h"
#include "unet/wrap/pcap_file.h"
#include "unetd/client/timens.h"

#define SCAN_EVERY (20 * NS_PER_MS)

struct session {
        struct taps *taps;
        struct pcap_file *file;
        nstime to_wall;                /* added to the stacks' clock */
        uint64_t packets, max_packets; /* 0: no bound */
};

struct settings {
        struct taps_want want;
        const char *path;
        nstime until;
        uint64_t max_packets;
        bool json;
};

static nstime clock_ns(clockid_t id)
{
        struct timespec ts;

        clock_gettime(id, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

/* ---- the file ---- */

static bool open_file(struct session *s, const char *path)
{
        int err = pcap_file_open(path, CAPTURE_SNAP_MAX, &s->file);

        if (err != 0)
                command_fail("%s: %s", path, strerror(-err));
        return err == 0;
}

static bool write_packet(void *arg, const struct capture_rec *rec, const uint8_t *bytes)
{
        struct session *s = arg;

        pcap_file_packet(s->file, rec->at + s->to_wall, bytes, rec->kept, rec->len);
        return ++s->packets != s->max_packets;
}

/* ---- watching ---- */

/* Until the time is over, enough packets came, ^C, or the program (pid, 0: none) has ended and
 * nothing follows. Returns its exit status. */
static int watch(struct session *s, nstime until, pid_t pid)
{
        nstime next_scan = 0;
        int status = 0;
        bool ended = false;

        while (!command_stopped && !taps_done(s->taps) && clock_ns(CLOCK_MONOTONIC) < until) {
                bool any = taps_drain(s->taps);

                if (clock_ns(CLOCK_MONOTONIC) >= next_scan) {
                        if (ended && !any)
                                break;
                        if (pid != 0 && !ended && waitpid(pid, &status, WNOHANG) == pid)
                                ended = true;
                        taps_scan(s->taps); /* after that: all stacks of a program that has ended */
                        next_scan = clock_ns(CLOCK_MONOTONIC) + SCAN_EVERY;
                }
                if (!any)
                        usleep(1000);
        }
        if (pid != 0 && !ended) {
                kill(pid, SIGINT);
                waitpid(pid, &status, 0);
        }
        taps_flush(s->taps);
        return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_NOTHING;
}

/* The totals, on `out` as JSON or on standard error for people. */
static int sum_up(const struct session *s, bool json, FILE *out)
{
        json_t *rows = json_array(), *all;
        struct taps_total total;
        uint64_t missed = 0;

        for (uint32_t i = 0; taps_total(s->taps, i, &total); i++) {
                missed += total.missed;
                json_array_append_new(rows,
                                      json_pack("{si sI sI sI}", "stack", total.stack, "in",
                                                (json_int_t)total.in, "out", (json_int_t)total.out,
                                                "missed", (json_int_t)total.missed));
        }
        if (!json)
                fprintf(stderr, "unet: %llu packets of %zu stacks, %llu missed\n",
                        (unsigned long long)s->packets, json_array_size(rows),
                        (unsigned long long)missed);
        all = json_pack("{sI sI so}", "packets", (json_int_t)s->packets, "missed",
                        (json_int_t)missed, "stacks", rows);
        if (json) {
                json_dumpf(all, out, JSON_INDENT(1));
                fputc('\n', out);
        }
        json_decref(all);
        return s->packets > 0 ? EXIT_DONE : EXIT_NOTHING;
}

/* ---- the command ---- */

static pid_t start_program(char **argv, uint32_t snap)
{
        char number[16];
        pid_t pid;

        snprintf(number, sizeof number, "%u", snap);
        setenv("UNET_CAPTURE", number, 1);
        pid = fork();
        if (pid == 0)
                _exit(run_program(argv));
        unsetenv("UNET_CAPTURE");
        return pid;
}

static bool options(const struct command *cmd, int argc, char **argv, struct settings *set)
{
        static const struct option extra[] = {{"write", required_argument, NULL, 'w'},
                                              {"stack", required_argument, NULL, 's'},
                                              {"direction", required_argument, NULL, 'd'},
                                              {"count", required_argument, NULL, 'c'},
                                              {"snap", required_argument, NULL, 'n'},
                                              {"seconds", required_argument, NULL, 't'},
                                              {NULL, 0, NULL, 0}};
        const char *direction = NULL;
        uint64_t v = 1;
        int opt;

        while ((opt = command_option(cmd, argc, argv, extra, &set->json)) != -1) {
                if (opt == 'w')
                        set->path = optarg;
                else if (opt == 'd')
                        direction = optarg;
                else if (!command_number(optarg, 1, UINT64_MAX, &v))
                        return command_usage(cmd, "not a number above 0: %s", optarg), false;
                if (opt == 's')
                        set->want.stack = (uint32_t)v;
                if (opt == 'c')
                        set->max_packets = v;
                if (opt == 'n')
                        set->want.snap = (uint32_t)MIN(v, CAPTURE_SNAP_MAX);
                if (opt == 't')
                        set->until = clock_ns(CLOCK_MONOTONIC) +
                                     (nstime)MIN(v, 1000000000ull) * NS_PER_S;
        }
        /* Between stacks of one host each packet would be there twice. */
        if (!direction)
                direction = set->want.stack ? "both" : "out";
        set->want.in = strcmp(direction, "in") == 0 || strcmp(direction, "both") == 0;
        set->want.out = strcmp(direction, "out") == 0 || strcmp(direction, "both") == 0;
        if (!set->want.in && !set->want.out)
                command_usage(cmd, "--direction is in, out or both");
        return set->want.in || set->want.out;
}

static int run(const struct command *cmd, int argc, char **argv)
{
        struct settings set = {.want = {.snap = CAPTURE_SNAP_MAX, .packet = write_packet},
                               .path = "-",
                               .until = NSTIME_NEVER};
        struct session s = {0};
        int status = 0, r, err;
        pid_t pid = 0;

        if (!options(cmd, argc, argv, &set))
                return EXIT_USAGE;
        if (strcmp(set.path, "-") == 0 && isatty(STDOUT_FILENO))
                return command_usage(
                        cmd, "packets are not for a terminal: give --write FILE, or a pipe");
        if (!open_file(&s, set.path))
                return EXIT_NOTHING;
        s.max_packets = set.max_packets;
        timens_find();
        s.to_wall = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC) + timens.monotonic;
        set.want.arg = &s;
        set.want.tell = optind == argc;
        s.taps = taps_new(&set.want);
        if (!s.taps)
                return command_fail("no memory");
        command_catch_signals();
        if (optind < argc)
                pid = start_program(argv + optind, set.want.snap);
        if (pid >= 0)
                status = watch(&s, set.until, pid);
        else
                command_fail("%s", strerror(errno));
        r = sum_up(&s, set.json, strcmp(set.path, "-") == 0 ? stderr : stdout);
        err = pcap_file_close(s.file);
        if (err != 0) {
                fprintf(stderr, "unet: %s: %s\n", set.path, strerror(-err));
                r = EXIT_NOTHING;
        }
        taps_free(s.taps);
        return status != 0 ? status : r;
}

const struct command cmd_pcap = {
        "pcap",
        "[OPTION...] [PROGRAM [ARGUMENT...]]",
        "writes packets to a file for tcpdump and tshark",
        "  --write FILE      the file; - or none: standard output\n"
        "  --stack N         of one stack, both directions; without it of all, those that are "
        "sent\n"
        "  --direction DIR   in, out or both\n"
        "  --count N         ends after N packets\n"
        "  --seconds N       ends after N seconds; ^C ends it at any time\n"
        "  --snap N          keeps the first N bytes of each packet\n"
        "  --json            what was captured and missed, as JSON\n"
        "  PROGRAM           is run over the user-level stack; the capture ends with it\n"
        "\n"
        "Exit status: the program's, if that is not 0; else 0, or 1 when there was no packet.\n",
        run,
};
