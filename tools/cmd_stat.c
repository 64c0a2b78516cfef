/* unet stat: counters, and every reason for which a packet was dropped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/command.h"
#include "tools/show.h"
#include "tools/stacks.h"

struct want {
        uint32_t stack; /* 0: the sum of all */
        struct counters sum;
        json_t *ids;
};

static void add_stack(void *arg, const struct seen_stack *s, json_t *rows)
{
        const struct counters *c = &s->view.st->cnt;
        const struct want *w = arg;

        if (w->stack == 0 || w->stack == s->id)
                json_array_append_new(rows, json_pack("{si so so}", "stack", s->id, "counters",
                                                      show_numbers(c->n, COUNT_COUNT), "drops",
                                                      show_numbers(c->drop, DROP_COUNT)));
}

static void sum_up(uint64_t *sum, int count, const json_t *row, const char *key)
{
        const json_t *a = json_object_get(row, key);

        for (int i = 0; i < count; i++)
                sum[i] += (uint64_t)json_integer_value(json_array_get(a, (size_t)i));
}

static void sum_rows(struct want *w, const json_t *rows)
{
        const json_t *row;
        size_t i;

        json_array_foreach (rows, i, row) {
                json_array_append(w->ids, json_object_get(row, "stack"));
                sum_up(w->sum.n, COUNT_COUNT, row, "counters");
                sum_up(w->sum.drop, DROP_COUNT, row, "drops");
        }
}

static void show_table(const struct want *w, bool all)
{
        static const struct show_column cols[] = {{"name", "counter", SHOW_PLAIN},
                                                  {"value", "value", SHOW_PLAIN},
                                                  {"text", "meaning", SHOW_PLAIN}};
        json_t *rows = json_array();
        char name[64];

        for (int i = 0; i < COUNT_COUNT; i++)
                if (all || w->sum.n[i] != 0)
                        json_array_append_new(rows, json_pack("{ss sI ss}", "name",
                                                              count_name((enum count)i), "value",
                                                              (json_int_t)w->sum.n[i], "text",
                                                              count_text((enum count)i)));
        for (int i = 1; i < DROP_COUNT; i++) {
                if (!all && w->sum.drop[i] == 0)
                        continue;
                snprintf(name, sizeof name, "dropped: %s", drop_name((enum drop)i));
                json_array_append_new(rows, json_pack("{ss sI ss}", "name", name, "value",
                                                      (json_int_t)w->sum.drop[i], "text",
                                                      drop_text((enum drop)i)));
        }
        show_rows(rows, cols, ARRAY_LEN(cols), false);
}

/* The same shape always; `why`: what there is to say instead, or NULL. */
static void show_as_json(struct want *w, const char *why)
{
        json_t *counters = json_object(), *drops = json_object();

        for (int i = 0; i < COUNT_COUNT; i++)
                json_object_set_new(counters, count_name((enum count)i),
                                    json_integer((json_int_t)w->sum.n[i]));
        for (int i = 1; i < DROP_COUNT; i++)
                json_object_set_new(drops, drop_name((enum drop)i),
                                    json_integer((json_int_t)w->sum.drop[i]));
        show_json(json_pack("{so so so ss*}", "stacks", json_incref(w->ids), "counters", counters,
                            "drops", drops, "error", why));
}

static int run(const struct command *cmd, int argc, char **argv)
{
        static const struct option extra[] = {{"stack", required_argument, NULL, 's'},
                                              {"all", no_argument, NULL, 'a'},
                                              {NULL, 0, NULL, 0}};
        struct want w = {0};
        bool json = false, all = false;
        const char *why;
        json_t *rows;
        char *end = "";
        int opt;

        while ((opt = command_option(cmd, argc, argv, extra, &json)) != -1) {
                all = all || opt == 'a';
                if (opt == 's')
                        w.stack = (uint32_t)strtoul(optarg, &end, 10);
                if (opt == 's' && (*end || w.stack == 0))
                        return command_usage(cmd, "not the number of a stack: %s", optarg);
        }
        if (optind < argc)
                return command_usage(cmd, "no arguments are taken");
        w.ids = json_array();
        rows = json_array();
        why = stacks_rows(add_stack, &w, rows);
        sum_rows(&w, rows);
        if (!why && json_array_size(rows) == 0)
                why = "there is no such stack";
        if (json)
                show_as_json(&w, why);
        else if (!why)
                show_table(&w, all);
        json_decref(w.ids);
        json_decref(rows);
        return why ? command_fail("%s", why) : EXIT_DONE;
}

const struct command cmd_stat = {
        "stat",
        "[--stack N] [--all] [--json]",
        "counters, and each reason for which packets were dropped",
        "  --stack N  of one stack (unet status has the numbers); without it the sum of all\n"
        "  --all      also those that are zero\n"
        "  --json     as JSON, all of them\n"
        "\n"
        "Exit status 1: there is no such stack.\n",
        run,
};
