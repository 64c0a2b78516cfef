/* The switch: ports, routes, deficit round robin, quotas. See switch.h for what it promises. */
#include "unet/shm/switch.h"

#include <errno.h>
#include <stdlib.h>

#include "base/frame.h"
#include "unet/station.h"

#define DEFAULT_LARGE   128u
#define DEFAULT_SMALL   256u
#define DEFAULT_QUANTUM 65536u
#define LEAST_SIZE      64u /* what a small message costs its sender's share */

struct port {
        bool open;
        uint32_t gen; /* of the port's number; in the owner that frames are charged to */
        struct shm_link *shm;
        struct link link;
        struct frame_pool *pool; /* records of the frames towards this port */
        struct unet_switch_account *account;
        uint64_t charged; /* bytes of frames its messages hold at receivers */
        uint32_t charged_msgs;
        uint32_t deficit;
        bool held;  /* `rx` waits for the next round */
        bool dirty; /* something was sent to it in this round */
        bool gone;
        struct unet_rx rx;
        struct counters cnt;
};

struct route {
        uint32_t tag; /* generation above, index in the low bits; 0: not in use */
        uint32_t gen;
        uint32_t port; /* who may send with it */
        uint32_t peer; /* index of the route back */
};

struct unet_switch {
        struct unet_switch_opts opts;
        struct frame_geom geom;
        struct station st;
        uint32_t nports, turn; /* ports 1 .. nports were ever used */
        struct port *port[SWITCH_PORTS];
        struct route route[SWITCH_ROUTES];
        struct link_board *board;
        uint32_t fresh_route; /* the next index to try */
        struct frames frames; /* region number: the port's */
};

static_assert(SWITCH_PORTS <= FRAME_REGIONS && (SWITCH_ROUTES & (SWITCH_ROUTES - 1)) == 0, "masks");

#define BOARD_BYTES ((sizeof(struct link_board) + 4095) / 4096 * 4096)

/* ---- whom a frame is charged to ---- */

static uint32_t owner_of(const struct port *p, uint32_t num)
{
        return p->gen << 10 | num;
}

static void uncharge(void *arg, uint32_t owner, uint32_t bytes)
{
        struct unet_switch *sw = arg;
        struct port *p = sw->port[owner % SWITCH_PORTS];

        if (!p->open || owner_of(p, owner % SWITCH_PORTS) != owner)
                return;
        assert(p->charged >= bytes && p->charged_msgs != 0);
        p->charged -= bytes;
        p->charged_msgs--;
        if (p->account != NULL) {
                assert(p->account->bytes >= bytes && p->account->msgs != 0);
                p->account->bytes -= bytes;
                p->account->msgs--;
        }
}

static bool charge(struct unet_switch *sw, struct port *p, uint32_t bytes)
{
        struct unet_switch_account *a = p->account;

        if (p->charged + bytes > sw->opts.quota ||
            (a != NULL && (a->bytes + bytes > a->bytes_max || a->msgs >= a->msgs_max)))
                return false;
        p->charged += bytes;
        p->charged_msgs++;
        if (a != NULL) {
                a->bytes += bytes;
                a->msgs++;
        }
        return true;
}

/* The port goes, before the frames come back. */
static void forgive(struct port *p)
{
        if (p->account == NULL)
                return;
        assert(p->account->bytes >= p->charged && p->account->msgs >= p->charged_msgs);
        p->account->bytes -= p->charged;
        p->account->msgs -= p->charged_msgs;
}

/* ---- opening and closing ---- */

int unet_switch_open(const struct unet_switch_opts *opts, struct unet_switch **out)
{
        struct unet_switch *sw = calloc(1, sizeof *sw);
        int err;

        if (sw == NULL)
                return -ENOMEM;
        if (opts != NULL)
                sw->opts = *opts;
        sw->geom.count[FRAME_LARGE] = sw->opts.large ? sw->opts.large : DEFAULT_LARGE;
        sw->geom.count[FRAME_SMALL] = sw->opts.small ? sw->opts.small : DEFAULT_SMALL;
        sw->opts.quantum = MAX(sw->opts.quantum, DEFAULT_QUANTUM);
        if (sw->opts.quota == 0)
                sw->opts.quota = frame_geom_bytes(sw->geom) / 2;
        sw->frames.uncharge = uncharge;
        sw->frames.arg = sw;
        err = station_open(&sw->st, BOARD_BYTES, 0);
        if (err != 0) {
                free(sw);
                return err;
        }
        sw->board = (struct link_board *)station_segment(&sw->st);
        *out = sw;
        return 0;
}

