/* The requests to unetd and to the keeper, call by call. Replies are checked here. */
#include "unetd/client/client_ask.h"

#include "unet/bell.h"
#include "unet/bell_fd.h"
#include "base/memfd.h"
#include "base/sandbox.h"
#include "unet/shm/shm_ring.h"
#include "unet/verbs/vlink.h"
#include "unetd/client/fdcheck.h"

static int sealed_memfd(const char *name, uint64_t bytes)
{
        int fd = unet_memfd_make_sealed(name, bytes);

        return fd < 0 ? fd : fd_high(fd);
}

static int high_bell(int *bell, int *ringer)
{
        int fd = bell_make();

        *bell = fd < 0 ? fd : fd_high(fd);
        if (*bell < 0)
                return *bell;
        fd = bell_ringer(*bell);
        *ringer = fd < 0 ? fd : fd_high(fd);
        return *ringer < 0 ? *ringer : 0;
}

int unetd_stack_fds_make(struct unetd_stack_fds *f, uint64_t state_bytes)
{
        struct unetd_stack_fds n = {-1, -1, -1, -1, -1, -1};
        int r;

        if ((r = n.state = sealed_memfd("unet-state", state_bytes)) < 0 ||
            (r = n.bell = sealed_memfd("unet-bell", BELL_BYTES)) < 0 ||
            (r = bell_hold(n.bell)) < 0 || (r = high_bell(&n.leader, &n.ring_leader)) < 0 ||
            (r = high_bell(&n.keeper, &n.ring_keeper)) < 0) {
                unetd_stack_fds_close(&n);
                return r;
        }
        *f = n;
        return 0;
}

void unetd_stack_fds_close(struct unetd_stack_fds *f)
{
        int *fd[] = {&f->state, &f->bell, &f->leader, &f->ring_leader, &f->keeper, &f->ring_keeper};

        for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
                if (*fd[i] >= 0)
                        sys_close(*fd[i]);
                *fd[i] = -1;
        }
}

/* Registers a stack; unetd chooses the number of a new one. -EEXIST: the number is of another stack
 * of the user's that had it with an earlier unetd, or may be, since the user's keeper has not come
 * back yet. */
static int ask_stack_new(struct unetd_client *c, struct unetd_msg *msg, const int *fds)
{
        int64_t end = sys_now_ms() + UNETD_TIMEOUT_MS;
        int r;

        while ((r = client_ask_plain(c, msg, fds, UNETD_STACK_FDS)) == -EEXIST &&
               msg->stack.stack == 0 && sys_now_ms() < end)
                sys_poll1(c->daemon.fd, 0, 5);
        return r;
}

int unetd_stack_new(struct unetd_client *c, const struct unetd_stack_fds *f, uint32_t slot,
                    uint32_t *stack_id)
{
        struct unetd_msg msg = {.type = UNETD_STACK_NEW,
                                .stack = {.stack = *stack_id, .slot = slot}};
        int reader = sandbox_forbids(SANDBOX_FILES) ? -EPERM : unet_memfd_reader(f->state);
        int fds[UNETD_STACK_FDS] = {reader >= 0 ? reader : f->state, /* unetd writes into none */
                                    f->bell,
                                    f->leader,
                                    f->ring_leader,
                                    f->keeper,
                                    f->ring_keeper};
        int r = ask_stack_new(c, &msg, fds);

        if (reader >= 0)
                sys_close(reader);
        c->lost |= r == -EEXIST;
        if (r < 0)
                return r;
        *stack_id = msg.stack.stack;
        c->self = msg.stack.pid;
        return 0;
}

int unetd_proc_add(struct unetd_client *c, uint32_t stack_id, uint32_t slot, int32_t pid)
{
        struct unetd_msg msg = {.type = UNETD_PROC_ADD,
                                .stack = {.stack = stack_id, .slot = slot, .pid = pid}};

        bool self = pid == 0 || pid == sys_getpid();
        int r;

        if (self)
                msg.stack.pid = 0;
        r = client_ask_plain(c, &msg, NULL, 0);
        if (r == 0 && self)
                c->self = msg.stack.pid;
        return r;
}

