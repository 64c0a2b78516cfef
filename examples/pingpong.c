/*
 * Raw U-Net, ping-pong: the parent sends a message, the child sends it back. Prints the median
 * round trip of each size.
 *
 *      unet_pingpong [--provider shm|direct|emul|verbs] [--json]
 */
#include <stdlib.h>
#include <string.h>

#include "example.h"

#define MAX_SAMPLES 100000
#define TRIPS       8
#define WARM_UP     1000

/* A message of one byte in the descriptor, 0, ends the child. Others are echoed from the child's
 * transmit part, as a server would answer: with data of its own. */
static void echo(struct side *s)
{
        struct unet_recv m;

        for (;;) {
                receive(s, &m, 1);
                if (m.len == 1)
                        return;
                send_all(s, 0, m.len);
                give_back(s, &m, 1);
        }
}

/* One sample: the mean of a few, so that reading the clock does not count. */
static double round_trip(struct side *s, uint32_t size)
{
        double start = now();
        struct unet_recv m;

        for (int i = 0; i < TRIPS; i++) {
                send_all(s, 0, size);
                receive(s, &m, 1);
                give_back(s, &m, 1);
        }
        return (now() - start) / TRIPS;
}

static int by_value(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

static void measure(struct side *s, const struct options *o, uint32_t size)
{
        static double sample[MAX_SAMPLES];
        double start = now(), sum = 0;
        int n = 0;

        for (int i = 0; i < WARM_UP && now() < start + o->seconds / 2; i++)
                round_trip(s, size);
        for (start = now(); n < MAX_SAMPLES && now() < start + o->seconds; n++)
                sum += sample[n] = round_trip(s, size);
        qsort(sample, (size_t)n, sizeof sample[0], by_value);
        if (o->json)
                printf("{\"bytes\": %u, \"rtt_us\": %.3f, \"mean_us\": %.3f, \"p99_us\": %.3f, "
                       "\"samples\": %d}\n",
                       size, sample[n / 2] * 1e6, sum / n * 1e6, sample[n * 99 / 100] * 1e6, n);
        else
                printf("%8u %12.3f %12.3f\n", size, sample[n / 2] * 1e6,
                       sample[n * 99 / 100] * 1e6);
}

int main(int argc, char **argv)
{
        struct options o = options_read(
                argc, argv, "Round trip of messages between two processes, over raw U-Net.");
        struct side s = start(&o);

        if (s.child) {
                echo(&s);
                finish(&s);
        }
        if (!o.json)
                printf("%8s %12s %12s   (%s)\n", "bytes", "median us", "99 % us", o.provider);
        each_size(&s, &o, measure);
        send_all(&s, 0, 1);
        finish(&s);
        return 0;
}
