/*
 * A process dies at every instruction of every operation (tests/steps.h). What it leaves is
 * recovered and must be whole: what was queued before is there, and what was arriving is there or
 * not.
 */
#include <errno.h>
#include <stdlib.h>

#include "tests/steps.h"
#include "tests/udp/reading.h"
#include "tests/udp/scene.h"
#include "udp/udp_pcb.h"

#define PRIVATE_LARGE 2u
#define PRIVATE_SMALL 4u
#define PCBS          3u

/* Everything that a stack has in shared memory, as far as UDP goes. */
struct segment {
        _Alignas(CACHE_LINE) uint8_t shared[65536];
        _Alignas(CACHE_LINE) uint8_t pool[8192];
        struct counters cnt;
        uint32_t lent_back; /* bit of each frame given back */
        _Alignas(4096) uint8_t
                frames[PRIVATE_LARGE * FRAME_LARGE_BYTES + PRIVATE_SMALL * FRAME_SMALL_BYTES];
};

/* One process's view of a segment. */
struct view {
        struct segment *seg;
        struct udp u;
        struct frames *frames;
};

static const struct frame_geom mine = {
        {[FRAME_LARGE] = PRIVATE_LARGE, [FRAME_SMALL] = PRIVATE_SMALL}};
static const struct frame_geom peers = {{[FRAME_LARGE] = 4, [FRAME_SMALL] = 4}};
static uint8_t peer_frames[4 * (FRAME_LARGE_BYTES + FRAME_SMALL_BYTES)];

static void give_back(void *arg, uint32_t chan, uint32_t num)
{
        struct segment *seg = arg;

        seg->lent_back |= 1u << num;
}

static void touched(void *arg, uint32_t pcb)
{
}

static struct frame_pool *pool_of(const struct view *v)
{
        return (struct frame_pool *)v->seg->pool;
}

static struct view view_of(struct segment *seg)
{
        struct view v = {.seg = seg, .frames = calloc(1, sizeof *v.frames)};

        v.frames->region[FRAME_REGION_PRIVATE] =
                (struct frame_region){seg->frames, pool_of(&v), mine};
        v.frames->region[FRAME_REGION_RX(CHAN)] = (struct frame_region){peer_frames, NULL, peers};
        v.frames->give_back = give_back;
        v.frames->arg = seg;
        v.u = (struct udp){.sh = (struct udp_shared *)seg->shared,
                           .frames = v.frames,
                           .cnt = &seg->cnt,
                           .touched = touched};
        return v;
}

/* ---- what the child does ---- */

static void put(struct view *v, uint32_t len, uint32_t frame, uint8_t fill)
{
        uint8_t inl[200];
        struct udp_dgram d = {.tuple = {ip_addr_v4(US), ip_addr_v4(PEER), 53, fill, CHAN, 64, 0},
                              .inl = inl,
                              .inl_len = len};

        memset(inl, fill, sizeof inl);
        if (frame != 0)
                d.data = (struct buf){frame_id(FRAME_REGION_RX(CHAN), frame), 0, 100};
        udp_rx(&v->u, &d, fill);
}

static void do_put(struct view *v)
{
        put(v, 64, 0, 200);
}

static void do_put_lent(struct view *v)
{
        put(v, 10, 2, 200);
}

static void do_put_into_new_block(struct view *v)
{
        put(v, 200, 0, 200);
}

static void do_read(struct view *v)
{
        read_first(&v->u, 1, 1);
}

/* Without the lock. */
static void do_take(struct view *v)
{
        struct udp_sight first;

        if (udp_recv_look(&v->u, 1, &first))
                udp_recv_take(&v->u, 1, &first);
}

static void do_take_and_settle(struct view *v)
{
        for (int i = 0; i < 12; i++)
                do_take(v);
        udp_settle(&v->u, 1);
}

/* All was read, and a block is full: it is given up for the new one. */
static void do_take_all_and_put(struct view *v)
{
        for (int i = 0; i < 15; i++)
                do_take(v);
        do_put_into_new_block(v);
}

static void do_read_all(struct view *v)
{
        read_first(&v->u, 1, udp_pcb_at(&v->u, 1)->q.count);
}

static void do_open_and_bind(struct view *v)
{
        struct udp_opts o;
        uint32_t pcb;

        udp_opts_default(&o);
        pcb = udp_open(&v->u, &o);
        udp_bind(&v->u, pcb, ip_addr_v4(US_2), 99);
        udp_connect(&v->u, pcb, ip_addr_v4(US), ip_addr_v4(PEER), 7);
        udp_disconnect(&v->u, pcb);
}

static void do_close(struct view *v)
{
        udp_close(&v->u, 1);
}

