/*
 * Radix sort (§6 of the paper), least significant digit first. In each pass every processor learns
 * all histograms, and from them the place of each of its keys. Variants: small stores each key
 * alone, bulk the keys of a digit together.
 */
#include <stdlib.h>
#include <string.h>

#include "prog.h"

#define BITS   8u
#define DIGITS (1u << BITS)

struct rsort {
        uint64_t n, each, mine;
        uint64_t from, to, hist; /* in the heap */
        uint64_t place[DIGITS];  /* of the next key of each digit, in the whole */
};

static uint32_t digit(uint32_t key, uint32_t pass)
{
        return key >> pass * BITS & (DIGITS - 1);
}

static void find_places(struct rsort *s, uint32_t pass)
{
        uint32_t procs = sc_procs(), me = sc_me(), *key = sc_at(s->from);
        uint64_t count[DIGITS] = {0}, *all = sc_at(s->hist), at = 0;

        for (uint64_t i = 0; i < s->mine; i++)
                count[digit(key[i], pass)]++;
        for (uint32_t r = 0; r < procs; r++)
                sc_bulk_store(sc_global(r, s->hist + me * sizeof count), count, sizeof count);
        sc_all_store_sync();
        for (uint32_t d = 0; d < DIGITS; d++)
                for (uint32_t r = 0; r < procs; r++) {
                        if (r == me)
                                s->place[d] = at;
                        at += all[r * DIGITS + d];
                }
}

static sc_gptr place_at(const struct rsort *s, uint64_t place)
{
        return sc_global((uint32_t)(place / s->each), s->to + place % s->each * sizeof(uint32_t));
}

static void send_small(struct rsort *s, uint32_t pass)
{
        const uint32_t *key = sc_at(s->from);

        for (uint64_t i = 0; i < s->mine; i++)
                sc_store_u32(place_at(s, s->place[digit(key[i], pass)]++), key[i]);
}

/* A run may end on the next processor. */
static void send_run(const struct rsort *s, const uint32_t *key, uint64_t n, uint64_t place)
{
        while (n > 0) {
                uint64_t here = s->each - place % s->each, k = n < here ? n : here;
                sc_bulk_store(place_at(s, place), key, k * sizeof *key);
                key += k;
                n -= k;
                place += k;
        }
}

static void send_bulk(struct rsort *s, uint32_t pass)
{
        const uint32_t *key = sc_at(s->from);
        uint32_t *sorted = malloc((s->mine + 1) * sizeof *sorted);
        uint64_t count[DIGITS] = {0}, start[DIGITS], at = 0;

        if (sorted == NULL)
                abort();
        for (uint64_t i = 0; i < s->mine; i++)
                count[digit(key[i], pass)]++;
        for (uint32_t d = 0; d < DIGITS; at += count[d], d++)
                start[d] = at;
        for (uint64_t i = 0; i < s->mine; i++)
                sorted[start[digit(key[i], pass)]++] = key[i];
        for (uint32_t d = 0; d < DIGITS; d++)
                send_run(s, sorted + start[d] - count[d], count[d], s->place[d]);
        free(sorted);
}

static void one_pass(struct rsort *s, struct prog *p, uint32_t pass)
{
        uint64_t swap = s->from;

        prog_wait(p);
        find_places(s, pass);
        if (prog_is(p, "small"))
                send_small(s, pass);
        else
                send_bulk(s, pass);
        sc_all_store_sync();
        prog_go(p);
        s->from = s->to;
        s->to = swap;
}

static bool is_right(const struct rsort *s, const struct prog *p)
{
        uint32_t *all = malloc((s->n + 1) * sizeof *all);
        bool right;

        if (all == NULL)
                abort();
        for (uint64_t i = 0; i < s->n; i++)
                all[i] = prog_key(p, i, s->n, sc_procs());
        prog_sort(all, s->n);
        right = s->mine == 0 ||
                memcmp(all + sc_me() * s->each, sc_at(s->from), s->mine * sizeof *all) == 0;
        free(all);
        return right;
}

int main(int argc, char **argv)
{
        static const char *const variants[] = {"small", "bulk", NULL};
        struct prog p = prog_start(argc, argv, "rsort", 65536, variants, 0, 12);
        struct rsort s = {.n = p.size, .each = (p.size + sc_procs() - 1) / sc_procs()};
        uint64_t first = sc_me() * s.each;
        uint32_t *key;

        s.mine = first >= s.n ? 0 : first + s.each > s.n ? s.n - first : s.each;
        s.from = sc_all_alloc(s.each * sizeof(uint32_t));
        s.to = sc_all_alloc(s.each * sizeof(uint32_t));
        s.hist = sc_all_alloc(sc_procs() * DIGITS * sizeof(uint64_t));
        key = sc_at(s.from);
        for (uint64_t i = 0; i < s.mine; i++)
                key[i] = prog_key(&p, first + i, s.n, sc_procs());
        prog_measure(&p);
        for (uint32_t pass = 0; pass < 32 / BITS; pass++)
                one_pass(&s, &p, pass);
        return prog_end(&p, is_right(&s, &p));
}
