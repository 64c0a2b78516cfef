/*
 * LogP and LogGP of active messages (Culler, Liu, Martin, Yoshikawa 1996; Hoefler, Lichei, Rehm
 * 2007), two ranks of a job:
 *
 *      unet am run -n 2 logp [--json] [REPEATS]
 *
 * Rank 0 measures, rank 1 answers from its poll loop. Method A: o_s is the time to issue one
 * request; g the time a message of a window sent back to back; o_r what a think time longer than
 * the round trip leaves of a message's time; L what is left of half a round trip. Method B: PRTT(n,
 * d, s), n messages of s bytes, d between them, one answer to the last; gap(s) is a line g + G s by
 * least squares. A negative L says that the receiver's work overlaps the sender's; it is printed as
 * it is.
 */
#include <math.h>
#include <stdbool.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <unet/am.h>

#define REPEATS_MOST 20001
#define WINDOW       16

enum { ASK, ANSWER, TAKE, STOP };

static struct uam *am;
static volatile uint64_t answers;
static volatile int stopped;
static uint8_t *memory;

static double now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
        return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static void on_ask(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                   void *ctx)
{
        uam_reply_short(t, ANSWER, arg, nargs);
}

static void on_answer(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                      void *ctx)
{
        answers++;
}

/* Data without an answer, but for the last (argument 1). */
static void on_take(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                    void *ctx)
{
        if (arg[0] != 0)
                uam_reply_short(t, ANSWER, arg, 0);
}

static void on_stop(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                    void *ctx)
{
        stopped = 1;
}

/* ---- statistics ---- */