void unet_switch_close(struct unet_switch *sw)
{
        for (uint32_t num = 1; num <= sw->nports; num++)
                unet_switch_detach(sw, num);
        for (uint32_t num = 1; num <= sw->nports; num++)
                free(sw->port[num]);
        station_close(&sw->st);
        free(sw);
}

/* ---- ports ---- */

static struct port *port_at(const struct unet_switch *sw, uint32_t num)
{
        return num != 0 && num <= sw->nports && sw->port[num]->open ? sw->port[num] : NULL;
}

static uint32_t find_free(struct unet_switch *sw)
{
        uint32_t num = 1;

        while (num <= sw->nports && sw->port[num]->open)
                num++;
        if (num == SWITCH_PORTS)
                return 0;
        if (num > sw->nports) {
                sw->port[num] = calloc(1, sizeof *sw->port[num]);
                if (sw->port[num] == NULL)
                        return 0;
                sw->nports = num;
        }
        return num;
}

/* A port with our memory, which is not open yet. */
static int make_port(struct unet_switch *sw, uint32_t *port)
{
        uint32_t num = find_free(sw), gen;
        struct port *p = sw->port[num];
        struct unet_mem mem;
        int err;

        if (num == 0)
                return -EMFILE;
        assert(!p->open);
        gen = p->gen + 1;
        *p = (struct port){.gen = gen};
        p->pool = calloc(1, frame_pool_bytes(sw->geom));
        if (p->pool == NULL)
                return -ENOMEM;
        err = shm_link_make(&sw->st, sw->geom, &p->cnt, &p->shm);
        if (err != 0) {
                free(p->pool);
                p->pool = NULL;
                return err;
        }
        frame_pool_init(p->pool, sw->geom);
        p->pool->sent = 1;
        mem = shm_link_tx_mem(p->shm);
        sw->frames.region[num] = (struct frame_region){.base = mem.base, .pool = p->pool};
        *port = num;
        return 0;
}

int unet_switch_attach(struct unet_switch *sw, int sock, const struct shm_offer *theirs, uid_t uid,
                       struct unet_switch_account *account, struct shm_offer *mine, uint32_t *port)
{
        struct port *p;
        uint32_t num;
        int err = make_port(sw, &num);

        if (err != 0)
                return err;
        p = sw->port[num];
        err = shm_link_connect(p->shm, sock, theirs, uid, &p->link);
        if (err == 0)
                err = station_watch(&sw->st, p->link.sock, num);
        if (err != 0) {
                shm_link_abort(p->shm);
                free(p->pool);
                p->pool = NULL;
                return err;
        }
        p->open = true;
        p->account = account;
        *mine = shm_link_mine(p->shm);
        *port = num;
        return 0;
}

void unet_switch_sent(struct unet_switch *sw, uint32_t port)
{
        assert(port_at(sw, port) != NULL);
        shm_link_sent(sw->port[port]->shm);
}

static void drop_routes(struct unet_switch *sw, uint32_t port)
{
        for (uint32_t i = 0; i < SWITCH_ROUTES; i++)
                if (sw->route[i].tag != 0 && sw->route[i].port == port)
                        unet_switch_disconnect(sw, sw->route[i].tag);
}

/* Loans taken back first, so that those who sent to the port are no longer charged. */
void unet_switch_detach(struct unet_switch *sw, uint32_t port)
{
        struct port *p = port_at(sw, port);

        if (p == NULL)
                return;
        drop_routes(sw, port);
        frame_unlend_all(&sw->frames, port);
        forgive(p);
        if (!p->gone)
                station_unwatch(&sw->st, p->link.sock);
        p->link.ops->close(p->link.ch, false);
        free(p->pool);
        p->pool = NULL;
        sw->frames.region[port] = (struct frame_region){0};
        p->open = false;
}

const struct counters *unet_switch_counters(const struct unet_switch *sw, uint32_t port)
{
        return port != 0 && port <= sw->nports ? &sw->port[port]->cnt : NULL;
}

uint64_t unet_switch_charged(const struct unet_switch *sw, uint32_t port)
{
        return port != 0 && port <= sw->nports ? sw->port[port]->charged : 0;
}

/* ---- routes ---- */

static struct route *route_of(struct unet_switch *sw, uint32_t tag)
{
        struct route *r = &sw->route[tag % SWITCH_ROUTES];

        return tag != 0 && r->tag == tag ? r : NULL;
}

/* The index that has been free longest comes near the end of the search; its generation changes
 * each time. */
