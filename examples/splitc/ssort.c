/*
 * Sample sort (§6 of the paper): samples give splitters, each key goes to the processor whose range
 * it is in, each sorts its own. Variants: small sends two keys a message, bulk one message to every
 * processor.
 */
#include <stdlib.h>
#include <string.h>

#include "prog.h"

#define SAMPLES 64u /* of each processor */

struct ssort {
        uint64_t n, each, mine; /* keys; a processor's share; ours */
        uint32_t *key;
        uint64_t samples, counts, received; /* in the heap */
        uint32_t *splitter;
        uint64_t *count, *place; /* keys to each processor, and where they go there */
        uint64_t have;
};

static uint32_t range_of(const struct ssort *s, uint32_t key)
{
        uint32_t low = 0, high = sc_procs() - 1;

        while (low < high) {
                uint32_t mid = (low + high) / 2;
                if (key < s->splitter[mid])
                        high = mid;
                else
                        low = mid + 1;
        }
        return low;
}

/* Processor 0 sorts all samples and tells every SAMPLES-th. */
static void choose_splitters(struct ssort *s)
{
        uint32_t sample[SAMPLES], procs = sc_procs(), *all = sc_at(s->samples);

        for (uint64_t i = 0; i < SAMPLES; i++)
                sample[i] = s->mine != 0 ? s->key[prog_random(sc_me(), i) % s->mine] : 0;
        sc_bulk_write(sc_global(0, s->samples + sc_me() * sizeof sample), sample, sizeof sample);
        sc_barrier();
        if (sc_me() == 0) {
                prog_sort(all, (uint64_t)SAMPLES * procs);
                for (uint32_t i = 0; i + 1 < procs; i++)
                        s->splitter[i] = all[(i + 1) * SAMPLES];
        }
        if (procs > 1)
                sc_all_bcast(0, s->splitter, (procs - 1) * sizeof *s->splitter);
}

/* Everybody's counts at everybody: from them follows where ours go. */
static void exchange_counts(struct ssort *s)
{
        uint32_t procs = sc_procs(), me = sc_me();
        uint64_t bytes = procs * sizeof(uint64_t), *all = sc_at(s->counts);

        for (uint32_t r = 0; r < procs; r++)
                sc_bulk_put(sc_global(r, s->counts + me * bytes), s->count, bytes);
        sc_sync();
        sc_barrier();
        for (uint32_t to = 0; to < procs; to++) {
                s->place[to] = 0;
                for (uint32_t from = 0; from < me; from++)
                        s->place[to] += all[from * procs + to];
        }
        s->have = 0;
        for (uint32_t from = 0; from < procs; from++)
                s->have += all[from * procs + me];
}

static sc_gptr place_at(const struct ssort *s, uint32_t to, uint64_t i)
{
        return sc_global(to, s->received + i * sizeof(uint32_t));
}

/* Pairs as they come; the last of an odd number alone. */
static void send_small(struct ssort *s)
{
        uint32_t procs = sc_procs(), *held = calloc(procs, sizeof *held);
        bool *has = calloc(procs, sizeof *has);

        if (held == NULL || has == NULL)
                abort();
        for (uint64_t i = 0; i < s->mine; i++) {
                uint32_t to = range_of(s, s->key[i]);
                if (has[to]) {
                        uint32_t pair[2] = {held[to], s->key[i]};
                        sc_bulk_store(place_at(s, to, s->place[to]), pair, sizeof pair);
                        s->place[to] += 2;
                }
                held[to] = s->key[i];
                has[to] = !has[to];
        }
        for (uint32_t to = 0; to < procs; to++)
                if (has[to])
                        sc_store_u32(place_at(s, to, s->place[to]), held[to]);
        free(held);
        free(has);
}

/* The keys are sorted: what goes to a processor lies together. */
static void send_bulk(struct ssort *s)
{
        uint64_t at = 0;

        for (uint32_t to = 0; to < sc_procs(); at += s->count[to], to++)
                if (s->count[to] != 0)
                        sc_bulk_store(place_at(s, to, s->place[to]), s->key + at,
                                      s->count[to] * sizeof(uint32_t));
}

static bool is_right(const struct ssort *s, const struct prog *p)
{
        uint32_t *all = malloc(s->n * sizeof *all), *mine = sc_at(s->received);
        int64_t before = sc_all_scan_i64(UAM_ADD, (int64_t)s->have) - (int64_t)s->have;
        bool right;

        if (all == NULL)
                abort();
        for (uint64_t i = 0; i < s->n; i++)
                all[i] = prog_key(p, i, s->n, sc_procs());
        prog_sort(all, s->n);
        right = (uint64_t)before + s->have <= s->n &&
                memcmp(all + before, mine, s->have * sizeof *mine) == 0;
        free(all);
        return right && sc_all_reduce_i64(UAM_ADD, (int64_t)s->have) == (int64_t)s->n;
}

int main(int argc, char **argv)
{
        static const char *const variants[] = {"small", "bulk", NULL};
        struct prog p = prog_start(argc, argv, "ssort", 65536, variants, 0, 8);
        uint32_t procs = sc_procs();
        struct ssort s = {.n = p.size, .each = (p.size + procs - 1) / procs};
        uint64_t first = sc_me() * s.each;
        bool right;

        s.mine = first >= s.n ? 0 : first + s.each > s.n ? s.n - first : s.each;
        s.key = sc_at(sc_all_alloc(s.each * sizeof *s.key));
        s.samples = sc_all_alloc((uint64_t)procs * SAMPLES * sizeof(uint32_t));
        s.counts = sc_all_alloc((uint64_t)procs * procs * sizeof(uint64_t));
        s.received = sc_all_alloc(s.n * sizeof(uint32_t));
        s.splitter = calloc(procs, sizeof *s.splitter);
        s.count = calloc(procs, sizeof *s.count);
        s.place = calloc(procs, sizeof *s.place);
        if (s.splitter == NULL || s.count == NULL || s.place == NULL)
                abort();
        for (uint64_t i = 0; i < s.mine; i++)
                s.key[i] = prog_key(&p, first + i, s.n, procs);
        prog_measure(&p);
        prog_wait(&p);
        choose_splitters(&s);
        prog_go(&p);
        if (prog_is(&p, "bulk"))
                prog_sort(s.key, s.mine);
        for (uint64_t i = 0; i < s.mine; i++)
                s.count[range_of(&s, s.key[i])]++;
        prog_wait(&p);
        exchange_counts(&s);
        if (prog_is(&p, "small"))
                send_small(&s);
        else
                send_bulk(&s);
        sc_all_store_sync();
        prog_go(&p);
        prog_sort(sc_at(s.received), s.have);
        right = is_right(&s, &p);
        free(s.splitter);
        free(s.count);
        free(s.place);
        return prog_end(&p, right);
}
