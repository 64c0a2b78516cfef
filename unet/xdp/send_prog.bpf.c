/*
 * What a stack that has an interface to itself may send by it (tcx, Linux 6.6; send_check.h): ARP
 * of the host's own, and IPv4 from the host's address, from its link address. All else is dropped
 * and counted.
 *
 * The program stands where packets leave the interface, and so do the kernel's own. The stack's are
 * known by their mark, which only a privileged process can change (SO_MARK). Segments that are cut
 * on the way have the mark of what they were cut from.
 *
 * The sender chooses where a checksum is written after this (packet(7), PACKET_VNET_HDR): it must
 * be behind the addresses.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "send_own.h"

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct send_own);
        __uint(max_entries, 1);
} own SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, __u64); /* frames that were dropped */
        __uint(max_entries, 1);
} refused SEC(".maps");

/* The kernel's, as far as it matters here; libbpf finds where the running kernel has
 * these (BTF). */
struct sk_buff {
        __u8 ip_summed : 2;
        __u16 csum_start;
        unsigned char *head, *data;
} __attribute__((preserve_access_index));
#define SUM_IS_LEFT 3 /* CHECKSUM_PARTIAL */

extern void *bpf_cast_to_kern_ctx(void *) __ksym;

struct arp {
        __u16 hrd, pro;
        __u8 hln, pln;
        __u16 op;
        __u8 sha[ETH_ALEN];
        __u32 spa;
        __u8 tha[ETH_ALEN];
        __u32 tpa;
} __attribute__((packed));

static __always_inline bool same_mac(const __u8 a[ETH_ALEN], const __u8 b[ETH_ALEN])
{
        return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3] && a[4] == b[4] &&
               a[5] == b[5];
}

static __always_inline bool arp_is_own(struct __sk_buff *packet, const struct send_own *o)
{
        struct arp a;

        return bpf_skb_load_bytes(packet, sizeof(struct ethhdr), &a, sizeof a) == 0 &&
               a.hrd == bpf_htons(1) && a.pro == bpf_htons(ETH_P_IP) && a.hln == ETH_ALEN &&
               a.pln == sizeof a.spa && same_mac(a.sha, o->mac) && (a.spa == o->addr || a.spa == 0);
}

/* Whether a sum that is yet to be written is behind the headers that were looked at. */
static __always_inline bool sum_is_behind(struct __sk_buff *packet, __u32 headers)
{
        struct sk_buff *k = bpf_cast_to_kern_ctx(packet);

        return BPF_CORE_READ_BITFIELD(k, ip_summed) != SUM_IS_LEFT ||
               k->csum_start >= (__u64)k->data - (__u64)k->head + headers;
}

/* Where packets are cut, the kernel believes what it takes for the protocol. */
static __always_inline bool ip_is_own(struct __sk_buff *packet, const struct send_own *o)
{
        struct iphdr ip;

        if (bpf_skb_load_bytes(packet, sizeof(struct ethhdr), &ip, sizeof ip) != 0)
                return false;
        return ip.version == 4 && ip.ihl >= 5 && ip.saddr == o->addr &&
               (packet->gso_size == 0 || packet->protocol == bpf_htons(ETH_P_IP)) &&
               sum_is_behind(packet, sizeof(struct ethhdr) + ip.ihl * 4u);
}

static __always_inline bool is_own(struct __sk_buff *packet, const struct send_own *o)
{
        struct ethhdr eth;

        if (packet->vlan_present || bpf_skb_load_bytes(packet, 0, &eth, sizeof eth) != 0 ||
            !same_mac(eth.h_source, o->mac))
                return false;
        if (eth.h_proto == bpf_htons(ETH_P_ARP))
                return packet->gso_size == 0 && arp_is_own(packet, o) &&
                       sum_is_behind(packet, packet->len);
        return eth.h_proto == bpf_htons(ETH_P_IP) && ip_is_own(packet, o);
}

SEC("tc")
int send_check(struct __sk_buff *packet)
{
        __u32 key = 0;
        const struct send_own *o = bpf_map_lookup_elem(&own, &key);
        __u64 *n;

        if (packet->mark != SEND_MARK)
                return TC_ACT_UNSPEC; /* whoever is next */
        if (o && is_own(packet, o)) {
                packet->mark = 0;
                return TC_ACT_UNSPEC;
        }
        n = bpf_map_lookup_elem(&refused, &key);
        if (n)
                __sync_fetch_and_add(n, 1);
        return TC_ACT_SHOT;
}

char unet_license[] SEC("license") = "Dual BSD/GPL";
