/* Users, the keeper of each, and what keepers are asked. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unetd/daemon/chans.h"
#include "unetd/daemon/daemon.h"
#include "unetd/daemon/discard.h"
#include "unetd/daemon/links.h"
#include "unetd/daemon/ports.h"
#include "unetd/daemon/replay.h"
#include "unetd/daemon/shares.h"
#include "unetd/daemon/stacks.h"
#include "unetd/daemon/unread.h"
#include "unetd/daemon/users.h"
#include "unetd/monitor/monitor.h"

/* Messages that wait for a keeper that starts, or is slow: all that a user may have is told anew.
 */
#define KEEPER_QUEUE  131072u
#define DEATHS_MAX    5u
#define DEATHS_WINDOW (10 * NS_PER_S)

/* ---- users ---- */

static void keeper_message(struct conn *c, struct wire_in *in);
static void keeper_ended(struct conn *c);
static void keeper_discard(struct conn *c, const int *fds, unsigned n, bool unwanted);
static void keeper_hang_up(struct conn *c, int fd);

struct user *user_get(uint32_t uid, uint32_t gid)
{
        struct user *u;

        LIST_FOREACH (u, &unetd.users, link)
                if (u->uid == uid)
                        return u;
        u = calloc(1, sizeof *u);
        if (!u || getrandom(&u->next_stack, sizeof u->next_stack, 0) != sizeof u->next_stack) {
                free(u);
                return NULL;
        }
        u->uid = uid;
        u->gid = gid;
        u->keeper.share = unetd.cfg.shared ? &u->keepers_share : NULL;
        u->keeper.message = keeper_message;
        u->keeper.ended = keeper_ended;
        u->keeper.discard = keeper_discard;
        u->keeper.hang_up = keeper_hang_up;
        u->emul.bytes_max = (uint64_t)unetd.cfg.per_uid.emul_kb << 10;
        u->emul.msgs_max = unetd.cfg.per_uid.emul_msgs;
        u->emul.chans_max = unetd.cfg.per_uid.emul_chans;
        TAILQ_INIT(&u->asks);
        LIST_INIT(&u->given);
        TAILQ_INIT(&u->later);
        TAILQ_INIT(&u->later_ends);
        LIST_INIT(&u->settle_now);
        LIST_INIT(&u->settle_next);
        discard_init(u);
        LIST_INSERT_HEAD(&unetd.users, u, link);
        return u;
}

static void user_free_if_unused(struct user *u)
{
        if (u->used.clients || u->used.stacks || u->used.chans || u->used.emul_endpoints ||
            u->unread || u->unread_keepers || discard_busy(u) || u->keeper_state != KEEPER_NONE)
                return;
        if (u->nflights > 0) {
                discard(u, u->flights, u->nflights, false);
                u->nflights = 0;
                return; /* freed when they are closed */
        }
        LIST_REMOVE(u, link);
        free(u->trash.fd);
        free(u);
}

/* Counts lines by uid, because a user's record goes with his last connection. Users with the same
 * place in the table share its lines. */
bool user_may_log(const struct user *u)
{
        enum { PLACES = 256 };
        static struct {
                nstime at; /* when all earlier lines have expired */
                uint32_t left_out;
        } said[PLACES + 1];
        nstime now = unetd.loop.now;
        uint32_t i = u ? u->uid % PLACES : PLACES;

        said[i].at = MAX(said[i].at, now) + NS_PER_S;
        if (said[i].at - now > USER_LINES * NS_PER_S) {
                said[i].at -= NS_PER_S;
                said[i].left_out++;
                return false;
        }
        if (said[i].left_out > 0 && u)
                log_line("%u lines about uid %u, or who shares its place, are left out",
                         said[i].left_out, u->uid);
        else if (said[i].left_out > 0)
                log_line("%u lines about nobody that is known are left out", said[i].left_out);
        said[i].left_out = 0;
        return true;
}

/* ---- sockets in messages ---- */

static void give_flights(struct user *u, int ep)
{
        struct unetd_msg msg = {.type = UNETD_K_FLIGHTS};

        conn_send(&u->keeper, &msg, &ep, 1);
}

