/*
 * A packet socket (packet(7)) that can be passed to a program of any user: it sends frames by one
 * interface, by no other, and hears nothing.
 *
 * The kernel asks for no capability once a packet socket is made: whoever has one may name another
 * interface with each frame, bind it anew and listen to them all, or make them promiscuous. But all
 * of this finds only interfaces of the network namespace in which it was made. So this one is made
 * in a namespace of its own, in which there is nothing but a macvlan device on the interface, of a
 * mode that receives nothing; and a filter that drops everything is locked to it. With the last
 * descriptor of a socket that was made there the namespace goes, and the device with it;
 * pkt_sealed_end() takes the device away before, from whoever has one.
 *
 * The privileged half, as xdp_open.h: CAP_SYS_ADMIN besides, for the namespace.
 */
#ifndef UNET_PKT_SEALED_H
#define UNET_PKT_SEALED_H

#include <stdint.h>

/* Descriptors of the socket, which is bound, has virtio headers on and lets the interface hear all
 * groups, and of the namespace. */
struct pkt_sealed {
        int sock, ns;
};

/* On an interface of the caller's namespace, in which its thread is again when it returns. What it
 * sends has that mark (0: none). 0, or a negative errno: -EPERM;
 * -EOPNOTSUPP: the kernel has no macvlan devices; -EBUSY: the interface is part of a bridge or the
 * like; -EROFS: IPv6 cannot be kept quiet there, since /proc/sys may not be written. Both
 * descriptors are -1 then. */
int pkt_sealed_open(struct pkt_sealed *s, uint32_t ifindex, uint32_t mark);
/* Another socket of that namespace, raw; *ifindex is the device's number there. Or a
 * negative errno. */
int pkt_sealed_socket(const struct pkt_sealed *s, int family, uint32_t *ifindex);
/* The interface's MTU is another one now. The kernel takes the device's down with it, and does not
 * take it up. 0 or a negative errno. */
int pkt_sealed_mtu(const struct pkt_sealed *s, uint32_t mtu);
/* The caller's descriptors are closed. Copies of the socket that others have can send until the
 * last one is closed. */
void pkt_sealed_close(struct pkt_sealed *s);
/* ... and from here on they cannot. 0 or a negative errno. */
int pkt_sealed_end(struct pkt_sealed *s);

#endif
