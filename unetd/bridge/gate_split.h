/*
 * Datagrams that came as one frame: a sender's that had them cut by a device that is not there
 * (Linux: UDP_SEGMENT over veth), or that the kernel joined as they came (UDP GRO). A packet socket
 * gets them as one UDP datagram and a virtio header of type VIRTIO_NET_HDR_GSO_UDP_L4, whose
 * gso_size is the payload of each but the last. TCP's runs stay as they are: a stream has no
 * borders.
 *
 *   | Ethernet | IP | UDP | payload 1 | payload 2 | ... |  ->  | Ethernet | IP | UDP | payload 1 |
 *
 * Headers are copied; lengths, IP identifications (one more each, as Linux does it) and checksums
 * are made anew.
 */
#ifndef UNETD_GATE_SPLIT_H
#define UNETD_GATE_SPLIT_H

#include "base/base.h"

struct gate_split {
        const uint8_t *frame;     /* the caller's */
        uint32_t hdr_len, ip_hdr; /* of all headers; where UDP begins behind IP's */
        uint32_t at, end;         /* payload that is left */
        uint32_t size;
        uint16_t id;
};

/* Returns false if the frame is no IPv4 datagram of UDP that is whole, or `size` is 0. */
bool gate_split_begin(struct gate_split *s, const uint8_t *frame, uint32_t len, uint16_t size);
/* Writes the next frame, at most as long as the one that is split. Its length; 0: that was all. */
uint32_t gate_split_next(struct gate_split *s, uint8_t *out);

#endif
