/*
 * unet-keeper: holds the stacks of one user, and makes progress when none of their processes does.
 *
 *      unetd ----- stacks, processes, channels in; who died, what is empty out
 *      clients --- descriptors of stacks and channels out
 *      pidfds ---- a process died: its references end
 *      pipes ----- a stack wants a tick: no process of it waits in a call
 *
 * Handlers only note what happened and mark the stack due; all work on a stack, and all freeing, is in
 * stack_work(), called after the batch for stacks that are due. An idle keeper has no deadline and does not
 * wake.
 *
 * When unetd dies: without stacks the keeper leaves. With stacks it looks for another one (starts it, if need
 * be) and offers itself and all it holds. If that has got another keeper meanwhile, it gives it all and
 * leaves. If there is no unetd to be had, it keeps its stacks going until they are empty.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "unetd/config.h"
#include "unetd/conn.h"
#include "unetd/keeper_ops.h"
#include "unetd/log.h"

#define DAEMON_FD    3
#define DAEMON_QUEUE 65536u
#define ACTIVE_NS    NS_PER_MS
#define FLIGHTS_MAX  4096u
#define FLIGHTS_GAP  (50 * NS_PER_MS)
#define FLIGHTS_GAP_MAX NS_PER_S
#define ORPHAN_EVERY NS_PER_S           /* an orphan is asked whether it is empty at least so often */

enum proc_state { PROC_LIVE, PROC_DYING, PROC_DONE };

struct kproc {
        struct loop_source pidfd;       /* first: handlers cast */
        LIST_ENTRY(kproc) link;
        struct kstack *stack;
        uint32_t slot;
        int32_t pid;
        enum proc_state state;
        bool left;                      /* closed a connection: may be another program by now */
        bool told;                      /* unetd knows that it goes */
};

enum chan_state { CHAN_ATTACHING, CHAN_UP, CHAN_CLOSING };

struct kchan {
        struct loop_source xsk;         /* interfaces; first: handlers cast */
        LIST_ENTRY(kchan) link;
        struct kstack *stack;
        struct unetd_chan_info info;
        int fds[UNETD_CHAN_FDS];
        enum chan_state state;
        struct unetd_msg request;       /* answered when the state changes */
};

struct kstack {
        struct loop_source pipe;        /* first: handlers cast */
        LIST_ENTRY(kstack) link;
        uint32_t id;
        int32_t pid;
        int fds[UNETD_STACK_FDS];
        void *view;
        bool orphan;
        nstime alone_since;             /* orphan without a peer; NSTIME_NEVER while it has one */
        nstime deadline;                /* of stack_work() */
        LIST_HEAD(, kproc) procs;
        LIST_HEAD(, kchan) chans;
};

/* A kernel socket that left in a message. */
struct kflight {
        LIST_ENTRY(kflight) link;
        uint32_t stack;
        uint64_t cookie;
};

struct kclient {
        struct conn conn;               /* first: handlers cast */
        LIST_ENTRY(kclient) link;
};

static struct keeper {
        struct loop loop;
        struct conn daemon;
        bool daemon_died;
        bool leaving;                   /* as soon as what was offered has been sent */
        const struct keeper_stack_ops *ops;
        struct unetd_config cfg;
        LIST_HEAD(, kstack) stacks;
        LIST_HEAD(, kclient) clients, dead;
        LIST_HEAD(, kflight) flights;
        uint32_t nflights;
        int flights_ep;                 /* watches them, holding none */
        nstime flights_at, flights_gap; /* when they are looked at next; the gap doubles */
        uint32_t nclients;
        nstime idle_since;
} keeper = {.cfg = UNETD_CONFIG_DEFAULT};

/* ---- finding ---- */

static struct kstack *stack_find(uint32_t id)
{
        struct kstack *st;

        LIST_FOREACH(st, &keeper.stacks, link)
                if (st->id == id)
                        return st;
        return NULL;
}

static struct kproc *proc_find(struct kstack *st, uint32_t slot)
{
        struct kproc *p;

        LIST_FOREACH(p, &st->procs, link)
                if (p->slot == slot && p->state != PROC_DONE)
                        return p;
        return NULL;
}