/* Keeps what a keeper watches sockets in messages with: the next one goes on with it. Returns false
 * if it is something else. */
static bool flights_told(struct user *u, struct wire_in *in)
{
        char kind[32];

        if (in->n != 1 || fd_link(in->fds[0], kind, sizeof kind) <= 0 ||
            strcmp(kind, "anon_inode:[eventpoll]") != 0)
                return false;
        if (u->nflights == USER_FLIGHTS) {
                discard(u, &u->flights[0], 1, false);
                memmove(u->flights, u->flights + 1, --u->nflights * sizeof *u->flights);
        }
        u->flights[u->nflights++] = wire_in_take(in, 0);
        return true;
}

/* ---- starting a keeper ---- */

/* Takes fd as the connection to the user's keeper, and sends what was queued for an awaited keeper.
 */
static int keeper_connect(struct user *u, int fd, int32_t pid)
{
        struct unetd_msg msg = {.type = UNETD_K_DIRECTORY};
        int r = u->keeper_state == KEEPER_AWAITED
                        ? 0
                        : conn_init(&u->keeper, &unetd.loop, -1, KEEPER_QUEUE);

        assert(fd >= 0 && u->keeper_state != KEEPER_RUNS);
        if (r == 0)
                r = conn_attach(&u->keeper, fd);
        if (r < 0)
                return r;
        u->keeper_state = KEEPER_RUNS;
        u->keeper_pid = pid;
        u->stopped_at = 0;
        msg.hello.flags = unetd.cfg.shared ? UNETD_SHARED : 0;
        conn_send(&u->keeper, &msg, &unetd.dir.fd, 1);
        for (uint32_t i = 0; i < u->nflights; i++)
                give_flights(u, u->flights[i]);
        return 0;
}

static int keeper_start(struct user *u)
{
        int fd[2], pid;

        if (u->unread_keepers >= UNREAD_KEEPERS)
                return -EDQUOT;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) < 0)
                return -errno;
        unread_limit(fd[0]);
        pid = monitor_keeper(u->uid, u->gid, fd[1]);
        close(fd[1]);
        if (pid < 0) {
                close(fd[0]);
                return pid;
        }
        user_log(u, "keeper %d started for uid %u", pid, u->uid);
        return keeper_connect(u, fd[0], pid);
}

int user_need_keeper(struct user *u, bool awaited)
{
        if (u->keeper_state != KEEPER_NONE)
                return 0;
        if (!awaited)
                return keeper_start(u);
        u->keeper_state = KEEPER_AWAITED;
        u->adopt_until = unetd.loop.now + unetd.cfg.adopt_ms * NS_PER_MS;
        return conn_init(&u->keeper, &unetd.loop, -1, KEEPER_QUEUE);
}

/* Makes a socketpair: one end for the keeper, one for the client. */
int user_keeper_get(struct client *cl, struct unetd_msg *msg)
{
        struct unetd_msg hand = {.type = UNETD_K_CLIENT,
                                 .stack = {.pid = cl->pid, .uid = cl->user->uid}};
        int fd[2], r = user_need_keeper(cl->user, cl->has_keeper);

        if (r < 0)
                return r;
        if (!share_may_hold(cl->user, 2))
                return -EDQUOT;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd) < 0)
                return -errno;
        conn_send(&cl->user->keeper, &hand, &fd[0], 1);
        msg->err = 0;
        msg->stack.pid = cl->user->keeper_state == KEEPER_RUNS ? cl->user->keeper_pid : 0;
        conn_send(&cl->conn, msg, &fd[1], 1);
        close(fd[0]);
        close(fd[1]);
        return REPLY_LATER; /* it is sent, with its descriptor */
}

/* Tells the keeper that a connection ended. It is close-on-exec, so it ends, too, when the process
 * executes another program. The keeper looks which it was. */
void user_client_left(const struct client *cl)
{
        struct unetd_msg msg = {.type = UNETD_K_LEFT, .stack = {.pid = cl->pid}};

        if (cl->greeted && cl->user->used.stacks != 0 && cl->user->keeper_state == KEEPER_RUNS)
                conn_send(&cl->user->keeper, &msg, NULL, 0);
}

