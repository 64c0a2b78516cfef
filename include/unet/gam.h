/*
 * The calls of Generic Active Messages 1.1 (Culler, Keeton, Krumbein, Liu, Mainwaring, Martin,
 * Rodrigues, Wright, Yoshikawa, 1994), under their own names, for programs written to it: what the
 * U-Net paper's UAM offers (§5). Started by `unet am run`.
 *
 * Words are `long`, so that addresses fit. Handlers are functions of the program, which all nodes
 * run: they travel as offsets from the program's begin, since its address differs from process to
 * process. Remote addresses are those of static objects: am_store(1, buf, table, ...) stores into
 * node 1's `table`, wherever that lies there. Memory of malloc() has no remote address.
 *
 * Rules of handlers are <unet/am.h>'s: who polls or waits in one ends the program with a message,
 * other calls fail. The handler of an am_get() is none of them: it runs where the program polls,
 * and may do what the program may.
 *
 * Include it in the program itself, not in a shared library: it names the program's begin and end.
 */
#ifndef UNET_GAM_H
#define UNET_GAM_H

#include <unet/am.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int vnn_t; /* a node, from 0 */
typedef void (*handler_0_t)(vnn_t src);
typedef void (*handler_1_t)(vnn_t src, long a0);
typedef void (*handler_2_t)(vnn_t src, long a0, long a1);
typedef void (*handler_3_t)(vnn_t src, long a0, long a1, long a2);
typedef void (*handler_4_t)(vnn_t src, long a0, long a1, long a2, long a3);
typedef void (*handler_5_t)(vnn_t src, long a0, long a1, long a2, long a3, long a4);
typedef void (*handler_df_t)(vnn_t src, long a0, long a1, double a2);
typedef void (*handler_mem_t)(vnn_t src, void *addr, int nbytes, void *arg);

/* ---- what the names below are made of; of no use by themselves ---- */
typedef void (*gam_fn)(void);
struct gam_image { /* the program: its text, and its data, which others may write */
        char *text, *text_end, *data, *data_end;
};
UNET_API int gam_enable(const struct gam_image *image);
UNET_API void gam_disable(void);
UNET_API int gam_rank(void);
UNET_API int gam_ranks(void);
UNET_API void gam_poll(void);
UNET_API void gam_sleep(void);
UNET_API int gam_sync(void);
enum { GAM_REQUEST, GAM_REPLY };
UNET_API int gam_send(int what, vnn_t dest, gam_fn fn, int nargs, long a0, long a1, long a2,
                      long a3, long a4);
UNET_API int gam_send_df(int what, vnn_t dest, handler_df_t fn, long a0, long a1, double a2);
UNET_API int gam_reply_store(vnn_t dest, const void *lva, void *rva, int nbytes, handler_mem_t fn,
                             void *arg);
UNET_API int gam_store(vnn_t dest, const void *lva, void *rva, int nbytes, handler_mem_t fn,
                       void *arg);
UNET_API int gam_get(vnn_t dest, void *rva, void *lva, int nbytes, handler_mem_t fn, void *arg);

/* ---- GAM 1.1 ---- */

/* Joins the nodes; before all other calls. 0 or -1. */
static inline int am_enable(void)
{
        extern char __executable_start[], etext[], data_start[], end[];
        struct gam_image image;

        image.text = __executable_start;
        image.text_end = etext;
        image.data = data_start;
        image.data_end = end;
        return gam_enable(&image);
}
/* Leaves when all nodes have called it. */
static inline void am_disable(void)
{
        gam_disable();
}
static inline vnn_t am_my_proc(void)
{
        return gam_rank();
}
static inline int am_procs(void)
{
        return gam_ranks();
}
/* Most bytes of one am_store() or am_get(). */
static inline int am_max_size(void)
{
        return 1 << 30;
}
static inline void am_poll(void)
{
        gam_poll();
}
/* Returns 1 when all nodes have called it (LAM); -1: one has gone. */
static inline int lam_sync_all(void)
{
        return gam_sync() == 0 ? 1 : -1;
}
/* Ends the program; a code other than 0 ends the job. (An extension, as gam_enable() of other
 * ports: am_enable().) */
UNET_API void gam_exit(int code);
/* Polls until the condition holds: the one way to wait. */
#define am_wait_for(cond)            \
        do {                         \
                while (!(cond))      \
                        gam_sleep(); \
        } while (0)
/* Until something has arrived, or a moment has passed. */
static inline void am_sleep(void)
{
        gam_sleep();
}

