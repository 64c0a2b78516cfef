/* The directory: what was added is found, what was deleted is not, whatever the order; a reader
 * always comes back. */
#include <stdlib.h>
#include <sys/mman.h>

#include "unetd/client/directory.h"
#include "tests/unit.h"

#define TCP 6
#define UDP 17

static struct directory_owner dir;

static int setup(void **state)
{
        return directory_create(&dir, 42, (const uint8_t *)"sixteen bytes...");
}

static int teardown(void **state)
{
        directory_destroy(&dir);
        return 0;
}

static ip_addr host(uint8_t last)
{
        return ip_addr_v4(0x0a000000u + last);
}

static uint32_t lookup(uint8_t proto, ip_addr addr, uint16_t port, uint32_t hint)
{
        struct dir_hit hit = {0, 0, 0};

        return directory_lookup(dir.d, proto, addr, port, hint, &hit) == 1 ? hit.stack : 0;
}

static void exact_address_wins_over_wildcard(void **state)
{
        assert_int_equal(directory_add(&dir, TCP, (ip_addr){{0, 0}}, 80, 1, 0), 0);
        assert_int_equal(lookup(TCP, host(1), 80, 0), 1);
        assert_int_equal(directory_add(&dir, TCP, host(1), 80, 2, 0), 0);
        assert_int_equal(lookup(TCP, host(1), 80, 0), 2);
        assert_int_equal(lookup(TCP, host(2), 80, 0), 1);
        assert_int_equal(lookup(UDP, host(1), 80, 0), 0);
        assert_int_equal(lookup(TCP, host(1), 81, 0), 0);
}

static void both_wildcards_are_one_key(void **state)
{
        assert_int_equal(directory_add(&dir, TCP, ip_addr_v4(0), 80, 1, 0), 0);
        assert_int_equal(directory_add(&dir, TCP, (ip_addr){{0, 0}}, 80, 1, 0), 0);
        assert_int_equal(dir.d->used, 1);
        assert_true(directory_del(&dir, TCP, (ip_addr){{0, 0}}, 80, 1));
        assert_int_equal(lookup(TCP, host(1), 80, 0), 1);
        assert_true(directory_del(&dir, TCP, ip_addr_v4(0), 80, 1));
        assert_false(directory_del(&dir, TCP, ip_addr_v4(0), 80, 1));
        assert_int_equal(lookup(TCP, host(1), 80, 0), 0);
}

static void the_hint_spreads_over_stacks_with_one_key(void **state)
{
        uint32_t seen[4] = {0};
        struct dir_hit hit;

        for (uint32_t stack = 1; stack <= 3; stack++)
                assert_int_equal(directory_add(&dir, TCP, host(1), 80, stack, 7), 0);
        for (uint32_t hint = 0; hint < 30; hint++)
                seen[lookup(TCP, host(1), 80, hint)]++;
        assert_int_equal(seen[1], 10);
        assert_int_equal(seen[2], 10);
        assert_int_equal(seen[3], 10);
        assert_int_equal(directory_lookup(dir.d, TCP, host(1), 80, 0, &hit), 1);
        assert_int_equal(hit.same_key, 3);
        assert_int_equal(hit.uid, 7);
}

/* Not over stacks first, where a socket alone would get as much as the others together. */
static void each_socket_of_a_stack_counts(void **state)
{
        uint32_t seen[3] = {0};
        struct dir_hit hit;

        for (int i = 0; i < 4; i++)
                assert_int_equal(directory_add(&dir, TCP, host(1), 80, 1, 0), 0);
        assert_int_equal(directory_add(&dir, TCP, host(1), 80, 2, 0), 0);
        for (uint32_t hint = 0; hint < 50; hint++)
                seen[lookup(TCP, host(1), 80, hint)]++;
        assert_int_equal(seen[1], 40);
        assert_int_equal(seen[2], 10);
        assert_int_equal(directory_lookup(dir.d, TCP, host(1), 80, 0, &hit), 1);
        assert_int_equal(hit.same_key, 2);
        for (int i = 0; i < 3; i++)
                assert_true(directory_del(&dir, TCP, host(1), 80, 1));
        for (uint32_t hint = 0; hint < 50; hint++)
                seen[lookup(TCP, host(1), 80, hint)]++;
        assert_int_equal(seen[1], 65);
        assert_int_equal(seen[2], 35);
}

static void each_change_is_a_generation(void **state)
{
        uint64_t g = directory_generation(dir.d);

        directory_add(&dir, TCP, host(1), 80, 1, 0);
        assert_int_equal(directory_generation(dir.d), g + 1);
        directory_del(&dir, TCP, host(2), 80, 1); /* not there: no change */
        assert_int_equal(directory_generation(dir.d), g + 1);
        directory_del(&dir, TCP, host(1), 80, 1);
        assert_int_equal(directory_generation(dir.d), g + 2);
}

static void it_fills_up_to_its_limit(void **state)
{
        for (uint32_t i = 0; i < DIR_MAX; i++)
                assert_int_equal(directory_add(&dir, TCP, host((uint8_t)(i >> 13)),
                                               (uint16_t)(i & 8191), i + 1, i % 4),
                                 0);
        assert_int_equal(directory_add(&dir, UDP, host(1), 9999, 1, 0), -ENOSPC);
        for (uint32_t i = 0; i < DIR_MAX; i++)
                assert_int_equal(lookup(TCP, host((uint8_t)(i >> 13)), (uint16_t)(i & 8191), 0),
                                 i + 1);
}

