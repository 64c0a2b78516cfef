/*
 * Connections of processes, and the requests that they may send.
 *
 * Road of a request: client_message() -> serve() -> one function of stacks.c, chans.c, ports.c,
 * emul.c, status.c or users.c -> a reply at once, or a waiter that keeper_message() ends later.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unetd/client/raised.h"
#include "unetd/daemon/chans.h"
#include "unetd/daemon/clients.h"
#include "unetd/daemon/daemon.h"
#include "unetd/daemon/discard.h"
#include "unetd/daemon/emul.h"
#include "unetd/daemon/links.h"
#include "unetd/daemon/leases.h"
#include "unetd/daemon/ports.h"
#include "unetd/daemon/replay.h"
#include "unetd/daemon/routes.h"
#include "unetd/daemon/shares.h"
#include "unetd/daemon/stacks.h"
#include "unetd/daemon/status.h"
#include "unetd/daemon/unread.h"
#include "unetd/daemon/users.h"
#include "unetd/monitor/monitor.h"

#define ACCEPTS_A_TURN 64
static int serve_emulated(struct client *cl, struct wire_in *in)
{
        switch ((enum unetd_type)in->msg.type) {
        case UNETD_EMUL_ATTACH:
                return emul_attach(cl, in);
        case UNETD_EMUL_LISTEN:
                return emul_listen(cl, &in->msg);
        case UNETD_EMUL_CONNECT:
                return emul_connect(cl, &in->msg);
        case UNETD_EMUL_CONNECTED:
                cl->new_tag = 0;
                return 0;
        case UNETD_EMUL_ACCEPT:
                return emul_accept(cl, &in->msg);
        default:
                return -EBADMSG;
        }
}

/* Returns true if a keeper that does not know all stacks would answer wrong, or be asked about one
 * that it does not know. */
static bool needs_keeper(uint16_t type)
{
        return type == UNETD_KEEPER_GET || type == UNETD_STACK_NEW || type == UNETD_PROC_ADD ||
               type == UNETD_PROC_DEL || type == UNETD_FLIGHT;
}

static int serve(struct client *cl, struct wire_in *in)
{
        struct unetd_msg *msg = &in->msg;
        int r;

        if (needs_keeper(msg->type) && replay_goes_on(cl->user))
                return user_keeper_silent(cl->user) ? -ETIMEDOUT : -EAGAIN;
        switch ((enum unetd_type)msg->type) {
        case UNETD_KEEPER_GET:
                return user_keeper_get(cl, msg);
        case UNETD_STACK_NEW:
                return stack_new(cl, in);
        case UNETD_PROC_ADD:
                return stack_proc_add(cl, in);
        case UNETD_PROC_DEL:
                return stack_proc_del(cl, in);
        case UNETD_FLIGHT:
                return stack_flight(cl, in);
        case UNETD_CHAN_OPEN:
                return chan_open(cl, in);
        case UNETD_LISTEN_ADD:
                return listen_add(cl, in);
        case UNETD_LISTEN_DEL:
                r = listen_del(cl->user, msg);
                return r == 0 ? discarded(cl, msg) : r;
        case UNETD_PORT_HOLD:
                return port_hold(cl, msg);
        case UNETD_PORT_RELEASE:
                return port_release(cl, msg);
        case UNETD_PORT_LEASE:
                return port_lease(cl, msg);
        case UNETD_PORT_SETTLE:
                return port_settle(cl, msg);
        case UNETD_LINK_OPEN:
                return link_open(cl, msg);
        case UNETD_LINK_DRIVE:
                return link_drive(cl->user, cl->pid, msg);
        case UNETD_REMOTE_OPEN:
                return remote_open(cl, msg);
        case UNETD_LINK_BACK:
                return link_back(cl->user, in);
        case UNETD_CHAN_BACK:
                return chan_back(cl->user, in);
        case UNETD_ROUTE_ADD:
        case UNETD_ROUTE_DEL:
        case UNETD_NEIGH_ADD:
        case UNETD_NEIGH_DEL:
        case UNETD_IFACE_UP:
        case UNETD_IFACE_DOWN:
        case UNETD_IFACE_ADD:
        case UNETD_IFACE_DEL:
                return routes_change(cl, msg);
        case UNETD_STATUS:
                return status_next(cl, msg);
        case UNETD_K_HELLO:
                return user_adopt(cl, msg);
        default:
                return serve_emulated(cl, in);
        }
}

