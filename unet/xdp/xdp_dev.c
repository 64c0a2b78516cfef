/* An interface gets our XDP program, on a link that nobody pins. */
#include <errno.h>
#include <linux/if_link.h>
#include <unistd.h>

#include "unet/xdp/bpf_obj.h"
#include "unet/packet/ifinfo.h"
#include "unet/xdp/tcx_link.h"
#include "unet/packet/line.h"
#include "unet/xdp/xdp_open.h"
#include "xdp_prog.h" /* made from xdp_prog.bpf.c: xdp_prog[] */

/* ---- the interface ---- */

static int look_at(struct xdp_dev *d, const char *ifname, char line[XDP_LINE_MAX])
{
        struct ifinfo i;
        int err = ifinfo_get(&i, ifname);

        if (err == -ENODEV)
                say(line,
                    i.ifindex == 0 ? "no interface \"%s\" here"
                                   : "\"%s\" is not an Ethernet interface",
                    ifname);
        if (err != 0)
                return err;
        d->ifindex = i.ifindex;
        d->mtu = i.mtu;
        d->queues = i.queues;
        d->csum_pseudo = i.veth;
        memcpy(d->mac, i.mac, sizeof d->mac);
        return 0;
}

static int check_mtu(const struct xdp_dev *d, const char *ifname, char line[XDP_LINE_MAX])
{
        if (xdp_chunk_for(d->mtu) != 0)
                return 0;
        say(line, "MTU %u of %s is more than a packet buffer of 4096 bytes holds (at most %u)",
            d->mtu, ifname, 4096 - XDP_HEADROOM - XDP_ETH_BYTES);
        return -EMSGSIZE;
}

/* ---- the program ---- */

static int load(struct xdp_dev *d, struct bpf_object **out, char line[XDP_LINE_MAX])
{
        struct bpf_object *obj = bpf_obj_open("unet_xdp", xdp_prog, sizeof xdp_prog);
        int err;

        if (obj == NULL)
                return -errno;
        err = bpf_map__set_max_entries(bpf_object__find_map_by_name(obj, "sockets"), d->queues);
        if (err == 0)
                err = bpf_object__load(obj);
        if (err != 0) {
                say(line, "the XDP program cannot be loaded: %s%s", strerror(-err),
                    err == -EPERM ? " (needs CAP_BPF and CAP_NET_ADMIN, or root; before Linux 5.11 "
                                    "also locked memory)"
                                  : "");
                bpf_object__close(obj);
                return err;
        }
        *out = obj;
        return 0;
}

static int attach(struct xdp_dev *d, int prog, enum xdp_mode mode)
{
        LIBBPF_OPTS(bpf_link_create_opts, opts,
                    .flags = mode == XDP_MODE_NATIVE ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE);
        int fd = bpf_link_create(prog, (int)d->ifindex, BPF_XDP, &opts);

        if (fd < 0)
                return -errno;
        d->link = fd;
        d->mode = mode;
        return 0;
}

static void say_refused(const char *ifname, const struct xdp_dev *d, int err,
                        char line[XDP_LINE_MAX])
{
        if (err == -EBUSY)
                say(line, "%s has another XDP program already", ifname);
        else if (err == -EMSGSIZE)
                say(line, "the driver of %s takes no XDP program at MTU %u (veth: at most 3498)",
                    ifname, d->mtu);
        else
                say(line, "no XDP program on %s: %s", ifname, strerror(-err));
}

/* What the kernel answers where a driver's buffers are too small for the MTU; and where there is a
 * program already. */
static int named(int err)
{
        return err == -ERANGE ? -EMSGSIZE : err == -EEXIST ? -EBUSY : err;
}

/* Nothing is on the interface yet: all packets of it will be for one stack, and so what takes them
 * is made with that. */
