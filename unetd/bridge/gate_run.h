/*
 * Frames that leave by a bridge (gate.h), gathered for one system call. TCP segments of one
 * connection that go on from each other and differ in nothing but their place become one frame of
 * up to 64 KB. The kernel or the device cuts it again (packet(7), PACKET_VNET_HDR). So what a
 * packet costs is paid once a run.
 *
 *   gate_out_add() each frame, in order; gate_out_send(): all leave; then what was added may be
 *   given back
 */
#ifndef UNETD_GATE_RUN_H
#define UNETD_GATE_RUN_H

#include <linux/virtio_net.h>
#include <sys/socket.h>

#include "base/base.h"

#define GATE_OUT_FRAMES 64u /* messages to the kernel at once */
#define GATE_OUT_PIECES 64u /* of one of them, header not counted */
/* Most bytes of a frame that are kept here; the rest is borrowed. */
#define GATE_OUT_HEAD 256u

struct gate_out_frame {
        struct virtio_net_hdr how;
        /* Of the first frame in it: bytes in `head`, payload behind the headers. */
        uint32_t head_len, len;
        uint32_t hdr_len;           /* link, IP and TCP; 0: nothing is joined to this one */
        uint32_t next_seq, payload; /* TCP: what follows; bytes so far */
        bool last_shorter;
        uint8_t segs;
        uint8_t head[GATE_OUT_HEAD];
        struct iovec iov[2 + GATE_OUT_PIECES];
        uint32_t niov;
};

struct gate_out {
        uint32_t n;
        struct gate_out_frame frame[GATE_OUT_FRAMES];
        struct mmsghdr msg[GATE_OUT_FRAMES];
};

/* Adds a frame: `head_len` bytes (at most GATE_OUT_HEAD; all headers among them) are copied, `rest`
 * is borrowed until gate_out_send(). False: it is full, send first. */
bool gate_out_add(struct gate_out *o, const uint8_t *head, uint32_t head_len, const uint8_t *rest,
                  uint32_t rest_len);
/* Sends all; how many frames of the kernel's were not taken: the device has no room. */
uint32_t gate_out_send(struct gate_out *o, int sock);
/* Completes the headers of frame i, as gate_out_send() does before it sends; for tests. */
void gate_out_finish(struct gate_out *o, uint32_t i);

#endif
