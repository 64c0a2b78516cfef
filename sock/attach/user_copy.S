/* user.h: a large copy, by libc, which user_recover() knows by its return address. */
#if defined(__x86_64__)
        .text
        .globl  user_copy_libc, user_copy_back, user_copy_fault
        .hidden user_copy_libc, user_copy_back, user_copy_fault
        .type   user_copy_libc, @function
user_copy_libc:
        subq    $8, %rsp
        call    memcpy@PLT
user_copy_back:
        addq    $8, %rsp
        movl    $1, %eax
        ret
user_copy_fault:                        /* as if memcpy had returned */
        addq    $8, %rsp
        xorl    %eax, %eax
        ret
        .size   user_copy_libc, . - user_copy_libc
#endif
        .section .note.GNU-stack, "", %progbits
