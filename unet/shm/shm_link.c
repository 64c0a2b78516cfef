/* The shared-memory channel of raw endpoints: setting up, sending, receiving. */
#include "unet/shm/shm_link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/planted.h"
#include "base/memfd.h"
#include "base/rights.h"

#define HELLO_MAGIC   0x554e6574u
#define HELLO_VERSION 1u
#define REGION_MAX    (4ull << 30) /* most we map for one peer */

struct shm_link {
        struct unet_chan base;
        struct shm_pos pos;
        struct shm_region *mine;       /* read and write */
        const struct shm_region *peer; /* read only */
        const struct bell *bell;       /* the peer's station, read only */
        struct unet_mem rx_mem;        /* where the peer's payload lies */
        struct frame_geom geom;        /* of our frames */
        const struct station *st;
        size_t mine_bytes, peer_bytes, station_bytes;
        int reader_fd;   /* twin of our region, until it is sent */
        int sock;        /* takes rings, hangs up when the peer is gone */
        uint32_t rung;   /* peer's bell word when we last rang */
        bool sent, gave; /* since the last flush */
        struct counters *cnt;
};

/* First and only message each way; two descriptors come with it. */
struct hello {
        uint32_t magic, version;
        uint64_t region_bytes, station_bytes;
        uint32_t geom[FRAME_CLASSES];
        uint32_t pad[8];
};
static_assert(sizeof(struct hello) == 64, "the same in every build");
enum hello_fd { HELLO_REGION, HELLO_STATION, HELLO_FDS };

static struct shm_link *shm(struct unet_chan *ch)
{
        return (struct shm_link *)ch;
}

/* ---- sending ---- */

static uint32_t link_room(struct unet_chan *ch)
{
        return shm_tx_room(&shm(ch)->pos, shm(ch)->peer);
}

/* A message of several ranges; otherwise as shm_tx_push(). */
static void push_ranges(struct shm_pos *p, struct shm_region *mine, const struct unet_tx *tx)
{
        struct shm_slot *s = &mine->ring[p->tx_prod % SHM_SLOTS];
        struct shm_frame_ref ref = {tx->frame, tx->off, tx->len};
        size_t more = tx->nmore * sizeof(struct unet_range);

        s->flags = SHM_F_FRAME | SHM_F_MORE;
        s->inl_len = (uint8_t)tx->inl_len;
        s->nmore = tx->nmore;
        memcpy(s->body, &ref, sizeof ref);
        memcpy(s->body + sizeof ref, tx->more, more);
        memcpy(s->body + sizeof ref + more, tx->inl, tx->inl_len);
        atomic_store_explicit(&s->seq, ++p->tx_prod, memory_order_release);
}

static int link_send(struct unet_chan *ch, const struct unet_tx *tx, int n)
{
        struct shm_link *l = shm(ch);
        uint32_t room = shm_tx_room(&l->pos, l->peer);
        uint64_t bytes = 0;
        int i;

        for (i = 0; i < n && room > 0; i++, room--) {
                assert(tx[i].inl_len <= SHM_LINK_INLINE && tx[i].nmore < UNET_RANGES_MAX);
                bytes += unet_tx_bytes(&tx[i]);
                shm_claim_ahead(&l->pos, l->mine, tx[i].inl_len);
                if (unlikely(tx[i].nmore != 0))
                        push_ranges(&l->pos, l->mine, &tx[i]);
                else
                        shm_tx_push(&l->pos, l->mine, &tx[i]);
        }
        if (i < n)
                count(l->cnt, COUNT_NI_TX_FULL);
        count_add(l->cnt, COUNT_NI_TX_MSGS, (uint64_t)i);
        count_add(l->cnt, COUNT_NI_TX_BYTES, bytes);
        l->sent |= i > 0;
        return i;
}

