/*
 * The program behind a packet socket that has an interface to itself (pkt_open.c): what the socket
 * has seen, the kernel does not see as well. And one that does nothing, to see whether programs can
 * be hung there. Compiled for the bpf target and carried in the binary (tcx_link.c).
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

SEC("tc")
int to_nobody(struct __sk_buff *packet)
{
        return TC_ACT_SHOT;
}

SEC("tc")
int to_kernel(struct __sk_buff *packet)
{
        return TC_ACT_UNSPEC; /* whoever is next */
}

char unet_license[] SEC("license") = "Dual BSD/GPL";
