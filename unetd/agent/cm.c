/*
 * See cm.h.
 *
 *   asking:     CREATE_ID, BIND (a privileged port), RESOLVE_ADDR -> RESOLVE_ROUTE -> CONNECT
 *               -> ESTABLISHED: the answer
 *   answering:  CONNECT_REQUEST with an id of its own: asked() ... ACCEPT with the answer,
 *               DESTROY_ID
 */
#include "unetd/agent/cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <rdma/rdma_user_cm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define DEVICE     "/dev/infiniband/rdma_cm"
#define UD         4u /* enum ib_qp_type */
#define RESOLVE_MS 1000
#define LISTENING  UINT64_MAX /* a number that no question has */
#define EVENTS     16         /* a turn: hosts that ask keep nobody waiting */

/* enum rdma_cm_event_type of the kernel, those that are of interest */
enum {
        EVENT_ADDR_RESOLVED = 0,
        EVENT_ROUTE_RESOLVED = 2,
        EVENT_CONNECT_REQUEST = 4,
        EVENT_UNREACHABLE = 7,
        EVENT_REJECTED = 8,
        EVENT_ESTABLISHED = 9,
        EVENT_DEVICE_REMOVAL = 11,
};

/* A user, as long as he has a question. */
struct cm_asker {
        LIST_ENTRY(cm_asker) link;
        uint32_t uid;
        uint32_t waiting, under_way;
};

struct cm_question {
        TAILQ_ENTRY(cm_question) link;
        struct cm *cm;
        struct cm_asker *asker;
        bool under_way; /* it counts among those that have a port; else it waits */
        bool left;      /* a try got a port */
        uint32_t id, to;
        uint64_t number; /* the kernel's name for the id's events: ids are used again */
        nstime again;    /* the next try; of one that waits, the end */
        unsigned tries;
        void (*answered)(void *arg, int err, const void *data, size_t len);
        void *arg;
        size_t len;
        uint8_t data[CM_ASK_MAX];
};

/* Writes one command, with its header in front. 0 or a negative errno. */
static int command(const struct cm *cm, uint32_t cmd, const void *in, size_t in_len, size_t out_len)
{
        struct {
                struct rdma_ucm_cmd_hdr hdr;
                uint8_t body[512];
        } m = {.hdr = {.cmd = cmd, .in = (uint16_t)in_len, .out = (uint16_t)out_len}};

        static_assert(sizeof(struct rdma_ucm_accept) <= sizeof m.body, "the longest");
        assert(in_len <= sizeof m.body);
        memcpy(m.body, in, in_len);
        return write(cm->source.fd, &m, sizeof m.hdr + in_len) < 0 ? -errno : 0;
}

static struct __kernel_sockaddr_storage name_of(uint32_t addr, uint16_t port)
{
        struct __kernel_sockaddr_storage ss;
        struct sockaddr_in sin = {
                .sin_family = AF_INET, .sin_addr.s_addr = htonl(addr), .sin_port = htons(port)};

        memset(&ss, 0, sizeof ss);
        memcpy(&ss, &sin, sizeof sin);
        return ss;
}

/* ---- ids ---- */

static int create_id(const struct cm *cm, uint64_t number, uint32_t *id)
{
        struct rdma_ucm_create_id_resp resp = {.id = 0};
        struct rdma_ucm_create_id m = {
                .uid = number, .response = (uintptr_t)&resp, .ps = RDMA_PS_UDP, .qp_type = UD};
        int err = command(cm, RDMA_USER_CM_CMD_CREATE_ID, &m, sizeof m, sizeof resp);

        if (err == 0)
                *id = resp.id;
        return err;
}

static void destroy_id(const struct cm *cm, uint32_t id)
{
        struct rdma_ucm_destroy_id_resp resp;
        struct rdma_ucm_destroy_id m = {.response = (uintptr_t)&resp, .id = id};

        command(cm, RDMA_USER_CM_CMD_DESTROY_ID, &m, sizeof m, sizeof resp);
}

static int bind_id(const struct cm *cm, uint32_t id, uint16_t port)
{
        struct rdma_ucm_bind m = {
                .id = id, .addr_size = sizeof(struct sockaddr_in), .addr = name_of(cm->addr, port)};

        return command(cm, RDMA_USER_CM_CMD_BIND, &m, sizeof m, 0);
}

