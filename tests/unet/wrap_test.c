/* The wrappers: what a capture holds, and each fault by itself. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "pair.h"
#include "unet/wrap/ni_fault.h"
#include "unet/wrap/ni_pcap.h"
#include "tests/sim/ni_sim.h"

/* ---- capture ---- */

struct capture {
        uint8_t bytes[1 << 16];
        size_t n;
};

static void read_back(const char *path, struct capture *c)
{
        FILE *f = fopen(path, "r");

        assert_non_null(f);
        c->n = fread(c->bytes, 1, sizeof c->bytes, f);
        fclose(f);
        unlink(path);
}

static uint32_t word(const struct capture *c, size_t at)
{
        uint32_t v;

        assert_true(at + 4 <= c->n);
        memcpy(&v, c->bytes + at, 4);
        return v;
}

static void temp_name(char *path)
{
        int fd;

        strcpy(path, "/tmp/unet-wrap-test-XXXXXX");
        fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
}

static nstime given_time(void *arg)
{
        return *(nstime *)arg;
}

static void a_capture_holds_both_directions_with_the_given_times(void **state)
{
        struct pair *p = pair_new(&providers[0], (struct unet_ep_opts){0});
        struct unet_send m = {.chan = p->ca,
                              .inl = "head",
                              .inl_len = 4,
                              .nfrags = 2,
                              .frag = {{0, 3}, {100, 2}}};
        struct unet_send back = {.chan = p->cb, .inl = "answer", .inl_len = 6};
        nstime now = 5 * NS_PER_S + 7 * NS_PER_US;
        struct ni_pcap_opts o = {
                .clock = given_time, .arg = &now, .tx = unet_mem_flat(p->sa.base, p->sa.tx_bytes)};
        static struct capture c;
        struct unet_recv r;
        char path[64];

        temp_name(path);
        assert_int_equal(pcap_file_open(path, 0, &o.file), 0);
        assert_int_equal(ni_pcap_link(&p->a->link[0].l, &o), 0);
        memcpy(p->sa.base, "abc", 3);
        memcpy(p->sa.base + 100, "de", 2);
        assert_int_equal(unet_ep_send(p->a, &m, 1), 1);
        now += 2 * NS_PER_S;
        assert_int_equal(unet_ep_send(p->b, &back, 1), 1);
        assert_int_equal(unet_ep_recv(p->a, &r, 1), 1);
        pair_free(p); /* closes the file */

        read_back(path, &c);
        assert_int_equal(c.n, 24 + 16 + 9 + 16 + 6);
        assert_int_equal(word(&c, 0), 0xa1b23c4d);
        assert_int_equal(word(&c, 20), 101);
        assert_int_equal(word(&c, 24), 5);
        assert_int_equal(word(&c, 28), 7000);
        assert_int_equal(word(&c, 32), 9);
        assert_int_equal(word(&c, 36), 9);
        assert_memory_equal(c.bytes + 40, "headabcde", 9);
        assert_int_equal(word(&c, 49), 7);
        assert_memory_equal(c.bytes + 65, "answer", 6);
}

static void a_capture_keeps_snaplen_bytes(void **state)
{
        struct pair *p = pair_new(&providers[0], (struct unet_ep_opts){0});
        static struct capture c;
        char path[64];

        temp_name(path);
        assert_int_equal(unet_chan_capture(p->a, p->ca, path, 10), 0);
        assert_int_equal(pair_send(p, 1, 1000, 4, 0), 1);
        assert_int_equal(unet_chan_close(p->a, p->ca), 0);
        read_back(path, &c);
        assert_int_equal(c.n, 24 + 16 + 10);
        assert_int_equal(word(&c, 16), 10);
        assert_int_equal(word(&c, 32), 10);
        assert_int_equal(word(&c, 36), 1000);
        assert_int_equal(unet_chan_capture(p->b, p->cb, "/no/such/folder/x", 0), -ENOENT);
        assert_int_equal(unet_chan_capture(p->b, 99, path, 0), -EBADF);
        pair_free(p);
}

