/*
 * lwIP as a host of its own on an interface, in real time, by a packet socket.
 *
 *   lwip_host INTERFACE ADDRESS mirror PORT
 *           sends back what comes, one connection after the other
 *   lwip_host INTERFACE ADDRESS reflect PEER PORT MEGABYTES
 *           so much to a mirror and back, compared; prints "all"
 *
 * The interface's MAC address is lwIP's; the kernel has no address there.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <lwip/api.h>
#include <lwip/etharp.h>
#include <lwip/netif.h>
#include <lwip/tcpip.h>

#define FRAME_MAX 2048u
#define BLOCK     32768u

static int fd;
static struct netif nif;

static void die(const char *what)
{
        fprintf(stderr, "lwip_host: %s: %s\n", what, strerror(errno));
        exit(1);
}

/* ---- the interface ---- */

static err_t send_frame(struct netif *n, struct pbuf *p)
{
        uint8_t bytes[FRAME_MAX];
        u16_t len = pbuf_copy_partial(p, bytes, sizeof bytes, 0);

        (void)n;
        return write(fd, bytes, len) == len ? ERR_OK : ERR_IF;
}

static err_t set_up(struct netif *n)
{
        n->name[0] = 'l';
        n->name[1] = 'w';
        n->mtu = 1500;
        n->hwaddr_len = ETH_ALEN;
        n->flags =
                NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET | NETIF_FLAG_LINK_UP;
        n->output = etharp_output;
        n->linkoutput = send_frame;
        return ERR_OK;
}

static void *receive(void *arg)
{
        uint8_t bytes[FRAME_MAX];
        ssize_t len;

        (void)arg;
        while ((len = read(fd, bytes, sizeof bytes)) > 0 || errno == EINTR) {
                struct pbuf *p = len > 0 ? pbuf_alloc(PBUF_RAW, (u16_t)len, PBUF_RAM) : NULL;
                if (p == NULL)
                        continue;
                pbuf_take(p, bytes, (u16_t)len);
                if (nif.input(p, &nif) != ERR_OK)
                        pbuf_free(p);
        }
        die("the interface");
        return NULL;
}

static void open_interface(const char *name)
{
        struct sockaddr_ll ll = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
        int one = 1, bytes = 8 << 20;
        struct ifreq ifr = {0};

        fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
        ll.sll_ifindex = (int)if_nametoindex(name);
        snprintf(ifr.ifr_name, sizeof ifr.ifr_name, "%s", name);
        if (fd < 0 || ioctl(fd, SIOCGIFHWADDR, &ifr) != 0 ||
            setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) != 0 ||
            setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0 ||
            bind(fd, (struct sockaddr *)&ll, sizeof ll) != 0)
                die(name);
        memcpy(nif.hwaddr, ifr.ifr_hwaddr.sa_data, ETH_ALEN);
}

static void begin(const char *interface, const char *address)
{
        ip4_addr_t addr = {.addr = inet_addr(address)}, mask = {.addr = inet_addr("255.255.255.0")},
                   none = {.addr = 0};
        pthread_t reader;

        open_interface(interface);
        tcpip_init(NULL, NULL);
        LOCK_TCPIP_CORE();
        netif_set_default(netif_add(&nif, &addr, &mask, &none, NULL, set_up, tcpip_input));
        netif_set_up(&nif);
        UNLOCK_TCPIP_CORE();
        if (pthread_create(&reader, NULL, receive, NULL) != 0)
                die("a thread");
}

/* ---- what it does ---- */

static void wanted(err_t err, const char *what)
{
        if (err == ERR_OK)
                return;
        fprintf(stderr, "lwip_host: %s: lwIP says %d\n", what, err);
        exit(1);
}

static void send_back(struct netconn *c)
{
        struct netbuf *buf;

        while (netconn_recv(c, &buf) == ERR_OK) {
                do {
                        void *data;
                        u16_t len;
                        netbuf_data(buf, &data, &len);
                        wanted(netconn_write(c, data, len, NETCONN_COPY), "sending back");
                } while (netbuf_next(buf) >= 0);
                netbuf_delete(buf);
        }
        netconn_close(c);
        netconn_delete(c);
}

static void mirror(uint16_t port)
{
        struct netconn *l = netconn_new(NETCONN_TCP), *c;

        wanted(netconn_bind(l, IP_ADDR_ANY, port), "binding");
        wanted(netconn_listen(l), "listening");
        printf("listens\n");
        fflush(stdout);
        while (netconn_accept(l, &c) == ERR_OK)
                send_back(c);
}

static void compare(struct netconn *c, const uint8_t *sent, size_t want)
{
        struct netbuf *buf;

        for (size_t at = 0; at < want;) {
                uint8_t got[BLOCK];
                u16_t len;
                wanted(netconn_recv(c, &buf), "receiving");
                len = netbuf_len(buf);
                if (len > want - at)
                        die("more came back than was sent");
                netbuf_copy(buf, got, len);
                netbuf_delete(buf);
                if (memcmp(got, sent + at, len) != 0) {
                        fprintf(stderr, "lwip_host: other bytes came back\n");
                        exit(1);
                }
                at += len;
        }
}

static void reflect(const char *peer, uint16_t port, unsigned megabytes)
{
        struct netconn *c = netconn_new(NETCONN_TCP);
        ip_addr_t to = IPADDR4_INIT(inet_addr(peer));
        static uint8_t block[BLOCK];
        uint32_t x = 1;

        wanted(netconn_connect(c, &to, port), "connecting");
        for (unsigned i = 0; i < megabytes * ((1u << 20) / BLOCK); i++) {
                for (unsigned j = 0; j < BLOCK; j++)
                        block[j] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
                wanted(netconn_write(c, block, BLOCK, NETCONN_COPY), "sending");
                compare(c, block, BLOCK);
        }
        netconn_close(c);
        printf("all\n");
}

int main(int argc, char **argv)
{
        if (argc == 5 && strcmp(argv[3], "mirror") == 0) {
                begin(argv[1], argv[2]);
                mirror((uint16_t)atoi(argv[4]));
        } else if (argc == 7 && strcmp(argv[3], "reflect") == 0) {
                begin(argv[1], argv[2]);
                reflect(argv[4], (uint16_t)atoi(argv[5]), (unsigned)atoi(argv[6]));
                return 0;
        } else {
                fprintf(stderr, "usage: lwip_host INTERFACE ADDRESS mirror PORT | reflect PEER "
                                "PORT MEGABYTES\n");
        }
        return 2;
}
