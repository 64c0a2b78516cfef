/*
 * Collective calls, over requests of the library's own.
 *
 * Each message carries the number of its call, which all ranks count alike, and a step. A rank may
 * be ahead of another: what comes early waits in the mailbox. Every TREE_SYNC calls there is a
 * barrier more, so that nobody is ahead by much and the mailbox stays small.
 *
 *      barrier, scan: dissemination (Hensgen, Finkel, Manber 1988), step k with the ranks 2^k away
 *      broadcast, reduce: binomial trees
 */
#include <errno.h>
#include <stdlib.h>

#include "am/am_int.h"

#define TREE_SYNC 64u
#define MANY      128u /* values of one reduction: a letter holds them */
/* A step: the sender's collective calls have failed, and so will everybody's. */
#define FAILED UINT64_MAX

struct letter {
        struct letter *next;
        uint64_t call, step;
        uint32_t from, len;
        uint8_t data[];
};

struct am_tree {
        uint64_t call;
        struct letter *box;
        bool failed, no_memory;
};

static void on_letter(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                      void *ctx)
{
        struct am_tree *tree = t->peer->am->tree;
        struct letter *l;

        if (nargs == 2 && arg[1] == FAILED) {
                tree->failed = true;
                return;
        }
        if (nargs != 2 || (int64_t)(arg[0] - tree->call) > (int64_t)(2 * TREE_SYNC)) {
                am_cut_off(t->peer, -EPROTO); /* nobody can be ahead so far */
                return;
        }
        if ((int64_t)(arg[0] - tree->call) < 0)
                return; /* of a call that failed here */
        l = malloc(sizeof *l + len);
        if (l == NULL) {
                tree->no_memory = true;
                return;
        }
        *l = (struct letter){.next = tree->box,
                             .call = arg[0],
                             .step = arg[1],
                             .from = t->peer->rank,
                             .len = (uint32_t)len};
        if (len != 0)
                memcpy(l->data, data, len);
        tree->box = l;
}

int am_tree_new(struct uam *am)
{
        am->tree = calloc(1, sizeof *am->tree);
        am->handler[AM_ID_TREE] = (struct am_handler){on_letter, NULL, UAM_MEDIUM | UAM_REQUEST};
        return am->tree != NULL ? 0 : -ENOMEM;
}

void am_tree_free(struct uam *am)
{
        while (am->tree != NULL && am->tree->box != NULL) {
                struct letter *l = am->tree->box;
                am->tree->box = l->next;
                free(l);
        }
        free(am->tree);
}

/* ---- one letter ---- */

static int give(struct uam *am, uint32_t to, uint64_t step, const void *data, size_t len)
{
        uam_arg arg[2] = {am->tree->call, step};

        return am_request_data(am, to, AM_ID_TREE, data, len, arg, 2);
}

static struct letter **find(struct am_tree *tree, uint32_t from, uint64_t step)
{
        struct letter **at = &tree->box;

        while (*at != NULL &&
               ((*at)->call != tree->call || (*at)->step != step || (*at)->from != from))
                at = &(*at)->next;
        return at;
}

/* A rank that sends nothing may be dead. Over a lossy channel only a message that it does not
 * acknowledge shows that. */
static void probe(struct uam *am, uint32_t rank)
{
        const struct am_peer *p = am->peer[rank];

        if (!p->lossless && p->tx[AM_SEQ_REQ].una == p->tx[AM_SEQ_REQ].nxt)
                am_request_long(am, rank, AM_ID_NONE, NULL, 0, 0, NULL);
}

/* Others may wait for a letter of ours, and not for the rank that has gone. */
static int fail(struct uam *am)
{
        uint8_t none = 0;

        for (uint32_t r = 0; r < am->o.ranks && !am->tree->failed; r++)
                if (am->peer[r] != NULL && am->peer[r]->err == 0)
                        give(am, r, FAILED, &none, 1);
        am->tree->failed = true;
        return -EPIPE;
}

