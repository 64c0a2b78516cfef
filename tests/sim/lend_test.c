/*
 * Receiving by loan, from many seeds: readers lend, read, return in any order, and die; a sender
 * sends whatever it may, over shared memory or over a link that loses. The oracle keeps books of
 * its own:
 *
 *      - what is lent is what was sent, and is still when it is returned, however long that takes;
 *        also where it lies in memory that the sender writes over as soon as its name is over;
 *      - a loan is returned once, by who has it, and by nobody else;
 *      - what is lent and what is unread are never more than the buffer, where that has a size;
 *      - who returns nothing stops his peer, and nobody else: another connection goes on;
 *      - when all is returned the window opens at once, everything arrives, and nothing is left.
 *
 *      sim_lend_test [FIRST COUNT]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/prng.h"
#include "tcp/tcp_lend.h"
#include "tests/sim/oracle.h"
#include "tests/sim/pair.h"
#include "tests/unit.h"

#define WRITER   0
#define READER   1
#define TURNS    200u
#define PROCS    3u   /* that share the reader's socket */
#define HELD     512u /* loans at once */
#define PATIENCE 100000u
#define SLOTS    6u /* of the sender's memory, */
#define SLOT     65536u

struct held {
        struct tcp_lent lent;
        uint64_t pos; /* in the stream */
        uint32_t proc;
};

struct talk {
        struct pair *p;
        struct prng_fast rnd;
        uint64_t seed;
        uint32_t conn[2], other[2];
        uint64_t total, written, read;
        uint64_t other_bytes;
        uint32_t size; /* of the buffer; 0: the stack's choice */
        struct held held[HELD];
        uint32_t n;
        struct {
                uint32_t name, serial; /* name 0: none was */
        } slot[SLOTS];
        uint32_t names;
        struct tcp_lent stale; /* returned already; token 0: none was */
};

static uint32_t below(struct talk *k, uint32_t n)
{
        return prng_fast_below(&k->rnd, n);
}

static uint8_t byte_at(uint64_t pos)
{
        return (uint8_t)(pos * 31 + pos / 253);
}

static struct tcp_conn *reader(struct talk *k)
{
        return pair_conn(k->p, READER, k->conn[READER]);
}

static _Noreturn void wrong(const struct talk *k, const char *what)
{
        fprintf(stderr, "seed %llu: %s; written %llu of %llu, read %llu, %u held, buffer %u\n",
                (unsigned long long)k->seed, what, (unsigned long long)k->written,
                (unsigned long long)k->total, (unsigned long long)k->read, k->n, k->size);
        abort();
}

static void is_what_was_sent(struct talk *k, const uint8_t *p, uint32_t n, uint64_t pos)
{
        for (uint32_t i = 0; i < n; i++)
                if (p[i] != byte_at(pos + i))
                        wrong(k, "a byte that is not the one that was sent");
}

/* ---- the readers ---- */

/* Returns the number of pieces. */
static int lends(struct talk *k, uint32_t proc, int most)
{
        struct stack *s = &k->p->side[READER].s;
        struct tcp_lent v[16];
        int n;

        most = (int)MIN((uint32_t)most, MIN(HELD - k->n, 16u));
        n = most != 0
                    ? tcp_recv_lend(&s->tcp, reader(k), proc, below(k, 8) == 0, v, most, k->p->now)
                    : 0;
        for (int i = 0; i < n; i++) {
                k->held[k->n++] = (struct held){v[i], k->read, proc};
                is_what_was_sent(k, v[i].ptr, v[i].len, k->read);
                k->read += v[i].len;
        }
        stack_flush(s, k->p->now);
        return MAX(n, 0);
}

static void must_not_return(struct talk *k, uint32_t proc, uint64_t token)
{
        struct stack *s = &k->p->side[READER].s;

        if (tcp_recv_return(&s->tcp, reader(k), proc, token, k->p->now) != -EINVAL)
                wrong(k, "a loan that was returned by who does not have it");
}

