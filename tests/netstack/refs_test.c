/* Who holds a socket (netstack/stack_refs.h): against a plain array, over slots on both sides of
 * the record's own word. */
#include <sys/mman.h>

#include "netstack/stack_refs.h"
#include "tests/unit.h"

static const uint32_t slots[] = {0,   1,    62,   SOCK_REF_FLIGHT, 64, 65, 127,
                                 128, 1000, 2048, STACK_PROCS - 1};

struct scene {
        struct stack_state *st;
        size_t bytes;
        struct sock_rec *rec;
};

static int setup(void **state)
{
        static struct scene sc;
        static const uint8_t seed[32] = "whatever";
        struct stack_limits l;

        stack_limits_default(&l);
        sc.bytes = stack_bytes(&l);
        sc.st = mmap(NULL, sc.bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_ptr_not_equal(sc.st, MAP_FAILED);
        stack_format(sc.st, &l, seed, 1);
        sc.st->procs = STACK_PROCS;
        sc.rec = pool_at(&sc.st->socks, pool_alloc(&sc.st->socks));
        *sc.rec = (struct sock_rec){0};
        *state = &sc;
        return 0;
}

static int teardown(void **state)
{
        struct scene *sc = *state;

        return munmap(sc->st, sc->bytes);
}

/* All that can be asked of the record is what `held` and `kept` say. */
static void check(const struct scene *sc, const bool *held, const bool *kept)
{
        uint32_t at = sock_next_holder(sc->st, sc->rec, 0), n = 0;

        for (size_t i = 0; i < ARRAY_LEN(slots); i++) {
                assert_int_equal(sock_held_by(sc->st, sc->rec, slots[i]), held[i]);
                assert_int_equal(sock_kept_by(sc->st, sc->rec, slots[i]), held[i] && kept[i]);
                if (!held[i])
                        continue;
                n++;
                assert_int_equal(at, slots[i]);
                at = sock_next_holder(sc->st, sc->rec, at + 1);
        }
        assert_int_equal(at, STACK_PROCS);
        assert_int_equal(sock_held(sc->rec), n > 0);
        assert_int_equal(sock_held_once(sc->st, sc->rec), n <= 1);
        for (size_t i = 0; i < ARRAY_LEN(slots); i++) {
                assert_int_equal(sock_held_besides(sc->st, sc->rec, slots[i]), n > held[i]);
                assert_int_equal(sock_held_only_by(sc->st, sc->rec, slots[i]), held[i] && n == 1);
        }
}

static void test_as_a_plain_array(void **state)
{
        struct scene *sc = *state;
        bool held[ARRAY_LEN(slots)] = {0}, kept[ARRAY_LEN(slots)] = {0};
        struct prng rng;
        static const uint8_t seed[32] = "refs";

        prng_init(&rng, seed);
        check(sc, held, kept);
        for (uint32_t round = 0; round < 20000; round++) {
                uint32_t i = prng_u32(&rng) % ARRAY_LEN(slots);

                switch (prng_u32(&rng) % 8) {
                case 0:
                case 1:
                case 2:
                        sock_hold(sc->st, sc->rec, slots[i]);
                        held[i] = true;
                        break;
                case 3:
                case 4:
                case 5:
                        sock_let_go(sc->st, sc->rec, slots[i]);
                        held[i] = kept[i] = false;
                        break;
                case 6:
                        kept[i] = prng_u32(&rng) % 2;
                        sock_set_kept(sc->st, sc->rec, slots[i], kept[i]);
                        kept[i] = kept[i] && held[i];
                        break;
                case 7: /* somebody died inside, and what is derived is made anew */
                        sc->rec->more = prng_u32(&rng);
                        sock_refs_recover(sc->st, sc->rec);
                        break;
                }
                check(sc, held, kept);
        }
}

static void test_a_stack_of_few_processes_touches_no_row(void **state)
{
        struct scene *sc = *state;
        const uint64_t *row = (const uint64_t *)sock_holders(sc->st, sc->rec);

        for (uint32_t slot = 0; slot < 64; slot++) {
                sock_hold(sc->st, sc->rec, slot);
                sock_set_kept(sc->st, sc->rec, slot, true);
        }
        for (size_t i = 0; i < sizeof(struct sock_holders) / 8; i++)
                assert_int_equal(row[i], 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_as_a_plain_array, setup, teardown),
                cmocka_unit_test_setup_teardown(test_a_stack_of_few_processes_touches_no_row, setup,
                                                teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
