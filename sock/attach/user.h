/*
 * The application's memory: touched so that a bad pointer is an error of the call (EFAULT), as the
 * kernel has it, and not the end of the program. It costs nothing while pointers are good.
 *
 * Each instruction here that touches the application's memory stands in a table, section user_ex,
 * with the place to go on at when it faults: the kernel's exception table. user_recover() is asked
 * by a handler of SIGSEGV and SIGBUS, which the shim has (sock/shim/signal.c); where nobody asks,
 * as in the native API, a bad pointer is a signal as ever. Large copies are libc's, and are known
 * by their return address.
 *
 * No lock may be held and nothing half done where one of these is called, but what the caller
 * undoes when told; a lock's holder has read all of it just before.
 *
 * user_copy...   true: all of it was copied. False: some of it may have been.
 * user_put..     true: stored.
 * user_read...   true: it can be read. Another thread may unmap it all the same; then it is a
 * signal.
 */
#ifndef SOCK_USER_H
#define SOCK_USER_H

#include <signal.h>
#include <string.h>

#include "base/base.h"

/* A fault of one of these (ucontext_t of the handler): the context goes on where the failure is
 * told. False: it is the program's own. */
bool user_recover(void *ucontext);

#if defined(__x86_64__)

#define USER_EX(at, to)                                                            \
        ".pushsection user_ex, \"a\", @progbits\n.balign 4\n.long " at " - ., " to \
        " - .\n.popsection\n"

static inline bool user_read(const void *p)
{
        __asm__ goto("1: testb $0, (%0)\n" USER_EX("1b", "%l[fault]")
                     :
                     : "r"(p)
                     : "cc", "memory"
                     : fault);
        return true;
fault:
        return false;
}

/* As user_read(), and that it can be written; what other threads write there stays. */
static inline bool user_touch(void *p)
{
        __asm__ goto("1: lock orb $0, (%0)\n" USER_EX("1b", "%l[fault]")
                     :
                     : "r"(p)
                     : "cc", "memory"
                     : fault);
        return true;
fault:
        return false;
}

#define USER_PUT(bits, insn)                                                     \
        static inline bool user_put##bits(void *p, uint##bits##_t v)             \
        {                                                                        \
                __asm__ goto("1: " insn " %1, (%0)\n" USER_EX("1b", "%l[fault]") \
                             :                                                   \
                             : "r"(p), "r"(v)                                    \
                             : "memory"                                          \
                             : fault);                                           \
                return true;                                                     \
        fault:                                                                   \
                return false;                                                    \
        }
USER_PUT(16, "movw")
USER_PUT(32, "movl")
USER_PUT(64, "movq")
#undef USER_PUT

#define USER_MOVE(bytes, insn, reg)                                                           \
        static inline bool user_move##bytes(void *to, const void *from)                       \
        {                                                                                     \
                __asm__ goto("1: " insn " (%1), %%" reg "\n2: " insn " %%" reg                \
                             ", (%0)\n" USER_EX("1b", "%l[fault]") USER_EX("2b", "%l[fault]") \
                             :                                                                \
                             : "r"(to), "r"(from)                                             \
                             : "memory", reg                                                  \
                             : fault);                                                        \
                return true;                                                                  \
        fault:                                                                                \
                return false;                                                                 \
        }
USER_MOVE(1, "movb", "al")
USER_MOVE(4, "movl", "eax")
USER_MOVE(8, "movq", "rax")
USER_MOVE(16, "movups", "xmm0")
#undef USER_MOVE

/* user_copy.S */
bool user_copy_libc(void *to, const void *from, size_t n);

#else

/* No table for this machine yet: a bad pointer is a signal. */
static inline bool user_read(const void *p)
{
        return true;
}

static inline bool user_touch(void *p)
{
        return true;
}

#define USER_PUT(bits)                                               \
        static inline bool user_put##bits(void *p, uint##bits##_t v) \
        {                                                            \
                memcpy(p, &v, sizeof v);                             \
                return true;                                         \
        }
USER_PUT(16)
USER_PUT(32)
USER_PUT(64)
#undef USER_PUT

#define USER_MOVE(bytes)                                                \
        static inline bool user_move##bytes(void *to, const void *from) \
        {                                                               \
                memcpy(to, from, bytes);                                \
                return true;                                            \
        }
USER_MOVE(1)
USER_MOVE(4)
USER_MOVE(8)
USER_MOVE(16)
#undef USER_MOVE

static inline bool user_copy_libc(void *to, const void *from, size_t n)
{
        memcpy(to, from, n);
        return true;
}

#endif

/* Up to some 256 bytes, as copy_short(). The two may overlap in nothing. */
static inline bool user_copy_short(void *to, const void *from, uint32_t n)
{
        uint8_t *d = (uint8_t *)to;
        const uint8_t *s = (const uint8_t *)from;
        bool ok = true;

        if (likely(n >= 16)) {
                for (uint32_t i = 0; ok && i + 16 < n; i += 16)
                        ok = user_move16(d + i, s + i);
                return ok && user_move16(d + n - 16, s + n - 16);
        }
        if (n >= 8)
                return user_move8(d, s) && user_move8(d + n - 8, s + n - 8);
        if (n >= 4)
                return user_move4(d, s) && user_move4(d + n - 4, s + n - 4);
        for (uint32_t i = 0; ok && i < n; i++)
                ok = user_move1(d + i, s + i);
        return ok;
}

static inline bool user_copy(void *to, const void *from, size_t n)
{
        return n <= 64 ? user_copy_short(to, from, (uint32_t)n) : user_copy_libc(to, from, n);
}

/* As user_copy() from the application to our memory, and adds the sum (base/checksum.h) of the
 * bytes that were copied. */
bool user_copy_in_sum(void *to, const void *from, size_t n, uint32_t *sum);

#define USER_PAGE 4096u

/* All of n bytes. */
static inline bool user_read_range(const void *p, size_t n)
{
        const char *c = (const char *)p;

        for (size_t at = 0; at + USER_PAGE < n; at += USER_PAGE)
                if (!user_read(c + at))
                        return false;
        return n == 0 || (user_read(c) && user_read(c + n - 1));
}

#endif