static void returns(struct talk *k, uint32_t i)
{
        struct stack *s = &k->p->side[READER].s;
        struct held h = k->held[i];

        is_what_was_sent(k, h.lent.ptr, h.lent.len, h.pos);
        must_not_return(k, h.proc % PROCS + 1, h.lent.token);
        if (k->stale.token != 0)
                must_not_return(k, h.proc, k->stale.token);
        if (tcp_recv_return(&s->tcp, reader(k), h.proc, h.lent.token, k->p->now) != 0)
                wrong(k, "a loan that cannot be returned");
        must_not_return(k, h.proc, h.lent.token);
        stack_flush(s, k->p->now);
        k->stale = h.lent;
        k->held[i] = k->held[--k->n];
}

/* All that one process has comes back. */
static void dies(struct talk *k, uint32_t proc)
{
        struct stack *s = &k->p->side[READER].s;

        tcp_loans_end(&s->tcp, below(k, 2) == 0 ? NULL : reader(k), proc, k->p->now);
        stack_flush(s, k->p->now);
        for (uint32_t i = 0; i < k->n;) {
                if (k->held[i].proc != proc)
                        i++;
                else
                        k->held[i] = k->held[--k->n];
        }
}

static uint32_t reads(struct talk *k, uint32_t most)
{
        static uint8_t data[65536];
        int n = pair_read(k->p, READER, k->conn[READER], data, MIN(most, (uint32_t)sizeof data));

        is_what_was_sent(k, data, (uint32_t)MAX(n, 0), k->read);
        k->read += (uint32_t)MAX(n, 0);
        return (uint32_t)MAX(n, 0);
}

/* ---- the sender ---- */

/* Bytes that go. Under the name that was alloted. */
static int sends_by_name(struct talk *k, uint32_t i, uint32_t at, uint32_t want)
{
        struct stack *s = &k->p->side[WRITER].s;
        struct tcp_conn *tc = pair_conn(k->p, WRITER, k->conn[WRITER]);
        uint32_t id =
                frame_name(s->frames, FRAME_REGION_TX(PAIR_CHAN), frame_owner(tc), ++k->names);
        int n;

        if (id == 0)
                return 0;
        s->now = k->p->now;
        stack_begin(s->st, tc->self);
        n = tcp_send_reserve_named(&s->tcp, tc, id,
                                   frame_name_off(k->p->size.tx, frame_id_num(id)) + i * SLOT + at,
                                   want);
        if (n > 0)
                tcp_send_commit(&s->tcp, tc, (size_t)n, below(k, 2) == 0, false, k->p->now);
        frame_drop(s->frames, id);
        stack_end(s->st);
        stack_flush(s, k->p->now);
        if (n > 0) {
                k->slot[i].name = id;
                k->slot[i].serial = k->names;
        } else if (!frame_name_over(s->frames, id, k->names)) {
                wrong(k, "a name that nothing has");
        }
        return n;
}

/* From a slot that nobody reads any more, and which is written over first. */
static uint32_t writes_by_name(struct talk *k, uint32_t want)
{
        uint32_t i = below(k, SLOTS), at = below(k, 2) * below(k, SLOT / 2);
        uint8_t *p = pair_memory(k->p, WRITER) + i * SLOT;
        int n;

        if (k->slot[i].name != 0 &&
            !frame_name_over(k->p->side[WRITER].s.frames, k->slot[i].name, k->slot[i].serial))
                return 0;
        memset(p, (int)below(k, 256), SLOT);
        want = (uint32_t)MIN(MIN(want, SLOT - at), k->total - k->written);
        for (uint32_t b = 0; b < want; b++)
                p[at + b] = byte_at(k->written + b);
        n = want != 0 ? sends_by_name(k, i, at, want) : 0;
        k->written += (uint32_t)MAX(n, 0);
        return (uint32_t)MAX(n, 0);
}

static uint32_t writes(struct talk *k, uint32_t most)
{
        static uint8_t data[65536];
        uint32_t want = 1 + below(k, most);
        int n;

        if (k->p->sim == NULL && below(k, 2) == 0)
                return writes_by_name(k, want);
        want = (uint32_t)MIN(want, k->total - k->written);
        for (uint32_t i = 0; i < want; i++)
                data[i] = byte_at(k->written + i);
        n = want != 0 ? pair_write(k->p, WRITER, k->conn[WRITER], data, want) : 0;
        k->written += (uint32_t)MAX(n, 0);
        return (uint32_t)MAX(n, 0);
}

