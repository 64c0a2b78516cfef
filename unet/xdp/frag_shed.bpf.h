/*
 * What goes no further than the program on an interface: most fragments of a flood. For
 * xdp_prog.bpf.c and tcx_prog.bpf.c.
 *
 * A stack gathers 256 datagrams at a time (ip/reass.h), and a flood of beginnings pushes each out
 * before its end could come. So strangers have STRANGERS changes from one datagram to another in a
 * window, and the rest of theirs goes no further than this, before it costs the sender's processor,
 * the ring and the reader anything. No stranger is who has sent the last fragment of a datagram
 * within the last TRUST, whether it was let through or not: a host that sends whole datagrams loses
 * the first of them at most, and that only under a flood. Without a flood nothing is lost, not even
 * 64 KB in 8,192 fragments: those of one datagram that follow one another are no change.
 *
 * Processors run it side by side and write these words without a lock: what is lost so is a few
 * strangers more or fewer.
 */
#ifndef UNET_FRAG_SHED_BPF_H
#define UNET_FRAG_SHED_BPF_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define WINDOW_SHIFT 25  /* of nanoseconds: 34 ms */
#define STRANGERS    256 /* changes from one datagram to another, a window */
#define TRUST_SHIFT  34  /* of nanoseconds: 17 s, and up to twice that */
#define TRUST_HASH   12  /* bits: hosts that share a place are trusted together */
#define IP_MORE      0x2000
#define IP_OFFSET    0x1fff

struct tag { /* IEEE 802.1Q, behind the addresses and its own type */
        __be16 vlan, type;
};

static __u64 window;    /* the present one */
static __u32 strangers; /* in it */
static __u64 last;      /* datagram of a stranger that was let through */
/* By the hash of a source: when, in units of TRUST; 0: never. */
static __u32 trusted[1 << TRUST_HASH];

static __always_inline bool shed_admits(__u64 datagram, __u64 now)
{
        if (now >> WINDOW_SHIFT != window) {
                window = now >> WINDOW_SHIFT;
                strangers = 0;
        }
        if (datagram == last)
                return true;
        if (strangers >= STRANGERS)
                return false;
        strangers++;
        last = datagram;
        return true;
}

static __always_inline bool shed_admits_fragment(const struct iphdr *ip, __u16 field)
{
        __u64 now = bpf_ktime_get_ns();
        __u32 age = (__u32)(now >> TRUST_SHIFT) + 1,
              *since = &trusted[ip->saddr * 2654435761u >> (32 - TRUST_HASH)];
        __u32 then = *since;

        if (!(field & IP_MORE))
                *since = age;
        if (then != 0 && age - then <= 1)
                return true;
        return shed_admits((__u64)ip->saddr << 32 | (__u32)ip->id << 16 | ip->protocol, now);
}

/* The IP header, also behind a tag; one tag is as far as a stack looks (arp/ether.h). */
static __always_inline const struct iphdr *shed_find_ip(const void *data, const void *end)
{
        const struct ethhdr *eth = data;
        const struct iphdr *ip = (const void *)(eth + 1);
        const struct tag *tag = (const void *)(eth + 1);

        if ((const void *)(ip + 1) > end)
                return NULL;
        if (eth->h_proto == bpf_htons(ETH_P_IP))
                return ip;
        if ((eth->h_proto != bpf_htons(ETH_P_8021Q) && eth->h_proto != bpf_htons(ETH_P_8021AD)) ||
            tag->type != bpf_htons(ETH_P_IP))
                return NULL;
        ip = (const void *)(tag + 1);
        return (const void *)(ip + 1) <= end ? ip : NULL;
}

/* Whether a packet that begins at `data` goes further. */
static __always_inline bool shed_passes(const void *data, const void *end)
{
        const struct iphdr *ip = shed_find_ip(data, end);
        __u16 field = ip ? bpf_ntohs(ip->frag_off) : 0;

        return !(field & (IP_MORE | IP_OFFSET)) || shed_admits_fragment(ip, field);
}

#endif