/* Goes around, so that the next port is nearly always free. */
static uint16_t next_port(struct cm *cm)
{
        do
                if (--cm->next_port < CM_PORT_LOW)
                        cm->next_port = CM_PORT_END - 1;
        while (cm->next_port == CM_PORT);
        return cm->next_port;
}

static int bind_privileged(struct cm *cm, uint32_t id)
{
        int err = -EADDRINUSE;

        for (uint32_t n = 0; n < CM_PORTS && err == -EADDRINUSE; n++)
                err = bind_id(cm, id, next_port(cm));
        return err;
}

/* Finds out who is at the other end of an id: 0, or -EPERM if it is not an agent. */
static int peer_of(const struct cm *cm, uint32_t id, uint32_t *from)
{
        struct rdma_ucm_query_addr_resp resp = {.dst_size = 0};
        struct rdma_ucm_query m = {
                .response = (uintptr_t)&resp, .id = id, .option = RDMA_USER_CM_QUERY_ADDR};
        struct sockaddr_in sin;
        int err = command(cm, RDMA_USER_CM_CMD_QUERY, &m, sizeof m, sizeof resp);

        if (err != 0)
                return err;
        memcpy(&sin, &resp.dst_addr, sizeof sin);
        if (sin.sin_family != AF_INET || ntohs(sin.sin_port) >= CM_PORT_END)
                return -EPERM;
        *from = ntohl(sin.sin_addr.s_addr);
        return 0;
}

/* ---- asking ---- */

static int resolve(const struct cm_question *q)
{
        struct rdma_ucm_resolve_addr m = {.id = q->id,
                                          .timeout_ms = RESOLVE_MS,
                                          .dst_size = sizeof(struct sockaddr_in),
                                          .dst_addr = name_of(q->to, CM_PORT)};

        return command(q->cm, RDMA_USER_CM_CMD_RESOLVE_ADDR, &m, sizeof m, 0);
}

static int route(const struct cm_question *q)
{
        struct rdma_ucm_resolve_route m = {.id = q->id, .timeout_ms = RESOLVE_MS};

        return command(q->cm, RDMA_USER_CM_CMD_RESOLVE_ROUTE, &m, sizeof m, 0);
}

static int put(const struct cm_question *q)
{
        struct rdma_ucm_connect m = {
                .id = q->id, .conn_param = {.private_data_len = (uint8_t)q->len, .valid = 1}};

        assert(q->len <= sizeof q->data && q->id != 0);
        memcpy(m.conn_param.private_data, q->data, q->len);
        return command(q->cm, RDMA_USER_CM_CMD_CONNECT, &m, sizeof m, 0);
}

static int begin(struct cm_question *q)
{
        static uint64_t numbers;
        int err;

        assert(q->under_way && q->id == 0 && q->tries < CM_TRIES);
        q->number = ++numbers;
        q->again = loop_clock() + CM_TRY;
        q->tries++;
        err = create_id(q->cm, q->number, &q->id);
        if (err != 0)
                return err;
        err = bind_privileged(q->cm, q->id);
        q->left |= err == 0;
        return err != 0 ? err : resolve(q);
}

static void end_id(struct cm_question *q)
{
        if (q->id != 0)
                destroy_id(q->cm, q->id);
        q->id = 0;
        q->number = 0;
}

/* ---- whose they are ---- */

static struct cm_asker *asker_of(struct cm *cm, uint32_t uid)
{
        struct cm_asker *a;

        LIST_FOREACH (a, &cm->askers, link)
                if (a->uid == uid)
                        return a;
        a = calloc(1, sizeof *a);
        if (a != NULL) {
                a->uid = uid;
                LIST_INSERT_HEAD(&cm->askers, a, link);
        }
        return a;
}

static void asker_free_if_done(struct cm_asker *a)
{
        if (a->waiting + a->under_way != 0)
                return;
        LIST_REMOVE(a, link);
        free(a);
}