int user_adopt(struct client *cl, struct unetd_msg *msg)
{
        struct user *u = cl->user;
        int fd, r;

        cl->hands_over = u->keeper_state == KEEPER_RUNS;
        u->hand_overs += cl->hands_over;
        if (cl->hands_over)
                return -EEXIST;
        if (u->unread_keepers >= UNREAD_KEEPERS)
                return -EDQUOT;
        conn_reply(&cl->conn, msg, 0);
        fd = conn_take(&cl->conn);
        conn_fail(&cl->conn);
        if (fd < 0) /* it ended as it was answered */
                return REPLY_LATER;
        r = keeper_connect(u, fd, cl->pid);
        u->offers = r == 0;
        if (r == 0)
                user_log(u, "keeper %d of uid %u came back", cl->pid, u->uid);
        return REPLY_LATER; /* the reply is sent, and the client freed */
}

/* ---- asking ---- */

struct ask *ask_send(struct user *u, struct unetd_msg *msg, const int *fds, unsigned n)
{
        struct ask *a = calloc(1, sizeof *a);

        assert(n <= UNETD_FDS_MAX);
        if (!a)
                return NULL;
        if (++unetd.next_ask == 0)
                unetd.next_ask = 1; /* 0 is for what a keeper says unasked */
        msg->seq = a->seq = unetd.next_ask;
        a->type = msg->type;
        a->sent = unetd.loop.now;
        TAILQ_INSERT_TAIL(&u->asks, a, link);
        u->nasks++;
        conn_send(&u->keeper, msg, fds, n);
        return a;
}

static void ask_free(struct user *u, struct ask *a)
{
        assert(!a->waiter || a->waiter->ask == a);
        TAILQ_REMOVE(&u->asks, a, link);
        assert(u->nasks != 0);
        u->nasks--;
        if (a->waiter)
                a->waiter->ask = NULL;
        if (a->chan)
                a->chan->nasks--;
        free(a);
}

void asks_forget_chan(struct chan *ch)
{
        struct user *u;
        struct ask *a;

        LIST_FOREACH (u, &unetd.users, link)
                TAILQ_FOREACH (a, &u->asks, link) {
                        if (ch->nasks == 0) /* there may be thousands of others */
                                return;
                        if (a->chan != ch)
                                continue;
                        a->chan = NULL;
                        ch->nasks--;
                }
}

static bool is_about_channels(const struct ask *a)
{
        return a->type == UNETD_K_CHAN || a->type == UNETD_K_CHAN_DOWN ||
               a->type == UNETD_K_CHAN_PART || a->type == UNETD_K_CHAN_YIELD;
}

static void dispatch(struct user *u, struct ask *a, int err)
{
        if (is_about_channels(a))
                chan_answered(a, err);
        else if (a->type == UNETD_K_SETTLE)
                port_settled(u, err);
        else
                stack_answered(u, a, err);
}

/* Adds up how long the keeper took to part with channels. An honest keeper takes next to no time,
 * however often it is asked. */
static void has_parted(struct user *u, nstime took)
{
        if (took <= PART_HONEST)
                return;
        if (unetd.loop.now - u->part_since > PART_WINDOW) {
                u->part_since = unetd.loop.now;
                u->part_took = 0;
        }
        u->part_took += took;
}

bool user_parts_late(const struct user *u, const struct user *asks)
{
        return u != asks && u->part_took > PART_OTHERS &&
               unetd.loop.now - u->part_since <= PART_WINDOW;
}

/* Returns true if the message answers the ask. UNETD_ERROR: the keeper had no descriptors left for
 * what came with the question. */
static bool is_answer(const struct unetd_msg *msg, const struct ask *a)
{
        return a->seq == msg->seq &&
               (a->type == msg->type || (msg->type == UNETD_ERROR && msg->err < 0));
}