static int link_reap(struct unet_chan *ch, uint32_t *frame, int n)
{
        struct shm_link *l = shm(ch);
        uint32_t prod = atomic_load_explicit(&l->peer->ctrl.ret_prod, memory_order_acquire);
        int got = 0;

        if (unlikely(prod - l->pos.ret_cons > SHM_RETS)) { /* more than we can have lent: a lie */
                l->pos.ret_cons = prod;
                count(l->cnt, COUNT_NI_BAD_RETURN);
        }
        while (got < n && shm_ret_ready(&l->pos, l->peer))
                frame[got++] = shm_ret_pull(&l->pos, l->peer);
        return got;
}

/* ---- receiving ---- */

/* The part of a descriptor that says how the rest is cut, read once. */
struct cut {
        uint8_t flags, inl_len;
        uint16_t nmore;
};

static struct cut read_cut(const struct shm_slot *s)
{
        const volatile struct shm_slot *v = s;
        struct cut c = {.flags = v->flags, .inl_len = v->inl_len};

        if (unlikely(c.flags & SHM_F_MORE))
                c.nmore = v->nmore;
        return c;
}

/* Copies the references out; false when one is outside the peer's memory. */
static enum drop pull_ranges(const struct shm_link *l, struct cut c, const uint8_t *body,
                             struct unet_rx *rx)
{
        struct shm_frame_ref ref;

        memcpy(&ref, body, sizeof ref);
        memcpy(rx->more, body + sizeof ref, c.nmore * sizeof(struct unet_range));
        rx->frame = ref.frame;
        rx->off = ref.off;
        rx->len = ref.len;
        if (ref.frame == 0 || unet_mem_at(&l->rx_mem, ref.frame, ref.off, ref.len) == NULL)
                return DROP_NI_BAD_FRAME;
        for (int i = 0; i < c.nmore; i++)
                if (unet_mem_at(&l->rx_mem, ref.frame, rx->more[i].off, rx->more[i].len) == NULL)
                        return DROP_NI_BAD_FRAME;
        return DROP_NONE;
}

static enum drop pull(struct shm_link *l, struct unet_rx *rx)
{
        const struct shm_slot *s = &l->peer->ring[l->pos.rx_cons++ % SHM_SLOTS];
        const uint8_t *body = s->body;
        struct cut c = read_cut(s);
        enum drop why = DROP_NONE;

        if (unlikely(c.inl_len > SHM_LINK_INLINE || CHECKED(c.nmore >= UNET_RANGES_MAX) ||
                     c.flags > (SHM_F_FRAME | SHM_F_MORE)))
                return DROP_NI_MALFORMED;
        rx->frame = 0;
        rx->len = 0;
        rx->nmore = c.nmore;
        rx->inl_len = c.inl_len;
        if (c.flags & SHM_F_FRAME) {
                why = pull_ranges(l, c, body, rx);
                body += sizeof(struct shm_frame_ref) + c.nmore * sizeof(struct unet_range);
        } else if (c.nmore != 0) {
                return DROP_NI_MALFORMED;
        }
        unet_copy_inline(rx->inl, body, c.inl_len);
        return why;
}

/* Tells the peer of places only so often: the line in which it looks, and we look for its returns,
 * stays quiet while a few messages go to and fro. The peer never sees more than this many places
 * too few, and whoever waits for the next message has emptied the ring, so nobody waits for what is
 * not told. */

static void publish(struct shm_link *l)
{
        if (l->pos.rx_cons - atomic_load_explicit(&l->mine->ctrl.cons, memory_order_relaxed) <
            SHM_PUBLISH_EVERY)
                return;
        shm_rx_publish(&l->pos, l->mine);
        l->gave = true;
}

/* A peer that fills the ring with rubbish as fast as it is read holds us up for one round of the
 * ring, no longer. */
