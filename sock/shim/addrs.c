/*
 * Programs that list addresses see those of unetd's interfaces as if the kernel had them: by
 * getifaddrs(3) and by the ioctls of netdevice(7). The interface itself the kernel has, with its
 * name, number and flags; what it says there is kept, and our address added to it. The broadcast
 * address is that of the network.
 */
#include "sock/shim/addrs.h"
#include "sock/shim/shim.h"
#include "sock/usock_ifaces.h"

#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/ioctl.h>

unsigned shim_ifaces(struct usock_iface v[USOCK_IFACES])
{
        unsigned n = 0;

        if (usock_tls.inside || !shim_start())
                return 0;
        usock_enter();
        n = usock_ifaces(v);
        usock_leave();
        return n;
}

static uint32_t mask_of(const struct usock_iface *f)
{
        return f->prefix != 0 ? ~0u << (32 - f->prefix) : 0;
}

uint32_t shim_iface_broadcast(const struct usock_iface *f)
{
        return f->prefix < 31 ? f->addr | ~mask_of(f) : 0;
}

/* ---- getifaddrs() ---- */

/* Entries of ours, in one piece behind those of libc's that they are listed after. */
struct entry {
        struct ifaddrs a;
        struct sockaddr_in addr, mask, broadcast;
        char name[IF_NAMESIZE];
};

static bool is_ours(const struct ifaddrs *a)
{
        return a->ifa_name == ((const struct entry *)(const void *)a)->name;
}

static struct sockaddr *put(struct sockaddr_in *sin, uint32_t addr)
{
        *sin = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(addr)};
        return (void *)sin;
}

/* `link`: what libc says of the interface. */
static void fill(struct entry *e, const struct usock_iface *f, const struct ifaddrs *link)
{
        e->a.ifa_flags = link->ifa_flags & ~(f->down ? IFF_UP | IFF_RUNNING : 0u);
        memcpy(e->name, f->name, sizeof e->name);
        e->a.ifa_name = e->name;
        e->a.ifa_addr = put(&e->addr, f->addr);
        e->a.ifa_netmask = put(&e->mask, mask_of(f));
        if (shim_iface_broadcast(f) != 0)
                e->a.ifa_broadaddr = put(&e->broadcast, shim_iface_broadcast(f));
}

/* libc lists links, then IPv4 addresses, then IPv6. */
static bool is_before(const struct ifaddrs *a)
{
        return a->ifa_addr == NULL || a->ifa_addr->sa_family == AF_PACKET ||
               a->ifa_addr->sa_family == AF_INET;
}

static const struct ifaddrs *find_link(const struct ifaddrs *a, const char *name)
{
        while (a != NULL && strcmp(a->ifa_name, name) != 0)
                a = a->ifa_next;
        return a;
}

static bool merge(struct ifaddrs *list, const struct usock_iface *v, unsigned n)
{
        struct entry *e = calloc(n, sizeof *e);
        struct ifaddrs *at = list;

        if (e == NULL)
                return false;
        while (at->ifa_next != NULL && is_before(at->ifa_next))
                at = at->ifa_next;
        for (unsigned i = 0; i < n; i++, e++) {
                fill(e, &v[i], find_link(list, v[i].name));
                e->a.ifa_next = at->ifa_next;
                at->ifa_next = &e->a;
                at = &e->a;
        }
        return true;
}

int h_getifaddrs(struct ifaddrs **list)
{
        struct usock_iface v[USOCK_IFACES];
        int r = REAL(getifaddrs)(list);
        unsigned n = r == 0 && *list != NULL ? shim_ifaces(v) : 0, there = 0;

        for (unsigned i = 0; i < n; i++)
                if (find_link(*list, v[i].name) != NULL) /* it may have gone a moment ago */
                        v[there++] = v[i];
        if (there != 0 && !merge(*list, v, there)) {
                REAL(freeifaddrs)(*list);
                errno = ENOMEM;
                r = -1;
        }
        return r;
}

void h_freeifaddrs(struct ifaddrs *list)
{
        struct ifaddrs *a = list;

        while (a != NULL && !is_ours(a))
                a = a->ifa_next;
        REAL(freeifaddrs)(list);
        free(a);
}

/* ---- ioctl() ---- */

bool addrs_ioctl(unsigned long req)
{
        return req == SIOCGIFCONF || req == SIOCGIFFLAGS || req == SIOCGIFADDR ||
               req == SIOCGIFNETMASK || req == SIOCGIFBRDADDR || req == SIOCGIFDSTADDR;
}

/* Our entries after the kernel's, as far as there is room; who asks with no buffer is told how much
 * is needed. */
static int list_more(struct ifconf *conf, int room, const struct usock_iface *v, unsigned n)
{
        struct ifconf c = *conf;

        for (unsigned i = 0; i < n; i++, c.ifc_len += (int)sizeof(struct ifreq)) {
                struct ifreq r = {.ifr_flags = 0};

                if (c.ifc_buf == NULL)
                        continue;
                if (c.ifc_len + (int)sizeof r > room)
                        break;
                memcpy(r.ifr_name, v[i].name, sizeof r.ifr_name);
                put((void *)&r.ifr_addr, v[i].addr);
                if (!user_copy(c.ifc_buf + c.ifc_len, &r, sizeof r))
                        return -EFAULT;
        }
        conf->ifc_len = c.ifc_len;
        return 0;
}

static const struct usock_iface *find_iface(const struct usock_iface *v, unsigned n,
                                            const char *name)
{
        for (unsigned i = 0; i < n; i++)
                if (strncmp(v[i].name, name, IF_NAMESIZE) == 0)
                        return &v[i];
        return NULL;
}

static uint32_t asked(unsigned long req, const struct usock_iface *f)
{
        switch (req) {
        case SIOCGIFNETMASK:
                return mask_of(f);
        case SIOCGIFBRDADDR:
                return shim_iface_broadcast(f);
        default:
                return f->addr;
        }
}

static int do_list(int fd, struct ifconf *conf)
{
        struct usock_iface v[USOCK_IFACES];
        unsigned n = shim_ifaces(v); /* none: maybe no handler for bad pointers either */
        int room = n != 0 && user_read_range(conf, sizeof *conf) ? conf->ifc_len : 0;
        int r = (int)sys3(SYS_ioctl, fd, SIOCGIFCONF, conf);

        return r < 0 ? r : list_more(conf, room, v, n);
}

int addrs_do_ioctl(int fd, unsigned long req, void *arg)
{
        struct usock_iface v[USOCK_IFACES];
        const struct usock_iface *f;
        struct sockaddr_in sin;
        struct ifreq *q = arg;
        int r;

        if (req == SIOCGIFCONF)
                return do_list(fd, arg);
        r = (int)sys3(SYS_ioctl, fd, req, arg);
        if (r != (req == SIOCGIFFLAGS ? 0 : -EADDRNOTAVAIL))
                return r;
        f = find_iface(v, shim_ifaces(v), q->ifr_name);
        if (f == NULL)
                return r;
        if (req != SIOCGIFFLAGS)
                return user_copy(&q->ifr_addr, put(&sin, asked(req, f)), sizeof sin) ? 0 : -EFAULT;
        if (f->down)
                q->ifr_flags &= (short)~(IFF_UP | IFF_RUNNING);
        return 0;
}
