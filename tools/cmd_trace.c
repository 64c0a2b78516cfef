/* unet trace: events of live stacks (base/trace.h) as they happen. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "netstack/stack.h"
#include "tools/command.h"
#include "tools/stacks.h"
#include "base/clock.h"
#include "unetd/client/client.h"

#define STACKS_MAX 1024
#define SCAN_EVERY (20 * NS_PER_MS)

struct watched {
        uint32_t id;
        struct stacks_map map;
        struct trace *trace;
        uint64_t next;   /* the record to read */
        uint64_t missed; /* written over before they were read */
};

struct session {
        struct unetd_client unetd;
        struct watched stack[STACKS_MAX];
        uint32_t n;
        uint32_t only;        /* 0: all of this user */
        uint64_t events;      /* mask */
        uint64_t shown, most; /* 0: no bound */
        nstime until;
        bool json;
};

/* ---- stacks come ---- */

static bool map_stack(struct session *s, struct watched *w)
{
        struct stack view;

        if (!stacks_map(&s->unetd, w->id, PROT_READ | PROT_WRITE, &w->map, &view))
                return false;
        w->trace = view.trace;
        stack_view_fini(&view);
        return true;
}

static bool note_stack(void *arg, const struct unetd_status_item *item)
{
        struct session *s = arg;
        struct watched *w = &s->stack[s->n];

        if (item->kind != UNETD_S_STACK)
                return item->kind < UNETD_S_STACK;
        for (uint32_t i = 0; i < s->n; i++)
                if (s->stack[i].id == item->stack)
                        return true;
        if (s->n == STACKS_MAX || (s->only != 0 && s->only != item->stack))
                return true;
        *w = (struct watched){.id = item->stack};
        if (!map_stack(s, w))
                return true;
        w->next = atomic_load(&w->trace->count);
        trace_enable(w->trace, s->events);
        s->n++;
        fprintf(stderr, "unet: stack %u is watched\n", w->id);
        return true;
}

static void look_for_stacks(struct session *s)
{
        if (s->unetd.daemon.fd <= 0 && unetd_open(&s->unetd, UNETD_NO_START) != 0)
                return;
        if (unetd_status(&s->unetd, note_stack, s) != 0)
                unetd_close(&s->unetd);
}

/* ---- events ---- */

static void show_line(const struct watched *w, const struct trace_rec *rec)
{
        char line[256];

        trace_format(rec, line, sizeof line);
        printf("%u %s\n", w->id, line);
}

