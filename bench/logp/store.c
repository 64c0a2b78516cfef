/*
 * Split-C stores against their size, two processors: there and back, and one way.
 *
 *      unet am run -n 2 splitc_rate [--json] [SECONDS [BYTES...]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unet/splitc.h>

#define MOST    (1u << 20)
#define BATCH   64
#define TRIPS   16 /* in a sample */
#define SAMPLES 20000

static double least = 0.2;
static sc_gptr there; /* the other's memory */
static uint8_t *from;

/* Both go on while processor 0 says so, in rounds of a batch. */
static int64_t go_on(double end)
{
        return sc_all_reduce_i64(UAM_MAX, sc_me() == 0 && sc_seconds() < end);
}

static int by_value(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

/* The median of means of a few, microseconds. */
static double round_trip(size_t size)
{
        static double sample[SAMPLES];
        double end = sc_seconds() + least;
        int n = 0;

        do {
                for (int k = 0; k < BATCH; k++) {
                        double start = sc_seconds();
                        for (int i = 0; i < TRIPS; i++) {
                                if (sc_me() == 0)
                                        sc_bulk_store(there, from, size);
                                sc_store_sync(size);
                                if (sc_me() == 1)
                                        sc_bulk_store(there, from, size);
                        }
                        sample[n++] = (sc_seconds() - start) / TRIPS * 1e6;
                }
                sc_all_store_sync();
        } while (go_on(end) && n + BATCH <= SAMPLES);
        qsort(sample, (size_t)n, sizeof sample[0], by_value);
        return sample[n / 2];
}

/* MB a second, all of them there. */
static double rate(size_t size)
{
        double start = sc_seconds(), end = start + least;
        uint64_t bytes = 0;

        do {
                for (int i = 0; i < 16 * BATCH && sc_me() == 0; i++)
                        sc_bulk_store(there, from, size);
                bytes += 16 * BATCH * size;
                sc_all_store_sync();
        } while (go_on(end));
        return (double)bytes / (sc_seconds() - start) / 1e6;
}

static void measure(size_t size, int json)
{
        double rtt = round_trip(size), mb = rate(size);

        if (sc_me() == 0)
                printf(json ? "{\"bytes\": %zu, \"rtt_us\": %.3f, \"mb_s\": %.3f}\n"
                            : "%8zu bytes %10.3f us %12.1f MB/s\n",
                       size, rtt, mb);
}

static size_t size_of(const char *text)
{
        size_t size = strtoul(text, NULL, 10);

        return size < 8 ? 8 : size > MOST ? MOST : size;
}

int main(int argc, char **argv)
{
        static const size_t sizes[] = {8,    16,   32,   64,    128,   256,   512,    1024,
                                       2048, 4096, 8192, 16384, 32768, 65536, 262144, 1048576};
        int json = argc > 1 && strcmp(argv[1], "--json") == 0, given = 2 + json;

        if (argc > 1 + json)
                least = atof(argv[1 + json]);
        sc_init(3 * (size_t)MOST);
        if (sc_procs() != 2 || least <= 0) {
                fprintf(stderr,
                        "usage: unet am run -n 2 splitc_rate [--json] [SECONDS [BYTES...]]\n");
                return 2;
        }
        there = sc_global(1 - sc_me(), sc_all_alloc(MOST));
        from = sc_at(sc_all_alloc(MOST));
        memset(from, 1, MOST);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && argc <= given; i++)
                measure(sizes[i], json);
        for (int i = given; i < argc; i++)
                measure(size_of(argv[i]), json);
        fflush(stdout);
        sc_exit();
        return 0;
}