static struct kchan *chan_find(struct kstack *st, uint32_t slot)
{
        struct kchan *ch;

        LIST_FOREACH(ch, &st->chans, link)
                if (ch->info.chan == slot)
                        return ch;
        return NULL;
}

static void due(struct kstack *st)
{
        st->deadline = keeper.loop.now;
}

static void tell(uint16_t type, uint32_t stack, uint32_t slot)
{
        struct unetd_msg msg = {.type = type, .stack = {.stack = stack, .slot = slot}};

        conn_send(&keeper.daemon, &msg, NULL, 0);
}

/* ---- processes ---- */

static void proc_release(struct kproc *p)
{
        int fd = p->pidfd.fd;

        loop_del(&keeper.loop, &p->pidfd);
        if (fd >= 0)
                close(fd);
}

static void proc_died(struct loop_source *s, uint32_t events)
{
        struct kproc *p = (struct kproc *)s;

        proc_release(p);
        p->state = PROC_DYING;
        due(p->stack);
}

/* Takes pidfd, also on failure. */
static int proc_add(struct kstack *st, uint32_t slot, int32_t pid, int pidfd)
{
        struct kproc *p = proc_find(st, slot);
        int r;

        if (p) {
                close(pidfd);
                return p->pid == pid && p->state == PROC_LIVE ? 0 : -EBUSY;
        }
        p = calloc(1, sizeof *p);
        if (!p) {
                close(pidfd);
                return -ENOMEM;
        }
        *p = (struct kproc){.stack = st, .slot = slot, .pid = pid};
        p->pidfd = (struct loop_source){.fd = pidfd, .ready = proc_died};
        r = loop_add(&keeper.loop, &p->pidfd, EPOLLIN);
        if (r < 0) {
                close(pidfd);
                free(p);
                return -EINVAL;
        }
        LIST_INSERT_HEAD(&st->procs, p, link);
        return 0;
}

/* Whether the process still has the stack mapped. What cannot be read is believed to; one that is just dying has nothing, and
 * its pidfd will say so. */
static bool maps_state(const struct kstack *st, int32_t pid)
{
        struct stat sb;
        char path[32], *line = NULL;
        size_t room = 0;
        bool any = false, found = false;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/maps", pid);
        f = fopen(path, "re");
        if (!f || fstat(st->fds[UNETD_FD_STATE], &sb) < 0) {
                if (f)
                        fclose(f);
                return true;
        }
        while (!found && getline(&line, &room, f) > 0) {
                unsigned maj, min;
                unsigned long ino;

                any = true;
                if (sscanf(line, "%*s %*s %*s %x:%x %lu", &maj, &min, &ino) == 3)
                        found = ino == sb.st_ino && maj == major(sb.st_dev) && min == minor(sb.st_dev);
        }
        free(line);
        fclose(f);
        return found || !any;
}

/* A process that closed its connection: after an exec it ends as one that died does, but for what survived. */
static void proc_look(struct kproc *p)
{
        int r = maps_state(p->stack, p->pid) ? 1 : keeper.ops->proc_execed(p->stack->view, p->slot);

        if (r == -EAGAIN)
                return;
        p->left = false;
        if (r == 0) {
                proc_release(p);
                p->state = PROC_DYING;
        }
}

/* Its processes are looked at. */
static void client_left(int32_t pid)
{
        struct kstack *st;
        struct kproc *p;

        LIST_FOREACH(st, &keeper.stacks, link)
                LIST_FOREACH(p, &st->procs, link)
                        if (p->pid == pid && p->state == PROC_LIVE) {
                                p->left = true;
                                due(st);
                        }
}

/* Ends the references of what died; frees what is done with. */
static void procs_work(struct kstack *st)
{
        struct kproc *p = LIST_FIRST(&st->procs), *next;

        for (; p; p = next) {
                next = LIST_NEXT(p, link);
                if (p->left && p->state == PROC_LIVE)
                        proc_look(p);
                if (p->state == PROC_DYING && keeper.ops->proc_died(st->view, p->slot) != -EAGAIN) {
                        p->state = PROC_DONE;
                        if (!p->told)
                                tell(UNETD_K_PROC_GONE, st->id, p->slot);
                }
                if (p->state == PROC_DONE) {
                        LIST_REMOVE(p, link);
                        free(p);
                }
        }
}

