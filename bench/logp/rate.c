/*
 * Active messages against their size, two ranks of a job: the time of a request and its reply that
 * carry so many bytes each, and the bandwidth of stores from the sender's segment, of stores from
 * other memory, and of requests with a buffer.
 *
 *      unet am run -n 2 am_rate [--json] [SECONDS [BYTES...]]    for each size and kind
 *
 * Up to 64 bytes are arguments, then a buffer; what is longer than a buffer is a long message
 * there, and one back.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <unet/am.h>

#define BATCH   64 /* stores between two looks at the clock */
#define MOST    (1u << 20)
#define TRIPS   16 /* in a sample */
#define SAMPLES 20000

enum { ASK, ANSWER, ASK_LONG, ANSWER_LONG, TAKE, STOP };

static struct uam *am;
static uint8_t *memory; /* the first MOST bytes are sent from, the next received into */
static uint8_t other[MOST];
static volatile uint64_t answers;
static volatile uint64_t asked_long; /* bytes of a long message that is to be answered */
static volatile bool stopped;
static double least = 0.2;

static double now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void must(int err, const char *what)
{
        if (err == 0)
                return;
        fprintf(stderr, "am_rate: %s: %s\n", what, strerror(-err));
        exit(1);
}

/* ---- handlers ---- */

static void on_ask(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                   void *ctx)
{
        if (len != 0)
                uam_reply_medium(t, ANSWER, memory, len, NULL, 0);
        else
                uam_reply_short(t, ANSWER, arg, nargs);
}

static void on_answer(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                      void *ctx)
{
        answers++;
}

/* A handler sends no request: the loop of rank 1 does. */
static void on_ask_long(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                        void *ctx)
{
        asked_long = len;
}

static void on_take(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                    void *ctx)
{
}

static void on_stop(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                    void *ctx)
{
        stopped = true;
}

static void serve(void)
{
        while (!stopped) {
                uam_pause(am);
                if (asked_long != 0) {
                        must(uam_request_long(am, 0, ANSWER_LONG, 0, memory, asked_long, MOST, NULL,
                                              NULL, 0),
                             "answer");
                        asked_long = 0;
                }
        }
}

/* ---- round trips ---- */

static void ask(size_t size)
{
        static const uam_arg arg[UAM_ARGS];
        int err;

        if (size <= 8 * UAM_ARGS)
                err = uam_request_short(am, 1, ASK, 0, arg, (int)size / 8);
        else if (size <= uam_max_medium(am, 1))
                err = uam_request_medium(am, 1, ASK, 0, memory, size, NULL, 0);
        else
                err = uam_request_long(am, 1, ASK_LONG, 0, memory, size, MOST, NULL, NULL, 0);
        must(err, "request");
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
        double end = now() + least;
        int n = 0;

        do {
                double start = now();
                for (int i = 0; i < TRIPS; i++) {
                        uint64_t until = answers + 1;
                        ask(size);
                        uam_wait_for(am, answers >= until);
                }
                sample[n++] = (now() - start) / TRIPS * 1e6;
        } while (n < SAMPLES && now() < end);
        qsort(sample, (size_t)n, sizeof sample[0], by_value);
        return sample[n / 2];
}

/* ---- bandwidth ---- */

/* MB a second, the last acknowledged. */
static double stores(const void *from, size_t size)
{
        struct uam_event e = {0};
        double start = now(), took;
        uint64_t bytes = 0;

        do {
                for (int i = 0; i < BATCH; i++, bytes += size)
                        must(uam_put(am, 1, MOST, from, size, &e), "store");
                took = now() - start;
        } while (took < least);
        uam_wait_for(am, e.left == 0);
        return (double)bytes / (now() - start) / 1e6;
}

/* The handler sees them where they arrived. 0: they do not fit. */
static double buffers(size_t size)
{
        double start = now(), took;
        uint64_t bytes = 0;

        if (size > uam_max_medium(am, 1))
                return 0;
        do {
                for (int i = 0; i < BATCH; i++, bytes += size)
                        must(uam_request_medium(am, 1, TAKE, 0, memory, size, NULL, 0), "request");
                took = now() - start;
        } while (took < least);
        must(uam_flush(am, 1, UNET_FOREVER), "flush");
        return (double)bytes / (now() - start) / 1e6;
}

/* ---- the report ---- */

static void measure(size_t size, bool json)
{
        double rtt = round_trip(size), lent = stores(memory, size), copied = stores(other, size),
               buffered = buffers(size);

        printf(json ? "{\"bytes\": %zu, \"rtt_us\": %.3f, \"segment_mb_s\": %.3f, \"copied_mb_s\": "
                      "%.3f, \"buffer_mb_s\": %.3f}\n"
                    : "%8zu bytes %10.3f us %12.1f %12.1f %12.1f MB/s\n",
               size, rtt, lent, copied, buffered);
}

static size_t size_of(const char *text)
{
        size_t size = strtoul(text, NULL, 10);

        return size < 8 ? 8 : size > MOST ? MOST : size;
}

static void handlers(void)
{
        uam_register(am, ASK, on_ask, UAM_SHORT | UAM_MEDIUM | UAM_REQUEST, NULL);
        uam_register(am, ANSWER, on_answer, UAM_SHORT | UAM_MEDIUM | UAM_REPLY, NULL);
        uam_register(am, ASK_LONG, on_ask_long, UAM_LONG | UAM_REQUEST, NULL);
        uam_register(am, ANSWER_LONG, on_answer, UAM_LONG | UAM_REQUEST, NULL);
        uam_register(am, TAKE, on_take, UAM_MEDIUM | UAM_REQUEST, NULL);
        uam_register(am, STOP, on_stop, UAM_SHORT | UAM_REQUEST, NULL);
}

int main(int argc, char **argv)
{
        static const size_t sizes[] = {8,    16,   32,   64,    128,   256,   512,    1024,
                                       2048, 4096, 8192, 16384, 32768, 65536, 262144, 1048576};
        bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
        int given = 2 + json;
        size_t bytes;

        if (argc > 1 + json)
                least = atof(argv[1 + json]);
        if (least <= 0 || uam_job_open(NULL, &am) != 0 || uam_ranks(am) != 2) {
                fprintf(stderr, "usage: unet am run -n 2 am_rate [--json] [SECONDS [BYTES...]]\n");
                return 2;
        }
        memory = uam_memory(am, &bytes);
        uam_segment(am, memory, bytes);
        memset(memory, 1, 2 * (size_t)MOST);
        handlers();
        must(uam_barrier(am), "barrier");
        if (uam_rank(am) == 0) {
                for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && argc <= given; i++)
                        measure(sizes[i], json);
                for (int i = given; i < argc; i++)
                        measure(size_of(argv[i]), json);
                uam_request_short(am, 1, STOP, 0, NULL, 0);
        } else {
                serve();
        }
        fflush(stdout);
        uam_job_close(am);
        return 0;
}
