/*
 * Split-C (Culler, Dusseau, Goldstein, Krishnamurthy, Lumetta, von Eicken, Yelick, Supercomputing
 * 1993) as a C library over active messages: what the U-Net paper's parallel programs are written
 * in (§6).
 *
 * One program runs on all processors. Each has a *heap*, which all can read and write:
 *   global pointer  a processor and a place in its heap. Arithmetic stays on the processor.
 *   spread pointer  an array dealt to all processors, block by block. i is on processor i % P.
 *
 *   Split-C  here                      done when
 *   x = *g   sc_read_*, sc_bulk_read    it returns
 *   *g = x   sc_write_*, sc_bulk_write  it returns: it is there
 *   x := *g  sc_get_*, sc_bulk_get      sc_sync()
 *   *g := x  sc_put_*, sc_bulk_put      sc_sync()
 *   *g :- x  sc_store_*, sc_bulk_store  the target's sc_store_sync(), all's sc_all_store_sync()
 *
 * A store is one-way: nobody waits for it but its target. Nothing is promised of the order of two
 * accesses that are not complete. Calls poll; so other processors' accesses are served inside
 * calls, and a processor that computes for long lets them wait.
 *
 * An access outside a heap, or a processor that dies, ends the program with a message and status 1:
 * as the language, there are no error codes. One program a process, one thread.
 */
#ifndef UNET_SPLITC_H
#define UNET_SPLITC_H

#include <unet/am.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Joins the job of `unet am run`, with a heap of so many bytes. */
UNET_API void sc_init(size_t heap);
/* Waits for all processors, then leaves. The program goes on, alone. */
UNET_API void sc_exit(void);

UNET_API uint32_t sc_me(void);    /* MYPROC */
UNET_API uint32_t sc_procs(void); /* PROCS */
/* PROCSLOG: of the least power of two that is no less. */
static inline uint32_t sc_procs_log(void)
{
        uint32_t bits = 0;

        while (bits < 31 && 1u << bits < sc_procs())
                bits++;
        return bits;
}
#define sc_on_one     if (sc_me() == 0)
#define sc_on_proc(p) if (sc_me() == (p))
UNET_API double sc_seconds(void); /* get_seconds(): a clock of this host */
UNET_API void sc_poll(void);
UNET_API struct uam *sc_am(void);

/* ---- the heap ----
 *
 * All processors allocate alike, so that an object is at the same place in each heap. Memory is
 * zero at first and aligned to 64 bytes. */
UNET_API uint64_t sc_all_alloc(size_t bytes);
UNET_API void *sc_at(uint64_t off); /* our own */
/* Everything allocated after a mark is free again. */
UNET_API uint64_t sc_mark(void);
UNET_API void sc_release(uint64_t mark);

typedef struct {
        uint64_t off;
        uint32_t proc;
} sc_gptr;
static inline sc_gptr sc_global(uint32_t proc, uint64_t off)
{
        sc_gptr g;

        g.off = off;
        g.proc = proc;
        return g;
}
static inline uint32_t sc_to_proc(sc_gptr g)
{
        return g.proc;
}
/* What lies there in our own heap: to be used where we are the pointer's processor. */
static inline void *sc_to_local(sc_gptr g)
{
        return sc_at(g.off);
}
/* The processor's object that lies where this one does in our heap. */
UNET_API sc_gptr sc_to_global(uint32_t proc, const void *local);
static inline sc_gptr sc_gadd(sc_gptr g, int64_t bytes)
{
        g.off += (uint64_t)bytes;
        return g;
}

typedef struct {
        uint64_t off, block, at; /* at: which block it points to */
} sc_sptr;
/* n blocks of so many bytes, dealt to the processors in turn (all_spread_malloc; sc_release() is
 * all_spread_free). */
UNET_API sc_sptr sc_all_spread(size_t n, size_t block);
/* To i blocks behind it: on the next processor, and so on round all of them. */
static inline sc_sptr sc_sadd(sc_sptr s, int64_t i)
{
        s.at += (uint64_t)i;
        return s;
}
UNET_API sc_gptr sc_spread(sc_sptr s, uint64_t i); /* block i from where it points */