static bool procs_dying(const struct kstack *st)
{
        struct kproc *p;

        LIST_FOREACH(p, &st->procs, link)
                if (p->state == PROC_DYING || (p->left && p->state == PROC_LIVE))
                        return true;
        return false;
}

/* ---- channels ---- */

static void chan_free(struct kchan *ch)
{
        if (ch->xsk.fd >= 0)
                loop_del(&keeper.loop, &ch->xsk);
        for (unsigned i = 0; i < unetd_chan_nfds(&ch->info); i++)
                close(ch->fds[i]);
        LIST_REMOVE(ch, link);
        free(ch);
}

/* Packets wait at an interface; until the stack rests again it is looked at by the clock. */
static void packets_came(struct loop_source *s, uint32_t events)
{
        struct kchan *ch = (struct kchan *)s;

        loop_mod(&keeper.loop, s, 0);
        due(ch->stack);
}

static void chan_watch(struct kchan *ch)
{
        if (!unetd_is_iface(ch->info.peer_stack))
                return;
        ch->xsk.fd = ch->fds[UNETD_FD_IF_XSK];
        if (loop_add(&keeper.loop, &ch->xsk, 0) < 0)
                ch->xsk.fd = -1;
}

static void chan_attach(struct kstack *st, struct kchan *ch)
{
        struct unetd_chan view = unetd_chan_of(&ch->info, ch->fds);
        int r = keeper.ops->chan_attach(st->view, ch->info.chan, &view);

        if (r == -EAGAIN)
                return;
        ch->state = CHAN_UP;
        conn_reply(&keeper.daemon, &ch->request, r);
        if (r < 0)
                chan_free(ch);
        else
                chan_watch(ch);
}

static void chan_down(struct kstack *st, struct kchan *ch)
{
        int r = keeper.ops->chan_down(st->view, ch->info.chan);

        if (r == -EAGAIN)
                return;
        conn_reply(&keeper.daemon, &ch->request, 0);
        chan_free(ch);
}

static void chans_work(struct kstack *st)
{
        struct kchan *ch = LIST_FIRST(&st->chans), *next;

        for (; ch; ch = next) {
                next = LIST_NEXT(ch, link);
                if (ch->state == CHAN_ATTACHING)
                        chan_attach(st, ch);
                else if (ch->state == CHAN_CLOSING)
                        chan_down(st, ch);
        }
}

static void chans_watch(const struct kstack *st)
{
        struct kchan *ch;

        LIST_FOREACH(ch, &st->chans, link)
                if (ch->xsk.fd >= 0)
                        loop_mod(&keeper.loop, &ch->xsk, EPOLLIN);
}

static bool chans_pending(const struct kstack *st)
{
        struct kchan *ch;

        LIST_FOREACH(ch, &st->chans, link)
                if (ch->state != CHAN_UP)
                        return true;
        return false;
}

/* ---- stacks ---- */

static void pipe_rang(struct loop_source *s, uint32_t events)
{
        struct kstack *st = (struct kstack *)s;
        char bytes[4096];

        if (read(s->fd, bytes, sizeof bytes) > 0)       /* what is left rings again */
                due(st);
}

static struct unetd_stack_fds stack_fds(const struct kstack *st)
{
        return (struct unetd_stack_fds){
                .state = st->fds[UNETD_FD_STATE],
                .bell = st->fds[UNETD_FD_BELL],
                .leader_r = st->fds[UNETD_FD_LEADER_R],
                .leader_w = st->fds[UNETD_FD_LEADER_W],
                .keeper_r = st->fds[UNETD_FD_KEEPER_R],
                .keeper_w = st->fds[UNETD_FD_KEEPER_W],
        };
}

