/*
 * The program on an interface that a stack owns: what arrives by a queue with a socket goes to the socket, everything
 * else to the kernel. Compiled for the bpf target and carried in the binary (xdp_open.c).
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
        __uint(type, BPF_MAP_TYPE_XSKMAP);
        __type(key, __u32);             /* receive queue */
        __type(value, __u32);           /* socket */
        __uint(max_entries, 1);         /* xdp_open.c: as many as the interface has */
} sockets SEC(".maps");

SEC("xdp")
int to_socket(struct xdp_md *packet)
{
        return bpf_redirect_map(&sockets, packet->rx_queue_index, XDP_PASS);
}

char unet_license[] SEC("license") = "Dual BSD/GPL";
