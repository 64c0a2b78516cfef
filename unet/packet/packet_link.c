/* Raw endpoints over packet sockets. See packet_link.h. */
#include "unet/packet/packet_link.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static_assert(ETHER_MSG_INLINE >= UNET_EP_INLINE,
              "what an endpoint may send in the descriptor fits behind the header");
#define ROOM 64u /* said of a queue whose length nobody knows */

struct packet_link {
        struct unet_chan base;
        struct ether_msg head;   /* of what is sent */
        struct unet_mem segment; /* the endpoint's */
        struct counters *cnt;
        int sock, out; /* out: the same */
        int ready;     /* an epoll instance with the socket: what the endpoint sleeps on */
        bool full;     /* the last send found no room */
        uint32_t sent;
        uint32_t injected[EP_SENDS]; /* names of messages that were sent, not reaped */
        uint32_t ninjected;
        uint32_t chunk_bytes;
        uint8_t *chunks;                     /* PACKET_CHUNKS of them */
        uint32_t nfree, free[PACKET_CHUNKS]; /* numbers, from 1 */
        bool lent[PACKET_CHUNKS + 1];
};

static struct packet_link *of(struct unet_chan *ch)
{
        return (struct packet_link *)ch;
}

int *packet_link_out(struct unet_chan *ch)
{
        return &of(ch)->out;
}

uint32_t packet_link_sent(const struct unet_chan *ch)
{
        return ((const struct packet_link *)ch)->sent;
}

/* ---- sending ---- */

struct gathered {
        struct ether_msg head;
        struct iovec iov[2 + UNET_RANGES_MAX];
};

/* The endpoint has checked its ranges. */
static void gather(const struct packet_link *l, const struct unet_tx *tx, struct gathered *g,
                   struct msghdr *m)
{
        size_t n = 0;

        g->head = l->head;
        g->head.inl_len = be16_of(tx->inl_len);
        g->head.len = be16_of((uint16_t)unet_tx_bytes(tx));
        g->iov[n++] = (struct iovec){&g->head, sizeof g->head};
        g->iov[n++] = (struct iovec){(void *)(uintptr_t)tx->inl, tx->inl_len};
        if (tx->frame != 0)
                g->iov[n++] = (struct iovec){unet_mem_at(&l->segment, tx->frame, tx->off, tx->len),
                                             tx->len};
        for (int i = 0; i < tx->nmore; i++)
                g->iov[n++] = (struct iovec){
                        unet_mem_at(&l->segment, tx->frame, tx->more[i].off, tx->more[i].len),
                        tx->more[i].len};
        for (size_t i = 2; i < n; i++)
                assert(g->iov[i].iov_base != NULL);
        *m = (struct msghdr){.msg_iov = g->iov, .msg_iovlen = n};
}

/* Names are EP_SENDS. */
static void sent(struct packet_link *l, const struct unet_tx *tx)
{
        assert(tx->frame == 0 || l->ninjected < EP_SENDS);
        if (tx->frame != 0)
                l->injected[l->ninjected++] = tx->frame;
        count(l->cnt, COUNT_NI_TX_MSGS);
        count_add(l->cnt, COUNT_NI_TX_BYTES, unet_tx_bytes(tx));
}

static bool waits(int err)
{
        return err == EAGAIN || err == ENOBUFS || err == EINTR;
}

/* What the interface does not take, since it is down, is lost as on a wire. */
static int link_send(struct unet_chan *ch, const struct unet_tx *tx, int n)
{
        struct packet_link *l = of(ch);
        struct gathered g[EP_BATCH];
        struct mmsghdr m[EP_BATCH];
        int all = MIN(n, EP_BATCH), at = 0;

        for (int i = 0; i < all; i++)
                gather(l, &tx[i], &g[i], &m[i].msg_hdr);
        while (at < all) {
                int r = sendmmsg(l->out, m + at, (unsigned)(all - at), MSG_DONTWAIT);
                if (r < 0 && waits(errno))
                        break;
                if (r < 0)
                        count_drop(l->cnt, DROP_NI_TX_FULL);
                l->sent += r > 0 ? (uint32_t)r : 0;
                for (int last = at + MAX(r, 1); at < last; at++)
                        sent(l, &tx[at]);
        }
        l->full = at < all;
        if (l->full)
                count(l->cnt, COUNT_NI_TX_FULL);
        return at;
}