static void stack_free(struct kstack *st)
{
        struct kproc *p;
        struct kchan *ch;

        while ((ch = LIST_FIRST(&st->chans)))
                chan_free(ch);
        while ((p = LIST_FIRST(&st->procs))) {
                proc_release(p);
                LIST_REMOVE(p, link);
                free(p);
        }
        loop_del(&keeper.loop, &st->pipe);
        if (st->view)
                keeper.ops->detach(st->view);
        for (unsigned i = 0; i < UNETD_STACK_FDS; i++)
                close(st->fds[i]);
        LIST_REMOVE(st, link);
        free(st);
}

/* Takes the six descriptors. */
static int stack_new(struct wire_in *in, struct kstack **out)
{
        struct kstack *st = calloc(1, sizeof *st);
        struct unetd_stack_fds fds;
        int r;

        if (!st)
                return -ENOMEM;
        st->alone_since = NSTIME_NEVER;
        st->id = in->msg.stack.stack;
        st->pid = in->msg.stack.pid;
        st->pipe = (struct loop_source){.fd = -1, .ready = pipe_rang};
        for (unsigned i = 0; i < UNETD_STACK_FDS; i++)
                st->fds[i] = wire_in_take(in, i);
        LIST_INSERT_HEAD(&keeper.stacks, st, link);
        fds = stack_fds(st);
        r = keeper.ops->attach(&st->view, st->id, &fds);
        if (r == 0) {
                st->pipe.fd = st->fds[UNETD_FD_KEEPER_R];
                r = loop_add(&keeper.loop, &st->pipe, EPOLLIN);
        }
        if (r < 0) {
                stack_free(st);
                return r;
        }
        *out = st;
        return 0;
}

static void listeners_work(struct kstack *st)
{
        struct keeper_listener l;

        while (keeper.ops->listener_gone(st->view, &l)) {
                struct unetd_msg msg = {
                        .type = UNETD_K_UNLISTEN,
                        .port = {.stack = st->id, .proto = l.proto, .port = l.port, .addr = l.addr}};
                conn_send(&keeper.daemon, &msg, NULL, 0);
        }
}

static bool has_peer(const struct kstack *st)
{
        struct kchan *ch;

        LIST_FOREACH(ch, &st->chans, link)
                if (ch->info.peer_stack != st->id)
                        return true;
        return false;
}

/* An orphan without a peer can reach nobody: it is given time to find that out, no more. */
static bool given_up(struct kstack *st)
{
        nstime grace = keeper.cfg.idle_s * NS_PER_S;

        if (has_peer(st) || grace < 0) {
                st->alone_since = NSTIME_NEVER;
                return false;
        }
        if (st->alone_since == NSTIME_NEVER)
                st->alone_since = keeper.loop.now;
        st->deadline = nstime_min(st->deadline, st->alone_since + grace);
        return keeper.loop.now - st->alone_since >= grace;
}

/* ---- sockets that left in messages ---- */

/*
 * The descriptor is put into an epoll instance and closed. The kernel takes it out of there when its file is no more: when
 * no process has it and it is in no message. /proc shows what is in there still, by the cookies.
 */
static bool flight_watch(uint64_t cookie, int fd)
{
        struct epoll_event ev = {.events = 0, .data.u64 = cookie};

        if (keeper.flights_ep == 0)
                keeper.flights_ep = epoll_create1(EPOLL_CLOEXEC);
        return keeper.flights_ep > 0 &&
               (epoll_ctl(keeper.flights_ep, EPOLL_CTL_ADD, fd, &ev) == 0 || errno == EEXIST);
}

static void take_flight(struct wire_in *in)
{
        struct kstack *st = stack_find(in->msg.stack.stack);
        struct kflight *f = NULL;

        if (!st || in->n != 1)
                return;
        if (keeper.nflights < FLIGHTS_MAX && flight_watch(in->msg.stack.cookie, in->fds[0]))
                f = calloc(1, sizeof *f);
        if (!f) {
                keeper.ops->flight(st->view, in->msg.stack.cookie, true);
                return;
        }
        *f = (struct kflight){.stack = st->id, .cookie = in->msg.stack.cookie};
        LIST_INSERT_HEAD(&keeper.flights, f, link);
        keeper.nflights++;
        keeper.flights_gap = FLIGHTS_GAP;
        keeper.flights_at = keeper.loop.now + FLIGHTS_GAP;
}

