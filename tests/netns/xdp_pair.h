/*
 * An interface of ours on one end of a veth pair and the kernel at the other, for tests of the
 * provider `xdp`. Packets are checked byte by byte.
 */
#ifndef TESTS_NETNS_XDP_PAIR_H
#define TESTS_NETNS_XDP_PAIR_H

#include "tests/netns/bed.h"
#include "unet/xdp/ni_xdp.h"
#include "unet/xdp/xdp_open.h"

#define ETHERTYPE 0x88b5 /* for local experiments, IEEE 802 */
#define FRAMES    64u    /* small frames to send from */
#define FRAME_MAX 65536u
#define PATIENCE  5000 /* ms to wait for what must come */

static const struct frame_geom tx_geom = {{[FRAME_SMALL] = FRAMES, [FRAME_LARGE] = 1}};
static const struct xdp_sizes few = {.rx_chunks = 64, .rx_large = 8, .tx_chunks = 32};

/* One end of a pair with a socket of ours on it. */
struct end {
        struct xdp_dev dev;
        struct xdp_sock sock;
        struct ni_xdp ni;
        struct counters cnt;
        uint8_t *frames;
        char line[XDP_LINE_MAX];
};

/* Ours in one namespace, the kernel in another. */
struct pair {
        int ns[2];
        struct end *e;
        /* Packet sockets: at the other end; at our own interface, where little comes. */
        int peer, beside;
};

/* A packet of `len` bytes that is like no other with another number. */
void make_packet(uint8_t *p, uint32_t number, uint32_t len);
void check_packet(const uint8_t *p, uint32_t len, uint32_t number, uint32_t want);
void end_attach(struct end *e);
void skip_unless_possible(int err, const char *line);
struct end *end_open(int ns, const char *ifname, enum xdp_want want, struct xdp_sizes sizes);
void end_close(struct end *e);
/* Offers a packet as the stack does: some bytes inline, the rest in a frame. False: there was
 * no room. */
bool offer(struct end *e, uint32_t number, uint32_t len);
void flush(struct end *e);
/* Puts a received packet together; the bytes before the lent ones must be the inline ones. Returns
 * its length. */
uint32_t whole(struct end *e, const struct unet_rx *rx, uint8_t *to);
bool take(struct end *e, struct unet_rx *rx);
/* Waits for the next packet as a stack does: poll(2). */
bool wait_for_packet(struct end *e, int ms);
void await(struct end *e, struct unet_rx *rx);
void give_back(struct end *e, const struct unet_rx *rx);
void expect(struct end *e, uint32_t number, uint32_t len);
void kernel_sends(int fd, uint32_t number, uint32_t len);
void kernel_gets(int fd, uint32_t number, uint32_t len);
bool kernel_has_some(int fd, int ms);
struct pair pair_make(enum xdp_want want, unsigned mtu, struct xdp_sizes sizes);
void pair_end(struct pair *p);

#endif
