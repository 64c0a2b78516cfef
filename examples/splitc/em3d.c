/*
 * EM3D (Split-C paper, 1993; not among the U-Net paper's programs): electromagnetic waves on a
 * bipartite graph. A node of E is a weighted sum of nodes of H and the other way round. Part of the
 * edges lead to other processors. Variants: get fetches each remote value when it is needed; store
 * sends each value to who will need it.
 */
#include <stdlib.h>
#include <string.h>

#include "prog.h"

#define DEGREE 10u
#define REMOTE 20u /* per cent */
#define STEPS  5u

struct em {
        uint64_t n; /* nodes of each kind on a processor */
        uint64_t seed;
        uint64_t val[2];   /* values of E and H nodes, in the heap */
        uint64_t ghost[2]; /* a place for each edge's remote value */
};

/* Edge k of node i of processor p: the neighbour of the other kind, and the weight. */
static void edge(const struct em *e, int kind, uint64_t node, uint64_t k, uint64_t *to,
                 double *weight)
{
        uint64_t procs = sc_procs(), p = node / e->n,
                 r = prog_random(e->seed + (uint64_t)kind, node * DEGREE + k);
        uint64_t other =
                r % 100 < REMOTE ? (p + 1 + r / 100 % (procs > 1 ? procs - 1 : 1)) % procs : p;

        *to = other * e->n + (r >> 32) % e->n;
        *weight = (double)(r >> 40 & 255) / (256 * DEGREE);
}

static double first_value(const struct em *e, int kind, uint64_t node)
{
        return (double)(prog_random(e->seed + 2 + (uint64_t)kind, node) % 1000) / 1000;
}

static double ghost_sum(const struct em *e, int kind, uint64_t i)
{
        const double *ghost = (const double *)sc_at(e->ghost[kind]) + i * DEGREE,
                     *near = sc_at(e->val[!kind]);
        uint64_t me = sc_me();
        double sum = 0, w;

        for (uint64_t k = 0; k < DEGREE; k++) {
                uint64_t to;
                edge(e, kind, me * e->n + i, k, &to, &w);
                sum += w * (to / e->n == me ? near[to % e->n] : ghost[k]);
        }
        return sum;
}

static void get_ghosts(const struct em *e, int kind)
{
        double *ghost = sc_at(e->ghost[kind]), w;

        for (uint64_t i = 0; i < e->n; i++)
                for (uint64_t k = 0; k < DEGREE; k++) {
                        uint64_t to;
                        edge(e, kind, sc_me() * e->n + i, k, &to, &w);
                        if (to / e->n != sc_me())
                                sc_get_f64(&ghost[i * DEGREE + k],
                                           sc_global((uint32_t)(to / e->n),
                                                     e->val[!kind] + to % e->n * sizeof(double)));
                }
        sc_sync();
        sc_barrier();
}

/* Whoever has the value knows all edges that lead to it, as the graph is no secret. */
static void store_ghosts(const struct em *e, int kind)
{
        const double *mine = sc_at(e->val[!kind]);

        for (uint64_t node = 0; node < e->n * sc_procs(); node++)
                for (uint64_t k = 0; k < DEGREE && node / e->n != sc_me(); k++) {
                        uint64_t to, at = (node % e->n * DEGREE + k) * sizeof(double);
                        double w;
                        edge(e, kind, node, k, &to, &w);
                        if (to / e->n == sc_me())
                                sc_store_f64(
                                        sc_global((uint32_t)(node / e->n), e->ghost[kind] + at),
                                        mine[to % e->n]);
                }
        sc_all_store_sync();
}

static void half_step(const struct em *e, struct prog *p, int kind)
{
        double *mine = sc_at(e->val[kind]);

        prog_wait(p);
        if (prog_is(p, "get"))
                get_ghosts(e, kind);
        else
                store_ghosts(e, kind);
        prog_go(p);
        for (uint64_t i = 0; i < e->n; i++)
                mine[i] -= ghost_sum(e, kind, i);
        prog_wait(p);
        sc_barrier();
        prog_go(p);
}

static bool is_right(const struct em *e)
{
        uint64_t all = e->n * sc_procs();
        double *val[2] = {calloc(all, sizeof(double)), calloc(all, sizeof(double))}, w;
        bool right = true;

        if (val[0] == NULL || val[1] == NULL)
                abort();
        for (uint64_t i = 0; i < 2 * all; i++)
                val[i % 2][i / 2] = first_value(e, (int)(i % 2), i / 2);
        for (uint64_t s = 0; s < 2 * STEPS; s++)
                for (uint64_t i = 0; i < all; i++) {
                        double sum = 0;
                        for (uint64_t k = 0; k < DEGREE; k++) {
                                uint64_t to;
                                edge(e, (int)(s % 2), i, k, &to, &w);
                                sum += w * val[!(s % 2)][to];
                        }
                        val[s % 2][i] -= sum;
                }
        for (int kind = 0; kind < 2; kind++) {
                right &= memcmp(sc_at(e->val[kind]), val[kind] + sc_me() * e->n,
                                e->n * sizeof(double)) == 0;
                free(val[kind]);
        }
        return right;
}

int main(int argc, char **argv)
{
        static const char *const variants[] = {"get", "store", NULL};
        struct prog p = prog_start(argc, argv, "em3d", 500, variants, 0, 256);
        struct em e = {.n = p.size, .seed = p.seed * 7919};

        for (int kind = 0; kind < 2; kind++) {
                double *v;
                e.val[kind] = sc_all_alloc(e.n * sizeof(double));
                e.ghost[kind] = sc_all_alloc(e.n * DEGREE * sizeof(double));
                v = sc_at(e.val[kind]);
                for (uint64_t i = 0; i < e.n; i++)
                        v[i] = first_value(&e, kind, sc_me() * e.n + i);
        }
        prog_measure(&p);
        for (uint32_t s = 0; s < STEPS; s++) {
                half_step(&e, &p, 0);
                half_step(&e, &p, 1);
        }
        return prog_end(&p, is_right(&e));
}
