/* What the Split-C programs share. See prog.h. */
#include "prog.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const distributions[] = {"uniform", "gauss", "zero", "bucket",
                                            "stagger", "same",  NULL};

static bool among(const char *word, const char *const *words)
{
        for (; *words != NULL; words++)
                if (strcmp(word, *words) == 0)
                        return true;
        return false;
}

static void usage(const char *name, const char *const *variants)
{
        fprintf(stderr,
                "usage: %s [--size N] [--seed S] [--keys uniform|gauss|zero|bucket|stagger|same] "
                "[--variant",
                name);
        for (int i = 0; variants[i] != NULL; i++)
                fprintf(stderr, "%c%s", i == 0 ? ' ' : '|', variants[i]);
        fprintf(stderr, "]\n");
        exit(2);
}

struct prog prog_start(int argc, char **argv, const char *name, uint64_t size,
                       const char *const *variants, size_t per_square, size_t per_size)
{
        static const struct option opts[] = {{"size", required_argument, NULL, 'n'},
                                             {"variant", required_argument, NULL, 'v'},
                                             {"keys", required_argument, NULL, 'k'},
                                             {"seed", required_argument, NULL, 's'},
                                             {NULL, 0, NULL, 0}};
        struct prog p = {
                .name = name, .size = size, .variant = variants[0], .keys = "uniform", .seed = 1};
        int c;

        while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
                if (c == 'n')
                        p.size = strtoull(optarg, NULL, 10);
                else if (c == 'v' && among(optarg, variants))
                        p.variant = optarg;
                else if (c == 'k' && among(optarg, distributions))
                        p.keys = optarg;
                else if (c == 's')
                        p.seed = strtoull(optarg, NULL, 10);
                else
                        usage(name, variants);
        }
        if (optind < argc || p.size == 0)
                usage(name, variants);
        sc_init((per_square * p.size + per_size) * p.size + HEAP_LEAST);
        return p;
}

bool prog_is(const struct prog *p, const char *variant)
{
        return strcmp(p->variant, variant) == 0;
}

void prog_measure(struct prog *p)
{
        sc_barrier();
        p->start = sc_seconds();
        p->waited = 0;
}

void prog_wait(struct prog *p)
{
        p->wait_start = sc_seconds();
}

void prog_go(struct prog *p)
{
        p->waited += sc_seconds() - p->wait_start;
}

int prog_end(struct prog *p, bool right)
{
        double total = sc_all_reduce_f64(UAM_MAX, sc_seconds() - p->start);
        double waited = sc_all_reduce_f64(UAM_ADD, p->waited) / sc_procs();
        bool all = sc_all_reduce_i64(UAM_AND, right) != 0;

        if (sc_me() == 0)
                printf("%s %s size %llu processors %u seconds %.6f compute %.6f communication %.6f "
                       "%s\n",
                       p->name, p->variant, (unsigned long long)p->size, sc_procs(), total,
                       total - waited, waited, all ? "right" : "WRONG");
        fflush(stdout);
        sc_exit();
        return all ? 0 : 1;
}

/* ---- keys ---- */

static uint32_t gauss(uint64_t seed, uint64_t i)
{
        uint64_t sum = 0;

        for (uint64_t k = 0; k < 4; k++)
                sum += prog_random(seed, 4 * i + k) >> 32;
        return (uint32_t)(sum / 4);
}

uint32_t prog_key(const struct prog *p, uint64_t i, uint64_t n, uint32_t procs)
{
        uint64_t r = prog_random(p->seed, i), part = (UINT64_C(1) << 32) / procs,
                 each = (n + procs - 1) / procs;
        uint64_t me = i / each;

        switch (p->keys[0] == 's' ? p->keys[1] : p->keys[0]) {
        case 'g':
                return gauss(p->seed, i);
        case 'z':
                return 0;
        case 'b':
                return (uint32_t)(part * (i % each * procs / each) + r % part);
        case 't': /* stagger */
                return (uint32_t)(part * (me < procs / 2 ? 2 * me + 1 : 2 * (me - procs / 2)) +
                                  r % part);
        case 'a': /* same */
                return (uint32_t)(r % 8);
        default:
                return (uint32_t)(r >> 32);
        }
}

static int by_value(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

        return (x > y) - (x < y);
}

void prog_sort(uint32_t *key, uint64_t n)
{
        qsort(key, n, sizeof *key, by_value);
}