/* Before a stack's channel (frames, no link): here the simulated link with frame geometry. */
static void a_capture_before_a_bare_channel(void **state)
{
        const struct sim_params dir[2] = {{.mtu = 1500}, {.mtu = 1500}};
        struct frame_geom geom = {.count = {[FRAME_SMALL] = 4}};
        static uint8_t frames[4 * FRAME_SMALL_BYTES];
        struct sim *s = sim_create(1, dir);
        nstime now = 0;
        struct ni_pcap_opts o = {
                .clock = given_time, .arg = &now, .tx = unet_mem_frames(frames, geom)};
        struct unet_tx tx = {
                .inl = (const uint8_t *)"hdr", .inl_len = 3, .frame = 2, .off = 8, .len = 4};
        static struct capture c;
        struct unet_chan *ch;
        char path[64];

        temp_name(path);
        memcpy(frames + FRAME_SMALL_BYTES + 8, "data", 4);
        sim_set_tx_mem(s, 0, o.tx);
        assert_int_equal(pcap_file_open(path, 0, &o.file), 0);
        ch = ni_pcap_new(sim_end(s, 0), &o);
        assert_non_null(ch);
        assert_int_equal(ch->ops->send(ch, &tx, 1), 1);
        assert_int_equal(ni_pcap_end(ch), 0);
        read_back(path, &c);
        assert_memory_equal(c.bytes + 40, "hdrdata", 7);
        sim_destroy(s);
}

/* ---- reading fault parameters ---- */

static void fault_parameters_are_read(void **state)
{
        static const char *const bad[] = {"loss",
                                          "loss=",
                                          "loss=2",
                                          "loss=-1",
                                          "loss=x",
                                          "loss=0.1x",
                                          "lost=0.1",
                                          "seed=",
                                          "seed=-1",
                                          "seed=x",
                                          "=1",
                                          "loss=0.1;seed=1",
                                          "delay_by=99999999999"};
        struct fault_params p = {.seed = 1234};

        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                assert_int_equal(fault_parse(bad[i], &p), -EINVAL);
        assert_int_equal(p.seed, 1234);
        assert_int_equal(fault_parse("", &p), 0);
        assert_int_equal(p.seed, 0);
        assert_int_equal(
                fault_parse(
                        "loss=0.01,seed=7,delay=1,delay_by=3,reorder=0.5,duplicate=0,corrupt=1e-3",
                        &p),
                0);
        assert_true(p.loss > 0.0099 && p.loss < 0.0101 && p.delay >= 1 && p.corrupt > 0);
        assert_int_equal(p.seed, 7);
        assert_int_equal(p.delay_by, 3);
}

/* ---- faults, one at a time ---- */

static struct pair *faulty(const char *spec)
{
        struct pair *p = pair_new(&providers[0], (struct unet_ep_opts){0});

        pair_provide(p, 32, 4096);
        assert_int_equal(unet_chan_fault(p->a, p->ca, spec), 0);
        return p;
}

/* Number of the next message at b; -1: none. Four bytes inline carry it, some bytes of the
 * segment follow. */
static int64_t next_number(struct pair *p)
{
        struct unet_recv m;
        uint32_t n;

        if (unet_ep_recv(p->b, &m, 1) == 0)
                return -1;
        memcpy(&n, m.inl, 4);
        pair_give_back(p, &m);
        return n;
}

static void send_number(struct pair *p, uint32_t n, bool piece, uint32_t *injected)
{
        struct unet_send m = {.chan = p->ca,
                              .inl = &n,
                              .inl_len = 4,
                              .nfrags = piece,
                              .frag = {{0, 100}},
                              .injected = injected};

        assert_int_equal(unet_ep_send(p->a, &m, 1), 1);
}

static void lost_messages_count_as_injected(void **state)
{
        struct pair *p = faulty("loss=0.1,seed=5");
        static uint32_t injected[2000];
        uint32_t got = 0, flags = 0;
        struct unet_chan_info info;
        int64_t n, last = -1;

        memset(injected, 0, sizeof injected);
        assert_int_equal(unet_chan_info(p->a, p->ca, &info), 0);
        assert_false(info.lossless);
        for (uint32_t i = 0; i < 2000; i++) {
                send_number(p, i, true, &injected[i]);
                while ((n = next_number(p)) >= 0) {
                        assert_true(n > last);
                        last = n;
                        got++;
                }
                unet_ep_reap(p->a, NULL, 0);
        }
        for (int i = 0; i < 2000; i++)
                flags += injected[i];
        assert_int_equal(flags, 2000);
        assert_in_range(got, 1700, 1900);
        assert_int_equal(unet_ep_stat(p->a, "LINK_LOST"), 2000 - got);
        pair_free(p);
}

/* The buffer is reported once, when both copies are through. */
static void duplicates_arrive_twice_and_are_injected_once(void **state)
{
        struct pair *p = faulty("duplicate=1");
        struct unet_send m = {.chan = p->ca,
                              .inl = "\0\0\0",
                              .inl_len = 4,
                              .nfrags = 1,
                              .frag = {{0, 100}},
                              .cookie = 3};
        uint64_t cookie[4];

        for (int i = 0; i < 2000; i++) {
                assert_int_equal(unet_ep_send(p->a, &m, 1), 1);
                assert_int_equal(next_number(p), 0);
                assert_int_equal(unet_ep_reap(p->a, cookie, 4), 0);
                assert_int_equal(next_number(p), 0);
                assert_int_equal(next_number(p), -1);
                assert_int_equal(unet_ep_reap(p->a, cookie, 4), 1);
        }
        assert_int_equal(unet_ep_stat(p->a, "NI_BAD_RETURN"), 0);
        pair_free(p);
}