static int by_value(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

static double clock_cost;
static int repeats = 2001; /* of each measurement, after a tenth as many to warm up */

/* The median of the measurements, less what reading the clock takes. */
static double median(double (*measure)(void *), void *arg)
{
        static double sample[REPEATS_MOST];

        for (int i = 0; i < repeats / 10; i++)
                measure(arg);
        for (int i = 0; i < repeats; i++)
                sample[i] = measure(arg);
        qsort(sample, (size_t)repeats, sizeof sample[0], by_value);
        return sample[repeats / 2] - clock_cost;
}

static double nothing(void *arg)
{
        double start = now();

        return now() - start;
}

/* ---- method A ---- */

static void ask(void)
{
        static const uam_arg arg[1];

        uam_request_short(am, 1, ASK, 0, arg, 1);
}

static void wait_answers(uint64_t until)
{
        while (answers < until)
                uam_poll(am);
}

static double round_trip(void *arg)
{
        uint64_t until = answers + 1;
        double start = now();

        ask();
        wait_answers(until);
        return now() - start;
}

static double send_one(void *arg)
{
        uint64_t until = answers + 1;
        double start, took;

        uam_poll(am); /* the request does not poll again */
        start = now();
        ask();
        took = now() - start;
        wait_answers(until);
        return took;
}

static double empty_poll(void *arg)
{
        double start = now();

        uam_poll(am);
        return now() - start;
}

struct burst {
        int messages;
        double think; /* ns between two */
};

static double burst(void *arg)
{
        const struct burst *b = arg;
        uint64_t until = answers + (uint64_t)b->messages;
        double start = now();

        for (int i = 0; i < b->messages; i++) {
                double t = b->think > 0 ? now() + b->think : 0;
                ask();
                while (b->think > 0 && now() < t)
                        ;
                uam_poll(am);
        }
        wait_answers(until);
        return now() - start;
}

struct logp {
        double rtt, poll, os, g, or, l;
};

static double per_message(int messages, double think)
{
        struct burst b = {messages, think};

        return median(burst, &b) / messages;
}

static struct logp method_a(void)
{
        struct logp r = {.rtt = median(round_trip, NULL),
                         .poll = median(empty_poll, NULL),
                         .os = median(send_one, NULL)};
        double think;

        r.g = per_message(WINDOW, 0);
        think = 3 * r.rtt + 1000;
        r.or = per_message(WINDOW, think) - think - r.os;
        r.l = r.rtt / 2 - r.os - r.or ;
        return r;
}

/* ---- method B ---- */

struct train {
        int n;
        size_t size;
        double think;
};

static double train(void *arg)
{
        const struct train *t = arg;
        uint64_t until = answers + 1;
        double start = now();

        for (int i = 0; i < t->n; i++) {
                uam_arg last = i + 1 == t->n;
                double next = t->think > 0 ? now() + t->think : 0;
                uam_request_long(am, 1, TAKE, 0, memory, t->size, 0, NULL, &last, 1);
                while (t->think > 0 && now() < next)
                        ;
        }
        wait_answers(until);
        return now() - start;
}

static double prtt(int n, size_t size)
{
        struct train t = {n, size, 0};

        return median(train, &t);
}

static const size_t sizes[] = {8, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
#define SIZES (sizeof sizes / sizeof sizes[0])

struct line {
        double g, big_g, error;
};

static struct line fit(const double *gap)
{
        double sx = 0, sy = 0, sxx = 0, sxy = 0, n = SIZES, err = 0;
        struct line l;

        for (size_t i = 0; i < SIZES; i++) {
                double x = (double)sizes[i];
                sx += x;
                sy += gap[i];
                sxx += x * x;
                sxy += x * gap[i];
        }
        l.big_g = (n * sxy - sx * sy) / (n * sxx - sx * sx);
        l.g = (sy - l.big_g * sx) / n;
        for (size_t i = 0; i < SIZES; i++)
                err += pow(gap[i] - l.g - l.big_g * (double)sizes[i], 2);
        l.error = sqrt(err / n);
        return l;
}

/* ---- the report ---- */

static void report_json(const struct logp *a, const struct line *l)
{
        printf("{\"rtt_ns\": %.0f, \"poll_ns\": %.0f, \"os_ns\": %.0f, \"or_ns\": %.0f, \"g_ns\": "
               "%.0f, \"l_ns\": %.0f,"
               " \"fit_g_ns\": %.0f, \"fit_G_ns_per_byte\": %.4f, \"fit_error_ns\": %.0f, "
               "\"signature\": [",
               a->rtt, a->poll, a->os, a->or, a->g, a->l, l->g, l->big_g, l->error);
        for (int m = 1; m <= WINDOW; m *= 2)
                for (double d = 0; d <= 4 * a->rtt; d += a->rtt / 2)
                        printf("%s[%d, %.0f, %.0f]", m > 1 || d > 0 ? ", " : "", m, d,
                               per_message(m, d));
        printf("]}\n");
}

static void report(bool json)
{
        struct logp a = method_a();
        double gap[SIZES];
        struct line l;

        for (size_t i = 0; i < SIZES; i++)
                gap[i] = (prtt(WINDOW, sizes[i]) - prtt(1, sizes[i])) / (WINDOW - 1);
        l = fit(gap);
        if (json) {
                report_json(&a, &l);
                return;
        }
        printf("round trip %.0f ns (2L + 4o = %.0f), an empty poll %.0f\n", a.rtt,
               2 * a.l + 2 * (a.os + a.or), a.poll);
        printf("o_s %.0f  o_r %.0f  g %.0f  L %.0f%s\n", a.os, a.or, a.g, a.l,
               a.l <= 0 ? " (overlapped)" : "");
        printf("signature, ns a message with think time D:\n");
        for (int m = 1; m <= WINDOW; m *= 2) {
                printf("  %2d messages", m);
                for (double d = 0; d <= 4 * a.rtt; d += a.rtt / 2)
                        printf("  %.0f:%.0f", d, per_message(m, d));
                printf("\n");
        }
        printf("gap by size:");
        for (size_t i = 0; i < SIZES; i++)
                printf("  %zu:%.0f", sizes[i], gap[i]);
        printf("\nby least squares g %.0f ns, G %.4f ns/byte, error %.0f ns\n", l.g, l.big_g,
               l.error);
}

/* A processor for each rank: two on one measure the scheduler. */
static bool own_processor(unsigned rank)
{
        cpu_set_t allowed, one;

        if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2)
                return false;
        CPU_ZERO(&one);
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
                if (CPU_ISSET(cpu, &allowed) && rank-- == 0)
                        CPU_SET(cpu, &one);
        return sched_setaffinity(0, sizeof one, &one) == 0;
}

int main(int argc, char **argv)
{
        size_t bytes;
        bool json = argc > 1 && strcmp(argv[1], "--json") == 0;

        if (argc > 1 + json)
                repeats = atoi(argv[1 + json]);
        if (repeats < 1 || repeats > REPEATS_MOST || uam_job_open(NULL, &am) != 0 ||
            uam_ranks(am) != 2 || !own_processor(uam_rank(am))) {
                fprintf(stderr,
                        "usage: unet am run -n 2 logp [--json] [REPEATS], with two processors\n");
                return 2;
        }
        memory = uam_memory(am, &bytes);
        uam_segment(am, memory, bytes);
        uam_register(am, ASK, on_ask, UAM_SHORT | UAM_REQUEST, NULL);
        uam_register(am, ANSWER, on_answer, UAM_SHORT | UAM_REPLY, NULL);
        uam_register(am, TAKE, on_take, UAM_LONG | UAM_REQUEST, NULL);
        uam_register(am, STOP, on_stop, UAM_SHORT | UAM_REQUEST, NULL);
        uam_barrier(am);
        clock_cost = 0;
        clock_cost = median(nothing, NULL);
        if (uam_rank(am) == 0) {
                report(json);
                uam_request_short(am, 1, STOP, 0, NULL, 0);
        } else {
                while (!stopped)
                        uam_poll(am);
        }
        uam_job_close(am);
        return 0;
}
