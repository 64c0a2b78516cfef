/*
 * Interfaces that this unetd owns: [interface NAME] of the config file. A program of ours takes their packets (unet/xdp.h)
 * from the moment a stack asks for one until that stack is gone; before and after, they are the kernel's.
 *
 * An interface belongs to one stack at a time, the first that asks. The socket and its memory are made anew for each:
 * nothing of one stack's packets is seen by the next.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unet/xdp_open.h"
#include "unetd/daemon.h"
#include "unetd/probe.h"

struct iface {
        const struct unetd_iface_config *cfg;
        uint32_t number;                /* in the directory */
        bool works;
        uint32_t stack;                 /* 0: nobody has it */
        struct xdp_dev dev;
        struct xdp_sock sock;
};

static struct iface ifaces[UNETD_IFACES];
static_assert(UNETD_IFACES <= DIR_IFACES, "all can be published");

static enum xdp_want wanted(const struct iface *f)
{
        switch ((enum unetd_iface_mode)f->cfg->mode) {
        case IFACE_NATIVE:
                return XDP_WANT_NATIVE;
        case IFACE_GENERIC:
                return XDP_WANT_GENERIC;
        case IFACE_AUTO:
                break;
        }
        return XDP_WANT_BEST;
}

/* What can be known to fail is said when unetd starts: the interface is opened, and given back. One that cannot be had
 * (by a unetd of a user without privilege, say) stays the kernel's. */
static bool try(struct iface *f)
{
        char line[XDP_LINE_MAX];
        int r = xdp_dev_open(&f->dev, f->cfg->name, wanted(f), line);

        log_line("interface %s: %s", f->cfg->name, line);
        if (r == 0)
                xdp_dev_close(&f->dev);
        return r == 0;
}

/* An address that another host has is not ours to use, nor its interface. */
static void heed(struct iface *f, const struct probe *p)
{
        const uint8_t *m = p->rival;

        if (p->result == PROBE_TAKEN)
                log_line("interface %s: NOT USED: its address %u.%u.%u.%u is in use by %02x:%02x:%02x:%02x:%02x:%02x", p->ifname,
                         p->addr >> 24, p->addr >> 16 & 255, p->addr >> 8 & 255, p->addr & 255, m[0], m[1], m[2], m[3], m[4],
                         m[5]);
        else if (p->result == PROBE_UNKNOWN)
                log_line("interface %s: whether somebody else has its address is not known: %s", p->ifname, p->why);
        f->works = p->result != PROBE_TAKEN;
}

static void probe_all(void)
{
        struct probe p[UNETD_IFACES];
        struct iface *who[UNETD_IFACES];
        uint32_t n = 0;

        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++) {
                const struct unetd_iface_config *c = ifaces[i].cfg;

                if (!ifaces[i].works || c->probe == IFACE_PROBE_NO)
                        continue;
                who[n] = &ifaces[i];
                p[n++] = (struct probe){.ifname = c->name, .addr = c->addr, .prefix = c->prefix,
                                        .speed = c->probe == IFACE_PROBE_FULL ? 1 : PROBE_QUICK};
        }
        probe_addresses(p, n, unetd.signals.fd);
        for (uint32_t i = 0; i < n; i++)
                heed(who[i], &p[i]);
}

static void publish(struct iface *f)
{
        struct dir_iface d = {.peer = UNETD_IFACE | (uint32_t)(f - ifaces), .addr = f->cfg->addr,
                              .gateway = f->cfg->gateway, .prefix = f->cfg->prefix};

        memcpy(d.name, f->cfg->name, sizeof d.name);
        f->number = unetd.dir.d->nifaces;
        directory_add_iface(&unetd.dir, &d);
}

void ifaces_init(void)
{
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++) {
                ifaces[i] = (struct iface){.cfg = &unetd.cfg.iface[i]};
                ifaces[i].works = try(&ifaces[i]);
        }
        probe_all();
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++)
                if (ifaces[i].works)
                        publish(&ifaces[i]);
}

struct iface *iface_find(uint32_t peer)
{
        uint32_t i = peer & ~UNETD_IFACE;

        return unetd_is_iface(peer) && i < unetd.cfg.nifaces && ifaces[i].works ? &ifaces[i] : NULL;
}

int iface_take(struct iface *f, uint32_t stack)
{
        char line[XDP_LINE_MAX];
        int r;

        if (f->stack != 0)
                return -EBUSY;
        r = xdp_dev_open(&f->dev, f->cfg->name, wanted(f), line);
        if (r == 0) {
                r = xdp_sock_open(&f->sock, &f->dev, f->cfg->queue, (struct xdp_sizes){.rx_chunks = 8192, .tx_chunks = 2048}, line);
                if (r == 0 && f->sock.packet < 0) {
                        xdp_sock_close(&f->sock);
                        r = -EAFNOSUPPORT;
                        snprintf(line, sizeof line, "no packet socket");
                }
                if (r < 0)
                        xdp_dev_close(&f->dev);
        }
        log_line("interface %s, for stack %u: %s", f->cfg->name, stack, line);
        if (r < 0)
                return r;
        f->stack = stack;
        directory_iface_taken(&unetd.dir, f->number, stack);
        return 0;
}

void iface_release(struct iface *f)
{
        if (f->stack == 0)
                return;
        xdp_sock_close(&f->sock);
        xdp_dev_close(&f->dev);
        f->stack = 0;
        directory_iface_taken(&unetd.dir, f->number, 0);
}

void iface_describe(const struct iface *f, struct unetd_chan_info *info, int fds[UNETD_CHAN_FDS])
{
        info->peer_stack = UNETD_IFACE | (uint32_t)(f - ifaces);
        info->peer_chan = 0;
        info->peer_uid = 0;
        memcpy(info->iface.name, f->cfg->name, sizeof info->iface.name);
        info->iface.addr = f->cfg->addr;
        info->iface.gateway = f->cfg->gateway;
        info->iface.prefix = f->cfg->prefix;
        fds[UNETD_FD_IF_MEM] = f->sock.mem;
        fds[UNETD_FD_IF_XSK] = f->sock.xsk;
        fds[UNETD_FD_IF_PACKET] = f->sock.packet;
}

uint32_t iface_addrs(ip_addr *addrs, uint32_t n, uint32_t room)
{
        for (uint32_t i = 0; i < unetd.cfg.nifaces && n < room; i++)
                if (ifaces[i].works)
                        addrs[n++] = ip_addr_v4(unetd.cfg.iface[i].addr);
        return n;
}

bool iface_has_addr(ip_addr addr)
{
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++)
                if (ifaces[i].works && ip_addr_eq(addr, ip_addr_v4(unetd.cfg.iface[i].addr)))
                        return true;
        return false;
}