/* Half of what the others leave. */
static bool may_begin(const struct cm_question *q)
{
        uint32_t mine = q->asker->under_way, others = q->cm->under_way - mine;

        return mine + others < CM_PORTS && mine + 1 <= (CM_PORTS - others + 1) / 2;
}

/* What fails is tried again by cm_tick(). */
static void begin_first(struct cm_question *q)
{
        assert(!q->under_way && q->asker->waiting != 0);
        q->under_way = true;
        q->asker->waiting--;
        q->asker->under_way++;
        q->cm->under_way++;
        knock_at(&q->cm->knock, q->to);
        begin(q);
}

void cm_forget(struct cm_question *q)
{
        assert(!q->under_way || (q->cm->under_way != 0 && q->asker->under_way != 0));
        TAILQ_REMOVE(&q->cm->questions, q, link);
        end_id(q);
        q->cm->under_way -= q->under_way;
        q->asker->under_way -= q->under_way;
        q->asker->waiting -= !q->under_way;
        asker_free_if_done(q->asker);
        free(q);
}

static void end(struct cm_question *q, int err, const void *data, size_t len)
{
        void (*answered)(void *, int, const void *, size_t) = q->answered;
        void *arg = q->arg;

        assert(answered != NULL);
        cm_forget(q);
        answered(arg, err, data, len);
}

struct cm_question *cm_ask(struct cm *cm, uint32_t uid, uint32_t to, const void *data, size_t len,
                           void (*answered)(void *arg, int err, const void *data, size_t len),
                           void *arg)
{
        struct cm_asker *a = cm->source.fd >= 0 ? asker_of(cm, uid) : NULL;
        struct cm_question *q = a != NULL && a->waiting < CM_WAITING ? calloc(1, sizeof *q) : NULL;

        if (q == NULL) {
                if (a != NULL)
                        asker_free_if_done(a);
                return NULL;
        }
        *q = (struct cm_question){.cm = cm,
                                  .asker = a,
                                  .to = to,
                                  .again = loop_clock() + CM_TRIES * CM_TRY,
                                  .answered = answered,
                                  .arg = arg,
                                  .len = len};
        assert(len <= sizeof q->data);
        memcpy(q->data, data, len);
        TAILQ_INSERT_TAIL(&cm->questions, q, link);
        a->waiting++;
        if (a->waiting == 1 && may_begin(q))
                begin_first(q);
        return q;
}

/* Returns true if its time is over. */
static bool is_over(struct cm_question *q, nstime now)
{
        if (!q->under_way && may_begin(q))
                begin_first(q);
        if (q->again > now)
                return false;
        if (!q->under_way || q->tries >= CM_TRIES)
                return true;
        end_id(q);
        begin(q);
        return false;
}

nstime cm_tick(struct cm *cm)
{
        nstime now = loop_clock(), next = NSTIME_NEVER;
        struct cm_question *q = TAILQ_FIRST(&cm->questions);

        while (q != NULL) {
                if (is_over(q, now)) {
                        end(q, q->left ? -ETIMEDOUT : -EBUSY, NULL, 0);
                        /* Whoever was told may have asked others. */
                        q = TAILQ_FIRST(&cm->questions);
                } else {
                        next = nstime_min(next, q->again);
                        q = TAILQ_NEXT(q, link);
                }
        }
        return next;
}

/* Hosts whose adapters take RoCE away from their kernel may say so too: an agent answers sooner
 * than this ends. */
static void nobody_there(struct knock *k, uint32_t addr)
{
        struct cm *cm = (struct cm *)((char *)k - offsetof(struct cm, knock));
        struct cm_question *q;

        TAILQ_FOREACH (q, &cm->questions, link)
                if (q->under_way && q->to == addr && q->tries < CM_TRIES) {
                        q->tries = CM_TRIES;
                        q->again = nstime_min(q->again, loop_clock() + CM_REFUSED);
                }
}

/* ---- events ---- */

static struct cm_question *find(const struct cm *cm, uint64_t number)
{
        struct cm_question *q;

        TAILQ_FOREACH (q, &cm->questions, link)
                if (q->number == number)
                        return q;
        return NULL;
}

