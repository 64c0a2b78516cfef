/* The trace: off costs nothing and records nothing; on, it keeps the last ones; a line reads as
 * it should. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/counters.h"
#include "base/trace.h"
#include "tests/unit.h"

static int setup(void **state)
{
        struct trace *t = calloc(1, trace_bytes(8));

        trace_init(t, 8);
        *state = t;
        return 0;
}

static int teardown(void **state)
{
        free(*state);
        return 0;
}

static void nothing_is_recorded_until_it_is_on(void **state)
{
        struct trace *t = *state;
        struct trace_rec rec;
        uint64_t first;

        trace(t, 1, TRACE_DROP, 0, DROP_IP_SHORT);
        trace((struct trace *)NULL, 1, TRACE_DROP, 0, DROP_IP_SHORT);
        assert_false(trace_read(t, 8, 0, &rec, &first));
        trace_enable(t, 1ull << TRACE_TCP_STATE);
        trace(t, 1, TRACE_DROP, 0, DROP_IP_SHORT);
        trace(t, 2, TRACE_TCP_STATE, 7, 2, 4);
        assert_true(trace_read(t, 8, 0, &rec, &first));
        assert_int_equal(rec.event, TRACE_TCP_STATE);
        assert_false(trace_read(t, 8, 1, &rec, &first));
}

static void the_last_records_are_kept(void **state)
{
        struct trace *t = *state;
        struct trace_rec rec;
        uint64_t first;

        trace_enable(t, UINT64_MAX);
        for (uint32_t i = 0; i < 20; i++)
                trace(t, i, TRACE_UDP_IN, i);
        assert_false(trace_read(t, 8, 11, &rec, &first));
        assert_int_equal(first, 12);
        for (uint32_t i = 12; i < 20; i++) {
                assert_true(trace_read(t, 8, i, &rec, &first));
                assert_int_equal(rec.obj, i);
        }
        assert_false(trace_read(t, 8, 20, &rec, &first));
}

/* Another process reads while this one writes: what it gets was whole, and in its place. */
static void a_reader_beside_the_writer_sees_whole_records_only(void **state)
{
        struct trace *t =
                mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct trace_rec rec;
        uint64_t first, at = 0;
        pid_t writer;

        assert_ptr_not_equal(t, MAP_FAILED);
        trace_init(t, 8);
        trace_enable(t, UINT64_MAX);
        writer = fork();
        if (writer == 0) {
                for (uint32_t i = 0; i < 300000; i++)
                        trace(t, i, TRACE_UDP_IN, i, i, i, i, i);
                _exit(0);
        }
        while (at < 300000) {
                if (!trace_read(t, 8, at, &rec, &first)) {
                        at = MAX(at, first);
                        continue;
                }
                assert_true((uint64_t)rec.at == at && rec.obj == at);
                for (int i = 0; i < TRACE_FIELDS; i++)
                        assert_true(rec.field[i] == at);
                at++;
        }
        assert_int_equal(waitpid(writer, NULL, 0), writer);
        munmap(t, 4096);
}

static void names_are_found(void **state)
{
        assert_true(trace_lookup("DROP") == 1);
        assert_true(trace_lookup("TCP_WINDOW") == 1ull << TRACE_TCP_WINDOW);
        assert_true(trace_lookup("tcp_window") == 0);
        assert_string_equal(trace_name(TRACE_TCP_RTO), "TCP_RTO");
        assert_string_equal(trace_name(TRACE_COUNT), "?");
}

static void lines_read_as_the_rfc_does(void **state)
{
        static const struct {
                struct trace_rec rec;
                const char *line;
        } table[] = {
                {{12 * NS_PER_S + 345, TRACE_TCP_STATE, 7, {2, 4}},
                 "12.000000345 TCP_STATE #7 from=SYN-SENT to=ESTABLISHED"},
                {{NS_PER_MS, TRACE_DROP, 0, {DROP_UDP_FULL, 17, 64, 3}},
                 "0.001000000 DROP why=UDP_FULL proto=UDP len=64 channel=3"},
                {{0, TRACE_TCP_RTO, 1, {200000010, 3, 1000}},
                 "0.000000000 TCP_RTO #1 rto=200000.010us backoff=3 flight=1000"},
                {{0, TRACE_TCP_OUT, 1, {1, 2, 3, 0x18}},
                 "0.000000000 TCP_OUT #1 seq=1 ack=2 len=3 flags=0x18"},
                {{0, 99, 1, {1}}, "0.000000000 ? #1"},
                {{0, TRACE_TCP_STATE, 1, {99, 10}}, "0.000000000 TCP_STATE #1 from=? to=TIME-WAIT"},
        };
        char buf[128], small[10];

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                int n = trace_format(&table[i].rec, buf, sizeof buf);

                assert_string_equal(buf, table[i].line);
                assert_int_equal(n, strlen(table[i].line));
                assert_int_equal(trace_format(&table[i].rec, small, sizeof small), n);
                assert_int_equal(strlen(small), sizeof small - 1);
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(nothing_is_recorded_until_it_is_on),
                TEST(the_last_records_are_kept),
                TEST(a_reader_beside_the_writer_sees_whole_records_only),
                TEST(names_are_found),
                TEST(lines_read_as_the_rfc_does),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
