/* A main for fuzz targets without libFuzzer: seeds, mutated by a generator with a seed of its own.
 * See fuzz.h. */
#include "tests/fuzz/fuzz.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/prng.h"
#include "tests/long_run.h"

#define MAX_SEEDS 64u

struct input {
        size_t len;
        uint8_t byte[FUZZ_MAX_INPUT];
};

static struct input seeds[MAX_SEEDS], current;
static unsigned nseeds;
static uint64_t seed = 1, runs = 100000, long_runs, only = UINT64_MAX, run_now;
static const char *corpus_dir;
static bool expect_crash;

/* ---- a crash says how to see it again ---- */

static void report(void)
{
        fprintf(stderr, "\ncrash: -seed=%llu -only=%llu, %zu bytes:\n", (unsigned long long)seed,
                (unsigned long long)run_now, current.len);
        for (size_t i = 0; i < current.len; i++)
                fprintf(stderr, "%02x%s", current.byte[i], i % 32 == 31 ? "\n" : " ");
        fputc('\n', stderr);
}

static void on_signal(int sig)
{
        report();
        signal(sig, SIG_DFL);
        raise(sig);
}

/* Present when a sanitizer is linked in, which then does not die by a signal. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void catch_crashes(void)
{
        static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

        if (__sanitizer_set_death_callback != NULL)
                __sanitizer_set_death_callback(report);
        for (size_t i = 0; i < ARRAY_LEN(signals); i++)
                if (signals[i] == SIGABRT || __sanitizer_set_death_callback == NULL)
                        signal(signals[i], on_signal);
}

/* ---- mutations; each leaves a length of at most FUZZ_MAX_INPUT ---- */

static void flip_bit(struct input *in, struct prng_fast *g)
{
        in->byte[prng_fast_below(g, (uint32_t)in->len)] ^= (uint8_t)(1u << prng_fast_below(g, 8));
}

static void set_interesting(struct input *in, struct prng_fast *g)
{
        static const uint8_t values[] = {0,  1,    2,    3,    4,    5,    7,    8,   16,
                                         20, 0x45, 0x46, 0x4f, 0x7f, 0x80, 0xfe, 0xff};

        in->byte[prng_fast_below(g, (uint32_t)in->len)] =
                values[prng_fast_below(g, ARRAY_LEN(values))];
}

static void set_random(struct input *in, struct prng_fast *g)
{
        in->byte[prng_fast_below(g, (uint32_t)in->len)] = (uint8_t)prng_fast_u64(g);
}

static void add_small(struct input *in, struct prng_fast *g)
{
        in->byte[prng_fast_below(g, (uint32_t)in->len)] += (uint8_t)(prng_fast_below(g, 9) - 4);
}

static void cut_tail(struct input *in, struct prng_fast *g)
{
        in->len = 1 + prng_fast_below(g, (uint32_t)in->len);
}

static void cut_middle(struct input *in, struct prng_fast *g)
{
        size_t at = prng_fast_below(g, (uint32_t)in->len),
               n = prng_fast_below(g, (uint32_t)(in->len - at));

        memmove(in->byte + at, in->byte + at + n, in->len - at - n);
        in->len -= n;
}

static void repeat_range(struct input *in, struct prng_fast *g)
{
        size_t at = prng_fast_below(g, (uint32_t)in->len),
               n = 1 + prng_fast_below(g, (uint32_t)(in->len - at));

        n = MIN(n, FUZZ_MAX_INPUT - in->len);
        memmove(in->byte + at + n, in->byte + at, in->len - at);
        in->len += n;
}

static void splice_seed(struct input *in, struct prng_fast *g)
{
        const struct input *other = &seeds[prng_fast_below(g, nseeds)];
        size_t at = prng_fast_below(g, (uint32_t)in->len),
               from = prng_fast_below(g, (uint32_t)other->len);
        size_t n = MIN(other->len - from, FUZZ_MAX_INPUT - at);

        memcpy(in->byte + at, other->byte + from, n);
        in->len = MAX(in->len, at + n);
}

