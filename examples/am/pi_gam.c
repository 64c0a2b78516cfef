/*
 * GAM 1.1: each node adds up its part of a series for pi and sends the sum, a double, to node 0.
 *
 *      cc pi_gam.c $(pkg-config --cflags --libs unet) -o pi_gam
 *      unet am run -n 4 ./pi_gam
 */
#include <stdio.h>

#include <unet/gam.h>

#define TERMS 10000000L

static volatile int parts; /* at node 0; a handler counts them */
static double pi;

static void add(vnn_t src, long from, long step, double sum)
{
        pi += sum;
        parts++;
}

int main(void)
{
        double sum = 0;

        if (am_enable() != 0)
                return 1;
        for (long i = am_my_proc(); i < TERMS; i += am_procs())
                sum += (i % 2 == 0 ? 4.0 : -4.0) / (double)(2 * i + 1);
        am_request_df(0, add, am_my_proc(), am_procs(), sum);
        if (am_my_proc() == 0) {
                am_wait_for(parts == am_procs());
                printf("pi is about %.6f\n", pi);
        }
        am_disable();
        return 0;
}
