/* Active messages between two endpoints of one process, over shared memory: what the
 * calls promise. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "am/am_int.h"
#include "tests/unit.h"

#define SEG 300000u

struct seen {
        int calls;
        uint32_t from;
        int nargs;
        uam_arg arg[UAM_ARGS];
        size_t len;
        uint8_t *data, copy[AM_GATHER];
};

struct side {
        struct unet_ep *ep;
        struct uam *am;
        uint32_t chan;
        uint8_t *seg;
        struct seen req, rep;
        int lost, lost_err;
        /* What the request's handler does besides. */
        int (*answer)(struct side *s, struct uam_token *t);
        int answered;
        struct uam_token *kept;
};

static struct side a, b;

static void note(struct seen *n, struct uam_token *t, const uam_arg *arg, int nargs, void *data,
                 size_t len)
{
        n->calls++;
        n->from = uam_token_rank(t);
        n->nargs = nargs;
        memcpy(n->arg, arg, (size_t)nargs * sizeof *arg);
        n->len = len;
        n->data = data;
        if (len != 0 && len <= sizeof n->copy)
                memcpy(n->copy, data, len);
}

static void on_request(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                       void *ctx)
{
        struct side *s = ctx;

        note(&s->req, t, arg, nargs, data, len);
        s->kept = t;
        if (s->answer != NULL)
                s->answered = s->answer(s, t);
}

static void on_reply(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                     void *ctx)
{
        struct side *s = ctx;

        note(&s->rep, t, arg, nargs, data, len);
        if (s->answer != NULL)
                s->answered = s->answer(s, t);
}

static void on_lost(void *arg, uint32_t rank, int err)
{
        struct side *s = arg;

        s->lost++;
        s->lost_err = err;
}

enum { REQ, REP };

static void open_side(struct side *s, uint32_t rank, const struct uam_opts *given)
{
        struct uam_opts o = *given;

        memset(s, 0, sizeof *s);
        o.rank = rank;
        o.ranks = MAX(o.ranks, 2u);
        assert_int_equal(unet_ep_open(NULL, &s->ep), 0);
        assert_int_equal(uam_open(s->ep, &o, &s->am), 0);
        s->seg = calloc(1, SEG);
        uam_segment(s->am, s->seg, SEG);
        uam_register(s->am, REQ, on_request, UAM_ANY & ~UAM_REPLY, s);
        uam_register(s->am, REP, on_reply, UAM_ANY & ~UAM_REQUEST, s);
        uam_on_lost(s->am, on_lost, s);
}

static void join(void)
{
        assert_int_equal(unet_chan_pair(a.ep, b.ep, &a.chan, &b.chan), 0);
        assert_int_equal(uam_connect(a.am, 1, a.chan), 0);
        assert_int_equal(uam_connect(b.am, 0, b.chan), 0);
}

static int setup(void **state)
{
        const struct uam_opts o = {0};

        open_side(&a, 0, &o);
        open_side(&b, 1, &o);
        join();
        return 0;
}

static void close_side(struct side *s)
{
        uam_close(s->am, 0);
        unet_ep_close(s->ep);
        free(s->seg);
        s->am = NULL;
        s->ep = NULL;
        s->seg = NULL;
}

static int teardown(void **state)
{
        close_side(&a);
        close_side(&b);
        return 0;
}

/* Until nobody has anything to do. */
static void settle(void)
{
        for (int quiet = 0; quiet < 3;)
                quiet = uam_poll(a.am) + uam_poll(b.am) == 0 ? quiet + 1 : 0;
}

static int answer_short(struct side *s, struct uam_token *t)
{
        return uam_reply_short(t, REP, s->req.arg, s->req.nargs);
}

static void a_request_runs_a_handler_and_its_reply_another(void **state)
{
        uam_arg arg[UAM_ARGS];

        b.answer = answer_short;
        for (int n = 0; n <= UAM_ARGS; n++) {
                for (int i = 0; i < n; i++)
                        arg[i] = UINT64_MAX / 3 * (uam_arg)(i + 1) + (uam_arg)n;
                assert_int_equal(uam_request_short(a.am, 1, REQ, 0, arg, n), 0);
                settle();
                assert_int_equal(b.req.calls, n + 1);
                assert_int_equal(b.req.from, 0);
                assert_int_equal(b.req.nargs, n);
                assert_int_equal(a.rep.calls, n + 1);
                assert_int_equal(a.rep.nargs, n);
                assert_memory_equal(a.rep.arg, arg, (size_t)n * sizeof *arg);
                assert_int_equal(b.answered, 0);
        }
}

