/*
 * GAM 1.1 over <unet/am.h>: handlers are offsets from the program's begin, remote addresses offsets
 * into its data.
 *
 * What comes from a peer is checked as far as it can be: a handler lies in the program's text, a
 * store in its data. That it is the begin of a function nobody can know; the nodes of a job trust
 * each other so far.
 */
#include <unet/gam.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "am/am_int.h"

/* A reply's is its request's + GAM_REPLY. */
enum { ID_REQUEST, ID_REPLY, ID_STORE, ID_REQUEST_DF, ID_REPLY_DF };

struct get {
        struct get *next;
        struct uam_event event;
        vnn_t dest;
        void *lva, *arg;
        int nbytes;
        handler_mem_t fn;
};

/* A process is one node: GAM has no handle. */
static struct {
        struct uam *am;
        struct gam_image image;
        struct uam_token *token; /* of the handler that runs */
        struct get *gets;
} gam;

static int done(int err, const char *what)
{
        if (err != 0)
                fprintf(stderr, "gam: node %d: %s: %s\n", gam.am != NULL ? gam_rank() : 0, what,
                        strerror(-err));
        return err == 0 ? 0 : -1;
}

/* ---- handlers ---- */

static uam_arg to_offset(gam_fn fn)
{
        return (uam_arg)((uintptr_t)fn - (uintptr_t)gam.image.text);
}

/* NULL: not in the text. */
static gam_fn to_function(uam_arg off)
{
        return off < (uam_arg)(gam.image.text_end - gam.image.text)
                       ? (gam_fn)((uintptr_t)gam.image.text + off)
                       : NULL;
}

static void call(gam_fn fn, vnn_t src, const uam_arg *a, int n)
{
        switch (n) {
        case 0:
                ((handler_0_t)fn)(src);
                break;
        case 1:
                ((handler_1_t)fn)(src, (long)a[0]);
                break;
        case 2:
                ((handler_2_t)fn)(src, (long)a[0], (long)a[1]);
                break;
        case 3:
                ((handler_3_t)fn)(src, (long)a[0], (long)a[1], (long)a[2]);
                break;
        case 4:
                ((handler_4_t)fn)(src, (long)a[0], (long)a[1], (long)a[2], (long)a[3]);
                break;
        default:
                ((handler_5_t)fn)(src, (long)a[0], (long)a[1], (long)a[2], (long)a[3], (long)a[4]);
        }
}

static void on_message(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                       void *ctx)
{
        gam_fn fn = nargs >= 1 && nargs <= 6 ? to_function(arg[0]) : NULL;

        if (fn == NULL) {
                am_cut_off(t->peer, -EBADRQC);
                return;
        }
        gam.token = t;
        call(fn, (vnn_t)uam_token_rank(t), arg + 1, nargs - 1);
        gam.token = NULL;
}

static void on_double(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                      void *ctx)
{
        gam_fn fn = nargs == 4 ? to_function(arg[0]) : NULL;
        double d;

        if (fn == NULL) {
                am_cut_off(t->peer, -EBADRQC);
                return;
        }
        memcpy(&d, &arg[3], sizeof d);
        gam.token = t;
        ((handler_df_t)fn)((vnn_t)uam_token_rank(t), (long)arg[1], (long)arg[2], d);
        gam.token = NULL;
}

static void on_store(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                     void *ctx)
{
        handler_mem_t fn = nargs == 2 && arg[0] != 0 ? (handler_mem_t)to_function(arg[0]) : NULL;

        if (nargs != 2 || (arg[0] != 0 && fn == NULL)) {
                am_cut_off(t->peer, -EBADRQC);
                return;
        }
        if (fn == NULL)
                return;
        gam.token = t;
        fn((vnn_t)uam_token_rank(t), data, (int)len, (void *)(uintptr_t)arg[1]);
        gam.token = NULL;
}

static void on_lost(void *arg, uint32_t rank, int err)
{
        fprintf(stderr, "gam: node %d lost node %u: %s\n", gam_rank(), rank, strerror(-err));
        exit(1);
}

/* ---- the calls ---- */

int gam_enable(const struct gam_image *image)
{
        int err = uam_job_open(NULL, &gam.am);

        if (err != 0)
                return done(err, "am_enable");
        gam.image = *image;
        uam_register(gam.am, ID_REQUEST, on_message, UAM_SHORT | UAM_REQUEST, NULL);
        uam_register(gam.am, ID_REPLY, on_message, UAM_SHORT | UAM_REPLY, NULL);
        uam_register(gam.am, ID_REQUEST_DF, on_double, UAM_SHORT | UAM_REQUEST, NULL);
        uam_register(gam.am, ID_REPLY_DF, on_double, UAM_SHORT | UAM_REPLY, NULL);
        uam_register(gam.am, ID_STORE, on_store, UAM_LONG | UAM_REQUEST | UAM_REPLY, NULL);
        uam_segment(gam.am, image->data, (size_t)(image->data_end - image->data));
        uam_on_lost(gam.am, on_lost, NULL);
        return done(uam_barrier(gam.am), "am_enable");
}

static bool all_got(void)
{
        return gam.gets == NULL;
}

static void not_in_a_handler(const char *what)
{
        if (gam.token == NULL)
                return;
        done(-EDEADLK, what);
        exit(1);
}