int unetd_proc_add_fd(struct unetd_client *c, uint32_t stack_id, uint32_t slot, int pidfd,
                      int32_t *pid)
{
        struct unetd_msg msg = {.type = UNETD_PROC_ADD, .stack = {.stack = stack_id, .slot = slot}};
        int r = client_ask_plain(c, &msg, &pidfd, 1);

        if (r == 0)
                *pid = msg.stack.pid;
        return r;
}

int unetd_proc_del(struct unetd_client *c, uint32_t stack_id, uint32_t slot)
{
        struct unetd_msg msg = {.type = UNETD_PROC_DEL, .stack = {.stack = stack_id, .slot = slot}};

        return client_ask_plain(c, &msg, NULL, 0);
}

int unetd_flight(struct unetd_client *c, uint32_t stack_id, uint64_t cookie, int fd)
{
        struct unetd_msg msg = {.type = UNETD_FLIGHT,
                                .stack = {.stack = stack_id, .cookie = cookie}};

        return client_ask_plain(c, &msg, &fd, 1);
}

/* Moves what came to high numbers. */
static int raise_fds(struct wire_in *in)
{
        assert(in->n <= UNETD_FDS_MAX);
        for (unsigned i = 0; i < in->n; i++) {
                int high = fd_high(in->fds[i]);
                in->fds[i] = high;
                if (high < 0)
                        return high;
        }
        return 0;
}

static int check_stack_fds(const struct wire_in *in)
{
        int r;

        assert(in->n == UNETD_STACK_FDS);
        if ((r = unet_memfd_check(in->fds[UNETD_FD_STATE], 0, true, UNET_MEMFD_ANYBODY)) < 0 ||
            (r = unet_memfd_check(in->fds[UNETD_FD_BELL], BELL_BYTES, true, UNET_MEMFD_ANYBODY)) <
                    0 ||
            (r = fdcheck_bell(in->fds[UNETD_FD_LEADER])) < 0 ||
            (r = fdcheck_bell(in->fds[UNETD_FD_RING_LEADER])) < 0 ||
            (r = fdcheck_bell(in->fds[UNETD_FD_KEEPER])) < 0)
                return r;
        return fdcheck_bell(in->fds[UNETD_FD_RING_KEEPER]);
}

static int stack_get(struct unetd_client *c, struct unetd_msg *msg, struct unetd_stack_fds *out)
{
        struct wire_in in;
        int r = client_ask_keeper(c, msg, &in);

        if (r < 0)
                return r;
        r = in.n == UNETD_STACK_FDS ? check_stack_fds(&in) : -EPROTO;
        if (r == 0)
                r = raise_fds(&in);
        if (r == 0) {
                *out = (struct unetd_stack_fds){
                        .state = wire_in_take(&in, UNETD_FD_STATE),
                        .bell = wire_in_take(&in, UNETD_FD_BELL),
                        .leader = wire_in_take(&in, UNETD_FD_LEADER),
                        .ring_leader = wire_in_take(&in, UNETD_FD_RING_LEADER),
                        .keeper = wire_in_take(&in, UNETD_FD_KEEPER),
                        .ring_keeper = wire_in_take(&in, UNETD_FD_RING_KEEPER),
                };
                msg->stack.stack = in.msg.stack.stack;
        }
        wire_in_close(&in);
        return r;
}

int unetd_stack_get(struct unetd_client *c, uint32_t stack_id, struct unetd_stack_fds *out)
{
        struct unetd_msg msg = {.type = UNETD_STACK_GET, .stack = {.stack = stack_id}};

        return stack_id == 0 ? -ENOENT : stack_get(c, &msg, out);
}

int unetd_stack_by_cookie(struct unetd_client *c, uint64_t cookie, uint32_t *stack_id,
                          struct unetd_stack_fds *out)
{
        struct unetd_msg msg = {.type = UNETD_STACK_GET, .stack = {.cookie = cookie}};
        int r = stack_get(c, &msg, out);

        if (r == 0)
                *stack_id = msg.stack.stack;
        return r;
}