/* A request and its reply are two messages and nothing else; nothing is kept, no timer runs. */
static void a_round_trip_is_two_messages(void **state)
{
        uam_arg arg[4] = {1, 2, 3, 4};

        b.answer = answer_short;
        for (int i = 0; i < 1000; i++) {
                assert_int_equal(uam_request_short(a.am, 1, REQ, 0, arg, 4), 0);
                assert_int_equal(uam_poll(b.am), 1);
                assert_int_equal(uam_poll(a.am), 1);
        }
        assert_int_equal(unet_ep_stat(a.ep, "NI_TX_MSGS"), 1000);
        assert_int_equal(unet_ep_stat(b.ep, "NI_TX_MSGS"), 1000);
        assert_int_equal(uam_stat(a.am, UAM_STAT_ACKS) + uam_stat(b.am, UAM_STAT_ACKS), 0);
        assert_int_equal(a.am->used_slots + b.am->used_slots, 0);
        assert_null(a.am->timed);
        assert_null(b.am->timed);
}

/* ---- rules of handlers ---- */

static int answer_twice(struct side *s, struct uam_token *t)
{
        assert_int_equal(uam_reply_short(t, REP, NULL, 0), 0);
        return uam_reply_short(t, REP, NULL, 0);
}

static int answer_request(struct side *s, struct uam_token *t)
{
        return uam_request_short(s->am, 0, REQ, 0, NULL, 0);
}

static int answer_poll(struct side *s, struct uam_token *t)
{
        assert_int_equal(uam_wait(s->am, 0), -EDEADLK);
        assert_int_equal(uam_flush(s->am, UAM_ALL, 0), -EDEADLK);
        return uam_poll(s->am);
}

static void a_handler_breaks_no_rule_unheard(void **state)
{
        b.answer = answer_twice;
        uam_request_short(a.am, 1, REQ, 0, NULL, 0);
        settle();
        assert_int_equal(b.answered, -EALREADY);
        assert_int_equal(a.rep.calls, 1);

        b.answer = answer_request;
        uam_request_short(a.am, 1, REQ, 0, NULL, 0);
        settle();
        assert_int_equal(b.answered, -EDEADLK);

        b.answer = answer_poll;
        uam_request_short(a.am, 1, REQ, 0, NULL, 0);
        settle();
        assert_int_equal(b.answered, -EDEADLK);

        b.answer = answer_short;
        a.answer = answer_short;
        uam_request_short(a.am, 1, REQ, 0, NULL, 0);
        settle();
        assert_int_equal(a.answered, -EPERM);
        assert_int_equal(uam_reply_short(b.kept, REP, NULL, 0), -EINVAL);
}

/* Nothing happens, and all goes on. */
static int answer_wait_and_close(struct side *s, struct uam_token *t)
{
        int64_t v;

        uam_wait_for(s->am, false);
        uam_close(s->am, NS_PER_S);
        uam_job_close(s->am);
        assert_int_equal(uam_pause(s->am), -EDEADLK);
        assert_int_equal(uam_put(s->am, 0, 0, "x", 1, NULL), -EDEADLK);
        assert_int_equal(uam_get(s->am, 0, 0, &v, sizeof v, &(struct uam_event){0}), -EDEADLK);
        assert_int_equal(uam_broadcast(s->am, 0, &v, sizeof v), -EDEADLK);
        assert_int_equal(uam_reduce_i64(s->am, UAM_ADD, 1, &v), -EDEADLK);
        assert_int_equal(uam_scan_i64(s->am, UAM_ADD, 1, &v), -EDEADLK);
        assert_int_equal(uam_barrier(s->am), -EDEADLK);
        return answer_short(s, t);
}

static void nothing_waits_or_closes_in_a_handler(void **state)
{
        b.answer = answer_wait_and_close;
        for (int i = 1; i <= 3; i++) {
                assert_int_equal(uam_request_short(a.am, 1, REQ, 0, NULL, 0), 0);
                settle();
                assert_int_equal(b.answered, 0);
                assert_int_equal(a.rep.calls, i);
        }
}

