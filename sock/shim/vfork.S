/*
 * vfork returns twice to its caller, the second time when the child has already used the stack: it must be reached by
 * a jump. The target is libc's vfork in a process without a socket of ours, and our fork in one with.
 */
#if defined(__x86_64__)
        .text
        .globl  vfork, __vfork
        .type   vfork, @function
        .type   __vfork, @function
vfork:
__vfork:
        endbr64
        subq    $8, %rsp
        call    shim_vfork_target
        addq    $8, %rsp
        jmp     *%rax
        .size   vfork, . - vfork
#elif defined(__aarch64__)
        .text
        .globl  vfork, __vfork
        .type   vfork, %function
        .type   __vfork, %function
vfork:
__vfork:
        stp     x29, x30, [sp, -16]!
        bl      shim_vfork_target
        ldp     x29, x30, [sp], 16
        br      x0
        .size   vfork, . - vfork
#else
#error "no vfork for this machine yet"
#endif
        .section .note.GNU-stack, "", %progbits