static bool has_flights(const struct kstack *st)
{
        const struct kflight *f;

        LIST_FOREACH(f, &keeper.flights, link)
                if (f->stack == st->id)
                        return true;
        return false;
}

/* Whether the epoll instance has it, in what /proc says of it. */
static bool still_there(const char *text, uint64_t cookie)
{
        while ((text = strstr(text, " data:")) != NULL) {
                text += 6;
                if (strtoull(text, NULL, 16) == cookie)
                        return true;
        }
        return false;
}

/* What /proc says, to be freed; NULL: it cannot be had. */
static char *flights_text(void)
{
        char path[64], *text = NULL;
        size_t room = 0;
        FILE *f;

        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", keeper.flights_ep);
        f = fopen(path, "re");
        if (f && getdelim(&text, &room, 0, f) < 0) {
                free(text);
                text = NULL;
        }
        if (f)
                fclose(f);
        return text;
}

static void flights_look(const char *text)
{
        struct kflight *f = LIST_FIRST(&keeper.flights), *next;

        for (; f; f = next) {
                struct kstack *st = stack_find(f->stack);
                next = LIST_NEXT(f, link);
                if (st && keeper.ops->flight(st->view, f->cookie, !still_there(text, f->cookie)) != 0)
                        continue;
                if (st)
                        due(st);
                LIST_REMOVE(f, link);
                keeper.nflights--;
                free(f);
        }
}

/* When to be called again. */
static nstime flights_work(void)
{
        char *text;

        if (LIST_EMPTY(&keeper.flights))
                return NSTIME_NEVER;
        if (keeper.loop.now < keeper.flights_at)
                return keeper.flights_at;
        text = flights_text();
        if (text)
                flights_look(text);
        free(text);
        keeper.flights_at = keeper.loop.now + keeper.flights_gap;
        keeper.flights_gap = nstime_min(keeper.flights_gap * 2, FLIGHTS_GAP_MAX);
        return LIST_EMPTY(&keeper.flights) ? NSTIME_NEVER : keeper.flights_at;
}

/* ---- all that is due ---- */

/* All that is due for one stack; it may be gone afterwards. */
static void stack_work(struct kstack *st)
{
        bool active = false, pending;

        procs_work(st);
        chans_work(st);
        st->deadline = keeper.ops->tick(st->view, keeper.loop.now, &active);
        listeners_work(st);
        if (keeper.ops->resting(st->view))
                chans_watch(st);
        pending = procs_dying(st) || chans_pending(st);
        if (active || pending)
                st->deadline = nstime_min(st->deadline, keeper.loop.now + ACTIVE_NS);
        if (!LIST_EMPTY(&st->procs) || has_flights(st))
                return;
        if (!st->orphan) {
                st->orphan = true;
                tell(UNETD_K_ORPHAN, st->id, 0);
        }
        if (!pending && (keeper.ops->empty(st->view) || given_up(st))) {
                tell(UNETD_K_GONE, st->id, 0);
                stack_free(st);
        } else {
                st->deadline = nstime_min(st->deadline, keeper.loop.now + ORPHAN_EVERY);
        }
}

/* ---- what unetd says ---- */

static int take_stack(struct wire_in *in)
{
        struct kstack *st = stack_find(in->msg.stack.stack);
        bool with_proc = in->n == UNETD_STACK_FDS + 1;
        int r = 0;

        if (in->n != UNETD_STACK_FDS && !with_proc)
                return -EBADMSG;
        if (!st)
                r = stack_new(in, &st);
        if (r == 0 && with_proc)
                r = proc_add(st, in->msg.stack.slot, in->msg.stack.pid, wire_in_take(in, UNETD_STACK_FDS));
        if (r == 0)
                due(st);
        return r;
}

static int take_proc(struct wire_in *in)
{
        struct kstack *st = stack_find(in->msg.stack.stack);

        if (in->n != 1)
                return -EBADMSG;
        if (!st || st->orphan)
                return -ENOENT;
        return proc_add(st, in->msg.stack.slot, in->msg.stack.pid, wire_in_take(in, 0));
}

