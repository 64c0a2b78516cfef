/* See fake_verbs.h. One lock for everything: two ends may be two threads. */
#include "fake_verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/base.h"

#undef ibv_query_port
#undef ibv_reg_mr

#define QPS   64
#define AHS   64
#define DEPTH 8192
#define HELD  64
#define SGES  8

struct fake_cq {
        struct ibv_cq cq;
        struct ibv_wc wc[DEPTH];
        uint32_t head, tail;
        bool armed;
        int say; /* the writing end of its channel */
};

struct fake_channel {
        struct ibv_comp_channel ch;
        int say;
};

struct fake_ah {
        struct ibv_ah ah;
        struct ibv_ah_attr attr;
        int device;
};

struct fake_qp {
        struct ibv_qp qp;
        int device;
        enum ibv_qp_state state;
        uint32_t qkey;
        struct ibv_recv_wr wr[DEPTH]; /* one piece each */
        struct ibv_sge sge[DEPTH];
        uint32_t head, tail;
};

struct fake_context {
        struct ibv_context ctx;
        int say; /* where it hears of events */
        struct fake_context *next;
};

static struct fake_device {
        struct ibv_device dev;
        struct fake_context *open;
        ip_addr addr;
        uint32_t index;
        bool up, has_gid;
        enum ibv_wc_status send_status, recv_status;
        bool odd;
        unsigned odd_flags;
        uint32_t odd_len;
        int send_limit, recv_limit;
} devices[FAKE_DEVICES];

/* What is posted while the device stands still. */
static struct {
        struct fake_qp *qp;
        struct ibv_send_wr wr;
        struct ibv_sge sge[SGES];
} held[HELD];
static uint32_t nheld;
static bool holds;

static struct fake_qp *qps[QPS];
static struct fake_ah *ahs[AHS];
static struct ibv_device *list[FAKE_DEVICES + 1];
static _Atomic int live;
static int fail_at;
static bool failed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- for tests ---- */

void fake_reset(uint32_t a, uint32_t b)
{
        for (int i = 0; i < FAKE_DEVICES; i++)
                devices[i] = (struct fake_device){.addr = ip_addr_v4(i == 0 ? a : b),
                                                  .index = 1,
                                                  .up = true,
                                                  .has_gid = true,
                                                  .send_limit = -1,
                                                  .recv_limit = -1};
        fail_at = 0;
        failed = false;
        holds = false;
}

int fake_live(void)
{
        return live;
}

void fake_event(int device, enum ibv_event_type type)
{
        struct ibv_async_event e = {.element.port_num = 1, .event_type = type};

        for (const struct fake_context *c = devices[device].open; c != NULL; c = c->next)
                if (write(c->say, &e, sizeof e) != sizeof e)
                        abort();
}

bool fake_unheard(int device)
{
        bool any = false;
        int bytes;

        for (const struct fake_context *c = devices[device].open; c != NULL; c = c->next)
                any |= ioctl(c->say, FIONREAD, &bytes) == 0 && bytes != 0;
        return any;
}

void fake_stop_qp(int device)
{
        for (int i = 0; i < QPS; i++)
                if (qps[i] != NULL && qps[i]->device == device) {
                        qps[i]->state = IBV_QPS_ERR;
                        qps[i]->head = qps[i]->tail;
                }
}