static int link_recv(struct unet_chan *ch, struct unet_rx *rx, int n)
{
        struct shm_link *l = shm(ch);
        uint32_t start = l->pos.rx_cons;
        uint64_t bytes = 0;
        int got = 0;

        shm_prefetch_batch(&l->pos, l->peer, n);
        while (got < n && l->pos.rx_cons - start < SHM_SLOTS && shm_rx_ready(&l->pos, l->peer)) {
                enum drop why = pull(l, &rx[got]);
                if (unlikely(why != DROP_NONE)) {
                        count_drop(l->cnt, why);
                        continue;
                }
                bytes += rx[got].inl_len + rx[got].len;
                got++;
        }
        if (l->pos.rx_cons != start)
                publish(l);
        count_add(l->cnt, COUNT_NI_RX_MSGS, (uint64_t)got);
        count_add(l->cnt, COUNT_NI_RX_BYTES, bytes);
        return got;
}

static void link_release(struct unet_chan *ch, const uint32_t *frame, int n)
{
        struct shm_link *l = shm(ch);

        for (int i = 0; i < n; i++)
                shm_ret_push(&l->pos, l->mine, frame[i]);
        l->gave = true;
}

static bool link_pending(struct unet_chan *ch)
{
        struct shm_link *l = shm(ch);

        return shm_rx_ready(&l->pos, l->peer) || shm_ret_ready(&l->pos, l->peer);
}

/* ---- waking ---- */

static void ring(struct shm_link *l, uint32_t word)
{
        l->rung = word;
        count(l->cnt, COUNT_NI_BELLS);
        station_ring(l->sock);
}

static void link_flush(struct unet_chan *ch)
{
        struct shm_link *l = shm(ch);
        uint32_t word;

        if (!l->sent && !l->gave)
                return;
        atomic_thread_fence(memory_order_seq_cst); /* (b) of bell.h */
        word = atomic_load_explicit(&l->bell->word, memory_order_relaxed);
        if (unlikely(bell_mode(word) == BELL_ASLEEP) && word != l->rung &&
            (l->sent || atomic_load_explicit(&l->peer->ctrl.want_room, memory_order_relaxed)))
                ring(l, word);
        l->sent = l->gave = false;
}

static void link_want_room(struct unet_chan *ch, bool on)
{
        struct shm_link *l = shm(ch);

        if (atomic_load_explicit(&l->mine->ctrl.want_room, memory_order_relaxed) != on)
                atomic_store_explicit(&l->mine->ctrl.want_room, on, memory_order_relaxed);
}

static const struct unet_ni_ops shm_link_ni_ops = {
        .name = "shm",
        .send = link_send,
        .recv = link_recv,
        .release = link_release,
        .reap = link_reap,
        .room = link_room,
        .pending = link_pending,
        .want_room = link_want_room,
        .flush = link_flush,
};

/* ---- ending ---- */

static bool link_gone(struct unet_chan *ch)
{
        return atomic_load_explicit(&shm(ch)->peer->ctrl.closed, memory_order_acquire) != 0;
}

static void close_fd(int fd)
{
        if (fd >= 0)
                close(fd);
}

static void unmap(const void *p, size_t bytes)
{
        if (p != NULL)
                munmap((void *)(uintptr_t)p, bytes);
}

void shm_link_abort(struct shm_link *l)
{
        unmap(l->mine, l->mine_bytes);
        unmap(l->peer, l->peer_bytes);
        unmap(l->bell, l->station_bytes);
        close_fd(l->reader_fd);
        free(l);
}

static void link_close(struct unet_chan *ch, bool forget)
{
        struct shm_link *l = shm(ch);

        if (!forget) {
                atomic_store_explicit(&l->mine->ctrl.closed, 1, memory_order_release);
                l->sent = true;
                link_flush(ch);
                shutdown(l->sock, SHUT_RDWR);
        }
        close_fd(l->sock);
        shm_link_abort(l);
}

static uint32_t link_peer_cpu(struct unet_chan *ch)
{
        return atomic_load_explicit(&shm(ch)->bell->cpu, memory_order_relaxed);
}