static int drop_proc(const struct wire_in *in)
{
        struct kstack *st = stack_find(in->msg.stack.stack);
        struct kproc *p = st ? proc_find(st, in->msg.stack.slot) : NULL;

        if (!p)
                return -ENOENT;
        proc_release(p);
        p->state = keeper.ops->proc_died(st->view, p->slot) == -EAGAIN ? PROC_DYING : PROC_DONE;
        p->told = true;
        due(st);
        return 0;
}

/* Answered by chan_attach(), now or at a later tick. */
static int take_chan(struct wire_in *in)
{
        struct kstack *st = stack_find(in->msg.chan.stack);
        struct kchan *ch = st ? chan_find(st, in->msg.chan.chan) : NULL;
        int r;

        if (in->n != unetd_chan_nfds(&in->msg.chan))
                return -EBADMSG;
        if (!st)
                return -ENOENT;
        if (ch)
                return ch->info.peer_stack == in->msg.chan.peer_stack ? 0 : -EEXIST;
        r = unetd_chan_check(&in->msg.chan, in->fds);
        if (r < 0)
                return r;
        ch = calloc(1, sizeof *ch);
        if (!ch)
                return -ENOMEM;
        ch->xsk = (struct loop_source){.fd = -1, .ready = packets_came};
        ch->stack = st;
        ch->info = in->msg.chan;
        ch->request = in->msg;
        for (unsigned i = 0; i < in->n; i++)
                ch->fds[i] = wire_in_take(in, i);
        LIST_INSERT_HEAD(&st->chans, ch, link);
        chan_attach(st, ch);
        due(st);
        return 1;
}

static int drop_chan(const struct wire_in *in)
{
        struct kstack *st = stack_find(in->msg.chan.stack);
        struct kchan *ch = st ? chan_find(st, in->msg.chan.chan) : NULL;

        if (!ch)
                return -ENOENT;
        if (ch->state == CHAN_ATTACHING) {      /* never got into the state */
                conn_reply(&keeper.daemon, &ch->request, -ECANCELED);
                chan_free(ch);
                return 0;
        }
        ch->state = CHAN_CLOSING;
        ch->request = in->msg;
        due(st);
        return 1;
}

static void client_message(struct conn *c, struct wire_in *in);
static void client_ended(struct conn *c);

static void take_client(struct wire_in *in)
{
        struct kclient *cl = NULL;

        if (in->n == 1 && keeper.nclients < keeper.cfg.per_uid.clients)
                cl = calloc(1, sizeof *cl);
        if (!cl)
                return;                 /* its socket is closed: the client sees the end */
        cl->conn.message = client_message;
        cl->conn.ended = client_ended;
        if (conn_init(&cl->conn, &keeper.loop, wire_in_take(in, 0), keeper.cfg.queue_max) < 0) {
                free(cl);
                return;
        }
        LIST_INSERT_HEAD(&keeper.clients, cl, link);
        keeper.nclients++;
}

static void daemon_message(struct conn *c, struct wire_in *in)
{
        int r;

        switch ((enum unetd_type)in->msg.type) {
        case UNETD_K_DIRECTORY:
                if (in->n == 1)
                        keeper.ops->directory(wire_in_take(in, 0));
                return;
        case UNETD_K_CLIENT:
                take_client(in);
                return;
        case UNETD_K_FLIGHT:
                take_flight(in);
                return;
        case UNETD_K_LEFT:
                client_left(in->msg.stack.pid);
                return;
        case UNETD_K_STACK:
                r = take_stack(in);
                break;
        case UNETD_K_PROC:
                r = take_proc(in);
                break;
        case UNETD_K_PROC_DEL:
                r = drop_proc(in);
                break;
        case UNETD_K_CHAN:
                r = take_chan(in);
                break;
        case UNETD_K_CHAN_DOWN:
                r = drop_chan(in);
                break;
        default:
                r = -EBADMSG;
                break;
        }
        if (r <= 0)
                conn_reply(c, &in->msg, r);
}

/* ---- what clients ask ---- */

static struct kstack *find_for(const struct unetd_msg *msg)
{
        struct kstack *st;

