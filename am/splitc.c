/*
 * Split-C over active messages. A processor's heap is its endpoint's transmit part, so that bulk
 * data leaves it without a copy.
 *
 *      read, get     uam_get()                     put, write    uam_put() with an event
 *      store         a long message whose handler counts the bytes here
 *      atomics       a request with the operation, a reply with what was there
 */
#include <unet/splitc.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "am/am_int.h"
#include "base/clock.h"

enum { ID_STORE = AM_ID_SC, ID_ATOMIC = ID_STORE + 2, ID_WAS, ID_QUIET };
/* Numbers of atomic operations; the program's follow. */
enum { FETCH_ADD, FETCH_MIN, COMPARE_SWAP, OWN_ATOMICS };
#define STEPS 32u /* log2 of the processors, at most */
#define ALIGN 64u

/* A process is one processor: Split-C has no handle. */
static struct {
        struct uam *am;
        uint8_t *heap;
        size_t bytes;
        uint64_t used;
        struct uam_event open; /* gets and puts since the last sync */
        uint32_t phase;        /* calls of sc_all_store_sync(); others may be one ahead */
        uint64_t stored[2];    /* bytes that others stored here in a phase, not waited for yet */
        bool quiet;            /* what we stored in this phase has arrived; */
        uint32_t step;         /* so has what the 2^step - 1 processors before us stored */
        bool told[2][STEPS];   /* the one 2^step before us has got to this step, in a phase */
        sc_atomic_fn *atomic[SC_ATOMICS];
        bool was_there;
        int64_t was;
} sc;

static void must(int err, const char *what)
{
        if (err == 0)
                return;
        fflush(stdout);
        fprintf(stderr, "split-c: processor %u: %s: %s\n", sc.am != NULL ? uam_rank(sc.am) : 0,
                what, strerror(-err));
        exit(1);
}

/* ---- handlers ---- */

static void on_store(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                     void *ctx)
{
        *(uint64_t *)ctx += len;
}

static void on_was(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                   void *ctx)
{
        sc.was = (int64_t)arg[0];
        sc.was_there = true;
}

static bool is_atomic(uint64_t op)
{
        return op < OWN_ATOMICS ||
               (op - OWN_ATOMICS < SC_ATOMICS && sc.atomic[op - OWN_ATOMICS] != NULL);
}

static int64_t apply(uint64_t op, uint64_t off, int64_t a, int64_t b)
{
        int64_t was, now;

        if (op >= OWN_ATOMICS)
                return sc.atomic[op - OWN_ATOMICS](sc.heap + off, a, b);
        memcpy(&was, sc.heap + off, sizeof was);
        now = op == FETCH_ADD   ? (int64_t)((uint64_t)was + (uint64_t)a)
              : op == FETCH_MIN ? MIN(was, a)
              : was == a        ? b
                                : was;
        memcpy(sc.heap + off, &now, sizeof now);
        return was;
}

static bool in_heap(uint64_t off, size_t n)
{
        return off <= sc.bytes && n <= sc.bytes - off;
}

static void on_atomic(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                      void *ctx)
{
        uam_arg was;

        if (nargs != 4 || !is_atomic(arg[0]) || !in_heap(arg[1], 8)) {
                am_cut_off(t->peer, -ERANGE);
                return;
        }
        was = (uam_arg)apply(arg[0], arg[1], (int64_t)arg[2], (int64_t)arg[3]);
        am_reply_own(t, ID_WAS, &was, 1);
}

static void on_told(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                    void *ctx)
{
        if (nargs != 2 || arg[0] > 1 || arg[1] >= STEPS)
                am_cut_off(t->peer, -ERANGE);
        else
                sc.told[arg[0]][arg[1]] = true;
}

/* Somebody who was needed has gone: no program can go on from here. */
static void on_lost(void *arg, uint32_t rank, int err)
{
        fprintf(stderr, "split-c: processor %u lost processor %u\n", uam_rank(sc.am), rank);
        must(err, "lost");
}

/* ---- starting ---- */

void sc_init(size_t heap)
{
        const struct uam_job_opts o = {.memory = heap};
        static const unsigned reply = UAM_SHORT | UAM_REPLY;

        must(uam_job_open(&o, &sc.am), "cannot join the job");
        sc.heap = uam_memory(sc.am, &sc.bytes);
        sc.used = 0;
        for (int i = 0; i < 2; i++)
                sc.am->handler[ID_STORE + i] =
                        (struct am_handler){on_store, &sc.stored[i], UAM_LONG | UAM_REQUEST};
        sc.am->handler[ID_ATOMIC] = (struct am_handler){on_atomic, NULL, UAM_SHORT | UAM_REQUEST};
        sc.am->handler[ID_QUIET] = (struct am_handler){on_told, NULL, UAM_SHORT | UAM_REQUEST};
        sc.am->handler[ID_WAS] = (struct am_handler){on_was, NULL, reply};
        uam_segment(sc.am, sc.heap, sc.bytes);
        uam_on_lost(sc.am, on_lost, NULL);
        sc_barrier();
}

