/*
 * A peer that writes rubbish into everything it may write: its ring, control words, returns, bell
 * and payload. The victim must not crash (run this under ASan), must show nothing that is out of
 * bounds, must count, and must go on with its other channels. Rubbish comes in two kinds: anything
 * at all, and what is nearly right, which gets further.
 */
#include <pthread.h>
#include <unistd.h>

#include "base/prng.h"
#include "pair.h"
#include "unet/shm/shm_link.h"
#include "unet/shm/switch.h"

#define ROUNDS 4000

struct attacker {
        struct prng_fast rng;
        struct shm_region *region;
        uint8_t *station;
        size_t station_bytes;
        uint32_t pos; /* where it writes next */
        _Atomic bool stop;
};

static uint32_t below(struct attacker *a, uint32_t n)
{
        return prng_fast_below(&a->rng, n);
}

/* Numbers that stand near some bound. */
static uint32_t nasty(struct attacker *a)
{
        static const uint32_t near[] = {0,     1,      2,      4095,     4096,      65535,
                                        65536, 262143, 262144, 1u << 20, INT32_MAX, UINT32_MAX};
        uint32_t v = near[below(a, ARRAY_LEN(near))];

        switch (below(a, 4)) {
        case 0:
                return (uint32_t)prng_fast_u64(&a->rng);
        case 1:
                return v + below(a, 3) - 1;
        case 2:
                return below(a, 300000);
        default:
                return v;
        }
}

static void spoil_slot(struct attacker *a, uint32_t pos)
{
        struct shm_slot *s = &a->region->ring[pos % SHM_SLOTS];
        uint32_t words[62];

        for (size_t i = 0; i < ARRAY_LEN(words); i++)
                words[i] = nasty(a);
        memcpy(s->body, words, sizeof words);
        s->flags = (uint8_t)(below(a, 4) ? below(a, 4) : nasty(a));
        s->inl_len = (uint8_t)nasty(a);
        s->nmore = (uint16_t)(below(a, 2) ? below(a, 5) : nasty(a));
        atomic_store_explicit(&s->seq, below(a, 16) ? pos + 1 : nasty(a), memory_order_release);
}

static void spoil_returns(struct attacker *a)
{
        uint32_t prod = atomic_load_explicit(&a->region->ctrl.ret_prod, memory_order_relaxed);
        uint32_t n = below(a, 8) ? below(a, 50) : nasty(a);

        for (uint32_t i = 0; i < MIN(n, 1000u); i++)
                a->region->ret[(prod + i) % SHM_RETS] = below(a, 2) ? below(a, 1100) : nasty(a);
        atomic_store_explicit(&a->region->ctrl.ret_prod, prod + n, memory_order_release);
}

/* The victim waits at a slot whose sequence word was spoilt; go on, so that the rest of the rubbish
 * is looked at. */
static void repair(struct attacker *a)
{
        for (uint32_t pos = a->pos - SHM_SLOTS; pos != a->pos; pos++)
                atomic_store_explicit(&a->region->ring[pos % SHM_SLOTS].seq, pos + 1,
                                      memory_order_release);
}

static void spoil(struct attacker *a)
{
        struct shm_ctrl *c = &a->region->ctrl;
        uint8_t *region = (uint8_t *)a->region;
        uint32_t n = below(a, 40);

        if (below(a, 4) == 0)
                repair(a);
        switch (below(a, 8)) {
        case 0:
                atomic_store(&c->cons, nasty(a));
                break;
        case 1:
                spoil_returns(a);
                break;
        case 2:
                atomic_store(&c->want_room, nasty(a));
                break;
        case 3:
                for (uint32_t i = 0; i < n; i++)
                        a->station[below(a, (uint32_t)a->station_bytes)] = (uint8_t)nasty(a);
                break;
        case 4: /* anything, anywhere but the word that says we left */
                for (uint32_t i = 0; i < n; i++)
                        region[sizeof *c + below(a, (uint32_t)(sizeof *a->region - sizeof *c))] =
                                (uint8_t)nasty(a);
                break;
        default:
                for (uint32_t i = 0; i < n; i++)
                        spoil_slot(a, a->pos++);
        }
}

/* The attacker's side of a link: what it may write. */
static struct attacker attack_from(struct unet_ep *ep, uint32_t link, uint64_t seed)
{
        struct unet_mem mem = shm_link_tx_mem((struct shm_link *)ep->link[link].l.ch);
        struct attacker a = {
                .region = (struct shm_region *)(mem.base - offsetof(struct shm_region, frames)),
                .station = (uint8_t *)ep->st.bell,
                .station_bytes = ep->st.shared_bytes};

