/*
 * A raw endpoint's channel by a packet socket (packet(7)): to one other Ethernet address, in frames
 * of ether_msg.h. Works on every interface and every kernel from 5.10 on; the kernel goes on using
 * the interface, and has no protocol of that type.
 *
 * A message is gathered by the system call that sends it, sixteen a call, and its frame is free at
 * once. Received ones lie in chunks of private memory, which are lent. What finds no room in the
 * socket's buffer is dropped by the kernel.
 */
#ifndef UNET_PACKET_LINK_H
#define UNET_PACKET_LINK_H

#include "unet/ep.h"
#include "unet/packet/ether_msg.h"

#define PACKET_CHUNKS  512u /* messages received that may be lent at once */
#define PACKET_MTU_MAX 65535u

/* What the privileged half (CAP_NET_RAW) opens and passes on: a socket that hears the peer's
 * messages and nothing else. */
struct packet_sock {
        int fd;
        uint32_t mtu;   /* of the interface */
        uint8_t mac[6]; /* its address */
};

/* Opens one on an interface of this network namespace. 0; -ENODEV: no such interface, or not
 * Ethernet; -EMSGSIZE: its MTU is above PACKET_MTU_MAX; -EPERM; other negative errno. */
int packet_sock_open(struct packet_sock *s, const char *ifname, const uint8_t peer[6]);

/* Opens a channel of the endpoint to `peer`; takes the descriptor on success. 0, -ENOMEM, or as
 * ep_attach() says. */
int packet_link_over(struct unet_ep *ep, const struct packet_sock *s, const uint8_t peer[6],
                     uint32_t *chan);

/* For tests: the descriptor by which such a channel sends, and how many messages it has sent
 * by it. */
int *packet_link_out(struct unet_chan *ch);
uint32_t packet_link_sent(const struct unet_chan *ch);

#endif