static void request_when_lost(void *arg, uint32_t rank, int err)
{
        struct side *s = arg;

        on_lost(arg, rank, err);
        s->answered = uam_request_short(s->am, s == &a, REQ, 0, NULL, 0);
        assert_int_equal(uam_poll(s->am), -EDEADLK);
        uam_close(s->am, 0);
}

/* It would receive into the batch that is being handled. */
static void who_is_told_of_a_lost_peer_sends_nothing(void **state)
{
        uam_on_lost(b.am, request_when_lost, &b);
        for (int i = 0; i < 5; i++)
                uam_request_short(a.am, 1, REQ, 0, NULL, 0);
        uam_request_short(a.am, 1, 99, 0, NULL, 0);
        uam_request_short(a.am, 1, REQ, 0, NULL, 0);
        settle();
        assert_int_equal(b.req.calls, 5);
        assert_int_equal(b.lost, 1);
        assert_int_equal(b.answered, -EDEADLK);
}

static void arguments_are_checked(void **state)
{
        static uint8_t big[AM_GATHER];
        uam_arg arg[UAM_ARGS + 1] = {0};

        assert_int_equal(uam_request_short(a.am, 0, REQ, 0, arg, 1), -EINVAL);
        assert_int_equal(uam_request_short(a.am, 2, REQ, 0, arg, 1), -EINVAL);
        assert_int_equal(uam_request_short(a.am, 1, UAM_HANDLERS, 0, arg, 1), -EINVAL);
        assert_int_equal(uam_request_short(a.am, 1, REQ, 0, arg, UAM_ARGS + 1), -EINVAL);
        assert_int_equal(uam_request_short(a.am, 1, REQ, 0, arg, -1), -EINVAL);
        assert_int_equal(uam_request_medium(a.am, 1, REQ, 0, big, sizeof big, NULL, 0), -EMSGSIZE);
        assert_int_equal(
                uam_request_long(a.am, 1, REQ, UAM_IMMEDIATE, big, sizeof big, 0, NULL, NULL, 0),
                -EMSGSIZE);
        assert_int_equal(uam_register(a.am, UAM_HANDLERS, on_request, UAM_ANY, NULL), -EINVAL);
        assert_int_equal(uam_register(a.am, 0, on_request, UAM_SHORT, NULL), -EINVAL);
        assert_int_equal(uam_connect(a.am, 1, a.chan), -EEXIST);
        assert_int_equal(uam_connect(a.am, 0, a.chan), -EINVAL);
        settle();
        assert_int_equal(b.req.calls, 0);
}

/* ---- data ---- */

static void fill(uint8_t *p, size_t n, unsigned seed)
{
        for (size_t i = 0; i < n; i++)
                p[i] = (uint8_t)(i * 7 + i / 251 + seed);
}

static int answer_medium(struct side *s, struct uam_token *t)
{
        return uam_reply_medium(t, REP, s->req.copy, s->req.len, s->req.arg, s->req.nargs);
}

static void medium_messages_of_every_size(void **state)
{
        static uint8_t data[AM_GATHER];
        uam_arg arg[3] = {7, 8, 9};
        size_t max = uam_max_medium(a.am, 1);

        b.answer = answer_medium;
        for (size_t n = 0; n <= max; n += n < 300 ? 1 : 97) {
                fill(data, n, (unsigned)n);
                assert_int_equal(uam_request_medium(a.am, 1, REQ, 0, data, n, arg, 3), 0);
                settle();
                assert_int_equal(b.req.len, n);
                assert_memory_equal(b.req.copy, data, n);
                assert_int_equal(a.rep.len, n);
                assert_memory_equal(a.rep.copy, data, n);
                assert_memory_equal(a.rep.arg, arg, sizeof arg);
        }
        assert_int_equal(b.answered, 0);
        am_collect(a.am);
        am_collect(b.am);
        assert_int_equal(a.am->nfree, a.am->nbufs);
        assert_int_equal(b.am->nfree, b.am->nbufs);
        assert_int_equal(b.am->reserve, b.am->o.window);
}

/* The other side runs while a long message waits for its window: in a process of its own, or here
 * in the loop. */