void sc_exit(void)
{
        sc_all_store_sync();
        uam_on_lost(sc.am, NULL, NULL);
        uam_job_close(sc.am);
        sc.am = NULL;
}

uint32_t sc_me(void)
{
        return sc.am->o.rank;
}

uint32_t sc_procs(void)
{
        return sc.am->o.ranks;
}

double sc_seconds(void)
{
        return (double)clock_now() / 1e9;
}

void sc_poll(void)
{
        uam_poll(sc.am);
}

struct uam *sc_am(void)
{
        return sc.am;
}

/* ---- the heap ---- */

uint64_t sc_all_alloc(size_t bytes)
{
        uint64_t at = sc.used;

        if (bytes > sc.bytes - at)
                must(-ENOMEM, "the heap is full");
        sc.used = MIN((at + bytes + ALIGN - 1) / ALIGN * ALIGN, sc.bytes);
        return at;
}

void *sc_at(uint64_t off)
{
        return sc.heap + off;
}

sc_gptr sc_to_global(uint32_t proc, const void *local)
{
        return sc_global(proc, (uint64_t)((const uint8_t *)local - sc.heap));
}

uint64_t sc_mark(void)
{
        return sc.used;
}

void sc_release(uint64_t mark)
{
        sc.used = mark;
}

sc_sptr sc_all_spread(size_t n, size_t block)
{
        size_t each = (n + sc_procs() - 1) / sc_procs();

        if (block != 0 && each > sc.bytes / block)
                must(-ENOMEM, "the heap is full");
        return (sc_sptr){.off = sc_all_alloc(each * block), .block = block};
}

sc_gptr sc_spread(sc_sptr s, uint64_t i)
{
        i += s.at;
        return sc_global((uint32_t)(i % sc_procs()), s.off + i / sc_procs() * s.block);
}

/* ---- access ---- */

static void *own(sc_gptr g, size_t n)
{
        if (!in_heap(g.off, n))
                must(-ERANGE, "outside the heap");
        return sc.heap + g.off;
}

void sc_bulk_get(void *to, sc_gptr from, size_t n)
{
        if (from.proc == sc_me())
                memmove(to, own(from, n), n);
        else
                must(uam_get(sc.am, from.proc, from.off, to, n, &sc.open), "get");
}

void sc_bulk_put(sc_gptr to, const void *from, size_t n)
{
        if (to.proc == sc_me())
                memmove(own(to, n), from, n);
        else
                must(uam_put(sc.am, to.proc, to.off, from, n, &sc.open), "put");
}

static void wait_event(const struct uam_event *e, const char *what)
{
        uam_wait_for(sc.am, e->left == 0);
        must(e->left == 0 ? e->err : -EDEADLK, what);
}

void sc_sync(void)
{
        wait_event(&sc.open, "sync");
}

int sc_is_sync(void)
{
        uam_poll(sc.am);
        must(sc.open.err, "sync");
        return sc.open.left == 0;
}

void sc_bulk_read(void *to, sc_gptr from, size_t n)
{
        struct uam_event e = {0};

        if (from.proc == sc_me()) {
                memmove(to, own(from, n), n);
                return;
        }
        must(uam_get(sc.am, from.proc, from.off, to, n, &e), "read");
        wait_event(&e, "read");
}

void sc_bulk_write(sc_gptr to, const void *from, size_t n)
{
        struct uam_event e = {0};

        if (to.proc == sc_me()) {
                memmove(own(to, n), from, n);
                return;
        }
        must(uam_put(sc.am, to.proc, to.off, from, n, &e), "write");
        wait_event(&e, "write");
}

/* Small ones are copied into the message; of others in the heap the event says when they
 * have left. */
void sc_bulk_store(sc_gptr to, const void *from, size_t n)
{
        struct uam_event *e =
                n > AM_INLINE - AM_HDR - AM_PLACE && am_lendable(sc.am, from, n) ? &sc.open : NULL;

        if (to.proc == sc_me()) {
                memmove(own(to, n), from, n);
                sc.stored[sc.phase % 2] += n;
        } else {
                must(am_request_long(sc.am, to.proc, ID_STORE + sc.phase % 2, from, n, to.off, e),
                     "store");
        }
}

