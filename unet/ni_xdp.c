/*
 * Provider `xdp`: moving packets. See ni_xdp.h for who owns what, xdp.h for the memory.
 *
 * What every ring holds follows from words that the kernel sees, so a death between any two stores leaves little to
 * repair. Transmit: with `used` = TX producer - COMPLETION consumer, chunks 0 .. used-1 were used before and used stays
 * at tx_chunks from the first lap on, when each send takes one completion. TX is published first; a death before the
 * completions are noted as taken leaves used > tx_chunks, which says how many to note. Receive: a chunk is marked before
 * it leaves a ring and before it enters one, RX is consumed before FILL is published.
 */
#include "unet/ni_xdp.h"

#include <linux/net_tstamp.h>
#include <linux/virtio_net.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "netstack/sandbox.h"
#include "netstack/sys.h"

#define PUBLISH_EVERY 32u               /* chunks given back that the kernel is not told of before the next flush */

static struct ni_xdp *xdp(struct unet_chan *ch)
{
        return (struct ni_xdp *)ch;
}

/* ---- sending ---- */

static uint32_t tx_used(const struct ni_xdp *x)
{
        return xdp_own(x->tx.prod) - xdp_own(x->comp.cons);
}

static uint32_t xdp_room(struct unet_chan *ch)
{
        struct ni_xdp *x = xdp(ch);
        uint32_t done = xdp_theirs(x->comp.prod) - xdp_own(x->comp.cons);
        uint32_t unused = x->geom.tx_chunks - tx_used(x);
        uint32_t unreaped = xdp_own(&x->sh->reap_tail) - xdp_own(&x->sh->reap_head);

        return MIN(MIN(unused + done, x->geom.tx_chunks), XDP_RING_MAX - unreaped);
}

/* The chunk for the next packet, counted from the first transmit chunk. Any is safe; the kernel names each one once. */
static uint32_t tx_chunk(struct ni_xdp *x, uint32_t used, uint32_t *comp)
{
        uint64_t first = x->geom.rx_chunks;

        if (unlikely(used < x->geom.tx_chunks))
                return used;
        return (uint32_t)(*xdp_addr_at(&x->comp, (*comp)++) / x->geom.chunk_bytes - first) & (x->geom.tx_chunks - 1);
}

static uint32_t tx_write(struct ni_xdp *x, const struct unet_tx *tx, uint32_t chunk, struct xdp_desc *desc)
{
        uint64_t addr = (uint64_t)(x->geom.rx_chunks + chunk) * x->geom.chunk_bytes;
        size_t len = unet_tx_bytes(tx);
        bool ours;

        assert(len <= x->geom.chunk_bytes - XDP_HEADROOM);      /* caps.mtu, or what it has become since */
        ours = unet_mem_gather(&x->tx_mem, tx, x->umem + addr);
        assert(ours);
        *desc = (struct xdp_desc){.addr = addr, .len = (uint32_t)len};
        return (uint32_t)len;
}

static int xdp_send(struct unet_chan *ch, const struct unet_tx *tx, int n)
{
        struct ni_xdp *x = xdp(ch);
        struct ni_xdp_shared *sh = x->sh;
        uint32_t room = xdp_room(ch), prod = xdp_own(x->tx.prod), comp = xdp_own(x->comp.cons), reap = xdp_own(&sh->reap_tail);
        uint64_t bytes = 0;
        int i;

        for (i = 0; i < n && room > 0; i++, room--, prod++) {
                bytes += tx_write(x, &tx[i], tx_chunk(x, prod - comp, &comp), xdp_desc_at(&x->tx, prod));
                if (tx[i].frame != 0)
                        sh->reap[reap++ % XDP_RING_MAX] = tx[i].frame;
        }
        if (i < n)
                count(x->cnt, COUNT_NI_TX_FULL);
        if (i > 0) {
                xdp_publish(&sh->reap_tail, reap);
                xdp_publish(x->tx.prod, prod);
                xdp_publish(x->comp.cons, comp);
                count_add(x->cnt, COUNT_NI_TX_MSGS, (uint64_t)i);
                count_add(x->cnt, COUNT_NI_TX_BYTES, bytes);
        }
        return i;
}

