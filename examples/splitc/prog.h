/*
 * What the Split-C programs share: options, keys to sort, time spent waiting, the last line.
 *
 *      PROGRAM [--size N] [--variant V] [--keys D] [--seed S]
 */
#ifndef PROG_H
#define PROG_H

#include <stdbool.h>
#include <stdint.h>

#include <unet/splitc.h>

struct prog {
        const char *name;
        uint64_t size;
        const char *variant;
        const char *keys;
        uint64_t seed;
        double start, wait_start, waited;
};

/* Reads the options and joins the job: `size` and `variants[0]` are the defaults. The heap holds so
 * many bytes for each of size * size, and of size, and HEAP_LEAST. Ends the program when an option
 * is wrong. */
#define HEAP_LEAST (2u << 20)
struct prog prog_start(int argc, char **argv, const char *name, uint64_t size,
                       const char *const *variants, size_t per_square, size_t per_size);
bool prog_is(const struct prog *p, const char *variant);
/* The measured part begins; between wait and go the program communicates. */
void prog_measure(struct prog *p);
void prog_wait(struct prog *p);
void prog_go(struct prog *p);
/* Ends the measured part, tells whether all processors say `right`, leaves. Returns
 * main's value. */
int prog_end(struct prog *p, bool right);

/* A number that follows from its arguments alone. */
static inline uint64_t prog_random(uint64_t seed, uint64_t i)
{
        uint64_t z = seed * 0x9e3779b97f4a7c15u + i * 0xd1342543de82ef95u;

        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
}

/*
 * Key i of n, dealt to p processors (the distributions of Bader, Helman, JaJa: Practical Parallel
 * Algorithms for Personalized Communication and Integer Sorting, 1996):
 *   uniform  gauss  zero  same (few values)
 *   bucket (sorted into p buckets)  stagger (each processor's go to another)
 */
uint32_t prog_key(const struct prog *p, uint64_t i, uint64_t n, uint32_t procs);
/* Sorts in place, in serial: what the programs are checked against. */
void prog_sort(uint32_t *key, uint64_t n);

#endif
