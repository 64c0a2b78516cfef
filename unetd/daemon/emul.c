/*
 * Emulated endpoints (the paper's §3.5): one switch, run between two looks at the sockets.
 *
 *   attach   a connection gives its endpoint's memory, gets the switch's, and is a port's link from
 *            then on
 *   listen   a connection stands for a name
 *   connect  a call: waits at the name, on a connection of its own
 *   accept   the oldest call of a name and a port become a channel; both are told its tags
 *
 * A port belongs to a user and goes when its socket hangs up. Names and calls go with their
 * connections. unetd rings a listener (CALL) whenever a call comes and, after an accept, when more
 * of them wait. A listener that has read a ring accepts.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memfd.h"
#include "unetd/daemon/daemon.h"
#include "unetd/daemon/emul.h"
#include "unetd/daemon/shares.h"
#include "unetd/daemon/unread.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

#define LARGE_FRAMES 64u /* towards each port */
#define SMALL_FRAMES 256u
#define STATION_MAX  (64u << 20) /* unetd maps at most so much of an endpoint */
#define CALLS_MAX    64u         /* calls that wait at a name */
#define MSGS_A_TURN  64u
#define LINGER       (20 * NS_PER_US) /* the switch busy-polls so long before it sleeps */

struct emul_call {
        TAILQ_ENTRY(emul_call) link;
        struct emul_name *name;
        struct client *client;
        struct unetd_msg request;
};

struct emul_name {
        LIST_ENTRY(emul_name) link;
        uint32_t id;
        struct client *client;
        struct unetd_emul as; /* uid, name, flags */
        TAILQ_HEAD(, emul_call) calls;
        uint32_t ncalls;
};

struct emul_port {
        struct user *user; /* NULL: the port is free */
        int32_t pid;
        int sock; /* the switch has a copy */
};

static struct {
        /* Made with the first port, and kept: its tags must not be used again. */
        struct unet_switch *sw;
        struct loop_source src;
        bool awake;
        nstime last_work;
        uint32_t nports, next_id;
        struct emul_port port[SWITCH_PORTS];
        LIST_HEAD(, emul_name) names;
} emul;

/* ---- calls ---- */

static void call_end(struct emul_call *call, int err)
{
        struct unetd_msg *reply = &call->request;

        call->client->call = NULL;
        TAILQ_REMOVE(&call->name->calls, call, link);
        assert(call->name->ncalls != 0);
        call->name->ncalls--;
        conn_reply(&call->client->conn, reply, err);
        free(call);
}

static void calls_end_of_port(uint32_t port)
{
        struct emul_name *n;

        LIST_FOREACH (n, &emul.names, link) {
                struct emul_call *call = TAILQ_FIRST(&n->calls), *next;

                for (; call; call = next) {
                        next = TAILQ_NEXT(call, link);
                        if (call->request.emul.port == port)
                                call_end(call, -EPIPE);
                }
        }
}

/* Rings the listener. A ring that does not fit into the socket is left out: the listener has others
 * to read, and will look anyway. */
static void ring(const struct emul_name *n)
{
        struct unetd_msg msg = {.type = UNETD_EMUL_CALL, .emul = {.listener = n->id}};

        if (!n->client->conn.broken)
                wire_send(n->client->conn.src.fd, &msg, NULL, 0, MSG_DONTWAIT);
}

/* ---- ports ---- */

static void port_left(void *arg, uint32_t port)
{
        struct emul_port *p = &emul.port[port];

        calls_end_of_port(port);
        assert(p->user != NULL && p->user->used.emul_endpoints != 0);
        p->user->used.emul_endpoints--;
        unread_hang_up(p->user, p->sock, &p->user->unread);
        p->user = NULL;
        assert(emul.nports != 0);
        emul.nports--;
}

static void switch_ready(struct loop_source *s, uint32_t events)
{
        emul.awake = true;
}

