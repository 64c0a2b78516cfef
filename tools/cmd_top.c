/* unet top: stacks and flows as they work: rates, what limits each, drops. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "tools/command.h"
#include "tools/rates.h"
#include "tools/sample.h"
#include "tools/screen.h"
#include "tools/show.h"

#define INTERVAL_MAX 86400.0 /* seconds */

struct top {
        nstime interval;
        uint64_t count; /* ticks; 0: no bound */
        bool json;
        json_t *sample;  /* the last one, of which the next are told apart */
        char *text;      /* the last tick, as a screen shows it */
        bool seen;       /* there was a stack */
        const char *why; /* there is none now */
};

/* ---- one tick ---- */

/* The rates since the last sample, which this one replaces. */
static json_t *tick(struct top *t)
{
        json_t *now = json_array(), *rates;

        t->why = stacks_rows(sample_add, NULL, now);
        rates = rates_between(t->sample, now);
        json_decref(t->sample);
        t->sample = now;
        t->seen = t->seen || !t->why;
        return rates;
}

static double sum(const json_t *rows, const char *key)
{
        double all = 0;

        for (size_t i = 0; i < json_array_size(rows); i++)
                all += json_number_value(json_object_get(json_array_get(rows, i), key));
        return all;
}

static void head(FILE *out, const struct top *t, const json_t *stacks, const json_t *flows)
{
        time_t now = time(NULL);
        char text[16] = "";
        struct tm tm;

        if (localtime_r(&now, &tm))
                strftime(text, sizeof text, "%H:%M:%S", &tm);
        fprintf(out, "unet top  %s  every %g s  %zu stacks  %zu flows  %.0f drops/s\n", text,
                (double)t->interval / NS_PER_S, json_array_size(stacks), json_array_size(flows),
                sum(stacks, "drops"));
        if (t->why)
                fprintf(out, "%s\n", t->why);
}

static void write_text(FILE *out, const struct top *t, const json_t *rates)
{
        static const struct show_column of_stacks[] = {
                {"stack", "stack", SHOW_PLAIN},
                {"program", "program", SHOW_PLAIN},
                {"cpu", "cpu", SHOW_PERCENT},
                {"rx_bytes", "in B/s", SHOW_BYTES},
                {"tx_bytes", "out B/s", SHOW_BYTES},
                {"rx_messages", "in msg/s", SHOW_COUNT},
                {"tx_messages", "out msg/s", SHOW_COUNT},
                {"retransmits", "retr/s", SHOW_COUNT},
                {"bells", "bells/s", SHOW_COUNT},
                {"drops", "drops/s", SHOW_COUNT},
                {"drop_reason", "most for", SHOW_PLAIN},
        };
        static const struct show_column of_flows[] = {
                {"protocol", "proto", SHOW_PLAIN},
                {"local", "local", SHOW_PLAIN},
                {"peer", "peer", SHOW_PLAIN},
                {"rx_bytes", "in B/s", SHOW_BYTES},
                {"tx_bytes", "out B/s", SHOW_BYTES},
                {"rx_messages", "in msg/s", SHOW_COUNT},
                {"tx_messages", "out msg/s", SHOW_COUNT},
                {"limit", "limited by", SHOW_PLAIN},
                {"limited", "for", SHOW_PERCENT},
                {"rtt", "rtt us", SHOW_US},
                {"retransmits", "retr/s", SHOW_COUNT},
                {"drops", "drops/s", SHOW_COUNT},
                {"state", "state", SHOW_PLAIN},
                {"holders", "held by", SHOW_PLAIN},
        };
        json_t *stacks = json_object_get(rates, "stacks"), *flows = json_object_get(rates, "flows");

        head(out, t, stacks, flows);
        if (json_array_size(stacks) > 0) {
                fputc('\n', out);
                show_rows_to(out, stacks, of_stacks, ARRAY_LEN(of_stacks));
        }
        if (json_array_size(flows) > 0) {
                fputc('\n', out);
                show_rows_to(out, flows, of_flows, ARRAY_LEN(of_flows));
        }
}