static void reordering_swaps_neighbours_and_loses_nothing(void **state)
{
        struct pair *p = faulty("reorder=0.2,seed=9");
        static bool seen[1000];
        int64_t n, last = -1, swaps = 0;

        memset(seen, 0, sizeof seen);
        for (uint32_t i = 0; i < 1000; i++) {
                send_number(p, i, i % 2, NULL);
                while ((n = next_number(p)) >= 0) {
                        assert_false(seen[n]);
                        seen[n] = true;
                        swaps += n < last;
                        last = n;
                }
        }
        for (int i = 0; i < 100 && unet_ep_wait(p->a, UNET_READABLE, 0) != -ETIMEDOUT; i++)
                unet_ep_recv(p->a, &(struct unet_recv){0}, 1);
        while ((n = next_number(p)) >= 0)
                seen[n] = true;
        for (int i = 0; i < 1000; i++)
                assert_true(seen[i]);
        assert_in_range(swaps, 50, 300);
        pair_free(p);
}

/* The sender waits for an answer that cannot come before the held message is passed on: looking
 * is enough. */
static void a_delayed_message_is_not_forgotten(void **state)
{
        struct pair *p = faulty("delay=1,delay_by=10");
        struct unet_recv r;
        int looks = 0;

        send_number(p, 1, false, NULL);
        assert_int_equal(next_number(p), -1);
        while (unet_ep_wait(p->a, UNET_READABLE, NS_PER_S) == UNET_READABLE && looks++ < 100)
                if (unet_ep_recv(p->a, &r, 1) == 0 && next_number(p) == 1)
                        break;
        assert_in_range(looks, 5, 20);
        pair_free(p);
}

static void corruption_flips_a_bit_of_the_descriptor_only(void **state)
{
        struct pair *p = faulty("corrupt=1");
        struct unet_chan_info info;
        struct unet_recv m;
        uint32_t n;

        assert_int_equal(unet_chan_info(p->a, p->ca, &info), 0);
        assert_true(info.corrupts);
        memset(p->sa.base, 7, 100);
        send_number(p, 0, true, NULL);
        assert_int_equal(unet_ep_recv(p->b, &m, 1), 1);
        memcpy(&n, m.inl, 4);
        assert_int_equal(__builtin_popcount(n), 1);
        for (int i = 0; i < 100; i++)
                assert_true(p->sa.base[i] == 7 && m.frag[0].ptr[i] == 7);

        /* Nothing in the descriptor: lost, as by a link that checks its frames. */
        assert_int_equal(pair_send(p, 1, 100, 0, 0), 1);
        pair_expect_none(p);
        assert_int_equal(unet_ep_stat(p->a, "LINK_LOST"), 1);
        pair_free(p);
}

static void the_same_seed_loses_the_same(void **state)
{
        char got[2][200];

        for (int k = 0; k < 2; k++) {
                struct pair *p = faulty("loss=0.3,seed=77");
                for (uint32_t i = 0; i < 200; i++) {
                        send_number(p, i, false, NULL);
                        got[k][i] = next_number(p) >= 0;
                }
                pair_free(p);
        }
        assert_memory_equal(got[0], got[1], sizeof got[0]);
}

/* One before the other: the capture shows what the endpoint sent, before the fault. */
static void wrappers_stack(void **state)
{
        struct pair *p = faulty("loss=1");
        static struct capture c;
        char path[64];

        temp_name(path);
        assert_int_equal(unet_chan_capture(p->a, p->ca, path, 0), 0);
        send_number(p, 1, false, NULL);
        assert_int_equal(next_number(p), -1);
        pair_free(p);
        read_back(path, &c);
        assert_int_equal(c.n, 24 + 16 + 4);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_capture_holds_both_directions_with_the_given_times),
                cmocka_unit_test(a_capture_keeps_snaplen_bytes),
                cmocka_unit_test(a_capture_before_a_bare_channel),
                cmocka_unit_test(fault_parameters_are_read),
                cmocka_unit_test(lost_messages_count_as_injected),
                cmocka_unit_test(duplicates_arrive_twice_and_are_injected_once),
                cmocka_unit_test(reordering_swaps_neighbours_and_loses_nothing),
                cmocka_unit_test(a_delayed_message_is_not_forgotten),
                cmocka_unit_test(corruption_flips_a_bit_of_the_descriptor_only),
                cmocka_unit_test(the_same_seed_loses_the_same),
                cmocka_unit_test(wrappers_stack),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