static int link_reap(struct unet_chan *ch, uint32_t *frame, int n)
{
        struct packet_link *l = of(ch);
        uint32_t k = MIN(l->ninjected, (uint32_t)n);

        memcpy(frame, l->injected, k * sizeof *frame);
        l->ninjected -= k;
        memmove(l->injected, l->injected + k, l->ninjected * sizeof *frame);
        return (int)k;
}

static uint32_t link_room(struct unet_chan *ch)
{
        struct packet_link *l = of(ch);
        struct pollfd pfd = {.fd = l->out, .events = POLLOUT};

        if (l->full && poll(&pfd, 1, 0) == 1)
                l->full = false;
        return l->full ? 0 : ROOM;
}

static void link_want_room(struct unet_chan *ch, bool on)
{
        struct packet_link *l = of(ch);
        struct epoll_event ev = {.events = EPOLLIN | (on ? (uint32_t)EPOLLOUT : 0)};

        epoll_ctl(l->ready, EPOLL_CTL_MOD, l->sock, &ev);
}

static void link_flush(struct unet_chan *ch)
{
}

/* ---- receiving ---- */

static uint8_t *chunk(const struct packet_link *l, uint32_t number)
{
        return l->chunks + (size_t)(number - 1) * l->chunk_bytes;
}

static void give_back(struct packet_link *l, uint32_t number)
{
        l->free[l->nfree++] = number;
}

/* Takes the chunk, or gives it back. */
static enum drop unpack(struct packet_link *l, uint32_t number, uint32_t len, struct unet_rx *rx)
{
        uint32_t at = (uint32_t)(chunk(l, number) - l->chunks + sizeof(struct ether_msg));
        enum drop why = DROP_NI_MALFORMED;
        struct ether_msg h;

        memcpy(&h, chunk(l, number), sizeof h);
        if (len >= sizeof h && len <= l->chunk_bytes)
                why = ether_msg_check(&l->head, &h, len - (uint32_t)sizeof h);
        if (why != DROP_NONE) {
                give_back(l, number);
                return why;
        }
        rx->inl_len = be16_get(h.inl_len);
        memcpy(rx->inl, l->chunks + at, rx->inl_len);
        rx->nmore = 0;
        rx->len = be16_get(h.len) - rx->inl_len;
        rx->frame = rx->len != 0 ? number : 0;
        rx->off = rx->len != 0 ? at + rx->inl_len : 0;
        l->lent[number] = rx->len != 0;
        if (rx->len == 0)
                give_back(l, number);
        count(l->cnt, COUNT_NI_RX_MSGS);
        count_add(l->cnt, COUNT_NI_RX_BYTES, be16_get(h.len));
        return DROP_NONE;
}

/* As many at once as there are chunks for. */
static int take(struct packet_link *l, uint32_t number[EP_BATCH], uint32_t len[EP_BATCH], int n)
{
        struct mmsghdr m[EP_BATCH];
        struct iovec iov[EP_BATCH];
        int got;

        n = MIN(MIN(n, EP_BATCH), (int)l->nfree);
        for (int i = 0; i < n; i++) {
                number[i] = l->free[l->nfree - 1 - (uint32_t)i];
                iov[i] = (struct iovec){chunk(l, number[i]), l->chunk_bytes};
                m[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &iov[i], .msg_iovlen = 1}};
        }
        got = n > 0 ? recvmmsg(l->sock, m, (unsigned)n, MSG_DONTWAIT | MSG_TRUNC, NULL) : 0;
        for (int i = 0; i < got; i++)
                len[i] = m[i].msg_len;
        l->nfree -= got > 0 ? (uint32_t)got : 0;
        return MAX(got, 0);
}