int unetd_chan_open(struct unetd_client *c, uint32_t my_stack, uint32_t peer_stack, uint32_t *chan,
                    uint32_t *peer_chan)
{
        struct unetd_msg msg = {.type = UNETD_CHAN_OPEN,
                                .chan = {.stack = my_stack, .peer_stack = peer_stack}};
        int r = client_ask_plain(c, &msg, NULL, 0);

        if (r < 0)
                return r;
        if (msg.chan.chan >= UNETD_CHANS_MAX || msg.chan.peer_chan >= UNETD_CHANS_MAX)
                return -EPROTO;
        *chan = msg.chan.chan;
        *peer_chan = msg.chan.peer_chan;
        return 0;
}

int unetd_net_change(struct unetd_client *c, enum unetd_type type, const struct unetd_net *net)
{
        struct unetd_msg msg = {.type = (uint16_t)type, .net = *net};

        assert(type >= UNETD_ROUTE_ADD && type <= UNETD_IFACE_DEL && type != UNETD_IFACE_ADD);
        return client_ask_plain(c, &msg, NULL, 0);
}

int unetd_iface_add(struct unetd_client *c, const struct unetd_iface_config *iface)
{
        struct unetd_msg msg = {.type = UNETD_IFACE_ADD, .iface = *iface};

        return client_ask_plain(c, &msg, NULL, 0);
}

static bool geom_sane(struct frame_geom g)
{
        return (uint64_t)g.count[FRAME_LARGE] + g.count[FRAME_SMALL] < 1u << FRAME_NUM_BITS;
}

static int check_link(int mem, int book)
{
        int r = unet_memfd_check(mem, vlink_bytes(), true, UNET_MEMFD_ANYBODY);

        return r < 0 ? r
                     : unet_memfd_check(book, sizeof(struct vlink_book), false, UNET_MEMFD_ANYBODY);
}

static int check_remote(const struct unetd_chan_info *info, const int fds[UNETD_CHAN_FDS_MAX])
{
        int r = unet_memfd_check(fds[UNETD_FD_RM_TX], SHM_REGION_BYTES(info->tx_geom), true,
                                 UNET_MEMFD_ANYBODY);

        if (memchr(info->iface.name, 0, sizeof info->iface.name) == NULL ||
            info->iface.prefix > 32 || info->peer_chan >= DIR_IFACES || info->mtu < 68 ||
            info->mtu > VLINK_SLOT_BYTES)
                return -EPROTO;
        return r < 0 ? r : check_link(fds[UNETD_FD_RM_MEM], fds[UNETD_FD_RM_BOOK]);
}

/* The keeper is believed about our own stack; descriptors that are to be mapped are checked all the
 * same. */
int unetd_chan_check(const struct unetd_chan_info *info, const int fds[UNETD_CHAN_FDS_MAX])
{
        int r;

        if (!geom_sane(info->tx_geom) || !geom_sane(info->rx_geom))
                return -EPROTO;
        if (unetd_is_iface(info->peer_stack) &&
            (memchr(info->iface.name, 0, sizeof info->iface.name) == NULL ||
             info->iface.prefix > 32))
                return -EPROTO;
        if (unetd_chan_is_own(info)) /* ni_xdp_attach() checks the rest */
                return unet_memfd_check(fds[UNETD_FD_IF_TX], SHM_REGION_BYTES(info->tx_geom), true,
                                        UNET_MEMFD_ANYBODY);
        if (unetd_is_remote(info->peer_stack))
                return check_remote(info, fds);
        if ((r = unet_memfd_check(fds[UNETD_FD_TX], SHM_REGION_BYTES(info->tx_geom), true,
                                  UNET_MEMFD_ANYBODY)) < 0 ||
            (r = unet_memfd_check(fds[UNETD_FD_RX], SHM_REGION_BYTES(info->rx_geom), false,
                                  UNET_MEMFD_ANYBODY)) < 0 ||
            (r = unet_memfd_check(fds[UNETD_FD_PEER_BELL], BELL_BYTES, false, UNET_MEMFD_ANYBODY)) <
                    0 ||
            (r = fdcheck_bell(fds[UNETD_FD_PEER_LEADER])) < 0)
                return r;
        return fdcheck_bell(fds[UNETD_FD_PEER_KEEPER]);
}