static int xdp_reap(struct unet_chan *ch, uint32_t *frame, int n)
{
        struct ni_xdp_shared *sh = xdp(ch)->sh;
        uint32_t head = xdp_own(&sh->reap_head), tail = xdp_own(&sh->reap_tail);
        int got = 0;

        while (got < n && head != tail)
                frame[got++] = sh->reap[head++ % XDP_RING_MAX];
        xdp_publish(&sh->reap_head, head);
        return got;
}

/* Whoever may not send() looks, which wakes the kernel as well (xsk_poll()) and says nothing of why it did not send. */
static long look(const struct ni_xdp *x)
{
        struct pollfd p = {.fd = x->xsk};
        const struct timespec at_once = {0};

        if (sandbox_forbids(SANDBOX_PPOLL))
                poll(&p, 1, 0);
        else
                sys5(SYS_ppoll, &p, 1, &at_once, NULL, 0);
        return -EAGAIN;
}

/*
 * In copy mode this call is the transmission, and takes what its budget allows (32 packets on most kernels), so it is
 * repeated while TX becomes shorter. A kernel without room says EAGAIN, ENOBUFS or EBUSY, and is asked again later; an
 * interface that is down keeps its packets until there is a flush after it came up.
 */
static void kick(struct ni_xdp *x)
{
        uint32_t prod = xdp_own(x->tx.prod), before, left = prod - xdp_theirs(x->tx.cons);
        long err = 0;

        while (left != 0 && xdp_needs_wakeup(&x->tx)) {
                before = left;
                if (unlikely(sandbox_forbids(SANDBOX_WAKE)))
                        err = look(x);
                else
                        err = sys6(SYS_sendto, x->xsk, 0, 0, MSG_DONTWAIT, 0, 0);
                left = prod - xdp_theirs(x->tx.cons);
                if (left >= before)
                        break;
        }
        if (left == 0)
                err = 0;
        atomic_store_explicit(&x->sh->tx_stuck, err == -EAGAIN || err == -ENOBUFS || err == -EBUSY,
                              memory_order_relaxed);
}

/*
 * The kernel copies a run into pages, and whoever lets go of them last gets them back: over a veth that is the reader, on
 * another core, and each run goes to pages that nobody has had for long. So a run is asked a time of sending for
 * (SOF_TIMESTAMPING_TX_SCHED), and its copy, which comes with the answer and shares the pages, stays in the socket's error
 * queue until some more runs have gone and the reader has done. Then it is let go of, unread, and the next run's pages are
 * those, still in this core's cache. Without room for it in the queue the kernel keeps none.
 */
#define HELD 3u

static void hold(struct ni_xdp *x, struct msghdr *m)
{
        const uint32_t when = SOF_TIMESTAMPING_TX_SCHED;
        struct cmsghdr *c = CMSG_FIRSTHDR(m);
        struct msghdr unread = {.msg_iovlen = 0};

        *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof when), .cmsg_level = SOL_SOCKET, .cmsg_type = SO_TIMESTAMPING};
        memcpy(CMSG_DATA(c), &when, sizeof when);
        if (x->hold_more != 0)
                x->hold_more--;
        else if (sys3(SYS_recvmsg, x->packet, &unread, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
                x->hold_more = HELD - 1;                /* there was none */
}

/* The kernel sums and cuts (packet(7), PACKET_VNET_HDR), so that its cost of a packet is paid once a run. */
static bool xdp_send_run(struct unet_chan *ch, const struct unet_run *r)
{
        struct ni_xdp *x = xdp(ch);
        struct virtio_net_hdr how = {
                .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
                .hdr_len = r->hdr_len,
                .gso_size = r->mss,
                .csum_start = r->l4,
                .csum_offset = 16,
        };
        struct iovec iov[2 + UNET_PIECES_MAX] = {{&how, sizeof how}, {(void *)(uintptr_t)r->hdr, r->hdr_len}};
        _Alignas(struct cmsghdr) uint8_t stamp[CMSG_SPACE(sizeof(uint32_t))];
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2u + r->npieces, .msg_control = stamp, .msg_controllen = sizeof stamp};
        uint32_t len = 0;

        for (uint32_t i = 0; i < r->npieces; i++) {
                iov[2 + i] = (struct iovec){(void *)(uintptr_t)r->piece[i].p, r->piece[i].len};
                len += r->piece[i].len;
        }
        kick(x);
        hold(x, &m);
        if (sys3(SYS_sendmsg, x->packet, &m, MSG_DONTWAIT) < 0)
                return false;
        count_add(x->cnt, COUNT_NI_TX_MSGS, 1);
        count_add(x->cnt, COUNT_NI_TX_BYTES, len + r->hdr_len);
        return true;
}

