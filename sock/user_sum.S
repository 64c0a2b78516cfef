/*
 * user.h: a copy that sums what it copies, with little more than two instructions for the sum of 32 bytes.
 *
 *      bool user_sum_wide(void *to, const void *from, size_t n, uint64_t sum[4], uint64_t high[4])
 *
 * n is a multiple of 32. sum[] are the sums of the 64-bit words of four columns, modulo 2^64. How often they have passed 2^64 the words'
 * highest 16 bits say, even roughly: high[] are the sums of these, each eight of one column as eight times their mean, by
 * averages of averages, which are rounded up three times (user_sum.c says what that allows).
 *
 * What touches memory stands in the table of user.h: false is where it goes on.
 */
#if defined(__x86_64__)
        .macro  touch insn, from, to
1:      \insn   \from, \to
        .pushsection user_ex, "a", @progbits
        .balign 4
        .long   1b - .
        .long   .Lfault - .
        .popsection
        .endm

        .macro  take at, v, sum
        touch   vmovdqu, \at(%rsi), %ymm\v
        touch   vmovdqu, %ymm\v, \at(%rdi)
        vpaddq  %ymm\v, %ymm\sum, %ymm\sum
        .endm

        .macro  take_exactly at, v, sum
        take    \at, \v, \sum
        vpsrlq  $48, %ymm\v, %ymm\v
        vpaddq  %ymm\v, %ymm3, %ymm3
        .endm

        .text
        .globl  user_sum_wide
        .hidden user_sum_wide
        .type   user_sum_wide, @function
        .balign 16
user_sum_wide:
        vpxor   %xmm0, %xmm0, %xmm0
        vpxor   %xmm1, %xmm1, %xmm1
        vpxor   %xmm2, %xmm2, %xmm2
        vpxor   %xmm3, %xmm3, %xmm3
        subq    $256, %rdx
        jb      3f
2:      take    0, 8, 0
        take    32, 9, 1
        take    64, 10, 0
        take    96, 11, 1
        take    128, 12, 0
        take    160, 13, 1
        take    192, 14, 0
        take    224, 15, 1
        vpavgw  %ymm8, %ymm9, %ymm8
        vpavgw  %ymm10, %ymm11, %ymm10
        vpavgw  %ymm12, %ymm13, %ymm12
        vpavgw  %ymm14, %ymm15, %ymm14
        vpavgw  %ymm8, %ymm10, %ymm8
        vpavgw  %ymm12, %ymm14, %ymm12
        vpavgw  %ymm8, %ymm12, %ymm8
        vpsrlq  $48, %ymm8, %ymm8
        vpaddq  %ymm8, %ymm2, %ymm2
        addq    $256, %rsi
        addq    $256, %rdi
        subq    $256, %rdx
        jae     2b
3:      testb   $128, %dl                       /* what is left of 256 */
        je      4f
        take_exactly 0, 8, 0
        take_exactly 32, 9, 1
        take_exactly 64, 10, 0
        take_exactly 96, 11, 1
        subq    $-128, %rsi
        subq    $-128, %rdi
4:      testb   $64, %dl
        je      5f
        take_exactly 0, 12, 0
        take_exactly 32, 13, 1
        addq    $64, %rsi
        addq    $64, %rdi
5:      testb   $32, %dl
        je      6f
        take_exactly 0, 14, 0
6:      vpaddq  %ymm1, %ymm0, %ymm0
        vpsllq  $3, %ymm2, %ymm2
        vpaddq  %ymm3, %ymm2, %ymm2
        vmovdqu %ymm0, (%rcx)
        vmovdqu %ymm2, (%r8)
        vzeroupper
        movl    $1, %eax
        ret
.Lfault:
        vzeroupper
        xorl    %eax, %eax
        ret
        .size   user_sum_wide, . - user_sum_wide
#endif
        .section .note.GNU-stack, "", %progbits