static void answered(struct user *u, const struct unetd_msg *msg)
{
        struct ask *a;

        u->silence_said = false;
        TAILQ_FOREACH (a, &u->asks, link) {
                if (!is_answer(msg, a))
                        continue;
                if (a->type == UNETD_K_CHAN_PART)
                        has_parted(u, unetd.loop.now - a->sent);
                if (a->type == UNETD_K_CHAN_YIELD)
                        chan_yielded(u, a, msg);
                else
                        dispatch(u, a, msg->err > 0 ? -EPROTO : msg->err);
                ask_free(u, a);
                return;
        }
}

static void keeper_said(struct user *u, struct wire_in *in)
{
        switch ((enum unetd_type)in->msg.type) {
        case UNETD_K_PROC_GONE:
                stack_proc_gone(u, &in->msg);
                return;
        case UNETD_K_OFFERED:
                u->offers = false;
                return;
        case UNETD_K_ORPHAN:
                stack_orphan(u, &in->msg);
                return;
        case UNETD_K_GONE:
                stack_gone(u, &in->msg);
                return;
        case UNETD_K_UNLISTEN:
                listen_del(u, &in->msg);
                return;
        case UNETD_K_ALOFT:
                listen_aloft(u, &in->msg);
                return;
        case UNETD_K_LINK:
                link_drive(u, u->keeper_pid, &in->msg);
                return;
        case UNETD_K_STACK:
                stack_offered(u, NULL, in);
                return;
        case UNETD_K_PROC:
                proc_offered(u, in);
                return;
        case UNETD_K_CHAN:
                chan_offered(u, in);
                return;
        case UNETD_K_CHAN_TAKEN:
                chan_number_taken(u, &in->msg);
                return;
        case UNETD_K_CHAN_FREE:
                chan_number_free(u, &in->msg);
                return;
        case UNETD_K_RLINK:
                link_offered(u, in);
                return;
        case UNETD_K_FLIGHTS:
                flights_told(u, in);
                return;
        case UNETD_LISTEN_ADD:
        case UNETD_PORT_HOLD:
        case UNETD_PORT_LEASE:
                port_offered(u, in);
                return;
        default:
                return; /* an unknown message of a keeper gets no answer */
        }
}

/* A stack number that it names may belong to another stack by now. unetd takes only what it says of
 * stacks that it brought. */
void keeper_hands_over(const struct client *cl, struct wire_in *in)
{
        /* The first field in each message. */
        const struct stack *st = stack_find(in->msg.stack.stack);

        if (in->msg.type == UNETD_K_STACK) {
                stack_offered(cl->user, cl, in);
        } else if (in->msg.type == UNETD_K_FLIGHTS) {
                if (flights_told(cl->user, in) && cl->user->keeper_state != KEEPER_NONE)
                        give_flights(cl->user, cl->user->flights[cl->user->nflights - 1]);
        } else if (st && st->from == cl) {
                keeper_said(cl->user, in);
        }
}

static void keeper_message(struct conn *c, struct wire_in *in)
{
        struct user *u = (struct user *)c;

        if (in->msg.seq != 0)
                answered(u, &in->msg);
        else
                keeper_said(u, in);
}

/* ---- a keeper's death ---- */

/* users_tick() does the rest: the caller may be in the middle of a walk over what that changes. */
static void keeper_ended(struct conn *c)
{
        ((struct user *)c)->keeper_died = true;
}

static void keeper_discard(struct conn *c, const int *fds, unsigned n, bool unwanted)
{
        discard((struct user *)c, fds, n, unwanted);
}

static void keeper_hang_up(struct conn *c, int fd)
{
        struct user *u = (struct user *)c;

        unread_hang_up(u, fd, &u->unread_keepers);
}

static bool dies_too_often(struct user *u)
{
        if (unetd.loop.now - u->first_death > DEATHS_WINDOW) {
                u->first_death = unetd.loop.now;
                u->deaths = 0;
        }
        return ++u->deaths > DEATHS_MAX;
}

/* Ends the asks of a dead keeper. Clients ask again for new stacks and slots; the replay asks again
 * for channels. */