/* ---- the other connection ---- */

static void the_other_goes_on(struct talk *k)
{
        uint8_t data[3000];
        uint32_t n = 1 + below(k, sizeof data), got = 0;

        for (uint32_t i = 0; i < n; i++)
                data[i] = byte_at(k->other_bytes + i);
        if (pair_write(k->p, WRITER, k->other[WRITER], data, n) != (int)n)
                wrong(k, "the other connection cannot send");
        for (uint32_t turn = 0; got < n; turn++) {
                int r = pair_read(k->p, READER, k->other[READER], data, n - got);
                if (turn == PATIENCE)
                        wrong(k, "the other connection does not go on");
                if (r > 0)
                        is_what_was_sent(k, data, (uint32_t)r, k->other_bytes);
                k->other_bytes += (uint32_t)MAX(r, 0);
                got += (uint32_t)MAX(r, 0);
                if (r <= 0)
                        pair_wait(k->p, k->p->now + 10 * NS_PER_MS);
        }
        pair_wait(k->p, k->p->now + 200 * NS_PER_MS); /* its frames come back */
}

/* ---- a talk ---- */

static void checks(struct talk *k)
{
        const struct tcp_conn *tc = reader(k);
        uint64_t sum = 0;

        for (uint32_t i = 0; i < k->n; i++)
                sum += k->held[i].lent.len;
        if (tc->rcv_lent != sum)
                wrong(k, "books that differ");
        if (k->size != 0 && sum + tc->rcv_unread > k->size)
                wrong(k, "more than the buffer holds");
        pair_check(k->p);
}

static void does_as_it_likes(struct talk *k)
{
        uint32_t what = below(k, 100), proc = 1 + below(k, PROCS);

        if (what < 20)
                reads(k, 1 + below(k, 20000));
        else if (what < 60)
                lends(k, proc, 1 + (int)below(k, 8));
        else if (what < 96 && k->n != 0)
                for (uint32_t n = 1 + below(k, 6); n != 0 && k->n != 0; n--)
                        returns(k, below(k, k->n));
        else if (what < 98)
                dies(k, proc);
}

/* Whatever comes is lent and kept, until the sender may send no more. */
static void keeps_all(struct talk *k)
{
        uint32_t quiet = 0;

        for (uint32_t turn = 0; quiet < 20 && k->n < HELD && turn < PATIENCE; turn++) {
                bool any = writes(k, 65536) != 0;
                pair_wait(k->p, k->p->now + 50 * NS_PER_MS);
                any |= lends(k, 1, 16) != 0;
                checks(k);
                quiet = any ? 0 : quiet + 1;
        }
        the_other_goes_on(k);
        checks(k);
}

/* Over shared memory, where nothing is lost: who is held up hears at once that all was returned. */
static void the_window_opens(struct talk *k)
{
        const struct tcp_conn *writer = pair_conn(k->p, WRITER, k->conn[WRITER]);
        bool shut = k->p->sim == NULL && writer->snd_wnd == 0 && reader(k)->rcv_unread == 0;

        while (k->n != 0)
                returns(k, below(k, k->n));
        pair_settle(k->p);
        if (shut && writer->snd_wnd == 0 && reader(k)->rcv_unread == 0)
                wrong(k, "a window that stays shut");
}

static void goes_to_its_end(struct talk *k)
{
        for (uint32_t turn = 0; k->read < k->total; turn++) {
                if (turn == PATIENCE)
                        wrong(k, "a stall");
                while (k->n != 0)
                        returns(k, below(k, k->n));
                writes(k, 65536);
                if (below(k, 2) == 0)
                        lends(k, 1, 16);
                else
                        reads(k, 65536);
                checks(k);
                pair_wait(k->p, k->p->now + NS_PER_S);
        }
        while (k->n != 0)
                returns(k, below(k, k->n));
}