/* Runs fn(source, arguments) at the destination. 0 or -1. */
static inline int am_request_0(vnn_t dest, handler_0_t fn)
{
        return gam_send(GAM_REQUEST, dest, (gam_fn)fn, 0, 0, 0, 0, 0, 0);
}
static inline int am_request_1(vnn_t dest, handler_1_t fn, long a0)
{
        return gam_send(GAM_REQUEST, dest, (gam_fn)fn, 1, a0, 0, 0, 0, 0);
}
static inline int am_request_2(vnn_t dest, handler_2_t fn, long a0, long a1)
{
        return gam_send(GAM_REQUEST, dest, (gam_fn)fn, 2, a0, a1, 0, 0, 0);
}
static inline int am_request_3(vnn_t dest, handler_3_t fn, long a0, long a1, long a2)
{
        return gam_send(GAM_REQUEST, dest, (gam_fn)fn, 3, a0, a1, a2, 0, 0);
}
static inline int am_request_4(vnn_t dest, handler_4_t fn, long a0, long a1, long a2, long a3)
{
        return gam_send(GAM_REQUEST, dest, (gam_fn)fn, 4, a0, a1, a2, a3, 0);
}
/* (LAM) */
static inline int am_request_5(vnn_t dest, handler_5_t fn, long a0, long a1, long a2, long a3,
                               long a4)
{
        return gam_send(GAM_REQUEST, dest, (gam_fn)fn, 5, a0, a1, a2, a3, a4);
}
/* Two words and a double. */
static inline int am_request_df(vnn_t dest, handler_df_t fn, long a0, long a1, double a2)
{
        return gam_send_df(GAM_REQUEST, dest, fn, a0, a1, a2);
}
/* From a request's handler, once, to its source. */
static inline int am_reply_0(vnn_t dest, handler_0_t fn)
{
        return gam_send(GAM_REPLY, dest, (gam_fn)fn, 0, 0, 0, 0, 0, 0);
}
static inline int am_reply_1(vnn_t dest, handler_1_t fn, long a0)
{
        return gam_send(GAM_REPLY, dest, (gam_fn)fn, 1, a0, 0, 0, 0, 0);
}
static inline int am_reply_2(vnn_t dest, handler_2_t fn, long a0, long a1)
{
        return gam_send(GAM_REPLY, dest, (gam_fn)fn, 2, a0, a1, 0, 0, 0);
}
static inline int am_reply_3(vnn_t dest, handler_3_t fn, long a0, long a1, long a2)
{
        return gam_send(GAM_REPLY, dest, (gam_fn)fn, 3, a0, a1, a2, 0, 0);
}
static inline int am_reply_4(vnn_t dest, handler_4_t fn, long a0, long a1, long a2, long a3)
{
        return gam_send(GAM_REPLY, dest, (gam_fn)fn, 4, a0, a1, a2, a3, 0);
}

static inline int am_reply_df(vnn_t dest, handler_df_t fn, long a0, long a1, double a2)
{
        return gam_send_df(GAM_REPLY, dest, fn, a0, a1, a2);
}
/* A reply that is a store (LAM). It is one message: 2 KB always are. */
static inline int am_reply_xfer(vnn_t dest, void *lva, void *rva, int nbytes, handler_mem_t fn,
                                void *arg)
{
        return gam_reply_store(dest, lva, rva, nbytes, fn, arg);
}

/* A handler that does nothing. */
static inline void am_dummy(vnn_t src, void *addr, int nbytes, void *arg)
{
        (void)src;
        (void)addr;
        (void)nbytes;
        (void)arg;
}
/* Copies to the destination's static object, then runs fn(source, rva, nbytes, arg) there (NULL:
 * nothing). Returns when lva may be used again. */
static inline int am_store(vnn_t dest, void *lva, void *rva, int nbytes, handler_mem_t fn,
                           void *arg)
{
        return gam_store(dest, lva, rva, nbytes, fn, arg);
}
/* The same; efn(dest, lva, nbytes, earg) runs here when lva may be used again: before it returns.
 */
static inline int am_store_async(vnn_t dest, void *lva, void *rva, int nbytes, handler_mem_t fn,
                                 void *arg, handler_mem_t efn, void *earg)
{
        int err = gam_store(dest, lva, rva, nbytes, fn, arg);

        if (err == 0 && efn)
                efn(dest, lva, nbytes, earg);
        return err;
}
/* Fetches from the destination's static object, then runs fn(dest, lva, nbytes, arg) here, in a
 * later call. */
static inline int am_get(vnn_t dest, void *rva, void *lva, int nbytes, handler_mem_t fn, void *arg)
{
        return gam_get(dest, rva, lva, nbytes, fn, arg);
}

#ifdef __cplusplus
}
#endif

#endif
