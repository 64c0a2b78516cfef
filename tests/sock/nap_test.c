/* Whether a nap pays (sock/wait/usock_nap.h). */
#include <pthread.h>

#include "sock/wait/usock_nap.h"
#include "tests/unit.h"

/* Void offers until one is followed by a nap: so many sleeps. */
static unsigned sleeps_before_a_nap(void)
{
        unsigned n = 0;

        while (!usock_nap_pays() && n < 100000)
                n++;
        return n;
}

static void *in_a_new_thread(void *scene)
{
        ((void (*)(void))(uintptr_t)scene)();
        return NULL;
}

/* The state is the thread's. */
static void play(void (*scene)(void))
{
        pthread_t t;

        assert_int_equal(pthread_create(&t, NULL, in_a_new_thread, (void *)(uintptr_t)scene), 0);
        assert_int_equal(pthread_join(t, NULL), 0);
}

static void alone(void)
{
        assert_int_equal(sleeps_before_a_nap(), 100000);
}

/* A processor that was never seen to be shared, as where each end has one of its own: nobody
 * naps there. */
static void who_shares_with_nobody_does_not_nap(void **state)
{
        play(alone);
}

static void useful(void)
{
        usock_nap_shared();
        for (int i = 0; i < 100; i++) {
                assert_true(usock_nap_pays());
                usock_nap_over(true);
        }
}

static void naps_go_on_while_they_are_of_use(void **state)
{
        play(useful);
}

static void useless(void)
{
        usock_nap_shared();
        assert_true(usock_nap_pays());
        for (unsigned want = 1; want <= 4096; want *= 2) {
                usock_nap_over(false);
                assert_int_equal(sleeps_before_a_nap(), want < 1024 ? want : 1024);
        }
        usock_nap_over(true);
        assert_int_equal(sleeps_before_a_nap(), 0);
        usock_nap_over(false);
        assert_int_equal(sleeps_before_a_nap(), 1);
}

static void after_one_that_was_of_none_there_are_sleeps_twice_as_many_each_time(void **state)
{
        play(useless);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(who_shares_with_nobody_does_not_nap),
                cmocka_unit_test(naps_go_on_while_they_are_of_use),
                cmocka_unit_test(
                        after_one_that_was_of_none_there_are_sleeps_twice_as_many_each_time),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