static struct route *new_route(struct unet_switch *sw, uint32_t port)
{
        for (uint32_t k = 0; k < SWITCH_ROUTES; k++) {
                uint32_t i = sw->fresh_route++ % SWITCH_ROUTES;
                struct route *r = &sw->route[i];
                if (r->tag != 0)
                        continue;
                do
                        r->tag = ++r->gen * SWITCH_ROUTES + i;
                while (r->tag == 0);
                r->port = port;
                return r;
        }
        return NULL;
}

static bool may_have(const struct unet_switch_account *a, uint32_t more)
{
        return a == NULL || a->chans + more <= a->chans_max;
}

static uint32_t stand(struct unet_switch *sw, const struct route *r)
{
        assert(r->tag != 0 && sw->port[r->port]->open);
        if (sw->port[r->port]->account != NULL)
                sw->port[r->port]->account->chans++;
        atomic_store_explicit(&sw->board->tag[r->tag % LINK_TAGS], r->tag, memory_order_relaxed);
        return r->tag;
}

/* What was sent with the tag before is in the receiver's ring by now. The endpoint is woken if
 * it sleeps. */
static void fall(struct unet_switch *sw, struct route *r)
{
        struct port *p = sw->port[r->port];
        uint32_t changes = atomic_load_explicit(&sw->board->changes, memory_order_relaxed);

        assert(r->tag != 0 && (p->account == NULL || p->account->chans != 0));
        if (p->account != NULL)
                p->account->chans--;
        atomic_store_explicit(&sw->board->tag[r->tag % LINK_TAGS], 0, memory_order_relaxed);
        atomic_store_explicit(&sw->board->changes, changes + 1, memory_order_release);
        r->tag = 0;
        shm_link_nudge(p->shm);
        p->link.ch->ops->flush(p->link.ch);
}

int unet_switch_connect(struct unet_switch *sw, uint32_t port_a, uint32_t port_b, uint32_t tag[2])
{
        const struct port *pa = port_at(sw, port_a), *pb = port_at(sw, port_b);
        struct route *a, *b;

        if (pa == NULL || pb == NULL)
                return -EINVAL;
        if (!may_have(pa->account, pa->account == pb->account ? 2 : 1) || !may_have(pb->account, 1))
                return -EDQUOT;
        a = new_route(sw, port_a);
        b = a != NULL ? new_route(sw, port_b) : NULL;
        if (b == NULL) {
                if (a != NULL)
                        a->tag = 0;
                return -ENOSPC;
        }
        a->peer = (uint32_t)(b - sw->route);
        b->peer = (uint32_t)(a - sw->route);
        tag[0] = stand(sw, a);
        tag[1] = stand(sw, b);
        return 0;
}

int unet_switch_disconnect(struct unet_switch *sw, uint32_t tag)
{
        struct route *r = route_of(sw, tag);

        if (r == NULL)
                return -ENOENT;
        fall(sw, &sw->route[r->peer]);
        fall(sw, r);
        return 0;
}

/* ---- one message ---- */

static uint32_t rx_bytes(const struct unet_rx *rx)
{
        uint64_t n = rx->inl_len + rx->len;

        for (uint32_t i = 0; i < rx->nmore; i++)
                n += rx->more[i].len;
        return (uint32_t)MIN(n, (uint64_t)UINT32_MAX);
}

/* Why the port may not send this, or DROP_NONE and where it goes. */
static enum drop find_way(struct unet_switch *sw, uint32_t from, const struct unet_rx *rx,
                          const struct route **out)
{
        struct link_tag t;
        struct route *r;

        if (rx->inl_len < sizeof t || rx_bytes(rx) > SHM_LINK_MTU)
                return DROP_NI_MALFORMED;
        memcpy(&t, rx->inl, sizeof t);
        r = route_of(sw, t.tag);
        if (r == NULL)
                return DROP_NI_NO_CHANNEL;
        if (r->port != from)
                return DROP_NI_BAD_SOURCE;
        if (sw->opts.check != NULL && !sw->opts.check(sw->opts.arg, from, rx->inl + sizeof t,
                                                      rx->inl_len - (uint32_t)sizeof t))
                return DROP_NI_BAD_SOURCE;
        *out = &sw->route[r->peer];
        return DROP_NONE;
}

/* Copies the payload, out of the sender's memory, into the frame. The ranges were checked when it
 * was received. */
static void copy_payload(const struct port *from, const struct unet_rx *rx, uint8_t *to)
{
        memcpy(to, unet_mem_at(&from->link.rx_mem, rx->frame, rx->off, rx->len), rx->len);
        to += rx->len;
        for (uint32_t i = 0; i < rx->nmore; i++) {
                const struct unet_range *m = &rx->more[i];
                memcpy(to, unet_mem_at(&from->link.rx_mem, rx->frame, m->off, m->len), m->len);
                to += m->len;
        }
}