        if (msg->stack.stack != 0)
                return stack_find(msg->stack.stack);
        LIST_FOREACH(st, &keeper.stacks, link)
                if (keeper.ops->cookie_owner(st->view, msg->stack.cookie))
                        return st;
        return NULL;
}

static int stack_get(struct conn *c, struct unetd_msg *msg)
{
        struct kstack *st = find_for(msg);

        if (!st)
                return -ENOENT;
        msg->err = 0;
        msg->stack.stack = st->id;
        conn_send(c, msg, st->fds, UNETD_STACK_FDS);
        return 1;
}

static int chan_get(struct conn *c, struct unetd_msg *msg)
{
        struct kstack *st = stack_find(msg->chan.stack);
        struct kchan *ch = st ? chan_find(st, msg->chan.chan) : NULL;

        if (!ch || ch->state == CHAN_ATTACHING)
                return -ENOENT;
        msg->err = 0;
        msg->chan = ch->info;
        conn_send(c, msg, ch->fds, unetd_chan_nfds(&ch->info));
        return 1;
}

static void client_message(struct conn *c, struct wire_in *in)
{
        int r = -EBADMSG;

        if (in->n == 0 && in->msg.type == UNETD_STACK_GET)
                r = stack_get(c, &in->msg);
        else if (in->n == 0 && in->msg.type == UNETD_CHAN_GET)
                r = chan_get(c, &in->msg);
        if (r <= 0)
                conn_reply(c, &in->msg, r);
}

static void client_ended(struct conn *c)
{
        struct kclient *cl = (struct kclient *)c;

        LIST_REMOVE(cl, link);
        LIST_INSERT_HEAD(&keeper.dead, cl, link);
        keeper.nclients--;
}

static void clients_bury(void)
{
        struct kclient *cl;

        while ((cl = LIST_FIRST(&keeper.dead))) {
                LIST_REMOVE(cl, link);
                free(cl);
        }
}

/* ---- when unetd dies ---- */

static void daemon_ended(struct conn *c)
{
        keeper.daemon_died = true;
}

static void offer_stack(struct kstack *st)
{
        struct unetd_msg msg = {.type = UNETD_K_STACK, .stack = {.stack = st->id, .pid = st->pid}};
        struct kproc *p;
        struct kchan *ch;

        conn_send(&keeper.daemon, &msg, st->fds, UNETD_STACK_FDS);
        LIST_FOREACH(p, &st->procs, link) {
                if (p->state != PROC_LIVE)
                        continue;
                msg = (struct unetd_msg){.type = UNETD_K_PROC,
                                         .stack = {.stack = st->id, .slot = p->slot, .pid = p->pid}};
                conn_send(&keeper.daemon, &msg, &p->pidfd.fd, 1);
        }
        LIST_FOREACH(ch, &st->chans, link) {
                if (ch->state != CHAN_UP || unetd_is_iface(ch->info.peer_stack))
                        continue;
                msg = (struct unetd_msg){.type = UNETD_K_CHAN, .chan = ch->info};
                conn_send(&keeper.daemon, &msg, ch->fds, UNETD_CHAN_FDS);
        }
        if (st->orphan)
                tell(UNETD_K_ORPHAN, st->id, 0);
}

/* The program that took the interfaces' packets has gone with its unetd. */
static void drop_ifaces(struct kstack *st)
{
        struct kchan *ch;

        LIST_FOREACH(ch, &st->chans, link) {
                if (!unetd_is_iface(ch->info.peer_stack))
                        continue;
                ch->state = CHAN_CLOSING;
                due(st);
        }
}

/* Connects to another unetd. */
static int find_daemon(void)
{
        struct unetd_client c = {.pid = 0};
        int fd, r = unetd_open(&c, 0);

        if (r < 0)
                return r;
        r = unetd_offer_keeper(&c, &fd);
        unetd_close(&c);
        if (r < 0 && r != -EEXIST)
                return r;
        keeper.leaving = r == -EEXIST;
        return conn_init(&keeper.daemon, &keeper.loop, fd, DAEMON_QUEUE);
}

