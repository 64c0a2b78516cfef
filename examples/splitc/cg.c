/*
 * Conjugate gradient (§6 of the paper) on the five-point Laplacian of a square grid; every
 * processor has a strip of rows and fetches the neighbours' rows next to it. Sums are added row by
 * row in one order, so that any number of processors computes the same bits.
 */
#include <stdlib.h>
#include <string.h>

#include "prog.h"

#define SMALL 1e-8 /* of the first residual */

struct cg {
        uint64_t n, first, rows;
        uint32_t procs, me;
        double *x, *r, *q, *halo; /* halo: the row above and the row below */
        uint64_t p_off, sums_off; /* in the heap: p is what neighbours read */
        bool alone;               /* the serial run that the other is compared with */
        double *p_alone, *sums_alone;
        struct prog *prog;
        double waited;
};

static uint64_t strip(const struct cg *c, uint32_t proc)
{
        return proc * c->n / c->procs;
}

static double *p_of(const struct cg *c)
{
        return c->alone ? c->p_alone : sc_at(c->p_off);
}

static double *sums_of(const struct cg *c)
{
        return c->alone ? c->sums_alone : sc_at(c->sums_off);
}

/* Everybody gets everybody's rows' sums, and adds them from the first row to the last. */
static double add_up(const struct cg *c, double *mine)
{
        double *all = sums_of(c), sum = 0;

        if (c->alone) {
                memcpy(all, mine, c->rows * sizeof *mine);
        } else {
                prog_wait(c->prog);
                for (uint32_t r = 0; r < c->procs; r++)
                        sc_bulk_store(sc_global(r, c->sums_off + c->first * sizeof *mine), mine,
                                      c->rows * sizeof *mine);
                sc_all_store_sync();
                prog_go(c->prog);
        }
        for (uint64_t i = 0; i < c->n; i++)
                sum += all[i];
        if (!c->alone) {
                prog_wait(c->prog);
                sc_barrier(); /* before the next sums come */
                prog_go(c->prog);
        }
        return sum;
}

static double dot(const struct cg *c, const double *a, const double *b)
{
        double *row = calloc(c->rows + 1, sizeof *row), sum;

        if (row == NULL)
                abort();
        for (uint64_t i = 0; i < c->rows; i++)
                for (uint64_t j = 0; j < c->n; j++)
                        row[i] += a[i * c->n + j] * b[i * c->n + j];
        sum = add_up(c, row);
        free(row);
        return sum;
}

static void fetch_halo(const struct cg *c)
{
        uint64_t bytes = c->n * sizeof(double);

        memset(c->halo, 0, 2 * bytes);
        if (c->alone)
                return;
        prog_wait(c->prog);
        sc_barrier(); /* p is new everywhere */
        if (c->me > 0)
                sc_bulk_get(c->halo,
                            sc_global(c->me - 1,
                                      c->p_off + (c->first - strip(c, c->me - 1) - 1) * bytes),
                            bytes);
        if (c->me + 1 < c->procs)
                sc_bulk_get(c->halo + c->n, sc_global(c->me + 1, c->p_off), bytes);
        sc_sync();
        prog_go(c->prog);
}

/* q = A p */
static void apply(const struct cg *c)
{
        const double *p = p_of(c);
        uint64_t n = c->n;

        fetch_halo(c);
        for (uint64_t i = 0; i < c->rows; i++)
                for (uint64_t j = 0; j < n; j++) {
                        double up = i > 0 ? p[(i - 1) * n + j] : c->halo[j];
                        double down = i + 1 < c->rows ? p[(i + 1) * n + j] : c->halo[n + j];
                        double left = j > 0 ? p[i * n + j - 1] : 0,
                               right = j + 1 < n ? p[i * n + j + 1] : 0;
                        c->q[i * n + j] = 4 * p[i * n + j] - up - down - left - right;
                }
}

/* Returns the iterations. */
static uint64_t solve(const struct cg *c)
{
        uint64_t cells = c->rows * c->n, steps = 0;
        double *p = p_of(c), rr, first;

        for (uint64_t i = 0; i < cells; i++) {
                c->x[i] = 0;
                c->r[i] = p[i] = (double)(prog_random(7, c->first * c->n + i) % 1000) / 1000;
        }
        first = rr = dot(c, c->r, c->r);
        for (; rr > SMALL * SMALL * first && steps < 10 * c->n; steps++) {
                double alpha, next;

                apply(c);
                alpha = rr / dot(c, p, c->q);
                for (uint64_t i = 0; i < cells; i++) {
                        c->x[i] += alpha * p[i];
                        c->r[i] -= alpha * c->q[i];
                }
                next = dot(c, c->r, c->r);
                for (uint64_t i = 0; i < cells; i++)
                        p[i] = c->r[i] + next / rr * p[i];
                rr = next;
        }
        return steps;
}

static void make(struct cg *c, bool alone)
{
        uint64_t cells;

        c->alone = alone;
        c->procs = alone ? 1 : sc_procs();
        c->me = alone ? 0 : sc_me();
        c->first = strip(c, c->me);
        c->rows = strip(c, c->me + 1) - c->first;
        cells = c->rows * c->n;
        c->x = calloc(3 * cells + 2 * c->n, sizeof *c->x);
        if (c->x == NULL)
                abort();
        c->r = c->x + cells;
        c->q = c->r + cells;
        c->halo = c->q + cells;
        if (alone) {
                c->p_alone = calloc(cells + c->n, sizeof *c->p_alone);
                if (c->p_alone == NULL)
                        abort();
                c->sums_alone = c->p_alone + cells;
        }
}

int main(int argc, char **argv)
{
        static const char *const variants[] = {"grid", NULL};
        struct prog p = prog_start(argc, argv, "cg", 64, variants, 16, 0);
        struct cg c = {.n = p.size < sc_procs() ? sc_procs() : p.size, .prog = &p},
                  serial = {.n = c.n};
        uint64_t steps;
        bool right;

        make(&c, false);
        c.p_off = sc_all_alloc((c.n / sc_procs() + 1) * c.n * sizeof(double));
        c.sums_off = sc_all_alloc(c.n * sizeof(double));
        prog_measure(&p);
        steps = solve(&c);
        make(&serial, true);
        right = solve(&serial) == steps &&
                memcmp(c.x, serial.x + c.first * c.n, c.rows * c.n * sizeof(double)) == 0;
        free(c.x);
        free(serial.x);
        free(serial.p_alone);
        return prog_end(&p, right);
}