static void show_object(const struct watched *w, const struct trace_rec *rec)
{
        json_t *o = json_pack(
                "{sI sI ss sI}", "stack", (json_int_t)w->id, "ns", (json_int_t)rec->at, "event",
                trace_name((enum trace_event)rec->event), "object", (json_int_t)rec->obj);
        char value[32];

        for (unsigned i = 0; i < TRACE_FIELDS; i++) {
                const char *name = trace_field(rec, i, value, sizeof value);
                if (name != NULL)
                        json_object_set_new(o, name, json_string(value));
        }
        json_dumpf(o, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
        putchar('\n');
        json_decref(o);
}

static bool is_enough(const struct session *s)
{
        return s->most != 0 && s->shown >= s->most;
}

/* At most as many of each stack as its ring holds: what it says of that may be a lie
 * without end. */
static bool drain(struct session *s)
{
        bool any = false;

        for (uint32_t i = 0; i < s->n; i++) {
                struct watched *w = &s->stack[i];
                struct trace_rec rec;
                uint64_t first;

                for (uint32_t n = 0; n < STACK_TRACE && !is_enough(s); n++) {
                        if (trace_read(w->trace, STACK_TRACE, w->next, &rec, &first)) {
                                (s->json ? show_object : show_line)(w, &rec);
                                s->shown++;
                                w->next++;
                                any = true;
                        } else if (first > w->next) {
                                w->missed += first - w->next;
                                w->next = first;
                        } else {
                                break;
                        }
                }
        }
        fflush(stdout);
        return any;
}

static void watch(struct session *s)
{
        nstime next_scan = 0;

        while (!command_stopped && !is_enough(s) && clock_now() < s->until) {
                if (clock_now() >= next_scan) {
                        look_for_stacks(s);
                        next_scan = clock_now() + SCAN_EVERY;
                }
                if (!drain(s))
                        usleep(1000);
        }
}

/* Nothing more is recorded; what was is shown to its end. */
static int leave(struct session *s)
{
        uint64_t missed = 0;

        for (uint32_t i = 0; i < s->n; i++)
                trace_enable(s->stack[i].trace, 0);
        drain(s);
        for (uint32_t i = 0; i < s->n; i++) {
                missed += s->stack[i].missed;
                munmap(s->stack[i].map.st, s->stack[i].map.bytes);
        }
        unetd_close(&s->unetd);
        if (missed != 0)
                fprintf(stderr, "unet: %llu events were written over before they could be shown\n",
                        (unsigned long long)missed);
        return s->shown > 0 ? EXIT_DONE : EXIT_NOTHING;
}

/* ---- the command ---- */

static bool parse_events(const struct command *cmd, char *list, uint64_t *mask)
{
        char *save = NULL;

        *mask = 0;
        for (char *name = strtok_r(list, ",", &save); name != NULL;
             name = strtok_r(NULL, ",", &save)) {
                uint64_t bit = trace_lookup(name);
                if (bit == 0) {
                        command_usage(cmd, "no such event: %s", name);
                        return false;
                }
                *mask |= bit;
        }
        return true;
}

static bool options(const struct command *cmd, int argc, char **argv, struct session *s)
{
        static const struct option extra[] = {{"stack", required_argument, NULL, 's'},
                                              {"events", required_argument, NULL, 'e'},
                                              {"count", required_argument, NULL, 'c'},
                                              {"seconds", required_argument, NULL, 't'},
                                              {NULL, 0, NULL, 0}};
        int opt;

        while ((opt = command_option(cmd, argc, argv, extra, &s->json)) != -1) {
                uint64_t v;

                if (opt == 'e') {
                        if (!parse_events(cmd, optarg, &s->events))
                                return false;
                        continue;
                }
                if (!command_number(optarg, 1, UINT64_MAX, &v))
                        return command_usage(cmd, "not a number above 0: %s", optarg), false;
                if (opt == 's')
                        s->only = (uint32_t)v;
                else if (opt == 'c')
                        s->most = v;
                else
                        s->until = clock_now() + (nstime)MIN(v, 1000000000ull) * NS_PER_S;
        }
        if (optind < argc)
                command_usage(cmd, "unexpected argument: %s", argv[optind]);
        return optind >= argc;
}

static int run(const struct command *cmd, int argc, char **argv)
{
        static struct session s = {.events = UINT64_MAX, .until = NSTIME_NEVER};

        if (!options(cmd, argc, argv, &s))
                return EXIT_USAGE;
        command_catch_signals();
        watch(&s);
        return leave(&s);
}

const struct command cmd_trace = {
        "trace",
        "[OPTION...]",
        "shows events of live stacks as they happen",
        "  --stack N         of one stack; without it of all\n"
        "  --events A,B      only these: DROP, TCP_STATE, TCP_IN, TCP_OUT, TCP_RETRANSMIT, "
        "TCP_RECOVERY, TCP_TLP,\n"
        "                    TCP_RTO, TCP_WINDOW, TCP_PROBE, UDP_IN, UDP_OUT, ICMP_IN, RING, WAKE, "
        "STACK_RECOVER\n"
        "  --count N         ends after N events\n"
        "  --seconds N       ends after N seconds; ^C ends it at any time\n"
        "  --json            each event as an object on a line of its own\n"
        "\n"
        "Exit status: 0, or 1 when there was no event.\n",
        run,
};
