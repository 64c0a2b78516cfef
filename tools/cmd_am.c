/*
 * unet am run: starts the ranks of a job of active messages (<unet/am.h>), gives each its number
 * and a way to every other, passes their output on by lines, and ends the job with its reason when
 * a rank dies.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "tools/am_launch.h"
#include "tools/command.h"

#define BY "ssh -o BatchMode=yes"

/* ---- a rank's process ---- */

static void put_number(const char *name, uint32_t n)
{
        char text[16];

        snprintf(text, sizeof text, "%u", n);
        setenv(name, text, 1);
}

static bool is_ours(const struct launch *l, uint32_t rank)
{
        return rank >= l->first && rank - l->first < l->n;
}

static void hand_sockets(const struct launch *l, uint32_t me)
{
        char text[AM_JOB_MOST * 12], *at = text;

        for (uint32_t i = 0; i < l->ranks; i++) {
                int fd = i == l->first + me || !is_ours(l, i) ? -1 : l->sock[me][i - l->first];
                at += sprintf(at, i + 1 < l->ranks ? "%d," : "%d", fd);
                if (fd >= 0)
                        fcntl(fd, F_SETFD, 0);
        }
        setenv(AM_JOB_SOCKETS, text, 1);
}

static void hand_meeting(const struct launch *l)
{
        char key[2 * AM_KEY + 1], meet[64];

        am_key_write(l->key, key);
        am_address_write(&l->meet, meet, sizeof meet);
        setenv(AM_JOB_KEY, key, 1);
        setenv(AM_JOB_MEET, meet, 1);
}

static void hand_environment(const struct launch *l, uint32_t me)
{
        static const char *const others[] = {AM_JOB_SOCKETS, AM_JOB_NAME, AM_JOB_MEET, AM_JOB_KEY};
        char name[48];

        put_number(AM_JOB_RANK, l->first + me);
        put_number(AM_JOB_RANKS, l->ranks);
        put_number(AM_JOB_NUMBER, l->job);
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
                unsetenv(others[i]);
        if (l->through_unetd) {
                snprintf(name, sizeof name, "am-%d-%x", (int)getppid(), l->job);
                setenv(AM_JOB_NAME, name, 1);
        } else {
                hand_sockets(l, me);
        }
        if (l->part)
                hand_meeting(l);
}

static void become_rank(const struct launch *l, uint32_t me)
{
        int none = l->part ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;

        if (none >= 0)
                dup2(none, STDIN_FILENO);
        hand_environment(l, me);
        execvp(l->program[0], l->program);
        fprintf(stderr, "%s: %s\n", l->program[0], strerror(errno));
}

/* ---- the ways between ranks of this host ---- */

static int make_sockets(struct launch *l)
{
        l->sock = calloc(l->n, sizeof *l->sock);
        if (l->sock == NULL)
                return -ENOMEM;
        for (uint32_t a = 0; a < l->n && !l->through_unetd; a++)
                for (uint32_t b = a + 1; b < l->n; b++) {
                        int s[2];
                        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s) != 0)
                                return -errno;
                        l->sock[a][b] = s[0];
                        l->sock[b][a] = s[1];
                }
        return 0;
}

/* The ranks have them now: a rank that dies hangs up. */
static void close_sockets(struct launch *l)
{
        for (uint32_t a = 0; a < l->n && !l->through_unetd; a++)
                for (uint32_t b = 0; b < l->n; b++)
                        if (a != b)
                                close(l->sock[a][b]);
        free(l->sock);
}

static int start_ranks(struct launch *l)
{
        int err = make_sockets(l);

        for (uint32_t i = 0; i < l->n && err == 0; i++)
                err = launch_child(l, i, false, become_rank);
        close_sockets(l);
        return err;
}

/* ---- the command ---- */

struct asked {
        const char *hosts, *at, *part, *meet;
};

/* Of --part: "FIRST:COUNT", and where to meet the others. */
static bool read_part(struct launch *l, const struct asked *a)
{
        return sscanf(a->part, "%u:%u", &l->first, &l->n) == 2 && l->n >= 1 &&
               l->first < l->ranks && l->n <= l->ranks - l->first && a->meet != NULL &&
               am_address_read(a->meet, &l->meet) == 0 && launch_part_key(l->key);
}

