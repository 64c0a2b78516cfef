/* The capture ring: what goes in comes out, in order, and what was written over is counted, never
 * shown torn. */
#include <pthread.h>
#include <stdlib.h>

#include "base/capture.h"
#include "tests/unit.h"

#define RING (256u * 1024)

static int make(void **state)
{
        struct capture *c = calloc(1, capture_bytes(RING));

        assert_non_null(c);
        capture_init(c, RING);
        *state = c;
        return 0;
}

static int drop(void **state)
{
        free(*state);
        return 0;
}

/* A packet whose every byte follows from its number, so that a torn copy is noticed. */
static void write_packet(struct capture *c, uint32_t number, uint32_t hdr_len, uint32_t data_len)
{
        uint8_t hdr[256], data[CAPTURE_SNAP_MAX];
        struct capture_pkt p = {.hdr = hdr,
                                .hdr_len = hdr_len,
                                .data = data,
                                .data_len = data_len,
                                .chan = 3,
                                .dir = CAPTURE_OUT};

        memset(hdr, (int)number, hdr_len);
        memset(data, (int)(number + 1), data_len);
        capture_write(c, &p, number);
}

static bool packet_is(const struct capture_rec *rec, const uint8_t *bytes, uint32_t hdr_len)
{
        for (uint32_t i = 0; i < rec->kept; i++)
                if (bytes[i] != (uint8_t)(rec->at + (i >= hdr_len)))
                        return false;
        return rec->chan == 3 && rec->dir == CAPTURE_OUT;
}

static void packets_come_out_as_they_went_in(void **state)
{
        struct capture *c = *state;
        struct capture_reader r;
        struct capture_rec rec;
        uint8_t buf[CAPTURE_SNAP_MAX];

        atomic_store(&c->snap, CAPTURE_SNAP_MAX);
        capture_reader_init(&r, c);
        assert_false(capture_read(&r, c, RING, &rec, buf, sizeof buf));
        for (uint32_t i = 0; i < 1000;
             i++) { /* several times round the ring, no size a multiple of 8 */
                write_packet(c, i, 40, i * 37 % 9000);
                assert_true(capture_read(&r, c, RING, &rec, buf, sizeof buf));
                assert_int_equal(rec.seq, i);
                assert_int_equal(rec.len, 40 + i * 37 % 9000);
                assert_int_equal(rec.kept, rec.len);
                assert_true(packet_is(&rec, buf, 40));
        }
        assert_int_equal(r.missed, 0);
}

static void only_the_first_bytes_are_kept_when_asked(void **state)
{
        struct capture *c = *state;
        struct capture_reader r;
        struct capture_rec rec;
        uint8_t buf[64];

        capture_reader_init(&r, c);
        atomic_store(&c->snap, 30);
        write_packet(c, 1, 40, 1000);
        atomic_store(&c->snap, 44);
        write_packet(c, 2, 40, 1000);
        assert_true(capture_read(&r, c, RING, &rec, buf, sizeof buf));
        assert_int_equal(rec.kept, 30);
        assert_int_equal(rec.len, 1040);
        assert_true(capture_read(&r, c, RING, &rec, buf, sizeof buf));
        assert_int_equal(rec.kept, 44);
        assert_true(packet_is(&rec, buf, 40));
}

static void what_was_written_over_is_counted(void **state)
{
        struct capture *c = *state;
        struct capture_reader r;
        struct capture_rec rec;
        uint8_t buf[CAPTURE_SNAP_MAX];
        uint64_t got = 0;

        atomic_store(&c->snap, CAPTURE_SNAP_MAX);
        capture_reader_init(&r, c);
        write_packet(c, 0, 40, 9000);
        assert_true(capture_read(&r, c, RING, &rec, buf, sizeof buf));
        for (uint32_t i = 1; i < 200; i++)
                write_packet(c, i, 40, 9000);
        while (capture_read(&r, c, RING, &rec, buf, sizeof buf))
                got++;
        write_packet(c, 200, 40, 9000);
        while (capture_read(&r, c, RING, &rec, buf, sizeof buf))
                got++;
        assert_int_equal(got + r.missed, 200);
        assert_true(r.missed > 0);
}

struct race {
        struct capture *c;
        _Atomic bool stop;
};

static void *write_for_ever(void *arg)
{
        struct race *race = arg;

        for (uint32_t i = 0; !atomic_load(&race->stop); i++)
                write_packet(race->c, i, 40, i * 31 % 3000);
        return NULL;
}

/* Under a writer that never waits, a reader sees whole packets in order, and misses are exactly
 * the gaps. */
static void a_slow_reader_sees_no_torn_packet(void **state)
{
        struct race race = {.c = *state};
        struct capture_reader r;
        struct capture_rec rec;
        uint8_t buf[CAPTURE_SNAP_MAX];
        uint64_t got = 0, first = 0;
        pthread_t writer;

        atomic_store(&race.c->snap, CAPTURE_SNAP_MAX);
        capture_reader_init(&r, race.c);
        assert_int_equal(pthread_create(&writer, NULL, write_for_ever, &race), 0);
        while (got < 5000) {
                if (!capture_read(&r, race.c, RING, &rec, buf, sizeof buf))
                        continue;
                if (got++ == 0)
                        first = rec.seq;
                if (!packet_is(&rec, buf, 40)) {
                        atomic_store(&race.stop, true);
                        fail_msg("packet %lu is torn", (unsigned long)rec.seq);
                }
                assert_int_equal(got + r.missed, rec.seq - first + 1);
        }
        atomic_store(&race.stop, true);
        pthread_join(writer, NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(packets_come_out_as_they_went_in, make, drop),
                cmocka_unit_test_setup_teardown(only_the_first_bytes_are_kept_when_asked, make,
                                                drop),
                cmocka_unit_test_setup_teardown(what_was_written_over_is_counted, make, drop),
                cmocka_unit_test_setup_teardown(a_slow_reader_sees_no_torn_packet, make, drop),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
