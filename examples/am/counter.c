/*
 * Active messages: rank 0 keeps a counter, all others take numbers from it. Nobody gets a number
 * twice.
 *
 *      cc counter.c $(pkg-config --cflags --libs unet) -o counter
 *      unet am run -n 4 ./counter
 */
#include <stdio.h>
#include <stdlib.h>

#include <unet/am.h>

#define EACH 1000

enum { NEXT, NUMBER };

static uint64_t counter;        /* at rank 0 */
static uint64_t taken, highest; /* at the others */

/* A request's handler, at rank 0: it may reply, once. */
static void next(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                 void *ctx)
{
        uam_arg number = ++counter;

        uam_reply_short(t, NUMBER, &number, 1);
}

/* The reply's handler, at who asked. */
static void number(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                   void *ctx)
{
        taken++;
        highest = arg[0];
}

static void lost(void *arg, uint32_t rank, int err)
{
        fprintf(stderr, "rank %u is lost\n", rank);
        exit(1);
}

int main(void)
{
        int64_t most, all;
        struct uam *am;

        if (uam_job_open(NULL, &am) != 0)
                return 1;
        uam_register(am, NEXT, next, UAM_SHORT | UAM_REQUEST, NULL);
        uam_register(am, NUMBER, number, UAM_SHORT | UAM_REPLY, NULL);
        uam_on_lost(am, lost, NULL);
        uam_barrier(am); /* now each has its handlers */

        for (int i = 0; i < EACH; i++)
                uam_request_short(am, 0, NEXT, 0, NULL, 0); /* waits when its window is full */
        uam_wait_for(am, taken == EACH);

        uam_reduce_i64(am, UAM_MAX, (int64_t)highest, &most);
        uam_reduce_i64(am, UAM_ADD, (int64_t)taken, &all);
        if (uam_rank(am) == 0)
                printf("%lld numbers taken, the highest is %lld\n", (long long)all,
                       (long long)most);
        uam_job_close(am);
        return all != most;
}
