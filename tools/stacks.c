/* Finding stacks by unetd, and mapping their state. */
#include "tools/stacks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "tools/show.h"
#include "unetd/client/timens.h"

#define STACKS_MAX 4096

struct list {
        struct unetd_status_item *item;
        size_t n;
};

static bool note_stack(void *arg, const struct unetd_status_item *item)
{
        struct list *l = arg;

        if (item->kind == UNETD_S_STACK && l->n < STACKS_MAX)
                l->item[l->n++] = *item;
        return item->kind <= UNETD_S_STACK;
}

static nstime now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec - timens.monotonic;
}

bool stacks_map(struct unetd_client *c, uint32_t id, int prot, struct stacks_map *m,
                struct stack *view)
{
        struct unetd_stack_fds fds;
        struct stat info;

        if (unetd_stack_get(c, id, &fds) != 0)
                return false;
        /* Without the memory of its programs' own, which is behind it. */
        m->bytes = fstat(fds.state, &info) == 0 ? (size_t)info.st_size - FRAME_NAMED_BYTES : 0;
        m->st = mmap(NULL, m->bytes, prot, MAP_SHARED, fds.state, 0);
        unetd_stack_fds_close(&fds);
        if (m->st == MAP_FAILED)
                return false;
        if (stack_view_init(view, m->st, m->bytes, NULL) == 0)
                return true;
        munmap(m->st, m->bytes);
        return false;
}

/* One stack, if it is still there and ours to read. */
static bool see(struct unetd_client *c, const struct unetd_status_item *item,
                bool (*each)(void *arg, const struct seen_stack *s), void *arg, bool *shown)
{
        struct seen_stack s = {.id = item->stack,
                               .uid = item->uid,
                               .pid = item->pid,
                               .orphan = (item->flags & UNETD_ORPHAN) != 0};
        struct stacks_map map;
        bool go_on;

        if (!stacks_map(c, item->stack, PROT_READ, &map, &s.view))
                return true;
        s.now = now();
        *shown = true;
        go_on = each(arg, &s);
        stack_view_fini(&s.view);
        munmap(map.st, map.bytes);
        return go_on;
}

const char *stacks_each(bool (*each)(void *arg, const struct seen_stack *s), void *arg)
{
        return stacks_each_of(0, each, arg);
}

const char *stacks_each_of(unsigned flags, bool (*each)(void *arg, const struct seen_stack *s),
                           void *arg)
{
        struct unetd_client c = {0};
        struct list l = {.item = calloc(STACKS_MAX, sizeof *l.item)};
        bool shown = false;
        int r = l.item ? unetd_open(&c, UNETD_NO_START | flags) : -ENOMEM;

        if (r == 0) {
                r = unetd_status(&c, note_stack, &l);
                for (size_t i = 0; r == 0 && i < l.n && see(&c, &l.item[i], each, arg, &shown); i++)
                        continue;
                unetd_close(&c);
        }
        free(l.item);
        if (r == -ECONNREFUSED)
                return "no unetd runs for this user (the first program starts one)";
        if (r != 0)
                return strerror(-r);
        return shown ? NULL : "there are no stacks";
}

json_t *stacks_program(int32_t pid)
{
        char path[32], name[64] = "";
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/comm", pid);
        f = fopen(path, "r");
        if (!f)
                return json_null();
        if (!fgets(name, sizeof name, f))
                name[0] = '\0';
        fclose(f);
        name[strcspn(name, "\n")] = '\0';
        return show_text(name, sizeof name);
}

json_t *stacks_holders(const struct seen_stack *s, uint32_t sock)
{
        const struct stack_state *st = s->view.st;
        const struct sock_rec *rec =
                sock > 0 && sock < st->socks.cap ? stack_sock(&s->view, sock) : NULL;
        char text[128] = "";

        for (uint32_t i = 0, procs = stack_procs(st); rec && i < procs; i++) {
                uint32_t pid = atomic_load_explicit(&st->proc[i].pid, memory_order_relaxed);
                size_t n = strlen(text);
                json_t *name;

                if (!sock_held_by(st, rec, i) || pid == 0 || pid == STACK_FORKING)
                        continue;
                name = stacks_program((int32_t)pid);
                snprintf(text + n, sizeof text - n, "%s%s/%u", n ? "," : "",
                         json_is_string(name) ? json_string_value(name) : "?", pid);
                json_decref(name);
        }
        return *text ? json_string(text) : json_null();
}