static int take(struct uam *am, uint32_t from, uint64_t step, void *data, size_t len)
{
        struct letter **at, *l;
        int err = 0;

        while (*(at = find(am->tree, from, step)) == NULL) {
                if (am->tree->no_memory)
                        return -ENOMEM;
                if (am->tree->failed)
                        return -EPIPE;
                if (am->peer[from] == NULL || am->peer[from]->err != 0)
                        return fail(am);
                if (uam_pause(am) == -ETIMEDOUT)
                        probe(am, from);
        }
        l = *at;
        *at = l->next;
        if (l->len == len)
                memcpy(data, l->data, len);
        else
                err = -EINVAL; /* the ranks did not make the same calls */
        free(l);
        return err;
}

/* ---- calls ---- */

static int disseminate(struct uam *am)
{
        uint32_t n = am->o.ranks, me = am->o.rank;
        uint8_t none = 0;
        int err = 0;

        for (uint32_t d = 1; d < n && err == 0; d *= 2) {
                err = give(am, (me + d) % n, d, &none, 1);
                if (err == 0)
                        err = take(am, (me + n - d) % n, d, &none, 1);
        }
        return err;
}

static int begin(struct uam *am)
{
        if (am->token.peer != NULL)
                return -EDEADLK;
        if (++am->tree->call % TREE_SYNC != 0)
                return 0;
        return disseminate(am) != 0 ? -EPIPE : (am->tree->call++, 0);
}

int uam_barrier(struct uam *am)
{
        int err = begin(am);

        return err != 0 ? err : disseminate(am);
}

/* Down the binomial tree whose root is rank 0 of `me`'s counting: from me without its lowest bit,
 * to me with each bit below it. */
static int down(struct uam *am, uint32_t root, uint64_t step, void *data, size_t len)
{
        uint32_t n = am->o.ranks, me = (am->o.rank + n - root) % n, bit = 1;
        int err = 0;

        while (bit < n && !(me & bit))
                bit *= 2;
        if (me != 0)
                err = take(am, ((me & ~bit) + root) % n, step, data, len);
        for (bit /= 2; bit > 0 && err == 0; bit /= 2)
                if ((me | bit) < n)
                        err = give(am, ((me | bit) + root) % n, step, data, len);
        return err;
}

int uam_broadcast(struct uam *am, uint32_t root, void *buf, size_t len)
{
        size_t most = MIN(am->o.buffer_bytes, 1024u);
        uint8_t *at = buf;
        int err = root < am->o.ranks ? begin(am) : -EINVAL;

        for (size_t done = 0; done < len && err == 0; done += most)
                err = down(am, root, done, at + done, MIN(most, len - done));
        return err;
}

union value {
        int64_t i;
        double f;
};
typedef union value combine_fn(enum uam_op op, union value a, union value b);

static union value combine_i64(enum uam_op op, union value a, union value b)
{
        switch (op) {
        case UAM_ADD:
                return (union value){.i = (int64_t)((uint64_t)a.i + (uint64_t)b.i)};
        case UAM_MUL:
                return (union value){.i = (int64_t)((uint64_t)a.i * (uint64_t)b.i)};
        case UAM_MIN:
                return a.i < b.i ? a : b;
        case UAM_MAX:
                return a.i > b.i ? a : b;
        case UAM_AND:
                return (union value){.i = a.i & b.i};
        case UAM_OR:
                return (union value){.i = a.i | b.i};
        default:
                return (union value){.i = a.i ^ b.i};
        }
}

static union value combine_f64(enum uam_op op, union value a, union value b)
{
        switch (op) {
        case UAM_ADD:
                return (union value){.f = a.f + b.f};
        case UAM_MUL:
                return (union value){.f = a.f * b.f};
        case UAM_MIN:
                return a.f < b.f ? a : b;
        default:
                return a.f > b.f ? a : b;
        }
}

