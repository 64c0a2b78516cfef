/*
 * Split-C: heat in a rod, hot at one end. Each processor has a piece of it, and stores its
 * outermost cells to its neighbours' ghost cells before each step.
 *
 *      cc heat_splitc.c $(pkg-config --cflags --libs unet) -o heat_splitc
 *      unet am run -n 4 ./heat_splitc
 */
#include <stdio.h>
#include <string.h>

#include <unet/splitc.h>

/* As many at each of 1, 2, 3, 4, 5, 6, 8 or 10 processors, between two ghosts. */
#define CELLS 240
#define STEPS 2000

static void step(double *rod, uint32_t n)
{
        double next[CELLS + 2];

        for (uint32_t i = 1; i <= n; i++)
                next[i] = rod[i] + 0.25 * (rod[i - 1] - 2 * rod[i] + rod[i + 1]);
        memcpy(rod + 1, next + 1, n * sizeof *rod);
}

int main(void)
{
        double sum = 0, *rod;
        uint32_t me, procs, n;
        uint64_t at;

        sc_init(1 << 20);
        me = sc_me();
        procs = sc_procs();
        n = CELLS / procs;
        at = sc_all_alloc((n + 2) * sizeof *rod); /* the same place in each heap, zero */
        rod = sc_at(at);
        for (int s = 0; s < STEPS; s++) {
                if (me > 0)
                        sc_store_f64(sc_global(me - 1, at + (n + 1) * sizeof *rod), rod[1]);
                if (me + 1 < procs)
                        sc_store_f64(sc_global(me + 1, at), rod[n]);
                sc_on_one rod[0] = 100;
                sc_all_store_sync(); /* the ghosts are here */
                step(rod, n);
                sc_barrier(); /* nobody stores into a ghost that is being read */
        }
        for (uint32_t i = 1; i <= n; i++)
                sum += rod[i];
        sum = sc_all_reduce_f64(UAM_ADD, sum);
        sc_on_one printf("heat %.6f\n", sum);
        sc_exit();
        return 0;
}
