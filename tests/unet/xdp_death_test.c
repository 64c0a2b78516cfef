/*
 * The provider `xdp` on rings in ordinary memory, with a kernel made of a few lines: it needs no
 * privilege, and its memory can be copied. A process does something with it, one instruction at a
 * time; after each instruction that changed anything, a copy is repaired as a successor does, and
 * every chunk must be in exactly one place, what is lent untouched, and packets must pass again, in
 * every chunk. Everything twice: with the rings of AF_XDP, and with those of mode XDP_MODE_TCX,
 * where some packets that come are long.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unet/xdp/ni_xdp.h"
#include "tests/unit.h"

#define RX     64u
#define LARGE  4u /* XDP_MODE_TCX only */
#define ALL    (RX + LARGE)
#define RING   128u
#define TX     16u
#define CHUNK  2048u
#define KEPT   5u /* lent packets that the stack has records of */
#define FRAMES 8u
#define LONG   1000u /* a packet that is lent */
#define SHORT  60u   /* one that is not */
#define HUGE   5000u /* one that is too long for a chunk */

struct ring_mem {
        uint32_t prod, cons, flags;
        union {
                uint64_t addr[RING];
                struct xdp_desc desc[RING];
        };
};

/* All that the processes of a stack and the kernel share. */
struct world {
        struct ni_xdp_shared sh;
        struct ring_mem fill[FRAME_CLASSES], comp, rx, tx;
        struct counters cnt;
        struct {
                uint32_t frame, off, len, number;
        } kept[KEPT], lent[ALL]; /* lent: for the child to give back */
        uint32_t nlent;
        uint32_t delivered;    /* packets that came, numbered */
        _Atomic uint64_t bell; /* XDP_MODE_TCX: both its positions */
        uint8_t frames[FRAMES * FRAME_SMALL_BYTES];
        struct tcx_words words; /* of which only `armed` is not in the rings above */
        /* last: bytes that no decision hangs on. */
        uint8_t umem[LARGE * FRAME_LARGE_BYTES + (RX + TX) * CHUNK];
};

static const struct xdp_geom geoms[] = {
        {.mtu = 1500,
         .chunk_bytes = CHUNK,
         .tx_chunk_bytes = CHUNK,
         .rx_chunks = RX,
         .tx_chunks = TX,
         .rx_ring = RING},
        {.mtu = 1500,
         .chunk_bytes = CHUNK,
         .tx_chunk_bytes = CHUNK,
         .rx_chunks = RX,
         .tx_chunks = TX,
         .rx_ring = RING,
         .rx_large = LARGE,
         .mode = XDP_MODE_TCX},
};
static struct xdp_geom geom; /* of this round */
static const struct frame_geom tx_geom = {{[FRAME_SMALL] = FRAMES}};

static bool tcx(void)
{
        return geom.mode == XDP_MODE_TCX;
}

static uint32_t rx_all(void)
{
        return xdp_rx_count(&geom);
}

static struct xdp_ring ring_of(struct ring_mem *m, uint32_t entries)
{
        return (struct xdp_ring){.prod = (_Atomic uint32_t *)&m->prod,
                                 .cons = (_Atomic uint32_t *)&m->cons,
                                 .flags = (_Atomic uint32_t *)&m->flags,
                                 .desc = m->addr,
                                 .mask = entries - 1};
}

/* Somebody's view of a world. Without a wake-up flag nobody makes a system call. */
static struct ni_xdp view_of(struct world *w)
{
        struct ni_xdp x = {
                .base = {.ops = &ni_xdp_ops, .caps = {.mtu = 1514, .inline_max = UNET_INLINE_MAX}},
                .sh = &w->sh,
                .geom = geom,
                .umem = w->umem,
                .fill = {ring_of(&w->fill[FRAME_SMALL], RING),
                         ring_of(&w->fill[FRAME_LARGE], RING)},
                .comp = ring_of(&w->comp, TX),
                .rx = ring_of(&w->rx, RING),
                .tx = ring_of(&w->tx, TX),
                .tx_mem = unet_mem_frames(w->frames, tx_geom),
                .cnt = &w->cnt,
                .xsk = -1,
                .packet = -1,
                .inline_most = UNET_INLINE_MAX};

        if (tcx()) {
                x.words = &w->words;
                x.bell = (struct xdp_bell){&w->bell, &w->bell};
        }
        return x;
}

static struct world *world_map(int flags)
{
        struct world *w =
                mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

        assert_true(w != MAP_FAILED);
        return w;
}