static void hello(struct client *cl, struct unetd_msg *msg)
{
        int err = cl->greeted ? -EALREADY : msg->hello.abi == UNETD_ABI ? 0 : -EPROTONOSUPPORT;

        if (err == -EALREADY) {
                conn_reply(&cl->conn, msg, err); /* the directory is sent once */
                return;
        }
        cl->greeted = err == 0;
        cl->has_keeper = msg->hello.flags & UNETD_HAS_KEEPER;
        msg->err = err;
        msg->hello = (struct unetd_hello){.abi = UNETD_ABI,
                                          .flags = unetd.cfg.shared ? UNETD_SHARED : 0,
                                          .instance = unetd.instance,
                                          .pid = getpid()};
        conn_send(&cl->conn, msg, &unetd.dir.fd, err == 0 ? 1 : 0);
}

/* Returns true if a request of this type may bring descriptors. */
static bool may_carry(uint16_t type)
{
        return type == UNETD_STACK_NEW || type == UNETD_LISTEN_ADD || type == UNETD_EMUL_ATTACH ||
               type == UNETD_FLIGHT || type == UNETD_LINK_BACK || type == UNETD_CHAN_BACK ||
               type == UNETD_PROC_ADD;
}

/* Returns true if the answer brings descriptors. */
static bool gives(uint16_t type)
{
        return type == UNETD_HELLO || type == UNETD_KEEPER_GET || type == UNETD_LINK_OPEN ||
               type == UNETD_EMUL_ATTACH;
}

static void given_back(struct client *cl)
{
        if (!cl->given)
                return;
        cl->given = false;
        LIST_REMOVE(cl, of_given);
        cl->user->ngiven--;
}

/* Finds those who have read their answers meanwhile. */
static void look_who_read(struct user *u)
{
        struct client *cl = LIST_FIRST(&u->given), *next;

        for (; cl; cl = next) {
                next = LIST_NEXT(cl, of_given);
                if (!unread_is(cl->conn.src.fd))
                        given_back(cl);
        }
}

/* Returns true if an answer may bring descriptors: those that are unread are in flight (unread.h).
 * Who has not read the answer before gets none. */
static bool may_give(struct client *cl)
{
        struct user *u = cl->user;

        if (!unetd.cfg.shared)
                return true;
        if (u->ngiven + u->unread >= UNREAD_MOST)
                look_who_read(u);
        if (u->ngiven + u->unread >= UNREAD_MOST || unread_is(cl->conn.src.fd))
                return false;
        if (!cl->given) {
                cl->given = true;
                LIST_INSERT_HEAD(&u->given, cl, of_given);
                u->ngiven++;
        }
        return true;
}

/* Answers, and logs a refusal for want of room: the client then goes by the kernel, or without
 * unetd. */
static void reply(struct client *cl, struct unetd_msg *msg, int err)
{
        static const char *const what[UNETD_TYPES] = {
                [UNETD_STACK_NEW] = "a stack",
                [UNETD_PROC_ADD] = "a process",
                [UNETD_CHAN_OPEN] = "a channel",
                [UNETD_LISTEN_ADD] = "a listening port",
        };

        if (unlikely(err == -EDQUOT || err == -ENOSPC) && what[msg->type] != NULL)
                user_log(cl->user, "process %d of user %u: no room for %s (%s)", cl->pid,
                         cl->user->uid, what[msg->type], strerror(-err));
        conn_reply(&cl->conn, msg, err);
}

