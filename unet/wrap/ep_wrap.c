/* Wrappers before an endpoint's channel: capture and faults. */
#include <errno.h>
#include <time.h>

#include "unet/ep.h"
#include "unet/wrap/ni_fault.h"
#include "unet/wrap/ni_pcap.h"

static nstime wall_clock(void *arg)
{
        struct timespec ts;

        (void)arg;
        clock_gettime(CLOCK_REALTIME, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

int unet_chan_capture(struct unet_ep *ep, uint32_t chan, const char *path, uint32_t snaplen)
{
        const struct ep_chan *c = ep_chan(ep, chan);
        struct unet_segment seg = unet_ep_segment(ep);
        struct ni_pcap_opts o = {.clock = wall_clock, .tx = unet_mem_flat(seg.base, seg.tx_bytes)};
        int err;

        if (c == NULL)
                return -EBADF;
        err = pcap_file_open(path, snaplen, &o.file);
        if (err != 0)
                return err;
        o.skip = ep->link[c->link].l.tagged ? (uint32_t)sizeof(struct link_tag) : 0;
        err = ni_pcap_link(&ep->link[c->link].l, &o);
        if (err != 0)
                pcap_file_close(o.file);
        return err;
}

int unet_chan_fault(struct unet_ep *ep, uint32_t chan, const char *spec)
{
        const struct ep_chan *c = ep_chan(ep, chan);
        struct fault_params p;

        if (c == NULL)
                return -EBADF;
        if (fault_parse(spec, &p) != 0)
                return -EINVAL;
        return ni_fault_link(&ep->link[c->link].l, &p, &ep->cnt);
}