/* ---- bulk access ----
 *
 * A put's or store's source may be changed at once, unless it is in the heap: then not before
 * sc_sync(), for stores sc_all_store_sync(). */
UNET_API void sc_bulk_read(void *to, sc_gptr from, size_t n);
UNET_API void sc_bulk_write(sc_gptr to, const void *from, size_t n);
UNET_API void sc_bulk_get(void *to, sc_gptr from, size_t n);
UNET_API void sc_bulk_put(sc_gptr to, const void *from, size_t n);
UNET_API void sc_bulk_store(sc_gptr to, const void *from, size_t n);

UNET_API void sc_sync(void);
UNET_API int sc_is_sync(void); /* whether sc_sync() would not wait; polls */
/* Until n bytes more have been stored here. */
UNET_API void sc_store_sync(uint64_t n);
UNET_API void sc_all_store_sync(void);
/* The same without waiting: called again until it is not 0. Until then the processor stores
 * nothing. */
UNET_API int sc_is_all_store_sync(void);
UNET_API void sc_barrier(void);

/* ---- words ---- */

#define SC_WORDS(X)      \
        X(i8, int8_t)    \
        X(u8, uint8_t)   \
        X(i16, int16_t)  \
        X(u16, uint16_t) \
        X(i32, int32_t)  \
        X(u32, uint32_t) \
        X(i64, int64_t)  \
        X(u64, uint64_t) \
        X(f32, float)    \
        X(f64, double)
#define SC_WORD(name, type)                                      \
        static inline type sc_read_##name(sc_gptr from)          \
        {                                                        \
                type v;                                          \
                sc_bulk_read(&v, from, sizeof v);                \
                return v;                                        \
        }                                                        \
        static inline void sc_write_##name(sc_gptr to, type v)   \
        {                                                        \
                sc_bulk_write(to, &v, sizeof v);                 \
        }                                                        \
        static inline void sc_get_##name(type *to, sc_gptr from) \
        {                                                        \
                sc_bulk_get(to, from, sizeof *to);               \
        }                                                        \
        static inline void sc_put_##name(sc_gptr to, type v)     \
        {                                                        \
                sc_bulk_put(to, &v, sizeof v);                   \
        }                                                        \
        static inline void sc_store_##name(sc_gptr to, type v)   \
        {                                                        \
                sc_bulk_store(to, &v, sizeof v);                 \
        }
SC_WORDS(SC_WORD)
#undef SC_WORD

/* ---- at the owner, in one step; returns what was there ---- */
UNET_API int64_t sc_fetch_add(sc_gptr at, int64_t v);
UNET_API int64_t sc_fetch_min(sc_gptr at, int64_t v);
UNET_API int64_t sc_compare_swap(sc_gptr at, int64_t expected, int64_t v);
/* atomic(fn, ...): functions of the program, of 8 bytes of the heap; all processors say alike which
 * has which number. They obey the rules of handlers. */
#define SC_ATOMICS 32
typedef int64_t sc_atomic_fn(void *at, int64_t a, int64_t b);
UNET_API void sc_all_atomic(unsigned number, sc_atomic_fn *fn);
UNET_API int64_t sc_atomic(unsigned number, sc_gptr at, int64_t a, int64_t b);

/* ---- all together ----
 *
 * all_reduce_to_one_* and all_reduce_to_all_*: each processor gets the value. */
UNET_API void sc_all_bcast(uint32_t root, void *buf, size_t n);
UNET_API int64_t sc_all_reduce_i64(enum uam_op op, int64_t v);
UNET_API double sc_all_reduce_f64(enum uam_op op, double v);
UNET_API int64_t sc_all_scan_i64(enum uam_op op, int64_t v);
UNET_API double sc_all_scan_f64(enum uam_op op, double v);
/* bulk_all_reduce_*: n values, each with the others' in its place. */
UNET_API void sc_bulk_all_reduce_i64(enum uam_op op, int64_t *v, size_t n);
UNET_API void sc_bulk_all_reduce_f64(enum uam_op op, double *v, size_t n);

#ifdef __cplusplus
}
#endif

#endif