static void long_to(uint64_t off, const uint8_t *data, size_t n, struct uam_event *e)
{
        uam_arg arg[1] = {n};
        int before = b.req.calls;

        assert_int_equal(uam_request_long(a.am, 1, REQ, 0, data, n, off, e, arg, 1), 0);
        settle();
        assert_int_equal(b.req.calls, before + 1);
        assert_int_equal(b.req.len, n);
        assert_ptr_equal(b.req.data, b.seg + off);
        assert_memory_equal(b.seg + off, data, n);
}

static void long_messages_go_into_the_segment(void **state)
{
        static uint8_t data[100000];
        static const size_t sizes[] = {0,    1,    100,   200,   4096,  8191,
                                       8192, 8193, 65000, 65536, 100000};
        struct uam_event e = {0};
        size_t room;
        uint8_t *mem = uam_memory(a.am, &room);

        assert_true(room > sizeof data);
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
                fill(data, sizes[i], (unsigned)i);
                memcpy(mem, data, sizes[i]);
                long_to(i * 13, data, sizes[i], NULL);
                memset(b.seg, 0, SEG);
                long_to(i * 13, data, sizes[i], &e);
                assert_int_equal(e.left, 0);
                memset(b.seg, 0, SEG);
                long_to(i * 13, mem, sizes[i], &e);
                assert_int_equal(e.left, 0);
        }
        assert_int_equal(e.err, 0);
        am_collect(a.am);
        assert_int_equal(a.am->nfree, a.am->nbufs);
}

/* From the transmit part nothing is copied: no buffer is taken even for a moment. */
static void data_of_the_segment_is_not_copied(void **state)
{
        struct uam_event e = {0};

        assert_int_equal(uam_put(a.am, 1, 0, uam_memory(a.am, NULL), 60000, &e), 0);
        assert_int_equal(a.am->nfree, a.am->nbufs);
        assert_int_equal(unet_ep_stat(a.ep, "NI_TX_MSGS"), 1);
        settle();
        assert_int_equal(e.left, 0);
}

/* Deposit at an offset of the peer's segment: one copy, of the receiver's, out of the sender's
 * memory. Nothing is kept between: what the sender changes before that copy is what arrives. */
static void a_put_is_one_copy_to_its_place(void **state)
{
        enum { OFF = 4097, LEN = 60000, EDGE = 64 };
        static uint8_t data[LEN], around[EDGE];
        struct uam_event e = {0};
        uint8_t *mem = uam_memory(a.am, NULL);

        memset(b.seg, 0xee, SEG);
        memset(around, 0xee, sizeof around);
        fill(mem, LEN, 1);
        assert_int_equal(uam_put(a.am, 1, OFF, mem, LEN, &e), 0);
        fill(data, LEN, 2);
        memcpy(mem, data, LEN);
        assert_int_equal(b.seg[OFF], 0xee);
        assert_int_equal(e.left, 1);
        settle();
        assert_int_equal(e.left, 0);
        assert_memory_equal(b.seg + OFF, data, LEN);
        assert_memory_equal(b.seg + OFF - EDGE, around, EDGE);
        assert_memory_equal(b.seg + OFF + LEN, around, EDGE);
        assert_int_equal(b.req.calls, 0);
}

static void get_fetches_from_the_segment(void **state)
{
        static uint8_t data[100000], to[100000];
        static const size_t sizes[] = {1, 8, 150, 200, 8192, 8193, 100000};
        struct uam_event e = {0};

        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
                fill(data, sizes[i], (unsigned)i + 5);
                memcpy(b.seg + i, data, sizes[i]);
                memset(to, 0, sizeof to);
                assert_int_equal(uam_get(a.am, 1, i, to, sizes[i], &e), 0);
                settle();
                assert_int_equal(e.left, 0);
                assert_memory_equal(to, data, sizes[i]);
        }
        assert_int_equal(e.err, 0);
}

static int answer_nothing(struct side *s, struct uam_token *t)
{
        return uam_reply_medium(t, REP, NULL, 0, NULL, 0);
}