static struct world *world_make(void)
{
        struct world *w = world_map(MAP_SHARED);

        for (uint32_t i = 0; i < rx_all(); i++) {
                struct ring_mem *f = &w->fill[i < geom.rx_large ? FRAME_LARGE : FRAME_SMALL];
                f->addr[f->prod++] = xdp_rx_addr(&geom, i);
        }
        for (int c = 0; c < FRAME_CLASSES; c++)
                w->sh.fill_next[c] = w->sh.fill_settled[c] = w->fill[c].prod;
        return w;
}

/* ---- the kernel ---- */

static uint8_t byte_of(uint32_t number, uint32_t i)
{
        return (uint8_t)(number * 37 + i * 11 + (i >> 8));
}

static void comes(struct world *w, uint64_t addr, uint32_t len, uint32_t options)
{
        w->rx.desc[w->rx.prod % RING] =
                (struct xdp_desc){addr, len, options | (tcx() ? tcx_lap(w->rx.prod, RING - 1) : 0)};
        w->rx.prod++;
}

/* A packet arrives. False: there was no chunk in FILL. */
static bool arrives(struct world *w, uint32_t len)
{
        struct ring_mem *f = &w->fill[len > CHUNK ? FRAME_LARGE : FRAME_SMALL];
        uint32_t number = w->delivered;
        uint64_t addr;

        if (f->cons == f->prod)
                return false;
        assert_true(w->rx.prod - w->rx.cons < RING);
        addr = f->addr[f->cons % RING] + (tcx() ? 0 : XDP_HEADROOM);
        f->cons++;
        for (uint32_t i = 0; i < len; i++)
                w->umem[addr + i] = byte_of(number, i);
        comes(w, addr, len, 0);
        w->delivered++;
        return true;
}

/* Long or short, of those that can be. */
static uint32_t some_length(uint32_t i)
{
        return tcx() && i % 5 == 4 ? HUGE : i % 3 ? LONG : SHORT;
}

/* Everything offered leaves. Returns how many packets that were. */
static uint32_t leaves(struct world *w)
{
        uint32_t n = 0;

        for (; w->tx.cons != w->tx.prod; w->tx.cons++, n++) {
                const struct xdp_desc *d = &w->tx.desc[w->tx.cons % TX];
                assert_true(d->addr - xdp_tx_addr(&geom) < TX * CHUNK && d->len <= 1514);
                assert_true(w->comp.prod - w->comp.cons < TX);
                w->comp.addr[w->comp.prod % TX] = d->addr;
                w->comp.prod++;
        }
        return n;
}

/* ---- the stack ---- */

static void check_bytes(const struct world *w, uint32_t frame, uint32_t off, uint32_t len,
                        uint32_t number)
{
        const uint8_t *p = w->umem + frame_geom_offset(xdp_frame_geom(&geom), frame) + off;

        for (uint32_t i = 0; i < len; i++)
                assert_int_equal(p[i], byte_of(number, UNET_INLINE_MAX + i));
}

/* Takes up to `most` packets in batches; what is lent is noted. Returns how many came. */
static uint32_t receive(struct world *w, struct ni_xdp *x, uint32_t most)
{
        struct unet_rx rx[8];
        uint32_t got = 0;
        int n;

        while ((n = x->base.ops->recv(&x->base, rx, (int)MIN(most - got, 8u))) > 0) {
                for (int i = 0; i < n; i++)
                        if (rx[i].frame != 0) {
                                w->lent[w->nlent].frame = rx[i].frame;
                                w->lent[w->nlent].off = rx[i].off;
                                w->lent[w->nlent].len = rx[i].len;
                                w->nlent++;
                        }
                got += (uint32_t)n;
        }
        return got;
}

static void release_all(struct world *w, struct ni_xdp *x)
{
        while (w->nlent > 0) {
                uint32_t frame = w->lent[w->nlent - 1].frame;
                w->nlent--;
                x->base.ops->release(&x->base, &frame, 1);
        }
}

static int transmit(struct ni_xdp *x, int n)
{
        static const uint8_t head[54];
        struct unet_tx tx[8];

        for (int i = 0; i < n; i++)
                tx[i] = (struct unet_tx){
                        .inl = head, .inl_len = sizeof head, .frame = (uint32_t)i + 1, .len = 30};
        return x->base.ops->send(&x->base, tx, n);
}

static void reap_all(struct ni_xdp *x)
{
        uint32_t frame[4];

        while (x->base.ops->reap(&x->base, frame, 4) > 0)
                ;
}