static void client_message(struct conn *c, struct wire_in *in)
{
        struct client *cl = (struct client *)c;
        int r;

        if (discard_stuck(cl->user)) {
                conn_fail(c);
        } else if (cl->hands_over) {
                keeper_hands_over(cl, in);
        } else if (in->n > 0 && !may_carry(in->msg.type)) {
                conn_reply(c, &in->msg, -EBADMSG);
        } else if (gives(in->msg.type) && !may_give(cl)) {
                conn_reply(c, &in->msg, -EAGAIN);
        } else if (in->msg.type == UNETD_HELLO) {
                hello(cl, &in->msg);
        } else if (!cl->greeted) {
                conn_reply(c, &in->msg, -EBADMSG);
        } else {
                r = serve(cl, in);
                if (r != REPLY_LATER)
                        reply(cl, &in->msg, r);
        }
}

static void client_ended(struct conn *c)
{
        struct client *cl = (struct client *)c;

        given_back(cl);
        emul_client_ended(cl);
        LIST_REMOVE(cl, link);
        LIST_INSERT_HEAD(&unetd.dead, cl, link);
}

static void client_discard(struct conn *c, const int *fds, unsigned n, bool unwanted)
{
        discard(((struct client *)c)->user, fds, n, unwanted);
}

static void client_hang_up(struct conn *c, int fd)
{
        const struct client *cl = (struct client *)c;
        struct user *u = cl->user;

        if (cl->given)
                unread_hang_up(u, fd, &u->unread);
        else
                discard(u, &fd, 1, false);
}

/* Takes fd. */
static void client_new(int fd, const struct ucred *cred)
{
        struct user *u = user_get(cred->uid, cred->gid);
        bool may = u && u->used.clients + u->unread < unetd.cfg.per_uid.clients &&
                   share_may_hold(u, 1) && !discard_stuck(u) &&
                   (u->used.clients != 0 || monitor_user(fd) == 0);
        struct client *cl = may ? calloc(1, sizeof *cl) : NULL;

        if (!cl) {
                discard_refused(u, fd);
                return;
        }
        cl->user = u;
        cl->pid = cred->pid;
        cl->conn.message = client_message;
        cl->conn.share = unetd.cfg.shared ? &u->share : NULL;
        cl->conn.ended = client_ended;
        cl->conn.held = &u->queued_fds;
        cl->conn.discard = client_discard;
        cl->conn.hang_up = client_hang_up;
        unread_limit(fd);
        if (conn_init(&cl->conn, &unetd.loop, fd, unetd.cfg.queue_max) < 0) {
                free(cl);
                return;
        }
        u->used.clients++;
        unetd.nclients++;
        LIST_INSERT_HEAD(&unetd.clients, cl, link);
}

/* unetd has no descriptors left: takes the next connection by the spare one and closes it.
 * Otherwise epoll would report the listening socket for ever. */
static void turn_away(int listening)
{
        int fd;

        close(unetd.spare);
        fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
                discard_refused(NULL, fd);
        unetd.spare = fcntl(unetd.dir.fd, F_DUPFD_CLOEXEC, 3);
}

void clients_accept(struct loop_source *s, uint32_t events)
{
        for (int i = 0; i < ACCEPTS_A_TURN; i++) {
                struct ucred cred;
                socklen_t len = sizeof cred;
                int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

                if (fd < 0) {
                        if (errno == EMFILE || errno == ENFILE)
                                turn_away(s->fd);
                        return;
                }
                if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 ||
                    (!unetd.cfg.shared && cred.uid != unetd.uid) || !process_may_take_for(cred.uid))
                        discard_refused(NULL, fd);
                else
                        client_new(fd, &cred);
        }
}

/* ---- waiting ---- */