/* An answer, or a step towards one. */
static void advance(struct cm_question *q, const struct rdma_ucm_event_resp *e)
{
        int err = 0;

        switch (e->event) {
        case EVENT_ADDR_RESOLVED:
                err = route(q);
                break;
        case EVENT_ROUTE_RESOLVED:
                err = put(q);
                break;
        case EVENT_ESTABLISHED:
                end(q, 0, e->param.ud.private_data,
                    MIN(e->param.ud.private_data_len, CM_ANSWER_MAX));
                return;
        case EVENT_REJECTED:
        case EVENT_UNREACHABLE:
                end(q, e->event == EVENT_REJECTED ? -ECONNREFUSED : -EHOSTUNREACH, NULL, 0);
                return;
        default: /* could not be resolved: tried again by cm_tick() */
                break;
        }
        if (err != 0)
                end_id(q);
}

static void request(struct cm *cm, const struct rdma_ucm_event_resp *e)
{
        uint32_t from;

        if (peer_of(cm, e->id, &from) != 0)
                destroy_id(cm, e->id);
        else
                cm->ops->asked(cm, e->id, from, e->param.ud.private_data,
                               MIN(e->param.ud.private_data_len, CM_ASK_MAX));
}

static void ready(struct loop_source *s, uint32_t events)
{
        struct cm *cm = (struct cm *)s;
        struct rdma_ucm_event_resp e;
        struct rdma_ucm_get_event m = {.response = (uintptr_t)&e};
        struct cm_question *q;

        for (int n = 0; n < EVENTS && s->fd >= 0 &&
                        command(cm, RDMA_USER_CM_CMD_GET_EVENT, &m, sizeof m, sizeof e) == 0;
             n++) {
                if (e.event == EVENT_CONNECT_REQUEST)
                        request(cm, &e);
                else if (e.event == EVENT_DEVICE_REMOVAL && e.uid == LISTENING)
                        cm->ops->gone(cm);
                else if ((q = find(cm, e.uid)) != NULL)
                        advance(q, &e);
        }
}

int cm_answer(struct cm *cm, uint32_t id, const void *data, size_t len)
{
        struct rdma_ucm_accept m = {.id = id,
                                    .conn_param = {.private_data_len = (uint8_t)len, .valid = 1}};
        int err;

        assert(len <= CM_ANSWER_MAX);
        memcpy(m.conn_param.private_data, data, len);
        err = command(cm, RDMA_USER_CM_CMD_ACCEPT, &m, sizeof m, 0);
        destroy_id(cm, id);
        return err;
}

/* ---- opening ---- */

static int listen_at(struct cm *cm)
{
        struct rdma_ucm_listen m = {.backlog = 64};
        int err = create_id(cm, LISTENING, &cm->listening);

        if (err == 0)
                err = bind_id(cm, cm->listening, CM_PORT);
        m.id = cm->listening;
        return err != 0 ? err : command(cm, RDMA_USER_CM_CMD_LISTEN, &m, sizeof m, 0);
}

int cm_open(struct cm *cm, struct loop *loop, uint32_t addr, const struct cm_ops *ops)
{
        int err;

        assert(ops->asked != NULL && ops->gone != NULL);
        *cm = (struct cm){
                .ops = ops, .addr = addr, .source.ready = ready, .next_port = CM_PORT_END};
        TAILQ_INIT(&cm->questions);
        cm->source.fd = open(DEVICE, O_RDWR | O_CLOEXEC | O_NONBLOCK);
        if (cm->source.fd < 0)
                return -errno;
        err = listen_at(cm);
        if (err == 0)
                err = loop_add(loop, &cm->source, EPOLLIN);
        if (err == 0)
                err = knock_open(&cm->knock, loop, addr, KNOCK_ROCE, nobody_there);
        if (err != 0) {
                close(cm->source.fd);
                cm->source.fd = -1;
        }
        return err;
}

/* Closed, they leave the loop, and the kernel's ids end. */
void cm_close(struct cm *cm)
{
        close(cm->source.fd);
        close(cm->knock.source.fd);
        cm->source.fd = cm->knock.source.fd = -1;
        while (!TAILQ_EMPTY(&cm->questions))
                end(TAILQ_FIRST(&cm->questions), -ENETDOWN, NULL, 0);
}