static void nothing_is_a_length(void **state)
{
        struct uam_event e = {0};

        b.answer = answer_nothing;
        assert_int_equal(uam_request_medium(a.am, 1, REQ, 0, NULL, 0, NULL, 0), 0);
        assert_int_equal(uam_request_long(a.am, 1, REQ, 0, NULL, 0, SEG, &e, NULL, 0), 0);
        assert_int_equal(uam_put(a.am, 1, SEG, NULL, 0, &e), 0);
        assert_int_equal(uam_get(a.am, 1, SEG, NULL, 0, &e), 0);
        settle();
        assert_int_equal(b.req.calls, 2);
        assert_int_equal(a.rep.calls, 2);
        assert_int_equal(e.left, 0);
        assert_int_equal(e.err, 0);
}

static int answer_long(struct side *s, struct uam_token *t)
{
        return uam_reply_long(t, REP, s->req.copy, s->req.len, 7, s->req.arg, s->req.nargs);
}

/* From a place and to places that are aligned to nothing, with every number of arguments. */
static void replies_can_be_long(void **state)
{
        static uint8_t data[AM_GATHER];
        uam_arg arg[UAM_ARGS] = {0};
        size_t max = uam_max_medium(a.am, 1);

        b.answer = answer_long;
        fill(data, sizeof data, 9);
        for (size_t n = 0; n <= max; n += n < 300 ? 7 : 997) {
                int nargs = (int)(n % (UAM_ARGS + 1));
                memset(a.seg, 0, SEG);
                assert_int_equal(uam_request_medium(a.am, 1, REQ, 0, data + 1, n, arg, nargs), 0);
                settle();
                assert_int_equal(b.answered, 0);
                assert_int_equal(a.rep.len, n);
                assert_int_equal(a.rep.nargs, nargs);
                assert_ptr_equal(a.rep.data, a.seg + 7);
                assert_memory_equal(a.seg + 7, data + 1, n);
        }
}

/* ---- the window ---- */

static void immediate_does_not_wait_for_the_window(void **state)
{
        for (uint32_t i = 0; i < a.am->o.window; i++)
                assert_int_equal(uam_request_short(a.am, 1, REQ, UAM_IMMEDIATE, NULL, 0), 0);
        assert_int_equal(uam_request_short(a.am, 1, REQ, UAM_IMMEDIATE, NULL, 0), -EAGAIN);
        settle();
        assert_int_equal(b.req.calls, (int)a.am->o.window);
        assert_int_equal(uam_request_short(a.am, 1, REQ, UAM_IMMEDIATE, NULL, 0), 0);
}

/* The peer takes nothing: first buffers are used up, then the window. */
static void immediate_waits_neither_for_buffers_nor_for_the_window(void **state)
{
        static const uint8_t data[4000];
        struct uam_event e = {0};
        uint32_t n = 0;

        teardown(state);
        open_side(&a, 0, &(struct uam_opts){.window = 16, .buffers = 20});
        open_side(&b, 1, &(struct uam_opts){.window = 16});
        join();
        while (uam_request_medium(a.am, 1, REQ, UAM_IMMEDIATE, data, sizeof data, NULL, 0) == 0)
                n++;
        assert_int_equal(n, 4);
        assert_int_equal(
                uam_request_medium(a.am, 1, REQ, UAM_IMMEDIATE, data, sizeof data, NULL, 0),
                -EAGAIN);
        assert_int_equal(
                uam_request_long(a.am, 1, REQ, UAM_IMMEDIATE, data, sizeof data, 0, &e, NULL, 0),
                -EAGAIN);
        assert_int_equal(e.left, 0);
        for (; uam_request_short(a.am, 1, REQ, UAM_IMMEDIATE, NULL, 0) == 0; n++)
                ;
        assert_int_equal(n, 16);
        assert_int_equal(uam_request_medium(a.am, 1, REQ, UAM_IMMEDIATE, NULL, 0, NULL, 0),
                         -EAGAIN);
        assert_int_equal(uam_request_long(a.am, 1, REQ, UAM_IMMEDIATE, NULL, 0, 0, &e, NULL, 0),
                         -EAGAIN);
        assert_int_equal(e.left, 0);
        settle();
        assert_int_equal(b.req.calls, 16);
}

/* Whoever never takes replies cannot have more than a window of them made. */
static void a_window_of_requests_is_all_that_waits(void **state)
{
        b.answer = answer_short;
        for (int round = 0; round < 100; round++) {
                while (uam_request_short(a.am, 1, REQ, UAM_IMMEDIATE, NULL, 0) == 0)
                        ;
                uam_poll(b.am);
        }
        settle();
        assert_int_equal(b.req.calls, a.rep.calls);
        assert_int_equal(a.lost + b.lost, 0);
}

