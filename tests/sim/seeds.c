/*
 * Many seeds, each a plan of its own (plan.h), carried out by two whole stacks (apps.h).
 *
 *      sim_seeds [--first N] [--count N] [--seed N] [--pcap FILE] [--verbose]
 *
 * Seeds run in a child, because what is wrong aborts; the parent says which seed it was, runs it
 * again to write its packets to a capture file, and goes on with the next. Every 25th seed runs
 * twice and must leave the same trace.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sim/apps.h"

#define AGAIN    25u
#define MOST_BAD 10u

static uint64_t first = 1, seeds = 100;
static const char *pcap_path, *program;
static bool single, verbose;
static volatile uint64_t *at; /* the seed being run; shared with the child */

static void run_seed(uint64_t seed, const char *pcap)
{
        struct plan plan;
        uint64_t trace;

        plan_make(&plan, seed);
        if (verbose)
                fprintf(stderr, "seed %llu: %s, %u connections%s%s\n", (unsigned long long)seed,
                        plan.kind, plan.ntalks, plan.recovers ? ", recovers" : "",
                        plan.dies ? ", dies" : "");
        trace = apps_run(&plan, pcap);
        if (seed % AGAIN == 0 && apps_run(&plan, NULL) != trace) {
                fprintf(stderr, "seed %llu: not the same trace twice\n", (unsigned long long)seed);
                abort();
        }
}

static bool child_ends_well(uint64_t from, uint64_t to, const char *pcap)
{
        int status = 0;
        pid_t pid;

        fflush(NULL);
        pid = fork();
        if (pid == 0) {
                for (*at = from; *at < to; ++*at)
                        run_seed(*at, pcap);
                exit(0);
        }
        if (pid < 0 || waitpid(pid, &status, 0) < 0) {
                perror("fork");
                exit(2);
        }
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* It failed once without a capture; being deterministic it does so again, with one. */
static void say_how_to_repeat(uint64_t seed)
{
        struct plan plan;
        char path[64];

        plan_make(&plan, seed);
        snprintf(path, sizeof path, "seed-%llu.pcap", (unsigned long long)seed);
        fprintf(stderr, "seed %llu failed (%s); packets in %s; again: %s --seed %llu --pcap %s\n",
                (unsigned long long)seed, plan.kind, path, program, (unsigned long long)seed, path);
        child_ends_well(seed, seed + 1, path);
}

static bool parse(int argc, char **argv)
{
        static const struct option options[] = {{"first", 1, NULL, 'f'},   {"count", 1, NULL, 'c'},
                                                {"seed", 1, NULL, 's'},    {"pcap", 1, NULL, 'p'},
                                                {"verbose", 0, NULL, 'v'}, {0}};
        int o;

        program = argv[0];
        while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
                if (o == 'f')
                        first = strtoull(optarg, NULL, 0);
                else if (o == 'c')
                        seeds = strtoull(optarg, NULL, 0);
                else if (o == 's')
                        first = strtoull(optarg, NULL, 0), single = true;
                else if (o == 'p')
                        pcap_path = optarg;
                else if (o == 'v')
                        verbose = true;
                else
                        return false;
        }
        return optind == argc;
}

int main(int argc, char **argv)
{
        unsigned bad = 0;
        uint64_t seed;

        if (!parse(argc, argv)) {
                fprintf(stderr,
                        "usage: %s [--first N] [--count N] [--seed N] [--pcap FILE] [--verbose]\n",
                        program);
                return 2;
        }
        if (single) {
                verbose = true;
                run_seed(first, pcap_path);
                return 0;
        }
        at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
                return 2;
        printf("seeds %llu to %llu\n", (unsigned long long)first,
               (unsigned long long)(first + seeds - 1));
        for (seed = first; seed < first + seeds && bad < MOST_BAD; seed = *at + 1) {
                if (child_ends_well(seed, first + seeds, NULL))
                        break;
                bad++;
                seed = *at;
                say_how_to_repeat(seed);
                *at = seed;
        }
        printf("%u failed\n", bad);
        return bad != 0;
}