        prng_fast_init(&a.rng, seed);
        return a;
}

/* Everything that a message says must be ours to read. */
static void check_message(const struct pair *p, const struct unet_recv *m)
{
        uint64_t sum = m->inl_len;
        volatile uint8_t sink = 0;

        assert_in_range(m->inl_len, 0, UNET_EP_INLINE);
        assert_in_range(m->nfrags, 0, UNET_EP_FRAGS);
        for (int i = 0; i < m->nfrags; i++) {
                const struct unet_recv_frag *f = &m->frag[i];
                sum += f->len;
                if (!p->how->direct)
                        assert_true(f->off >= p->sb.tx_bytes &&
                                    f->off + f->len <= p->sb.tx_bytes + p->sb.rx_bytes);
                if (f->len != 0)
                        sink ^= f->ptr[0] ^ f->ptr[f->len - 1];
        }
        assert_int_equal(sum, m->len);
        assert_in_range(sum, 0, SHM_PAIR_MTU);
        (void)sink;
}

/* The victim, b, goes about its business. */
static uint32_t victim_turn(struct pair *p, uint32_t turn)
{
        struct unet_send out = {.chan = p->cb,
                                .inl = "hello",
                                .inl_len = 5,
                                .nfrags = turn % 3 != 0,
                                .frag = {{0, 3000}},
                                .cookie = turn};
        struct unet_recv m[32];
        uint64_t cookie[64];
        uint32_t seen = 0;
        int n;

        unet_ep_send(p->b, &out, 1);
        if (turn % 7 == 0)
                unet_ep_poll(p->b);
        do {
                n = unet_ep_recv(p->b, m, 32);
                for (int i = 0; i < n; i++) {
                        check_message(p, &m[i]);
                        pair_give_back(p, &m[i]);
                }
                seen += (uint32_t)n;
        } while (n == 32 && seen < 2000);
        unet_ep_reap(p->b, cookie, 64);
        if (turn % 16 == 0)
                unet_ep_wait(p->b, UNET_READABLE | UNET_INJECTED | UNET_WRITABLE, 1000);
        if (turn % 64 == 0)
                unet_ep_arm(p->b, UNET_READABLE);
        return seen;
}

static uint64_t rubbish_counted(const struct unet_ep *ep)
{
        return unet_ep_stat(ep, "NI_MALFORMED") + unet_ep_stat(ep, "NI_BAD_FRAME") +
               unet_ep_stat(ep, "NI_BAD_RETURN");
}

/* The victim's other channel, with an honest peer, still works to the byte. */
static void others_go_on(struct pair *p)
{
        struct pair q = *p;

        assert_int_equal(unet_ep_open(NULL, &q.a), 0);
        q.sa = unet_ep_segment(q.a);
        q.sim = NULL;
        assert_int_equal(unet_chan_pair(q.a, q.b, &q.ca, &q.cb), 0);
        for (uint32_t i = 0; i < 100; i++) {
                struct unet_recv m;
                int n;

                assert_int_equal(pair_send(&q, i, 1 + i * 50, 40, 0), 1);
                while ((n = unet_ep_recv(q.b, &m, 1)) == 1 && m.chan != q.cb)
                        pair_give_back(&q, &m);
                assert_int_equal(n, 1);
                assert_true(message_is(&m, i));
                pair_give_back(&q, &m);
        }
        unet_ep_close(q.a);
}

static uint64_t seed_of(const char *what)
{
        const char *env = getenv("UNET_SEED");
        uint64_t seed = env != NULL ? strtoull(env, NULL, 0) : 20261120;

        print_message("%s: UNET_SEED=%llu\n", what, (unsigned long long)seed);
        return seed;
}

static void rubbish_in_turns(void **state)
{
        struct pair *p = pair_new(*state, (struct unet_ep_opts){0});
        struct attacker a = attack_from(p->a, 0, seed_of(p->how->name));

        pair_provide(p, 32, 4096);
        for (uint32_t i = 0; i < ROUNDS; i++) {
                spoil(&a);
                victim_turn(p, i);
        }
        print_message("malformed %llu, bad frame %llu, bad return %llu, received %llu\n",
                      (unsigned long long)unet_ep_stat(p->b, "NI_MALFORMED"),
                      (unsigned long long)unet_ep_stat(p->b, "NI_BAD_FRAME"),
                      (unsigned long long)unet_ep_stat(p->b, "NI_BAD_RETURN"),
                      (unsigned long long)unet_ep_stat(p->b, "NI_RX_MSGS"));
        assert_true(rubbish_counted(p->b) > ROUNDS);
        others_go_on(p);
        pair_free(p);
}

