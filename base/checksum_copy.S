/*
 * checksum.h: a copy that sums what it copies, with little more than an instruction for the sum of 32 bytes.
 *
 *      bool csum_copy_wide(void *to, const void *from, size_t n, uint32_t *sum)
 *
 * At most 64 KB. The sum is that of 64-bit words in four columns, each modulo 2^64. How often a column has passed 2^64 its words' highest
 * 16 bits say, even roughly: `high` is the sum of these, of sixteen words as sixteen times their mean, by averages of averages. high *
 * 2^48 is too small for the column by what lies below, less than 1 a word, and too large by the averages, which are rounded up by at
 * most 1/2 at each of four stages, 2 a word. A column has no more than 2048 words: so it is wrong by less than half of 2^16, and
 * (high - (sum >> 48) + 2^15) >> 16 is how often. 2^64 is 1 to the checksum.
 *
 * What touches memory stands in the table of sock/attach/user.h, for it may be the application's: false is where it goes on.
 */
#if defined(__x86_64__)
        .macro  may_fault
        .pushsection user_ex, "a", @progbits
        .balign 4
        .long   1b - .
        .long   .Lfault - .
        .popsection
        .endm

        .macro  load insn, at, to
1:      \insn   \at(%rsi,%rax), \to
        may_fault
        .endm

        .macro  store insn, from, at
1:      \insn   \from, \at(%rdi,%rax)
        may_fault
        .endm

        .macro  take at, v, sum
        load    vmovdqu, \at, %ymm\v
        store   vmovdqu, %ymm\v, \at
        vpaddq  %ymm\v, %ymm\sum, %ymm\sum
        .endm

        .macro  mean v, into
        vpavgw  %ymm\v, %ymm\into, %ymm\into
        .endm

        .macro  take_two at, into               /* and their mean; so the next two */
        take    \at, \into, 0
        take    \at + 32, 15, 1
        mean    15, \into
        .endm

        .macro  take_eight at, into
        take_two \at, \into
        take_two \at + 64, 13
        mean    13, \into
        take_two \at + 128, 13
        take_two \at + 192, 14
        mean    14, 13
        mean    13, \into
        .endm

        .macro  add_high v
        vpsrlq  $48, %ymm\v, %ymm\v
        vpaddq  %ymm\v, %ymm3, %ymm3
        .endm

        .macro  take_exactly at, v, sum
        take    \at, \v, \sum
        add_high \v
        .endm

        .macro  take_word bytes, in, to, out, from
        load    \in, 0, \to
        store   \out, \from, 0
        addq    %r9, %r8
        adcq    $0, %r8
        addq    $\bytes, %rax
        .endm

        .text
        .globl  csum_copy_wide
        .hidden csum_copy_wide
        .type   csum_copy_wide, @function
        .balign 16
csum_copy_wide:
        vpxor   %xmm0, %xmm0, %xmm0             /* the sum: 0 and 1 */
        vpxor   %xmm1, %xmm1, %xmm1
        vpxor   %xmm2, %xmm2, %xmm2             /* means of sixteen */
        vpcmpeqd %ymm3, %ymm3, %ymm3            /* high, and 2^15 */
        vpsrlq  $63, %ymm3, %ymm3
        vpsllq  $15, %ymm3, %ymm3
        movq    %rdx, %rax
        andq    $-512, %rax
        je      3f
        addq    %rax, %rsi
        addq    %rax, %rdi
        negq    %rax
2:      take_eight 0, 4
        take_eight 256, 5
        mean    5, 4
        vpsrlq  $48, %ymm4, %ymm4
        vpaddq  %ymm4, %ymm2, %ymm2
        addq    $512, %rax
        jne     2b
        vpsllq  $4, %ymm2, %ymm2
        vpaddq  %ymm2, %ymm3, %ymm3
3:      testl   $256, %edx                      /* what is left */
        je      4f
        take_eight 0, 4
        vpsrlq  $48, %ymm4, %ymm4
        vpsllq  $3, %ymm4, %ymm4
        vpaddq  %ymm4, %ymm3, %ymm3
        addq    $256, %rax
4:      testb   $128, %dl
        je      5f
        take_exactly 0, 4, 0
        take_exactly 32, 5, 1
        take_exactly 64, 6, 0
        take_exactly 96, 7, 1
        subq    $-128, %rax
5:      testb   $64, %dl
        je      6f
        take_exactly 0, 4, 0
        take_exactly 32, 5, 1
        addq    $64, %rax
6:      testb   $32, %dl
        je      7f
        take_exactly 0, 4, 0
        addq    $32, %rax
7:      testb   $16, %dl
        je      8f
        load    vmovdqu, 0, %xmm4               /* and nothing in the other columns */
        store   vmovdqu, %xmm4, 0
        vpaddq  %ymm4, %ymm0, %ymm0
        add_high 4
        addq    $16, %rax
8:      vpaddq  %ymm1, %ymm0, %ymm0
        vpsrlq  $48, %ymm0, %ymm4
        vpsubq  %ymm4, %ymm3, %ymm3
        vpsrlq  $16, %ymm3, %ymm3               /* how often */
        vpsrlq  $32, %ymm0, %ymm4
        vpxor   %xmm5, %xmm5, %xmm5
        vpblendd $0xaa, %ymm5, %ymm0, %ymm0     /* sums by halves of a word cannot pass */
        vpaddq  %ymm4, %ymm3, %ymm3
        vpaddq  %ymm0, %ymm3, %ymm3
        vextracti128 $1, %ymm3, %xmm4
        vpaddq  %xmm4, %xmm3, %xmm3
        vpsrldq $8, %xmm3, %xmm4
        vpaddq  %xmm4, %xmm3, %xmm3
        vmovq   %xmm3, %r8
        vzeroupper
        movl    (%rcx), %r9d
        addq    %r9, %r8
        testb   $15, %dl
        je      9f
        testb   $8, %dl
        je      10f
        take_word 8, movq, %r9, movq, %r9
10:     testb   $4, %dl
        je      11f
        take_word 4, movl, %r9d, movl, %r9d
11:     testb   $2, %dl
        je      12f
        take_word 2, movzwl, %r9d, movw, %r9w
12:     testb   $1, %dl
        je      9f
        take_word 1, movzbl, %r9d, movb, %r9b
9:      movl    %r8d, %eax
        shrq    $32, %r8
        addl    %r8d, %eax
        adcl    $0, %eax
        movl    %eax, (%rcx)
        movl    $1, %eax
        ret
.Lfault:
        vzeroupper
        xorl    %eax, %eax
        ret
        .size   csum_copy_wide, . - csum_copy_wide
#endif
        .section .note.GNU-stack, "", %progbits
