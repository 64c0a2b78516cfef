/* An address asked for while the directory is being written: the answer is that of the directory once it is whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>
#include <time.h>

#include "sock/ustack.h"

static struct directory *dir;

static void *end_the_write(void *arg)
{
        const struct timespec later = {.tv_nsec = 20 * NS_PER_MS};

        nanosleep(&later, NULL);
        atomic_fetch_add(&dir->seq, 1);
        return NULL;
}

static int asked_in_mid_write(ip_addr addr)
{
        pthread_t writer;
        int local;

        atomic_store(&dir->seq, 1);
        assert_int_equal(directory_is_local(dir, addr), -EAGAIN);
        assert_int_equal(pthread_create(&writer, NULL, end_the_write, NULL), 0);
        local = ustack_is_local(dir, addr);
        pthread_join(writer, NULL);
        return local;
}

static void who_asks_in_mid_write_gets_the_answer(void **state)
{
        dir = calloc(1, sizeof *dir);
        assert_non_null(dir);
        dir->addrs[0] = ip_addr_v4(0x0a000001);
        dir->naddrs = 1;
        assert_int_equal(asked_in_mid_write(ip_addr_v4(0x0a000001)), 1);
        assert_int_equal(asked_in_mid_write(ip_addr_v4(0x0a000002)), 0);
        free(dir);
}

static void a_write_that_never_ends_is_given_up(void **state)
{
        dir = calloc(1, sizeof *dir);
        assert_non_null(dir);
        atomic_store(&dir->seq, 1);
        assert_int_equal(ustack_is_local(dir, ip_addr_v4(0x0a000001)), -EAGAIN);
        free(dir);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(who_asks_in_mid_write_gets_the_answer),
                cmocka_unit_test(a_write_that_never_ends_is_given_up),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
