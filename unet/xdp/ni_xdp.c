/*
 * Provider `xdp`: moving packets. See ni_xdp.h for who owns what, xdp.h for the memory.
 *
 * What every ring holds follows from words that the kernel sees, so a death between any two stores
 * leaves little to repair. Transmit: with `used` = TX producer - COMPLETION consumer, chunks 0 ..
 * used-1 were used before; a send takes chunks that came back, and only when there are none the
 * next one that was not used, so that few are in use, and near, where few packets are under way.
 * Where a send goes to in both rings is noted first, then TX is published: if it was, the
 * completions that it took were taken. Receive: a chunk is marked before it leaves a ring and
 * before it enters one, RX is consumed before FILL is published.
 */
#include "unet/xdp/ni_xdp.h"

#include <linux/net_tstamp.h>
#include <linux/virtio_net.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/sandbox.h"
#include "base/sys.h"

/* Chunks given back that the kernel is not told of before the next flush. */
#define PUBLISH_EVERY 32u
#define PUBLISH_LARGE 4u /* ... and large ones */
/* xdp_desc.options: the packet goes on in the next one (XDP_PKT_CONTD of Linux 6.6). */
#define MORE 1u

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

        return MIN(MIN(unused + done, x->geom.tx_chunks) / xdp_tx_pieces(&x->geom),
                   XDP_RING_MAX - unreaped);
}

/* Where a send is, before any of it is published. */
struct sending {
        uint32_t prod, comp, done; /* of TX, of COMPLETION, and how far that goes */
};

/* The next chunk, counted from the first transmit chunk. Any is safe; the kernel names each
 * one once. */
static uint32_t tx_chunk(struct ni_xdp *x, struct sending *at)
{
        if (unlikely(at->comp == at->done))
                return (at->prod - at->comp) & (x->geom.tx_chunks - 1);
        return (uint32_t)((*xdp_addr_at(&x->comp, at->comp++) - xdp_tx_addr(&x->geom)) /
                          x->geom.tx_chunk_bytes) &
               (x->geom.tx_chunks - 1);
}

/* A chunk at the next place of TX: where its bytes go. */
static uint8_t *tx_place(struct ni_xdp *x, struct sending *at, uint32_t len, uint32_t options)
{
        uint64_t off = (uint64_t)tx_chunk(x, at) * x->geom.tx_chunk_bytes;

        *xdp_desc_at(&x->tx, at->prod++) = (struct xdp_desc){
                .addr = xdp_tx_addr(&x->geom) + off, .len = len, .options = options};
        return x->umem + xdp_rx_bytes(&x->geom) + off;
}

/* One packet in several chunks. */
static void tx_write_long(struct ni_xdp *x, const struct unet_tx *tx, uint32_t len,
                          struct sending *at)
{
        for (uint32_t done = 0; done < len;) {
                uint32_t n = MIN(len - done, x->geom.tx_chunk_bytes);
                bool ours = unet_mem_gather_part(&x->tx_mem, tx, done, n,
                                                 tx_place(x, at, n, done + n < len ? MORE : 0));
                assert(ours);
                done += n;
        }
}

static uint32_t tx_write(struct ni_xdp *x, const struct unet_tx *tx, struct sending *at)
{
        uint32_t len = (uint32_t)unet_tx_bytes(tx);
        bool ours;

        /* caps.mtu, or what it has become since. */
        assert(len <= xdp_mtu_max(&x->geom) + XDP_ETH_BYTES);
        if (unlikely(len > x->geom.tx_chunk_bytes)) {
                tx_write_long(x, tx, len, at);
                return len;
        }
        ours = unet_mem_gather(&x->tx_mem, tx, tx_place(x, at, len, 0));
        assert(ours);
        return len;
}

/* In this order: see above. */
static void tx_publish(struct ni_xdp *x, const struct sending *at)
{
        xdp_publish(&x->sh->tx_next, at->prod);
        xdp_publish(&x->sh->comp_next, at->comp);
        xdp_publish(x->tx.prod, at->prod);
        xdp_publish(x->comp.cons, at->comp);
}

