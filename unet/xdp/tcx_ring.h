/*
 * What the program behind an interface (tcx_prog.bpf.c) and the stack that has the interface share:
 * one value of a map, mapped by the stack's processes.
 *
 *   | rx_large of 64 KB | rx_chunks of chunk_bytes | struct tcx_words, TCX_WORDS_BYTES |
 *   | FILL small | FILL large | RX | struct tcx_answers, TCX_ANSWERS_BYTES |
 *
 * The rings hold what those of AF_XDP hold (linux/if_xdp.h): addresses, which are offsets in here,
 * and struct xdp_desc; all are rx_ring long. Who writes which word stands beside it. The program
 * trusts none of the stack's, and its own positions are not in here: that there is something in RX
 * the descriptor itself says (tcx_lap()), which is one line to bring over and not two.
 *
 * The bell is a ring buffer map (BPF_MAP_TYPE_RINGBUF), which can be poll(2)ed: readable while it
 * holds a record. Who is about to sleep takes out what is there, stores `armed`, and looks at RX
 * once more; the program stores a descriptor, and puts in a record if it finds `armed`, which it
 * takes back. With a full fence in between on both sides no wake-up is lost (unet/bell.h has the
 * argument). So at any time it is armed, or there is a record, or somebody is about to look.
 *
 * Answers: a SYN can be answered in the turn of the peer that sends it, whose connect() then need
 * not sleep. What the answer is the stack has said: the SYN-ACK of a connection that came about
 * between the same two hosts, to the same port. The program fills in what differs, sends it, and
 * gives the stack the SYN all the same, with a note behind it (TCX_ANSWERED, struct tcx_note).
 * Whatever is not as it was then (options, link addresses, a connection with these ends, all that
 * `until` and `epoch` stand for) goes the ordinary way.
 */
#ifndef UNET_TCX_RING_H
#define UNET_TCX_RING_H

#include <linux/types.h>

#define TCX_WORDS_BYTES 4096u
#define TCX_RING_MAX    16384u
#define TCX_LARGE_BYTES 65536u

struct tcx_words {
        /* FILL rings: places below this are written. The stack's. */
        __u32 fill_small __attribute__((aligned(64)));
        __u32 fill_large;
        /* RX: places below this were read; the program does not look. The stack's. */
        __u32 rx_cons __attribute__((aligned(64)));
        __u32 zero; /* nobody's: where AF_XDP has flags and positions that are not asked for here */
        __u32 armed __attribute__((aligned(64))); /* both: the next packet is to be told of */
};

/* xdp_desc.options: the lap of its place, and below it flags. */
#define TCX_ANSWERED 1u /* a SYN with a note */
/* Of a SYN and of its answer: Ethernet, IP, TCP, and 20 bytes of options as Linux has them. */
#define TCX_ANSWER_BYTES 74u
#define TCX_NOTE_AT      80u /* from where the SYN begins */
#define TCX_PLACES       256u
#define TCX_MARKS        32768u

struct tcx_note {
        __u64 at; /* when it was answered, ns of CLOCK_MONOTONIC */
        __u32 iss;
        __u16 wnd;          /* as on the wire */
        __u8 wscale, round; /* tcx_answers.round when it was marked */
};

/* What a peer's SYN to a port is answered with. The stack's, all of it. */
struct tcx_answer {
        __u32 epoch;   /* tcx_answers.epoch when it was learnt, written last; else it does not hold.
                        * 0: nor is it to be learnt, until */
        __u32 times;   /* learnt here: who read one and the other finds that it has changed */
        __u64 until;   /* ns of CLOCK_MONOTONIC */
        __u64 ends[4]; /* both addresses as the keyed function has them: ours, the peer's */
        __u8 zero[2];
        __u8 frame[TCX_ANSWER_BYTES + 4]; /* ports, numbers and the sum are to be filled in */
};

struct tcx_answers {
        /* Never 0 while there are answers. The stack's, as all up to `made`. */
        __u32 epoch __attribute__((aligned(64)));
        __u32 allowed; /* so many answers may be made, by `made` */
        /* So many of them the stack has seen; as the next three no business of the program's. */
        __u32 seen;
        /* `allowed` is so much more than `seen`; what was learnt in that epoch has not
         * less room. */
        __u32 ahead, ahead_epoch;
        __u32 counted; /* `marks` are true */
        __u32 round; /* of counting: `marks` and `seen` know nothing of answers of another round */
        __u64 secret[2];                         /* of initial sequence numbers (RFC 6528) */
        __u32 made __attribute__((aligned(64))); /* the program's */
        struct tcx_answer place[TCX_PLACES] __attribute__((aligned(64)));
        /* both: connections, and answered SYNs that the stack has not seen yet, by tcx_mark(). */
        __u32 marks[TCX_MARKS];
};
#define TCX_ANSWERS_BYTES ((sizeof(struct tcx_answers) + 4095) / 4096 * 4096)

/* What the options of a descriptor at that place of RX say when it is written, and did not before:
 * there is no other word to look at. `mask`: of its positions. */
static inline __u32 tcx_lap(__u32 place, __u32 mask)
{
        return (place | mask) + 1;
}
/* Of a peer's address and our port, as they are on the wire. */
static inline __u32 tcx_place(__u32 peer, __u16 port)
{
        return (peer * 0x9e3779b1u + port * 0x85ebca6bu) >> 24;
}
/* Of both ends, as they are on the wire. */
static inline __u32 tcx_mark(__u32 peer, __u32 own, __u16 peer_port, __u16 own_port)
{
        __u32 h = (peer ^ (own << 16 | own >> 16)) * 0x9e3779b1u +
                  ((__u32)peer_port << 16 | own_port);

        return (h * 0x85ebca6bu) >> 17;
}

/* What was dropped here: places of a map of counts. */
enum tcx_drop {
        TCX_DROP_FRAGMENT, /* of a flood that no reassembly can bring to an end (frag_shed.bpf.h) */
        TCX_DROP_NO_CHUNK, /* FILL was empty: the stack holds them all */
        TCX_DROP_ODD,      /* longer than a large chunk, or for a chunk that is none */
        TCX_DROPS,
};

#endif