int waiter_new(struct client *cl, const struct unetd_msg *request, struct waiter **out)
{
        bool may = cl->waiting < unetd.cfg.queue_max && cl->user->waiting < WAITING_MAX;
        struct waiter *w = may ? calloc(1, sizeof *w) : NULL;

        assert(cl->user != NULL);
        if (!w)
                return -ENOBUFS;
        w->client = cl;
        w->request = *request;
        w->deadline = unetd.loop.now + unetd.cfg.reply_ms * NS_PER_MS;
        w->end = unetd.loop.now + unetd.cfg.slow_ms * NS_PER_MS;
        cl->waiting++;
        cl->user->waiting++;
        TAILQ_INSERT_TAIL(&unetd.waiters, w, link);
        *out = w;
        return 0;
}

void waiter_hurries(struct waiter *w)
{
        w->deadline = w->end = unetd.loop.now + ASK_OTHERS;
}

void waiter_drop(struct waiter *w)
{
        assert(!w->ask || w->ask->waiter == w);
        if (w->ask)
                w->ask->waiter = NULL;
        if (w->chan)
                LIST_REMOVE(w, of_chan);
        if (w->settles)
                LIST_REMOVE(w, of_settle);
        if (w->opening)
                opening_forget(w->opening);
        if (w->telling)
                telling_forget(w->telling);
        if (w->room)
                LIST_REMOVE(w, of_room);
        TAILQ_REMOVE(&unetd.waiters, w, link);
        assert(w->client->waiting != 0 && w->client->user->waiting != 0);
        w->client->waiting--;
        w->client->user->waiting--;
        free(w);
}

void waiter_end(struct waiter *w, int err)
{
        reply(w->client, &w->request, err);
        waiter_drop(w);
}

/* Returns true if the keeper of anybody who has a part in it is stopped. */
static bool waits_for_stopped(const struct waiter *w)
{
        if (user_keeper_stopped(w->client->user))
                return true;
        for (int i = 0; w->chan && i < 2; i++) {
                const struct stack *st = w->chan->end[i].stack;
                if (st && user_keeper_stopped(st->user))
                        return true;
        }
        return false;
}

/* Extends the wait for a keeper that is slow because the machine is busy. Returns false if the
 * waiter has waited long enough. Other waits have limits of their own. */
static bool waits_on(struct waiter *w)
{
        if ((!w->ask && !w->chan && !w->settles) || w->end <= unetd.loop.now ||
            waits_for_stopped(w))
                return false;
        w->deadline = nstime_min(w->end, unetd.loop.now + unetd.cfg.reply_ms * NS_PER_MS);
        return true;
}

void waiters_expire(void)
{
        struct waiter *w = TAILQ_FIRST(&unetd.waiters), *next;

        for (; w; w = next) {
                next = TAILQ_NEXT(w, link);
                if (w->deadline <= unetd.loop.now && !waits_on(w))
                        waiter_end(w, -ETIMEDOUT);
        }
}

nstime waiters_deadline(void)
{
        nstime first = NSTIME_NEVER;
        struct waiter *w;

        TAILQ_FOREACH (w, &unetd.waiters, link)
                first = nstime_min(first, w->deadline);
        return first;
}

static void drop_waiters(const struct client *cl)
{
        struct waiter *w = TAILQ_FIRST(&unetd.waiters), *next;

        for (; cl->waiting > 0 && w; w = next) {
                next = TAILQ_NEXT(w, link);
                if (w->client == cl)
                        waiter_drop(w);
        }
}

/* A keeper that is being told of its stacks is told afterwards who left. */
void clients_bury(void)
{
        struct client *cl = LIST_FIRST(&unetd.dead), *next;

        for (; cl; cl = next) {
                next = LIST_NEXT(cl, link);
                drop_waiters(cl);
                if (replay_goes_on(cl->user))
                        continue;
                user_client_left(cl);
                assert(cl->user->hand_overs >= cl->hands_over);
                cl->user->hand_overs -= cl->hands_over;
                if (cl->hands_over && user_need_keeper(cl->user, false) == 0)
                        replay_begin(cl->user, cl);
                LIST_REMOVE(cl, link);
                assert(cl->waiting == 0);
                assert(cl->user->used.clients != 0 && unetd.nclients != 0);
                cl->user->used.clients--;
                unetd.nclients--;
                free(cl);
        }
}