void shm_link_nudge(struct shm_link *l)
{
        l->sent = true;
}

static const struct link_ops ops = {
        .gone = link_gone, .peer_cpu = link_peer_cpu, .close = link_close};

/* ---- setting up ---- */

static int make_region(struct shm_link *l)
{
        int fd, err = 0;

        l->mine_bytes = SHM_REGION_BYTES(l->geom);
        fd = unet_memfd_make("unet-ring", l->mine_bytes);
        if (fd < 0)
                return fd;
        l->mine = unet_memfd_map(fd, l->mine_bytes, true, NULL);
        if (l->mine == NULL)
                err = -ENOMEM;
        if (err == 0)
                err = unet_memfd_freeze(fd);
        if (err == 0) {
                l->reader_fd = unet_memfd_reader(fd);
                err = l->reader_fd < 0 ? l->reader_fd : 0;
        }
        close(fd);
        return err;
}

int shm_link_make(struct station *st, struct frame_geom geom, struct counters *cnt,
                  struct shm_link **out)
{
        struct shm_link *l = calloc(1, sizeof *l);
        int err;

        assert(st != NULL && cnt != NULL);
        if (l == NULL)
                return -ENOMEM;
        l->base.ops = &shm_link_ni_ops;
        l->base.caps = (struct unet_caps){.mtu = SHM_LINK_MTU,
                                          .inline_max = SHM_LINK_INLINE,
                                          .lossless = true,
                                          .rto_min = 200 * NS_PER_MS};
        l->geom = geom;
        l->st = st;
        l->cnt = cnt;
        l->sock = -1;
        l->reader_fd = -1;
        err = make_region(l);
        if (err != 0) {
                shm_link_abort(l);
                return err;
        }
        *out = l;
        return 0;
}

struct shm_offer shm_link_mine(const struct shm_link *l)
{
        return (struct shm_offer){l->mine_bytes, l->st->shared_bytes, l->geom, l->reader_fd,
                                  l->st->reader_fd};
}

void shm_link_sent(struct shm_link *l)
{
        close_fd(l->reader_fd);
        l->reader_fd = -1;
}

/* Sizes first, by our own arithmetic; then the files; then the mappings. */
static int map_peer(struct shm_link *l, const struct shm_offer *o, uid_t uid)
{
        uint32_t most = 1u << FRAME_NUM_BITS;
        struct frame_geom geom = o->geom;
        int err;

        if (geom.count[0] >= most || geom.count[1] >= most || frame_geom_total(geom) >= most ||
            o->region_bytes != SHM_REGION_BYTES(geom) || o->region_bytes > REGION_MAX ||
            o->station_bytes < BELL_BYTES || o->station_bytes > REGION_MAX)
                return -EPROTO;
        err = unet_memfd_check(o->region, o->region_bytes, false, uid);
        if (err == 0)
                err = unet_memfd_check(o->station, o->station_bytes, false, uid);
        if (err != 0)
                return err;
        l->peer_bytes = o->region_bytes;
        l->station_bytes = o->station_bytes;
        l->peer = unet_memfd_map(o->region, l->peer_bytes, false, NULL);
        l->bell = unet_memfd_map(o->station, l->station_bytes, false, NULL);
        if (l->peer == NULL || l->bell == NULL)
                return -ENOMEM;
        l->rx_mem = frame_geom_total(geom) != 0
                            ? unet_mem_frames((void *)(uintptr_t)l->peer->frames, geom)
                            : unet_mem_flat((uint8_t *)(uintptr_t)l->bell + BELL_BYTES,
                                            l->station_bytes - BELL_BYTES);
        return 0;
}

int shm_link_connect(struct shm_link *l, int sock, const struct shm_offer *theirs, uid_t uid,
                     struct link *out)
{
        int err = map_peer(l, theirs, uid);