static int run_job(const struct command *cmd, struct launch *l, const struct asked *a)
{
        int status;

        if (l->ranks == 0)
                return command_usage(cmd, "ranks: 1 to %u", AM_JOB_MOST);
        if (l->program[0] == NULL)
                return command_usage(cmd, "no program");
        if ((a->hosts != NULL || a->part != NULL) && l->through_unetd)
                return command_usage(cmd, "--unetd is of one host");
        if (l->job == 0 &&
            (getrandom(&l->job, sizeof l->job, 0) != sizeof l->job || l->job == UINT32_MAX))
                l->job = (uint32_t)getpid();
        if (a->hosts != NULL)
                return launch_hosts(l, a->hosts, a->at);
        l->n = l->ranks;
        l->part = a->part != NULL;
        if (l->part && !read_part(l, a))
                return command_usage(cmd, "--part is what --hosts starts");
        status = launch_all(l, start_ranks);
        return l->part && status == EXIT_NOTHING ? AM_EXIT_TOLD : status;
}

/* What an option says; false: it is none of these. */
static bool set_option(struct launch *l, struct asked *a, int opt)
{
        const char **text = opt == 'H'   ? &a->hosts
                            : opt == 'L' ? &l->by
                            : opt == 'a' ? &a->at
                            : opt == 'P' ? &a->part
                            : opt == 'M' ? &a->meet
                                         : NULL;
        uint64_t ranks;

        if (text != NULL)
                *text = optarg;
        else if (opt == 'n')
                l->ranks = command_number(optarg, 1, AM_JOB_MOST, &ranks) ? (uint32_t)ranks : 0;
        else if (opt == 'J')
                l->job = (uint32_t)strtoul(optarg, NULL, 10);
        else if (opt == 'u')
                l->through_unetd = true;
        else if (opt == 'l')
                l->label = true;
        else
                return false;
        return true;
}

static int run_am(const struct command *cmd, int argc, char **argv)
{
        static const struct option opts[] = {
                {"ranks", required_argument, NULL, 'n'},
                {"unetd", no_argument, NULL, 'u'},
                {"label", no_argument, NULL, 'l'},
                {"hosts", required_argument, NULL, 'H'},
                {"launch", required_argument, NULL, 'L'},
                {"at", required_argument, NULL, 'a'},
                {"part", required_argument, NULL, 'P'},
                {"meet", required_argument, NULL, 'M'},
                {"job", required_argument, NULL, 'J'},
                {"help", no_argument, NULL, 'h'},
                {NULL, 0, NULL, 0},
        };
        struct launch l = {.ranks = 1, .by = BY};
        struct asked a = {0};
        int opt;

        if (argc > 1 && strcmp(argv[1], "run") == 0) {
                argc--;
                argv++;
        } else if (argc < 2 || strcmp(argv[1], "--help") != 0) {
                return command_usage(cmd, "say what: run");
        }
        while ((opt = getopt_long(argc, argv, "+n:ulh", opts, NULL)) != -1) {
                if (opt == 'h') {
                        command_help(cmd);
                        return EXIT_DONE;
                }
                if (!set_option(&l, &a, opt))
                        return command_usage(cmd, "try --help");
        }
        l.program = argv + optind;
        return run_job(cmd, &l, &a);
}

const struct command cmd_am = {
        .name = "am",
        .synopsis = "run [-n N] [--unetd | --hosts H,H...] [--label] PROGRAM [ARGUMENT...]",
        .summary = "starts the ranks of a job of active messages, on this host or several",
        .help = "  -n, --ranks N   so many ranks, at most 128 (default 1)\n"
                "  -u, --unetd     they talk through unetd, not by shared memory of each pair\n"
                "  --hosts H,H...  in equal parts on these hosts, over RDMA between hosts\n"
                "  --launch CMD    CMD HOST COMMAND runs a shell's command there (default: " BY
                ")\n"
                "  --at ADDRESS    of this host, where ranks of all hosts meet (default: the one "
                "that leads to the first)\n"
                "  -l, --label     each line of output begins with its rank\n"
                "  --help          this\n"
                "\n"
                "A rank that ends with a status other than 0, or is killed, ends the job.\n",
        .run = run_am,
};