/* Every chunk was used before, some are lent, some are in every ring. */
static struct world *scene(void)
{
        struct world *w = world_make();
        struct ni_xdp x = view_of(w);

        for (uint32_t i = 0; i < 3 * RX + 7; i++) {
                assert_true(arrives(w, some_length(i)));
                assert_int_equal(receive(w, &x, 1), 1);
                release_all(w, &x);
                x.base.ops->flush(&x.base);
                assert_int_equal(transmit(&x, 1), 1);
                assert_int_equal(leaves(w), 1);
                reap_all(&x);
        }
        for (uint32_t i = 0; i < KEPT; i++) {
                uint32_t number = w->delivered;
                assert_true(arrives(w, tcx() && i == 0 ? HUGE : LONG));
                assert_int_equal(receive(w, &x, 1), 1);
                w->kept[i].frame = w->lent[0].frame;
                w->kept[i].off = w->lent[0].off;
                w->kept[i].len = w->lent[0].len;
                w->kept[i].number = number;
                w->nlent = 0;
        }
        assert_int_equal(transmit(&x, 8) + transmit(&x, 2), 10);
        assert_int_equal(leaves(w), 10);
        reap_all(&x);
        /* No chunk was taken before those that came back. */
        assert_int_equal(w->comp.prod - w->comp.cons, 10);
        assert_int_equal(transmit(&x, 3), 3);
        return w;
}

/* ---- what must be true ---- */

static void seen(uint8_t *where, uint64_t chunk, uint32_t first, uint32_t n)
{
        assert_true(chunk >= first && chunk < first + n);
        where[chunk]++;
}

static void check(const struct world *w)
{
        uint8_t times[ALL + TX] = {0};
        uint32_t lent = 0, used = w->tx.prod - w->comp.cons, all = rx_all();
        const uint64_t sent_from = xdp_tx_addr(&geom);

        for (int c = 0; c < FRAME_CLASSES; c++)
                for (uint32_t i = w->fill[c].cons; i != w->fill[c].prod; i++)
                        seen(times, xdp_rx_chunk(&geom, w->fill[c].addr[i % RING]),
                             c == FRAME_LARGE ? 0 : geom.rx_large,
                             c == FRAME_LARGE ? geom.rx_large : RX);
        for (uint32_t i = w->rx.cons; i != w->rx.prod; i++)
                seen(times, xdp_rx_chunk(&geom, w->rx.desc[i % RING].addr), 0, all);
        for (uint32_t i = 0; i < all; i++) {
                assert_true(w->sh.owner[i] == (times[i] ? XDP_KERNEL : XDP_LENT));
                times[i] += w->sh.owner[i] == XDP_LENT;
                lent += w->sh.owner[i] == XDP_LENT;
        }
        assert_int_equal(lent, w->sh.loans);
        for (uint32_t i = w->tx.cons; i != w->tx.prod; i++)
                seen(times, all + (w->tx.desc[i % TX].addr - sent_from) / CHUNK, all, TX);
        for (uint32_t i = w->comp.cons; i != w->comp.prod; i++)
                seen(times, all + (w->comp.addr[i % TX] - sent_from) / CHUNK, all, TX);
        for (uint32_t i = used; i < TX; i++)
                seen(times, all + i, all, TX);
        for (uint32_t i = 0; i < all + TX; i++)
                assert_int_equal(times[i], 1);
}

static bool is_kept(void *arg, uint32_t frame)
{
        const struct world *w = arg;

        for (uint32_t i = 0; i < KEPT; i++)
                if (w->kept[i].frame == frame)
                        return true;
        return false;
}

static void goes_on(struct world *w, struct ni_xdp *x)
{
        leaves(w);
        receive(w, x, ALL);
        w->nlent = 0;
        ni_xdp_reclaim(x, is_kept, w);
        check(w);
        assert_int_equal(ni_xdp_loans(x), KEPT);
        for (uint32_t lap = 0; lap < 2; lap++) {
                uint32_t n = 0;
                while (arrives(w, LONG))
                        n++;
                while (tcx() && arrives(w, HUGE))
                        n++;
                assert_int_equal(n, rx_all() - KEPT);
                assert_int_equal(receive(w, x, ALL), n);
                release_all(w, x);
                x->base.ops->flush(&x->base);
                x->base.ops->arm(&x->base); /* a program is told of every chunk then */
                assert_int_equal(x->base.ops->room(&x->base), TX);
                assert_int_equal(transmit(x, 8) + transmit(x, 8), TX);
                assert_int_equal(leaves(w), TX);
                reap_all(x);
        }
        for (uint32_t i = 0; i < KEPT; i++)
                check_bytes(w, w->kept[i].frame, w->kept[i].off, w->kept[i].len, w->kept[i].number);
        release_all(w, x);
        check(w);
}

