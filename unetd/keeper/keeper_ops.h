/*
 * What the keeper asks of a stack: the seam between unet-keeper and the stack library, which knows
 * the state's layout.
 *
 * The keeper is one thread and calls these from one loop; a view is one mapped stack. None may
 * block: whoever holds the stack's lock is at work, so an operation that cannot get it at once says
 * so (-EAGAIN, or active) and is asked again at the next tick. Descriptors are borrowed for the
 * call; those of a channel to a stack as long as it is in the view: until chan_down() or
 * chan_part() has returned 0, or detach().
 */
#ifndef UNETD_KEEPER_OPS_H
#define UNETD_KEEPER_OPS_H

#include "base/base.h"
#include "unetd/client/client.h"

struct keeper_listener {
        uint8_t proto;
        uint16_t port;
        ip_addr addr;
        uint64_t sock; /* as in struct unetd_port */
};

#define KEEPER_ALOFT    2
#define KEEPER_WAKE_FDS 32 /* most descriptors of one stack, besides those of its channels */

struct keeper_stack_ops {
        /* The directory of the unetd in use, a descriptor that is taken: who may send
         * from where. */
        void (*directory)(int fd);
        /* Maps a stack, not trusting what is in it; the descriptor of its state stays open as long
         * as the view. 0, or a negative errno: it is not a stack. */
        int (*attach)(void **view, uint32_t stack_id, const struct unetd_stack_fds *fds);
        void (*detach)(void *view);
        /* Makes what progress is due when no process of the stack does. Returns when to call again
         * at the latest, NSTIME_NEVER for none; *active: call again within a millisecond. Also
         * called when the keeper was rung. */
        nstime (*tick)(void *view, nstime now, bool *active);
        /* The keeper was rung, and a tick will follow. */
        void (*rang)(void *view);
        /* Writes channel `slot` into the state: from then on the stack's processes may use it. A
         * keeper that replaces a dead one attaches what is there already: the same peer again is no
         * error. -EAGAIN: ask again. */
        int (*chan_attach)(void *view, uint32_t slot, const struct unetd_chan *chan);
        /* Nothing is going on and processes sleep: whatever comes by an interface is the keeper's
         * to see to. */
        bool (*resting)(void *view);
        /* The peer is gone. 0: the slot is free for another channel; -EAGAIN: ask again. */
        int (*chan_down)(void *view, uint32_t slot);
        /* Nothing new begins by one of the channels `may`, a bit each: its number. The one that was
         * not used for longest, and that nothing refers to; -ENOENT: there is none; -EAGAIN: ask
         * again. */
        int (*chan_yield)(void *view, const uint64_t may[UNETD_CHANS_MAX / 64]);
        /* The other end yields. 0: as chan_down(); -EBUSY: something refers to the channel, or is
         * on its way; -EAGAIN: ask again. */
        int (*chan_part)(void *view, uint32_t slot);
        /* The channel that yielded is as before. */
        void (*chan_stay)(void *view, uint32_t slot);
        /* Process `slot` holds nothing any more: it died, or said so. Ends its references. -EAGAIN:
         * ask again. */
        int (*proc_died)(void *view, uint32_t slot);
        /* Process `slot` runs another program now: what did not survive its exec ends. 0: it holds
         * nothing any more; 1: it does; -EAGAIN: ask again. */
        int (*proc_execed)(void *view, uint32_t slot);
        /* The socket with this SO_COOKIE, of which descriptors are under way in messages; `over`:
         * its kernel socket is no more, so none is. 1: they are; 0: they are not, or not any more;
         * -EAGAIN: ask again. KEEPER_ALOFT: they are, no process has it, and it is at a port that
         * unetd knows, *at. */
        int (*flight)(void *view, uint64_t cookie, bool over, struct keeper_listener *at);
        /* The next socket, by its SO_COOKIE, that the stack says is in a message; *at is 0 at
         * first. False: that was all. Asked once, when the stack was attached: its processes wait
         * for our answer, and have told us of none yet. */
        bool (*flight_next)(void *view, uint32_t *at, uint64_t *cookie);
        /* Nothing is left to finish, TIME-WAIT aside, or nothing of it can be. Asked when no
         * process is left, every second. */
        bool (*empty)(void *view);
        /* Returns true if a socket with this SO_COOKIE is one of this stack's. */
        bool (*cookie_owner)(void *view, uint64_t cookie);
        /* Returns true if there is a channel of that number in the state; numbers from chans() on
         * were never used. */
        bool (*has_chan)(void *view, uint32_t slot);
        uint32_t (*chans)(void *view);
        /* Returns true if a program of the stack had memory to send from (stack_memory.h). */
        bool (*has_memory)(void *view);
        /* The next listener that lost its last holder since last asked; false when there is none
         * (left). */
        bool (*listener_gone)(void *view, struct keeper_listener *out);
        /* The next link to an RDMA device that has another driver than unetd knows of; false when
         * there is none (left). */
        bool (*link_moved)(void *view, struct unetd_far *out);
        /* The stack's link to an RDMA device, by the interface's number; the descriptors are lent.
         * 0 or a negative errno. */
        int (*link_attach)(void *view, uint32_t iface, int mem, int book);
        /* link_moved() says all of them again. */
        void (*links_again)(void *view);
        /* The next of the stack's ports as it was told unetd, in the form of LISTEN_ADD, PORT_HOLD
         * or PORT_LEASE; *at is 0 at first. False: that was all. */
        bool (*port_next)(void *view, uint32_t *at, struct unetd_msg *msg);
        /* What the stack's packets come by, when the keeper drives; tick() takes all of it. Returns
         * how many. */
        int (*wake_fds)(void *view, int fd[KEEPER_WAKE_FDS]);
};

/* The real ones; the stack library defines them. */
extern const struct keeper_stack_ops keeper_stack_ops;

/* Runs the keeper with these operations until it has nothing to do; the program's whole main(). */
int keeper_main(int argc, char **argv, const struct keeper_stack_ops *ops);

#endif