static void do_error(struct view *v)
{
        struct icmp_err e = {.err = ECONNREFUSED,
                             .hard = true,
                             .laddr = ip_addr_v4(US),
                             .lport = 54,
                             .raddr = ip_addr_v4(PEER),
                             .rport = 7};

        udp_icmp(&v->u, &e);
}

static void keep(struct view *v, uint32_t pcb)
{
        const struct udp_error e = {.err = ECONNREFUSED, .len = 5, .data = "quote"};

        udp_error_add(&v->u, pcb, &e);
}

static void do_keep(struct view *v)
{
        keep(v, 1);
}

static void do_take_kept(struct view *v)
{
        struct udp_error e;

        udp_error_take(&v->u, 1, &e);
}

/* ---- what was there before ---- */

/* Pcb 1 has `n` datagrams, the first of them with a lent frame; pcb 2 is connected and has one. */
static void furnish(struct view *v, uint32_t n)
{
        static const uint8_t secret[16] = "not so secret...";
        struct udp_limits l = {.pcbs = PCBS, .errors = 4};
        struct udp_opts o;

        assert_true(udp_shared_bytes(&l) <= sizeof v->seg->shared);
        assert_true(frame_pool_bytes(mine) <= sizeof v->seg->pool);
        memset(v->seg, 0, offsetof(struct segment, frames));
        frame_pool_init(pool_of(v), mine);
        udp_shared_init(v->u.sh, &l, secret);
        udp_opts_default(&o);
        assert_int_equal(udp_open(&v->u, &o), 1);
        assert_int_equal(udp_open(&v->u, &o), 2);
        assert_int_equal(udp_bind(&v->u, 1, (ip_addr){{0, 0}}, 53), 0);
        assert_int_equal(udp_bind(&v->u, 2, (ip_addr){{0, 0}}, 54), 0);
        assert_int_equal(udp_connect(&v->u, 2, ip_addr_v4(US), ip_addr_v4(PEER), 7), 0);
        keep(v, 1);
        keep(v, 2);
        for (uint32_t i = 0; i < n; i++)
                put(v, 150, i == 0 ? 1 : 0, (uint8_t)i);
        udp_rx(&v->u,
               &(struct udp_dgram){.tuple = {.laddr = ip_addr_v4(US),
                                             .raddr = ip_addr_v4(PEER),
                                             .lport = 54,
                                             .rport = 7,
                                             .chan = CHAN},
                                   .inl = (const uint8_t *)"other",
                                   .inl_len = 5},
               0);
}

/* ---- what must be there after ---- */

static void check_bystander(struct view *v)
{
        struct udp_msg m;

        struct udp_error e;

        udp_pcb_check(&v->u, 2);
        assert_true(udp_error_take(&v->u, 2, &e));
        assert_memory_equal(e.data, "quote", 5);
        udp_take_error(&v->u, 2);
        assert_int_equal(udp_recv_peek(&v->u, 2, 0, &m, 1), 1);
        assert_int_equal(m.len, 5);
        assert_memory_equal(m.span[0].ptr, "other", 5);
}

static void check_datagram(const struct udp_msg *m)
{
        uint8_t fill = (uint8_t)m->sport;

        assert_true(m->at == fill);
        assert_int_equal(m->nspan, m->len > m->span[0].len ? 2 : 1);
        for (uint32_t i = 0; i < m->span[0].len; i++)
                assert_int_equal(m->span[0].ptr[i], fill);
}

/* Datagrams first .. last of pcb 1, in order, where first is 0 .. most_read and last is the newest
 * or the one before. */
static void check_queue(struct view *v, uint32_t before, uint32_t most_read)
{
        struct udp_msg m[64];
        int n = udp_recv_peek(&v->u, 1, 0, m, 64);
        uint32_t at;

        n = MAX(n, 0);
        at = n != 0 ? m[0].sport : before;
        assert_true(at <= most_read || at == before || at == 200);
        if (at == 0)
                assert_int_equal(v->seg->lent_back & 1u << 1, 0); /* its frame is still with us */
        for (int i = 0; i < n; i++) {
                check_datagram(&m[i]);
                assert_true(m[i].sport == 200 ? i == n - 1 : m[i].sport == at + (uint32_t)i);
        }
        if (n != 0 && m[n - 1].sport != 200)
                assert_int_equal(m[n - 1].sport, before - 1);
}

