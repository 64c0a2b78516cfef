/* The state of a stack in which somebody has written anything: it is not attached to, and that is
 * seen at once. */
#include <errno.h>
#include <sys/mman.h>

#include "netstack/stack.h"
#include "tests/unit.h"

struct scene {
        struct stack_state *st;
        size_t bytes;
        struct bell bell;
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
        *state = &sc;
        return 0;
}

static int teardown(void **state)
{
        struct scene *sc = *state;

        return munmap(sc->st, sc->bytes);
}

static int attach(struct scene *sc)
{
        struct stack s;
        int r = stack_view_init(&s, sc->st, sc->bytes, &sc->bell);

        if (r == 0)
                stack_view_fini(&s);
        return r;
}

/* Every word from `from` on, with what a word may be mistaken for; `n` bytes. */
static void words_are_checked(struct scene *sc, void *from, size_t n)
{
        static const uint32_t wrong[] = {0,          1,          0x7fffffff, 0x80000000,
                                         0x80000001, 0xbf89a0d4, UINT32_MAX};
        uint32_t *word = from;

        for (size_t i = 0; i < n / sizeof *word; i++)
                for (size_t k = 0; k <= ARRAY_LEN(wrong); k++) {
                        uint32_t was = word[i], is = k < ARRAY_LEN(wrong) ? wrong[k] : was + 4096;

                        word[i] = is;
                        assert_int_equal(attach(sc), is == was ? 0 : -EPROTO);
                        word[i] = was;
                }
        assert_int_equal(attach(sc), 0);
}

static void limits_and_offsets_are_those_it_was_made_with(void **state)
{
        struct scene *sc = *state;
        struct stack_state *st = sc->st;
        struct stack_limits *l = &st->limits;

        assert_int_equal(attach(sc), 0);
        words_are_checked(sc, &l->tcp.conns, sizeof l->tcp.conns);
        words_are_checked(sc, &l->tcp.listeners, sizeof l->tcp.listeners);
        words_are_checked(sc, &l->tcp.txsegs, sizeof l->tcp.txsegs);
        words_are_checked(sc, &l->tcp.rxsegs, sizeof l->tcp.rxsegs);
        words_are_checked(sc, &l->udp.pcbs, sizeof l->udp.pcbs);
        words_are_checked(sc, &l->socks, sizeof l->socks);
        words_are_checked(sc, &l->chans, sizeof l->chans);
        words_are_checked(sc, &l->rx, sizeof l->rx);
        words_are_checked(sc, &l->tx, sizeof l->tx);
        words_are_checked(sc, &st->tcp_off, sizeof(uint64_t));
        words_are_checked(sc, &st->udp_off, sizeof(uint64_t));
        words_are_checked(sc, &st->sock_off, sizeof(uint64_t));
        words_are_checked(sc, &st->rxpool_off, sizeof(uint64_t));
        words_are_checked(sc, &st->rxframes_off, sizeof(uint64_t));
        words_are_checked(sc, &st->capture_off, sizeof(uint64_t));
        words_are_checked(sc, &st->trace_off, sizeof(uint64_t));
        words_are_checked(sc, &st->ip_off, sizeof(uint64_t));
        words_are_checked(sc, &st->netif_off, sizeof(uint64_t));
        words_are_checked(sc, &st->igmp_off, sizeof(uint64_t));
        words_are_checked(sc, &st->route_off, sizeof(uint64_t));
        words_are_checked(sc, &st->chan_pool_off, sizeof(uint64_t));
}

static void pools_are_where_they_were_made(void **state)
{
        struct scene *sc = *state;
        struct tcp_shared *tcp = (void *)((char *)sc->st + sc->st->tcp_off);
        struct pool *pools[] = {&sc->st->socks, &tcp->conns, &tcp->listeners, &tcp->txsegs,
                                &tcp->rxsegs};

        for (size_t i = 0; i < ARRAY_LEN(pools); i++)
                /* Where, how large, how many. */
                words_are_checked(sc, pools[i], offsetof(struct pool, free));
        for (size_t i = 0; i < ARRAY_LEN(pools); i++) {
                uint32_t was = pools[i]->fresh;

                pools[i]->fresh = pools[i]->cap + 1;
                assert_int_equal(attach(sc), -EPROTO);
                pools[i]->fresh = was;
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(limits_and_offsets_are_those_it_was_made_with,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(pools_are_where_they_were_made, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