static void write_json(const struct top *t, json_t *rates)
{
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        json_object_set_new(rates, "time",
                            json_real((double)now.tv_sec + (double)now.tv_nsec / NS_PER_S));
        if (t->why)
                json_object_set_new(rates, "error", json_string(t->why));
        json_dumpf(rates, stdout, JSON_COMPACT);
        putchar('\n');
}

/* ---- a terminal ---- */

static void redraw(struct top *t)
{
        json_t *rates = tick(t);
        size_t size;
        FILE *out;

        free(t->text);
        t->text = NULL;
        out = open_memstream(&t->text, &size);
        if (out) {
                write_text(out, t, rates);
                fclose(out);
        }
        json_decref(rates);
        screen_draw(t->text ? t->text : "");
}

/* What is there is shown at once; rates are, from the first tick on. */
static void live(struct top *t)
{
        nstime next = clock_now();
        enum screen_event e = SCREEN_TIME;

        for (unsigned long n = 0; e != SCREEN_QUIT && (t->count == 0 || n <= t->count);
             e = screen_wait(next)) {
                if (e == SCREEN_RESIZED) {
                        screen_draw(t->text);
                        continue;
                }
                redraw(t);
                next = MAX(next, clock_now() - t->interval) + t->interval;
                n++;
        }
        screen_end();
}

/* ---- a file ---- */

static void sleep_until(nstime at)
{
        struct timespec ts = {at / NS_PER_S, at % NS_PER_S};

        while (!command_stopped && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) != 0)
                continue;
}

static void batch(struct top *t)
{
        nstime next = clock_now();

        command_catch_signals();
        json_decref(tick(t));
        for (unsigned long n = 0; t->count == 0 || n < t->count; n++) {
                json_t *rates;

                next = MAX(next, clock_now() - t->interval) + t->interval;
                sleep_until(next);
                if (command_stopped)
                        break;
                rates = tick(t);
                if (t->json) {
                        write_json(t, rates);
                } else {
                        fputs(n ? "\n" : "", stdout);
                        write_text(stdout, t, rates);
                }
                json_decref(rates);
                if (fflush(stdout) != 0)
                        break;
        }
}

/* ---- the command ---- */

static bool read_interval(const char *text, nstime *out)
{
        char *end;
        double v = strtod(text, &end);

        if (end == text || *end || !(v >= 0.01 && v <= INTERVAL_MAX))
                return false;
        *out = (nstime)(v * NS_PER_S);
        return true;
}

static int run(const struct command *cmd, int argc, char **argv)
{
        static const struct option extra[] = {{"interval", required_argument, NULL, 'i'},
                                              {"count", required_argument, NULL, 'c'},
                                              {NULL, 0, NULL, 0}};
        struct top t = {.interval = NS_PER_S, .sample = NULL};
        int opt;

        while ((opt = command_option(cmd, argc, argv, extra, &t.json)) != -1) {
                if (opt == 'i' && !read_interval(optarg, &t.interval))
                        return command_usage(cmd, "not a number of seconds from 0.01 to %.0f: %s",
                                             INTERVAL_MAX, optarg);
                if (opt == 'c' && !command_number(optarg, 1, UINT64_MAX, &t.count))
                        return command_usage(cmd, "not a number above 0: %s", optarg);
        }
        if (optind < argc)
                return command_usage(cmd, "no arguments are taken");
        if (!t.json && screen_begin())
                live(&t);
        else
                batch(&t);
        json_decref(t.sample);
        free(t.text);
        return t.seen ? EXIT_DONE : EXIT_NOTHING;
}

const struct command cmd_top = {
        "top",
        "[--interval SECONDS] [--count N] [--json]",
        "stacks and flows as they work: rates, what limits each, drops",
        "  --interval SECONDS  between two looks (1)\n"
        "  --count N           ends after N of them; ^C, and q on a terminal, end it at any time\n"
        "  --json              a JSON object a line, for each look: rates a second, times in "
        "nanoseconds\n"
        "\n"
        "Where standard output is no terminal, a table is written for each look.\n"
        "Exit status 1: there was no stack.\n",
        run,
};
