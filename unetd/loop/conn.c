#include "unetd/loop/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MESSAGES_A_TURN 16 /* then other connections have theirs */

struct conn_out {
        TAILQ_ENTRY(conn_out) link;
        struct unetd_msg msg;
        int fds[UNETD_FDS_MAX];
        unsigned n;
};

static void discard(struct conn *c, const int *fds, unsigned n, bool unwanted)
{
        if (c->discard)
                c->discard(c, fds, n, unwanted);
        else
                fds_close(fds, n);
}

static void count_queued(struct conn *c, int by)
{
        c->queued_fds += (uint32_t)by;
        if (c->held)
                *c->held += (uint32_t)by;
}

static void out_free(struct conn *c, struct conn_out *o)
{
        discard(c, o->fds, o->n, false);
        assert(c->queued != 0 && c->queued_fds >= o->n);
        count_queued(c, -(int)o->n);
        TAILQ_REMOVE(&c->out, o, link);
        c->queued--;
        free(o);
}

int conn_take(struct conn *c)
{
        int fd = c->src.fd;

        loop_del(c->loop, &c->src);
        return fd;
}

static void hang_up(struct conn *c, int fd)
{
        if (c->hang_up && fd >= 0)
                c->hang_up(c, fd);
        else
                discard(c, &fd, 1, false);
}

/* Discards the socket with what is unread in it, descriptors included. */
void conn_free(struct conn *c)
{
        struct conn_out *o;

        c->broken = true;
        hang_up(c, conn_take(c));
        while ((o = TAILQ_FIRST(&c->out)))
                out_free(c, o);
}

void conn_fail(struct conn *c)
{
        if (c->broken)
                return;
        conn_free(c);
        c->ended(c);
}

static void flush(struct conn *c)
{
        struct conn_out *o;

        while ((o = TAILQ_FIRST(&c->out))) {
                int r = wire_send(c->src.fd, &o->msg, o->fds, o->n, MSG_DONTWAIT);
                if (r == -EAGAIN)
                        return;
                if (r < 0) {
                        conn_fail(c);
                        return;
                }
                out_free(c, o);
        }
        loop_mod(c->loop, &c->src, EPOLLIN);
}

static void refuse(struct conn *c, uint32_t seq)
{
        struct unetd_msg msg = {.type = UNETD_ERROR, .seq = seq, .err = -EBADMSG};

        conn_send(c, &msg, NULL, 0);
}

static bool may_go_on(const struct conn *c)
{
        const struct conn_share *s = c->share;

        return !s || s->turn != c->loop->now || s->spent < SHARE_A_TURN;
}

static void spend(const struct conn *c, nstime began)
{
        struct conn_share *s = c->share;

        if (!s)
                return;
        if (s->turn != c->loop->now)
                *s = (struct conn_share){.turn = c->loop->now};
        s->spent += loop_clock() - began;
}

/* Returns false if no message waits. */
static bool receive_one(struct conn *c)
{
        nstime began = loop_clock();
        struct wire_in in;
        int r = wire_recv(c->src.fd, &in, MSG_DONTWAIT);

        if (r == -EAGAIN)
                return false;
        if (r == -EBADMSG || r == -EMFILE)
                refuse(c, in.msg.seq);
        else if (r < 0)
                conn_fail(c);
        else
                c->message(c, &in);
        discard(c, in.fds, in.n, !c->broken);
        spend(c, began);
        return true;
}

static void receive(struct conn *c)
{
        int n = 0;

        for (; n < MESSAGES_A_TURN && !c->broken && may_go_on(c); n++)
                if (!receive_one(c))
                        return;
        if (n > 0 && !c->broken && !may_go_on(c) &&
            loop_requeue(c->loop, &c->src, EPOLLIN | (c->queued ? EPOLLOUT : 0)) < 0)
                conn_fail(c);
}

static void conn_ready(struct loop_source *s, uint32_t events)
{
        struct conn *c = (struct conn *)((char *)s - offsetof(struct conn, src));

        if (events & EPOLLOUT)
                flush(c);
        if (!c->broken && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                receive(c);
}

int conn_init(struct conn *c, struct loop *l, int fd, uint32_t queue_max)
{
        assert(queue_max != 0);
        assert(c->message != NULL && c->ended != NULL);
        *c = (struct conn){.src = {.fd = -1, .ready = conn_ready},
                           .loop = l,
                           .queue_max = queue_max,
                           .message = c->message,
                           .share = c->share,
                           .ended = c->ended,
                           .held = c->held,
                           .discard = c->discard,
                           .hang_up = c->hang_up};
        TAILQ_INIT(&c->out);
        return fd >= 0 ? conn_attach(c, fd) : 0;
}

int conn_attach(struct conn *c, int fd)
{
        int r;

        assert(fd >= 0 && c->src.fd < 0);
        fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
        c->src.fd = fd;
        r = loop_add(c->loop, &c->src, EPOLLIN | (c->queued ? EPOLLOUT : 0));
        if (r < 0) {
                c->src.fd = -1;
                discard(c, &fd, 1, false);
        }
        return r;
}

static bool enqueue(struct conn *c, const struct unetd_msg *msg, const int *fds, unsigned n)
{
        struct conn_out *o = c->queued < c->queue_max ? calloc(1, sizeof *o) : NULL;

        assert(n <= UNETD_FDS_MAX);
        if (!o)
                return false;
        o->msg = *msg;
        TAILQ_INSERT_TAIL(&c->out, o, link);
        c->queued++;
        for (; o->n < n; o->n++) {
                o->fds[o->n] = fcntl(fds[o->n], F_DUPFD_CLOEXEC, 3);
                if (o->fds[o->n] < 0) {
                        out_free(c, o);
                        return false;
                }
                count_queued(c, 1);
        }
        if (c->src.fd >= 0)
                loop_mod(c->loop, &c->src, EPOLLIN | EPOLLOUT);
        return true;
}

void conn_send(struct conn *c, struct unetd_msg *msg, const int *fds, unsigned n)
{
        int r = -EAGAIN;

        if (c->broken)
                return;
        if (c->src.fd >= 0 && c->queued == 0)
                r = wire_send(c->src.fd, msg, fds, n, MSG_DONTWAIT);
        if (r == -EAGAIN && enqueue(c, msg, fds, n))
                return;
        if (r < 0)
                conn_fail(c);
}

void conn_reply(struct conn *c, const struct unetd_msg *request, int err)
{
        struct unetd_msg reply = *request;

        reply.err = err;
        conn_send(c, &reply, NULL, 0);
}