static int xdp_send(struct unet_chan *ch, const struct unet_tx *tx, int n)
{
        struct ni_xdp *x = xdp(ch);
        struct ni_xdp_shared *sh = x->sh;
        struct sending at = {xdp_own(x->tx.prod), xdp_own(x->comp.cons), xdp_theirs(x->comp.prod)};
        uint32_t room = xdp_room(ch), reap = xdp_own(&sh->reap_tail);
        uint64_t bytes = 0;
        int i;

        for (i = 0; i < n && room > 0; i++, room--) {
                bytes += tx_write(x, &tx[i], &at);
                if (tx[i].frame != 0)
                        sh->reap[reap++ % XDP_RING_MAX] = tx[i].frame;
        }
        if (i < n)
                count(x->cnt, COUNT_NI_TX_FULL);
        if (i > 0) {
                xdp_publish(&sh->reap_tail, reap);
                tx_publish(x, &at);
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

/* A process whose filter forbids send() polls instead. That wakes the kernel as well (xsk_poll()),
 * and does not say why it did not send. */
static long look(const struct ni_xdp *x)
{
        struct pollfd p = {.fd = x->sender};
        const struct timespec at_once = {0};

        if (sandbox_forbids(SANDBOX_PPOLL))
                poll(&p, 1, 0);
        else
                sys5(SYS_ppoll, &p, 1, &at_once, NULL, 0);
        return -EAGAIN;
}

/*
 * In copy mode this call is the transmission, and takes what its budget allows (32 packets on most
 * kernels), so it is repeated while TX becomes shorter. A kernel without room says EAGAIN, ENOBUFS
 * or EBUSY, and is asked again later; an interface that is down keeps its packets until there is a
 * flush after it came up.
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
                        err = sys6(SYS_sendto, x->sender, 0, 0, MSG_DONTWAIT, 0, 0);
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
 * The kernel copies a run into pages, and whoever lets go of them last gets them back: over a veth
 * that is the reader, on another core, and each run goes to pages that nobody has had for long. So
 * a run is asked a time of sending for (SOF_TIMESTAMPING_TX_SCHED), and its copy, which comes with
 * the answer and shares the pages, stays in the socket's error queue until some more runs have gone
 * and the reader has done. Then it is let go of, unread, and the next run's pages are those, still
 * in this core's cache. Without room for it in the queue the kernel keeps none.
 */
#define HELD 3u

static void hold(struct ni_xdp *x, struct msghdr *m)
{
        const uint32_t when = SOF_TIMESTAMPING_TX_SCHED;
        struct cmsghdr *c = CMSG_FIRSTHDR(m);
        struct msghdr unread = {.msg_iovlen = 0};

        *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof when),
                              .cmsg_level = SOL_SOCKET,
                              .cmsg_type = SO_TIMESTAMPING};
        memcpy(CMSG_DATA(c), &when, sizeof when);
        if (x->hold_more != 0)
                x->hold_more--;
        else if (sys3(SYS_recvmsg, x->packet, &unread, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
                x->hold_more = HELD - 1; /* there was none */
}

/* The kernel sums and cuts (packet(7), PACKET_VNET_HDR), so that its cost of a packet is paid once
 * a run. */
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
        struct iovec iov[2 + UNET_PIECES_MAX] = {{&how, sizeof how},
                                                 {(void *)(uintptr_t)r->hdr, r->hdr_len}};
        _Alignas(struct cmsghdr) uint8_t stamp[CMSG_SPACE(sizeof(uint32_t))];
        struct msghdr m = {.msg_iov = iov,
                           .msg_iovlen = 2u + r->npieces,
                           .msg_control = stamp,
                           .msg_controllen = sizeof stamp};
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

static enum frame_class class_of(const struct ni_xdp *x, uint64_t chunk)
{
        return chunk < x->geom.rx_large ? FRAME_LARGE : FRAME_SMALL;
}

/* Writes a chunk into FILL, behind what the kernel knows of. There is room for every chunk. */
static void fill_write(struct ni_xdp *x, uint32_t chunk)
{
        enum frame_class c = class_of(x, chunk);

        x->sh->owner[chunk] = XDP_BACK;
        atomic_signal_fence(memory_order_seq_cst);
        *xdp_addr_at(&x->fill[c], x->sh->fill_next[c]) = xdp_rx_addr(&x->geom, chunk);
        x->sh->fill_next[c]++;
}

/* Chunks between the settled place and `end` are the kernel's. */
static void fill_settle(struct ni_xdp *x, enum frame_class c, uint32_t end)
{
        for (uint32_t at = x->sh->fill_settled[c]; at != end; at++) {
                uint64_t chunk = xdp_rx_chunk(&x->geom, *xdp_addr_at(&x->fill[c], at));
                if (likely(chunk < xdp_rx_count(&x->geom)))
                        x->sh->owner[chunk] = XDP_KERNEL;
        }
        atomic_signal_fence(memory_order_seq_cst);
        x->sh->fill_settled[c] = end;
}

static void fill_publish_class(struct ni_xdp *x, enum frame_class c, uint32_t at_least)
{
        uint32_t end = x->sh->fill_next[c];

        if (end - x->sh->fill_settled[c] < at_least)
                return;
        xdp_publish(x->fill[c].prod, end);
        atomic_signal_fence(memory_order_seq_cst);
        fill_settle(x, c, end);
}

/* What is at least so many chunks, or an eighth of all. */
static void fill_publish(struct ni_xdp *x, uint32_t at_least)
{
        fill_publish_class(x, FRAME_SMALL, MIN(at_least, 1 + x->geom.rx_chunks / 8));
        if (x->geom.rx_large != 0)
                fill_publish_class(x, FRAME_LARGE, MIN(at_least, PUBLISH_LARGE));
}

/* The chunk of a descriptor, or UINT32_MAX: what our own kernel would never write. */
static uint32_t rx_chunk(struct ni_xdp *x, const struct xdp_desc *d)
{
        uint64_t chunk = xdp_rx_chunk(&x->geom, d->addr), end;

        if (chunk >= xdp_rx_count(&x->geom) || x->sh->owner[chunk] != XDP_KERNEL)
                return UINT32_MAX;
        end = xdp_rx_addr(&x->geom, (uint32_t)chunk) + xdp_rx_chunk_bytes(&x->geom, chunk);
        if (d->len > end - d->addr || (unlikely(d->options != 0) && !ni_xdp_note(x, d)))
                return UINT32_MAX;
        return (uint32_t)chunk;
}

/* A descriptor at that place, where there may be one up to `end`. */
static bool rx_is_there(const struct ni_xdp *x, uint32_t at, uint32_t end)
{
        const uint32_t *options = &xdp_desc_at(&x->rx, at)->options;

        if (at == end || x->words == NULL)
                return at != end;
        return (__atomic_load_n(options, __ATOMIC_ACQUIRE) & ~x->rx.mask) ==
               tcx_lap(at, x->rx.mask);
}

/* No more than a ring holds, whatever its words say. */
static uint32_t rx_end(const struct ni_xdp *x, uint32_t at)
{
        return at + (x->words != NULL ? x->rx.mask + 1
                                      : MIN(xdp_theirs(x->rx.prod) - at, x->rx.mask + 1));
}

/* Headers are private to the receiver from here on; the rest of a long packet is lent. */
static bool rx_take(struct ni_xdp *x, uint32_t at, struct unet_rx *rx)
{
        struct xdp_desc d = *(const volatile struct xdp_desc *)xdp_desc_at(&x->rx, at);
        uint32_t chunk, rest;

        if (x->words != NULL)
                d.options &= x->rx.mask;
        chunk = rx_chunk(x, &d);
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
        rx->frame = xdp_frame_of(&x->geom, d.addr);
        rx->off = (uint32_t)(d.addr - frame_geom_offset(xdp_frame_geom(&x->geom), rx->frame)) +
                  rx->inl_len;
        rx->len = rest;
        x->sh->owner[chunk] = XDP_LENT;
        x->sh->loans++;
        return true;
}

static int xdp_recv(struct unet_chan *ch, struct unet_rx *rx, int n)
{
        struct ni_xdp *x = xdp(ch);
        uint32_t start = xdp_own(x->rx.cons), cons = start, end = rx_end(x, start);
        uint64_t bytes = 0;
        int got = 0;

        if (unlikely(x->notes != 0))
                ni_xdp_notes_done(x, true);
        while (got < n && rx_is_there(x, cons, end))
                if (rx_take(x, cons++, &rx[got])) {
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

/* UINT64_MAX: of none. */
static uint64_t chunk_of_frame(const struct ni_xdp *x, uint32_t frame)
{
        struct frame_geom g = xdp_frame_geom(&x->geom);

        return frame != 0 && frame <= frame_geom_total(g)
                       ? xdp_rx_chunk(&x->geom, frame_geom_offset(g, frame))
                       : UINT64_MAX;
}

static void xdp_release(struct unet_chan *ch, const uint32_t *frame, int n)
{
        struct ni_xdp *x = xdp(ch);

        for (int i = 0; i < n; i++) {
                uint64_t chunk = chunk_of_frame(x, frame[i]);
                if (unlikely(chunk >= xdp_rx_count(&x->geom) || x->sh->owner[chunk] != XDP_LENT)) {
                        count(x->cnt, COUNT_NI_BAD_RETURN);
                        continue;
                }
                fill_write(x, (uint32_t)chunk);
                x->sh->loans--;
        }
        fill_publish(x, PUBLISH_EVERY);
}

/* ---- once a batch ---- */

/* What recv() will read first lies in another processor's cache, and comes over while the caller
 * gets there. */
static void fetch(const struct ni_xdp *x, const struct xdp_desc *d)
{
        const uint8_t *p = x->umem + READ_ONCE(d->addr);

        __builtin_prefetch(p);
        __builtin_prefetch(p + CACHE_LINE);
}

static bool xdp_pending(struct unet_chan *ch)
{
        struct ni_xdp *x = xdp(ch);
        uint32_t at = xdp_own(x->rx.cons);

        if (rx_is_there(x, at, rx_end(x, at))) {
                fetch(x, xdp_desc_at(&x->rx, at));
                return true;
        }
        return xdp_own(&x->sh->reap_head) != xdp_own(&x->sh->reap_tail) ||
               atomic_load_explicit(&x->sh->tx_stuck, memory_order_relaxed);
}

/* A program is not told of every small chunk at once, unless they become few: each time is a line
 * that has to come back from the processor that it runs on. */
static void xdp_flush(struct unet_chan *ch)
{
        struct ni_xdp *x = xdp(ch);
        bool few = x->words == NULL || x->sh->loans > x->geom.rx_chunks / 2;

        if (unlikely(x->notes != 0))
                ni_xdp_notes_done(x, false);
        kick(x);
        fill_publish(x, few ? 1 : PUBLISH_EVERY);
        if (x->geom.rx_large != 0)
                fill_publish_class(x, FRAME_LARGE, 1);
        if (likely(!xdp_needs_wakeup(&x->fill[FRAME_SMALL])))
                return;
        if (unlikely(sandbox_forbids(SANDBOX_WAKE)))
                look(x);
        else
                sys6(SYS_recvfrom, x->xsk, 0, 0, MSG_DONTWAIT, 0, 0);
}

/* Of a socket the kernel knows by itself who sleeps on it. */
static void xdp_arm(struct unet_chan *ch)
{
        struct ni_xdp *x = xdp(ch);

        if (x->words == NULL)
                return;
        fill_publish(x, 1);
        atomic_store_explicit(x->bell.cons,
                              atomic_load_explicit(x->bell.prod, memory_order_acquire),
                              memory_order_release);
        *(volatile uint32_t *)&x->words->armed = 1;
        atomic_thread_fence(memory_order_seq_cst);
}

/* ---- after a death ---- */

/* What is in RX was taken, if at all, by a turn that did not end: it is taken again. */
static void forget_unread(struct ni_xdp *x)
{
        uint32_t at = xdp_own(x->rx.cons), end = rx_end(x, at);

        for (; rx_is_there(x, at, end); at++) {
                uint64_t chunk = xdp_rx_chunk(&x->geom, xdp_desc_at(&x->rx, at)->addr);
                if (chunk < xdp_rx_count(&x->geom))
                        x->sh->owner[chunk] = XDP_KERNEL;
        }
}

/* Marks are true now: what is on its way back is written again, what is lent is counted. */
static void count_owners(struct ni_xdp *x)
{
        x->sh->loans = 0;
        for (uint32_t chunk = 0; chunk < xdp_rx_count(&x->geom); chunk++) {
                if (x->sh->owner[chunk] == XDP_BACK)
                        fill_write(x, chunk);
                x->sh->loans += x->sh->owner[chunk] == XDP_LENT;
        }
        fill_publish(x, 1);
}

/* A send that was published took what it had noted; of any other one nothing has happened. */
static void repair_sending(struct ni_xdp *x)
{
        if (xdp_own(x->tx.prod) == xdp_own(&x->sh->tx_next)) {
                xdp_publish(x->comp.cons, xdp_own(&x->sh->comp_next));
        } else {
                xdp_publish(&x->sh->comp_next, xdp_own(x->comp.cons));
                xdp_publish(&x->sh->tx_next, xdp_own(x->tx.prod));
        }
}

static void xdp_repair(struct unet_chan *ch)
{
        struct ni_xdp *x = xdp(ch);

        for (enum frame_class c = FRAME_SMALL;
             c < (x->geom.rx_large != 0 ? FRAME_CLASSES : FRAME_LARGE); c++) {
                uint32_t published = xdp_own(x->fill[c].prod);
                if (published - x->sh->fill_settled[c] <= xdp_rx_count(&x->geom))
                        fill_settle(x, c, published);
                x->sh->fill_next[c] = x->sh->fill_settled[c];
        }
        forget_unread(x);
        count_owners(x);
        repair_sending(x);
        xdp_publish(&x->sh->reap_head, xdp_own(&x->sh->reap_tail));
        if (x->answers != NULL)
                ni_xdp_answers_repair(x);
}

void ni_xdp_reclaim(struct ni_xdp *x, bool (*held)(void *arg, uint32_t frame), void *arg)
{
        for (uint32_t chunk = 0; chunk < xdp_rx_count(&x->geom); chunk++) {
                uint32_t num = xdp_frame_of(&x->geom, xdp_rx_addr(&x->geom, chunk));
                bool two = chunk >= x->geom.rx_large && x->geom.chunk_bytes > FRAME_SMALL_BYTES;
                if (x->sh->owner[chunk] == XDP_LENT && !held(arg, num) &&
                    (!two || !held(arg, num + 1)))
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
        .arm = xdp_arm,
        .repair = xdp_repair,
};
