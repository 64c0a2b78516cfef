/*
 * A stack that writes frames of its own making into its channel to an interface, as a hostile
 * program might:
 *
 *     forge OWN PORT TO  OWN: our address on the interface, PORT: another stack's, TO: a host there
 *
 * sends TCP resets and datagrams from PORT, datagrams and ARP with another host's address, and
 * rubbish. Prints how many, and stays until it is killed, so that its drops can be read.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "arp/ether.h"
#include "base/checksum.h"
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"

#define ROUNDS 50

static uint32_t own, to;
static uint16_t port;

static uint32_t address(const char *text)
{
        struct in_addr a;

        if (inet_pton(AF_INET, text, &a) != 1)
                exit(2);
        return ntohl(a.s_addr);
}

static void put(uint8_t *p, uint32_t v, int bytes)
{
        for (int i = bytes - 1; i >= 0; i--, v >>= 8)
                p[i] = (uint8_t)v;
}

/* A packet with 20 bytes behind its header, to everybody on the link. */
static void frame(uint8_t f[54], const uint8_t mac[6], uint32_t src, uint8_t proto, uint16_t sport)
{
        be16 sum;

        memset(f, 0, 54);
        ether_write(f, ether_broadcast, mac, ETHER_IPV4);
        f[14] = 0x45;
        put(f + 16, 40, 2);
        f[22] = 64;
        f[23] = proto;
        put(f + 26, src, 4);
        put(f + 30, to, 4);
        sum = csum_finish(csum_partial(f + 14, 20, 0));
        memcpy(f + 24, &sum, 2);
        put(f + 34, sport, 2);
        put(f + 36, 9, 2);
        if (proto == IP_PROTO_UDP) {
                put(f + 38, 20, 2);
        } else {
                f[46] = 5 << 4;
                f[47] = TCP_RST;
        }
}

static int forge(struct stack_chan *c, int i)
{
        uint8_t f[54], mac[6];
        struct unet_tx tx = {.inl = f, .inl_len = sizeof f};

        memcpy(mac, c->netif.nif->cfg.mac, sizeof mac);
        if (i % 5 == 3)
                mac[5] ^= 1;
        frame(f, mac, i % 5 == 2 ? to : own, i % 5 == 0 ? IP_PROTO_TCP : IP_PROTO_UDP, port);
        if (i % 5 == 4)
                for (size_t k = 12; k < sizeof f; k++)
                        f[k] = (uint8_t)(k * (size_t)i * 2654435761u >> 7);
        return c->ops->send(c->ch, &tx, 1);
}

int main(int argc, char **argv)
{
        struct ustack *u;
        int err, chan, sent = 0;

        if (argc != 4)
                return 2;
        own = address(argv[1]);
        port = (uint16_t)atoi(argv[2]);
        to = address(argv[3]);
        u = ustack_mine(&err);
        chan = u != NULL ? ustack_chan_to(u, UNETD_IFACE) : -1; /* the first of unetd's */
        if (chan < 0) {
                printf("no way out\n");
                return 1;
        }
        ustack_lock(u);
        for (int i = 0; i < ROUNDS; i++)
                sent += forge(stack_chan_get(&u->s, (uint32_t)chan), i);
        stack_flush_bells(&u->s);
        ustack_leave(u);
        printf("sent %d\n", sent);
        fflush(stdout);
        pause();
        return 0;
}
