/*
 * The program on an interface that a stack owns: what arrives by a queue with a socket goes to the
 * socket, everything else to the kernel, but for most fragments of a flood. Compiled for the bpf
 * target and carried in the binary (xdp_dev.c).
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf_helpers.h>

#include "frag_shed.bpf.h"

struct {
        __uint(type, BPF_MAP_TYPE_XSKMAP);
        __type(key, __u32);     /* receive queue */
        __type(value, __u32);   /* socket */
        __uint(max_entries, 1); /* xdp_dev.c: as many as the interface has */
} sockets SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, __u64); /* fragments that were dropped here */
        __uint(max_entries, 1);
} shed SEC(".maps");

static __always_inline int drop(void)
{
        __u32 key = 0;
        __u64 *n = bpf_map_lookup_elem(&shed, &key);

        if (n)
                __sync_fetch_and_add(n, 1);
        return XDP_DROP;
}

SEC("xdp")
int to_socket(struct xdp_md *packet)
{
        if (!shed_passes((void *)(long)packet->data, (void *)(long)packet->data_end))
                return drop();
        return bpf_redirect_map(&sockets, packet->rx_queue_index, XDP_PASS);
}

char unet_license[] SEC("license") = "Dual BSD/GPL";