static int choose_tcx(struct xdp_dev *d, const char *ifname, char line[XDP_LINE_MAX])
{
        int link;

        if (d->mtu + XDP_ETH_BYTES > FRAME_LARGE_BYTES) {
                say(line, "MTU %u of %s is more than a packet buffer of 64 KB holds", d->mtu,
                    ifname);
                return -EMSGSIZE;
        }
        link = tcx_link_tap("to_kernel", d->ifindex);
        if (link < 0) {
                say(line, "no program can be hung behind the driver of %s: %s%s", ifname,
                    strerror(-link), link == -EOPNOTSUPP ? " (Linux 6.6 can)" : "");
                return link;
        }
        close(link);
        d->mode = XDP_MODE_TCX;
        d->csum_pseudo = true; /* what was joined on the way has no sums of its own */
        say(line, "%s: a program behind the driver (tcx)", ifname);
        return 0;
}

static int choose_mode(struct xdp_dev *d, int prog, const char *ifname, enum xdp_want want,
                       char line[XDP_LINE_MAX])
{
        int native = -EOPNOTSUPP, err = native;

        if (want != XDP_WANT_GENERIC)
                err = native = named(attach(d, prog, XDP_MODE_NATIVE));
        if (err != 0 && err != -EBUSY && err != -EPERM && want != XDP_WANT_NATIVE)
                err = named(attach(d, prog, XDP_MODE_GENERIC));
        if (err != 0)
                say_refused(ifname, d, err, line);
        else if (d->mode == XDP_MODE_NATIVE)
                say(line, "%s: XDP in the driver (native)", ifname);
        else if (want == XDP_WANT_GENERIC)
                say(line, "%s: XDP after the driver (generic), as asked", ifname);
        else
                say(line, "%s: XDP after the driver (generic), since the driver refuses it: %s",
                    ifname, strerror(-native));
        return err;
}

/* On a veth it is faster; and where there are several queues an AF_XDP socket would leave the
 * others' packets to the kernel. */
static int choose_best_tcx(struct xdp_dev *d, const char *ifname, char line[XDP_LINE_MAX])
{
        bool veth = d->csum_pseudo;
        int err = choose_tcx(d, ifname, line);

        if (d->queues > 1 && err == 0 && !veth)
                say(line,
                    "%s: a program behind the driver (tcx), since an AF_XDP socket takes one of "
                    "its %u queues",
                    ifname, d->queues);
        if (d->queues > 1 && err != 0)
                say(line,
                    "%s has %u queues, of which an AF_XDP socket takes one (Linux 6.6 can take "
                    "all; or ethtool -L %s combined 1)",
                    ifname, d->queues, ifname);
        return err;
}

int xdp_dev_open(struct xdp_dev *d, const char *ifname, enum xdp_want want, char line[XDP_LINE_MAX])
{
        struct bpf_object *obj = NULL;
        int err;

        *d = (struct xdp_dev){.link = -1, .map = -1, .shed = -1};
        line[0] = 0;
        err = look_at(d, ifname, line);
        if (err != 0)
                return err;
        if (want == XDP_WANT_TCX)
                return choose_tcx(d, ifname, line);
        if (want == XDP_WANT_BEST && (d->csum_pseudo || d->queues > 1)) {
                err = choose_best_tcx(d, ifname, line);
                if (err == 0 || d->queues > 1)
                        return err;
        }
        err = check_mtu(d, ifname, line);
        if (err == 0)
                err = load(d, &obj, line);
        if (err != 0)
                return err;
        err = choose_mode(d, bpf_program__fd(bpf_object__next_program(obj, NULL)), ifname, want,
                          line);
        if (err == 0)
                err = bpf_obj_keep(obj, "sockets", &d->map);
        if (err == 0)
                err = bpf_obj_keep(obj, "shed", &d->shed);
        bpf_object__close(obj);
        if (err != 0)
                xdp_dev_close(d);
        return err;
}

void xdp_dev_close(struct xdp_dev *d)
{
        if (d->link >= 0)
                close(d->link);
        if (d->map >= 0)
                close(d->map);
        if (d->shed >= 0)
                close(d->shed);
        d->link = d->map = d->shed = -1;
}
