/* See usock_sys.h. */
#include "sock/usock_sys.h"

#include <errno.h>
#include <stdint.h>
#include <ucontext.h>

#include "base/base.h"
#include "sock/usock_process.h"

/* Where a thread looks, where its system call is, and where it goes on without; each counted from
 * the word itself. */
struct sys_at {
        int32_t look, call, without;
};
#define SYS_AT                                           \
        ".pushsection usock_sys_at, \"a\", %%progbits\n" \
        ".balign 4\n"                                    \
        ".long 1b - ., 2b - ., 3b - .\n"                 \
        ".popsection\n"

extern const struct sys_at __start_usock_sys_at[],
        __stop_usock_sys_at[] __attribute__((visibility("hidden")));

#if defined(__x86_64__)

long usock_sys6(long nr, long a, long b, long c, long d, long e, long f)
{
        register long r10 __asm__("r10") = d;
        register long r8 __asm__("r8") = e;
        register long r9 __asm__("r9") = f;
        long ret = nr;

        __asm__ volatile("1: cmpl $0, %[pending]\n"
                         "jne 3f\n"
                         "2: syscall\n"
                         "jmp 4f\n"
                         "3: mov %[eintr], %[ret]\n"
                         "4:\n" SYS_AT
                         : [ret] "+a"(ret)
                         : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8),
                           "r"(r9), [pending] "m"(usock_tls.pending), [eintr] "i"((long)-EINTR)
                         : "rcx", "r11", "cc", "memory");
        return ret;
}

static greg_t *pc_of(ucontext_t *uc)
{
        return &uc->uc_mcontext.gregs[REG_RIP];
}

#elif defined(__aarch64__)

long usock_sys6(long nr, long a, long b, long c, long d, long e, long f)
{
        register long x8 __asm__("x8") = nr;
        register long x0 __asm__("x0") = a;
        register long x1 __asm__("x1") = b;
        register long x2 __asm__("x2") = c;
        register long x3 __asm__("x3") = d;
        register long x4 __asm__("x4") = e;
        register long x5 __asm__("x5") = f;

        __asm__ volatile("1: ldr w9, %[pending]\n"
                         "cbnz w9, 3f\n"
                         "2: svc 0\n"
                         "b 4f\n"
                         "3: mov x0, %[eintr]\n"
                         "4:\n" SYS_AT
                         : "+r"(x0)
                         : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4),
                           "r"(x5), [pending] "m"(usock_tls.pending), [eintr] "i"((long)-EINTR)
                         : "x9", "cc", "memory");
        return x0;
}

static unsigned long long *pc_of(ucontext_t *uc)
{
        return &uc->uc_mcontext.pc;
}

#endif

static uintptr_t at(const int32_t *word)
{
        return (uintptr_t)word + (uintptr_t)(intptr_t)*word;
}

void usock_sys_ends(void *ucontext)
{
        uintptr_t now = (uintptr_t)*pc_of(ucontext);

        assert(usock_tls.pending);
        for (const struct sys_at *s = __start_usock_sys_at; s < __stop_usock_sys_at; s++)
                if (now >= at(&s->look) && now <= at(&s->call))
                        *pc_of(ucontext) += at(&s->without) - now;
}
