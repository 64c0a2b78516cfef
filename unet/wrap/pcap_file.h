/* Writes capture files (pcap, version 2.4, nanoseconds, link type 101: raw IP) without libpcap. */
#ifndef UNET_PCAP_FILE_H
#define UNET_PCAP_FILE_H

#include "base/base.h"

struct pcap_file;

/* Creates or overwrites a file; "-" is standard output. snaplen: most bytes kept of each packet, 0:
 * all. 0 or a negative errno. */
int pcap_file_open(const char *path, uint32_t snaplen, struct pcap_file **out);
/* A packet: begin says the time and the whole length, add gives its
 * bytes in order, in as many pieces as wanted; what is over the snaplen is left out. */
void pcap_file_begin(struct pcap_file *f, nstime at, uint32_t len);
void pcap_file_add(struct pcap_file *f, const void *bytes, size_t n);
/* A packet in one piece, of which not everything may have been kept. */
void pcap_file_packet(struct pcap_file *f, nstime at, const void *bytes, uint32_t kept,
                      uint32_t len);
/* 0, or the negative errno of the first write that failed. */
int pcap_file_close(struct pcap_file *f);

#endif
