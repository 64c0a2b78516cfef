/*
 * Checks what a stack sends by the interface that it has to itself: send_prog.bpf.c, where packets
 * leave the interface. What is checked has the mark SEND_MARK: sockets that xdp_sock_open() makes
 * with it (struct xdp_sizes). For the privileged half only.
 *
 * The program does not hang on a link: who made it may be killed while others have such sockets,
 * and they must not be free then. It stays behind on the interface, and takes no packets but those
 * with the mark. The next one takes its place, and stays, too.
 */
#ifndef UNET_SEND_CHECK_H
#define UNET_SEND_CHECK_H

#include "unet/xdp/send_own.h"
#include "unet/xdp/xdp_open.h"

struct send_check {
        int prog, own, refused; /* descriptors: of the program and its maps; -1: there is none */
        uint32_t ifindex;
        bool stays;
};
#define SEND_CHECK_NONE ((struct send_check){-1, -1, -1, 0, false})

/* From then on packets with the mark leave the interface only from this address (IPv4, host order)
 * and link address. 0, or a negative errno, and `line` says what failed. */
int send_check_open(struct send_check *c, uint32_t ifindex, uint32_t addr, const uint8_t mac[6],
                    char line[XDP_LINE_MAX]);
/* They are others now. */
int send_check_set(struct send_check *c, uint32_t addr, const uint8_t mac[6]);
/* Packets that were dropped. */
uint64_t send_check_refused(const struct send_check *c);
/* `ended`: nobody can send with the mark any more; otherwise the program stays. */
void send_check_close(struct send_check *c, bool ended);

#endif
