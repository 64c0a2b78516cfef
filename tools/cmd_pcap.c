/*
 * unet pcap: writes the packets of live stacks to a file that tcpdump and tshark read. Each stack has a capture ring in
 * its state (netstack/capture.h), which is turned on, drained every millisecond, and turned off again.
 */
#include <errno.h>
#include <pcap/pcap.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "netstack/capture.h"
#include "tools/command.h"
#include "tools/show.h"
#include "tools/stacks.h"

#define SCAN_EVERY (20 * NS_PER_MS)
#define HOLD_FOR   (100 * NS_PER_MS)
#define HOLD_BYTES (64u << 20)
#define STACKS_MAX 1024

/*
 * A packet that waits to be written. The stacks' packets are merged by time; since a stack may be found a little after
 * its first packet, each waits HOLD_FOR, if there is room.
 */
struct held {
        struct held *next;
        struct capture_rec rec;
        uint8_t bytes[];
};

/* One stack under observation. */
struct tap {
        uint32_t id;
        struct stack_state *st;
        size_t bytes;
        struct capture *c;
        struct capture_reader reader;
        struct held *first, *last;      /* read and not yet written, oldest first */
        uint64_t in, out;               /* packets written */
        bool gone;                      /* unetd knows it no more */
};

struct session {
        struct unetd_client unetd;
        struct tap *tap;
        uint32_t ntap;
        pcap_dumper_t *dump;
        nstime to_wall;                 /* added to the stacks' clock */
        uint64_t packets, max_packets;
        size_t held_bytes;
        uint32_t snap, only;            /* only: 0, or a stack's number */
        bool want_in, want_out;
};

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
        stop = 1;
}

