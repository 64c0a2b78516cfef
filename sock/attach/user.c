/* See user.h. */
#include "sock/attach/user.h"

#include <ucontext.h>

#if defined(__x86_64__)

struct user_ex {
        int32_t at, to; /* of code, each counted from the word itself */
};

extern const struct user_ex __start_user_ex[],
        __stop_user_ex[] __attribute__((visibility("hidden")));
extern const char user_copy_back[], user_copy_fault[] __attribute__((visibility("hidden")));

/* libc's copy routines are one piece of assembly around where memcpy() begins, and keep neither
 * registers nor anything else on the stack. */
#define COPY_BEFORE 4096u
#define COPY_AFTER  8192u

static bool in_libc_copy(uintptr_t pc, uintptr_t sp)
{
        uintptr_t libc = (uintptr_t)memcpy, back;

        if (pc < libc - COPY_BEFORE || pc >= libc + COPY_AFTER)
                return false;
        memcpy(&back, (const void *)sp, sizeof back);
        return back == (uintptr_t)user_copy_back;
}

bool user_recover(void *ucontext)
{
        greg_t *reg = ((ucontext_t *)ucontext)->uc_mcontext.gregs;
        uintptr_t pc = (uintptr_t)reg[REG_RIP];

        for (const struct user_ex *e = __start_user_ex; e < __stop_user_ex; e++)
                if ((uintptr_t)&e->at + (uintptr_t)(intptr_t)e->at == pc) {
                        reg[REG_RIP] = (greg_t)((uintptr_t)&e->to + (uintptr_t)(intptr_t)e->to);
                        return true;
                }
        if (!in_libc_copy(pc, (uintptr_t)reg[REG_RSP]))
                return false;
        reg[REG_RSP] += (greg_t)sizeof(uintptr_t); /* it returns to another place */
        reg[REG_RIP] = (greg_t)(uintptr_t)user_copy_fault;
        return true;
}

#else

bool user_recover(void *ucontext)
{
        return false;
}

#endif