static void a_peer_without_places_is_refused(void **state)
{
        struct side c;
        uint32_t far, near;

        teardown(NULL);
        open_side(&a, 0, &(struct uam_opts){.ranks = 3, .window = 4, .buffers = 7});
        open_side(&b, 1, &(struct uam_opts){.ranks = 3, .window = 4});
        open_side(&c, 2, &(struct uam_opts){.ranks = 3, .window = 4});
        join();
        assert_int_equal(unet_chan_pair(a.ep, c.ep, &near, &far), 0);
        assert_int_equal(uam_connect(a.am, 2, near), -ENOBUFS);
        close_side(&c);
}

/* §5.1: a channel that loses messages has a place for every one that its peer may have sent. */
static void a_lossy_peer_without_places_is_refused(void **state)
{
        for (uint32_t places = 2 * 16 + 1; places <= 2 * 16 + 2; places++) {
                teardown(state);
                open_side(&a, 0, &(struct uam_opts){.window = 16, .places = places});
                open_side(&b, 1, &(struct uam_opts){.window = 16});
                assert_int_equal(unet_chan_pair(a.ep, b.ep, &a.chan, &b.chan), 0);
                assert_int_equal(unet_chan_fault(a.ep, a.chan, "loss=0.1,seed=1"), 0);
                assert_int_equal(uam_connect(a.am, 1, a.chan), places < 34 ? -ENOBUFS : 0);
        }
}

/* ---- ends ---- */

static void an_unknown_handler_ends_the_connection(void **state)
{
        assert_int_equal(uam_request_short(a.am, 1, 99, 0, NULL, 0), 0);
        settle();
        assert_int_equal(a.lost, 1);
        assert_int_equal(a.lost_err, -EBADRQC);
        assert_int_equal(b.lost_err, -EBADRQC);
        assert_int_equal(uam_request_short(a.am, 1, REQ, 0, NULL, 0), -EPIPE);
}

static void a_handler_takes_its_kinds_only(void **state)
{
        assert_int_equal(uam_request_short(a.am, 1, REP, 0, NULL, 0), 0);
        settle();
        assert_int_equal(b.lost_err, -EBADRQC);
        assert_int_equal(b.rep.calls, 0);
}

static void a_write_outside_the_segment_ends_the_connection(void **state)
{
        struct uam_event e = {0};

        assert_int_equal(uam_put(a.am, 1, SEG - 7, "12345678", 8, &e), 0);
        settle();
        assert_int_equal(a.lost_err, -ERANGE);
        assert_int_equal(b.lost_err, -ERANGE);
        assert_int_equal(e.left, 0);
        assert_int_equal(e.err, -ERANGE);
}

static void a_get_outside_the_segment_ends_the_connection(void **state)
{
        struct uam_event e = {0};
        uint8_t to[8];

        assert_int_equal(uam_get(a.am, 1, UINT64_MAX - 3, to, 8, &e), 0);
        settle();
        assert_int_equal(a.lost_err, -ERANGE);
        assert_int_equal(e.left, 0);
        assert_int_equal(e.err, -ERANGE);
}

static void who_leaves_in_order_is_not_lost(void **state)
{
        uam_close(b.am, 0);
        b.am = NULL;
        uam_poll(a.am);
        assert_int_equal(a.lost, 0);
        assert_int_equal(uam_request_short(a.am, 1, REQ, 0, NULL, 0), -EPIPE);
}

static void *closes(void *am)
{
        uam_close(am, 30 * NS_PER_S);
        return NULL;
}

/* The one who leaves says goodbye until it is told that it was heard, which may be lost as well. */
static void a_goodbye_that_is_lost_is_said_again(void **state)
{
        for (int seed = 1; seed <= 10; seed++) {
                char spec[40];
                pthread_t thread;

                teardown(state);
                open_side(&a, 0, &(struct uam_opts){0});
                open_side(&b, 1, &(struct uam_opts){0});
                assert_int_equal(unet_chan_pair(a.ep, b.ep, &a.chan, &b.chan), 0);
                snprintf(spec, sizeof spec, "loss=0.4,seed=%d", seed);
                assert_int_equal(unet_chan_fault(a.ep, a.chan, spec), 0);
                assert_int_equal(unet_chan_fault(b.ep, b.chan, spec), 0);
                assert_int_equal(uam_connect(a.am, 1, a.chan), 0);
                assert_int_equal(uam_connect(b.am, 0, b.chan), 0);

                assert_int_equal(pthread_create(&thread, NULL, closes, b.am), 0);
                while (pthread_tryjoin_np(thread, NULL) != 0)
                        uam_wait(a.am, NS_PER_MS);
                b.am = NULL;
                assert_int_equal(a.lost, 0);
                assert_int_equal(uam_request_short(a.am, 1, REQ, 0, NULL, 0), -EPIPE);
        }
}