/* ---- receiving ---- */

/* Writes a chunk into FILL, behind what the kernel knows of. There is room for every chunk. */
static void fill_write(struct ni_xdp *x, uint32_t chunk)
{
        x->sh->owner[chunk] = XDP_BACK;
        atomic_signal_fence(memory_order_seq_cst);
        *xdp_addr_at(&x->fill, x->sh->fill_next) = (uint64_t)chunk * x->geom.chunk_bytes;
        x->sh->fill_next++;
}

/* Chunks between the settled place and `end` are the kernel's. */
static void fill_settle(struct ni_xdp *x, uint32_t end)
{
        for (uint32_t at = x->sh->fill_settled; at != end; at++) {
                uint64_t chunk = *xdp_addr_at(&x->fill, at) / x->geom.chunk_bytes;
                if (likely(chunk < x->geom.rx_chunks))
                        x->sh->owner[chunk] = XDP_KERNEL;
        }
        atomic_signal_fence(memory_order_seq_cst);
        x->sh->fill_settled = end;
}

static void fill_publish(struct ni_xdp *x, uint32_t at_least)
{
        uint32_t end = x->sh->fill_next;

        if (end - x->sh->fill_settled < at_least)
                return;
        xdp_publish(x->fill.prod, end);
        atomic_signal_fence(memory_order_seq_cst);
        fill_settle(x, end);
}

/* The chunk of a descriptor, or UINT32_MAX: what our own kernel would never write. */
static uint32_t rx_chunk(const struct ni_xdp *x, const struct xdp_desc *d)
{
        uint64_t chunk = d->addr / x->geom.chunk_bytes;
        uint32_t off = (uint32_t)(d->addr % x->geom.chunk_bytes);

        if (chunk >= x->geom.rx_chunks || d->len > x->geom.chunk_bytes - off || d->options != 0 ||
            x->sh->owner[chunk] != XDP_KERNEL)
                return UINT32_MAX;
        return (uint32_t)chunk;
}

/* Headers are private to the receiver from here on; the rest of a long packet is lent. */
static bool rx_take(struct ni_xdp *x, const struct xdp_desc *in_ring, struct unet_rx *rx)
{
        struct xdp_desc d = *(const volatile struct xdp_desc *)in_ring;
        uint32_t chunk = rx_chunk(x, &d), rest;

        if (unlikely(chunk == UINT32_MAX)) {
                count_drop(x->cnt, DROP_NI_MALFORMED);
                return false;
        }
        rx->inl_len = MIN(d.len, x->inline_most);
        rx->nmore = 0;
        memcpy(rx->inl, x->umem + d.addr, rx->inl_len);
        rest = d.len - rx->inl_len;
        if (rest == 0) {
                rx->frame = rx->off = rx->len = 0;
                fill_write(x, chunk);
                return true;
        }
        rx->frame = (uint32_t)(d.addr / FRAME_SMALL_BYTES) + 1;
        rx->off = (uint32_t)(d.addr % FRAME_SMALL_BYTES) + rx->inl_len;
        rx->len = rest;
        x->sh->owner[chunk] = XDP_LENT;
        x->sh->loans++;
        return true;
}

static int xdp_recv(struct unet_chan *ch, struct unet_rx *rx, int n)
{
        struct ni_xdp *x = xdp(ch);
        uint32_t start = xdp_own(x->rx.cons), cons = start;
        uint32_t end = start + MIN(xdp_theirs(x->rx.prod) - start, x->rx.mask + 1);
        uint64_t bytes = 0;
        int got = 0;

        while (got < n && cons != end)
                if (rx_take(x, xdp_desc_at(&x->rx, cons++), &rx[got])) {
                        bytes += rx[got].inl_len + rx[got].len;
                        got++;
                }
        if (cons != start) {
                xdp_publish(x->rx.cons, cons);
                fill_publish(x, PUBLISH_EVERY);
                count_add(x->cnt, COUNT_NI_RX_MSGS, (uint64_t)got);
                count_add(x->cnt, COUNT_NI_RX_BYTES, bytes);
        }
        return got;
}

