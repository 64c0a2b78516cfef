/*
 * What the keeper's files share; nobody else includes it.
 *
 *      keeper.c          the loop: what is due, and main
 *      keeper_daemon.c   what unetd says, and when it dies
 *      keeper_clients.c  what clients ask
 *      keeper_stacks.c   a stack: attached, its bell, what is due for it, its end
 *      keeper_procs.c    its processes: who died, who left by exec
 *      keeper_chans.c    its channels: attached, watched, taken down
 *      keeper_flights.c  sockets of its that are under way in messages
 *      keeper_settle.c   what dead processes leave, when unetd asks that it be seen to now
 */
#ifndef UNETD_KEEPER_H
#define UNETD_KEEPER_H

#include "config/settings.h"
#include "unetd/loop/conn.h"
#include "unetd/keeper/keeper_ops.h"
#include "unetd/loop/log.h"

/* Messages to unetd that may wait: all that a user may have. */
#define KEEPER_DAEMON_QUEUE 262144u

#define KEEPER_FLIGHTS_EPS 4u
#define KEEPER_SETTLES     64u /* that wait at once; the others are answered without */

enum proc_state { PROC_LIVE, PROC_DYING, PROC_DONE };

struct kproc {
        struct loop_source pidfd; /* first: handlers cast */
        LIST_ENTRY(kproc) link;
        struct kstack *stack;
        uint32_t slot;
        int32_t pid;
        enum proc_state state;
        bool left; /* closed a connection: may be another program by now */
        bool told; /* unetd knows that it goes */
};

enum chan_state { CHAN_ATTACHING, CHAN_UP, CHAN_PARTING, CHAN_CLOSING };

struct kchan {
        struct loop_source xsk; /* interfaces; first: handlers cast */
        LIST_ENTRY(kchan) link;
        struct kstack *stack;
        struct unetd_chan_info info;
        int fds[UNETD_CHAN_FDS_MAX];
        unsigned nfds; /* those of K_CHAN, and UNETD_FD_PEER_STATE */
        enum chan_state state;
        bool yields; /* ... while it is up, for another */
        /* Answered when the state changes; type 0: nobody waits for that. */
        struct unetd_msg request;
};

struct kstack {
        struct loop_source bell; /* first: handlers cast */
        LIST_ENTRY(kstack) link;
        uint32_t id;
        int32_t pid;
        int fds[UNETD_STACK_FDS];
        void *view;
        uint32_t awaited; /* processes that unetd is about to name: it is no orphan before */
        bool orphan;
        nstime alone_since; /* orphan without a peer; NSTIME_NEVER while it has one */
        nstime deadline;    /* of stack_work() */
        struct kwake {
                struct loop_source source; /* first: handlers cast */
                struct kstack *stack;
        } wake[KEEPER_WAKE_FDS]; /* its RDMA devices' */
        int nwakes;
        struct unetd_msg yield; /* K_CHAN_YIELD that is to be answered; type 0: none is */
        LIST_HEAD(, kproc) procs;
        LIST_HEAD(, kchan) chans;
        LIST_HEAD(, klink) links;
};

/* What a stack has of an RDMA device. */
struct klink {
        LIST_ENTRY(klink) link;
        uint32_t iface;
        int fds[UNETD_LINK_FDS];
};

/* A kernel socket that left in a message. */
struct kflight {
        LIST_ENTRY(kflight) link;
        uint32_t stack;
        uint64_t cookie;
        bool own;   /* it is in our own instance */
        bool aloft; /* unetd was told that no process has it */
};

struct kclient {
        struct conn conn; /* first: handlers cast */
        LIST_ENTRY(kclient) link;
};

extern struct keeper {
        struct loop loop;
        struct conn daemon;
        bool daemon_died;
        bool system; /* the unetd in use, or the last one, is a system-wide one: no other will do */
        /* When it is looked for another one next, and how long after that; NSTIME_NEVER: not. */
        nstime look_at, look_gap;
        nstime began; /* by loop.now, which leaves out the offset of a time namespace */
        bool leaving; /* as soon as what was offered has been sent */
        const struct keeper_stack_ops *ops;
        struct unetd_config cfg;
        LIST_HEAD(, kstack) stacks;
        LIST_HEAD(, kclient) clients, dead;
        LIST_HEAD(, kflight) flights;
        uint32_t nflights;
        bool flights_missed; /* one of them could not be looked at */
        /* Watch them, holding none: the first is ours, or that of the keeper before us; the others
         * are those of keepers that handed their stacks over. */
        int flights_ep[KEEPER_FLIGHTS_EPS];
        uint32_t nflights_eps;
        nstime flights_at, flights_gap; /* when they are looked at next; the gap doubles */
        uint32_t nclients;
        nstime idle_since;
        struct unetd_msg settle[KEEPER_SETTLES]; /* K_SETTLE, to be answered */
        uint32_t nsettles;
        uint32_t settle_turns; /* how often it was looked whether they can be */
} keeper;