/* Every frame is used once more, and nothing is lost: all can be had when the pcbs are gone. */
static void check_nothing_leaks(struct view *v)
{
        struct udp_report r;

        for (uint32_t i = 1; i <= PCBS; i++)
                if (udp_get_report(&v->u, i, &r))
                        udp_close(&v->u, i);
        assert_int_equal(pool_of(v)->used[FRAME_SMALL] + pool_of(v)->used[FRAME_LARGE], 0);
        assert_int_equal(v->u.sh->pcbs.used, 0);
        for (uint32_t i = 0; i < PCBS; i++)
                assert_int_not_equal(udp_open(&v->u, &(struct udp_opts){.rcvbuf = 1}), 0);
}

static void recover(struct view *v)
{
        for (uint32_t i = 1; i <= frame_geom_total(mine); i++)
                frame_pool_rec(pool_of(v), i)->refs = 0;
        udp_recover(&v->u);
        frame_pool_rebuild(pool_of(v));
}

static void check_after_death(struct view *v, uint32_t before, uint32_t most_read)
{
        struct udp_report r;

        recover(v);
        for (uint32_t i = 1; i <= PCBS; i++)
                if (udp_get_report(&v->u, i, &r))
                        udp_pcb_check(&v->u, i);
        check_bystander(v);
        if (udp_get_report(&v->u, 1, &r))
                check_queue(v, before, most_read);
        check_nothing_leaks(v);
}

/* ---- one instruction at a time ---- */

static struct {
        struct view child;
        void (*op)(struct view *v);
        uint32_t before, most_read;
} plan;

static void act(void *mem)
{
        plan.op(&plan.child);
}

static void after(void *copy)
{
        struct view other = view_of(copy);

        check_after_death(&other, plan.before, plan.most_read);
        free(other.frames);
}

static int setup(void **state)
{
        plan.child = view_of(steps_memory(sizeof(struct segment)));
        return 0;
}

static int teardown(void **state)
{
        steps_free(plan.child.seg, sizeof(struct segment));
        free(plan.child.frames);
        return 0;
}

static void die_everywhere(void (*op)(struct view *v), uint32_t before, uint32_t most_read)
{
        plan.op = op;
        plan.before = before;
        plan.most_read = most_read;
        furnish(&plan.child, before);
        steps_die(plan.child.seg, sizeof(struct segment), act, after);
}

/* ---- the operations ---- */

static void while_the_first_datagram_is_queued(void **state)
{
        die_everywhere(do_put, 0, 0);
}

static void while_a_datagram_is_appended(void **state)
{
        die_everywhere(do_put, 3, 0);
}

static void while_a_lent_frame_is_kept(void **state)
{
        die_everywhere(do_put_lent, 3, 0);
}

static void while_the_queue_grows_by_a_block(void **state)
{
        die_everywhere(do_put_into_new_block, 9, 0);
}

static void while_one_of_several_is_consumed(void **state)
{
        die_everywhere(do_read, 3, 1);
}

static void while_the_last_one_is_consumed(void **state)
{
        die_everywhere(do_read, 1, 1);
}

static void while_one_is_read_without_the_lock(void **state)
{
        die_everywhere(do_take, 3, 1);
}

static void while_what_was_read_is_settled(void **state)
{
        die_everywhere(do_take_and_settle, 15, 12);
}

static void while_one_is_appended_where_all_was_read(void **state)
{
        for (uint32_t n = 1; n <= 15; n++)
                die_everywhere(do_take_all_and_put, n, n);
}

static void while_blocks_are_given_up(void **state)
{
        die_everywhere(do_read_all, 15, 15);
}

static void while_a_pcb_is_made_bound_and_connected(void **state)
{
        die_everywhere(do_open_and_bind, 2, 0);
}

static void while_a_pcb_is_closed(void **state)
{
        die_everywhere(do_close, 15, 15);
}

static void while_an_error_is_noted(void **state)
{
        die_everywhere(do_error, 2, 0);
}

static void while_an_error_is_kept(void **state)
{
        die_everywhere(do_keep, 2, 0);
}

static void while_a_kept_error_is_taken(void **state)
{
        die_everywhere(do_take_kept, 2, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(while_the_first_datagram_is_queued),
                TEST(while_a_datagram_is_appended),
                TEST(while_a_lent_frame_is_kept),
                TEST(while_the_queue_grows_by_a_block),
                TEST(while_one_of_several_is_consumed),
                TEST(while_the_last_one_is_consumed),
                TEST(while_one_is_read_without_the_lock),
                TEST(while_what_was_read_is_settled),
                TEST(while_one_is_appended_where_all_was_read),
                TEST(while_blocks_are_given_up),
                TEST(while_a_pcb_is_made_bound_and_connected),
                TEST(while_a_pcb_is_closed),
                TEST(while_an_error_is_noted),
                TEST(while_an_error_is_kept),
                TEST(while_a_kept_error_is_taken),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