/* A frame towards `to` for `len` bytes, charged to `from`; *id 0 when none is needed. */
static enum drop reserve(struct unet_switch *sw, uint32_t from, uint32_t to, uint32_t len,
                         uint32_t *id)
{
        struct port *p = sw->port[from];
        enum frame_class c =
                len <= FRAME_SMALL_BYTES && frame_avail(&sw->frames, to, FRAME_SMALL) > 0
                        ? FRAME_SMALL
                        : FRAME_LARGE;

        *id = 0;
        if (len == 0)
                return DROP_NONE;
        if (frame_avail(&sw->frames, to, c) == 0)
                return DROP_NI_NO_BUFFER;
        if (!charge(sw, p, frame_class_bytes(c)))
                return DROP_NI_QUOTA;
        *id = frame_alloc(&sw->frames, to, c, owner_of(p, from));
        return DROP_NONE;
}

/* The endpoint closed a channel. True: it was that, right or wrong, and is done. */
static bool ends_channel(struct unet_switch *sw, uint32_t from, const struct unet_rx *rx)
{
        const struct route *r;
        struct link_end e;

        if (rx->inl_len != sizeof e || rx->frame != 0)
                return false;
        memcpy(&e, rx->inl, sizeof e);
        if (e.zero != 0)
                return false;
        r = route_of(sw, e.tag);
        if (r != NULL && r->port == from)
                unet_switch_disconnect(sw, e.tag);
        else if (r != NULL)
                count_drop(&sw->port[from]->cnt, DROP_NI_BAD_SOURCE);
        return true;
}

/* Sends what port `from` sent on its way. A drop is counted at the side whose fault it is. */
static void forward(struct unet_switch *sw, uint32_t from, const struct unet_rx *rx)
{
        struct port *p = sw->port[from], *q;
        const struct route *way = NULL;
        enum drop why = find_way(sw, from, rx, &way);
        uint32_t len = rx_bytes(rx) - rx->inl_len;
        struct unet_tx tx = {.inl = rx->inl, .inl_len = (uint16_t)rx->inl_len};
        uint8_t inl[UNET_INLINE_MAX];
        uint32_t id;

        if (why != DROP_NONE) {
                count_drop(&p->cnt, why);
                return;
        }
        q = sw->port[way->port];
        if (q->link.ch->ops->room(q->link.ch) == 0) {
                count_drop(&q->cnt, DROP_NI_QUEUE_FULL);
                return;
        }
        why = reserve(sw, from, way->port, len, &id);
        if (why != DROP_NONE) {
                count_drop(why == DROP_NI_QUOTA ? &p->cnt : &q->cnt, why);
                return;
        }
        memcpy(inl, rx->inl, rx->inl_len);
        memcpy(inl, &(struct link_tag){way->tag}, sizeof(struct link_tag));
        tx.inl = inl;
        if (id != 0) {
                copy_payload(p, rx, frame_addr(&sw->frames, id));
                tx.frame = frame_id_num(id);
                tx.len = len;
                frame_lend(&sw->frames, id);
                frame_drop(&sw->frames, id); /* the loan holds it from here on */
        }
        q->link.ch->ops->send(q->link.ch, &tx, 1);
        q->dirty = true;
}

/* ---- rounds ---- */

static bool next_message(struct port *p)
{
        if (!p->held)
                p->held = p->link.ch->ops->recv(p->link.ch, &p->rx, 1) == 1;
        return p->held;
}

/* How many ports of each account have something to send. */
static void count_busy(struct unet_switch *sw)
{
        for (uint32_t num = 1; num <= sw->nports; num++)
                if (sw->port[num]->open && sw->port[num]->account != NULL)
                        sw->port[num]->account->busy = 0;
        for (uint32_t num = 1; num <= sw->nports; num++) {
                struct port *p = sw->port[num];
                if (p->open && p->account != NULL && next_message(p))
                        p->account->busy++;
        }
}

static uint32_t share_of(const struct unet_switch *sw, const struct port *p)
{
        uint32_t ports = p->account != NULL ? MAX(p->account->busy, 1u) : 1;

        return MAX(sw->opts.quantum / ports, LEAST_SIZE);
}

/* The port's turn: its share of bytes, and what it saved; a port with nothing to send
 * saves nothing. */