void fake_port(int device, bool up)
{
        devices[device].up = up;
        fake_event(device, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

void fake_move_gid(int device)
{
        devices[device].index++;
        fake_event(device, IBV_EVENT_GID_CHANGE);
}

void fake_lose_gid(int device)
{
        devices[device].has_gid = false;
        fake_event(device, IBV_EVENT_GID_CHANGE);
}

static void send_one(struct fake_qp *q, const struct ibv_send_wr *wr);

void fake_hold(bool on)
{
        pthread_mutex_lock(&lock);
        holds = on;
        for (uint32_t i = 0; i < nheld && !on; i++)
                send_one(held[i].qp, &held[i].wr);
        nheld = on ? nheld : 0;
        pthread_mutex_unlock(&lock);
}

void fake_send_status(int device, enum ibv_wc_status status)
{
        devices[device].send_status = status;
}

void fake_recv_status(int device, enum ibv_wc_status status)
{
        devices[device].recv_status = status;
}

void fake_recv_odd(int device, unsigned flags, uint32_t byte_len)
{
        devices[device].odd = true;
        devices[device].odd_flags = flags;
        devices[device].odd_len = byte_len;
}

void fake_post_send_limit(int device, int n)
{
        devices[device].send_limit = n;
}

void fake_post_recv_limit(int device, int n)
{
        devices[device].recv_limit = n;
}

void fake_fail_call(int n)
{
        fail_at = n;
        failed = false;
}

bool fake_failed(void)
{
        return failed;
}

int fake_posted(int device)
{
        int n = 0;

        for (int i = 0; i < QPS; i++)
                if (qps[i] != NULL && qps[i]->device == device)
                        n += (int)(qps[i]->tail - qps[i]->head);
        return n;
}

/* ---- objects ---- */

/* True: this call is the one. */
static bool fails(int err)
{
        if (fail_at == 0 || --fail_at != 0)
                return false;
        failed = true;
        errno = err;
        return true;
}

static void *make(size_t bytes)
{
        void *p = fails(ENOMEM) ? NULL : calloc(1, bytes);

        live += p != NULL;
        return p;
}

static int end(void *p)
{
        free(p);
        live--;
        return 0;
}

static int pipe_of(int *say)
{
        int fd[2];

        if (pipe2(fd, O_CLOEXEC | O_NONBLOCK) != 0)
                abort();
        *say = fd[1];
        return fd[0];
}

struct ibv_device **ibv_get_device_list(int *n)
{
        if (fails(ENOSYS))
                return NULL;
        for (int i = 0; i < FAKE_DEVICES; i++)
                list[i] = &devices[i].dev;
        *n = FAKE_DEVICES;
        return list;
}

void ibv_free_device_list(struct ibv_device **l)
{
}

const char *ibv_get_device_name(struct ibv_device *d)
{
        return "fake";
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
static int req_notify(struct ibv_cq *cq, int solicited);

/* Each time another one, as with the library: a device may be opened several times. */
struct ibv_context *ibv_open_device(struct ibv_device *d)
{
        struct fake_device *f = (struct fake_device *)d;
        struct fake_context *own = make(sizeof *own);
        struct ibv_context *c;

        if (own == NULL)
                return NULL;
        c = &own->ctx;
        c->device = d;
        c->ops.post_send = post_send;
        c->ops.post_recv = post_recv;
        c->ops.poll_cq = poll_cq;
        c->ops.req_notify_cq = req_notify;
        c->cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        c->async_fd = pipe_of(&own->say);
        pthread_mutex_lock(&lock);
        own->next = f->open;
        f->open = own;
        pthread_mutex_unlock(&lock);
        return c;
}

int ibv_close_device(struct ibv_context *c)
{
        struct fake_context *own = (struct fake_context *)c,
                            **at = &((struct fake_device *)c->device)->open;

        pthread_mutex_lock(&lock);
        while (*at != own)
                at = &(*at)->next;
        *at = own->next;
        pthread_mutex_unlock(&lock);
        close(own->say);
        close(c->cmd_fd);
        close(c->async_fd);
        return end(own);
}

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *e)
{
        return read(c->async_fd, e, sizeof *e) == sizeof *e ? 0 : -1;
}

void ibv_ack_async_event(struct ibv_async_event *e)
{
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
        *a = (struct ibv_device_attr){.max_sge = 32, .max_qp_wr = 4096, .max_cqe = 8191};
        return fails(EIO) ? EIO : 0;
}

int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *a)
{
        struct ibv_port_attr *attr = (struct ibv_port_attr *)a;

        attr->state = ((struct fake_device *)c->device)->up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
        attr->active_mtu = IBV_MTU_4096;
        return fails(EIO) ? EIO : 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *e, size_t max,
                             uint32_t flags, size_t size)
{
        const struct fake_device *f = (struct fake_device *)c->device;

        if (!f->has_gid || max == 0 || fails(EIO))
                return 0;
        *e = (struct ibv_gid_entry){
                .gid_index = f->index, .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2};
        memcpy(&e->gid, &f->addr, sizeof f->addr);
        return 1;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
        struct ibv_pd *pd = make(sizeof *pd);

        if (pd != NULL)
                pd->context = c;
        return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
        return end(pd);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *p, size_t n, int access)
{
        struct ibv_mr *mr = make(sizeof *mr);

        if (mr != NULL)
                *mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = p, .length = n};
        return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *p, size_t n, uint64_t at,
                                unsigned int access)
{
        return ibv_reg_mr(pd, p, n, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
        return end(mr);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
        struct fake_channel *ch = make(sizeof *ch);

        if (ch == NULL)
                return NULL;
        ch->ch.context = c;
        ch->ch.fd = pipe_of(&ch->say);
        return &ch->ch;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
        close(c->fd);
        close(((struct fake_channel *)c)->say);
        return end(c);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int n, void *user, struct ibv_comp_channel *ch,
                             int vector)
{
        struct fake_cq *q = make(sizeof *q);

        if (q == NULL)
                return NULL;
        q->cq.context = c;
        q->cq.cqe = n;
        q->say = ((struct fake_channel *)ch)->say;
        return &q->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
        return end(cq);
}

int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **user)
{
        return read(ch->fd, cq, sizeof *cq) == sizeof *cq ? 0 : -1;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a)
{
        struct fake_ah *ah = make(sizeof *ah);

        if (ah == NULL)
                return NULL;
        ah->ah.pd = pd;
        ah->attr = *a;
        for (int i = 0; i < AHS; i++)
                if (ahs[i] == NULL) {
                        ahs[i] = ah;
                        return &ah->ah;
                }
        abort();
}

