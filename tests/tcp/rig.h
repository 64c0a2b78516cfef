/*
 * One TCP on the heap: shared block, frames in malloc'd regions, counters, and what the stack's
 * loop would keep. Time is virtual; nothing here knows a network. scene.h puts a scripted peer on
 * the other side, pair.h another rig.
 */
#ifndef TESTS_TCP_RIG_H
#define TESTS_TCP_RIG_H

#include "tcp/tcp_conn.h"
#include "tcp/tcp_info.h"
#include "tcp/tcp_listen.h"
#include "tcp/tcp_loop.h"
#include "tcp/tcp_stream.h"

#define RIG_CONNS   192
#define RIG_REPLIES 64
#define RIG_CHAN    0

struct rig {
        struct tcp t;
        struct frames frames;
        struct counters cnt;
        bool touched[RIG_CONNS];
        bool gone[RIG_CONNS];
        struct {
                struct tcp_tuple tuple;
                struct tcp_seg seg;
        } reply[RIG_REPLIES]; /* what left by t.reply, not yet looked at */
        unsigned replies;
        void *memory[4];
        struct rig *lender; /* whose transmit frames arrive in our receive region; NULL: nobody's */
};

struct rig_size {
        struct tcp_limits limits;
        struct frame_geom rx, tx;
};
extern const struct rig_size rig_size_default;

struct rig *rig_new(const struct rig_size *size, uint64_t seed);
void rig_free(struct rig *r);
/* The frames that `from` sends can be received by `to` as lent ones. */
void rig_lend(struct rig *from, struct rig *to);
/* Payload of a segment that came out of tcp_output(). */
const uint8_t *rig_payload(const struct rig *r, const struct tcp_seg *seg);
/* tcp_output(), and that it had been said before that there is something. */
bool rig_output(struct rig *r, uint32_t conn, struct tcp_seg *seg, nstime now);
/* Asserts the invariants of every connection, and that frames and records are accounted for. */
void rig_check(const struct rig *r);
/* What the stack does after a process died inside connection `broken` (0: none): references
 * counted anew. */
void rig_recover(struct rig *r, uint32_t broken, nstime now);
/* Frames of ours that are in use: 0 when everything is over. */
uint32_t rig_frames_used(const struct rig *r);

#endif
