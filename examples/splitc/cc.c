/*
 * Connected components (§6 of the paper) of a probabilistic mesh (Krishnamurthy, Lumetta, Culler,
 * Yelick, DIMACS 1994): a square grid, each edge there with probability 60 %. Every processor has a
 * strip of rows. It finds the components of its strip alone; then components that an edge between
 * strips joins take the smaller label, until no label changes.
 */
#include <stdlib.h>

#include "prog.h"

struct cc {
        uint64_t n, first, rows; /* the grid is n x n; our rows */
        uint64_t seed;
        uint64_t labels;        /* of our vertices, in the heap: the same place for each strip */
        uint64_t *parent;       /* union-find of our vertices */
        int64_t *label;         /* of each root */
        int64_t *above, *below; /* the neighbours' rows next to ours */
};

static bool has_edge(uint64_t seed, uint64_t from, uint64_t to)
{
        return prog_random(seed + from, to) % 100 < 60;
}

static uint64_t root(uint64_t *parent, uint64_t v)
{
        while (parent[v] != v)
                v = parent[v] = parent[parent[v]];
        return v;
}

static void join(uint64_t *parent, uint64_t a, uint64_t b)
{
        a = root(parent, a);
        b = root(parent, b);
        if (a < b)
                parent[b] = a;
        else
                parent[a] = b;
}

/* The components of rows first .. first + rows - 1: each vertex's parent leads to the smallest. */
static void components(uint64_t *parent, uint64_t n, uint64_t seed, uint64_t first, uint64_t rows)
{
        for (uint64_t v = 0; v < rows * n; v++)
                parent[v] = v;
        for (uint64_t v = 0; v < rows * n; v++) {
                uint64_t all = first * n + v;
                if (v % n + 1 < n && has_edge(seed, all, all + 1))
                        join(parent, v, v + 1);
                if (v + n < rows * n && has_edge(seed, all, all + n))
                        join(parent, v, v + n);
        }
}

static void publish(struct cc *c)
{
        int64_t *out = sc_at(c->labels);

        for (uint64_t v = 0; v < c->rows * c->n; v++)
                out[v] = c->label[root(c->parent, v)];
}

static uint64_t strip(const struct cc *c, uint32_t proc)
{
        return proc * c->n / sc_procs();
}

/* A word at a time, all on the way together: small messages are what this program is about. */
static void fetch_row(const struct cc *c, int64_t *to, uint32_t proc, uint64_t row)
{
        for (uint64_t i = 0; i < c->n; i++)
                sc_get_i64(&to[i], sc_global(proc, c->labels + (row * c->n + i) * sizeof(int64_t)));
}

static bool hook_row(struct cc *c, const int64_t *theirs, uint64_t row, bool above)
{
        bool changed = false;

        for (uint64_t i = 0; i < c->n; i++) {
                uint64_t v = row * c->n + i, all = c->first * c->n + v, r = root(c->parent, v);
                bool edge = above ? has_edge(c->seed, all - c->n, all)
                                  : has_edge(c->seed, all, all + c->n);
                if (edge && theirs[i] < c->label[r]) {
                        c->label[r] = theirs[i];
                        changed = true;
                }
        }
        return changed;
}

static bool one_round(struct cc *c, struct prog *p)
{
        uint32_t me = sc_me(), last = sc_procs() - 1;
        bool changed = false;

        prog_wait(p);
        if (me > 0)
                fetch_row(c, c->above, me - 1, strip(c, me) - strip(c, me - 1) - 1);
        if (me < last)
                fetch_row(c, c->below, me + 1, 0);
        sc_sync();
        sc_barrier(); /* nobody changes labels that others still fetch */
        prog_go(p);
        if (me > 0)
                changed |= hook_row(c, c->above, 0, true);
        if (me < last)
                changed |= hook_row(c, c->below, c->rows - 1, false);
        publish(c);
        prog_wait(p);
        changed = sc_all_reduce_i64(UAM_OR, changed) != 0;
        prog_go(p);
        return changed;
}

static bool is_right(const struct cc *c)
{
        uint64_t *parent = malloc(c->n * c->n * sizeof *parent);
        const int64_t *mine = sc_at(c->labels);
        bool right = true;

        if (parent == NULL)
                abort();
        components(parent, c->n, c->seed, 0, c->n);
        for (uint64_t v = 0; v < c->rows * c->n; v++)
                right &= (uint64_t)mine[v] == root(parent, c->first * c->n + v);
        free(parent);
        return right;
}

int main(int argc, char **argv)
{
        static const char *const variants[] = {"mesh", NULL};
        struct prog p = prog_start(argc, argv, "cc", 128, variants, 16, 0);
        struct cc c = {.n = p.size < sc_procs() ? sc_procs() : p.size, .seed = p.seed * 1000003};
        bool right;

        c.first = strip(&c, sc_me());
        c.rows = strip(&c, sc_me() + 1) - c.first;
        c.labels = sc_all_alloc((c.n / sc_procs() + 1) * c.n * sizeof(int64_t));
        c.parent = malloc(c.rows * c.n * sizeof *c.parent);
        c.label = malloc(c.rows * c.n * sizeof *c.label);
        c.above = malloc(2 * c.n * sizeof *c.above);
        if (c.parent == NULL || c.label == NULL || c.above == NULL)
                abort();
        c.below = c.above + c.n;
        prog_measure(&p);
        components(c.parent, c.n, c.seed, c.first, c.rows);
        for (uint64_t v = 0; v < c.rows * c.n; v++)
                c.label[v] = (int64_t)(c.first * c.n + v);
        publish(&c);
        sc_barrier();
        while (one_round(&c, &p))
                ;
        right = is_right(&c);
        free(c.parent);
        free(c.label);
        free(c.above);
        return prog_end(&p, right);
}