int unetd_chan_get(struct unetd_client *c, uint32_t stack_id, uint32_t chan, struct unetd_chan *out)
{
        struct unetd_msg msg = {.type = UNETD_CHAN_GET, .chan = {.stack = stack_id, .chan = chan}};
        struct wire_in in;
        int r = client_ask_keeper(c, &msg, &in);
        bool with_state;

        if (r < 0)
                return r;
        with_state = in.n == UNETD_FD_PEER_STATE + 1 &&
                     unetd_chan_nfds(&in.msg.chan) == UNETD_FD_PEER_STATE;
        r = in.n == unetd_chan_nfds(&in.msg.chan) || with_state
                    ? unetd_chan_check(&in.msg.chan, in.fds)
                    : -EPROTO;
        if (r == 0 && with_state)
                r = unet_memfd_check(in.fds[UNETD_FD_PEER_STATE], 0, true, UNET_MEMFD_ANYBODY);
        if (r == 0)
                r = raise_fds(&in);
        if (r == 0) {
                *out = unetd_chan_of(&in.msg.chan, in.fds);
                out->state = with_state ? in.fds[UNETD_FD_PEER_STATE] : 0;
                in.n = 0;
        }
        wire_in_close(&in);
        return r;
}

void unetd_chan_close(struct unetd_chan *ch)
{
        int *fd[] = {&ch->tx,          &ch->rx,     &ch->peer_bell, &ch->peer_leader,
                     &ch->peer_keeper, &ch->mem,    &ch->xsk,       &ch->packet,
                     &ch->ring,        &ch->sender, &ch->book};

        for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
                if (*fd[i] >= 0)
                        sys_close(*fd[i]);
                *fd[i] = -1;
        }
        if (ch->state > 0)
                sys_close(ch->state);
        ch->state = 0;
}

int unetd_link_open(struct unetd_client *c, uint32_t stack_id, uint32_t iface, int *mem, int *book)
{
        struct unetd_msg msg = {.type = UNETD_LINK_OPEN,
                                .link = {.stack = stack_id, .iface = iface}};
        struct wire_in in;
        int r = client_ask(c, &msg, NULL, 0, &in);

        if (r < 0)
                return r;
        r = in.n == UNETD_LINK_FDS
                    ? check_link(in.fds[UNETD_FD_LINK_MEM], in.fds[UNETD_FD_LINK_BOOK])
                    : -EPROTO;
        if (r == 0)
                r = raise_fds(&in);
        if (r == 0) {
                *mem = wire_in_take(&in, UNETD_FD_LINK_MEM);
                *book = wire_in_take(&in, UNETD_FD_LINK_BOOK);
        }
        wire_in_close(&in);
        return r;
}

int unetd_link_drive(struct unetd_client *c, uint32_t stack_id, uint32_t iface, uint32_t qpn,
                     uint32_t qkey, uint32_t mtu, uint32_t pinned_kb)
{
        struct unetd_msg msg = {.type = UNETD_LINK_DRIVE,
                                .link = {.stack = stack_id,
                                         .iface = iface,
                                         .qpn = qpn,
                                         .qkey = qkey,
                                         .mtu = mtu,
                                         .pinned_kb = pinned_kb}};

        return client_ask_plain(c, &msg, NULL, 0);
}

int unetd_link_back(struct unetd_client *c, uint32_t stack_id, uint32_t iface, int mem, int book)
{
        struct unetd_msg msg = {.type = UNETD_LINK_BACK,
                                .link = {.stack = stack_id, .iface = iface}};
        const int fds[UNETD_LINK_FDS] = {[UNETD_FD_LINK_MEM] = mem, [UNETD_FD_LINK_BOOK] = book};

        assert(mem >= 0 && book >= 0);
        return client_ask_plain(c, &msg, fds, UNETD_LINK_FDS);
}

int unetd_chan_back(struct unetd_client *c, uint32_t stack_id, uint32_t slot,
                    const struct unetd_chan *ch)
{
        struct unetd_msg msg = {.type = UNETD_CHAN_BACK,
                                .chan = {.stack = stack_id,
                                         .chan = slot,
                                         .peer_stack = ch->peer_stack,
                                         .peer_chan = ch->peer_chan,
                                         .peer_uid = ch->peer_uid,
                                         .tx_geom = ch->tx_geom,
                                         .rx_geom = ch->rx_geom}};
        const int fds[UNETD_REMOTE_FDS] = {[UNETD_FD_RM_TX] = ch->tx,
                                           [UNETD_FD_RM_MEM] = ch->mem,
                                           [UNETD_FD_RM_BOOK] = ch->book};

        assert(unetd_chan_is_remote(ch) && slot < UNETD_CHANS_MAX);
        return client_ask_plain(c, &msg, fds, UNETD_REMOTE_FDS);
}

