/* The native API, <unet/flow.h>: limits that many sockets have in common. */
#include "sock/attach/handle.h"
#include "sock/native/native.h"
#include "tcp/tcp_group.h"
#include "tcp/tcp_window.h"
#include "unet/flow.h"

#define LEAST_LEAST 1024u /* less may be no unit of a scaled window */

/* The connection, open; the listener; NULL. */
static struct tcp_conn *conn_of(struct usock *s)
{
        struct tcp_conn *tc = native_conn(s);

        return tc != NULL && tcp_window_opened(tc) && tc->state != TCPS_CLOSED ? tc : NULL;
}

static struct tcp_listener *listener_of(struct usock *s)
{
        return usock_rec(s)->role == SOCK_ROLE_LISTENER
                       ? tcp_listener_at(&s->u->s.tcp, usock_rec(s)->conn)
                       : NULL;
}

static uint32_t group_of(struct usock *s)
{
        if (conn_of(s) != NULL)
                return conn_of(s)->group;
        return listener_of(s) != NULL ? listener_of(s)->group : 0;
}

/* ---- into a group, and out ---- */

static int enter_conn(struct usock *s, uint32_t group)
{
        struct ustack *u = s->u;
        nstime now = stack_time(&u->s, ustack_now());
        int err = 0;

        assert(ustack_locked(u));
        stack_begin(u->s.st, usock_rec(s)->conn);
        if (group != 0)
                err = tcp_group_enter(&u->s.tcp, conn_of(s), group, now);
        else
                tcp_group_leave(&u->s.tcp, conn_of(s), now);
        stack_end(u->s.st);
        stack_flush(&u->s, now);
        return err;
}

/* 0: into none. */
static int enter(struct usock *s, uint32_t group)
{
        assert(ustack_locked(s->u));
        if (conn_of(s) != NULL)
                return enter_conn(s, group);
        if (listener_of(s) == NULL)
                return -ENOTCONN;
        stack_begin(s->u->s.st, 0);
        tcp_group_listen(&s->u->s.tcp, usock_rec(s)->conn, group);
        stack_end(s->u->s.st);
        return 0;
}

/* ---- limits ---- */

static int take_limits(const struct unet_group *g, struct tcp_group_limits *l)
{
        uint64_t smaller = MIN(g->receive - 1, g->send - 1) + 1; /* of those that are not 0 */

        *l = (struct tcp_group_limits){.receive = g->receive,
                                       .send = g->send,
                                       .rate = g->rate,
                                       .members = g->members,
                                       .least = g->least};
        if (smaller == 0)
                return g->least == 0 ? 0 : -EINVAL;
        if (g->members == 0)
                return -EINVAL;
        if (g->least == 0)
                l->least = (uint32_t)MIN(smaller / 2 / g->members, UINT32_MAX);
        return l->least >= LEAST_LEAST && (uint64_t)l->least * l->members <= smaller ? 0 : -EINVAL;
}

/* Who waits to write may go on. */
static int set_limits(struct usock *s, uint32_t group, const struct tcp_group_limits *l)
{
        struct stack *stack = &s->u->s;
        nstime now = stack_time(stack, ustack_now());
        int err;

        assert(group != 0 && ustack_locked(s->u));
        stack_begin(stack->st, 0);
        err = tcp_group_set(&stack->tcp, group, l);
        stack_end(stack->st);
        stack_flush(stack, now);
        return err;
}

static int set(struct usock *s, const struct unet_group *g)
{
        struct tcp_group_limits l;
        uint32_t group = group_of(s);
        int err = take_limits(g, &l);

        if (err != 0)
                return err;
        if (conn_of(s) == NULL && listener_of(s) == NULL)
                return -ENOTCONN;
        if (group != 0)
                return set_limits(s, group, &l);
        group = tcp_group_new(&s->u->s.tcp);
        if (group == 0)
                return -ENFILE;
        err = set_limits(s, group, &l);
        return err != 0 ? err : enter(s, group);
}

static int get(struct native_slot *n, void *ours)
{
        struct usock *s = n->us;
        struct unet_group *g = ours;
        struct tcp_group_report r;

        if (group_of(s) == 0)
                return -ENOENT;
        tcp_group_get(&s->u->s.tcp, group_of(s), &r);
        g->members = r.limits.members;
        g->receive = r.limits.receive;
        g->rate = r.limits.rate;
        g->least = r.limits.least;
        g->in = r.members;
        g->held = r.held;
        g->send = r.limits.send;
        g->queued = r.queued;
        return 0;
}

/* ---- the calls ---- */

#define GROUP_FIRST offsetof(struct unet_group, send)

int unet_group_set(int sock, const struct unet_group *theirs)
{
        struct native_slot *n;
        struct unet_group g;
        int err = theirs != NULL ? native_take_struct(&g, sizeof g, GROUP_FIRST, theirs) : 0;

        if (err != 0)
                return (int)native_result(err);
        n = native_enter(sock, &err);
        if (n == NULL)
                return (int)native_result(err);
        return native_leave(n, theirs != NULL ? set(n->us, &g) : enter(n->us, 0));
}

int unet_group_get(int sock, struct unet_group *theirs)
{
        struct unet_group g;

        return native_get_struct(sock, &g, sizeof g, GROUP_FIRST, theirs, get);
}

static int join(struct usock *s, struct usock *member)
{
        if (member->kind == USOCK_UDP)
                return -EOPNOTSUPP;
        if (member->u != s->u)
                return -EXDEV;
        usock_tcp_settle(member);
        return group_of(member) != 0 ? enter(s, group_of(member)) : -ENOENT;
}

int unet_group_join(int sock, int member)
{
        struct native_slot *m = native_get(member), *n;
        int err = -EBADF;

        n = m != NULL ? native_enter(sock, &err) : NULL;
        if (n != NULL)
                err = native_leave(n, join(n->us, m->us)) == 0 ? 0 : -errno;
        return (int)native_done(m, err);
}