static void *scribble(void *arg)
{
        struct attacker *a = arg;

        while (!atomic_load_explicit(&a->stop, memory_order_relaxed))
                spoil(a);
        return NULL;
}

static void rubbish_at_the_same_time(void **state)
{
        struct pair *p = pair_new(*state, (struct unet_ep_opts){0});
        struct attacker a = attack_from(p->a, 0, seed_of(p->how->name) + 1);
        pthread_t thread;

        pair_provide(p, 32, 4096);
        assert_int_equal(pthread_create(&thread, NULL, scribble, &a), 0);
        for (uint32_t i = 0; i < ROUNDS; i++)
                victim_turn(p, i);
        atomic_store(&a.stop, true);
        pthread_join(thread, NULL);
        others_go_on(p);
        pair_free(p);
}

/* ---- through the switch: the attacker's port, and two honest ones ---- */

static void rubbish_into_the_switch(void **state)
{
        const struct provider *emul = *state;
        struct pair *p = pair_new(emul, (struct unet_ep_opts){0});
        const struct counters *c;
        struct attacker a;
        struct unet_ep *bad;
        uint32_t link, port, got = 0;

        assert_int_equal(unet_ep_open(NULL, &bad), 0);
        port = switch_join(p->sw, NULL, bad, &link);
        a = attack_from(bad, link, seed_of("switch"));
        pair_provide(p, 32, 4096);
        for (uint32_t i = 0; i < ROUNDS; i++) {
                spoil(&a);
                if (below(&a, 2)) { /* a tag that exists, but is not ours */
                        struct unet_chan_info info;
                        struct shm_slot *s = &a.region->ring[a.pos % SHM_SLOTS];
                        assert_int_equal(unet_chan_info(p->a, p->ca, &info), 0);
                        memcpy(s->body, &info.tx_tag, 4);
                        s->flags = 0;
                        s->inl_len = 4;
                        atomic_store(&s->seq, ++a.pos);
                }
                assert_int_equal(pair_send(p, i, 1 + i % 3000, 100, 4096 * (i % 32)), 1);
                unet_switch_step(p->sw);
                pair_expect(p, i, 1 + i % 3000);
                got++;
        }
        assert_int_equal(got, ROUNDS);
        c = unet_switch_counters(p->sw, port);
        print_message("malformed %llu, no channel %llu, bad source %llu, bad frame %llu, bad "
                      "return %llu\n",
                      (unsigned long long)c->drop[DROP_NI_MALFORMED],
                      (unsigned long long)c->drop[DROP_NI_NO_CHANNEL],
                      (unsigned long long)c->drop[DROP_NI_BAD_SOURCE],
                      (unsigned long long)c->drop[DROP_NI_BAD_FRAME],
                      (unsigned long long)c->n[COUNT_NI_BAD_RETURN]);
        assert_true(c->drop[DROP_NI_BAD_SOURCE] > 100);
        assert_true(c->drop[DROP_NI_MALFORMED] + c->drop[DROP_NI_NO_CHANNEL] +
                            c->drop[DROP_NI_BAD_SOURCE] + c->drop[DROP_NI_BAD_FRAME] >
                    ROUNDS);
        pair_free(p);
        unet_ep_close(bad);
}

int main(void)
{
        int failed = 0;

        for (int i = 0; i < nproviders; i++) {
                struct provider *how = (struct provider *)(uintptr_t)&providers[i];
                const struct CMUnitTest direct[] = {
                        {"rubbish in turns", rubbish_in_turns, NULL, NULL, how},
                        {"rubbish at the same time", rubbish_at_the_same_time, NULL, NULL, how},
                };
                const struct CMUnitTest through[] = {
                        {"rubbish into the switch", rubbish_into_the_switch, NULL, NULL, how},
                };

                if (strcmp(how->name, "shm") == 0 || strcmp(how->name, "shm direct") == 0)
                        failed += _cmocka_run_group_tests(how->name, direct, ARRAY_LEN(direct),
                                                          NULL, NULL);
                if (strcmp(how->name, "emul") == 0)
                        failed += _cmocka_run_group_tests(how->name, through, ARRAY_LEN(through),
                                                          NULL, NULL);
        }
        return failed;
}
