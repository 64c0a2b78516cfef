/* An address asked for while the directory is being written: the answer is that of the directory
 * once it is whole. */
#include <stdlib.h>

#include <pthread.h>
#include <time.h>

#include "sock/attach/ustack_directory.h"
#include "tests/unit.h"

static struct directory *dir;

static void *end_the_write(void *arg)
{
        const struct timespec later = {.tv_nsec = 20 * NS_PER_MS};

        nanosleep(&later, NULL);
        atomic_fetch_add(&dir->seq, 1);
        return NULL;
}

static pthread_t in_mid_write(void)
{
        pthread_t writer;

        atomic_store(&dir->seq, 1);
        assert_int_equal(directory_is_local(dir, ip_addr_v4(0x0a000001)), -EAGAIN);
        assert_int_equal(pthread_create(&writer, NULL, end_the_write, NULL), 0);
        return writer;
}

static int asked_in_mid_write(ip_addr addr)
{
        pthread_t writer = in_mid_write();
        int local = ustack_is_local(dir, addr);

        pthread_join(writer, NULL);
        return local;
}

static bool iface_in_mid_write(uint32_t peer, struct dir_iface *f)
{
        pthread_t writer = in_mid_write();
        bool found = ustack_iface(dir, peer, f);

        pthread_join(writer, NULL);
        return found;
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

static void who_asks_for_an_interface_in_mid_write_gets_it(void **state)
{
        struct dir_iface f, all[DIR_IFACES];
        pthread_t writer;

        dir = calloc(1, sizeof *dir);
        assert_non_null(dir);
        assert_false(ustack_ifaces(NULL, all));
        assert_false(ustack_ifaces(dir, all));
        dir->iface[1] =
                (struct dir_iface){.name = "two", .peer = UNETD_IFACE | 1, .addr = 0x0a000001};
        dir->nifaces = 2;
        assert_true(iface_in_mid_write(UNETD_IFACE | 1, &f));
        assert_string_equal(f.name, "two");
        assert_false(iface_in_mid_write(UNETD_IFACE | 2, &f));
        writer = in_mid_write();
        assert_true(ustack_ifaces(dir, all));
        pthread_join(writer, NULL);
        assert_int_equal(all[0].peer, 0);
        assert_int_equal(all[1].addr, 0x0a000001);
        free(dir);
}

/* What was read while something was written is read again. */
static void what_is_torn_is_read_again(void **state)
{
        struct dir_reading r = {0};
        unsigned rounds = 0;

        dir = calloc(1, sizeof *dir);
        assert_non_null(dir);
        while (ustack_read(dir, &r))
                if (++rounds < 3)
                        atomic_fetch_add(&dir->seq, 2);
        assert_true(r.whole);
        assert_int_equal(rounds, 3);
        r = (struct dir_reading){0};
        rounds = 0;
        while (ustack_read(dir, &r) && ++rounds < 100000)
                atomic_fetch_add(&dir->seq, 2);
        assert_false(r.whole);
        assert_true(rounds < 100000);
        free(dir);
}

static void a_write_that_never_ends_is_given_up(void **state)
{
        struct dir_iface f;

        dir = calloc(1, sizeof *dir);
        assert_non_null(dir);
        atomic_store(&dir->seq, 1);
        assert_int_equal(ustack_is_local(dir, ip_addr_v4(0x0a000001)), -EAGAIN);
        assert_false(ustack_iface(dir, UNETD_IFACE, &f));
        free(dir);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(who_asks_in_mid_write_gets_the_answer),
                cmocka_unit_test(who_asks_for_an_interface_in_mid_write_gets_it),
                cmocka_unit_test(what_is_torn_is_read_again),
                cmocka_unit_test(a_write_that_never_ends_is_given_up),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