static bool is_handle(const struct ibv_ah *ah)
{
        for (int i = 0; i < AHS; i++)
                if (ahs[i] != NULL && &ahs[i]->ah == ah)
                        return true;
        return false;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
        pthread_mutex_lock(&lock);
        for (int i = 0; i < AHS; i++)
                if (ahs[i] != NULL && &ahs[i]->ah == ah)
                        ahs[i] = NULL;
        pthread_mutex_unlock(&lock);
        return end(ah);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
        struct fake_qp *q = make(sizeof *q);

        for (uint32_t i = 1; q != NULL && i < QPS; i++) {
                if (qps[i] != NULL)
                        continue;
                qps[i] = q;
                q->qp = (struct ibv_qp){.context = pd->context,
                                        .pd = pd,
                                        .send_cq = a->send_cq,
                                        .recv_cq = a->recv_cq,
                                        .qp_num = i};
                q->device = (int)((struct fake_device *)pd->context->device - devices);
                a->cap.max_inline_data = 64;
                return &q->qp;
        }
        return NULL;
}

static void forget_held(const struct fake_qp *q)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < nheld; i++)
                if (held[i].qp != q) {
                        held[n] = held[i];
                        held[n].wr.sg_list = held[n].sge;
                        n++;
                }
        nheld = n;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
        pthread_mutex_lock(&lock);
        forget_held((struct fake_qp *)qp);
        qps[qp->qp_num] = NULL;
        pthread_mutex_unlock(&lock);
        return end(qp);
}

/* ---- completions ---- */

static void complete(struct ibv_cq *cq, struct ibv_wc wc)
{
        struct fake_cq *q = (struct fake_cq *)cq;

        if (q->tail - q->head >= (uint32_t)cq->cqe)
                abort(); /* completion queues are as long as the queues they serve */
        q->wc[q->tail++ % DEPTH] = wc;
        if (q->armed && write(q->say, &cq, sizeof cq) != sizeof cq)
                abort();
        q->armed = false;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
        struct fake_cq *q = (struct fake_cq *)cq;
        int got = 0;

        pthread_mutex_lock(&lock);
        while (got < n && q->head != q->tail)
                wc[got++] = q->wc[q->head++ % DEPTH];
        pthread_mutex_unlock(&lock);
        return got;
}

static int req_notify(struct ibv_cq *cq, int solicited)
{
        pthread_mutex_lock(&lock);
        ((struct fake_cq *)cq)->armed = true;
        pthread_mutex_unlock(&lock);
        return 0;
}

/* In the error state all that is posted ends, without having been done. */
static void flush(struct fake_qp *q)
{
        q->state = IBV_QPS_ERR;
        for (; q->head != q->tail; q->head++)
                complete(q->qp.recv_cq, (struct ibv_wc){.wr_id = q->wr[q->head % DEPTH].wr_id,
                                                        .status = IBV_WC_WR_FLUSH_ERR});
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
        struct fake_qp *q = (struct fake_qp *)qp;

        if (fails(EIO))
                return EIO;
        pthread_mutex_lock(&lock);
        if (a->qp_state == IBV_QPS_RESET) {
                q->head = q->tail;
                forget_held(q);
        }
        if (mask & IBV_QP_QKEY)
                q->qkey = a->qkey;
        q->state = a->qp_state;
        if (q->state == IBV_QPS_ERR)
                flush(q);
        pthread_mutex_unlock(&lock);
        return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
        a->qp_state = ((struct fake_qp *)qp)->state;
        return 0;
}

/* ---- datagrams ---- */

static struct fake_qp *find(const struct ibv_send_wr *wr)
{
        const struct fake_ah *ah = (const struct fake_ah *)wr->wr.ud.ah;
        struct fake_qp *q = wr->wr.ud.remote_qpn < QPS ? qps[wr->wr.ud.remote_qpn] : NULL;
        ip_addr to;

        memcpy(&to, &ah->attr.grh.dgid, sizeof to);
        return q != NULL && ip_addr_eq(to, devices[q->device].addr) &&
                               q->qkey == wr->wr.ud.remote_qkey && q->state == IBV_QPS_RTS
                       ? q
                       : NULL;
}