void gam_disable(void)
{
        not_in_a_handler("am_disable");
        while (!all_got())
                gam_sleep();
        uam_flush(gam.am, UAM_ALL, UNET_FOREVER);
        uam_barrier(gam.am);
        uam_on_lost(gam.am, NULL, NULL);
        uam_job_close(gam.am);
        gam.am = NULL;
}

int gam_rank(void)
{
        return (int)uam_rank(gam.am);
}

int gam_ranks(void)
{
        return (int)uam_ranks(gam.am);
}

/* Handlers of gets that are complete run here, as others do: in a poll. */
static void run_gets(void)
{
        struct get **at = &gam.gets;

        while (*at != NULL) {
                struct get *g = *at;
                if (g->event.left != 0) {
                        at = &g->next;
                        continue;
                }
                *at = g->next;
                if (g->fn != NULL)
                        g->fn(g->dest, g->lva, g->nbytes, g->arg);
                free(g);
                at = &gam.gets; /* the handler may have begun others */
        }
}

void gam_poll(void)
{
        not_in_a_handler("am_poll");
        uam_poll(gam.am);
        run_gets();
}

void gam_sleep(void)
{
        not_in_a_handler("am_wait_for");
        uam_pause(gam.am);
        run_gets();
}

int gam_sync(void)
{
        return done(uam_barrier(gam.am), "lam_sync_all");
}

void gam_exit(int code)
{
        if (code == 0 && gam.am != NULL)
                gam_disable();
        exit(code);
}

/* ID_REQUEST or ID_REPLY of a kind of messages. */
static int send_short(int what, vnn_t dest, unsigned id, const uam_arg *arg, int nargs)
{
        if (what == GAM_REQUEST)
                return done(uam_request_short(gam.am, (uint32_t)dest, id, 0, arg, nargs),
                            "am_request");
        if (gam.token == NULL || (uint32_t)dest != uam_token_rank(gam.token))
                return done(-EINVAL, "am_reply");
        return done(uam_reply_short(gam.token, id + GAM_REPLY, arg, nargs), "am_reply");
}

int gam_send(int what, vnn_t dest, gam_fn fn, int nargs, long a0, long a1, long a2, long a3,
             long a4)
{
        const uam_arg arg[6] = {to_offset(fn), (uam_arg)a0, (uam_arg)a1,
                                (uam_arg)a2,   (uam_arg)a3, (uam_arg)a4};

        return send_short(what, dest, ID_REQUEST, arg, nargs + 1);
}

int gam_send_df(int what, vnn_t dest, handler_df_t fn, long a0, long a1, double a2)
{
        uam_arg arg[4] = {to_offset((gam_fn)fn), (uam_arg)a0, (uam_arg)a1};

        memcpy(&arg[3], &a2, sizeof a2);
        return send_short(what, dest, ID_REQUEST_DF, arg, 4);
}

/* A static object's place in the data; -EFAULT: it is none. */
static int to_place(const void *rva, int nbytes, uint64_t *off)
{
        uintptr_t at = (uintptr_t)rva, from = (uintptr_t)gam.image.data,
                  to = (uintptr_t)gam.image.data_end;

        if (nbytes < 0 || at < from || at > to || (size_t)nbytes > to - at)
                return -EFAULT;
        *off = at - from;
        return 0;
}

int gam_store(vnn_t dest, const void *lva, void *rva, int nbytes, handler_mem_t fn, void *arg)
{
        const uam_arg a[2] = {fn != NULL ? to_offset((gam_fn)fn) : 0, (uam_arg)(uintptr_t)arg};
        uint64_t off;
        int err = to_place(rva, nbytes, &off);

        if (err == 0)
                err = uam_request_long(gam.am, (uint32_t)dest, ID_STORE, 0, lva, (size_t)nbytes,
                                       off, NULL, a, 2);
        return done(err, "am_store");
}

int gam_reply_store(vnn_t dest, const void *lva, void *rva, int nbytes, handler_mem_t fn, void *arg)
{
        const uam_arg a[2] = {fn != NULL ? to_offset((gam_fn)fn) : 0, (uam_arg)(uintptr_t)arg};
        uint64_t off;
        int err = to_place(rva, nbytes, &off);

        if (err == 0 && (gam.token == NULL || (uint32_t)dest != uam_token_rank(gam.token)))
                err = -EINVAL;
        if (err == 0)
                err = uam_reply_long(gam.token, ID_STORE, lva, (size_t)nbytes, off, a, 2);
        return done(err, "am_reply_xfer");
}

int gam_get(vnn_t dest, void *rva, void *lva, int nbytes, handler_mem_t fn, void *arg)
{
        struct get *g = malloc(sizeof *g);
        uint64_t off;
        int err = g == NULL ? -ENOMEM : to_place(rva, nbytes, &off);

        if (err != 0) {
                free(g);
                return done(err, "am_get");
        }
        *g = (struct get){
                .next = gam.gets, .dest = dest, .lva = lva, .arg = arg, .nbytes = nbytes, .fn = fn};
        gam.gets = g;
        err = uam_get(gam.am, (uint32_t)dest, off, lva, (size_t)nbytes, &g->event);
        if (err != 0)
                g->fn = NULL; /* pieces of it may be under way */
        return done(err, "am_get");
}