/* The successor of a process that died; at times it dies as well, after its repair. */
static void succeed(const struct world *dead, struct world *copy)
{
        struct ni_xdp x = view_of(copy);

        memcpy(copy, dead, sizeof *copy);
        x.base.ops->repair(&x.base);
        check(copy);
        x.base.ops->repair(&x.base);
        check(copy);
        goes_on(copy, &x);
}

/* ---- what is done when death comes ---- */

static void receives_long_and_short(struct world *w, struct ni_xdp *x)
{
        receive(w, x, 8);
}

static void gives_many_back(struct world *w, struct ni_xdp *x)
{
        release_all(w, x);
        x->base.ops->flush(&x->base);
}

static void sends_a_batch(struct world *w, struct ni_xdp *x)
{
        transmit(x, 5);
        reap_all(x);
}

static void does_a_turn(struct world *w, struct ni_xdp *x)
{
        receive(w, x, 6);
        transmit(x, 2);
        release_all(w, x);
        x->base.ops->flush(&x->base);
        reap_all(x);
}

static void repairs(struct world *w, struct ni_xdp *x)
{
        x->base.ops->repair(&x->base);
}

static void child(struct world *w, void (*act)(struct world *, struct ni_xdp *))
{
        struct ni_xdp x = view_of(w);

        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
                _exit(99);
        raise(SIGSTOP);
        act(w, &x);
        _exit(0);
}

static void dies_everywhere(struct world *w, void (*act)(struct world *, struct ni_xdp *),
                            unsigned at_least)
{
        struct world *copy = world_map(MAP_PRIVATE), *last = world_map(MAP_PRIVATE);
        unsigned steps = 0, deaths = 0;
        int status;
        pid_t pid;

        memcpy(last, w, sizeof *w);
        pid = fork();
        if (pid == 0)
                child(w, act);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFSTOPPED(status)) {
                print_message("skipped: ptrace is not allowed here\n");
                skip();
        }
        while (WIFSTOPPED(status)) {
                if (memcmp(last, w, offsetof(struct world, umem)) != 0) {
                        deaths++;
                        memcpy(last, w, sizeof *w);
                        succeed(w, copy);
                }
                steps++;
                assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
                assert_int_equal(waitpid(pid, &status, 0), pid);
        }
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        print_message("%u instructions, %u deaths survived\n", steps, deaths);
        assert_true(deaths >= at_least);
        munmap(copy, sizeof *copy);
        munmap(last, sizeof *last);
        munmap(w, sizeof *w);
}

static void a_reception_may_end_anywhere(void **state)
{
        struct world *w = scene();

        for (uint32_t i = 0; i < 10; i++)
                assert_true(arrives(w, some_length(i)));
        dies_everywhere(w, receives_long_and_short, 20);
}

static void a_release_may_end_anywhere(void **state)
{
        struct world *w = scene();
        struct ni_xdp x = view_of(w);

        for (uint32_t i = 0; i < 40; i++)
                assert_true(arrives(w, LONG));
        assert_int_equal(receive(w, &x, 40), 40);
        dies_everywhere(w, gives_many_back, 150);
}

static void a_send_may_end_anywhere(void **state)
{
        dies_everywhere(scene(), sends_a_batch, 10);
}

/* Nothing was sent before: chunks are taken from those never used. */
static void a_first_send_may_end_anywhere(void **state)
{
        struct world *w = scene(), *fresh = world_make();

        memcpy(w->comp.addr, fresh->comp.addr, sizeof w->comp.addr);
        w->comp.prod = w->comp.cons = w->tx.prod = w->tx.cons = 0;
        w->sh.tx_next = w->sh.comp_next = 0;
        munmap(fresh, sizeof *fresh);
        dies_everywhere(w, sends_a_batch, 10);
}

/* Two chunks have come back; the others are those that were never used. */
static void a_send_of_both_kinds_may_end_anywhere(void **state)
{
        struct world *w = scene();
        struct ni_xdp x = view_of(w);

        assert_int_equal(transmit(&x, 5), 5);
        assert_int_equal(w->comp.prod - w->comp.cons, 2);
        dies_everywhere(w, sends_a_batch, 10);
}