static void begins(struct talk *k)
{
        struct tcp_opts o;

        k->p = pair_random(k->seed, &k->rnd);
        tcp_opts_default(&o);
        k->size = below(k, 3) == 0 ? 0 : 4000 + below(k, 200000);
        o.rcvbuf = k->size;
        o.nodelay = (uint8_t)below(k, 2);
        k->total = 50000 + below(k, 600000);
        pair_connect_opts(k->p, 80, &o, &k->conn[WRITER], &k->conn[READER]);
        o.rcvbuf = 0;
        pair_connect_opts(k->p, 81, &o, &k->other[WRITER], &k->other[READER]);
}

static void talk(uint64_t seed)
{
        static struct talk k;

        k = (struct talk){.seed = seed};
        prng_fast_init(&k.rnd, seed);
        begins(&k);
        for (unsigned turn = 0; turn < TURNS; turn++) {
                if (below(&k, 3) == 0)
                        writes(&k, 20000);
                does_as_it_likes(&k);
                if (below(&k, 2) == 0)
                        pair_wait(k.p, k.p->now + (nstime)below(&k, 40) * NS_PER_MS);
                checks(&k);
        }
        keeps_all(&k);
        the_window_opens(&k);
        goes_to_its_end(&k);
        for (int i = 0; i < 2; i++) {
                tcp_close(&k.p->side[i].s.tcp, pair_conn(k.p, i, k.conn[i]), k.p->now);
                tcp_close(&k.p->side[i].s.tcp, pair_conn(k.p, i, k.other[i]), k.p->now);
        }
        if (pair_end(k.p) != 0)
                wrong(&k, "something left");
        pair_free(k.p);
}

static struct oracle seeds = {1, 300};

static void what_is_lent_is_what_was_sent_and_comes_back(void **state)
{
        oracle_plays(&seeds, talk);
}

/* What the other side is shown of a message with that range: its frame, 0: the message is dropped.
 */
static uint32_t shows(struct pair *p, uint32_t num, uint32_t off, uint32_t len)
{
        struct unet_chan *from = &p->side[WRITER].shm.base, *to = &p->side[READER].shm.base;
        uint64_t *dropped = &p->side[READER].st->cnt.drop[DROP_NI_BAD_FRAME], before = *dropped;
        struct unet_tx tx = {
                .inl = (const uint8_t *)"x", .inl_len = 1, .frame = num, .off = off, .len = len};
        struct unet_rx rx;
        int n;

        assert_int_equal(from->ops->send(from, &tx, 1), 1);
        n = to->ops->recv(to, &rx, 1);
        assert_int_equal(*dropped - before, n == 0);
        return n == 1 ? rx.frame : 0;
}

static void a_name_that_leads_elsewhere_is_dropped(void **state)
{
        struct pair *p = pair_new(1, NULL, &pair_size_default);
        struct frame_geom g = p->size.tx;
        uint32_t num = frame_geom_total(g) + 1, off = frame_name_off(g, num),
                 past = num + FRAME_NAMES;

        assert_int_equal(shows(p, num, off, 65000), num | FRAME_NAMED);
        assert_int_equal(shows(p, num, off + FRAME_NAMED_BYTES - 5, 5), num | FRAME_NAMED);
        assert_int_equal(shows(p, num, off + FRAME_NAMED_BYTES - 5, 6), 0);
        assert_int_equal(shows(p, num, off - 1, 1), 0);
        assert_int_equal(shows(p, num, 0, 1), 0);
        assert_int_equal(shows(p, num, off, UINT32_MAX), 0);
        assert_int_equal(shows(p, num, UINT32_MAX, 1), 0);
        assert_int_equal(shows(p, past, frame_name_off(g, past), 1), 0);
        assert_int_equal(shows(p, num | FRAME_NAMED, off, 1), 0);
        p->side[READER].shm.names = false;
        assert_int_equal(shows(p, num, off, 65000), 0);
        pair_free(p);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_name_that_leads_elsewhere_is_dropped),
                cmocka_unit_test(what_is_lent_is_what_was_sent_and_comes_back)};

        oracle_args(&seeds, argc, argv);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
