/*
 * Wrapper `pcap`: records every message that a channel accepts or receives, as a packet of a
 * capture file.
 *
 * The time stamps come from whoever wraps: virtual time in a simulation, CLOCK_REALTIME in a live
 * run.
 */
#ifndef UNET_NI_PCAP_H
#define UNET_NI_PCAP_H

#include "unet/link.h"
#include "unet/mem.h"
#include "unet/wrap/pcap_file.h"

struct ni_pcap_opts {
        struct pcap_file *file; /* taken over; several wrappers may not share one */
        nstime (*clock)(void *arg);
        void *arg;
        struct unet_mem tx, rx; /* where the payload lies that is sent, and that is received */
        uint32_t skip; /* bytes at the start of each message that are not recorded (a tag) */
};

/* A channel that records and passes on to `inner`, which stays the caller's; NULL when there is
 * no memory. */
struct unet_chan *ni_pcap_new(struct unet_chan *inner, const struct ni_pcap_opts *o);
/* Ends it and closes the file; the inner channel goes on. 0, or a negative errno: the file is
 * not whole. */
int ni_pcap_end(struct unet_chan *ch);

/* The same before a raw endpoint's link (o->rx is taken from it), ended with it. 0 or -ENOMEM. */
int ni_pcap_link(struct link *l, const struct ni_pcap_opts *o);

#endif
