/* What agents say to each other: what is written is read, and anything else is refused. */
#include <stdlib.h>

#include "unetd/agent/agent_wire.h"
#include "unetd/agent/cm.h"
#include "tests/unit.h"

static struct agent_msg sample(uint16_t nranges)
{
        struct agent_msg m = {.op = AGENT_OPEN,
                              .proto = 6,
                              .port = 5201,
                              .addr = 0x0a000002,
                              .instance = 7,
                              .stack = 0x3fffffff,
                              .mine = 3,
                              .yours = 4,
                              .qpn = 17,
                              .qkey = 0x7fffffff,
                              .mtu = 4096,
                              .version = 0xfffffffe,
                              .flags = AGENT_NO_CSUM,
                              .nranges = nranges};

        for (uint16_t i = 0; i < nranges; i++)
                m.range[i] = (struct vlink_range){.proto = i % 2 ? 6 : 17,
                                                  .first = (uint16_t)(1000 * i),
                                                  .count = (uint16_t)(64 + i)};
        return m;
}

static void what_is_written_is_read(void **state)
{
        uint8_t bytes[CM_ASK_MAX];
        struct agent_msg in = sample(AGENT_RANGES), out;
        size_t len = agent_write(&in, false, bytes, sizeof bytes);

        assert_int_equal(len, AGENT_FIXED + AGENT_RANGES * AGENT_RANGE);
        assert_true(agent_read(&out, false, bytes, len));
        assert_memory_equal(&in, &out, sizeof in);
}

/* The private data of an answer is shorter, and always all there. */
static void an_answer_has_fewer_ports_and_an_error(void **state)
{
        uint8_t bytes[CM_ANSWER_MAX] = {0};
        struct agent_msg in = sample(AGENT_RANGES), out;

        in.err = 113;
        assert_true(agent_write(&in, true, bytes, sizeof bytes) <= sizeof bytes);
        assert_true(agent_read(&out, true, bytes, sizeof bytes));
        assert_int_equal(out.err, 113);
        assert_int_equal(out.addr, 0);
        assert_true(out.flags & AGENT_MORE);
        assert_int_equal(out.nranges, (CM_ANSWER_MAX - AGENT_FIXED) / AGENT_RANGE);
        assert_memory_equal(in.range, out.range, out.nranges * sizeof *out.range);
}

static void what_is_cut_short_is_refused(void **state)
{
        uint8_t bytes[CM_ASK_MAX];
        struct agent_msg in = sample(5), out;
        size_t len = agent_write(&in, false, bytes, sizeof bytes);

        for (size_t n = 0; n < len; n++) {
                /* So that the address sanitizer sees what is read behind it. */
                uint8_t *exact = malloc(n != 0 ? n : 1);
                memcpy(exact, bytes, n);
                assert_false(agent_read(&out, false, exact, n));
                free(exact);
        }
}

static void rubbish_is_refused_or_bounded(void **state)
{
        uint8_t bytes[CM_ASK_MAX];
        struct agent_msg in = sample(3), out;

        agent_write(&in, false, bytes, sizeof bytes);
        bytes[0] ^= 1;
        assert_false(agent_read(&out, false, bytes, sizeof bytes));
        bytes[0] ^= 1;
        for (unsigned n = 0; n < 65536; n++) { /* every count that can be claimed */
                bytes[42] = (uint8_t)(n >> 8);
                bytes[43] = (uint8_t)n;
                if (agent_read(&out, false, bytes, sizeof bytes))
                        assert_true(out.nranges <= AGENT_RANGES);
                else
                        assert_true(n > AGENT_RANGES);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_written_is_read),
                cmocka_unit_test(an_answer_has_fewer_ports_and_an_error),
                cmocka_unit_test(what_is_cut_short_is_refused),
                cmocka_unit_test(rubbish_is_refused_or_bounded),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