static int link_recv(struct unet_chan *ch, struct unet_rx *rx, int n)
{
        struct packet_link *l = of(ch);
        uint32_t number[EP_BATCH], len[EP_BATCH];
        int got = 0, came;

        do {
                came = take(l, number, len, n - got);
                for (int i = 0; i < came; i++) {
                        enum drop why = unpack(l, number[i], len[i], &rx[got]);
                        if (why == DROP_NONE)
                                got++;
                        else
                                count_drop(l->cnt, why);
                }
        } while (came == EP_BATCH && got < n);
        return got;
}

static void link_release(struct unet_chan *ch, const uint32_t *frame, int n)
{
        struct packet_link *l = of(ch);

        for (int i = 0; i < n; i++) {
                if (frame[i] > PACKET_CHUNKS || !l->lent[frame[i]]) {
                        count(l->cnt, COUNT_NI_BAD_RETURN);
                        continue;
                }
                l->lent[frame[i]] = false;
                give_back(l, frame[i]);
        }
}

static bool link_pending(struct unet_chan *ch)
{
        struct packet_link *l = of(ch);
        struct pollfd pfd = {.fd = l->sock, .events = POLLIN};

        return l->ninjected != 0 ||
               (l->nfree != 0 && poll(&pfd, 1, 0) == 1 && (pfd.revents & POLLIN) != 0);
}

static const struct unet_ni_ops link_ni_ops = {
        .name = "packet",
        .send = link_send,
        .recv = link_recv,
        .release = link_release,
        .reap = link_reap,
        .room = link_room,
        .pending = link_pending,
        .want_room = link_want_room,
        .flush = link_flush,
};

/* ---- opening and closing ---- */

/* It may run anywhere: spin. */
static uint32_t link_peer_cpu(struct unet_chan *ch)
{
        return UINT32_MAX;
}

static void let_go(struct packet_link *l)
{
        if (l->ready >= 0)
                close(l->ready);
        if (l->chunks != NULL)
                munmap(l->chunks, (size_t)PACKET_CHUNKS * l->chunk_bytes);
        free(l);
}

static void link_close(struct unet_chan *ch, bool forget)
{
        close(of(ch)->sock);
        let_go(of(ch));
}

static const struct link_ops ops = {.peer_cpu = link_peer_cpu, .close = link_close};

static int make_chunks(struct packet_link *l, uint32_t mtu)
{
        void *p;

        l->chunk_bytes = (mtu + ETHER_BYTES + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
        p = mmap(NULL, (size_t)PACKET_CHUNKS * l->chunk_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
                return -ENOMEM;
        l->chunks = p;
        for (uint32_t number = PACKET_CHUNKS; number > 0; number--)
                give_back(l, number);
        return 0;
}

static int make_ready(struct packet_link *l)
{
        struct epoll_event ev = {.events = EPOLLIN};

        l->ready = epoll_create1(EPOLL_CLOEXEC);
        return l->ready >= 0 && epoll_ctl(l->ready, EPOLL_CTL_ADD, l->sock, &ev) == 0 ? 0 : -errno;
}

int packet_link_over(struct unet_ep *ep, const struct packet_sock *s, const uint8_t peer[6],
                     uint32_t *chan)
{
        struct packet_link *l = calloc(1, sizeof *l);
        struct link out;
        int err;

        if (l == NULL)
                return -ENOMEM;
        l->sock = l->out = s->fd;
        l->ready = -1;
        l->cnt = &ep->cnt;
        l->head = ether_msg_to(s->mac, peer);
        l->segment = unet_mem_flat(station_segment(&ep->st), ep->opts.tx_bytes);
        l->base =
                (struct unet_chan){.ops = &link_ni_ops,
                                   .caps = {.mtu = s->mtu + ETHER_BYTES - (uint32_t)sizeof l->head,
                                            .inline_max = ETHER_MSG_INLINE}};
        err = make_chunks(l, s->mtu);
        if (err == 0)
                err = make_ready(l);
        out = (struct link){
                .ops = &ops,
                .ch = &l->base,
                .rx_mem = unet_mem_flat(l->chunks, (size_t)PACKET_CHUNKS * l->chunk_bytes),
                .sock = l->ready};
        if (err == 0)
                err = ep_attach(ep, &out, chan);
        if (err != 0)
                let_go(l);
        return err;
}
