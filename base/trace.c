/* The trace's ring and its lines of text. */
#include "base/trace.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/counters.h"

struct event_desc {
        const char *name;
        const char *field[TRACE_FIELDS];
};

static const struct event_desc events[] = {
#define X(name, ...) {#name, {__VA_ARGS__}},
        TRACE_LIST(X)
#undef X
};

void trace_init(struct trace *t, uint32_t cap)
{
        assert(cap != 0 && (cap & (cap - 1)) == 0);
        t->cap = cap;
}

void trace_enable(struct trace *t, uint64_t mask)
{
        atomic_store_explicit(&t->on, mask, memory_order_relaxed);
}

uint64_t trace_lookup(const char *name)
{
        for (unsigned i = 0; i < TRACE_COUNT; i++)
                if (strcmp(events[i].name, name) == 0)
                        return 1ull << i;
        return 0;
}

void trace_write(struct trace *t, nstime now, enum trace_event ev, uint32_t obj,
                 const uint64_t field[TRACE_FIELDS])
{
        uint64_t n = atomic_load_explicit(&t->count, memory_order_relaxed), word[TRACE_WORDS];
        struct trace_rec rec = {.at = now, .event = ev, .obj = obj};
        struct trace_slot *slot = &t->slot[n & (t->cap - 1)];

        memcpy(rec.field, field, sizeof rec.field);
        memcpy(word, &rec, sizeof word);
        /* Record n - cap is no more. A reader who sees one word of this one sees that, too:
         * release, and his acquire. */
        atomic_store_explicit(&t->begun, n + 1, memory_order_relaxed);
        for (size_t i = 0; i < TRACE_WORDS; i++)
                atomic_store_explicit(&slot->word[i], word[i], memory_order_release);
        atomic_store_explicit(&t->count, n + 1, memory_order_release);
}

bool trace_read(const struct trace *t, uint32_t cap, uint64_t i, struct trace_rec *rec,
                uint64_t *first)
{
        const struct trace_slot *slot = &t->slot[i & (cap - 1)];
        uint64_t word[TRACE_WORDS], begun;

        *first = 0;
        if (i >= atomic_load_explicit(&t->count, memory_order_acquire))
                return false;
        for (size_t k = 0; k < TRACE_WORDS; k++)
                word[k] = atomic_load_explicit(&slot->word[k], memory_order_acquire);
        memcpy(rec, word, sizeof *rec);
        begun = atomic_load_explicit(&t->begun, memory_order_relaxed);
        *first = begun > cap ? begun - cap : 0;
        return i >= *first;
}

const char *trace_name(enum trace_event ev)
{
        return (unsigned)ev < TRACE_COUNT ? events[ev].name : "?";
}

/* In the order of RFC 9293 §3.3.2, which is that of enum tcp_state. */
static const char *state_name(uint64_t s)
{
        static const char *const names[] = {
                "CLOSED",     "LISTEN",     "SYN-SENT", "SYN-RECEIVED", "ESTABLISHED", "FIN-WAIT-1",
                "FIN-WAIT-2", "CLOSE-WAIT", "CLOSING",  "LAST-ACK",     "TIME-WAIT",
        };

        return s < ARRAY_LEN(names) ? names[s] : "?";
}

static const char *proto_name(uint64_t p)
{
        return p == 1 ? "ICMP" : p == 6 ? "TCP" : p == 17 ? "UDP" : "?";
}

static int format_value(char kind, uint64_t v, char *buf, size_t n)
{
        switch (kind) {
        case 'x':
                return snprintf(buf, n, "0x%" PRIx64, v);
        case 't':
                return snprintf(buf, n, "%" PRId64 ".%03uus", (int64_t)v / 1000,
                                (unsigned)(v % 1000));
        case 'S':
                return snprintf(buf, n, "%s", state_name(v));
        case 'D':
                return snprintf(buf, n, "%s", v < DROP_COUNT ? drop_name((enum drop)v) : "?");
        case 'P':
                return snprintf(buf, n, "%s", proto_name(v));
        default:
                return snprintf(buf, n, "%" PRIu64, v);
        }
}

const char *trace_field(const struct trace_rec *rec, unsigned i, char *value, size_t n)
{
        const char *field =
                rec->event < TRACE_COUNT && i < TRACE_FIELDS ? events[rec->event].field[i] : "-";

        if (field[0] == '-')
                return NULL;
        format_value(field[0], rec->field[i], value, n);
        return field + 1;
}

int trace_format(const struct trace_rec *rec, char *buf, size_t n)
{
        int len = snprintf(buf, n, "%lld.%09lld %s", rec->at / NS_PER_S, rec->at % NS_PER_S,
                           trace_name((enum trace_event)rec->event));

        if (rec->obj != 0)
                len += snprintf(buf + MIN((size_t)len, n), n - MIN((size_t)len, n), " #%u",
                                rec->obj);
        for (unsigned i = 0; i < TRACE_FIELDS; i++) {
                size_t at = MIN((size_t)len, n);
                char value[32];
                const char *name = trace_field(rec, i, value, sizeof value);
                if (name != NULL)
                        len += snprintf(buf + at, n - at, " %s=%s", name, value);
        }
        return len;
}
