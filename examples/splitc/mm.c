/*
 * Blocked matrix multiply (§6 of the paper): blocks are dealt to the processors, each computes its
 * blocks of C, and fetches the next two blocks of A and B while it multiplies two.
 */
#include <string.h>

#include "prog.h"

/* Small whole numbers, so that sums are exact in any order. */
static double a_at(uint64_t i, uint64_t j)
{
        return (double)((i * 3 + j) % 7) - 3;
}

static double b_at(uint64_t i, uint64_t j)
{
        return (double)((i + j * 5) % 11) - 5;
}

struct mm {
        uint64_t n, b, nb;
        sc_sptr a, bm, c;
        double *buf[2][2]; /* two pairs of blocks: in use, on the way */
};

static uint64_t block_bytes(const struct mm *m)
{
        return m->b * m->b * sizeof(double);
}

static void fill(const struct mm *m)
{
        for (uint64_t k = sc_me(); k < m->nb * m->nb; k += sc_procs()) {
                double *a = sc_at(sc_spread(m->a, k).off), *b = sc_at(sc_spread(m->bm, k).off);
                for (uint64_t i = 0; i < m->b; i++)
                        for (uint64_t j = 0; j < m->b; j++) {
                                uint64_t row = k / m->nb * m->b + i, col = k % m->nb * m->b + j;
                                a[i * m->b + j] = a_at(row, col);
                                b[i * m->b + j] = b_at(row, col);
                        }
        }
}

static void fetch(const struct mm *m, uint64_t row, uint64_t col, uint64_t k, int to)
{
        sc_bulk_get(m->buf[to][0], sc_spread(m->a, row * m->nb + k), block_bytes(m));
        sc_bulk_get(m->buf[to][1], sc_spread(m->bm, k * m->nb + col), block_bytes(m));
}

static void multiply(const struct mm *m, const double *a, const double *b, double *c)
{
        for (uint64_t i = 0; i < m->b; i++)
                for (uint64_t k = 0; k < m->b; k++) {
                        double x = a[i * m->b + k];
                        for (uint64_t j = 0; j < m->b; j++)
                                c[i * m->b + j] += x * b[k * m->b + j];
                }
}

static void block_of_c(const struct mm *m, struct prog *p, uint64_t at)
{
        uint64_t row = at / m->nb, col = at % m->nb;
        double *c = sc_at(sc_spread(m->c, at).off);

        prog_wait(p);
        fetch(m, row, col, 0, 0);
        for (uint64_t k = 0; k < m->nb; k++) {
                sc_sync();
                if (k + 1 < m->nb)
                        fetch(m, row, col, k + 1, (k + 1) % 2);
                prog_go(p);
                multiply(m, m->buf[k % 2][0], m->buf[k % 2][1], c);
                prog_wait(p);
        }
        prog_go(p);
}

static double serial(const struct mm *m, uint64_t row, uint64_t col)
{
        double sum = 0;

        for (uint64_t k = 0; k < m->n; k++)
                sum += a_at(row, k) * b_at(k, col);
        return sum;
}

static bool is_right(const struct mm *m)
{
        for (uint64_t at = sc_me(); at < m->nb * m->nb; at += sc_procs()) {
                const double *c = sc_at(sc_spread(m->c, at).off);
                for (uint64_t i = 0; i < m->b * m->b; i++)
                        if (c[i] !=
                            serial(m, at / m->nb * m->b + i / m->b, at % m->nb * m->b + i % m->b))
                                return false;
        }
        return true;
}

int main(int argc, char **argv)
{
        static const char *const variants[] = {"block", NULL};
        struct prog p = prog_start(argc, argv, "mm", 256, variants, 32, 0);
        struct mm m = {.n = p.size, .nb = 4};

        m.b = (m.n + m.nb - 1) / m.nb;
        m.n = m.b * m.nb;
        m.a = sc_all_spread(m.nb * m.nb, block_bytes(&m));
        m.bm = sc_all_spread(m.nb * m.nb, block_bytes(&m));
        m.c = sc_all_spread(m.nb * m.nb, block_bytes(&m));
        for (int i = 0; i < 4; i++)
                m.buf[i / 2][i % 2] = sc_at(sc_all_alloc(block_bytes(&m)));
        fill(&m);
        prog_measure(&p);
        for (uint64_t at = sc_me(); at < m.nb * m.nb; at += sc_procs())
                block_of_c(&m, &p, at);
        prog_wait(&p);
        sc_barrier();
        prog_go(&p);
        return prog_end(&p, is_right(&m));
}