static int serve(struct unet_switch *sw, uint32_t num)
{
        struct port *p = sw->port[num];
        int n = 0;

        p->deficit += share_of(sw, p);
        while (next_message(p)) {
                uint32_t size = MAX(rx_bytes(&p->rx), LEAST_SIZE);
                if (size > p->deficit && size <= SHM_LINK_MTU + UNET_INLINE_MAX)
                        break;
                p->deficit -= MIN(size, p->deficit);
                if (!ends_channel(sw, num, &p->rx))
                        forward(sw, num, &p->rx);
                if (p->rx.frame != 0)
                        p->link.ch->ops->release(p->link.ch, &p->rx.frame, 1);
                p->held = false;
                n++;
        }
        if (!p->held)
                p->deficit = 0;
        p->dirty |= n > 0;
        return n;
}

/* A receiver returns what it likes; only what was lent to it counts. At most what can be on loan in
 * one go. */
static void take_returns(struct unet_switch *sw, uint32_t num)
{
        struct unet_chan *ch = sw->port[num]->link.ch;
        uint32_t frame[64];
        int n, rounds = (int)(SHM_RETS / ARRAY_LEN(frame));

        do {
                n = ch->ops->reap(ch, frame, ARRAY_LEN(frame));
                for (int i = 0; i < n; i++)
                        if (!frame_unlend(&sw->frames, num, frame[i]))
                                count(&sw->port[num]->cnt, COUNT_NI_BAD_RETURN);
        } while (n == ARRAY_LEN(frame) && --rounds > 0);
}

static void flush_all(struct unet_switch *sw)
{
        for (uint32_t num = 1; num <= sw->nports; num++) {
                struct port *p = sw->port[num];
                if (!p->open || !p->dirty)
                        continue;
                p->link.ch->ops->flush(p->link.ch);
                p->dirty = false;
        }
}

static void leave_port(struct unet_switch *sw, uint32_t num)
{
        unet_switch_detach(sw, num);
        if (sw->opts.left != NULL)
                sw->opts.left(sw->opts.arg, num);
}

/* Each port once, or as far as `most` messages go. Returns how many were taken. */
static int serve_all(struct unet_switch *sw)
{
        uint32_t k, most = sw->opts.most != 0 ? sw->opts.most : UINT32_MAX;
        int n = 0;

        count_busy(sw);
        for (k = 0; k < sw->nports && (uint32_t)n < most; k++) {
                uint32_t num = 1 + (sw->turn + k) % sw->nports;
                struct port *p = sw->port[num];
                int served;

                if (!p->open)
                        continue;
                served = serve(sw, num);
                if (served == 0 && !p->held && (p->gone || p->link.ops->gone(p->link.ch)))
                        leave_port(sw, num);
                n += served;
        }
        if (sw->nports != 0) /* a whole round: the next begins with the next port */
                sw->turn = (sw->turn + (k == sw->nports ? 1 : k)) % sw->nports;
        return n;
}

/* Returns true if some port has a message that is longer than its share allows yet: the next round
 * adds to the share (deficit round robin). */
static bool anybody_saves(const struct unet_switch *sw)
{
        for (uint32_t num = 1; num <= sw->nports; num++)
                if (sw->port[num]->open && sw->port[num]->held)
                        return true;
        return false;
}

int unet_switch_step(struct unet_switch *sw)
{
        int n;

        for (uint32_t num = 1; num <= sw->nports;
             num++) /* first: what came back can be used at once */
                if (sw->port[num]->open)
                        take_returns(sw, num);
        do
                n = serve_all(sw);
        while (n == 0 && anybody_saves(sw));
        flush_all(sw);
        return n;
}

/* ---- sleeping ---- */

static void port_gone(void *arg, uint32_t num)
{
        struct unet_switch *sw = arg;
        struct port *p = port_at(sw, num);

        if (p != NULL && !p->gone) {
                p->gone = true;
                station_unwatch(&sw->st, p->link.sock);
        }
}

static bool anything(const struct unet_switch *sw)
{
        for (uint32_t num = 1; num <= sw->nports; num++) {
                const struct port *p = sw->port[num];
                if (p->open && (p->held || p->gone || p->link.ch->ops->pending(p->link.ch)))
                        return true;
        }
        return false;
}

int unet_switch_fd(const struct unet_switch *sw)
{
        return sw->st.epoll_fd;
}

bool unet_switch_arm(struct unet_switch *sw)
{
        const struct station_waiter w = {.gone = port_gone, .arg = sw};

        station_wake(&sw->st, &w);
        station_arm(&sw->st);
        if (!anything(sw))
                return true;
        bell_disarm(sw->st.bell);
        return false;
}
