/* Copies from and to the application that sum what they copy (sock/attach/user.h): any length and
 * place, and memory that is not there. */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/checksum.h"
#include "sock/attach/user.h"
#include "tests/unit.h"

#define ROOM 65536u
#define PAGE 4096u

static uint64_t state_of = 88172645463325252u;

static uint32_t number(uint32_t below)
{
        state_of ^= state_of << 13;
        state_of ^= state_of >> 7;
        state_of ^= state_of << 17;
        return (uint32_t)(state_of >> 32) % below;
}

/* All ones and zeros as well: what carries most, and nothing. */
static void fill(uint8_t *p, size_t n, unsigned how)
{
        for (size_t i = 0; i < n; i++)
                p[i] = (uint8_t)(how == 0                     ? 0xff
                                 : how == 1                   ? 0
                                 : how == 2 && number(8) != 0 ? 0xff
                                                              : number(256));
}

static void sums_and_copies(uint8_t *from, uint8_t *to, size_t n, unsigned how)
{
        uint32_t before = how == 1 ? 0 : number(UINT32_MAX), sum = before;
        uint8_t *a = from + number(40), *b = to + number(40);

        fill(a, n, how);
        b[n] = 0x5a;
        assert_true(user_copy_in_sum(b, a, n, &sum));
        assert_memory_equal(a, b, n);
        assert_int_equal(b[n], 0x5a);
        assert_int_equal(csum_fold(sum), csum_fold(csum_partial(a, n, before)));
}

static void as_memcpy_and_a_checksum(void **state)
{
        uint8_t *from = malloc(ROOM + 64), *to = malloc(ROOM + 64);

        assert_true(from != NULL && to != NULL);
        for (size_t n = 0; n < 1100; n++)
                for (unsigned how = 0; how < 4; how++)
                        sums_and_copies(from, to, n, how);
        for (unsigned i = 0; i < 600; i++)
                sums_and_copies(from, to, i < 8 ? ROOM - i : number(ROOM), i % 4);
        free(from);
        free(to);
}

static void recover(int sig, siginfo_t *info, void *context)
{
        if (!user_recover(context))
                abort();
}

/* The page behind is none: wherever the copy reaches it, on either side, it says so. */
static void memory_that_is_not_there_is_told_of(void **state)
{
        struct sigaction act = {.sa_sigaction = recover, .sa_flags = SA_SIGINFO}, old;
        uint8_t *bad = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                            0),
                *good = malloc(3 * PAGE);
        uint32_t sum;

#ifndef __x86_64__
        print_message("skipped: copies recover from faults on x86-64 only\n");
        skip();
#endif
        assert_true(bad != MAP_FAILED && good != NULL);
        assert_int_equal(mprotect(bad + 2 * PAGE, PAGE, PROT_NONE), 0);
        sigaction(SIGSEGV, &act, &old);
        for (size_t n = 256; n < 2 * PAGE; n += 37)
                for (size_t there = n < 700 ? 0 : n - 700; there <= n; there++) {
                        sum = 0;
                        assert_int_equal(user_copy_in_sum(good, bad + 2 * PAGE - there, n, &sum),
                                         there == n);
                }
        sigaction(SIGSEGV, &old, NULL);
        munmap(bad, 3 * PAGE);
        free(good);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(as_memcpy_and_a_checksum),
                cmocka_unit_test(memory_that_is_not_there_is_told_of),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