static void xdp_release(struct unet_chan *ch, const uint32_t *frame, int n)
{
        struct ni_xdp *x = xdp(ch);

        for (int i = 0; i < n; i++) {
                uint64_t chunk = (uint64_t)(frame[i] - 1) * FRAME_SMALL_BYTES / x->geom.chunk_bytes;
                if (unlikely(chunk >= x->geom.rx_chunks || x->sh->owner[chunk] != XDP_LENT)) {
                        count(x->cnt, COUNT_NI_BAD_RETURN);
                        continue;
                }
                fill_write(x, (uint32_t)chunk);
                x->sh->loans--;
        }
        fill_publish(x, PUBLISH_EVERY);
}

/* ---- once a batch ---- */

static bool xdp_pending(struct unet_chan *ch)
{
        struct ni_xdp *x = xdp(ch);

        return xdp_theirs(x->rx.prod) != xdp_own(x->rx.cons) || xdp_own(&x->sh->reap_head) != xdp_own(&x->sh->reap_tail) ||
               atomic_load_explicit(&x->sh->tx_stuck, memory_order_relaxed);
}

static void xdp_flush(struct unet_chan *ch)
{
        struct ni_xdp *x = xdp(ch);

        fill_publish(x, 1);
        kick(x);
        if (likely(!xdp_needs_wakeup(&x->fill)))
                return;
        if (unlikely(sandbox_forbids(SANDBOX_WAKE)))
                look(x);
        else
                sys6(SYS_recvfrom, x->xsk, 0, 0, MSG_DONTWAIT, 0, 0);
}

/* ---- after a death ---- */

/* What is in RX was taken, if at all, by a turn that did not end: it is taken again. */
static void forget_unread(struct ni_xdp *x)
{
        uint32_t at = xdp_own(x->rx.cons), end = at + MIN(xdp_theirs(x->rx.prod) - at, x->rx.mask + 1);

        for (; at != end; at++) {
                uint64_t chunk = xdp_desc_at(&x->rx, at)->addr / x->geom.chunk_bytes;
                if (chunk < x->geom.rx_chunks)
                        x->sh->owner[chunk] = XDP_KERNEL;
        }
}

/* Marks are true now: what is on its way back is written again, what is lent is counted. */
static void count_owners(struct ni_xdp *x)
{
        x->sh->loans = 0;
        for (uint32_t chunk = 0; chunk < x->geom.rx_chunks; chunk++) {
                if (x->sh->owner[chunk] == XDP_BACK)
                        fill_write(x, chunk);
                x->sh->loans += x->sh->owner[chunk] == XDP_LENT;
        }
        fill_publish(x, 1);
}

static void xdp_repair(struct unet_chan *ch)
{
        struct ni_xdp *x = xdp(ch);
        uint32_t published = xdp_own(x->fill.prod);

        if (published - x->sh->fill_settled <= x->geom.rx_chunks)
                fill_settle(x, published);
        x->sh->fill_next = x->sh->fill_settled;
        forget_unread(x);
        count_owners(x);
        if (tx_used(x) > x->geom.tx_chunks)
                xdp_publish(x->comp.cons, xdp_own(x->tx.prod) - x->geom.tx_chunks);
        xdp_publish(&x->sh->reap_head, xdp_own(&x->sh->reap_tail));
}

void ni_xdp_reclaim(struct ni_xdp *x, bool (*held)(void *arg, uint32_t frame), void *arg)
{
        uint32_t frames = x->geom.chunk_bytes / FRAME_SMALL_BYTES;

        for (uint32_t chunk = 0; chunk < x->geom.rx_chunks; chunk++) {
                uint32_t num = chunk * frames + 1;
                if (x->sh->owner[chunk] == XDP_LENT && !held(arg, num) && (frames == 1 || !held(arg, num + 1)))
                        xdp_release(&x->base, &num, 1);
        }
        fill_publish(x, 1);
}

const struct unet_ni_ops ni_xdp_ops = {
        .name = "xdp",
        .send = xdp_send,
        .send_run = xdp_send_run,
        .recv = xdp_recv,
        .release = xdp_release,
        .reap = xdp_reap,
        .room = xdp_room,
        .pending = xdp_pending,
        .flush = xdp_flush,
        .repair = xdp_repair,
};
