/*
 * Bandwidth of stores against their size, two ranks of a job: from the sender's segment, and from other memory.
 *
 *      unet am run -n 2 am_rate [--json]
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <unet/am.h>

#define LEAST_S 0.2                     /* for each size */
#define BATCH   64                      /* stores between two looks at the clock */

static double now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* MB a second, the last store acknowledged. */
static double rate(struct uam *am, const void *from, size_t size)
{
        struct uam_event e = {0};
        double start = now(), took;
        uint64_t bytes = 0;

        do {
                for (int i = 0; i < BATCH; i++, bytes += size)
                        if (uam_put(am, 1, 0, from, size, &e) != 0)
                                exit(1);
                took = now() - start;
        } while (took < LEAST_S);
        uam_wait_for(am, e.left == 0);
        return (double)bytes / (now() - start) / 1e6;
}

int main(int argc, char **argv)
{
        static const size_t sizes[] = {8, 64, 200, 256, 1024, 2048, 4096, 8192, 16384, 65536, 262144, 1048576};
        bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
        static uint8_t other[1048576];
        struct uam *am;
        uint8_t *memory;
        size_t bytes;

        if (uam_job_open(NULL, &am) != 0 || uam_ranks(am) != 2) {
                fprintf(stderr, "usage: unet am run -n 2 am_rate [--json]\n");
                return 2;
        }
        memory = uam_memory(am, &bytes);
        uam_segment(am, memory, bytes);
        memset(memory, 1, sizeof other);
        uam_barrier(am);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && uam_rank(am) == 0; i++) {
                double lent = rate(am, memory, sizes[i]), copied = rate(am, other, sizes[i]);
                printf(json ? "{\"bytes\": %zu, \"segment_mb_s\": %.1f, \"copied_mb_s\": %.1f}\n" : "%8zu %12.1f %12.1f MB/s\n", sizes[i],
                       lent, copied);
        }
        fflush(stdout);
        uam_barrier(am);
        uam_job_close(am);
        return 0;
}