static void put_source(uint8_t *grh, const struct fake_device *f)
{
        be32 v4 = be32_of(ip_addr_get_v4(f->addr));

        memcpy(grh + 32, &v4, sizeof v4);
}

static void deliver(const struct fake_qp *from, struct fake_qp *to, const struct ibv_send_wr *wr)
{
        struct fake_device *d = &devices[to->device];
        const struct ibv_sge *room = &to->sge[to->head % DEPTH];
        struct ibv_wc wc = {
                .status = d->recv_status, .wc_flags = IBV_WC_GRH, .src_qp = from->qp.qp_num};
        uint8_t *at = (uint8_t *)(uintptr_t)room->addr + 40;
        uint32_t len = 0;

        if (to->head == to->tail)
                return; /* no buffer: lost */
        wc.wr_id = to->wr[to->head++ % DEPTH].wr_id;
        put_source(at - 40, &devices[from->device]);
        for (int i = 0; i < wr->num_sge && len + wr->sg_list[i].length <= room->length - 40; i++) {
                memcpy(at + len, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
                len += wr->sg_list[i].length;
        }
        wc.byte_len = 40 + len;
        if (wr->opcode == IBV_WR_SEND_WITH_IMM) {
                wc.wc_flags |= IBV_WC_WITH_IMM;
                wc.imm_data = wr->imm_data;
        }
        if (d->odd) {
                wc.wc_flags = d->odd_flags;
                wc.byte_len = d->odd_len;
        }
        d->odd = false;
        d->recv_status = IBV_WC_SUCCESS;
        complete(to->qp.recv_cq, wc);
        if (wc.status != IBV_WC_SUCCESS)
                flush(to);
}

static void send_one(struct fake_qp *q, const struct ibv_send_wr *wr)
{
        struct fake_device *d = &devices[q->device];
        enum ibv_wc_status status = q->state == IBV_QPS_ERR ? IBV_WC_WR_FLUSH_ERR : d->send_status;
        const struct fake_ah *ah = (const struct fake_ah *)wr->wr.ud.ah;
        struct fake_qp *to = NULL;

        d->send_status = IBV_WC_SUCCESS;
        if (!is_handle(&ah->ah))
                status = IBV_WC_LOC_QP_OP_ERR;
        else
                to = find(wr);
        if (status == IBV_WC_SUCCESS && to != NULL && ah->attr.grh.sgid_index == d->index && d->up)
                deliver(q, to, wr);
        if (wr->send_flags & IBV_SEND_SIGNALED ||
            status != IBV_WC_SUCCESS) /* errors are told of in any case */
                complete(q->qp.send_cq, (struct ibv_wc){.wr_id = wr->wr_id, .status = status});
        if (status != IBV_WC_SUCCESS && q->state != IBV_QPS_ERR)
                flush(q);
}

static void hold(struct fake_qp *q, const struct ibv_send_wr *wr)
{
        if (nheld == HELD || wr->num_sge > SGES)
                abort();
        held[nheld].qp = q;
        held[nheld].wr = *wr;
        memcpy(held[nheld].sge, wr->sg_list, (size_t)wr->num_sge * sizeof *wr->sg_list);
        held[nheld].wr.sg_list = held[nheld].sge;
        nheld++;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
        struct fake_qp *q = (struct fake_qp *)qp;
        struct fake_device *d = &devices[q->device];
        int err = 0;

        pthread_mutex_lock(&lock);
        for (; wr != NULL && err == 0; wr = err == 0 ? wr->next : wr) {
                if (d->send_limit == 0) {
                        d->send_limit = -1;
                        *bad = wr;
                        err = ENOMEM;
                        continue;
                }
                d->send_limit -= d->send_limit > 0;
                if (holds)
                        hold(q, wr);
                else
                        send_one(q, wr);
        }
        pthread_mutex_unlock(&lock);
        return err;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
        struct fake_qp *q = (struct fake_qp *)qp;
        struct fake_device *d = &devices[q->device];
        int err = 0;

        pthread_mutex_lock(&lock);
        for (; wr != NULL && err == 0; wr = err == 0 ? wr->next : wr) {
                if (d->recv_limit == 0) {
                        d->recv_limit = -1;
                        *bad = wr;
                        err = ENOMEM;
                        continue;
                }
                d->recv_limit -= d->recv_limit > 0;
                q->sge[q->tail % DEPTH] = wr->sg_list[0];
                q->wr[q->tail++ % DEPTH] = *wr;
        }
        pthread_mutex_unlock(&lock);
        return err;
}
