/* See metrics.h. What comes from other users' processes may be anything: only numbers, and what is
 * escaped, go into the text. */
#include "tools/metrics.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/counters.h"
#include "tcp/tcp.h"

#define NAME_MAX_ 64

struct shown {
        const json_t *row;
        json_int_t stack, uid;
};

struct page {
        FILE *out;
        struct shown *stack;
        size_t n, left_out;
};

/* ---- the format ---- */

static void family(struct page *p, const char *name, const char *type, const char *unit,
                   const char *help)
{
        fprintf(p->out, "# TYPE %s %s\n", name, type);
        if (unit)
                fprintf(p->out, "# UNIT %s %s\n", name, unit);
        fprintf(p->out, "# HELP %s %s\n", name, help);
}

/* A label's value. */
static void quoted(FILE *out, const char *text)
{
        fputc('"', out);
        for (; *text; text++) {
                if (*text == '"' || *text == '\\' || *text == '\n')
                        fputc('\\', out);
                fputc(*text == '\n' ? 'n' : *text, out);
        }
        fputc('"', out);
}

static void gauge(struct page *p, const char *name, const char *help, uint64_t value)
{
        family(p, name, "gauge", NULL, help);
        fprintf(p->out, "%s %llu\n", name, (unsigned long long)value);
}

/* A sample's name and the labels that say which stack it is; more may follow, and "} VALUE". */
static void of_stack(struct page *p, const char *name, const struct shown *s)
{
        fprintf(p->out, "%s{stack=\"%lld\",uid=\"%lld\"", name, (long long)s->stack,
                (long long)s->uid);
}

/* ---- which stacks ---- */

static bool is_wanted(const struct page *p, const struct shown *s, unsigned most)
{
        unsigned of_user = 0;

        for (size_t i = 0; i < p->n; i++) {
                if (p->stack[i].uid == s->uid && p->stack[i].stack == s->stack)
                        return false; /* no series may be there twice */
                of_user += p->stack[i].uid == s->uid;
        }
        return of_user < most;
}

static void choose(struct page *p, const json_t *sample, unsigned most)
{
        size_t n = json_array_size(sample);

        p->stack = calloc(n + 1, sizeof *p->stack);
        for (size_t i = 0; p->stack && i < n; i++) {
                const json_t *row = json_array_get(sample, i);
                struct shown s = {row, json_integer_value(json_object_get(row, "stack")),
                                  json_integer_value(json_object_get(row, "uid"))};

                if (is_wanted(p, &s, most))
                        p->stack[p->n++] = s;
                else
                        p->left_out++;
        }
}

/* ---- what there is ---- */

static void write_daemon(struct page *p, const struct metrics_daemon *d)
{
        gauge(p, "unet_up", "Whether unetd answers.", d->up);
        gauge(p, "unet_daemon_clients", "Processes that are connected to unetd.", d->clients);
        gauge(p, "unet_daemon_stacks", "Stacks that unetd knows.", d->stacks);
        gauge(p, "unet_daemon_channels", "Channels between stacks.", d->channels);
        gauge(p, "unet_daemon_listeners", "Listening sockets that are known to unetd.",
              d->listeners);
        gauge(p, "unet_stacks_left_out", "Stacks that have no series here.", p->left_out);
}

static void write_info(struct page *p)
{
        family(p, "unet_stack", "info", NULL, "The program that made a stack.");
        for (size_t i = 0; i < p->n; i++) {
                const char *program =
                        json_string_value(json_object_get(p->stack[i].row, "program"));

                of_stack(p, "unet_stack_info", &p->stack[i]);
                fputs(",program=", p->out);
                quoted(p->out, program ? program : "");
                fputs("} 1\n", p->out);
        }
}

static uint64_t element(const struct shown *s, const char *array, int i)
{
        return (uint64_t)json_integer_value(
                json_array_get(json_object_get(s->row, array), (size_t)i));
}

/* "unet_tcp_retrans" */
static void counter_name(char name[NAME_MAX_], enum count what)
{
        snprintf(name, NAME_MAX_, "unet_%s", count_name(what));
        for (char *c = name; *c; c++)
                *c = (char)tolower((unsigned char)*c);
}

static bool ends_with(const char *text, const char *end)
{
        size_t n = strlen(text), m = strlen(end);

        return n >= m && strcmp(text + n - m, end) == 0;
}

static void write_counters(struct page *p)
{
        for (int c = 0; c < COUNT_COUNT; c++) {
                char name[NAME_MAX_], total[NAME_MAX_ + 8];

                counter_name(name, (enum count)c);
                snprintf(total, sizeof total, "%s_total", name);
                family(p, name, "counter", ends_with(name, "_bytes") ? "bytes" : NULL,
                       count_text((enum count)c));
                for (size_t i = 0; i < p->n; i++) {
                        of_stack(p, total, &p->stack[i]);
                        fprintf(p->out, "} %llu\n",
                                (unsigned long long)element(&p->stack[i], "counters", c));
                }
        }
}

static void write_drops(struct page *p)
{
        family(p, "unet_drops", "counter", NULL,
               "Packets that were dropped, by reason (unet stat --all says what each means).");
        for (size_t i = 0; i < p->n; i++)
                for (int d = 1; d < DROP_COUNT; d++) {
                        of_stack(p, "unet_drops_total", &p->stack[i]);
                        fprintf(p->out, ",reason=\"%s\"} %llu\n", drop_name((enum drop)d),
                                (unsigned long long)element(&p->stack[i], "drops", d));
                }
}

static bool has(const json_t *socket, const char *key, const char *value)
{
        const char *v = json_string_value(json_object_get(socket, key));

        return v && strcmp(v, value) == 0;
}

/* `state` NULL: in any. */
static void write_sockets(struct page *p, const struct shown *s, const char *protocol,
                          const char *state)
{
        const json_t *sockets = json_object_get(s->row, "sockets");
        unsigned n = 0;

        for (size_t i = 0; i < json_array_size(sockets); i++) {
                const json_t *socket = json_array_get(sockets, i);

                n += has(socket, "protocol", protocol) && (!state || has(socket, "state", state));
        }
        of_stack(p, "unet_sockets", s);
        fprintf(p->out, ",protocol=\"%s\",state=\"%s\"} %u\n", protocol, state ? state : "", n);
}

static void write_states(struct page *p)
{
        family(p, "unet_sockets", "gauge", NULL,
               "Sockets, connections by their state; listeners are not among them.");
        for (size_t i = 0; i < p->n; i++) {
                for (int state = TCPS_SYN_SENT; state <= TCPS_TIME_WAIT; state++)
                        write_sockets(p, &p->stack[i], "tcp",
                                      tcp_state_name((enum tcp_state)state));
                write_sockets(p, &p->stack[i], "udp", NULL);
        }
}

void metrics_write(FILE *out, const struct metrics_daemon *d, const json_t *sample, unsigned most)
{
        struct page p = {.out = out};

        choose(&p, sample, most);
        write_daemon(&p, d);
        write_info(&p);
        write_counters(&p);
        write_drops(&p);
        write_states(&p);
        fputs("# EOF\n", out);
        free(p.stack);
}
