/* How long to poll before a sleep (sock/wait/usock_policy.h): observations in, lengths out. */
#include "sock/wait/usock_policy.h"
#include "tests/unit.h"

#define US       NS_PER_US
#define NEVER    (-1)            /* nothing came that a poll would have seen */
#define ORDINARY (5 * (1 << 20)) /* a time that is in no trial */
#define TRIAL    (64 * (1 << 20))

/* Waits as long as that, in us, one after the other and again; others had so much of each hundred
 * us polled; then what is polled for. */
struct row {
        const char *what;
        enum policy_road road;
        double waits[8]; /* 0 ends them */
        int lost;
        nstime length;
};

static struct policy after(const struct row *r)
{
        struct policy p = POLICY_BEGIN;

        for (int round = 0, n; round < 200; round++)
                for (n = 0; n < 8 && r->waits[n] != 0; n++) {
                        policy_waited(&p, r->waits[n] < 0 ? 0 : (nstime)(r->waits[n] * US),
                                      r->waits[n] > 0);
                        policy_polled(&p, 100 * US, r->lost * US);
                }
        return p;
}

static const struct row rows[] = {
        {"nothing is known yet", POLICY_MEMORY, {0}, 0, 50 * US},
        {"answers within a microsecond", POLICY_MEMORY, {1}, 0, 50 * US},
        {"... and one in eight after the peer was interrupted",
         POLICY_MEMORY,
         {1, 1, 1, 1, 1, 1, 1, 30},
         0,
         50 * US},
        {"a stream that the peer copies meanwhile", POLICY_MEMORY, {8, 12, 10}, 0, 50 * US},
        {"answers that take as long as a sleep", POLICY_MEMORY, {60}, 0, 0},
        {"answers that nobody sees come in time", POLICY_MEMORY, {200}, 0, 0},
        {"the kernel's descriptors alone", POLICY_MEMORY, {NEVER}, 0, 0},
        {"half at once, and half much later", POLICY_MEMORY, {2, 500}, 0, 12 * US},
        {"half soon, and half much later", POLICY_MEMORY, {5, 500, 5, 400, 5}, 0, 12 * US},
        {"others want the processor: answers at once", POLICY_MEMORY, {1}, 50, 50 * US},
        {"... a stream", POLICY_MEMORY, {8, 12, 10}, 50, 50 * US},
        {"... answers that take as long as a switch", POLICY_MEMORY, {30}, 50, 0},
        {"... half at once", POLICY_MEMORY, {2, 500}, 50, 3 * US},
        {"others had it now and then", POLICY_MEMORY, {8, 12, 10}, 5, 50 * US},
        {"every peer is on this processor", POLICY_NONE, {1}, 0, 0},
        {"runs of segments 50 us apart", POLICY_WIRE, {50}, 0, 100 * US},
        {"... and softirqs on this processor", POLICY_WIRE, {50}, 50, 100 * US},
        {"a quiet interface", POLICY_WIRE, {1000}, 0, 0},
        {"a device whose answers take 40 us", POLICY_DEVICE, {40}, 0, 50 * US},
        {"a device with nothing to say", POLICY_DEVICE, {1000}, 0, 3 * US},
};

static void what_saves_most_is_polled_for(void **state)
{
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                struct policy p = after(&rows[i]);
                nstime length = policy_length(&p, rows[i].road, ORDINARY);
                if (length != rows[i].length)
                        fail_msg("%s: polled for %lld ns", rows[i].what, (long long)length);
        }
}

/* Two that sleep because the other one sleeps: their waits are as long as a wake-up. In the next
 * trial both poll, and see how soon messages come. */
static void a_trial_gets_two_sleepers_out_of_it(void **state)
{
        struct policy p = after(&(struct row){.waits = {80}});
        int waits = 0;

        assert_int_equal(policy_length(&p, POLICY_MEMORY, ORDINARY), 0);
        while (policy_length(&p, POLICY_MEMORY, ORDINARY) == 0) {
                assert_int_equal(policy_length(&p, POLICY_MEMORY, TRIAL), 50 * US);
                policy_waited(&p, US, true);
                assert_in_range(++waits, 1, 100);
        }
        assert_in_range(waits, 1, 24);
}

static void trials_are_a_sixty_fourth_of_the_time(void **state)
{
        struct policy p = after(&(struct row){.waits = {1000}});
        int trials = 0;

        for (nstime now = 0; now < 64ll * TRIAL; now += TRIAL / 64)
                trials += policy_length(&p, POLICY_MEMORY, now) != 0;
        assert_int_equal(trials, 64);
        assert_int_equal(policy_length(&p, POLICY_NONE, TRIAL), 0);
}

/* Whoever has polled with success does not stop for one message that is late. */
static void one_late_message_changes_nothing(void **state)
{
        struct policy p = after(&(struct row){.waits = {1}});

        policy_waited(&p, 5000 * US, true);
        assert_int_equal(policy_length(&p, POLICY_MEMORY, ORDINARY), 50 * US);
}

static int waits_until(struct policy *p, nstime length)
{
        int waits = 0;

        for (; policy_length(p, POLICY_MEMORY, ORDINARY) > length; waits++) {
                policy_waited(p, 1000 * US, true);
                assert_in_range(waits, 0, 100);
        }
        return waits;
}

/* A new thread does not poll for long, whatever it waits for. */
static void what_never_pays_ends_after_a_few(void **state)
{
        struct policy p = POLICY_BEGIN;

        assert_in_range(waits_until(&p, 12 * US), 2, 32);
        assert_in_range(waits_until(&p, 3 * US), 2, 64);
        assert_in_range(waits_until(&p, 0), 2, 128);
}

static void the_processor_is_wanted_no_more_when_nobody_takes_it(void **state)
{
        struct policy p = after(&(struct row){.waits = {1}, .lost = 50});

        assert_true(policy_is_wanted(&p));
        for (int i = 0; i < 4000; i++)
                policy_polled(&p, 10 * US, 0);
        assert_false(policy_is_wanted(&p));
}

/* A virtual machine stands still for some milliseconds, now and then. */
static void one_interruption_is_no_neighbour(void **state)
{
        struct policy p = after(&(struct row){.waits = {1}});

        policy_polled(&p, 50 * NS_PER_MS, 50 * NS_PER_MS);
        assert_false(policy_is_wanted(&p));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_saves_most_is_polled_for),
                cmocka_unit_test(a_trial_gets_two_sleepers_out_of_it),
                cmocka_unit_test(trials_are_a_sixty_fourth_of_the_time),
                cmocka_unit_test(one_late_message_changes_nothing),
                cmocka_unit_test(what_never_pays_ends_after_a_few),
                cmocka_unit_test(the_processor_is_wanted_no_more_when_nobody_takes_it),
                cmocka_unit_test(one_interruption_is_no_neighbour),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