static void asks_fail(struct user *u)
{
        struct ask *a;

        while ((a = TAILQ_FIRST(&u->asks))) {
                if (a->type == UNETD_K_SETTLE)
                        port_settled(u, -EAGAIN);
                else if (!is_about_channels(a))
                        stack_answered(u, a, -EAGAIN);
                ask_free(u, a);
        }
}

static void keeper_bury(struct user *u)
{
        u->keeper_died = false;
        u->keeper_state = KEEPER_NONE;
        u->offers = false;
        asks_fail(u);
        if (u->used.stacks == 0)
                return;
        user_log(u, "keeper of uid %u died, %u stacks", u->uid, u->used.stacks);
        if (dies_too_often(u) || keeper_start(u) < 0) {
                user_log(u, "keeper of uid %u is given up, and its stacks", u->uid);
                replay_give_up(u);
                asks_fail(u); /* those about yielding, of one of these stacks for another */
                return;
        }
        replay_begin(u, NULL);
}

static bool keeper_is_stopped(struct user *u)
{
        struct root_process p;

        if (u->stopped_at != unetd.loop.now) {
                monitor_process(u->keeper_pid, 0, &p);
                u->stopped = p.stopped;
                u->stopped_at = unetd.loop.now;
        }
        return u->stopped;
}

bool user_keeper_stopped(struct user *u)
{
        return u->keeper_state == KEEPER_RUNS && !TAILQ_EMPTY(&u->asks) && keeper_is_stopped(u);
}

bool user_keeper_silent(struct user *u)
{
        const struct ask *a = TAILQ_FIRST(&u->asks);

        if (u->keeper_state != KEEPER_RUNS || !a ||
            unetd.loop.now - a->sent < unetd.cfg.reply_ms * NS_PER_MS || !keeper_is_stopped(u))
                return false;
        if (!u->silence_said)
                user_log(u, "keeper %d of uid %u is stopped: who needs it goes by the kernel",
                         u->keeper_pid, u->uid);
        u->silence_said = true;
        return true;
}

bool user_keeper_late(const struct user *u, const struct user *asks)
{
        const struct ask *a = TAILQ_FIRST(&u->asks);

        if (u == asks || u->keeper_state != KEEPER_RUNS)
                return false;
        return u->keeper.queued >= QUEUE_OTHERS || (a && unetd.loop.now - a->sent >= ASK_OTHERS);
}

/* Returns true if the keeper is to be replaced. A keeper that does not answer may be stopped,
 * broken or slow; a slow one gets longer. */
static bool lost_patience(struct user *u)
{
        struct ask *a = TAILQ_FIRST(&u->asks);

        if (u->keeper_state != KEEPER_RUNS || !a || unetd.loop.now - a->sent <= ASK_PATIENCE ||
            unetd.loop.now < u->keeper_look)
                return false;
        u->keeper_look = unetd.loop.now + ASK_PATIENCE;
        return unetd.loop.now - a->sent > ASK_END || keeper_is_stopped(u);
}

void users_tick(void)
{
        struct user *u = LIST_FIRST(&unetd.users), *next;

        for (; u; u = next) {
                next = LIST_NEXT(u, link);
                if (lost_patience(u))
                        conn_fail(&u->keeper);
                if (u->keeper_state == KEEPER_AWAITED && u->adopt_until <= unetd.loop.now &&
                    keeper_start(u) < 0)
                        conn_fail(&u->keeper);
                if (u->keeper_died)
                        keeper_bury(u);
                user_free_if_unused(u);
        }
        replay_turn();
}

nstime users_deadline(void)
{
        nstime when = NSTIME_NEVER;
        struct user *u;

        LIST_FOREACH (u, &unetd.users, link) {
                struct ask *a = TAILQ_FIRST(&u->asks);

                if (u->keeper_died || replay_is_due(u))
                        return unetd.loop.now;
                if (u->keeper_state == KEEPER_AWAITED)
                        when = nstime_min(when, u->adopt_until);
                else if (a)
                        when = nstime_min(when,
                                          MAX(a->sent + ASK_PATIENCE + NS_PER_MS, u->keeper_look));
        }
        return when;
}