int unetd_remote_open(struct unetd_client *c, uint32_t stack_id, uint32_t iface, uint8_t proto,
                      uint32_t addr, uint16_t port, uint32_t *chan)
{
        struct unetd_msg msg = {.type = UNETD_REMOTE_OPEN,
                                .link = {.stack = stack_id,
                                         .iface = iface,
                                         .addr = addr,
                                         .proto = proto,
                                         .port = port}};
        int r = client_ask_plain(c, &msg, NULL, 0);

        if (r < 0)
                return r;
        if (msg.link.chan >= UNETD_CHANS_MAX)
                return -EPROTO;
        *chan = msg.link.chan;
        return 0;
}

static struct unetd_msg port_msg(uint16_t type, uint32_t stack_id, uint8_t proto, ip_addr addr,
                                 uint16_t port)
{
        return (struct unetd_msg){
                .type = type,
                .port = {.stack = stack_id, .proto = proto, .port = port, .addr = addr}};
}

int unetd_listen_add(struct unetd_client *c, uint32_t stack_id, uint8_t proto, ip_addr addr,
                     uint16_t port, uint64_t sock, int fd)
{
        struct unetd_msg msg = port_msg(UNETD_LISTEN_ADD, stack_id, proto, addr, port);

        msg.port.sock = sock;
        return client_ask_plain(c, &msg, &fd, fd >= 0 ? 1 : 0);
}

int unetd_listen_del(struct unetd_client *c, uint32_t stack_id, uint8_t proto, ip_addr addr,
                     uint16_t port, uint64_t sock)
{
        struct unetd_msg msg = port_msg(UNETD_LISTEN_DEL, stack_id, proto, addr, port);

        msg.port.sock = sock;
        return client_ask_plain(c, &msg, NULL, 0);
}

int unetd_port_settle(struct unetd_client *c, uint8_t proto, ip_addr addr, uint16_t port)
{
        struct unetd_msg msg = port_msg(UNETD_PORT_SETTLE, 0, proto, addr, port);

        return client_ask_plain(c, &msg, NULL, 0);
}

int unetd_port_hold(struct unetd_client *c, uint32_t stack_id, uint8_t proto, ip_addr addr,
                    uint16_t *port)
{
        struct unetd_msg msg = port_msg(UNETD_PORT_HOLD, stack_id, proto, addr, *port);
        int r = client_ask_plain(c, &msg, NULL, 0);

        if (r == 0)
                *port = msg.port.port;
        return r;
}

int unetd_port_release(struct unetd_client *c, uint32_t stack_id, uint8_t proto, ip_addr addr,
                       uint16_t port)
{
        struct unetd_msg msg = port_msg(UNETD_PORT_RELEASE, stack_id, proto, addr, port);

        return client_ask_plain(c, &msg, NULL, 0);
}

int unetd_port_lease(struct unetd_client *c, uint32_t stack_id, uint16_t *first, uint16_t *count)
{
        struct unetd_msg msg = {.type = UNETD_PORT_LEASE,
                                .lease = {.stack = stack_id, .first = *first, .count = *count}};
        int r = client_ask_plain(c, &msg, NULL, 0);

        if (r < 0)
                return r;
        if (msg.lease.first == 0 || msg.lease.count == 0 ||
            msg.lease.first > 65536 - msg.lease.count)
                return -EPROTO;
        *first = msg.lease.first;
        *count = msg.lease.count;
        return 0;
}

int unetd_status(struct unetd_client *c,
                 bool (*row)(void *arg, const struct unetd_status_item *item), void *arg)
{
        struct unetd_msg msg = {.type = UNETD_STATUS};
        int r;

        while ((r = client_ask_plain(c, &msg, NULL, 0)) == 0 && row(arg, &msg.status))
                msg = (struct unetd_msg){
                        .type = UNETD_STATUS,
                        .status = {.kind = msg.status.kind, .index = msg.status.index}};
        return r == -ENODATA ? 0 : r;
}

