/* See sample.h. */
#include "tools/sample.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/show.h"
#include "tools/sockets.h"

/* proc(5): what follows the name, which may hold anything but ends with the last ")". -1: the
 * process is gone. */
static json_int_t cpu_of(uint32_t pid)
{
        unsigned long user, system;
        char path[32], text[1024];
        json_int_t ns = -1;
        const char *p;
        size_t n;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%u/stat", pid);
        f = fopen(path, "r");
        if (!f)
                return -1;
        n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
        text[n] = '\0';
        p = strrchr(text, ')');
        if (p && sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                        &system) == 2)
                ns = (json_int_t)(user + system) * (NS_PER_S / sysconf(_SC_CLK_TCK));
        return ns;
}

static json_t *cpu_json(const struct stack_state *st)
{
        json_t *o = json_object();

        for (uint32_t i = 0, procs = stack_procs(st); i < procs; i++) {
                uint32_t pid = atomic_load_explicit(&st->proc[i].pid, memory_order_relaxed);
                json_int_t ns = pid != 0 && pid != STACK_FORKING ? cpu_of(pid) : -1;
                char key[16];

                snprintf(key, sizeof key, "%u", pid);
                if (ns >= 0)
                        json_object_set_new(o, key, json_integer(ns));
        }
        return o;
}

void sample_add(void *arg, const struct seen_stack *s, json_t *rows)
{
        const struct counters *c = &s->view.st->cnt;
        json_t *sockets = json_array();

        sockets_connections(s, sockets);
        sockets_udp(s, sockets);
        json_array_append_new(rows, json_pack("{si si si so sI so so so so}", "stack", s->id, "uid",
                                              s->uid, "pid", s->pid, "program",
                                              stacks_program(s->pid), "ns", (json_int_t)s->now,
                                              "counters", show_numbers(c->n, COUNT_COUNT), "drops",
                                              show_numbers(c->drop, DROP_COUNT), "sockets", sockets,
                                              "cpu", cpu_json(s->view.st)));
}