void sc_store_sync(uint64_t n)
{
        uint64_t *stored = &sc.stored[sc.phase % 2];

        uam_wait_for(sc.am, *stored >= n);
        must(*stored >= n ? 0 : -EDEADLK, "store_sync");
        *stored -= n;
}

/* Our own stores have arrived when they are acknowledged. */
static bool own_quiet(void)
{
        int err = uam_flush(sc.am, UAM_ALL, 0);

        must(err != -ETIMEDOUT ? err : 0, "all_store_sync");
        return err == 0 && sc_is_sync();
}

static void tell(void)
{
        const uam_arg arg[2] = {sc.phase % 2, sc.step};

        if (1u << sc.step < sc_procs())
                must(am_request_own(sc.am, (sc_me() + (1u << sc.step)) % sc_procs(), ID_QUIET, arg,
                                    2),
                     "all_store_sync");
}

/* Each knows of its own stores; of all, by as many steps as a barrier by dissemination has. */
int sc_is_all_store_sync(void)
{
        bool *told = sc.told[sc.phase % 2];

        uam_poll(sc.am);
        if (!sc.quiet) {
                sc.quiet = own_quiet();
                if (!sc.quiet)
                        return 0;
                tell();
        }
        while (1u << sc.step < sc_procs()) {
                if (!told[sc.step])
                        return 0;
                told[sc.step++] = false;
                tell();
        }
        sc.quiet = false;
        sc.step = 0;
        sc.stored[sc.phase++ % 2] = 0;
        return 1;
}

void sc_all_store_sync(void)
{
        uam_wait_for(sc.am, sc_is_all_store_sync());
}

void sc_barrier(void)
{
        must(uam_barrier(sc.am), "barrier");
}

/* ---- at the owner ---- */

static int64_t atomic(uint64_t op, sc_gptr at, int64_t a, int64_t b)
{
        uam_arg arg[4] = {op, at.off, (uam_arg)a, (uam_arg)b};

        if (at.proc == sc_me()) {
                own(at, sizeof a);
                return apply(op, at.off, a, b);
        }
        sc.was_there = false;
        must(am_request_own(sc.am, at.proc, ID_ATOMIC, arg, 4), "atomic");
        uam_wait_for(sc.am, sc.was_there);
        return sc.was;
}

/* Nobody asks for it before all know it. */
void sc_all_atomic(unsigned number, sc_atomic_fn *fn)
{
        must(number < SC_ATOMICS ? 0 : -EINVAL, "all_atomic");
        sc.atomic[number] = fn;
        sc_barrier();
}

int64_t sc_atomic(unsigned number, sc_gptr at, int64_t a, int64_t b)
{
        must(number < SC_ATOMICS && sc.atomic[number] != NULL ? 0 : -EINVAL, "atomic");
        return atomic(OWN_ATOMICS + number, at, a, b);
}

int64_t sc_fetch_add(sc_gptr at, int64_t v)
{
        return atomic(FETCH_ADD, at, v, 0);
}

int64_t sc_fetch_min(sc_gptr at, int64_t v)
{
        return atomic(FETCH_MIN, at, v, 0);
}

int64_t sc_compare_swap(sc_gptr at, int64_t expected, int64_t v)
{
        return atomic(COMPARE_SWAP, at, expected, v);
}

/* ---- all together ---- */

void sc_all_bcast(uint32_t root, void *buf, size_t n)
{
        must(uam_broadcast(sc.am, root, buf, n), "broadcast");
}

int64_t sc_all_reduce_i64(enum uam_op op, int64_t v)
{
        must(uam_reduce_i64(sc.am, op, v, &v), "reduce");
        return v;
}

double sc_all_reduce_f64(enum uam_op op, double v)
{
        must(uam_reduce_f64(sc.am, op, v, &v), "reduce");
        return v;
}

int64_t sc_all_scan_i64(enum uam_op op, int64_t v)
{
        must(uam_scan_i64(sc.am, op, v, &v), "scan");
        return v;
}

double sc_all_scan_f64(enum uam_op op, double v)
{
        must(uam_scan_f64(sc.am, op, v, &v), "scan");
        return v;
}

void sc_bulk_all_reduce_i64(enum uam_op op, int64_t *v, size_t n)
{
        must(am_reduce_many_i64(sc.am, op, v, n), "reduce");
}

void sc_bulk_all_reduce_f64(enum uam_op op, double *v, size_t n)
{
        must(am_reduce_many_f64(sc.am, op, v, n), "reduce");
}
