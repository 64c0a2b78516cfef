/*
 * The trace: named events with fields, in a ring of fixed size in the stack's shared memory. A
 * person (`unet trace`) and a test read the same one.
 *
 * Off by default; an event then costs one load and one branch that is never taken. One list gives
 * each event its name and the names of its fields, as counters.h does for drops. A field's first
 * letter says how it is shown:
 *
 *      u number   x hexadecimal  t nanoseconds  S TCP state  D drop reason  P IP protocol  - unused
 *
 * Written under the stack's lock, read by anybody: trace_read() gives a record that was whole.
 */
#ifndef BASE_TRACE_H
#define BASE_TRACE_H

#include <stdatomic.h>

#include "base/base.h"

#define TRACE_FIELDS 4

/* X(name, field 0, 1, 2, 3) */
#define TRACE_LIST(X)                                         \
        X(DROP, "Dwhy", "Pproto", "ulen", "uchannel")         \
        X(TCP_STATE, "Sfrom", "Sto", "-", "-")                \
        X(TCP_IN, "useq", "uack", "ulen", "xflags")           \
        X(TCP_OUT, "useq", "uack", "ulen", "xflags")          \
        X(TCP_RETRANSMIT, "useq", "ulen", "ucwnd", "uflight") \
        X(TCP_RECOVERY, "ucwnd", "ussthresh", "uflight", "-") \
        X(TCP_TLP, "useq", "ulen", "-", "-")                  \
        X(TCP_RTO, "trto", "ubackoff", "uflight", "-")        \
        X(TCP_WINDOW, "uwnd", "uflight", "-", "-")            \
        X(TCP_PROBE, "uprobes", "trto", "-", "-")             \
        X(UDP_IN, "usport", "udport", "ulen", "-")            \
        X(UDP_OUT, "usport", "udport", "ulen", "-")           \
        X(ICMP_IN, "utype", "ucode", "ulen", "-")             \
        X(RING, "uchannel", "-", "-", "-")                    \
        X(WAKE, "xwaiters", "-", "-", "-")                    \
        X(STACK_RECOVER, "ubroken", "-", "-", "-")

/* clang-format off */
enum trace_event {
#define X(name, ...) TRACE_##name,
        TRACE_LIST(X)
#undef X
        TRACE_COUNT
};
/* clang-format on */
static_assert(TRACE_COUNT <= 64, "one bit each in struct trace");

struct trace_rec {
        nstime at;
        uint32_t event; /* enum trace_event */
        uint32_t obj;   /* which connection, listener or pcb; 0: none */
        uint64_t field[TRACE_FIELDS];
};
static_assert(sizeof(struct trace_rec) == 48, "read by other processes");
#define TRACE_WORDS (sizeof(struct trace_rec) / sizeof(uint64_t))

/* A record as it lies in the ring: in words, each stored and loaded at once. */
struct trace_slot {
        _Atomic uint64_t word[TRACE_WORDS];
};

struct trace {
        _Atomic uint64_t on;    /* bit of each event that is recorded; 0: off */
        _Atomic uint64_t count; /* events ever recorded; record i is in slot[i % cap] */
        _Atomic uint64_t begun; /* count, or count + 1 while a record is being written */
        uint32_t cap;           /* a power of two */
        uint32_t pad;
        struct trace_slot slot[];
};

static inline size_t trace_bytes(uint32_t cap)
{
        return sizeof(struct trace) + (size_t)cap * sizeof(struct trace_slot);
}
/* Makes an empty trace, off, in zeroed memory; cap is a power of two. */
void trace_init(struct trace *t, uint32_t cap);
/* Which events are recorded from now on: a mask of 1 << event, 0 none, UINT64_MAX all. Anybody may
 * call it.
 */
void trace_enable(struct trace *t, uint64_t events);
/* The mask bit of a name as in the list, 0: no such event. */
uint64_t trace_lookup(const char *name);
void trace_write(struct trace *t, nstime now, enum trace_event ev, uint32_t obj,
                 const uint64_t field[TRACE_FIELDS]);

/* Records an event with up to four fields when it is on; t may be NULL. */
#define trace(t, now, ev, obj, ...)                                                                \
        do {                                                                                       \
                struct trace *t_ = (t);                                                            \
                if (unlikely(t_ != NULL && (atomic_load_explicit(&t_->on, memory_order_relaxed) >> \
                                            (ev)&1) != 0))                                         \
                        trace_write(t_, (now), (ev), (obj),                                        \
                                    (const uint64_t[TRACE_FIELDS]){__VA_ARGS__});                  \
        } while (0)

/* Copies record number i (counted from the first ever). False when it is not there yet or was
 * written over; *first is then the oldest that can still be had. `cap` is what trace_init() was
 * given, from a place the writer cannot change. */
bool trace_read(const struct trace *t, uint32_t cap, uint64_t i, struct trace_rec *rec,
                uint64_t *first);
const char *trace_name(enum trace_event ev);
/* Field i of an event: its name, NULL when it has none such, and its value as text. */
const char *trace_field(const struct trace_rec *rec, unsigned i, char *value, size_t n);
/* One line without newline, as snprintf: "12.345678901 TCP_STATE #7 from=SYN-SENT
 * to=ESTABLISHED". */
int trace_format(const struct trace_rec *rec, char *buf, size_t n);

#endif
