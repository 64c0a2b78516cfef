/*
 * stranger ADDR PEER QPN QKEY: sends a UDP datagram's packet to a queue pair of PEER from one that
 * nobody vouched for, with that Q_Key, eight times.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ip/ip.h"
#include "unet/verbs/verbs_chan.h"

#define TIMES 8

static ip_addr address(const char *text)
{
        struct in_addr in;

        if (inet_pton(AF_INET, text, &in) != 1)
                exit(2);
        return ip_addr_v4(ntohl(in.s_addr));
}

int main(int argc, char **argv)
{
        static struct counters cnt;
        uint8_t *memory =
                mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct verbs_setup s = {
                .tx = unet_mem_flat(memory, 4096), .buffers = VERBS_BUFFERS_MIN, .cnt = &cnt};
        struct verbs_peer peer;
        struct verbs_port *p;
        struct verbs_chan *c;
        struct ip_tmpl t;
        int err;

        if (argc != 5 || memory == MAP_FAILED)
                return 2;
        peer = (struct verbs_peer){address(argv[2]), (uint32_t)strtoul(argv[3], NULL, 0),
                                   (uint32_t)strtoul(argv[4], NULL, 0)};
        err = verbs_port_open(address(argv[1]), &s, &p);
        if (err == 0)
                err = verbs_chan_open(p, &peer, 4096, &c);
        if (err != 0) {
                fprintf(stderr, "stranger: %s\n", strerror(-err));
                return 1;
        }
        ip_tmpl_init(&t, address(argv[1]), peer.addr, IP_PROTO_UDP, 0, 64, true);
        ip_hdr_write(&t, memory, 64, 0);
        for (int i = 0; i < TIMES; i++) {
                verbs_chan_post(c, 0, 64, 64);
                verbs_ring(p);
        }
        usleep(300000);
        verbs_chan_abort(c);
        verbs_port_close(p, false);
        return 0;
}
