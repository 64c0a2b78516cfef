/*
 * A SYN, and what it is answered with, in the program behind an interface (tcx_prog.bpf.c;
 * tcx_ring.h says when).
 *
 * Only SYNs of one kind are: those without IP options, and with the TCP options that Linux sends,
 * in its order. Their answer has the same length, and its options stand in the same places.
 */
#ifndef UNET_SYN_ANSWER_BPF_H
#define UNET_SYN_ANSWER_BPF_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "base/sip_rounds.h"
#include "tcx_ring.h"

struct syn {
        __u16 align; /* the IP header is */
        struct ethhdr eth;
        struct iphdr ip;
        struct tcphdr tcp;
        __u8 mss[4], sack[2], ts[2];
        __u32 tsval, tsecr;
        __u8 wscale[4]; /* with the NOP in front of it */
} __attribute__((packed, aligned(4)));
#define SYN_TCP_BYTES (sizeof(struct syn) - offsetof(struct syn, tcp))
_Static_assert(sizeof(struct syn) - offsetof(struct syn, eth) == TCX_ANSWER_BYTES &&
                       offsetof(struct syn, ip) % 4 == 0,
               "as on the wire");

/* The last: to a device, and it is the pseudo header's. */
enum syn_sum { SYN_SUM_WRONG, SYN_SUM_WHOLE, SYN_SUM_LEFT };

static __always_inline __u16 sum_fold(__u64 sum)
{
        sum = (sum & 0xffffffff) + (sum >> 32);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        return (__u16)((sum & 0xffff) + (sum >> 16));
}

static __always_inline __u64 sum_words(const __u32 *p, int n)
{
        __u64 sum = 0;

        for (int i = 0; i < n; i++)
                sum += p[i];
        return sum;
}

static __always_inline __u64 sum_pseudo(const struct syn *s)
{
        return (__u64)s->ip.saddr + s->ip.daddr + bpf_htons(IPPROTO_TCP) + bpf_htons(SYN_TCP_BYTES);
}

/* Both, once in 65,536 times: it is not answered here. */
static __always_inline enum syn_sum syn_sum(const struct syn *s)
{
        __u64 pseudo = sum_pseudo(s);
        bool whole =
                sum_fold(pseudo + sum_words((const __u32 *)&s->tcp, SYN_TCP_BYTES / 4)) == 0xffff;
        bool left = s->tcp.check == sum_fold(pseudo);

        if (sum_fold(sum_words((const __u32 *)&s->ip, sizeof s->ip / 4)) != 0xffff || whole == left)
                return SYN_SUM_WRONG;
        return whole ? SYN_SUM_WHOLE : SYN_SUM_LEFT;
}

static __always_inline bool syn_is_plain(const struct syn *s)
{
        const __u8 *flags = (const __u8 *)&s->tcp + 12;

        return s->eth.h_proto == bpf_htons(ETH_P_IP) && s->ip.version == 4 && s->ip.ihl == 5 &&
               s->ip.protocol == IPPROTO_TCP &&
               s->ip.tot_len == bpf_htons(sizeof s->ip + SYN_TCP_BYTES) &&
               (s->ip.frag_off & bpf_htons(0x3fff)) == 0 && flags[0] == (SYN_TCP_BYTES / 4) << 4 &&
               flags[1] == 0x02 && s->tcp.source != 0 && s->mss[0] == 2 && s->mss[1] == 4 &&
               s->sack[0] == 4 && s->sack[1] == 2 && s->ts[0] == 8 && s->ts[1] == 10 &&
               s->wscale[0] == 1 && s->wscale[1] == 3 && s->wscale[2] == 3 && s->wscale[3] <= 14;
}

static __always_inline bool same_mac(const __u8 a[6], const __u8 b[6])
{
        return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3] && a[4] == b[4] &&
               a[5] == b[5];
}

static __always_inline bool syn_is_for(const struct syn *s, const struct syn *answer)
{
        return s->ip.saddr == answer->ip.daddr && s->ip.daddr == answer->ip.saddr &&
               s->tcp.dest == answer->tcp.source && same_mac(s->eth.h_source, answer->eth.h_dest) &&
               same_mac(s->eth.h_dest, answer->eth.h_source);
}

/* tcp/tcp_iss.c has the same. */
static __always_inline __u32 keyed(const struct tcx_answers *ans, const struct tcx_answer *a,
                                   const struct syn *s, __u64 purpose)
{
        const struct sip_key key = {{ans->secret[0], ans->secret[1]}};
        struct sip_state h = sip_begin(&key);

        for (int i = 0; i < 4; i++)
                sip_word(&h, a->ends[i], 2);
        sip_word(&h, (__u64)bpf_ntohs(s->tcp.dest) << 16 | bpf_ntohs(s->tcp.source), 2);
        sip_word(&h, purpose, 2);
        sip_word(&h, 48ull << 56, 2);
        return (__u32)sip_end(&h, 4);
}

/* `answer` is what was learnt. */
static __always_inline void syn_fill(struct syn *answer, const struct syn *s, enum syn_sum how,
                                     __u32 iss, __u32 tsval)
{
        answer->tcp.dest = s->tcp.source;
        answer->tcp.seq = bpf_htonl(iss);
        answer->tcp.ack_seq = bpf_htonl(bpf_ntohl(s->tcp.seq) + 1);
        answer->tsval = bpf_htonl(tsval);
        answer->tsecr = s->tsval;
        answer->tcp.check = 0;
        if (how == SYN_SUM_LEFT)
                answer->tcp.check = sum_fold(sum_pseudo(answer));
        else
                answer->tcp.check =
                        ~sum_fold(sum_pseudo(answer) +
                                  sum_words((const __u32 *)&answer->tcp, SYN_TCP_BYTES / 4));
}

#endif
