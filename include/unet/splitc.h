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
static inline sc_gptr sc_gadd(sc_gptr g, int64_t bytes)
{
        g.off += (uint64_t)bytes;
        return g;
}

typedef struct {
        uint64_t off, block;
} sc_sptr;
/* n blocks of so many bytes, dealt to the processors in turn (all_spread_malloc). */
UNET_API sc_sptr sc_all_spread(size_t n, size_t block);
UNET_API sc_gptr sc_spread(sc_sptr s, uint64_t i); /* block i */

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
/* Until n bytes more have been stored here. */
UNET_API void sc_store_sync(uint64_t n);
UNET_API void sc_all_store_sync(void);
UNET_API void sc_barrier(void);

/* ---- words ---- */

#define SC_WORDS(X) X(i32, int32_t) X(u32, uint32_t) X(i64, int64_t) X(u64, uint64_t) X(f64, double)
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

/* ---- all together ---- */
UNET_API void sc_all_bcast(uint32_t root, void *buf, size_t n);
UNET_API int64_t sc_all_reduce_i64(enum uam_op op, int64_t v);
UNET_API double sc_all_reduce_f64(enum uam_op op, double v);
UNET_API int64_t sc_all_scan_i64(enum uam_op op, int64_t v);

#ifdef __cplusplus
}
#endif

#endif