/* The connection has become something else; the next call makes another. */
static int give_up_connection(struct unetd_client *c)
{
        int fd = c->daemon.fd;

        assert(fd >= 0);
        c->daemon = (struct unetd_conn){.fd = -1};
        return fd;
}

int unetd_emul_attach(struct unetd_client *c, const struct shm_offer *mine,
                      struct shm_offer *theirs, uint32_t *port, int *sock)
{
        struct unetd_msg msg = {.type = UNETD_EMUL_ATTACH,
                                .emul = {.mem = {.region_bytes = mine->region_bytes,
                                                 .station_bytes = mine->station_bytes,
                                                 .geom = mine->geom}}};
        const int fds[UNETD_EMUL_FDS] = {mine->region, mine->station};
        struct wire_in in;
        int r = client_ask(c, &msg, fds, UNETD_EMUL_FDS, &in);

        if (r < 0)
                return r;
        if (in.n != UNETD_EMUL_FDS) {
                wire_in_close(&in);
                client_drop(&c->daemon);
                return -EPROTO;
        }
        *theirs = (struct shm_offer){in.msg.emul.mem.region_bytes, in.msg.emul.mem.station_bytes,
                                     in.msg.emul.mem.geom, wire_in_take(&in, UNETD_FD_REGION),
                                     wire_in_take(&in, UNETD_FD_STATION)};
        *port = in.msg.emul.port;
        *sock = give_up_connection(c);
        return 0;
}

static int put_name(struct unetd_emul *e, const char *name)
{
        size_t n = strlen(name);

        if (n == 0 || n >= sizeof e->name)
                return -ENAMETOOLONG;
        memcpy(e->name, name, n + 1);
        return 0;
}

int unetd_emul_listen(struct unetd_client *c, const char *name, bool anybody, int *fd)
{
        struct unetd_msg msg = {.type = UNETD_EMUL_LISTEN,
                                .emul = {.flags = anybody ? UNETD_EMUL_ANYBODY : 0}};
        int r = put_name(&msg.emul, name);

        if (r == 0)
                r = client_ask_plain(c, &msg, NULL, 0);
        if (r == 0)
                *fd = give_up_connection(c);
        return r;
}

/* If there is no answer in time, the connection is closed, and with it the call or the channel. */
int unetd_emul_connect(struct unetd_client *c, uint32_t port, uint32_t uid, const char *name,
                       int64_t timeout_ms, uint32_t *tag)
{
        struct unetd_msg msg = {.type = UNETD_EMUL_CONNECT, .emul = {.port = port, .uid = uid}};
        struct unetd_msg thanks = {.type = UNETD_EMUL_CONNECTED};
        int64_t now = sys_now_ms(),
                end = timeout_ms < 0 || timeout_ms > INT64_MAX - now ? INT64_MAX : now + timeout_ms;
        struct wire_in in;
        int r = put_name(&msg.emul, name);

        if (r == 0)
                r = client_ready(c);
        if (r < 0)
                return r;
        r = client_exchange_until(c, &c->daemon, &msg, NULL, 0, &in,
                                  (struct client_patience){.look = end, .end = end});
        if (r == -ETIMEDOUT || r == -EPROTO || r == -ECONNRESET)
                client_drop(&c->daemon);
        if (r < 0)
                return r;
        *tag = in.msg.emul.tag;
        wire_in_close(&in);
        return client_exchange(c, &c->daemon, &thanks, NULL, 0, &in);
}

int unetd_emul_accept(struct unetd_client *c, uint32_t port, uint32_t listener, uint32_t *tag)
{
        struct unetd_msg msg = {.type = UNETD_EMUL_ACCEPT,
                                .emul = {.port = port, .listener = listener}};
        int r = client_ask_plain(c, &msg, NULL, 0);

        if (r == 0)
                *tag = msg.emul.tag;
        return r;
}

int unetd_offer_keeper(struct unetd_client *c, int *fd)
{
        struct unetd_msg msg = {.type = UNETD_K_HELLO};
        int r = client_ask_plain(c, &msg, NULL, 0);

        if (r < 0 && r != -EEXIST)
                return r;
        *fd = give_up_connection(c);
        return r;
}