/* Nobody is to come to us any more: clients find the other keeper. */
static void live_on_alone(void)
{
        struct kclient *cl;

        while ((cl = LIST_FIRST(&keeper.clients)))
                conn_fail(&cl->conn);
}

static void daemon_lost(void)
{
        struct kstack *st;

        keeper.daemon_died = false;
        if (LIST_EMPTY(&keeper.stacks) || keeper.leaving) {
                keeper.loop.stop = true;
                return;
        }
        if (find_daemon() < 0) {
                live_on_alone();
                return;
        }
        LIST_FOREACH(st, &keeper.stacks, link) {
                drop_ifaces(st);
                offer_stack(st);
        }
}

/* ---- running ---- */

/* Idle: no stack, no client. Without a unetd there is nothing to wait for. */
static nstime idle_deadline(void)
{
        if (!LIST_EMPTY(&keeper.stacks) || keeper.nclients > 0) {
                keeper.idle_since = NSTIME_NEVER;
                return NSTIME_NEVER;
        }
        if (keeper.daemon.broken)
                keeper.loop.stop = true;
        if (keeper.cfg.idle_s < 0)
                return NSTIME_NEVER;
        if (keeper.idle_since == NSTIME_NEVER)
                keeper.idle_since = keeper.loop.now;
        if (keeper.loop.now - keeper.idle_since >= keeper.cfg.idle_s * NS_PER_S)
                keeper.loop.stop = true;
        return keeper.idle_since + keeper.cfg.idle_s * NS_PER_S;
}

static nstime stacks_work(void)
{
        struct kstack *st = LIST_FIRST(&keeper.stacks), *next;
        nstime when = NSTIME_NEVER;

        for (; st; st = next) {
                next = LIST_NEXT(st, link);
                if (st->deadline <= keeper.loop.now)
                        stack_work(st);
        }
        LIST_FOREACH(st, &keeper.stacks, link)
                when = nstime_min(when, st->deadline);
        return when;
}

static nstime after_batch(struct loop *l)
{
        nstime flights = flights_work(), when = keeper.leaving ? NSTIME_NEVER : stacks_work();

        if (keeper.daemon_died)
                daemon_lost();
        if (keeper.leaving && keeper.daemon.queued == 0)
                keeper.loop.stop = true;
        clients_bury();
        return keeper.daemon_died ? keeper.loop.now : nstime_min(nstime_min(when, flights), idle_deadline());
}

static int parse(int argc, char **argv)
{
        static const struct option longs[] = {
                {"idle", required_argument, NULL, 'i'},
                {"log", required_argument, NULL, 'l'},
                {"help", no_argument, NULL, 'h'},
                {NULL, 0, NULL, 0},
        };
        int opt;

        while ((opt = getopt_long(argc, argv, "", longs, NULL)) != -1) {
                if (opt == 'i')
                        keeper.cfg.idle_s = atoi(optarg);
                else if (opt == 'l')
                        snprintf(keeper.cfg.log, sizeof keeper.cfg.log, "%s", optarg);
                else {
                        fputs("unet-keeper is started by unetd, with its connection as descriptor 3.\n",
                              opt == 'h' ? stdout : stderr);
                        return opt == 'h' ? 0 : 2;
                }
        }
        return -1;
}

int keeper_main(int argc, char **argv, const struct keeper_stack_ops *ops)
{
        int status = parse(argc, argv);

        if (status >= 0)
                return status;
        log_open(keeper.cfg.log, false);
        signal(SIGPIPE, SIG_IGN);
        keeper.ops = ops;
        keeper.idle_since = NSTIME_NEVER;
        keeper.daemon.message = daemon_message;
        keeper.daemon.ended = daemon_ended;
        fcntl(DAEMON_FD, F_SETFD, FD_CLOEXEC);
        if (loop_init(&keeper.loop, after_batch) < 0 ||
            conn_init(&keeper.daemon, &keeper.loop, DAEMON_FD, DAEMON_QUEUE) < 0) {
                fputs("unet-keeper: not started by unetd\n", stderr);
                return 1;
        }
        loop_run(&keeper.loop);
        return 0;
}
