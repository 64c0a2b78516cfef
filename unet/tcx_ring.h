/*
 * What the program behind an interface (tcx_prog.bpf.c) and the stack that has the interface share: one value of a map, mapped by the
 * stack's processes.
 *
 *      | rx_large of 64 KB | rx_chunks of chunk_bytes | struct tcx_words, TCX_WORDS_BYTES | FILL small | FILL large | RX |
 *
 * The rings hold what those of AF_XDP hold (linux/if_xdp.h): addresses, which are offsets in here, and struct xdp_desc; all are rx_ring
 * long. Who writes which word stands beside it. The program trusts none of the stack's, and its own positions are not in here.
 *
 * The bell is a ring buffer map (BPF_MAP_TYPE_RINGBUF), which can be poll(2)ed: readable while it holds a record. Who is about to sleep
 * takes out what is there, stores `armed`, and looks at RX once more; the program stores RX's position, and puts in a record if it
 * finds `armed`, which it takes back. With a full fence in between on both sides no wake-up is lost (unet/bell.h has the argument). So
 * at any time it is armed, or there is a record, or somebody is about to look.
 */
#ifndef UNET_TCX_RING_H
#define UNET_TCX_RING_H

#include <linux/types.h>

#define TCX_WORDS_BYTES 4096u
#define TCX_RING_MAX    16384u
#define TCX_LARGE_BYTES 65536u

struct tcx_words {
        __u32 fill_small __attribute__((aligned(64)));  /* FILL rings: places below this are written. The stack's */
        __u32 fill_large;
        __u32 rx_cons;                                  /* RX: places below this were read; the program does not look. The stack's */
        __u32 zero;                                     /* nobody's: where AF_XDP has flags and positions that are not asked for here */
        __u32 rx_prod __attribute__((aligned(64)));     /* RX: places below this are written. The program's */
        __u32 armed __attribute__((aligned(64)));       /* both: the next packet is to be told of */
};

/* What was dropped here: places of a map of counts. */
enum tcx_drop {
        TCX_DROP_FRAGMENT,      /* of a flood that no reassembly can bring to an end (frag_shed.bpf.h) */
        TCX_DROP_NO_CHUNK,      /* FILL was empty: the stack holds them all */
        TCX_DROP_ODD,           /* longer than a large chunk, or for a chunk that is none */
        TCX_DROPS,
};

#endif