/* Against an array: few ports, so that runs overlap and deletion has to shift. */
static void random_adds_and_deletes_agree_with_a_model(void **state)
{
        static uint32_t model[4][1024];
        const char *env = getenv("UNET_SEED");
        unsigned seed = env ? (unsigned)strtoul(env, NULL, 10) : 1;

        print_message("UNET_SEED=%u\n", seed);
        memset(model, 0, sizeof model);
        for (int i = 0; i < 200000; i++) {
                uint8_t a = (uint8_t)(rand_r(&seed) % 4);
                uint16_t port = (uint16_t)(rand_r(&seed) % 1024);
                uint32_t *m = &model[a][port];

                if (*m == 0) {
                        *m = 1 + (uint32_t)rand_r(&seed) % 1000;
                        assert_int_equal(directory_add(&dir, TCP, host(a), port, *m, 0), 0);
                } else if (rand_r(&seed) % 2) {
                        assert_true(directory_del(&dir, TCP, host(a), port, *m));
                        *m = 0;
                }
                assert_int_equal(lookup(TCP, host(a), port, 0), *m);
        }
        for (uint8_t a = 0; a < 4; a++)
                for (uint16_t port = 0; port < 1024; port++)
                        assert_int_equal(lookup(TCP, host(a), port, 0), model[a][port]);
}

static void local_addresses_are_known(void **state)
{
        ip_addr addrs[2] = {host(1), {{0x1234, 0x5678}}};

        directory_set_addrs(&dir, addrs, 2);
        assert_int_equal(directory_is_local(dir.d, host(1)), 1);
        assert_int_equal(directory_is_local(dir.d, addrs[1]), 1);
        assert_int_equal(directory_is_local(dir.d, host(2)), 0);
        assert_int_equal(directory_is_local(dir.d, ip_addr_v4(0x7f123456)), 1);
        assert_int_equal(directory_is_local(dir.d, (ip_addr){{0, (uint64_t)1 << 56}}), 1);
}

/* A unetd that died while it wrote, and one that fills the page with anything. */
static void a_reader_always_comes_back(void **state)
{
        struct directory *d = malloc(sizeof *d);
        struct dir_hit hit;
        struct dir_iface f;
        unsigned seed = 1;

        memset(d, 0xff, sizeof *d);
        assert_int_equal(directory_lookup(d, TCP, host(1), 80, 0, &hit), -EAGAIN);
        assert_int_equal(directory_is_local(d, host(1)), -EAGAIN);
        assert_int_equal(directory_vouches(d, UDP, host(1), 80, 1), -EAGAIN);
        assert_int_equal(directory_verbs(d, host(1), &f), -EAGAIN);
        atomic_store(&d->seq, 2);
        directory_lookup(d, TCP, host(1), 80, 0, &hit); /* no empty slot anywhere */
        assert_int_equal(directory_is_local(d, host(1)), 0);
        for (int round = 0; round < 100; round++) {
                for (size_t i = 0; i < sizeof *d; i += 4)
                        *(uint32_t *)((char *)d + i) = (uint32_t)rand_r(&seed);
                directory_lookup(d, TCP, host(1), (uint16_t)round, 7, &hit);
                directory_is_local(d, host(1));
        }
        free(d);
}

static void clients_cannot_write(void **state)
{
        void *p =
                mmap(NULL, sizeof(struct directory), PROT_READ | PROT_WRITE, MAP_SHARED, dir.fd, 0);

        assert_ptr_equal(p, MAP_FAILED);
        assert_int_equal(dir.d->magic, DIR_MAGIC);
}

#define t(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* Who has many addresses finds, with the key that he reads, as many that lie where another's entry
 * is to go. */
static void nobody_fills_a_run_alone(void **state)
{
        const ip_addr theirs = host(1);
        uint32_t home = dir_hash(dir.d, TCP, theirs, 80), taken = 0;

        for (uint32_t a = 0x7f000001; a < 0x7f100000 && taken < 4096; a++) {
                uint32_t at = (dir_hash(dir.d, TCP, ip_addr_v4(a), 80) - home + 2) % DIR_SLOTS;

                if (at < DIR_RUN + 4)
                        taken += directory_add(&dir, TCP, ip_addr_v4(a), 80, 7, 7) == 0;
        }
        assert_in_range(taken, 100, DIR_RUN - 1);
        assert_int_equal(directory_add(&dir, TCP, theirs, 80, 8, 8), 0);
        assert_int_equal(lookup(TCP, theirs, 80, 0), 8);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                t(exact_address_wins_over_wildcard),
                t(nobody_fills_a_run_alone),
                t(both_wildcards_are_one_key),
                t(the_hint_spreads_over_stacks_with_one_key),
                t(each_socket_of_a_stack_counts),
                t(each_change_is_a_generation),
                t(it_fills_up_to_its_limit),
                t(random_adds_and_deletes_agree_with_a_model),
                t(local_addresses_are_known),
                t(a_reader_always_comes_back),
                t(clients_cannot_write),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
