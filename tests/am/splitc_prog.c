/*
 * Every call of <unet/splitc.h>, by each processor to all others; what it must give follows from
 * the processors' numbers. Prints "right" once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unet/splitc.h>

#define BULK  20000u
#define ROUND 50

static uint32_t me, procs;
static uint64_t words, bulk, back, counter;
static int64_t wrong;

static void must(int right, const char *what)
{
        if (right)
                return;
        fprintf(stderr, "processor %u: %s\n", me, what);
        wrong++;
}

static uint8_t byte_of(uint32_t from, uint32_t to, size_t i)
{
        return (uint8_t)(from * 31 + to * 7 + i * 13 + i / 256);
}

static void fill(uint8_t *p, uint32_t from, uint32_t to)
{
        for (size_t i = 0; i < BULK; i++)
                p[i] = byte_of(from, to, i);
}

static int is_filled(const uint8_t *p, uint32_t from, uint32_t to)
{
        for (size_t i = 0; i < BULK; i++)
                if (p[i] != byte_of(from, to, i))
                        return 0;
        return 1;
}

/* ---- words: each type, each way, in a row of our own at every processor ---- */

#define WORD(name, type, value)                                                \
        do {                                                                   \
                type got = 0, v = (type)(value);                               \
                sc_write_##name(at, v);                                        \
                must(sc_read_##name(at) == v, "write and read of " #name);     \
                sc_put_##name(sc_gadd(at, 8), v);                              \
                sc_sync();                                                     \
                sc_get_##name(&got, sc_gadd(at, 8));                           \
                sc_sync();                                                     \
                must(got == v, "put and get of " #name);                       \
                sc_store_##name(sc_gadd(at, 16), v);                           \
                sc_all_store_sync();                                           \
                must(sc_read_##name(sc_gadd(at, 16)) == v, "store of " #name); \
                sc_barrier();                                                  \
        } while (0)

static void all_words(void)
{
        for (uint32_t d = 0; d < procs; d++) {
                uint32_t to = (me + d) % procs;
                sc_gptr at = sc_gadd(sc_global(to, words), (int64_t)me * 64);

                must(sc_to_proc(at) == to, "sc_to_proc");
                WORD(i8, int8_t, -7 - (int)me);
                WORD(u8, uint8_t, 200 + me);
                WORD(i16, int16_t, -3000 - (int)me);
                WORD(u16, uint16_t, 60000 + me);
                WORD(i32, int32_t, -100000 - (int)me);
                WORD(u32, uint32_t, 4000000000u + me);
                WORD(i64, int64_t, INT64_MIN + me);
                WORD(u64, uint64_t, UINT64_MAX - me);
                WORD(f32, float, 0.25f * (float)me);
                WORD(f64, double, 1e300 * (1 + me));
        }
}

/* ---- bulk: from the heap and from elsewhere, and to a place that is aligned to nothing ---- */

static void all_bulk(void)
{
        uint8_t *mine = malloc(BULK), *heap = sc_at(back);

        for (uint32_t d = 0; d < procs; d++) {
                uint32_t to = (me + d) % procs, from = (me + procs - d) % procs;
                sc_gptr at = sc_global(to, bulk + 3);

                fill(mine, me, to);
                sc_bulk_write(at, mine, BULK);
                memset(mine, 0, BULK);
                sc_bulk_read(mine, at, BULK);
                must(is_filled(mine, me, to), "bulk write and read");
                sc_barrier();
                must(is_filled(sc_at(bulk + 3), from, me), "what was written here");
                sc_barrier();

                fill(heap, me, to + 1);
                sc_bulk_put(at, heap, BULK);
                sc_sync();
                memset(heap, 0, BULK);
                sc_bulk_get(heap, at, BULK);
                while (!sc_is_sync())
                        ;
                must(is_filled(heap, me, to + 1), "bulk put and get");
                sc_barrier();

                fill(heap, me, to + 2);
                sc_bulk_store(at, heap, BULK);
                sc_store_sync(BULK);
                must(is_filled(sc_at(bulk + 3), from, me + 2),
                     "bulk store, waited for by its bytes");
                sc_all_store_sync();

                fill(mine, me, to + 3);
                sc_bulk_store(at, mine, BULK);
                sc_bulk_store(sc_global(to, bulk), mine, 0);
                memset(mine, 0, BULK);
                while (!sc_is_all_store_sync())
                        ;
                must(is_filled(sc_at(bulk + 3), from, me + 3), "bulk store, waited for by all");
                sc_barrier();
        }
        free(mine);
}

/* Rounds in which nobody waits but for the stores: nobody may get a value of the round before, or
 * of the next. */
static void many_syncs(void)
{
        for (int64_t round = 1; round <= ROUND; round++) {
                sc_store_i64(sc_gadd(sc_global((me + 1) % procs, words), (round % 2) * 8),
                             round * 1000 + me);
                if (round % 3 == 0)
                        while (!sc_is_all_store_sync())
                                ;
                else
                        sc_all_store_sync();
                must(((int64_t *)sc_at(words))[round % 2] ==
                             round * 1000 + (me + procs - 1) % procs,
                     "a round of stores");
        }
}

/* ---- pointers ---- */

static void spread(void)
{
        uint64_t mark = sc_mark();
        sc_sptr all = sc_all_spread(3 * (size_t)procs + 1, 24), at = sc_sadd(all, (int64_t)me);
        int64_t *own = sc_to_local(sc_spread(at, 0));

        must(sc_to_proc(sc_spread(at, 0)) == me && sc_to_proc(sc_spread(all, 3 * procs)) == 0,
             "whose block it is");
        must(sc_spread(sc_sadd(at, (int64_t)procs), 0).off == sc_spread(all, me + procs).off,
             "sc_sadd");
        must(sc_to_global(1, own).off == sc_spread(at, 0).off && sc_to_global(1, own).proc == 1,
             "sc_to_global");
        for (uint64_t i = me; i < 3 * (uint64_t)procs + 1; i += procs)
                ((int64_t *)sc_to_local(sc_spread(all, i)))[2] = (int64_t)i * 10;
        sc_barrier();
        for (uint64_t i = 0; i < 3 * (uint64_t)procs + 1; i++)
                must(sc_read_i64(sc_gadd(sc_spread(all, i), 16)) == (int64_t)i * 10,
                     "a spread array");
        sc_barrier();
        sc_release(mark);
        must(sc_mark() == mark, "sc_release");
}

/* ---- at the owner, and all together ---- */

static int64_t most_and_least(void *at, int64_t a, int64_t b)
{
        int32_t *v = at;

        if ((int32_t)a > v[0])
                v[0] = (int32_t)a;
        if ((int32_t)b < v[1])
                v[1] = (int32_t)b;
        return v[0];
}

static void atomics(void)
{
        int64_t *own = sc_at(counter), was;

        own[0] = own[1] = own[2] = 0;
        own[3] = 0;
        sc_all_atomic(5, most_and_least);
        for (uint32_t p = 0; p < procs; p++) {
                sc_gptr at = sc_global(p, counter);
                for (int i = 0; i < 20; i++)
                        sc_fetch_add(at, 3);
                sc_fetch_min(sc_gadd(at, 8), -(int64_t)me);
                do
                        was = sc_read_i64(sc_gadd(at, 16));
                while (sc_compare_swap(sc_gadd(at, 16), was, was + 1) != was);
                sc_atomic(5, sc_gadd(at, 24), (int64_t)me + 1, -(int64_t)me - 1);
        }
        sc_barrier();
        must(own[0] == 60 * (int64_t)procs && own[1] == 1 - (int64_t)procs && own[2] == procs,
             "atomic operations");
        must(((int32_t *)own)[6] == (int32_t)procs && ((int32_t *)own)[7] == -(int32_t)procs,
             "an atomic function");
        sc_barrier();
}

static void together(void)
{
        int64_t many[300], n = procs;
        double reals[300];
        uint8_t buf[3000];

        memset(buf, me == procs - 1 ? 77 : 0, sizeof buf);
        sc_all_bcast(procs - 1, buf, sizeof buf);
        must(buf[0] == 77 && buf[2999] == 77, "broadcast");
        must(sc_all_reduce_i64(UAM_ADD, me) == n * (n - 1) / 2 &&
                     sc_all_reduce_i64(UAM_MAX, me) == n - 1,
             "reduction");
        must(sc_all_reduce_f64(UAM_MIN, 0.5 + me) == 0.5, "reduction of doubles");
        must(sc_all_scan_i64(UAM_ADD, 1) == me + 1, "scan");
        must(sc_all_scan_f64(UAM_ADD, 0.5) == 0.5 * (me + 1), "scan of doubles");
        for (int i = 0; i < 300; i++) {
                many[i] = i * (int64_t)(me + 1);
                reals[i] = i + me;
        }
        sc_bulk_all_reduce_i64(UAM_ADD, many, 300);
        sc_bulk_all_reduce_f64(UAM_MAX, reals, 300);
        for (int i = 0; i < 300; i++)
                must(many[i] == i * n * (n + 1) / 2 && reals[i] == (double)(i + n - 1),
                     "reduction of many");
        must(1u << sc_procs_log() >= procs && (procs == 1 || 1u << (sc_procs_log() - 1) < procs),
             "sc_procs_log");
        must(sc_seconds() > 0 && sc_am() != NULL, "small things");
        sc_poll();
}

int main(void)
{
        sc_init(1 << 20);
        me = sc_me();
        procs = sc_procs();
        words = sc_all_alloc(64 * (size_t)procs);
        bulk = sc_all_alloc(BULK + 3);
        back = sc_all_alloc(BULK);
        counter = sc_all_alloc(64);
        all_words();
        all_bulk();
        many_syncs();
        spread();
        atomics();
        together();
        wrong = sc_all_reduce_i64(UAM_ADD, wrong);
        sc_on_one printf("processors %u: %s\n", procs, wrong == 0 ? "right" : "WRONG");
        sc_on_proc(procs - 1) fflush(stdout);
        sc_exit();
        return wrong != 0;
}