static int switch_start(void)
{
        const struct unet_switch_opts opts = {.large = LARGE_FRAMES,
                                              .small = SMALL_FRAMES,
                                              .most = MSGS_A_TURN,
                                              .left = port_left};
        int r;

        if (emul.sw)
                return 0;
        r = unet_switch_open(&opts, &emul.sw);
        if (r < 0)
                return r;
        emul.src = (struct loop_source){.fd = unet_switch_fd(emul.sw), .ready = switch_ready};
        r = loop_add(&unetd.loop, &emul.src, EPOLLIN);
        if (r < 0) {
                unet_switch_close(emul.sw);
                emul.sw = NULL;
        }
        return r;
}

/* Rings carry no descriptors. unetd would close a descriptor that came with one, and its owner may
 * make the last close take long (discard.c). So the socket lets none in (SO_PASSRIGHTS, which older
 * kernels do not have). None was sent before the endpoint could know that it is attached. */
static int rings_only(int sock)
{
        int off = 0;
        char byte;

        setsockopt(sock, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off);
        return recv(sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0 ? -EBADMSG : 0;
}

/* Makes a port with the client's memory, over a second descriptor of its connection. */
static int port_new(struct client *cl, const struct shm_offer *theirs, struct shm_offer *mine,
                    uint32_t *port)
{
        int sock, r = switch_start();

        if (r < 0)
                return r;
        sock = fcntl(cl->conn.src.fd, F_DUPFD_CLOEXEC, 3);
        if (sock < 0)
                return -errno;
        r = rings_only(sock);
        if (r == 0)
                r = unet_switch_attach(emul.sw, sock, theirs, cl->user->uid, &cl->user->emul, mine,
                                       port);
        if (r < 0)
                close(sock);
        return r;
}

static int check_offer(const struct client *cl, const struct wire_in *in)
{
        int r;

        if (in->n != UNETD_EMUL_FDS)
                return -EINVAL;
        if (in->msg.emul.mem.station_bytes > STATION_MAX ||
            cl->user->used.emul_endpoints >= unetd.cfg.per_uid.emul_endpoints ||
            !share_may_attach(cl->user))
                return -EDQUOT;
        if (cl->name || cl->call || cl->waiting || cl->conn.queued)
                return -EBUSY; /* the connection owes something as it is */
        r = unet_memfd_check(in->fds[UNETD_FD_REGION], in->msg.emul.mem.region_bytes, false,
                             UNET_MEMFD_ANYBODY);
        return r < 0 ? r
                     : unet_memfd_check(in->fds[UNETD_FD_STATION], in->msg.emul.mem.station_bytes,
                                        false, UNET_MEMFD_ANYBODY);
}

int emul_attach(struct client *cl, struct wire_in *in)
{
        const struct unetd_emul *e = &in->msg.emul;
        struct shm_offer theirs = {e->mem.region_bytes, e->mem.station_bytes, e->mem.geom,
                                   in->fds[UNETD_FD_REGION], in->fds[UNETD_FD_STATION]},
                         mine;
        struct unetd_msg reply = in->msg;
        uint32_t port;
        int r = check_offer(cl, in);

        if (r == 0)
                r = port_new(cl, &theirs, &mine, &port);
        if (r < 0)
                return r;
        emul.port[port] = (struct emul_port){cl->user, cl->pid, -1};
        cl->user->used.emul_endpoints++;
        emul.nports++;
        emul.awake = true;
        reply.err = 0;
        reply.emul = (struct unetd_emul){.port = port,
                                         .mem = {.region_bytes = mine.region_bytes,
                                                 .station_bytes = mine.station_bytes,
                                                 .geom = mine.geom}};
        conn_send(&cl->conn, &reply, (const int[]){mine.region, mine.station}, UNETD_EMUL_FDS);
        unet_switch_sent(emul.sw, port);
        emul.port[port].sock = conn_take(&cl->conn);
        conn_fail(&cl->conn);
        return REPLY_LATER; /* it is sent, and the client freed */
}

static bool owns_port(const struct client *cl, uint32_t port)
{
        return port < SWITCH_PORTS && emul.port[port].user == cl->user;
}

/* ---- names ---- */

static bool name_valid(const char name[UNETD_EMUL_NAME])
{
        return name[0] && memchr(name, 0, UNETD_EMUL_NAME) && !strchr(name, '/');
}

static struct emul_name *name_find(uint32_t uid, const char *name)
{
        struct emul_name *n;

        LIST_FOREACH (n, &emul.names, link)
                if (n->as.uid == uid && strcmp(n->as.name, name) == 0)
                        return n;
        return NULL;
}

static struct emul_name *name_by_id(uint32_t id)
{
        struct emul_name *n;

        LIST_FOREACH (n, &emul.names, link)
                if (n->id == id)
                        return n;
        return NULL;
}

int emul_listen(struct client *cl, const struct unetd_msg *msg)
{
        struct emul_name *n;

        if (!name_valid(msg->emul.name))
                return -EINVAL;
        if (cl->name || cl->call)
                return -EBUSY;
        if (name_find(cl->user->uid, msg->emul.name))
                return -EADDRINUSE;
        if (cl->user->used.emul_names >= unetd.cfg.per_uid.emul_names)
                return -EDQUOT;
        n = calloc(1, sizeof *n);
        if (!n)
                return -ENOMEM;
        *n = (struct emul_name){.id = ++emul.next_id, .client = cl, .as = msg->emul};
        n->as.uid = cl->user->uid;
        TAILQ_INIT(&n->calls);
        LIST_INSERT_HEAD(&emul.names, n, link);
        cl->user->used.emul_names++;
        cl->name = n;
        return 0;
}

static void name_end(struct emul_name *n)
{
        struct emul_call *call;

        while ((call = TAILQ_FIRST(&n->calls)))
                call_end(call, -ECONNREFUSED);
        LIST_REMOVE(n, link);
        assert(n->client->user->used.emul_names != 0);
        assert(TAILQ_EMPTY(&n->calls) && n->ncalls == 0);
        n->client->user->used.emul_names--;
        n->client->name = NULL;
        free(n);
}

static bool may_call(const struct client *cl, const struct emul_name *n)
{
        return cl->user->uid == n->as.uid || cl->user->uid == 0 || n->as.flags & UNETD_EMUL_ANYBODY;
}

/* Returns true if one more call of the user's may wait at the name. */
static bool has_room(const struct emul_name *n, const struct user *u)
{
        const struct emul_call *call;
        uint32_t his = 0;

        TAILQ_FOREACH (call, &n->calls, link)
                his += call->client->user == u;
        return n->ncalls < CALLS_MAX && share_may_take(his, n->ncalls, CALLS_MAX);
}

int emul_connect(struct client *cl, const struct unetd_msg *msg)
{
        struct emul_name *n;
        struct emul_call *call;

        if (!name_valid(msg->emul.name))
                return -EINVAL;
        if (!owns_port(cl, msg->emul.port))
                return -ENOENT;
        if (cl->name || cl->call || cl->new_tag)
                return -EBUSY;
        n = name_find(msg->emul.uid, msg->emul.name);
        if (!n || !has_room(n, cl->user))
                return -ECONNREFUSED;
        if (!may_call(cl, n))
                return -EACCES;
        call = calloc(1, sizeof *call);
        if (!call)
                return -ENOMEM;
        *call = (struct emul_call){.name = n, .client = cl, .request = *msg};
        TAILQ_INSERT_TAIL(&n->calls, call, link);
        n->ncalls++;
        cl->call = call;
        ring(n);
        return REPLY_LATER;
}

static bool may_join(const struct user *u)
{
        return share_may_join(u) && u->emul.chans < u->emul.chans_max;
}

/* Returns the oldest call whose user may have one more channel. Ends the others with -EDQUOT: their
 * limits are no error of the accepting user. */
static struct emul_call *next_call(struct emul_name *n, const struct user *accepts)
{
        struct emul_call *call;

        while ((call = TAILQ_FIRST(&n->calls)) != NULL && call->client->user != accepts &&
               !may_join(call->client->user))
                call_end(call, -EDQUOT);
        return call;
}

/* Connects the two ports and tells both sides their tags. Until the caller has read its tag, the
 * channel ends with the caller's connection. */
static int answer(struct emul_call *call, struct unetd_msg *msg)
{
        struct client *caller = call->client;
        uint32_t tag[2];
        int r = share_may_join(call->name->client->user)
                        ? unet_switch_connect(emul.sw, call->request.emul.port, msg->emul.port, tag)
                        : -EDQUOT;

        if (r == 0) {
                caller->new_tag = call->request.emul.tag = tag[0];
                msg->emul.tag = tag[1];
                msg->emul.uid = caller->user->uid;
                msg->emul.pid = caller->pid;
        }
        call_end(call, r);
        return r;
}

int emul_accept(struct client *cl, struct unetd_msg *msg)
{
        struct emul_name *n = name_by_id(msg->emul.listener);
        struct emul_call *call;
        int r;

        if (!n || !owns_port(cl, msg->emul.port))
                return -ENOENT;
        if (n->as.uid != cl->user->uid)
                return -EPERM;
        call = next_call(n, cl->user);
        if (!call)
                return -ENOMSG;
        r = answer(call, msg);
        if (!TAILQ_EMPTY(&n->calls))
                ring(n);
        return r;
}

void emul_client_ended(struct client *cl)
{
        if (cl->name)
                name_end(cl->name);
        if (cl->call)
                call_end(cl->call, -ECONNRESET);
        if (cl->new_tag && emul.sw)
                unet_switch_disconnect(emul.sw, cl->new_tag);
        cl->new_tag = 0;
}

/* ---- running ---- */

bool emul_in_use(void)
{
        return emul.nports > 0;
}

nstime emul_turn(void)
{
        if (!emul.awake)
                return NSTIME_NEVER;
        if (unet_switch_step(emul.sw) > 0) {
                emul.last_work = unetd.loop.now;
                /* Lets a receiver on this processor run before its queue is full. */
                sched_yield();
        } else if (unetd.loop.now - emul.last_work >= LINGER && unet_switch_arm(emul.sw)) {
                emul.awake = false;
        }
        return emul.awake ? unetd.loop.now : NSTIME_NEVER;
}

/* ---- status ---- */

static struct unetd_emul_counts counts(uint32_t port)
{
        const struct counters *c = unet_switch_counters(emul.sw, port);

        return (struct unetd_emul_counts){
                .sent = c->n[COUNT_NI_RX_MSGS],
                .received = c->n[COUNT_NI_TX_MSGS],
                .waiting_kb = (uint32_t)(unet_switch_charged(emul.sw, port) >> 10),
                .bad_source = (uint32_t)c->drop[DROP_NI_BAD_SOURCE],
                .no_channel = (uint32_t)c->drop[DROP_NI_NO_CHANNEL],
                .malformed = (uint32_t)(c->drop[DROP_NI_MALFORMED] + c->drop[DROP_NI_BAD_FRAME]),
                .quota = (uint32_t)c->drop[DROP_NI_QUOTA],
                .queue_full = (uint32_t)c->drop[DROP_NI_QUEUE_FULL],
                .no_buffer = (uint32_t)c->drop[DROP_NI_NO_BUFFER],
        };
}

bool emul_status(const struct client *cl, uint32_t skip, struct unetd_status_item *item)
{
        for (uint32_t port = 1; port < SWITCH_PORTS; port++) {
                const struct emul_port *p = &emul.port[port];

                if (!p->user || (p->user != cl->user && cl->user->uid != 0) || skip-- > 0)
                        continue;
                item->uid = p->user->uid;
                item->pid = p->pid;
                item->stack = port;
                item->emul = counts(port);
                return true;
        }
        return false;
}