static nstime clock_ns(clockid_t id)
{
        struct timespec ts;

        clock_gettime(id, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

/* ---- stacks come and go ---- */

static void tap_stack(struct session *s, uint32_t id)
{
        struct tap *t = &s->tap[s->ntap];
        struct unetd_stack_fds fds;
        struct stack view;
        struct stat info;

        if (s->ntap == STACKS_MAX || unetd_stack_get(&s->unetd, id, &fds) != 0)
                return;
        *t = (struct tap){.id = id, .st = MAP_FAILED};
        if (fstat(fds.state, &info) == 0)
                t->st = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fds.state, 0);
        unetd_stack_fds_close(&fds);
        if (t->st == MAP_FAILED)
                return;
        t->bytes = (size_t)info.st_size;
        if (stack_view_init(&view, t->st, t->bytes, NULL) != 0) {
                munmap(t->st, t->bytes);
                return;
        }
        t->c = view.capture;
        stack_view_fini(&view);
        /* One that captures already was started by us (UNET_CAPTURE): from its first packet on. */
        if (atomic_load(&t->c->snap) == 0)
                capture_reader_init(&t->reader, t->c);
        else
                t->reader.started = true;
        atomic_store(&t->c->snap, s->snap);
        s->ntap++;
}

static bool note_stack(void *arg, const struct unetd_status_item *item)
{
        struct session *s = arg;

        if (item->kind != UNETD_S_STACK)
                return item->kind < UNETD_S_STACK;
        if (s->only != 0 && s->only != item->stack)
                return true;
        for (uint32_t i = 0; i < s->ntap; i++) {
                if (s->tap[i].id == item->stack) {
                        s->tap[i].gone = false;
                        return true;
                }
        }
        tap_stack(s, item->stack);
        return true;
}

static void scan(struct session *s)
{
        if (s->unetd.daemon.fd <= 0 && unetd_open(&s->unetd, UNETD_NO_START) != 0)
                return;
        for (uint32_t i = 0; i < s->ntap; i++)
                s->tap[i].gone = true;
        if (unetd_status(&s->unetd, note_stack, s) != 0)
                unetd_close(&s->unetd);
}

/* ---- packets ---- */

static void write_packet(struct session *s, struct tap *t, const struct held *h)
{
        nstime at = h->rec.at + s->to_wall;
        struct pcap_pkthdr hdr = {.caplen = h->rec.kept, .len = h->rec.len,
                                  .ts = {.tv_sec = at / NS_PER_S, .tv_usec = at % NS_PER_S}};

        *(h->rec.dir == CAPTURE_IN ? &t->in : &t->out) += 1;
        s->packets++;
        pcap_dump((u_char *)s->dump, &hdr, h->bytes);
}

static bool finished(const struct session *s)
{
        return s->max_packets != 0 && s->packets >= s->max_packets;
}

static struct tap *tap_with_oldest(struct session *s)
{
        struct tap *oldest = NULL;

        for (uint32_t i = 0; i < s->ntap; i++) {
                struct tap *t = &s->tap[i];

                if (t->first && (!oldest || t->first->rec.at < oldest->first->rec.at))
                        oldest = t;
        }
        return oldest;
}

/* Writes what is older than `before`, merged by time. */
static void write_held(struct session *s, nstime before)
{
        struct tap *t;

        while (!finished(s) && (t = tap_with_oldest(s)) != NULL && t->first->rec.at < before) {
                struct held *h = t->first;

                write_packet(s, t, h);
                t->first = h->next;
                s->held_bytes -= sizeof *h + h->rec.kept;
                free(h);
        }
}

static void hold(struct session *s, struct tap *t, const struct capture_rec *rec, const uint8_t *bytes)
{
        struct held *h;

        if (rec->dir == CAPTURE_IN ? !s->want_in : !s->want_out)
                return;
        h = malloc(sizeof *h + rec->kept);
        if (!h) {
                t->reader.missed++;
                return;
        }
        h->next = NULL;
        h->rec = *rec;
        memcpy(h->bytes, bytes, rec->kept);
        if (t->first)
                t->last->next = h;
        else
                t->first = h;
        t->last = h;
        s->held_bytes += sizeof *h + rec->kept;
}

/* Takes what the rings have, and writes what has waited long enough. */
static bool drain(struct session *s)
{
        static uint8_t bytes[CAPTURE_SNAP_MAX];
        struct capture_rec rec;
        bool any = false;

        for (uint32_t i = 0; i < s->ntap; i++) {
                struct tap *t = &s->tap[i];

                while (s->held_bytes < HOLD_BYTES &&
                       capture_read(&t->reader, t->c, STACK_CAPTURE, &rec, bytes, sizeof bytes)) {
                        hold(s, t, &rec, bytes);
                        any = true;
                }
                atomic_store(&t->c->drained, t->reader.pos);
        }
        write_held(s, s->held_bytes < HOLD_BYTES ? clock_ns(CLOCK_MONOTONIC) - HOLD_FOR : NSTIME_NEVER);
        return any;
}

/* Until the time is over, enough packets came, ^C, or the program (pid, 0: none) has ended and its stack is done. */
static int watch(struct session *s, nstime until, pid_t pid)
{
        nstime next_scan = 0;
        int status = 0;
        bool ended = false;

        while (!stop && !finished(s) && clock_ns(CLOCK_MONOTONIC) < until) {
                bool any = drain(s);

                if (clock_ns(CLOCK_MONOTONIC) >= next_scan) {
                        if (ended && !any)
                                break;
                        scan(s);
                        next_scan = clock_ns(CLOCK_MONOTONIC) + SCAN_EVERY;
                        if (pid != 0 && !ended && waitpid(pid, &status, WNOHANG) == pid)
                                ended = true;
                }
                if (!any)
                        usleep(1000);
        }
        if (pid != 0 && !ended) {
                kill(pid, SIGINT);
                waitpid(pid, &status, 0);
        }
        drain(s);
        write_held(s, NSTIME_NEVER);
        return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_NOTHING;
}

/* ---- the end ---- */

static uint64_t missed(const struct tap *t)
{
        return t->reader.missed + (t->reader.started ? t->c->seq - MIN(t->c->seq, t->reader.next_seq) : 0);
}

static int finish(struct session *s, bool json, FILE *out)
{
        json_t *rows = json_array();
        uint64_t lost = 0;

        for (uint32_t i = 0; i < s->ntap; i++) {
                struct tap *t = &s->tap[i];
                uint64_t m = finished(s) ? t->reader.missed : missed(t);

                atomic_store(&t->c->snap, 0);
                lost += m;
                json_array_append_new(rows, json_pack("{si sI sI sI}", "stack", t->id, "in", (json_int_t)t->in, "out",
                                                      (json_int_t)t->out, "missed", (json_int_t)m));
                munmap(t->st, t->bytes);
        }
        pcap_dump_close(s->dump);
        unetd_close(&s->unetd);
        if (json) {
                json_t *all = json_pack("{sI sI so}", "packets", (json_int_t)s->packets, "missed", (json_int_t)lost,
                                        "stacks", rows);
                json_dumpf(all, out, JSON_INDENT(1));
                fputc('\n', out);
                json_decref(all);
        } else {
                fprintf(stderr, "unet: %llu packets of %u stacks, %llu missed\n", (unsigned long long)s->packets,
                        s->ntap, (unsigned long long)lost);
                json_decref(rows);
        }
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

static bool open_file(struct session *s, const char *path)
{
        pcap_t *dead = pcap_open_dead_with_tstamp_precision(DLT_RAW, CAPTURE_SNAP_MAX, PCAP_TSTAMP_PRECISION_NANO);

        s->dump = dead ? pcap_dump_open(dead, path) : NULL;
        if (!s->dump)
                command_fail("%s: %s", path, dead ? pcap_geterr(dead) : "no memory");
        if (dead)
                pcap_close(dead);
        return s->dump != NULL;
}

struct settings {
        const char *path;
        nstime until;
        bool json;
};

/* A number of an option, 1 or more; 0 and a complaint otherwise. */
static uint64_t number_of(const struct command *cmd, const char *text)
{
        char *end;
        unsigned long long v = strtoull(text, &end, 10);

        if (end == text || *end || v == 0 || text[0] == '-') {
                command_usage(cmd, "not a number above 0: %s", text);
                return 0;
        }
        return v;
}

static bool options(const struct command *cmd, int argc, char **argv, struct session *s, struct settings *set)
{
        static const struct option extra[] = {
                {"write", required_argument, NULL, 'w'},     {"stack", required_argument, NULL, 's'},
                {"direction", required_argument, NULL, 'd'}, {"count", required_argument, NULL, 'c'},
                {"snap", required_argument, NULL, 'n'},      {"seconds", required_argument, NULL, 't'},
                {NULL, 0, NULL, 0}};
        const char *direction = NULL;
        uint64_t v = 1;
        int opt;

        while ((opt = command_option(cmd, argc, argv, extra, &set->json)) != -1) {
                if (opt == 'w')
                        set->path = optarg;
                else if (opt == 'd')
                        direction = optarg;
                else if ((v = number_of(cmd, optarg)) == 0)
                        return false;
                if (opt == 's')
                        s->only = (uint32_t)v;
                if (opt == 'c')
                        s->max_packets = v;
                if (opt == 'n')
                        s->snap = (uint32_t)MIN(v, CAPTURE_SNAP_MAX);
                if (opt == 't')
                        set->until = clock_ns(CLOCK_MONOTONIC) + (nstime)MIN(v, 1000000000ull) * NS_PER_S;
        }
        /* Between stacks of one host each packet would be there twice. */
        s->want_out = !direction || strcmp(direction, "in") != 0;
        s->want_in = direction ? strcmp(direction, "out") != 0 : s->only != 0;
        if (direction && strcmp(direction, "in") != 0 && strcmp(direction, "out") != 0 && strcmp(direction, "both") != 0) {
                command_usage(cmd, "--direction is in, out or both");
                return false;
        }
        return true;
}

static int run(const struct command *cmd, int argc, char **argv)
{
        struct session s = {.snap = CAPTURE_SNAP_MAX};
        struct settings set = {.path = "-", .until = NSTIME_NEVER};
        struct sigaction sa = {.sa_handler = on_signal};
        pid_t pid = 0;
        int status, r;

        if (!options(cmd, argc, argv, &s, &set))
                return EXIT_USAGE;
        if (strcmp(set.path, "-") == 0 && isatty(STDOUT_FILENO))
                return command_usage(cmd, "packets are not for a terminal: give --write FILE, or a pipe");
        if (!open_file(&s, set.path))
                return EXIT_NOTHING;
        s.tap = calloc(STACKS_MAX, sizeof *s.tap);
        if (!s.tap)
                return command_fail("no memory");
        s.to_wall = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
        sigaction(SIGINT, &sa, NULL);
        sigaction(SIGTERM, &sa, NULL);
        if (optind < argc && (pid = start_program(argv + optind, s.snap)) < 0)
                return command_fail("%s", strerror(errno));
        status = watch(&s, set.until, pid);
        r = finish(&s, set.json, strcmp(set.path, "-") == 0 ? stderr : stdout);
        free(s.tap);
        return pid != 0 && status != 0 ? status : r;
}

const struct command cmd_pcap = {
        "pcap", "[OPTION...] [PROGRAM [ARGUMENT...]]",
        "writes packets to a file for tcpdump and tshark",
        "  --write FILE      the file; - or none: standard output\n"
        "  --stack N         of one stack, both directions; without it of all, those that are sent\n"
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