        assert(sock >= 0 && l->mine != NULL);
        if (err != 0)
                return err;
        l->sock = sock;
        *out = (struct link){.ops = &ops,
                             .ch = &l->base,
                             .rx_mem = l->rx_mem,
                             .shared = (const uint8_t *)l->bell + BELL_BYTES,
                             .shared_bytes = l->station_bytes - BELL_BYTES,
                             .sock = sock};
        return 0;
}

/* ---- setting up through the socket ---- */

static int send_hello(const struct shm_link *l)
{
        struct shm_offer o = shm_link_mine(l);
        struct hello h = {.magic = HELLO_MAGIC,
                          .version = HELLO_VERSION,
                          .region_bytes = o.region_bytes,
                          .station_bytes = o.station_bytes,
                          .geom = {o.geom.count[0], o.geom.count[1]}};
        const int fds[HELLO_FDS] = {o.region, o.station};
        struct iovec iov = {&h, sizeof h};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        union rights ctl;

        rights_put(&m, &ctl, fds, HELLO_FDS);
        return sendmsg(l->sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof h ? 0 : -errno;
}

int shm_link_offer(struct station *st, struct frame_geom geom, struct counters *cnt, int sock,
                   struct shm_link **out)
{
        struct shm_link *l;
        int err = shm_link_make(st, geom, cnt, &l);

        if (err != 0)
                return err;
        l->sock = sock;
        err = send_hello(l);
        if (err != 0) {
                shm_link_abort(l);
                return err;
        }
        shm_link_sent(l);
        *out = l;
        return 0;
}

static int wait_readable(int sock, nstime timeout)
{
        struct timespec ts = {timeout / NS_PER_S, timeout % NS_PER_S};
        struct pollfd p = {.fd = sock, .events = POLLIN};
        int n;

        do
                n = ppoll(&p, 1, timeout < 0 ? NULL : &ts, NULL);
        while (n < 0 && errno == EINTR);
        return n > 0 ? 0 : n == 0 ? -ETIMEDOUT : -errno;
}

static int recv_hello(int sock, nstime timeout, struct hello *h, int fds[HELLO_FDS])
{
        union rights ctl;
        struct iovec iov = {h, sizeof *h};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = &ctl,
                           .msg_controllen = sizeof ctl};
        int err = wait_readable(sock, timeout);
        unsigned nfds;
        ssize_t n;

        if (err != 0)
                return err;
        n = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n <= 0)
                return n == 0 ? -EPIPE : -errno;
        nfds = rights_take(&m, fds, HELLO_FDS);
        if (n != (ssize_t)sizeof *h || nfds != HELLO_FDS ||
            (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || h->magic != HELLO_MAGIC ||
            h->version != HELLO_VERSION)
                return -EPROTO;
        return 0;
}

static int peer_uid(int sock, uid_t *uid)
{
        struct ucred cred;
        socklen_t len = sizeof cred;

        if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0)
                return -errno;
        *uid = cred.uid;
        return 0;
}

int shm_link_accept(struct shm_link *l, nstime timeout, struct link *out)
{
        int fds[HELLO_FDS] = {-1, -1}, err;
        uid_t uid = (uid_t)-1;
        struct shm_offer o;
        struct hello h;

        err = recv_hello(l->sock, timeout, &h, fds);
        if (err == 0)
                err = peer_uid(l->sock, &uid);
        if (err == 0) {
                o = (struct shm_offer){h.region_bytes,
                                       h.station_bytes,
                                       {{h.geom[0], h.geom[1]}},
                                       fds[HELLO_REGION],
                                       fds[HELLO_STATION]};
                err = shm_link_connect(l, l->sock, &o, uid, out);
        }
        close_fd(fds[HELLO_REGION]);
        close_fd(fds[HELLO_STATION]);
        return err;
}

struct unet_mem shm_link_tx_mem(const struct shm_link *l)
{
        return unet_mem_frames(l->mine->frames, l->geom);
}
