/* What the keeper_side*.c share: a stack as the keeper has it. Nobody else includes it. */
#ifndef SOCK_KEEPER_VIEW_H
#define SOCK_KEEPER_VIEW_H

#include "sock/keeper/keeper_side.h"
#include "sock/attach/ustack.h"

struct keeper_view {
        struct ustack u;
        nstime busy_at; /* when something was last going on */
        uint64_t seen;  /* messages received as of the last tick */
        /* The last look that found something to do which no process had seen to, or the end of
         * a rest. */
        nstime needed_at;
        struct keeper_listener gone[64];
        uint32_t ngone;
        nstime down_looked[STACK_CHANS]; /* when a channel that is down was last looked at */
        /* What had gone by a channel when they were last looked at, and since when it is so. */
        struct {
                uint64_t gone_by;
                nstime since;
        } quiet[STACK_CHANS];
        nstime uses_again; /* not before it is looked at which of them are used */
        /* Whether processes had numbers left, and when that is looked at again. */
        bool numbers;
        nstime numbers_again;
        bool heard;   /* a ring told of a channel that nobody looked at, and no turn has followed */
        bool resting; /* the bell is armed for us, or a process's leader sleeps */
        bool strangers;    /* no process that unetd knows is left, but there are others */
        bool nobody;       /* there are none, and what they left was gone through */
        nstime unknown_at; /* when it is looked after those whom unetd does not know */
        /* From which slot on it is looked for one whose program may be another by now: one a look,
         * since maps may be long. */
        uint32_t image_from;
        int state_fd; /* the caller's */
        nstime forking_until[STACK_PROCS];
        nstime capture_until; /* 0: nobody captures, or everything was read */
        /* Links that we drive now, and unetd does not know of. */
        struct unetd_far taken[DIR_IFACES];
        uint32_t ntaken;
        uint64_t moved;  /* messages sent and received by a stack without processes */
        nstime moved_at; /* when that last changed; 0: not looked at yet */
};

/* ---- keeper_side.c ---- */

/* A listener whose last process slot this is, is told to unetd, which takes it out of
 * the directory. */
void keeper_note_listener(struct keeper_view *v, const struct sock_rec *rec, uint32_t slot);

/* ---- keeper_side_chans.c: as the operations of these names ---- */

int keeper_chan_attach(void *view, uint32_t slot, const struct unetd_chan *chan);
int keeper_chan_down(void *view, uint32_t slot);
bool keeper_has_chan(void *view, uint32_t slot);
uint32_t keeper_chans(void *view);
bool keeper_has_memory(void *view);
int keeper_chan_yield(void *view, const uint64_t *may);
int keeper_chan_part(void *view, uint32_t slot);
void keeper_chan_stay(void *view, uint32_t slot);

/* ---- keeper_room.c ---- */

/* Whether the stack's processes have room for the channel: it is there, or for one more. */
bool keeper_has_room(struct keeper_view *v, uint32_t slot, const struct unetd_chan *chan);
/* Returns true if all processes of the stack may map the memory of its peers. */
bool keeper_may_name(const struct keeper_view *v);

/* ---- keeper_side_procs.c ---- */

int keeper_proc_died(void *view, uint32_t slot);
int keeper_proc_execed(void *view, uint32_t slot);
/* Children that died before they could tell unetd of themselves; only looked for when no process is
 * known any more. */
void keeper_bury_strangers(struct keeper_view *v);
/* What dead processes held of whom unetd does not know, beside others. When to look again. The lock
 * must not be held: a look takes some 20 us a process. */
nstime keeper_bury_unknown(struct keeper_view *v, nstime now);

#endif