/* Input number `run`: it depends on the seed and the number, on nothing else. Run n < nseeds is
 * seed n untouched. */
static void make_input(uint64_t run)
{
        static void (*const mutations[])(struct input *, struct prng_fast *) = {
                flip_bit, set_interesting, set_random,   add_small,
                cut_tail, cut_middle,      repeat_range, splice_seed,
        };
        struct prng_fast g;

        if (run < nseeds) {
                current = seeds[run];
                return;
        }
        prng_fast_init(&g, seed * 0x9e3779b97f4a7c15 + run);
        current = seeds[prng_fast_below(&g, nseeds)];
        for (uint32_t n = 1 + prng_fast_below(&g, 6); n != 0; n--)
                mutations[prng_fast_below(&g, ARRAY_LEN(mutations))](&current, &g);
}

/* ---- running ---- */

static void run_one(uint64_t run)
{
        uint8_t *exact;

        run_now = run;
        make_input(run);
        /* Of exactly its size, so that a sanitizer sees one byte too many. */
        exact = malloc(current.len);
        memcpy(exact, current.byte, current.len);
        LLVMFuzzerTestOneInput(exact, current.len);
        free(exact);
}

static int run_all(void)
{
        printf("seed %llu, %llu runs, %u seeds\n", (unsigned long long)seed,
               (unsigned long long)runs, nseeds);
        fflush(stdout);
        catch_crashes();
        if (only != UINT64_MAX) {
                run_one(only);
                return 0;
        }
        for (uint64_t run = 0; run < runs; run++)
                run_one(run);
        return 0;
}

static int run_to_crash(void)
{
        int status = 0;
        pid_t pid = fork();

        if (pid == 0)
                exit(run_all());
        if (pid < 0 || waitpid(pid, &status, 0) < 0)
                return 2;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
                fprintf(stderr, "no bug found, and there is one\n");
                return 1;
        }
        printf("found\n");
        return 0;
}

static int write_corpus(void)
{
        for (unsigned i = 0; i < nseeds; i++) {
                char path[4096];
                FILE *f;

                snprintf(path, sizeof path, "%s/seed-%02u", corpus_dir, i);
                f = fopen(path, "wb");
                if (f == NULL || fwrite(seeds[i].byte, 1, seeds[i].len, f) != seeds[i].len ||
                    fclose(f) != 0) {
                        perror(path);
                        return 2;
                }
        }
        return 0;
}

static bool parse_option(const char *arg)
{
        if (strncmp(arg, "-runs=", 6) == 0)
                runs = strtoull(arg + 6, NULL, 0);
        else if (strncmp(arg, "-long-runs=", 11) == 0)
                long_runs = strtoull(arg + 11, NULL, 0);
        else if (strncmp(arg, "-seed=", 6) == 0)
                seed = strtoull(arg + 6, NULL, 0);
        else if (strncmp(arg, "-only=", 6) == 0)
                only = strtoull(arg + 6, NULL, 0);
        else if (strncmp(arg, "-corpus=", 8) == 0)
                corpus_dir = arg + 8;
        else if (strcmp(arg, "-expect-crash") == 0)
                expect_crash = true;
        else
                return false;
        return true;
}

int main(int argc, char **argv)
{
        for (int i = 1; i < argc; i++) {
                if (!parse_option(argv[i])) {
                        fprintf(stderr,
                                "usage: %s [-runs=N] [-long-runs=N] [-seed=S] [-only=RUN] "
                                "[-corpus=DIR] [-expect-crash]\n",
                                argv[0]);
                        return 2;
                }
        }
        if (long_run() && long_runs != 0)
                runs = long_runs;
        while (nseeds < MAX_SEEDS &&
               (seeds[nseeds].len = fuzz_seed(nseeds, seeds[nseeds].byte)) != 0)
                nseeds++;
        if (corpus_dir != NULL)
                return write_corpus();
        return expect_crash ? run_to_crash() : run_all();
}