/* ---- keeper.c ---- */

/* NULL: there is none. */
struct kstack *kstack_find(uint32_t id);
struct kproc *kproc_find(struct kstack *st, uint32_t slot);
struct kchan *kchan_find(struct kstack *st, uint32_t slot);
/* kstack_work() is called for it at the end of this batch. */
void kstack_due(struct kstack *st);
/* Tells unetd. */
void keeper_tell(uint16_t type, uint32_t stack, uint32_t slot);

/* ---- keeper_procs.c ---- */

/* Takes pidfd, also on failure. 0, -EBUSY: another process has the slot; -ENOMEM, -EINVAL:
 * no pidfd. */
int kproc_add(struct kstack *st, uint32_t slot, int32_t pid, int pidfd);
/* Its pidfd is watched no more. */
void kproc_release(struct kproc *p);
/* A process closed its connection to unetd: it is looked at, wherever it is in the books. */
void kproc_left(int32_t pid);
/* Ends the references of what died; frees what is done with. */
void kprocs_work(struct kstack *st);
/* Marks those that died since the loop last looked. */
void kprocs_look(struct kstack *st);
/* Returns true if some processes of the stack are to be looked at again soon. */
bool kprocs_dying(const struct kstack *st);

/* ---- keeper_chans.c ---- */

/* unetd's message about a channel to hold. Returns 1 if the answer follows at a later tick, else
 * the answer. */
int kchan_take(struct wire_in *in);
/* ... and about one to give up. As above. */
int kchan_drop(const struct wire_in *in);
/* A channel is to yield its number, or to part because its other end yields. As above. */
int kchan_yield(const struct wire_in *in);
int kchan_part(const struct wire_in *in);
void kchan_stay(const struct wire_in *in);
/* unetd is gone: no channel has to yield any more. */
void kchans_stay(struct kstack *st);
/* unetd, which asked, is gone: the channel's request is not answered. */
void kchan_forget_request(struct kchan *ch);
/* Tells unetd which numbers new channels cannot have, but for those of channels that are up. */
void kchans_tell_taken(struct kstack *st);
void kchan_free(struct kchan *ch);
/* The message of unetd about what a stack has of an RDMA device. */
void klink_take(struct wire_in *in);
void klinks_free(struct kstack *st);
void kchans_work(struct kstack *st);
/* The stack rests: from now on packets at its interfaces wake the keeper. */
void kchans_watch(const struct kstack *st);
bool kchans_pending(const struct kstack *st);

/* ---- keeper_stacks.c ---- */

/* Attaches the stack of a message, whose six descriptors it takes. 0 or a negative errno. */
int kstack_new(struct wire_in *in, struct kstack **out);
/* Does all that is due for one stack; the stack may be gone afterwards. */
void kstack_work(struct kstack *st);

/* ---- keeper_flights.c ---- */

/* A kernel socket that left in a message: K_FLIGHT. What is answered. */
int kflight_take(struct wire_in *in);
/* What another keeper watches, or a dead one watched: K_FLIGHTS. */
void kflights_take(struct wire_in *in);
/* Sockets of a stack that has come are in messages: they are watched by another keeper. */
void kflights_begin(const struct kstack *st);
/* Another unetd is told what watches them. */
void kflights_offer(void);
bool kflights_of(const struct kstack *st);
/* They are looked at in this batch. */
void kflights_due(void);
/* When to be called again. */
nstime kflights_work(void);

/* ---- keeper_settle.c ---- */

/* K_SETTLE. 1: it will be answered; else the answer. */
int ksettle_take(const struct wire_in *in);
/* After the stacks' work: answers, or says when to be called again. */
nstime ksettle_work(void);

/* ---- keeper_clients.c ---- */

/* Another keeper may come, and hand over what it has. */
bool keeper_may_be_handed_more(void);

/* The socket of a client that unetd sends to us; without room for it, it sees the end. */
void kclient_take(struct wire_in *in);
/* Frees those that ended in this batch. */
void kclients_bury(void);

/* ---- keeper_daemon.c ---- */

void keeper_daemon_message(struct conn *c, struct wire_in *in);
void keeper_daemon_ended(struct conn *c);
/* After a batch in which it ended: looks for another one. */
void keeper_daemon_lost(void);
/* A system-wide one may be there again. Returns when to be called next. */
nstime keeper_daemon_look(void);

#endif
