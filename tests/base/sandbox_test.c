/* What a program's filter forbids of the calls that are made for it. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include "base/sandbox.h"
#include "tests/unit.h"

static bool forbids(uint32_t forbidden, enum sandbox_need need)
{
        return forbidden >> need & 1;
}

static void a_filter_that_allows_all_forbids_nothing(void **state)
{
        static const struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};

        assert_int_equal(sandbox_filter(all, 1), 0);
}

/* As a filter that allows send(). */
static void a_ring_has_an_address(void **state)
{
        static const struct sock_filter no_address[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendto, 0, 3),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[4])),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        uint32_t forbidden = sandbox_filter(no_address, ARRAY_LEN(no_address));

        assert_true(forbids(forbidden, SANDBOX_NAMES) && forbids(forbidden, SANDBOX_WAKE));
        assert_false(forbids(forbidden, SANDBOX_UNETD) || forbids(forbidden, SANDBOX_PLACE));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_filter_that_allows_all_forbids_nothing),
                cmocka_unit_test(a_ring_has_an_address),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
