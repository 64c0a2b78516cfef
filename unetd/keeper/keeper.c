/*
 * unet-keeper: holds the stacks of one user, and makes progress when none of their processes does.
 *
 *      unetd ----- stacks, processes, channels in; who died, what is empty out
 *      clients --- descriptors of stacks and channels out
 *      pidfds ---- a process died: its references end
 *      bells ----- a stack wants a tick: no process of it waits in a call
 *
 * Handlers only note what happened and mark the stack due; all work on a stack, and all freeing, is
 * in kstack_work(), called after the batch for stacks that are due. An idle keeper has no deadline
 * and does not wake.
 *
 * When unetd dies: without stacks the keeper leaves. With stacks it looks for another one (starts
 * it, if need be; one of the whole system is not for it to start, and is waited for) and offers
 * itself and all it holds. If that has got another keeper meanwhile, it gives it all and leaves. If
 * there is no unetd to be had, it keeps its stacks going until they are empty.
 */
#include "unetd/keeper/keeper.h"

#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "unetd/client/timens.h"

#define DAEMON_FD 3

struct keeper keeper = {.cfg = UNETD_CONFIG_DEFAULT, .look_at = NSTIME_NEVER};

/* ---- finding ---- */

struct kstack *kstack_find(uint32_t id)
{
        struct kstack *st;

        LIST_FOREACH (st, &keeper.stacks, link)
                if (st->id == id)
                        return st;
        return NULL;
}

struct kproc *kproc_find(struct kstack *st, uint32_t slot)
{
        struct kproc *p;

        LIST_FOREACH (p, &st->procs, link)
                if (p->slot == slot && p->state != PROC_DONE)
                        return p;
        return NULL;
}

struct kchan *kchan_find(struct kstack *st, uint32_t slot)
{
        struct kchan *ch;

        LIST_FOREACH (ch, &st->chans, link)
                if (ch->info.chan == slot)
                        return ch;
        return NULL;
}

void kstack_due(struct kstack *st)
{
        assert(st->view != NULL);
        st->deadline = keeper.loop.now;
}

void keeper_tell(uint16_t type, uint32_t stack, uint32_t slot)
{
        struct unetd_msg msg = {.type = type, .stack = {.stack = stack, .slot = slot}};

        conn_send(&keeper.daemon, &msg, NULL, 0);
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
                        kstack_work(st);
        }
        LIST_FOREACH (st, &keeper.stacks, link)
                when = nstime_min(when, st->deadline);
        return when;
}

static nstime after_batch(struct loop *l)
{
        nstime flights = kflights_work(), when = keeper.leaving ? NSTIME_NEVER : stacks_work(),
               look;
        nstime settle = ksettle_work();

        if (keeper.daemon_died)
                keeper_daemon_lost();
        look = keeper_daemon_look();
        if (keeper.leaving && keeper.daemon.queued == 0)
                keeper.loop.stop = true;
        kclients_bury();
        when = nstime_min(nstime_min(nstime_min(when, flights), settle),
                          nstime_min(look, idle_deadline()));
        return keeper.daemon_died ? keeper.loop.now : when;
}

static int parse(int argc, char **argv)
{
        static const struct option longs[] = {
                {"idle", required_argument, NULL, 'i'},
                {"log", required_argument, NULL, 'l'},
                {"system", no_argument, NULL, 's'},
                {"help", no_argument, NULL, 'h'},
                {NULL, 0, NULL, 0},
        };
        int opt;

        while ((opt = getopt_long(argc, argv, "", longs, NULL)) != -1) {
                if (opt == 'i')
                        keeper.cfg.idle_s = atoi(optarg);
                else if (opt == 'l')
                        snprintf(keeper.cfg.log, sizeof keeper.cfg.log, "%s", optarg);
                else if (opt == 's')
                        prctl(PR_SET_DUMPABLE, 0); /* its user's other processes do not trace it */
                else {
                        fputs("unet-keeper is started by unetd, with its connection as descriptor "
                              "3.\n",
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
        timens_find();
        log_open(keeper.cfg.log, false);
        signal(SIGPIPE, SIG_IGN);
        keeper.ops = ops;
        keeper.idle_since = NSTIME_NEVER;
        keeper.daemon.message = keeper_daemon_message;
        keeper.daemon.ended = keeper_daemon_ended;
        fcntl(DAEMON_FD, F_SETFD, FD_CLOEXEC);
        if (loop_init(&keeper.loop, after_batch) < 0 ||
            conn_init(&keeper.daemon, &keeper.loop, DAEMON_FD, KEEPER_DAEMON_QUEUE) < 0) {
                fputs("unet-keeper: not started by unetd\n", stderr);
                return 1;
        }
        keeper.began = keeper.loop.now;
        loop_run(&keeper.loop);
        return 0;
}