/* The endpoint closes without a goodbye, as a process that dies: what waits is told. */
static void a_dead_peer_is_told(void **state)
{
        struct uam_event e = {0};

        assert_int_equal(uam_put(a.am, 1, 0, "x", 1, &e), 0);
        unet_ep_close(b.ep);
        b.ep = NULL;
        while (a.lost == 0)
                uam_wait(a.am, UNET_FOREVER);
        assert_int_equal(a.lost_err, -EPIPE);
        assert_int_equal(e.left, 0);
        assert_int_equal(e.err, -EPIPE);
        free(b.am->peer[0]); /* an endpoint that is gone cannot be said goodbye with */
        b.am->peer[0] = NULL;
}

/* ---- ourselves ---- */

static int answer_asking_itself(struct side *s, struct uam_token *t)
{
        int err = uam_request_short(s->am, 0, REQ, 0, NULL, 0);

        assert_int_equal(uam_reply_short(t, REP, NULL, 0), 0);
        return err;
}

static void a_rank_asks_itself(void **state)
{
        assert_int_equal(uam_connect_self(a.am), 0);
        for (int i = 1; i <= 100; i++) {
                a.answer = answer_asking_itself;
                assert_int_equal(uam_request_short(a.am, 0, REQ, 0, NULL, 0), 0);
                while (a.req.calls < i)
                        uam_poll(a.am);
                assert_int_equal(a.answered, -EDEADLK);
                a.answer = NULL;
                settle();
                assert_int_equal(a.rep.calls, i);
        }
        assert_int_equal(a.lost, 0);
}

static void a_rank_talks_to_itself(void **state)
{
        static uint8_t data[20000];
        struct uam_event e = {0};

        assert_int_equal(uam_connect_self(a.am), 0);
        a.answer = NULL;
        assert_int_equal(uam_request_short(a.am, 0, REQ, 0, (uam_arg[]){42}, 1), 0);
        settle();
        assert_int_equal(a.req.calls, 1);
        assert_int_equal(a.req.from, 0);
        fill(data, sizeof data, 3);
        assert_int_equal(uam_put(a.am, 0, 100, data, sizeof data, &e), 0);
        settle();
        assert_int_equal(e.left, 0);
        assert_memory_equal(a.seg + 100, data, sizeof data);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                T(a_request_runs_a_handler_and_its_reply_another),
                T(a_round_trip_is_two_messages),
                T(a_handler_breaks_no_rule_unheard),
                T(nothing_waits_or_closes_in_a_handler),
                T(who_is_told_of_a_lost_peer_sends_nothing),
                T(arguments_are_checked),
                T(medium_messages_of_every_size),
                T(long_messages_go_into_the_segment),
                T(data_of_the_segment_is_not_copied),
                T(a_put_is_one_copy_to_its_place),
                T(get_fetches_from_the_segment),
                T(nothing_is_a_length),
                T(replies_can_be_long),
                T(immediate_does_not_wait_for_the_window),
                T(immediate_waits_neither_for_buffers_nor_for_the_window),
                T(a_window_of_requests_is_all_that_waits),
                T(a_peer_without_places_is_refused),
                T(a_lossy_peer_without_places_is_refused),
                T(an_unknown_handler_ends_the_connection),
                T(a_handler_takes_its_kinds_only),
                T(a_write_outside_the_segment_ends_the_connection),
                T(a_get_outside_the_segment_ends_the_connection),
                T(who_leaves_in_order_is_not_lost),
                T(a_goodbye_that_is_lost_is_said_again),
                T(a_dead_peer_is_told),
                T(a_rank_talks_to_itself),
                T(a_rank_asks_itself),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