static void a_turn_may_end_anywhere(void **state)
{
        struct world *w = scene();

        for (uint32_t i = 0; i < 7; i++)
                assert_true(arrives(w, some_length(i)));
        dies_everywhere(w, does_a_turn, 50);
}

/* The worst that a death leaves, and another one in the middle of its repair. */
static void a_repair_may_end_anywhere(void **state)
{
        struct world *w = scene();
        struct ni_xdp x = view_of(w);

        for (uint32_t i = 0; i < 20; i++)
                assert_true(arrives(w, tcx() && i < 3 ? HUGE : i % 2 ? LONG : SHORT));
        receive(w, &x, 10);
        for (uint32_t i = w->rx.cons; i != w->rx.prod;
             i++) /* marked, and not yet taken off the ring */
                w->sh.owner[xdp_rx_chunk(&geom, w->rx.desc[i % RING].addr)] =
                        i % 2 ? XDP_LENT : XDP_BACK;
        release_all(w, &x);
        for (int c = 0; c < FRAME_CLASSES; c++)
                w->fill[c].prod = w->sh.fill_next[c]; /* published, and not noted */
        for (uint32_t i = 0; i < 2; i++, w->tx.prod++) {
                uint64_t addr = w->comp.addr[(w->comp.cons + i) % TX];
                w->tx.desc[w->tx.prod % TX] = (struct xdp_desc){.addr = addr, .len = 60};
        }
        w->sh.tx_next = w->tx.prod;
        w->sh.comp_next = w->comp.cons + 2;
        dies_everywhere(w, repairs, 10);
}

/* ---- a kernel that is not one: whoever passed the socket may have mapped its rings, too ---- */

static void rubbish_in_the_rings_is_counted_and_harms_nobody(void **state)
{
        const uint64_t end = xdp_rx_bytes(&geom), bad[] = {end, xdp_umem_bytes(&geom), UINT64_MAX,
                                                           UINT64_MAX - 100, 1ull << 40};
        struct world *w = scene();
        struct ni_xdp x = view_of(w);
        struct unet_rx rx[8];
        uint32_t n = 0;

        for (size_t i = 0; i < ARRAY_LEN(bad); i++, n++)
                comes(w, bad[i], 100, 0);
        comes(w, xdp_large_bytes(&geom) + 2047, 2, 0);
        comes(w, xdp_large_bytes(&geom), UINT32_MAX, 0);
        comes(w, xdp_large_bytes(&geom), 100, 1);
        comes(w, frame_geom_offset(xdp_frame_geom(&geom), w->kept[0].frame), 100, 0); /* lent */
        assert_int_equal(x.base.ops->recv(&x.base, rx, 8), 0);
        assert_int_equal(w->cnt.drop[DROP_NI_MALFORMED], n + 4);
        w->rx.prod += 1u << 31; /* more than a ring holds; a program has no such word */
        x.base.ops->recv(&x.base, rx, 8);
        w->rx.prod = w->rx.cons;
        leaves(w);
        for (uint32_t i = 0; i < TX; i++)
                w->comp.addr[i] = UINT64_MAX - i * 12345;
        w->comp.prod += 1u << 30;
        assert_true(x.base.ops->room(&x.base) <= TX);
        assert_int_equal(transmit(&x, 8), 8); /* somewhere among the transmit chunks */
        for (uint32_t i = w->tx.cons; i != w->tx.prod; i++)
                assert_true(w->tx.desc[i % TX].addr - xdp_tx_addr(&geom) < TX * CHUNK);
        for (uint32_t i = 0; i < KEPT; i++)
                check_bytes(w, w->kept[i].frame, w->kept[i].off, w->kept[i].len, w->kept[i].number);
        munmap(w, sizeof *w);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_reception_may_end_anywhere),
                cmocka_unit_test(a_release_may_end_anywhere),
                cmocka_unit_test(a_send_may_end_anywhere),
                cmocka_unit_test(a_first_send_may_end_anywhere),
                cmocka_unit_test(a_send_of_both_kinds_may_end_anywhere),
                cmocka_unit_test(a_turn_may_end_anywhere),
                cmocka_unit_test(a_repair_may_end_anywhere),
                cmocka_unit_test(rubbish_in_the_rings_is_counted_and_harms_nobody),
        };

        int failed = 0;

        for (size_t i = 0; i < ARRAY_LEN(geoms); i++) {
                geom = geoms[i];
                failed += cmocka_run_group_tests_name(tcx() ? "tcx" : "af_xdp", tests, NULL, NULL);
        }
        return failed;
}
