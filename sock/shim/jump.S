/*
 * Calls that libc's versions must be reached from by a jump.
 *
 * vfork returns twice to its caller, the second time when the child has already used the stack. The target is libc's vfork in a process
 * without a socket of ours, and our fork in one with.
 *
 * dlsym, dlvsym, dlopen and dlmopen go by their caller, whom they know by the address that they return to.
 */
        .macro  begin name
        .globl  \name
        .type   \name, %function
\name:
#if defined(__x86_64__)
        endbr64
#endif
        .endm

        .macro  finish name
        .size   \name, . - \name
        .endm

        .text
#if defined(__x86_64__)
        begin   vfork
        begin   __vfork
        subq    $8, %rsp
        call    shim_vfork_target
        addq    $8, %rsp
        jmp     *%rax
        finish  vfork

        begin   dlsym
        pushq   %rdi
        pushq   %rsi
        movq    16(%rsp), %rdx
        subq    $8, %rsp
        call    handle_lookup
        addq    $8, %rsp
        popq    %rsi
        popq    %rdi
        testq   %rax, %rax
        jz      1f
        ret
1:      jmp     *%rdx
        finish  dlsym

        begin   dlvsym
        pushq   %rdi
        pushq   %rsi
        pushq   %rdx
        movq    24(%rsp), %rcx
        call    handle_lookup_version
        movq    %rdx, %rcx
        popq    %rdx
        popq    %rsi
        popq    %rdi
        testq   %rax, %rax
        jz      1f
        ret
1:      jmp     *%rcx
        finish  dlvsym

        begin   dlmopen
        pushq   %rdi
        pushq   %rsi
        pushq   %rdx
        call    handle_open_apart
        popq    %rdx
        popq    %rsi
        popq    %rdi
        jmp     *%rax
        finish  dlmopen

        begin   dlopen
        pushq   %rdi
        pushq   %rsi
        subq    $8, %rsp
        movl    %esi, %edi
        call    handle_open
        addq    $8, %rsp
        popq    %rsi
        popq    %rdi
        jmp     *%rax
        finish  dlopen
#elif defined(__aarch64__)
        begin   vfork
        begin   __vfork
        stp     x29, x30, [sp, -16]!
        bl      shim_vfork_target
        ldp     x29, x30, [sp], 16
        br      x0
        finish  vfork

        begin   dlsym
        stp     x29, x30, [sp, -32]!
        stp     x0, x1, [sp, 16]
        mov     x2, x30
        bl      handle_lookup
        mov     x16, x1
        mov     x17, x0
        ldp     x0, x1, [sp, 16]
        ldp     x29, x30, [sp], 32
        cbz     x17, 1f
        mov     x0, x17
        ret
1:      br      x16
        finish  dlsym

        begin   dlvsym
        stp     x29, x30, [sp, -48]!
        stp     x0, x1, [sp, 16]
        str     x2, [sp, 32]
        mov     x3, x30
        bl      handle_lookup_version
        mov     x16, x1
        mov     x17, x0
        ldp     x0, x1, [sp, 16]
        ldr     x2, [sp, 32]
        ldp     x29, x30, [sp], 48
        cbz     x17, 1f
        mov     x0, x17
        ret
1:      br      x16
        finish  dlvsym

        begin   dlmopen
        stp     x29, x30, [sp, -48]!
        stp     x0, x1, [sp, 16]
        str     x2, [sp, 32]
        bl      handle_open_apart
        mov     x16, x0
        ldp     x0, x1, [sp, 16]
        ldr     x2, [sp, 32]
        ldp     x29, x30, [sp], 48
        br      x16
        finish  dlmopen

        begin   dlopen
        stp     x29, x30, [sp, -32]!
        stp     x0, x1, [sp, 16]
        mov     w0, w1
        bl      handle_open
        mov     x16, x0
        ldp     x0, x1, [sp, 16]
        ldp     x29, x30, [sp], 32
        br      x16
        finish  dlopen
#else
#error "no vfork for this machine yet"
#endif
        .section .note.GNU-stack, "", %progbits
