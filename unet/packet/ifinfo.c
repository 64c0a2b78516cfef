/* See ifinfo.h. */
#include "unet/packet/ifinfo.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int ask(int sock, const char *ifname, unsigned long what, struct ifreq *r)
{
        *r = (struct ifreq){0};
        snprintf(r->ifr_name, sizeof r->ifr_name, "%s", ifname);
        return ioctl(sock, what, r) == 0 ? 0 : -errno;
}

static bool ask_driver(int sock, const char *ifname, void *what)
{
        struct ifreq r = {.ifr_data = what};

        snprintf(r.ifr_name, sizeof r.ifr_name, "%s", ifname);
        return ioctl(sock, SIOCETHTOOL, &r) == 0;
}

static uint32_t queues_of(int sock, const char *ifname)
{
        struct ethtool_channels ch = {.cmd = ETHTOOL_GCHANNELS};

        return ask_driver(sock, ifname, &ch) ? MAX(ch.rx_count + ch.combined_count, 1u) : 1;
}

static bool is_veth(int sock, const char *ifname)
{
        struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};

        return ask_driver(sock, ifname, &info) && strcmp(info.driver, "veth") == 0;
}

int ifinfo_get(struct ifinfo *i, const char *ifname)
{
        int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), err;
        struct ifreq r;

        *i = (struct ifinfo){.ifindex = 0};
        if (sock < 0)
                return -errno;
        i->ifindex = if_nametoindex(ifname);
        err = ask(sock, ifname, SIOCGIFHWADDR, &r);
        if (i->ifindex == 0 || err != 0 || r.ifr_hwaddr.sa_family != ARPHRD_ETHER) {
                close(sock);
                return -ENODEV;
        }
        memcpy(i->mac, r.ifr_hwaddr.sa_data, sizeof i->mac);
        err = ask(sock, ifname, SIOCGIFMTU, &r);
        i->mtu = (uint32_t)r.ifr_mtu;
        i->queues = queues_of(sock, ifname);
        i->veth = is_veth(sock, ifname);
        close(sock);
        return err;
}