/* Up the tree to rank 0, lower ranks on the left; and down again. */
static int reduce(struct uam *am, enum uam_op op, combine_fn *combine, union value *v, size_t many)
{
        uint32_t n = am->o.ranks, me = am->o.rank, bit;
        union value theirs[MANY];
        int err = begin(am);

        for (bit = 1; bit < n && !(me & bit) && err == 0; bit *= 2) {
                if ((me | bit) >= n)
                        continue;
                err = take(am, me | bit, bit, theirs, many * sizeof *v);
                for (size_t i = 0; i < many && err == 0; i++)
                        v[i] = combine(op, v[i], theirs[i]);
        }
        if (me != 0 && err == 0)
                err = give(am, me & ~bit, bit, v, many * sizeof *v);
        return err != 0 ? err : down(am, 0, 0, v, many * sizeof *v);
}

static int reduce_many(struct uam *am, enum uam_op op, combine_fn *combine, void *values, size_t n)
{
        size_t most = MIN(am->o.buffer_bytes / sizeof(union value), MANY);
        union value v[MANY];
        uint8_t *at = values;
        int err = 0;

        for (size_t k; n > 0 && err == 0; n -= k) {
                k = MIN(n, most);
                memcpy(v, at, k * sizeof *v);
                err = reduce(am, op, combine, v, k);
                memcpy(at, v, k * sizeof *v);
                at += k * sizeof *v;
        }
        return err;
}

/* Before step d, a rank has combined itself and d - 1 ranks before it. */
static int scan(struct uam *am, enum uam_op op, combine_fn *combine, union value *v)
{
        uint32_t n = am->o.ranks, me = am->o.rank;
        int err = begin(am);

        for (uint32_t d = 1; d < n && err == 0; d *= 2) {
                union value theirs, mine = *v;
                if (me + d < n)
                        err = give(am, me + d, d, &mine, sizeof mine);
                if (me < d || err != 0)
                        continue;
                err = take(am, me - d, d, &theirs, sizeof theirs);
                *v = combine(op, theirs, *v);
        }
        return err;
}

static bool is_op(enum uam_op op, bool bits)
{
        return op == UAM_ADD || op == UAM_MUL || op == UAM_MIN || op == UAM_MAX ||
               (bits && op <= UAM_XOR);
}

int uam_reduce_i64(struct uam *am, enum uam_op op, int64_t value, int64_t *out)
{
        union value v = {.i = value};
        int err = is_op(op, true) ? reduce(am, op, combine_i64, &v, 1) : -EINVAL;

        if (err == 0)
                *out = v.i;
        return err;
}

int uam_reduce_f64(struct uam *am, enum uam_op op, double value, double *out)
{
        union value v = {.f = value};
        int err = is_op(op, false) ? reduce(am, op, combine_f64, &v, 1) : -EINVAL;

        if (err == 0)
                *out = v.f;
        return err;
}

int am_reduce_many_i64(struct uam *am, enum uam_op op, int64_t *v, size_t n)
{
        return is_op(op, true) ? reduce_many(am, op, combine_i64, v, n) : -EINVAL;
}

int am_reduce_many_f64(struct uam *am, enum uam_op op, double *v, size_t n)
{
        return is_op(op, false) ? reduce_many(am, op, combine_f64, v, n) : -EINVAL;
}

int uam_scan_i64(struct uam *am, enum uam_op op, int64_t value, int64_t *out)
{
        union value v = {.i = value};
        int err = is_op(op, true) ? scan(am, op, combine_i64, &v) : -EINVAL;

        if (err == 0)
                *out = v.i;
        return err;
}

int uam_scan_f64(struct uam *am, enum uam_op op, double value, double *out)
{
        union value v = {.f = value};
        int err = is_op(op, false) ? scan(am, op, combine_f64, &v) : -EINVAL;

        if (err == 0)
                *out = v.f;
        return err;
}
